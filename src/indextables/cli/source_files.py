"""Which files a pattern names: a file, a folder or a glob, on this machine or in a bucket.

Folders are searched to the bottom. Names that begin with `_` or `.` are passed over, as Hadoop does
it, unless the pattern writes them out. `key=value` folders below the part of a pattern that has no
wildcard become columns, as Hive and Spark write them.
"""

from __future__ import annotations

import glob
import os
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import unquote

from indextables.cli.settings import Format
from indextables.errors import ObjectNotFoundError, SourceFileError
from indextables.storage import Store, open_store
from indextables.storage.location import Location, parse_location
from indextables.storage.scratch import temporary_file

_SUFFIXES: dict[str, Format] = {
    ".parquet": "parquet", ".pq": "parquet",
    ".csv": "csv", ".tsv": "csv",
    ".jsonl": "jsonl", ".ndjson": "jsonl", ".json": "jsonl",
}  # fmt: skip
_CODECS: dict[str, Any] = {".gz": "gzip", ".bz2": "bz2", ".zst": "zstd", ".lz4": "lz4"}
_NOTHING = "there is no such file, and no file in a folder of that name"
_UNKNOWN = (
    "no file there is of a known kind (.parquet, .csv, .tsv, .jsonl, .ndjson, .json; all but the "
    "first also as .gz, .bz2, .zst or .lz4); --format names the kind of files that are named "
    "themselves or by a glob"
)
STANDARD_INPUT = "-"
_NO_PARTITION = "__HIVE_DEFAULT_PARTITION__"

OpenFolder = Callable[[str], Store]
"""Opens the store below a URI."""


@dataclass(frozen=True, slots=True)
class Source:
    """One file, and the partition that its folders name."""

    path: str
    """The file on this machine, or its URI."""
    format: Format
    codec: Any = None
    delimiter: str = ","
    guessed_delimiter: bool = False
    """Whether the delimiter was not named."""
    partition: Mapping[str, str | None] = field(default_factory=dict)
    store: Store | None = None
    """Where the file is, if that is not this machine; there it is called `key`."""
    key: str = ""
    spooled: Any = None
    """The temporary file that has what standard input had."""
    casts: Mapping[str, Any] = field(default_factory=dict)
    """Types that columns are brought to, whatever the file has."""


@dataclass(frozen=True, slots=True)
class _File:
    """A file that a pattern names, and its path below the pattern's part without wildcards."""

    path: str
    inside: PurePosixPath
    store: Store | None = None
    key: str = ""
    asked_for: bool = True
    """Whether the pattern names the file itself, not only a folder above it."""


def find_sources(
    patterns: Sequence[str],
    *,
    kind: Format | None = None,
    delimiter: str | None = None,
    open_folder: OpenFolder = open_store,
) -> list[Source]:
    """The files that the patterns name, in their order, each once."""
    found: dict[str, Source] = {}
    for pattern in patterns:
        if pattern == STANDARD_INPUT:
            found[pattern] = _standard_input(kind, delimiter)
            continue
        location = parse_location(pattern)
        if location.scheme == "file":
            files = _local_files(location.uri if pattern.startswith("file:") else pattern)
        else:
            files = _stored_files(pattern, location, open_folder)
        sources = [_source(file, kind=kind, delimiter=delimiter) for file in files]
        chosen = [source for source in sources if source is not None]
        if not chosen:
            place = pattern if location.scheme == "file" else location.uri
            raise SourceFileError(place, _UNKNOWN if sources else _NOTHING)
        for source in chosen:
            found.setdefault(source.path if source.store else os.path.realpath(source.path), source)
    return list(found.values())


def _standard_input(kind: Format | None, delimiter: str | None) -> Source:
    """What standard input has, in a file: it is read more than once."""
    if kind is None:
        raise SourceFileError(
            STANDARD_INPUT, "standard input has no name; say what it is with --format csv or jsonl"
        )
    spooled = temporary_file("import")
    shutil.copyfileobj(sys.stdin.buffer, spooled)
    spooled.flush()
    return Source(
        STANDARD_INPUT,
        kind,
        delimiter=delimiter or ",",
        guessed_delimiter=delimiter is None,
        spooled=spooled,
    )


def _source(file: _File, *, kind: Format | None, delimiter: str | None) -> Source | None:
    name = PurePosixPath(file.path)
    guessed, codec = _kind(name)
    if not file.asked_for and (guessed is None or kind not in (None, guessed)):
        return None
    chosen = kind or guessed
    if chosen is None:
        return None
    tabs = ".tsv" in [suffix.lower() for suffix in name.suffixes]
    return Source(
        file.path,
        chosen,
        codec=codec,
        delimiter=delimiter or ("\t" if tabs else ","),
        guessed_delimiter=delimiter is None,
        partition=_partition(file.inside),
        store=file.store,
        key=file.key,
    )


def is_file_name(name: str) -> bool:
    """Whether a name means files, not a table: it has a wildcard or a suffix of theirs.

    >>> is_file_name("data/*.parquet"), is_file_name("more.csv.gz"), is_file_name("docs")
    (True, True, False)
    """
    path = PurePosixPath(name)
    return _kind(path)[0] is not None and not Path(name, "_transaction_log").exists()


def _kind(path: PurePosixPath) -> tuple[Format | None, Any]:
    codec = _CODECS.get(path.suffix.lower())
    name = path.with_suffix("") if codec else path
    return _SUFFIXES.get(name.suffix.lower()), codec


def _partition(inside: PurePosixPath) -> dict[str, str | None]:
    values: dict[str, str | None] = {}
    for folder in inside.parts[:-1]:
        key, separator, value = folder.partition("=")
        if separator and key:
            values[unquote(key)] = None if value == _NO_PARTITION else unquote(value)
    return values


# --- this machine ----------------------------------------------------------------------------


def _local_files(pattern: str) -> Iterator[_File]:
    path = Path(pattern)
    if path.is_file():
        yield _File(pattern, PurePosixPath(path.name))
        return
    if path.is_dir():
        yield from _local_folder(path, path)
        return
    fixed, wild = _split(path.parts)
    root = Path(*fixed)
    matches = sorted(glob.glob(pattern, recursive=True)) if wild else []  # noqa: PTH207 - absolute
    for match in map(Path, matches):
        inside = match.relative_to(root)
        if _matches(inside.parts, wild) is None:
            continue
        if match.is_dir():
            yield from _local_folder(match, root)
        else:
            yield _File(str(match), PurePosixPath(inside))


def _local_folder(folder: Path, root: Path) -> Iterator[_File]:
    for path in sorted(folder.rglob("*")):
        if path.is_file() and not any(map(_hidden, path.relative_to(folder).parts)):
            yield _File(str(path), PurePosixPath(path.relative_to(root)), asked_for=False)


# --- stores ----------------------------------------------------------------------------------


def _stored_files(pattern: str, location: Location, open_folder: OpenFolder) -> Iterator[_File]:
    # A file's name may have the characters of a glob in it, so the file itself comes first.
    if location.prefix and not pattern.endswith("/"):
        folder, _, name = location.uri.rpartition("/")
        store = open_folder(folder)
        try:
            store.head(name)
        except ObjectNotFoundError:
            pass
        else:
            yield _File(location.uri, PurePosixPath(name), store, name)
            return
    _, wild = _split(location.prefix.split("/"))
    root = location.uri.removesuffix("/".join(wild)).rstrip("/") if wild else location.uri
    store = open_folder(root)
    for meta in store.list():
        names = tuple(meta.path.split("/"))
        below = _matches(names, wild)
        if below is not None and not any(map(_hidden, below)):
            uri = f"{store.uri}/{meta.path}"
            yield _File(uri, PurePosixPath(meta.path), store, meta.path, asked_for=not below)


# --- globs -----------------------------------------------------------------------------------


def _split(parts: Sequence[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The names before the first wildcard, and the rest."""
    at = next((i for i, part in enumerate(parts) if glob.has_magic(part)), len(parts))
    return tuple(parts[:at]), tuple(parts[at:])


def _matches(names: tuple[str, ...], wild: tuple[str, ...]) -> tuple[str, ...] | None:
    """What is left of a path below the file or folder that a glob names; None if it names none.

    >>> _matches(("a", "x.csv"), ("*", "*.csv")), _matches(("a", "b", "x.csv"), ("[ab]",))
    ((), ('b', 'x.csv'))
    >>> _matches(("_temporary", "x.csv"), ("**", "*.csv")) is None
    True
    """
    if not wild:
        return names
    if wild[0] == "**":
        found = _matches(names, wild[1:])
        if found is None and names and not _hidden(names[0]):
            found = _matches(names[1:], wild)
        return found
    if not names or not fnmatchcase(names[0], wild[0]):
        return None
    if _hidden(names[0]) and names[0][0] != wild[0][0]:
        return None
    return _matches(names[1:], wild[1:])


def _hidden(name: str) -> bool:
    return name.startswith(("_", "."))
