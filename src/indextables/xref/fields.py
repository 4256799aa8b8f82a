"""Columns as an XRef sees them, and the terms that one split has in them.

The index of every XRef has the same two fields: `w` for terms without blanks, which are added as
one text a split, and `r` for terms that may hold anything. A term begins with the *key* of its
column: a short hash of the column's name, of its mapping's fingerprint and of what its values mean.
So XRefs of tables whose mapping changed can be linked, and a question finds terms only of splits
that were written with the mapping it was made for. Two columns with one key would only keep more
splits than they have to.

The terms of a source split are read from its lists alone. Those lie together before the footer, so
a small split is read with one request and a large one with two. What is missing or damaged is left
out: the XRef then says that it does not know.
"""

from __future__ import annotations

import base64
import functools
import hashlib
import itertools
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import tantivy

from indextables.config import XREF_BLOOM_FIELDS
from indextables.errors import DamagedSplitError, SplitFileError, XRefError
from indextables.split.format import (
    Footer,
    RowReader,
    list_sections,
    path_sections,
    read_footer,
    read_section,
    read_terms,
    schema_of,
    value_class,
    value_texts,
)
from indextables.split.mapping import ROW_FIELD, FieldMapping
from indextables.split.text_steps import Word
from indextables.storage import Store

WORDS_FIELD = "w"
RAW_FIELD = "r"
KEY_LENGTH = 5
MAX_TERM_BYTES = 60_000
"""Tantivy drops longer terms; a list that has one does not count as complete."""

BETWEEN = "\x1f"
"""Stands between the words of a pair; no analyzer lets it through as a blank."""


@dataclass(frozen=True, slots=True)
class TermField:
    """One column with one mapping.

    `meaning` is the class of its values, or `words`, `pairs` of words, or leaves by `paths`.
    """

    column: str
    fingerprint: str
    meaning: str
    has_blanks: bool
    has_default: bool = False
    """Whether rows of a split without the column have a value in it all the same."""

    @property
    def key(self) -> str:
        """The prefix of the column's terms."""
        return _key(self.column, self.fingerprint, self.meaning)

    @property
    def field(self) -> str:
        """The field of the XRef's index."""
        return RAW_FIELD if self.has_blanks else WORDS_FIELD

    def to_document(self) -> dict[str, Any]:
        """The entry in the XRef's description."""
        return {
            "key": self.key,
            "column": self.column,
            "fingerprint": self.fingerprint,
            "meaning": self.meaning,
        }


def term_field(mapped: FieldMapping, data_type: pa.DataType) -> TermField | None:
    """The column of a mapping in an XRef; `None` if XRefs know nothing about such columns.

    >>> field = term_field(FieldMapping("n", "i64"), pa.int32())
    >>> field.meaning, field.field, len(field.key)
    ('int', 'w', 5)
    """
    if not mapped.indexed or mapped.partition:
        return None
    if mapped.kind in ("text", "json"):
        return TermField(mapped.name, mapped.fingerprint, "words", mapped.analyzer.has_blanks)
    meaning = value_class(mapped, data_type)
    if meaning is None:
        return None
    return TermField(mapped.name, mapped.fingerprint, meaning, meaning == "string")


def pair_field(mapped: FieldMapping) -> TermField | None:
    """The pairs of neighbouring words of a column of text, for phrases; `None` if it has none."""
    analyzer = mapped.analyzer
    if mapped.kind != "text" or analyzer.is_ngram or analyzer.overlaps:
        return None
    words = term_field(mapped, pa.string())
    return None if words is None else replace(words, meaning="pairs")


def path_field(mapped: FieldMapping) -> TermField | None:
    """The leaves of a JSON or nested column by their path; `None` if it has none."""
    words = term_field(mapped, pa.string()) if mapped.kind == "json" else None
    return None if words is None else replace(words, meaning="paths")


def pairs(words: Sequence[Word]) -> list[str]:
    """The pairs of words that stand side by side, each as one term.

    >>> from indextables.split.analyzer import Analyzer
    >>> [pair.split(BETWEEN) for pair in pairs(Analyzer("default").words("one two three"))]
    [['one', 'two'], ['two', 'three']]
    """
    return [
        f"{left.text}{BETWEEN}{right.text}"
        for left, right in itertools.pairwise(words)
        if right.position == left.position + 1
    ]


def index_schema() -> tantivy.Schema:
    """The schema of the index of every XRef."""
    builder = tantivy.SchemaBuilder()
    builder.add_unsigned_field(ROW_FIELD, fast=True)
    builder.add_text_field(WORDS_FIELD, tokenizer_name="whitespace", index_option="basic")
    builder.add_text_field(RAW_FIELD, tokenizer_name="raw", index_option="basic")
    return builder.build()


@functools.cache
def index_document() -> list[Any]:
    """The same as Tantivy writes it."""
    return schema_of(index_schema())


@functools.lru_cache(maxsize=4_096)
def _key(column: str, fingerprint: str, meaning: str) -> str:
    # A NUL would be the only way to make two columns look the same; no name holds one.
    digest = hashlib.sha256(f"{column}\0{fingerprint}\0{meaning}".encode()).digest()
    return base64.b32encode(digest).decode().lower()[:KEY_LENGTH]


_BEFORE_FOOTER = 256 << 10
"""How much is read before a footer, in the hope that all lists are in it."""
_BLANKS = r"[\t\n\x0C\r ]|^$"


@dataclass(frozen=True, slots=True)
class XRefSource:
    """A split to be covered, as the log's entry describes it."""

    path: str
    size: int
    num_records: int
    footer_start: int | None = None
    footer_end: int | None = None


@dataclass(frozen=True, slots=True)
class SourceTerms:
    """The terms of a split by field, and all its columns if they are known.

    `identifiers` are the values of columns that get bloom filters instead.
    """

    source: XRefSource
    columns: tuple[str, ...] | None
    terms: tuple[tuple[TermField, Any], ...] = ()
    identifiers: tuple[tuple[TermField, Any], ...] = ()


def read_source(
    store: Store, source: XRefSource, *, bloom: Collection[str] = (), positions: bool = False
) -> SourceTerms:
    """Read the lists of a split. Of a split that cannot be read nothing is known.

    Columns of `bloom` that have no list are read themselves, and for `positions` all text is.
    """
    reader = _Tail(store, source)
    try:
        footer = read_footer(
            reader.read,
            source.size,
            path=source.path,
            start=source.footer_start,
            end=source.footer_end,
        )
    except SplitFileError:
        return SourceTerms(source, None)
    term_lists = list(_lists(footer, reader))
    lists = {
        field.column: (field, terms) for field, terms in term_lists if field.meaning != "paths"
    }
    identifiers = []
    for mapped in footer.info.mapping.fields:
        if mapped.name not in bloom:
            continue
        field = term_field(mapped, _type_of(mapped, footer))
        if field is None or field.meaning == "words":
            raise XRefError(
                f"The column '{mapped.name}' gets no bloom filter: it is searched by words, or not "
                f"at all. Take it out of {XREF_BLOOM_FIELDS.name}."
            )
        stored = lists.pop(mapped.name, None)
        if stored is None and not footer.has_rows:
            continue
        try:
            values = _column(store, source, footer, mapped) if stored is None else stored[1]
        except DamagedSplitError:
            continue
        identifiers.append((field, values))
    # Of the columns of a source that are not indexed nothing is known, not that they are null.
    columns = tuple(footer.schema.names) if footer.has_rows else None
    terms = [*lists.values(), *((f, t) for f, t in term_lists if f.meaning == "paths")]
    if positions and footer.has_rows:
        terms += _pairs(store, source, footer)
    return SourceTerms(source, columns, tuple(terms), tuple(identifiers))


def _type_of(mapped: FieldMapping, footer: Footer) -> Any:
    """The type of a column. Where the rows are elsewhere it is not known, and text is assumed:
    lists of other values are not used then."""
    return footer.schema.field(mapped.name).type if footer.has_rows else pa.string()


def _pairs(store: Store, source: XRefSource, footer: Footer) -> Iterator[tuple[TermField, Any]]:
    """The pairs of neighbouring words of every column of text, from the rows."""
    for mapped in footer.info.mapping.fields:
        field = pair_field(mapped)
        if field is None:
            continue
        try:
            texts = _values(store, source, footer, mapped).drop_null().to_pylist()
        except DamagedSplitError:
            continue
        encoded = pa.array(
            sorted({pair for text in texts for pair in pairs(mapped.analyzer.words(text))}),
            pa.string(),
        )
        if _fits(encoded, field):
            yield field, encoded


def _column(store: Store, source: XRefSource, footer: Footer, mapped: FieldMapping) -> Any:
    """The values of a column as texts, from the rows."""
    return value_texts(_values(store, source, footer, mapped), mapped)


def _values(store: Store, source: XRefSource, footer: Footer, mapped: FieldMapping) -> Any:
    """The different values of a column, those inside lists one by one."""
    values: Any = RowReader(store, source.path, footer).read_column(mapped.name, None)
    while pa.types.is_list(values.type):
        values = pc.list_flatten(values)
    return pc.unique(values)


def _lists(footer: Footer, reader: _Tail) -> Iterator[tuple[TermField, Any]]:
    lists, paths = list_sections(footer.info), path_sections(footer.info)
    sections = [*lists.values(), *paths.values()]
    if sections:
        reader.load(min(s.offset for s in sections), max(s.offset + s.length for s in sections))
    mapping = footer.info.mapping
    fields = [(lists.get(f.name), term_field(f, _type_of(f, footer))) for f in mapping.fields]
    fields += [(paths.get(f.name), path_field(f)) for f in mapping.fields]
    for section, field in fields:
        if section is None or field is None:
            continue
        try:
            words: Any = read_terms(read_section(reader.read, section, path=reader.path))
        except (DamagedSplitError, pa.ArrowException, OSError):
            continue
        if _fits(words, field):
            yield field, words


def _fits(terms: Any, field: TermField) -> bool:
    """Whether the index of an XRef can hold all of these."""
    longest: Any = pc.max(pc.binary_length(terms))
    if (longest.as_py() or 0) > MAX_TERM_BYTES:
        return False
    if field.has_blanks:
        return True
    blank: Any = pc.any(pc.match_substring_regex(terms, _BLANKS))
    return not blank.as_py()


class _Tail:
    """Ranges of a split, served from what was read before where they lie in it."""

    def __init__(self, store: Store, source: XRefSource) -> None:
        self._store = store
        self.path = source.path
        self._size = source.size
        self._start = self._end = 0
        self._data = b""
        if source.footer_start is not None and 0 <= source.footer_start < source.size:
            self.load(max(0, source.footer_start - _BEFORE_FOOTER), source.size)

    def load(self, start: int, end: int) -> None:
        """Fetch a range, unless it is there already."""
        if not self._start <= start <= end <= self._end:
            self._data = self._store.get_range(self.path, start, end)
            self._start, self._end = start, end

    def read(self, start: int, end: int) -> bytes:
        """A range of the file."""
        if self._start <= start <= end <= self._end:
            return self._data[start - self._start : end - self._start]
        return self._store.get_range(self.path, start, end)
