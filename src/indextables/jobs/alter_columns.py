"""Changing columns, properties and declared partitions: metadata, which rewrites no split.

A renamed column keeps the name that it is stored under. A dropped one leaves the schema and the
mapping; splits keep its values until they are merged or rewritten, and nothing reads them. Options
of the table that name a column follow it. A column that is added with a default has it in all rows
that are there: those of splits that do not have the column.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import orjson
import pyarrow as pa

from indextables import config as keys
from indextables.config import Config, canonical, is_own_key, known_keys
from indextables.errors import ConfigError, SchemaError, UnsupportedFeatureError
from indextables.jobs.write_target import (
    check_properties_fit,
    is_about_columns,
    properties_of,
    refuse_named_columns,
)
from indextables.log.actions import (
    COLUMN_DEFAULTS,
    COLUMN_NAMES,
    DEFAULT_PROTOCOL,
    Action,
    Metadata,
    Protocol,
)
from indextables.log.snapshot import Snapshot
from indextables.log.transaction import Operation, Transaction
from indextables.log.transaction_log import TransactionLog
from indextables.plan.column_names import names_in, names_of, shown_metadata, stored_mapping
from indextables.plan.view import INTERNAL_PROPERTIES, PARTITIONS_PROPERTY, TableView
from indextables.predicate.names import resolve_column
from indextables.schema import normalize, refuse_hidden, to_json, type_name
from indextables.schema.conformity import (
    can_be_default,
    missing_defaults,
    with_default,
    with_existence_default,
)
from indextables.schema.types import new_stored_name, stored_schema
from indextables.split.mapping import MAPPING_PROPERTY, TableMapping
from indextables.split.mapping_options import analyzers_by_column, build_mapping


def rename_column(log: TransactionLog, old: str, new: str, *, settings: Config) -> int:
    """Rename a column; returns the version of the table in which it has the new name."""

    def plan(newest: Snapshot) -> Sequence[Action]:
        column = _resolved(old, newest)
        if column == new:
            return []
        names = names_of(newest)
        _check_new(new, [name for name in names.shown.names if name != column])
        fields = [f.with_name(new) if f.name == column else f for f in names.shown]
        stored = {f.name: names.stored_name(column if f.name == new else f.name) for f in fields}
        return actions_for(TableView(log.store, newest, settings), pa.schema(fields), stored)

    return log.commit(Transaction(operation=Operation.METADATA, transform=plan)).version


def drop_columns(log: TransactionLog, columns: Iterable[str], *, settings: Config) -> int:
    """Drop columns; returns the version of the table that no longer has them."""
    listed = list(columns)

    def plan(newest: Snapshot) -> Sequence[Action]:
        names = names_of(newest)
        dropped = {_resolved(column, newest) for column in listed}
        if not dropped:
            return []
        left = [field for field in names.shown if field.name not in dropped]
        stored = {field.name: names.stored_name(field.name) for field in left}
        return actions_for(TableView(log.store, newest, settings), pa.schema(left), stored)

    return log.commit(Transaction(operation=Operation.METADATA, transform=plan)).version


def add_columns(
    log: TransactionLog,
    columns: pa.Schema,
    *,
    defaults: Mapping[str, Any] | None = None,
    settings: Config,
) -> int:
    """Add columns; returns the version that has them.

    Existing rows have their `defaults`, or null without one.
    """
    new = _with_defaults(normalize(columns), defaults or {})

    filled = missing_defaults(new, ())

    def plan(newest: Snapshot) -> Sequence[Action]:
        if not len(new):
            return []
        names = names_of(newest)
        fields = list(names.shown)
        for field in new:
            _check_new(field.name, [f.name for f in fields])
            if not field.nullable and newest.num_files and field.name not in filled:
                raise SchemaError(
                    f"The new column '{field.name}' is null in existing rows: make it "
                    "nullable, or give it a default."
                )
            fields.append(field)
        stored = {name: names.stored_name(name) for name in names.shown.names}
        return actions_for(TableView(log.store, newest, settings), pa.schema(fields), stored)

    return log.commit(Transaction(operation=Operation.METADATA, transform=plan)).version


def _with_defaults(columns: pa.Schema, defaults: Mapping[str, Any]) -> pa.Schema:
    """New columns with their defaults, for existing rows and for later ones."""
    if not isinstance(defaults, Mapping):
        raise SchemaError(
            f"defaults is {defaults!r}. Name columns and their values, such as {{'state': 'open'}}."
        )
    for name in defaults:
        if name not in columns.names:
            raise SchemaError(
                f"There is a default for '{name}', which is not one of the new columns: "
                f"{', '.join(columns.names)}."
            )
    fields = []
    for field in columns:
        value = defaults.get(field.name)
        if value is None:
            fields.append(with_existence_default(field, None))
            continue
        if not can_be_default(field.type):
            raise SchemaError(
                f"'{field.name}' is {type_name(field.type)}, which has no default: it is one text, "
                "number, truth value, date or time. Add it without one, then update the rows."
            )
        try:
            scalar = pa.array([value], field.type)[0]
        except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
            raise SchemaError(
                f"The default {value!r} is not a value of '{field.name}', which is "
                f"{type_name(field.type)}: {error}."
            ) from None
        fields.append(with_default(field, scalar))
    return pa.schema(fields)


def set_properties(log: TransactionLog, properties: Mapping[str, str | None]) -> int:
    """Set properties of a table, and unset those whose value is None; returns the version."""

    def plan(newest: Snapshot) -> Sequence[Action]:
        changed = with_properties(newest.metadata, properties)
        return [] if changed == newest.metadata else [changed]

    return log.commit(Transaction(operation=Operation.METADATA, transform=plan)).version


def with_properties(metadata: Metadata, properties: Mapping[str, str | None]) -> Metadata:
    """Metadata with some properties set, or unset where the value is None."""
    for name, value in properties.items():
        if name == "location":
            raise ConfigError(
                "An index table stays where it is. Give its name to another one: DROP TABLE, then "
                "CREATE TABLE … USING indextables LOCATION '…'."
            )
        if name.startswith(INTERNAL_PROPERTIES):
            raise ConfigError(f"The property {name} describes the index and cannot be set.")
        if value is not None and is_own_key(name):
            Config({name: value})  # invalid values are refused here
    own = {canonical(name) for name in properties if is_own_key(name)}
    kept = {
        name: value
        for name, value in metadata.configuration.items()
        if name not in properties and not (is_own_key(name) and canonical(name) in own)
    }
    values = {name: str(value) for name, value in properties.items() if value is not None}
    changed = replace(metadata, configuration={**kept, **values})
    if MAPPING_PROPERTY not in kept:
        return changed
    changed = _analysed_anew(changed, metadata, properties)
    if any(is_own_key(name) and is_about_columns(name) for name in values):
        check_properties_fit(changed)
    return changed


def _analysed_anew(
    metadata: Metadata, before: Metadata, properties: Mapping[str, str | None]
) -> Metadata:
    """Metadata whose mapping has the analyzers of the changed properties.

    Splits that are there keep their words: they are searched row by row until they are merged.
    """
    prefix = keys.TOKENIZER.name.lower()
    touched = {n: v for n, v in properties.items() if canonical(n).startswith(prefix)}
    if not touched:
        return metadata
    shown = shown_metadata(metadata)
    columns = names_in(metadata).shown
    named = analyzers_by_column(columns, Config(known_keys(metadata.configuration)))
    was_named = analyzers_by_column(columns, Config(known_keys(before.configuration)))
    roots = {prefix + name.lower(): name for name in columns.names}
    unset = {roots[key] for key in map(canonical, touched) if key in roots}
    options = {
        **{prefix + column: "default" for column in (was_named.keys() | unset) - named.keys()},
        **{name: value for name, value in touched.items() if value is not None},
    }
    mapping = build_mapping(
        columns,
        Config(options),
        partition_by=shown.partition_columns,
        base=TableMapping.from_json(shown.configuration[MAPPING_PROPERTY]),
    )
    text = stored_mapping(mapping, names_in(metadata).stored).to_json()
    return replace(metadata, configuration={**metadata.configuration, MAPPING_PROPERTY: text})


def actions_for(view: TableView, columns: pa.Schema, stored: Mapping[str, str]) -> list[Action]:
    """What makes these the columns of a table, each by its stored name.

    Columns that are not in `stored` are new.

    Raises:
        SchemaError: A partition column would be dropped, or no column would be left in the splits.
        UnsupportedFeatureError: Older readers may not be shut out of this table.
    """
    snapshot, config, names = view.snapshot, view.settings, view.names
    kept = set(stored.values())
    dropped = [name for name in snapshot.schema.names if name not in kept]
    renamed = {names.shown_name(name): new for new, name in stored.items()}
    renamed = {old: new for old, new in renamed.items() if old != new}
    new_ones = [name for name in columns.names if name not in stored]
    fresh = names.are_new_ones_fresh or bool(dropped or renamed)
    needed = set()
    if fresh and not names.are_new_ones_fresh:
        needed.add(COLUMN_NAMES)
    if snapshot.num_files and missing_defaults(columns, stored):
        needed.add(COLUMN_DEFAULTS)
    needed -= set(snapshot.protocol.reader_features or ())
    protocol: list[Action] = [_protocol(snapshot, config, needed)] if needed else []
    taken_away = [names.shown_name(name) for name in dropped]
    refuse_named_columns(snapshot.metadata, taken_away, "dropped")
    refuse_named_columns(snapshot.metadata, list(renamed), "renamed")
    schema = stored_schema(
        columns, {**stored, **{n: new_stored_name(n) if fresh else n for n in new_ones}}
    )
    _check_dropped(dropped, schema, snapshot)
    metadata = snapshot.metadata
    by_stored = {name: new for new, name in stored.items()}
    follow = {old: by_stored.get(names.stored_name(old)) for old in names.shown.names}
    configuration = properties_of(metadata.configuration, follow)
    base = view.mapping.without(dropped)
    fields = [replace(f, name=by_stored[f.name]) for f in base.fields if f.name in by_stored]
    partition_by = [by_stored[name] for name in snapshot.partition_columns]
    # Session options that name columns by their old names do not apply to existing columns.
    table_keys = known_keys(configuration)
    options = config.over(table_keys) if new_ones else Config(table_keys)
    mapping = build_mapping(
        columns, options, partition_by=partition_by, base=replace(base, fields=tuple(fields))
    )
    text = stored_mapping(mapping, schema).to_json()
    changed: Metadata = replace(
        metadata,
        schema_string=to_json(schema),
        configuration={**configuration, MAPPING_PROPERTY: text},
    )
    return [*protocol, changed]


def _resolved(name: str, snapshot: Snapshot) -> str:
    """The column that a user names, in any case."""
    return resolve_column([name], names_of(snapshot).shown)[0].root


def _check_new(name: str, existing: Iterable[str]) -> None:
    refuse_hidden([name])
    if not name:
        raise SchemaError("A column needs a name.")
    clashes = [other for other in existing if other.lower() == name.lower()]
    if clashes:
        raise SchemaError(f"There is a column '{clashes[0]}' already. Choose another name.")


def _check_dropped(dropped: Sequence[str], schema: pa.Schema, snapshot: Snapshot) -> None:
    shown_name = names_of(snapshot).shown_name
    for name in dropped:
        if name in snapshot.partition_columns:
            raise SchemaError(
                f"'{shown_name(name)}' is a partition column of '{snapshot.uri}' and cannot be "
                "dropped: the folders of its splits are named by it. Write the rows to a new table."
            )
    if not set(schema.names) - set(snapshot.partition_columns):
        raise SchemaError(
            f"'{snapshot.uri}' needs a column that is not a partition column; "
            "not all can be dropped."
        )


def _protocol(snapshot: Snapshot, config: Config, needed: Collection[str]) -> Protocol:
    """Protocol features without which readers would show stored names, or nulls for defaults."""
    if not config[keys.PROTOCOL_AUTO_UPGRADE]:
        raise UnsupportedFeatureError(snapshot.uri, role="writer", features=sorted(needed))
    features = tuple(sorted({*needed, *(DEFAULT_PROTOCOL.reader_features or ())}))
    return replace(DEFAULT_PROTOCOL, reader_features=features, writer_features=features)


# --- partitions that need no rows ------------------------------------------------------------

PartitionTexts = Mapping[str, str]
"""Values as the log spells them, by the stored names of columns; nulls are left out."""


def declared_partitions(metadata: Metadata) -> list[PartitionTexts]:
    """The partitions that were added without rows, in that order.

    One that has splits is listed anyway. A declared one stays when its rows are gone.
    """
    text = metadata.configuration.get(PARTITIONS_PROPERTY)
    partitions: list[PartitionTexts] = [] if text is None else orjson.loads(text)
    return partitions


def add_partitions(log: TransactionLog, partitions: Sequence[PartitionTexts]) -> None:
    """Declare partitions; one that is declared already stays as it is."""

    def added(declared: list[PartitionTexts]) -> list[PartitionTexts]:
        return [*declared, *(one for one in partitions if one not in declared)]

    _change(log, added)


def forget_partitions(log: TransactionLog, partitions: Sequence[PartitionTexts]) -> bool:
    """Declare partitions no more; whether one of them was."""
    return _change(log, lambda declared: [one for one in declared if one not in partitions])


def rename_declared(log: TransactionLog, old: PartitionTexts, new: PartitionTexts) -> None:
    """Give a partition other values, if it is declared."""
    _change(log, lambda declared: [new if one == old else one for one in declared])


def _change(
    log: TransactionLog, change: Callable[[list[PartitionTexts]], list[PartitionTexts]]
) -> bool:
    """Change the declared partitions; whether they are others now."""

    def plan(newest: Snapshot) -> list[Action]:
        before = declared_partitions(newest.metadata)
        after = change(before)
        if after == before:
            return []
        configuration = {
            key: value
            for key, value in newest.metadata.configuration.items()
            if key != PARTITIONS_PROPERTY
        }
        if after:
            configuration[PARTITIONS_PROPERTY] = orjson.dumps(after).decode()
        return [replace(newest.metadata, configuration=configuration)]

    if not plan(log.newest()):
        return False
    log.commit(Transaction(operation=Operation.METADATA, transform=plan))
    return True
