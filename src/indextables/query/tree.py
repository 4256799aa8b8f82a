"""Looking at the parts of a parsed query, and changing them.

Headers of its columns are what the query says, not what became of it for the engine.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from sqlglot import Token, TokenType, exp
from sqlglot.dialects.spark import Spark

from indextables.errors import EmbeddedQueryError
from indextables.query.relations import Relation, Sources

_OPENING = (TokenType.L_PAREN, TokenType.L_BRACKET, TokenType.L_BRACE)
_CLOSING = (TokenType.R_PAREN, TokenType.R_BRACKET, TokenType.R_BRACE)
_AFTER = (
    TokenType.FROM, TokenType.WHERE, TokenType.GROUP_BY, TokenType.HAVING, TokenType.ORDER_BY,
    TokenType.LIMIT, TokenType.UNION, TokenType.EXCEPT, TokenType.INTERSECT, TokenType.SEMICOLON,
)  # fmt: skip


def joins(select: Any) -> tuple[set[str], set[str]]:
    """Aliases that an outer join may pad with nulls, and those that the query can see."""
    first = select.args.get("from_")
    seen: list[str] = [first.this.alias_or_name.lower()] if first else []
    padded: set[str] = set()
    unseen: set[str] = set()
    for join in select.args.get("joins") or []:
        alias = join.alias_or_name.lower()
        side, kind = (join.side or "").upper(), (join.kind or "").upper()
        if kind in ("SEMI", "ANTI"):
            unseen.add(alias)
            continue
        if side in ("RIGHT", "FULL"):
            padded.update(seen)
        if side in ("LEFT", "FULL"):
            padded.add(alias)
        seen.append(alias)
    seen += [lateral.alias_or_name.lower() for lateral in select.args.get("laterals") or []]
    return padded, set(seen) - unseen


def time_travel(node: Any) -> tuple[int | None, str | None]:
    version = node.args.get("version")
    if version is None:
        return None, None
    value = version.expression
    if str(version.this).upper() == "VERSION" and value.is_int:
        return int(value.name), None
    if str(version.this).upper() == "TIMESTAMP" and value.is_string:
        return None, value.name
    raise EmbeddedQueryError("Write VERSION AS OF a number, or TIMESTAMP AS OF a time in quotes.")


def conjuncts(node: Any) -> Iterator[Any]:
    if isinstance(node, exp.And):
        yield from conjuncts(node.left)
        yield from conjuncts(node.right)
    else:
        yield node


def searched_one(sources: Sources) -> Relation | None:
    found = [r for r in sources.relations.values() if r.searches]
    return found[0] if len(found) == 1 else None


def push_limit(select: Any, sources: Sources) -> None:
    """The best rows only, where a query of one table wants no others."""
    order, limit = select.args.get("order"), select.args.get("limit")
    keys = order.expressions if order else []
    more = ("joins", "laterals", "group", "having", "distinct", "offset", "qualify", "windows")
    if (
        len(sources.relations) != 1
        or len(keys) != 1
        or not isinstance(limit, exp.Limit)
        or not limit.expression.is_int
        or any(select.args.get(part) for part in more)
        or any(True for _ in select.find_all(exp.AggFunc, exp.Window, exp.Subquery, exp.UDTF))
    ):
        return
    (relation,) = sources.relations.values()
    key = keys[0].this
    if not isinstance(key, exp.Column):
        return
    # A name in ORDER BY is that of the select list first.
    listed = next((item.this for item in select.expressions if item.alias_or_name == key.name), key)
    if relation.score and keys[0].args.get("desc") and listed.name == relation.score:
        relation.limit = int(limit.expression.name)


def replace(node: Any, new: Any, shown: str) -> None:
    """Put a hidden column in the place of an expression; in a select list it keeps its name."""
    in_list = isinstance(node.parent, exp.Select) and node.arg_key == "expressions"
    node.replace(exp.alias_(new, shown, quoted=True) if in_list else new)


def hide(select: Any, sources: Sources) -> None:
    """`*` does not show hidden columns."""
    for item in select.expressions:
        qualified = isinstance(item, exp.Column) and isinstance(item.this, exp.Star)
        if not qualified and not isinstance(item, exp.Star):
            continue
        relations = (
            [r for a, r in sources.relations.items() if a == item.table.lower()]
            if qualified
            else sources.relations.values()
        )
        hidden = [exp.to_identifier(n, quoted=True) for r in relations for n in r.hidden]
        if hidden:
            star = item.this if qualified else item
            star.set("except_", [*(star.args.get("except_") or []), *hidden])


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
