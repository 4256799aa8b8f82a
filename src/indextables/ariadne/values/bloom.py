"""Bloom filters over typed hashes: a few bits a value that answer "surely not" or "perhaps".

One filter for each file, in the layout of `indextables.bloom`. Blocks fill unevenly, which makes
such a filter a little worse than the textbook formula; `blocks_for` therefore solves for the real
rate, the mean over the Poisson distribution of a block's load.

The bytes begin with `ABF1`, the number of blocks and the number of values. Of bytes that begin
otherwise nothing is known, so every value may be in.

    >>> filters = [build(np.array([1, 2, 3], np.uint64), 0.01), b"unknown"]
    >>> probe(Filters.of(filters), np.array([3], np.uint64)).tolist()
    [[True], [True]]
"""

from __future__ import annotations

import functools
import math
import struct
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from indextables.ariadne.values.hashing import distinct_hashes
from indextables.bloom import BLOCK_BYTES, WORDS, Hashes, bits_of, blocks_of, filled_blocks
from indextables.plan.statistics import Flags

_MAGIC = b"ABF1"
_HEADER = struct.Struct("<4sIQ")
_MAX_BLOCKS = 2**31 // BLOCK_BYTES
"""A filter stays below 2 GiB, the most a binary cell can hold."""
_PAIRS = 1 << 21
"""Pairs of filter and hash probed at a time, which bounds the memory."""


def build(hashes: Hashes, fpr: float) -> bytes:
    """A filter of the hashes that says "perhaps" to about one in `1/fpr` others."""
    hashes = distinct_hashes(np.asarray(hashes, np.uint64))
    count = blocks_for(len(hashes), fpr)
    return _HEADER.pack(_MAGIC, count, len(hashes)) + filled_blocks(hashes, count).tobytes()


def blocks_for(values: int, fpr: float) -> int:
    """How many blocks keep the rate of false answers below `fpr`."""
    if not 0 < fpr < 1:
        raise ValueError(f"a false positive rate lies between 0 and 1, not {fpr}")
    return max(1, min(_MAX_BLOCKS, math.ceil(values / _load(fpr))))


@functools.lru_cache(maxsize=256)
def _load(fpr: float) -> float:
    """The mean number of values a block may hold."""
    low, high = 0.0, 4096.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if _rate(middle) <= fpr else (low, middle)
    return max(low, 1e-6)


def _rate(load: float) -> float:
    """The rate of false answers of blocks whose loads are Poisson distributed."""
    spread = int(load + 12 * math.sqrt(load) + 12)
    counts = np.arange(spread + 1)
    logs = np.concatenate(([0.0], np.cumsum(np.log(np.maximum(counts[1:], 1)))))
    weights = np.exp(counts * math.log(load) - load - logs) if load > 0 else counts == 0
    return float(np.sum(weights * (1 - (31 / 32) ** counts) ** WORDS))


# --- probing ---------------------------------------------------------------------------------


def value_count(stored: bytes | None) -> int | None:
    """How many different values a filter was made of; None if the bytes are not a filter."""
    return int(_HEADER.unpack_from(stored)[2]) if stored is not None and _count(stored) else None


@dataclass(frozen=True, slots=True)
class Filters:
    """The filters of many files, back to back, ready to be probed together."""

    words: Any
    starts: Any
    """Where the words of each filter begin; -1 where nothing is known."""
    blocks: Any

    @classmethod
    def of(cls, filters: Iterable[bytes | None]) -> Filters:
        """Decode filters. About bytes that are not a filter nothing is known."""
        words, starts, blocks = [], [], []
        position = 0
        for stored in filters:
            count = _count(stored)
            starts.append(position if count else -1)
            blocks.append(count)
            if stored is not None and count:
                words.append(np.frombuffer(stored, np.uint32, offset=_HEADER.size))
                position += count * WORDS
        joined = np.concatenate(words) if words else np.empty(0, np.uint32)
        return cls(joined, np.array(starts, np.int64), np.array(blocks, np.uint64))

    def __len__(self) -> int:
        return len(self.starts)


def _count(stored: bytes | None) -> int:
    """The number of blocks, or 0 if the bytes are not a filter."""
    if stored is None or len(stored) < _HEADER.size:
        return 0
    magic, count, _ = _HEADER.unpack_from(stored)
    is_ours = magic == _MAGIC and len(stored) == _HEADER.size + BLOCK_BYTES * count
    return int(count) if is_ours else 0


def probe(filters: Filters, hashes: Hashes) -> Flags:
    """For every filter (rows) and hash (columns): may the value be in?

    Word by word, and only pairs that no earlier word has ruled out: most are gone after two.
    """
    answer = np.repeat((filters.starts < 0)[:, None], len(hashes), axis=1)
    decoded = np.flatnonzero(filters.starts >= 0)
    if not len(decoded) or not len(hashes):
        return answer
    bits = [bits_of(hashes, word) for word in range(WORDS)]
    step = max(1, _PAIRS // len(hashes))
    for begin in range(0, len(decoded), step):
        rows = decoded[begin : begin + step]
        base = blocks_of(hashes[None, :], filters.blocks[rows, None]) * WORDS
        base += filters.starts[rows, None]
        base = base.ravel()
        columns = np.tile(np.arange(len(hashes)), len(rows))
        alive = np.arange(len(base))
        for position in range(WORDS):
            hits = filters.words[base[alive] + position] & bits[position][columns[alive]]
            alive = alive[hits != 0]
        answer[rows[alive // len(hashes)], columns[alive]] = True
    return answer


def may_hold_any(filters: Filters, hashes: Hashes) -> Flags:
    """For every filter: may it hold at least one of the values?

    Values are tried in growing portions, and only on filters that said no to all before: of many
    values, most filters say "perhaps" to one of the first.
    """
    answer: Flags = filters.starts < 0
    begin, size = 0, 64
    while begin < len(hashes):
        rows = np.flatnonzero(~answer)
        if not len(rows):
            break
        part = Filters(filters.words, filters.starts[rows], filters.blocks[rows])
        answer[rows] = probe(part, hashes[begin : begin + size]).any(axis=1)
        begin, size = begin + size, 2 * size
    return answer
