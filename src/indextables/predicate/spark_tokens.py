"""SQL text cut into tokens by Spark's rules: quotes, escapes, back-ticks, raw strings, comments."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from sqlglot import Token, TokenType
from sqlglot.dialects.spark import Spark


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
