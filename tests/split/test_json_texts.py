"""The texts and path lists of JSON documents are those of a slow and simple reading."""

from __future__ import annotations

import json
from collections import Counter

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from indextables.split.format import lists
from indextables.split.format.lists import PathCollector, number_text, path_key, truth_text
from indextables.split.leaves import document_texts, json_documents, leaves
from indextables.split.mapping import FieldMapping, TableMapping

SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**70), 2**70),
    st.sampled_from([1, 1.0, -0.0, 10**40, 0.1, 1e300]),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(max_size=6),
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.sampled_from("abc"), inner, max_size=3)
    ),
    max_leaves=12,
)
TEXTS = st.lists(
    st.one_of(st.none(), VALUES.map(json.dumps), st.sampled_from(["no JSON", "", "{", "1e999"])),
    max_size=12,
)
FIELD = FieldMapping("doc", "json", "f0", tokenizer="default", record="position")


@given(TEXTS)
def test_the_texts_of_documents_are_those_of_their_leaves(texts):
    column = pa.array(texts, pa.string())
    expected = [Counter() for _ in texts]
    for found in leaves(column, parse_json=True):
        for row, text in zip(found.rows, found.values.cast(pa.string()).to_pylist(), strict=True):
            expected[row][text] += 1
    assert [Counter(row or ()) for row in document_texts(json_documents(column))] == expected


def _paths(value, path=()):
    if isinstance(value, dict):
        for key, item in value.items():
            yield from _paths(item, (*path, key))
    elif isinstance(value, list):
        for item in value:
            yield from _paths(item, path)
    elif value is not None and path:
        yield path, value


@given(TEXTS)
def test_path_lists_hold_every_leaf_under_each_beginning_of_its_path(texts):
    expected = set()
    for document in json_documents(pa.array(texts, pa.string())):
        for path, leaf in _paths(document):
            if isinstance(leaf, str):
                ends = [f"w{word.text}" for word in FIELD.analyzer.words(leaf)]
            else:
                ends = [truth_text(leaf) if isinstance(leaf, bool) else number_text(leaf)]
            expected |= {
                path_key(path[:length]) + end for length in range(1, len(path) + 1) for end in ends
            }
    assert _collected(texts) == {"c0": sorted(expected)}


def _collected(texts):
    batch = pa.record_batch({"doc": pa.array(texts, pa.string())})
    collector = PathCollector(TableMapping((FIELD,)), batch.schema)
    collector.add(batch, {"doc": json_documents(batch.column("doc"))})
    return dict(collector.lists())


@pytest.mark.parametrize("depth", [10, 900, 1_020])
def test_documents_may_be_as_deep_as_json_can_be_read(depth):
    text = '{"a":' * depth + '"leaf"' + "}" * depth
    documents = json_documents(pa.array([text]))
    assert document_texts(documents) == [["leaf"]]
    assert len(_collected([text])["c0"]) == depth


def test_a_column_of_too_many_leaves_has_no_path_list(monkeypatch):
    monkeypatch.setattr(lists, "MANY_LEAVES", 2_000)
    texts = [json.dumps({"a": f"w{n}"}) for n in range(2_500)]
    assert _collected(texts) == {}
    assert len(_collected(texts[:2_000])["c0"]) == 2_000
