"""An index table that is a Delta table as well: other readers see its rows after every change."""

from __future__ import annotations

import contextlib
import datetime
import json
import os
import shutil
import subprocess
import sys
import textwrap
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from decimal import Decimal
from pathlib import Path

import duckdb
import polars as pl
import pyarrow as pa
import pytest
from deltalake import DeltaTable, QueryBuilder, write_deltalake
from deltalake.exceptions import DeltaError
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from indextables import SearchIndex, Table
from indextables.config import Config
from indextables.errors import DeltaMirrorError, ForeignDeltaCommitError
from indextables.jobs.alter_columns import set_properties
from indextables.jobs.write_job import plan_write
from indextables.log.actions import Txn
from indextables.log.delta_mirror import list_delta, read_state
from indextables.log.transaction_log import TransactionLog
from indextables.statements.execute import Session, execute
from indextables.statements.statements import parse
from indextables.storage import open_store

MIRROR = "spark.indextables.delta.mirror"
ON = {MIRROR: "true"}
FEW_VERSIONS = {**ON, "spark.indextables.checkpoint.interval": "3"}
UTC = datetime.UTC


def by_delta(uri, version=None, **options) -> list[str]:
    """The rows that delta-rs reads."""
    table = DeltaTable(str(uri), version=version, storage_options=options or None)
    found = QueryBuilder().register("t", table).execute("SELECT * FROM t")
    return listed(pa.table(found))


def listed(rows: pa.Table) -> list[str]:
    return sorted(map(repr, rows.to_pylist()))


def check(table: Table, **options) -> None:
    assert by_delta(table.uri, **options) == listed(table.refresh().to_arrow())
    delta = DeltaTable(table.uri, storage_options=options or None)
    assert delta.version() == table.version
    failed = [c.message for c in table.verify() if not c.passed]
    assert not failed


# --- random histories ----------------------------------------------------------------------------

ROWS = st.lists(
    st.tuples(
        st.one_of(st.none(), st.integers(-9, 9)),
        st.sampled_from(["red fox", "lazy dog", "é", None]),
        st.sampled_from(["a", "b c", "50%/x", None]),
        st.sampled_from([0.0, -0.0, 1.5, float("nan"), float("inf"), None]),
    ),
    min_size=1,
    max_size=5,
)
CHANGE = st.one_of(
    st.tuples(
        st.sampled_from(["append", "stream", "upsert", "overwrite", "partitions", "evolve"]), ROWS
    ),
    st.tuples(st.sampled_from(["delete", "mark", "mark", "update", "restore"]), st.integers(-9, 9)),
    st.tuples(
        st.sampled_from(["merge", "rename", "drop", "add", "truncate", "purge", "checkpoint"]),
        st.none(),
    ),
)


def rows_of(rows, table: Table) -> pa.Table:
    every = pa.table(
        {
            "n": pa.array([r[0] for r in rows], pa.int32()),
            "body": [r[1] for r in rows],
            "p": [r[2] for r in rows],
            "x": pa.array([r[3] for r in rows], pa.float64()),
        },
        schema=pa.schema(
            [("n", pa.int32()), ("body", pa.string()), ("p", pa.string()), ("x", pa.float64())]
        ),
    )
    return every.select([name for name in every.column_names if name in table.schema.names])


def change(table: Table, what: str, value, number: int) -> None:
    names = table.schema.names
    match what:
        case "append":
            table.append(rows_of(value, table))
        case "stream":
            rows = rows_of(value, table)
            batch = Txn(app_id="stream", version=number, last_updated=1)
            if not any(txn.app_id == "stream" for txn in table.snapshot().txns.values()):
                batch = replace(batch, version=0)  # a checkpoint of its own begins at 0
            for _ in range(2):  # the second one is noticed
                job = plan_write(table.log, rows.schema, settings=Config(), kind="append")
                job.commit(table.log, [job.store(rows.to_batches())], batch=batch)
        case "upsert" if "n" in names:
            by_key = {row[0]: row for row in value if row[0] is not None}
            if by_key:
                table.merge(rows_of(list(by_key.values()), table), on=["n"])
        case "evolve":
            rows = rows_of(value, table).append_column("n2", pa.array([1] * len(value), pa.int64()))
            table.append(rows, merge_schema=True)
        case "overwrite":
            table.overwrite(rows_of(value, table))
        case "partitions" if "p" in names:
            table.overwrite(rows_of(value, table), partitions="dynamic")
        case "delete" | "mark" if "n" in names:
            mode = "vector" if what == "mark" else "rewrite"
            table.set_properties({"spark.indextables.deletionVectors.mode": mode})
            table.delete(where=f"n >= {value}")
        case "update" if "n" in names:
            table.update({"n": "n + 1"}, where=f"n < {value}")
        case "restore":
            with contextlib.suppress(LookupError):  # truncated, or purged
                table.restore(version=max(0, table.version - abs(value) % 4))
        case "merge":
            table.merge_splits()
        case "rename":
            column = next((c for c in names if c not in ("p", "n")), None)
            if column:
                table.rename_column(column, f"c{number}")
        case "drop":
            gone = [c for c in names if c not in ("p", "n")]
            if len(gone) > 1:
                table.drop_columns(gone[0])
        case "add":
            table.add_columns(pa.schema([(f"a{number}", pa.timestamp("us"))]))
        case "truncate":
            table.truncate_time_travel()
        case "checkpoint":
            table.checkpoint()
        case "purge":
            table.purge(older_than_hours=0)


@settings(
    max_examples=12, deadline=None, database=None, derandomize=True,
    phases=[Phase.generate, Phase.shrink],
)  # fmt: skip
@given(st.lists(CHANGE, min_size=3, max_size=7), st.booleans())
def test_random_histories(tmp_path_factory, changes, partitioned):
    _run(tmp_path_factory.mktemp("mirror"), changes, partitioned)


@pytest.mark.long
@settings(max_examples=400, deadline=None, database=None, phases=[Phase.generate, Phase.shrink])
@given(st.lists(CHANGE, min_size=3, max_size=20), st.booleans())
def test_more_random_histories(tmp_path_factory, changes, partitioned):
    _run(tmp_path_factory.mktemp("mirror"), changes, partitioned)


def _run(folder: Path, changes, partitioned: bool) -> None:
    schema = pa.schema(
        [("n", pa.int32()), ("body", pa.string()), ("p", pa.string()), ("x", pa.float64())]
    )
    table = Table.create(
        folder / "t", schema, partition_by=["p"] if partitioned else [], properties=FEW_VERSIONS,
        config={"spark.indextables.purge.retentionCheckEnabled": "false"},
    )  # fmt: skip
    table.append(rows_of([(n, "red fox", "ab"[n % 2], float(n)) for n in range(-9, 10)], table))
    check(table)
    for number, (what, value) in enumerate(changes):
        change(table.refresh(), what, value, number)
        check(table)


# --- readers -------------------------------------------------------------------------------------


def wide(path: Path, properties=ON, **given) -> Table:
    schema = pa.schema(
        [
            pa.field("id", pa.int64(), nullable=False), ("body", pa.string()), ("day", pa.date32()),
            ("at", pa.timestamp("us", tz="UTC")), ("d", pa.decimal128(30, 5)), ("x", pa.float32()),
            ("ok", pa.bool_()), ("raw", pa.binary()), ("tags", pa.list_(pa.string())),
            ("s", pa.struct([("a", pa.int8()), ("b", pa.string())])),
        ]
    )  # fmt: skip
    rows = [
        {
            "id": n, "body": None if n % 5 == 0 else f"fox {n}", "x": n / 2, "ok": n % 2 == 0,
            "day": datetime.date(2024, 1, 1 + n % 3) if n % 4 else None,
            "at": datetime.datetime(2024, 1, 1, 0, n, 1, 7, tzinfo=UTC), "d": Decimal(n) / 8,
            "raw": b"%d" % n, "tags": [str(n)], "s": {"a": n, "b": None},
        }
        for n in range(40)
    ]  # fmt: skip
    return Table.create(
        path, data=pa.Table.from_pylist(rows, schema), partition_by=["day"],
        properties=properties, **given,
    )  # fmt: skip


def test_readers_of_delta_and_of_parquet(tmp_path):
    table = wide(tmp_path / "t", {**ON, "spark.indextables.deletionVectors.mode": "vector"})
    check(table)
    ours = listed(table.to_arrow())
    assert listed(pl.read_delta(table.uri).to_arrow().cast(table.schema)) == ours
    files = [str(tmp_path / "t" / f) for f in DeltaTable(table.uri).file_uris()]
    found = duckdb.sql(f"SELECT count(*), max(id) FROM read_parquet({files})").fetchall()
    assert found == [(40, 39)]
    table.delete(where="id < 7")
    check(table)
    assert DeltaTable(table.uri).protocol().reader_features == ["deletionVectors"]
    adds = read_state(table.log.store).adds.to_pylist()
    stats = {json.loads(add["stats"])["tightBounds"]: add["deletionVector"] for add in adds}
    assert set(stats) == {False} and all(stats.values()), "every split has deleted rows"
    # Delta counts all rows of a file, and takes the deleted ones off itself.
    assert sum(json.loads(add["stats"])["numRecords"] for add in adds) == 40
    found = pl.scan_delta(table.uri).filter(pl.col("id") < 9).select("id").collect()
    assert sorted(found["id"]) == [7, 8]


def test_statistics_prune_and_are_true(tmp_path):
    table = wide(tmp_path / "t")
    delta = DeltaTable(table.uri)
    for where in (
        "id = 12", "x > 18", "d < 1", "at >= '2024-01-01T00:30:00Z'", "body = 'fox 7'",
        "ok", "body IS NULL", "day = '2024-01-02'", "day IS NULL AND id > 20",
    ):  # fmt: skip
        found = QueryBuilder().register("t", delta).execute(f"SELECT id FROM t WHERE {where}")
        expected = table.scan(columns=["id"], where=where.replace("T00", " 00"))
        assert sorted(pa.table(found)["id"].to_pylist()) == sorted(expected["id"].to_pylist()), (
            where
        )
    stats = json.loads(read_state(table.log.store).adds[0].as_py()["stats"])
    assert stats["numRecords"] == 10 and stats["tightBounds"]
    assert set(stats["minValues"]) == {"id", "body", "at", "d", "x"}
    assert stats["nullCount"]["body"] == 2


def test_nan_and_zero_have_no_bound_that_hides_them(tmp_path):
    rows = pa.table({"n": [1, 2, 3], "x": [float("nan"), 1.0, 2.0], "z": [0.0, -0.0, 0.0]})
    table = Table.create(tmp_path / "t", data=rows, properties=ON)
    stats = json.loads(read_state(table.log.store).adds[0].as_py()["stats"])
    assert "x" not in stats["minValues"] and "x" not in stats["maxValues"]
    assert str(stats["minValues"]["z"]) == "-0.0" and str(stats["maxValues"]["z"]) == "0.0"


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        (pa.string(), ["a b", "50%", "é/ü", "a#b?c", "x:y=z", "'q\"", "%2F", "a+b", "日本", None]),
        (pa.timestamp("us", tz="UTC"), [datetime.datetime(2024, 1, 1, 1, 2, 3, 4, UTC), None]),
        (pa.timestamp("us"), [datetime.datetime(1960, 1, 1, 1, 2, 3, 45), None]),
        (pa.float64(), [1.5, float("nan"), float("inf"), float("-inf"), None]),
        (pa.decimal128(38, 20), [Decimal(0), Decimal("1E-20"), Decimal("-1.5"), None]),
        (pa.bool_(), [True, False, None]),
        (pa.date32(), [datetime.date(1, 1, 1), datetime.date(9999, 12, 31), None]),
    ],
    ids=str,
)  # fmt: skip
def test_partition_values(tmp_path, kind, values):
    rows = pa.table({"n": list(range(len(values))), "p": pa.array(values, kind)})
    table = Table.create(tmp_path / "t", data=rows, partition_by=["p"], properties=ON)
    check(table)
    table.rename_column("p", "q")
    table.append(rows.rename_columns(["n", "q"]))
    check(table)


def test_an_empty_text_is_no_partition_of_delta(tmp_path):
    rows = pa.table({"n": [1], "p": [""]})
    table = Table.create(tmp_path / "t", rows.schema, partition_by=["p"], properties=ON)
    with pytest.raises(DeltaMirrorError, match="empty text"):
        table.append(rows)
    assert table.refresh().version == 0 and not list((tmp_path / "t").rglob("*.split"))
    table.set_properties({MIRROR: "false"})
    table.append(rows)
    with pytest.raises(DeltaMirrorError, match="empty text"):
        table.set_properties(ON)
    table.delete(where="p = ''")
    table.set_properties(ON)
    check(table)


def test_a_search_index_has_no_rows_to_mirror(tmp_path):
    write_deltalake(str(tmp_path / "d"), pa.table({"n": [1], "body": ["red fox"]}))
    index = tmp_path / "i"
    SearchIndex.create(index, source=tmp_path / "d", format="delta", columns=["body"], config=ON)
    with pytest.raises(DeltaMirrorError, match="holds no rows"):
        set_properties(TransactionLog(open_store(index)), ON)
    assert not (index / "_delta_log").exists()


def test_names_that_delta_has_no_column_for_without_a_mapping(tmp_path):
    table = Table.create(tmp_path / "t", data=pa.table({"a b": [1], "c": ["x"]}), properties=ON)
    check(table)
    assert DeltaTable(table.uri).protocol().reader_features == ["columnMapping"]


def test_types_that_widen(tmp_path):
    old = pa.table({"i": pa.array([1], pa.int8()), "f": pa.array([1.5], pa.float32())})
    new = pa.table({"i": pa.array([2**40], pa.int64()), "f": pa.array([0.1], pa.float64())})
    table = Table.create(tmp_path / "t", data=old, properties=ON)
    table.append(new, merge_schema=True)
    check(table)
    # Digits of an older file could be misread: only readers that say they can may read these.
    first = pa.table({"d": pa.array([Decimal("1.5")], pa.decimal128(5, 1))})
    table = Table.create(tmp_path / "d", data=first, properties=ON)
    wider = pa.table({"d": pa.array([Decimal("1.2345")], pa.decimal128(20, 4))})
    table.append(wider, merge_schema=True)
    table.rename_column("d", "e")
    state = read_state(table.log.store)
    assert state.protocol["readerFeatures"] == ["columnMapping", "typeWidening"]
    changed = json.loads(state.metadata["schemaString"])["fields"][0]["metadata"]
    assert changed["delta.typeChanges"] == [{"fromType": "decimal(5,1)", "toType": "decimal(20,4)"}]


# --- on, off, and behind -------------------------------------------------------------------------


def test_turned_on_for_a_table_with_a_history(tmp_path):
    table = wide(tmp_path / "t", {})
    table.delete(where="id < 3")
    table.rename_column("body", "text")
    assert not (tmp_path / "t" / "_delta_log").exists()
    table.set_properties(ON)
    check(table)
    table.append(table.to_arrow().slice(0, 3))
    check(table)
    # Off for some versions, and on again.
    table.set_properties({MIRROR: None})
    table.delete(where="id > 30")
    assert DeltaTable(table.uri).version() == 4
    table.set_properties(ON)
    check(table)
    assert by_delta(table.uri, version=6) == by_delta(table.uri)
    # Too far behind for our own log, which has forgotten the versions between.
    table.set_properties({MIRROR: None})
    for n in range(3):
        table.delete(where=f"id = {20 + n}")
    table.truncate_time_travel()
    table.set_properties(ON)
    check(table)
    for n in range(12):
        table.delete(where=f"id = {10 + n}")
    check(table)


def test_an_option_or_a_property_of_a_new_table(tmp_path):
    table = wide(tmp_path / "t", {}, config=ON)
    assert table.properties[MIRROR] == "true"
    Table.open(table.uri).delete(where="id = 1")
    check(Table.open(table.uri))
    other = wide(tmp_path / "o", {})
    Table.open(other.uri, config=ON).delete(where="id = 1")
    assert not (tmp_path / "o" / "_delta_log").exists(), "only the table's own property counts"


def test_checkpoints_bound_the_log(tmp_path):
    table = wide(tmp_path / "t", FEW_VERSIONS)
    for n in range(10):
        table.delete(where=f"id = {n}")
    listing = list_delta(table.log.store)
    assert sorted(listing.checkpoints) == [3, 6, 9] and sorted(listing.versions) == list(range(11))
    for path in (tmp_path / "t" / "_delta_log").iterdir():
        os.utime(path, (1, 1))
    table.append(table.to_arrow())
    table.delete(where="id = 39")
    listing = list_delta(table.log.store)
    assert sorted(listing.checkpoints) == [9, 12] and min(listing.versions) == 9
    check(table)
    hint = json.loads((tmp_path / "t" / "_delta_log" / "_last_checkpoint").read_bytes())
    assert hint["version"] == 12 and hint["numOfAddFiles"] == table.snapshot().num_files


KILLED = """
    import os, sys
    import pyarrow as pa
    from indextables import Table
    from indextables.log.transaction_log import TransactionLog
    from indextables.storage import open_store

    def die(phase):
        if phase == "before_mirror":
            os._exit(9)

    log = TransactionLog(open_store(sys.argv[1]), observer=die)
    Table.of_log(log).append(pa.table({"n": [2]}))
"""


def test_killed_between_commit_and_mirror(tmp_path):
    table = Table.create(tmp_path / "t", data=pa.table({"n": [1]}), properties=ON)
    for version in (1, 2):
        script = [sys.executable, "-c", textwrap.dedent(KILLED), table.uri]
        assert subprocess.run(script, check=False).returncode == 9
        assert table.refresh().version == version
        # The one that was killed caught up with the one before it, when it opened the table.
        assert DeltaTable(table.uri).version() == version - 1
        assert "ends at version" in next(c for c in table.verify() if c.name == "mirror").message
    check(Table.open(table.uri))
    # A writer that does not open it anew catches up when it commits.
    assert subprocess.run(script, check=False).returncode == 9
    table.append(pa.table({"n": [3]}))
    assert table.version == 4
    check(table)


def test_a_deleted_mirror_is_written_anew(tmp_path):
    table = wide(tmp_path / "t", FEW_VERSIONS)
    for path in (tmp_path / "t" / "_delta_log").iterdir():
        path.unlink()
    table.delete(where="id = 1")
    assert not next(c for c in table.verify() if c.name == "mirror").passed
    check(Table.open(table.uri))


# --- other writers -------------------------------------------------------------------------------


def test_delta_writers_refuse_the_table(tmp_path):
    table = Table.create(tmp_path / "t", data=pa.table({"n": [1, 2]}), properties=ON)
    table.overwrite(pa.table({"n": [1, 2]}))
    for work in (
        lambda: write_deltalake(table.uri, pa.table({"n": [3]}), mode="append"),
        lambda: DeltaTable(table.uri).delete("n = 1"),
        DeltaTable(table.uri).optimize.compact,
        lambda: DeltaTable(table.uri).vacuum(0, False, enforce_retention_duration=False),
    ):
        with pytest.raises((DeltaError, OSError)):
            work()
    check(table)


def test_a_foreign_commit_is_refused_and_not_lost(tmp_path):
    table = Table.create(tmp_path / "t", data=pa.table({"n": [1, 2]}), properties=ON)
    foreign = tmp_path / "t" / "_delta_log" / f"{1:020}.json"
    foreign.write_text(json.dumps({"commitInfo": {"engineInfo": "other 1.0"}}) + "\n")
    kept = foreign.read_bytes()
    for writer in (table, Table.open(table.uri)):
        with pytest.raises(
            ForeignDeltaCommitError, match=r"version 1 of its _delta_log .*other 1\.0"
        ):
            writer.append(pa.table({"n": [3]}))
    assert table.refresh().version == 0 and foreign.read_bytes() == kept
    assert "other 1.0" in next(c for c in table.verify() if c.name == "mirror").message
    with pytest.raises(ForeignDeltaCommitError):
        table.merge_splits() if table.snapshot().num_files > 1 else table.delete(where="n = 1")
    foreign.unlink()
    table.append(pa.table({"n": [3]}))
    check(table)
    # One that came between our commit and its mirror: the commit is there, the next is refused.
    late = tmp_path / "t" / "_delta_log" / f"{2:020}.json"
    table.log._observer = lambda phase: late.write_bytes(kept) if phase == "before_mirror" else None
    table.append(pa.table({"n": [4]}))
    table.log._observer = lambda phase: None
    assert table.count() == 4
    with pytest.raises(ForeignDeltaCommitError):
        table.append(pa.table({"n": [5]}))
    for path in (tmp_path / "t" / "_delta_log").iterdir():
        path.unlink()
    table.append(pa.table({"n": [5]}))
    check(table)


def test_the_mirror_of_another_log_is_refused(tmp_path):
    """A log that was repaired counts from 0 again; its mirror would be a mixture of both."""
    table = wide(tmp_path / "t", FEW_VERSIONS)
    for n in range(5):
        table.delete(where=f"id = {n}")
    log, new = (tmp_path / name / "_transaction_log" for name in ("t", "r"))
    execute(
        parse(f"REPAIR INDEXFILES TRANSACTION LOG '{log}' AT LOCATION '{new}'"),
        Session(resolve=lambda target: Table.open(str(target))),
    )  # fmt: skip
    shutil.rmtree(log)
    shutil.copytree(new, log)
    repaired = Table.open(table.uri)
    for _ in range(2):
        with pytest.raises(DeltaMirrorError, match="_delta_log"):
            repaired.delete(where="id = 30")
    shutil.rmtree(tmp_path / "t" / "_delta_log")
    repaired.delete(where="id = 30")
    check(repaired)


def test_writers_that_race(tmp_path):
    table = Table.create(tmp_path / "t", pa.schema([("n", pa.int64())]), properties=FEW_VERSIONS)
    handles = [Table.open(table.uri) for _ in range(4)]
    with ThreadPoolExecutor(4) as pool:
        for done in [
            pool.submit(handle.append, pa.table({"n": [10 * number + turn]}))
            for turn in range(3)
            for number, handle in enumerate(handles)
        ]:
            done.result()
    check(Table.open(table.uri))
    assert table.refresh().version == 12


def test_a_delta_table_is_no_place_for_a_new_one(tmp_path):
    write_deltalake(str(tmp_path / "t"), pa.table({"n": [1]}))
    with pytest.raises(DeltaMirrorError, match="CONVERT TO INDEXTABLES"):
        Table.create(tmp_path / "t", data=pa.table({"n": [1]}), properties=ON)
    assert DeltaTable(str(tmp_path / "t")).version() == 0


# --- upkeep --------------------------------------------------------------------------------------


def test_purge_keeps_what_readers_of_older_versions_read(tmp_path):
    retention = "spark.indextables.delta.mirror.deletedFileRetention"
    table = wide(
        tmp_path / "t", FEW_VERSIONS,
        config={"spark.indextables.purge.retentionCheckEnabled": "false"},
    )  # fmt: skip
    before = by_delta(table.uri, version=0)
    table.overwrite(table.to_arrow().slice(0, 5))
    table.truncate_time_travel()
    assert table.purge(older_than_hours=0).files_deleted == 0
    assert by_delta(table.uri, version=0) == before
    table.set_properties({retention: "0"})
    assert table.purge(older_than_hours=0, dry_run=True).orphans
    assert table.purge(older_than_hours=0).files_deleted == 4
    check(table)
    assert list_delta(table.log.store).versions


def test_verify_names_what_differs(tmp_path):
    table = wide(tmp_path / "t")
    path = tmp_path / "t" / "_delta_log" / f"{0:020}.json"
    lines = path.read_text().splitlines()
    path.write_text("\n".join(lines[:-1]))
    (found,) = [c for c in table.verify() if c.name == "mirror"]
    assert not found.passed and "is only in the log" in found.message


def test_on_s3(s3, tmp_path):
    options = dict(s3.options)
    uri = f"{s3.uri}/{tmp_path.name}-mirror"
    table = Table.create(
        uri, pa.schema([("n", pa.int64()), ("p", pa.string())]), partition_by=["p"],
        storage_options=options,
        properties={**FEW_VERSIONS, "spark.indextables.deletionVectors.mode": "vector"},
    )  # fmt: skip
    for n in range(4):
        table.append(pa.table({"n": list(range(n * 10, n * 10 + 10)), "p": ["a b", "c%"] * 5}))
        check(table, **options)
    table.delete(where="n < 5")
    table.rename_column("n", "m")
    check(table, **options)
    table.merge_splits()
    table.purge()
    check(table, **options)
