"""Phrases whose words may move: one meaning on every path and in every layout."""

from __future__ import annotations

import itertools
import random

import numpy as np
import pyarrow as pa
import pytest

import indextables as it
from indextables.predicate import Column, Search
from indextables.predicate.search_syntax import parse_search
from indextables.split.mapping_options import build_mapping
from indextables.split.search.evaluate import search_rows
from indextables.split.snippet import snippets

PREFIX = "spark.indextables."


def is_near(phrase: str, text: str, slop: int) -> bool:
    """By trying all places."""
    words, wanted = text.split(), phrase.split()
    places = [[p for p, w in enumerate(words) if w == word] for word in wanted]
    for chosen in itertools.product(*places):
        moves = [place - i for i, place in enumerate(chosen)]
        if len(set(chosen)) == len(chosen) and max(moves) - min(moves) <= slop:
            return True
    return False


CHOICE = random.Random(7)
TEXTS = [" ".join(CHOICE.choices("abcde", k=CHOICE.randint(1, 9))) for _ in range(60)]
PHRASES = ["a b", "a a", "a b c", "c b a", "a b a", "a b c d", "d a a c e", "a b c d e a"]
ROWS = pa.table({"id": range(len(TEXTS)), "t": TEXTS, "other": ["x"] * len(TEXTS)})


def test_the_example_of_lucene():
    table = pa.table({"t": ["a c b", "a b c", "c b a", "a x b x c"]})
    mapping = build_mapping(table.schema, it.config.Config())
    for slop, expected in ((1, [1]), (2, [0, 1, 3]), (3, [0, 1, 3]), (4, [0, 1, 2, 3])):
        text = f'"a b c"~{slop}'
        search = Search(Column(("t",)), parse_search(text), text)
        assert np.flatnonzero(search_rows(search, table, mapping)).tolist() == expected


@pytest.fixture(scope="module", params=[1, 7, 20], ids="{} splits".format)
def layout(request, config, tmp_path_factory):
    uri = str(tmp_path_factory.mktemp("slop") / "table")
    table = it.Table.create(uri, ROWS.schema, config=config)
    step = -(-len(TEXTS) // request.param)
    options = {f"{PREFIX}xref.autoIndex.enabled": False, f"{PREFIX}mergeOnWrite.enabled": False}
    for start in range(0, len(TEXTS), step):
        table.append(ROWS.slice(start, step), config=options)
    if request.param == 20:
        table.index_crossreferences()
    return table


SCORES: dict[str, list[tuple[int, float]]] = {}


def test_every_path_agrees(layout, config):
    table = layout
    routed = it.Table.open(table.uri, config={**config, f"{PREFIX}xref.query.minSplitsForXRef": 1})
    mapping = build_mapping(ROWS.schema, it.config.Config())
    for phrase, slop in itertools.product(PHRASES, (1, 2, 3, 5)):
        text = f'"{phrase}"~{slop}'
        expected = [i for i, t in enumerate(TEXTS) if is_near(phrase, t, slop)]
        where = f"t indexquery '{text}'"
        assert sorted(table.scan(where=where)["id"].to_pylist()) == expected, text
        assert table.count(where=where) == len(expected), text
        assert routed.count(where=where) == len(expected), text
        assert table.count(where=f"NOT ({where})") == len(TEXTS) - len(expected), text
        found = table.search(text, limit=None, snippets=["t"])
        one = table.search(text, fields=["t"], limit=None)
        assert sorted(found["id"].to_pylist()) == sorted(one["id"].to_pylist()) == expected, text
        assert all("<b>" in shown for shown in found["_snippet_t"].to_pylist())
        scores = list(zip(one["id"].to_pylist(), one["_score"].to_pylist(), strict=True))
        assert SCORES.setdefault(text, scores) == scores, text
        assert all(score > 0 for _, score in scores)
        search = Search(Column(("t",)), parse_search(text), text)
        assert np.flatnonzero(search_rows(search, ROWS, mapping)).tolist() == expected, text
        (shown,) = snippets([TEXTS[0]], search, "t", mapping=mapping, schema=ROWS.schema)
        assert isinstance(shown, str)


def test_delete_removes_what_count_counts(config, tmp_path):
    table = it.Table.create(str(tmp_path / "t"), ROWS.schema, config=config)
    table.append(ROWS)
    expected = sum(is_near("a b c", text, 2) for text in TEXTS)
    table.delete(where="t indexquery '\"a b c\"~2'")
    assert table.count() == len(TEXTS) - expected
    assert table.count(where="t indexquery '\"a b c\"~2'") == 0


def test_lists_json_and_fields_without_positions(config, tmp_path):
    rows = pa.table(
        {
            "l": [["a", "", "b c"], ["a b", "c"], ["c x x b a"]],
            "j": ['{"p": "c b a", "q": "x"}', '{"p": "a", "q": ["b", "c"]}', "a b x c"],
            "f": ["a c b", "a b c", "c"],
        }
    )
    options = {f"{PREFIX}indexing.indexrecordoption.f": "freq"}
    table = it.Table.create(
        str(tmp_path / "t"), rows.schema, mapping={"j": "json"}, config={**config, **options}
    )
    table.append(rows)
    for where, expected in {
        "l indexquery '\"a b c\"~1'": 1,
        "l indexquery '\"a b c\"~2'": 2,
        "j indexquery 'j.p:\"a b c\"~4'": 1,
        "j indexquery '\"a b c\"~1'": 1,
        "j indexquery '\"a b c\"~2'": 1,  # a phrase stays within one value
        "f indexquery '\"a b c\"~1'": 1,
        "f indexquery '\"a b c\"~2'": 2,
        "f indexquery '\"c c\"~9'": 0,
    }.items():
        assert table.count(where=where) == expected, where
        assert table.scan(where=where).num_rows == expected, where
