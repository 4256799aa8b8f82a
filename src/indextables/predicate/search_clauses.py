"""Clauses of a search query in a row, combined by Tantivy's rules.

AND binds tighter than OR, and no operator is OR. In a row without operators `+a b -c` says what
must, should and must not match; an excluded clause that is an alternative of OR stands for all
rows but those it matches.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from indextables.predicate.search import All, Boolean, SearchNode

Occur: TypeAlias = Literal["must", "should", "must_not"]


@dataclass(slots=True)
class Clause:
    """One clause and its sign."""

    joiner: str | None
    """AND, OR or nothing: what stands before the clause."""
    occur: Occur
    node: SearchNode


def combine(clauses: list[Clause]) -> SearchNode:
    """One node from clauses in a row: AND binds tighter than OR and than nothing."""
    runs: list[list[Clause]] = []
    for clause in clauses:
        if clause.joiner == "AND":
            runs[-1].append(clause)
        else:
            runs.append([clause])
    if len(runs) == 1 and len(clauses) > 1:
        return _conjunction(clauses)
    must: list[SearchNode] = []
    should: list[SearchNode] = []
    must_not: list[SearchNode] = []
    for i, run in enumerate(runs):
        clause = run[0]
        is_alternative = clause.joiner == "OR" or (
            i + 1 < len(runs) and runs[i + 1][0].joiner == "OR"
        )
        if len(run) > 1 or (clause.occur == "must_not" and is_alternative):
            should.append(_conjunction(run))
        else:
            {"must": must, "should": should, "must_not": must_not}[clause.occur].append(clause.node)
    return _boolean(must, should, must_not)


def _conjunction(clauses: list[Clause]) -> SearchNode:
    excluded = [clause.node for clause in clauses if clause.occur == "must_not"]
    return _boolean([c.node for c in clauses if c.occur != "must_not"], [], excluded)


def _boolean(
    must: list[SearchNode], should: list[SearchNode], must_not: list[SearchNode]
) -> SearchNode:
    # A clause said twice counts once, as in Tantivy.
    required, optional, excluded = (tuple(dict.fromkeys(n)) for n in (must, should, must_not))
    if not excluded and len(required) + len(optional) == 1:
        return (required or optional)[0]
    if not required and not optional:
        required = (All(),)
    return Boolean(required, optional, excluded)
