"""What all tests share: the support modules on the path, hypothesis profiles, object stores."""

from __future__ import annotations

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

# Tests are many short queries: compiling them well takes longer than running them. For every JVM
# that a test starts, those of other processes too. Half of the JVM's time went into compiling plans
# (`spark.sql.codegen.wholeStage`): only the differential tests have them compiled.
os.environ.setdefault("SPARK_SUBMIT_OPTS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")

SPARK_SETTINGS = {
    "spark.master": "local[2]",
    "spark.ui.enabled": "false",
    "spark.driver.memory": "1g",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.session.timeZone": "UTC",
    "spark.log.structuredLogging.enabled": "false",
    "spark.python.daemon.module": "warm_daemon",
    "spark.sql.codegen.wholeStage": "false",
}

# The ordinary run tries the same examples each time, so that it tells about the change at hand. The
# long one looks for what nobody has thought of.
settings.register_profile("ordinary", deadline=None, derandomize=True)
settings.register_profile("long", deadline=None, max_examples=5_000)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--long", action="store_true", help="run the tests that take minutes")


def pytest_configure(config: pytest.Config) -> None:
    settings.load_profile("long" if config.getoption("--long") else "ordinary")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    for item in items:
        # Modules share tables and servers: xdist keeps those of a file in one worker, which starts
        # one JVM for all of its files.
        if "spark" in getattr(item, "fixturenames", ()) or "/tests/spark/" in item.path.as_posix():
            item.add_marker(pytest.mark.xdist_group(item.path.as_posix()))
    if not config.getoption("--long"):
        for item in items:
            if item.get_closest_marker("long"):
                item.add_marker(pytest.mark.skip(reason="takes minutes; run with --long"))


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
