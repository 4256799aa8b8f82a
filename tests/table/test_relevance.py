"""What people type, the fields that count, and why a row has its score."""

from __future__ import annotations

import pyarrow as pa
import pytest

from indextables import Table
from indextables.errors import ConfigError, QuerySyntaxError, SchemaError, UnknownColumnError

FIELDS = "spark.indextables.search.fields"
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
    made = Table.create(tmp_path / "t", data=ROWS, properties={FIELDS: "headline^2,body"})
    with pytest.raises(SchemaError, match=rf"{FIELDS} names 'headline'.*title"):
        made.search("zero")
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
