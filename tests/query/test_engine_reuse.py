"""Engines of queries wait for the next query."""

from __future__ import annotations

import subprocess
import sys

import pyarrow as pa
import pytest

import indextables as it
from indextables.errors import EmbeddedQueryError
from indextables.query.engine import _Engine

ROWS = pa.table({"n": [1, 2]})


def test_an_engine_serves_one_query_after_another(monkeypatch):
    monkeypatch.setattr(_Engine, "waiting", [])
    assert it.sql("SELECT sum(n) AS s FROM t", t=ROWS)["s"].to_pylist() == [3]
    (engine,) = _Engine.waiting
    # Its tables are gone, and another one of the same name is not mistaken for it.
    assert it.sql("SELECT n FROM t", t=pa.table({"n": ["x"]}))["n"].to_pylist() == ["x"]
    assert _Engine.waiting == [engine]
    assert not engine.connection.sql("SHOW TABLES").fetchall()
    with pytest.raises(EmbeddedQueryError):
        it.sql("SELECT 1 % n FROM t", t=pa.table({"n": [0]}))
    assert engine not in _Engine.waiting
    assert it.sql("SELECT n FROM t", t=ROWS).num_rows == 2


def test_a_query_that_was_given_up_takes_its_engine_with_it(monkeypatch):
    monkeypatch.setattr(_Engine, "waiting", [])
    many = pa.table({"n": range(100_000)})
    table = it.write_table("memory://given-up", many)
    from indextables.query.engine import run_query

    reader = run_query("SELECT n FROM t", lambda parts, version, at: table)
    assert reader.read_next_batch().num_rows
    assert it.sql("SELECT count(*) AS c FROM t", t=ROWS)["c"].to_pylist() == [2]
    reader.close()
    del reader
    assert it.sql("SELECT count(*) AS c FROM t", t=many)["c"].to_pylist() == [100_000]


def test_a_fork_makes_engines_of_its_own():
    program = """
import os
import pyarrow as pa
import indextables as it

def ask():
    return it.sql("SELECT sum(n) AS s FROM t", t=pa.table({"n": [1, 2]}))["s"].to_pylist() == [3]

assert ask()
child = os.fork()
if not child:
    os._exit(0 if ask() and ask() else 1)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
assert ask()
"""
    done = subprocess.run(
        [sys.executable, "-c", program], check=False, capture_output=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    assert b"leaked" not in done.stderr, done.stderr


def test_ctrl_c_ends_a_query_and_the_next_one_is_answered():
    program = """
import os, signal, threading
import pyarrow as pa
import indextables as it

signal.signal(signal.SIGINT, signal.default_int_handler)
t = it.write_table("memory://interrupted", pa.table({"n": range(9000)}))
assert it.sql("SELECT max(n) AS m FROM t", t=t)["m"].to_pylist() == [8999]
threading.Timer(1, os.kill, (os.getpid(), signal.SIGINT)).start()
try:  # a query of years
    it.sql("SELECT count(*) FROM t a, t b, t c, t d WHERE (a.n * b.n + c.n * d.n) % 7 = 3", t=t)
except KeyboardInterrupt:
    print("interrupted")
assert it.sql("SELECT max(n) AS m FROM t", t=t)["m"].to_pylist() == [8999]
print("answered")
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=120
    )
    assert (done.returncode, done.stdout.split(), done.stderr) == (
        0,
        ["interrupted", "answered"],
        "",
    )
