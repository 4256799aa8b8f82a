"""Retention: which files of a log may go, and deleting them.

Every file is kept unless all of its gates are open.

- A version file: older than the log retention, below the newest readable checkpoint, below the
  current version, and not needed to rebuild a version that is still retained.
- An Avro state: superseded for longer than its retention, not among the newest ones, not needed.
- A JSON checkpoint: superseded for longer than its retention, not the newest, not needed.
- A manifest: named by no retained state, and old enough that no writer is about to name it. If a
  state cannot be read, what it names is unknown, and all manifests stay.

A *retained* version is one whose version file is younger than the log retention. Those that can
be read before a clean-up can be read after it: the checkpoint below the oldest of them stays as
their base, and so do all version files above the base. So that bases can follow as time passes,
a few checkpoints are kept in between, one for each quarter of the log retention. Versions below
the base cannot be read afterwards unless a checkpoint of exactly that version is still there.

The age of a checkpoint counts from the moment a newer one appeared: until then every reader used
it, and a slow one may still do so. Ages come from the objects. A negative age, after a clock went
backwards, keeps the file.
"""

from __future__ import annotations

import bisect
import logging
from collections.abc import Callable, Iterable, Sequence, Set
from dataclasses import dataclass, field

from indextables import config as keys
from indextables.config import Config
from indextables.errors import LogError, ObjectNotFoundError, StorageError
from indextables.log.checkpoint.avro_state import read_state_manifest
from indextables.log.checkpoint.checkpoints import CheckpointRef, load_checkpoint
from indextables.log.layout import LOG_DIRECTORY, STATE_MANIFEST, LogListing, list_states
from indextables.runner import LocalRunner
from indextables.storage import ObjectMeta, Store

logger = logging.getLogger(__name__)

_HOUR_MS = 3_600_000


@dataclass(frozen=True, slots=True)
class ExpiredFile:
    """A file to delete, and the reason."""

    path: str
    reason: str


@dataclass(frozen=True, slots=True)
class CleanupPlan:
    """The expired files, in the order in which they are deleted."""

    version_files: tuple[ExpiredFile, ...] = ()
    json_checkpoints: tuple[ExpiredFile, ...] = ()
    states: tuple[ExpiredFile, ...] = ()
    manifests: tuple[ExpiredFile, ...] = ()
    # The states that were there when it was planned.
    known_states: frozenset[int] = field(default=frozenset(), repr=False)

    def __len__(self) -> int:
        groups = (self.version_files, self.json_checkpoints, self.states, self.manifests)
        return sum(map(len, groups))


@dataclass(frozen=True, slots=True)
class _Checkpoint:
    ref: CheckpointRef
    meta: ObjectMeta
    # None if its own retention keeps it, else the reason for its deletion.
    expiry: str | None


def plan_versions_and_checkpoints(
    listing: LogListing,
    *,
    now_ms: int,
    config: Config,
    is_readable: Callable[[CheckpointRef], bool],
    stands_alone: Callable[[CheckpointRef], bool],
) -> CleanupPlan:
    """The part of the plan that needs no manifest. The store is asked only where it matters.

    Nothing goes while a checkpoint that stays needs older files (`stands_alone` denies it).
    """
    retention_ms = _log_retention_ms(config)
    expired = {v for v, m in listing.versions.items() if now_ms - m.modified_ms > retention_ms}
    checkpoints = _checkpoints(listing, now_ms=now_ms, config=config)
    if not expired and not any(c.expiry for c in checkpoints):
        return CleanupPlan()
    newest = next((c for c in reversed(checkpoints) if is_readable(c.ref)), None)
    if newest is None:
        return CleanupPlan()
    kept = _kept_checkpoints(
        checkpoints,
        newest,
        listing,
        retained=listing.versions.keys() - expired,
        step_ms=retention_ms // 4,
    )
    if not all(stands_alone(checkpoint.ref) for checkpoint in kept):
        return CleanupPlan()
    base = _base(kept, newest, listing, expired=expired, is_readable=is_readable)
    staying = {checkpoint.ref for checkpoint in kept}
    expired_checkpoints = [c for c in checkpoints if c.ref not in staying]
    return CleanupPlan(
        version_files=tuple(
            ExpiredFile(
                listing.versions[v].path,
                f"older than {retention_ms} ms and covered by checkpoint {base}",
            )
            for v in sorted(expired)
            if v < base and v < listing.latest
        ),
        json_checkpoints=_json_files(
            listing, expired_checkpoints, staying, now_ms=now_ms, config=config
        ),
        states=tuple(
            ExpiredFile(c.meta.path, c.expiry or "")
            for c in expired_checkpoints
            if c.ref.kind == "avro"
        ),
    )


def _log_retention_ms(config: Config) -> int:
    hours = config[keys.PURGE_LOG_RETENTION_HOURS]
    return config[keys.LOG_RETENTION] if hours is None else hours * _HOUR_MS


def _checkpoints(listing: LogListing, *, now_ms: int, config: Config) -> list[_Checkpoint]:
    """All checkpoints, oldest first, each with the verdict of its own retention."""
    state_ms = config[keys.STATE_RETENTION_HOURS] * _HOUR_MS
    json_ms = config[keys.CHECKPOINT_RETENTION]
    newest_states = sorted(listing.states)[-config[keys.STATE_RETENTION_VERSIONS] :]
    candidates = [(CheckpointRef(v, "json"), m) for v, m in listing.checkpoints.items()]
    candidates += [(CheckpointRef(v, "avro"), m) for v, m in listing.states.items()]
    # Of two formats of one version the later one counts as the newer: it was asked for.
    candidates.sort(key=lambda item: (item[0].version, item[1].modified_ms, item[0].kind == "avro"))
    checkpoints: list[_Checkpoint] = []
    superseded: int | None = None
    for ref, meta in reversed(candidates):
        limit = state_ms if ref.kind == "avro" else json_ms
        expiry = None
        if (
            superseded is not None
            and now_ms - superseded > limit
            and not (ref.kind == "avro" and ref.version in newest_states)
        ):
            expiry = f"superseded more than {limit} ms ago"
        checkpoints.append(_Checkpoint(ref, meta, expiry))
        superseded = meta.modified_ms if superseded is None else min(superseded, meta.modified_ms)
    return checkpoints[::-1]


def _kept_checkpoints(
    checkpoints: Sequence[_Checkpoint],
    newest: _Checkpoint,
    listing: LogListing,
    *,
    retained: Iterable[int],
    step_ms: int,
) -> list[_Checkpoint]:
    """Those that stay: by their own retention, or because retained versions need them."""
    retained_versions = sorted(retained)
    kept: list[_Checkpoint] = []
    # A replay without the current checkpoint starts there and gets as far as `reach`:
    # before version 0 at first, then at the last checkpoint that stays.
    started_ms = listing.versions[0].modified_ms if 0 in listing.versions else 0
    reach = -1
    passed_newest = False
    for checkpoint, following in zip(checkpoints, [*checkpoints[1:], None], strict=True):
        version = checkpoint.ref.version
        while reach + 1 in listing.versions:
            reach += 1
        end = len(retained_versions)
        if following is not None:
            end = bisect.bisect_left(retained_versions, following.ref.version)
        serves = bisect.bisect_left(retained_versions, version) < end
        near = checkpoint.meta.modified_ms - started_ms < max(step_ms, 1)
        needed = serves and not (reach >= version and near)
        passed_newest = passed_newest or checkpoint == newest
        if checkpoint.expiry is None or passed_newest or needed:
            kept.append(checkpoint)
            started_ms = checkpoint.meta.modified_ms
            reach = max(reach, version)
    return kept


def _base(
    kept: Sequence[_Checkpoint],
    newest: _Checkpoint,
    listing: LogListing,
    *,
    expired: set[int],
    is_readable: Callable[[CheckpointRef], bool],
) -> int:
    """The checkpoint below which no retained version needs a version file; -1 where none is."""
    retained = listing.versions.keys() - expired
    oldest = min([newest.ref.version, *retained])
    for checkpoint in sorted(kept, key=lambda c: -c.ref.version):
        version = checkpoint.ref.version
        if version > oldest or not any(v < version for v in expired):
            continue
        if checkpoint == newest or is_readable(checkpoint.ref):
            return version
    return -1


def _json_files(
    listing: LogListing,
    expired_checkpoints: Sequence[_Checkpoint],
    staying: Set[CheckpointRef],
    *,
    now_ms: int,
    config: Config,
) -> tuple[ExpiredFile, ...]:
    """Files of JSON checkpoints: the one that names the parts goes before them."""
    reasons = {c.ref.version: c.expiry or "" for c in expired_checkpoints if c.ref.kind == "json"}
    files = [ExpiredFile(listing.checkpoints[v].path, reason) for v, reason in reasons.items()]
    for version, parts in sorted(listing.parts.items()):
        if version in reasons:
            files += [ExpiredFile(part.path, reasons[version]) for part in parts]
        elif CheckpointRef(version, "json") not in staying:
            # Files that a failed writer left behind, unless it is still running.
            files += [
                ExpiredFile(part.path, "part of a checkpoint that does not exist")
                for part in parts
                if now_ms - part.modified_ms > config[keys.CHECKPOINT_RETENTION]
            ]
    return tuple(files)


_DELETE_AT_ONCE = 500


def plan_log_cleanup(
    store: Store,
    listing: LogListing,
    *,
    now_ms: int,
    config: Config,
    objects: Iterable[ObjectMeta] | None = None,
) -> CleanupPlan:
    """What a clean-up would delete now. Nothing is changed.

    `objects` are those of the whole log, if they are listed already.
    """
    runner = LocalRunner(config[keys.STATE_READ_PARALLELISM])

    def is_readable(ref: CheckpointRef) -> bool:
        # Loaded completely: files that it lets a clean-up delete cannot be restored.
        try:
            load_checkpoint(store, ref, config=config, runner=runner)
        except (LogError, ObjectNotFoundError) as error:
            logger.warning("Checkpoint %d does not count for retention: %s", ref.version, error)
            return False
        return True

    def stands_alone(ref: CheckpointRef) -> bool:
        # Incremental states of the Scala product take their metadata from older files.
        if ref.kind == "json":
            return True
        try:
            return read_state_manifest(store, ref.version, config=config).metadata is not None
        except (LogError, ObjectNotFoundError):
            return True  # there is nothing to keep readable

    plan = plan_versions_and_checkpoints(
        listing, now_ms=now_ms, config=config, is_readable=is_readable, stands_alone=stands_alone
    )
    # '_' sorts after the digits of version files, which need not be listed again.
    if objects is None:
        objects = store.list(LOG_DIRECTORY, start_after=f"{LOG_DIRECTORY}/_")
    manifests = [meta for meta in objects if _is_manifest(meta.path)]
    expired_states = {file.path for file in plan.states}
    kept = [v for v, meta in listing.states.items() if meta.path not in expired_states]
    expired = plan_manifests(
        manifests,
        now_ms=now_ms,
        config=config,
        named=lambda: _named_manifests(store, kept, config=config),
    )
    return CleanupPlan(
        plan.version_files,
        plan.json_checkpoints,
        plan.states,
        expired,
        known_states=frozenset(listing.states),
    )


# --- manifests -------------------------------------------------------------------------------


def plan_manifests(
    manifests: Iterable[ObjectMeta],
    *,
    now_ms: int,
    config: Config,
    named: Callable[[], set[str] | None],
) -> tuple[ExpiredFile, ...]:
    """Manifests that no state names. `named` returns those that states name; None: not known."""
    hours = config[keys.STATE_GC_MIN_MANIFEST_AGE_HOURS]
    old = [m for m in manifests if now_ms - m.modified_ms > hours * _HOUR_MS]
    in_use = named() if old else None
    if in_use is None:
        return ()
    reason = f"named by no state and older than {hours} hours"
    return tuple(ExpiredFile(m.path, reason) for m in old if m.path not in in_use)


def _named_manifests(store: Store, states: Iterable[int], *, config: Config) -> set[str] | None:
    """The manifests these states name; None where one of them cannot be read."""
    named: set[str] = set()
    for version in states:
        try:
            state = read_state_manifest(store, version, config=config)
        except (LogError, ObjectNotFoundError) as error:
            logger.warning("No manifest is deleted, because a state cannot be read: %s", error)
            return None
        named |= {f"{LOG_DIRECTORY}/{info.path}" for info in state.manifests}
    return named


def _is_manifest(path: str) -> bool:
    name = path.rpartition("/")[2]
    return name.endswith(".avro") and name != STATE_MANIFEST


# --- deleting --------------------------------------------------------------------------------


def apply_cleanup(
    store: Store, plan: CleanupPlan, *, failure_policy: str, config: Config | None = None
) -> int:
    """Delete what the plan says; returns the number of files deleted.

    States go before manifests: a manifest that is still named must be there. With the policy
    `continue` a file that cannot be deleted is logged and stays; with `fail` the error is raised.
    """
    deleted = 0
    for group in (plan.version_files, plan.json_checkpoints):
        deleted += _delete(store, [file.path for file in group], failure_policy)
    states = [file.path for file in plan.states]
    deleted_states = _delete(store, states, failure_policy)
    deleted += deleted_states
    if deleted_states < len(states):
        logger.warning("No manifest is deleted, because not all expired states were.")
        return deleted
    manifests = [file.path for file in plan.manifests]
    if manifests:
        # A state that was written since the plan may name a manifest that no state named then.
        new = set(list_states(store)) - plan.known_states
        named = _named_manifests(store, new, config=config or Config())
        if named is None:
            return deleted
        manifests = [path for path in manifests if path not in named]
    return deleted + _delete(store, manifests, failure_policy)


def _delete(store: Store, paths: Sequence[str], failure_policy: str) -> int:
    """Delete in the order given, so that what is left after a crash is a suffix."""
    deleted = 0
    for start in range(0, len(paths), _DELETE_AT_ONCE):
        group = paths[start : start + _DELETE_AT_ONCE]
        try:
            store.delete(group)
            deleted += len(group)
            continue
        except StorageError:
            if failure_policy == "fail":
                raise
        for path in group:
            try:
                store.delete([path])
                deleted += 1
            except StorageError as error:
                logger.warning("Cannot delete %s: %s", path, error)
    return deleted
