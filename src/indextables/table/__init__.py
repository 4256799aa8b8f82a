"""A table that is searched and written from plain Python.

::

    table = Table.create("docs", schema, mapping={"id": "string"})
    table.append(rows)
    table.search('"machine learning" AND spark~1', fields=["content"], limit=10)
    table.scan(columns=["id"], where="content indexquery 'spark' AND n > 3")

Every verb is one call into a plan or a job.
"""

from indextables.table.arguments import Timestamp
from indextables.table.table import Table, write_table

__all__ = ["Table", "Timestamp", "write_table"]
