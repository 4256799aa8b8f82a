"""`_last_checkpoint`, where a reader starts looking, and the retries of a checkpoint's files.

The hint is nothing more than a hint. When it is missing, damaged or absurd, readers list the log.
It never goes backwards: a writer that was slow must not send every reader back to an old
checkpoint. Files of a checkpoint can be written again after a failure, because their content is the
same whenever they are written.
"""

from __future__ import annotations

import time
import zlib
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any, Literal

import orjson

from indextables import config as keys
from indextables.config import Config
from indextables.errors import (
    ObjectExistsError,
    ObjectNotFoundError,
    StorageError,
    StorageRefusedError,
)
from indextables.log.layout import LAST_CHECKPOINT, checkpoint_path, state_path
from indextables.runner import pause_s
from indextables.storage import Store


def with_retries(
    write: Callable[[], None], *, config: Config, sleep: Callable[[float], None] = time.sleep
) -> None:
    """Call until it succeeds or the attempts are used up; the last error is raised.

    An object that exists, or does not, is an answer and no failure of the store; a full disk stays
    full.
    """
    attempts = config[keys.STATE_RETRY_ATTEMPTS]
    for attempt in range(1, attempts + 1):
        try:
            return write()
        except (ObjectExistsError, ObjectNotFoundError, StorageRefusedError):
            raise
        except StorageError:
            if attempt == attempts:
                raise
        base_s = config[keys.STATE_RETRY_BASE_DELAY] / 1000
        longest_s = config[keys.STATE_RETRY_MAX_DELAY] / 1000
        sleep(pause_s(attempt, base_s=base_s, longest_s=longest_s))
    return None


def put_once(put: Callable[[], None], *, config: Config) -> bool:
    """Put-if-absent with retries: False where the object was there.

    An attempt whose answer was lost may have written it; that counts as there, too.
    """
    try:
        with_retries(put, config=config)
    except ObjectExistsError:
        return False
    return True


Format = Literal["json", "json-multipart", "avro-state"]

_NO_CHECKSUM = "00000000"
_MAX_SIZE = 1 << 16
_MAX_VERSION = 10**20 - 1
_RACES = 100
_NAMES = {
    "version": "version",
    "size": "size",
    "size_in_bytes": "sizeInBytes",
    "num_files": "numFiles",
    "created_time": "createdTime",
    "parts": "parts",
    "checkpoint_id": "checkpointId",
    "format": "format",
    "state_dir": "stateDir",
}
_NUMBERS = ("version", "size", "sizeInBytes", "numFiles", "createdTime", "parts")
_TEXTS = ("checkpointId", "format", "stateDir")


@dataclass(frozen=True, slots=True)
class LastCheckpoint:
    """A checkpoint and its totals: `size` actions, `num_files` files of `size_in_bytes` bytes."""

    version: int
    size: int
    size_in_bytes: int
    num_files: int
    created_time: int
    parts: int | None = None
    checkpoint_id: str | None = None
    format: str | None = None
    state_dir: str | None = None


def read_last_checkpoint(store: Store) -> LastCheckpoint | None:
    """The hint, or None where it is missing or invalid."""
    try:
        return _decode(store.get(LAST_CHECKPOINT))
    except ObjectNotFoundError:
        return None


def advance_last_checkpoint(store: Store, new: LastCheckpoint) -> None:
    """Let the pointer name this checkpoint, unless it names a newer one that exists.

    At the same version, one of the other format takes its place: it was asked for.
    """
    data = _encode(new)
    for _ in range(_RACES):
        try:
            current, etag = store.get_with_etag(LAST_CHECKPOINT)
        except ObjectNotFoundError:
            current, etag = b"", None
        hint = _decode(current)
        if hint is not None and _is_newer(hint, new) and _exists(store, hint):
            return
        try:
            store.put_if_match(LAST_CHECKPOINT, data, etag)
        except ObjectExistsError:
            continue  # another writer moved it: read it again
        return
    raise StorageError(
        f"{_RACES} writers in a row moved {LAST_CHECKPOINT} first. The checkpoint is written and "
        "readers will find it; nothing needs to be done.",
        path=LAST_CHECKPOINT,
    )


def _is_newer(current: LastCheckpoint, new: LastCheckpoint) -> bool:
    same = current.version == new.version and _is_state(current) == _is_state(new)
    return current.version > new.version or same


def _is_state(pointer: LastCheckpoint) -> bool:
    return pointer.format == "avro-state" or pointer.state_dir is not None


def _exists(store: Store, pointer: LastCheckpoint) -> bool:
    """Whether the checkpoint is there: a pointer with a wrong number must not stay."""
    version = pointer.version
    path = state_path(version) if _is_state(pointer) else checkpoint_path(version)
    try:
        store.head(path)
    except ObjectNotFoundError:
        return False
    return True


def _encode(pointer: LastCheckpoint) -> bytes:
    body = {_NAMES[name]: v for name, v in asdict(pointer).items() if v is not None}
    blank = orjson.dumps({**body, "checksum": _NO_CHECKSUM})
    return orjson.dumps({**body, "checksum": f"{zlib.crc32(blank):08x}"})


def _decode(data: bytes) -> LastCheckpoint | None:
    if len(data) > _MAX_SIZE:
        return None
    try:
        body: Any = orjson.loads(data)
    except orjson.JSONDecodeError:
        return None
    if not isinstance(body, dict) or not _is_intact(data, body.get("checksum")):
        return None
    numbers = [body.get(name) for name in _NUMBERS]
    texts = [body.get(name) for name in _TEXTS]
    if any(n is not None and (type(n) is not int or not 0 <= n <= _MAX_VERSION) for n in numbers):
        return None
    if any(t is not None and type(t) is not str for t in texts):
        return None
    version, size, size_in_bytes, num_files, created_time, parts = numbers
    if version is None:
        return None
    # The oldest writers put down the version alone.
    return LastCheckpoint(
        version, size or 0, size_in_bytes or 0, num_files or 0, created_time or 0, parts, *texts
    )


def _is_intact(data: bytes, checksum: Any) -> bool:
    if checksum is None:
        return True
    mark = f'"checksum":"{checksum}"'.encode()
    blank = data.replace(mark, f'"checksum":"{_NO_CHECKSUM}"'.encode(), 1)
    return mark in data and f"{zlib.crc32(blank):08x}" == checksum
