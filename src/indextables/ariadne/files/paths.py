"""One spelling for every file, and back to the one that Spark reads.

A file is known by its canonical path: a local one is absolute and literal (`/data/a b#1.csv`), one
in an object store is the URI with the literal key. Spark reports files as percent-encoded URIs;
`from_spark` takes them back. Nothing that is stored is ever percent-encoded.

What is registered is a file, a folder or a pattern (`*`, `?`, `[a-z]`, `{a,b}`, a segment at a
time, as in Hadoop). `expand` asks the stores which files that means now. A name with the
characters of a pattern that exists as a file is that file.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, cast
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc

from indextables.errors import AriadneArgumentError, ObjectNotFoundError, StorageError
from indextables.storage import ObjectMeta, Store, canonical_uri
from indextables.storage.location import parse_location

StoreOf = Callable[[str], Store]

_PATTERN = re.compile(r"[*?\[{]")
_MANY = 16
"""From this many files of one remote folder on, listing it is cheaper than asking for each."""


@dataclass(frozen=True, slots=True)
class Expansion:
    """The files that registered paths stand for now, and the paths without a file."""

    files: dict[str, ObjectMeta]
    missing: tuple[str, ...]


def canonical(path: str) -> str:
    """The one spelling of a file, folder or pattern.

    >>> canonical("file:///data/a%20b.csv"), canonical("s3a://bucket/x//y*.csv")
    ('/data/a b.csv', 's3://bucket/x/y*.csv')
    """
    if not isinstance(path, str) or not path.strip() or "\0" in path:
        raise AriadneArgumentError("Cannot register a file", [f"{path!r} is not a path"])
    scheme = re.match(r"[A-Za-z][A-Za-z0-9+.-]*:(?=/)", path)
    if scheme is None or path[: scheme.end()].lower() == "file:":
        return canonical_uri(path)
    # A store's URI may hold no '?', because that could be a query; a pattern may.
    base, pattern = _split(path)
    return canonical_uri(base) + (
        f"/{'/'.join(s for s in pattern.split('/') if s)}" * bool(pattern)
    )


def from_spark(uri: str) -> str:
    """The canonical path of a file as Spark's `_metadata.file_path` names it.

    >>> from_spark("file:/data/pct%2541.csv"), from_spark("s3a://bucket/a%20b.csv")
    ('/data/pct%41.csv', 's3://bucket/a b.csv')
    """
    if uri.startswith("file:"):
        return canonical_uri(uri)
    scheme, separator, rest = uri.partition("://")
    authority, slash, path = rest.partition("/")
    return canonical_uri(f"{scheme}{separator}{authority}{slash}{unquote(path)}")


def for_spark(path: str) -> str:
    """A canonical path as Hadoop's file systems take it: literal, with Hadoop's schemes.

    >>> for_spark("/data/a b.csv"), for_spark("s3://bucket/a b.csv")
    ('/data/a b.csv', 's3a://bucket/a b.csv')
    """
    return "s3a" + path[2:] if path.startswith("s3://") else path


def is_pattern(path: str) -> bool:
    """Whether a path could be a pattern."""
    return _PATTERN.search(path) is not None


def matching(pattern: str, paths: Sequence[str]) -> list[bool]:
    """For each path: does the pattern match it? An invalid pattern matches nothing."""
    if not paths:
        return []
    # A name that is not UTF-8 cannot be compared as it is.
    texts = [path.encode("utf-8", "replace").decode() for path in paths]
    try:
        matches: Any = pc.match_substring_regex(pa.array(texts, pa.string()), _regex(pattern))
    except pa.ArrowInvalid:
        return [False] * len(paths)
    return cast("list[bool]", matches.to_pylist())


def folder_and_name(filename: str) -> tuple[str, str]:
    """A canonical path as its folder, which a store can be opened at, and the name in it."""
    folder, _, name = filename.rpartition("/")
    return folder or "/", name


# --- asking the stores -----------------------------------------------------------------------


def expand(entries: Iterable[str], store_of: StoreOf) -> Expansion:
    """The files that registered paths stand for now, with their sizes and times."""
    entries = list(dict.fromkeys(entries))
    files = {name: meta for name, meta in stat(entries, store_of).items() if meta is not None}
    missing = []
    for entry in entries:
        if entry in files:
            continue
        below = dict(_below(entry, store_of))
        if not below and not (not is_pattern(entry) and _is_local_folder(entry)):
            missing.append(entry)
        files.update(below)
    return Expansion(files, tuple(missing))


def stat(files: Sequence[str], store_of: StoreOf) -> dict[str, ObjectMeta | None]:
    """Size, time and tag of files; None for one that does not exist."""
    folders: dict[str, list[str]] = {}
    for file in files:
        folder, name = folder_and_name(file)
        folders.setdefault(folder, []).append(name)
    metas: dict[str, ObjectMeta | None] = {}
    for folder, names in folders.items():
        metas.update(_stat_folder(folder, names, store_of))
    return metas


def _stat_folder(
    folder: str, names: list[str], store_of: StoreOf
) -> Iterator[tuple[str, ObjectMeta | None]]:
    base = folder.rstrip("/")
    try:
        store = store_of(folder)
    except StorageError:  # a bucket alone, or a place that no store serves: nothing is known there
        yield from ((f"{base}/{name}", None) for name in names)
        return

    def head(name: str) -> ObjectMeta | None:
        try:
            return None if _is_hidden(name) else store.head(name)
        except ObjectNotFoundError:
            return None

    metas: Iterable[ObjectMeta | None]
    if parse_location(folder).scheme == "file":
        metas = map(head, names)
    elif len(names) < _MANY:
        with ThreadPoolExecutor(_MANY) as pool:
            metas = list(pool.map(head, names))
    else:
        listed = {meta.path: meta for meta in store.list_directory("")[0]}
        metas = (None if _is_hidden(name) else listed.get(name) for name in names)
    yield from ((f"{base}/{name}", meta) for name, meta in zip(names, metas, strict=True))


def _below(entry: str, store_of: StoreOf) -> Iterator[tuple[str, ObjectMeta]]:
    """The files in a folder, or of a pattern."""
    base, pattern = _split(entry) if is_pattern(entry) else (entry, "")
    root = base.rstrip("/")
    try:
        store = store_of(base)
        listed = list(store.list())
    except StorageError:
        return
    inside = len(root) + 1
    depth = pattern.count("/") + 1 if pattern else 0
    names = [f"{root}/{meta.path}" for meta in listed]
    is_match = matching(entry, names) if pattern else [True] * len(names)
    for meta, name, matches in zip(listed, names, is_match, strict=True):
        *folders, last = name[inside:].split("/")
        # A pattern can match a hidden folder, but not a hidden file.
        free = [*folders[depth:], last]
        if matches and not any(map(_is_hidden, free)):
            yield name, meta


def _is_local_folder(entry: str) -> bool:
    return entry.startswith("/") and Path(entry).is_dir()


def _is_hidden(name: str) -> bool:
    """Spark's own rule: names that it never reads."""
    is_hidden = (name.startswith("_") and "=" not in name) or name.startswith(".")
    return is_hidden or name.endswith("._COPYING_")


# --- patterns --------------------------------------------------------------------------------


def _split(path: str) -> tuple[str, str]:
    """The folder before the first segment with a pattern, and the rest."""
    segments = path.split("/")
    first = next((n for n, s in enumerate(segments) if _PATTERN.search(s)), len(segments))
    return "/".join(segments[:first]) or "/", "/".join(segments[first:])


@lru_cache(maxsize=1024)
def _regex(pattern: str) -> str:
    """A pattern for RE2, which matches in linear time, whatever the pattern is; Python's engine
    backtracks. A folder that it matches stands for all below it."""
    return rf"(?s)\A{_translated(pattern)}(?:/.*)?\z"


def _translated(pattern: str) -> str:
    out, position, braces = [], 0, 0
    while position < len(pattern):
        sign = pattern[position]
        position += 1
        closing = pattern.find("]", position + 1)
        if sign == "*":
            out.append("[^/]*")
        elif sign == "?":
            out.append("[^/]")
        elif sign == "[" and closing > 0:
            inner = pattern[position:closing].replace("\\", "\\\\").replace("[", "\\[")
            out.append(f"[{'^' + inner[1:] if inner[:1] in ('!', '^') else inner}]")
            position = closing + 1
        elif sign == "{" and "}" in pattern[position:]:
            out.append("(?:")
            braces += 1
        elif sign == "}" and braces:
            out.append(")")
            braces -= 1
        elif sign == "," and braces:
            out.append("|")
        elif sign == "\\" and position < len(pattern):
            out.append(re.escape(pattern[position]))
            position += 1
        else:
            out.append(re.escape(sign))
    return "".join(out)
