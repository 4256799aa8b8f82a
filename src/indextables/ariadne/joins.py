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
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from typing import TYPE_CHECKING

from indextables.ariadne.files import driver_rows
from indextables.ariadne.files.driver_rows import KeyValues
from indextables.ariadne.files.rows import column_names, extended, rows_of
from indextables.ariadne.lookup.join_keys import (
    condition,
    key_values,
    locate_frame,
    matching_name,
)
from indextables.ariadne.lookup.lookup import Located
from indextables.ariadne.lookup.view import IndexView
from indextables.ariadne.model.declarations import Exploded, Temporal
from indextables.config import (
    ARIADNE_DEBUG,
    ARIADNE_INDEX_REPARTITION_COUNT,
    ARIADNE_REPARTITION_DATA_FILES,
)
from indextables.errors import AriadneArgumentError, ColumnNotFoundError, SourceFileMissingError
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
    how: str = "inner",
    *,
    selection: tuple[str, ...] | None = None,
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
    selection: tuple[str, ...] | None = None,
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
    view.lookup.check_indexed(ours, what="Cannot locate files")
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
    given = [column.lower() for column in df.columns]
    problems += [f"the DataFrame has no column '{n}'" for n in theirs if n.lower() not in given]
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
        few = driver_rows.frame_of(
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
        one = condition(name, values)
        combined = one if combined is None else combined & one
    return combined
