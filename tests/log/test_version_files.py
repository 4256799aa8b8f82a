from __future__ import annotations

import gzip

import pytest
from hypothesis import given
from hypothesis import strategies as st

from indextables.errors import CorruptLogError, LogError, LogTooLargeError
from indextables.log.actions import Add, CommitInfo, Remove
from indextables.log.layout import ENGINE, decode_actions, encode_actions

LIMIT = 1 << 20
INFO = CommitInfo(txn_id="t1", timestamp=5, operation="APPEND", engine_info=ENGINE)
ACTIONS = [INFO, Add(path="a.split", size=1), Remove(path="b.split")]


def body(actions):
    return [a for a in actions if not isinstance(a, CommitInfo)]


@pytest.mark.parametrize("compress", [True, False])
def test_round_trip(compress):
    data = encode_actions(ACTIONS, compress=compress)
    assert data.startswith(b"\x1f\x8b") is compress
    assert body(decode_actions(data, where="v", limit=LIMIT)) == ACTIONS[1:]
    assert data == encode_actions(ACTIONS, compress=compress), "the same actions, the same bytes"


def test_the_header_of_the_scala_product_is_understood():
    data = b"\x01\x01" + encode_actions(ACTIONS, compress=True)
    assert body(decode_actions(data, where="v", limit=LIMIT)) == ACTIONS[1:]


@pytest.mark.parametrize(
    "text",
    [b'{"add":{"path":"a"}}', b'\n{"add":{"path":"a"}}\n\n', b'{"add":{"path":"a"}}\n'],
)
def test_plain_text_of_others_is_read(text):
    assert decode_actions(text, where="v", limit=LIMIT) == [Add(path="a")]
    halves = gzip.compress(text[:5]) + gzip.compress(text[5:])
    assert decode_actions(halves, where="v", limit=LIMIT) == [Add(path="a")]


@pytest.mark.parametrize(
    "data", [b"", b"\n", b"\x01\x01", b"\x1f\x8b", b"{", b'{"add":{"path":"a"}}\n{"re']
)
def test_cut_off_files_are_damage(data):
    with pytest.raises(CorruptLogError):
        decode_actions(data, where="v", limit=LIMIT)


def test_a_bomb_is_refused_without_being_expanded():
    bomb = gzip.compress(b" " * (64 << 20))
    assert len(bomb) < 100_000
    with pytest.raises(LogTooLargeError, match="maxFileSize"):
        decode_actions(bomb, where="v", limit=LIMIT)
    with pytest.raises(LogTooLargeError):
        decode_actions(bomb * 3, where="v", limit=65 << 20)


@given(
    compress=st.booleans(),
    where=st.floats(0, 1, exclude_max=True),
    bit=st.integers(0, 7),
    keep=st.floats(0, 1) | st.none(),
)
def test_a_flipped_bit_or_a_cut_never_changes_what_a_version_says(compress, where, bit, keep):
    data = bytearray(encode_actions(ACTIONS, compress=compress))
    data[int(where * len(data))] ^= 1 << bit
    damaged = bytes(data) if keep is None else bytes(data[: int(keep * len(data))])
    try:
        found = decode_actions(damaged, where="v", limit=LIMIT)
    except LogError:
        return
    assert body(found) == ACTIONS[1:]
    assert found[0].txn_id == "t1"
    assert found[0].timestamp == 5
