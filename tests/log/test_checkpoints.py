"""Checkpoints of either format through one door, and the pointer after them."""

from __future__ import annotations

import pytest
from checkpoint_cases import RUNNER, add, config, content, memory_store, snapshot_of, versions

from indextables.log.actions import Remove
from indextables.log.checkpoint.avro_state import read_state_manifest
from indextables.log.checkpoint.checkpoints import CheckpointRef, load_checkpoint, write_checkpoint
from indextables.log.checkpoint.last_checkpoint import read_last_checkpoint
from indextables.log.layout import LOG_DIRECTORY, checkpoint_path, state_path

FIRST = [add(f"{n}.split") for n in range(20)]


class Table:
    """A snapshot that grows, with the versions it came from."""

    def __init__(self):
        self.store = memory_store()
        self.snapshot = snapshot_of(FIRST)
        self.versions = {}
        self.asked = []

    def commit(self, *actions):
        (version,) = versions(actions, first=self.snapshot.version + 1)
        self.versions[version.version] = version
        self.snapshot = self.snapshot.advance([version])

    def read(self, first, last):
        self.asked.append((first, last))
        wanted = range(first, last + 1)
        return [self.versions[v] for v in wanted] if set(wanted) <= set(self.versions) else None

    def checkpoint(self, *, states=(), force=False, **options):
        return write_checkpoint(
            self.store,
            self.snapshot,
            config=config(**options),
            runner=RUNNER,
            read_versions=self.read,
            states=states,
            force_compaction=force,
        )

    def state(self):
        return read_state_manifest(self.store, self.snapshot.version, config=config())


@pytest.mark.parametrize(
    ("options", "kind", "name", "path"),
    [
        ({}, "avro", "avro-state", state_path(1)),
        ({"state_format": "json"}, "json", "json", checkpoint_path(1)),
        (
            {"state_format": "json", "checkpoint_actionsPerPart": 5},
            "json",
            "json-multipart",
            checkpoint_path(1),
        ),
    ],
)
def test_formats(options, kind, name, path):
    table = Table()
    pointer = table.checkpoint(**options)
    assert pointer.format == name
    assert read_last_checkpoint(table.store) == pointer
    assert table.store.head(path).size
    found = load_checkpoint(table.store, CheckpointRef(1, kind), config=config(), runner=RUNNER)
    assert content(found) == content(table.snapshot)


def test_the_second_one_is_incremental():
    table = Table()
    table.checkpoint()
    table.commit(add("x"))
    table.commit(Remove(path="3.split"))
    table.checkpoint(states=[1])
    assert table.asked == [(2, 3)]
    assert len(table.state().manifests) == 2
    assert table.state().tombstones == ("3.split",)


WHOLE = {
    "forced": {"force": True, "states": [1]},
    "no state known": {"states": []},
    "only a state of this version": {"states": [2]},
    "a state that is not there": {"states": [0]},
}


@pytest.mark.parametrize("case", WHOLE)
def test_whole_states(case):
    table = Table()
    table.checkpoint()
    table.commit(add("x"))
    table.checkpoint(**WHOLE[case])
    assert len(table.state().manifests) == 1
    assert table.state().num_files == 21


def test_versions_that_are_gone():
    table = Table()
    table.checkpoint()
    table.commit(add("x"))
    table.commit(add("y"))
    del table.versions[2]
    table.checkpoint(states=[1])
    assert len(table.state().manifests) == 1


def test_a_reader_that_gives_other_versions_is_not_believed():
    table = Table()
    table.checkpoint()
    table.commit(add("x"))
    table.commit(add("y"))
    table.read = lambda first, last: [table.versions[3]]
    table.checkpoint(states=[1])
    assert len(table.state().manifests) == 1
    assert table.state().num_files == 22


def test_a_damaged_base():
    table = Table()
    table.checkpoint()
    table.store.put(state_path(1), b"damaged")
    table.commit(add("x"))
    table.checkpoint(states=[1])
    found = load_checkpoint(table.store, CheckpointRef(2, "avro"), config=config(), runner=RUNNER)
    assert content(found) == content(table.snapshot)


def test_a_slow_writer_does_not_move_the_pointer_back():
    table = Table()
    old = table.snapshot
    table.commit(add("x"))
    table.checkpoint()
    table.snapshot = old
    table.checkpoint()
    pointer = read_last_checkpoint(table.store)
    assert pointer is not None and pointer.version == 2


def test_an_append_to_a_large_table_writes_little():
    def new_bytes(count: int) -> int:
        table = Table()
        table.snapshot = snapshot_of([add(f"splits/{n}.split") for n in range(count)])
        table.checkpoint()
        before = {m.path: m.size for m in table.store.list(LOG_DIRECTORY)}
        table.commit(*(add(f"new/{n}.split") for n in range(10)))
        table.checkpoint(states=[1])
        after = {m.path: m.size for m in table.store.list(LOG_DIRECTORY)}
        return sum(size for path, size in after.items() if path not in before)

    assert new_bytes(5_000) < new_bytes(10) + 500
