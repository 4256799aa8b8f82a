"""The keys of a join as conditions that go into the read of the files, to skip row groups.

A condition may let through rows that no key equals, never keep out one that a key does. So only
types that Spark and the file's statistics order alike take part.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from indextables.ariadne.declarations import Computed, Exploded
from indextables.ariadne.join_keys import as_type
from indextables.ariadne.lookup import Lookup
from indextables.predicate.render import quoted_name

if TYPE_CHECKING:
    from pyspark.sql import Column

_DAY = 86_400_000_000
_FIRST_DAY, _LAST_DAY = -719_162, 2_932_896
"""The first and the last day that Python has a date for."""
_LISTED = 64
"""Up to this many keys are pushed into the read one by one, more as their bounds."""


def key_values(lookup: Lookup, keys: pa.Table) -> list[tuple[str, Any]]:
    """Columns of the files, and the values of which every row with one of the keys has one."""
    found = []
    for name in keys.column_names:
        declaration = lookup.data.declarations.get(name)
        if name not in lookup.schema.names or isinstance(declaration, (Computed, Exploded)):
            continue
        converted = as_type(keys.column(name), lookup.types[name])
        values: Any = converted.values.drop_null()
        if converted.is_unknown.any() or not len(values) or not _is_simple(values.type):
            continue
        if not _has_far_days(values):
            found.append((name, values.unique()))
    return found


def _is_simple(kind: Any) -> bool:
    return (
        pa.types.is_integer(kind)
        or pa.types.is_string(kind)
        or pa.types.is_date32(kind)
        or pa.types.is_decimal(kind)
        or pa.types.is_timestamp(kind)
    )


def _has_far_days(values: Any) -> bool:
    """Whether there are days that Python cannot tell Spark: it knows the years 1 to 9999."""
    is_day = pa.types.is_date32(values.type)
    if not is_day and not pa.types.is_timestamp(values.type):
        return False
    days = pc.divide(values.cast(pa.int32() if is_day else pa.int64()), 1 if is_day else _DAY)
    ends: Any = pc.min_max(days)
    return bool(ends["min"].as_py() <= _FIRST_DAY or ends["max"].as_py() >= _LAST_DAY)


def condition(name: str, values: Any) -> Column:
    """That a column has one of some values, or one between the least and the greatest."""
    from pyspark.sql import functions as f

    kind = values.type
    if pa.types.is_integer(kind):
        return f.expr(f"{quoted_name(name)} {_among(values)}")
    column = f.col(quoted_name(name))
    if len(values) <= _LISTED:
        return column.isin([_literal(value, kind) for value in values])
    ends: Any = pc.min_max(values)
    return column.between(_literal(ends["min"], kind), _literal(ends["max"], kind))


def _among(numbers: Any) -> str:
    """Whole numbers as text: each function of PySpark is a few calls of the JVM."""
    if len(numbers) <= _LISTED:
        return f"IN ({', '.join(map(str, numbers.to_pylist()))})"
    ends: Any = pc.min_max(numbers)
    return f"BETWEEN {ends['min']} AND {ends['max']}"


def _literal(value: Any, kind: Any) -> Column:
    from pyspark.sql import functions as f

    if pa.types.is_timestamp(kind):
        micros = f.timestamp_micros(f.lit(value.cast(pa.int64()).as_py()))
        return micros if kind.tz is not None else f.to_timestamp_ntz(f.lit(str(value.as_py())))
    return f.lit(value.as_py())
