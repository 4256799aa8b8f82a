"""The verbs of a table: what each one does, and what it leaves alone."""

from __future__ import annotations

import datetime
import functools
import io
import pickle
import random
import threading
from decimal import Decimal
from pathlib import Path

import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from random_tables import shown

from indextables import Table
from indextables.config import WRITER_HEAP_SIZE
from indextables.errors import (
    ConfigError,
    QuerySyntaxError,
    SchemaError,
    TooManyExpansionsError,
    VersionNotFoundError,
)
from indextables.split.mapping import MAPPING_PROPERTY

SCHEMA = pa.schema([("id", pa.int64()), ("body", pa.string()), ("day", pa.string())])
PREFIX = "spark.indextables."


@functools.cache
def shuffled():
    return random.Random(1).sample(range(10**12), 200_000)


def rows(*ids, day="mon"):
    return pa.table(
        {"id": list(ids), "body": [f"word{i} all" for i in ids], "day": [day] * len(ids)}, SCHEMA
    )


@pytest.fixture
def make(tmp_path, config):
    """A function that creates tables side by side."""
    made = iter(range(100))

    def create(schema=SCHEMA, **arguments):
        settings = config | arguments.pop("config", {})
        return Table.create(tmp_path / f"t{next(made)}", schema, config=settings, **arguments)

    return create


def ids(table, **arguments):
    return sorted(table.scan(columns=["id"], **arguments)["id"].to_pylist())


def folder(table):
    return Path(table.uri.removeprefix("file://"))


# --- rows in every form ----------------------------------------------------------------------


def parquet_dataset(data, tmp_path):
    pq.write_table(data, tmp_path / "data.parquet")
    return ds.dataset(tmp_path / "data.parquet")


FORMS = {
    "table": lambda data, _: data,
    "chunked table": lambda data, _: pa.concat_tables([data.slice(0, 1), data.slice(1)]),
    "batch": lambda data, _: data.combine_chunks().to_batches()[0],
    "reader": lambda data, _: data.to_reader(max_chunksize=1),
    "list of batches": lambda data, _: data.to_batches(max_chunksize=1),
    "generator": lambda data, _: (batch for batch in data.to_batches(max_chunksize=2)),
    "pandas": lambda data, _: data.to_pandas(),
    "pandas with an index": lambda data, _: data.to_pandas().set_index(pd.Index(["x", "y", "z"])),
    "filtered pandas": lambda data, _: pd.concat([data.to_pandas()] * 2).iloc[[3, 1, 5]],
    "polars": lambda data, _: pl.from_arrow(data),
    "polars categories": lambda data, _: pl.from_arrow(data).cast({"day": pl.Categorical}),
    "dataset": parquet_dataset,
    "other order": lambda data, _: data.select(["day", "id", "body"]),
    "large types": lambda data, _: data.cast(
        pa.schema([("id", pa.int32()), ("body", pa.large_string()), ("day", pa.large_string())])
    ),
    "dictionary": lambda data, _: data.set_column(2, "day", data["day"].dictionary_encode()),
}


@pytest.mark.parametrize("form", FORMS)
def test_rows_come_in_every_form(form, make, tmp_path):
    table = make(partition_by=["day"])
    data = pa.concat_tables([rows(1, 2), rows(3, day="tue")])
    written = table.append(FORMS[form](data, tmp_path))
    assert (written.version, written.rows, written.files_added, written.files_removed) == (
        1,
        3,
        2,
        0,
    )
    assert written.bytes_added == table.snapshot().total_bytes
    assert shown(table.scan().sort_by("id")) == shown(data)
    assert ids(table, where="body indexquery 'word2'") == [2]


def test_a_missing_column_is_null(make):
    table = make()
    table.append(pa.table({"id": [1]}))
    assert table.scan().to_pylist() == [{"id": 1, "body": None, "day": None}]


# --- replacing and deleting ------------------------------------------------------------------


@pytest.mark.parametrize("partition_by", [(), ("day",)])
def test_overwrite_and_delete(partition_by, make):
    table = make(partition_by=partition_by)
    table.append(rows(1, 2))
    table.append(rows(3, 4, day="tue"))
    written = table.overwrite(rows(9), where="day = 'mon'")
    assert (written.rows, written.files_removed) == (1, 1)
    assert ids(table) == [3, 4, 9]
    table.overwrite(rows(3, 5), where="id = 3 OR id = 5")
    assert ids(table) == [3, 4, 5, 9]
    assert table.scan(where="id = 3")["day"].to_pylist() == ["mon"]
    removed = table.delete(where="body indexquery 'word4' OR id = 9")
    assert removed.rows == 0 and ids(table) == [3, 5]
    before = table.version
    nothing = table.delete(where="id = 77")
    assert (nothing.version, nothing.files_removed) == (before, 0) and table.version == before
    table.overwrite(rows(6))
    assert ids(table) == [6]


def test_a_delete_keeps_rows_whose_condition_is_null(make):
    table = make()
    table.append(pa.table({"id": [1, None, 3], "body": ["a", "b", None]}))
    table.delete(where="id > 1")
    assert table.count() == 2
    table.delete(where="NOT (body = 'a')")
    assert table.scan()["body"].to_pylist() == ["a"]


def test_dynamic_overwrite_replaces_partitions_it_has(make):
    table = make(partition_by=["day"])
    for day in ("mon", "tue", None, ""):
        table.append(rows(1, 2, day=day))
    table.overwrite(pa.concat_tables([rows(7, day="tue"), rows(8, day=None)]), partitions="dynamic")
    found = {(r["day"], r["id"]) for r in table.scan().to_pylist()}
    assert found == {("mon", 1), ("mon", 2), ("tue", 7), (None, 8), ("", 1), ("", 2)}
    flat = make()
    flat.append(rows(1))
    flat.overwrite(rows(2), partitions="dynamic")
    assert ids(flat) == [2]


def test_only_splits_with_such_rows_are_written_anew(make):
    table = make()
    for start in (0, 10, 20):
        table.append(rows(start, start + 1))
    before = set(table.snapshot().files["path"].to_pylist())
    table.delete(where="id = 10")
    after = set(table.snapshot().files["path"].to_pylist())
    assert len(before & after) == 2 and len(after - before) == 1
    table.delete(where="id = 11")
    assert table.snapshot().num_files == 2


# --- time ------------------------------------------------------------------------------------


def test_time_travel_and_history(make):
    table = make()
    for n in range(1, 4):
        table.append(rows(n))
    table.overwrite(rows(9))
    history = table.history()
    assert history["version"].to_pylist() == [4, 3, 2, 1, 0]
    assert history["operation"].to_pylist() == ["OVERWRITE", *["APPEND"] * 3, "CREATE TABLE"]
    assert history["filesRemoved"].to_pylist() == [3, 0, 0, 0, 0]
    assert dict(history["metrics"].to_pylist()[1])["rows"] == "1"
    assert table.history(limit=2).num_rows == 2
    past = Table.open(table.uri, version=2)
    assert past.version == 2 and ids(past) == [1, 2]
    moments = dict(
        zip(history["version"].to_pylist(), history["timestamp"].to_pylist(), strict=True)
    )
    for moment in (moments[3], moments[3].isoformat(), int(moments[3].timestamp() * 1000)):
        assert ids(Table.open(table.uri, timestamp=moment)) == [1, 2, 3]
    naive = moments[3].astimezone(datetime.UTC).replace(tzinfo=None)
    assert Table.open(table.uri, timestamp=naive).version == 3
    assert (
        table.snapshot(version=1).num_files == 1
        and table.snapshot(timestamp=moments[1]).version == 1
    )
    with pytest.raises(VersionNotFoundError):
        Table.open(table.uri, version=17)
    with pytest.raises(VersionNotFoundError):
        Table.open(table.uri, timestamp="1999-01-01")
    with pytest.raises(ConfigError, match="either"):
        Table.open(table.uri, version=1, timestamp=0)


def test_a_past_table_is_for_reading(make):
    table = make()
    table.append(rows(1))
    table.append(rows(2))
    past = Table.open(table.uri, version=1)
    for act in (
        lambda: past.append(rows(3)),
        lambda: past.overwrite(rows(3)),
        lambda: past.delete(where="id = 1"),
        lambda: past.restore(version=0),
        past.checkpoint,
    ):
        with pytest.raises(ConfigError, match="opened at version 1 and is read-only"):
            act()
    assert past.count() == 1 and past.search("word1").num_rows == 1
    assert past.schema.equals(SCHEMA) and "version 1" in past.explain()
    assert table.version == 2


def test_restore(make):
    table = make()
    table.append(rows(1))
    table.append(pa.table({"id": [2], "extra": ["x"]}), merge_schema=True)
    moment = table.history(limit=1)["timestamp"][0].as_py()
    table.delete(where="id = 1")
    assert table.restore(version=1) == 4
    assert ids(table) == [1] and table.schema.names == ["id", "body", "day"]
    assert table.restore(timestamp=moment) == 5
    assert ids(table) == [1, 2] and ids(table, where="extra indexquery 'x'") == [2]
    assert table.restore(version=5) == 5, "nothing to do, nothing committed"
    assert table.history(limit=1)["operation"].to_pylist() == ["RESTORE"]
    table.append(rows(3))
    assert ids(table) == [1, 2, 3]


def test_a_purged_version_cannot_be_restored(make):
    table = make()
    table.append(rows(1))
    table.overwrite(rows(2))
    gone = table.snapshot(version=1).files["path"][0].as_py()
    (folder(table) / gone).unlink()
    with pytest.raises(VersionNotFoundError) as caught:
        table.restore(version=1)
    assert gone in str(caught.value) and "None" not in str(caught.value)
    assert table.version == 2 and ids(table) == [2]


def test_a_checkpoint_is_read(make):
    table = make()
    table.append(rows(1))
    assert table.checkpoint().version == 1
    table.append(rows(2))
    assert ids(Table.open(table.uri)) == [1, 2]
    assert table.cache_stats()


# --- explain and count -----------------------------------------------------------------------


def stages(text):
    lines = [line.split() for line in text.splitlines()]
    return {
        line[0]: int(line[1].replace(",", ""))
        for line in lines
        if len(line) > 2 and line[2] == "splits"
    }


def test_explain_tells_what_each_stage_keeps(make):
    table = make(partition_by=["day"])
    for n in range(10):
        table.append(rows(10 * n, 10 * n + 1, day=["mon", "tue"][n % 2]))
    where = "day = 'mon' AND id < 25 AND body indexquery 'word1'"
    text = table.explain(where=where, columns=["body"], limit=7)
    assert table.uri.removeprefix("file://") in text and "version 10" in text
    assert "columns  body" in text and "limit    7" in text
    assert stages(text) == {"table": 10, "partitions": 5, "statistics": 2, "read": 2}
    assert "the index proposes rows, their values decide" in text
    size = sum(table.snapshot().files["size"].to_pylist())
    assert f"{size:,} bytes" in text
    cases = {
        None: "Parquet columns, no index needed",
        "body indexquery 'x'": "the index decides",
        "body = 'word0 all'": "the index proposes",
        "id > 3": "no index helps",
        "id > 3 OR body indexquery 'x'": "no index helps",
    }
    for condition, said in cases.items():
        assert said in table.explain(where=condition), condition
    assert stages(table.explain(where="day = 'sun'")) == {
        "table": 10, "partitions": 0, "statistics": 0, "read": 0
    }  # fmt: skip


def test_explain_has_the_share_of_splits_and_of_bytes(tmp_path):
    rows = pa.table({"id": range(3000), "p": ["a"] * 10 + ["b"] * 2990})
    table = Table.create(tmp_path / "shares", rows.schema, partition_by=["p"])
    table.append(rows)
    line = next(x for x in table.explain(where="p = 'b'").splitlines() if "partitions" in x)
    assert "1 splits  (50 %)" in line
    share = int(line.split("bytes")[1].split("(")[1].split("%")[0])
    assert share > 60


def test_counts_come_from_the_log_where_it_knows(make, monkeypatch):
    table = make(partition_by=["day"])
    table.append(rows(*range(10)))
    table.append(rows(*range(10, 20), day="tue"))

    def refuse(*_args, **_kwargs):
        raise AssertionError("a split was opened")

    with monkeypatch.context() as blind:
        blind.setattr("indextables.split.open_split.read_footer", refuse)
        assert table.count() == 20
        assert table.count(where="day = 'tue'") == 10
        assert table.count(where="id >= 0") == 20
        assert table.count(where="id >= 10 OR day = 'mon'") == 20
        assert table.count(where="id IS NULL") == 0
        with pytest.raises(AssertionError):
            table.count(where="id > 3")
    assert table.count(where="id > 3") == 16
    assert table.count(where="body indexquery 'word1*' AND day = 'mon'") == 1


def test_pruned_splits_are_not_opened(make, monkeypatch):
    table = make()
    table.append(rows(1, 2))
    table.append(rows(100, 200))
    opened = []
    from indextables.split import open_split

    read = open_split.read_footer
    monkeypatch.setattr(
        open_split, "read_footer", lambda *a, **k: opened.append(k["path"]) or read(*a, **k)
    )
    assert ids(table, where="id > 50") == [100, 200]
    assert len(opened) == 1


def test_scan_batches_stream(make):
    table = make()
    for n in range(5):
        table.append(rows(n))
    reader = table.scan_batches(columns=["id"], where="id > 0")
    assert isinstance(reader, pa.RecordBatchReader)
    first = reader.read_next_batch()
    assert first.num_rows == 1
    assert sorted(i for batch in reader for i in batch["id"].to_pylist()) == [2, 3, 4]
    half = table.scan_batches()
    half.read_next_batch()
    del half  # and nothing hangs


def test_a_reader_keeps_its_version(make):
    table = make()
    table.append(rows(1))
    table.append(rows(2))
    reader = table.scan_batches(columns=["id"])
    table.overwrite(rows(9))
    assert sorted(reader.read_all()["id"].to_pylist()) == [1, 2]


# --- schema evolution ------------------------------------------------------------------------


def test_added_columns(make):
    table = make()
    table.append(rows(1))
    with pytest.raises(SchemaError, match="merge_schema=True"):
        table.append(pa.table({"id": [2], "new": ["fresh"], "n": [5]}))
    table.append(pa.table({"id": [2], "new": ["fresh"], "n": [5]}), merge_schema=True)
    assert table.schema.names == ["id", "body", "day", "new", "n"]
    assert table.scan(columns=["new", "n"]).to_pylist() == [
        {"new": None, "n": None},
        {"new": "fresh", "n": 5},
    ]
    assert ids(table, where="new indexquery 'fresh'") == [2]
    assert ids(table, where="NOT (new indexquery 'fresh')") == [1]
    assert ids(table, where="new IS NULL") == [1]
    assert ids(table, where="n = 5 OR new = 'x'") == [2]
    assert table.search("fresh")["id"].to_pylist() == [2]
    table.append(rows(3))
    assert table.count(where="new IS NULL") == 2
    table.overwrite(pa.table({"id": [4], "late": [True]}), merge_schema=True)
    assert table.schema.names[-1] == "late" and ids(table, where="late") == [4]


def test_added_columns_of_any_mapping(make):
    table = make()
    table.append(rows(1))
    options = {f"{PREFIX}indexing.typemap.code": "string"}
    table.append(pa.table({"id": [2], "code": ["A b"]}), merge_schema=True, config=options)
    assert ids(table, where="code indexquery '\"A b\"'") == [2]
    assert ids(table, where="code indexquery 'A'") == []
    table.append(pa.table({"id": [3], "code": ["A b"]}))
    assert ids(table, where="code indexquery '\"A b\"'") == [2, 3], "the table remembers"


WIDENED = {
    "int to long": (pa.int32(), pa.int64(), [1, -5], [2**40], "v > 100", [2**40]),
    "byte to int": (pa.int8(), pa.int32(), [1, 127], [128], "v >= 127", [127, 128]),
    "float to double": (pa.float32(), pa.float64(), [0.5], [0.1], "v < 0.3", [0.1]),
    "decimal": (
        pa.decimal128(4, 1), pa.decimal128(8, 3), [Decimal("1.5")], [Decimal("1.501")],
        "v > 1.5", [Decimal("1.501")],
    ),
}  # fmt: skip


@pytest.mark.parametrize("fast", ["", "v"])
@pytest.mark.parametrize("case", WIDENED)
def test_widened_types(case, fast, make):
    narrow, wide, first, second, where, found = WIDENED[case]
    table = make(pa.schema([("v", narrow)]), config={f"{PREFIX}indexing.fastfields": fast})
    table.append(pa.table({"v": pa.array(first, narrow)}))
    table.append(pa.table({"v": pa.array(second, wide)}), merge_schema=True)
    assert table.schema.field("v").type == wide
    assert table.scan()["v"].to_pylist() == pa.array(first + second, wide).to_pylist()
    assert sorted(table.scan(where=where)["v"].to_pylist()) == found
    assert table.count(where=f"v indexquery '{second[0]}'") == 1
    table.append(pa.table({"v": pa.array(first, narrow)}), merge_schema=True)
    assert table.schema.field("v").type == wide and table.count() == 2 * len(first) + 1


def test_a_breaking_change_names_every_difference(make):
    schema = pa.schema([("a", pa.int64()), ("b", pa.string()), ("c", pa.list_(pa.int32()))])
    table = make(schema)
    bad = pa.table({"a": ["x"], "b": [1], "c": [[True]], "B": ["y"], "fine": [1]})
    with pytest.raises(SchemaError) as caught:
        table.append(bad, merge_schema=True)
    for part in ("'a' is long", "'b' is string", "'c.element' is integer", "'B' differs"):
        assert part in str(caught.value)
    assert table.version == 0


def test_another_mapping_is_refused(make):
    table = make(mapping={"body": "string"})
    table.append(rows(1))
    text = {f"{PREFIX}indexing.typemap.body": "text"}
    with pytest.raises(
        SchemaError, match="existing table has string field, cannot append with text"
    ):
        table.append(rows(2), config=text)
    tokenizer = {f"{PREFIX}indexing.tokenizer.day": "whitespace"}
    with pytest.raises(SchemaError, match=r"Field 'day' type mismatch.*text \(default\)"):
        Table.open(table.uri, config=tokenizer).append(rows(2))
    table.append(rows(2), config={f"{PREFIX}indexing.typemap.body": "string"})
    assert table.count() == 2


# --- names and values ------------------------------------------------------------------------

NAMES = [
    "a.b",
    "two words",
    "ünï",
    "naïve.col umn",
    "select",
    "a",
    "x`y",
    "Case",
    "q\"'",
    "😀",
    "a,b",
]


def test_names_of_columns(make):
    schema = pa.schema([("id", pa.int64()), *((name, pa.string()) for name in NAMES)])
    table = make(schema, mapping={"Case": "string", "a.b": "string"})
    table.append(
        pa.table({"id": [1, 2], **{n: [f"word{i}", None] for i, n in enumerate(NAMES)}}, schema)
    )
    for i, name in enumerate(NAMES):
        quoted = "`" + name.replace("`", "``") + "`"
        for where in (f"{quoted} = 'word{i}'", f"{quoted} indexquery 'word{i}'"):
            assert ids(table, where=where) == [1], where
        assert ids(table, where=f"{quoted} IS NULL") == [2]
        assert table.scan(columns=[name])[name].to_pylist() == [f"word{i}", None]
        assert table.search(f"word{i}", fields=[name], snippets=[name]).num_rows == 1
    assert table.view.mapping.by_name["a.b"].kind == "string"
    assert table.search("a.b:word0")["id"].to_pylist() == [1]


def test_names_that_differ_in_case_only(make):
    schema = pa.schema([("id", pa.int64()), ("Name", pa.string()), ("name", pa.string())])
    with pytest.raises(SchemaError, match="'Name' or 'name'"):
        make(schema, mapping={"name": "string"})
    table = make(schema)
    table.append(pa.table({"id": [1], "Name": ["upper"], "name": ["lower"]}))
    assert ids(table, where="Name = 'upper' AND name = 'lower'") == [1]
    assert ids(table, where="name indexquery 'upper'") == []
    assert ids(table, where="Name indexquery 'upper'") == [1]
    with pytest.raises(SchemaError, match="in case"):
        table.append(pa.table({"id": [2], "NAME": ["x"]}), merge_schema=True)


VALUES = {
    "text": (pa.string(), ["a/b", "a=b", "", None, "50%", "%2F", "ü 😀", "..", ".", "'", '"', "\n",
                           "__HIVE_DEFAULT_PARTITION__", "null", " a", "A", "a", "a\\b", "#?&"]),
    "int": (pa.int64(), [-(2**63), 2**63 - 1, 0, None]),
    "date": (pa.date32(), [datetime.date(2024, 2, 29), datetime.date(1, 1, 1), None]),
    "timestamp": (pa.timestamp("us", "UTC"),
        [datetime.datetime(2024, 1, 1, 0, 0, 0, 1, datetime.UTC),
         datetime.datetime(1969, 12, 31, 23, 59, 59, 999_999, datetime.UTC), None]),
    "local": (pa.timestamp("us"), [datetime.datetime(2024, 1, 1, 12, 30), None]),
    "bool": (pa.bool_(), [True, False, None]),
    "double": (pa.float64(), [0.1, 1e300, float("inf"), -1.5, None]),
    "decimal": (pa.decimal128(10, 2), [Decimal("1.10"), Decimal("-0.01"), None]),
}  # fmt: skip


@pytest.mark.parametrize("kind", VALUES)
def test_partition_values(kind, make):
    arrow, values = VALUES[kind]
    table = make(pa.schema([("id", pa.int64()), ("p", arrow)]), partition_by=["p"])
    data = pa.table({"id": list(range(len(values))), "p": pa.array(values, arrow)})
    written = table.append(data)
    assert written.files_added == len(values)
    assert shown(table.scan().sort_by("id")) == shown(data)
    for n, value in enumerate(values):
        if value is None:
            assert ids(table, where="p IS NULL") == [n]
            continue
        from indextables.predicate import Column, Compare

        where = str(Compare("=", Column(("p",)), value))
        assert ids(table, where=where) == [n], where
        assert table.count(where=where) == 1
        assert table.count(where=f"NOT ({where})") == len([v for v in values if v is not None]) - 1
    table.overwrite(data.slice(0, 2), partitions="dynamic")
    table.delete(where="p IS NULL")
    assert table.count() == len(values) - 1
    inside = {p.parent for p in folder(table).rglob("split-*.split")}
    assert all(p.is_relative_to(folder(table)) and p.name == "splits" for p in inside)


# --- configuration ---------------------------------------------------------------------------


def test_properties_configure_everybody(make):
    table = make(properties={f"{PREFIX}indexquery.maxLength": "20", "owner": "me"})
    assert table.snapshot().metadata.configuration["owner"] == "me"
    assert MAPPING_PROPERTY in table.snapshot().metadata.configuration
    with pytest.raises(QuerySyntaxError, match="20"):
        Table.open(table.uri).search("word " * 10)
    with pytest.raises(QuerySyntaxError, match="20"):
        Table.open(table.uri).scan(where=f"body indexquery '{'word ' * 10}'")
    more = Table.open(table.uri, config={f"{PREFIX}indexquery.maxLength": 100})
    assert more.search("word " * 10).num_rows == 0


def test_the_nearest_configuration_wins(make):
    size = f"{PREFIX}write.maxSplitSize"
    data = pa.table({"id": shuffled()})
    table = make(pa.schema([("id", pa.int64())]), properties={size: "10K"})
    assert Table.open(table.uri).append(data).files_added > 1, "the table's property"
    opened = Table.open(table.uri, config={size: "1G"})
    assert opened.append(data).files_added == 1, "the configuration it was opened with"
    assert opened.append(data, config={size: "10K"}).files_added > 1, "the one of the call"
    assert table.refresh().count() == 600_000


def test_a_large_batch_is_cut_into_splits(make):
    data = pa.table({"id": shuffled()})
    table = make(pa.schema([("id", pa.int64())]), config={f"{PREFIX}write.maxSplitSize": "10K"})
    written = table.append(data.to_batches()[0])
    assert written.files_added == table.snapshot().num_files > 2
    assert ids(table) == sorted(shuffled())


@pytest.mark.parametrize("most", [1, 2, 100])
def test_open_splits_are_bounded(most, make, monkeypatch):
    from indextables.jobs import write_splits

    table = make(partition_by=["day"], config={f"{PREFIX}write.maxOpenSplits": most})
    seen = []
    begin = write_splits.SplitSink._begin

    def counted(self, values):
        made = begin(self, values)
        seen.append(len(self._open) + 1)
        return made

    monkeypatch.setattr(write_splits.SplitSink, "_begin", counted)
    days = ["a", "b", "c", "a", "b", "c"]
    written = table.append([rows(n, day=day).to_batches()[0] for n, day in enumerate(days)])
    assert max(seen) == min(most, 3)
    assert written.files_added == 3, "rows of other partitions wait"
    assert ids(table) == [0, 1, 2, 3, 4, 5]


@pytest.mark.parametrize(
    ("partition_by", "heaps"), [([], [100]), (["day"], [50, 25, 15, 15])], ids=["one", "several"]
)
def test_open_splits_share_the_memory_of_one(partition_by, heaps, make, monkeypatch):
    from indextables.jobs import write_splits

    seen = []
    writer = write_splits.SplitWriter

    def noted(schema, mapping, config, **more):
        seen.append(config[WRITER_HEAP_SIZE])
        return writer(schema, mapping, config, **more)

    monkeypatch.setattr(write_splits, "SplitWriter", noted)
    table = make(partition_by=partition_by, config={f"{PREFIX}indexWriter.heapSize": 100_000_000})
    days = ["a", "b", "c", "d", "a"]
    table.append([rows(n, day=day).to_batches()[0] for n, day in enumerate(days)])
    assert seen == [heap * 1_000_000 for heap in heaps]
    seen.clear()
    table.append(rows(9, day="z"))
    assert seen == [heaps[0] * 1_000_000], "what a closed split had is free again"


@pytest.mark.parametrize("parallelism", [1, 3])
def test_read_parallelism(parallelism, make, monkeypatch):
    from indextables.plan.split_rows import SplitRows

    table = make(config={f"{PREFIX}read.parallelism": parallelism})
    for n in range(6):
        table.append(rows(n))
    threads, most, lock = set(), [], threading.Lock()
    matching = SplitRows.matching
    together = threading.Barrier(parallelism)

    def counted(self):
        together.wait(60)  # would break if fewer worked at once
        with lock:
            threads.add(threading.get_ident())
            most.append(len(threads))
        return matching(self)

    monkeypatch.setattr(SplitRows, "matching", counted)
    assert ids(table, where="id >= 0 AND body <> ''") == list(range(6))
    assert len(threads) <= parallelism


def test_limits_of_queries(make):
    options = {
        f"{PREFIX}indexquery.maxDepth": 3,
        f"{PREFIX}indexquery.maxExpansions": 5,
        f"{PREFIX}indexquery.maxLength": 50,
    }
    table = make(config=options)
    table.append(rows(*range(20)))
    with pytest.raises(QuerySyntaxError, match=r"deep|nested"):
        table.search("((((a))))")
    with pytest.raises(QuerySyntaxError, match=r"deep|nested"):
        table.scan(where="body indexquery '((((a))))'")
    with pytest.raises(QuerySyntaxError, match="50"):
        table.count(where=f"body indexquery '{'a' * 51}'")
    assert table.count(where="body indexquery '((a))'") == 0
    for ask in (table.scan, table.count, table.delete):
        with pytest.raises(TooManyExpansionsError, match="word"):
            ask(where="body indexquery 'word*'")
    with pytest.raises(TooManyExpansionsError):
        table.search("word*")
    assert Table.open(table.uri).count(where="body indexquery 'word*'") == 20


def test_statistics_are_kept_for_the_named_columns(make):
    schema = pa.schema([("a", pa.int64()), ("b", pa.int64()), ("c", pa.int64())])
    data = pa.table({"a": [1], "b": [2], "c": [3]}, schema)
    cases = {
        "all": ({}, {"a", "b", "c"}),
        "first": ({f"{PREFIX}dataSkippingNumIndexedCols": 1}, {"a"}),
        "named": ({f"{PREFIX}dataSkippingStatsColumns": "c"}, {"c"}),
    }
    for options, kept in cases.values():
        table = make(schema, config=options)
        table.append(data)
        minimum = dict(table.snapshot().files["minValues"][0].as_py())
        assert minimum.keys() == kept
        for name in schema.names:
            read = stages(table.explain(where=f"{name} > 5"))["read"]
            assert read == (0 if name in kept else 1)
            assert table.count(where=f"{name} > 5") == 0


@pytest.mark.parametrize("length", [None, 5])
def test_truncated_statistics_lose_no_row(length, make):
    texts = ["x" * 100, "x" * 40 + "y", "é" * 50, "\U0010ffff" * 40, "a", "x" * 5, ""]
    options = {} if length is None else {f"{PREFIX}stats.truncation.maxLength": length}
    table = make(config=options)
    for n, text in enumerate(texts):
        table.append(pa.table({"id": [n], "body": [text]}))
    longest = max(
        len(v) for m in table.snapshot().files["maxValues"].to_pylist() for k, v in m if k == "body"
    )
    assert longest <= (length or 32) + 1
    for n, text in enumerate(texts):
        for op in ("=", ">=", "<="):
            assert n in ids(table, where=f"body {op} '{text}'")
        assert n in ids(table, where=f"body LIKE '{text[:6]}%'")
        assert n not in ids(table, where=f"body > '{text}'") + ids(table, where=f"body < '{text}'")


# --- places ----------------------------------------------------------------------------------


@pytest.mark.parametrize("place", ["memory", "local", "s3"])
def test_a_table_is_anywhere(place, tmp_path, request, config):
    options = None
    uri = str(tmp_path / "table")
    if place == "memory":
        uri = f"memory://{tmp_path.name}"
    if place == "s3":
        server = request.getfixturevalue("s3")
        uri, options = f"{server.uri}/{tmp_path.name}/table", server.options
    table = Table.create(uri, SCHEMA, partition_by=["day"], config=config, storage_options=options)
    table.append(rows(1, 2))
    table.append(rows(3, day="a b/ü"))
    again = Table.open(uri, config=config, storage_options=options)
    assert ids(again) == [1, 2, 3]
    assert ids(again, where="body indexquery 'word3' OR id = 1") == [1, 3]
    assert again.search("all word3", limit=1)["id"].to_pylist() == [3]
    again.delete(where="id = 1")
    again.overwrite(rows(9), where="day = 'mon'")
    assert ids(table.refresh()) == [3, 9]
    assert again.restore(version=1) and ids(table.refresh()) == [1, 2]
    assert Table.exists(uri, storage_options=options)
    assert not Table.exists(uri + "-other", storage_options=options)
    assert repr(table) == f"Table({table.uri!r}, version={table.version})"


def test_no_secret_is_shown(s3, config, tmp_path, caplog):
    secret = s3.options["aws_secret_access_key"]
    uri = f"{s3.uri}/{tmp_path.name}"
    table = Table.create(uri, SCHEMA, config=config, storage_options=s3.options)
    table.append(rows(1))
    texts = [repr(table), str(table), table.uri, table.explain(where="id = 1")]
    texts += [str(table.history().to_pylist()), str(table.snapshot()), caplog.text]
    with pytest.raises(Exception) as caught:
        table.scan(where="nope = 1")
    texts.append(str(caught.value))
    wrong = s3.options | {"aws_endpoint": "http://127.0.0.1:9", "aws_max_retries": "0"}
    try:
        Table.open(uri, storage_options=wrong)
    except Exception as error:
        texts.append(str(error))
    for text in texts:
        assert secret not in text


def test_the_schema_may_be_sparks(make):
    from indextables.schema import to_json

    table = make(to_json(SCHEMA), name="docs", description="what it is")
    assert table.schema.equals(SCHEMA)
    metadata = table.snapshot().metadata
    assert (metadata.name, metadata.description) == ("docs", "what it is")


def test_written_and_snapshots_travel_between_processes(make):
    table = make()
    written = table.append(rows(1))
    assert pickle.loads(pickle.dumps(written)) == written


def test_a_progress_bar_needs_a_terminal(make, monkeypatch):
    class Terminal(io.StringIO):
        def isatty(self):
            return True

    terminal = Terminal()
    monkeypatch.setattr("sys.stderr", terminal)
    table = make()
    table.append(rows(1))
    assert "Writing" in terminal.getvalue()
    quiet = io.StringIO()
    monkeypatch.setattr("sys.stderr", quiet)
    table.append(rows(2))
    assert quiet.getvalue() == ""


def test_fast_decimals_are_found_after_their_scale_grew(tmp_path):
    narrow, wide = pa.decimal128(10, 2), pa.decimal128(12, 4)
    config = {f"{PREFIX}indexing.fastfields": "d"}
    table = Table.create(tmp_path / "t", pa.schema({"d": narrow}), config=config)
    table.append(pa.table({"d": pa.array([Decimal("1.50")], narrow)}))
    table.append(pa.table({"d": pa.array([Decimal("2.0001")], wide)}), merge_schema=True)
    where = "d indexquery '[1.5 TO 2.0001]'"
    assert table.count(where=where) == table.scan(where=where).num_rows == 2
    assert table.search("d:1.5")["d"].to_pylist() == [Decimal("1.5000")]
    with pytest.raises(SchemaError, match="'d' has more than 18 digits"):
        table.append(pa.table({"d": pa.array([1], pa.decimal128(20, 0))}), merge_schema=True)


def test_rows_have_names_in_a_version(make):
    """`_split` and `_row` name every row once, whatever way the rows are found."""
    table = make(partition_by=["day"])
    table.append(rows(1, 2, 3))
    table.append(rows(*range(4, 9), day="tue"))
    named = table.scan(columns=["_row", "id", "_split"])
    assert named.schema.types == [pa.int64(), pa.int64(), pa.string()]
    assert len({(row["_split"], row["_row"]) for row in named.to_pylist()}) == 8
    by_id = {row["id"]: row for row in named.to_pylist()}
    for where in ("id > 3", "body indexquery 'word5'", "day = 'tue' AND body = 'word6 all'"):
        found = table.scan(columns=["_row", "id", "_split"], where=where).to_pylist()
        assert found == [by_id[row["id"]] for row in found]
    assert table.scan(columns=["_row"], limit=2)["_row"].to_pylist() == [0, 1]
    (hit,) = table.search("word7", columns=["id", "_split", "_row"]).to_pylist()
    assert {name: hit[name] for name in by_id[7]} == by_id[7]
    assert "_row" not in table.scan().column_names
