"""What is special about services: unsorted listings, folder markers, threads and forks."""

from __future__ import annotations

import contextlib
import http.client
import os
import threading
from collections.abc import Iterator
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit

import pytest
from obstore import exceptions
from servers import Server

from indextables.errors import StorageError, StorageRefusedError
from indextables.storage import open_store, remote

KEY = {"azure_storage_account_key": "aGVsbG8="}


@pytest.mark.parametrize(
    ("uri", "options", "sorts"),
    [
        ("abfss://box@acme.dfs.core.windows.net/docs", KEY, True),
        ("s3://fast--use1-az4--x-s3/docs", {}, True),
        ("s3://bucket/docs", {}, False),
    ],
)
def test_listings_are_sorted_where_the_service_does_not(
    uri: str, options: dict[str, object], sorts: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []

    def listing(client: object, folder: str, **arguments: object) -> Iterator[list[object]]:
        asked.append(arguments["offset"])
        for name in ("a/1", "a-b", "b") if sorts else ("a-b", "a/1", "b"):
            yield [
                {
                    "path": f"docs/{name}",
                    "size": 1,
                    "last_modified": datetime(2024, 1, 1, tzinfo=UTC),
                    "e_tag": None,
                }
            ]

    monkeypatch.setattr(remote.obstore, "list", listing)
    store = open_store(uri, options)
    assert [m.path for m in store.list()] == ["a-b", "a/1", "b"]
    assert [m.path for m in store.list(start_after="a-b")] == ["a/1", "b"]
    # Where the order is unknown, nothing may be skipped by the service.
    assert asked == [None, None if sorts else "docs/a-b"]
    assert next(store.list()).modified_ms == 1_704_067_200_000


def test_folder_markers_are_no_objects(s3: Server) -> None:
    connection = http.client.HTTPConnection(urlsplit(s3.options["aws_endpoint"]).netloc)
    for key in ("markers/", "markers/sub/", "markers/sub/x", "markers/sub-1", "markers/empty"):
        connection.request("PUT", f"/tables/{key}", body=b"1" if key.endswith("x") else b"")
        assert connection.getresponse().read() == b""
    connection.close()
    store = open_store(f"{s3.uri}/markers", s3.options)
    assert [m.path for m in store.list()] == ["empty", "sub-1", "sub/x"]
    assert [m.path for m in store.list("sub")] == ["sub/x"]
    objects, folders = store.list_directory("")
    assert ([m.path for m in objects], folders) == (["empty", "sub-1"], ["sub"])
    assert [m.path for m in store.list_directory("sub")[0]] == ["sub/x"]
    above = open_store(s3.uri, s3.options)
    assert [m.path for m in above.list("markers")] == [
        "markers/empty",
        "markers/sub-1",
        "markers/sub/x",
    ]


def test_a_foreign_key_that_is_no_path_is_an_error(s3: Server) -> None:
    connection = http.client.HTTPConnection(urlsplit(s3.options["aws_endpoint"]).netloc)
    connection.request("PUT", "/tables/odd//x", body=b"1")
    assert connection.getresponse().read() == b""
    connection.close()
    with pytest.raises(StorageError, match="empty path segment"):
        list(open_store(f"{s3.uri}/odd", s3.options).list())


def test_a_forked_process_is_told_instead_of_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    store = open_store("memory://forked")
    store.put("x", b"1")
    monkeypatch.setattr(remote, "_runtime_process", os.getpid() + 1)
    for call in (lambda: store.get("x"), lambda: list(store.list()), lambda: store.delete(["x"])):
        with pytest.raises(StorageError, match="spawn"):
            call()


def test_none_is_not_given(s3: Server) -> None:
    store = open_store(f"{s3.uri}/none", {**s3.options, "aws_session_token": None})
    store.put("x", b"1")
    assert store.get("x") == b"1"


_DOCUMENT = """<?xml version="1.0"?><Error><Code>ExpiredToken</Code>
<Message>The provided token has expired.</Message><Token-0>of the environment</Token-0></Error>"""


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        ("in 1ms - Server returned non-2xx status code: 400 Bad Request", StorageRefusedError),
        ("in 1ms - Received redirect without LOCATION", StorageRefusedError),
        ("after 2 retries - Server returned non-2xx status code: 403 Forbidden", StorageError),
        ("in 1ms - Server returned non-2xx status code: 429 Too Many", StorageError),
    ],
)
def test_a_refusal_is_a_sentence_without_secrets(
    status: str, kind: type[Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    """And certain to have changed nothing, unless it was not the first attempt."""

    def refuse(*_arguments: object, **_options: object) -> None:
        raise exceptions.GenericError(f"Generic S3 error: PUT http://host/a {status}: {_DOCUMENT}")

    monkeypatch.setattr(remote.obstore, "put", refuse)
    with pytest.raises(StorageError) as caught:
        open_store("s3://bucket/docs", {}).put_if_absent("a", b"")
    assert type(caught.value) is kind
    assert "answered ExpiredToken: The provided token has expired. Check" in str(caught.value)
    assert "environment" not in str(caught.value)


def test_a_commit_to_a_bucket_that_is_not_there_is_not_in_doubt(s3: Server) -> None:
    with pytest.raises(StorageRefusedError, match=r"NoSuchBucket.*make it first"):
        open_store("s3://nowhere/docs", s3.options).put_if_absent("a", b"")


CONTENT = bytes(range(256)) * 40


@contextlib.contextmanager
def unusual_store(answer):
    """A store whose server answers a range with a status, a body and the range it claims."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self):
            wanted = self.headers.get("Range")
            start, end = 0, len(CONTENT)
            if wanted is not None:
                low, high = wanted.removeprefix("bytes=").split("-")
                start, end = int(low), int(high) + 1
            status, body, claimed = answer(start, end) if wanted else (200, CONTENT, None)
            self.send_response(status)
            if claimed is not None:
                self.send_header("Content-Range", f"bytes {claimed}/{len(CONTENT)}")
            self.send_header("ETag", '"x"')
            self.send_header("Last-Modified", "Mon, 16 Nov 2026 10:00:00 GMT")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield open_store(
            "s3://b/t",
            {
                "aws_access_key_id": "t",
                "aws_secret_access_key": "s",
                "aws_region": "us-east-1",
                "aws_endpoint": f"http://127.0.0.1:{server.server_port}",
                "allow_http": "true",
            },
        )
    finally:
        server.shutdown()
        server.server_close()


def test_a_store_that_ignores_ranges_sends_what_holds_them():
    with unusual_store(lambda start, end: (200, CONTENT, None)) as store:
        assert store.get_ranges("x", [(100, 200), (9_000, 9_010)]) == [
            CONTENT[100:200],
            CONTENT[9_000:9_010],
        ]


@pytest.mark.parametrize(
    "answer",
    [
        lambda start, end: (206, CONTENT[start : end - 3], f"{start}-{end - 4}"),
        lambda start, end: (206, CONTENT[: end - start], f"0-{end - start - 1}"),
        lambda start, end: (416, b"", "*"),
    ],
    ids=["fewer bytes", "other bytes", "416"],
)
def test_a_range_that_is_not_the_one_asked_for_is_an_error(answer):
    with unusual_store(answer) as store, pytest.raises(StorageError, match="s3://b/t/x"):
        store.get_ranges("x", [(100, 200)])
