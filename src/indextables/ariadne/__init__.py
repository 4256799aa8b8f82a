"""Ariadne: indexes over external parquet, csv and json files, on Spark.

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

An index keeps, for each file, which values its columns hold. Queries and joins then read only files
that can contribute. What an index does not know keeps the file: the result is that of all files.

The parts, from the ground up: `declarations` and `metadata` (what an index is), `values` (hashes,
filters, words), `store` (where an index is stored), `files` (the external files), `evidence` and
`lookup` (which files a query needs) and `build` (updating an index). `index`, `catalog`, `joins`
and `sql` are what users call.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from indextables.errors import require

if TYPE_CHECKING:
    from indextables.ariadne.build import UpdateResult
    from indextables.ariadne.catalog import IndexCatalog, IndexSummary
    from indextables.ariadne.index import Index
    from indextables.ariadne.joins import join
    from indextables.ariadne.lookup import Located, Step

__all__ = [
    "Index",
    "IndexCatalog",
    "IndexSummary",
    "Located",
    "Step",
    "UpdateResult",
    "join",
]

# Loaded when first used: Spark and Delta take a second.
_LAZY = {
    "Index": "indextables.ariadne.index",
    "IndexCatalog": "indextables.ariadne.catalog",
    "IndexSummary": "indextables.ariadne.catalog",
    "Located": "indextables.ariadne.lookup",
    "Step": "indextables.ariadne.lookup",
    "UpdateResult": "indextables.ariadne.build",
    "join": "indextables.ariadne.joins",
}


def __getattr__(name: str) -> Any:
    import importlib

    if name not in _LAZY:
        raise AttributeError(f"module 'indextables.ariadne' has no attribute '{name}'")
    require("pyspark", extra="spark", for_what=f"indextables.ariadne.{name}")
    return getattr(importlib.import_module(_LAZY[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
