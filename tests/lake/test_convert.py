"""CONVERT TO INDEXTABLES and `indextables export --format delta`: rows from and to Delta tables."""

from __future__ import annotations

import datetime
import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from delta_logs import DeltaLog, field
from deltalake import DeltaTable, QueryBuilder, write_deltalake
from typer.testing import CliRunner

from indextables import Table
from indextables.cli.app import app
from indextables.errors import (
    LakeError,
    SourceMissingError,
    StatementError,
    StatementSyntaxError,
    TableExistsError,
)
from indextables.statements.execute import Session, execute
from indextables.statements.statements import parse
from indextables.storage import open_store


def convert(sql: str, **options: str) -> dict[str, object]:
    statement = parse(sql)
    assert statement is not None
    session = Session(
        resolve=lambda target: Table.open(str(target)),
        open_store=lambda uri: open_store(uri, options),
    )
    (row,) = execute(statement, session).to_pylist()
    return row


def listed(rows: pa.Table) -> list[str]:
    return sorted(map(repr, rows.to_pylist()))


def docs() -> pa.Table:
    days = [datetime.date(2024, 1, 1), datetime.date(2024, 1, 2), None]
    return pa.table(
        {
            "id": list(range(30)),
            "body": [None if n % 7 == 0 else f"red fox {n}" for n in range(30)],
            "day": pa.array([days[n % 3] for n in range(30)], pa.date32()),
            "at": pa.array([datetime.datetime(2024, 1, 1, n % 24) for n in range(30)]),
            "tags": [[str(n)] for n in range(30)],
        }
    )


def test_a_delta_table_with_its_history(tmp_path):
    source = str(tmp_path / "lake.d" / "docs")
    write_deltalake(source, docs(), partition_by=["day"])
    more = docs().append_column("n", pa.array(range(30), pa.int32()))
    write_deltalake(source, more, mode="append", schema_mode="merge")
    DeltaTable(source).delete("id < 5")
    row = convert(f"CONVERT TO INDEXTABLES delta.`{source}` LOCATION '{tmp_path / 't'}'")
    table = Table.open(tmp_path / "t")
    found = QueryBuilder().register("t", DeltaTable(source)).execute("SELECT * FROM t")
    assert listed(table.to_arrow()) == listed(pa.table(found))
    assert (row["num_rows"], row["version"], row["status"]) == (50, 0, "SUCCESS")
    assert ",".join(row) == (
        "source_path,table_path,status,version,num_rows,num_files,total_size_bytes"
    )
    assert table.partition_columns == ("day",)
    assert table.count(where="body indexquery 'fox' AND day = '2024-01-02'") > 0
    with pytest.raises(TableExistsError):
        convert(f"convert to indextables delta.`{source}` location '{tmp_path / 't'}'")
    assert Table.open(tmp_path / "t").version == 0


def test_vectors_mappings_and_partition_values(tmp_path):
    log = DeltaLog(tmp_path / "d", features=("columnMapping", "deletionVectors"))
    fields = [field("id", "long", "c1", 1), field("text", "string", "c2", 2),
              field("p", "integer", "c3", 3)]  # fmt: skip
    rows = pa.table({"c1": list(range(8)), "c2": [f"fox {n}" for n in range(8)]})
    add = log.add("c3=7/a b.parquet", rows, dead=(0, 3, 7), partition={"c3": "7"})
    bare = log.add("b.parquet", rows.select(["c1"]), partition={"c3": None})
    log.commit(log.protocol, log.metadata(fields, partition_by=("p",), mode="name"), add, bare)
    convert(f"CONVERT TO INDEXTABLES delta.`{tmp_path / 'd'}` LOCATION '{tmp_path / 't'}'")
    found = Table.open(tmp_path / "t").to_arrow().sort_by([("p", "ascending"), ("id", "ascending")])
    assert found["id"].to_pylist() == [1, 2, 4, 5, 6, *range(8)]
    assert found["p"].to_pylist() == [7] * 5 + [None] * 8
    assert found["text"].to_pylist() == [f"fox {n}" for n in (1, 2, 4, 5, 6)] + [None] * 8


def test_a_folder_of_parquet_files(tmp_path):
    for part in ("a", "b"):
        (tmp_path / "p" / f"k={part}").mkdir(parents=True)
        pq.write_table(docs(), tmp_path / "p" / f"k={part}" / "x.parquet")
    row = convert(f"CONVERT TO INDEXTABLES parquet.`{tmp_path / 'p'}` LOCATION '{tmp_path / 't'}'")
    table = Table.open(tmp_path / "t")
    assert row["num_rows"] == 60 and table.count(where="k = 'b'") == 30


def test_what_cannot_be_converted(tmp_path):
    with pytest.raises(SourceMissingError):
        convert(f"CONVERT TO INDEXTABLES delta.`{tmp_path / 'no'}` LOCATION '{tmp_path / 't'}'")
    with pytest.raises(StatementError, match=r"delta\.`s3://"):
        convert(f"CONVERT TO INDEXTABLES docs LOCATION '{tmp_path / 't'}'")
    with pytest.raises(StatementSyntaxError, match="LOCATION"):
        parse("CONVERT TO INDEXTABLES delta.`/a`")
    assert parse("CONVERT TO DELTA parquet.`/a`") is None
    write_deltalake(str(tmp_path / "d"), docs(), partition_by=["day"])
    damaged = next((tmp_path / "d" / "day=2024-01-02").iterdir())
    damaged.write_bytes(damaged.read_bytes()[:-20])
    with pytest.raises(LakeError, match=r"There is no new table\."):
        convert(f"CONVERT TO INDEXTABLES delta.`{tmp_path / 'd'}` LOCATION '{tmp_path / 't'}'")
    assert not Table.exists(tmp_path / "t") and not list((tmp_path / "t").rglob("*.split"))


def test_on_s3_there_and_back(s3, tmp_path):
    options = dict(s3.options)
    root = f"{s3.uri}/{tmp_path.name}-convert"
    write_deltalake(f"{root}/docs", docs(), partition_by=["day"], storage_options=options)
    convert(f"CONVERT TO INDEXTABLES delta.`{root}/docs` LOCATION '{root}/t'", **options)
    table = Table.open(f"{root}/t", storage_options=options)
    assert listed(table.to_arrow()) == listed(docs())
    given = [
        part for name, value in options.items() for part in ("--storage-option", f"{name}={value}")
    ]
    done = CliRunner().invoke(
        app, ["export", f"{root}/t", f"{root}/back", "--format", "delta", *given]
    )
    assert done.exit_code == 0, done.output
    back = DeltaTable(f"{root}/back", storage_options=options)
    found = QueryBuilder().register("t", back).execute("SELECT * FROM t")
    assert listed(pa.table(found).select(docs().column_names)) == listed(docs())
    assert back.metadata().partition_columns == ["day"]


def test_export_and_convert_in_the_terminal(tmp_path):
    def run(*arguments: object) -> str:
        done = CliRunner().invoke(app, [str(a) for a in arguments])
        return done.output if done.exit_code else f"ok {done.stdout}"

    Table.create(tmp_path / "t", data=docs(), partition_by=["day"])
    target = tmp_path / "out"
    export = ("export", tmp_path / "t", target, "--format", "delta")
    assert run(*export, "-w", "id > 9").startswith("ok")
    found = QueryBuilder().register("t", DeltaTable(str(target))).execute("SELECT id FROM t")
    assert sorted(pa.table(found)["id"].to_pylist()) == list(range(10, 30))
    assert "exists" in run(*export)
    assert "Partition column" in run(*export, "-c", "id", "--overwrite")
    assert run(*export, "-c", "id", "-c", "day", "--overwrite").startswith("ok")
    assert DeltaTable(str(target)).to_pyarrow_dataset().schema.names == ["id", "day"]
    sql = f"CONVERT TO INDEXTABLES delta.`{target}` LOCATION '{tmp_path / 'back'}'"
    assert json.loads(run("sql", sql, "--json").removeprefix("ok "))["num_rows"] == 30
    assert Table.open(tmp_path / "back").count() == 30


def test_in_spark(spark, tmp_path):
    source = str(tmp_path / "d")
    write_deltalake(source, docs(), partition_by=["day"])
    spark.conf.set("spark.indextables.indexing.typemap.body", "string")
    spark.conf.set("spark.indextables.delta.mirror", "true")
    try:
        (row,) = spark.sql(
            f"CONVERT TO INDEXTABLES delta.`{source}` LOCATION '{tmp_path / 't'}'"
        ).collect()
    finally:
        spark.conf.unset("spark.indextables.indexing.typemap.body")
        spark.conf.unset("spark.indextables.delta.mirror")
    assert row.num_rows == 30
    frame = spark.read.format("indextables").load(str(tmp_path / "t"))
    assert frame.where("body = 'red fox 3'").count() == 1
    # The session's mirror is the table's from now on, whoever writes.
    frame.limit(4).write.format("indextables").mode("append").save(str(tmp_path / "t"))
    spark.sql(f"DELETE FROM indextables.`{tmp_path / 't'}` WHERE id = 5")
    table = Table.open(tmp_path / "t")
    found = QueryBuilder().register("t", DeltaTable(str(tmp_path / "t"))).execute("SELECT * FROM t")
    assert listed(pa.table(found)) == listed(table.to_arrow())
    assert DeltaTable(str(tmp_path / "t")).version() == table.version == 2
