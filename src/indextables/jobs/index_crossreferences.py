"""INDEX CROSSREFERENCES: building XRefs with a runner, committing them, and reporting them as rows.

XRefs are built in parallel and stored under names of their own; each replacement is one commit, so
a reader sees the old XRefs or the new ones. A build whose splits vanish meanwhile (a merge, an
overwrite) may still be committed: its documents say what those splits held, nobody asks for splits
that are not live, and what took their place is uncovered and read. So an XRef conflicts with no
change of data. It does conflict with another XRef for the same splits: then the work is planned
again, and what was built for nothing is deleted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np
import pyarrow as pa

from indextables import config as keys
from indextables.config import Config
from indextables.errors import (
    CommitStateUnknownError,
    ConcurrentIndexError,
    ConflictError,
    IndexTablesError,
    UpgradeRefusedError,
)
from indextables.jobs.crossreference_build import (
    Build,
    CrossReferencePlan,
    Mask,
    StoredReplacement,
    discard_stored,
    local_runner,
    may_index,
    plan_index,
    removals,
    run_build,
    stored_replacements,
    tasks_for,
)
from indextables.jobs.progress import progress
from indextables.log.actions import Action
from indextables.log.commit import XREF_FEATURE
from indextables.log.snapshot import Snapshot, cover_of
from indextables.log.transaction import Operation, Transaction
from indextables.log.transaction_log import TransactionLog
from indextables.plan.skipping import check_partition_condition, keep_mask
from indextables.predicate import Predicate
from indextables.runner import Runner
from indextables.xref.build import BuiltXRef
from indextables.xref.container import bare_id

_ATTEMPTS = 5


@dataclass(frozen=True, slots=True)
class Indexed:
    """What the command did about one XRef; in a dry run, what it would do."""

    action: str
    path: str | None
    splits: int
    total_terms: int | None = None
    size: int | None = None
    build_duration_ms: int = 0


def index_crossreferences(
    log: TransactionLog,
    *,
    settings: Config,
    where: Predicate | None = None,
    force: bool = False,
    dry_run: bool = False,
    runner: Runner | None = None,
) -> list[Indexed]:
    """Build what is missing, replace what is stale; with `force`, rebuild everything."""
    for attempt in range(1, _ATTEMPTS + 1):
        snapshot = log.snapshot()
        config = settings.over_properties(snapshot.metadata.configuration)
        plan = plan_index(
            cover_of(snapshot),
            max_splits=config[keys.XREF_MAX_SOURCE_SPLITS],
            scope=None if where is None else _scope(snapshot, where),
            force=force,
        )
        if any(replacement.builds for replacement in plan.replacements) and not may_index(
            snapshot, config
        ):
            raise UpgradeRefusedError(snapshot.uri, feature=XREF_FEATURE)
        if dry_run:
            return _planned(plan)
        try:
            return _carried_out(log, snapshot, plan, config, runner)
        except ConflictError:
            if attempt == _ATTEMPTS:
                raise
    raise AssertionError("unreachable")


def drop_crossreferences(log: TransactionLog) -> int:
    """Remove all XRefs of a table; returns how many. The files stay until purge."""
    removed: list[Action] = []

    def plan(newest: Snapshot) -> list[Action]:
        removed[:] = removals(newest.xrefs.values(), reason="explicit", timestamp=log.now_ms())
        return removed

    parameters = {"reason": "explicit"}
    log.commit(Transaction(operation=Operation.XREF, transform=plan, parameters=parameters))
    return len(removed)


def _scope(snapshot: Snapshot, where: Predicate) -> Mask:
    """The live splits of some partitions."""
    check_partition_condition(where, snapshot)
    mask: Mask = keep_mask(
        where,
        snapshot.entries,
        schema=snapshot.schema,
        partition_columns=snapshot.partition_columns,
    )
    return np.asarray(mask, dtype=np.bool_)


def _carried_out(
    log: TransactionLog,
    snapshot: Snapshot,
    plan: CrossReferencePlan,
    config: Config,
    runner: Runner | None,
) -> list[Indexed]:
    builds = list(chain.from_iterable(replacement.builds for replacement in plan.replacements))
    tasks = tasks_for(log.store, snapshot, builds, config)
    runner = runner or local_runner(config)
    at_once = config[keys.XREF_BUILD_PARALLELISM] or max(1, len(tasks))
    results: list[BuiltXRef | Exception] = []
    title = "Building cross-references"
    with progress(title, len(tasks), "files", table=log.store.uri) as advance:
        for start in range(0, len(tasks), at_once):
            portion = tasks[start : start + at_once]
            results += runner.map(run_build, portion, ended=lambda _: advance(1))
    stored, errors = stored_replacements(
        plan, results, snapshot, store=log.store, created_ms=log.now_ms(), config=config
    )
    done: list[Indexed] = [
        Indexed("unchanged", x.path, len(x.source_split_paths), x.total_terms, x.size)
        for x in plan.unchanged
    ]
    while stored:
        replacement = stored[0]
        try:
            _commit(log, snapshot, replacement)
        except CommitStateUnknownError:
            discard_stored(log.store, stored[1:])
            raise
        except IndexTablesError:
            discard_stored(log.store, stored)
            raise
        done += _reported(replacement)
        stored = stored[1:]
    if errors:
        raise errors[0]
    return done


def _commit(log: TransactionLog, snapshot: Snapshot, stored: StoredReplacement) -> None:
    def plan(newest: Snapshot) -> list[Action]:
        actions = stored.actions_on(newest, timestamp=log.now_ms())
        if actions is None:
            raise ConcurrentIndexError(
                uri=newest.uri,
                version=newest.version,
                paths=[x.path for x in stored.replacement.removes],
            )
        return actions

    log.commit(
        Transaction(
            operation=Operation.XREF,
            transform=plan,
            read_version=snapshot.version,
            read_snapshot=snapshot,
            parameters={"reason": stored.replacement.reason, "action": stored.replacement.action},
            metrics={
                "xrefsAdded": len(stored.xrefs),
                "xrefsRemoved": len(stored.replacement.removes),
                "splits": sum(x.source_split_count for x in stored.xrefs),
            },
        )
    )


def _reported(stored: StoredReplacement) -> list[Indexed]:
    action = stored.replacement.action
    if not stored.xrefs:
        return [Indexed(action, None, 0, 0, 0)]
    return [
        Indexed(action, x.path, x.source_split_count, x.total_terms, x.size, x.build_duration_ms)
        for x in stored.xrefs
    ]


def _planned(plan: CrossReferencePlan) -> list[Indexed]:
    planned = [
        Indexed(replacement.action, None, len(build.splits))
        for replacement in plan.replacements
        for build in replacement.builds or (Build(),)
    ]
    kept = [
        Indexed("unchanged", None, len(x.source_split_paths), x.total_terms, x.size)
        for x in plan.unchanged
    ]
    return kept + planned


_TEXT: pa.DataType = pa.string()
_INTEGER: pa.DataType = pa.int32()
_LONG: pa.DataType = pa.int64()

INDEXED = pa.schema(
    [
        ("table_path", _TEXT),
        ("partition", _TEXT),
        ("action", _TEXT),
        ("xref_path", _TEXT),
        ("source_splits_count", _INTEGER),
        ("total_terms", _LONG),
        ("xref_size_bytes", _LONG),
        ("build_duration_ms", _LONG),
    ]
)

_COLUMNS: list[tuple[str, pa.DataType]] = [
    ("path", _TEXT),
    ("xrefId", _TEXT),
    ("sourceSplitPaths", pa.list_(_TEXT)),
    ("sourceSplitCount", _LONG),
    ("liveSplitCount", _LONG),
    ("size", _LONG),
    ("totalTerms", _LONG),
    ("footerStartOffset", _LONG),
    ("footerEndOffset", _LONG),
    ("createdTime", pa.timestamp("ms", "UTC")),
    ("buildDurationMs", _LONG),
    ("maxSourceSplits", _LONG),
]
XREFS = pa.schema(_COLUMNS)


def indexed_rows(indexed: Sequence[Indexed], *, table_path: str, where: str | None) -> pa.Table:
    """A row for every XRef that INDEX CROSSREFERENCES made or left as it was."""
    rows = [
        {
            "table_path": table_path,
            "partition": where or "",
            "action": xref.action,
            "xref_path": xref.path,
            "source_splits_count": xref.splits,
            "total_terms": xref.total_terms,
            "xref_size_bytes": xref.size,
            "build_duration_ms": xref.build_duration_ms,
        }
        for xref in indexed
    ]
    return pa.Table.from_pylist(rows, INDEXED)


def xref_rows(snapshot: Snapshot) -> pa.Table:
    """A row for every XRef; `liveSplitCount` are those of its splits that are still there."""
    cover = cover_of(snapshot)
    rows = [
        {
            "path": xref.path,
            "xrefId": bare_id(xref.xref_id),
            "sourceSplitPaths": xref.source_split_paths,
            "sourceSplitCount": len(xref.source_split_paths),
            "liveSplitCount": int(live),
            "size": xref.size,
            "totalTerms": xref.total_terms,
            "footerStartOffset": xref.footer_start_offset,
            "footerEndOffset": xref.footer_end_offset,
            "createdTime": xref.created_time,
            "buildDurationMs": xref.build_duration_ms,
            "maxSourceSplits": xref.max_source_splits,
        }
        for xref, live in zip(cover.xrefs, cover.live, strict=True)
    ]
    return pa.Table.from_pylist(rows, XREFS)
