"""Joins with an index are Spark's joins with all rows, and read no file in vain."""

from __future__ import annotations

from decimal import Decimal

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from indextables.ariadne.opening import cached_keys
from indextables.config import (
    ARIADNE_DEBUG,
    ARIADNE_DRIVER_READ_LIMIT,
    ARIADNE_INDEX_REPARTITION_COUNT,
    ARIADNE_REPARTITION_DATA_FILES,
)
from indextables.errors import (
    AriadneArgumentError,
    ColumnNotFoundError,
    SourceFileMissingError,
)

SCHEMA = pa.schema(
    [
        ("id", pa.int32()),
        ("name", pa.string()),
        ("at", pa.int64()),
        ("tags", pa.list_(pa.struct([("tag", pa.string()), ("n", pa.int32())]))),
    ]
)
DDL = "id INT, name STRING, at BIGINT, tags ARRAY<STRUCT<tag: STRING, n: INT>>"
P, Q, R = ({"tag": tag, "n": n} for n, tag in enumerate("pqr"))
ROWS = {
    "jan #1": [(1, "A", 1, [P, Q]), (3, "A", 1, []), (5, "E", None, None)],
    "jun %41": [(1, "B", 6, [P, P]), (4, None, 2, [R])],
    "ü?n[ï]": [(None, "Z", 6, [Q]), (None, "Z", 7, None), (7, "A", 1, [P])],
    "nothing": [],
}
HOW = ["inner", "cross", "left", "right", "full", "left_semi", "left_anti"]


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("files")
    for name, rows in ROWS.items():
        table = pa.Table.from_pylist(
            [dict(zip(SCHEMA.names, r, strict=True)) for r in rows], SCHEMA
        )
        pq.write_table(table, folder / f"{name}.parquet")
    return folder


@pytest.fixture
def index(spark, storage, files):
    """An index over the files; what it keeps is declared by the test."""
    from indextables.ariadne import Index

    made = Index("people", DDL)
    made.add_file(*(str(files / f"{name}.parquet") for name in ROWS))
    return made


@pytest.fixture(scope="module")
def whole(spark, files):
    rows = [(*row,) for found in ROWS.values() for row in found]
    return (
        spark.createDataFrame(
            [
                (i, n, a, None if t is None else [(e["tag"], e["n"]) for e in t])
                for i, n, a, t in rows
            ],
            DDL,
        )
        .coalesce(1)
        .cache()
    )


@pytest.fixture(scope="module")
def keys(spark):
    return (
        spark.createDataFrame(
            [(1, "A", "k1"), (4, None, "k2"), (9, "B", "k3"), (None, "Z", "k4"), (1, "B", "k5")],
            "id INT, name STRING, k STRING",
        )
        .coalesce(1)
        .cache()
    )


def rows(frame):
    return sorted(map(repr, frame.collect()))


def read(frame):
    """The names of the files that a frame reads."""
    from urllib.parse import unquote

    return sorted(
        unquote(file).rpartition("/")[2].removesuffix(".parquet") for file in frame.inputFiles()
    )


def test_every_join_is_sparks_join_on_either_side(index, whole, keys):
    from indextables.ariadne import join

    index.add_index("id")
    index.add_bloom_index("name", 0.001)
    index.update()
    for using, kinds in ((["id"], HOW), (["id", "name"], ["inner", "full", "left_anti"])):
        for how in kinds:
            left, right = index.join(keys, using, how), join(keys, index, using, how)
            assert rows(left) == rows(whole.join(keys, using, how)), (how, using)
            assert rows(right) == rows(keys.join(whole, using, how)), (how, using)
            assert left.columns == whole.join(keys, using, how).columns
            assert right.columns == keys.join(whole, using, how).columns


@pytest.mark.parametrize("how", ["left semi", "LEFT ANTI", "full  outer", " inner "])
def test_join_types_are_spelled_as_in_sql_or_in_spark(index, whole, keys, how):
    index.add_index("id")
    wanted = "".join(how.lower().replace("_", "").split())
    assert rows(index.join(keys, "id", how)) == rows(whole.join(keys, "id", wanted))


def test_only_files_that_can_contribute_are_read(index, keys):
    from indextables.ariadne import join

    index.add_index("id")
    index.update()
    one = keys.where("k = 'k2'")
    assert read(index.join(one, "id")) == ["jun %41"]
    assert read(index.join(one, "ID", "left_semi")) == ["jun %41"]
    assert read(join(one, index, ["id"], "left_anti")) == ["jun %41"]
    # Rows without a partner are kept here, so every file is needed that has any.
    for kept in ("left", "full", "left_anti"):
        assert read(index.join(one, "id", kept)) == ["jan #1", "jun %41", "ü?n[ï]"]
    assert read(index.join(keys.where("id = 9"), "id")) == []
    assert read(index.join(keys.where("id IS NULL"), "id")) == []


def test_the_keys_are_pushed_into_the_read(index, keys, capsys):
    index.add_index("id")
    index.update()
    index.join(keys.where("k = 'k2'"), "id").explain()
    assert "PushedFilters: [EqualTo(id,4)" in capsys.readouterr().out.replace(
        "IsNotNull(id), EqualTo(id,4)", "EqualTo(id,4)"
    ).replace("In(id, [4])", "EqualTo(id,4)")


def test_the_schema_is_the_same_whether_or_not_a_file_matched(index, keys):
    from indextables.ariadne import join

    index.add_index("id")
    index.update()
    for frame, kinds in ((index, HOW), (index.select("id", "at"), ["inner", "full", "left_semi"])):
        for how in kinds:
            none, some = keys.where("id = 9"), keys
            assert frame.join(none, "id", how).schema == frame.join(some, "id", how).schema
            assert join(none, frame, "id", how).schema == join(some, frame, "id", how).schema
    assert index.select("id", "at").join(keys, "id", "full").columns == ["id", "at", "name", "k"]


def test_what_is_not_indexed_is_joined_all_the_same(index, whole, keys):
    index.add_index("id")
    assert rows(index.join(keys, "id")) == rows(whole.join(keys, "id"))
    index.update()
    index.add_range_index("name")
    assert rows(index.join(keys, ["id", "name"])) == rows(whole.join(keys, ["id", "name"]))


def test_keys_of_another_type_match_as_in_sparks_join(spark, index, whole):
    index.add_index("id")
    index.update()
    for values, kind in (
        ([1.0, 4.5], "DOUBLE"),
        ([Decimal("1.00")], "DECIMAL(10,2)"),
        (["1", "04"], "STRING"),
        ([1, 2**40], "BIGINT"),
    ):
        other = spark.createDataFrame([(value,) for value in values], f"id {kind}")
        assert rows(index.join(other, "id")) == rows(whole.join(other, "id")), kind
    assert read(index.join(spark.createDataFrame([("4",)], "id STRING"), "id")) == ["jun %41"]


def test_repeated_joins_reuse_what_was_located(index, keys, files):
    index.add_index("id")
    index.update()
    cached_keys.cache_clear()
    index.join(keys, "id")
    index.join(keys.orderBy("k"), "id", "left_semi")
    assert cached_keys.cache_info()[:2] == (1, 1)
    index.join(keys.where("id = 1"), "id")
    assert cached_keys.cache_info()[:2] == (1, 2)
    index.delete_files(str(files / "jan #1.parquet"))
    assert read(index.join(keys, "id")) == ["jun %41"]
    assert cached_keys.cache_info()[:2] == (1, 3)


def test_too_many_keys_are_looked_up_by_their_bounds(index, whole, keys, monkeypatch):
    monkeypatch.setattr("indextables.ariadne.joins.MOST_KEYS", 1)
    index.add_index("id")
    index.update()
    two = keys.where("id IN (4, 9)")
    assert rows(index.join(two, "id")) == rows(whole.join(two, "id"))
    assert read(index.join(two, "id")) == ["jan #1", "jun %41", "ü?n[ï]"]
    assert read(index.join(keys.selectExpr("id + 5 AS id"), "id")) == ["ü?n[ï]"]


def test_bounds_of_texts_are_none_of_numbers(spark, index, whole, monkeypatch):
    monkeypatch.setattr("indextables.ariadne.joins.MOST_KEYS", 1)
    index.add_index("id")
    index.update()
    texts = spark.createDataFrame([("10",), ("3",), ("4",)], "id STRING")
    assert index.join(texts, "id").count() == 2
    assert rows(index.join(texts, "id")) == rows(whole.join(texts, "id"))


@pytest.mark.parametrize("most", [10, 1])
@pytest.mark.parametrize("kind", ["DATE", "TIMESTAMP_NTZ"])
def test_keys_may_be_days_that_python_does_not_know(
    spark, storage, tmp_path, monkeypatch, kind, most
):
    from indextables.ariadne import Index

    monkeypatch.setattr("indextables.ariadne.joins.MOST_KEYS", most)
    spark.conf.set(ARIADNE_DRIVER_READ_LIMIT.name, "0")
    days = spark.sql(
        f"SELECT CAST(d AS {kind}) AS day FROM VALUES ('2024-01-01'), ('+12024-01-01') t(d)"
    )
    days.write.parquet(f"{tmp_path}/files")
    try:
        index = Index("far", f"day {kind}")
        index.add_file(f"{tmp_path}/files")
        index.add_index("day")
        index.update()
        assert index.join(days, "day").count() == 2
    finally:
        spark.conf.unset(ARIADNE_DRIVER_READ_LIMIT.name)


def test_null_keys_do_not_hide_that_others_were_cut_off(index, whole, keys, monkeypatch):
    monkeypatch.setattr("indextables.ariadne.joins.MOST_KEYS", 2)
    monkeypatch.setattr("indextables.ariadne.joins._SMALL", -1)
    index.add_index("id")
    index.add_index("name")
    index.update()
    using = ["id", "name"]
    assert rows(index.join(keys, using)) == rows(whole.join(keys, using))


def test_rows_can_be_shuffled_before_a_join(spark, index, whole, keys, caplog):
    index.add_index("id")
    index.update()
    settings = {
        ARIADNE_INDEX_REPARTITION_COUNT.name: "3",
        ARIADNE_REPARTITION_DATA_FILES.name: "true",
        ARIADNE_DEBUG.name: "true",
    }
    for name, value in settings.items():
        spark.conf.set(name, value)
    try:
        with caplog.at_level("INFO", "indextables.ariadne"):
            joined = index.join(keys, "id")
        assert rows(joined) == rows(whole.join(keys, "id"))
        assert "RepartitionByExpression" in joined._jdf.queryExecution().analyzed().toString() or (
            "Repartition 3" in joined._jdf.queryExecution().analyzed().toString()
        )
        assert "to read: 2" in caplog.text
    finally:
        for name in settings:
            spark.conf.unset(name)


def test_keys_that_change_from_run_to_run_prune_nothing(index, keys):
    from pyspark.sql import functions as f

    index.add_index("id")
    index.update()
    unsure = keys.where(f.rand() < 2).where("k = 'k2'")
    assert read(index.join(unsure, "id")) == ["jan #1", "jun %41", "ü?n[ï]"]


def test_computed_columns_join_and_are_in_the_result(spark, index, whole):
    index.add_computed_index("kind", "concat(name, '!')")
    index.update()
    other = spark.createDataFrame([("B!", 1), ("Q!", 2)], "kind STRING, x INT")
    expected = whole.selectExpr("*", "concat(name, '!') AS kind").join(other, "kind")
    joined = index.join(other, "kind")
    assert rows(joined) == rows(expected)
    assert read(joined) == ["jun %41"]
    both = spark.createDataFrame([("B!", 1), ("B!", 2)], "kind STRING, id INT")
    assert index.join(both, ["kind", "id"]).count() == 1


def test_an_alias_multiplies_rows_only_where_it_is_asked_for(spark, index, whole):
    index.add_index("id")
    index.add_exploded_field_index("tags", "tag", "tag")
    index.add_exploded_field_index("tags", "n", "n")
    index.update()
    ids = spark.createDataFrame([(1,)], "id INT")
    assert rows(index.join(ids, "id")) == rows(whole.join(ids, "id"))
    tags = spark.createDataFrame([("p",), ("q",)], "tag STRING")
    found = index.join(tags, "tag").select("id", "name", "tag")
    # The row with [p, p] stands there once.
    expected = [(1, "A", "p"), (1, "A", "q"), (1, "B", "p"), (7, "A", "p"), (None, "Z", "q")]
    assert sorted(map(tuple, found.collect()), key=str) == sorted(expected, key=str)
    assert read(index.join(tags.where("tag = 'q'"), "tag")) == ["jan #1", "ü?n[ï]"]
    # Both fields are of one element, not of any two.
    pairs = spark.createDataFrame([("p", 0), ("p", 1)], "tag STRING, n INT")
    assert index.join(pairs, ["tag", "n"]).select("id", "name").count() == 3
    # Rows without an element are kept where the join keeps rows without a partner.
    assert index.join(tags.where("tag = 'q'"), "tag", "left_anti").count() == 7


def test_an_array_and_its_elements_are_joined(spark, index, whole):
    from indextables.ariadne import Index

    index.add_index("tags")
    index.add_exploded_field_index("tags", "tag", "tag")
    index.update()
    pairs = [([("p", 0), ("q", 1)], "p"), ([("r", 2)], "q"), ([], "p")]
    arrays = spark.createDataFrame(pairs, "tags ARRAY<STRUCT<tag: STRING, n: INT>>, tag STRING")
    both = index.join(arrays, ["tags", "tag"])
    assert [(row.id, row.tag) for row in both.collect()] == [(1, "p")]
    only = arrays.select("tags")
    assert rows(index.join(only, "tags")) == rows(whole.join(only, "tags"))
    assert read(index.join(only.where("size(tags) = 1"), "tags")) == ["jun %41"]
    # The alias has the name of the array, and stands in its place where it is asked for.
    other = Index("same", DDL)
    other.add_file(*index.data().filenames)
    other.add_exploded_field_index("tags", "tag", "tags")
    other.update()
    words = spark.createDataFrame([("r",)], "tags STRING")
    assert [(row.id, row.tags) for row in other.join(words, "tags").collect()] == [(4, "r")]


INSIDE = ["_ariadne_ts", "__file", "c0", "t0", "file_path", "_metadata", "value", "large_x"]


@pytest.mark.parametrize(
    "names", [INSIDE, *(pytest.param([name], marks=pytest.mark.long) for name in INSIDE)]
)
def test_columns_with_names_that_are_used_inside(spark, storage, tmp_path, names):
    from indextables.ariadne import Index

    for n in (1, 2):
        table = {name: pa.array([n], pa.int32()) for name in names} | {"x": [f"x{n}"], "at": [n]}
        pq.write_table(pa.table(table), tmp_path / f"{n}.parquet")
    index = Index("t", f"{' INT, '.join(names)} INT, x STRING, at BIGINT")
    index.add_file(str(tmp_path / "*.parquet"))
    index.add_temporal_index(names[0], "at")
    for name in names[1:]:
        index.add_index(name)
    index.add_bloom_index("x")
    assert index.update().indexed == 2
    for name in names:
        keys = spark.createDataFrame([(2,)], f"{name} INT")
        (row,) = index.join(keys, name).collect()
        assert row.asDict() == {**dict.fromkeys(names, 2), "x": "x2", "at": 2}
        (file,) = index.locate_files_from_dataframe(keys, name)
        assert file.endswith("/2.parquet")


def test_a_time_can_be_nested(spark, storage, tmp_path):
    from indextables.ariadne import Index

    for n in (1, 2):
        table = {"id": pa.array([7, n], pa.int32()), "meta": [{"at": n}, {"at": 0}]}
        pq.write_table(pa.table(table), tmp_path / f"{n}.parquet")
    index = Index("t", "id INT, meta STRUCT<at: BIGINT>")
    index.add_file(str(tmp_path / "*.parquet"))
    index.add_temporal_index("id", "meta.at")
    index.update()
    keys = spark.createDataFrame([(7,), (1,)], "id INT")
    assert sorted(index.join(keys, "id").collect()) == [(1, (0,)), (7, (2,))]
    assert sorted(index.select("id").join(keys, "id").collect()) == [(1,), (7,)]
    assert read(index.join(keys.where("id = 7"), "id")) == ["2"]


def test_temporal_joins_give_the_newest_row(spark, index):
    index.add_temporal_index("id", "at")
    index.add_index("name")
    index.update()
    ids = spark.createDataFrame([(1,), (5,), (7,)], "id INT")
    newest = index.join(ids, "id").select("id", "name", "at")
    assert sorted(map(tuple, newest.collect())) == [(1, "B", 6), (5, "E", None), (7, "A", 1)]
    assert read(index.join(ids.where("id = 1"), "id")) == ["jun %41"]
    # The row that outranks (1, A) is in a file that no key of the other column leads to.
    both = spark.createDataFrame([(1, "A"), (3, "A")], "id INT, name STRING")
    assert [tuple(r) for r in index.join(both, ["id", "name"]).select("id", "name").collect()] == [
        (3, "A")
    ]
    # Without a join on it nobody knows which rows are outranked before all are seen.
    names = spark.createDataFrame([("A",), ("Z",)], "name STRING")
    found = index.join(names, "name").select("id", "name", "at").collect()
    assert sorted(map(tuple, found), key=str) == sorted(
        [(3, "A", 1), (7, "A", 1), (None, "Z", 6), (None, "Z", 7)], key=str
    )
    # The time decides whether or not it is selected.
    assert index.select("id", "name").join(ids.where("id = 1"), "id").collect() == [(1, "B")]


def test_two_temporal_columns_want_the_newest_row_of_both(spark, storage, tmp_path):
    """Ranked on the rows of the files: (1, y) is not promoted when (2, y), which beats it, goes."""
    from indextables.ariadne import Index, join

    found = {"old": [(1, "x", 1), (1, "y", 2)], "new": [(2, "y", 3), (2, "z", 4), (None, "w", 5)]}
    index = Index("pairs", "id INT, name STRING, at BIGINT")
    for name, lines in found.items():
        table = [dict(zip(SCHEMA.names[:3], line, strict=True)) for line in lines]
        schema = pa.schema(list(SCHEMA)[:3])
        pq.write_table(pa.Table.from_pylist(table, schema), tmp_path / f"{name}.parquet")
        index.add_file(str(tmp_path / f"{name}.parquet"))
    index.add_temporal_index("id", "at")
    index.add_temporal_index("name", "at")
    index.update()
    ids = spark.createDataFrame([(1,), (2,)], "id INT")
    names = spark.createDataFrame([("x",), ("y",), ("z",), ("w",)], "name STRING")
    both = ids.crossJoin(names)
    for keys, using in ((ids, "id"), (names, "name"), (both, ["id", "name"])):
        kept = index.join(keys, using).where("id IS NOT NULL").select("id", "name", "at")
        assert [tuple(row) for row in kept.collect()] == [(2, "z", 4)], using
    assert join(ids, index, "id", "left_anti").collect() == [(1,)]
    # A row without a value in one column is ranked by the other.
    assert index.join(names.where("name = 'w'"), "name").select("id", "at").collect() == [(None, 5)]
    table = spark.sql("SELECT id, name FROM ariadne.default.pairs ORDER BY name")
    assert [tuple(row) for row in table.collect()] == [(None, "w"), (2, "z")]


def test_columns_may_have_the_names_of_our_own(spark, storage, tmp_path):
    from indextables.ariadne import Index

    items = pa.array([[{"k": 1}, {"k": 2}]], pa.list_(pa.struct([("k", pa.int32())])))
    names = ("__ariadne_rank_0", "__Ariadne_Element0")
    rows = {names[0]: pa.array([7], pa.int32()), names[1]: [8], "x": ["a"], "at": [1]}
    pq.write_table(pa.table({**rows, "items": items}), tmp_path / "rows.parquet")
    index = Index(
        "named",
        f"{names[0]} INT, {names[1]} BIGINT, x STRING, at BIGINT, items ARRAY<STRUCT<k: INT>>",
    )
    index.add_file(str(tmp_path / "rows.parquet"))
    index.add_temporal_index("x", "at")
    index.add_exploded_field_index("items", "k", "k")
    index.update()
    keys = spark.createDataFrame([("a", 2)], "x STRING, k INT")
    found = index.join(keys, ["x", "k"])
    assert [tuple(row) for row in found.select(*names, "k").collect()] == [(7, 8, 2)]


def test_the_newest_row_is_the_newest_of_those_that_spark_shows(spark, storage, tmp_path):
    """The index reads two columns and sees a row that Spark drops for a third."""
    from indextables.ariadne import Index

    (tmp_path / "old.csv").write_text("1,5,2.5\n")
    (tmp_path / "new.csv").write_text("1,9,malformed\n2,1,1.0\n")
    index = Index("t", "id INT, at BIGINT, x DOUBLE", "csv", read_options={"MODE": "dropMalformed"})
    index.add_file(str(tmp_path / "*.csv"))
    index.add_temporal_index("id", "at")
    index.update()
    keys = spark.createDataFrame([(1,)], "id INT")
    assert index.join(keys, "id").collect() == [(1, 5, 2.5)]


def test_bad_joins_are_refused_with_all_that_is_wrong(spark, index, keys):
    index.add_index("id")
    with pytest.raises(AriadneArgumentError, match="none of name has an index"):
        index.join(keys, "name")
    with pytest.raises(ColumnNotFoundError, match=r"index has no column 'k'.*DataFrame has no"):
        index.join(keys, ["k", "at"])
    with pytest.raises(ColumnNotFoundError, match="not among the selected"):
        index.select("name").join(keys, "id")
    with pytest.raises(AriadneArgumentError, match="'sideways' is not one of"):
        index.join(keys, "id", "sideways")
    with pytest.raises(AriadneArgumentError, match="no column to join on"):
        index.join(keys, [])
    for using in ({"id": "other"}, None, keys.id == 1):
        with pytest.raises(AriadneArgumentError, match="not a list of columns"):
            index.join(keys, using)
    with pytest.raises(AriadneArgumentError, match="None is not one of"):
        index.join(keys, "id", None)
    with pytest.raises(AriadneArgumentError, match="str is not a Spark DataFrame"):
        index.join("keys", "id")


def test_a_file_that_is_gone_is_an_error(index, keys, tmp_path):
    index.add_index("id")
    index.add_file(str(tmp_path / "gone.parquet"))
    index.update()
    with pytest.raises(SourceFileMissingError, match=r"gone\.parquet"):
        index.join(keys, "id")


def test_files_are_located_for_the_keys_of_a_frame(index, keys):
    index.add_index("id")
    index.update()
    located = index.locate_files_from_dataframe(keys.where("id = 4"), {"id": "id"})
    assert [file.rpartition("/")[2] for file in located] == ["jun %41.parquet"]
    with pytest.raises(ColumnNotFoundError, match="DataFrame has no column 'nope'"):
        index.locate_files_from_dataframe(keys, {"nope": "id"})
    with pytest.raises(AriadneArgumentError, match="the same one"):
        index.locate_files_from_dataframe(keys, {"id": "id", "k": "id"})
    told = str(index.explain({"id": [4]}))
    assert told.splitlines()[0] == "4 files, 0 of them not indexed"
    assert "id IN (1 values) [regular]: 1 of 4" in told
