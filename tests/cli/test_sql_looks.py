"""What `indextables sql` has beside queries of tables: EXPLAIN, DESCRIBE, SHOW, files, a prompt."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from indextables.cli.queries import Tables, prompt
from indextables.cli.settings import Settings
from indextables.storage import open_store


def test_explain_describe_and_show(cli, docs):
    plan = cli.ok("sql", "EXPLAIN SELECT Id FROM docs WHERE body indexquery 'fox' AND Id > 3;")
    assert "indexquery 'fox'" in plan and "splits" in plan
    for statement in ("DESCRIBE docs", "desc table 'docs'", "SHOW COLUMNS IN docs"):
        assert "body" in [row["column"] for row in cli.rows("sql", statement)]
    assert [row["table"] for row in cli.rows("sql", "SHOW TABLES")] == ["docs"]
    partitions = cli.rows("sql", "SHOW PARTITIONS docs")
    assert len(partitions) == 5 and set(partitions[0]) == {"day", "rows"}
    cli.ok("sql", "SHOW TBLPROPERTIES docs")
    assert "needs a table" in cli.error("sql", "SHOW PARTITIONS")


def test_files_are_tables_of_a_query(cli, docs):
    count = pq.read_metadata("one.parquet").num_rows + pq.read_metadata("two.parquet").num_rows
    Path("x.csv").write_text("Id,owner\n3,ann\n")
    Path("x.jsonl").write_text('{"Id": 3, "n": 1}\n')
    assert cli.rows("sql", "SELECT count(*) AS n FROM '*.parquet'") == [{"n": count}]
    assert cli.rows("sql", "SELECT count(*) AS n FROM parquet.`one.parquet`") == [{"n": 40}]
    joined = "SELECT owner, d.Id AS i FROM docs d JOIN 'x.csv' o ON d.Id = o.Id"
    assert cli.rows("sql", joined) == [{"owner": "ann", "i": 3}]
    assert cli.rows("sql", "SELECT n FROM 'x.jsonl'") == [{"n": 1}]
    assert "no such file" in cli.error("sql", "SELECT * FROM 'none.parquet'")
    assert "no versions" in cli.error("sql", "SELECT * FROM 'x.csv' VERSION AS OF 0")


def test_the_prompt_goes_on_after_an_error(cli, docs, capsys, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(cli.folder / "state"))
    lines = iter(["SELECT count(*) AS n", "FROM docs;", "SELECT nope FROM docs;", "quit"])
    prompt(Settings(), Tables(Settings()), ask=lambda _: next(lines))
    shown = capsys.readouterr()
    assert shown.out.split() == ["n", "60"]
    assert "nope" in shown.err
    assert "QUERY" in cli.error("sql", code=2)


@pytest.mark.parametrize("query", ["SELECT FROM WHERE", "SELEC 1", "SELECT (1", "SELECT a FROM"])
def test_errors_name_no_class_of_a_parser(cli, query):
    said = cli.error("sql", query)
    assert "Token" not in said and "Invalid expression" not in said, said
    assert said.rstrip().endswith(".")


def test_a_bucket_without_credentials_names_no_address_of_the_machine():
    store = open_store("s3://bucket/docs")
    error = store._failed(
        "read", "s3://bucket/docs/x",
        "Generic S3 error: Error performing PUT http://169.254.169.254/latest/api/token: 403",
    )  # fmt: skip
    assert "169.254" not in str(error) and "no credentials" in str(error)


def test_a_query_reads_parquet_where_it_is(cli):
    pq.write_table(pa.table({"n": range(10)}), "a.parquet")
    assert isinstance(Tables(Settings()).open(("a.parquet",)), pa.dataset.Dataset)
