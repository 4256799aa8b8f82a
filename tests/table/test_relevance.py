"""What people type, the fields that count, and why a row has its score."""

from __future__ import annotations

import datetime
import math

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from indextables import Table
from indextables.errors import (
    ConfigError,
    EmbeddedQueryError,
    QueryError,
    QuerySyntaxError,
    SchemaError,
    UnknownColumnError,
)
from indextables.log.files import vectors_by_path

FIELDS = "spark.indextables.search.fields"
MARKED = {
    "spark.indextables.deletionVectors.mode": "vector",
    "spark.indextables.deletionVectors.maxDeletedShare": "1.0",
    "spark.indextables.mergeOnWrite.enabled": "false",
}
ROWS = pa.table(
    {
        "id": [1, 2, 3, 4, 5],
        "name": ["zero copy sendfile", "a", "b", "c", "d"],
        "title": ["readme", "zero copy", "sendfile", "fox", None],
        "body": [
            "nothing here",
            "os.sendfile() makes a zero copy of a file to a socket",
            "see http://example.com for more about example files",
            "the quick fox, http and com",
            'she said "unbalanced and left',
        ],
    }
)


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    return Table.create(tmp_path_factory.mktemp("relevance") / "t", data=ROWS)


def ids(found):
    return found["id"].to_pylist()


def ranking(found):
    return list(zip(ids(found), found["_score"].to_pylist(), strict=True))


# --- fields and weights --------------------------------------------------------------------------


def test_fields_have_weights(table):
    weighted = table.search("zero sendfile", fields=["title^3", "body"])
    by_hand = table.search("(title:zero^3 OR body:zero) (title:sendfile^3 OR body:sendfile)")
    assert ranking(weighted) == ranking(by_hand)
    assert ids(table.search("zero sendfile", fields=["title^0.001", "body"])) == [2, 3]


@pytest.mark.parametrize("partition_by", [[], ["id"]])
def test_a_table_names_its_fields(tmp_path, partition_by):
    made = Table.create(
        tmp_path / "t", data=ROWS, partition_by=partition_by, properties={FIELDS: "title^3, body"}
    )
    asked = made.search("zero copy sendfile", fields=["title^3", "body"])
    assert ids(asked) == [2, 3]
    assert ranking(made.search("zero copy sendfile")) == ranking(asked)
    assert ids(made.search("name:zero")) == [1]
    assert ids(made.search("zero", fields=["name"])) == [1]
    facet = made.facets("zero copy sendfile", by=["title"])["title"]["title"].to_pylist()
    assert sorted(facet) == ["sendfile", "zero copy"]
    made.rename_column("title", "heading")
    assert made.properties[FIELDS] == "heading^3,body"
    assert ranking(made.search("zero copy sendfile")) == ranking(asked)
    made.drop_columns("heading")
    assert ids(made.search("zero copy sendfile")) == [2]
    by_hand = Table.open(tmp_path / "t", config={FIELDS: "name"})
    assert ids(by_hand.search("zero")) == [1]


def test_a_column_with_a_weight_in_its_name(tmp_path):
    rows = pa.table({"x^2": ["fox", "dog"], "x": ["dog", "fox"], "n": [1, 2]})
    made = Table.create(tmp_path / "t", data=rows)
    assert made.search("fox", fields=["x^2"])["n"].to_pylist() == [1]
    assert made.search("fox", fields=["x^2^3"])["n"].to_pylist() == [1]


@pytest.mark.parametrize("weight", ["0", "-1", "nan", "1e10", "much", ""])
def test_a_weight_is_a_number_above_zero(table, weight):
    with pytest.raises((SchemaError, UnknownColumnError), match=r"title\^"):
        table.search("zero", fields=[f"title^{weight}"])


def test_unknown_fields_are_named(tmp_path, table):
    with pytest.raises(UnknownColumnError, match="'headline'"):
        table.search("zero", fields=["headline^2"])
    for refused in (
        lambda: Table.create(tmp_path / "t", data=ROWS, properties={FIELDS: "headline^2,body"}),
        lambda: Table.open(table.uri, config={FIELDS: "headline^2,body"}).search("zero"),
    ):
        with pytest.raises(SchemaError, match=rf"{FIELDS} names 'headline'.*title"):
            refused()
    with pytest.raises(SchemaError, match="indexed"):
        Table.create(
            tmp_path / "u", data=ROWS, properties={FIELDS: "id"},
            config={"spark.indextables.indexing.storeonlyfields": "id"},
        ).search("zero")  # fmt: skip


# --- modes ---------------------------------------------------------------------------------------

TYPED = {
    "http://example.com": 3,
    "os.sendfile()": 2,
    'said "unbalanced and': 5,
    "quick fox?": 4,
    "(quick fox": 4,
    "what: quick fox!": 4,
    "AND quick AND": 4,
    "+quick -": 4,
    "/quick": 4,
    "/fox/ quick": 4,
    "C:\\temp\\quick": 4,
    "quick~9 fox^x": 4,
    "id:abc quick": 4,
    "[quick TO": 4,
    "quick \ud800": 4,
    "*quick* ?": 4,
    "NOT": None,
    "()": None,
    "": None,
    " \t": None,
    '"': None,
    "-": None,
}


@pytest.mark.parametrize("typed", TYPED, ids=repr)
def test_what_people_type_is_never_an_error(table, typed):
    found = ids(table.search(typed, mode="lenient"))
    assert (found[:1] or [None]) == [TYPED[typed]]


def test_a_lenient_search_reads_what_is_right(table):
    for query in ('"zero copy" -title:readme', "title:fox OR body:socket", "sendf*", "+quick fox"):
        right = table.search(query)
        assert right.num_rows
        assert ranking(table.search(query, mode="lenient")) == ranking(right)


def test_a_lenient_search_of_too_many_words_asks_for_the_word(tmp_path):
    rows = pa.table({"id": list(range(60)), "body": [f"word{n} w" for n in range(60)]})
    made = Table.create(
        tmp_path / "t", data=rows, config={"spark.indextables.indexquery.maxExpansions": "10"}
    )
    with pytest.raises(Exception, match="word"):
        made.search("*ord*")
    assert made.search("wor* w", mode="lenient").num_rows == 10


@pytest.mark.parametrize(
    ("mode", "words", "wanted"),
    [
        ("all", "http com", [3, 4]),
        ("any", "socket fox", [2, 4]),
        ("phrase", "zero copy", [1, 2]),
        ("prefix", "zero cop", [1, 2]),
        ("query", "socket OR fox", [2, 4]),
    ],
)
def test_modes(table, mode, words, wanted):
    assert sorted(ids(table.search(words, mode=mode))) == wanted


def test_an_unknown_mode_lists_what_there_is(table):
    with pytest.raises(ConfigError, match="lenient"):
        table.search("a", mode="fuzzy")
    with pytest.raises(QuerySyntaxError):
        table.search("os.sendfile()")
    with pytest.raises(QuerySyntaxError, match="maxLength"):
        table.search("fox " * 10_000, mode="lenient")


def test_modes_of_facets_and_histograms(table, tmp_path):
    typed = "http://example.com"
    with pytest.raises(QueryError):
        table.facets(typed, by=["title"])
    found = table.search(typed, mode="lenient", limit=None)
    facet = table.facets(typed, by=["id"], mode="lenient")["id"]
    assert sorted(facet["id"].to_pylist()) == sorted(ids(found))
    parts = table.histogram(typed, column="id", interval=1, mode="lenient")
    assert sum(parts["count"].to_pylist()) == found.num_rows
    with pytest.raises(ConfigError, match="lenient"):
        table.facets("a", by=["id"], mode="fuzzy")
    many = pa.table({"id": list(range(60)), "body": [f"word{n} w" for n in range(60)]})
    limited = Table.create(
        tmp_path / "t", data=many, config={"spark.indextables.indexquery.maxExpansions": "10"}
    )
    assert limited.facets("wor* w", by=["id"], mode="lenient")["id"].num_rows == 10
    assert limited.histogram("wor* w", column="id", interval=10, mode="lenient").num_rows == 6


# --- why a row has its score ---------------------------------------------------------------------

EXPLAINED = [
    "zero copy sendfile",
    "title:zero^3 body:file",
    '"zero copy" OR exam*',
    "+http -zero com",
    "id:[2 TO 4] sendfile",
    "(quick AND fox) OR title:readme",
    "sendfil~1",
    "*",
]


@pytest.fixture(scope="module")
def layouts(table, tmp_path_factory):
    """The same rows in one split, in many, in partitions, and among rows that are deleted."""
    root = tmp_path_factory.mktemp("layouts")
    many = Table.create(
        root / "many", ROWS.schema, config={"spark.indextables.mergeOnWrite.enabled": "false"}
    )
    for n in range(5):
        many.append(ROWS.slice(n, 1))
    partitioned = Table.create(root / "partitioned", data=ROWS, partition_by=["id"])
    stemmed = Table.create(
        root / "stemmed", data=ROWS,
        config={"spark.indextables.indexing.tokenizer.body": "en_stem"}, mapping={"name": "string"},
    )  # fmt: skip
    deleted = Table.create(root / "deleted", data=ROWS, config=MARKED)
    deleted.delete(where="id = 4")
    assert vectors_by_path(deleted.view.snapshot.entries)
    return {
        "one": table, "many": many, "partitioned": partitioned, "stemmed": stemmed,
        "deleted": deleted,
    }  # fmt: skip


@pytest.mark.parametrize("layout", ["one", "many", "partitioned", "stemmed", "deleted"])
def test_the_parts_of_a_score_add_up(layouts, layout):
    explained = layouts[layout]
    for query in EXPLAINED:
        for fields in (None, ["title^3", "body"]):
            for hit in explained.search(query, fields=fields, columns=["id", "_split", "_row"],
                                        limit=None).to_pylist():  # fmt: skip
                found = explained.explain_score(query, hit, fields=fields)
                assert found.score == hit["_score"]
                scores = found.parts["score"].to_pylist()
                assert sum(scores) == pytest.approx(hit["_score"], rel=1e-5), (query, hit)
                assert scores == sorted(scores, reverse=True)
                for part in found.parts.to_pylist():
                    if part["idf"] is not None:
                        product = part["boost"] * part["idf"] * part["tf"]
                        assert part["score"] == pytest.approx(product, rel=1e-5)
                        saturated = part["occurrences"] + part["norm"]
                        assert part["tf"] == pytest.approx(
                            part["occurrences"] * 2.2 / saturated, rel=1e-5
                        )
                assert found.score == explained.explain_score(
                    query, f"id = {hit['id']}", fields=fields
                ).score  # fmt: skip


def test_a_score_by_its_definition(table):
    found = table.explain_score("body:file", "id = 2")
    (part,) = found.parts.to_pylist()
    assert (part["column"], part["clause"], part["occurrences"], part["rows"]) == (
        "body", "file", 1, 1
    )  # fmt: skip
    idf = math.log(1 + (5 - 1 + 0.5) / (1 + 0.5))
    lengths = [2, 12, 9, 6, 5]
    norm = 1.2 * (0.25 + 0.75 * 12 / (sum(lengths) / 5))
    assert part["idf"] == pytest.approx(idf, rel=1e-5)
    assert part["norm"] == pytest.approx(norm, rel=1e-5)
    assert found.score == pytest.approx(idf * 2.2 / (1 + norm), rel=1e-5)
    assert "body:file" in str(found)


def test_rows_that_are_not_explained(table):
    assert table.explain_score("fox", "id = 1").score == 0
    assert table.explain_score("fox", "id = 1").parts.num_rows == 0
    assert table.explain_score("os.sendfile()", "id = 2", mode="lenient").score > 0
    for row, message in (
        ("id > 1", "More than one"), ("id > 9", "No row"), (("nowhere", 0), "no split"),
        ({"id": 1}, "does not name a row"), (7, "does not name a row"),
    ):  # fmt: skip
        with pytest.raises(QueryError, match=message):
            table.explain_score("fox", row)
    split = table.search("fox", columns=["_split"])["_split"][0].as_py()
    with pytest.raises(QueryError, match="has no row 99"):
        table.explain_score("fox", (split, 99))


# --- what rows are ranked by ---------------------------------------------------------------------

COUNT = 400
DATED = pa.table(
    {
        "id": list(range(COUNT)),
        "body": [f"fox {'fox ' * (n % 4)}w{n % 11}" for n in range(COUNT)],
        "Age": pa.array([None if n % 50 == 7 else n * 13 % 97 for n in range(COUNT)], pa.int32()),
        "day": [datetime.date(2024, 1, 1) + datetime.timedelta(n % 31) for n in range(COUNT)],
    }
)


@pytest.fixture(scope="module")
def dated(tmp_path_factory):
    root = tmp_path_factory.mktemp("dated")
    off = {"spark.indextables.mergeOnWrite.enabled": "false"}
    made = []
    for splits in (1, 10, 100):
        made.append(Table.create(root / str(splits), DATED.schema, config=off))
        for n in range(splits):
            made[-1].append(DATED.take(list(range(n, COUNT, splits))))
    made.append(Table.create(root / "days", data=DATED, partition_by=["day"]))
    return made


@pytest.mark.parametrize("expression", [
    "_score * exp(-age / 7)",
    "_score * exp(-datediff(DATE'2024-02-01', day) / 7.0)",
    "age",
    "CASE WHEN age > 50 THEN _score ELSE -1 END",
    "1 -- nothing decides but the order of ties",
])  # fmt: skip
def test_rows_are_ranked_by_an_expression(dated, expression):
    asked = {"rank_by": expression, "columns": ["id", "Age", "day"]}
    answers = [t.search("fox w3 w5", limit=25, **asked) for t in dated]
    scores = dict(ranking(dated[0].search("fox w3 w5", limit=None)))
    for found in answers:
        assert found.equals(answers[0])
        assert found.column_names == ["id", "Age", "day", "_score", "_rank_by"]
        assert all(scores[id_] == score for id_, score in ranking(found))
    every = dated[1].search("fox w3 w5", limit=None, **asked)
    assert every.num_rows == len(scores)
    values = [-math.inf if v is None else v for v in every["_rank_by"].to_pylist()]
    assert values == sorted(values, reverse=True)
    assert every.slice(0, 25).equals(answers[0])
    some = dated[3].search("fox", rank_by=expression, where="day > DATE'2024-01-20'", limit=None)
    assert some.num_rows == DATED.filter(pc.field("day") > datetime.date(2024, 1, 20)).num_rows


def test_an_expression_by_hand(dated):
    found = dated[1].search("fox", rank_by="_score * exp(-AGE / 7)", limit=None).to_pylist()
    for row in found:
        value = None if row["Age"] is None else row["_score"] * math.exp(-row["Age"] / 7)
        assert row["_rank_by"] == (None if value is None else pytest.approx(value, rel=1e-6))


def test_columns_may_have_any_name_in_an_expression(tmp_path):
    rows = pa.table(
        {"_indextables_hit": [1, 3, 2], "_INDEXTABLES_HIT_": [0, 0, 5], "b": ["fox"] * 3}
    )
    table = Table.create(tmp_path / "t", data=rows)
    found = table.search("fox", rank_by="_indextables_hit + _indextables_hit_")
    assert found["_indextables_hit"].to_pylist() == [2, 3, 1]
    with pytest.raises(EmbeddedQueryError, match="it is an aggregate"):
        table.search("fox", rank_by="max(_indextables_hit)")


@pytest.mark.parametrize(
    "wrong", ["nope * 2", "_score *", "1), (2", "body", "explode(array(1, 2))", "1 FROM hits --"]
)
def test_an_expression_that_cannot_be_computed(dated, wrong):
    with pytest.raises(EmbeddedQueryError, match="rank_by"):
        dated[0].search("fox", rank_by=wrong)
    with pytest.raises(ConfigError, match="rank_by"):
        dated[0].search("fox", rank_by=" ")


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ("max(Age)", "it is an aggregate. Write one with OVER"),
        ("nope", '"nope" not found'),
        ("body", "is string, not a number"),
        ("'5'", "is string, not a number"),
        ("day", "is date32.* not a number"),
        ("_score, 1", "not a number"),
        ("(SELECT id FROM hits)", "More than one row"),
        ("(" * 5_000 + "1" + ")" * 5_000, "nested too deep"),
    ],
)
def test_an_expression_that_is_no_number_says_so(dated, wrong, says):
    empty = Table.create(f"memory://empty-{hash(wrong)}", DATED.schema)
    for table in (dated[1], empty) if "SELECT" not in wrong else dated[1:2]:
        with pytest.raises(EmbeddedQueryError, match=says) as error:
            table.search("fox", rank_by=wrong)
        assert "_indextables" not in str(error.value) and len(str(error.value)) < 1_000


def test_nothing_comes_after_minus_infinity():
    rows = pa.table({"id": range(6), "n": [None, -math.inf, 1.0] * 2, "body": ["fox"] * 6})
    table = Table.create("memory://ranked-by-infinity", data=rows)
    found = table.search("fox", rank_by="n", columns=["n"])["_rank_by"].to_pylist()
    assert found == [1.0, 1.0, -math.inf, -math.inf, None, None]


@pytest.mark.parametrize("kind", [pa.int64(), pa.decimal128(38, 1)])
def test_rows_are_ranked_by_numbers_that_no_double_holds(kind):
    numbers = [2**63 - 3, None, 2**63 - 1, -(2**63), 2**53 + 1, 2**63 - 2, 2**53]
    rows = pa.table({"n": pa.array(numbers, kind), "body": ["fox"] * len(numbers)})
    table = Table.create(f"memory://ranked-by-{kind}", data=rows)
    best = table.search("fox", rank_by="n", columns=["n"], limit=None)
    assert best["n"].to_pylist() == [*sorted(filter(None, numbers), reverse=True), None]
    assert best["_rank_by"].to_pylist()[-3:] == [2.0**53, -(2.0**63), None]


@pytest.mark.parametrize("order", ["_score * exp(-Age / 7.0)", "_score - id", "-_score"])
def test_the_order_of_sql_is_complete(dated, order):
    """A top-N over an expression of the score is one over all rows."""
    every = dated[1].search("fox w3", rank_by=order, columns=["id"], limit=None)
    query = f"SELECT id, {order} AS s FROM this WHERE body indexquery 'fox w3' ORDER BY s DESC"
    found = dated[1].sql(f"{query} NULLS LAST LIMIT 5")
    assert found["s"].to_pylist() == pytest.approx(every["_rank_by"].to_pylist()[:5], rel=1e-5)
    hidden = query.replace(" AS s", " AS _score").replace("BY s", "BY _score")
    found = dated[1].sql(f"{hidden} NULLS LAST LIMIT 5")
    assert found["_score"].to_pylist() == pytest.approx(every["_rank_by"].to_pylist()[:5], rel=1e-5)


def test_an_expression_over_a_table_that_changes(tmp_path):
    """Renamed and added columns, deleted rows, an older version, a mapping of one's own."""
    stemmed = {"spark.indextables.indexing.tokenizer.body": "en_stem"}
    made = Table.create(tmp_path / "t", data=DATED, config=MARKED | stemmed)
    asked = {"rank_by": "_score - age", "limit": 6}
    before = made.search("foxes", **asked)
    assert before["Age"].to_pylist() == [0] * 5 + [1]
    made.rename_column("Age", "days")
    made.delete(where="days = 0 OR id = 0")
    assert vectors_by_path(made.view.snapshot.entries)
    made.add_columns(pa.schema([("weight", pa.float64())]))
    made.append(pa.table({"id": [1_000], "body": ["a fox"], "weight": [5.0]}))
    found = made.search("foxes", rank_by="coalesce(weight, 0) - days", limit=3)
    assert found["days"].to_pylist() == [1] * 3
    assert made.search("foxes", rank_by="weight", limit=2)["id"].to_pylist()[0] == 1_000
    why = made.explain_score("foxes", "id = 1000")
    assert why.parts["clause"].to_pylist() == ["foxes"]
    past = Table.open(tmp_path / "t", version=0)
    first = past.scan(columns=["_split", "_row"], where="id = 0").to_pylist()[0]
    assert past.explain_score("foxes", first).score > 0
    assert made.explain_score("foxes", first).score == 0  # it is deleted
    assert past.search("foxes", **asked).equals(before)
