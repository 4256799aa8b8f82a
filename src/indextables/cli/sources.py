"""Rows of files that are imported: Parquet, CSV and JSON lines, compressed or not.

Types of CSV and JSON are inferred from the first `INFER_BYTES` of each file. Nothing is held in
memory but a few batches, wherever a file is.
"""

from __future__ import annotations

import codecs
import contextlib
import io
import os
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.csv
import pyarrow.dataset
import pyarrow.json
import pyarrow.parquet as pq

from indextables.cli.settings import Format
from indextables.cli.source_files import (
    NO_OBJECT,
    OPEN_QUOTE,
    Record,
    Reject,
    Rejects,
    Source,
    find_sources,
    open_quote,
    pieces,
    records,
    salvaged,
    shown_text,
)
from indextables.errors import IndexTablesError, SourceFileError
from indextables.schema import conform, normalize, type_name
from indextables.storage import Store

INFER_BYTES = 16 << 20
_EMPTY = ("Empty CSV file", "Empty JSON stream")
_NO_TEXT = (
    "is not text in UTF-8; convert the file (iconv -f latin1 -t utf-8), or make the column's type "
    "binary"
)


def schema_of(
    sources: Sequence[Source], types: Mapping[str, pa.DataType], *, skip: bool = False
) -> pa.Schema:
    """The columns of all files together; `types` decides where it names a column.

    A column that is null in all rows that were read is a text. `skip` passes over lines that
    cannot be read.
    """
    schemas = []
    for source in sources:
        with _explained(source, types):
            columns = _sound_schema(source, types) if skip else _open(source, types)[0]
            _check_columns(source, columns.names)
            folders = [name for name in source.partition if name not in columns.names]
            values = [pa.field(n, _value_type(source.partition, n, types)) for n in folders]
            schemas.append(pa.schema([*columns, *values]).remove_metadata())
    try:
        together = pa.unify_schemas(schemas, promote_options="permissive")
    except (pa.ArrowInvalid, pa.ArrowTypeError):
        raise _clash(sources, schemas) from None
    if not together.names:
        for source in sources if skip else ():
            if (first := _first_reject(source, types)) is not None:
                raise _unreadable(source, first)
        raise SourceFileError(sources[0].path, "it is empty, and so are all files beside it")
    return normalize(pa.schema([_storable(f, types) for f in together]))


def _clash(sources: Sequence[Source], schemas: Sequence[pa.Schema]) -> SourceFileError:
    """The first column with incompatible types, and the file that has the rarest of them."""
    for name in dict.fromkeys(name for schema in schemas for name in schema.names):
        holders = [(source, schema.field(name)) for source, schema in zip(sources, schemas,
                   strict=True) if name in schema.names]  # fmt: skip
        try:
            pa.unify_schemas([pa.schema([f]) for _, f in holders], promote_options="permissive")
        except (pa.ArrowInvalid, pa.ArrowTypeError):
            break
    counts = Counter(field.type for _, field in holders if not pa.types.is_null(field.type))
    rare = min(reversed(counts), key=counts.__getitem__)
    usual = max((data_type for data_type in counts if data_type != rare), key=counts.__getitem__)
    odd = next(source for source, field in holders if field.type == rare)
    places = "1 other file" if counts[usual] == 1 else f"{counts[usual]:,} other files"
    if any(pa.types.is_nested(data_type) for data_type in counts):
        remedy = "import it into a table of its own"
    else:
        remedy = f"--type {name}=string reads the column as text in all files"
    return SourceFileError(
        odd.path,
        f"its column '{name}' is {type_name(rare)}, but {type_name(usual)} in {places}; {remedy}",
    )


def _check_columns(source: Source, names: Sequence[str]) -> None:
    """Refuse names of columns that are a mistake."""
    if twice := [name for name in names if names.count(name) > 1]:
        raise SourceFileError(source.path, f"it has the column '{twice[0]}' twice")
    likely = next((mark for mark in ";|\t" if mark in names[0]), None) if len(names) == 1 else None
    if source.format == "csv" and likely is not None and source.guessed_delimiter:
        raise SourceFileError(
            source.path,
            f"its only column would be {names[0]!r}; say what separates its columns with "
            f"--delimiter {likely!r}, or --delimiter , if that is one column",
        )


def _storable(field: Any, types: Mapping[str, pa.DataType]) -> Any:
    """Nulls only, and times without a date, which Spark does not have, are kept as text."""
    if pa.types.is_null(field.type) or pa.types.is_time(field.type):
        return pa.field(field.name, types.get(field.name, pa.string()))
    return field


def _value_type(
    partition: Mapping[str, str | None], name: str, types: Mapping[str, pa.DataType]
) -> pa.DataType:
    if name in types:
        return types[name]
    value = partition[name]
    if value is None:
        return pa.null()
    digits = value.removeprefix("-")
    # A leading zero is part of a code, not of a number.
    number = digits.isascii() and digits.isdigit() and str(int(digits)) == digits
    if number and -(2**63) <= int(value) < 2**63:
        return pa.int64()
    try:
        pa.array([value]).cast(pa.date32())
    except pa.ArrowInvalid:
        return pa.string()
    return pa.date32()


def read(
    sources: Sequence[Source], schema: pa.Schema, *, rejects: Rejects | None = None
) -> pa.RecordBatchReader:
    """The rows of all files as one stream in one schema; with `rejects`, without the lines that
    cannot be read."""
    return pa.RecordBatchReader.from_batches(schema, _batches(sources, schema, rejects))


def rows_of_files(pattern: str, file_format: Format | None) -> Any:
    """The rows of files for a query: Parquet on this machine stays there, the rest is in memory."""
    sources = find_sources([pattern], file_format=file_format)
    schema = schema_of(sources, {})
    if all(s.format == "parquet" and s.store is None and not s.partition for s in sources):
        return pyarrow.dataset.dataset([s.path for s in sources], schema, format="parquet")
    return read(sources, schema).read_all()


def rows_in(sources: Sequence[Source]) -> int | None:
    """How many rows the footers of the files state; None if a file has no footer."""
    if any(source.format != "parquet" for source in sources):
        return None
    count = 0
    for source in sources:
        with _explained(source):
            count += pq.ParquetFile(_raw(source)).metadata.num_rows
    return count


def _batches(
    sources: Sequence[Source], schema: pa.Schema, rejects: Rejects | None
) -> Iterator[pa.RecordBatch]:
    types = {f.name: f.type for f in schema}
    rows = 0
    for source in sources:
        with _explained(source, types), _unchanged(source):
            if rejects is None or source.format == "parquet":
                opened = _open(source, types)[1]
                batches: Iterator[Any] = (_fitted(b, source, schema) for b in opened)
            else:
                batches = _salvaged_batches(source, schema, rejects)
            for batch in batches:
                rows += batch.num_rows
                yield batch
    if rejects is not None and rejects.first is not None and not rows:
        raise _unreadable(sources[0], rejects.first)


def _fitted(batch: pa.RecordBatch, source: Source, schema: pa.Schema) -> pa.RecordBatch:
    return conform(_with_partition(_with_texts(batch), source, schema), schema)


def _with_texts(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Times without a date as text, which is what the table has for them."""
    for at, column in enumerate(batch.schema):
        if pa.types.is_time(column.type):
            batch = batch.set_column(at, column.name, batch.column(at).cast(pa.string()))
    return batch


def _with_partition(batch: pa.RecordBatch, source: Source, schema: pa.Schema) -> pa.RecordBatch:
    for name, value in source.partition.items():
        if name not in batch.schema.names:
            data_type = schema.field(name).type
            values = pa.repeat(pa.scalar(value, pa.string()), batch.num_rows).cast(data_type)
            batch = batch.append_column(name, values)
    return batch


_Opened = tuple[pa.Schema, Iterator[pa.RecordBatch]]


def _open(source: Source, types: Mapping[str, pa.DataType], text: bytes | None = None) -> _Opened:
    """The columns of a file and its batches, or of a text in its format."""
    if source.format == "parquet":
        file = pq.ParquetFile(_raw(source))
        # One by one, because Arrow fetches everything of one request at once.
        groups = range(file.num_row_groups)
        batches = (b for g in groups for b in file.iter_batches(row_groups=[g]))
        return _cast(file.schema_arrow, batches, source.casts)
    try:
        open_text = _open_csv if source.format == "csv" else _open_json
        return open_text(source, types, text)
    except pa.ArrowInvalid as error:
        # Programs that write files in parallel write empty ones too: no columns, no rows.
        if str(error).startswith(_EMPTY):
            return pa.schema([]), iter(())
        raise


def _cast(
    schema: pa.Schema, batches: Iterator[pa.RecordBatch], types: Mapping[str, pa.DataType]
) -> _Opened:
    """Batches with some columns in other types."""
    if not any(f.name in types and f.type != types[f.name] for f in schema):
        return schema, batches
    cast_schema = pa.schema([f.with_type(types.get(f.name, f.type)) for f in schema])
    return cast_schema, (
        pa.RecordBatch.from_arrays(
            [c.cast(f.type) for c, f in zip(b.columns, cast_schema, strict=True)],
            schema=cast_schema,
        )
        for b in batches
    )


def _raw(source: Source) -> Any:
    if source.store is None:
        return pa.OSFile(source.path if source.spooled is None else source.spooled.name, "rb")
    return pa.PythonFile(StoredFile(source.store, source.key), "r")


def _stream(source: Source, text: bytes | None = None) -> Any:
    if text is not None:
        # In Arrow's memory: a thread of its reader may release the text last, and a thread that
        # asks for Python's lock while the program ends aborts it.
        memory = pa.BufferOutputStream()
        memory.write(text)
        return pa.BufferReader(memory.getvalue())
    return pa.CompressedInputStream(_raw(source), source.codec) if source.codec else _raw(source)


def _open_csv(source: Source, types: Mapping[str, pa.DataType], text: bytes | None) -> _Opened:
    flat = {n: t for n, t in types.items() if not pa.types.is_nested(t)}
    nulls = [n for n in pyarrow.csv.ConvertOptions().null_values or () if "nan" not in n.lower()]
    reader = _csv_reader(source, text, column_types=flat, null_values=nulls)
    schema = reader.schema
    for column in schema:
        if pa.types.is_binary(column.type) and column.name not in types:
            raise SourceFileError(source.path, f"'{column.name}' {_NO_TEXT}")
    texts = {f.name: f.type for f in schema if pa.types.is_string(f.type) or
             pa.types.is_binary(f.type)}  # fmt: skip

    def batches() -> Iterator[pa.RecordBatch]:
        # What is null depends on the type: NA is a text, not a number. Arrow has one list for all
        # columns, so texts are read by themselves; both readers cut the file at the same places.
        text_reader = _csv_reader(source, text, column_types=texts, include_columns=list(texts),
                             null_values=[""], strings_can_be_null=True,
                             quoted_strings_can_be_null=False)  # fmt: skip
        last: Any = None
        for batch, words in zip(reader, text_reader, strict=True):
            if words.num_rows and schema.names[-1] in texts:
                last = words.column(schema.names[-1])[-1].as_buffer()
            columns = [words.column(f.name) if f.name in texts else c
                       for f, c in zip(schema, batch.columns, strict=True)]  # fmt: skip
            yield pa.RecordBatch.from_arrays(columns, schema=schema)
        # Arrow takes all lines after a quote that is never closed for its value.
        if text is None and last is not None and b"\n" in last.to_pybytes():
            lines = io.BufferedReader(_stream(source), 1 << 20)
            if (line := open_quote(lines, source.delimiter.encode())) is not None:
                raise SourceFileError(source.path, f"line {line}: {OPEN_QUOTE}; {_SKIP}")

    return schema, batches() if texts else iter(reader)


def _csv_reader(source: Source, text: bytes | None, **convert: Any) -> Any:
    return pyarrow.csv.open_csv(
        _stream(source, text),
        read_options=pyarrow.csv.ReadOptions(block_size=INFER_BYTES),
        parse_options=pyarrow.csv.ParseOptions(delimiter=source.delimiter, newlines_in_values=True),
        convert_options=pyarrow.csv.ConvertOptions(**convert),
    )


def _open_json(source: Source, types: Mapping[str, pa.DataType], text: bytes | None) -> _Opened:
    # Arrow reads dates from numbers only; files have them as text. Of times it would not notice
    # that they name no zone.
    cast = {n for n, t in types.items() if pa.types.is_date(t) or getattr(t, "tz", None)}
    # A number is a text only by a cast of all values.
    loose = {n for n, t in source.casts.items() if pa.types.is_string(t)}
    cast_fields = [pa.field(n, pa.string() if n in cast else t)
             for n, t in types.items() if n not in loose]  # fmt: skip
    reader: Any = pyarrow.json.open_json(
        _without_null_lines(source, text),
        read_options=pyarrow.json.ReadOptions(block_size=INFER_BYTES),
        parse_options=pyarrow.json.ParseOptions(
            explicit_schema=pa.schema(cast_fields) if cast_fields else None
        ),
    )
    schema = pa.schema([f.with_type(types[f.name]) if f.name in cast else f
                        for f in reader.schema])  # fmt: skip

    def batches() -> Iterator[pa.RecordBatch]:
        for batch in reader:
            columns = [c.cast(f.type) if f.name in cast else c
                       for c, f in zip(batch.columns, schema, strict=True)]  # fmt: skip
            yield pa.RecordBatch.from_arrays(columns, schema=schema)

    return _cast(schema, batches(), {name: pa.string() for name in loose})


def _without_null_lines(source: Source, text: bytes | None) -> Any:
    """A text of JSON; a line that is `null` is an error, because Arrow crashes on it."""
    if text is None:
        return pa.PythonFile(_NullLines(_stream(source)), "r")
    _refuse_null_lines(_START + text.removeprefix(codecs.BOM_UTF8))
    return _stream(source, text)


class _NullLines(io.RawIOBase):
    """Raises an error at a line that is `null`."""

    def __init__(self, stream: Any) -> None:
        super().__init__()
        self._stream = stream
        self._before = _START

    def readable(self) -> bool:
        return True

    def read(self, size: int | None = -1) -> bytes:
        piece: bytes = self._stream.read(size)
        text = self._before + piece.removeprefix(codecs.BOM_UTF8)
        _refuse_null_lines(text)
        self._before = text[-_KEPT:]  # a line may go on in the next piece
        return piece


_START = b"}\n"
"""What is before a text: the end of an object, to which a `null` does not belong."""
_KEPT = 4096
_NULL = re.compile(rb"\n\s*null")


def _refuse_null_lines(text: bytes) -> None:
    for found in _NULL.finditer(text):
        at = found.start() - 1
        while at >= 0 and text[at : at + 1].isspace():
            at -= 1
        # An object may have several lines; a value in it is after one of these.
        if at >= 0 and text[at : at + 1] not in (b",", b":", b"["):
            raise pa.ArrowInvalid(NO_OBJECT)


# --- lines that cannot be read -------------------------------------------------------------------


def _records(source: Source) -> tuple[bytes, Iterator[Record]]:
    """The header of a text file, which JSON lines do not have, and its records."""
    stream = io.BufferedReader(_stream(source), 1 << 20)
    if stream.peek(len(codecs.BOM_UTF8)).startswith(codecs.BOM_UTF8):
        stream.read(len(codecs.BOM_UTF8))
    lines = iter(stream)
    if source.format != "csv":
        return b"", records(lines, None)
    delimiter = source.delimiter.encode()
    following = records(lines, delimiter)
    header = next((record for record in following if record.text.strip()), None)
    if header is None:
        return b"", iter(())
    return header.text.rstrip(b"\r\n") + b"\n", following


def _sound_schema(source: Source, types: Mapping[str, pa.DataType]) -> pa.Schema:
    """The columns of a file by the lines at its beginning that can be read."""
    if source.format == "parquet":
        return _open(source, types)[0]
    header, following = _records(source)
    piece = next(pieces(following, size=INFER_BYTES), [])
    if source.format == "csv":
        names = _open(source, {}, header)[0].names
        texts = dict.fromkeys(names, pa.string())

        def parse(text: bytes) -> bytes:
            for _ in _open(source, texts, header + text)[1]:
                pass
            return text

        sound = b"".join(salvaged(piece, parse, lambda *_: None))
        # Arrow converts the first values when it opens a file; those of a known type may be wrong.
        flat = {n: t for n, t in types.items() if not pa.types.is_nested(t)}
        found_types = _open(source, {}, header + sound)[0]
        return pa.schema([f.with_type(flat.get(f.name, f.type)) for f in found_types])
    return _first_types(source, types, [r for r in piece if _is_object(r.text)])


def _first_types(
    source: Source, types: Mapping[str, pa.DataType], piece: Sequence[Record]
) -> pa.Schema:
    """Types of JSON lines; of values that differ, the earlier ones decide."""
    try:
        return _open(source, types, b"".join(record.text for record in piece))[0]
    except pa.ArrowException:
        if len(piece) < 2:
            return pa.schema([])
    middle = len(piece) // 2
    halves = [_first_types(source, types, half) for half in (piece[:middle], piece[middle:])]
    try:
        return pa.unify_schemas(halves, promote_options="permissive")
    except (pa.ArrowInvalid, pa.ArrowTypeError):
        more = [field for field in halves[1] if field.name not in halves[0].names]
        return pa.schema([*halves[0], *more])


def _is_object(line: bytes) -> bool:
    try:
        return isinstance(orjson.loads(line), dict)
    except orjson.JSONDecodeError:
        return False


def _salvaged_batches(
    source: Source, schema: pa.Schema, rejects: Rejects
) -> Iterator[pa.RecordBatch]:
    types = {f.name: f.type for f in schema}
    header, following = _records(source)

    def parse(text: bytes) -> list[pa.RecordBatch]:
        return [_fitted(b, source, schema) for b in _open(source, types, header + text)[1]]

    def reject(record: Record, reason: str) -> None:
        rejects.add(Reject(source.path, record.line, reason, shown_text(record)))

    for piece in pieces(following):
        for batches in salvaged(piece, parse, reject):
            yield from batches


def _first_reject(source: Source, types: Mapping[str, pa.DataType]) -> Reject | None:
    """The first line of a file that cannot be read."""
    rejects = Rejects()
    with contextlib.suppress(pa.ArrowException, UnicodeError, IndexTablesError, OSError):
        columns = _sound_schema(source, types)
        folders = [pa.field(n, _value_type(source.partition, n, types))
                   for n in source.partition if n not in columns.names]  # fmt: skip
        schema = normalize(pa.schema([_storable(f, types) for f in [*columns, *folders]]))
        for _ in _salvaged_batches(source, schema, rejects):
            if rejects.first is not None:
                break
    return rejects.first


def _unreadable(source: Source, first: Reject) -> SourceFileError:
    return SourceFileError(
        source.path, f"no line of it can be read; line {first.line}: {first.reason}"
    )


@contextlib.contextmanager
def _unchanged(source: Source) -> Iterator[None]:
    """Refuses a file in a store that was replaced meanwhile: its parts are read one by one."""
    before = None if source.store is None else source.store.head(source.key)
    yield
    if source.store is not None and source.store.head(source.key) != before:
        raise SourceFileError(source.path, "it was replaced while it was read; import it again")


@contextlib.contextmanager
def _explained(source: Source, types: Mapping[str, pa.DataType] | None = None) -> Iterator[None]:
    """Turns errors of a reader into a sentence that names the file."""
    try:
        yield
    except IndexTablesError:
        raise
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno else " ".join(str(error).split())
        raise SourceFileError(source.path, reason) from None
    except (pa.ArrowException, UnicodeError) as error:
        reason = _reason(" ".join(str(error).split()))
        if source.format != "parquet" and types is not None and _ARRAY not in reason:
            first = _first_reject(source, types)
            if first is not None:
                reason = f"line {first.line}: {_reason(first.reason)}; {_SKIP}"
        raise SourceFileError(source.path, reason) from None


_SKIP = "--on-error skip leaves such lines out"
_TYPE = "--type COLUMN=TYPE names a column's type"
_ARRAY = "it is one JSON array"


def _reason(message: str) -> str:
    """The message of a reader, and a remedy.

    >>> _reason("JSON parse error: Column(/a) changed from string to number in row 1")[-48:]
    '; a column has values of one kind, in every line'
    """
    if "Column() changed from object to array in row 0" in message:
        return f"{_ARRAY}; write an object on each line, as `jq -c '.[]'` does"
    if "changed from" in message:
        return f"{message}; a column has values of one kind, in every line"
    if "UTF8" in message:
        return f"{message}: a column {_NO_TEXT}"
    if "expected a zone offset" in message:
        problem = message.partition(". If these")[0]
        return f"{problem}; write 2024-01-31T12:00:00Z, or let the column be timestamp_ntz"
    if "conversion error" in message or message.startswith("column "):
        return f"{message}; {_TYPE}"
    return message.rstrip(".")


# --- files in a store ----------------------------------------------------------------------------


_PIECE = 1 << 20


class StoredFile(io.RawIOBase):
    """Reads ranges as they are asked for, small ones a piece at a time; keeps one piece."""

    def __init__(self, store: Store, path: str) -> None:
        super().__init__()
        self._store = store
        self._path = path
        self._size = store.head(path).size
        self._at = 0
        self._piece = b""
        self._piece_start = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence]
        self._at = max(0, base + offset)
        return self._at

    def tell(self) -> int:
        return self._at

    def read(self, size: int | None = -1) -> bytes:
        end = self._size if size is None or size < 0 else min(self._at + size, self._size)
        data = self._bytes(self._at, end) if end > self._at else b""
        self._at += len(data)
        return data

    def _bytes(self, start: int, end: int) -> bytes:
        if end - start >= _PIECE:
            return self._store.get_range(self._path, start, end)
        if not self._piece_start <= start <= end <= self._piece_start + len(self._piece):
            # A footer is read from the end of a file, everything else forwards.
            first = max(0, min(start, self._size - _PIECE))
            self._piece = self._store.get_range(self._path, first, min(first + _PIECE, self._size))
            self._piece_start = first
        return self._piece[start - self._piece_start : end - self._piece_start]
