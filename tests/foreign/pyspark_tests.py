"""Runs tests of PySpark's own suite with index tables as the default source, beside Parquet.

The tests are not part of this project. `PYSPARK_TESTS` names the folder that holds them: Spark's
`python/pyspark/sql/tests`, or a folder that has it below.

    PYSPARK_TESTS=… python tests/foreign/pyspark_tests.py [--output differences.md] [MODULE …]

Each format has a process of its own, in which `spark.sql.sources.default` is that format and every
session is enabled. A test that fails where Parquet is the default says nothing about index tables
and is left out.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
import unittest
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ENVIRONMENT = "PYSPARK_TESTS"
FORMATS = ("parquet", "indextables")
MODULES = ("test_readwriter", "test_catalog", "test_sql", "test_dataframe")


def tests_folder() -> Path | None:
    """Return the folder of PySpark's tests, or None where it is not at hand."""
    named = os.environ.get(ENVIRONMENT)
    if not named:
        return None
    nested = Path(named, "python/pyspark/sql/tests")
    return nested if nested.is_dir() else Path(named)


def outcomes(format_: str, folder: Path, modules: tuple[str, ...]) -> dict[str, str]:
    """Run modules in a process of their own; how each test ended, "" where it passed."""
    with tempfile.TemporaryDirectory() as place:
        report = Path(place, "report.json")
        command = [sys.executable, __file__, "--run", format_, "--output", report, *modules]
        environment = {**os.environ, ENVIRONMENT: str(folder)}
        # Warehouses are made in the working folder.
        done = subprocess.run(
            command, cwd=place, env=environment, capture_output=True, text=True, check=False
        )
        if not report.is_file():
            raise RuntimeError(f"The tests did not run on {format_}:\n{done.stderr[-3000:]}")
        found: dict[str, str] = json.loads(report.read_text())
        return found


def differences(folder: Path, modules: tuple[str, ...]) -> tuple[int, dict[str, str]]:
    """How many tests pass on Parquet, and those of them that fail on index tables, with the end."""
    on_parquet, on_tables = (outcomes(one, folder, modules) for one in FORMATS)
    passed = [name for name, error in on_parquet.items() if not error]
    failed = {name: on_tables.get(name, "was not run") for name in passed}
    return len(passed), {name: error for name, error in failed.items() if error}


class _Outcomes(unittest.TestResult):
    """How each test ended: a skipped one as it would anywhere."""

    def __init__(self) -> None:
        super().__init__()
        self.found: dict[str, str] = {}

    def addSuccess(self, test: unittest.TestCase) -> None:  # noqa: N802
        self.found.setdefault(test.id(), "")

    def addFailure(self, test: unittest.TestCase, err: Any) -> None:  # noqa: N802
        self.found[test.id()] = self._exc_info_to_string(err, test).strip()  # type: ignore[attr-defined]

    addError = addFailure  # noqa: N815

    def addSubTest(self, test: Any, subtest: Any, err: Any) -> None:  # noqa: N802
        if err is not None:
            self.addFailure(test, err)


def _run(format_: str, folder: Path, modules: tuple[str, ...]) -> dict[str, str]:
    """Run modules in this process."""
    from pyspark.testing.sqlutils import ReusedSQLTestCase

    import indextables

    prepare, configure = ReusedSQLTestCase.setUpClass.__func__, ReusedSQLTestCase.conf.__func__  # type: ignore[attr-defined]

    def conf(cls: Any) -> Any:
        settings = {"spark.sql.sources.default": format_, "spark.ui.enabled": "false"}
        return configure(cls).setAll(list(settings.items()))

    def set_up(cls: Any) -> None:
        prepare(cls)
        indextables.enable(cls.spark)

    ReusedSQLTestCase.conf = classmethod(conf)  # type: ignore[assignment]
    ReusedSQLTestCase.setUpClass = classmethod(set_up)  # type: ignore[assignment]
    result = _Outcomes()
    for module in modules:
        suite = unittest.TestSuite(_suites(folder / f"{module}.py"))
        suite.run(result)
    return result.found


def _suites(path: Path) -> Iterator[unittest.TestSuite]:
    specification = importlib.util.spec_from_file_location(path.stem, path)
    assert specification is not None
    assert specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    sys.modules[path.stem] = module
    specification.loader.exec_module(module)
    yield unittest.defaultTestLoader.loadTestsFromModule(module)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("modules", nargs="*", default=MODULES)
    parser.add_argument("--output", type=Path)
    parser.add_argument("--run", choices=FORMATS, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    folder = tests_folder()
    if folder is None:
        parser.error(f"{ENVIRONMENT} does not name PySpark's python/pyspark/sql/tests")
    modules = tuple(arguments.modules)
    if arguments.run:
        arguments.output.write_text(json.dumps(_run(arguments.run, folder, modules)))
        os._exit(0)  # some tests leave threads
    count, different = differences(folder, modules)
    lines = [f"{count - len(different)} of {count} tests that pass on Parquet pass here."]
    lines += [f"\n## {name}\n\n```\n{error[-2000:]}\n```" for name, error in different.items()]
    print(lines[0])
    if arguments.output:
        arguments.output.write_text("\n".join(lines) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
