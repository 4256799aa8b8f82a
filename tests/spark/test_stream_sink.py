"""Streams into a table: every batch once."""

from __future__ import annotations

import killed_stream
import pytest
from pyspark.errors import PySparkException

from indextables import Table


@pytest.fixture
def place(tmp_path):
    (tmp_path / "in").mkdir()
    return tmp_path


def feed(place, name: str, *lines: str) -> None:
    (place / f"{name}.tmp").write_text("\n".join(lines))
    (place / f"{name}.tmp").rename(place / "in" / f"{name}.txt")


def run(spark, place, *, table="t", checkpoint="c", mode="append", frame=None, **options):
    rows = spark.readStream.text(str(place / "in"))
    writer = (frame(rows) if frame else rows).writeStream.format("indextables").outputMode(mode)
    writer = writer.option("checkpointLocation", str(place / checkpoint)).options(**options)
    query = writer.trigger(availableNow=True).start(str(place / table))
    assert query.awaitTermination(120)
    return query


def texts(place, table="t") -> list[str]:
    return sorted(Table.open(place / table).scan()["value"].to_pylist())


def test_batches_are_appended_once(spark, place):
    feed(place, "a", "red fox", "lazy dog")
    run(spark, place)
    feed(place, "b", "old fox")
    query = run(spark, place)
    assert texts(place) == ["lazy dog", "old fox", "red fox"]
    table = Table.open(place / "t")
    assert table.snapshot().txns[str(query.id)].version == 1
    assert table.count(where="value indexquery 'fox'") == 2
    # Spark forgets that it finished the batch, as if it had been killed after our commit.
    (place / "c" / "commits" / "1").unlink()
    (place / "c" / "commits" / ".1.crc").unlink(missing_ok=True)
    run(spark, place)
    assert len(texts(place)) == 3
    assert Table.open(place / "t").version == table.version


def test_complete_mode_partitions_and_other_outputs(spark, place):
    feed(place, "a", "fox", "dog", "fox")
    counted = lambda rows: rows.groupBy("value").count()  # noqa: E731
    doubled = lambda rows: rows.selectExpr("value", "value AS again")  # noqa: E731
    run(spark, place, table="c1", mode="complete", frame=counted)
    feed(place, "b", "fox", "owl")
    run(spark, place, table="c1", mode="complete", frame=counted)
    found = Table.open(place / "c1").scan().to_pylist()
    assert {row["value"]: row["count"] for row in found} == {"fox": 3, "dog": 1, "owl": 1}
    assert Table.open(place / "c1").version == 1
    run(spark, place, table="p", checkpoint="cp", frame=doubled, partitionBy="value")
    assert Table.open(place / "p").partition_columns == ("value",)
    rows = doubled(spark.readStream.text(str(place / "in")))
    query = rows.writeStream.format("indextables").partitionBy("value")
    query = query.option("checkpointLocation", str(place / "cq")).trigger(availableNow=True)
    query.start(str(place / "q")).awaitTermination(120)
    assert Table.open(place / "q").partition_columns == ("value",)
    with pytest.raises(Exception, match=r"[Uu]pdate"):
        run(spark, place, table="u", checkpoint="cu", mode="update", frame=counted)


def failure(spark, place, **options) -> str:
    from pyspark.errors import PySparkException

    with pytest.raises(PySparkException) as caught:
        run(spark, place, **options)
    return str(caught.value)


def test_what_a_stream_must_not_do_is_a_sentence(spark, place):
    from pyspark.sql import functions as f

    feed(place, "a", "fox")
    run(spark, place)
    feed(place, "b", "dog")
    # The checkpoint belongs to another table.
    assert "belongs to another table" in failure(spark, place, table="elsewhere")
    assert not Table.exists(place / "elsewhere")
    # Its columns changed.
    Table.open(place / "t").rename_column("value", "text")
    assert "value" in failure(spark, place)
    Table.open(place / "t").rename_column("text", "value")
    assert "'more'" in failure(spark, place, frame=lambda rows: rows.withColumn("more", f.lit(1)))
    run(spark, place, frame=lambda rows: rows.withColumn("more", f.lit(1)), mergeSchema="true")
    assert texts(place) == ["dog", "fox"]
    assert "foreachBatch" in failure(spark, place, checkpoint="x", replaceWhere="value = 'a'")


def test_the_sessions_configuration_reaches_a_stream(spark, place):
    feed(place, "a", "10.0.0.1", "10.0.0.2")
    spark.conf.set("spark.indextables.indexing.typemap.value", "string")
    try:
        run(spark, place)
    finally:
        spark.conf.unset("spark.indextables.indexing.typemap.value")
    assert Table.open(place / "t").mapping == {"value": "string"}


@pytest.mark.parametrize("name", ["stream_from", "indextables.stream_from"])
def test_a_stream_from_a_named_table(spark, place, name):
    def run(target, **options):
        rows = spark.readStream.options(**options).table(name).where("value indexquery 'fox'")
        writer = rows.writeStream.option("checkpointLocation", str(place / f"{target}-state"))
        query = writer.trigger(availableNow=True).format("indextables").start(str(place / target))
        assert query.awaitTermination(120) and query.exception() is None
        return sorted(Table.open(place / target).scan()["value"].to_pylist())

    spark.sql(f"CREATE TABLE {name} (value string) USING indextables")
    try:
        spark.sql(f"INSERT INTO {name} VALUES ('red fox'), ('dog')")
        assert run("all") == ["red fox"]
        spark.sql(f"INSERT INTO {name} VALUES ('blue fox')")
        assert run("all") == ["blue fox", "red fox"]
        assert run("new", startingVersion="2") == ["blue fox"]
    finally:
        spark.sql(f"DROP TABLE {name}")
    with pytest.raises(PySparkException, match=r"TABLE_OR_VIEW_NOT_FOUND|no index table"):
        spark.readStream.table(name)


def test_named_tables_and_the_option_path(spark, place):
    """`toTable` makes a table or takes the one there; a batch that comes again is not doubled."""

    def named(name, *, checkpoint, source="indextables", frame=lambda rows: rows, **options):
        writer = frame(spark.readStream.text(str(place / "in"))).writeStream.options(**options)
        writer = writer.format(source) if source else writer
        writer = writer.option("checkpointLocation", str(place / checkpoint))
        query = writer.trigger(availableNow=True).toTable(name)
        assert query.awaitTermination(120) and query.exception() is None

    def again(checkpoint):
        (place / checkpoint / "commits" / "0").unlink()
        (place / checkpoint / "commits" / ".0.crc").unlink(missing_ok=True)

    feed(place, "a", "red fox", "lazy dog")
    names = ["streamed_bare", "indextables.streamed", "indextables.streamed_there", "streamed_far"]
    mapped = {"spark.indextables.indexing.typemap.value": "string"}
    try:
        spark.sql(
            "CREATE TABLE indextables.streamed_there (value string, p int) USING indextables "
            "PARTITIONED BY (p)"
        )
        spark.sql("ALTER TABLE indextables.streamed_there RENAME COLUMN value TO text")
        both = lambda rows: rows.selectExpr("value AS text", "length(value) AS p")  # noqa: E731
        named(names[0], checkpoint="n0", **mapped)
        named(names[1], checkpoint="n1")
        named(names[2], checkpoint="n2", source=None, frame=both)
        named(names[3], checkpoint="n3", path=str(place / "far"))
        for checkpoint in ("n0", "n2"):
            again(checkpoint)
        named(names[0], checkpoint="n0", **mapped)
        named(names[2], checkpoint="n2", source=None, frame=both)
        for name in names:
            assert spark.table(name).count() == 2, name
        assert spark.sql(f"SELECT p FROM {names[2]} WHERE text indexquery 'fox'").first().p == 7
        assert Table.open(place / "far").count() == 2
        exact = spark.sql(f"SELECT * FROM {names[0]} WHERE value indexquery 'fox'")
        assert exact.count() == 0, "the options of the stream are those of the new table"
    finally:
        for name in names:
            spark.sql(f"DROP TABLE IF EXISTS {name}")
    run(spark, place, table="by_path", checkpoint="n4")
    writer = spark.readStream.text(str(place / "in")).writeStream.format("indextables")
    again("n4")
    writer = writer.option("checkpointLocation", str(place / "n4")).option(
        "path", str(place / "by_path")
    )
    assert writer.trigger(availableNow=True).start().awaitTermination(120)
    assert len(texts(place, "by_path")) == 2
    # Tables of other sources stay with Spark.
    named("streamed_plain", checkpoint="n5", source="parquet")
    assert spark.table("streamed_plain").count() == 2
    spark.sql("DROP TABLE streamed_plain")


@pytest.mark.long
def test_a_stream_that_is_killed_in_every_phase(tmp_path):
    """`kill -9` of the JVM and its workers: before, in and after each of the steps of a batch."""
    lines = [f"line{number}" for number in range(6)]
    (tmp_path / "in").mkdir()
    for number, line in enumerate(lines):
        (tmp_path / f"in/{number}").write_text(f"{line}\n")

    def there(pattern: str):
        known = set(tmp_path.glob(pattern))
        return lambda: bool(set(tmp_path.glob(pattern)) - known)

    phases = ["c/offsets/[0-9]*", "t/**/*.split", "t/_transaction_log/*.json", "c/commits/[0-9]*"]
    for phase in phases:
        assert not killed_stream.run(tmp_path, until=there(phase)), f"{phase} was never there"
        if Table.exists(tmp_path / "t"):
            found = Table.open(tmp_path / "t").scan()["value"].to_pylist()
            assert len(found) == len(set(found)), phase
    assert killed_stream.run(tmp_path)
    table = Table.open(tmp_path / "t")
    assert sorted(table.scan()["value"].to_pylist()) == sorted(lines)
    assert table.count(where="value indexquery 'line5'") == 1
    assert all(check.passed for check in table.verify())
