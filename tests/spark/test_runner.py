"""Tasks on executors, and logs that are read there."""

from __future__ import annotations

import itertools
import pickle
import threading
import uuid
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa
import pytest

from indextables import Table, errors
from indextables.config import Config
from indextables.log.actions import Add, Remove
from indextables.log.reader import ReadVersion
from indextables.log.snapshot import VersionActions, empty_snapshot
from indextables.log.transaction_log import TransactionLog
from indextables.runner import LocalRunner
from indextables.spark.runner import (
    DistributedLogRunner,
    SparkRunner,
    _caches,
    parallelism,
    read_version,
    runner_of,
)
from indextables.storage import open_store

SCHEMA = pa.schema([("id", pa.int64())])


def square(n):
    return n * n


def fail(n):
    raise errors.UnknownColumnError("x", available=["a", "b"])


def wait(n):
    threading.Event().wait(n)


def test_results_in_the_order_of_the_tasks(spark):
    assert SparkRunner(spark).map(square, list(range(7))) == [n * n for n in range(7)]
    assert SparkRunner(spark, parallelism=2).map(square, list(range(7)))[-1] == 36
    assert SparkRunner(spark).map(square, []) == []
    ended: list[int] = []
    SparkRunner(spark, parallelism=2).map(square, list(range(7)), ended=ended.append)
    assert sorted(ended) == list(range(7))


def test_an_error_of_a_task_is_raised_as_it_is(spark):
    with pytest.raises(errors.UnknownColumnError) as caught:
        SparkRunner(spark).map(fail, [1])
    assert caught.value.available == ("a", "b")


def test_tasks_that_take_too_long(spark):
    with pytest.raises(TimeoutError):
        SparkRunner(spark).map(wait, [60], timeout_s=1.5)
    assert SparkRunner(spark).map(square, [3], timeout_s=60) == [9]


@pytest.mark.parametrize(
    ("files", "expected"), [(5, 1), (50, 8), (99, 8), (100, 10), (500, 16), (5000, 16)]
)
def test_adaptive_parallelism(files, expected):
    assert parallelism(files, Config(), default=8) == expected


def test_fixed_parallelism():
    fixed = {"spark.indextables.transaction.distributed.adaptiveParallelism": "false",
             "spark.indextables.transaction.distributed.parallelism": "20"}  # fmt: skip
    assert parallelism(500, Config(fixed), default=8) == 20


# --- the distributed log: the cases of the seed's §3.6.8 -------------------------------------


def add(path, tag=""):
    return Add(path=path, size=1, partition_values={"v": tag})


def test_a_task_survives_pickling(tmp_path):
    task = ReadVersion(open_store(tmp_path), 7, 1000)
    again = pickle.loads(pickle.dumps(task))
    assert (again.version, again.limit, again.store.uri) == (7, 1000, task.store.uri)


@pytest.mark.parametrize("order", list(itertools.permutations((100, 101, 102))))
def test_versions_are_applied_in_their_order_whatever_order_they_come_in(order):
    removed = Remove(path="file1", deletion_timestamp=0, data_change=True)
    actions = {100: add("file1", "100"), 101: removed, 102: add("file1", "102")}
    versions = [VersionActions(version, (actions[version],), 0) for version in order]
    state = empty_snapshot("x").advance(versions)
    assert (state.num_files, state.version) == (1, 102)
    assert dict(state.entries["partitionValues"].to_pylist()[0]) == {"v": "102"}
    assert empty_snapshot("x").advance(versions[::-1]).entries.equals(state.entries)


def test_executors_may_answer_in_any_order(busy_table):
    class Shuffled(Executors):
        def map(self, function, tasks, *, timeout_s=None, ended=None):
            return super().map(function, tasks)[::-1]

    table = Table.open(busy_table)
    table.overwrite(pa.table({"id": [50]}))
    table.append(pa.table({"id": [51]}))
    whole = {"transaction.useOptimized": "false"}
    for settings in ({}, whole):
        snapshot, runner = read(busy_table, Shuffled(), **settings)
        assert runner.distributed == 1
        assert (snapshot.version, snapshot.num_files) == (13, 2)
        assert sorted(snapshot.files["path"].to_pylist()) == sorted(
            table.snapshot().files["path"].to_pylist()
        )


class Executors:
    """Stands for executors: tasks run in threads of this process, in any order."""

    def __init__(self, error=None):
        self.calls = []
        self.error = error

    def map(self, function, tasks, *, timeout_s=None, ended=None):
        self.calls.append(len(tasks))
        if self.error:
            raise self.error
        with ThreadPoolExecutor(4) as pool:
            return list(pool.map(function, tasks))


@pytest.fixture
def busy_table(tmp_path):
    """A table with 12 versions and no checkpoint."""
    config = {"spark.indextables.checkpoint.enabled": "false"}
    table = Table.create(tmp_path / "t", SCHEMA, config=config)
    for n in range(11):
        table.append(pa.table({"id": [n]}))
    return str(tmp_path / "t")


def read(path, executors, **settings):
    config = Config({f"spark.indextables.{k}": v for k, v in settings.items()})
    runner = DistributedLogRunner(executors, config, default_parallelism=2)
    return TransactionLog(open_store(path), config=config, runner=runner).snapshot(), runner


def test_executors_read_what_the_driver_would(busy_table):
    executors = Executors()
    snapshot, runner = read(busy_table, executors)
    assert snapshot.num_files == 11
    assert runner.distributed == 1
    assert executors.calls == [12]


def test_small_logs_stay_on_the_driver(busy_table):
    executors = Executors()
    settings = {"transaction.distributed.minFiles": "13"}
    assert read(busy_table, executors, **settings)[0].num_files == 11
    assert executors.calls == []


@pytest.mark.parametrize(
    "error",
    [RuntimeError("lost"), errors.StorageError("no credentials here"), TimeoutError("slow")],
    ids=["lost", "store", "timeout"],
)
def test_failing_executors_fall_back_to_the_driver(busy_table, caplog, error):
    snapshot, runner = read(busy_table, Executors(error))
    assert snapshot.num_files == 11
    assert runner.distributed == 0
    assert "the driver does" in caplog.text


def test_only_files_after_a_checkpoint_are_read(busy_table):
    Table.open(busy_table).checkpoint()
    for n in range(3):
        Table.open(busy_table).append(pa.table({"id": [n]}))
    executors = Executors()
    settings = {"transaction.distributed.minFiles": "1"}
    assert read(busy_table, executors, **settings)[0].num_files == 14
    assert executors.calls == [3]


def test_executors_keep_parsed_files_while_they_are_the_same(tmp_path):
    store = open_store(tmp_path / "cached")
    for content in ("a", "b"):
        Table.create(tmp_path / "cached", SCHEMA, name=content)
        task = ReadVersion(store, 0, 1 << 20)
        first = read_version(task)
        assert read_version(task) is first
        assert first.actions[-1].name == content or any(
            getattr(a, "name", None) == content for a in first.actions
        )
        store.delete([meta.path for meta in store.list()])


def test_invalidation_reaches_the_executor_cache(tmp_path):
    from indextables.log.cache import caches_by_store

    Table.create(tmp_path / "t", SCHEMA)
    store = open_store(tmp_path / "t")
    read_version(ReadVersion(store, 0, 1 << 20))
    cache = _caches[store.identity][0]
    assert cache in caches_by_store()[store.identity]
    assert len(cache.versions) == 1
    cache.invalidate()
    assert len(cache.versions) == 0


def test_version_files_are_read_by_spark_tasks(spark, busy_table):
    snapshot, runner = read(busy_table, SparkRunner(spark))
    assert snapshot.num_files == 11
    assert runner.distributed == 1


def test_what_executors_did_is_counted(busy_table, caplog):
    executors = Executors()
    with caplog.at_level("INFO", logger="indextables.spark.runner"):
        runners = [read(busy_table, executors)[1] for _ in range(2)]
    first, second = (runner.last_read for runner in runners)
    assert (first.files, first.cached_files, first.hit_rate) == (12, 0, 0.0)
    assert (second.files, second.cached_files, second.hit_rate) == (12, 12, 1.0)
    assert first.seconds > 0
    assert "12 of them from their caches" in caplog.text
    assert (
        read(busy_table, executors, **{"transaction.distributed.minFiles": "13"})[1].last_read
        is None
    )


def test_executors_read_the_log_of_a_remote_store_with_overwrites(spark, s3):
    """Reads repeat, files come and go, and a table is made anew in the same place."""
    uri = f"{s3.uri}/{uuid.uuid4().hex}"
    off = {"spark.indextables.checkpoint.enabled": "false"}
    table = Table.create(uri, SCHEMA, config=off, storage_options=s3.options)
    for n in range(5):
        table.append(pa.table({"id": [n]}))
    table.overwrite(pa.table({"id": [100]}))
    for n in range(4):
        table.append(pa.table({"id": [n]}))
    table.delete(where="id = 100")
    on = Config({"spark.indextables.transaction.distributed.enabled": "true"})
    store = open_store(uri, s3.options)

    def paths(runner=None):
        log = TransactionLog(store, config=on, runner=runner)
        return sorted(log.snapshot().files["path"].to_pylist())

    for _ in range(2):
        runner = runner_of(spark)(store, on)
        assert paths(runner) == paths()
        assert (runner.distributed, runner.last_read.files) == (1, 12)
    assert len(paths()) == 4
    store.delete([meta.path for meta in store.list("_transaction_log")])
    again = Table.create(uri, SCHEMA, config=off, storage_options=s3.options)
    for n in range(11):
        again.append(pa.table({"id": [n]}))
    runner = runner_of(spark)(store, on)
    assert paths(runner) == paths()
    assert runner.distributed == 1


def test_local_disks_and_a_disabled_switch_choose_the_driver(spark, tmp_path, monkeypatch):
    choose = runner_of(spark)
    assert choose(open_store(tmp_path), Config()) is None
    remote = open_store("s3://bucket/table", {"region": "eu-west-1"})
    on = Config({"spark.indextables.transaction.distributed.enabled": "true"})
    assert isinstance(choose(remote, on), DistributedLogRunner)
    assert choose(open_store(tmp_path), on) is None
    assert choose(remote, Config()) is None  # off unless it is asked for


def test_a_local_runner_is_a_runner():
    assert LocalRunner(2).map(square, [2]) == [4]
