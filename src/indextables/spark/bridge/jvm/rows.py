"""Arrow rows as rows of Spark's own, in the driver's JVM."""

from __future__ import annotations

import functools
import sys
from typing import Any

import pyarrow as pa

from indextables.spark.bridge.jvm.handles import JavaObject, Jvm

_ROW = "org.apache.spark.sql.catalyst.InternalRow"
_STREAM_BYTES = 16 << 20


def internal_rows(java: Jvm, table: pa.Table, schema: JavaObject) -> JavaObject:
    """A Java array of rows."""
    if not table.num_rows:
        return java.array(_ROW)
    if table.num_rows == 1 and all(pa.types.is_int64(kind) for kind in table.schema.types):
        return java.array(_ROW, [_counts(java, [column[0].as_py() for column in table.columns])])
    # Of a larger stream Spark makes a job that computes the rows.
    step = max(1, table.num_rows * _STREAM_BYTES // max(1, table.nbytes))
    pieces = [
        _streamed(java, table.slice(start, step), schema)
        for start in range(0, table.num_rows, step)
    ]
    if len(pieces) == 1:
        return pieces[0]
    every = java.gateway.new_array(java.find(_ROW), table.num_rows)
    for number, piece in enumerate(pieces):
        java.find("java.lang.System").arraycopy(piece, 0, every, number * step, len(piece))
    return every


def _counts(java: Jvm, numbers: list[int | None]) -> JavaObject:
    """One row of numbers in Spark's own form, bits for nulls and then the numbers.

    Counts are most of what is answered here, and this takes a few calls where a stream takes a
    query of its own.
    """
    nulls = sum(1 << at for at, number in enumerate(numbers) if number is None)
    data = nulls.to_bytes((len(numbers) + 63) // 64 * 8, sys.byteorder)
    data += b"".join((number or 0).to_bytes(8, sys.byteorder, signed=True) for number in numbers)
    row = java.find("org.apache.spark.sql.catalyst.expressions.UnsafeRow")(len(numbers))
    row.pointTo(bytearray(data), len(data))
    return row


def _streamed(java: Jvm, table: pa.Table, schema: JavaObject) -> JavaObject:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as stream:
        stream.write_table(table)
    stream_bytes = java.find("java.io.ByteArrayInputStream")(bytearray(sink.getvalue()))
    channel = java.constant("java.nio.channels.Channels", "newChannel")(stream_bytes)
    converters: Any = java.module("org.apache.spark.sql.execution.arrow.ArrowConverters")
    batches = converters.getBatchesFromStream(channel)
    frame = converters.toDataFrame(batches, schema.json(), java.session)
    rows = frame.logicalPlan().data()
    return rows.toArray(_row_tag(java))


@functools.lru_cache(maxsize=16)
def _row_tag(java: Jvm) -> JavaObject:
    return java.module("scala.reflect.ClassTag").apply(java.find("java.lang.Class").forName(_ROW))
