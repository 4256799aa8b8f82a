"""The hidden columns `_indexall` and `_metadata`.

`_indexall` is what a search of all fields reads where no index answers it. The agreement between
the SQL layer, the functions and the planner:

1. A search is a call of a function of `sql.search_calls.SEARCH_FUNCTIONS`, in any case, with two
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

import functools
import re
from collections.abc import Mapping
from typing import Any, TypeAlias

import numpy as np
import orjson
import pyarrow as pa

from indextables.log.actions import Metadata
from indextables.plan.view import TableView
from indextables.predicate import Search
from indextables.predicate.search_syntax import parse_search
from indextables.schema import METADATA, ROW, SPLIT, from_json
from indextables.split.mapping import MAPPING_PROPERTY, TableMapping
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
    return _ENCODED.sub(lambda found: f"%{ord(found[0]):02X}", path)


def indexed_columns(metadata: Metadata) -> list[str]:
    """The columns that a search over all fields looks at."""
    mapping = _mapping(metadata.configuration[MAPPING_PROPERTY])
    return [field.name for field in mapping.fields if field.indexed]


def documents(rows: pa.Table, view: TableView) -> pa.Array[Any]:
    """The values of `_indexall`: what `search_documents` needs to search these rows."""
    names = [n for n in indexed_columns(view.snapshot.metadata) if n in rows.column_names]
    seen = view.shown  # queries use these names
    head = orjson.dumps([seen.snapshot.metadata.schema_string, seen.carried_mapping]).decode()
    shown = rows.select(names).rename_columns([*view.names.shown_names(names)])
    texts = [f"{head}\n{orjson.dumps(row, default=_plain).decode()}" for row in shown.to_pylist()]
    return pa.array(texts, pa.string())


def search_documents(values: pa.Array[Any], query: str) -> pa.Array[Any]:
    """Which values of `_indexall` a query over all fields matches. Null matches nothing."""
    found = np.zeros(len(values), dtype=np.bool_)
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
        found[numbers] = search_rows(search, rows, _mapping(mapping_text), schema=schema)
    return pa.array(found)


def _rows(bodies: list[dict[str, Any]], schema: pa.Schema) -> pa.Table:
    """Rows from their JSON, in the table's types."""
    columns = {}
    for name in bodies[0]:
        kind = schema.field(name).type
        columns[name] = _typed([body[name] for body in bodies], kind)
    return pa.table(columns)


def _typed(values: list[Any], kind: Any) -> Any:
    if pa.types.is_binary(kind):
        return pa.array([None if v is None else bytes.fromhex(v) for v in values], kind)
    if pa.types.is_temporal(kind) or pa.types.is_decimal(kind):
        return pa.array(values, pa.string()).cast(kind)
    if pa.types.is_nested(kind):
        return pa.array(values).cast(kind) if any(values) else pa.nulls(len(values), kind)
    return pa.array(values, kind)


def _plain(value: Any) -> Any:
    return value.hex() if isinstance(value, bytes) else str(value)


@functools.lru_cache(maxsize=64)
def _mapping(text: str) -> TableMapping:
    return TableMapping.from_json(text)
