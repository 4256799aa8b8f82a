"""What a flush does to others: processes that share a disk cache, logs that are open elsewhere."""

from __future__ import annotations

import gc

import pyarrow as pa

from indextables import Table
from indextables.config import Config
from indextables.log.cache import LogCache, caches_by_store, total_stats, tracked
from indextables.plan.execute import Environment, close_indexes
from indextables.storage.disk_cache import DiskCache, DiskUsage

ROWS = pa.table({"id": pa.array([1, 2], pa.int64()), "body": ["red fox", "lazy dog"]})


def searched(tmp_path, name):
    config = {"spark.indextables.cache.disk.path": str(tmp_path / "cache")}
    table = Table.create(f"memory://{tmp_path.name}-{name}", ROWS.schema, config=config)
    table.append(ROWS)
    assert table.search("fox").num_rows == 1
    return table, Environment.of(table.view.with_settings(Config(config))).pool


def test_a_flush_by_another_process_closes_open_indexes(tmp_path):
    table, pool = searched(tmp_path, "generations")
    assert len(pool) == 1, "of all splits together"
    assert pool.follow() is pool
    assert len(pool) == 1
    elsewhere = DiskCache(tmp_path / "cache", 1 << 30)
    freed = elsewhere.flush()
    assert freed.files > 0
    assert len(pool.follow()) == 0
    assert table.search("fox").num_rows == 1
    assert len(pool) == 1
    assert close_indexes() >= 1
    assert len(pool) == 0


def test_usage_and_generation_of_a_disk_cache(tmp_path):
    cache = DiskCache(tmp_path / "cache", 1 << 30)
    assert cache.generation is None
    assert cache.usage() == DiskUsage(0, 0)
    _, pool = searched(tmp_path, "usage")
    held, first = cache.usage(), cache.generation
    assert held.files > 0
    assert first is not None
    assert cache.flush() == held
    assert cache.usage() == DiskUsage(0, 0)
    assert cache.generation not in (None, first)
    assert cache.flush() == DiskUsage(0, 0)
    pool.clear()


def test_the_generation_of_a_folder_that_cannot_be_read(tmp_path):
    (tmp_path / "file").write_text("no folder")
    assert DiskCache(tmp_path / "file", 1).generation is None


def test_logs_are_known_while_they_live():
    first, second = LogCache(Config()), LogCache(Config())
    tracked(first, "store-of-this-test")
    tracked(second, "store-of-this-test")
    known = caches_by_store()["store-of-this-test"]
    assert {id(c) for c in known} == {id(first), id(second)}
    assert first.latest() is None
    assert total_stats(known).misses == 1
    del known, first, second
    gc.collect()
    assert "store-of-this-test" not in caches_by_store()


def test_a_table_made_anew_at_the_same_place_is_not_the_old_one(tmp_path):
    import shutil

    old = Table.create(str(tmp_path / "t"), ROWS.schema)
    old.append(ROWS)
    assert old.count() == 2
    shutil.rmtree(tmp_path / "t")
    Table.create(str(tmp_path / "t"), ROWS.schema)
    assert Table.open(str(tmp_path / "t")).count() == 0
