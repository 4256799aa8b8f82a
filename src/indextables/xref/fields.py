"""Columns as an XRef knows them, and where their terms are in its index.

The index of every XRef has the same two fields: `w` for terms without blanks, which are added as
one text a split, and `r` for terms that may hold anything. A term begins with the *key* of its
column: a short hash of the column's name, of its mapping's fingerprint and of what its values mean.
So XRefs of tables whose mapping changed can be linked, and a question finds terms only of splits
that were written with the mapping it was made for. Two columns with one key would only keep more
splits than they have to.
"""

from __future__ import annotations

import base64
import functools
import hashlib
import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
import tantivy

from indextables.split.analyzer import Word
from indextables.split.mapping import ROW_FIELD, FieldMapping
from indextables.split.open_index import schema_of
from indextables.split.value_lists import value_class

WORDS_FIELD = "w"
RAW_FIELD = "r"
KEY_LENGTH = 5
MAX_TERM_BYTES = 60_000
"""Tantivy drops longer terms; a list that has one does not count as complete."""

BETWEEN = "\x1f"
"""Stands between the words of a pair; no analyzer lets it through as a blank."""

_BLANK_FREE = ("default", "whitespace")


@dataclass(frozen=True, slots=True)
class TermField:
    """One column with one mapping.

    `meaning` is the class of its values, or `words`, `pairs` of words, or leaves by `paths`.
    """

    column: str
    fingerprint: str
    meaning: str
    has_blanks: bool

    @property
    def key(self) -> str:
        """What the column's terms begin with."""
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


def term_field(mapped: FieldMapping, kind: pa.DataType) -> TermField | None:
    """The column of a mapping in an XRef; `None` if XRefs know nothing about such columns.

    >>> field = term_field(FieldMapping("n", "i64"), pa.int32())
    >>> field.meaning, field.field, len(field.key)
    ('int', 'w', 5)
    """
    if not mapped.indexed or mapped.partition:
        return None
    if mapped.kind in ("text", "json"):
        tokenizer = mapped.tokenizer
        has_blanks = tokenizer not in _BLANK_FREE and not tokenizer.endswith("_stem")
        return TermField(mapped.name, mapped.fingerprint, "words", has_blanks)
    meaning = value_class(mapped, kind)
    if meaning is None:
        return None
    return TermField(mapped.name, mapped.fingerprint, meaning, meaning == "string")


def pair_field(mapped: FieldMapping) -> TermField | None:
    """The pairs of neighbouring words of a column of text, for phrases; `None` if it has none."""
    if mapped.kind != "text" or not mapped.indexed or mapped.partition or mapped.analyzer.is_ngram:
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
