"""External files: one spelling for the path of each, and reading them with Spark.

A file is known by its canonical path: a local one is absolute and literal (`/data/a b#1.csv`), one
in an object store is the URI with the literal key. Spark reports files as percent-encoded URIs;
`from_spark` takes them back. Nothing that is stored is ever percent-encoded. What is registered is
a file, a folder or a pattern (`*`, `?`, `[a-z]`, `{a,b}`, a segment at a time, as in Hadoop).
`expand` asks the stores which files that means now. A name with the characters of a pattern that
exists as a file is that file.

Builds and joins read through this module, with the stored schema, format and options, so a value in
the index is exactly the value that a query reads.

`check_values` refuses declarations about values for which that is not certain: random ones, those
that depend on when or by whom a query runs or on another table, those made of several rows, and
what Spark could not parse. Spark puts malformed lines into a column of the schema, but only those
that are malformed in the columns that it parses; an index parses its own column, a query others.
Values of a text with a collation are refused too: an index compares texts by their bytes.
"""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc

from indextables.ariadne.declarations import (
    Computed,
    Declaration,
    Exploded,
    Temporal,
    Text,
    Types,
    needed_columns,
    not_comparable,
)
from indextables.ariadne.metadata import Metadata
from indextables.ariadne.store.place import IndexPlace
from indextables.errors import (
    AriadneArgumentError,
    ObjectNotFoundError,
    SchemaError,
    SchemaParseError,
    StorageError,
    first_line,
)
from indextables.predicate.literals import quoted_name
from indextables.schema import from_json
from indextables.spark.bridge.sessions import is_classic
from indextables.storage import ObjectMeta, Store, canonical_uri
from indextables.storage.location import parse_location

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import StructType


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


FORMATS = ("parquet", "csv", "json")
FILE = "__file"
_GLOB_CHARACTERS = re.compile(r"[{}\[\]*?\\]")

# A file that Spark cannot read has to be an error: silently left out, it would look empty.
FIXED_OPTIONS = {"ignoreCorruptFiles": "false", "ignoreMissingFiles": "false"}


def spark_schema(metadata: Metadata, *, name: str) -> StructType:
    """The stored schema as Spark's. `SchemaParseError` if it is not one."""
    from pyspark.sql.types import StructType

    try:
        document = json.loads(metadata.schema)
        if not isinstance(document, dict) or document.get("type") != "struct":
            raise SchemaParseError(name, "it is not a struct.")
        return StructType.fromJson(document)
    except SchemaParseError:
        raise
    except Exception as error:
        raise SchemaParseError(name, f"{error}.") from None


def arrow_schema(metadata: Metadata, *, name: str) -> pa.Schema:
    """The stored schema as Arrow's, with the types that index tables have.

    A column of a type that no table can store (an interval, a variant) is left out: its files can
    be read, but it cannot carry an index.
    """
    from pyspark.sql.types import StructType

    fields: list[Any] = []
    for column in spark_schema(metadata, name=name).fields:
        with contextlib.suppress(SchemaError):
            fields += from_json(StructType([column]).json())
    return pa.schema(fields)


def read_files(
    spark: SparkSession, metadata: Metadata, files: Sequence[str], *, name: str
) -> DataFrame:
    """The rows of some files, by their canonical paths. Without files there are no rows."""
    schema = spark_schema(metadata, name=name)
    if not files:
        return spark.createDataFrame([], schema)
    reader = spark.read.format(metadata.format).schema(schema)
    reader = reader.options(**{**metadata.read_options, **FIXED_OPTIONS})
    # Canonical paths are literal. Spark's option against patterns reads every other path twice.
    return reader.load([_GLOB_CHARACTERS.sub(r"\\\g<0>", for_spark(file)) for file in files])


def keeping_rows(metadata: Metadata) -> Metadata:
    """The metadata with options under which Spark drops no row.

    Spark drops a row for a malformed value only if it reads that column. A query may read fewer
    columns than an index has, and then returns rows that a build would miss.
    """
    options = {
        name: "PERMISSIVE" if name.lower() == "mode" and value.upper() == "DROPMALFORMED" else value
        for name, value in metadata.read_options.items()
    }
    return replace(metadata, read_options=options)


def value_columns(df: DataFrame, declaration: Declaration) -> list[Column]:
    """What a declaration reads from a row: its value, and its time if it is temporal."""
    from pyspark.sql import functions as f

    match declaration:
        case Computed():
            return [f.expr(declaration.expression)]
        case Exploded():
            value = df[quoted_name(declaration.array_column)]
            for part in declaration.field_path.split("."):
                value = value.getField(part)
            return [value]
        case Temporal():
            time = declaration.timestamp_column
            path = [time] if time in df.columns else time.split(".")
            value = df[quoted_name(path[0])]
            for part in path[1:]:
                value = value.getField(part)
            return [df[quoted_name(declaration.column)], value]
        case _:
            return [df[quoted_name(declaration.column)]]


def file_path(df: DataFrame) -> Column:
    """The path of the file that a row is from, as Spark spells it."""
    return df.metadataColumn("_metadata").getField("file_path")


def file_size(df: DataFrame, *, whole: bool) -> Column:
    """The size of the file that a row is from. A number costs much less than a path.

    `whole` files, which one task reads from end to end, have it without a struct a row. If one is
    split all the same, it is -1.
    """
    from pyspark.sql import functions as f

    if not whole:
        return df.metadataColumn("_metadata").getField("file_size")
    return f.when(f.input_file_block_start() == 0, f.input_file_block_length()).otherwise(-1)


def projected(df: DataFrame, declarations: Sequence[Declaration], *, file: Column) -> DataFrame:
    """The file of each row, and what the declarations read, under internal names."""
    columns = [file.alias(FILE)]
    for number, declaration in enumerate(declarations):
        value, *time = value_columns(df, declaration)
        columns.append(value.alias(f"c{number}"))
        columns += [column.alias(f"t{number}") for column in time]
    return df.select(*columns)


def computed_types(
    spark: SparkSession, metadata: Metadata, declarations: Sequence[Declaration], *, name: str
) -> Types:
    """The types of computed index columns, from Spark's analysis; nothing is run.

    `AriadneArgumentError` names every expression that cannot be analysed or has no index type.
    """
    from pyspark.errors import AnalysisException, ParseException
    from pyspark.sql import functions as f

    computed = [d for d in declarations if isinstance(d, Computed)]
    if not computed:
        return {}
    df = read_files(spark, metadata, [], name=name)
    types: dict[str, Any] = {}
    problems = []
    for d in computed:
        try:
            schema = df.select(f.expr(d.expression).alias("value")).schema
            data_type = from_json(schema.json()).field("value").type
        except (AnalysisException, ParseException) as error:
            problems.append(f"{d.expression!r} is not a valid expression: {first_line(error)}")
            continue
        except SchemaError as error:
            problems.append(f"{d.expression!r}: {error}")
            continue
        if reason := not_comparable(data_type):
            problems.append(f"{d.expression!r}: {reason}")
        types[d.name] = data_type
    if problems:
        names = ", ".join(f"'{d.name}'" for d in computed)
        raise AriadneArgumentError(f"Cannot add the computed index {names}", problems)
    return types


_QUOTED = re.compile(r"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|`(?:[^`]|``)*`""", re.DOTALL)
_CURRENT = re.compile(
    r"\b(?:(?:now|curdate|current_\w+|localtimestamp|session_user|user)\s*\("
    r"|unix_timestamp\s*\(\s*\)"
    r"|(current_(?:date|time|timestamp|user)|localtimestamp|session_user)\b)",
    re.IGNORECASE,
)
"""Functions of the current time or user; those of the group are also called without brackets."""


def check_values(place: IndexPlace, metadata: Metadata, new: Declaration) -> None:
    """Refuse a declaration about values that may differ between queries, or have a collation."""
    rows = read_files(place.context.spark, metadata, [], name=place.name)
    wrong = [
        *_not_of_a_row(rows, new),
        *_not_repeatable(rows, new),
        *_malformed(place, metadata, new),
        *_collated(rows, new),
    ]
    if wrong:
        raise AriadneArgumentError(f"Cannot add the {new.kind} index '{new.name}'", wrong)


def _not_of_a_row(rows: DataFrame, new: Declaration) -> Iterator[str]:
    from pyspark.errors import AnalysisException
    from pyspark.sql import functions as f

    from indextables.spark.bridge.frames import columns_read

    if not isinstance(new, Computed):
        return
    value = f.expr(new.expression)
    try:
        # Aggregates, windows and generators are not conditions on a row.
        _ = rows.where(value.isNull()).schema
    except AnalysisException:
        yield f"{new.expression!r} is not a value of a single row"
        return
    if is_classic(rows.sparkSession) and columns_read(rows.select(value)) is None:
        yield f"{new.expression!r} depends on more than the row"


def _not_repeatable(rows: DataFrame, new: Declaration) -> Iterator[str]:
    from pyspark.sql import functions as f

    from indextables.spark.bridge.frames import is_repeatable

    if not isinstance(new, Computed):
        return
    if not is_repeatable(rows.select(f.expr(new.expression))):
        yield f"{new.expression!r} returns other values each time"
    columns = [name.lower() for name in rows.columns]
    for call in _CURRENT.finditer(_QUOTED.sub("''", new.expression)):
        if not call[1] or call[1].lower() not in columns:
            yield f"{new.expression!r} depends on when and where it is asked"
            return


def _malformed(place: IndexPlace, metadata: Metadata, new: Declaration) -> Iterator[str]:
    conf = place.context.spark.conf.get("spark.sql.columnNameOfCorruptRecord")
    column = metadata.read_option("columnNameOfCorruptRecord", str(conf))
    schema = spark_schema(metadata, name=place.name)
    if metadata.format == "parquet" or column not in schema.names:
        return
    without_column = type(schema)([field for field in schema.fields if field.name != column])
    without = replace(metadata, schema=without_column.json())
    try:
        computed_types(place.context.spark, without, [new], name=place.name)
        is_named = column in needed_columns(new)
    except AriadneArgumentError:
        is_named = True
    if is_named:
        yield f"what Spark shows in '{column}' depends on the columns that a query reads"


def _collated(rows: DataFrame, new: Declaration) -> Iterator[str]:
    # Words of a text are split by the index's own rules, whatever its collation.
    values = [] if isinstance(new, Text) else value_columns(rows, new)
    texts = {text for field in rows.select(*values).schema for text in _collations(field.dataType)}
    for text in sorted(texts):
        yield f"an index compares texts by their bytes, and this is a {text}"


def _collations(data_type: Any) -> Iterator[str]:
    """The types of text with a collation in a type."""
    if data_type.typeName() == "string" and data_type.simpleString() != "string":
        yield data_type.simpleString()
    for inner in (
        *getattr(data_type, "fields", ()),
        *filter(None, [getattr(data_type, "elementType", None)]),
    ):
        yield from _collations(getattr(inner, "dataType", inner))


def is_fault_of_files(error: Exception) -> bool:
    """Whether a job failed for what it read.

    An error of the index's own store is not, and neither is a package that a worker lacks.
    """
    from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
    from pyspark.errors import PySparkException

    elsewhere = (f"{StorageError.__module__}.", "PACKAGE_NOT_INSTALLED", "ModuleNotFoundError")
    return isinstance(error, PySparkException | Py4JJavaError) and not any(
        sign in str(error) for sign in elsewhere
    )


def reason_of(error: Exception) -> str:
    """Why Spark could not read a file, in a line."""
    text = str(error)
    java = getattr(error, "java_exception", None)
    if java is not None:
        while java.getCause() is not None:
            java = java.getCause()
        text = str(java.getMessage() or java.toString())
    condition = getattr(error, "getCondition", lambda: None)()
    if condition and condition not in text:
        text = f"[{condition}] {text}"
    return first_line(RuntimeError(text))
