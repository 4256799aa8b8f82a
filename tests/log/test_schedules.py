"""Random interleavings of commits against a store that fails, checked for the two promises:

every acknowledged commit is visible exactly once, and every snapshot anybody ever saw is the
state of one history at its version.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import numpy as np
import pytest
from faulty_store import Crash, Faults, FaultyStore, SimulatedCrash
from logs import add, memory_store, metadata, paths
from scheduler import run_interleaved

from indextables.config import Config
from indextables.errors import (
    CommitStateUnknownError,
    ConflictError,
    RetriesExhaustedError,
    StorageError,
)
from indextables.jobs.commit_write import RowMarks
from indextables.log.actions import Add, Remove
from indextables.log.files import vectors_by_path
from indextables.log.transaction import Operation, Transaction, everything, nothing
from indextables.log.transaction_log import TransactionLog
from indextables.log.vectors import DeletionVector, StoredVector

SCHEDULES, ORDINARY = 1_000, 200
BATCH = 50

FAULTS = Faults(before=0.02, after=0.05, lost_response=0.05, stale=0.1)


def options(seed: int) -> dict[str, object]:
    return {
        "spark.indextables.transaction.retry.baseDelayMs": 0,
        "spark.indextables.transaction.retry.maxAttempts": 30,
        "spark.indextables.state.retry.baseDelayMs": 0,
        "spark.indextables.checkpoint.interval": random.Random(seed).choice([1, 2, 3, 10]),
        "spark.indextables.state.format": random.Random(seed + 1).choice(["avro", "json"]),
        "spark.indextables.transaction.cache.enabled": random.Random(seed + 2).random() < 0.8,
    }


@dataclass
class World:
    """One schedule: a store, the writers' own beliefs, and what was seen on the way."""

    seed: int
    store: object = field(default_factory=memory_store)
    acknowledged: list[tuple[int, set[str], set[str]]] = field(default_factory=list)
    unknown: list[set[str]] = field(default_factory=list)
    failed: list[set[str]] = field(default_factory=list)
    seen: list[tuple[int, set[str]]] = field(default_factory=list)
    marked: list[tuple[int, str, set[int]]] = field(default_factory=list)

    def log(self, number: int, pause=None, crash: Crash | None = None) -> TransactionLog:
        store = FaultyStore(self.store, self.seed * 100 + number, FAULTS, crash=crash)
        return TransactionLog(store, config=Config(options(self.seed)), observer=pause)

    def writer(self, number: int):
        draw = random.Random(f"{self.seed}-{number}")
        crash = Crash(nth=draw.randrange(5, 60)) if draw.random() < 0.2 else None

        def work(pause) -> None:
            log = self.log(number, pause, crash)
            for turn in range(draw.randint(1, 3)):
                try:
                    self.one_commit(log, draw, f"{number}-{turn}")
                except SimulatedCrash:
                    return

        return work

    def one_commit(self, log: TransactionLog, draw: random.Random, name: str) -> None:
        new = {f"day=1/splits/split-{name}.split"}
        gone: set[str] = set()
        try:
            snapshot = log.snapshot()
            self.seen.append((snapshot.version, paths(snapshot)))
            live = sorted(paths(snapshot))
            kind = draw.choice(["append", "append", "merge", "overwrite", "replan", "mark", "mark"])
            if kind == "append" or not live:
                transaction = Transaction(operation=Operation.APPEND, actions=[add(*new)])
            elif kind == "mark":
                return self.mark(log, draw, snapshot.version, draw.choice(live))
            elif kind == "replan":
                transaction = Transaction(
                    operation=Operation.OVERWRITE,
                    transform=lambda s: [*(Remove(path=p) for p in paths(s)), add(*new)],
                )
            else:
                gone = set(draw.sample(live, min(2, len(live)))) if kind == "merge" else set(live)
                change = kind == "overwrite"
                transaction = Transaction(
                    operation=Operation.MERGE if kind == "merge" else Operation.OVERWRITE,
                    actions=[
                        *(Remove(path=p, data_change=change) for p in sorted(gone)),
                        add(*new, data_change=change),
                    ],
                    read_version=snapshot.version,
                    read_scope=everything,
                )
        except StorageError:
            return None
        try:
            committed = log.commit(transaction)
        except (ConflictError, RetriesExhaustedError, StorageError):
            self.failed.append(new)
        except (CommitStateUnknownError, SimulatedCrash) as error:
            self.unknown.append(new)
            if isinstance(error, SimulatedCrash):
                raise
        else:
            self.acknowledged.append((committed.version, new, gone))
            self.seen.append((committed.version, paths(committed.snapshot)))

    def mark(self, log: TransactionLog, draw: random.Random, version: int, path: str) -> None:
        """Mark rows of a split as deleted; those of others stay marked."""
        rows = np.array(sorted(draw.sample(range(100), 3)))
        marks = RowMarks(log, {path: rows}, exclusive=False)
        transaction = Transaction(
            operation=Operation.REWRITE,
            transform=marks.actions_on,
            read_version=version,
            read_scope=nothing,
        )
        try:
            committed = log.commit(transaction)
        except (ConflictError, RetriesExhaustedError, StorageError, CommitStateUnknownError):
            return
        self.marked.append((committed.version, path, set(rows.tolist())))
        self.seen.append((committed.version, paths(committed.snapshot)))

    def check(self) -> None:
        reference = TransactionLog(
            self.store, config=Config({"spark.indextables.transaction.useOptimized": False})
        )
        last = reference.snapshot().version
        history = {v: paths(reference.snapshot(version=v)) for v in range(last + 1)}
        added_at: dict[str, list[int]] = {}
        for version in range(last + 1):
            for action in reference.actions(version).actions:
                if isinstance(action, Add) and not action.deletion_vector:
                    added_at.setdefault(action.path, []).append(version)
        for version, new, gone in self.acknowledged:
            assert all(added_at.get(path) == [version] for path in new)
            assert not gone & history[version]
        for new in self.failed:
            assert not new & added_at.keys(), "a commit that failed took effect"
        for new in self.unknown:
            assert all(len(added_at.get(path, [])) <= 1 for path in new)
        for version, files in self.seen:
            assert files == history[version]
        for version, path, rows in self.marked:
            # Marked from then on: no other writer loses a mark, and none brings rows back.
            for later in range(version, last + 1):
                if path not in history[later]:
                    break
                body = vectors_by_path(reference.snapshot(version=later).entries)[path]
                vector = DeletionVector.from_json(body, path=path)
                assert rows <= set(StoredVector(self.store, vector, path).read().tolist())
        # The fast way, through checkpoints, of a process that has seen nothing yet.
        fresh = TransactionLog(self.store)
        assert paths(fresh.snapshot()) == history[last]
        assert all(paths(fresh.snapshot(version=v)) == history[v] for v in range(last + 1))


@pytest.mark.parametrize(
    "batch",
    [
        pytest.param(n, marks=[pytest.mark.long] * (n >= ORDINARY // BATCH))
        for n in range(SCHEDULES // BATCH)
    ],
)
def test_schedules(batch):
    for seed in range(batch * BATCH, (batch + 1) * BATCH):
        world = World(seed)
        TransactionLog.create(world.store, metadata("day"))
        writers = random.Random(seed).randint(2, 4)
        run_interleaved([world.writer(n) for n in range(writers)], seed=seed)
        try:
            world.check()
        except AssertionError as error:
            raise AssertionError(f"schedule {seed}: {error}") from error
