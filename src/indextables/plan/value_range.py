"""What the statistics of files say about one column, and what that leaves possible.

A `ValueRange` holds a lower and an upper bound for each file. `versus` asks of a literal whether a
value of the file may be below it, equal to it, or above it. Every comparison is made of these
three answers; a bound that is not known answers yes.
"""

from __future__ import annotations

import datetime
import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from indextables.plan.statistics import Decoded, Flags, flags
from indextables.predicate import Compare, In, IsNull, Like, Predicate, StartsWith, Value
from indextables.predicate.like import pattern_parts

_MANY_VALUES = 64
# UTF-16 orders these differently from UTF-8, and some writers compare UTF-16 units.
_FIRST_UNSURE = 0xD800
_UNSURE = r"[\x{E000}-\x{10FFFF}]"


class Possible(NamedTuple):
    """Whether a row of each file may make a condition true, false, null."""

    true: Flags
    false: Flags
    null: Flags


class Versus(NamedTuple):
    """Whether a value of each file may be below, equal to, above a literal."""

    below: Flags
    equal: Flags
    above: Flags


@dataclass(frozen=True, slots=True)
class ValueRange:
    """The values of one column, file by file; `lower` and `upper` count where they are had."""

    lower: Any
    upper: Any
    has_lower: Flags
    has_upper: Flags
    may_be_prefix: Flags
    """The upper bound may be cut: the real one begins with it."""
    may_be_value: Flags
    may_be_null: Flags
    may_be_nan: Flags

    def versus(self, value: Value) -> Versus:
        """Compare every file with a literal."""
        if _is_nan(value):
            nothing = np.zeros_like(self.may_be_value)
            return Versus(self.may_be_value, self.may_be_nan & self.may_be_value, nothing)
        has_lower, has_upper = self.has_lower, self.has_upper
        if _is_unsure(value) or not (has_lower.any() or has_upper.any()):
            return Versus(self.may_be_value, self.may_be_value, self.may_be_value)
        extends = self.may_be_prefix & _is_prefix_of(self.upper, value)
        low_below = _compared("less", self.lower, value) | ~has_lower
        low_reaches = _compared("less_equal", self.lower, value) | ~has_lower
        high_above = _compared("greater", self.upper, value) | extends | ~has_upper
        high_reaches = _compared("greater_equal", self.upper, value) | extends | ~has_upper
        return Versus(
            low_below & self.may_be_value,
            low_reaches & high_reaches & self.may_be_value,
            (high_above | self.may_be_nan) & self.may_be_value,
        )

    def possible(self, node: Predicate) -> Possible:
        """What one condition on this column may be."""
        match node:
            case IsNull():
                return Possible(self.may_be_null, self.may_be_value, self.nothing())
            case Compare(op="<=>", value=value):
                below, equal, above = self.versus(value)
                return Possible(equal, below | above | self.may_be_null, self.nothing())
            case Compare(op=op, value=value):
                below, equal, above = self.versus(value)
                is_true = self.nothing()
                is_false = self.nothing()
                for flag, ops in ((below, "< <= <>"), (equal, "= <= >="), (above, "> >= <>")):
                    if op in ops.split():
                        is_true = is_true | flag
                    else:
                        is_false = is_false | flag
                return Possible(is_true, is_false, self.may_be_null)
            case In():
                return self.possible_in(node)
            case StartsWith(text=text):
                return self.possible_prefix(text)
            case Like(pattern=pattern, escape=escape):
                first = (*pattern_parts(pattern, escape=escape), "")[0]
                prefix = first if isinstance(first, str) else ""
                true = self.possible_prefix(prefix).true
                return Possible(true, self.may_be_value, self.may_be_null)
            case _:
                return Possible(self.may_be_value, self.may_be_value, self.may_be_null)

    def nothing(self) -> Flags:
        """No, for every file."""
        return np.zeros_like(self.may_be_value)

    def possible_in(self, node: In) -> Possible:
        """A list: any value may be met, and another one unless the file holds only one."""
        is_met, is_missed = self.nothing(), self.may_be_value
        if len(node.values) <= _MANY_VALUES:
            for value in node.values:
                below, equal, above = self.versus(value)
                is_met = is_met | equal
                is_missed = is_missed & (below | above)
        else:
            ordered: list[Any] = sorted((v for v in node.values if not _is_nan(v)), key=_order)
            low, high = self.versus(ordered[0]), self.versus(ordered[-1])
            is_met = (low.equal | low.above) & (high.equal | high.below)
            if len(ordered) < len(node.values):
                is_met = is_met | self.may_be_nan
        if node.has_null:
            return Possible(is_met, self.nothing(), is_missed | self.may_be_null)
        return Possible(is_met, is_missed, self.may_be_null)

    def possible_prefix(self, text: str) -> Possible:
        """Values that begin with a text lie together."""
        below, equal, above = self.versus(text)
        if _is_unsure(text):
            return Possible(self.may_be_value, self.may_be_value, self.may_be_null)
        lower_begins = _begins(self.lower, text) & self.has_lower
        upper_begins = _begins(self.upper, text) & self.has_upper
        is_true = (equal | above) & (below | equal | lower_begins)
        is_false = self.may_be_value & ~(lower_begins & upper_begins)
        if not text:
            is_true, is_false = self.may_be_value, self.nothing()
        return Possible(is_true & self.may_be_value, is_false, self.may_be_null)


def value_range(
    kind: Any,
    lower: Decoded,
    upper: Decoded,
    *,
    truncation_length: int,
    may_be_value: Flags,
    may_be_null: Flags,
    may_be_nan: Flags,
) -> ValueRange:
    """A range from bounds as they were read, without those that cannot be trusted."""
    has_lower, has_upper = lower.is_known, upper.is_known
    may_be_prefix = np.zeros_like(has_lower)
    if pa.types.is_floating(kind):
        may_be_nan = may_be_nan | _nan(upper.values) | _nan(lower.values)
        has_lower = has_lower & ~_nan(lower.values)
        has_upper = has_upper & ~_nan(upper.values)
    else:
        may_be_nan = np.zeros_like(has_lower)
    if pa.types.is_string(lower.values.type):
        may_be_prefix = _flags(
            pc.greater_equal(_length(upper.values), pa.scalar(truncation_length))
        )
        is_sure = ~_flags(pc.match_substring_regex(lower.values, _UNSURE)) & ~_flags(
            pc.match_substring_regex(upper.values, _UNSURE)
        )
        has_lower, has_upper = has_lower & is_sure, has_upper & is_sure
    in_order = np.ones_like(has_lower)
    if (has_lower & has_upper).any():
        in_order = ~_flags(pc.greater(lower.values, upper.values))
    return ValueRange(
        lower=lower.values,
        upper=upper.values,
        has_lower=has_lower & in_order,
        has_upper=has_upper & in_order,
        may_be_prefix=may_be_prefix,
        may_be_value=may_be_value,
        may_be_null=may_be_null,
        may_be_nan=may_be_nan,
    )


def _flags(answer: Any) -> Flags:
    return flags(pc.fill_null(answer, False))


def _compared(kernel: str, bounds: Any, value: Value) -> Flags:
    return _flags(getattr(pc, kernel)(bounds, pa.scalar(value, bounds.type)))


def _nan(values: Any) -> Flags:
    return _flags(pc.is_nan(values))


def _length(texts: Any) -> Any:
    return pc.utf8_length(texts)


def _begins(bounds: Any, text: str) -> Flags:
    return _flags(pc.starts_with(bounds, text))


def _is_prefix_of(bounds: Any, value: Value) -> Flags:
    """Where the literal begins with the bound."""
    if not isinstance(value, str):
        return np.zeros(len(bounds), np.bool_)
    lengths: Any = pc.unique(_length(bounds))
    beginnings = [value[:n] for n in lengths.to_pylist() if n is not None and n <= len(value)]
    return _flags(pc.is_in(bounds, value_set=pa.array(beginnings, bounds.type)))


def _is_nan(value: Value) -> bool:
    return isinstance(value, float) and math.isnan(value)


def _is_unsure(value: Value) -> bool:
    return isinstance(value, str) and any(ord(c) >= _FIRST_UNSURE for c in value)


def _order(value: Value) -> Any:
    """What values of one column are ordered by; moments may be of two kinds."""
    if isinstance(value, datetime.datetime):
        start = datetime.datetime(1970, 1, 1, tzinfo=value.tzinfo)
        return (value - start) // datetime.timedelta(microseconds=1)
    return value
