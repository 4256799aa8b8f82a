"""The search functions in Spark's registry.

A function of the registry is built when its arguments are resolved: columns then have their types
and the metadata of their fields. Here a search gets the mappings of its columns as one more
argument, and the row of a search of all fields gets names that a struct of Arrow can have.
"""

from __future__ import annotations

import json

import pyarrow as pa

from indextables.config import Config
from indextables.errors import SchemaError, SearchCallError
from indextables.predicate.search_names import (
    SEARCH_NAMES,
    SEVERAL_COLUMNS,
    mode_of,
    query_text,
    usage,
)
from indextables.predicate.spark_tokens import ALL_FIELDS
from indextables.predicate.tree import ColumnKind
from indextables.schema import from_json
from indextables.spark.bridge.jvm.handles import JavaObject, Jvm, implements
from indextables.spark.bridge.scan.filters import Node, parse_tree
from indextables.spark.schemas import MAPPING_KEY as KEY
from indextables.spark.schemas import mapping_in
from indextables.split.mapping import FieldMapping
from indextables.split.mapping_options import build_mapping
from indextables.split.search import check_kind
from indextables.statements.search_calls import ALL_COLUMNS, ONE_COLUMN
from indextables.statements.search_functions import Searched, check_search, unique_names

_DESCRIPTION = "A search of indextables."
_EXPRESSIONS = "org.apache.spark.sql.catalyst.expressions."
_STRUCT = "org.apache.spark.sql.types.StructType"
_TYPES = "org.apache.spark.sql.catalyst.types.DataTypeUtils"

Fields = dict[str, FieldMapping]


@implements("scala.Function1")
class SearchBuilder:
    """Makes the call of a search from its resolved arguments."""

    def __init__(self, java: Jvm, name: str, original: JavaObject) -> None:
        self.java = java
        self._name = name
        self._original = original

    def apply(self, arguments: JavaObject) -> JavaObject:
        columns = [arguments.apply(number) for number in range(arguments.size()) if number != 1]
        for fields in columns[1:]:
            _check_columns(fields)
        if columns and _is_row(columns[0]):
            columns[0] = self._without_repeated_names(columns[0])
            arguments = arguments.updated(0, columns[0])
        searched = searched_columns(self.java, columns)
        if len(columns) < arguments.size():
            self._check(columns, arguments.apply(1), searched or Searched())
        if searched is not None:
            arguments = arguments.appended(self._literal(searched.to_json()))
        return self._original.apply(arguments)

    def _check(self, columns: list[JavaObject], query: JavaObject, searched: Searched) -> None:
        """Refuse a search that every task would refuse."""
        if query.nodeName() != "Literal" or query.dataType().typeName() != "string":
            return
        try:
            types = [field.type for field in _schema(self.java, columns)]
        except SchemaError:
            return  # as of a null without a type
        shown = columns[0].name() if columns[0].nodeName() == "AttributeReference" else ""
        text = str(query.value().toString())
        function = self._name.removeprefix("tantivy4spark_").removeprefix("indextables_")
        check_search(function, types, text, searched, operand=str(shown))

    def _literal(self, text: str) -> JavaObject:
        return self.java.module(_EXPRESSIONS + "Literal").apply(text)

    def _without_repeated_names(self, row: JavaObject) -> JavaObject:
        """The row of joined tables, whose columns may have the same names."""
        names = [str(name) for name in row.dataType().fieldNames()]
        unique = unique_names(names)
        if unique == names:
            return row
        children = row.children()
        parts = []
        for number, name in enumerate(unique):
            parts += [self._literal(name), children.apply(2 * number + 1)]
        return self.java.find(_EXPRESSIONS + "CreateNamedStruct")(self.java.seq(parts))


@implements("scala.Function1")
class NameBuilder:
    """Makes the call of `search` and its siblings: one of the searches above."""

    def __init__(self, java: Jvm, name: str) -> None:
        self.java = java
        self._name = name

    def apply(self, arguments: JavaObject) -> JavaObject:
        operands = [arguments.apply(number) for number in range(arguments.size())]
        mode = None
        if operands and operands[-1].nodeName() == "NamedArgumentExpression":
            if operands[-1].key().lower() != "mode":
                raise SearchCallError(self._name, usage(self._name))
            mode = self._text(operands.pop().value())
        fields = operands[2:] if _is_row(operands[-1]) else []
        operands = operands[:2] if fields else operands
        if len(operands) == 3 and mode is None and operands[1].foldable():
            mode = self._text(operands.pop())
        if len(operands) < 2:
            raise SearchCallError(self._name, usage(self._name))
        *columns, words = operands
        chosen = mode_of(self._name, mode)
        text = query_text(self._text(words), chosen)
        return self._call(columns, text, fields)

    def _call(self, columns: list[JavaObject], text: str, fields: list[JavaObject]) -> JavaObject:
        target, name = columns[0], ONE_COLUMN[0]
        named = SEARCH_NAMES[self._name]
        if len(columns) > 1:  # a star, which Spark has replaced
            target, name = self._row(columns), ALL_COLUMNS[0]
        elif named.every_column or _is_all_fields(target):
            name = ALL_COLUMNS[0]
        elif _is_row(target):
            name = SEVERAL_COLUMNS
        elif named.kind is not None:
            self._check_kind(target, named.kind)
        literal = self.java.module(_EXPRESSIONS + "Literal").apply(text)
        return _builder(self.java, name).apply(self.java.seq([target, literal, *fields]))

    def _row(self, columns: list[JavaObject]) -> JavaObject:
        literal = self.java.module(_EXPRESSIONS + "Literal").apply
        parts = [part for c in columns for part in (literal(c.name()), c)]
        return self.java.find(_EXPRESSIONS + "CreateNamedStruct")(self.java.seq(parts))

    def _check_kind(self, target: JavaObject, kind: ColumnKind) -> None:
        searched = searched_columns(self.java, [target])
        shown = str(target.sql())
        default = build_mapping(_schema(self.java, [target]), Config()).fields[0]
        mapping = searched.operand if searched is not None else None
        check_kind(shown, mapping or default, kind)

    def _text(self, expression: JavaObject) -> str:
        if not expression.foldable():
            raise SearchCallError(
                self._name,
                "takes words in quotes or a parameter, and no column: they must be known before "
                "the search is planned.",
            )
        value = expression.eval(None)
        if value is None or expression.dataType().typeName() != "string":
            raise SearchCallError(self._name, usage(self._name))
        return str(value.toString())


def _is_row(expression: JavaObject) -> bool:
    return bool(expression.nodeName() == "CreateNamedStruct")


def _check_columns(fields: JavaObject) -> None:
    """Refuse what a search names as a field and no column has as its name.

    Where there is no such column Spark takes `user` or `current_date` as a function without
    parentheses, and any name as a variable of the session. A search of that value would be silent.
    """
    if not _is_row(fields):
        return
    children = fields.children()
    for at in range(0, children.size(), 2):
        value = children.apply(at + 1)
        if value.references().isEmpty() and value.nodeName() != "OuterReference":
            raise SearchCallError(
                ONE_COLUMN[0],
                f"has a query that names the field '{children.apply(at)}', which is not a column "
                f"here: in SQL it is {value.sql()}. If the text before the colon is not a field, "
                "quote it or write \\: for the colon.",
            )


def _is_all_fields(expression: JavaObject) -> bool:
    return bool(expression.nodeName() == "AttributeReference" and expression.name() == ALL_FIELDS)


def _is_struct(column_type: object) -> bool:
    return isinstance(column_type, dict) and column_type.get("type") == "struct"


def searched_columns(java: Jvm, columns: list[JavaObject]) -> Searched | None:
    """The mappings that columns of a call carry; None where none does."""
    mappings = {k: v for column in columns for k, v in _mappings(java, column).items()}
    if not mappings:
        return None
    return _searched([parse_tree(column.toJSON()) for column in columns], mappings)


def _mappings(java: Jvm, expression: JavaObject) -> dict[int, Fields]:
    """The mappings that the columns of an expression carry, by the columns' ids.

    Those of a column that is a row are those of its fields; its own has no name.
    """
    columns = expression.references().toSeq()
    # The JSON of an expression leaves metadata out; that of a schema is one call for all.
    schema = java.module(_TYPES).fromAttributes(columns).json()
    if KEY not in schema:
        return {}
    by_column = {}
    for number, column in enumerate(json.loads(schema)["fields"]):
        inner = column["type"]["fields"] if _is_struct(column["type"]) else ()
        every = {"": column, **{field["name"]: field for field in inner}}
        carried = {name: mapping_in(field["metadata"]) for name, field in every.items()}
        id_ = columns.apply(number).exprId().id()
        by_column[id_] = {name: mapping for name, mapping in carried.items() if mapping}
    return by_column


def _schema(java: Jvm, expressions: list[JavaObject]) -> pa.Schema:
    """The types of expressions, in one call for the JSON of all."""
    schema = java.find(_STRUCT)()
    for number, expression in enumerate(expressions):
        schema = schema.add(f"column{number}", expression.dataType())
    return from_json(schema.json())


def _searched(arguments: list[Node], mappings: dict[int, Fields]) -> Searched:
    """The mappings of a call, by what its arguments are; those without its query."""
    operand: FieldMapping | None = None
    path: tuple[str, ...] = ()
    fields: dict[str, FieldMapping] = {}
    for at, node in enumerate(arguments):
        if node.class_name == "CreateNamedStruct":
            for name, value in zip(node.children[::2], node.children[1::2], strict=True):
                carried = mappings.get(_column_id(value), {})
                if "" in carried:
                    fields[name.fields["value"]] = carried[""]
        elif at == 0:
            column = node
            while column.class_name == "GetStructField":
                path = (column.fields["name"] or "", *path)
                column = column.children[0]
            fields |= mappings.get(_column_id(column), {})
            operand = fields.pop("", None)
    return Searched(operand, path if operand else (), fields)


def _column_id(node: Node) -> int:
    """The id of a column; -1 for anything that is computed."""
    return int(node.fields["exprId"]["id"]) if node.class_name == "AttributeReference" else -1


def install_search(java: Jvm, name: str, *, everywhere: bool) -> None:
    """Let a temporary function of the session have the mappings of its columns.

    `everywhere` makes it a built-in one: a persistent view may then use it, and sessions made later
    have it.
    """
    catalyst = java.jvm.org.apache.spark.sql.catalyst
    registry = java.session.sessionState().functionRegistry()
    builtin = catalyst.analysis.FunctionRegistry.builtin()
    target, temporary = _identifiers(java, name)
    builder: SearchBuilder | NameBuilder
    if name in SEARCH_NAMES and name != SEVERAL_COLUMNS:
        builder = NameBuilder(java, name)
    else:
        builder = SearchBuilder(java, name, registry.lookupFunctionBuilder(temporary).get())
    information = catalyst.expressions.ExpressionInfo("indextables", None, name, _DESCRIPTION, "")
    registry.dropFunction(temporary)  # Spark warns of a function that is replaced
    if not everywhere:
        registry.registerFunction(temporary, information, builder)
        return
    for each in (builtin, registry):
        each.registerFunction(target, information, builder)


def _identifiers(java: Jvm, name: str) -> tuple[JavaObject, JavaObject]:
    """The names of a built-in and of a temporary function."""
    catalyst = java.jvm.org.apache.spark.sql.catalyst
    # Since Spark 4.3 functions have a catalog and a schema: system.builtin and system.session.
    builtin = catalyst.analysis.FunctionRegistry.builtin().listFunction().head()
    target = catalyst.FunctionIdentifier(name, builtin.database(), builtin.catalog())
    if not builtin.database().isDefined():
        return target, target
    return target, catalyst.FunctionIdentifier(name, java.some("session"), builtin.catalog())


def _builder(java: Jvm, name: str) -> JavaObject:
    """What makes a call of a search that is installed."""
    catalyst = java.jvm.org.apache.spark.sql.catalyst
    builtin = catalyst.analysis.FunctionRegistry.builtin()
    return builtin.lookupFunctionBuilder(_identifiers(java, name)[0]).get()
