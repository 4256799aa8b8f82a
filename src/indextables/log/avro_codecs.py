"""The codecs of Avro's blocks, with a limit on what a block may expand to."""

from __future__ import annotations

import zlib
from typing import Literal

import pyarrow as pa

Codec = Literal["zstd", "snappy", "none"]

_CHUNK = 1 << 22


class DamageError(Exception):
    """What is wrong with a container; becomes a CorruptLogError where the path is known."""


def decompress(block: bytes, codec: bytes, *, room: int) -> bytes | None:
    """The plain block, or None where it has more than `room` bytes. `codec` is Avro's name."""
    if codec == b"null":
        raw: bytes | None = block if len(block) <= room else None
    elif codec == b"zstandard":
        raw = _unzstd(block, room)
    elif codec == b"snappy":
        raw = _unsnappy(block, room)
    elif codec == b"deflate":
        raw = _inflate(block, room)
    else:
        raise DamageError(f"its codec {codec.decode('utf-8', 'replace')!r} is none of Avro's")
    return raw


def _unzstd(block: bytes, room: int) -> bytes | None:
    pieces: list[bytes] = []
    size = 0
    try:
        with pa.CompressedInputStream(pa.BufferReader(block), "zstd") as stream:
            while piece := stream.read(min(_CHUNK, room - size + 1)):
                size += len(piece)
                if size > room:
                    return None
                pieces.append(piece)
    except (OSError, pa.ArrowException) as error:
        raise DamageError(f"a block does not decompress ({error})") from error
    return b"".join(pieces)


def _unsnappy(block: bytes, room: int) -> bytes | None:
    body, expected = block[:-4], block[-4:]
    size = shift = at = 0
    while True:  # the length comes first; the decompressor would trust any length it is told
        if at >= len(body) or shift > 28:
            raise DamageError("a block has no length")
        size |= (body[at] & 0x7F) << shift
        if body[at] < 0x80:
            break
        at, shift = at + 1, shift + 7
    if size > room:
        return None
    if size > 64 * len(body):  # snappy copies 64 bytes at most with two
        raise DamageError("a block claims more bytes than it can hold")
    try:
        raw = bytes(pa.Codec("snappy").decompress(body, decompressed_size=size, asbytes=True))
    except (OSError, pa.ArrowException) as error:
        raise DamageError(f"a block does not decompress ({error})") from error
    if zlib.crc32(raw).to_bytes(4, "big") != expected:
        raise DamageError("a block does not match its checksum")
    return raw


def _inflate(block: bytes, room: int) -> bytes | None:
    stream = zlib.decompressobj(wbits=-15)
    try:
        raw = stream.decompress(block, room + 1)
    except zlib.error as error:
        raise DamageError(f"a block does not decompress ({error})") from error
    if len(raw) > room:
        return None
    # Some writers leave bytes of zlib's checksum behind.
    if not stream.eof or len(stream.unused_data) > 4:
        raise DamageError("a block does not end where it should")
    return raw


def compress(raw: bytes, codec: Codec, level: int) -> bytes:
    """The block as the codec has it."""
    if codec == "none":
        return raw
    if codec == "snappy":
        body = bytes(pa.Codec("snappy").compress(raw, asbytes=True))
        return body + zlib.crc32(raw).to_bytes(4, "big")
    return bytes(pa.Codec("zstd", compression_level=level).compress(raw, asbytes=True))
