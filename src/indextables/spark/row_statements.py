"""DELETE and UPDATE whose expressions only Spark can compute.

The statement becomes a query of one version of the table, which returns the names of the rows that
it is about (`_split`, `_row`), for UPDATE with their new values. DELETE collects the names on the
driver. UPDATE writes the new rows by tasks as INSERT does, with the same casts and checks, and the
tasks report which rows they replace. Then the splits that hold these rows are rewritten, and one
commit does it all.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from indextables.errors import (
    ExpressionError,
    PredicateSyntaxError,
    QueryError,
    SchemaError,
    UnknownColumnError,
    UnsupportedPredicateError,
)
from indextables.jobs.assignments import parse_assignments
from indextables.jobs.commit_write import Written
from indextables.jobs.row_changes import replace_rows
from indextables.jobs.write_job import plan_row_change
from indextables.jobs.write_target import constraints_of
from indextables.log.snapshot import Snapshot
from indextables.plan.access import NAME, TableAccess
from indextables.plan.column_names import names_of
from indextables.predicate.literals import quoted_name, sql_text
from indextables.predicate.sql_text import parse_predicate
from indextables.schema import ROW, ROW_IDENTITY, SPLIT
from indextables.schema.types import field_metadata
from indextables.statements.forms import split_assignments, words_of
from indextables.statements.statements import DeleteRows, UpdateRows
from indextables.table import Table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from indextables.spark.bridge.session_bridge import SessionBridge as Bridge

_ASSIGNED = "_indextables_assigned_"
_DEFAULT = "CURRENT_DEFAULT"
_CHARACTERS = "__CHAR_VARCHAR_TYPE_STRING"
Query = Callable[[str], "DataFrame"]
"""Runs the text of a query with the statement's own parameters."""
FieldPath = tuple[str, ...]
"""A column, or the path of a field below it."""


def needs_spark(
    table: Table, statement: DeleteRows | UpdateRows, *, timezone: str, by_ansi: bool
) -> bool:
    """Whether a statement has expressions, or columns to store in, that are Spark's alone.

    `by_ansi`: the session computes and stores values by the ANSI rules, as we do.
    """
    if statement.ctes or statement.alias:
        return True
    if isinstance(statement, UpdateRows) and (
        not by_ansi or constraints_of(table.snapshot().metadata)
    ):
        return True
    try:
        if statement.where is not None:
            parse_predicate(statement.where, table.schema)
        if isinstance(statement, UpdateRows):
            changes = parse_assignments(
                statement.set, table.schema, timezone=timezone, by_engine=False
            )
            return not changes.is_as_in_spark or any(
                _CHARACTERS in field_metadata(table.schema.field(name))
                for name in changes.expressions
            )
    except (PredicateSyntaxError, UnsupportedPredicateError, UnknownColumnError, ExpressionError):
        return True
    except QueryError:
        return False  # its message is better than Spark's
    return False


def delete_rows(
    statement: DeleteRows, access: TableAccess, snapshot: Snapshot, query: Query
) -> Written:
    """Delete the rows that a query chooses."""
    from pyspark.sql.functions import collect_list

    columns = ", ".join(identity_of(snapshot.uri, names_of(snapshot).shown))
    chosen = query(f"{statement.ctes} SELECT {columns} FROM {_source(statement, snapshot)}")
    # One row for each split: the path of a split is much longer than the number of a row.
    by_split = chosen.groupBy(SPLIT).agg(collect_list(ROW).alias(ROW)).toArrow()
    numbers = {
        path.as_py(): np.unique(np.asarray(rows.values))
        for path, rows in zip(by_split[SPLIT], by_split[ROW], strict=True)
    }
    return replace_rows(
        access.log(),
        access.view(snapshot),
        numbers,
        reads_again=_reads_again(statement),
        parameters={"where": statement.where or "true"},
    )


def update_rows(
    statement: UpdateRows, access: TableAccess, snapshot: Snapshot, query: Query, bridge: Bridge
) -> Written:
    """Write the rows that a query computes in place of those that it names."""
    assignments = split_assignments(statement.set)
    shown = names_of(snapshot).shown
    paths = [
        path_in(assignment.name, statement.alias, statement.table.name, shown)
        for assignment in assignments
    ]
    # In the order of the statement: its parameters may count by position.
    expressions = [
        default_of(path, shown) if assignment.is_default else assignment.value
        for assignment, path in zip(assignments, paths, strict=True)
    ]
    values = [f"({text}) AS {_ASSIGNED}{number}" for number, text in enumerate(expressions)]
    qualifier = f"{quoted_name(statement.alias)}." if statement.alias else ""
    unchanged = [f"{qualifier}{quoted_name(name)}" for name in names_of(snapshot).shown.names]
    assigned = {path: f"{_ASSIGNED}{number}" for number, path in enumerate(paths)}
    if len(assigned) < len(assignments):
        raise ExpressionError(statement.set, "it assigns a column twice")
    columns = [
        f"{new_value((f.name,), f.type, assigned, statement.set)} AS {quoted_name(f.name)}"
        for f in names_of(snapshot).shown
    ]
    identity = identity_of(snapshot.uri, names_of(snapshot).shown)
    inner = f"SELECT {', '.join([*values, *unchanged, *identity])} FROM "
    inner += _source(statement, snapshot)
    rows = query(f"{statement.ctes} SELECT {', '.join([*columns, *identity])} FROM ({inner})")
    job = plan_row_change(
        access.view(snapshot),
        reads_again=_reads_again(statement),
        parameters={"where": statement.where or "true", "set": statement.set},
    )
    return bridge.change_rows(rows, access, job)


# --- the query ---------------------------------------------------------------------------------


def _source(statement: DeleteRows | UpdateRows, snapshot: Snapshot) -> str:
    parts = statement.table.name or (NAME, snapshot.uri)
    name = ".".join(map(quoted_name, parts))
    alias = f" AS {quoted_name(statement.alias)}" if statement.alias else ""
    where = f" WHERE ({statement.where})" if statement.where else ""
    return f"{name} VERSION AS OF {snapshot.version}{alias}{where}"


def identity_of(uri: str, shown: pa.Schema) -> list[str]:
    """The columns that name rows."""
    for name in shown.names:
        if name.lower() in ROW_IDENTITY:
            raise SchemaError(
                f"'{uri}' has a column '{name}', which is now the name of a hidden column. Rename "
                "yours to delete and update rows by expressions of Spark."
            )
    return list(ROW_IDENTITY)


def _reads_again(statement: DeleteRows | UpdateRows) -> bool:
    """Whether a subquery may read the table a second time."""
    texts = [statement.ctes, statement.where or ""]
    texts += [statement.set] if isinstance(statement, UpdateRows) else []
    words = [word for text in texts for word in words_of(text) or ()]
    return any(word.kind == "word" and word.text.upper() in ("SELECT", "FROM") for word in words)


# --- assignments -------------------------------------------------------------------------------


def path_in(
    name: tuple[str, ...], alias: str | None, table: tuple[str, ...], schema: pa.Schema
) -> FieldPath:
    """The column or field that an assignment is to, by any of its names in the statement."""
    qualifier = (alias,) if alias else table
    for length in range(1, min(len(qualifier), len(name) - 1) + 1):
        if _lower(name[:length]) == _lower(qualifier[-length:]):
            name = name[length:]
            break
    return path_of(name, schema)


def default_of(path: FieldPath, schema: pa.Schema) -> str:
    """The DEFAULT of a column as SQL: null where it has none."""
    if len(path) > 1:
        raise ExpressionError(".".join(path), "a field of a struct has no DEFAULT")
    return str(field_metadata(schema.field(path[0])).get(_DEFAULT, "NULL"))


def _lower(parts: tuple[str, ...] | tuple[str | None, ...]) -> list[str]:
    return [str(part).lower() for part in parts]


# --- fields of structs that are assigned ---------------------------------------------------------
#
# The struct is made again, its other fields as they are. As in Spark's own UPDATE, a struct that
# was null becomes one whose other fields are null.


def path_of(name: tuple[str, ...], schema: pa.Schema) -> FieldPath:
    """The path of the column or field that a name means, as the schema spells it."""
    path: FieldPath = ()
    data_type: Any = pa.struct(list(schema))
    for part in name:
        if not pa.types.is_struct(data_type):
            raise ExpressionError(".".join(name), f"'{'.'.join(path)}' is not a struct")
        fields = [data_type.field(number) for number in range(data_type.num_fields)]
        same = [f for f in fields if f.name.lower() == part.lower()]
        if not same:
            raise UnknownColumnError(".".join(name), available=[f.name for f in fields])
        field = next((f for f in same if f.name == part), same[0])
        path, data_type = (*path, field.name), field.type
    return path


def new_value(path: FieldPath, data_type: Any, assigned: Mapping[FieldPath, str], text: str) -> str:
    """The SQL of what a column or field becomes, by the expressions of what is assigned."""
    below = [one for one in assigned if len(one) > len(path) and one[: len(path)] == path]
    if path in assigned:
        if below:
            raise ExpressionError(text, "it assigns a column twice, as a whole and by its fields")
        return assigned[path]
    if not below:
        return ".".join(map(quoted_name, path))
    fields = (data_type.field(number) for number in range(data_type.num_fields))
    parts = [
        f"{sql_text(f.name)}, {new_value((*path, f.name), f.type, assigned, text)}" for f in fields
    ]
    return f"named_struct({', '.join(parts)})"
