"""What an installation without extras can do, and how it says what it cannot."""

from __future__ import annotations

import json
import subprocess
import sys

OPTIONAL = (
    "datafusion",
    "deltalake",
    "duckdb",
    "jieba",
    "mecab",
    "pandas",
    "polars",
    "pyiceberg",
    "pyspark",
    "sudachipy",
)

_WITHOUT = f"""
import importlib.machinery
finder = importlib.machinery.PathFinder
find = finder.find_spec
finder.find_spec = lambda name, *rest: None if name in {OPTIONAL!r} else find(name, *rest)
import pyarrow as pa
import indextables as it
"""

_CORE = """
from indextables.log.checkpoint import avro_state
avro_state._FEW_ENTRIES = 0
table = it.Table.create(place, pa.schema({"n": pa.int64(), "body": pa.string()}))
for n in range(3):
    table.append(pa.table({"n": range(n * 200, n * 200 + 200), "body": ["red fox"] * 200}))
table.checkpoint()
again = it.Table.open(place)
assert again.count(where="body indexquery 'fox' AND n < 250") == 250
assert again.search("fox", limit=3).num_rows == 3
assert again.facets("fox", by=["body"])["body"].num_rows == 1
again.update({"body": "concat(body, ' ran')"}, where="n = 5")
again.delete(where="n = 6")
again.merge_splits()
assert again.count() == 599
assert all(one.passed for one in again.verify())
"""


def _run(code: str, **options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-W", "error", "-c", _WITHOUT + code]
    return subprocess.run(
        command, capture_output=True, text=True, timeout=300, check=False, **options
    )


def test_the_core_needs_no_extra(tmp_path):
    done = _run(f"place = {str(tmp_path / 't')!r}\n{_CORE}")
    assert done.returncode == 0, done.stderr[-2000:]


_NEEDS = {
    "it.sql('SELECT 1')": ("duckdb", "sql"),
    "it.session()": ("pyspark", "spark"),
    "__import__('indextables.ariadne').ariadne.Index": ("pyspark", "spark"),
    "it.Table.create('memory://p', data=pa.table({'a': ['x']})).to_pandas()": ("pandas", None),
    "it.Table.create('memory://q', data=pa.table({'a': ['x']})).to_polars()": ("polars", None),
    "it.Table.create('memory://t', data=pa.table({'a': ['x']})).analyze('chinese', '京')": (
        "jieba",
        "chinese",
    ),
    "it.Table.create('memory://j', data=pa.table({'a': ['x']})).analyze('japanese', '京')": (
        "sudachipy",
        "japanese",
    ),
    "it.Table.create('memory://k', data=pa.table({'a': ['x']})).analyze('korean', '가')": (
        "mecab",
        "korean",
    ),
    "it.SearchIndex.create('memory://i', source='/tmp', format='delta', columns=['a'])": (
        "deltalake",
        "delta",
    ),
    "it.SearchIndex.create('memory://i', source='/tmp', format='iceberg', columns=['a'])": (
        "pyiceberg",
        "iceberg",
    ),
}


def test_what_needs_an_extra_names_it():
    code = (
        "import json\n"
        "for call in json.loads(input()):\n"
        "    try:\n"
        "        eval(call)\n"
        "    except Exception as error:\n"
        "        print(type(error).__name__, error)\n"
    )
    said = _run(code, input=json.dumps(list(_NEEDS))).stdout.splitlines()
    for (package, extra), error in zip(_NEEDS.values(), said, strict=True):
        assert error.startswith("MissingPackageError ")
        name = package if extra is None else f"'indextables[{extra}]'"
        assert f"needs {package}: pip install {name}." in error
