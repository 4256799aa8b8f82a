"""What a plan does and why, in words."""

from __future__ import annotations

from indextables.plan.column_names import names_of
from indextables.plan.scan import ScanPlan
from indextables.predicate import TRUE, And, Compare, In, Not, Or, Predicate, Search
from indextables.split.mapping import Mapping

_WHY = {
    "table": "live splits of the version",
    "partitions": "kept by partition values",
    "statistics": "kept by minimum, maximum and null counts",
    "xrefs": "kept by cross-references",
}


def explain_scan(plan: ScanPlan) -> str:
    """The stages of a plan, and how each split will be read."""
    snapshot = plan.snapshot
    names = names_of(snapshot)
    where = names.shown_predicate(plan.predicate)
    lines = [
        f"Scan of {snapshot.uri} at version {snapshot.version}",
        f"  where    {where if plan.predicate != TRUE else '(everything)'}",
        f"  columns  {', '.join(names.shown_names(plan.columns))}",
    ]
    if plan.limit is not None:
        lines.append(f"  limit    {plan.limit:,}")
    first = plan.stages[0]
    for stage in plan.stages:
        splits, size = _share(stage.splits, first.splits), _share(stage.bytes, first.bytes)
        kept = f"{stage.splits:>8,} splits {splits:>7}  {stage.bytes:>15,} bytes {size:>7}"
        lines.append(f"  {stage.name:<11}{kept}  {_WHY[stage.name]}")
    if plan.routing is not None:
        lines.append(f"  routing    {plan.routing}")
    ways = dict.fromkeys(_access(task.predicate, plan.view.mapping) for task in plan.tasks)
    lines.append(f"  read       {len(plan.tasks):>8,} splits  {'; '.join(ways)}".rstrip())
    return "\n".join(lines)


def _share(part: int, whole: int) -> str:
    return f"({100 * part / max(1, whole):.0f} %)"


def _access(predicate: Predicate, mapping: Mapping) -> str:
    if predicate == TRUE:
        return "Parquet columns, no index needed"
    if _exact(predicate):
        return "the index decides, then Parquet columns of the matching rows"
    if _proposes(predicate, mapping):
        return "the index proposes rows, their values decide"
    return "no index helps: Parquet columns of the condition, then of the matching rows"


def _exact(node: Predicate) -> bool:
    match node:
        case Search():
            return True
        case And(children=children) | Or(children=children):
            return all(_exact(child) for child in children)
        case Not(child=child):
            return _exact(child)
        case _:
            return False


def _proposes(node: Predicate, mapping: Mapping) -> bool:
    match node:
        case And(children=children):
            return any(_proposes(child, mapping) for child in children)
        case Or(children=children):
            return all(_proposes(child, mapping) for child in children)
        case Compare(op="=", column=column, value=str()) | In(column=column):
            field = mapping.by_name.get(column.root)
            return field is not None and field.kind in ("text", "string") and bool(field.field)
        case _:
            return _exact(node)
