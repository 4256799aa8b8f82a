"""Random rows and random searches: the index, the flat evaluator and the oracle agree."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st
from oracle import Oracle

from examples import examples
from indextables.config import Config
from indextables.errors import SearchValueError
from indextables.predicate import (
    All,
    Boolean,
    Boost,
    Exists,
    Fuzzy,
    Phrase,
    Placeholder,
    Range,
    Search,
    Term,
    TermSet,
    Wildcard,
)
from indextables.split.mapping_options import build_mapping
from indextables.split.open_split import IndexPool, SplitFile, SplitSearcher
from indextables.split.search.evaluate import search_rows
from indextables.split.search.query import SearchContext, resolve
from indextables.split.write.writer import SplitWriter
from indextables.storage.disk_cache import DiskCache
from indextables.storage.local import LocalStore

SCHEMA = pa.schema(
    [
        ("t", pa.string()),
        ("w", pa.string()),
        ("s", pa.string()),
        ("n", pa.int64()),
        ("l", pa.list_(pa.string())),
        ("m", pa.list_(pa.int64())),
    ]
)
KINDS = {"t": "default", "w": "whitespace", "s": "raw", "n": "int", "l": "default", "m": "int"}

word = st.sampled_from(["a", "b", "ab", "ba", "abc", "B", "a1", "42", "7", "Aé", "ß"])
text = st.lists(word, max_size=6).map(" ".join) | st.sampled_from(["a-b", "", " ", "a_b c", "!"])
number = st.integers(-3, 50)
row = st.fixed_dictionaries(
    {
        "t": st.none() | text,
        "w": st.none() | text,
        "s": st.none() | word | text,
        "n": st.none() | number,
        "l": st.none() | st.lists(st.none() | text, max_size=3),
        "m": st.none() | st.lists(st.none() | number, max_size=3),
    }
)
field = st.none() | st.sampled_from(list(KINDS))
bound = st.none() | word | number.map(str)
pattern = st.sampled_from(
    [
        ("a", Placeholder.MANY),
        (Placeholder.MANY, "b"),
        ("a", Placeholder.ONE),
        (Placeholder.ONE,),
        ("A", Placeholder.MANY, "c"),
    ]
)
FIXED = {
    "spark.indextables.indexing.typemap.s": "string",
    "spark.indextables.indexing.tokenizer.w": "whitespace",
}


def _sensible(node):
    """The same of all fields where it asks a number for words."""
    try:
        resolve(Search(None, node, ""), build_mapping(SCHEMA, Config(FIXED)), SCHEMA)
    except SearchValueError:
        return replace(node, field=None)
    return node


leaf = st.one_of(
    st.builds(Term, field, text | number.map(str)),
    st.builds(Phrase, field, st.tuples(word, word).map(" ".join), st.integers(0, 3)),
    st.builds(
        Phrase, field, st.lists(word, min_size=3, max_size=6).map(" ".join), st.integers(1, 6)
    ),
    st.builds(Phrase, field, st.tuples(word, word).map(" ".join), prefix=st.just(True)),
    st.builds(Wildcard, field, pattern),
    st.builds(Fuzzy, field, word, st.integers(1, 2)),
    st.builds(Range, field, bound, bound, st.booleans(), st.booleans()),
    st.builds(TermSet, field, st.lists(word | number.map(str), max_size=3).map(tuple)),
    st.builds(Exists, field),
    st.just(All()),
).map(_sensible)


def _boolean(must, should, must_not):
    if not must and not should:
        must = [All()]
    return Boolean(tuple(must), tuple(should), tuple(must_not))


queries = st.recursive(
    leaf,
    lambda inner: st.one_of(
        st.builds(
            _boolean,
            st.lists(inner, max_size=2),
            st.lists(inner, max_size=2),
            st.lists(inner, max_size=2),
        ),
        st.builds(Boost, inner, st.sampled_from([0.5, 2.0])),
    ),
    max_leaves=6,
)
options = st.fixed_dictionaries(
    {
        "spark.indextables.text.indexRecordOption": st.sampled_from(["position", "freq", "basic"]),
        "spark.indextables.indexing.fastfields": st.sampled_from(["", "n", "n,m"]),
    }
)


@examples(25, 2_000)
@given(st.lists(row, max_size=8), st.lists(queries, min_size=1, max_size=8), options)
def test_three_evaluators_agree(rows, searches, chosen):
    table = pa.Table.from_pylist(rows, SCHEMA)
    config = Config(FIXED | chosen)
    mapping = build_mapping(SCHEMA, config)
    oracle = Oracle(KINDS, SCHEMA.names)
    with tempfile.TemporaryDirectory() as folder:
        with SplitWriter(SCHEMA, mapping, config) as writer:
            for batch in table.to_batches():
                writer.write(batch)
            written = writer.close()
        split = SplitFile(LocalStore(str(written.path.parent)), written.path.name, written.size)
        pool = IndexPool(DiskCache(Path(folder), 1 << 26))
        searcher = SplitSearcher(split, pool, SearchContext(SCHEMA, mapping))
        try:
            for node in searches:
                search = Search(None, node, "")
                expected = [i for i, r in enumerate(rows) if oracle.matches(node, r)]
                assert searcher.search(search).tolist() == expected
                assert searcher.count(search) == len(expected)
                assert np.flatnonzero(search_rows(search, table, mapping)).tolist() == expected
        finally:
            written.delete()
