"""The shape of the package: imports point downwards, and importing it is cheap."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import indextables

PACKAGE = Path(indextables.__file__).parent

# From the ground up. A part may import itself and what stands before it.
LAYERS = [
    "errors", "config", "runner", "schema", "storage", "predicate", "log", "split", "xref", "plan",
    "jobs", "table", "sql", "spark", "ariadne", "cli", "demo", "__init__",
]  # fmt: skip

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


def imported_parts(path: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        else:
            assert not (isinstance(node, ast.ImportFrom) and node.level), f"relative import: {path}"
            continue
        for name in names:
            parts = name.split(".")
            if parts[0] == "indextables" and len(parts) > 1:
                found.add(parts[1])
    return found


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


def test_importing_the_package_pulls_in_nothing_heavy():
    code = "import sys, indextables; print(','.join(m for m in sys.modules if '.' not in m))"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not HEAVY & set(out.stdout.strip().split(","))


def test_only_spark_and_what_stands_on_it_know_pyspark():
    users = {
        part_of(path)
        for path in PACKAGE.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Import | ast.ImportFrom)
        for name in ([a.name for a in node.names] + [getattr(node, "module", None) or ""])
        if name.split(".")[0] in ("pyspark", "py4j")
    }
    assert users <= {"spark", "ariadne", "demo"}


# Attributes of PySpark with which a classic session reaches its JVM.
PRIVATE = {
    "_jvm", "_jsc", "_sc", "_jsparkSession", "_jreader", "_jwrite", "_jdf", "_jc", "_gateway",
    "_active_spark_context",
}  # fmt: skip


def test_private_parts_of_spark_stay_in_the_bridge_and_four_more_modules():
    users = {
        path.relative_to(PACKAGE).as_posix()
        for path in PACKAGE.rglob("*.py")
        if "spark/bridge/" not in path.as_posix()
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Attribute) and node.attr in PRIVATE
    }
    assert users <= {
        f"spark/{name}.py" for name in ("readwriter", "sql_entry", "functions", "hosts")
    }
