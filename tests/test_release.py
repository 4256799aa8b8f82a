"""The wheel and the source archive hold all that an installation needs."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import tarfile
import venv
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


@pytest.fixture(scope="module")
def built(tmp_path_factory) -> Path:
    """A folder with both archives, built as they are released."""
    folder = tmp_path_factory.mktemp("dist")
    code = (
        "import sys; from hatchling import build\n"
        "print(build.build_sdist(sys.argv[1])); print(build.build_wheel(sys.argv[1]))"
    )
    command = [sys.executable, "-c", code, str(folder)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True, timeout=120)
    return folder


def _tracked(suffixes: tuple[str, ...]) -> set[str]:
    return {
        path.relative_to(ROOT / "src").as_posix()
        for path in (ROOT / "src" / "indextables").rglob("*")
        if path.is_file() and path.suffix in suffixes
    }


def test_the_wheel_holds_every_file_of_the_package(built):
    (wheel,) = built.glob("*.whl")
    names = set(zipfile.ZipFile(wheel).namelist())
    assert _tracked((".py", ".css", ".js", ".html", ".svg", ".typed")) <= names
    assert not [name for name in names if name.startswith("tests") or "__pycache__" in name]


def test_the_source_archive_holds_the_tests_and_the_documents(built):
    (archive,) = built.glob("*.tar.gz")
    with tarfile.open(archive) as opened:
        names = {name.partition("/")[2] for name in opened.getnames()}
    assert {"pyproject.toml", "README.md", "CHANGELOG.md", "LICENSE", "Makefile"} <= names
    assert {"tests/test_release.py", "docs/search.md", "src/indextables/py.typed"} <= names
    assert not [name for name in names if name.startswith((".venv", "site/", ".demo"))]


_FIRST_MINUTE = """
import indextables, pyarrow as pa, pyarrow.parquet as pq
assert "site-packages" in indextables.__file__ and indextables.__file__.startswith({place!r})
pq.write_table(pa.table({{"id": [1, 2], "body": ["red fox", "dog"]}}), "rows.parquet")
"""


def test_the_wheel_works_in_an_environment_of_its_own(built, tmp_path):
    """Its dependencies are those of this environment; the package itself is not."""
    place = tmp_path / "env"
    venv.create(place, with_pip=False)
    scripts = sysconfig.get_path("scripts", "venv", {"base": str(place)})
    site = Path(sysconfig.get_path("purelib", "venv", {"base": str(place), "platbase": str(place)}))
    (wheel,) = built.glob("*.whl")
    zipfile.ZipFile(wheel).extractall(site)
    # After its own packages; the .pth file of the editable installation is not followed.
    (site / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    python = Path(scripts) / Path(sys.executable).name
    env = {k: v for k, v in os.environ.items() if not k.startswith("PYTHON")}

    def run(*arguments: str) -> str:
        done = subprocess.run(
            [python, *arguments], cwd=tmp_path, env=env, capture_output=True, text=True,
            timeout=120, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr[-2000:]
        return done.stdout

    command = ("-c", "import sys; from indextables.cli import main; sys.exit(main())")
    run("-c", _FIRST_MINUTE.format(place=str(place)))
    run(*command, "import", "docs", "rows.parquet")
    assert "red fox" in run(*command, "search", "docs", "fox", "--no-snippets")
    assert "<svg" in run(*command, "report", "docs", "--output", "-")
