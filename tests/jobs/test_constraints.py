"""CHECK constraints where no Spark is there to enforce them."""

from __future__ import annotations

import pyarrow as pa
import pytest

from indextables import Table
from indextables.errors import MetadataChangedError, SchemaError, UnsupportedFeatureError
from indextables.jobs.write_target import (
    CheckConstraint,
    add_constraint,
    constraints_of,
    drop_constraint,
)
from indextables.log.actions import CHECK_CONSTRAINTS
from indextables.log.transaction import Operation, Transaction

SCHEMA = pa.schema([("n", pa.int64()), ("tag", pa.string()), ("day", pa.date32())])


@pytest.fixture
def table(tmp_path):
    made = Table.create(str(tmp_path / "t"), SCHEMA, partition_by=["tag"])
    made.append(pa.table({"n": [1, None], "tag": ["a", "b"]}))
    return made


def alter(table, plan):
    table.log.commit(Transaction(operation=Operation.METADATA, transform=plan))


def constrain(table, sql, name="c"):
    constraint = CheckConstraint(name, sql)
    alter(table, lambda newest: add_constraint(newest, constraint, config=table.log.config))


def test_rows_are_checked_by_every_verb_and_null_passes(table):
    constrain(table, "n > 0 AND tag IN ('a', 'b', 'c')")
    constrain(table, "day >= DATE'2024-01-01'", "recent")
    table.append(pa.table({"n": [None, 5], "tag": ["c", None]}))
    bad = pa.table({"n": [2, -1, -2], "tag": ["a", "a", "b"]})
    for write in (
        lambda: table.append(bad),
        lambda: table.append(bad, merge_schema=True),
        lambda: table.overwrite(bad),
        lambda: table.overwrite(bad.slice(1, 1), where="tag = 'a'"),
        lambda: table.overwrite(bad, partitions="dynamic"),
        lambda: table.update({"n": "n - 10"}),
    ):
        before = table.version
        with pytest.raises(SchemaError, match=r"violate CONSTRAINT c CHECK \(n > 0"):
            write()
        assert table.version == before
    with pytest.raises(SchemaError, match="recent"):
        table.update({"day": "DATE'2023-12-31'"}, where="n = 5")
    assert sorted(table.scan()["n"].drop_null().to_pylist()) == [1, 5]
    table.merge_splits()
    table.delete(where="n = 5")
    alter(table, lambda newest: drop_constraint(newest, "C", if_exists=False))
    table.append(bad)
    assert [one.name for one in constraints_of(table.snapshot().metadata)] == ["recent"]


def test_a_condition_that_only_spark_knows_refuses_rows(table):
    constrain(table, "length(tag) < 5")
    with pytest.raises(SchemaError, match="only Spark can evaluate"):
        table.append(pa.table({"n": [1]}))
    with pytest.raises(SchemaError, match="only Spark can evaluate"):
        table.update({"n": "1"})
    assert table.delete(where="n = 1").rows_removed == 1


def test_columns_of_constraints_stay(table):
    constrain(table, "N > 0")
    for change in (lambda: table.rename_column("n", "m"), lambda: table.drop_columns(["n"])):
        with pytest.raises(SchemaError, match=r"'n' cannot be .* CONSTRAINT c"):
            change()
    table.rename_column("day", "date")
    with pytest.raises(SchemaError, match="violate"):
        table.append(pa.table({"n": [0]}))


def test_rows_that_were_not_checked_conflict(table):
    late = table.snapshot()
    constrain(table, "n > 0")
    transaction = Transaction(
        operation=Operation.APPEND, read_version=late.version, read_snapshot=late
    )
    with pytest.raises(MetadataChangedError):
        table.log.commit(transaction)


def test_other_writers_are_kept_away(table, monkeypatch):
    constrain(table, "n > 0")
    assert CHECK_CONSTRAINTS in table.refresh().snapshot().protocol.writer_features
    monkeypatch.setattr("indextables.log.actions.WRITER_FEATURES", frozenset({"avroState"}))
    assert table.count() == 2
    with pytest.raises(UnsupportedFeatureError):
        table.append(pa.table({"n": [1]}))
