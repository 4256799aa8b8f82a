"""The commit: what a transaction wants becomes a version file, by put-if-absent.

A loser reads what won, checks for a conflict, rebases and tries the next version. Splits that
were written stay as they are across attempts. A store can fail in a way that leaves open whether
the file was written; every version file carries the id of its transaction, which is compared then.
The next version is tried only when the one before exists and is not ours: a request that is still
on its way can then no longer take effect.

The actions of a version are made again on every attempt, because each depends on what others
committed meanwhile: removed files must still be live, mappings join the registry that is there now,
a protocol is raised from where it stands, cross-references that lost their target are dropped.
"""

from __future__ import annotations

import itertools
import random
import time
import uuid
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from indextables import config as keys
from indextables.config import Config
from indextables.errors import (
    CommitError,
    CommitStateUnknownError,
    ConcurrentDeleteDeleteError,
    LogError,
    MetadataChangedError,
    ObjectExistsError,
    ObjectNotFoundError,
    RetriesExhaustedError,
    SplitsPurgedError,
    StorageError,
    StorageRefusedError,
    TableExistsError,
    UnsupportedFeatureError,
    VersionGapError,
)
from indextables.log.actions import (
    DEFAULT_PROTOCOL,
    STREAMS,
    WITH_VECTORS,
    Action,
    Add,
    AddXRef,
    CommitInfo,
    Metadata,
    Protocol,
    Remove,
    RemoveXRef,
    Txn,
    check_writable,
    upgraded,
)
from indextables.log.files import (
    contents_of,
    files_from_adds,
    intern_mapping,
    with_mappings,
    with_paths,
)
from indextables.log.layout import ENGINE, PURGE_LOCK, check_paths, encode_actions, version_path
from indextables.log.reader import LogReader
from indextables.log.snapshot import Snapshot, VersionActions, empty_snapshot
from indextables.log.transaction import Operation, Transaction, check_conflicts, difference
from indextables.log.vectors import vector_files
from indextables.runner import pause_s
from indextables.storage import Store

XREF_FEATURE = "crossReferenceIndex"
_DEDUPLICATION_SINCE = 3


def actions_on(snapshot: Snapshot, mine: Transaction, *, config: Config) -> list[Action]:
    """The actions to write as the version after `snapshot`; empty if nothing is left to do."""
    actions = list(mine.transform(snapshot) if mine.transform else mine.actions)
    if snapshot.version >= 0:
        check_writable(snapshot.protocol, uri=snapshot.uri, config=config)
    actions = _surviving_xrefs(actions, mine, snapshot, config=config)
    _check_files(actions, snapshot)
    protocol = _protocol_action(actions, snapshot, config=config)
    effective = protocol or snapshot.protocol
    mappings: dict[str, str] = {}
    if effective.min_reader_version >= _DEDUPLICATION_SINCE:
        actions = [intern_mapping(a, mappings) if isinstance(a, Add) else a for a in actions]
    metadata = _metadata_action(actions, mappings, snapshot)
    file_actions = [a for a in actions if not isinstance(a, Protocol | Metadata)]
    # Removes first: a reader that applies a version in order never sees both old and new rows.
    file_actions.sort(key=lambda action: not isinstance(action, Remove))
    return [a for a in (protocol, metadata) if a is not None] + file_actions


def _surviving_xrefs(
    actions: Sequence[Action], mine: Transaction, snapshot: Snapshot, *, config: Config
) -> list[Action]:
    """Without cross-reference actions that lost: they only make queries faster."""
    xrefs = [a for a in actions if isinstance(a, AddXRef | RemoveXRef)]
    if not xrefs:
        return list(actions)
    lost = [
        action.path
        for action in xrefs
        if (action.path in snapshot.xrefs) == isinstance(action, AddXRef)
    ]
    allowed = config[keys.PROTOCOL_AUTO_UPGRADE] or XREF_FEATURE in (
        snapshot.protocol.writer_features or ()
    )
    if mine.operation is Operation.XREF:
        if lost:
            raise ConcurrentDeleteDeleteError(
                uri=snapshot.uri, version=snapshot.version, paths=lost
            )
        if not allowed:
            raise UnsupportedFeatureError(snapshot.uri, role="writer", features=[XREF_FEATURE])
    if lost or not allowed:
        return [a for a in actions if not isinstance(a, AddXRef | RemoveXRef)]
    return list(actions)


def _check_files(actions: Sequence[Action], snapshot: Snapshot) -> None:
    adds = [a.path for a in actions if isinstance(a, Add)]
    removes = [a.path for a in actions if isinstance(a, Remove)]
    xrefs = [a.path for a in actions if isinstance(a, AddXRef)]
    check_paths([*adds, *removes, *xrefs], where="a commit to " + snapshot.uri)
    doubled = [p for paths in (adds, removes) for p, n in Counter(paths).items() if n > 1]
    doubled += sorted(snapshot.contains(adds) - set(removes)) if adds else []
    again = set(adds) & set(removes)
    if again:  # other rows of a split are deleted, which is all that can change about it
        live = contents_of(with_paths(snapshot.entries, again))
        new = files_from_adds([(a, 0, 0) for a in actions if isinstance(a, Add)])
        doubled += sorted(path for path, _ in contents_of(with_paths(new, again)) & live)
    if doubled:
        raise CommitError(
            f"A commit to '{snapshot.uri}' names {doubled[0]} twice, or adds it although it is "
            "live already. Every split has a name of its own; write it again under a new one."
        )
    if removes:
        missing = sorted(set(removes) - snapshot.contains(removes))
        if missing:
            raise ConcurrentDeleteDeleteError(
                uri=snapshot.uri, version=snapshot.version, paths=missing
            )


def _protocol_action(
    actions: Sequence[Action], snapshot: Snapshot, *, config: Config
) -> Protocol | None:
    current = snapshot.protocol
    needed = {AddXRef: XREF_FEATURE, Txn: STREAMS}
    features = tuple(
        name for cls, name in needed.items() if any(isinstance(a, cls) for a in actions)
    )
    with_features = replace(DEFAULT_PROTOCOL, writer_features=features)
    if snapshot.version < 0:
        first = next((a for a in actions if isinstance(a, Protocol)), DEFAULT_PROTOCOL)
        return upgraded(first, with_features) if features else first
    if STREAMS in features and STREAMS not in (current.writer_features or ()):
        _check_upgrade(snapshot, STREAMS, config)
    target = upgraded(current, with_features) if features else current
    if any(isinstance(a, Add) and a.deletion_vector for a in actions):
        target = upgraded(target, WITH_VECTORS)
    for action in actions:
        if isinstance(action, Protocol):
            target = upgraded(target, action)
    needs_mappings = any(isinstance(a, Add) and a.doc_mapping_json for a in actions)
    if (
        needs_mappings
        and current.min_reader_version < _DEDUPLICATION_SINCE
        and config[keys.PROTOCOL_AUTO_UPGRADE]
    ):
        target = upgraded(target, DEFAULT_PROTOCOL)
    return target if target != current else None


def _check_upgrade(snapshot: Snapshot, feature: str, config: Config) -> None:
    if not config[keys.PROTOCOL_AUTO_UPGRADE]:
        raise UnsupportedFeatureError(snapshot.uri, role="writer", features=[feature])


def _metadata_action(
    actions: Sequence[Action], mappings: dict[str, str], snapshot: Snapshot
) -> Metadata | None:
    requested = next((a for a in actions if isinstance(a, Metadata)), None)
    metadata = requested or snapshot.metadata
    # The registry only grows: splits of every retained version refer to it.
    configuration = with_mappings(metadata.configuration, {**mappings, **snapshot.mappings})
    if configuration != dict(metadata.configuration):
        return replace(metadata, configuration=configuration)
    return requested


# Where a test may hold or interleave a commit.
Observer = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Committed:
    """What a commit did. `changed` is false when there was nothing left to write."""

    version: int
    snapshot: Snapshot
    attempts: int
    changed: bool
    transaction_id: str
    actions: Sequence[Action] = ()
    version_actions: VersionActions | None = None


@dataclass(slots=True)
class Committer:
    """Commits transactions to one log."""

    store: Store
    reader: LogReader
    config: Config
    observer: Observer
    now_ms: Callable[[], int]
    prepare: Callable[[Snapshot, Sequence[Action]], Callable[[], None]]
    """Refuses a version that is to be put, by raising: now, or when the result is called."""
    sleep: Callable[[float], None] = time.sleep
    jitter: Callable[[float, float], float] = random.uniform

    def commit(self, mine: Transaction) -> Committed:
        """Write the transaction as the next version, or raise why it cannot be."""
        transaction_id = str(uuid.uuid4())
        checked = mine.read_version
        before = mine.read_snapshot
        for attempt in itertools.count(1):
            self.observer("before_read")
            snapshot = self._newest(mine)
            self.observer("after_read")
            if before is not None and before.metadata.id != snapshot.metadata.id:
                raise MetadataChangedError(
                    uri=self.store.uri, version=snapshot.version, changed=["identity"]
                )
            if mine.transform is None or mine.read_version is not None:
                self._check(mine, snapshot, since=checked, before=before)
                checked, before = snapshot.version, snapshot
            config = self.config.over_properties(snapshot.metadata.configuration)
            actions = actions_on(snapshot, mine, config=config)
            if not actions:
                return Committed(snapshot.version, snapshot, attempt, False, transaction_id)
            version = self._put(snapshot, mine, actions, transaction_id, config=config)
            if version is not None:
                return Committed(
                    version=version.version,
                    snapshot=snapshot.advance([version]),
                    attempts=attempt,
                    changed=True,
                    transaction_id=transaction_id,
                    actions=actions,
                    version_actions=version,
                )
            if mine.operation is Operation.CREATE:
                raise TableExistsError(self.store.uri)
            if attempt >= config[keys.TRANSACTION_RETRY_ATTEMPTS]:
                raise RetriesExhaustedError(
                    self.store.uri, attempts=attempt, version=snapshot.version + 1
                )
            self.sleep(self._pause_s(attempt, config))
        raise AssertionError("unreachable")

    def _newest(self, mine: Transaction) -> Snapshot:
        if mine.operation is Operation.CREATE:
            return empty_snapshot(self.store.uri)
        return self.reader.newest()

    def _check(
        self, mine: Transaction, snapshot: Snapshot, *, since: int | None, before: Snapshot | None
    ) -> None:
        """Check what was committed after `since`; `before` is the table then, if it is known."""
        if since is None or since >= snapshot.version:
            return
        before = before or self.reader.at(since)
        try:
            winners = self.reader.read_versions(since + 1, snapshot.version)
        except VersionGapError:  # truncated meanwhile
            winners = [difference(before, snapshot)]
        check_conflicts(mine, winners, before=before)

    def _put(
        self,
        snapshot: Snapshot,
        mine: Transaction,
        actions: list[Action],
        transaction_id: str,
        *,
        config: Config,
    ) -> VersionActions | None:
        """Write the version after the snapshot; None if another transaction has it, or had it."""
        version = snapshot.version + 1
        info = CommitInfo(
            txn_id=transaction_id,
            timestamp=max(self.now_ms(), snapshot.timestamp + 1),
            operation=mine.name or mine.operation.value,
            operation_parameters=mine.parameters or None,
            operation_metrics=mine.metrics or None,
            read_version=mine.read_version,
            engine_info=ENGINE,
        )
        written = (info, *actions)
        data = encode_actions(written, compress=config[keys.TRANSACTION_COMPRESSION])
        checked = self.prepare(snapshot, actions)
        self.observer("before_put")
        # A truncation may have removed the next version, and then its name is free again.
        if snapshot.version >= 0 and not self.reader.is_there(snapshot):
            self.reader.forget()
            return None
        checked()
        for attempt in range(1, config[keys.TRANSACTION_RETRY_ATTEMPTS] + 1):
            try:
                with self.store.commits_held(PURGE_LOCK, alone=False) as held:
                    if held and mine.files_are_here:
                        self._check_files(actions)
                    self.store.put_if_absent(version_path(version), data)
                won: bool | None = True
            except ObjectExistsError:
                # It may be our own: a client repeats a request whose response was lost.
                won = self._is_mine(version, transaction_id)
            except StorageRefusedError:
                if attempt == 1:  # a failure of an earlier attempt may have been written after all
                    raise
                won = self._is_mine(version, transaction_id)
            except StorageError:
                won = self._is_mine(version, transaction_id)
            if won:
                self.observer("after_put")
                version_actions = VersionActions(version, written, info.timestamp)
                if snapshot.version < 0 or self._stands(snapshot, version_actions, config):
                    return version_actions
                break
            if won is not None:
                self.observer("after_put")
                return None
            self.sleep(self._pause_s(attempt, config))
        raise CommitStateUnknownError(
            self.store.uri, version=version, transaction_id=transaction_id
        )

    def _check_files(self, actions: Sequence[Action]) -> None:
        """Refuse a commit whose files a purge deleted; a later purge finds them in the log."""
        missing = []
        for action in actions:
            if isinstance(action, Add | AddXRef):
                paths = [action.path]
                if isinstance(action, Add):
                    paths += vector_files([action.deletion_vector])
                for path in paths:
                    try:
                        self.store.head(path)
                    except ObjectNotFoundError:
                        missing.append(path)
        if missing:
            raise SplitsPurgedError(self.store.uri, missing)

    def _stands(self, snapshot: Snapshot, mine: VersionActions, config: Config) -> bool:
        """Whether a version that was written is in the log; False if that is unknown.

        A truncation between the last check and the write leaves it outside of the log.
        """
        for attempt in range(1, config[keys.TRANSACTION_RETRY_ATTEMPTS] + 1):
            try:
                return self.reader.is_there(snapshot, newest=mine.version) or self._is_live(mine)
            # Whatever cannot be read now: a caller who sees another error than that of a commit in
            # doubt deletes its splits.
            except (StorageError, LogError):
                self.sleep(self._pause_s(attempt, config))
        return False

    def _is_live(self, mine: VersionActions) -> bool:
        added = {action.path for action in mine.actions if isinstance(action, Add | AddXRef)}
        self.reader.forget()
        now = self.reader.load(None)
        if not added or added != now.contains(added) | added.intersection(now.xrefs):
            return False
        # A split that was marked is live without this commit, too; its vector is not.
        mine_marked = files_from_adds(
            [(a, 0, 0) for a in mine.actions if isinstance(a, Add) and a.deletion_vector]
        )
        return contents_of(mine_marked) <= contents_of(now.entries)

    def _is_mine(self, version: int, transaction_id: str) -> bool | None:
        """Whether the version file is of this transaction; None if that is unknown now."""
        try:
            info = self.reader.read_version(version).commit_info
        except (StorageError, LogError):  # not there, or not to be read
            return None
        return info is not None and info.txn_id == transaction_id

    def _pause_s(self, attempt: int, config: Config) -> float:
        return pause_s(
            attempt,
            base_s=config[keys.TRANSACTION_RETRY_BASE_DELAY] / 1000,
            longest_s=config[keys.TRANSACTION_RETRY_MAX_DELAY] / 1000,
            jitter=self.jitter,
        )
