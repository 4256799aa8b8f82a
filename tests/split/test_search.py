"""Every line of the search syntax, with rows that must and must not match, by index and flat."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from zoneinfo import ZoneInfo

import numpy as np
import pyarrow as pa
import pytest
from conftest import query

from indextables.errors import (
    QueryError,
    SearchValueError,
    TooManyExpansionsError,
    UnknownFieldError,
)
from indextables.predicate import Column, Regex, Search
from indextables.split.open_split import SplitSearcher
from indextables.split.search.evaluate import search_rows
from indextables.split.search.query import SearchContext, columns_of

TABLE = pa.table(
    {
        "id": pa.array([1, 2, 3, 4, 5], pa.int32()),
        "body": [
            "Hello big World",
            "Machine learning with Spark and data",
            "the database of wi-fi hotspots",
            None,
            "",
        ],
        "code": ["A-1", "b*2", "", None, "C:\\Windows (x86)"],
        "address": ["10.0.0.1", "10.0.7.255", "2001:db8::1", "not an address", None],
        "user": pa.array(
            [
                {"name": "Ann Lee", "age": 30},
                {"name": "bob", "age": 42},
                None,
                {"name": None, "age": 5},
                {"name": "42", "age": None},
            ]
        ),
        "attrs": pa.array(
            [[("k", "red fox")], [("k", "blue"), ("j", "red")], [], None, [("a.b", "x")]],
            pa.map_(pa.string(), pa.string()),
        ),
        "doc": [
            '{"a": {"b": "deep sea"}, "n": 42, "ok": true, "when": "2024-01-15T10:00:00Z"}',
            '{"a": [{"b": 7.0}, {"b": "shallow"}]}',
            "broken {",
            None,
            "[1, 2, [3]]",
        ],
        "tags": [["new", "Old School"], ["old"], [], None, [None, "x"]],
        "numbers": pa.array([[1, 2], [30], [], None, [-5, None]], pa.list_(pa.int64())),
        "price": pa.array(
            [Decimal("1.10"), Decimal("2.25"), Decimal("-3.00"), None, Decimal("100")],
            pa.decimal128(20, 2),
        ),
        "score": pa.array([1.5, float("nan"), -0.0, None, float("inf")]),
        "ok": [True, False, None, True, False],
        "day": pa.array([dt.date(2024, 1, d) for d in (14, 15, 16, 17)] + [None], pa.date32()),
        "at": pa.array(
            [
                dt.datetime(2024, 1, 14, 23, 30),
                dt.datetime(2024, 1, 15),
                dt.datetime(2024, 1, 15, 23, 59, 59, 999_999),
                dt.datetime(2024, 1, 16),
                None,
            ],
            pa.timestamp("us", tz="UTC"),
        ),
        "raw": pa.array([b"hello", b"x", None, b"", b"y"]),
    }
)
OPTIONS: dict[str, object] = {
    "indexing.typemap.code": "string",
    "indexing.typemap.ip": "address",
    "indexing.typemap.json": "doc",
}
FAST = OPTIONS | {"indexing.fastfields": "id,address,numbers,score,ok,day,at"}

CASES = [
    # terms
    ("body", "hello", [0]),
    ("body", "HELLO", [0]),
    ("body", "hell", []),
    ("body", "hello spark", [0, 1]),
    ("body", "wi-fi", [2]),
    ("body", "fi-wi", []),
    ("body", "...", []),
    ("code", "A-1", [0]),
    ("code", "a-1", []),
    ("code", r'"C:\\Windows (x86)"', [4]),
    # phrases
    ("body", '"machine learning"', [1]),
    ("body", '"learning machine"', []),
    ("body", '"machine spark"', []),
    ("body", '"machine spark"~2', [1]),
    ("body", '"machine spark"~1', []),
    ("body", '"machine learn"*', [1]),
    ("body", '"learning mach"*', []),
    # booleans
    ("body", "machine AND spark", [1]),
    ("body", "machine AND hello", []),
    ("body", "hello OR database", [0, 2]),
    ("body", "NOT hello", [1, 2, 3, 4]),
    ("body", "machine AND NOT hello", [1]),
    ("body", "machine AND NOT spark", []),
    ("body", "+hello -big", []),
    ("body", "+hello -small", [0]),
    ("body", "(hello OR machine) AND spark", [1]),
    ("body", "NOT (hello OR machine)", [2, 3, 4]),
    ("body", "NOT NOT hello", [0]),
    # wildcards
    ("body", "data*", [1, 2]),
    ("body", "DATA*", [1, 2]),
    ("body", "*base", [2]),
    ("body", "*ata*", [1, 2]),
    ("body", "d*a", [1]),
    ("body", "sp?rk", [1]),
    ("body", "s?ark?", []),
    ("code", r"b\**", [1]),
    ("code", "A*", [0]),
    # fuzzy
    ("body", "sprk~1", [1]),
    ("body", "psark~1", [1]),
    ("body", "sprak~2", [1]),
    ("body", "sxxrk~1", []),
    ("body", "sxxrk~2", [1]),
    # regex, sets, exists, boosts
    ("body", "/wor.d/", [0]),
    ("body", "/wor/", []),
    ("body", "IN [hello spark]", [0, 1]),
    ("body", "body:*", [0, 1, 2, 4]),
    ("body", "hello^2 OR spark^0.5", [0, 1]),
    (None, "code:*", [0, 1, 2, 4]),
    (None, "score:*", [0, 1, 2, 4]),
    (None, "user:*", [0, 1, 3, 4]),
    (None, "tags:*", [0, 1, 4]),
    # ranges
    ("id", "[2 TO 4]", [1, 2, 3]),
    ("id", "{2 TO 4}", [2]),
    ("id", "[2 TO 4}", [1, 2]),
    ("id", "[* TO 2]", [0, 1]),
    ("id", "[1.5 TO *]", [1, 2, 3, 4]),
    ("id", ">=4", [3, 4]),
    ("id", "<2", [0]),
    ("id", "3", [2]),
    ("id", "3.0", [2]),
    ("id", "3.5", []),
    ("id", "[99999999999999999999 TO *]", []),
    ("id", "[* TO 99999999999999999999]", [0, 1, 2, 3, 4]),
    # More digits than decimals have by default are digits all the same.
    ("id", f"3.{300 * '0'}1", []),
    ("id", f">=3.{300 * '0'}1", [3, 4]),
    ("body", "[hello TO machine]", [0, 1, 2]),
    ("code", "[A TO b]", [0, 4]),
    ("code", "[A TO b*3]", [0, 1, 4]),
    ("price", "[1.1 TO 2.249]", [0]),
    ("price", "<0", [2]),
    ("price", "100.00", [4]),
    ("score", "0", [2]),
    ("score", ">1.5", [4]),
    ("score", "[* TO 1.5]", [0, 2]),
    ("ok", "true", [0, 3]),
    ("ok", "FALSE", [1, 4]),
    ("numbers", "2", [0]),
    ("numbers", "[2 TO 30}", [0]),
    ("numbers", "<0", [4]),
    # dates
    ("day", "2024-01-15", [1]),
    ("day", "[2024-01-15 TO 2024-01-16]", [1, 2]),
    ("at", "2024-01-15", [1, 2]),
    ("at", "[2024-01-15 TO 2024-01-15]", [1, 2]),
    ("at", "{2024-01-15 TO *]", [3]),
    ("at", "[* TO 2024-01-15}", [0]),
    ("at", '"2024-01-15T23:59:59.999999Z"', [2]),
    ("at", '"2024-01-14T23:30:00"', [0]),
    # addresses
    ("address", "10.0.0.1", [0]),
    ("address", '"::ffff:10.0.0.1"', [0]),
    ("address", "10.0.0.0/16", [0, 1]),
    ("address", "10.0.7.*", [1]),
    ("address", "10.*.7.*", [1]),
    ("address", "10.0.*.*", [0, 1]),
    ("address", '"2001:db8::/32"', [2]),
    ("address", '"2001:db8::1"', [2]),
    ("address", "[10.0.0.0 TO 10.0.0.255]", [0]),
    # nested
    ("user", "ann", [0]),
    ("user", "42", [1, 4]),
    (None, "user.name:lee", [0]),
    (None, "user.name:42", [4]),
    (None, "user.age:42", [1]),
    (None, "user.age:[10 TO 41]", [0]),
    (None, 'user.name:"ann lee"', [0]),
    (None, 'user.name:"lee ann"', []),
    (None, "user.name:b?b", [1]),
    (None, "user.name:*", [0, 1, 4]),
    ("attrs", "red", [0, 1]),
    (None, "attrs.k:red", [0]),
    (None, "attrs.j:*", [1]),
    (None, r"attrs.a\.b:x", [4]),
    ("doc", "deep", [0]),
    ("doc", "broken", [2]),
    ("doc", "3", [4]),
    (None, "doc.a.b:deep", [0]),
    (None, "doc.a.b:shallow", [1]),
    (None, "doc.a.b:7", [1]),
    (None, "doc.n:[40 TO 50]", [0]),
    (None, "doc.n:42.0", [0]),
    (None, "doc.ok:true", [0]),
    (None, "doc.when:[2024-01-01 TO 2024-02-01]", [0]),
    (None, "doc.missing:x", []),
    ("tags", "old", [0, 1]),
    ("tags", '"old school"', [0]),
    ("tags", '"new old"', []),
    # all fields
    (None, "hello", [0]),
    (None, "42", [0, 1, 4]),
    (None, "hello AND red", [0]),
    (None, "hello AND blue", []),
    (None, "spark AND blue", [1]),
    (None, "true", [0, 3]),
    (None, "2024-01-15", [1, 2]),
    (None, "*", [0, 1, 2, 3, 4]),
    (None, "NOT hello", [1, 2, 3, 4]),
]


@pytest.mark.parametrize("options", [OPTIONS, FAST], ids=["plain", "fast"])
def test_the_index_and_the_flat_evaluator_find_the_same_rows(make, options):
    searcher = make(TABLE, options)
    context = searcher.context
    wrong = []
    for column, text, expected in CASES:
        search = query(text, column)
        by_index = searcher.search(search).tolist()
        flat = np.flatnonzero(search_rows(search, TABLE, context.mapping)).tolist()
        if not (by_index == flat == expected) or searcher.count(search) != len(expected):
            wrong.append((column, text, expected, by_index, flat))
    assert not wrong


def test_what_is_no_value_of_the_column_is_refused(make):
    searcher = make(TABLE, OPTIONS)
    for column, text in (
        ("id", "three"),
        ("at", "2024-02-31"),
        ("address", "not"),
        ("address", "data*"),
    ):
        with pytest.raises(SearchValueError):
            searcher.search(query(text, column))


def test_a_day_depends_on_the_time_zone(make):
    searcher = make(TABLE, OPTIONS)
    berlin = SearchContext(TABLE.schema, searcher.context.mapping, zone=ZoneInfo("Europe/Berlin"))
    local = SplitSearcher(searcher.split, searcher.pool, berlin)
    assert local.search(query("2024-01-15", "at")).tolist() == [0, 1]


@pytest.mark.parametrize("record", ["freq", "basic"])
def test_a_phrase_without_positions_is_checked_on_the_rows(make, record):
    searcher = make(TABLE, OPTIONS | {"text.indexRecordOption": record})
    assert searcher.search(query('"machine learning"', "body")).tolist() == [1]
    assert searcher.search(query('"learning machine"', "body")).tolist() == []
    assert searcher.search(query('"machine learn"*', "body")).tolist() == [1]
    assert searcher.search(query("wi-fi OR hello", "body")).tolist() == [0, 2]


def test_an_unknown_field_lists_the_fields_there_are(make):
    searcher = make(TABLE, OPTIONS)
    with pytest.raises(UnknownFieldError, match=r"no field .nobody.*id, body, code"):
        searcher.search(query("nobody:x", "body"))


def test_a_stored_only_column_is_not_searched(make):
    searcher = make(TABLE, OPTIONS | {"indexing.storeonlyfields": "body"})
    with pytest.raises(QueryError, match="'body' is stored only"):
        searcher.search(query("hello", "body"))
    assert searcher.search(query("hello")).tolist() == []
    with pytest.raises(QueryError, match="'raw' is stored only"):
        searcher.search(query("raw:hello"))


def test_a_pattern_that_matches_too_many_words_is_refused(make):
    table = pa.table({"body": [" ".join(f"word{i}" for i in range(200))]})
    searcher = make(table)
    context = SearchContext(table.schema, searcher.context.mapping, max_expansions=100)
    small = SplitSearcher(searcher.split, searcher.pool, context)
    for text in ("word*", "*ord*", "[a TO z]", '"word1 w"*', "/w.*/", "word1~2"):
        with pytest.raises(TooManyExpansionsError, match="maxExpansions"):
            small.search(query(text, "body"))
    for text in ("word19*", "/word19./", "word199~1", "wrod1~1"):
        assert small.search(query(text, "body")).tolist() == [0]
    assert searcher.search(query("word*", "body")).tolist() == [0]


def test_a_wrong_regular_expression_is_a_sentence(make):
    searcher = make(TABLE, OPTIONS)
    search = Search(Column(("body",)), Regex(None, "(("), "/((/")
    with pytest.raises(QueryError, match=r"pattern '/\(\(/' on 'body' is wrong: unclosed group"):
        searcher.search(search)


def test_two_inner_wildcards_of_an_address_are_refused(make):
    with pytest.raises(QueryError, match="two wildcards before a number"):
        make(TABLE, OPTIONS).search(query("10.*.*.1", "address"))


def test_another_analyzer_makes_the_rows_be_scanned(make):
    stemmed = make(TABLE, OPTIONS | {"indexing.tokenizer.body": "en_stem"})
    plain = make(TABLE, OPTIONS)
    search = query("hotspot", "body")
    assert stemmed.search(search).tolist() == [2]
    assert plain.search(search).tolist() == []
    by_stem = SplitSearcher(plain.split, plain.pool, stemmed.context)
    assert not by_stem.can_use_index(columns_of(_resolved(search, stemmed)))
    assert by_stem.search(search).tolist() == [2]


def _resolved(search, searcher):
    from indextables.split.search.query import resolve

    return resolve(search, searcher.context.mapping, searcher.context.schema)


def test_a_column_added_later_is_null_and_a_widened_one_is_compared_in_its_new_type(make):
    old = make(pa.table({"n": pa.array([1, 300], pa.int32()), "body": ["a b", "c"]}))
    new = make(
        pa.table({"n": pa.array([2**40]), "body": ["a"], "extra": ["a"]}), base=old.context.mapping
    )
    both = [SplitSearcher(s.split, s.pool, new.context) for s in (old, new)]

    def rows(text: str) -> list[list[int]]:
        return [s.search(query(text)).tolist() for s in both]

    assert rows("a") == [[0], [0]]
    assert rows("extra:a") == [[], [0]]
    assert rows("NOT extra:a") == [[0, 1], []]
    assert rows("n:[300 TO 1099511627776]") == [[1], [0]]
    assert both[0].read_rows(np.array([1, 0]), ["extra", "n"]).to_pydict() == {
        "extra": [None, None],
        "n": [300, 1],
    }


def test_partition_columns_are_searched_by_name_but_not_by_all_fields(make):
    from indextables.config import Config
    from indextables.split.mapping_options import build_mapping

    stored = make(pa.table({"body": ["x", "berlin"]}))
    schema = pa.schema([("body", pa.string()), ("city", pa.string()), ("year", pa.int32())])
    mapping = build_mapping(schema, Config(), partition_by=["city", "year"])
    searcher = SplitSearcher(
        stored.split,
        stored.pool,
        SearchContext(schema, mapping),
        {"city": pa.scalar("Berlin"), "year": pa.scalar(2024, pa.int32())},
    )
    assert searcher.search(query("berlin")).tolist() == [1]
    assert searcher.search(query("city:berlin")).tolist() == [0, 1]
    assert searcher.search(query("city:berlin AND NOT year:2024")).tolist() == []
    assert searcher.search(query("year:[2000 TO *] AND body:x")).tolist() == [0]
    assert searcher.read_rows(np.array([1]), ["year", "body"]).to_pylist() == [
        {"year": 2024, "body": "berlin"}
    ]


def test_an_empty_split_and_a_column_of_nulls_have_no_hits(make):
    schema = pa.schema([("body", pa.string()), ("n", pa.int64())])
    empty = make(schema.empty_table())
    assert empty.search(query("NOT x", "body")).tolist() == []
    nulls = make(pa.table({"body": pa.nulls(3, pa.string()), "n": pa.nulls(3, pa.int64())}))
    assert nulls.search(query("body:* OR n:*")).tolist() == []
    assert nulls.search(query("NOT x")).tolist() == [0, 1, 2]


def test_names_of_any_kind_can_be_columns(make):
    names = ["a.b", "with space", "größe", "_row", "f0", "select", "a", "日本"]
    table = pa.table({name: [f"word{i}", "other"] for i, name in enumerate(names)})
    searcher = make(table)
    for i, name in enumerate(names):
        assert searcher.search(query(f"word{i}", name)).tolist() == [0]
        assert searcher.read_rows(np.array([0]), [name]).to_pylist() == [{name: f"word{i}"}]
    assert searcher.search(query("a.b:word0")).tolist() == [0]


def test_open_indexes_are_bounded(make):
    from indextables.config import Config
    from indextables.split.open_split import IndexPool

    searchers = [make(pa.table({"body": [f"w{i}"]})) for i in range(5)]
    folder = str(searchers[0].pool.cache.folder)
    config = Config({"spark.indextables.search.maxOpenFiles": 15,
                     "spark.indextables.cache.disk.path": folder})  # fmt: skip
    pool = IndexPool.from_config(config)
    for i, searcher in enumerate(searchers * 2):
        bounded = SplitSearcher(searcher.split, pool, searcher.context)
        assert bounded.search(query(f"w{i % 5}", "body")).tolist() == [0]
        assert len(pool) <= 2
