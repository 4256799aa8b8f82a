"""search-index, and the commands that read on the path of an index."""

from __future__ import annotations

import shutil

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import write_deltalake
from iceberg_tables import catalog_in

ROWS = pa.table({"id": [1, 2, 3], "body": ["red fox", "lazy dog", "fox and dog"]})


def test_the_life_of_an_index(cli):
    write_deltalake("lake", ROWS)
    (made,) = cli.rows("search-index", "create", "index", "lake", "--column", "body")
    assert (made["status"], made["rows_indexed"]) == ("SUCCESS", 3)
    assert [r["id"] for r in cli.rows("search", "index", "dog", "--no-snippets")] == [2, 3]
    write_deltalake("lake", pa.table({"id": [4], "body": ["a dog"]}), mode="append")
    count = "SELECT count(*) AS n FROM index WHERE body indexquery 'dog'"
    assert cli.rows("sql", count) == [{"n": 3}]
    assert cli.rows("sql", count.replace("index ", "index VERSION AS OF 0 ", 1)) == [{"n": 2}]
    assert "1 of 2 files" in cli.ok("explain", "index", "--where", "body indexquery 'dog'")
    assert cli.rows("search-index", "describe", "index")[0]["files_not_indexed"] == 1
    assert cli.rows("search-index", "refresh", "index")[0]["files_indexed"] == 1
    assert cli.rows("describe", "index")[0]["rows"] == 4
    cli.ok("export", "index", "found.parquet", "--where", "body indexquery 'fox'")
    assert sorted(pq.read_table("found.parquet")["id"].to_pylist()) == [1, 3]
    # Statements do the same.
    assert cli.rows("sql", "REFRESH SEARCH INDEX 'index'")[0]["files_indexed"] == 0
    assert cli.rows("sql", "DESCRIBE SEARCH INDEX index")[0]["columns"] == ["body"]
    cli.ok("checkpoint", "index")
    cli.ok("purge", "index", "--dry-run")
    assert cli.rows("history", "index")
    # A source that is moved, or gone.
    shutil.move("lake", "moved")
    assert "refresh INDEX --source" in cli.error("search", "index", "dog")
    assert (
        cli.rows("search-index", "refresh", "index", "--source", "moved")[0]["files_indexed"] == 0
    )
    assert len(cli.rows("search", "index", "dog", "--no-snippets")) == 3
    shutil.rmtree("moved")
    cli.ok("search-index", "drop", "index")
    assert "not an index table" in cli.error("search", "index", "dog")


def test_upkeep_of_an_index(cli):
    for number in range(3):
        write_deltalake("lake", pa.table({"id": [number], "body": ["red fox"]}), mode="append")
    cli.ok("search-index", "create", "index", "lake", "--column", "body")
    (merged,) = cli.rows("merge", "index")
    assert (merged["metrics"]["merged_files"], merged["metrics"]["merge_groups"]) == (3, 1)
    assert cli.rows("sql", "MERGE SPLITS 'index'")[0]["metrics"]["status"] == "no_action"
    assert {row["status"] for row in cli.rows("verify", "index")} == {"OK"}
    (warm,) = cli.rows("sql", "PREWARM INDEXTABLES CACHE 'index'")
    assert (warm["splits_prewarmed"], warm["status"]) == (1, "success")
    assert len(cli.rows("search", "index", "fox", "--no-snippets")) == 3
    (facts,) = cli.rows("search-index", "describe", "index")
    assert (facts["files_indexed"], facts["files_not_indexed"]) == (3, 0)
    (built,) = cli.rows("xref", "index")
    assert (built["action"], built["source_splits_count"]) == ("created", 1)
    assert len(cli.rows("search", "index", "fox", "--no-snippets")) == 3


def test_a_table_of_an_iceberg_catalog(cli, tmp_path):
    table = catalog_in(tmp_path).create_table("db.docs", ROWS.schema)
    table.append(ROWS)
    option = ("--storage-option", f"catalog.uri=sqlite:///{tmp_path}/c.db")
    name = "catalog://test/db.docs"
    cli.ok("search-index", "create", "first", name, "--format", "iceberg", "-c", "body", *option)
    cli.ok("sql", f"CREATE SEARCH INDEX 'second' ON iceberg.`{name}` (body)", *option)
    table.append(pa.table({"id": [9], "body": ["a fox"]}))
    for index in ("first", "second"):
        query = f"SELECT id FROM {index} WHERE body indexquery 'fox' ORDER BY id"
        assert [row["id"] for row in cli.rows("sql", query, *option)] == [1, 3, 9]
        assert cli.rows("search-index", "refresh", index, *option)[0]["files_indexed"] == 1
        assert cli.rows("merge", index, *option)[0]["metrics"]["merged_files"] == 2
        assert {row["status"] for row in cli.rows("verify", index, *option)} == {"OK"}
        counted = cli.rows("facets", index, "fox", "--by", "id", *option)
        assert sorted(row["id"] for row in counted) == [1, 3, 9]
    assert "cannot load the catalog" in cli.error("search-index", "describe", "first")


def test_a_source_that_was_never_there_is_not_said_to_have_moved(cli):
    pq.write_table(ROWS, "a.parquet")
    said = cli.error("search-index", "create", "../index", ".")
    assert "no Delta source" in said and "--format parquet" in said and "moved" not in said
    said = cli.error("search-index", "create", "index", "nowhere")
    assert "Check the path and the format" in said and "moved" not in said
    said = cli.error("search-index", "create", "index", "nowhere", "--format", "parquet")
    assert "no Parquet source" in said and "moved" not in said
    said = cli.error("sql", "CONVERT TO INDEXTABLES delta.`.` LOCATION '../made'")
    assert "parquet" in said and "moved" not in said


def test_another_format_and_a_mapping(cli):
    pq.write_table(ROWS, "a.parquet")
    cli.ok("search-index", "create", "index", ".", "--format", "parquet", "--map", "body=string",
           "-c", "body")  # fmt: skip
    assert cli.rows("sql", "SELECT id FROM index WHERE body indexquery 'fox'") == []
    found = cli.rows("sql", "SELECT id FROM index WHERE body indexquery '\"red fox\"'")
    assert found == [{"id": 1}]
    cli.ok("search-index", "create", "index", ".", "--format", "parquet", "--if-not-exists")


def test_an_iceberg_table(cli):
    table = catalog_in(cli.folder).create_table("db.docs", ROWS.schema)
    table.append(ROWS)
    place = table.location().removeprefix("file://")
    cli.ok("search-index", "create", "index", place, "--format", "iceberg", "-c", "body")
    assert cli.rows("sql", "SELECT id FROM index WHERE body indexquery 'red'") == [{"id": 1}]
    cli.ok("sql", f"CREATE SEARCH INDEX 'second' ON iceberg.`{place}` (body)")
    assert cli.rows("sql", "SELECT count(*) AS c FROM second") == [{"c": ROWS.num_rows}]
    cli.ok("sql", f"CONVERT TO INDEXTABLES iceberg.`{place}` LOCATION 'copy'")
    assert cli.rows("sql", "SELECT id FROM copy WHERE body indexquery 'red'") == [{"id": 1}]


@pytest.mark.parametrize(
    "arguments",
    [
        ("import", "index", "more.parquet"),
        ("sql", "DELETE FROM index WHERE id = 1"),
        ("sql", "UPDATE index SET id = 1"),
    ],
)
def test_what_needs_rows_of_its_own_is_refused(cli, arguments):
    write_deltalake("lake", ROWS)
    pq.write_table(ROWS, "more.parquet")
    cli.ok("search-index", "create", "index", "lake")
    message = cli.error(*arguments)
    assert "is a search index" in message and "search-index refresh" in message
    assert cli.rows("sql", "SELECT count(*) AS n FROM index") == [{"n": 3}]


def test_mistakes(cli):
    write_deltalake("lake", ROWS)
    assert "no Delta source" in cli.error("search-index", "create", "index", "nothing")
    assert "boddy" in cli.error("search-index", "create", "index", "lake", "-c", "boddy")
    cli.ok("search-index", "create", "index", "lake")
    assert "already" in cli.error("search-index", "create", "index", "lake")
    assert "delta.`lake`" in cli.error("sql", "CREATE SEARCH INDEX other ON lake (body)")
    assert "LOCATION" in cli.error(
        "sql", "CREATE SEARCH INDEX other ON delta.`lake` (body) LOCATION 'there'"
    )
    assert "not a search index" in cli.error("search-index", "drop", cli_table(cli))


def cli_table(cli) -> str:
    pq.write_table(ROWS, "rows.parquet")
    cli.ok("import", "table", "rows.parquet")
    return "table"


def test_a_local_index_of_a_source_in_a_bucket(cli, s3):
    source = f"s3://tables/{cli.folder.name}-cli"
    write_deltalake(source, ROWS, storage_options=s3.options)
    options = [x for n, v in s3.options.items() for x in ("--storage-option", f"{n}={v}")]
    cli.ok("search-index", "create", "index", source, "-c", "body", *options)
    assert len(cli.rows("search", "index", "dog", "--no-snippets", *options)) == 2
    count = "SELECT count(*) AS n FROM index WHERE body indexquery 'fox'"
    assert cli.rows("sql", count, *options) == [{"n": 2}]
    assert cli.rows("search-index", "refresh", "index", *options)[0]["files_indexed"] == 0
    cli.ok("search-index", "drop", "index", *options)
