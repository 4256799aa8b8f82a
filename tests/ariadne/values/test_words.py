"""Text indexes keep every file that holds a matching text."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from indextables.ariadne.values.words import Words, build
from indextables.config import Config
from indextables.predicate import Column, Search
from indextables.predicate.search_syntax import parse_search
from indextables.split.mapping_options import build_mapping
from indextables.split.search.evaluate import search_rows

FILES = [
    ["The quick brown fox", None],
    ["Wi-Fi at home", "lazy dogs"],
    ["İstanbul straße", "quick quick"],
    [],
]

CASES = [
    ("quick", [0, 2]),
    ("QUICK AND fox", [0]),
    ("quick OR home", [0, 1, 2]),
    ('"brown fox"', [0]),
    ('"quick bro"*', [0]),
    ("wi-fi", [1]),
    ("do*", [1]),
    ("d?gs", [1]),
    ("quikc~1", [0, 2]),
    ("hom~1", [1]),
    ("wy-fi~1", [1]),
    ("wy-quick~1", []),
    ("İstanbol~1", [2]),
    ("/qu.*k/", [0, 2]),
    ("IN [home fox]", [0, 1]),
    ("NOT quick", [0, 1, 2, 3]),
    ("quick AND NOT fox", [0, 2]),
    ("other:quick", [0, 1, 2, 3]),
    ("nothing", []),
    ("*", [0, 1, 2, 3]),
]


@pytest.mark.parametrize(("query", "files"), CASES)
def test_queries(query, files):
    words = Words.of([build(pa.array(texts, pa.string())) for texts in FILES])
    schema = pa.schema([("text", pa.string()), ("other", pa.string())])
    found = words.may_match(parse_search(query, schema=schema))
    assert [n for n, yes in enumerate(found) if yes] == files


def test_a_list_that_cannot_be_read_keeps_its_file():
    good = build(pa.array(["a"]))
    words = Words.of([None, b"", good[:-5], b"ATX1" + b"x" * 40, good])
    assert words.may_match(parse_search("zzz")).tolist() == [True, True, True, True, False]


texts = st.lists(
    st.none()
    | st.lists(
        st.sampled_from(["ab", "Ab", "abc", "b", "ü", "İx", "İİİ", "-", "a.b"]), max_size=4
    ).map(" ".join),
    max_size=3,
)
queries = st.sampled_from(["abd~1", "abd-ab~1", "İİİ~2", "a*", "?b", "i*", "*x"]) | st.sampled_from(
    ["ab", '"ab b"', "ab AND b", "ab OR ü", "NOT ab", "İx", "a.b"]
)
_SCHEMA = pa.schema([("text", pa.string())])
_MAPPING = build_mapping(_SCHEMA, Config())


@settings(max_examples=40)
@given(st.lists(texts, min_size=1, max_size=3), queries)
def test_no_search_ever_loses_a_file(files, query):
    parsed = parse_search(query)
    words = Words.of([build(pa.array(found, pa.string())) for found in files])
    kept = words.may_match(parsed)
    search = Search(Column(("text",)), parsed, query)
    for number, found in enumerate(files):
        rows = pa.table({"text": pa.array(found, pa.string())})
        if found and search_rows(search, rows, _MAPPING).any():
            assert kept[number]
