"""SQL text as Spark's tokens, and the infix operators rewritten to calls that any parser reads.

    content indexquery 'spark AND sql'    ->  indexquery(content , 'spark AND sql')
    content NOT indexquery 'spark'        ->  (NOT indexquery(content , 'spark'))
    _indexall indexquery 'spark'          ->  indexqueryall( 'spark')
    * indexquery 'spark'                  ->  indexqueryall( 'spark')
    content TEXTSEARCH 'spark'            ->  textsearch(content , 'spark')
    * FIELDMATCH 'spark'                  ->  fieldmatch(* , 'spark')

The statement is cut into tokens by Spark's rules (quotes, escapes, back-ticks, raw strings,
comments), so text in strings, comments and back-ticks is never mistaken for the operator.
Everything else stays as it is, byte for byte. What cannot be cut into tokens is returned unchanged:
the real parser will say what is wrong with it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import ClassVar

from sqlglot import Token, TokenType
from sqlglot.dialects.spark import Spark
from sqlglot.errors import TokenError


class _Tokenizer(Spark.Tokenizer):
    # sqlglot takes all that follows EXPLAIN, SHOW and their like for one string.
    COMMANDS: ClassVar[set[TokenType]] = set()


def tokenize(sql: str) -> list[Token]:
    """The tokens of a statement; raises sqlglot's `TokenError` if a quote is never closed.

    >>> [token.text for token in tokenize("a = 'O\\\\'Brien' -- b")]
    ['a', '=', "O'Brien"]
    """
    return _Tokenizer(dialect=Spark()).tokenize(sql)


def join_strings(sql: str, tokens: Sequence[Token]) -> list[Token]:
    """Strings in a row as one: `'it''s'` is a doubled quote, `'a' 'b'` is `'ab'`."""
    joined: list[Token] = []
    for token in tokens:
        last = joined[-1] if joined else None
        if last is None or not last.token_type == token.token_type == TokenType.STRING:
            joined.append(token)
            continue
        touches = last.end + 1 == token.start and sql[last.end] == sql[token.start]
        joined[-1] = Token(
            TokenType.STRING,
            last.text + (sql[token.start] if touches else "") + token.text,
            line=token.line,
            col=token.col,
            start=last.start,
            end=token.end,
        )
    return joined


OPERATOR = "indexquery"
OPERATORS = (OPERATOR, "textsearch", "fieldmatch")
ALL_FIELDS = "_indexall"

_TEXT = frozenset((TokenType.STRING, TokenType.RAW_STRING))
_OPENING = {TokenType.R_PAREN: TokenType.L_PAREN, TokenType.R_BRACKET: TokenType.L_BRACKET}
# Words before which an operand ends: they are never a column's name without back-ticks.
_NO_OPERAND = frozenset(
    re.findall(
        r"\w+",
        "and as between by case distinct else end filter from having in is join like not on or "
        "over select then using values when where xor",
    )
)


def options_in(sql: str) -> dict[str, str]:
    """What the lists `OPTIONS (…)` of a statement say.

    >>> options_in("CREATE TABLE t USING csv OPTIONS (sep ';', 'a.key' = 'x') LOCATION 'p'")
    {'sep': ';', 'a.key': 'x'}
    """
    return {name: value for _, name, value in _options(sql)}


def mark_options(sql: str, mark: str, is_marked: Callable[[str], object]) -> str:
    """The statement with a mark before the names of some options.

    >>> mark_options("OPTIONS (sep ';', 'a.key' = 'x', b.key 'y')", "own.", lambda n: "key" in n)
    "OPTIONS (sep ';', 'own.a.key' = 'x', own.b.key 'y')"
    """
    starts = (
        first.start + (first.token_type == TokenType.STRING)
        for first, name, _ in _options(sql)
        if is_marked(name)
    )
    return _spliced(sql, [(start, start, mark) for start in starts])


def _options(sql: str) -> Iterator[tuple[Token, str, str]]:
    """The first token of each option's name, the name, and its value."""
    try:
        tokens = tokenize(sql)
    except TokenError:
        return
    for at, token in enumerate(tokens[:-1]):
        if not _is_word(sql, token, "options") or tokens[at + 1].token_type != TokenType.L_PAREN:
            continue
        name: list[Token] = []
        for part in tokens[at + 2 :]:
            if part.token_type == TokenType.R_PAREN:
                break
            if part.token_type == TokenType.COMMA:
                name = []
            elif part.token_type == TokenType.STRING and name:
                yield name[0], "".join(token.text for token in name), part.text
            elif part.token_type != TokenType.EQ:
                name.append(part)


def rewrite_operators(sql: str) -> str:
    """The statement with every search operator as a function call.

    >>> rewrite_operators("SELECT 'a indexquery b' FROM t WHERE title IndexQuery 'spark'")
    "SELECT 'a indexquery b' FROM t WHERE indexquery(title , 'spark')"
    """
    lowered = sql.lower()
    if not any(operator in lowered for operator in OPERATORS):
        return sql
    try:
        tokens = tokenize(sql)
    except TokenError:
        return sql
    edits: list[tuple[int, int, str]] = []
    for at, token in enumerate(tokens):
        for operator in OPERATORS:
            if _is_word(sql, token, operator):
                edits.extend(_edits(sql, tokens, at, operator))
    return _spliced(sql, edits)


def _edits(sql: str, tokens: Sequence[Token], at: int, function: str) -> list[tuple[int, int, str]]:
    """How the operator at a position changes the text; nothing if it is none."""
    last = _end_of_query(tokens, at + 1)
    negated = at > 0 and _is_word(sql, tokens[at - 1], "not")
    end = at - 2 if negated else at - 1
    is_star = _is_all_columns(sql, tokens, end)
    first = end if is_star else _start_of_operand(sql, tokens, end)
    if last is None or first is None:
        return []
    operator = (tokens[at].start, tokens[at].end + 1)
    opening, closing = ("(NOT ", "))") if negated else ("", ")")
    edits = [(tokens[last].end + 1, tokens[last].end + 1, closing)]
    if negated:
        edits.append((tokens[at - 1].start, tokens[at - 1].end + 1, ""))
    if is_star or (first == end and _is_word(sql, tokens[first], ALL_FIELDS)):
        name = (tokens[first].start, tokens[first].end + 1)
        if function == OPERATOR:
            return [*edits, (*name, f"{opening}indexqueryall("), (*operator, "")]
        return [*edits, (*name, f"{opening}{function}(*"), (*operator, ",")]
    start = tokens[first].start
    return [*edits, (start, start, f"{opening}{function}("), (*operator, ",")]


def _is_all_columns(sql: str, tokens: Sequence[Token], at: int) -> bool:
    """Whether a star here stands for all columns, and is not a product's."""
    if at < 0 or tokens[at].token_type is not TokenType.STAR:
        return False
    before = tokens[at - 1] if at else None
    return (
        before is None
        or before.token_type in (TokenType.L_PAREN, TokenType.COMMA)
        or (sql[before.start : before.end + 1].lower() in _NO_OPERAND)
    )


def _end_of_query(tokens: Sequence[Token], at: int) -> int | None:
    """The last token of the query text: strings in a row are one, or a parameter."""
    last = at
    while last < len(tokens) and tokens[last].token_type in _TEXT:
        last += 1
    if last > at:
        return last - 1
    if at < len(tokens) and tokens[at].token_type is TokenType.PLACEHOLDER:
        return at
    if at + 1 < len(tokens) and tokens[at].token_type is TokenType.COLON:
        return at + 1
    return None


def _start_of_operand(sql: str, tokens: Sequence[Token], end: int) -> int | None:
    """The first token of the name, call or parenthesis that ends at `end`."""
    at = end
    while at >= 0:
        if tokens[at].token_type in _OPENING:
            opening = _matching(tokens, at)
            if opening is None:
                return None
            at = opening
            # The name of a function, or what a subscript applies to.
            if at > 0 and _is_name(sql, tokens[at - 1]):
                at -= 1
            elif tokens[at].token_type is TokenType.L_BRACKET:
                at -= 1
                continue
        elif not _is_name(sql, tokens[at]) and not (
            at > 0 and tokens[at - 1].token_type is TokenType.DOT
        ):
            return None
        # A part of a name, the type of a cast, or a collation, of what stands before it.
        if at > 1 and (
            tokens[at - 1].token_type in (TokenType.DOT, TokenType.DCOLON)
            or _is_word(sql, tokens[at - 1], "collate")
        ):
            at -= 2
            continue
        return at
    return None


def _matching(tokens: Sequence[Token], closing: int) -> int | None:
    bracket, depth = tokens[closing].token_type, 0
    for at in range(closing, -1, -1):
        if tokens[at].token_type is bracket:
            depth += 1
        elif tokens[at].token_type is _OPENING[bracket]:
            depth -= 1
            if depth == 0:
                return at
    return None


def _is_name(sql: str, token: Token) -> bool:
    if token.token_type is TokenType.IDENTIFIER:
        return True
    word = sql[token.start : token.end + 1]
    return (word[:1].isalpha() or word[:1] == "_" or ord(word[:1] or " ") > 127) and (
        token.token_type not in _TEXT and word.lower() not in _NO_OPERAND
    )


def _is_word(sql: str, token: Token, word: str) -> bool:
    # The slice of a quoted name has its quotes and is not a word.
    return sql[token.start : token.end + 1].lower() == word


def _spliced(sql: str, edits: Sequence[tuple[int, int, str]]) -> str:
    parts, at = [], 0
    for start, end, text in sorted(edits):
        parts += [sql[at:start], text]
        at = end
    return "".join([*parts, sql[at:]])
