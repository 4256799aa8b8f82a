from __future__ import annotations

import doctest
import importlib.util
import inspect
import re
from pathlib import Path
from typing import Literal

import pytest

import indextables
from indextables import ariadne

DOCS = Path(__file__).parents[2] / "docs"


@pytest.fixture(scope="module")
def generate():
    spec = importlib.util.spec_from_file_location("generate", DOCS / "generate.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_generated_pages_are_current(generate):
    assert generate.PAGES
    for name, page in generate.PAGES.items():
        assert (DOCS / name).read_text() == page(), f"{name} is old: run `make docs`"


def test_signatures_are_printed_as_they_are_written(generate):
    def one(self, a: str = "UTC", *b: int, c: Literal["x", "y"] = "x", **d: object) -> str: ...
    def two(a, *, b=None, c: "dict[str, int]" = {}) -> None: ...  # noqa: B006, UP037
    def three(a: str, b: float = 0.01): ...

    printed = [generate._signature(f.__name__, inspect.signature(f)) for f in (one, two, three)]
    assert printed == [
        'one(a: str = "UTC", *b: int, c: Literal["x", "y"] = "x", **d: object) -> str',
        "two(a, *, b=None, c: dict[str, int] = {}) -> None",
        "three(a: str, b: float = 0.01)",
    ]


def public_functions():
    for name in ariadne.__all__:
        member = getattr(ariadne, name)
        if inspect.isfunction(member):
            yield name, member
        for method, found in vars(member).items() if inspect.isclass(member) else ():
            function = getattr(found, "__func__", found)
            if not method.startswith("_") and inspect.isfunction(function):
                yield f"{name}.{method}", function


def own_functions():
    """What `import indextables` offers: functions, and the methods of its classes."""
    for name in indextables.__all__:
        member = getattr(indextables, name)
        if inspect.isfunction(member):
            yield name, member
        if not inspect.isclass(member) or issubclass(member, Exception):
            continue
        for method, found in vars(member).items():
            function = getattr(found, "__func__", found)
            if not method.startswith("_") and inspect.isfunction(function):
                yield f"{name}.{method}", function


def test_public_functions_have_args_and_returns():
    names = {name for name, _ in own_functions()}
    assert {"sql", "search_table", "Table.search", "SearchIndex.scan"} <= names
    for name, function in own_functions():
        text, signature = inspect.getdoc(function) or "", inspect.signature(function)
        assert text.split("\n")[0].endswith("."), name
        for parameter in signature.parameters.keys() - {"self", "cls"}:
            assert f"    {parameter}: " in text, (name, parameter)
        returned = str(signature.return_annotation)
        assert ("Returns:" in text or "Yields:" in text) == (returned != "None"), name


def test_public_functions_have_an_example_that_runs():
    page = (DOCS / "python.md").read_text()
    for name, function in own_functions():
        text = inspect.getdoc(function)
        # Doctests run where they are, with their output; what needs Spark runs from the page.
        in_spark = re.findall(r"^```py\n.*?^```", text, re.DOTALL | re.MULTILINE)
        examples = doctest.DocTestParser().get_examples(text)
        assert in_spark or any(example.want for example in examples), name
        assert all(block in page for block in in_spark), name


def test_public_functions_of_ariadne_are_documented():
    page = (DOCS / "python.md").read_text()
    for name, function in public_functions():
        text, signature = inspect.getdoc(function), inspect.signature(function)
        assert text.split("\n")[0].endswith("."), name
        assert "```py\n" in text, f"{name}: an example that the tests of the docs run"
        assert all(f"    {p}: " in text for p in signature.parameters if p != "self"), name
        assert ("Returns:" in text) == (signature.return_annotation != "None"), name
        assert f"# {name}\n" in page, name
