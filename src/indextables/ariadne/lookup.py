"""Which files can hold what a query asks for.

A `Lookup` is made once for a version of an index and answers from memory. It takes three forms:

- values by column, `{"user": [1, 2], "day": ["2024-01-15"]}`: any of the values, in all columns;
- a condition as text or as a tree: `user IN (1, 2) AND ts > '2024-01-15'`, with NOT, LIKE, IS NULL
  and searches, evaluated for every file to "may match" or "cannot match";
- the keys of a join, as rows: a file stays if it may hold all parts of some row.

The rule is the same for all: what is not known keeps the file. Files that are registered but not
indexed, columns that are declared but not built, types with rules of their own for equality: all
are candidates. A file that is known to be empty is not.

A column whose kind keeps something is `evidence` for the files where it was built. It is decoded
when it is first used and kept as long as the lookup.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from indextables.ariadne.declarations import VALUE_KINDS, Declaration, storage_column, type_of
from indextables.ariadne.evidence import BloomFilters, Bounds, Counts, Evidence, Nulls, Values
from indextables.ariadne.metadata import IndexData
from indextables.ariadne.store.large_values import ValueTable
from indextables.ariadne.values.key_types import ConvertedKeys, as_type
from indextables.ariadne.values.words import Words
from indextables.errors import AriadneArgumentError, ColumnNotFoundError, UnknownColumnError
from indextables.plan.skipping import possible
from indextables.plan.statistics import Flags, Possible
from indextables.predicate import (
    FALSE,
    Column,
    Condition,
    Expression,
    Predicate,
    Search,
    columns,
    conjuncts,
    disjunction,
    searches,
)
from indextables.predicate.coercion import is_in
from indextables.predicate.search_syntax import parse_search
from indextables.predicate.sql_text import parse_predicate

_MOST_PAIRS = 1 << 24
"""The most pairs of file and key that are checked; above, each column is checked by itself."""


@dataclass(frozen=True)
class Step:
    """What one condition of a query kept.

    Args:
        condition: The condition, as text.
        index: The kinds of index that were used for it.
        kept: How many indexed files are candidates after it and those before it.
    """

    condition: str
    index: str
    kept: int


@dataclass(frozen=True)
class Located:
    """The candidate files of a query, and how they were found. Printed, a line for each condition.

    Args:
        files: The paths of the candidates.
        total: How many files the index has.
        pending: How many of `files` are candidates because they are not indexed.
        steps: What each condition kept.
    """

    files: tuple[str, ...]
    total: int
    pending: int
    steps: tuple[Step, ...] = field(default=(), compare=False)

    def __str__(self) -> str:
        """The way from all files to the candidates, a line for each condition."""
        indexed = self.total - self.pending
        lines = [f"{self.total:,} files, {self.pending:,} of them not indexed"]
        lines += [f"  {s.condition} [{s.index}]: {s.kept:,} of {indexed:,}" for s in self.steps]
        return "\n".join([*lines, f"  to read: {len(self.files):,}"])


class Lookup:
    """Answers for one version of an index. `schema` is that of the files.

    Of a value with a temporal index only the file with its newest time counts, unless `all_rows`.
    """

    def __init__(
        self,
        data: IndexData,
        schema: pa.Schema,
        *,
        timezone: str = "UTC",
        all_rows: bool = False,
    ) -> None:
        self.data = data
        self.schema = schema
        self.timezone = timezone
        self.columns = IndexedColumns(data, schema, all_rows=all_rows)
        self.count = self.columns.count

    @property
    def types(self) -> dict[str, pa.DataType]:
        """The type of the values of each index column, whether or not it is built."""
        return self.columns.types

    # --- asking ------------------------------------------------------------------------------

    def locate(self, values: Mapping[str, Iterable[Any]]) -> Located:
        """Files that may hold, in every column, one of its values. A null equals nothing."""
        attempt = "Cannot locate files"
        if not isinstance(values, Mapping):
            raise AriadneArgumentError(
                attempt, [f"{values!r} is not a mapping of columns to values"]
            )
        self.check_indexed(values, attempt=attempt)
        # A text is a list too, of its letters.
        if single := [
            f"'{name}' has no list of values but {column_values!r}"
            for name, column_values in values.items()
            if isinstance(column_values, str | bytes) or not isinstance(column_values, Iterable)
        ]:
            raise AriadneArgumentError(attempt, single)
        return self._located(
            [self._any_of(name, list(column_values)) for name, column_values in values.items()]
        )

    def where(self, condition: str | Predicate) -> Located:
        """Files that may hold a row for which the condition is true."""
        predicate = self.parse(condition) if isinstance(condition, str) else condition
        return self._located(
            [(str(part), self._kinds(part), self.keep(part)) for part in conjuncts(predicate)]
        )

    def match(self, keys: pa.Table) -> Located:
        """Files that may hold all parts of at least one row of keys; a null part equals nothing."""
        self.check_indexed(keys.column_names, attempt="Cannot look up keys")
        kept = self.keep_keys(keys)
        names = ", ".join(keys.column_names)
        return self._located([(f"{keys.num_rows:,} keys of {names}", "keys", kept)])

    def everything(self) -> Located:
        """All files, for queries that need every row."""
        return self._located([])

    def parse(self, condition: str) -> Predicate:
        """A condition as text, over the columns of the files and the names of index columns."""
        try:
            return parse_predicate(condition, self.columns.names, timezone=self.timezone)
        except UnknownColumnError as error:
            raise ColumnNotFoundError(
                "Cannot locate files", [str(error)], available=self.columns.names.names
            ) from None

    def keep(self, predicate: Predicate) -> Flags:
        """For each indexed file: may a row make the predicate true?"""
        return possible(predicate, self, self.count).true & self.columns.has_rows

    # --- what `possible` asks ----------------------------------------------------------------

    def condition(self, node: Condition) -> Possible:
        """What a condition on one column may be."""
        evidence = None if node.column.path[1:] else self.columns.evidence(node.column.root)
        return self._anything() if evidence is None else evidence.possible(node)

    def expression(self, _node: Expression) -> Possible:
        """What is computed may be anything; conditions of Ariadne have none."""
        return self._anything()

    def search(self, node: Search) -> Possible:
        """What a search may be; only words that are in a file can be found there."""
        yes = np.ones(self.count, np.bool_)
        names = [d.name for d in self.data.declarations.of_kind("text")]
        if node.column is None or node.column.path[1:] or node.column.root not in names:
            return Possible(yes, yes, ~yes)
        return Possible(self.columns.words(node.column.root).may_match(node.query), yes, ~yes)

    def _anything(self) -> Possible:
        yes = np.ones(self.count, np.bool_)
        return Possible(yes, yes, yes)

    def check_indexed(self, names: Iterable[str], *, attempt: str) -> None:
        """Refuse names that are not columns, and columns without an index."""
        requested = list(names)
        indexed = self.data.declarations.names
        unknown = [n for n in requested if n not in indexed and n not in self.schema.names]
        if unknown:
            problems = [f"there is no column '{name}'" for name in unknown]
            raise ColumnNotFoundError(attempt, problems, available=self.columns.names.names)
        bare = [f"'{name}' has no index" for name in requested if name not in indexed]
        if bare:
            raise AriadneArgumentError(
                attempt, [*bare, f"indexed are {', '.join(indexed) or 'none'}"]
            )

    # --- keys --------------------------------------------------------------------------------

    def keep_keys(self, keys: pa.Table) -> Flags:
        """For each indexed file: may it hold all parts of some row of keys?"""
        columns = [self._keys(name, keys.column(name)) for name in keys.column_names]
        # A row with a part that equals nothing cannot match.
        rows = np.ones(keys.num_rows, np.bool_)
        for column in columns:
            rows &= column.can_match
        if not rows.any():
            return np.zeros(self.count, np.bool_)
        together = self.count * int(rows.sum()) <= _MOST_PAIRS
        kept = np.ones((self.count, int(rows.sum()) if together else 1), np.bool_)
        for column in columns:
            kept &= column.each(rows) if together else column.any(rows)[:, None]
        return kept.any(axis=1) & self.columns.has_rows

    def _keys(self, name: str, column: Any) -> _KeyColumn:
        evidence, data_type = self.columns.evidence(name), self.types.get(name)
        if evidence is None or data_type is None:
            keys = ConvertedKeys(pa.nulls(len(column)), np.asarray(column.is_valid(), np.bool_))
            return _KeyColumn(keys, Nulls(Counts.unknown(self.count)))
        return _KeyColumn(as_type(column, data_type), evidence)

    # --- parts -------------------------------------------------------------------------------

    def _any_of(self, name: str, values: Sequence[Any]) -> tuple[str, str, Flags]:
        declaration = self.data.declarations.get(name)
        assert declaration is not None
        condition = f"{name} IN ({len(values):,} values)"
        data_type = self.types.get(name)
        not_null = [value for value in values if value is not None]
        if data_type is None:
            kept = np.full(self.count, bool(not_null))
        elif declaration.kind == "text":
            conditions = [
                Search(Column((name,)), parse_search(str(text), schema=self.schema), str(text))
                for text in not_null
            ]
            kept = self.keep(disjunction(*conditions))
        elif pa.types.is_nested(data_type):
            kept = self.keep_keys(pa.table({name: pa.array(not_null, data_type)}))
        else:
            node = (
                is_in(Column((name,)), data_type, not_null, timezone=self.timezone)
                if not_null
                else FALSE
            )
            kept = self.keep(node)
        return condition, declaration.kind, kept

    def _located(self, parts: Sequence[tuple[str, str, Flags]]) -> Located:
        kept = self.columns.has_rows.copy()
        steps = []
        for condition, index_kinds, flags in parts:
            kept &= flags
            steps.append(Step(condition, index_kinds, int(kept.sum())))
        names: Any = self.data.files.column("filename").filter(pa.array(kept))
        return Located(
            files=(*names.to_pylist(), *self.data.pending),
            total=self.count + len(self.data.pending),
            pending=len(self.data.pending),
            steps=tuple(steps),
        )

    def _kinds(self, predicate: Predicate) -> str:
        named = [c.root for c in columns(predicate)]
        named += [s.column.root for s in searches(predicate) if s.column is not None]
        kinds = [d.kind for d in self.data.declarations if d.name in named]
        return ", ".join(dict.fromkeys(kinds)) or "none"


@dataclass(frozen=True)
class _KeyColumn:
    """One column of the keys of a join, and what is known about the column it is joined to."""

    keys: ConvertedKeys
    evidence: Evidence

    @functools.cached_property
    def can_match(self) -> Flags:
        """Keys that may equal some value."""
        return self.keys.is_unknown | np.asarray(self.keys.values.is_valid(), np.bool_)

    def each(self, rows: Flags) -> Flags:
        """For each file and each of the rows: may the file hold the key?"""
        values: Any = self.keys.values.filter(pa.array(rows))
        is_unknown = self.keys.is_unknown[rows]
        if pa.types.is_nested(values.type) or pa.types.is_null(values.type):
            return self.evidence.holds(values) | is_unknown[None, :]
        # Rows of several columns repeat their parts; each different one is asked for once.
        encoded = values.dictionary_encode("encode")
        places = np.asarray(encoded.indices, np.int64)
        return self.evidence.holds(encoded.dictionary)[:, places] | is_unknown[None, :]

    def any(self, rows: Flags) -> Flags:
        """For each file: may it hold one of the keys?"""
        if self.keys.is_unknown[rows].any():
            return np.ones_like(self.evidence.holds_any(self.keys.values))
        return self.evidence.holds_any(self.keys.values.filter(pa.array(rows)))


# --- the evidence of each column -------------------------------------------------------------


class IndexedColumns:
    """The columns of one version of an index. `schema` is that of the files.

    Of a value with a temporal index only the file with its newest time counts. With `all_rows`
    any file with the value counts, and the name of a computed or exploded index column is that of
    the files' own column, about which nothing is known.
    """

    def __init__(self, data: IndexData, schema: pa.Schema, *, all_rows: bool) -> None:
        self.data = data
        self.schema = schema
        self.all_rows = all_rows
        self.is_newest_known = not all_rows and not data.drops_rows
        self.count = data.files.num_rows

    @functools.cached_property
    def types(self) -> dict[str, pa.DataType]:
        """The type of the values of each index column, whether or not it is built."""
        types: dict[str, Any] = {}
        for declaration in self.data.declarations:
            data_type = self._type(declaration)
            if data_type is not None:
                types[declaration.name] = data_type
        return types

    @functools.cached_property
    def names(self) -> pa.Schema:
        """The columns that a condition may name: of the files, and those that indexes add."""
        types = {f.name: f.type for f in self.schema} | self.types
        return pa.schema(list(types.items()))

    @functools.cached_property
    def has_rows(self) -> Flags:
        """Files that are not known to be empty."""
        rows: Any = self.data.files.column("row_count")
        return np.asarray(pc.fill_null(pc.not_equal(rows, pa.scalar(0)), True), np.bool_)

    @functools.cache  # noqa: B019 - as long as the lookup itself
    def evidence(self, name: str) -> Evidence | None:
        """What is known about a column; None if nothing is."""
        declaration = self.data.declarations.get(name)
        if declaration is None or storage_column(declaration) not in self.data.files.column_names:
            return None
        if self.all_rows and declaration.kind in ("computed", "exploded"):
            return None
        stored = self._column(storage_column(declaration))
        counts = self._counts(declaration)
        data_type = self.types[name]
        if declaration.kind in VALUE_KINDS:
            return Values(
                name,
                counts,
                stored,
                table=functools.partial(self._value_table, name),
                filenames=self._column("filename"),
                per_row=declaration.kind != "exploded",
            )
        if declaration.kind == "temporal":
            return self._temporal(name, counts, stored)
        if declaration.kind == "bloom":
            return BloomFilters(counts, data_type, stored)
        if declaration.kind == "range":
            return Bounds(counts, data_type, stored)
        return Nulls(counts)

    @functools.cache  # noqa: B019
    def words(self, name: str) -> Words:
        """The words of a text index."""
        declaration = self.data.declarations.get(name)
        assert declaration is not None
        column = storage_column(declaration)
        if column not in self.data.files.column_names:
            return Words.of([None] * self.count)
        is_known = self._counts(declaration).is_known
        lists = zip(self._column(column).to_pylist(), is_known, strict=True)
        return Words.of(stored if present else None for stored, present in lists)

    def _type(self, declaration: Declaration) -> Any:
        column = storage_column(declaration)
        if declaration.kind in ("bloom", "text"):
            return self.schema.field(declaration.name).type
        if column not in self.data.files.column_names:
            types = self.data.computed_types
            return type_of(declaration, self.schema, types.get(declaration.name))
        stored: Any = self.data.files.schema.field(column).type
        if declaration.kind == "range":
            return stored.field("min").type
        element = stored.value_type
        return element.field("value").type if declaration.kind == "temporal" else element

    def _column(self, name: str) -> Any:
        column = self.data.files.column(name)
        return column.combine_chunks() if column.num_chunks != 1 else column.chunk(0)

    def _counts(self, declaration: Declaration) -> Counts:
        is_known = np.asarray(self.data.is_built(declaration), np.bool_)
        nulls = f"nulls_{declaration.name}"
        if declaration.kind == "exploded" or nulls not in self.data.files.column_names:
            return Counts.of(is_known, None, None)
        return Counts.of(is_known, self._column(nulls), self._column("row_count"))

    def _temporal(self, name: str, counts: Counts, stored: Any) -> Values:
        # Without an array there were too many values to keep; nothing is known of that file.
        is_known = counts.is_known & np.asarray(stored.is_valid(), np.bool_)
        offsets, pairs = stored.offsets, stored.values
        parts = [pc.struct_field(pairs, part) for part in ("value", "max_ts")]
        values = pa.ListArray.from_arrays(offsets, parts[0], mask=stored.is_null())
        stamps = pa.ListArray.from_arrays(offsets, parts[1], mask=stored.is_null())
        return Values(
            name,
            Counts(is_known, counts.may_be_null | ~is_known, counts.may_be_value | ~is_known),
            values,
            table=lambda: None,
            filenames=self._column("filename"),
            newest=pc.list_flatten(stamps) if self.is_newest_known else None,
        )

    @functools.cache  # noqa: B019
    def _value_table(self, name: str) -> ValueTable | None:
        table = self.data.large(name)
        return None if table is None else ValueTable(table)
