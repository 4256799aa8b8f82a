"""Reading the files of an index with Spark.

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
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from indextables.ariadne.declarations import (
    Computed,
    Declaration,
    Exploded,
    Temporal,
    Text,
    Types,
    needed_columns,
)
from indextables.ariadne.files.paths import for_spark
from indextables.ariadne.metadata import Metadata
from indextables.ariadne.store.place import IndexPlace
from indextables.errors import AriadneArgumentError, SchemaError, SchemaParseError, StorageError
from indextables.predicate.literals import quoted_name
from indextables.spark.bridge.sessions import is_classic

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import StructType

FORMATS = ("parquet", "csv", "json")
FILE = "__file"
_PATTERN = re.compile(r"[{}\[\]*?\\]")

# A file that Spark cannot read has to be an error: silently left out, it would look empty.
_FIXED_OPTIONS = {
    "ignoreCorruptFiles": "false",
    "ignoreMissingFiles": "false",
}


def spark_schema(metadata: Metadata, *, name: str) -> StructType:
    """The stored schema as Spark's. `SchemaParseError` if it is not one."""
    import json

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
    import pyarrow as pa
    from pyspark.sql.types import StructType

    from indextables.schema import from_json

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
    reader = reader.options(**{**metadata.read_options, **_FIXED_OPTIONS})
    # Canonical paths are literal. Spark's option against patterns reads every other path twice.
    return reader.load([_PATTERN.sub(r"\\\g<0>", for_spark(file)) for file in files])


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

    from indextables.ariadne.declarations import not_comparable
    from indextables.schema import from_json

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


def first_line(error: BaseException) -> str:
    """The first line of an error's message."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return (lines[0] if lines else type(error).__name__)[:300]


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
    rest = type(schema)([field for field in schema.fields if field.name != column])
    without = replace(metadata, schema=rest.json())
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
    cause: Any = error
    text = str(error)
    java = getattr(error, "java_exception", None)
    if java is not None:
        while java.getCause() is not None:
            java = java.getCause()
        text = str(java.getMessage() or java.toString())
    condition = getattr(cause, "getCondition", lambda: None)()
    if condition and condition not in text:
        text = f"[{condition}] {text}"
    return first_line(RuntimeError(text))
