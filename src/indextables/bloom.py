"""The kernel of split-block bloom filters: which bits of which block a hash sets.

A filter is a number of blocks of 256 bits, eight words of 32. The upper half of a 64-bit hash
chooses the block, the lower half one bit in each word of it, so a probe reads 32 bytes. How filters
are sized and stored is up to their formats: one filter a file in Ariadne, block by block over many
splits in cross-references. Both depend on these bits: changing them would make stored filters deny
values that they hold.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Hashes = npt.NDArray[np.uint64]

WORDS = 8
"""Words of 32 bits in a block."""
BLOCK_BYTES = 4 * WORDS

_SALTS = np.array(
    [0x47B6137B, 0x44974D91, 0x8824AD5B, 0xA2B7289D,
     0x705495C7, 0x2DF1424B, 0x9EFC4947, 0x5C6BFB31],
    np.uint32,
)  # fmt: skip


def blocks_of(hashes: Hashes, count: Any) -> npt.NDArray[np.int64]:
    """The block of each hash, of `count` blocks: the upper half of the hash scaled to the count."""
    scaled = (hashes >> np.uint64(32)) * np.asarray(count, np.uint64)
    return (scaled >> np.uint64(32)).astype(np.int64)


def bits_of(hashes: Hashes, word: int) -> npt.NDArray[np.uint32]:
    """The bit that each hash sets in one word of its block."""
    places = (hashes.astype(np.uint32) * _SALTS[word]) >> np.uint32(27)
    bits: npt.NDArray[np.uint32] = np.uint32(1) << places
    return bits


def masks_of(hashes: Hashes) -> npt.NDArray[np.uint32]:
    """The bits that each hash sets: a row of eight words for each."""
    return np.stack([bits_of(hashes, word) for word in range(WORDS)], axis=1)


def filled_blocks(hashes: Hashes, count: int) -> npt.NDArray[np.uint32]:
    """The blocks of a filter that holds the hashes: `count` rows of eight words.

    >>> blocks = filled_blocks(np.array([7, 2**63], np.uint64), 4)
    >>> blocks.shape, int(np.bitwise_count(blocks).sum())
    ((4, 8), 16)
    """
    filled = np.zeros((count, WORDS), np.uint32)
    if not len(hashes):
        return filled
    blocks = blocks_of(hashes, count)
    if (blocks[1:] < blocks[:-1]).any():  # ascending hashes have ascending blocks
        order = np.argsort(blocks, kind="stable")
        hashes, blocks = hashes[order], blocks[order]
    first = np.flatnonzero(np.diff(blocks, prepend=-1))
    for word in range(WORDS):
        filled[blocks[first], word] = np.bitwise_or.reduceat(bits_of(hashes, word), first)
    return filled
