"""JSON checkpoints: all live actions of a table, in one file or in several parts.

One file is newline-delimited actions, usually gzip, as a version file is. With more actions than
`spark.indextables.checkpoint.actionsPerPart` there are several such files, and the checkpoint's
own file is a manifest: an id, the names of the parts, the number of actions, checksums. The parts
are written first, so a reader that finds the manifest finds them. One object with an array of `add`
bodies, as the oldest writers left it, is read as well.

An object for each action would take most of the time of reading. So add actions go from their JSON
bodies to the files' table column by column, and Arrow checks the types as it converts. Writing goes
line by line and holds never more in memory than the compressed bytes.
"""

from __future__ import annotations

import functools
import gzip
import hashlib
import time
import uuid
import zlib
from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass, replace
from typing import Any

import orjson
import pyarrow as pa

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
from indextables.log.checkpoint.last_checkpoint import LastCheckpoint, put_once, with_retries
from indextables.log.files import FILES_SCHEMA, VECTOR, file_records, mapping_hash, with_mappings
from indextables.log.layout import (
    ENGINE,
    LOG_DIRECTORY,
    check_path_column,
    check_paths,
    checkpoint_part_path,
    checkpoint_path,
    decode_lines,
    parse_checkpoint_part,
)
from indextables.log.snapshot import Snapshot, VersionActions, empty_snapshot, unexpired_skips
from indextables.runner import Runner
from indextables.storage import Store

# Null means the default, which the Scala writer leaves out or spells as null.
_DEFAULTS: dict[str, Any] = {
    "partitionValues": {},
    "size": 0,
    "modificationTime": 0,
    "dataChange": True,
    "hasFooterOffsets": False,
}
_INLINE = "docMappingJson"


def intern_mappings(bodies: Sequence[dict[str, Any]], *, where: str) -> dict[str, str]:
    """Replace inline mappings by references, in place; returns the mappings by reference."""
    mappings: dict[str, str] = {}
    for body in bodies:
        if (text := body.pop(_INLINE, None)) is not None:
            if type(text) is not str:
                raise CorruptLogError(where, f"'add' has a {_INLINE} that is not text")
            body["docMappingRef"] = mapping_hash(text)
            mappings[body["docMappingRef"]] = text
    return mappings


def files_from_bodies(
    bodies: Sequence[dict[str, Any]], *, version: int, timestamp: int, where: str
) -> pa.Table:
    """The files' table of these bodies; version and timestamp for those that do not know theirs."""
    names: set[str] = set().union(*bodies)
    unknown = names - {*FILES_SCHEMA.names} | names & {"extra"}
    defaults = {**_DEFAULTS, "addedAtVersion": version, "addedAtTimestamp": timestamp}
    columns: dict[str, Any] = {}
    try:
        for column in FILES_SCHEMA:
            if column.name == "extra" and unknown:
                values: list[Any] = [_extra(body, unknown) for body in bodies]
            elif column.name in names - unknown or column.name in defaults:
                default = defaults.get(column.name)
                values = [default if (v := b.get(column.name)) is None else v for b in bodies]
            else:
                columns[column.name] = pa.nulls(len(bodies), column.type)
                continue
            if column.name == VECTOR:
                values = [None if v is None else orjson.dumps(v).decode() for v in values]
            is_map = isinstance(column.type, pa.MapType)
            columns[column.name] = _maps(values) if is_map else pa.array(values, column.type)
    except (pa.ArrowException, TypeError, AttributeError, OverflowError) as error:
        raise CorruptLogError(where, f"'add' does not have its fields ({error})") from error
    return pa.table(columns, schema=FILES_SCHEMA)


def _maps(values: Sequence[dict[str, Any] | None]) -> Any:
    """Maps of text, flat: a list of pairs for each would be many objects. Null items are absent."""
    offsets: list[int | None] = []
    keys: list[str] = []
    items: list[Any] = []
    for value in values:
        offsets.append(None if value is None else len(keys))
        for key, item in (value or {}).items():
            if item is not None:
                keys.append(key)
                items.append(item)
    offsets.append(len(keys))
    starts: Any = pa.array(offsets, pa.int32())
    return pa.MapArray.from_arrays(
        starts, pa.array(keys, pa.string()), pa.array(items, pa.string())
    )


def _extra(body: dict[str, Any], unknown: Set[str]) -> str | None:
    extra = {name: value for name, value in body.items() if name in unknown}
    return orjson.dumps(extra).decode() if extra else None


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
        raise CorruptLogError(where, f"a line is not JSON ({error})") from error
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
            raise CorruptLogError(where, f"it is not JSON ({error})") from error
    if not isinstance(first, dict):
        raise CorruptLogError(where, "it is not an object")
    if len(first) == 1 and not isinstance(first.get(Add.kind), list):
        return None
    return first


def _documents_of_object(document: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for action, body in document.items():
        for item in body if isinstance(body, list) else [body]:
            if item is not None:
                yield {action: item}


def _check_count(count: int, expected: Any, *, where: str) -> None:
    if expected is not None and count != expected:
        raise CorruptLogError(where, f"it has {count} actions instead of {expected}")


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
        raise CorruptLogError(where, "its numbers of checksums and of parts differ")
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
        # Only valid names of parts are looked up in the store.
        part = parse_checkpoint_part(name) if isinstance(name, str) else None
        if part is None or part[0] != version:
            raise CorruptLogError(where, f"{name!r} is not a part of it")
    return parts


_NO_CHECKSUM = "00000000"
_LINES_AT_ONCE = 4096


def write_json_checkpoint(store: Store, snapshot: Snapshot, *, config: Config) -> LastCheckpoint:
    """Write the JSON checkpoint of the snapshot's version; one that is there already stays."""
    if snapshot.partial:
        raise ValueError("A snapshot that lacks files cannot become a checkpoint.")
    head = _head_actions(snapshot)
    count = len(head) + snapshot.num_files
    compress = config[keys.TRANSACTION_COMPRESSION]
    pointer = LastCheckpoint(
        version=snapshot.version,
        size=count,
        size_in_bytes=snapshot.total_bytes,
        num_files=snapshot.num_files,
        created_time=time.time_ns() // 1_000_000,
        format="json",
    )
    per_part = config[keys.CHECKPOINT_ACTIONS_PER_PART]
    if count > per_part:
        document = _write_parts(store, snapshot, head, per_part=per_part, config=config)
        pointer = replace(
            pointer,
            format="json-multipart",
            parts=len(document["parts"]),
            checkpoint_id=document["checkpointId"],
        )
        data = _sealed(document, (), document, compress=compress)
    else:
        info = CommitInfo(
            txn_id=f"checkpoint-{snapshot.version}",
            timestamp=snapshot.timestamp,
            operation="CHECKPOINT",
            operation_metrics={"numActions": count},
            engine_info=ENGINE,
        ).to_json()
        data = _sealed(info, _texts(snapshot, head), info[CommitInfo.kind], compress=compress)
    path = checkpoint_path(snapshot.version)
    put_once(lambda: store.put_if_absent(path, data), config=config)
    return pointer


def _head_actions(snapshot: Snapshot) -> list[Action]:
    return [
        snapshot.protocol,
        snapshot.metadata,
        *snapshot.xrefs.values(),
        *unexpired_skips(snapshot),
        *snapshot.txns.values(),
    ]


def _lines(snapshot: Snapshot, head: Sequence[Action]) -> Iterator[bytes]:
    for action in head:
        yield orjson.dumps(action.to_json()) + b"\n"
    for row in file_records(snapshot.entries):
        extra = row.pop("extra", None)
        body = {name: value for name, value in row.items() if value is not None}
        if VECTOR in body:
            body[VECTOR] = orjson.loads(body[VECTOR])
        if extra:
            body |= orjson.loads(extra)
        yield orjson.dumps({Add.kind: body}) + b"\n"


def _texts(snapshot: Snapshot, head: Sequence[Action]) -> Iterator[bytes]:
    """The lines in pieces of some size, which compress faster."""
    lines: list[bytes] = []
    for line in _lines(snapshot, head):
        lines.append(line)
        if len(lines) == _LINES_AT_ONCE:
            yield b"".join(lines)
            lines.clear()
    yield b"".join(lines)


def _sealed(
    first: dict[str, Any], texts: Iterator[bytes] | tuple[()], holder: dict[str, Any], *,
    compress: bool,
) -> bytes:  # fmt: skip
    """The file's bytes: a first line whose `holder` gets the checksum of all, then the texts.

    Only compressed bytes are held. The checksum is known at the end and belongs to the beginning,
    so the first line is a gzip member of its own, made last.
    """
    holder["checksum"] = _NO_CHECKSUM
    crc = zlib.crc32(orjson.dumps(first) + b"\n")
    packer = zlib.compressobj(6, wbits=31) if compress else None
    pieces: list[bytes] = []
    for text in texts:
        crc = zlib.crc32(text, crc)
        pieces.append(packer.compress(text) if packer else text)
    if packer and texts:
        pieces.append(packer.flush())
    holder["checksum"] = f"{crc:08x}"
    line = orjson.dumps(first) + b"\n"
    return b"".join([gzip.compress(line, 6, mtime=0) if compress else line, *pieces])


def _write_parts(
    store: Store, snapshot: Snapshot, head: Sequence[Action], *, per_part: int, config: Config
) -> dict[str, Any]:
    checkpoint_id = uuid.uuid4().hex
    compress = config[keys.TRANSACTION_COMPRESSION]
    names: list[str] = []
    checksums: list[str] = []

    def write(lines: list[bytes]) -> None:
        text = b"".join(lines)
        data = gzip.compress(text, 6, mtime=0) if compress else text
        path = checkpoint_part_path(snapshot.version, checkpoint_id, len(names) + 1)
        with_retries(functools.partial(store.put, path, data), config=config)
        names.append(path.removeprefix(f"{LOG_DIRECTORY}/"))
        checksums.append(hashlib.sha256(data).hexdigest())

    lines: list[bytes] = []
    count = 0
    for line in _lines(snapshot, head):
        lines.append(line)
        count += 1
        if len(lines) == per_part:
            write(lines)
            lines = []
    if lines:
        write(lines)
    return {
        "version": snapshot.version,
        "checkpointId": checkpoint_id,
        "timestamp": snapshot.timestamp,
        "numActions": count,
        "engineInfo": ENGINE,
        "checksum": _NO_CHECKSUM,
        "parts": names,
        "partChecksums": checksums,
    }
