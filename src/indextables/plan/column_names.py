"""Between the names that users have for columns and those that are stored.

Everything that plans, reads and writes splits works with stored names (see
`indextables.schema.types`). The edges translate here: conditions, searches and lists of
columns on their way in, schemas and rows on their way out. A table none of whose columns was
renamed has one name for each column, and every translation returns what it was given.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

import pyarrow as pa

from indextables.config import XREF_BLOOM_FIELDS, Config
from indextables.errors import QueryError, UnknownFieldError
from indextables.log.actions import COLUMN_NAMES, Metadata
from indextables.log.snapshot import Snapshot
from indextables.predicate import (
    And,
    Column,
    Constant,
    Expression,
    FieldNode,
    Not,
    Or,
    Predicate,
    Search,
    SearchNode,
)
from indextables.predicate.names import escaped_field, resolve_field
from indextables.predicate.search import map_leaves
from indextables.predicate.tree import transform
from indextables.schema import from_json, to_json
from indextables.schema.types import (
    SHOWN_NAME,
    new_stored_name,
    shown_name,
    shown_schema,
    stored_schema,
)
from indextables.split import mapping as mappings
from indextables.split.mapping import MAPPING_PROPERTY


@dataclass(frozen=True)
class ColumnNames:
    """The names of one version's columns.

    `stored` and `shown` are the schema in either spelling, columns in the same order.
    """

    stored: pa.Schema
    shown: pa.Schema
    are_new_ones_fresh: bool
    """Whether a new column must not be stored under its own name."""

    @functools.cached_property
    def is_plain(self) -> bool:
        """Whether every column has one name only."""
        return self.stored.names == self.shown.names

    @functools.cached_property
    def _to_stored(self) -> Mapping[str, str]:
        return dict(zip(self.shown.names, self.stored.names, strict=True))

    @functools.cached_property
    def _to_shown(self) -> Mapping[str, str]:
        return dict(zip(self.stored.names, self.shown.names, strict=True))

    # --- names and schemas -------------------------------------------------------------------

    def stored_name(self, shown: str) -> str:
        """The stored name of a column of the table; hidden columns have no other."""
        return self._to_stored.get(shown, shown)

    def stored_names(self, shown: Iterable[str]) -> tuple[str, ...]:
        """The stored names of some columns."""
        return tuple(map(self.stored_name, shown))

    def shown_name(self, stored: str) -> str:
        """The name that users have for a stored column."""
        return self._to_shown.get(stored, stored)

    def shown_names(self, stored: Iterable[str]) -> tuple[str, ...]:
        """The names that users have for some stored columns."""
        return tuple(map(self.shown_name, stored))

    def stored_columns(self, shown: pa.Schema) -> pa.Schema:
        """The log's schema for columns after a change; new ones get a stored name."""
        names = {
            name: self._to_stored.get(name)
            or (new_stored_name(name) if self.are_new_ones_fresh else name)
            for name in shown.names
        }
        return stored_schema(shown, names)

    # --- conditions --------------------------------------------------------------------------

    def stored_predicate(self, predicate: Predicate) -> Predicate:
        """A condition on the columns that users see, for the stored ones."""
        return self._translated(predicate, self._to_stored, self.shown, self.stored)

    def shown_predicate(self, predicate: Predicate) -> Predicate:
        """A condition on stored columns with shown names, for messages."""
        return self._translated(predicate, self._to_shown, self.stored, self.shown)

    def stored_search(self, search: Search) -> Search:
        """A search of the columns that users see, for the stored ones."""
        translated = self.stored_predicate(search)
        assert isinstance(translated, Search)
        return translated

    def _translated(
        self, predicate: Predicate, names: Mapping[str, str], old: pa.Schema, new: pa.Schema
    ) -> Predicate:
        if self.is_plain:
            return predicate

        def column(named: Column) -> Column:
            return Column((names.get(named.root, named.root), *named.path[1:]))

        def change(node: Predicate) -> Predicate:
            match node:
                case And() | Or() | Not() | Constant():
                    return node
                case Search(column=searched, query=query):
                    fields = _translated_fields(query, node.text, names, old, new)
                    return replace(
                        node,
                        column=searched and column(searched),
                        columns=tuple(map(column, node.columns)),
                        query=fields,
                    )
                case Expression(operands=operands):
                    return replace(node, operands=tuple((n, column(one)) for n, one in operands))
                case _:
                    return replace(node, column=column(node.column))

        return transform(predicate, change)

    # --- rows --------------------------------------------------------------------------------

    def shown_result(self, schema: pa.Schema) -> pa.Schema:
        """The schema of rows with stored names, as users see them."""
        return schema if self.is_plain else shown_schema(schema)

    def shown_rows(self, rows: pa.Table) -> pa.Table:
        """Rows with stored names, as users see them."""
        return rows if self.is_plain else pa.table(rows.columns, schema=shown_schema(rows.schema))

    # --- options -----------------------------------------------------------------------------

    def stored_options(self, config: Config) -> Config:
        """Options that name columns of splits that are there already."""
        listed = config[XREF_BLOOM_FIELDS]
        if self.is_plain or not listed.strip():
            return config
        lower = {shown.lower(): stored for shown, stored in self._to_stored.items()}
        names = (name.strip() for name in listed.split(","))
        stored = ",".join(lower.get(name.lower(), name) for name in names)
        return Config({XREF_BLOOM_FIELDS.name: stored}).over(config)


def names_of(snapshot: Snapshot) -> ColumnNames:
    """The names of a table's columns at one version."""
    features = snapshot.protocol.reader_features or ()
    return _names(snapshot.metadata.schema_string, COLUMN_NAMES in features)


def names_in(metadata: Metadata) -> ColumnNames:
    """The names of columns that some metadata has."""
    return _names(metadata.schema_string, False)


@functools.lru_cache(maxsize=256)
def _names(schema_string: str, are_new_ones_fresh: bool) -> ColumnNames:
    stored = from_json(schema_string)
    shown = shown_schema(stored) if SHOWN_NAME in schema_string else stored
    return ColumnNames(stored, shown, are_new_ones_fresh)


def shown(snapshot: Snapshot) -> Snapshot:
    """A snapshot whose metadata has the names that users see; its files have the stored ones."""
    metadata = shown_metadata(snapshot.metadata)
    return snapshot if metadata is snapshot.metadata else replace(snapshot, metadata=metadata)


def shown_metadata(metadata: Metadata) -> Metadata:
    """Metadata with the names that users see: columns, partition columns, the mapping."""
    if SHOWN_NAME not in metadata.schema_string:
        return metadata
    names = names_in(metadata)
    configuration = dict(metadata.configuration)
    if (text := configuration.get(MAPPING_PROPERTY)) is not None:
        mapping = mappings.TableMapping.from_json(text)
        fields = [replace(f, name=names.shown_name(f.name)) for f in mapping.fields]
        configuration[MAPPING_PROPERTY] = replace(mapping, fields=tuple(fields)).to_json()
    return replace(
        metadata,
        schema_string=to_json(names.shown),
        partition_columns=names.shown_names(metadata.partition_columns),
        configuration=configuration,
    )


def stored_mapping(mapping: mappings.TableMapping, schema: pa.Schema) -> mappings.TableMapping:
    """The mapping of columns that users see, for those of a stored schema."""
    names = {shown_name(field): field.name for field in schema}
    if all(shown == stored for shown, stored in names.items()):
        return mapping
    fields = tuple(replace(f, name=names.get(f.name, f.name)) for f in mapping.fields)
    return replace(mapping, fields=fields)


def _translated_fields(
    node: SearchNode, text: str, names: Mapping[str, str], old: pa.Schema, new: pa.Schema
) -> SearchNode:
    """A query whose leaves name columns by their other name."""

    def translated(leaf: FieldNode) -> FieldNode:
        if leaf.field is None:
            return leaf
        resolved = resolve_field(leaf.field, old)
        if resolved is None:  # a stored name must not be found by chance
            raise UnknownFieldError(leaf.field, available=old.names, query=text)
        name, path = names[resolved[0]], resolved[1]
        field = escaped_field([name, *path])
        if resolve_field(field, new) != (name, path):
            raise QueryError(
                f"The field '{leaf.field}' cannot be told from a column that has a dot in its "
                "stored name. Rename that column to its old name, or search with SQL: "
                f"`{resolved[0]}` indexquery '…'."
            )
        return replace(leaf, field=field)

    return map_leaves(node, translated)
