"""Search in tables of other formats that stay where they are.

::

    index = SearchIndex.create("docs-index", source="s3://lake/docs", format="delta",
                               columns=["title", "body"])
    index.search('"zero copy"')
    index.refresh()

A `Source` says what a table consists of now (`source`, `delta`, `iceberg`); `rows` reads its
Parquet files by row number; `SearchIndex` keeps an index of those files and answers from both.
"""

from indextables.lake.refresh import Refreshed
from indextables.lake.search_index import SearchIndex

__all__ = ["Refreshed", "SearchIndex"]
