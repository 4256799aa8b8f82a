"""Joins with the files of an index, reading only files that can contribute.

The result is exactly Spark's join with all rows of all files, whichever side the index is on. Files
are left out only where Spark drops the index's rows that have no partner: an inner, semi or cross
join, and an outer or anti join whose kept side is the other one. Everything else reads every file.

The other side's keys are collected once, each different one, up to `MOST_KEYS`; beyond that only
their bounds are. Files are then located by the keys, and the keys go into the read as a filter, so
that Parquet row groups are skipped inside the files as well. If the other side is not repeatable
(`rand()`), the join would see other keys than were collected, so every file is read.

With a temporal index, files are chosen by the keys of its column alone: the newest row of a value
may lie in a file that no other key leads to, and has to be seen to outrank older ones.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from indextables.ariadne.context import ariadne_config
from indextables.ariadne.declarations import Exploded, Temporal
from indextables.ariadne.frame import column_names, rows_of
from indextables.ariadne.join_keys import as_type
from indextables.ariadne.key_filters import key_filters
from indextables.ariadne.lookup import Located, Lookup
from indextables.ariadne.query import Queried, locate_keys, lookup_of
from indextables.config import (
    ARIADNE_DEBUG,
    ARIADNE_INDEX_REPARTITION_COUNT,
    ARIADNE_REPARTITION_DATA_FILES,
)
from indextables.errors import (
    AriadneArgumentError,
    ColumnNotFoundError,
    SourceFileMissingError,
)
from indextables.predicate import Column as Name
from indextables.predicate import Compare, conjunction
from indextables.spark.readwriter import session_settings

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

logger = logging.getLogger(__name__)

MOST_KEYS = 200_000
"""How many different keys are collected."""
_SMALL = 1 << 20
"""Up to this many bytes, by Spark's estimate, keys are collected without a shuffle."""

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
    index: Queried, df: DataFrame, using: str | Sequence[str], how: str = "inner"
) -> DataFrame:
    """`index JOIN df USING (…)`: the index's rows are the left side."""
    return _Join(index, df, _spelled(index, _names(using)), how).left()


def join(
    df: DataFrame, index: Queried, using: str | Sequence[str], how: str = "inner"
) -> DataFrame:
    """`df JOIN index USING (…)`: the index's rows are the right side."""
    return _Join(index, df, _spelled(index, _names(using)), how).right()


def locate_from_frame(
    index: Queried, df: DataFrame, mapping: dict[str, str] | Sequence[str] | str
) -> Located:
    """The files that may hold the keys of a DataFrame.

    `mapping` names columns that both have, or is `{theirs: ours}`.
    """
    if not isinstance(mapping, dict):
        mapping = {name: name for name in _names(mapping)}
    _check(index, df.select(*(df[_quoted(c)] for c in mapping)), list(mapping.values()),
           theirs=list(mapping))  # fmt: skip
    lookup = lookup_of(index)
    lookup.check_indexed(mapping.values(), what="Cannot locate files")
    return _locate(index, lookup, df, mapping)[0]


def _names(using: str | Sequence[str]) -> list[str]:
    names = [using] if isinstance(using, str) else list(using)
    bad = [repr(name) for name in names if not isinstance(name, str) or not name.strip()]
    if bad or not names:
        problem = f"{', '.join(bad)} is no column" if bad else "there is no column to join on"
        raise AriadneArgumentError("Cannot join", [problem])
    return list(dict.fromkeys(names))


def _spelled(index: Queried, names: Sequence[str]) -> list[str]:
    """The names in the index's spelling, where Spark does not tell cases apart."""
    if str(index.spark.conf.get("spark.sql.caseSensitive")).lower() == "true":
        return list(names)
    known = [*column_names(index.metadata, name=index.name), *index.metadata.declarations.names]
    return [_match(name, known) for name in names]


def _match(name: str, known: Sequence[str]) -> str:
    if name in known:
        return name
    return next((other for other in known if other.lower() == name.lower()), name)


def _check(index: Queried, df: DataFrame, ours: Sequence[str], *, theirs: Sequence[str]) -> None:
    """Refuse columns that either side lacks, all of them at once."""
    known = {*column_names(index.metadata, name=index.name), *index.metadata.declarations.names}
    problems = [f"the index has no column '{name}'" for name in ours if name not in known]
    have = [column.lower() for column in df.columns]
    problems += [f"the DataFrame has no column '{n}'" for n in theirs if n.lower() not in have]
    if index.selection is not None:
        unselected = [name for name in ours if name in known and name not in index.selection]
        problems += [f"'{name}' is not among the selected columns" for name in unselected]
    if problems:
        raise ColumnNotFoundError("Cannot join", problems, available=sorted(known))
    if not set(ours) & set(index.metadata.declarations.names):
        indexed = ", ".join(index.metadata.declarations.names) or "none"
        raise AriadneArgumentError(
            "Cannot join", [f"none of {', '.join(ours)} has an index; indexed are {indexed}"]
        )


@dataclass(frozen=True)
class _Join:
    index: Queried
    df: DataFrame
    using: list[str]
    how: str

    def left(self) -> DataFrame:
        ours = self._ours(_PRUNED_LEFT)
        return ours.join(self.df, self.using, self.how)

    def right(self) -> DataFrame:
        ours = self._ours(_PRUNED_RIGHT)
        return self.df.join(ours, self.using, self.how)

    def _ours(self, pruned: frozenset[str]) -> DataFrame:
        """The index's side of the join."""
        kind = _TYPES.get(self.how.lower().replace("_", "").replace(" ", ""))
        if kind is None:
            known = ", ".join(_TYPES)
            raise AriadneArgumentError("Cannot join", [f"{self.how!r} is none of {known}"])
        lookup = lookup_of(self.index)
        _check(self.index, self.df, self.using, theirs=self.using)
        asked = {*self.using, *(self.index.selection or ())}
        exploded = [d.name for d in lookup.data.declarations if isinstance(d, Exploded)]
        aliases = [name for name in exploded if name in asked]
        by = self._pruning_columns(lookup)
        if kind not in pruned or not by or not self._is_repeatable():
            return self._selected(self._read(lookup.everything(), lookup, aliases))
        located, keys = _locate(self.index, lookup, self.df, {name: name for name in by})
        if keys is not None and not keys.num_rows:
            located = Located((), located.total, 0)
        filters = [] if keys is None else key_filters(lookup, keys)
        temporal = {d.name for d in lookup.data.declarations if isinstance(d, Temporal)}
        before = _all(condition for name, condition in filters if name in temporal)
        after = _all(condition for name, condition in filters if name not in temporal)
        if not temporal:
            before, after = after, None
        rows = self._read(located, lookup, aliases, before=before)
        return self._selected(rows if after is None else rows.where(after))

    def _pruning_columns(self, lookup: Lookup) -> list[str]:
        """The join columns whose keys choose the files."""
        declared = lookup.data.declarations
        temporal = [d.name for d in declared if isinstance(d, Temporal)]
        if temporal:
            return temporal if len(temporal) == 1 and temporal[0] in self.using else []
        return [n for n in self.using if (d := declared.get(n)) is not None and d.kind != "text"]

    def _is_repeatable(self) -> bool:
        from indextables.spark.bridge.frames import is_repeatable

        return not self.df.isStreaming and is_repeatable(self.df)

    def _read(
        self,
        located: Located,
        lookup: Lookup,
        aliases: Sequence[str],
        *,
        before: Column | None = None,
    ) -> DataFrame:
        gone = sorted(set(located.files) & set(lookup.data.missing))
        if gone:
            raise SourceFileMissingError(self.index.name, gone)
        index = self.index
        config = ariadne_config(session_settings(index.spark))
        level = logging.INFO if config[ARIADNE_DEBUG] else logging.DEBUG
        logger.log(level, "A join with %s: %s", index.name, located)
        rows = rows_of(
            index.spark, index.metadata, located.files, name=index.name, aliases=aliases,
            before=before,
        )  # fmt: skip
        count = config[ARIADNE_INDEX_REPARTITION_COUNT]
        if count is None or not config[ARIADNE_REPARTITION_DATA_FILES]:
            return rows
        return rows.repartition(count)

    def _selected(self, rows: DataFrame) -> DataFrame:
        selection = self.index.selection
        return rows if selection is None else rows.select(*map(_quoted, selection))


# --- keys ------------------------------------------------------------------------------------


def _locate(
    index: Queried, lookup: Lookup, df: DataFrame, mapping: dict[str, str]
) -> tuple[Located, pa.Table | None]:
    """The files that may hold the keys, and the keys; None if only their bounds are known."""
    names = {
        theirs: ours for theirs, ours in mapping.items() if _is_plain(df, theirs, lookup, ours)
    }
    if not names:
        return lookup.everything(), None
    wanted = df.select(*(df[_quoted(theirs)].alias(ours) for theirs, ours in names.items()))
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
            wanted = wanted.where(wanted[_quoted(name)].isNotNull())
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
        if lookup.types.get(field.name) is not None
        and field.dataType.typeName() in ("byte", "short", "integer", "long", "string", "date")
    ]
    if not ordered:
        return lookup.everything()
    ends = [f.struct(f.min(_quoted(n)), f.max(_quoted(n))).alias(n) for n in ordered]
    (row,) = wanted.select(*ends).collect()
    parts = []
    for name in ordered:
        both = as_type(pa.array(list(row[name])), lookup.types[name])
        if not both.is_unknown.any() and both.values.null_count == 0:
            low, high = both.values.to_pylist()
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

    given = df.schema[_match(theirs, df.columns)].dataType
    return lookup.types.get(ours) is not None and plain(given)


def _all(conditions: Iterable[Column]) -> Column | None:
    found: Column | None = None
    for condition in conditions:
        found = condition if found is None else found & condition
    return found


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"
