"""Function calls in SQL text, and the searches among them prepared for Spark's parser.

    content indexquery 'spark'                  ->  indexquery(content , 'spark')
    tantivy4spark_indexquery('content', 'q')    ->  tantivy4spark_indexquery(`content`, 'q')
    _indexall indexquery 'spark'                ->  indexqueryall(_indexall, 'spark')
    content indexquery 'title:spark'            ->  indexquery(content , 'title:spark',
                                                        named_struct('title', `title`))
    snippet(content)                            ->  snippet(content, 'spark')
    search(*, 'spark sql')                      ->  search(_indexall, 'spark sql')
    search(content, 'q', mode => 'query')       ->  indexquery(content, 'q')

Operators become calls first (`predicate.spark_tokens`); then every call of a search function is
checked and completed: the number of its arguments, that the query is a literal, its syntax. What
is wrong is an error here, on the driver, before Spark sees the statement. All other text stays as
it is, byte for byte.

A search of all fields needs the row. `Row.HIDDEN` takes it from the hidden column that an index
table has; `Row.STAR` writes `struct(*)`, which works for every relation.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from sqlglot import Token, TokenType
from sqlglot.errors import TokenError

from indextables.config import INDEXQUERY_MAX_DEPTH, INDEXQUERY_MAX_LENGTH, Config
from indextables.errors import SearchCallError
from indextables.predicate import SearchNode, search_fields
from indextables.predicate.literals import quoted_name, sql_text
from indextables.predicate.names import split_path
from indextables.predicate.search_names import (
    MODES,
    SEARCH_NAMES,
    SEVERAL_COLUMNS,
    Mode,
    mentions_search,
    mode_of,
    query_text,
)
from indextables.predicate.search_syntax import parse_search
from indextables.predicate.spark_tokens import ALL_FIELDS, join_strings, rewrite_operators, tokenize
from indextables.statements.forms import words_of

TEXT = (TokenType.STRING, TokenType.RAW_STRING)
_OPENING = (TokenType.L_PAREN, TokenType.L_BRACKET, TokenType.L_BRACE)
_CLOSING = (TokenType.R_PAREN, TokenType.R_BRACKET, TokenType.R_BRACE)
# After these a name with parentheses is defined or listed, not called.
_NO_CALL = {"as", "from", "function", "into", "join", "recursive", "table", "view", "with"}


class Tokens:
    """The tokens of a statement, with their text as it was written."""

    def __init__(self, sql: str, tokens: Sequence[Token]) -> None:
        self.sql = sql
        self.tokens = tokens

    def raw(self, at: int) -> str:
        return self.sql[self.tokens[at].start : self.tokens[at].end + 1]

    def is_call(self, at: int) -> bool:
        tokens = self.tokens
        if at + 1 >= len(tokens) or tokens[at + 1].token_type is not TokenType.L_PAREN:
            return False
        if at > 0 and (
            tokens[at - 1].token_type is TokenType.DOT or self.raw(at - 1).lower() in _NO_CALL
        ):
            return False
        close = self.closing(at + 1)
        # `WITH a AS (…), indexquery (x) AS (…)`
        return not (
            close is not None
            and close + 2 < len(tokens)
            and self.raw(close + 1).lower() == "as"
            and tokens[close + 2].token_type is TokenType.L_PAREN
        )

    def closing(self, opening: int) -> int | None:
        depth = 0
        for at in range(opening, len(self.tokens)):
            if self.tokens[at].token_type in _OPENING:
                depth += 1
            elif self.tokens[at].token_type in _CLOSING:
                depth -= 1
                if depth == 0:
                    return at
        return None

    def split(self, first: int, close: int) -> list[range]:
        """The arguments of a call as ranges of tokens."""
        arguments, depth, start = [], 0, first
        for at in range(first, close):
            token_type = self.tokens[at].token_type
            if token_type in _OPENING:
                depth += 1
            elif token_type in _CLOSING:
                depth -= 1
            elif token_type is TokenType.COMMA and depth == 0:
                arguments.append(range(start, at))
                start = at + 1
        return [*arguments, range(start, close)] if close > first else []

    def column_parts(self, column: range) -> tuple[str, ...] | None:
        """The parts of a column's name, or None if it is an expression."""
        first = self.tokens[column[0]]
        if len(column) == 1 and first.token_type in TEXT:
            return split_path(first.text)
        if len(column) % 2 == 0:
            return None
        names, dots = column[::2], column[1::2]
        if any(self.tokens[at].token_type is not TokenType.DOT for at in dots):
            return None
        if not all(self.raw(at)[0].isalnum() or self.raw(at)[0] in "_`" for at in names):
            return None
        return tuple(self.tokens[at].text for at in names)

    def qualifier(self, parts: tuple[str, ...] | None) -> str:
        """What stands before the names of a search's other fields: the operand's relation.

        `a.b` is a column of `a` if the statement has a relation of that name, else a part of `a`.
        """
        if not parts or len(parts) < 2:
            return ""
        table = parts[0].lower()
        for at, token in enumerate(self.tokens[1:], 1):
            after_dot = self.tokens[at - 1].token_type is TokenType.DOT
            before_dot = (
                at + 1 < len(self.tokens) and self.tokens[at + 1].token_type is TokenType.DOT
            )
            names = token.text.lower() == table and token.token_type not in TEXT
            if names and not before_dot and (not after_dot or self.is_relation(at)):
                return f"{quoted_name(parts[0])}."
        return ""

    def is_relation(self, at: int) -> bool:
        """Whether a dotted name ends here and follows FROM or JOIN."""
        while at >= 2 and self.tokens[at - 1].token_type is TokenType.DOT:
            at -= 2
        return at > 0 and self.raw(at - 1).lower() in ("from", "join", ",")


ONE_COLUMN = ("indexquery", "tantivy4spark_indexquery")
ALL_COLUMNS = ("indexqueryall", "tantivy4spark_indexqueryall")
SEARCH_FUNCTIONS = frozenset((*ONE_COLUMN, *ALL_COLUMNS, SEVERAL_COLUMNS))
SNIPPET = "snippet"

_NAMES_ROW = re.compile(
    rf"indexqueryall|{ALL_FIELDS}|(?:textsearch|fieldmatch)all|\(\s*(?:[^\s()]+\.)?\*|\*\s*(?:NOT\s+)?"
    r"(?:indexquery|textsearch|fieldmatch)",
    re.IGNORECASE,
)

Arguments = Mapping[str, object] | Sequence[object] | None

_CALLS = frozenset((*ONE_COLUMN, *ALL_COLUMNS, *SEARCH_NAMES)) - {SEVERAL_COLUMNS}
_COMPLETE = ("struct", "named_struct")
_OLD_NAMES = "tantivy4spark_"
"""Searches of these names take the name of a column as text."""


class Row(enum.Enum):
    """Where a search of all fields finds the row."""

    HIDDEN = "the hidden column of an index table"
    STAR = "all columns of the relation"
    STRUCT = "the same as one value, for functions that no builder makes"


def needs_row(sql: str) -> bool:
    """Whether a statement may hold a search of all fields."""
    return mentions_search(sql) and _NAMES_ROW.search(sql) is not None


def prepare(
    sql: str, *, arguments: Arguments = None, row: Row = Row.HIDDEN, config: Config | None = None
) -> str:
    """The statement for Spark. `arguments` are the values of its parameters.

    >>> prepare("SELECT 'a indexquery b' FROM t WHERE title IndexQuery 'spark'")
    "SELECT 'a indexquery b' FROM t WHERE indexquery(title , 'spark')"
    >>> prepare("indexqueryall('spark')", row=Row.STAR)
    "indexqueryall(struct(*), 'spark')"
    """
    if not mentions_search(sql):
        return sql
    sql = rewrite_operators(sql)
    try:
        tokens = join_strings(sql, tokenize(sql))
    except TokenError:
        return sql
    editor = _Editor(sql, tokens, arguments, row, config or Config())
    for at in range(len(tokens)):
        editor.visit(at)
    for at in range(len(tokens)):
        editor.complete_snippet(at)
    return editor.result()


class _Editor(Tokens):
    def __init__(
        self, sql: str, tokens: list[Token], arguments: Arguments, row: Row, config: Config
    ) -> None:
        super().__init__(sql, tokens)
        self.arguments = arguments
        self.row = row
        self.config = config
        self.edits: list[tuple[int, int, str]] = []
        # The column of each search (None: all) and its query as it was written.
        self.searches: list[tuple[str | None, str]] = []

    def result(self) -> str:
        parts, at = [], 0
        for start, end, text in sorted(self.edits):
            parts += [self.sql[at:start], text]
            at = end
        return "".join([*parts, self.sql[at:]])

    # --- calls

    def visit(self, at: int) -> None:
        name = self.raw(at).lower()
        if name not in _CALLS or not self.is_call(at):
            return
        close = self.closing(at + 1)
        if close is None:
            return  # Spark reports the wrong parentheses
        arguments = self.split(at + 2, close)
        if name in SEARCH_NAMES:
            self.named_search(at, name, arguments)
        elif name in ALL_COLUMNS:
            self.all_columns(at, arguments)
        else:
            self.one_column(at, arguments, close)

    def complete_snippet(self, at: int) -> None:
        """`snippet(content)` shows what the statement's one search of `content` found."""
        if self.raw(at).lower() != SNIPPET or not self.is_call(at):
            return
        close = self.closing(at + 1)
        arguments = [] if close is None else self.split(at + 2, close)
        if close is None or len(arguments) != 1 or not arguments[0]:
            return
        parts = self.column_parts(arguments[0])
        column = parts[-1].lower() if parts else ""
        queries = {query for of, query in self.searches if of in (None, column)}
        if len(queries) != 1 or queries == {"?"}:  # a second `?` would be another parameter
            raise self.error(
                at,
                f"cannot tell which search to show: the statement has {len(queries)} different "
                "ones of that column. Write the query as a second argument.",
            )
        where = self.tokens[close].start
        self.edits.append((where, where, f", {queries.pop()}"))

    def all_columns(self, at: int, arguments: list[range]) -> None:
        if len(arguments) == 2 and self.is_row(arguments[0]):
            self.check(at, arguments[1])
            return
        if len(arguments) != 1:
            raise self.error(at, "requires exactly 1 argument: a search query in quotes.")
        self.check(at, arguments[0])
        self.insert_row(self.tokens[arguments[0][0]].start, "")

    def one_column(self, at: int, arguments: list[range], close: int) -> None:
        if len(arguments) == 3 and self.raw(arguments[2][0]).lower() in _COMPLETE:
            return
        if len(arguments) != 2 or not all(arguments):
            raise self.error(
                at, "requires exactly 2 arguments: a column and a search query in quotes."
            )
        column, query = arguments
        parts = self.column_parts(column)
        if parts and parts[-1].lower() == ALL_FIELDS:
            self.check(at, query)
            token = self.tokens[at]
            self.edits.append((token.start, token.end + 1, ALL_COLUMNS[0]))
            start, end = self.tokens[column[0]].start, self.tokens[column[-1]].end + 1
            qualifier = "".join(f"{quoted_name(part)}." for part in parts[:-1])
            self.insert_row(start, qualifier, end)
            return
        if len(column) == 1 and self.tokens[column[0]].token_type in TEXT:
            token = self.tokens[column[0]]
            self.edits.append((token.start, token.end + 1, ".".join(map(quoted_name, parts or ()))))
        fields = self.check(at, query, parts or ())
        if fields:
            where = self.tokens[close].start
            prefix = self.qualifier(parts) if len(column) > 1 else ""
            self.edits.append((where, where, f", {fields_argument(fields, prefix)}"))

    def named_search(self, at: int, name: str, arguments: list[range]) -> None:
        """`search` and its siblings. A session may have functions of its own by these names, so
        what does not look like ours is left alone; the function says what is wrong with the rest.
        """
        if SEARCH_NAMES[name].every_column:
            self.all_columns(at, arguments)
            return
        if len(arguments) not in (2, 3) or not all(arguments):
            return
        target, words, *more = arguments
        mode = self.mode(name, more[0]) if more else SEARCH_NAMES[name].mode or "all"
        if mode is None:
            return
        star = self.tokens[target[-1]].token_type is TokenType.STAR
        if star and self.row is Row.HIDDEN:
            token = self.tokens[target[-1]]
            self.edits.append((token.start, token.end + 1, ALL_FIELDS))
        elif star and self.row is Row.STRUCT:
            start, end = self.tokens[target[0]].start, self.tokens[target[-1]].end + 1
            self.edits += [(start, start, "struct("), (end, end, ")")]
        parts = None if star else self.column_parts(target)
        if len(target) == 1 and self.tokens[target[0]].token_type in TEXT:
            if not name.startswith(_OLD_NAMES) or not parts:
                return  # a value, which is searched as it is
            start, end = self.tokens[target[0]].start, self.tokens[target[0]].end + 1
            self.edits.append((start, end, ".".join(map(quoted_name, parts))))
        column = parts[-1].lower() if parts and parts[-1].lower() != ALL_FIELDS else None
        first = self.tokens[words[0]]
        if len(words) > 1 or first.token_type not in TEXT:
            return  # a parameter, whose value Spark hands to the function
        text = query_text(first.text, mode)
        self.searches.append((column, sql_text(text)))
        if mode != "query" or column is None:
            return
        fields = self.parse(first.text, ".".join(parts or ()))
        argument = f", {fields_argument(fields, self.qualifier(parts))}" if fields else ""
        start = self.tokens[words[-1]].end + 1
        self.edits.append((start, self.tokens[arguments[-1][-1]].end + 1, argument))
        if SEARCH_NAMES[name].kind is None:
            self.edits.append((self.tokens[at].start, self.tokens[at].end + 1, ONE_COLUMN[0]))

    def mode(self, name: str, argument: range) -> Mode | None:
        """The mode of `mode => '…'`, or of a third argument; None if it is not a search mode."""
        named = len(argument) == 3 and self.raw(argument[0]).lower() == "mode"
        last = self.tokens[argument[-1]]
        if SEARCH_NAMES[name].mode is not None or last.token_type not in TEXT:
            return None
        is_mode = (named or len(argument) == 1) and last.text.lower() in MODES
        return mode_of(name, last.text) if is_mode else None

    def is_row(self, argument: range) -> bool:
        if not argument:
            return False
        parts = self.column_parts(argument)
        named = parts is not None and parts[-1].lower() == ALL_FIELDS
        return named or self.raw(argument[0]).lower() in _COMPLETE

    def insert_row(self, start: int, qualifier: str, end: int | None = None) -> None:
        row = f"{qualifier}{ALL_FIELDS}" if self.row is Row.HIDDEN else f"struct({qualifier}*)"
        self.edits.append((start, start, f"{row}, ") if end is None else (start, end, row))

    # --- queries

    def check(
        self, at: int, query: range, parts: tuple[str, ...] = (ALL_FIELDS,)
    ) -> tuple[str, ...]:
        """Check a query of a column, of which `parts` is the name; the fields that it names."""
        if not query:
            raise self.error(at, "has an empty argument.")
        first = self.tokens[query[0]]
        shown = self.sql[first.start : self.tokens[query[-1]].end + 1]
        field = ".".join(parts) or None
        column = None if field == ALL_FIELDS else "".join(parts[-1:]).lower()
        self.searches.append((column, shown))
        if len(query) == 1 and first.token_type in TEXT:
            return self.parse(first.text, field)
        if len(query) == 1 and first.token_type is TokenType.PLACEHOLDER:
            before = self.tokens[: query[0]]
            position = sum(t.token_type is TokenType.PLACEHOLDER for t in before)
            values = self.arguments if isinstance(self.arguments, Sequence) else ()
            return self.parameter(at, values[position] if position < len(values) else None, field)
        if len(query) == 2 and first.token_type is TokenType.COLON:
            named = self.arguments if isinstance(self.arguments, Mapping) else {}
            return self.parameter(at, named.get(self.raw(query[1])), field)
        raise self.error(
            at,
            f"takes a query in quotes or a parameter, not {shown[:50]!r}: it must be known before "
            "the search is planned.",
        )

    def parameter(self, at: int, value: object, field: str | None) -> tuple[str, ...]:
        if isinstance(value, str):
            return self.parse(value, field)
        if value is None or type(value).__name__ == "Column":
            return ()  # Spark names a missing parameter; a column is checked when it is evaluated
        raise self.error(at, f"takes a query as text, not the {type(value).__name__} {value!r}.")

    def parse(self, text: str, field: str | None) -> tuple[str, ...]:
        query = parse_search(
            text,
            field=field,
            max_length=self.config[INDEXQUERY_MAX_LENGTH],
            max_depth=self.config[INDEXQUERY_MAX_DEPTH],
        )
        return named_columns(query) if field != ALL_FIELDS else ()

    def error(self, at: int, reason: str) -> SearchCallError:
        return SearchCallError(self.raw(at), reason, position=self.tokens[at].start)


def named_columns(query: SearchNode) -> tuple[str, ...]:
    """The columns whose names a query writes before a colon, by their first part.

    >>> named_columns(parse_search("title:spark OR user.name:bob OR sql"))
    ('title', 'user')
    """
    named = [name for name in search_fields(query) if name is not None]
    return tuple(dict.fromkeys(split_path(name)[0] for name in named))


def fields_argument(columns: Sequence[str], prefix: str = "") -> str:
    """The argument that brings further columns to a search.

    >>> fields_argument(["title"])
    "named_struct('title', `title`)"
    """
    pairs = ", ".join(f"{sql_text(name)}, {prefix}{quoted_name(name)}" for name in columns)
    return f"named_struct({pairs})"


_BEFORE_A_NAME = (
    ("DELETE", "FROM"), ("UPDATE",), ("ANALYZE", "TABLE"), ("REPAIR", "TABLE"),
    ("MSCK", "REPAIR", "TABLE"),
)  # fmt: skip


def with_name(
    text: str, args: Arguments, compute: Callable[[str, Arguments], Any]
) -> tuple[str, Arguments]:
    """A statement about a table that `IDENTIFIER(…)` names, with its name; others as they are.

    `compute` returns the value of an expression with its arguments. Parameters that count by their
    place are used up by the name first, because it stands before all others.
    """
    words = words_of(text) or []
    shown = [word.text.upper() for word in words[:5]]
    at = next((len(one) for one in _BEFORE_A_NAME if tuple(shown[: len(one)]) == one), None)
    if at is None or shown[at : at + 2] != ["IDENTIFIER", "("] or words[at].kind != "word":
        return text, args
    depth, places = 0, 0
    for word in words[at + 1 :]:
        if word.kind == "symbol":
            depth += (word.text == "(") - (word.text == ")")
            places += word.text == "?"
        if depth == 0:
            expression = text[words[at + 1].start : word.end]
            name_args, other_args = (
                (args[:places], args[places:]) if isinstance(args, list) else (args, args)
            )
            name = compute(expression, name_args)
            if not isinstance(name, str):
                break  # Spark reports what is wrong
            return f"{text[: words[at].start]}{name}{text[word.end :]}", other_args
    return text, args
