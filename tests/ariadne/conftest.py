"""A storage path for each test."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession


@pytest.fixture
def storage(spark: SparkSession, tmp_path: Path) -> Iterator[Path]:
    """The storage path of the session, empty at first."""
    place = tmp_path / "ariadne"
    spark.conf.set("spark.ariadne.storagePath", str(place))
    yield place
    spark.conf.unset("spark.ariadne.storagePath")
