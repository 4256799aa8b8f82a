"""Opened footers of splits, kept in memory between queries.

A split never changes, so its footer need be read and checked only once. What is kept is limited by
the size that the footers have in their files.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable

from indextables.split.container import Footer

_MAX_BYTES = 64 << 20


class FooterCache:
    """The footers that were used last. Safe between threads."""

    def __init__(self, *, max_bytes: int = _MAX_BYTES) -> None:
        self.max_bytes = max_bytes
        self._kept: OrderedDict[Hashable, Footer] = OrderedDict()
        self._bytes = 0
        self._lock = threading.Lock()

    def get(self, key: Hashable, read: Callable[[], Footer]) -> Footer:
        """The footer of a key, from memory or by reading it."""
        with self._lock:
            found = self._kept.get(key)
            if found is not None:
                self._kept.move_to_end(key)
                return found
        # Two threads may read the same footer; the first one kept stays.
        footer = read()
        with self._lock:
            if key not in self._kept:
                self._kept[key] = footer
                self._bytes += footer.size
            while self._bytes > self.max_bytes:
                self._bytes -= self._kept.popitem(last=False)[1].size
        return footer

    def clear(self) -> None:
        """Forget all of them."""
        with self._lock:
            self._kept.clear()
            self._bytes = 0

    def __len__(self) -> int:
        return len(self._kept)
