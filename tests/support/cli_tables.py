"""Rows that the tests of the command line import."""

from __future__ import annotations

import datetime
import re

import pyarrow as pa

ROWS = 60
ESCAPE = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
"""What a terminal acts on: colours and movements."""


def sample(rows: int = ROWS) -> pa.Table:
    """Documents with a column of every kind that commands treat in their own way."""
    numbers = range(rows)
    return pa.table(
        {
            "Id": pa.array(numbers, pa.int64()),
            "title": [f"Document {i} about {'spark' if i % 3 else 'search'}" for i in numbers],
            "body": [
                ("lazy dog sleeps " if i % 2 else "red fox jumps over spark ") + f"word{i}"
                for i in numbers
            ],
            "day": [datetime.date(2024, 1, 1 + i % 5) for i in numbers],
            "price": pa.array([i / 4 for i in numbers], pa.float64()),
            "tags": [["a", f"t{i}"] for i in numbers],
        }
    )
