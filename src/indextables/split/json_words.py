"""Which questions the words of a JSON column answer.

The index holds the text of every leaf of a row, cut into words: 2.5 is `2` and `5`. But numbers,
truth values and dates are compared as values, whatever their text. So a question whose words may
come from one of those is decided by the rows, leaf by leaf.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from indextables.predicate import FieldNode, Phrase, Term, TermSet, Wildcard
from indextables.split.analyzer import Analyzer
from indextables.split.typed import intervals

_OF_VALUES = frozenset("0123456789truefalsnizd")
"""What the words of values are made of: 1e5, true, false, nan, inf, 12Z."""


def words_decide(node: FieldNode, analyzer: Analyzer) -> bool:
    """Whether no number, truth value or date can hold the words of a question."""
    if analyzer.is_ngram:
        return False
    match node:
        case Term(text=text) | Phrase(text=text, slop=0):
            return _has_a_word(text, analyzer)
        case TermSet(values=values):
            return all(_has_a_word(text, analyzer) for text in values)
        case Wildcard(parts=parts):
            return any(_is_word(part) for part in parts if isinstance(part, str))
        case _:
            return False


def _has_a_word(text: str, analyzer: Analyzer) -> bool:
    words = analyzer.words(text)
    return not words or any(_is_word(word.text) for word in words)


def _is_word(text: str) -> bool:
    return not _OF_VALUES.issuperset(text.lower())


def values_have_words(node: FieldNode, kind: pa.DataType, analyzer: Analyzer) -> bool:
    """Whether every leaf that matches also has the question's words in the index.

    A number equals `42.0` without holding that text. Patterns never match a value.
    """
    match node:
        case Term(text=text) | Phrase(text=text):
            texts: Sequence[str] = (text,)
        case TermSet(values=values):
            texts = values
        case _:
            return True
    return all(_has_one_spelling(t, analyzer) or not could_be_value(t, kind) for t in texts)


def could_be_value(text: str, kind: pa.DataType) -> bool:
    """Whether a text means a number or another value that a column of a type may hold."""
    kinds: list[pa.DataType] = [pa.float64(), pa.bool_()]
    if not pa.types.is_string(kind):
        kinds.append(pa.timestamp("us"))  # JSON has no dates
    return any(intervals(Term(None, text), each) for each in kinds)


def _has_one_spelling(text: str, analyzer: Analyzer) -> bool:
    """Whether a value has one word in the index, and this text the same one."""
    if not analyzer.lowercases or analyzer.is_ngram:
        return False  # 5.00 would be one word
    digits = text.removeprefix("-")
    if digits.isascii() and digits.isdecimal() and len(digits) <= 4:
        return str(int(digits)) == digits
    return text in ("true", "false")
