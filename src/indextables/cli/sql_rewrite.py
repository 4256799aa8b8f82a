"""A query in Spark's SQL, made ready for an embedded engine that knows neither tables nor searches.

Every reference to a table becomes a *relation* of its own that the engine reads. A search goes to
the best place that is exactly right:

1. A condition of WHERE that is about one table, and whose table cannot be padded with nulls by an
   outer join, is pushed to the scan of that table. The index answers it.
2. A search anywhere else, in a select list, under OR beside another table, under an outer join,
   becomes a hidden column of its relation that the scan computes.
3. A search of a column that is no table's own, of a subquery's result say, becomes a call of a
   function that searches the values themselves, with the default mapping, as it does in Spark.

Comparisons are pushed as well, so that splits are skipped, but the engine evaluates them again:
only those are pushed that mean the same to both.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from sqlglot import exp, parse
from sqlglot.errors import SqlglotError
from sqlglot.optimizer.scope import Scope, traverse_scope

from indextables.cli.sql_relations import (
    Relation,
    Sources,
    about,
    is_search,
    search_parts,
    searched_column,
    unqualified,
)
from indextables.errors import EmbeddedQueryError
from indextables.plan.ranking import SCORE
from indextables.predicate.operators import ALL_FIELDS, rewrite_operators
from indextables.table import Table

SEARCH_FUNCTION = "indexquery"
ENGINE_DIALECT = "postgres"


Opener = Callable[[tuple[str, ...], int | None, str | None], Table]
"""Opens a table by the parts of its name, at a version or a time."""


@dataclass(frozen=True)
class Rewritten:
    """The query for the engine, its relations, and all names of columns that it mentions."""

    sql: str
    relations: tuple[Relation, ...]
    mentioned: frozenset[str]
    searches_values: bool


def rewrite(sql: str, opener: Opener) -> Rewritten:
    """Take a query apart. Anything but one query is an error."""
    tree = _parsed(sql)
    work = _Rewriter(opener)
    for scope in traverse_scope(tree):
        if isinstance(scope.expression, exp.Select):
            work.visit(scope)
    work.rename(tree)
    mentioned = frozenset(c.name.lower() for c in tree.find_all(exp.Column))
    return Rewritten(
        tree.sql(dialect=ENGINE_DIALECT),
        tuple(work.relations),
        mentioned,
        work.searches_values,
    )


def _parsed(sql: str) -> Any:
    try:
        statements = [s for s in parse(rewrite_operators(sql), dialect="spark") if s is not None]
    except SqlglotError as error:
        found: list[dict[str, Any]] = getattr(error, "errors", [])
        first = found[0] if found else {}
        where = f"line {first['line']}, column {first['col']}: " if first else ""
        reason = first.get("description") or str(error).splitlines()[0]
        raise EmbeddedQueryError(f"Cannot read the query: {where}{reason}") from None
    if len(statements) != 1 or not isinstance(statements[0], exp.Query):
        raise EmbeddedQueryError(
            "Give one query, or one statement of IndexTables such as MERGE SPLITS. Rows are "
            "written with `indextables import`, tables described with `indextables describe`."
        )
    return statements[0]


class _Rewriter:
    def __init__(self, opener: Opener) -> None:
        self.opener = opener
        self.relations: list[Relation] = []
        self.searches_values = False
        self.hidden = 0

    def visit(self, scope: Scope) -> None:
        select = scope.expression
        sources = self.sources(scope)
        complete = self.push_conditions(select, sources)
        for call in [c for c in scope.find_all(exp.Anonymous) if is_search(c)]:
            self.place_search(call, sources)
        self.place_scores(scope, sources)
        if complete:
            _push_limit(select, sources)
        _hide(select, sources)

    # --- tables

    def sources(self, scope: Scope) -> Sources:
        relations = {}
        for alias, source in scope.sources.items():
            referenced = any(node is source for node, _ in scope.selected_sources.values())
            if isinstance(source, exp.Table) and referenced:
                relations[alias.lower()] = self.relation(source)
        return Sources(relations, *_joins(scope.expression))

    def relation(self, node: Any) -> Relation:
        parts = tuple(part.name for part in node.parts)
        if not all(isinstance(part, exp.Identifier) for part in node.parts):
            raise EmbeddedQueryError(f"'{node.sql('spark')}' is no table.")
        version, at = _time_travel(node)
        relation = Relation(f"relation_{len(self.relations)}", self.opener(parts, version, at))
        self.relations.append(relation)
        if not node.alias:
            quoted = bool(node.this.args.get("quoted"))
            node.set("alias", exp.TableAlias(this=exp.to_identifier(parts[-1], quoted=quoted)))
        node.set("this", exp.to_identifier(relation.name, quoted=True))
        for key in ("db", "catalog", "version"):
            node.set(key, None)
        return relation

    # --- conditions and searches

    def push_conditions(self, select: Any, sources: Sources) -> bool:
        """Push what can be pushed; whether that is everything."""
        where = select.args.get("where")
        complete = True
        for condition in list(_conjuncts(where.this)) if where else []:
            relation = about(condition, sources)
            if relation is None or sources.is_padded(relation):
                complete = False
                continue
            call = condition.unnest()
            if is_search(call):
                relation.searches.append(search_parts(call))
            else:
                relation.conditions.append(unqualified(condition))
            if any(is_search(c) for c in condition.find_all(exp.Anonymous)):
                condition.replace(exp.true())
        return complete

    def place_search(self, call: Any, sources: Sources) -> None:
        column = searched_column(call)
        relation = sources.owner(column) if column is not None else None
        if column is None or column.name.lower() == ALL_FIELDS:
            relation = sources.only(column.table if column is not None else "")
            if relation is None:
                raise EmbeddedQueryError(
                    "A search of all fields needs one table to search: write t._indexall "
                    "indexquery '…' with the table's alias."
                )
        if relation is None:
            self.searches_values = True
            call.set("this", SEARCH_FUNCTION)
            return
        name = self.hidden_name()
        relation.masks[name] = unqualified(call)
        alias = next(a for a, r in sources.relations.items() if r is relation)
        shown = call.sql("spark")
        # A row that an outer join pads with nulls is found by no search.
        found = exp.Coalesce(this=exp.column(name, table=alias, quoted=True),
                             expressions=[exp.false()])  # fmt: skip
        _replace(call, found, shown)

    def place_scores(self, scope: Scope, sources: Sources) -> None:
        for column in list(scope.columns):
            if column.name.lower() != SCORE or sources.owner(column) is not None:
                continue
            relation = sources.only(column.table) or _searched_one(sources)
            if relation is None:
                continue
            if len(relation.searches) != 1:
                raise EmbeddedQueryError(
                    f"{SCORE} is the score of a search, but the query has "
                    f"{len(relation.searches)} searches of that table in its WHERE. Write one, "
                    "joined with AND to the rest."
                )
            relation.score = relation.score or self.hidden_name()
            alias = next(a for a, r in sources.relations.items() if r is relation)
            _replace(column, exp.column(relation.score, table=alias, quoted=True), SCORE)

    def hidden_name(self) -> str:
        self.hidden += 1
        return f"__hidden_{self.hidden}"

    # --- names

    def rename(self, tree: Any) -> None:
        """Names of columns in their exact spelling: the engine tells upper and lower case apart."""
        known: dict[str, set[str]] = {}
        for relation in self.relations:
            for name in relation.table.schema.names:
                known.setdefault(name.lower(), set()).add(name)
        for node in tree.find_all(exp.Column, exp.Alias):
            identifier = node.args.get("alias" if isinstance(node, exp.Alias) else "this")
            if not isinstance(identifier, exp.Identifier):
                continue
            exact = known.get(identifier.name.lower(), set())
            if identifier.name in exact or len(exact) == 1:
                name = identifier.name if identifier.name in exact else next(iter(exact))
                identifier.set("this", name)
                identifier.set("quoted", True)


# --- parts of a tree -------------------------------------------------------------------------


def _joins(select: Any) -> tuple[set[str], set[str]]:
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


def _time_travel(node: Any) -> tuple[int | None, str | None]:
    version = node.args.get("version")
    if version is None:
        return None, None
    value = version.expression
    if str(version.this).upper() == "VERSION" and value.is_int:
        return int(value.name), None
    if str(version.this).upper() == "TIMESTAMP" and value.is_string:
        return None, value.name
    raise EmbeddedQueryError("Write VERSION AS OF a number, or TIMESTAMP AS OF a time in quotes.")


def _conjuncts(node: Any) -> Iterator[Any]:
    if isinstance(node, exp.And):
        yield from _conjuncts(node.left)
        yield from _conjuncts(node.right)
    else:
        yield node


def _searched_one(sources: Sources) -> Relation | None:
    found = [r for r in sources.relations.values() if r.searches]
    return found[0] if len(found) == 1 else None


def _push_limit(select: Any, sources: Sources) -> None:
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


def _replace(node: Any, new: Any, shown: str) -> None:
    """Put a hidden column in the place of an expression; in a select list it keeps its name."""
    in_list = isinstance(node.parent, exp.Select) and node.arg_key == "expressions"
    node.replace(exp.alias_(new, shown, quoted=True) if in_list else new)


def _hide(select: Any, sources: Sources) -> None:
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
