"""What the tests of splits share: writing rows to a split and opening it."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

sys.path.insert(0, str(Path(__file__).parent))

from indextables.config import Config
from indextables.predicate import Column, Search
from indextables.predicate.search_syntax import parse_search
from indextables.split.mapping_options import build_mapping
from indextables.split.open_split import IndexPool, SplitFile, SplitSearcher
from indextables.split.search.query import SearchContext
from indextables.split.write.writer import SplitWriter
from indextables.storage.disk_cache import DiskCache
from indextables.storage.local import LocalStore

PREFIX = "spark.indextables."


def configuration(**options: object) -> Config:
    """`configuration(**{"text.indexRecordOption": "freq"})`."""
    return Config({PREFIX + name: value for name, value in options.items()})


def query(text: str, column: str | None = None) -> Search:
    path = None if column is None else Column((column,))
    return Search(path, parse_search(text), text)


@pytest.fixture(scope="session")
def _pool(tmp_path_factory: pytest.TempPathFactory) -> IndexPool:
    return IndexPool(DiskCache(tmp_path_factory.mktemp("cache"), 1 << 30))


Make = Callable[..., SplitSearcher]


@pytest.fixture
def make(tmp_path: Path, make_in: Callable[[Path], Make]) -> Make:
    """Write rows to a split and open it for searching."""
    return make_in(tmp_path)


@pytest.fixture(scope="session")
def make_in(_pool: IndexPool) -> Callable[[Path], Make]:
    """The same in a folder."""

    def make_split(
        folder: Path,
        table: pa.Table,
        options: dict[str, object] | None = None,
        *,
        batch: int = 1_000,
        base: Any = None,
        context: SearchContext | None = None,
    ) -> SplitSearcher:
        config = configuration(**(options or {}))
        mapping = build_mapping(table.schema, config, base=base)
        with SplitWriter(table.schema, mapping, config) as writer:
            for piece in table.to_batches(max_chunksize=batch):
                writer.write(piece)
            written = writer.close()
        target = folder / written.path.name
        target.write_bytes(written.path.read_bytes())
        written.delete()
        split = SplitFile(
            LocalStore(str(folder)),
            target.name,
            written.size,
            written.footer_start,
            written.footer_end,
        )
        return SplitSearcher(split, _pool, context or SearchContext(table.schema, mapping))

    return lambda folder: partial(make_split, folder)
