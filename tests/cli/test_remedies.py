"""Errors on the command line say what to do on the command line."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

import indextables
from indextables.cli.settings import PHRASES, on_command_line
from indextables.errors import (
    MetadataChangedError,
    NotATableError,
    ProtocolChangedError,
    RetriesExhaustedError,
    TableExistsError,
    TooManyExpansionsError,
    UnknownKeyError,
    UnusableXRefError,
)

PACKAGE = Path(indextables.__file__).parent
# What nobody can type at a shell: calls, keyword arguments, objects of Python.
PYTHON = re.compile(r"\b[a-z_]+=(?:True|…)|Table\.|DataFrame|storage_options|\w\(\)")
# Parts whose errors the command line never shows.
OTHERS = ("cli", "spark", "ariadne", "demo")


def texts() -> list[str]:
    """All texts of the library that may be part of an error."""
    return [
        node.value
        for path in PACKAGE.rglob("*.py")
        if path.relative_to(PACKAGE).parts[0] not in OTHERS
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    ]


def test_every_phrase_is_still_one_of_the_library():
    found = texts()
    assert [phrase for phrase in PHRASES if not any(phrase in text for text in found)] == []


@pytest.mark.parametrize(
    "error",
    [
        NotATableError("docs"),
        NotATableError("docs.csv", is_file=True),
        TableExistsError("docs"),
        MetadataChangedError(uri="docs", version=3, changed=["schema"]),
        ProtocolChangedError(uri="docs", version=3),
        UnusableXRefError("x", "it is damaged"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_remedies_are_commands(error):
    shown = on_command_line(str(error))
    assert not PYTHON.search(shown) and re.search(r"`indextables \w+|Run the command", shown)


def test_keys_are_named_with_the_option_that_sets_them():
    for error in (
        RetriesExhaustedError("docs", attempts=3, version=4),
        TooManyExpansionsError("a*", field="body", found=9, limit=1),
    ):
        assert on_command_line(str(error)).endswith(". Keys are given with --config KEY=VALUE.")
    unknown = str(UnknownKeyError("spark.indextables.nope"))
    assert on_command_line(unknown) == unknown


def test_commands_show_them(cli, docs, s3):
    assert "`indextables import TABLE FILE`" in cli.error("search", "nowhere", "fox")
    assert "`indextables import`" in cli.error("create", docs, "id:int")
    Path("b.csv").write_text("Id,extra\n1,2\n")
    assert "--merge-schema" in cli.error("import", docs, "b.csv")
    assert "--version or --as-of" in cli.error("describe", docs, "--version", 0, "--as-of", "2024")
    assert "with --storage-option; a" in cli.error("search", "s3://key:secret@bucket/docs", "fox")
    assert "as old as 2020-01-31 00:00:00Z." in cli.error("describe", docs, "--as-of", "2020-01-31")
    assert "datetime" not in cli.error("describe", docs, "--as-of", "yesterday")
    assert "--storage-option" in cli.error("describe", "s3://me:secret@bucket/docs")
    options = [f"{k}={v}" for k, v in (s3.options | {"aws_endpoint": "http://127.0.0.1:1"}).items()]
    message = cli.error("describe", f"{s3.uri}/docs", "--storage-option", "max_retries=0",
                        *(part for o in options for part in ("--storage-option", o)))  # fmt: skip
    assert "--storage-option" in message and not PYTHON.search(message)
