"""What a write does besides its rows: it merges splits before and after its commit.

Merging the splits of a write before they are committed.

Tasks of a cluster store one split for each partition they touch, so a write can make many small
ones. They are merged on their way: nobody has seen them, so nothing is removed from the table. A
group that cannot be merged is committed as it is.

What follows a write: merging small splits and purging, where a table asks for it.

The write is committed. Whatever happens here is logged and never becomes the write's error: its
caller would write the same rows again.
"""

from __future__ import annotations

import contextlib
import logging
import os
import threading
from collections import Counter
from collections.abc import Iterator, Sequence

from indextables import config as keys
from indextables.config import Config
from indextables.jobs.merge_groups import (
    MergeGroup,
    MergeTask,
    candidates_of,
    local_runner,
    merge_settings,
    plan_merges,
    run_merges,
    source_of,
)
from indextables.jobs.merge_splits import MergeLimits, merge_groups, plan_groups
from indextables.jobs.purge import purge
from indextables.jobs.write_splits import discard
from indextables.jobs.write_target import Target
from indextables.log.actions import Add
from indextables.log.files import files_from_adds
from indextables.log.snapshot import Snapshot
from indextables.log.transaction_log import TransactionLog
from indextables.plan.view import TableView
from indextables.runner import Runner
from indextables.storage import Store

logger = logging.getLogger(__name__)


def merged_before_commit(
    store: Store,
    adds: Sequence[Add],
    *,
    target: Target,
    partition_columns: Sequence[str],
    config: Config,
    runner: Runner | None = None,
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
    gone: set[str] = set()
    results = run_merges(tasks, runner or local_runner(config))
    for group, result in zip(groups, results, strict=True):
        if result.add is None:
            logger.warning("A write commits its splits unmerged: %s", result.error)
        else:
            merged.append(result.add)
            gone.update(group.paths)
    discard(store, [add for add in adds if add.path in gone])
    return [*(add for add in adds if add.path not in gone), *merged]


_running: set[str] = set()
_writes: Counter[str] = Counter()
_lock = threading.Lock()


def after_write(log: TransactionLog, config: Config, *, runner: Runner | None = None) -> None:
    """Merge and purge if the configuration says so and there is something to do."""
    try:
        if not config[keys.MERGE_ON_WRITE] and not config[keys.PURGE_ON_WRITE]:
            return
        with _only_one(log.store.identity) as mine:
            if mine:
                view = TableView.newest(log, config)
                merged = config[keys.MERGE_ON_WRITE] and _merge(log, view, runner)
                if config[keys.PURGE_ON_WRITE]:
                    _purge(log, config, merged=merged)
    except Exception as error:
        logger.warning(
            "A write to %s is committed, but what follows it failed: %s", log.store.uri, error
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


def _merge(log: TransactionLog, view: TableView, runner: Runner | None) -> bool:
    groups = groups_after_write(log, view.snapshot, view.config)
    return bool(groups) and merge_groups(log, view, groups, runner=runner).files_added > 0


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
