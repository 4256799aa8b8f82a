"""An index of which only some bytes were fetched answers as a whole one does.

Blocks are made tiny, nothing is fetched beyond what was named, and what was not fetched is noise:
reading it would be seen.
"""

from __future__ import annotations

import ast
import itertools
import random
import shutil
import signal
import subprocess
import sys
import zlib
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
import sparse_processes
import zstandard
from conftest import configuration, query
from test_rows import Remote
from tiny_blocks import use_tiny_blocks

import indextables
from indextables.config import Config
from indextables.errors import DamagedIndexError, StorageError
from indextables.predicate import Search
from indextables.split.format import blocks
from indextables.split.format.container import Section, read_section
from indextables.split.format.term_dictionary import (
    TermDictionary,
    UnknownDictionaryError,
)
from indextables.split.merge import merge_splits
from indextables.split.open_split import IndexPool, SplitFile, SplitSearcher
from indextables.split.scoring import CombinedSearcher
from indextables.split.search.query import SearchContext, resolve
from indextables.storage.disk_cache import DiskCache
from indextables.storage.local import LocalStore
from indextables.storage.store import read_ranges

ROWS = 1_000
OPTIONS = {
    "indexing.typemap.key": "string",
    "indexing.typemap.ip": "ip",
    "indexing.typemap.fastip": "ip",
    "indexing.typemap.doc": "json",
    "indexing.tokenizer.grams": "ngram(2,3)",
    "indexing.fastfields": "n,fastip",
    "indexing.indexrecordoption.few": "basic",
}
SEARCHES = [
    ("body", "w3"), ("body", "w0"), ("body", "needle"), ("body", "absent"), ("body", "W3 w17 w44"),
    ("body", "+w1 +w2 -w0"), ("body", '"w0 w1"'), ("body", '"w1 w0 w2"'), ("body", '"w0 w2"~2'),
    ("body", '"w0 w1 w2"~3'), ("body", '"w0 w"*'), ("body", '"nee"*'), ("body", '"needle w"*'),
    ("body", "w1*"), ("body", "*7"), ("body", "w?"), ("body", "n*e"), ("body", "*"),
    ("body", "/w[0-3]/"), ("body", "/n.*/"), ("body", "/(w1|w22)/"), ("body", "/.*7/"),
    ("body", "needl~1"), ("body", "w33~2"), ("body", "xyzxyz~2"), ("body", "[w2 TO w3]"),
    ("body", "{w5 TO *}"), ("body", "IN [w1 w2 needle]"), ("body", 'IN ["w0 w1" needle]'),
    ("body", "w3^2 OR needle^0.5"), ("body", "NOT w0"), ("body", "*:*"),
    ("body", "w1 AND (w2 OR (w3 AND NOT w4))"),
    ("key", "k-77"), ("key", "K*"), ("key", "k-1?"), ("key", "[k-1 TO k-2]"), ("key", "k-777~1"),
    ("few", "w3"), ("few", '"w0 w1"'), ("few", "w*"), ("grams", "needle"), ("grams", "ee"),
    ("ip", "10.0.0.7"), ("ip", "10.0.0.0/28"), ("ip", "[10.0.0.1 TO 10.0.0.9]"),
    ("fastip", "10.0.0.7"), ("fastip", "10.0.0.0/28"), ("n", "7"), ("n", "[3 TO 9]"), ("n", "*"),
    ("doc", "w3"), ("doc", '"w0 w1"'), (None, "doc.a:w3"), ("tags", "w5"), ("tags", "w1*"),
    (None, "w7"), (None, "body:needle OR key:k-7 OR n:3"), (None, "w9~1"), (None, '"w0 w1"'),
]  # fmt: skip


def table(rows: int, seed: int) -> pa.Table:
    rng = random.Random(seed)
    words = [f"w{i}" for i in range(60)] + ["naïve", "ß", "x" * 39]
    weights = list(itertools.accumulate(1 / (i + 1) for i in range(len(words))))

    def text(most: int) -> str | None:
        found = rng.choices(words, cum_weights=weights, k=rng.randint(0, most))
        if rng.random() < 0.004:
            found.insert(rng.randint(0, len(found)), "needle")
        return " ".join(found) if rng.random() < 0.95 else None

    return pa.table(
        {
            "body": pa.array([text(20) for _ in range(rows)], pa.string()),
            "key": [f"k-{i * 7 % 1000}" for i in range(rows)],
            "ip": [f"10.0.{i % 3}.{i % 200}" for i in range(rows)],
            "fastip": [f"10.0.{i % 3}.{i % 200}" for i in range(rows)],
            "few": pa.array([text(6) for _ in range(rows)], pa.string()),
            "grams": pa.array([text(2) for _ in range(rows)], pa.string()),
            "doc": [f'{{"a": "{text(4)}", "b": [{i}, "{text(3)}"]}}' for i in range(rows)],
            "tags": pa.array([[text(2), text(2)] for _ in range(rows)], pa.list_(pa.string())),
            "n": pa.array([rng.randint(0, 40) for _ in range(rows)]),
            "id": pa.array(rng.sample(range(10 * rows), rows)),
        }
    )


@pytest.fixture
def tiny(monkeypatch):
    use_tiny_blocks(monkeypatch)


@pytest.fixture
def far(make, tmp_path):
    """A function that opens splits in a store without local files, with an empty cache."""
    folders = itertools.count()

    def open_far(searchers: list[SplitSearcher]) -> list[SplitSearcher]:
        pool = IndexPool(DiskCache(tmp_path / f"cache{next(folders)}", 1 << 30))
        store = Remote(str(tmp_path))
        found = []
        for searcher in searchers:
            near = searcher.split
            opening = [(s.offset, s.offset + s.length) for s in blocks.opening_sections(near.info)]
            split = SplitFile(
                store, near.path, near.size, near.footer_start, near.footer_end,
                opening=(min(opening)[0], max(opening)[1]),
            )  # fmt: skip
            found.append(replace(searcher, split=split, pool=pool))
        return found

    return open_far


def hits(splits: list[SplitSearcher], search: Search) -> set[tuple[int, int, float]]:
    with CombinedSearcher(splits, search, Config()) as combined:
        found = combined.top(20)
    return set(zip(found.splits.tolist(), found.rows.tolist(), found.scores.tolist(), strict=True))


def is_sparse(searcher: SplitSearcher) -> bool:
    ranges = searcher.pool.get(searcher.split).searcher.ranges
    return ranges is not None and not ranges.is_whole


def test_every_kind_of_query_finds_the_same_rows(tiny, make, far):
    whole = make(table(ROWS, 1), OPTIONS)
    assert len(blocks.directories(whole.split.info)) == 4
    (warm,) = far([whole])
    for column, text in SEARCHES:
        search = query(text, column)
        expected = whole.search(search).tolist()
        (cold,) = far([whole])
        assert cold.search(search).tolist() == expected, text
        assert cold.count(search) == whole.count(search), text
        assert warm.search(search).tolist() == expected, text
        assert is_sparse(cold), text


def test_scores_of_several_splits_are_the_same(tiny, make, far):
    whole = [make(table(rows, seed), OPTIONS) for rows, seed in ((300, 1), (50, 2), (150, 3))]
    warm = far(whole)
    for column, text in SEARCHES[::2]:
        search = query(text, column)
        expected = hits(whole, search)
        assert hits(far(whole), search) == expected, text
        assert hits(warm, search) == expected, text


def test_random_queries_on_random_rows(tiny, make, far):
    rng = random.Random(7)
    leaves = [text for column, text in SEARCHES if column == "body" and text != "*:*"]
    for seed in range(3):
        whole = make(table(rng.randint(1, 400), seed), OPTIONS)
        for _ in range(12):
            parts_ = [f"({text})" for text in rng.sample(leaves, 3)]
            text = f"{parts_[0]} {rng.choice(['AND', 'OR'])} {parts_[1]} OR {parts_[2]}"
            (cold,) = far([whole])
            search = query(text, "body")
            assert cold.search(search).tolist() == whole.search(search).tolist(), text
            assert hits([cold], search) == hits([whole], search), text


def test_merged_splits_and_a_table_without_a_column(tiny, make, far, tmp_path):
    sources = [make(table(rows, seed), OPTIONS) for rows, seed in ((300, 1), (200, 2))]
    context = sources[0].context
    written = merge_splits(
        [s.split for s in sources],
        schema=context.schema,
        mapping=context.mapping,
        config=configuration(**OPTIONS),
        partition_values={},
    )
    merged = SplitFile(
        LocalStore(str(tmp_path)), written.path.name, written.size,
        written.footer_start, written.footer_end,
    )  # fmt: skip
    shutil.copy(written.path, tmp_path)
    written.delete()
    assert len(merged.info.segments) == 2
    names = context.schema.names[1:]
    narrow = SearchContext(context.schema.remove(0), context.mapping.select(names))
    whole = replace(sources[0], split=merged, context=narrow)
    for column, text in SEARCHES[-20:]:
        search = query(text.replace("body:needle OR ", ""), column)
        (cold,) = far([whole])
        assert cold.search(search).tolist() == whole.search(search).tolist(), text
        assert is_sparse(cold)


# --- what is fetched ------------------------------------------------------------------------------


def fetched(searcher: SplitSearcher) -> int:
    return sum(end - start for call in searcher.split.store.calls for start, end in call)


def test_a_rare_word_needs_one_request_and_then_one_block(make, far, monkeypatch):
    monkeypatch.setattr(blocks, "_GAP", 0)
    whole = make(table(20_000, 5), OPTIONS)
    (cold,) = far([whole])
    search = query("needle", "body")
    assert cold.search(search).tolist() == whole.search(search).tolist()
    first, second = cold.split.store.calls  # the opening with the footer; the postings
    assert len(first) == 2 and len(second) == 1
    assert sum(end - start for start, end in second) < 3 * blocks.BLOCK
    cold.split.store.calls.clear()
    assert cold.search(search).tolist() == whole.search(search).tolist()
    assert not cold.split.store.calls


def test_the_dictionary_of_another_column_is_not_fetched(make, far, monkeypatch):
    monkeypatch.setattr(blocks, "_GAP", 0)
    rng = random.Random(1)
    keys = [rng.randbytes(16).hex() for _ in range(20_000)]
    rows = pa.table({"key": keys, "body": [f"row w{i % 50}" for i in range(20_000)]})
    whole = make(rows, {"indexing.typemap.key": "string"})
    (cold,) = far([whole])
    assert len(cold.search(query("w7", "body"))) == 400
    (segment,) = cold.pool.get(cold.split).searcher.ranges.splits[0].segments
    terms = segment.files[blocks.TERMS]
    assert terms.copy.present < len(terms.all_blocks) / 10
    assert cold.search(query(keys[77], "key")).tolist() == [77]
    assert terms.copy.is_whole


def test_another_process_finds_what_was_fetched(make, far):
    whole = make(table(5_000, 5), OPTIONS)
    (cold,) = far([whole])
    search = query('"w1 w2"', "body")
    cold.search(search)
    cold.split.store.calls.clear()
    again = replace(
        cold, split=replace(cold.split), pool=IndexPool(DiskCache(cold.pool.cache.folder, 1 << 30))
    )
    assert again.search(search).tolist() == whole.search(search).tolist()
    assert not cold.split.store.calls


def test_prewarm_makes_a_copy_whole(make, far):
    (cold,) = far([make(table(5_000, 5), OPTIONS)])
    cold.search(query("needle", "body"))
    assert is_sparse(cold)
    cold.pool.prewarm(cold.split)
    assert not is_sparse(cold)
    cold.split.store.calls.clear()
    cold.search(query("w1*", "body"))
    assert not cold.split.store.calls


def test_norms_are_fetched_for_scores_only(tiny, make, far):
    (cold,) = far([make(table(500, 5), OPTIONS)])
    search = query("w5", "body")
    cold.search(search)
    before = fetched(cold)
    (norms,) = (
        f for s in cold.pool.get(cold.split).searcher.ranges.splits[0].segments
        for suffix, f in s.files.items() if suffix == blocks.NORMS
    )  # fmt: skip
    assert not norms.copy.present
    cold.source().index.searcher.hits(cold.source().compiler.compile(_bound(cold, search)), 5)
    assert norms.copy.present
    assert fetched(cold) > before


def _bound(searcher, search):
    context = searcher.context
    return searcher.bound(resolve(search, context.mapping, context.schema))


def test_half_of_a_file_brings_the_rest(make, far, monkeypatch):
    monkeypatch.setattr(blocks, "_GAP", 0)
    monkeypatch.setattr(blocks, "BLOCK", 256)
    monkeypatch.setattr(blocks, "_SMALL", 0)
    (cold,) = far([make(table(2_000, 5).select(["body", "n"]), {})])
    cold.search(query("/w.*/", "body"))
    (segment,) = cold.pool.get(cold.split).searcher.ranges.splits[0].segments
    assert segment.files[blocks.POSTINGS].copy.is_whole


# --- damage and unusual stores --------------------------------------------------------------------


def test_damaged_blocks_are_found_and_fetched_again(tiny, make, far):
    whole = make(table(400, 5), OPTIONS)
    (cold,) = far([whole])
    search = query('"w1 w2" OR needle', "body")
    cold.search(search)
    for copy in Path(cold.pool.cache.folder).rglob("*.sparse"):
        data = bytearray(copy.read_bytes())
        for at in range(0, len(data), 50):
            data[at] ^= 0x55
        copy.write_bytes(data)
    again = replace(
        cold, split=replace(cold.split), pool=IndexPool(DiskCache(cold.pool.cache.folder, 1 << 30))
    )
    assert again.search(search).tolist() == whole.search(search).tolist()


def test_a_damaged_block_of_the_split_is_named_and_the_rows_answer(tiny, make, far, tmp_path):
    whole = make(table(400, 5), OPTIONS)
    search = query("w1", "body")
    expected = whole.search(search).tolist()
    sections = [s for s in whole.split.info.sections if s.name.endswith(".idx")]
    section = next(s for s in sections if s.kind == "index")
    file = tmp_path / whole.split.path
    data = bytearray(file.read_bytes())
    for at in range(section.offset, section.offset + section.length, 20):
        data[at] ^= 0x10
    file.write_bytes(data)
    (cold,) = far([whole])
    with pytest.warns(UserWarning, match="idx cannot be read"):
        assert cold.search(search).tolist() == expected


def test_a_block_that_claims_to_be_large_is_not_unpacked(tmp_path):
    content = b"x" * 1_000
    section = Section("index", "a.idx", 0, 0, len(content), zlib.crc32(content))
    directory = blocks.BlockDirectory(
        section, 16_384, np.zeros(1, np.uint32), (zlib.crc32(content),), ()
    )
    unpacker = zstandard.ZstdDecompressor()
    assert directory.content(0, zstandard.compress(content), unpacker, path="p") == content
    with pytest.raises(DamagedIndexError, match="claims to be larger"):
        directory.content(0, zstandard.compress(bytes(64 << 20)), unpacker, path="p")


def test_an_evicted_copy_is_made_again(tiny, make, far):
    whole = make(table(400, 5), OPTIONS)
    (cold,) = far([whole])
    cold.search(query("w1", "body"))
    shutil.rmtree(next(Path(cold.pool.cache.folder).glob("copies-*")))
    for text in ("w2", '"w0 w1"', "w1"):
        search = query(text, "body")
        assert cold.search(search).tolist() == whole.search(search).tolist(), text
    assert is_sparse(cold)


def test_a_full_disk_is_no_wrong_answer(tiny, make, far, monkeypatch):
    import errno
    import os

    whole = make(table(400, 5), OPTIONS)
    (cold,) = far([whole])
    cold.search(query("w1", "body"))
    write, full = os.pwrite, cold.pool.cache.folder

    def failing(file, data, at):
        if str(Path(f"/proc/self/fd/{file}").readlink()).startswith(str(full)):
            raise OSError(errno.ENOSPC, "No space left on device")
        return write(file, data, at)

    monkeypatch.setattr(os, "pwrite", failing)
    search = query("w2", "body")
    with pytest.warns(RuntimeWarning, match="Using"):
        assert cold.search(search).tolist() == whole.search(search).tolist()


def test_short_and_missing_answers_are_errors_and_leave_nothing(tiny, make, far, monkeypatch):
    whole = make(table(400, 5), OPTIONS)
    (cold,) = far([whole])
    search = query("w2", "body")
    cold.search(query("w1", "body"))
    read = Remote.get_ranges

    def short(self, path, wanted):
        return read_ranges(
            wanted, lambda some: [d[:-1] for d in read(self, path, some)], shown=path
        )

    monkeypatch.setattr(Remote, "get_ranges", short)
    with pytest.raises(StorageError, match="ends before"):
        cold.search(search)
    monkeypatch.setattr(Remote, "get_ranges", read)
    assert cold.search(search).tolist() == whole.search(search).tolist()


def test_processes_fill_one_copy_and_one_is_killed(make, tmp_path, monkeypatch):
    monkeypatch.setattr(blocks, "_SMALL", 0)
    monkeypatch.setattr(blocks, "BLOCK", 200)
    whole = make(table(1_500, 5).select(["body", "n"]), {})
    expected = [whole.search(query(text, "body")).tolist() for text in sparse_processes.SEARCHES]
    script, file = Path(sparse_processes.__file__), tmp_path / whole.split.path

    def start(writes: int) -> subprocess.Popen:
        arguments = [str(script), str(file), str(tmp_path / "shared"), str(writes)]
        return subprocess.Popen([sys.executable, *arguments], stdout=subprocess.PIPE, text=True)

    killed = start(9)
    killed.communicate(timeout=300)
    assert killed.returncode == -signal.SIGKILL
    running = [start(0), start(0)]
    for process in running:
        assert ast.literal_eval(process.communicate(timeout=300)[0]) == expected
    assert sparse_processes.search_all(file, tmp_path / "shared") == expected
    assert list((tmp_path / "shared").rglob("*.sparse"))


# --- the dictionary -------------------------------------------------------------------------------


def terms_of(searcher: SplitSearcher) -> bytes:
    section = next(s for s in searcher.split.info.sections if s.name.endswith(".term"))
    store, path = searcher.split.store, searcher.split.path
    return read_section(lambda a, b: store.get_range(path, a, b), section, path=path)


def test_every_word_is_found_where_it_is(make):
    rng = random.Random(3)
    alphabets = ["abc", "te/oasripcnw.hlm-du012g=:bf3y5&_4v9678k%?xCDASFIBEjPTzRNM+LOqHG,YK~"]
    alphabets += ["".join(map(chr, range(1, 256))), "".join(map(chr, range(0x400, 0x9FF)))]
    for alphabet in alphabets:
        words = sorted(
            {"".join(rng.choices(alphabet, k=rng.randint(1, 5))) for _ in range(1_500)},
            key=str.encode,
        )
        searcher = make(pa.table({"key": words}), {"indexing.typemap.key": "string"})
        terms = TermDictionary(terms_of(searcher)).field(2)  # after _row and _level
        assert terms.count == len(words)
        for place, word in enumerate(words):
            assert terms.term(word.encode()) == terms.info(place)
            assert terms.term(word.encode() + b"\xff") is None
        for word in rng.sample(words, 100):
            prefix = word.encode()[: rng.randint(0, 3)]
            places = [n for n, w in enumerate(words) if w.encode().startswith(prefix)]
            assert terms.beginning(prefix) == terms._between(places[0], places[-1])


def test_wrong_bytes_of_a_dictionary_are_an_error_or_stay_inside(make):
    searcher = make(table(200, 1), OPTIONS)
    data, rng = terms_of(searcher), random.Random(4)
    for _ in range(400):
        wrong = bytearray(data)
        for _ in range(rng.randint(1, 4)):
            at = rng.choice([rng.randrange(len(data)), len(data) - 1 - rng.randrange(400)])
            wrong[at] = rng.randrange(256)
        if rng.random() < 0.2:
            del wrong[rng.randrange(len(wrong)) :]
        try:
            dictionary = TermDictionary(bytes(wrong))
            for number in range(12):
                terms = dictionary.field(number)
                for word in (b"w1", b"", b"needle", b"k-7"):
                    if terms is not None:
                        terms.term(word)
                        terms.beginning(word)
        except UnknownDictionaryError:
            pass


def test_an_unknown_dictionary_means_a_whole_copy(tiny, make, far, monkeypatch):
    whole = make(table(300, 1), OPTIONS)
    search = query("w3", "body")

    def unknown(self, number):
        raise UnknownDictionaryError("made by another version")

    monkeypatch.setattr(TermDictionary, "field", unknown)
    (cold,) = far([whole])
    assert cold.search(search).tolist() == whole.search(search).tolist()
    assert not is_sparse(cold)


def test_a_file_of_another_version_is_copied_whole(monkeypatch, make, far):
    monkeypatch.setattr("indextables.split.format.term_dictionary.INDEX_FORMAT", 8)
    monkeypatch.setattr(blocks, "_SMALL", 0)
    searcher = make(table(200, 1), OPTIONS)
    assert not blocks.directories(searcher.split.info)
    (cold,) = far([searcher])
    found = cold.search(query("w0", "body")).tolist()
    assert found == searcher.search(query("w0", "body")).tolist() != []
    assert cold.pool.get(cold.split).searcher.ranges is None


def test_queries_are_built_in_one_place():
    """Everything else of the package would have to name what it reads as well."""
    root = Path(indextables.__file__).parent
    allowed = {"split/search/engine.py", "xref/open_xref.py", "predicate/search_syntax.py"}
    harmless = {"all_query", "empty_query", "boolean_query"}
    for file in root.rglob("*.py"):
        name = file.relative_to(root).as_posix()
        for node in ast.walk(ast.parse(file.read_text())):
            made = isinstance(node, ast.Attribute) and ast.unparse(node.value) == "tantivy.Query"
            assert not made or name in allowed or node.attr in harmless, f"{name}: {node.attr}"
