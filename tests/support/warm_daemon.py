"""The daemon that forks Spark's Python workers, with what they need imported once and not by each.

A worker that met an error is not used again, and tests are full of errors. Modules are imported
only, nothing is started: a fork must not find threads.
"""

from __future__ import annotations

import importlib

from pyspark.daemon import manager

if __name__ == "__main__":
    for name in ("pandas", "tantivy", "indextables.table", "indextables.spark.data_source"):
        importlib.import_module(name)
    manager()
