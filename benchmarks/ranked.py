"""Ranked full-text search, beside Lance's full-text index and bare Tantivy.

All three hold the same rows in one index with positions and are asked the same queries warm: the
ten best rows with two columns. Tantivy alone gives row numbers and takes rows from memory; what its
search takes, without parsing and without rows, is the least that a caller can take, and what zstd
takes for one page around each hit is the least for texts in Parquet. Lance breaks ties as they
come; ours gives the same rows whatever the layout. Processor time counts. `id` alone is asked for
as well: what is left without decoding texts.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import lance
import numpy as np
import pyarrow as pa
import tantivy
import zstandard
from lance.query import BooleanQuery, MatchQuery, Occur, PhraseQuery

from benchmarks.log_rows import COMMON, NEEDLE, SCHEMA, batches, word_in
from benchmarks.measure import Result, Time, race
from indextables import Table
from indextables.split.write.writer import PAGE_BYTES

ROWS = 1_000_000
COLUMNS = ["id", "message"]
TOP = 10
_TURNS = 50
_AROUND = 500
"""More rows than a page has, before and after a hit."""


def run(scale: float = 1.0) -> Iterator[Result]:
    rows = max(10_000, int(ROWS * scale))
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        data = pa.Table.from_batches(list(batches(rows, needle_every=rows // 10)))
        ours = Table.create(
            root / "table", SCHEMA, config={"spark.indextables.cache.disk.path": str(root / "c")}
        )
        ours_time, theirs_time = race(
            1, partial(ours.append, data), partial(_write_lance, root / "lance", data)
        )
        yield Result(
            f"Writing {rows:,} rows with three searched columns, against Lance with one",
            ours_time.seconds / theirs_time.seconds, 3, "at most",
            f"append {ours_time} / Lance with an index on `message` {theirs_time}",
        )  # fmt: skip
        theirs = lance.dataset(root / "lance")
        bare = _bare(root / "bare", data)
        yield from _queries(ours, theirs, bare, data)
        yield _new_words(ours, theirs)
        yield from _first_search(root, rows // 4)


def _write_lance(place: Path, data: pa.Table) -> None:
    made = lance.write_dataset(data, str(place))
    made.create_scalar_index("message", index_type="INVERTED", with_position=True, stem=False,
                             remove_stop_words=False)  # fmt: skip


def _bare(place: Path, data: pa.Table) -> tantivy.Index:
    place.mkdir()
    builder = tantivy.SchemaBuilder()
    builder.add_text_field("message", index_option="position")
    index = tantivy.Index(builder.build(), path=str(place))
    writer = index.writer(heap_size=1_000_000_000, num_threads=1)
    for text in data["message"].to_pylist():
        writer.add_document(tantivy.Document(message=text))
    writer.commit()
    writer.wait_merging_threads()
    index.reload()
    return index


def _queries(ours: Table, theirs: Any, bare: tantivy.Index, data: pa.Table) -> Iterator[Result]:
    first = [w for w in data["message"][0].as_py().split() if w != COMMON]
    rare, some, often = word_in(0.001), word_in(0.01), word_in(0.05)
    many = [word_in(0.0005 * n) for n in range(1, 16)]
    for what, query, lances in [
        ("a rare word", NEEDLE, _match(NEEDLE)),
        ("a word of 0.1 % of the rows", rare, _match(rare)),
        ("a word of 5 % of the rows", often, _match(often)),
        ("a word of every fifth row", COMMON, _match(COMMON)),
        ("one of two words", f"{rare} OR {some}", _match(f"{rare} {some}")),
        ("two words, both", f"{often} AND {COMMON}", _all(often, COMMON)),
        ("a phrase", f'"{first[0]} {first[1]}"', PhraseQuery(" ".join(first[:2]), "message")),
        ("a fuzzy word", f"{NEEDLE}~1", MatchQuery(NEEDLE, "message", fuzziness=1)),
        ("one of fifteen words", " OR ".join(many), _match(" ".join(many))),
    ]:
        searcher, parsed = bare.searcher(), _parsed(bare, query)
        for columns in (COLUMNS, COLUMNS[:1]):
            works: list[Callable[[], Any]] = [
                partial(ours.search, query, fields=["message"], columns=columns, limit=TOP),
                partial(
                    theirs.to_table, full_text_query=lances, columns=[*columns, "_score"], limit=TOP
                ),
                partial(_top, bare, query, data, columns),
            ]
            counts = {work().num_rows for work in works}
            assert len(counts) == 1, (what, counts)
            alone = partial(searcher.search, parsed, TOP, count=False)
            pages = _pages(data, alone().hits) if columns == COLUMNS else []
            times = race(_TURNS, *works, alone, partial(_unpack, pages))
            yield Result(
                f"The {TOP} best rows for {what}, {' and '.join(columns)}, against Lance",
                times[0].cpu / times[1].cpu, 1.5, "at most", _how(*times),
            )  # fmt: skip


def _new_words(ours: Table, theirs: Any) -> Result:
    """Words that nobody asked for before, so nothing is prepared and no texts are in memory."""
    words = list(dict.fromkeys(word_in(0.04 / n) for n in range(30, 400)))
    works = [
        lambda: [ours.search(w, fields=["message"], columns=COLUMNS, limit=TOP) for w in words],
        lambda: [
            theirs.to_table(full_text_query=_match(w), columns=[*COLUMNS, "_score"], limit=TOP)
            for w in words
        ],
    ]
    mine, lances = race(1, *works)
    return Result(
        f"The {TOP} best rows for {len(words)} words, each asked once, id and message, against "
        "Lance",
        mine.cpu / lances.cpu, 1.5, "at most",
        f"all searches {mine} / Lance {lances}",
    )  # fmt: skip


def _match(words: str) -> MatchQuery:
    return MatchQuery(words, "message")


def _all(*words: str) -> BooleanQuery:
    return BooleanQuery([(Occur.MUST, _match(word)) for word in words])


def _first_search(root: Path, rows: int) -> Iterator[Result]:
    """The README's first search over eight columns, six of them texts of 160,000 words."""
    random = np.random.default_rng(3)
    words = np.array([word_in(0.05 / n) for n in range(1, 2_001)])
    columns: dict[str, Any] = {"id": np.arange(rows), "n": random.integers(0, 9, rows)}
    for number in range(6):
        drawn = [
            np.char.add(random.choice(words, rows), random.integers(0, 80, rows).astype(str))
            for _ in range(6)
        ]
        if number == 0:
            drawn[2][::100] = "machine learning"
            drawn[4][::20] = "spark"
        columns[f"text{number}"] = [" ".join(row) for row in zip(*drawn, strict=True)]
    data = pa.table(columns)
    table = Table.create(
        root / "eight", data.schema, config={"spark.indextables.cache.disk.path": str(root / "c")}
    )
    table.append(data)
    search = partial(table.search, '"machine learning" AND spark~1', limit=TOP)
    assert search().num_rows == TOP
    (time,) = race(5, search)
    yield Result(
        f"The README's first search, {rows:,} rows of eight columns, seconds of processor",
        time.cpu, 0.1, "at most", str(time),
    )  # fmt: skip


def _how(ours: Time, theirs: Time, taken: Time, alone: Time, unpacked: Time) -> str:
    return (
        f"search {ours} / Lance {theirs}; bare Tantivy and take from memory {taken}, its search "
        f"alone {alone}, zstd alone for the pages of the texts {unpacked}"
    )


def _pages(data: pa.Table, hits: list[Any]) -> list[bytes]:
    """A page of texts around each hit, as Parquet compresses it."""
    texts, packed = data["message"], []
    for _, address in hits:
        page = texts.slice(max(0, address.doc - _AROUND), 2 * _AROUND)
        packed.append(zstandard.compress("".join(page.to_pylist()).encode()[:PAGE_BYTES], 1))
    return packed


def _unpack(pages: list[bytes]) -> None:
    for page in pages:
        zstandard.decompress(page)


def _top(index: tantivy.Index, query: str, data: pa.Table, columns: list[str]) -> pa.Table:
    hits = index.searcher().search(_parsed(index, query), TOP, count=False).hits
    found = np.fromiter((address.doc for _, address in hits), np.int64, len(hits))
    return data.select(columns).take(found)


def _parsed(index: tantivy.Index, query: str) -> tantivy.Query:
    if query.endswith("~1"):
        return tantivy.Query.fuzzy_term_query(index.schema, "message", query[:-2], distance=1)
    return index.parse_query(query, ["message"])
