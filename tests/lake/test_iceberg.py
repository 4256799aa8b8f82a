"""A search index over Iceberg tables: what they can be like, and bad input."""

from __future__ import annotations

import datetime
import shutil
import uuid
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from iceberg_tables import (
    catalog_in,
    data_files,
    delete_by_vector,
    delete_equal,
    delete_positions,
    metadata_as,
)
from pyiceberg.manifest import FileFormat
from pyiceberg.schema import Schema
from pyiceberg.transforms import BucketTransform, DayTransform
from pyiceberg.types import (
    DateType,
    IntegerType,
    LongType,
    MapType,
    NestedField,
    StringType,
    StructType,
    TimestampType,
    TimeType,
    UUIDType,
)

import indextables as it
from indextables.errors import (
    LakeError,
    SourceMissingError,
    SourceVersionError,
    UnsupportedSourceError,
)

ROWS = pa.table(
    {"id": [1, 2, 3, 4], "body": ["red fox", "lazy dog", None, "fox and dog"]},
    schema=pa.schema([("id", pa.int64()), ("body", pa.string())]),
)


def ids(rows: pa.Table) -> list[int]:
    return sorted(rows["id"].to_pylist())


@pytest.fixture
def docs(tmp_path):
    table = catalog_in(tmp_path).create_table("db.docs", ROWS.schema)
    table.append(ROWS)
    return table


def over(table, folder: Path, **arguments) -> it.SearchIndex:
    arguments = {"columns": ["body"], "source": table.location()} | arguments
    return it.SearchIndex.create(folder / "index", format="iceberg", **arguments)


def test_a_rewrite_indexes_its_files_only(docs, tmp_path):
    index = over(docs, tmp_path)
    docs.append(pa.table({"id": [5], "body": ["blue fox"]}))
    assert ids(index.search("fox")) == [1, 4, 5]
    assert index.refresh().files_indexed == 1
    docs.delete("id = 1")  # rewrites one of two files
    assert ids(index.search("fox")) == [4, 5]
    done = index.refresh()
    assert (done.files_indexed, done.files_removed) == (1, 1)
    assert ids(index.scan(where="body indexquery 'fox OR dog'")) == [2, 4, 5]
    assert "of 2 files" in index.explain(where="body indexquery 'fox'")


def test_versions_are_snapshots(docs, tmp_path):
    first = docs.current_snapshot()
    index = over(docs, tmp_path)
    docs.overwrite(pa.table({"id": [9], "body": ["fox"]}))
    with docs.update_schema() as change:
        change.add_column("extra", LongType())
    assert "extra" in index.schema.names
    assert ids(index.scan()) == [9]
    assert ids(index.search("fox", version=first.snapshot_id)) == [1, 4]
    assert index.table(version=first.snapshot_id).schema.names == ["id", "body"]
    assert ids(index.table(timestamp=first.timestamp_ms).scan()) == [1, 2, 3, 4]
    with pytest.raises(SourceVersionError, match="id of a snapshot"):
        index.scan(version=7)
    with pytest.raises(SourceVersionError, match="history begins later"):
        index.table(timestamp=1000)


def test_a_table_is_named_in_three_ways(docs, tmp_path):
    options = {"catalog.uri": f"sqlite:///{tmp_path}/c.db"}
    by_file = over(docs, tmp_path / "a", source=docs.metadata_location)
    by_name = over(docs, tmp_path / "b", source="catalog://test/db.docs", source_options=options)
    docs.append(pa.table({"id": [5], "body": ["blue fox"]}))
    assert ids(by_file.search("fox")) == [1, 4]
    assert ids(by_name.search("fox")) == [1, 4, 5]
    again = it.SearchIndex.open(by_name.uri, source_options=options)
    assert ids(again.search("fox")) == [1, 4, 5]
    again.drop()
    with pytest.raises(SourceMissingError):
        over(docs, tmp_path / "c", source="catalog://test/db.other", source_options=options)
    with pytest.raises(LakeError, match="does not name a table"):
        over(docs, tmp_path / "c", source="catalog://test")
    with pytest.raises(LakeError, match="cannot load the catalog"):
        over(docs, tmp_path / "c", source="catalog://nowhere/db.docs")


def test_a_table_that_was_made_again_under_the_same_metadata_file(tmp_path):
    """Tables of a Hadoop catalog number their metadata files, also after a drop."""
    kinds = pa.schema([("id", pa.int64()), ("body", pa.string())])
    folder, table = tmp_path / "hadoop", None
    for part, rows in (("a", ROWS), ("b", ROWS.slice(3)), ("c", None)):
        table = catalog_in(tmp_path / part).create_table("db.docs", kinds)
        if rows is not None:
            table.append(rows)
        shutil.rmtree(folder, ignore_errors=True)
        (folder / "metadata").mkdir(parents=True)
        newest = table.metadata_location.removeprefix("file://")
        shutil.copy(newest, folder / "metadata/v1.metadata.json")
        if part == "a":
            indexes = [
                over(table, tmp_path / f"index{n}", source=at)
                for n, at in enumerate((folder, folder / "metadata/v1.metadata.json"))
            ]
        for index in indexes:
            found = [] if rows is None else [i for i in ids(rows) if i in (1, 4)]
            assert ids(index.search("fox")) == found
            index.refresh()
            assert ids(index.search("fox")) == found
    shutil.rmtree(folder)
    for index in indexes:
        with pytest.raises(SourceMissingError):
            index.count()


def test_field_ids(docs, tmp_path):
    index = over(docs, tmp_path)
    with docs.update_schema() as change:
        change.rename_column("body", "old")
    with docs.update_schema() as change:
        change.add_column("body", StringType())
    assert index.count(where="body IS NULL") == 4
    assert index.search("fox").num_rows == 0
    with docs.update_schema() as change:
        change.delete_column("body")
    with docs.update_schema() as change:
        change.rename_column("old", "body")
    assert ids(index.search("fox")) == [1, 4]
    assert index.describe()["files_not_indexed"] == 0  # it is the column that was indexed
    with docs.update_schema() as change:
        change.delete_column("body")
    with docs.update_schema() as change:
        change.add_column("body", StringType())
    docs.append(pa.table({"id": [5], "body": ["blue fox"]}))
    assert ids(index.search("fox")) == [5]
    index.refresh()
    assert ids(index.search("fox")) == [5]


def test_types(tmp_path):
    kinds = Schema(
        NestedField(1, "id", IntegerType()),
        NestedField(2, "body", StringType()),
        NestedField(3, "key", UUIDType()),
        NestedField(4, "day", DateType()),
        NestedField(5, "at", TimestampType()),
        NestedField(6, "place", StructType(NestedField(7, "city", StringType()))),
    )
    table = catalog_in(tmp_path).create_table("db.t", kinds)
    with table.update_spec() as spec:
        spec.add_field("id", BucketTransform(2), "b")
        spec.add_field("at", DayTransform(), "d")
    one = uuid.UUID(int=7)
    row = {
        "id": 1, "body": "fox", "key": one.bytes, "day": datetime.date(2024, 1, 2),
        "at": datetime.datetime(2024, 1, 2, 3), "place": {"city": "Rome"},
    }  # fmt: skip
    table.append(pa.Table.from_pylist([row], schema=table.schema().as_arrow()))
    index = over(table, tmp_path)
    with table.update_schema() as change:
        change.update_column("id", LongType())
        change.rename_column("place.city", "town")
    expected = row | {"key": str(one), "place": {"town": "Rome"}}
    assert index.search("fox", columns=list(row)).drop_columns("_score").to_pylist() == [expected]
    assert index.count(where=f"key = '{one}' AND at > timestamp_ntz'2024-01-02 02:00:00'") == 1
    with table.update_schema() as change:
        change.add_column("clock", TimeType())
    with pytest.raises(UnsupportedSourceError, match="'clock' has the type time"):
        index.count()


def test_position_deletes(docs, tmp_path):
    index = over(docs, tmp_path)
    file = data_files(docs)[0].file_path
    delete_positions(docs, [(file, 0), (file, 2), ("file:///elsewhere.parquet", 1)])
    assert ids(docs.scan().to_arrow()) == [2, 4]
    assert ids(index.scan()) == [2, 4]
    assert index.count() == 2
    assert ids(index.search("fox")) == [4]
    assert index.describe()["files_not_indexed"] == 0
    delete_positions(docs, [(file, 9)])
    with pytest.raises(UnsupportedSourceError, match="names row 9"):
        index.count()
    delete_positions(docs, [(file, 1)], file_format=FileFormat.AVRO)
    with pytest.raises(UnsupportedSourceError, match="format AVRO"):
        index.count()


def test_equality_deletes(docs, tmp_path):
    index = over(docs, tmp_path)
    delete_equal(docs, pa.table({"id": pa.array([4], pa.int64())}), [1])
    docs.append(pa.table({"id": [4], "body": ["new fox"]}))  # newer than the delete
    assert index.scan(where="body indexquery 'fox'")["body"].to_pylist() == ["red fox", "new fox"]
    assert index.describe()["files_not_indexed"] == 1
    # Null equals null; the column is dropped afterwards.
    delete_equal(docs, pa.table({"body": pa.array([None, "lazy dog"], pa.string())}), [2])
    with docs.update_schema(allow_incompatible_changes=True) as change:
        change.delete_column("body")
        change.add_column("extra", LongType())
    assert ids(index.scan()) == [1, 4]
    docs.append(pa.table({"id": [7, 8], "extra": [1, 2]}))
    # The older files have no such column: it is null in them.
    delete_equal(docs, pa.table({"extra": pa.array([None, 2], pa.int64())}), [3])
    assert ids(index.scan()) == [7]


def test_equality_deletes_of_a_partition(tmp_path):
    rows = pa.table({"id": [1, 1, 2], "body": ["fox"] * 3, "p": ["a", "b", "a"]})
    table = catalog_in(tmp_path).create_table("db.docs", rows.schema)
    with table.update_spec() as spec:
        spec.add_identity("p")
    table.append(rows)
    index = over(table, tmp_path)
    key = pa.table({"id": pa.array([1], pa.int64())})
    delete_equal(table, key, [1], partition=("a",))
    assert sorted(index.scan(columns=["p"])["p"].to_pylist()) == ["a", "b"]
    delete_equal(table, key, [1], spec=0)  # without a partition: of all
    assert ids(index.scan()) == [2]


def test_default_values(docs, tmp_path):
    index = over(docs, tmp_path)
    file = data_files(docs)[0].file_path
    delete_positions(docs, [(file, 0)])

    def upgrade(content: dict) -> None:
        content["format-version"], content["next-row-id"] = 3, 10
        schema = content["schemas"][0]
        schema["fields"] += [
            {"id": 3, "name": "day", "type": "date", "required": False,
             "initial-default": "2024-05-06"},
            {"id": 4, "name": "price", "type": "decimal(5, 2)", "required": False,
             "initial-default": "1.50"},
        ]  # fmt: skip
        content["last-column-id"] = 4

    metadata_as(docs, upgrade)
    expected = {"id": 4, "day": datetime.date(2024, 5, 6), "price": Decimal("1.50")}
    found = index.scan(columns=list(expected), where="body indexquery 'fox' AND price > 1")
    assert found.to_pylist() == [expected]
    assert index.count(where="day = date'2024-05-06'") == 3
    assert index.scan(columns=["day"], limit=1).num_rows == 1


def test_nested_maps_and_dates_that_became_times(tmp_path):
    inner = StructType(NestedField(7, "x", StringType()))
    kinds = Schema(
        NestedField(1, "id", LongType()),
        NestedField(2, "body", StringType()),
        NestedField(3, "day", DateType()),
        NestedField(4, "m", MapType(5, StringType(), 6, inner)),
    )
    table = catalog_in(tmp_path).create_table("db.t", kinds)
    row = {"id": 1, "body": "fox", "day": datetime.date(2024, 1, 2), "m": [("k", {"x": "y"})]}
    table.append(pa.Table.from_pylist([row], schema=table.schema().as_arrow()))
    index = over(table, tmp_path)
    assert index.search("fox", columns=["id"])["id"].to_pylist() == [1]
    with pytest.raises(UnsupportedSourceError, match="map of nested values"):
        index.scan(columns=["m"])

    def promote(content: dict) -> None:
        content["format-version"], content["next-row-id"] = 3, 1
        content["schemas"][0]["fields"][2]["type"] = "timestamp"

    metadata_as(table, promote)
    assert index.search("fox", columns=["id"])["id"].to_pylist() == [1]
    midnight = [datetime.datetime(2024, 1, 2)]
    assert index.scan(columns=["day"])["day"].to_pylist() == midnight


def test_a_deletion_vector(docs, tmp_path):
    index = over(docs, tmp_path)
    docs.append(pa.table({"id": [5], "body": ["fox"]}))
    first, second = (one.file_path for one in data_files(docs))
    delete_positions(docs, [(first, 0), (first, 1), (second, 0)])
    # A vector replaces the position deletes of its file.
    delete_by_vector(docs, first, [0, 3])
    assert ids(index.scan()) == [2, 3]
    assert ids(index.search("fox OR dog")) == [2]
    delete_by_vector(docs, second, [0], damaged=True)
    with pytest.raises(UnsupportedSourceError, match="is damaged"):
        index.count()


def test_files_that_iceberg_did_not_write(tmp_path):
    """They have no field ids, may be elsewhere, and have partition values in their paths only."""
    kinds = pa.schema([("id", pa.int64()), ("body", pa.string()), ("p", pa.string())])
    table = catalog_in(tmp_path).create_table("db.docs", kinds)
    with table.update_spec() as spec:
        spec.add_identity("p")
    folder = tmp_path / ".other" / "p=b"
    folder.mkdir(parents=True)
    pq.write_table(pa.table({"id": [1], "body": ["red fox"], "p": ["b"]}), folder / "a.parquet")
    table.add_files([f"file://{folder}/a.parquet"])
    index = over(table, tmp_path, columns=["body", "p"])
    with table.update_schema() as change:
        change.rename_column("id", "number")
    assert index.search("fox", columns=["number", "p"]).to_pylist()[0]["number"] == 1
    # The column is in the metadata alone, as in tables that were migrated from Hive.
    pq.write_table(pa.table({"id": [1], "body": ["red fox"]}), folder / "a.parquet")
    size = (folder / "a.parquet").stat().st_size
    shutil.rmtree(tmp_path / "index")
    file = data_files(table)[0]
    monkey = pytest.MonkeyPatch()
    with monkey.context() as patch:
        patch_size(patch, file.file_path, size)
        index = over(table, tmp_path, columns=["body", "p"])
        assert index.scan(where="p = 'b' AND body indexquery 'fox'")["p"].to_pylist() == ["b"]
        assert index.scan(columns=["p"])["p"].to_pylist() == ["b"]
        assert index.count(where="p IS NULL OR p indexquery 'a'") == 0
    with table.transaction() as change:
        change.remove_properties("schema.name-mapping.default")
    with pytest.raises(UnsupportedSourceError, match="no field ids"):
        over(table, tmp_path / "again").refresh()
        it.SearchIndex.open(tmp_path / "again" / "index").count(where="body = 'x'")


def patch_size(patch, location: str, size: int) -> None:
    from dataclasses import replace

    from indextables.lake.iceberg_files import IcebergFiles

    read = IcebergFiles._decoded
    patch.setattr(
        IcebergFiles,
        "_decoded",
        lambda files, manifest: [
            replace(e, size=size) if e.location == location else e for e in read(files, manifest)
        ],
    )


def test_bad_sources(docs, tmp_path):
    with pytest.raises(SourceMissingError):
        over(docs, tmp_path, source=tmp_path / "nothing")
    with pytest.raises(SourceMissingError):
        over(docs, tmp_path, source=tmp_path / "metadata" / "v1.metadata.json")
    index = over(docs, tmp_path)
    newest = Path(docs.metadata_location.removeprefix("file://"))
    twin = newest.with_name(newest.name.split("-")[0] + f"-{uuid.uuid4()}.metadata.json")
    shutil.copy(newest, twin)
    with pytest.raises(UnsupportedSourceError, match="2 metadata files of the number"):
        index.count()
    twin.unlink()
    newer = Path(metadata_as(docs, lambda content: content.update({"format-version": 9})))
    with pytest.raises(UnsupportedSourceError, match=r"does not understand .*'9'"):
        index.count()
    newer.unlink()
    assert index.count() == 4
    listed = Path(docs.current_snapshot().manifest_list.removeprefix("file://"))
    listed.unlink()
    with pytest.raises(UnsupportedSourceError, match="names a file that is missing"):
        it.SearchIndex.open(index.uri).count()


@pytest.mark.parametrize("version", ["1", "2"])
def test_a_table_without_rows(tmp_path, version):
    table = catalog_in(tmp_path).create_table(
        "db.docs", ROWS.schema, properties={"format-version": version}
    )
    index = over(table, tmp_path)
    assert index.count() == 0
    table.append(ROWS)
    assert ids(index.search("fox")) == [1, 4]


def test_on_s3(s3, tmp_path):
    from pyiceberg.catalog.sql import SqlCatalog

    root = f"s3://tables/{tmp_path.name}-iceberg"
    options = dict(s3.options)
    catalog = SqlCatalog(
        "test", uri=f"sqlite:///{tmp_path}/c.db", warehouse=root,
        **{
            "s3.endpoint": str(options["aws_endpoint"]), "s3.region": str(options["aws_region"]),
            "s3.access-key-id": str(options["aws_access_key_id"]),
            "s3.secret-access-key": str(options["aws_secret_access_key"]),
        },
    )  # fmt: skip
    catalog.create_namespace("db")
    table = catalog.create_table("db.docs", ROWS.schema)
    table.append(ROWS)
    index = it.SearchIndex.create(
        f"{root}/index", source=table.location(), format="iceberg", columns=["body"],
        storage_options=options,
    )  # fmt: skip
    table.append(pa.table({"id": [5], "body": ["blue fox"]}))
    assert ids(index.search("fox")) == [1, 4, 5]
    assert ids(index.scan(where="body indexquery 'dog' AND id > 2")) == [4]


def test_a_split_is_a_data_file_of_an_iceberg_table(tmp_path):
    it.Table.create(tmp_path / "own", data=ROWS)
    (split,) = (tmp_path / "own").rglob("*.split")
    table = catalog_in(tmp_path).create_table("db.docs", ROWS.schema)
    table.add_files([f"file://{split}"])
    assert table.scan().to_arrow().to_pylist() == ROWS.to_pylist()
