"""Everything that can be wrong with input, files and disks is a sentence, and nothing is lost."""

from __future__ import annotations

import subprocess
import sys
import warnings
from pathlib import Path

import full_disk
import pyarrow as pa
import pytest

from indextables import Table
from indextables.errors import (
    ConfigError,
    DamagedSplitError,
    IndexTablesError,
    InvalidValueError,
    LiteralError,
    NotATableError,
    ObjectNotFoundError,
    PredicateSyntaxError,
    QueryError,
    QuerySyntaxError,
    SchemaError,
    SplitError,
    StorageError,
    StorageRefusedError,
    TableExistsError,
    UnknownColumnError,
    UnknownFieldError,
    UnknownKeyError,
    UnsupportedPredicateError,
)
from indextables.jobs import write_splits
from indextables.log.actions import Add, Metadata
from indextables.log.transaction import Operation, Transaction
from indextables.log.transaction_log import TransactionLog
from indextables.schema import to_json
from indextables.storage import open_store

SCHEMA = pa.schema([("id", pa.int64()), ("body", pa.string()), ("day", pa.date32())])
ROWS = pa.table(
    {
        "id": [1, 2, 3],
        "body": ["red fox", "lazy dog", None],
        "day": pa.array([0, 1, None], pa.date32()),
    },
    SCHEMA,
)
CACHE = "spark.indextables.cache.disk.path"


@pytest.fixture
def table(tmp_path, config):
    made = Table.create(tmp_path / "table", SCHEMA, config=config)
    made.append(ROWS)
    return made


# --- arguments -------------------------------------------------------------------------------

READS = {
    "unknown column": (lambda t: t.scan(columns=["nope"]), UnknownColumnError, "id, body, day"),
    "no columns": (lambda t: t.scan(columns=[]), SchemaError, "at least one"),
    "unknown column in where": (lambda t: t.scan(where="nope = 1"), UnknownColumnError, "nope"),
    "no SQL": (lambda t: t.scan(where="id = "), PredicateSyntaxError, "id = "),
    "two types": (lambda t: t.scan(where="id = day"), UnsupportedPredicateError, "BIGINT -> DATE"),
    "wrong literal": (lambda t: t.scan(where="day = 'x'"), LiteralError, "day"),
    "unknown field": (lambda t: t.search("nope:fox"), UnknownFieldError, "id, body, day"),
    "unknown fields": (lambda t: t.search("fox", fields=["nope"]), UnknownColumnError, "nope"),
    "no fields": (lambda t: t.search("fox", fields=[]), SchemaError, "fields is empty"),
    "wrong snippet": (lambda t: t.search("fox", snippets=["nope"]), UnknownColumnError, "nope"),
    "snippet of numbers": (lambda t: t.search("fox", snippets=["id"]), QueryError, "shows text"),
    "wrong output": (lambda t: t.search("fox", columns=["nope"]), UnknownColumnError, "nope"),
    "negative limit": (lambda t: t.scan(limit=-1), ConfigError, "-1"),
    "negative top": (lambda t: t.search("fox", limit=-1), ConfigError, "-1"),
    "limit of explain": (lambda t: t.explain(limit=-1), ConfigError, "-1"),
    "a limit that is not a number": (lambda t: t.scan(limit="5"), ConfigError, "'5'"),
    "a text for columns": (lambda t: t.scan(columns="id"), SchemaError, r"columns=\['id'\]"),
    "a text for fields": (lambda t: t.search("fox", fields="body"), SchemaError, "fields="),
    "a text for snippets": (lambda t: t.search("fox", snippets="body"), SchemaError, "snippets="),
    "half a character": (lambda t: t.search("fox \ud83d"), QuerySyntaxError, "UTF-8"),
    "half a text": (lambda t: t.scan(where="body = '\ud83d'"), PredicateSyntaxError, "UTF-8"),
    "bytes as a limit": (lambda t: t.search("fox", limit=b"5"), ConfigError, "b'5'"),
    "a number as columns": (lambda t: t.scan(columns=5), SchemaError, "list of names"),
    "a list as a column": (lambda t: t.search("fox", columns=[["id"]]), SchemaError, "of names"),
    "nothing as a field": (lambda t: t.search("fox", fields=[None]), SchemaError, "list of names"),
    "bytes as fields": (lambda t: t.search("fox", fields=b"x"), SchemaError, "list of names"),
    "a number as snippets": (lambda t: t.search("fox", snippets=5), SchemaError, "list of names"),
    "a number as a query": (lambda t: t.facets(5, by=["id"]), ConfigError, "query is a text"),
    "a list as a query": (
        lambda t: t.histogram(["fox"], column="id", interval=1), ConfigError, "query is a text"
    ),
    "nothing to explain": (lambda t: t.explain_score(None, "id = 1"), ConfigError, "is a text"),
    "a number as an analyzer": (lambda t: t.analyze(5, "fox"), ConfigError, "column is a text"),
    "a list as a histogram": (
        lambda t: t.histogram(column=["id"], interval=1), ConfigError, "column is a text"
    ),
    "a number in a facet": (lambda t: t.facets(by=[[5]]), ConfigError, "A facet is"),
    "half a property": (
        lambda t: t.set_properties({"owner": "\ud83d"}),
        ConfigError,
        "'owner' has half",
    ),
    "bytes as a facet": (lambda t: t.facets(by=[b"id"]), ConfigError, "b'id'"),
    "no condition to delete by": (lambda t: t.delete(where=None), ConfigError, "where='true'"),
    "no partitions to drop": (lambda t: t.drop_partitions(where=None), ConfigError, "where='true'"),
    "nothing to update": (lambda t: t.update({}), ConfigError, "empty"),
    "a value to update": (lambda t: t.update({"id": 5}), ConfigError, "'n': '5'"),
    "no version": (lambda t: t.snapshot(version="1"), ConfigError, "'1'"),
    "no datetime": (lambda t: t.snapshot(timestamp=1.5), ConfigError, "1.5"),
    "version and time": (lambda t: t.snapshot(version=1, timestamp=0), ConfigError, "either"),
    "no time": (lambda t: t.snapshot(timestamp="noon"), ConfigError, "noon"),
    "nothing to restore": (lambda t: t.restore(), ConfigError, "version=…"),
    "wrong mode": (lambda t: t.overwrite(ROWS, partitions="x"), ConfigError, "'x'"),
    "both modes": (
        lambda t: t.overwrite(ROWS, where="id = 1", partitions="dynamic"),
        ConfigError,
        "not both",
    ),
    "unknown key": (lambda t: t.append(ROWS, config={"spark.indextables.write.maxSplitSiz": 1}),
        UnknownKeyError, "maxSplitSize"),
    "a number as a zone": (
        lambda t: t.scan(where="day > '2024-01-01 10:00'", timezone=5), QueryError, "time zone"
    ),
    "no zone": (
        lambda t: t.histogram(column="day", interval="1d", timezone=None), QueryError, "time zone"
    ),
    "a snippet of a split": (lambda t: t.search("fox", snippets=["_split"]), QueryError, "hidden"),
    "a number to merge on": (lambda t: t.merge(ROWS, on=5), SchemaError, "on is a list"),
    "nothing to merge on": (lambda t: t.merge(ROWS, on=[None]), SchemaError, "on is a list"),
    "a number to drop": (lambda t: t.drop_columns([1]), SchemaError, "columns is a list"),
    "a number of assignments": (lambda t: t.update(5), ConfigError, "by column, not 5"),
    "a share of a version": (lambda t: t.history(limit=1.5), ConfigError, "1.5"),
    "a share of a group": (lambda t: t.merge_splits(max_groups=1.5), ConfigError, "1.5"),
    "a text of hours": (lambda t: t.purge(older_than_hours="3"), ConfigError, "'3'"),
    "no number of hours": (
        lambda t: t.purge(older_than_hours=float("nan")), ConfigError, "number of hours"
    ),
    "for ever": (
        lambda t: t.purge(older_than_hours=float("inf")), ConfigError, "number of hours"
    ),
    "a number for a table": (lambda _: Table.open(5), StorageError, "No store for '5'"),
    "a text of configuration": (
        lambda t: t.append(ROWS, config="x"), ConfigError, "by key, not str"
    ),
    "wrong value": (lambda t: t.append(ROWS, config={"spark.indextables.write.maxSplitSize": "x"}),
        InvalidValueError, "maxSplitSize"),
}  # fmt: skip


@pytest.mark.parametrize("case", READS)
def test_wrong_arguments(case, table):
    act, error, said = READS[case]
    with pytest.raises(error, match=said.replace("(", r"\(")):
        act(table)
    assert table.version == 1


@pytest.mark.parametrize(
    ("query", "position"), [("fox AND", 7), ("(fox", 4), ('"fox', 4), ("body:[a TO", 10)]
)
@pytest.mark.parametrize("way", ["search", "scan", "count", "explain", "delete"])
def test_a_query_is_checked_before_any_split_is_opened(way, query, position, table, monkeypatch):
    def refuse(*_args, **_kwargs):
        raise AssertionError("a split was opened")

    monkeypatch.setattr("indextables.split.open_split.read_footer", refuse)
    with pytest.raises(QuerySyntaxError) as caught:
        if way == "search":
            table.search(query)
        else:
            getattr(table, way)(where=f"body indexquery '{query}'")
    assert caught.value.query == query
    assert abs(caught.value.position - position) <= 4
    assert query in str(caught.value) and "position" in str(caught.value)
    if way != "search":
        assert caught.value.field == "body" and "body" in str(caught.value)


def test_a_stored_only_field_is_named_before_any_split_is_opened(tmp_path, config):
    options = config | {"spark.indextables.indexing.storeonlyfields": "body"}
    table = Table.create(tmp_path / "t", SCHEMA, config=options)
    for read in (table.scan, table.count, table.explain):
        with pytest.raises(QueryError, match="'body' is stored only"):
            read(where="body indexquery 'fox'")
    with pytest.raises(QueryError, match="'body' is stored only"):
        table.search("body:fox")


# --- rows that do not fit --------------------------------------------------------------------


def numbers(**columns):
    return pa.table({"id": [1], "body": ["x"], "day": pa.array([0], pa.date32())} | columns)


WRITES = {
    "an unknown column": (numbers(x=[1]), "'x' .* is not in the table"),
    "a text for a number": (numbers(id=["x"]), "'id' cannot become long"),
    "a fraction for a number": (numbers(id=[1.5]), "'id' cannot become long"),
    "a number for a text": (numbers(body=[1]), "'body' cannot become string"),
    "a naive time": (numbers(day=pa.array([1], pa.timestamp("us"))), "day"),
    "a list": ([1, 2], "Cannot take rows from int"),
    "a text": ("rows", "Cannot take rows from str"),
    "a number": (5, "Cannot take rows from int"),
    "nothing": (None, "Cannot take rows from NoneType"),
    "a dictionary": ({"id": [1]}, r"Cannot take rows from dict.* pyarrow.table\(…\)"),
    "a list of dictionaries": ([{"id": 1}], r"Cannot take rows from dict.*from_pylist\(…\)"),
    "no batches": ([], "has no schema"),
    "an unsupported type": (numbers(id=pa.array([1], pa.duration("s"))), "id"),
    "duplicate columns": (pa.table([[1], [2]], names=["id", "id"]), "Duplicate column names: 'id'"),
}


@pytest.mark.parametrize("verb", ["append", "overwrite", "replace", "dynamic", "merge_schema"])
@pytest.mark.parametrize("case", WRITES)
def test_rows_that_do_not_fit(case, verb, table):
    data, said = WRITES[case]
    if verb == "merge_schema":
        if case == "an unknown column":
            return
        said = "|".join((said, "The rows do not fit the table's schema"))
    with pytest.raises(SchemaError, match=said):
        write(table, verb, data)
    assert table.version == 1 and table.scan().equals(ROWS)
    assert len(files_of(table)) == 1, "a split was left behind"


def write(table, verb, data):
    match verb:
        case "append" | "overwrite":
            return getattr(table, verb)(data)
        case "replace":
            return table.overwrite(data, where="id >= 0")
        case "dynamic":
            return table.overwrite(data, partitions="dynamic")
        case _:
            return table.append(data, merge_schema=True)


def files_of(table):
    return sorted(Path(table.uri.removeprefix("file://")).rglob("*.split"))


@pytest.mark.parametrize("verb", ["append", "overwrite", "replace", "dynamic"])
def test_rows_that_end_in_an_error(verb, table, config):
    def batches():
        yield ROWS.to_batches()[0]
        raise ZeroDivisionError("the source broke")

    with pytest.raises(ZeroDivisionError, match="the source broke"):
        write(table, verb, batches())
    assert table.version == 1 and len(files_of(table)) == 1
    temporary = Path(str(config["spark.indextables.indexWriter.tempDirectoryPath"]))
    assert not list(temporary.iterdir())


@pytest.mark.parametrize("verb", ["append", "overwrite", "replace", "dynamic"])
def test_splits_stored_before_an_error_are_deleted(verb, tmp_path, config, monkeypatch):
    monkeypatch.setattr(write_splits, "_WAITING_BYTES", 1)
    options = config | {"spark.indextables.write.maxOpenSplits": 1}
    table = Table.create(tmp_path / "t", SCHEMA, partition_by=["day"], config=options)
    seen = []

    def batches():
        for n in range(3):
            yield ROWS.slice(n, 1).combine_chunks().to_batches()[0]
            seen.append(len(files_of(table)))
        raise ZeroDivisionError("the source broke")

    with pytest.raises(ZeroDivisionError, match="the source broke"):
        write(table, verb, batches())
    assert max(seen) > 0, "nothing was stored early"
    assert files_of(table) == [] and table.version == 0


def test_batches_of_different_schemas(table):
    batches = [ROWS.to_batches()[0], pa.record_batch({"other": [1]})]
    with pytest.raises(SchemaError):
        table.append(batches)
    with pytest.raises(SchemaError, match="Cannot take rows from int"):
        table.append([ROWS.to_batches()[0], 5])
    assert table.version == 1 and len(files_of(table)) == 1


def test_new_rows_must_meet_the_condition(table):
    fresh = pa.table({"id": [1, 9], "body": ["a", None], "day": pa.nulls(2, pa.date32())}, SCHEMA)
    with pytest.raises(SchemaError, match="1 of the new rows do not meet the condition id < 5"):
        table.overwrite(fresh, where="id < 5")
    with pytest.raises(SchemaError, match="1 of the new rows"):
        table.overwrite(fresh, where="body = 'a'")  # null is not true
    with pytest.raises(SchemaError, match="2 of the new rows"):
        table.overwrite(fresh, where="body indexquery 'fox'")
    assert table.scan().equals(ROWS) and len(files_of(table)) == 1


def test_a_column_that_must_not_be_null(tmp_path, config):
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False), ("body", pa.string())])
    table = Table.create(tmp_path / "t", schema, config=config)
    with pytest.raises(SchemaError, match="'id' has 1 nulls"):
        table.append(pa.table({"id": [1, None], "body": ["a", "b"]}))
    for merge in (False, True):
        with pytest.raises(SchemaError, match=r"'id'.* is missing"):
            table.append(pa.table({"body": ["a"]}), merge_schema=merge)
    assert table.append(pa.table({"id": [1]})).rows == 1
    assert table.scan().to_pylist() == [{"id": 1, "body": None}]


# --- little or nothing -----------------------------------------------------------------------


@pytest.mark.parametrize("partition_by", [(), ("day",)])
def test_an_empty_table(partition_by, tmp_path, config):
    table = Table.create(tmp_path / "t", SCHEMA, partition_by=partition_by, config=config)

    def check():
        assert table.scan().equals(SCHEMA.empty_table())
        assert table.scan(where="id = 1 AND body indexquery 'fox'").num_rows == 0
        assert table.scan(columns=["day"], limit=5).schema.names == ["day"]
        for limit in (None, 0, 10):
            found = table.search("fox", limit=limit, snippets=["body"])
            assert found.schema.names == ["id", "body", "day", "_score", "_snippet_body"]
            assert found.num_rows == 0
        assert table.count() == table.count(where="id > 0") == 0
        assert "0 splits" in table.explain(where="id = 1")
        assert table.delete(where="id = 1").files_removed == 0
        assert list(table.scan_batches()) == []

    check()
    assert table.append(SCHEMA.empty_table()).rows == 0
    assert table.append(pa.RecordBatch.from_pylist([], SCHEMA)).files_added == 0
    check()
    table.append(ROWS)
    assert table.delete(where="true").rows == 0
    check()
    assert table.overwrite(SCHEMA.empty_table()).files_added == 0
    check()


def test_an_empty_overwrite_empties(table):
    assert table.overwrite(SCHEMA.empty_table()).files_removed == 1
    assert table.count() == 0


def test_columns_of_nulls(tmp_path, config):
    table = Table.create(tmp_path / "t", SCHEMA, config=config)
    for rows in (
        pa.table({name: pa.nulls(2, SCHEMA.field(name).type) for name in SCHEMA.names}),
        pa.table({"id": pa.nulls(2), "body": pa.nulls(2), "day": pa.nulls(2)}),
        pa.table({"id": [None, None]}),
    ):
        table.append(rows)
    assert table.count(where="body IS NULL") == 6
    assert table.count(where="body = 'x' OR id > 0 OR body indexquery 'x'") == 0
    assert table.count(where="NOT (body indexquery 'x')") == 6
    assert table.search("x").num_rows == 0
    with pytest.raises(SchemaError, match="has no type"):
        table.append(pa.table({"new": pa.nulls(1)}), merge_schema=True)


def test_a_limit_larger_than_any_table_is_none(table):
    assert table.scan(limit=10**30).num_rows == table.search("*", limit=10**30).num_rows == 3


def test_creating_and_opening(tmp_path, table, config):
    with pytest.raises(TableExistsError):
        Table.create(tmp_path / "table", SCHEMA)
    with pytest.raises(NotATableError, match="nothing"):
        Table.open(tmp_path / "nothing")
    assert not Table.exists(tmp_path / "nothing") and Table.exists(tmp_path / "table")
    cases = {
        "Duplicate column names": {"schema": pa.schema([("a", pa.int8()), ("a", pa.int8())])},
        "not found in schema": {"schema": SCHEMA, "partition_by": ["nope"]},
        "must not be a partition": {"schema": SCHEMA, "partition_by": SCHEMA.names},
        "there is no field 'nope'": {"schema": SCHEMA, "mapping": {"nope": "text"}},
        "'id' is i64, not text": {"schema": SCHEMA, "mapping": {"id": "text"}},
        "there is no type 'fuzzy'": {"schema": SCHEMA, "mapping": {"body": "fuzzy"}},
        "not a Spark schema": {"schema": "[]"},
        "A field is": {"schema": '{"type":"struct","fields":[{"name":"a"}]}'},
        "1 and 38": {"schema": '{"type":"struct","fields":[{"name":"a","type":"decimal(50)"}]}'},
        "not list": {"schema": [("a", pa.int8())]},
        "first rows as data": {},
    }
    for said, arguments in cases.items():
        with pytest.raises(SchemaError, match=said):
            Table.create(tmp_path / "new", **arguments, config=config)
    assert not (tmp_path / "new").exists()


# --- files that are gone or damaged ----------------------------------------------------------


def many(tmp_path, config, rows=300):
    table = Table.create(tmp_path / "many", SCHEMA, config=config)
    ids = list(range(rows))
    body = [f"word{i % 7} number{i}" for i in ids]
    table.append(
        pa.table({"id": ids, "body": body, "day": pa.array(ids, pa.int32()).cast(pa.date32())})
    )
    return table


QUESTIONS = {
    "scan": lambda t: t.scan(),
    "column": lambda t: t.scan(columns=["day"]),
    "sql": lambda t: t.scan(where="id > 290 AND body <> 'x'"),
    "equality": lambda t: t.scan(where="body = 'word0 number0'"),
    "words": lambda t: t.scan(columns=["id"], where="body indexquery 'word3 AND NOT number10'"),
    "count": lambda t: pa.table({"n": [t.count(where="body indexquery 'word4'")]}),
    "pattern": lambda t: pa.table({"n": [t.count(where="body indexquery 'number2*'")]}),
    "ranking": lambda t: t.search("word1 number8", limit=5),
}


def test_a_split_that_is_gone(tmp_path, config):
    table = many(tmp_path, config)
    (split,) = files_of(table)
    split.unlink()
    fresh = Table.open(table.uri, config=config)
    assert fresh.count() == 300, "the log knows"
    for name, ask in QUESTIONS.items():
        with pytest.raises(ObjectNotFoundError, match=r"split-.*\.split"):
            ask(fresh)
            pytest.fail(name)


@pytest.mark.parametrize("part", range(4))
def test_a_damaged_split_gives_the_right_rows_or_its_name(part, tmp_path, config):
    table = many(tmp_path, config)
    expected = {name: ask(table) for name, ask in QUESTIONS.items()}
    (split,) = files_of(table)
    healthy = split.read_bytes()
    refused = answered = 0
    places = range(0, len(healthy), max(1, len(healthy) // 100))
    for number, place in enumerate(places):
        if number % 4 != part:
            continue
        damaged = bytearray(healthy)
        damaged[place] ^= 0x5A
        split.write_bytes(damaged)
        fresh = Table.open(table.uri, config={CACHE: str(tmp_path / f"cache{number}")})
        for name, ask in QUESTIONS.items():
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                try:
                    assert ask(fresh).equals(expected[name]), f"wrong rows for {name} at {place}"
                    answered += 1
                except DamagedSplitError as error:
                    assert split.name in str(error)
                    refused += 1
    assert refused and answered


def test_a_truncated_or_foreign_file(tmp_path, config):
    table = many(tmp_path, config)
    (split,) = files_of(table)
    healthy = split.read_bytes()
    for number, content in enumerate((b"", b"PAR1", healthy[:-1], healthy[:1000], b"x" * 5000)):
        split.write_bytes(content)
        fresh = Table.open(table.uri, config={CACHE: str(tmp_path / f"cache{number}")})
        for name, ask in QUESTIONS.items():
            with pytest.raises((SplitError, StorageError), match=split.name):
                ask(fresh)
                pytest.fail(name)


@pytest.mark.parametrize("blocked", ["file", "device"])
def test_a_cache_folder_that_cannot_be_written(blocked, tmp_path, config):
    table = many(tmp_path, config, rows=50)
    expected = {name: ask(table) for name, ask in QUESTIONS.items()}
    (tmp_path / "in the way").touch()
    place = tmp_path / "in the way" / "cache" if blocked == "file" else Path("/dev/null/cache")
    fresh = Table.open(table.uri, config={CACHE: str(place)})
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        for name, ask in QUESTIONS.items():
            assert ask(fresh).equals(expected[name])
    assert any("cache.disk.path" in str(w.message) for w in said)


# --- disks -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("verb", "limit"), [("append", 50_000), ("append", 150_000), ("overwrite", 150_000)]
)
def test_a_disk_that_fills_up(verb, limit, tmp_path, config):
    schema = full_disk.batches(0).schema
    uri, temporary = tmp_path / "table", tmp_path / "temporary"
    temporary.mkdir()
    table = Table.create(uri, schema, partition_by=["day"], config=config)
    table.append(pa.table({"id": [1], "day": [0], "body": ["kept"]}))
    command = [sys.executable, "-W", "error", full_disk.__file__, str(uri), str(temporary)]
    done = subprocess.run(
        [*command, str(limit), verb], capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 0, done.stderr
    assert "Error" in done.stdout, "nothing was refused"
    assert table.version == 1 and table.scan()["body"].to_pylist() == ["kept"]
    assert not list(temporary.iterdir()), "temporary files are left"
    assert len(files_of(table)) == 1, "a split that no version names is left"
    leftovers = [
        p.name for p in uri.rglob("*") if p.is_file() and p.suffix not in (".split", ".json")
    ]
    assert not leftovers


# --- tables of others ------------------------------------------------------------------------


def test_a_table_of_the_scala_product(tmp_path, config):
    metadata = Metadata(id="m", schema_string=to_json(SCHEMA), partition_columns=())
    store = open_store(tmp_path / "foreign")
    log = TransactionLog.create(store, metadata)
    mapping = '[{"name":"body","type":"text","fast":false,"stored":true,"tokenizer":"default"}]'
    added = Add(
        path="splits/part-1.split", partition_values={}, size=10, modification_time=1,
        data_change=True, num_records=7, min_values={"id": "1"}, max_values={"id": "9"},
        doc_mapping_json=mapping,
    )  # fmt: skip
    store.put_if_absent("splits/part-1.split", b"not Parquet")
    log.commit(Transaction(operation=Operation.APPEND, actions=[added]))
    table = Table.open(tmp_path / "foreign", config=config)
    assert table.schema.equals(SCHEMA)
    assert table.count() == 7 and table.count(where="id > 100") == 0
    assert table.snapshot().files["path"].to_pylist() == ["splits/part-1.split"]
    assert table.history()["operation"].to_pylist() == ["APPEND", "CREATE TABLE"]
    for act in (
        table.scan,
        lambda: table.scan(where="body = 'x'"),
        lambda: table.count(where="body = 'x'"),
        lambda: table.search("fox"),
        lambda: table.append(ROWS),
        lambda: table.delete(where="id = 1"),
    ):
        with pytest.raises(IndexTablesError, match="was not written by this product"):
            act()
    assert table.version == 1


def test_a_table_where_a_file_is_is_refused_at_once(tmp_path):
    place = tmp_path / "notes.txt"
    place.write_text("mine")
    with pytest.raises(StorageRefusedError, match=r"notes.txt' is a file, not a folder\. Choose"):
        Table.create(place, SCHEMA)
    assert place.read_text() == "mine"


def test_a_path_without_a_table_says_what_is_there(tmp_path):
    place = tmp_path / "notes.txt"
    place.write_text("mine")
    with pytest.raises(NotATableError, match=r"is a file, and a table is a folder.*write_table"):
        Table.open(place)
    with pytest.raises(NotATableError, match="there is no such folder"):
        Table.open(tmp_path / "nothing")
    with pytest.raises(NotATableError, match="it has no _transaction_log"):
        Table.open(tmp_path)


@pytest.mark.parametrize("argument", ["mapping", "properties"])
def test_options_of_a_new_table_are_mappings(argument, tmp_path):
    with pytest.raises(ConfigError, match=rf"{argument} .* not \['id'\]"):
        Table.create(tmp_path / "t", SCHEMA, **{argument: ["id"]})
    assert not (tmp_path / "t").exists()
