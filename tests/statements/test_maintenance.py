"""The maintenance statements without Spark: their columns, what they do, what they refuse."""

from __future__ import annotations

import os
import uuid
from pathlib import Path

import pyarrow as pa
import pytest

from indextables import Table
from indextables.config import Config
from indextables.errors import (
    ConfigError,
    ExpressionError,
    LogError,
    NotAPartitionError,
    NotATableError,
    StatementError,
    UnknownColumnError,
    UnsupportedPredicateError,
)
from indextables.statements.execute import Session, execute
from indextables.statements.session import Answer, answer
from indextables.statements.statements import Target, parse

SCHEMA = pa.schema({"id": pa.int64(), "month": pa.int32(), "body": pa.string()})
MONTHS = [1, 2, 9, 10, 11, 12]
ROWS = pa.table(
    {"id": range(6), "month": MONTHS, "body": [f"word{n} common" for n in range(6)]},
    schema=SCHEMA,
)
DAY = 86_400


@pytest.fixture
def settings(tmp_path):
    return {"spark.indextables.cache.disk.path": str(tmp_path / "cache")}


@pytest.fixture
def table(uri, settings):
    table = Table.create(uri, SCHEMA, partition_by=["month"], config=settings)
    table.append(ROWS)
    return table


@pytest.fixture
def session(settings):
    def resolve(target: Target) -> Table:
        assert target.path is not None
        return Table.open(target.path, config=settings)

    return Session(resolve, Config(settings))


def run(sql, session):
    statement = parse(sql)
    assert statement is not None
    return execute(statement, session)


def one(sql, session):
    found = run(sql, session)
    assert found.num_rows == 1
    return found.to_pylist()[0]


def age(folder, days):
    """Let all files be so much older than they are."""
    for file in Path(folder).rglob("*"):
        if file.is_file():
            then = file.stat().st_mtime - days * DAY
            os.utime(file, (then, then))


def rows_of(uri):
    return sorted(Table.open(uri).scan()["id"].to_pylist())


COLUMNS = {
    "PURGE INDEXTABLE '{uri}'": (
        "table_path,metrics{status,orphaned_files_found,orphaned_files_deleted,size_mb_deleted,"
        "retention_hours,tx_log_files_deleted,expired_states_found,expired_states_deleted,dry_run,"
        "duration_ms,message}"
    ),
    "DROP INDEXTABLES PARTITIONS FROM '{uri}' WHERE month = 1": (
        "table_path,status,partitions_dropped,splits_removed,total_size_bytes,message"
    ),
    "TRUNCATE INDEXTABLES TIME TRAVEL '{uri}'": (
        "table_path,status,checkpoint_version,versions_deleted,checkpoints_deleted,"
        "files_preserved,message"
    ),
    "REPAIR INDEXFILES TRANSACTION LOG '{uri}/_transaction_log' "
    "AT LOCATION '{uri}-new/_transaction_log'": (
        "source_path,target_path,source_version,total_splits,valid_splits,missing_splits,status"
    ),
    "VERIFY INDEXTABLES '{uri}'": "table_path,check,status,checked,failed,message",
    "DESCRIBE INDEXTABLES COMPONENT SIZES '{uri}'": (
        "split_path,partition_values,component_key,size_bytes,component_type,field_name"
    ),
    "PREWARM INDEXTABLES CACHE '{uri}'": (
        "host,assigned_host,locality_hits,locality_misses,splits_prewarmed,segments,fields,"
        "duration_ms,status,skipped_fields,retries,failed_splits_by_host,job_id,async_mode"
    ),
    "DELETE FROM '{uri}' WHERE id = 1": (
        "table_path,status,num_affected_rows,splits_removed,splits_added,version,message"
    ),
    "UPDATE '{uri}' SET id = 7 WHERE id = 1": (
        "table_path,status,num_affected_rows,splits_removed,splits_added,version,message"
    ),
}


def spelled(schema):
    return ",".join(
        f"{f.name}{{{spelled(f.type)}}}" if pa.types.is_struct(f.type) else f.name for f in schema
    )


@pytest.mark.parametrize("sql", COLUMNS)
def test_output_columns(sql, table, uri, session):
    found = run(sql.format(uri=uri), session)
    assert spelled(found.schema) == COLUMNS[sql]
    assert found.num_rows


@pytest.mark.parametrize("sql", COLUMNS)
def test_a_path_that_is_no_table(sql, uri, session):
    text = sql.format(uri=uri)
    with pytest.raises(NotATableError, match="not an index table"):
        run(text, session)
    assert not Path(uri).exists()
    assert not Path(f"{uri}-new").exists()


EMPTY = {
    "PURGE INDEXTABLE '{uri}'": ("metrics", {"status": "SUCCESS", "orphaned_files_found": 0}),
    "DROP INDEXTABLES PARTITIONS FROM '{uri}' WHERE month = 1": ("status", "no_action"),
    "TRUNCATE INDEXTABLES TIME TRAVEL '{uri}'": (
        "message", "The table is already at minimal state",
    ),
    "REPAIR INDEXFILES TRANSACTION LOG '{uri}/_transaction_log' "
    "AT LOCATION '{uri}-new/_transaction_log'": ("valid_splits", 0),
    "PREWARM INDEXTABLES CACHE '{uri}'": ("status", "no_splits"),
    "DELETE FROM '{uri}' WHERE id = 1": ("status", "no_action"),
    "UPDATE '{uri}' SET id = 7 WHERE id = 1": ("status", "no_action"),
}  # fmt: skip


@pytest.mark.parametrize("sql", EMPTY)
def test_an_empty_table(sql, uri, session):
    Table.create(uri, SCHEMA, partition_by=["month"])
    row = one(sql.format(uri=uri), session)
    name, expected = EMPTY[sql]
    assert expected.items() <= row[name].items() if name == "metrics" else row[name] == expected
    assert Table.open(uri).version == 0


def test_an_empty_table_has_no_components_and_passes(uri, session):
    Table.create(uri, SCHEMA)
    assert run(f"DESCRIBE INDEXTABLES COMPONENT SIZES '{uri}'", session).num_rows == 0
    assert set(run(f"VERIFY INDEXTABLES '{uri}'", session)["status"].to_pylist()) == {"OK"}


# --- PURGE -----------------------------------------------------------------------------------


def test_purge_and_dry_run_count_the_same(table, uri, session):
    table.overwrite(ROWS.slice(0, 1))
    orphan = f"{uri}/month=1/splits/split-orphan.split"
    Path(orphan).write_bytes(b"x" * 1024)
    age(uri, 8)
    dry = one(f"PURGE INDEXTABLE '{uri}' DRY RUN", session)["metrics"]
    assert (dry["status"], dry["dry_run"]) == ("DRY_RUN", True)
    assert (dry["orphaned_files_found"], dry["orphaned_files_deleted"]) == (1, 0)
    assert Path(orphan).exists()
    done = one(f"PURGE INDEXTABLE '{uri}' OLDER THAN 7 DAYS", session)["metrics"]
    assert (done["status"], done["dry_run"]) == ("SUCCESS", False)
    assert (done["orphaned_files_found"], done["orphaned_files_deleted"]) == (1, 1)
    assert done["size_mb_deleted"] == pytest.approx(1 / 1024)
    assert done["retention_hours"] == 168
    assert "Deleted 1 orphaned files" in done["message"]
    assert not Path(orphan).exists()
    assert Table.open(uri, version=1).count() == 6


def test_purge_with_a_log_retention_frees_old_versions(table, uri, session):
    table.overwrite(ROWS.slice(0, 1))
    table.checkpoint()
    age(uri, 3)
    kept = one(f"PURGE INDEXTABLE '{uri}' OLDER THAN 2 DAYS", session)["metrics"]
    assert (kept["orphaned_files_found"], kept["tx_log_files_deleted"]) == (0, 0)
    dry = one(
        f"PURGE INDEXTABLE '{uri}' OLDER THAN 2 DAYS TRANSACTION LOG RETENTION 1 DAY DRY RUN",
        session,
    )["metrics"]
    assert (dry["orphaned_files_found"], dry["tx_log_files_deleted"]) == (6, 0)
    done = one(
        f"PURGE INDEXTABLE '{uri}' OLDER THAN 2 DAYS TRANSACTION LOG RETENTION 1 DAY", session
    )["metrics"]
    assert (done["orphaned_files_deleted"], done["tx_log_files_deleted"]) == (6, 2)
    assert rows_of(uri) == [0]


@pytest.mark.parametrize(
    "clause", ["OLDER THAN 23 HOURS", "TRANSACTION LOG RETENTION 1 HOUR", "OLDER THAN 0 DAYS"]
)
def test_a_retention_that_is_too_short(clause, table, uri, session):
    age(uri, 8)
    with pytest.raises(ConfigError, match="Use at least 24 hours"):
        run(f"PURGE INDEXTABLE '{uri}' {clause}", session)
    assert rows_of(uri) == list(range(6))


# --- DROP PARTITIONS -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("where", "left"),
    [
        ("month > 9", [0, 1, 2]),
        ("month < 10", [3, 4, 5]),
        ("month BETWEEN 2 AND 11", [0, 5]),
        ("month = 1 OR month = 12", [1, 2, 3, 4]),
        ("month IN (1, 2)", [2, 3, 4, 5]),
        ("NOT (month = 1) AND month <= 10", [0, 4, 5]),
        ("month = '9'", [0, 1, 3, 4, 5]),
    ],
)
def test_drop_partitions(where, left, table, uri, session):
    row = one(f"DROP INDEXTABLES PARTITIONS FROM '{uri}' WHERE {where}", session)
    assert (row["status"], row["partitions_dropped"]) == ("success", 6 - len(left))
    assert row["splits_removed"] == 6 - len(left)
    assert row["total_size_bytes"] > 0
    assert "PURGE" in row["message"]
    assert rows_of(uri) == left
    assert Table.open(uri, version=1).count() == 6


def test_drop_partitions_that_do_not_exist(table, uri, session):
    row = one(f"DROP INDEXTABLES PARTITIONS FROM '{uri}' WHERE month = 7", session)
    assert (row["status"], row["splits_removed"]) == ("no_action", 0)
    assert Table.open(uri).version == 1


def test_drop_partitions_of_null(uri, session):
    table = Table.create(uri, SCHEMA, partition_by=["month"])
    table.append(pa.table({"id": [1, 2], "month": [None, 3], "body": ["a", "b"]}, schema=SCHEMA))
    one(f"DROP INDEXTABLES PARTITIONS FROM '{uri}' WHERE month <> 4", session)
    assert rows_of(uri) == [1]
    one(f"DROP INDEXTABLES PARTITIONS FROM '{uri}' WHERE month IS NULL", session)
    assert rows_of(uri) == []


@pytest.mark.parametrize(
    ("rest", "error", "message"),
    [
        ("", StatementError, "requires a WHERE clause. Use PURGE INDEXTABLE to remove all data"),
        (" WHERE id = 1", NotAPartitionError, "'id', which is not a partition column. Use month"),
        (" WHERE month = 1 AND body = 'x'", NotAPartitionError, "'body'"),
        (" WHERE body indexquery 'x'", NotAPartitionError, "not a partition column"),
        (" WHERE indexqueryall('x')", NotAPartitionError, "a search"),
        (" WHERE nope = 1", UnknownColumnError, "There is no column 'nope'"),
        (" WHERE month + id = 2", NotAPartitionError, "'id'"),
        (" WHERE max(month) = 2", UnsupportedPredicateError, "Cannot evaluate"),
    ],
)
def test_what_drop_partitions_refuses(rest, error, message, table, uri, session):
    with pytest.raises(error, match=message.replace("(", r"\(")):
        run(f"DROP INDEXTABLES PARTITIONS FROM '{uri}'{rest}", session)
    assert rows_of(uri) == list(range(6))
    assert Table.open(uri).version == 1


def test_a_table_without_partitions(uri, session):
    Table.create(uri, SCHEMA).append(ROWS)
    with pytest.raises(NotAPartitionError, match="Cannot drop partitions from non-partitioned"):
        run(f"DROP INDEXTABLES PARTITIONS FROM '{uri}' WHERE month = 1", session)
    with pytest.raises(NotAPartitionError, match="the table is not partitioned"):
        run(f"DESCRIBE INDEXTABLES COMPONENT SIZES '{uri}' WHERE month = 1", session)


def test_partitions_of_another_writer_whose_values_make_no_sense(table, uri, session):
    from indextables.errors import CorruptLogError
    from indextables.log.actions import Add
    from indextables.log.transaction import Operation, Transaction

    foreign = Add(path="x.split", size=1, partition_values={"month": "May"}, num_records=1)
    table.log.store.put("x.split", b"x")
    table.log.commit(Transaction(operation=Operation.APPEND, actions=[foreign]))
    with pytest.raises(CorruptLogError, match="not of their columns' types"):
        run(f"DROP INDEXTABLES PARTITIONS FROM '{uri}' WHERE month = 1", session)


# --- TRUNCATE TIME TRAVEL --------------------------------------------------------------------


@pytest.mark.parametrize("form", ["avro", "json"])
def test_truncate(form, uri, session, settings):
    properties = {"spark.indextables.state.format": form}
    table = Table.create(uri, SCHEMA, properties=properties, config=settings)
    for n in range(12):  # a checkpoint at 10
        table.append(ROWS.slice(n % 6, 1))
    table.checkpoint()
    table.delete(where="id = 3")
    before = rows_of(uri)
    dry = one(f"TRUNCATE INDEXTABLES TIME TRAVEL '{uri}' DRY RUN", session)
    assert (dry["status"], dry["versions_deleted"], dry["checkpoints_deleted"]) == (
        "DRY_RUN",
        13,
        2,
    )
    assert Table.open(uri, version=3).count() == 3
    done = one(f"TRUNCATE INDEXTABLES TIME TRAVEL '{uri}'", session)
    assert done["status"] == "SUCCESS"
    assert (done["checkpoint_version"], done["versions_deleted"]) == (13, 13)
    assert done["checkpoints_deleted"] == 2
    assert done["files_preserved"] == 10
    assert rows_of(uri) == before
    assert Table.open(uri).history()["version"].to_pylist() == [13]
    with pytest.raises(Exception, match="version"):
        Table.open(uri, version=3)
    again = one(f"TRUNCATE INDEXTABLES TIME TRAVEL '{uri}'", session)
    assert again["message"] == "The table is already at minimal state"
    table.append(ROWS)
    assert Table.open(uri).count() == len(before) + 6
    assert Table.open(uri).count(where="body indexquery 'word1'") == 3


def test_a_truncation_that_cannot_trust_its_checkpoint_deletes_nothing(
    table, uri, session, monkeypatch
):
    from indextables.jobs import history as truncate_history

    monkeypatch.setattr(truncate_history, "_content", id)
    with pytest.raises(LogError, match="nothing was deleted"):
        run(f"TRUNCATE INDEXTABLES TIME TRAVEL '{uri}'", session)
    assert Table.open(uri, version=0).count() == 0


# --- REPAIR ----------------------------------------------------------------------------------


def repair(uri, session, rest=""):
    return one(
        f"REPAIR INDEXFILES TRANSACTION LOG '{uri}/_transaction_log' "
        f"AT LOCATION '{uri}-new/_transaction_log'{rest}",
        session,
    )


def swap(uri):
    Path(f"{uri}/_transaction_log").rename(f"{uri}-old")
    Path(f"{uri}-new/_transaction_log").rename(f"{uri}/_transaction_log")


def test_repair_leaves_out_what_is_missing_and_what_was_overwritten(table, uri, session):
    table.overwrite(ROWS.slice(1))
    lost = table.snapshot().files.filter(pa.array([True] + [False] * 4))["path"][0].as_py()
    Path(f"{uri}/{lost}").unlink()
    row = repair(uri, session)
    assert (row["status"], row["source_version"]) == ("SUCCESS", 2)
    assert (row["total_splits"], row["valid_splits"], row["missing_splits"]) == (5, 4, 1)
    swap(uri)
    repaired = Table.open(uri)
    assert repaired.version == 1
    assert repaired.schema == table.schema
    assert rows_of(uri) == [2, 3, 4, 5]
    assert repaired.scan(where="body indexquery 'word4' AND month > 9")["id"].to_pylist() == [4]
    repaired.append(ROWS)
    assert repaired.count() == 10


@pytest.mark.parametrize("damage", ["all", "newest", "metadata"])
def test_repair_from_the_splits(damage, table, uri, session):
    table.append(pa.table({"id": [9], "month": [None], "body": ["last"]}, schema=SCHEMA))
    before = table.snapshot()
    log = f"{uri}/_transaction_log"
    files = sorted(Path(log).iterdir())
    gone = {"all": files, "newest": files[2:], "metadata": files[:1]}[damage]
    for file in gone:
        file.unlink()
    if damage != "newest":
        with pytest.raises(LogError):
            repair(uri, session)
    row = repair(uri, session, " FROM SPLITS")
    assert (row["status"], row["valid_splits"], row["missing_splits"]) == ("SUCCESS", 7, 0)
    Path(log).mkdir(exist_ok=True)
    swap(uri)
    repaired = Table.open(uri)
    assert rows_of(uri) == [0, 1, 2, 3, 4, 5, 9]
    assert repaired.snapshot().partition_columns == ("month",)
    assert repaired.scan(where="month IS NULL")["id"].to_pylist() == [9]
    assert repaired.scan(where="month = 11 AND body indexquery 'word4'")["id"].to_pylist() == [4]
    assert repaired.search("last", limit=3)["id"].to_pylist() == [9]
    old, new = before.files.sort_by("path"), repaired.snapshot().files.sort_by("path")
    for name in ("path", "size", "stats", "minValues", "maxValues", "numRecords",
                 "footerStartOffset", "footerEndOffset", "docMappingJson"):  # fmt: skip
        assert new[name].to_pylist() == old[name].to_pylist(), name
    assert all(
        status == "OK"
        for status in run(f"VERIFY INDEXTABLES '{uri}'", session)["status"].to_pylist()
    )


def test_repair_from_splits_leaves_out_what_the_log_calls_removed(table, uri, session):
    table.delete(where="id = 2")
    table.update("body = 'new'", where="id = 3")
    row = repair(uri, session, " FROM SPLITS")
    assert (row["source_version"], row["valid_splits"]) == (3, 5)
    swap(uri)
    assert rows_of(uri) == [0, 1, 3, 4, 5]


def test_repair_from_splits_leaves_out_what_cannot_be_read(table, uri, session):
    path = table.snapshot().files["path"][0].as_py()
    os.truncate(f"{uri}/{path}", 100)
    row = repair(uri, session, " FROM SPLITS")
    assert (row["total_splits"], row["missing_splits"]) == (6, 1)


def test_types_of_partitions_come_back(uri, session, settings):
    import datetime
    from decimal import Decimal

    columns = {
        "n": pa.array([1]),
        "f": pa.array([1.5]),
        "b": pa.array([True]),
        "d": pa.array([datetime.date(2024, 1, 2)]),
        "t": pa.array([datetime.datetime(2024, 1, 2, 3)], pa.timestamp("us", "UTC")),
        "l": pa.array([datetime.datetime(2024, 1, 2, 3)], pa.timestamp("us")),
        "c": pa.array([Decimal("1.25")], pa.decimal128(10, 2)),
        "s": pa.array(["a/b"]),
        "body": pa.array(["word"]),
    }
    rows = pa.table(columns)
    table = Table.create(uri, rows.schema, partition_by=list(columns)[:-1], config=settings)
    table.append(rows)
    repair(uri, session, " FROM SPLITS")
    before = table.scan().to_pylist()
    for file in Path(f"{uri}/_transaction_log").iterdir():
        file.unlink()
    Path(f"{uri}-new/_transaction_log").rename(f"{uri}/other")
    repair(uri, session, " FROM SPLITS")
    swap(uri)
    assert Table.open(uri).scan().to_pylist() == before


@pytest.mark.parametrize(
    ("source", "target", "message"),
    [
        ("{uri}", "{uri}-new/_transaction_log", "ends in /_transaction_log"),
        ("{uri}/_transaction_log", "{uri}-new", "ends in /_transaction_log"),
        ("_transaction_log", "{uri}-new/_transaction_log", "ends in /_transaction_log"),
        ("{uri}/_transaction_log", "{uri}/_transaction_log", "is not empty"),
    ],
)
def test_what_repair_refuses(source, target, message, table, uri, session):
    sql = f"REPAIR INDEXFILES TRANSACTION LOG '{source}' AT LOCATION '{target}'".format(uri=uri)
    with pytest.raises(StatementError, match=message):
        run(sql, session)
    assert rows_of(uri) == list(range(6))
    assert not Path(f"{uri}-new").exists()


def test_repair_from_no_splits(tmp_path, session):
    with pytest.raises(StatementError, match="holds no splits"):
        repair(str(tmp_path / "nothing"), session, " FROM SPLITS")


# --- COMPONENT SIZES, PREWARM ----------------------------------------------------------------


def test_component_sizes(table, uri, session):
    found = run(f"DESCRIBE INDEXTABLES COMPONENT SIZES '{uri}'", session).to_pylist()
    sizes = {row["path"]: row["size"] for row in table.snapshot().files.to_pylist()}
    assert {row["split_path"] for row in found} == set(sizes)
    for path, size in sizes.items():
        parts = [row for row in found if row["split_path"] == path]
        assert 0 < sum(part["size_bytes"] for part in parts) <= size
        kinds = {part["component_type"] for part in parts}
        assert {"term", "postings", "positions", "fastfield", "store", "column", "footer"} <= kinds
        assert {"id", "body"} <= {p["field_name"] for p in parts if p["component_type"] == "column"}
    some = run(f"DESCRIBE INDEXTABLES COMPONENT SIZES '{uri}' WHERE month >= 11", session)
    assert {tuple(v) for v in some["partition_values"].to_pylist()} == {
        (("month", "11"),),
        (("month", "12"),),
    }
    with pytest.raises(NotAPartitionError, match="'id', which is not a partition column"):
        run(f"DESCRIBE INDEXTABLES COMPONENT SIZES '{uri}' WHERE id = 1", session)


def test_prewarm_opens_indexes(table, uri, session):
    from indextables.plan.execute import close_indexes

    close_indexes()
    row = one(f"PREWARM INDEXTABLES CACHE '{uri}' ON FIELDS (Body, id) WHERE month > 9", session)
    assert (row["status"], row["splits_prewarmed"]) == ("success", 3)
    assert (row["fields"], row["skipped_fields"]) == ("body", "id")
    assert row["async_mode"] is False
    assert close_indexes() == 3
    row = one(f"PREWARM INDEXTABLES CACHE '{uri}'", session)
    assert (row["splits_prewarmed"], row["fields"], row["skipped_fields"]) == (6, "all", None)
    assert (
        one(f"PREWARM INDEXTABLES CACHE '{uri}' ON FIELDS (id)", session)["status"] == "no_splits"
    )
    assert (
        one(f"PREWARM INDEXTABLES CACHE '{uri}' WHERE month = 7", session)["status"] == "no_splits"
    )


def test_prewarm_takes_the_clauses_of_the_scala_product(table, uri, session):
    from indextables.plan.execute import close_indexes

    close_indexes()
    row = one(
        f"PREWARM INDEXTABLES CACHE '{uri}' FOR SEGMENTS (TERM_DICT, postings) ON FIELDS (body) "
        "WITH PERWORKER PARALLELISM OF 2 WHERE month > 9",
        session,
    )
    assert (row["status"], row["splits_prewarmed"], row["segments"]) == ("success", 3, "ALL")
    assert close_indexes() == 3
    for clause, reason in {
        "FOR SEGMENTS (TERMS)": "no segment 'TERMS'. There are TERM,",
        "WITH PERWORKER PARALLELISM OF 0": "1 or more",
        "ASYNC MODE": "ASYNC",
    }.items():
        with pytest.raises(StatementError, match=reason):
            run(f"PREWARM INDEXTABLES CACHE '{uri}' {clause}", session)


def test_prewarm_opens_as_many_at_once_as_it_is_told(table, uri, session, monkeypatch):
    from indextables.plan.execute import Environment

    seen = []
    real = Environment.map

    def counted(self, *arguments):
        seen.append(self.parallelism)
        return real(self, *arguments)

    monkeypatch.setattr(Environment, "map", counted)
    run(f"PREWARM INDEXTABLES CACHE '{uri}' WITH PERWORKER PARALLELISM OF 3", session)
    assert seen == [3]


def test_storage_stats_count_what_was_fetched(session):
    def stats():
        return one("DESCRIBE INDEXTABLES STORAGE STATS", session)

    table = Table.create(f"memory://{uuid.uuid4().hex}", SCHEMA)
    table.append(ROWS)
    before = stats()
    assert (before["executor_id"], list(before)) == (
        "driver", ["executor_id", "host", "bytes_fetched", "requests"],
    )  # fmt: skip
    assert table.search("word3").num_rows == 1
    after = stats()
    assert after["requests"] > before["requests"]
    assert after["bytes_fetched"] > before["bytes_fetched"]


def test_no_merge_job_is_ever_under_way(session):
    found = run("DESCRIBE INDEXTABLES MERGE JOBS", session)
    assert spelled(found.schema) == (
        "job_id,table_path,status,total_groups,completed_groups,total_batches,completed_batches,"
        "progress_pct,duration_ms,error_message"
    )
    assert not found.num_rows


def test_prewarm_tells_what_failed_and_where(table, uri, session):
    path = table.snapshot().files["path"][0].as_py()
    Path(f"{uri}/{path}").unlink()

    class TwoPlaces:
        def run(self, function):
            return [answer("driver", function), Answer("1", "far", error="no task reached it")]

    both = Session(session.resolve, session.config, TwoPlaces())
    here, far = run(f"PREWARM INDEXTABLES CACHE '{uri}'", both).to_pylist()
    assert (here["status"], here["splits_prewarmed"]) == ("partial", 5)
    assert path in here["failed_splits_by_host"]
    assert (far["status"], far["splits_prewarmed"], far["host"]) == ("partial", 0, "far")
    assert "no task reached it" in far["failed_splits_by_host"]


@pytest.mark.parametrize(
    ("rest", "error"),
    [
        ("ON FIELDS (nope)", UnknownColumnError),
        ("WHERE id = 3", NotAPartitionError),
    ],
)
def test_what_prewarm_refuses(rest, error, table, uri, session):
    with pytest.raises(error):
        run(f"PREWARM INDEXTABLES CACHE '{uri}' {rest}", session)


# --- DELETE, UPDATE --------------------------------------------------------------------------


def test_delete(table, uri, session):
    row = one(f"DELETE FROM '{uri}' WHERE body indexquery 'word1 OR word4' AND month > 2", session)
    assert (row["status"], row["num_affected_rows"]) == ("success", 1)
    assert (row["splits_removed"], row["splits_added"], row["version"]) == (1, 0, 2)
    assert rows_of(uri) == [0, 1, 2, 3, 5]
    row = one(f"DELETE FROM '{uri}'", session)
    assert row["num_affected_rows"] == 5
    assert rows_of(uri) == []


def test_update(table, uri, session):
    row = one(
        f"UPDATE '{uri}' SET body = body || ' Fresh', id = id * 10, month = 1 "
        "WHERE _indexall indexquery 'word5'",
        session,
    )
    assert (row["status"], row["num_affected_rows"]) == ("success", 1)
    assert (row["splits_removed"], row["splits_added"]) == (1, 1)
    new = Table.open(uri)
    assert new.scan(where="body indexquery 'fresh'").to_pylist() == [
        {"id": 50, "month": 1, "body": "word5 common Fresh"}
    ]
    assert new.count(where="month = 12") == 0
    assert new.count() == 6
    assert one(f"UPDATE '{uri}' SET id = 0", session)["num_affected_rows"] == 6
    assert rows_of(uri) == [0] * 6


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ("SET nope = 1", ExpressionError, "There is no column 'nope'"),
        (
            "SET id = hash(body)",
            ExpressionError,
            "The function HASH is not supported without Spark",
        ),
        ("SET id = 'x'", ExpressionError, "string cannot be stored in 'id', which is long"),
        ("SET month = month / 0 WHERE id = 1", ExpressionError, "divides by zero"),
        ("SET id = 1, id = 2", ExpressionError, "twice"),
        ("SET id = 1 WHERE nope = 2", UnknownColumnError, "There is no column 'nope'"),
        ("SET id = 1 WHERE id = max(month)", UnsupportedPredicateError, "about one row"),
    ],
)
def test_what_update_refuses(change, error, message, table, uri, session):
    with pytest.raises(error, match=message):
        run(f"UPDATE '{uri}' {change}", session)
    assert rows_of(uri) == list(range(6))
    assert Table.open(uri).version == 1
    assert sum(name.endswith(".split") for _, _, names in os.walk(uri) for name in names) == 6


def test_times_without_a_zone_are_meant_in_the_sessions_zone(uri, session, settings):
    import datetime

    moments = [datetime.datetime(2024, 1, 1, hour, tzinfo=datetime.UTC) for hour in (0, 5, 12)]
    rows = pa.table({"t": pa.array(moments, pa.timestamp("us", "UTC"))})
    Table.create(uri, rows.schema, config=settings).append(rows)
    tokyo = Session(session.resolve, session.config, timezone="Asia/Tokyo")
    row = one(f"DELETE FROM '{uri}' WHERE t < '2024-01-01 10:00:00'", tokyo)
    assert row["num_affected_rows"] == 1
    one(f"UPDATE '{uri}' SET t = '2024-01-01 09:00:00'", tokyo)
    assert set(Table.open(uri).scan()["t"].to_pylist()) == {moments[0]}


def test_names_that_need_back_ticks(uri, session, settings):
    import datetime

    days = [datetime.date(2024, 1, day) for day in (1, 2, 3)]
    rows = pa.table({"date": days, "my col": [1, 2, 3], "a.b": ["x", "y", "z"]})
    Table.create(uri, rows.schema, partition_by=["date"], config=settings).append(rows)
    update = "SET `my col` = `my col` * 10, `a.b` = upper(`a.b`), date = DATE '2024-02-01'"
    row = one(f"UPDATE '{uri}' {update} WHERE `a.b` = 'z'", session)
    assert row["num_affected_rows"] == 1
    row = one(f"DROP INDEXTABLES PARTITIONS FROM '{uri}' WHERE date < '2024-01-02'", session)
    assert row["splits_removed"] == 1
    sql = f"DESCRIBE INDEXTABLES COMPONENT SIZES '{uri}' WHERE date > '2025-01-01'"
    assert run(sql, session).num_rows == 0
    assert sorted(Table.open(uri).scan()["my col"].to_pylist()) == [2, 30]
    row = one(f"PREWARM INDEXTABLES CACHE '{uri}' ON FIELDS (`a.b`)", session)
    assert (row["splits_prewarmed"], row["fields"]) == (2, "a.b")


# --- checkpoints in either format ------------------------------------------------------------


def test_the_emergency_downgrade_and_the_way_back(table, uri, session, settings):
    import json

    def state():
        return one(f"DESCRIBE INDEXTABLES STATE '{uri}'", session)["format"]

    def pointer():
        return json.loads(Path(f"{uri}/_transaction_log/_last_checkpoint").read_text())

    assert one(f"CHECKPOINT INDEXTABLES '{uri}'", session)["status"] == "SUCCESS"
    assert (state(), pointer()["format"]) == ("avro-state", "avro-state")
    protocol = Table.open(uri).snapshot().protocol

    def resolve(target: Target) -> Table:
        config = {**settings, "spark.indextables.state.format": "json"}
        return Table.open(target.path, config=config)

    json_session = Session(resolve, session.config)
    done = one(f"CHECKPOINT INDEXTABLES '{uri}'", json_session)
    assert (done["status"], done["checkpoint_version"]) == ("SUCCESS", 1)
    assert (state(), pointer()["format"], pointer()["version"]) == ("json", "json", 1)
    assert Path(f"{uri}/_transaction_log/{1:020d}.checkpoint.json").exists()
    assert Table.open(uri).snapshot().protocol == protocol
    # The JSON checkpoint alone is the table.
    Path(f"{uri}/_transaction_log/state-v{1:020d}").rename(f"{uri}/hidden")
    assert rows_of(uri) == list(range(6))
    Path(f"{uri}/hidden").rename(f"{uri}/_transaction_log/state-v{1:020d}")
    # A clean-up keeps what the pointer names.
    age(f"{uri}/_transaction_log", 40)
    run(f"PURGE INDEXTABLE '{uri}'", session)
    assert Path(f"{uri}/_transaction_log/{1:020d}.checkpoint.json").exists()
    # COMPACT is the migration to Avro, at the same version and at a later one.
    assert one(f"COMPACT INDEXTABLES '{uri}'", session)["status"] == "SUCCESS"
    assert (state(), pointer()["format"]) == ("avro-state", "avro-state")
    table.append(ROWS)
    one(f"CHECKPOINT INDEXTABLES '{uri}'", json_session)
    table.append(ROWS)
    one(f"COMPACT INDEXTABLES '{uri}'", session)
    assert (state(), pointer()["version"]) == ("avro-state", 3)
    assert Table.open(uri).count() == 18


def test_the_log_as_seed_000_shows_it(table, uri, session):
    table.delete(where="month = 1")
    found = run(f"DESCRIBE INDEXTABLES TRANSACTION LOG '{uri}' INCLUDE ALL", session)
    assert found.schema.names[:6] == [
        "version", "action_type", "path", "source_count", "size", "partition",
    ]  # fmt: skip
    versions = found["version"].to_pylist()
    assert versions == sorted(versions, reverse=True)
    assert set(versions) == {0, 1, 2}
    removed = [r for r in found.to_pylist() if r["action_type"] == "remove"]
    assert [(r["version"], r["partition"]) for r in removed] == [(2, "month=1")]
