"""What our catalogs share: answers that are the same, and how Spark describes a table to them.

Spark passes a table to load or to create in a form that depends on its version.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from indextables.errors import SchemaError
from indextables.jobs.write_target import CheckConstraint, ColumnPath, DeclaredLayout
from indextables.plan.access import PROVIDERS
from indextables.plan.view import LAYOUT_PROPERTY
from indextables.spark.bridge.jvm.handles import (
    V2,
    Comparable,
    JavaObject,
    Jvm,
)
from indextables.spark.bridge.sessions import java_dict
from indextables.spark.schemas import table_schema
from indextables.storage.location import HIDDEN

_NOW = "timeTravel=null"
_OPTION = "option."
_OF_ONE_TABLE = ("location", "owner", "external", "is_managed_location", "table_type")


class NamedCatalog(Comparable):
    """What the catalogs of the bridge answer in the same way."""

    def __init__(self, java: Jvm, name: str) -> None:
        self.java = java
        self._name = name

    def key(self) -> str:
        return f"Catalog {self._name}"

    def initialize(self, name: str, _options: JavaObject) -> None:
        self._name = name

    def name(self) -> str:
        return self._name

    def capabilities(self) -> JavaObject:
        return self.java.empty_set

    def tableStateOptionKeys(self) -> JavaObject:  # noqa: N802
        return self.java.empty_set

    def changelogStateOptionKeys(self) -> JavaObject:  # noqa: N802
        return self.java.empty_set

    def useNullableQuerySchema(self) -> bool:  # noqa: N802
        return True


def is_to_write(more: Sequence[Any]) -> bool:
    """Whether Spark loads a table to write to it, in any of the forms that it has for that."""
    for context in more:
        if isinstance(context, str | int | Mapping):
            continue
        if _is_context(context.toString()):
            return bool(context.writePrivileges())
        return True
    return False


def travels(context: Any) -> bool:
    """Whether what Spark passes with a table to load is a context with an older version in it.

    Each query asks this twice for each of its tables, so it is one call.
    """
    if isinstance(context, Mapping):  # the options of a read
        return False
    text = context.toString()
    return _is_context(text) and _NOW not in text and bool(context.timeTravel().isPresent())


def _is_context(text: str) -> bool:
    return text.startswith("TableContext")


_LAYOUTS = ("bucket", "sorted_bucket", "cluster_by")


def table_info(java: Jvm, info: Sequence[Any]) -> tuple[pa.Schema, tuple[str, ...], dict[str, str]]:
    """Schema, partition columns and properties, from whichever form of createTable was called."""
    if len(info) == 1:
        schema, partitions, properties = (
            info[0].schema(),
            info[0].partitions(),
            info[0].properties(),
        )
    else:
        columns, partitions, properties = info
        schema = columns
        if columns.getClass().isArray():
            schema = java.find(V2 + "catalog.CatalogV2Util").v2ColumnsToStructType(columns)
    names, layout = [], None
    for transform in partitions:
        if transform.name() in _LAYOUTS:
            if layout is not None:
                raise SchemaError("A table has one declaration of buckets or clustering, not two.")
            layout = _declared_layout(transform)
            continue
        if transform.name() != "identity":
            raise SchemaError(
                f"An index table is partitioned by columns, not by {transform.toString()}."
            )
        names.append(".".join(transform.references()[0].fieldNames()))
    stored = java.schema_of(java.stored_struct(schema))
    written = as_written(java_dict(properties))
    if layout is not None:
        written[LAYOUT_PROPERTY] = layout.to_json()
    return table_schema(stored, declared=True), tuple(names), written


def _declared_layout(transform: JavaObject) -> DeclaredLayout:
    """Buckets or clustering: Spark has their number before, after or between the columns."""
    buckets: int | None = None
    columns: list[ColumnPath] = []
    sorted_by: list[ColumnPath] = []
    for argument in transform.arguments():
        if argument.getClass().getSimpleName() == "LiteralValue":
            buckets = int(argument.value())
            continue
        is_sorting = transform.name() == "sorted_bucket" and buckets is not None
        (sorted_by if is_sorting else columns).append(tuple(argument.fieldNames()))
    return DeclaredLayout(tuple(columns), buckets, tuple(sorted_by))


def java_layout(java: Jvm, layout: DeclaredLayout) -> JavaObject:
    """A declared layout as Spark's transform of partitioning."""
    expressions = java.find(V2 + "expressions.LogicalExpressions")

    def references(paths: Sequence[Sequence[str]]) -> JavaObject:
        return java.array(
            V2 + "expressions.NamedReference",
            [expressions.reference(java.seq(list(path))) for path in paths],
        )

    if layout.buckets is None:
        return expressions.clusterBy(references(layout.columns))
    if not layout.sorted_by:
        return expressions.bucket(layout.buckets, references(layout.columns))
    return expressions.bucket(
        layout.buckets, references(layout.columns), references(layout.sorted_by)
    )


def copied_info(java: Jvm, info: JavaObject, source: Any) -> JavaObject:
    """What CREATE TABLE … LIKE says of a table, with the format and the properties of its source.

    Spark leaves those to the catalog. What the statement says itself wins.
    """
    requested, source_properties = java_dict(info.properties()), java_dict(source.properties())
    provider = str(source_properties.get("provider", "")).lower()
    if provider not in PROVIDERS or requested.get("provider", provider).lower() not in PROVIDERS:
        return info
    copied = {
        k: v
        for k, v in source_properties.items()
        if k not in _OF_ONE_TABLE and not k.startswith(_OPTION)
    }
    builder = java.find(V2 + "catalog.TableInfo$Builder")()
    return (
        builder.withColumns(info.columns())
        .withPartitions(info.partitions())
        .withConstraints(info.constraints())
        .withProperties(java.hash_map({**copied, **requested}))
        .build()
    )


def options_in(properties: Mapping[str, str]) -> dict[str, str]:
    """What OPTIONS of CREATE TABLE says, which Spark puts among the properties."""
    return {k.removeprefix(_OPTION): v for k, v in properties.items() if k.startswith(_OPTION)}


def as_written(properties: Mapping[str, str]) -> dict[str, str]:
    """The properties under the names that the statement has, which `sql_entry` may have marked.

    Spark passes each of OPTIONS twice, with a prefix and without.
    """
    marked = _OPTION + HIDDEN
    names = {k: _OPTION + k.removeprefix(marked) for k in properties if k.startswith(marked)}
    names |= {k.removeprefix(_OPTION): new.removeprefix(_OPTION) for k, new in names.items()}
    return {names.get(k, k): v for k, v in properties.items()}


def has_constraints(info: Sequence[Any]) -> bool:
    """Whether CREATE TABLE has constraints; older forms of it have none."""
    return len(info) == 1 and bool(len(info[0].constraints()))


def declared_constraints(info: Sequence[Any]) -> list[CheckConstraint]:
    """Return the constraints of CREATE TABLE."""
    return (
        [check_constraint(constraint) for constraint in info[0].constraints()]
        if has_constraints(info)
        else []
    )


def check_constraint(constraint: JavaObject) -> CheckConstraint:
    """A constraint of the JVM, which has to be a CHECK."""
    if constraint.getClass().getSimpleName() != "Check":
        raise SchemaError(
            f"Index tables have CHECK constraints only and would not enforce "
            f"{constraint.toDDL()}. Leave it out."
        )
    return CheckConstraint(constraint.name(), constraint.predicateSql())
