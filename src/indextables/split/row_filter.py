"""A predicate evaluated on rows, exactly: the evaluator that decides.

An index, statistics and partition values propose; this decides. Everything is Arrow compute on
whole columns, with Spark's rules: NULL is unknown, NaN equals NaN and is greater than every other
number, zero has one sign, text is ordered by its UTF-8 bytes.

A search is answered through a callback: by the index of the split, or by the flat evaluator that
tokenises the rows.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from indextables.errors import (
    EmbeddedQueryError,
    QueryError,
    UnknownColumnError,
    UnsupportedPredicateError,
)
from indextables.predicate import (
    And,
    Column,
    Compare,
    Constant,
    Contains,
    EndsWith,
    Expression,
    In,
    IsNull,
    Like,
    Not,
    Or,
    Predicate,
    Search,
    StartsWith,
    Value,
)
from indextables.predicate.tree import pattern_regex
from indextables.schema.conformity import one_spelling

SearchAnswer: TypeAlias = "np.ndarray[Any, np.dtype[np.bool_]] | pa.BooleanArray"
_Column: TypeAlias = Any
"""An Arrow array, chunked or not. The stubs of pyarrow do not know which kernels take both."""

_UNKNOWN: Any = pa.scalar(None, pa.bool_())
_COMPARE = {
    "=": "equal",
    "<=>": "equal",
    "<>": "not_equal",
    "<": "less",
    "<=": "less_equal",
    ">": "greater",
    ">=": "greater_equal",
}


def no_search(search: Search) -> SearchAnswer:
    """The callback for predicates without a search."""
    raise QueryError(f"The search {str(search)!r} cannot be answered here: there is no index.")


def evaluate(
    predicate: Predicate,
    rows: pa.Table | pa.RecordBatch,
    *,
    search: Callable[[Search], SearchAnswer] = no_search,
) -> pa.BooleanArray:
    """True, false or null for each row; keep those that are true.

    `search` answers a search for all rows at once, in their order. `rows` must have every column
    that the predicate names; one that a split does not have yet is the caller's to add as nulls.

    >>> rows = pa.table({"n": [1, None, 3]})
    >>> evaluate(Compare(">", Column(("n",)), 2), rows).to_pylist()
    [False, None, True]
    """
    return _Evaluation(rows, search).answer(predicate)


def compute(expression: str, rows: pa.Table) -> Any:
    """The value of an expression of SQL for each row, by the engine of `indextables.sql`."""
    import indextables

    result = indextables.sql(f"SELECT ({expression}) AS value FROM rows", rows=rows)
    if result.num_columns != 1 or result.num_rows != rows.num_rows:
        raise EmbeddedQueryError("It does not have one value for each row.")
    return result.column(0)


class _Evaluation:
    def __init__(
        self, rows: pa.Table | pa.RecordBatch, search: Callable[[Search], SearchAnswer]
    ) -> None:
        self.rows = rows
        self.search = search
        self.columns: dict[Column, _Column] = {}

    def answer(self, node: Predicate) -> pa.BooleanArray:
        match node:
            case And(children=children):
                return self.all_of(children)
            case Or(children=children):
                answer = self.answer(children[0])
                for child in children[1:]:
                    answer = pc.or_kleene(answer, self.answer(child))
                return answer
            case Not(child=child):
                return pc.invert(self.answer(child))
            case Constant(value=value):
                return _repeated(value, self.rows.num_rows)
            case Search():
                return self.searched(node)
            case Expression():
                return self.computed(node)
            case _:
                return _flat(_leaf(node, self.column(node.column)))

    def all_of(self, children: Sequence[Predicate]) -> pa.BooleanArray:
        """Computed conditions come last, for the remaining rows only: `n > 0 AND f(n) = 1`."""
        later = [child for child in children if isinstance(child, Expression)]
        answer: pa.BooleanArray = _repeated(True, self.rows.num_rows)
        for child in children:
            if child not in later:
                answer = pc.and_kleene(answer, self.answer(child))
        for child in later:
            left: Any = answer.fill_null(True)
            part = _Evaluation(self.rows.filter(left), no_search).computed(child)
            answer = pc.and_kleene(answer, pc.replace_with_mask(answer, left, part))
        return answer

    def computed(self, node: Expression) -> pa.BooleanArray:
        named = {name: self.rows.column(column.root) for name, column in node.operands}
        try:
            values = compute(node.sql, pa.table(named))
        except EmbeddedQueryError as error:
            raise UnsupportedPredicateError(node.sql, str(error).rstrip(".")) from None
        if not pa.types.is_boolean(values.type):
            raise UnsupportedPredicateError(node.sql, f"it is {values.type}, not true or false")
        return _flat(values)

    def searched(self, node: Search) -> pa.BooleanArray:
        matching = self.search(node)
        answer: Any = (
            matching if isinstance(matching, pa.BooleanArray) else pa.array(matching, pa.bool_())
        )
        if len(answer) != self.rows.num_rows:
            raise QueryError(
                f"The search {str(node)!r} was answered for {len(answer)} rows instead of "
                f"{self.rows.num_rows}. This is a mistake in the evaluator."
            )
        # A search is never null: no words, no match.
        never_null: pa.BooleanArray = pc.fill_null(answer, False)
        return never_null

    def column(self, column: Column) -> _Column:
        if column not in self.columns:
            self.columns[column] = _plain(_nested(self.rows, column))
        return self.columns[column]


def _nested(rows: pa.Table | pa.RecordBatch, column: Column) -> _Column:
    if column.root not in rows.schema.names:
        raise UnknownColumnError(str(column), available=rows.schema.names)
    values: _Column = rows.column(column.root)
    for name in column.path[1:]:
        # A field of a null struct is null, which the kernel does.
        values = pc.struct_field(values, name)
    return values


def _plain(values: _Column) -> _Column:
    """The same values in a type that every kernel takes."""
    data_type = values.type
    if pa.types.is_dictionary(data_type):
        values = pc.cast(values, data_type.value_type)
        data_type = values.type
    if pa.types.is_string_view(data_type):
        return pc.cast(values, pa.large_string())
    if pa.types.is_binary_view(data_type):
        return pc.cast(values, pa.large_binary())
    if pa.types.is_float16(data_type):
        return pc.cast(values, pa.float32())
    if pa.types.is_decimal(data_type) and data_type.bit_width < 128:
        return pc.cast(values, pa.decimal128(data_type.precision, data_type.scale))
    return values


def _leaf(node: Predicate, values: _Column) -> _Column:
    match node:
        case IsNull():
            return pc.is_null(values)
        case Compare(op="<=>", value=value):
            return pc.fill_null(_compare("=", values, value), False)
        case Compare(op=op, value=value):
            return _compare(op, values, value)
        case In(values=values_of_list, has_null=has_null):
            return _is_in(values, values_of_list, has_null=has_null)
        case StartsWith(text=text):
            return pc.starts_with(values, text)
        case EndsWith(text=text):
            return pc.ends_with(values, text)
        case Contains(text=text):
            return pc.match_substring(values, text)
        case Like(pattern=pattern, escape=escape):
            return pc.match_substring_regex(values, pattern_regex(pattern, escape=escape))
        case _:
            raise QueryError(f"Cannot evaluate {node} on rows.")


def _compare(op: str, values: _Column, value: Value) -> _Column:
    if pa.types.is_null(values.type):
        return _repeated(None, len(values))
    if isinstance(value, float):
        return _compare_float(op, values, value)
    return getattr(pc, _COMPARE[op])(values, pa.scalar(value, values.type))


def _compare_float(op: str, values: _Column, value: float) -> _Column:
    """IEEE calls every comparison with NaN false; SQL orders NaN after all numbers."""
    is_nan: _Column = pc.is_nan(values)
    if math.isnan(value):
        match op:
            case "=" | ">=":
                return is_nan
            case "<>" | "<":
                return pc.invert(is_nan)
            case _:
                # Nothing is greater and everything is at most NaN; null stays null.
                always = pc.or_(is_nan, pc.invert(is_nan))
                return always if op == "<=" else pc.invert(always)
    answer = getattr(pc, _COMPARE[op])(values, pa.scalar(value, values.type))
    return pc.or_(answer, is_nan) if op in (">", ">=") else answer


def _is_in(values: _Column, members: tuple[Value, ...], *, has_null: bool) -> _Column:
    if pa.types.is_null(values.type):
        return _repeated(None, len(values))
    value_set: _Column = pa.array(members, values.type)
    # The kernel hashes bits.
    is_member: _Column = pc.is_in(one_spelling(values), value_set=one_spelling(value_set))
    # Not found in a list that holds NULL: the result is null.
    return pc.if_else(is_member if has_null else pc.is_valid(values), is_member, _UNKNOWN)


def _repeated(value: bool | None, length: int) -> pa.BooleanArray:
    return pa.repeat(pa.scalar(value, pa.bool_()), length)


def _flat(values: _Column) -> pa.BooleanArray:
    """One array: booleans are small."""
    flat: Any = values.combine_chunks() if isinstance(values, pa.ChunkedArray) else values
    array: pa.BooleanArray = flat
    return array
