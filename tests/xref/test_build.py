"""Building and linking XRefs: what is in the file, what is read for it, what is left out."""

from __future__ import annotations

import orjson
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from faulty_store import FaultyStore
from xrefs import SCHEMA, add_xref, cover, link, sources

from indextables import Table
from indextables.config import (
    XREF_BLOOM_FIELDS,
    XREF_COMPRESSION,
    XREF_DIRECTORY,
    XREF_HEAP_SIZE,
    XREF_TEMP_DIRECTORY,
    Config,
)
from indextables.errors import UnusableXRefError, XRefError
from indextables.split.format import lists
from indextables.xref.build import XRefSource, build_xref, merge_xrefs
from indextables.xref.container import XREF_KEY
from indextables.xref.fields import read_source, term_field
from indextables.xref.open_xref import OpenXRef, read_xref


def test_an_xref_is_a_parquet_file_of_its_source_splits(table):
    built = cover(table)
    rows = pq.read_table(table.log.store.local_path(built.path))
    assert rows["path"].to_pylist() == [s.path for s in sources(table)] == [*built.source_splits]
    assert rows["size"].to_pylist() == [s.size for s in sources(table)]
    assert built.size == table.log.store.head(built.path).size == built.footer_end_offset


def test_the_description_names_columns_with_their_fingerprints(table):
    built = cover(table)
    metadata = pq.read_metadata(table.log.store.local_path(built.path)).metadata
    fields = orjson.loads(metadata[XREF_KEY])["fields"]
    assert {(f["column"], f["meaning"]) for f in fields} == {
        ("id", "int"), ("body", "words"), ("tag", "string"), ("day", "date"), ("ip", "ip"),
        ("doc", "words"), ("doc", "paths"), ("price", "float"),
    }  # fmt: skip
    assert len({f["key"] for f in fields}) == len(fields)


def test_total_terms_are_different_terms(table):
    built = cover(table)
    store = table.log.store
    different = {
        (field.key, term)
        for source in sources(table)
        for field, terms in read_source(store, source).terms
        for term in terms.to_pylist()
    }
    assert built.total_terms == len(different)


def test_a_build_without_time_covers_the_first_splits(table):
    config = Config({XREF_BLOOM_FIELDS.name: "tag"})
    built = build_xref(table.log.store, sources(table), config=config, reading_s=0)
    assert built.source_splits == (sources(table)[0].path,)
    whole = build_xref(table.log.store, sources(table), config=config, reading_s=600)
    assert whole.source_splits == tuple(source.path for source in sources(table))
    joined = merge_xrefs(
        table.log.store, [built.path, whole.path], keep=set(whole.source_splits), config=config
    )
    assert len(read_xref(table.log.store, joined.path).coverage) == 1 + len(sources(table))


def test_a_build_reads_one_range_of_each_split(table):
    store = FaultyStore(table.log.store)
    build_xref(store, sources(table), config=Config())
    reads = [(o, p) for o, p in store.operations if o.startswith("get")]
    assert sorted(reads) == sorted(("get_range", s.path) for s in sources(table))


def test_without_offsets_footers_are_found_by_looking(table):
    plain = [XRefSource(s.path, s.size, s.num_records) for s in sources(table)]
    built = build_xref(table.log.store, plain, config=Config())
    assert built.total_terms == cover(table).total_terms


def test_opening_is_one_range_read(table):
    built = cover(table)
    store = FaultyStore(table.log.store)
    OpenXRef.open(store, built.path, size=built.size)
    assert store.operations == [("get_range", built.path)]


def test_a_split_without_lists_is_covered_and_unknown(table, monkeypatch):
    monkeypatch.setattr(lists, "FEW_VALUES", 1)
    table.append(pa.Table.from_pylist([{"id": n, "tag": "x", "body": "y"} for n in range(9)]))
    built = cover(table)
    opened = OpenXRef.open(table.log.store, built.path)
    mapping = {f.name: f for f in read_mapping(table).fields}
    knows = {
        name: opened.coverage.knows(term_field(mapping[name], SCHEMA.field(name).type)).tolist()
        for name in ("id", "tag", "body")
    }
    newest = [*built.source_splits].index(table.snapshot().files["path"].to_pylist()[-1])
    assert not knows["id"][newest]
    assert sum(knows["id"]) == 6
    assert all(knows["tag"]) and all(knows["body"])


def read_mapping(table: Table):

    return table.view.mapping


def test_a_split_that_cannot_be_read_is_covered_and_unknown(table):
    victim = sources(table)[2]
    store = table.log.store
    store.put(victim.path, store.get(victim.path)[:-4] + b"XXXX")
    built = cover(table)
    opened = OpenXRef.open(store, built.path)
    knows = opened.coverage.knows(term_field(read_mapping(table).by_name["body"], pa.string()))
    assert knows.tolist() == [s.path != victim.path for s in sources(table)]


def test_a_damaged_list_is_left_out(table):
    victim, store = sources(table)[0], table.log.store
    data = bytearray(store.get(victim.path))
    start = data.rfind(b"PAR1", 4, victim.footer_start - 8)  # the end of the last list
    data[start - 20] ^= 1
    store.put(victim.path, bytes(data))
    found = read_source(store, victim)
    assert found.columns == tuple(SCHEMA.names)
    assert {field.meaning for field, _ in found.terms} >= {"words", "int"}
    assert len(found.terms) == len(SCHEMA.names)  # and one more for the paths, but for the damage


def test_a_source_that_is_gone_fails_the_build(table):
    gone = XRefSource("splits/split-gone.split", 1_000, 1, 500, 1_000)
    with pytest.raises(FileNotFoundError):
        build_xref(table.log.store, [*sources(table), gone], config=Config())
    assert not list(table.log.store.list("_xrefsplits"))


def test_linking_reads_no_split_and_forgets_those_that_are_gone(table):
    splits = sources(table)
    parts = [cover(table, splits[:2]), cover(table, splits[2:])]
    keep = [s.path for s in splits if s != splits[1]]
    store = FaultyStore(table.log.store)
    merged = merge_xrefs(store, [p.path for p in parts], keep=keep, config=Config())
    assert {p for o, p in store.operations if o.startswith("get")} == {p.path for p in parts}
    assert [*merged.source_splits] == keep
    paths = read_xref(table.log.store, merged.path).coverage.paths.to_pylist()
    assert paths == [splits[0].path, None, *(s.path for s in splits[2:])]


def test_linked_xrefs_can_be_linked_again(table):
    splits = sources(table)
    keep = [s.path for s in splits]
    first = link(table, [cover(table, splits[:1]), cover(table, splits[1:3])], keep)
    again = link(table, [first, cover(table, splits[3:])], keep)
    assert [*again.source_splits] == keep
    opened = OpenXRef.open(table.log.store, again.path)
    assert opened.bases == (0, 1, 3)


def test_an_xref_is_not_linked_with_itself(table):
    built = cover(table)
    with pytest.raises(UnusableXRefError, match="shares segments"):
        merge_xrefs(table.log.store, [built.path, built.path], keep=[], config=Config())


def test_a_damaged_xref_is_not_linked(table):
    built, store = cover(table), table.log.store
    data = bytearray(store.get(built.path))
    data[len(data) // 3] ^= 1
    store.put(built.path, bytes(data))
    with pytest.raises(UnusableXRefError):
        merge_xrefs(store, [built.path], keep=built.source_splits, config=Config())


# --- options ---------------------------------------------------------------------------------


def test_compression_can_be_switched_off(table):
    many = pa.Table.from_pylist([{"body": " ".join(f"w{n}" for n in range(3_000))}])
    table.append(many)
    store = table.log.store
    key = XREF_COMPRESSION.name
    small = build_xref(store, sources(table), config=Config({key: True}))
    large = build_xref(store, sources(table), config=Config({key: False}))
    codecs = [
        {s.codec for s in read_xref(store, built.path).info.index_sections()}
        for built in (small, large)
    ]
    assert "zstd" in codecs[0]
    assert codecs[1] == {""}
    assert small.size < large.size


def test_the_folder_is_configured(table):
    built = build_xref(
        table.log.store, sources(table), config=Config({XREF_DIRECTORY.name: "routing"})
    )
    assert built.path.startswith("routing/")


def test_the_temporary_folder_is_used_and_left_empty(table, tmp_path):
    place = tmp_path / "temp"
    with pytest.raises(XRefError, match="Cannot build"):
        build_xref(
            table.log.store,
            sources(table),
            config=Config({XREF_TEMP_DIRECTORY.name: str(place)}),
        )
    place.mkdir()
    build_xref(
        table.log.store,
        sources(table),
        config=Config({XREF_TEMP_DIRECTORY.name: str(place)}),
    )
    assert not list(place.iterdir())


def test_a_small_heap_makes_more_segments_of_the_same_terms(table):
    import random

    words = random.Random(1)
    for _ in range(4):
        body = " ".join(f"{words.getrandbits(60):x}" for _ in range(60_000))
        table.append(pa.Table.from_pylist([{"body": body}]))
    key = XREF_HEAP_SIZE.name
    built = [
        build_xref(table.log.store, sources(table), config=Config({key: size}))
        for size in ("15000000", "500M")
    ]
    small, large = (read_xref(table.log.store, b.path).info.segments for b in built)
    assert len(small) > len(large) == 1
    assert built[0].total_terms == built[1].total_terms
    add_xref(table, built[0])
    assert table.count(where="body indexquery 'word3'") == 1
