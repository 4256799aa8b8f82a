"""Who is let in, what they can reach, and what a browser is told to refuse."""

from __future__ import annotations

import base64
import http.client
import re
import socket

import pytest
from serving import running

from indextables.errors import ConfigError
from indextables.serve import app


def test_without_a_token_nothing_is_said(client):
    for path in ("/", "/api/tables", "/tables/logs", "/tables/logs/report", "/api/openapi.json"):
        answer = client.get(path, with_token=False)
        assert answer.status_code == 401 and "logs" not in answer.text.replace("/logs", "")
    for header in ("Bearer wrong", "Bearer", "Basic eDp5", "Basic !", "Digest x", "Bearer " + "é"):
        sent = {"authorization": header.encode("latin-1")}
        assert client.get("/api/tables", with_token=False, headers=sent).status_code == 401
    assert client.get("/?token=wrong", with_token=False).status_code == 401


def test_the_address_becomes_a_cookie_that_scripts_cannot_read(client):
    path = client.address.removeprefix(f"http://{client.host}")
    answer = client.get(f"{path}&q=fox", with_token=False)
    assert (answer.status_code, answer.headers["location"]) == (303, "/?q=fox")
    cookie = answer.headers["set-cookie"]
    assert "HttpOnly" in cookie and "SameSite=lax" in cookie
    sent = {"cookie": cookie.partition(";")[0]}
    assert client.get("/api/tables", with_token=False, headers=sent).status_code == 200
    assert client.get("/?q=fox", with_token=False, headers=sent).status_code == 200
    # An address whose path looks like another host is not followed there.
    answer = client.get(f"//evil.example/{path[1:]}", with_token=False)
    assert not answer.headers.get("location", "").startswith("//")


def test_programs_send_the_token_in_a_header(client):
    pair = base64.b64encode(f"anybody:{client.token}".encode()).decode()
    for header in (f"Bearer {client.token}", f"Basic {pair}"):
        sent = {"authorization": header}
        assert client.get("/api/tables", with_token=False, headers=sent).status_code == 200


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "evil.example:{port}",
        "127.0.0.1",
        "127.0.0.1:1",
        "127.0.0.1:{port}.evil.example",
        "localhost.evil.example:{port}",
    ],
)
def test_a_name_that_is_not_ours_is_not_served(client, host):
    answer = client.get("/api/tables", headers={"host": host.format(port=client.port)})
    assert answer.status_code == 421
    assert client.get("/static/app.js", headers={"host": "evil.example"}).status_code == 421
    assert (
        client.get("/api/tables", headers={"host": f"LOCALHOST:{client.port}"}).status_code == 200
    )


def test_other_sites_are_refused(client):
    body = {"query": "SELECT 1"}
    for headers in ({"origin": "https://evil.example"}, {"origin": "null"},
                    {"origin": f"http://127.0.0.1:{client.port + 1}"},
                    {"sec-fetch-site": "cross-site"}, {"sec-fetch-site": "same-site"}):  # fmt: skip
        assert client.post("/api/sql", body, headers=headers).status_code == 403
        assert client.get("/api/tables", headers=headers).status_code == 403
    proxied = {"origin": f"https://{client.host}", "sec-fetch-site": "same-origin"}
    assert client.post("/api/sql", body, headers=proxied).status_code == 200
    own = {"origin": f"http://{client.host}", "sec-fetch-site": "same-origin"}
    assert client.post("/api/sql", body, headers=own).status_code == 200
    link = {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate"}
    assert client.get("/", headers=link).status_code == 200
    assert client.get("/api/tables", headers=link).status_code == 403
    assert "access-control-allow-origin" not in client.get("/api/tables", headers=own).headers


@pytest.mark.parametrize("path", [
    "/api/tables/..%2f..%2fetc", "/api/tables/%2e%2e/search", "/tables/..%2F..%2Fetc/report",
    "/static/..%2fapp.py", "/static/../app.py", "/static/%2e%2e%2f%2e%2e%2fapp.py", "/static/",
    "/api/tables/nope", "/api/tables/logs%00", "/api/tables/s3:%2f%2fbucket%2ftable", "/etc/passwd",
    "//etc/passwd", "/api/tables/LOGS",
])  # fmt: skip
def test_nothing_outside_of_the_named_tables_is_reached(client, path):
    answer = client.get(path)
    assert answer.status_code in (400, 404, 405), (path, answer.text)
    assert "root:" not in answer.text and "def " not in answer.text


def test_nothing_can_be_changed(client):
    for method in ("PUT", "PATCH", "DELETE", "POST"):
        for path in ("/api/tables/logs", "/api/tables", "/tables/logs", "/"):
            answer = client.request(method, path, body=b"{}")
            assert answer.status_code in (404, 405), (method, path)
    assert client.request("TRACE", "/").status_code in (404, 405)


def test_a_browser_is_told_to_refuse_scripts_of_others(client):
    page = client.get("/")
    policy = page.headers["content-security-policy"]
    assert "default-src 'none'" in policy and "script-src 'self'" in policy
    assert "unsafe" not in policy and "frame-ancestors 'none'" in policy
    assert page.headers["x-content-type-options"] == "nosniff"
    assert page.headers["referrer-policy"] == "no-referrer"
    for name in ("/", "/tables/logs"):
        text = client.get(name).text
        assert not re.search(r"<script(?![^>]*\bsrc=)|\son\w+=|style=|https?://", text), name
    for name in ("app.js", "table.js", "parts.js"):
        text = client.get(f"/static/{name}").text
        assert not re.search(
            r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(", text
        )


def test_large_and_broken_requests_are_refused(client):
    answer = client.request("POST", "/api/sql", body=b'{"query": "' + b"x" * (1 << 20) + b'"}')
    assert answer.status_code == 400 and "1,048,576 bytes" in answer.text
    for body in (b"{", b"[]", b"\xff"):
        assert client.request("POST", "/api/tables/logs/search", body=body).status_code == 400
    connection = socket.create_connection(("127.0.0.1", client.port), timeout=30)
    with connection:
        connection.sendall(b"GET / HTTP/1.1\r\nX: " + b"a" * 200_000 + b"\r\n\r\n")
        assert b" 400 " in connection.recv(200)
    # The server goes on.
    assert client.get("/api/tables").status_code == 200


def test_errors_name_no_class_of_a_library_and_no_secret(client, monkeypatch):
    def broken(*_: object, **__: object) -> None:
        raise RuntimeError("a-secret-value")

    monkeypatch.setattr("indextables.serve.answers.count_rows", broken)
    answer = client.post("/api/tables/logs/search", {})
    assert answer.status_code == 500
    assert "a-secret-value" not in answer.text and "terminal" in answer.text


def test_without_a_token_only_this_machine_is_served():
    listening = app.listen("127.0.0.1", 0)
    try:
        with pytest.raises(ConfigError, match="--no-token"):
            app.access_to(listening, "0.0.0.0", with_token=False)
        assert app.access_to(listening, "127.0.0.1", with_token=False).token is None
        one, two = (app.access_to(listening, "127.0.0.1").token for _ in range(2))
        assert one != two and len(one) >= 32
        with pytest.raises(ConfigError, match="--port"):
            app.listen("127.0.0.1", listening.getsockname()[1])
    finally:
        listening.close()


def test_a_slow_reader_does_not_hold_others(client):
    waiting = http.client.HTTPConnection("127.0.0.1", client.port, timeout=30)
    waiting.putrequest("POST", "/api/sql")
    waiting.putheader("content-length", "100")
    waiting.putheader("authorization", f"Bearer {client.token}")
    waiting.endheaders()
    assert client.get("/api/tables").status_code == 200
    waiting.close()


def test_slow_clients_do_not_keep_connections(place, monkeypatch):
    """Clients that never finish a request, or send its body a byte at a time."""
    monkeypatch.setattr("indextables.serve.app.PATIENCE_S", 0.2)
    monkeypatch.setattr("indextables.serve.http.PATIENCE_S", 0.2)
    with running({"logs": str(place / "logs")}) as client:
        lines = f"host: {client.host}\r\nauthorization: Bearer {client.token}\r\n"
        started = "POST /api/tables/logs/search HTTP/1.1\r\n" + lines
        begun = [b"", b"GET / HT", started.encode(), b"GET /api/tables HTTP/1.1\r\n" + b"x: y\r\n"]
        slow = [socket.create_connection(("127.0.0.1", client.port), timeout=60) for _ in begun]
        for connection, text in zip(slow, begun, strict=True):
            connection.sendall(text)
        body = socket.create_connection(("127.0.0.1", client.port), timeout=60)
        body.sendall(f"{started}content-length: 1000\r\n\r\n{{".encode())
        assert client.get("/api/tables").status_code == 200
        for connection in slow:
            assert connection.recv(100) == b""
        assert b" 400 " in body.recv(1000).split(b"\r\n")[0]
        for connection in (*slow, body):
            connection.close()
