"""A table with words, values and times, and a server over it."""

from __future__ import annotations

import datetime
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from serving import Client, running

from indextables.table import Table

HOSTILE = "<img src=x onerror=alert(1)>"
"""Would be a picture if it were taken for HTML."""
LEVELS = ["info", "info", "info", "warn", "error"]


def rows(first: int, count: int) -> pa.Table:
    """Some messages, an hour apart."""
    numbers = range(first, first + count)
    start = datetime.datetime(2024, 1, 1, tzinfo=datetime.UTC)
    return pa.table(
        {
            "id": pa.array(numbers, pa.int64()),
            "day": [(start + datetime.timedelta(hours=n)).date() for n in numbers],
            "ts": pa.array(
                [start + datetime.timedelta(hours=n) for n in numbers], pa.timestamp("us", "UTC")
            ),
            "level": [LEVELS[n % 5] for n in numbers],
            "title": [f"{'' if n % 7 else HOSTILE} disk report {n}" for n in numbers],
            "body": [
                ("the disk of the red fox is full " if n % 3 else "a lazy dog sleeps ")
                + f"word{n} <script>alert({n})</script>"
                for n in numbers
            ],
        }
    )


@pytest.fixture(scope="session")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A table of three versions, partitioned by day, with two hostile names beside it."""
    folder = tmp_path_factory.mktemp("served")
    table = Table.create(
        folder / "logs", data=rows(0, 60), partition_by=["day"], mapping={"level": "string"},
        properties={"fs.s3a.secret.key": "a-secret-value"},
    )  # fmt: skip
    table.append(rows(60, 60))
    table.delete(where="id = 1")
    hostile = pa.table({HOSTILE: ["red fox", "lazy dog"], "n": [1, 2]})
    Table.create(folder / "hostile", data=hostile, name=HOSTILE)
    return folder


@pytest.fixture(scope="session")
def table(place: Path) -> Table:
    return Table.open(place / "logs")


@pytest.fixture(scope="session")
def client(place: Path) -> Iterator[Client]:
    """A program with the token, and a server over two tables."""
    with running({"logs": str(place / "logs"), HOSTILE: str(place / "hostile")}) as opened:
        yield opened
