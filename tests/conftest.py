"""What all tests share: the support modules on the path, hypothesis profiles, object stores."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

sys.path.insert(0, str(Path(__file__).parent / "support"))

from servers import Server, ServerUnavailableError, azure_server, s3_server

settings.register_profile("ordinary", deadline=None)
settings.register_profile("long", deadline=None, max_examples=5_000)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--long", action="store_true", help="run the tests that take minutes")


def pytest_configure(config: pytest.Config) -> None:
    settings.load_profile("long" if config.getoption("--long") else "ordinary")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if not config.getoption("--long"):
        for item in items:
            if item.get_closest_marker("long"):
                item.add_marker(pytest.mark.skip(reason="takes minutes; run with --long"))


@pytest.fixture(scope="session")
def s3() -> Iterator[Server]:
    """An S3 server with the bucket `tables`."""
    with s3_server() as server:
        yield server


@pytest.fixture(scope="session")
def azure() -> Iterator[Server]:
    """An Azure Blob Storage server with the container `tables`."""
    try:
        context = azure_server()
        server = context.__enter__()
    except ServerUnavailableError as reason:
        pytest.skip(str(reason))
    try:
        yield server
    finally:
        context.__exit__(None, None, None)
