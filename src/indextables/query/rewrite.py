"""A query in Spark's SQL, prepared for an engine that has neither index tables nor searches.

Every reference to a table becomes a *relation* of its own that the engine reads. A search goes to
the best place that is exactly right:

1. A condition of WHERE that is about one table, and whose table cannot be padded with nulls by an
   outer join, is pushed to the scan of that table. The index answers it.
2. A search anywhere else, in a select list, under OR beside another table, under an outer join,
   becomes a hidden column of its relation that the scan computes.
3. A search of a column that is not a table's own becomes a call of a function that searches the
   values themselves. A column that a subquery or WITH hands on is searched with the mapping that it
   has in its table, any other value with the default mapping, as in Spark.

A snippet is a hidden column or a call of a function in the same way.

Comparisons are pushed as well, so that splits are skipped, but the engine evaluates them again:
only those are pushed that mean the same to both.
"""

from __future__ import annotations

import copy
import logging
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
from sqlglot import exp
from sqlglot.errors import SqlglotError
from sqlglot.optimizer.scope import Scope, traverse_scope

from indextables.errors import EmbeddedQueryError, first_line
from indextables.predicate import Boolean, SearchNode
from indextables.predicate.search_names import (
    SEVERAL_COLUMNS,
    SearchCall,
    is_search_name,
    search_call,
    written,
)
from indextables.predicate.spark_tokens import ALL_FIELDS, join_strings, rewrite_operators
from indextables.query.dialect import (
    MAPPED_SEARCH,
    MAPPED_SNIPPET,
    SEARCH_FUNCTION,
    EngineSql,
    SparkDialect,
    annotate,
    engine_sql,
)
from indextables.query.relations import (
    PushedSearch,
    Relation,
    Sources,
    about,
    conjuncts,
    finds_nulls,
    handed_on,
    hide,
    is_of_all_fields,
    is_search,
    is_snippet,
    joins,
    mapping_of,
    name_columns,
    push_limit,
    replace,
    root_column,
    search_parts,
    searched_columns,
    searched_one,
    snippet_parts,
    time_travel,
    unqualified,
    value_mapping,
)
from indextables.schema import ROW_IDENTITY, SCORE
from indextables.split.search import check_kind
from indextables.statements.search_calls import SNIPPET
from indextables.table import Table

Opener = Callable[[tuple[str, ...], int | None, str | None], Any]
"""Opens a table by the parts of its name, at a version or a time: a `Table` or what stands for one,
rows that are not an index table's, or the schema of a table that the engine has."""


@dataclass(frozen=True)
class Rewritten:
    """The query for the engine, and its relations."""

    engine: EngineSql
    relations: tuple[Relation, ...]
    foreign: dict[str, pa.Table | ds.Dataset]
    """Relations that are not index tables."""


def rewrite(sql: str, opener: Opener) -> Rewritten:
    """Take a query apart. Anything but one query is an error."""
    tree = _parsed(sql)
    work = _taken_apart(tree, sql, _Rewriter(opener, carries_mappings=True))
    schemas = {relation.name: relation.schema for relation in work.relations}
    annotate(tree, schemas | {name: rows.schema for name, rows in work.foreign.items()})
    return Rewritten(engine_sql(tree), tuple(work.relations), work.foreign)


def relations_of(
    sql: str, opener: Opener, bound: Callable[[Any], Any]
) -> tuple[Any, tuple[Relation, ...]]:
    """A query over the relations of its index tables, still in Spark's SQL, and those.

    The opener returns a schema for what is not an index table: that stays as it is. `bound` puts
    values in the places of parameters.
    """
    tree = _parsed(sql).transform(bound)
    work = _taken_apart(tree, sql, _Rewriter(opener, carries_mappings=False))
    return tree, tuple(work.relations)


def _spell_alike(tree: Any) -> None:
    """Names of WITH mean the same in any case, which sqlglot compares letter by letter."""
    for with_ in tree.find_all(exp.With):
        names = {cte.alias.lower(): cte.alias for cte in with_.expressions}
        for table in with_.parent.find_all(exp.Table):
            name = names.get(table.name.lower())
            if not isinstance(table.this, exp.Identifier) or table.db:
                continue
            if name is not None and name != table.name:
                if not table.alias:
                    table.set("alias", exp.TableAlias(this=table.this.copy()))
                table.set(
                    "this", exp.to_identifier(name, quoted=bool(table.this.args.get("quoted")))
                )


def _taken_apart(tree: Any, sql: str, work: _Rewriter) -> _Rewriter:
    _spell_alike(tree)
    name_columns(tree, sql)
    scopes = [s for s in traverse_scope(tree) if isinstance(s.expression, exp.Select)]
    every = [(scope, work.sources(scope)) for scope in scopes]
    work.every = {id(scope.expression): sources for scope, sources in every}
    for scope, sources in every:
        work.place_names(scope, sources)
    work.searches = [search_parts(c) for c in tree.find_all(exp.Anonymous) if is_search(c)]
    for scope, sources in every:
        work.visit(scope, sources)
    work.rename(tree)
    return work


def _parsed(sql: str) -> Any:
    # It warns of statements that it does not know; the error below is clearer.
    logging.getLogger("sqlglot").setLevel(logging.ERROR)
    try:
        rewritten = rewrite_operators(sql)
        dialect = SparkDialect()
        tokens = join_strings(rewritten, dialect.tokenize(rewritten))
        statements = [s for s in dialect.parser().parse(tokens, rewritten) if s is not None]
    except SqlglotError as error:
        details: list[dict[str, Any]] = getattr(error, "errors", [])
        first = details[0] if details else {}
        where = f"line {first['line']}, column {first['col']}: " if first else ""
        reason = _plain(first.get("description") or first_line(error), first)
        raise EmbeddedQueryError(f"Cannot read the query: {where}{reason}") from None
    if len(statements) != 1 or not isinstance(statements[0], exp.Query):
        raise EmbeddedQueryError(
            "This is not one query, a SELECT. Rows are written with Table.append or `indextables "
            "import`; statements such as MERGE SPLITS are run by `indextables sql`, or are methods "
            "of Table."
        )
    return statements[0]


_TOKEN = re.compile(r"<Token .*?text: (.*?), line: .*?>(?=$| )")


def _plain(reason: str, details: dict[str, Any]) -> str:
    """The message of sqlglot, without names of its classes."""
    if "Unexpected token" in reason and details.get("highlight"):
        return f"'{details['highlight']}' is not expected here."
    if reason.startswith("Required keyword"):
        near = str(details.get("highlight") or "").strip()
        return f"something is missing near '{near}'." if near else "something is missing."
    reason = _TOKEN.sub(r"'\1'", reason)
    return reason.replace("Expecting )", "a closing ) is missing").rstrip(".") + "."


class _Rewriter:
    def __init__(self, opener: Opener, *, carries_mappings: bool) -> None:
        self.opener = opener
        self.carries_mappings = carries_mappings
        """Whether the engine's functions take a mapping beside the query."""
        self.every: dict[int, Sources] = {}
        """The sources of each SELECT, by the id of its expression."""
        self.opened: dict[tuple[Any, ...], Table | pa.Table] = {}
        self.relations: list[Relation] = []
        self.foreign: dict[str, pa.Table | ds.Dataset] = {}
        self.searches: list[PushedSearch] = []
        self.hidden = 0

    def visit(self, scope: Scope, sources: Sources) -> None:
        select = scope.expression
        complete = self.push_conditions(select, sources)
        for call in [c for c in scope.find_all(exp.Anonymous) if is_search(c)]:
            self.place_search(call, scope, sources)
        for call in [c for c in scope.find_all(exp.Anonymous) if is_snippet(c)]:
            self.place_snippet(call, scope, sources)
        self.place_scores(scope, sources)
        self.place_identity(scope, sources)
        if complete:
            push_limit(select, sources)
        hide(select, sources)

    # --- tables

    def sources(self, scope: Scope) -> Sources:
        relations: dict[str, Relation] = {}
        other_names: set[str] = set()
        for alias, source in scope.sources.items():
            # Tables of a query around this one are sources too, but not its own.
            if isinstance(source, exp.Table) and any(node is source for node in scope.tables):
                rows = self.relation(source)
                if isinstance(rows, Relation):
                    relations[alias.lower()] = rows
                else:
                    other_names.update(name.lower() for name in rows.names)
        return Sources(relations, other_names, *joins(scope.expression))

    def relation(self, node: Any) -> Relation | pa.Schema:
        parts = tuple(part.name for part in node.parts)
        if not all(isinstance(part, exp.Identifier) for part in node.parts):
            raise EmbeddedQueryError(f"'{node.sql('spark')}' is not a table.")
        table = self.open(parts, *time_travel(node))
        if isinstance(table, pa.Schema):
            return table
        name = f"relation_{len(self.relations) + len(self.foreign)}"
        if not node.alias:
            quoted = bool(node.this.args.get("quoted"))
            node.set("alias", exp.TableAlias(this=exp.to_identifier(parts[-1], quoted=quoted)))
        node.set("this", exp.to_identifier(name, quoted=True))
        for key in ("db", "catalog", "version"):
            node.set(key, None)
        if isinstance(table, pa.Table | ds.Dataset):
            self.foreign[name] = table
            return table.schema
        self.relations.append(Relation(name, table))
        return self.relations[-1]

    def open(self, parts: tuple[str, ...], version: int | None, at: str | None) -> Any:
        """A table, once for the whole query: all references to it see one version."""
        key = (parts, version, at)
        if key not in self.opened:
            table = self.opener(parts, version, at)
            # The caller may write to the table, which moves the handle, while rows are read.
            self.opened[key] = copy.copy(table) if isinstance(table, Table) else table
        return self.opened[key]

    # --- conditions and searches

    def place_names(self, scope: Scope, sources: Sources) -> None:
        """Calls of `search` and its siblings, as calls of `indexquery` and its variants."""
        for node in [n for n in scope.find_all(exp.Anonymous) if is_search_name(n)]:
            shown = node.sql("spark", normalize_functions=False)
            replace(node, self.named_search(search_call(node), scope, sources), shown)
        for call in [n for n in scope.find_all(exp.Anonymous) if is_search(n)]:
            for column in searched_columns(call):
                path = sources.with_path(column)
                if path is not column:
                    replace(column, path, column.sql("spark"))

    def named_search(self, call: SearchCall, scope: Scope, sources: Sources) -> Any:
        columns, text = call.columns, exp.Literal.string(call.text)
        if columns is None:
            table = call.target.args.get("table")
            of = [exp.column(ALL_FIELDS, table=table.copy())] if table else []
            name = SEARCH_FUNCTION if of else f"{SEARCH_FUNCTION}all"
            return exp.Anonymous(this=name, expressions=[*of, text])
        columns = [sources.with_path(column) for column in columns]
        owners = [sources.owner(column) for column in columns]
        for column in columns:
            if call.kind is not None and column.name.lower() != ALL_FIELDS:
                check_kind(column.name, mapping_of(*self.origin(column, scope)), call.kind)
        if len(columns) == 1:
            return exp.Anonymous(this=SEARCH_FUNCTION, expressions=[columns[0].copy(), text])
        if owners[0] is not None and all(owner is owners[0] for owner in owners):
            target = exp.Tuple(expressions=[column.copy() for column in columns])
            return exp.Anonymous(this=SEVERAL_COLUMNS, expressions=[target, text])
        if call.mode == "query":
            raise EmbeddedQueryError(
                f"{call.name} with a query takes columns of one table. Search each with a call of "
                "its own, or search for plain words."
            )
        return _searched_one_by_one(call.query, columns)

    def push_conditions(self, select: Any, sources: Sources) -> bool:
        """Push what can be pushed; returns whether that is everything."""
        where = select.args.get("where")
        complete = True
        for condition in list(conjuncts(where.this)) if where else []:
            relation = about(condition, sources)
            if relation is None or sources.is_padded(relation):
                complete = False
                continue
            call = condition.unnest()
            if is_search(call):
                relation.searches.append(search_parts(call))
            else:
                relation.conditions.append(unqualified(condition))
            if any(is_search(call) for call in condition.find_all(exp.Anonymous)):
                condition.replace(exp.true())
        return complete

    def place_search(self, call: Any, scope: Scope, sources: Sources) -> None:
        columns = searched_columns(call)
        relation = sources.owner(columns[0]) if columns else None
        if is_of_all_fields(columns):
            relation = sources.only(columns[0].table if columns else "")
            if relation is None:
                raise EmbeddedQueryError(
                    "A search of all fields needs one table to search: write t._indexall "
                    "indexquery '…' with the table's alias."
                )
        if relation is None:
            carried = self.carried_mapping(columns[0], scope)
            call.set("this", MAPPED_SEARCH if carried else SEARCH_FUNCTION)
            call.set("expressions", [*call.expressions, *carried])
            return
        name = self.hidden_column(relation.masks, unqualified(call))
        shown = call.sql("spark", normalize_functions=False)
        # A row that an outer join pads with nulls has no words.
        padded = sources.is_padded(relation) and finds_nulls(relation, unqualified(call))
        value = exp.Coalesce(this=exp.column(name, quoted=True),
                             expressions=[exp.true() if padded else exp.false()])  # fmt: skip
        replace(call, value, shown)

    def place_snippet(self, call: Any, scope: Scope, sources: Sources) -> None:
        column, query = snippet_parts(call, self.searches)
        relation = sources.owner(column)
        if relation is None:
            carried = self.carried_mapping(column, scope)
            call.set("this", MAPPED_SNIPPET if carried else SNIPPET)
            call.set("expressions", [column, exp.Literal.string(query), *carried])
            return
        search = PushedSearch(query, ((column.name,),)).condition()
        name = self.hidden_column(relation.snippets, (column.name, search))
        shown = call.sql("spark", normalize_functions=False)
        value = exp.Coalesce(this=exp.column(name, quoted=True),
                             expressions=[exp.Literal.string("")])  # fmt: skip
        replace(call, value, shown)

    def carried_mapping(self, column: Any, scope: Scope) -> list[Any]:
        """The mapping of a column that comes from an index table, if it is not the default one."""
        origin = self.origin(column, scope)
        if not self.carries_mappings or origin[1] is None:
            return []
        text = value_mapping(mapping_of(*origin))
        return [] if text is None else [exp.Literal.string(text)]

    def origin(self, column: Any, scope: Scope) -> tuple[Any, Relation | None]:
        """The column of a table that a column is, through subqueries, and the relation with it.

        Without a relation the value is computed, or of rows that are not an index table's.
        """
        origins = list(self._origins(root_column(column), scope, set()))
        return origins[0] if len(origins) == 1 else (column, None)

    def _origins(
        self, column: Any, scope: Scope, path: set[tuple[int, str]]
    ) -> Iterator[tuple[Any, Relation]]:
        step = (id(scope.expression), column.sql("spark").lower())
        if not isinstance(column, exp.Column) or step in path:
            return
        path.add(step)  # a recursion reads itself
        sources = self.every.get(step[0])
        relation = sources.owner(column) if sources else None
        if relation is not None:
            yield column, relation
            return
        for inner, within in handed_on(column, scope):
            yield from self._origins(inner, within, path)

    def place_scores(self, scope: Scope, sources: Sources) -> None:
        for column in list(scope.columns):
            if column.name.lower() != SCORE or sources.owner(column) is not None:
                continue
            relation = sources.only(column.table) or searched_one(sources)
            if relation is None:
                continue
            if len(relation.searches) != 1:
                raise EmbeddedQueryError(
                    f"{SCORE} is the score of a search, but the query has "
                    f"{len(relation.searches)} searches of that table in its WHERE. Write one, "
                    "joined with AND to the rest."
                )
            relation.score = relation.score or self.hidden_name()
            replace(column, exp.column(relation.score, quoted=True), SCORE)

    def place_identity(self, scope: Scope, sources: Sources) -> None:
        """The columns that name rows, of the only table or of the one before the dot."""
        for column in list(scope.columns):
            name = column.name.lower()
            if name not in ROW_IDENTITY or sources.owner(column) is not None:
                continue
            relation = sources.only(column.table)
            if relation is not None:
                hidden = self.hidden_column(relation.identity, name)
                replace(column, exp.column(hidden, quoted=True), name)

    def hidden_column(self, columns: dict[str, Any], content: Any) -> str:
        """The column with this content. An expression that is there twice must stay the same."""
        name = next((n for n, hidden in columns.items() if hidden == content), None)
        if name is None:
            name = self.hidden_name()
            columns[name] = content
        return name

    def hidden_name(self) -> str:
        self.hidden += 1
        return f"__hidden_{self.hidden}"  # in no other relation, so it needs no alias before it

    # --- names

    def rename(self, tree: Any) -> None:
        """Names of columns in their exact spelling, by which results and types are found."""
        spellings: dict[str, set[str]] = {}
        for relation in self.relations:
            for name in relation.table.schema.names:
                spellings.setdefault(name.lower(), set()).add(name)
        for rows in self.foreign.values():
            for name in rows.schema.names:
                spellings.setdefault(name.lower(), set()).add(name)
        for node in tree.find_all(exp.Column, exp.Alias):
            identifier = node.args.get("alias" if isinstance(node, exp.Alias) else "this")
            if not isinstance(identifier, exp.Identifier):
                continue
            exact = spellings.get(identifier.name.lower(), set())
            if identifier.name in exact or len(exact) == 1:
                name = identifier.name if identifier.name in exact else next(iter(exact))
                identifier.set("this", name)
                identifier.set("quoted", True)


def _searched_one_by_one(query: SearchNode, columns: list[Any]) -> Any:
    """Plain words over columns of different relations: each leaf is a search of each column."""
    if isinstance(query, Boolean):
        parts = [_searched_one_by_one(child, columns) for child in (*query.must, *query.should)]
        return exp.Paren(this=exp.and_(*parts) if query.must else exp.or_(*parts))
    text = exp.Literal.string(written(query))
    return exp.Paren(
        this=exp.or_(
            *(
                exp.Anonymous(this=SEARCH_FUNCTION, expressions=[column.copy(), text.copy()])
                for column in columns
            )
        )
    )
