"""Full-text search tables: Parquet splits with a Tantivy index inside, under a transaction log.

::

    import indextables as it

    table = it.Table.create("docs", schema)
    table.append(rows)
    table.search("machine learning", limit=10)
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from indextables import errors
from indextables.errors import IndexTablesError

if TYPE_CHECKING:
    from indextables.jobs.commit_write import Written
    from indextables.jobs.history import Purged, Truncated
    from indextables.jobs.merge_splits import Merged
    from indextables.jobs.prewarm import Prewarmed
    from indextables.jobs.repair import Repaired
    from indextables.jobs.row_changes import Dropped
    from indextables.jobs.verify import Check
    from indextables.lake import Refreshed, SearchIndex
    from indextables.plan.ranking import ScoreExplanation
    from indextables.query import sql
    from indextables.spark.functions import indexquery, indexqueryall, search, snippet
    from indextables.spark.session import enable, session
    from indextables.spark.table_functions import search_table
    from indextables.table import Table, write_table

__version__ = "0.1.0"
__all__ = [
    "Check",
    "Dropped",
    "IndexTablesError",
    "Merged",
    "Prewarmed",
    "Purged",
    "Refreshed",
    "Repaired",
    "ScoreExplanation",
    "SearchIndex",
    "Table",
    "Truncated",
    "Written",
    "__version__",
    "enable",
    "errors",
    "indexquery",
    "indexqueryall",
    "search",
    "search_table",
    "session",
    "snippet",
    "sql",
    "write_table",
]

# Loaded when first used, so that importing the package costs milliseconds.
_LAZY = {
    "Check": "indextables.jobs.verify",
    "Dropped": "indextables.jobs.row_changes",
    "Merged": "indextables.jobs.merge_splits",
    "Prewarmed": "indextables.jobs.prewarm",
    "Purged": "indextables.jobs.history",
    "Refreshed": "indextables.lake",
    "Repaired": "indextables.jobs.repair",
    "ScoreExplanation": "indextables.plan.ranking",
    "SearchIndex": "indextables.lake",
    "Truncated": "indextables.jobs.history",
    "Written": "indextables.jobs.commit_write",
    "Table": "indextables.table",
    "enable": "indextables.spark.session",
    "indexquery": "indextables.spark.functions",
    "indexqueryall": "indextables.spark.functions",
    "search": "indextables.spark.functions",
    "search_table": "indextables.spark.table_functions",
    "session": "indextables.spark.session",
    "snippet": "indextables.spark.functions",
    "sql": "indextables.query",
    "write_table": "indextables.table",
}


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module 'indextables' has no attribute '{name}'")
    import importlib

    if _LAZY[name].startswith("indextables.spark."):
        from indextables.errors import require

        require("pyspark", extra="spark", for_what=f"indextables.{name}")
    return getattr(importlib.import_module(_LAZY[name]), name)


def load_ipython_extension(shell: Any) -> None:
    """`%load_ext indextables`: rows with their words marked, and the cell `%%search`."""
    from indextables.notebook import load

    load(shell)


def unload_ipython_extension(shell: Any) -> None:
    """`%unload_ext indextables`."""
    from indextables.notebook import unload

    unload(shell)


def __dir__() -> list[str]:
    return sorted({*globals(), *_LAZY})
