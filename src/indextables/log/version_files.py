"""The bytes of a version file, and of a JSON checkpoint: newline-delimited JSON, usually gzip.

We write plain gzip or plain text. We read those and the gzip with a two-byte header (`01 01`)
that the Scala product writes. Gzip guards its content with a checksum; so that a flipped bit in
a plain file is noticed too, our `commitInfo` carries a checksum of the whole text, taken with the
checksum's own digits set to zero.
"""

from __future__ import annotations

import gzip
import re
import zlib
from collections.abc import Iterable, Sequence

import orjson

from indextables.errors import CorruptLogError, LogTooLargeError
from indextables.log.actions import Action, CommitInfo, action_from_json

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
    """The lines that are not blank. A list of very many short ones would be a bomb."""
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
        raise CorruptLogError(where, f"a line is no JSON ({error})") from error


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
        return  # another writer's file; gzip's own checksum has to do
    start, end = match.span(1)
    blank = text[:start] + _NO_CHECKSUM.encode() + text[end:]
    if f"{zlib.crc32(blank):08x}".encode() != match[1]:
        raise CorruptLogError(where, "its checksum does not match its content")
