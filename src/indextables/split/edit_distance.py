"""How many words of a vocabulary lie within an edit distance of one word, counted in columns."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np


def count_within(words: Sequence[str], text: str, distance: int) -> int:
    """Count words that become `text` by inserting, removing, replacing or swapping characters.

    >>> count_within(["spark", "sprak", "spar", "sparks", "shark", "stork"], "spark", 1)
    5
    """
    near = [word for word in words if abs(len(word) - len(text)) <= distance and word]
    if not near:
        return int("" in words and len(text) <= distance)
    longest = max(map(len, near))
    letters = np.array(near, dtype=f"<U{longest}").view(np.uint32).reshape(len(near), longest)
    goal = np.array([text], dtype=f"<U{max(1, len(text))}").view(np.uint32)
    # cost[i][j]: from the first i letters of each word to the first j of the text.
    cost = np.zeros((longest + 1, len(text) + 1, len(near)), dtype=np.int16)
    cost[:, 0] = np.arange(longest + 1)[:, None]
    cost[0] = np.arange(len(text) + 1)[:, None]
    for i in range(1, longest + 1):
        for j in range(1, len(text) + 1):
            same = letters[:, i - 1] == goal[j - 1]
            best = np.minimum(cost[i - 1, j] + 1, cost[i, j - 1] + 1)
            best = np.minimum(best, cost[i - 1, j - 1] + ~same)
            if i > 1 and j > 1:
                swapped = (letters[:, i - 1] == goal[j - 2]) & (letters[:, i - 2] == goal[j - 1])
                best = np.where(swapped, np.minimum(best, cost[i - 2, j - 2] + 1), best)
            cost[i, j] = best
    lengths = np.array([len(word) for word in near])
    total = cost[lengths, len(text), np.arange(len(near))]
    return int((total <= distance).sum()) + int("" in words and len(text) <= distance)
