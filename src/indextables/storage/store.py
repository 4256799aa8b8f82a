"""The interface of stores, and how all of them read ranges.

A store is a flat map from paths to objects below one root: a folder, a bucket prefix, a container.
A table is one store, and every path in its log is a path of that store. Objects are written whole
and become visible whole. Two writes are conditional, and the transaction log rests on them:

- `put_if_absent` succeeds for exactly one of any number of racing writers;
- `put_if_match` replaces an object only if it was not replaced since it was read.

A path is relative to the root and separated by '/'. Its characters are literal: `a%20b` and `a b`
are two objects. Path segments that start with a dot are not objects; stores keep their own
temporary and lock files under such names.

A request to an object store costs more than a hundred kilobytes do. Ranges that are close
together are read as one block and cut apart afterwards.
"""

from __future__ import annotations

import contextlib
import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from indextables.errors import StorageError

GAP = 144 << 10
"""Ranges no further apart are read as one: a request costs as much as so many bytes do."""


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
            raise StorageError(f"{start} to {end} is not a range of bytes of {shown}.", path=shown)
    blocks = coalesce([r for r in ranges if r[0] < r[1]])
    pieces: dict[tuple[int, int], bytes] = {}
    data = read_blocks([(start, end) for start, end, _ in blocks]) if blocks else []
    for (offset, _, members), block in zip(blocks, data, strict=True):
        for start, end in members:
            piece = block[start - offset : end - offset]
            if len(piece) != end - start:
                raise StorageError(
                    f"{shown} ends before byte {end:,}: it is not the object that was expected.",
                    path=shown,
                )
            pieces[start, end] = piece
    return [pieces.get(r, b"") for r in ranges]


def coalesce(
    ranges: Sequence[tuple[int, int]], *, gap: int = GAP
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


@dataclass(frozen=True, slots=True)
class ObjectMeta:
    """The metadata of an object. `path` is relative to the root."""

    path: str
    size: int
    modified_ms: int
    etag: str | None


class Store(ABC):
    """Objects below one root. Safe to share between threads; pickled as URI and options.

    `uri` is the canonical URI of the root, without secrets.
    """

    uri: str

    @property
    def identity(self) -> str:
        """What distinguishes two stores of one URI, such as the endpoint; no secrets."""
        return self.uri

    @property
    def options(self) -> Mapping[str, object]:
        """The options of the store, secrets included; another client may need them."""
        return {}

    @abstractmethod
    def get(self, path: str) -> bytes:
        """Read a whole object. `ObjectNotFoundError` if it is not there."""

    @abstractmethod
    def get_with_etag(self, path: str) -> tuple[bytes, str | None]:
        """Read a whole object together with the tag that `put_if_match` compares."""

    @abstractmethod
    def get_range(self, path: str, start: int, end: int) -> bytes:
        """Read the bytes from `start` up to, not including, `end`.

        A range that leaves the object is a `StorageError`: the caller expects another object than
        the one that is there.
        """

    @abstractmethod
    def get_ranges(self, path: str, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        """Read several ranges at once, neighbours with one request; results in the same order."""

    @abstractmethod
    def head(self, path: str) -> ObjectMeta:
        """Describe one object. `ObjectNotFoundError` if it is not there."""

    @abstractmethod
    def list_directory(self, prefix: str) -> tuple[list[ObjectMeta], list[str]]:
        """The objects directly in a folder, and the names of its sub-folders, both sorted."""

    @abstractmethod
    def put(self, path: str, data: bytes) -> None:
        """Write an object, over whatever is there."""

    @abstractmethod
    def put_if_absent(self, path: str, data: bytes) -> None:
        """Write a new object atomically. `ObjectExistsError` if one is there."""

    @abstractmethod
    def put_if_match(self, path: str, data: bytes, etag: str | None) -> None:
        """Replace the object that has this tag; None means that there must be none.

        `ObjectExistsError` if the object is another one by now, or has vanished.
        """

    @abstractmethod
    def put_file(self, path: str, source: Path) -> None:
        """Write an object from a local file, in pieces, over whatever is there."""

    @abstractmethod
    def delete(self, paths: Sequence[str]) -> None:
        """Delete objects, many at once. One that is not there is not an error."""

    def owns(self, path: str) -> bool:  # noqa: ARG002
        """Whether `delete` would delete an object; what lies behind a link belongs to others."""
        return True

    @abstractmethod
    def local_path(self, path: str) -> Path | None:
        """The local file that is the object, to map it into memory; None in a remote store."""

    def sweep(self, *, older_than_ms: int, dry_run: bool) -> Sequence[ObjectMeta]:  # noqa: ARG002
        """Delete what killed writers left of objects they never finished; returns what was found.

        Object stores drop such uploads by themselves, so by default there is nothing.
        """
        return []

    def clock_ms(self) -> int:
        """The time of the store, with which it dates an object that is written now.

        Ages of objects are differences to this time and not to the clock of a machine, which may
        be wrong by days.
        """
        probe = f"_clock-{uuid.uuid4().hex}"
        self.put(probe, b"")
        try:
            return self.head(probe).modified_ms
        finally:
            self.delete([probe])

    @contextlib.contextmanager
    def commits_held(self, path: str, *, alone: bool) -> Iterator[bool]:  # noqa: ARG002
        """Hold off who deletes unnamed files (`alone`) while others commit, and the other way.

        Yields whether it does. Only a store that dates its objects by the clock of some machine
        needs it: an object store has one clock, and a file younger than a day is not deleted.
        """
        yield False

    # Last, because its name hides the built-in type in the annotations that follow.
    @abstractmethod
    def list(self, prefix: str = "", *, start_after: str | None = None) -> Iterator[ObjectMeta]:
        """All objects below a folder, recursively, sorted by path.

        `prefix` matches whole path segments. With `start_after` only objects whose path is
        greater are listed; it is a whole path, not one relative to `prefix`. A folder that does
        not exist is an empty one.
        """

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.uri!r})"


def check_path(path: str) -> str:
    """Return the path of an object, or refuse one that is empty, absolute or leaves the root.

    >>> check_path("splits/a b.split")
    'splits/a b.split'
    """
    segments = path.split("/")
    if any(not s or s.startswith(".") for s in segments) or "\0" in path:
        raise StorageError(
            f"{path!r} is not a path of an object. Use a relative path whose segments are not "
            "empty and do not start with a dot.",
            path=path,
        )
    return path


def check_prefix(prefix: str) -> str:
    """Return a folder's path without a trailing slash; the empty one is the root.

    >>> check_prefix("a/b/")
    'a/b'
    """
    return check_path(prefix.removesuffix("/")) if prefix else ""
