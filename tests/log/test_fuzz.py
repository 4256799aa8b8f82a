"""Bytes of log files flipped and cut: an error or the truth, never a wrong snapshot."""

from __future__ import annotations

import random

import pytest
from logs import add, append, memory_store, new_log, paths, remove

from indextables.errors import IndexTablesError
from indextables.log.actions import Skip
from indextables.log.transaction import Operation, Transaction
from indextables.log.transaction_log import TransactionLog

TRIES = 2_000
VARIANTS = [
    {
        "spark.indextables.state.format": state,
        "spark.indextables.transaction.compression.enabled": z,
    }
    for state in ("avro", "json")
    for z in (True, False)
]


def table(variant):
    often = {
        "spark.indextables.checkpoint.interval": 3,
        "spark.indextables.checkpoint.actionsPerPart": 6,
    }
    log = new_log(options=variant | often)
    for number in range(1, 12):
        if number % 4 == 0:
            remove(log, f"day=1/f{number - 1}.split")
        else:
            mapping = f'[{{"name":"c{number % 2}"}}]'
            stats = {"id": str(number)}
            append(log, add(f"day=1/f{number}.split", size=number, min_values=stats,
                            max_values=stats, doc_mapping_json=mapping))  # fmt: skip
    skip = Skip(
        path="day=1/f1.split", skip_timestamp=1, reason="r", operation="m", retry_after=10**15
    )
    log.commit(Transaction(operation=Operation.SKIP, actions=[skip]))
    return log


def facts(snapshot):
    """All that a reader believes."""
    return (
        snapshot.version, snapshot.timestamp, paths(snapshot), snapshot.protocol, snapshot.metadata,
        snapshot.files.sort_by("path").to_pylist(), dict(snapshot.skips),
    )  # fmt: skip


def damage(data: bytes, draw: random.Random) -> bytes:
    if draw.random() < 0.3:
        return data[: draw.randrange(len(data))]
    flipped = bytearray(data)
    for _ in range(draw.choice([1, 1, 1, 2, 8])):
        flipped[draw.randrange(len(flipped))] ^= 1 << draw.randrange(8)
    return bytes(flipped)


@pytest.mark.parametrize("variant", range(len(VARIANTS)))
def test_no_wrong_snapshot(variant):
    log = table(VARIANTS[variant])
    expected = {v: facts(TransactionLog(log.store).snapshot(version=v)) for v in range(13)}
    objects = {m.path: log.store.get(m.path) for m in log.store.list("_transaction_log")}
    draw = random.Random(variant)
    refused = 0
    for _ in range(TRIES // len(VARIANTS)):
        path = draw.choice(sorted(objects))
        log.store.put(path, damage(objects[path], draw))
        wanted = draw.choice([None, *expected])
        try:
            found = facts(TransactionLog(log.store).snapshot(version=wanted))
        except IndexTablesError:
            refused += 1
        else:
            assert found == expected[12 if wanted is None else wanted], f"damaged {path}"
        log.store.put(path, objects[path])
    assert refused, "damage was never noticed: the test does not reach the log"
    assert memory_store() is not log.store
