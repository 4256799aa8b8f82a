"""A search index over a table of another format, read and kept with Spark."""

from __future__ import annotations

import datetime
import os
import shutil
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from delta_logs import DeltaLog, field
from deltalake import write_deltalake
from iceberg_tables import catalog_in
from pyiceberg.utils.config import Config

import indextables as it
from indextables.spark.bridge.frames import driver_scans

ROWS = pa.table(
    {
        "id": [1, 2, 3, 4, 5],
        "day": ["a", "a", "b", "b", None],
        "body": ["red fox", "lazy dog", None, "fox and dog", "a fox, a fox"],
        "price": [1.5, 2.5, None, 4.0, 8.0],
    }
)


# Through the public door in the long run only: one test here has all that it does for an index.
bridge_first = pytest.mark.parametrize(
    "door", ["bridge", pytest.param("public", marks=pytest.mark.long)], indirect=True
)


def ids(frame) -> list[int]:
    return sorted(row["id"] for row in frame.collect())


@pytest.fixture
def partitioned(tmp_path) -> it.SearchIndex:
    """An index over a partitioned Delta table, one of whose files it does not cover."""
    source = tmp_path / "source"
    write_deltalake(source, ROWS.slice(0, 4), partition_by=["day"])
    index = it.SearchIndex.create(
        tmp_path / "index", source=source, format="delta", columns=["body"]
    )
    write_deltalake(source, ROWS.slice(4), mode="append")
    return index


@bridge_first
def test_an_index_is_read_as_a_table(door, partitioned):
    uri = partitioned.uri
    frame = door.read.format("indextables").load(uri)
    assert frame.columns == ["id", "day", "body", "price"]
    frame.createOrReplaceTempView("rows_of_index")
    name = "rows_of_index"
    if door.conf.get("spark.sql.catalog.indextables", None) is None and is_bridged(door):
        name = f"indextables.`{uri}`"

    def sql(text: str):
        return door.sql(text.replace("docs", name))

    assert ids(sql("SELECT * FROM docs")) == [1, 2, 3, 4, 5]
    assert sql("SELECT * FROM docs WHERE id = 4").collect()[0].asDict() == {
        "id": 4, "day": "b", "body": "fox and dog", "price": 4.0
    }  # fmt: skip
    assert ids(sql("SELECT id FROM docs WHERE body indexquery 'fox'")) == [1, 4, 5]
    assert ids(sql("SELECT id FROM docs WHERE body indexquery 'fox' AND day = 'b'")) == [4]
    assert ids(sql("SELECT id FROM docs WHERE body indexquery 'fox' AND price > 1.5")) == [4, 5]
    assert ids(sql("SELECT id FROM docs WHERE body indexquery 'fox' OR day = 'b'")) == [1, 3, 4, 5]
    assert ids(sql("SELECT id FROM docs WHERE NOT body indexquery 'fox'")) == [2, 3]
    assert ids(sql("SELECT id FROM docs WHERE body IS NULL")) == [3]
    assert sql("SELECT count(*) FROM docs").collect()[0][0] == 5
    assert sql("SELECT count(*) FROM docs WHERE body indexquery 'fox'").collect()[0][0] == 3
    groups = sql("SELECT day, count(*) c, sum(price) s, max(id) m FROM docs GROUP BY day")
    assert sorted(map(tuple, groups.collect()), key=str) == [
        ("a", 2, 4.0, 2), ("b", 2, 4.0, 4), (None, 1, 8.0, 5)
    ]  # fmt: skip
    # Where a search is not a condition, Spark evaluates it, as the table would.
    marks = sql("SELECT id, body indexquery 'fox' AS hit, CASE WHEN body indexquery 'dog' THEN 1 "
                "ELSE 0 END AS dog FROM docs")  # fmt: skip
    assert sorted((r.id, r.hit, r.dog) for r in marks.collect()) == [
        (1, True, 0), (2, False, 1), (3, False, 0), (4, True, 1), (5, True, 0)
    ]  # fmt: skip
    joined = sql("SELECT l.id FROM docs l JOIN docs r ON l.id = r.id WHERE r.body indexquery 'dog'")
    assert ids(joined) == [2, 4]
    # The source moves on, and the next query sees it.
    write_deltalake(partitioned.source, ROWS.slice(0, 1), mode="append")
    fresh = door.read.format("indextables").load(uri)
    assert fresh.count() == 6
    assert fresh.where("body indexquery 'fox'").count() == 4
    partitioned.refresh()
    assert door.read.format("indextables").load(uri).where("body indexquery 'fox'").count() == 4
    for version, rows in ((0, 4), (1, 5), (2, 6)):
        old = door.read.format("indextables").option("versionAsOf", version).load(uri)
        assert old.count() == rows


def test_the_public_door_reads_an_index(public, partitioned):
    reader = public.read.format("indextables")
    frame = reader.load(partitioned.uri)
    assert frame.columns == ["id", "day", "body", "price"]
    assert ids(frame.where("body indexquery 'fox' AND price > 1.5")) == [4, 5]
    found = frame.where("body indexquery 'fox' OR day = 'b'")
    marks = found.selectExpr("id", "day", "body indexquery 'dog' AS dog")
    assert sorted(map(tuple, marks.collect())) == [
        (1, "a", False), (3, "b", False), (4, "b", True), (5, None, False)
    ]  # fmt: skip
    assert reader.option("versionAsOf", 0).load(partitioned.uri).count() == 4
    # The source moves on, and the next query sees it.
    write_deltalake(partitioned.source, ROWS.slice(0, 1), mode="append")
    fresh = public.read.format("indextables").load(partitioned.uri)
    assert ids(fresh.where("body indexquery 'fox'")) == [1, 1, 4, 5]


def is_bridged(spark) -> bool:
    from indextables.spark.bridge.sessions import bridge_of

    return bridge_of(spark) is not None


def test_the_best_rows_come_first(spark, partitioned):
    best = spark.sql(
        f"SELECT id, day, _score FROM indextables.`{partitioned.uri}` "
        "WHERE body indexquery 'fox' ORDER BY _score DESC LIMIT 2"
    )
    expected = partitioned.search("fox", limit=2)
    assert [r.id for r in best.collect()] == expected["id"].to_pylist()
    assert [r["_score"] for r in best.collect()] == pytest.approx(expected["_score"].to_pylist())
    assert driver_scans(best)
    every = spark.sql(
        f"SELECT id, _score FROM indextables.`{partitioned.uri}` WHERE body indexquery 'fox'"
    )
    assert {r.id: r["_score"] for r in every.collect()} == pytest.approx(
        dict(
            zip(*(partitioned.search("fox")[n].to_pylist() for n in ("id", "_score")), strict=True)
        )
    )
    plan = spark.sql(
        f"EXPLAIN SELECT id FROM indextables.`{partitioned.uri}` WHERE body indexquery 'fox'"
    ).collect()[0][0]
    assert "2 of 3 files" in plan


def test_tasks_read_the_source(spark, partitioned):
    """What the driver does not answer, Python tasks do: they get the source's files with them."""
    spark.conf.set("spark.indextables.read.driver.maxRows", 0)
    try:
        frame = spark.read.format("indextables").load(partitioned.uri)
        assert ids(frame) == [1, 2, 3, 4, 5]
        assert ids(frame.where("body indexquery 'fox' AND day IS NOT NULL")) == [1, 4]
        scored = frame.where("body indexquery 'fox'").selectExpr("id", "_score")
        assert ids(scored) == [1, 4, 5]
        assert frame.where("body indexquery 'fox'").agg({"price": "sum"}).collect()[0][0] == 13.5
        assert frame.where("body indexquery 'dog'").count() == 2
        assert ids(frame.orderBy("price").limit(2)) == [1, 3]
    finally:
        spark.conf.unset("spark.indextables.read.driver.maxRows")


def test_scans_without_a_search_are_sparks_own(spark, tmp_path):
    """Where the source's files say all there is to know, as with Python tasks; others are not."""
    flat = pa.table(
        {
            "id": range(8),
            "body": ["red fox", None, "dog", "é", "", "x", "fox", "fox"],
            "p": ["b c", "é", None, "a", "a", "b%20c", "7", "007"],
            "at": [datetime.datetime(2024, 1, 1, n, tzinfo=datetime.UTC) for n in range(8)],
            "price": [1.5, None, float("nan"), 4, 5, 6, 7, -0.0],
        }
    )
    old = [datetime.datetime(1500, 1, n + 1) for n in range(8)]
    delta = DeltaLog(tmp_path / "vector", features=("deletionVectors",))
    add = delta.add("0.parquet", flat.select(["id", "body"]))
    columns = [field("id", "long"), field("body", "string")]
    delta.commit(delta.protocol, delta.metadata(columns), add)
    delta.commit(delta.remove(add), delta.add("0.parquet", dead=(2,)))
    write_deltalake(tmp_path / "parted", flat, partition_by=["p"])
    later = flat.slice(0, 3).drop_columns(["body", "p"]).append_column("n", pa.array([1, 2, 3]))
    write_deltalake(tmp_path / "grown", flat)
    write_deltalake(tmp_path / "grown", later, mode="append", schema_mode="merge")
    dates = flat.append_column("old", pa.array(old, pa.timestamp("us", tz="UTC")))
    for name, files in {
        "folder": {"p=a%20b/0": flat.drop_columns(["p"]), "p=7/1": flat.drop_columns(["p"])},
        "widened": {"0": flat, "1": flat.set_column(0, "id", flat["id"].cast(pa.int32()))},
        "nested": {"0": flat.append_column("s", pa.array([{"a": 1}] * 8))},
        "dates": {"0": dates},
        "brotli": {"0": flat},
    }.items():
        for place, rows in files.items():
            (tmp_path / name / place).parent.mkdir(parents=True, exist_ok=True)
            codec = "brotli" if name == "brotli" else "snappy"
            file = tmp_path / name / f"{place}.parquet"
            pq.write_table(rows, file, compression=codec, store_schema=name != "dates")
    native = ("grown", "folder", "dates")
    for name in (*native, "parted", "vector", "widened", "nested", "brotli"):
        kind = "delta" if name in ("parted", "grown", "vector") else "parquet"
        index = it.SearchIndex.create(
            tmp_path / f"{name}.index", source=tmp_path / name, format=kind, columns=["body"]
        )
        if name == "folder":
            index.merge_splits()
            pq.write_table(flat.drop_columns(["p"]), tmp_path / "folder/p=7/2.parquet")
        answers = []
        for is_native in (True, False) if name in native else (True,):
            reader = spark.read.format("indextables").options(
                **{"spark.indextables.read.driver.maxRows": 0,
                   "spark.indextables.read.nativeScan.enabled": is_native}
            )  # fmt: skip
            frame = reader.load(index.uri)
            plan = frame._jdf.queryExecution().executedPlan().toString()
            assert ("ParquetScan" in plan) == (name in native and is_native), name
            if name in native:
                some = frame.where(f"id > 2 AND {frame.columns[-1]} IS NOT NULL OR body IS NULL")
                answers.append([sorted(map(repr, rows.collect())) for rows in (frame, some)])
        assert all(answer == answers[0] for answer in answers), name


# --- statements ----------------------------------------------------------------------------------


def row(frame) -> dict[str, object]:
    (found,) = frame.collect()
    return found.asDict()


def test_the_life_of_an_index_by_name(spark, tmp_path):
    source, moved = tmp_path / "it's a source", tmp_path / "moved"
    write_deltalake(source, ROWS.slice(0, 3))
    create = (
        f"CREATE SEARCH INDEX IF NOT EXISTS docs_search ON delta.`{source}` (body) "
        "OPTIONS (spark.indextables.indexing.typemap.body 'text')"
    )
    made = row(spark.sql(create))
    assert (made["status"], made["files_indexed"], made["rows_indexed"]) == ("SUCCESS", 1, 3)
    assert row(spark.sql(create))["status"] == "EXISTS"
    with pytest.raises(it.IndexTablesError, match="already"):
        spark.sql(create.replace("IF NOT EXISTS", ""))
    assert "docs_search" in {t.name for t in spark.catalog.listTables()}
    query = (
        "SELECT id, body, _score FROM docs_search WHERE body indexquery 'fox' "
        "ORDER BY _score DESC LIMIT 10"
    )
    assert ids(spark.sql(query)) == [1]
    write_deltalake(source, ROWS.slice(3), mode="append")
    assert ids(spark.sql(query)) == [1, 4, 5]
    assert row(spark.sql("DESCRIBE SEARCH INDEX docs_search"))["files_not_indexed"] == 1
    done = row(spark.sql("REFRESH SEARCH INDEX docs_search"))
    assert (done["files_indexed"], done["failed"], done["source_version"]) == (1, [], "version 1")
    assert ids(spark.sql(query)) == [1, 4, 5]
    assert ids(spark.sql("SELECT id FROM docs_search VERSION AS OF 0")) == [1, 2, 3]
    with pytest.raises(Exception, match="has no version 9"):
        spark.sql("SELECT id FROM docs_search VERSION AS OF 9")
    # The source is moved: the query says what to do, and the index is found all the same.
    source.rename(moved)
    with pytest.raises(Exception, match="REFRESH SEARCH INDEX"):
        spark.sql(query)
    with pytest.raises(it.IndexTablesError, match="delta"):
        spark.sql(f"REFRESH SEARCH INDEX docs_search ON parquet.`{moved}`")
    done = row(spark.sql(f"REFRESH SEARCH INDEX docs_search ON delta.`{moved}`"))
    assert done["files_indexed"] == 0 and done["source"] == str(moved)
    assert ids(spark.sql(query)) == [1, 4, 5]
    shutil.rmtree(moved)
    dropped = row(spark.sql("DROP SEARCH INDEX docs_search"))
    assert dropped["status"] == "DROPPED"
    assert not list(Path(str(dropped["index_path"])).rglob("*.split"))
    assert "docs_search" not in {t.name for t in spark.catalog.listTables()}
    assert row(spark.sql("DROP SEARCH INDEX IF EXISTS docs_search"))["status"] == "NOT FOUND"
    with pytest.raises(it.IndexTablesError, match="no search index"):
        spark.sql("DROP SEARCH INDEX docs_search")


def test_refreshes_by_a_stream(spark, tmp_path):
    """What the page on the lakehouse shows for Delta, whose stream needs a jar."""
    source = tmp_path / "source"
    source.mkdir()
    pq.write_table(ROWS.slice(0, 2), source / "a.parquet")
    index = it.SearchIndex.create(
        tmp_path / "index", source=source, format="parquet", columns=["body"]
    )
    pq.write_table(ROWS.slice(2), source / "b.parquet")

    def refresh(batch, number):
        spark.sql(f"REFRESH SEARCH INDEX '{index.uri}'")

    stream = spark.readStream.schema("id LONG, body STRING").parquet(str(source)).writeStream
    stream.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(
        availableNow=True
    ).foreachBatch(refresh).start().awaitTermination()
    assert index.describe()["files_not_indexed"] == 0
    assert index.search("fox").num_rows == 3


@pytest.mark.parametrize("name", ["indextables.lake.docs", "indextables.docs_there", "'{path}'"])
def test_an_index_in_another_place(spark, tmp_path, name):
    """Over a table of Spark's catalog, under a name of our catalog, at a LOCATION, at a path."""
    place, is_path = tmp_path / "index", name.startswith("'")
    spark.createDataFrame(ROWS.to_pandas()).write.mode("overwrite").saveAsTable(
        "plain_docs", format="parquet"
    )
    name = name.format(path=place)
    queried = f"indextables.`{place}`" if is_path else name
    location = "" if is_path else f"LOCATION '{place}'"
    spark.sql(f"CREATE SEARCH INDEX {name} ON plain_docs (body, day) {location}")
    assert (place / "_transaction_log").is_dir()
    assert ids(spark.sql(f"SELECT id FROM {queried} WHERE body indexquery 'dog'")) == [2, 4]
    assert row(spark.sql(f"DESC SEARCH INDEX {name}"))["columns"] == ["body", "day"]
    assert spark.table("plain_docs").count() == 5
    spark.sql(f"DROP SEARCH INDEX {name}")
    assert not (place / "_transaction_log").exists()
    assert spark.table("plain_docs").count() == 5
    spark.sql("DROP TABLE plain_docs")


def test_an_index_in_the_warehouse(spark, tmp_path):
    write_deltalake(tmp_path / "source", ROWS)
    spark.sql(f"CREATE SEARCH INDEX indextables.lake.mine ON delta.`{tmp_path / 'source'}` (body)")
    assert "mine" in {t.tableName for t in spark.sql("SHOW TABLES IN indextables.lake").collect()}
    assert spark.sql("SELECT count(*) FROM indextables.lake.mine").collect()[0][0] == 5
    spark.sql("DROP SEARCH INDEX indextables.lake.mine")
    assert not spark.sql("SHOW TABLES IN indextables.lake").collect()


WRONG = [
    ("CREATE SEARCH INDEX x ON '{source}' (body)", "delta.`"),
    ("CREATE SEARCH INDEX x ON no_such_table (body)", "no table no_such_table"),
    ("CREATE SEARCH INDEX x ON delta.`{source}/none` (body)", "no Delta source"),
    ("CREATE SEARCH INDEX x ON delta.`{source}` (boddy)", "boddy"),
    ("CREATE SEARCH INDEX x ON delta.`{source}` (body) OPTIONS (secret 'x')", "OPTIONS are"),
    ("CREATE SEARCH INDEX x ON delta.`{source}` (body) LOCATION '{source}'", "same folder"),
    ("CREATE SEARCH INDEX x.y.z ON delta.`{source}` (body)", "x"),
    ("CREATE SEARCH INDEX x delta.`{source}` (body)", "ON"),
    ("REFRESH SEARCH INDEX '{table}'", "not a search index"),
    ("DROP SEARCH INDEX '{table}'", "not a search index"),
    ("REFRESH SEARCH INDEX '{source}/none'", "not an index table"),
]


def test_a_wrong_statement_is_a_sentence(spark, tmp_path):
    write_deltalake(tmp_path / "source", ROWS)
    it.Table.create(tmp_path / "table", data=ROWS)
    for sql, message in WRONG:
        text = sql.format(source=tmp_path / "source", table=tmp_path / "table")
        with pytest.raises(it.IndexTablesError, match=message):
            spark.sql(text)
    assert "x" not in {t.name for t in spark.catalog.listTables()}
    assert it.Table.open(tmp_path / "table").count() == 5


def test_writes_are_refused(spark, partitioned):
    before = partitioned.refresh().version
    name = f"indextables.`{partitioned.uri}`"
    frame = spark.createDataFrame(
        ROWS.to_pandas(), "id long, day string, body string, price double"
    )
    writer = frame.write.format("indextables")
    for change in (
        lambda: spark.sql(f"INSERT INTO {name} VALUES (9, 'a', 'x', 1.0D)"),
        lambda: spark.sql(f"INSERT OVERWRITE {name} VALUES (9, 'a', 'x', 1.0D)"),
        lambda: spark.sql(f"DELETE FROM {name} WHERE id = 1"),
        lambda: spark.sql(f"UPDATE {name} SET id = 1"),
        lambda: spark.sql(
            f"MERGE INTO {name} t USING {name} s ON t.id = s.id WHEN MATCHED THEN DELETE"
        ),
        lambda: spark.sql(f"TRUNCATE TABLE {name}"),
        lambda: spark.sql(f"ALTER TABLE {name} ADD COLUMN x INT"),
        lambda: spark.sql(f"ALTER TABLE {name} DROP PARTITION (day = 'a')"),
        lambda: spark.sql(f"CREATE OR REPLACE TABLE {name} (id INT)"),
        lambda: spark.sql(f"DROP INDEXTABLES PARTITIONS FROM {name} WHERE day = 'a'"),
        lambda: spark.readStream.format("indextables").load(partitioned.uri),
        lambda: writer.mode("append").save(partitioned.uri),
        lambda: writer.mode("overwrite").save(partitioned.uri),
        lambda: writer.mode("overwrite").option("overwriteSchema", True).save(partitioned.uri),
        lambda: frame.mergeInto(name, frame.id == 1).whenMatched().delete().merge(),
    ):
        with pytest.raises(Exception, match="REFRESH SEARCH INDEX") as error:
            change()
        assert partitioned.source in str(error.value)
    assert partitioned.refresh().version == before
    assert partitioned.count() == 5


def test_upkeep_and_ranked_relations(spark, tmp_path):
    """Statements of upkeep, snippets and `indextables_search`, over an index that was merged."""
    source = tmp_path / "source"
    for start in range(0, 4):
        write_deltalake(source, ROWS.slice(start, 1).drop_columns(["day"]), mode="append")
    key = "spark.indextables.indexing.tokenizer.body"
    spark.sql(f"CREATE SEARCH INDEX kept ON delta.`{source}` (body) OPTIONS ('{key}' = 'english')")
    try:
        path = spark.sql("DESCRIBE SEARCH INDEX kept").first()["index_path"]
        index = it.SearchIndex.open(path)
        before = index.search("foxes", snippets=["body"], limit=None)
        (built,) = spark.sql("INDEX CROSSREFERENCES FOR kept").collect()
        assert built.action == "created"
        with pytest.raises(Exception, match="over all of its splits"):
            spark.sql("INDEX CROSSREFERENCES FOR kept WHERE day = 'a'")
        (merged,) = spark.sql("MERGE SPLITS kept").collect()
        assert (merged.metrics.merged_files, merged.metrics.merge_groups) == (4, 1)
        checks = spark.sql("VERIFY INDEXTABLES kept").collect()
        assert {row["status"] for row in checks} == {"OK"}
        warm = spark.sql(f"PREWARM INDEXTABLES CACHE '{path}'").collect()
        assert {row.splits_prewarmed for row in warm} == {1}
        write_deltalake(source, ROWS.slice(4).drop_columns(["day"]), mode="append")
        spark.sql("REFRESH SEARCH INDEX kept")
        query = "SELECT id FROM kept WHERE body indexquery 'foxes AND -hounds'"
        assert ids(spark.sql(query)) == [1, 4, 5]
        assert ids(spark.sql("SELECT id FROM kept WHERE price > 2")) == [2, 4, 5]
        assert spark.sql("SELECT count(*) FROM kept WHERE body IS NULL").first()[0] == 1
        marked = spark.sql(
            "SELECT id, snippet(body, 'foxes') AS s FROM kept WHERE body indexquery 'foxes'"
        )
        assert {row.id: row.s for row in marked.collect()}[1] == "red <b>fox</b>"
        ranked = spark.sql(
            "SELECT id, _score, _snippet_body FROM "
            "indextables_search('kept', 'foxes', snippets => 'body', limit => 10)"
        ).collect()
        expected = index.search("foxes", snippets=["body"], limit=None)
        assert [row.id for row in ranked] == expected["id"].to_pylist()
        assert [row["_snippet_body"] for row in ranked] == expected["_snippet_body"].to_pylist()
        old = spark.sql("SELECT id FROM kept VERSION AS OF 3 WHERE body indexquery 'fox'")
        assert ids(old) == sorted(before["id"].to_pylist())
        named = it.search_table(spark, path, "fox", fields=["body^2"], limit=2)
        assert named.count() == 2
    finally:
        spark.sql("DROP SEARCH INDEX kept")


# --- what sources can be like --------------------------------------------------------------------


def test_deletion_vectors_mapped_columns_and_new_ones(spark, tmp_path):
    """Rows that are dead, columns under other names, a column that older files do not have."""
    log = DeltaLog(tmp_path / "source", features=("deletionVectors", "columnMapping"))
    names = [field("id", "long", "col-1", 1), field("body", "string", "col-2", 2)]
    rows = pa.table({"col-1": [1, 2, 3, 4], "col-2": ["red fox", "lazy dog", None, "fox and dog"]})
    first = log.add("a.parquet", rows, dead=(0,))
    log.commit(log.protocol, log.metadata(names, mode="name"), first)
    spark.sql(f"CREATE SEARCH INDEX mapped ON delta.`{tmp_path / 'source'}` (body)")
    names[0] = field("number", "long", "col-1", 1)
    names.append(field("tag", "string", "col-3", 3))
    more = pa.table({"col-1": [5], "col-2": ["a fox"], "col-3": ["new"]})
    log.commit(log.metadata(names, mode="name"), log.add("b.parquet", more))
    query = "SELECT number, tag FROM mapped WHERE body indexquery 'fox' ORDER BY number"
    for _ in range(2):
        for most_rows in ("1000", "0"):  # on the driver, in tasks
            spark.conf.set("spark.indextables.read.driver.maxRows", most_rows)
            try:
                assert [tuple(r) for r in spark.sql(query).collect()] == [(4, None), (5, "new")]
                assert spark.sql("SELECT count(*), sum(number) FROM mapped").collect()[0] == (4, 14)
                assert spark.sql("SELECT count(tag) FROM mapped").collect()[0][0] == 1
            finally:
                spark.conf.unset("spark.indextables.read.driver.maxRows")
        log.commit(log.remove(first), log.add("a.parquet", dead=(0, 3)), log.add("c.parquet", more))
        first = log.add("a.parquet", dead=(0, 3))
        expected = [(5, "new"), (5, "new")]
        assert [tuple(r) for r in spark.sql(query).collect()] == expected
        log.commit(
            log.remove(first), log.add("a.parquet", dead=(0,)), log.remove(log.add("c.parquet"))
        )
        first = log.add("a.parquet", dead=(0,))
        spark.sql("REFRESH SEARCH INDEX mapped")
    assert [c.name for c in spark.catalog.listColumns("mapped")] == ["number", "body", "tag"]
    old = spark.sql("SELECT * FROM mapped VERSION AS OF 0")
    assert old.columns == ["id", "body"] and ids(old) == [2, 3, 4]
    spark.sql("DROP SEARCH INDEX mapped")


def test_a_mapping_of_ones_own(spark, tmp_path):
    write_deltalake(tmp_path / "source", ROWS)
    spark.sql(
        f"CREATE SEARCH INDEX exact ON delta.`{tmp_path / 'source'}` (body, day) "
        "OPTIONS ('spark.indextables.indexing.typemap.body' = 'string')"
    )
    write_deltalake(tmp_path / "source", ROWS.slice(0, 1), mode="append")
    for _ in range(2):
        assert ids(spark.sql("SELECT id FROM exact WHERE body indexquery 'fox'")) == []
        found = spark.sql("SELECT id FROM exact WHERE body indexquery '\"red fox\"'")
        assert ids(found) == [1, 1]
        hits = spark.sql("SELECT id, body indexquery 'fox' AS hit FROM exact")
        assert not any(r.hit for r in hits.collect())
        assert ids(spark.sql("SELECT id FROM exact WHERE indexqueryall('day:b')")) == [3, 4]
        spark.sql("REFRESH SEARCH INDEX exact")
    spark.sql("DROP SEARCH INDEX exact")


def test_times_of_the_source(spark, tmp_path):
    write_deltalake(tmp_path / "source", ROWS.slice(0, 2))
    time.sleep(0.01)
    between = datetime.datetime.now(datetime.UTC).replace(tzinfo=None).isoformat()
    time.sleep(0.01)
    write_deltalake(tmp_path / "source", ROWS.slice(2), mode="append")
    spark.sql(f"CREATE SEARCH INDEX '{tmp_path / 'x'}' ON delta.`{tmp_path / 'source'}`")
    name = f"indextables.`{tmp_path / 'x'}`"
    old = spark.sql(
        f"SELECT id FROM {name} TIMESTAMP AS OF '{between}' WHERE body indexquery 'dog'"
    )
    assert ids(old) == [2]
    assert ids(spark.sql(f"SELECT id FROM {name}")) == [1, 2, 3, 4, 5]
    with pytest.raises(Exception, match="2001"):
        spark.sql(f"SELECT id FROM {name} TIMESTAMP AS OF '2001-01-01'").collect()


@bridge_first
def test_on_s3(door, s3, tmp_path):
    """A source in a bucket, with an index there, and with one on the disk."""
    source = f"s3://tables/{tmp_path.name}-spark-lake"
    options = {k: str(v) for k, v in s3.options.items()}
    write_deltalake(source, ROWS, storage_options=options)
    hadoop = {
        "spark.hadoop.fs.s3a.access.key": options["aws_access_key_id"],
        "spark.hadoop.fs.s3a.secret.key": options["aws_secret_access_key"],
        "spark.hadoop.fs.s3a.endpoint": options["aws_endpoint"],
        "spark.hadoop.fs.s3a.endpoint.region": options["aws_region"],
        "spark.hadoop.fs.s3a.path.style.access": "true",
    }
    for name, value in hadoop.items():
        door.conf.set(name, value)
    try:
        for place in (f"{source}-index", str(tmp_path / "index")):
            door.sql(f"CREATE SEARCH INDEX '{place}' ON delta.`{source}` (body)")
            frame = door.read.format("indextables").load(place)
            assert ids(frame.where("body indexquery 'fox'")) == [1, 4, 5]
            door.conf.set("spark.indextables.read.driver.maxRows", "0")
            assert ids(frame.where("body indexquery 'dog' AND price > 3")) == [4]
            door.conf.unset("spark.indextables.read.driver.maxRows")
            door.sql(f"DROP SEARCH INDEX '{place}'")
    finally:
        for name in hadoop:
            door.conf.unset(name)
        door.conf.unset("spark.indextables.read.driver.maxRows")


def test_files_that_are_damaged_or_lost(spark, tmp_path):
    """A file that cannot be read is named by the queries that need it; the others are answered."""
    source = tmp_path / "source"
    source.mkdir()
    pq.write_table(ROWS.slice(0, 2), source / "a.parquet")
    pq.write_table(ROWS.slice(3), source / "b.parquet")
    name = f"'{tmp_path / 'index'}'"
    spark.sql(f"CREATE SEARCH INDEX {name} ON parquet.`{source}` (body)")
    (source / "c.parquet").write_bytes(b"PAR1 damaged PAR1")
    done = row(spark.sql(f"REFRESH SEARCH INDEX {name}"))
    assert done["status"] == "INCOMPLETE" and "c.parquet" in str(done["failed"])
    query = f"SELECT id FROM indextables.`{tmp_path / 'index'}` WHERE body indexquery "
    with pytest.raises(Exception, match=r"c\.parquet.*cannot be read"):
        spark.sql(f"{query} 'fox'").collect()
    (source / "c.parquet").unlink()
    assert ids(spark.sql(f"{query} 'fox'")) == [1, 4, 5]
    # Damage in the rows of a file that is indexed: only who needs these rows is concerned.
    data = bytearray((source / "b.parquet").read_bytes())
    stamp = (source / "b.parquet").stat()
    data[4:40] = bytes(36)
    (source / "b.parquet").write_bytes(data)
    os.utime(source / "b.parquet", ns=(stamp.st_atime_ns, stamp.st_mtime_ns))
    assert ids(spark.sql(f"{query} 'lazy'")) == [2]
    with pytest.raises(Exception, match=r"b\.parquet"):
        spark.sql(f"{query} 'and'").collect()


def test_few_rows_of_a_file_that_spark_wrote(spark, tmp_path):
    source = tmp_path / "source"
    columns = (
        "id", "concat('word', id, ' ', hex(hash(id))) AS body", "id % 7 AS few",
        "timestamp_micros(id * 1000) AS at", "date_add(DATE'2024-01-01', int(id % 900)) AS d",
        "cast(id AS decimal(12, 2)) AS money", "IF(id % 3 = 0, NULL, id / 7) AS x",
        "array(id) AS l",
    )  # fmt: skip
    frame = spark.range(60_000).selectExpr(*columns).coalesce(1)
    frame.write.parquet(str(source))
    index = it.SearchIndex.create(
        tmp_path / "index", source=source, format="parquet", columns=["body"]
    )
    words = "word7 OR word29999 OR word30000 OR word59999"
    read = spark.read.format("indextables").load(index.uri).where(f"body indexquery '{words}'")
    expected = frame.where("id IN (7, 29999, 30000, 59999)")
    assert sorted(read.collect()) == sorted(expected.collect())


def test_a_source_that_was_dropped_and_made_again(spark, partitioned):
    query = f"SELECT id FROM indextables.`{partitioned.uri}` WHERE body indexquery 'fox'"
    assert ids(spark.sql(query)) == [1, 4, 5]
    shutil.rmtree(partitioned.source)
    with pytest.raises(Exception, match="no Delta source"):
        spark.sql(query)
    write_deltalake(partitioned.source, pa.table({"id": [9], "body": ["a fox"]}))
    assert ids(spark.sql(query)) == [9]
    done = row(spark.sql(f"REFRESH SEARCH INDEX '{partitioned.uri}'"))
    assert (done["files_indexed"], done["files_removed"]) == (1, 2)
    assert ids(spark.sql(query)) == [9]


def test_a_table_of_an_iceberg_catalog(spark, tmp_path, monkeypatch):
    table = catalog_in(tmp_path).create_table("db.docs", ROWS.schema)
    table.append(ROWS)
    config = Config()
    config.config = {"catalog": {"test": {"uri": f"sqlite:///{tmp_path}/c.db"}}}
    monkeypatch.setattr("pyiceberg.catalog._ENV_CONFIG", config)  # as in .pyiceberg.yaml
    spark.sql("CREATE SEARCH INDEX by_catalog ON iceberg.`catalog://test/db.docs` (body)")
    try:
        query = "SELECT id FROM by_catalog WHERE body indexquery 'fox'"
        assert ids(spark.sql(query)) == [1, 4, 5]
        table.append(ROWS.slice(0, 1))
        assert spark.sql("REFRESH SEARCH INDEX by_catalog").first()["files_indexed"] == 1
        assert ids(spark.sql(query)) == [1, 1, 4, 5]
    finally:
        spark.sql("DROP SEARCH INDEX by_catalog")


def test_an_iceberg_table(spark, tmp_path):
    rows = pa.table({"id": [1, 2], "body": ["red fox", "lazy dog"]})
    table = catalog_in(tmp_path).create_table("db.docs", rows.schema)
    table.append(rows)
    first = table.current_snapshot().snapshot_id
    place = table.location().removeprefix("file://")
    spark.sql(
        f"CREATE SEARCH INDEX iceberg_search ON iceberg.`{place}` (body) "
        f"LOCATION '{tmp_path}/index'"
    )
    table.append(pa.table({"id": [3], "body": ["blue fox"]}))
    search = "body indexquery 'fox'"
    found = spark.sql(f"SELECT id FROM iceberg_search WHERE {search} ORDER BY id").collect()
    assert [row["id"] for row in found] == [1, 3]
    old = spark.sql(f"SELECT id FROM iceberg_search VERSION AS OF {first} WHERE {search}").collect()
    assert [row["id"] for row in old] == [1]
    assert spark.sql("REFRESH SEARCH INDEX iceberg_search").collect()[0]["files_indexed"] == 1
    spark.sql("DROP SEARCH INDEX iceberg_search")
