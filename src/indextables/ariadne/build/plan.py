"""What an update has to do: which files are read for which declarations, and in which batches.

A `Plan` is one batch. It is sent to every task.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from indextables.ariadne.build import footers
from indextables.ariadne.build.fold import FileFold, Target
from indextables.ariadne.files.paths import folder_and_name, from_spark
from indextables.ariadne.files.read import arrow_schema, computed_types
from indextables.ariadne.files.state import States
from indextables.ariadne.model.declarations import (
    STAGING,
    Declarations,
    Temporal,
    field_type,
    types_of,
)
from indextables.ariadne.model.metadata import Metadata
from indextables.ariadne.model.rows import FIXED_SCHEMA, STAGED_SCHEMA
from indextables.ariadne.store.place import IndexPlace
from indextables.storage import ObjectMeta

CHANGED = "a file was split, or changed its size while it was read"
_BATCH_FILES = 1_000
_BATCH_BYTES = 1 << 30
_FOOTERS = 64
"""How many footers a task reads."""


@dataclass(frozen=True)
class Plan:
    """What tasks need to know about a batch. Pickled with the credentials, shown without."""

    uri: str
    storage: Mapping[str, object] = field(repr=False)
    batch: str
    targets: tuple[Target, ...]
    files: Mapping[str, ObjectMeta]
    limit: int
    auto_fpr: float
    settings: str
    staged_at: Any
    extends: bool
    """Whether the rows add columns to rows that the index has."""
    by_size: bool = False
    """Whether rows name their file by its size, a number, instead of its path."""

    @property
    def schema(self) -> pa.Schema:
        """The schema of the rows that are staged."""
        own: list[Any] = [f for target in self.targets for f in target.schema]
        return pa.schema([*FIXED_SCHEMA, *own, *STAGED_SCHEMA])

    def row(self, filename: str, folded: Mapping[str, Any]) -> dict[str, Any]:
        """A staged row."""
        meta = self.files[filename]
        return {
            **folded,
            "filename": filename,
            "file_size": meta.size,
            "modification_time": meta.modified_ms,
            "etag": meta.etag,
            "built": [t.schema.names[0] for t in self.targets],
            "settings": self.settings,
            STAGING[0]: self.staged_at,
            STAGING[1]: self.batch,
            STAGING[2]: "extends" if self.extends else None,
        }

    def failed(self, filename: str, reason: str, meta: ObjectMeta | None) -> dict[str, Any]:
        """The staged row of a file that nothing is known about, and why."""
        return {
            "filename": filename,
            "file_size": None if meta is None else meta.size,
            "modification_time": None if meta is None else meta.modified_ms,
            "etag": None if meta is None else meta.etag,
            "failure": reason,
            "built": [],
            "settings": self.settings,
            STAGING[0]: self.staged_at,
            STAGING[1]: self.batch,
        }

    def filename(self, mark: Any) -> str:
        """The file that a row names."""
        if not self.by_size:
            return from_spark(mark)
        name_of_size = next((name for name, meta in self.files.items() if meta.size == mark), None)
        if name_of_size is None:
            raise ValueError(CHANGED)
        return name_of_size

    def fold(self, *, partial: bool = False) -> FileFold:
        """The empty state of a file."""
        return FileFold(self.targets, limit=self.limit, partial=partial)


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
    for lacking_names, group in lacking.items():
        yield Declarations(tuple(d for d in declarations if d.name in lacking_names)), group, True


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
