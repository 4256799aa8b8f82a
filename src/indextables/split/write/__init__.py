"""Writing a split: rows to Parquet, to Tantivy, and to the lists that XRefs are built from.

`writer` does all of it at once and gathers bounds for the log; `indexer` feeds Tantivy,
`partitioning` separates rows by partition.
"""

from __future__ import annotations

from indextables.split.write.indexer import (
    MAX_HEAP,
    MIN_HEAP,
    MemoryIndex,
    document_values,
)
from indextables.split.write.partitioning import (
    PartitionKey,
    WaitingRows,
    check_partition_columns,
    partition_folder,
    split_by_partition,
)
from indextables.split.write.writer import (
    SplitWriter,
    WrittenSplit,
)

__all__ = [
    "MAX_HEAP",
    "MIN_HEAP",
    "MemoryIndex",
    "PartitionKey",
    "SplitWriter",
    "WaitingRows",
    "WrittenSplit",
    "check_partition_columns",
    "document_values",
    "partition_folder",
    "split_by_partition",
]
