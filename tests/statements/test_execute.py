"""Statements carried out without Spark: columns, counts, and errors as rows."""

from __future__ import annotations

from dataclasses import replace
from zoneinfo import ZoneInfo

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from indextables import SearchIndex, Table
from indextables.cli.queries import Tables
from indextables.cli.settings import Settings
from indextables.config import Config
from indextables.errors import ConfigError, NotATableError, StatementError, VersionNotFoundError
from indextables.statements import statements as s
from indextables.statements.execute import _EXECUTORS, Session, execute
from indextables.statements.session import REDACTED, Answer, answer, redacted
from indextables.statements.statements import STATEMENTS, Target, parse

ROWS = pa.table({"id": pa.array([1, 2, 3], pa.int64()), "body": ["red fox", "lazy dog", "red dog"]})


@pytest.fixture
def table(uri):
    table = Table.create(uri, ROWS.schema)
    table.append(ROWS)
    return table


@pytest.fixture
def session(tmp_path):
    def resolve(target: Target) -> Table:
        if target.path is None:
            raise StatementError(f"{target} is no path")
        return Table.open(target.path)

    config = Config({"spark.indextables.cache.disk.path": str(tmp_path / "cache")})
    return Session(resolve, config)


def run(sql, session):
    statement = parse(sql)
    assert statement is not None
    return execute(statement, session)


def one(sql, session):
    found = run(sql, session)
    assert found.num_rows == 1
    return found.to_pylist()[0]


def test_every_statement_has_an_executor():
    assert set(STATEMENTS) == set(_EXECUTORS)


REFRESHED = (
    "index_path,status,source,source_version,version,files_indexed,rows_indexed,files_removed,"
    "bytes_added,failed"
)
COLUMNS = {
    "FLUSH INDEXTABLES SEARCHER CACHE": "cache_type,status,cleared_entries,message",
    "FLUSH INDEXTABLES DISK CACHE": (
        "executor_id,cache_type,status,bytes_freed,files_deleted,message"
    ),
    "DESCRIBE INDEXTABLES DISK CACHE": (
        "executor_id,host,enabled,total_bytes,max_bytes,usage_percent,splits_cached,"
        "components_cached"
    ),
    "DESCRIBE INDEXTABLES STORAGE STATS": "executor_id,host,bytes_fetched,requests",
    "INVALIDATE INDEXTABLES TRANSACTION LOG CACHE FOR '{uri}'": (
        "table_path,result,cache_hits_before,cache_misses_before,hit_rate_before"
    ),
    "CHECKPOINT INDEXTABLES '{uri}'": (
        "table_path,status,checkpoint_version,num_actions,num_files,protocol_version,is_multi_part"
    ),
    "COMPACT INDEXTABLES '{uri}'": (
        "table_path,status,checkpoint_version,num_actions,num_files,protocol_version,is_multi_part"
    ),
    "DESCRIBE INDEXTABLES STATE '{uri}'": (
        "table_path,format,version,num_files,num_manifests,num_tombstones,tombstone_ratio,"
        "total_bytes,needs_compaction,status,num_deleted_rows,num_vector_files"
    ),
    "DESCRIBE INDEXTABLES TRANSACTION LOG '{uri}'": (
        "version,action_type,path,source_count,size,partition,log_file_path,partition_values,"
        "data_change,tags,modification_time,stats,min_values,max_values,num_records,"
        "footer_start_offset,footer_end_offset,hotcache_start_offset,hotcache_length,"
        "has_footer_offsets,time_range_start,time_range_end,split_tags,delete_opstamp,"
        "num_merge_ops,doc_mapping_json,doc_mapping_ref,uncompressed_size_bytes,"
        "deletion_timestamp,extended_file_metadata,skip_timestamp,skip_reason,skip_operation,"
        "skip_retry_after,skip_count,protocol_min_reader_version,protocol_min_writer_version,"
        "protocol_reader_features,protocol_writer_features,metadata_id,metadata_name,"
        "metadata_description,metadata_format_provider,metadata_format_options,"
        "metadata_schema_string,metadata_partition_columns,metadata_configuration,"
        "metadata_created_time,is_checkpoint,deletion_vector"
    ),
    "DESCRIBE INDEXTABLES HISTORY '{uri}'": (
        "version,timestamp,operation,filesAdded,filesRemoved,filesMarked,metrics,parameters"
    ),
    "DESCRIBE INDEXTABLES DETAIL '{uri}'": (
        "format,id,name,description,location,createdAt,lastModified,partitionColumns,numFiles,"
        "sizeInBytes,numRecords,properties,version,minReaderVersion,minWriterVersion,tableFeatures"
    ),
    "DESCRIBE INDEXTABLES ENVIRONMENT": "host,role,property_type,property_name,property_value",
    "RESTORE INDEXTABLES '{uri}' TO VERSION 0": (
        "table_path,status,restored_version,version,num_files,total_size_bytes"
    ),
    "CREATE SEARCH INDEX '{uri}-index' ON parquet.`{source}` (body)": REFRESHED,
    "REFRESH SEARCH INDEX '{index}'": REFRESHED,
    "DESCRIBE SEARCH INDEX '{index}'": (
        "index_path,source,format,columns,version,index_bytes,source_version,source_files,"
        "source_bytes,files_indexed,files_not_indexed,splits_not_needed"
    ),
    "DROP SEARCH INDEX '{index}'": "index_path,status,source",
}


@pytest.mark.parametrize("sql", COLUMNS)
def test_output_columns(sql, table, uri, session, tmp_path):
    if "SEARCH INDEX" in sql:
        source = tmp_path / "source"
        source.mkdir()
        pq.write_table(pa.table({"body": ["x"]}), source / "a.parquet")
        index = SearchIndex.create(tmp_path / "index", source=source, format="parquet").uri
        sql_text = sql.format(uri=tmp_path, source=source, index=index)
        session = replace(session, indexes=Tables(Settings()))
    else:
        sql_text = sql.format(uri=uri)
    found = run(sql_text, session)
    assert ",".join(found.schema.names) == COLUMNS[sql]
    assert found.num_rows


def test_every_statement_has_a_test_of_its_columns():
    tested = {type(parse(sql.format(uri="x", source="x", index="x"))) for sql in COLUMNS}
    # In test_maintenance.py, test_crossreferences.py, test_merge.py and lake/test_convert.py.
    elsewhere = {
        s.Purge, s.DropPartitions, s.TruncateTimeTravel, s.RepairLog, s.Verify,
        s.DescribeComponentSizes, s.Prewarm, s.DeleteRows, s.UpdateRows, s.IndexCrossReferences,
        s.MergeSplits, s.ConvertTable, s.DescribeMergeJobs,
    }  # fmt: skip
    assert tested | elsewhere == set(STATEMENTS)


# --- checkpoints and state -------------------------------------------------------------------


def test_checkpoint_and_state(table, uri, session):
    state = one(f"DESCRIBE INDEXTABLES STATE '{uri}'", session)
    assert (state["format"], state["version"], state["num_files"]) == ("none", 1, 1)
    assert state["status"] == "OK"
    for verb in ("CHECKPOINT", "COMPACT", "CHECKPOINT"):
        written = one(f"{verb} INDEXTABLES '{uri}'", session)
        assert (written["status"], written["checkpoint_version"]) == ("SUCCESS", 1)
        assert (written["num_files"], written["protocol_version"]) == (1, 4)
        assert written["is_multi_part"] is False
    table.append(ROWS)
    table.overwrite(ROWS)
    one(f"CHECKPOINT INDEXTABLES '{uri}'", session)
    state = one(f"DESCRIBE INDEXTABLES STATE '{uri}'", session)
    assert (state["format"], state["version"], state["num_files"]) == ("avro-state", 3, 1)
    assert state["num_manifests"] >= 1
    assert state["total_bytes"] == table.snapshot().total_bytes


def test_state_of_a_json_checkpoint(uri, session):
    table = Table.create(uri, ROWS.schema, properties={"spark.indextables.state.format": "json"})
    table.append(ROWS)
    assert one(f"CHECKPOINT INDEXTABLES '{uri}'", session)["status"] == "SUCCESS"
    state = one(f"DESCRIBE INDEXTABLES STATE '{uri}'", session)
    assert (state["format"], state["version"], state["num_manifests"]) == ("json", 1, 0)


def test_a_missing_table_is_an_error_to_maintain_and_a_row_to_describe(uri, session):
    with pytest.raises(NotATableError, match="not an index table"):
        one(f"CHECKPOINT INDEXTABLES '{uri}'", session)
    row = one(f"DESCRIBE INDEXTABLES STATE '{uri}'", session)
    assert row["table_path"] == uri
    assert row["status"].startswith("ERROR: ")
    assert "not an index table" in row["status"]


@pytest.mark.parametrize(
    "form",
    [
        "DESCRIBE INDEXTABLES TRANSACTION LOG '{}'",
        "INVALIDATE INDEXTABLES TRANSACTION LOG CACHE FOR '{}'",
        "RESTORE INDEXTABLES '{}' TO VERSION 0",
    ],
)
def test_a_missing_table_is_an_error(form, uri, session):
    with pytest.raises(NotATableError, match="not an index table"):
        run(form.format(uri), session)


def test_what_is_no_table_is_refused_by_whoever_resolves_it(session):
    with pytest.raises(StatementError, match="my_view is no path"):
        run("CHECKPOINT INDEXTABLES my_view", session)


def test_restore(table, uri, session):
    table.append(ROWS)
    row = one(f"RESTORE INDEXTABLES '{uri}' TO VERSION 1", session)
    assert (row["restored_version"], row["version"], row["num_files"]) == (1, 3, 1)
    assert Table.open(uri).count() == 3
    with pytest.raises(VersionNotFoundError, match="Versions 0 to 3"):
        run(f"RESTORE INDEXTABLES '{uri}' TO VERSION 9", session)


# --- the log ---------------------------------------------------------------------------------


def test_log_newest_first_from_the_checkpoint_on(table, uri, session):
    table.overwrite(ROWS)
    table.checkpoint()
    table.append(ROWS)
    rows = run(f"DESCRIBE INDEXTABLES TRANSACTION LOG '{uri}'", session).to_pylist()
    assert [r["version"] for r in rows] == sorted((r["version"] for r in rows), reverse=True)
    checkpointed = [r for r in rows if r["is_checkpoint"]]
    assert {r["version"] for r in checkpointed} == {2}
    assert [r["action_type"] for r in checkpointed] == ["protocol", "metadata", "add"]
    assert "state-v" in checkpointed[0]["log_file_path"]
    adds = [r for r in rows if r["action_type"] == "add"]
    assert {r["path"] for r in adds} == set(table.snapshot().files["path"].to_pylist())
    assert all(r["num_records"] == 3 and r["size"] > 0 for r in adds)


def test_log_include_all_and_limit(table, uri, session):
    table.overwrite(ROWS)
    table.checkpoint()
    rows = run(f"DESCRIBE INDEXTABLES TRANSACTION LOG '{uri}' INCLUDE ALL", session).to_pylist()
    assert {r["version"] for r in rows} == {0, 1, 2}
    assert not any(r["is_checkpoint"] for r in rows)
    assert sum(r["action_type"] == "remove" for r in rows) == 1
    limited = run(f"DESCRIBE INDEXTABLES TRANSACTION LOG '{uri}' INCLUDE ALL LIMIT 2", session)
    assert limited.to_pylist() == rows[:2]
    empty = run(f"DESCRIBE INDEXTABLES TRANSACTION LOG '{uri}' LIMIT 0", session)
    assert (empty.num_rows, empty.schema) == (0, limited.schema)


def test_log_of_a_partitioned_table(uri, session):
    table = Table.create(uri, ROWS.schema, partition_by=["id"])
    table.append(ROWS)
    rows = run(f"DESCRIBE INDEXTABLES TRANSACTION LOG '{uri}'", session).to_pylist()
    adds = [r for r in rows if r["action_type"] == "add"]
    assert {r["partition"] for r in adds} == {"id=1", "id=2", "id=3"}
    assert sorted(r["partition_values"] for r in adds) == [[("id", str(n))] for n in (1, 2, 3)]


def test_log_shows_no_secret(uri, session):
    properties = {"spark.indextables.state.format": "json", "my.secret.key": "hush"}
    Table.create(uri, ROWS.schema, properties=properties)
    text = str(run(f"DESCRIBE INDEXTABLES TRANSACTION LOG '{uri}'", session).to_pylist())
    assert "hush" not in text
    assert REDACTED in text


# --- caches ----------------------------------------------------------------------------------


def test_invalidate_counts_what_was_before(table, uri, session):
    table.log.invalidate()
    table.snapshot()
    table.snapshot()
    stats = table.cache_stats().values()
    hits, misses = sum(s.hits for s in stats), sum(s.misses for s in stats)
    assert hits > 0
    row = one(f"INVALIDATE TANTIVY4SPARK TRANSACTION LOG CACHE FOR '{uri}'", session)
    assert row["table_path"] == table.uri
    assert row["result"] == "Transaction log cache invalidated successfully"
    assert (row["cache_hits_before"], row["cache_misses_before"]) == (hits, misses)
    assert row["hit_rate_before"] == f"{100 * hits / (hits + misses):.1f}%"
    assert all(s.entries == 0 for s in table.cache_stats().values())


def test_finding_the_table_is_not_counted(table, uri, session):
    table.log.invalidate()
    before = [(s.hits, s.misses) for s in table.cache_stats().values()]

    def resolve(_: Target) -> Table:
        table.snapshot()
        table.snapshot()
        return table

    row = one(f"INVALIDATE TRANSACTION LOG CACHE FOR '{uri}'", Session(resolve, session.config))
    assert row["cache_hits_before"] == sum(hits for hits, _ in before)
    assert row["cache_misses_before"] == sum(misses for _, misses in before)


def test_invalidate_one_table_leaves_others_alone(table, uri, session, tmp_path):
    other = Table.create(str(tmp_path / "other"), ROWS.schema)
    other.snapshot()
    run(f"INVALIDATE TRANSACTION LOG CACHE FOR TABLE '{uri}'", session)
    assert any(s.entries for s in other.cache_stats().values())
    row = one("INVALIDATE INDEXTABLES TRANSACTION LOG CACHE", session)
    assert row["table_path"] == "GLOBAL"
    assert not any(s.entries for s in other.cache_stats().values())


def test_flush_searcher_cache_counts_open_indexes(table, uri, session):
    run("FLUSH INDEXTABLES SEARCHER CACHE", session)
    table.search("fox")
    rows = {
        r["cache_type"]: r for r in run("FLUSH INDEXTABLES SEARCHER CACHE", session).to_pylist()
    }
    assert list(rows) == ["split_cache", "location_registry", "tantivy_java_cache"]
    assert {r["status"] for r in rows.values()} == {"success"}
    # A ranked search opens the indexes of all splits as one.
    assert rows["tantivy_java_cache"]["cleared_entries"] == 1
    assert rows["location_registry"]["cleared_entries"] == 0
    assert "no preferred hosts" in rows["location_registry"]["message"]
    again = run("FLUSH INDEXTABLES SEARCHER CACHE", session).to_pylist()
    assert [r["cleared_entries"] for r in again] == [0, 0, 0]
    assert table.search("fox")["id"].to_pylist() == [1]


def test_flush_and_describe_disk_cache(session, tmp_path):
    cache = "spark.indextables.cache.disk.path"
    folder = str(tmp_path / "cache")
    store = f"memory://{tmp_path.name}-disk-cache"
    table = Table.create(store, ROWS.schema, config={cache: folder})
    table.append(ROWS)
    table.search("fox")
    held = one("DESCRIBE INDEXTABLES DISK CACHE", session)
    assert held["executor_id"] == "driver"
    assert held["enabled"] is True
    assert held["components_cached"] > 0
    assert held["total_bytes"] > 0
    freed = one("FLUSH INDEXTABLES DISK CACHE", session)
    assert (freed["status"], freed["cache_type"]) == ("success", "disk_cache")
    assert freed["bytes_freed"] == held["total_bytes"]
    assert freed["files_deleted"] == held["components_cached"]
    assert one("DESCRIBE INDEXTABLES DISK CACHE", session)["total_bytes"] == 0
    assert table.search("fox")["id"].to_pylist() == [1]


def test_a_cache_that_cannot_be_flushed_says_so(session, tmp_path):
    (tmp_path / "cache").write_text("a file where a folder should be")
    row = one("FLUSH INDEXTABLES DISK CACHE", session)
    assert row["status"] == "failed"
    assert "Cannot flush the cache folder" in row["message"]
    rows = run("FLUSH INDEXTABLES SEARCHER CACHE", session).to_pylist()
    assert [r["status"] for r in rows] == ["failed", "success", "failed"]


class TwoPlaces:
    """A driver and an executor that fails."""

    def run(self, function):
        return [answer("driver", function), Answer("1", "far", error="it is gone")]


def test_every_place_is_counted(session):
    session = Session(session.resolve, session.config, TwoPlaces())
    rows = run("FLUSH INDEXTABLES DISK CACHE", session).to_pylist()
    assert [(r["executor_id"], r["status"]) for r in rows] == [
        ("driver", "success"),
        ("1", "failed"),
    ]
    assert "it is gone" in rows[1]["message"]
    assert (
        "1 on far: it is gone"
        in run("FLUSH INDEXTABLES SEARCHER CACHE", session)["message"][0].as_py()
    )
    assert (
        "not on 1 on far" in one("INVALIDATE INDEXTABLES TRANSACTION LOG CACHE", session)["result"]
    )


# --- the environment -------------------------------------------------------------------------


def test_environment_is_redacted(session):
    properties = {
        "fs.s3a.secret.key": "hush1",
        "spark.executor.extraJavaOptions": "-Dpassword=hush2",
        "url": "https://me:hush3@host/x",
        "spark.app.name": "logs",
    }
    session = Session(session.resolve, session.config, properties=properties)
    found = run("DESCRIBE INDEXTABLES ENVIRONMENT", session)
    values = {r["property_name"]: r["property_value"] for r in found.to_pylist()}
    assert values["spark.app.name"] == "logs"
    assert values["fs.s3a.secret.key"] == REDACTED
    assert "hush" not in str(found.to_pylist())
    assert values["pyarrow"] == pa.__version__
    assert set(found["role"].to_pylist()) == {"driver"}


@pytest.mark.parametrize(
    "name",
    [
        "fs.azure.account.key.x",
        "sessionToken",
        "a.PASSWORD",
        "api_key",
        "connectionString",
        "x.sas",
    ],
)
def test_names_of_secrets(name):
    assert redacted({name: "v"}) == {name: REDACTED}


def test_harmless_names_stay():
    settings = {"spark.indextables.fastFields": "a", "keyspace": "b", "path": "s3://b/t"}
    assert redacted(settings) == settings


def test_compact_writes_all_live_files_to_new_manifests(table, uri, session):
    one(f"CHECKPOINT INDEXTABLES '{uri}'", session)
    for _ in range(3):
        table.append(ROWS)
        one(f"CHECKPOINT INDEXTABLES '{uri}'", session)
    assert one(f"DESCRIBE INDEXTABLES STATE '{uri}'", session)["num_manifests"] > 1
    one(f"COMPACT INDEXTABLES '{uri}'", session)
    state = one(f"DESCRIBE INDEXTABLES STATE '{uri}'", session)
    assert (state["num_manifests"], state["num_files"]) == (1, 4)


def test_the_words_of_delta_lake(table, uri, session):
    """They do what our own statements do; only MERGE SPLITS and PURGE have more clauses."""
    first = table.version
    table.append(ROWS)
    history = run(f"DESCRIBE HISTORY '{uri}' LIMIT 2", session)
    assert history.equals(table.refresh().history(limit=2))
    detail = one(f"DESC DETAIL '{uri}'", session)
    assert (detail["version"], detail["numRecords"]) == (table.version, table.count())
    assert (detail["location"], detail["numFiles"]) == (table.uri, table.snapshot().num_files)
    assert detail["lastModified"] == history["timestamp"][0].as_py()
    assert one(f"OPTIMIZE '{uri}'", session)["metrics"]["merged_files"] == 2
    purged = one(f"VACUUM '{uri}' RETAIN 168 HOURS DRY RUN", session)["metrics"]
    assert (purged["status"], purged["retention_hours"]) == ("DRY_RUN", 168)
    rows = table.refresh().count()
    restored = one(f"RESTORE TABLE '{uri}' TO VERSION AS OF {first}", session)
    assert restored["restored_version"] == first and table.refresh().count() < rows
    moment = history["timestamp"][0].as_py()
    zone = replace(session, timezone="America/New_York")
    local = moment.astimezone(ZoneInfo("America/New_York")).replace(tzinfo=None)
    restored = one(f"RESTORE '{uri}' TO TIMESTAMP AS OF '{local.isoformat()}'", zone)
    assert restored["restored_version"] == first + 1 and table.refresh().count() == rows
    with pytest.raises(ConfigError, match="is not a time"):
        run(f"RESTORE INDEXTABLES '{uri}' TO TIMESTAMP 'yesterday'", session)
    for other in ("OPTIMIZE t ZORDER BY (a)", "VACUUM t LITE", "DESCRIBE HISTORY", "RESTORE t"):
        assert parse(other) is None, other
