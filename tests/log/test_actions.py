from __future__ import annotations

import orjson
import pytest

from indextables.errors import CorruptLogError
from indextables.log.actions import (
    Add,
    AddXRef,
    CommitInfo,
    Metadata,
    Protocol,
    Remove,
    RemoveXRef,
    Skip,
    UnknownAction,
    action_from_json,
)

# The examples of the protocol documents, and each action with every field.
EXAMPLES = [
    {"protocol": {"minReaderVersion": 4, "minWriterVersion": 4, "readerFeatures": ["avroState"],
                  "writerFeatures": ["avroState", "schemaDeduplication"]}},
    {"metaData": {"id": "550e8400", "name": "n", "description": "d",
                  "format": {"provider": "indextables", "options": {}},
                  "schemaString": "{}", "partitionColumns": ["date"],
                  "configuration": {"docMappingSchema.ab12": "[]"}, "createdTime": 1704067200000}},
    {"add": {"path": "date=2024-01-01/splits/split-abc123.split",
             "partitionValues": {"date": "2024-01-01"}, "size": 1048576,
             "modificationTime": 1704067200000, "dataChange": True, "stats": "{}",
             "tags": {"a": "b"}, "minValues": {"score": "0.1"}, "maxValues": {"score": "0.9"},
             "numRecords": 1000, "footerStartOffset": 900000, "footerEndOffset": 1048500,
             "hotcacheStartOffset": 1, "hotcacheLength": 2, "hasFooterOffsets": True,
             "timeRangeStart": "2024-01-01T00:00:00Z", "timeRangeEnd": "2024-01-02T00:00:00Z",
             "splitTags": ["x", "y"], "deleteOpstamp": 3, "numMergeOps": 1,
             "docMappingRef": "ab12cd34ef56gh78", "docMappingJson": "[]",
             "uncompressedSizeBytes": 5, "companionSourceFiles": ["a.parquet"],
             "companionDeltaVersion": 4, "companionFastFieldMode": "HYBRID"}},
    {"remove": {"path": "splits/old.split", "deletionTimestamp": 1704153600000, "dataChange": True,
                "extendedFileMetadata": True, "partitionValues": {"date": None}, "size": 7,
                "tags": {"a": "b"}, "stats": "{}"}},
    {"mergeskip": {"path": "splits/corrupted.split", "skipTimestamp": 1, "reason": "r",
                   "operation": "merge", "partitionValues": {"d": "1"}, "size": 3,
                   "retryAfter": 2, "skipCount": 1}},
    {"addXRef": {"path": "_xrefsplits/kmpq/xref-abc123.split", "xrefId": "abc123",
                 "sourceSplitPaths": ["part-0.split"], "sourceSplitCount": 1, "size": 15728640,
                 "totalTerms": 125000, "footerStartOffset": 15700000,
                 "footerEndOffset": 15728640, "createdTime": 1702600000000,
                 "buildDurationMs": 5432, "maxSourceSplits": 1024, "docMappingJson": "[]"}},
    {"removeXRef": {"path": "_xrefsplits/kmpq/xref-abc123.split", "xrefId": "abc123",
                    "deletionTimestamp": 1702600500000, "reason": "replaced"}},
    {"commitInfo": {"txnId": "t", "timestamp": 5, "operation": "APPEND",
                    "operationParameters": {"mode": "x"}, "operationMetrics": {"rows": 1},
                    "readVersion": 3, "engineInfo": "e", "checksum": "00000000"}},
]  # fmt: skip
KINDS = [Protocol, Metadata, Add, Remove, Skip, AddXRef, RemoveXRef, CommitInfo]


@pytest.mark.parametrize(("document", "kind"), list(zip(EXAMPLES, KINDS, strict=True)))
def test_every_field_survives(document, kind):
    action = action_from_json(document, where="x")
    assert type(action) is kind
    assert not action.extra
    assert orjson.loads(orjson.dumps(action.to_json())) == document


@pytest.mark.parametrize("document", EXAMPLES)
def test_unknown_fields_are_kept(document):
    ((name, body),) = document.items()
    later = {name: {**body, "fromTheFuture": {"a": [1]}}}
    action = action_from_json(later, where="x")
    assert action.extra == {"fromTheFuture": {"a": [1]}}
    assert orjson.loads(orjson.dumps(action.to_json())) == later


def test_unknown_actions_are_kept():
    document = {"replaceWhere": {"predicate": "a = 1"}}
    action = action_from_json(document, where="x")
    assert isinstance(action, UnknownAction)
    assert action.to_json() == document


def test_nulls_of_the_scala_writer_mean_the_default():
    add = action_from_json(
        {"add": {"path": "a", "partitionValues": {}, "size": 1, "modificationTime": 1,
                 "dataChange": True, "hasFooterOffsets": None, "stats": None}},
        where="x",
    )  # fmt: skip
    assert add == Add(path="a", size=1, modification_time=1)


@pytest.mark.parametrize(
    "document",
    [
        [], {}, {"add": 1}, {"add": {}, "remove": {}}, {"add": {"size": 1}},
        {"add": {"path": 7}}, {"add": {"path": "a", "size": "1"}},
        {"add": {"path": "a", "size": True}},
        {"add": {"path": "a", "size": 1 << 63}}, {"add": {"path": "a", "numMergeOps": 1 << 31}},
        {"add": {"path": "a", "partitionValues": {"d": 1}}},
        {"add": {"path": "a", "splitTags": [1]}},
        {"metaData": {"id": "x", "schemaString": "{}", "partitionColumns": "date"}},
        {"protocol": {"minReaderVersion": 4}},
    ],
)  # fmt: skip
def test_what_is_no_action_is_damage(document):
    with pytest.raises(CorruptLogError, match=r"00\.json"):
        action_from_json(document, where="00.json")
