"""JSON checkpoints: all live actions of a table, in one file or in several parts.

One file is newline-delimited actions, usually gzip, as a version file is. With more actions than
`spark.indextables.checkpoint.actionsPerPart` there are several such files, and the checkpoint's
own file is a manifest: an id, the names of the parts, the number of actions, checksums. The parts
are written first, so whoever finds the manifest finds them. One object with an array of `add`
bodies, as the oldest writers left it, is read as well. Writing is `json_checkpoint_writer`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import orjson

from indextables import config as keys
from indextables.config import Config
from indextables.errors import CorruptLogError, ObjectNotFoundError, StorageError
from indextables.log.actions import (
    Action,
    Add,
    AddXRef,
    CommitInfo,
    Metadata,
    Remove,
    action_from_json,
)
from indextables.log.add_bodies import files_from_bodies, intern_mappings
from indextables.log.mapping_registry import with_mappings
from indextables.log.names import (
    LOG_DIRECTORY,
    check_path_column,
    check_paths,
    checkpoint_part_path,
    checkpoint_path,
    parse_checkpoint_part,
)
from indextables.log.snapshot import Snapshot, VersionActions, empty_snapshot
from indextables.log.version_files import decode_lines
from indextables.runner import Runner
from indextables.storage import Store


def load_json_checkpoint(store: Store, version: int, *, config: Config, runner: Runner) -> Snapshot:
    """The snapshot of a version from its JSON checkpoint, whatever its shape."""
    where = checkpoint_path(version)
    limit = config[keys.TRANSACTION_MAX_FILE_SIZE]
    lines = decode_lines(store.get(where), where=where, limit=limit)
    document = _single_document(lines, where=where)
    timestamp: Any = None
    if document is None:
        documents = _parse(lines, where=where)
    elif "parts" in document:
        documents = _load_parts(store, version, document, config=config, runner=runner)
        timestamp = document.get("timestamp")
    else:
        documents = list(_documents_of_object(document))
    return _replay(store, version, documents, timestamp=timestamp)


def _replay(
    store: Store, version: int, documents: Sequence[dict[str, Any]], *, timestamp: Any
) -> Snapshot:
    where = checkpoint_path(version)
    # A checkpoint has live files only, but the oldest writers put down removed ones as well.
    files: dict[str, dict[str, Any]] = {}
    actions: list[Action] = []
    for document in documents:
        body = document.get(Add.kind)
        if body is not None:
            files[_path(body, where=where)] = body
            continue
        action = action_from_json(document, where=where)
        if isinstance(action, Remove):
            files.pop(action.path, None)
        actions.append(action)
    if not any(isinstance(action, Metadata) for action in actions):
        raise CorruptLogError(where, "it has no metadata")
    check_paths((a.path for a in actions if isinstance(a, AddXRef)), where=where)
    info = next((a for a in actions if isinstance(a, CommitInfo)), None)
    if info is not None and info.operation_metrics is not None:
        _check_count(len(documents) - 1, info.operation_metrics.get("numActions"), where=where)
    if type(timestamp) is not int:
        timestamp = 0 if info is not None else store.head(where).modified_ms
    replayed = empty_snapshot(store.uri).advance([VersionActions(version, actions, timestamp)])
    bodies = list(files.values())
    mappings = intern_mappings(bodies, where=where)
    table = files_from_bodies(bodies, version=version, timestamp=replayed.timestamp, where=where)
    check_path_column(table["path"], where=where)
    configuration = with_mappings(replayed.metadata.configuration, mappings)
    metadata = replace(replayed.metadata, configuration=configuration)
    return replace(replayed, metadata=metadata, base_files=table, changes={})


def _path(body: Any, *, where: str) -> str:
    path = body.get("path") if isinstance(body, dict) else None
    if type(path) is not str:
        raise CorruptLogError(where, "'add' has no path")
    return path


def _parse(lines: Sequence[bytes], *, where: str) -> list[dict[str, Any]]:
    try:
        documents = [orjson.loads(line) for line in lines]
    except orjson.JSONDecodeError as error:
        raise CorruptLogError(where, f"a line is no JSON ({error})") from error
    if not all(type(document) is dict and len(document) == 1 for document in documents):
        raise CorruptLogError(where, "an action is an object with one key")
    return documents


def _single_document(lines: Sequence[bytes], *, where: str) -> dict[str, Any] | None:
    """The one object the file consists of, or None where it is a line for each action."""
    try:
        first = orjson.loads(lines[0])
    except orjson.JSONDecodeError:
        try:  # one object over several lines
            first = orjson.loads(b"\n".join(lines))
        except orjson.JSONDecodeError as error:
            raise CorruptLogError(where, f"it is no JSON ({error})") from error
    if not isinstance(first, dict):
        raise CorruptLogError(where, "it is no object")
    if len(first) == 1 and not isinstance(first.get(Add.kind), list):
        return None
    return first


def _documents_of_object(document: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for kind, body in document.items():
        for item in body if isinstance(body, list) else [body]:
            if item is not None:
                yield {kind: item}


def _check_count(found: int, expected: Any, *, where: str) -> None:
    if expected is not None and found != expected:
        raise CorruptLogError(where, f"it has {found} actions instead of {expected}")


# --- parts -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ReadPart:
    """The task of reading one part; picklable, so that any runner can do it."""

    store: Store
    path: str
    checksum: str | None
    limit: int

    def __call__(self) -> list[dict[str, Any]]:
        try:
            data = self.store.get(self.path)
        except ObjectNotFoundError as error:
            raise CorruptLogError(self.path, "it is a part of a checkpoint and missing") from error
        if self.checksum not in (None, hashlib.sha256(data).hexdigest()):
            raise CorruptLogError(self.path, "its checksum does not match its content")
        lines = decode_lines(data, where=self.path, limit=self.limit)
        return _parse(lines, where=self.path)


def _run(task: ReadPart) -> list[dict[str, Any]]:
    return task()


def _load_parts(
    store: Store, version: int, document: dict[str, Any], *, config: Config, runner: Runner
) -> list[dict[str, Any]]:
    where = checkpoint_path(version)
    names = _part_names(version, document, where=where)
    checksums = document.get("partChecksums", [None] * len(names))
    if not isinstance(checksums, list) or len(checksums) != len(names):
        raise CorruptLogError(where, "it has another number of checksums than of parts")
    limit = config[keys.TRANSACTION_MAX_FILE_SIZE]
    tasks = [
        ReadPart(store, f"{LOG_DIRECTORY}/{name}", checksum, limit)
        for name, checksum in zip(names, checksums, strict=True)
    ]
    timeout = config[keys.CHECKPOINT_READ_TIMEOUT]
    try:
        parts = runner.map(_run, tasks, timeout_s=timeout)
    except TimeoutError as error:
        raise StorageError(
            f"Reading the {len(tasks)} parts of {where} took longer than {timeout} seconds. "
            f"Raise {keys.CHECKPOINT_READ_TIMEOUT.name}.",
            path=where,
        ) from error
    documents = [document for part in parts for document in part]
    _check_count(len(documents), document.get("numActions"), where=where)
    return documents


def _part_names(version: int, document: dict[str, Any], *, where: str) -> list[str]:
    parts, checkpoint_id = document["parts"], document.get("checkpointId")
    if type(parts) is int and type(checkpoint_id) is str and 0 < parts < 100_000:
        paths = [checkpoint_part_path(version, checkpoint_id, n + 1) for n in range(parts)]
        parts = [path.removeprefix(f"{LOG_DIRECTORY}/") for path in paths]
    if not isinstance(parts, list):
        raise CorruptLogError(where, "it does not name its parts")
    for name in parts:
        # Names that a part can have, and nothing else, are looked up in the store.
        found = parse_checkpoint_part(name) if isinstance(name, str) else None
        if found is None or found[0] != version:
            raise CorruptLogError(where, f"{name!r} is no part of it")
    return parts
