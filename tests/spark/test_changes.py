"""What versions changed, in Spark's SQL."""

from __future__ import annotations

import pyarrow as pa
import pytest

from indextables import Table
from indextables.errors import ConfigError, StatementError


@pytest.fixture(scope="module")
def uri(tmp_path_factory) -> str:
    place = str(tmp_path_factory.mktemp("changes") / "t")
    rows = pa.table({"id": [1, 2, 3], "body": ["red fox", "lazy dog", "old fox"], "ip": ["a"] * 3})
    table = Table.create(place, data=rows, mapping={"ip": "string"})
    table.append(pa.table({"id": [4], "body": ["new fox"], "ip": ["10.0.0.1"]}))
    table.update({"body": "'a {brace}'"}, where="id = 2")
    table.delete(where="id = 1")
    return place


def test_select_from_changes(spark, uri):
    found = spark.sql(
        f"SELECT * FROM indextables_changes('{uri}', 1, 3) WHERE '{{x}}' = concat('{{', 'x}}') "
        "ORDER BY _commit_version, _change_type"
    )
    assert [(r.id, r._change_type, r._commit_version) for r in found.collect()] == [
        (4, "insert", 1), (2, "update_postimage", 2), (2, "update_preimage", 2), (1, "delete", 3),
    ]  # fmt: skip
    expected = Table.open(uri).changes(from_version=1).sort_by([("_commit_version", "ascending")])
    assert found.toArrow().column_names == expected.column_names
    times = {r._commit_version: r._commit_timestamp.timestamp() for r in found.collect()}
    assert times == {
        r["_commit_version"]: r["_commit_timestamp"].timestamp() for r in expected.to_pylist()
    }


def test_changes_are_searched_joined_and_named(spark, uri):
    spark.sql(f"CREATE OR REPLACE TEMP VIEW now AS SELECT * FROM indextables.`{uri}`")
    found = spark.sql(
        f"SELECT c.id FROM indextables_changes('indextables.`{uri}`', 0) c JOIN now USING (id) "
        "WHERE c.body indexquery 'fox' AND c.ip indexquery '10.0.0.1' "
        "-- indextables_changes(\n AND _change_type = :kind",
        args={"kind": "insert"},
    )
    assert [r.id for r in found.collect()] == [4]
    spark.sql(f"CREATE TABLE changes_named USING indextables LOCATION '{uri}'")
    try:
        named = spark.sql("SELECT count(*) FROM indextables_changes('changes_named', 1)")
        assert named.first()[0] == 4
    finally:
        spark.sql("DROP TABLE changes_named")


def test_what_is_wrong_is_a_sentence(spark, uri):
    for arguments in ("", f"'{uri}'", f"'{uri}', 'x'", f"'{uri}', 1, 2, 3", "1, 2"):
        with pytest.raises(StatementError, match="with literals"):
            spark.sql(f"SELECT * FROM indextables_changes({arguments})")
    with pytest.raises(ConfigError, match="after to_version"):
        spark.sql(f"SELECT * FROM indextables_changes('{uri}', 3, 1)")
    with pytest.raises(StatementError, match="no table"):
        spark.sql("SELECT * FROM indextables_changes('nowhere', 0)")


def test_the_clause_changes(spark, uri):
    """Spark's own clause and reader return what `Table.changes` does."""
    table = Table.open(uri)

    def same(frame, first, last):
        expected = table.changes(from_version=first, to_version=last)
        rows = sorted((tuple(r) for r in frame.collect()), key=repr)
        named = [tuple(r.values()) for r in expected.to_pylist()]
        assert frame.columns == expected.column_names
        assert rows == sorted(((*r[:-1], r[-1].replace(tzinfo=None)) for r in named), key=repr)

    spark.sql(f"CREATE TABLE changes_named USING indextables LOCATION '{uri}'")
    try:
        for name in (f"indextables.`{uri}`", "changes_named"):
            select = f"SELECT * FROM {name} CHANGES FROM VERSION "
            same(spark.sql(f"{select} 1 TO VERSION 2"), 1, 2)
            same(spark.sql(f"{select} 1 EXCLUSIVE"), 2, 3)
            assert spark.sql(f"{select} 3 EXCLUSIVE").collect() == []
            same(spark.read.option("startingVersion", 0).changes(name), 0, 3)
        at = [str(h["timestamp"].replace(tzinfo=None)) for h in table.history().to_pylist()][::-1]
        select = f"SELECT * FROM indextables.`{uri}` CHANGES FROM TIMESTAMP "
        same(spark.sql(f"{select} '{at[1]}' TO TIMESTAMP '{at[2]}'"), 1, 2)
        same(spark.sql(f"{select} '{at[0]}' EXCLUSIVE TO TIMESTAMP '{at[3]}' EXCLUSIVE"), 1, 2)
        assert spark.sql(f"{select} '2000-01-01' TO TIMESTAMP '2000-01-02'").collect() == []
        assert spark.sql(f"{select} '{at[3]}' EXCLUSIVE").collect() == []
        found = spark.sql(
            "SELECT id, _change_type FROM changes_named CHANGES FROM VERSION 0 AS c "
            "WHERE body indexquery 'fox' AND ip indexquery '10.0.0.1'"
        )
        assert list(map(tuple, found.collect())) == [(4, "insert")]
    finally:
        spark.sql("DROP TABLE changes_named")


def test_what_the_clause_changes_refuses(spark, uri):
    select = f"SELECT * FROM indextables.`{uri}` CHANGES FROM VERSION"
    for clause, sentence in [
        ("9", "after"),
        ("1 TO VERSION 9", "9"),
        ("'x'", "number of a version"),
        ("0 WITH (deduplicationMode = 'netChanges')", "no key"),
    ]:
        with pytest.raises(Exception, match=sentence):
            spark.sql(f"{select} {clause}").collect()
    with pytest.raises(Exception, match=r"no index table|NOT_FOUND"):
        spark.sql("SELECT * FROM indextables.nowhere CHANGES FROM VERSION 0").collect()
    with pytest.raises(Exception, match="readStream"):
        frame = spark.readStream.option("startingVersion", 0).changes(f"indextables.`{uri}`")
        frame.writeStream.format("noop").trigger(availableNow=True).start().awaitTermination()
