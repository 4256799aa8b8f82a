"""Containers: nothing damaged gets through, nothing expands without limit."""

from __future__ import annotations

import io
import zlib

import fastavro
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from indextables.errors import CorruptLogError, LogError, LogTooLargeError
from indextables.log.checkpoint.avro_container import (
    _encode_header,
    _encode_long,
    decode_records,
    read_container,
    write_container,
)

SCHEMA = {
    "type": "record",
    "name": "R",
    "fields": [{"name": "a", "type": "string"}, {"name": "b", "type": ["null", "long"]}],
}
RECORDS = [{"a": f"text {n} ÄΩ🙂", "b": n if n % 2 else None} for n in range(500)]
LIMIT = 1 << 20


def read(data: bytes, limit: int = LIMIT):
    return read_container(data, where="x.avro", limit=limit)


@pytest.mark.parametrize("codec", ["zstd", "snappy", "none"])
def test_what_is_written_is_read(codec):
    data = write_container(SCHEMA, RECORDS, codec=codec, level=3)
    container = read(data)
    assert container.count == len(RECORDS)
    assert container.is_ours
    assert decode_records(container, where="x.avro") == RECORDS
    # Others read it as well.
    if codec == "none":
        assert list(fastavro.reader(io.BytesIO(data))) == RECORDS


def test_equal_records_give_equal_bytes():
    def write():
        return write_container(SCHEMA, iter(RECORDS), codec="zstd", level=3)

    assert write() == write()
    other = write_container(SCHEMA, RECORDS[1:], codec="none", level=3)
    assert other[-16:] != write_container(SCHEMA, RECORDS, codec="none", level=3)[-16:]


def test_a_higher_level_compresses_better():
    sizes = [len(write_container(SCHEMA, RECORDS * 20, codec="zstd", level=n)) for n in (1, 19)]
    assert sizes[1] < sizes[0]


@pytest.mark.parametrize("codec", ["null", "deflate"])
def test_files_of_others_are_read(codec):
    buffer = io.BytesIO()
    fastavro.writer(buffer, SCHEMA, RECORDS, codec=codec, sync_interval=1000)
    container = read(buffer.getvalue())
    assert decode_records(container, where="x.avro") == RECORDS
    assert not container.is_ours


def test_no_records():
    container = read(write_container(SCHEMA, [], codec="zstd", level=3))
    assert (container.count, decode_records(container, where="x")) == (0, [])


@pytest.mark.parametrize("codec", ["zstd", "snappy", "none"])
def test_every_flipped_bit_is_noticed(codec):
    data = write_container(SCHEMA, RECORDS[:3], codec=codec, level=3)
    for at in range(len(data)):
        for bit in range(8):
            broken = bytearray(data)
            broken[at] ^= 1 << bit
            with pytest.raises(CorruptLogError):
                read(bytes(broken))


@pytest.mark.parametrize("codec", ["zstd", "snappy", "none"])
def test_every_truncation_is_noticed(codec):
    data = write_container(SCHEMA, RECORDS[:3], codec=codec, level=3)
    for end in range(len(data)):
        with pytest.raises(CorruptLogError):
            read(data[:end])


def test_a_file_of_ours_without_its_checksum_is_damaged():
    data = write_container(SCHEMA, RECORDS, codec="none", level=3)
    with pytest.raises(CorruptLogError, match="checksum is missing"):
        read(data.replace(b"indextables.checksum", b"indextables.chexksum"))


@given(st.binary(max_size=300))
def test_noise_after_a_good_start_is_an_error(noise):
    head = _encode_header({"avro.schema": b'{"type":"record","fields":[]}'}, bytes(16))
    try:
        read(head + noise, limit=1 << 16)
    except LogError:
        pass
    else:
        assert noise == b"" or read(head + noise).count == 0


def container_with(codec: bytes, block: bytes, *, count: int = 1, schema: bytes = b"") -> bytes:
    schema = schema or b'{"type":"record","name":"R","fields":[{"name":"a","type":"bytes"}]}'
    head = _encode_header({"avro.schema": schema, "avro.codec": codec}, bytes(16))
    return head + _encode_long(count) + _encode_long(len(block)) + block + bytes(16)


def deflated(raw: bytes) -> bytes:
    packer = zlib.compressobj(9, wbits=-15)
    return packer.compress(raw) + packer.flush()


ZEROS = bytes(64 << 20)
BOMBS = {
    b"zstandard": lambda: pa.Codec("zstd").compress(ZEROS, asbytes=True),
    b"snappy": lambda: pa.Codec("snappy").compress(ZEROS, asbytes=True) + b"\0\0\0\0",
    b"deflate": lambda: deflated(ZEROS),
}


@pytest.mark.parametrize("codec", BOMBS)
def test_bombs(codec):
    block = BOMBS[codec]()
    with pytest.raises(LogTooLargeError):
        read(container_with(codec, block), limit=8 << 20)


def test_many_blocks_count_together():
    head = container_with(b"deflate", deflated(bytes(600_000)))
    once_more = head[-(len(deflated(bytes(600_000))) + 16 + 4) :]
    with pytest.raises(LogError):
        read(head + once_more, limit=LIMIT)


def test_a_large_file_is_not_even_parsed():
    with pytest.raises(LogTooLargeError):
        read(b"Obj\x01" + bytes(100), limit=50)


EMPTY_ITEMS = (
    b'{"type":"record","name":"R","fields":[{"name":"a","type":{"type":"array","items":"null"}}]}'
)
DAMAGED = {
    "no avro": b"PAR1",
    "empty": b"",
    "unknown codec": container_with(b"lzma", b"x"),
    "more records than bytes": container_with(b"null", b"x", count=2),
    "negative count": container_with(b"null", b"x", count=-1),
    "array of nothing": container_with(b"null", b"\x02\x00", schema=EMPTY_ITEMS),
    "no record": container_with(b"null", b"x", schema=b'"string"'),
    "schema no json": container_with(b"null", b"x", schema=b"{"),
    "type no type": container_with(
        b"null", b"x", schema=b'{"type":"record","fields":[{"name":"a","type":7}]}'
    ),
    "deep schema": container_with(
        b"null",
        b"x",
        schema=b'{"type":"record","fields":[{"name":"a","type":'
        + b'{"type":"array","items":' * 40
        + b'"int"'
        + b"}" * 40
        + b"}]}",
    ),
    "broken zstd": container_with(b"zstandard", b"(\xb5/\xfdxxxx"),
    "zstd with a tail": container_with(
        b"zstandard", pa.Codec("zstd").compress(b"abc", asbytes=True) + b"tail"
    ),
    "snappy without checksum": container_with(
        b"snappy", pa.Codec("snappy").compress(b"abc", asbytes=True) + b"\0\0\0\0"
    ),
    "snappy of nothing": container_with(b"snappy", b"\0\0\0\0"),
    "snappy that claims too much": container_with(b"snappy", b"\xff\xff\x0f" + b"\0\0\0\0"),
    "deflate cut off": container_with(b"deflate", deflated(b"abc" * 100)[:-3]),
    "deflate with a tail": container_with(b"deflate", deflated(b"abc") + b"a tail"),
    "long of eleven bytes": b"Obj\x01" + b"\xff" * 11,
}


@pytest.mark.parametrize("case", DAMAGED)
def test_damage(case):
    with pytest.raises(CorruptLogError, match=r"x\.avro"):
        read(DAMAGED[case])


def test_records_that_do_not_decode():
    container = read(container_with(b"null", b"\x7f"))
    with pytest.raises(CorruptLogError):
        decode_records(container, where="x.avro")
