"""Values of columns: hashes, bloom filters, words, distinct values, keys in a column's type."""

from __future__ import annotations

from indextables.ariadne.values import bloom
from indextables.ariadne.values.bloom import Filters, may_hold_any, probe, value_count
from indextables.ariadne.values.distinct import Distinct, DistinctHashes, unique
from indextables.ariadne.values.hashing import can_hash, hash_values
from indextables.ariadne.values.key_types import ConvertedKeys, as_type
from indextables.ariadne.values.words import WordList, Words, word_count

__all__ = [
    "ConvertedKeys",
    "Distinct",
    "DistinctHashes",
    "Filters",
    "WordList",
    "Words",
    "as_type",
    "bloom",
    "can_hash",
    "hash_values",
    "may_hold_any",
    "probe",
    "unique",
    "value_count",
    "word_count",
]
