"""The sizes of a split's parts, and fetching its index before the first search.

A file of the index is one of a segment and serves all fields, so it has no field name, and naming
fields only leaves out splits that hold none of them. Sizes are those in the file, compressed.
Indexes go into the disk cache of the host and the memory of the process; rows are read where they
are needed.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from indextables import config as keys
from indextables.errors import IndexTablesError, UnknownColumnError
from indextables.plan.column_names import ColumnNames
from indextables.plan.execute import Environment
from indextables.plan.scan import SplitTask, split_tasks
from indextables.plan.skipping import files_of_partitions
from indextables.plan.view import TableView
from indextables.predicate import TRUE, Predicate
from indextables.runner import LocalRunner, Runner
from indextables.split.open_split import SplitFile
from indextables.storage import Store

COMPONENT_SIZES = pa.schema(
    [
        ("split_path", pa.string()),
        ("partition_values", pa.map_(pa.string(), pa.string())),
        ("component_key", pa.string()),
        ("size_bytes", pa.int64()),
        ("component_type", pa.string()),
        ("field_name", pa.string()),
    ]
)

_INDEX_FILES = {
    "fast": "fastfield", "fieldnorm": "fieldnorm", "term": "term", "idx": "postings",
    "pos": "positions", "store": "store",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Sizes:
    store: Store
    task: SplitTask


@dataclass(frozen=True, slots=True)
class _Component:
    key: str
    size: int
    kind: str
    field: str | None


def component_sizes(
    view: TableView, predicate: Predicate = TRUE, *, runner: Runner | None = None
) -> pa.Table:
    """The components of the splits of some partitions, largest first within a split."""
    snapshot = view.snapshot
    files = files_of_partitions(snapshot, predicate)
    tasks = [_Sizes(view.store, task) for task in split_tasks(snapshot, files, TRUE)]
    values: dict[str, Any] = {
        row["path"]: row["partitionValues"]
        for row in files.select(["path", "partitionValues"]).to_pylist()
    }
    runner = runner or LocalRunner(view.config[keys.READ_PARALLELISM])
    rows = [
        {
            "split_path": task.task.path,
            "partition_values": values[task.task.path] or [],
            "component_key": part.key,
            "size_bytes": part.size,
            "component_type": part.kind,
            "field_name": _shown(part.field, view.names),
        }
        for task, parts in zip(tasks, runner.map(_components, tasks), strict=True)
        for part in parts
    ]
    return pa.Table.from_pylist(rows, COMPONENT_SIZES)


def _shown(stored: str | None, names: ColumnNames) -> str | None:
    is_dropped = stored is not None and stored not in names.stored.names
    return f"{stored} (dropped)" if is_dropped else stored and names.shown_name(stored)


def _components(sizes: _Sizes) -> list[_Component]:
    task = sizes.task
    split = SplitFile(sizes.store, task.path, task.size, task.footer_start, task.footer_end)
    components = []
    columns = {field.field: field.name for field in split.info.mapping.fields if field.field}
    for section in split.info.sections:
        if section.kind == "index":
            component = _INDEX_FILES.get(section.name.rpartition(".")[2], "metadata")
            components.append(_Component(section.name, section.length, component, None))
        else:
            name = columns.get(section.name)
            key = f"{section.kind}.{section.name}"
            components.append(_Component(key, section.length, section.kind, name))
    parquet = split.footer.parquet
    stored: dict[str, int] = {}
    for group in range(parquet.num_row_groups):
        row_group = parquet.row_group(group)
        for at in range(row_group.num_columns):
            chunk = row_group.column(at)
            path = chunk.path_in_schema
            stored[path] = stored.get(path, 0) + chunk.total_compressed_size
    names = split.rows.schema.names
    for path, size in stored.items():
        # A dot may be part of a column's name or separate it from a nested field.
        owner = next((n for n in names if path == n or path.startswith(f"{n}.")), path)
        components.append(_Component(f"column.{path}", size, "column", owner))
    components.append(_Component("footer", split.footer.size, "footer", None))
    return sorted(components, key=lambda part: -part.size)


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

        outcomes = list(environment.map(open_one, self.tasks))
        opened = [segments for segments in outcomes if isinstance(segments, int)]
        failed = zip(self.tasks, outcomes, strict=True)
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
    files = files_of_partitions(snapshot, predicate)
    columns = tuple(name for name in chosen if name not in skipped)
    tasks = tuple(split_tasks(snapshot, files, TRUE)) if columns or not chosen else ()
    return PrewarmPlan(view.for_tasks(), tasks, columns, skipped)
