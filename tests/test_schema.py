"""Spark's schema JSON and Arrow's schema; evolution; bringing rows to a schema."""

from __future__ import annotations

import datetime as dt
import json
from decimal import Decimal

import pyarrow as pa
import pytest

from indextables.errors import SchemaError
from indextables.schema import conform, evolve, from_json, normalize, to_json, type_name
from indextables.schema.types import VARIANT

SPARK = {
    "type": "struct",
    "fields": [
        {"name": n, "type": t, "nullable": n != "l", "metadata": {}}
        for n, t in {
            "b": "byte",
            "s": "short",
            "i": "integer",
            "l": "long",
            "f": "float",
            "d": "double",
            "dec": "decimal(20,4)",
            "str": "string",
            "bin": "binary",
            "bool": "boolean",
            "day": "date",
            "ts": "timestamp",
            "ntz": "timestamp_ntz",
            "v": "variant",
            "st": {
                "type": "struct",
                "fields": [
                    {"name": "x", "type": "integer", "nullable": False, "metadata": {"k": 1}}
                ],
            },
            "arr": {"type": "array", "elementType": "string", "containsNull": False},
            "map": {
                "type": "map",
                "keyType": "string",
                "valueType": {"type": "array", "elementType": "long", "containsNull": True},
                "valueContainsNull": True,
            },
        }.items()
    ],
}


def test_every_spark_type_survives_the_way_to_arrow_and_back():
    schema = from_json(json.dumps(SPARK))
    assert json.loads(to_json(schema)) == SPARK
    assert from_json(to_json(schema)).equals(schema, check_metadata=True)
    assert schema.field("ts").type == pa.timestamp("us", tz="UTC")
    assert not schema.field("l").nullable


@pytest.mark.parametrize("kind", ["char(5)", "varchar(10)", "string collate UTF8_LCASE"])
def test_character_types_are_text(kind):
    document = {"type": "struct", "fields": [{"name": "a", "type": kind}]}
    assert from_json(json.dumps(document)).field("a").type == pa.string()


@pytest.mark.parametrize("text", ["{", "[]", '{"type":"array"}'])
def test_what_is_no_schema_is_refused(text):
    with pytest.raises(SchemaError, match="schema is no"):
        from_json(text)


def test_an_unknown_spark_type_names_its_column():
    document = '{"type":"struct","fields":[{"name":"a","type":"interval day"}]}'
    with pytest.raises(SchemaError, match="Column 'a' has the type 'interval day'"):
        from_json(document)


NORMAL = [
    (pa.uint8(), pa.int16()),
    (pa.uint16(), pa.int32()),
    (pa.uint32(), pa.int64()),
    (pa.float16(), pa.float32()),
    (pa.large_string(), pa.string()),
    (pa.string_view(), pa.string()),
    (pa.large_binary(), pa.binary()),
    (pa.binary(4), pa.binary()),
    (pa.dictionary(pa.int8(), pa.large_string()), pa.string()),
    (pa.date64(), pa.date32()),
    (pa.timestamp("ns", tz="Europe/Berlin"), pa.timestamp("us", tz="UTC")),
    (pa.timestamp("s"), pa.timestamp("us")),
    (pa.decimal256(30, 2), pa.decimal128(30, 2)),
    (pa.decimal32(5, 2), pa.decimal128(5, 2)),
    (pa.large_list(pa.uint8()), pa.list_(pa.field("element", pa.int16()))),
    (pa.list_(pa.int32(), 3), pa.list_(pa.field("element", pa.int32()))),
    (pa.struct([("x", pa.uint8())]), pa.struct([("x", pa.int16())])),
    (pa.uuid(), pa.binary()),
]


@pytest.mark.parametrize(("given", "stored"), NORMAL, ids=str)
def test_arrow_types_of_other_kinds_become_sparks(given, stored):
    assert normalize(pa.schema([("a", given)])).field("a").type == stored


def test_everything_that_cannot_be_stored_is_named_at_once():
    schema = pa.schema(
        [
            ("a", pa.uint64()),
            ("b", pa.time64("us")),
            ("c", pa.duration("s")),
            ("d", pa.list_(pa.null())),
            ("e", pa.decimal256(50, 2)),
            ("f", pa.struct([("x", pa.month_day_nano_interval())])),
            ("g", pa.struct([("y", pa.int8()), ("y", pa.int8())])),
            ("ok", pa.int8()),
        ]
    )
    with pytest.raises(SchemaError) as caught:
        normalize(schema)
    for name in ("'a'", "'b'", "'c'", "'d.element'", "'e'", "'f.x'", "'g'"):
        assert name in str(caught.value)
    assert "'ok'" not in str(caught.value)


def test_duplicate_columns_are_listed():
    schema = pa.schema([("a", pa.int8()), ("b", pa.int8()), ("a", pa.int8()), ("b", pa.int8())])
    with pytest.raises(SchemaError, match="Duplicate column names: 'a', 'b'"):
        normalize(schema)


def test_columns_are_added_and_types_widened():
    table = pa.schema([pa.field("a", pa.int32(), nullable=False), ("f", pa.float32())])
    new = pa.schema(
        [("x", pa.string()), ("f", pa.float64()), pa.field("a", pa.int64(), nullable=False)]
    )
    assert evolve(table, new) == pa.schema(
        [pa.field("a", pa.int64(), nullable=False), ("f", pa.float64()), ("x", pa.string())]
    )


WIDER = [
    (pa.int8(), pa.int64(), pa.int64()),
    (pa.int64(), pa.int8(), pa.int64()),
    (pa.int32(), pa.float64(), pa.float64()),
    (pa.decimal128(10, 2), pa.decimal128(9, 4), pa.decimal128(12, 4)),
    (
        pa.struct([("x", pa.int8())]),
        pa.struct([("x", pa.int16()), ("y", pa.string())]),
        pa.struct([("x", pa.int16()), ("y", pa.string())]),
    ),
    (pa.string(), pa.null(), pa.string()),
]


@pytest.mark.parametrize(("old", "new", "merged"), WIDER, ids=str)
def test_widening(old, new, merged):
    found = evolve(pa.schema([("a", old)]), pa.schema([("a", new)])).field("a").type
    assert found == merged


def test_every_breaking_difference_is_named_at_once():
    table = pa.schema(
        [("a", pa.string()), ("b", pa.int64()), pa.field("must", pa.int8(), nullable=False)]
    )
    new = pa.schema([("a", pa.int32()), ("B", pa.int64()), ("b", pa.float64())])
    with pytest.raises(SchemaError) as caught:
        evolve(table, new)
    message = str(caught.value)
    assert "'a' is string in the table and integer in the rows" in message
    assert "'b' is long in the table and double" in message
    assert "'B' differs from the column 'b' in case" in message
    assert "'must' is missing and may not be null" in message


def test_rows_are_brought_to_the_schema():
    schema = pa.schema(
        [("n", pa.int64()), ("t", pa.string()), ("at", pa.timestamp("us", tz="UTC"))]
    )
    rows = pa.table(
        {
            "t": pa.array(["a", None]).dictionary_encode(),
            "at": pa.array([dt.datetime(2024, 1, 1)] * 2, pa.timestamp("ns", tz="America/Lima")),
        }
    )
    found = conform(rows, schema)
    assert found.schema == schema
    assert found["t"].to_pylist() == ["a", None]
    assert found["n"].null_count == 2


BAD_ROWS = [
    (pa.array([2**40]), pa.int32(), "cannot become integer"),
    (pa.array([1.5]), pa.int32(), "cannot become integer"),
    (pa.array([1]), pa.string(), "is not text"),
    (pa.array([1], pa.timestamp("ns")), pa.timestamp("us"), "would lose data"),
    (pa.array([1], pa.timestamp("us")), pa.timestamp("us", tz="UTC"), "not a point in time"),
    (pa.array([Decimal("1.234")]), pa.decimal128(10, 2), "cannot become decimal"),
    (pa.array([[{"a": 1, "b": 2}]]), pa.list_(pa.struct([("a", pa.int64())])), "has no 'b'"),
]


@pytest.mark.parametrize(("values", "kind", "reason"), BAD_ROWS, ids=lambda t: str(t)[:20])
def test_a_cast_that_loses_something_is_refused(values, kind, reason):
    with pytest.raises(SchemaError, match=reason):
        conform(pa.table({"a": values}), pa.schema([("a", kind)]))


def test_unknown_columns_and_nulls_are_refused_together():
    schema = pa.schema([pa.field("a", pa.int64(), nullable=False)])
    with pytest.raises(SchemaError) as caught:
        conform(pa.table({"a": pa.array([1, None]), "z": [1, 2]}), schema)
    assert "'z' is not a column" in str(caught.value)
    assert "'a' has 1 nulls" in str(caught.value)


def test_types_are_called_as_spark_calls_them():
    kind = pa.map_(pa.string(), pa.struct([("x", pa.decimal128(3, 1))]))
    assert type_name(kind) == "map<string,struct<x:decimal(3,1)>>"


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        (pa.list_(pa.float64()), pa.list_(pa.float32())),
        (pa.struct([("x", pa.float64())]), pa.struct([("x", pa.float32())])),
        (pa.map_(pa.string(), pa.float64()), pa.map_(pa.string(), pa.float32())),
    ],
)
def test_numbers_inside_a_column_lose_no_digits(given, wanted):
    rows = pa.table({"c": pa.nulls(1, given)})
    with pytest.raises(SchemaError, match="lose digits"):
        conform(rows, pa.schema([("c", wanted)]))


def test_names_of_hidden_columns_are_taken():
    from indextables import Table

    for name in ("_score", "_IndexAll", "_split", "_Row"):
        schema = pa.schema([("id", pa.int64()), (name, pa.float32())])
        with pytest.raises(
            SchemaError, match=f"'{name}' is a hidden column that every index table has"
        ):
            Table.create("memory://hidden-names", schema)
        with pytest.raises(SchemaError, match="Give yours another name"):
            evolve(pa.schema([("id", pa.int64())]), schema)
        assert evolve(schema, schema).equals(schema)


def test_a_variant_is_no_other_struct():
    variant = from_json(
        '{"type":"struct","fields":[{"name":"v","type":"variant","nullable":true,"metadata":{}}]}'
    )
    assert type_name(variant.field("v").type) == "variant"
    assert normalize(variant).field("v").type.equals(variant.field("v").type, check_metadata=True)
    other = pa.schema([("v", pa.struct([("value", pa.binary()), ("more", pa.int32())]))])
    with pytest.raises(SchemaError, match="'v' is variant in the table"):
        evolve(variant, other)


@pytest.mark.parametrize(
    "data_type",
    [
        VARIANT,
        pa.struct([pa.field("a", pa.int64(), nullable=False)]),
        pa.struct([pa.field("k", pa.int64()), pa.field("v", VARIANT)]),
    ],
)
def test_a_missing_column_is_null_as_its_type_allows(data_type):
    schema = pa.schema({"id": pa.int64(), "added": data_type})
    rows = conform(pa.table({"id": [1, 2]}), schema)
    assert rows.cast(schema)["added"].to_pylist() == [None, None]


def test_a_struct_gets_a_variant():
    held = pa.array([{"k": 1}, None], pa.struct([pa.field("k", pa.int64())]))
    schema = pa.schema({"s": pa.struct([pa.field("k", pa.int64()), pa.field("v", VARIANT)])})
    rows = conform(pa.table({"s": held}), schema)
    assert rows.cast(schema)["s"].to_pylist() == [{"k": 1, "v": None}, None]
