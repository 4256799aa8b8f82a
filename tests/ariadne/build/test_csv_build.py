"""Index rows of csv files that Arrow reads are those that Spark would have made."""

from __future__ import annotations

import random

import pytest

from indextables.ariadne import Index
from indextables.ariadne.build import csv_build, tasks
from indextables.config import ARIADNE_LARGE_INDEX_LIMIT

DDL = (
    "id BIGINT, part INT, name STRING, note STRING, amount DOUBLE, ts TIMESTAMP, price DECIMAL(9,2)"
)
OPTIONS = {"header": "true"}
WORDS = ["alpha", "béta", "gamma delta", "", "x"]


def lines(seed, count):
    """Lines of a file, with empty cells."""
    r = random.Random(seed)
    for n in range(count):
        cells = [
            str(seed * 1_000 + n),
            str(r.randrange(-5, 5)),
            r.choice(WORDS),
            f"note {r.randrange(9)}",
            f"{r.randrange(-99, 99)}.{r.randrange(99):02d}",
            f"2024-02-{1 + n % 28:02d} 12:00:{n % 60:02d}",
            "1.25",
        ]
        if seed == 3:
            cells = [f'"{cell}"' if cell and r.random() < 0.5 else cell for cell in cells]
        yield ",".join("" if r.random() < 0.1 else cell for cell in cells)


@pytest.fixture
def folder(tmp_path):
    """Five csv files, one without rows."""
    made = tmp_path / "data %41"
    made.mkdir()
    for seed, count in enumerate((30, 0, 20, 500, 1)):
        text = "\n".join(["id,part,name,note,amount,ts,price", *lines(seed, count), ""])
        (made / f"part {seed}.csv").write_text(text, encoding="utf-8")
    return made


@pytest.fixture
def by_spark(monkeypatch):
    """The names of the files that Spark read."""
    seen = []
    run = tasks.run

    def noted(spark, plan, rows, **more):
        seen.extend(name.rpartition("/")[2] for name in plan.files)
        return run(spark, plan, rows, **more)

    monkeypatch.setattr(tasks, "run", noted)
    return seen


def declare(index, *, computed=True):
    index.add_index("id")
    index.add_bloom_index("name")
    index.add_text_index("note")
    index.add_range_index("amount")
    if computed:
        index.add_computed_index("bucket", "abs(part) % 3")
        index.add_computed_index("loud", "upper(name) || coalesce(part, 0)")
        index.add_computed_index("sign", "if(amount < 0, null, amount * 2)")


def made(name, folder, *, by=declare, options=OPTIONS, **more):
    index = Index(name, DDL, "csv", read_options=options)
    index.add_file(str(folder))
    by(index, **more)
    return index, index.update()


def contents(index):
    """The rows of an index, without what differs from build to build."""
    rows = index._place.main.read().to_pylist()
    for row in rows:
        for name, cell in row.items():
            if isinstance(cell, list):
                row[name] = sorted(cell, key=repr)
            if name.startswith("large_"):
                row[name] = cell is not None
    return sorted(rows, key=lambda row: row["filename"])


def without_arrow(monkeypatch):
    monkeypatch.setattr(csv_build, "run", lambda *_: [])


@pytest.mark.parametrize(("limit", "computed"), [(500_000, True), (10, True), (10, False)])
def test_rows_are_those_that_spark_makes(
    limit, computed, spark, storage, folder, by_spark, monkeypatch
):
    spark.conf.set(ARIADNE_LARGE_INDEX_LIMIT.name, str(limit))
    try:
        ours, done = made("ours", folder, computed=computed)
        assert (done.indexed, by_spark) == (5, [])
        without_arrow(monkeypatch)
        theirs, done = made("theirs", folder, computed=computed)
        assert (done.indexed, len(by_spark)) == (5, 5)
    finally:
        spark.conf.unset(ARIADNE_LARGE_INDEX_LIMIT.name)
    assert contents(ours) == contents(theirs)
    assert any(row["large_id"] for row in contents(ours)) is (limit == 10)
    assert [row["row_count"] for row in contents(ours)] == [30, 0, 20, 500, 1]


def test_a_temporal_index(storage, folder, by_spark, monkeypatch):
    def newest(index):
        index.add_temporal_index("part", "ts")

    ours, _ = made("ours", folder, by=newest)
    assert by_spark == []
    without_arrow(monkeypatch)
    assert contents(ours) == contents(made("theirs", folder, by=newest)[0])


@pytest.mark.parametrize("expression", ["1", "if(part = 2, null, name)"])
def test_every_row_of_an_expression_counts(expression, storage, folder, by_spark, monkeypatch):
    """Rows with the same values are evaluated once."""

    def one(index):
        index.add_computed_index("c", expression)

    ours, _ = made("ours", folder, by=one)
    assert by_spark == []
    without_arrow(monkeypatch)
    assert contents(ours) == contents(made("theirs", folder, by=one)[0])
    nulls = sum(row["nulls_c"] for row in contents(ours))
    assert (nulls > 50) is (expression != "1")


@pytest.mark.parametrize("computed", [True, False])
def test_only_files_in_doubt_are_read_by_spark(computed, storage, folder, by_spark, monkeypatch):
    for name, line in (
        ("quoted", '1,2,"a ""b""",n,1.5,,'),
        ("short", "1,2"),
        ("hex", "0x1F,2,,,,,"),
    ):
        text = "\n".join(["id,part,name,note,amount,ts,price", *lines(9, 40), line, ""])
        (folder / f"{name}.csv").write_text(text, encoding="utf-8")
    ours, done = made("ours", folder, computed=computed)
    assert done.indexed == 8
    assert sorted(by_spark) == ["hex.csv", "quoted.csv", "short.csv"]
    without_arrow(monkeypatch)
    assert contents(ours) == contents(made("theirs", folder, computed=computed)[0])


def test_an_expression_that_fails_is_the_fault_of_its_file(storage, folder, by_spark):
    def by(index):
        index.add_computed_index("inverse", "1 / (id - 2003)")

    index, done = made("t", folder, by=by)
    assert done.indexed == 4
    (file,) = done.failed
    assert file.endswith("part 2.csv")
    assert "DIVIDE_BY_ZERO" in done.failed[file]
    assert file in index.locate_files({"inverse": [99.0]})


@pytest.mark.parametrize(
    "declaration",
    [
        lambda index: index.add_index("price"),
        lambda index: index.add_computed_index("c", "price * 2"),
    ],
    ids=["type", "input"],
)
def test_what_arrow_cannot_know_is_read_by_spark(declaration, storage, folder, by_spark):
    _, done = made("t", folder, by=declaration)
    assert (done.indexed, len(by_spark)) == (5, 5)


def test_a_file_that_spark_would_cut_is_read_by_spark(spark, storage, folder, by_spark):
    size = (folder / "part 3.csv").stat().st_size
    spark.conf.set("spark.sql.files.maxPartitionBytes", str(size - 1))
    try:
        _, done = made("t", folder)
    finally:
        spark.conf.unset("spark.sql.files.maxPartitionBytes")
    assert (done.indexed, by_spark) == (5, ["part 3.csv"])


def test_other_formats_and_options_are_read_by_spark(storage, folder, by_spark):
    _, done = made("t", folder, options={"header": "true", "nullValue": "x"})
    assert (done.indexed, len(by_spark)) == (5, 5)


def test_secrets_are_not_shown():
    direct = csv_build.Direct(None, None, {}, (), (), {"s3://b": {"secret": "hush"}})
    assert "hush" not in repr(direct)
    assert "hush" not in repr(csv_build.ReadFiles(direct))


def test_tasks_share_the_bytes():
    sizes = {"a": 100, "b": 60, "c": 50, "d": 0, "e": 0}
    shares = csv_build._tasks(sizes, 2)
    assert sorted(n for task in shares for n in task) == sorted(sizes)
    assert max(sum(sizes[n] for n in task) for task in shares) == 110
    assert len(csv_build._tasks(sizes, 10)) == 5
