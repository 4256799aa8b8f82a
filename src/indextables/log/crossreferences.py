"""Which splits the cross-references of a snapshot cover.

An XRef names its source splits by path. A split may be gone by now: the XRef is then *stale*, its
document is masked because nobody asks for a split that is not live, and the rest of it is as good
as before. A split that no XRef names is *uncovered* and always read. So no answer depends on
anything here; what depends on it is what to build next.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from indextables.log.actions import AddXRef
from indextables.log.snapshot import Snapshot

Rows = npt.NDArray[np.int64]

_TEXT = pa.string()


@dataclass(frozen=True, eq=False)
class Cover:
    """Live splits and the XRefs that name them.

    `owner` has for every live split the number of its XRef, or -1. Where several name a split, one
    that is not stale owns it, and of those the largest. `live` and `owned` count for every XRef its
    sources that are live, and those of them that it owns.
    """

    xrefs: tuple[AddXRef, ...]
    paths: pa.Array[Any]
    owner: Rows
    live: Rows
    owned: Rows

    def splits(self, rows: Rows) -> tuple[str, ...]:
        """The paths of some of the live splits."""
        found: list[Any] = self.paths.take(rows).to_pylist()
        return tuple(found)

    def owned_by(self, xref: int) -> Rows:
        """The live splits that an XRef owns."""
        return np.flatnonzero(self.owner == xref)

    @property
    def uncovered(self) -> Rows:
        """The live splits that no XRef names."""
        return np.flatnonzero(self.owner < 0)


def cover_of(snapshot: Snapshot) -> Cover:
    """Hold a snapshot's XRefs against its live splits."""
    xrefs = list(snapshot.xrefs.values())
    column = snapshot.paths
    paths: Any = pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], _TEXT)
    sources = pa.array(chain.from_iterable(x.source_split_paths for x in xrefs), _TEXT)
    counts = np.array([len(x.source_split_paths) for x in xrefs], dtype=np.int64)
    found: Any = pc.index_in(sources, value_set=paths)
    alive = found.is_valid().to_numpy(zero_copy_only=False)
    rows = found.drop_null().to_numpy(zero_copy_only=False).astype(np.int64)
    naming = np.repeat(np.arange(len(xrefs)), counts)[alive]
    live = np.bincount(naming, minlength=len(xrefs))
    order = np.lexsort((-counts, live < counts))
    rank = np.argsort(order)[naming]
    owner = np.full(len(paths), -1, dtype=np.int64)
    last_first = np.argsort(-rank, kind="stable")  # the last assignment to a row stays
    owner[rows[last_first]] = rank[last_first]
    return Cover(
        xrefs=tuple(xrefs[i] for i in order),
        paths=paths,
        owner=owner,
        live=live[order],
        owned=np.bincount(owner[owner >= 0], minlength=len(xrefs)),
    )


@dataclass(frozen=True, slots=True)
class Coverage:
    """How many of a table's splits some XRef names.

    >>> print(Coverage(active=2, covered=750, total=800))
    Coverage: 750/800 (93.75%)
    >>> print(Coverage(active=0, covered=0, total=0))
    Coverage: 0/0 (100.00%)
    """

    active: int
    covered: int
    total: int

    @property
    def percent(self) -> float:
        return 100.0 * self.covered / self.total if self.total else 100.0

    def __str__(self) -> str:
        return f"Coverage: {self.covered}/{self.total} ({self.percent:.2f}%)"


def coverage(snapshot: Snapshot) -> Coverage:
    """How much of the table its XRefs cover."""
    cover = cover_of(snapshot)
    return Coverage(len(cover.xrefs), int((cover.owner >= 0).sum()), len(cover.paths))


def xref_for_split(snapshot: Snapshot, path: str) -> AddXRef | None:
    """An XRef that covers a live split, or None."""
    if not snapshot.contains([path]):
        return None
    return next((x for x in snapshot.xrefs.values() if path in x.source_split_paths), None)


def splits_without_xref(snapshot: Snapshot) -> pa.Table:
    """The live files that no XRef names, in the columns of `Snapshot.files`."""
    return snapshot.files.take(cover_of(snapshot).uncovered)
