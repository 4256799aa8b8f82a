"""Which cross-references to build and which to replace: decided from the log alone.

Two planners, one vocabulary. A `Replacement` is what one commit does: XRefs that go and XRefs that
come. A `Build` makes one XRef from splits that are *read* and from XRefs that are *linked*, whose
documents are taken over without looking at their splits again.

`plan_index` is the command INDEX CROSSREFERENCES:

- A: nothing is there: all splits, in groups of `max_splits`.
- B: an XRef has room for all uncovered splits: it is replaced by one that covers both.
- C: no XRef has room: the uncovered splits get one of their own.
- D: sources of an XRef are gone: it is replaced by one over what is left and what is uncovered.

`plan_automatic` is what a write does by the way. Replacing a growing XRef at every append, as in B,
would be n² work for n appends. So XRefs form *tiers*: when `FAN_OUT` of about the same size are
there, they become one, which is that many times larger. Every split is read once and linked once
for each tier, which is n log n. A stale XRef is replaced when a quarter of it is gone: until then
its dead documents cost less than a new one. It is then read from its splits, because linking takes
dead documents along; three splits are read for one that went.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import numpy.typing as npt

from indextables.log.actions import AddXRef
from indextables.log.snapshot import Cover, Rows

Mask = npt.NDArray[np.bool_]
Reason = Literal["replaced", "source_changed", "explicit"]

FAN_OUT = 4
WORN_SHARE = 0.25


@dataclass(frozen=True, slots=True)
class Build:
    """One XRef to be. It covers `read`, and `linked`, which `parts` cover already."""

    read: tuple[str, ...] = ()
    linked: tuple[str, ...] = ()
    parts: tuple[AddXRef, ...] = ()

    @property
    def splits(self) -> tuple[str, ...]:
        """All splits that the new XRef covers."""
        return self.linked + self.read


@dataclass(frozen=True, slots=True)
class Replacement:
    """What one commit does: these XRefs go, these are built."""

    builds: tuple[Build, ...]
    removes: tuple[AddXRef, ...] = ()
    reason: Reason = "replaced"

    @property
    def action(self) -> Literal["created", "rebuilt"]:
        return "rebuilt" if self.removes else "created"


@dataclass(frozen=True, slots=True)
class CrossReferencePlan:
    """Replacements that do not depend on each other, and XRefs that stay as they are."""

    replacements: tuple[Replacement, ...] = ()
    unchanged: tuple[AddXRef, ...] = ()


@dataclass(slots=True, eq=False)
class _Run:
    """An XRef in the making: rows of splits to read, XRefs to link with their live rows."""

    read: list[int] = field(default_factory=list)
    parts: dict[int, list[int]] = field(default_factory=dict)
    replaces: list[int] = field(default_factory=list)
    is_new: bool = True

    @property
    def size(self) -> int:
        return len(self.read) + sum(map(len, self.parts.values()))

    def take(self, other: _Run) -> None:
        self.read += other.read
        self.parts |= other.parts
        self.replaces += other.replaces
        self.is_new = True

    def link(self, cover: Cover, xref: int) -> None:
        self.parts[xref] = cover.owned_by(xref).tolist()
        self.replaces.append(xref)


# --- the command -------------------------------------------------------------------------------


def plan_index(
    cover: Cover, *, max_splits: int, scope: Mask | None = None, force: bool = False
) -> CrossReferencePlan:
    """What INDEX CROSSREFERENCES does for the splits in `scope`; for all of them without one.

    XRefs know no partitions. One that covers a split in scope keeps its other splits.
    """
    if scope is None:
        scope = np.ones(len(cover.paths), dtype=np.bool_)
        concerned = list(range(len(cover.xrefs)))
    else:
        owners = cover.owner[scope]
        concerned = np.unique(owners[owners >= 0]).tolist()
    if force:
        return _forced(cover, concerned, scope, max_splits)
    sources = _source_counts(cover)
    stale = {x for x in concerned if cover.live[x] < sources[x] or not cover.owned[x]}
    left = np.flatnonzero(scope & (cover.owner < 0)).tolist()
    runs = _packed(cover, [x for x in stale if cover.owned[x]], max_splits)
    spare = [x for x in stale if not cover.owned[x]]
    if spare and not runs:
        runs = [_Run()]  # what is uncovered takes their place
    for run in runs:
        left = _filled(run, left, max_splits)
    if spare:
        runs[0].replaces += spare
    replacements = [_replacement(cover, run, max_splits) for run in runs]
    whole = len(left) - len(left) % max_splits
    replacements += [
        Replacement((Build(read=_splits(cover, piece)),))
        for piece in _pieces(left[:whole], max_splits)
    ]
    if rest := left[whole:]:
        host = next(
            (
                x
                for x in np.argsort(-sources, kind="stable").tolist()
                if x not in stale
                and cover.live[x] == sources[x]
                and sources[x] + len(rest) <= max_splits
            ),
            None,
        )
        run = _Run(read=rest)
        if host is not None:
            run.link(cover, host)
            stale.add(host)
        replacements.append(_replacement(cover, run, max_splits))
    unchanged = tuple(cover.xrefs[x] for x in concerned if x not in stale)
    return CrossReferencePlan(tuple(replacements), unchanged)


def _forced(
    cover: Cover, concerned: Sequence[int], scope: Mask, max_splits: int
) -> CrossReferencePlan:
    """Everything anew, read from the splits: an XRef that is there may be damaged."""
    rows = np.flatnonzero(scope | np.isin(cover.owner, concerned)).tolist()
    builds = tuple(Build(read=_splits(cover, piece)) for piece in _pieces(rows, max_splits))
    removes = tuple(cover.xrefs[x] for x in concerned)
    if removes:
        return CrossReferencePlan((Replacement(builds, removes),))
    return CrossReferencePlan(tuple(Replacement((build,)) for build in builds))


# --- by the way --------------------------------------------------------------------------------


def plan_automatic(
    cover: Cover, *, max_splits: int, min_splits: int, rebuild_stale: bool
) -> CrossReferencePlan:
    """What a write does for the table that it leaves behind."""
    worn = [x for x in range(len(cover.xrefs)) if rebuild_stale and _is_worn(cover, x)]
    dead = [x for x in worn if not cover.owned[x]]
    worn = [x for x in worn if cover.owned[x]]
    left = cover.uncovered.tolist()
    runs = _packed(cover, worn, max_splits)
    for run in runs:
        left = _filled(run, left, max_splits)
    # A whole group may be smaller than `min_splits`, if the limit is.
    least = min(min_splits, max_splits) if len(left) >= min_splits else min_splits
    runs += [_Run(read=piece) for piece in _pieces(left, max_splits) if len(piece) >= least]
    if runs:
        for xref in set(np.flatnonzero(cover.owned).tolist()) - set(worn):
            untouched = _Run(is_new=False)
            untouched.link(cover, xref)
            runs.append(untouched)
        runs = _tiered(runs, max_splits=max_splits, min_splits=min_splits)
    replacements = [_replacement(cover, run, max_splits) for run in runs if run.is_new]
    if dead:
        removes = tuple(cover.xrefs[x] for x in dead)
        replacements.append(Replacement((), removes, "source_changed"))
    return CrossReferencePlan(tuple(replacements))


def _tiered(runs: list[_Run], *, max_splits: int, min_splits: int) -> list[_Run]:
    """Join runs while a tier is full."""

    def tier(run: _Run) -> int:
        return max(0, math.floor(math.log(run.size / max(1, min_splits), FAN_OUT) + 1e-9))

    while True:
        tiers: dict[int, list[_Run]] = {}
        for run in sorted(runs, key=lambda run: run.size):
            if run.size < max_splits:
                tiers.setdefault(tier(run), []).append(run)
        for members in tiers.values():
            sizes = np.cumsum([run.size for run in members])
            fitting = int(np.searchsorted(sizes, max_splits, side="right"))
            if len(members) >= FAN_OUT and fitting > 1:
                first, *others = members[:fitting]
                for other in others:
                    first.take(other)
                runs = [run for run in runs if run not in others]
                break
        else:
            return runs


# --- common ------------------------------------------------------------------------------------


def _source_counts(cover: Cover) -> Rows:
    return np.array([len(x.source_split_paths) for x in cover.xrefs], dtype=np.int64)


def _is_worn(cover: Cover, xref: int) -> bool:
    """Whether so many of its splits are gone that a new XRef is worth its price."""
    sources = len(cover.xrefs[xref].source_split_paths)
    return sources - int(cover.owned[xref]) >= WORN_SHARE * sources


def _packed(cover: Cover, xrefs: Iterable[int], max_splits: int) -> list[_Run]:
    """XRefs that are replaced anyway, as few runs as first-fit finds, the largest first."""
    runs: list[_Run] = []
    for xref in sorted(xrefs, key=lambda x: int(cover.owned[x]), reverse=True):
        rows = cover.owned_by(xref).tolist()
        run = next((r for r in runs if r.size + len(rows) <= max_splits), None)
        if run is None:
            run = _Run()
            runs.append(run)
        if _is_worn(cover, xref) or len(rows) > max_splits:
            run.read += rows
            run.replaces.append(xref)
        else:
            run.link(cover, xref)
    return runs


def _filled(run: _Run, rows: list[int], max_splits: int) -> list[int]:
    """Give a run as many rows to read as fit; returns the others."""
    room = max(0, max_splits - run.size)
    run.read += rows[:room]
    return rows[room:]


def _replacement(cover: Cover, run: _Run, max_splits: int) -> Replacement:
    removes = tuple(cover.xrefs[x] for x in run.replaces)
    lost = any(int(cover.live[x]) < len(cover.xrefs[x].source_split_paths) for x in run.replaces)
    linked = [row for rows in run.parts.values() for row in rows]
    # More than fit is what the limit, which was lowered since, makes of one XRef.
    room = max_splits - len(linked)
    pieces = [run.read[:room], *_pieces(run.read[room:], max_splits)]
    builds = [Build(read=_splits(cover, piece)) for piece in pieces if piece]
    if linked:
        first = Build(
            read=_splits(cover, pieces[0]),
            linked=_splits(cover, linked),
            parts=tuple(cover.xrefs[x] for x in run.parts),
        )
        builds = [first, *(Build(read=_splits(cover, piece)) for piece in pieces[1:])]
    return Replacement(tuple(builds), removes, "source_changed" if lost else "replaced")


def _pieces(rows: list[int], size: int) -> list[list[int]]:
    return [rows[at : at + size] for at in range(0, len(rows), size)]


def _splits(cover: Cover, rows: Sequence[int]) -> tuple[str, ...]:
    return cover.splits(np.array(rows, dtype=np.int64))
