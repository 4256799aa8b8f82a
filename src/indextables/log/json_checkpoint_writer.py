"""Writing JSON checkpoints, line by line: never more in memory than their compressed bytes."""

from __future__ import annotations

import functools
import gzip
import hashlib
import time
import uuid
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import orjson

from indextables import config as keys
from indextables.config import Config
from indextables.log.actions import (
    Action,
    Add,
    CommitInfo,
)
from indextables.log.checkpoint_retries import put_once, with_retries
from indextables.log.file_records import file_records
from indextables.log.last_checkpoint import LastCheckpoint
from indextables.log.names import (
    LOG_DIRECTORY,
    checkpoint_part_path,
    checkpoint_path,
)
from indextables.log.snapshot import Snapshot
from indextables.log.state_writer import unexpired_skips
from indextables.log.version_files import ENGINE
from indextables.storage import Store

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
    ]


def _lines(snapshot: Snapshot, head: Sequence[Action]) -> Iterator[bytes]:
    for action in head:
        yield orjson.dumps(action.to_json()) + b"\n"
    for row in file_records(snapshot.entries):
        extra = row.pop("extra", None)
        body = {name: value for name, value in row.items() if value is not None}
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
