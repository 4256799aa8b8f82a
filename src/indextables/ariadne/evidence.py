"""What an index knows about one column, file by file, and what that leaves possible.

Each kind of index answers the same two questions. `possible`: may a row of the file make a
condition true, false, null? `holds`: may the file hold each of some values? A file that the index
says nothing about (the column was not built for it, its bytes are of an unknown kind) answers yes
to everything; `is_known` tells which files these are not.

Distinct values, which know most, are in `value_evidence`.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from indextables.ariadne.bloom import Filters, may_hold_any, probe
from indextables.ariadne.typed_hash import hash_values
from indextables.plan.statistics import Decoded, Flags
from indextables.plan.value_range import Possible, ValueRange, value_range
from indextables.predicate import Compare, Condition, In, IsNull

_UNCUT = 2**31
"""Bounds of a range index are whole, however long."""


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
    kind: pa.DataType
    stored: Any

    @functools.cached_property
    def filters(self) -> Filters:
        """The filters, decoded once."""
        is_known = self.counts.is_known
        filters = zip(self.stored.to_pylist(), is_known, strict=True)
        return Filters.of(stored if known else None for stored, known in filters)

    def possible(self, node: Condition) -> Possible:
        """Equalities may be excluded, and nulls by their number."""
        wanted = equality(node)
        found = Nulls(self.counts).possible(node)
        if wanted is None:
            return found
        return Possible(self.holds_any(pa.array(wanted, self.kind)), found.false, found.null)

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
    kind: pa.DataType
    stored: Any
    """A struct of `min` and `max` for each file."""

    @functools.cached_property
    def ranges(self) -> ValueRange:
        """The bounds as comparisons use them."""
        lower, upper = (pc.struct_field(self.stored, name) for name in ("min", "max"))
        known = self.counts.is_known
        return value_range(
            self.kind,
            Decoded(lower, known & np.asarray(lower.is_valid(), np.bool_)),
            Decoded(upper, known & np.asarray(upper.is_valid(), np.bool_)),
            truncation_length=_UNCUT,
            may_be_value=self.counts.may_be_value,
            may_be_null=self.counts.may_be_null,
            # Whether bounds of floats count NaN depends on who took them.
            may_be_nan=np.ones_like(known),
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
        lower, upper, wanted = np.split(ranks, [len(ranges.lower), 2 * len(ranges.lower)])
        above = (lower[:, None] <= wanted[None, :]) | ~ranges.has_lower[:, None]
        below = (wanted[None, :] <= upper[:, None]) | ~ranges.has_upper[:, None]
        found: Flags = (above & below) & ranges.may_be_value[:, None]
        if pa.types.is_floating(together.type):
            is_nan = np.asarray(pc.fill_null(pc.is_nan(values), False), np.bool_)
            found |= is_nan[None, :] & (ranges.may_be_nan & ranges.may_be_value)[:, None]
        return found

    def holds_any(self, values: Any) -> Flags:
        """Which files may hold a value between the least and the greatest of these."""
        found = values.drop_null()
        if not len(found) or pa.types.is_floating(found.type):
            return self.ranges.may_be_value & bool(len(found))
        ends: Any = pc.min_max(found)
        low, high = (self.ranges.versus(ends[end].as_py()) for end in ("min", "max"))
        return (low.equal | low.above) & (high.equal | high.below)


def _numbers(column: Any | None, count: int) -> Any:
    if column is None:
        return np.full(count, -1, np.int64)
    return np.asarray(pc.fill_null(column.cast(pa.int64()), -1), np.int64)
