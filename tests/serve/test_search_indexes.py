"""A search index in a bucket, served: rows, versions of its source, a source that moves on."""

from __future__ import annotations

import pyarrow as pa
import pytest
from deltalake import write_deltalake
from serving import Client, running

import indextables as it
from indextables.lake.opening import open_table
from indextables.serve import tables as served


@pytest.fixture
def bucket(s3, tmp_path):
    """The place of a source and of its index, and options for both."""
    root, options = f"s3://tables/{tmp_path.name}-served", dict(s3.options)
    text = {key: str(value) for key, value in options.items()}

    def write(first: int, count: int) -> None:
        numbers = range(first, first + count)
        rows = pa.table(
            {
                "id": numbers,
                "level": ["info" if n % 3 else "warn" for n in numbers],
                "body": [f"red fox w{n}" if n % 2 else f"lazy dog w{n}" for n in numbers],
            }
        )
        write_deltalake(f"{root}/source", rows, mode="append", storage_options=text)

    write(0, 10)
    it.SearchIndex.create(
        f"{root}/index", source=f"{root}/source", format="delta", columns=["body", "level"],
        storage_options=options,
    )  # fmt: skip
    return root, options, write


def found(client: Client, **asked: object) -> dict:
    answer = client.post("/api/tables/docs/search", {"limit": 50, **asked})
    assert answer.status_code == 200, answer.text
    return answer.json()


def test_an_index_in_a_bucket_is_served(bucket, monkeypatch):
    root, options, write = bucket
    monkeypatch.setattr(served, "_FRESH_S", 0.0)  # every request looks for what is new

    def open_(place: str, version: int | None) -> it.Table:
        return open_table(place, version=version, storage_options=options)

    with running({"docs": f"{root}/index"}, open_) as client:
        for _ in range(2):
            first = found(client, query="fox", facets=["level"], snippets=True)
            assert (first["total"], first["version"]) == (5, 0)
            assert {f["value"]: f["count"] for f in first["facets"]["level"]} == {
                "info": 3, "warn": 2
            }  # fmt: skip
        write(10, 4)  # not indexed yet, and seen at once
        assert (found(client, query="fox")["total"], found(client)["version"]) == (7, 1)
        past = found(client, query="fox", version=0)
        assert (past["total"], past["version"]) == (5, 0)
        assert "SearchIndex.open" in past["same"]["python"]
        assert "version=0" in past["same"]["python"]
        index = it.SearchIndex.open(f"{root}/index", storage_options=options)
        index.refresh()
        assert index.merge_splits().files_added == 1
        assert found(client, query="fox", where="id > 10")["total"] == 2
        (listed,) = client.get("/api/tables").json()["tables"]
        assert (listed["rows"], listed["version"]) == (14, 1)
        refused = client.get("/api/tables/docs/changes", {"since": 0})
        assert refused.status_code == 400 and "search index" in refused.text
        rows = client.get("/api/tables/docs/export", {"query": "fox", "format": "json"})
        assert rows.status_code == 200
        assert len(rows.text.splitlines()) == 7
        for page in ("", "/history", "/report", "/words?text=fo"):
            answer = client.get(f"/api/tables/docs{page}")
            assert answer.status_code == 200, (page, answer.text)
