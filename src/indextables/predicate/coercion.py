"""Literals of Spark SQL as Python values, brought to the type of the column that they meet.

Evaluators compare values of one type. So `int_column > 5.5` becomes `int_column >= 6`, and
`int_column = 5.5` becomes false for every value and null for null. No literal is rounded: either
the comparison has an equal one in the column's type, or it is refused with a sentence. Beside a
double Spark compares a whole number or decimal as a double, so from 2**53 on several values are
equal to one literal: the comparison is then one with the least and the greatest of them. Text is
read as the column's type (`'5'`, `'2024-01-15'`), as Spark does, which takes the day alone for a
date and the clock alone, not the zone, for a timestamp without one; a number is never read as text,
because Spark would convert the whole column for that.

Timestamps without a zone are meant in the session's time zone. A date beside a timestamp is its
midnight there.
"""

from __future__ import annotations

import datetime
import math
import struct
from collections.abc import Sequence
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal, InvalidOperation
from fractions import Fraction

import pyarrow as pa
from sqlglot import exp

from indextables.errors import LiteralError
from indextables.predicate.literals import (
    FarInstant,
    FarLocal,
    Moment,
    as_instant,
    as_local,
    parse_moment,
    time_zone,
)
from indextables.predicate.tree import (
    FALSE,
    NULL,
    And,
    Column,
    Compare,
    Constant,
    In,
    IsNull,
    Not,
    Operator,
    Predicate,
    Value,
    conjunction,
    disjunction,
    false_unless_null,
    true_unless_null,
)
from indextables.schema import is_bytes, is_text

_INTEGERS = frozenset(("TINYINT", "SMALLINT", "INT", "BIGINT"))
_TEXTS = frozenset(("TEXT", "VARCHAR", "CHAR"))
_EXACT = Context(prec=80)
_INSTANTS = frozenset(("TIMESTAMP", "TIMESTAMPTZ", "TIMESTAMPLTZ"))


class NotALiteralError(ValueError):
    """An expression that is not a literal; the message ends a sentence."""


def literal_value(node: exp.Expr, *, timezone: str) -> Value | None:
    """The value of a literal, `None` for NULL.

    >>> import sqlglot
    >>> literal_value(sqlglot.parse_one("-5.50", read="spark"), timezone="UTC")
    Decimal('-5.50')
    """
    match node:
        case exp.Paren():
            return literal_value(node.this, timezone=timezone)
        case exp.Null():
            return None
        case exp.Boolean():
            return bool(node.this)
        case exp.Literal(is_string=True) | exp.RawString() | exp.National():
            return str(node.this)
        case exp.Literal():
            return _number(str(node.this))
        case exp.Neg():
            value = literal_value(node.this, timezone=timezone)
            if isinstance(value, (int, float, Decimal)) and not isinstance(value, bool):
                # A minus would round a decimal to the digits of Python's context.
                return value.copy_negate() if isinstance(value, Decimal) else -value
            raise NotALiteralError("'-' must be followed by a number")
        case exp.HexString():
            digits = str(node.this)
            return bytes.fromhex("0" * (len(digits) % 2) + digits)
        case exp.Cast():
            value = literal_value(node.this, timezone=timezone)
            return None if value is None else _cast(value, node.to, timezone)
        case exp.Column() | exp.Dot():
            raise NotALiteralError("a literal is expected, not a column")
        case _:
            raise NotALiteralError(f"{node.sql('spark')!r} is neither a column nor a literal")


def _number(text: str) -> Value:
    if text.isdigit():
        return int(text)
    return float(text) if "e" in text.lower() else Decimal(text)


def _cast(value: Value, to: exp.DataType, timezone: str) -> Value:
    type_name = str(to.this.name)
    try:
        if type_name in _INTEGERS and isinstance(value, (int, str)):
            return int(value)
        if type_name == "DOUBLE" and isinstance(value, (int, float, Decimal, str)):
            return float(value)
        if type_name == "FLOAT" and isinstance(value, (int, float, Decimal, str)):
            narrow: float = struct.unpack("f", struct.pack("f", float(value)))[0]
            return narrow
        if type_name == "DECIMAL" and isinstance(value, (int, Decimal, str)):
            return _decimal(Decimal(value), to)
        if type_name == "BOOLEAN" and isinstance(value, bool):
            return value
        if type_name in _TEXTS and isinstance(value, str) and not to.expressions:
            return value
        if type_name == "BINARY" and isinstance(value, (bytes, str)):
            return value.encode() if isinstance(value, str) else value
        if type_name == "DATE" or type_name in _INSTANTS or type_name == "TIMESTAMPNTZ":
            return _moment(value, type_name, timezone)
    except (ValueError, OverflowError, InvalidOperation, struct.error):
        pass
    raise NotALiteralError(f"{value!r} cannot be cast to {to.sql('spark')} without loss")


def _decimal(value: Decimal, to: exp.DataType) -> Decimal:
    sizes = [int(size.name) for size in to.expressions]
    precision, scale = [*sizes, 0][:2] if sizes else (10, 0)
    rounded = value.quantize(Decimal(1).scaleb(-scale), context=_EXACT)
    if rounded != value or rounded.adjusted() >= precision - scale:
        raise InvalidOperation
    return rounded


def _moment(value: Value, type_name: str, timezone: str) -> Value:
    moment = parse_moment(value) if isinstance(value, str) else value
    if not isinstance(moment, (datetime.date, FarInstant, FarLocal)):
        raise ValueError
    zone = time_zone(timezone)
    if type_name == "TIMESTAMPNTZ":
        return as_local(moment, zone)
    if type_name in _INSTANTS:
        return as_instant(moment, zone)
    if isinstance(moment, datetime.date) and not isinstance(moment, datetime.datetime):
        return moment
    local = as_local(moment, zone)
    if not isinstance(local, datetime.datetime) or local.time() != datetime.time():
        raise ValueError
    return local.date()


_TRUE_WORDS = frozenset(("true", "t", "yes", "y", "1"))
_FALSE_WORDS = frozenset(("false", "f", "no", "n", "0"))
_DAY = datetime.timedelta(days=1)


def compare(
    op: Operator,
    column: Column,
    data_type: pa.DataType,
    literal: Value | None,
    *,
    timezone: str = "UTC",
) -> Predicate:
    """`column op literal`, where the column has this type.

    >>> print(compare(">", Column(("n",)), pa.int32(), Decimal("5.5")))
    n >= 6
    """
    if literal is None:
        return IsNull(column) if op == "<=>" else NULL
    if pa.types.is_dictionary(data_type):
        data_type = data_type.value_type
    return _Comparison(op, column, data_type, literal, time_zone(timezone)).fold()


def is_in(
    column: Column,
    data_type: pa.DataType,
    literals: Sequence[Value | None],
    *,
    timezone: str = "UTC",
) -> Predicate:
    """`column IN (literals)`; values the column cannot hold are left out."""
    has_null = any(literal is None for literal in literals)
    values: dict[Value, None] = {}
    ranges: dict[Predicate, None] = {}
    for literal in _of_one_type(literals):
        if literal is None:
            continue
        folded = compare("=", column, data_type, literal, timezone=timezone)
        if isinstance(folded, Compare):
            values[folded.value] = None
        elif isinstance(folded, And) and NULL not in folded.children:
            ranges[folded] = None
    if not values:
        nothing = NULL if has_null else false_unless_null(column)
        return disjunction(*ranges, *([NULL] if has_null else [])) if ranges else nothing
    if len(values) == 1 and not has_null:
        return disjunction(Compare("=", column, next(iter(values))), *ranges)
    return disjunction(In(column, tuple(values), has_null), *ranges)


def _of_one_type(literals: Sequence[Value | None]) -> Sequence[Value | None]:
    """Numbers as doubles if one of them is: a list has one type."""
    if not any(isinstance(literal, float) for literal in literals):
        return literals
    return [
        float(literal)
        if isinstance(literal, (int, Decimal)) and not isinstance(literal, bool)
        else literal
        for literal in literals
    ]


class _Comparison:
    def __init__(
        self,
        op: Operator,
        column: Column,
        data_type: pa.DataType,
        literal: Value,
        zone: datetime.tzinfo,
    ) -> None:
        self.op = op
        self.column = column
        self.data_type = data_type
        self.literal = literal
        self.zone = zone

    def fold(self) -> Predicate:
        data_type = self.data_type
        if pa.types.is_null(data_type):
            return FALSE if self.op == "<=>" else NULL
        if pa.types.is_boolean(data_type):
            return self.boolean()
        if pa.types.is_integer(data_type):
            bits = data_type.bit_width
            is_signed = pa.types.is_signed_integer(data_type)
            low, high = -(2 ** (bits - 1)) if is_signed else 0, 2 ** (bits - is_signed) - 1
            if type(self.literal) is int and low <= self.literal <= high:
                return self.same(self.literal)  # the keys of a join: often thousands
            return self.number(0, Decimal(low), Decimal(high))
        if pa.types.is_decimal(data_type):
            top = Decimal((0, (9,) * data_type.precision, -data_type.scale))
            return self.number(data_type.scale, top.copy_negate(), top)
        if pa.types.is_floating(data_type):
            return self.floating()
        if is_text(data_type):
            if isinstance(self.literal, str):
                return self.same(self.literal)
            raise self.refused("write the literal in quotes")
        if is_bytes(data_type):
            if isinstance(self.literal, bytes):
                return self.same(self.literal)
            if isinstance(self.literal, str):
                return self.same(self.literal.encode())
            raise self.refused("write the bytes as X'1F' or in quotes")
        if pa.types.is_date(data_type):
            return self.date()
        if pa.types.is_timestamp(data_type):
            return self.timestamp()
        raise self.refused("only IS NULL and IS NOT NULL work on this type")

    # --- results

    def refused(self, reason: str) -> LiteralError:
        return LiteralError(str(self.column), str(self.data_type), self.literal, reason)

    def same(self, value: Value) -> Predicate:
        return Compare(self.op, self.column, value)

    def always(self, answer: bool) -> Predicate:
        if self.op == "<=>":
            return FALSE
        return true_unless_null(self.column) if answer else false_unless_null(self.column)

    def outside(self, *, above: bool) -> Predicate:
        """The literal lies above, or below, every value of the type."""
        met = ("<>", "<", "<=") if above else ("<>", ">", ">=")
        return self.always(self.op in met)

    def between(self, below: Value, above: Value) -> Predicate:
        """The literal lies strictly between two neighbours of the type."""
        if self.op in ("<", "<="):
            return Compare("<=", self.column, below)
        if self.op in (">", ">="):
            return Compare(">=", self.column, above)
        return self.always(self.op == "<>")

    # --- types

    def boolean(self) -> Predicate:
        if isinstance(self.literal, bool):
            return self.same(self.literal)
        if isinstance(self.literal, str):
            word = self.literal.strip().lower()
            if word in _TRUE_WORDS or word in _FALSE_WORDS:
                return self.same(word in _TRUE_WORDS)
        raise self.refused("write TRUE or FALSE")

    def number(self, scale: int, low: Decimal, high: Decimal) -> Predicate:
        """An integer (scale 0) or a decimal column."""
        value = self.as_decimal()
        if not value.is_finite():
            # NaN is greater than everything, as in Spark.
            return self.outside(above=value.is_nan() or value > 0)
        if isinstance(self.literal, float):
            return self.as_double(self.literal, scale, low, high)
        if value > high:
            return self.outside(above=True)
        if value < low:
            return self.outside(above=False)
        unit = Decimal(1).scaleb(-scale)
        below = value.quantize(unit, ROUND_FLOOR, _EXACT)
        above = value.quantize(unit, ROUND_CEILING, _EXACT)
        if pa.types.is_integer(self.data_type):
            return self.same(int(below)) if below == above else self.between(int(below), int(above))
        return self.same(below) if below == above else self.between(below, above)

    def as_double(self, number: float, scale: int, low: Decimal, high: Decimal) -> Predicate:
        """A finite double, beside values that are compared as doubles."""
        first, last = _equal_to(number, scale)
        least, greatest = (int(_EXACT.scaleb(bound, scale)) for bound in (low, high))
        if first > greatest:
            return self.outside(above=True)
        if last < least:
            return self.outside(above=False)
        first, last = max(first, least), min(last, greatest)

        def value(unscaled: int) -> Value:
            if pa.types.is_integer(self.data_type):
                return unscaled
            return _EXACT.scaleb(Decimal(unscaled), -scale)

        if first > last:
            return self.between(value(last), value(first))
        if first == last:
            return self.same(value(first))
        above = Compare(">=", self.column, value(first))
        below = Compare("<=", self.column, value(last))
        match self.op:
            case "=":
                return conjunction(above, below)
            case "<=>":
                return conjunction(Not(IsNull(self.column)), above, below)
            case "<>":
                return disjunction(
                    Compare("<", self.column, value(first)), Compare(">", self.column, value(last))
                )
            case "<" | ">=":
                return self.same(value(first))
            case _:
                return self.same(value(last))

    def as_decimal(self) -> Decimal:
        match self.literal:
            case bool():
                raise self.refused("a boolean is not a number")
            case int() | Decimal():
                return Decimal(self.literal)
            case float():
                return Decimal(repr(self.literal))
            case str():
                text = self.literal.strip()
                try:
                    if "_" in text:
                        raise InvalidOperation
                    value = Decimal(text)
                except InvalidOperation:
                    raise self.refused("the text is not a number") from None
                if value.is_snan():
                    raise self.refused("the text is not a number")
                return value
            case _:
                raise self.refused("write a number")

    def floating(self) -> Predicate:
        try:
            value = float(self.as_decimal())
        except OverflowError:
            value = math.copysign(math.inf, self.as_decimal())
        if math.isnan(value):
            return self.same(math.nan)
        # Zero has one sign in SQL.
        value = value or 0.0
        neighbours = _narrow(value, self.data_type.bit_width)
        return self.same(value) if neighbours is None else self.between(*neighbours)

    def moment(self) -> Moment:
        if isinstance(self.literal, (datetime.date, FarInstant, FarLocal)):
            return self.literal
        if isinstance(self.literal, str):
            parsed = parse_moment(self.literal)
            if parsed is not None:
                return parsed
            raise self.refused("the text is neither a date nor a timestamp of at most microseconds")
        raise self.refused("write a DATE '…' or TIMESTAMP '…'")

    def date(self) -> Predicate:
        moment = self.moment()
        if isinstance(moment, datetime.date) and not isinstance(moment, datetime.datetime):
            return self.same(moment)
        if isinstance(self.literal, str) and isinstance(moment, datetime.datetime):
            return self.same(moment.date())
        local = as_local(moment, self.zone)
        if isinstance(local, FarLocal):
            raise self.refused("the moment lies outside the years 1 to 9999, and so does its date")
        day = local.date()
        if local.time() == datetime.time():
            return self.same(day)
        if day == datetime.date.max:
            return self.outside(above=True)
        return self.between(day, day + _DAY)

    def timestamp(self) -> Predicate:
        assert isinstance(self.data_type, pa.TimestampType)
        moment = self.moment()
        if isinstance(self.literal, str) and isinstance(moment, datetime.datetime):
            moment = moment.replace(tzinfo=None) if self.data_type.tz is None else moment
        value = (
            as_local(moment, self.zone)
            if self.data_type.tz is None
            else as_instant(moment, self.zone)
        )
        step = {"s": 1_000_000, "ms": 1_000}.get(self.data_type.unit, 1)
        try:
            if not isinstance(value, datetime.datetime):
                if self.data_type.unit == "us":
                    return self.same(value)
                raise OverflowError
            over = datetime.timedelta(microseconds=value.microsecond % step)
            if not over:
                return self.same(value)
            return self.between(value - over, value - over + datetime.timedelta(microseconds=step))
        except OverflowError:
            raise self.refused("the timestamp lies outside the years 1 to 9999") from None


def _narrow(value: float, bits: int) -> tuple[float, float] | None:
    """The two neighbours of a double among narrower floats, if it is none of them itself."""
    if bits == 64 or math.isinf(value):
        return None
    code, unsigned, largest = ("f", "I", 0x7F7FFFFF) if bits == 32 else ("e", "H", 0x7BFF)
    top: float = struct.unpack(code, struct.pack(unsigned, largest))[0]
    if abs(value) > top:
        return (top, math.inf) if value > 0 else (-math.inf, -top)
    # Packing rounds to the nearest; the other neighbour is one step of the bit pattern away.
    nearest: float = struct.unpack(code, struct.pack(code, value))[0]
    if nearest == value:
        return None
    away_from_zero = abs(nearest) < abs(value)
    (pattern,) = struct.unpack(unsigned, struct.pack(code, abs(nearest)))
    (neighbour,) = struct.unpack(
        code, struct.pack(unsigned, pattern + (1 if away_from_zero else -1))
    )
    neighbour = math.copysign(neighbour, value)
    return min(nearest, neighbour), max(nearest, neighbour)


def _equal_to(number: float, scale: int) -> tuple[int, int]:
    """The least and the greatest unscaled value that is this double once it is one.

    The first is greater than the second if there is none, and then they are neighbours.

    >>> _equal_to(2.0**53, 0), _equal_to(0.1, 2), _equal_to(0.15, 1)
    ((9007199254740992, 9007199254740993), (10, 10), (2, 1))
    """
    unit = 10**scale
    ends = []
    for towards in (-math.inf, math.inf):
        neighbour = math.nextafter(number, towards)
        exact = Fraction(number)
        ends.append((exact + Fraction(neighbour if math.isfinite(neighbour) else 2 * exact)) / 2)
    first, last = math.ceil(ends[0] * unit), math.floor(ends[1] * unit)
    # What lies in the middle of two doubles becomes the one whose last bit is zero.
    if struct.unpack("<q", struct.pack("<d", number))[0] & 1:
        first += first == ends[0] * unit
        last -= last == ends[1] * unit
    return first, last


def constant_compare(op: Operator, left: Value | None, right: Value | None) -> Constant | None:
    """Two literals compared, as in `1 = 1`; `None` if they are not of one kind."""
    if op == "<=>" and (left is None or right is None):
        return Constant(left is right)
    if left is None or right is None:
        return NULL
    numbers = (int, float, Decimal)
    one_kind = type(left) is type(right) or (
        isinstance(left, numbers)
        and isinstance(right, numbers)
        and not isinstance(left, bool)
        and not isinstance(right, bool)
    )
    if not one_kind or isinstance(left, (datetime.datetime, FarInstant, FarLocal)):
        return None
    less, equal = left < right, left == right  # type: ignore[operator]
    answers = {"=": equal, "<=>": equal, "<>": not equal, "<": less, "<=": less or equal}
    return Constant(answers.get(op, not less and (op == ">=" or not equal)))
