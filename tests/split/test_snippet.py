"""Snippets: the right words are marked and nothing of the text is markup."""

from __future__ import annotations

import html

import pyarrow as pa
import pytest
from conftest import configuration, query
from hypothesis import given
from hypothesis import strategies as st

from indextables.split.mapping_options import build_mapping
from indextables.split.snippet import snippets

SCHEMA = pa.schema([("body", pa.string()), ("title", pa.string()), ("n", pa.int64())])
TEXT = "The Quick <brown> fox jumps & runs over Running dogs"
CASES = [
    ("fox", ["fox"]),
    ("FOX dogs", ["fox", "dogs"]),
    ("qui*", ["Quick"]),
    ("QU?CK", ["Quick"]),
    ("fx~1", ["fox"]),
    ("/d.gs/", ["dogs"]),
    ('"quick brown"', ["Quick", "brown"]),
    ('"over run"*', ["runs", "over", "Running"]),
    ("fox AND NOT cat", ["fox"]),
    ("IN [fox dogs]", ["fox", "dogs"]),
    ("[quick TO r]", ["Quick"]),
]


def shown(text, search, column="body", length=150, **options):
    mapping = build_mapping(SCHEMA, configuration(**options))
    texts = [None, "nothing of it", text]
    *others, found = snippets(
        texts, query(search, "body"), column, mapping=mapping, schema=SCHEMA, length=length
    )
    assert others[0] == "" and (others[1] == "" or "nothing" in others[1])
    return found


@pytest.mark.parametrize(("search", "words"), CASES)
def test_words_are_marked(search, words):
    expected = html.escape(TEXT)
    for word in words:
        expected = expected.replace(word, f"<b>{word}</b>")
    assert shown(TEXT, search) == expected


@pytest.mark.parametrize("search", ["title:fox", "NOT fox", "cat"])
def test_a_text_without_the_words_has_no_snippet(search):
    assert shown(TEXT, search) == ""


def test_stems_are_marked_where_they_stand():
    marked = shown(TEXT, "run", **{"indexing.tokenizer.body": "en_stem"})
    assert marked.endswith("&amp; <b>runs</b> over <b>Running</b> dogs")


def test_no_text_no_snippet():
    assert shown(None, "fox") == ""
    assert shown("", "fox") == ""
    assert shown(TEXT, "fox", column="n") == ""


def test_the_best_part_of_a_long_text_is_shown():
    text = "filler " * 100 + "alpha one " + "filler " * 50 + "alpha beta gamma " + "filler " * 100
    marked = shown(text, "alpha beta gamma", length=60)
    assert "<b>alpha</b> <b>beta</b> <b>gamma</b>" in marked
    assert len(marked) < 60 + 3 * len("<b></b>") + 1
    assert not marked.startswith("iller")


@given(st.text(max_size=300), st.integers(1, 60))
def test_a_snippet_is_part_of_the_text_and_short(text, length):
    mapping = build_mapping(SCHEMA, configuration())
    search = query("a OR b OR e", "body")
    (marked,) = snippets([text], search, "body", mapping=mapping, schema=SCHEMA, length=length)
    plain = html.unescape(marked.replace("<b>", "").replace("</b>", ""))
    assert plain in text
    assert len(plain) <= max(length, 1)
