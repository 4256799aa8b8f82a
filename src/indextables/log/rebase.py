"""From what a transaction wants to what a version file says, on the newest snapshot.

Done again on every attempt, because each step depends on what others committed meanwhile:
removed files must still be live, mappings join the registry that is there now, a protocol is
raised from where it stands, cross-references that lost their target are dropped.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from indextables import config as keys
from indextables.config import Config
from indextables.errors import (
    CommitError,
    ConcurrentDeleteDeleteError,
    UnsupportedFeatureError,
)
from indextables.log.actions import (
    Action,
    Add,
    AddXRef,
    Metadata,
    Protocol,
    Remove,
    RemoveXRef,
)
from indextables.log.files import intern_mapping
from indextables.log.mapping_registry import with_mappings
from indextables.log.names import check_paths
from indextables.log.protocol import DEFAULT_PROTOCOL, check_writable, upgraded
from indextables.log.snapshot import Snapshot
from indextables.log.transaction import Operation, Transaction

XREF_FEATURE = "crossReferenceIndex"
_DEDUPLICATION_SINCE = 3


def actions_on(snapshot: Snapshot, mine: Transaction, *, config: Config) -> list[Action]:
    """The actions to write as the version after `snapshot`; empty if nothing is left to do."""
    wanted = list(mine.transform(snapshot) if mine.transform else mine.actions)
    if snapshot.version >= 0:
        check_writable(snapshot.protocol, uri=snapshot.uri, config=config)
    wanted = _surviving_xrefs(wanted, mine, snapshot, config=config)
    _check_files(wanted, snapshot)
    protocol = _protocol_action(wanted, snapshot, config=config)
    effective = protocol or snapshot.protocol
    mappings: dict[str, str] = {}
    if effective.min_reader_version >= _DEDUPLICATION_SINCE:
        wanted = [intern_mapping(a, mappings) if isinstance(a, Add) else a for a in wanted]
    metadata = _metadata_action(wanted, mappings, snapshot)
    rest = [a for a in wanted if not isinstance(a, Protocol | Metadata)]
    # Removes first: a reader that applies a version in order never sees both old and new rows.
    rest.sort(key=lambda action: not isinstance(action, Remove))
    return [a for a in (protocol, metadata) if a is not None] + rest


def _surviving_xrefs(
    wanted: Sequence[Action], mine: Transaction, snapshot: Snapshot, *, config: Config
) -> list[Action]:
    """Without cross-reference actions that lost: they only make queries faster."""
    xrefs = [a for a in wanted if isinstance(a, AddXRef | RemoveXRef)]
    if not xrefs:
        return list(wanted)
    lost = [
        action.path
        for action in xrefs
        if (action.path in snapshot.xrefs) == isinstance(action, AddXRef)
    ]
    allowed = config[keys.PROTOCOL_AUTO_UPGRADE] or XREF_FEATURE in (
        snapshot.protocol.writer_features or ()
    )
    if mine.operation is Operation.XREF:
        if lost:
            raise ConcurrentDeleteDeleteError(
                uri=snapshot.uri, version=snapshot.version, paths=lost
            )
        if not allowed:
            raise UnsupportedFeatureError(snapshot.uri, role="writer", features=[XREF_FEATURE])
    if lost or not allowed:
        return [a for a in wanted if not isinstance(a, AddXRef | RemoveXRef)]
    return list(wanted)


def _check_files(wanted: Sequence[Action], snapshot: Snapshot) -> None:
    adds = [a.path for a in wanted if isinstance(a, Add)]
    removes = [a.path for a in wanted if isinstance(a, Remove)]
    xrefs = [a.path for a in wanted if isinstance(a, AddXRef)]
    check_paths([*adds, *removes, *xrefs], where="a commit to " + snapshot.uri)
    doubled = [path for path, count in Counter(adds + removes).items() if count > 1]
    doubled += sorted(snapshot.contains(adds)) if adds else []
    if doubled:
        raise CommitError(
            f"A commit to '{snapshot.uri}' names {doubled[0]} twice, or adds it although it is "
            "live already. Every split has a name of its own; write it again under a new one."
        )
    if removes:
        gone = sorted(set(removes) - snapshot.contains(removes))
        if gone:
            raise ConcurrentDeleteDeleteError(
                uri=snapshot.uri, version=snapshot.version, paths=gone
            )


def _protocol_action(
    wanted: Sequence[Action], snapshot: Snapshot, *, config: Config
) -> Protocol | None:
    current = snapshot.protocol
    has_xrefs = any(isinstance(a, AddXRef) for a in wanted)
    with_xrefs = replace(DEFAULT_PROTOCOL, writer_features=(XREF_FEATURE,))
    if snapshot.version < 0:
        first = next((a for a in wanted if isinstance(a, Protocol)), DEFAULT_PROTOCOL)
        return upgraded(first, with_xrefs) if has_xrefs else first
    target = upgraded(current, with_xrefs) if has_xrefs else current
    for action in wanted:
        if isinstance(action, Protocol):
            target = upgraded(target, action)
    needs_mappings = any(isinstance(a, Add) and a.doc_mapping_json for a in wanted)
    if (
        needs_mappings
        and current.min_reader_version < _DEDUPLICATION_SINCE
        and config[keys.PROTOCOL_AUTO_UPGRADE]
    ):
        target = upgraded(target, DEFAULT_PROTOCOL)
    return target if target != current else None


def _metadata_action(
    wanted: Sequence[Action], mappings: dict[str, str], snapshot: Snapshot
) -> Metadata | None:
    asked = next((a for a in wanted if isinstance(a, Metadata)), None)
    metadata = asked or snapshot.metadata
    # The registry only grows: splits of every retained version refer to it.
    configuration = with_mappings(metadata.configuration, {**mappings, **snapshot.mappings})
    if configuration != dict(metadata.configuration):
        return replace(metadata, configuration=configuration)
    return asked
