"""Every pair of the conflict matrix, committed for real in both orders of what it says."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from logs import add, append, new_log, paths, schema_string, xref

from indextables.errors import (
    ConcurrentAppendError,
    ConcurrentDeleteDeleteError,
    ConcurrentDeleteReadError,
    MetadataChangedError,
    ProtocolChangedError,
)
from indextables.log.actions import Add, Metadata, Protocol, Remove, Skip
from indextables.log.transaction import MATRIX, Change, Operation, Transaction, everything
from indextables.log.vectors import DeletionVector

SHARED, OTHER = "day=1/splits/shared.split", "day=1/splits/other.split"
OLD = Protocol(min_reader_version=3, min_writer_version=3)

VECTOR = DeletionVector("i", "", 0, 1).to_json()
APPENDED, SAME = ConcurrentAppendError, ConcurrentDeleteDeleteError
META, PROTO = MetadataChangedError, ProtocolChangedError

# What must happen, written out apart from the matrix in the code. What is not here commits.
_LOSES_ROWS = dict.fromkeys([Change.REMOVED, Change.MARKED, Change.MERGED], SAME)
_WRITES_ROWS = {Change.ADDED: APPENDED, **_LOSES_ROWS}
_PLANNED = {Change.PROTOCOL: PROTO, Change.SCHEMA: META}
EXPECTED = {
    Operation.APPEND: _PLANNED,
    Operation.OVERWRITE: _PLANNED | _WRITES_ROWS,
    Operation.REPLACE: _PLANNED | _WRITES_ROWS,
    Operation.REWRITE: _PLANNED | _WRITES_ROWS,
    Operation.MERGE: _PLANNED | _LOSES_ROWS,
    Operation.METADATA: _PLANNED | {Change.COLUMNS: META, Change.PROPERTIES: META},
    Operation.PROTOCOL: {},
    Operation.XREF: _PLANNED,
    Operation.SKIP: {},
    Operation.RESTORE: _PLANNED | _WRITES_ROWS | {Change.COLUMNS: META, Change.PROPERTIES: META},
}


def skip(path: str) -> Skip:
    return Skip(path=path, skip_timestamp=1, reason="r", operation="merge")


def table():
    """Version 0 the table, version 1 two files, version 2 a protocol that can still be raised."""
    log = new_log()
    append(log, add(SHARED), add(OTHER))
    return log


def mine(operation: Operation, metadata: Metadata) -> list:
    removes_shared = [Remove(path=SHARED), add("day=1/splits/mine.split")]
    return {
        Operation.APPEND: [add("day=1/splits/mine.split")],
        Operation.OVERWRITE: removes_shared,
        Operation.REPLACE: removes_shared,
        Operation.REWRITE: removes_shared,
        Operation.MERGE: [
            Remove(path=SHARED, data_change=False),
            add("day=1/splits/mine.split", data_change=False),
        ],
        Operation.METADATA: [replace(metadata, description="mine")],
        Operation.PROTOCOL: [Protocol(min_reader_version=4, min_writer_version=4)],
        Operation.XREF: [xref("mine")],
        Operation.SKIP: [skip(OTHER)],
        Operation.RESTORE: removes_shared,
    }[operation]


def winner(change: Change, metadata: Metadata, protocol: Protocol) -> list:
    writer_features = (*protocol.writer_features, "checkpoint")
    wider = schema_string("id", "body", "day", "new")
    return {
        Change.PROTOCOL: [replace(protocol, reader_features=("avroState", "footerOffsets"))],
        Change.FEATURES: [replace(protocol, writer_features=writer_features)],
        Change.SCHEMA: [replace(metadata, schema_string=schema_string("id", "day"))],
        Change.COLUMNS: [replace(metadata, schema_string=wider)],
        Change.PROPERTIES: [replace(metadata, configuration={"owner": "me"})],
        # New mappings come with rows; rows alone are another column of the matrix.
        Change.MAPPINGS: [add(data_change=False, doc_mapping_json='[{"name":"z"}]')],
        Change.ADDED: [add()],
        Change.REMOVED: [Remove(path=SHARED)],
        Change.MARKED: [Remove(path=SHARED), add(SHARED, deletion_vector=VECTOR)],
        Change.MERGED: [Remove(path=SHARED, data_change=False), add(data_change=False)],
        Change.XREFS: [xref("winner")],
        Change.SKIPS: [skip(SHARED)],
    }[change]


def test_the_matrix_is_complete():
    assert set(MATRIX) == {(o, c) for o in EXPECTED for c in Change}
    assert set(EXPECTED) == set(Operation) - {Operation.CREATE}


@pytest.mark.parametrize("change", list(Change), ids=lambda c: c.name)
@pytest.mark.parametrize("operation", list(EXPECTED), ids=lambda o: o.name)
def test_pair(operation, change):
    log = table()
    before = log.snapshot()
    winning = winner(change, before.metadata, before.protocol)
    # Not judged itself: this is the one that came first.
    log.commit(Transaction(operation=Operation.SKIP, actions=winning))
    after = log.snapshot()
    transaction = Transaction(
        operation=operation,
        actions=mine(operation, before.metadata),
        read_version=before.version,
        read_scope=everything,
    )
    expected = EXPECTED[operation].get(change)
    if expected is None:
        committed = log.commit(transaction)
        added = {a.path for a in transaction.actions if isinstance(a, Add)}
        gone = {a.path for a in transaction.actions if isinstance(a, Remove)}
        assert paths(log.snapshot()) == paths(after) - gone | added
        assert committed.changed or operation is Operation.PROTOCOL
    else:
        with pytest.raises(expected) as caught:
            log.commit(transaction)
        assert caught.value.version == after.version
        assert "again" in str(caught.value)
        assert log.snapshot().version == after.version


@pytest.mark.parametrize("operation", [Operation.OVERWRITE, Operation.REPLACE, Operation.REWRITE])
def test_added_rows_outside_the_scope_do_not_matter(operation):
    log = table()
    read = log.snapshot().version
    append(log, add("day=2/splits/w.split", day="2"))

    def scope(files):
        return np.array([dict(v)["day"] == "1" for v in files["partitionValues"].to_pylist()], bool)

    log.commit(
        Transaction(
            operation=operation, actions=[Remove(path=SHARED)], read_version=read, read_scope=scope
        )
    )
    assert paths(log.snapshot()) == {OTHER, "day=2/splits/w.split"}


def test_files_that_were_only_read_count_too():
    log = table()
    read = log.snapshot().version
    log.commit(Transaction(operation=Operation.REWRITE, actions=[Remove(path=OTHER)]))
    with pytest.raises(ConcurrentDeleteReadError, match=r"other\.split"):
        log.commit(
            Transaction(
                operation=Operation.REWRITE, actions=[Remove(path=SHARED)], read_version=read,
                read_paths=frozenset({OTHER}),
            )
        )  # fmt: skip


def test_two_schema_changes_at_once_conflict_even_in_appends():
    log = table()
    before = log.snapshot()
    for column in ("a", "b"):
        wider = replace(before.metadata, schema_string=schema_string("id", "body", "day", column))
        transaction = Transaction(
            operation=Operation.APPEND, actions=[add(), wider], read_version=before.version
        )
        if column == "a":
            log.commit(transaction)
        else:
            with pytest.raises(MetadataChangedError, match="columns"):
                log.commit(transaction)


def test_two_appends_with_new_mappings_both_join_the_registry():
    log = table()
    read = log.snapshot().version
    for name in ("x", "y"):
        log.commit(
            Transaction(
                operation=Operation.APPEND, read_version=read,
                actions=[add(doc_mapping_json=f'[{{"name":"{name}"}}]')],
            )
        )  # fmt: skip
    files = log.snapshot().files
    assert sorted(filter(None, files["docMappingJson"].to_pylist())) == [
        '[{"name":"x"}]',
        '[{"name":"y"}]',
    ]


def test_a_transform_follows_whatever_was_committed():
    log = table()

    def overwrite(snapshot):
        gone = [Remove(path=p) for p in snapshot.files["path"].to_pylist()]
        return [*gone, add("day=1/splits/only.split")]

    append(log)
    log.commit(Transaction(operation=Operation.OVERWRITE, transform=overwrite))
    assert paths(log.snapshot()) == {"day=1/splits/only.split"}


def test_cross_references_that_lost_are_dropped_and_the_rows_commit():
    log = table()
    log.commit(Transaction(operation=Operation.XREF, actions=[xref("a")]))
    log.commit(
        Transaction(operation=Operation.APPEND, actions=[add("day=1/splits/n.split"), xref("a")])
    )
    assert "day=1/splits/n.split" in paths(log.snapshot())
    with pytest.raises(ConcurrentDeleteDeleteError):
        log.commit(Transaction(operation=Operation.XREF, actions=[xref("a")]))
