"""What the tasks of a build do that reads files with Arrow; see `direct_build`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from indextables.ariadne import csv_rows
from indextables.ariadne.build import typed
from indextables.ariadne.build_output import Output, Plan
from indextables.ariadne.csv_values import NotPlain
from indextables.ariadne.declarations import Computed, needed_columns
from indextables.ariadne.fold import FileFold, partial_schema
from indextables.ariadne.paths import folder_and_name
from indextables.errors import StorageError
from indextables.storage import open_store

STATE, COUNT = "__state", "__count"
"""Columns beside the values of expressions: what a row says about those before it, and how many
rows of a file it stands for."""

_BLOCK = 4 << 20
_MOST_ROWS, _MOST_BYTES = 1 << 17, 16 << 20

# What a row behind those of a file says, and then its number or a part of its state.
_PART, _WHOLE, _GIVEN_UP = b"part", b"whole", b"none"


@dataclass(frozen=True)
class Direct:
    """What tasks need to know. Pickled with the credentials, shown without."""

    plan: Plan
    dialect: csv_rows.CsvDialect
    columns: Mapping[str, pa.DataType]
    """What is read of the files."""
    inputs: tuple[str, ...]
    """What expressions are about."""
    tasks: tuple[tuple[str, ...], ...]
    """The files of each task."""
    storage: Mapping[str, Mapping[str, object]] = field(repr=False)
    """How each folder is reached."""

    def batches(self, filename: str) -> Iterator[pa.RecordBatch]:
        """The rows of a file."""
        folder, name = folder_and_name(filename)
        store = open_store(folder, self.storage[folder])
        blocks = _Blocks(store.get_range, name, self.plan.files[filename].size)
        return csv_rows.read(blocks, self.dialect, self.columns)

    def take(self, fold: FileFold, rows: pa.RecordBatch) -> None:
        """Fold rows for all declarations but the computed ones."""
        columns: list[Any] = []
        times: list[Any] = []
        for target in self.plan.targets:
            found = [rows.column(name) for name in needed_columns(target.declaration)]
            columns.append(found[0] if found else None)
            times.append(found[1] if len(found) > 1 else None)
        fold.add(rows.num_rows, columns, times)


class _Blocks:
    """A stored file, read from its beginning to its end."""

    def __init__(self, get_range: Any, name: str, size: int) -> None:
        self._get_range = get_range
        self._name = name
        self._at, self._size = 0, size

    def read(self, count: int = -1) -> bytes:
        """The next bytes, at most a block."""
        count = _BLOCK if count < 0 else min(count, _BLOCK)
        end = min(self._at + count, self._size)
        data: bytes = self._get_range(self._name, self._at, end) if end > self._at else b""
        self._at = end
        return data


@dataclass(frozen=True)
class ReadFiles:
    """A task without expressions: fold its files and write the finished index rows."""

    direct: Direct

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        output = Output(self.direct.plan)
        for _, filename in _named(self.direct, batches):
            fold = self.direct.plan.fold()
            try:
                for rows in self.direct.batches(filename):
                    self.direct.take(fold, rows)
            except (NotPlain, StorageError):
                fold.close()
                continue
            output.finish(filename, fold)
            yield from output.take()
        output.flush()
        yield from output.take()


@dataclass(frozen=True)
class ReadRows:
    """A task with expressions: fold its files, and hand the rows and the state to Spark."""

    direct: Direct

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for number, filename in _named(self.direct, batches):
            fold = self.direct.plan.fold(partial=True)
            inputs = _Inputs(self.direct)
            try:
                for rows in self.direct.batches(filename):
                    self.direct.take(fold, rows)
                    yield from inputs.add(rows)
                yield from inputs.flush()
                for part in fold.partials():
                    yield inputs.state(_PART, part.serialize().to_pybytes())
                yield inputs.state(_WHOLE, str(number).encode())
            except (NotPlain, StorageError):
                yield inputs.state(_GIVEN_UP)
            fold.close()


class _Inputs:
    """The values that expressions are about, of many rows at once: each combination only once."""

    def __init__(self, direct: Direct) -> None:
        self._types: dict[str, Any] = {name: direct.columns[name] for name in direct.inputs}
        # Arrow may take 0.0 and -0.0 for the same, an expression need not.
        self._repeats = not any(map(pa.types.is_floating, self._types.values()))
        self._waiting: list[pa.RecordBatch] = []
        self._rows = 0

    def add(self, rows: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Take rows; gives those that Spark gets."""
        self._waiting.append(rows.select(list(self._types)))
        self._rows += rows.num_rows
        if self._rows >= _MOST_ROWS or sum(b.nbytes for b in self._waiting) >= _MOST_BYTES:
            yield from self.flush()

    def flush(self) -> Iterator[pa.RecordBatch]:
        """The rows that wait."""
        found = self._counted() if self._rows else None
        self._waiting, self._rows = [], 0
        if found is not None:
            yield from found.to_batches()

    def _counted(self) -> pa.Table:
        names = list(self._types)
        if not names:
            return pa.table({STATE: pa.nulls(1, pa.binary()), COUNT: pa.array([self._rows])})
        rows = pa.Table.from_batches(self._waiting)
        counts: Any = pa.repeat(1, self._rows)
        if self._repeats:
            groups = rows.group_by(names, use_threads=False).aggregate([([], "count_all")])
            # Where nearly every combination is new, nothing is gained by looking for others.
            self._repeats = groups.num_rows < 0.5 * self._rows
            if self._repeats:
                rows, counts = groups.select(names), groups.column("count_all")
        states: Any = pa.nulls(rows.num_rows, pa.binary())
        return pa.table(
            {STATE: states, COUNT: counts, **dict(zip(names, rows.columns, strict=True))}
        )

    def state(self, what: bytes, more: bytes = b"") -> pa.RecordBatch:
        """A row that says something about the rows before it."""
        inputs = {name: pa.nulls(1, kind) for name, kind in self._types.items()}
        row: dict[str, Any] = {STATE: pa.array([what + b" " + more]), COUNT: pa.array([0])}
        return pa.RecordBatch.from_pydict({**row, **inputs})


def _named(direct: Direct, batches: Iterator[pa.RecordBatch]) -> Iterator[tuple[int, str]]:
    """The files of the task, each with its number."""
    numbers = {name: number for number, name in enumerate(direct.plan.files)}
    for batch in batches:
        tasks: list[Any] = batch.column(0).to_pylist()
        for task in tasks:
            for name in direct.tasks[task]:
                yield numbers[name], name


@dataclass(frozen=True)
class FinishFiles:
    """A task behind Spark's expressions: fold their values, and write the finished index rows."""

    plan: Plan

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        names = list(self.plan.files)
        schema = partial_schema(self.plan.targets)
        output = Output(self.plan)
        fold = self.plan.fold()
        for batch in batches:
            states: Any = batch.column(STATE)
            start = 0
            for at in np.flatnonzero(states.is_valid()).tolist():
                self._add(fold, batch.slice(start, at - start))
                start = at + 1
                what, _, more = states[at].as_py().partition(b" ")
                if what == _PART:
                    fold.merge(pa.ipc.read_record_batch(pa.py_buffer(more), schema))
                    continue
                if what == _WHOLE:
                    output.finish(names[int(more)], fold)
                    yield from output.take()
                fold.close()
                fold = self.plan.fold()
            self._add(fold, batch.slice(start))
        output.flush()
        yield from output.take()

    def _add(self, fold: FileFold, rows: pa.RecordBatch) -> None:
        columns = [
            typed(rows.column(f"c{n}"), t.kind) if isinstance(t.declaration, Computed) else None
            for n, t in enumerate(self.plan.targets)
        ]
        # The rows were counted where they were read.
        fold.add(0, columns, [None] * len(columns), repeated=rows.column(COUNT))
