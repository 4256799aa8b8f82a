"""Which splits are merged with which: packing the files of a snapshot into groups.

Splits of one partition are packed by first-fit decreasing: the largest first, each into the first
group that has room. The sources of a group are together never larger than the target, and a group
of one is none. What they become is encoded anew and can differ from their sum by a little. Groups
with the oldest splits come first.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import pyarrow as pa

Partition = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Candidate:
    """A live split, as far as packing is concerned. `row` is its place in the files."""

    row: int
    path: str
    size: int
    added_at: int
    partition: Partition


@dataclass(frozen=True, slots=True)
class MergeGroup:
    """Splits of one partition that become one, oldest first."""

    sources: tuple[Candidate, ...]

    @property
    def paths(self) -> tuple[str, ...]:
        """Where they are."""
        return tuple(source.path for source in self.sources)

    @property
    def size(self) -> int:
        """How many bytes they have together."""
        return sum(source.size for source in self.sources)

    @property
    def age(self) -> tuple[int, str]:
        """What groups are ordered by: the version that added the oldest split."""
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
    columns = files.select(["path", "size", "addedAtVersion", "partitionValues"])
    return [
        Candidate(row, path, size, added or 0, tuple(sorted(values or ())))
        for row, (path, size, added, values) in enumerate(
            zip(*(columns[name].to_pylist() for name in columns.column_names), strict=True)
        )
    ]


def without_giants(groups: Iterable[MergeGroup]) -> list[MergeGroup]:
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
        room.take(number, room.left(number) + 1 if full else split.size)
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

    def left(self, number: int) -> int:
        """The room of a bin."""
        return self._most[self._leaves + number]

    def take(self, number: int, amount: int) -> None:
        """Use some of a bin's room."""
        node = self._leaves + number
        self._most[node] -= amount
        while node > 1:
            node //= 2
            self._most[node] = max(self._most[2 * node], self._most[2 * node + 1])
