"""Tables of many small splits, for tests of cross-references."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
import pytest

from indextables import Table
from indextables.log.actions import AddXRef, RemoveXRef

SCHEMA = pa.schema([("id", pa.int64()), ("day", pa.string()), ("body", pa.string())])

XREF = "spark.indextables.xref."
OFF = {XREF + "autoIndex.enabled": False}
QUICK = {
    "spark.indextables.transaction.retry.baseDelayMs": 1,
    "spark.indextables.transaction.retry.maxAttempts": 1000,
    XREF + "query.minSplitsForXRef": 1,
}


def auto(**settings: object) -> dict[str, object]:
    """Automatic indexing that begins with three splits."""
    named = {XREF + "autoIndex." + name: value for name, value in settings.items()}
    return {XREF + "autoIndex.minSplitsToTrigger": 3} | named


def rows(number: int, day: str = "a") -> pa.Table:
    """One row that a search for `word<number>` finds; all have `fox`."""
    return pa.table({"id": [number], "day": [day], "body": [f"word{number} fox"]}, schema=SCHEMA)


def grow(table: Table, first: int, count: int, day: str = "a") -> None:
    """Append so many splits of one row each."""
    for number in range(first, first + count):
        table.append(rows(number, day))


def check_found(table: Table, ids: list[int]) -> None:
    """Every row is found by its word, and nothing else."""
    assert sorted(table.refresh().scan(columns=["id"])["id"].to_pylist()) == ids
    assert table.count(where="body indexquery 'fox'") == len(ids)
    for number in ids:
        found = table.scan(columns=["id"], where=f"body indexquery 'word{number}'")
        assert found["id"].to_pylist() == [number]


def sizes(table: Table) -> list[int]:
    """How many splits each XRef covers, the largest first."""
    return sorted(
        (len(x.source_split_paths) for x in table.refresh().snapshot().xrefs.values()), reverse=True
    )


def xref_files(table: Table) -> set[str]:
    """The XRef files in the store."""
    return {meta.path for meta in table.log.store.list("_xrefsplits")}


def named_xrefs(table: Table) -> set[str]:
    """The XRefs that some version named."""
    return {
        action.path
        for version in range(table.refresh().version + 1)
        for action in table.log.actions(version).actions
        if isinstance(action, AddXRef)
    }


def xref_actions(table: Table, version: int | None = None) -> list[tuple[str, int | str]]:
    """What a version says about XRefs: covered splits, or why one was removed."""
    actions = table.log.actions(table.version if version is None else version).actions
    return [
        ("add", a.source_split_count) if isinstance(a, AddXRef) else ("remove", a.reason)
        for a in actions
        if isinstance(a, AddXRef | RemoveXRef)
    ]


@contextmanager
def counted_reads(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """How many splits each build reads."""
    from indextables.jobs import crossreference_build

    read: list[int] = []
    real: Callable[..., Any] = crossreference_build.build_xref

    def counting(store: Any, sources: Any, **options: Any) -> Any:
        read.append(len(sources))
        return real(store, sources, **options)

    with monkeypatch.context() as patch:
        patch.setattr(crossreference_build, "build_xref", counting)
        yield read


def intervene(table: Table, monkeypatch: pytest.MonkeyPatch, act: Callable[[], object]) -> None:
    """Let somebody act after the table's next job has built its XRefs, before it commits."""
    commit = table.log.commit
    done: list[bool] = []

    def late(transaction: Any) -> Any:
        if not done:
            done.append(True)
            act()
        return commit(transaction)

    monkeypatch.setattr(table.log, "commit", late)
