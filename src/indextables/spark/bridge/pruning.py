"""Splits that a join rules out while the query runs.

Spark computes the keys of a small side of a join first and offers them to the scan of the other
side. They are conditions like any other: partition values and statistics of the log tell which
splits cannot hold such a key. Spark joins the rows itself, so a condition that is not understood
prunes nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from indextables.errors import QueryError
from indextables.plan.scan import ScanPlan, SplitTask, plan_scan
from indextables.predicate import TRUE, Predicate, conjunction
from indextables.schema import is_collated
from indextables.schema.column_names import shown_name
from indextables.spark.bridge.conditions import condition
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
"""Every key is fetched from the JVM by itself, and so many are seldom far apart."""


def _understood(one: JavaObject, schema: pa.Schema) -> Predicate:
    if one.name() == "IN" and len(one.children()) > _MOST_KEYS:
        return TRUE
    try:
        return condition(one, schema)
    except QueryError:
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
