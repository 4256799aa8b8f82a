"""Merging the splits of a write before they are committed.

Tasks of a cluster store one split for each partition they touch, so a write can make many small
ones. They are merged on their way: nobody has seen them, so nothing is removed from the table. A
group that cannot be merged is committed as it is.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from indextables import config as keys
from indextables.config import Config
from indextables.jobs.merge_plan import candidates_of, plan_merges
from indextables.jobs.merge_task import (
    MergeTask,
    local_runner,
    merge_settings,
    run_merges,
    source_of,
)
from indextables.jobs.write_splits import discard
from indextables.jobs.write_target import Target
from indextables.log.actions import Add
from indextables.log.files import files_from_adds
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
