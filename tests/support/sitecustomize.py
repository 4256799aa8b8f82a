"""Read by every Python that a Spark of the tests starts, as this folder is on its path.

Spark forks its Python workers from daemons: one for tasks, and one for each step of planning with
the public data source. Here the daemons import what workers need, once and not in each of them: a
worker that met an error is not used again, and tests are full of errors. Modules are imported only,
nothing is started: a fork must not find threads. A worker looks for garbage after every task, and
need not look at those modules.
"""

from __future__ import annotations

import gc
import importlib.util
import sys

if sys.orig_argv[1:3] == ["-m", "pyspark.daemon"] and importlib.util.find_spec("indextables"):
    for name in ("pandas", "tantivy", "indextables.table", "indextables.spark.data_source"):
        importlib.import_module(name)
    importlib.import_module(sys.orig_argv[3])
    gc.freeze()
