"""A table and its first rows are one commit."""

from __future__ import annotations

import pyarrow as pa
import pytest

from indextables.config import Config
from indextables.errors import TableExistsError
from indextables.jobs.write_job import create_table
from indextables.log.transaction_log import TransactionLog
from indextables.storage import open_store
from indextables.table import Table

SCHEMA = pa.schema([("n", pa.int64())])


def create(uri, batches):
    reader = pa.RecordBatchReader.from_batches(SCHEMA, batches)
    log = TransactionLog(open_store(uri))
    return create_table(log, None, reader, settings=Config(), partition_by=(), properties={})


def batch(*values):
    return pa.record_batch({"n": pa.array(values, pa.int64())})


def test_version_0_has_the_rows(tmp_path):
    written = create(tmp_path, [batch(1, 2), batch(3)])
    assert (written.version, written.rows, written.files_added) == (0, 3, 1)
    assert sorted(Table.open(tmp_path, version=0).scan()["n"].to_pylist()) == [1, 2, 3]
    Table.open(tmp_path).append(pa.table({"n": [4]}))
    assert Table.open(tmp_path).count() == 4


def test_no_rows_make_an_empty_table(tmp_path):
    assert create(tmp_path, []).rows == 0
    assert Table.open(tmp_path).schema.names == ["n"]


def test_rows_that_cannot_be_read_leave_nothing(tmp_path):
    def broken():
        yield batch(1)
        raise ValueError("the file ends here")

    with pytest.raises(ValueError, match="ends here"):
        create(tmp_path, broken())
    assert not Table.exists(tmp_path) and not list(tmp_path.rglob("*.split"))


def test_a_table_that_is_there_is_not_touched(tmp_path):
    Table.create(tmp_path, SCHEMA).append(pa.table({"n": [7]}))
    with pytest.raises(TableExistsError):
        create(tmp_path, [batch(1)])
    assert Table.open(tmp_path).scan()["n"].to_pylist() == [7]


def test_a_table_that_somebody_creates_meanwhile_wins(tmp_path):
    def slow():
        yield batch(1)
        Table.create(tmp_path, SCHEMA).append(pa.table({"n": [7]}))
        yield batch(2)

    with pytest.raises(TableExistsError):
        create(tmp_path, slow())
    assert Table.open(tmp_path).scan()["n"].to_pylist() == [7]
    assert len(list(tmp_path.rglob("*.split"))) == 1, "the loser's splits are gone"
