"""What an index is: construction, declarations, files, the catalog."""

from __future__ import annotations

import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from indextables import config as keys
from indextables.ariadne import Index, IndexCatalog
from indextables.ariadne.store import place
from indextables.ariadne.store.place import Context, DeltaPlace, ariadne_config
from indextables.errors import (
    AriadneArgumentError,
    AriadneError,
    ColumnNotFoundError,
    ConfigError,
    FormatMismatchError,
    IndexNotFoundError,
    IndexNotFoundInNewSchemaError,
    InvalidValueError,
    MetadataMissingOrCorruptError,
    MissingFormatError,
    SchemaMismatchError,
    SchemaNotProvidedError,
    SchemaParseError,
    StoragePathNotSetError,
    UnknownKeyError,
    UnsupportedMetadataVersionError,
    UnsupportedStorageFormatVersionError,
)

DDL = (
    "id INT NOT NULL, name STRING, at TIMESTAMP, meta STRUCT<at: TIMESTAMP>, "
    "items ARRAY<STRUCT<k: INT>>"
)


def metadata_of(storage, name="t"):
    return storage / "indexes" / name / "metadata.json"


# --- construction ----------------------------------------------------------------------------


def test_a_new_index_needs_a_schema_and_an_old_one_only_its_name(storage):
    with pytest.raises(SchemaNotProvidedError):
        Index("t").refresh_metadata()
    made, again = Index("t", DDL), Index("t")
    assert made.format == again.format == "parquet"
    assert again.stored_schema == made.stored_schema
    assert again.storage_path == f"{storage}/indexes/t"
    document = json.loads(metadata_of(storage).read_text())
    assert (document["metadata_version"], document["storage_format_version"]) == (10, 3)


@pytest.mark.parametrize("format_", ["csv", "json", "parquet"])
def test_the_same_is_fine_and_another_format_or_schema_is_not(storage, format_):
    Index("t", DDL, format_).refresh_metadata()
    Index("t", DDL, format_).refresh_metadata()
    other = "csv" if format_ != "csv" else "json"
    with pytest.raises(FormatMismatchError, match=f"{format_} files, not {other}"):
        Index("t", format=other).refresh_metadata()
    with pytest.raises(SchemaMismatchError, match=r"'name' is not.*'id' differs in type") as caught:
        Index("t", "id BIGINT NOT NULL, more INT", format_).refresh_metadata()
    assert len(caught.value.differences) == 6


def test_a_format_nobody_reads_is_refused(storage):
    with pytest.raises(MissingFormatError, match="parquet, csv, json"):
        Index("t", DDL, "orc")
    assert not Index.exists("t")


@pytest.mark.parametrize(("schema", "reason"), [("id WRONG", "WRONG"), (7, "int is")])
def test_what_is_no_schema_is_refused(storage, schema, reason):
    with pytest.raises(AriadneArgumentError, match=f"Cannot use the schema: .*{reason}"):
        Index("t", schema)


def test_a_schema_can_be_sparks_or_arrows(spark, storage):
    from pyspark.sql.types import StructType

    wanted = StructType.fromDDL(DDL)
    assert Index("s", wanted).stored_schema == wanted
    arrow = Index("a", pa.schema([("x", pa.int32())]))
    assert arrow.stored_schema.simpleString() == "struct<x:int>"


def test_another_schema_is_accepted_only_if_index_columns_mean_the_same(storage):
    index = Index("t", DDL)
    index.add_index("id")
    index.add_computed_index("big", "upper(name)")
    index.add_exploded_field_index("items", "k", "k")
    shorter = "id INT NOT NULL, name STRING, items ARRAY<STRUCT<k: INT>>"
    assert len(Index("t", shorter, allow_schema_mismatch=True).stored_schema) == 3
    with pytest.raises(IndexNotFoundInNewSchemaError) as caught:
        Index("t", "at TIMESTAMP", allow_schema_mismatch=True).refresh_metadata()
    assert caught.value.missing == ("id", "big (upper(name))", "items")
    with pytest.raises(SchemaMismatchError, match="was int32 and would be int64"):
        Index(
            "t", shorter.replace("id INT", "id BIGINT"), allow_schema_mismatch=True
        ).refresh_metadata()
    assert len(Index("t").stored_schema) == 3


def test_read_options_are_kept_and_given_ones_win(storage):
    Index("t", DDL, "csv", read_options={"header": "true", "sep": ";"}).refresh_metadata()
    assert Index("t").read_options == {"header": "true", "sep": ";"}
    assert Index("t", read_options={"sep": ","}).read_options == {"header": "true", "sep": ","}


def test_a_read_option_that_is_none_is_refused(storage):
    with pytest.raises(AriadneArgumentError, match="'nullValue' is None"):
        Index("t", DDL, "csv", read_options={"header": "true", "nullValue": None})
    assert not Index.exists("t")


def test_a_handle_does_nothing_until_it_is_used(storage, monkeypatch):
    requests = []
    for owner, name in ((place, "open_store"), (DeltaPlace, "open")):
        call = getattr(owner, name)

        def counted(*args, _call=call, **named):
            requests.append(args)
            return _call(*args, **named)

        monkeypatch.setattr(owner, name, counted)
    one = Index("t", DDL, "csv", read_options={"header": "true"})
    two = Index("t", allow_schema_mismatch=True)
    assert one == two
    assert hash(one) == hash(two)
    assert (one.name, one.storage_path) == ("t", f"{storage}/indexes/t")
    assert repr(one) == "Index('t')"
    assert requests == []
    assert not storage.exists()
    assert one.format == "csv"
    assert requests
    assert metadata_of(storage).exists()
    assert repr(one) == "Index('t', format='csv', indexes=[])"


def test_arguments_are_checked_before_anything_is_used(storage):
    for work in (
        lambda: Index("a/b", DDL),
        lambda: Index("t", "id WRONG"),
        lambda: Index("t", DDL, "orc"),
        lambda: Index("t", DDL, read_options={"sep": None}),
    ):
        with pytest.raises(AriadneError):
            work()
    assert not storage.exists()


def states_of_an_index(storage, tmp_path):
    """Name each state that an index can be in, and whether there is an index then."""
    yield "nothing there", False
    index = Index("t", "id BIGINT")
    yield "a handle that nobody used", False
    index.refresh_metadata()
    yield "created and empty", True
    pq.write_table(pa.table({"id": [1]}), tmp_path / "x.parquet")
    index.add_index("id")
    index.add_file(str(tmp_path / "x.parquet"))
    index.update()
    yield "built", True
    saved = metadata_of(storage).read_bytes()
    metadata_of(storage).unlink()
    yield "killed while it was removed", False
    metadata_of(storage).write_bytes(saved)
    Index.remove("t")
    yield "removed", False
    (storage / "indexes" / "t").mkdir(parents=True)
    yield "killed before its metadata was written", False
    (storage / "indexes" / "t" / "metadata.json.tmp").write_bytes(saved)
    yield "killed while its metadata was written", False
    Index("t", "id BIGINT").refresh_metadata()
    yield "created over what was left", True
    metadata_of(storage).write_text("damaged")
    yield "damaged", True


def test_index_and_catalog_agree_on_what_exists(spark, storage, tmp_path):
    for state, exists in states_of_an_index(storage, tmp_path):
        assert Index.exists("t") is exists, state
        assert IndexCatalog.exists("t") is exists, state
        assert ("t" in IndexCatalog.list()) is exists, state
        assert (spark.sql("SHOW TABLES IN ariadne").count() == 1) is exists, state


def test_opening_never_rewrites_metadata(storage):
    Index("t", DDL).add_index("id")
    path = metadata_of(storage)
    path.write_text(json.dumps({**json.loads(path.read_text()), "future": 1}))
    before = path.read_bytes()
    index = Index("t", DDL, "parquet")
    index.refresh_metadata()
    index.add_index("id")
    assert path.read_bytes() == before


def test_settings_survive_a_reconnect(storage):
    index = Index("t", DDL)
    index.add_index("id")
    index.add_computed_index("big", "upper(name)")
    index.add_bloom_index("name", 0.001)
    index.add_temporal_index("at", "meta.at")
    index.add_exploded_field_index("items", "k", "k")
    assert Index("t").indexes == {"id", "big", "name", "at", "k"}
    assert Index("t").metadata == index.metadata


@pytest.mark.parametrize(
    ("field", "error"),
    [
        ("metadata_version", UnsupportedMetadataVersionError),
        ("storage_format_version", UnsupportedStorageFormatVersionError),
    ],
)
def test_a_newer_version_fails_everything_with_a_word(storage, field, error):
    index = Index("t", DDL)
    index.refresh_metadata()
    path = metadata_of(storage)
    path.write_text(json.dumps({**json.loads(path.read_text()), field: 999}))
    before = path.read_bytes()
    for work in (
        lambda: Index("t").refresh_metadata(),
        lambda: index.locate_files({"id": [1]}),
        index.update,
        lambda: index.add_index("id"),
        lambda: IndexCatalog.describe("t"),
        IndexCatalog.describe_all,
    ):
        with pytest.raises(error, match="Upgrade"):
            work()
    assert path.read_bytes() == before


def test_damaged_metadata_is_named(storage):
    Index("t", DDL).refresh_metadata()
    document = json.loads(metadata_of(storage).read_text())
    metadata_of(storage).write_text(json.dumps({**document, "schema": "no schema"}))
    with pytest.raises(SchemaParseError, match="'t'"):
        _ = Index("t").stored_schema
    metadata_of(storage).write_text("")
    with pytest.raises(MetadataMissingOrCorruptError, match=r"metadata\.json"):
        Index("t").refresh_metadata()


@pytest.mark.parametrize(
    "name", ["../x", "a/b", "a\\b", ".hidden", "..", "a\0b", "", " ", None, "a[b]", "a%b"]
)
def test_names_that_are_no_folders_are_refused(storage, name):
    with pytest.raises(AriadneArgumentError, match="name of an index"):
        Index(name, DDL)
    assert not storage.exists()


@pytest.mark.parametrize("name", ["v2.final", "customer-data", "a b", "ünï"])
def test_other_names_are_fine(storage, name):
    Index(name, DDL).add_file("x.csv")
    assert Index(name).has_file("x.csv")
    assert IndexCatalog.list() == [name]


def test_without_a_storage_path_there_is_a_word(spark, storage):
    spark.conf.unset("spark.ariadne.storagePath")
    with pytest.raises(StoragePathNotSetError, match=r"spark\.ariadne\.storagePath"):
        Index("t", DDL)
    spark.conf.set("spark.ariadne.storagePath", "/tmp/a[b]")
    with pytest.raises(AriadneArgumentError, match="Cannot keep indexes"):
        Index("t", DDL)


# --- configuration ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("key", "value", "error", "word"),
    [
        *((f"lock{k}", "1", ConfigError, "no locks")
          for k in ("Timeout", "RetryInterval", "MaxWait", "RefreshInterval")),
        ("broadcastJoinThreshold", "1", ConfigError, "removed"),
        ("largeIndexLimits", "1", UnknownKeyError, "largeIndexLimit"),
        ("largeIndexLimit", "0", InvalidValueError, "at least 1"),
        ("autoBloomFpr", "1", InvalidValueError, "0.999"),
    ],
)  # fmt: skip
def test_keys_that_mean_nothing_are_refused(key, value, error, word):
    with pytest.raises(error, match=word):
        ariadne_config({f"spark.ariadne.{key}": value})


def test_keys_have_the_defaults_of_the_scala_project():
    config = ariadne_config({"spark.sql.shuffle.partitions": "1"})
    assert config[keys.ARIADNE_LARGE_INDEX_LIMIT] == 500_000
    assert config[keys.ARIADNE_STAGING_THRESHOLD] == 50
    assert config[keys.ARIADNE_AUTO_BLOOM_FPR] == 0.01
    assert config[keys.ARIADNE_STORAGE_PATH] is None
    assert config[keys.ARIADNE_REPARTITION_DATA_FILES] is False


def test_the_session_tells_about_stores_and_nothing_shows_it(spark, storage):
    context = Context.current()
    assert context.storage_options("s3://b/x") == {}
    spark.conf.set("spark.hadoop.fs.s3a.secret.key", "hidden")
    try:
        options = Context.current().delta_options("s3://b/x")
        assert options["aws_secret_access_key"] == "hidden"
        assert "hidden" not in repr(Context.current())
    finally:
        spark.conf.unset("spark.hadoop.fs.s3a.secret.key")


# --- declaring -------------------------------------------------------------------------------


def test_a_refused_declaration_leaves_nothing_behind(storage):
    index = Index("t", DDL)
    index.refresh_metadata()
    before = metadata_of(storage).read_bytes()
    for work in (
        lambda: index.add_index("zz"),
        lambda: index.add_index("meta.at"),
        lambda: index.add_bloom_index("id", 1.0),
        lambda: index.add_computed_index("c", "no_such_column + 1"),
        lambda: index.add_computed_index("c", "id +"),
        lambda: index.add_computed_index("c", "map('a', id)"),
        lambda: index.add_exploded_field_index("name", "k", "k"),
        lambda: index.add_text_index("id"),
    ):
        with pytest.raises((AriadneArgumentError, ColumnNotFoundError)):
            work()
    assert metadata_of(storage).read_bytes() == before


@pytest.mark.parametrize("option", [None, "bad"])
def test_what_spark_could_not_read_cannot_be_indexed(storage, option):
    """What is malformed in a line depends on the columns that are read."""
    column = option or "_corrupt_record"
    options = {"columnNameOfCorruptRecord": option} if option else None
    index = Index("t", f"id INT, x DOUBLE, {column} STRING", "csv", read_options=options)
    for work in (
        lambda: index.add_index(column),
        lambda: index.add_temporal_index("id", column),
        lambda: index.add_computed_index("is_bad", f"{column} IS NOT NULL"),
    ):
        with pytest.raises(AriadneArgumentError, match="depends on the columns"):
            work()
    index.add_index("id")
    index.add_computed_index("half", "x / 2")
    Index("p", f"{column} STRING").add_index(column)


@pytest.mark.parametrize(
    "expression",
    ["rand()", "uuid()", "datediff(current_date, date(at))", "at > now()", "id + unix_timestamp()",
     "CURRENT_TIMESTAMP ()", "concat(name, current_user())", "if(name = 'it\\'s', 1, rand())"],
)  # fmt: skip
def test_values_that_are_others_the_next_time_cannot_be_indexed(storage, expression):
    index = Index("t", DDL)
    with pytest.raises(AriadneArgumentError, match=r"each time|when and where"):
        index.add_computed_index("x", expression)
    assert not index.indexes


@pytest.mark.parametrize(
    ("expression", "word"),
    [("max(id)", "single row"), ("row_number() OVER (ORDER BY id)", "single row"),
     ("explode(sequence(1, id))", "single row"), ("id IN (SELECT 1)", "more than the row")],
)  # fmt: skip
def test_values_of_other_rows_cannot_be_indexed(storage, expression, word):
    index = Index("t", DDL)
    with pytest.raises(AriadneArgumentError, match=word):
        index.add_computed_index("x", expression)
    index.add_computed_index("y", "exists(array(id, 2), x -> x > 1) AS z")
    assert index.indexes == {"y"}


def test_names_and_texts_of_such_functions_are_none(storage):
    index = Index("t", "now INT, current_date STRING, at TIMESTAMP, `user` INT")
    index.add_computed_index("a", "now + 1")
    index.add_computed_index("b", "concat(current_date, 'now()', \"current_user\")")
    index.add_computed_index("c", "unix_timestamp(at) + `user`")
    assert index.indexes == {"a", "b", "c"}


def test_texts_that_compare_by_a_collation_cannot_be_indexed(storage):
    text = "STRING COLLATE UTF8_LCASE"
    index = Index("t", f"n {text}, s STRUCT<x: {text}>, a ARRAY<STRUCT<x: {text}, y: INT>>, m INT")
    for work in (
        lambda: index.add_index("n"),
        lambda: index.add_range_index("n"),
        lambda: index.add_bloom_index("s"),
        lambda: index.add_computed_index("c", "concat(n, 'x')"),
        lambda: index.add_exploded_field_index("a", "x", "x"),
        lambda: index.add_temporal_index("m", "n"),
    ):
        with pytest.raises(AriadneArgumentError, match="collate UTF8_LCASE"):
            work()
    index.add_text_index("n")
    index.add_exploded_field_index("a", "y", "y")
    index.add_computed_index("c", "length(n)")


def test_declarations_of_two_handles_are_both_kept(storage):
    one, two = Index("t", DDL), Index("t")
    one.add_index("id")
    two.add_bloom_index("name")
    with pytest.raises(AriadneArgumentError, match="one kind"):
        one.add_range_index("name")
    one.refresh_metadata()
    assert one.indexes == {"id", "name"}


def test_selecting_columns_gives_another_view(storage):
    index = Index("t", DDL)
    index.add_computed_index("big", "upper(name)")
    assert index.select("id", ["big"]).selection == ("id", "big")
    assert index.selection is None
    with pytest.raises(ColumnNotFoundError, match="'zz'"):
        index.select("id", "zz")
    for nothing in ([], [""], [" "]):
        with pytest.raises(AriadneArgumentError, match="not a column"):
            index.select(*nothing)


# --- files -----------------------------------------------------------------------------------


def test_files_are_registered_once_whatever_their_spelling(storage, tmp_path):
    index = Index("t", DDL, "csv")
    assert not index.has_file("/d/a b.csv")
    assert not (storage / "filelists").exists()
    index.add_file("/d/a b.csv", ["/d/more", "/d/p*.csv"])
    first = index._place.files.entries()[0].to_pylist()
    index.add_file("file:///d/a%20b.csv", "/d/new.csv")
    assert index.has_file("file:/d/a%20b.csv")
    assert index.has_file("/d/more/x.csv")
    assert index.has_file("/d/p1.csv")
    assert not index.has_file("/d/q1.csv")
    second = index._place.files.entries()[0].to_pylist()
    assert [row for row in second if row["filename"] != "/d/new.csv"] == first
    assert IndexCatalog.describe("t").file_count == 4


def test_a_folder_counts_as_the_files_in_it(storage, tmp_path):
    folder = tmp_path / "many"
    folder.mkdir()
    for number in range(3):
        (folder / f"{number}.csv").write_text("id\n1\n")
    index = Index("folders", DDL, "csv")
    index.add_file(str(folder), str(tmp_path / "later.csv"))
    assert IndexCatalog.describe("folders").file_count == 4


@pytest.mark.parametrize("bad", [[], [""], [None], [" ", "ok"]])
def test_no_files_or_bad_ones_are_refused(storage, bad):
    index = Index("t", DDL)
    with pytest.raises(AriadneArgumentError):
        index.add_file(*bad)
    assert not (storage / "filelists").exists()


def test_an_empty_index_can_be_asked_and_kept(storage):
    index = Index("t", DDL)
    index.add_index("id")
    index.delete_files("/never/there")
    index.compact()
    assert index.vacuum(0) == []
    assert index.update().indexed == 0
    assert index.locate_files({"id": [1]}) == set()
    assert index.stats().count() == 0


# --- the catalog -----------------------------------------------------------------------------


def test_the_catalog_knows_indexes_and_nothing_else(storage):
    assert IndexCatalog.list() == []
    assert IndexCatalog.to_df().count() == 0
    Index("empty", DDL).refresh_metadata()
    assert IndexCatalog.describe("empty").file_count == 0
    Index.remove("empty")
    two, one = Index("two", DDL, "csv"), Index("one", DDL)
    one.add_file("/d")
    two.add_file("/d/x.csv", "/d/y.csv")
    two.add_bloom_index("name")
    (storage / "indexes" / "partial").mkdir()
    (storage / "indexes" / "partial" / "junk").write_text("x")
    Index("orphan", DDL).add_file("/d/z.csv")
    metadata_of(storage, "orphan").unlink()
    assert IndexCatalog.list() == ["one", "two"]
    assert [n for n in ("one", "two", "partial", "orphan") if Index.exists(n)] == ["one", "two"]
    assert IndexCatalog.find_indexes("/d/x.csv") == ["one", "two"]
    assert IndexCatalog.find_indexes("/d/z.csv") == ["one"]
    found = IndexCatalog.describe("two")
    assert (found.format, found.file_count, found.total_indexed_file_size) == ("csv", 2, -1)
    assert found.bloom_indexes == {"name"}
    assert found.columns == ("id", "name", "at", "meta", "items")
    two.add_index("id")
    assert IndexCatalog.describe("two").indexes == {"id"}
    assert [s.name for s in IndexCatalog.describe_all()] == ["one", "two"]
    assert IndexCatalog.to_df().columns == [
        "name", "format", "indexes", "bloom_indexes", "computed_indexes", "temporal_indexes",
        "range_indexes", "exploded_field_indexes", "text_indexes", "file_count",
        "total_indexed_file_size",
    ]  # fmt: skip
    assert IndexCatalog.get("two").indexes == {"id", "name"}
    for name in ("one", "two", "partial", "orphan"):
        assert IndexCatalog.remove(name)
        assert not Index.exists(name)
        with pytest.raises(IndexNotFoundError, match=name):
            IndexCatalog.remove(name)
    assert IndexCatalog.list() == []
    for work in (IndexCatalog.get, IndexCatalog.describe):
        with pytest.raises(IndexNotFoundError):
            work("one")


def test_an_unreadable_index_does_not_hide_the_others(storage):
    Index("good", DDL).refresh_metadata()
    Index("bad", DDL).refresh_metadata()
    metadata_of(storage, "bad").write_text("{}")
    assert [s.name for s in IndexCatalog.describe_all()] == ["good"]


def test_removing_an_index_leaves_its_files(storage, tmp_path):
    pq.write_table(pa.table({"id": [1]}), tmp_path / "x.parquet")
    Index("t", "id BIGINT").add_file(str(tmp_path / "x.parquet"))
    assert Index.remove("t")
    assert (tmp_path / "x.parquet").exists()
    with pytest.raises(IndexNotFoundError):
        Index.remove("t")


def test_every_error_is_ariadnes(storage):
    with pytest.raises(AriadneError):
        Index("t").refresh_metadata()


def test_removing_an_index_leaves_nothing_of_it(storage, tmp_path):
    pq.write_table(pa.table({"id": [1]}), tmp_path / "x.parquet")
    index = Index("t", "id BIGINT")
    index.add_index("id")  # replaces metadata.json, under its lock
    index.add_file(str(tmp_path / "x.parquet"))
    index.update()
    Index.remove("t")
    assert list(storage.rglob("*")) == []


# --- what it is ------------------------------------------------------------------------------


def test_the_factory_takes_its_arguments_by_position(storage):
    Index("t", DDL, "csv", {"header": "true"}).refresh_metadata()
    assert Index("t").read_options == {"header": "true"}
    shorter = DDL.rpartition(", items")[0]
    with pytest.raises(SchemaMismatchError):
        Index("t", shorter, "csv", False).refresh_metadata()
    assert len(Index("t", shorter, "csv", True, {"sep": ";"}).stored_schema) == 4
    assert Index("t").read_options == {"header": "true", "sep": ";"}
    for wrong in ("yes", 1, None):
        with pytest.raises(
            AriadneArgumentError, match="neither true or false, nor the read options"
        ):
            Index("t", DDL, "csv", wrong)
    with pytest.raises(AriadneArgumentError, match="given twice"):
        Index("t", DDL, "csv", {"header": "true"}, {"sep": ";"})


def test_an_index_equals_another_handle_of_it(spark, storage):
    one, two, other = Index("t", DDL), Index("t"), Index("u", DDL)
    assert one == two
    assert one in {two}
    assert one != other
    assert one != "t"
    assert one.select("id") == two.select("id") != one
    one.add_index("id")
    assert one == two  # which index it is, not how much a handle has seen of it
    spark.conf.set("spark.ariadne.storagePath", f"{storage}-elsewhere")
    assert Index("t", DDL) != one
