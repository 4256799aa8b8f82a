"""What a split holds, listed beside its index: all that cross-references are built from.

The lists are small, lie together and can be read with one request. A list is complete or it is not
there. There are three kinds.

*Words*: the sorted words of each field of words.

*Paths*: what lies where inside JSON and nested columns. A search of `user.name` asks for the words
below one path. The word list of a column does not tell where its words are, and a number equals
others that are spelled differently. So every leaf is also listed under each beginning of its path:
a short hash of the path, then `w` and a word of a text, or `n` and a number, or `b` and a truth
value. Two paths with one hash would only make a cross-reference keep more splits than it has to.

*Values*: the different values of the columns that are compared whole. A value is one text, the same
for equal values whatever the width of their type: `value_texts` makes it for lists and for
questions alike. Columns whose values are nearly all different have no list: it would be as large as
the column, and tell of every value that one split has it.
"""

from __future__ import annotations

import base64
import dataclasses
import functools
import hashlib
import io
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import tantivy

from indextables.split.format.container import (
    IndexFiles,
    Section,
    Sink,
    SplitInfo,
    write_bytes_section,
)
from indextables.split.ip_address import parse_address
from indextables.split.leaves import ArrowColumn, Path, as_integers
from indextables.split.mapping import FieldMapping, TableMapping

WORD_LIST: Final = "terms"
"""The kind of sections that list the words of a field of the index, by the field's name there."""
_MAX_TERM_FILES = 64 << 20
"""Above this size of its term files an index gets no word lists: they would not fit in memory."""


def word_lists(mapping: TableMapping, index: IndexFiles) -> Iterator[tuple[str, list[str]]]:
    """The sorted words of each field of words, with the field's name."""
    fields = [f for f in mapping.indexed if f.kind in ("text", "json")]
    size = sum(f.stat().st_size for f in index.files if f.suffix == ".term")
    if not fields or size > _MAX_TERM_FILES:
        return
    opened = tantivy.Index.open(str(index.files[0].parent))
    opened.config_reader("manual")
    searcher = opened.searcher()
    for field in fields:
        yield field.field, sorted([term for term, _ in searcher.terms_with_prefix(field.field, "")])


def write_terms(sink: Sink, terms: Any, *, kind: str, name: str) -> Section:
    """A one-column Parquet file: its delta encoding keeps only how a word differs from the last."""
    buffer = io.BytesIO()
    pq.write_table(
        pa.table({"term": pa.array(terms, pa.string())}),
        buffer,
        compression="zstd",
        use_dictionary=False,
        column_encoding="DELTA_BYTE_ARRAY",
        write_statistics=False,
        store_schema=False,
    )
    return write_bytes_section(sink, buffer.getvalue(), kind=kind, name=name)


def read_terms(data: bytes) -> pa.ChunkedArray[pa.StringScalar]:
    """The words of a term list."""
    return pq.read_table(pa.BufferReader(data)).column("term")


PATH_LIST: Final = "paths"
"""The kind of sections that list paths, by the column's place in the mapping."""
MANY_LEAVES = 50_000
"""A column with more different leaves has no list."""
_LOOKED_AT = 1_024
"""After so many documents their leaves are counted."""
KEY_LENGTH = 6


@dataclass(frozen=True, slots=True)
class _Node:
    """The different leaves at a path, and the nodes below it."""

    texts: set[str] = dataclasses.field(default_factory=set)
    numbers: set[float] = dataclasses.field(default_factory=set)
    truths: set[bool] = dataclasses.field(default_factory=set)
    below: dict[str, _Node] = dataclasses.field(default_factory=dict)

    def child(self, key: str) -> _Node:
        """The node of a key."""
        node = self.below.get(key)
        if node is None:
            node = self.below[key] = _Node()
        return node

    def add(self, leaf: Any) -> None:
        """Add a leaf that is not null."""
        if isinstance(leaf, str):
            self.texts.add(leaf)
        elif isinstance(leaf, bool):
            self.truths.add(leaf)
        else:
            self.numbers.add(float(leaf) + 0.0)

    def nodes(self) -> Iterator[tuple[Path, _Node]]:
        """All nodes below, with their paths. Documents may be deep: no recursion."""
        stack: list[tuple[Path, _Node]] = [((), self)]
        while stack:
            path, node = stack.pop()
            for key, child in node.below.items():
                stack.append(((*path, key), child))
                yield stack[-1]


@functools.lru_cache(maxsize=65_536)
def path_key(path: Path) -> str:
    """The prefix of terms below a path.

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
    """Gathers the leaves of a split's JSON and nested columns while it is written."""

    def __init__(self, mapping: TableMapping, schema: pa.Schema) -> None:
        self._fields = {
            f"c{place}": field
            for place, field in enumerate(mapping.fields)
            if field.kind == "json" and field.field and _is_plain(schema.field(field.name).type)
        }
        self._roots: dict[str, _Node] = {}

    def add(self, batch: pa.RecordBatch, documents: Mapping[str, Sequence[Any]]) -> None:
        """Look at some rows; `documents` are the columns of JSON, parsed."""
        for name, column in list(self._fields.items()):
            root = self._roots.setdefault(name, _Node())
            if (parsed := documents.get(column.name)) is None:
                _descend(batch.column(column.name), root)
                parsed = ()
            for start in range(0, max(1, len(parsed)), _LOOKED_AT):
                _gather(parsed[start : start + _LOOKED_AT], root)
                leaves = (len(n.texts) + len(n.numbers) + len(n.truths) for _, n in root.nodes())
                if sum(leaves) > MANY_LEAVES:
                    del self._fields[name], self._roots[name]
                    break

    def lists(self) -> Iterator[tuple[str, list[str]]]:
        """The sorted terms of each column that is to have a list, with the section's name."""
        for name, column in self._fields.items():
            yield name, sorted(set(_terms(self._roots.get(name, _Node()), column)))


def _is_plain(data_type: Any) -> bool:
    """Whether all leaves are text, numbers or truth values."""
    types = pa.types
    if types.is_struct(data_type):
        return all(_is_plain(field.type) for field in data_type.fields)
    if types.is_map(data_type):
        return types.is_string(data_type.key_type) and _is_plain(data_type.item_type)
    if types.is_list(data_type):
        return _is_plain(data_type.value_type)
    return bool(
        types.is_string(data_type)
        or types.is_integer(data_type)
        or types.is_floating(data_type)
        or types.is_boolean(data_type)
    )


def _gather(documents: Iterable[Any], root: _Node) -> None:
    for document in documents:
        stack: list[tuple[Any, _Node]] = [(document, root)]
        while stack:
            value, node = stack.pop()
            if value.__class__ is dict:
                below = node.below
                for key, item in value.items():
                    child = below.get(key) or node.child(key)
                    if item.__class__ is str:  # most of them
                        child.texts.add(item)
                    elif item.__class__ is dict or item.__class__ is list:
                        stack.append((item, child))
                    elif item is not None:
                        child.add(item)
            elif value.__class__ is list:
                stack.extend((item, node) for item in value)
            elif value is not None:
                node.add(value)


def _descend(array: ArrowColumn, node: _Node) -> None:
    data_type = array.type
    if pa.types.is_struct(data_type):
        for child, values in zip(data_type.fields, array.flatten(), strict=True):
            _descend(values, node.child(child.name))
    elif pa.types.is_map(data_type):
        # Compute functions for lists abort the process on maps, so it becomes a list first.
        entries = array.cast(pa.list_(pa.struct([data_type.key_field, data_type.item_field])))
        flat: ArrowColumn = pc.list_flatten(entries)
        keys, values = flat.flatten()
        for key in pc.unique(keys).to_pylist():
            _descend(values.filter(pc.equal(keys, pa.scalar(key))), node.child(key))
    elif pa.types.is_list(data_type):
        _descend(pc.list_flatten(array), node)
    else:
        for leaf in pc.unique(array.drop_null()).to_pylist():
            node.add(leaf)


def _terms(root: _Node, column: FieldMapping) -> Iterator[str]:
    words = functools.lru_cache(maxsize=4_096)(
        lambda text: tuple(word.text for word in column.analyzer.words(text))
    )
    for path, node in root.nodes():
        beginnings = [path_key(path[:length]) for length in range(1, len(path) + 1)]
        ends = {f"w{word}" for text in node.texts for word in words(text)}
        ends.update(map(number_text, node.numbers), map(truth_text, node.truths))
        for key in beginnings:
            yield from (key + end for end in ends)


def number_texts(numbers: Iterable[float]) -> list[str]:
    """The terms that a number of a query may have, which a narrow column rounded."""
    texts: dict[str, None] = {}
    for number in numbers:
        texts[number_text(number)] = None
        with np.errstate(over="ignore"):
            texts[number_text(float(np.float32(number)))] = None
    return list(texts)


VALUE_LIST: Final = "values"
"""The kind of sections that list the values of a column, by the column's place in the mapping."""

FEW_VALUES = 1_024
"""Up to so many different values are always listed."""
MANY_VALUES = 200_000
"""More than so many never are."""
_ROWS_A_VALUE = 4


def value_class(field: FieldMapping, data_type: pa.DataType) -> str | None:
    """What the texts of a column's values mean; `None` if its values are not listed.

    Columns of one class can be compared by their texts.

    >>> value_class(FieldMapping("n", "i64"), pa.int16())
    'int'
    """
    while pa.types.is_list(data_type):
        data_type = data_type.value_type
    types = pa.types
    if field.kind in ("string", "ip"):
        return field.kind if types.is_string(data_type) else None
    if field.has_words or field.kind == "bytes":
        return None
    if types.is_integer(data_type):
        return "int"
    if types.is_floating(data_type):
        return "float"
    if types.is_boolean(data_type):
        return "bool"
    if types.is_date32(data_type):
        return "date"
    if types.is_decimal(data_type):
        return f"decimal {data_type.scale}"
    if isinstance(data_type, pa.TimestampType) and data_type.unit == "us":
        return "local time" if data_type.tz is None else "instant"
    return None


def value_texts(values: ArrowColumn, field: FieldMapping) -> ArrowColumn:
    """The text of each value that is not null, for a column that has a class.

    >>> value_texts(pa.array([-0.0, 1.5, None]), FieldMapping("f", "f64")).to_pylist()
    ['0', '1.5']
    """
    values = values.drop_null()
    if field.kind == "ip":
        numbers = (parse_address(text) for text in values.to_pylist())
        return pa.array([str(n) for n in numbers if n is not None], pa.string())
    if pa.types.is_string(values.type) or pa.types.is_decimal(values.type):
        return values.cast(pa.string())
    if pa.types.is_floating(values.type):
        # Adding zero gives -0.0 the sign that it has in SQL.
        doubles: ArrowColumn = pc.add(values.cast(pa.float64()), pa.scalar(0.0))
        texts = doubles.cast(pa.string())
        return pc.if_else(pc.is_nan(doubles), pa.scalar("nan"), texts)
    return as_integers(values).cast(pa.string())


def most_values(rows: int) -> int:
    """How many different values a column of so many rows may have and be listed."""
    return min(MANY_VALUES, max(FEW_VALUES, rows // _ROWS_A_VALUE))


class ValueCollector:
    """Gathers the different values of a split's columns while it is written."""

    def __init__(self, mapping: TableMapping, schema: pa.Schema) -> None:
        self._rows = 0
        self._fields = {
            f"c{place}": field
            for place, field in enumerate(mapping.fields)
            if field.indexed
            and not field.partition
            and value_class(field, schema.field(field.name).type) is not None
        }
        self._distinct: dict[str, ArrowColumn] = {}

    def add(self, batch: pa.RecordBatch) -> None:
        """Look at some rows."""
        self._rows += batch.num_rows
        for name, field in list(self._fields.items()):
            values: ArrowColumn = batch.column(field.name)
            while pa.types.is_list(values.type):
                values = pc.list_flatten(values)
            if field.kind == "string" and _longest(values) > field.token_length:
                del self._fields[name]  # the index leaves such a value out, and so would an XRef
                continue
            distinct: ArrowColumn = pc.unique(values)
            if name in self._distinct:
                distinct = pc.unique(pa.concat_arrays([self._distinct[name], distinct]))
            self._distinct[name] = distinct
            if len(distinct) > most_values(self._rows):
                del self._fields[name], self._distinct[name]

    def lists(self) -> Iterator[tuple[str, ArrowColumn]]:
        """The sorted values of each column that is to have a list, with the section's name."""
        for name, field in self._fields.items():
            values = self._distinct.get(name, pa.array([], pa.string()))
            texts: ArrowColumn = pc.unique(value_texts(values, field))
            yield name, texts.take(pc.sort_indices(texts))


def _longest(values: ArrowColumn) -> int:
    lengths: ArrowColumn = pc.binary_length(values)
    longest: Any = pc.max(lengths)
    return int(longest.as_py() or 0)


def path_sections(info: SplitInfo) -> dict[str, Section]:
    """The path list of each column that has one, by the column's name."""
    sections = {s.name: s for s in info.sections if s.kind == PATH_LIST}
    fields = enumerate(info.mapping.fields)
    return {f.name: sections[f"c{place}"] for place, f in fields if f"c{place}" in sections}


def list_sections(info: SplitInfo) -> dict[str, Section]:
    """The list of words or values of each column that has one, by the column's name."""
    sections = {(s.kind, s.name): s for s in info.sections if s.kind in (WORD_LIST, VALUE_LIST)}
    result = {}
    for place, field in enumerate(info.mapping.fields):
        section = sections.get((VALUE_LIST, f"c{place}"))
        if section is None and field.field:
            section = sections.get((WORD_LIST, field.field))
        if section is not None:
            result[field.name] = section
    return result
