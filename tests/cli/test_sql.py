"""Queries in the embedded engine, compared with DuckDB on the same rows, and statements of ours."""

from __future__ import annotations

import re

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from cli_tables import sample
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from indextables.errors import EmbeddedQueryError
from indextables.query import run_query
from indextables.query.relations import PushedSearch
from indextables.query.rewrite import rewrite
from indextables.table import Table

# A search as DuckDB can say it: a word of a column.
FOX = "regexp_matches(lower({c}), '(^|[^a-z0-9]){w}([^a-z0-9]|$)')"


def word(column, text):
    """A search here, the same as a regular expression there."""
    return f"{column} indexquery '{text}'", f"coalesce({FOX.format(c=column, w=text)}, false)"


CASES = [
    "SELECT count(*) AS n FROM docs",
    "SELECT count(*) AS n FROM docs WHERE {body:fox}",
    "SELECT Id FROM docs WHERE {body:fox} AND Id BETWEEN 10 AND 20",
    "SELECT id FROM docs WHERE NOT {body:fox} AND title <> 'x' AND day = DATE '2024-01-02'",
    "SELECT Id FROM docs WHERE {body:fox} OR {title:search}",
    "SELECT Id FROM docs WHERE {body:fox} OR price > 10",
    "SELECT Id FROM docs WHERE ({body:fox} AND {title:search}) OR Id IN (1, 3)",
    "SELECT day, count(*) AS n, sum(CASE WHEN {body:fox} THEN 1 ELSE 0 END) AS foxes FROM docs "
    "GROUP BY day",
    "SELECT Id, {body:dog} AS is_dog FROM docs WHERE Id < 5",
    "SELECT d.Id FROM docs d WHERE {d.body:fox} AND d.Id > 50",
    "SELECT a.Id, b.Id AS other FROM docs a JOIN docs b ON a.Id = b.Id + 1 WHERE {a.body:fox} "
    "AND {b.title:search}",
    "SELECT a.Id, b.body FROM docs a LEFT JOIN docs b ON a.Id = b.Id + 1 AND b.Id < 3 "
    "WHERE a.Id < 6 AND ({b.body:fox} OR b.Id IS NULL)",
    "SELECT a.Id FROM docs a LEFT JOIN docs b ON a.Id = b.Id + 1 AND b.Id < 3 "
    "WHERE a.Id < 6 AND NOT {b.body:fox}",
    "SELECT b.Id FROM docs a RIGHT JOIN docs b ON a.Id = b.Id + 50 WHERE NOT {a.body:fox}",
    "SELECT a.Id FROM docs a FULL JOIN docs b ON a.Id = b.Id + 50 WHERE {a.body:fox}",
    "SELECT Id FROM docs a WHERE EXISTS (SELECT 1 FROM docs b WHERE b.Id = a.Id + 1 "
    "AND {b.body:fox})",
    "SELECT Id FROM docs WHERE Id IN (SELECT Id + 1 FROM docs WHERE {title:search})",
    "WITH c AS (SELECT * FROM docs WHERE Id < 9) SELECT x.Id FROM c x JOIN c y ON x.Id = y.Id "
    "WHERE {y.body:dog}",
    "SELECT Id FROM (SELECT Id, body AS text FROM docs WHERE price > 3) s WHERE {s.text:fox}",
    "SELECT Id FROM docs WHERE {body:fox} UNION ALL SELECT Id FROM docs WHERE {title:search}",
    "SELECT day FROM docs WHERE {body:fox} GROUP BY day HAVING count(*) > 5",
    "SELECT Id, row_number() OVER (PARTITION BY day ORDER BY Id) AS r FROM docs WHERE {body:fox}",
]


@pytest.fixture(scope="module")
def rows() -> pa.Table:
    """Rows with nulls, and words that only look like others."""
    table = sample()
    bodies = table["body"].to_pylist()
    bodies[7], bodies[8], bodies[9] = None, "foxes FOX", "foxtrot"
    return table.set_column(2, "body", pa.array(bodies))


@pytest.fixture(scope="module")
def table(rows) -> Table:
    made = Table.create("memory://cli-sql", rows.schema, partition_by=["day"])
    made.append(rows.slice(0, 25))
    made.append(rows.slice(25))
    return made


def both(case):
    def pick(which):
        return re.sub(r"\{([\w.]+):(\w+)\}", lambda m: word(m[1], m[2])[which], case)

    return pick(0), pick(1)


@pytest.mark.parametrize("case", CASES)
def test_a_query_gives_what_duckdb_gives(table, rows, case):
    ours, theirs = both(case)
    found = run_query(ours, lambda *_: table).read_all()
    with duckdb.connect() as connection:
        connection.register("docs", rows)
        wanted = connection.execute(theirs).fetchall()
    got = [tuple(row.values()) for row in found.to_pylist()]
    assert sorted(got, key=repr) == sorted(wanted, key=repr)


LEAVES = [
    "{a.body:fox}", "{b.body:dog}", "{b.title:search}", "{a.title:spark}", "a.Id > 20", "b.Id < 12",
    "b.Id IS NULL", "a.day = DATE '2024-01-02'", "b.body = 'foxtrot'", "a.price >= 4",
    "b.Id IN (2, 7)",
]  # fmt: skip
CONDITIONS = st.recursive(
    st.sampled_from(LEAVES),
    lambda inner: st.one_of(
        inner.map(lambda one: f"NOT ({one})"),
        st.tuples(inner, st.sampled_from(["AND", "OR"]), inner).map(
            lambda parts: f"({' '.join(parts)})"
        ),
    ),
    max_leaves=5,
)
JOINS = ["JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN"]


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(join=st.sampled_from(JOINS), on=st.sampled_from([3, 57]), where=CONDITIONS)
def test_joins_and_conditions_of_any_shape_give_what_duckdb_gives(table, rows, join, on, where):
    case = (
        f"SELECT a.Id, b.Id AS other FROM docs a {join} docs b ON a.Id = b.Id + {on} WHERE {where}"
    )
    test_a_query_gives_what_duckdb_gives(table, rows, case)


def test_scores_order_the_rows_as_search_does(table):
    found = run_query(
        "SELECT Id, _score FROM docs WHERE body indexquery 'fox OR word12' AND Id > 3 "
        "ORDER BY _score DESC, Id LIMIT 4",
        lambda *_: table,
    ).read_all()
    hits = table.search("fox OR word12", fields=["body"], where="Id > 3", limit=None)
    wanted = sorted(zip(hits["Id"].to_pylist(), hits["_score"].to_pylist(), strict=True),
                    key=lambda hit: (-hit[1], hit[0]))[:4]  # fmt: skip
    assert [(r["Id"], r["_score"]) for r in found.to_pylist()] == wanted
    assert found["Id"][0].as_py() == 12


FOUND = "SELECT Id, _score FROM docs WHERE body indexquery 'fox OR word12' {}"


@pytest.mark.parametrize(
    ("more", "order", "limit"),
    [
        ("", "DESC", 3),
        ("AND Id > 20", "DESC", 3),
        ("AND price > 5", "DESC", 3),
        ("AND Id > '5'", "DESC", None),  # the engine has to decide that
        ("AND Id % 2 = 0", "DESC", None),
        ("", "ASC", None),
        ("", "DESC, Id", None),
        ("GROUP BY Id, _score", "DESC", None),
    ],
)
def test_only_the_best_rows_are_read_where_no_others_are_wanted(table, more, order, limit):
    query = FOUND.format(more) + f" ORDER BY _score {order} LIMIT 3"
    assert rewrite(query, lambda *_: table).relations[0].limit == limit
    found = run_query(query, lambda *_: table).read_all()
    whole = run_query(query.replace("LIMIT 3", ""), lambda *_: table).read_all()
    assert found["_score"].to_pylist() == whole["_score"].to_pylist()[:3]
    assert found.num_rows == 3


def test_a_score_that_is_not_listed_or_listed_as_something_else(table):
    def limit(query):
        return rewrite(query, lambda *_: table).relations[0].limit

    where = "FROM docs t WHERE body indexquery 'fox' ORDER BY"
    assert limit(f"SELECT Id {where} _score DESC LIMIT 2") == 2
    assert limit(f"SELECT Id, _score AS s {where} s DESC LIMIT 2") == 2
    assert limit(f"SELECT t._score AS s, Id AS _score {where} _score DESC LIMIT 2") is None
    assert limit(f"SELECT Id, _score {where} -_score DESC LIMIT 2") is None


def test_a_star_shows_the_columns_of_the_table_only(table):
    query = (
        "SELECT *, body indexquery 'dog' AS d FROM docs t WHERE body indexquery 'fox' "
        "ORDER BY _score"
    )
    assert run_query(query, lambda *_: table).schema.names == [*table.schema.names, "d"]
    query = "SELECT t.* FROM docs t JOIN docs u ON t.Id = u.Id ORDER BY t.body indexquery 'dog'"
    assert run_query(query, lambda *_: table).schema.names == table.schema.names


def test_what_can_be_pushed_is_pushed(table):
    query = (
        "SELECT a.Id FROM docs a LEFT JOIN docs b ON a.Id = b.Id WHERE a.body indexquery 'fox' AND "
        "a.day = '2024-01-01' AND b.title indexquery 'spark' AND a.Id = '3' AND a.price > 1"
    )
    left, right = rewrite(query, lambda *_: table).relations
    assert left.searches == [PushedSearch("fox", (("body",),))]
    assert left.conditions == ["day = '2024-01-01'", "price > 1"]
    assert right.searches == [] and list(right.masks.values()) == ["INDEXQUERY(title, 'spark')"]


def test_a_damaged_split_is_our_error_not_the_engines(tmp_path):
    made = Table.create(tmp_path, pa.schema([("a", pa.string())]))
    made.append(pa.table({"a": ["x"] * 100}))
    split = next(tmp_path.rglob("*.split"))
    split.write_bytes(split.read_bytes()[:-100] + bytes(100))
    with pytest.raises(Exception, match=r"\.split is damaged"):
        run_query("SELECT a FROM docs", lambda *_: Table.open(tmp_path)).read_all()


def test_a_snippet_shows_what_search_shows(table):
    hits = table.search("fox", fields=["body"], columns=["Id"], limit=None, snippets=["body"])
    wanted = dict(zip(hits["Id"].to_pylist(), hits["_snippet_body"].to_pylist(), strict=True))
    assert all("<b>" in text for text in wanted.values()) and len(wanted) > 3
    where = "FROM docs WHERE body indexquery 'fox'"
    for query in (
        f"SELECT Id, snippet(body) AS s {where}",
        f"SELECT Id, Snippet(d.BODY, 'fox') AS s {where.replace('docs', 'docs d')}",
        "SELECT Id, snippet(body) AS s FROM docs WHERE indexqueryall('fox') AND snippet(body) > ''",
        "SELECT Id, snippet(body, 'fox') AS s FROM docs WHERE snippet(body, 'fox') <> ''",
        f"SELECT Id, s FROM (SELECT *, snippet(body) AS s {where}) x",
        f"SELECT Id, snippet(text, 'fox') AS s FROM (SELECT Id, body AS text {where}) x",
    ):
        rows = run_query(query, lambda *_: table).read_all().to_pylist()
        assert {row["Id"]: row["s"] for row in rows} == wanted, query
    only = "SELECT Id FROM docs WHERE snippet(body, 'fox') <> '' AND Id >= 0 AND price IS NOT NULL"
    found = run_query(only, lambda *_: table).read_all()["Id"].to_pylist()
    priced = run_query("SELECT Id FROM docs WHERE price IS NOT NULL", lambda *_: table).read_all()
    assert sorted(found) == sorted(set(wanted) & set(priced["Id"].to_pylist()))
    best = run_query(
        f"SELECT Id, _score, snippet(body) {where} ORDER BY _score DESC LIMIT 3", lambda *_: table
    ).read_all()
    assert best.schema.names == ["Id", "_score", "snippet(body)"]
    assert [wanted[row["Id"]] for row in best.to_pylist()] == best[2].to_pylist()
    assert len(best) == 3


def test_a_snippet_uses_the_analyzer_of_the_table_and_is_empty_beside_padding(cli):
    cli.ok("create", "t", "id:int", "word:string",
           "--config", "indexing.tokenizer.word=en_stem")  # fmt: skip
    Table.open("t").append(pa.table({"id": [1, 2], "word": ["He was running", "nothing"]}))
    assert cli.rows(
        "sql",
        "SELECT a.id, snippet(b.word, 'run') AS s FROM t a LEFT JOIN t b ON a.id = b.id + 1 "
        "ORDER BY a.id",
    ) == [{"id": 1, "s": ""}, {"id": 2, "s": "He was <b>running</b>"}]


@pytest.mark.parametrize(
    ("query", "part"),
    [
        ("SELECT snippet(body) FROM docs", "0 different"),
        (
            "SELECT snippet(body) FROM docs WHERE body indexquery 'a' OR body indexquery 'b'",
            "2 dif",
        ),
        ("SELECT snippet() FROM docs", "takes a column"),
        ("SELECT snippet(Id, 'a') FROM docs", "shows words of a text"),
        ("SELECT snippet(body, 'a AND (') FROM docs", "parse"),
        ("SELECT snippet(nope, 'a') FROM docs", "nope"),
        ("SELEC 1", "line 1"),
        ("SELECT 1; SELECT 2", "one query"),
        ("INSERT INTO docs VALUES (1)", "one query"),
        ("COPY docs TO 'x.csv'", "one query"),
        ("SHOW TABLES", "one query"),
        ("SELECT nope FROM docs", "nope"),
        ("SELECT _score FROM docs", "0 searches"),
        ("SELECT body indexquery title FROM docs", "Cannot read the query"),
        ("SELECT indexquery(body) FROM docs", "takes a column"),
        ("SELECT * FROM range(3)", "is not a table"),
        ("SELECT Id / body FROM docs", "The query engine says"),
        ("SELECT * FROM docs a, docs b WHERE _indexall indexquery 'a'", "one table"),
        ("SELECT * FROM docs WHERE body indexquery 'a AND ('", "parse"),
    ],
)
def test_what_cannot_be_answered_is_a_sentence(table, query, part, caplog):
    with pytest.raises((EmbeddedQueryError, ValueError), match=part) as caught:
        run_query(query, lambda *_: table).read_all()
    assert "\n" not in str(caught.value)
    assert not caplog.records


# --- on the command line ---------------------------------------------------------------------


def test_tables_are_named_by_folder_place_or_option(cli, docs):
    for source in ("docs", "indextables.`docs`", f"'{cli.folder}/docs'", "`docs`"):
        assert cli.rows("sql", f"SELECT count(*) AS n FROM {source}") == [{"n": 60}]
    assert cli.rows("sql", "SELECT count(*) AS n FROM d", "-t", f"d={cli.folder}/docs") == [
        {"n": 60}
    ]
    assert "no catalog" in cli.error("sql", "SELECT * FROM db.docs")
    assert "not an index table" in cli.error("sql", "SELECT * FROM nothing")


def test_queries_look_back_in_time_and_come_from_a_pipe(cli, docs):
    query = "SELECT count(*) AS n FROM docs VERSION AS OF 0"
    assert cli.rows("sql", query) == [{"n": 40}]
    assert cli.rows("sql", "-", stdin=query) == [{"n": 40}]
    first = cli.rows("history", docs)[-1]
    query = f"SELECT count(*) AS n FROM docs TIMESTAMP AS OF '{first['timestamp']}'"
    assert cli.rows("sql", query) == [{"n": 40}]


def test_names_of_columns_in_any_case(cli, docs):
    assert cli.rows("sql", "SELECT iD, TITLE FROM docs WHERE ID = 3") == [
        {"Id": 3, "title": "Document 3 about search"}
    ]


def test_two_columns_of_one_name_are_no_json(cli, docs):
    query = "SELECT a.Id, b.Id FROM docs a JOIN docs b ON a.Id = b.Id + 1 WHERE a.Id = 3"
    assert cli.ok("sql", query) == "Id\tId\n3\t2\n"
    assert "Two columns are called 'Id'" in cli.error("sql", query, "--json")


def test_no_rows_still_have_columns(cli, docs):
    assert cli.ok("sql", "SELECT Id, title FROM docs WHERE Id < 0") == "Id\ttitle\n"
    assert cli.ok("sql", "SELECT Id FROM docs WHERE Id < 0", "--json") == ""


def test_types_survive_json(cli):
    table = pa.table(
        {
            "big": [2**62], "text": ['"ü\u0000'], "bytes": [b"\x00\xff"],
            "map": pa.array([[("k", 1)]], pa.map_(pa.string(), pa.int64())),
            "none": pa.array([None], pa.string()),
            "decimal": pa.array(["1.10"]).cast(pa.decimal128(10, 2)),
            "nan": [float("nan")],
        }
    )  # fmt: skip
    pq.write_table(table, "x.parquet")
    cli.ok("import", "t", "x.parquet")
    assert cli.rows("sql", "SELECT * FROM t") == [
        {"big": 2**62, "text": '"ü\u0000', "bytes": "0x00ff", "map": {"k": 1}, "none": None,
         "decimal": "1.10", "nan": None}
    ]  # fmt: skip


def test_statements_of_ours_go_to_their_jobs(cli, docs):
    (row,) = cli.rows("sql", "MERGE SPLITS 'docs' TARGET SIZE 100M")
    assert row["metrics"]["status"] == "success" and row["metrics"]["merged_files"] == 10
    rows = cli.rows("sql", "VERIFY INDEXTABLES docs")
    assert {r["status"] for r in rows} == {"OK"}
    assert "Cannot read the statement" in cli.error("sql", "MERGE SPLITS 'docs' TARGET SIZ 1")
    assert "not an index table" in cli.error("sql", "CHECKPOINT INDEXTABLES 'nope'")


MOMENTS = pa.table(
    {
        "id": [1, 2, 3],
        "at": pa.array(["2024-01-07 13:05:09", "0001-02-03 00:00:00", None]).cast(
            pa.timestamp("us")
        ),
        "text": ["search", "ab", None],
        "x": [float("nan"), -2.5, None],
        "tags": [["a"], [], None],
    }
)
SPARKS = [
    ("date_format(at, \"yyyy-MM-dd'T'HH:mm:ss.SSS\")",
     ["2024-01-07T13:05:09.000", "0001-02-03T00:00:00.000", None]),
    ("date_format(at, 'd/M/yy h a EEE')", ["7/1/24 1 PM Sun", "3/2/01 12 AM Sat", None]),
    ("to_date('05/03/2024', 'dd/MM/yyyy') = DATE '2024-03-05'", [True] * 3),
    ("dayofweek(at)", [1, 7, None]),
    ("hour(at) * 10000 + minute(at) * 100 + second(at)", [130509, 0, None]),
    ("substring(text, -3)", ["rch", "ab", None]),
    ("substring(text, -3, 2)", ["rc", "a", None]),
    ("substring(text, 0, 2)", ["se", "ab", None]),
    ("isnan(x)", [True, False, False]),
    ("array_contains(tags, 'a')", [True, False, None]),
    ("substring(date_format(at, 'yyyy/MM'), -2)", ["01", "02", None]),
    ("hour(to_timestamp('7.1.2024 13:05', 'd.M.yyyy H:mm'))", [13] * 3),
    ("isnull(text) AND isnotnull(id)", [False, False, True]),
    ("x <=> -2.5 AND id = 2", [False, True, False]),
    ("(id > 1) <=> (x < 0) AND id > 1", [False, True, False]),
    ("count_if(id = 1) FILTER (WHERE id > 9) OVER ()", [0, 0, 0]),
]  # fmt: skip


@pytest.fixture(scope="module")
def moments() -> Table:
    made = Table.create("memory://cli-sql-moments", MOMENTS.schema)
    made.append(MOMENTS)
    return made


@pytest.mark.parametrize(("expression", "wanted"), SPARKS)
def test_functions_mean_what_they_mean_in_spark(moments, expression, wanted):
    found = run_query(f"SELECT {expression} AS v FROM t ORDER BY id", lambda *_: moments).read_all()
    assert found["v"].to_pylist() == wanted


@pytest.mark.parametrize(
    ("rest", "wanted"),
    [
        ("WHERE x > 1", [1]),
        ("WHERE x = 'NaN'", [1]),
        ("WHERE x < -2 OR id = 3", [2, 3]),
        ("WHERE NOT (x > -1)", [2]),
        ("a LEFT SEMI JOIN t b ON a.id = b.id + 1", [2, 3]),
        ("a LEFT ANTI JOIN t b ON a.id = b.id + 1 WHERE a.text indexquery 'search'", [1]),
        ("QUALIFY row_number() OVER (ORDER BY id DESC) < 3", [3, 2]),
        ("WHERE text NOT IN (SELECT text FROM t WHERE id = 2) OR id = 9", [1]),
        ("WHERE NOT (text IN (SELECT text FROM t WHERE id > 1)) OR id = 9", []),
        ("WHERE text NOT IN (SELECT text FROM t WHERE id > 9) OR id = 9", [1, 2, 3]),
    ],
)
def test_clauses_mean_what_they_mean_in_spark(moments, rest, wanted):
    order = "DESC" if "QUALIFY" in rest else "ASC"
    sql = f"SELECT id FROM t {rest} ORDER BY id {order}"
    assert run_query(sql, lambda *_: moments).read_all()["id"].to_pylist() == wanted


def test_a_doubled_quote_is_one(tmp_path):
    made = Table.create(tmp_path, pa.schema([("a", pa.string())]))
    made.append(pa.table({"a": ["it's", "its"]}))
    for where in ("a = 'it''s'", """a indexquery '"it''s"'"""):
        sql = f"SELECT a, 'o''clock' AS b FROM t WHERE {where}"
        rows = run_query(sql, lambda *_: made).read_all().to_pylist()
        assert rows == [{"a": "it's", "b": "o'clock"}]


def test_with_rollup_adds_its_totals(moments):
    sql = "SELECT text, count(*) AS n FROM t WHERE id < 3 GROUP BY text WITH ROLLUP"
    assert sorted(run_query(sql, lambda *_: moments).read_all()["n"].to_pylist()) == [1, 1, 2]


@pytest.mark.parametrize(
    ("sql", "part"),
    [
        ("SELECT date_format(at, 'yyyy-QQ') FROM t", "letters that are not supported"),
        ("SELECT date_format(at, text) FROM t", "in quotes"),
        ("SELECT id FROM t TABLESAMPLE (1 ROWS)", "LIMIT"),
        ("SELECT range(id) FROM t", "range is not supported"),
        ("SELECT e FROM t LATERAL VIEW OUTER explode(tags) x AS e", "OUTER is not supported"),
        ("SELECT explode_outer(tags) FROM t", "explode_outer is not supported"),
        ("SELECT format_string('%999999999d', id) FROM t", "format_string is not supported"),
    ],
)
def test_what_the_engine_would_read_differently_is_refused(moments, sql, part):
    with pytest.raises(EmbeddedQueryError, match=part):
        run_query(sql, lambda *_: moments)


def test_nan_is_the_largest_number_and_minus_zero_is_zero():
    numbers = pa.table({"g": [1] * 5, "x": [float("nan"), 1.0, -0.0, 0.0, None]})
    made = Table.create("memory://cli-sql-numbers", numbers.schema)
    made.append(numbers)
    for source in ("t", "(SELECT * FROM t) AS s"):
        sql = f"SELECT g, max(x) AS most, min(x) AS least FROM {source} GROUP BY g"
        [row] = run_query(sql, lambda *_: made).read_all().to_pylist()
        assert (str(row["most"]), row["least"]) == ("nan", 0)
    sql = "SELECT count(DISTINCT x) AS a, count(DISTINCT g) AS b FROM t"
    assert run_query(sql, lambda *_: made).read_all().to_pylist() == [{"a": 3, "b": 1}]
    sql = "SELECT count(*) OVER (PARTITION BY x) AS n FROM t"
    assert sorted(run_query(sql, lambda *_: made).read_all()["n"].to_pylist()) == [1, 1, 1, 2, 2]


def test_headers_are_what_the_query_says(table):
    sql = """SELECT  Id + 1, upper( title ) , body indexquery 'fox', max(_score) OVER (), Id AS n
    FROM docs WHERE body indexquery 'fox'"""
    assert run_query(sql, lambda *_: table).schema.names == [
        "Id + 1", "upper( title )", "body indexquery 'fox'", "max(_score) OVER ()", "n",
    ]  # fmt: skip
    sql = "WITH c AS (SELECT 1) SELECT DISTINCT max(Id) FROM docs UNION SELECT 1 ORDER BY 1"
    assert run_query(sql, lambda *_: table).schema.names == ["max(Id)"]


def test_rows_are_grouped_by_a_search(table):
    sql = "SELECT {0} AS hit, count(*) AS n FROM docs GROUP BY {0}".format("body indexquery 'fox'")
    found = run_query(sql, lambda *_: table).read_all().to_pylist()
    assert {row["hit"] for row in found} == {True, False}
    assert sum(row["n"] for row in found) == table.count()


def _opened(parts, *_version):
    return Table.open(parts[0])


@pytest.mark.parametrize("name", ["`{}`", "'{}'"])
def test_a_place_with_capitals_is_searched_beside_other_conditions(tmp_path, name):
    place = str(tmp_path / "Capital" / "Docs")
    made = Table.create(place, pa.schema([("id", pa.int64()), ("body", pa.string())]))
    made.append(pa.table({"id": [1, 2], "body": ["red fox", "dog"]}))
    shown = name.format(place)
    query = f"SELECT id, _score FROM {shown} WHERE body indexquery 'fox'"
    assert run_query(query, _opened).read_all()["id"].to_pylist() == [1]
    query = f"SELECT id FROM {shown} WHERE body indexquery 'fox' OR 1 = 1 ORDER BY id"
    assert run_query(query, _opened).read_all()["id"].to_pylist() == [1, 2]


@pytest.mark.parametrize(
    "made",
    ["repeat('x', 2000000000)", "lpad('a', 2000000000, 'b')", "rpad(body, 2000000000, 'b')",
     "repeat(body, 900000000)", "array_repeat(1, 2000000000)", "sequence(1, 2000000000)"],
)  # fmt: skip
def test_no_function_takes_all_memory(docs, made):
    with pytest.raises(EmbeddedQueryError, match="bytes at once"):
        run_query(f"SELECT {made} AS made FROM `{docs}`", _opened).read_all()


def test_texts_are_made_as_in_spark(docs):
    query = (
        "SELECT repeat('ab', 2) AS a, repeat('ab', NULL) AS b, lpad('x', 3, '-') AS c, "
        f"rpad('x', 3, '-') AS d, array_repeat(1, 2) AS e FROM `{docs}` LIMIT 1"
    )
    assert run_query(query, _opened).read_all().to_pylist() == [
        {"a": "abab", "b": None, "c": "--x", "d": "x--", "e": [1, 1]}
    ]
