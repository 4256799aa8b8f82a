"""Merging small splits into large ones: plan, merge groups in parallel, commit each on its own.

A group reads splits that stay as they are, so the only conflict is that another writer removed one
of them meanwhile. Such a group is dropped, and so is its new split. A failure costs one group. A
source that cannot be read is recorded and left alone for a while; it stays in the table.

Groups are taken in batches. Each batch plans with the newest version, so groups whose sources are
gone by then cost nothing, and what is ready is committed before the next batch begins.

A write merges before its commit: tasks of a cluster store one split for each partition they touch,
so a write can make many small ones. No version names them yet, so nothing is removed from the
table. A group that cannot be merged is committed as it is. And it merges and purges after its
commit, where a table asks for it. What goes wrong then is logged and never becomes the write's
error: its caller would write the same rows again.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import os
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal

import pyarrow as pa

from indextables import config as keys
from indextables.config import Config, parse_size
from indextables.errors import (
    CommitStateUnknownError,
    ConfigError,
    ConflictError,
    IndexTablesError,
)
from indextables.jobs.crossreference_build import commit_indexed
from indextables.jobs.history import purge
from indextables.jobs.merge_groups import (
    MergeGroup,
    MergeResult,
    MergeTask,
    candidates_of,
    local_runner,
    merge_settings,
    plan_merges,
    run_merges,
    source_of,
    with_many_dead,
    without_large_splits,
)
from indextables.jobs.progress import progress
from indextables.jobs.write_splits import discard
from indextables.jobs.write_target import Target
from indextables.log.actions import Add
from indextables.log.files import adds_from_files, files_from_adds, removes_for, with_paths
from indextables.log.snapshot import Snapshot
from indextables.log.transaction import Operation, Transaction
from indextables.log.transaction_log import TransactionLog, without_cooldown
from indextables.plan.skipping import files_of_partitions
from indextables.plan.view import TableView
from indextables.predicate import TRUE, Predicate
from indextables.runner import Runner
from indextables.storage import Store

logger = logging.getLogger(__name__)

Status = Literal["success", "partial_success", "no_action", "error"]

MIN_TARGET_SIZE = 1 << 20
EMPTY = "Table is empty"
OPTIMAL = "All splits are already optimal size"


@dataclass(frozen=True, slots=True)
class MergeLimits:
    """How much may be merged. `max_groups` of None is no limit."""

    target_size: int
    max_groups: int | None = None
    max_sources: int = keys.MERGE_MAX_SOURCE_SPLITS.default
    max_share: float = 1.0

    @classmethod
    def checked(
        cls,
        config: Config,
        *,
        target_size: int | str | None = None,
        max_groups: int | None = None,
        max_sources: int | None = None,
    ) -> MergeLimits:
        """The limits of a caller over those of the configuration; invalid ones are refused."""
        size = config[keys.MERGE_TARGET_SIZE]
        if target_size is not None:
            size = parse_size(target_size, name="target size")
        if size < MIN_TARGET_SIZE:
            raise ConfigError(f"Target size must be at least 1MB: {target_size}")
        if max_groups is not None and not (isinstance(max_groups, int) and max_groups >= 1):
            raise ConfigError(f"MAX GROUPS is a number of groups, at least 1, not {max_groups!r}.")
        if max_sources is not None and not (isinstance(max_sources, int) and max_sources >= 2):
            raise ConfigError(f"It takes at least 2 splits to merge them, not {max_sources!r}.")
        return cls(
            target_size=size,
            max_groups=max_groups,
            max_sources=max_sources or config[keys.MERGE_MAX_SOURCE_SPLITS],
            max_share=config[keys.MERGE_SKIP_THRESHOLD],
        )


@dataclass(frozen=True, slots=True)
class Merged:
    """What a merge did."""

    status: Status
    message: str
    version: int
    """The table's version after it."""
    files_removed: int = 0
    """The splits that were merged."""
    files_added: int = 0
    """The splits that they became, one for each group."""
    bytes_removed: int = 0
    bytes_added: int = 0
    conflicts: tuple[str, ...] = ()
    """Groups that were dropped because another writer changed their splits meanwhile."""
    failures: tuple[str, ...] = ()
    """Why other groups were not merged."""
    skipped: tuple[str, ...] = ()
    """Splits that are recorded as skipped: they cannot be read."""


@dataclass(slots=True)
class _Tally:
    """What happened so far."""

    groups: int = 0
    files: int = 0
    bytes_before: int = 0
    bytes_after: int = 0
    conflicts: list[str] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    bad_sources: dict[str, str] = field(default_factory=dict)

    def merged(self, group: MergeGroup, add: Add) -> None:
        self.groups += 1
        self.files += len(group.sources)
        self.bytes_before += group.size
        self.bytes_after += add.size

    def result(self, version: int) -> Merged:
        lost = len(self.conflicts) + len(self.failures)
        status: Status = "error" if not self.groups else "partial_success" if lost else "success"
        if not self.groups and not self.failures:
            status = "no_action"  # other writers were faster, and their commits stay
        parts = [f"Merged {self.files:,} files into {self.groups:,}"]
        if self.conflicts:
            parts.append(f"{len(self.conflicts):,} groups changed meanwhile")
        if self.failures:
            parts.append(f"{len(self.failures):,} groups failed: {self.failures[0]}")
        return Merged(
            status=status,
            message="; ".join(parts),
            version=version,
            files_removed=self.files,
            files_added=self.groups,
            bytes_removed=self.bytes_before,
            bytes_added=self.bytes_after,
            conflicts=tuple(self.conflicts),
            failures=tuple(self.failures),
            skipped=tuple(sorted(self.bad_sources)),
        )


def merge_splits(
    log: TransactionLog,
    view: TableView,
    *,
    limits: MergeLimits,
    predicate: Predicate = TRUE,
    runner: Runner | None = None,
) -> Merged:
    """Merge the splits of the partitions that meet a condition."""
    snapshot = view.snapshot
    if not snapshot.num_files:
        return Merged("no_action", EMPTY, snapshot.version)
    groups = plan_groups(log, snapshot, limits=limits, predicate=predicate)
    return merge_groups(log, view, groups, runner=runner)


def plan_groups(
    log: TransactionLog,
    snapshot: Snapshot,
    *,
    limits: MergeLimits,
    predicate: Predicate = TRUE,
    skip_large_splits: bool = False,
) -> list[MergeGroup]:
    """The groups that a merge of the snapshot takes, in their order."""
    chosen = files_of_partitions(snapshot, predicate)
    candidates = candidates_of(without_cooldown(snapshot, chosen, now_ms=log.now_ms()))
    groups = plan_merges(
        candidates,
        target_size=limits.target_size,
        max_sources=limits.max_sources,
        max_share=limits.max_share,
    )
    groups = without_large_splits(groups) if skip_large_splits else groups
    share = log.config.over_properties(snapshot.metadata.configuration)[keys.VECTOR_MAX_SHARE]
    dead = with_many_dead(candidates, groups, share=share)
    return [*dead, *groups][: limits.max_groups]


def merge_groups(
    log: TransactionLog,
    view: TableView,
    groups: Sequence[MergeGroup],
    *,
    runner: Runner | None = None,
    task_of: Callable[[TableView, pa.Table], MergeTask] | None = None,
) -> Merged:
    """Merge groups and commit each of them on its own. `task_of` makes a task of entries."""
    tally = _Tally()
    if not groups:
        return Merged("no_action", OPTIMAL, view.version)
    batch_size = view.config[keys.MERGE_BATCH_SIZE] or 4 * (os.cpu_count() or 1)
    size = sum(group.size for group in groups)
    with progress("Merging", len(groups), table=log.store.uri, size=size) as advance:
        for start in range(0, len(groups), batch_size):
            batch = groups[start : start + batch_size]
            view = view.at(log.snapshot())
            snapshot = view.snapshot
            live = [g for g in batch if snapshot.contains(g.paths) == set(g.paths)]
            tally.conflicts += [_changed(g) for g in batch if g not in live]
            files = {group: _files_of(snapshot, group) for group in live}
            tasks = [(task_of or _task)(view, files[group]) for group in live]
            results = run_merges(
                tasks,
                runner or local_runner(view.config),
                ended=lambda at, live=live: advance(1, live[at].size),  # type: ignore[misc]
            )
            for group in batch:
                if group not in live:
                    advance(1, group.size)
            for group, result in zip(live, results, strict=True):
                commit = functools.partial(_commit, log, view, files[group], runner=runner)
                _finish(log, group, result, tally, commit=commit)
    if tally.bad_sources:
        log.record_skips(tally.bad_sources, operation="merge")
    return tally.result(log.snapshot().version)


def _files_of(snapshot: Snapshot, group: MergeGroup) -> pa.Table:
    """The entries of a group's sources, in the group's order."""
    files = with_paths(snapshot.entries, group.paths)
    positions = {path: number for number, path in enumerate(files["path"].to_pylist())}
    return files.take([positions[path] for path in group.paths])


def _task(view: TableView, files: pa.Table) -> MergeTask:
    adds = adds_from_files(files)
    values = adds[0].partition_values
    return MergeTask(
        store=view.store,
        sources=tuple(map(source_of, adds)),
        schema=view.schema,
        mapping=view.mapping,
        partition_values={name: values.get(name) for name in view.partition_columns},
        partition_columns=view.partition_columns,
        data_change=False,
        settings=merge_settings(view.config),
    )


def _finish(
    log: TransactionLog,
    group: MergeGroup,
    result: MergeResult,
    tally: _Tally,
    *,
    commit: Callable[[Add], object],
) -> None:
    """Commit a group that is merged; whatever happens, other groups go on."""
    if result.add is None:
        logger.warning("%d splits were not merged: %s", len(group.sources), result.error)
        tally.failures.append(result.error)
        tally.bad_sources |= result.bad_sources
        return
    try:
        commit(result.add)
    except CommitStateUnknownError as error:
        tally.failures.append(str(error))  # the commit may have happened
    except ConflictError:
        discard(log.store, [result.add])
        tally.conflicts.append(_changed(group))
    except IndexTablesError as error:
        discard(log.store, [result.add])
        tally.failures.append(str(error))
    else:
        tally.merged(group, result.add)


def _commit(
    log: TransactionLog,
    view: TableView,
    files: pa.Table,
    add: Add,
    *,
    runner: Runner | None,
) -> None:
    removes = removes_for(files, timestamp=log.now_ms(), data_change=False)
    transaction = Transaction(
        operation=Operation.MERGE,
        actions=[*removes, add],
        read_version=view.version,
        read_snapshot=view.snapshot,
        read_paths=frozenset(remove.path for remove in removes),
        metrics={"rows": add.num_records, "files": len(removes)},
    )
    commit_indexed(log, transaction, settings=view.settings, runner=runner)


def _changed(group: MergeGroup) -> str:
    more = f" and {len(group.paths) - 1} more" if len(group.paths) > 1 else ""
    return f"{group.paths[0]}{more}"


# --- merging as a part of a write ------------------------------------------------------------


def merged_before_commit(
    store: Store,
    adds: Sequence[Add],
    *,
    target: Target,
    partition_columns: Sequence[str],
    config: Config,
) -> list[Add]:
    """The splits to commit: the small ones merged, if `mergePrecommit` is set."""
    if not config[keys.MERGE_PRECOMMIT] or len(adds) < 2:
        return list(adds)
    groups = plan_merges(
        candidates_of(files_from_adds([(add, 0, 0) for add in adds])),
        target_size=config[keys.MERGE_TARGET_SIZE],
        max_sources=config[keys.MERGE_MAX_SOURCE_SPLITS],
    )
    settings = merge_settings(config)
    tasks = []
    for group in groups:
        sources = [adds[candidate.row] for candidate in group.sources]
        tasks.append(
            MergeTask(
                store=store,
                sources=tuple(map(source_of, sources)),
                schema=target.schema,
                mapping=target.mapping,
                partition_values=sources[0].partition_values,
                partition_columns=tuple(partition_columns),
                data_change=True,
                settings=settings,
            )
        )
    merged: list[Add] = []
    merged_paths: set[str] = set()
    results = run_merges(tasks, local_runner(config))
    for group, result in zip(groups, results, strict=True):
        if result.add is None:
            logger.warning("A write commits its splits unmerged: %s", result.error)
        else:
            merged.append(result.add)
            merged_paths.update(group.paths)
    discard(store, [add for add in adds if add.path in merged_paths])
    return [*(add for add in adds if add.path not in merged_paths), *merged]


_running: set[str] = set()
_writes: Counter[str] = Counter()
_lock = threading.Lock()


def after_write(log: TransactionLog, config: Config) -> None:
    """Merge and purge if the configuration says so and there is something to do."""
    try:
        if not config[keys.MERGE_ON_WRITE] and not config[keys.PURGE_ON_WRITE]:
            return
        with _only_one(log.store.identity) as mine:
            if mine:
                view = TableView.newest(log, config)
                merged = config[keys.MERGE_ON_WRITE] and _merge(log, view)
                if config[keys.PURGE_ON_WRITE]:
                    _purge(log, config, merged=merged)
    except Exception as error:
        logger.warning(
            "A write to %s is committed, but the upkeep after it failed: %s", log.store.uri, error
        )


@contextlib.contextmanager
def _only_one(identity: str) -> Iterator[bool]:
    """Whether no other thread of this process is at it for the same table."""
    with _lock:
        mine = identity not in _running
        _running.add(identity)
    try:
        yield mine
    finally:
        if mine:
            with _lock:
                _running.discard(identity)


def _merge(log: TransactionLog, view: TableView) -> bool:
    groups = groups_after_write(log, view.snapshot, view.config)
    return bool(groups) and merge_groups(log, view, groups, runner=None).files_added > 0


def groups_after_write(log: TransactionLog, snapshot: Snapshot, config: Config) -> list[MergeGroup]:
    """What is merged after a write; nothing until there is enough of it."""
    limits = MergeLimits(
        target_size=config[keys.MERGE_ON_WRITE_TARGET_SIZE],
        max_sources=config[keys.MERGE_MAX_SOURCE_SPLITS],
        max_share=config[keys.MERGE_SKIP_THRESHOLD],
    )
    groups = plan_groups(log, snapshot, limits=limits, skip_large_splits=True)
    cores = os.cpu_count() or 1
    batch = max(1, int(cores * config[keys.MERGE_ON_WRITE_CPU_FRACTION]))
    if len(groups) < batch * config[keys.MERGE_ON_WRITE_MIN_BATCHES]:
        groups = [group for group in groups if len(group.sources) == 1]  # deleted rows have to go
    return groups


def _purge(log: TransactionLog, config: Config, *, merged: bool) -> None:
    every = config[keys.PURGE_ON_WRITE_AFTER_WRITES]
    with _lock:
        _writes[log.store.identity] += 1
        due = every > 0 and _writes[log.store.identity] % every == 0
    if due or (merged and config[keys.PURGE_ON_WRITE_AFTER_MERGE]):
        purge(
            log,
            retention_hours=config[keys.PURGE_ON_WRITE_SPLIT_HOURS],
            log_retention_hours=config[keys.PURGE_ON_WRITE_LOG_HOURS],
            dry_run=False,
            config=config,
        )
