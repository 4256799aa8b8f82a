"""What an index knows about each of its columns, as evidence that lookups use.

A column whose kind keeps something is evidence for the files where it was built, and nothing is
known for the others. It is decoded when it is first used and kept as long as the lookup.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from indextables.ariadne.lookup.evidence import (
    BloomFilters,
    Bounds,
    Counts,
    Evidence,
    Nulls,
    Values,
)
from indextables.ariadne.model.declarations import (
    VALUE_KINDS,
    Declaration,
    storage_column,
    type_of,
)
from indextables.ariadne.model.rows import IndexData
from indextables.ariadne.store.large_values import ValueTable
from indextables.ariadne.values.words import Words
from indextables.plan.statistics import Flags


class IndexedColumns:
    """The columns of one version of an index. `schema` is that of the files.

    Of a value with a temporal index only the file with its newest time counts. With `all_rows`
    any file with the value counts, and the name of a computed or exploded index column is that of
    the files' own column, about which nothing is known.
    """

    def __init__(self, data: IndexData, schema: pa.Schema, *, all_rows: bool) -> None:
        self.data = data
        self.schema = schema
        self.all_rows = all_rows
        self.is_newest_known = not all_rows and not data.drops_rows
        self.count = data.files.num_rows

    @functools.cached_property
    def types(self) -> dict[str, pa.DataType]:
        """The type of the values of each index column, whether or not it is built."""
        types: dict[str, Any] = {}
        for declaration in self.data.declarations:
            data_type = self._type(declaration)
            if data_type is not None:
                types[declaration.name] = data_type
        return types

    @functools.cached_property
    def names(self) -> pa.Schema:
        """The columns that a condition may name: of the files, and those that indexes add."""
        types = {f.name: f.type for f in self.schema} | self.types
        return pa.schema(list(types.items()))

    @functools.cached_property
    def has_rows(self) -> Flags:
        """Files that are not known to be empty."""
        rows: Any = self.data.files.column("row_count")
        return np.asarray(pc.fill_null(pc.not_equal(rows, pa.scalar(0)), True), np.bool_)

    @functools.cache  # noqa: B019 - as long as the lookup itself
    def evidence(self, name: str) -> Evidence | None:
        """What is known about a column; None if nothing is."""
        declaration = self.data.declarations.get(name)
        if declaration is None or storage_column(declaration) not in self.data.files.column_names:
            return None
        if self.all_rows and declaration.kind in ("computed", "exploded"):
            return None
        stored = self._column(storage_column(declaration))
        counts = self._counts(declaration)
        data_type = self.types[name]
        if declaration.kind in VALUE_KINDS:
            return Values(
                name,
                counts,
                stored,
                table=functools.partial(self._value_table, name),
                filenames=self._column("filename"),
                per_row=declaration.kind != "exploded",
            )
        if declaration.kind == "temporal":
            return self._temporal(name, counts, stored)
        if declaration.kind == "bloom":
            return BloomFilters(counts, data_type, stored)
        if declaration.kind == "range":
            return Bounds(counts, data_type, stored)
        return Nulls(counts)

    @functools.cache  # noqa: B019
    def words(self, name: str) -> Words:
        """The words of a text index."""
        declaration = self.data.declarations.get(name)
        assert declaration is not None
        column = storage_column(declaration)
        if column not in self.data.files.column_names:
            return Words.of([None] * self.count)
        is_known = self._counts(declaration).is_known
        lists = zip(self._column(column).to_pylist(), is_known, strict=True)
        return Words.of(stored if known else None for stored, known in lists)

    def _type(self, declaration: Declaration) -> Any:
        column = storage_column(declaration)
        if declaration.kind in ("bloom", "text"):
            return self.schema.field(declaration.name).type
        if column not in self.data.files.column_names:
            types = self.data.computed_types
            return type_of(declaration, self.schema, types.get(declaration.name))
        stored: Any = self.data.files.schema.field(column).type
        if declaration.kind == "range":
            return stored.field("min").type
        element = stored.value_type
        return element.field("value").type if declaration.kind == "temporal" else element

    def _column(self, name: str) -> Any:
        column = self.data.files.column(name)
        return column.combine_chunks() if column.num_chunks != 1 else column.chunk(0)

    def _counts(self, declaration: Declaration) -> Counts:
        is_known = np.asarray(self.data.is_built(declaration), np.bool_)
        nulls = f"nulls_{declaration.name}"
        if declaration.kind == "exploded" or nulls not in self.data.files.column_names:
            return Counts.of(is_known, None, None)
        return Counts.of(is_known, self._column(nulls), self._column("row_count"))

    def _temporal(self, name: str, counts: Counts, stored: Any) -> Values:
        # Without an array there were too many values to keep; nothing is known of that file.
        is_known = counts.is_known & np.asarray(stored.is_valid(), np.bool_)
        offsets, pairs = stored.offsets, stored.values
        parts = [pc.struct_field(pairs, part) for part in ("value", "max_ts")]
        values = pa.ListArray.from_arrays(offsets, parts[0], mask=stored.is_null())
        stamps = pa.ListArray.from_arrays(offsets, parts[1], mask=stored.is_null())
        return Values(
            name,
            Counts(is_known, counts.may_be_null | ~is_known, counts.may_be_value | ~is_known),
            values,
            table=lambda: None,
            filenames=self._column("filename"),
            newest=pc.list_flatten(stamps) if self.is_newest_known else None,
        )

    @functools.cache  # noqa: B019
    def _value_table(self, name: str) -> ValueTable | None:
        table = self.data.large(name)
        return None if table is None else ValueTable(table)
