"""Relations of a query: which columns they read, and which conditions their scans may evaluate.

A condition may be pushed to the scan of a table only if the scan means exactly the same by it. Of
searches that is always so: they are ours. Of comparisons it is so where types and literals leave no
room for another reading.

The functions that look at the parts of a parsed query and change them are here as well. The headers
of its columns are what the query says, not what became of it for the engine.
"""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from sqlglot import Token, TokenType, exp
from sqlglot.dialects.spark import Spark
from sqlglot.optimizer.scope import Scope

from indextables.config import Config
from indextables.errors import EmbeddedQueryError, SearchCallError
from indextables.predicate import searches
from indextables.predicate.literals import quoted_name, sql_text
from indextables.predicate.search_names import SEVERAL_COLUMNS
from indextables.predicate.spark_tokens import ALL_FIELDS
from indextables.predicate.sql_text import parse_predicate
from indextables.schema import ROW_IDENTITY
from indextables.split.mapping import FieldMapping, TableMapping
from indextables.split.mapping_options import build_mapping
from indextables.split.search import search_rows
from indextables.statements.search_calls import ALL_COLUMNS, ONE_COLUMN, SNIPPET

if TYPE_CHECKING:
    from indextables.table import Table


VALUE = "value"
"""The column that values are to the engine's functions that search them."""

_MAX_DEPTH = 150
"""The highest that `indexquery.maxDepth` can be."""

_SEARCHES = frozenset((*ONE_COLUMN, *ALL_COLUMNS, SEVERAL_COLUMNS))
_DATE = re.compile(r"\d{4}-\d\d-\d\d")


@dataclass(frozen=True)
class PushedSearch:
    """A search as a table understands it; without columns it is one of all."""

    query: str
    columns: tuple[tuple[str, ...], ...] = ()
    """The names of each: of the column, and of the fields that lead into JSON."""

    def condition(self) -> str:
        """The search as a condition.

        >>> PushedSearch("it's", (("a b", "c"),)).condition()
        "`a b`.`c` indexquery 'it\\\\'s'"
        """
        quoted = sql_text(self.query)
        match [".".join(map(quoted_name, names)) for names in self.columns]:
            case []:
                return f"indexqueryall({quoted})"
            case [column]:
                return f"{column} indexquery {quoted}"
            case columns:
                return f"{SEVERAL_COLUMNS}(({', '.join(columns)}), {quoted})"


@dataclass
class Relation:
    """One reference to a table in a query, and the request to its scan."""

    name: str
    table: Table
    conditions: list[str] = field(default_factory=list)
    """Conditions that its rows must meet, beside `searches`."""
    searches: list[PushedSearch] = field(default_factory=list)
    """Pushed searches that are a condition by themselves."""
    masks: dict[str, str] = field(default_factory=dict)
    """Hidden columns that say whether a search finds the row."""
    snippets: dict[str, tuple[str, str]] = field(default_factory=dict)
    """Hidden columns that show what a search finds: the column with the text, and the search."""
    identity: dict[str, str] = field(default_factory=dict)
    """Hidden columns that name rows, with what they are: `_split` or `_row`."""
    score: str | None = None
    """The hidden column of scores."""
    limit: int | None = None
    """How many of the best rows are wanted; all without it."""

    @property
    def schema(self) -> pa.Schema:
        """The columns that the engine sees."""
        fields = [f.with_nullable(True) for f in self.table.schema]
        fields += [pa.field(name, pa.bool_()) for name in self.masks]
        fields += [pa.field(name, pa.string()) for name in self.snippets]
        fields += [pa.field(name, ROW_IDENTITY[part]) for name, part in self.identity.items()]
        if self.score:
            fields.append(pa.field(self.score, pa.float32()))
        return pa.schema(fields)

    def to_json(self) -> str:
        """The request to the scan, for another process; `from_json` reads it."""
        document = {f.name: getattr(self, f.name) for f in fields(self) if f.name != "table"}
        document["searches"] = [[search.query, search.columns] for search in self.searches]
        return json.dumps(document)

    @classmethod
    def from_json(cls, text: str, table: Table) -> Relation:
        """The relation that `to_json` wrote, for a table."""
        document = json.loads(text)
        document["searches"] = [
            PushedSearch(query, tuple(map(tuple, columns)))
            for query, columns in document["searches"]
        ]
        return cls(table=table, **document)

    @property
    def condition(self) -> str | None:
        """All conditions that rows must meet."""
        searches = [search.condition() for search in self.searches]
        return " AND ".join(f"({c})" for c in [*self.conditions, *searches]) or None

    @property
    def hidden(self) -> list[str]:
        """Columns that `*` does not show."""
        return [*self.masks, *self.snippets, *self.identity, *([self.score] if self.score else [])]


@dataclass
class Sources:
    """The tables of one SELECT by their lower-case alias."""

    relations: dict[str, Relation]
    foreign_columns: set[str]
    """Columns of relations that are not index tables."""
    padded: set[str]
    visible: set[str]

    def owner(self, column: Any) -> Relation | None:
        """The relation that a column belongs to; None if that is unknown."""
        column = root_column(column)
        if not isinstance(column, exp.Column) or column.args.get("db"):
            return None
        if column.table:
            relation = self.relations.get(column.table.lower())
            return relation if relation and _exact(column.name, relation) else None
        if column.name.lower() in self.foreign_columns:
            return None
        owners = [r for a, r in self.relations.items() if a in self.visible
                 and _exact(column.name, r)]  # fmt: skip
        return owners[0] if len(owners) == 1 else None

    def with_path(self, column: Any) -> Any:
        """A field in a column, `doc.user` or `t.doc.user`, apart from the table before it.

        The parser takes the first name for the table's. Any other column is returned unchanged.
        """
        if not isinstance(column, exp.Column | exp.Dot) or self.owner(column) is not None:
            return column
        first, *nested = column.parts
        readings: list[tuple[Any, list[Any]]] = [(None, [first, *nested])]
        if first.name.lower() in self.relations:
            readings.insert(0, (first, nested))
        for table, (name, *path) in readings:
            root = exp.Column(this=name.copy(), table=table and table.copy())
            if path and self.owner(root) is not None:
                return exp.Dot.build([root, *(part.copy() for part in path)])
        return column

    def only(self, alias: str) -> Relation | None:
        """The relation of an alias, or the only one there is."""
        if alias:
            return self.relations.get(alias.lower())
        visible = [r for a, r in self.relations.items() if a in self.visible]
        return visible[0] if len(visible) == 1 else None

    def is_padded(self, relation: Relation) -> bool:
        return any(r is relation and alias in self.padded for alias, r in self.relations.items())


def root_column(column: Any) -> Any:
    """The column that a field is in; a column itself."""
    return root_column(column.this) if isinstance(column, exp.Dot) else column


def is_search(node: Any) -> bool:
    return isinstance(node, exp.Anonymous) and node.name.lower() in _SEARCHES


def is_snippet(node: Any) -> bool:
    return isinstance(node, exp.Anonymous) and node.name.lower() == SNIPPET


def searched_columns(call: Any) -> list[Any]:
    """The columns of a search; none if it searches all fields of the row."""
    name, arguments = call.name.lower(), call.expressions
    count = 1 if name in ALL_COLUMNS else 2
    if len(arguments) != count or not arguments[-1].is_string:
        expected = "a search query in quotes" if count == 1 else "a column and a query in quotes"
        raise EmbeddedQueryError(f"{call.name} takes {expected}, not {call.sql('spark')}.")
    if count == 1:
        return []
    if name == SEVERAL_COLUMNS:
        return list(arguments[0].expressions)
    return [exp.column(arguments[0].name) if arguments[0].is_string else arguments[0]]


def is_of_all_fields(columns: list[Any]) -> bool:
    return not columns or columns[0].name.lower() == ALL_FIELDS


def search_parts(call: Any) -> PushedSearch:
    columns = searched_columns(call)
    names = () if is_of_all_fields(columns) else tuple(map(_names, columns))
    return PushedSearch(call.expressions[-1].name, names)


def _names(column: Any) -> tuple[str, ...]:
    return (*_names(column.this), column.name) if isinstance(column, exp.Dot) else (column.name,)


def snippet_parts(call: Any, searches: list[PushedSearch]) -> tuple[Any, str]:
    """The text and the query of a snippet; without one it shows the query's search of the text."""
    arguments = call.expressions
    if len(arguments) == 2 and arguments[1].is_string:
        return arguments[0], arguments[1].name
    if len(arguments) != 1:
        raise SearchCallError(call.name, "takes a column, and a search query in quotes after it.")
    column = arguments[0].name.lower()
    queries = {
        search.query
        for search in searches
        if not search.columns or column in [".".join(names).lower() for names in search.columns]
    }
    if len(queries) != 1:
        raise SearchCallError(
            call.name,
            f"cannot tell which search to show: the query has {len(queries)} different ones of "
            "that column. Write the search as a second argument.",
        )
    return arguments[0], queries.pop()


def about(condition: Any, sources: Sources) -> Relation | None:
    """The one relation that a condition is about, if the scan means the same by it."""
    match condition:
        case exp.And() | exp.Or():
            left, right = about(condition.left, sources), about(condition.right, sources)
            return left if left is right else None
        case exp.Not() | exp.Paren():
            return about(condition.this, sources)
        case exp.Anonymous() if is_search(condition):
            columns = searched_columns(condition)
            if is_of_all_fields(columns):
                return sources.only(columns[0].table if columns else "")
            return sources.owner(columns[0])  # several are of one relation
        case exp.Is() if isinstance(condition.expression, exp.Null):
            return sources.owner(condition.this)
        case exp.In() if condition.expressions and not condition.args.get("query"):
            return _comparable(condition.this, condition.expressions, sources)
        case exp.Between():
            return _comparable(
                condition.this, [condition.args["low"], condition.args["high"]], sources
            )
        case exp.EQ() | exp.NEQ() | exp.LT() | exp.LTE() | exp.GT() | exp.GTE():
            sides = [condition.left, condition.right]
            if isinstance(sides[1], exp.Column):
                sides.reverse()
            return _comparable(sides[0], sides[1:], sources)
        case _:
            return None


def _comparable(column: Any, values: list[Any], sources: Sources) -> Relation | None:
    """The owner of a column, if every engine compares it with these literals in the same way."""
    relation = sources.owner(column)
    if relation is None:
        return None
    data_type = _type(column, relation)
    for signed in values:
        value = signed.this if isinstance(signed, exp.Neg) else signed
        if not isinstance(value, exp.Literal):
            return None
        if pa.types.is_floating(data_type):
            fits = value.is_number or signed is value
        elif pa.types.is_integer(data_type):
            fits = value.is_int
        elif pa.types.is_string(data_type):
            fits = signed.is_string
        else:
            is_date = signed.is_string and bool(_DATE.fullmatch(value.name))
            fits = is_date and pa.types.is_date(data_type)
        if not fits:
            return None
    return relation


def _type(column: Any, relation: Relation) -> pa.DataType:
    data_type: pa.DataType = relation.table.schema.field(_exact(column.name, relation) or "").type
    return data_type


def unqualified(node: Any) -> str:
    """A condition as the scan of its table reads it."""

    def bare(part: Any) -> Any:
        if isinstance(part, exp.Column) and part.table:
            return exp.Column(this=part.this.copy())
        return part

    text: str = node.copy().transform(bare).sql(dialect="spark")
    return text


def _exact(name: str, relation: Relation) -> str | None:
    names = relation.table.schema.names
    if name in names:
        return name
    return next((n for n in names if n.lower() == name.lower()), None)


def mapping_of(column: Any, relation: Relation | None) -> FieldMapping:
    """How a column is searched; one of no relation as a column of a new table would be."""
    column = root_column(column)
    if relation is None:
        schema = pa.schema([pa.field(column.name, pa.string())])
        return build_mapping(schema, Config()).fields[0]
    return relation.table.view.shown.mapping.by_name[_exact(column.name, relation) or ""]


def value_mapping(field: FieldMapping) -> str | None:
    """How values of a column are searched, as JSON; None if as the default mapping does it."""
    if field.kind not in ("text", "string", "json", "ip") or not field.indexed:
        return None
    usual = build_mapping(pa.schema([(VALUE, pa.string())]), Config()).fields[0]
    if field.fingerprint == usual.fingerprint and not field.synonyms:
        return None
    field = dataclasses.replace(usual, **{
        key: getattr(field, key)
        for key in ("kind", "tokenizer", "token_length", "record", "synonyms")
    })  # fmt: skip
    return TableMapping((field,)).to_json(with_synonyms=True)


def finds_nulls(relation: Relation, condition: str) -> bool:
    """Whether a search finds a row of nothing but nulls, as `NOT red` does."""
    schema = relation.table.schema
    rows = pa.table([pa.nulls(1, f.type) for f in schema], names=schema.names)
    predicate = parse_predicate(
        condition, schema, max_query_length=len(condition), max_query_depth=_MAX_DEPTH
    )
    mapping = relation.table.view.shown.mapping
    return any(bool(search_rows(search, rows, mapping)[0]) for search in searches(predicate))


def handed_on(column: Any, scope: Scope) -> list[tuple[Any, Scope]]:
    """What a column may be in the subqueries that a query reads, and where that is.

    Nothing of a value that is computed.
    """
    alias = column.table.lower()
    inner = [
        step
        for name, source in scope.sources.items()
        if isinstance(source, Scope) and alias in ("", name.lower())
        for step in _selected(column.name, source)
    ]
    if not inner and scope.parent and (scope.can_be_correlated or scope.is_set_operation):
        return [(column, scope.parent)]  # of a query around this one
    return inner


def _selected(name: str, scope: Scope) -> list[tuple[Any, Scope]]:
    """What a column may be that a query returns: of a union, the column of its first part."""
    names = [column.lower() for column in scope.outer_columns]
    while scope.set_operation_scopes:
        scope = scope.set_operation_scopes[0]
    items = scope.expression.selects if isinstance(scope.expression, exp.Select) else []
    if names:
        at = names.index(name.lower()) if name.lower() in names else len(items)
        return [(item.unalias(), scope) for item in items[at : at + 1]]
    named = [item for item in items if item.alias_or_name.lower() == name.lower()]
    stars = [exp.column(name, table=item.args.get("table")) for item in items if item.is_star]
    return [(item.unalias(), scope) for item in named] or [(star, scope) for star in stars]


# --- the parts of a parsed query -------------------------------------------------------------

_OPENING = (TokenType.L_PAREN, TokenType.L_BRACKET, TokenType.L_BRACE)
_CLOSING = (TokenType.R_PAREN, TokenType.R_BRACKET, TokenType.R_BRACE)
_AFTER = (
    TokenType.FROM, TokenType.WHERE, TokenType.GROUP_BY, TokenType.HAVING, TokenType.ORDER_BY,
    TokenType.LIMIT, TokenType.UNION, TokenType.EXCEPT, TokenType.INTERSECT, TokenType.SEMICOLON,
)  # fmt: skip


def joins(select: Any) -> tuple[set[str], set[str]]:
    """Aliases that an outer join may pad with nulls, and those that the query can see."""
    first = select.args.get("from_")
    aliases: list[str] = [first.this.alias_or_name.lower()] if first else []
    padded: set[str] = set()
    unseen: set[str] = set()
    for join in select.args.get("joins") or []:
        alias = join.alias_or_name.lower()
        side, join_kind = (join.side or "").upper(), (join.kind or "").upper()
        if join_kind in ("SEMI", "ANTI"):
            unseen.add(alias)
            continue
        if side in ("RIGHT", "FULL"):
            padded.update(aliases)
        if side in ("LEFT", "FULL"):
            padded.add(alias)
        aliases.append(alias)
    aliases += [lateral.alias_or_name.lower() for lateral in select.args.get("laterals") or []]
    return padded, set(aliases) - unseen


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
    searched = [r for r in sources.relations.values() if r.searches]
    return searched[0] if len(searched) == 1 else None


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
        token_type = token.token_type
        depth += (token_type in _OPENING) - (token_type in _CLOSING)
        if not items:
            if token_type == TokenType.SELECT and depth == 0:
                items.append([])
        elif depth == 0 and token_type in _AFTER and before != TokenType.DISTINCT:
            break
        elif depth == 0 and token_type == TokenType.COMMA:
            items.append([])
        elif items[-1] or len(items) > 1 or token_type not in (TokenType.DISTINCT, TokenType.ALL):
            items[-1].append(token)
        before = token_type
    return [" ".join(sql[i[0].start : i[-1].end + 1].split()) for i in items if i]
