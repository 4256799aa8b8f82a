"""Which files of a log may go.

Every file is kept unless all of its gates are open.

- A version file: older than the log retention, below the newest readable checkpoint, below the
  current version, and not needed to rebuild a version that is still retained.
- An Avro state: superseded for longer than its retention, not among the newest ones, not needed.
- A JSON checkpoint: superseded for longer than its retention, not the newest, not needed.
- A manifest: named by no retained state, and old enough that no writer is about to name it.

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
from collections.abc import Callable, Iterable, Sequence, Set
from dataclasses import dataclass, field

from indextables import config as keys
from indextables.config import Config
from indextables.log.checkpoints import CheckpointRef
from indextables.log.listing import LogListing
from indextables.storage import ObjectMeta

_HOUR_MS = 3_600_000


@dataclass(frozen=True, slots=True)
class ExpiredFile:
    """A file to delete, and why it may go."""

    path: str
    reason: str


@dataclass(frozen=True, slots=True)
class CleanupPlan:
    """The files whose time is over, in the order in which they go."""

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
    # None where its own gates keep it, else why it may go.
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
    going = [c for c in checkpoints if c.ref not in staying]
    return CleanupPlan(
        version_files=tuple(
            ExpiredFile(
                listing.versions[v].path,
                f"older than {retention_ms} ms and covered by checkpoint {base}",
            )
            for v in sorted(expired)
            if v < base and v < listing.latest
        ),
        json_checkpoints=_json_files(listing, going, staying, now_ms=now_ms, config=config),
        states=tuple(
            ExpiredFile(c.meta.path, c.expiry or "") for c in going if c.ref.kind == "avro"
        ),
    )


def _log_retention_ms(config: Config) -> int:
    hours = config[keys.PURGE_LOG_RETENTION_HOURS]
    return config[keys.LOG_RETENTION] if hours is None else hours * _HOUR_MS


def _checkpoints(listing: LogListing, *, now_ms: int, config: Config) -> list[_Checkpoint]:
    """All checkpoints, oldest first, each with the verdict of its own gates."""
    state_ms = config[keys.STATE_RETENTION_HOURS] * _HOUR_MS
    json_ms = config[keys.CHECKPOINT_RETENTION]
    newest_states = sorted(listing.states)[-config[keys.STATE_RETENTION_VERSIONS] :]
    found = [(CheckpointRef(v, "json"), m) for v, m in listing.checkpoints.items()]
    found += [(CheckpointRef(v, "avro"), m) for v, m in listing.states.items()]
    # Of two formats of one version the later one counts as the newer: somebody asked for it.
    found.sort(key=lambda item: (item[0].version, item[1].modified_ms, item[0].kind == "avro"))
    checkpoints: list[_Checkpoint] = []
    superseded: int | None = None
    for ref, meta in reversed(found):
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
    """Those that stay: by their own gates, or because retained versions are rebuilt from them."""
    wanted = sorted(retained)
    kept: list[_Checkpoint] = []
    # A replay that does without the checkpoint at hand starts there and gets as far as `reach`:
    # before version 0 at first, then at the last checkpoint that stays.
    started_ms = listing.versions[0].modified_ms if 0 in listing.versions else 0
    reach = -1
    passed_newest = False
    for checkpoint, following in zip(checkpoints, [*checkpoints[1:], None], strict=True):
        version = checkpoint.ref.version
        while reach + 1 in listing.versions:
            reach += 1
        end = len(wanted)
        if following is not None:
            end = bisect.bisect_left(wanted, following.ref.version)
        serves = bisect.bisect_left(wanted, version) < end
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
    going: Sequence[_Checkpoint],
    staying: Set[CheckpointRef],
    *,
    now_ms: int,
    config: Config,
) -> tuple[ExpiredFile, ...]:
    """Files of JSON checkpoints: the one that names the parts goes before them."""
    reasons = {c.ref.version: c.expiry or "" for c in going if c.ref.kind == "json"}
    files = [ExpiredFile(listing.checkpoints[v].path, reason) for v, reason in reasons.items()]
    for version, parts in sorted(listing.parts.items()):
        if version in reasons:
            files += [ExpiredFile(part.path, reasons[version]) for part in parts]
        elif CheckpointRef(version, "json") not in staying:
            # What a writer that failed left behind, unless it is still at work.
            files += [
                ExpiredFile(part.path, "part of a checkpoint that does not exist")
                for part in parts
                if now_ms - part.modified_ms > config[keys.CHECKPOINT_RETENTION]
            ]
    return tuple(files)
