"""Small files that grow: memory stays in proportion to the bytes that were really decompressed."""

from __future__ import annotations

import gzip
import tracemalloc

import pytest

from indextables.errors import LogError
from indextables.log.version_files import decode_actions, decode_lines

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
