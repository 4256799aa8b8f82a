from __future__ import annotations

import itertools

import pyarrow as pa
import pytest

from indextables.ariadne.declarations import (
    FIXED,
    STAGING,
    Bloom,
    Computed,
    Declarations,
    Exploded,
    Range,
    Regular,
    Temporal,
    Text,
    check,
    companions,
    storage_column,
)
from indextables.errors import AriadneArgumentError, ColumnNotFoundError

ITEM = pa.struct([("id", pa.int64()), ("in", pa.struct([("x", pa.date32())]))])
SCHEMA = pa.schema(
    [
        ("a", pa.string()),
        ("t", pa.timestamp("us", tz="UTC")),
        ("meta", pa.struct([("at", pa.timestamp("us", tz="UTC")), ("n", pa.int32())])),
        ("items", pa.list_(ITEM)),
        ("m", pa.map_(pa.string(), pa.int32())),
        ("n", pa.int64()),
        ("filename", pa.string()),
        ("_ariadne_ts", pa.string()),
        ("bloom_a", pa.string()),
    ]
)  # fmt: skip
ON_A = [
    Regular("a"), Bloom("a"), Computed("a", "upper(a)"), Exploded("items", "id", "a"),
    Temporal("a", "t"), Range("a"), Text("a"),
]  # fmt: skip


def declared(*found):
    return Declarations(tuple(found))


@pytest.mark.parametrize(("first", "second"), list(itertools.permutations(ON_A, 2)))
def test_a_name_has_one_kind_of_index(first, second):
    check(first, declared(), SCHEMA)
    with pytest.raises(AriadneArgumentError, match="one kind of index"):
        check(second, declared(first), SCHEMA)


@pytest.mark.parametrize("one", ON_A)
def test_declaring_again_is_nothing_new(one):
    known = declared(one)
    check(one, known, SCHEMA)
    assert known.with_(one) is known


@pytest.mark.parametrize(
    ("one", "other"),
    [(Bloom("a"), Bloom("a", 0.5)), (Computed("c", "a"), Computed("c", "n"))],
)
def test_declaring_again_in_another_way_is_refused(one, other):
    with pytest.raises(AriadneArgumentError, match="already declared"):
        check(other, declared(one), SCHEMA)


@pytest.mark.parametrize(
    ("new", "error", "word"),
    [
        *((Bloom("a", fpr), AriadneArgumentError, "between 0 and 1") for fpr in (0.0, 1.0, -0.1)),
        *((kind, ColumnNotFoundError, "no column 'zz'") for kind in (
            Regular("zz"), Bloom("zz"), Range("zz"), Temporal("zz", "t"), Temporal("a", "zz"),
            Exploded("zz", "id", "x"), Text("zz"),
        )),
        (Regular("A"), ColumnNotFoundError, "did you mean 'a'"),
        *((kind, Exception, "is nested") for kind in (
            Regular("meta.n"), Bloom("meta.n"), Range("meta.n"), Temporal("meta.n", "t"),
            Computed("x.y", "n"), Exploded("items", "id", "x.y"),
        )),
        (Temporal("a", "meta.zz"), ColumnNotFoundError, "meta.zz"),
        (Regular("filename"), AriadneArgumentError, "use themselves"),
        *((Computed(name, "n"), AriadneArgumentError, "use themselves")
          for name in (*STAGING, *FIXED)),
        (Exploded("a", "id", "x"), AriadneArgumentError, "not an array"),
        (Exploded("items", "zz", "x"), AriadneArgumentError, "no such field"),
        (Regular("m"), AriadneArgumentError, "cannot be compared"),
        (Text("n"), AriadneArgumentError, "not text"),
        (Range("items"), AriadneArgumentError, "no order"),
        (Computed("", "n"), AriadneArgumentError, "empty"),
        (Computed("c", " "), AriadneArgumentError, "expression is empty"),
        *((kind, AriadneArgumentError, "which is not (text|a number)") for kind in (
            Regular(None), Computed("c", None), Temporal("a", 1), Bloom("a", "0.1"),
        )),
    ],
)  # fmt: skip
def test_what_cannot_be_declared_is_refused(new, error, word):
    with pytest.raises(error, match=word):
        check(new, declared(), SCHEMA)


@pytest.mark.parametrize(
    "new",
    [
        Bloom("a", 0.001), Temporal("a", "meta.at"), Regular("_ariadne_ts"), Regular("items"),
        Exploded("items", "in.x", "items"), Regular("meta"),
    ],
)  # fmt: skip
def test_what_can_be_declared_is_accepted(new):
    check(new, declared(), SCHEMA)


def test_all_problems_are_in_one_message():
    with pytest.raises(ColumnNotFoundError) as caught:
        check(Bloom("x.y", 7), declared(), SCHEMA)
    assert len(caught.value.problems) == 3


def test_an_array_and_a_field_of_it_can_both_be_indexed():
    known = declared(Regular("items"), Exploded("items", "id", "one"))
    check(Exploded("items", "in.x", "two"), known, SCHEMA)


def test_columns_of_the_index_table_are_never_shared():
    with pytest.raises(AriadneArgumentError, match="bloom_a"):
        check(Regular("bloom_a"), declared(Bloom("a")), SCHEMA)
    columns = [c for d in ON_A for c in (storage_column(d), *companions(d))]
    assert len(set(columns)) < len(columns)
