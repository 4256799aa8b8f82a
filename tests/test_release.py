"""The wheel and the source archive hold all that an installation needs."""

from __future__ import annotations

import configparser
import json
import os
import re
import signal
import subprocess
import sys
import sysconfig
import tarfile
import urllib.request
import venv
import zipfile
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
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


@pytest.fixture(scope="module")
def installed(built, tmp_path_factory) -> dict[str, str]:
    """The environment of a shell in which the wheel is installed, and nothing of this checkout.

    Its dependencies are those of this environment.
    """
    place = tmp_path_factory.mktemp("installed") / "env"
    venv.create(place, with_pip=False)
    paths = sysconfig.get_paths("venv", {"base": str(place), "platbase": str(place)})
    (wheel,) = built.glob("*.whl")
    zipfile.ZipFile(wheel).extractall(paths["purelib"])
    # After its own packages; the .pth file of the editable installation is not followed.
    dependencies = Path(paths["purelib"], "dependencies.pth")
    dependencies.write_text(sysconfig.get_path("purelib") + "\n")
    _write_scripts(Path(paths["scripts"]), Path(paths["purelib"]))
    env = {k: v for k, v in os.environ.items() if not k.startswith("PYTHON")}
    return {**env, "PATH": f"{paths['scripts']}{os.pathsep}{env['PATH']}"}


def _write_scripts(folder: Path, site: Path) -> None:
    """The commands of the wheel, as an installer writes them."""
    (names,) = site.glob("indextables-*.dist-info/entry_points.txt")
    declared = configparser.ConfigParser()
    declared.read_string(names.read_text())
    for name, target in declared["console_scripts"].items():
        module, _, function = target.partition(":")
        script = folder / name
        script.write_text(
            f"#!{folder / 'python'}\nimport sys\nfrom {module} import {function}\n"
            f"sys.exit({function}())\n"
        )
        script.chmod(0o755)


def test_the_wheel_works_in_an_environment_of_its_own(installed, tmp_path):
    def run(*command: str) -> str:
        done = subprocess.run(
            command, cwd=tmp_path, env=installed, capture_output=True, text=True, timeout=120,
            check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr[-2000:]
        return done.stdout

    place = run("python", "-c", "import indextables; print(indextables.__file__)")
    assert "site-packages" in place and str(ROOT) not in place
    pq.write_table(pa.table({"id": [1, 2], "body": ["red fox", "dog"]}), tmp_path / "rows.parquet")
    run("indextables", "import", "docs", "rows.parquet")
    assert "red fox" in run("indextables", "search", "docs", "fox", "--no-snippets")
    assert "<svg" in run("indextables", "report", "docs", "--output", "-")


def test_the_three_commands_of_the_readme_lead_to_a_search_page(installed, tmp_path):
    """All but the first, which installs what the fixture has installed."""
    first = re.search(r"```sh\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)[1]
    install, load, serve = first.splitlines()
    assert install == "pip install 'indextables[serve]'"
    for page in ("serve.md", "index.md"):
        assert first in (ROOT / "docs" / page).read_text()
    pq.write_table(pa.table({"title": ["red fox", "lazy dog"]}), tmp_path / "one.parquet")
    pq.write_table(pa.table({"title": ["fox and dog"]}), tmp_path / "two.parquet")
    shell = {"shell": True, "cwd": tmp_path, "env": installed, "text": True}
    subprocess.run(load, check=True, capture_output=True, timeout=120, **shell)
    server = subprocess.Popen(
        f"exec {serve} --json", stdout=subprocess.PIPE, stderr=subprocess.PIPE, **shell
    )
    try:
        address = json.loads(server.stdout.readline())["address"]
        opener = urllib.request.build_opener(urllib.request.HTTPCookieProcessor())
        assert "<title>IndexTables</title>" in opener.open(address).read().decode()
        place = address.partition("?")[0] + "api/tables/docs/search?query=fox"
        found = json.load(opener.open(place))
        assert (found["total"], found["version"]) == (2, 0)
    finally:
        server.send_signal(signal.SIGINT)
        _, complaints = server.communicate(timeout=60)
    assert "Traceback" not in complaints
    assert address.partition("token=")[2] not in complaints
