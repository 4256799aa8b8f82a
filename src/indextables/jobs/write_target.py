"""The input and the target of a write: batches, schema, mapping, constraints, metadata.

Rows in any form become Arrow batches of the table's schema; a `Target` is the schema and mapping of
the stored rows and the new metadata.

The log keeps a CHECK constraint as a property of the table, the condition as Spark's SQL. Spark
enforces it where Spark writes. Elsewhere rows are checked here, before they are stored; a condition
that is more than this package evaluates makes the table one that only Spark writes to.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.compute as pc

from indextables import config as keys
from indextables.config import DELTA_MIRROR, Config, canonical, is_own_key, known_keys
from indextables.errors import QueryError, SchemaError, UnsupportedFeatureError
from indextables.log.actions import (
    CHECK_CONSTRAINTS,
    CONSTRAINT_PREFIX,
    DEFAULT_PROTOCOL,
    Action,
    Metadata,
    Protocol,
)
from indextables.log.snapshot import Snapshot
from indextables.plan.column_names import names_in, shown_metadata, stored_mapping
from indextables.plan.view import (
    LAYOUT_PROPERTY,
    PARTITIONS_PROPERTY,
    TableView,
    default_fields,
)
from indextables.predicate import Predicate, Search, searches
from indextables.predicate.spark_tokens import tokenize
from indextables.predicate.sql_text import parse_predicate
from indextables.schema import conform, evolve, normalize, refuse_hidden, to_json, type_name
from indextables.schema.types import Rows, shown_name, stored_schema
from indextables.split.mapping import MAPPING_PROPERTY, FieldMapping, TableMapping
from indextables.split.mapping_options import build_mapping
from indextables.split.row_filter import evaluate
from indextables.split.write import check_partition_columns
from indextables.split.write.writer import columns_with_statistics
from indextables.xref.fields import term_field

_PREFIXES = (
    keys.TYPE_MAP.name.lower(),
    keys.TOKENIZER.name.lower(),
    keys.FIELD_RECORD_OPTION.name.lower(),
    keys.FIELD_TOKEN_LENGTH.name.lower(),
)
"""Options whose own names end with that of a column."""
_LISTS = (
    keys.FAST_FIELDS.name.lower(),
    keys.STORE_ONLY_FIELDS.name.lower(),
    keys.STATS_COLUMNS.name.lower(),
    keys.XREF_BLOOM_FIELDS.name.lower(),
    keys.SEARCH_FIELDS.name.lower(),
)
"""Options that are lists of columns, perhaps with weights."""

# --- constraints -----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class CheckConstraint:
    """A named condition in Spark's SQL. A row violates it where it is false, not where null."""

    name: str
    sql: str

    def __str__(self) -> str:
        return f"CONSTRAINT {self.name} CHECK ({self.sql})"

    def check(self, rows: pa.Table | pa.RecordBatch, columns: pa.Schema) -> None:
        """Refuse rows that make the condition false, all of them if it cannot be computed here."""
        predicate = self._predicate(columns)
        answer: Any = evaluate(predicate, rows, search=_no_search)
        violated: Any = pc.invert(answer).fill_null(False)
        count = pc.sum(violated).as_py() or 0
        if count:
            example = rows.filter(violated).slice(0, 1).to_pylist()[0]
            shown = {n: v for n, v in example.items() if names_columns(self.sql, [n])}
            raise SchemaError(
                f"{count:,} of the new rows violate {self}, one of them with {shown}. Nothing was "
                "written."
            )

    def _predicate(self, columns: pa.Schema) -> Predicate:
        try:
            predicate = parse_predicate(self.sql, columns)
        except QueryError as error:
            raise self._only_by_spark() from error
        if searches(predicate):
            raise self._only_by_spark()
        return predicate

    def _only_by_spark(self) -> SchemaError:
        return SchemaError(
            f"The table has the {self}, which only Spark can evaluate. Write the rows with Spark, "
            "or drop the constraint: ALTER TABLE … DROP CONSTRAINT."
        )


def _no_search(search: Search) -> Any:
    raise AssertionError(search)


def constraints_of(metadata: Metadata) -> tuple[CheckConstraint, ...]:
    """The constraints of a table, by name."""
    constraints = (
        CheckConstraint(key.removeprefix(CONSTRAINT_PREFIX), sql)
        for key, sql in sorted(metadata.configuration.items())
        if key.startswith(CONSTRAINT_PREFIX)
    )
    return tuple(constraints)


def names_columns(sql: str, columns: Iterable[str]) -> list[str]:
    """Which of these columns a condition may be about, by the words in it."""
    words = {token.text.lower() for token in tokenize(sql)}
    return [column for column in columns if column.lower() in words]


def refuse_named_columns(metadata: Metadata, columns: Sequence[str], change: str) -> None:
    """Refuse to drop columns that a constraint names."""
    for constraint in constraints_of(metadata):
        for column in names_columns(constraint.sql, columns):
            raise SchemaError(
                f"'{column}' cannot be {change}: the {constraint} names it. Drop the constraint "
                f"first: ALTER TABLE … DROP CONSTRAINT {constraint.name}."
            )


def add_constraint(
    snapshot: Snapshot, constraint: CheckConstraint, *, config: Config
) -> list[Action]:
    """The actions that add a constraint to a table whose rows meet it."""
    existing = {declared.name.lower() for declared in constraints_of(snapshot.metadata)}
    if constraint.name.lower() in existing:
        raise SchemaError(
            f"'{snapshot.uri}' has a constraint {constraint.name} already. Drop it first, or "
            "choose another name."
        )
    return [
        *constraint_protocol(snapshot, config),
        with_constraints(snapshot.metadata, [constraint]),
    ]


def drop_constraint(snapshot: Snapshot, name: str, *, if_exists: bool) -> list[Action]:
    """The actions that drop a constraint."""
    metadata = snapshot.metadata
    dropped = [one.name for one in constraints_of(metadata) if one.name.lower() == name.lower()]
    if not dropped and not if_exists:
        raise SchemaError(f"'{snapshot.uri}' has no constraint {name}.")
    dropped_keys = {CONSTRAINT_PREFIX + one for one in dropped}
    left = {key: value for key, value in metadata.configuration.items() if key not in dropped_keys}
    return [replace(metadata, configuration=left)]


def with_constraints(metadata: Metadata, constraints: Iterable[CheckConstraint]) -> Metadata:
    """Metadata with further constraints."""
    new: Mapping[str, str] = {
        CONSTRAINT_PREFIX + constraint.name: constraint.sql for constraint in constraints
    }
    return replace(metadata, configuration={**metadata.configuration, **new})


def constraint_protocol(snapshot: Snapshot, config: Config) -> list[Protocol]:
    """The protocol that stops writers which would not check constraints."""
    if CHECK_CONSTRAINTS in (snapshot.protocol.writer_features or ()):
        return []
    if snapshot.version >= 0 and not config[keys.PROTOCOL_AUTO_UPGRADE]:
        raise UnsupportedFeatureError(snapshot.uri, role="writer", features=[CHECK_CONSTRAINTS])
    features = tuple(sorted({CHECK_CONSTRAINTS, *(DEFAULT_PROTOCOL.writer_features or ())}))
    return [replace(DEFAULT_PROTOCOL, writer_features=features)]


# --- declared buckets and clustering ---------------------------------------------------------

ColumnPath = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class DeclaredLayout:
    """Buckets or clustering as a statement declares them, by the names of columns that users have.

    They choose no rows and no order. Splits are cut by size and merged, which keeps no bucket, so
    Spark is told of them where it describes the table, and never that rows are laid out by them.
    """

    columns: tuple[ColumnPath, ...]
    buckets: int | None = None
    """None of clustering, which has no number."""
    sorted_by: tuple[ColumnPath, ...] = ()

    @classmethod
    def from_json(cls, text: str) -> DeclaredLayout:
        """Read the property of a table.

        >>> DeclaredLayout.from_json('{"columns":[["a"]],"buckets":2,"sorted_by":[["b"]]}')
        DeclaredLayout(columns=(('a',),), buckets=2, sorted_by=(('b',),))
        """
        document = orjson.loads(text)
        return cls(
            columns=tuple(map(tuple, document["columns"])),
            buckets=document["buckets"],
            sorted_by=tuple(map(tuple, document["sorted_by"])),
        )

    def to_json(self) -> str:
        return orjson.dumps(asdict(self)).decode()

    def renamed(self, new_names: Mapping[str, str | None]) -> DeclaredLayout | None:
        """The layout after columns got new names; None if one of them is gone."""
        roots = {path[0] for path in (*self.columns, *self.sorted_by)}
        if any(new_names.get(root, root) is None for root in roots):
            return None

        def followed(paths: tuple[ColumnPath, ...]) -> tuple[ColumnPath, ...]:
            return tuple((new_names.get(root) or root, *rest) for root, *rest in paths)

        return DeclaredLayout(followed(self.columns), self.buckets, followed(self.sorted_by))


# --- rows and their target -------------------------------------------------------------------


def as_reader(data: Any) -> pa.RecordBatchReader:
    """Arrow tables, batches, readers and datasets; pandas, Polars and others by Arrow's interface.

    >>> as_reader(pa.table({"a": [1]})).read_all().num_rows
    1
    """
    if isinstance(data, pa.RecordBatchReader):
        return data
    if isinstance(data, pa.Table):
        return data.to_reader()
    if isinstance(data, pa.RecordBatch):
        return pa.RecordBatchReader.from_batches(data.schema, [data])
    if type(data).__module__.partition(".")[0] == "pandas" and hasattr(data, "columns"):
        # Its own stream would have the pandas index as a further column.
        return pa.Table.from_pandas(data, preserve_index=False).to_reader()
    if hasattr(data, "__arrow_c_stream__"):
        return pa.RecordBatchReader.from_stream(data)
    if hasattr(data, "scanner"):  # a pyarrow dataset
        reader: pa.RecordBatchReader = data.scanner().to_reader()
        return reader
    if isinstance(data, Iterable) and not isinstance(data, str | bytes | Mapping):
        return _from_batches(iter(data))
    raise _not_rows(data)


def _from_batches(batches: Iterator[Any]) -> pa.RecordBatchReader:
    first = next(batches, None)
    if first is None:
        raise SchemaError("An empty list of batches has no schema. Pass a table or a reader.")
    if not isinstance(first, pa.RecordBatch):
        raise _not_rows(first)

    def chained() -> Iterator[pa.RecordBatch]:
        yield first
        for batch in batches:
            if not isinstance(batch, pa.RecordBatch):
                raise _not_rows(batch)
            if not batch.schema.equals(first.schema):
                raise SchemaError(
                    f"The batches have different columns: {_columns_shown(first.schema)}; then "
                    f"{_columns_shown(batch.schema)}. Write them one after the other."
                )
            yield batch

    return pa.RecordBatchReader.from_batches(first.schema, chained())


def _columns_shown(schema: pa.Schema) -> str:
    return ", ".join(f"{field.name} {field.type}" for field in schema)


def _not_rows(data: object) -> SchemaError:
    hint = ""
    if isinstance(data, Mapping):
        hint = (
            " pyarrow.table(…) makes one of a dictionary of columns, pyarrow.Table.from_pylist(…) "
            "of a list of dictionaries."
        )
    return SchemaError(
        f"Cannot take rows from {type(data).__name__}. Pass a pyarrow Table, RecordBatch or "
        f"reader, an iterable of record batches, or a pandas or Polars DataFrame.{hint}"
    )


def check_fits(incoming: pa.Schema, table: pa.Schema) -> None:
    """Refuse rows whose columns the table does not have, or that cannot be null in it."""
    # A column of nulls only is of any type.
    incoming = normalize(
        pa.schema(
            table.field(f.name) if pa.types.is_null(f.type) and f.name in table.names else f
            for f in incoming
        )
    )
    names, given = set(table.names), set(incoming.names)
    problems = [
        f"column '{f.name}' ({type_name(f.type)}) is not in the table"
        for f in incoming
        if f.name not in names
    ]
    problems += [
        f"column '{f.name}' ({type_name(f.type)}) is missing and must not be null"
        for f in table
        if f.name not in given and not f.nullable
    ]
    if problems:
        raise SchemaError(
            "The rows do not fit the table: "
            + "; ".join(problems)
            + ". The table has: "
            + ", ".join(f"{f.name} {type_name(f.type)}" for f in table)
            + ". To add columns, write with merge_schema=True (in Spark: "
            ".option('mergeSchema', True))."
        )


@dataclass(frozen=True, slots=True)
class Target:
    """The schema and mapping that rows are written with; `metadata` where the table changes.

    `schema` and `mapping` have the stored names of columns, `shown` is the schema as users see it.
    """

    schema: pa.Schema
    mapping: TableMapping
    metadata: Metadata | None
    shown: pa.Schema
    constraints: tuple[CheckConstraint, ...] = ()
    """Constraints that rows have to meet, unless they were checked before."""

    @classmethod
    def unchanged(cls, view: TableView) -> Target:
        """The table as it is."""
        constraints = constraints_of(view.snapshot.metadata)
        return cls(view.schema, view.mapping, None, view.names.shown, constraints)

    def checked(self, rows: Rows) -> Rows:
        """Rows with the names that users see, if they meet the table's constraints."""
        for constraint in self.constraints:
            constraint.check(rows, self.shown)
        return rows

    def stored(self, rows: Rows) -> Rows:
        """Rows from users, in the schema of the table's splits."""
        fitting = self.checked(conform(rows, self.shown))
        if self.shown.names == self.schema.names:
            return fitting
        return fitting.rename_columns(self.schema.names)


def new_table(
    schema: pa.Schema,
    *,
    partition_by: Sequence[str],
    properties: Mapping[str, str],
    config: Config,
    name: str | None = None,
    description: str | None = None,
) -> Target:
    """A table that is to be created."""
    columns = _declared(schema, partition_by)
    if config[DELTA_MIRROR]:  # for every later commit of any writer
        properties = {DELTA_MIRROR.name: "true", **properties}
    table_keys = {key: value for key, value in properties.items() if is_own_key(key)}
    mapping = build_mapping(columns, config.over(table_keys), partition_by=partition_by)
    metadata = Metadata(
        id=str(uuid.uuid4()),
        name=name,
        description=description,
        schema_string=to_json(columns),
        partition_columns=tuple(partition_by),
        configuration={**properties, MAPPING_PROPERTY: mapping.to_json()},
        created_time=time.time_ns() // 1_000_000,
    )
    check_properties_fit(metadata)
    return Target(columns, mapping, metadata, columns, constraints_of(metadata))


def evolved_table(view: TableView, incoming: pa.Schema, *, merge_schema: bool) -> Target:
    """A table that takes rows with these columns."""
    shown = view.shown
    columns = shown.schema
    if merge_schema:
        columns = evolve(columns, incoming)
    else:
        check_fits(incoming, columns)
    mapping = build_mapping(
        columns, view.config, partition_by=shown.partition_columns, base=shown.mapping
    )
    if differences := _differences(shown.mapping, mapping):
        problems = (
            f"Field '{name}' type mismatch: existing table has {old} field, cannot append with "
            f"{new} configuration"
            for name, old, new in differences
        )
        raise SchemaError(
            f"Configuration validation failed for append operation: {'; '.join(problems)}."
        )
    if columns.equals(shown.schema) and mapping == shown.mapping:
        return Target.unchanged(view)
    schema = view.names.stored_columns(columns)
    mapping = stored_mapping(mapping, schema)
    metadata = view.snapshot.metadata
    configuration = {**metadata.configuration, MAPPING_PROPERTY: mapping.to_json()}
    metadata = replace(metadata, schema_string=to_json(schema), configuration=configuration)
    return Target(schema, mapping, metadata, columns, constraints_of(metadata))


def replaced_table(
    view: TableView,
    schema: pa.Schema,
    partition_by: Sequence[str],
    properties: Mapping[str, str] | None = None,
) -> Target:
    """A table whose rows and columns are all replaced, and perhaps its properties.

    Columns that stay what they are keep their mapping, unless an option names them. What properties
    say of other columns has no meaning any more.
    """
    columns = _declared(schema, partition_by)
    shown = view.shown
    old = shown.schema
    same = {f.name for f in columns if f.name in old.names and old.field(f.name).type == f.type}
    dropped = [name for name in old.names if name not in same]
    refuse_named_columns(view.snapshot.metadata, dropped, "replaced")
    base = replace(shown.mapping, fields=tuple(f for f in shown.mapping.fields if f.name in same))
    new_names = {name: name if name in columns.names else None for name in old.names}
    kept = properties_of(view.snapshot.metadata.configuration, new_names)
    # Declared partitions may have other columns or types than those of the new rows.
    kept = {
        key: value
        for key, value in kept.items()
        if not _is_of_columns(key) and key != PARTITIONS_PROPERTY
    }
    options = view.settings.over_properties(kept if properties is None else properties)
    mapping = build_mapping(columns, options, partition_by=partition_by, base=base)
    stored = view.names.stored_columns(columns)
    mapping = stored_mapping(mapping, stored)
    by_name = {shown_name(field): field.name for field in stored}
    metadata = view.snapshot.metadata
    metadata = replace(
        metadata,
        schema_string=to_json(stored),
        partition_columns=tuple(by_name[name] for name in partition_by),
        configuration={**kept, MAPPING_PROPERTY: mapping.to_json()},
    )
    return Target(stored, mapping, metadata, columns, constraints_of(metadata))


def _declared(schema: pa.Schema, partition_by: Sequence[str]) -> pa.Schema:
    """Checked columns under the names that they are given, whatever table they were read from."""
    columns = normalize(schema)
    columns = stored_schema(columns, {name: name for name in columns.names})
    refuse_hidden(columns.names)
    check_partition_columns(partition_by, columns)
    return columns


def _is_of_columns(key: str) -> bool:
    """Whether an option says how some columns are indexed, which their mapping has."""
    return is_about_columns(key) and ".indexing." in canonical(key)


def check_properties_fit(metadata: Metadata) -> None:
    """Refuse properties that do not fit the columns, under which a later write or search fails.

    A property names columns that are there: options of a column that comes later belong to the
    write, the handle or the session that adds it.
    """
    config = Config(known_keys(metadata.configuration))
    seen = shown_metadata(metadata)
    columns = names_in(metadata).shown
    partition_by = seen.partition_columns
    base = TableMapping.from_json(seen.configuration[MAPPING_PROPERTY])
    mapping = build_mapping(columns, config, partition_by=partition_by, base=base)
    if differences := _differences(base, mapping):
        problems = (f"'{name}' is {old}, not {new}" for name, old, new in differences)
        raise SchemaError(
            f"The properties do not fit the table: {'; '.join(problems)}. How a column is searched "
            "is decided when it is added; a property changes only its analyzer later."
        )
    columns_with_statistics(columns, config, partition_by=partition_by)
    default_fields(config, columns, base)
    _check_bloom_fields(config, columns, base)


def _check_bloom_fields(config: Config, columns: pa.Schema, mapping: TableMapping) -> None:
    for name in filter(None, map(str.strip, config[keys.XREF_BLOOM_FIELDS].split(","))):
        column = {column.lower(): column for column in columns.names}.get(name.lower())
        if column is None:
            raise SchemaError(
                f"{keys.XREF_BLOOM_FIELDS.name}: there is no field '{name}'. Available fields: "
                f"{', '.join(columns.names)}."
            )
        field = term_field(mapping.by_name[column], columns.field(column).type)
        if field is None or field.meaning == "words":
            raise SchemaError(
                f"{keys.XREF_BLOOM_FIELDS.name}: '{column}' gets no bloom filter, because it is "
                "searched by words, or not at all."
            )


def _differences(table: TableMapping, requested: TableMapping) -> list[tuple[str, str, str]]:
    """The columns that options want searched in another way than they are: name, old and new."""
    return [
        (name, *_shown(old, new))
        for name, old in table.by_name.items()
        if (new := requested.by_name.get(name)) is not None and new.fingerprint != old.fingerprint
    ]


def _shown(one: FieldMapping, other: FieldMapping) -> tuple[str, str]:
    """What two fields that differ are; with lengths of words if nothing else differs."""

    def text(field: FieldMapping) -> str:
        kind = f"text ({field.tokenizer})" if field.kind == "text" else field.kind
        return kind if field.indexed else f"unindexed {kind}"

    if text(one) != text(other):
        return text(one), text(other)
    words = "{} with words of up to {} bytes".format
    return words(text(one), one.token_length), words(text(other), other.token_length)


# --- options that name columns -------------------------------------------------------------------


def is_about_columns(key: str) -> bool:
    """Whether an option is about columns, whose names or types it may not fit."""
    name = canonical(key)
    return name in (*_LISTS, keys.TEXT_MAX_TOKEN_LENGTH.name.lower()) or any(
        name.startswith(prefix) for prefix in _PREFIXES
    )


def properties_of(
    configuration: Mapping[str, str], new_names: Mapping[str, str | None]
) -> dict[str, str]:
    """Properties after columns got new names, or none."""
    changed = {old.lower(): new for old, new in new_names.items() if old != new}
    if not changed:
        return dict(configuration)
    followed = {}
    for key, value in configuration.items():
        name = canonical(key)
        prefix = next((p for p in _PREFIXES if name.startswith(p)), None)
        if key == LAYOUT_PROPERTY:
            layout = DeclaredLayout.from_json(value).renamed(new_names)
            if layout is not None:
                followed[key] = layout.to_json()
        elif prefix is not None and _root(name[len(prefix) :], new_names) is not None:
            field = _followed_name(name[len(prefix) :], changed)
            if field is not None:
                followed[key if field == name[len(prefix) :] else prefix + field] = value
        elif prefix is not None or name in _LISTS:
            listed = [_followed_name(one.strip(), changed) for one in value.split(",")]
            if any(listed):
                followed[key] = ",".join(one for one in listed if one)
        else:
            followed[key] = value
    return followed


def _root(field: str, columns: Iterable[str]) -> str | None:
    """The column that an option names, itself, by a path into it or with a weight."""
    for column in sorted(columns, key=len, reverse=True):
        lower = column.lower()
        if field.lower() == lower or field.lower().startswith((f"{lower}.", f"{lower}^")):
            return lower
    return None


def _followed_name(field: str, changed: Mapping[str, str | None]) -> str | None:
    root = _root(field, changed)
    if root is None:
        return field
    new = changed[root]
    return None if new is None else new + field[len(root) :]
