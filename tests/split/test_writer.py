"""Writing splits: every type comes back, in every reader, in bounded memory; failures clean up."""

from __future__ import annotations

import datetime as dt
import gc
import json
import subprocess
import sys
import textwrap
from decimal import Decimal

import duckdb
import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from conftest import configuration, query
from hypothesis import given
from hypothesis import strategies as st

from indextables.config import Config
from indextables.errors import SchemaError, SplitError, SplitWriteError
from indextables.split.mapping_options import build_mapping
from indextables.split.write import writer as writer_module
from indextables.split.write.writer import (
    SplitWriter,
    StatisticsCollector,
    truncate_high,
    truncate_low,
)

TYPES = pa.table(
    {
        "byte": pa.array([1, None, -128], pa.int8()),
        "short": pa.array([1, None, 2**15 - 1], pa.int16()),
        "int": pa.array([1, None, -(2**31)], pa.int32()),
        "long": pa.array([1, None, 2**63 - 1], pa.int64()),
        "float": pa.array([1.5, None, float("nan")], pa.float32()),
        "double": pa.array([1e300, None, float("-inf")], pa.float64()),
        "small": pa.array([Decimal("1.25"), None, Decimal("-9.99")], pa.decimal128(9, 2)),
        "big": pa.array([Decimal(10**37), None, Decimal(-1)], pa.decimal128(38, 0)),
        "text": ["héllo 😀", None, ""],
        "blob": pa.array([b"\x00\xff", None, b""], pa.binary()),
        "bool": [True, None, False],
        "day": pa.array([dt.date(1, 1, 1), None, dt.date(9999, 12, 31)], pa.date32()),
        "ts": pa.array([dt.datetime(1900, 1, 1), None, dt.datetime(2100, 1, 1, 1, 2, 3, 4)],
                       pa.timestamp("us", tz="UTC")),
        "ntz": pa.array([dt.datetime(1900, 1, 1), None, dt.datetime(2100, 1, 1)],
                        pa.timestamp("us")),
        "struct": pa.array([{"a": 1, "b": {"c": "x"}}, None, {"a": None, "b": None}]),
        "list": pa.array([["a", None], None, []]),
        "structs": pa.array([[{"x": 1}, None], None, []]),
        "map": pa.array([[("k", 1), ("l", None)], None, []], pa.map_(pa.string(), pa.int64())),
        "int map": pa.array([[(1, "a")], None, []], pa.map_(pa.int32(), pa.string())),
        "a.b c`": ["x", None, "y"],
    }
)  # fmt: skip


def write(table: pa.Table, options: dict[str, object] | None = None, **arguments):
    config = configuration(**(options or {}))
    mapping = build_mapping(table.schema, config)
    with SplitWriter(table.schema, mapping, config, **arguments) as writer:
        for batch in table.to_batches():
            writer.write(batch)
        return writer.close()


def same(left: pa.Table, right: pa.Table) -> bool:
    """Equal, NaN included."""
    return left.schema.equals(right.schema) and repr(left.to_pylist()) == repr(right.to_pylist())


def test_every_type_comes_back_identical_in_every_reader(tmp_path):
    written = write(TYPES)
    path = str(written.path)
    assert same(pq.read_table(path), TYPES)
    assert pl.read_parquet(path).equals(pl.from_arrow(TYPES))
    back = duckdb.sql(f"SELECT * FROM read_parquet('{path}')")
    original = TYPES  # found by DuckDB by its name
    assert repr(back.fetchall()) == repr(duckdb.sql("SELECT * FROM original").fetchall())
    assert original.num_rows == written.num_records
    written.delete()
    assert not written.path.parent.exists()


@pytest.mark.parametrize(
    ("digits", "stored"), [(9, "INT32"), (18, "INT64"), (19, "FIXED_LEN_BYTE_ARRAY")]
)
def test_decimals_are_stored_as_the_numbers_that_spark_stores(make, digits, stored):
    values = [Decimal("1.25"), None, Decimal("-9.99")]
    table = pa.table({"d": pa.array(values, pa.decimal128(digits, 2))})
    searcher = make(table)
    parquet = searcher.split.footer.parquet
    chunk = parquet.row_group(0).column(0)
    assert chunk.physical_type == stored
    assert (chunk.statistics.min, chunk.statistics.max) == (values[2], values[0])
    assert searcher.read_rows(np.array([2, 1, 0]), ["d"])["d"].to_pylist() == values[::-1]


def test_rows_come_back_through_the_reader_and_are_searchable(make):
    searcher = make(TYPES)
    names = TYPES.schema.names
    assert same(searcher.read_rows(np.array([2, 0]), names), TYPES.take([2, 0]))
    assert searcher.read_rows(np.array([], dtype=np.int64), names).num_rows == 0
    assert searcher.read_rows(np.array([1]), []).num_rows == 1
    assert searcher.search(query("text:* AND NOT bool:true")).tolist() == [2]


@pytest.mark.parametrize("batch", [1, 700, 50_000])
def test_row_groups_do_not_depend_on_batches(make, batch):
    rows = 20_000
    table = pa.table({"id": range(rows), "body": [f"w{i % 100} x" for i in range(rows)]})
    searcher = make(table.slice(0, 300) if batch == 1 else table, batch=batch)
    parquet = searcher.split.footer.parquet
    sizes = [parquet.row_group(i).num_rows for i in range(parquet.num_row_groups)]
    assert sizes == ([300] if batch == 1 else [20_000])
    scattered = np.array([17, 299, 3]) if batch == 1 else np.array([19_999, 0, 8_192, 8_191, 8_192])
    assert searcher.read_rows(scattered, ["id"])["id"].to_pylist() == scattered.tolist()


@pytest.mark.parametrize("batch", [1_000, 50_000])
@pytest.mark.parametrize(
    ("columns", "sizes"),
    [
        ({"body": "x" * 59}, [16_384, 16_384, 7_232]),  # half a megabyte and its offsets
        ({"body": "x" * 61}, [8_192] * 4 + [7_232]),
        ({f"n{i}": i for i in range(4)}, [32_768, 7_232]),
        ({f"n{i}": i for i in range(33)}, [16_384, 16_384, 7_232]),  # 4 MB together
    ],
)
def test_groups_of_small_columns_have_more_rows(make, columns, sizes, batch):
    rows = 40_000
    table = pa.table({name: pa.repeat(value, rows) for name, value in columns.items()})
    parquet = make(table, batch=batch).split.footer.parquet
    assert [parquet.row_group(i).num_rows for i in range(parquet.num_row_groups)] == sizes


def test_huge_rows_make_smaller_row_groups(make, monkeypatch):
    monkeypatch.setattr(writer_module, "ROW_GROUP_BYTES", 10_000)
    table = pa.table({"body": ["x" * 3_000 for _ in range(20)]})
    searcher = make(table)
    assert searcher.split.footer.parquet.num_row_groups >= 4
    assert searcher.split.rows.read_column("body").to_pylist() == table["body"].to_pylist()
    footer = searcher.split.footer
    assert footer.end - footer.start < 10_000, "long texts do not belong into the footer"


def test_dictionaries_are_kept_for_what_repeats(make):
    table = pa.table(
        {
            "unique": [f"value {i}" for i in range(500)],
            "level": ["INFO", "WARN"] * 250,
            "tags": [["a", "b"]] * 500,
            "user": [{"name": "x", "ids": [1, 2]}] * 500,
            "map": pa.array([[("k", "v")]] * 500, pa.map_(pa.string(), pa.string())),
        }
    )
    group = make(table).split.footer.parquet.row_group(0)
    chunks = [group.column(i) for i in range(group.num_columns)]
    plain = {c.path_in_schema for c in chunks if not c.has_dictionary_page}
    assert plain == {"unique"}


def test_numbers_that_rise_are_kept_as_differences(make):
    count = 5_000
    table = pa.table(
        {
            "id": range(count),
            "day": pa.array(range(count), pa.date32()),
            "status": [200, 404] * (count // 2),
            "price": [i / 7 for i in range(count)],
            "a.b": range(count),
            "a": [{"b": f"text {i}"} for i in range(count)],
        }
    )
    searcher = make(table)
    group = searcher.split.footer.parquet.row_group(0)
    chunks = [group.column(i) for i in range(group.num_columns)]
    differences = {c.path_in_schema for c in chunks if "DELTA_BINARY_PACKED" in c.encodings}
    assert differences == {"id", "day"}
    assert chunks[0].total_compressed_size < count / 10
    assert searcher.split.rows.read_groups([0], table.schema.names).equals(table)


def test_statistics_are_typed_and_counted():
    written = write(TYPES)
    low, high = written.statistics.min_values, written.statistics.max_values
    assert (low["long"], high["long"]) == ("1", str(2**63 - 1))
    assert (low["float"], high["float"]) == ("1.5", "1.5")
    assert (low["double"], high["double"]) == ("-inf", "1e+300")
    assert (low["small"], high["small"]) == ("-9.99", "1.25")
    assert high["big"] == "1" + "0" * 37
    assert (low["bool"], high["bool"]) == ("false", "true")
    assert (low["day"], high["day"]) == ("0001-01-01", "9999-12-31")
    assert low["ts"] == str(-2_208_988_800 * 10**6)
    stats = json.loads(written.stats_json)
    assert stats["numRecords"] == 3
    assert stats["nullCount"]["text"] == 1
    assert stats["nanCount"] == {"float": 1}
    assert not {"struct", "list", "map", "blob"} & (low.keys() | stats["nullCount"].keys())
    written.delete()


def test_a_date_that_python_does_not_have_is_no_bound():
    schema = pa.schema([("d", pa.date32())])
    for days, low, high in (
        ([3_000_000, 0], {"d": "1970-01-01"}, {}),
        ([-800_000, 0], {}, {"d": "1970-01-01"}),
    ):
        collector = StatisticsCollector(schema, Config())
        for day in days:  # a bound that is no date must not be forgotten by later batches
            values = pa.array([day], pa.int32()).cast(pa.date32())
            collector.add(pa.record_batch([values], schema=schema))
        found = collector.finish()
        assert (found.min_values, found.max_values) == (low, high)


def test_statistics_of_a_column_of_nulls_have_no_bounds():
    written = write(pa.table({"a": pa.nulls(2, pa.string()), "b": [float("nan")] * 2}))
    assert written.statistics.min_values == written.statistics.max_values == {}
    assert written.statistics.null_counts == {"a": 2, "b": 0}
    assert written.statistics.nan_counts == {"b": 2}
    written.delete()


LONG = pa.table({"a": ["b" * 40, "c" * 40], "b": ["9", "10"], "c": [1, 2]})
STATISTICS_OPTIONS = [
    ({}, {"a": ("b" * 32, "c" * 31 + "d"), "b": ("10", "9"), "c": ("1", "2")}),
    ({"stats.truncation.maxLength": "2"}, {"a": ("bb", "cd"), "b": ("10", "9"), "c": ("1", "2")}),
    ({"stats.truncation.enabled": "false", "dataSkippingNumIndexedCols": 1},
     {"a": ("b" * 40, "c" * 40)}),
    ({"dataSkippingNumIndexedCols": 2}, {"a": ("b" * 32, "c" * 31 + "d"), "b": ("10", "9")}),
    ({"dataSkippingNumIndexedCols": -1, "dataSkippingStatsColumns": "C"}, {"c": ("1", "2")}),
    ({"dataSkippingNumIndexedCols": 0}, {}),
]  # fmt: skip


@pytest.mark.parametrize(("options", "expected"), STATISTICS_OPTIONS)
def test_options_of_statistics(options, expected):
    written = write(LONG, options)
    found = {
        name: (low, written.statistics.max_values[name])
        for name, low in written.statistics.min_values.items()
    }
    assert found == expected
    written.delete()


def test_statistics_of_an_unknown_column_are_refused():
    with pytest.raises(SchemaError, match="there is no field ghost"):
        write(LONG, {"dataSkippingStatsColumns": "ghost,a"})


@given(st.text(), st.integers(1, 5))
def test_a_truncated_text_still_bounds_the_whole(text, longest):
    low, high = truncate_low(text, longest), truncate_high(text, longest)
    assert low.encode() <= text.encode("utf-8", "surrogatepass")
    assert len(low) <= longest
    if high is not None:
        assert high.encode("utf-8", "surrogatepass") >= text.encode("utf-8", "surrogatepass")
        assert len(high) <= longest


def test_a_maximum_that_cannot_be_raised_is_dropped():
    assert truncate_high("\U0010ffff" * 4, 3) is None
    assert truncate_high("a\U0010ffffx", 2) == "b"
    assert truncate_high("\ud7ffxx", 1) == "\ue000"


def test_partition_columns_are_not_stored():
    table = pa.table({"body": ["a"], "year": [2024]})
    written = write(table, partition_values={"year": "2024"})
    assert pq.read_schema(written.path).names == ["body"]
    assert written.partition_values == {"year": "2024"}
    written.delete()
    with pytest.raises(SplitError, match="not a partition column"):
        write(table, partition_values={"year": "2024", "body": "a"})


def test_wrong_rows_are_refused_and_leave_nothing(tmp_path):
    config = configuration(**{"indexWriter.tempDirectoryPath": str(tmp_path)})
    schema = pa.schema([("a", pa.int32())])
    with (
        pytest.raises(SchemaError, match="'b' is not a column"),
        SplitWriter(schema, build_mapping(schema, config), config) as writer,
    ):
        writer.write(pa.record_batch({"a": pa.array([1], pa.int32()), "b": [1]}))
    assert not list(tmp_path.iterdir())


def test_values_of_rows_are_not_visited_by_the_collector():
    documents = [f'{{"a": ["x{i}", {{"b": {i}}}], "c": [[{i}]]}}' for i in range(8_192)]
    table = pa.table({"doc": documents})
    runs: list[str] = []

    def note(phase: str, _: object) -> None:
        runs.append(phase)

    gc.callbacks.append(note)
    try:
        write(table, {"indexing.typemap.doc": "json"}).delete()
    finally:
        gc.callbacks.remove(note)
    assert gc.isenabled()
    assert runs.count("start") < 20  # 40,000 lists and dictionaries would be a run for each 700


@pytest.mark.parametrize("enabled", [True, False])
def test_the_collector_is_as_before_when_a_write_fails(monkeypatch, enabled):
    def fail(*_: object) -> None:
        assert not gc.isenabled()
        raise OSError("no")

    monkeypatch.setattr(writer_module.Indexer, "add", fail)
    try:
        gc.enable() if enabled else gc.disable()
        with pytest.raises(SplitWriteError, match="no"):
            write(pa.table({"a": ["x"]}))
        assert gc.isenabled() == enabled
    finally:
        gc.enable()


def test_few_rows_get_a_small_heap_and_one_segment(monkeypatch, make):
    heaps: list[int] = []
    real = writer_module.Indexer.__init__

    def noted(self, *arguments, heap_size, **others):
        heaps.append(heap_size)
        real(self, *arguments, heap_size=heap_size, **others)

    monkeypatch.setattr(writer_module.Indexer, "__init__", noted)
    few = pa.table({"body": [f"a{i} b{i} c{i} d{i}" for i in range(8_000)]})
    searcher = make(few)
    assert len(searcher.split.info.segments) == 1
    assert searcher.search(query("body:c77")).tolist() == [77]
    make(pa.table({"body": ["x"] * 33_000}))  # a group is full before the end is known
    make(few.slice(0, 0))
    assert heaps[0] < 20_000_000 and heaps[1] == 100 * 1024 * 1024 and heaps[2] == 15_000_000


def test_a_finished_split_takes_no_more_rows():
    config = Config()
    writer = SplitWriter(TYPES.schema, build_mapping(TYPES.schema, config), config)
    writer.close().delete()
    with pytest.raises(SplitError, match="finished"):
        writer.write(TYPES.to_batches()[0])


def test_a_missing_temporary_directory_is_a_sentence(tmp_path):
    config = configuration(**{"indexWriter.tempDirectoryPath": str(tmp_path / "none")})
    with pytest.raises(SplitWriteError, match="tempDirectoryPath"):
        SplitWriter(TYPES.schema, build_mapping(TYPES.schema, config), config)


PROGRAM = textwrap.dedent(
    """
    import resource, sys
    import pyarrow as pa
    from indextables.config import Config
    from indextables.errors import SplitWriteError
    from indextables.split.mapping_options import build_mapping
    from indextables.split.write.writer import SplitWriter

    def batches(rows):
        for start in range(0, rows, 10_000):
            ids = range(start, start + 10_000)
            yield pa.record_batch(
                {"id": pa.array(ids), "body": [f"w{i % 977} x{i % 31} word{i}" for i in ids]}
            )

    def write(rows, **options):
        config = Config({"spark.indextables." + k: v for k, v in options.items()})
        schema = pa.schema([("id", pa.int64()), ("body", pa.string())])
        with SplitWriter(schema, build_mapping(schema, config), config) as writer:
            for batch in batches(rows):
                writer.write(batch)
            return writer.close()
    """
)


def run(program: str, *arguments: str) -> str:
    result = subprocess.run(
        [sys.executable, "-W", "error", "-c", PROGRAM + textwrap.dedent(program), *arguments],
        capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert result.returncode == 0, result.stderr
    return result.stdout.strip()


@pytest.mark.parametrize("limit", [100_000, 1_000_000, 2_000_000])
def test_a_disk_that_fills_up_leaves_nothing_behind(tmp_path, limit):
    program = """
        import signal
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[2]), int(sys.argv[2])))
        try:
            write(300_000, **{"indexWriter.tempDirectoryPath": sys.argv[1],
                              "indexWriter.heapSize": "15000000"})
        except SplitWriteError as error:
            print("refused:", error)
    """
    out = run(program, str(tmp_path), str(limit))
    assert out.startswith("refused: Cannot write a split under")
    assert not list(tmp_path.iterdir())


def test_an_index_that_cannot_be_written_says_so_while_rows_come(tmp_path):
    program = """
        import signal
        from pathlib import Path
        from indextables.split.write.indexer import Indexer
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
        mapping = build_mapping(pa.schema([("id", pa.int64()), ("body", pa.string())]), Config())
        indexer = Indexer(mapping, Path(sys.argv[1]), heap_size=15_000_000)
        try:
            for batch in batches(2_000_000):
                indexer.add(batch)
        except OSError as error:
            print("refused:", error)
    """
    assert run(program, str(tmp_path)).startswith("refused: Tantivy cannot write the index")


def test_memory_does_not_grow_with_the_rows():
    program = """
        write(int(sys.argv[1]), **{"indexWriter.heapSize": "15000000"}).delete()
        print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
    """
    few, many = (int(run(program, str(rows))) for rows in (100_000, 400_000))
    assert many < 1.5 * few
