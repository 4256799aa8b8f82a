"""A search index together with what tables have: analyzers, weights, facets, the mirror."""

from __future__ import annotations

import datetime

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

import indextables as it

TEXTS = [
    ("Running foxes", "The quick fox was running over the hounds"),
    ("Dogs", "a dog sleeps, and the fox and hound too"),
    ("Café society", None),
    (None, "runs; ran; RUNNER of the café"),
    ("fox", "nothing about it"),
    ("Of and the", "to be or not to be"),
]
ROWS = pa.table(
    {
        "id": range(12),
        "title": [TEXTS[n % 6][0] for n in range(12)],
        "body": [TEXTS[n % 6][1] for n in range(12)],
        "level": ["warn" if n % 3 else "error" for n in range(12)],
        "at": [datetime.datetime(2024, 5, 1 + n % 2, n, tzinfo=datetime.UTC) for n in range(12)],
        "bytes": [n * 10 for n in range(12)],
    }
)
COLUMNS = ["title", "body", "level", "at"]


def layouts(folder, options: dict[str, str]) -> list[it.SearchIndex | it.Table]:
    """A table with these rows, and indexes over them: all covered, some, none, and merged."""
    source = folder / "source"
    for start in range(0, 12, 4):
        write_deltalake(source, ROWS.slice(start, 4), mode="append")
    made: list[it.SearchIndex | it.Table] = []
    table = it.Table.create(folder / "table", ROWS.schema, config=options)
    for start in range(0, 12, 4):
        table.append(ROWS.slice(start, 4))
    made.append(table)
    for name in ("all", "none", "merged"):
        index = it.SearchIndex.create(
            folder / name, source=source, format="delta", columns=COLUMNS, config=options,
            refresh=name in ("all", "merged"),
        )  # fmt: skip
        if name == "merged":
            assert index.merge_splits().files_added == 1
        made.append(index)
    # An index that was refreshed when the source had two files.
    partial = folder / "partial"
    for start in (0, 4):
        write_deltalake(partial, ROWS.slice(start, 4), mode="append")
    some = it.SearchIndex.create(
        folder / "some", source=partial, format="delta", columns=COLUMNS, config=options
    )
    write_deltalake(partial, ROWS.slice(8, 4), mode="append")
    assert some.describe()["files_not_indexed"] == 1
    return [*made, some]


@pytest.mark.parametrize(
    "options",
    [
        {"tokenizer.body": "english", "tokenizer.title": "english"},
        {
            "tokenizer.body": "default | stop_words(fox,dog) | fold",
            "tokenizer.title": "default | stop(en) | edge(2,5)",
        },
    ],
    ids=["english", "chains"],
)
def test_analyzers_weights_and_lenient_searches(tmp_path, options):
    keys = {f"spark.indextables.indexing.{name}": value for name, value in options.items()}
    table, *indexes = layouts(tmp_path, keys)
    assert isinstance(table, it.Table)
    queries = ["fox", "run OR cafe", '"fox and hound"', "the", "title:dogs OR body:hound*"]
    for index in indexes:
        assert isinstance(index, it.SearchIndex)
        now = index.table()
        for query in queries:
            quoted = query.replace("'", "''")
            for where in (f"body indexquery '{quoted}'", f"NOT _indexall indexquery '{quoted}'"):
                assert ids(index.scan(where=where)) == ids(table.scan(where=where)), where
                assert index.count(where=where) == table.count(where=where)
            assert scores(now.search(query, limit=None)) == scores(table.search(query, limit=None))
            weighted = {"fields": ["title^3", "body"], "where": "id > 1", "limit": None}
            assert scores(index.search(query, **weighted)) == scores(
                table.search(query, **weighted)
            )
        typed = 'fox AND ("unbalanced'
        lenient = {"mode": "lenient", "limit": None}
        assert scores(now.search(typed, **lenient)) == scores(table.search(typed, **lenient))
        shown = index.search(
            "fox", fields=["title", "body"], snippets=["title", "body"], limit=None
        )
        other = table.search(
            "fox", fields=["title", "body"], snippets=["title", "body"], limit=None
        )
        for name in ("_snippet_title", "_snippet_body"):
            assert dict(zip(shown["id"].to_pylist(), shown[name].to_pylist(), strict=True)) == dict(
                zip(other["id"].to_pylist(), other[name].to_pylist(), strict=True)
            )


def ids(rows: pa.Table) -> list[int]:
    return sorted(rows["id"].to_pylist())


def scores(rows: pa.Table) -> dict[int, float]:
    pairs = zip(rows["id"].to_pylist(), rows["_score"].to_pylist(), strict=True)
    return {number: round(score, 4) for number, score in pairs}


def test_facets_and_histograms(tmp_path):
    table, *indexes = layouts(tmp_path, {})
    assert isinstance(table, it.Table)
    for index in indexes:
        for query, where in (("fox", None), (None, "id > 3"), ("fox OR dog", "level = 'warn'")):
            arguments = {"by": ["level", "title", ["level", "title"]], "where": where, "top": None}
            found, expected = index.facets(query, **arguments), table.facets(query, **arguments)
            assert found.keys() == expected.keys()
            for name in found:
                assert sorted(map(repr, found[name].to_pylist())) == sorted(
                    map(repr, expected[name].to_pylist())
                )
            for column, interval in (("at", "1d"), ("bytes", 50)):
                cut = {"column": column, "interval": interval, "where": where}
                assert index.histogram(query, **cut).equals(table.histogram(query, **cut))


def test_versions_of_the_source_and_of_its_schema(tmp_path):
    source = tmp_path / "source"
    write_deltalake(source, ROWS.slice(0, 4))
    index = it.SearchIndex.create(
        tmp_path / "index", source=source, format="delta", columns=["title", "body"]
    )
    write_deltalake(source, ROWS.slice(4, 4), mode="append")
    index.refresh()
    index.merge_splits()
    DeltaTable(source).delete("id = 1")
    more = ROWS.slice(8).append_column("extra", pa.array(["new"] * 4))
    write_deltalake(source, more, mode="append", schema_mode="merge")
    for _ in range(2):
        assert [index.count(version=v) for v in range(4)] == [4, 8, 7, 11]
        found = [ids(index.search("dog OR fox", version=v, limit=None)) for v in range(4)]
        assert found == [[0, 1], [0, 1, 4, 6, 7], [0, 4, 6, 7], [0, 4, 6, 7, 10]]
        assert ids(index.scan(where="extra = 'new' AND body indexquery 'nothing'")) == [10]
        assert "extra" not in index.scan(version=2).schema.names
        index.refresh()


def test_a_mirrored_table_is_a_source(tmp_path):
    """An index table that is also a Delta table, and indexed once more as such."""
    mirrored = it.Table.create(
        tmp_path / "mirrored", ROWS.schema, properties={"spark.indextables.delta.mirror": "true"}
    )
    mirrored.append(ROWS.slice(0, 6))
    index = it.SearchIndex.create(
        tmp_path / "index", source=mirrored.uri, format="delta", columns=["title", "body"]
    )
    mirrored.append(ROWS.slice(6))
    questions = ["body indexquery 'fox'", "NOT title indexquery 'fox'", "level = 'error'"]

    def check() -> None:
        for where in questions:
            assert ids(index.scan(where=where)) == ids(mirrored.scan(where=where)), where
        assert ids(index.search("fox", limit=None)) == ids(mirrored.search("fox", limit=None))
        assert index.count() == mirrored.count()

    check()
    mirrored.delete(where="id = 4")
    check()
    assert index.refresh().failed == ()
    check()
    mirrored.update({"body": "'a blue fox'"}, where="id = 5")
    check()
    index.refresh()
    index.merge_splits()
    check()
    mirrored.merge_splits()
    check()
    mirrored.rename_column("body", "text")
    assert index.count() == mirrored.count()
    assert ids(index.scan(where="text = 'a blue fox'")) == [5]
