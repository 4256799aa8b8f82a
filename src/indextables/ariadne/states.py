"""The state of every file of an index: which rows still hold, which files have none.

A row holds while its file is registered, exists, has the size and tag (or time) it had when it was
read, and was read under the settings that its values depend on. Everything else is *pending*: a
candidate of every lookup until an update looks at it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa

from indextables.ariadne.declarations import Computed
from indextables.ariadne.metadata import Metadata
from indextables.ariadne.paths import Expansion, expand, is_pattern, matching
from indextables.ariadne.place import IndexPlace
from indextables.storage import ObjectMeta

_OPTIONS = "|options="
"""Stands before the read options in the text of settings."""
_FINDING = ("caseSensitive", "parquet.fieldId.read.enabled")
"""All that values of plain Parquet columns depend on: by what Spark finds a column in a file."""
KEY_COLUMNS = ("filename", "file_size", "modification_time", "etag", "failure", "built", "settings")


@dataclass(frozen=True)
class States:
    """Registered paths, the files they mean now, and the rows that the index has for them."""

    entries: tuple[str, ...]
    expansion: Expansion
    rows: pa.Table
    settings: str

    @cached_property
    def is_valid(self) -> Any:
        """For each row: does it still hold?"""
        columns = [self.rows.column(name).to_pylist() for name in KEY_COLUMNS[:4]]
        files = self.expansion.files
        is_same = (
            name in files and same_file(files[name], size, modified, etag)
            for name, size, modified, etag in zip(*columns, strict=True)
        )
        found: Any = np.fromiter(is_same, bool, self.rows.num_rows)
        # Nearly all rows were built under the same settings.
        texts: Any = self.rows.column("settings").cast(pa.string()).combine_chunks()
        settings = texts.dictionary_encode()
        held = [settings_hold(text, self.settings) for text in settings.dictionary.to_pylist()]
        holds: Any = pa.array(held, pa.bool_()).take(settings.indices).fill_null(False)
        found &= np.asarray(holds)
        found &= np.asarray(self.rows.column("failure").is_null())
        return found & np.asarray(self.rows.column("built").is_valid())

    @cached_property
    def valid_names(self) -> set[str]:
        """The files whose rows hold."""
        names: list[Any] = self.rows.column("filename").to_pylist()
        return {name for name, valid in zip(names, self.is_valid, strict=True) if valid}

    @cached_property
    def pending(self) -> tuple[str, ...]:
        """Files, and registered paths that mean no file, without a row that holds."""
        known = self.valid_names
        files = [name for name in self.expansion.files if name not in known]
        return tuple(sorted({*files, *self.missing}))

    @cached_property
    def missing(self) -> tuple[str, ...]:
        """Registered paths that mean no file. A pattern that matches nothing is none."""
        return tuple(e for e in self.expansion.missing if not is_pattern(e))


def same_file(meta: ObjectMeta, size: Any, modified: Any, etag: Any) -> bool:
    """Whether a file is still the one that was read."""
    if meta.size != size:
        return False
    return bool(meta.etag == etag if meta.etag and etag else meta.modified_ms == modified)


def value_settings(place: IndexPlace, metadata: Metadata) -> str:
    """What the values of an index depend on beside its files; hardly anything for plain Parquet.

    Text is parsed, and expressions are evaluated, in the session's time zone and by its rules. They
    also depend on the whole schema: it is the order of columns that tells those of csv files apart.
    Read options may change anything.
    """
    parsed = metadata.format != "parquet"
    computed = any(isinstance(d, Computed) for d in metadata.declarations)
    found = ""
    if parsed or computed:
        found = f"{place.context.value_settings()};schema={_digest(metadata.schema)}"
    else:
        get = place.context.settings.get
        unusual = [n for n in _FINDING if get(f"spark.sql.{n}", "").lower() == "true"]
        found = ";".join(f"{name}=true" for name in unusual)
    if metadata.read_options:
        found += _OPTIONS + _digest(json.dumps(metadata.read_options, sort_keys=True))
    return found


def _digest(text: str) -> str:
    return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()


def settings_hold(stored: str | None, now: str) -> bool:
    """Whether values that were read under some settings are those that others would give.

    >>> settings_hold("", "zone"), settings_hold("zone", "other"), settings_hold("", "|options=x")
    (True, False, False)
    """
    if stored is None:
        return False
    session, _, options = stored.partition(_OPTIONS)
    session_now, _, options_now = now.partition(_OPTIONS)
    # Values that depend on no session were read of plain columns, found in the usual way.
    is_usual = not any(f"{name}=true".lower() in session_now.lower() for name in _FINDING)
    return options == options_now and session in ("" if is_usual else session_now, session_now)


def look(place: IndexPlace, metadata: Metadata, rows: pa.Table, entries: Sequence[str]) -> States:
    """The states as the stores say now."""
    expansion = expand(entries, place.context.store)
    return States(tuple(entries), expansion, rows, value_settings(place, metadata))


def believe(
    place: IndexPlace, metadata: Metadata, rows: pa.Table, entries: Sequence[str]
) -> States:
    """The states as the last update left them; no store is asked."""
    columns: list[list[Any]] = [rows.column(n).to_pylist() for n in KEY_COLUMNS[:4]]
    known = registered(entries, columns[0])
    files = {
        name: ObjectMeta(name, size or 0, modified or 0, etag)
        for name, size, modified, etag in zip(*columns, strict=True)
        if name in known
    }
    seen = {*files, *(parent for name in files for parent in _parents(name))}
    unseen = [e for e in entries if e not in seen and not is_pattern(e)]
    found: Mapping[str, ObjectMeta] = {e: ObjectMeta(e, -1, -1, None) for e in unseen}
    expansion = Expansion({**files, **found}, ())
    return States(tuple(entries), expansion, rows, value_settings(place, metadata))


def registered(entries: Sequence[str], names: Iterable[str]) -> set[str]:
    """The names that are registered, themselves or by a folder or pattern.

    >>> sorted(registered(["/d", "/e/*.csv"], ["/d/x", "/dx", "/e/x.csv", "/e/x"]))
    ['/d/x', '/e/x.csv']
    """
    exact = set(entries)
    rest = dict.fromkeys(names)
    found = {n for n in rest if n in exact or any(p in exact for p in _parents(n))}
    for pattern in filter(is_pattern, entries):
        others = [name for name in rest if name not in found]
        found.update(n for n, fits in zip(others, matching(pattern, others), strict=True) if fits)
    return found


def _parents(name: str) -> Iterator[str]:
    while "/" in name:
        name = name.rpartition("/")[0]
        yield name or "/"
