"""The notebooks run from top to bottom."""

from __future__ import annotations

from pathlib import Path

import nbclient
import nbformat
import pytest

EXAMPLES = sorted((Path(__file__).parents[2] / "examples").glob("*.ipynb"))
_QUICK = ("document_search",)


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::RuntimeWarning")
@pytest.mark.parametrize(
    "path",
    [
        # A session of its own takes a minute to start and stop on a busy machine.
        pytest.param(
            path, id=path.stem, marks=[pytest.mark.long] * (path.stem != "document_search")
        )
        for path in EXAMPLES
    ],
)
def test_a_notebook_runs(path, tmp_path):
    notebook = nbformat.read(path, as_version=4)
    assert not any(cell.get("outputs") for cell in notebook.cells), "commit it without outputs"
    resources = {"metadata": {"path": str(tmp_path)}}
    nbclient.NotebookClient(notebook, timeout=240, resources=resources).execute()
