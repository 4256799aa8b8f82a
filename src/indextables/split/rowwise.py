"""Answering a leaf from the rows: what the index does not hold, or cannot decide.

Numbers and their like are compared in their column. Words that lie at a path inside JSON, and
phrases of a field without positions, are looked up in an index in memory over the rows in question.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from zoneinfo import ZoneInfo

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from indextables.predicate import Exists, FieldNode, Phrase, Range
from indextables.split.compile import Compiler
from indextables.split.compile_words import DEFAULT_MAX_EXPANSIONS, in_range
from indextables.split.indexer import document_values
from indextables.split.leaves import ArrowColumn, Leaves, leaves
from indextables.split.mapping import FieldMapping
from indextables.split.memory_index import MemoryIndex
from indextables.split.query import Leaf
from indextables.split.slop import is_near, positions
from indextables.split.typed import UTC, intervals, is_numeric, matches

Mask = npt.NDArray[np.bool_]


def rowwise(
    leaf: Leaf,
    column: ArrowColumn,
    *,
    zone: ZoneInfo = UTC,
    max_expansions: int = DEFAULT_MAX_EXPANSIONS,
) -> Mask:
    """Which rows of a column match a leaf."""
    field, node = leaf.field, leaf.node
    as_json = field.kind == "json" and pa.types.is_string(column.type)
    answer = _Answer(field, node, zone, max_expansions, as_json=as_json)
    if isinstance(node, Exists):
        return _any(leaves(column, leaf.path, parse_json=as_json), len(column), answer.everything)
    if field.kind == "json":
        # A path leads to the value itself, not to what lies below it.
        found = leaves(column, leaf.path, parse_json=as_json, below=not leaf.path)
        return _any(found, len(column), answer.leaf)
    if field.kind == "string" and isinstance(node, Range):
        return _any(leaves(column), len(column), answer.text_range)
    if field.has_words or field.kind == "ip":
        return answer.documents(document_values(column, field))
    return _any(leaves(column), len(column), answer.leaf)


def _any(found: list[Leaves], rows: int, answer: Callable[[ArrowColumn], Mask]) -> Mask:
    """Rows with at least one value that matches."""
    result = np.zeros(rows, dtype=np.bool_)
    for part in found:
        result[part.rows[answer(part.values)]] = True
    return result


class _Answer:
    """What one leaf says about values, whatever rows they belong to."""

    def __init__(
        self,
        field: FieldMapping,
        node: FieldNode,
        zone: ZoneInfo,
        max_expansions: int,
        *,
        as_json: bool,
    ) -> None:
        self.field, self.node, self.zone = field, node, zone
        self.as_json = as_json
        self.max_expansions = max_expansions

    def everything(self, values: ArrowColumn) -> Mask:
        return np.ones(len(values), dtype=np.bool_)

    def leaf(self, values: ArrowColumn) -> Mask:
        """One value of a nested column, or of a typed one."""
        if pa.types.is_string(values.type):
            if isinstance(self.node, Range):
                if self.as_json and is_numeric(self.node):
                    return np.zeros(len(values), dtype=np.bool_)  # a text is no number
                return self.text_range(values)
            return self.documents(values.to_pylist())
        if pa.types.is_binary(values.type):
            return np.zeros(len(values), dtype=np.bool_)
        wanted = intervals(self.node, values.type, self.zone)
        return matches(values, wanted or [])

    def text_range(self, values: ArrowColumn) -> Mask:
        """Whole values between two bounds, in the order of their bytes."""
        encoded = values.dictionary_encode()
        inside = in_range(self.node, str) if isinstance(self.node, Range) else bool
        known = np.array([inside(text) for text in encoded.dictionary.to_pylist()], dtype=np.bool_)
        return known[np.asarray(encoded.indices)] if len(known) else known

    def documents(self, values: list[object]) -> Mask:
        """Words, one document for each item."""
        if isinstance(self.node, Phrase) and self.node.slop and not self.field.analyzer.is_ngram:
            return self.phrases(self.node, values)
        result = np.zeros(len(values), dtype=np.bool_)
        field = replace(self.field, field="f0", fast=False)
        if field.has_words:
            field = replace(field, record="position", kind="text")
        index = MemoryIndex.build([field], [values], rows=len(values))
        compiler = Compiler(
            schema=index.schema,
            searcher=index.searcher,
            types=_no_types,
            zone=self.zone,
            max_expansions=self.max_expansions,
        )
        query = compiler.leaf(Leaf(field, self.node))
        if query is not None:
            result[index.rows(query)] = True
        return result

    def phrases(self, phrase: Phrase, values: list[object]) -> Mask:
        """Phrases whose words may move, by the positions of the words."""
        analyzer = self.field.analyzer
        wanted = analyzer.words(phrase.text)
        result = np.zeros(len(values), dtype=np.bool_)
        for row, value in enumerate(values if wanted else ()):
            texts = [] if value is None else [value] if isinstance(value, str) else value
            words = positions(analyzer, texts)  # type: ignore[arg-type]
            last = wanted[-1]
            endings = {t for _, t in words if t.startswith(last.text)} if phrase.prefix else ()
            choices = [[*wanted[:-1], replace(last, text=t)] for t in endings] or [wanted]
            result[row] = any(is_near(choice, words, phrase.slop) for choice in choices)
        return result


def _no_types(name: str) -> pa.DataType:
    raise AssertionError(f"{name} has words, not values of a type")
