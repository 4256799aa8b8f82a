"""Cleaning up a log: plan what may go, then delete it.

`expiry` decides about versions and checkpoints. Manifests are shared by states: one goes when no
retained state names it and it is old enough that no writer is about to name it. If a state cannot
be read, nobody knows what it names, and all manifests stay.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence

from indextables import config as keys
from indextables.config import Config
from indextables.errors import LogError, ObjectNotFoundError, StorageError
from indextables.log.avro_state import read_state_manifest
from indextables.log.checkpoints import CheckpointRef, load_checkpoint
from indextables.log.expiry import CleanupPlan, ExpiredFile, plan_versions_and_checkpoints
from indextables.log.listing import LogListing, list_states
from indextables.log.names import LOG_DIRECTORY, STATE_MANIFEST
from indextables.runner import LocalRunner
from indextables.storage import ObjectMeta, Store

logger = logging.getLogger(__name__)

_HOUR_MS = 3_600_000
_DELETE_AT_ONCE = 500

__all__ = ["CleanupPlan", "ExpiredFile", "apply_cleanup", "plan_log_cleanup", "plan_manifests"]


def plan_log_cleanup(
    store: Store,
    listing: LogListing,
    *,
    now_ms: int,
    config: Config,
    objects: Iterable[ObjectMeta] | None = None,
) -> CleanupPlan:
    """What a clean-up would delete now. Nothing is changed.

    `objects` are those of the whole log, if somebody listed them already.
    """
    runner = LocalRunner(config[keys.STATE_READ_PARALLELISM])

    def is_readable(ref: CheckpointRef) -> bool:
        # Loaded as a whole: what is deleted on its account does not come back.
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
            return True  # nothing that could be kept readable

    plan = plan_versions_and_checkpoints(
        listing, now_ms=now_ms, config=config, is_readable=is_readable, stands_alone=stands_alone
    )
    # '_' sorts after the digits of version files, which need not be listed again.
    if objects is None:
        objects = store.list(LOG_DIRECTORY, start_after=f"{LOG_DIRECTORY}/_")
    manifests = [meta for meta in objects if _is_manifest(meta.path)]
    going = {file.path for file in plan.states}
    kept = [v for v, meta in listing.states.items() if meta.path not in going]
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
    """Manifests that nobody names. `named` gives those that states name; None: not known."""
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
    """Delete what the plan says; gives the number of files deleted.

    States go before manifests: a manifest that is still named must be there. With the policy
    `continue` a file that cannot be deleted is logged and stays; with `fail` the error is raised.
    """
    deleted = 0
    for group in (plan.version_files, plan.json_checkpoints):
        deleted += _delete(store, [file.path for file in group], failure_policy)
    states = [file.path for file in plan.states]
    gone = _delete(store, states, failure_policy)
    deleted += gone
    if gone < len(states):
        logger.warning("No manifest is deleted, because not all expired states were.")
        return deleted
    manifests = [file.path for file in plan.manifests]
    if manifests:
        # A state that was written since the plan may name a manifest that nobody named then.
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
