"""Random tables and predicates over them, and the same predicates as DuckDB's SQL."""

from __future__ import annotations

import datetime
import math
import struct
from decimal import Decimal
from typing import Any, get_args

import pyarrow as pa
from hypothesis import strategies as st

from indextables.predicate import (
    FALSE,
    NULL,
    TRUE,
    And,
    Column,
    Compare,
    Constant,
    Contains,
    EndsWith,
    In,
    IsNull,
    Like,
    Not,
    Operator,
    Or,
    Predicate,
    StartsWith,
)

SCHEMA = pa.schema(
    [
        ("i", pa.int64()),
        ("n", pa.int16()),
        ("f", pa.float64()),
        ("g", pa.float32()),
        ("s", pa.string()),
        ("b", pa.bool_()),
        ("d", pa.date32()),
        ("t", pa.timestamp("us", tz="UTC")),
        ("u", pa.timestamp("us")),
        ("m", pa.decimal128(8, 2)),
        ("x", pa.binary()),
        ("st", pa.struct([("k", pa.int32()), ("v v", pa.string())])),
    ]
)
TEXT = st.text(st.sampled_from("abAB%_\\'é\n😀\uff21 "), max_size=5)
_UTC = datetime.UTC


def _float32(value: float) -> float:
    narrow: float = struct.unpack("f", struct.pack("f", value))[0]
    return narrow


_FLOATS = [0.0, -0.0, 1.5, -1.5, 0.1, math.nan, math.inf, -math.inf, 1e30]
# Few values of each kind, so that comparisons meet.
VALUES: dict[pa.DataType, st.SearchStrategy[Any]] = {
    pa.int64(): st.sampled_from([-(2**63), -1, 0, 1, 2, 3, 2**63 - 1]),
    pa.int32(): st.integers(-2, 2),
    pa.int16(): st.sampled_from([-(2**15), -1, 0, 1, 9, 10, 2**15 - 1]),
    pa.float64(): st.sampled_from(_FLOATS),
    pa.float32(): st.sampled_from([_float32(f) for f in _FLOATS]),
    pa.string(): TEXT,
    pa.bool_(): st.booleans(),
    pa.date32(): st.dates(datetime.date(2024, 1, 1), datetime.date(2024, 1, 4)),
    pa.timestamp("us", tz="UTC"): st.datetimes(
        datetime.datetime(2024, 1, 1),
        datetime.datetime(2024, 1, 1, 0, 0, 0, 3),
        timezones=st.just(_UTC),
    ),
    pa.timestamp("us"): st.datetimes(
        datetime.datetime(1969, 12, 31, 23, 59, 59, 999_998),
        datetime.datetime(1970, 1, 1, 0, 0, 0, 2),
    ),
    pa.decimal128(8, 2): st.decimals(Decimal("-0.02"), Decimal("0.02"), places=2),
    pa.binary(): st.sampled_from([b"", b"a", b"\xff", b"a\x00"]),
}
COLUMNS = [Column((f.name,)) for f in SCHEMA if f.name != "st"] + [
    Column(("st", "k")),
    Column(("st", "v v")),
]


def kind_of(column: Column) -> pa.DataType:
    """The type of a column of SCHEMA."""
    kind = SCHEMA.field(column.root).type
    return kind.field(column.path[1]).type if column.path[1:] else kind


def rows(*, max_size: int = 8) -> st.SearchStrategy[pa.Table]:
    """Tables of SCHEMA with nulls everywhere."""
    fields: dict[str, st.SearchStrategy[Any]] = {
        f.name: st.none() | VALUES[f.type] for f in SCHEMA if f.name != "st"
    }
    fields["st"] = st.none() | st.fixed_dictionaries(
        {"k": st.none() | VALUES[pa.int32()], "v v": st.none() | TEXT}
    )
    return st.lists(st.fixed_dictionaries(fields), max_size=max_size).map(
        lambda found: pa.Table.from_pylist(found, schema=SCHEMA)
    )


@st.composite
def conditions(draw: st.DrawFn, columns: list[Column] = COLUMNS) -> Predicate:
    """One condition on one column."""
    column = draw(st.sampled_from(columns))
    values = VALUES[kind_of(column)]
    if kind_of(column) == pa.string() and draw(st.booleans()):
        kind = draw(st.sampled_from([StartsWith, EndsWith, Contains, Like]))
        if kind is not Like:
            return kind(column, draw(TEXT))
        parts = draw(
            st.lists(st.sampled_from(["%", "_", "\\%", "\\\\", "a", "b", "\n", "😀"]), max_size=5)
        )
        return Like(column, "".join(parts))
    match draw(st.integers(0, 5)):
        case 0:
            return IsNull(column)
        case 1:
            wanted = draw(st.lists(values, min_size=1, max_size=3))
            return In(column, tuple(wanted), draw(st.booleans()))
        case _:
            return Compare(draw(st.sampled_from(get_args(Operator))), column, draw(values))


def predicates(columns: list[Column] = COLUMNS) -> st.SearchStrategy[Predicate]:
    """Trees of conditions."""
    return trees(conditions(columns) | st.sampled_from([TRUE, FALSE, NULL]))


def trees(leaves: st.SearchStrategy[Predicate]) -> st.SearchStrategy[Predicate]:
    """Trees of leaves."""
    return st.recursive(
        leaves,
        lambda inner: (
            st.builds(Not, inner)
            | st.builds(And, st.lists(inner, min_size=2, max_size=3).map(tuple))
            | st.builds(Or, st.lists(inner, min_size=2, max_size=3).map(tuple))
        ),
        max_leaves=6,
    )


# --- DuckDB ----------------------------------------------------------------------------------


def duckdb_sql(node: Predicate) -> str:
    """The predicate in DuckDB's SQL, spelled independently of the tree's own `str`."""
    match node:
        case And(children=children):
            return "(" + " AND ".join(map(duckdb_sql, children)) + ")"
        case Or(children=children):
            return "(" + " OR ".join(map(duckdb_sql, children)) + ")"
        case Not(child=child):
            return f"(NOT {duckdb_sql(child)})"
        case Constant(value=value):
            return f"CAST({'NULL' if value is None else value} AS BOOLEAN)"
        case IsNull(column=column):
            return f"({_name(column)} IS NULL)"
        case Compare(op="<=>", column=column, value=value):
            return f"({_name(column)} IS NOT DISTINCT FROM {_literal(column, value)})"
        case Compare(op=op, column=column, value=value):
            return f"({_name(column)} {op} {_literal(column, value)})"
        case In(column=column, values=values, has_null=has_null):
            shown = [_literal(column, v) for v in values] + ["NULL"] * has_null
            return f"({_name(column)} IN ({', '.join(shown)}))"
        case StartsWith(column=column, text=text):
            return f"starts_with({_name(column)}, {_text(text)})"
        case EndsWith(column=column, text=text):
            return f"suffix({_name(column)}, {_text(text)})"
        case Contains(column=column, text=text):
            return f"contains({_name(column)}, {_text(text)})"
        case Like(column=column, pattern=pattern, escape=escape):
            return f"({_name(column)} LIKE {_text(pattern)} ESCAPE {_text(escape)})"
        case _:
            raise AssertionError(node)


def _name(column: Column) -> str:
    if column.path[1:]:
        return f"struct_extract(\"{column.root}\", '{column.path[1]}')"
    return f'"{column.root}"'


def _text(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _literal(column: Column, value: Any) -> str:
    kind = kind_of(column)
    if isinstance(value, bytes):
        return "'" + "".join(f"\\x{b:02X}" for b in value) + "'::BLOB"
    if isinstance(value, str):
        return _text(value)
    names = {
        pa.int64(): "BIGINT",
        pa.int32(): "INTEGER",
        pa.int16(): "SMALLINT",
        pa.float64(): "DOUBLE",
        pa.float32(): "FLOAT",
        pa.bool_(): "BOOLEAN",
        pa.date32(): "DATE",
        pa.timestamp("us", tz="UTC"): "TIMESTAMPTZ",
        pa.timestamp("us"): "TIMESTAMP",
        pa.decimal128(8, 2): "DECIMAL(8,2)",
    }
    return f"'{value}'::{names[kind]}"
