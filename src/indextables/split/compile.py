"""From a bound query to a Tantivy query.

Tantivy's own parser is never used: it answers `a AND NOT b` with nothing and knows no wildcards. A
leaf that the index cannot answer exactly compiles to `None`, and the rows are asked (`rowwise`).
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from zoneinfo import ZoneInfo

import pyarrow as pa
import tantivy

from indextables.predicate import Exists, Phrase, Range, Term
from indextables.split.compile_words import WordCompiler, constant, pair
from indextables.split.engine import balanced
from indextables.split.ip_address import parse_ranges, show_address
from indextables.split.json_words import words_decide
from indextables.split.query import LEAF_LEVELS, Boosted, Combined, Every, Leaf, Query
from indextables.split.slop import rows_decide
from indextables.split.typed import UTC, clip, intervals

_Occur = tantivy.Occur


@dataclass(frozen=True, kw_only=True)
class Compiler(WordCompiler):
    """Compiles for one index. `types` are those of the columns."""

    types: Callable[[str], pa.DataType]
    zone: ZoneInfo = UTC

    def compile(self, query: Query) -> tantivy.Query | None:
        """The Tantivy query for exactly the same rows, or `None` if the rows must be asked."""
        compiled = self._compile(query)
        return None if compiled is None else compiled[1]

    def _compile(self, query: Query) -> tuple[int, tantivy.Query] | None:
        """The query and how many levels it is nested, as `query.levels` counts them."""
        match query:
            case Every():
                return LEAF_LEVELS, tantivy.Query.all_query()
            case Leaf():
                leaf = self.leaf(query)
                return None if leaf is None else (LEAF_LEVELS, leaf)
            case Boosted(child=child, factor=factor):
                inner = self._compile(child)
                if inner is None:
                    return None
                return inner[0] + 1, tantivy.Query.boost_query(inner[1], factor)
            case Combined():
                return self._combined(query)

    def _combined(self, query: Combined) -> tuple[int, tantivy.Query] | None:
        if not query.must and not query.should:
            return LEAF_LEVELS, tantivy.Query.empty_query()
        groups = []
        deepest = 0
        for occur, children in (
            (_Occur.Must, query.must),
            (_Occur.Should, query.should),
            (_Occur.MustNot, query.must_not),
        ):
            known = []
            for child in children:
                compiled = self._compile(child)
                if compiled is None:
                    return None
                known.append(compiled)
            if self.pairwise and occur is not _Occur.MustNot and len(known) > 1:
                known = [balanced(known, functools.partial(pair, occur))]
            deepest = max([deepest, *(levels for levels, _ in known)])
            groups += [(occur, child) for _, child in known]
        return deepest + 1, tantivy.Query.boolean_query(groups)

    def leaf(self, leaf: Leaf) -> tantivy.Query | None:
        """The Tantivy query of one leaf."""
        if self._asks_nothing(leaf):
            return tantivy.Query.empty_query()
        if leaf.path or not leaf.field.field:
            return None
        if isinstance(leaf.node, Exists):
            # NaN and text that is no address have a value, but none in the index.
            fast = leaf.field.fast and leaf.field.kind not in ("f64", "ip")
            return tantivy.Query.exists_query(leaf.field.field) if fast else None
        if leaf.field.kind == "json" and not words_decide(leaf.node, leaf.field.analyzer):
            return None
        if leaf.field.has_words:
            return self.words(leaf.field, leaf.node)
        return self._ip(leaf) if leaf.field.kind == "ip" else self._typed(leaf)

    def _asks_nothing(self, leaf: Leaf) -> bool:
        """Whether no value of the column's type can match, so that it need not be read."""
        if leaf.path or leaf.field.has_words or isinstance(leaf.node, Exists):
            return False
        if leaf.field.kind == "ip":
            return not parse_ranges(leaf.node)
        return not intervals(leaf.node, self._type(leaf), self.zone)

    def _type(self, leaf: Leaf) -> pa.DataType:
        kind = self.types(leaf.field.name)
        while pa.types.is_list(kind):
            kind = kind.value_type
        return kind

    def candidates(self, leaf: Leaf) -> tantivy.Query | None:
        """A query for a leaf that finds all its rows and perhaps more; `None` if there is none."""
        if not leaf.field.field or not leaf.field.has_words:
            return None
        node = leaf.node
        if leaf.path and isinstance(node, (Exists, Range)):
            return None
        if isinstance(node, (Term, Phrase)):
            words = leaf.field.analyzer.words(node.text)
            slop = node.slop if isinstance(node, Phrase) else 0
            exact = leaf.field.record == "position" and not leaf.path
            if isinstance(node, Phrase) and node.prefix:
                words = words[:-1]
                exact = exact and not slop
            elif exact and rows_decide(words, slop) and not leaf.field.analyzer.is_ngram:
                return self.near(leaf.field, words, slop)
            if exact:
                return self.words(leaf.field, node)
            if not words:
                return None
            return self.all(self.term(leaf.field, word.text) for word in words)
        return self.words(leaf.field, node)

    def _ip(self, leaf: Leaf) -> tantivy.Query:
        target = leaf.field
        clauses = [
            (
                _Occur.Should,
                tantivy.Query.range_query(
                    self.schema,
                    target.field,
                    tantivy.FieldType.IpAddr,
                    show_address(low),
                    show_address(high),
                    use_inverted_index=not target.fast,
                ),
            )
            for low, high in parse_ranges(leaf.node)
        ]
        return constant(tantivy.Query.boolean_query(clauses))

    def _typed(self, leaf: Leaf) -> tantivy.Query | None:
        target, kind = leaf.field, self._type(leaf)
        clauses = []
        for wanted in intervals(leaf.node, kind, self.zone) or ():
            if target.kind == "f64":
                query = tantivy.Query.range_query(
                    self.schema,
                    target.field,
                    tantivy.FieldType.Float,
                    wanted.low + 0.0,
                    wanted.high + 0.0,
                    include_lower=wanted.include_low,
                    include_upper=wanted.include_high,
                )
            else:
                clipped = clip(wanted)
                if clipped is None:
                    continue
                query = tantivy.Query.range_query(
                    self.schema, target.field, tantivy.FieldType.Integer, clipped.low, clipped.high
                )
            clauses.append((_Occur.Should, query))
        return constant(tantivy.Query.boolean_query(clauses))
