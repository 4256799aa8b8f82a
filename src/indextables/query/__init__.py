"""SQL without Spark: a query in Spark's dialect over index tables and other relations, as Arrow.

`sql` is the public function, `run_query` the one for callers that open tables themselves. `rewrite`
takes the searches out of a query and decides what the scans of its tables do, `dialect` writes the
rest for the engine, `engine` runs it.
"""

from __future__ import annotations

from indextables.query.engine import run_query, sql

__all__ = ["run_query", "sql"]
