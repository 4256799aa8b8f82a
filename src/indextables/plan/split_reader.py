"""Reading splits in a task, with the hidden columns `_indexall` and `_metadata`.

A `SplitReader` is what all tasks of one scan share; it is pickled once and sent with the task's
splits. Tasks read no log: the driver planned from a snapshot, and the splits that it named are
read or the query fails.

`_indexall` is what a search of all fields reads where no index answers it. The agreement between
the SQL layer, the functions and the planner:

1. A search is a call of a function of `search_calls.SEARCH_FUNCTIONS`, in any case, with two
   arguments: the searched column and the query text.
2. All fields are searched when the first argument is the hidden column `_indexall`. The SQL layer
   writes `indexqueryall('q')` as `indexqueryall(_indexall, 'q')`, and `_indexall indexquery 'q'` as
   `indexquery(_indexall, 'q')`.
3. The planner pushes such a call to the index when its first argument is a column of the scan and
   its second one a literal. What it cannot push the engine evaluates, with the function.
4. The engine then reads the value of `_indexall`. It is a text that `search_documents` searches:
   a head that is the same for all rows of a table (schema and mapping as JSON), a line feed, and
   the row's indexed columns as JSON. Null, as an outer join makes it, matches nothing.

`_metadata` says of which file a row is, in the words of Spark's file formats. A table that has a
column of that name has only its own.
"""

from __future__ import annotations

import pickle
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol, TypeAlias

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc

from indextables.log.actions import Metadata
from indextables.plan.aggregation import Aggregation
from indextables.plan.execute import Answers, Environment
from indextables.plan.ranking import top_rows
from indextables.plan.scan import SplitTask
from indextables.plan.view import TableView, mapping_from_json
from indextables.predicate import Predicate, Search
from indextables.predicate.search_syntax import parse_search
from indextables.predicate.spark_tokens import ALL_FIELDS
from indextables.schema import METADATA, ROW, SCORE, SPLIT, from_json
from indextables.split.mapping import MAPPING_PROPERTY
from indextables.split.search import search_rows

FileFacts: TypeAlias = Mapping[str, tuple[int, int | None]]
"""Size and time (in milliseconds) of files, by their paths."""
_ENCODED = re.compile(r"[\x00-\x20\x7f\"%<>\[\]\\^`{|}#?]")
"""What Hadoop encodes in the path of a URI; letters of any language stay."""


def is_about_files(name: str, schema: pa.Schema) -> bool:
    """Whether a column is the hidden one about files, and not one of the table."""
    return name == METADATA and METADATA not in schema.names


def file_metadata(rows: pa.Table, view: TableView, files: FileFacts) -> pa.Array[Any]:
    """The values of `_metadata` of rows with the columns that name them."""
    scheme, separator, place = view.uri.rpartition("://")
    root = f"{scheme}{separator}{_uri_path(place)}" if separator else f"file:{_uri_path(place)}"
    named: Any = rows[SPLIT].combine_chunks().dictionary_encode()
    paths: list[str] = named.dictionary.to_pylist()
    sizes = [files[path][0] for path in paths]
    times = [files[path][1] for path in paths]
    encoded = [_uri_path(path) for path in paths]
    at = named.indices
    each: dict[str, Any] = {
        "file_path": pa.array([f"{root}/{path}" for path in encoded], pa.string()).take(at),
        "file_name": pa.array([path.rpartition("/")[2] for path in encoded], pa.string()).take(at),
        "file_size": pa.array(sizes, pa.int64()).take(at),
        "file_block_start": pa.array(np.zeros(len(at), np.int64)),
        "file_block_length": pa.array(sizes, pa.int64()).take(at),
        "file_modification_time": pa.array(times, pa.int64())
        .cast(pa.timestamp("ms", "UTC")).cast(pa.timestamp("us", "UTC")).take(at),
        "row_index": rows[ROW].combine_chunks(),
    }  # fmt: skip
    return pa.StructArray.from_arrays(list(each.values()), names=list(each))


def _uri_path(path: str) -> str:
    return _ENCODED.sub(lambda match: f"%{ord(match[0]):02X}", path)


def indexed_columns(metadata: Metadata) -> list[str]:
    """The columns that a search over all fields looks at."""
    mapping = mapping_from_json(metadata.configuration[MAPPING_PROPERTY])
    return [field.name for field in mapping.fields if field.indexed]


def documents(rows: pa.Table, view: TableView) -> pa.Array[Any]:
    """The values of `_indexall`: what `search_documents` needs to search these rows."""
    names = [n for n in indexed_columns(view.snapshot.metadata) if n in rows.column_names]
    shown_view = view.shown  # queries use these names
    head = orjson.dumps(
        [shown_view.snapshot.metadata.schema_string, shown_view.carried_mapping]
    ).decode()
    shown = rows.select(names).rename_columns([*view.names.shown_names(names)])
    texts = [f"{head}\n{orjson.dumps(row, default=_plain).decode()}" for row in shown.to_pylist()]
    return pa.array(texts, pa.string())


def search_documents(values: pa.Array[Any], query: str) -> pa.Array[Any]:
    """Which values of `_indexall` a query over all fields matches. Null matches nothing."""
    matching = np.zeros(len(values), dtype=np.bool_)
    heads: dict[str, list[int]] = {}
    bodies: dict[int, str] = {}
    for number, value in enumerate(values.to_pylist()):
        if value is not None:
            head, _, bodies[number] = value.partition("\n")
            heads.setdefault(head, []).append(number)
    for head, numbers in heads.items():
        schema_text, mapping_text = orjson.loads(head)
        schema = from_json(schema_text)
        rows = _rows([orjson.loads(bodies[n]) for n in numbers], schema)
        search = Search(None, parse_search(query, schema=schema), query)
        matching[numbers] = search_rows(
            search, rows, mapping_from_json(mapping_text), schema=schema
        )
    return pa.array(matching)


def _rows(bodies: list[dict[str, Any]], schema: pa.Schema) -> pa.Table:
    """Rows from their JSON, in the table's types."""
    columns = {}
    for name in bodies[0]:
        data_type = schema.field(name).type
        columns[name] = _typed([body[name] for body in bodies], data_type)
    return pa.table(columns)


def _typed(values: list[Any], data_type: Any) -> Any:
    if pa.types.is_binary(data_type):
        return pa.array([None if v is None else bytes.fromhex(v) for v in values], data_type)
    if pa.types.is_temporal(data_type) or pa.types.is_decimal(data_type):
        return pa.array(values, pa.string()).cast(data_type)
    if pa.types.is_nested(data_type):
        return pa.array(values).cast(data_type) if any(values) else pa.nulls(len(values), data_type)
    return pa.array(values, data_type)


def _plain(value: Any) -> Any:
    return value.hex() if isinstance(value, bytes) else str(value)


# --- reading ---------------------------------------------------------------------------------

_ROWS_AT_ONCE = 65_536


@dataclass(frozen=True, slots=True)
class Order:
    """The order and the number of rows of a query: one column, and how many."""

    column: str
    descending: bool
    nulls_first: bool
    limit: int

    def apply(self, table: pa.Table) -> pa.Table:
        """The first rows of a piece in this order."""
        column = table.column(self.column)
        direction: Any = "descending" if self.descending else "ascending"
        indices = pc.sort_indices(column, sort_keys=[("", direction)])
        if self.nulls_first:  # Arrow puts them last
            values = len(indices) - column.null_count
            indices = pa.concat_arrays([indices.slice(values), indices.slice(0, values)])
        return table.take(indices.slice(0, self.limit))


@dataclass(frozen=True)
class SplitReader:
    """Reads splits: columns or aggregates of the matching rows, some of them if that is enough."""

    view: TableView
    columns: tuple[str, ...]
    limit: int | None = None
    order: Order | None = None
    aggregation: Aggregation | None = None

    @cached_property
    def environment(self) -> Environment:
        """The environment of the table in this process."""
        return Environment.of(self.view)

    def tables(self, tasks: Sequence[SplitTask]) -> Iterator[pa.Table]:
        """The answer of these splits, piece by piece."""
        if self.aggregation is None:
            yield from self._rows(tasks)
        elif self.aggregation.columns:
            aggregation = self.aggregation
            parts = self.environment.map(
                lambda task: aggregation.partials(self._rows([task])), tasks
            )
            yield aggregation.combine([part for of_split in parts for part in of_split])
        else:
            rows = self.count(tasks)
            names = self.aggregation.names()
            yield pa.table({name: pa.array([rows], pa.int64()) for name in names})

    def count(self, tasks: Sequence[SplitTask]) -> int:
        """How many rows of these splits match."""
        return self.environment.count(tasks)

    def _rows(self, tasks: Sequence[SplitTask]) -> Iterator[pa.Table]:
        columns = self.aggregation.columns if self.aggregation else self.columns
        order = self.order
        needed = _real(columns, self.view)
        if order is not None and order.column not in needed:
            needed.append(order.column)

        def read(item: tuple[SplitTask, Answers]) -> list[pa.Table]:
            pieces = list(self.environment.rows(*item).read(needed, limit=self.limit))
            if order is None or not pieces:
                return pieces
            return [order.apply(pa.concat_tables(pieces))]

        searched = self.environment.searched(tasks)
        if order is None and self.limit is None:
            tables: Iterator[pa.Table] = (
                piece
                for item in searched
                for piece in self.environment.rows(*item).read(needed, limit=None)
            )
        else:
            tables = (p for pieces in self.environment.map(read, searched) for p in pieces)
        files: FileFacts = {}
        if any(is_about_files(name, self.view.schema) for name in columns):
            files = {task.path: (task.size, task.modified) for task in tasks}
        for piece in tables:
            yield with_hidden(piece, columns, self.view, files)

    def batches(self, tasks: Sequence[SplitTask], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        """The same in the schema that Spark expects, where columns count by position."""
        if not schema.names:
            rows = self.count(tasks)
            rows = rows if self.limit is None else min(rows, self.limit)
            yield from rows_without_columns(rows)
            return
        for table in self.tables(tasks):
            if not table.num_rows:
                continue
            renamed = table.rename_columns(schema.names)
            yield from renamed.cast(schema).to_batches(max_chunksize=_ROWS_AT_ONCE)

    def __getstate__(self) -> dict[str, Any]:
        kept = {k: v for k, v in self.__dict__.items() if k != "environment"}
        return {**kept, "view": self.view.for_tasks()}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)


@dataclass(frozen=True)
class ScoredReader:
    """Reads rows with their scores: one search over all splits, so that scores are the table's."""

    view: TableView
    search: Search
    predicate: Predicate
    columns: tuple[str, ...]
    limit: int | None = None

    def table(self) -> pa.Table:
        """The best rows, best first."""
        columns = [name for name in self.columns if name != SCORE]
        table = top_rows(
            self.view,
            self.search,
            predicate=self.predicate,
            columns=_real(columns, self.view),
            limit=self.limit,
        )
        return with_hidden(table, self.columns, self.view, self._files)

    @cached_property
    def _files(self) -> FileFacts:
        if not any(is_about_files(name, self.view.schema) for name in self.columns):
            return {}
        facts: list[Any] = [
            self.view.snapshot.files[name].to_pylist()
            for name in ("path", "size", "modificationTime")
        ]
        return {path: (size, modified) for path, size, modified in zip(*facts, strict=True)}

    def batches(self, _tasks: object, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        """The rows in the schema that Spark expects."""
        renamed = self.table().rename_columns(schema.names)
        yield from renamed.cast(schema).to_batches(max_chunksize=_ROWS_AT_ONCE)


class TaskReader(Protocol):
    """Reads what the payload of a task names."""

    def batches(self, tasks: Any, schema: pa.Schema, /) -> Iterator[pa.RecordBatch]:
        """The rows in the schema that Spark expects."""


@dataclass(frozen=True)
class ReadSplits:
    """Runs in a Python worker of Spark: reads the splits that a partition names."""

    reader: TaskReader
    schema: pa.Schema

    def __call__(self, partitions: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for partition in partitions:
            # Pickled by this session's driver.
            tasks = pickle.loads(partition.column(0)[0].as_py())
            yield from self.reader.batches(tasks, self.schema)


def _real(columns: Sequence[str], view: TableView) -> list[str]:
    """The table's columns that these columns are made of, one at least: rows have to be counted."""
    about_files = [name for name in columns if is_about_files(name, view.schema)]
    named = [name for name in columns if name not in (SCORE, ALL_FIELDS, *about_files)]
    made_of = indexed_columns(view.snapshot.metadata) if ALL_FIELDS in columns else []
    every = list(dict.fromkeys([*named, *made_of, *((SPLIT, ROW) if about_files else ())]))
    return every or view.schema.names[:1]


def with_hidden(
    table: pa.Table, requested: Sequence[str], view: TableView, files: FileFacts
) -> pa.Table:
    """The requested columns, hidden ones computed; without a ranked search the score is null."""
    columns: list[Any] = []
    for name in requested:
        if name == ALL_FIELDS:
            columns.append(documents(table, view))
        elif name == SCORE and SCORE not in table.column_names:
            columns.append(pa.nulls(table.num_rows, pa.float32()))
        elif is_about_files(name, view.schema):
            columns.append(file_metadata(table, view, files))
        else:
            columns.append(table.column(name))
    return pa.table(columns, names=list(requested))


def rows_without_columns(count: int) -> Iterator[pa.RecordBatch]:
    """Batches that say only how many rows there are."""
    for start in range(0, count, _ROWS_AT_ONCE):
        empty: Any = pa.array([{}] * min(_ROWS_AT_ONCE, count - start), pa.struct([]))
        yield pa.RecordBatch.from_struct_array(empty)


def in_groups(tasks: Sequence[SplitTask], *, parallelism: int) -> list[list[SplitTask]]:
    """Splits as tasks of about equal bytes: at most one for each core, and none for a few bytes.

    Starting a Python task costs more than searching a small split, so small ones share a task.
    """
    if not tasks:
        return []
    sizes = np.cumsum([task.size for task in tasks])
    total = int(sizes[-1])
    count = max(1, min(parallelism, total // _SMALL_TASK))
    # A split belongs where its middle falls, so a little more than a share makes no further task.
    middles = sizes - np.array([task.size for task in tasks]) / 2
    places = np.minimum(middles * count // max(1, total), count - 1).astype(int).tolist()
    groups: dict[int, list[SplitTask]] = {}
    for place, task in zip(places, tasks, strict=True):
        groups.setdefault(place, []).append(task)
    return list(groups.values())


_SMALL_TASK = 16 << 20
