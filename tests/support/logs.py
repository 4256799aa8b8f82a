"""Small tables for tests of the log."""

from __future__ import annotations

import itertools
import uuid

import orjson

from indextables.config import Config
from indextables.log.actions import Add, AddXRef, Metadata, Remove
from indextables.log.transaction import Operation, Transaction
from indextables.log.transaction_log import TransactionLog
from indextables.storage import Store, open_store
from indextables.storage.local import LocalStore

_numbers = itertools.count()


def memory_store() -> Store:
    return open_store(f"memory://test-{uuid.uuid4()}")


def schema_string(*columns: str, kind: str = "string") -> str:
    fields = [{"name": c, "type": kind, "nullable": True, "metadata": {}} for c in columns]
    return orjson.dumps({"type": "struct", "fields": fields}).decode()


def metadata(*partition_columns: str, **configuration: str) -> Metadata:
    return Metadata(
        id="table-1",
        schema_string=schema_string("id", "body", *partition_columns),
        partition_columns=partition_columns,
        configuration=configuration,
        created_time=1,
    )


def new_log(
    store: Store | None = None, options: dict[str, object] | None = None, **parts
) -> TransactionLog:
    """A new table with partition column `day`, without pauses between retries."""
    config = Config({"spark.indextables.transaction.retry.baseDelayMs": 0} | (options or {}))
    store = store or memory_store()
    TransactionLog.create(store, metadata("day"), config=config)
    return TransactionLog(store, config=config, **parts)


def add(path: str | None = None, *, day: str | None = "1", size: int = 10, **fields) -> Add:
    name = path or f"day={day}/splits/split-{next(_numbers)}.split"
    return Add(path=name, partition_values={"day": day}, size=size, num_records=1, **fields)


def append(log: TransactionLog, *adds: Add):
    adds = adds or (add(),)
    if isinstance(log.store, LocalStore):  # where a commit looks whether its files are there
        for one in adds:
            log.store.put(one.path, b"x" * one.size)
    return log.commit(Transaction(operation=Operation.APPEND, actions=adds))


def remove(log: TransactionLog, *paths: str, operation: Operation = Operation.REWRITE):
    actions = [Remove(path=p) for p in paths]
    return log.commit(Transaction(operation=operation, actions=actions))


def paths(snapshot) -> set[str]:
    found = snapshot.files["path"].to_pylist()
    assert len(found) == len(set(found)), "a file is doubled"
    return set(found)


def xref(name: str, *sources: str) -> AddXRef:
    return AddXRef(
        path=f"_xrefsplits/aaaa/xref-{name}.split", xref_id=name, source_split_paths=sources,
        source_split_count=len(sources), size=1, total_terms=1, footer_start_offset=0,
        footer_end_offset=1, created_time=1, build_duration_ms=1, max_source_splits=10,
    )  # fmt: skip
