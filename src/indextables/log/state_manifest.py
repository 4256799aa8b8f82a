"""`_manifest.avro`: the list of a state's manifests, and what a state says of the table.

Incremental states of the Scala product leave out the metadata. It is then the metadata of the
newest older file that has any: a version file, often version 0, or another state.
"""

from __future__ import annotations

from dataclasses import dataclass

from indextables import config as keys
from indextables.config import Config
from indextables.errors import CorruptLogError, UnsupportedFeatureError
from indextables.log.actions import Metadata, Protocol
from indextables.log.avro_container import decode_records, read_container
from indextables.log.listing import list_log
from indextables.log.names import state_path, version_path
from indextables.log.protocol import upgraded
from indextables.log.state_schema import FORMAT_VERSION, StateManifest, state_from_record
from indextables.log.version_files import decode_actions
from indextables.runner import Runner
from indextables.storage import Store

_SEARCH_BATCH = 32


def read_state_manifest(store: Store, version: int, *, config: Config) -> StateManifest:
    """What the state of a version says of itself; its manifests are not opened."""
    where = state_path(version)
    limit = config[keys.TRANSACTION_MAX_FILE_SIZE]
    container = read_container(store.get(where), where=where, limit=limit)
    records = decode_records(container, where=where)
    if len(records) != 1:
        raise CorruptLogError(where, f"it holds {len(records)} records instead of one")
    state = state_from_record(records[0], version=version)
    if state.format_version > FORMAT_VERSION:
        feature = f"avroState format {state.format_version}"
        raise UnsupportedFeatureError(store.uri, role="reader", features=[feature])
    if state.state_version != version:
        raise CorruptLogError(where, f"it is the state of version {state.state_version}")
    return state


def protocol_and_metadata(
    store: Store, state: StateManifest, *, config: Config, runner: Runner
) -> tuple[Protocol, Metadata]:
    """Both as of the state, from older files where the state leaves them out."""
    if state.protocol is not None and state.metadata is not None:
        return state.protocol, state.metadata
    least = Protocol(
        min_reader_version=state.protocol_version, min_writer_version=state.protocol_version
    )
    if state.metadata is not None:
        return state.protocol or least, state.metadata
    protocol, metadata = _find_metadata(store, state.state_version, config=config, runner=runner)
    return state.protocol or upgraded(protocol or least, least), metadata


@dataclass(frozen=True, slots=True)
class _ReadMetadata:
    store: Store
    version: int
    from_state: bool
    config: Config

    def __call__(self) -> tuple[Protocol | None, Metadata | None]:
        if self.from_state:
            state = read_state_manifest(self.store, self.version, config=self.config)
            return state.protocol, state.metadata
        where = version_path(self.version)
        limit = self.config[keys.TRANSACTION_MAX_FILE_SIZE]
        actions = decode_actions(self.store.get(where), where=where, limit=limit)
        newest_first = actions[::-1]
        return (
            next((a for a in newest_first if isinstance(a, Protocol)), None),
            next((a for a in newest_first if isinstance(a, Metadata)), None),
        )


def _run_metadata(task: _ReadMetadata) -> tuple[Protocol | None, Metadata | None]:
    return task()


def _find_metadata(
    store: Store, version: int, *, config: Config, runner: Runner
) -> tuple[Protocol | None, Metadata]:
    """The metadata in force at a version, from the newest file that has any."""
    listing = list_log(store)
    places = [(v, False) for v in listing.versions if v <= version]
    places += [(v, True) for v in listing.states if v < version]
    places.sort(key=lambda place: (-place[0], place[1]))
    protocol: Protocol | None = None
    for start in range(0, len(places), _SEARCH_BATCH):
        tasks = [_ReadMetadata(store, *p, config) for p in places[start : start + _SEARCH_BATCH]]
        for found_protocol, metadata in runner.map(_run_metadata, tasks):
            protocol = protocol or found_protocol
            if metadata is not None:
                return protocol, metadata
    raise CorruptLogError(
        state_path(version), "it has no metadata, and neither has any older file of the log"
    )
