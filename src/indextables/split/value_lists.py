"""Value lists: the different values of the columns that are compared whole, beside the index.

Together with the word lists (`term_lists`) they are all that a cross-reference index is built from.
A value is one text, the same for equal values whatever the width of their type: `value_texts` makes
it for lists and for questions alike.

A list is complete or it is not there. Columns whose values are nearly all different have none: it
would be as large as the column, and tell of every value that one split has it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from indextables.split.container import Section, SplitInfo
from indextables.split.indexer import as_integers
from indextables.split.ip_address import parse_address
from indextables.split.leaves import ArrowColumn
from indextables.split.mapping import FieldMapping, Mapping
from indextables.split.path_lists import PATH_LIST
from indextables.split.term_lists import WORD_LIST

VALUE_LIST: Final = "values"
"""The kind of sections that list the values of a column, by the column's place in the mapping."""

FEW_VALUES = 1_024
"""So many different values are always listed."""
MANY_VALUES = 200_000
"""So many never are."""
_ROWS_A_VALUE = 4


def value_class(field: FieldMapping, kind: pa.DataType) -> str | None:
    """What the texts of a column's values mean; `None` if its values are not listed.

    Columns of one class can be compared by their texts.

    >>> value_class(FieldMapping("n", "i64"), pa.int16())
    'int'
    """
    while pa.types.is_list(kind):
        kind = kind.value_type
    types = pa.types
    if field.kind in ("string", "ip"):
        return field.kind if types.is_string(kind) else None
    if field.has_words or field.kind == "bytes":
        return None
    if types.is_integer(kind):
        return "int"
    if types.is_floating(kind):
        return "float"
    if types.is_boolean(kind):
        return "bool"
    if types.is_date32(kind):
        return "date"
    if types.is_decimal(kind):
        return f"decimal {kind.scale}"
    if isinstance(kind, pa.TimestampType) and kind.unit == "us":
        return "local time" if kind.tz is None else "instant"
    return None


def value_texts(values: ArrowColumn, field: FieldMapping) -> ArrowColumn:
    """The text of each value that is not null, for a column that has a class.

    >>> value_texts(pa.array([-0.0, 1.5, None]), FieldMapping("f", "f64")).to_pylist()
    ['0', '1.5']
    """
    values = values.drop_null()
    if field.kind == "ip":
        numbers = (parse_address(text) for text in values.to_pylist())
        return pa.array([str(n) for n in numbers if n is not None], pa.string())
    if pa.types.is_string(values.type) or pa.types.is_decimal(values.type):
        return values.cast(pa.string())
    if pa.types.is_floating(values.type):
        # Adding zero gives -0.0 the sign that it has in SQL.
        doubles: ArrowColumn = pc.add(values.cast(pa.float64()), pa.scalar(0.0))
        texts = doubles.cast(pa.string())
        return pc.if_else(pc.is_nan(doubles), pa.scalar("nan"), texts)
    return as_integers(values).cast(pa.string())


class ValueCollector:
    """Gathers the different values of a split's columns while its rows pass by."""

    def __init__(self, mapping: Mapping, schema: pa.Schema) -> None:
        self._rows = 0
        self._fields = {
            f"c{place}": field
            for place, field in enumerate(mapping.fields)
            if field.indexed
            and not field.partition
            and value_class(field, schema.field(field.name).type) is not None
        }
        self._found: dict[str, ArrowColumn] = {}

    def add(self, batch: pa.RecordBatch) -> None:
        """Look at some rows."""
        self._rows += batch.num_rows
        for name, field in list(self._fields.items()):
            values: ArrowColumn = batch.column(field.name)
            while pa.types.is_list(values.type):
                values = pc.list_flatten(values)
            if field.kind == "string" and _longest(values) > field.token_length:
                del self._fields[name]  # the index leaves such a value out, and so would an XRef
                continue
            found: ArrowColumn = pc.unique(values)
            if name in self._found:
                found = pc.unique(pa.concat_arrays([self._found[name], found]))
            self._found[name] = found
            if len(found) > min(MANY_VALUES, max(FEW_VALUES, self._rows // _ROWS_A_VALUE)):
                del self._fields[name], self._found[name]

    def lists(self) -> Iterator[tuple[str, ArrowColumn]]:
        """The sorted values of each column that is to have a list, with the section's name."""
        for name, field in self._fields.items():
            values = self._found.get(name, pa.array([], pa.string()))
            texts: ArrowColumn = pc.unique(value_texts(values, field))
            yield name, texts.take(pc.sort_indices(texts))


def _longest(values: ArrowColumn) -> int:
    lengths: ArrowColumn = pc.binary_length(values)
    longest: Any = pc.max(lengths)
    return int(longest.as_py() or 0)


def path_sections(info: SplitInfo) -> dict[str, Section]:
    """The path list of each column that has one, by the column's name."""
    found = {s.name: s for s in info.sections if s.kind == PATH_LIST}
    fields = enumerate(info.mapping.fields)
    return {f.name: found[f"c{place}"] for place, f in fields if f"c{place}" in found}


def list_sections(info: SplitInfo) -> dict[str, Section]:
    """The list of words or values of each column that has one, by the column's name."""
    found = {(s.kind, s.name): s for s in info.sections if s.kind in (WORD_LIST, VALUE_LIST)}
    result = {}
    for place, field in enumerate(info.mapping.fields):
        section = found.get((VALUE_LIST, f"c{place}"))
        if section is None and field.field:
            section = found.get((WORD_LIST, field.field))
        if section is not None:
            result[field.name] = section
    return result
