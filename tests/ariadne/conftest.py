"""One Spark session for the tests that need it, and a storage path for each test."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

SETTINGS = {
    "spark.master": "local[2]",
    "spark.ui.enabled": "false",
    "spark.driver.memory": "1g",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.session.timeZone": "UTC",
    "spark.log.structuredLogging.enabled": "false",
}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    # One JVM, the same as that of the tests of Spark: xdist keeps a group in one worker.
    for item in items:
        if "/tests/ariadne/" in item.path.as_posix() and "spark" in getattr(
            item, "fixturenames", ()
        ):
            item.add_marker(pytest.mark.xdist_group("spark"))


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """An enabled session with two cores."""
    import indextables

    warehouse = tmp_path_factory.mktemp("warehouse")
    session = indextables.session(
        "tests", **SETTINGS, **{"spark.sql.warehouse.dir": str(warehouse)}
    )
    session.sparkContext.setLogLevel("OFF")
    yield session
    session.stop()


@pytest.fixture
def storage(spark: SparkSession, tmp_path: Path) -> Iterator[Path]:
    """The storage path of the session, empty at first."""
    place = tmp_path / "ariadne"
    spark.conf.set("spark.ariadne.storagePath", str(place))
    yield place
    spark.conf.unset("spark.ariadne.storagePath")
