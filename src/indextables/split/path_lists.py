"""Path lists: what lies where inside JSON and nested columns, for cross-references.

A search of `user.name` asks for the words below one path. The word list of a column does not tell
where its words are, and a number equals others that are spelled differently. So every leaf is also
listed under each beginning of its path: a short hash of the path, then `w` and a word of a text, or
`n` and a number, or `b` and a truth value. Two paths with one hash would only make a
cross-reference keep more splits than it has to.
"""

from __future__ import annotations

import base64
import functools
import hashlib
from collections.abc import Iterable, Iterator
from typing import Any, Final

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc

from indextables.split.leaves import ArrowColumn, Path
from indextables.split.mapping import FieldMapping, Mapping

PATH_LIST: Final = "paths"
"""The kind of sections that list paths, by the column's place in the mapping."""
MANY_LEAVES = 50_000
"""A column with more different leaves has no list."""
KEY_LENGTH = 6

Found = dict[Path, set[str]]
"""Leaves by path: a text behind a `t`, other values as their term."""


@functools.lru_cache(maxsize=65_536)
def path_key(path: Path) -> str:
    """What terms below a path begin with.

    >>> len(path_key(("user", "name")))
    6
    """
    digest = hashlib.sha256("\0".join(path).encode("utf-8", "surrogatepass")).digest()
    return base64.b32encode(digest).decode().lower()[:KEY_LENGTH]


def number_text(number: float) -> str:
    """A number as a term: equal numbers have equal texts, whatever their type.

    >>> number_text(42) == number_text(42.0), number_text(-0.0)
    (True, 'n0.0')
    """
    return f"n{float(number) + 0.0!r}"


def truth_text(value: bool) -> str:
    """A truth value as a term."""
    return f"b{int(value)}"


class PathCollector:
    """Gathers the leaves of a split's JSON and nested columns while its rows pass by."""

    def __init__(self, mapping: Mapping, schema: pa.Schema) -> None:
        self._fields = {
            f"c{place}": field
            for place, field in enumerate(mapping.fields)
            if field.kind == "json" and field.field and _is_plain(schema.field(field.name).type)
        }
        self._found: dict[str, Found] = {}

    def add(self, batch: pa.RecordBatch) -> None:
        """Look at some rows."""
        for name, field in list(self._fields.items()):
            column: ArrowColumn = batch.column(field.name)
            found = self._found.setdefault(name, {})
            if pa.types.is_string(column.type):
                _parse(column.drop_null().to_pylist(), found)
            else:
                _descend(column, (), found)
            if sum(map(len, found.values())) > MANY_LEAVES:
                del self._fields[name], self._found[name]

    def lists(self) -> Iterator[tuple[str, list[str]]]:
        """The sorted terms of each column that is to have a list, with the section's name."""
        for name, field in self._fields.items():
            yield name, sorted(set(_terms(self._found.get(name, {}), field)))


def _is_plain(kind: Any) -> bool:
    """Whether all leaves are text, numbers or truth values."""
    types = pa.types
    if types.is_struct(kind):
        return all(_is_plain(field.type) for field in kind.fields)
    if types.is_map(kind):
        return types.is_string(kind.key_type) and _is_plain(kind.item_type)
    if types.is_list(kind):
        return _is_plain(kind.value_type)
    return bool(
        types.is_string(kind)
        or types.is_integer(kind)
        or types.is_floating(kind)
        or types.is_boolean(kind)
    )


def _parse(texts: Iterable[str], found: Found) -> None:
    for text in texts:
        try:
            document = orjson.loads(text)
        except orjson.JSONDecodeError:
            continue  # text that is no JSON has no paths
        stack: list[tuple[Any, Path]] = [(document, ())]
        while stack:
            value, path = stack.pop()
            if isinstance(value, dict):
                stack.extend((item, (*path, key)) for key, item in value.items())
            elif isinstance(value, list):
                stack.extend((item, path) for item in value)
            elif value is not None and path:
                found.setdefault(path, set()).add(_leaf(value))


def _leaf(value: Any) -> str:
    if isinstance(value, str):
        return f"t{value}"
    return truth_text(value) if isinstance(value, bool) else number_text(value)


def _descend(array: ArrowColumn, path: Path, found: Found) -> None:
    kind = array.type
    if pa.types.is_struct(kind):
        for field, child in zip(kind.fields, array.flatten(), strict=True):
            _descend(child, (*path, field.name), found)
    elif pa.types.is_map(kind):
        # Compute functions for lists abort the process on maps, so it becomes a list first.
        entries = array.cast(pa.list_(pa.struct([kind.key_field, kind.item_field])))
        flat: ArrowColumn = pc.list_flatten(entries)
        keys, values = flat.flatten()
        for key in pc.unique(keys).to_pylist():
            _descend(values.filter(pc.equal(keys, pa.scalar(key))), (*path, key), found)
    elif pa.types.is_list(kind):
        _descend(pc.list_flatten(array), path, found)
    elif path:
        leaves = pc.unique(array.drop_null()).to_pylist()
        found.setdefault(path, set()).update(map(_leaf, leaves))


def _terms(found: Found, field: FieldMapping) -> Iterator[str]:
    words = functools.lru_cache(maxsize=4_096)(
        lambda text: tuple(word.text for word in field.analyzer.words(text))
    )
    for path, leaves in found.items():
        beginnings = [path_key(path[:length]) for length in range(1, len(path) + 1)]
        for leaf in leaves:
            ends = [f"w{word}" for word in words(leaf[1:])] if leaf[0] == "t" else [leaf]
            for key in beginnings:
                for end in ends:
                    yield key + end


def number_texts(numbers: Iterable[float]) -> list[str]:
    """The terms that a number of a query may have, which a narrow column rounded."""
    found: dict[str, None] = {}
    for number in numbers:
        found[number_text(number)] = None
        with np.errstate(over="ignore"):
            found[number_text(float(np.float32(number)))] = None
    return list(found)
