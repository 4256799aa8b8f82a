from __future__ import annotations

import os
from pathlib import Path

import pytest

from indextables.errors import StorageError, UnsupportedUriError
from indextables.storage import canonical_uri

CASES = [
    ("/data/docs", "/data/docs"),
    ("/data/docs/", "/data/docs"),
    ("//data///docs//", "/data/docs"),
    ("/data/x/../docs/.", "/data/docs"),
    ("/", "/"),
    ("/a b%20c#d?e", "/a b%20c#d?e"),
    ("file:/data/docs", "/data/docs"),
    ("file:///data/docs/", "/data/docs"),
    ("FILE://localhost/data/docs", "/data/docs"),
    ("file:///a%20b", "/a b"),
    ("file:///a b", "/a b"),
    ("s3://bucket", "s3://bucket"),
    ("s3://bucket/", "s3://bucket"),
    ("s3a://bucket/a//b/", "s3://bucket/a/b"),
    ("S3N://bucket/a%20b c#d=e", "s3://bucket/a%20b c#d=e"),
    ("gcs://bucket/x", "gs://bucket/x"),
    ("az://box/x/", "az://box/x"),
    ("abfs://box@acme.dfs.core.windows.net/x", "abfss://box@acme.dfs.core.windows.net/x"),
    ("wasbs://box@acme.blob.core.windows.net/x/", "abfss://box@acme.dfs.core.windows.net/x"),
    ("hdfs://node:8020/x/", "hdfs://node:8020/x"),
    ("hdfs:///x", "hdfs:///x"),
    ("memory://a/b/", "memory://a/b"),
]


@pytest.mark.parametrize(("uri", "canonical"), CASES)
def test_one_spelling(uri: str, canonical: str) -> None:
    assert canonical_uri(uri) == canonical
    assert canonical_uri(canonical) == canonical


def test_relative_paths_and_path_objects(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    expected = os.path.abspath(tmp_path / "docs")  # noqa: PTH100
    assert canonical_uri("docs") == canonical_uri("./docs/") == expected
    assert canonical_uri(Path("docs")) == canonical_uri((tmp_path / "docs").as_uri()) == expected


@pytest.mark.parametrize(
    "uri",
    [
        "s3://KEYID:hunter2@bucket/x",
        "s3://KEYID@bucket/x?hunter2",
        "az://box/x?sv=1&sig=hunter2",
        "az://box?sig=hunter2",
        "abfss://user:hunter2@acme.dfs.core.windows.net/x",
        "s3:/bucket",
        "s3:///x",
        "s3://bucket/a/../b",
        "file://elsewhere/x",
        "ftp://user:hunter2@host/x",
        "https://host/x?token=hunter2",
        "",
        "a\0b",
    ],
)
def test_refused_without_telling_a_secret(uri: str) -> None:
    with pytest.raises(StorageError) as caught:
        canonical_uri(uri)
    assert "hunter2" not in str(caught.value)
    assert "hunter2" not in repr(vars(caught.value))


def test_an_unknown_scheme_names_the_known_ones() -> None:
    with pytest.raises(UnsupportedUriError, match=r"abfss.*hdfs.*s3"):
        canonical_uri("ftp://host/x")
