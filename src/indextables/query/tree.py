"""Looking at the parts of a parsed query, and changing them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from sqlglot import exp

from indextables.errors import EmbeddedQueryError
from indextables.query.relations import Relation, Sources


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
