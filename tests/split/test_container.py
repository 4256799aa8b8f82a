"""Damage of every kind: a named error with the path, or the index ignored and the rows scanned."""

from __future__ import annotations

import tracemalloc
import warnings
import zlib
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard
from conftest import query

from indextables.errors import (
    DamagedIndexError,
    DamagedSplitError,
    ForeignSplitError,
    IndexTablesError,
    ObjectNotFoundError,
)
from indextables.split import open_split
from indextables.split.format.container import (
    INFO_KEY,
    Section,
    SplitInfo,
    read_footer,
    read_section,
)
from indextables.split.open_split import IndexPool, SplitFile, SplitSearcher
from indextables.storage.disk_cache import DiskCache

ROWS = 2_000
TABLE = pa.table(
    {
        "id": range(ROWS),
        "body": [f"row {i} w{i % 97} {'even' if i % 2 == 0 else ''}" for i in range(ROWS)],
    }
)
SEARCH = query("w5 AND even", "body")
EXPECTED = [i for i in range(ROWS) if i % 97 == 5 and i % 2 == 0]


def file_of(searcher: SplitSearcher) -> Path:
    path = searcher.split.store.local_path(searcher.split.path)
    assert path is not None
    return path


def reopened(searcher: SplitSearcher, tmp_path: Path, **changes: object) -> SplitSearcher:
    """The same split with nothing remembered."""
    split = searcher.split
    size = file_of(searcher).stat().st_size
    fresh = SplitFile(split.store, split.path, size, split.footer_start, split.footer_end)
    pool = IndexPool(DiskCache(tmp_path / "fresh", 1 << 28))
    return replace(searcher, split=replace(fresh, **changes), pool=pool)


def flip(path: Path, offset: int) -> None:
    data = bytearray(path.read_bytes())
    data[offset] ^= 0x5A
    path.write_bytes(data)


def test_an_intact_split_is_found_without_offsets_too(make, tmp_path):
    searcher = make(TABLE)
    assert reopened(searcher, tmp_path).search(SEARCH).tolist() == EXPECTED
    blind = reopened(searcher, tmp_path, footer_start=None, footer_end=None)
    assert blind.search(SEARCH).tolist() == EXPECTED
    assert blind.split.footer.start == searcher.split.footer_start


def test_the_footer_takes_one_request(make):
    searcher = make(TABLE)
    data = file_of(searcher).read_bytes()
    requests = []

    def read(start: int, end: int) -> bytes:
        requests.append((start, end))
        return data[start:end]

    split = searcher.split
    read_footer(read, split.size, path="x", start=split.footer_start, end=split.footer_end)
    assert requests == [(split.footer_start, split.footer_end)]


def test_a_footer_that_is_longer_than_the_first_guess_is_found(make, monkeypatch):
    from indextables.split.format import container

    searcher = make(TABLE)
    monkeypatch.setattr(container, "_FIRST_GUESS", 64)
    data = file_of(searcher).read_bytes()
    footer = read_footer(lambda a, b: data[a:b], len(data), path="x")
    assert footer.info.rows == ROWS


def test_every_index_file_is_checked_and_the_rows_answer_instead(make, tmp_path):
    searcher = make(TABLE)
    path = file_of(searcher)
    original = path.read_bytes()
    for number, section in enumerate(searcher.split.info.index_sections()):
        path.write_bytes(original)
        flip(path, section.offset + section.length // 2)
        damaged = reopened(searcher, tmp_path / str(number))
        with pytest.raises(DamagedIndexError, match=searcher.split.path):
            damaged.source()
        with pytest.warns(UserWarning, match="rows are scanned instead"):
            assert damaged.search(SEARCH).tolist() == EXPECTED
        with pytest.warns(UserWarning, match="rows are scanned instead"):
            assert damaged.count(SEARCH) == len(EXPECTED)


def test_a_damaged_index_is_built_anew_for_scores(make, tmp_path):
    from indextables.config import Config
    from indextables.split.scoring import CombinedSearcher

    searcher = make(TABLE)
    with CombinedSearcher([searcher], SEARCH, Config()) as combined:
        expected = combined.top(5)
    flip(file_of(searcher), searcher.split.info.index_sections()[2].offset)
    damaged = reopened(searcher, tmp_path)
    with (
        pytest.warns(UserWarning, match="indexed again"),
        CombinedSearcher([damaged], SEARCH, Config()) as combined,
    ):
        hits = combined.top(5)
    assert hits.rows.tolist() == expected.rows.tolist()
    assert hits.scores.tolist() == expected.scores.tolist()


def test_a_damaged_term_list_is_named(make, tmp_path):
    searcher = make(TABLE)
    (section,) = (s for s in searcher.split.info.sections if s.kind == "terms")
    assert "even" in searcher.split.terms("body").to_pylist()
    flip(file_of(searcher), section.offset + 9)
    with pytest.raises(DamagedIndexError, match="checksum of f0"):
        reopened(searcher, tmp_path).split.terms("body")


def test_damaged_rows_are_never_served(make, tmp_path):
    searcher = make(TABLE)
    path = file_of(searcher)
    original = path.read_bytes()
    first_section = min(s.offset for s in searcher.split.info.sections)
    rng = np.random.default_rng(1)
    for offset in rng.integers(4, first_section, 40).tolist():
        path.write_bytes(original)
        flip(path, offset)
        damaged = reopened(searcher, tmp_path)
        try:
            table = damaged.read_rows(np.arange(ROWS), TABLE.schema.names)
        except DamagedSplitError as error:
            assert searcher.split.path in str(error)
        else:
            assert table.equals(TABLE), offset


def test_every_damage_of_the_footer_is_found(make, tmp_path):
    searcher = make(TABLE)
    path = file_of(searcher)
    original = path.read_bytes()
    start = searcher.split.footer_start
    offsets = np.linspace(start, len(original) - 1, 60).astype(int).tolist()
    for offset in offsets:
        path.write_bytes(original)
        flip(path, offset)
        with pytest.raises(DamagedSplitError, match=searcher.split.path):
            _ = reopened(searcher, tmp_path).split.footer


@pytest.mark.parametrize("keep", [0, 3, 10, 1_000, 0.5, 0.99])
def test_a_truncated_split_is_named(make, tmp_path, keep):
    searcher = make(TABLE)
    path = file_of(searcher)
    data = path.read_bytes()
    path.write_bytes(data[: keep if isinstance(keep, int) else int(len(data) * keep)])
    with pytest.raises(DamagedSplitError, match=searcher.split.path):
        _ = reopened(searcher, tmp_path, footer_start=None).split.footer


def test_a_split_that_is_gone_is_named(make, tmp_path):
    searcher = make(TABLE)
    _ = searcher.split.footer
    file_of(searcher).unlink()
    with pytest.raises(ObjectNotFoundError, match=searcher.split.path):
        searcher.split.rows.read_column("id")
    with pytest.raises(IndexTablesError, match=searcher.split.path):
        _ = replace(searcher.split).footer


def test_a_bundle_of_the_scala_product_is_named(make, tmp_path):
    searcher = make(TABLE)
    file_of(searcher).write_bytes(b"\x01\x02 a Quickwit bundle" * 100)
    with pytest.raises(ForeignSplitError, match="written by the Scala product"):
        _ = reopened(searcher, tmp_path).split.footer


def test_a_plain_parquet_file_is_no_split(tmp_path, make):
    searcher = make(TABLE)
    pq.write_table(TABLE, file_of(searcher))
    with pytest.raises(DamagedSplitError, match="seal"):
        _ = reopened(searcher, tmp_path).split.footer


EVIL = ["../evil", "a/b", ".hidden", "", "a\0b", "/etc/passwd"]


@pytest.mark.parametrize("name", EVIL)
def test_names_and_places_of_sections_are_checked(make, name):
    info = make(TABLE).split.info
    from indextables.split.format.container import _check_sections

    _check_sections(info, limit=10**9, path="x")
    for section in (
        replace(info.sections[0], name=name),
        replace(info.sections[0], offset=10**9),
        replace(info.sections[0], length=-5),
        replace(info.sections[0], size=1 << 60),
        replace(info.sections[0], codec="exec"),
    ):
        with pytest.raises(DamagedSplitError, match="impossible"):
            _check_sections(replace(info, sections=(section,)), limit=10**6, path="x")


def test_a_section_that_expands_to_more_than_it_says_is_refused():
    import zstandard

    bomb = zstandard.compress(b"\0" * 10_000_000)
    section = Section("index", "x", 0, len(bomb), 10, 0, "zstd")
    with pytest.raises(DamagedIndexError, match="checksum of x"):
        read_section(lambda a, b: bomb[a:b], section, path="p")


def test_the_description_survives_its_json(make):
    info = make(TABLE).split.info
    assert SplitInfo.from_json(info.to_json(), path="x") == info
    newer = orjson.loads(info.to_json()) | {"version": 99}
    with pytest.raises(DamagedSplitError, match="newer than this release"):
        SplitInfo.from_json(orjson.dumps(newer), path="x")
    with pytest.raises(DamagedSplitError, match="cannot be read"):
        SplitInfo.from_json(b"{}", path="x")


def test_other_readers_see_the_description(make):
    searcher = make(TABLE)
    metadata = pq.read_metadata(file_of(searcher)).metadata
    assert orjson.loads(metadata[INFO_KEY])["rows"] == ROWS


def test_a_cache_folder_that_cannot_be_written_is_replaced(make, tmp_path):
    searcher = make(TABLE)
    blocked = tmp_path / "file"
    blocked.write_text("in the way")
    pool = IndexPool(DiskCache(blocked / "cache", 1 << 28))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert replace(searcher, pool=pool).search(SEARCH).tolist() == EXPECTED


# --- expansion -----------------------------------------------------------------------------------


def peak_of(work) -> int:
    tracemalloc.start()
    try:
        with pytest.raises(DamagedIndexError):
            work()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(("size", "claimed"), [(1 << 20, 8 << 30), (100 << 20, 1 << 20)])
def test_a_section_takes_no_memory_for_what_it_claims_or_hides(size, claimed):
    """One claims far more than it holds, one holds far more than it claims."""
    data = zstandard.compress(bytes(size), 3)
    section = Section("index", "a", 0, len(data), claimed, 0, "zstd")
    assert peak_of(lambda: read_section(lambda a, b: data[a:b], section, path="x")) < 8 << 20


def test_a_section_of_zeros_that_is_honest_is_refused_before_it_grows():
    content = bytes(65 << 20)
    data = zstandard.compress(content, 3)
    section = Section("index", "a", 0, len(data), len(content), zlib.crc32(content), "zstd")
    assert peak_of(lambda: read_section(lambda a, b: data[a:b], section, path="x")) < 1 << 20


def test_pages_that_claim_more_than_the_footer_are_refused(make, monkeypatch):
    split = make(TABLE).split
    chunks = split.footer.chunks([0], ["body"])
    data = (Path(split.store.uri) / split.path).read_bytes()
    read = lambda at, length: data[at : at + length]  # noqa: E731
    split.footer.check_pages(read, chunks, path="x")
    chunk = replace(chunks[0], parquet=SimpleNamespace(total_uncompressed_size=10))
    with pytest.raises(DamagedSplitError, match="claim"):
        split.footer.check_pages(read, [chunk], path="x")


def test_of_many_opened_splits_the_last_are_remembered(make, monkeypatch):
    monkeypatch.setattr(open_split, "_REMEMBERED", 2)
    open_split._opened.clear()
    splits = [make(pa.table({"body": [f"w{n}"]})) for n in range(3)]
    for number in (0, 1, 0, 2):
        searcher = splits[number]
        searcher.pool.folder(searcher.split)
    known = [open_split.was_opened(s.split.store, s.split.path) for s in splits]
    assert known == [True, False, True]
    assert len(open_split._opened) == 2
