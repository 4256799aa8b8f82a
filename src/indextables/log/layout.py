"""The directory of a log: how files are named, which there are, and the bytes of a version file.

Everything lies under `<table>/_transaction_log/`. The names are those of the protocol; the
patterns are strict, so that a stray file is never taken for a version. A full listing answers
everything. To find what is new after a known version, two listings that start there are enough,
however long the log is.

A version file, and a JSON checkpoint, is newline-delimited JSON, usually gzip. We write plain gzip
or plain text. We read those and the gzip with a two-byte header (`01 01`) that the Scala product
writes. Gzip guards its content with a checksum; so that a flipped bit in a plain file is noticed
too, our `commitInfo` carries a checksum of the whole text, taken with the checksum's own digits set
to zero.
"""

from __future__ import annotations

import gzip
import re
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import orjson
import pyarrow as pa
import pyarrow.compute as pc

from indextables.errors import CorruptLogError, LogTooLargeError, UnsafePathError
from indextables.log.actions import Action, CommitInfo, action_from_json
from indextables.storage import ObjectMeta, Store

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

# Absolute, with a scheme or drive, climbing out, or with characters that this package never writes.
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


@dataclass(slots=True)
class LogListing:
    """Objects of a log by version. `states` holds the manifest list of each Avro state."""

    versions: dict[int, ObjectMeta] = field(default_factory=dict)
    checkpoints: dict[int, ObjectMeta] = field(default_factory=dict)
    parts: dict[int, list[ObjectMeta]] = field(default_factory=dict)
    states: dict[int, ObjectMeta] = field(default_factory=dict)

    @property
    def latest(self) -> int:
        """The newest version that any file belongs to, or -1."""
        return max((*self.versions, *self.checkpoints, *self.states), default=-1)

    def take(self, objects: Iterable[ObjectMeta]) -> LogListing:
        """Add these objects; those that are not files of a log are ignored."""
        for meta in objects:
            folder, _, name = meta.path.removeprefix(LOG_DIRECTORY + "/").rpartition("/")
            if not folder:
                self._take_file(name, meta)
            elif name == STATE_MANIFEST and (state := parse_state(folder)) is not None:
                self.states[state] = meta
        return self

    def _take_file(self, name: str, meta: ObjectMeta) -> None:
        if (version := parse_version(name)) is not None:
            self.versions[version] = meta
        elif (version := parse_checkpoint(name)) is not None:
            self.checkpoints[version] = meta
        elif (part := parse_checkpoint_part(name)) is not None:
            self.parts.setdefault(part[0], []).append(meta)


def list_log(store: Store) -> LogListing:
    """Everything in the log, in one paginated listing."""
    return LogListing().take(store.list(LOG_DIRECTORY))


def list_log_after(store: Store, version: int) -> LogListing:
    """The files of this version and later ones.

    Names of version files sort before all others in the log and states sort after them, so both
    parts are contiguous in a listing: an old log costs no more than a young one.
    """
    listing = LogListing()
    # '00…07.' sorts before both '00…07.json' and '00…07.checkpoint.json'.
    start = f"{LOG_DIRECTORY}/{version:020d}."
    for meta in store.list(LOG_DIRECTORY, start_after=start):
        if not meta.path[len(LOG_DIRECTORY) + 1 :][:1].isdigit():
            break
        listing.take([meta])
    before = f"{LOG_DIRECTORY}/{state_directory_name(version)}"
    return listing.take(store.list(LOG_DIRECTORY, start_after=before))


def list_states(store: Store) -> dict[int, ObjectMeta]:
    """The Avro states alone; no version file is listed."""
    before = f"{LOG_DIRECTORY}/{state_directory_name(0)}"
    return LogListing().take(store.list(LOG_DIRECTORY, start_after=before)).states


# --- the bytes of a version file -------------------------------------------------------------

_GZIP = b"\x1f\x8b"
_HEADER = b"\x01\x01"
_NO_CHECKSUM = "00000000"
_LINE = re.compile(rb"\S[^\n]*")
_SHORT_LINE = 16
"""Actions are longer than this; in so many bytes there is one line at the most."""
_ANY_LINES = 1_000
_CHECKSUM = re.compile(rb'"checksum":"([0-9a-f]{8})"')

ENGINE = "indextables-python"


def encode_actions(actions: Sequence[Action], *, compress: bool) -> bytes:
    """The bytes of a file that holds these actions; a `commitInfo` gets its checksum here."""
    lines = []
    for action in actions:
        document = action.to_json()
        if isinstance(action, CommitInfo):
            document[action.kind]["checksum"] = _NO_CHECKSUM
        lines.append(orjson.dumps(document))
    text = b"\n".join(lines) + b"\n"
    if any(isinstance(action, CommitInfo) for action in actions):
        digits = f"{zlib.crc32(text):08x}".encode()
        text = text.replace(f'"checksum":"{_NO_CHECKSUM}"'.encode(), b'"checksum":"%b"' % digits, 1)
    # mtime=0: the same actions give the same bytes.
    return gzip.compress(text, 6, mtime=0) if compress else text


def decode_lines(data: bytes, *, where: str, limit: int) -> list[bytes]:
    """The lines of a file, decompressed within the limit and checked against its checksum."""
    if data.startswith(_HEADER + _GZIP):
        data = data[len(_HEADER) :]
    text = _gunzip(data, where=where, limit=limit) if data.startswith(_GZIP) else data
    if len(text) > limit:
        raise LogTooLargeError(where, limit=limit)
    if not text.endswith((b"\n", b"}")):
        raise CorruptLogError(where, "it ends in the middle of a line" if text else "it is empty")
    lines = _lines(text, where=where)
    if not lines:
        raise CorruptLogError(where, "it is empty")
    _verify(text, lines[0], where=where)
    return lines


def _lines(text: bytes, *, where: str) -> list[bytes]:
    """The lines that are not blank, within a limit: a list of very many would exhaust memory."""
    most = _ANY_LINES + len(text) // _SHORT_LINE
    lines: list[bytes] = []
    for match in _LINE.finditer(text):
        if len(lines) >= most:
            raise CorruptLogError(where, f"it has more than {most:,} lines and hardly any text")
        lines.append(match[0])
    return lines


def decode_actions(data: bytes, *, where: str, limit: int) -> list[Action]:
    """The actions of a file."""
    return actions_from_lines(decode_lines(data, where=where, limit=limit), where=where)


def actions_from_lines(lines: Iterable[bytes], *, where: str) -> list[Action]:
    """Lines that were decoded already, as actions."""
    try:
        return [action_from_json(orjson.loads(line), where=where) for line in lines]
    except orjson.JSONDecodeError as error:
        raise CorruptLogError(where, f"a line is not JSON ({error})") from error


def _gunzip(data: bytes, *, where: str, limit: int) -> bytes:
    pieces: list[bytes] = []
    size = 0
    while data:  # concatenated members are legal gzip
        stream = zlib.decompressobj(wbits=31)
        try:
            piece = stream.decompress(data, limit - size + 1)
        except zlib.error as error:
            raise CorruptLogError(where, f"its gzip stream is broken ({error})") from error
        size += len(piece)
        pieces.append(piece)
        if size > limit:
            raise LogTooLargeError(where, limit=limit)
        if not stream.eof:
            raise CorruptLogError(where, "its gzip stream is cut off")
        data = stream.unused_data
    return b"".join(pieces)


def _verify(text: bytes, first_line: bytes, *, where: str) -> None:
    match = _CHECKSUM.search(first_line)
    if match is None:
        if ENGINE.encode() in first_line:
            raise CorruptLogError(where, "its checksum is missing")
        return  # another writer's file; only gzip's own checksum protects it
    start, end = match.span(1)
    blank = text[:start] + _NO_CHECKSUM.encode() + text[end:]
    if f"{zlib.crc32(blank):08x}".encode() != match[1]:
        raise CorruptLogError(where, "its checksum does not match its content")
