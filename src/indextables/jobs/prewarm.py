"""Opening the indexes of splits before the first search.

What it fetches is the index of each split, into the disk cache of the host and the memory of the
process. Rows are read where they are needed. An index serves all its fields, so naming fields only
leaves out splits that hold none of them.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from indextables.errors import IndexTablesError, UnknownColumnError
from indextables.plan.execute import Environment
from indextables.plan.partitions import check_partition_condition, files_of_partitions
from indextables.plan.tasks import SplitTask, split_tasks
from indextables.plan.view import TableView
from indextables.predicate import TRUE, Predicate


@dataclass(frozen=True, slots=True)
class Prewarmed:
    """What was opened in one process, and what could not be."""

    splits: int
    segments: int
    duration_ms: int
    failed: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class PrewarmPlan:
    """The splits whose indexes are opened; picklable, to be done on every host."""

    view: TableView
    tasks: tuple[SplitTask, ...]
    fields: tuple[str, ...]
    skipped_fields: tuple[str, ...]
    parallelism: int | None = None
    """How many splits a process opens at once; by default as many as it reads at once."""

    def __call__(self) -> Prewarmed:
        """Open them in this process."""
        started = time.monotonic()
        environment = Environment.of(self.view)
        if self.parallelism is not None:
            environment = replace(environment, parallelism=self.parallelism)

        def open_one(task: SplitTask) -> int | str | None:
            split = environment.searcher(task).split
            try:
                if not split.has_index or not self._concerns(split.info.mapping.by_name):
                    return None
                environment.pool.prewarm(split)
                return len(split.info.segments)
            except IndexTablesError as error:
                return str(error)

        found = list(environment.map(open_one, self.tasks))
        opened = [segments for segments in found if isinstance(segments, int)]
        failed = zip(self.tasks, found, strict=True)
        return Prewarmed(
            splits=len(opened),
            segments=sum(opened),
            duration_ms=int((time.monotonic() - started) * 1000),
            failed={task.path: reason for task, reason in failed if isinstance(reason, str)},
        )

    def _concerns(self, columns: Mapping[str, object]) -> bool:
        return not self.fields or any(name in columns for name in self.fields)


def plan_prewarm(
    view: TableView, predicate: Predicate = TRUE, *, fields: Sequence[str] = ()
) -> PrewarmPlan:
    """Which splits to open. A field that the table does not have is refused."""
    snapshot, mapping = view.snapshot, view.mapping.by_name
    names = view.names.shown.names
    by_lower = dict(zip((name.lower() for name in names), snapshot.schema.names, strict=True))
    chosen = []
    for name in fields:
        if name.lower() not in by_lower:
            raise UnknownColumnError(name, available=names)
        chosen.append(by_lower[name.lower()])
    # Numbers and dates are compared in their column; there is no index to open for them.
    skipped = tuple(name for name in chosen if name not in mapping or not mapping[name].field)
    files = snapshot.entries
    if predicate != TRUE:
        check_partition_condition(predicate, snapshot)
        files = files_of_partitions(snapshot, predicate)
    wanted = tuple(name for name in chosen if name not in skipped)
    tasks = tuple(split_tasks(snapshot, files, TRUE)) if wanted or not chosen else ()
    return PrewarmPlan(view.for_tasks(), tasks, wanted, skipped)
