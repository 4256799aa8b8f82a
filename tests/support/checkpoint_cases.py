"""Snapshots for tests of checkpoints: small ones, random ones, and how to compare two."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Sequence
from typing import Any

import orjson
from hypothesis import strategies as st

from indextables.config import Config
from indextables.log.actions import Action, Add, AddXRef, Metadata, Protocol, Remove, Skip
from indextables.log.snapshot import Snapshot, VersionActions, empty_snapshot
from indextables.runner import LocalRunner
from indextables.storage import Store, open_store

RUNNER = LocalRunner(2)
PROTOCOL = Protocol(
    min_reader_version=4,
    min_writer_version=4,
    reader_features=("avroState",),
    writer_features=("avroState", "crossReferenceIndex"),
    extra={"later": 1},
)
XREF = AddXRef(
    path="_xrefsplits/aaaa/xref-1.split",
    xref_id="1",
    source_split_paths=("a.split",),
    source_split_count=1,
    size=5,
    total_terms=7,
    footer_start_offset=1,
    footer_end_offset=2,
    created_time=3,
    build_duration_ms=4,
    max_source_splits=1024,
)


def config(**options: object) -> Config:
    """Without pauses; `state_x=1` sets `spark.indextables.state.x`, and so on."""
    quick = {"spark.indextables.state.retry.baseDelayMs": 0}
    named = {f"spark.indextables.{name.replace('_', '.')}": v for name, v in options.items()}
    return Config(quick | named)


def memory_store() -> Store:
    return open_store(f"memory://checkpoints-{uuid.uuid4()}")


def metadata(*, partitions: Sequence[tuple[str, str]] = (), **configuration: str) -> Metadata:
    columns = [("id", "long"), *partitions]
    fields = [{"name": n, "type": t, "nullable": True, "metadata": {}} for n, t in columns]
    return Metadata(
        id="t",
        schema_string=orjson.dumps({"type": "struct", "fields": fields}).decode(),
        partition_columns=tuple(name for name, _ in partitions),
        configuration=configuration,
        extra={"unknown": [1]},
    )


def add(path: str, *, size: int = 10, **fields: Any) -> Add:
    return Add(path=path, size=size, modification_time=1, **fields)


def versions(*groups: Iterable[Action], first: int = 0) -> list[VersionActions]:
    return [
        VersionActions(first + n, tuple(group), 1000 * (first + n) + 1)
        for n, group in enumerate(groups)
    ]


def snapshot_of(
    *groups: Iterable[Action], table: Metadata | None = None, uri: str = "memory://x"
) -> Snapshot:
    """Version 0 is protocol and metadata; then a version for each group of actions."""
    start = [PROTOCOL, table or metadata()]
    return empty_snapshot(uri).advance(versions(start, *groups))


def rows(snapshot: Snapshot) -> list[dict[str, Any]]:
    found = snapshot.files.to_pylist(maps_as_pydicts="strict")
    return sorted(found, key=lambda row: row["path"])


def content(snapshot: Snapshot) -> dict[str, Any]:
    """Everything of a snapshot that a checkpoint must keep."""
    return {
        "version": snapshot.version,
        "timestamp": snapshot.timestamp,
        "protocol": snapshot.protocol,
        "metadata": snapshot.metadata,
        "xrefs": dict(snapshot.xrefs),
        "skips": dict(snapshot.skips),
        "rows": rows(snapshot),
        "partial": snapshot.partial,
    }


# --- random ones -----------------------------------------------------------------------------

_text = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
_long = st.integers(-(2**63), 2**63 - 1)
_map = st.dictionaries(_text, _text, max_size=3)
_name = st.text(st.characters(categories=["L", "N"]), min_size=1, max_size=8)
_json = st.dictionaries(
    _text.map(lambda t: "x" + t),
    st.one_of(st.none(), _text, st.booleans(), st.integers(-(2**53), 2**53)),
    max_size=2,
)


def adds() -> st.SearchStrategy[Add]:
    """Add actions with every field, null or not."""

    def maybe(strategy: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
        return st.none() | strategy

    return st.builds(
        Add,
        path=_name.map(lambda name: f"splits/{name}.split"),
        partition_values=st.dictionaries(_text, maybe(_text), max_size=3),
        size=st.integers(0, 2**40),
        modification_time=_long,
        data_change=st.booleans(),
        stats=maybe(_text),
        tags=maybe(_map),
        min_values=maybe(_map),
        max_values=maybe(_map),
        num_records=maybe(_long),
        footer_start_offset=maybe(_long),
        footer_end_offset=maybe(_long),
        hotcache_start_offset=maybe(_long),
        hotcache_length=maybe(_long),
        has_footer_offsets=st.booleans(),
        time_range_start=maybe(_text),
        time_range_end=maybe(_text),
        split_tags=maybe(st.lists(_text, max_size=3).map(tuple)),
        delete_opstamp=maybe(_long),
        num_merge_ops=maybe(st.integers(-(2**31), 2**31 - 1)),
        doc_mapping_json=maybe(st.sampled_from(['[{"name":"a","type":"i64"}]', "[]", "no json"])),
        uncompressed_size_bytes=maybe(_long),
        companion_source_files=maybe(st.lists(_text, max_size=2).map(tuple)),
        companion_delta_version=maybe(_long),
        companion_fast_field_mode=maybe(_text),
        extra=_json,
    )


_skips = st.builds(
    Skip,
    path=_name,
    skip_timestamp=_long,
    reason=_text,
    operation=_text,
    retry_after=st.none() | st.just(10**15),
    skip_count=st.integers(1, 9),
    partition_values=st.none() | _map,
)


@st.composite
def snapshots(draw: st.DrawFn) -> Snapshot:
    """Tables of a few versions: files come, go and come back."""
    groups: list[list[Action]] = []
    live: list[str] = []
    for _ in range(draw(st.integers(0, 4))):
        group: list[Action] = list(draw(st.lists(adds(), max_size=4)))
        if live and draw(st.booleans()):
            group.append(Remove(path=draw(st.sampled_from(live)), size=1))
        live += [action.path for action in group if isinstance(action, Add)]
        groups.append(group)
    groups.append([XREF, *draw(st.lists(_skips, max_size=2))])
    return snapshot_of(*groups, table=metadata(partitions=[("day", "date")], key="value"))
