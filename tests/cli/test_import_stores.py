"""Importing files from buckets: the same rows as from this machine, in bounded memory."""

from __future__ import annotations

import gzip
import io
import json
import uuid
from pathlib import Path

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from cli_tables import sample
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from indextables.cli.source_files import find_sources
from indextables.cli.sources import StoredFile, read
from indextables.errors import SourceFileError
from indextables.storage import open_store
from indextables.table import Table


def parquet(table: pa.Table, **options) -> bytes:
    sink = io.BytesIO()
    pq.write_table(table, sink, **options)
    return sink.getvalue()


def new_folder(server):
    """A new folder of a bucket: its URI, its store, and the command line's options for it."""
    uri = f"{server.uri}/{uuid.uuid4().hex}"
    named = [f"{key}={value}" for key, value in server.options.items()]
    options = [part for option in named for part in ("--storage-option", option)]
    return uri, open_store(uri, server.options), options


@pytest.fixture
def folder(s3):
    return new_folder(s3)


def test_all_kinds_of_files_of_a_bucket_give_the_same_rows(cli, folder):
    uri, store, options = folder
    table = sample(20).drop_columns(["tags"])
    rows = [{**row, "day": row["day"].isoformat()} for row in table.to_pylist()]
    text = "".join(json.dumps(row) + "\n" for row in rows).encode()
    sink = io.BytesIO()
    pyarrow.csv.write_csv(table, sink)
    store.put("a.parquet", parquet(table, row_group_size=7))
    store.put("a.csv", sink.getvalue())
    store.put("a.jsonl", text)
    store.put("b.jsonl.gz", gzip.compress(text))
    for name in ("a.parquet", "a.csv", "a.jsonl", "b.jsonl.gz"):
        cli.ok("import", f"t-{name}", f"{uri}/{name}", "--type", "day=date", *options)
        assert Table.open(f"t-{name}").scan().sort_by("Id").to_pylist() == table.to_pylist()


@pytest.mark.parametrize("kind", ["s3", "azure"])
def test_folders_globs_and_hive_partitions_of_a_bucket(cli, kind, request):
    uri, store, options = new_folder(request.getfixturevalue(kind))
    for key in (
        "in/day=2024-01-01/a.parquet",
        "in/day=2024-01-02/b [1].parquet",
        "in/day=2024-01-02/_late.parquet",
        "in/_temporary/day=2024-01-03/c.parquet",
    ):
        store.put(key, parquet(pa.table({"n": [1, 2]})))
    store.put("in/_SUCCESS", b"")
    store.put("in/notes.txt", b"x")
    cli.ok("import", "t", f"{uri}/in", "--partition-by", "day", *options)
    days = [str(row["day"]) for row in Table.open("t").scan().to_pylist()]
    assert sorted(days) == ["2024-01-01"] * 2 + ["2024-01-02"] * 2
    for patterns, files in (
        (["in/*/*.parquet"], 2),
        (["in/**/*.parquet", "in/day=2024-01-01/a.parquet"], 2),
        (["in/day=2024-01-0[2]"], 1),
        (["in/day=2024-01-02/b [1].parquet"], 1),
        (["in/day=2024-01-02/_l*.parquet"], 1),
    ):
        places = [f"{uri}/{pattern}" for pattern in patterns]
        (facts,) = cli.rows("import", "u", "--overwrite", *places, *options)
        assert (facts["files"], facts["rows"]) == (files, 2 * files), patterns


def test_a_table_in_the_bucket_shares_its_options_with_the_files(cli, folder):
    uri, store, options = folder
    store.put("a.csv", b"n,word\n1,fox\n")
    Path("b.csv").write_text("n,word\n2,dog\n")
    cli.ok("create", f"{uri}/like", "--like", f"{uri}/a.csv", *options)
    cli.ok("import", f"{uri}/t", f"{uri}/a.csv", "b.csv", *options)
    assert cli.rows("search", f"{uri}/t", "fox", "-c", "n", *options)[0]["n"] == 1
    (facts,) = cli.rows("describe", f"{uri}/like", *options)
    assert [c["column"] for c in facts["columns"]] == ["n", "word"] and facts["rows"] == 0


def test_credentials_come_from_the_environment_too(cli, folder, monkeypatch):
    uri, store, options = folder
    store.put("a.csv", b"n\n1\n")
    for option in options[1::2]:
        name, _, value = option.partition("=")
        monkeypatch.setenv(name.upper() if name.startswith("aws") else f"AWS_{name.upper()}", value)
    cli.ok("import", "t", f"{uri}/a.csv")
    assert Table.open("t").count() == 1


def test_what_cannot_be_used_is_one_sentence_without_secrets(cli, folder):
    uri, store, options = folder
    store.put("broken.parquet", b"PAR1")
    store.put("notes.txt", b"x")
    for place, part in (
        (f"{uri}/nothing.parquet", "no such file"),
        (f"{uri}/nothing/", "no such file"),
        (f"{uri}/*.csv", "no such file"),
        (f"{uri}/notes.txt", "--format"),
        (f"{uri}/broken.parquet", "broken.parquet"),
        ("s3://no-such-bucket-here/x.csv", "no-such-bucket-here"),
        ("ftp://host/x.csv", "No store for"),
        (f"{uri}/x.csv?sig=secret-of-mine", "credentials"),
    ):
        message = cli.error("import", "t", place, *options)
        assert part in message and len(message.splitlines()) == 1, message
        assert "secret-of-mine" not in message and "test-secret" not in message
    assert not Path("t").exists()
    Path("x.csv").write_text("n\n1\n")
    assert "takes no options" in cli.error("import", "t", "x.csv", *options)


def test_a_file_that_is_replaced_meanwhile_is_refused(cli, monkeypatch):
    store = open_store("memory://replaced")
    store.put("a.csv", b"n\n1\n")
    get_range = type(store).get_range

    def replaced(self, path, start, end):
        data = get_range(self, path, start, end)
        store.put("a.csv", b"n\n1\n2\n")
        return data

    sources = find_sources(["memory://replaced/a.csv"])
    monkeypatch.setattr(type(store), "get_range", replaced)
    with pytest.raises(SourceFileError, match="replaced while it was read"):
        read(sources, pa.schema({"n": pa.int64()})).read_all()


def test_memory_does_not_grow_with_the_file(cli, monkeypatch):
    """No request is for more than the block of a reader, or a column of a row group."""
    store = open_store("memory://large")
    monkeypatch.setattr("indextables.cli.sources.INFER_BYTES", 64 << 10)
    monkeypatch.setattr("indextables.cli.sources._PIECE", 16 << 10)
    numbers = pa.table({"n": range(200_000)})
    store.put("a.parquet", parquet(numbers, row_group_size=5_000, compression="none"))
    store.put("a.csv", b"n\n" + b"".join(b"%d\n" % n for n in range(200_000)))
    asked = []
    get_range = type(store).get_range

    def counted(self, path, start, end):
        asked.append(end - start)
        return get_range(self, path, start, end)

    monkeypatch.setattr(type(store), "get_range", counted)
    for name in ("a.parquet", "a.csv"):
        asked.clear()
        cli.ok("import", f"t-{name}", f"memory://large/{name}",
               "--config", "indexing.storeonlyfields=n")  # fmt: skip
        assert Table.open(f"t-{name}").count() == 200_000
        assert len(asked) > 10 and max(asked) <= 130 << 10, max(asked)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    content=st.binary(max_size=200),
    steps=st.lists(st.tuples(st.integers(0, 220), st.integers(-1, 220)), max_size=20),
)
def test_a_stored_file_reads_as_a_file_does(content, steps, monkeypatch):
    monkeypatch.setattr("indextables.cli.sources._PIECE", 32)
    store = open_store("memory://random")
    store.put("x", content)
    stored, wanted = StoredFile(store, "x"), io.BytesIO(content)
    for at, size in steps:
        assert stored.seek(at) == wanted.seek(at)
        assert stored.read(size) == wanted.read(size)
        assert stored.tell() == wanted.tell()
    assert stored.seek(0, io.SEEK_END) == len(content)
