"""Spark Connect: what a client sends to the server, where the tables are.

A client may not see the tables at all, so nothing here opens one:

- A query that names index tables by their paths is taken apart as `query.rewrite` does. Each table
  becomes a read that brings the answers of its searches, its scores and its snippets along, all by
  the index and the mapping of the table; Spark's own push-down of conditions to Python sources
  loses rows and is not used. What is left of the query is Spark's.
- Our statements run in a Python worker of the server, as a table function.
"""

from __future__ import annotations

import io
import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from sqlglot import exp

from indextables.config import Config, session_keys
from indextables.errors import EmbeddedQueryError, IndexTablesError, StatementError
from indextables.plan.source_options import NAME
from indextables.predicate.literals import quoted_name
from indextables.spark.bridge.sessions import session_settings
from indextables.spark.schemas import mapping_in, table_schema
from indextables.split.mapping import TableMapping
from indextables.split.mapping_options import build_mapping
from indextables.statements.forms import Target
from indextables.statements.statements import Statement, parse
from indextables.storage import open_store

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from indextables.query.relations import Relation
    from indextables.table import Table

STATEMENT = "indextables_statement"
_BY_PATH = re.compile(rf"\b{NAME}\s*\.\s*`", re.IGNORECASE)


# --- queries -------------------------------------------------------------------------------------


@dataclass
class RemoteTable:
    """A table that only the server sees: its columns and how they are searched."""

    path: str
    options: dict[str, str]
    fields: StructType

    @cached_property
    def schema(self) -> pa.Schema:
        """The columns."""
        return table_schema(self.fields)

    @cached_property
    def view(self) -> Any:
        """Where the mapping of a table is found."""
        default = build_mapping(self.schema, Config()).by_name
        mappings = [mapping_in(f.metadata or {}) or default[f.name] for f in self.fields.fields]
        return SimpleNamespace(shown=SimpleNamespace(mapping=TableMapping(tuple(mappings))))


def with_relations(
    spark: SparkSession, text: str, args: object
) -> tuple[str, dict[str, DataFrame]] | None:
    """A query with names in braces for the index tables that it names by their paths, and the
    frames of these names; None if it names none or is not a query."""
    if _BY_PATH.search(text) is None:
        return None
    from indextables.query.rewrite import relations_of

    named = args if isinstance(args, Mapping) else {}

    def opened(parts: tuple[str, ...], version: int | None, at: str | None) -> Any:
        if len(parts) != 2 or parts[0].lower() != NAME:
            return table_schema(spark.table(".".join(map(quoted_name, parts))).schema)
        options = {} if version is None else {"versionAsOf": str(version)}
        options |= {} if at is None else {"timestampAsOf": at}
        frame = spark.read.format(NAME).options(**options).load(parts[1])
        return RemoteTable(parts[1], options, frame.schema)

    def bound(node: Any) -> Any:
        value = named.get(node.name) if isinstance(node, exp.Placeholder) else None
        return exp.Literal.string(value) if isinstance(value, str) else node

    try:
        tree, relations = relations_of(text, opened, bound)
    except EmbeddedQueryError as error:
        if "not one query" in str(error):
            return None
        raise
    prepared = tree.sql(dialect="spark").replace("{", "{{").replace("}", "}}")
    frames = {}
    for relation in relations:
        prepared = prepared.replace(f"`{relation.name}`", f"{{{relation.name}}}")
        frames[relation.name] = _frame(spark, relation)
    return prepared, frames


def _frame(spark: SparkSession, relation: Relation) -> DataFrame:
    table: Any = relation.table
    zone = spark.conf.get("spark.sql.session.timeZone") or "UTC"
    reader = spark.read.format(NAME).options(**table.options).option("timezone", zone)
    return reader.option("relation", relation.to_json()).load(table.path)


# --- statements ----------------------------------------------------------------------------------


class ServerStatement:
    """The table function that runs a statement of ours; one row with Arrow's stream of its rows."""

    def eval(self, text: str, settings: str, timezone: str) -> Iterator[tuple[bytes]]:
        """Run it."""
        from indextables.statements.execute import Session, execute
        from indextables.table import Table

        config = json.loads(settings)

        def resolve(target: Target) -> Table:
            return Table.open(path_of(target), config=config)

        session = Session(
            resolve=resolve,
            config=Config(config),
            timezone=timezone,
            open_store=lambda uri: open_store(uri, {}),
        )
        statement = parse(text)
        assert statement is not None
        try:
            rows = execute(statement, session)
        except IndexTablesError as error:
            rows = pa.table({_FAILED: [str(error)]})
        sink = io.BytesIO()
        with pa.ipc.new_stream(sink, rows.schema) as writer:
            writer.write_table(rows)
        yield (sink.getvalue(),)


_FAILED = "_indextables_error"


def path_of(target: Target) -> str:
    """The path of a statement's table; names are in no catalog that a worker has."""
    if target.path is not None:
        return target.path
    if len(target.name) == 2 and target.name[0].lower() == NAME:
        return target.name[1]
    raise StatementError(
        f"{target} is the name of a table, and on Spark Connect there is no catalog of index "
        f"tables. Write the table's path: 'path' or {NAME}.`path`."
    )


def names_path(statement: Statement) -> bool:
    """Whether the table of a statement is named by its path, or it has none."""
    target = getattr(statement, "table", None)
    return (
        not isinstance(target, Target)
        or target.path is not None
        or (len(target.name) == 2 and target.name[0].lower() == NAME)
    )


def register(spark: SparkSession) -> None:
    """Make the table function of statements part of a session."""
    from pyspark.sql.functions import udtf

    function: Any = udtf(ServerStatement, returnType="result binary")
    spark.udtf.register(STATEMENT, function)


def execute_on_server(
    original: Callable[..., DataFrame], spark: SparkSession, text: str
) -> DataFrame:
    """Run a statement in a worker of the server; its rows."""
    settings = {key: str(value) for key, value in session_keys(session_settings(spark)).items()}
    arguments = {
        "statement": text,
        "settings": json.dumps(settings),
        "zone": spark.conf.get("spark.sql.session.timeZone") or "UTC",
    }
    call = f"SELECT * FROM {STATEMENT}(:statement, :settings, :zone)"
    row = original(spark, call, arguments).collect()[0]
    rows = pa.ipc.open_stream(bytes(row[0])).read_all()
    if rows.column_names == [_FAILED]:
        raise StatementError(rows[_FAILED][0].as_py())
    return spark.createDataFrame(rows)
