"""Lookups keep every file that can match, and only those where the index is exact."""

from __future__ import annotations

import datetime
import math
from decimal import Decimal

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from ariadne_rows import index_data
from deltalake import DeltaTable, write_deltalake
from hypothesis import given, settings
from hypothesis import strategies as st

from indextables.ariadne.declarations import Bloom, Exploded, Range, Regular, Temporal, Text
from indextables.ariadne.lookup import Lookup
from indextables.ariadne.store import large_values
from indextables.errors import AriadneArgumentError, ColumnNotFoundError, LiteralError
from indextables.predicate.sql_text import parse_predicate
from indextables.split.row_filter import evaluate

SCHEMA = pa.schema(
    [
        ("id", pa.int32()),
        ("name", pa.string()),
        ("score", pa.float64()),
        ("price", pa.decimal128(10, 2)),
        ("day", pa.date32()),
        ("ts", pa.timestamp("us", "UTC")),
        ("body", pa.string()),
        ("tags", pa.list_(pa.struct([("tag", pa.string())]))),
    ]
)


def moment(day: int) -> datetime.datetime:
    return datetime.datetime(2024, 1, day, tzinfo=datetime.UTC)


def rows(**columns) -> pa.Table:
    count = len(next(iter(columns.values())))
    return pa.table({f.name: pa.array(columns.get(f.name, [None] * count), f.type) for f in SCHEMA})


FILES = {
    "a": rows(
        id=[1, 2, 3],
        name=["ann", "bob", None],
        score=[1.0, -0.0, math.nan],
        price=[Decimal("1.50"), None, None],
        day=[datetime.date(2024, 1, 1)] * 3,
        ts=[moment(1), moment(1), moment(1)],
        body=["the quick fox", None, "Wi-Fi at home"],
        tags=[[{"tag": "x"}, {"tag": "y"}], [], None],
    ),
    "b": rows(
        id=[3, 4],
        name=["carl", "dora"],
        score=[4.5, 9.0],
        ts=[moment(2), moment(2)],
        body=["slow fox", "nothing at work"],
        tags=[[{"tag": "x"}], [{"tag": None}]],
    ),
    "c": rows(id=[None, None], ts=[moment(3), moment(3)]),
    "empty": rows(id=[]),
}


def lookup(*declarations, **options) -> Lookup:
    return Lookup(index_data(FILES, declarations, **options), SCHEMA)


def found(located) -> str:
    return "".join(located.files)


CASES = [
    # declaration, values, files
    (Regular("id"), {"id": [1]}, "a"),
    (Regular("id"), {"id": [3]}, "ab"),
    (Regular("id"), {"id": [4, 1]}, "ab"),
    (Regular("id"), {"id": ["3"]}, "ab"),
    (Regular("id"), {"id": [1.0]}, "a"),
    (Regular("id"), {"id": [1.5, -1]}, ""),
    (Regular("id"), {"id": [2**40]}, ""),
    (Regular("id"), {"id": [None]}, ""),
    (Regular("id"), {"id": []}, ""),
    (Regular("score"), {"score": [4.5]}, "b"),
    (Regular("score"), {"score": ["4.5"]}, "b"),
    (Regular("score"), {"score": [0]}, "a"),
    (Regular("score"), {"score": [math.nan]}, "a"),
    (Regular("price"), {"price": [1.5]}, "a"),
    (Regular("day"), {"day": ["2024-01-01"]}, "a"),
    (Regular("ts"), {"ts": [moment(2)]}, "b"),
    (Regular("name"), {"name": ["zoe"]}, ""),
    (Bloom("id"), {"id": [4]}, "b"),
    (Bloom("name", 0.0001), {"name": ["ann", "dora"]}, "ab"),
    (Bloom("name", 0.0001), {"name": ["zoe"]}, ""),
    (Range("id"), {"id": [4]}, "b"),
    (Range("id"), {"id": [3]}, "ab"),
    (Range("id"), {"id": [9]}, ""),
    (Range("score"), {"score": [100.0]}, ""),
    (Temporal("id", "ts"), {"id": [3]}, "b"),
    (Temporal("id", "ts"), {"id": [3, 1]}, "ab"),
    (Exploded("tags", "tag", "tag"), {"tag": ["y"]}, "a"),
    (Exploded("tags", "tag", "tag"), {"tag": ["x"]}, "ab"),
    (Text("body"), {"body": ["fox"]}, "ab"),
    (Text("body"), {"body": ['"quick fox"', "work"]}, "ab"),
    (Text("body"), {"body": ["quick AND work"]}, ""),
]


@pytest.mark.parametrize(("declaration", "values", "files"), CASES)
def test_files_that_hold_values(declaration, values, files):
    assert found(lookup(declaration).locate(values)) == files


def test_columns_are_combined_with_and():
    both = lookup(Regular("id"), Regular("name"), Bloom("score", 0.0001))
    assert found(both.locate({"id": [3], "name": ["carl"]})) == "b"
    assert found(both.locate({"id": [1], "name": ["carl"]})) == ""
    assert found(both.locate({"id": [3], "score": [77.0]})) == ""
    blooms = lookup(Bloom("id", 0.0001), Bloom("name", 0.0001))
    assert found(blooms.locate({"id": [3], "name": ["carl", "zoe"]})) == "b"
    assert found(blooms.locate({"id": [1], "name": ["carl"]})) == ""


CONDITIONS = [
    (Regular("id"), "id > 3", "b"),
    (Regular("id"), "id < 2 OR id = 4", "ab"),
    (Regular("id"), "NOT (id > 1)", "a"),
    (Regular("id"), "NOT (id = 4)", "ab"),
    (Regular("id"), "id IS NULL", "c"),
    (Regular("id"), "id IS NOT NULL", "ab"),
    (Regular("id"), "id <=> NULL", "c"),
    (Regular("id"), "id NOT IN (3, 4)", "a"),
    (Regular("id"), "id NOT IN (1, 2, 3)", "b"),
    (Regular("id"), "id BETWEEN 1 AND 2 AND id <> 3", "a"),
    (Regular("name"), "name LIKE 'c%'", "b"),
    (Regular("name"), "name LIKE '%b'", "a"),
    (Regular("name"), "name >= 'c'", "b"),
    (Regular("name"), "id = 77", "abc"),
    (Range("name"), "name LIKE 'c%'", "b"),
    (Range("name"), "name LIKE 'x%'", ""),
    (Range("id"), "id > 3", "b"),
    (Range("id"), "id IN (0, 9)", ""),
    (Range("id"), "id IS NULL", "c"),
    (Bloom("id"), "id = 1 OR id IS NULL", "ac"),
    (Bloom("id"), "id > 3", "ab"),
    (Text("body"), "body indexquery 'quick'", "a"),
    (Text("body"), "body indexquery 'fo*' AND body indexquery 'work'", "b"),
    (Text("body"), "NOT (body indexquery 'fox')", "abc"),
    (Exploded("tags", "tag", "tag"), "tag = 'y'", "a"),
    (Exploded("tags", "tag", "tag"), "tag LIKE 'y%'", "a"),
    (Exploded("tags", "tag", "tag"), "NOT (tag = 'x')", "abc"),
]


@pytest.mark.parametrize(("declaration", "condition", "files"), CONDITIONS)
def test_conditions_as_text(declaration, condition, files):
    assert found(lookup(declaration).where(condition)) == files


def test_what_is_not_indexed_stays_a_candidate():
    pending = lookup(Regular("id"), pending=["new"])
    assert pending.locate({"id": [1]}).files == ("a", "new")
    assert pending.locate({"id": [None]}).files == ("new",)
    assert pending.where("id > 100").files == ("new",)
    unbuilt = lookup(Regular("id"), Bloom("name"), unbuilt={"b": ["id", "name"]})
    assert found(unbuilt.locate({"id": [1], "name": ["ann"]})) == "ab"
    assert found(unbuilt.where("id IS NULL")) == "bc"


def test_a_column_that_is_built_nowhere_keeps_every_file():
    data = index_data(FILES, [Regular("id")])
    declared = index_data(FILES, [Regular("id"), Bloom("name"), Range("day")]).declarations
    unbuilt = Lookup(type(data)(data.files, (), (), declared, "2", lambda _: None), SCHEMA)
    assert found(unbuilt.locate({"name": ["ann"], "id": [3]})) == "ab"
    assert found(unbuilt.where("day > '2030-01-01' AND id = 4")) == "b"


def test_bloom_bytes_of_another_kind_keep_the_file():
    data = index_data(FILES, [Bloom("id")])
    place = data.files.column_names.index("bloom_id")
    foreign = pa.array([b"guava", None, b"", b"guava"])
    files = data.files.set_column(place, "bloom_id", foreign)
    other = Lookup(type(data)(files, (), (), data.declarations, "2", lambda _: None), SCHEMA)
    # All values of c are null, and the last file has no rows at all.
    assert found(other.locate({"id": [77]})) == "ab"


def test_unknown_columns_are_named_together():
    with pytest.raises(ColumnNotFoundError, match=r"'nope'.*'neither'"):
        lookup(Regular("id")).locate({"nope": [1], "neither": [2]})
    with pytest.raises(AriadneArgumentError, match="'name' has no index"):
        lookup(Regular("id")).locate({"name": ["x"]})
    with pytest.raises(ColumnNotFoundError, match="nope"):
        lookup(Regular("id")).where("nope = 1")
    with pytest.raises(LiteralError, match="write the literal in quotes"):
        lookup(Regular("name")).locate({"name": [1]})


@pytest.mark.parametrize("values", [{"name": "carl"}, {"name": b"carl"}, {"name": 1}, ["name"]])
def test_what_is_no_list_of_values_is_refused(values):
    with pytest.raises(AriadneArgumentError, match=r"no list of values|not a mapping"):
        lookup(Regular("name")).locate(values)


def test_a_temporal_value_is_where_it_is_newest_even_without_a_time():
    files = {
        "old": rows(id=[1, 2], ts=[moment(1), None]),
        "new": rows(id=[1], ts=[moment(2)]),
        "same": rows(id=[1], ts=[moment(2)]),
        "none": rows(id=[1, 3], ts=[None, None]),
    }
    temporal = Lookup(index_data(files, [Temporal("id", "ts")]), SCHEMA)
    assert temporal.locate({"id": [1]}).files == ("new", "same")
    assert temporal.locate({"id": [2]}).files == ("old",)
    assert temporal.locate({"id": [3]}).files == ("none",)
    every = Lookup(temporal.data, SCHEMA, all_rows=True)
    assert every.locate({"id": [1]}).files == ("old", "new", "same", "none")


# --- the value table -------------------------------------------------------------------------


@pytest.fixture
def delta(tmp_path):
    """A value table of the ids of all files."""
    write_deltalake(tmp_path, large_values.value_schema(pa.int32()).empty_table())
    for name, table in FILES.items():
        write_deltalake(tmp_path, large_values.value_rows(name, table.column("id")), mode="append")
    return DeltaTable(tmp_path)


def test_values_of_large_files_are_looked_up_in_the_value_table(delta):
    options = {"large": {"a": ["id"], "b": ["id"]}, "tables": lambda _: delta}
    large = lookup(Regular("id"), **options)
    assert found(large.locate({"id": [1]})) == "a"
    assert found(large.locate({"id": [3]})) == "ab"
    assert found(large.locate({"id": [77]})) == ""
    assert found(large.where("NOT (id = 1)")) == "ab"
    assert found(large.where("id > 3")) == "ab"
    assert found(large.where("id IS NULL")) == "c"
    keys = pa.table({"id": [4, 77, 4]})
    assert found(large.match(keys)) == "b"


def test_a_value_table_that_cannot_be_asked_keeps_its_files():
    large = lookup(Regular("id"), large={"a": ["id"]})
    assert found(large.locate({"id": [4]})) == "ab"
    assert found(large.match(pa.table({"id": [77]}))) == "a"


def test_a_value_table_of_somebody_else_keeps_its_files(tmp_path):
    write_deltalake(tmp_path, pa.table({"filename": ["a"], "id": [1]}))
    foreign = DeltaTable(tmp_path)
    large = lookup(Regular("id"), large={"a": ["id"]}, tables=lambda _: foreign)
    assert found(large.locate({"id": [4]})) == "ab"


def test_a_lookup_reads_only_the_row_groups_of_its_keys(tmp_path):
    values = pa.array(range(200_000))
    table = large_values.value_rows("f", values)
    path = tmp_path / "part.parquet"
    stats = large_values.write_values(table, path)
    assert '"numRecords":200000' in stats
    import pyarrow.dataset as ds

    (fragment,) = ds.dataset(path).get_fragments()
    wanted = large_values.value_rows("f", pa.array([5])).column("hash")
    assert len(fragment.split_by_row_group(pc.field("hash").isin(wanted.combine_chunks()))) == 1
    assert len(fragment.row_groups) == 13


def test_rows_of_a_value_table_are_distinct_and_ordered(tmp_path):
    table = large_values.value_rows("f", pa.array([3, 1, None, 3]))
    assert sorted(table.column("value").to_pylist()) == [1, 3]
    both = large_values.clustered([table, large_values.value_rows("g", pa.array([2, 3]))])
    hashes = both.column("hash").to_pylist()
    assert hashes == sorted(hashes)
    large_values.write_values(both, tmp_path / "x.parquet")
    with pytest.raises(ValueError, match="ordered by hash"):
        large_values.write_values(both.take([3, 2, 1, 0]), tmp_path / "y.parquet")


# --- keys of joins ---------------------------------------------------------------------------


def test_keys_of_several_columns_are_matched_row_by_row():
    both = lookup(Regular("id"), Regular("name"))
    crossed = pa.table({"id": [1, 4], "name": ["dora", "ann"]})
    assert found(both.match(crossed)) == ""
    straight = pa.table({"id": [1, 4], "name": ["ann", "ann"]})
    assert found(both.match(straight)) == "a"
    assert found(both.match(pa.table({"id": pa.array([1, None]), "name": ["bob", "ann"]}))) == "a"


def test_too_many_keys_are_judged_column_by_column(monkeypatch):
    monkeypatch.setattr("indextables.ariadne.lookup._MOST_PAIRS", 3)
    both = lookup(Regular("id"), Range("name"), Bloom("score", 0.001))
    crossed = pa.table({"id": [1, 4], "name": ["dora", "ann"], "score": [9.0, 1.0]})
    assert found(both.match(crossed)) == "ab"
    assert found(both.match(crossed.slice(0, 1))) == ""


KEYS = [
    (Regular("id"), pa.array([1.0, 2.5])),
    (Regular("id"), pa.array([Decimal("1.00")])),
    (Regular("id"), pa.array(["1", "77"])),
    (Range("id"), pa.array([0, 1], pa.int64())),
    (Bloom("id", 0.0001), pa.array([1], pa.int8())),
    (Regular("price"), pa.array([Decimal("1.5")])),
    (Regular("day"), pa.array(["2024-01-01"])),
]


@pytest.mark.parametrize(("declaration", "keys"), KEYS)
def test_keys_of_another_type_match_as_in_a_join(declaration, keys):
    assert found(lookup(declaration).match(pa.table({declaration.name: keys}))) == "a"


def test_keys_that_may_equal_several_values_keep_every_file():
    assert found(lookup(Regular("name")).match(pa.table({"name": [1]}))) == "abc"
    assert found(lookup(Regular("id")).match(pa.table({"id": ["1.5"]}))) == "abc"


# --- anything --------------------------------------------------------------------------------

small = st.integers(-3, 3)
names = st.sampled_from(["", "a", "ab", "b", "ba", "ü", "\U0001f600"])
cells = st.fixed_dictionaries(
    {
        "id": st.none() | small,
        "name": st.none() | names,
        "score": st.none() | st.sampled_from([0.0, -0.0, 1.5, math.nan, math.inf, -2.0]),
    }
)
tables = st.lists(cells, max_size=6).map(
    lambda found: pa.Table.from_pylist(
        found, pa.schema([SCHEMA.field(n) for n in ("id", "name", "score")])
    )
)
leaves = st.one_of(
    st.tuples(st.sampled_from(["=", "<>", "<", "<=", ">", ">=", "<=>"]), small).map(
        lambda part: f"id {part[0]} {part[1]}"
    ),
    st.tuples(st.sampled_from(["=", "<", ">=", "<=>"]), names).map(
        lambda part: f"name {part[0]} '{part[1]}'"
    ),
    st.sampled_from(["score = 0", "score > 1", "score < 1.5", "score = 1.5"]),
    st.lists(small | st.none(), min_size=1, max_size=3).map(
        lambda found: f"id IN ({', '.join('NULL' if n is None else str(n) for n in found)})"
    ),
    names.map(lambda text: f"name LIKE '{text}%'"),
    names.map(lambda text: f"name LIKE '%{text}'"),
    st.sampled_from(["id IS NULL", "name IS NOT NULL", "score IS NULL"]),
)
conditions = st.recursive(
    leaves,
    lambda inner: (
        st.tuples(inner, inner).map(lambda p: f"({p[0]} AND {p[1]})")
        | st.tuples(inner, inner).map(lambda p: f"({p[0]} OR {p[1]})")
        | inner.map(lambda p: f"(NOT {p})")
    ),
    max_leaves=5,
)
kinds = st.sampled_from([Regular, Bloom, Range])


@settings(max_examples=300)
@given(
    st.lists(tables, min_size=1, max_size=4),
    st.tuples(kinds, kinds, kinds),
    conditions,
    st.sets(st.sampled_from(["id", "name", "score"])),
)
def test_no_condition_ever_loses_a_file(found, chosen, condition, unbuilt):
    files = {f"f{n}": table for n, table in enumerate(found)}
    declared = [kind(name) for kind, name in zip(chosen, ("id", "name", "score"), strict=True)]
    schema = found[0].schema
    data = index_data(files, declared, unbuilt={"f0": sorted(unbuilt)})
    kept = set(Lookup(data, schema).where(condition).files)
    predicate = parse_predicate(condition, schema)
    needed = {
        name
        for name, table in files.items()
        if pc.any(pc.fill_null(evaluate(predicate, table), False)).as_py()
    }
    assert needed <= kept
    single = not {"AND", "OR"} & set(condition.split())
    if single and all(kind is Regular for kind in chosen):
        # A condition on one column is decided exactly by its distinct values.
        assert kept - {"f0"} == needed - {"f0"}


@settings(max_examples=200)
@given(
    st.lists(tables, min_size=1, max_size=4),
    st.tuples(kinds, kinds, kinds),
    tables,
)
def test_no_key_ever_loses_a_file(found, chosen, keys):
    files = {f"f{n}": table for n, table in enumerate(found)}
    declared = [kind(name) for kind, name in zip(chosen, ("id", "name", "score"), strict=True)]
    kept = set(Lookup(index_data(files, declared), keys.schema).match(keys).files)

    def normal(row):
        values = ["NaN" if isinstance(v, float) and math.isnan(v) else v for v in row.values()]
        return None if None in values else tuple(values)

    wanted = {normal(row) for row in keys.to_pylist()} - {None}
    for name, table in files.items():
        if wanted & {normal(row) for row in table.to_pylist()}:
            assert name in kept
