"""One changed bit in a split that Spark's own reader scans: never another answer."""

from __future__ import annotations

import random

import pyarrow as pa
import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException

from indextables import Table
from indextables.split.format.page_headers import FIRST_PAGE, walk_pages
from indextables.split.open_split import SplitFile
from indextables.split.write import writer as writer_module
from indextables.storage import open_store
from tests.support.row_groups import limit_row_groups

ROWS = 2_000
TABLE = pa.table(
    {
        "id": pa.array(range(ROWS), pa.int64()),
        "level": [None if i % 11 == 0 else ("INFO", "WARN")[i % 2] for i in range(ROWS)],
        "n": pa.array([i * 7 % 1_000 for i in range(ROWS)], pa.int32()),
    }
)
QUERIES = ["SELECT * FROM t", "SELECT level, id FROM t WHERE n > 500"]


def answer(spark, path, query):
    frame = spark.sql(query.replace("FROM t", f"FROM indextables.`{path}`"))
    return sorted(map(repr, frame.collect()))


@pytest.mark.parametrize("flips", [8, pytest.param(500, marks=pytest.mark.long)])
def test_no_flip_changes_the_answer_of_a_native_scan(spark, tmp_path, monkeypatch, flips):
    limit_row_groups(monkeypatch, 700)
    monkeypatch.setattr(writer_module, "PAGE_BYTES", 512)
    path = str(tmp_path / "t")
    table = Table.create(path, TABLE.schema)
    table.append(TABLE)
    monkeypatch.undo()
    (name,) = table.snapshot().files["path"].to_pylist()
    file = tmp_path / "t" / name
    sound = file.read_bytes()
    split = SplitFile(open_store(path), name, len(sound))
    end = min(s.offset for s in split.info.sections)
    pages = list(walk_pages(lambda at, n: sound[at : at + n], FIRST_PAGE, end))
    headers = [at for p in pages for at in range(p.offset, p.offset + p.length)]
    bodies = [at for p in pages for at in range(p.offset + p.length, p.offset + p.length + p.body)]
    places = [headers, bodies, bodies, range(split.footer.start, len(sound))]
    spark.conf.set("spark.indextables.read.driver.maxRows", "0")
    refused = 0
    try:
        plan = spark.sql(f"EXPLAIN SELECT * FROM indextables.`{path}`").head()[0]
        assert "by Spark's ParquetScan" in plan
        expected = [answer(spark, path, query) for query in QUERIES]
        draw = random.Random(7)
        for number in range(flips):
            damaged = bytearray(sound)
            offset = draw.choice(places[number % len(places)])
            damaged[offset] ^= 1 << draw.randrange(8)
            file.write_bytes(damaged)
            chosen = draw.randrange(len(QUERIES))
            try:
                assert answer(spark, path, QUERIES[chosen]) == expected[chosen], offset
            except (PySparkException, Py4JJavaError) as error:
                refused += 1
                assert file.name in str(error), str(error)
    finally:
        spark.conf.unset("spark.indextables.read.driver.maxRows")
    assert refused > flips / 3
