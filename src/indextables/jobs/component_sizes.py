"""What the bytes of splits are: columns of rows, files of the index, lists of words, the footer.

A file of the index is one of a segment and serves all fields, so it has no field name. Sizes are
those in the file, compressed as they are there.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from indextables import config as keys
from indextables.plan.column_names import ColumnNames
from indextables.plan.partitions import check_partition_condition, files_of_partitions
from indextables.plan.tasks import SplitTask, split_tasks
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
    files = snapshot.entries
    if predicate != TRUE:
        check_partition_condition(predicate, snapshot)
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
    found = []
    columns = {field.field: field.name for field in split.info.mapping.fields if field.field}
    for section in split.info.sections:
        if section.kind == "index":
            kind = _INDEX_FILES.get(section.name.rpartition(".")[2], "metadata")
            found.append(_Component(section.name, section.length, kind, None))
        else:
            name = columns.get(section.name)
            key = f"{section.kind}.{section.name}"
            found.append(_Component(key, section.length, section.kind, name))
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
        found.append(_Component(f"column.{path}", size, "column", owner))
    found.append(_Component("footer", split.footer.size, "footer", None))
    return sorted(found, key=lambda part: -part.size)
