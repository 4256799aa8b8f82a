"""Streams from a table: each new row once, alerts by a search, and what stops a stream."""

from __future__ import annotations

import json
import pickle

import pyarrow as pa
import pytest

from indextables import Table
from indextables.errors import (
    ConfigError,
    NotATableError,
    PurgedVersionError,
    QueryError,
    StorageOptionError,
    StreamSourceError,
    UnknownColumnError,
    VersionNotFoundError,
)
from indextables.spark.data_source import IndexTablesSource


def rows(*ids: int, word: str = "fox") -> pa.Table:
    return pa.table({"id": list(ids), "body": [f"{word} {i}" for i in ids]})


class Stream:
    """Does what Spark does with a source, without Spark: batches until there is nothing new."""

    def __init__(self, place) -> None:
        self.place = place
        self.table = str(place / "t")
        self.checkpoints: dict[str, str] = {}

    def run(self, *, checkpoint="c", table=None, schema=None, **options) -> list[list[int]]:
        source = IndexTablesSource({"path": table or self.table, **options})
        reader = source.streamReader(schema or source.schema())
        at = json.loads(self.checkpoints.get(checkpoint) or json.dumps(reader.initialOffset()))
        reader.prepareForTriggerAvailableNow()
        batches = []
        while (end := reader.latestOffset(at, reader.getDefaultReadLimit())) != at:
            found: list[int] = []
            for part in pickle.loads(pickle.dumps(list(reader.partitions(at, end)))):
                for batch in pickle.loads(pickle.dumps(reader)).read(part):
                    found += batch.column(0).to_pylist()
            # The same again, as after a kill.
            again = reader.partitions(json.loads(json.dumps(at)), json.loads(json.dumps(end)))
            assert len(again) == len(reader.partitions(at, end))
            batches.append(sorted(found))
            at = end
        self.checkpoints[checkpoint] = json.dumps(at)
        return [batch for batch in batches if batch]


@pytest.fixture
def stream(tmp_path):
    return Stream(tmp_path)


@pytest.mark.parametrize("partition_by", [(), "part"])
def test_new_rows_once(stream, partition_by):
    def of(*ids, **more):
        found = rows(*ids, **more)
        return (
            found.append_column("part", pa.array([i % 2 for i in ids])) if partition_by else found
        )

    table = Table.create(stream.table, data=of(1, 3), partition_by=partition_by)
    table.append(of(5))
    assert stream.run() == [[1, 3, 5]]
    assert stream.run() == []
    table.append(of(7))
    table.append(of(9, word="dog"))
    table.merge_splits()
    table.set_properties({"owner": "me"})
    assert stream.run() == [[7, 9]]
    # Limits, from a version, from a time, with a search.
    assert stream.run(checkpoint="f", maxFilesPerTrigger="1") == [[1, 3, 5, 7, 9]], "merged"
    one = {"checkpoint": "v", "startingVersion": "1", "maxFilesPerTrigger": "1"}
    assert stream.run(**one) == [[5], [7], [9]]
    assert stream.run(checkpoint="b", startingVersion="0", maxBytesPerTrigger="1") == [
        [1, 3], [5], [7], [9],
    ]  # fmt: skip
    times = {h["version"]: h["timestamp"] for h in table.history().to_pylist()}
    since = times[2].isoformat()
    assert stream.run(checkpoint="s", startingTimestamp=since, where="id > 0") == [[7, 9]]
    assert stream.run(checkpoint="a", startingTimestamp="2000-01-01") == [[1, 3, 5, 7, 9]]
    assert stream.run(checkpoint="l", startingVersion="latest") == []
    search = {"checkpoint": "w", "startingVersion": "0", "where": "body indexquery 'dog'"}
    assert stream.run(**search) == [[9]]
    table.append(of(6, 7, word="dog"))
    table.append(of(8))
    assert stream.run(**search) == [[6, 7]]
    assert stream.run(checkpoint="l", startingVersion="latest") == [[6, 7, 8]]
    files = [[6], [7], [8]] if partition_by else [[6, 7], [8]]
    assert sorted(stream.run(**one)) == files


@pytest.mark.parametrize("mode", ["vector", "rewrite"])
def test_rows_that_are_removed(stream, mode):
    Table.create(stream.table, data=rows(1, 2, 3))
    table = Table.open(stream.table, config={"spark.indextables.deletionVectors.mode": mode})
    assert stream.run() == [[1, 2, 3]]
    table.delete(where="id = 1")
    table.append(rows(4))
    with pytest.raises(StreamSourceError, match=r"version 1 deleted rows.*ignoreDeletes"):
        stream.run()
    assert stream.run(ignoreDeletes="true") == [[4]]
    table.update({"body": "'new'"}, where="id = 2")
    table.overwrite(rows(3, 9))
    with pytest.raises(
        StreamSourceError, match=r"version 3 changed or replaced rows.*ignoreChanges"
    ):
        stream.run(ignoreDeletes="true")
    # Row 3 is what it was before.
    assert stream.run(ignoreChanges="true", maxFilesPerTrigger="1") == [[2], [9]]
    assert stream.run(
        checkpoint="x", startingVersion="1", ignoreChanges="true", where="body indexquery 'new'"
    ) == [[2]]


def test_what_stops_a_stream_is_a_sentence(stream):
    table = Table.create(stream.table, data=rows(1))
    other = Table.create(str(stream.place / "u"), data=rows(7))
    schema = IndexTablesSource({"path": stream.table}).schema()
    assert stream.run() == [[1]]
    with pytest.raises(StreamSourceError, match="belongs to another table"):
        stream.run(table=other.uri)
    for wrong in ({"startingVersion": "x"}, {"maxFilesPerTrigger": "0"},
                  {"ignoreDeletes": "perhaps"}, {"maxBytesPerTrigger": "much"},
                  {"startingVersion": "1", "startingTimestamp": "2024-01-01"}):  # fmt: skip
        with pytest.raises(ConfigError):
            stream.run(checkpoint="w", **wrong)
    with pytest.raises(StorageOptionError):
        stream.run(checkpoint="w", nonsense="1")
    with pytest.raises(VersionNotFoundError, match="no version 9"):
        stream.run(checkpoint="n", startingVersion="9")
    with pytest.raises(UnknownColumnError):
        stream.run(checkpoint="q", where="nothing = 1")
    with pytest.raises(ConfigError, match="startingVersion"):
        IndexTablesSource({"path": stream.table, "startingVersion": "1"}).reader(schema)
    table.append(rows(2))
    table.add_columns(pa.schema([("more", pa.string())]))
    with pytest.raises(StreamSourceError, match="columns changed"):
        stream.run(schema=schema)
    assert stream.run() == [[2]], "after a restart"
    for number in range(3, 6):
        table.append(rows(number))
    table.truncate_time_travel()
    with pytest.raises(PurgedVersionError, match="version 3"):
        stream.run()


def test_with_spark(spark, tmp_path):
    uri = str(tmp_path / "t")
    table = Table.create(uri, data=rows(1, 2))
    batches: list[list[int]] = []

    def run() -> None:
        source = spark.readStream.format("indextables").option("startingVersion", 0)
        source = source.option("where", "body indexquery 'fox'").option("maxFilesPerTrigger", 1)
        sink = source.load(uri).writeStream.foreachBatch(
            lambda df, _: batches.append(sorted(r.id for r in df.collect()))
        )
        sink = sink.option("checkpointLocation", str(tmp_path / "c")).trigger(availableNow=True)
        assert sink.start().awaitTermination(120)

    table.append(rows(3, 4, word="dog"))
    table.append(rows(5))
    run()
    table.append(rows(6))
    run()
    assert [batch for batch in batches if batch] == [[1, 2], [5], [6]]


def test_mistakes_are_told_by_load(spark, tmp_path):
    """In a worker they would be the end of a traceback."""
    uri = Table.create(str(tmp_path / "t"), data=rows(1)).uri

    def load(path=uri, **options):
        spark.readStream.format("indextables").options(**options).load(path)

    with pytest.raises(NotATableError):
        load(str(tmp_path / "nothing"))
    with pytest.raises(ConfigError, match="'path' is not specified"):
        load(None)
    with pytest.raises(UnknownColumnError, match="nope"):
        load(where="nope = 1")
    with pytest.raises(QueryError):
        load(where="body indexquery 'fox AND ('")
    with pytest.raises(VersionNotFoundError, match="no version 9"):
        load(startingVersion="9")
