"""search, describe, history and explain."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from indextables import Table


def test_search_gives_the_best_rows_with_snippets(cli, docs):
    rows = cli.rows("search", docs, "fox AND word4", "--field", "body")
    assert [row["Id"] for row in rows] == [4]
    assert rows[0]["_snippet_body"] == "red <b>fox</b> jumps over spark <b>word4</b>"
    assert rows[0]["_score"] > 0


def test_search_takes_a_condition_columns_and_a_limit(cli, docs):
    rows = cli.rows("search", docs, "fox", "--where", "Id >= 10", "-c", "Id", "-l", "3",
                    "--no-snippets")  # fmt: skip
    assert len(rows) == 3
    assert all(set(row) == {"Id", "_score"} and row["Id"] >= 10 for row in rows)


def test_search_takes_what_people_type_and_weights(cli, docs):
    assert "never closed" in cli.error("search", docs, "fox/ (word4")
    rows = cli.rows("search", docs, "fox/ (word4", "--lenient", "--field", "body^2")
    assert rows[0]["Id"] == 4
    plain = cli.rows("search", docs, "fox OR word4", "--field", "body")
    assert rows[0]["_score"] > plain[0]["_score"]
    typed = ("fox/ (word4", "--by", "Id", "--top", "100")
    assert "never closed" in cli.error("facets", docs, *typed)
    found = Table.open(docs).search(typed[0], mode="lenient", limit=None)
    assert len(cli.rows("facets", docs, *typed, "--lenient")) == found.num_rows


def test_a_score_is_explained(cli, docs):
    (hit,) = cli.rows("search", docs, "word4", "--field", "body")
    parts = cli.rows("explain-score", docs, "word4", "--where", "Id = 4", "--field", "body")
    assert [(part["column"], part["clause"]) for part in parts] == [("body", "word4")]
    assert abs(parts[0]["score"] - hit["_score"]) < 1e-5
    assert "_score " in cli.ok("explain-score", docs, "word4", "--where", "Id = 4")
    assert "No row meets" in cli.error("explain-score", docs, "word4", "--where", "Id = 999")


def test_search_looks_back_in_time(cli, docs):
    assert [row["Id"] for row in cli.rows("search", docs, "word50")] == [50]
    assert cli.rows("search", docs, "word50", "--version", "0") == []
    (newest, first) = cli.rows("history", docs)
    assert cli.rows("search", docs, "word50", "--as-of", first["timestamp"]) == []
    assert len(cli.rows("search", docs, "word50", "--as-of", newest["timestamp"])) == 1


def test_facets_count_values_and_parts(cli, docs, monkeypatch):
    counted = cli.rows("facets", docs, "fox", "--by", "day", "--where", "Id < 50")
    expected = Table.open(docs).facets("fox", by=["day"], where="Id < 50")["day"].to_pylist()
    assert counted == [{**row, "day": str(row["day"])} for row in expected]
    assert sum(row["count"] for row in counted) == 25
    pairs = cli.rows("facets", docs, "--by", "day,Id", "--top", "3", "--by", "day")
    assert [set(row) for row in pairs[:3]] == [{"day", "Id", "count"}] * 3
    parts = cli.rows("facets", docs, "--by", "Id", "--every", "20")
    assert parts == [{"Id": start, "count": 20} for start in (0, 20, 40)]
    assert "width" in cli.error("facets", docs, "--by", "Id", "--every", "x")
    two = ("--by", "Id", "--by", "day", "--every", "1")
    assert "one column" in cli.error("facets", docs, *two, code=2)
    monkeypatch.setattr("indextables.cli.output.is_terminal", lambda: True)
    assert "20 │ █" in cli.ok("facets", docs, "--by", "Id", "--every", "20")


def test_words_are_analyzed_completed_and_corrected(cli, docs):
    (word,) = cli.rows("analyze", docs, "english", "The foxes")
    assert word == {"word": "fox", "position": 1, "start": 4, "end": 9}
    assert [row["word"] for row in cli.rows("analyze", docs, "body", "Wi-Fi")] == ["wi", "fi"]
    rows = cli.rows("complete", docs, "body", "FO", "--where", "Id < 10")
    searched = cli.rows("search", docs, "body:fox", "--where", "Id < 10", "-l", "100")
    assert rows == [{"word": "fox", "count": len(searched)}]
    assert cli.rows("suggest", docs, "body", "spakr", "-l", "1")[0]["word"] == "spark"
    alike = cli.rows("more-like", docs, "--row", "Id = 4", "-f", "body", "-c", "Id", "-l", "3")
    assert len(alike) == 3
    assert all(row["Id"] != 4 for row in alike)
    assert "neither a column" in cli.error("analyze", docs, "martian", "x")
    assert "There is no column 'x'" in cli.error("complete", docs, "x", "a")
    assert "text='…' or row=" in cli.error("more-like", docs)


def test_a_terminal_offers_a_corrected_query(cli, docs, monkeypatch):
    monkeypatch.setattr("indextables.cli.output.is_terminal", lambda: True)
    assert "Did you mean: body:spark" in cli.ok("search", docs, "body:spakr")
    assert "Did you mean: body:spark" in cli.ok("search", docs, "body:spakr", "--lenient")
    for nothing in (("zzzzzz",), ("body:spakr", "--where", "Id < 0"), ("(zzzz", "--lenient")):
        found = cli.ok("search", docs, *nothing)
        assert "nothing found" in found and "Did you" not in found


def test_describe_tells_columns_and_sizes(cli, docs):
    (facts,) = cli.rows("describe", docs)
    assert (facts["version"], facts["rows"]) == (1, 60)
    assert facts["partition_columns"] == ["day"]
    columns = {c["column"]: c for c in facts["columns"]}
    assert columns["body"]["searched_as"] == "text"
    assert columns["day"]["partition"] and not columns["body"]["partition"]
    assert columns["tags"]["type"] == "array<string>"
    text = cli.ok("describe", docs, "--version", "0")
    assert "rows\t40" in text and "body\tstring\ttext\tdefault" in text


def test_renamed_and_dropped_columns_are_shown_as_they_are_called_now(cli):
    cli.ok("create", "t", "a:string", "b:string", "day:string", "--partition-by", "day")
    (facts,) = cli.rows("describe", "t")
    table = Table.open(facts["table"])
    table.append(pa.table({"a": ["red fox"], "b": ["gone"], "day": ["mon"]}))
    table.rename_column("a", "title")
    table.drop_columns(["b"])
    table.rename_column("day", "date")
    (facts,) = cli.rows("describe", "t")
    assert [c["column"] for c in facts["columns"]] == ["title", "date"]
    assert facts["columns"][0]["searched_as"] == "text"
    assert facts["partition_columns"] == ["date"] and facts["columns"][1]["partition"]
    assert cli.rows("search", "t", "fox")[0]["_snippet_title"] == "red <b>fox</b>"
    query = "SELECT title, date, title indexquery 'fox' AS found FROM t WHERE date = 'mon'"
    assert cli.rows("sql", query, "-t", f"t={table.uri}") == [
        {"title": "red fox", "date": "mon", "found": True}
    ]
    cli.ok("report", "t", "--output", "report.html")


def test_history_is_newest_first(cli, docs):
    rows = cli.rows("history", docs)
    assert [row["version"] for row in rows] == [1, 0]
    assert rows[0]["operation"] == "APPEND" and rows[0]["metrics"]["rows"] == "20"
    assert [row["version"] for row in cli.rows("history", docs, "--limit", "1")] == [1]


def test_explain_tells_the_stages(cli, docs):
    text = cli.ok("explain", docs, "--where", "day = '2024-01-01' AND body indexquery 'fox'")
    assert "partitions        2 splits" in text and "the index decides" in text
    (plan,) = cli.rows("explain", docs, "-w", "day='2024-01-01'")
    assert any("2 splits" in line for line in plan["plan"])


def test_secrets_in_properties_are_hidden(cli):
    cli.ok("create", "t", "a:string", "--property", "owner=me", "--property", "api.token=hush")
    for shown in (cli.ok("describe", "t"), cli.ok("describe", "t", "--json")):
        assert "owner" in shown and "hush" not in shown and "REDACTED" in shown


def test_cells_cannot_act_on_a_terminal(cli):
    table = pa.table({"a": ["x\x1b[31mred\x07\u202e", "tab\tline\nend", "<b>bold</b>", None]})
    pq.write_table(table, "x.parquet")
    cli.ok("import", "t", "x.parquet")
    shown = cli.ok("sql", "SELECT a FROM t")
    assert shown.splitlines() == ["a", r"x\x1b[31mred\x07\u202e", r"tab\tline\nend", "<b>bold</b>",
                                  "null"]  # fmt: skip
    assert [row["a"] for row in cli.rows("sql", "SELECT a FROM t")] == table["a"].to_pylist()


def test_numbers_in_a_pipe_have_all_their_digits(cli):
    numbers = [1700000000.123456, 0.1, -2.5e-300]
    floats = pa.array([0.1, 2.37, None], pa.float32())
    pq.write_table(pa.table({"x": numbers, "f": floats}), "x.parquet")
    cli.ok("import", "t", "x.parquet")
    assert cli.ok("sql", "SELECT f FROM t").splitlines()[1:] == ["0.1", "2.37", "null"]
    assert [*map(float, cli.ok("sql", "SELECT x FROM t").splitlines()[1:])] == numbers


@pytest.mark.parametrize("query", ["fox AND (", "nofield:x"])
def test_a_wrong_query_is_one_sentence(cli, docs, query):
    assert cli.error("search", docs, query).startswith("error: ")


def test_a_pipe_has_snippets_as_plain_text(cli):
    rows = pa.table({"id": [1], "body": ['a <b>"red"</b> fox & more']})
    pq.write_table(rows, "rows.parquet")
    cli.ok("import", "found", "rows.parquet")
    header, row = (line.split("\t") for line in cli.ok("search", "found", "fox").splitlines())
    assert row[header.index("_snippet_body")] == 'a <b>"red"</b> fox & more'
    (found,) = cli.rows("search", "found", "fox")
    assert found["_snippet_body"].endswith("<b>fox</b> &amp; more")
