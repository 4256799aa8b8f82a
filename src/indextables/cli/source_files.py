"""Files to import: which ones a pattern names, and those of their lines that cannot be read.

A pattern is a file, a folder or a glob, on this machine or in a bucket. Folders are searched to the
bottom. Names that begin with `_` or `.` are passed over, as Hadoop does it, unless the pattern
writes them out. `key=value` folders below the part of a pattern that has no wildcard become
columns, as Hive and Spark write them.

Arrow's readers of CSV and JSON stop at a mistake and do not say in which line. A piece of a file
that they refuse is halved until the wrong lines stand alone; the others are read without them.
"""

from __future__ import annotations

import glob
import os
import re
import shutil
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple, TypeVar
from urllib.parse import unquote

import pyarrow as pa

from indextables.cells import to_json
from indextables.cli.settings import Format
from indextables.errors import IndexTablesError, ObjectNotFoundError, SourceFileError
from indextables.storage import Store, open_store
from indextables.storage.local import temporary_file
from indextables.storage.location import Location, parse_location

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
    """The temporary file with the content of standard input."""
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
    file_format: Format | None = None,
    delimiter: str | None = None,
    open_folder: OpenFolder = open_store,
) -> list[Source]:
    """The files that the patterns name, in their order, each once."""
    sources_by_path: dict[str, Source] = {}
    for pattern in patterns:
        if pattern == STANDARD_INPUT:
            sources_by_path[pattern] = _standard_input(file_format, delimiter)
            continue
        location = parse_location(pattern)
        if location.scheme == "file":
            files = _local_files(location.uri if pattern.startswith("file:") else pattern)
        else:
            files = _stored_files(pattern, location, open_folder)
        sources = [_source(file, file_format=file_format, delimiter=delimiter) for file in files]
        chosen = [source for source in sources if source is not None]
        if not chosen:
            place = pattern if location.scheme == "file" else location.uri
            raise SourceFileError(place, _UNKNOWN if sources else _NOTHING)
        for source in chosen:
            sources_by_path.setdefault(
                source.path if source.store else os.path.realpath(source.path), source
            )
    return list(sources_by_path.values())


def _standard_input(file_format: Format | None, delimiter: str | None) -> Source:
    """Standard input as a file, because it is read more than once."""
    if file_format is None:
        raise SourceFileError(
            STANDARD_INPUT, "standard input has no name; say what it is with --format csv or jsonl"
        )
    spooled = temporary_file("import")
    shutil.copyfileobj(sys.stdin.buffer, spooled)
    spooled.flush()
    return Source(
        STANDARD_INPUT,
        file_format,
        delimiter=delimiter or ",",
        guessed_delimiter=delimiter is None,
        spooled=spooled,
    )


def _source(file: _File, *, file_format: Format | None, delimiter: str | None) -> Source | None:
    name = PurePosixPath(file.path)
    guessed, codec = _format_and_codec(name)
    if not file.asked_for and (guessed is None or file_format not in (None, guessed)):
        return None
    chosen = file_format or guessed
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
    """Whether a name means files, not a table: it has the suffix of a file format.

    >>> is_file_name("data/*.parquet"), is_file_name("more.csv.gz"), is_file_name("data/*")
    (True, True, False)
    """
    path = PurePosixPath(name)
    return _format_and_codec(path)[0] is not None and not Path(name, "_transaction_log").exists()


def _format_and_codec(path: PurePosixPath) -> tuple[Format | None, Any]:
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
        matches = _matches(names, wild[1:])
        if matches is None and names and not _hidden(names[0]):
            matches = _matches(names[1:], wild)
        return matches
    if not names or not fnmatchcase(names[0], wild[0]):
        return None
    if _hidden(names[0]) and names[0][0] != wild[0][0]:
        return None
    return _matches(names[1:], wild[1:])


def _hidden(name: str) -> bool:
    return name.startswith(("_", "."))


_PIECE = 1 << 20
_LONGEST_RECORD = 1 << 20
_SHOWN_TEXT = 1_000
OPEN_QUOTE = "a quote is opened and not closed"

Rows = TypeVar("Rows")


class Record(NamedTuple):
    """A line, or the lines of a CSV record whose values have line ends."""

    line: int
    text: bytes
    problem: str | None = None


class Reject(NamedTuple):
    """A record that was left out."""

    file: str
    line: int
    reason: str
    text: str


class Rejects:
    """Counts records that are left out, and writes them to a file of JSON lines if there is one.

    The file is made with the first of them.
    """

    def __init__(self, path: str | None = None) -> None:
        if path is not None and Path(path).exists():
            raise SourceFileError(path, "it exists already; choose another file for --rejects")
        self.path = path
        self.count = 0
        self.first: Reject | None = None
        self._file: Any = None

    def add(self, reject: Reject) -> None:
        """Leave a record out."""
        self.count += 1
        self.first = self.first or reject
        if self.path is None:
            return
        try:
            self._file = self._file or Path(self.path).open("xb")  # noqa: SIM115 - see close
            self._file.write(to_json(reject._asdict()) + b"\n")
        except OSError as error:
            raise SourceFileError(self.path, error.strerror or str(error)) from None

    def close(self) -> None:
        """Finish the file."""
        if self._file is not None:
            self._file.close()


def records(lines: Iterable[bytes], delimiter: bytes | None, *, first: int = 1) -> Iterator[Record]:
    r"""Cut lines into records. Without a delimiter every line is one.

    A quote that is never closed is a mistake of the line that opens it, not of all lines after it.

    >>> [r.line for r in records([b'a,"x\n', b'y",b\n', b"c,d\n"], b",")]
    [1, 3]
    """
    source, waiting, number = iter(lines), deque[bytes](), first

    def following() -> bytes | None:
        return waiting.popleft() if waiting else next(source, None)

    while (line := following()) is not None:
        record, size = [line], len(line)
        is_open = delimiter is not None and _ends_open(line, delimiter, is_open=False)
        while delimiter is not None and is_open and size < _LONGEST_RECORD:
            more = following()
            if more is None:
                break
            record.append(more)
            size += len(more)
            is_open = _ends_open(more, delimiter, is_open=True)
        if is_open:
            waiting.extendleft(reversed(record[1:]))
            del record[1:]
        yield Record(number, b"".join(record), OPEN_QUOTE if is_open else None)
        number += len(record)


def open_quote(lines: Iterable[bytes], delimiter: bytes) -> int | None:
    r"""The number of the line with a quote that is not closed until the end.

    >>> open_quote([b'a,"x\n', b'y",b\n', b'c,"d\n', b"e,f\n"], b",")
    3
    """
    opened, is_open = 0, False
    for number, line in enumerate(lines, 1):
        opened = opened if is_open else number
        is_open = _ends_open(line, delimiter, is_open=is_open)
    return opened if is_open else None


def _ends_open(line: bytes, delimiter: bytes, *, is_open: bool) -> bool:
    """Whether a quoted value goes on after a line; a quote inside a plain value is a character."""
    at = 0
    while True:
        if is_open:
            at = line.find(b'"', at) + 1
            if not at:
                return True
            if line[at : at + 1] == b'"':
                at += 1
            else:
                is_open = False
        elif line[at : at + 1] == b'"' and (at == 0 or line[at - 1 : at] == delimiter):
            is_open, at = True, at + 1
        else:
            at = line.find(delimiter, at) + 1
            if not at:
                return False


def pieces(lines: Iterable[Record], *, size: int = _PIECE) -> Iterator[list[Record]]:
    """Records in lists of about some bytes."""
    piece: list[Record] = []
    length = 0
    for record in lines:
        piece.append(record)
        length += len(record.text)
        if length >= size:
            yield piece
            piece, length = [], 0
    if piece:
        yield piece


def salvaged(
    piece: Sequence[Record],
    parse: Callable[[bytes], Rows],
    reject: Callable[[Record, str], None],
) -> Iterator[Rows]:
    """The results of `parse` for records that it can read; the others are rejected one by one."""
    if len(piece) == 1 and piece[0].problem is not None:
        reject(piece[0], piece[0].problem)
        return
    if not any(record.problem for record in piece):
        try:
            rows = parse(b"".join(record.text for record in piece))
        except (pa.ArrowException, UnicodeError, IndexTablesError) as error:
            if len(piece) == 1:
                reject(piece[0], line_reason(str(error)))
                return
        else:
            yield rows
            return
    middle = len(piece) // 2
    for half in (piece[:middle], piece[middle:]):
        yield from salvaged(half, parse, reject)


def shown_text(record: Record) -> str:
    """The text of a record, shortened."""
    text = record.text.decode("utf-8", "replace").rstrip("\r\n")
    return text if len(text) <= _SHOWN_TEXT else text[:_SHOWN_TEXT] + "…"


NO_OBJECT = "it is not a JSON object"
_PREFIX = re.compile(r"^(CSV|JSON) parse error: (Row #\d+: )?")
_CONVERSION = re.compile(
    r"In CSV column #(\d+): .*?CSV conversion error to (\S+): invalid (.*)", re.S
)


def line_reason(message: str) -> str:
    """Arrow's message about one line, without its own numbers of columns and rows.

    >>> line_reason("In CSV column #0: CSV conversion error to int32: invalid value 'x'")
    "column 1: the value 'x' is not int32"
    >>> line_reason("JSON parse error: Invalid value. in row 0")
    'JSON: Invalid value'
    """
    message = " ".join(message.split())
    if match := _CONVERSION.search(message):
        return f"column {int(match[1]) + 1}: the {match[3]} is not {match[2]}"
    if "Column() changed from" in message:
        return NO_OBJECT
    message = re.sub(r"\.? in row \d+$", "", message)
    prefix = _PREFIX.match(message)
    plain = _PREFIX.sub("", message).rstrip(".")
    return f"JSON: {plain}" if prefix and prefix[1] == "JSON" else plain
