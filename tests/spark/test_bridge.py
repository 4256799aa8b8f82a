"""What the bridge takes from Spark's planner, and that the answers stay the same."""

from __future__ import annotations

import functools
import threading
from pathlib import Path

import pyarrow as pa
import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import IllegalArgumentException, PySparkException
from pyspark.sql import functions as F  # noqa: N812

from indextables import Table
from indextables.spark.bridge import sessions

ROWS = 4_000
DRIVER = "spark.indextables.read.driver.maxRows"


@pytest.fixture(scope="module")
def place(spark, tmp_path_factory):
    """A partitioned table of a few splits."""
    path = str(tmp_path_factory.mktemp("bridge") / "docs")
    rows = spark.range(ROWS, numPartitions=2).select(
        "id",
        F.concat(F.lit("red fox w"), (F.col("id") % 100).cast("string")).alias("content"),
        (F.col("id") % 7).cast("int").alias("n"),
        (F.col("id") * 0.5).alias("d"),
        F.when(F.col("id") % 5 > 0, F.col("id").cast("decimal(12,2)")).alias("price"),
        (F.col("id") % 2).cast("string").alias("part"),
    )
    rows.write.format("indextables").partitionBy("part").save(path)
    return path


@pytest.fixture(params=["driver", "tasks"])
def way(spark, request):
    """Answers on the driver where it can, or in tasks always."""
    if request.param == "tasks":
        spark.conf.set(DRIVER, "0")
    yield request.param
    spark.conf.unset(DRIVER)


def plan_of(frame):
    return frame._jdf.queryExecution().executedPlan().toString()


QUERIES = [
    "SELECT count(*) FROM {t}",
    "SELECT count(*) FROM {t} WHERE part = '1'",
    "SELECT count(*), count(price), sum(n), sum(id), min(id), max(content), avg(d) FROM {t}",
    "SELECT n, count(*), sum(price), min(price) FROM {t} WHERE content indexquery 'w7' GROUP BY n",
    "SELECT part, n, sum(id) FROM {t} WHERE content indexquery 'w7 OR w8' GROUP BY part, n",
    "SELECT count(*) FROM {t} WHERE content indexquery 'fox'",
    "SELECT sum(id) FROM {t} WHERE content indexquery 'nothing'",
    "SELECT id FROM {t} WHERE content indexquery 'w7' AND n = 3 AND d > 10.5",
    "SELECT id FROM {t} WHERE content indexquery 'w7' OR id = 5",
    "SELECT id FROM {t} WHERE NOT content indexquery 'fox' OR id < 3",
    "SELECT id FROM {t} WHERE content indexquery 'w7' AND length(content) = 10",
    "SELECT id, n FROM {t} WHERE content = 'red fox w42' AND part IN ('0', '1')",
    "SELECT id FROM {t} WHERE price > 17.25 AND price <= 30 AND part = '0'",
    "SELECT id FROM {t} WHERE id IN (1,2,3,5,8,13,21,34,55,89,144,233)",
    "SELECT id FROM {t} WHERE content LIKE '%w9_' AND content NOT LIKE '%w95'",
    "SELECT id FROM {t} WHERE content indexquery 'fox' ORDER BY id DESC LIMIT 5",
    "SELECT id FROM {t} WHERE price IS NULL AND content indexquery 'w5'",
    "SELECT a.id FROM {t} a JOIN {t} b ON a.id = b.id WHERE b.content indexquery 'w11'",
    "SELECT a.id, b.id FROM {t} a LEFT JOIN {t} b ON a.id = b.id + 1 AND b.content indexquery 'w3'"
    " WHERE a.id < 50",
    "SELECT id, row_number() OVER (PARTITION BY n ORDER BY id) FROM {t} WHERE content indexquery"
    " 'w2'",
    "SELECT id FROM {t} WHERE content indexquery 'w2' UNION SELECT id FROM {t} WHERE id < 4",
    "WITH c AS (SELECT * FROM {t} WHERE content indexquery 'w2') SELECT n, count(*) FROM c GROUP BY"
    " n HAVING count(*) > 5",
    "SELECT id, content indexquery 'w2' AS hit FROM {t} WHERE id < 5",
    "SELECT id FROM {t} WHERE id IN (SELECT id FROM {t} WHERE content indexquery 'w2 AND red')",
    "SELECT count(DISTINCT n), sum(n + 1) FROM {t} WHERE content indexquery 'w2'",
    # Spark asks for the hash of a child where there are more than four.
    " UNION ALL ".join(
        f"SELECT {n}, id FROM {{t}} WHERE content indexquery 'w{n}'" for n in "12345"
    ),
]


@pytest.fixture(scope="module")
def plain_answer(spark, place):
    """What plain rows answer, asked once for each query."""
    rows = spark.createDataFrame(Table.open(place).scan()).coalesce(1).cache()
    rows.createOrReplaceTempView("bridge_plain")
    yield functools.cache(lambda query: spark.sql(query.format(t="bridge_plain")).collect())
    spark.catalog.dropTempView("bridge_plain")
    rows.unpersist()


@pytest.mark.parametrize(
    ("way", "query"),
    [
        *(("tasks", query) for query in QUERIES),
        *(
            pytest.param("driver", query, marks=pytest.mark.long if number % 2 else ())
            for number, query in enumerate(QUERIES)
        ),
    ],
    indirect=["way"],
)
def test_answers_are_those_of_plain_rows(spark, place, way, plain_answer, query):
    found = spark.sql(query.format(t=f"indextables.`{place}`")).collect()
    assert sorted(map(repr, found)) == sorted(map(repr, plain_answer(query)))


def test_the_log_counts_without_a_job(spark, place):
    for query in (
        f"SELECT count(*) FROM indextables.`{place}`",
        f"SELECT count(*) FROM indextables.`{place}` WHERE part = '1'",
    ):
        plan = plan_of(spark.sql(query))
        assert "LocalTableScan" in plan
        assert "BatchScan" not in plan


def test_a_few_hits_are_answered_on_the_driver(spark, place):
    found = spark.sql(f"SELECT id FROM indextables.`{place}` WHERE content indexquery 'w7'")
    assert plan_of(found).startswith("LocalTableScan")


def test_where_no_index_helps_spark_reads_parquet(spark, place):
    spark.conf.set(DRIVER, "0")
    try:
        found = spark.sql(f"SELECT sum(d) FROM indextables.`{place}` WHERE n > 2 AND part = '0'")
        assert "ParquetScan" in plan_of(found)
        assert found.collect()[0][0] == sum(i * 0.5 for i in range(0, ROWS, 2) if i % 7 > 2)
    finally:
        spark.conf.unset(DRIVER)


def test_only_needed_columns_and_pushed_filters_are_in_the_plan(spark, place):
    spark.conf.set(DRIVER, "0")
    try:
        found = spark.sql(f"SELECT id FROM indextables.`{place}` WHERE content indexquery 'w7'")
        plan = plan_of(found)
        assert "content indexquery 'w7'" in plan
        assert "ArrowEvalPython" not in plan
        assert "[id#" in plan
        assert ", content#" not in plan
    finally:
        spark.conf.unset(DRIVER)


def test_scores_do_not_depend_on_how_they_are_asked(spark, place):
    best = spark.sql(
        f"SELECT id, _score FROM indextables.`{place}` WHERE content indexquery 'fox OR w7' "
        "ORDER BY _score DESC, id LIMIT 5"
    ).collect()
    expected = Table.open(place).search("fox OR w7", fields=["content"], limit=40)
    assert [row.id for row in best] == sorted(
        i for i, s in zip(expected["id"].to_pylist(), expected["_score"].to_pylist(), strict=True)
        if s == max(expected["_score"].to_pylist())
    )[:5]  # fmt: skip
    assert best[0]._score == pytest.approx(expected["_score"][0].as_py())
    top = spark.sql(
        f"SELECT _score FROM indextables.`{place}` WHERE content indexquery 'fox OR w7' "
        "ORDER BY _score DESC LIMIT 3"
    )
    assert [row._score for row in top.collect()] == [best[0]._score] * 3


def test_hidden_columns_are_hidden(spark, place):
    assert "_score" not in spark.read.format("indextables").load(place).columns
    rows = spark.sql(f"SELECT _score FROM indextables.`{place}` WHERE id = 3").collect()
    assert rows[0]._score is None


def test_a_search_of_all_fields_is_right_where_spark_evaluates_it(spark, place):
    pushed = spark.sql(
        f"SELECT id FROM indextables.`{place}` WHERE _indexall indexquery 'w7 OR n:[6 TO 9]'"
    )
    evaluated = spark.sql(
        f"SELECT id FROM indextables.`{place}` WHERE (_indexall indexquery 'w7 OR n:[6 TO 9]') "
        "OR length(content) < 0"
    )
    assert sorted(pushed.collect()) == sorted(evaluated.collect())
    assert pushed.count() > 40


def test_equal_scans_are_reused(spark, place):
    query = (
        f"SELECT n, count(*) c FROM indextables.`{place}` WHERE content indexquery 'fox' GROUP BY n"
    )
    spark.conf.set(DRIVER, "0")
    spark.conf.set("spark.sql.adaptive.enabled", "false")
    try:
        joined = spark.sql(f"SELECT * FROM ({query}) a JOIN ({query}) b ON a.n = b.n")
        assert "ReusedExchange" in plan_of(joined)
        assert joined.count() == 7
    finally:
        spark.conf.unset(DRIVER)
        spark.conf.unset("spark.sql.adaptive.enabled")


def test_a_cached_frame_is_reused_and_never_serves_an_older_version(spark, tmp_path):
    path = str(tmp_path / "t")
    spark.range(5).write.format("indextables").save(path)
    cached = spark.read.format("indextables").load(path).cache()
    try:
        assert cached.count() == 5
        again = spark.read.format("indextables").load(path)
        assert "InMemoryTableScan" in plan_of(again.select("id"))
        spark.range(2).write.format("indextables").mode("append").save(path)
        fresh = spark.read.format("indextables").load(path)
        assert fresh.count() == 7
        assert "InMemoryTableScan" not in plan_of(fresh.select("id"))
    finally:
        cached.unpersist()


@pytest.mark.parametrize("native", [True, False])
def test_a_missing_split_fails_the_query_with_its_path(spark, tmp_path, native):
    path = tmp_path / "t"
    spark.range(100, numPartitions=2).selectExpr("id", "cast(id as string) s").write.format(
        "indextables"
    ).save(str(path))
    lost = next(Path(path).rglob("*.split"))
    lost.unlink()
    spark.conf.set(DRIVER, "0")
    condition = "1 = 1" if native else "indexquery(s, '1 OR 2')"
    try:
        with pytest.raises((PySparkException, Py4JJavaError), match=lost.name):
            spark.read.format("indextables").load(str(path)).where(condition).collect()
    finally:
        spark.conf.unset(DRIVER)
    assert spark.range(3).count() == 3


@pytest.mark.parametrize(
    ("query", "sentence"),
    [
        ("SELECT * FROM indextables.`/no/such/place`", "'/no/such/place' is not an index table"),
        ("SELECT * FROM indextables.nothing", "There is no index table indextables.nothing"),
        ("SELECT * FROM {t} VERSION AS OF 99", "has no version 99"),
    ],
)
def test_errors_are_sentences(spark, place, query, sentence):
    with pytest.raises(IllegalArgumentException) as caught:
        spark.sql(query.format(t=f"indextables.`{place}`")).collect()
    message = str(caught.value)
    assert sentence in message
    assert "Traceback" not in message
    assert len(message) < 500


def test_threads_do_not_disturb_each_other(spark, place):
    wrong = []

    def ask(word):
        found = spark.sql(
            f"SELECT count(*) FROM indextables.`{place}` WHERE content indexquery 'w{word}'"
        ).collect()[0][0]
        if found != ROWS // 100:
            wrong.append((word, found))

    threads = [threading.Thread(target=ask, args=(word,)) for word in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_secrets_are_in_no_plan(spark, tmp_path, s3):
    options = {**s3.options, "aws_secret_access_key": "very-secret-value"}
    path = f"{s3.uri}/spark-secrets"
    spark.range(20).selectExpr("id", "'some text' c").write.format("indextables").options(
        **options
    ).save(path)
    spark.conf.set(DRIVER, "0")
    try:
        found = spark.read.format("indextables").options(**options).load(path)
        found = found.where("indexquery(c, 'text')")
        assert found.count() == 20
        text = found._jdf.queryExecution().toString()
        assert "very-secret-value" not in text
        assert "very-secret-value" not in repr(found)
    finally:
        spark.conf.unset(DRIVER)


def test_the_guard_names_its_reason(spark, monkeypatch):
    assert sessions.reason_against(spark) is None
    monkeypatch.setattr(sessions, "SUPPORTED", ((9, 0), (9, 9)))
    assert "made for Spark 9.0 to 9.9" in sessions.reason_against(spark)
    monkeypatch.undo()
    monkeypatch.setattr(sessions, "_CLASSES", ("org.apache.spark.NoSuchThing",))
    assert sessions.reason_against(spark) == "this Spark has no org.apache.spark.NoSuchThing"


def test_optimized_write_brings_partitions_together(spark, tmp_path):
    rows = spark.range(300, numPartitions=3).selectExpr("id", "cast(id % 2 as string) p")
    write = rows.write.format("indextables").partitionBy("p")
    write.save(str(tmp_path / "plain"))
    write.option("spark.indextables.write.optimizeWrite.enabled", "true").save(
        str(tmp_path / "together")
    )
    assert Table.open(str(tmp_path / "plain")).snapshot().num_files == 6
    assert Table.open(str(tmp_path / "together")).snapshot().num_files == 2
    assert isinstance(Table.open(str(tmp_path / "together")).scan(), pa.Table)


def test_a_new_session_is_enabled_on_its_own(spark, place):
    import indextables

    other = indextables.enable(spark.newSession())
    try:
        assert other.sql(f"SELECT count(*) FROM indextables.`{place}`").collect()[0][0] == ROWS
    finally:
        indextables.enable(spark)
        spark._jvm.SparkSession.setActiveSession(spark._jsparkSession)


def test_idle_callback_connections_are_given_up():
    from indextables.spark.bridge.jvm.callbacks import IDLE_SECONDS, _call_without_timeout

    class Socket:
        def __init__(self):
            self.timeouts = []

        def settimeout(self, seconds):
            self.timeouts.append(seconds)

    class Connection:
        initiated_from_client = False

        def __init__(self):
            self.socket = Socket()

    def answer(self, *args):
        self.socket.timeouts.append("call")
        return "answer"

    waiting, calling = Connection(), Connection()
    calling.initiated_from_client = True
    assert _call_without_timeout(answer, waiting, 1, 2) == "answer"
    assert waiting.socket.timeouts == [None, "call", IDLE_SECONDS]
    assert _call_without_timeout(answer, calling) == "answer"
    assert calling.socket.timeouts == ["call"]


def test_what_index_tables_do_not_have_is_refused(spark, tmp_path):
    from indextables.errors import ConfigError

    with pytest.raises(ConfigError, match="bucketBy"):
        spark.range(1).write.format("indextables").bucketBy(2, "id").save(str(tmp_path / "t"))


def test_metrics_of_a_scan(spark, place):
    spark.conf.set(DRIVER, "0")
    try:
        found = spark.sql(
            f"SELECT id FROM indextables.`{place}` WHERE content indexquery 'w7' AND part = '0'"
        )
        plan = found._jdf.queryExecution().executedPlan()
        found.collect()
        while plan.children().size():
            plan = plan.children().apply(0)
        if plan.nodeName() == "AdaptiveSparkPlan":
            plan = plan.executedPlan()
        names = plan.metrics().keySet()
        assert names.contains("splitsPruned")
        assert names.contains("splitsRead")
    finally:
        spark.conf.unset(DRIVER)


@pytest.mark.parametrize(("mode", "splits"), [("hash", 2), ("balanced", 2), ("none", 6)])
def test_how_rows_are_spread_over_writers(spark, tmp_path, mode, splits):
    rows = spark.range(300, numPartitions=3).selectExpr("id", "cast(id % 2 as string) p")
    options = {
        "spark.indextables.write.optimizeWrite.enabled": "true",
        "spark.indextables.write.optimizeWrite.distributionMode": mode,
    }
    rows.write.format("indextables").partitionBy("p").options(**options).save(str(tmp_path / "t"))
    assert Table.open(str(tmp_path / "t")).snapshot().num_files == splits


@pytest.mark.parametrize(
    ("rows", "settings", "expected"),
    [
        (
            0,
            {
                "write.optimizeWrite.targetSplitSize": "10M",
                "write.optimizeWrite.samplingRatio": "2",
            },
            5 << 20,
        ),
        (
            20,
            {
                "write.optimizeWrite.targetSplitSize": "10M",
                "write.optimizeWrite.minRowsForEstimation": "10",
            },
            10 << 20,
        ),
        (
            20,
            {
                "write.optimizeWrite.targetSplitSize": "11M",
                "write.optimizeWrite.samplingRatio": "1.1",
            },
            10 << 20,
        ),
    ],
)
def test_the_size_that_a_write_aims_for(tmp_path, rows, settings, expected):
    from indextables.config import Config
    from indextables.jobs.write_job import plan_write
    from indextables.log.transaction_log import TransactionLog
    from indextables.spark.bridge.write import advisory_size
    from indextables.storage import open_store

    path = str(tmp_path / "t")
    schema = pa.schema([("id", pa.int64())])
    if rows:
        Table.create(path, schema).append(pa.table({"id": range(rows)}))
    config = {f"spark.indextables.{k}": v for k, v in settings.items()}
    log = TransactionLog(open_store(path))
    job = plan_write(log, schema, settings=Config(config), kind="append")
    assert advisory_size(job, Config(config)) == expected


@pytest.mark.parametrize(
    ("target", "few", "history"),
    [
        ("1G", True, 0),
        ("64K", False, 200),
        pytest.param("1G", True, 200, marks=pytest.mark.long),
        pytest.param("64K", False, 0, marks=pytest.mark.long),
    ],
)
def test_an_optimized_write_makes_splits_of_about_the_wanted_size(
    spark, tmp_path, target, few, history
):
    path = str(tmp_path / "t")
    rows = spark.range(20_000, numPartitions=8).selectExpr("id", "sha2(cast(id as string), 256) s")
    if history:
        rows.limit(history).write.format("indextables").save(path)
    options = {
        "spark.indextables.write.optimizeWrite.enabled": "true",
        "spark.indextables.write.optimizeWrite.targetSplitSize": target,
        "spark.indextables.write.optimizeWrite.minRowsForEstimation": "100",
    }
    before = Table.open(path).snapshot().num_files if history else 0
    rows.write.format("indextables").mode("append").options(**options).save(path)
    made = Table.open(path).snapshot().num_files - before
    assert (made == 1) if few else (made > 4)


@pytest.mark.parametrize(
    ("setting", "value", "there"),
    [
        ("spark.indextables.read.driver.maxSplits", "1", "BatchScan"),
        ("spark.indextables.read.driver.maxSplits", "99", "LocalTableScan"),
    ],
)
def test_how_many_splits_the_driver_looks_at(spark, place, setting, value, there):
    spark.conf.set(setting, value)
    try:
        found = spark.sql(f"SELECT id FROM indextables.`{place}` WHERE content indexquery 'w7'")
        assert there in plan_of(found)
    finally:
        spark.conf.unset(setting)


@pytest.mark.parametrize(("value", "there"), [("true", "ParquetScan"), ("false", "IndexTables /")])
def test_the_native_scan_can_be_switched_off(spark, place, value, there):
    spark.conf.set(DRIVER, "0")
    spark.conf.set("spark.indextables.read.nativeScan.enabled", value)
    try:
        found = spark.sql(f"SELECT id FROM indextables.`{place}` WHERE n > 2")
        assert there in plan_of(found)
        assert found.count() == sum(i % 7 > 2 for i in range(ROWS))
    finally:
        spark.conf.unset(DRIVER)
        spark.conf.unset("spark.indextables.read.nativeScan.enabled")


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("SELECT count(*), max(_score) > 0 FROM {t} WHERE content indexquery 'w7'", [(40, True)]),
        (
            "SELECT count(*), count(DISTINCT _score) FROM {t} WHERE content indexquery 'w7' "
            "GROUP BY _score IS NULL",
            [(40, 1)],
        ),
        ("SELECT count(*) FROM {t} WHERE content indexquery 'w7' AND _score > 1000", [(0,)]),
    ],
)
def test_scores_in_aggregates_and_conditions(spark, place, way, query, expected):
    found = spark.sql(query.format(t=f"indextables.`{place}`")).collect()
    assert [tuple(row) for row in found] == expected


@pytest.mark.parametrize(
    "zone", [pytest.param("UTC", marks=pytest.mark.long), "Europe/Berlin", "+05:30"]
)
def test_timestamps_in_the_sessions_time_zone(spark, tmp_path, zone):
    before = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", zone)
    try:
        rows = spark.range(48).selectExpr(
            "id", "timestamp_seconds(1729987200 + id * 1800) at", "cast(id as string) s"
        )
        path = str(tmp_path / "t")
        rows.write.format("indextables").save(path)
        # Around the hour that a clock in Berlin shows twice.
        condition = "at >= TIMESTAMP '2024-10-27 02:30:00' AND at < TIMESTAMP '2024-10-27 09:00:00'"
        found = spark.read.format("indextables").load(path).where(condition)
        assert sorted(found.collect()) == sorted(rows.where(condition).collect())
    finally:
        spark.conf.set("spark.sql.session.timeZone", before)


def test_whichever_rows_come_first_are_not_the_same_twice(spark):
    from indextables.spark.bridge.frames import is_repeatable

    rows = spark.range(9).selectExpr("id", "id % 2 AS k")
    rows.createOrReplaceTempView("whichever")
    for same in (
        rows.where("id > 2"),
        rows.dropDuplicates(),
        rows.orderBy("id").limit(3),
        rows.orderBy("id").select("k").limit(3),
        rows.groupBy("k").count(),
    ):
        assert is_repeatable(same)
    for other in (
        rows.limit(3),
        rows.limit(3).where("id > 2").orderBy("id"),
        rows.orderBy("id").groupBy("k").count().limit(1),
        rows.dropDuplicates(["k"]),
        rows.sample(0.5, seed=1),
        rows.offset(1),
        spark.sql("SELECT id FROM whichever WHERE id IN (SELECT id FROM whichever LIMIT 2)"),
    ):
        assert not is_repeatable(other)
