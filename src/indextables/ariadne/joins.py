"""Joins with the files of an index, reading only files that can contribute.

The result is exactly Spark's join with all rows of all files, whichever side the index is on. Files
are left out only where Spark drops the index's rows that have no partner: an inner, semi or cross
join, and an outer or anti join whose kept side is the other one. Everything else reads every file.

The other side's keys are collected once, each different one, up to `MOST_KEYS`; beyond that only
their bounds are. Files are then located by the keys, and the keys go into the read as a filter, so
that Parquet row groups are skipped inside the files as well. Such a filter may let through rows
that no key equals, but must not drop one that a key does, so only types take part that Spark and
the statistics of a file order alike. If the other side is not repeatable (`rand()`), the join would
see other keys than were collected, so every file is read.

With a temporal index, files are chosen by the keys of its column alone: the newest row of a value
may lie in a file that no other key leads to, and has to be seen to outrank older ones.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from indextables.ariadne.declarations import Computed, Exploded, Temporal
from indextables.ariadne.files.rows import KeyValues, column_names, extended, frame_of, rows_of
from indextables.ariadne.lookup import Located, Lookup
from indextables.ariadne.opening import IndexView
from indextables.ariadne.values.key_types import as_type
from indextables.config import (
    ARIADNE_DEBUG,
    ARIADNE_INDEX_REPARTITION_COUNT,
    ARIADNE_REPARTITION_DATA_FILES,
)
from indextables.errors import AriadneArgumentError, ColumnNotFoundError, SourceFileMissingError
from indextables.predicate import Column as Name
from indextables.predicate import Compare, conjunction
from indextables.predicate.literals import quoted_name

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from indextables.ariadne.index import Index


logger = logging.getLogger(__name__)

_TYPES = {
    **dict.fromkeys(("inner", "cross"), "inner"),
    **dict.fromkeys(("outer", "full", "fullouter"), "full"),
    **dict.fromkeys(("left", "leftouter"), "left"),
    **dict.fromkeys(("right", "rightouter"), "right"),
    **dict.fromkeys(("semi", "leftsemi"), "semi"),
    **dict.fromkeys(("anti", "leftanti"), "anti"),
}
_PRUNED_LEFT = frozenset(("inner", "semi", "right"))
_PRUNED_RIGHT = frozenset(("inner", "semi", "anti", "left"))


def join_index(
    view: IndexView,
    df: DataFrame,
    using: str | Sequence[str],
    how: str,
    *,
    selection: tuple[str, ...] | None,
) -> DataFrame:
    """`index JOIN df USING (…)`: the rows of the files are the left side."""
    return _Join(view, selection, df, _spelled(view, _names(using)), how).left()


def join(df: DataFrame, index: Index, using: str | Sequence[str], how: str = "inner") -> DataFrame:
    """Spark's join of a DataFrame with all files of an index, reading only files that contribute.

    The rows of the files are the right side; `Index.join` has them on the left.

    Args:
        df: The left side.
        index: The index whose files are the right side.
        using: Columns that both sides have; at least one has an index.
        how: A join type as Spark or SQL spells it: `inner`, `left_semi`, `full outer`.

    Returns:
        What `df.join(files, using, how)` returns, for every join type.

    Raises:
        ColumnNotFoundError: A side has no such column, or `Index.select` left it out.
        AriadneArgumentError: None of the columns has an index, or there is no such join type.
        SourceFileMissingError: A file that the join needs does not exist.

    ```py
    from indextables.ariadne import join

    assert join(keys, events, "user", "left").count() == 2
    ```
    """
    view = index._view()
    return _Join(view, index.selection, df, _spelled(view, _names(using)), how).right()


def locate_from_frame(
    view: IndexView,
    df: DataFrame,
    columns: Mapping[str, str] | Sequence[str] | str,
    *,
    selection: tuple[str, ...] | None,
) -> Located:
    """The files that may hold the keys of a DataFrame.

    `columns` names columns that both sides have, or is `{column of df: index column}`.
    """
    _check_frame(df)
    mapping = (
        dict(columns) if isinstance(columns, Mapping) else {name: name for name in _names(columns)}
    )
    ours = list(mapping.values())
    if len(set(ours)) < len(ours):
        raise AriadneArgumentError("Cannot locate files", ["two columns stand for the same one"])
    _check(view, selection, df, ours, theirs=list(mapping))
    view.lookup.check_indexed(ours, attempt="Cannot locate files")
    return locate_frame(view, df, mapping)[0]


def _check_frame(df: object) -> None:
    if not hasattr(df, "sparkSession"):
        problem = f"{type(df).__name__} is not a Spark DataFrame"
        raise AriadneArgumentError("Cannot use the keys", [problem])


def _names(using: str | Sequence[str]) -> list[str]:
    # A mapping renames, which a join cannot.
    if not isinstance(using, Sequence | Set):
        raise AriadneArgumentError("Cannot join", [f"{using!r} is not a list of columns"])
    names = [using] if isinstance(using, str) else list(using)
    bad = [repr(name) for name in names if not isinstance(name, str) or not name.strip()]
    if bad or not names:
        problem = f"{', '.join(bad)} is not a column" if bad else "there is no column to join on"
        raise AriadneArgumentError("Cannot join", [problem])
    return list(dict.fromkeys(names))


def _spelled(view: IndexView, names: Sequence[str]) -> list[str]:
    """The names in the index's spelling, where Spark does not distinguish cases."""
    if str(view.place.context.spark.conf.get("spark.sql.caseSensitive")).lower() == "true":
        return list(names)
    columns = _columns(view)
    return [matching_name(name, columns) for name in names]


def _columns(view: IndexView) -> list[str]:
    """The columns of the files, and the names of index columns."""
    metadata = view.metadata
    return [*column_names(metadata, name=view.place.name), *metadata.declarations.names]


def _check(
    view: IndexView,
    selection: tuple[str, ...] | None,
    df: DataFrame,
    ours: Sequence[str],
    *,
    theirs: Sequence[str],
) -> None:
    """Refuse columns that either side lacks, all of them at once."""
    columns = set(_columns(view))
    problems = [f"the index has no column '{name}'" for name in ours if name not in columns]
    frame_columns = [column.lower() for column in df.columns]
    problems += [
        f"the DataFrame has no column '{n}'" for n in theirs if n.lower() not in frame_columns
    ]
    if selection is not None:
        unselected = [name for name in ours if name in columns and name not in selection]
        problems += [f"'{name}' is not among the selected columns" for name in unselected]
    if problems:
        raise ColumnNotFoundError("Cannot join", problems, available=sorted(columns))
    indexed = view.metadata.declarations.names
    if not set(ours) & set(indexed):
        problem = (
            f"none of {', '.join(ours)} has an index; indexed are {', '.join(indexed) or 'none'}"
        )
        raise AriadneArgumentError("Cannot join", [problem])


@dataclass(frozen=True)
class _Join:
    view: IndexView
    selection: tuple[str, ...] | None
    df: DataFrame
    using: list[str]
    how: str

    def left(self) -> DataFrame:
        ours = self._ours(_PRUNED_LEFT)
        return ours.join(self.df, self.using, self._join_type())

    def right(self) -> DataFrame:
        ours = self._ours(_PRUNED_RIGHT)
        return self.df.join(ours, self.using, self._join_type())

    def _join_type(self) -> str:
        """The join type in one spelling: `left semi` as in SQL, or `left_semi` as in Spark."""
        join_type = _TYPES.get("".join(str(self.how).lower().replace("_", " ").split()))
        if join_type is None:
            join_types = ", ".join(_TYPES)
            raise AriadneArgumentError("Cannot join", [f"{self.how!r} is not one of {join_types}"])
        return join_type

    def _ours(self, pruned: frozenset[str]) -> DataFrame:
        """The index's side of the join."""
        _check_frame(self.df)
        join_type = self._join_type()
        lookup = self.view.lookup
        _check(self.view, self.selection, self.df, self.using, theirs=self.using)
        needed = {*self.using, *(self.selection or ())}
        exploded = [d.name for d in lookup.data.declarations if isinstance(d, Exploded)]
        aliases = [name for name in exploded if name in needed]
        by = self._pruning_columns()
        if join_type not in pruned or not by or not self._is_repeatable():
            return self._selected(self._read(lookup.everything(), aliases))
        located, keys = locate_frame(self.view, self.df, {name: name for name in by})
        if keys is not None and not keys.num_rows:
            located = Located((), located.total, 0)
        values = [] if keys is None else key_values(lookup, keys)
        temporal = {d.name for d in lookup.data.declarations if isinstance(d, Temporal)}
        before = [
            (n, column_values) for n, column_values in values if not temporal or n in temporal
        ]
        after = _all(
            [(n, column_values) for n, column_values in values if temporal and n not in temporal]
        )
        rows = self._read(located, aliases, before)
        return self._selected(rows if after is None else rows.where(after))

    def _pruning_columns(self) -> list[str]:
        """The join columns whose keys choose the files."""
        declared = self.view.lookup.data.declarations
        temporal = [d.name for d in declared if isinstance(d, Temporal)]
        if temporal:
            return temporal if len(temporal) == 1 and temporal[0] in self.using else []
        return [n for n in self.using if (d := declared.get(n)) is not None and d.kind != "text"]

    def _is_repeatable(self) -> bool:
        from indextables.spark.bridge.frames import is_repeatable

        return not self.df.isStreaming and is_repeatable(self.df)

    def _read(self, located: Located, aliases: Sequence[str], keys: KeyValues = ()) -> DataFrame:
        """The rows of files; those without one of the keys may be left out."""
        place, metadata, lookup = self.view.place, self.view.metadata, self.view.lookup
        missing = sorted(set(located.files) & set(lookup.data.missing))
        if missing:
            raise SourceFileMissingError(place.name, missing)
        context = place.context
        level = logging.INFO if context.config[ARIADNE_DEBUG] else logging.DEBUG
        logger.log(level, "A join with %s: %s", place.name, located)
        few = frame_of(
            place, metadata, lookup.data, schema=lookup.schema, files=located.files, keys=keys
        )
        if few is not None:
            rows = extended(few, metadata, aliases)
        else:
            rows = rows_of(
                context.spark, metadata, located.files, name=place.name, aliases=aliases,
                before=_all(keys),
            )  # fmt: skip
        count = context.config[ARIADNE_INDEX_REPARTITION_COUNT]
        if count is None or not context.config[ARIADNE_REPARTITION_DATA_FILES]:
            return rows
        return rows.repartition(count)

    def _selected(self, rows: DataFrame) -> DataFrame:
        return rows if self.selection is None else rows.select(*map(quoted_name, self.selection))


def _all(keys: KeyValues) -> Column | None:
    combined: Column | None = None
    for name, values in keys:
        holds = condition(name, values)
        combined = holds if combined is None else combined & holds
    return combined


# --- the keys of a join's other side ---------------------------------------------------------

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

    frame_type = df.schema[matching_name(theirs, df.columns)].dataType
    return lookup.types.get(ours) is not None and plain(frame_type)


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
