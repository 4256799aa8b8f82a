"""What Spark's analysis knows about a DataFrame and its public interface does not show."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from indextables.spark.bridge.scan.scans import ON_DRIVER

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def estimated_size(frame: DataFrame) -> int:
    """How many bytes Spark expects of a DataFrame, more than there can be where it is unknown."""
    plan: Any = getattr(frame, "_jdf", None)
    if plan is None:
        return 1 << 62
    size = plan.queryExecution().optimizedPlan().stats().sizeInBytes()
    return int(str(size))


def is_repeatable(frame: DataFrame) -> bool:
    """Whether two runs return the same rows: they do if Spark calls every expression deterministic
    and nothing takes whichever rows come first.

    A Spark Connect client cannot ask; there the answer is yes.
    """
    plan: Any = getattr(frame, "_jdf", None)
    if plan is None:
        return True
    analyzed = plan.queryExecution().analyzed()
    if not analyzed.deterministic():
        return False
    nested = analyzed.subqueriesAll()
    plans = [analyzed, *(nested.apply(number) for number in range(nested.size()))]
    return not any(map(_takes_any_rows, plans))


def has_generator(frame: DataFrame) -> bool:
    """Whether a selection makes several rows of one, or none, as `explode` does."""
    plan: Any = frame._jdf.queryExecution().analyzed()
    while plan.children().size():
        if plan.nodeName() == "Generate":
            return True
        plan = plan.children().apply(0)
    return False


def driver_scans(frame: DataFrame) -> list[str]:
    """What the scans read that the driver answers, of a query or of an EXPLAIN.

    Spark makes a LocalTableScan of each, which has no room for a name.
    """
    execution: Any = frame._jdf.queryExecution()
    plan = execution.logical()
    if plan.getClass().getSimpleName() == "ExplainCommand":
        state: Any = frame.sparkSession._jsparkSession.sessionState()
        modes = state.getClass().getClassLoader().loadClass(_COMMAND_MODES)
        execution = state.executePlan(
            plan.logicalPlan(), modes.getField("MODULE$").get(None).SKIP()
        )
    optimized = execution.optimizedPlan()
    nested = optimized.subqueriesAll()
    descriptions: list[str] = []
    for one in (optimized, *(nested.apply(number) for number in range(nested.size()))):
        leaves = one.collectLeaves()
        for number in range(leaves.size()):
            leaf = leaves.apply(number)
            if leaf.getClass().getSimpleName() == "DataSourceV2ScanRelation":
                descriptions.append(str(leaf.scan().description()))
    return [line for line in dict.fromkeys(descriptions) if line.endswith(ON_DRIVER)]


_COMMAND_MODES = "org.apache.spark.sql.execution.CommandExecutionMode$"
_CUTS = ("GlobalLimit", "LocalLimit", "Offset", "Tail", "Sample")
_KEEP_ORDER = (*_CUTS, "Project", "Filter", "SubqueryAlias")


def _takes_any_rows(plan: Any) -> bool:
    name = plan.nodeName()
    children = [plan.children().apply(number) for number in range(plan.children().size())]
    if name in _CUTS and not _is_sorted(children[0]):
        return True
    if name == "Deduplicate" and plan.keys().size() < plan.output().size():
        return True
    return any(map(_takes_any_rows, children))


def _is_sorted(plan: Any) -> bool:
    while plan.nodeName() in _KEEP_ORDER:
        plan = plan.children().apply(0)
    return plan.nodeName() == "Sort" and bool(getattr(plan, "global")())


def columns_read(frame: DataFrame) -> tuple[str, ...] | None:
    """The columns of its source that a selection reads; None if Spark does not know."""
    plan: Any = getattr(frame, "_jdf", None)
    if plan is None:
        return None
    analyzed = plan.queryExecution().analyzed()
    if not analyzed.subqueriesAll().isEmpty():
        return None
    references = analyzed.references().iterator()
    names = []
    while references.hasNext():
        names.append(str(references.next().name()))
    return tuple(sorted(set(names)))
