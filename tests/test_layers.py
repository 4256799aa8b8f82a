"""The shape of the package: imports point downwards, and importing it is cheap."""

from __future__ import annotations

import ast
import functools
import subprocess
import sys
from pathlib import Path

import pytest

import indextables
from tools.house import measure

PACKAGE = Path(indextables.__file__).parent

# In one worker, which reads every module once.
pytestmark = pytest.mark.xdist_group("layers")

# From the ground up. A part may import itself and what stands before it.
LAYERS = [
    "errors", "config", "runner", "schema", "cells", "bloom", "storage",
    "predicate", "log", "split", "xref", "plan", "jobs", "table", "lake", "statements", "query",
    "spark", "ariadne", "sinks", "report", "serve", "cli", "notebook", "demo", "__init__",
]  # fmt: skip

# The same inside a package that has packages of its own.
SUB_LAYERS = {
    "log": [
        "actions", "layout", "vectors", "files", "snapshot", "checkpoint", "cache", "transaction",
        "reader", "delta_translation", "delta_mirror", "commit", "retention",
        "transaction_log", "__init__",
    ],
    "split": [
        "text_steps", "analyzer", "row_numbers", "leaves", "row_hash", "mapping",
        "mapping_options", "ip_address", "row_filter", "format", "write", "search", "open_split",
        "linked", "snippet", "scoring", "merge", "__init__",
    ],
    "ariadne": [
        "declarations", "metadata", "values", "store", "files", "evidence", "lookup", "build",
        "opening", "joins", "sql", "index", "catalog", "__init__",
    ],
    "spark": [
        "schemas", "runner", "streams", "data_source",
        "bridge", "row_statements", "merge_statement",
        "statements", "table_functions", "functions", "connect", "sql_entry",
        "session", "__init__",
    ],
    "spark/bridge": [
        "sessions", "patches", "jvm", "scan", "write", "catalog", "frames",
        "search_functions", "session_bridge", "readwriter", "__init__",
    ],
}  # fmt: skip

# Types of arguments, for type checkers only.
TYPES_ONLY = {
    "ariadne/joins.py imports indextables.ariadne.index.Index",
    "spark/bridge/sessions.py imports indextables.spark.bridge.session_bridge.SessionBridge",
}

HEAVY = {
    "pyspark",
    "pandas",
    "polars",
    "duckdb",
    "datafusion",
    "tantivy",
    "pyarrow",
    "sqlglot",
    "rich",
}


def part_of(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


@functools.cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


house = functools.cache(measure)


@functools.cache
def imported_names(path: Path) -> set[str]:
    """What a module imports of this package, by its full name."""
    imported = set()
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        else:
            assert not (isinstance(node, ast.ImportFrom) and node.level), f"relative import: {path}"
            continue
        imported.update(name for name in names if name.startswith("indextables."))
    return imported


def imported_parts(path: Path) -> set[str]:
    return {name.split(".")[1] for name in imported_names(path)}


def test_imports_point_downwards():
    wrong = [
        f"{path.relative_to(PACKAGE)} imports {part}"
        for path in PACKAGE.rglob("*.py")
        if part_of(path) != "__init__"
        for part in imported_parts(path)
        if part in LAYERS and LAYERS.index(part) > LAYERS.index(part_of(path))
    ]
    assert not wrong


def test_every_part_has_a_layer():
    assert {part_of(path) for path in PACKAGE.rglob("*.py")} <= set(LAYERS)


@pytest.mark.parametrize("package", SUB_LAYERS)
def test_imports_point_downwards_inside_a_package(package):
    folder, layers = PACKAGE / package, SUB_LAYERS[package]
    prefix = f"indextables.{package.replace('/', '.')}."
    parts = {path: path.relative_to(folder).parts[0].removesuffix(".py")
             for path in folder.rglob("*.py")}  # fmt: skip
    assert set(parts.values()) == set(layers)
    wrong = [
        f"{path.relative_to(PACKAGE)} imports {name}"
        for path, part in parts.items()
        for name in imported_names(path)
        if name.startswith(prefix)
        and (imported := name.removeprefix(prefix).split(".")[0]) in layers
        and layers.index(imported) > layers.index(part)
    ]
    assert set(wrong) <= TYPES_ONLY


@pytest.mark.parametrize("package", ["ariadne", "spark/bridge"])
def test_a_package_is_used_by_what_it_exports(package):
    """From outside a package, names come from the `__init__` of its sub-packages, or a whole module
    does. Inside of it modules import modules: a way through every `__init__` is a long one."""
    prefix = f"indextables.{package.replace('/', '.')}."
    wrong = [
        f"{path.relative_to(PACKAGE)} imports {name}"
        for path in PACKAGE.rglob("*.py")
        if PACKAGE / package not in path.parents
        for name in imported_names(path)
        if name.startswith(prefix)
        and len(parts := name.removeprefix(prefix).split(".")) > 2
        and (PACKAGE / package / parts[0]).is_dir()
    ]
    assert not wrong


@pytest.mark.parametrize("package", ["log", "split"])
def test_a_package_exports_what_is_used(package):
    """An export of a sub-package that nobody outside imports is dead."""
    used = {
        name
        for path in PACKAGE.rglob("*.py")
        if PACKAGE / package not in path.parents
        for name in imported_names(path)
    }
    unused = [
        f"{package}/{init.parent.name} exports {name}"
        for init in (PACKAGE / package).glob("*/__init__.py")
        for name in ast.literal_eval(
            next(
                node.value
                for node in tree_of(init).body
                if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__"
            )
        )
        if f"indextables.{package}.{init.parent.name}.{name}" not in used
    ]
    assert not unused


# What `python -m tools.house` prints. They may only become less, but for a new idea: a module is
# one idea, of 150 to 450 lines; a part with one importer and no meaning of its own belongs to that.
MOST_MODULES = 250
LONGEST_CHAIN = 24
MOST_SINGLE_IMPORTERS = 32


def test_the_house_does_not_grow():
    found = house(PACKAGE.parent)
    assert len(found.lines) <= MOST_MODULES
    assert len(found.longest_chain) <= LONGEST_CHAIN, found.longest_chain
    assert len(found.single_importers) <= MOST_SINGLE_IMPORTERS, found.single_importers


def test_a_program_begins_when_all_of_it_is_defined():
    """What stands below `if __name__ == "__main__":` is not there yet when the program runs."""
    for file in PACKAGE.rglob("*.py"):
        statements = ast.parse(file.read_text()).body
        for statement in statements[:-1]:
            begins = isinstance(statement, ast.If) and "__name__" in ast.unparse(statement.test)
            assert not begins, f"{file}:{statement.lineno}"


def test_importing_the_package_pulls_in_nothing_heavy():
    code = "import sys, indextables; print(','.join(m for m in sys.modules if '.' not in m))"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not HEAVY & set(out.stdout.strip().split(","))


def test_only_spark_and_what_stands_on_it_know_pyspark():
    users = {
        part_of(path)
        for path in PACKAGE.rglob("*.py")
        for node in ast.walk(tree_of(path))
        if isinstance(node, ast.Import | ast.ImportFrom)
        for name in ([a.name for a in node.names] + [getattr(node, "module", None) or ""])
        if name.split(".")[0] in ("pyspark", "py4j")
    }
    assert users <= {"spark", "ariadne", "demo"}


def test_private_parts_of_spark_stay_in_the_bridge():
    assert not house(PACKAGE.parent).private


def test_one_module_patches_the_classes_of_pyspark():
    patching = {
        path.relative_to(PACKAGE).as_posix()
        for part in ("spark", "ariadne")
        for path in (PACKAGE / part).rglob("*.py")
        if sets_attributes_of_others(tree_of(path))
    }
    assert patching == {"spark/bridge/patches.py"}


def sets_attributes_of_others(tree: ast.Module) -> bool:
    """Whether a module sets attributes of anything but its own classes and objects."""
    imported = {
        alias.asname or alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith(("pyspark", "py4j"))
        for alias in node.names
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "setattr":
            if ast.unparse(node.args[0]) not in ("self", "cls"):
                return True
        elif isinstance(node, ast.Assign):
            targets = [ast.unparse(t) for t in node.targets if isinstance(t, ast.Attribute)]
            if any(target.split(".")[0] in imported for target in targets):
                return True
    return False
