"""Where a scan runs, what it leaves out, and what Spark's UI is told about it."""

from __future__ import annotations

import secrets

import pyarrow as pa
import pytest

from indextables import Table
from indextables.config import DRIVER_MAX_AGGREGATED_ROWS
from indextables.plan.scan import SplitTask
from indextables.plan.split_reader import in_groups
from indextables.predicate import TRUE
from indextables.spark.bridge.jvm import handles as local_rows
from indextables.spark.bridge.jvm.handles import Jvm
from indextables.spark.bridge.scan import builder

ROWS = 4_000
DAYS = 4
DRIVER = "spark.indextables.read.driver.maxRows"
NAN = float("nan")


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """Four partitions of one split each; ids rise with the days."""
    path = str(tmp_path_factory.mktemp("scans") / "docs")
    schema = pa.schema(
        [
            ("id", pa.int64()),
            ("content", pa.string()),
            ("tag", pa.string()),
            ("n", pa.int32()),
            ("day", pa.string()),
        ]
    )
    table = Table.create(path, schema, partition_by=["day"], mapping={"tag": "string"})
    for day in range(DAYS):
        numbers = range(day * ROWS // DAYS, (day + 1) * ROWS // DAYS)
        rows = {
            "id": numbers,
            "content": [f"red fox w{i % 100}" for i in numbers],
            "tag": [f"Blue Whale {i % 10}" for i in numbers],
            "n": [i % 7 for i in numbers],
            "day": [f"d{day}"] * len(numbers),
        }
        table.append(pa.table(rows, schema=schema))
    return path


@pytest.fixture
def settings(spark):
    """Sets settings of the session for one test."""
    changed = []

    def change(name, value):
        spark.conf.set(name, str(value))
        changed.append(name)

    yield change
    for name in changed:
        spark.conf.unset(name)


def plan_of(frame):
    return frame._jdf.queryExecution().executedPlan().toString()


def metrics_of(spark, frame):
    """What the UI shows for the query that a frame is, once it ran."""
    frame.collect()
    spark.sparkContext._jsc.sc().listenerBus().waitUntilEmpty()
    store = spark._jsparkSession.sharedState().statusStore()
    execution = store.executionsList().last()
    values = store.executionMetrics(execution.executionId())
    found = {}
    for at in range(execution.metrics().size()):
        metric = execution.metrics().apply(at)
        value = values.get(metric.accumulatorId())
        if value.isDefined():
            # The sum stands in a second line where there is one; Spark shows it as a size.
            found.setdefault(metric.name(), value.get().split("\n")[-1].split(" (")[0])
    return found


# --- searches --------------------------------------------------------------------------------


@pytest.mark.parametrize("rows", [0, 10_000])
def test_a_search_is_the_index_s_even_where_its_column_is_read(spark, place, settings, rows):
    settings(DRIVER, rows)
    found = spark.sql(f"SELECT * FROM indextables.`{place}` WHERE content indexquery 'w7'")
    assert "ArrowEvalPython" not in plan_of(found)
    assert found.count() == ROWS // 100


@pytest.mark.parametrize("rows", [0, 10_000])
def test_a_search_means_what_the_table_s_analyzer_says(spark, place, settings, rows):
    settings(DRIVER, rows)
    query = f"SELECT tag FROM indextables.`{place}` WHERE tag indexquery '{{}}'"
    # `tag` is one whole value; as words it would match both.
    assert len(spark.sql(query.format('"Blue Whale 3"')).collect()) == ROWS // 10
    assert spark.sql(query.format("whale")).collect() == []


def test_a_search_of_all_columns_reaches_the_index_through_a_view(spark, place):
    spark.sql(f"SELECT * FROM indextables.`{place}`").createOrReplaceTempView("scans_view")
    try:
        for text in (
            "SELECT id FROM scans_view WHERE indexqueryall('w7')",
            "WITH c AS (SELECT * FROM scans_view) SELECT id FROM c WHERE _indexall indexquery 'w7'",
        ):
            found = spark.sql(text)
            assert "ArrowEvalPython" not in plan_of(found)
            assert found.count() == ROWS // 100
        # A view of some columns is searched in those, which the index cannot tell apart.
        spark.sql(f"SELECT id, tag FROM indextables.`{place}`").createOrReplaceTempView(
            "scans_view"
        )
        assert spark.sql("SELECT * FROM scans_view WHERE indexqueryall('w7')").count() == 0
    finally:
        spark.catalog.dropTempView("scans_view")


def test_a_new_session_of_an_enabled_one_knows_index_tables(spark, place):
    other = spark.newSession()
    assert other.sql(f"SELECT count(*) FROM indextables.`{place}`").collect()[0][0] == ROWS
    assert spark.getActiveSession()._jsparkSession.equals(spark._jsparkSession)


# --- where it runs ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("query", "most", "there"),
    [
        ("SELECT n, count(*) FROM {t} WHERE content indexquery 'fox' GROUP BY n", 99, "BatchScan"),
        ("SELECT n, count(*) FROM {t} WHERE content indexquery 'fox' GROUP BY n", ROWS, "Local"),
        ("SELECT count(*) FROM {t} WHERE content indexquery 'fox'", 99, "Local"),
        ("SELECT count(*) FROM {t} WHERE content indexquery 'fox' AND n > 3", 99, "BatchScan"),
    ],
)
def test_who_aggregates_what_a_search_finds(spark, place, settings, query, most, there):
    settings(DRIVER, 50)
    settings(DRIVER_MAX_AGGREGATED_ROWS.name, most)
    text = query.format(t=f"indextables.`{place}`")
    found = spark.sql(text)
    assert there in plan_of(found)
    rows = sorted(found.collect())
    settings(DRIVER, 0)
    assert rows == sorted(spark.sql(text).collect())


@pytest.mark.parametrize(
    ("megabytes", "parallelism", "expected"),
    [
        ([], 4, []),
        ([1, 1, 1], 4, [3]),
        ([35] * 20, 2, [10, 10]),
        ([34, 36] * 10, 2, [10, 10]),
        ([100, 1, 1, 1], 2, [1, 3]),
        ([20] * 3, 8, [1, 1, 1]),
    ],
)
def test_splits_share_no_more_tasks_than_there_are_cores(megabytes, parallelism, expected):
    tasks = [SplitTask(str(i), m << 20, None, None, 1, {}, TRUE) for i, m in enumerate(megabytes)]
    groups = in_groups(tasks, parallelism=parallelism)
    assert [task for group in groups for task in group] == tasks
    assert [len(group) for group in groups] == expected


def test_rows_of_the_driver_may_be_larger_than_spark_s_limit_of_a_stream(spark, monkeypatch):
    monkeypatch.setattr(local_rows, "_STREAM_BYTES", 1_000)
    table = pa.table({"i": range(1_000), "s": [str(i) * 3 for i in range(1_000)]})
    java = Jvm(spark)
    schema = spark.createDataFrame(table)._jdf.schema()
    rows = local_rows.internal_rows(java, table, schema)
    assert [rows[at].getLong(0) for at in (0, 1, 500, 999)] == [0, 1, 500, 999]
    assert rows[999].getUTF8String(1).toString() == "999" * 3
    assert len(rows) == 1_000


@pytest.mark.parametrize("numbers", [[5], [-1, None, 2**62], [None], [7] * 70])
def test_a_row_of_counts(spark, numbers):
    table = pa.table({f"c{i}": pa.array([n], pa.int64()) for i, n in enumerate(numbers)})
    (row,) = local_rows.internal_rows(Jvm(spark), table, None)
    found = [None if row.isNullAt(i) else row.getLong(i) for i in range(len(numbers))]
    assert found == numbers


@pytest.fixture
def readings(monkeypatch):
    """How often the driver read the rows of a scan."""
    found = []
    original = builder._all_rows

    def counted(*args):
        found.append(args)
        return original(*args)

    monkeypatch.setattr(builder, "_all_rows", counted)
    return found


def test_rows_of_a_small_table_are_read_once(spark, tmp_path, readings):
    path = tmp_path / "small"
    rows = {"n": [1, 2, 3], "body": ["a b", "b", "c"], "st": [{"x": i, "y": -i} for i in range(3)]}
    table = Table.create(path, pa.table(rows).schema)
    table.append(pa.table(rows))

    def ask(what, where="true"):
        query = f"SELECT {what} FROM indextables.`{path}` WHERE {where}"
        return sorted(tuple(row) for row in spark.sql(query).collect())

    for times, (what, where, expected) in enumerate(
        [
            ("n", "n > 1", [(2,), (3,)]),
            ("n", "n > 2", [(3,)]),
            ("n, body", "n > 2", [(3, "c")]),
            ("st.x", "true", [(0,), (1,), (2,)]),
            ("st.y", "true", [(-2,), (-1,), (0,)]),  # another part of the same column
        ],
        start=1,
    ):
        assert [ask(what, where) for _ in range(3)] == [expected] * 3
        assert len(readings) == times
    for times in (6, 7):  # what a search finds depends on settings, too
        assert ask("n", "body indexquery 'b'") == [(1,), (2,)]
        assert len(readings) == times
    (split,) = (path / "splits").iterdir()
    split.touch()
    assert ask("n", "n > 1") == [(2,), (3,)]
    assert len(readings) == 8
    table.append(pa.table(rows))
    assert ask("n", "n > 1") == [(2,), (2,), (3,), (3,)]
    table.delete(where="n = 2")
    assert ask("n", "n > 1") == [(3,), (3,)]
    assert len(readings) == 10


def test_large_rows_are_not_kept(spark, tmp_path, readings):
    rows = pa.table({"n": [1, 2], "body": ["word " * 200_000] * 2})
    Table.create(tmp_path / "large", rows.schema).append(rows)
    for _ in range(2):
        query = f"SELECT n, length(body) AS l FROM indextables.`{tmp_path / 'large'}`"
        assert [row.l for row in spark.sql(query).collect()] == [1_000_000] * 2
    assert len(readings) == 2


# --- joins -----------------------------------------------------------------------------------


@pytest.mark.parametrize("native", ["true", "false"])
@pytest.mark.parametrize("key", ["day", "id"])
def test_a_join_with_a_small_table_reads_only_the_splits_it_needs(
    spark, place, settings, tmp_path, native, key
):
    settings(DRIVER, 0)
    settings("spark.indextables.read.nativeScan.enabled", native)
    keys = [("d1", 1_500, "x"), ("d3", 9_999, "y")]
    spark.createDataFrame(keys, "day string, id long, v string").write.parquet(
        str(tmp_path / "keys")
    )
    small = spark.read.parquet(str(tmp_path / "keys")).where("v = 'x'").drop("v")
    rows = spark.read.format("indextables").load(place).select("day", "id", "n")
    joined = rows.join(small, key).selectExpr("sum(n)", "count(*)")
    expected = [i % 7 for i in range(1_000, 2_000)] if key == "day" else [1_500 % 7]
    assert tuple(joined.collect()[0]) == (sum(expected), len(expected))
    assert rows_scanned(joined) == ROWS // DAYS
    # The same table without the join is whole.
    assert rows.selectExpr("sum(n)").collect()[0][0] == sum(i % 7 for i in range(ROWS))


def rows_scanned(frame):
    """How many rows the scan of the index table in an executed plan gave."""
    waiting, found = [frame._jdf.queryExecution().executedPlan()], []
    while waiting:
        node = waiting.pop()
        match node.nodeName():
            case "AdaptiveSparkPlan":
                waiting.append(node.executedPlan())
            case name if "QueryStage" in name:
                waiting.append(node.plan())
            case name if name.startswith("BatchScan"):
                found.append(node.metrics().apply("numOutputRows").value())
            case _:
                children = node.children()
                waiting += [children.apply(at) for at in range(children.size())]
    (rows,) = found
    return rows


# --- what Spark's UI shows -------------------------------------------------------------------


@pytest.mark.parametrize("condition", ["content indexquery 'w7'", "n > 3"])
def test_metrics_of_a_scan(spark, place, settings, condition):
    settings(DRIVER, 0)
    found = spark.sql(
        f"SELECT id FROM indextables.`{place}` WHERE {condition} AND day > 'd0' AND id < 2500"
    )
    shown = metrics_of(spark, found)
    assert shown["splits of the table"] == "4.0 B"
    assert shown["splits pruned by partition"] == "1.0 B"
    assert shown["splits skipped by statistics"] == "1.0 B"
    assert shown["splits routed away"] == "0.0 B"
    assert shown["splits to read"] == "2.0 B"
    assert shown["bytes of the splits to read"].endswith("B")
    assert int(shown["number of output rows"].replace(",", "")) > 0
    assert ("bytes of rows from Python tasks" in shown) == ("indexquery" in condition)


@pytest.mark.long
def test_an_xref_leaves_a_tenth_of_five_hundred_splits(spark, tmp_path, settings):
    settings(DRIVER, 0)
    rows = {"id": range(500), "p": range(500), "body": [f"word{n % 125} fox" for n in range(500)]}
    table = Table.create(tmp_path / "t", pa.table(rows).schema, partition_by=["p"])
    table.append(pa.table(rows))
    assert [len(x.source_split_paths) for x in table.snapshot().xrefs.values()] == [500]
    question = f"SELECT id FROM indextables.`{tmp_path}/t` WHERE body indexquery 'word7'"
    assert sorted(row.id for row in spark.sql(question).collect()) == [7, 132, 257, 382]
    found = spark.sql(question)  # metrics are those of a frame's first run
    shown = {name: float(value.split()[0]) for name, value in metrics_of(spark, found).items()
             if name.startswith("splits")}  # fmt: skip
    assert shown["splits of the table"] == 500
    assert shown["splits routed away"] > 450
    assert shown["splits to read"] < 50


def test_native_scans_read_only_their_columns(spark, tmp_path, settings):
    settings("parquet.hadoop.vectored.io.enabled", "false")  # Hadoop does not count those reads
    # Large enough that a buffer of Hadoop's is a small part of a column.
    texts = pa.array([secrets.token_hex(32) for _ in range(30_000)])
    rows = pa.table({"id": range(30_000), "content": texts, "tag": texts})
    place = tmp_path / "t"
    Table.create(place, rows.schema).append(rows)

    def read(columns):
        group = f"bytes of {columns}"
        spark.sparkContext.setJobGroup(group, group)
        spark.sql(f"SELECT {columns} FROM indextables.`{place}`").collect()
        scala, tracker = spark.sparkContext._jsc.sc(), spark.sparkContext.statusTracker()
        scala.listenerBus().waitUntilEmpty()
        jobs = [tracker.getJobInfo(job) for job in tracker.getJobIdsForGroup(group)]
        stages = {stage for job in jobs for stage in list(job.stageIds)}
        # A stage whose shuffle was there already is skipped, and nothing is known of it.
        ran = [stage for stage in stages if tracker.getStageInfo(stage) is not None]
        return sum(scala.statusStore().lastStageAttempt(stage).inputBytes() for stage in ran)

    try:
        some = read("count(DISTINCT id)")
        every = read("count(DISTINCT id), max(content), max(tag)")
    finally:
        spark.sparkContext.setLocalProperty("spark.jobGroup.id", None)
    assert 0 < 2 * some < every


@pytest.mark.parametrize("most", [10_000, 0], ids=["driver", "tasks"])
def test_texts_with_large_offsets(most, spark, place, settings, tmp_path):
    """A setting of Spark's, about the form in which rows go between Python and the JVM."""
    settings(DRIVER, most)
    rows = spark.read.format("indextables").load(place)
    found = rows.where("content indexquery 'w42'").select("id", "content", "tag", "day")
    expected = sorted(found.collect())
    settings("spark.sql.execution.arrow.useLargeVarTypes", "true")
    again = spark.read.format("indextables").load(place).where("content indexquery 'w42'")
    again = again.select("id", "content", "tag", "day")
    assert sorted(again.collect()) == expected
    assert len(expected) == ROWS // 100
    again.write.format("indextables").save(str(tmp_path / "copy"))
    copy = Table.open(str(tmp_path / "copy")).scan()
    assert sorted(copy.column("id").to_pylist()) == [row.id for row in expected]


# --- what Spark's own reader gives -----------------------------------------------------------


@pytest.fixture(scope="module")
def odd(tmp_path_factory):
    """Partition columns first and between others, names that have to be quoted, NaN, large ids."""
    path = str(tmp_path_factory.mktemp("odd") / "docs")
    rows = pa.table(
        {
            "part": ["p", "q", "p"],
            "a.b": ["red", "fox", None],
            "my `part": ["x", "y", "y"],
            "d": [1.0, float("nan"), 2.0],
            "id": [2**62, 2**62, 1],
        }
    )
    Table.create(path, rows.schema, partition_by=["my `part", "part"]).append(rows)
    return path


@pytest.mark.parametrize("native", ["true", "false"])
@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("SELECT * FROM {}", [("p", None, "y", 2.0, 1), ("p", "red", "x", 1.0, 2**62),
                              ("q", "fox", "y", NAN, 2**62)]),
        ("SELECT part, `a.b`, `my ``part` FROM {}",
         [("p", None, "y"), ("p", "red", "x"), ("q", "fox", "y")]),
        ("SELECT `a.b` FROM {} WHERE `my ``part` = 'y' AND part = 'q'", [("fox",)]),
        ("SELECT part FROM {} WHERE d > 100", [("q",)]),
        ("SELECT part FROM {} WHERE d = DOUBLE('NaN') AND `a.b` = 'fox'", [("q",)]),
        ("SELECT l.part FROM {} l JOIN {} r ON l.`a.b` = r.`a.b` AND r.part = 'q'", [("q",)]),
        ("SELECT avg(id), count(*) FROM {} WHERE id > 1", [(2.0**62, 2)]),
    ],
)  # fmt: skip
def test_columns_keep_their_places_names_and_values(spark, odd, settings, native, query, expected):
    settings(DRIVER, 0)
    settings("spark.indextables.read.nativeScan.enabled", native)
    found = spark.sql(query.replace("{}", f"indextables.`{odd}`")).collect()
    assert sorted(map(repr, map(tuple, found))) == sorted(map(repr, expected))


def test_explain_names_the_scans_of_the_driver(spark, tmp_path, capsys):
    """Spark shows rows that the driver computes as a LocalTableScan, whoever computed them."""
    uri = str(tmp_path / "t")
    rows = spark.createDataFrame([(1, "red fox"), (2, "dog")], "id long, body string")
    rows.write.format("indextables").save(uri)
    query = f"SELECT id FROM indextables.`{uri}` WHERE body indexquery 'fox' AND id > 0"
    for mode in ("", "EXTENDED", "FORMATTED", "COST"):
        ((text,),) = spark.sql(f"EXPLAIN {mode} {query}").collect()
        assert "LocalTableScan" in text
        (line,) = [line for line in text.splitlines() if line.startswith("IndexTables")]
        assert uri in line
        assert "indexquery" in line
        assert "splits" in line
        assert "on the driver" in line
    ((text,),) = spark.sql(f"EXPLAIN {query} AND id > :least", args={"least": -1}).collect()
    assert "on the driver" in text
    nested = f"EXPLAIN SELECT * FROM range(3) WHERE id IN (SELECT max(id) FROM ({query}))"
    assert "on the driver" in spark.sql(nested).first()[0]
    capsys.readouterr()
    spark.sql(query).explain()
    assert "on the driver" in capsys.readouterr().out
    spark.sql(query).explain(mode="formatted")
    assert "on the driver" in capsys.readouterr().out
    for other in ("EXPLAIN SELECT 1", f"EXPLAIN INSERT INTO indextables.`{uri}` VALUES (3, 'x')"):
        assert "on the driver" not in spark.sql(other).first()[0]
    spark.range(1).explain()
    assert "IndexTables" not in capsys.readouterr().out
    assert spark.table(f"indextables.`{uri}`").count() == 2


def test_ties_have_the_order_that_they_have_without_spark(spark, place, tmp_path):
    """Rows written and ranked by Spark, in other splits and without partitions."""
    query = "content indexquery 'fox'"
    spark.read.format("indextables").load(place).where("n < 3").repartition(3).write.format(
        "indextables"
    ).save(str(tmp_path / "copy"))
    written = Table.open(place).search("fox", fields=["content"], where="n < 3", limit=12)
    copied = Table.open(str(tmp_path / "copy")).search("fox", fields=["content"], limit=12)
    ranked = spark.sql(
        f"SELECT id FROM indextables.`{place}` WHERE {query} AND n < 3 "
        "ORDER BY _score DESC LIMIT 12"
    )
    expected = written["id"].to_pylist()
    assert expected != sorted(expected)
    assert copied["id"].to_pylist() == expected
    assert [row.id for row in ranked.collect()] == expected


def test_spark_does_not_sort_ranked_rows_again(spark, place):
    """Its sort would put rows of one score in the order in which its tasks end."""
    table = f"indextables.`{place}` WHERE content indexquery 'fox'"
    best = spark.sql(f"SELECT id FROM {table} ORDER BY _score DESC LIMIT 12")
    plan = best._jdf.queryExecution().executedPlan().toString()
    assert "Sort" not in plan
    assert "TakeOrdered" not in plan
    expected = Table.open(place).search("fox", fields=["content"], limit=15)["id"].to_pylist()
    assert [row.id for row in best.collect()] == expected[:12]
    assert [row.id for row in best.toLocalIterator()] == expected[:12]
    later = spark.sql(f"SELECT id FROM {table} ORDER BY _score DESC LIMIT 12 OFFSET 3")
    assert [row.id for row in later.collect()] == expected[3:]
    assert spark.sql(f"SELECT count(*) FROM ({_BEST.format(table)})").first()[0] == 12
    assert spark.sql(f"SELECT 1 FROM ({_BEST.format(table)})").count() == 12
    scores = spark.sql(f"SELECT _score, id FROM {table} ORDER BY _score DESC LIMIT 12").collect()
    assert [row.id for row in scores] == expected[:12]
    again = spark.sql(f"SELECT id FROM ({_BEST.format(table)}) ORDER BY id DESC LIMIT 3")
    assert [row.id for row in again.collect()] == sorted(expected[:12])[:-4:-1]


_BEST = "SELECT id FROM {} ORDER BY _score DESC LIMIT 12"


# --- the column about files ----------------------------------------------------------------------


@pytest.mark.parametrize("driver_rows", ["100", "0"])
def test_metadata_of_files_is_what_parquet_says_of_them(spark, tmp_path, settings, driver_rows):
    settings(DRIVER, driver_rows)
    table = Table.create(
        str(tmp_path / "a b"),
        pa.schema([("id", pa.int64()), ("t", pa.string()), ("p", pa.string())]),
        partition_by=["p"],
        properties={"spark.indextables.deletionVectors.mode": "vector"},
    )
    table.append(
        pa.table({"id": [0, 1, 2], "t": ["red fox", "fox", "red"], "p": ["x y", "x y", "ü:%"]})
    )
    table.delete(where="id = 0")
    name = f"indextables.`{tmp_path}/a b`"
    every = (
        "file_path, file_name, file_size, file_block_start, file_block_length, "
        "file_modification_time, row_index"
    )
    fields = ", ".join(f"_metadata.{one.strip()}" for one in every.split(","))
    splits = {row["id"]: row for row in spark.sql(f"SELECT id, _split FROM {name}").collect()}
    files = [str(tmp_path / "a b" / row["_split"]) for row in splits.values()]
    # Spark takes folders named p=… apart again, and says where each file is.
    parquet = spark.read.parquet(*files).where("id > 0").selectExpr("id", *fields.split(", "))
    ours = spark.sql(f"SELECT id, {fields} FROM {name}")
    at = ours.columns.index("file_modification_time")
    for row, expected in zip(sorted(ours.collect()), sorted(parquet.collect()), strict=True):
        assert row[:at] + row[at + 1 :] == expected[:at] + expected[at + 1 :]
        # The log has the time at which the writer was done with the file.
        assert abs((row[at] - expected[at]).total_seconds()) < 60
    assert ours.schema.simpleString() == parquet.schema.simpleString()
    ((whole,),) = spark.sql(f"SELECT _metadata FROM {name} WHERE id = 1").collect()
    assert list(whole.asDict()) == every.split(", ")
    scored = spark.sql(
        f"SELECT id, _metadata.file_size, _metadata.row_index FROM {name} WHERE t indexquery 'fox' "
        "ORDER BY _score DESC LIMIT 5"
    )
    assert [tuple(row) for row in scored.collect()] == [(1, whole.file_size, 1)]
    grouped = spark.sql(
        f"SELECT _metadata.file_name, count(*), max(_metadata.row_index) FROM {name} "
        "WHERE _metadata.file_size > 0 GROUP BY _metadata.file_name"
    )
    assert sorted(row[1:] for row in grouped.collect()) == [(1, 0), (1, 1)]
    assert spark.sql(f"SELECT * FROM {name}").columns == ["id", "t", "p"]


def test_a_table_may_have_a_column_with_the_name_of_the_one_about_files(spark, tmp_path):
    Table.create(str(tmp_path / "t"), pa.schema([("_metadata", pa.string())])).append(
        pa.table({"_metadata": ["mine"]})
    )
    assert spark.sql(f"SELECT _metadata FROM indextables.`{tmp_path}/t`").collect() == [("mine",)]


def test_the_size_of_some_columns_is_that_which_spark_reckons_for_parquet(spark, tmp_path):
    rows = spark.range(1000).selectExpr(
        "id AS k", "CAST(id AS DECIMAL(15, 2)) AS price", "CAST(id AS STRING) AS text"
    )
    shares = {}
    for form in ("parquet", "indextables"):
        place = str(tmp_path / form)
        rows.coalesce(1).write.format(form).save(place)
        read = spark.read.format(form).load(place)
        sizes = [
            int(str(one._jdf.queryExecution().optimizedPlan().stats().sizeInBytes()))
            for one in (read, read.select("k"))
        ]
        shares[form] = sizes[1] / sizes[0]
    assert shares["indextables"] == pytest.approx(shares["parquet"], rel=0.01)


def test_a_table_is_reckoned_as_large_as_the_same_rows_in_parquet(spark, tmp_path):
    """So that joins are planned as on Parquet: Spark sends small sides to all tasks."""
    rows = spark.range(60_000).selectExpr(
        "id DIV 4 * 8 AS order_key", "pmod(hash(id), 60000) AS part",
        "CAST(pmod(hash(id, 1), 10000000) / 100 AS DECIMAL(15, 2)) AS price",
        "CAST(pmod(hash(id, 2), 11) / 100 AS DECIMAL(15, 2)) AS discount",
        "date_add(date'1992-01-01', pmod(hash(id, 3), 2500)) AS shipped",
        "date_add(date'1992-01-01', pmod(hash(id, 5), 2500)) AS received",
        "elt(1 + pmod(hash(id, 6), 6), 'AIR', 'MAIL', 'SHIP', 'RAIL', 'FOB', 'TRUCK') AS way",
    )  # fmt: skip
    sizes = {}
    for form in ("parquet", "indextables"):
        place = str(tmp_path / form)
        rows.coalesce(1).write.format(form).save(place)
        plan = spark.read.format(form).load(place)._jdf.queryExecution().optimizedPlan()
        sizes[form] = int(str(plan.stats().sizeInBytes()))
    assert sizes["indextables"] == pytest.approx(sizes["parquet"], rel=0.15)


def test_filters_that_parquet_bounds_would_answer_wrongly_skip_no_row_group(spark, tmp_path):
    """Bounds leave out NaN, which Spark takes for the greatest number; and a column that was
    renamed has the bounds of its stored name, which another one may have now."""
    path = str(tmp_path / "t")
    rows = spark.range(40_000).selectExpr(
        "id", "id + 100000 AS other", "IF(id % 1000 = 7, double('NaN'), double(id % 5)) AS x"
    )
    rows.coalesce(1).write.format("indextables").save(path)

    def found(condition):
        frame = spark.read.format("indextables").load(path).where(condition)
        assert "ParquetScan" in frame._jdf.queryExecution().executedPlan().toString()
        return frame.agg({"x": "count"}).head()[0]

    assert found("x > 5") == 40
    assert found("x > 5 AND id < 10000") == 10
    assert found("NOT x <= 4.5 OR x IS NULL") == 40
    table = Table.open(path)
    table.rename_column("id", "first")
    table.rename_column("other", "id")
    assert found("id >= 130000") == 10_000
    assert found("id >= 130000 AND first < 35000") == 5_000
