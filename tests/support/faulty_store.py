"""A store that fails on purpose, from one seed, so that a failing test can be run again.

It wraps a real store and lies about it in the ways that networks and services do:

- an error *before* the effect: nothing happened;
- an error *after* the effect: it happened, and the caller cannot know;
- a *lost response*: the effect happened, the client retried on its own, and the caller of a
  conditional write is told that somebody else was there first;
- a *stale listing* that misses the newest objects;
- a *crash* at a chosen operation, after which this instance answers nothing.

Faults are drawn with the probabilities of `Faults`, or asked for one by one with `inject`.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeVar

from indextables.errors import ObjectExistsError, StorageError
from indextables.storage import ObjectMeta, Store

Fault = Literal["before", "after", "lost_response", "stale"]
T = TypeVar("T")

_CONDITIONAL = {"put_if_absent", "put_if_match"}
_WRITES = {"put", "put_file", "delete"} | _CONDITIONAL
_LISTINGS = {"list", "list_directory"}


class SimulatedCrash(BaseException):  # no `except Exception` may survive it
    """The process is dead from here on."""


@dataclass(frozen=True, slots=True)
class Faults:
    """How likely each fault is, from 0 to 1, at each operation it can happen to."""

    before: float = 0.0
    after: float = 0.0
    lost_response: float = 0.0
    stale: float = 0.0
    stale_by: int = 1


@dataclass(frozen=True, slots=True)
class Crash:
    """Crash at the nth operation, counted from 0; of one name only, if a name is given."""

    nth: int
    operation: str | None = None
    after_effect: bool = False


class FaultyStore(Store):
    """`operations` records every call as (operation, path). `latency` is called instead of a wait
    with the operation, the path and the seconds that were drawn.
    """

    def __init__(
        self,
        inner: Store,
        seed: int = 0,
        faults: Faults = Faults(),  # noqa: B008 - frozen
        *,
        crash: Crash | None = None,
        latency: Callable[[str, str, float], None] | None = None,
    ) -> None:
        self.inner = inner
        self.uri = inner.uri
        self.operations: list[tuple[str, str]] = []
        self.faults = faults
        self.crashed = False
        self._crash = crash
        self._latency = latency
        self._random = random.Random(seed)
        self._injected: list[tuple[str, Fault, str]] = []
        self._mutex = threading.RLock()

    @property
    def identity(self) -> str:
        return self.inner.identity

    def inject(self, operation: str, fault: Fault, *, path: str = "") -> None:
        """Let the next such operation, on a path that contains `path`, have this fault."""
        with self._mutex:
            self._injected.append((operation, fault, path))

    def count(self, operation: str, path: str = "") -> int:
        """How often an operation was called on paths that contain `path`."""
        return sum(o == operation and path in p for o, p in self.operations)

    # --- the store ---------------------------------------------------------------------------

    def get(self, path: str) -> bytes:
        return self._run("get", path, lambda: self.inner.get(path))

    def get_with_etag(self, path: str) -> tuple[bytes, str | None]:
        return self._run("get_with_etag", path, lambda: self.inner.get_with_etag(path))

    def get_range(self, path: str, start: int, end: int) -> bytes:
        return self._run("get_range", path, lambda: self.inner.get_range(path, start, end))

    def get_ranges(self, path: str, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        return self._run("get_ranges", path, lambda: self.inner.get_ranges(path, ranges))

    def head(self, path: str) -> ObjectMeta:
        return self._run("head", path, lambda: self.inner.head(path))

    def list_directory(self, prefix: str) -> tuple[list[ObjectMeta], list[str]]:
        return self._run(
            "list_directory",
            prefix,
            lambda: self.inner.list_directory(prefix),
            stale=lambda found: (self._without_newest(found[0]), found[1]),
        )

    def put(self, path: str, data: bytes) -> None:
        self._run("put", path, lambda: self.inner.put(path, data))

    def put_if_absent(self, path: str, data: bytes) -> None:
        self._run("put_if_absent", path, lambda: self.inner.put_if_absent(path, data))

    def put_if_match(self, path: str, data: bytes, etag: str | None) -> None:
        self._run("put_if_match", path, lambda: self.inner.put_if_match(path, data, etag))

    def put_file(self, path: str, source: Path) -> None:
        self._run("put_file", path, lambda: self.inner.put_file(path, source))

    def delete(self, paths: Sequence[str]) -> None:
        self._run(
            "delete",
            ",".join(paths),
            lambda: self.inner.delete(paths),
            # Deleting many is no transaction: a request that failed may have deleted some.
            partial=lambda: self.inner.delete([p for p in paths if self._random.random() < 0.5]),
        )

    def local_path(self, path: str) -> Path | None:
        return self.inner.local_path(path)

    # --- faults ------------------------------------------------------------------------------

    def _run(
        self,
        operation: str,
        path: str,
        effect: Callable[[], T],
        *,
        partial: Callable[[], None] | None = None,
        stale: Callable[[T], T] | None = None,
    ) -> T:
        with self._mutex:
            crash = self._crashes(operation)
            self.operations.append((operation, path))
            fault = self._draw(operation, path)
            if self._latency is not None:
                self._latency(operation, path, self._random.expovariate(20))
        if crash and not crash.after_effect:
            self.crashed = True
            raise SimulatedCrash(f"before {operation} {path}")
        if fault == "before":
            if partial is not None:
                partial()
            raise StorageError(f"Injected before {operation}: {path}", path=path)
        result = effect()
        if crash:
            self.crashed = True
            raise SimulatedCrash(f"after {operation} {path}")
        if fault == "after":
            raise StorageError(f"Injected after {operation}: {path}", path=path)
        if fault == "lost_response":
            raise ObjectExistsError(f"{self.uri}/{path}")
        return stale(result) if fault == "stale" and stale is not None else result

    def _crashes(self, operation: str) -> Crash | None:
        if self.crashed:
            raise SimulatedCrash(f"{operation} on a store that crashed before")
        crash = self._crash
        if crash is None or crash.operation not in (None, operation):
            return None
        before = sum(crash.operation in (None, o) for o, _ in self.operations)
        return crash if before == crash.nth else None

    def _draw(self, operation: str, path: str) -> Fault | None:
        for entry in self._injected:
            if entry[0] == operation and entry[2] in path:
                self._injected.remove(entry)
                return entry[1]
        possible: list[tuple[Fault, float]] = [("before", self.faults.before)]
        if operation in _WRITES:
            possible.append(("after", self.faults.after))
        if operation in _CONDITIONAL:
            possible.append(("lost_response", self.faults.lost_response))
        if operation in _LISTINGS:
            possible.append(("stale", self.faults.stale))
        drawn = self._random.random()
        for fault, probability in possible:
            if drawn < probability:
                return fault
            drawn -= probability
        return None

    def _without_newest(
        self, found: Iterator[ObjectMeta] | Sequence[ObjectMeta]
    ) -> list[ObjectMeta]:
        metas = [*found]
        newest = sorted(metas, key=lambda m: (m.modified_ms, m.path))[-self.faults.stale_by :]
        return [m for m in metas if m not in newest]

    # Last, because its name hides the built-in type in the annotations that follow.
    def list(self, prefix: str = "", *, start_after: str | None = None) -> Iterator[ObjectMeta]:
        return self._run(
            "list",
            prefix,
            lambda: self.inner.list(prefix, start_after=start_after),
            stale=lambda found: iter(self._without_newest(found)),
        )
