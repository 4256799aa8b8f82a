"""Some pages of a column as a Parquet file of their own.

Parquet's readers decode a column chunk from its first page on. Row groups of other programs are
large, so a file is put together here that has only the pages with wanted rows: their bytes as they
are, and a footer that says so. Values are read by their physical type and given back the column's.

This is for columns of plain types that are neither nested nor required; others are read whole.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from indextables.split.format.page_headers import PageRecord, refers_to_dictionary, varint
from indextables.split.row_numbers import RowNumbers

_PHYSICAL = {"BOOLEAN": 0, "INT32": 1, "INT64": 2, "FLOAT": 4, "DOUBLE": 5, "BYTE_ARRAY": 6}
_CODECS = {"UNCOMPRESSED": 0, "SNAPPY": 1, "GZIP": 2, "BROTLI": 4, "ZSTD": 6}
_UNITS = {"milliseconds": "ms", "microseconds": "us", "nanoseconds": "ns"}
_MAGIC = b"PAR1"

ReadRange = Callable[[int, int], bytes]


def can_be_lean(column: Any, chunk: Any, kind: Any) -> bool:
    """Whether a column, of Parquet's description and a type of Arrow, can be read by its pages."""
    if column.max_repetition_level or column.max_definition_level != 1 or "." in column.path:
        return False
    if chunk.compression not in _CODECS or column.physical_type not in _PHYSICAL:
        return False
    types, stored = pa.types, column.physical_type
    if types.is_timestamp(kind):
        logical = column.logical_type
        unit = _UNITS.get(_time_unit(str(logical.to_json()))) if logical.type == "TIMESTAMP" else ""
        return bool(stored == "INT64" and unit == kind.unit)
    if types.is_string(kind) or types.is_large_string(kind) or types.is_binary(kind):
        return bool(stored == "BYTE_ARRAY")
    if types.is_date32(kind):
        return bool(stored == "INT32")
    if types.is_signed_integer(kind):
        return stored in ("INT32", "INT64")
    return (stored, kind) in (
        ("FLOAT", pa.float32()), ("DOUBLE", pa.float64()), ("BOOLEAN", pa.bool_()),
    )  # fmt: skip


def _time_unit(text: str) -> str:
    return next((unit for unit in _UNITS if unit in text), "")


def read_lean(read: ReadRange, record: PageRecord, chunk: Any, kind: Any, rows: RowNumbers) -> Any:
    """The values of some rows of a chunk, counted from its first and ascending, of this type."""
    counts = record.values
    ends = np.cumsum(counts)
    if int(ends[-1]) != chunk.num_values:
        raise ValueError("its pages have other numbers of values than its footer says")
    pages = np.unique(np.searchsorted(ends, rows, side="right"))
    first_rows = np.cumsum(counts[pages]) - counts[pages]
    place = np.searchsorted(pages, np.searchsorted(ends, rows, side="right"))
    wanted = first_rows[place] + rows - (ends - counts)[pages][place]
    bodies = [read(int(record.offsets[n]), int(record.offsets[n + 1])) for n in pages.tolist()]
    dictionary = b""
    if any(map(refers_to_dictionary, bodies)):  # a column may give up its dictionary
        dictionary = read(int(record.offsets[0]), int(record.offsets[1]))
    data = dictionary + b"".join(bodies)
    total = int(counts[pages].sum())
    made = _file(chunk, data, dictionary=len(dictionary), values=total)
    file = pq.ParquetFile(
        pa.BufferReader(made),
        page_checksum_verification=True,
        read_dictionary=["c"] if dictionary and chunk.physical_type == "BYTE_ARRAY" else None,
        pre_buffer=False,
    )
    values: Any = file.read(use_threads=False).column(0).combine_chunks().take(wanted)
    return _typed(values, kind)


def _typed(values: Any, kind: Any) -> Any:
    if pa.types.is_dictionary(values.type):
        values = values.dictionary_decode() if len(values) else values.cast(pa.binary())
    if pa.types.is_timestamp(kind) or pa.types.is_date32(kind):
        return values.view(kind)
    return values.cast(kind)


# --- a footer, in Thrift's compact protocol ------------------------------------------------------


def _file(chunk: Any, data: bytes, *, dictionary: int, values: int) -> bytes:
    """A file of one column: a dictionary of this length, maybe, and pages with so many values."""
    start, physical = len(_MAGIC), _PHYSICAL[chunk.physical_type]
    root = _text(4, b"r", after=0) + _int(5, 1, after=4) + b"\0"
    leaf = _int(1, physical, after=0) + _int(3, 1, after=1) + _text(4, b"c", after=3) + b"\0"
    encodings = b"".join(map(_zigzag, (0, 2, 3, 5, 6, 7, 8, 9)))
    column = (
        _int(1, physical, after=0)
        + _list(2, 8, 5, after=1) + encodings
        + _list(3, 1, 8, after=2) + varint(1) + b"c"
        + _int(4, _CODECS[chunk.compression], after=3)
        + _long(5, values, after=4)
        + _long(6, chunk.total_uncompressed_size, after=5)
        + _long(7, len(data), after=6)
        + _long(9, start + dictionary, after=7)
        + (_long(11, start, after=9) if dictionary else b"")
        + b"\0"
    )  # fmt: skip
    group = (
        _list(1, 1, 12, after=0) + _long(2, start, after=0) + b"\x1c" + column + b"\0"
        + _long(2, len(data), after=1) + _long(3, values, after=2) + b"\0"
    )  # fmt: skip
    footer = (
        _int(1, 1, after=0) + _list(2, 2, 12, after=1) + root + leaf
        + _long(3, values, after=2) + _list(4, 1, 12, after=3) + group + b"\0"
    )  # fmt: skip
    return b"".join([_MAGIC, data, footer, len(footer).to_bytes(4, "little"), _MAGIC])


def _field(number: int, kind: int, after: int) -> bytes:
    return bytes([(number - after) << 4 | kind])


def _int(number: int, value: int, *, after: int) -> bytes:
    return _field(number, 5, after) + _zigzag(value)


def _long(number: int, value: int, *, after: int) -> bytes:
    return _field(number, 6, after) + _zigzag(value)


def _text(number: int, value: bytes, *, after: int) -> bytes:
    return _field(number, 8, after) + varint(len(value)) + value


def _list(number: int, length: int, kind: int, *, after: int) -> bytes:
    return _field(number, 9, after) + bytes([length << 4 | kind])


def _zigzag(value: int) -> bytes:
    return varint(value << 1)
