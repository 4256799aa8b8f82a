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


def test_the_clause_changes_says_what_to_write(spark, uri):
    with pytest.raises(Exception, match=r"indextables_changes\('"):
        spark.sql(f"SELECT * FROM indextables.`{uri}` CHANGES FROM VERSION 1 TO VERSION 3")
