"""What a table's owner should do next, each with the command that does it."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from indextables.cells import size

if TYPE_CHECKING:
    from indextables.report.data import Report

SMALL_SPLIT = 32 << 20
"""A split below this size costs more to open than to read."""
_MANY_SPLITS = 32
_TINY_PARTITION = 1 << 20
_MANY_PARTITIONS = 100
_MUCH_UNUSED = 100 << 20


@dataclass(frozen=True, slots=True)
class Advice:
    """A finding and what helps."""

    level: Literal["warning", "hint"]
    title: str
    detail: str
    command: str | None


def advise(report: Report) -> Iterator[Advice]:
    """Findings, the most important first."""
    table = shlex.quote(report.uri)
    if report.problem is not None:
        yield Advice("warning", "A split cannot be read", report.problem,
                     f"indextables verify {table}")  # fmt: skip
    yield from _small_files(report, table)
    yield from _crossreferences(report, table)
    yield from _unused(report, table)
    tiny = sum(p.bytes < _TINY_PARTITION for p in report.partitions)
    if len(report.partitions) >= _MANY_PARTITIONS and tiny > len(report.partitions) / 2:
        yield Advice(
            "hint",
            "Many tiny partitions",
            f"{tiny:,} of {len(report.partitions):,} partitions hold less than 1 MB. A merge does "
            "not cross partitions; a table with fewer or coarser partition columns has larger "
            "splits.",
            None,
        )


def _unused(report: Report, table: str) -> Iterator[Advice]:
    """Files that nobody reads any more, if they take much room."""
    if report.unused is None:
        return
    files, count = report.unused
    if count >= _MUCH_UNUSED and count > report.bytes / 2:
        yield Advice(
            "hint",
            "Files that wait for a purge",
            f"{size(count)} in {files:,} files are not part of this version. A purge deletes those "
            "that no retained version names.",
            f"indextables purge {table}",
        )


def _small_files(report: Report, table: str) -> Iterator[Advice]:
    """Small splits that have a neighbour to be merged with."""
    small: dict[tuple[str | None, ...], int] = {}
    for split in report.splits:
        if split.bytes < SMALL_SPLIT:
            small[split.partition] = small.get(split.partition, 0) + 1
    mergeable = {values: count for values, count in small.items() if count > 1}
    count = sum(mergeable.values())
    if not count:
        return
    many = "partition" if len(mergeable) == 1 else "partitions"
    where = f" in {len(mergeable):,} {many}" if report.partition_columns else ""
    yield Advice(
        "warning" if count > len(mergeable) * 4 else "hint",
        "Small files",
        f"{count:,} of {len(report.splits):,} splits are smaller than 32 MB and can be merged"
        f"{where} into about {len(mergeable):,}. Every search opens each of them.",
        f"indextables merge {table}",
    )


def _crossreferences(report: Report, table: str) -> Iterator[Advice]:
    missing = len(report.splits) - len(report.covered)
    if not missing:
        return
    if report.xrefs:
        yield Advice(
            "warning" if missing > len(report.splits) / 10 else "hint",
            "Splits without a cross-reference",
            f"{missing:,} of {len(report.splits):,} splits are in no XRef. A search has to ask "
            "each of them.",
            f"indextables xref {table}",
        )
    elif len(report.splits) >= _MANY_SPLITS:
        yield Advice(
            "hint",
            "No cross-references",
            f"The table has {len(report.splits):,} splits. An XRef tells a search which of them "
            "can match.",
            f"indextables xref {table}",
        )
