"""The commit: put-if-absent of the next version file.

A loser reads what won, checks for a conflict, rebases and tries the next version. Splits that
were written stay as they are across attempts. A store can fail in a way that leaves open whether
the file was written; every version file carries the id of its transaction, so we look. We only
ever move on to the next version when the one we tried exists and is not ours: a request that is
still on its way can then no longer take effect.
"""

from __future__ import annotations

import random
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass

from indextables import config as keys
from indextables.config import Config, known_keys
from indextables.errors import (
    CommitStateUnknownError,
    ObjectExistsError,
    ObjectNotFoundError,
    RetriesExhaustedError,
    StorageError,
    StorageRefusedError,
    TableExistsError,
)
from indextables.log.actions import Action, CommitInfo
from indextables.log.conflicts import check_conflicts
from indextables.log.names import version_path
from indextables.log.reader import LogReader
from indextables.log.rebase import actions_on
from indextables.log.snapshot import Snapshot, VersionActions, empty_snapshot
from indextables.log.transaction import Operation, Transaction
from indextables.log.version_files import ENGINE, encode_actions
from indextables.storage import Store

# Where a test may hold or interleave a commit.
Observer = Callable[[str], None]


def _ignore(_phase: str) -> None:
    return


@dataclass(frozen=True, slots=True)
class Committed:
    """What a commit did. `changed` is false when there was nothing left to write."""

    version: int
    snapshot: Snapshot
    attempts: int
    changed: bool
    transaction_id: str


@dataclass(slots=True)
class Committer:
    """Commits transactions to one log."""

    store: Store
    reader: LogReader
    config: Config
    observer: Observer = _ignore
    sleep: Callable[[float], None] = time.sleep
    now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000
    jitter: Callable[[float, float], float] = random.uniform

    def commit(self, mine: Transaction) -> Committed:
        """Write the transaction as the next version, or raise why it cannot be."""
        transaction_id = str(uuid.uuid4())
        attempts = self.config[keys.TRANSACTION_RETRY_ATTEMPTS]
        checked = mine.read_version
        snapshot = None
        for attempt in range(1, attempts + 1):
            self.observer("before_read")
            snapshot = self._newest(mine)
            self.observer("after_read")
            if mine.transform is None or mine.read_version is not None:
                checked = self._check(mine, snapshot, since=checked)
            config = self.config.over(known_keys(snapshot.metadata.configuration))
            actions = actions_on(snapshot, mine, config=config)
            if not actions:
                return Committed(snapshot.version, snapshot, attempt, False, transaction_id)
            version = self._put(snapshot, mine, actions, transaction_id, config=config)
            if version is not None:
                return Committed(
                    version.version, snapshot.advance([version]), attempt, True, transaction_id
                )
            if mine.operation is Operation.CREATE:
                raise TableExistsError(self.store.uri)
            self.sleep(self._pause_s(attempt))
        lost = snapshot.version + 1 if snapshot else 0
        raise RetriesExhaustedError(self.store.uri, attempts=attempts, version=lost)

    def _newest(self, mine: Transaction) -> Snapshot:
        if mine.operation is Operation.CREATE:
            return empty_snapshot(self.store.uri)
        return self.reader.newest()

    def _check(self, mine: Transaction, snapshot: Snapshot, *, since: int | None) -> int:
        """Check what was committed after `since`; gives the version up to which all is checked."""
        if since is not None and since < snapshot.version:
            winners = self.reader.read_versions(since + 1, snapshot.version)
            check_conflicts(mine, winners, before=self.reader.at(since))
        return snapshot.version

    def _put(
        self,
        snapshot: Snapshot,
        mine: Transaction,
        actions: list[Action],
        transaction_id: str,
        *,
        config: Config,
    ) -> VersionActions | None:
        """Write the version after the snapshot; None if another transaction has it."""
        version = snapshot.version + 1
        info = CommitInfo(
            txn_id=transaction_id,
            timestamp=max(self.now_ms(), snapshot.timestamp + 1),
            operation=mine.operation.value,
            operation_parameters=mine.parameters or None,
            operation_metrics=mine.metrics or None,
            read_version=mine.read_version,
            engine_info=ENGINE,
        )
        written = (info, *actions)
        data = encode_actions(written, compress=config[keys.TRANSACTION_COMPRESSION])
        self.observer("before_put")
        for attempt in range(1, self.config[keys.TRANSACTION_RETRY_ATTEMPTS] + 1):
            try:
                self.store.put_if_absent(version_path(version), data)
                won: bool | None = True
            except ObjectExistsError:
                # Perhaps it is ours: a client repeats a request whose answer was lost.
                won = self._is_mine(version, transaction_id)
            except StorageRefusedError:
                if attempt == 1:  # later on, an earlier attempt may have been more than it seemed
                    raise
                won = self._is_mine(version, transaction_id)
            except StorageError:
                won = self._is_mine(version, transaction_id)
            if won is not None:
                self.observer("after_put")
                return VersionActions(version, written, info.timestamp) if won else None
            self.sleep(self._pause_s(attempt))
        raise CommitStateUnknownError(
            self.store.uri, version=version, transaction_id=transaction_id
        )

    def _is_mine(self, version: int, transaction_id: str) -> bool | None:
        """Whether the version file is of this transaction; None if nobody can tell now."""
        try:
            info = self.reader.read_version(version).commit_info
        except ObjectNotFoundError:
            return None
        except StorageError:
            return None
        return info is not None and info.txn_id == transaction_id

    def _pause_s(self, attempt: int) -> float:
        base = self.config[keys.TRANSACTION_RETRY_BASE_DELAY]
        longest = self.config[keys.TRANSACTION_RETRY_MAX_DELAY]
        pause = min(longest, base * 2.0 ** min(attempt - 1, 32)) / 1000
        return pause * self.jitter(0.75, 1.25)
