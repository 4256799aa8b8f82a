"""The public surface: conditions of every form, other libraries, notebooks, properties, columns."""

from __future__ import annotations

import pydoc
import shutil

import duckdb
import polars
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from indextables import Table
from indextables.errors import (
    ConfigError,
    NotATableError,
    SchemaError,
    UnknownColumnError,
    UnsupportedPredicateError,
)
from indextables.predicate.sql_text import parse_predicate

SCHEMA = pa.schema(
    [("id", pa.int64()), ("day", pa.string()), ("s", pa.struct([("x", pa.int64())]))]
)
ROWS = [{"id": n, "day": f"d{n % 3}", "s": {"x": n * n}} for n in range(10)]


@pytest.fixture
def table(tmp_path):
    table = Table.create(tmp_path / "t", SCHEMA, partition_by="day", name="<b>n</b>")
    for start in (0, 5):
        table.append(pa.Table.from_pylist(ROWS[start : start + 5], SCHEMA))
    return table


def ids(rows):
    return sorted(rows["id"].to_pylist())


CONDITIONS = [
    ("id > 6", pc.field("id") > 6),
    ("id > 6 AND day = 'd1'", (pc.field("id") > 6) & (pc.field("day") == "d1")),
    ("day IN ('d0', 'd2')", pc.field("day").isin(["d0", "d2"])),
    ("s.x >= 16", pc.field("s", "x") >= 16),
    ("NOT id = 3", ~(pc.field("id") == 3)),
    ("true", pc.scalar(True)),
]


@pytest.mark.parametrize(("text", "expression"), CONDITIONS)
@pytest.mark.parametrize("renamed", [False, True])
def test_a_condition_in_any_form(table, text, expression, renamed):
    if renamed:
        table.rename_column("id", "other")
        table.rename_column("day", "id")
        table.rename_column("other", "day")
        text = text.replace("id ", "@ ").replace("day", "id").replace("@", "day")
        expression = None
    expected = table.scan(where=text).sort_by("day" if renamed else "id")
    predicate = parse_predicate(text, table.schema)
    forms = [predicate] if expression is None else [predicate, expression]
    for where in forms:
        found = table.scan(where=where).sort_by("day" if renamed else "id")
        assert found.equals(expected)
        assert table.count(where=where) == expected.num_rows
        assert table.scan(where=where, columns=["day"], limit=2).num_rows == min(2, len(expected))
        assert table.scan(where=where, columns=["day"]).column_names == ["day"]


def test_conditions_that_cannot_be_meant(table):
    with pytest.raises(UnknownColumnError, match="nope"):
        table.scan(where=pc.field("nope") > 1)
    with pytest.raises(UnsupportedPredicateError):
        table.scan(where=pc.field("id") > "x")
    with pytest.raises(UnsupportedPredicateError, match="write SQL here"):
        table.delete(where=pc.field("id") > 1)
    wrong = parse_predicate("zz = 1", pa.schema([("zz", pa.int64())]))
    with pytest.raises(UnknownColumnError, match="zz"):
        table.delete(where=wrong)
    assert table.delete(where=parse_predicate("id = 1", SCHEMA)).rows_removed == 1


def test_other_libraries_read_a_table(table):
    docs = table
    assert duckdb.sql("SELECT count(*), sum(id) FROM docs").fetchall() == [(10, 45)]
    assert docs is table
    assert polars.DataFrame(table).height == 10
    assert pa.table(table).num_rows == 10
    assert ids(table.to_arrow(where="id < 2")) == [0, 1]
    assert sorted(table.to_pandas(where="id < 2")["id"]) == [0, 1]
    assert sorted(table.to_polars(where="id < 2")["id"]) == [0, 1]


@pytest.mark.parametrize("name", ["count(*)", "x)", "a\nb", "f(g(x))"])
def test_an_expression_over_a_column_of_any_name(name):
    rows = pa.table({name: ["fox", "dog"], "x": [1, 2]})
    table = Table.create("memory://" + name.encode().hex(), data=rows)
    assert table.count(where=(pc.field(name) == "fox") & (pc.field("x") == 1)) == 1
    assert table.sql(f"SELECT x FROM this WHERE `{name}` = 'dog'").to_pylist() == [{"x": 2}]


def test_what_a_table_is(table):
    assert (table.name, table.description, table.partition_columns) == ("<b>n</b>", None, ("day",))
    assert table.mapping == {"id": "i64", "day": "text", "s": "json"}
    assert table.metadata().name == table.name
    shown = table._repr_html_()
    assert "&lt;b&gt;n&lt;/b&gt;" in shown and "<b>n</b>" not in shown
    assert "partition" in shown and "json" in shown


def test_properties(table):
    size = "spark.indextables.merge.targetSize"
    assert table.properties == {}
    assert table.set_properties({"owner": "me", size: "2G"}) == table.version == 3
    assert table.properties == {"owner": "me", size: "2G"}
    assert table.set_properties({"owner": "me"}) == 3, "nothing to commit"
    table.set_properties({"owner": None, "gone": None})
    assert Table.open(table.uri).properties == {size: "2G"}
    for wrong in ({size: "many"}, {"spark.indextables.nope": "1"}, {"indextables.mapping": "{}"}):
        with pytest.raises(ConfigError):
            table.set_properties(wrong)
    assert table.count() == 10


def test_columns_are_added(table):
    table.add_columns(pa.schema([("tag", pa.string()), ("n", pa.int32())]))
    more = pa.table({"id": [99], "day": ["d0"], "tag": ["new words"], "n": [7]})
    table.append(more)
    assert ids(table.scan(where="tag indexquery 'words'")) == [99]
    assert table.count(where="tag IS NULL AND n IS NULL") == 10
    with pytest.raises(SchemaError, match="'tag' already"):
        table.add_columns(pa.schema([("TAG", pa.string())]))
    with pytest.raises(SchemaError, match="make it nullable"):
        table.add_columns(pa.schema([pa.field("k", pa.int64(), nullable=False)]))


def test_arguments_of_the_wrong_kind_are_sentences(table):
    version = table.version
    for error, call in [
        (ConfigError, lambda: table.set_properties(None)),
        (ConfigError, lambda: table.set_properties({1: "x"})),
        (SchemaError, lambda: table.add_columns([("a", pa.int64())])),
        (SchemaError, lambda: table.rename_column("id", None)),
        (ConfigError, lambda: table.scan(where=5)),
        (ConfigError, lambda: table.count(where=["id = 1"])),
        (UnsupportedPredicateError, lambda: table.scan(where=pc.field("id"))),
    ]:
        with pytest.raises(error):
            call()
    assert table.add_columns(pa.schema([])) == version, "nothing to commit"


@pytest.mark.parametrize("verb", ["append", "overwrite"])
def test_a_handle_does_not_make_a_dropped_table_again(table, verb):
    shutil.rmtree(table.uri.removeprefix("file://"))
    with pytest.raises(NotATableError):
        getattr(table, verb)(pa.Table.from_pylist(ROWS[:1], SCHEMA))
    assert not Table.exists(table.uri)


def test_help_shows_one_class():
    text = pydoc.plain(pydoc.render_doc(Table))
    assert "inherited from" not in text
    assert "set_properties(" in text
