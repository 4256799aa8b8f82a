"""Changing rows of a table: splits that hold some of them are written anew."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from indextables.jobs.progress import progress
from indextables.jobs.write_splits import SplitSink
from indextables.log.actions import Add
from indextables.log.files import with_paths
from indextables.plan.execute import Environment
from indextables.plan.scan import SplitTask, plan_scan, split_tasks
from indextables.plan.split_rows import SplitRows
from indextables.plan.view import TableView
from indextables.predicate import TRUE, Predicate
from indextables.schema import ROW, SPLIT
from indextables.split.memory_index import Rows

PIECE = 65_536
"""Rows that are read at once."""
Write = Callable[[SplitRows, Rows, SplitSink], None]
"""Writes what becomes of a split, given the numbers of the rows that match."""


@dataclass(frozen=True, slots=True)
class Removal:
    """Files to remove, splits that take the rows they keep, and how many rows go."""

    files: pa.Table
    rewritten: tuple[Add, ...]
    rows: int


def rewrite_splits(view: TableView, predicate: Predicate, write: Write) -> Removal:
    """Replace the splits that hold rows of a condition by what `write` makes of each."""
    tasks = plan_scan(view, predicate=predicate).tasks
    return _rewrite(view, tasks, lambda rows, _: rows.matching(), write)


def _rewrite(
    view: TableView,
    tasks: Sequence[SplitTask],
    matching_rows: Callable[[SplitRows, SplitTask], Rows | None],
    write: Write,
) -> Removal:
    environment = Environment.of(view)
    touched: list[str] = []
    changed = 0
    with (
        progress("Rewriting splits", len(tasks)) as advance,
        SplitSink(
            view.store,
            schema=view.schema,
            partition_columns=view.partition_columns,
            mapping=view.mapping,
            config=view.config,
        ) as sink,
    ):
        for task in tasks:
            rows = environment.rows(task)
            matching = matching_rows(rows, task)
            if matching is None:
                matching = np.arange(rows.total)
            if len(matching):
                touched.append(task.path)
                changed += len(matching)
                write(rows, matching, sink)
            advance(1)
        files = with_paths(view.snapshot.entries, touched)
        return Removal(files, tuple(sink.finish()), changed)


def remove_rows(view: TableView, predicate: Predicate) -> Removal:
    """Find the rows of a condition and write what remains of their splits."""
    return rewrite_splits(view, predicate, _write_others)


def remove_numbered(view: TableView, numbers: Mapping[str, Rows]) -> Removal:
    """Write what remains of splits without some rows, named by the path and their numbers."""
    files = with_paths(view.snapshot.entries, list(numbers))
    tasks = split_tasks(view.snapshot, files, TRUE)
    return _rewrite(view, tasks, lambda _, task: numbers[task.path], _write_others)


def numbers_by_split(batch: pa.RecordBatch) -> dict[str, Rows]:
    """The numbers of rows by the path of their split, from the columns that name rows."""
    paths: Any = batch.column(SPLIT).dictionary_encode()
    numbers = np.asarray(batch.column(ROW), dtype=np.int64)
    places = np.asarray(paths.indices)
    return {path: numbers[places == at] for at, path in enumerate(paths.dictionary.to_pylist())}


def combined(parts: Iterable[Mapping[str, Rows]]) -> dict[str, Rows]:
    """Numbers of rows from several sources: in ascending order, each once."""
    found: dict[str, list[Rows]] = {}
    for part in parts:
        for path, numbers in part.items():
            found.setdefault(path, []).append(numbers)
    return {path: np.unique(np.concatenate(some)) for path, some in found.items()}


def _write_others(rows: SplitRows, matching: Rows, sink: SplitSink) -> None:
    """Write the rows of a split that do not match."""
    keep = np.setdiff1d(np.arange(rows.total), matching, assume_unique=True)
    names = rows.searcher.context.schema.names
    for start in range(0, len(keep), PIECE):
        piece = rows.searcher.read_rows(keep[start : start + PIECE], names)
        for batch in piece.to_batches():
            sink.write(batch)
