"""What the examples of `SearchIndex` ask. A part of the tests, which is not installed."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from indextables.lake import SearchIndex


@pytest.fixture(scope="session", autouse=True)
def example_index(
    doctest_namespace: dict[str, Any], tmp_path_factory: pytest.TempPathFactory
) -> None:
    """`index`, and the `folder` of Parquet files that it is of. Examples change neither."""
    folder = tmp_path_factory.mktemp("articles")
    rows = pa.table(
        {
            "id": [1, 2, 3],
            "kind": ["news", "blog", "news"],
            "body": ["red fox", "lazy dog", "the quick red fox"],
        }
    )
    pq.write_table(rows.slice(0, 2), folder / "a.parquet")
    pq.write_table(rows.slice(2), folder / "b.parquet")
    index = SearchIndex.create(
        "memory://articles", source=folder, format="parquet", columns=["body"]
    )
    doctest_namespace.update(index=index, folder=folder)
