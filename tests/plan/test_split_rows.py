"""The index proposes rows, their values decide."""

from __future__ import annotations

import datetime
import random

import numpy as np
import pyarrow as pa
import pytest

from indextables import Table
from indextables.errors import DamagedSplitError, IndexTablesError
from indextables.plan import split_rows
from indextables.plan.execute import Environment
from indextables.plan.scan import plan_scan
from indextables.schema import ROW
from indextables.split.format.rows import RowReader
from tests.support.row_groups import limit_row_groups

TEXTS = ["a b", "b a", "A b", "a b c", "a", "", None, " a b", "a-b", "42", "!", "a b a b"]
CONDITIONS = {
    "body = 'a b'": [0],
    "body <> 'a b'": [1, 2, 3, 4, 5, 7, 8, 9, 10, 11],
    "NOT (body = 'a b')": [1, 2, 3, 4, 5, 7, 8, 9, 10, 11],
    "body <=> 'a b'": [0],
    "NOT (body <=> 'a b')": [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11],
    "body IN ('a b', 'A b', '!')": [0, 2, 10],
    "body NOT IN ('a b', NULL)": [],
    "body = '' OR body = '!'": [5, 10],
    "body = 'a b' OR n = 9": [0, 9],
}
SEARCHES = {
    "body = 'a b' AND body indexquery 'a'": [0],
    "body indexquery 'a' AND NOT (body = 'a b')": [1, 2, 3, 4, 7, 8, 11],
    "NOT (body indexquery 'a')": [5, 6, 9, 10],
    "NOT (body indexquery 'a' AND n < 3)": [3, 4, 5, 6, 7, 8, 9, 10, 11],
    "NOT (body = 'a b' OR body indexquery 'c')": [1, 2, 4, 5, 7, 8, 9, 10, 11],
    "body indexquery 'a' AND NULL": [],
    "body indexquery '42' OR NULL": [9],
    "NOT (body indexquery 'a' OR NULL)": [],
}


@pytest.fixture(scope="module", params=["text", "string", "whitespace"])
def table(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp("split_rows")
    prefix = "spark.indextables."
    options = {prefix + "cache.disk.path": str(folder / "cache")}
    mapping = {"body": "string"} if request.param == "string" else {}
    if request.param == "whitespace":
        options[prefix + "indexing.tokenizer.body"] = "whitespace"
    schema = pa.schema([("n", pa.int64()), ("body", pa.string())])
    made = Table.create(folder / "t", schema, mapping=mapping, config=options)
    made.append(pa.table({"n": list(range(len(TEXTS))), "body": TEXTS}))
    return made, request.param


@pytest.mark.parametrize("where", CONDITIONS)
def test_equality_is_exact_whatever_the_mapping(where, table):
    made, _ = table
    check(made, where, CONDITIONS[where])


@pytest.mark.parametrize("where", SEARCHES)
@pytest.mark.parametrize("table", ["text"], indirect=True)
def test_searches_among_conditions(where, table):
    made, _ = table
    check(made, where, SEARCHES[where])


@pytest.fixture(scope="module")
def grouped(tmp_path_factory):
    """A split of many row groups whose columns rise, repeat, or hold nulls and NaN."""
    folder = tmp_path_factory.mktemp("groups")
    rows, rng = 1_000, random.Random(2)
    start = datetime.datetime(2024, 1, 1, tzinfo=datetime.UTC)
    table = pa.table(
        {
            "id": pa.array(range(rows)),
            "small": pa.array([i // 90 - 5 for i in range(rows)], pa.int16()),
            "day": pa.array(
                [datetime.date(2024, 1, 1) + datetime.timedelta(i // 20) for i in range(rows)]
            ),
            "at": pa.array([start + datetime.timedelta(hours=i) for i in range(rows)]),
            "key": [f"k{i // 7:05}" for i in range(rows)],
            "maybe": pa.array([None if i % 300 < 150 else i for i in range(rows)]),
            "x": pa.array([rng.choice([1.0 * i, float("nan"), None]) for i in range(rows)]),
            "far": pa.array([i - 500 for i in range(rows)], pa.int32()).cast(pa.date32()),
        }
    )
    config = {"spark.indextables.cache.disk.path": str(folder / "cache")}
    with pytest.MonkeyPatch.context() as patch:
        limit_row_groups(patch, 50)
        made = Table.create(folder / "t", table.schema, mapping={"key": "string"}, config=config)
        made.append(table)
    return made


FILTERS = [
    ("id = 333", 1), ("id BETWEEN 95 AND 130", 2), ("id < 10 OR id > 990", 2), ("id <> 5", 20),
    ("small = -3", 3), ("small > 6", 1), ("NOT (small <= 4)", 3), ("day = '2024-01-20'", 1),
    ("at >= '2024-02-10T03:00:00Z'", 1), ("maybe IS NULL", 20), ("maybe = 170", 12),
    ("maybe <=> NULL", 20), ("x > 900", 20), ("x IS NULL AND id < 60", 2),
    ("far < '1969-01-01'", 4),
    ("key >= 'k00140'", 1), ("key LIKE 'k0001%'", 2), ("id = 5 AND small = 3", 0),
    ("id IN (1, 999)", 2),
    ("id = -1", 0), ("abs(id) = 7", None),
]  # fmt: skip


@pytest.mark.parametrize(("where", "groups"), FILTERS)
def test_row_groups_are_left_out_by_their_own_bounds(where, groups, grouped, monkeypatch):
    read = []
    real = RowReader.read_groups

    def counting(self, some, columns):
        read.extend(some)
        return real(self, some, columns)

    monkeypatch.setattr(RowReader, "read_groups", counting)
    monkeypatch.setattr(split_rows, "_FEW_ROWS", 0)
    try:
        found = grouped.scan(where=where, columns=["id"])
    except IndexTablesError:
        assert groups is None
        return
    counted = grouped.count(where=where)
    assert groups is None or len(set(read)) <= groups
    monkeypatch.setattr(
        split_rows,
        "keep_row_groups",
        lambda _, parquet, __, *, schema: np.ones(parquet.num_row_groups, np.bool_),
    )
    assert grouped.scan(where=where, columns=["id"]).equals(found)
    assert counted == found.num_rows


def check(table, where, expected):
    assert table.scan(where=where)["n"].to_pylist() == expected
    assert table.count(where=where) == len(expected)


# --- columns that are asked for often ------------------------------------------------------------


def test_pages_that_are_kept_have_the_rows_that_are_left(tmp_path):
    """After rows were deleted or changed, and splits merged."""
    count = 20_000
    texts = [f"fox {n} " + f"{n * 7919:x} " * 12 for n in range(count)]
    rows = pa.table({"id": range(count), "day": ["mon", "tue"] * (count // 2), "body": texts})
    table = Table.create(tmp_path / "t", data=rows, partition_by=["day"])

    def best():
        found = table.search("fox", fields=["body"], limit=10, where="id >= 19000")
        assert found["body"].to_pylist() == [texts[n] for n in found["id"].to_pylist()]
        return found["id"].to_pylist()

    first = [best() for _ in range(5)]
    assert all(ids == first[0] for ids in first) and len(set(first[0])) == 10
    assert any(
        part.nbytes > 10_000 for part in Environment.of(table.view).pool.columns._kept.values()
    )
    gone, changed = first[0][:2]
    table.delete(where=f"id = {gone}")
    table.update({"body": "'fox fox'"}, where=f"id = {changed}")
    texts[changed] = "fox fox"
    for _ in range(4):
        assert gone not in best() and best()[0] == changed
    before = best()
    table.merge_splits(target_size="1G")
    assert set(best()) == set(before)


def test_columns_that_are_asked_for_often_are_kept(tmp_path, monkeypatch):
    count = 9_000  # two row groups
    rows = pa.table(
        {
            "id": list(range(count)),
            "level": [f"l{n % 3}" if n % 5 else None for n in range(count)],
            "body": [f"fox {n} " + "x" * 200 for n in range(count)],
            "day": ["mon"] * count,
            "v": [[float(n), 1.0] for n in range(count)],
        }
    )
    table = Table.create(tmp_path / "t", data=rows, partition_by=["day"])
    table.add_columns(pa.schema([("late", pa.int32())]))
    view = table.view
    environment = Environment.of(view)
    (task,) = plan_scan(view).tasks
    searcher = environment.searcher(task)
    wanted = rows.append_column("late", pa.nulls(count, pa.int32()))
    small = ["id", "late", "day", "v"]
    random = np.random.default_rng(3)
    for _ in range(6):
        some = random.choice(count, 12)
        assert searcher.read_rows(some, small).equals(wanted.select(small).take(some))
        assert searcher.read_rows(some, ["level", "body"])["body"].to_pylist() == (
            wanted["body"].take(some).to_pylist()
        )
    with monkeypatch.context() as patch:
        patch.setattr(RowReader, "read_rows", lambda *_: pytest.fail("the file was read"))
        some = np.array([8_999, 0, 8_191, 8_192, 0])
        found = searcher.read_rows(some, [*small, ROW])
        assert found.select(small).equals(wanted.select(small).take(some))
        assert found[ROW].to_pylist() == some.tolist()
    environment.pool.columns._kept.clear()  # others took their room
    for attempt in range(4):
        with monkeypatch.context() as patch:
            reads = []
            real = RowReader.read_rows
            patch.setattr(RowReader, "read_rows", lambda *a, r=reads, f=real: r.append(a) or f(*a))
            assert searcher.read_rows(some, ["id"])["id"].to_pylist() == some.tolist()
            assert len(reads) == (attempt < 2)
    environment.pool.clear()
    with monkeypatch.context() as patch:
        patch.setattr(RowReader, "read_rows", lambda *_: pytest.fail("the file was read"))
        with pytest.raises(pytest.fail.Exception):
            searcher.read_rows(some, ["id"])
        patch.setattr(RowReader, "read_groups", _damaged)
        for _ in range(2):
            with pytest.raises(pytest.fail.Exception):
                searcher.read_rows(some, ["id"])


def _damaged(*_: object) -> None:
    raise DamagedSplitError("t.split", "a page that nobody asked for is damaged")
