"""Values that an index cannot stand for, so that a declaration about them is refused.

An index is right as long as a query reads the values that the index read. Three kinds of value are
others the next time: random ones, those that tell when or by whom a query is run or what another
table holds, and what Spark could not read. Spark puts malformed lines into a column of the schema,
but only those that are malformed in the columns that it parses; an index parses its own column, a
query others. Nor is a value made of several rows: a query reads those of other files.

And an index compares texts by their bytes, which a collation does not.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from indextables.ariadne.declarations import Computed, Declaration, Text, needed_columns
from indextables.ariadne.metadata import Metadata
from indextables.ariadne.place import IndexPlace
from indextables.ariadne.source import computed_types, read_files, spark_schema, value_columns
from indextables.errors import AriadneArgumentError
from indextables.spark.readwriter import is_classic

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_QUOTED = re.compile(r"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|`(?:[^`]|``)*`""", re.DOTALL)
_OF_THE_MOMENT = re.compile(
    r"\b(?:(?:now|curdate|current_\w+|localtimestamp|session_user|user)\s*\("
    r"|unix_timestamp\s*\(\s*\)"
    r"|(current_(?:date|time|timestamp|user)|localtimestamp|session_user)\b)",
    re.IGNORECASE,
)
"""Functions of the moment; those of the group are called without brackets too."""


def check_values(place: IndexPlace, metadata: Metadata, new: Declaration) -> None:
    """Refuse a declaration about values that are others the next time, or equal by other rules."""
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
        # Aggregates, windows and generators are no conditions on a row.
        _ = rows.where(value.isNull()).schema
    except AnalysisException:
        yield f"{new.expression!r} is no value of a single row"
        return
    if is_classic(rows.sparkSession) and columns_read(rows.select(value)) is None:
        yield f"{new.expression!r} depends on what a query finds elsewhere"


def _not_repeatable(rows: DataFrame, new: Declaration) -> Iterator[str]:
    from pyspark.sql import functions as f

    from indextables.spark.bridge.frames import is_repeatable

    if not isinstance(new, Computed):
        return
    if not is_repeatable(rows.select(f.expr(new.expression))):
        yield f"{new.expression!r} gives other values each time"
    columns = [name.lower() for name in rows.columns]
    for found in _OF_THE_MOMENT.finditer(_QUOTED.sub("''", new.expression)):
        if not found[1] or found[1].lower() not in columns:
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
    # Words of a text are cut by the index's own rules, whatever its collation.
    values = [] if isinstance(new, Text) else value_columns(rows, new)
    found = {text for field in rows.select(*values).schema for text in _collations(field.dataType)}
    for text in sorted(found):
        yield f"an index compares texts by their bytes, and this is a {text}"


def _collations(kind: Any) -> Iterator[str]:
    """The types of text with a collation in a type."""
    if kind.typeName() == "string" and kind.simpleString() != "string":
        yield kind.simpleString()
    for inner in (
        *getattr(kind, "fields", ()),
        *filter(None, [getattr(kind, "elementType", None)]),
    ):
        yield from _collations(getattr(inner, "dataType", inner))
