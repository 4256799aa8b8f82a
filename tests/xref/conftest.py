"""What the tests of XRefs share: a clean memory, a table of six splits."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from xrefs import ALWAYS, MAPPING, SCHEMA, rows_of

from indextables import Table
from indextables.xref.open_xref import close_xrefs


@pytest.fixture(autouse=True)
def nothing_remembered() -> Iterator[None]:
    """Every test begins without open XRefs and without memories."""
    close_xrefs()
    yield
    close_xrefs()


@pytest.fixture(scope="session")
def config(tmp_path_factory: pytest.TempPathFactory) -> dict[str, object]:
    """A configuration that leaves the user's folders alone and asks XRefs always."""
    return {
        "spark.indextables.cache.disk.path": str(tmp_path_factory.mktemp("cache")),
        **ALWAYS,
    }


@pytest.fixture(scope="session")
def template(tmp_path_factory: pytest.TempPathFactory, config: dict[str, object]) -> Path:
    """The folder of a table of six splits, numbered by their `id`, without an XRef."""
    folder = tmp_path_factory.mktemp("template") / "table"
    table = Table.create(folder, SCHEMA, mapping=MAPPING, config=config)
    for number in range(6):
        table.append(rows_of(number))
    return folder


@pytest.fixture
def table(template: Path, tmp_path: Path, config: dict[str, object]) -> Table:
    """A copy of that table."""
    shutil.copytree(template, tmp_path / "table")
    return Table.open(tmp_path / "table", config=config)
