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
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.types import (
    ArrayType,
    AtomicType,
    DataType,
    DateType,
    MapType,
    NullType,
    NumericType,
    StringType,
    StructType,
    TimestampNTZType,
    TimestampType,
)
from sqlglot import exp

from indextables.config import Config, session_keys
from indextables.errors import EmbeddedQueryError, IndexTablesError, StatementError
from indextables.jobs.commit_write import Written
from indextables.plan.access import NAME
from indextables.predicate.literals import quoted_name
from indextables.schema import evolve
from indextables.spark import merge_statement as merge
from indextables.spark.bridge.sessions import session_settings
from indextables.spark.row_statements import identity_of
from indextables.spark.schemas import mapping_in, table_schema
from indextables.split.mapping import TableMapping
from indextables.split.mapping_options import build_mapping
from indextables.statements.forms import Target
from indextables.statements.maintenance import merged_rows
from indextables.statements.spark_clauses import MergeInto
from indextables.statements.statements import Statement, parse
from indextables.storage import open_store

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from indextables.query.relations import Relation
    from indextables.table import Table

STATEMENT = "indextables_statement"
_BY_PATH = re.compile(rf"\b{NAME}`?\s*\.\s*`", re.IGNORECASE)


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
    """The table function that runs an IndexTables statement; its rows are one Arrow stream."""

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
        statement = None if text.startswith("{") else parse(text)
        try:
            if statement is not None:
                rows = execute(statement, session)
            else:  # what a MERGE asks before and after
                history = json.loads(text)
                rows = Table.open(history["path"], config=config).history(limit=history["limit"])
        except IndexTablesError as error:
            rows = pa.table({_FAILED: [str(error)]})
        yield (_stream(rows),)


def _stream(rows: pa.Table) -> bytes:
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, rows.schema) as writer:
        writer.write_table(rows)
    return sink.getvalue()


_FAILED = "_indextables_error"


def path_of(target: Target) -> str:
    """The path of a statement's table; names are in no catalog that a worker has."""
    path = _path(target)
    if path is None:
        raise StatementError(
            f"{target} is the name of a table, and on Spark Connect there is no catalog of index "
            f"tables. Write the table's path: 'path' or {NAME}.`path`."
        )
    return path


def names_path(statement: Statement | MergeInto) -> bool:
    """Whether the table of a statement is named by its path, or it has none."""
    target = getattr(statement, "table", None)
    return not isinstance(target, Target) or _path(target) is not None


def _path(target: Target) -> str | None:
    is_path = len(target.name) == 2 and target.name[0].lower() == NAME
    return target.name[1] if target.path is None and is_path else target.path


def register(spark: SparkSession) -> None:
    """Make the table function of statements part of a session."""
    from pyspark.sql.functions import udtf

    function: Any = udtf(ServerStatement, returnType="result binary")
    spark.udtf.register(STATEMENT, function)


def execute_on_server(
    original: Callable[..., DataFrame], spark: SparkSession, text: str
) -> DataFrame:
    """Run a statement in a worker of the server; its rows."""
    return spark.createDataFrame(_from_server(original, spark, text))


def _from_server(original: Callable[..., DataFrame], spark: SparkSession, text: str) -> pa.Table:
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
    return rows


# --- MERGE INTO ----------------------------------------------------------------------------------


def merge_on_server(
    original: Callable[..., DataFrame],
    spark: SparkSession,
    statement: MergeInto,
    query: Callable[[str], DataFrame],
) -> DataFrame:
    """MERGE INTO: the server joins, its tasks store the rows and a worker commits them."""
    target = _ServerTable(original, spark, path_of(statement.table))
    source = merge.source_of(statement, query)
    table = target.merged(statement, source)
    flat, clauses = merge.with_clauses(statement, table, source, query, narrowed=False)
    done = target.write(
        statement, table, flat, clauses,
        on=statement.on, reads_again=merge.reads_again(statement),
    )  # fmt: skip
    return spark.createDataFrame(merged_rows(target.path, done))


def merge_frame_on_server(
    original: Callable[..., DataFrame], spark: SparkSession, path: str, builder: merge.MergeBuilder
) -> None:
    """`DataFrame.mergeInto` of a path: the same."""
    target = _ServerTable(original, spark, path)
    table = target.merged(builder, builder.source)
    flat, clauses = merge.frame_with_clauses(builder, table, spark.sql, narrowed=False)
    target.write(builder, table, flat, clauses, on=merge.ON_COLUMNS, reads_again=True)


@dataclass(frozen=True)
class _ServerTable:
    """A table on the server that rows are merged into."""

    original: Callable[..., DataFrame]
    spark: SparkSession
    path: str

    def merged(
        self, statement: MergeInto | merge.MergeBuilder, source: DataFrame
    ) -> merge.MergedTable:
        """The newest version, and its columns as a MERGE leaves them."""
        version = self._history(1)[0]["version"]
        reader = self.spark.read.format(NAME).option("versionAsOf", version)
        shown = table_schema(reader.load(self.path).schema, declared=True)
        identity_of(self.path, shown)
        columns = evolve(shown, table_schema(source.schema)) if _evolves(statement) else shown
        return merge.MergedTable((NAME, self.path), version, shown, columns, is_checked=True)

    def write(
        self,
        statement: MergeInto | merge.MergeBuilder,
        table: merge.MergedTable,
        flat: DataFrame,
        clauses: Sequence[merge.PlannedClause],
        *,
        on: str,
        reads_again: bool,
    ) -> Written:
        """Store the rows of a join that says which clause applies to each; what was done."""
        spark, version = self.spark, table.version
        checks = merge.checks_matches(statement.clauses)
        policy = str(spark.conf.get("spark.sql.storeAssignmentPolicy"))
        can_store = can_store_by_ansi if policy.upper() == "ANSI" else lambda *_: True
        rows = merge.rows_to_write(flat, clauses, table, checks=checks, can_store=can_store)
        change = {
            "version": version, "reads_again": reads_again, "checks_matches": checks,
            "parameters": {"on": on},
        }  # fmt: skip
        writer = rows.write.format(NAME).mode("append").option("rowChange", json.dumps(change))
        try:
            writer.option("mergeSchema", str(_evolves(statement)).lower()).save(self.path)
        except Exception as error:
            raise _plain_error(error) from None
        metrics, splits_removed = dict[str, str](), 0
        for entry in self._history(100):
            is_same = entry["operation"] == "MERGE" and dict(entry["parameters"]).get("on") == on
            if is_same and entry["version"] > version:
                version, metrics = entry["version"], dict(entry["metrics"])
                splits_removed = entry["filesRemoved"]
                break
        count = {name: int(metrics.get(name, 0)) for name in ("rows", "rowsRemoved", "rowsUpdated")}
        return Written(
            version, count["rows"], int(metrics.get("files", 0)), splits_removed, 0,
            rows_removed=count["rowsRemoved"], rows_updated=count["rowsUpdated"],
        )  # fmt: skip

    def _history(self, limit: int) -> list[dict[str, Any]]:
        arguments = json.dumps({"path": self.path, "limit": limit})
        return _from_server(self.original, self.spark, arguments).to_pylist()


def _evolves(statement: MergeInto | merge.MergeBuilder) -> bool:
    return statement.evolves and any(clause.assignments is None for clause in statement.clauses)


def _plain_error(error: Exception) -> Exception:
    """An error of a worker of the server as the sentence that it ends with."""
    errors = re.findall(r"^indextables\.errors\.(\w+): (.*)$", str(error), re.MULTILINE)
    if not errors:
        return error
    name, sentence = errors[-1]
    if name == "MatchedTwiceError":
        from pyspark.errors.exceptions.connect import SparkRuntimeException

        condition = "MERGE_CARDINALITY_VIOLATION"
        return SparkRuntimeException(f"[{condition}] {sentence}", errorClass=condition)
    return StatementError(sentence)


def can_store_by_ansi(value_type: DataType, column: DataType) -> bool:
    """Whether Spark's policy lets an INSERT store values of a type in a column of another one."""
    match value_type, column:
        case (ArrayType(), ArrayType()):
            return can_store_by_ansi(value_type.elementType, column.elementType)
        case (MapType(), MapType()):
            return can_store_by_ansi(value_type.keyType, column.keyType) and can_store_by_ansi(
                value_type.valueType, column.valueType
            )
        case (StructType(), StructType()):
            pairs = zip(value_type.fields, column.fields, strict=False)
            return len(value_type) == len(column) and all(
                can_store_by_ansi(a.dataType, b.dataType) for a, b in pairs
            )
    times = (DateType, TimestampType, TimestampNTZType)
    return (
        isinstance(value_type, NullType)
        or type(value_type) is type(column)
        or (isinstance(value_type, NumericType) and isinstance(column, NumericType))
        or (isinstance(column, StringType) and isinstance(value_type, AtomicType))
        or (isinstance(value_type, times) and isinstance(column, times))
    )
