"""Table.merge: upserts by key in one commit, beside dictionaries."""

from __future__ import annotations

import random
import struct

import pyarrow as pa
import pytest

import indextables as it
from indextables import Table
from indextables.errors import (
    ConcurrentAppendError,
    ConfigError,
    MatchedTwiceError,
    SchemaError,
    UnknownColumnError,
)
from indextables.jobs import write_job

MODES = {"vector": {"spark.indextables.deletionVectors.mode": "vector"}, "auto": {}}
SCHEMA = pa.schema({"id": pa.int64(), "k": pa.string(), "body": pa.string(), "n": pa.int32()})


def made(uri, rows, *, config=None, partition_by=()):
    table = Table.create(uri, SCHEMA, partition_by=partition_by)
    for start in range(0, len(rows), 20):
        table.append(pa.Table.from_pylist(rows[start : start + 20], SCHEMA))
    return Table.open(uri, config=config)


def row(i, k="a", body="old", n=0):
    return {"id": i, "k": k, "body": body, "n": n}


def content(table):
    return sorted(table.scan().select(SCHEMA.names).to_pylist(), key=repr)


@pytest.mark.parametrize("partition_by", [(), ("k",)])
@pytest.mark.parametrize("mode", MODES)
def test_random_merges(tmp_path, mode, partition_by):
    draw = random.Random(7)
    rows = [row(i, k=draw.choice(["a", "b", None]), n=i) for i in range(60)]
    table = made(str(tmp_path / "t"), rows, config=MODES[mode], partition_by=partition_by)
    for turn in range(8):
        on = draw.choice([["id"], ["k", "id"], ["id", "n"]])
        matched = draw.choice(["update", "delete", "ignore"])
        missing = draw.choice(["insert", "ignore"])
        ids = draw.sample([*range(90), None], 25)
        columns = draw.choice([SCHEMA.names, [*{*on, "body"}]])
        source = [
            {c: v for c, v in row(i, draw.choice(["a", "b", None]), f"new{turn}", i).items()
             if c in columns}
            for i in ids
        ]  # fmt: skip
        keys = {key: s for s in source if None not in (key := tuple(s[name] for name in on))}
        expected, hit = [], set()
        for old in rows:
            key = tuple(old[name] for name in on)
            if key not in keys:
                expected.append(old)
                continue
            hit.add(key)
            if matched == "update":
                expected.append({**old, **keys[key]})
            elif matched == "ignore":
                expected.append(old)
        if missing == "insert":
            empty = dict.fromkeys(SCHEMA.names)
            expected += [{**empty, **s} for s in source if tuple(s[n] for n in on) not in hit]
        fields = pa.schema([f for f in SCHEMA if f.name in columns])
        before = table.version
        done = table.merge(
            pa.Table.from_pylist(source, fields),
            on=on, when_matched=matched, when_not_matched=missing,
        )  # fmt: skip
        assert table.version in (before, before + 1) and done.version == table.version
        rows = expected
        assert content(table) == sorted(rows, key=repr)
        assert table.count() == len(rows)
        searched = table.scan(where=f"body indexquery 'new{turn}'").num_rows
        assert searched == sum(r["body"] == f"new{turn}" for r in rows)
    assert all(check.passed for check in table.verify())


def test_a_row_that_is_matched_twice(tmp_path):
    table = made(str(tmp_path / "t"), [row(1), row(2)])
    twice = pa.Table.from_pylist([row(1, body="x"), row(1, body="y"), row(3)], SCHEMA)
    version = table.version
    splits = len(list((tmp_path / "t").rglob("*.split")))
    with pytest.raises(MatchedTwiceError, match="Several rows of the source"):
        table.merge(twice, on="id")
    assert table.refresh().version == version
    assert len(list((tmp_path / "t").rglob("*.split"))) == splits
    # Deleting a row twice is deleting it, and new rows need not be different.
    assert table.merge(twice, on="id", when_matched="delete").rows_removed == 1
    table.merge(pa.Table.from_pylist([row(9), row(9)], SCHEMA), on="id")
    assert [r["id"] for r in content(table)] == [2, 3, 9, 9]


def test_columns_that_are_new_renamed_or_not_there(tmp_path):
    table = made(str(tmp_path / "t"), [row(1), row(2)])
    wider = pa.table({"id": [2, 3], "tag": ["x", "y"]})
    with pytest.raises(SchemaError, match="merge_schema"):
        table.merge(wider, on="id")
    table.merge(wider, on="id", merge_schema=True)
    found = {r["id"]: (r["body"], r["tag"]) for r in table.scan().to_pylist()}
    assert found == {1: ("old", None), 2: ("old", "x"), 3: (None, "y")}
    table.rename_column("id", "number")
    table.merge(pa.table({"number": [1], "body": ["again"]}), on="number")
    assert table.scan(where="number = 1")["body"].to_pylist() == ["again"]
    data = pa.table({"number": [1]})
    for on, error in (([], SchemaError), ("id", UnknownColumnError), ("body", UnknownColumnError)):
        with pytest.raises(error):
            table.merge(data, on=on)
    with pytest.raises(ConfigError, match="when_matched is one of"):
        table.merge(data, on="number", when_matched="replace")


def test_rows_that_come_meanwhile_are_a_conflict(tmp_path, monkeypatch):
    table = made(str(tmp_path / "t"), [row(1)])
    original = write_job.merge_batches

    def late(*args, **options):
        found = list(original(*args, **options))
        Table.open(table.uri).append(pa.Table.from_pylist([row(5)], SCHEMA))
        return iter(found)

    monkeypatch.setattr(write_job, "merge_batches", late)
    with pytest.raises(ConcurrentAppendError, match="again"):
        table.merge(pa.Table.from_pylist([row(5, body="new")], SCHEMA), on="id")
    assert [r["id"] for r in content(table.refresh())] == [1, 5]


def test_keys_are_compared_as_sql_does(tmp_path):
    """Zero has two signs and NaN many bits; each is one key. Null equals nothing."""
    other_nan = struct.unpack("<d", struct.pack("<Q", 0x7FF8_0000_0000_0001))[0]
    keys = [0.0, float("nan"), None]
    table = it.write_table(tmp_path / "t", pa.table({"k": keys, "v": ["zero", "nan", "null"]}))
    table.merge(pa.table({"k": [-0.0, other_nan, None], "v": ["Zero", "NaN", "Null"]}), on=["k"])
    assert sorted(table.scan()["v"].to_pylist()) == ["NaN", "Null", "Zero", "null"]


def test_in_a_bucket_with_renamed_columns(s3):
    """A merge and its changes, where the columns that users see are not the stored ones."""
    table = it.write_table(
        f"{s3.uri}/merged",
        pa.table({"id": [1, 2, 3], "body": ["red fox", "lazy dog", "old"], "gone": [1, 1, 1]}),
        storage_options=s3.options,
    )
    table.rename_column("body", "text")
    table.drop_columns(["gone"])
    before = table.version
    table.merge(pa.table({"id": [2, 4], "text": ["quick fox", "new fox"]}), on=["id"])
    expected = [(1, "red fox"), (2, "quick fox"), (3, "old"), (4, "new fox")]
    again = Table.open(table.uri, storage_options=s3.options)
    for seen in (table, again):
        assert sorted(map(tuple, map(dict.values, seen.scan().to_pylist()))) == expected
        assert sorted(seen.search("fox", fields=["text"])["id"].to_pylist()) == [1, 2, 4]
    changed = again.changes(from_version=before + 1).to_pylist()
    assert sorted((c["_change_type"], c["id"], c["text"]) for c in changed) == [
        ("insert", 4, "new fox"),
        ("update_postimage", 2, "quick fox"),
        ("update_preimage", 2, "lazy dog"),
    ]
