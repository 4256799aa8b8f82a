"""Bloom filters: no value is ever denied, one read answers for all splits, damage is found."""

from __future__ import annotations

import uuid

import pyarrow as pa
import pytest
from faulty_store import FaultyStore
from hypothesis import given
from hypothesis import strategies as st
from xrefs import ALWAYS, add_xref, cover, link, sources

from indextables import Table
from indextables.config import XREF_BLOOM_BITS, XREF_BLOOM_FIELDS, Config
from indextables.errors import UnusableXRefError, XRefError
from indextables.predicate.sql_text import parse_predicate
from indextables.xref.build import build_xref
from indextables.xref.container import BloomWriter, hashes, possible
from indextables.xref.open_xref import OpenXRef, close_xrefs, read_xref

SCHEMA = pa.schema([("uid", pa.string()), ("number", pa.int64()), ("body", pa.string())])
ROWS = 2_000
SPLITS = 5
OPTIONS = {"xref.build.bloomFields": "uid, number"}


def identifiers(split: int) -> list[str]:
    return [str(uuid.uuid5(uuid.NAMESPACE_OID, f"{split} {row}")) for row in range(ROWS)]


@pytest.fixture(scope="module")
def full(tmp_path_factory) -> Table:
    """Five splits of 2,000 rows whose values are all different."""
    config = {
        "spark.indextables.cache.disk.path": str(tmp_path_factory.mktemp("cache")),
        **ALWAYS,
    }
    folder = tmp_path_factory.mktemp("bloom") / "table"
    table = Table.create(folder, SCHEMA, mapping={"uid": "string"}, config=config)
    for split in range(SPLITS):
        numbers = [7_919 * (split + SPLITS * row) % 1_000_003 for row in range(ROWS)]
        table.append(
            pa.table({"uid": identifiers(split), "number": numbers, "body": ["word"] * ROWS})
        )
    return table


def kept(table: Table, where: str) -> list[str]:
    snapshot, router = table.refresh().snapshot(), table.view.router
    keep = router.route(parse_predicate(where, snapshot.schema), snapshot.entries).keep
    paths = snapshot.entries["path"].to_pylist()
    return [path for path, flag in zip(paths, keep.tolist(), strict=True) if flag]


def built(table: Table, **options: object) -> OpenXRef:
    config = Config({f"spark.indextables.{k}": v for k, v in options.items()})
    made = build_xref(table.log.store, sources(table), config=config)
    return OpenXRef.open(table.log.store, made.path)


def test_values_that_are_all_different_have_no_list(full):
    close_xrefs()
    made = built(full)
    assert not made.filters
    xref = read_xref(full.log.store, made.path)
    assert {f["column"] for f in xref.described.fields} == {"body"}


def test_every_value_is_found_and_others_hardly_ever(full):
    made = cover(full, **OPTIONS)
    path_of = {split: sources(full)[split].path for split in range(SPLITS)}
    for split in range(SPLITS):
        for uid in identifiers(split)[::400]:
            assert path_of[split] in kept(full, f"uid = '{uid}'")
            assert full.count(where=f"uid = '{uid}'") == 1
    strangers = [str(uuid.uuid4()) for _ in range(200)]
    wrong = sum(len(kept(full, f"uid = '{stranger}'")) for stranger in strangers)
    assert wrong < 0.03 * SPLITS * len(strangers)
    several = kept(full, f"uid IN ('{identifiers(0)[0]}', '{identifiers(3)[9]}')")
    assert {path_of[0], path_of[3]} <= set(several)
    assert path_of[1] in kept(full, f"number = {7_919 * (1 + SPLITS * 5) % 1_000_003}")
    assert made.source_splits


def test_patterns_and_long_lists_are_not_asked_of_filters(full):
    cover(full, **OPTIONS)
    many = ", ".join(f"'{n}'" for n in range(100))
    assert len(kept(full, f"uid IN ({many})")) == SPLITS
    assert len(kept(full, "uid LIKE 'a%'")) == SPLITS


def test_one_range_read_answers_for_all_splits(full):
    config = Config({XREF_BLOOM_FIELDS.name: "uid"})
    made = build_xref(full.log.store, sources(full), config=config)
    store = FaultyStore(full.log.store)
    opened = OpenXRef.open(
        store, made.path, size=made.size, footer_start=made.footer_start_offset, most_at_once=0
    )
    before = len(store.operations)
    (filters,) = opened.filters
    row = possible(
        [filters],
        opened.bloom,
        opened.read,
        [identifiers(2)[0]],
        documents=len(opened.coverage),
        path=made.path,
    )
    assert row[2]
    assert store.operations[before:] == [("get_range", made.path)]


def test_more_bits_make_larger_filters(full):
    sizes = [
        built(full, **{"xref.build.bloomFields": "uid", XREF_BLOOM_BITS.name[18:]: bits})
        .filters[0]
        .blocks
        for bits in (8, 16)
    ]
    assert sizes[1] == pytest.approx(2 * sizes[0], abs=1)


def test_filters_are_linked(full):
    splits = sources(full)
    config = Config({XREF_BLOOM_FIELDS.name: "uid"})
    parts = [build_xref(full.log.store, s, config=config) for s in (splits[:2], splits[2:])]
    for part in parts:
        add_xref(full, part)
    merged = link(full, parts, [s.path for s in splits])
    opened = OpenXRef.open(full.log.store, merged.path)
    assert [(f.base, f.splits) for f in opened.filters] == [(0, 2), (2, 3)]
    for split in range(SPLITS):
        found = possible(
            opened.filters, opened.bloom, opened.read, [identifiers(split)[7]],
            documents=SPLITS, path="x",
        )  # fmt: skip
        assert found[split]


def test_a_split_that_cannot_be_read_may_hold_everything(full, tmp_path):
    import shutil

    shutil.copytree(full.log.store.local_path("splits").parent, tmp_path / "copy")
    table = Table.open(tmp_path / "copy", config=ALWAYS)
    victim = sources(table)[1]
    store = table.log.store
    store.put(victim.path, b"\0" * victim.size)
    opened = built(table, **OPTIONS)
    for filters in opened.filters:
        row = possible([filters], opened.bloom, opened.read, ["nobody"], documents=SPLITS, path="x")
        assert row[1]


def test_words_get_no_filter(full):
    with pytest.raises(XRefError, match="'body' gets no bloom filter"):
        built(full, **{"xref.build.bloomFields": "body"})


def test_a_damaged_row_is_found(full):
    opened = built(full, **{"xref.build.bloomFields": "uid"})

    def damaged(start: int, end: int) -> bytes:
        data = bytearray(opened.read(start, end))
        data[5] ^= 1
        return bytes(data)

    with pytest.raises(UnusableXRefError, match="checksum of a block"):
        possible(opened.filters, opened.bloom, damaged, ["x"], documents=SPLITS, path="some.split")


@given(st.lists(st.lists(st.text(max_size=40), max_size=20), min_size=1, max_size=4))
def test_no_value_is_denied(tmp_path_factory, values):
    import io

    folder = tmp_path_factory.mktemp("filters")
    writer = BloomWriter(folder / "f", "key", splits=len(values), values=20, bits=8)
    for number, texts in enumerate(values):
        writer.add(number, hashes(pa.array(texts, pa.string())))
    sink = io.BytesIO()
    section, filters = writer.write(sink, documents=len(values))
    data = sink.getvalue()
    for number, texts in enumerate(values):
        for text in texts:
            found = possible(
                [filters], {section.name: section}, lambda a, b: data[a:b], [text],
                documents=len(values), path="x",
            )  # fmt: skip
            assert found[number]
