from __future__ import annotations

import os
import time

import pyarrow as pa
import pytest

from indextables.config import Config
from indextables.errors import ConfigError
from indextables.jobs.purge import purge
from indextables.log.transaction_log import TransactionLog
from indextables.storage import open_store
from indextables.table import Table

SCHEMA = pa.schema({"id": pa.int64(), "day": pa.string(), "body": pa.string()})
NO_FLOOR = Config({"spark.indextables.purge.retentionCheckEnabled": False})
DAYS = 86_400


def rows(*ids: int, day: str = "a") -> pa.Table:
    return pa.table(
        {"id": list(ids), "day": [day] * len(ids), "body": [f"word{i}" for i in ids]}, schema=SCHEMA
    )


def age(path, days: float) -> None:
    then = time.time() - days * DAYS
    for file in path.rglob("*"):
        if file.is_file():
            os.utime(file, (then, then))


def splits(path) -> set[str]:
    return {str(p.relative_to(path)) for p in path.rglob("*.split")}


@pytest.fixture
def table(tmp_path) -> Table:
    table = Table.create(tmp_path / "t", SCHEMA, partition_by=["day"])
    table.append(rows(1, 2))
    table.append(rows(3, day="b"))
    return table


def run(tmp_path, hours=None, dry_run=False, config=None):
    log = TransactionLog(open_store(tmp_path / "t"))
    return purge(log, retention_hours=hours, dry_run=dry_run, config=config or Config())


def orphan(tmp_path, name="day=a/splits/split-orphan.split"):
    path = tmp_path / "t" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"x" * 10)
    return path


def test_only_old_splits_that_nobody_names_go(table, tmp_path):
    live = splits(tmp_path / "t")
    old = orphan(tmp_path)
    xref = orphan(tmp_path, "_xrefsplits/abcd/xref-1.split")
    foreign = orphan(tmp_path, "notes.txt")
    age(tmp_path / "t", 8)
    young = orphan(tmp_path, "day=b/splits/split-young.split")
    found = run(tmp_path)
    assert found.files_deleted == 2
    assert found.bytes_deleted == 20
    assert not old.exists()
    assert not xref.exists()
    assert foreign.exists()
    assert young.exists()
    assert splits(tmp_path / "t") - {str(young.relative_to(tmp_path / "t"))} == live
    assert sorted(Table.open(tmp_path / "t").scan()["id"].to_pylist()) == [1, 2, 3]


def test_a_dry_run_deletes_nothing(table, tmp_path):
    path = orphan(tmp_path)
    age(tmp_path / "t", 8)
    found = run(tmp_path, dry_run=True)
    assert [m.path for m in found.orphans] == ["day=a/splits/split-orphan.split"]
    assert found.files_deleted == 0
    assert path.exists()


def test_removed_splits_stay_while_a_retained_version_names_them(table, tmp_path):
    before = splits(tmp_path / "t")
    table.overwrite(rows(9))
    age(tmp_path / "t", 8)
    run(tmp_path)
    assert before <= splits(tmp_path / "t")
    assert Table.open(tmp_path / "t", version=2).count() == 3


def test_what_only_a_checkpoint_names_stays(table, tmp_path):
    table.checkpoint()
    log = tmp_path / "t" / "_transaction_log"
    for version in log.glob("*.json"):
        version.unlink()
    age(tmp_path / "t", 8)
    assert run(tmp_path).files_deleted == 0
    assert Table.open(tmp_path / "t").count() == 3


def test_several_runs_do_not_corrupt_step_by_step(table, tmp_path):
    for round_ in range(12):
        table.overwrite(rows(round_))
        age(tmp_path / "t", 40)
        run(tmp_path)
        assert table.scan()["id"].to_pylist() == [round_]
        assert (
            Table.open(tmp_path / "t").scan(where=f"body indexquery 'word{round_}'").num_rows == 1
        )
    assert len(splits(tmp_path / "t")) < 12


def test_a_retention_that_is_too_short_is_refused(table, tmp_path):
    with pytest.raises(ConfigError, match="at least 24 hours"):
        run(tmp_path, hours=23)
    with pytest.raises(ConfigError, match="negative"):
        run(tmp_path, hours=-1, config=NO_FLOOR)
    path = orphan(tmp_path)
    age(tmp_path / "t", 0.1)
    assert run(tmp_path, hours=1, config=NO_FLOOR).files_deleted == 1
    assert not path.exists()


def test_the_default_retention_and_the_limit_are_configured(table, tmp_path):
    for n in range(5):
        orphan(tmp_path, f"day=a/splits/split-{n}.split")
    age(tmp_path / "t", 3)
    assert run(tmp_path).files_deleted == 0
    few = Config({"spark.indextables.purge.defaultRetentionHours": 48,
                  "spark.indextables.purge.maxFilesToDelete": 2})  # fmt: skip
    assert run(tmp_path, config=few).files_deleted == 2


def test_one_listing_and_no_request_per_file_but_the_deletes(table, tmp_path):
    from faulty_store import FaultyStore

    for n in range(30):
        orphan(tmp_path, f"day=a/splits/split-{n}.split")
    age(tmp_path / "t", 8)
    store = FaultyStore(open_store(tmp_path / "t"))
    purge(TransactionLog(store), retention_hours=None, dry_run=False, config=Config())
    assert [p for o, p in store.operations if o == "list"].count("") == 1
    assert store.count("delete", ".split") == 1
    assert not [p for o, p in store.operations if o in ("head", "get") and p.endswith(".split")]


def test_the_table_has_the_verb(table, tmp_path):
    orphan(tmp_path)
    age(tmp_path / "t", 8)
    assert len(table.purge(dry_run=True).orphans) == 1
    assert table.purge(older_than_hours=24 * 9).files_deleted == 0
    assert table.purge().files_deleted == 1
    with pytest.raises(ConfigError, match="to be read"):
        Table.open(tmp_path / "t", version=1).purge()
