"""`indextables.sql` and `Table.sql`: tables by name, one version each, nothing else in reach."""

from __future__ import annotations

import datetime
import subprocess
import sys
import threading
from datetime import UTC
from decimal import Decimal

import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import indextables as it
from indextables.errors import EmbeddedQueryError
from indextables.query import run_query

ROWS = pa.table(
    {
        "id": [1, 2, 3, 4],
        "body": ["red fox", "lazy dog", "fox and dog", None],
        "at": pa.array([0, 1_000_000, None, 3_600_000_000], pa.timestamp("us", "UTC")),
    }
)
OWNERS = pa.table({"id": [1, 3, 9], "owner": ["ann", "bob", "cid"]})


@pytest.fixture(scope="module")
def docs():
    return it.write_table("memory://query-sql", ROWS)


@pytest.mark.parametrize(
    "owners",
    [
        OWNERS,
        OWNERS.to_pandas(),
        pl.from_arrow(OWNERS),
        OWNERS.to_batches()[0],
        OWNERS.to_reader(),
        {"id": [1, 3, 9], "owner": ["ann", "bob", "cid"]},
    ],
    ids=["arrow", "pandas", "polars", "batch", "reader", "dict"],
)
def test_relations_of_others_are_joined(docs, owners):
    query = (
        "SELECT OWNER, d.ID, _score > 0 AS found, owner indexquery 'bob' AS bob, "
        "snippet(owner, 'ann') AS s FROM Docs d JOIN owners o ON d.id = o.id "
        "WHERE d.body indexquery 'fox' ORDER BY owner"
    )
    assert it.sql(query, docs=docs, owners=owners).to_pylist() == [
        {"owner": "ann", "id": 1, "found": True, "bob": False, "s": "<b>ann</b>"},
        {"owner": "bob", "id": 3, "found": True, "bob": True, "s": ""},
    ]
    assert it.sql("SELECT max(owner) AS o FROM owners", owners=OWNERS).to_pylist() == [{"o": "cid"}]


def test_a_table_is_called_this_in_its_own_queries(docs):
    assert docs.sql("SELECT id FROM this WHERE body indexquery 'dog' ORDER BY 1").to_pydict() == {
        "id": [2, 3]
    }
    query = "SELECT count(*) AS n FROM this JOIN owners USING (id)"
    assert docs.sql(query, owners=OWNERS).to_pylist() == [{"n": 2}]


def test_types_of_columns_are_kept(docs):
    found = docs.sql("SELECT at, id, count(*) OVER () AS n FROM this ORDER BY id LIMIT 1")
    assert found.schema.types == [pa.timestamp("us", "UTC"), pa.int64(), pa.int64()]
    assert docs.sql("SELECT CAST(at AS STRING) AS s, hour(at) AS h FROM this WHERE id = 4") == (
        pa.table({"s": ["1970-01-01 01:00:00"], "h": pa.array([1], pa.int64())})
    )


def test_a_column_of_two_relations_is_ambiguous(docs):
    other = pa.table({"id": [1], "body": ["x"]})
    with pytest.raises(EmbeddedQueryError, match=r"(?i)ambiguous"):
        it.sql("SELECT 1 FROM d JOIN o ON d.id = o.id WHERE body indexquery 'fox'", d=docs, o=other)


def test_searches_are_pushed_beside_relations_of_others(docs, monkeypatch):
    asked = []
    scan = it.Table.scan_batches

    def scanned(self, **question):
        asked.append(question["where"])
        return scan(self, **question)

    monkeypatch.setattr(it.Table, "scan_batches", scanned)
    query = "SELECT owner FROM d JOIN o ON d.id = o.id WHERE body indexquery 'fox' AND d.id > 1"
    assert it.sql(query, d=docs, o=OWNERS).to_pydict() == {"owner": ["bob"]}
    assert asked == ["(id > 1) AND (`body` indexquery 'fox')"]


# --- versions ---------------------------------------------------------------------------------


def test_a_query_sees_one_version_though_rows_are_committed_meanwhile(tmp_path):
    table = it.write_table(tmp_path, pa.table({"n": range(40_000), "body": ["red fox"] * 40_000}))
    query = (
        "SELECT a.n FROM t a WHERE a.body indexquery 'fox' UNION ALL "
        "SELECT n FROM t UNION ALL SELECT count(*) FROM t"
    )
    opened = []

    def opener(*_):
        opened.append(it.Table.open(tmp_path))
        return opened[-1]

    for source in (opener, lambda *_: table):
        rows = run_query(query, source)
        total = rows.read_next_batch().num_rows
        before = table.count()
        # By the handle that the query was given, too.
        table.append(pa.table({"n": [-1], "body": ["late fox"]}))
        rest = [value for batch in rows for value in batch.column(0).to_pylist()]
        assert total + len(rest) == 2 * before + 1
        assert -1 not in rest[: before - total] and rest.count(before) >= 1
        table.restore(version=0)
    assert len(opened) == 1, "three references, one opening"


def test_earlier_versions_are_asked_by_the_query(tmp_path):
    table = it.write_table(tmp_path, OWNERS)
    table.append(OWNERS)
    query = "SELECT (SELECT count(*) FROM this VERSION AS OF 0) AS a, count(*) AS b FROM this"
    assert table.sql(query).to_pylist() == [{"a": 3, "b": 6}]
    with pytest.raises(EmbeddedQueryError, match="one version"):
        it.sql("SELECT * FROM o VERSION AS OF 0", o=OWNERS)


def test_a_stream_that_is_left_early_closes(docs):
    before = threading.active_count()
    for _ in range(20):
        rows = run_query("SELECT a.id FROM t a, t b, t c, t d", lambda *_: docs)
        rows.read_next_batch()
        del rows
    assert threading.active_count() <= before + 4


# --- what a query cannot reach ----------------------------------------------------------------


@pytest.mark.parametrize(
    "query",
    [
        "SELECT * FROM docs2",
        "SELECT * FROM db.docs",
        "SELECT * FROM `/etc/passwd`",
        "SELECT * FROM '/etc/passwd'",
        "SELECT * FROM csv.`/etc/passwd`",
        "SELECT * FROM ROWS",  # a variable of this module
        "SELECT * FROM read_csv('/etc/passwd')",
        "SELECT * FROM read_text('/etc/passwd')",
        "SELECT * FROM glob('/*')",
        "SELECT * FROM duckdb_settings()",
        "SELECT * FROM information_schema.tables",
        "SELECT * FROM pg_catalog.pg_tables",
        "SELECT read_text('/etc/passwd')",
        "SELECT getenv('HOME')",
        "SELECT current_setting('memory_limit')",
        "SELECT getvariable('x')",
        "SELECT printf('%999999999d', 1)",
        "SELECT list_resize([1], 2000000000)",
        "SELECT * FROM relation_0",
        "SET threads = 1",
        "PRAGMA database_list",
        "ATTACH '/tmp/x.db' AS x",
        "INSTALL httpfs",
        "LOAD httpfs",
        "COPY docs TO '/tmp/x.csv'",
        "CREATE TABLE x AS SELECT 1",
        "DROP TABLE docs",
        "SELECT 1; SET threads = 1",
        "CALL pragma_version()",
        "EXPORT DATABASE '/tmp/x'",
    ],
)
def test_a_query_reaches_its_tables_only(docs, query):
    with pytest.raises(EmbeddedQueryError) as caught:
        it.sql(query, docs=docs)
    assert "root:" not in str(caught.value)


@pytest.mark.parametrize(
    "made",
    ["repeat('x', 2000000000)", "repeat(body, 900000000)", "lpad(body, 2000000000, 'b')",
     "sequence(1, 2000000000)", "array_repeat(1, 2000000000)", "space(2000000000)",
     "repeat(repeat('x', 100000), 100000)",
     "replace(repeat('a', 1000000), 'a', repeat('b', 1000000))",
     "regexp_replace(repeat('a', 1000000), 'a', repeat('b', 1000000))",
     "regexp_replace(repeat('a', 100000000), '^', '$0$0$0')",
     "array_join(array_repeat('a', 1000000), repeat('b', 1000000))"],
)  # fmt: skip
def test_no_function_takes_all_memory(docs, made):
    with pytest.raises(EmbeddedQueryError, match="bytes at once"):
        docs.sql(f"SELECT length({made}) AS made FROM this")


@pytest.mark.parametrize(
    ("call", "text"),
    [
        ("regexp_replace('abc', '(b)', '[$1]')", "a[b]c"),
        ("regexp_replace('a1b2', '([a-z])([0-9])', '$2$1-$10')", "1a-a02b-b0"),
        (r"regexp_replace('a.b', '[.]', r'\$\\')", "a$\\b"),
        ("regexp_replace('abcb', 'b', 'x', 3)", "abcx"),
        ("regexp_replace('äbc', 'x*', '-')", "-ä-b-c-"),
        ("regexp_replace(null, 'b', 'x')", None),
        ("regexp_replace(15, 5, 6)", "16"),
        ("regexp_replace(CAST(1e10 AS DOUBLE), 'E', 'e')", "1.0e10"),
        ("replace(151, 5, '66')", "1661"),
        ("replace('aba', 'b', 'xyz')", "axyza"),
        ("replace('aba', 'b')", "aa"),
        ("replace('aba', '', 'xyz')", "aba"),
        ("replace('aba', 'b', null)", None),
        ("array_join(array('a', null, 'b'), '--------------------')", "a--------------------b"),
    ],
)
def test_texts_are_replaced_as_in_spark(call, text):
    assert it.sql(f"SELECT {call} AS x")["x"].to_pylist() == [text]


@pytest.mark.parametrize(
    ("condition", "ids"),
    [
        ("at > '2024'", [3]),
        ("'2024-1' <= at", [3]),
        ("at BETWEEN '1970' AND '2023-12'", [1, 2]),
        ("day IN ('1970', '2022-01-08')", [1, 2]),
        ("day <=> '1970'", [1]),
        ("at < CAST('2024' AS TIMESTAMP)", [1, 2]),
    ],
)
def test_a_year_or_a_month_is_its_first_day(condition, ids):
    times = pa.array([0, 1_700_000_000_000_000, 1_800_000_000_000_000], pa.timestamp("us", "UTC"))
    days = pa.array([0, 19_000, 21_000], pa.date32())
    rows = pa.table({"id": [1, 2, 3], "at": times, "day": days})
    assert (
        it.sql(f"SELECT id FROM t WHERE {condition} ORDER BY id", t=rows)["id"].to_pylist() == ids
    )


def test_a_replacement_that_is_missing_is_said():
    with pytest.raises(EmbeddedQueryError, match="takes a text, a pattern and a replacement"):
        it.sql("SELECT regexp_replace('a', 'b')")


def test_a_replacement_by_columns():
    rows = pa.table({"a": ["xay", "xby", None], "p": ["a", "(b)", "c"], "r": ["1", "$1$1", "2"]})
    found = it.sql("SELECT regexp_replace(a, p, r) AS x, replace(a, 'y', r) AS y FROM t", t=rows)
    assert found.to_pylist() == [
        {"x": "x1y", "y": "xa1"}, {"x": "xbby", "y": "xb$1$1"}, {"x": None, "y": None},
    ]  # fmt: skip
    for replacement in ("a$", "${name}", "$12"):
        with pytest.raises(EmbeddedQueryError, match="regexp_replace"):
            query = f"SELECT regexp_replace(a, '{'(x)' * 12}', '{replacement}') FROM t"
            it.sql(query, t=rows)


@pytest.mark.parametrize(
    ("query", "rows"),
    [
        ("WITH Big AS (SELECT n FROM T WHERE n < 3) SELECT big.n FROM BIG WHERE Big.n > 1", [(2,)]),
        ("WITH A AS (SELECT 1 x), b AS (SELECT a.x FROM a) SELECT B.x, z.x FROM b, A z", [(1, 1)]),
        ("SELECT * FROM (WITH Q AS (SELECT 5 v) SELECT v FROM q) t", [(5,)]),
        ("WITH T AS (SELECT 7 AS n) SELECT n FROM t", [(7,)]),
    ],
)
def test_names_of_with_mean_the_same_in_any_case(query, rows):
    found = it.sql(query, t=pa.table({"n": range(5)}))
    assert list(zip(*(column.to_pylist() for column in found.columns), strict=True)) == rows


def test_a_recursion_ends(docs):
    rows = pa.table({"id": [1, 2, 3], "up": [None, 1, 2], "body": ["a fox", "a dog", "fox, dog"]})
    steps = (
        "WITH RECURSIVE r(n) AS (SELECT 1 {union} {step}) SELECT count(*) AS c, max(n) AS m FROM r"
    )
    for step in ("SELECT n + 1 FROM r", "(SELECT n FROM r)", "SELECT r.n FROM r, r AS s, docs"):
        with pytest.raises(EmbeddedQueryError, match="rows after"):
            it.sql(steps.format(union="UNION ALL", step=step), docs=rows)
    for union, step, last in (
        ("UNION ALL", "SELECT n + 1 FROM r WHERE n < 9000", 9000),
        ("UNION", "SELECT n % 7 + 1 FROM r", 7),
        ("UNION ALL", "VALUES (2)", 2),
    ):
        found = it.sql(steps.format(union=union, step=step))
        assert found.to_pylist() == [{"c": last, "m": last}]
    # A plain union beside a recursion has any number of rows.
    many = pa.table({"n": range(600_000)})
    union = "WITH RECURSIVE u AS (SELECT n FROM many UNION ALL (SELECT n FROM many UNION ALL "
    union += "SELECT n FROM many)), R AS (SELECT 1 AS n UNION ALL SELECT n + 1 FROM r WHERE n < 3) "
    found = it.sql(
        union + "SELECT (SELECT count(*) FROM u) + (SELECT count(*) FROM r) AS c", many=many
    )
    assert found["c"].to_pylist() == [1_800_003]
    # Every query counts anew, and a recursion may search.
    tree = (
        "WITH RECURSIVE t AS (SELECT id, 0 AS depth FROM docs WHERE up IS NULL UNION ALL "
        "SELECT d.id, depth + 1 FROM docs d JOIN t ON d.up = t.id WHERE d.body indexquery 'dog') "
        "SELECT * FROM t ORDER BY id"
    )
    table = it.write_table("memory://recursion", rows)
    for _ in range(3):
        assert it.sql(tree, docs=table)["depth"].to_pylist() == [0, 1, 2]


@pytest.mark.parametrize(
    ("condition", "ids"),
    [
        ("doc.k indexquery 'fox'", [1]),
        ("t.doc.k indexquery 'fox'", [1]),
        ("doc.u.name indexquery 'ann'", [2]),
        ("NOT doc.k indexquery 'fox' AND id > 1", [2, 3]),
        ("doc.k indexquery 'fox' OR t.doc.u.name indexquery 'ann' OR id + 1 = 4", [1, 2, 3]),
        ("indexquerycolumns((doc.k, doc.u.name), 'fox OR ann')", [1, 2]),
        ("doc.n indexquery '>4'", [1]),
        ("st.a indexquery 'fox'", [1]),
        ("other.id = 2 AND doc.k indexquery 'dog'", [2]),
    ],
)
@pytest.mark.parametrize("alias", ["t", "doc"])
def test_a_path_into_json_is_searched(condition, ids, alias):
    rows = pa.table(
        {
            "id": [1, 2, 3],
            "doc": ['{"k": "red fox", "n": 5}', '{"k": "dog", "u": {"name": "ann"}}', '{"z": 1}'],
            "st": [{"a": "red fox"}, {"a": "dog"}, None],
        }
    )
    table = it.write_table("memory://paths-in-sql", rows, mode="overwrite", mapping={"doc": "json"})
    condition = condition.replace("t.doc", f"{alias}.doc")
    query = f"SELECT {alias}.id FROM t {alias} LEFT JOIN other ON other.id = {alias}.id WHERE "
    condition = condition if "other" in condition else condition.replace("id >", f"{alias}.id >")
    condition = condition.replace("OR id +", f"OR {alias}.id +")
    found = it.sql(f"{query}{condition} ORDER BY 1", t=table, other=rows.select(["id"]))
    assert found["id"].to_pylist() == ids
    if "other" not in condition:
        where = condition.replace(f"{alias}.doc", "doc").replace(f"{alias}.id", "id")
        assert sorted(table.scan(where=where)["id"].to_pylist()) == ids


@pytest.mark.parametrize(
    ("search", "ids"),
    [
        ("b.w indexquery 'NOT red'", [2]),
        ("b.w indexquery '-red OR fox'", [2]),
        ("b._indexall indexquery '-red'", [2]),
        ("b.w indexquery 'red'", [1]),
        ("NOT b.w indexquery 'red'", [2]),
        ("b.s indexquery '*'", [1, 2]),
        ("b.s indexquery 's:*'", [1]),
    ],
)
def test_a_row_that_a_join_pads_has_no_words(search, ids):
    a = it.write_table("memory://padded-a", pa.table({"k": [1, 2]}), mode="overwrite")
    rows = pa.table({"k": [1], "w": ["red"], "s": ["x"]})
    b = it.write_table("memory://padded-b", rows, mode="overwrite", mapping={"s": "string"})
    for query in (
        f"SELECT a.k FROM a LEFT JOIN b ON a.k = b.k WHERE {search}",
        f"SELECT k FROM (SELECT a.k, {search} AS hit FROM a LEFT JOIN b ON a.k = b.k) WHERE hit",
    ):
        assert sorted(it.sql(query, a=a, b=b)["k"].to_pylist()) == ids


HANDED_ON = [
    ("SELECT id FROM (SELECT * FROM docs) WHERE body indexquery 'run'", [1]),
    ("SELECT id FROM (SELECT DISTINCT id, tag FROM docs) WHERE tag indexquery 'cat'", []),
    ("WITH c(a, b) AS (SELECT id, body FROM docs) SELECT a FROM c WHERE b indexquery 'run'", [1]),
    ("SELECT q.id FROM (SELECT o.tag AS t, d.* FROM others o JOIN docs d USING (k)) q "
     "WHERE q.body indexquery 'run'", [1]),
    ("SELECT id FROM (SELECT id, body FROM docs UNION ALL SELECT id, body FROM others) "
     "WHERE body indexquery 'run'", [1, 11]),
    ("SELECT id FROM (SELECT id, body FROM others UNION ALL SELECT id, body FROM docs) "
     "WHERE body indexquery 'run'", []),
    ("SELECT id FROM others WHERE EXISTS "
     "(SELECT 1 FROM docs WHERE docs.k = others.k AND others.body indexquery 'run')", []),
    ("SELECT id FROM docs WHERE EXISTS "
     "(SELECT 1 FROM others WHERE docs.k = others.k AND docs.body indexquery 'run')", [1]),
    ("WITH RECURSIVE r AS (SELECT id, body, 1 AS n FROM docs UNION ALL "
     "SELECT id + 1, body, n + 1 FROM r WHERE n < 2) SELECT id FROM r WHERE body indexquery 'run'",
     [1, 2]),
    ("SELECT id FROM (SELECT id, tag FROM docs) WHERE tag FIELDMATCH 'fox'", [2]),
    ("SELECT id FROM (SELECT id, body FROM docs) WHERE body indexquery 'cat'", [1, 2]),
    ("SELECT id FROM (SELECT id, upper(body) AS body FROM docs) WHERE body indexquery 'run'", []),
]  # fmt: skip


@pytest.mark.parametrize(("query", "ids"), HANDED_ON)
def test_a_column_of_a_subquery_is_searched_as_in_its_table(query, ids):
    rows = pa.table(
        {"id": [1, 2], "k": [1, 2], "body": ["cats running", "a dog"], "tag": ["cat dog", "fox"]}
    )
    docs = it.write_table(
        "memory://handed-on",
        rows,
        mode="overwrite",
        mapping={"tag": "string"},
        config={"spark.indextables.indexing.tokenizer.body": "english"},
    )
    docs.set_properties({"spark.indextables.search.synonyms": "cat, dog"})
    others = rows.set_column(0, "id", pa.array([11, 12])).set_column(1, "k", pa.array([1, 3]))
    assert sorted(it.sql(query, docs=docs, others=others).column(0).to_pylist()) == ids
    if "id, body FROM docs) WHERE body indexquery 'cat'" in query:
        shown = query.replace("SELECT id FROM", "SELECT snippet(body, 'run') AS s FROM")
        assert it.sql(shown, docs=docs)["s"].to_pylist() == ["cats <b>running</b>", ""]


@pytest.mark.parametrize(
    ("column", "search"),
    [
        ("n", "5"),
        ("n", "[2 TO 5]"),
        ("n", "NOT >=10"),
        ("x", ">1.5"),
        ("price", "[1 TO 2.5]"),
        ("day", "[2024-01-03 TO 2024-01-05]"),
        ("at", "2024-01-03"),
        ("flag", "false"),
        ("tags", "t3 OR t4"),
        ("doc", "3"),
        ("ip", "10.0.0.0/30"),
    ],
)
def test_values_of_any_type_are_searched_outside_of_their_table(column, search):
    rows = pa.table(
        {
            "id": range(12),
            "n": pa.array([None, *range(1, 12)], pa.int32()),
            "x": [number / 4 for number in range(12)],
            "price": pa.array([Decimal(number) / 4 for number in range(12)], pa.decimal128(9, 2)),
            "day": [datetime.date(2024, 1, number + 1) for number in range(12)],
            "at": [datetime.datetime(2024, 1, number + 1, 5, tzinfo=UTC) for number in range(12)],
            "flag": [True, False, None] * 4,
            "tags": [["a", f"t{number}"] for number in range(12)],
            "doc": [{"k": number} for number in range(12)],
            "ip": [f"10.0.0.{number}" for number in range(12)],
        }
    )
    docs = it.write_table("memory://any-type", rows, mode="overwrite", mapping={"ip": "ip"})
    condition = f"{column} indexquery '{search}'"
    expected = docs.scan(where=condition)["id"].to_pylist()
    assert 0 < len(expected) < 12
    sources = ["(SELECT * FROM docs)", "(SELECT DISTINCT * FROM docs)"]
    if column != "ip":  # a kind that only the mapping of a table has
        sources.append("plain")
    for source in sources:
        query = f"SELECT id FROM {source} WHERE {condition} ORDER BY id"
        assert it.sql(query, docs=docs, plain=rows)["id"].to_pylist() == expected


def test_what_is_no_table_and_what_is_no_query(docs):
    with pytest.raises(EmbeddedQueryError, match="'o' is not a table: int"):
        it.sql("SELECT 1 FROM o", o=3)
    with pytest.raises(EmbeddedQueryError, match=r"no table 'nothing'\. The query has docs\."):
        it.sql("SELECT 1 FROM nothing", docs=docs)
    with pytest.raises(EmbeddedQueryError, match=r"column 12: something is missing near 'FROM'\."):
        it.sql("SELEC * FROM docs", docs=docs)
    with pytest.raises(EmbeddedQueryError, match="A query is a text"):
        it.sql(None)
    assert it.sql("SELECT 1 + 1 AS two").to_pylist() == [{"two": 2}]


def test_queries_of_threads_do_not_meet(docs):
    wrong = []

    def ask(number):
        query = f"SELECT count(*) + {number} AS n FROM this WHERE body indexquery 'fox'"
        if docs.sql(query).to_pylist() != [{"n": 2 + number}]:
            wrong.append(number)

    threads = [threading.Thread(target=ask, args=[number]) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_a_program_ends_in_silence():
    """A stream that is not read to its end leaves nothing to say for the engine."""
    code = (
        "import indextables as it, pyarrow as pa\n"
        "from indextables.query import run_query\n"
        "t = it.write_table('memory://x', pa.table({'n': range(9000)}))\n"
        "rows = run_query('SELECT a.n FROM t a, t b', lambda *_: t)\n"
        "rows.read_next_batch()\n"
        "try: t.sql('SELECT repeat(\"x\", 2000000000) FROM this')\n"
        "except it.IndexTablesError: print('refused')\n"
        "print(t.sql('SELECT max(n) AS m FROM this'))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert "refused" in done.stdout


def test_a_pandas_index_is_no_column(docs):
    frame = pd.DataFrame({"id": [1]}, index=[7])
    assert it.sql("SELECT * FROM f", f=frame).schema.names == ["id"]


@pytest.mark.parametrize(
    "query",
    [
        "SELECT " + "(" * 5_000 + "1" + ")" * 5_000,
        "SELECT 1 FROM docs WHERE " + "id = 1 AND " * 5_000 + "id = 2",
        "SELECT * FROM (" * 2_000 + "SELECT 1" + ")" * 2_000,
    ],
)
def test_a_query_that_is_nested_too_deep_is_refused(docs, query):
    with pytest.raises(EmbeddedQueryError, match="nested too deep"):
        it.sql(query, docs=docs)
