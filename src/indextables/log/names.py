"""How the files of a log are named, and which paths a log may name.

Everything lies under `<table>/_transaction_log/`. The names are those of the protocol; the
patterns are strict, so that a stray file is never taken for a version.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

import pyarrow as pa
import pyarrow.compute as pc

from indextables.errors import UnsafePathError

LOG_DIRECTORY = "_transaction_log"
LAST_CHECKPOINT = f"{LOG_DIRECTORY}/_last_checkpoint"
PURGE_LOCK = f"{LOG_DIRECTORY}/_purge"
"""Held by a purge that deletes and by commits: never an object itself."""
MANIFEST_DIRECTORY = f"{LOG_DIRECTORY}/manifests"
STATE_MANIFEST = "_manifest.avro"

_VERSION = re.compile(r"(\d{20})\.json")
_CHECKPOINT = re.compile(r"(\d{20})\.checkpoint\.json")
_PART = re.compile(r"(\d{20})\.checkpoint\.([0-9a-f-]{1,64})\.(\d{5})\.json")
_STATE = re.compile(r"state-v(\d{20})")

# Absolute, with a scheme or drive, climbing out, or with characters no writer of ours produces.
_UNSAFE = (
    r"(^|/)\.\.?(/|$)|^/|//|^[A-Za-z][A-Za-z0-9+.\-]*:|\\|[\x00-\x1f]|^$|/$"
    r"|^_transaction_log(/|$)"
)
_UNSAFE_PATH = re.compile(_UNSAFE)


def version_path(version: int) -> str:
    """The version file.

    >>> version_path(7)
    '_transaction_log/00000000000000000007.json'
    """
    return f"{LOG_DIRECTORY}/{version:020d}.json"


def checkpoint_path(version: int) -> str:
    """The JSON checkpoint of a version, or the manifest of one in several parts."""
    return f"{LOG_DIRECTORY}/{version:020d}.checkpoint.json"


def checkpoint_part_path(version: int, checkpoint_id: str, part: int) -> str:
    """One part of a JSON checkpoint; parts count from 1."""
    return f"{LOG_DIRECTORY}/{version:020d}.checkpoint.{checkpoint_id}.{part:05d}.json"


def state_directory_name(version: int) -> str:
    """The folder of an Avro state, relative to the log."""
    return f"state-v{version:020d}"


def state_path(version: int) -> str:
    """The manifest list of an Avro state."""
    return f"{LOG_DIRECTORY}/{state_directory_name(version)}/{STATE_MANIFEST}"


def parse_version(name: str) -> int | None:
    """The version of a version file's bare name, else None.

    >>> parse_version("00000000000000000007.json"), parse_version("7.json")
    (7, None)
    """
    match = _VERSION.fullmatch(name)
    return int(match[1]) if match else None


def parse_checkpoint(name: str) -> int | None:
    """The version of a JSON checkpoint's bare name, else None."""
    match = _CHECKPOINT.fullmatch(name)
    return int(match[1]) if match else None


def parse_checkpoint_part(name: str) -> tuple[int, str, int] | None:
    """Version, checkpoint id and part number of a part's bare name, else None."""
    match = _PART.fullmatch(name)
    return (int(match[1]), match[2], int(match[3])) if match else None


def parse_state(name: str) -> int | None:
    """The version of a state folder's bare name, else None."""
    match = _STATE.fullmatch(name)
    return int(match[1]) if match else None


def check_paths(paths: Iterable[str], *, where: str) -> None:
    """Refuse the first path that could lead outside the table."""
    for path in paths:
        if _UNSAFE_PATH.search(path):
            raise UnsafePathError(path, where=where)


def check_path_column(paths: pa.ChunkedArray[pa.StringScalar], *, where: str) -> None:
    """The same for a whole Arrow column, in one pass."""
    unsafe = pc.filter(paths, pc.match_substring_regex(paths, _UNSAFE))
    if len(unsafe):
        raise UnsafePathError(unsafe[0].as_py(), where=where)
