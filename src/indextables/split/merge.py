"""Several splits become one: rows are copied, indexes are taken over where they can be.

Rows are read and encoded again, a few row groups at a time. The index of a source is adopted if it
holds what an index made now would hold; otherwise, or if it is damaged, the rows are indexed again.
Rows of adopted indexes come first.

Meanwhile Tantivy merges the adopted segments. That costs a tenth of indexing their rows, and it is
worth it: every segment costs each search a little, and each first search six files.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from indextables.config import WRITER_TEMP_DIRECTORY, Config
from indextables.errors import DamagedIndexError, DamagedSplitError, SplitError, SplitWriteError
from indextables.schema import conform
from indextables.schema.conformity import missing_defaults
from indextables.split.format.container import Statistics, read_section
from indextables.split.format.index import empty_meta, schema_document, tantivy_errors
from indextables.split.format.lists import (
    MANY_LEAVES,
    PATH_LIST,
    VALUE_LIST,
    most_values,
    read_terms,
)
from indextables.split.mapping import TableMapping
from indextables.split.open_split import SplitFile
from indextables.split.row_hash import hashes_hold
from indextables.split.row_numbers import RowNumbers
from indextables.split.write.indexer import (
    MERGED_FROM,
    AdoptedIndex,
    SourceIndex,
    moved_tags,
    write_meta,
)
from indextables.split.write.writer import SplitWriter, WrittenSplit
from indextables.storage.local import new_folder, remove_folder

logger = logging.getLogger(__name__)

Item = TypeVar("Item")

_ROWS_AT_ONCE = 32 << 10
MAX_TAGS = 10_000
"""Opening a split reads its tags; beyond so many, rows are indexed again under one tag."""


def merge_splits(
    sources: Sequence[SplitFile],
    *,
    schema: pa.Schema,
    mapping: TableMapping,
    config: Config,
    partition_values: Mapping[str, str | None],
    deleted: Mapping[str, RowNumbers] | None = None,
) -> WrittenSplit:
    """Write the rows of all sources to one split, by the table's schema and mapping.

    `deleted` are rows that are left out, by the path of their split. `DamagedSplitError` names a
    source whose rows cannot be read. The caller stores the file and then calls `delete` on the
    result.
    """
    try:
        return _merged(sources, schema, mapping, config, partition_values, deleted=deleted or {})
    except DamagedIndexError as error:
        logger.warning("%s All rows are indexed again.", error)
        return _merged(
            sources, schema, mapping, config, partition_values, deleted=deleted or {}, adopt=False
        )


def _merged(
    sources: Sequence[SplitFile],
    schema: pa.Schema,
    mapping: TableMapping,
    config: Config,
    partition_values: Mapping[str, str | None],
    *,
    deleted: Mapping[str, RowNumbers],
    adopt: bool = True,
) -> WrittenSplit:
    stored = pa.schema([f for f in schema if f.name not in partition_values])
    with (
        _temporary_folder(config) as folder,
        tantivy_errors(sources[0].path) if adopt else contextlib.nullcontext(),
    ):
        # An index that is taken over would bring the words of deleted rows along.
        complete = [s for s in sources if adopt and s.path not in deleted]
        own = mapping.select(stored.names)
        adopted, first = _adopted(_fitting(complete, own, stored), own, folder)
        ordered = [*first, *(s for s in sources if s not in first)]
        with SplitWriter(
            schema, mapping, config, partition_values=partition_values, adopted=adopted
        ) as writer:
            copied = dict.fromkeys((source.path for source in ordered), 0)
            left = {s.path: s.info.rows - len(deleted.get(s.path, ())) for s in ordered}
            for path, batch in _one_ahead(_rows(ordered, stored, deleted)):
                writer.write(batch)
                copied[path] += batch.num_rows
            for source in ordered:
                if copied[source.path] != left[source.path]:
                    raise DamagedSplitError(
                        source.path,
                        f"{copied[source.path]} rows were read instead of {left[source.path]}",
                    )
            written = writer.close()
    if written.num_records != sum(left.values()):
        written.delete()
        raise SplitError("A merged split holds more or fewer rows than its sources.")
    return written


def merge_indexes(
    sources: Sequence[SplitFile],
    *,
    schema: pa.Schema,
    mapping: TableMapping,
    config: Config,
    statistics: Statistics,
) -> WrittenSplit:
    """One split of several that hold no rows: the rows of each follow those of the one before.

    No row is read. `statistics` are those of all of them together. `DamagedIndexError` names a
    source whose index cannot be taken over.
    """
    with _temporary_folder(config) as folder, tantivy_errors(sources[0].path):
        adopted, merged = _adopted(sources, mapping, folder)
        left = next((source for source in sources if source not in merged), None)
        if left is not None:
            raise DamagedIndexError(left.path, "its index cannot be merged with the others")
        with SplitWriter(schema, mapping, config, adopted=adopted, stores_rows=False) as writer:
            writer.take_over([s.info for s in sources], statistics, list(_common_lists(sources)))
            return writer.close()


@contextlib.contextmanager
def _temporary_folder(config: Config) -> Iterator[Path]:
    parent = config[WRITER_TEMP_DIRECTORY] or None
    try:
        folder = new_folder("merge", parent)
    except OSError as error:
        raise SplitWriteError(parent or tempfile.gettempdir(), str(error)) from error
    try:
        yield folder
    finally:
        remove_folder(folder)


def _common_lists(sources: Sequence[SplitFile]) -> Iterator[tuple[str, str, Any]]:
    """The lists of values and paths that all sources have; one that some lack is not complete."""
    rows = sum(source.info.rows for source in sources)
    sections_of = [{(s.kind, s.name): s for s in source.info.sections} for source in sources]
    for kind, name in sections_of[0]:
        if kind not in (VALUE_LIST, PATH_LIST) or not all(
            (kind, name) in sections for sections in sections_of
        ):
            continue
        most = most_values(rows) if kind == VALUE_LIST else MANY_LEAVES
        listed: Any = pa.array([], pa.string())
        for source, sections in zip(sources, sections_of, strict=True):
            read = functools.partial(source.store.get_range, source.path)
            terms = read_terms(read_section(read, sections[kind, name], path=source.path))
            listed = pc.unique(pa.chunked_array([listed, *terms.chunks]))
            if len(listed) > most:
                break
        else:
            yield kind, name, listed.take(pc.sort_indices(listed))


def _rows(
    sources: Sequence[SplitFile], schema: pa.Schema, deleted: Mapping[str, RowNumbers]
) -> Iterator[tuple[str, pa.RecordBatch]]:
    """The rows of all sources that are left, each batch with the path it comes from."""
    nullable = pa.schema([f.with_nullable(True) for f in schema])
    for source in sources:
        names = [name for name in schema.names if name in source.rows.schema.names]
        added = missing_defaults(schema, names)
        for first, table in source.rows.batches(names, rows_at_once=_ROWS_AT_ONCE):
            if source.path in deleted:
                kept = ~np.isin(np.arange(first, first + table.num_rows), deleted[source.path])
                table = table.filter(pa.array(kept))  # noqa: PLW2901
            for name, value in added.items():
                column: Any = pa.repeat(value, table.num_rows)
                table = table.append_column(name, column)  # noqa: PLW2901
            for batch in table.to_batches():
                yield source.path, conform(batch, nullable)


def _one_ahead(items: Iterator[Item]) -> Iterator[Item]:
    """The same items; the next one is read while the last one is written."""
    end = object()
    with ThreadPoolExecutor(1, thread_name_prefix="indextables-merge") as pool:
        coming: Future[Any] = pool.submit(next, items, end)
        while (item := coming.result()) is not end:
            coming = pool.submit(next, items, end)
            yield item


# --- which indexes are taken over ------------------------------------------------------------


def _fitting(
    sources: Sequence[SplitFile], mapping: TableMapping, schema: pa.Schema
) -> list[SplitFile]:
    """The splits whose indexes are as if they were made now."""
    fitting = [s for s in sources if _holds_words_of(s, mapping, schema)]
    segments_there = sum(len(s.info.segments) for s in fitting)
    if segments_there >= MERGED_FROM or len(fitting) < len(sources):
        # There will be merges, and Tantivy does not merge a segment that lacks a field.
        fitting = [s for s in fitting if len(s.info.mapping.places) == len(mapping.places)]
    return fitting


def _adopted(
    fitting: Sequence[SplitFile], mapping: TableMapping, folder: Path
) -> tuple[AdoptedIndex | None, list[SplitFile]]:
    """The indexes that can be taken over, in a folder, and the splits that they are of."""
    fields = schema_document(mapping)
    names: set[str] = set()
    tags: set[int] = set()
    adopted, indexes, segments = [], [], []
    for source in fitting:
        info = source.info
        own_names, own_tags = {s.name for s in info.segments}, {tag for tag, _ in info.row_tags}
        if own_names & names or own_tags & tags:  # a copy of a split that is merged as well
            continue
        if len(tags) + len(own_tags) > MAX_TAGS:
            continue
        index = SourceIndex(
            source.path, info, functools.partial(source.store.get_range, source.path)
        )
        try:
            segments += index.copy(folder, fields)
        except DamagedIndexError as error:
            logger.warning("%s Its rows are indexed again.", error)
            continue
        names |= own_names
        tags |= own_tags
        adopted.append(source)
        indexes.append(index)
    if not adopted:
        return None, []
    write_meta(folder, empty_meta(mapping), segments)
    rows = sum(source.info.rows for source in adopted)
    return AdoptedIndex(folder, rows, tuple(moved_tags(indexes))), adopted


def _holds_words_of(source: SplitFile, mapping: TableMapping, schema: pa.Schema) -> bool:
    """Whether an index holds what one that is made now would hold.

    A column that the split does not have is null in all its rows, and nulls are not indexed, unless
    it was added with a default. The values of one that was widened since may be indexed in another
    spelling. Words of a column that was dropped since are to go, and so are hashes of its values.
    """
    indexed, columns = source.info.mapping, source.footer.schema
    if missing_defaults(schema, columns.names):
        return False
    if indexed.hashed != mapping.hashed or (indexed.hashed and not hashes_hold(columns, schema)):
        return False
    if {f.field for f in mapping.retired} & {f.field for f in indexed.indexed}:
        return False
    for declared in mapping.fields:
        field = indexed.by_name.get(declared.name)
        if field is None:
            continue
        if field.field != declared.field or field.fingerprint != declared.fingerprint:
            return False
        data_type = schema.field(declared.name).type
        if declared.field and not columns.field(declared.name).type.equals(data_type):
            return False
    return True
