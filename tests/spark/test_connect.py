"""Index tables on Spark Connect: a server of its own, a client that does not see the tables.

What the page on compatibility says of Connect is here, line by line. Every plan that the server
makes starts Python processes, so the ordinary run has the few checks that most others build on.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

SUPPORT = Path(__file__).parents[1] / "support"
README = Path(__file__).parents[2] / "README.md"
RANKED = [[5, 1.8361], [3, 0.847], [1, 0.847]]
FIRST = {
    "warned once": 1,
    "partitionBy": [1, 2, 3, 4, 5],
    "unseen by the client": False,
    "search_table": RANKED,
    "option where": [1, 3, 5],
    "path, left join": [1, 3, 5],
    "function, star": [2],
    "named statement": "StatementError: some_name is the name of a table, and on Spark Connect",
    "merge into": [
        "2 rows updated, 1 deleted, 1 inserted",
        [
            [1, "running fox", "running fox", "a", 107],
            [2, "new {x}", "e", "c", 1],
            [3, "Fox-Run", "Running Fox", "b", None],
            [4, None, None, "b", 9],
            [9, "run{y}", None, "a", None],
        ],
        [1, 3, 9],
    ],
    "search_table by name": "StatementError: 'some_name' is the name of a table",
}
ALL = FIRST | {
    "quick start": [True, True, True],
    "stream": True,
    "merge into, twice": "SparkRuntimeException: [MERGE_CARDINALITY_VIOLATION]",
    "merge into, bad": "SchemaError: A value of string cannot safely be stored in the column 'n'",
    "merge into, frame": [[4, "RED", None, "b", 9], [10, "ten", "e", "b", 1]],
    "merge into, evolving": [3, "Running Fox", "more"],
    "search_table where": [1, 3],
    "indextables_search": RANKED,
    "table function": RANKED,
    "option search": RANKED,
    "two reads": [1, 5],
    "path": [1, 2, 3],
    "path, exact": [2],
    "path, select list": [1, 3],
    "path, or": [1, 3, 4],
    "path, score": [[3, 0.847], [1, 0.847], [5, 0.5784]],
    "path, snippet": "<b>run</b>",
    "path, all fields": [1, 5],
    "path, star": [1],
    "path, parameter": [1, 2, 3],
    "path, braces": "{x}",
    "path, version": 5,
    "path, view": [1, 5],
    "function": [2, 3],
    "function, mode": [2, 3],
    "function, columns": [1, 3],
    "indexqueryall": [5],
    "indexqueryall, Python": [5],
    "expr": [2, 3],
    "maintenance": 1,
    "delete": [1, [2, 3, 4, 5]],
    "update": [1, [3, 5]],
    "missing table": 1,
}


def run(folder: Path, checks: str) -> dict[str, object]:
    """What the checks say, by a client in a process of its own."""
    places = [folder / "server", folder / "client"]
    for place in places:
        place.mkdir()
    server = subprocess.Popen(
        [sys.executable, SUPPORT / "connect_server.py", places[0]],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
    )  # fmt: skip
    try:
        assert server.stdout is not None and server.stdin is not None
        port = next(line.split()[1] for line in server.stdout if line.startswith("port "))
        client = subprocess.run(
            [sys.executable, SUPPORT / "connect_client.py", port, README, checks],
            cwd=places[1], capture_output=True, text=True, check=True,
        )  # fmt: skip
        return dict(json.loads(client.stdout.splitlines()[-1]))
    finally:
        server.stdin.close()  # it ends by itself
        server.stdout.close()
        try:
            server.wait(60)
        except subprocess.TimeoutExpired:
            server.kill()
            server.wait()


def compare(found: dict[str, object], expected: dict[str, object]) -> None:
    assert set(found) == set(expected)
    for name, value in expected.items():
        if isinstance(value, str):
            assert str(found[name]).startswith(value), name
        else:
            assert found[name] == value, name


def test_a_client_of_spark_connect(tmp_path):
    compare(run(tmp_path, ";".join(FIRST)), FIRST)


@pytest.mark.long
def test_all_that_a_client_of_spark_connect_can_do(tmp_path):
    found = run(tmp_path, "all")
    assert str(found.pop("statement")).endswith("server/tables/docs")
    compare(found, ALL)
