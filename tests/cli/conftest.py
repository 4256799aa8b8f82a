"""A table that was made on the command line, and the command line itself."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from cli_tables import sample
from typer.testing import CliRunner, Result

from indextables.cli.app import app


class Cli:
    """Runs commands in this process."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __call__(self, *arguments: object, stdin: str | None = None) -> Result:
        return CliRunner().invoke(app, [str(a) for a in arguments], input=stdin)

    def ok(self, *arguments: object, stdin: str | None = None) -> str:
        """What a command prints that must work."""
        result = self(*arguments, stdin=stdin)
        assert result.exit_code == 0, result.output
        return result.stdout

    def rows(self, *arguments: object, stdin: str | None = None) -> list[dict[str, Any]]:
        """The objects that a command prints with --json."""
        return [
            json.loads(line) for line in self.ok(*arguments, "--json", stdin=stdin).splitlines()
        ]

    def error(self, *arguments: object, code: int = 1) -> str:
        """The sentence of a command that must fail, and prints no traceback."""
        result = self(*arguments)
        assert result.exit_code == code, (result.exit_code, result.output, result.exception)
        assert "Traceback" not in result.output
        return result.stderr


@pytest.fixture
def cli(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cli:
    """The command line in an empty folder."""
    monkeypatch.chdir(tmp_path)
    return Cli(tmp_path)


@pytest.fixture(scope="session")
def _docs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the table `docs`, and the files that it was made of."""
    folder = tmp_path_factory.mktemp("docs")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        cli, table = Cli(folder), sample()
        pq.write_table(table.slice(0, 40), "one.parquet")
        pq.write_table(table.slice(40), "two.parquet")
        cli.ok("import", "docs", "one.parquet", "--partition-by", "day")
        cli.ok("import", "docs", "two.parquet")
    return folder


@pytest.fixture
def docs(cli: Cli, _docs: Path) -> str:
    """The table `docs` in the folder: two versions, five partitions."""
    shutil.copytree(_docs, cli.folder, dirs_exist_ok=True)
    return "docs"
