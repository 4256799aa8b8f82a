"""Groups of splits that become one: choosing them, and merging a group.

Splits of one partition are packed by first-fit decreasing: the largest first, each into the first
group that has room. The sources of a group are together never larger than the target, and a single
split is not a group. The merged split is encoded again, so its size can differ a little from the
sum. Groups with the oldest splits come first.

Merging one group is a task that any process can carry out. It opens the sources, writes the merged
split and stores it under a name that nobody else uses. Whatever goes wrong costs this group only:
the answer says so, and which source is to blame.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import pyarrow as pa

from indextables import config as keys
from indextables.config import Config
from indextables.errors import (
    DamagedSplitError,
    IndexTablesError,
    ObjectNotFoundError,
    SplitFileError,
    StorageError,
)
from indextables.jobs.write_splits import store_split
from indextables.log.actions import Add
from indextables.log.files import deleted_rows
from indextables.log.vectors import DeletionVector, StoredVector
from indextables.runner import LocalRunner, Runner
from indextables.split.mapping import TableMapping
from indextables.split.merge import merge_splits
from indextables.split.open_split import SplitFile
from indextables.split.write import WrittenSplit
from indextables.storage import Store

Partition = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Candidate:
    """A live split, as far as packing is concerned. `row` is its place in the files."""

    row: int
    path: str
    size: int
    added_at: int
    partition: Partition
    dead_share: float = 0.0


@dataclass(frozen=True, slots=True)
class MergeGroup:
    """Splits of one partition that become one, oldest first."""

    sources: tuple[Candidate, ...]

    @property
    def paths(self) -> tuple[str, ...]:
        """Their paths."""
        return tuple(source.path for source in self.sources)

    @property
    def size(self) -> int:
        """Their total size in bytes."""
        return sum(source.size for source in self.sources)

    @property
    def age(self) -> tuple[int, str]:
        """The order of groups: the version that added the oldest split."""
        return self.sources[0].added_at, self.sources[0].path


def plan_merges(
    candidates: Iterable[Candidate], *, target_size: int, max_sources: int, max_share: float = 1.0
) -> list[MergeGroup]:
    """Pack splits into groups, those with the oldest splits first.

    A split of `max_share` of the target or more stays as it is.
    """
    by_partition: dict[Partition, list[Candidate]] = defaultdict(list)
    for candidate in candidates:
        if candidate.size < max_share * target_size:
            by_partition[candidate.partition].append(candidate)
    groups = [
        MergeGroup(tuple(sorted(packed, key=lambda c: (c.added_at, c.path))))
        for splits in by_partition.values()
        for packed in _first_fit_decreasing(splits, target_size, max_sources)
        if len(packed) > 1
    ]
    return sorted(groups, key=lambda group: group.age)


def candidates_of(files: pa.Table) -> list[Candidate]:
    """The rows of a snapshot's files."""
    columns = files.select(["path", "size", "addedAtVersion", "partitionValues", "numRecords"])
    dead = deleted_rows(files).tolist()
    return [
        Candidate(
            row=row,
            path=path,
            size=size,
            added_at=added or 0,
            partition=tuple(sorted(values or ())),
            dead_share=dead[row] / max(1, dead[row] + (left or 0)),
        )
        for row, (path, size, added, values, left) in enumerate(
            zip(*(columns[name].to_pylist() for name in columns.column_names), strict=True)
        )
    ]


def with_many_dead(
    candidates: Iterable[Candidate], groups: Sequence[MergeGroup], *, share: float
) -> list[MergeGroup]:
    """Groups of one: splits of which this share of rows is deleted, unless they are merged anyway.

    Merging one leaves the deleted rows out, and they count in scores no longer.
    """
    merged = {path for group in groups for path in group.paths}
    return [
        MergeGroup((split,))
        for split in candidates
        if split.dead_share > share and split.path not in merged
    ]


def without_large_splits(groups: Iterable[MergeGroup]) -> list[MergeGroup]:
    """The groups without splits that are more than twice as large as the others together.

    Merging only these after every write, a row is written again as often as the table grows by
    half, and not at every write.
    """
    kept = []
    for group in groups:
        sources = sorted(group.sources, key=lambda c: c.size)
        total = group.size
        while sources and 3 * sources[-1].size > 2 * total:
            total -= sources.pop().size
        if len(sources) > 1:
            kept.append(MergeGroup(tuple(s for s in group.sources if s in sources)))
    return kept


def _first_fit_decreasing(
    splits: Sequence[Candidate], target_size: int, max_sources: int
) -> list[list[Candidate]]:
    bins: list[list[Candidate]] = []
    room = _Room(target_size, len(splits))
    for split in sorted(splits, key=lambda c: (-c.size, c.added_at, c.path)):
        number = room.first(split.size)
        if number == len(bins):
            bins.append([])
        bins[number].append(split)
        full = len(bins[number]) >= max_sources
        room.take(number, room.room_of(number) + 1 if full else split.size)
    return bins


class _Room:
    """The room left in each of many bins; finds the first with enough in logarithmic time.

    A tree in an array: each node knows the most room of a bin below it.
    """

    def __init__(self, capacity: int, bins: int) -> None:
        self._leaves = 1 << max(0, bins - 1).bit_length()
        self._most = [capacity] * (2 * self._leaves)

    def first(self, amount: int) -> int:
        """The first bin with so much room; there always is one that is empty."""
        node = 1
        while node < self._leaves:
            node *= 2
            if self._most[node] < amount:
                node += 1
        return node - self._leaves

    def room_of(self, number: int) -> int:
        """The room of a bin."""
        return self._most[self._leaves + number]

    def take(self, number: int, amount: int) -> None:
        """Use some of a bin's room."""
        node = self._leaves + number
        self._most[node] -= amount
        while node > 1:
            node //= 2
            self._most[node] = max(self._most[2 * node], self._most[2 * node + 1])


@dataclass(frozen=True, slots=True)
class Source:
    """A split to be merged, as the log describes it."""

    path: str
    size: int
    rows: int | None
    footer_start: int | None
    footer_end: int | None
    merges: int
    """How often rows of it were merged before."""
    vector: DeletionVector | None = None
    """Rows that the merged split does not get."""


@dataclass(frozen=True)
class MergeTask:
    """One group, with everything that merging it needs."""

    store: Store
    sources: tuple[Source, ...]
    schema: pa.Schema
    mapping: TableMapping
    partition_values: Mapping[str, str | None]
    partition_columns: tuple[str, ...]
    data_change: bool
    settings: Mapping[str, object] = field(repr=False)

    def merged(self, files: Sequence[SplitFile], config: Config) -> WrittenSplit:
        """The new split of the opened sources, in a temporary folder."""
        return merge_splits(
            files,
            schema=self.schema,
            mapping=self.mapping,
            config=config,
            partition_values=self.partition_values,
            deleted={
                file.path: StoredVector(self.store, source.vector, file.path).rows(
                    total=file.info.rows
                )
                for file, source in zip(files, self.sources, strict=True)
                if source.vector is not None
            },
        )

    def entry(self, add: Add) -> Add:
        """The log entry of the new split."""
        return replace(add, num_merge_ops=1 + max(source.merges for source in self.sources))


@dataclass(frozen=True, slots=True)
class MergeResult:
    """The log entry of the merged split; without one, why there is none."""

    add: Add | None = None
    error: str = ""
    bad_sources: Mapping[str, str] = field(default_factory=dict)
    """Sources that cannot be merged, each with the reason."""


def source_of(add: Add) -> Source:
    """A live split as a source."""
    return Source(
        path=add.path,
        size=add.size,
        rows=add.num_records,
        footer_start=add.footer_start_offset,
        footer_end=add.footer_end_offset,
        merges=add.num_merge_ops or 0,
        vector=DeletionVector.from_json(add.deletion_vector, path=add.path)
        if add.deletion_vector
        else None,
    )


def merge_settings(config: Config) -> dict[str, object]:
    """The configuration of a merge task: a writer with the heap and the folder of merges."""
    writer: dict[str, object] = {keys.WRITER_HEAP_SIZE.name: config[keys.MERGE_HEAP_SIZE]}
    if config[keys.MERGE_TEMP_DIRECTORY]:
        writer[keys.WRITER_TEMP_DIRECTORY.name] = config[keys.MERGE_TEMP_DIRECTORY]
    return Config(writer).over(config).as_options()


def local_runner(config: Config) -> Runner:
    """Merges in this process, as many at once as the configuration says."""
    return LocalRunner(config[keys.MERGE_PARALLELISM] or os.cpu_count() or 1)


def run_merge(task: MergeTask) -> MergeResult:
    """Merge a group and store the new split; a failure is an answer too."""
    try:
        return MergeResult(add=_merged(task))
    except Exception as error:
        # Any exception, so that the other groups are not affected.
        name = "" if isinstance(error, IndexTablesError) else f"{type(error).__name__}: "
        blamed = _blamed(task, error)
        return MergeResult(error=f"{name}{error}", bad_sources=blamed)


def _merged(task: MergeTask) -> Add:
    files = [_opened(task.store, source) for source in task.sources]
    written = task.merged(files, Config(task.settings))
    try:
        add = store_split(task.store, written, task.partition_columns, data_change=task.data_change)
    finally:
        written.delete()
    return task.entry(add)


def _opened(store: Store, source: Source) -> SplitFile:
    file = SplitFile(store, source.path, source.size, source.footer_start, source.footer_end)
    deleted = 0 if source.vector is None else source.vector.cardinality
    if source.rows is not None and file.info.rows != source.rows + deleted:
        raise DamagedSplitError(
            source.path, f"it has {file.info.rows} rows, and the log says {source.rows + deleted}"
        )
    return file


def _blamed(task: MergeTask, error: Exception) -> dict[str, str]:
    """The source that an error is about, if the error is permanent."""
    path = "/" + (getattr(error, "path", None) or "")
    source = next((s for s in task.sources if path.endswith("/" + s.path)), None)
    if source is None:
        return {}
    if isinstance(error, SplitFileError | ObjectNotFoundError):
        return {source.path: str(error)}
    if isinstance(error, StorageError):
        try:
            size = task.store.head(source.path).size
        except StorageError:
            return {}
        if size != source.size:
            return {source.path: f"it has {size} bytes, and the log says {source.size}"}
    return {}


def run_merges(
    tasks: Sequence[MergeTask], runner: Runner, ended: Callable[[int], None] | None = None
) -> list[MergeResult]:
    """Run tasks. If the runner itself fails, all of them failed."""
    try:
        return runner.map(run_merge, tasks, ended=ended)
    except Exception as error:
        return [MergeResult(error=f"{type(error).__name__}: {error}")] * len(tasks)
