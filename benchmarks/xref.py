"""Cross-references over many small splits: routing, size, building, and when they do not help."""

from __future__ import annotations

import itertools
import statistics
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from unittest import mock

import numpy as np
import pyarrow as pa
from pyspark.sql import Row

from benchmarks.log_rows import COMMON, NEEDLE, SCHEMA, batch, word_in
from benchmarks.measure import Result, best_of, race
from benchmarks.spark import start
from indextables import Table
from indextables.config import KEYS, XREF_BLOOM_FIELDS, Config
from indextables.log.actions import AddXRef
from indextables.log.transaction import Operation, Transaction
from indextables.predicate.sql_text import parse_predicate
from indextables.split.format import lists
from indextables.split.open_split import SplitFile
from indextables.xref.build import BuiltXRef, XRefSource, build_xref, merge_xrefs
from indextables.xref.open_xref import Memory

SPLITS = 1_000
ROWS = 5_000
NEEDLES = 15
_PREFIX = "spark.indextables."


def run(scale: float = 1.0) -> Iterator[Result]:
    count = max(40, int(SPLITS * scale))
    with tempfile.TemporaryDirectory() as name:
        config = {
            f"{_PREFIX}cache.disk.path": f"{name}/cache",
            f"{_PREFIX}xref.autoIndex.enabled": False,
            f"{_PREFIX}xref.query.minSplitsForXRef": 1,
        }
        table, append_time = _filled(Path(name) / "table", count, config)
        sources = _sources(table)
        yield from _building(table, sources, append_time)
        yield from _routing(table, config)
        yield _in_spark(table, Path(name))
        yield from _identifiers(Path(name), max(20, count // 10))


def _filled(folder: Path, count: int, config: dict[str, object]) -> tuple[Table, float]:
    """A table of `count` splits, and how long their appends took."""
    table = Table.create(folder, SCHEMA, config=_known(config))
    taken = 0.0
    for number in range(count):
        rows = batch(number * ROWS, ROWS, needle_every=count * ROWS // NEEDLES)
        started = time.perf_counter()
        table.append(pa.Table.from_batches([rows]))
        taken += time.perf_counter() - started
    return table, taken


def _known(config: dict[str, object]) -> dict[str, object]:
    """The keys that this release has: automatic indexing would build while we measure."""
    return {name: value for name, value in config.items() if name.lower() in KEYS}


def _sources(table: Table) -> list[XRefSource]:
    rows = table.snapshot().files.select(
        ["path", "size", "numRecords", "footerStartOffset", "footerEndOffset"]
    )
    return [XRefSource(*row.values()) for row in rows.to_pylist()]


# --- building --------------------------------------------------------------------------------


def _building(table: Table, sources: Sequence[XRefSource], append_time: float) -> Iterator[Result]:
    store, count = table.log.store, len(sources)

    def build(some: Sequence[XRefSource]) -> BuiltXRef:
        return build_xref(store, some, config=Config())

    curve = []
    for share in (0.1, 0.5, 1, 2):
        # Twice as many splits as there are: every split stands for two.
        some = list(itertools.islice(itertools.cycle(sources), int(count * share)))
        started = time.perf_counter()
        made = build(some)
        seconds = time.perf_counter() - started
        curve.append(f"{len(some):,} splits {seconds:.2f} s {made.size / 1e6:.1f} MB")
    full = build(sources)
    build_time = best_of(2, lambda: build(sources))
    yield Result(
        f"Building over {count:,} splits is quicker than the appends that made them",
        append_time / build_time, 5, "at least",
        f"appends {append_time:.1f} s / build {build_time:.2f} s; curve: {', '.join(curve)}",
    )  # fmt: skip
    index_bytes = sum(
        section.length
        for s in sources
        for section in SplitFile(
            store, s.path, s.size, s.footer_start, s.footer_end
        ).info.index_sections()
    )
    yield Result(
        "An XRef is small beside the indexes it stands for",
        full.size / index_bytes, 0.15, "at most",
        f"{full.size:,} bytes / {index_bytes:,} bytes of index in {count:,} splits",
    )  # fmt: skip
    yield Result(
        "Megabytes of XRef for 1,000 splits",
        full.size / 1e6 * SPLITS / count, 70, "at most",
        f"{full.size:,} bytes, {full.total_terms:,} different terms",
    )  # fmt: skip
    ten = max(1, count // 100)
    old = build(sources[:-ten])
    kept = [s.path for s in sources]

    def add() -> None:
        new = build(sources[-ten:])
        merge_xrefs(store, [old.path, new.path], keep=kept, config=Config())

    linked = best_of(3, add)
    small = best_of(3, lambda: build(sources[-ten:]))
    yield Result(
        f"Adding {ten} splits to {count - ten:,} is cheaper than building again",
        build_time / linked, 20, "at least",
        f"build {build_time:.2f} s / build of {ten} and link {linked:.3f} s "
        f"(as a tier of its own {small:.3f} s)",
    )  # fmt: skip
    _commit(table, full)


def _commit(table: Table, built: BuiltXRef) -> None:
    action = AddXRef(
        path=built.path, xref_id=built.xref_id, source_split_paths=built.source_splits,
        source_split_count=len(built.source_splits), size=built.size,
        total_terms=built.total_terms, footer_start_offset=built.footer_start_offset,
        footer_end_offset=built.footer_end_offset, created_time=0,
        build_duration_ms=built.build_duration_ms, max_source_splits=len(built.source_splits),
    )  # fmt: skip
    table.log.commit(Transaction(operation=Operation.XREF, actions=[action]))


# --- routing ---------------------------------------------------------------------------------


def _routing(table: Table, config: dict[str, object]) -> Iterator[Result]:
    known = _known(config)
    routed = Table.open(table.uri, config=known)
    plain = Table.open(table.uri, config={**known, f"{_PREFIX}xref.query.enabled": False})
    where = f"message indexquery '{NEEDLE}'"
    splits = len([line for line in routed.explain(where=where).splitlines() if "->" in line])
    assert splits == 1, routed.explain(where=where)
    with_xref, without = race(5, lambda: routed.scan(where=where), lambda: plain.scan(where=where))
    yield Result(
        f"A term in {NEEDLES} splits is found much faster",
        without.seconds / with_xref.seconds, 20, "at least",
        f"without {without} / with {with_xref}; {_verdict(routed, where)}",
    )  # fmt: skip
    times = sorted(_distribution(routed))
    tenth = [times[int(len(times) * share)] for share in (0.1, 0.5, 0.9, 0.99)]
    yield Result(
        "Milliseconds to route a condition of three terms, warm, at the median",
        statistics.median(times), 5, "at most",
        "10, 50, 90 and 99 of 100 below " + ", ".join(f"{t:.2f}" for t in tenth) + " ms",
    )  # fmt: skip
    everywhere = f"message indexquery '{COMMON}'"

    def scan(which: Table) -> int:
        return which.scan(columns=["id"], where=everywhere).num_rows

    dull, never = race(7, lambda: scan(routed), lambda: scan(plain))
    yield Result(
        "A condition that matches everywhere is hardly slower with XRefs",
        dull.seconds / never.seconds, 1.05, "at most", f"with {dull} / without {never}",
    )  # fmt: skip


def _in_spark(table: Table, root: Path) -> Result:
    """The whole query, planning and collecting included."""
    spark = start(root)
    query = f"SELECT * FROM indextables.`{table.uri}` WHERE message indexquery '{NEEDLE}'"

    def ask() -> list[Row]:
        return spark.sql(query).collect()

    def timed(routed: bool) -> tuple[list[Row], float]:
        spark.conf.set(f"{_PREFIX}xref.query.enabled", routed)
        return sorted(ask()), best_of(5, ask)

    try:
        spark.conf.set(f"{_PREFIX}xref.query.minSplitsForXRef", 1)
        timed(False)  # opens the indexes and warms Spark up
        found, with_xref = timed(True)
        expected, without = timed(False)
    finally:
        spark.stop()
    assert found == expected
    return Result(
        f"In Spark, a word in {NEEDLES} splits is found sooner with an XRef",
        without / with_xref, 10, "at least",
        f"without {without:.3g} s / with {with_xref:.3g} s",
    )  # fmt: skip


def _verdict(table: Table, where: str) -> str:
    (line,) = [one for one in table.explain(where=where).splitlines() if "routing" in one]
    return line.strip()


def _distribution(table: Table) -> Iterator[float]:
    """Milliseconds of routing, for conditions of three terms of every frequency."""
    snapshot = table.snapshot()
    words = [NEEDLE, *(word_in(share) for share in (0.2, 0.05, 0.01, 1e-3, 1e-4, 1e-5))]
    files = snapshot.entries
    shapes = ("{} AND {} AND {}", "({} OR {}) AND {}", "{} OR {} OR {}")
    router = table.view.router
    asked = type(router)(
        router.store, router.xrefs, router.config, router.context, dull=Memory(seconds=0.0)
    )
    for _ in range(3):
        for some in itertools.combinations(words, 3):
            for shape in shapes:
                where = f"message indexquery '{shape.format(*some)}'"
                predicate = parse_predicate(where, snapshot.schema)
                started = time.perf_counter()
                asked.route(predicate, files)
                yield 1000 * (time.perf_counter() - started)


# --- identifiers -----------------------------------------------------------------------------


def _identifiers(folder: Path, count: int) -> Iterator[Result]:
    """A dictionary of random identifiers beside bloom filters over them."""
    schema = pa.schema([("uid", pa.string())])
    table = Table.create(folder / "identifiers", schema, mapping={"uid": "string"})
    for number in range(count):
        random = np.random.default_rng(number)
        texts = [bytes(row).hex() for row in random.integers(0, 256, (ROWS, 16), dtype=np.uint8)]
        with mock.patch.object(lists, "_ROWS_A_VALUE", 1):  # list what is never listed
            table.append(pa.table({"uid": texts}))
    store, sources = table.log.store, _sources(table)
    filters = Config({XREF_BLOOM_FIELDS.name: "uid"})
    made: list[BuiltXRef] = []
    terms, blooms = race(
        2,
        lambda: made.append(build_xref(store, sources, config=Config())),
        lambda: made.append(build_xref(store, sources, config=filters)),
    )
    sizes = made[0].size, made[1].size
    yield Result(
        "Bloom filters of random identifiers are smaller than a dictionary of them",
        sizes[0] / sizes[1], 5, "at least",
        f"dictionary {sizes[0]:,} bytes, built in {terms} / filters {sizes[1]:,} bytes, built in "
        f"{blooms}, of {count:,} splits of {ROWS:,} identifiers",
    )  # fmt: skip
