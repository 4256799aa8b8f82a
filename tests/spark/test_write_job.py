"""Writes that are planned, and committed to a table that changed meanwhile."""

from __future__ import annotations

import pickle
import shutil

import pyarrow as pa
import pytest

from indextables import Table
from indextables.config import Config
from indextables.errors import ConcurrentAppendError, MetadataChangedError, SchemaError
from indextables.jobs.write_job import plan_write
from indextables.log.transaction_log import TransactionLog
from indextables.storage import open_store

SCHEMA = pa.schema([("id", pa.int64()), ("part", pa.string())])
KINDS = {"append": 5, "overwrite": 1, "partitions": 3, "where": 4}
"""How many rows are there after a row of part 'a' came to 'a', 'a', 'b', and a 'b' meanwhile."""


def rows(*pairs):
    return pa.table({"id": [i for i, _ in pairs], "part": [p for _, p in pairs]}, schema=SCHEMA)


@pytest.fixture
def place(tmp_path):
    path = str(tmp_path / "t")
    Table.create(path, SCHEMA, partition_by=["part"]).append(rows((1, "a"), (2, "a"), (3, "b")))
    return path


def log_of(place):
    return TransactionLog(open_store(place))


def planned(place, kind):
    where = "part = 'a' AND id = 1" if kind == "where" else None
    return plan_write(log_of(place), SCHEMA, settings=Config(), kind=kind, where=where)


def stored(job, far):
    """The job as another process has it, and what its only task stored."""
    output = job.write(rows((1, "a")).to_batches())
    return (pickle.loads(pickle.dumps(job)) if far else job), [output]


@pytest.mark.parametrize(
    ("kind", "far"),
    [("append", False), ("overwrite", True), ("partitions", True), ("where", False)],
)
def test_a_truncated_history_does_not_fail_a_write(place, kind, far):
    job, outputs = stored(planned(place, kind), far)
    other = Table.open(place)
    other.append(rows((4, "b")))
    other.truncate_time_travel()
    job.commit(log_of(place), outputs)
    assert Table.open(place).count() == KINDS[kind]


def test_a_truncated_history_hides_no_conflict(place):
    job, outputs = stored(planned(place, "partitions"), True)
    other = Table.open(place)
    other.append(rows((1, "a")))
    other.truncate_time_travel()
    with pytest.raises(ConcurrentAppendError):
        job.commit(log_of(place), outputs)
    assert Table.open(place).count() == 4


@pytest.mark.parametrize(
    ("kind", "far"), [("append", True), ("overwrite", False), ("where", False)]
)
def test_a_table_that_was_made_anew_is_another_one(place, kind, far):
    job, outputs = stored(planned(place, kind), far)
    shutil.rmtree(place)
    Table.create(place, SCHEMA, partition_by=["part"]).append(rows((9, "a")))
    with pytest.raises(MetadataChangedError, match="identity"):
        job.commit(log_of(place), outputs)
    assert Table.open(place).scan()["id"].to_pylist() == [9]


def test_types_that_do_not_fit_are_refused_before_any_task(place):
    wrong = pa.schema([("id", pa.string()), ("part", pa.date32())])
    with pytest.raises(SchemaError, match=r"(?s)'id' cannot become long.*'part' cannot become str"):
        plan_write(log_of(place), wrong, settings=Config(), kind="append")


@pytest.mark.parametrize("how", ["INSERT", "public"])
def test_text_that_is_not_utf8_is_refused_in_one_sentence(spark, request, tmp_path, how):
    path = str(tmp_path / "t")
    spark.sql("SELECT 1 AS id, 'x' AS name").write.format("indextables").save(path)
    name = "CASE WHEN id = 3 THEN CAST(X'61C1' AS STRING) ELSE 'ok' END AS name"
    rows = f"SELECT id, {name} FROM range(5)"
    if how == "public":
        request.getfixturevalue("public")
    with pytest.raises(Exception) as error:
        if how == "INSERT":
            spark.sql(f"INSERT INTO indextables.`{path}` {rows}")
        else:
            spark.sql(rows).coalesce(1).write.format("indextables").mode("append").save(path)
    said = str(error.value)
    assert "'name'" in said
    assert "UTF-8" in said
    assert "61 c1" in said
    assert "Traceback" not in said or how == "public"
    assert Table.open(path).count() == 1
    assert len(list((tmp_path / "t").rglob("*.split"))) == 1


@pytest.mark.parametrize("layout", ["column", "list", "struct", "partition"])
def test_text_that_is_not_utf8_in_plain_python(tmp_path, layout):
    text = pa.array([b"ok", b"ok", b"a\xc1"], pa.binary()).view(pa.string())
    if layout == "list":
        text = pa.ListArray.from_arrays(pa.array([0, 1, 2, 3], pa.int32()), text)
    if layout == "struct":
        text = pa.StructArray.from_arrays([text], ["inner"])
    rows = pa.table({"id": [1, 2, 3], "name": text})
    table = Table.create(
        tmp_path / "t", rows.schema, partition_by=["name"] * (layout == "partition")
    )
    with pytest.raises(SchemaError, match=r"Row 3 .*'name'.*UTF-8.*61 c1"):
        table.append(rows)
    assert table.count() == 0
