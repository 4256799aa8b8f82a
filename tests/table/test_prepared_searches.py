"""A search that is asked again is not prepared anew, and finds what it found the first time."""

from __future__ import annotations

import itertools
import pickle
import random
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pytest

from indextables import Table
from indextables.errors import IndexTablesError
from indextables.split import linked
from indextables.split.search import query as bound
from indextables.split.search.query import RepeatCache

WORDS = ["spark", "fox", "dog", "data", "the", "quick", "running", "runs"]
SCHEMA = pa.schema([("id", pa.int64()), ("title", pa.string()), ("body", pa.string())])
_SHORT = {"spark.indextables.indexquery.maxLength": "12"}
QUERIES = [
    "fox", "fox dog", "quick AND fox", "+fox -dog", '"fox dog"', "fo*", "title:fox body:dog^2",
    "the quick fox", "running OR spark~1", "id:[3 TO 9]", "*", "NOT fox", "heading:fox",
]  # fmt: skip


def _rows(rng: random.Random, count: int, first: int = 0) -> pa.Table:
    def text() -> str:
        return " ".join(rng.choices(WORDS, k=rng.randint(0, 7)))

    return pa.table(
        {
            "id": range(first, first + count),
            "title": [text() for _ in range(count)],
            "body": [text() for _ in range(count)],
        },
        SCHEMA,
    )


def _answer(table: Table, query: str, **options: object) -> object:
    """What a table answers in every way that searches; an error is an answer, too."""
    try:
        rows = table.search(query, limit=5, columns=["id"], **options).to_pylist()
        facets = table.facets(query, by=["id"], top=None, **options)
        return rows, facets["id"].sort_by("id").to_pylist(), table.count()
    except IndexTablesError as error:
        return str(error)


def _fresh(table: Table, query: str, **options: object) -> object:
    """The same of a handle that has asked nothing yet, with its configuration and version."""
    other = Table(table.log, table.view.at(table.view.snapshot))
    return _answer(other, query, **options)


@pytest.fixture
def table(tmp_path: Path) -> Table:
    rng = random.Random(7)
    made = Table.create(
        tmp_path / "t", SCHEMA, config={"spark.indextables.cache.disk.path": str(tmp_path / "c")}
    )
    for split in range(3):
        made.append(_rows(rng, 20, 20 * split))
    return made


def _check(table: Table) -> list[object]:
    """Every query, often enough to be kept; each time what a fresh handle says."""
    options: list[dict[str, object]] = [
        {}, {"mode": "lenient"}, {"mode": "all"}, {"mode": "phrase"}, {"fields": ["body"]},
        {"fields": ["title^3", "body"]}, {"fields": ("body", "title^3")},
    ]  # fmt: skip
    asked = [(query, options[n % 7]) for n, query in enumerate((*QUERIES, *QUERIES, "fox"))]
    first = [_answer(table, query, **some) for query, some in asked]
    for _ in range(4):
        assert [_answer(table, query, **some) for query, some in asked] == first
    assert [_fresh(table, query, **some) for query, some in asked] == first
    return first


def test_what_decides_a_search_is_never_forgotten(table: Table):
    """Versions, properties, synonyms, constants of BM25, names of columns; older views stay."""
    before, plain = Table(table.log, table.view), _check(table)
    changes = [
        lambda: table.set_properties({"spark.indextables.search.fields": "title^2"}),
        lambda: table.set_properties({"spark.indextables.search.synonyms": "fox, dog"}),
        lambda: table.set_properties({"spark.indextables.search.synonyms": "fox, spark"}),
        lambda: table.set_properties({"spark.indextables.search.bm25.b": "0.2"}),
        lambda: table.set_properties({"spark.indextables.indexquery.maxLength": "8"}),
        lambda: table.rename_column("title", "heading"),
        lambda: table.append(_rows(random.Random(1), 9, 100).rename_columns(table.schema.names)),
        lambda: table.delete(where="id < 10"),
        table.merge_splits,
    ]
    seen = [plain]
    for change in changes:
        change()
        seen.append(_check(table))
    assert sum(one != other for one, other in itertools.pairwise(seen)) >= 8
    assert _check(before) == plain


def test_settings_of_a_handle_decide_its_searches_alone(table: Table, tmp_path: Path):
    cache = {"spark.indextables.cache.disk.path": str(tmp_path / "c")}
    other = Table.open(
        table.uri, config={**cache, "spark.indextables.search.fields": "body", **_SHORT}
    )
    long = "fox dog fox dog"
    for _ in range(2):
        assert _answer(table, "fox") == _fresh(table, "fox") != _answer(other, "fox")
        assert _answer(other, "fox") == _fresh(other, "fox")
        assert "characters" in str(_answer(other, long)) != _answer(table, long)


def test_threads_share_what_is_prepared(table: Table):
    expected = [_fresh(table, query) for query in QUERIES]
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda n: (n, _answer(table, QUERIES[n])), [*range(13)] * 20))
    assert all(expected[n] == answer for n, answer in answers)


def test_a_search_that_is_asked_often_is_prepared_once(table: Table, monkeypatch):
    def ask(query: str, **options: object) -> None:
        table.search(query, columns=["id"], **options)
        table.search("another", columns=["id"])

    for _ in range(4):
        ask("quick fox")
    worked: list[str] = []
    for place, name in ((bound._Resolver, "resolve"), (linked.Compiler, "compile")):
        work = getattr(place, name)
        monkeypatch.setattr(
            place, name, lambda *a, work=work, name=name: worked.append(name) or work(*a)
        )
    ask("quick fox")
    assert worked == []
    ask("quick fox", fields=["body"])
    assert sorted(set(worked)) == ["compile", "resolve"]


def test_what_is_kept_is_bounded():
    kept: RepeatCache[str] = RepeatCache(80)
    made: list[int] = []

    def ask(key: int, size: int) -> str:
        def make() -> tuple[str, int]:
            made.append(key)
            return str(key), size

        return kept.get(key, make)

    assert [ask(n, 10) for n in (1, 1, 2, 1, 2, 1, 2)] == ["1", "1", "2", "1", "2", "1", "2"]
    assert made == [1, 2, 1, 2]  # the last one is there, and those that were made twice
    for _ in range(3):
        assert [ask(n, 11) for n in (3, 4)] == ["3", "4"]  # too large for an eighth
    assert made[4:] == [3, 4] * 3
    for n in [*range(10, 17)] * 2:
        ask(n, 10)
    assert len(kept) == 8
    ask(1, 10)  # the oldest one went
    assert made[-1] == 1
    assert len(pickle.loads(pickle.dumps(kept))) == 0
