"""A search that Spark evaluates finds what the index finds, whatever the column's mapping."""

from __future__ import annotations

import ipaddress

import pyarrow as pa
import pytest
from pyspark.sql import functions as f

import indextables as it
from indextables import Table

ROWS = pa.table(
    {
        "id": [1, 2, 3, 4, 5],
        "plain": ["running fox", "run", "Fox-Run", None, "foxes"],
        "exact": ["running fox", "run", "Running Fox", None, "fox"],
        "stem": ["running fox", "run", "Fox-Run", None, "foxes"],
        "doc": ['{"a": "running fox", "n": 7}', '{"a": "run"}', '["fox"]', None, '{"b": "foxes"}'],
        "addr": ["10.0.0.1", "10.0.0.77", "2001:db8::1", None, "192.168.1.1"],
        "gram": ["running fox", "run", "Fox-Run", None, "foxes"],
        "space": ["running fox", "run", "Fox-Run", None, "foxes,fox"],
        "chain": ["the running fox", "Run", "<b>r</b>ün", None, "getRun"],
        "hidden": ["fox", "fox", "run", None, "run"],
        "n": [7, 8, None, 9, 7],
        "part": ["fox", "fox", "run", "run", "run"],
    }
)
OPTIONS = {
    "spark.indextables.indexing.typemap.exact": "string",
    "spark.indextables.indexing.typemap.doc": "json",
    "spark.indextables.indexing.typemap.addr": "ip",
    "spark.indextables.indexing.tokenizer.stem": "en_stem",
    "spark.indextables.indexing.tokenizer.gram": "ngram(2,3)",
    "spark.indextables.indexing.tokenizer.space": "whitespace",
    "spark.indextables.indexing.tokenizer.chain": "html | english | fold",
}
# Each has another answer with the default mapping, but for the first.
SEARCHES = {
    "plain": "run",
    "exact": "fox",
    "stem": "runs",
    "doc": "running",
    "addr": "10.0.0.0/8",
    "gram": "ox",
    "space": "fox",
    "chain": "the AND runs",
    "n": ">7",
    "part": "fox",
}
OTHERS = {"stem": "exact:run OR gram:unn", "plain": "stem:foxes AND plain:run"}


@pytest.fixture(scope="module")
def table(spark, tmp_path_factory):
    path = str(tmp_path_factory.mktemp("mapped") / "t")
    made = Table.create(path, ROWS.schema, partition_by=["part"], config=OPTIONS)
    made.append(ROWS)
    frame = spark.read.format("indextables").load(path)
    frame.createOrReplaceTempView("mapped_frame")
    spark.sql(f"CREATE OR REPLACE TEMP VIEW mapped_view AS SELECT * FROM indextables.`{path}`")
    spark.sql(
        "CREATE OR REPLACE TEMP VIEW mapped_renamed AS SELECT id, "
        + ", ".join(f"{name} AS {name}_2" for name in SEARCHES)
        + f" FROM indextables.`{path}`"
    )
    cached = spark.read.format("indextables").load(path).cache()
    cached.createOrReplaceTempView("mapped_cached")
    yield path
    cached.unpersist()


@pytest.fixture(scope="module")
def expected(table):
    """Which rows each search finds, by the indexes alone."""
    opened = Table.open(table)
    found = {
        name: set(opened.scan(columns=["id"], where=f"{name} indexquery '{q}'")["id"].to_pylist())
        for name, q in SEARCHES.items()
    }
    assert len(set(map(frozenset, found.values()))) > 5
    return found


def _calls(prefix="", suffix=""):
    return {n: f"{prefix}{n}{suffix} indexquery '{q}'" for n, q in SEARCHES.items()}


POSITIONS = {
    "select": "SELECT id, {hits} FROM {t}",
    "case": "SELECT id, {cases} FROM {t}",
    "filter": "SELECT id, {filters} FROM {t} GROUP BY id",
    "left join": "SELECT x.id, {joined} FROM (SELECT id FROM {t}) x LEFT JOIN {t} y ON x.id = y.id",
    "group by": "SELECT id, {hits} FROM {t} GROUP BY id, {groups}",
    "subquery": "SELECT id, {hits} FROM (SELECT * FROM {t} LIMIT 100)",
    "union": "SELECT id, {hits} FROM (SELECT * FROM {t} WHERE id < 3 UNION ALL "
    "SELECT * FROM {t} WHERE id >= 3)",
}


@pytest.mark.parametrize(
    ("source", "position"),
    [
        *(("table", position) for position in POSITIONS),
        *((s, p) for s in ("mapped_view", "mapped_cached") for p in ("select", "left join")),
        ("mapped_frame", "select"),
    ],
)
def test_unpushed_searches_find_what_the_index_finds(spark, table, expected, source, position):
    t = f"indextables.`{table}`" if source == "table" else source
    calls = _calls()
    query = POSITIONS[position].format(
        t=t,
        hits=", ".join(f"{c} AS h_{n}" for n, c in calls.items()),
        cases=", ".join(
            f"CASE WHEN {c} THEN true ELSE false END AS h_{n}" for n, c in calls.items()
        ),
        filters=", ".join(f"count(*) FILTER (WHERE {c}) > 0 AS h_{n}" for n, c in calls.items()),
        joined=", ".join(f"{c} AS h_{n}" for n, c in _calls("y.").items()),
        groups=", ".join(calls.values()),
    )
    assert _hits(spark.sql(query)) == expected


def test_a_join_with_or_and_renamed_columns(spark, table, expected):
    t = f"indextables.`{table}`"
    for name, query in SEARCHES.items():
        found = spark.sql(
            f"SELECT x.id FROM {t} x JOIN {t} y ON x.id = y.id "
            f"WHERE y.id < 0 OR x.{name} indexquery '{query}'"
        )
        assert {row.id for row in found.collect()} == expected[name], name
    hits = ", ".join(f"{c} AS h_{n}" for n, c in _calls(suffix="_2").items())
    assert _hits(spark.sql(f"SELECT id, {hits} FROM mapped_renamed")) == expected


def test_the_functions_of_data_frames(spark, table, expected):
    for name in ("mapped_frame", "mapped_cached"):
        frame = spark.table(name)
        hits = [it.indexquery(n, q).alias(f"h_{n}") for n, q in SEARCHES.items()]
        assert _hits(frame.select("id", *hits)) == expected
    stemmed = spark.table("mapped_cached").select(it.snippet("stem", "runs").alias("s")).collect()
    assert stemmed[0].s == "<b>running</b> fox"


def test_queries_that_name_other_fields_and_all_of_them(spark, table):
    opened = Table.open(table)
    t = f"indextables.`{table}`"
    for name, query in OTHERS.items():
        want = opened.scan(columns=["id"], where=f"{name} indexquery '{query}'")["id"].to_pylist()
        found = spark.sql(f"SELECT id, {name} indexquery '{query}' AS h FROM {t}")
        assert [row.id for row in found.collect() if row.h] == want, query
    for query in ("run", "runs", "10.0.0.0/8", "fox AND NOT 7", "stem:foxes"):
        want = opened.scan(columns=["id"], where=f"_indexall indexquery '{query}'")[
            "id"
        ].to_pylist()
        for source in (t, "mapped_view", "mapped_cached", "mapped_frame"):
            found = spark.sql(f"SELECT id, indexqueryall('{query}') AS h FROM {source}").collect()
            assert sorted(row.id for row in found if row.h) == sorted(want), (query, source)


def test_a_copy_of_a_table_has_a_mapping_of_its_own(spark, table, tmp_path):
    copy = str(tmp_path / "copy")
    spark.read.format("indextables").load(table).write.format("indextables").save(copy)
    assert "indextables.mapping" not in Table.open(copy).snapshot().metadata.schema_string
    found = spark.sql(f"SELECT id, stem indexquery 'runs' AS h FROM indextables.`{copy}`")
    assert not any(row.h for row in found.collect())


def _hits(frame):
    rows = frame.collect()
    return {n: {row.id for row in rows if row[f"h_{n}"]} for n in SEARCHES}


def test_all_fields_of_joined_tables(spark, table, tmp_path):
    """Every field of every table that the condition can see, each with its own mapping."""
    other = pa.table(
        {"id": [1, 2, 3], "stem": ["x", "boxes", "10.0.0.9"], "note": ["y", "y", "fox"]}
    )
    path = str(tmp_path / "other")
    Table.create(path, other.schema).append(other)
    left, right = f"indextables.`{table}`", f"indextables.`{path}`"
    spark.read.format("indextables").load(path).createOrReplaceTempView("other_view")
    expected = {
        "boxes": {2},
        "runs": {1, 2, 3},  # a stem on the left alone
        "runs AND boxes": {2},
        "10.0.0.0/8": {1, 2},  # an address on the left, a text on the right
        "note:fox": {3},
        "stem:boxes": {2},  # both tables have one
        "stem:runs AND NOT stem:boxes": {1, 3},
        "nowhere": set(),
    }
    found = lambda rows: [{r.id for r in rows if r[f"h{n}"]} for n in range(len(expected))]  # noqa: E731
    hits = ", ".join(f"indexqueryall('{query}') AS h{n}" for n, query in enumerate(expected))
    for a, b in ((left, right), ("mapped_view", "other_view")):
        joined = f"{a} a JOIN {b} b ON a.id = b.id"
        shown = spark.sql(f"SELECT a.id, {hits} FROM {joined}").collect()
        assert found(shown) == list(expected.values()), a
        where = spark.sql(f"SELECT a.id FROM {joined} WHERE indexqueryall('stem:boxes')")
        assert [row.id for row in where.collect()] == [2], a
    a, b = (spark.read.format("indextables").load(p) for p in (table, path))
    frame = a.join(b.withColumnRenamed("id", "other_id"), a.id == f.col("other_id"))
    hits = [it.indexqueryall(query).alias(f"h{n}") for n, query in enumerate(expected)]
    assert found(frame.select("id", *hits).collect()) == list(expected.values())
    # With a name before it, and beside what has no hidden column, one table is meant.
    for where in ("a._indexall indexquery 'boxes'", "b._indexall indexquery 'runs'"):
        joined = f"{left} a JOIN {right} b ON a.id = b.id"
        assert not spark.sql(f"SELECT 1 FROM {joined} WHERE {where}").collect()
    joined = f"{left} a JOIN other_view b ON a.id = b.id"
    assert not spark.sql(f"SELECT 1 FROM {joined} WHERE indexqueryall('boxes')").collect()


def test_all_fields_of_a_frame_without_a_hidden_column(spark, table):
    frame = spark.table("mapped_cached").select("*")
    found = frame.select("id", it.indexqueryall("runs").alias("h")).collect()
    assert {row.id for row in found if row.h} == {1, 2, 3}


ANALYZERS = {
    "english": "the AND runs",
    "html": "run",
    "code": "http",
    "code | stem(en)": '"gets http"',
    "default | fold": "run",
    "default | edge(1,3)": "ru",
    "default | pieces(2,3)": "un",
    "default | shingles(2)": '"running fox"',
    "default | stop_words(fox)": "fox AND run",
    "words": "Run",
    "raw | lower": "run",
    "cjk": "京都",
}


def test_every_analyzer_goes_with_its_column(spark, tmp_path):
    texts = ["the running fox", "Run", "<b>r</b>un", None, "rün getHttpRun", "東京都"]
    columns = {f"c{n}": texts for n in range(len(ANALYZERS))}
    data = pa.table({"id": range(len(texts)), **columns})
    names = zip(columns, ANALYZERS, strict=True)
    options = {f"spark.indextables.indexing.tokenizer.{c}": name for c, name in names}
    made = Table.create(str(tmp_path / "t"), data.schema, config=options)
    made.append(data)
    calls = {c: f"{c} indexquery '{q}'" for c, q in zip(columns, ANALYZERS.values(), strict=True)}
    hits = ", ".join(f"{call} AS h_{c}" for c, call in calls.items())
    seen = spark.sql(f"SELECT id, {hits} FROM indextables.`{tmp_path}/t`").collect()
    found = {c: {row.id for row in seen if row[f"h_{c}"]} for c in calls}
    by_index = {
        c: set(made.scan(columns=["id"], where=call)["id"].to_pylist()) for c, call in calls.items()
    }
    assert found == by_index
    assert all(by_index.values())


def test_synonyms_go_with_the_columns(spark, tmp_path):
    """Pushed or not, in SQL or by a function, over one column or all."""
    place = f"indextables.`{tmp_path}/t`"
    made = Table.create(
        str(tmp_path / "t"), pa.schema({"id": pa.int64(), "t": pa.string(), "u": pa.string()})
    )
    made.append(
        pa.table({"id": [1, 2, 3], "t": ["new york", "ny", "x"], "u": ["a", "b", "new york"]})
    )
    spark.sql(
        f"ALTER TABLE {place} SET TBLPROPERTIES "
        "('spark.indextables.search.synonyms' = 'ny => new york, big apple')"
    )
    for call, expected in {
        "t indexquery 'ny'": {1},
        "search(t, 'NY')": {1},
        "match_any(u, 'ny b')": {2, 3},
        "indexqueryall('ny')": {1, 3},
        "search((t, u), 'ny')": {1, 3},
    }.items():
        pushed = spark.sql(f"SELECT id FROM {place} WHERE {call}").collect()
        assert {row.id for row in pushed} == expected, call
        unpushed = spark.sql(f"SELECT id FROM {place} WHERE {call} OR rand() < -1").collect()
        assert {row.id for row in unpushed} == expected, call
    seen = spark.sql(f"SELECT id, t indexquery 'ny' AS h FROM {place}").collect()
    assert {row.id for row in seen if row.h} == {1}
    for call in ("_indexall indexquery 'ny'", "indexqueryall('ny')"):
        seen = spark.sql(f"SELECT id, {call} AS h FROM {place}").collect()
        assert {row.id for row in seen if row.h} == {1, 3}, call
    frame = spark.read.format("indextables").load(str(tmp_path / "t"))
    assert {r.id for r in frame.filter(it.search("u", "ny")).collect()} == {3}
    ranked = it.search_table(spark, str(tmp_path / "t"), "t:ny").collect()
    assert [row.id for row in ranked] == [1]


def test_networks_are_searches_and_why_equality_is_not(spark, table):
    """A null is in no network, in a condition, a list, a join and under NOT alike."""
    ids, addresses = ROWS["id"].to_pylist(), ROWS["addr"].to_pylist()
    network = ipaddress.ip_network("10.0.0.0/8")
    inside = {
        n
        for n, text in zip(ids, addresses, strict=True)
        if text is not None and (one := ipaddress.ip_address(text)).version == 4 and one in network
    }
    t, is_in = f"indextables.`{table}`", "addr indexquery '10.0.0.0/8'"
    between = "addr indexquery '[10.0.0.50 TO 192.168.2.0]'"
    found = spark.sql(
        f"SELECT 'is' AS q, id FROM {t} WHERE {is_in} UNION ALL "
        f"SELECT 'not', id FROM {t} WHERE NOT {is_in} UNION ALL "
        f"SELECT 'case', id FROM {t} WHERE CASE WHEN {is_in} THEN true ELSE n = 0 END UNION ALL "
        f"SELECT 'outer', a.id FROM (SELECT id FROM {t}) a LEFT JOIN "
        f"(SELECT id AS i, addr FROM {t} WHERE n > 7) b ON a.id = b.i WHERE b.{is_in} UNION ALL "
        f"SELECT 'range', id FROM {t} WHERE {between}"
    ).collect()
    by_question = {q: {row.id for row in found if row.q == q} for q in {row.q for row in found}}
    wanted = {"is": inside, "not": {*ids} - inside, "case": inside, "outer": {2}, "range": {2, 5}}
    assert by_question == wanted
    plain = Table.open(table)
    for question, condition in (("is", is_in), ("not", f"NOT {is_in}"), ("range", between)):
        rows = plain.scan(columns=["id"], where=condition)["id"].to_pylist()
        assert set(rows) == wanted[question]
        rows = it.sql(f"SELECT id FROM t WHERE {condition}", t=plain)["id"].to_pylist()
        assert set(rows) == wanted[question]
    # Spark reckons with equality before a table hears of it: the second condition is gone.
    both = spark.sql(
        "SELECT id FROM mapped_cached WHERE addr = '10.0.0.0/8' AND addr <> '10.0.0.77'"
    )
    plan = both._jdf.queryExecution().optimizedPlan().toString()
    assert "10.0.0.0/8" in plan and "10.0.0.77" not in plan
