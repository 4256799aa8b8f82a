"""Ranked search as a relation: `search_table`, `indextables_search`, the options of a read."""

from __future__ import annotations

import pyarrow as pa
import pytest
from pyspark.sql import functions as F  # noqa: N812

import indextables as it
from indextables import Table
from indextables.errors import IndexTablesError

# Through the public door in the long run only: other tests here have each of its steps.
bridge_first = pytest.mark.parametrize(
    "door", ["bridge", pytest.param("public", marks=pytest.mark.long)], indirect=True
)
WORDS = ["fox", "hen", "cow", "fox fox", "hen fox", "sql"]


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    rows = pa.table(
        {
            "id": list(range(40)),
            "title": [WORDS[n % 6] for n in range(40)],
            "Body": [f"{WORDS[(n + 2) % 6]} w{n}" for n in range(40)],
            "day": ["2024-01-01" if n % 2 else "2024-01-02" for n in range(40)],
            "at": pa.array([n * 3_600_000_000 for n in range(40)], pa.timestamp("us", "UTC")),
        }
    )
    path = str(tmp_path_factory.mktemp("ranked") / "t")
    made = Table.create(path, rows.schema, partition_by=["day"])
    made.append(rows.slice(0, 25))
    made.append(rows.slice(25))
    return Table.open(path)


def rounded(rows):
    """Rows without times, which Spark shows in a zone, and scores as far as they are equal."""
    return [
        {name: round(value, 4) if name == "_score" else value for name, value in row.items()
         if name != "at"} for row in rows
    ]  # fmt: skip


def rows_of(frame):
    return rounded(row.asDict() for row in frame.collect())


ASKED = [
    {},
    {"limit": 3},
    {"limit": None, "where": "day = '2024-01-01' AND id > 3"},
    {"columns": ["id"], "fields": ["title"], "limit": 5},
    {"columns": ["id", "Body"], "fields": ["title", "Body"], "snippets": ["title"], "limit": 4},
    {"where": "search(title, 'hen')"},
    {"columns": ["id"], "fields": ["title^3", "Body"], "limit": 5},
    {"mode": "any", "where": "id > 3", "snippets": ["title"]},
]


@pytest.mark.parametrize(
    ("door", "asked"),
    [
        *(("bridge", asked) for asked in ASKED),
        *(
            pytest.param("public", asked, marks=() if number % 3 == 1 else pytest.mark.long)
            for number, asked in enumerate(ASKED)
        ),
    ],
    indirect=["door"],
    ids=str,
)
def test_search_table_is_the_search_of_the_table(door, table, asked):
    expected = table.search("fox OR sql", **asked).to_pylist()
    frame = it.search_table(door, table.uri, "fox OR sql", **asked)
    assert rows_of(frame) == rounded(expected)


@bridge_first
def test_a_notebook_shows_the_frame_with_its_words_marked(door, table):
    frame = it.search_table(door, table.uri, "sql", snippets=["title"], limit=3)
    shown = frame._repr_html_()
    assert shown.count("<mark>sql</mark>") == 3 and "3 rows" in shown
    assert not frame.where("id > 1")._repr_html_(), "only the frame of a search runs by itself"


@pytest.mark.parametrize(
    ("call", "asked"),
    [
        ("'{t}', 'fox OR sql'", {}),
        ("'{t}', 'fox OR sql', limit => 3", {"limit": 3}),
        ("'{t}', 'fox', limit => NULL, where => \"day = '2024-01-01'\"",
         {"limit": None, "where": "day = '2024-01-01'"}),
        ("'{t}', 'fox', columns => 'id', fields => 'title', snippets => 'title'",
         {"columns": ["id"], "fields": ["title"], "snippets": ["title"]}),
    ],
)  # fmt: skip
def test_the_function_of_sql(spark, table, call, asked):
    text = f"SELECT * FROM indextables_search({call.format(t=table.uri)})"
    expected = table.search(call.split("'")[3], **asked).to_pylist()
    assert rows_of(spark.sql(text)) == rounded(expected)
    # What does not pass through PySpark calls the table function of the session.
    quoted = text.replace("\\", "\\\\").replace("'", "\\'")
    immediate = spark.sql(f"EXECUTE IMMEDIATE '{quoted}'")
    assert rows_of(immediate) == rounded(expected)
    java = spark._jsparkSession.sql(text.replace("SELECT *", "SELECT id")).collectAsList()
    assert [row.getLong(0) for row in java] == [row["id"] for row in expected]


def test_a_relation_like_any_other(spark, table):
    spark.range(40).createOrReplaceTempView("ranked_ids")
    found = spark.sql(
        f"SELECT r.id, s._score FROM ranked_ids r JOIN indextables_search('{table.uri}', 'sql', "
        "limit => 100) AS s ON r.id = s.id WHERE s.day = '2024-01-02' ORDER BY r.id"
    )
    expected = table.search("sql", limit=None, where="day = '2024-01-02'")["id"].to_pylist()
    assert [row.id for row in found.collect()] == sorted(expected)


def test_a_table_by_its_name(spark, table):
    spark.sql(f"CREATE TABLE ranked_named USING indextables LOCATION '{table.uri}'")
    try:
        expected = table.search("fox", limit=3)["id"].to_pylist()
        frame = it.search_table(spark, "ranked_named", "fox", limit=3)
        assert [row.id for row in frame.collect()] == expected
        named = spark.sql("SELECT id FROM indextables_search('ranked_named', 'fox', limit => 3)")
        assert [row.id for row in named.collect()] == expected
    finally:
        spark.sql("DROP TABLE ranked_named")


def test_a_table_of_the_catalog_in_every_mode(spark):
    spark.sql("CREATE TABLE indextables.searched (id BIGINT, title STRING) USING indextables")
    spark.sql("INSERT INTO indextables.searched VALUES (1, 'red fox'), (2, 'dog')")
    for mode in ("query", "lenient"):
        hits = it.search_table(spark, "indextables.searched", "fox", mode=mode)
        assert [row.id for row in hits.collect()] == [1]
    spark.sql("DROP TABLE indextables.searched")


@bridge_first
def test_the_fields_of_a_table(door, spark, table, tmp_path):
    fields = {"spark.indextables.search.fields": "title^3,Body"}
    made = Table.create(tmp_path / "t", data=table.scan(), properties=fields)
    expected = rounded(made.search("fox w3", limit=6).to_pylist())
    assert expected == rounded(
        made.search("fox w3", fields=["title^3", "Body"], limit=6).to_pylist()
    )
    assert rows_of(it.search_table(door, made.uri, "fox w3", limit=6)) == expected
    if door is not spark:
        return
    spark.sql(f"CREATE TABLE ranked_fields USING indextables LOCATION '{made.uri}'")
    try:
        assert rows_of(it.search_table(spark, "ranked_fields", "fox w3", limit=6)) == expected
        named = "SELECT * FROM indextables_search('ranked_fields', 'fox w3', limit => 6)"
        assert rows_of(spark.sql(named)) == expected
    finally:
        spark.sql("DROP TABLE ranked_fields")


def test_the_options_of_a_read(door, table):
    reader = door.read.format("indextables")
    where = reader.option("where", "search(title, 'hen') AND id < 20").load(table.uri)
    assert where.columns == table.schema.names
    expected = table.scan(where="search(title, 'hen') AND id < 20")["id"].to_pylist()
    assert sorted(row.id for row in where.collect()) == sorted(expected)
    computed = "id % 7 = 3 AND upper(title) LIKE '%HEN%' AND id < 20"
    some = door.read.format("indextables").option("where", computed).load(table.uri).collect()
    assert sorted(row.id for row in some) == [i for i in sorted(expected) if i % 7 == 3]
    assert some
    ranked = (
        door.read.format("indextables")
        .options(search="fox", fields="title, Body", limit=4, snippets="title")
        .option("where", "day = '2024-01-01'")
        .load(table.uri)
    )
    found = table.search("fox", fields=["title", "Body"], limit=4, snippets=["title"],
                         where="day = '2024-01-01'").to_pylist()  # fmt: skip
    assert rows_of(ranked) == rounded(found)
    again = ranked.where("id > 10").select("id").collect()
    assert [row.id for row in again] == [row["id"] for row in found if row["id"] > 10]


def test_times_are_those_of_the_session(door, table):
    before = door.conf.get("spark.sql.session.timeZone")
    door.conf.set("spark.sql.session.timeZone", "America/New_York")
    try:
        where = "at >= TIMESTAMP '1970-01-01 10:00:00'"  # 15:00 in UTC
        frame = door.read.format("indextables").option("where", where).load(table.uri)
        assert min(row.id for row in frame.collect()) == 15
    finally:
        door.conf.set("spark.sql.session.timeZone", before)


def test_mistakes(spark, table, tmp_path):
    for call in ("'x/y'", f"'{table.uri}', fox", f"'{table.uri}', 'a', 3", f"'{table.uri}', 'a', "
                 "size => 3", f"'{table.uri}', 'a', limit => 'x'"):  # fmt: skip
        with pytest.raises(IndexTablesError, match="Write indextables_search"):
            spark.sql(f"SELECT * FROM indextables_search({call})")
    with pytest.raises(IndexTablesError, match="lists of names"):
        it.search_table(spark, table.uri, "fox", columns="id")
    with pytest.raises(IndexTablesError, match="belong to the option search"):
        spark.read.format("indextables").option("limit", 3).load(table.uri)
    with pytest.raises(IndexTablesError, match="chooses rows of a read"):
        spark.range(3).write.format("indextables").option("where", "id > 1").save(
            str(tmp_path / "w")
        )
    with pytest.raises(Exception, match="zz"):
        it.search_table(spark, table.uri, "zz:fox").collect()


@bridge_first
def test_what_people_type(spark, door, table):
    typed = "http://fox.sql ("
    expected = rounded(table.search(typed, mode="lenient").to_pylist())
    assert rows_of(it.search_table(door, table.uri, typed, mode="lenient")) == expected
    text = f"SELECT * FROM indextables_search('{table.uri}', '{typed}', mode => 'lenient')"
    assert rows_of(spark.sql(text)) == expected
    quoted = text.replace("'", "\\'")
    assert rows_of(spark.sql(f"EXECUTE IMMEDIATE '{quoted}'")) == expected
    with pytest.raises(IndexTablesError, match="lenient"):
        it.search_table(door, table.uri, "fox", mode="loose")


@pytest.mark.parametrize(
    "order",
    [
        "_score * (id % 7)",
        "-_score",
        *(
            pytest.param(o, marks=pytest.mark.long)
            for o in ("_score * exp(-id / 7)", "_score - id")
        ),
    ],
)
def test_a_top_n_over_an_expression_of_the_score_is_complete(spark, table, order):
    every = table.search("fox OR sql", limit=None, columns=["id"], rank_by=order)
    wanted = [round(value, 4) for value in every["_rank_by"].to_pylist()]
    frame = spark.read.format("indextables").load(table.uri)
    ranked = frame.where("indexqueryall('fox OR sql')")
    for name in ("s", "_score"):
        best = ranked.selectExpr(f"{order} AS {name}").orderBy(F.desc(name))
        assert [round(row[0], 4) for row in best.limit(3).collect()] == wanted[:3]
        assert [round(row[0], 4) for row in best.collect()] == wanted
    best = ranked.orderBy(F.expr(order).desc()).select("id").limit(3)
    assert len(best.collect()) == 3
    text = f"SELECT {order} AS s FROM indextables.`{table.uri}` WHERE indexqueryall('fox OR sql')"
    found = spark.sql(f"{text} ORDER BY {order} DESC LIMIT 4").collect()
    assert [round(row[0], 4) for row in found] == wanted[:4]


def test_vectors_of_spark(spark, tmp_path):
    """array<float> with a declared dimension; without one a column of plain arrays."""
    path = str(tmp_path / "t")
    rows = [(n, [float(n), 1.0, -float(n % 3)], f"w{n % 4}") for n in range(20)]
    frame = spark.createDataFrame([*rows, (20, None, "w0")], "id long, v array<float>, body string")
    frame.withMetadata("v", {"indextables.dimension": 3}).write.format("indextables").save(path)
    table = Table.open(path)
    found = table.search(vector=[1.0, 0.5, 0.0], metric="dot", limit=3)
    assert found["id"].to_pylist() == [19, 18, 17]
    assert "v" not in table.mapping
    back = spark.read.format("indextables").load(path)
    assert back.where("id = 4").collect()[0]["v"] == [4.0, 1.0, -1.0]
    assert back.schema["v"].metadata["indextables.dimension"] == 3
    with pytest.raises(Exception, match="vector of 2 numbers"):
        spark.createDataFrame([(1, [1.0, 2.0], "a")], frame.schema).write.format(
            "indextables"
        ).mode("append").save(path)
    assert table.refresh().count() == 21
