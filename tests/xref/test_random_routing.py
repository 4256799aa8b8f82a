"""Random tables, coverage and conditions: with XRefs and without, the rows are the same."""

from __future__ import annotations

import datetime
import tempfile
from collections import Counter

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, event, given
from hypothesis import strategies as st
from random_tables import can_answer, conditions_with_search, search, shown, tables
from xrefs import ALWAYS, cover, link, sources

from examples import examples
from indextables import Table
from indextables.predicate import And, Column, Compare, In, Or, Predicate
from indextables.xref.open_xref import dull_questions, failures

QUICK = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.function_scoped_fixture]
OPTIONS: list[dict[str, object]] = [
    {},
    {"xref.build.includePositions": True},
    {"xref.build.bloomFields": "rid"},
    {"xref.storage.compressionEnabled": False},
]
NEVER = {"spark.indextables.xref.query.enabled": False}


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> dict[str, object]:
    return {"spark.indextables.cache.disk.path": str(tmp_path_factory.mktemp("cache"))}


def cover_somehow(table: Table, data: st.DataObject, rows: pa.Table) -> None:
    """Coverage by no XRef, one, some, several tiers, linked ones, and stale ones."""
    splits = sources(table)
    how = data.draw(st.sampled_from(["none", "all", "part", "tiers", "linked", "stale"]))
    event(how)
    if how == "none" or not splits:
        return
    some = data.draw(st.lists(st.sampled_from(splits), min_size=1, unique=True))
    options = data.draw(st.sampled_from(OPTIONS))
    if how == "all":
        cover(table, **options)
    elif how == "part":
        cover(table, some, **options)
    elif how == "stale":
        cover(table, **options)
        victims = data.draw(st.lists(st.sampled_from(rows["rid"].to_pylist()), max_size=2))
        if victims:
            table.delete(where=f"rid IN ({', '.join(map(str, victims))})")
    else:
        cut = data.draw(st.integers(1, len(splits)))
        tiers = [
            cover(table, part, **options) for part in (splits[:cut], splits[cut:], some) if part
        ]
        if how == "linked":
            link(table, tiers, [split.path for split in some])


@examples(40, 10_000)
@given(data=st.data())
def test_rows_with_xrefs_are_rows_without(data, cache):
    drawn = data.draw(tables())
    with tempfile.TemporaryDirectory() as folder:
        table = drawn.create(folder, {**cache, **ALWAYS})
        cover_somehow(table, data, drawn.rows)
        plain = Table.open(folder, config={**cache, **NEVER})
        mapping = table.view.mapping
        names = [f.name for f in mapping.fields if f.indexed]
        predicates = conditions_with_search(table.schema, mapping)
        named = [query for query in PATHS if query.partition(".")[0] in names]
        if paths := [
            query
            for query in named
            if can_answer(search(query, table.schema), mapping, table.schema)
        ]:
            leaf = st.sampled_from(paths).map(lambda query: search(query, table.schema))
            predicates |= leaf | st.builds(Or, st.tuples(leaf, predicates))
        for predicate in data.draw(st.lists(predicates, min_size=1, max_size=4)):
            same_rows(table, plain, predicate)


def same_rows(table: Table, plain: Table, predicate: Predicate) -> None:
    dull_questions.clear()
    failures.clear()
    where = str(predicate)
    expected = plain.scan(where=where)
    assert Counter(shown(table.scan(where=where))) == Counter(shown(expected))
    dull_questions.clear()
    assert table.count(where=where) == expected.num_rows
    verdict = table.view.router.route(predicate, table.snapshot().entries).verdict
    assert not verdict.consulted or not verdict.reason
    event("routed" if verdict.after < verdict.before else "kept")


PATHS = [
    "json.k:a", "json.k:b", "json.k.l:b", "json.n:42", "json.n:42.0", "json.k:a*", "json.k:ab~1",
    "json.n:true", 'json.k:"a b"', "json.n:[1 TO 50]", "json.k:*", "json.zz:a", "json.k:IN [a 42]",
    "st.k:1", "st.k:1.0", "st.k:-1", "st.k:[0 TO 1]", "deep.w:a", "deep.l:true", "deep.w:spar?",
    "map.a:1", "map.ab:0", "map.spark:2.0",
]  # fmt: skip


# --- no split more than has to be ------------------------------------------------------------

SCHEMA = pa.schema(
    [
        ("part", pa.int32()),
        ("t", pa.string()),
        ("s", pa.string()),
        ("n", pa.int32()),
        ("d", pa.date32()),
    ]
)
DAYS = st.dates(datetime.date(2024, 1, 1), datetime.date(2024, 1, 4))
WORDS = ["ape", "bee", "cat", "dog"]
ROW = st.fixed_dictionaries(
    {
        "t": st.none() | st.lists(st.sampled_from(WORDS), max_size=3).map(" ".join),
        "s": st.none() | st.sampled_from(["ape", "Ape", "a b", ""]),
        "n": st.none() | st.integers(0, 5),
        "d": st.none() | DAYS,
    }
)
TERMS = st.one_of(
    st.sampled_from(WORDS).map(lambda w: search(w, SCHEMA, column="t")),
    st.sampled_from(["ape", "Ape", "a b", ""]).map(lambda v: Compare("=", Column(("s",)), v)),
    st.integers(0, 6).map(lambda v: Compare("=", Column(("n",)), v)),
    st.lists(st.integers(0, 6), min_size=1, max_size=3).map(
        lambda v: In(Column(("n",)), tuple(v), has_null=True)
    ),
    DAYS.map(lambda v: Compare("=", Column(("d",)), v)),
)
TREES = st.recursive(
    TERMS,
    lambda inner: (
        st.builds(And, st.lists(inner, min_size=2, max_size=3).map(tuple))
        | st.builds(Or, st.lists(inner, min_size=2, max_size=3).map(tuple))
    ),
    max_leaves=5,
)


def may_match(node: Predicate, rows: list[dict[str, object]]) -> bool:
    """The oracle: what can be known of a split from its terms alone."""
    match node:
        case And(children=children):
            return all(may_match(child, rows) for child in children)
        case Or(children=children):
            return any(may_match(child, rows) for child in children)
        case Compare(column=column, value=value):
            return any(row[column.root] == value for row in rows)
        case In(column=column, values=values):
            return any(row[column.root] in values for row in rows)
        case _:
            return any(node.text in str(row["t"] or "").split() for row in rows)


@examples(25, 2_000)
@given(data=st.data())
def test_no_split_is_kept_that_its_terms_rule_out(data, cache):
    chunks = data.draw(st.lists(st.lists(ROW, min_size=1, max_size=3), min_size=1, max_size=5))
    rows = [{"part": part, **row} for part, chunk in enumerate(chunks) for row in chunk]
    with tempfile.TemporaryDirectory() as folder:
        table = Table.create(
            folder,
            SCHEMA,
            partition_by=["part"],
            mapping={"s": "string"},
            config={**cache, **ALWAYS},
        )
        table.append(pa.Table.from_pylist(rows, SCHEMA))
        splits = sources(table)
        cut = data.draw(st.integers(0, len(splits)))
        parts = [cover(table, part) for part in (splits[:cut], splits[cut:]) if part]
        if data.draw(st.booleans()):
            link(table, parts, [split.path for split in splits])
        parts_of = table.snapshot().files["partitionValues"].to_pylist()
        held = [chunks[int(dict(values)["part"])] for values in parts_of]
        for tree in data.draw(st.lists(TREES, min_size=1, max_size=5)):
            dull_questions.clear()
            snapshot, router = table.refresh().snapshot(), table.view.router
            kept = router.route(tree, snapshot.entries).keep.tolist()
            assert kept == [may_match(tree, rows) for rows in held]
