"""Many searches at once, and searches that are stopped."""

from __future__ import annotations

import re
import socket
import statistics
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pytest
from serving import Client, running
from terminal import PROGRAM

import indextables as it
from indextables.errors import StoppedError
from indextables.runner import Stop, check_stop

QUERIES = ["disk", "red fox", "lazy", '"lazy dog"', "level:warn", "word1*", "dog AND sleeps"]
SLOW = "SELECT count(*) FROM logs a, logs b, logs c, logs d, logs e WHERE a.id + b.id + e.id < -9"


def wait_until(condition, *, seconds=60):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.01)


def hammer(client, table, count):
    """Searches in parallel; how long each took."""
    wanted = {query: table.search(query, limit=None).num_rows for query in QUERIES}

    def one(number):
        query = QUERIES[number % len(QUERIES)]
        begun = time.perf_counter()
        body = {"query": query, "facets": ["level"], "limit": 5}
        answer = client.post("/api/tables/logs/search", body)
        assert answer.status_code == 200, answer.text
        assert answer.json()["total"] == wanted[query]
        return time.perf_counter() - begun

    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(one, range(count)))


def test_searches_in_parallel_do_not_disturb_each_other(client, table):
    assert len(hammer(client, table, 40)) == 40


def memory_mb(process):
    """What a process has in memory."""
    lines = Path(f"/proc/{process}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS")) / 1024


@pytest.mark.long
def test_two_hundred_searches_at_once(place, table, capsys):
    """Clients here, the server in a process of its own."""
    command = [*PROGRAM, "serve", str(place / "logs")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            line = next(line for line in server.stdout if "token=" in line)
            address = line[line.index("http://") :].split()[0]
            port, token = re.search(r":(\d+)/\?token=(.*)", address).groups()
            client = Client(int(port), token, address)
            hammer(client, table, 200)
            before = memory_mb(server.pid)
            took = [t for _ in range(5) for t in hammer(client, table, 200)]
            grown = memory_mb(server.pid) - before
        finally:
            server.terminate()
    p50, p99 = statistics.median(took), statistics.quantiles(took, n=100)[98]
    with capsys.disabled():
        sys.stdout.write(
            f"\n1,000 searches, 200 at once: p50 {p50:.2f} s, p99 {p99:.2f} s, +{grown:.0f} MB\n"
        )
    assert grown < 200


def test_more_than_may_wait_are_told_so(place, monkeypatch):
    release = threading.Event()
    monkeypatch.setattr("indextables.serve.answers.count_rows", lambda *_: release.wait(60) and 0)
    places = {"logs": str(place / "logs")}
    with running(places, threads=1, most_waiting=1) as client, ThreadPoolExecutor(2) as pool:
        slow = [pool.submit(client.post, "/api/tables/logs/search", {}) for _ in range(2)]
        wait_until(lambda: len(client.get("/api/searches").json()["searches"]) == 2)
        answer = client.post("/api/tables/logs/search", {})
        assert answer.status_code == 503 and "waiting" in answer.text
        # One that waits is stopped at once.
        last = client.get("/api/searches").json()["searches"][-1]["id"]
        assert client.request("DELETE", f"/api/searches/{last}").status_code == 200
        wait_until(lambda: any(f.done() for f in slow))
        release.set()
        assert sorted(f.result().status_code for f in slow) == [200, 499]


def test_a_slow_query_is_stopped_by_its_id_and_others_go_on(client, table):
    with ThreadPoolExecutor(1) as pool:
        slow = pool.submit(
            client.post, "/api/sql", {"query": SLOW}, headers={"x-search-id": "mine"}
        )
        wait_until(lambda: client.get("/api/searches").json()["searches"])
        assert client.post("/api/tables/logs/search", {"query": "fox"}).status_code == 200
        listed = client.get("/api/searches").json()["searches"]
        assert [(s["id"], s["what"]) for s in listed] == [("mine", "SQL")]
        assert client.request("DELETE", "/api/searches/mine").json() == {"stopped": "mine"}
        answer = slow.result()
    assert answer.status_code == 499 and "a user stopped it" in answer.text
    assert client.request("DELETE", "/api/searches/mine").status_code == 404


def test_others_take_the_place_of_a_search_that_cannot_be_interrupted(place, monkeypatch):
    """As a ranked search is, while the index works. Those that were stopped do not pile up."""
    release, begun = threading.Event(), threading.Semaphore(0)

    def deaf(*_):
        begun.release()
        release.wait(60)
        return 0

    def stop(client, name):
        assert begun.acquire(timeout=60)
        assert client.request("DELETE", f"/api/searches/{name}").status_code == 200

    places = {"logs": str(place / "logs")}
    with running(places, threads=1) as client, ThreadPoolExecutor(3) as pool:

        def ask(name):
            headers = {"x-search-id": name}
            return pool.submit(client.post, "/api/tables/logs/search", {}, headers=headers)

        monkeypatch.setattr("indextables.serve.answers.count_rows", deaf)
        first = ask("first")
        stop(client, "first")
        assert first.result().status_code == 499
        second = ask("second")  # in the place of the first, which still runs
        stop(client, "second")
        assert second.result().status_code == 499
        monkeypatch.undo()
        third = ask("third")  # one that was stopped may run beside one place, not two
        wait_until(lambda: client.get("/api/searches").json()["searches"])
        assert not third.done()
        release.set()
        assert third.result().status_code == 200


def test_a_search_ends_when_its_client_goes(client, monkeypatch):
    begun, ended = threading.Event(), threading.Event()

    def endless(*_):
        begun.set()
        try:
            while True:
                check_stop()
                time.sleep(0.005)
        except StoppedError as error:
            assert "client has gone" in str(error)
            ended.set()
            raise

    monkeypatch.setattr("indextables.serve.answers.count_rows", endless)
    connection = socket.create_connection(("127.0.0.1", client.port))
    connection.sendall(
        f"GET /api/tables/logs/search HTTP/1.1\r\nhost: {client.host}\r\n"
        f"authorization: Bearer {client.token}\r\n\r\n".encode()
    )
    assert begun.wait(60)
    connection.close()
    assert ended.wait(60)
    wait_until(lambda: not client.get("/api/searches").json()["searches"])


def test_a_search_ends_at_its_time_limit(place, monkeypatch):
    with running({"logs": str(place / "logs")}, timeout_s=0.3) as client:
        answer = client.post("/api/sql", {"query": SLOW})
        assert answer.status_code == 504 and "longer than 0.3 seconds" in answer.text
        assert client.post("/api/sql", {"query": "SELECT 1"}).json()["rows"] == [[1]]


def test_a_scan_stops_between_splits(tmp_path):
    table = it.write_table(tmp_path / "t", pa.table({"n": [0]}))
    for n in range(1, 12):
        table.append(pa.table({"n": [n]}))
    stop = Stop()
    with stop.under():
        reader = table.scan_batches(where="n >= 0")
        reader.read_next_batch()
        stop.wish("enough")
        with pytest.raises(StoppedError, match="enough"):
            reader.read_all()
        with pytest.raises(StoppedError):
            table.search("n:3")
    assert table.count(where="n >= 3") == 9
