"""The values inside a column: what a nested or JSON column holds at a path, and for which row.

A struct is entered by the names of its fields, a map by its keys, a list has many values for one
row, and a string of JSON is parsed. What is found is typed Arrow again, with the row of each
value, so that one comparison serves columns and leaves alike.
"""

from __future__ import annotations

import decimal
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc

from indextables.split.row_numbers import RowNumbers


def as_integers(column: ArrowColumn) -> ArrowColumn:
    """A column of whole numbers, booleans, dates, timestamps or short decimals as integers."""
    if pa.types.is_decimal(column.type):
        scale = column.type.scale
        factor = pa.scalar(decimal.Decimal(10**scale), pa.decimal128(scale + 1, 0))
        return pc.multiply(column, factor).cast(pa.int64())
    if pa.types.is_date(column.type):
        return column.cast(pa.int32()).cast(pa.int64())
    return column.cast(pa.int64())


ArrowColumn: TypeAlias = Any
"""An Arrow array. The stubs of pyarrow do not know what nested arrays can do."""
Path: TypeAlias = tuple[str, ...]

_INT64 = range(-(2**63), 2**63)
_WIDE = pa.decimal128(38, 0)
_LONG_NUMBER = "[0-9]{19}"


@dataclass(frozen=True, slots=True)
class Leaves:
    """Values that are not null, and the row that each belongs to, in ascending order."""

    values: ArrowColumn
    rows: RowNumbers


def leaves(
    column: ArrowColumn, path: Path = (), *, parse_json: bool = False, below: bool = True
) -> list[Leaves]:
    """The leaves of a column at a path, one item for each type that occurs.

    With `below` also those of structs, maps and objects that lie there.

    >>> column = pa.array([{"a": [1, 2]}, None, {"a": [3]}])
    >>> [(x.values.to_pylist(), x.rows.tolist()) for x in leaves(column, ("a",))]
    [([1, 2, 3], [0, 0, 2])]
    """
    rows = np.arange(len(column), dtype=np.int64)
    parts = _descend(column, rows, path, parse_json, below)
    return [part for part in parts if len(part.rows)]


def _descend(
    array: ArrowColumn, rows: RowNumbers, path: Path, parse_json: bool, below: bool
) -> Iterator[Leaves]:
    data_type = array.type
    if not path and not below and (pa.types.is_struct(data_type) or pa.types.is_map(data_type)):
        return
    if pa.types.is_struct(data_type):
        children = array.flatten()
        for index, field in enumerate(data_type.fields):
            if not path or field.name == path[0]:
                yield from _descend(children[index], rows, path[1:], parse_json, below)
    elif pa.types.is_map(data_type):
        # Compute functions for lists abort the process on maps, so it becomes a list first.
        entries = pa.struct([data_type.key_field, data_type.item_field])
        array = array.cast(pa.list_(entries))
        parents = rows[_parents(array)]
        flat: ArrowColumn = pc.list_flatten(array)
        keys, values = flat.flatten()
        if path:
            keep: ArrowColumn = pc.equal(keys.cast(pa.string()), pa.scalar(path[0]))
            parents = parents[keep.to_numpy(zero_copy_only=False)]
            values = values.filter(keep)
        yield from _descend(values, parents, path[1:], parse_json, below)
    elif pa.types.is_list(data_type):
        inner = pc.list_flatten(array)
        yield from _descend(inner, rows[_parents(array)], path, parse_json, below)
    else:
        if array.null_count:
            valid = array.is_valid()
            array, rows = array.filter(valid), rows[valid.to_numpy(zero_copy_only=False)]
        if parse_json and pa.types.is_string(data_type):
            yield from _parsed(array, rows.tolist(), path, below)
        elif not path:
            yield Leaves(array, rows)


def _parents(array: ArrowColumn) -> RowNumbers:
    parents: ArrowColumn = pc.list_parent_indices(array)
    return np.asarray(parents, dtype=np.int64)


def _parsed(column: ArrowColumn, rows: list[int], path: Path, below: bool) -> Iterator[Leaves]:
    by_type: dict[pa.DataType, tuple[list[Any], list[int]]] = {}
    for document, row in zip(json_documents(column), rows, strict=True):
        for value in _document_leaves(document, path, below):
            data_type = _json_type(value)
            values, owners = by_type.setdefault(data_type, ([], []))
            values.append(float(value) if data_type == pa.float64() else value)
            owners.append(row)
    for data_type, (values, owners) in by_type.items():
        yield Leaves(pa.array(values, data_type), np.array(owners, dtype=np.int64))


def _json_type(value: object) -> pa.DataType:
    if isinstance(value, bool):
        return pa.bool_()
    if isinstance(value, str):
        return pa.string()
    if not isinstance(value, int):
        return pa.float64()
    if value in _INT64:
        return pa.int64()
    return _WIDE if abs(value) < 10**_WIDE.precision else pa.float64()


def json_documents(column: ArrowColumn) -> list[Any]:
    """The JSON document of each text; a text that is not JSON is a string.

    Whole numbers of more than 64 bits keep their digits, which orjson drops.

    >>> json_documents(pa.array(['{"a": [1, true]}', None, "no JSON"]))
    [{'a': [1, True]}, None, 'no JSON']
    """
    long_numbers: ArrowColumn = pc.match_substring_regex(column, _LONG_NUMBER)
    documents: list[Any] = []
    for text, has_long_number in zip(column.to_pylist(), long_numbers.to_pylist(), strict=True):
        try:
            document = None if text is None else orjson.loads(text)
            documents.append(json.loads(text) if has_long_number else document)
        except (ValueError, RecursionError):
            documents.append(text)
    return documents


def _document_leaves(
    document: Any, path: Path = (), within: bool = True
) -> Iterator[str | int | float | bool]:
    stack: list[tuple[Any, Path]] = [(document, path)]
    while stack:
        value, below = stack.pop()
        if isinstance(value, dict):
            if not below and not within:
                continue
            inner: Iterable[Any] = (
                value.values() if not below else [value[below[0]]] if below[0] in value else ()
            )
            stack.extend((item, below[1:]) for item in reversed(list(inner)))
        elif isinstance(value, list):
            stack.extend((item, below) for item in reversed(value))
        elif value is not None and not below:
            yield value


def leaf_texts(column: ArrowColumn) -> list[list[str] | None]:
    """Every leaf of each row of a nested column as text, for a row that has any."""
    texts: list[str] = []
    owners: list[RowNumbers] = []
    for leaf in leaves(column):
        if not pa.types.is_binary(leaf.values.type):
            texts.extend(leaf.values.cast(pa.string()).to_pylist())
            owners.append(leaf.rows)
    result: list[list[str] | None] = [None] * len(column)
    for row, text in zip(np.concatenate(owners).tolist() if owners else (), texts, strict=True):
        if (texts_of_row := result[row]) is None:
            result[row] = [text]
        else:
            texts_of_row.append(text)
    return result


def document_texts(documents: Iterable[Any]) -> list[list[str] | None]:
    """Every leaf of each JSON document as text, for a document that has any.

    >>> document_texts([{"a": ["x", 1, 1.0], "b": {"c": True}}, None])
    [['x', '1', '1', 'true'], None]
    """
    result: list[list[str] | None] = []
    numbers: list[_Number] = []
    for document in documents:
        texts: list[str] = []
        before = len(numbers)
        try:
            _add_texts(document, texts, numbers)
        except RecursionError:
            del texts[:], numbers[before:]
            for leaf in _document_leaves(document):
                _add_texts(leaf, texts, numbers)
        result.append(texts or None)
    # Numbers are spelled as those of a column are.
    spelled: ArrowColumn = pa.array([number for number, _, _ in numbers], pa.float64()).cast(
        pa.string()
    )
    for text, (_, texts, place) in zip(spelled.to_pylist(), numbers, strict=True):
        texts[place] = text
    return result


_Number = tuple[float, list[str], int]
"""A number, and where its text belongs."""


def _add_texts(value: Any, texts: list[str], numbers: list[_Number]) -> None:
    value_type = value.__class__
    # A call for each leaf would cost more than all the rest.
    for item in value.values() if value_type is dict else value if value_type is list else (value,):
        value_type = item.__class__
        if value_type is str:
            texts.append(item)
        elif value_type is dict or value_type is list:
            _add_texts(item, texts, numbers)
        elif value_type is bool:
            texts.append("true" if item else "false")
        elif value_type is int and (item in _INT64 or _json_type(item) != pa.float64()):
            texts.append(str(item))
        elif item is not None:
            numbers.append((float(item), texts, len(texts)))
            texts.append("")
