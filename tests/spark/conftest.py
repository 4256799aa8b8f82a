"""The session through each of the two doors."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def public(spark: SparkSession) -> Iterator[SparkSession]:
    """The same session with the bridge switched off: reads and writes take the public door."""
    from indextables.spark.bridge import sessions

    bridge = sessions.bridge_of(spark)
    sessions.register(spark, None)
    yield spark
    sessions.register(spark, bridge)


@pytest.fixture(params=["bridge", "public"])
def door(request: pytest.FixtureRequest) -> SparkSession:
    """A session through each of the two doors."""
    return request.getfixturevalue("spark" if request.param == "bridge" else "public")


@pytest.fixture(scope="module")
def compiled_plans(spark: SparkSession) -> Iterator[None]:
    """Spark compiles plans, as it does for users."""
    spark.conf.set("spark.sql.codegen.wholeStage", "true")
    yield
    spark.conf.set("spark.sql.codegen.wholeStage", "false")


@pytest.fixture
def zone(request, spark):
    """A time zone of the session, named by the parameter."""
    before = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", request.param)
    yield request.param
    spark.conf.set("spark.sql.session.timeZone", before)
