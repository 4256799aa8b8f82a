"""The keys of a join's other side: collected once, located in files, and pushed into the read.

Keys that are pushed into the read skip row groups. Such a condition may let through rows that no
key equals, but must not drop one that a key does. So only types take part that Spark and the
statistics of a file order alike.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from indextables.ariadne.lookup.lookup import Located, Lookup
from indextables.ariadne.lookup.view import IndexView
from indextables.ariadne.model.declarations import Computed, Exploded
from indextables.ariadne.values.key_types import as_type
from indextables.predicate import Column as Name
from indextables.predicate import Compare, conjunction
from indextables.predicate.literals import quoted_name

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

MOST_KEYS = 200_000
"""How many different keys are collected."""
_SMALL = 1 << 20
"""Up to this many bytes, by Spark's estimate, keys are collected without a shuffle."""


def locate_frame(
    view: IndexView, df: DataFrame, mapping: dict[str, str]
) -> tuple[Located, pa.Table | None]:
    """The files that may hold the keys, and the keys; None if only their bounds are known."""
    lookup = view.lookup
    names = {
        theirs: ours for theirs, ours in mapping.items() if _is_plain(df, theirs, lookup, ours)
    }
    if not names:
        return lookup.everything(), None
    keys_frame = df
    if df.columns != list(names) or df.columns != list(names.values()):
        keys_frame = df.select(
            *(df[quoted_name(theirs)].alias(ours) for theirs, ours in names.items())
        )
    keys = _collected(keys_frame)
    if keys.num_rows <= MOST_KEYS:
        return view.locate_keys(keys), keys
    return _by_bounds(lookup, keys_frame), None


def _collected(keys_frame: DataFrame) -> pa.Table:
    """The different rows of keys without a null, or one more than the most that are collected."""
    from indextables.spark.bridge.frames import estimated_size

    if estimated_size(keys_frame) > _SMALL:
        # Before the limit: the number of rows shows whether it was reached.
        for name in keys_frame.columns:
            keys_frame = keys_frame.where(keys_frame[quoted_name(name)].isNotNull())
        return keys_frame.distinct().limit(MOST_KEYS + 1).toArrow()
    # A shuffle to find the different ones among few rows takes longer than the rows.
    keys = keys_frame.toArrow().drop_null()
    if any(pa.types.is_nested(field.type) for field in keys.schema):
        return keys
    return keys.group_by(keys.column_names, use_threads=False).aggregate([])


def _by_bounds(lookup: Lookup, keys_frame: DataFrame) -> Located:
    """Files that hold values between the least and the greatest key."""
    from pyspark.sql import functions as f

    ordered = [
        field.name
        for field in keys_frame.schema
        if (data_type := lookup.types.get(field.name)) is not None
        and (
            field.dataType.typeName() in ("byte", "short", "integer", "long", "date")
            # Texts have another order than the numbers and days that they equal.
            or (field.dataType.typeName() == "string" and pa.types.is_string(data_type))
        )
    ]
    if not ordered:
        return lookup.everything()
    ends = [f.array(f.min(quoted_name(n)), f.max(quoted_name(n))).alias(n) for n in ordered]
    bounds_row = keys_frame.select(*ends).toArrow()
    parts = []
    for name in ordered:
        bounds: Any = bounds_row.column(name).combine_chunks()
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

    def plain(data_type: DataType) -> bool:
        if isinstance(data_type, StringType):
            return data_type.simpleString() == "string"  # a collation has an equality of its own
        if isinstance(data_type, (CalendarIntervalType, MapType, VariantType)):
            return False
        inner = [field.dataType for field in getattr(data_type, "fields", [])]
        if hasattr(data_type, "elementType"):
            inner.append(data_type.elementType)
        return all(map(plain, inner))

    given = df.schema[matching_name(theirs, df.columns)].dataType
    return lookup.types.get(ours) is not None and plain(given)


def matching_name(name: str, candidates: Sequence[str]) -> str:
    """A name in the spelling of the candidate that equals it but for the case."""
    if name in candidates:
        return name
    return next((other for other in candidates if other.lower() == name.lower()), name)


_DAY = 86_400_000_000
_FIRST_DAY, _LAST_DAY = -719_162, 2_932_896
"""The first and the last day that Python has a date for."""
_LISTED = 64
"""Up to this many keys are pushed into the read one by one, more as their bounds."""


def key_values(lookup: Lookup, keys: pa.Table) -> list[tuple[str, Any]]:
    """Columns of the files, and the values of which every row with one of the keys has one."""
    pushed = []
    for name in keys.column_names:
        declaration = lookup.data.declarations.get(name)
        if name not in lookup.schema.names or isinstance(declaration, (Computed, Exploded)):
            continue
        converted = as_type(keys.column(name), lookup.types[name])
        values: Any = converted.values.drop_null()
        if converted.is_unknown.any() or not len(values) or not _is_simple(values.type):
            continue
        if not _has_far_days(values):
            pushed.append((name, values.unique()))
    return pushed


def _is_simple(data_type: Any) -> bool:
    return (
        pa.types.is_integer(data_type)
        or pa.types.is_string(data_type)
        or pa.types.is_date32(data_type)
        or pa.types.is_decimal(data_type)
        or pa.types.is_timestamp(data_type)
    )


def _has_far_days(values: Any) -> bool:
    """Whether there are days that Python cannot pass to Spark: it has the years 1 to 9999."""
    is_day = pa.types.is_date32(values.type)
    if not is_day and not pa.types.is_timestamp(values.type):
        return False
    days = pc.divide(values.cast(pa.int32() if is_day else pa.int64()), 1 if is_day else _DAY)
    ends: Any = pc.min_max(days)
    return bool(ends["min"].as_py() <= _FIRST_DAY or ends["max"].as_py() >= _LAST_DAY)


def condition(name: str, values: Any) -> Column:
    """That a column has one of some values, or one between the least and the greatest."""
    from pyspark.sql import functions as f

    data_type = values.type
    if pa.types.is_integer(data_type):
        return f.expr(f"{quoted_name(name)} {_among(values)}")
    column = f.col(quoted_name(name))
    if len(values) <= _LISTED:
        return column.isin([_literal(value, data_type) for value in values])
    ends: Any = pc.min_max(values)
    return column.between(_literal(ends["min"], data_type), _literal(ends["max"], data_type))


def _among(numbers: Any) -> str:
    """Whole numbers as text: each function of PySpark is a few calls of the JVM."""
    if len(numbers) <= _LISTED:
        return f"IN ({', '.join(map(str, numbers.to_pylist()))})"
    ends: Any = pc.min_max(numbers)
    return f"BETWEEN {ends['min']} AND {ends['max']}"


def _literal(value: Any, data_type: Any) -> Column:
    from pyspark.sql import functions as f

    if pa.types.is_timestamp(data_type):
        micros = f.timestamp_micros(f.lit(value.cast(pa.int64()).as_py()))
        return micros if data_type.tz is not None else f.to_timestamp_ntz(f.lit(str(value.as_py())))
    return f.lit(value.as_py())
