"""XRefs on an object store: built, linked and asked; a cold one is fetched with one request."""

from __future__ import annotations

import uuid

import pytest
from faulty_store import FaultyStore
from xrefs import MAPPING, SCHEMA, cover, link, rows_of, sources

from indextables import Table
from indextables.config import Config
from indextables.log.transaction_log import TransactionLog


@pytest.fixture(params=["s3", "azure"])
def server(request):
    """Skipped with the reason where a server cannot be started."""
    return request.getfixturevalue(request.param)


def test_routing_on_an_object_store(server, config):
    uri = f"{server.uri}/{uuid.uuid4().hex}"
    options = server.options
    table = Table.create(uri, SCHEMA, mapping=MAPPING, config=config, storage_options=options)
    for number in range(3):
        table.append(rows_of(number))
    splits = sources(table)
    parts = [cover(table, splits[:1]), cover(table, splits[1:])]
    linked = link(table, parts, [s.path for s in splits])
    store = FaultyStore(table.log.store)
    settings = Config(config)
    cold = Table.of_log(TransactionLog(store, config=settings))
    where = "body indexquery 'word2'"
    assert cold.scan(columns=["id"], where=where)["id"].to_pylist() == [2]
    assert "3 -> 1 splits" in cold.explain(where=where)
    assert cold.count(where=where) == 1
    for path in (linked.path, *(part.path for part in parts)):
        assert [o for o, p in store.operations if p == path] == ["get_range"]
