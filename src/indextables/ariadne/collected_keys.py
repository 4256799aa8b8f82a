"""The keys of a join's other side: collected once, and the files that may hold them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from indextables.ariadne.join_keys import as_type
from indextables.ariadne.lookup import Located, Lookup
from indextables.ariadne.query import Queried, locate_keys
from indextables.predicate import Column as Name
from indextables.predicate import Compare, conjunction
from indextables.predicate.render import quoted_name

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

MOST_KEYS = 200_000
"""How many different keys are collected."""
_SMALL = 1 << 20
"""Up to this many bytes, by Spark's estimate, keys are collected without a shuffle."""


def located_by(
    index: Queried, lookup: Lookup, df: DataFrame, mapping: dict[str, str]
) -> tuple[Located, pa.Table | None]:
    """The files that may hold the keys, and the keys; None if only their bounds are known."""
    names = {
        theirs: ours for theirs, ours in mapping.items() if _is_plain(df, theirs, lookup, ours)
    }
    if not names:
        return lookup.everything(), None
    wanted = df
    if df.columns != list(names) or df.columns != list(names.values()):
        wanted = df.select(*(df[quoted_name(theirs)].alias(ours) for theirs, ours in names.items()))
    keys = _collected(wanted)
    if keys.num_rows <= MOST_KEYS:
        return locate_keys(index, lookup, keys), keys
    return _by_bounds(lookup, wanted), None


def _collected(wanted: DataFrame) -> pa.Table:
    """The different rows of keys without a null, or one more than the most that are collected."""
    from indextables.spark.bridge.frames import estimated_size

    if estimated_size(wanted) > _SMALL:
        # Before the limit: what is cut off has to be noticed by the number of rows.
        for name in wanted.columns:
            wanted = wanted.where(wanted[quoted_name(name)].isNotNull())
        return wanted.distinct().limit(MOST_KEYS + 1).toArrow()
    # A shuffle to find the different ones among few rows takes longer than the rows.
    keys = wanted.toArrow().drop_null()
    if any(pa.types.is_nested(field.type) for field in keys.schema):
        return keys
    return keys.group_by(keys.column_names, use_threads=False).aggregate([])


def _by_bounds(lookup: Lookup, wanted: DataFrame) -> Located:
    """Files that hold values between the least and the greatest key."""
    from pyspark.sql import functions as f

    ordered = [
        field.name
        for field in wanted.schema
        if (kind := lookup.types.get(field.name)) is not None
        and (
            field.dataType.typeName() in ("byte", "short", "integer", "long", "date")
            # Texts have another order than the numbers and days that they equal.
            or (field.dataType.typeName() == "string" and pa.types.is_string(kind))
        )
    ]
    if not ordered:
        return lookup.everything()
    ends = [f.array(f.min(quoted_name(n)), f.max(quoted_name(n))).alias(n) for n in ordered]
    found = wanted.select(*ends).toArrow()
    parts = []
    for name in ordered:
        bounds: Any = found.column(name).combine_chunks()
        both = as_type(bounds.flatten(), lookup.types[name])
        if not both.is_unknown.any() and both.values.null_count == 0:
            try:
                low, high = both.values.to_pylist()
            except (OverflowError, ValueError):  # days that Python has no date for
                continue
            parts += [Compare(">=", Name((name,)), low), Compare("<=", Name((name,)), high)]
    return lookup.where(conjunction(*parts)) if parts else lookup.everything()


def _is_plain(df: DataFrame, theirs: str, lookup: Lookup, ours: str) -> bool:
    """Whether keys of this column can be collected and compared by their bytes."""
    from pyspark.sql.types import (
        CalendarIntervalType,
        DataType,
        MapType,
        StringType,
        VariantType,
    )

    def plain(kind: DataType) -> bool:
        if isinstance(kind, StringType):
            return kind.simpleString() == "string"  # a collation has an equality of its own
        if isinstance(kind, (CalendarIntervalType, MapType, VariantType)):
            return False
        inner = [field.dataType for field in getattr(kind, "fields", [])]
        if hasattr(kind, "elementType"):
            inner.append(kind.elementType)
        return all(map(plain, inner))

    given = df.schema[matching_name(theirs, df.columns)].dataType
    return lookup.types.get(ours) is not None and plain(given)


def matching_name(name: str, known: Sequence[str]) -> str:
    """A name as one of the known ones spells it."""
    if name in known:
        return name
    return next((other for other in known if other.lower() == name.lower()), name)
