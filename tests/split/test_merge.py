"""A merged split holds the rows of its sources and is searched like them."""

from __future__ import annotations

import dataclasses
import logging

import numpy as np
import pyarrow as pa
import pytest
from conftest import configuration, query
from test_scoring import SEARCHES, _table, best

from indextables.config import Config
from indextables.errors import DamagedIndexError, DamagedSplitError, SplitWriteError
from indextables.split import merge as merging
from indextables.split.mapping_options import build_mapping
from indextables.split.merge import merge_splits
from indextables.split.open_split import SplitFile, SplitSearcher
from indextables.split.search.query import SearchContext
from indextables.storage.local import LocalStore


@pytest.fixture
def merged(tmp_path):
    """Merge opened splits for the table of the last one; gives the merged split, opened."""

    def merge(searchers, context=None, **more):
        context = context or searchers[-1].context
        written = merge_splits(
            [s.split for s in searchers],
            schema=context.schema,
            mapping=context.mapping,
            config=more.pop("config", Config()),
            partition_values=more.pop("partition_values", {}),
        )
        target = tmp_path / written.path.name
        target.write_bytes(written.path.read_bytes())
        written.delete()
        store = LocalStore(str(tmp_path))
        split = SplitFile(
            store, target.name, written.size, written.footer_start, written.footer_end
        )
        return SplitSearcher(split, searchers[0].pool, context)

    return merge


@pytest.fixture
def indexed_rows(monkeypatch):
    """How many rows were indexed anew, in all writers."""
    counted = []
    add = merging.SplitWriter.__init__.__globals__["Indexer"].add

    def counting(self, batch, *hashes):
        counted.append(batch.num_rows)
        add(self, batch, *hashes)

    monkeypatch.setattr("indextables.split.write.indexer.Indexer.add", counting)
    return counted


def values(searcher):
    rows = np.arange(searcher.split.info.rows)
    return searcher.read_rows(rows, searcher.context.schema.names).to_pylist()


# --- the same rows, the same answers -----------------------------------------------------------


@pytest.mark.parametrize("options", [{}, {"indexing.fastfields": "n"}], ids=["plain", "fast"])
def test_searches_and_scores_are_those_of_the_sources(make, merged, options, indexed_rows):
    table = _table(400)
    cuts = [(0, 7), (7, 200), (207, 1), (208, 192)]
    sources = [make(table.slice(start, length), options) for start, length in cuts]
    indexed_rows.clear()
    one = merged(sources)
    assert not indexed_rows, "no row is tokenised again"
    assert values(one) == table.to_pylist()
    assert [row for _, row in one.split.info.row_tags] == [0, 7, 207, 208]
    for column, text in SEARCHES:
        search = query(text, column)
        found = [start + row for s, (start, _) in zip(sources, cuts, strict=True)
                 for row in s.search(search)]  # fmt: skip
        assert one.search(search).tolist() == found, text
        assert one.count(search) == len(found)
        assert best([one], search, 12) == best(sources, search, 12), text


def test_merged_splits_are_merged_again(make, merged):
    table = _table(300)
    sources = [make(table.slice(i * 50, 50)) for i in range(6)]
    halves = [merged(sources[:3]), merged(sources[3:])]
    one = merged(halves)
    assert values(one) == table.to_pylist()
    begins = [row for _, row in one.split.info.row_tags]
    assert begins == [0, 50, 100, 150, 200, 250]
    for column, text in SEARCHES:
        assert best([one], query(text, column), 20) == best(sources, query(text, column), 20)


def test_segments_are_merged_too(make, merged, indexed_rows):
    table = _table(300)
    sources = [make(table.slice(0, 240)), *(make(table.slice(240 + i * 4, 4)) for i in range(15))]
    indexed_rows.clear()
    one = merged(sources)
    assert not indexed_rows
    assert len(one.split.info.segments) == 1
    assert values(one) == table.to_pylist()
    for column, text in SEARCHES:
        assert best([one], query(text, column), 20) == best(sources, query(text, column), 20)


def test_tags_are_limited(make, merged, monkeypatch, indexed_rows):
    monkeypatch.setattr(merging, "MAX_TAGS", 2)
    table = _table(50)
    sources = [make(table.slice(i * 10, 10)) for i in range(5)]
    indexed_rows.clear()
    one = merged(sources)
    assert sum(indexed_rows) == 30
    assert [row for _, row in one.split.info.row_tags] == [0, 10, 20]
    assert values(one) == table.to_pylist()
    assert len(one.search(query("w0", "body"))) == sum(
        len(s.search(query("w0", "body"))) for s in sources
    )


def test_many_sources_that_lack_a_column(make, merged, indexed_rows):
    old = [make(pa.table({"id": [i], "body": [f"w{i} red"]})) for i in range(9)]
    wide = pa.table({"id": [9], "body": ["fox"], "tag": ["red"]})
    new = [make(wide, base=old[0].context.mapping) for _ in range(9)]
    indexed_rows.clear()
    one = merged([*old, *new])
    assert sum(indexed_rows) == 9, "Tantivy cannot merge segments that lack a field"
    assert one.split.info.rows == 18
    assert len(one.search(query("red"))) == 18
    assert len(one.search(query("red", "tag"))) == 9
    assert [values(one)[r]["id"] for r in one.search(query("w4", "body"))] == [4]


def test_word_lists_and_counts_are_those_of_all_rows(make, merged):
    table = _table(120)
    whole = make(table)
    one = merged([make(table.slice(i * 40, 40)) for i in range(3)])
    for column in ("title", "body"):
        assert one.split.terms(column).to_pylist() == whole.split.terms(column).to_pylist()
    assert one.split.info.term_counts == whole.split.info.term_counts


def test_statistics_are_those_of_all_rows(make, merged):
    table = pa.table(
        {
            "t": ["b" * 40, "a" * 40, None, "\U0010ffff" * 40],
            "n": pa.array([9, 10, None, -1]),
            "f": pa.array([1.5, float("nan"), None, 0.0]),
        }
    )
    whole = make(table)
    one = merged([make(table.slice(i, 1)) for i in range(4)])
    assert one.split.info.statistics == whole.split.info.statistics
    assert one.split.info.statistics.null_counts == {"t": 1, "n": 1, "f": 1}
    assert one.split.info.uncompressed_size > 0


def test_values_too_long_for_the_index_are_remembered(make, merged):
    options = {"indexing.typemap.t": "string", "indexing.tokenLength.t": "5"}
    sources = [make(pa.table({"t": [text]}), options) for text in ("short", "much longer")]
    one = merged(sources)
    assert one.split.info.too_long == ("t",)


# --- sources that differ -----------------------------------------------------------------------


def test_a_column_that_was_added_later_is_null(make, merged, indexed_rows):
    old = make(pa.table({"id": [1, 2], "body": ["red fox", "blue"]}))
    wide = pa.table({"id": [3], "body": ["fox"], "tag": ["red"]})
    new = make(wide, base=old.context.mapping)
    indexed_rows.clear()
    one = merged([old, new])
    assert not indexed_rows
    assert values(one)[0] == {"id": 1, "body": "red fox", "tag": None}
    for text, column, rows in [
        ("red", "tag", [2]), ("fox", "body", [0, 2]), ("red", None, [0, 2]), ("tag:*", None, [2]),
        ("NOT red", "tag", [0, 1]), ("r*", "tag", [2]), ("[a TO z]", "tag", [2]),
    ]:  # fmt: skip
        assert one.search(query(text, column)).tolist() == rows, text
    again = make(pa.table({**wide.to_pydict(), "id": [9]}), base=old.context.mapping)
    context = dataclasses.replace(new.context)
    before = [dataclasses.replace(s, context=context) for s in (old, new, again)]
    for text in ("red", "fox red", "tag:red fox"):
        assert best([one, again], query(text), 5) == best(before, query(text), 5)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ({}, {"indexing.tokenizer.body": "whitespace"}),
        ({}, {"indexing.typemap.body": "string"}),
        ({}, {"indexing.fastfields": "n"}),
        ({"text.indexRecordOption": "basic"}, {}),
        ({"indexing.storeonlyfields": "body"}, {}),
    ],
    ids=["tokenizer", "type", "fast", "record", "store only"],
)
def test_another_mapping_is_indexed_again(make, merged, first, second, indexed_rows):
    rows = pa.table({"id": [1, 2], "n": [5, 6], "body": ["Red Fox", "blue"]})
    sources = [make(rows, first), make(rows, second)]
    indexed_rows.clear()
    one = merged(sources)
    assert sum(indexed_rows) == 2
    whole = make(pa.concat_tables([rows, rows]), second)
    assert sorted(map(str, values(one))) == sorted(map(str, values(whole)))
    for text in ("Red", "red", '"red fox"', '"Red Fox"', "n:5", "body:*", "blue OR n:6"):
        found, expected = one.search(query(text)), whole.search(query(text))
        ids = [v["id"] for v in values(one)]
        other = [v["id"] for v in values(whole)]
        assert sorted(ids[r] for r in found) == sorted(other[r] for r in expected), text


def test_a_widened_column_is_indexed_again(make, merged, indexed_rows):
    narrow = pa.table({"d": pa.array([1, 2], pa.decimal128(6, 1))})
    wide = pa.table({"d": pa.array([3], pa.decimal128(10, 2))})
    options = {"indexing.fastfields": "d"}
    sources = [make(narrow, options), make(wide, options)]
    indexed_rows.clear()
    one = merged(sources)
    assert sum(indexed_rows) == 2
    assert sorted(v["d"] for v in values(one)) == [1, 2, 3]
    for number in (1, 2, 3):
        (row,) = one.search(query(str(number), "d"))
        assert values(one)[row]["d"] == number


def test_empty_sources(make, merged):
    schema = pa.schema([("id", pa.int64()), ("body", pa.string())])
    rows = pa.table({"id": [1], "body": ["fox"]}, schema=schema)
    one = merged([make(schema.empty_table()), make(rows), make(schema.empty_table())])
    assert one.search(query("fox", "body")).tolist() == [0]
    none = merged([make(schema.empty_table()), make(schema.empty_table())])
    assert none.split.info.rows == 0
    assert none.search(query("fox", "body")).tolist() == []


def test_partition_columns_stay_out(make, merged):
    rows = pa.table({"id": [1], "body": ["fox"]})
    source = make(rows)
    schema = pa.schema([*rows.schema, ("day", pa.string())])
    mapping = build_mapping(schema, configuration(), partition_by=["day"])
    context = SearchContext(schema, mapping)
    one = merged([source, make(rows)], context, partition_values={"day": "2024"})
    assert one.split.footer.schema.names == ["id", "body"]
    assert one.split.info.partition_values == {"day": "2024"}


# --- damage ------------------------------------------------------------------------------------


def damage(searcher, offset, tmp_path):
    file = tmp_path / searcher.split.path
    data = bytearray(file.read_bytes())
    data[offset] ^= 0xFF
    file.write_bytes(data)


def test_a_damaged_index_is_made_again(make, merged, tmp_path, caplog, indexed_rows):
    table = _table(100)
    sources = [make(table.slice(i * 50, 50)) for i in range(2)]
    expected = {text: best(sources, query(text, column), 9) for column, text in SEARCHES}
    section = next(s for s in sources[0].split.info.index_sections() if s.name.endswith(".idx"))
    damage(sources[0], section.offset + section.length // 2, tmp_path)
    indexed_rows.clear()
    with caplog.at_level(logging.WARNING):
        one = merged(sources)
    assert "indexed again" in caplog.text
    assert sum(indexed_rows) == 50
    for column, text in SEARCHES:
        assert best([one], query(text, column), 9) == expected[text]


def test_damaged_rows_are_an_error_that_names_the_split(make, merged, tmp_path):
    sources = [make(_table(50, seed)) for seed in (1, 2)]
    start = sources[1].split.footer.parquet.row_group(0).column(2).data_page_offset
    damage(sources[1], start + 40, tmp_path)
    with pytest.raises(DamagedSplitError) as error:
        merged(sources, config=configuration(**{"indexWriter.tempDirectoryPath": str(tmp_path)}))
    assert error.value.path == sources[1].split.path
    assert not isinstance(error.value, DamagedIndexError)
    assert not [p for p in tmp_path.iterdir() if p.is_dir()], "temporary folders are gone"


def test_a_temporary_folder_that_is_not_there(make, merged, tmp_path):
    sources = [make(_table(5, seed)) for seed in (1, 2)]
    missing = configuration(**{"indexWriter.tempDirectoryPath": str(tmp_path / "missing")})
    with pytest.raises(SplitWriteError, match="missing"):
        merged(sources, config=missing)


def test_the_same_segments_twice_are_indexed_again(make, merged, tmp_path, indexed_rows):
    source = make(_table(30))
    copy = tmp_path / "copy.split"
    copy.write_bytes((tmp_path / source.split.path).read_bytes())
    twin = dataclasses.replace(source, split=dataclasses.replace(source.split, path=copy.name))
    indexed_rows.clear()
    one = merged([source, twin])
    assert sum(indexed_rows) == 30
    assert one.split.info.rows == 60
    assert len(one.search(query("w0", "body"))) == 2 * len(source.search(query("w0", "body")))
