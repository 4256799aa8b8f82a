"""Checkpoints of either format: the whole table at a version, so that older versions may go."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from indextables import config as keys
from indextables.config import Config
from indextables.errors import LogError, ObjectNotFoundError
from indextables.log.checkpoint.avro_state import (
    KeepManifest,
    ManifestCache,
    load_state,
    read_state_manifest,
)
from indextables.log.checkpoint.json_checkpoint import load_json_checkpoint, write_json_checkpoint
from indextables.log.checkpoint.last_checkpoint import LastCheckpoint, advance_last_checkpoint
from indextables.log.checkpoint.state_schema import StateManifest
from indextables.log.checkpoint.state_writer import write_state
from indextables.log.layout import LogListing
from indextables.log.snapshot import Snapshot, VersionActions
from indextables.runner import Runner
from indextables.storage import Store

logger = logging.getLogger(__name__)

ReadVersions = Callable[[int, int], list[VersionActions] | None]


@dataclass(frozen=True, slots=True)
class CheckpointRef:
    """A checkpoint by version and format."""

    version: int
    kind: Literal["avro", "json"]


def checkpoints_at(listing: LogListing, version: int) -> list[CheckpointRef]:
    """The checkpoints of a version: none, one, or one of each format."""
    refs = [CheckpointRef(version, "json")] if version in listing.checkpoints else []
    return refs + ([CheckpointRef(version, "avro")] if version in listing.states else [])


def load_checkpoint(
    store: Store,
    ref: CheckpointRef,
    *,
    config: Config,
    runner: Runner,
    manifest_cache: ManifestCache | None = None,
    keep_manifest: KeepManifest | None = None,
) -> Snapshot:
    """The snapshot that a checkpoint holds."""
    if ref.kind == "json":
        return load_json_checkpoint(store, ref.version, config=config, runner=runner)
    return load_state(
        store,
        ref.version,
        config=config,
        runner=runner,
        manifest_cache=manifest_cache,
        keep_manifest=keep_manifest,
    )


def write_checkpoint(
    store: Store,
    snapshot: Snapshot,
    *,
    config: Config,
    runner: Runner,
    read_versions: ReadVersions,
    states: Sequence[int],
    force_compaction: bool = False,
    manifest_cache: ManifestCache | None = None,
) -> LastCheckpoint:
    """Write a checkpoint of this snapshot in the configured format, then move the pointer.

    `states` are the versions of existing Avro states; `read_versions(first, last)` gives the
    versions between a state and the snapshot, or None where they are not all there. With both,
    only what is new is written. `force_compaction` writes everything.
    """
    if config[keys.STATE_FORMAT] == "json":
        pointer = write_json_checkpoint(store, snapshot, config=config)
    else:
        base = changed = None
        if not force_compaction:
            base = _newest_base(store, snapshot, states, config=config)
            changed = _versions_since(base, snapshot, read_versions)
        pointer = write_state(
            store,
            snapshot,
            config=config,
            runner=runner,
            base=base,
            changed=changed,
            compact=force_compaction,
            manifest_cache=manifest_cache,
        )
    advance_last_checkpoint(store, pointer)
    return pointer


def _newest_base(
    store: Store, snapshot: Snapshot, states: Sequence[int], *, config: Config
) -> StateManifest | None:
    older = [version for version in states if version < snapshot.version]
    if not older:
        return None
    try:
        return read_state_manifest(store, max(older), config=config)
    except (LogError, ObjectNotFoundError) as error:
        logger.warning("Writing a whole state, because an older one cannot be used: %s", error)
        return None


def _versions_since(
    base: StateManifest | None, snapshot: Snapshot, read_versions: ReadVersions
) -> list[VersionActions] | None:
    if base is None:
        return None
    first = base.state_version + 1
    found = read_versions(first, snapshot.version)
    wanted = list(range(first, snapshot.version + 1))
    return found if found is not None and [v.version for v in found] == wanted else None
