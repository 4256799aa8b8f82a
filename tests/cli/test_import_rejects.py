"""Files with mistakes: lines that cannot be read, types that clash, too many partitions."""

from __future__ import annotations

import gzip
import json
import re
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from indextables.cli.source_files import records
from indextables.table import Table

CSV = 'id,name\n1,a\n2,b,c\n\n3,"two\nlines"\nx,d\n5,5" pipe\n'
JSONL = '{"id":1,"n":"a"}\n{"id":2,"n":\n{"id":"x","n":"c"}\n\n{"id":4,"n":"d"}\n[5]\n'


def rejected(path="bad.txt"):
    return [json.loads(line) for line in Path(path).read_text().splitlines()]


def ids(table="t"):
    return sorted(row["id"] for row in Table.open(table).scan().to_pylist())


def test_a_line_that_cannot_be_read_is_named(cli):
    Path("a.csv").write_text(CSV)
    Path("a.jsonl").write_text(JSONL)
    assert "'a.csv': line 3: Expected 2 columns, got 3: 2,b,c" in cli.error("import", "t", "a.csv")
    assert "'a.jsonl': line 2: " in cli.error("import", "t", "a.jsonl")
    assert not Path("t").exists()


def test_a_value_of_another_type_is_named_by_its_line(cli):
    Path("a.csv").write_text("id\n1\n2\nx\n")
    said = cli.error("import", "t", "a.csv", "--type", "id=int")
    assert "line 4: " in said and "'x'" in said and "--on-error skip" in said
    Path("a.jsonl").write_text('{"id":1}\n{"id":2}\n{"id":"x"}\n')
    assert "line 3: " in cli.error("import", "t", "a.jsonl")


def test_rejected_lines_of_csv_are_skipped_and_kept_in_a_file(cli):
    Path("a.csv").write_text(CSV)
    Path("b.csv.gz").write_bytes(gzip.compress(b"id,name\n7,g\nseven,h\n8,i"))
    said = cli.ok(
        "import", "t", "a.csv", "b.csv.gz", "--type", "id=int", "--on-error", "skip",
        "--rejects", "bad.txt",
    )  # fmt: skip
    assert re.search(r"rejected\s+3 lines, in bad.txt", said)
    assert ids() == [1, 3, 5, 7, 8]
    assert [(r["file"], r["line"], r["text"]) for r in rejected()] == [
        ("a.csv", 3, "2,b,c"), ("a.csv", 7, "x,d"), ("b.csv.gz", 3, "seven,h"),
    ]  # fmt: skip
    assert all(r["reason"] for r in rejected())
    names = {row["id"]: row["name"] for row in Table.open("t").scan().to_pylist()}
    assert names[3] == "two\nlines" and names[5] == '5" pipe'


def test_rejected_lines_of_json(cli):
    Path("a.jsonl").write_text(JSONL)
    (facts,) = cli.rows("import", "t", "a.jsonl", "--on-error", "skip", "--rejects", "bad.txt")
    assert facts["rejected"] == 3 and facts["rows"] == 2
    assert ids() == [1, 4]
    assert [r["line"] for r in rejected()] == [2, 3, 6]


def test_without_mistakes_skipping_changes_nothing(cli):
    Path("a.csv").write_text("id,name,day\n1,NA,2024-01-31\n,,\n3,x,2024-02-01\n")
    cli.ok("import", "t", "a.csv")
    said = cli.ok("import", "u", "a.csv", "--on-error", "skip", "--rejects", "bad.txt")
    assert Table.open("t").scan().equals(Table.open("u").scan())
    assert "rejected" not in said and not Path("bad.txt").exists()


def test_an_open_quote_costs_one_line(cli):
    Path("a.csv").write_text('id,name\n1,a\n2,"b\n3,c\n4,d\n')
    cli.ok("import", "t", "a.csv", "--on-error", "skip", "--rejects", "bad.txt", "--type", "id=int")
    assert ids() == [1, 3, 4]
    assert [r["line"] for r in rejected()] == [3]


def test_a_file_without_a_good_line_fails(cli):
    Path("a.jsonl").write_text("nonsense\nmore\n")
    said = cli.error("import", "t", "a.jsonl", "--on-error", "skip")
    assert "a.jsonl" in said and not Path("t").exists()


def test_options_of_rejects_that_mean_nothing(cli):
    Path("a.csv").write_text("id\n1\n")
    assert "--on-error skip" in cli.error("import", "t", "a.csv", "--rejects", "r", code=2)
    said = cli.error("import", "t", "a.csv", "--on-error", "skip", "--rejects", "a.csv")
    assert "exists already" in said and Path("a.csv").read_text() == "id\n1\n"


def test_records_are_cut_where_arrow_cuts_them():
    text = b'a,"x\ny",b\n5" x,1\n"q""\n",2\nlast'
    found = list(records(text.splitlines(keepends=True), b","))
    assert [record[:2] for record in found] == [
        (1, b'a,"x\ny",b\n'),
        (3, b'5" x,1\n'),
        (4, b'"q""\n",2\n'),
        (6, b"last"),
    ]


def test_standard_input(cli):
    cli.ok("import", "t", "-", "--format", "csv", stdin="id,name\n1,a\n2,b\n")
    cli.ok("import", "t", "-", "--format", "jsonl", stdin='{"id":3,"name":"c"}\n')
    assert ids() == [1, 2, 3]
    assert "--format" in cli.error("import", "t", "-")


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_a_clash_of_types_names_the_odd_file_and_its_advice_works(cli, kind):
    for name, values in (("a", [1]), ("b", [True]), ("c", [3])):
        if kind == "csv":
            Path(f"{name}.csv").write_text(f"id,at\n1,{str(values[0]).lower()}\n")
        else:
            pq.write_table(pa.table({"id": [1], "at": values}), f"{name}.parquet")
    files = [f"{name}.{kind}" for name in "abc"]
    said = cli.error("import", "t", *files)
    assert f"Cannot use 'b.{kind}'" in said and "'at' is boolean" in said
    assert "long in 2 other files" in said
    advice = re.search(r"--type \S+=\S+", said)
    assert advice, said
    cli.ok("import", "t", *files, *advice[0].split())
    assert [r["at"] for r in Table.open("t").scan().to_pylist()] == ["1", "true", "3"]


def test_a_clash_that_no_type_mends_says_so(cli):
    pq.write_table(pa.table({"v": [1]}), "a.parquet")
    pq.write_table(pa.table({"v": [[1]]}), "b.parquet")
    said = cli.error("import", "t", "a.parquet", "b.parquet")
    assert "--type" not in said and "table of its own" in said


def test_many_partitions_are_warned_of(cli):
    rows = pa.table({"user": [f"u{n}" for n in range(230)], "n": range(230)})
    pq.write_table(rows, "a.parquet")
    result = cli("import", "t", "a.parquet", "--partition-by", "user", "--config",
                 "spark.indextables.checkpoint.enabled=false")  # fmt: skip
    assert "more than 200 partitions" in result.stderr and "user" in result.stderr


@pytest.mark.parametrize("end", ["", "\n"])
def test_an_open_quote_does_not_swallow_the_lines_after_it(cli, end):
    Path("a.csv").write_text(f'id,name\n1,"two\nlines"\n2,"open\n3,c\n4,d{end}')
    assert "'a.csv': line 4: a quote is opened and not closed" in cli.error("import", "t", "a.csv")
    assert not Path("t").exists()
    cli.ok("import", "t", "a.csv", "--on-error", "skip")
    assert ids() == [1, 3, 4]


def test_a_last_value_of_several_lines_is_read(cli):
    Path("a.csv").write_text('id,name\n1,5" pipe\n2,"two\nlines and ""quotes"""')
    cli.ok("import", "t", "a.csv")
    assert ids() == [1, 2]


@pytest.mark.parametrize("line", ["null", "  null", "null null", "5", '"x"', "[1]", "true"])
@pytest.mark.parametrize("at", [1, 2, 3])
def test_a_line_of_json_that_is_no_object_is_named(cli, line, at):
    lines = ['{"id":1}', '{"id":2}']
    lines.insert(at - 1, line)
    Path("a.jsonl").write_text("\n".join(lines))
    is_array = line == "[1]" and at == 1
    said = cli.error("import", "t", "a.jsonl")
    assert ("one JSON array" if is_array else f"line {at}: it is not a JSON object") in said
    cli.ok("import", "t", "a.jsonl", "--on-error", "skip")
    assert ids() == [1, 2]


def test_null_in_an_object_of_several_lines(cli):
    Path("a.json").write_text('{\n "id":\n  1, "l": [\n  null,\n  2\n ], "x":\n null\n}\n')
    cli.ok("import", "t", "a.json")
    assert Table.open("t").scan().to_pylist() == [{"id": 1, "l": [None, 2], "x": None}]


def test_lines_after_a_byte_order_mark_are_skipped_one_by_one(cli):
    Path("a.jsonl").write_bytes(b'\xef\xbb\xbf{"id":1,"n":"a"}\nx\n')
    cli.ok("import", "t", "a.jsonl", "--on-error", "skip")
    assert ids() == [1]
