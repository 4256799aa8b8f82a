"""Building index rows of csv files that Arrow parses, about twice as fast as Spark.

An index value has to be the value that a query reads with Spark, or rows would be missing from its
result. The two parsers agree about *plain* files: quotes only around whole fields, no escapes, no
other line ends than `\\n`, the right number of fields in each line, valid UTF-8, and values that
every reader parses alike. For everything else the parser raises `NotPlain`, at the latest when it
meets it in the file; such a file is not in the result, and Spark reads it (`tasks`). An addition to
the parser needs a proof; an omission only costs time.

On Spark's side the rules are those of Hadoop's `LineRecordReader` (splits lines, drops a byte order
mark), `CSVExprUtils` (drops blank lines), univocity's `CsvParser` (splits fields; a line fits its
buffer) and `UnivocityParser` (types, with the parsers of Java and of `DateTimeUtils`).

A task reads whole files and folds them. A computed index is a Spark expression, which Spark
evaluates: `ReadRows` returns the columns that it needs, and after the rows of each file a few rows
with the state of the other declarations. `FinishFiles` combines the two, in the same stage.
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv

from indextables.ariadne.build.fold import FileFold, partial_schema
from indextables.ariadne.build.tasks import OUTPUT, Output, Plan, collected, parallelism, typed
from indextables.ariadne.declarations import Computed, needed_columns
from indextables.ariadne.files.read import arrow_schema, folder_and_name, read_files, spark_schema
from indextables.config import parse_size
from indextables.errors import StorageError
from indextables.schema import TIMESTAMP, TIMESTAMP_NTZ
from indextables.storage import open_store

if TYPE_CHECKING:
    from _typeshed import SupportsRead
    from pyspark.sql import DataFrame

    from indextables.ariadne.build.tasks import Written
    from indextables.ariadne.metadata import Metadata
    from indextables.ariadne.store.place import IndexPlace


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


def dialect_of(
    options: Mapping[str, str], names: Sequence[str], get: Callable[[str, Any], str | None]
) -> CsvDialect | None:
    """How files with these options of Spark's reader are written; None if none is read here.

    `names` are all columns of Spark's schema, those too that Arrow has no type for. `get` returns a
    setting of the session, or its second argument.

    >>> dialect_of({"header": "true", "sep": ";"}, ["a", "b"], {}.get)
    CsvDialect(names=('a', 'b'), header=True, separator=';')
    >>> dialect_of({"quote": "'"}, ["a", "b"], {}.get)
    """
    settings = {name.lower(): value for name, value in options.items()}
    header = _BOOLEANS.get(settings.get("header", "false").lower())
    separator = settings.get("sep", settings.get("delimiter", ","))
    if (
        len(settings) < len(options)
        or settings.keys() - _OPTIONS
        or settings.keys() >= {"sep", "delimiter"}
        or header is None
        or settings.get("inferschema", "true").lower() not in _BOOLEANS
        or settings.get("mode", "permissive").lower() != "permissive"
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


def parse(
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
    unfinished = b""
    for block in _blocks(stream):
        end = block.find(b"\n")
        if len(unfinished) + (len(block) if end < 0 else end) >= _LONGEST_LINE:
            raise NotPlain("A line is very long.")
        cut = block.rfind(b"\n") + 1
        if cut:
            yield _checked(unfinished + block[:cut])
            unfinished = block[cut:]
        else:
            unfinished += block
    if unfinished:
        yield _checked(unfinished)


def _blocks(stream: SupportsRead[bytes]) -> Iterator[bytes]:
    """The file in blocks of one size but for the last, whatever the stream returns at once."""
    parts, size = [], 0
    while part := stream.read(_READ):
        parts.append(part)
        size += len(part)
        if size >= _BLOCK:
            data = b"".join(parts)
            in_blocks = size // _BLOCK * _BLOCK
            for start in range(0, in_blocks, _BLOCK):
                yield data[start : start + _BLOCK]
            parts, size = [data[in_blocks:]], size - in_blocks
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
                b.set_column(number, name, typed_texts(b.column(number), data_type))
                for b in batches
            ]
    except pa.ArrowException as error:
        raise NotPlain(str(error)) from None
    for batch in batches:
        yield batch.select(list(columns))


class NotPlain(Exception):  # noqa: N818 - nothing is wrong with such a file
    """Spark may see something else in this file than Arrow does; the text says why."""


def typed_texts(text: Any, data_type: pa.DataType) -> Any:
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
        # Arrow refuses 24:00:00, seconds of 60 and impossible days; a time without a zone is
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


STATE, COUNT = "__state", "__count"
"""Columns beside the values of expressions: what a row says about those before it, and how many
rows of a file it stands for."""

_READ_BYTES = 4 << 20
_MOST_ROWS, _MOST_BYTES = 1 << 17, 16 << 20

# What a row behind those of a file says, and then its number or a part of its state.
_PART, _WHOLE, _GIVEN_UP = b"part", b"whole", b"none"


# --- index rows ------------------------------------------------------------------------------


@dataclass(frozen=True)
class Direct:
    """What tasks need to know. Pickled with the credentials, shown without."""

    plan: Plan
    dialect: CsvDialect
    columns: Mapping[str, pa.DataType]
    """What is read of the files."""
    inputs: tuple[str, ...]
    """What expressions are about."""
    tasks: tuple[tuple[str, ...], ...]
    """The files of each task."""
    storage: Mapping[str, Mapping[str, object]] = field(repr=False)
    """How each folder is reached."""

    def batches(self, filename: str) -> Iterator[pa.RecordBatch]:
        """The rows of a file."""
        folder, name = folder_and_name(filename)
        store = open_store(folder, self.storage[folder])
        blocks = _Blocks(store.get_range, name, self.plan.files[filename].size)
        return parse(blocks, self.dialect, self.columns)

    def take(self, fold: FileFold, rows: pa.RecordBatch) -> None:
        """Fold rows for all declarations but the computed ones."""
        columns: list[Any] = []
        times: list[Any] = []
        for target in self.plan.targets:
            arrays = [rows.column(name) for name in needed_columns(target.declaration)]
            columns.append(arrays[0] if arrays else None)
            times.append(arrays[1] if len(arrays) > 1 else None)
        fold.add(rows.num_rows, columns, times)


class _Blocks:
    """A stored file, read from its beginning to its end."""

    def __init__(self, get_range: Any, name: str, size: int) -> None:
        self._get_range = get_range
        self._name = name
        self._at, self._size = 0, size

    def read(self, count: int = -1) -> bytes:
        """The next bytes, at most a block."""
        count = _READ_BYTES if count < 0 else min(count, _READ_BYTES)
        end = min(self._at + count, self._size)
        data: bytes = self._get_range(self._name, self._at, end) if end > self._at else b""
        self._at = end
        return data


@dataclass(frozen=True)
class ReadFiles:
    """A task without expressions: fold its files and write the finished index rows."""

    direct: Direct

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        output = Output(self.direct.plan)
        for _, filename in _named(self.direct, batches):
            fold = self.direct.plan.fold()
            try:
                for rows in self.direct.batches(filename):
                    self.direct.take(fold, rows)
            except (NotPlain, StorageError):
                fold.close()
                continue
            output.finish(filename, fold)
            yield from output.take()
        output.flush()
        yield from output.take()


@dataclass(frozen=True)
class ReadRows:
    """A task with expressions: fold its files, and hand the rows and the state to Spark."""

    direct: Direct

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for number, filename in _named(self.direct, batches):
            fold = self.direct.plan.fold(partial=True)
            inputs = _Inputs(self.direct)
            try:
                for rows in self.direct.batches(filename):
                    self.direct.take(fold, rows)
                    yield from inputs.add(rows)
                yield from inputs.flush()
                for part in fold.partials():
                    yield inputs.state(_PART, part.serialize().to_pybytes())
                yield inputs.state(_WHOLE, str(number).encode())
            except (NotPlain, StorageError):
                yield inputs.state(_GIVEN_UP)
            fold.close()


class _Inputs:
    """The values that expressions are about, of many rows at once: each combination only once."""

    def __init__(self, direct: Direct) -> None:
        self._types: dict[str, Any] = {name: direct.columns[name] for name in direct.inputs}
        # Arrow may take 0.0 and -0.0 for the same, an expression need not.
        self._repeats = not any(map(pa.types.is_floating, self._types.values()))
        self._waiting: list[pa.RecordBatch] = []
        self._rows = 0

    def add(self, rows: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Take rows; yields those that Spark gets."""
        self._waiting.append(rows.select(list(self._types)))
        self._rows += rows.num_rows
        if self._rows >= _MOST_ROWS or sum(b.nbytes for b in self._waiting) >= _MOST_BYTES:
            yield from self.flush()

    def flush(self) -> Iterator[pa.RecordBatch]:
        """The rows that wait."""
        counted = self._counted() if self._rows else None
        self._waiting, self._rows = [], 0
        if counted is not None:
            yield from counted.to_batches()

    def _counted(self) -> pa.Table:
        names = list(self._types)
        if not names:
            return pa.table({STATE: pa.nulls(1, pa.binary()), COUNT: pa.array([self._rows])})
        rows = pa.Table.from_batches(self._waiting)
        counts: Any = pa.repeat(1, self._rows)
        if self._repeats:
            groups = rows.group_by(names, use_threads=False).aggregate([([], "count_all")])
            # Where nearly every combination is new, nothing is gained by looking for others.
            self._repeats = groups.num_rows < 0.5 * self._rows
            if self._repeats:
                rows, counts = groups.select(names), groups.column("count_all")
        states: Any = pa.nulls(rows.num_rows, pa.binary())
        return pa.table(
            {STATE: states, COUNT: counts, **dict(zip(names, rows.columns, strict=True))}
        )

    def state(self, status: bytes, more: bytes = b"") -> pa.RecordBatch:
        """A row that says something about the rows before it."""
        inputs = {name: pa.nulls(1, data_type) for name, data_type in self._types.items()}
        row: dict[str, Any] = {STATE: pa.array([status + b" " + more]), COUNT: pa.array([0])}
        return pa.RecordBatch.from_pydict({**row, **inputs})


def _named(direct: Direct, batches: Iterator[pa.RecordBatch]) -> Iterator[tuple[int, str]]:
    """The files of the task, each with its number."""
    numbers = {name: number for number, name in enumerate(direct.plan.files)}
    for batch in batches:
        tasks: list[Any] = batch.column(0).to_pylist()
        for task in tasks:
            for name in direct.tasks[task]:
                yield numbers[name], name


@dataclass(frozen=True)
class FinishFiles:
    """A task behind Spark's expressions: fold their values, and write the finished index rows."""

    plan: Plan

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        names = list(self.plan.files)
        schema = partial_schema(self.plan.targets)
        output = Output(self.plan)
        fold = self.plan.fold()
        for batch in batches:
            states: Any = batch.column(STATE)
            start = 0
            for at in np.flatnonzero(states.is_valid()).tolist():
                self._add(fold, batch.slice(start, at - start))
                start = at + 1
                status, _, more = states[at].as_py().partition(b" ")
                if status == _PART:
                    fold.merge(pa.ipc.read_record_batch(pa.py_buffer(more), schema))
                    continue
                if status == _WHOLE:
                    output.finish(names[int(more)], fold)
                    yield from output.take()
                fold.close()
                fold = self.plan.fold()
            self._add(fold, batch.slice(start))
        output.flush()
        yield from output.take()

    def _add(self, fold: FileFold, rows: pa.RecordBatch) -> None:
        columns = [
            typed(rows.column(f"c{n}"), t.value_type)
            if isinstance(t.declaration, Computed)
            else None
            for n, t in enumerate(self.plan.targets)
        ]
        # The rows were counted where they were read.
        fold.add(0, columns, [None] * len(columns), repeated=rows.column(COUNT))


_NUMBERS = ("tinyint", "smallint", "int", "bigint", "float", "double")
_PLAIN = frozenset((*_NUMBERS, "string", "boolean", "date", "timestamp", "timestamp_ntz"))


def run(place: IndexPlace, metadata: Metadata, plan: Plan) -> list[Written]:
    """Read the files that can be read here; returns what the tasks wrote."""
    direct = _direct(place, metadata, plan)
    if direct is None:
        return []
    spark = place.context.spark
    count = len(direct.tasks)
    tasks = spark.range(0, count, 1, count)
    if not direct.inputs and not _expressions(plan):
        return collected(tasks.mapInArrow(ReadFiles(direct), OUTPUT))
    return collected(_evaluated(tasks, metadata, direct, name=place.name))


def _evaluated(tasks: DataFrame, metadata: Metadata, direct: Direct, *, name: str) -> DataFrame:
    from pyspark.sql import functions as f
    from pyspark.sql.types import BinaryType, LongType, StructField, StructType

    file_schema = spark_schema(metadata, name=name)
    schema = StructType(
        [
            StructField(STATE, BinaryType()),
            StructField(COUNT, LongType()),
            *(StructField(n, file_schema[n].dataType) for n in direct.inputs),
        ]
    )
    rows = tasks.mapInArrow(ReadRows(direct), schema)
    state = rows[STATE]
    values = [
        f.when(state.isNull(), f.expr(target.declaration.expression)).alias(f"c{number}")
        for number, target in enumerate(direct.plan.targets)
        if isinstance(target.declaration, Computed)
    ]
    return rows.select(state, COUNT, *values).mapInArrow(FinishFiles(direct.plan), OUTPUT)


def _direct(place: IndexPlace, metadata: Metadata, plan: Plan) -> Direct | None:
    """What tasks do; None if no file can be read here."""
    if metadata.format != "csv":
        return None
    spark, name = place.context.spark, place.name
    dialect = dialect_of(metadata.read_options, spark_schema(metadata, name=name).names,
                               spark.conf.get)  # fmt: skip
    inputs = _inputs(place, metadata, plan)
    if dialect is None or inputs is None or {STATE, COUNT} & set(dialect.names):
        return None
    needed = [n for t in plan.targets for n in needed_columns(t.declaration)]
    types = _types(place, metadata)
    read_columns = dict.fromkeys([*needed, *inputs])
    if not all(column in types for column in read_columns):
        return None
    most = parse_size(spark.conf.get("spark.sql.files.maxPartitionBytes", "128MB") or "128MB")
    # Several tasks of Spark share a larger file.
    files = {n: m.size for n, m in plan.files.items() if m.size <= most and is_named(n)}
    if not files:
        return None
    return Direct(
        plan=plan,
        dialect=dialect,
        columns={column: types[column] for column in read_columns},
        inputs=inputs,
        tasks=_tasks(files, 2 * parallelism(spark)),
        storage={
            f: place.context.storage_options(f) for f in {folder_and_name(n)[0] for n in files}
        },
    )


def _types(place: IndexPlace, metadata: Metadata) -> dict[str, pa.DataType]:
    """The columns that can be read here."""
    zone = str(place.context.spark.conf.get("spark.sql.session.timeZone"))
    # Arrow's types do not show collations, UDTs and defaults.
    plain = {
        f.name
        for f in spark_schema(metadata, name=place.name)
        if not f.metadata and f.dataType.simpleString() in _PLAIN
    }
    return {
        f.name: f.type
        for f in arrow_schema(metadata, name=place.name)
        if f.name in plain and can_read(f.type, timezone=zone)
    }


def _expressions(plan: Plan) -> list[str]:
    return [t.declaration.expression for t in plan.targets if isinstance(t.declaration, Computed)]


def _inputs(place: IndexPlace, metadata: Metadata, plan: Plan) -> tuple[str, ...] | None:
    """The columns that expressions are about; None if they are not known."""
    from pyspark.sql import functions as f

    from indextables.spark.bridge.frames import columns_read

    expressions = _expressions(plan)
    if not expressions:
        return ()
    rows = read_files(place.context.spark, metadata, [], name=place.name)
    return columns_read(rows.select(*map(f.expr, expressions)))


def _tasks(files: Mapping[str, int], most: int) -> tuple[tuple[str, ...], ...]:
    """Files for each task, about as many bytes for all of them."""
    tasks: list[list[str]] = [[] for _ in range(min(most, len(files)))]
    loads = [0] * len(tasks)
    for name in sorted(files, key=lambda n: -files[n]):
        lightest = loads.index(min(loads))
        tasks[lightest].append(name)
        loads[lightest] += files[name] + 1
    return tuple(map(tuple, tasks))
