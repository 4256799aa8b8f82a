"""The search functions of SQL on Arrow arrays, for searches that no index answers.

An engine hands over a batch of rows; an index in memory is built over the columns that the search
looks at, and the answer is true or false for each row, never null. A column of an index table is
searched with its mapping, which is one more argument of the call (`Searched`); a value that was
computed, as in `lower(content)`, with the default mapping of its type.

The functions have the names by which the planner recognises a search. Python workers import them
without a session. PySpark reads their annotations to see what they are.
"""

from __future__ import annotations

import contextlib
import functools
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.compute as pc

from indextables.config import Config
from indextables.errors import SchemaError, SearchCallError
from indextables.predicate import Boolean, Column, FieldNode, Search, SearchNode, search_fields
from indextables.predicate.names import escaped_field, resolve_field
from indextables.predicate.search import map_leaves
from indextables.predicate.search_names import (
    SEARCH_NAMES,
    SEVERAL_COLUMNS,
    mode_of,
    query_text,
)
from indextables.predicate.search_syntax import parse_search
from indextables.predicate.tree import ColumnKind
from indextables.schema import conform, is_text, normalize
from indextables.split.mapping import FieldMapping, TableMapping, numbered
from indextables.split.mapping_options import build_mapping
from indextables.split.search import search_rows
from indextables.split.snippet import snippets

_MAX_DEPTH = 150
_OPERAND = "(the searched column)"
_AGAIN = "\x1f"
"""Between the name of a column that a row has twice and its number."""


@dataclass(frozen=True, slots=True)
class Searched:
    """The mappings of the columns that one search looks at, where they are not the default.

    `operand` is that of the column before `indexquery`, and `path` leads to the searched value
    inside it. `fields` are those of further columns by the name that the search has for them.
    """

    operand: FieldMapping | None = None
    path: tuple[str, ...] = ()
    fields: Mapping[str, FieldMapping] = field(default_factory=dict)

    def to_json(self) -> str:
        """The argument of the call; empty where all mappings are the default."""
        if self.operand is None and not self.fields:
            return ""
        every = {"": self.operand} if self.operand else {}
        named = TableMapping(tuple(replace(f, name=n) for n, f in {**self.fields, **every}.items()))
        return orjson.dumps([named.to_json(with_synonyms=True), self.path]).decode()

    @classmethod
    @functools.lru_cache(maxsize=64)
    def from_json(cls, text: str) -> Searched:
        """Read the argument of a call."""
        document, path = orjson.loads(text)
        fields = dict(TableMapping.from_json(document).by_name)
        return cls(fields.pop("", None), tuple(path), fields)

    def mapping(self, schema: pa.Schema, operand: str) -> TableMapping:
        """How the columns of a search are searched; `operand` is the name of the searched one."""
        columns = {**self.fields, **({operand: self.operand} if self.operand else {})}
        return numbered(
            replace(columns.get(f.name, f), name=f.name, partition=False, field="")
            for f in build_mapping(schema, Config()).fields
        )


def unique_names(names: Iterable[str]) -> list[str]:
    """The names of a struct of Arrow, which has each only once; `same_columns` finds them again.

    >>> unique_names(["id", "title", "id"])
    ['id', 'title', 'id\\x1f1']
    """
    counts: Counter[str] = Counter()
    unique = []
    for name in names:
        unique.append(f"{name}{_AGAIN}{counts[name]}" if counts[name] else name)
        counts[name] += 1
    return unique


def same_columns(name: str, names: Iterable[str]) -> list[str]:
    """All columns that had a name before `unique_names`."""
    return [other for other in names if other.partition(_AGAIN)[0] == name]


def indexquery(*arguments: pa.Array) -> pa.Array:  # type: ignore[type-arg]
    """Which values of a column match a query; a struct may bring further columns it names."""
    arguments, searched = _mapped(arguments)
    if len(arguments) not in (2, 3):
        raise SearchCallError("indexquery", "requires exactly 2 arguments: a column and a query.")
    column, query, *fields = arguments
    if not len(column):
        return pa.array([], pa.bool_())
    return _search_column([column, *fields], _literal("indexquery", query), searched)


def indexqueryall(*arguments: pa.Array) -> pa.Array:  # type: ignore[type-arg]
    """Which rows match a query in any of their columns. The first argument is the row."""
    arguments, searched = _mapped(arguments)
    if len(arguments) != 2:
        raise SearchCallError(
            "indexqueryall", "requires exactly 1 argument, and the row that the SQL layer adds."
        )
    row, query = arguments
    if not len(row):
        return pa.array([], pa.bool_())
    return _search_row([row], _literal("indexqueryall", query), searched)


def indexquerycolumns(*arguments: pa.Array) -> pa.Array:  # type: ignore[type-arg]
    """Which rows match a query in some of the columns of a struct."""
    arguments, searched = _mapped(arguments)
    row, query = arguments
    if not len(row):
        return pa.array([], pa.bool_())
    return _search_columns([row], _literal(SEVERAL_COLUMNS, query), searched)


def _search_column(
    columns: Sequence[Any], text: str, searched: Searched, name: str = _OPERAND
) -> pa.Array[Any]:
    column, *more = columns
    others = _fields(more[0]) if more else {}
    named = [field for field in search_fields(_parsed(text)) if field]
    if named and not more:
        raise SearchCallError(
            "indexquery",
            f"cannot look at the field '{named[0]}' here: only the searched column is known. "
            "Search that column with an indexquery of its own.",
        )
    for part in reversed(searched.path):
        column = pa.StructArray.from_arrays([column], [part])
    rows = pa.table({name: column, **others})
    return _mask(rows, text, Column((name, *searched.path)), searched)


def _search_row(columns: Sequence[Any], text: str, searched: Searched) -> pa.Array[Any]:
    (row,) = columns
    if pa.types.is_struct(row.type):
        # As in a table: without columns that are not indexed, or are those of its partitions.
        left_out = {n for n, f in searched.fields.items() if f.partition or not f.indexed}
        searchable = {
            name: column
            for name, column in _fields(row).items()
            if name not in left_out and _can_be_searched(name, column)
        }
        if not searchable:
            return pa.repeat(False, len(row))
        mask = _mask(pa.table(searchable), text, None, searched)
        # An outer join leaves a null row where there is none; it matches nothing.
        matching: pa.Array[Any] = pc.and_(mask, row.is_valid())
        return matching
    if is_text(row.type):
        from indextables.plan.split_reader import search_documents

        return search_documents(row, text)
    raise SearchCallError(
        "indexqueryall", f"searches rows, not a value of type {row.type}. Use indexquery for that."
    )


def _search_columns(columns: Sequence[Any], text: str, searched: Searched) -> pa.Array[Any]:
    return _mask(pa.table(_fields(columns[0])), text, None, searched)


def check_search(
    function: str, types: Sequence[pa.DataType], text: str, searched: Searched, *, operand: str
) -> None:
    """Refuse on the driver what every task would refuse, before any row is read.

    `types` are those of the arguments without the query; `operand` is the name of the searched
    column, if it has one.
    """
    columns = [pa.array([], data_type) for data_type in types]
    with contextlib.suppress(SchemaError):  # a type that is only known where its values are
        if function == "indexquery" and all(map(pa.types.is_struct, types[1:])):
            others = {name for column in columns[1:] for name in _fields(column)}
            if not others and any(search_fields(_parsed(text))):
                return  # an index may know the fields
            name = _OPERAND if operand in others or searched.path else operand or _OPERAND
            _search_column(columns, text, searched, name)
        elif function == "indexqueryall" and pa.types.is_struct(types[0]):
            _search_row(columns, text, searched)
        elif function == SEVERAL_COLUMNS:
            _search_columns(columns, text, searched)
        elif function == "snippet":
            _snippet(columns, text, searched)


# The names of SQL where no builder turns them into the functions above: on Spark Connect.


def search(
    column: pa.Array,  # type: ignore[type-arg]
    words: pa.Array,  # type: ignore[type-arg]
    mode: pa.Array = None,  # type: ignore[type-arg,assignment]
) -> pa.Array:  # type: ignore[type-arg]
    """Which values match words, in the mode that is a text for all rows."""
    chosen = None if mode is None or not len(mode) else _literal("search", mode)
    return _search("search", column, words, chosen)


def match_all(column: pa.Array, words: pa.Array) -> pa.Array:  # type: ignore[type-arg]
    """Which values hold all words."""
    return _search("match_all", column, words)


def match_any(column: pa.Array, words: pa.Array) -> pa.Array:  # type: ignore[type-arg]
    """Which values hold some of the words."""
    return _search("match_any", column, words)


def match_phrase(column: pa.Array, words: pa.Array) -> pa.Array:  # type: ignore[type-arg]
    """Which values hold the words in a row."""
    return _search("match_phrase", column, words)


def match_phrase_prefix(column: pa.Array, words: pa.Array) -> pa.Array:  # type: ignore[type-arg]
    """Which values hold the words in a row, the last one begun."""
    return _search("match_phrase_prefix", column, words)


def textsearch(column: pa.Array, query: pa.Array) -> pa.Array:  # type: ignore[type-arg]
    """Which values match a query; the default mapping of texts is words."""
    return _search("textsearch", column, query)


def fieldmatch(column: pa.Array, query: pa.Array) -> pa.Array:  # type: ignore[type-arg]
    """Which values match a query as a whole; texts do not, with the default mapping."""
    return _search("fieldmatch", column, query)


def _search(function: str, column: Any, words: Any, mode: str | None = None) -> pa.Array[Any]:
    if not len(column):
        return pa.array([], pa.bool_())
    text = query_text(_literal(function, words), mode_of(function, mode))
    if pa.types.is_struct(column.type):
        columns = {n: c for n, c in _fields(column).items() if _can_be_searched(n, c)}
        return _mask(pa.table(columns), text, None, Searched())
    kind = SEARCH_NAMES[function].kind
    return _mask(pa.table({_OPERAND: column}), text, Column((_OPERAND,)), Searched(), kind)


def snippet(*arguments: pa.Array) -> pa.Array:  # type: ignore[type-arg]
    """The part of each text that shows the words of a query, as HTML; empty if it has none."""
    arguments, searched = _mapped(arguments)
    if len(arguments) != 2:
        raise SearchCallError("snippet", "requires exactly 2 arguments: a column and a query.")
    column, query = arguments
    if not len(column):
        return pa.array([], pa.string())
    return _snippet([column], _literal("snippet", query), searched)


def _snippet(columns: Sequence[Any], text: str, searched: Searched) -> pa.Array[Any]:
    (column,) = columns
    table = _conformed(pa.table({_OPERAND: column}))
    mapping = searched.mapping(table.schema, _OPERAND)
    if not mapping.by_name[_OPERAND].has_words or not pa.types.is_string(
        table.schema.field(0).type
    ):
        raise SearchCallError("snippet", f"shows words of a text, not of {column.type}.")
    # Every word counts here, whatever column the query asks it of.
    query = map_leaves(_parsed(text), lambda node: replace(node, field=None))
    search = Search(Column((_OPERAND,)), query, text)
    texts = table.column(0).to_pylist()
    shown = snippets(texts, search, _OPERAND, mapping=mapping, schema=table.schema)
    return pa.array(shown, pa.string())


def _mapped(arguments: tuple[Any, ...]) -> tuple[tuple[Any, ...], Searched]:
    """The arguments of a call without its mappings, and those.

    They are a text behind the query, as a search has no other text there.
    """
    *columns, last = arguments
    if len(columns) < 2 or not is_text(last.type):
        return arguments, Searched()
    return tuple(columns), Searched.from_json(last[0].as_py()) if len(last) else Searched()


def _in_all_tables(query: SearchNode, schema: pa.Schema) -> SearchNode:
    """A query of the row of joined tables: a field is that of every table that has one."""

    def spread(node: FieldNode) -> SearchNode:
        matched = resolve_field(node.field, schema) if node.field is not None else None
        names = same_columns(matched[0], schema.names) if matched is not None else []
        if matched is None or len(names) < 2:
            return node
        fields = [escaped_field((name, *matched[1])) for name in names]
        return Boolean(should=tuple(replace(node, field=field) for field in fields))

    return map_leaves(query, spread)


def _literal(function: str, query: Any) -> str:
    """The one query of a batch."""
    texts = pc.unique(query).to_pylist()
    if len(texts) != 1 or not isinstance(texts[0], str):
        raise SearchCallError(
            function, "takes a query in quotes, the same one for all rows, and no null."
        )
    return texts[0]


def _parsed(text: str, schema: pa.Schema | None = None) -> SearchNode:
    # The session's limits were applied on the driver.
    return parse_search(text, schema=schema, max_length=len(text), max_depth=_MAX_DEPTH)


def _fields(row: Any) -> dict[str, Any]:
    """The columns of a struct; null where the struct is."""
    return dict(zip([field.name for field in row.type], row.flatten(), strict=True))


def _can_be_searched(name: str, column: Any) -> bool:
    try:
        normalize(pa.schema([pa.field(name, column.type)]))
    except SchemaError:
        return False  # as in a table, which cannot hold such a column
    return True


def _conformed(rows: pa.Table) -> pa.Table:
    """Rows in the types that a table would have. A column that is null everywhere is a text."""
    fields = [
        pa.field(f.name, pa.string() if pa.types.is_null(f.type) else f.type) for f in rows.schema
    ]
    return conform(rows, normalize(pa.schema(fields)))


def _mask(
    rows: pa.Table,
    text: str,
    column: Column | None,
    searched: Searched,
    kind: ColumnKind | None = None,
) -> pa.Array[Any]:
    table = _conformed(rows)
    query = _in_all_tables(_parsed(text, table.schema), table.schema)
    mapping = searched.mapping(table.schema, _OPERAND if column is None else column.root)
    matching = search_rows(Search(column, query, text, kind=kind), table, mapping)
    return pa.array(matching, pa.bool_())
