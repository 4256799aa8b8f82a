"""XRefs from a plan to actions: build tasks, what they made, and whether it still fits.

A build runs anywhere: a task carries the store and what the log knows of its splits. An XRef that
can be linked is not built from its splits again. What was stored and is not committed is deleted.
"""

from __future__ import annotations

import functools
import logging
import os
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain

from indextables import config as keys
from indextables.config import Config
from indextables.errors import SplitError, StorageError, XRefError
from indextables.jobs.crossreference_plan import Build, CrossReferencePlan, Reason, Replacement
from indextables.jobs.write_splits import discard
from indextables.log.actions import Action, AddXRef, RemoveXRef
from indextables.log.files import with_paths
from indextables.log.rebase import XREF_FEATURE
from indextables.log.snapshot import Snapshot
from indextables.plan.column_names import names_of
from indextables.runner import LocalRunner
from indextables.split.container import read_footer
from indextables.storage import Store
from indextables.xref.build import BuiltXRef, XRefSource, build_xref, merge_xrefs
from indextables.xref.names import bare_id

logger = logging.getLogger(__name__)

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
                # A part is damaged, gone or of another make; the splits know the same.
                logger.info("Building from %d splits: %s", len(self.linked), error)
        return self._built([*self.linked, *self.read], config)

    def _built(self, sources: Sequence[XRefSource], config: Config) -> BuiltXRef:
        return build_xref(self.store, sources, config=config, reading_s=self.reading_s)

    def _link(self, config: Config) -> BuiltXRef:
        if sum(self._segments(*part) for part in self.parts) >= _MAX_SEGMENTS:
            raise XRefError("The XRefs have too many segments to be linked once more.")
        paths = [path for path, _ in self.parts]
        keep = {source.path for source in (*self.linked, *self.read)}
        if not self.read:
            return merge_xrefs(self.store, paths, keep=keep, config=config)
        new = self._built(self.read, config)
        try:
            made = merge_xrefs(self.store, [*paths, new.path], keep=keep, config=config)
            both_ms = new.build_duration_ms + made.build_duration_ms
            return replace(made, build_duration_ms=both_ms)
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
    wanted = set(chain.from_iterable(build.splits for build in builds))
    columns = ["path", "size", "numRecords", "footerStartOffset", "footerEndOffset"]
    entries = with_paths(snapshot.entries, wanted).select(columns)
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
class Made:
    """A replacement whose XRefs are stored. `known` are the XRefs that its planner saw."""

    replacement: Replacement
    xrefs: tuple[AddXRef, ...]
    known: Collection[str]

    def actions_on(self, after: Snapshot, *, timestamp: int) -> list[Action] | None:
        """The actions for the table as it is then; None if others were faster."""
        removes = self.replacement.removes
        if any(xref.path not in after.xrefs for xref in removes):
            return None
        sources = set(chain.from_iterable(x.source_split_paths for x in self.xrefs))
        if self.xrefs and not after.contains(sources):
            return None
        others = (x for path, x in after.xrefs.items() if path not in self.known)
        if any(not sources.isdisjoint(x.source_split_paths) for x in others):
            return None
        gone = removals(removes, reason=self.replacement.reason, timestamp=timestamp)
        return [*gone, *self.xrefs]


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


def made_from(
    plan: CrossReferencePlan,
    results: Sequence[BuiltXRef | Exception],
    snapshot: Snapshot,
    *,
    store: Store,
    created_ms: int,
    config: Config,
) -> tuple[list[Made], list[Exception]]:
    """The replacements whose builds all succeeded, and the errors of the others."""
    made: list[Made] = []
    errors: list[Exception] = []
    left = iter(results)
    known = frozenset(snapshot.xrefs)
    for replacement in plan.replacements:
        mine = [next(left) for _ in replacement.builds]
        built = [one for one in mine if isinstance(one, BuiltXRef)]
        if len(built) < len(mine):
            discard(store, built)
            errors += [one for one in mine if isinstance(one, Exception)]
            continue
        xrefs = tuple(add_xref(one, created_ms=created_ms, config=config) for one in built)
        made.append(Made(replacement, xrefs, known))
    return made, errors


def discard_made(store: Store, made: Iterable[Made]) -> None:
    """Delete stored XRefs that no commit will ever name."""
    discard(store, list(chain.from_iterable(one.xrefs for one in made)))
