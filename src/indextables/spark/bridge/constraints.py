"""CHECK constraints as Spark's interfaces have them. Spark enforces those that a table reports."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from indextables.config import Config
from indextables.errors import MetadataChangedError, SchemaError
from indextables.jobs.constraints import CheckConstraint, add_constraint, drop_constraint
from indextables.log.actions import Action
from indextables.log.snapshot import Snapshot
from indextables.spark.bridge.jvm import V2, JavaObject, Jvm

CHANGES = ("AddConstraint", "DropConstraint")
_CONSTRAINTS = V2 + "catalog.constraints."


def java_constraints(java: Jvm, constraints: Sequence[CheckConstraint]) -> JavaObject:
    """Return the constraints of a table as Spark asks for them. All rows meet them."""
    if not constraints:
        return java.array(_CONSTRAINTS + "Constraint")
    check = java.find(_CONSTRAINTS + "Constraint").check
    valid = java.constant(_CONSTRAINTS + "Constraint$ValidationStatus", "VALID")
    found = [
        check(one.name).predicateSql(one.sql).enforced(True).validationStatus(valid).build()
        for one in constraints
    ]
    return java.array(_CONSTRAINTS + "Constraint", found)


def has_constraints(info: Sequence[Any]) -> bool:
    """Whether CREATE TABLE has constraints; older forms of it have none."""
    return len(info) == 1 and bool(len(info[0].constraints()))


def declared_constraints(info: Sequence[Any]) -> list[CheckConstraint]:
    """Return the constraints of CREATE TABLE."""
    return [_check(one) for one in info[0].constraints()] if has_constraints(info) else []


def changed_constraints(
    snapshot: Snapshot, changes: Sequence[JavaObject], *, config: Config
) -> list[Action]:
    """Return what ALTER TABLE … ADD or DROP CONSTRAINT does."""
    (change,) = changes
    if change.getClass().getSimpleName() == "DropConstraint":
        return drop_constraint(snapshot, change.name(), if_exists=change.ifExists())
    constraint = _check(change.constraint())
    validated = change.validatedTableVersion()
    if validated is not None and validated != str(snapshot.version):
        # Rows that came since then were not looked at.
        raise MetadataChangedError(
            uri=snapshot.uri, version=snapshot.version, changed=["rows to be checked"]
        )
    return add_constraint(snapshot, constraint, config=config)


def _check(constraint: JavaObject) -> CheckConstraint:
    if constraint.getClass().getSimpleName() != "Check":
        raise SchemaError(
            f"Index tables have CHECK constraints only, not {constraint.toDDL()}: nothing would "
            "make sure of it."
        )
    return CheckConstraint(constraint.name(), constraint.predicateSql())
