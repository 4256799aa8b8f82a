"""Servers that benchmarks talk to, on loopback, for as long as they need them."""

from __future__ import annotations

import contextlib
import importlib.util
from collections.abc import Iterator
from pathlib import Path


@contextlib.contextmanager
def s3_server() -> Iterator[tuple[str, dict[str, str]]]:
    """The URI of a bucket on the S3 server of the tests, and the options to reach it."""
    file = Path(__file__).parents[1] / "tests" / "support" / "servers.py"
    spec = importlib.util.spec_from_file_location("servers", file)
    assert spec is not None and spec.loader is not None
    servers = importlib.util.module_from_spec(spec)
    import sys

    sys.modules["servers"] = servers  # dataclasses look their module up
    spec.loader.exec_module(servers)
    with servers.s3_server() as server:
        yield server.uri, server.options
