"""Splits that a join rules out while the query runs.

Spark computes the keys of a small side of a join first and offers them to the scan of the other
side. They are conditions like any other: partition values and statistics of the log tell which
splits cannot hold such a key. Spark joins the rows itself, so a condition that is not understood
prunes nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from indextables.errors import QueryError
from indextables.plan.scan import ScanPlan, SplitTask, plan_scan
from indextables.predicate import TRUE, Predicate, conjunction
from indextables.predicate.coercion import is_in
from indextables.schema import is_collated
from indextables.schema.column_names import shown_name
from indextables.spark.bridge.conditions import column_of, condition
from indextables.spark.bridge.jvm import JavaObject


@dataclass(frozen=True)
class Pruning:
    """The splits of a planned scan, and which of them conditions leave."""

    plan: ScanPlan
    columns: Sequence[str]

    @property
    def tasks(self) -> Sequence[SplitTask]:
        """All splits that were planned."""
        return self.plan.tasks

    def attributes(self) -> list[str]:
        """The columns of the scan whose values the log knows something about."""
        schema = self.plan.snapshot.schema
        known = (schema.field(n) for n in self.columns if n in schema.names)
        return [shown_name(f) for f in known if _has_order(f.type) and not is_collated(f)]

    def left_by(self, conditions: Iterable[JavaObject]) -> Sequence[SplitTask]:
        """The splits that may hold rows for these conditions."""
        names = self.plan.view.names
        shown = conjunction(*(_understood(one, names.shown) for one in conditions))
        keys = names.stored_predicate(shown)
        left = plan_scan(
            self.plan.view, predicate=conjunction(self.plan.predicate, keys), route=False
        ).tasks
        kept = {task.path for task in left}
        # As they were planned: the rows that the join wants are for Spark to choose.
        return [task for task in self.plan.tasks if task.path in kept]


_MOST_KEYS = 256
"""So many keys are seldom far apart."""


_NUMBERS = re.compile(r".+ IN \((-?\d+(?:, -?\d+)*)\)", re.DOTALL)


def _understood(one: JavaObject, schema: pa.Schema) -> Predicate:
    try:
        if one.name() == "IN":
            children = one.children()
            if len(children) > _MOST_KEYS:
                return TRUE
            column, kind = column_of(children[0], schema)
            # The text of whole numbers is theirs, and one call for all of them.
            if pa.types.is_integer(kind) and (keys := _NUMBERS.fullmatch(one.toString())):
                return is_in(column, kind, [int(key) for key in keys[1].split(", ")])
        return condition(one, schema)
    except (QueryError, ValueError):
        return TRUE


def _has_order(kind: Any) -> bool:
    types = pa.types
    return bool(
        types.is_integer(kind)
        or types.is_string(kind)
        or types.is_date(kind)
        or types.is_timestamp(kind)
        or types.is_decimal(kind)
    )
