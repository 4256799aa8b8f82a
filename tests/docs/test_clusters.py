"""The page about clusters, word for word: a standalone cluster whose workers lack the package."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import sysconfig
from importlib import metadata
from pathlib import Path

import pyspark
import pytest
from packaging.requirements import Requirement

PAGE = (Path(__file__).parents[2] / "docs" / "clusters.md").read_text()
SOURCE = Path(__file__).parents[2] / "src" / "indextables"


def required(*names: str) -> set[str]:
    """Packages, and all that they require on this Python."""
    found: set[str] = set()
    waiting = list(names)
    while waiting:
        name = waiting.pop()
        if name in found:
            continue
        found.add(name)
        for text in metadata.requires(name) or ():
            one = Requirement(text)
            if one.marker is None or one.marker.evaluate({"extra": ""}):
                waiting.append(one.name)
    return found


def install(command: str, site: Path) -> None:
    """What pip would install, copied from this environment: tests have no network."""
    match = re.fullmatch(r"environment/bin/pip install ([a-z ]+)", command)
    here = Path(sysconfig.get_path("purelib"))
    tops = {
        file.parts[0]
        for name in required(*match[1].split()) - {"indextables"}
        for file in metadata.files(name) or ()
        if ".." not in file.parts and "__pycache__" not in file.parts[0]
    }
    for top in sorted(tops):
        copy = shutil.copytree if (here / top).is_dir() else shutil.copy2
        copy(here / top, site / top)
    shutil.copytree(SOURCE, site / "indextables")


@pytest.mark.long
def test_the_page_runs_word_for_word(tmp_path, monkeypatch):
    from spark_standalone import standalone

    pack, submit = re.findall(r"```sh\n(.*?)```", PAGE, re.DOTALL)
    job = re.search(r'```\{\.python \.no-run title="job.py"\}\n(.*?)```', PAGE, re.DOTALL)[1]
    (tmp_path / "job.py").write_text(job)
    # The workers' own Python does not have the package.
    other = tmp_path / "other"
    other.mkdir()
    (other / "python3").symlink_to(sys._base_executable)
    home = str(Path(pyspark.__file__).parent)  # the Spark that the machines have
    ours = {**os.environ, "SPARK_LOCAL_IP": "127.0.0.1", "SPARK_HOME": home}
    ours["PATH"] = f"{sysconfig.get_path('scripts')}{os.pathsep}{ours['PATH']}"
    for name in ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON", "PYTHONPATH"):
        ours.pop(name, None)
        monkeypatch.delenv(name, raising=False)

    def run(lines: str) -> str:
        done = subprocess.run(
            ["bash", "-ec", lines], cwd=tmp_path, env=ours, capture_output=True, text=True,
            timeout=550, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr[-3000:]
        return done.stdout

    make, pip, tar = pack.splitlines()
    run(make)
    (site,) = (tmp_path / "environment" / "lib").glob("python3*/site-packages")
    install(pip, site)
    run(tar)
    assert not (site / "pyspark").exists()
    monkeypatch.setenv("PATH", f"{other}{os.pathsep}{os.environ['PATH']}")
    with standalone(tmp_path) as master:
        lines = submit.replace("spark://master:7077", master).replace("/data", str(tmp_path))
        assert run(lines).splitlines()[-1] == "[42]"
        # Without the archive, one sentence says what is missing.
        bare = re.sub(r"--archives \S+", "", lines)
        bare = bare.replace("./environment/bin/python", str(other / "python3"))
        done = subprocess.run(["bash", "-ec", bare], cwd=tmp_path, env=ours, capture_output=True,
                              text=True, timeout=550, check=False)  # fmt: skip
        assert done.returncode != 0
        assert "ExecutorError: Executors run the Python" in done.stdout, done.stdout[-3000:]
