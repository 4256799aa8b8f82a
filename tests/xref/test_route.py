"""Routing: what it keeps, what it says, and that nothing can make it lose a row."""

from __future__ import annotations

import logging
import re
import shutil
import threading

import pyarrow as pa
import pytest
from faulty_store import FaultyStore
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from xrefs import add_xref, cover, link, rows_of, sources

from indextables import Table
from indextables.config import (
    XREF_FALLBACK,
    XREF_INCLUDE_POSITIONS,
    XREF_MAX_MEMORY,
    XREF_MIN_SPLITS,
    XREF_QUERY,
    XREF_TIMEOUT,
    Config,
)
from indextables.errors import UnusableXRefError, XRefTimeoutError
from indextables.log.transaction_log import TransactionLog
from indextables.predicate.sql_text import parse_predicate
from indextables.storage import Store
from indextables.xref import route
from indextables.xref.build import build_xref, merge_xrefs
from indextables.xref.open_xref import (
    Memory,
    XRefPool,
    close_xrefs,
    shared_pool,
)
from indextables.xref.route import Router, Routing

WORD = "body indexquery 'word3'"


def opened(table: Table, config: dict[str, object], **options: object) -> Table:
    """The same table with other options."""
    return Table.open(table.uri, config={**config, **options})


def on(store: Store, config: dict[str, object], **options: object) -> Table:
    """The table in a store that misbehaves."""
    settings = Config({**config, **options})
    return Table.of_log(TransactionLog(store, config=settings))


def router(table: Table) -> Router:
    return table.refresh().view.router


def routed(table: Table, where: str) -> Routing:
    snapshot = table.snapshot()
    return router(table).route(parse_predicate(where, snapshot.schema), snapshot.entries)


def kept(table: Table, where: str) -> list[int]:
    """The numbers of the splits that routing keeps."""
    return numbers(table, routed(table, where))


def numbers(table: Table, routing: Routing) -> list[int]:
    """The least `id` of each file that is kept: a checkpoint may order files anew."""
    values = table.snapshot().entries["minValues"].to_pylist()
    return sorted(
        int(dict(v)["id"]) for v, keep in zip(values, routing.keep.tolist(), strict=True) if keep
    )


CASES = {
    WORD: [3],
    "body indexquery 'WORD3 AND common'": [3],
    "body indexquery 'word1 OR word4'": [1, 4],
    "body indexquery '\"common wi-fi\"'": [0, 1, 2, 3, 4, 5],
    "body indexquery 'parity1 AND NOT word1'": [1, 3, 5],
    "body indexquery 'word*'": [0, 1, 2, 3, 4, 5],
    "body indexquery '*d3'": [3],
    "body indexquery 'wor?5'": [5],
    "body indexquery 'wort4~1'": [4],
    "body indexquery '/word[12]/'": [1, 2],
    "body indexquery '/word1|word2/'": [1, 2],
    "body = 'word2 common Wi-Fi in house'": [2],
    "tag = 'a b1'": [1],
    "tag = 'A b1'": [],
    "tag IN ('a b1', 'a b5', NULL)": [1, 5],
    "tag LIKE 'a b2%'": [2],
    "id = 104": [4],
    "id BETWEEN 101 AND 103": [1, 2, 3],
    "day = '2024-01-03'": [2],
    "price = 1.5": [3],
    "price = CAST('NaN' AS DOUBLE)": [0, 1, 2, 3, 4, 5],
    "ip = '10.0.0.4'": [4],
    "ip indexquery '10.0.0.2/31'": [2, 3],
    "doc indexquery 'leaf2'": [2],
    "_indexall indexquery 'doc.k:leaf2'": [2],
    "_indexall indexquery 'doc.n:leaf2'": [],
    "_indexall indexquery 'doc.n:4'": [4],
    "_indexall indexquery 'doc.n:4.0 OR doc.n:5'": [4, 5],
    "_indexall indexquery 'doc.k:le*3'": [3],
    "_indexall indexquery 'doc.k:lead1~1'": [1],
    "_indexall indexquery 'word2 OR leaf3'": [2, 3],
    "tag = 'a b1' OR id = 2": [1, 2],
    "tag = 'a b1' AND id = 2": [],
    "NOT (tag <> 'a b1')": [1],
}


@pytest.mark.parametrize("how", ["one", "tiers", "linked"])
def test_splits_that_are_kept(table, how):
    splits = sources(table)
    if how == "one":
        cover(table)
    else:
        parts = [cover(table, splits[:2]), cover(table, splits[2:])]
        if how == "linked":
            link(table, parts, [s.path for s in splits])
    assert {where: kept(table, where) for where in CASES} == CASES


def test_rows_and_counts_come_from_few_splits(table, config):
    cover(table)
    assert table.scan(columns=["id"], where=WORD)["id"].to_pylist() == [3]
    assert table.count(where=WORD) == 1
    plan = table.explain(where=WORD)
    assert "kept by cross-references" in plan
    assert "6 -> 1 splits by 1 XRefs that cover 6" in plan


def test_scores_are_those_of_the_whole_table(table, config):
    cover(table)
    plain = opened(table, config, **{XREF_QUERY.name: False})
    for where in (None, "tag = 'a b3'", WORD):
        found = table.search("common OR word3", where=where, columns=["id"])
        assert found.equals(plain.search("common OR word3", where=where, columns=["id"]))
        assert found.num_rows


def test_pairs_of_words_route_phrases(table):
    cover(table)
    crossed, neighbours = "body indexquery '\"common word3\"'", "body indexquery '\"word3 common\"'"
    assert kept(table, crossed) == kept(table, neighbours) == [3]
    close_xrefs()
    cover(table, **{XREF_INCLUDE_POSITIONS.name.removeprefix("spark.indextables."): True})
    assert kept(table, crossed) == []
    assert kept(table, neighbours) == [3]
    assert kept(table, "body indexquery '\"common word3\"~2'") == [3]
    assert kept(table, "body indexquery '\"house parity1\"'") == []
    assert kept(table, "body indexquery 'wi-fi AND word2'") == [2]


# --- when XRefs are not asked ----------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "where", "reason"),
    [
        ({XREF_QUERY.name: False}, WORD, "xref.query.enabled is false"),
        ({XREF_MIN_SPLITS.name: 7}, WORD, "6 splits are fewer than .* = 7"),
        ({}, "body LIKE '%a'", "no term that an XRef indexes"),
        ({}, "TRUE", "no condition"),
    ],
)
def test_why_not(table, config, options, where, reason):
    cover(table)
    verdict = routed(opened(table, config, **options), where).verdict
    assert not verdict.consulted
    assert verdict.before == verdict.after == 6
    assert re.search(reason, str(verdict))


def test_a_table_without_xrefs_says_so(table):
    assert "routing    not used: the table has no cross-references" in table.explain(where=WORD)


def test_the_threshold_is_by_default_128(table, config):
    cover(table)
    plain = Table.open(table.uri, config={k: v for k, v in config.items() if "minSplits" not in k})
    assert "fewer than spark.indextables.xref.query.minSplitsForXRef = 128" in plain.explain(
        where=WORD
    )


def test_few_cold_splits_of_a_remote_store_are_routed(config, monkeypatch):
    plain = {k: v for k, v in config.items() if "minSplits" not in k}
    schema = pa.schema([("id", pa.int64()), ("body", pa.string())])
    table = Table.create("memory://few-cold-splits", schema, config=plain)
    for number in range(3):
        table.append(pa.table({"id": [number], "body": [f"word{number}"]}, schema))
    cover(table)
    where = "body indexquery 'word1'"

    def consulted():
        return routed(Table.open(table.uri, config=plain), where).verdict.consulted

    assert not consulted()  # these splits are hardly larger than the XRef
    monkeypatch.setattr(route, "_WORTH", 0)
    assert consulted()
    assert table.count(where=where) == 1  # opens the one that is left
    assert consulted()
    assert table.count(where="body LIKE '%word%' OR body indexquery 'word1'") == 3  # and all
    assert not consulted()


def test_uncovered_splits_are_kept(table):
    cover(table, sources(table)[:4])
    assert kept(table, WORD) == [3, 4, 5]
    assert kept(table, "body indexquery 'nobody'") == [4, 5]


def test_a_file_of_another_size_is_not_the_one_that_was_covered(table):
    cover(table)
    snapshot = table.snapshot()
    sizes = pa.array([s.as_py() + (n == 0) for n, s in enumerate(snapshot.entries["size"])])
    place = snapshot.entries.schema.get_field_index("size")
    files = snapshot.entries.set_column(place, "size", sizes)
    predicate = parse_predicate(WORD, snapshot.schema)
    assert router(table).route(predicate, files).keep.tolist() == [
        True, False, False, True, False, False,
    ]  # fmt: skip


def test_splits_of_another_mapping_are_kept(table, config):
    cover(table)
    stemmed = Table.create(
        table.uri + "-stemmed",
        table.schema,
        config={**config, "spark.indextables.indexing.tokenizer.body": "en_stem"},
    )
    stemmed.append(rows_of(3))
    snapshot = table.snapshot()
    context = stemmed.view.with_settings(Config(config)).context
    routing = Router(table.log.store, snapshot.xrefs, Config(config), lambda: context).route(
        parse_predicate(WORD, snapshot.schema), snapshot.entries
    )
    assert routing.keep.all()
    assert routing.verdict.consulted


def test_a_column_that_a_split_lacks_has_no_terms(table):
    more = rows_of(7).append_column("extra", pa.array(["new", None]))
    table.append(more, merge_schema=True)
    cover(table)
    assert kept(table, "extra indexquery 'new'") == [7]
    assert kept(table, "extra = 'new' OR body indexquery 'word0'") == [0, 7]


# --- memory ----------------------------------------------------------------------------------


def test_a_question_that_does_not_narrow_rests_for_a_while(table, config, monkeypatch):
    cover(table)
    now = [0.0]
    memory = Memory(seconds=60, clock=lambda: now[0])
    snapshot = table.snapshot()
    asking = Router(
        table.log.store, snapshot.xrefs, Config(config), router(table).context, dull=memory
    )
    dull = parse_predicate("body indexquery 'common'", snapshot.schema)
    sharp = parse_predicate(WORD, snapshot.schema)

    def consulted(predicate):
        return asking.route(predicate, snapshot.entries).verdict.consulted

    assert consulted(dull)
    assert not consulted(dull)
    assert "kept 6 of 6 splits a short while ago" in str(
        asking.route(dull, snapshot.entries).verdict
    )
    assert consulted(sharp) and consulted(sharp)
    now[0] = 61.0
    assert consulted(dull)


def test_memory_is_limited():
    memory = Memory(seconds=60, clock=lambda: 0.0)
    for number in range(5_000):
        memory.note(number, "x")
    assert memory.recall(0) is None
    assert memory.recall(4_999) == "x"


def test_xrefs_stay_open_within_their_limit(table, config):
    splits = sources(table)
    parts = [cover(table, [split]) for split in splits]
    store = FaultyStore(table.log.store)
    pool = XRefPool(max_bytes=1)
    for part in (parts[0], parts[0], parts[1], parts[0]):
        pool.get(store, part.path, size=part.size)
    assert len(pool) == 1
    assert len(store.operations) == 3
    small = opened(table, config, **{XREF_MAX_MEMORY.name: 1})
    assert kept(small, WORD) == [3]
    assert len(shared_pool(1)) == 1
    assert close_xrefs() >= 1


def test_a_warm_xref_is_not_fetched_again(table, config):
    built = cover(table)
    store = FaultyStore(table.log.store)
    warm = on(store, config)
    assert kept(warm, WORD) == [3]
    assert kept(warm, "tag = 'a b1'") == [1]
    assert store.count("get_range", built.path) == 1


# --- what goes wrong -------------------------------------------------------------------------


def damage(store: Store, path: str, change: str, at: float) -> None:
    data = bytearray(store.get(path))
    place = int(at * (len(data) - 1))
    if change == "flip":
        data[place] ^= 1 + place % 255
        store.put(path, bytes(data))
    elif change == "cut":
        store.put(path, bytes(data[:place]))
    elif change == "zero":
        data[place : place + 64] = bytes(len(data[place : place + 64]))
        store.put(path, bytes(data))
    else:
        store.delete([path])


@settings(
    max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None
)
@given(
    change=st.sampled_from(["flip", "flip", "flip", "cut", "zero", "delete"]),
    at=st.floats(0, 1),
    linked=st.booleans(),
)
def test_damage_anywhere_changes_no_result(damaged_tables, change, at, linked):
    table, path, whole = damaged_tables[linked]
    store = table.log.store
    store.put(path, whole)
    close_xrefs()
    expected = {where: set(numbers) for where, numbers in CASES.items()}
    damage(store, path, change, at)
    for where in list(CASES)[::4]:
        routing = routed(table, where)
        found = set(numbers(table, routing))
        assert found in (expected[where], set(range(6)))
        if routing.verdict.reason:
            assert found == set(range(6))
    assert table.scan(columns=["id"], where=WORD)["id"].to_pylist() == [3]


@pytest.fixture(scope="module")
def damaged_tables(template, tmp_path_factory, config):
    """A table with one XRef and a table with a linked one, with the path and bytes of it."""
    found = {}
    for linked in (False, True):
        folder = tmp_path_factory.mktemp("damaged") / "table"
        shutil.copytree(template, folder)
        table = Table.open(folder, config=config)
        splits = sources(table)
        if linked:
            store = table.log.store
            parts = [build_xref(store, s, config=Config()) for s in (splits[:3], splits[3:])]
            built = merge_xrefs(
                store, [p.path for p in parts], keep=[s.path for s in splits], config=Config()
            )
            add_xref(table, built)
        else:
            built = cover(table)
        found[linked] = table, built.path, table.log.store.get(built.path)
    return found


@pytest.mark.parametrize("change", ["cut", "delete"])
def test_without_fallback_the_query_fails(table, config, change):
    built = cover(table)
    damage(table.log.store, built.path, change, 0.5)
    strict = opened(table, config, **{XREF_FALLBACK.name: False})
    with pytest.raises(UnusableXRefError, match="INDEX CROSSREFERENCES"):
        strict.scan(where=WORD)
    assert table.scan(columns=["id"], where=WORD)["id"].to_pylist() == [3]


def test_what_is_wrong_is_told_once_and_remembered(table, config, caplog):
    built = cover(table)
    table.log.store.delete([built.path])
    store = FaultyStore(table.log.store)
    broken = on(store, config)
    with caplog.at_level(logging.INFO, logger="indextables.xref.route"):
        first = routed(broken, WORD).verdict
        second = routed(broken, WORD).verdict
    assert built.path in first.reason
    assert "could not be used before" in second.reason
    assert store.count("get_range", built.path) == 1
    warnings = [r for r in caplog.records if r.levelno == logging.WARNING]
    assert len(warnings) == 1


def test_an_error_of_the_store_costs_no_row(table, config):
    built = cover(table)
    store = FaultyStore(table.log.store)
    store.inject("get_range", "before", path=built.path)
    assert on(store, config).scan(columns=["id"], where=WORD)["id"].to_pylist() == [3]


class Stuck(FaultyStore):
    """A store in which XRefs are read only once `release` is set."""

    def __init__(self, inner: Store) -> None:
        super().__init__(inner)
        self.release = threading.Event()

    def get_range(self, path: str, start: int, end: int) -> bytes:
        if "_xrefsplits" in path:
            assert self.release.wait(60)
        return super().get_range(path, start, end)


def test_a_slow_xref_is_not_waited_for(table, config):
    cover(table)
    store = Stuck(table.log.store)
    slow = on(store, config, **{XREF_TIMEOUT.name: 20})
    strict = on(store, config, **{XREF_TIMEOUT.name: 20, XREF_FALLBACK.name: False})
    try:
        assert slow.scan(columns=["id"], where=WORD)["id"].to_pylist() == [3]
        close_xrefs()
        assert "did not answer within 20 ms" in routed(slow, WORD).verdict.reason
        close_xrefs()
        with pytest.raises(XRefTimeoutError, match="timeoutMs"):
            strict.scan(where=WORD)
    finally:
        store.release.set()


def test_one_slow_xref_does_not_silence_the_others(table, config):
    splits = sources(table)
    first, second = cover(table, splits[:3]), cover(table, splits[3:])
    store = Stuck(table.log.store)
    quick = on(store.inner, config)
    assert kept(quick, "tag = 'nobody'") == []
    shared_pool(Config(config)[XREF_MAX_MEMORY]).clear()
    warm = shared_pool(Config(config)[XREF_MAX_MEMORY])
    warm.get(store.inner, second.path, size=second.size)
    slow = on(store, config, **{XREF_TIMEOUT.name: 1_000})
    try:
        assert kept(slow, WORD) == [0, 1, 2, 3]
    finally:
        store.release.set()
    assert first.path != second.path


def test_the_verdict_is_logged(table, caplog):
    cover(table)
    with caplog.at_level(logging.INFO, logger="indextables.xref.route"):
        table.scan(where=WORD)
    assert "6 -> 1 splits by 1 XRefs" in caplog.text
