"""What an index stores about one column, file by file, and which rows that leaves possible.

Each kind of index answers the same two questions. `possible`: may a row of the file make a
condition true, false, null? `holds`: may the file hold each of some values? A file that the index
knows nothing about (the column was not built for it, its bytes have an unknown format) answers yes
to everything; `is_known` is false for it.

Distinct values, which say most, are looked up by their hash in a sorted list of all hashes of the
column, made once for a version of the index. Any other condition is evaluated on the distinct
values themselves, exactly.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from indextables.ariadne.store.large_values import ValueTable
from indextables.ariadne.values.bloom import Filters, may_hold_any, probe
from indextables.ariadne.values.hashing import hash_values
from indextables.bloom import Hashes
from indextables.plan.statistics import Decoded, Flags, Possible, ValueRange, value_range
from indextables.predicate import Compare, Condition, In, IsNull
from indextables.split.row_filter import evaluate

_UNCUT = 2**31
"""The bounds of a range index are not truncated, however long they are."""


class Evidence(Protocol):
    """What is known about the values of one column."""

    def possible(self, node: Condition) -> Possible:
        """What a condition may be for the rows of each file."""
        ...

    def holds(self, values: Any) -> Flags:
        """For each file (rows) and value (columns): may the value be there?"""
        ...

    def holds_any(self, values: Any) -> Flags:
        """For each file: may one of the values be there?"""
        ...


@dataclass(frozen=True, slots=True)
class Counts:
    """What is known about a column's nulls in each file."""

    is_known: Flags
    """The column was built for the file."""
    may_be_null: Flags
    may_be_value: Flags

    @classmethod
    def of(cls, is_known: Flags, nulls: Any | None, rows: Any | None) -> Counts:
        """From `nulls_<column>` and `row_count`; None where a table lacks them."""
        null_count, row_count = _numbers(nulls, len(is_known)), _numbers(rows, len(is_known))
        return cls(
            is_known,
            ~is_known | (null_count != 0),
            ~is_known | (null_count < 0) | (row_count < 0) | (null_count < row_count),
        )

    @classmethod
    def unknown(cls, count: int) -> Counts:
        """Nothing is known of any file."""
        yes = np.ones(count, np.bool_)
        return cls(~yes, yes, yes)

    def anything(self) -> Possible:
        """Everything but what the counts of nulls exclude."""
        return Possible(self.may_be_value, self.may_be_value, self.may_be_null)


def equality(node: Condition) -> tuple[Any, ...] | None:
    """The values that an equality or a list asks for; None for other conditions."""
    match node:
        case Compare(op="=" | "<=>", value=value):
            return (value,)
        case In(values=values):
            return values
        case _:
            return None


def null_test(counts: Counts) -> Possible:
    """What IS NULL may be."""
    nothing = np.zeros_like(counts.may_be_null)
    return Possible(counts.may_be_null, counts.may_be_value, nothing)


@dataclass(frozen=True, slots=True)
class Nulls:
    """Only how many nulls a column has."""

    counts: Counts

    def possible(self, node: Condition) -> Possible:
        """What the number of nulls leaves possible."""
        if isinstance(node, IsNull):
            return null_test(self.counts)
        if isinstance(node, Compare) and node.op == "<=>":
            yes = np.ones_like(self.counts.may_be_value)
            return Possible(self.counts.may_be_value, yes, ~yes)
        return self.counts.anything()

    def holds(self, values: Any) -> Flags:
        """Any value, where there are values at all."""
        return np.repeat(self.counts.may_be_value[:, None], len(values), axis=1)

    def holds_any(self, values: Any) -> Flags:
        """Any value, where there are values at all."""
        return self.counts.may_be_value & bool(len(values))


# --- filters and ranges ----------------------------------------------------------------------


@dataclass(frozen=True)
class BloomFilters:
    """Bloom filters of a column. A file with no filter although it was built has no value."""

    counts: Counts
    data_type: pa.DataType
    stored: Any

    @functools.cached_property
    def filters(self) -> Filters:
        """The filters, decoded once."""
        is_known = self.counts.is_known
        filters = zip(self.stored.to_pylist(), is_known, strict=True)
        return Filters.of(stored if present else None for stored, present in filters)

    def possible(self, node: Condition) -> Possible:
        """Equalities may be excluded, and nulls by their number."""
        equal_to = equality(node)
        by_nulls = Nulls(self.counts).possible(node)
        if equal_to is None:
            return by_nulls
        return Possible(
            self.holds_any(pa.array(equal_to, self.data_type)), by_nulls.false, by_nulls.null
        )

    def holds(self, values: Any) -> Flags:
        """Which files may hold which values."""
        return probe(self.filters, hash_values(values)) & self.counts.may_be_value[:, None]

    def holds_any(self, values: Any) -> Flags:
        """Which files may hold one of the values."""
        hashes = hash_values(values.drop_null())
        return may_hold_any(self.filters, hashes) & self.counts.may_be_value


@dataclass(frozen=True)
class Bounds:
    """The least and the greatest value of a column in each file."""

    counts: Counts
    data_type: pa.DataType
    stored: Any
    """A struct of `min` and `max` for each file."""

    @functools.cached_property
    def ranges(self) -> ValueRange:
        """The bounds as comparisons use them."""
        lower, upper = (pc.struct_field(self.stored, name) for name in ("min", "max"))
        is_known = self.counts.is_known
        return value_range(
            self.data_type,
            Decoded(lower, is_known & np.asarray(lower.is_valid(), np.bool_)),
            Decoded(upper, is_known & np.asarray(upper.is_valid(), np.bool_)),
            truncation_length=_UNCUT,
            may_be_value=self.counts.may_be_value,
            may_be_null=self.counts.may_be_null,
            # Whether bounds of floats count NaN depends on the writer.
            may_be_nan=np.ones_like(is_known),
        )

    def possible(self, node: Condition) -> Possible:
        """What the bounds leave possible."""
        return self.ranges.possible(node)

    def holds(self, values: Any) -> Flags:
        """Which values lie between a file's bounds."""
        ranges = self.ranges
        # Ranks among all bounds and values compare as these do, whatever their type.
        together: Any = pa.concat_arrays([ranges.lower, ranges.upper, values])
        if pa.types.is_floating(together.type):
            together = pc.add(together, pa.scalar(0.0, together.type))
        ranks = np.asarray(pc.rank(together, tiebreaker="dense"), np.int64)
        lower, upper, keys = np.split(ranks, [len(ranges.lower), 2 * len(ranges.lower)])
        above = (lower[:, None] <= keys[None, :]) | ~ranges.has_lower[:, None]
        below = (keys[None, :] <= upper[:, None]) | ~ranges.has_upper[:, None]
        answer: Flags = (above & below) & ranges.may_be_value[:, None]
        if pa.types.is_floating(together.type):
            is_nan = np.asarray(pc.fill_null(pc.is_nan(values), False), np.bool_)
            answer |= is_nan[None, :] & (ranges.may_be_nan & ranges.may_be_value)[:, None]
        return answer

    def holds_any(self, values: Any) -> Flags:
        """Which files may hold a value between the least and the greatest of these."""
        present = values.drop_null()
        if not len(present) or pa.types.is_floating(present.type):
            return self.ranges.may_be_value & bool(len(present))
        ends: Any = pc.min_max(present)
        low, high = (self.ranges.versus(ends[end].as_py()) for end in ("min", "max"))
        return (low.equal | low.above) & (high.equal | high.below)


def _numbers(column: Any | None, count: int) -> Any:
    if column is None:
        return np.full(count, -1, np.int64)
    return np.asarray(pc.fill_null(column.cast(pa.int64()), -1), np.int64)


@dataclass(frozen=True, slots=True)
class Inverted:
    """All hashes of a column in order, and the file of each."""

    hashes: Hashes
    files: Any
    stamps: Any = None
    """The newest time of each, as a number; for a temporal index."""

    def pairs(self, hashes_asked: Hashes) -> tuple[Any, Any]:
        """Where some hashes are: the number of each in `hashes_asked`, and its place here."""
        first = np.searchsorted(self.hashes, hashes_asked, "left")
        last = np.searchsorted(self.hashes, hashes_asked, "right")
        counts = last - first
        which = np.repeat(np.arange(len(hashes_asked)), counts)
        ends = np.cumsum(counts)
        return which, np.arange(len(which)) + np.repeat(first - (ends - counts), counts)


@dataclass(frozen=True)
class Values:
    """The distinct values of a column: an array for most files, rows of a value table for some."""

    name: str
    counts: Counts
    arrays: Any
    """One list a file; null where the values are in the value table, or nowhere."""
    table: Callable[[], ValueTable | None]
    filenames: Any
    newest: Any = None
    """The newest timestamp of every value, beside the arrays; for a temporal index."""
    per_row: bool = True
    """Whether a row has one value, and not one for each element of an array."""

    def __len__(self) -> int:
        return len(self.counts.is_known)

    @functools.cached_property
    def has_array(self) -> Flags:
        """Files whose values are all in `arrays`."""
        return self.counts.is_known & np.asarray(self.arrays.is_valid(), np.bool_)

    @functools.cached_property
    def is_large(self) -> Flags:
        """Files whose values are in the value table."""
        return self.counts.is_known & ~self.has_array

    @functools.cached_property
    def sizes(self) -> Any:
        """How many distinct values each file's array has."""
        lengths = np.asarray(pc.fill_null(pc.list_value_length(self.arrays), 0), np.int64)
        return np.where(self.has_array, lengths, 0)

    @functools.cached_property
    def flat(self) -> Any:
        """The values of all arrays, one after the other."""
        return pc.list_flatten(self.arrays)

    @functools.cached_property
    def parents(self) -> Any:
        """The file of each of `flat`."""
        return np.asarray(pc.list_parent_indices(self.arrays), np.int64)

    @functools.cached_property
    def inverted(self) -> Inverted:
        """The list that lookups search."""
        hashes = hash_values(self.flat)
        keep = np.flatnonzero(self.has_array[self.parents] & np.asarray(self.flat.is_valid()))
        order = keep[np.argsort(hashes[keep])]
        stamps = None if self.newest is None else _sortable(self.newest)[order]
        return Inverted(hashes[order], self.parents[order].astype(np.int32), stamps)

    def possible(self, node: Condition) -> Possible:
        """Exact for arrays; for value tables an equality is exact, and nothing else known."""
        equal_to = equality(node)
        if isinstance(node, IsNull):
            answer = null_test(self.counts)
        elif equal_to is not None:
            answer = self._equal(node, pa.array(equal_to, self.flat.type))
        else:
            answer = self._evaluated(node)
        if self.per_row:
            return answer
        # A row with several elements may hold a value and others as well, or have no value.
        return Possible(answer.true, ~self._no(), ~self._no())

    def holds(self, values: Any) -> Flags:
        """Which files hold which values."""
        hashes = hash_values(values)
        answer = np.repeat(~self.counts.is_known[:, None], len(hashes), axis=1)
        which, places = self._newest_only(*self.inverted.pairs(hashes))
        answer[self.inverted.files[places], which] = True
        if self.is_large.any():
            files, numbers = self._in_table(hashes)
            if files is None:
                answer[self.is_large] = True
            else:
                answer[files, numbers] = True
        return answer

    def holds_any(self, values: Any) -> Flags:
        """Which files hold one of the values."""
        return self._holds_any(np.unique(hash_values(values.drop_null())))

    def _holds_any(self, hashes: Hashes) -> Flags:
        answer = ~self.counts.is_known
        _, places = self._newest_only(*self.inverted.pairs(hashes))
        answer[self.inverted.files[places]] = True
        if self.is_large.any():
            files, _ = self._in_table(hashes)
            answer[self.is_large if files is None else files] = True
        return answer

    def _equal(self, node: Condition, values_asked: Any) -> Possible:
        hashes = np.unique(hash_values(values_asked))
        is_met = self._holds_any(hashes)
        _, places = self.inverted.pairs(hashes)
        met = np.bincount(self.inverted.files[places], minlength=len(self))
        is_missed = np.where(self.has_array, met < self.sizes, True) & self.counts.may_be_value
        null = self.counts.may_be_null
        match node:
            case Compare(op="<=>"):
                return Possible(is_met, is_missed | null, self._no())
            case In(has_null=True):
                return Possible(is_met, self._no(), is_missed | null)
            case _:
                return Possible(is_met, is_missed, null)

    def _evaluated(self, node: Condition) -> Possible:
        answer: Any = evaluate(node, pa.table({self.name: self.flat}))
        is_true, is_false = (
            np.asarray(pc.fill_null(one, False), np.bool_) for one in (answer, pc.invert(answer))
        )
        unsure = ~self.has_array & self.counts.may_be_value
        return Possible(
            self._files_with(is_true) | unsure,
            self._files_with(is_false) | unsure,
            self.counts.may_be_null,
        )

    def _files_with(self, answers: Flags) -> Flags:
        files = self._no()
        files[self.parents[answers]] = True
        return files & self.has_array

    def _newest_only(self, which: Any, places: Any) -> tuple[Any, Any]:
        """Of a temporal index: only where a value has its newest timestamp, or shares it."""
        if self.inverted.stamps is None or not len(which):
            return which, places
        stamps = self.inverted.stamps[places]
        latest = np.full(int(which.max()) + 1, np.iinfo(np.int64).min)
        np.maximum.at(latest, which, stamps)
        keep = stamps == latest[which]
        return which[keep], places[keep]

    def _in_table(self, hashes: Hashes) -> tuple[Any, Any]:
        """Files and numbers of the hashes in the value table; None if it cannot be searched."""
        table = self.table()
        matching_rows = None if table is None else table.find(hashes)
        if matching_rows is None:
            return None, None
        positions: Any = pc.index_in(matching_rows.column("filename"), value_set=self.filenames)
        files = np.asarray(pc.fill_null(positions, -1).to_numpy(), np.int64)
        stored: Any = matching_rows.column("hash").to_numpy()
        order = np.argsort(hashes, kind="stable")
        ranked = hashes[order]
        # A value may be asked for twice; both get the answer.
        first = np.searchsorted(ranked, stored.view(np.uint64), "left")
        last = np.searchsorted(ranked, stored.view(np.uint64), "right")
        counts = last - first
        ends = np.cumsum(counts)
        numbers = np.arange(int(counts.sum())) + np.repeat(first - (ends - counts), counts)
        files = np.repeat(files, counts)
        is_indexed = (files >= 0) & self.is_large[np.maximum(files, 0)]
        return files[is_indexed], order[numbers[is_indexed]]

    def _no(self) -> Flags:
        return np.zeros(len(self), np.bool_)


def _sortable(times: Any) -> Any:
    """Times as whole numbers in the same order; null is older than all others."""
    ranks = np.asarray(pc.rank(times, "ascending", tiebreaker="dense"), np.int64)
    return np.where(np.asarray(times.is_null(), np.bool_), -1, ranks)
