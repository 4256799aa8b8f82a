"""Avro object container files: a header with a schema, then blocks of records in some codec.

The Avro libraries trust what they read: a small file can ask them for any amount of memory, and a
flipped bit can become another value. So the container is taken apart here, strictly and within a
limit on what a block may expand to, and only its plain content goes on to a decoder. Our own files
carry a checksum in the header: the CRC-32 of the whole file, taken with the checksum's own digits
set to zero.
"""

from __future__ import annotations

import hashlib
import io
import zlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import orjson
import pyarrow as pa

from indextables.errors import CorruptLogError, LogTooLargeError
from indextables.log.layout import ENGINE

Codec = Literal["zstd", "snappy", "none"]

_CHUNK = 1 << 22


class DamageError(Exception):
    """A defect of a container; becomes a CorruptLogError where the path is known."""


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
        raise DamageError(f"its codec {codec.decode('utf-8', 'replace')!r} is not one of Avro's")
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


_MAGIC = b"Obj\x01"
_SYNC_SIZE = 16
_CHECKSUM_KEY = "indextables.checksum"
_ENGINE_KEY = "indextables.engine"
_NO_CHECKSUM = b"00000000"
_CODEC_NAMES: dict[str, bytes] = {"zstd": b"zstandard", "snappy": b"snappy", "none": b"null"}
# Large blocks compress better; a decoder holds one at a time.
_BLOCK_SIZE = 1 << 20
_MAX_DEPTH = 32
_ANY_SIZE = 16 << 20
_MOST_EXPANSION = 256
"""What a file larger than `_ANY_SIZE` may grow to; entries have random names and compress badly."""
_ANY_RECORDS = 1_000
_SHORT_RECORD = 32
"""More records than these must have so many bytes each; an entry becomes 30 columns."""
_ONE_BYTE_AT_LEAST = frozenset(
    {"boolean", "int", "long", "float", "double", "bytes", "string", "enum"}
)


@dataclass(frozen=True, slots=True)
class Container:
    """A container whose checksum is right. `plain` is the same file without compression."""

    schema: Mapping[str, Any]
    count: int
    plain: bytes
    is_ours: bool


# --- reading ---------------------------------------------------------------------------------


def read_container(data: bytes, *, where: str, limit: int) -> Container:
    """Read and validate a container; every defect is a `CorruptLogError`."""
    if len(data) > limit:
        raise LogTooLargeError(where, limit=limit)
    try:
        return _read(data, where=where, limit=limit)
    except DamageError as damage:
        raise CorruptLogError(where, str(damage)) from damage.__cause__


def decode_records(container: Container, *, where: str) -> list[dict[str, Any]]:
    """The records as Python objects. For few records; many are decoded into Arrow elsewhere."""
    import fastavro

    try:
        return list(fastavro.reader(io.BytesIO(container.plain)))  # type: ignore[arg-type]
    except Exception as error:  # fastavro raises errors of any class
        raise CorruptLogError(where, f"its records do not decode ({error!r})") from error


def _read(data: bytes, *, where: str, limit: int) -> Container:
    metadata, spans, start = _header(data)
    _verify_checksum(data, metadata, spans)
    schema = _schema(metadata)
    codec = metadata.get("avro.codec", b"null")
    sync = data[start - _SYNC_SIZE : start]
    pieces = [_encode_header({"avro.schema": metadata["avro.schema"]}, sync)]
    count, size = 0, len(pieces[0])
    most = min(limit, max(_ANY_SIZE, _MOST_EXPANSION * len(data)))
    for records, block in _blocks(data, start, sync):
        raw = decompress(block, codec, room=most - size)
        if raw is None and most < limit:
            raise DamageError(f"its {len(data):,} bytes grow to more than {most:,}")
        if raw is None:
            raise LogTooLargeError(where, limit=limit)
        count += records
        size += len(raw)
        # Our records are never empty. If they could be, a count could claim billions of them.
        if records > len(raw) or count > _ANY_RECORDS + size // _SHORT_RECORD:
            raise DamageError(f"{size:,} bytes cannot hold {count:,} records")
        if codec != b"null":
            pieces += [_encode_long(records), _encode_long(len(raw)), raw, sync]
    plain = data if codec == b"null" else b"".join(pieces)
    return Container(schema, count, plain, _ENGINE_KEY in metadata)


def _header(data: bytes) -> tuple[dict[str, bytes], dict[str, int], int]:
    """Metadata, where each value starts, and where the first block starts."""
    if not data.startswith(_MAGIC):
        raise DamageError("it is not an Avro file")
    metadata: dict[str, bytes] = {}
    starts: dict[str, int] = {}
    at = len(_MAGIC)
    while True:
        count, at = _long(data, at)
        if count == 0:
            break
        if count < 0:  # the writer also says the size of this part of the map
            count = -count
            _, at = _long(data, at)
        for _ in range(count):
            key, at, _ = _sized(data, at)
            value, at, start = _sized(data, at)
            name = key.decode("utf-8", "replace")
            metadata[name] = value
            starts[name] = start
    if at + _SYNC_SIZE > len(data):
        raise DamageError("it ends within its header")
    return metadata, starts, at + _SYNC_SIZE


def _blocks(data: bytes, at: int, sync: bytes) -> Iterator[tuple[int, bytes]]:
    while at < len(data):
        records, at = _long(data, at)
        block, at, _ = _sized(data, at)
        if records < 0:
            raise DamageError("a block has a negative number of records")
        if data[at : at + _SYNC_SIZE] != sync:
            raise DamageError("a block does not end with the sync marker")
        at += _SYNC_SIZE
        yield records, block


def _long(data: bytes, at: int) -> tuple[int, int]:
    """A zigzag variable-length integer, and where it ends."""
    value = 0
    for shift in range(0, 64, 7):
        if at >= len(data):
            raise DamageError("it is cut off")
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1), at
    raise DamageError("a number has too many bytes")


def _sized(data: bytes, at: int) -> tuple[bytes, int, int]:
    """Bytes that follow their length, where they end, and where they start."""
    size, start = _long(data, at)
    if not 0 <= size <= len(data) - start:
        raise DamageError("it is cut off, or a length in it is wrong")
    return data[start : start + size], start + size, start


def _verify_checksum(data: bytes, metadata: Mapping[str, bytes], starts: Mapping[str, int]) -> None:
    expected = metadata.get(_CHECKSUM_KEY)
    if expected is None:
        if ENGINE.encode() in metadata.get(_ENGINE_KEY, b""):
            raise DamageError("its checksum is missing")
        return  # another writer's file
    start = starts[_CHECKSUM_KEY]
    if len(expected) != len(_NO_CHECKSUM) or _checksum(data, start) != expected:
        raise DamageError("its checksum does not match its content")


def _checksum(data: bytes, start: int) -> bytes:
    view = memoryview(data)
    crc = zlib.crc32(_NO_CHECKSUM, zlib.crc32(view[:start]))
    return f"{zlib.crc32(view[start + len(_NO_CHECKSUM) :], crc):08x}".encode()


def _schema(metadata: Mapping[str, bytes]) -> Mapping[str, Any]:
    try:
        schema = orjson.loads(metadata.get("avro.schema", b""))
    except orjson.JSONDecodeError as error:
        raise DamageError("its schema is not JSON") from error
    if not isinstance(schema, dict) or schema.get("type") != "record":
        raise DamageError("its schema is not a record")
    _least_size(schema, 0)
    return schema


def _least_size(schema: Any, depth: int, inside: tuple[str, ...] = ()) -> int:
    """The fewest bytes of a value. Refuses arrays of values without bytes: any count fits them.

    Refuses records within themselves, too: a decoder follows them until its stack overflows.
    `inside` are the names of the records around.
    """
    if depth > _MAX_DEPTH:
        raise DamageError("its schema is nested too deeply")
    if isinstance(schema, list):
        for branch in schema:
            _least_size(branch, depth + 1, inside)
        return 1
    if isinstance(schema, str):
        if schema.rpartition(".")[2] in inside:
            raise DamageError("its schema has a record within itself")
        # A name refers to a record met before; ours refer to none, so it may be empty.
        return 1 if schema in _ONE_BYTE_AT_LEAST else 0
    if not isinstance(schema, dict):
        raise DamageError("its schema has an unknown type")
    type_name = schema.get("type")
    if type_name == "record":
        fields = schema.get("fields")
        if not isinstance(fields, list) or not all(isinstance(f, dict) for f in fields):
            raise DamageError("its schema has a record without fields")
        inside = (*inside, str(schema.get("name", "")).rpartition(".")[2])
        return sum(_least_size(f.get("type"), depth + 1, inside) for f in fields)
    if type_name == "array":
        if _least_size(schema.get("items"), depth + 1, inside) == 0:
            raise DamageError("its schema has an array of empty values")
        return 1
    if type_name == "map":
        _least_size(schema.get("values"), depth + 1, inside)
        return 1
    if type_name == "fixed":
        size = schema.get("size")
        return size if isinstance(size, int) else 0
    return _least_size(type_name, depth + 1, inside)


# --- writing ---------------------------------------------------------------------------------


def write_container(
    schema: Mapping[str, Any], records: Iterable[Mapping[str, Any]], *, codec: Codec, level: int
) -> bytes:
    """A container with these records and our checksum. Equal input makes equal bytes."""
    import fastavro

    buffer = io.BytesIO()
    fastavro.writer(
        buffer, dict(schema), records, sync_interval=_BLOCK_SIZE, sync_marker=bytes(_SYNC_SIZE)
    )
    encoded = buffer.getvalue()
    metadata, _, start = _header(encoded)
    blocks = list(_blocks(encoded, start, bytes(_SYNC_SIZE)))
    digest = hashlib.sha256(metadata["avro.schema"])
    for _, raw in blocks:
        digest.update(raw)
    sync = digest.digest()[:_SYNC_SIZE]
    # Ours come first: whatever damages the map, one of them is seen.
    header = _encode_header(
        {
            _CHECKSUM_KEY: _NO_CHECKSUM,
            _ENGINE_KEY: ENGINE.encode(),
            "avro.schema": metadata["avro.schema"],
            "avro.codec": _CODEC_NAMES[codec],
        },
        sync,
    )
    pieces = [header]
    for count, raw in blocks:
        block = compress(raw, codec, level)
        pieces += [_encode_long(count), _encode_long(len(block)), block, sync]
    data = b"".join(pieces)
    at = data.index(_NO_CHECKSUM)
    return data[:at] + _checksum(data, at) + data[at + len(_NO_CHECKSUM) :]


def _encode_long(value: int) -> bytes:
    remaining = (value << 1) ^ (value >> 63)
    encoded = bytearray()
    while remaining > 0x7F:
        encoded.append(remaining & 0x7F | 0x80)
        remaining >>= 7
    encoded.append(remaining)
    return bytes(encoded)


def _encode_header(metadata: Mapping[str, bytes], sync: bytes) -> bytes:
    pieces = [_MAGIC, _encode_long(len(metadata))]
    for key, value in metadata.items():
        name = key.encode()
        pieces += [_encode_long(len(name)), name, _encode_long(len(value)), value]
    return b"".join([*pieces, _encode_long(0), sync])
