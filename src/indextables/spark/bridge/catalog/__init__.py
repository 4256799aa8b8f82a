"""Tables and catalogs as Spark's analyzer sees them."""

from indextables.spark.bridge.catalog.catalog import Catalog
from indextables.spark.bridge.catalog.file_catalog import (
    ALL_ROWS,
    Definition,
    FileSources,
    file_catalog,
)
from indextables.spark.bridge.catalog.table import BridgedTable

__all__ = [
    "ALL_ROWS",
    "BridgedTable",
    "Catalog",
    "Definition",
    "FileSources",
    "file_catalog",
]
