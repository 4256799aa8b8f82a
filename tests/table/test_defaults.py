"""Columns that are added with a default: rows that are there have it, without being rewritten.

The oracle is a table that had the columns from the beginning, with the same values in all rows.
"""

from __future__ import annotations

import datetime
import random
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from indextables import Table
from indextables.errors import DeltaMirrorError, SchemaError, UnsupportedFeatureError
from indextables.log.actions import COLUMN_DEFAULTS
from indextables.schema.conformity import (
    missing_defaults,
    read_literal,
    spark_literal,
    with_existence_default,
)
from indextables.schema.types import VARIANT

PREFIX = "spark.indextables."
OPTIONS: dict[str, object] = {
    PREFIX + "mergeOnWrite.enabled": "false",
    PREFIX + "xref.query.minSplitsForXRef": 1,
}
TYPES = OPTIONS | {
    PREFIX + "indexing.typemap.state": "string",
    PREFIX + "indexing.fastfields": "level",
}
OLD = pa.schema(
    [("id", pa.int64()), ("title", pa.string()), ("day", pa.string()), ("raw", pa.binary())]
)
NEW = pa.schema(
    [
        ("tags", pa.list_(pa.string())),  # without a default
        ("note", pa.string()),
        ("state", pa.string()),
        ("n", pa.int32()),
        ("level", pa.int64()),
        ("price", pa.decimal128(10, 2)),
        ("since", pa.timestamp("us", tz="UTC")),
    ]
)
DEFAULTS: dict[str, Any] = {
    "note": "quick brown fox",
    "state": "open",
    "n": 7,
    "level": -1,
    "price": Decimal("1.50"),
    "since": datetime.datetime(2024, 5, 1, tzinfo=datetime.UTC),
}
CONDITIONS = [
    "note = 'quick brown fox'",
    "note indexquery 'fox'",
    "note indexquery '\"quick brown\"'",
    "NOT note indexquery 'fox'",
    "note indexquery 'fox' OR title indexquery 'red'",
    "note indexquery 'fox' AND day = 'mon'",
    "note indexquery 'lazy'",
    "note indexquery 'br*n'",
    "_indexall indexquery 'brown'",
    "_indexall indexquery 'red AND brown'",
    "state = 'open'",
    "state = 'shut'",
    "state IN ('open', 'x') AND n < 8",
    "state LIKE 'op%'",
    "state indexquery 'open'",
    "n = 7",
    "n > 7",
    "n IS NULL",
    "NOT (n IS NULL)",
    "n <=> 7",
    "_indexall indexquery 'n:7'",
    "level = -1",
    "level indexquery '[-5 TO 0]'",
    "price = 1.50",
    "price BETWEEN 1 AND 2",
    "since >= TIMESTAMP '2024-01-01 00:00:00'",
    "_indexall indexquery 'note:*'",
    "tags IS NULL",
    "id > 2",
]


def old_rows(generator: random.Random, first: int, count: int) -> pa.Table:
    words = ["red", "blue", "fox", "whale", "brown"]
    return pa.table(
        {
            "id": range(first, first + count),
            "title": [" ".join(generator.choices(words, k=3)) for _ in range(count)],
            "day": [generator.choice(["mon", "tue"]) for _ in range(count)],
            "raw": [bytes([number]) for number in range(first, first + count)],
        },
        schema=OLD,
    )


def with_values(rows: pa.Table, values: dict[str, Any]) -> pa.Table:
    for field in NEW:
        value = pa.scalar(values.get(field.name), field.type)
        rows = rows.append_column(field, pa.repeat(value, rows.num_rows))
    return rows


def two_tables(folder: Path, **more: Any) -> tuple[Table, Table]:
    """A table whose columns were added, and one that had them from the beginning."""
    generator = random.Random(5)
    added = Table.create(folder / "added", OLD, config=OPTIONS, **more)
    oracle = Table.create(folder / "oracle", pa.schema([*OLD, *NEW]), config=TYPES, **more)
    for first in (0, 20, 40):
        rows = old_rows(generator, first, 20)
        added.append(rows)
        oracle.append(with_values(rows, DEFAULTS))
    added = Table.open(folder / "added", config=TYPES)
    added.add_columns(NEW, defaults=DEFAULTS)
    other = {"note": "lazy dog", "state": "shut", "n": 8, "level": 3}
    rows = with_values(old_rows(generator, 60, 10), other)
    added.append(rows)
    oracle.append(rows)
    rows = with_values(old_rows(generator, 70, 5), {})
    added.append(rows)
    oracle.append(rows)
    return added, oracle


def answers(table: Table) -> dict[str, Any]:
    """What a table says to all kinds of questions."""
    found: dict[str, Any] = {"rows": table.scan().sort_by("id").to_pylist()}
    for where in CONDITIONS:
        rows = table.scan(where=where, columns=["id", "note", "n"])
        found[where] = sorted(rows.to_pylist(), key=lambda row: row["id"])
        assert table.count(where=where) == rows.num_rows, where
    ranked = ("brown", "note:fox", "note:dog OR title:red", "state:open", "n:7 OR title:whale")
    for query in (*ranked, "title:red", "title:fox^2 OR title:blue"):
        hits = table.search(query, limit=12)
        scores = [round(score, 5) for score in hits["_score"].to_pylist()]
        found[f"search {query}"] = (hits["id"].to_pylist(), scores)
    found["facets"] = table.facets(by=["state", "n"])["state"].to_pylist()
    found["complete"] = table.complete("bro", column="note").to_pylist()
    found["suggest"] = table.suggest("quik", column="note").to_pylist()
    query = "SELECT state, count(n) AS c, sum(n) AS s, min(price) AS p FROM this GROUP BY state"
    found["sql"] = sorted(table.sql(query).to_pylist(), key=str)
    snippets = table.search("note:fox", limit=3, snippets=["note"])
    found["snippets"] = snippets["_snippet_note"].to_pylist()
    return found


def same_answers(added: Table, oracle: Table) -> None:
    one, other = answers(added), answers(oracle)
    for question, answer in other.items():
        assert one[question] == answer, question


@pytest.fixture(scope="module", params=["plain", "partitioned"])
def tables(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory):
    more = {"partition_by": ["day"]} if request.param == "partitioned" else {}
    return two_tables(tmp_path_factory.mktemp(request.param), **more)


def test_old_splits_answer_the_default_to_every_question(tables: tuple[Table, Table]):
    added, oracle = tables
    lacking = 3 * (2 if added.partition_columns else 1)
    first = added.snapshot().entries["path"].to_pylist()[:lacking]
    assert first  # the old splits are still there
    assert COLUMN_DEFAULTS in (added.snapshot().protocol.reader_features or ())
    same_answers(added, oracle)


def test_cross_references_do_not_deny_a_default(tmp_path: Path):
    added, oracle = two_tables(tmp_path)
    added.index_crossreferences()
    assert "XRefs that cover" in added.explain(where="note indexquery 'dog'")
    same_answers(added, oracle)


def test_changed_and_merged_rows_keep_the_default(tmp_path: Path):
    added, oracle = two_tables(tmp_path)
    changed = []
    for table in (added, oracle):
        table.delete(where="n = 7 AND id IN (3, 13, 44)")
        table.update({"n": "n + 1"}, where="note indexquery 'fox' AND id IN (5, 25)")
        table.merge(pa.table({"id": [8], "state": ["merged"]}), on="id")
        rows = table.changes(from_version=table.version - 2).to_pylist()
        changed.append(sorted((r["_change_type"], r["id"], r["n"], r["state"]) for r in rows))
    assert changed[0] == changed[1] and len(changed[0]) == 9
    same_answers(added, oracle)
    for table in (added, oracle):
        assert table.merge_splits(target_size="1G").files_added == 1
    same_answers(added, oracle)
    assert all(not check.problems for check in added.verify())


def test_a_merge_of_old_splits_alone_indexes_the_default(tmp_path: Path):
    table = Table.create(tmp_path / "t", OLD, config=OPTIONS)
    for first in (0, 5):
        table.append(old_rows(random.Random(first), first, 5))
    table.add_columns(pa.schema([("note", pa.string())]), defaults={"note": "quick fox"})
    assert table.merge_splits(target_size="1G").files_added == 1
    assert table.count(where="note indexquery 'quick'") == 10
    assert table.search("note:fox", limit=20).num_rows == 10
    assert all(not check.problems for check in table.verify())


def test_marked_rows_are_left_out(tmp_path: Path):
    added, oracle = two_tables(tmp_path)
    for table in (added, oracle):
        table.set_properties({PREFIX + "deletionVectors.mode": "vector"})
        table.delete(where="state = 'open' AND id IN (1, 21, 22)")
    same_answers(added, oracle)


def test_a_renamed_column_keeps_its_default_and_a_dropped_one_does_not_come_back(tmp_path: Path):
    table = Table.create(tmp_path / "t", data=old_rows(random.Random(1), 0, 4), config=OPTIONS)
    table.add_columns(pa.schema([("note", pa.string())]), defaults={"note": "some words"})
    table.rename_column("note", "remark")
    assert table.count(where="remark indexquery 'words'") == 4
    assert table.search("remark:some")["remark"].to_pylist() == ["some words"] * 4
    table.drop_columns(["remark"])
    table.add_columns(pa.schema([("remark", pa.string())]))
    assert table.count(where="remark IS NULL") == 4
    before = Table.open(str(tmp_path / "t"), version=0)
    assert before.schema.names == OLD.names and before.count() == 4
    assert Table.open(str(tmp_path / "t"), version=2).count(where="remark = 'some words'") == 4
    table.restore(version=1)
    assert table.scan()["note"].to_pylist() == ["some words"] * 4


def test_a_new_column_of_appended_rows_brings_no_default_along(tmp_path: Path):
    table = Table.create(tmp_path / "t", data=pa.table({"id": [1]}), config=OPTIONS)
    field = with_existence_default(pa.field("n", pa.int64()), pa.scalar(7))
    rows = pa.table({"id": [2], "n": [3]}, schema=pa.schema([("id", pa.int64()), field]))
    table.append(rows, merge_schema=True)
    assert table.scan().sort_by("id")["n"].to_pylist() == [None, 3]


def test_not_null_needs_a_default_where_rows_are(tmp_path: Path):
    table = Table.create(tmp_path / "t", data=pa.table({"id": [1]}), config=OPTIONS)
    needed = pa.schema([pa.field("n", pa.int64(), nullable=False)])
    with pytest.raises(SchemaError, match="give it a default"):
        table.add_columns(needed)
    table.add_columns(needed, defaults={"n": 5})
    assert table.scan().to_pylist() == [{"id": 1, "n": 5}]
    table.update({"id": "id + 1"}, where="n = 5")
    assert table.scan().to_pylist() == [{"id": 2, "n": 5}]
    assert table.merge_splits().status == "no_action"


@pytest.mark.parametrize(
    ("defaults", "problem"),
    [
        ({"x": 1}, "not one of the new columns"),
        ({"tags": ["a"]}, "has no default"),
        (["n"], "Name columns and their values"),
        ({"n": "many"}, "not a value of 'n'"),
        ({"n": 2**40}, "not a value of 'n'"),
    ],
)
def test_what_is_no_default_is_refused(tmp_path: Path, defaults: dict[str, Any], problem: str):
    table = Table.create(tmp_path / "t", data=pa.table({"id": [1]}))
    with pytest.raises(SchemaError, match=problem):
        table.add_columns(NEW, defaults=defaults)
    assert table.version == 0


def test_a_default_that_nobody_needs_is_not_read(tmp_path: Path):
    field = pa.field("tags", pa.list_(pa.string()))
    note = {b"spark.metadata": b'{"EXISTS_DEFAULT": "array(1)"}'}
    rows = pa.table({"tags": [["a"]]}, schema=pa.schema([field.with_metadata(note)]))
    table = Table.create(tmp_path / "t", data=rows)
    assert table.scan()["tags"].to_pylist() == [["a"]]
    assert table.count(where="tags indexquery 'a'") == 1


def test_a_mirror_has_no_defaults_for_older_rows(tmp_path: Path):
    table = Table.create(tmp_path / "t", data=pa.table({"id": [1]}))
    table.set_properties({PREFIX + "delta.mirror": "true"})
    with pytest.raises(DeltaMirrorError, match="DEFAULT"):
        table.add_columns(NEW, defaults=DEFAULTS)
    table.set_properties({PREFIX + "delta.mirror": None})
    table.add_columns(NEW, defaults=DEFAULTS)
    with pytest.raises(DeltaMirrorError, match="DEFAULT"):
        table.set_properties({PREFIX + "delta.mirror": "true"})


def test_readers_that_do_not_know_of_it_are_kept_out_or_nothing_changes(tmp_path: Path):
    options = {PREFIX + "protocol.autoUpgrade": "false"}
    table = Table.create(tmp_path / "t", data=pa.table({"id": [1]}), config=options)
    with pytest.raises(UnsupportedFeatureError, match=COLUMN_DEFAULTS):
        table.add_columns(NEW, defaults=DEFAULTS)


@pytest.mark.parametrize(
    "value",
    [
        pa.scalar("it's a \\ line\nand\ttab \\u0041 é"),
        pa.scalar(b"\x00\xff"),
        pa.scalar(True),
        pa.scalar(-(2**63)),
        pa.scalar(5, pa.int8()),
        pa.scalar(0.1, pa.float32()),
        pa.scalar(float("-inf")),
        pa.scalar(Decimal("-0.0050"), pa.decimal128(38, 4)),
        pa.scalar(datetime.date(1, 1, 1)),
        pa.scalar(datetime.datetime(2024, 3, 1, 12, 0, 0, 1), pa.timestamp("us")),
        pa.scalar(253402326000000000, pa.timestamp("us", tz="UTC")),
    ],
)
def test_a_literal_reads_back(value: Any):
    assert read_literal(spark_literal(value), value.type).equals(value)
    field = with_existence_default(pa.field("c", value.type), value)
    assert missing_defaults(pa.schema([field]), ())["c"].equals(value)


@pytest.mark.parametrize(
    ("text", "kind", "value"),
    [
        ("1.5D", pa.float64(), 1.5),
        ("CAST('NaN' AS DOUBLE)", pa.float64(), "nan"),
        ("CAST(1.5 AS FLOAT)", pa.float32(), 1.5),
        ("CAST('0.1' AS FLOAT)", pa.float64(), 0.10000000149011612),
        ("7L", pa.int64(), 7),
        ("1", pa.int64(), 1),
        ("CAST(NULL AS INT)", pa.int32(), None),
        ("'it''s'", pa.string(), "it's"),
        ("DATE '2024-05-01'", pa.date32(), datetime.date(2024, 5, 1)),
    ],
)
def test_literals_as_spark_spells_them(text: str, kind: pa.DataType, value: Any):
    found = read_literal(text, kind)
    shown = None if found is None else found.as_py()
    assert (str(shown) if value == "nan" else shown) == value


def test_an_expression_is_not_taken_for_a_literal():
    with pytest.raises(SchemaError, match="current_date"):
        read_literal("current_date()", pa.date32())


def test_a_variant_is_not_mirrored(tmp_path: Path):
    rows = pa.table({"v": pa.array([{"value": b"\0", "metadata": b"\1\0\0"}], VARIANT)})
    table = Table.create(tmp_path / "t", data=rows)
    assert table.schema.field("v").type == VARIANT and table.count() == 1
    parts = [pa.array([b"\0", None]), pa.array([b"\1\0\0", None])]
    mask = pa.array([False, True])  # as Spark has a null one
    table.append(
        pa.table({"v": pa.StructArray.from_arrays(parts, fields=VARIANT.fields, mask=mask)})
    )
    assert table.scan()["v"].null_count == table.count(where="v IS NULL") == 1
    with pytest.raises(DeltaMirrorError, match="VARIANT"):
        table.set_properties({PREFIX + "delta.mirror": "true"})
