"""Arguments of `Table` methods, checked and normalised: names, conditions, expressions.

Expressions over rows are conditions as Arrow has them, and what rows are ranked by, as SQL. Arrow
does not show what an expression is made of, so neither statistics nor an index narrow it: rows are
read, then filtered by Arrow. A condition as text, or as a `Predicate`, is planned.
"""

from __future__ import annotations

import contextlib
import datetime
import functools
import re
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal, get_args

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from indextables import config as keys
from indextables.errors import (
    ConfigError,
    EmbeddedQueryError,
    IndexTablesError,
    SchemaError,
    SearchValueError,
    UnknownColumnError,
    UnsupportedPredicateError,
)
from indextables.log.actions import Metadata
from indextables.log.checkpoint import PartitionBounds
from indextables.log.reader import HistoryEntry
from indextables.plan.column_names import names_in
from indextables.plan.skipping import bounds_may_match
from indextables.plan.view import TableView, default_fields
from indextables.predicate import (
    FieldNode,
    Predicate,
    Search,
    SearchNode,
    columns,
)
from indextables.predicate.literals import time_zone
from indextables.predicate.names import resolve_field
from indextables.predicate.search import half_character, over_fields
from indextables.predicate.search_names import lenient_query, words_query
from indextables.predicate.search_syntax import parse_search, plain_words, weighted_fields
from indextables.predicate.sql_text import parse_predicate
from indextables.runner import check_stop
from indextables.schema import SCORE
from indextables.split.scoring import Hits, Read

_KEPT_QUERY = 64
"""The least size that a cached search counts, in characters."""

Timestamp = datetime.datetime | str | int
Where = str | pc.Expression | Predicate
"""A condition: SQL, an Arrow expression, or a `Predicate`."""


def check_limit(limit: int | None) -> int | None:
    """A limit on rows."""
    if limit is not None and (
        isinstance(limit, bool) or not hasattr(limit, "__index__") or limit < 0
    ):
        raise ConfigError(f"A limit is a number of rows, not {limit!r}.")
    return None if limit is None else min(limit, sys.maxsize)


def check_names(names: Sequence[str] | None, argument: str) -> Sequence[str] | None:
    """Names of columns. A single text is refused: to Python it is a sequence of its letters."""
    if isinstance(names, str):
        raise SchemaError(f"{argument} is a list of names. Write {argument}=[{names!r}].")
    if names is not None and not _are_texts(names):
        raise SchemaError(f"{argument} is a list of names, not {names!r}.")
    return names


def _are_texts(names: object) -> bool:
    return isinstance(names, Collection) and all(isinstance(name, str) for name in names)


def check_text(text: object, argument: str) -> None:
    """A text, not bytes or nothing."""
    if not isinstance(text, str):
        raise ConfigError(f"{argument} is a text, not {text!r}.")
    if half_character(text) is not None:
        raise ConfigError(f"{argument} has half of a surrogate pair, which is not a character.")


def names_of(names: str | Sequence[str], argument: str) -> tuple[str, ...]:
    """Names of columns, or the name of one."""
    return (names,) if isinstance(names, str) else tuple(check_names(names, argument) or ())


def check_where(where: object) -> None:
    """Refuse None, which a program may pass by mistake: it must not mean all rows."""
    if where is None:
        raise ConfigError("where is None. Write the condition, or where='true' for everything.")


def check_columns(predicate: Predicate, schema: pa.Schema) -> None:
    """A predicate that a caller built has the columns of the table."""
    for column in columns(predicate):
        if column.root not in schema.names:
            raise UnknownColumnError(column.root, available=schema.names)


def check_condition(where: object) -> None:
    """A condition is text, an Arrow expression or a `Predicate`."""
    if not isinstance(where, Where):
        raise ConfigError(f"where is a condition, as text: write where='n > 3', not {where!r}.")


def mapping_keys(mapping: Mapping[str, str] | None) -> dict[str, str]:
    """The configuration keys for how columns are searched."""
    if mapping is not None and not isinstance(mapping, Mapping):
        raise ConfigError(
            f"mapping is the type of each column: write {{'id': 'string'}}, not {mapping!r}."
        )
    return keys.TYPE_MAP.entries(mapping)


def check_properties(properties: object) -> None:
    """Properties are texts by their names."""
    if not isinstance(properties, Mapping) or not all(isinstance(n, str) for n in properties):
        raise ConfigError(
            f"properties are texts by name: write {{'owner': 'me'}}, not {properties!r}."
        )
    for name, value in properties.items():
        for text in (name, value):
            if isinstance(text, str):
                check_text(text, f"The property {name!r}")


def check_assignments(assignments: str | Mapping[str, object]) -> None:
    """New values are expressions, as text."""
    if isinstance(assignments, str):
        return
    if not assignments:
        raise ConfigError("assignments is empty. Name a column and its new value.")
    if not isinstance(assignments, Mapping):
        raise ConfigError(f"assignments are expressions by column, not {assignments!r}.")
    for column, value in assignments.items():
        if not isinstance(value, str):
            raise ConfigError(
                f"The new value of '{column}' is an expression of SQL, as text, not {value!r}: "
                "write {'n': '5', 'tag': \"'red'\"}."
            )


def check_merge(when_matched: object, when_not_matched: object) -> None:
    """The actions of a merge for rows that match, and for those that do not."""
    for name, value, choices in (
        ("when_matched", when_matched, ("update", "delete", "ignore")),
        ("when_not_matched", when_not_matched, ("insert", "ignore")),
    ):
        if value not in choices:
            raise ConfigError(f"{name} is one of {', '.join(choices)}, not {value!r}.")


def check_ranking(
    *,
    query: object,
    rank_by: object,
    vector: object,
    vector_column: object,
    fusion: object,
    snippets: Sequence[str],
) -> None:
    """Refuse combinations of query, vector, fusion and snippets that have no meaning."""
    if fusion not in (None, "rrf"):
        raise ConfigError(f"fusion is 'rrf' or left out, not {fusion!r}.")
    if fusion is not None and (query is None or vector is None):
        raise ConfigError("fusion ranks by a query and by a vector: pass both.")
    if query is None and vector is None:
        raise ConfigError("A search needs a query, a vector, or both. Use scan to read rows.")
    if vector is None and vector_column is not None:
        raise ConfigError("vector_column belongs to vector=[…], which is missing.")
    if snippets and query is None:
        raise ConfigError("snippets show the words of a query, which is missing.")
    if rank_by is not None and (not isinstance(rank_by, str) or not rank_by.strip()):
        raise ConfigError(f"rank_by is an expression of SQL, as text, not {rank_by!r}.")


def facet_names(by: object) -> list[str | Sequence[str]]:
    """The entries of a list of facets, each a column or several."""
    if isinstance(by, str) or not isinstance(by, Sequence) or not by:
        raise ConfigError(f"by is a list of columns: write by=['level'], not {by!r}.")
    for one in by:
        names = [one] if isinstance(one, str) else one
        if not _are_texts(names) or not names or len(set(names)) < len(names):
            raise ConfigError(f"A facet is a column or several different ones, not {one!r}.")
    keys: dict[str, str | Sequence[str]] = {}
    for one in by:
        key = one if isinstance(one, str) else ",".join(one)
        if keys.setdefault(key, one) != one:
            raise ConfigError(
                f"{keys[key]!r} and {one!r} are both '{key}' in the result. Ask twice."
            )
    return list(by)


def with_counts(columns: Sequence[str]) -> list[str]:
    """The names of columns and of their counts: `count`, and `_count` beside such a column."""
    name = "count"
    while name in columns:
        name = f"_{name}"
    return [*columns, name]


def check_version(version: object, timestamp: object) -> None:
    """A version or a time, one of them."""
    if version is not None and timestamp is not None:
        raise ConfigError("Pass either version=… or timestamp=…, not both.")
    if version is not None and not hasattr(version, "__index__"):
        raise ConfigError(f"A version is a number, not {version!r}.")


def check_versions(first: object, last: object) -> None:
    """A range of versions whose changes are asked for."""
    for version in (first, last):
        if isinstance(version, bool) or not isinstance(version, int):
            raise ConfigError(f"A version is a number, not {version!r}.")
        if version < 0:
            raise ConfigError(f"A version is 0 or more, not {version}.")
    if first > last:  # type: ignore[operator]
        raise ConfigError(f"from_version={first} is after to_version={last}.")


def milliseconds(timestamp: Timestamp, *, timezone: str = "UTC") -> int:
    """Epoch milliseconds of a moment; one without a time zone of its own is meant in `timezone`."""
    if isinstance(timestamp, int):
        return timestamp
    if isinstance(timestamp, str):
        with contextlib.suppress(ValueError):
            timestamp = datetime.datetime.fromisoformat(timestamp)
    if not isinstance(timestamp, datetime.datetime):
        raise ConfigError(
            f"{timestamp!r} is not a time. Write 2024-01-31T12:00:00, a datetime, or milliseconds."
        )
    if timestamp.tzinfo is None:
        timestamp = timestamp.replace(tzinfo=time_zone(timezone))
    return int(timestamp.timestamp() * 1000)


SearchMode = Literal["query", "lenient", "all", "any", "phrase", "prefix"]
SEARCH_MODES: tuple[SearchMode, ...] = get_args(SearchMode)


def check_mode(mode: str) -> SearchMode:
    """How a query is read."""
    for allowed in SEARCH_MODES:
        if mode == allowed:
            return allowed
    raise ConfigError(f"mode is one of {', '.join(SEARCH_MODES)}, not {mode!r}.")


def search_of(
    view: TableView,
    query: str,
    fields: Sequence[str] | None,
    mode: SearchMode = "query",
    *,
    only_words: bool = False,
) -> Search:
    """A search for the best rows, in some fields, in those of the table or in all.

    Its fields have their stored names. With `only_words` a lenient one has no syntax at all. It is
    the same object when the same is asked again soon.
    """
    check_mode(mode)
    if not isinstance(query, str):
        raise ConfigError(f"A query is a text, not {query!r}.")
    if fields is not None and not fields:
        raise SchemaError("fields is empty. Leave it out to search all indexed fields.")

    def make() -> tuple[Search, int]:
        shown = view.shown
        search = _shown_search(shown, query, fields, mode, only_words=only_words)
        # No more than a clause for every other letter in every column.
        return view.names.stored_search(search), (_KEPT_QUERY + len(query)) * len(
            shown.mapping.fields
        )

    key = query, mode, only_words, None if fields is None else tuple(fields)
    return view.prepared.get(key, make)


def _shown_search(
    view: TableView,
    query: str,
    fields: Sequence[str] | None,
    mode: SearchMode,
    *,
    only_words: bool,
) -> Search:
    weights = _weights(view, fields)
    longest = view.config[keys.INDEXQUERY_MAX_LENGTH]
    deepest = view.config[keys.INDEXQUERY_MAX_DEPTH]
    parse = functools.partial(
        parse_search, schema=view.schema, max_length=longest, max_depth=deepest
    )

    def spread(node: SearchNode) -> SearchNode:
        return over_fields(node, weights, fits=lambda one: fits(one, view)) if weights else node

    def read(text: str) -> SearchNode:
        node = parse(text)
        view.check_searches(Search(None, spread(node), text))
        return node

    plain = None
    if mode == "query" and len(query) <= longest and list(weights.values()) == [1.0]:
        plain = plain_words(query, next(iter(weights)))
    if plain is not None:
        node = plain
    elif mode == "query" or len(query) > longest:  # which is refused
        node = parse(query)
    elif mode == "lenient":
        node = lenient_query(query, None if only_words else read)
    else:
        node = words_query(query, mode, max_length=longest, max_depth=deepest)
    search = Search(None, node if node is plain else spread(node), query)
    view.check_searches(search)
    return search


def word_fields(view: TableView, fields: Sequence[str] | None) -> dict[str, float]:
    """Columns that are cut into words, by their names, with their weights."""
    if fields is not None and not fields:
        raise SchemaError("fields is empty. Leave it out to compare all columns of words.")
    weights = _weights(view, fields)
    if not weights:
        listed = [f.name for f in view.mapping.searchable if f.is_tokenized]
        if not listed:
            raise SchemaError(f"'{view.uri}' has no column that is cut into words.")
        return dict.fromkeys(listed, 1.0)
    columns = {}
    for field, weight in weights.items():
        name, path = resolve_field(field, view.schema) or (field, ())
        if path:
            raise SchemaError(
                f"'{field}' is a path into '{name}', whose words are indexed together. Name the "
                "column."
            )
        columns[name] = weight
    return columns


def _weights(view: TableView, fields: Sequence[str] | None) -> dict[str, float]:
    """The fields that are searched, those of the table's property if none are named."""
    if fields is None:
        return default_fields(view.config, view.schema, view.mapping)
    return weighted_fields(fields, view.schema)


def fits(leaf: FieldNode, view: TableView) -> bool:
    """Whether a field can be asked: a word is not a number."""
    try:
        view.check_searches(Search(None, leaf, ""))
    except SearchValueError:
        return False
    return True


def may_hold(
    where: str, timezone: str, metadata: Metadata
) -> Callable[[Mapping[str, PartitionBounds]], bool]:
    """Which manifests a condition leaves, by the metadata of a checkpoint."""
    try:
        names = names_in(metadata)
        shown = parse_predicate(where, names.shown, timezone=timezone, expressions=True)
        predicate = names.stored_predicate(shown)
    except IndexTablesError:  # raised again when the condition meets the newest metadata
        return lambda _bounds: True
    return functools.partial(
        bounds_may_match,
        predicate,
        schema=names.stored,
        partition_columns=metadata.partition_columns,
    )


def history_rows(entries: Sequence[HistoryEntry]) -> pa.Table:
    """Versions as a table."""
    texts = pa.map_(pa.string(), pa.string())
    return pa.table(
        {
            "version": pa.array([e.version for e in entries], pa.int64()),
            "timestamp": pa.array([e.timestamp * 1000 for e in entries], pa.timestamp("us", "UTC")),
            "operation": pa.array([e.operation for e in entries], pa.string()),
            "filesAdded": pa.array([e.files_added for e in entries], pa.int64()),
            "filesRemoved": pa.array([e.files_removed for e in entries], pa.int64()),
            "filesMarked": pa.array([e.files_marked for e in entries], pa.int64()),
            "metrics": pa.array([_texts(e.metrics) for e in entries], texts),
            "parameters": pa.array([_texts(e.parameters) for e in entries], texts),
        }
    )


def _texts(values: Mapping[str, object]) -> list[tuple[str, str]]:
    return [(name, str(value)) for name, value in values.items()]


# --- expressions over rows -------------------------------------------------------------------

_UNKNOWN = re.compile(r"No match for FieldRef\.(?:Nested\(FieldRef\.)?Name\((?P<name>.*?)\)")


def _without(column: str) -> tuple[str, str]:
    """How Arrow's message begins if an expression reads a column that is not there, or in it."""
    reference = f"FieldRef.Name({column})"
    return f"No match for {reference} in ", f"No match for FieldRef.Nested({reference} "


def columns_of(expression: pc.Expression, schema: pa.Schema) -> list[str]:
    """The columns that an expression reads.

    >>> schema = pa.schema([("a", pa.int8()), ("b", pa.int8()), ("c", pa.int8())])
    >>> sorted(columns_of((pc.field("b") > 1) & pc.field("a").is_valid(), schema))
    ['a', 'b']
    """
    names: list[str] = []
    while True:
        try:
            pa.schema([schema.field(name) for name in names]).empty_table().filter(expression)
        except pa.ArrowInvalid as error:
            message = str(error)
            missing = [
                n for n in schema.names if n not in names and message.startswith(_without(n))
            ]
            if missing:  # a name may have any characters, such as those of `count(*)`
                names.append(max(missing, key=len))
            elif match := _UNKNOWN.search(message):
                raise UnknownColumnError(match["name"], available=schema.names) from None
            else:
                raise UnsupportedPredicateError(str(expression), message) from None
        except (pa.ArrowNotImplementedError, pa.ArrowTypeError) as error:
            raise UnsupportedPredicateError(str(expression), str(error)) from None
        else:
            return names


def filtered(
    batches: Iterable[pa.RecordBatch],
    expression: pc.Expression,
    columns: Sequence[str],
    limit: int | None,
) -> Iterator[pa.RecordBatch]:
    """The rows that an expression keeps, some columns of them."""
    left = limit
    for batch in batches:
        if left == 0:
            return
        kept: Any = pa.Table.from_batches([batch]).filter(expression).select(list(columns))
        if left is not None:
            kept = kept.slice(0, left)
            left -= kept.num_rows
        yield from kept.to_batches()


_HIT, _VALUE = "_indextables_hit", "_indextables_value"
_RANKED = (
    pa.types.is_integer, pa.types.is_floating, pa.types.is_decimal, pa.types.is_boolean,
    pa.types.is_null,
)  # fmt: skip
"""Types of values that rows are ranked by."""
_ROWS_AT_ONCE = 65_536


def rank_values(expression: str, view: TableView, hits: Hits, read: Read) -> Any:
    """The number that an expression of SQL is for each hit, null where it is null or NaN.

    The engine of `indextables.sql` computes it. Of the hits, columns that it reads are in memory
    for some at a time.
    """
    import indextables

    shown = repr(expression if len(expression) <= 200 else f"{expression[:200]}…")
    hit, used = _HIT, {name.lower() for name in view.names.shown.names}
    while hit in used:
        hit += "_"
    select = f"SELECT `{hit}`, (\n{expression}\n) AS `{_VALUE}` FROM hits"
    rows = _HitRows(view, hits, read, hit)
    try:
        result: Any = indextables.sql(select, hits=rows)
    except EmbeddedQueryError as error:
        if rows.failures:  # of which the engine has the first words
            raise rows.failures[0] from None
        reason = str(error).replace(f', "{hit}"', "")
        if hit in reason:  # which is in no group
            reason = "it is an aggregate. Write one with OVER (…), or (SELECT max(…) FROM hits)."
        raise EmbeddedQueryError(f"rank_by={shown} cannot be computed: {reason}") from None
    if result.num_columns != 2 or result.num_rows != len(hits):
        raise EmbeddedQueryError(
            f"rank_by={shown} is not one expression that has a value for each row."
        )
    data_type = result.schema.types[1]
    if not any(is_kind(data_type) for is_kind in _RANKED):
        raise EmbeddedQueryError(
            f"rank_by={shown} is {data_type}, not a number. Write an expression that is one, "
            "such as unix_timestamp(at) or length(name)."
        )
    values = result[1].take(pc.sort_indices(result[0])).combine_chunks()
    if not (pa.types.is_floating(data_type) or pa.types.is_null(data_type)):
        return values
    numbers = values.to_numpy(zero_copy_only=False)
    return pa.array(numbers, pa.float64(), from_pandas=True)


class _HitRows(ds.Dataset):
    """Hits with their scores and columns, as the engine of SQL sees them."""

    def __init__(self, view: TableView, hits: Hits, read: Read, hit: str) -> None:
        # The base class is a handle on a data set of Arrow's own, which this is not.
        self.view, self.hits, self.read, self.hit = view, hits, read, hit
        self.failures: list[IndexTablesError] = []
        fields: list[Any] = [f.with_nullable(True) for f in view.names.shown]
        fields += [pa.field(hit, pa.int64()), pa.field(SCORE, pa.float32())]
        self.columns = pa.schema(fields)

    @property
    def schema(self) -> pa.Schema:
        return self.columns

    def scanner(  # type: ignore[override]
        self,
        *,
        columns: list[str] | None = None,
        filter: Any = None,  # noqa: A002
        **_: Any,
    ) -> ds.Scanner:
        names = self.columns.names if columns is None else columns
        schema = pa.schema([self.columns.field(name) for name in names])
        batches = self._batches(self.columns.names if filter is not None else names)
        if filter is not None:
            batches = (table.filter(filter) for table in batches)
        parts = (
            batch for table in batches for batch in table.select(names).cast(schema).to_batches()
        )
        return ds.Scanner.from_batches(pa.RecordBatchReader.from_batches(schema, parts))

    def _batches(self, names: Sequence[str]) -> Iterator[pa.Table]:
        stored = [name for name in names if name not in (self.hit, SCORE)]
        for start in range(0, len(self.hits), _ROWS_AT_ONCE):
            check_stop()
            places = np.arange(start, min(start + _ROWS_AT_ONCE, len(self.hits)))
            hits = self.hits.take(places)
            rows: Any = pa.table({self.hit: places, SCORE: pa.array(hits.scores, pa.float32())})
            if stored:
                stored_names = self.view.names.stored_names(stored)
                try:
                    read = self.read(stored_names, hits.splits, hits.rows)
                except IndexTablesError as error:
                    self.failures.append(error)
                    raise
                for name, column in zip(stored, read.columns, strict=True):
                    rows = rows.append_column(name, column)
            yield rows
