"""The predicate: one immutable tree for SQL conditions and for searches.

A predicate is true, false or null for a row, by SQL's three-valued logic; a row is kept when it is
true. Comparisons have a column on the left and a Python value on the right that is already of the
column's type (`coercion` did that), so evaluators never convert. A `Search` is a leaf like any
other, but it is never null. LIKE patterns are taken apart, and become a prefix, a suffix or an
infix where they are one.

Nodes are hashable and can be pickled. `str()` returns SQL that parses back to the same tree::

    >>> a, b = Column(("a",)), Column(("user", "first name"))
    >>> print(Or((Compare(">", a, 5), Not(IsNull(b)))))
    (a > 5 OR user.`first name` IS NOT NULL)
"""

from __future__ import annotations

import datetime
import enum
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from decimal import Decimal
from typing import Literal, TypeAlias

from indextables.errors import UnsupportedPredicateError
from indextables.predicate.literals import like_text, sql_literal, sql_name
from indextables.predicate.search import SearchNode

Value: TypeAlias = bool | int | float | Decimal | str | bytes | datetime.date | datetime.datetime
"""A literal: timestamps with a time zone are aware and in UTC, those without are naive."""

ColumnKind = Literal["words", "values"]
"""Columns of words, and columns whose values are searched as a whole."""

Operator = Literal["=", "<>", "<", "<=", ">", ">=", "<=>"]


@dataclass(frozen=True, slots=True)
class Column:
    """A column or a field nested in it. A dot inside a name is part of that one element."""

    path: tuple[str, ...]

    @property
    def root(self) -> str:
        """The table's column that holds the value."""
        return self.path[0]

    def __str__(self) -> str:
        return ".".join(map(sql_name, self.path))


@dataclass(frozen=True, slots=True)
class Constant:
    """TRUE, FALSE or NULL for every row."""

    value: bool | None

    def __str__(self) -> str:
        return "NULL" if self.value is None else str(self.value).upper()


TRUE, FALSE, NULL = Constant(True), Constant(False), Constant(None)


@dataclass(frozen=True, slots=True)
class Compare:
    """A column against a value that is not null. `<=>` is false, not null, for a null column."""

    op: Operator
    column: Column
    value: Value

    def __str__(self) -> str:
        return f"{self.column} {self.op} {sql_literal(self.value)}"


@dataclass(frozen=True, slots=True)
class In:
    """The column is one of the values. With `has_null` the list held NULL too: never false."""

    column: Column
    values: tuple[Value, ...]
    has_null: bool = False

    def __str__(self) -> str:
        shown = [sql_literal(v) for v in self.values] + (["NULL"] if self.has_null else [])
        return f"{self.column} IN ({', '.join(shown)})"


@dataclass(frozen=True, slots=True)
class IsNull:
    """The column is null. Never null itself."""

    column: Column

    def __str__(self) -> str:
        return f"{self.column} IS NULL"


@dataclass(frozen=True, slots=True)
class Like:
    """LIKE: `%` is any run of characters, `_` is one, `escape` makes the next one literal."""

    column: Column
    pattern: str
    escape: str = "\\"

    def __str__(self) -> str:
        escape = "" if self.escape == "\\" else f" ESCAPE {sql_literal(self.escape)}"
        return f"{self.column} LIKE {sql_literal(self.pattern)}{escape}"


@dataclass(frozen=True, slots=True)
class StartsWith:
    """The column begins with the text."""

    column: Column
    text: str

    def __str__(self) -> str:
        return f"{self.column} LIKE {sql_literal(like_text(self.text) + '%')}"


@dataclass(frozen=True, slots=True)
class EndsWith:
    """The column ends with the text."""

    column: Column
    text: str

    def __str__(self) -> str:
        return f"{self.column} LIKE {sql_literal('%' + like_text(self.text))}"


@dataclass(frozen=True, slots=True)
class Contains:
    """The column holds the text somewhere."""

    column: Column
    text: str

    def __str__(self) -> str:
        return f"{self.column} LIKE {sql_literal('%' + like_text(self.text) + '%')}"


@dataclass(frozen=True, slots=True)
class Search:
    """A search query over one column, over some, or over all indexed ones (neither is set).

    `text` is the query as it was written, `query` is what it means. A search with a `kind` is an
    error over a column of the other kind.
    """

    column: Column | None
    query: SearchNode
    text: str
    columns: tuple[Column, ...] = ()
    """Each word may be in any of them."""
    kind: ColumnKind | None = None

    def __str__(self) -> str:
        text = sql_literal(self.text)
        if self.columns:
            return f"search(({', '.join(map(str, self.columns))}), {text}, mode => 'query')"
        operators = {None: "indexquery", "words": "textsearch", "values": "fieldmatch"}
        column = "_indexall" if self.column is None else self.column
        return f"{column} {operators[self.kind]} {text}"


@dataclass(frozen=True, slots=True)
class Expression:
    """A condition that has to be computed: functions, arithmetic, columns beside columns.

    The engine of `indextables.sql` computes it. Nothing but rows can answer it, so every evaluator
    that narrows takes it for unknown.
    """

    sql: str
    """In Spark's dialect. It has the names of columns that users see."""
    operands: tuple[tuple[str, Column], ...]
    """The columns of the table that it reads, by the names that it has for them."""

    def __str__(self) -> str:
        return f"({self.sql})"


@dataclass(frozen=True, slots=True)
class And:
    """All of two or more."""

    children: tuple[Predicate, ...]

    def __str__(self) -> str:
        return "(" + " AND ".join(map(str, self.children)) + ")"


@dataclass(frozen=True, slots=True)
class Or:
    """Any of two or more."""

    children: tuple[Predicate, ...]

    def __str__(self) -> str:
        return "(" + " OR ".join(map(str, self.children)) + ")"


@dataclass(frozen=True, slots=True)
class Not:
    """The opposite; null stays null."""

    child: Predicate

    def __str__(self) -> str:
        match self.child:
            case IsNull(column=column):
                return f"{column} IS NOT NULL"
            case In(column=column):
                return str(self.child).replace(f"{column} IN", f"{column} NOT IN", 1)
            case And() | Or():
                return f"NOT {self.child}"
            case _:
                return f"NOT ({self.child})"


Condition: TypeAlias = Compare | In | IsNull | Like | StartsWith | EndsWith | Contains
"""A leaf that asks something of one column."""
Predicate: TypeAlias = Constant | Condition | Expression | Search | And | Or | Not


# --- building --------------------------------------------------------------------------------


def conjunction(*children: Predicate) -> Predicate:
    """AND, flat and without constants that decide nothing.

    >>> print(conjunction(TRUE, IsNull(Column(("a",)))))
    a IS NULL
    """
    flat: list[Predicate] = []
    for child in children:
        flat.extend(child.children if isinstance(child, And) else (child,))
    if FALSE in flat:
        return FALSE
    kept = tuple(dict.fromkeys(child for child in flat if child != TRUE))
    return And(kept) if len(kept) > 1 else kept[0] if kept else TRUE


def disjunction(*children: Predicate) -> Predicate:
    """OR, flat and without constants that decide nothing."""
    flat: list[Predicate] = []
    for child in children:
        flat.extend(child.children if isinstance(child, Or) else (child,))
    if TRUE in flat:
        return TRUE
    kept = tuple(dict.fromkeys(child for child in flat if child != FALSE))
    return Or(kept) if len(kept) > 1 else kept[0] if kept else FALSE


def negation(child: Predicate) -> Predicate:
    """NOT, without a double one and without a constant below."""
    match child:
        case Not(child=inner):
            return inner
        case Constant(value=value):
            return NULL if value is None else FALSE if value else TRUE
        case _:
            return Not(child)


def false_unless_null(column: Column) -> Predicate:
    """What `int_column = 5.5` means: false for every value, null for null."""
    return And((IsNull(column), NULL))


def true_unless_null(column: Column) -> Predicate:
    """What `int_column < 1e30` means: true for every value, null for null."""
    return Or((Not(IsNull(column)), NULL))


# --- looking ---------------------------------------------------------------------------------


def walk(node: Predicate) -> Iterator[Predicate]:
    """Every node, parents first."""
    yield node
    match node:
        case And(children=children) | Or(children=children):
            for child in children:
                yield from walk(child)
        case Not(child=child):
            yield from walk(child)
        case _:
            pass


def columns(node: Predicate) -> tuple[Column, ...]:
    """The columns that SQL conditions compare, each once, in order.

    Searches are not among them: `searches` lists those, and `search.fields` what each one names.
    """
    return tuple(dict.fromkeys(one for leaf in walk(node) for one in _compared(leaf)))


def _compared(node: Predicate) -> tuple[Column, ...]:
    match node:
        case Constant() | And() | Or() | Not() | Search():
            return ()
        case Expression(operands=operands):
            return tuple(column for _, column in operands)
        case _:
            return (node.column,)


def searches(node: Predicate) -> tuple[Search, ...]:
    """The searches of a predicate, each once, in order."""
    return tuple(dict.fromkeys(n for n in walk(node) if isinstance(n, Search)))


def conjuncts(node: Predicate) -> tuple[Predicate, ...]:
    """The conditions that must all be true; none for TRUE."""
    match conjunction(node):
        case And(children=children):
            return tuple(leaf for child in children for leaf in conjuncts(child))
        case Constant(value=True):
            return ()
        case single:
            return (single,)


# --- changing --------------------------------------------------------------------------------


def transform(node: Predicate, change: Callable[[Predicate], Predicate]) -> Predicate:
    """Rebuild a tree from the leaves up; `change` sees each node with its new children."""
    match node:
        case And(children=children):
            return change(conjunction(*(transform(child, change) for child in children)))
        case Or(children=children):
            return change(disjunction(*(transform(child, change) for child in children)))
        case Not(child=child):
            return change(negation(transform(child, change)))
        case _:
            return change(node)


_OPPOSITE: dict[Operator, Operator] = {
    "=": "<>",
    "<>": "=",
    "<": ">=",
    "<=": ">",
    ">": "<=",
    ">=": "<",
}


def negate(node: Predicate) -> Predicate:
    """The opposite with NOT pushed down to the leaves, where it is absorbed if it can be.

    >>> print(negate(And((Compare("<", Column(("a",)), 3), IsNull(Column(("b",)))))))
    (a >= 3 OR b IS NOT NULL)
    """
    match node:
        case And(children=children):
            return disjunction(*map(negate, children))
        case Or(children=children):
            return conjunction(*map(negate, children))
        case Not(child=child):
            return normalise(child)
        case Compare(op=op, column=column, value=value) if op in _OPPOSITE:
            return Compare(_OPPOSITE[op], column, value)
        case _:
            return negation(node)


def normalise(node: Predicate) -> Predicate:
    """An equal predicate, flat, with NOT only on leaves: the form for planners."""
    match node:
        case And(children=children):
            return conjunction(*map(normalise, children))
        case Or(children=children):
            return disjunction(*map(normalise, children))
        case Not(child=child):
            return negate(child)
        case _:
            return node


class Wild(enum.Enum):
    """A placeholder of LIKE."""

    MANY = "%"
    ONE = "_"


def pattern_parts(pattern: str, *, escape: str = "\\") -> tuple[str | Wild, ...]:
    """Literal runs and placeholders, in order. As in Spark, only `%`, `_` and the escape character
    itself may be escaped.

    >>> pattern_parts("50\\\\%_a%")
    ('50%', <Wild.ONE: '_'>, 'a', <Wild.MANY: '%'>)
    """
    parts: list[str | Wild] = []
    characters = iter(pattern)
    for c in characters:
        if c != escape and c in "%_":
            parts.append(Wild(c))
            continue
        literal = next(characters, "") if c == escape else c
        if c == escape and literal not in ("%", "_", escape):
            reason = f"the escape character {escape!r} must precede %, _ or itself"
            raise UnsupportedPredicateError(f"LIKE {pattern!r}", reason)
        if parts and isinstance(last := parts[-1], str):
            parts[-1] = last + literal
        else:
            parts.append(literal)
    return tuple(parts)


def like(column: Column, pattern: str, *, escape: str = "\\") -> Predicate:
    """The predicate of a LIKE, in its simplest form.

    >>> print(repr(like(Column(("a",)), "spark%")))
    StartsWith(column=Column(path=('a',)), text='spark')
    """
    match pattern_parts(pattern, escape=escape):
        case ():
            return Compare("=", column, "")
        case (str() as text,):
            return Compare("=", column, text)
        case (Wild.MANY,):
            return StartsWith(column, "")
        case (str() as text, Wild.MANY):
            return StartsWith(column, text)
        case (Wild.MANY, str() as text):
            return EndsWith(column, text)
        case (Wild.MANY, Wild.MANY):
            return Contains(column, "")
        case (Wild.MANY, str() as text, Wild.MANY):
            return Contains(column, text)
        case _:
            return Like(column, pattern, escape)


def pattern_regex(pattern: str, *, escape: str = "\\") -> str:
    """The same as an RE2 regular expression that matches the whole text, new lines included."""
    wild = {Wild.MANY: ".*", Wild.ONE: "."}
    parts = pattern_parts(pattern, escape=escape)
    body = "".join(_quoted(part) if isinstance(part, str) else wild[part] for part in parts)
    return rf"(?s)\A{body}\z"


def _quoted(text: str) -> str:
    # RE2 takes a NUL only by its number.
    return re.sub(r"[\\.+*?()|\[\]{}^$]", r"\\\g<0>", text).replace("\0", r"\x00")
