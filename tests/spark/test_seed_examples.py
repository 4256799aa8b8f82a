"""Every SQL example of the document on SQL extensions, on index tables with the names it uses."""

from __future__ import annotations

import datetime
import re
from pathlib import Path

import pyarrow as pa
import pytest

from indextables import Table

SEARCHES = """
SELECT * FROM documents WHERE content indexquery 'machine learning';

SELECT * FROM documents
WHERE content indexquery 'spark AND (sql OR dataframe)';

SELECT * FROM documents
WHERE content indexquery '"apache spark"';

SELECT * FROM documents
WHERE title indexquery 'data*';

SELECT * FROM events
WHERE timestamp indexquery '[2024-01-01 TO 2024-12-31]';

SELECT * FROM articles
WHERE content indexquery '(machine AND learning) OR (deep AND neural)';

SELECT * FROM documents
WHERE _indexall indexquery 'apache spark';

SELECT * FROM documents
WHERE indexqueryall('apache spark');

SELECT * FROM documents
WHERE _indexall indexquery '(scala OR java) AND (performance OR optimization)';

SELECT * FROM logs
WHERE date = '2024-01-01'
  AND _indexall indexquery 'error OR warning';

SELECT * FROM events
WHERE date = '2024-01-01'
  AND hour >= 10
  AND message indexquery 'error OR exception';

SELECT orders.id, products.name, reviews.content
FROM orders
JOIN products ON orders.product_id = products.id
JOIN reviews ON products.id = reviews.product_id
WHERE reviews.content indexquery 'excellent AND quality';

SELECT category, COUNT(*) as count
FROM articles
WHERE content indexquery 'machine learning'
GROUP BY category;

SELECT id, title, content,
       ROW_NUMBER() OVER (PARTITION BY category ORDER BY timestamp DESC) as rank
FROM articles
WHERE content indexquery 'spark AND performance'
ORDER BY rank;

SELECT * FROM documents
WHERE tantivy4spark_indexquery('content', 'machine learning');

SELECT * FROM documents
WHERE tantivy4spark_indexqueryall('apache spark');

SELECT id, timestamp, message, severity
FROM logs
WHERE date = '2024-01-01'
  AND hour >= 10
  AND message indexquery '(error OR exception) AND -deprecated'
ORDER BY timestamp DESC
LIMIT 1000;

SELECT COUNT(*) FROM events
WHERE content indexquery 'spark';
"""

COMMANDS = """
MERGE SPLITS 's3://bucket/my-table';

MERGE SPLITS my_table TARGET SIZE 2147483648;  -- 2GB in bytes
MERGE SPLITS my_table TARGET SIZE 100M;         -- 100MB (shorthand)
MERGE SPLITS my_table TARGET SIZE 1G;           -- 1GB (shorthand)

MERGE SPLITS events WHERE date = '2024-01-01' AND hour = 10;

MERGE SPLITS my_table MAX GROUPS 5;

MERGE SPLITS events
WHERE date >= '2024-01-01' AND date <= '2024-01-31'
TARGET SIZE 500M
MAX GROUPS 10;

MERGE SPLITS my_table PRECOMMIT;

FLUSH TANTIVY4SPARK SEARCHER CACHE;
FLUSH INDEXTABLES SEARCHER CACHE;  -- Alternative keyword

INVALIDATE TANTIVY4SPARK TRANSACTION LOG CACHE;

INVALIDATE TANTIVY4SPARK TRANSACTION LOG CACHE FOR 's3://bucket/table';

INVALIDATE TANTIVY4SPARK TRANSACTION LOG CACHE FOR my_table;

INSERT INTO events SELECT * FROM source_table;

MERGE SPLITS events TARGET SIZE 500M;

MERGE SPLITS events
WHERE date >= '2024-01-01' AND date <= '2024-01-31'
TARGET SIZE 200M
MAX GROUPS 5;

INVALIDATE TANTIVY4SPARK TRANSACTION LOG CACHE FOR 's3://bucket/events';
"""

WORDS = ["apache spark machine learning", "spark sql dataframe performance", "deep neural java",
         "excellent quality", "error in spark", "exception deprecated error", None]  # fmt: skip
SEEDS = Path(__file__).parents[3] / "shared" / "seeds"


def statements(text: str) -> list[str]:
    without_comments = re.sub(r"\s*--.*", "", text)
    return [part.strip() for part in without_comments.split(";") if part.strip()]


def make_rows() -> pa.Table:
    count = 28
    words = [WORDS[n % len(WORDS)] for n in range(count)]
    days = [datetime.date(2024, 1 + n % 2, 1) for n in range(count)]
    return pa.table(
        {
            "id": pa.array(range(count), pa.int64()),
            "product_id": pa.array([n % 5 for n in range(count)], pa.int64()),
            "content": words,
            "title": [f"data{n} database" if n % 3 else "scala optimization" for n in range(count)],
            "name": [f"product {n}" for n in range(count)],
            "message": words[1:] + words[:1],
            "category": [f"c{n % 3}" for n in range(count)],
            "severity": pa.array([n % 4 for n in range(count)], pa.int32()),
            "timestamp": pa.array(
                [datetime.datetime(2023 + n % 2, 6, 1, n) if n < 24 else None
                 for n in range(count)],
                pa.timestamp("us", "UTC"),
            ),
            "date": days,
            "hour": pa.array([9 + n % 3 for n in range(count)], pa.int32()),
        }
    )  # fmt: skip


TABLES = ["documents", "articles", "events", "logs", "orders", "products", "reviews", "my_table",
          "source_table"]  # fmt: skip


@pytest.fixture(scope="module")
def places(spark, tmp_path_factory):
    """The tables in a database of their own; gives their folders."""
    folder = tmp_path_factory.mktemp("seed")
    rows = make_rows()
    spark.sql("CREATE DATABASE IF NOT EXISTS examples")
    spark.sql("USE examples")
    for name in TABLES:
        uri = str(folder / name)
        table = Table.create(uri, rows.schema, partition_by=["date", "hour"])
        # Only these are merged.
        size = 14 if name in ("my_table", "events") else len(rows)
        for start in range(0, len(rows), size):
            table.append(rows.slice(start, size))
        spark.sql(f"CREATE TABLE {name} USING indextables LOCATION '{uri}'")
    yield {name: str(folder / name) for name in TABLES}
    for name in TABLES:
        spark.sql(f"DROP TABLE IF EXISTS {name}")
    spark.sql("USE default")
    spark.sql("DROP DATABASE examples CASCADE")


@pytest.fixture
def plain(spark, places):
    """Temporary views of plain rows, which hide the tables of the same names."""
    frame = spark.createDataFrame(make_rows()).coalesce(1)
    yield lambda: [frame.createOrReplaceTempView(name) for name in TABLES]
    for name in TABLES:
        spark.catalog.dropTempView(name)


def test_searches_of_tables_and_of_plain_rows_agree(spark, plain):
    found = [sorted(map(str, spark.sql(sql).collect())) for sql in statements(SEARCHES)]
    plain()
    expected = [sorted(map(str, spark.sql(sql).collect())) for sql in statements(SEARCHES)]
    for sql, mine, theirs in zip(statements(SEARCHES), found, expected, strict=True):
        assert mine == theirs, sql
        assert mine or "scala OR java" in sql or "excellent" in sql, sql


@pytest.mark.parametrize("sql", statements(COMMANDS))
def test_commands(spark, places, sql):
    text = re.sub(r"s3://bucket/(\S+?)'", lambda m: places[_folder(m[1])] + "'", sql)
    before = {name: Table.open(uri).count() for name, uri in places.items()}
    rows = spark.sql(text).collect()
    if sql.startswith("INSERT"):
        before["events"] += before["source_table"]
    else:
        assert rows
    assert {name: Table.open(uri).count() for name, uri in places.items()} == before


def _folder(name: str) -> str:
    return {"my-table": "my_table", "table": "my_table"}.get(name, name)


@pytest.mark.skipif(not SEEDS.exists(), reason="the documents are not here")
def test_no_example_is_left_out():
    (document,) = SEEDS.glob("003*")
    blocks = re.findall(r"```sql\n(.*?)```", document.read_text(), re.DOTALL)
    grammar = "MERGE SPLITS ('/path/to/table' | table_name)"
    wanted = {s for b in blocks if not b.startswith(grammar) for s in statements(b)}
    assert wanted == {*statements(SEARCHES), *statements(COMMANDS)}
