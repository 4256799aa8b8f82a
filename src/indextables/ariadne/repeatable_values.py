"""Index columns whose values a later query would not see again, which are refused.

An index is right as long as a query reads the values that the index read. Three kinds of value are
others the next time: random ones, those that tell when or by whom a query is run, and what Spark
could not read. Spark puts malformed lines into a column of the schema, but only those that are
malformed in the columns that it parses; an index parses its own column, a query others.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from indextables.ariadne.declarations import Computed, Declaration, needed_columns
from indextables.ariadne.metadata import Metadata
from indextables.ariadne.place import IndexPlace
from indextables.ariadne.source import computed_types, read_files, spark_schema
from indextables.errors import AriadneArgumentError

_QUOTED = re.compile(r"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|`(?:[^`]|``)*`""", re.DOTALL)
_OF_THE_MOMENT = re.compile(
    r"\b(?:(?:now|curdate|current_\w+|localtimestamp|session_user|user)\s*\("
    r"|unix_timestamp\s*\(\s*\)"
    r"|(current_(?:date|time|timestamp|user)|localtimestamp|session_user)\b)",
    re.IGNORECASE,
)
"""Functions of the moment; those of the group are called without brackets too."""


def check_repeatable(place: IndexPlace, metadata: Metadata, new: Declaration) -> None:
    """Refuse a declaration about values that are others the next time."""
    wrong = [*_not_repeatable(place, metadata, new), *_malformed(place, metadata, new)]
    if wrong:
        raise AriadneArgumentError(f"Cannot add the {new.kind} index '{new.name}'", wrong)


def _not_repeatable(place: IndexPlace, metadata: Metadata, new: Declaration) -> Iterator[str]:
    from pyspark.sql import functions as f

    from indextables.spark.bridge.frames import is_repeatable

    if not isinstance(new, Computed):
        return
    rows = read_files(place.context.spark, metadata, [], name=place.name)
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
