"""Cross-references: which to build and which to replace, and building them.

Both planners decide from the log alone, in one vocabulary. A `Replacement` is what one commit does:
XRefs that go and XRefs that come. A `Build` makes one XRef from splits that are *read* and from
XRefs that are *linked*, whose documents are taken over without looking at their splits again.

`plan_index` is the command INDEX CROSSREFERENCES:

- A: nothing is there: all splits, in groups of `max_splits`.
- B: an XRef has room for all uncovered splits: it is replaced by one that covers both.
- C: no XRef has room: the uncovered splits get one of their own.
- D: sources of an XRef are gone: it is replaced by one over what is left and what is uncovered.

`plan_automatic` is what a write does. Replacing a growing XRef at every append, as in B,
would be n² work for n appends. So XRefs form *tiers*: when `FAN_OUT` of about the same size are
there, they become one, which is that many times larger. Every split is read once and linked once
for each tier, which is n log n. A stale XRef is replaced when a quarter of it is gone: until then
its dead documents cost less than a new one. It is then read from its splits, because linking takes
dead documents along; three splits are read for one that went.

A build runs anywhere: a task carries the store and what the log knows of its splits. An XRef that
can be linked is not built from its splits again. What was stored and is not committed is deleted.

XRefs that a commit builds for its new splits are in the same commit as the data, so no reader sees
one without the other. A commit that lost a version is made again from the newest snapshot: a
replacement that no longer fits is left out then, the data are committed all the same.

Indexing serves the commit and never harms it. It waits for at most `xref.autoIndex.timeoutMs`.
What is ready by then is committed; a build that is not is left behind and deletes what it stored
when it ends. An error is logged. The next write finds the rest uncovered and goes on with it.
"""

from __future__ import annotations

import functools
import logging
import math
import os
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Literal

import numpy as np
import numpy.typing as npt

from indextables import config as keys
from indextables.config import Config
from indextables.errors import CommitStateUnknownError, SplitError, StorageError, XRefError
from indextables.jobs.write_splits import discard
from indextables.log.actions import Action, Add, AddXRef, Metadata, Remove, RemoveXRef
from indextables.log.commit import XREF_FEATURE, Committed
from indextables.log.files import with_paths
from indextables.log.snapshot import Cover, Snapshot, VersionActions, cover_of, empty_snapshot
from indextables.log.transaction import Operation, Transaction
from indextables.log.transaction_log import TransactionLog
from indextables.plan.column_names import names_of
from indextables.runner import LocalRunner, Runner
from indextables.split.format import read_footer
from indextables.storage import Store
from indextables.xref.build import BuiltXRef, XRefSource, build_xref, merge_xrefs
from indextables.xref.container import bare_id

logger = logging.getLogger(__name__)

Mask = npt.NDArray[np.bool_]
Reason = Literal["replaced", "source_changed", "explicit"]

FAN_OUT = 4
WORN_SHARE = 0.25


@dataclass(frozen=True, slots=True)
class Build:
    """A planned XRef. It covers `read`, and `linked`, which `parts` cover already."""

    read: tuple[str, ...] = ()
    linked: tuple[str, ...] = ()
    parts: tuple[AddXRef, ...] = ()

    @property
    def splits(self) -> tuple[str, ...]:
        """All splits that the new XRef covers."""
        return self.linked + self.read


@dataclass(frozen=True, slots=True)
class Replacement:
    """What one commit does: these XRefs go, these are built."""

    builds: tuple[Build, ...]
    removes: tuple[AddXRef, ...] = ()
    reason: Reason = "replaced"

    @property
    def action(self) -> Literal["created", "rebuilt"]:
        return "rebuilt" if self.removes else "created"


@dataclass(frozen=True, slots=True)
class CrossReferencePlan:
    """Replacements that do not depend on each other, and XRefs that stay as they are."""

    replacements: tuple[Replacement, ...] = ()
    unchanged: tuple[AddXRef, ...] = ()


@dataclass(slots=True, eq=False)
class _Run:
    """An XRef that is being planned: splits to read, and XRefs to link with their live rows."""

    read: list[int] = field(default_factory=list)
    parts: dict[int, list[int]] = field(default_factory=dict)
    replaces: list[int] = field(default_factory=list)
    is_new: bool = True

    @property
    def size(self) -> int:
        return len(self.read) + sum(map(len, self.parts.values()))

    def take(self, other: _Run) -> None:
        self.read += other.read
        self.parts |= other.parts
        self.replaces += other.replaces
        self.is_new = True

    def link(self, cover: Cover, xref: int) -> None:
        self.parts[xref] = cover.owned_by(xref).tolist()
        self.replaces.append(xref)


# --- the command -------------------------------------------------------------------------------


def plan_index(
    cover: Cover, *, max_splits: int, scope: Mask | None = None, force: bool = False
) -> CrossReferencePlan:
    """The plan of INDEX CROSSREFERENCES for the splits in `scope`, by default for all.

    XRefs are not partitioned. One that covers a split in scope keeps its other splits.
    """
    if scope is None:
        scope = np.ones(len(cover.paths), dtype=np.bool_)
        concerned = list(range(len(cover.xrefs)))
    else:
        owners = cover.owner[scope]
        concerned = np.unique(owners[owners >= 0]).tolist()
    if force:
        return _forced(cover, concerned, scope, max_splits)
    sources = _source_counts(cover)
    stale = {x for x in concerned if cover.live[x] < sources[x] or not cover.owned[x]}
    left = np.flatnonzero(scope & (cover.owner < 0)).tolist()
    runs = _packed(cover, [x for x in stale if cover.owned[x]], max_splits)
    spare = [x for x in stale if not cover.owned[x]]
    if spare and not runs:
        runs = [_Run()]  # uncovered splits take their place
    for run in runs:
        left = _filled(run, left, max_splits)
    if spare:
        runs[0].replaces += spare
    replacements = [_replacement(cover, run, max_splits) for run in runs]
    in_full_builds = len(left) - len(left) % max_splits
    replacements += [
        Replacement((Build(read=_splits(cover, piece)),))
        for piece in _pieces(left[:in_full_builds], max_splits)
    ]
    if remaining := left[in_full_builds:]:
        host = next(
            (
                x
                for x in np.argsort(-sources, kind="stable").tolist()
                if x not in stale
                and cover.live[x] == sources[x]
                and sources[x] + len(remaining) <= max_splits
            ),
            None,
        )
        run = _Run(read=remaining)
        if host is not None:
            run.link(cover, host)
            stale.add(host)
        replacements.append(_replacement(cover, run, max_splits))
    unchanged = tuple(cover.xrefs[x] for x in concerned if x not in stale)
    return CrossReferencePlan(tuple(replacements), unchanged)


def _forced(
    cover: Cover, concerned: Sequence[int], scope: Mask, max_splits: int
) -> CrossReferencePlan:
    """Everything again, read from the splits: an XRef that is there may be damaged."""
    rows = np.flatnonzero(scope | np.isin(cover.owner, concerned)).tolist()
    builds = tuple(Build(read=_splits(cover, piece)) for piece in _pieces(rows, max_splits))
    removes = tuple(cover.xrefs[x] for x in concerned)
    if removes:
        return CrossReferencePlan((Replacement(builds, removes),))
    return CrossReferencePlan(tuple(Replacement((build,)) for build in builds))


# --- as a part of a write ----------------------------------------------------------------------


def plan_automatic(
    cover: Cover, *, max_splits: int, min_splits: int, rebuild_stale: bool
) -> CrossReferencePlan:
    """The plan of a write, for the table as it is after the commit."""
    worn = [x for x in range(len(cover.xrefs)) if rebuild_stale and _is_worn(cover, x)]
    dead = [x for x in worn if not cover.owned[x]]
    worn = [x for x in worn if cover.owned[x]]
    left = cover.uncovered.tolist()
    runs = _packed(cover, worn, max_splits)
    for run in runs:
        left = _filled(run, left, max_splits)
    # A whole group may be smaller than `min_splits`, if the limit is.
    least = min(min_splits, max_splits) if len(left) >= min_splits else min_splits
    runs += [_Run(read=piece) for piece in _pieces(left, max_splits) if len(piece) >= least]
    if runs:
        for xref in set(np.flatnonzero(cover.owned).tolist()) - set(worn):
            untouched = _Run(is_new=False)
            untouched.link(cover, xref)
            runs.append(untouched)
        runs = _tiered(runs, max_splits=max_splits, min_splits=min_splits)
    replacements = [_replacement(cover, run, max_splits) for run in runs if run.is_new]
    if dead:
        removes = tuple(cover.xrefs[x] for x in dead)
        replacements.append(Replacement((), removes, "source_changed"))
    return CrossReferencePlan(tuple(replacements))


def _tiered(runs: list[_Run], *, max_splits: int, min_splits: int) -> list[_Run]:
    """Join runs while a tier is full."""

    def tier(run: _Run) -> int:
        return max(0, math.floor(math.log(run.size / max(1, min_splits), FAN_OUT) + 1e-9))

    while True:
        tiers: dict[int, list[_Run]] = {}
        for run in sorted(runs, key=lambda run: run.size):
            if run.size < max_splits:
                tiers.setdefault(tier(run), []).append(run)
        for members in tiers.values():
            sizes = np.cumsum([run.size for run in members])
            fitting = int(np.searchsorted(sizes, max_splits, side="right"))
            if len(members) >= FAN_OUT and fitting > 1:
                first, *others = members[:fitting]
                for other in others:
                    first.take(other)
                runs = [run for run in runs if run not in others]
                break
        else:
            return runs


# --- common ------------------------------------------------------------------------------------


def _source_counts(cover: Cover) -> npt.NDArray[np.int64]:
    return np.array([len(x.source_split_paths) for x in cover.xrefs], dtype=np.int64)


def _is_worn(cover: Cover, xref: int) -> bool:
    """Whether so many of its splits are gone that a new XRef is worth its price."""
    sources = len(cover.xrefs[xref].source_split_paths)
    return sources - int(cover.owned[xref]) >= WORN_SHARE * sources


def _packed(cover: Cover, xrefs: Iterable[int], max_splits: int) -> list[_Run]:
    """XRefs that are replaced anyway, as few runs as first-fit finds, the largest first."""
    runs: list[_Run] = []
    for xref in sorted(xrefs, key=lambda x: int(cover.owned[x]), reverse=True):
        rows = cover.owned_by(xref).tolist()
        run = next((r for r in runs if r.size + len(rows) <= max_splits), None)
        if run is None:
            run = _Run()
            runs.append(run)
        if _is_worn(cover, xref) or len(rows) > max_splits:
            run.read += rows
            run.replaces.append(xref)
        else:
            run.link(cover, xref)
    return runs


def _filled(run: _Run, rows: list[int], max_splits: int) -> list[int]:
    """Give a run as many rows to read as fit; returns the others."""
    room = max(0, max_splits - run.size)
    run.read += rows[:room]
    return rows[room:]


def _replacement(cover: Cover, run: _Run, max_splits: int) -> Replacement:
    removes = tuple(cover.xrefs[x] for x in run.replaces)
    lost = any(int(cover.live[x]) < len(cover.xrefs[x].source_split_paths) for x in run.replaces)
    linked = [row for rows in run.parts.values() for row in rows]
    # There are too many only if the limit was lowered since.
    room = max_splits - len(linked)
    pieces = [run.read[:room], *_pieces(run.read[room:], max_splits)]
    builds = [Build(read=_splits(cover, piece)) for piece in pieces if piece]
    if linked:
        first = Build(
            read=_splits(cover, pieces[0]),
            linked=_splits(cover, linked),
            parts=tuple(cover.xrefs[x] for x in run.parts),
        )
        builds = [first, *(Build(read=_splits(cover, piece)) for piece in pieces[1:])]
    return Replacement(tuple(builds), removes, "source_changed" if lost else "replaced")


def _pieces(rows: list[int], size: int) -> list[list[int]]:
    return [rows[at : at + size] for at in range(0, len(rows), size)]


def _splits(cover: Cover, rows: Sequence[int]) -> tuple[str, ...]:
    return cover.splits(np.array(rows, dtype=np.int64))


# Every segment is asked by itself: 1,000 take about 2 ms, and each has a dictionary of its own.
_MAX_SEGMENTS = 128


def may_index(snapshot: Snapshot, config: Config) -> bool:
    """Whether XRefs may be added: the table has the feature, or may be upgraded."""
    features = snapshot.protocol.writer_features or ()
    return XREF_FEATURE in features or config[keys.PROTOCOL_AUTO_UPGRADE]


# --- building ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class BuildTask:
    """One build, ready to run anywhere."""

    store: Store
    read: tuple[XRefSource, ...]
    linked: tuple[XRefSource, ...]
    parts: tuple[tuple[str, int], ...]  # path and size
    settings: Mapping[str, object] = field(default_factory=dict, repr=False)
    reading_s: float | None = None
    """How long splits are read; the XRef covers what was read by then."""

    def run(self) -> BuiltXRef:
        """Build and store the XRef."""
        config = Config(self.settings)
        if self.parts:
            try:
                return self._link(config)
            except (XRefError, SplitError, StorageError) as error:
                # A part is damaged, missing or of another format; the splits hold the same terms.
                logger.info("Building from %d splits: %s", len(self.linked), error)
        return self._built([*self.linked, *self.read], config)

    def _built(self, sources: Sequence[XRefSource], config: Config) -> BuiltXRef:
        return build_xref(self.store, sources, config=config, reading_s=self.reading_s)

    def _link(self, config: Config) -> BuiltXRef:
        if sum(self._segments(*part) for part in self.parts) >= _MAX_SEGMENTS:
            raise XRefError("The XRefs have too many segments to be linked again.")
        paths = [path for path, _ in self.parts]
        keep = {source.path for source in (*self.linked, *self.read)}
        if not self.read:
            return merge_xrefs(self.store, paths, keep=keep, config=config)
        new = self._built(self.read, config)
        try:
            linked = merge_xrefs(self.store, [*paths, new.path], keep=keep, config=config)
            both_ms = new.build_duration_ms + linked.build_duration_ms
            return replace(linked, build_duration_ms=both_ms)
        finally:
            discard(self.store, [new])

    def _segments(self, path: str, size: int) -> int:
        read = functools.partial(self.store.get_range, path)
        return len(read_footer(read, size, path=path).info.segments)


def tasks_for(
    store: Store,
    snapshot: Snapshot,
    builds: Iterable[Build],
    config: Config,
    *,
    reading_s: float | None = None,
) -> list[BuildTask]:
    """Builds with what the log knows of their splits."""
    builds = list(builds)
    paths = set(chain.from_iterable(build.splits for build in builds))
    columns = ["path", "size", "numRecords", "footerStartOffset", "footerEndOffset"]
    entries = with_paths(snapshot.entries, paths).select(columns)
    sources = {
        path: XRefSource(path, size, records or 0, start, end)
        for path, size, records, start, end in zip(
            *(entries[name].to_pylist() for name in columns), strict=True
        )
    }
    settings = names_of(snapshot).stored_options(config).as_options()
    return [
        BuildTask(
            store,
            tuple(sources[path] for path in build.read),
            tuple(sources[path] for path in build.linked),
            tuple((part.path, part.size) for part in build.parts),
            settings,
            reading_s,
        )
        for build in builds
    ]


def run_build(task: BuildTask) -> BuiltXRef | Exception:
    """A task's XRef, or why there is none: one failure must not lose what others built."""
    try:
        return task.run()
    except Exception as error:
        return error


def local_runner(config: Config) -> LocalRunner:
    """Builds XRefs in this process."""
    return LocalRunner(config[keys.XREF_BUILD_PARALLELISM] or os.cpu_count() or 1)


# --- committing --------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class StoredReplacement:
    """A replacement whose XRefs are stored. `seen_xrefs` are those that its planner saw."""

    replacement: Replacement
    xrefs: tuple[AddXRef, ...]
    seen_xrefs: Collection[str]

    def actions_on(self, after: Snapshot, *, timestamp: int) -> list[Action] | None:
        """The actions for the table as it is at the commit; None if another writer was faster."""
        removes = self.replacement.removes
        if any(xref.path not in after.xrefs for xref in removes):
            return None
        sources = set(chain.from_iterable(x.source_split_paths for x in self.xrefs))
        if self.xrefs and not after.contains(sources):
            return None
        new_xrefs = (x for path, x in after.xrefs.items() if path not in self.seen_xrefs)
        if any(not sources.isdisjoint(x.source_split_paths) for x in new_xrefs):
            return None
        removed = removals(removes, reason=self.replacement.reason, timestamp=timestamp)
        return [*removed, *self.xrefs]


def removals(xrefs: Iterable[AddXRef], *, reason: Reason, timestamp: int) -> list[Action]:
    """The actions that remove XRefs."""
    return [
        RemoveXRef(
            path=xref.path,
            xref_id=bare_id(xref.xref_id),
            deletion_timestamp=timestamp,
            reason=reason,
        )
        for xref in xrefs
    ]


def add_xref(built: BuiltXRef, *, created_ms: int, config: Config) -> AddXRef:
    """The log entry of a stored XRef."""
    splits = tuple(dict.fromkeys(built.source_splits))
    return AddXRef(
        path=built.path,
        xref_id=bare_id(built.xref_id),
        source_split_paths=splits,
        source_split_count=len(splits),
        size=built.size,
        total_terms=built.total_terms,
        footer_start_offset=built.footer_start_offset,
        footer_end_offset=built.footer_end_offset,
        created_time=created_ms,
        build_duration_ms=built.build_duration_ms,
        max_source_splits=config[keys.XREF_MAX_SOURCE_SPLITS],
    )


def stored_replacements(
    plan: CrossReferencePlan,
    results: Sequence[BuiltXRef | Exception],
    snapshot: Snapshot,
    *,
    store: Store,
    created_ms: int,
    config: Config,
) -> tuple[list[StoredReplacement], list[Exception]]:
    """The replacements whose builds all succeeded, and the errors of the others."""
    stored: list[StoredReplacement] = []
    errors: list[Exception] = []
    remaining = iter(results)
    seen_xrefs = frozenset(snapshot.xrefs)
    for replacement in plan.replacements:
        mine = [next(remaining) for _ in replacement.builds]
        built = [result for result in mine if isinstance(result, BuiltXRef)]
        if len(built) < len(mine):
            discard(store, built)
            errors += [result for result in mine if isinstance(result, Exception)]
            continue
        xrefs = tuple(add_xref(result, created_ms=created_ms, config=config) for result in built)
        stored.append(StoredReplacement(replacement, xrefs, seen_xrefs))
    return stored, errors


def discard_stored(store: Store, stored: Iterable[StoredReplacement]) -> None:
    """Delete stored XRefs that no commit will ever name."""
    discard(store, list(chain.from_iterable(replacement.xrefs for replacement in stored)))


_READING_SHARE = 0.5
"""Of the time that is left; the other half is for writing and storing what was read."""
_MOST_AT_ONCE = 32
"""How many jobs a cluster gets at once."""


def commit_indexed(
    log: TransactionLog,
    transaction: Transaction,
    *,
    settings: Config | None = None,
    runner: Runner | None = None,
) -> Committed:
    """Commit a change of data, together with XRefs for the splits that it adds if that is due."""
    replacements = _automatic_replacements(log, transaction, settings or log.config, runner)
    if not replacements:
        return log.commit(transaction)
    actions_of = _actions_of(transaction)

    def with_xrefs(newest: Snapshot) -> Sequence[Action]:
        due_actions = actions_of(newest)
        if not _changes_files(due_actions):
            return due_actions  # nothing is left to do, and an XRef alone is not committed
        after = _after(newest, due_actions, log.now_ms())
        added: list[Action] = []
        for replacement in replacements:
            actions = replacement.actions_on(after, timestamp=log.now_ms())
            if actions is not None:
                after = _after(after, actions, log.now_ms())
                added += actions
        return [*due_actions, *added]

    try:
        committed = log.commit(replace(transaction, transform=with_xrefs))
    except CommitStateUnknownError:
        raise  # the commit may have happened, and then it names them
    except BaseException:
        discard_stored(log.store, replacements)
        raise
    live = committed.snapshot.xrefs
    discard_stored(log.store, [m for m in replacements if not all(x.path in live for x in m.xrefs)])
    return committed


def _automatic_replacements(
    log: TransactionLog, transaction: Transaction, settings: Config, runner: Runner | None
) -> list[StoredReplacement]:
    """The XRefs that are ready in time; none if anything is wrong."""
    try:
        first = transaction.operation is Operation.CREATE
        newest = empty_snapshot(log.store.uri) if first else log.snapshot()
        actions = _actions_of(transaction)(newest)
        if not _changes_files(actions):
            return []
        after = _after(newest, actions, log.now_ms())
        config = settings.over_properties(after.metadata.configuration)
        if not (config[keys.XREF_AUTO_INDEX] and may_index(newest, config)):
            return []
        plan = plan_automatic(
            cover_of(after),
            max_splits=config[keys.XREF_MAX_SOURCE_SPLITS],
            min_splits=config[keys.XREF_MIN_SPLITS_TO_TRIGGER],
            rebuild_stale=config[keys.XREF_REBUILD_ON_SOURCE_CHANGE],
        )
        return _built_in_time(log, after, plan, config, runner)
    except Exception as error:
        # The data can be committed without XRefs; if they cannot, the commit raises its own error.
        logger.warning("%s is committed without new XRefs: %s", log.store.uri, error)
        return []


def _built_in_time(
    log: TransactionLog,
    after: Snapshot,
    plan: CrossReferencePlan,
    config: Config,
    runner: Runner | None,
) -> list[StoredReplacement]:
    """The replacements that are ready in time. A build that would be late covers what it has read
    after a share of the time, so every commit makes some progress.
    """
    seen_xrefs = frozenset(after.xrefs)
    removals = [
        StoredReplacement(planned, (), seen_xrefs)
        for planned in plan.replacements
        if not planned.builds
    ]
    due = [planned for planned in plan.replacements if planned.builds]
    if not due:
        return removals
    budget_s = config[keys.XREF_AUTO_INDEX_TIMEOUT] / 1000
    deadline = time.monotonic() + budget_s
    where = runner or local_runner(config)

    def build(replacement: Replacement) -> StoredReplacement | None:
        left_s = deadline - time.monotonic()
        if left_s <= 0:
            return None
        tasks = tasks_for(
            log.store, after, replacement.builds, config, reading_s=left_s * _READING_SHARE
        )
        stored, errors = stored_replacements(
            CrossReferencePlan((replacement,)),
            where.map(run_build, tasks),
            after,
            store=log.store,
            created_ms=log.now_ms(),
            config=config,
        )
        for error in errors:
            logger.warning("An XRef of %s was not built: %s", log.store.uri, error)
        return stored[0] if stored else None

    at_once = config[keys.XREF_BUILD_PARALLELISM] or (os.cpu_count() if runner is None else None)
    pool = ThreadPoolExecutor(
        min(len(due), at_once or _MOST_AT_ONCE), thread_name_prefix="indextables-xref"
    )
    futures = [pool.submit(build, planned) for planned in due]
    wait(futures, timeout=budget_s)
    pool.shutdown(wait=False, cancel_futures=True)
    late = [future for future in futures if not future.done()]
    for future in late:
        # Called at once if it has ended meanwhile, so no result is missed.
        future.add_done_callback(lambda done: _discard_late(log, done))
    ready: list[StoredReplacement] = []
    for future in futures:
        if future in late or future.cancelled():
            continue
        if error := future.exception():
            logger.warning("An XRef of %s was not built: %s", log.store.uri, error)
        elif stored := future.result():
            ready.append(stored)
    _report_late(log, due, ready, late, config)
    return ready + removals


def _report_late(
    log: TransactionLog,
    due: Sequence[Replacement],
    ready: Sequence[StoredReplacement],
    late: Sequence[Future[StoredReplacement | None]],
    config: Config,
) -> None:
    due_splits = sum(len(build.splits) for replacement in due for build in replacement.builds)
    covered = sum(xref.source_split_count for stored in ready for xref in stored.xrefs)
    if covered < due_splits and (late or covered):
        logger.warning(
            "%s is committed with XRefs for %d of %d splits: the others took more than %d ms. The "
            "next write continues; or raise %s, or run INDEX CROSSREFERENCES.",
            log.store.uri, covered, due_splits, config[keys.XREF_AUTO_INDEX_TIMEOUT],
            keys.XREF_AUTO_INDEX_TIMEOUT.name,
        )  # fmt: skip


def _discard_late(log: TransactionLog, done: Future[StoredReplacement | None]) -> None:
    if not done.cancelled() and done.exception() is None and (stored := done.result()):
        discard_stored(log.store, [stored])


def _actions_of(transaction: Transaction) -> Callable[[Snapshot], Sequence[Action]]:
    return transaction.transform or (lambda _newest: transaction.actions)


def _changes_files(actions: Sequence[Action]) -> bool:
    return any(isinstance(a, Add | Remove) for a in actions)


def _after(snapshot: Snapshot, actions: Sequence[Action], now_ms: int) -> Snapshot:
    """The table after a commit of these actions."""
    kinds = (Add, Remove, AddXRef, RemoveXRef, Metadata)
    files = [a for a in actions if isinstance(a, kinds)]
    return snapshot.advance([VersionActions(snapshot.version + 1, files, now_ms)])
