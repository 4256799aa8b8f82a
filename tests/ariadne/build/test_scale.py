"""Files with many different values: few here; as many as the Scala project tests with --long."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from indextables import config as keys
from indextables.ariadne import Index

if TYPE_CHECKING:
    from pathlib import Path

SCALES = [pytest.param(1, id="small"), pytest.param(1_000, id="large", marks=pytest.mark.long)]
LIMIT = 500
"""How many values a file has before they move to a table of their own, at scale 1."""


@pytest.fixture
def limit(spark, storage) -> Iterator[None]:
    yield
    spark.conf.unset(keys.ARIADNE_LARGE_INDEX_LIMIT.name)


def write(path: Path, **columns: np.ndarray) -> str:
    pq.write_table(pa.table(columns), path)
    return str(path)


@pytest.mark.parametrize("scale", SCALES)
def test_files_on_both_sides_of_the_limit_are_all_found(spark, limit, tmp_path, scale):
    spark.conf.set(keys.ARIADNE_LARGE_INDEX_LIMIT.name, str(LIMIT * scale))
    counts = [n * scale for n in (100, 150, 200, 250, 250, 600, 700)]
    starts = np.cumsum([0, *counts])
    files = [
        write(tmp_path / f"{n}.parquet", id=np.arange(starts[n], starts[n + 1]))
        for n in range(len(counts))
    ]
    index = Index("many", "id BIGINT")
    index.add_file(*files)
    index.add_index("id")
    assert index.update().indexed == len(files)
    for n, file in enumerate(files):
        ends = [int(starts[n]), int(starts[n + 1]) - 1]
        assert index.locate_files({"id": ends}) == {file}
        assert index.locate_files({"id": ends[:1]}) == {file}
    assert index.locate_files({"id": [-1, int(starts[-1])]}) == set()
    assert index.metadata.auto_bloom == ("id",)
    large = {row["filename"] for row in index._place.main.read().to_pylist() if row["id"] is None}
    assert large == set(files[-2:])


@pytest.mark.parametrize("scale", SCALES)
def test_keys_among_many_values_of_two_columns_give_their_rows(spark, limit, tmp_path, scale):
    spark.conf.set(keys.ARIADNE_LARGE_INDEX_LIMIT.name, str(LIMIT * scale))
    count = 1_500 * scale
    ids = np.random.default_rng(7).permutation(count)
    file = write(tmp_path / "x.parquet", one=ids, two=-ids)
    write(tmp_path / "other.parquet", one=ids + count, two=ids + 1)
    index = Index("pair", "one BIGINT, two BIGINT")
    index.add_file(str(tmp_path / "*.parquet"))
    index.add_index("one")
    index.add_index("two")
    assert index.update().indexed == 2
    sample = [(int(n), -int(n)) for n in ids[:100]]
    asked = spark.createDataFrame(sample, "one BIGINT, two BIGINT")
    for using in (["one"], ["two"], ["one", "two"]):
        joined = index.join(asked.select(using), using, "left_semi")
        assert joined.count() == 100
        assert index.locate_files_from_dataframe(asked, using) == {file}
