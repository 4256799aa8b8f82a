"""What Spark asks of tables and scans: once, and not for every line of a plan."""

from __future__ import annotations

import importlib
from collections import Counter

import pyarrow as pa
import pytest
from pyspark.errors import AnalysisException
from pyspark.errors.exceptions import captured

from indextables import Table
from indextables.spark.bridge.catalog.table import BridgedTable
from indextables.spark.bridge.scan.scans import NativeScan, Scan, _PrunedScan

kept = importlib.import_module("indextables.spark.bridge.jvm.handles")

QUERY = """SELECT a.k, count(*) AS c FROM asked a JOIN asked b ON a.k = b.k
           WHERE a.n < 150000 GROUP BY a.k ORDER BY a.k"""


@pytest.fixture(scope="module")
def asked(spark, tmp_path_factory):
    path = str(tmp_path_factory.mktemp("kept") / "t")
    rows = spark.range(20_000).selectExpr("id AS n", "id % 10000 AS k")
    rows.coalesce(2).write.format("indextables").save(path)
    spark.read.format("indextables").load(path).createOrReplaceTempView("asked")
    return path


@pytest.fixture
def calls(monkeypatch):
    """How often Spark called some methods."""
    found: Counter[str] = Counter()
    for owner, name in (
        (BridgedTable, "name"), (NativeScan, "description"), (NativeScan, "equals"),
        (NativeScan, "columnarSupportMode"), (Scan, "readSchema"), (_PrunedScan, "toBatch"),
    ):  # fmt: skip
        # The class whose method it is, and those that copied it when they were made.
        for one in {owner, NativeScan if issubclass(NativeScan, owner) else owner}:
            original = getattr(one, name)

            def counted(self, *args, name=name, original=original):
                found[name] += 1
                return original(self, *args)

            monkeypatch.setattr(one, name, counted)
    return found


def test_answers_that_do_not_change_are_asked_once(spark, asked, calls):
    spark.conf.set("spark.sql.autoBroadcastJoinThreshold", "-1")
    try:
        spark.read.format("indextables").load(asked).createOrReplaceTempView("asked")
        assert spark.sql(QUERY).count() == 10_000
    finally:
        spark.conf.unset("spark.sql.autoBroadcastJoinThreshold")
    # Two scans; each is asked when it is planned, and again only after a join's keys.
    assert calls["name"] <= 2
    assert calls["description"] <= 2
    assert calls["columnarSupportMode"] <= 2
    assert calls["toBatch"] <= 4
    assert calls["equals"] == 0


def test_without_a_compiler_spark_asks_python(spark, asked, calls, monkeypatch):
    monkeypatch.setattr(kept, "_prepared", lambda _: None)
    spark.read.format("indextables").load(asked).createOrReplaceTempView("asked")
    assert spark.sql(QUERY).count() == 10_000
    assert calls["name"] > 2


def test_tables_are_equal_by_version_and_errors_keep_their_sentence(spark, tmp_path):
    path = tmp_path / "t"
    table = Table.create(path, pa.schema([("n", pa.int64())]))
    table.append(pa.table({"n": [1]}))

    def relation():
        frame = spark.read.format("indextables").load(str(path))
        return frame._jdf.queryExecution().analyzed().collectLeaves().apply(0).table()

    first, same = relation(), relation()
    table.append(pa.table({"n": [2]}))
    later = relation()
    assert first.equals(same)
    assert first.hashCode() == same.hashCode()
    assert not first.equals(later)
    assert not first.equals(None)
    with pytest.raises(Exception, match="xyz"):
        spark.read.format("indextables").load(str(path)).where("n indexquery 'xyz:('").collect()


def test_a_table_in_sparks_catalog_is_read_without_an_error_inside(spark, monkeypatch):
    # PySpark asks the JVM forty times what kind of error it is.
    spark.sql("CREATE TABLE no_error (n bigint) USING indextables")
    try:
        errors, convert = [], captured.convert_exception
        monkeypatch.setattr(
            captured, "convert_exception", lambda error: errors.append(error) or convert(error)
        )
        assert spark.sql("SELECT count(*) FROM no_error").collect() == [(0,)]
        assert not errors
    finally:
        monkeypatch.undo()
        spark.sql("DROP TABLE no_error")


def test_the_kind_of_an_error_costs_no_search_for_classes(spark):
    jvm = spark.sparkContext._jvm
    assert jvm.py4j.reflection.TypeUtil is jvm.py4j.reflection.TypeUtil
    with pytest.raises(AnalysisException, match="TABLE_OR_VIEW_NOT_FOUND"):
        spark.sql("SELECT 1 FROM nowhere")
