"""Which files can hold a matching row: a predicate on partition values and statistics.

For every node of the predicate and every file this asks three questions at once: may a row of the
file make it true, may one make it false, may one make it null? NOT swaps the first two, so it is
as safe as the rest. Partition values are exact. Statistics only bound: a file is left out when
its bounds prove that no row can match, and what is missing or unreadable proves nothing.

Statistics mislead in ways that are known, and each is allowed for:

- a maximum may be cut to a prefix without a mark, so a long one stands for all that begin with it;
- minima and maxima of floats leave NaN out, and NaN is greater than every number;
- text may have been ordered by UTF-16 units, which differs from UTF-8 from U+E000 on;
- bounds in the wrong order were not made by our rules at all.

A condition about partition columns alone chooses whole partitions (`files_of_partitions`): then no
row has to be read.
"""

from __future__ import annotations

import contextlib
import datetime
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, Protocol, TypeAlias

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from indextables.errors import CorruptLogError, NotAPartitionError
from indextables.log.files import deleted_rows
from indextables.log.snapshot import Snapshot
from indextables.plan.column_names import names_of
from indextables.plan.statistics import (
    NULL_PARTITION,
    Flags,
    Possible,
    ValueRange,
    decode,
    flags,
    lookup,
    value_range,
)
from indextables.predicate import (
    TRUE,
    And,
    Column,
    Compare,
    Condition,
    Constant,
    Expression,
    In,
    IsNull,
    Not,
    Or,
    Predicate,
    Search,
    columns,
    conjunction,
    conjuncts,
    searches,
)
from indextables.predicate.names import column_type
from indextables.split.row_filter import evaluate
from indextables.split.write.writer import spell

TRUNCATION_LENGTH = 32
"""From this many characters on, a maximum may be a prefix of the real one."""

Counts: TypeAlias = "np.ndarray[Any, np.dtype[np.int64]]"

_MOST_KEPT = 500_000
"""Of one version so many ranges and answers are kept, each of one file."""
_MOST_ENTRIES = 1_000
_MOST_VALUES = 64
"""A longer list is not kept."""
_NUMBER_LIKE = re.compile(r"\s*[+-]?[\d.]+([eE][+-]?\d+)?\s*")


class Verdict(NamedTuple):
    """What is known about the rows of each file."""

    keep: Flags
    """Some row may match. Only files where this is false may be left out."""
    all_match: Flags
    """Every row matches, so that the file's `numRecords` is its count."""


class Bounds(Protocol):
    """The least and the greatest value of a partition column, as text."""

    @property
    def min(self) -> str | None: ...
    @property
    def max(self) -> str | None: ...


def judge(
    predicate: Predicate,
    files: pa.Table,
    *,
    schema: pa.Schema,
    partition_columns: Sequence[str],
    truncation_length: int = TRUNCATION_LENGTH,
) -> Verdict:
    """Judge every file of a snapshot.

    `files` has the columns of the log: `partitionValues`, `minValues` and `maxValues` as maps of
    text, `numRecords`, and `stats`: JSON with `nullCount` by column and, where it is not zero,
    `nanCount`.
    """
    parts = frozenset(partition_columns)
    return FileStatistics(files, schema, parts, truncation_length).judge(predicate)


def keep_mask(
    predicate: Predicate,
    files: pa.Table,
    *,
    schema: pa.Schema,
    partition_columns: Sequence[str],
    truncation_length: int = TRUNCATION_LENGTH,
) -> Flags:
    """True where a file may hold a matching row: `judge` without what only counting needs."""
    parts = frozenset(partition_columns)
    return FileStatistics(files, schema, parts, truncation_length).keep(predicate)


def keep_row_groups(
    predicate: Predicate, parquet: pq.FileMetaData, stored: pa.Schema, *, schema: pa.Schema
) -> Flags:
    """True where a row group of a split may hold a matching row, by Parquet's own bounds.

    `stored` are the columns of the split. One whose type is not the table's proves nothing.
    """
    names = {column.root for column in columns(predicate) if not column.path[1:]}
    leaves = {parquet.schema.column(n).path: n for n in range(len(parquet.schema))}
    stored_names = [
        name
        for name in names & set(stored.names) & leaves.keys()
        if name in schema.names and stored.field(name).type.equals(schema.field(name).type)
    ]
    low: list[dict[str, str]] = []
    high: list[dict[str, str]] = []
    for number in range(parquet.num_row_groups):
        group = parquet.row_group(number)
        low.append({})
        high.append({})
        for name in stored_names:
            bounds = _group_bounds(group.column(leaves[name]), stored.field(name).type)
            if bounds is not None:
                low[-1][name], high[-1][name] = bounds
    texts = pa.map_(pa.string(), pa.string())
    groups = pa.table(
        {
            "minValues": pa.array([list(bound.items()) for bound in low], texts),
            "maxValues": pa.array([list(bound.items()) for bound in high], texts),
        }
    )
    return keep_mask(predicate, groups, schema=schema, partition_columns=())


def _group_bounds(chunk: Any, data_type: pa.DataType) -> tuple[str, str] | None:
    """The bounds of a column chunk as the log spells them."""
    statistics = chunk.statistics
    if statistics is None or not statistics.has_min_max:
        return None
    types = pa.types
    if types.is_timestamp(data_type) and data_type.unit == "us":
        return spell(statistics.min_raw), spell(statistics.max_raw)
    if types.is_signed_integer(data_type) or types.is_date(data_type) or types.is_string(data_type):
        with contextlib.suppress(OverflowError, ValueError):  # a date that Python has no year for
            return spell(statistics.min), spell(statistics.max)
    return None


def partition_only(predicate: Predicate, partition_columns: Collection[str]) -> bool:
    """Whether partition values alone decide a predicate, so that no row need be read.

    >>> partition_only(IsNull(Column(("day",))), ["day"])
    True
    """
    return not searches(predicate) and all(
        column.path[1:] == () and column.root in partition_columns for column in columns(predicate)
    )


def bounds_may_match(
    predicate: Predicate,
    bounds: Mapping[str, Bounds | None] | None,
    *,
    schema: pa.Schema,
    partition_columns: Sequence[str],
) -> bool:
    """Whether files of a manifest may match, by the `min` and `max` of its partition values."""
    if not bounds:
        return True
    source = _Bounds(bounds, schema, frozenset(partition_columns))
    return bool(possible(predicate, source, 1).true[0])


# --- the tree --------------------------------------------------------------------------------


class Source(Protocol):
    """Answers conditions on columns, and searches, for each file."""

    def condition(self, node: Condition) -> Possible:
        """The possible results of a condition for the rows of each file."""
        ...

    def expression(self, node: Expression) -> Possible:
        """The possible results of a computed condition for the rows of each file."""
        ...

    def search(self, node: Search) -> Possible:
        """The possible results of a search for the rows of each file; it is never null."""
        ...


def possible(node: Predicate, source: Source, count: int) -> Possible:
    """The possible results of a predicate for the rows of each of `count` files."""
    match node:
        case And(children=children):
            answers = [possible(child, source, count) for child in children]
            is_false = _any(f.false & ~f.true & ~f.null for f in answers)
            return Possible(
                _every(f.true for f in answers),
                _any(f.false for f in answers),
                _any(f.null for f in answers) & ~is_false,
            )
        case Or(children=children):
            answers = [possible(child, source, count) for child in children]
            is_true = _any(f.true & ~f.false & ~f.null for f in answers)
            return Possible(
                _any(f.true for f in answers),
                _every(f.false for f in answers),
                _any(f.null for f in answers) & ~is_true,
            )
        case Not(child=child):
            inner = possible(child, source, count)
            return Possible(inner.false, inner.true, inner.null)
        case Constant(value=value):
            return Possible(*(np.full(count, value is answer) for answer in (True, False, None)))
        case Search():
            return source.search(node)
        case Expression():
            return source.expression(node)
        case _:
            return source.condition(node)


def _every(answers: Iterable[Flags]) -> Flags:
    result: Flags = np.logical_and.reduce(list(answers))
    return result


def _any(answers: Iterable[Flags]) -> Flags:
    result: Flags = np.logical_or.reduce(list(answers))
    return result


def _yes(count: int) -> Flags:
    return np.ones(count, np.bool_)


def _anything(count: int) -> Possible:
    return Possible(_yes(count), _yes(count), _yes(count))


def _any_search(count: int) -> Possible:
    return Possible(_yes(count), _yes(count), ~_yes(count))


# --- files -----------------------------------------------------------------------------------


@dataclass(slots=True, eq=False)
class FileStatistics:
    """Statistics of some files from the log; a column is decoded when it is first used."""

    files: pa.Table
    schema: pa.Schema
    partition_columns: frozenset[str]
    truncation_length: int = TRUNCATION_LENGTH
    counts_all: bool = False
    """Whether null counts are decoded where they cannot make a file skippable."""
    ranges: dict[tuple[str, bool], ValueRange] = field(default_factory=dict)
    answers: dict[tuple[Condition, bool], Possible] = field(default_factory=dict)
    """Results of conditions. A query asks twice, and the next one has the same IS NOT NULL."""
    separating: dict[str, bool] = field(default_factory=dict)

    @classmethod
    def of(cls, snapshot: Snapshot) -> FileStatistics:
        """The statistics of all files of a version, decoded once for all its queries."""
        statistics: FileStatistics | None = snapshot.kept.get(cls.__name__)
        if statistics is None:
            parts = frozenset(snapshot.partition_columns)
            statistics = cls(snapshot.entries, snapshot.schema, parts)
            snapshot.kept[cls.__name__] = statistics
        return statistics

    def judge(self, predicate: Predicate) -> Verdict:
        """What is known about the rows of each file."""
        answer = possible(predicate, replace(self, counts_all=True), self.files.num_rows)
        return Verdict(answer.true, ~answer.false & ~answer.null)

    def keep(self, predicate: Predicate) -> Flags:
        """True where a file may hold a matching row.

        Conditions on partition values come first, so that statistics are read of few files only.
        """
        by_partition: list[Predicate] = []
        by_statistics: list[Predicate] = []
        for part in conjuncts(predicate):
            is_decided = partition_only(part, self.partition_columns)
            (by_partition if is_decided else by_statistics).append(part)
        keep = possible(conjunction(*by_partition), self, self.files.num_rows).true.copy()
        if by_statistics and keep.any():
            kept = self
            if not keep.all():
                left = self.files.filter(pa.array(keep))
                kept = replace(self, files=left, ranges={}, answers={}, separating={})
            keep[keep] = possible(conjunction(*by_statistics), kept, kept.files.num_rows).true
        return keep

    def separates(self, name: str) -> bool:
        """Whether values of a column distinguish files: half of all pairs have none in common.

        Bounds that are not known may have any value between them.
        """
        if name not in self.separating:
            self.separating[name] = self._separates(name)
        return self.separating[name]

    def _separates(self, name: str) -> bool:
        count = self.files.num_rows
        if name in self.partition_columns:
            return pc.count_distinct(lookup(self.files, "partitionValues", name)).as_py() > 1
        span = self.range(Column((name,)), counts_all=False)
        is_known = pa.array(span.has_lower & span.has_upper)
        bounds = [pa.table({"bound": each.filter(is_known)}) for each in (span.lower, span.upper)]
        ranks = np.asarray(pc.rank(pa.concat_tables(bounds)["bound"], tiebreaker="dense"))
        low, high = np.split(ranks, 2)
        # Two files have no value in common if one ends before the other begins.
        pairs = int(np.searchsorted(np.sort(high), low, side="left").sum())
        return count > 1 and 4 * pairs >= count * (count - 1)

    def condition(self, node: Condition) -> Possible:
        column = node.column
        if column.path[1:]:
            # Statistics have flat names; a nested field could be mistaken for a dotted column.
            return _anything(self.files.num_rows)
        if column.root in self.partition_columns:
            return self.exact(node)
        return self.bounded(node)

    def expression(self, node: Expression) -> Possible:
        if partition_only(node, self.partition_columns):
            return self.exact(node)
        return _anything(self.files.num_rows)

    def search(self, _node: Search) -> Possible:
        return _any_search(self.files.num_rows)

    def exact(self, node: Condition | Expression) -> Possible:
        """A partition value is the value of every row."""
        values: dict[str, Any] = {}
        is_unknown = np.zeros(self.files.num_rows, np.bool_)
        for column in columns(node):
            texts: Any = lookup(self.files, "partitionValues", column.root)
            decoded = decode(texts, column_type(column, self.schema), zone=datetime.UTC)
            is_marked = flags(pc.fill_null(pc.equal(texts, pa.scalar(NULL_PARTITION)), False))
            is_unknown |= ~decoded.is_known & ~flags(pc.is_null(texts)) & ~is_marked
            if pa.types.is_string(decoded.values.type):
                # Some writers write it for null; a row may also hold exactly this text.
                is_unknown |= is_marked
            values[column.root] = decoded.values
        answer: Any = evaluate(node, pa.table(values))
        return Possible(
            flags(pc.fill_null(answer, False)) | is_unknown,
            flags(pc.fill_null(pc.invert(answer), False)) | is_unknown,
            flags(pc.is_null(answer)) | is_unknown,
        )

    def bounded(self, node: Condition) -> Possible:
        asks_for_null = isinstance(node, IsNull) or (isinstance(node, Compare) and node.op == "<=>")
        key = (node, self.counts_all or asks_for_null)
        answer = self.answers.get(key)
        if answer is None:
            answer = self.range(node.column, counts_all=key[1]).possible(node)
            if not isinstance(node, In) or len(node.values) <= _MOST_VALUES:
                self._make_room(self.answers)
                self.answers[key] = answer
        return answer

    def range(self, column: Column, *, counts_all: bool) -> ValueRange:
        """The bounds of a column's values in each file."""
        key = (column.root, counts_all)
        bounds = self.ranges.get(key)
        if bounds is None:
            bounds = self.range_of(column, counts_all=counts_all)
            self._make_room(self.ranges)
            self.ranges[key] = bounds
        return bounds

    def _make_room(self, kept: dict[Any, Any]) -> None:
        if (len(kept) + 1) * self.files.num_rows > _MOST_KEPT or len(kept) >= _MOST_ENTRIES:
            kept.clear()

    def range_of(self, column: Column, *, counts_all: bool) -> ValueRange:
        name, data_type = column.root, column_type(column, self.schema)
        lower = decode(lookup(self.files, "minValues", name), data_type)
        upper = decode(lookup(self.files, "maxValues", name), data_type)
        # If no condition is about nulls, they matter only where a file may have nothing else.
        needed = ~lower.is_known & ~upper.is_known
        if counts_all or pa.types.is_floating(data_type):
            needed = _yes(self.files.num_rows)
        nulls, records = self.counts("nullCount", name, needed), self.records()
        # A writer that counts nulls also counts NaN, and leaves a zero out.
        nans = np.where(nulls < 0, -1, np.maximum(self.counts("nanCount", name, needed), 0))
        return value_range(
            data_type,
            lower,
            upper,
            truncation_length=self.truncation_length,
            may_be_value=(nulls < 0) | (records < 0) | (nulls < records),
            may_be_null=nulls != 0,
            may_be_nan=nans != 0,
        )

    def records(self) -> Counts:
        """How many rows each file holds, -1 if that is not known.

        Deleted ones count here: nulls were counted when they were there.
        """
        if "numRecords" not in self.files.schema.names:
            return np.full(self.files.num_rows, -1, np.int64)
        column: Any = self.files.column("numRecords")
        left = np.asarray(pc.fill_null(column, -1).to_numpy(), np.int64)
        return np.where(left < 0, left, left + deleted_rows(self.files))

    def counts(self, statistic: str, name: str, needed: Flags) -> Counts:
        """A count from the statistics' JSON for the wanted files, -1 if that is not known."""
        per_file = np.full(self.files.num_rows, -1, np.int64)
        if "stats" not in self.files.schema.names:
            return per_file
        texts: Any = self.files.column("stats")
        has_count = pc.and_(pc.match_substring(texts, f'"{statistic}"'), pa.array(needed))
        numbers = np.flatnonzero(flags(pc.fill_null(has_count, False)))
        counts = [
            _count(text, statistic, name) for text in texts.take(pa.array(numbers)).to_pylist()
        ]
        per_file[numbers] = counts
        return per_file


def _count(text: str, statistic: str, name: str) -> int:
    try:
        count = orjson.loads(text)[statistic][name]
    except (orjson.JSONDecodeError, LookupError, TypeError):
        return -1
    is_count = isinstance(count, int) and not isinstance(count, bool) and 0 <= count < 2**63
    return count if is_count else -1


# --- manifests -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Bounds:
    bounds: Mapping[str, Bounds | None]
    schema: pa.Schema
    partition_columns: frozenset[str]

    def expression(self, _node: Expression) -> Possible:
        return _anything(1)

    def search(self, _node: Search) -> Possible:
        return _any_search(1)

    def condition(self, node: Condition) -> Possible:
        name = node.column.root
        bounds = self.bounds.get(name)
        if node.column.path[1:] or name not in self.partition_columns or bounds is None:
            return _anything(1)
        data_type = column_type(node.column, self.schema)
        texts = [bounds.min, bounds.max]
        if pa.types.is_string(data_type) and any(
            t is None or _NUMBER_LIKE.fullmatch(t) for t in texts
        ):
            # Some writers order text that looks like numbers as numbers.
            return _anything(1)
        lower, upper = (decode(pa.array([t], pa.string()), data_type) for t in texts)
        return value_range(
            data_type,
            lower,
            upper,
            truncation_length=TRUNCATION_LENGTH,
            may_be_value=_yes(1),
            may_be_null=_yes(1),
            may_be_nan=_yes(1),
        ).possible(node)


# --- whole partitions ------------------------------------------------------------------------


def check_partition_condition(predicate: Predicate, snapshot: Snapshot) -> None:
    """Refuse a condition that is about more than partition columns."""
    names = names_of(snapshot)
    unpartitioned = [
        ".".join((names.shown_name(column.root), *column.path[1:]))
        for column in columns(predicate)
        if len(column.path) > 1 or column.root not in snapshot.partition_columns
    ]
    if unpartitioned or searches(predicate):
        raise NotAPartitionError(
            unpartitioned[0] if unpartitioned else "a search",
            partition_columns=names.shown_names(snapshot.partition_columns),
        )


def files_of_partitions(snapshot: Snapshot, predicate: Predicate) -> pa.Table:
    """The live files of the partitions that meet a condition, which is about nothing else."""
    check_partition_condition(predicate, snapshot)
    files = snapshot.entries
    if predicate == TRUE:
        return files
    verdict = FileStatistics.of(snapshot).judge(predicate)
    # A condition that may be true or not: a value is not of its column's type.
    doubtful = np.flatnonzero(verdict.keep & ~verdict.all_match)
    if len(doubtful):
        path = files["path"][int(doubtful[0])].as_py()
        raise CorruptLogError(path, "its partition values are not of their columns' types")
    return files.filter(pa.array(verdict.keep))
