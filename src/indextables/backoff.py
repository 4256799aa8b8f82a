"""How long to wait before something is tried again: twice as long each time, with jitter.

Writers that failed together and waited equally long would fail together again.
"""

from __future__ import annotations

import random
from collections.abc import Callable


def pause_s(
    attempt: int,
    *,
    base_s: float,
    longest_s: float,
    spread: tuple[float, float] = (0.75, 1.25),
    jitter: Callable[[float, float], float] = random.uniform,
) -> float:
    """Seconds to wait after an attempt; the first one is number 1.

    >>> [pause_s(n, base_s=0.1, longest_s=0.5, jitter=max) for n in (1, 2, 3, 4)]
    [0.125, 0.25, 0.5, 0.625]
    """
    return min(longest_s, base_s * 2.0 ** min(attempt - 1, 32)) * jitter(*spread)
