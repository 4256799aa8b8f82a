"""Avro states: what goes in comes out, incremental or compacted, and nothing damaged does."""

from __future__ import annotations

import contextlib
import hashlib
import io
import random
from dataclasses import replace

import fastavro
import pyarrow as pa
import pytest
from checkpoint_cases import (
    PROTOCOL,
    RUNNER,
    XREF,
    add,
    adds,
    config,
    content,
    memory_store,
    metadata,
    rows,
    snapshot_of,
    snapshots,
    versions,
)
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from indextables.errors import (
    CorruptLogError,
    LogError,
    LogTooLargeError,
    StorageError,
    UnsafePathError,
    UnsupportedFeatureError,
)
from indextables.log.actions import Add, Metadata, Protocol, Remove, Skip
from indextables.log.checkpoint import avro_state
from indextables.log.checkpoint.avro_container import read_container, write_container
from indextables.log.checkpoint.avro_state import load_state, read_state_manifest
from indextables.log.checkpoint.checkpoints import write_state
from indextables.log.checkpoint.state_schema import (
    FILE_ENTRY,
    STATE_MANIFEST,
    PartitionBounds,
    state_to_record,
)
from indextables.log.files import REGISTRY_PREFIX, mapping_hash
from indextables.log.layout import (
    LOG_DIRECTORY,
    MANIFEST_DIRECTORY,
    encode_actions,
    state_path,
    version_path,
)
from indextables.log.snapshot import empty_snapshot


def load(store, version, **options):
    return load_state(store, version, config=config(), runner=RUNNER, **options)


def written(snapshot, store=None, *, cfg=None, **options):
    store = store or memory_store()
    write_state(store, snapshot, config=cfg or config(), runner=RUNNER, **options)
    return store


def state_of(store, version):
    return read_state_manifest(store, version, config=config())


def manifests(store) -> list[str]:
    return [meta.path for meta in store.list(MANIFEST_DIRECTORY)]


# --- round trips -----------------------------------------------------------------------------


@settings(suppress_health_check=[HealthCheck.too_slow])
@given(snapshots(), st.sampled_from(["zstd", "snappy", "none"]), st.sampled_from([1, 2, 50_000]))
def test_round_trip(snapshot, codec, per_manifest):
    store = written(
        snapshot, cfg=config(state_compression=codec, state_entriesPerManifest=per_manifest)
    )
    found = load(store, snapshot.version)
    assert content(found) == content(replace(snapshot, uri=store.uri))
    assert found.entries.schema == snapshot.entries.schema


@settings(max_examples=30, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(st.lists(adds(), max_size=3), min_size=2, max_size=5), st.data())
def test_a_chain_of_incremental_states_equals_full_ones(groups, data):
    """Random adds, removes and returns; each state builds on the one before."""
    store = memory_store()
    snapshot = empty_snapshot("memory://x").advance(versions([PROTOCOL, metadata()]))
    written(snapshot, store)
    for number, group in enumerate(groups, start=1):
        live = snapshot.entries["path"].to_pylist()
        gone = data.draw(st.lists(st.sampled_from(live), unique=True, max_size=2)) if live else []
        new = versions([*(Remove(path=p) for p in gone), *group], first=number)
        snapshot = snapshot.advance(new)
        loose = config(state_compaction_tombstoneThreshold=1.0, state_compaction_afterMerge=False)
        written(snapshot, store, cfg=loose, base=state_of(store, number - 1), changed=new)
        assert content(load(store, number)) == content(snapshot)
        full = written(snapshot)
        assert rows(load(full, number)) == rows(snapshot)


def test_the_schema_is_the_one_of_the_protocol():
    ids = {field["name"]: field["field-id"] for field in FILE_ENTRY["fields"]}
    assert ids["hasFooterOffsets"] == 124 and ids["docMappingRef"] == 135
    assert len(set(ids.values())) == len(ids)
    assert FILE_ENTRY["namespace"] == STATE_MANIFEST["namespace"] == "io.indextables.state"
    assert set(ids) == set(snapshot_of().entries.schema.names)


def test_other_avro_readers_read_our_state():
    snapshot = snapshot_of([add("a.split", num_records=3)])
    store = written(snapshot, cfg=config(state_compression="none"))
    (record,) = fastavro.reader(io.BytesIO(store.get(state_path(1))))
    assert (record["stateVersion"], record["numFiles"], record["protocolVersion"]) == (1, 1, 4)
    assert record["metadata"].startswith('{"metaData":{')
    (info,) = record["manifests"]
    data = store.get(f"{LOG_DIRECTORY}/{info['path']}")
    assert info["path"] == f"manifests/manifest-{hashlib.sha256(data).hexdigest()[:32]}.avro"
    assert info["liveEntryCount"] == 1
    (entry,) = fastavro.reader(io.BytesIO(data))
    assert (entry["path"], entry["numRecords"], entry["addedAtVersion"]) == ("a.split", 3, 1)


def test_expired_skips_are_dropped_and_others_kept():
    skips = [
        Skip(path=p, skip_timestamp=1, reason="r", operation="merge", retry_after=after)
        for p, after in [("expired", 5), ("waiting", 10**15), ("open", None)]
    ]
    store = written(snapshot_of(skips))
    assert set(load(store, 1).skips) == {"waiting", "open"}


def test_a_partial_snapshot_is_no_checkpoint():
    with pytest.raises(ValueError, match="lacks files"):
        written(replace(snapshot_of(), unread=lambda _keep: snapshot_of()))


def test_a_state_that_exists_stays():
    first = snapshot_of([add("a.split")])
    store = written(first)
    before = store.get(state_path(1))
    written(snapshot_of([add("b.split")]), store)
    assert store.get(state_path(1)) == before


# --- incremental -----------------------------------------------------------------------------

TEN = [add(f"splits/{n}.split", size=n) for n in range(10)]


def step(changes, *, cfg=None, base_actions=TEN, **options):
    """A state of ten files, then one on top of it; gives store and second state."""
    store = memory_store()
    first = snapshot_of(base_actions)
    written(first, store)
    new = versions(*changes, first=2)
    second = first.advance(new)
    written(second, store, cfg=cfg, base=state_of(store, 1), changed=new, **options)
    assert content(load(store, second.version)) == content(second)
    return store, state_of(store, second.version)


def test_an_append_writes_only_what_is_new():
    store, state = step([[add("splits/new.split")]])
    first, second = state.manifests
    assert first.path == state_of(store, 1).manifests[0].path
    assert (first.num_entries, first.live_entry_count, second.num_entries) == (10, 10, 1)
    assert len(manifests(store)) == 2


def test_a_remove_becomes_a_tombstone():
    _, state = step([[Remove(path="splits/3.split")]])
    assert state.tombstones == ("splits/3.split",)
    (info,) = state.manifests
    assert (info.tombstone_count, info.live_entry_count) == (1, 9)
    assert (state.num_files, state.total_bytes) == (9, 45 - 3)


def test_a_file_that_came_and_went_leaves_no_trace():
    _, state = step([[add("splits/new.split")], [Remove(path="splits/new.split")]])
    assert state.tombstones == ()
    assert len(state.manifests) == 1


def test_nothing_new():
    store, state = step([[]])
    assert len(state.manifests) == 1
    assert len(manifests(store)) == 1


MERGED = [Remove(path="splits/1.split", data_change=False), add("m.split", data_change=False)]
COMPACTING = {
    "a file that came back": ([[Remove(path="splits/1.split")], [TEN[1]]], {}),
    "a file that was replaced": ([[add("splits/1.split", size=99)]], {}),
    "replaced and removed": ([[TEN[1]], [Remove(path="splits/1.split"), add("n.split")]], {}),
    "too many tombstones": ([[Remove(path=f"splits/{n}.split") for n in (1, 2)]], {}),
    "a low threshold": (
        [[Remove(path="splits/1.split")]],
        {"state_compaction_tombstoneThreshold": 0.05},
    ),
    "too many manifests": ([[add("n.split")]], {"state_compaction_maxManifests": 1}),
    "many removes": (
        [[add("n.split")], [Remove(path="n.split")], [add("o.split")], [Remove(path="o.split")]],
        {"state_compaction_largeRemoveThreshold": 1},
    ),
    "a merge": ([MERGED], {}),
    "a merged file": ([[add("m.split", num_merge_ops=1)]], {}),
}


@pytest.mark.parametrize("case", COMPACTING)
def test_compaction(case):
    changes, options = COMPACTING[case]
    if case == "replaced and removed":  # the removed one is in the base and must be a tombstone
        _, state = step(changes, cfg=config(**options))
        assert state.tombstones == ("splits/1.split",)
        return
    _, state = step(changes, cfg=config(**options))
    assert state.tombstones == ()
    assert len(state.manifests) == 1
    assert state.manifests[0].live_entry_count == state.num_files == state.manifests[0].num_entries


NOT_COMPACTING = {
    "few removes": ([[Remove(path="splits/1.split")]], {}, 1, 1),
    "many removes allowed": (
        [[Remove(path=f"splits/{n}.split") for n in (1, 2)]],
        {"state_compaction_tombstoneThreshold": 0.5},
        1,
        2,
    ),
    "a merge that need not compact": (
        [MERGED],
        {"state_compaction_afterMerge": False},
        2,
        1,
    ),
}


@pytest.mark.parametrize("case", NOT_COMPACTING)
def test_no_compaction(case):
    changes, options, count, tombstones = NOT_COMPACTING[case]
    _, state = step(changes, cfg=config(**options))
    assert (len(state.manifests), len(state.tombstones)) == (count, tombstones)


def test_compaction_on_demand():
    _, state = step([[Remove(path="splits/1.split")]], compact=True)
    assert state.tombstones == ()


def test_totals_that_drifted_lead_to_a_full_state():
    store = memory_store()
    first = snapshot_of(TEN)
    written(first, store)
    new = versions([add("n.split")], first=2)
    base = replace(state_of(store, 1), total_bytes=12345)
    written(first.advance(new), store, base=base, changed=new)
    assert len(state_of(store, 2).manifests) == 1


def test_a_lost_manifest_of_the_base_leads_to_a_full_state():
    store = memory_store()
    first = snapshot_of(TEN)
    written(first, store)
    store.delete(manifests(store))
    new = versions([Remove(path="splits/1.split")], first=2)
    written(first.advance(new), store, base=state_of(store, 1), changed=new)
    assert load(store, 2).num_files == 9


def test_tombstones_of_several_steps_are_counted_by_manifest():
    loose = config(state_compaction_tombstoneThreshold=1.0)
    store, _ = step([[add("splits/a.split")]], cfg=loose)
    snapshot = load(store, 2)
    for version, path in [(3, "splits/1.split"), (4, "splits/a.split")]:
        new = versions([Remove(path=path)], first=version)
        snapshot = snapshot.advance(new)
        written(snapshot, store, cfg=loose, base=state_of(store, version - 1), changed=new)
    state = state_of(store, 4)
    assert [(i.tombstone_count, i.live_entry_count) for i in state.manifests] == [(1, 9), (1, 0)]
    assert content(load(store, 4)) == content(snapshot)


def test_a_file_that_comes_back_after_its_tombstone_was_written():
    """The numbers add up, but the old tombstone would hide the new file."""
    loose = config(state_compaction_tombstoneThreshold=1.0)
    store, state = step([[Remove(path="splits/1.split")]], cfg=loose)
    assert state.tombstones == ("splits/1.split",)
    new = versions([TEN[1]], first=3)
    snapshot = load(store, 2).advance(new)
    written(snapshot, store, cfg=loose, base=state, changed=new)
    assert content(load(store, 3)) == content(snapshot)
    assert load(store, 3).num_files == 10


# --- layout and configuration ----------------------------------------------------------------


@pytest.mark.parametrize(
    ("codec", "name"), [("zstd", b"zstandard"), ("snappy", b"snappy"), ("none", b"null")]
)
def test_the_codec(codec, name):
    store = written(snapshot_of(TEN), cfg=config(state_compression=codec))
    for path in (manifests(store)[0], state_path(1)):
        assert b"avro.codec" + bytes([2 * len(name)]) + name in store.get(path)


def test_the_level():
    sizes = []
    for level in (1, 19):
        actions = [add(f"splits/{n:08d}-{n * 7919}.split") for n in range(3000)]
        store = written(snapshot_of(actions), cfg=config(state_compressionLevel=level))
        sizes.append(len(store.get(manifests(store)[0])))
    assert sizes[1] < sizes[0]


def test_entries_per_manifest():
    store = written(snapshot_of(TEN), cfg=config(state_entriesPerManifest=3))
    counts = [info.num_entries for info in state_of(store, 1).manifests]
    assert counts == [3, 3, 3, 1]


HIVE_NULL = "__HIVE_DEFAULT_PARTITION__"
BOUNDS = {
    "integers by number": ("integer", ["9", "10", "-2"], ("-2", "10")),
    "longs": ("long", ["9", "10", "007"], ("007", "10")),
    "text by text": ("string", ["9", "10"], ("10", "9")),
    "dates": ("date", ["2024-02-01", "2023-12-31"], ("2023-12-31", "2024-02-01")),
    "doubles": ("double", ["1e3", "20.5", "-0.5"], ("-0.5", "1e3")),
    "floats keep their digits": ("float", ["0.1000000001", "0.1"], ("0.1", "0.1000000001")),
    "decimals": ("decimal(10,2)", ["9.50", "10.25"], ("9.50", "10.25")),
    "booleans": ("boolean", ["true", "false"], ("false", "true")),
    "moments": (
        "timestamp_ntz",
        ["2024-01-01 00:00:00.5", "2024-01-01 00:00:00"],
        ("2024-01-01 00:00:00", "2024-01-01 00:00:00.5"),
    ),
    "a null": ("integer", ["1", None], None),
    "a null as Hive writes it": ("string", ["1", HIVE_NULL], None),
    "no number": ("integer", ["1", "x"], None),
    "out of range": ("byte", ["1", "300"], None),
    "not a number": ("double", ["1", "NaN"], None),
    "moments without a zone, whose order depends on one": (
        "timestamp",
        ["2024-01-01 00:00:00", "2024-01-01 01:00:00"],
        None,
    ),
}


@pytest.mark.parametrize("case", BOUNDS)
def test_partition_bounds(case):
    kind, values, expected = BOUNDS[case]
    actions = [add(f"{n}.split", partition_values={"p": v}) for n, v in enumerate(values)]
    store = written(snapshot_of(actions, table=metadata(partitions=[("p", kind)])))
    (info,) = state_of(store, 1).manifests
    found = (info.partition_bounds or {}).get("p")
    assert found == (PartitionBounds(*expected) if expected else None)


def test_bounds_of_a_table_whose_schema_cannot_be_read():
    table = Metadata(id="t", schema_string="?", partition_columns=("p",))
    store = written(snapshot_of([add("a", partition_values={"p": "1"})], table=table))
    assert state_of(store, 1).manifests[0].partition_bounds is None


def test_compacted_manifests_hold_neighbours_and_others_are_not_opened():
    actions = [add(f"{n}.split", partition_values={"p": str(n % 12)}) for n in range(48)]
    random.Random(1).shuffle(actions)
    store = written(
        snapshot_of(actions, table=metadata(partitions=[("p", "integer")])),
        cfg=config(state_entriesPerManifest=12),
    )
    bounds = [info.partition_bounds["p"] for info in state_of(store, 1).manifests]
    assert bounds == [
        PartitionBounds(a, b) for a, b in [("0", "2"), ("3", "5"), ("6", "8"), ("9", "11")]
    ]
    store.delete([f"{LOG_DIRECTORY}/{state_of(store, 1).manifests[0].path}"])
    found = load(store, 1, keep_manifest=lambda _metadata: lambda bounds: int(bounds["p"].min) >= 3)
    assert (found.num_files, found.partial) == (36, True)
    whole = load(
        store, 1, keep_manifest=lambda _metadata: lambda bounds: int(bounds["p"].max) == 11
    )
    assert whole.num_files == 12


def test_manifests_without_bounds_are_always_opened():
    store = written(snapshot_of(TEN))
    found = load(store, 1, keep_manifest=lambda _metadata: lambda _bounds: False)
    assert (found.num_files, found.partial) == (10, False)


def test_the_manifest_cache_spares_reads():
    store = written(snapshot_of(TEN))
    cache: dict[str, pa.Table] = {}
    load(store, 1, manifest_cache=cache)
    assert len(cache) == 1
    store.delete(manifests(store))
    assert load(store, 1, manifest_cache=cache).num_files == 10


# --- retries ---------------------------------------------------------------------------------


class Flaky:
    """Fails the first calls of a method, before or after its effect."""

    def __init__(self, store, monkeypatch, method, failures, *, after=False):
        self.left = failures
        real = getattr(store, method)

        def call(path, data):
            if self.left:
                self.left -= 1
                if after:
                    real(path, data)
                raise StorageError("the network is down", path=path)
            return real(path, data)

        monkeypatch.setattr(store, method, call)


@pytest.mark.parametrize("method", ["put", "put_if_absent"])
@pytest.mark.parametrize("after", [False, True])
def test_failed_writes_are_tried_again(monkeypatch, method, after):
    store = memory_store()
    flaky = Flaky(store, monkeypatch, method, 2, after=after)
    written(snapshot_of(TEN), store, cfg=config(state_retry_maxAttempts=3))
    assert load(store, 1).num_files == 10
    assert flaky.left == 0


def test_attempts_end(monkeypatch):
    store = memory_store()
    Flaky(store, monkeypatch, "put", 3)
    with pytest.raises(StorageError, match="network"):
        written(snapshot_of(TEN), store, cfg=config(state_retry_maxAttempts=3))


def test_pauses_grow_up_to_the_longest():
    from indextables.log.checkpoint.last_checkpoint import with_retries

    pauses: list[float] = []

    def fail() -> None:
        raise StorageError("no")

    cfg = config(
        **{
            "state_retry_maxAttempts": 6,
            "state_retry_baseDelayMs": 100,
            "state_retry_maxDelayMs": 500,
        }
    )
    with pytest.raises(StorageError):
        with_retries(fail, config=cfg, sleep=pauses.append)
    assert len(pauses) == 5
    for pause, nominal in zip(pauses, [0.1, 0.2, 0.4, 0.5, 0.5], strict=True):
        assert 0.74 * nominal <= pause <= 1.26 * nominal


# --- mappings --------------------------------------------------------------------------------


def test_equal_mappings_share_a_reference_above_the_threshold():
    texts = [f'[{{"name":"a","type":"i64"}},{{"x":{n % 2},"name":"b"}}]' for n in range(4)]
    registry = {f"{REGISTRY_PREFIX}ref{n}": text for n, text in enumerate(texts)}
    registry[f"{REGISTRY_PREFIX}unused"] = "[7]"
    actions = [add(f"{n}.split", doc_mapping_ref=f"ref{n}") for n in range(4)]
    snapshot = snapshot_of([*actions, add("none.split")], table=metadata(**registry))

    below = load(written(snapshot, cfg=config(state_schema_renormalizeThreshold=4)), 1)
    assert content(below) == content(snapshot)

    store = written(snapshot, cfg=config(state_schema_renormalizeThreshold=3))
    above = load(store, 1)
    references = set(above.entries["docMappingRef"].to_pylist())
    assert references == {None, mapping_hash(texts[0]), mapping_hash(texts[1])}
    assert [r["docMappingJson"] for r in rows(above)] == [*texts, None]
    # Writers may still know the old names; the next compaction drops them.
    assert {"ref0", "ref1", "unused"} <= set(above.mappings)
    again = load(written(above, cfg=config(state_schema_renormalizeThreshold=3)), 1)
    assert set(again.mappings) == {mapping_hash(texts[0]), mapping_hash(texts[1]), "unused"}
    assert rows(again) == rows(above)


def test_references_of_kept_manifests_survive_an_older_snapshot():
    """A writer that did not see the renormalisation builds on the renormalised state."""
    registry = {f"{REGISTRY_PREFIX}old{n}": f"[{n}]" for n in range(2)}
    actions = [add(f"{n}.split", doc_mapping_ref=f"old{n}") for n in range(2)]
    snapshot = snapshot_of(actions, table=metadata(**registry))
    store = written(snapshot, cfg=config(state_schema_renormalizeThreshold=0))
    new = versions([add("new.split", doc_mapping_ref="old1")], first=2)
    written(snapshot.advance(new), store, base=state_of(store, 1), changed=new)
    assert len(state_of(store, 2).manifests) == 2
    mappings = {row["path"]: row["docMappingJson"] for row in rows(load(store, 2))}
    assert mappings == {"0.split": "[0]", "1.split": "[1]", "new.split": "[1]"}


# --- states of other writers -----------------------------------------------------------------

THEIR_ENTRY = {
    "type": "record",
    "name": "FileEntry",
    "namespace": "io.indextables.state",
    "fields": [
        *(f for f in FILE_ENTRY["fields"] if f["field-id"] < 153 and f["name"] != "tags"),
        {"name": "docMappingJson", "type": ["null", "string"], "default": None},
        {"name": "someLaterField", "type": "int", "default": 0},
    ],
}
THEIR_STATE = {
    **STATE_MANIFEST,
    "fields": [
        f
        for f in STATE_MANIFEST["fields"]
        if f["name"] not in ("protocol", "xrefs", "skips", "timestamp")
    ],
}


def avro(schema, records) -> bytes:
    buffer = io.BytesIO()
    fastavro.writer(buffer, schema, records, codec="deflate")
    return buffer.getvalue()


def entry(path: str, **fields):
    return {
        "path": path,
        "partitionValues": {},
        "size": 1,
        "modificationTime": 2,
        "dataChange": True,
        "addedAtVersion": 0,
        "addedAtTimestamp": 5,
        **fields,
    }


def foreign(store, version, parts, *, tombstones=(), folder="manifests", names=None, **fields):
    """A state as the Scala product writes it: null metadata, random names, no checksums."""
    infos = []
    for number, part in enumerate(parts):
        name = (names or {}).get(number, f"{folder}/manifest-{number:08x}.avro")
        place = name if "/" in name else f"state-v{version:020d}/{name}"
        store.put(f"{LOG_DIRECTORY}/{place}", avro(THEIR_ENTRY, part))
        infos.append(
            {
                "path": name,
                "numEntries": len(part),
                "minAddedAtVersion": 0,
                "maxAddedAtVersion": 0,
                "partitionBounds": fields.pop("bounds", None),
            }
        )
    record = {
        "formatVersion": 1,
        "stateVersion": version,
        "createdAt": 77,
        "numFiles": 999,  # theirs drift
        "totalBytes": 1,
        "manifests": infos,
        "tombstones": list(tombstones),
        "schemaRegistry": {"bare": "[1]", "docMappingSchema.prefixed": "[2]"},
        "protocolVersion": 4,
        "metadata": None,
        **fields,
    }
    store.put(state_path(version), avro(THEIR_STATE, [record]))


def table_of_theirs():
    store = memory_store()
    actions = [Protocol(min_reader_version=4, min_writer_version=4), metadata(key="0")]
    store.put(version_path(0), encode_actions(actions, compress=True))
    return store


def test_a_state_without_metadata_takes_it_from_version_0():
    store = table_of_theirs()
    foreign(store, 3, [[entry("a", docMappingRef="bare"), entry("b")]])
    found = load(store, 3)
    assert (found.num_files, found.timestamp, found.version) == (2, 77, 3)
    assert found.metadata.configuration == {
        "key": "0",
        f"{REGISTRY_PREFIX}bare": "[1]",
        f"{REGISTRY_PREFIX}prefixed": "[2]",
    }
    assert [row["docMappingJson"] for row in rows(found)] == ["[1]", None]
    assert found.protocol == Protocol(min_reader_version=4, min_writer_version=4)


def test_metadata_comes_from_the_newest_file_that_has_it():
    store = table_of_theirs()
    later = metadata(key="later")
    foreign(store, 1, [], metadata=_text(metadata(key="1")))
    foreign(store, 2, [])
    assert load(store, 2).metadata.configuration["key"] == "1"
    store.put(version_path(2), encode_actions([later], compress=False))
    store.put(version_path(3), encode_actions([metadata(key="too late")], compress=False))
    assert load(store, 2).metadata.configuration["key"] == "later"


def _text(action) -> str:
    import orjson

    return orjson.dumps(action.to_json()).decode()


def test_metadata_without_its_key():
    store = memory_store()
    bare = '{"id":"t","schemaString":"{}","name":null,"configuration":{"key":"bare"}}'
    foreign(store, 1, [], metadata=bare)
    assert load(store, 1).metadata.configuration["key"] == "bare"


def test_no_metadata_anywhere():
    store = memory_store()
    foreign(store, 1, [])
    with pytest.raises(CorruptLogError, match="no metadata"):
        load(store, 1)


def test_a_later_entry_wins_and_tombstones_hide():
    store = table_of_theirs()
    parts = [[entry("a", size=1), entry("b")], [entry("c"), entry("a", size=2)], []]
    foreign(store, 1, parts, tombstones=["b", "unknown"])
    assert [(row["path"], row["size"]) for row in rows(load(store, 1))] == [("a", 2), ("c", 1)]


def test_inline_mappings_become_references():
    store = table_of_theirs()
    texts = ['[{"name":"x"}]', None, '[{"name":"x"}]']
    part = [entry(f"{n}", docMappingJson=t, docMappingRef=None) for n, t in enumerate(texts)]
    foreign(store, 1, [part, [entry("9", docMappingRef="bare")]])
    found = load(store, 1)
    assert [row["docMappingJson"] for row in rows(found)] == [*texts, "[1]"]
    reference = mapping_hash(texts[0])
    assert found.entries["docMappingRef"].to_pylist() == [reference, None, reference, "bare"]


@pytest.mark.parametrize("where", ["manifests", "state-v00000000000000000001", ""])
def test_places_of_manifests(where):
    store = table_of_theirs()
    name = f"{where}/manifest-ab.avro" if where else "manifest-ab.avro"
    foreign(store, 1, [[entry("a")]], names={0: name})
    assert load(store, 1).num_files == 1
    # An incremental state of ours names it so that it is found from there.
    base, new = state_of(store, 1), versions([add("b")], first=2)
    snapshot = load(store, 1).advance(new)
    base = replace(base, num_files=1)
    written(snapshot, store, base=base, changed=new)
    assert len(state_of(store, 2).manifests) == 2
    assert rows(load(store, 2)) == rows(snapshot)


@pytest.mark.parametrize(
    "path",
    ["../../secret.avro", "manifests/../x.avro", "/etc/x", "other/x.avro", "manifests/", "a/b/c",
     "s3://bucket/x.avro", "manifests/.hidden", ".."],
)  # fmt: skip
def test_manifests_outside_the_log(path):
    store = table_of_theirs()
    foreign(store, 1, [[entry("a")]], names={0: "manifests/manifest-1.avro"})
    info = dict(next(fastavro.reader(io.BytesIO(store.get(state_path(1))))))
    info["manifests"][0]["path"] = path
    store.put(state_path(1), avro(THEIR_STATE, [info]))
    with pytest.raises(UnsafePathError):
        load(store, 1)


@pytest.mark.parametrize("path", ["../a.split", "/a", "s3://b/a", "_transaction_log/x", ""])
def test_entries_outside_the_table(path):
    store = table_of_theirs()
    foreign(store, 1, [[entry("good"), entry(path)]])
    with pytest.raises(UnsafePathError):
        load(store, 1)


UNTRUSTED = {
    "text that looks like numbers": ("string", ("9", "10"), False),
    "text": ("string", ("a", "b"), True),
    "dates as text": ("string", ("2024-01-01", "2024-01-02"), True),
    "numbers": ("integer", ("9", "10"), True),
    "moments": ("timestamp", ("2024-01-01", "2024-01-02"), False),
    "a column nobody declared": ("undeclared", ("a", "b"), False),
}


@pytest.mark.parametrize("case", UNTRUSTED)
def test_bounds_of_others_are_used_only_where_their_order_is_ours(case, monkeypatch):
    monkeypatch.setattr(avro_state, "_FEW_MANIFESTS", 0)
    kind, (low, high), used = UNTRUSTED[case]
    table = metadata(partitions=[] if kind == "undeclared" else [("p", kind)])
    store = memory_store()
    bounds = {"p": {"min": low, "max": high}}
    part = [entry("a", partitionValues={"p": low})]
    foreign(store, 1, [part], bounds=bounds, metadata=_text(table))
    found = load(store, 1, keep_manifest=lambda _metadata: lambda _bounds: False)
    assert found.partial == used
    # And the same once a state of ours names their manifest.
    base = replace(state_of(store, 1), num_files=1)
    new = versions([add("b", partition_values={"p": low})], first=2)
    written(load(store, 1).advance(new), store, base=base, changed=new)
    theirs = state_of(store, 2).manifests[0].partition_bounds
    assert bool(theirs) == used


# --- damage ----------------------------------------------------------------------------------


def tampered(store, version, **fields):
    """The state with some fields changed and a right checksum."""
    record = state_to_record(state_of(store, version)) | fields
    data = write_container(STATE_MANIFEST, [record], codec="none", level=1)
    store.put(state_path(version), data)


DAMAGE = {
    "another version's": ({"stateVersion": 2}, CorruptLogError),
    "a newer format": ({"formatVersion": 2}, UnsupportedFeatureError),
    "a wrong total": ({"numFiles": 9}, CorruptLogError),
    "metadata no json": ({"metadata": "{"}, CorruptLogError),
    "metadata incomplete": ({"metadata": "{}"}, CorruptLogError),
    "metadata no object": ({"metadata": "[]"}, CorruptLogError),
    "protocol of another kind": ({"protocol": '{"add":{"path":"a"}}'}, CorruptLogError),
    "xref that leaves the table": (
        {"xrefs": [_text(replace(XREF, path="../x"))]},
        UnsafePathError,
    ),
}


@pytest.mark.parametrize("case", DAMAGE)
def test_damage_in_the_state(case):
    fields, error = DAMAGE[case]
    store = written(snapshot_of(TEN))
    tampered(store, 1, **fields)
    with pytest.raises(error):
        load(store, 1)


def test_two_records_in_a_state():
    store = written(snapshot_of(TEN))
    record = state_to_record(state_of(store, 1))
    data = write_container(STATE_MANIFEST, [record, record], codec="none", level=1)
    store.put(state_path(1), data)
    with pytest.raises(CorruptLogError, match="2 records"):
        load(store, 1)


def test_another_manifest_under_the_name():
    store = written(snapshot_of(TEN))
    other = written(snapshot_of([add("evil.split")]))
    (path,) = manifests(store)
    store.put(path, other.get(manifests(other)[0]))
    with pytest.raises(CorruptLogError, match="does not match its name"):
        load(store, 1)


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("long", 1),
        ("string", "a"),  # nothing but a path
    ],
)
def test_manifests_that_are_none(kind, value):
    schema = {"type": "record", "name": "E", "fields": [{"name": "path", "type": kind}]}
    part = [{"path": value}]
    store = table_of_theirs()
    foreign(store, 1, [[entry("a")]])
    store.put(manifests(store)[0], avro(schema, part))
    with pytest.raises(CorruptLogError):
        load(store, 1)


def test_a_wrong_number_of_entries():
    store = table_of_theirs()
    foreign(store, 1, [[entry("a")]])
    store.put(manifests(store)[0], avro(THEIR_ENTRY, [entry("a"), entry("b")]))
    with pytest.raises(CorruptLogError, match="2 entries instead of 1"):
        load(store, 1)


def test_a_manifest_beyond_the_limit():
    store = written(snapshot_of([add(f"splits/{n:0100d}") for n in range(1000)]))
    small = config(transaction_maxFileSize=20_000)
    with pytest.raises(LogTooLargeError):
        load_state(store, 1, config=small, runner=RUNNER)


@pytest.mark.parametrize("codec", ["zstd", "none"])
def test_no_flipped_byte_gives_another_snapshot(codec):
    snapshot = snapshot_of([add("a", partition_values={"p": "1"})], [Remove(path="x"), add("b")])
    store = written(snapshot, cfg=config(state_compression=codec))
    rng = random.Random(7)
    for path in (state_path(2), *manifests(store)):
        data = store.get(path)
        for _ in range(400):
            broken = bytearray(data)
            if rng.random() < 0.2:
                del broken[rng.randrange(len(broken)) :]
            for _ in range(rng.randint(1, 3)):
                if broken:
                    broken[rng.randrange(len(broken))] ^= rng.randint(1, 255)
            if bytes(broken) == data:
                continue
            store.put(path, bytes(broken))
            with pytest.raises(LogError):
                load(store, 2)
        store.put(path, data)
    assert content(load(store, 2)) == content(snapshot)


def test_flips_in_files_of_others_never_end_in_anything_but_a_log_error():
    store = table_of_theirs()
    foreign(store, 1, [[entry("a", minValues={"x": "1"}), entry("b")]])
    rng = random.Random(3)
    for path in (state_path(1), *manifests(store)):
        data = store.get(path)
        for _ in range(150):
            broken = bytearray(data)
            broken[rng.randrange(len(broken))] ^= 1 << rng.randrange(8)
            store.put(path, bytes(broken))
            with contextlib.suppress(LogError, FileNotFoundError):
                load(store, 1)
        store.put(path, data)


def test_a_plain_container_of_ours_is_read_without_copying():
    data = write_container(FILE_ENTRY, [], codec="none", level=1)
    assert read_container(data, where="x", limit=10_000).plain is data


def test_adds_keep_their_types():
    store = written(snapshot_of([Add(path="a", num_merge_ops=2, split_tags=("x",), tags={})]))
    (row,) = rows(load(store, 1))
    assert (row["numMergeOps"], row["splitTags"], row["tags"]) == (2, ["x"], {})
