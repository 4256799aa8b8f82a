"""Ariadne: indexes over parquet, csv and json files that somebody else keeps.

::

    from indextables.ariadne import Index

    spark.conf.set("spark.ariadne.storagePath", "/data/ariadne")
    events = Index("events", schema, "csv", read_options={"header": "true"})
    events.add_file("/data/events/2024-01-01.csv", "/data/events/more/*.csv")
    events.add_index("user_id")
    events.add_bloom_index("session_id")
    events.update()
    events.locate_files({"user_id": [42]})
    events.join(users, ["user_id"])

An index knows, for each file, which values its columns hold. Queries and joins then read only files
that can contribute. What an index does not know, it keeps: answers are those of all files.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from indextables.ariadne.catalog import IndexCatalog, IndexSummary
    from indextables.ariadne.index import Index
    from indextables.ariadne.joining import join
    from indextables.ariadne.update import UpdateResult

__all__ = ["Index", "IndexCatalog", "IndexSummary", "UpdateResult", "join"]

_LAZY = {
    "Index": "indextables.ariadne.index",
    "IndexCatalog": "indextables.ariadne.catalog",
    "IndexSummary": "indextables.ariadne.catalog",
    "UpdateResult": "indextables.ariadne.update",
    "join": "indextables.ariadne.joining",
}


def __getattr__(name: str) -> Any:
    import importlib

    if name not in _LAZY:
        raise AttributeError(f"module 'indextables.ariadne' has no attribute '{name}'")
    return getattr(importlib.import_module(_LAZY[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
