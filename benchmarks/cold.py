"""Searches straight on object storage with nothing cached, counted beside Lance.

Ten splits of 200,000 log rows lie on an S3 server, and Lance has the same rows in ten fragments
with one full-text index. A proxy counts requests and bytes of answers; opening the table is part of
a cold search. Every cold search begins with an empty cache and a table that is opened anew. The
needle is a word of one row in each split, so no split can be left out. Without Lance (the extra
`bench`) only ours is counted.
"""

from __future__ import annotations

import itertools
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from benchmarks.counting import Traffic, counted
from benchmarks.log_rows import COMMON, NEEDLE, SCHEMA, batches
from benchmarks.measure import Result
from benchmarks.peers import s3_server
from indextables import Table

try:
    import lance
    from lance.query import MatchQuery, PhraseQuery
except ImportError:
    lance = None

SPLITS = 10
ROWS = 200_000
COLUMNS = ["id", "message"]


def run(scale: float = 1.0) -> Iterator[Result]:
    rows = max(10_000, int(ROWS * scale))
    with (
        s3_server() as (uri, direct),
        counted(direct) as (options, traffic),
        tempfile.TemporaryDirectory() as folder,
    ):
        caches = (f"{folder}/cache{n}" for n in itertools.count())
        phrase = _write(uri, direct, rows, next(caches))
        ours = partial(_open, f"{uri}/table", options, caches)
        theirs = partial(_open_lance, f"{uri}/lance", options)
        yield from _searches(ours, theirs, traffic, phrase)
        yield from _ranked(ours, theirs, traffic)
        yield from _rows(ours, theirs, traffic, rows)


def _write(uri: str, options: dict[str, str], rows: int, cache: str) -> str:
    """Write both tables; returns two words that follow each other in few rows."""
    config = {"spark.indextables.cache.disk.path": cache}
    table = Table.create(f"{uri}/table", SCHEMA, config=config, storage_options=options)
    for number in range(SPLITS):
        data = pa.Table.from_batches(list(batches(rows, start=number * rows, needle_every=rows)))
        table.append(data)
        if lance is not None:
            mode = "append" if number else "create"
            lance.write_dataset(data, f"{uri}/lance", mode=mode, storage_options=options)
    if lance is not None:
        made = lance.dataset(f"{uri}/lance", storage_options=options)
        made.create_scalar_index("message", index_type="INVERTED", with_position=True, stem=False,
                                 remove_stop_words=False)  # fmt: skip
    return _phrase(data["message"])


def _phrase(messages: Any) -> str:
    """Two words that follow each other in one or two of these rows, as frequent as can be."""
    pairs = {pair for text in messages[:200].to_pylist() for pair in pairwise(text.split())}
    for one, two in sorted(pairs, key=lambda pair: (len(pair[0]) + len(pair[1]), pair)):
        count: Any = pc.sum(pc.match_substring(messages, f" {one} {two} "))
        if count.as_py() in (1, 2) and not {COMMON, NEEDLE} & {one, two}:
            return f"{one} {two}"
    raise AssertionError("no phrase is so rare")


def _open(path: str, options: dict[str, str], caches: Iterator[str]) -> Table:
    config = {"spark.indextables.cache.disk.path": next(caches)}
    return Table.open(path, config=config, storage_options=options)


def _open_lance(path: str, options: dict[str, str]) -> Any:
    return None if lance is None else lance.dataset(path, storage_options=options)


def _searches(
    ours: Callable[[], Table], theirs: Callable[[], Any], traffic: Traffic, phrase: str
) -> Iterator[Result]:
    for what, text, most_requests, most_bytes in [
        ("needle", NEEDLE, 40, 5),
        ("phrase", phrase, 90, 8),
    ]:
        traffic.clear()
        table = ours()
        found = _search(table, text)
        mine = traffic.copy()
        traffic.clear()
        data = theirs()
        other = _search_lance(data, text)
        how = f"ours {mine}{_beside(other, traffic)}; {found.num_rows} rows"
        same = other is None or sorted(other["id"].to_pylist()) == sorted(found["id"].to_pylist())
        assert same, what
        yield Result(f"A cold {what}, MB", mine.received / 1e6, most_bytes, "at most", how)
        yield Result(f"A cold {what}, requests", len(mine.requests), most_requests, "at most", how)
        traffic.clear()
        _search(table, text)
        mine = traffic.copy()
        traffic.clear()
        other = _search_lance(data, text)
        yield Result(
            f"A {what} in a warm process, KB a row", mine.received / 1e3 / found.num_rows, 100,
            "at most", f"ours {mine}{_beside(other, traffic)}",
        )  # fmt: skip


def _ranked(
    ours: Callable[[], Table], theirs: Callable[[], Any], traffic: Traffic
) -> Iterator[Result]:
    """The best ten of a word of every fifth row; a far store answers late, so rounds are seen."""
    traffic.delay = 0.05
    traffic.clear()
    table = ours()
    table.search(COMMON, fields=["message"], columns=COLUMNS, limit=10)
    mine = traffic.copy()
    traffic.clear()
    data = theirs()
    other = _best_lance(data)
    how = f"ours {mine}, {mine.rounds} rounds" + (
        "" if other is None else f" / Lance {traffic}, {traffic.rounds} rounds"
    )
    yield Result("The best ten of a frequent word, cold, rounds", mine.rounds, 15, "at most", how)
    traffic.clear()
    table.search(COMMON, fields=["message"], columns=COLUMNS, limit=10)
    mine = traffic.copy()
    traffic.clear()
    other = _best_lance(data)
    yield Result(
        "The best ten of a frequent word in a warm process, requests", len(mine.requests), 20,
        "at most", f"ours {mine}{_beside(other, traffic)}",
    )  # fmt: skip
    traffic.delay = 0.0


def _best_lance(data: Any) -> pa.Table | None:
    if data is None:
        return None
    best: pa.Table = data.to_table(
        full_text_query=MatchQuery(COMMON, "message"), columns=[*COLUMNS, "_score"], limit=10
    )
    return best


def _rows(
    ours: Callable[[], Table], theirs: Callable[[], Any], traffic: Traffic, rows: int
) -> Iterator[Result]:
    table, data = ours(), theirs()
    keys = [number * rows + number * rows // SPLITS + 13 for number in range(SPLITS)]
    for key in keys:  # opens every footer
        table.count(where=f"id = {key}")
    traffic.clear()
    assert sum(table.scan(where=f"id = {key}").num_rows for key in keys) == SPLITS
    mine = traffic.copy()
    traffic.clear()
    other = [data.to_table(filter=f"id = {key}") for key in keys] if data is not None else None
    yield Result(
        "One row by key in a warm process, KB a split", mine.received / 1e3 / SPLITS, 100,
        "at most", f"{SPLITS} keys: ours {mine}{_beside(other, traffic)}",
    )  # fmt: skip
    where = f"id BETWEEN {rows // 2} AND {rows // 2 + 400}"
    table.scan(where=where, columns=["id"])
    traffic.clear()
    table.scan(where=where, columns=["id"])
    yield Result(
        "400 rows by a range of a column in a warm process, requests", len(traffic.requests), 4,
        "at most", f"ours {traffic}",
    )  # fmt: skip


def _search(table: Table, text: str) -> pa.Table:
    query = f'"{text}"' if " " in text else text
    return table.scan(where=f"message indexquery '{query}'", columns=COLUMNS)


def _search_lance(data: Any, text: str) -> pa.Table | None:
    if data is None:
        return None
    query = PhraseQuery(text, "message") if " " in text else MatchQuery(text, "message")
    found: pa.Table = data.to_table(full_text_query=query, columns=[*COLUMNS, "_score"])
    return found


def _beside(answer: object, traffic: Traffic) -> str:
    return "" if answer is None else f" / Lance {traffic}"
