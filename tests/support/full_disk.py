"""Appends on a disk that is too small: files may not grow beyond a limit.

python full_disk.py URI TEMPORARY LIMIT VERB
"""

from __future__ import annotations

import resource
import signal
import sys

import pyarrow as pa

from indextables import Table
from indextables.errors import IndexTablesError


def batches(rows: int) -> pa.RecordBatchReader:
    """Rows that take some space."""
    schema = pa.schema([("id", pa.int64()), ("day", pa.int64()), ("body", pa.string())])

    def made() -> object:
        for start in range(0, rows, 10_000):
            ids = range(start, start + 10_000)
            body = [f"w{i % 977} x{i % 31} word{i}" for i in ids]
            days = [i // 20_000 for i in ids]
            yield pa.record_batch({"id": pa.array(ids), "day": days, "body": body}, schema)

    return pa.RecordBatchReader.from_batches(schema, made())  # type: ignore[arg-type]


def main(uri: str, temporary: str, limit: int, verb: str) -> None:
    """Print the error that the write ends with."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    table = Table.open(
        uri,
        config={
            "spark.indextables.indexWriter.tempDirectoryPath": temporary,
            "spark.indextables.indexWriter.heapSize": "15000000",
            "spark.indextables.write.maxSplitSize": "100K",
        },
    )
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
    try:
        if verb == "overwrite":
            table.overwrite(batches(60_000), where="id >= 0")
        else:
            getattr(table, verb)(batches(60_000))
    except IndexTablesError as error:
        print(type(error).__name__, error)  # noqa: T201


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4])
