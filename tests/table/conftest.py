"""What the tests of tables share: caches and temporary files of their own."""

from __future__ import annotations

import pytest


@pytest.fixture(scope="session")
def config(tmp_path_factory: pytest.TempPathFactory) -> dict[str, object]:
    """A configuration that leaves the user's folders alone."""
    return {
        "spark.indextables.cache.disk.path": str(tmp_path_factory.mktemp("cache")),
        "spark.indextables.indexWriter.tempDirectoryPath": str(tmp_path_factory.mktemp("splits")),
    }
