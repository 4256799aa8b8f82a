"""The hidden column `_indexall`: what a search of all fields reads where no index answers it.

The agreement between the SQL layer, the functions and the planner:

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
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import orjson
import pyarrow as pa

from indextables.log.actions import Metadata
from indextables.plan.view import TableView
from indextables.predicate import Search
from indextables.predicate.search_syntax import parse_search
from indextables.schema import from_json
from indextables.split.mapping import MAPPING_PROPERTY, TableMapping
from indextables.split.search import search_rows


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
