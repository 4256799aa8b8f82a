"""Which rows of one split match a predicate: proposed by its index, decided by the rows.

Searches are answered exactly. Equality with a text becomes a question to the index of the column:
the whole value for a `string`, all its words for a `text`; a proposal may hold too many rows and
misses none. Where that leaves a question open, the columns of the predicate are read for the
proposed rows and the row filter decides. Where the index has nothing to say, all rows are looked
at.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import tantivy

from indextables.errors import DamagedIndexError, TooManyExpansionsError
from indextables.plan.skipping import keep_row_groups
from indextables.predicate import (
    TRUE,
    And,
    Column,
    Compare,
    Condition,
    Constant,
    Expression,
    In,
    Not,
    Or,
    Placeholder,
    Predicate,
    Search,
    StartsWith,
    Wildcard,
    columns,
)
from indextables.split.format.rows import without_columns
from indextables.split.ip_address import parse_address, show_address
from indextables.split.mapping import FieldMapping
from indextables.split.open_split import SplitSearcher, SplitSource
from indextables.split.row_filter import evaluate
from indextables.split.row_numbers import RowNumbers
from indextables.split.search import Leaf

_ENOUGH_WORDS = 16
_MAX_VALUES = 10_000
_FEW_ROWS = 128 << 10
"""Of a local split, so many rows are read sooner than the bounds of their groups are compared."""


def propose(condition: Condition, searcher: SplitSearcher) -> RowNumbers | None:
    """Rows of a split that may satisfy a condition, in ascending order.

    `DamagedIndexError` if the index cannot be read: scan the rows then.
    """
    query = _question(condition, searcher)
    return None if query is None else searcher.source().index_rows(query)


def count_proposed(condition: Condition, searcher: SplitSearcher) -> int | None:
    """How many rows `propose` has, which an index counts without naming them."""
    query = _question(condition, searcher)
    return None if query is None else searcher.source().index.searcher.count(query)


def _question(condition: Condition, searcher: SplitSearcher) -> tantivy.Query | None:
    """A predicate as a question to the index of a split."""
    match condition:
        case Compare(op="=" | "<=>", column=column, value=str(text)):
            return _equal(column, (text,), searcher)
        case In(column=column, values=values) if all(isinstance(v, str) for v in values):
            return _equal(column, tuple(str(v) for v in values), searcher)
        case StartsWith(column=column, text=text) if text:
            return _beginning(column, text, searcher)
        case _:
            return None


def _beginning(column: Column, text: str, searcher: SplitSearcher) -> tantivy.Query | None:
    field = _field(column, searcher)
    # A value that is too long for the index may begin with anything.
    dropped = searcher.split.info.too_long
    if field is None or field.kind != "string" or field.name in dropped:
        return None
    if _may_be_dropped(text, field):
        return None
    try:
        return searcher.source().compiler.leaf(
            Leaf(field, Wildcard(None, (text, Placeholder.MANY)))
        )
    except TooManyExpansionsError:
        return None  # no expansion was asked for: comparing the rows is fine


def _field(column: Column, searcher: SplitSearcher) -> FieldMapping | None:
    """The field of a column of text that this split's index holds."""
    mapped = searcher.context.mapping.by_name.get(column.root)
    if mapped is not None and mapped.field:
        searcher.split.prepare_search(searcher.pool.cache)
    if len(column.path) > 1 or column.root not in searcher.split.rows.schema.names:
        return None
    if not pa.types.is_string(searcher.split.rows.schema.field(column.root).type):
        return None
    field = searcher.split.info.mapping.by_name.get(column.root)
    return field if field is not None and field.field else None


def _equal(column: Column, texts: tuple[str, ...], searcher: SplitSearcher) -> tantivy.Query | None:
    field = _field(column, searcher)
    if field is None or len(texts) > _MAX_VALUES:
        return None
    source = searcher.source()
    queries = [_value(text, field, source) for text in texts]
    clauses = [(tantivy.Occur.Should, query) for query in queries if query is not None]
    if len(clauses) < len(queries):
        return None
    return source.compiler.build.combined(clauses)


def _value(text: str, field: FieldMapping, source: SplitSource) -> tantivy.Query | None:
    """The rows whose value may be this text."""
    if field.kind == "ip":
        address = parse_address(text)
        if address is None:
            return None
        # As it was indexed: blanks around an address are stripped here, which Tantivy does not do.
        shown = show_address(address)
        return source.compiler.build.address(field, shown)
    if field.kind == "json" or _may_be_dropped(text, field):
        return None
    words = field.analyzer.words(text)[:_ENOUGH_WORDS]
    if not words:
        return None
    return source.compiler.all(source.compiler.term(field, word.text) for word in words)


def _may_be_dropped(text: str, field: FieldMapping) -> bool:
    """Whether a whole value is too long for the index."""
    return field.analyzer.is_whole and len(text.encode()) > field.token_length


Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Piece:
    """Reads some rows when it is called; `size` is about what they take in memory."""

    read: Callable[[], pa.Table]
    size: int

    def __call__(self) -> pa.Table:
        return self.read()


# Rows that are read at once: enough to be fast, few enough to be small.
_PIECE = 131_072


@dataclass(frozen=True, slots=True)
class Proposal:
    """Rows that may match. `exact` means that they do and no others."""

    mask: Mask
    exact: bool


@dataclass(slots=True)
class SplitRows:
    """One split under one predicate, in which partition columns are already decided."""

    searcher: SplitSearcher
    predicate: Predicate
    _answers: dict[Search, Mask] = field(default_factory=dict)

    @property
    def total(self) -> int:
        return self.searcher.split.info.rows

    def matching(self) -> RowNumbers | None:
        """The numbers of the matching rows in ascending order; None means all of them.

        Deleted rows are in no answer: this is where rows of a split come from.
        """
        return self.searcher.live(self._matching())

    def _matching(self) -> RowNumbers | None:
        """The same, deleted rows included or not."""
        if self.predicate == TRUE:
            return None
        if isinstance(self.predicate, Search):
            return self.searcher.search(self.predicate)
        proposal = self._propose(self.predicate)
        if proposal is not None and proposal.exact:
            return np.flatnonzero(proposal.mask)
        candidates = None if proposal is None else np.flatnonzero(proposal.mask)
        matching = [rows[self._decide(rows, table)] for rows, table in self._candidates(candidates)]
        return np.concatenate(matching) if matching else np.zeros(0, dtype=np.int64)

    def count(self) -> int:
        """How many rows match."""
        if isinstance(self.predicate, Search):
            return self.searcher.count(self.predicate)
        rows = self.matching()
        return self.total if rows is None else len(rows)

    def pieces(self, names: Sequence[str], *, limit: int | None = None) -> list[Piece]:
        """Functions that read the matching rows piece by piece, in the order of the split.

        Which rows match is decided here; what a piece holds is read when it is called.
        """
        reader, read_rows = self.searcher.split.rows, self.searcher.read_rows
        in_split = set(reader.schema.names)
        stored = [name for name in names if name in in_split]
        if self.predicate == TRUE and limit is None:
            return [
                Piece(functools.partial(self._read_groups, groups, names), size)
                for groups, size in reader.group_ranges(stored)
            ]
        rows = self.matching()
        if rows is None:
            rows = np.arange(min(self.total, limit or 0))
        return [
            Piece(functools.partial(read_rows, row_numbers, names), size)
            for row_numbers, size in reader.row_ranges(rows[:limit], stored, _PIECE)
        ]

    def _read_groups(self, groups: range, names: Sequence[str]) -> pa.Table:
        """All rows of some row groups that are not deleted."""
        rows, starts = self.searcher.split.rows, self.searcher.split.rows.footer.group_starts
        in_split = set(rows.schema.names)
        table = rows.read_some(groups, [name for name in names if name in in_split])
        numbers = np.arange(starts[groups.start], starts[groups.stop])
        live = self.searcher.live(numbers)
        if live is not None and len(live) < len(numbers):
            # A table without columns forgets how many rows it has when some are taken.
            positions = pa.array(live - numbers[0])
            table = table.take(positions) if table.column_names else without_columns(len(live))
            numbers = live
        return self.searcher.complete(table, names, rows=numbers)

    def read(self, names: Sequence[str], *, limit: int | None = None) -> Iterator[pa.Table]:
        """The matching rows with these columns, in pieces, in the order of the split."""
        return (piece() for piece in self.pieces(names, limit=limit))

    # --- what the index says -----------------------------------------------------------------

    def _propose(self, node: Predicate) -> Proposal | None:
        match node:
            case Search():
                return Proposal(self._answer(node), exact=True)
            case Constant(value=value):
                # NOT NULL is null, not true: the complement of such a proposal means nothing.
                return Proposal(np.full(self.total, value is True), exact=value is not None)
            case Not(child=child):
                inner = self._propose(child)
                if inner is None or not inner.exact:
                    return None
                return Proposal(~inner.mask, exact=True)
            case And(children=children):
                return self._propose_all(children)
            case Or(children=children):
                return self._propose_any(children)
            case Expression():
                return None
            case _:
                return self._propose_condition(node)

    def _propose_all(self, children: Sequence[Predicate]) -> Proposal | None:
        merged: Proposal | None = None
        exact = True
        for child in children:
            proposal = self._propose(child)
            if proposal is None:
                exact = False
                continue
            exact = exact and proposal.exact
            merged = proposal if merged is None else Proposal(merged.mask & proposal.mask, False)
            if not merged.mask.any():
                break
        return None if merged is None else replace(merged, exact=exact)

    def _propose_any(self, children: Sequence[Predicate]) -> Proposal | None:
        mask = np.zeros(self.total, dtype=np.bool_)
        exact = True
        for child in children:
            proposal = self._propose(child)
            if proposal is None:
                return None
            mask |= proposal.mask
            exact = exact and proposal.exact
        return Proposal(mask, exact)

    def _answer(self, search: Search) -> Mask:
        if search not in self._answers:
            self._answers[search] = self._mask(self.searcher.search(search))
        return self._answers[search]

    def _propose_condition(self, condition: Condition) -> Proposal | None:
        """The split's own analyzer is asked, so this is true whatever the table's mapping says."""
        if condition.column.root in self.searcher.partition:
            return None
        try:
            rows = propose(condition, self.searcher)
        except DamagedIndexError:
            return None
        return None if rows is None else Proposal(self._mask(rows), exact=False)

    def _mask(self, rows: RowNumbers) -> Mask:
        mask = np.zeros(self.total, dtype=np.bool_)
        mask[rows] = True
        return mask

    # --- what the rows say -------------------------------------------------------------------

    def _candidates(self, rows: RowNumbers | None) -> Iterator[tuple[RowNumbers, pa.Table]]:
        """The columns of the predicate, of these rows, in pieces."""
        schema = self.searcher.context.schema
        needed = {column.root for column in columns(self.predicate)}
        names = [name for name in schema.names if name in needed]
        reader = self.searcher.split.rows
        stored = [n for n in names if n in reader.schema.names]
        if rows is None:
            for groups, _ in self._groups(stored):
                starts = reader.footer.group_starts
                numbers = np.arange(starts[groups.start], starts[groups.stop])
                yield numbers, self.searcher.complete(reader.read_some(groups, stored), names)
            return
        for piece, _ in reader.row_ranges(rows, stored, _PIECE):
            yield piece, self.searcher.read_rows(piece, names)

    def _groups(self, names: Sequence[str]) -> list[tuple[range, int]]:
        """The row groups whose bounds allow a match, in runs of some."""
        reader, schema = self.searcher.split.rows, self.searcher.context.schema
        is_near = reader.store.local_path(reader.path) is not None
        few = is_near and reader.footer.group_starts[-1] <= _FEW_ROWS
        if not names or few or not reader.has_bounds:
            return reader.group_ranges(names, _PIECE)
        keep = keep_row_groups(self.predicate, reader.footer.parquet, reader.schema, schema=schema)
        return reader.group_ranges(names, _PIECE, groups=np.flatnonzero(keep).tolist())

    def _decide(self, rows: RowNumbers, table: pa.Table) -> Mask:
        answer: Any = evaluate(
            self.predicate, table, search=lambda search: self._answer(search)[rows]
        )
        return np.asarray(answer.fill_null(False))


def row_mask(searcher: SplitSearcher, predicate: Predicate | None) -> Mask:
    """Which rows of a split meet a condition; none do where there is none to meet."""
    rows = searcher.split.info.rows
    if predicate is None:
        return np.zeros(rows, dtype=np.bool_)
    matching = SplitRows(searcher, predicate).matching()
    mask = np.full(rows, matching is None)
    if matching is not None:
        mask[matching] = True
    return mask
