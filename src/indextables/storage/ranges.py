"""Ranges of bytes: joining neighbours, and refusing what an object does not have.

A request to an object store costs more than a few hundred kilobytes do. Ranges that are close
together are read as one block and cut apart afterwards.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from indextables.errors import StorageError

_GAP = 256 << 10


def read_ranges(
    ranges: Sequence[tuple[int, int]],
    read_blocks: Callable[[Sequence[tuple[int, int]]], Sequence[bytes]],
    *,
    shown: str,
) -> list[bytes]:
    """Read half-open ranges through a function that reads blocks; results in the same order.

    `shown` names the object in messages. An empty range needs no block.

    >>> read_ranges([(4, 6), (0, 2)], lambda blocks: [b"012345"[s:e] for s, e in blocks], shown="x")
    [b'45', b'01']
    """
    for start, end in ranges:
        if not 0 <= start <= end:
            raise StorageError(f"{start} to {end} is no range of bytes of {shown}.", path=shown)
    blocks = coalesce([r for r in ranges if r[0] < r[1]])
    found: dict[tuple[int, int], bytes] = {}
    data = read_blocks([(start, end) for start, end, _ in blocks]) if blocks else []
    for (offset, _, members), block in zip(blocks, data, strict=True):
        for start, end in members:
            piece = block[start - offset : end - offset]
            if len(piece) != end - start:
                raise StorageError(
                    f"{shown} ends before byte {end:,}: it is not the object that was expected.",
                    path=shown,
                )
            found[start, end] = piece
    return [found.get(r, b"") for r in ranges]


def coalesce(
    ranges: Sequence[tuple[int, int]], *, gap: int = _GAP
) -> list[tuple[int, int, list[tuple[int, int]]]]:
    """Join ranges no further apart than `gap`: blocks, each with the ranges it serves.

    >>> coalesce([(0, 5), (100, 110), (7, 9)], gap=10)
    [(0, 9, [(0, 5), (7, 9)]), (100, 110, [(100, 110)])]
    """
    blocks: list[tuple[int, int, list[tuple[int, int]]]] = []
    for start, end in sorted(ranges):
        if blocks and start <= blocks[-1][1] + gap:
            offset, reached, members = blocks[-1]
            blocks[-1] = (offset, max(reached, end), [*members, (start, end)])
        else:
            blocks.append((start, end, [(start, end)]))
    return blocks
