"""Splits whose row groups have the size that a test needs."""

from __future__ import annotations

import pytest

from indextables.split.write import writer


def limit_row_groups(patch: pytest.MonkeyPatch, rows: int) -> None:
    """Row groups have exactly so many rows, however small their columns are."""
    patch.setattr(writer, "ROW_GROUP_ROWS", rows)
    patch.setattr(writer, "MOST_GROUP_ROWS", rows)
