"""What the processes of the log's race do; here because a spawned process imports it."""

from __future__ import annotations

from logs import add, append, paths

from indextables.config import Config
from indextables.errors import ConflictError
from indextables.log.actions import Remove
from indextables.log.transaction import Operation, Transaction
from indextables.log.transaction_log import TransactionLog
from indextables.storage import open_store

APPENDS = 25

# Many writers on one table need more patience than the default.
PATIENT = {
    "spark.indextables.transaction.retry.maxAttempts": 1000,
    "spark.indextables.transaction.retry.baseDelayMs": 20,
    "spark.indextables.transaction.retry.maxDelayMs": 400,
}


def append_many(uri, options, number, start, results):
    start.wait()
    log = TransactionLog(open_store(uri, options), config=Config(PATIENT))
    for turn in range(APPENDS):
        path = f"day=1/splits/w{number}-{turn}.split"
        results.put((append(log, add(path)).version, path))


def compact_many(uri, options, start, stop, results):
    """Replaces pairs of files by one, as a merge does, until it is stopped."""
    start.wait()
    log = TransactionLog(open_store(uri, options), config=Config(PATIENT))
    merged = 0
    while not stop.is_set() or merged < 3:
        snapshot = log.snapshot()
        files = sorted(paths(snapshot))
        if len(files) < 2:
            continue
        sources = files[:2]
        name = f"day=1/splits/merged-{merged}.split"
        log.store.put(name, b"x")
        actions = [
            *(Remove(path=p, data_change=False) for p in sources),
            add(name, data_change=False, tags={"sources": "+".join(sources)}),
        ]
        transaction = Transaction(
            operation=Operation.MERGE, actions=actions, read_version=snapshot.version
        )
        try:
            version = log.commit(transaction).version
        except ConflictError:
            continue
        merged += 1
        results.put((version, name))
