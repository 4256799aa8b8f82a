"""The life of a table: anything in any order, beside a model in plain Python.

After every step the newest version has the rows, counts and search results of the model. Whenever
something was forgotten, and at the end, every version that can still be read is what it was.
"""

from __future__ import annotations

import contextlib
import shutil
import tempfile
import uuid
from collections import Counter

import pyarrow as pa
import pytest
from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from indextables import Table
from indextables.config import Config
from indextables.errors import VersionNotFoundError
from indextables.jobs.write_job import plan_write
from indextables.log.actions import Txn
from indextables.plan.access import SourceOptions
from indextables.spark.schemas import spark_schema
from indextables.spark.streams import StreamOptions, TableStreamReader

SCHEMA = pa.schema({"id": pa.int64(), "month": pa.int32(), "body": pa.string(), "n": pa.int64()})
WORDS = ("alpha", "beta", "gamma", "delta")
KEPT_LONG = {
    "spark.indextables.checkpoint.interval": 4,
    "spark.indextables.purge.retentionCheckEnabled": False,
}
KEPT_SHORT = KEPT_LONG | {
    "spark.indextables.state.retention.hours": 0,
    "spark.indextables.state.retention.versions": 1,
    "spark.indextables.checkpointRetention.duration": 0,
    "spark.indextables.state.gc.minManifestAgeHours": 0,
}

Row = tuple[int, int | None, str | None, int | None]
modes = st.sampled_from(["vector", "vector", "rewrite"])
bodies = st.none() | st.lists(st.sampled_from(WORDS), max_size=3).map(" ".join)
months = st.none() | st.integers(1, 3)
new_rows = st.lists(st.tuples(months, bodies, st.none() | st.integers(-5, 5)), max_size=5)


def has(word: str):
    return lambda row: row[2] is not None and word in row[2].split()


CONDITIONS = {
    **{f"month = {month}": (lambda row, m=month: row[1] == m) for month in (1, 2, 3)},
    "month IS NULL": lambda row: row[1] is None,
    **{f"body indexquery '{word}'": has(word) for word in WORDS[:2]},
    "n > 0": lambda row: row[3] is not None and row[3] > 0,
    "n IS NULL OR body indexquery 'gamma'": lambda row: row[3] is None or has("gamma")(row),
    "_indexall indexquery 'alpha AND beta' AND month = 2": (
        lambda row: has("alpha")(row) and has("beta")(row) and row[1] == 2
    ),
    "body = 'delta'": lambda row: row[2] == "delta",
    "id < 0": lambda _: False,
}
PARTITIONS = [where for where in CONDITIONS if where.startswith("month")]


class Life(RuleBasedStateMachine):
    """One table, one model, one client."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.mkdtemp(prefix="indextables-life-")
        self.uri = f"memory://life-{uuid.uuid4().hex}"
        self.rows: list[Row] = []
        self.versions: dict[int, list[Row]] = {}
        self.next_id = 0
        self.batch = 0
        self.read_to, self.offset = 0, None

    def teardown(self) -> None:
        if self.versions:
            self.check_versions(may_be_gone=False)
            assert all(check.passed for check in self.open().verify())
        shutil.rmtree(self.folder)

    # --- both sides --------------------------------------------------------------------------

    def open(self, *, version: int | None = None, config: dict[str, object] = KEPT_LONG) -> Table:
        paths = {
            "spark.indextables.cache.disk.path": f"{self.folder}/cache",
            "spark.indextables.indexWriter.tempDirectoryPath": self.folder,
        }
        return Table.open(self.uri, version=version, config={**config, **paths})

    def made(self, drawn) -> tuple[list[Row], pa.Table]:
        rows = [(self.next_id + at, *values) for at, values in enumerate(drawn)]
        self.next_id += len(rows)
        columns = list(zip(*rows, strict=True)) or [()] * 4
        return rows, pa.table(list(map(list, columns)), schema=SCHEMA)

    def now(self, rows: list[Row]) -> None:
        self.rows = rows
        version = self.open().version
        # A change that changes nothing writes no version.
        assert version not in self.versions or self.versions[version] == sorted(rows, key=repr)
        if self.versions and version > (last := max(self.versions)):
            assert self.replayed(last) == sorted(rows, key=repr)
        self.versions[version] = sorted(rows, key=repr)

    def replayed(self, version: int) -> list[Row]:
        """The rows of a version with all that changed since."""
        rows = Counter(self.versions[version])
        for change in self.open().changes(from_version=version + 1).to_pylist():
            is_new = change["_change_type"] in ("insert", "update_postimage")
            rows[tuple(change[name] for name in SCHEMA.names)] += 1 if is_new else -1
        assert min(rows.values(), default=0) >= 0
        return sorted(rows.elements(), key=repr)

    def check_versions(self, *, may_be_gone: bool) -> None:
        newest = max(self.versions)
        for version, rows in list(self.versions.items()):
            try:
                table = self.open(version=version)
            except VersionNotFoundError:
                assert may_be_gone, f"version {version} cannot be read any more"
                assert version != newest
                del self.versions[version]
                continue
            assert found(table) == rows, f"version {version}"
            assert table.count() == len(rows)
        if may_be_gone:  # the stream cannot go on where it was, and begins again
            self.read_to, self.offset = newest, None

    # --- what happens to a table ---------------------------------------------------------------

    @initialize(partitioned=st.booleans(), drawn=new_rows)
    def create(self, partitioned, drawn) -> None:
        Table.create(self.uri, SCHEMA, partition_by=["month"] if partitioned else [])
        self.partitioned = partitioned
        self.now([])
        self.append(drawn)

    @rule(drawn=new_rows)
    def append(self, drawn) -> None:
        rows, data = self.made(drawn)
        self.open().append(data)
        self.now(self.rows + rows)

    @rule(drawn=new_rows)
    def overwrite(self, drawn) -> None:
        rows, data = self.made(drawn)
        self.open().overwrite(data)
        self.now(rows)

    def marking(self, mode: str) -> Table:
        """The table, with rows marked as deleted or their splits rewritten."""
        return self.open(config={**KEPT_LONG, "spark.indextables.deletionVectors.mode": mode})

    @rule(drawn=new_rows, month=st.integers(1, 3), mode=modes)
    def overwrite_month(self, drawn, month, mode) -> None:
        rows, data = self.made([(month, *rest) for _, *rest in drawn])
        self.marking(mode).overwrite(data, where=f"month = {month}")
        self.now([row for row in self.rows if row[1] != month] + rows)

    @rule(where=st.sampled_from(list(CONDITIONS)), mode=modes)
    def delete(self, where, mode) -> None:
        done = self.marking(mode).delete(where=where)
        kept = [row for row in self.rows if not CONDITIONS[where](row)]
        assert done.rows_removed == len(self.rows) - len(kept)
        self.now(kept)

    @rule(where=st.sampled_from(list(CONDITIONS)), mode=modes)
    def update(self, where, mode) -> None:
        chosen = CONDITIONS[where]
        done = self.marking(mode).update("n = n + 1, body = coalesce(body, 'gamma')", where=where)
        assert done.rows == sum(map(chosen, self.rows))
        self.now(
            [
                (i, m, "gamma" if b is None else b, None if n is None else n + 1)
                if chosen((i, m, b, n))
                else (i, m, b, n)
                for i, m, b, n in self.rows
            ]
        )

    @rule(where=st.sampled_from(list(CONDITIONS)), month=months, mode=modes)
    def move(self, where, month, mode) -> None:
        chosen = CONDITIONS[where]
        self.marking(mode).update({"month": "NULL" if month is None else str(month)}, where=where)
        self.now([(r[0], month, *r[2:]) if chosen(r) else r for r in self.rows])

    @rule(drawn=new_rows, known=st.sets(st.integers(0, 12), max_size=4), mode=modes,
          matched=st.sampled_from(["update", "delete"]))  # fmt: skip
    def merge_rows(self, drawn, known, mode, matched) -> None:
        here = {row[0] for row in self.rows}
        old = [(i, 2, "beta", 7) for i in sorted(known & here)]
        rows, data = self.made(drawn)
        columns = list(zip(*old, strict=True)) or [()] * 4
        changes = pa.table(list(map(list, columns)), schema=SCHEMA)
        done = self.marking(mode).merge(
            pa.concat_tables([data, changes]), on="id", when_matched=matched
        )
        gone = {row[0] for row in old}
        assert done.rows_removed == len(gone)
        kept = [row for row in self.rows if row[0] not in gone]
        self.now(kept + rows + (old if matched == "update" else []))

    @rule(drawn=new_rows, complete=st.booleans(), times=st.integers(1, 2), old=st.booleans())
    def sink(self, drawn, complete, times, old) -> None:
        """A batch of a stream: what its sink commits, once or again, whatever became of it."""
        rows, data = self.made(drawn)
        kind = "overwrite" if complete else "append"
        for at in range(times):
            log = self.open().log
            job = plan_write(log, SCHEMA, settings=Config(KEPT_LONG), kind=kind)
            again = max(0, self.batch - 1) if old and at else self.batch
            batch = Txn(app_id="query", version=again, last_updated=1)
            done = job.commit(log, [job.store(data.to_batches())], batch=batch)
            assert at == 0 or done.rows == 0, "a batch that is in the table came again"
        self.batch += 1
        self.now(rows if complete else self.rows + rows)

    @rule(most=st.none() | st.integers(1, 2))
    def source(self, most) -> None:
        """What a stream reads since it last did: the new rows, and the new values of others."""
        options = {} if most is None else {"maxFilesPerTrigger": str(most)}
        options |= {"ignoreDeletes": "true", "ignoreChanges": "true"}
        stream = StreamOptions.parse({**options, "startingVersion": str(self.read_to + 1)})
        reader = TableStreamReader(
            SourceOptions.parse({"path": self.uri}), stream, spark_schema(self.open().schema)
        )
        last, start, streamed = self.open().version, self.offset, []
        if last == self.read_to:
            return
        start = reader.initialOffset() if start is None else start
        for _ in range(200):
            end = reader.latestOffset(start, None)
            for partition in reader.partitions(start, end):
                for batch in reader.read(partition):
                    streamed += [tuple(row.values()) for row in batch.to_pylist()]
            start = end
            if end == reader.latestOffset(end, None):
                break
        changes = self.open().changes(from_version=self.read_to + 1).to_pylist()
        new = [
            tuple(change[name] for name in SCHEMA.names) for change in changes
            if change["_change_type"] in ("insert", "update_postimage")
        ]  # fmt: skip
        assert sorted(streamed, key=repr) == sorted(new, key=repr)
        self.read_to, self.offset = last, start

    @rule(where=st.sampled_from(PARTITIONS))
    def drop_partitions(self, where) -> None:
        if self.partitioned:
            self.open().drop_partitions(where=where)
            self.now([row for row in self.rows if not CONDITIONS[where](row)])

    @rule()
    def merge(self) -> None:
        self.open().merge_splits(target_size="100M")
        self.now(self.rows)

    @rule()
    def index_crossreferences(self) -> None:
        self.open().index_crossreferences()
        self.now(self.rows)

    @rule(form=st.sampled_from(["avro", "json"]))
    def checkpoint(self, form) -> None:
        self.open(config={**KEPT_LONG, "spark.indextables.state.format": form}).checkpoint()

    @rule()
    def truncate(self) -> None:
        self.open().truncate_time_travel()
        self.check_versions(may_be_gone=True)
        assert list(self.versions) == [self.open().version]

    @rule()
    def purge_what_nobody_names(self) -> None:
        self.open().purge(older_than_hours=0)
        self.check_versions(may_be_gone=False)

    @rule()
    def purge_all_that_may_go(self) -> None:
        dry = self.open(config=KEPT_SHORT).purge(
            older_than_hours=0, log_retention_hours=0, dry_run=True
        )
        self.check_versions(may_be_gone=False)
        done = self.open(config=KEPT_SHORT).purge(older_than_hours=0, log_retention_hours=0)
        assert len(done.orphans) >= len(dry.orphans)
        self.check_versions(may_be_gone=True)

    @rule(data=st.data())
    def restore(self, data) -> None:
        version = data.draw(st.sampled_from(sorted(self.versions)))
        rows = self.versions[version]
        self.open().restore(version=version)
        self.now(list(rows))

    # --- what must hold ------------------------------------------------------------------------

    @invariant()
    def rows_counts_and_searches_agree(self) -> None:
        if not self.versions:
            return
        table = self.open()
        assert found(table) == sorted(self.rows, key=repr)
        assert table.count() == len(self.rows)
        for where in ("n > 0", "month = 2", "body indexquery 'alpha OR gamma'"):
            expected = sorted(r[0] for r in self.rows if _meets(where, r))
            assert sorted(table.scan(columns=["id"], where=where)["id"].to_pylist()) == expected
            assert table.count(where=where) == len(expected)
        hits = table.search("beta", fields=["body"], limit=None)
        assert sorted(hits["id"].to_pylist()) == sorted(r[0] for r in self.rows if has("beta")(r))
        scores = hits["_score"].to_pylist()
        assert scores == sorted(scores, reverse=True)


def _meets(where: str, row: Row) -> bool:
    if "alpha OR gamma" in where:
        return has("alpha")(row) or has("gamma")(row)
    return bool(CONDITIONS[where](row))


def found(table: Table) -> list[Row]:
    columns = table.scan().select(SCHEMA.names).to_pydict().values()
    return sorted(zip(*columns, strict=True), key=repr)


LIVES = max(2, settings.default.max_examples // 16)


@pytest.mark.filterwarnings("error")
def test_any_life() -> None:
    from hypothesis.stateful import run_state_machine_as_test

    run_state_machine_as_test(
        Life, settings=settings(max_examples=LIVES, stateful_step_count=16, deadline=None)
    )


@pytest.fixture
def lossy_merges(monkeypatch) -> None:
    """Merging splits loses rows."""
    real = Table.merge_splits

    def lossy(self, **options):
        with contextlib.suppress(Exception):
            self.delete(where="month = 2")
        return real(self, **options)

    monkeypatch.setattr(Table, "merge_splits", lossy)


@pytest.mark.parametrize("partitioned", [False, True])
def test_the_model_notices_a_row_that_is_lost(lossy_merges, partitioned) -> None:
    life = Life()
    life.create(partitioned, [(1, "alpha", 1), (2, "beta", 2)])
    life.delete("month = 2", "vector")
    life.merge()  # nothing is there to be lost
    life.append([(2, "gamma", None)])
    life.rows_counts_and_searches_agree()
    with pytest.raises(AssertionError):
        life.merge()
    with pytest.raises(AssertionError):
        life.rows_counts_and_searches_agree()
    life.rows = [row for row in life.rows if row[1] != 2]
    life.rows_counts_and_searches_agree()
    shutil.rmtree(life.folder)


@pytest.mark.long
def test_some_life_comes_upon_a_row_that_is_lost(lossy_merges) -> None:
    from hypothesis.stateful import run_state_machine_as_test

    with pytest.raises(AssertionError):
        run_state_machine_as_test(
            Life,
            settings=settings(
                max_examples=200, stateful_step_count=16, deadline=None, database=None,
                derandomize=True, phases=[Phase.generate], report_multiple_bugs=False,
            ),
        )  # fmt: skip
