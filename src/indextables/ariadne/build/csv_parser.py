"""Parsing csv files with Arrow, where Spark is certain to read the same values.

Arrow parses csv several times faster than Spark does, but an index value has to be the value that a
query reads with Spark, or rows would be missing from its result. The two agree about *plain* files:
quotes only around whole fields, no escapes, no other line ends than `\\n`, the right number of
fields in each line, valid UTF-8, and values that every reader parses alike. For everything else
this module raises `NotPlain`, and Spark reads the file. An addition here needs a proof; an omission
only costs time.

On Spark's side the rules are those of Hadoop's `LineRecordReader` (splits lines, drops a byte order
mark), `CSVExprUtils` (drops blank lines), univocity's `CsvParser` (splits fields; a line fits its
buffer) and `UnivocityParser` (types, with the parsers of Java and of `DateTimeUtils`).
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv

from indextables.schema import TIMESTAMP, TIMESTAMP_NTZ

if TYPE_CHECKING:
    from _typeshed import SupportsRead

NUMBERS: frozenset[pa.DataType] = frozenset(
    (pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.float32(), pa.float64())
)

_LONGEST_NUMBER = 300
_EARLIEST_DAY = pa.scalar(datetime.date(1900, 1, 1))
_DATE = "dddd-dd-dd"
_TIMES = ("dddd-dd-dd?dd:dd:dd", *(f"dddd-dd-dd?dd:dd:dd.{'d' * n}" for n in range(1, 7)))
_READ = 4 << 20
_BLOCK = 1 << 20
# Univocity's buffer has as many characters; what it does with a longer line is not proved. Lines
# inside a block are shorter than it, so only those that go on in the next block are measured.
_LONGEST_LINE = _BLOCK
_MOST_COLUMNS = 10_000

# An escape changes where fields end. A carriage return ends a line, for each reader in its own way.
# Univocity takes NUL for the end of the input here and there.
_REFUSED_BYTES = {b"\r": "carriage return", b"\\": "backslash", b"\0": "NUL"}
_QUOTE, _LINE_END = b'"\n'
_QUOTED = re.compile(rb'"[^"]*"')

_OPTIONS = frozenset(("header", "sep", "delimiter", "inferschema", "mode"))
_BOOLEANS = {"true": True, "false": False}
_SEPARATORS = frozenset("!#$%&'()*,/;<=>?@[]^_`{|}~")

# What changes how Spark reads csv, and the values (in lower case) with which it does not.
_SETTINGS: Mapping[str, tuple[str, ...]] = {
    "spark.sql.legacy.timeParserPolicy": ("exception", "corrected"),
    "spark.sql.csv.parser.columnPruning.enabled": ("true",),
    "spark.sql.csv.parser.inputBufferSize": (),
    "spark.sql.legacy.csv.enableDateTimeParsingFallback": (),
    "spark.sql.files.archive.reader.enabled": ("false",),
    # Hadoop leaves out longer lines. Spark hands its own settings on to Hadoop.
    "mapreduce.input.linerecordreader.line.maxlength": (),
    "mapred.linerecordreader.maxlength": (),
    "spark.hadoop.mapreduce.input.linerecordreader.line.maxlength": (),
    "spark.hadoop.mapred.linerecordreader.maxlength": (),
}
_CORRUPT_RECORD = "spark.sql.columnNameOfCorruptRecord"

# Hadoop chooses a codec by the end of a name; these have none.
_ENDINGS = frozenset(("csv", "tsv", "psv", "txt", "dat", "data"))

_UTC = frozenset(("UTC", "Etc/UTC", "GMT", "Etc/GMT", "Z", "+00:00"))
_ALWAYS = NUMBERS | {pa.string(), pa.bool_(), pa.date32(), TIMESTAMP_NTZ}


@dataclass(frozen=True, slots=True)
class CsvDialect:
    """How the files of an index are written."""

    names: tuple[str, ...]
    """All columns of Spark's schema, in the order of the fields."""
    header: bool
    separator: str


def dialect(
    options: Mapping[str, str], names: Sequence[str], get: Callable[[str, Any], str | None]
) -> CsvDialect | None:
    """How files with these options of Spark's reader are written; None if none is read here.

    `names` are all columns of Spark's schema, those too that Arrow has no type for. `get` returns a
    setting of the session, or its second argument.

    >>> dialect({"header": "true", "sep": ";"}, ["a", "b"], {}.get)
    CsvDialect(names=('a', 'b'), header=True, separator=';')
    >>> dialect({"quote": "'"}, ["a", "b"], {}.get)
    """
    given = {name.lower(): value for name, value in options.items()}
    header = _BOOLEANS.get(given.get("header", "false").lower())
    separator = given.get("sep", given.get("delimiter", ","))
    if (
        len(given) < len(options)
        or given.keys() - _OPTIONS
        or given.keys() >= {"sep", "delimiter"}
        or header is None
        or given.get("inferschema", "true").lower() not in _BOOLEANS
        or given.get("mode", "permissive").lower() != "permissive"
        or separator not in _SEPARATORS
    ):
        return None
    for setting, harmless in _SETTINGS.items():
        value = get(setting, None)
        if value is not None and value.lower() not in harmless:
            return None
    lower = {name.lower() for name in names}
    corrupt = get(_CORRUPT_RECORD, None) or "_corrupt_record"
    # In a file of one column, a line of blanks is a value for Arrow and nothing for Spark.
    if not 2 <= len(names) <= _MOST_COLUMNS or len(lower) < len(names) or corrupt.lower() in lower:
        return None
    return CsvDialect(tuple(names), header, separator)


def is_named(path: str) -> bool:
    """Whether Spark reads a file of this name, and takes its bytes for the text itself.

    >>> [is_named(name) for name in ("data/part-0001", "a.csv", "a.csv.gz", "_a.csv")]
    [True, True, False, False]
    """
    name = path.rpartition("/")[2]
    _, dot, ending = name.rpartition(".")
    return not name.startswith(("_", ".")) and (not dot or ending.lower() in _ENDINGS)


def can_read(data_type: pa.DataType, *, timezone: str) -> bool:
    """Whether values of a type are read here, in a session with this time zone.

    The type alone is not enough: Spark has several types for one of Arrow's. The column
    must have one of Spark's plain types (no char, varchar, collation or UDT) and no default.
    """
    return data_type in _ALWAYS or (data_type == TIMESTAMP and timezone in _UTC)


def read(
    stream: SupportsRead[bytes], dialect: CsvDialect, columns: Mapping[str, pa.DataType]
) -> Iterator[pa.RecordBatch]:
    """Some columns of a file, of types that `can_read` agreed to, in batches of bounded size.

    The stream is read once, and may return less than it is asked for; no bytes are its end.
    `NotPlain` can come after some batches; they are nothing then.
    """
    pieces = _pieces(stream)
    if dialect.header:
        pieces = _below_header(pieces, dialect)
    for lines in pieces:
        yield from _batches(lines, dialect, columns)


def _pieces(stream: SupportsRead[bytes]) -> Iterator[bytes]:
    """The file in pieces of whole lines, without bytes that are not plain."""
    rest = b""
    for block in _blocks(stream):
        end = block.find(b"\n")
        if len(rest) + (len(block) if end < 0 else end) >= _LONGEST_LINE:
            raise NotPlain("A line is very long.")
        cut = block.rfind(b"\n") + 1
        if cut:
            yield _checked(rest + block[:cut])
            rest = block[cut:]
        else:
            rest += block
    if rest:
        yield _checked(rest)


def _blocks(stream: SupportsRead[bytes]) -> Iterator[bytes]:
    """The file in blocks of one size but for the last, whatever the stream returns at once."""
    parts, size = [], 0
    while part := stream.read(_READ):
        parts.append(part)
        size += len(part)
        if size >= _BLOCK:
            data = b"".join(parts)
            whole = size // _BLOCK * _BLOCK
            for start in range(0, whole, _BLOCK):
                yield data[start : start + _BLOCK]
            parts, size = [data[whole:]], size - whole
    if size:
        yield b"".join(parts)


def _checked(lines: bytes) -> bytes:
    for byte, name in _REFUSED_BYTES.items():
        if byte in lines:
            raise NotPlain(f"There is a {name} in the file.")
    if not lines.isascii():
        try:
            text = lines.decode()
        except UnicodeDecodeError:
            raise NotPlain("The file is not valid UTF-8.") from None
        # Hadoop drops one at the start of a file, univocity one at the start of a line.
        if "\ufeff" in text:
            raise NotPlain("There is a byte order mark in the file.")
    return lines


def _below_header(pieces: Iterator[bytes], dialect: CsvDialect) -> Iterator[bytes]:
    for first in pieces:
        header, _, lines = first.partition(b"\n")
        _check_quotes(header, dialect)
        header = _QUOTED.sub(b"", header)
        # Spark looks for its header behind blank lines. It takes any names, but univocity keeps
        # in mind how many there were.
        if header.count(dialect.separator.encode()) != len(dialect.names) - 1:
            raise NotPlain("The header has not as many names as the schema has columns.")
        if lines:
            yield lines
        yield from pieces


def _check_quotes(lines: bytes, dialect: CsvDialect) -> bool:
    """Whether there are quotes: around whole fields that are not empty, and nowhere else."""
    if b'"' not in lines:
        return False
    data = np.frombuffer(lines, np.uint8)
    quotes = np.flatnonzero(data == _QUOTE)
    opening, closing = quotes[::2], quotes[1::2]
    line_ends = np.flatnonzero(data == _LINE_END)
    before = data[opening[opening > 0] - 1]
    after = data[closing[closing < len(data) - 1] + 1]
    separator = ord(dialect.separator)
    is_plain = (
        len(opening) == len(closing)
        and ((before == separator) | (before == _LINE_END)).all()
        and ((after == separator) | (after == _LINE_END)).all()
        # Two quotes in a row are a null for one reader and an empty text for another, or a quote.
        and (closing - opening > 1).all()
        and not (np.searchsorted(quotes, line_ends) % 2).any()
    )
    if not is_plain:
        raise NotPlain("There are quotes inside of a field, or around nothing.")
    return True


def _batches(
    lines: bytes, dialect: CsvDialect, columns: Mapping[str, pa.DataType]
) -> Iterator[pa.RecordBatch]:
    """The rows of some lines: one batch, or none."""
    # Rows are counted by some column even if none is read: no names mean all of them to Arrow.
    names = list(columns) or [dialect.names[0]]
    has_quotes = _check_quotes(lines, dialect)
    source: Any = pa.BufferReader(lines)
    try:
        table = csv.read_csv(
            source,
            csv.ReadOptions(
                use_threads=False, block_size=2 * len(lines), column_names=list(dialect.names)
            ),
            csv.ParseOptions(
                delimiter=dialect.separator, quote_char='"' if has_quotes else False,
                double_quote=False, escape_char=False, newlines_in_values=False,
                ignore_empty_lines=True,
            ),
            csv.ConvertOptions(
                check_utf8=False, column_types=dict.fromkeys(names, pa.string()),
                null_values=[""], strings_can_be_null=True, include_columns=names,
            ),
        )  # fmt: skip
        batches = table.combine_chunks().to_batches()
        for number, (name, data_type) in enumerate(columns.items()):
            batches = [
                b.set_column(number, name, typed(b.column(number), data_type)) for b in batches
            ]
    except pa.ArrowException as error:
        raise NotPlain(str(error)) from None
    for batch in batches:
        yield batch.select(list(columns))


class NotPlain(Exception):  # noqa: N818 - nothing is wrong with such a file
    """Spark may see something else in this file than Arrow does; the text says why."""


def typed(text: Any, data_type: pa.DataType) -> Any:
    """Texts as values of a type, if Java's parsers and Arrow's say the same about all of them."""
    if data_type == pa.string() or text.null_count == len(text):
        return text.cast(data_type)
    if data_type in NUMBERS:
        return _numbers(text, data_type)
    if data_type == pa.bool_():
        return _booleans(text)
    if data_type == pa.date32():
        _check_form(text, (_DATE,))
        return _not_early(text.cast(data_type))
    if data_type in (TIMESTAMP, TIMESTAMP_NTZ):
        _check_form(text, _TIMES)
        # Arrow refuses 24:00:00, seconds of 60 and days that are none; a time without a zone is
        # one of UTC when it gets one.
        return _not_early(text.cast(TIMESTAMP_NTZ)).cast(data_type)
    raise ValueError(f"Values of the type {data_type} are not read here.")


def _numbers(text: Any, data_type: pa.DataType) -> Any:
    lengths, data = _content(text)
    # From "-" to "9" there are also "." and "/": Arrow refuses both in a whole number, and the
    # second in all. Without the check it takes blanks and hexadecimal digits, Java "+" and "1f".
    if data.min() < ord("-") or data.max() > ord("9"):
        raise NotPlain(f"There is something else than a plain number of the type {data_type}.")
    if pa.types.is_integer(data_type):
        return text.cast(data_type)
    numbers = text.cast(data_type)
    if lengths.max() > _LONGEST_NUMBER or not pc.all(pc.is_finite(numbers)).as_py():
        raise NotPlain("There is a number with very many digits.")
    return numbers


def _booleans(text: Any) -> Any:
    lower: Any = pc.ascii_lower(text)
    is_true: Any = pc.equal(lower, pa.scalar("true"))
    is_false: Any = pc.equal(lower, pa.scalar("false"))
    if not pc.all(pc.or_(is_true, is_false)).as_py():
        raise NotPlain("There is something else than true and false.")
    return is_true


def _check_form(text: Any, forms: Sequence[str]) -> None:
    """All values have the form for their length: `d` is a digit, `?` a blank or a `T`."""
    lengths, data = _content(text)
    lengths = lengths[lengths > 0]
    starts = np.cumsum(lengths) - lengths
    left = len(lengths)
    for form in forms:
        if not left:
            return
        chosen = starts[lengths == len(form)]
        if len(chosen) == len(starts):
            values = data.reshape(-1, len(form))
        else:
            values = data[chosen[:, None] + np.arange(len(form))]
        low = np.frombuffer(form.replace("d", "0").encode(), np.uint8)
        span = np.array([9 if c == "d" else 0 for c in form], np.uint8)
        # Bytes below `low` wrap around to large ones.
        fits = values - low <= span
        if (at := form.find("?")) >= 0:
            fits[:, at] = (values[:, at] == ord(" ")) | (values[:, at] == ord("T"))
        if not fits.all():
            break
        left -= len(chosen)
    if left:
        raise NotPlain("There is a date or time of another form.")


def _not_early(times: Any) -> Any:
    # Libraries differ in the history of calendars and time zones.
    if pc.less(pc.min(times), _EARLIEST_DAY.cast(times.type)).as_py():
        raise NotPlain("There is a day before 1900.")
    return times


def _content(text: Any) -> tuple[Any, Any]:
    """The lengths of the values, 0 for null, and the bytes of all of them."""
    _, offsets, data = text.buffers()
    ends = np.frombuffer(offsets, np.int32)[text.offset : text.offset + len(text) + 1]
    return np.diff(ends), np.frombuffer(data, np.uint8)[ends[0] : ends[-1]]
