"""Which rows each version inserted, deleted or updated."""

from __future__ import annotations

import random
from collections import Counter

import pyarrow as pa
import pytest

from indextables import Table
from indextables.errors import (
    ConfigError,
    PurgedVersionError,
    SchemaError,
    UnknownColumnError,
    VersionNotFoundError,
)

SCHEMA = pa.schema(
    {"id": pa.int64(), "body": pa.string(), "n": pa.float64(), "day": pa.string(),
     "tags": pa.list_(pa.string())}
)  # fmt: skip
MODES = {mode: {"spark.indextables.deletionVectors.mode": mode} for mode in ("vector", "rewrite")}
ADDED, GONE = ("insert", "update_postimage"), ("delete", "update_preimage")


def rows(ids, word="fox", n=1.0) -> pa.Table:
    return pa.table(
        {
            "id": list(ids),
            "body": [f"{word} word{i % 3}" for i in ids],
            "n": [float("nan") if i % 4 == 0 else n for i in ids],
            "day": [f"d{i % 2}" for i in ids],
            "tags": [[word] if i % 2 else None for i in ids],
        },
        schema=SCHEMA,
    )


def multiset(table: pa.Table) -> Counter[str]:
    named = sorted(n for n in table.column_names if not n.startswith("_c"))
    return Counter(repr(row) for row in table.select(named).to_pylist())


def replayed(table: Table, first: int, last: int) -> None:
    """Each version is the one before it with the changes of the log."""
    for version in range(first, last + 1):
        changes = table.changes(from_version=version, to_version=version)
        kinds = changes["_change_type"].to_pylist()
        mask = pa.array([kind in ADDED for kind in kinds], pa.bool_())
        assert {*kinds} <= {*ADDED, *GONE}
        added, gone = changes.filter(mask), changes.filter(pa.compute.invert(mask))
        after = Table.open(table.uri, version=version)
        before = Counter()
        if version:
            before = multiset(Table.open(table.uri, version=version - 1).scan())
        assert not multiset(added) & multiset(gone), "a row that did not change"
        before.subtract(multiset(gone))
        before.update(multiset(added))
        assert +before == multiset(after.scan()), version
        assert set(changes["_commit_version"].to_pylist()) <= {version}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("partition_by", [(), ("day",)])
def test_every_kind_of_commit(tmp_path, mode, partition_by):
    uri = str(tmp_path / "t")
    Table.create(uri, data=rows(range(8)), partition_by=partition_by)
    table = Table.open(uri, config=MODES[mode])
    table.append(rows(range(8, 16), "dog"))
    table.delete(where="id IN (1, 9) OR body indexquery 'nothing'")
    table.update({"body": "'cat'"}, where="id IN (2, 10)")
    table.merge(rows([3, 4, 100], "owl", n=7.0), on="id")
    table.merge_splits()
    merged = table.version
    table.delete(where="id = 5")
    table.overwrite(rows([6, 200]), where="id IN (6, 7, 200)")
    table.restore(version=1)
    table.overwrite(rows(range(3)))
    replayed(table, 0, table.version)

    def of(version: int) -> dict[str, list[int]]:
        found: dict[str, list[int]] = {}
        for row in table.changes(from_version=version, to_version=version).to_pylist():
            found.setdefault(row["_change_type"], []).append(row["id"])
        return {kind: sorted(some) for kind, some in found.items()}

    assert of(0) == {"insert": list(range(8))}
    assert of(2) == {"delete": [1, 9]}
    assert of(3) == {"update_preimage": [2, 10], "update_postimage": [2, 10]}
    assert of(4) == {
        "insert": [100], "update_preimage": [3, 4], "update_postimage": [3, 4],
    }  # fmt: skip
    assert of(merged) == {}
    assert of(merged + 2) == {"delete": [7], "insert": [200]}
    every = table.changes(from_version=0)
    assert every["_commit_version"].to_pylist() == sorted(every["_commit_version"].to_pylist())
    times = {h["version"]: h["timestamp"] for h in table.history().to_pylist()}
    assert {
        row["_commit_version"]: row["_commit_timestamp"] for row in every.to_pylist()
    }.items() <= times.items()


def test_rows_that_match_a_search_since_a_version(tmp_path):
    table = Table.create(str(tmp_path / "t"), data=rows(range(8)))
    since = table.version
    table.append(rows(range(8, 12), "dog"))
    table.update({"body": "'a dog at last'"}, where="id = 3")
    table.update({"body": "'no longer'"}, where="id = 8")
    found = table.changes(from_version=since + 1, where="body indexquery 'dog'")
    assert [(r["_change_type"], r["id"]) for r in found.to_pylist()] == [
        *(("insert", i) for i in range(8, 12)), ("update_postimage", 3), ("update_preimage", 8),
    ]  # fmt: skip


def test_columns_are_those_of_the_last_version(tmp_path):
    table = Table.create(str(tmp_path / "t"), data=rows(range(2)))
    table.rename_column("body", "text")
    table.add_columns(pa.schema([("more", pa.string())]))
    table.drop_columns("tags")
    table.delete(where="id = 0")
    found = table.changes(from_version=0)
    assert found.column_names[:5] == ["id", "text", "n", "day", "more"]
    assert [(r["text"], r["more"]) for r in found.to_pylist()] == [
        ("fox word0", None), ("fox word1", None), ("fox word0", None),
    ]  # fmt: skip
    assert table.changes(from_version=0, to_version=0).column_names[1] == "body"
    replayed(table, 4, 4)


def test_columns_that_were_wider_before_a_restore(tmp_path):
    table = Table.create(str(tmp_path / "t"), data=pa.table({"n": pa.array([1], pa.int32())}))
    table.append(pa.table({"n": [2**40]}), merge_schema=True)
    table.restore(version=0)
    with pytest.raises(SchemaError, match=r"do not fit the columns of version 2 \('n' cannot"):
        table.changes(from_version=1)
    assert table.changes(from_version=1, to_version=1)["n"].to_pylist() == [2**40]


def test_what_cannot_be_answered(tmp_path):
    uri = str(tmp_path / "t")
    settings = {"spark.indextables.purge.retentionCheckEnabled": False}
    table = Table.create(uri, data=rows(range(4)), config=settings)
    table.delete(where="id >= 0")
    table.append(rows(range(4)))
    split = table.snapshot(version=0).files["path"][0].as_py()
    for wrong in ({"from_version": 3}, {"from_version": -1}, {"from_version": "1"},
                  {"from_version": 2, "to_version": 1}):  # fmt: skip
        with pytest.raises(ConfigError):
            table.changes(**wrong)
    with pytest.raises(VersionNotFoundError):
        table.changes(from_version=0, to_version=9)
    with pytest.raises(UnknownColumnError):
        table.changes(from_version=0, where="nothing = 1")
    table.log.store.delete([split])  # as a purge does
    with pytest.raises(PurgedVersionError, match="version 0"):
        table.changes(from_version=0)
    assert table.changes(from_version=2).num_rows == 4
    table.truncate_time_travel()
    table.purge(older_than_hours=0)
    with pytest.raises((VersionNotFoundError, PurgedVersionError)):
        table.changes(from_version=0)
    table.append(rows([9]))
    assert table.changes(from_version=3)["id"].to_pylist() == [9]
    taken = Table.create(str(tmp_path / "u"), data=pa.table({"_change_type": ["x"]}))
    with pytest.raises(SchemaError, match="_change_type"):
        taken.changes(from_version=0)


@pytest.mark.parametrize("seed", range(3))
def test_random_commits_replay(tmp_path, seed):
    chance = random.Random(seed)
    uri = str(tmp_path / "t")
    Table.create(uri, data=rows(range(6)), partition_by="day" if seed % 2 else ())
    for step in range(12):
        table = Table.open(uri, config=MODES[chance.choice(list(MODES))])
        some = chance.sample(range(20), 4)
        match chance.randrange(6):
            case 0:
                table.append(rows(some, f"w{step}"))
            case 1:
                table.delete(where=f"id IN ({', '.join(map(str, some))})")
            case 2:
                table.update({"n": "n + 1"}, where=f"id IN ({', '.join(map(str, some))})")
            case 3:
                table.merge(rows(some, f"m{step}"), on=["id"])
            case 4:
                table.merge_splits()
            case 5:
                table.restore(version=chance.randrange(table.version + 1))
    replayed(table, 0, table.version)
