"""create, import and export."""

from __future__ import annotations

import csv
import gzip
import json
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from cli_tables import sample

from indextables.table import Table


def lines(rows):
    return "".join(json.dumps(row) + "\n" for row in rows)


def test_create_takes_columns_partitions_mapping_and_properties(cli):
    cli.ok("create", "t", "id:string", "n:bigint", "at:timestamp", "l:array<string>", "-p", "n",
           "-m", "id=string", "--name", "docs", "--property", "owner=me")  # fmt: skip
    (facts,) = cli.rows("describe", "t")
    assert facts["name"] == "docs" and facts["properties"] == {"owner": "me"}
    assert [(c["column"], c["type"], c["searched_as"]) for c in facts["columns"]] == [
        ("id", "string", "string"), ("n", "long", "i64"), ("at", "timestamp", "timestamp"),
        ("l", "array<string>", "text"),
    ]  # fmt: skip
    assert "already" in cli.error("create", "t", "id:string")
    assert "is not a type" in cli.error("create", "u", "id:strung")
    assert "needs columns" in cli.error("create", "u")
    cli.error("create", "u", "id", code=2)


def test_a_decimal_has_at_most_38_digits(cli):
    assert "38 digits" in cli.error("create", "t", "price:decimal(50,2)")


def test_create_like_a_file(cli):
    pq.write_table(sample(1), "x.parquet")
    cli.ok("create", "t", "--like", "x.parquet")
    assert Table.open("t").schema.names == sample(1).schema.names


def test_parquet_csv_and_json_lines_give_the_same_rows(cli):
    table = sample(20).drop_columns(["tags"])
    pq.write_table(table, "a.parquet")
    pyarrow.csv.write_csv(table, "a.csv")
    rows = [{**row, "day": row["day"].isoformat()} for row in table.to_pylist()]
    Path("a.jsonl").write_text(lines(rows))
    Path("b.jsonl.gz").write_bytes(gzip.compress(lines(rows).encode()))
    for file, more in (
        ("a.parquet", []), ("a.csv", []), ("a.jsonl", ["--type", "day=date"]),
        ("b.jsonl.gz", ["--type", "day=date"]),
    ):  # fmt: skip
        cli.ok("import", f"t-{file}", file, *more)
        assert Table.open(f"t-{file}").scan().sort_by("Id").to_pylist() == table.to_pylist()


def test_types_of_an_existing_table_decide(cli):
    cli.ok("create", "t", "code:string", "day:date", "n:double")
    Path("a.csv").write_text("code,day,n\n007,2024-01-31,1\n")
    Path("a.jsonl").write_text(lines([{"code": "8", "day": "2024-02-01", "n": 2}]))
    cli.ok("import", "t", "a.csv", "a.jsonl")
    assert [(r["code"], str(r["day"]), r["n"]) for r in Table.open("t").scan().to_pylist()] == [
        ("007", "2024-01-31", 1.0), ("8", "2024-02-01", 2.0),
    ]  # fmt: skip


def test_columns_and_types_of_several_files_are_put_together(cli):
    Path("a.csv").write_text("n,at\n1,12:30:00\n")
    Path("b.csv").write_text("n,more\n1.5,\n")
    cli.ok("import", "t", "a.csv", "b.csv")
    rows = Table.open("t").scan().sort_by("n").to_pylist()
    assert rows == [
        {"n": 1.0, "at": "12:30:00", "more": None},
        {"n": 1.5, "at": None, "more": None},
    ]


def test_folders_globs_and_hive_partitions(cli):
    for day, code in (("2024-01-01", "01"), ("2024-01-02", "__HIVE_DEFAULT_PARTITION__")):
        folder = Path("in") / f"day={day}" / f"code={code}"
        folder.mkdir(parents=True)
        pq.write_table(pa.table({"n": [1, 2]}), folder / "part-0.parquet")
        (folder / "_SUCCESS").write_text("")
        (folder / ".part.parquet.crc").write_text("x")
    cli.ok("import", "t", "in", "--partition-by", "day")
    rows = Table.open("t").scan().to_pylist()
    assert {(str(r["day"]), r["code"]) for r in rows} == {
        ("2024-01-01", "01"),
        ("2024-01-02", None),
    }
    assert len(rows) == 4
    (facts,) = cli.rows("import", "u", "in/**/*.parquet", "in/day=2024-01-01")
    assert (facts["files"], facts["rows"]) == (2, 4), "a file that two patterns name is read once"


def test_special_characters_in_paths_and_cells(cli):
    place = "ein Ordner/täßt'[x]"
    Path(place).mkdir(parents=True)
    table = pa.table({"weird `col` ü": ["'; DROP TABLE --", "日本語 🦊"]})
    pq.write_table(table, f"{place}/da ta.parquet")
    cli.ok("import", f"{place}/tab le", f"{place}/da ta.parquet")
    rows = cli.rows("search", f"{place}/tab le", "日本語")
    assert [row["weird `col` ü"] for row in rows] == ["日本語 🦊"]
    quoted = f"{place}/tab le".replace("`", "``")
    (row,) = cli.rows("sql", f"SELECT count(*) AS n FROM indextables.`{quoted}`")
    assert row == {"n": 2}


def test_an_import_is_one_commit_or_nothing(cli):
    Path("good.csv").write_text("n\n1\n")
    Path("bad.jsonl").write_text('{"n": 1}\n{"n": }\n')
    message = cli.error("import", "t", "good.csv", "bad.jsonl")
    assert "bad.jsonl" in message and "line 2" in message
    assert not Table.exists("t")
    cli.ok("import", "t", "good.csv")
    cli.error("import", "t", "good.csv", "bad.jsonl")
    assert Table.open("t").count() == 1


def test_a_wrong_type_names_the_file_and_the_option_that_helps(cli, monkeypatch):
    monkeypatch.setattr("indextables.cli.sources.INFER_BYTES", 4096)
    Path("long.csv").write_text("n\n" + "".join(f"{i}\n" for i in range(5_000)) + "oops\n")
    message = cli.error("import", "t", "long.csv")
    assert "long.csv" in message and "oops" in message and "--type" in message
    assert not Table.exists("t")
    cli.ok(
        "import", "t", "long.csv", "--type", "n=string", "--config", "indexing.storeonlyfields=n"
    )
    assert Table.open("t").count(where="n = 'oops'") == 1


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        (["nothing.parquet"], "no such file"),
        (["empty"], "no such file"),
        (["notes.txt"], "--format"),
        (["broken.parquet"], "broken.parquet"),
        (["of-texts"], "known kind"),
        (["of-texts", "--format", "csv"], "known kind"),
    ],
)
def test_files_that_cannot_be_used(cli, arguments, part):
    Path("empty").mkdir()
    Path("of-texts").mkdir()
    Path("of-texts/notes.txt").write_text("x")
    Path("notes.txt").write_text("x")
    Path("broken.parquet").write_bytes(b"PAR1")
    assert part in cli.error("import", "t", *arguments)


def test_a_file_that_cannot_be_read_is_not_a_matter_of_types(cli):
    Path("a.csv.gz").write_bytes(b"no gzip at all")
    message = cli.error("import", "t", "a.csv.gz")
    assert "a.csv.gz" in message and "--type" not in message


@pytest.mark.parametrize(
    ("name", "content", "part"),
    [
        ("a.csv", b"a;b\n1;x\n", "--delimiter ';'"),
        ("a.csv", b"a,a\n1,2\n", "'a' twice"),
        ("a.csv", b"a\ncaf\xe9\n", "UTF-8"),
        ("a.csv", b"a,b\n1\n", "Expected 2 columns"),
        ("a.csv", b"", "empty"),
        ("a.jsonl", b"", "empty"),
        ("a.json", b'[{"a": 1}]', "one JSON array"),
        ("a.jsonl", b'{"a": 1}\n{"a": "x"}\n', "of one kind"),
    ],
)
def test_files_that_newcomers_have_are_told_what_is_wrong(cli, name, content, part):
    Path(name).write_bytes(content)
    message = cli.error("import", "t", name)
    assert part in message and name in message and "--type" not in message
    assert len(message.splitlines()) == 1 and not Table.exists("t")


def test_empty_files_beside_others_have_no_rows(cli):
    for name in ("a.csv", "b.jsonl"):
        Path(name).touch()
    Path("c.csv").write_text("n\n1\n")
    cli.ok("import", "t", "a.csv", "b.jsonl", "c.csv")
    assert Table.open("t").scan().to_pylist() == [{"n": 1}]


def test_a_delimiter_and_a_type_can_insist(cli):
    Path("a.csv").write_bytes(b"a;b\n1\n")
    cli.ok("import", "t", "a.csv", "--delimiter", ",")
    Path("b.csv").write_bytes(b"a\ncaf\xe9\n")
    cli.ok("import", "u", "b.csv", "--type", "a=binary")
    assert Table.open("t").schema.names == ["a;b"]
    assert Table.open("u").scan().to_pylist() == [{"a": b"caf\xe9"}]


def test_a_file_is_no_place_for_a_table(cli):
    Path("a.csv").write_text("n\n1\n")
    Path("b.csv").write_text("n\n2\n")
    assert "name the table first" in cli.error("import", "a.csv", "b.csv")
    assert "name the table first" in cli.error("create", "a.csv", "n:int")
    assert Path("a.csv").read_text() == "n\n1\n"


def test_a_format_chooses_the_files_of_a_folder(cli):
    Path("in/_temporary").mkdir(parents=True)
    Path("in/a.csv").write_text("n\n1\n")
    Path("in/_temporary/b.csv").write_text("n\n2\n")
    pq.write_table(pa.table({"n": [3]}), "in/c.parquet")
    cli.ok("import", "t", "in", "--format", "csv")
    cli.ok("import", "u", "in/**/*.csv")
    assert Table.open("t").scan().to_pylist() == Table.open("u").scan().to_pylist() == [{"n": 1}]


def test_format_and_delimiter_can_be_named(cli):
    Path("data.txt").write_text("a;b\n1;x\n")
    cli.ok("import", "t", "data.txt", "--format", "csv", "--delimiter", ";")
    Path("data.tsv").write_text("a\tb\n2\ty\n")
    cli.ok("import", "t", "data.tsv")
    assert Table.open("t").scan().sort_by("a").to_pylist() == [
        {"a": 1, "b": "x"},
        {"a": 2, "b": "y"},
    ]
    cli.error("import", "t", "data.txt", "--format", "xml", code=2)
    cli.ok("import", "u", "data.tsv", "--delimiter", r"\t")
    assert Table.open("u").schema.names == ["a", "b"]
    for wrong in ("", ";;", "é"):
        assert "one ASCII" in cli.error("import", "t", "data.txt", "--delimiter", wrong, code=2)


def test_new_columns_need_merge_schema_and_overwrite_replaces(cli):
    Path("a.csv").write_text("a\n1\n")
    Path("b.csv").write_text("a,b\n2,x\n")
    cli.ok("import", "t", "a.csv")
    assert "'b'" in cli.error("import", "t", "b.csv")
    cli.ok("import", "t", "b.csv", "--merge-schema")
    assert Table.open("t").count() == 2
    cli.ok("import", "t", "b.csv", "--overwrite")
    assert Table.open("t").scan().to_pylist() == [{"a": 2, "b": "x"}]
    assert "already" in cli.error("import", "t", "a.csv", "--partition-by", "a")


@pytest.mark.parametrize("kind", ["parquet", "csv", "jsonl"])
def test_what_is_exported_can_be_imported(cli, docs, kind):
    cli.ok("export", docs, f"out.{kind}", "--where", "Id < 30")
    columns = ["Id", "title", "body", "price"]
    wanted = sample().slice(0, 30).select(columns).to_pylist()
    cli.ok("import", "again", f"out.{kind}")
    assert Table.open("again").scan(columns=columns).sort_by("Id").to_pylist() == wanted


@pytest.mark.parametrize(
    ("kind", "value", "shown"),
    [
        (pa.map_(pa.string(), pa.int64()), [("k", 1), ("k", 2)], [["k", 1], ["k", 2]]),
        (pa.map_(pa.decimal128(5, 2), pa.int64()), [(Decimal("1.5"), 1)], {"1.50": 1}),
        (pa.map_(pa.struct([("x", pa.int64())]), pa.int64()), [({"x": 1}, 2)], [[{"x": 1}, 2]]),
    ],
)
def test_maps_of_every_kind_are_exported(cli, kind, value, shown):
    pq.write_table(pa.table({"m": pa.array([value], kind)}), "m.parquet")
    cli.ok("import", "t", "m.parquet")
    assert json.loads(cli.ok("export", "t", "-", "--format", "jsonl")) == {"m": shown}
    [row] = csv.DictReader(cli.ok("export", "t", "-", "--format", "csv").splitlines())
    assert json.loads(row["m"]) == shown
    if len(value) > 1:
        assert "the same key twice" in cli.error("sql", "SELECT m FROM t")
    else:
        assert cli.rows("sql", "SELECT m FROM t") == [{"m": shown}]


def test_times_without_a_date_and_far_dates_are_imported(cli):
    times = pa.array([3_600], pa.time32("s"))
    days = pa.array([3_000_000], pa.int32()).cast(pa.date32())
    pq.write_table(pa.table({"t": times, "d": days}), "t.parquet")
    cli.ok("import", "t", "t.parquet")
    [row] = cli.rows("sql", "SELECT * FROM t WHERE d > '2024-01-01'")
    assert row["t"].startswith("01:00:00") and row["d"] == "10183-09-21"


def test_a_time_without_a_zone_is_told_what_it_needs(cli):
    cli.ok("create", "t", "at:timestamp")
    Path("a.csv").write_text("at\n2024-01-01 12:00:00\n")
    Path("a.jsonl").write_text(lines([{"at": "2024-01-01 12:00:00"}]))
    for file in ("a.csv", "a.jsonl"):
        message = cli.error("import", "t", file)
        assert "2024-01-31T12:00:00Z" in message and "assume_timezone" not in message
    Path("b.jsonl").write_text(lines([{"at": "2024-01-01T12:00:00.5+02:00"}, {"at": None}]))
    cli.ok("import", "t", "b.jsonl")
    assert [row["at"] for row in cli.rows("sql", "SELECT at FROM t ORDER BY at DESC")] == [
        "2024-01-01T10:00:00.500000+00:00", None,
    ]  # fmt: skip


def test_csv_tells_null_from_an_empty_text_and_nan_from_null(cli, monkeypatch):
    rows = [
        {"n": 1, "s": "NA", "x": 1.5},
        {"n": None, "s": None, "x": float("inf")},
        {"n": 3, "s": "", "x": None},
        {"n": 4, "s": 'two\nlines, "quoted"', "x": -1.0},
    ] * 9
    pq.write_table(pa.Table.from_pylist(rows), "in.parquet")
    cli.ok("import", "t", "in.parquet")
    cli.ok("export", "t", "out.csv")
    monkeypatch.setattr("indextables.cli.sources.INFER_BYTES", 64)
    cli.ok("import", "again", "out.csv")
    assert Table.open("again").scan().to_pylist() == rows
    Path("other.csv").write_text("n,s,x\nNA,NA,nan\n,,\n")
    cli.ok("import", "other", "other.csv", "--type", "n=long")
    first, second = Table.open("other").scan().to_pylist()
    assert (first["n"], first["s"], str(first["x"])) == (None, "NA", "nan")
    assert second == {"n": None, "s": None, "x": None}


def test_export_chooses_rows_columns_and_versions(cli, docs):
    out = cli.ok(
        "export", docs, "-", "--format", "jsonl", "-c", "Id", "-c", "tags", "-w", "Id IN (3, 50)"
    )
    rows = sorted((json.loads(line) for line in out.splitlines()), key=lambda row: row["Id"])
    assert rows == [{"Id": 3, "tags": ["a", "t3"]}, {"Id": 50, "tags": ["a", "t50"]}]
    assert len(cli.ok("export", docs, "-", "--format", "csv", "-l", "2").splitlines()) == 3
    cli.ok("export", docs, "old.csv", "--version", "0")
    with Path("old.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 40 and json.loads(rows[0]["tags"])[0] == "a"


def test_export_does_not_replace_a_file_unasked(cli, docs):
    Path("x.csv").write_text("mine")
    assert "exists" in cli.error("export", docs, "x.csv")
    assert Path("x.csv").read_text() == "mine"
    cli.ok("export", docs, "x.csv", "--overwrite")
    assert "add --format with parquet or csv or jsonl" in cli.error("export", docs, "x.unknown")
    assert "nowhere" in cli.error("export", docs, "nowhere/x.csv")
    assert "this machine" in cli.error("export", docs, "s3://bucket/x.csv")
    assert "no column" in cli.error("export", docs, "y.csv", "-c", "nope")
    assert not list(Path().glob(".*partial"))
