"""Properties of a table: those that do not fit its columns are refused when they are set."""

from __future__ import annotations

import itertools
import os

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from indextables import SearchIndex, Table
from indextables.config import Config
from indextables.errors import ConfigError, SchemaError
from indextables.jobs.write_job import plan_definition, write_rows

PREFIX = "spark.indextables."
SCHEMA = pa.schema(
    {"id": pa.string(), "body": pa.string(), "n": pa.int64(), "price": pa.decimal128(38, 2)}
)
ROWS = pa.table(
    {"id": ["a"], "body": ["red foxes"], "n": [1], "price": pa.array([1], pa.decimal128(38, 2))}
)
_numbers = itertools.count()


def create(**arguments) -> Table:
    uri = f"memory://properties-{os.getpid()}-{next(_numbers)}"
    return Table.create(uri, SCHEMA, mapping={"id": "string"}, **arguments)


def keyed(properties):
    return {PREFIX + key: value for key, value in properties.items()}


@pytest.fixture(scope="module")
def table():
    return create(data=ROWS)


UNFIT = [
    ("indexing.typemap.body", "banana"),
    ("indexing.typemap.nope", "string"),
    ("indexing.typemap.n", "ip"),
    ("indexing.typemap.string", "id,nope"),
    ("indexing.typemap.id", "text"),
    ("indexing.tokenizer.body", "shout"),
    ("indexing.tokenizer.id", "english"),
    ("indexing.tokenizer.en_stem", "nope"),
    ("indexing.indexrecordoption.body", "huh"),
    ("indexing.indexrecordoption.nope", "basic"),
    ("indexing.tokenLength.body", "0"),
    ("indexing.tokenLength.n", "legacy"),
    ("indexing.fastfields", "body"),
    ("indexing.fastfields", "n,nope"),
    ("indexing.fastfields", "price"),
    ("indexing.storeonlyfields", "nope"),
    ("text.maxTokenLength", "70000"),
    ("dataSkippingStatsColumns", "n,nope"),
    ("search.fields", "nope"),
    ("search.fields", "body^x"),
    ("search.fields", "body^-1"),
    ("xref.build.bloomFields", "nope"),
    ("xref.build.bloomFields", "body"),
    ("xref.storage.directory", ""),
    ("xref.storage.directory", "../other"),
    ("xref.storage.directory", "_transaction_log"),
]


@pytest.mark.parametrize(("key", "value"), UNFIT)
def test_what_does_not_fit_is_refused_at_once(table, key, value):
    version = table.version
    with pytest.raises(
        (SchemaError, ConfigError), match="properties do not fit|" + key.partition(".")[0]
    ):
        table.set_properties(keyed({key: value}))
    with pytest.raises((SchemaError, ConfigError)):
        create(properties=keyed({key: value}))
    assert table.refresh().version == version


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("indexing.typemap.body", "string"),
        ("indexing.tokenLength.body", "legacy"),
        ("indexing.storeonlyfields", "body"),
    ],
)
def test_a_property_does_not_change_how_a_column_is_searched(table, key, value):
    with pytest.raises(SchemaError, match=r"'body' is text.*decided when it is added"):
        table.set_properties(keyed({key: value}))
    assert create(properties=keyed({key: value})).append(ROWS).rows == 1


def test_what_fits_is_accepted():
    table = create(data=ROWS)
    fitting = {
        "indexing.typemap.id": "string",
        "indexing.typemap.text": "body",
        "indexing.tokenizer.body": "en_stem",
        "indexing.indexrecordoption.body": "freq",
        "indexing.fastfields": "N",
        "dataSkippingStatsColumns": "n, Price",
        "search.fields": "BODY^2, id",
        "xref.build.bloomFields": "ID",
    }
    table.set_properties(keyed(fitting))
    table.append(ROWS)
    assert table.search("fox").num_rows == 2
    assert table.index_crossreferences()
    table.set_properties(dict.fromkeys(table.properties))
    assert table.properties == {} and table.append(ROWS).rows == 1


def test_options_of_a_later_column_come_with_it():
    table = create(data=ROWS)
    option = keyed({"indexing.typemap.tag": "string"})
    adding = Table.open(table.uri, config=option)
    adding.add_columns(pa.schema({"tag": pa.string()}))
    table.refresh().set_properties(option)
    table.append(ROWS.append_column("tag", pa.array(["Red Fox"])))
    assert table.mapping["tag"] == "string"
    assert table.count(where="tag indexquery '\"Red Fox\"'") == 1


def test_a_property_has_one_spelling():
    table = create(properties=keyed({"merge.targetSize": "1G"}))
    table.set_properties({"SPARK.IndexTables.Merge.targetsize": "2G"})
    assert list(table.properties.values()) == ["2G"]
    table.set_properties({"spark.tantivy4spark.merge.targetSize": None})
    assert table.properties == {}


def test_an_analyzer_by_an_old_prefix_and_by_a_list_of_columns():
    table = create(data=ROWS)
    table.set_properties({"spark.tantivy4spark.indexing.tokenizer.body": "en_stem"})
    assert table.analyze("body", "foxes")["word"].to_pylist() == ["fox"]
    table.append(ROWS)
    by_list = create(data=ROWS, properties=keyed({"indexing.tokenizer.en_stem": "body"}))
    by_list.add_columns(pa.schema({"more": pa.string()}))
    by_list.set_properties(keyed({"indexing.tokenizer.en_stem": "more"}))
    for column, word in {"body": "foxes", "more": "fox"}.items():
        assert by_list.analyze(column, "foxes")["word"].to_pylist() == [word]
    by_list.set_properties(keyed({"indexing.tokenizer.en_stem": None}))
    assert by_list.analyze("more", "foxes")["word"].to_pylist() == ["foxes"]
    by_list.append(ROWS)


@pytest.mark.parametrize(
    "key", ["tokenizer.en_stem", "indexrecordoption.freq", "tokenLength.legacy", "typemap.text"]
)
def test_lists_of_columns_follow_renamed_and_dropped_ones(key):
    table = create(data=ROWS, properties=keyed({f"indexing.{key}": "body"}))
    table.rename_column("body", "content")
    assert table.properties == keyed({f"indexing.{key}": "content"})
    renamed = ROWS.rename_columns(["id", "content", "n", "price"])
    assert table.append(renamed).rows == 1
    table.drop_columns(["content"])
    assert table.properties == {}
    assert table.append(renamed.drop_columns(["content"])).rows == 1


def test_lists_of_columns_follow_when_all_columns_are_replaced():
    lists = {
        "dataSkippingStatsColumns": "n,id",
        "search.fields": "body^2,id",
        "xref.build.bloomFields": "n",
        "indexing.defaultStringKind": "string",
    }
    table = create(data=ROWS, properties=keyed(lists))
    new = pa.table({"id": ["Red Fox"], "tag": ["Grey Fox"]})
    config = table.view.settings
    write_rows(table.log, new, settings=config, kind="overwrite", overwrite_schema=True)
    assert table.refresh().properties == keyed(
        {
            "dataSkippingStatsColumns": "id",
            "search.fields": "id",
            "indexing.defaultStringKind": "string",
        }
    )
    table.append(new)
    assert table.mapping == {"id": "string", "tag": "string"}
    assert table.search('"Red Fox"').num_rows == 2


def test_a_table_that_replaces_another_has_its_own_properties():
    table = create(data=ROWS)
    job = plan_definition(
        table.log,
        SCHEMA,
        settings=Config(),
        partition_by=(),
        properties=keyed({"indexing.typemap.body": "string"}),
        name=None,
        description=None,
        constraints=(),
        may_replace=True,
    )
    job.commit(table.log, [])
    table.refresh().append(ROWS)
    assert table.mapping["body"] == "string"


def test_properties_of_a_search_index(tmp_path):
    pq.write_table(ROWS, tmp_path / "a.parquet")

    def over(properties) -> SearchIndex:
        uri = f"memory://properties-{os.getpid()}-{next(_numbers)}"
        return SearchIndex.create(
            uri, source=tmp_path, format="parquet", columns=["body"], properties=keyed(properties)
        )

    assert over({"indexing.tokenizer.body": "english"}).search("fox").num_rows == 1
    for key, value in {
        "indexing.tokenizer.body": "shout",
        "indexing.typemap.nope": "string",
        "search.fields": "n",
        "no.such.key": "1",
    }.items():
        with pytest.raises((SchemaError, ConfigError), match=key.rpartition(".")[0]):
            over({key: value})
