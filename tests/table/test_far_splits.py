"""Many splits in a bucket, cold and warm, answer as the same rows do in one local split.

Ranged reading, linked indexes, ties by hashes, deletion vectors and columns that changed meet here:
whatever a linked index of remote splits reads must have been named, or it would be noise.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import pyarrow as pa
import pytest
from tiny_blocks import use_tiny_blocks

from indextables import Table
from indextables.jobs.write_job import plan_write
from indextables.plan.execute import close_indexes
from indextables.split import mapping_options, scoring
from indextables.split.format.container import HASHES
from indextables.split.format.index import IndexFolder
from indextables.split.open_split import SplitFile

ROWS = 200
WORDS = [f"w{n}" for n in range(12)]
SCHEMA = pa.schema(
    [("id", pa.int64()), ("body", pa.string()), ("gone", pa.string()), ("n", pa.int32())]
)
MARK = {"spark.indextables.deletionVectors.mode": "vector"}
QUERIES = [
    "fox", "w1", "absent", "w1 w2", "fox AND w3", "fox AND NOT w2", '"fox w1"', '"w1 fox"~2',
    "foy~1", "w1~1", "w1*", "*1", "/w[0-3]/", "NOT w2", "w1 AND NOT w5",
    "(NOT w2) AND (NOT w3)", "n:[2 TO 5] fox", "fox^2 OR w1", "more:new",
]  # fmt: skip


def rows(count: int) -> pa.Table:
    """Rows of which many have equal scores, and some equal values."""
    rng = random.Random(4)
    bodies = [
        "fox" if rng.random() < 0.5 else " ".join(["fox", *rng.choices(WORDS, k=rng.randint(0, 4))])
        for _ in range(count)
    ]
    return pa.table(
        {
            "id": [i // 2 if i < 20 else i for i in range(count)],
            "body": bodies,
            "gone": [f"fox g{i}" for i in range(count)],
            "n": pa.array([i % 9 for i in range(count)], pa.int32()),
        },
        SCHEMA,
    )


def append_splits(table: Table, data: pa.Table, splits: int) -> Table:
    """One commit of so many splits."""
    job = plan_write(table._log, data.schema, settings=table.view.settings, kind="append")
    share = -(-data.num_rows // splits)
    outputs = [job.store(data.slice(n, share).to_batches()) for n in range(0, len(data), share)]
    job.commit(table._log, outputs)
    return table.refresh()


def made(
    uri: str, splits: int, cache: str, options: dict[str, str] | None = None, *, drops: bool
) -> Table:
    """A table of so many splits, or of one that was written after the columns changed."""
    config = {**MARK, "spark.indextables.cache.disk.path": cache}
    data = rows(ROWS)
    older, newer = data.slice(0, ROWS * 3 // 4), data.slice(ROWS * 3 // 4)
    late = splits // 4
    drops = drops and splits > 1
    schema = SCHEMA if drops else SCHEMA.remove(2)
    table = Table.create(uri, schema, config=config, storage_options=options)
    if late:
        table = append_splits(table, older.select(schema.names), splits - late)
    # First: the stored name of a column that is added after a rename is random, and ties depend
    # on stored names.
    table.add_columns(pa.schema([("more", pa.string())]))
    if drops:
        table.drop_columns("gone")
    table.rename_column("body", "text")
    more = pa.array([None] * len(older) + ["new fox"] * len(newer), pa.string())
    changed = data.drop_columns("gone").rename_columns(["id", "text", "n"])
    changed = changed.append_column("more", more)
    table = append_splits(table, changed.slice(len(older)) if late else changed, late or 1)
    table.delete(where="n = 4 AND id < 250 OR text indexquery 'w7'")
    return table


@pytest.fixture(scope="module")
def patch():
    with pytest.MonkeyPatch.context() as patch:
        use_tiny_blocks(patch)
        # Ties beyond the first few hits are looked for under levels of a handful of rows.
        for name, number in (("_MORE_HITS", 1), ("_TIES_AT_ONCE", 60), ("_MANY_TIES", 10)):
            patch.setattr(scoring, name, number)
        yield patch


def answers(table: Table, queries: Sequence[str] = QUERIES) -> dict[str, list[object]]:
    """What a table says to queries; rows without an order are sorted."""
    found: dict[str, list[object]] = {}
    for text in queries:
        where = f"_indexall indexquery '{text}'"
        found[text] = [
            table.search(text, limit=5).to_pylist(),
            table.search(text, where="n < 5", limit=None, columns=["id"]).to_pylist(),
            _sorted(table.scan(where=where, columns=["id", "more"])),
            table.count(where=where),
            table.count(where=f"{where} AND n < 5"),
            table.scan(where=where, columns=["id"], limit=3).num_rows,
        ]
    return found


def _sorted(table: pa.Table) -> list[str]:
    return sorted(map(repr, table.to_pylist()))


def _unhashed(numbered, *args, **options):
    return replace(numbered(*args, **options), hashed=False)


@pytest.mark.parametrize(
    "kind", ["hashed", pytest.param("many", marks=pytest.mark.long), "dropped", "older"]
)
def test_every_layout_and_place_answers_the_same(patch, s3, tmp_path, kind):
    """`hashed` has a hash of each row, `dropped` hashes of other rows than there are now."""
    with pytest.MonkeyPatch.context() as older:
        if kind == "older":
            numbered = partial(_unhashed, mapping_options.numbered)
            older.setattr(mapping_options, "numbered", numbered)
        make = partial(made, cache=str(tmp_path / "c"), drops=kind == "dropped")
        expected = answers(make(str(tmp_path / "one"), 1))
        assert [e[3] for e in expected.values()].count(0) == 1
        for splits in (12, 40) if kind == "many" else (12,):
            assert answers(make(str(tmp_path / f"t{splits}"), splits)) == expected
        # A query that begins cold, or comes after others.
        far_splits = {"hashed": ((1, 4), (12, 3)), "many": ((1, 1), (12, 1), (40, 3))}
        for splits, step in far_splits.get(kind, ((12, 6),)):
            uri = f"{s3.uri}/far-{kind}-{splits}"
            make(uri, splits, options=s3.options)
            config = {"spark.indextables.cache.disk.path": str(tmp_path / f"far{splits}")}
            for queries in (QUERIES[::step], QUERIES[:1]):
                far = Table.open(uri, config=config, storage_options=s3.options)
                assert answers(far, queries) == {text: expected[text] for text in queries}
                close_indexes()


def test_splits_are_opened_side_by_side_and_hashes_fetched_once(s3, tmp_path, monkeypatch):
    uri, cache = f"{s3.uri}/hashes", str(tmp_path / "c")
    made(uri, 12, cache, s3.options, drops=False)
    config = {"spark.indextables.cache.disk.path": str(tmp_path / "far")}
    fetched: list[str] = []
    get = IndexFolder._read

    def read(self, start, end):
        named = (s for s in self.info.sections if s.kind == HASHES and s.offset == start)
        fetched.extend(self.path for _ in named)
        return get(self, start, end)

    monkeypatch.setattr(IndexFolder, "_read", read)
    # Whoever comes waits until three others have come: one after the other, nobody would.
    for owner, name in ((SplitFile, "_read_opening"), (IndexFolder, "hashes")):
        monkeypatch.setattr(owner, name, _waiting_for_others(getattr(owner, name)))
    for _ in range(2):  # of the second one the copies on the local disk are found
        table = Table.open(uri, config=config, storage_options=s3.options)
        for limit in (None, 5):
            table.search("fox", limit=limit, columns=["id"])
        close_indexes()
    assert sorted(fetched) == sorted(table.snapshot().entries["path"].to_pylist())


def _waiting_for_others(work):
    barrier = threading.Barrier(4)

    def wait_and_work(*given):
        barrier.wait(timeout=60)
        return work(*given)

    return wait_and_work
