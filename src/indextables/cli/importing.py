"""Creating a table and filling it from files, with types of columns as Spark names them."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
from sqlglot import exp, parse_one
from sqlglot.errors import SqlglotError

from indextables.cli.output import note
from indextables.cli.settings import Format, Settings
from indextables.cli.source_files import OpenFolder, Rejects, Source, find_sources
from indextables.cli.sources import read, rows_in, schema_of
from indextables.config import TYPE_MAP, Config
from indextables.errors import NotATableError, SchemaError, SourceFileError
from indextables.jobs import write_job
from indextables.jobs.commit_write import Written
from indextables.jobs.progress import expecting
from indextables.log.transaction_log import TransactionLog
from indextables.schema import TIMESTAMP, TIMESTAMP_NTZ
from indextables.storage import Store, open_store
from indextables.storage.location import parse_location
from indextables.table import Table


def create_table(
    settings: Settings,
    uri: str,
    columns: Sequence[tuple[str, str]],
    *,
    like: str | None,
    partition_by: Sequence[str],
    mapping: Mapping[str, str],
    properties: Mapping[str, str],
    name: str | None,
    description: str | None,
) -> Table:
    """An empty table with these columns, after those of a file."""
    _check_place(uri)
    files = [] if like is None else find_sources([like], open_folder=_opener(settings, uri))
    fields = list(schema_of(files, {})) if files else []
    fields += [pa.field(column, column_type(type_text)) for column, type_text in columns]
    if not fields:
        raise SchemaError("A table needs columns: write name:type …, or --like FILE.")
    settings = _of_table(settings, uri, files)
    return Table.create(
        uri,
        pa.schema(fields),
        partition_by=partition_by,
        mapping=mapping,
        properties=properties,
        name=name,
        description=description,
        config=settings.config,
        storage_options=settings.storage_options,
    )


def import_files(
    settings: Settings,
    uri: str,
    patterns: Sequence[str],
    *,
    file_format: Format | None,
    delimiter: str | None,
    types: Mapping[str, str],
    partition_by: Sequence[str],
    mapping: Mapping[str, str],
    overwrite: bool,
    merge_schema: bool,
    skip: bool,
    rejects_file: str | None,
) -> dict[str, Any]:
    """Write the rows of files to a table, in one commit; what was done.

    `skip` leaves out lines that cannot be read, and writes them to a file of their own.
    """
    _check_place(uri)
    sources = find_sources(
        patterns, file_format=file_format, delimiter=delimiter, open_folder=_opener(settings, uri)
    )
    settings = _of_table(settings, uri, sources)
    casts = {name: column_type(text) for name, text in types.items()}
    sources = [replace(source, casts=casts) for source in sources]
    total = rows_in(sources) if sys.stderr.isatty() else None
    rejects = Rejects(rejects_file) if skip else None

    def rows_of(types: Mapping[str, pa.DataType], partitions: Sequence[str]) -> Any:
        schema = schema_of(sources, types, skip=rejects is not None)
        return _watched(read(sources, schema, rejects=rejects), partitions)

    closing = contextlib.closing(rejects) if rejects else contextlib.nullcontext()
    with closing, expecting(total):
        try:
            table = settings.open(uri)
        except NotATableError:
            rows = rows_of(casts, partition_by)
            written = _create(settings, uri, rows, partition_by=partition_by, mapping=mapping)
            table = settings.open(uri)
        else:
            if partition_by or mapping:
                raise SchemaError(
                    f"'{table.uri}' is there already, with its own partitions and mapping. Leave "
                    "--partition-by and --map out."
                )
            rows = rows_of(
                {**{f.name: f.type for f in table.schema}, **casts}, table.partition_columns
            )
            write = table.overwrite if overwrite else table.append
            written = write(rows, merge_schema=merge_schema)
    done = {"table": table.uri, "files": len(sources), **asdict(written)}
    return done if rejects is None else {**done, "rejected": rejects.count}


MANY_PARTITIONS = 200
"""From how many partitions on an import warns of them."""


def _watched(rows: pa.RecordBatchReader, partition_by: Sequence[str]) -> pa.RecordBatchReader:
    """The rows; a note while they are read if they are going to make very many partitions."""
    names = [name for name in partition_by if name in rows.schema.names]
    if not names:
        return rows

    def batches() -> Iterator[pa.RecordBatch]:
        seen: set[tuple[Any, ...]] | None = set()
        for batch in rows:
            if seen is not None:
                values = pa.Table.from_batches([batch]).select(names).group_by(names).aggregate([])
                seen.update(zip(*(column.to_pylist() for column in values.columns), strict=True))
                if len(seen) > MANY_PARTITIONS:
                    seen = None
                    note(
                        f"Partitioned by {', '.join(names)}, these rows make more than "
                        f"{MANY_PARTITIONS} partitions. Each has splits of its own, and searches "
                        "open every one. Choose a coarser column, or none: the index finds "
                        "values without partitions. Ctrl-C stops; nothing is written until the "
                        "end."
                    )
            yield batch

    return pa.RecordBatchReader.from_batches(rows.schema, batches())


def _check_place(table: str) -> None:
    """A table cannot be where a file is; probably the arguments were swapped."""
    place = parse_location(table)
    if place.scheme == "file" and Path(place.uri).is_file():
        raise SourceFileError(
            table, "it is a file, and a table is a folder; name the table first, then its files"
        )


def _opener(settings: Settings, table: str) -> OpenFolder:
    """Opens folders of files beside a table.

    Storage options are the table's. Files have the same ones in a store of the same kind, and all
    of them if the table is local and takes none; other stores are left to the environment.
    """
    home = parse_location(table).scheme

    def open_folder(uri: str) -> Store:
        shared = home in ("file", parse_location(uri).scheme)
        return open_store(uri, settings.storage_options if shared else None)

    return open_folder


def _of_table(settings: Settings, table: str, sources: Sequence[Source]) -> Settings:
    """The settings of the table itself: options were for the files if only those are in a store."""
    if parse_location(table).scheme == "file" and any(source.store for source in sources):
        return replace(settings, storage_options={})
    return settings


def _create(
    settings: Settings,
    uri: str,
    rows: pa.RecordBatchReader,
    *,
    partition_by: Sequence[str],
    mapping: Mapping[str, str],
) -> Written:
    """A missing table and its rows are one commit, so a file that cannot be read leaves nothing."""
    log = TransactionLog(open_store(uri, settings.storage_options), config=Config(settings.config))
    return write_job.create_table(
        log,
        None,
        rows,
        settings=Config(TYPE_MAP.entries(mapping), settings.config),
        partition_by=partition_by,
        properties={},
    )


# --- types of columns ----------------------------------------------------------------------------


_SIMPLE: dict[str, pa.DataType] = {
    "TINYINT": pa.int8(),
    "SMALLINT": pa.int16(),
    "INT": pa.int32(),
    "BIGINT": pa.int64(),
    "FLOAT": pa.float32(),
    "DOUBLE": pa.float64(),
    "TEXT": pa.string(),
    "VARCHAR": pa.string(),
    "BINARY": pa.binary(),
    "VARBINARY": pa.binary(),
    "BOOLEAN": pa.bool_(),
    "DATE": pa.date32(),
    "TIMESTAMPTZ": TIMESTAMP,
    "TIMESTAMP": TIMESTAMP,
    "TIMESTAMPNTZ": TIMESTAMP_NTZ,
    "TIMESTAMPLTZ": TIMESTAMP,
}
_KNOWN = (
    "string, boolean, byte, short, int, long, float, double, decimal(p,s), date, timestamp, "
    "timestamp_ntz, binary, array<…>, map<…,…>, struct<name:…>"
)


def column_type(text: str) -> pa.DataType:
    """The Arrow type for a Spark type's name.

    >>> column_type("bigint"), column_type("array<string>")
    (DataType(int64), ListType(list<element: string>))
    """
    try:
        parsed = parse_one(text, into=exp.DataType, dialect="spark")
    except SqlglotError:
        raise _unknown(text) from None
    data_type: pa.DataType = _arrow(parsed, text)
    return data_type


def _arrow(node: Any, text: str) -> Any:
    if not isinstance(node, exp.DataType):
        raise _unknown(text)
    name = getattr(node.this, "value", str(node.this))
    inner = node.expressions
    if name in _SIMPLE:
        return _SIMPLE[name]
    if name == "DECIMAL":
        try:
            digits = [int(p.name) for p in inner]
            return pa.decimal128(digits[0] if digits else 10, digits[1] if len(digits) > 1 else 0)
        except ValueError:
            raise SchemaError(f"'{text}' is not a type: decimals have 1 to 38 digits.") from None
    if name == "ARRAY" and len(inner) == 1:
        return pa.list_(pa.field("element", _arrow(inner[0], text)))
    if name == "MAP" and len(inner) == 2:
        return pa.map_(_arrow(inner[0], text), _arrow(inner[1], text))
    if name == "STRUCT" and inner:
        return pa.struct([pa.field(f.name, _arrow(f.args.get("kind"), text)) for f in inner])
    raise _unknown(text)


def _unknown(text: str) -> SchemaError:
    return SchemaError(f"'{text}' is not a type of a column. Types: {_KNOWN}.")
