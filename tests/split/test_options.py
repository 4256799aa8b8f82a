"""Every option of indexing has an effect on what is found or stored."""

from __future__ import annotations

import pyarrow as pa
import pytest
from conftest import configuration, query

from indextables.split.mapping_options import build_mapping
from indextables.split.write.writer import SplitWriter

TABLE = pa.table(
    {
        "body": ["Running fast", "runs in the park", "Wi-Fi x" + "y" * 99],
        "n": [1, 2, 3],
        "ip": ["10.0.0.1", "10.0.0.2", "x"],
    }
)


def found(make, text, column, **options):
    return make(TABLE, options).search(query(text, column)).tolist()


def test_tokenizer(make):
    assert found(make, "run", "body") == []
    assert found(make, "run", "body", **{"indexing.tokenizer.body": "en_stem"}) == [0, 1]
    assert found(make, "wi-fi", "body", **{"indexing.tokenizer.body": "whitespace"}) == []
    assert found(make, "Wi-Fi", "body", **{"indexing.tokenizer.body": "whitespace"}) == [2]
    assert found(make, "unni", "body", **{"indexing.tokenizer.body": "ngram(2,3)"}) == [0]


def test_type_map(make):
    assert found(make, "fast", "body", **{"indexing.typemap.body": "string"}) == []
    assert found(make, '"Running fast"', "body", **{"indexing.typemap.string": "body"}) == [0]
    assert found(make, "10.0.0.0/31", "ip", **{"indexing.typemap.ip": "ip"}) == [0]


def test_token_length(make):
    long = "x" + "y" * 99
    assert found(make, long, "body") == [2]
    assert found(make, long, "body", **{"text.maxTokenLength": "legacy"}) == []
    assert found(make, long, "body", **{"indexing.tokenLength.body": "99"}) == []
    assert found(make, long, "body", **{"indexing.tokenLength.body": "100"}) == [2]


@pytest.mark.parametrize("key", ["text.indexRecordOption", "indexing.indexrecordoption.body"])
def test_record_option_decides_the_size_of_the_index(make, key):
    words = " ".join(f"w{i % 7}" for i in range(2_000))
    table = pa.table({"body": [words] * 20})
    sizes = {
        option: sum(s.size for s in make(table, {key: option}).split.info.index_sections())
        for option in ("position", "freq", "basic")
    }
    assert sizes["position"] > sizes["freq"] >= sizes["basic"]


def test_fast_fields_are_answered_by_the_index(make):
    plain = make(TABLE)
    fast = make(TABLE, {"indexing.fastfields": "n"})
    for searcher, indexed in ((plain, False), (fast, True)):
        from indextables.split.search.query import resolve

        search = query("[2 TO *]", "n")
        bound = searcher.bound(resolve(search, searcher.context.mapping, searcher.context.schema))
        assert (searcher.source().compiler.compile(bound) is not None) is indexed
        assert searcher.search(search).tolist() == [1, 2]


def test_store_only_fields_are_kept_but_not_indexed(make):
    searcher = make(TABLE, {"indexing.storeonlyfields": "body"})
    assert [f.name for f in searcher.split.info.mapping.indexed] == ["ip"]
    assert searcher.split.rows.read_column("body").to_pylist() == TABLE["body"].to_pylist()


def test_heap_size_decides_the_number_of_segments(make):
    table = pa.table({"body": [f"a{i} b{i * 7} c{i * 13} d{i * 17}" for i in range(60_000)]})
    small = make(table, {"indexWriter.heapSize": "15000000"}, batch=60_000)
    large = make(table, {"indexWriter.heapSize": "500M"}, batch=60_000)
    assert len(small.split.info.segments) > len(large.split.info.segments) == 1
    for searcher in (small, large):
        assert searcher.search(query("b700 d170000", "body")).tolist() == [100, 10_000]
        assert searcher.search(query("a59999", "body")).tolist() == [59_999]


def test_temporary_directory(tmp_path):
    config = configuration(**{"indexWriter.tempDirectoryPath": str(tmp_path)})
    with SplitWriter(TABLE.schema, build_mapping(TABLE.schema, config), config) as writer:
        assert list(tmp_path.iterdir())
        writer.write(TABLE.to_batches()[0])
        written = writer.close()
    assert written.path.is_relative_to(tmp_path)
    written.delete()
    assert not list(tmp_path.iterdir())
