"""Searching a split: from a search to the numbers of the rows that match.

`query` binds a search to the columns, `compile` makes a Tantivy query of it, `evaluate` decides
what the index answers and what the rows do. `engine` guards every call of Tantivy.
"""

from __future__ import annotations

from indextables.split.search.compile import (
    wildcard_pattern,
)
from indextables.split.search.engine import (
    with_stack,
)
from indextables.split.search.evaluate import (
    columns_needed,
    matching,
    may_propose,
    search_rows,
)
from indextables.split.search.query import (
    Boosted,
    Combined,
    Every,
    Leaf,
    Query,
    SearchContext,
    check_kind,
    resolve,
)
from indextables.split.search.typed import (
    clip,
    intervals,
)

__all__ = [
    "Boosted",
    "Combined",
    "Every",
    "Leaf",
    "Query",
    "SearchContext",
    "check_kind",
    "clip",
    "columns_needed",
    "intervals",
    "matching",
    "may_propose",
    "resolve",
    "search_rows",
    "wildcard_pattern",
    "with_stack",
]
