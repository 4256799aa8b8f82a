"""One Spark session for all tests here, and tables for both doors."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SETTINGS = {
    "spark.master": "local[2]",
    "spark.ui.enabled": "false",
    "spark.driver.memory": "1g",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.warehouse.dir": "",
    "spark.log.structuredLogging.enabled": "false",
}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    # One JVM: xdist keeps a group in one worker.
    for item in items:
        if "/tests/spark/" in item.path.as_posix():
            item.add_marker(pytest.mark.xdist_group("spark"))


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """An enabled session with two cores."""
    import indextables

    warehouse = tmp_path_factory.mktemp("warehouse")
    settings = {**SETTINGS, "spark.sql.warehouse.dir": str(warehouse)}
    session = indextables.session("tests", **settings)
    session.sparkContext.setLogLevel("OFF")
    yield session
    session.stop()


@pytest.fixture
def public(spark: SparkSession) -> Iterator[SparkSession]:
    """The same session with the bridge switched off: reads and writes take the public door."""
    from indextables.spark import readwriter

    bridge = readwriter.bridge_of(spark)
    readwriter.install(spark, None)
    yield spark
    readwriter.install(spark, bridge)


@pytest.fixture(params=["bridge", "public"])
def door(request: pytest.FixtureRequest) -> SparkSession:
    """A session through each of the two doors."""
    return request.getfixturevalue("spark" if request.param == "bridge" else "public")
