"""Small files that grow: memory stays in proportion to the bytes that were really decompressed."""

from __future__ import annotations

import gzip
import subprocess
import sys
import tracemalloc

import pytest

from indextables.errors import LogError
from indextables.log.layout import decode_actions, decode_lines

SIZE = 2 << 20
BOMBS = {
    "newlines": b"\n" * SIZE,
    "blanks": b" \n" * (SIZE // 2),
    "empty objects": b"{}\n" * (SIZE // 3),
    "one letter": b"a\n" * (SIZE // 2),
    "newlines and one action": b'{"remove":{"path":"a"}}\n' + b"\n" * SIZE,
}


@pytest.mark.parametrize("text", BOMBS.values(), ids=BOMBS.keys())
@pytest.mark.parametrize("decode", [decode_lines, decode_actions])
def test_lines_take_no_more_memory_than_their_text(text, decode):
    data = gzip.compress(text)
    assert len(data) < SIZE // 100
    tracemalloc.start()
    try:
        decode(data, where="v1", limit=1 << 30)
    except LogError as error:
        assert "v1" in str(error)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 6 * SIZE


def test_blank_lines_are_passed_over():
    lines = decode_lines(b'\n \n{"a":{}}\n\n\t\n{"b":{}}\n', where="v1", limit=100)
    assert lines == [b'{"a":{}}', b'{"b":{}}']


CRAFTED_AVRO = """
import resource, sys, zlib
import datafusion, fastavro, orjson, pyarrow as pa
from indextables.errors import LogError
from indextables.log.checkpoint.avro_container import _encode_header, _encode_long, read_container
from indextables.config import Config
from indextables.log.checkpoint.avro_state import decode_manifest, read_state_manifest, tables_of
from indextables.log.checkpoint.state_schema import FILE_ENTRY

def record(kind):
    fields = [{"name": "path", "type": kind}]
    return {"type": "record", "name": "R", "fields": fields}

def deflate(raw):
    packer = zlib.compressobj(9, wbits=-15)
    return packer.compress(raw) + packer.flush()

PACK = {
    b"zstandard": lambda raw: pa.Codec("zstd").compress(raw, asbytes=True),
    b"deflate": deflate,
    b"null": bytes,
}
HUGE = _encode_long(1 << 40)
LARGE = 48 << 20
strings, texts = {"type": "array", "items": "string"}, {"type": "map", "values": "string"}
FILES = {
    "very short records": (record("boolean"), LARGE, bytes(LARGE)),
    "short entries": (FILE_ENTRY, LARGE // 30, bytes(LARGE)),
    "one long text": (record("string"), 1, _encode_long(LARGE) + bytes(LARGE)),
    "empty items": (record(strings), 1, _encode_long(LARGE) + bytes(LARGE + 1)),
    "empty items of many": (record(strings), 301, bytes(300) + _encode_long(LARGE) + bytes(LARGE)),
    "claimed array": (record(strings), 300, (HUGE + bytes(99)) * 300),
    "claimed map": (record(texts), 300, (HUGE + bytes(99)) * 300),
    "claimed text": (record("string"), 300, (HUGE + bytes(99)) * 300),
    "claimed text of one": (record("string"), 1, HUGE + bytes(99)),
    "claimed bytes": (record({"type": "fixed", "name": "F", "size": 1 << 40}), 300, bytes(999)),
    "negative text": (record("string"), 300, (_encode_long(-5) + bytes(99)) * 300),
    "negative array": (record(strings), 300, (_encode_long(-(1 << 40)) + bytes(99)) * 300),
    "a record within itself": (record(["null", "R"]), 1, bytes([2]) * (15 << 20) + bytes(1)),
    "within itself by a full name": (
        record({"type": "array", "items": "x.R"}), 1, bytes([2]) * (15 << 20)
    ),
}

class Held:
    # A store in which every object is the crafted file.
    uri = "memory://crafted"
    data = b""

    def get(self, path):
        return self.data

def as_manifest(data):
    tables_of([decode_manifest(read_container(data, where="x", limit=1 << 30), where="x")])

def as_state(data):
    Held.data = data
    read_state_manifest(Held(), 1, config=Config())

for name, (schema, count, raw) in FILES.items():
    for codec, pack in PACK.items():
        block = pack(raw)
        header = {"avro.schema": orjson.dumps(schema), "avro.codec": codec}
        size = _encode_long(count) + _encode_long(len(block))
        data = _encode_header(header, bytes(16)) + size + block + bytes(16)
        if len(data) > 1 << 20:
            continue  # it is as large as it says
        for read in (as_manifest, as_state):
            before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
            try:
                read(data)
            except LogError as error:
                assert "is damaged" in str(error), error
            else:
                raise SystemExit(f"{name}, {codec}, {read.__name__}: not refused")
            taken = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
            if taken > 300 << 10:
                raise SystemExit(f"{name}, {codec}, {read.__name__}: {taken >> 10} MB")
"""


def test_crafted_avro_files_take_little_memory_and_never_end_the_process():
    command = [sys.executable, "-c", CRAFTED_AVRO]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr or done.returncode
