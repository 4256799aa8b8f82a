"""TIMESTAMP AS OF an expression, on a table of two names.

Spark resolves the functions of such an expression after it looked for tables, and until then takes
``indextables.`/data/docs` ``, as every name of two parts, for a file of a format. A name of three
parts it leaves to the catalog: the namespace `.` is the catalog's root.
"""

from __future__ import annotations

import re

from sqlglot import TokenType
from sqlglot.errors import TokenError

from indextables.plan.source_options import NAME
from indextables.predicate.spark_tokens import tokenize
from indextables.statements.search_calls import TEXT, Tokens

ROOT = "."

_MAY_TRAVEL = re.compile(r"\b(?:TIMESTAMP|SYSTEM_TIME)\s+AS\s+OF\b", re.IGNORECASE)
_TRAVELS = (["timestamp", "as", "of"], ["system_time", "as", "of"])


def rooted(sql: str) -> str:
    """The statement with the root namespace where an expression names the time.

    >>> rooted("SELECT * FROM indextables.`/docs` TIMESTAMP AS OF now() - INTERVAL 1 DAY")
    'SELECT * FROM indextables.`.`.`/docs` TIMESTAMP AS OF now() - INTERVAL 1 DAY'
    """
    if _MAY_TRAVEL.search(sql) is None:
        return sql
    try:
        tokens = Tokens(sql, tokenize(sql))
    except TokenError:
        return sql
    ends = [t.end + 1 for at, t in enumerate(tokens.tokens) if _is_catalog(tokens, at)]
    for end in reversed(ends):
        sql = f"{sql[:end]}.`{ROOT}`{sql[end:]}"
    return sql


def _is_catalog(tokens: Tokens, at: int) -> bool:
    """Whether the catalog's name begins a name of two parts that travels to an expression."""
    kinds = [token.token_type for token in tokens.tokens[at : at + 8]]
    if tokens.raw(at).strip("`") != NAME or TokenType.DOT not in kinds[1:2]:
        return False
    if at > 0 and tokens.tokens[at - 1].token_type is TokenType.DOT:
        return False
    words = [tokens.raw(number).lower() for number in range(at, min(at + 8, len(tokens.tokens)))]
    time = 4 if words[3:4] == ["for"] else 3
    return words[time : time + 3] in _TRAVELS and not set(kinds[time + 3 : time + 4]) & set(TEXT)
