"""Hive-style partitions: which rows belong together, and how a partition is spelled.

A partition value is text in the log and in the folder's name. In the log it is exact and a null
is an absent key; in the folder's name special characters are escaped the way Spark escapes them,
and a null is `__HIVE_DEFAULT_PARTITION__`. Nothing is ever read back from a folder's name.

Rows of partitions whose split is not open yet wait in memory, or on disk when they are many.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from indextables.errors import SchemaError, SplitWriteError
from indextables.schema import is_collated
from indextables.storage.local import new_folder, remove_folder

_YEARS = range(-719_162, 2_932_897)
"""Days since 1970, of the years 1 to 9999."""
_DAY = 86_400_000_000
NULL_FOLDER = "__HIVE_DEFAULT_PARTITION__"
_ESCAPED = {*map(chr, range(0x20)), "\x7f", *"\"#%'*/:=?\\{[]^"}


def check_partition_columns(columns: Sequence[str], schema: pa.Schema) -> None:
    """Refuse partition columns that are unknown, repeated, nested, or all there is."""
    problems = []
    for name in dict.fromkeys(columns):
        if name not in schema.names:
            problems.append(
                f"Partition column '{name}' not found in schema. "
                f"Available columns: {', '.join(schema.names)}."
            )
        elif pa.types.is_nested(schema.field(name).type) or pa.types.is_binary(
            schema.field(name).type
        ):
            problems.append(
                f"Column '{name}' of type {schema.field(name).type} cannot be a partition column; "
                "text, numbers, booleans, dates and times can (of bytes, their hex digits)."
            )
        elif is_collated(schema.field(name)):
            problems.append(f"Column '{name}' has a collation and cannot be a partition column.")
    if len(set(columns)) != len(columns):
        problems.append(f"A partition column is named twice: {', '.join(columns)}.")
    if columns and not set(schema.names) - set(columns):
        problems.append("At least one column must not be a partition column.")
    if problems:
        raise SchemaError(" ".join(problems))


def split_by_partition(
    batch: pa.RecordBatch, columns: Sequence[str]
) -> Iterator[tuple[dict[str, str], pa.RecordBatch]]:
    """The batch's rows by partition, in their order, without the partition columns."""
    stored = batch.select([name for name in batch.schema.names if name not in columns])
    if not columns or not batch.num_rows:
        if batch.num_rows:
            yield {}, stored
        return
    for name in columns:
        _check_years(name, batch.column(name))
    texts = [partition_text(batch.column(name)) for name in columns]
    codes = [
        t.dictionary_encode(null_encoding="encode").indices.to_numpy(zero_copy_only=False)
        for t in texts
    ]
    _, first, group = np.unique(
        np.stack(codes, axis=1), axis=0, return_index=True, return_inverse=True
    )
    order = np.argsort(group, kind="stable")
    bounds = np.searchsorted(group[order], np.arange(len(first) + 1))
    sorted_rows = stored.take(order) if len(first) > 1 else stored
    for number in np.argsort(first):  # partitions in the order of their first row
        values = {
            name: text
            for name, column in zip(columns, texts, strict=True)
            if (text := column[int(first[number])].as_py()) is not None
        }
        start, end = int(bounds[number]), int(bounds[number + 1])
        yield values, sorted_rows.slice(start, end - start)


def _check_years(name: str, column: Any) -> None:
    """Refuse moments that cannot be read back from their text."""
    if pa.types.is_date(column.type):
        limits = _YEARS
        extremes: Any = pc.min_max(column.cast(pa.int32()))
    elif pa.types.is_timestamp(column.type):
        limits = range(_YEARS.start * _DAY, _YEARS.stop * _DAY)
        extremes = pc.min_max(column.cast(pa.int64()))
    else:
        return
    bounds = [bound.as_py() for bound in (extremes["min"], extremes["max"])]
    if bounds != [None, None] and any(bound not in limits for bound in bounds):
        raise SchemaError(
            f"The partition column '{name}' holds a moment outside the years 1 to 9999, which is "
            "no partition. Write null instead, or partition by another column."
        )


def partition_text(column: pa.Array[Any]) -> pa.Array[Any]:
    """Partition values as the log spells them: ISO dates and instants, plain numbers."""
    data_type = column.type
    if pa.types.is_timestamp(data_type):
        pattern = "%Y-%m-%dT%H:%M:%S" + ("Z" if data_type.tz else "")
        return pc.strftime(column, format=pattern)
    if pa.types.is_floating(data_type):
        return pa.array([None if v is None else repr(v) for v in column.to_pylist()], pa.string())
    return column.cast(pa.string())


def partition_folder(values: Mapping[str, str], columns: Sequence[str]) -> str:
    """The folder of a partition.

    >>> partition_folder({"day": "2024-01-01", "tag": "a/b"}, ["day", "tag", "none"])
    'day=2024-01-01/tag=a%2Fb/none=__HIVE_DEFAULT_PARTITION__'
    """
    folders = (
        f"{_escape(name)}={_escape(values[name]) if name in values else NULL_FOLDER}"
        for name in columns
    )
    # A store takes no name that begins with a dot: such files are hidden, or unfinished.
    return "/".join(f"%2E{f[1:]}" if f.startswith(".") else f for f in folders)


def _escape(text: str) -> str:
    return "".join(f"%{ord(c):02X}" if c in _ESCAPED else c for c in text)


PartitionKey = tuple[tuple[str, str], ...]
"""The values of a partition, as the log spells them; those that are null are left out."""


class WaitingRows:
    """Rows by partition, in the order in which they came, until their split is written."""

    def __init__(self, parent: str) -> None:
        self._parent = parent
        self._folder: Path | None = None
        self._count = 0
        self._files: dict[PartitionKey, Path] = {}
        self._rows: dict[PartitionKey, list[pa.RecordBatch]] = {}
        self.bytes_in_memory = 0

    def __contains__(self, key: PartitionKey) -> bool:
        return key in self._rows

    @property
    def keys(self) -> list[PartitionKey]:
        """The partitions that have rows here, those with most rows in memory first."""
        sizes = {key: sum(b.nbytes for b in batches) for key, batches in self._rows.items()}
        return sorted(sizes, key=lambda key: -sizes[key])

    def add(self, key: PartitionKey, rows: pa.RecordBatch) -> None:
        """Keep rows of a partition."""
        self._rows.setdefault(key, []).append(rows)
        self.bytes_in_memory += rows.nbytes

    def take(self, key: PartitionKey) -> Iterator[pa.RecordBatch]:
        """The rows of a partition, which are then no longer here."""
        batches = self._rows.pop(key)
        self.bytes_in_memory -= sum(batch.nbytes for batch in batches)
        file = self._files.pop(key, None)
        if file is not None:
            with self._failures(), pa.OSFile(str(file), "rb") as source:
                while source.tell() < source.size():
                    yield from pa.ipc.open_stream(source)
            file.unlink()
        yield from batches

    def spill(self) -> None:
        """Move what is in memory to disk: each partition has one file, which grows."""
        with self._failures():
            self._folder = folder = self._folder or new_folder("split", self._parent)
            for key, batches in self._rows.items():
                if batches:
                    file = self._file_of(key, folder)
                    with file.open("ab") as sink, pa.ipc.new_stream(sink, batches[0].schema) as out:
                        for batch in batches:
                            out.write_batch(batch)
                    batches.clear()
        self.bytes_in_memory = 0

    def _file_of(self, key: PartitionKey, folder: Path) -> Path:
        if key not in self._files:
            self._count += 1
            self._files[key] = folder / f"{self._count}.arrow"
        return self._files[key]

    def close(self) -> None:
        """Forget the rows and remove their files."""
        self._rows.clear()
        self._files.clear()
        self.bytes_in_memory = 0
        if self._folder is not None:
            remove_folder(self._folder)
            self._folder = None

    @contextlib.contextmanager
    def _failures(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise SplitWriteError(self._parent, str(error)) from error
