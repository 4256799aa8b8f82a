"""Headers of a query's columns: what the query says, not what became of it for the engine."""

from __future__ import annotations

from typing import Any

from sqlglot import Token, TokenType, exp
from sqlglot.dialects.spark import Spark

_OPENING = (TokenType.L_PAREN, TokenType.L_BRACKET, TokenType.L_BRACE)
_CLOSING = (TokenType.R_PAREN, TokenType.R_BRACKET, TokenType.R_BRACE)
_AFTER = (
    TokenType.FROM, TokenType.WHERE, TokenType.GROUP_BY, TokenType.HAVING, TokenType.ORDER_BY,
    TokenType.LIMIT, TokenType.UNION, TokenType.EXCEPT, TokenType.INTERSECT, TokenType.SEMICOLON,
)  # fmt: skip


def name_columns(tree: Any, sql: str) -> None:
    """Give the expressions of the outermost select list their text as a name."""
    select = tree
    while isinstance(select, exp.SetOperation):
        select = select.this
    if not isinstance(select, exp.Select):
        return
    texts = written_items(sql)
    if len(texts) != len(select.expressions):
        return
    for item, text in zip(list(select.expressions), texts, strict=True):
        if not isinstance(item, exp.Alias | exp.Aliases | exp.Column | exp.Star | exp.UDTF):
            item.replace(exp.alias_(item.copy(), text, quoted=True))


def written_items(sql: str) -> list[str]:
    """The items of the first select list that is in no parentheses.

    >>> written_items("WITH c AS (SELECT 1) SELECT a, max( b ), c IS DISTINCT FROM d FROM c")
    ['a', 'max( b )', 'c IS DISTINCT FROM d']
    """
    items: list[list[Token]] = []
    depth, before = 0, None
    for token in Spark().tokenize(sql):
        kind = token.token_type
        depth += (kind in _OPENING) - (kind in _CLOSING)
        if not items:
            if kind == TokenType.SELECT and depth == 0:
                items.append([])
        elif depth == 0 and kind in _AFTER and before != TokenType.DISTINCT:
            break
        elif depth == 0 and kind == TokenType.COMMA:
            items.append([])
        elif items[-1] or len(items) > 1 or kind not in (TokenType.DISTINCT, TokenType.ALL):
            items[-1].append(token)
        before = kind
    return [" ".join(sql[i[0].start : i[-1].end + 1].split()) for i in items if i]
