from __future__ import annotations

import json
import threading

import pytest

from indextables.ariadne.declarations import Bloom, Computed, Exploded, Range, Regular, Temporal
from indextables.ariadne.metadata import Metadata, MetadataFile, metadata_json, parse_metadata
from indextables.errors import (
    MetadataMissingOrCorruptError,
    UnsupportedMetadataVersionError,
    UnsupportedStorageFormatVersionError,
)
from indextables.storage import open_store

V1 = {"format": "parquet", "schema": "{}", "indexes": ["a", "b"]}
ADDED = [
    {"computed_indexes": {"c": "a + 1"}},
    {
        "exploded_field_indexes": [
            {"array_column": "users", "field_path": "id", "as_column": "user_id"}
        ]
    },
    {"read_options": {"header": "true"}},
    {"bloom_indexes": [{"column": "d", "fpr": 0.001}]},
    {"temporal_indexes": [{"column": "e", "timestamp_column": "t.x"}]},
    {"range_indexes": [{"column": "f"}]},
    {"auto_bloom_indexes": ["a"]},
    {"total_indexed_file_size": 12},
    {"batches_since_compact": 3, "metadata_version": 10, "storage_format_version": 3},
]
DECLARED = [
    Regular("a"), Regular("b"), Computed("c", "a + 1"), Exploded("users", "id", "user_id"),
    Bloom("d", 0.001), Temporal("e", "t.x"), Range("f"),
]  # fmt: skip


@pytest.mark.parametrize("version", range(1, 11))
def test_every_version_loads(version):
    document = dict(V1)
    for fields in ADDED[: version - 1]:
        document |= fields
    found = parse_metadata(json.dumps(document).encode(), path="m")
    expected = {1: 2, 2: 3, 3: 4, 4: 4, 5: 5, 6: 6}.get(version, 7)
    assert list(found.declarations) == DECLARED[:expected]
    assert found.read_options == ({"header": "true"} if version >= 4 else {})
    assert found.auto_bloom == (("a",) if version >= 8 else ())
    assert found.total_indexed_file_size == (12 if version >= 9 else -1)
    assert found.batches_since_compact == (3 if version >= 10 else 0)
    assert parse_metadata(metadata_json(found), path="m") == found


def test_what_is_written_says_its_versions():
    document = json.loads(metadata_json(Metadata("csv", "{}")))
    assert document["metadata_version"] == 10
    assert document["storage_format_version"] == 3


@pytest.mark.parametrize(
    ("field", "error"),
    [
        ("metadata_version", UnsupportedMetadataVersionError),
        ("storage_format_version", UnsupportedStorageFormatVersionError),
    ],
)
def test_newer_versions_are_refused(field, error):
    with pytest.raises(error, match=r"999.*Upgrade") as caught:
        parse_metadata(json.dumps({**V1, field: 999}).encode(), path="m")
    assert caught.value.found == 999


@pytest.mark.parametrize(
    ("data", "word"),
    [
        (b"", "not JSON"), (b"{", "not JSON"), (b"[]", "not a JSON object"),
        (b"{}", "format and it"),
        (b'{"format": "csv"}', "no schema"), (b'{"schema": "{}"}', "no format"),
        (json.dumps({**V1, "bloom_indexes": [{"fpr": 1}]}).encode(), "wrong shape"),
        (json.dumps({**V1, "computed_indexes": ["x"]}).encode(), "wrong shape"),
    ],
)  # fmt: skip
def test_damage_is_named(data, word):
    with pytest.raises(MetadataMissingOrCorruptError, match=word):
        parse_metadata(data, path="m")


def test_unknown_fields_survive_a_change(tmp_path):
    store = open_store(tmp_path)
    store.put("metadata.json", json.dumps({**V1, "future": [1]}).encode())
    before = store.get("metadata.json")
    file = MetadataFile(store)
    file.load()
    assert file.change(lambda m: m).unknown == {"future": [1]}
    assert store.get("metadata.json") == before
    file.change(lambda m: m.declaring(Regular("z")))
    assert json.loads(store.get("metadata.json"))["future"] == [1]


def test_an_older_version_becomes_ours_when_it_is_written(tmp_path):
    store = open_store(tmp_path)
    old = {**V1, **ADDED[0], "metadata_version": 2, "storage_format_version": 1}
    store.put("metadata.json", json.dumps(old).encode())
    file = MetadataFile(store)
    file.load()
    assert json.loads(store.get("metadata.json")) == old
    file.change(lambda m: m.declaring(Regular("z")))
    document = json.loads(store.get("metadata.json"))
    assert (document["metadata_version"], document["storage_format_version"]) == (10, 3)
    assert document["computed_indexes"] == {"c": "a + 1"}


def test_missing_metadata_is_named(tmp_path):
    with pytest.raises(MetadataMissingOrCorruptError, match="does not exist"):
        MetadataFile(open_store(tmp_path)).load()


def test_no_change_of_racing_writers_is_lost(tmp_path):
    file = MetadataFile(open_store(tmp_path))
    assert file.create(Metadata("csv", "{}"))
    assert not file.create(Metadata("json", "{}"))
    start = threading.Barrier(4)

    def declare(writer: int) -> None:
        start.wait()
        for number in range(5):
            new = Regular(f"c{writer}_{number}")
            file.change(lambda m, new=new: m.declaring(new))

    threads = [threading.Thread(target=declare, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(file.load().declarations) == 20
