"""A handle sees one version: the one it was opened at, or that its last write made."""

from __future__ import annotations

import pickle
import shutil

import pyarrow as pa
import pytest
from faulty_store import FaultyStore

from indextables import Table, write_table
from indextables.errors import ConfigError, SchemaError, TableExistsError
from indextables.log.transaction_log import TransactionLog
from indextables.storage import open_store

SCHEMA = pa.schema([("id", pa.int64()), ("day", pa.string()), ("body", pa.string())])
LOG = "_transaction_log/"


def rows(*ids):
    return pa.table(
        {"id": ids, "day": [f"d{i % 2}" for i in ids], "body": [f"red word{i}" for i in ids]},
        schema=SCHEMA,
    )


def ids(table, **how):
    return sorted(table.scan(columns=["id"], **how)["id"].to_pylist())


@pytest.fixture
def place(tmp_path):
    Table.create(tmp_path / "t", data=rows(1, 2), partition_by="day")
    return str(tmp_path / "t")


def test_reads_see_the_version_that_was_opened(place):
    mine, other = Table.open(place), Table.open(place)
    assert other.append(rows(3)).version == other.version == 1
    for _ in range(2):
        assert (mine.version, ids(mine), mine.count()) == (0, [1, 2], 2)
        assert mine.search("red", limit=None).num_rows == 2
        assert ids(mine, where="body indexquery 'word3'") == []
    assert mine.refresh() is mine
    assert (mine.version, ids(mine)) == (1, [1, 2, 3])


def test_a_write_begins_with_the_newest_version_and_moves_the_handle(place):
    mine, other = Table.open(place), Table.open(place)
    other.append(rows(3, 4))
    assert mine.delete(where="id IN (1, 3)").rows_removed == 2
    assert (mine.version, ids(mine)) == (2, [2, 4])
    other.append(rows(5))
    assert ids(mine) == [2, 4]
    assert mine.update({"id": "id * 10"}, where="id = 5").rows == 1
    assert ids(mine) == [2, 4, 50]
    other.append(rows(6))
    mine.overwrite(rows(8), where="day = 'd0'")
    assert ids(mine) == [8, 50]


@pytest.mark.parametrize(
    "verb",
    [
        lambda t: t.append(rows(9)),
        lambda t: t.overwrite(rows(9)),
        lambda t: t.overwrite(rows(9), partitions="dynamic"),
        lambda t: t.drop_partitions(where="day = 'd1'"),
        lambda t: t.restore(version=0),
        lambda t: t.merge_splits(),
        lambda t: t.index_crossreferences(force_rebuild=True),
    ],
)
def test_every_verb_that_commits_moves_the_handle(place, verb):
    table = Table.open(place)
    Table.open(place).append(rows(3, 4))
    verb(table)
    assert table.version == Table.open(place).version > 1
    assert ids(table) == ids(Table.open(place))


def test_a_version_that_was_chosen_stays(place):
    Table.open(place).append(rows(3))
    past = Table.open(place, version=0)
    with pytest.raises(ConfigError, match="opened at version 0"):
        past.refresh()
    assert (past.version, ids(past)) == (0, [1, 2])


@pytest.mark.parametrize("kind", ["local", "s3"])
def test_the_log_is_read_once(place, request, kind):
    """Opening a table and three reads of it cost the requests of one look at the log."""
    uri, options = place, None
    if kind == "s3":
        server = request.getfixturevalue("s3")
        uri, options = f"{server.uri}/pinned", server.options
        Table.create(uri, data=rows(1, 2), storage_options=options)
    for _ in range(3):
        Table.open(uri, storage_options=options).append(rows(3))
    store = FaultyStore(open_store(uri, options))
    table = Table.of_log(TransactionLog(store))
    opened = [op for op in store.operations if op[1].startswith(LOG) or op[0] == "list"]
    assert opened
    assert not [path for verb, path in opened if verb == "head"], "a listing has told of them"
    (table.version, table.schema, table.partition_columns, repr(table), table.uri)
    table.scan()
    table.count(where="body indexquery 'red'")
    table.search("red")
    looks = [op for op in store.operations if op[1].startswith(LOG) or op[0] == "list"]
    assert looks == opened


def test_a_view_is_pickled_without_what_tasks_do_not_need(place):
    view = Table.open(place).view
    there = pickle.loads(pickle.dumps(view))
    assert there.snapshot.entries.equals(view.snapshot.entries)
    assert (there.mapping, there.schema) == (view.mapping, view.schema)
    bare = pickle.loads(pickle.dumps(view.for_tasks()))
    assert (bare.snapshot.num_files, bare.version, bare.mapping) == (0, view.version, view.mapping)


# --- a table and its first rows -------------------------------------------------------------------


def test_create_with_rows_is_one_commit(tmp_path):
    table = Table.create(tmp_path, data=rows(1, 2), mapping={"day": "string"}, name="n")
    assert (table.version, ids(table), table.history().num_rows) == (0, [1, 2], 1)
    with pytest.raises(TableExistsError):
        Table.create(tmp_path, data=rows(3))
    assert ids(Table.open(tmp_path)) == [1, 2]


def test_create_with_rows_and_columns(tmp_path):
    some = pa.table({"id": [1]})
    assert Table.create(tmp_path / "a", SCHEMA, data=some).scan().to_pylist() == [
        {"id": 1, "day": None, "body": None}
    ]
    with pytest.raises(SchemaError, match="'more'"):
        Table.create(tmp_path / "b", SCHEMA, data=pa.table({"more": [1]}))
    assert not Table.exists(tmp_path / "b")
    with pytest.raises(SchemaError, match="pass a schema"):
        Table.create(tmp_path / "c")


@pytest.mark.parametrize(
    ("mode", "expected"),
    [("append", [1, 2, 3]), ("overwrite", [3]), ("ignore", [1, 2]), ("error", TableExistsError)],
)
def test_write_table(tmp_path, mode, expected):
    first = write_table(tmp_path, rows(1, 2), mode=mode, partition_by="day")
    assert (first.version, ids(first), first.partition_columns) == (0, [1, 2], ("day",))
    if expected is TableExistsError:
        with pytest.raises(TableExistsError):
            write_table(tmp_path, rows(3), mode=mode)
    else:
        assert ids(write_table(tmp_path, rows(3), mode=mode)) == expected
    assert ids(Table.open(tmp_path)) == ([1, 2] if expected is TableExistsError else expected)


def test_write_table_refuses_other_partitions_and_modes(tmp_path):
    write_table(tmp_path, rows(1), partition_by="day")
    with pytest.raises(SchemaError, match="partitioned by day, not by id"):
        write_table(tmp_path, rows(2), mode="append", partition_by="id")
    with pytest.raises(ConfigError, match="mode is append"):
        write_table(tmp_path, rows(2), mode="replace")


def test_a_copy_made_during_writes_is_whole_if_its_log_was_copied_first(tmp_path):
    log = "_transaction_log"
    table = Table.create(tmp_path / "t", data=pa.table({"n": [1, 2]}))
    shutil.copytree(tmp_path / "t" / log, tmp_path / "copy" / log)
    table.append(pa.table({"n": [3]}))
    table.delete(where="n = 1")
    shutil.copytree(tmp_path / "t", tmp_path / "copy", ignore=lambda *_: [log], dirs_exist_ok=True)
    copy = Table.open(tmp_path / "copy")
    assert sorted(copy.scan()["n"].to_pylist()) == [1, 2]
    assert all(check.passed for check in copy.verify())
