"""Conditions on partition columns, decided for one split."""

from __future__ import annotations

import pyarrow as pa
import pytest

from indextables.plan.scan import bind_partition
from indextables.predicate import FALSE, NULL, TRUE
from indextables.predicate.sql_text import parse_predicate

SCHEMA = pa.schema([("day", pa.string()), ("n", pa.int64()), ("body", pa.string())])
HERE = {"day": pa.scalar("mon"), "n": pa.scalar(None, pa.int64())}
CASES = {
    "day = 'mon'": TRUE,
    "day <> 'mon'": FALSE,
    "n > 3": NULL,
    "NOT (n > 3)": NULL,
    "n IS NULL": TRUE,
    "n <=> 3": FALSE,
    "NOT (n > 3) OR day = 'mon'": TRUE,
    "day = 'mon' AND body = 'x'": "body = 'x'",
    "NOT (day = 'mon' AND body = 'x')": "NOT (body = 'x')",
    "n = 3 OR body = 'x'": "(NULL OR body = 'x')",
    "NOT (n = 3) OR body = 'x'": "(NULL OR body = 'x')",
    "day = 'tue' OR body indexquery 'x'": "body indexquery 'x'",
    "day indexquery 'mon'": "day indexquery 'mon'",
    "day IN ('mon', NULL)": TRUE,
    "day IN ('tue', NULL)": NULL,
}


@pytest.mark.parametrize("where", CASES)
def test_partition_columns_are_constants(where):
    assert str(bind_partition(parse_predicate(where, SCHEMA), HERE)) == str(CASES[where])
