"""What an update has to do: which files are read for which declarations, and in which batches."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from indextables.ariadne import footers
from indextables.ariadne.build_output import Plan
from indextables.ariadne.column_fold import Target
from indextables.ariadne.declarations import Declarations, Temporal, field_type, types_of
from indextables.ariadne.metadata import Metadata
from indextables.ariadne.paths import folder_and_name
from indextables.ariadne.place import IndexPlace
from indextables.ariadne.source import arrow_schema, computed_types
from indextables.ariadne.states import States
from indextables.storage import ObjectMeta

_BATCH_FILES = 1_000
_BATCH_BYTES = 1 << 30
_FOOTERS = 64
"""How many footers a task reads."""


def work(
    states: States, declarations: Declarations
) -> Iterator[tuple[Declarations, dict[str, ObjectMeta], bool]]:
    """Declarations, files to read for them, and whether that extends rows."""
    files = states.expansion.files
    new = {name: meta for name, meta in sorted(files.items()) if name not in states.valid_names}
    if new:
        yield declarations, new, False
    lacking: dict[tuple[str, ...], dict[str, ObjectMeta]] = {}
    names: list[Any] = states.rows.column("filename").to_pylist()
    built: list[Any] = states.rows.column("built").to_pylist()
    for name, columns in zip(names, built, strict=True):
        if name in states.valid_names:
            missing = declarations.missing_from(frozenset(columns))
            if len(missing):
                lacking.setdefault(missing.names, {})[name] = files[name]
    for wanted, group in lacking.items():
        yield Declarations(tuple(d for d in declarations if d.name in wanted)), group, True


def batches(files: Mapping[str, ObjectMeta]) -> Iterator[dict[str, ObjectMeta]]:
    """Files that are read together."""
    batch: dict[str, ObjectMeta] = {}
    size = 0
    for name, meta in files.items():
        if batch and (len(batch) >= _BATCH_FILES or size + meta.size > _BATCH_BYTES):
            yield batch
            batch, size = {}, 0
        batch[name] = meta
        size += meta.size
    if batch:
        yield batch


def targets(
    place: IndexPlace, metadata: Metadata, declarations: Declarations
) -> tuple[Target, ...]:
    """Declarations with the types of their values."""
    name = place.name
    schema = arrow_schema(metadata, name=name)
    computed = computed_types(place.context.spark, metadata, declarations.all, name=name)
    types = types_of(declarations, schema, computed)
    return tuple(
        Target(
            d,
            types[d.name],
            field_type(schema, d.timestamp_column) if isinstance(d, Temporal) else None,
        )
        for d in declarations
    )


def footer_tasks(place: IndexPlace, plan: Plan) -> Iterator[footers.FooterTask]:
    """The files of a plan, some of one folder at a time, whose footers are read together."""
    folders: dict[str, list[tuple[str, int]]] = {}
    for file, meta in plan.files.items():
        folder, name = folder_and_name(file)
        folders.setdefault(folder, []).append((name, meta.size))
    for folder, files in folders.items():
        options = place.context.storage_options(folder)
        for start in range(0, len(files), _FOOTERS):
            some = tuple(files[start : start + _FOOTERS])
            yield footers.FooterTask(folder, options, some, plan.targets)
