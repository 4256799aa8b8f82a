"""MERGE INTO and `DataFrame.mergeInto`, planned here: Spark writes no single rows through Python.

One join of the table at a version with the source says for each pair which clause applies. Its rows
are new rows, each with the name of the row that it replaces (`_split`, `_row`) if there is one, and
what happens to it. The write job stores them as it stores those of an UPDATE; rows that go are
taken out of their splits; one commit does it all. A row of the table that several rows of the
source match is Spark's own error.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from indextables.errors import ExpressionError, MatchedTwiceError, SchemaError, UnknownColumnError
from indextables.jobs.commit_write import Written
from indextables.jobs.write_job import plan_row_change
from indextables.jobs.write_target import Target, evolved_table
from indextables.log.snapshot import Snapshot
from indextables.plan.access import NAME, TableAccess
from indextables.predicate.literals import quoted_name
from indextables.predicate.search_names import mentions_search
from indextables.schema import ROW, ROW_ACTION, ROW_IDENTITY, SPLIT
from indextables.spark.bridge.frames import estimated_size, is_repeatable
from indextables.spark.row_statements import (
    FieldPath,
    Query,
    default_of,
    identity_of,
    new_value,
    path_in,
)
from indextables.spark.schemas import spark_schema, table_schema
from indextables.statements.forms import words_of
from indextables.statements.spark_clauses import MergeClause, MergeInto, When

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import DataType

    from indextables.spark.bridge.session_bridge import SessionBridge as Bridge

CLAUSE = "_indextables_clause"
THERE = "_indextables_source"
_MATCHED = "_indextables_matched"
_VALUE = "_indextables_value_{}_{}"
_SMALL_SOURCE = 10 << 20
"""Spark sends relations up to this size to all tasks, unless it is told otherwise."""
_SEARCHED = "_indextables_search_{}"


@dataclass(frozen=True)
class PlannedClause:
    """A clause whose columns are known: the path of each field that it assigns."""

    when: When
    action: str
    paths: tuple[FieldPath, ...] = ()
    text: str = field(default="", repr=False)


@dataclass(frozen=True)
class MergedTable:
    """A table that a MERGE changes: its columns at a version, and those that it has afterwards."""

    name: tuple[str, ...]
    version: int
    shown: pa.Schema
    columns: pa.Schema
    is_checked: bool
    """Whether all columns of each row are needed, for constraints."""


def join_type(clauses: Sequence[Any]) -> str:
    """How the table is joined with the source: which rows without a match are needed."""
    kinds = {clause.when for clause in clauses}
    if "not matched by source" in kinds:
        return "full outer" if "not matched" in kinds else "left outer"
    return "right outer" if "not matched" in kinds else "inner"


def is_narrowed(source: DataFrame, clauses: Sequence[Any]) -> bool:
    """Whether the table's rows that match are found before the join.

    A join that keeps all rows of the source cannot send the source to the table's rows, and would
    shuffle the table. One that only looks for matches can, if the source is small and the same when
    it is read again.
    """
    if join_type(clauses) != "right outer" or not is_repeatable(source):
        return False
    return estimated_size(source) <= _SMALL_SOURCE


def checks_matches(clauses: Sequence[Any]) -> bool:
    """Whether it matters that a row is matched twice. Deleting it twice is deleting it."""
    matched = [clause for clause in clauses if clause.when == "matched"]
    return bool(matched) and not (
        len(matched) == 1 and matched[0].action == "delete" and matched[0].condition is None
    )


# --- the statement -----------------------------------------------------------------------------


def merge_rows(
    statement: MergeInto, access: TableAccess, snapshot: Snapshot, query: Query, bridge: Bridge
) -> Written:
    """Run a MERGE INTO of an index table."""
    view = access.view(snapshot)
    identity_of(snapshot.uri, view.names.shown)
    source = source_of(statement, query)
    target = target_of(view, source, evolves=statement.evolves, clauses=statement.clauses)
    name = statement.table.name or (NAME, snapshot.uri)
    table = MergedTable(
        name, snapshot.version, view.names.shown, target.shown, bool(target.constraints)
    )
    narrowed = is_narrowed(source, statement.clauses)
    flat, planned = with_clauses(statement, table, source, query, narrowed=narrowed)
    return write_merge(
        flat, planned, table, target, access=access, snapshot=snapshot, bridge=bridge,
        checks=checks_matches(statement.clauses), parameters={"on": statement.on},
        reads_again=reads_again(statement),
    )  # fmt: skip


def source_of(statement: MergeInto, query: Query) -> DataFrame:
    """The rows of the source."""
    name = quoted_name(statement.source_alias or THERE)
    return query(f"{statement.ctes} SELECT * FROM {statement.source} AS {name}")


def with_clauses(
    statement: MergeInto, merged: MergedTable, source: DataFrame, query: Query, *, narrowed: bool
) -> tuple[DataFrame, list[PlannedClause]]:
    """The join of the table with the source: which clause applies to each pair, and its values."""
    alias = statement.alias or (statement.table.name or ("_indextables_target",))[-1]
    source_alias = statement.source_alias or THERE
    target_name, source_name = quoted_name(alias), quoted_name(source_alias)

    # A search cannot be part of a join's condition, so the table's rows bring its answer along.
    searched: list[str] = []

    def without_searches(condition: str) -> str:
        kept = []
        for part in _conjuncts(condition):
            if mentions_search(part) and not _mentions(part, source_alias):
                searched.append(f"({part}) AS {_SEARCHED.format(len(searched))}")
                kept.append(f"{target_name}.{_SEARCHED.format(len(searched) - 1)}")
            else:
                kept.append(f"({part})")
        return " AND ".join(kept)

    on = without_searches(statement.on)
    cases: dict[When, list[str]] = {"matched": [], "not matched": [], "not matched by source": []}
    planned, values = [], []
    for number, clause in enumerate(statement.clauses):
        condition = "TRUE" if clause.condition is None else without_searches(clause.condition)
        cases[clause.when].append(f"WHEN {condition} THEN {number}")
        assigned = _assigned(clause, statement, merged, source)
        planned.append(
            PlannedClause(clause.when, clause.action, tuple(assigned), clause.condition or "")
        )
        values += [
            f"CASE WHEN {CLAUSE} = {number} THEN ({text}) END AS {_VALUE.format(number, at)}"
            for at, text in enumerate(assigned.values())
        ]
    case = {
        action: f"CASE {' '.join(branches)} END" if branches else "NULL"
        for action, branches in cases.items()
    }
    there = f"{source_name}.{THERE}"
    chosen = (
        f"CASE WHEN {target_name}.{SPLIT} IS NULL THEN {case['not matched']} "
        f"WHEN {there} IS NULL THEN {case['not matched by source']} ELSE {case['matched']} END"
    )
    columns = [f"{target_name}.{quoted_name(name)}" for name in merged.shown.names]
    columns += [f"{target_name}.{name}" for name in ROW_IDENTITY]
    matched = f"({target_name}.{SPLIT} IS NOT NULL AND {there} IS NOT NULL) AS {_MATCHED}"
    table = ".".join(map(quoted_name, merged.name))
    inner = f"SELECT {', '.join(['*', *ROW_IDENTITY, *searched])} FROM {table} "
    inner += f"VERSION AS OF {merged.version} AS {target_name}"
    if narrowed:
        inner = (
            f"SELECT * FROM ({inner}) AS {target_name} "
            f"LEFT SEMI JOIN {statement.source} AS {source_name} ON {on}"
        )
    flat = query(
        f"{statement.ctes} SELECT CAST({chosen} AS INT) AS {CLAUSE}, "
        f"{', '.join([matched, *columns, *values])} FROM ({inner}) AS {target_name} "
        f"{join_type(statement.clauses).upper()} JOIN (SELECT *, TRUE AS {THERE} FROM "
        f"{statement.source} AS {source_name}) AS {source_name} ON {on}"
    )
    return flat, planned


def target_of(view: Any, source: DataFrame, *, evolves: bool, clauses: Sequence[Any]) -> Target:
    """The table as it is written: with the source's columns, if it takes all and may evolve."""
    if not evolves or all(clause.assignments is not None for clause in clauses):
        return Target.unchanged(view)
    return evolved_table(view, table_schema(source.schema), merge_schema=True)


def _assigned(
    clause: MergeClause,
    statement: MergeInto,
    merged: MergedTable,
    source: DataFrame,
) -> dict[FieldPath, str]:
    """The expression for each field that a clause assigns."""
    if clause.action == "delete":
        return {}
    if clause.assignments is None:
        by_name = {name.lower(): name for name in reversed(source.columns)}
        missing = [n for n in merged.shown.names if n.lower() not in by_name]
        if missing and not statement.evolves:
            raise UnknownColumnError(missing[0], available=source.columns)
        alias = quoted_name(statement.source_alias or THERE)
        return {
            (name,): f"{alias}.{quoted_name(by_name[name.lower()])}"
            for name in merged.columns.names
            if name.lower() in by_name
        }
    assigned: dict[FieldPath, str] = {}
    for assignment in clause.assignments:
        path = path_in(assignment.name, statement.alias, statement.table.name, merged.columns)
        if path in assigned:
            raise ExpressionError(".".join(assignment.name), "it is assigned twice")
        assigned[path] = (
            default_of(path, merged.columns) if assignment.is_default else assignment.value
        )
    return assigned


def reads_again(statement: MergeInto) -> bool:
    """Whether the source is a query, which may read the table a second time."""
    words = {word.text.upper() for word in words_of(statement.source) or () if word.kind == "word"}
    return bool(statement.ctes) or "SELECT" in words or "FROM" in words


def _conjuncts(condition: str) -> list[str]:
    """The parts of a condition that AND joins at its top, as text."""
    words = words_of(condition) or []
    depth, between, begin, parts = 0, False, 0, []
    for word in words:
        text = word.text.upper() if word.kind in ("word", "symbol") else ""
        depth += {"(": 1, "[": 1, "CASE": 1, ")": -1, "]": -1, "END": -1}.get(text, 0)
        if depth == 0 and text == "OR":
            return [condition]
        if depth == 0 and text == "BETWEEN":
            between = True
        elif depth == 0 and text == "AND" and between:
            between = False
        elif depth == 0 and text == "AND":
            parts.append(condition[begin : word.start])
            begin = word.end
    return [*parts, condition[begin:]]


def _mentions(text: str, alias: str) -> bool:
    words = words_of(text) or []
    return any(
        word.kind in ("word", "name")
        and word.text.lower() == alias.lower()
        and after.kind == "symbol"
        and after.text == "."
        for word, after in itertools.pairwise(words)
    )


# --- from the join to rows that are written ----------------------------------------------------


def write_merge(
    flat: DataFrame,
    clauses: Sequence[PlannedClause],
    table: MergedTable,
    target: Target,
    *,
    access: TableAccess,
    snapshot: Snapshot,
    bridge: Bridge,
    checks: bool,
    parameters: Mapping[str, str],
    reads_again: bool = True,
) -> Written:
    """Write the rows of a join that says which clause applies to each."""
    frame = rows_to_write(flat, clauses, table, checks=checks, can_store=bridge.can_store)
    job = plan_row_change(
        access.view(snapshot),
        reads_again=reads_again,
        parameters=parameters,
        target=target,
        kind="merge",
        checks_matches=checks,
    )
    try:
        return bridge.change_rows(frame, access, job)
    except MatchedTwiceError:
        raise bridge.cardinality_violation() from None


def rows_to_write(
    flat: DataFrame,
    clauses: Sequence[PlannedClause],
    table: MergedTable,
    *,
    checks: bool,
    can_store: Callable[[DataType, DataType], bool],
) -> DataFrame:
    """The rows that a MERGE writes, with the names and the fate of those in the table."""
    from pyspark.sql import functions as F  # noqa: N812

    _check_types(flat, clauses, table, can_store)
    kinds = {number: clause.action for number, clause in enumerate(clauses)}
    deletes = [number for number, action in kinds.items() if action == "delete"]
    clause = F.col(CLAUSE)
    rows = flat.where(clause.isNotNull() | (F.col(_MATCHED) if checks else F.lit(False)))
    action = F.when(clause.isNull(), "keep").when(clause.isin(deletes), "delete").otherwise("write")
    columns = [
        _new_column(f, number, clauses, table=table).alias(f.name)
        for number, f in enumerate(table.columns)
    ]
    return rows.select(*columns, F.col(SPLIT), F.col(ROW), action.alias(ROW_ACTION))


def _new_column(
    column: Any,
    number: int,
    clauses: Sequence[PlannedClause],
    *,
    table: MergedTable,
) -> Column:
    """What a column becomes under each clause; its old value under none."""
    from pyspark.sql import functions as F  # noqa: N812

    data_type = spark_schema(table.columns)[number].dataType
    # A row that is only deleted or kept is not written, and what is not needed is not read.
    unread = (
        column.nullable
        and not table.is_checked
        and all(
            any(path[0] == column.name for path in clause.paths)
            for clause in clauses
            if clause.action == "update"
        )
    )
    is_old = column.name in table.shown.names
    old = F.col(quoted_name(column.name)) if is_old and not unread else F.lit(None)
    result = None
    for at, clause in enumerate(clauses):
        if clause.action == "delete":
            continue
        values = {path: _VALUE.format(at, n) for n, path in enumerate(clause.paths)}
        mine = {path: name for path, name in values.items() if path[0] == column.name}
        if mine:
            new = F.expr(new_value((column.name,), column.type, mine, clause.text))
        elif clause.action == "insert":
            new = F.expr(default_of((column.name,), table.columns))
        else:
            continue
        condition = F.col(CLAUSE) == at
        value = new.cast(data_type)
        result = F.when(condition, value) if result is None else result.when(condition, value)
    return old.cast(data_type) if result is None else result.otherwise(old.cast(data_type))


def _check_types(
    flat: DataFrame,
    clauses: Sequence[PlannedClause],
    table: MergedTable,
    can_store: Callable[[DataType, DataType], bool],
) -> None:
    """Refuse values that an INSERT would refuse to store in their columns."""
    stored = spark_schema(table.columns)
    for at, clause in enumerate(clauses):
        for n, path in enumerate(clause.paths):
            value_type = flat.schema[_VALUE.format(at, n)].dataType
            field = stored[table.columns.names.index(path[0])]
            if len(path) == 1 and not can_store(value_type, field.dataType):
                raise SchemaError(
                    f"A value of {value_type.simpleString()} cannot safely be stored in the column "
                    f"'{field.name}', which is {field.dataType.simpleString()}. Write a CAST."
                )


# --- DataFrame.mergeInto -------------------------------------------------------------------------

ON_COLUMNS = "DataFrame.mergeInto"
"""What the log says instead of a condition."""


@dataclass
class _ColumnClause:
    when: When
    condition: Column | None
    action: str
    assignments: Mapping[str, Column] | None = None


class MergeBuilder:
    """What `DataFrame.mergeInto` returns for an index table: PySpark's `MergeIntoWriter`."""

    def __init__(
        self,
        source: DataFrame,
        name: str,
        condition: Column,
        run: Callable[[MergeBuilder], None],
    ) -> None:
        self.source = source
        self.name = name
        self.condition = condition
        self.clauses: list[_ColumnClause] = []
        self.evolves = False
        self._run = run

    def whenMatched(self, condition: Column | None = None) -> _Actions:  # noqa: N802
        """The next action is for rows that the source matches."""
        return _Actions(self, "matched", condition)

    def whenNotMatched(self, condition: Column | None = None) -> _Actions:  # noqa: N802
        """The next action is for rows of the source without a match."""
        return _Actions(self, "not matched", condition)

    def whenNotMatchedBySource(self, condition: Column | None = None) -> _Actions:  # noqa: N802
        """The next action is for rows of the table that the source does not match."""
        return _Actions(self, "not matched by source", condition)

    def withSchemaEvolution(self) -> MergeBuilder:  # noqa: N802
        """Let the table take columns of the source that it does not have."""
        self.evolves = True
        return self

    def merge(self) -> None:
        """Do it, in one commit."""
        if not self.clauses:
            raise ExpressionError("mergeInto", "it has no action: call whenMatched().updateAll()")
        self._run(self)


@dataclass
class _Actions:
    builder: MergeBuilder
    when: When
    condition: Column | None

    def _add(self, action: str, assignments: Mapping[str, Column] | None) -> MergeBuilder:
        self.builder.clauses.append(_ColumnClause(self.when, self.condition, action, assignments))
        return self.builder

    def updateAll(self) -> MergeBuilder:  # noqa: N802
        """Take all values of the source."""
        return self._add("update", None)

    def update(self, assignments: Mapping[str, Column]) -> MergeBuilder:
        """Give some columns new values."""
        return self._add("update", assignments)

    def delete(self) -> MergeBuilder:
        """Delete the row."""
        return self._add("delete", {})

    def insertAll(self) -> MergeBuilder:  # noqa: N802
        """Insert the source's row."""
        return self._add("insert", None)

    def insert(self, assignments: Mapping[str, Column]) -> MergeBuilder:
        """Insert a row with some columns."""
        return self._add("insert", assignments)


def merge_frame(
    builder: MergeBuilder, access: TableAccess, snapshot: Snapshot, query: Query, bridge: Bridge
) -> Written:
    """Run what was built with `DataFrame.mergeInto`."""
    view = access.view(snapshot)
    identity_of(snapshot.uri, view.names.shown)
    target = target_of(view, builder.source, evolves=builder.evolves, clauses=builder.clauses)
    table = MergedTable(
        (), snapshot.version, view.names.shown, target.shown, bool(target.constraints)
    )
    narrowed = is_narrowed(builder.source, builder.clauses)
    flat, planned = frame_with_clauses(builder, table, query, narrowed=narrowed)
    return write_merge(
        flat, planned, table, target, access=access, snapshot=snapshot, bridge=bridge,
        checks=checks_matches(builder.clauses), parameters={"on": ON_COLUMNS},
    )  # fmt: skip


def frame_with_clauses(
    builder: MergeBuilder, table: MergedTable, query: Query, *, narrowed: bool
) -> tuple[DataFrame, list[PlannedClause]]:
    """The join of what was built, with the clause that applies to each row; see `with_clauses`."""
    from pyspark.sql import functions as F  # noqa: N812

    source = builder.source
    alias = [w.text for w in words_of(builder.name) or () if w.kind in ("word", "name")][-1]
    rows = query(
        f"SELECT *, {', '.join(ROW_IDENTITY)} FROM {builder.name} VERSION AS OF {table.version}"
    ).alias(alias)
    how = join_type(builder.clauses).replace(" ", "_").replace("full_outer", "full")
    if narrowed:
        rows = rows.join(source, builder.condition, "left_semi").alias(alias)
    joined = rows.join(source.withColumn(THERE, F.lit(True)), builder.condition, how)
    split, there = F.col(f"{quoted_name(alias)}.{SPLIT}"), F.col(THERE)
    cases: dict[When, Any] = {}
    planned, values = [], []
    for number, clause in enumerate(builder.clauses):
        condition = F.lit(True) if clause.condition is None else clause.condition
        before = cases.get(clause.when)
        cases[clause.when] = (F if before is None else before).when(condition, number)
        assigned = _assigned_columns(clause, builder, table)
        planned.append(PlannedClause(clause.when, clause.action, tuple(assigned)))
        values += [
            (number, value, _VALUE.format(number, at)) for at, value in enumerate(assigned.values())
        ]
    nothing = F.lit(None).cast("int")
    chosen = (
        F.when(split.isNull(), cases.get("not matched", nothing))
        .when(there.isNull(), cases.get("not matched by source", nothing))
        .otherwise(cases.get("matched", nothing))
        .cast("int")
    )
    table_columns = [F.col(f"{quoted_name(alias)}.{quoted_name(n)}") for n in table.shown.names]
    flat = joined.select(
        chosen.alias(CLAUSE),
        (split.isNotNull() & there.isNotNull()).alias(_MATCHED),
        *table_columns,
        split,
        F.col(f"{quoted_name(alias)}.{ROW}"),
        *(F.when(chosen == number, value).alias(name) for number, value, name in values),
    )
    return flat, planned


def _assigned_columns(
    clause: _ColumnClause, builder: MergeBuilder, table: MergedTable
) -> dict[FieldPath, Column]:
    if clause.action == "delete":
        return {}
    source = builder.source
    if clause.assignments is None:
        by_name = {name.lower(): name for name in reversed(source.columns)}
        missing = [n for n in table.shown.names if n.lower() not in by_name]
        if missing and not builder.evolves:
            raise UnknownColumnError(missing[0], available=source.columns)
        return {
            (n,): source[quoted_name(by_name[n.lower()])]
            for n in table.columns.names
            if n.lower() in by_name
        }
    assigned: dict[FieldPath, Column] = {}
    for name, value in clause.assignments.items():
        parts = tuple(w.text for w in words_of(name) or () if w.kind in ("word", "name"))
        alias = [w.text for w in words_of(builder.name) or () if w.kind in ("word", "name")]
        assigned[path_in(parts, None, tuple(alias), table.columns)] = value
    return assigned
