"""The state of every file of an index: which rows are valid, which files have none.

A row is valid while its file is registered, exists, has the size and tag (or time) that it had when
it was read, and was read under the settings that its values depend on. Every other file is
*pending*: a candidate of every lookup until an update reads it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import numpy as np
import pyarrow as pa

from indextables.ariadne.declarations import Computed, Declaration, Types, storage_column
from indextables.ariadne.files.read import Expansion, computed_types, expand, is_pattern, matching
from indextables.ariadne.metadata import (
    FINDING_SETTINGS,
    KEY_COLUMNS,
    OPTIONS_MARK,
    IndexData,
    Metadata,
    settings_match,
)
from indextables.ariadne.store.index_rows import read_rows
from indextables.ariadne.store.place import IndexPlace
from indextables.config import ARIADNE_CHECK_FILES
from indextables.errors import AriadneArgumentError
from indextables.storage import ObjectMeta


@dataclass(frozen=True)
class States:
    """Registered paths, the files they stand for now, and the rows that the index has for them."""

    entries: tuple[str, ...]
    expansion: Expansion
    rows: pa.Table
    settings: str

    @cached_property
    def is_valid(self) -> Any:
        """For each row: is it still valid?"""
        columns = [self.rows.column(name).to_pylist() for name in KEY_COLUMNS[:4]]
        files = self.expansion.files
        is_same = (
            name in files and same_file(files[name], size, modified, etag)
            for name, size, modified, etag in zip(*columns, strict=True)
        )
        valid: Any = np.fromiter(is_same, bool, self.rows.num_rows)
        # Nearly all rows were built under the same settings.
        texts: Any = self.rows.column("settings").cast(pa.string()).combine_chunks()
        settings = texts.dictionary_encode()
        held = [settings_match(text, self.settings) for text in settings.dictionary.to_pylist()]
        holds: Any = pa.array(held, pa.bool_()).take(settings.indices).fill_null(False)
        valid &= np.asarray(holds)
        valid &= np.asarray(self.rows.column("failure").is_null())
        return valid & np.asarray(self.rows.column("built").is_valid())

    @cached_property
    def valid_names(self) -> set[str]:
        """The files whose rows are valid."""
        names: list[Any] = self.rows.column("filename").to_pylist()
        return {name for name, valid in zip(names, self.is_valid, strict=True) if valid}

    @cached_property
    def pending(self) -> tuple[str, ...]:
        """Files without a valid row, and registered paths without a file."""
        valid = self.valid_names
        files = [name for name in self.expansion.files if name not in valid]
        return tuple(sorted({*files, *self.missing}))

    @cached_property
    def missing(self) -> tuple[str, ...]:
        """Registered paths without a file. A pattern that matches nothing is not missing."""
        return tuple(e for e in self.expansion.missing if not is_pattern(e))


def same_file(meta: ObjectMeta, size: Any, modified: Any, etag: Any) -> bool:
    """Whether a file is still the one that was read."""
    if meta.size != size:
        return False
    return bool(meta.etag == etag if meta.etag and etag else meta.modified_ms == modified)


def value_settings(place: IndexPlace, metadata: Metadata) -> str:
    """What the values of an index depend on besides its files; very little for plain Parquet.

    Text is parsed, and expressions are evaluated, in the session's time zone and by its rules. They
    also depend on the whole schema: the order of columns identifies those of csv files.
    Read options may change anything.
    """
    parsed = metadata.format != "parquet"
    computed = any(isinstance(d, Computed) for d in metadata.declarations)
    settings = ""
    if parsed or computed:
        settings = f"{place.context.value_settings()};schema={_digest(metadata.schema)}"
    else:
        get = place.context.settings.get
        unusual = [n for n in FINDING_SETTINGS if get(f"spark.sql.{n}", "").lower() == "true"]
        settings = ";".join(f"{name}=true" for name in unusual)
    if metadata.read_options:
        settings += OPTIONS_MARK + _digest(json.dumps(metadata.read_options, sort_keys=True))
    return settings


def _digest(text: str) -> str:
    return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()


def check_files(
    place: IndexPlace, metadata: Metadata, rows: pa.Table, entries: Sequence[str]
) -> States:
    """The states of the files as they are in their stores now."""
    expansion = expand(entries, place.context.store)
    return States(tuple(entries), expansion, rows, value_settings(place, metadata))


def assume_unchanged(
    place: IndexPlace, metadata: Metadata, rows: pa.Table, entries: Sequence[str]
) -> States:
    """The states as the last update left them; no request is sent to a store."""
    columns: list[list[Any]] = [rows.column(n).to_pylist() for n in KEY_COLUMNS[:4]]
    still_registered = registered(entries, columns[0])
    files = {
        name: ObjectMeta(name, size or 0, modified or 0, etag)
        for name, size, modified, etag in zip(*columns, strict=True)
        if name in still_registered
    }
    seen = {*files, *(parent for name in files for parent in _parents(name))}
    unseen = [e for e in entries if e not in seen and not is_pattern(e)]
    unseen_files: Mapping[str, ObjectMeta] = {e: ObjectMeta(e, -1, -1, None) for e in unseen}
    expansion = Expansion({**files, **unseen_files}, ())
    return States(tuple(entries), expansion, rows, value_settings(place, metadata))


def registered(entries: Sequence[str], names: Iterable[str]) -> set[str]:
    """The names that are registered, themselves or by a folder or pattern.

    >>> sorted(registered(["/d", "/e/*.csv"], ["/d/x", "/dx", "/e/x.csv", "/e/x"]))
    ['/d/x', '/e/x.csv']
    """
    exact = set(entries)
    unmatched = dict.fromkeys(names)
    covered = {n for n in unmatched if n in exact or any(p in exact for p in _parents(n))}
    for pattern in filter(is_pattern, entries):
        candidates = [name for name in unmatched if name not in covered]
        covered.update(
            n for n, fits in zip(candidates, matching(pattern, candidates), strict=True) if fits
        )
    return covered


def _parents(name: str) -> Iterator[str]:
    while "/" in name:
        name = name.rpartition("/")[0]
        yield name or "/"


def current_data(place: IndexPlace, metadata: Metadata) -> IndexData:
    """Compare the rows of an index with its files, and open the tables that the rows refer to."""
    listed, list_version = place.files.entries()
    entries: list[Any] = listed.column("filename").to_pylist()
    rows, version = read_rows(place)
    how = check_files if place.context.config[ARIADNE_CHECK_FILES] else assume_unchanged
    states = how(place, metadata, rows, entries)
    # Rows can be large, and most of the time all of them are valid.
    files = rows if states.is_valid.all() else rows.filter(pa.array(states.is_valid, pa.bool_()))
    large = {
        name.removeprefix("large_")
        for name in files.column_names
        if name.startswith("large_") and files.column(name).null_count < files.num_rows
    }
    lacking = [
        d
        for d in metadata.declarations.of_kind("computed")
        if storage_column(d) not in files.column_names
    ]
    tables = {name: place.large(name).open() for name in large}
    mark = hashlib.blake2b(digest_size=16)
    for part in (
        version, list_version, metadata.declarations, states.pending, states.missing,
        sorted(states.valid_names), [(n, t and t.version()) for n, t in sorted(tables.items())],
    ):  # fmt: skip
        mark.update(repr(part).encode())
    return IndexData(
        files=files,
        pending=states.pending,
        missing=states.missing,
        declarations=metadata.declarations,
        version=mark.hexdigest(),
        open_large=partial(_opened, tables, place),
        computed_types=_computed_types(place, metadata, lacking),
        drops_rows=metadata.read_option("mode").upper() == "DROPMALFORMED",
    )


def _computed_types(place: IndexPlace, metadata: Metadata, lacking: Sequence[Declaration]) -> Types:
    try:
        return computed_types(place.context.spark, metadata, lacking, name=place.name)
    except AriadneArgumentError:  # conditions cannot name them then
        return {}


def _opened(tables: dict[str, Any], place: IndexPlace, name: str) -> Any:
    if name not in tables:
        tables[name] = place.large(name).open()
    return tables[name]
