"""What a query reads of an index: the words of a field, and which of their postings."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc


@dataclass(frozen=True, slots=True)
class AllWords:
    """The dictionary of a field, and no postings. Whatever else is named of a field includes it."""

    field: str


@dataclass(frozen=True, slots=True)
class Words:
    """Exactly these words of a field, with their positions for a phrase; bytes as they are."""

    field: str
    words: tuple[str | bytes, ...]
    positions: bool = False


@dataclass(frozen=True, slots=True)
class Beginning:
    """All words of a field that begin with a text; those of `keep` only, if it can tell."""

    field: str
    prefix: str = ""
    keep: Callable[[Sequence[str]], Sequence[str] | None] | None = None


Need = AllWords | Words | Beginning


@dataclass(frozen=True, slots=True)
class Pattern:
    """The words that a wildcard matches. RE2 and Tantivy agree on these patterns."""

    pattern: str

    def __call__(self, words: Sequence[str]) -> Sequence[str] | None:
        spelled = self.pattern.replace("\0", r"\x00")  # RE2 takes a NUL only by its number
        array = pa.array(words, pa.string())
        try:
            matched: Any = pc.match_substring_regex(array, rf"\A(?:{spelled})\z")
        except pa.ArrowInvalid:
            return None
        return [str(word) for word in array.filter(matched).to_pylist()]
