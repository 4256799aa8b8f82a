"""Lines of CSV and JSON files that cannot be read: which they are, and how to go on without them.

Arrow's readers stop at a mistake and do not say in which line. A piece of a file that they refuse
is halved until the wrong lines stand alone; the others are read as they are without them.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import pyarrow as pa

from indextables.cells import to_json
from indextables.errors import IndexTablesError, SourceFileError

_PIECE = 1 << 20
_LONGEST_RECORD = 1 << 20
_SHOWN_TEXT = 1_000
_OPEN_QUOTE = "a quote is opened and not closed"

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

    A quote that nobody closes is the mistake of the line that opens it, not of all lines after it.

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
        yield Record(number, b"".join(record), _OPEN_QUOTE if is_open else None)
        number += len(record)


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


def pieces(found: Iterable[Record], *, size: int = _PIECE) -> Iterator[list[Record]]:
    """Records in lists of about some bytes."""
    piece: list[Record] = []
    length = 0
    for record in found:
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
    """What `parse` makes of the records that it can read; the others are rejected one by one."""
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


_PREFIX = re.compile(r"^(CSV|JSON) parse error: (Row #\d+: )?")
_CONVERSION = re.compile(
    r"In CSV column #(\d+): .*?CSV conversion error to (\S+): invalid (.*)", re.S
)


def line_reason(message: str) -> str:
    """What Arrow says about one line, without its own numbers of columns and rows.

    >>> line_reason("In CSV column #0: CSV conversion error to int32: invalid value 'x'")
    "column 1: the value 'x' is not int32"
    >>> line_reason("JSON parse error: Invalid value. in row 0")
    'JSON: Invalid value'
    """
    message = " ".join(message.split())
    if found := _CONVERSION.search(message):
        return f"column {int(found[1]) + 1}: the {found[3]} is not {found[2]}"
    message = re.sub(r"\.? in row \d+$", "", message)
    kind = _PREFIX.match(message)
    plain = _PREFIX.sub("", message).rstrip(".")
    return f"JSON: {plain}" if kind and kind[1] == "JSON" else plain
