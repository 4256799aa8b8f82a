"""Many processes on one table, on a real disk and on S3."""

from __future__ import annotations

import multiprocessing
import queue
from collections import Counter

import pytest
from log_processes import APPENDS, append_many, compact_many
from logs import metadata, paths

from indextables.config import Config
from indextables.log.actions import Add
from indextables.log.transaction_log import TransactionLog
from indextables.storage import open_store

WRITERS = 8


@pytest.mark.parametrize(
    ("place", "compaction"),
    [
        pytest.param("local", False, id="local-appends", marks=pytest.mark.long),
        pytest.param("local", True, id="local-with-compaction"),
        pytest.param("s3", False, id="s3-appends"),
        pytest.param("s3", True, id="s3-with-compaction", marks=pytest.mark.long),
    ],
)
def test_eight_processes_append(place, compaction, tmp_path, request):
    if place == "local":
        uri, options = str(tmp_path), None
    else:
        server = request.getfixturevalue("s3")
        uri, options = f"s3://tables/{tmp_path.name}-{compaction}", server.options
    TransactionLog.create(open_store(uri, options), metadata("day"))
    context = multiprocessing.get_context("forkserver")
    results, start, stop = context.Queue(), context.Event(), context.Event()
    writers = [
        context.Process(target=append_many, args=(uri, options, n, start, results))
        for n in range(WRITERS)
    ]
    compactors = [
        context.Process(target=compact_many, args=(uri, options, start, stop, results))
        for _ in range(compaction)
    ]
    for process in writers + compactors:
        process.start()
    start.set()
    acknowledged = [results.get(timeout=240) for _ in range(WRITERS * APPENDS)]
    stop.set()
    while any(p.is_alive() for p in writers + compactors) or not results.empty():
        try:
            acknowledged.append(results.get(timeout=0.2))
        except queue.Empty:
            continue
    assert [p.exitcode for p in writers + compactors] == [0] * (WRITERS + compaction)
    _check(open_store(uri, options), acknowledged, compaction)


def _check(store, acknowledged, compaction):
    log = TransactionLog(store)
    last = log.snapshot().version
    if not compaction:
        assert last == WRITERS * APPENDS
    assert sorted(v for v, _ in acknowledged) == list(range(1, last + 1)), (
        "a version lost or doubled"
    )
    for version, path in acknowledged:
        added = [a.path for a in log.actions(version).actions if isinstance(a, Add)]
        assert added == [path]
    # Follow every merged file to its sources: each append is in the table exactly once.
    sources = {}
    for version, _ in acknowledged:
        for action in log.actions(version).actions:
            if isinstance(action, Add) and action.tags:
                sources[action.path] = action.tags["sources"].split("+")

    def leaves(path):
        return [leaf for s in sources[path] for leaf in leaves(s)] if path in sources else [path]

    live = Counter(leaf for path in paths(log.snapshot()) for leaf in leaves(path))
    expected = {p for _, p in acknowledged if "/w" in p}
    assert live == Counter(expected)
    slow = TransactionLog(
        store, config=Config({"spark.indextables.transaction.useOptimized": False})
    )
    assert paths(slow.snapshot()) == paths(log.snapshot())
