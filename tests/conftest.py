"""What all tests share: the support modules on the path, hypothesis profiles, object stores."""

from __future__ import annotations

import multiprocessing
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

sys.path.insert(0, str(Path(__file__).parent / "support"))

from scratch import use_memory
from servers import Server, ServerUnavailableError, azure_server, s3_server

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

use_memory()

# Processes of the fork server import these once, and nothing that looks at its terminal.
multiprocessing.set_forkserver_preload(["indextables.table", "indextables.query", "typer", "rich"])

# Tests are many short queries: compiling them well takes longer than running them. For every JVM
# that a test starts, those of other processes too. Half of the JVM's time went into compiling plans
# (`spark.sql.codegen.wholeStage`): only the differential tests have them compiled. A tenth went
# into checking the code of Spark's classes, an eighth into compiling again what had to make room:
# there is little of it where code is compiled once.
os.environ.setdefault(
    "SPARK_SUBMIT_OPTS",
    "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC "
    "-XX:+UnlockDiagnosticVMOptions -XX:-BytecodeVerificationRemote -XX:ReservedCodeCacheSize=240m",
)

SPARK_SETTINGS = {
    "spark.master": "local[2]",
    "spark.ui.enabled": "false",
    "spark.driver.memory": "1g",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.session.timeZone": "UTC",
    "spark.log.structuredLogging.enabled": "false",
    "spark.sql.codegen.wholeStage": "false",
}

# Files with few tests that take long.
_FIRST = ("tests/spark/test_connect.py", "tests/spark/test_differential.py")

# The ordinary run tries the same examples each time, so that it tells about the change at hand. The
# long one looks for what nobody has thought of.
settings.register_profile("ordinary", deadline=None, derandomize=True, max_examples=50)
settings.register_profile("long", deadline=None, max_examples=5_000)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--long", action="store_true", help="run the tests that take minutes")


def pytest_configure(config: pytest.Config) -> None:
    settings.load_profile("long" if config.getoption("--long") else "ordinary")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    turns: dict[Path, int] = {}
    for item in items:
        turns[item.path] = min(turns.get(item.path, 9), _turn(item))
    items.sort(key=lambda item: turns[item.path])
    if not config.getoption("--long"):
        for item in items:
            if item.get_closest_marker("long"):
                item.add_marker(pytest.mark.skip(reason="takes minutes; run with --long"))


def _turn(item: pytest.Item) -> int:
    """When it runs: the long ones first, the short ones last, so that workers end together."""
    path = item.path.as_posix()
    if path.endswith(_FIRST):
        return 0
    if "spark" in getattr(item, "fixturenames", ()) or "/tests/spark/" in path:
        return 1
    return 3 if isinstance(item, pytest.DoctestItem) else 2


@pytest.fixture(scope="session")
def s3() -> Iterator[Server]:
    """An S3 server with the bucket `tables`."""
    with s3_server() as server:
        yield server


@pytest.fixture(scope="session")
def azure() -> Iterator[Server]:
    """An Azure Blob Storage server with the container `tables`."""
    try:
        context = azure_server()
        server = context.__enter__()
    except ServerUnavailableError as reason:
        pytest.skip(str(reason))
    try:
        yield server
    finally:
        context.__exit__(None, None, None)


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """An enabled session with two cores."""
    import indextables

    warehouse = tmp_path_factory.mktemp("warehouse")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(Path(__file__).parent / "support"), prepend=os.pathsep)
        session = indextables.session(
            "tests", **SPARK_SETTINGS, **{"spark.sql.warehouse.dir": str(warehouse)}
        )
    session.sparkContext.setLogLevel("OFF")
    yield session
    session.stop()
