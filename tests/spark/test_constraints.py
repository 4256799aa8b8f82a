"""CHECK constraints: kept in the log, enforced by Spark where it writes and by us elsewhere."""

from __future__ import annotations

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException

from indextables import Table
from indextables.errors import MetadataChangedError, SchemaError


@pytest.fixture(
    params=["constrained", pytest.param("indextables.constrained", marks=pytest.mark.long)]
)
def name(spark, request):
    """A name in each catalog."""
    spark.sql(f"DROP TABLE IF EXISTS {request.param}")
    yield request.param
    spark.sql(f"DROP TABLE IF EXISTS {request.param}")


def rows(spark, query):
    return sorted((tuple(row) for row in spark.sql(query).collect()), key=repr)


VIOLATION = "CHECK_CONSTRAINT_VIOLATION"


def test_constraints_are_kept_shown_and_enforced(spark, name, tmp_path):
    path = str(tmp_path / "t")
    spark.sql(
        f"CREATE TABLE {name} (id INT, tag STRING, CONSTRAINT positive CHECK (id > 0)) "
        f"USING indextables LOCATION '{path}'"
    )
    spark.sql(f"INSERT INTO {name} VALUES (1, 'a'), (NULL, 'b')")
    with pytest.raises(PySparkException, match=VIOLATION):
        spark.sql(f"INSERT INTO {name} VALUES (2, 'c'), (0, 'd')")
    spark.sql(f"ALTER TABLE {name} ADD CONSTRAINT short CHECK (length(tag) < 5)")
    for statement in (
        f"INSERT INTO {name} VALUES (3, 'too long')",
        f"UPDATE {name} SET tag = 'too long' WHERE id = 1",
        f"UPDATE {name} SET id = -1 WHERE tag indexquery 'a'",
        f"INSERT OVERWRITE {name} VALUES (-3, 'x')",
    ):
        with pytest.raises(PySparkException, match=VIOLATION):
            spark.sql(statement)
    frame = spark.createDataFrame([(-5, "x")], "id int, tag string")
    for mode in ("append", "overwrite"):
        with pytest.raises(PySparkException, match=VIOLATION):
            frame.write.format("indextables").mode(mode).save(path)
    with pytest.raises(PySparkException, match=VIOLATION):
        frame.writeTo(name).append()
    spark.createDataFrame([("only",)], "tag string").write.format("indextables").mode(
        "append"
    ).save(path)
    assert rows(spark, f"SELECT id, tag FROM {name}") == [(1, "a"), (None, "b"), (None, "only")]
    # Plain Python computes the first one; the second is Spark's alone.
    with pytest.raises(SchemaError, match=r"short CHECK .*only Spark can evaluate"):
        Table.open(path).append(pa.table({"id": pa.array([4], pa.int32())}))
    shown = "\n".join(str(tuple(row)) for row in spark.sql(f"DESCRIBE EXTENDED {name}").collect())
    created = spark.sql(f"SHOW CREATE TABLE {name}").collect()[0][0]
    for text in (shown, created):
        assert "positive" in text and "id > 0" in text and "length(tag) < 5" in text
    assert "indextables.constraint" not in str(rows(spark, f"SHOW TBLPROPERTIES {name}"))
    for change, reason in (
        ("ADD CONSTRAINT positive CHECK (id > -1)", "already"),
        ("ADD CONSTRAINT large CHECK (id > 10)", "NEW_CHECK_CONSTRAINT_VIOLATION"),
        ("DROP CONSTRAINT none", "no constraint none"),
        ("RENAME COLUMN tag TO label", "the CONSTRAINT short .* names it"),
        ("DROP COLUMN id", "the CONSTRAINT positive .* names it"),
        ("ADD CONSTRAINT k PRIMARY KEY (id)", "CHECK constraints only"),
    ):
        with pytest.raises(PySparkException, match=reason):
            spark.sql(f"ALTER TABLE {name} {change}")
    spark.sql(f"ALTER TABLE {name} DROP CONSTRAINT IF EXISTS none")
    spark.sql(f"ALTER TABLE {name} DROP CONSTRAINT short")
    table = Table.open(path)
    table.append(pa.table({"id": pa.array([4], pa.int32()), "tag": ["a long one"]}))
    with pytest.raises(SchemaError, match=r"1 of the new rows violate .*positive.*'id': -4"):
        table.append(pa.table({"id": pa.array([-4], pa.int32())}))
    with pytest.raises(SchemaError, match="positive"):
        table.update({"id": "0 - id"}, where="id = 4")
    with pytest.raises(SchemaError, match="positive"):
        table.overwrite(pa.table({"id": pa.array([-4], pa.int32())}))
    assert rows(spark, f"SELECT id FROM {name} WHERE id > 1") == [(4,)]
    spark.sql(f"ALTER TABLE {name} RENAME COLUMN tag TO label")
    with pytest.raises(PySparkException, match=VIOLATION):
        spark.sql(f"INSERT INTO {name} (id, label) VALUES (-1, 'x')")


def test_a_table_like_another_has_its_constraints(spark):
    for one in ("like_one", "like_two"):
        spark.sql(f"DROP TABLE IF EXISTS {one}")
    spark.sql("CREATE TABLE like_one (id INT CHECK (id > 0)) USING indextables")
    spark.sql("CREATE TABLE like_two LIKE like_one")
    with pytest.raises(PySparkException, match=VIOLATION):
        spark.sql("INSERT INTO like_two VALUES (-1)")
    for one in ("like_one", "like_two"):
        spark.sql(f"DROP TABLE {one}")


def test_other_formats_refuse_constraints_as_before(spark):
    spark.sql("DROP TABLE IF EXISTS plain_parquet")
    with pytest.raises(PySparkException, match=r"(?i)constraint"):
        spark.sql("CREATE TABLE plain_parquet (id INT CHECK (id > 0)) USING parquet")


def test_rows_that_were_written_before_they_were_checked_conflict(spark, tmp_path):
    path = str(tmp_path / "t")
    spark.sql(f"CREATE TABLE indextables.`{path}` (id INT) USING indextables")
    table = Table.open(path)
    late = table.log.snapshot()
    spark.sql(f"ALTER TABLE indextables.`{path}` ADD CONSTRAINT positive CHECK (id > 0)")

    class Late:
        def __getattr__(self, attribute):
            return getattr(table.log, attribute)

        def snapshot(self):
            return late

    from indextables.config import Config
    from indextables.jobs.write_job import write_rows

    bad = pa.table({"id": pa.array([-1], pa.int32())})
    with pytest.raises(MetadataChangedError):
        write_rows(Late(), bad, settings=Config(), kind="append")
