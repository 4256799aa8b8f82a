"""Searches straight on object storage with nothing cached, counted beside Lance.

Ten splits of 200,000 log rows lie on an S3 server, and Lance has the same rows in ten fragments
with one full-text index. A proxy counts requests and bytes of answers; opening the table is part of
a cold search. Every cold search begins with an empty cache and a table that is opened anew. The
needle is a word of one row in each split, so no split can be left out.
"""

from __future__ import annotations

import itertools
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from itertools import pairwise
from typing import Any

import lance
import pyarrow as pa
import pyarrow.compute as pc
from lance.query import MatchQuery, PhraseQuery

from benchmarks.counting import Traffic, counted
from benchmarks.log_rows import COMMON, NEEDLE, SCHEMA, batches
from benchmarks.measure import Result
from benchmarks.peers import s3_server
from indextables import Table

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
        theirs = partial(lance.dataset, f"{uri}/lance", storage_options=options)
        yield from _searches(ours, theirs, traffic, phrase)
        yield from _rows(ours, theirs, traffic, rows)


def _write(uri: str, options: dict[str, str], rows: int, cache: str) -> str:
    """Write both tables; returns two words that follow each other in few rows."""
    config = {"spark.indextables.cache.disk.path": cache}
    table = Table.create(f"{uri}/table", SCHEMA, config=config, storage_options=options)
    last = None
    for number in range(SPLITS):
        data = pa.Table.from_batches(list(batches(rows, start=number * rows, needle_every=rows)))
        table.append(data)
        last = lance.write_dataset(
            data, f"{uri}/lance", mode="append" if number else "create", storage_options=options
        )
    assert last is not None
    last.create_scalar_index("message", index_type="INVERTED", with_position=True, stem=False,
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


def _searches(
    ours: Callable[[], Table], theirs: Callable[[], Any], traffic: Traffic, phrase: str
) -> Iterator[Result]:
    for what, query, lances, most_requests, most_bytes in [
        ("needle", NEEDLE, MatchQuery(NEEDLE, "message"), 40, 5),
        ("phrase", f'"{phrase}"', PhraseQuery(phrase, "message"), 90, 8),
    ]:
        search = partial(_ours, query=query)
        peer_search = partial(_lance, query=lances)
        table, data = [], []
        mine, found = _counted(traffic, lambda: search(_kept(ours, table)))  # noqa: B023
        peer, other = _counted(traffic, lambda: peer_search(_kept(theirs, data)))  # noqa: B023
        assert sorted(found["id"].to_pylist()) == sorted(other["id"].to_pylist()), what
        how = f"ours {mine} / Lance {peer}; {found.num_rows} rows"
        yield Result(f"A cold {what}, MB", mine.received / 1e6, most_bytes, "at most", how)
        yield Result(f"A cold {what}, requests", len(mine.requests), most_requests, "at most", how)
        warm, _ = _counted(traffic, partial(search, table[0]))
        peer, _ = _counted(traffic, partial(peer_search, data[0]))
        yield Result(
            f"A {what} in a warm process, KB a row",
            warm.received / 1e3 / found.num_rows, 100, "at most",
            f"ours {warm} / Lance {peer}",
        )  # fmt: skip


def _kept(open_: Callable[[], Any], place: list[Any]) -> Any:
    """Open a table, and keep it for the warm search."""
    place.append(open_())
    return place[0]


def _rows(
    ours: Callable[[], Table], theirs: Callable[[], Any], traffic: Traffic, rows: int
) -> Iterator[Result]:
    table, data = ours(), theirs()
    keys = [number * rows + number * rows // SPLITS + 13 for number in range(SPLITS)]
    for key in keys:  # opens every footer
        table.count(where=f"id = {key}")
        data.to_table(filter=f"id = {key}")

    mine, found = _counted(
        traffic, lambda: sum(table.scan(where=f"id = {key}").num_rows for key in keys)
    )
    peer, _ = _counted(
        traffic, lambda: sum(data.to_table(filter=f"id = {key}").num_rows for key in keys)
    )
    assert found == SPLITS
    yield Result(
        "One row by key in a warm process, KB a split", mine.received / 1e3 / SPLITS, 100,
        "at most", f"{SPLITS} keys: ours {mine} / Lance {peer}",
    )  # fmt: skip
    where = f"id BETWEEN {rows // 2} AND {rows // 2 + 400}"
    table.scan(where=where, columns=["id"])
    mine, _ = _counted(traffic, lambda: table.scan(where=where, columns=["id"]))
    yield Result(
        "400 rows by a range of a column in a warm process, requests",
        len(mine.requests), 4, "at most", f"ours {mine}",
    )  # fmt: skip


def _ours(table: Table, query: str) -> pa.Table:
    return table.scan(where=f"message indexquery '{query}'", columns=COLUMNS)


def _lance(data: Any, query: Any) -> pa.Table:
    found: pa.Table = data.to_table(full_text_query=query, columns=[*COLUMNS, "_score"])
    return found


def _counted(traffic: Traffic, ask: Callable[[], Any]) -> tuple[Traffic, Any]:
    traffic.clear()
    answer = ask()
    return Traffic(list(traffic.requests), traffic.received), answer
