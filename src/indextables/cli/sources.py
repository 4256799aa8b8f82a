"""Files that rows are imported from: Parquet, CSV and JSON lines, compressed or not.

A pattern is a file, a folder or a glob. Folders are searched to the bottom; names that begin with
`_` or `.` are passed over, and `key=value` folders below the pattern become columns, as Hive and
Spark write them. Types of CSV and JSON are inferred from the first `INFER_BYTES` of each file.
Nothing is held in memory but a few batches.
"""

from __future__ import annotations

import contextlib
import glob
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.csv
import pyarrow.json
import pyarrow.parquet as pq

from indextables.cli.options import Format
from indextables.errors import SourceFileError
from indextables.schema import conform, normalize

INFER_BYTES = 16 << 20

_SUFFIXES: dict[str, Format] = {
    ".parquet": "parquet", ".pq": "parquet",
    ".csv": "csv", ".tsv": "csv",
    ".jsonl": "jsonl", ".ndjson": "jsonl", ".json": "jsonl",
}  # fmt: skip
_CODECS: dict[str, Any] = {".gz": "gzip", ".bz2": "bz2", ".zst": "zstd", ".lz4": "lz4"}
_NO_PARTITION = "__HIVE_DEFAULT_PARTITION__"


@dataclass(frozen=True, slots=True)
class Source:
    """One file, and the partition that its folders name."""

    path: str
    format: Format
    codec: Any = None
    delimiter: str = ","
    partition: Mapping[str, str | None] = field(default_factory=dict)


def find_sources(
    patterns: Sequence[str], *, kind: Format | None = None, delimiter: str | None = None
) -> list[Source]:
    """The files that the patterns name, in their order, each once."""
    found: dict[str, Source] = {}
    for pattern in patterns:
        root, paths = _expand(pattern)
        chosen = [
            source
            for path in paths
            if (source := _source(path, root, kind=kind, delimiter=delimiter)) is not None
        ]
        if not chosen:
            raise SourceFileError(
                pattern,
                "there is no such file, or none of a known kind (.parquet, .csv, .tsv, .jsonl, "
                ".ndjson, .json, also .gz, .bz2, .zst or .lz4 of the last ones); --format names "
                "the kind of others",
            )
        for source in chosen:
            found.setdefault(os.path.realpath(source.path), source)
    return list(found.values())


def _expand(pattern: str) -> tuple[Path, list[str]]:
    """The folder below which folders are partitions, and the files."""
    path = Path(pattern)
    if path.is_file():
        return path.parent, [pattern]
    if path.is_dir():
        return path, _files_below(path)
    if not glob.has_magic(pattern):
        return path, []
    fixed = []
    for part in path.parts:
        if glob.has_magic(part):
            break
        fixed.append(part)
    files: list[str] = []
    for match in sorted(glob.glob(pattern, recursive=True)):  # noqa: PTH207 - absolute patterns
        files += _files_below(Path(match)) if Path(match).is_dir() else [match]
    return Path(*fixed), list(dict.fromkeys(files))


def _files_below(folder: Path) -> list[str]:
    return [
        str(path)
        for path in sorted(folder.rglob("*"))
        if path.is_file()
        and not any(part.startswith(("_", ".")) for part in path.relative_to(folder).parts)
        and _kind(path)[0] is not None
    ]


def _kind(path: Path) -> tuple[Format | None, Any]:
    codec = _CODECS.get(path.suffix.lower())
    name = path.with_suffix("") if codec else path
    return _SUFFIXES.get(name.suffix.lower()), codec


def _source(path: str, root: Path, *, kind: Format | None, delimiter: str | None) -> Source | None:
    guessed, codec = _kind(Path(path))
    chosen = kind or guessed
    if chosen is None:
        return None
    tabs = ".tsv" in [suffix.lower() for suffix in Path(path).suffixes]
    return Source(
        path,
        chosen,
        codec=codec,
        delimiter=delimiter or ("\t" if tabs else ","),
        partition=_partition(Path(path).relative_to(root)),
    )


def _partition(relative: Path) -> dict[str, str | None]:
    values: dict[str, str | None] = {}
    for folder in relative.parts[:-1]:
        key, separator, value = folder.partition("=")
        if separator and key:
            values[unquote(key)] = None if value == _NO_PARTITION else unquote(value)
    return values


# --- reading ---------------------------------------------------------------------------------


def schema_of(sources: Sequence[Source], types: Mapping[str, pa.DataType]) -> pa.Schema:
    """The columns of all files together; `types` decides where it names a column.

    A column that is null as far as anybody looked is a text.
    """
    schemas = []
    for source in sources:
        with _explained(source):
            found = _open(source, types)[0]
            folders = [name for name in source.partition if name not in found.names]
            values = [pa.field(n, _value_type(source.partition, n, types)) for n in folders]
            schemas.append(pa.schema([*found, *values]).remove_metadata())
    try:
        together = pa.unify_schemas(schemas, promote_options="permissive")
    except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
        raise SourceFileError(
            sources[0].path,
            f"its columns and those of the other files have different types ({error}); name a type "
            "with --type COLUMN=TYPE, or import the files one by one",
        ) from None
    return normalize(pa.schema([_storable(f, types) for f in together]))


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


def read(sources: Sequence[Source], schema: pa.Schema) -> pa.RecordBatchReader:
    """The rows of all files as one stream in one schema."""
    return pa.RecordBatchReader.from_batches(schema, _batches(sources, schema))


def _batches(sources: Sequence[Source], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    types = {f.name: f.type for f in schema}
    for source in sources:
        with _explained(source):
            for batch in _open(source, types)[1]:
                yield conform(_with_partition(batch, source, schema), schema)


def _with_partition(batch: pa.RecordBatch, source: Source, schema: pa.Schema) -> pa.RecordBatch:
    for name, value in source.partition.items():
        if name not in batch.schema.names:
            kind = schema.field(name).type
            values = pa.repeat(pa.scalar(value, pa.string()), batch.num_rows).cast(kind)
            batch = batch.append_column(name, values)
    return batch


_Opened = tuple[pa.Schema, Iterator[pa.RecordBatch]]


def _open(source: Source, types: Mapping[str, pa.DataType]) -> _Opened:
    """The columns of a file and its batches."""
    if source.format == "parquet":
        file = pq.ParquetFile(source.path)
        return file.schema_arrow, file.iter_batches()
    raw = pa.OSFile(source.path, "rb")
    stream: Any = pa.CompressedInputStream(raw, source.codec) if source.codec else raw
    return _open_csv(stream, source, types) if source.format == "csv" else _open_json(stream, types)


def _open_csv(stream: Any, source: Source, types: Mapping[str, pa.DataType]) -> _Opened:
    reader: Any = pyarrow.csv.open_csv(
        stream,
        read_options=pyarrow.csv.ReadOptions(block_size=INFER_BYTES),
        parse_options=pyarrow.csv.ParseOptions(delimiter=source.delimiter, newlines_in_values=True),
        convert_options=pyarrow.csv.ConvertOptions(
            column_types={n: t for n, t in types.items() if not pa.types.is_nested(t)}
        ),
    )
    return reader.schema, iter(reader)


def _open_json(stream: Any, types: Mapping[str, pa.DataType]) -> _Opened:
    # Arrow reads dates from numbers only; files have them as text.
    dates = {name for name, kind in types.items() if pa.types.is_date(kind)}
    known = [pa.field(n, pa.string() if n in dates else t) for n, t in types.items()]
    reader: Any = pyarrow.json.open_json(
        stream,
        read_options=pyarrow.json.ReadOptions(block_size=INFER_BYTES),
        parse_options=pyarrow.json.ParseOptions(
            explicit_schema=pa.schema(known) if known else None
        ),
    )
    schema = pa.schema([f.with_type(types[f.name]) if f.name in dates else f
                        for f in reader.schema])  # fmt: skip

    def batches() -> Iterator[pa.RecordBatch]:
        for batch in reader:
            columns = [c.cast(f.type) if f.name in dates else c
                       for c, f in zip(batch.columns, schema, strict=True)]  # fmt: skip
            yield pa.RecordBatch.from_arrays(columns, schema=schema)

    return schema, batches()


@contextlib.contextmanager
def _explained(source: Source) -> Iterator[None]:
    """Turns what a reader says about a file into a sentence that names it."""
    try:
        yield
    except (pa.ArrowException, OSError, UnicodeError) as error:
        hint = "; --type COLUMN=TYPE names a column's type" if source.format != "parquet" else ""
        raise SourceFileError(source.path, " ".join(str(error).split()) + hint) from None
