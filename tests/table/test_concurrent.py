"""Several writers at once: the result is that of one after the other, or a named error."""

from __future__ import annotations

import threading
from collections import Counter

import pyarrow as pa
import pytest
from racing import race_processes, race_threads
from table_processes import SCHEMA, append_many, delete_many, replace_many, rows, serial

from indextables import Table
from indextables.errors import (
    ConcurrentAppendError,
    ConcurrentDeleteDeleteError,
    ConflictError,
    MetadataChangedError,
)


def run(task, uri, config, start, times):
    return task(uri, config, start, times)


@pytest.mark.parametrize("partition_by", [(), ("day",)], ids=["flat", "partitioned"])
@pytest.mark.parametrize("race", [race_threads, race_processes])
def test_writers_are_serial(race, partition_by, tmp_path, config):
    uri = str(tmp_path / "table")
    table = Table.create(uri, SCHEMA, partition_by=partition_by, config=config)
    table.append(rows([0, 10, 20], 2))
    work = [
        (append_many, uri, config, 1_000, 8),
        (append_many, uri, config, 2_000, 8),
        (replace_many, uri, config, 3_000, 4),
        (delete_many, uri, config, 0, 4),
    ]
    events = [("append", 1, [0, 10, 20], 2)]
    events += [event for done in race(run, work) for event in done]
    versions = [version for _, version, _, _ in events]
    assert len(set(versions)) == len(versions), "two writers were told the same version"
    assert sum(kind == "append" for kind, *_ in events) == 17
    table = Table.open(uri, config=config)
    found = table.scan(columns=["id", "day"]).to_pylist()
    assert Counter(r["id"] for r in found).most_common(1)[0][1] == 1, "a row is doubled"
    assert {r["id"]: r["day"] for r in found} == serial(events)
    # Every version in between is one of that order as well.
    for version in versions[::5]:
        past = Table.open(uri, version=version, config=config).scan(columns=["id", "day"])
        known = serial([event for event in events if event[1] <= version])
        assert {r["id"]: r["day"] for r in past.to_pylist()} == known
    # A committed version names splits that are there, and only those of acknowledged writes.
    assert table.version == max(versions)


def intervene(table, monkeypatch, act):
    """Let somebody act after the table's next write has read its snapshot, before it commits."""
    commit = table._log.commit
    done = threading.Event()

    def late(transaction):
        if not done.is_set():
            done.set()
            act()
        return commit(transaction)

    monkeypatch.setattr(table._log, "commit", late)


@pytest.fixture
def place(tmp_path, config):
    """A table with rows of three days, opened twice."""
    uri = tmp_path / "table"
    table = Table.create(uri, SCHEMA, config=config)
    for day in range(3):
        table.append(rows([10 * day, 10 * day + 1], day))
    return table, Table.open(uri, config=config)


def ids(table):
    return sorted(table.refresh().scan(columns=["id"])["id"].to_pylist())


def splits(table):
    folder = table.uri.removeprefix("file://")
    from pathlib import Path

    return {str(p.relative_to(folder)) for p in Path(folder).rglob("*.split")}


CONFLICTS = {
    "delete meets an append in its scope": (
        lambda mine: mine.delete(where="id >= 10"),
        lambda other: other.append(rows([99], 1)),
        ConcurrentAppendError,
        [0, 1, 10, 11, 20, 21, 99],
    ),
    "delete beside an append out of its scope": (
        lambda mine: mine.delete(where="id < 10"),
        lambda other: other.append(rows([99], 1)),
        None,
        [10, 11, 20, 21, 99],
    ),
    "two deletes of the same rows": (
        lambda mine: mine.delete(where="id = 0"),
        lambda other: other.delete(where="id = 1"),
        (ConcurrentDeleteDeleteError, ConcurrentAppendError),
        [0, 10, 11, 20, 21],
    ),
    "replace meets a delete": (
        lambda mine: mine.overwrite(rows([50], 1), where="day = 1"),
        lambda other: other.delete(where="id = 10"),
        ConflictError,
        [0, 1, 11, 20, 21],
    ),
    "append beside an overwrite": (
        lambda mine: mine.append(rows([50], 1)),
        lambda other: other.overwrite(rows([60], 2)),
        None,
        [50, 60],
    ),
    "overwrite removes what was appended meanwhile": (
        lambda mine: mine.overwrite(rows([50], 1)),
        lambda other: other.append(rows([60], 2)),
        None,
        [50],
    ),
    "restore removes what was appended meanwhile": (
        lambda mine: mine.restore(version=2),
        lambda other: other.append(rows([60], 2)),
        None,
        [0, 1, 10, 11],
    ),
}


@pytest.mark.parametrize("case", CONFLICTS)
def test_conflicts_are_named(case, place, monkeypatch):
    mine, other = place
    work, act, error, expected = CONFLICTS[case]
    intervene(mine, monkeypatch, lambda: act(other))
    if error is None:
        work(mine)
    else:
        with pytest.raises(error, match="version 4"):
            work(mine)
    assert ids(other) == ids(mine) == expected
    named = set()
    for version in range(other.version + 1):
        named |= set(other.snapshot(version=version).files["path"].to_pylist())
    assert splits(other) == named, "a split that nobody names was left behind"


def widened(**more):
    base = pa.table({"id": [70], "day": [1], "text": ["new"]})
    for name, column in more.items():
        base = base.append_column(name, column)
    return base


@pytest.mark.parametrize("verb", ["append", "overwrite"])
def test_two_schemas_at_once(verb, place, monkeypatch):
    mine, other = place
    intervene(mine, monkeypatch, lambda: other.append(widened(x=pa.array([1])), merge_schema=True))
    with pytest.raises(MetadataChangedError, match="version 4"):
        getattr(mine, verb)(widened(y=pa.array([2])), merge_schema=True)
    assert mine.refresh().schema.names == ["id", "day", "text", "x"]
    getattr(mine, verb)(widened(y=pa.array([2])), merge_schema=True)
    assert mine.schema.names == ["id", "day", "text", "x", "y"]
    assert mine.scan(where="y = 2")["id"].to_pylist() == [70]


@pytest.mark.parametrize("verb", ["append", "overwrite"])
def test_a_column_added_meanwhile_is_null(verb, place, monkeypatch):
    mine, other = place
    intervene(mine, monkeypatch, lambda: other.append(widened(x=pa.array([1])), merge_schema=True))
    getattr(mine, verb)(rows([80], 1))
    assert mine.refresh().schema.names == ["id", "day", "text", "x"]
    assert mine.scan(where="id = 80")["x"].to_pylist() == [None]


@pytest.mark.parametrize("verb", ["append", "overwrite"])
def test_two_mappings_at_once(verb, place, monkeypatch):
    mine, other = place
    fast = "spark.indextables.indexing.fastfields"
    intervene(mine, monkeypatch, lambda: other.append(rows([60], 1), config={fast: "id"}))
    with pytest.raises(MetadataChangedError, match="version 4"):
        getattr(mine, verb)(rows([61], 1), config={fast: "day"})
    getattr(mine, verb)(rows([61], 1), config={fast: "day"})
    assert mine.scan(where="_indexall indexquery '61'")["id"].to_pylist() == [61]
    assert mine.search("id:61")["id"].to_pylist() == [61]
