"""A row has one hash, whatever its batch, its type's spelling and its neighbours are."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from indextables.split.row_hash import row_hashes

LONG = "x" * 300
EXPECTED = [4259515639, 3634933354, 2535498216, 1977037287]
TEXTS = st.lists(
    st.one_of(
        st.none(),
        st.text(max_size=40),
        st.sampled_from(["", "\0", "a", "a\0", "a" * 8, "a" * 16, LONG, LONG + "y"]),
    ),
    max_size=40,
)


@given(TEXTS, st.integers(0, 5))
def test_the_hash_of_a_text_depends_on_the_text_alone(texts, skipped):
    column = pa.array(texts, pa.string())
    alone = [int(row_hashes(pa.table({"t": pa.array([text], pa.string())}))[0]) for text in texts]
    layouts = [
        column,
        pa.array(["before"] * skipped + texts + ["after"], pa.string()).slice(skipped, len(texts)),
        column.cast(pa.large_string()),
        column.cast(pa.binary()),
        column.dictionary_encode(),
        pa.array(texts * 200, pa.string()).slice(0, len(texts)),
        pa.chunked_array([column.slice(0, 3), column.slice(3)]),
    ]
    for layout in layouts:
        assert row_hashes(pa.table({"t": layout})).tolist() == alone
    assert row_hashes(pa.table({"t": pa.array(texts * 200, pa.string())})).tolist() == alone * 200


def test_texts_that_differ_anywhere_have_different_hashes():
    texts = ["", "\0", "\0\0", *("a" * n for n in range(1, 30)), *(LONG + c for c in "abc"), LONG]
    texts += [LONG[:at] + "z" + LONG[at + 1 :] for at in range(0, 300, 7)]
    texts += [f"message {n}" for n in range(5_000)]
    assert len(np.unique(row_hashes(pa.table({"t": texts})))) == len(texts)


def test_the_hash_is_the_same_in_every_version():
    rows = pa.table({"t": ["", "a", "timeout of the database", LONG], "n": [1, None, -3, 4]})
    assert row_hashes(rows).tolist() == EXPECTED
