"""Numbers of rows inside an index.

A document carries a number that is its own wherever its segment lies: a random *tag* of the index
that it was made for, and its row there. A split that takes over indexes of other splits says at
which row each tag begins. Tantivy may then merge segments of different splits as it likes.
"""

from __future__ import annotations

import random
from collections.abc import Container, Sequence

import numpy as np
import numpy.typing as npt

RowNumbers = npt.NDArray[np.int64]
Tags = Sequence[tuple[int, int]]
"""Each tag with the row of the split at which its rows begin."""

UNTAGGED: Tags = ((0, 0),)
"""An index whose documents carry their rows as they are."""

TAG_BITS = 31
_ROW_BITS = 32
_ROW_MASK = (1 << _ROW_BITS) - 1


def new_tag(taken: Container[int]) -> int:
    """A tag that is not among those that are taken."""
    while True:
        tag = random.getrandbits(TAG_BITS)
        if tag and tag not in taken:
            return tag


def numbered_from(tag: int, row: int) -> int:
    """The number of a row's document; those of the rows after it follow.

    >>> hex(numbered_from(2, 5))
    '0x200000005'
    """
    return tag << _ROW_BITS | row


def tags_of(numbers: RowNumbers) -> RowNumbers:
    """The tags of documents."""
    return numbers >> _ROW_BITS


def rows_in_index(numbers: RowNumbers) -> RowNumbers:
    """The rows of documents in the indexes that they were made for."""
    return numbers & _ROW_MASK


def rows_of(numbers: RowNumbers, tags: Tags) -> RowNumbers:
    """The rows of documents in their split.

    >>> numbers = np.array([numbered_from(7, 0), numbered_from(9, 1)])
    >>> rows_of(numbers, [(9, 0), (7, 100)]).tolist()
    [100, 1]
    """
    if len(tags) == 1:
        ((tag, first),) = tags
        return numbers + (first - numbered_from(tag, 0))
    sorted_tags, firsts = np.array(sorted(tags), dtype=np.int64).reshape(-1, 2).T
    return rows_in_index(numbers) + firsts[np.searchsorted(sorted_tags, tags_of(numbers))]
