"""Ranked full-text search, beside Lance's full-text index and bare Tantivy.

All three hold the same rows in one index with positions and are asked the same queries warm: the
ten best rows with two columns. Tantivy alone gives row numbers; it is the floor. Lance is the
quicker one at this: its index is one structure for the table, and it breaks ties as they come.
Ours gives the same rows and scores whatever the layout, which means reading rows that tie.
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
from lance.query import BooleanQuery, MatchQuery, Occur, PhraseQuery

from benchmarks.log_rows import COMMON, NEEDLE, SCHEMA, batches
from benchmarks.measure import Result, Time, race
from indextables import Table

ROWS = 1_000_000
COLUMNS = ["id", "message"]
TOP = 10


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
        words = [w for w in data["message"][0].as_py().split() if w != COMMON][:2]
        yield from _queries(ours, theirs, bare, data, words)


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


def _queries(
    ours: Table, theirs: Any, bare: tantivy.Index, data: pa.Table, words: list[str]
) -> Iterator[Result]:
    one, two = words
    both = BooleanQuery(
        [(Occur.MUST, MatchQuery(one, "message")), (Occur.MUST, MatchQuery(two, "message"))]
    )
    for what, bar, query, lances in [
        ("a rare word", 6, NEEDLE, MatchQuery(NEEDLE, "message")),
        ("a word of every fifth row", 30, COMMON, MatchQuery(COMMON, "message")),
        ("two words, both", 6, f"{one} AND {two}", both),
        ("a phrase", 6, f'"{one} {two}"', PhraseQuery(f"{one} {two}", "message")),
    ]:
        works: list[Callable[[], Any]] = [
            partial(ours.search, query, fields=["message"], columns=COLUMNS, limit=TOP),
            partial(
                theirs.to_table, full_text_query=lances, columns=[*COLUMNS, "_score"], limit=TOP
            ),
            partial(_top, bare, query, data),
        ]
        counts = {work().num_rows for work in works}
        assert len(counts) == 1, (what, counts)
        our_time, lance_time, floor = race(15, *works)
        yield Result(
            f"The {TOP} best rows for {what}, against Lance",
            our_time.seconds / lance_time.seconds, bar, "at most",
            _how(our_time, lance_time, floor),
        )  # fmt: skip


def _how(ours: Time, theirs: Time, floor: Time) -> str:
    return f"search {ours} / Lance {theirs}; bare Tantivy and take from memory {floor}"


def _top(index: tantivy.Index, query: str, data: pa.Table) -> pa.Table:
    searcher = index.searcher()
    parsed = index.parse_query(query, ["message"])
    hits = searcher.search(parsed, TOP).hits
    found = np.fromiter((address.doc for _, address in hits), np.int64, len(hits))
    return data.select(COLUMNS).take(found)
