"""One fixture, `store`: an empty store of every kind."""

from __future__ import annotations

import uuid
from pathlib import Path

import pytest
from pyarrow import fs

from indextables.storage import Store, open_store
from indextables.storage.arrow_filesystem import ArrowStore

KINDS = ("memory", "local", "arrow", "s3", "azure")


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def store(kind: str, request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    name = f"t {uuid.uuid4().hex[:12]}/a%20b"
    if kind == "memory":
        return open_store(f"memory://{name}")
    if kind == "local":
        return open_store(tmp_path / "root a%20b")
    if kind == "arrow":
        root = tmp_path / "root a%20b"
        return ArrowStore(fs.LocalFileSystem(), str(root), uri=f"arrow:{root}", single_writer=True)
    server = request.getfixturevalue(kind)
    return open_store(f"{server.uri}/{name}", server.options)
