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
from collections.abc import Sequence, Set
from dataclasses import dataclass
from typing import TYPE_CHECKING

from indextables.ariadne import driver_rows
from indextables.ariadne.collected_keys import located_by, matching_name
from indextables.ariadne.context import Context
from indextables.ariadne.declarations import Exploded, Temporal
from indextables.ariadne.driver_rows import Keys
from indextables.ariadne.frame import column_names, extended, rows_of
from indextables.ariadne.key_filters import condition, key_values
from indextables.ariadne.lookup import Located, Lookup
from indextables.ariadne.query import Queried, lookup_of
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
from indextables.predicate.render import quoted_name

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

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
    _check_frame(df)
    if not isinstance(mapping, dict):
        mapping = {name: name for name in _names(mapping)}
    ours = list(mapping.values())
    if len(set(ours)) < len(ours):
        raise AriadneArgumentError("Cannot locate files", ["two columns stand for the same one"])
    _check(index, df, ours, theirs=list(mapping))
    lookup = lookup_of(index)
    lookup.check_indexed(mapping.values(), what="Cannot locate files")
    return located_by(index, lookup, df, mapping)[0]


def _check_frame(df: object) -> None:
    if not hasattr(df, "sparkSession"):
        told = f"{type(df).__name__} is no DataFrame of Spark"
        raise AriadneArgumentError("Cannot use the keys", [told])


def _names(using: str | Sequence[str]) -> list[str]:
    # A mapping renames, which a join cannot.
    if not isinstance(using, Sequence | Set):
        raise AriadneArgumentError("Cannot join", [f"{using!r} is no list of columns"])
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
    return [matching_name(name, known) for name in names]


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
        return ours.join(self.df, self.using, self._kind())

    def right(self) -> DataFrame:
        ours = self._ours(_PRUNED_RIGHT)
        return self.df.join(ours, self.using, self._kind())

    def _kind(self) -> str:
        """The join type in one spelling: `left semi` as in SQL, or `left_semi` as in Spark."""
        kind = _TYPES.get("".join(str(self.how).lower().replace("_", " ").split()))
        if kind is None:
            known = ", ".join(_TYPES)
            raise AriadneArgumentError("Cannot join", [f"{self.how!r} is none of {known}"])
        return kind

    def _ours(self, pruned: frozenset[str]) -> DataFrame:
        """The index's side of the join."""
        _check_frame(self.df)
        kind = self._kind()
        lookup = lookup_of(self.index)
        _check(self.index, self.df, self.using, theirs=self.using)
        asked = {*self.using, *(self.index.selection or ())}
        exploded = [d.name for d in lookup.data.declarations if isinstance(d, Exploded)]
        aliases = [name for name in exploded if name in asked]
        by = self._pruning_columns(lookup)
        if kind not in pruned or not by or not self._is_repeatable():
            return self._selected(self._read(lookup.everything(), lookup, aliases))
        located, keys = located_by(self.index, lookup, self.df, {name: name for name in by})
        if keys is not None and not keys.num_rows:
            located = Located((), located.total, 0)
        values = [] if keys is None else key_values(lookup, keys)
        temporal = {d.name for d in lookup.data.declarations if isinstance(d, Temporal)}
        before = [(n, found) for n, found in values if not temporal or n in temporal]
        after = _all([(n, found) for n, found in values if temporal and n not in temporal])
        rows = self._read(located, lookup, aliases, before)
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
        self, located: Located, lookup: Lookup, aliases: Sequence[str], keys: Keys = ()
    ) -> DataFrame:
        """The rows of files; those without one of the keys may be left out."""
        gone = sorted(set(located.files) & set(lookup.data.missing))
        if gone:
            raise SourceFileMissingError(self.index.name, gone)
        index = self.index
        context = Context.of(index.spark, index.storage_path)
        level = logging.INFO if context.config[ARIADNE_DEBUG] else logging.DEBUG
        logger.log(level, "A join with %s: %s", index.name, located)
        few = driver_rows.frame_of(context, index.metadata, lookup, located, keys, name=index.name)
        if few is not None:
            rows = extended(few, index.metadata, aliases)
        else:
            rows = rows_of(
                index.spark, index.metadata, located.files, name=index.name, aliases=aliases,
                before=_all(keys),
            )  # fmt: skip
        count = context.config[ARIADNE_INDEX_REPARTITION_COUNT]
        if count is None or not context.config[ARIADNE_REPARTITION_DATA_FILES]:
            return rows
        return rows.repartition(count)

    def _selected(self, rows: DataFrame) -> DataFrame:
        selection = self.index.selection
        return rows if selection is None else rows.select(*map(quoted_name, selection))


def _all(keys: Keys) -> Column | None:
    found: Column | None = None
    for name, values in keys:
        one = condition(name, values)
        found = one if found is None else found & one
    return found
