"""The file of an XRef: the container of a split, in which every row stands for a source split.

The Parquet rows name the source splits, so any reader can look at them; a split that is gone has no
path any more. The footer's metadata holds, beside the description that every split has, one JSON
document: the columns, and sets of columns whose terms are complete. Each row refers to a set.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import orjson
import pyarrow as pa
import pyarrow.parquet as pq

from indextables.errors import UnusableXRefError
from indextables.split.container import (
    INFO_KEY,
    Footer,
    ReadRange,
    Section,
    Segment,
    SplitInfo,
    Statistics,
    close_seal,
    write_seal,
)
from indextables.split.mapping import Mapping
from indextables.xref.bloom import BLOOM, BloomFilters, read_filters
from indextables.xref.fields import TermField

XREF_KEY = b"indextables.xref"
FORMAT_VERSION = 1

Mask = npt.NDArray[np.bool_]

_COLUMNS: dict[str, pa.DataType] = {
    "path": pa.string(),
    "size": pa.int64(),
    "fields": pa.int32(),
}
_ROWS = pa.schema(_COLUMNS)


@dataclass(frozen=True, slots=True)
class FieldSet:
    """What is known of a split: the keys of complete fields, and its columns if they are known."""

    keys: tuple[str, ...]
    columns: tuple[str, ...] | None


@dataclass(frozen=True, slots=True)
class SourceSplit:
    """A source split as a document of an XRef; `path` is None once it is gone."""

    path: str | None
    size: int
    fields: FieldSet


@dataclass(frozen=True, slots=True)
class Coverage:
    """The documents of an XRef in order, as columns."""

    paths: pa.StringArray
    sizes: npt.NDArray[np.int64]
    sets: tuple[FieldSet, ...]
    set_of: npt.NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.paths)

    def splits(self) -> Iterator[SourceSplit]:
        """The documents one by one."""
        rows = zip(self.paths.to_pylist(), self.sizes.tolist(), self.set_of.tolist(), strict=True)
        for path, size, fields in rows:
            yield SourceSplit(path, size, self.sets[fields])

    def knows(self, field: TermField) -> Mask:
        """The documents that have all terms of a field; a split without the column has none."""
        known = [
            field.key in s.keys or (s.columns is not None and field.column not in s.columns)
            for s in self.sets
        ]
        return np.asarray(known, dtype=np.bool_)[self.set_of]


@dataclass(frozen=True, slots=True)
class Described:
    """What an XRef says about itself beside its documents."""

    fields: tuple[dict[str, Any], ...]
    total_terms: int
    filters: tuple[BloomFilters, ...] = ()


class XRefFile:
    """Writes the file of an XRef: documents first, then sections, at last the footer."""

    def __init__(self, file: Path, splits: Sequence[SourceSplit]) -> None:
        self._file = file
        self._rows = len(splits)
        self._sets = tuple(dict.fromkeys(split.fields for split in splits))
        number = {fields: place for place, fields in enumerate(self._sets)}
        table = pa.table(
            {
                "path": pa.array([s.path for s in splits], pa.string()),
                "size": pa.array([s.size for s in splits], pa.int64()),
                "fields": pa.array([number[s.fields] for s in splits], pa.int32()),
            },
            schema=_ROWS,
        )
        self.sink = pa.OSFile(str(file), "wb")
        self._parquet = pq.ParquetWriter(self.sink, _ROWS, compression="zstd", store_schema=False)
        self._parquet.write_table(table)
        self._bytes = table.nbytes
        self._documents = self._checksum()

    def _checksum(self) -> tuple[int, int]:
        """How long the rows are in the file, and their checksum: Parquet keeps none of them all."""
        self.sink.flush()
        data = self._file.read_bytes()
        return len(data), zlib.crc32(data)

    def close(
        self, sections: Iterable[Section], segments: Iterable[Segment], described: Described
    ) -> int:
        """Finish the file; gives where its footer begins."""
        info = SplitInfo(
            rows=self._rows,
            mapping=Mapping(()),
            sections=tuple(sections),
            segments=tuple(segments),
            partition_values={},
            statistics=Statistics(),
            uncompressed_size=self._bytes,
        )
        document = {
            "version": FORMAT_VERSION,
            "documents": self._documents,
            "fields": described.fields,
            "totalTerms": described.total_terms,
            "filters": [f.to_document() for f in described.filters],
            "sets": [{"keys": s.keys, "columns": s.columns} for s in self._sets],
        }
        self._parquet.add_key_value_metadata(
            {
                INFO_KEY.decode(): info.to_json().decode(),
                XREF_KEY.decode(): orjson.dumps(document).decode(),
            }
        )
        seal = write_seal(self.sink)
        self._parquet.close()
        self.sink.close()
        close_seal(self._file, seal)
        return seal

    def abort(self) -> None:
        """Close what is open; the file is the caller's to delete."""
        self._parquet.close()
        self.sink.close()


def read_description(footer: Footer, read: ReadRange, *, path: str) -> tuple[Coverage, Described]:
    """The documents and the description of an XRef."""
    text = (footer.parquet.metadata or {}).get(XREF_KEY)
    if text is None:
        raise UnusableXRefError(path, "it is a split of rows")
    try:
        document = orjson.loads(text)
        if document["version"] != FORMAT_VERSION:
            raise UnusableXRefError(path, f"its format {document['version']} is not known here")
        sets = tuple(
            FieldSet(tuple(s["keys"]), None if s["columns"] is None else tuple(s["columns"]))
            for s in document["sets"]
        )
        sections = {s.name: s for s in footer.info.sections if s.kind == BLOOM}
        filters = read_filters(document["filters"], sections, total=footer.info.rows, path=path)
        described = Described(
            tuple(document["fields"]), int(document["totalTerms"]), tuple(filters)
        )
        length, crc = document["documents"]
        data = read(0, length)
        if zlib.crc32(data) != crc:
            raise UnusableXRefError(path, "the checksum of its documents is wrong")
        file = pq.ParquetFile(pa.BufferReader(data), metadata=footer.parquet)
        rows: Any = file.read().combine_chunks()
        coverage = Coverage(
            _flat(rows["path"]),
            np.asarray(_flat(rows["size"]), dtype=np.int64),
            sets,
            np.asarray(_flat(rows["fields"]), dtype=np.int64),
        )
    except (KeyError, TypeError, ValueError, pa.ArrowException, OSError) as error:
        raise UnusableXRefError(path, f"its description cannot be read ({error})") from None
    if len(coverage.set_of) and not 0 <= coverage.set_of.min() <= coverage.set_of.max() < len(sets):
        raise UnusableXRefError(path, "a document refers to fields that are not there")
    return coverage, described


def _flat(column: Any) -> Any:
    return pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)
