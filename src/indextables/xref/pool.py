"""Open XRefs of this process, within a limit of memory, and what is known to be useless.

Two memories keep routing cheap. An XRef that failed or was too slow is not tried again for a while,
and a question that did not narrow is not asked again for a while. Both cost at most splits that are
read for nothing.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass

from indextables.storage import Store
from indextables.xref.open_xref import OpenXRef

FORGET_AFTER = 60.0
"""Seconds until something that was useless is tried again."""
_MOST_REMEMBERED = 4_096

Key = tuple[str, str]
"""The identity of a store and a path in it."""


class XRefPool:
    """The XRefs that were used last. Safe between threads."""

    def __init__(self, *, max_bytes: int) -> None:
        self.max_bytes = max_bytes
        self._open: OrderedDict[Key, OpenXRef] = OrderedDict()
        self._bytes = 0
        self._lock = threading.Lock()

    def known(self, store: Store, path: str) -> OpenXRef | None:
        """An XRef that is open already."""
        with self._lock:
            found = self._open.get((store.identity, path))
            if found is not None:
                self._open.move_to_end((store.identity, path))
            return found

    def get(
        self, store: Store, path: str, *, size: int, footer_start: int | None = None
    ) -> OpenXRef:
        """An XRef, opened now or before."""
        found = self.known(store, path)
        if found is not None:
            return found
        # Two threads may open the same one; the first one kept stays.
        opened = OpenXRef.open(store, path, size=size, footer_start=footer_start)
        with self._lock:
            kept = self._open.setdefault((store.identity, path), opened)
            if kept is opened:
                self._bytes += opened.size
            while self._bytes > self.max_bytes and len(self._open) > 1:
                self._bytes -= self._open.popitem(last=False)[1].size
        return kept

    def clear(self) -> int:
        """Close all; gives their number. Whoever is asking one keeps it."""
        with self._lock:
            count = len(self._open)
            self._open.clear()
            self._bytes = 0
        return count

    def __len__(self) -> int:
        return len(self._open)


@dataclass(frozen=True, slots=True)
class _Note:
    reason: str
    until: float


class Memory:
    """What was useless a short while ago, and why. Safe between threads."""

    def __init__(
        self, *, seconds: float = FORGET_AFTER, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._seconds = seconds
        self._clock = clock
        self._notes: OrderedDict[Hashable, _Note] = OrderedDict()
        self._lock = threading.Lock()

    def note(self, key: Hashable, reason: str) -> None:
        """Remember for a while."""
        with self._lock:
            self._notes[key] = _Note(reason, self._clock() + self._seconds)
            self._notes.move_to_end(key)
            while len(self._notes) > _MOST_REMEMBERED:
                self._notes.popitem(last=False)

    def recall(self, key: Hashable) -> str | None:
        """Why something was useless, if that is not long ago."""
        with self._lock:
            found = self._notes.get(key)
            if found is None:
                return None
            if found.until <= self._clock():
                del self._notes[key]
                return None
            return found.reason

    def clear(self) -> None:
        """Forget everything."""
        with self._lock:
            self._notes.clear()


_pools: dict[int, XRefPool] = {}
_pools_lock = threading.Lock()


def shared_pool(max_bytes: int) -> XRefPool:
    """The open XRefs of all tables and queries of a process."""
    with _pools_lock:
        return _pools.setdefault(max_bytes, XRefPool(max_bytes=max_bytes))


def close_xrefs() -> int:
    """Close all XRefs that this process has open, and forget what was useless."""
    failures.clear()
    dull_questions.clear()
    with _pools_lock:
        return sum(pool.clear() for pool in _pools.values())


failures = Memory()
"""XRefs that could not be used."""
dull_questions = Memory()
"""Questions that kept nearly every split."""
