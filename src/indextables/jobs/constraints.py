"""CHECK constraints: conditions that no row of a table makes false.

The log keeps a constraint as a property of the table, the condition as Spark's SQL. Spark enforces
it where Spark writes. Elsewhere rows are checked here, before they are stored; a condition that is
more than this package evaluates makes the table one that only Spark writes to.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from indextables import config as keys
from indextables.config import Config
from indextables.errors import QueryError, SchemaError, UnsupportedFeatureError
from indextables.log.actions import (
    CHECK_CONSTRAINTS,
    CONSTRAINT_PREFIX,
    DEFAULT_PROTOCOL,
    Action,
    Metadata,
    Protocol,
)
from indextables.log.snapshot import Snapshot
from indextables.predicate import Predicate, Search, searches
from indextables.predicate.spark_tokens import tokenize
from indextables.predicate.sql_text import parse_predicate
from indextables.split.row_filter import evaluate


@dataclass(frozen=True, slots=True)
class CheckConstraint:
    """A named condition in Spark's SQL. A row violates it where it is false, not where null."""

    name: str
    sql: str

    def __str__(self) -> str:
        return f"CONSTRAINT {self.name} CHECK ({self.sql})"

    def check(self, rows: pa.Table | pa.RecordBatch, columns: pa.Schema) -> None:
        """Refuse rows that make the condition false, all of them if it cannot be computed here."""
        predicate = self._predicate(columns)
        answer: Any = evaluate(predicate, rows, search=_no_search)
        violated: Any = pc.invert(answer).fill_null(False)
        count = pc.sum(violated).as_py() or 0
        if count:
            example = rows.filter(violated).slice(0, 1).to_pylist()[0]
            shown = {n: v for n, v in example.items() if names_columns(self.sql, [n])}
            raise SchemaError(
                f"{count:,} of the new rows violate {self}, one of them with {shown}. Nothing was "
                "written."
            )

    def _predicate(self, columns: pa.Schema) -> Predicate:
        try:
            predicate = parse_predicate(self.sql, columns)
        except QueryError as error:
            raise self._only_by_spark() from error
        if searches(predicate):
            raise self._only_by_spark()
        return predicate

    def _only_by_spark(self) -> SchemaError:
        return SchemaError(
            f"The table has the {self}, which only Spark can evaluate. Write the rows with Spark, "
            "or drop the constraint: ALTER TABLE … DROP CONSTRAINT."
        )


def _no_search(search: Search) -> Any:
    raise AssertionError(search)


def constraints_of(metadata: Metadata) -> tuple[CheckConstraint, ...]:
    """The constraints of a table, by name."""
    found = (
        CheckConstraint(key.removeprefix(CONSTRAINT_PREFIX), sql)
        for key, sql in sorted(metadata.configuration.items())
        if key.startswith(CONSTRAINT_PREFIX)
    )
    return tuple(found)


def names_columns(sql: str, columns: Iterable[str]) -> list[str]:
    """Which of these columns a condition may be about, by the words in it."""
    words = {token.text.lower() for token in tokenize(sql)}
    return [column for column in columns if column.lower() in words]


def refuse_named_columns(metadata: Metadata, columns: Sequence[str], what: str) -> None:
    """Refuse to take columns away that a constraint is about."""
    for constraint in constraints_of(metadata):
        for column in names_columns(constraint.sql, columns):
            raise SchemaError(
                f"'{column}' cannot be {what}: the {constraint} names it. Drop the constraint "
                f"first: ALTER TABLE … DROP CONSTRAINT {constraint.name}."
            )


def add_constraint(
    snapshot: Snapshot, constraint: CheckConstraint, *, config: Config
) -> list[Action]:
    """What adds a constraint to a table whose rows meet it."""
    known = {one.name.lower() for one in constraints_of(snapshot.metadata)}
    if constraint.name.lower() in known:
        raise SchemaError(
            f"'{snapshot.uri}' has a constraint {constraint.name} already. Drop it first, or "
            "choose another name."
        )
    return [
        *constraint_protocol(snapshot, config),
        with_constraints(snapshot.metadata, [constraint]),
    ]


def drop_constraint(snapshot: Snapshot, name: str, *, if_exists: bool) -> list[Action]:
    """What takes a constraint away."""
    metadata = snapshot.metadata
    found = [one.name for one in constraints_of(metadata) if one.name.lower() == name.lower()]
    if not found and not if_exists:
        raise SchemaError(f"'{snapshot.uri}' has no constraint {name}.")
    gone = {CONSTRAINT_PREFIX + one for one in found}
    left = {key: value for key, value in metadata.configuration.items() if key not in gone}
    return [replace(metadata, configuration=left)]


def with_constraints(metadata: Metadata, constraints: Iterable[CheckConstraint]) -> Metadata:
    """Metadata with constraints more."""
    new: Mapping[str, str] = {CONSTRAINT_PREFIX + one.name: one.sql for one in constraints}
    return replace(metadata, configuration={**metadata.configuration, **new})


def constraint_protocol(snapshot: Snapshot, config: Config) -> list[Protocol]:
    """What keeps writers away that would not check."""
    if CHECK_CONSTRAINTS in (snapshot.protocol.writer_features or ()):
        return []
    if snapshot.version >= 0 and not config[keys.PROTOCOL_AUTO_UPGRADE]:
        raise UnsupportedFeatureError(snapshot.uri, role="writer", features=[CHECK_CONSTRAINTS])
    features = tuple(sorted({CHECK_CONSTRAINTS, *(DEFAULT_PROTOCOL.writer_features or ())}))
    return [replace(DEFAULT_PROTOCOL, writer_features=features)]
