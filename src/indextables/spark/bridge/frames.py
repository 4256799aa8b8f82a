"""What Spark's analysis knows about a DataFrame and its public interface does not tell."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def estimated_size(frame: DataFrame) -> int:
    """How many bytes Spark expects of a DataFrame, more than there can be where nobody knows."""
    plan: Any = getattr(frame, "_jdf", None)
    if plan is None:
        return 1 << 62
    size = plan.queryExecution().optimizedPlan().stats().sizeInBytes()
    return int(str(size))


def is_repeatable(frame: DataFrame) -> bool:
    """Whether Spark calls every expression deterministic, so that two runs give the same rows.

    A Spark Connect client cannot ask; there the answer is yes.
    """
    plan: Any = getattr(frame, "_jdf", None)
    return plan is None or bool(plan.queryExecution().analyzed().deterministic())


def columns_read(frame: DataFrame) -> tuple[str, ...] | None:
    """The columns of its source that a selection reads; None if Spark does not tell."""
    plan: Any = getattr(frame, "_jdf", None)
    if plan is None:
        return None
    analyzed = plan.queryExecution().analyzed()
    if not analyzed.subqueriesAll().isEmpty():
        return None
    found = analyzed.references().iterator()
    names = []
    while found.hasNext():
        names.append(str(found.next().name()))
    return tuple(sorted(set(names)))
