"""After a prewarm a search asks the store for rows only."""

from __future__ import annotations

import pickle
import uuid

import pyarrow as pa
from faulty_store import FaultyStore

from indextables import Table
from indextables.config import Config
from indextables.log.transaction_log import TransactionLog
from indextables.plan.execute import close_indexes
from indextables.storage import open_store

SCHEMA = pa.schema([("id", pa.int64()), ("body", pa.string())])


def test_a_search_after_a_prewarm_fetches_no_index(tmp_path):
    uri = f"memory://prewarm-{uuid.uuid4().hex}"
    config = {"spark.indextables.cache.disk.path": str(tmp_path / "cache")}
    table = Table.create(uri, SCHEMA, config=config)
    for n in range(3):
        table.append(pa.table({"id": [n], "body": [f"word{n} common"]}, schema=SCHEMA))

    def opened() -> tuple[FaultyStore, Table]:
        store = FaultyStore(open_store(uri))
        return store, Table.of_log(TransactionLog(store, config=Config(config)))

    def asked(store: FaultyStore) -> list[str]:
        return [o for o, path in store.operations if path.endswith(".split")]

    store, cold = opened()
    assert cold.count(where="body indexquery 'common'") == 3
    assert asked(store)
    close_indexes()
    store, warm = opened()
    done = warm.prewarm()
    assert (done.splits, done.failed) == (3, {})
    assert done.segments >= 3
    store.operations.clear()
    assert warm.count(where="body indexquery 'common'") == 3
    assert asked(store) == []
    assert warm.scan(columns=["id"], where="body indexquery 'word2'")["id"].to_pylist() == [2]
    assert asked(store) == ["get_ranges"], "the rows of the hit, and nothing else"


def test_a_plan_travels(tmp_path):
    table = Table.create(tmp_path / "t", SCHEMA)
    table.append(pa.table({"id": [1], "body": ["word"]}, schema=SCHEMA))
    plan = pickle.loads(pickle.dumps(table.plan_prewarm(fields=["body"])))
    assert plan().splits == 1
