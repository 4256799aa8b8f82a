"""The partitions of a table as Spark's statements see them.

A partition is there as long as a live split belongs to it: SHOW PARTITIONS lists what the log
says, DROP and TRUNCATE remove its splits in one commit, and nothing creates an empty one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from indextables.jobs.row_changes import drop_partitions
from indextables.plan.column_names import shown
from indextables.plan.statistics import decode, lookup
from indextables.predicate import Predicate, conjunction, disjunction
from indextables.predicate.coercion import compare
from indextables.predicate.tree import Column
from indextables.spark.bridge.jvm.handles import JavaObject, Jvm, internal_rows
from indextables.spark.schemas import spark_schema, worker_schema

if TYPE_CHECKING:
    from indextables.log.snapshot import Snapshot
    from indextables.plan.access import TableAccess


class PartitionManagement:
    """What `SupportsAtomicPartitionManagement` asks of a table."""

    java: Jvm
    access: TableAccess
    snapshot: Snapshot

    def partitionSchema(self) -> JavaObject:  # noqa: N802
        return self.java.struct_type(spark_schema(self._partition_schema()))

    def listPartitionIdentifiers(  # noqa: N802
        self, names: JavaObject, identifier: JavaObject
    ) -> JavaObject:
        found = self._partitions()
        for position, name in enumerate(names):
            value = self._value(identifier, position, found.schema.field(name))
            column = found.column(name)
            same: Any = pc.is_null(column) if value is None else pc.equal(column, value)
            found = found.filter(same)
        schema = spark_schema(found.schema)
        return internal_rows(
            self.java, found.cast(worker_schema(schema)), self.java.struct_type(schema)
        )

    def partitionExists(self, identifier: JavaObject) -> bool:  # noqa: N802
        names = self.java.strings(self._partition_schema().names)
        return len(self.listPartitionIdentifiers(names, identifier)) > 0

    def loadPartitionMetadata(self, _identifier: JavaObject) -> JavaObject:  # noqa: N802
        return self.java.hash_map({})

    def createPartition(self, _identifier: JavaObject, _properties: JavaObject) -> None:  # noqa: N802
        raise self._unsupported("A partition of an index table is there when rows are: INSERT them")

    def createPartitions(self, identifiers: JavaObject, properties: JavaObject) -> None:  # noqa: N802
        self.createPartition(identifiers, properties)

    def replacePartitionMetadata(self, _identifier: JavaObject, _new: JavaObject) -> None:  # noqa: N802
        raise self._unsupported("A partition of an index table has no properties")

    def renamePartition(self, _old: JavaObject, _new: JavaObject) -> bool:  # noqa: N802
        raise self._unsupported(
            "A partition of an index table is not renamed: UPDATE the partition column"
        )

    def dropPartition(self, identifier: JavaObject) -> bool:  # noqa: N802
        return self._drop([identifier])

    def dropPartitions(self, identifiers: JavaObject) -> bool:  # noqa: N802
        return self._drop(list(identifiers))

    def purgePartition(self, identifier: JavaObject) -> bool:  # noqa: N802
        return self._drop([identifier])

    def purgePartitions(self, identifiers: JavaObject) -> bool:  # noqa: N802
        return self._drop(list(identifiers))

    def truncatePartition(self, identifier: JavaObject) -> bool:  # noqa: N802
        return self._drop([identifier])

    def truncatePartitions(self, identifiers: JavaObject) -> bool:  # noqa: N802
        return self._drop(list(identifiers))

    # --- values ------------------------------------------------------------------------------

    def _partition_schema(self) -> pa.Schema:
        seen = shown(self.snapshot)
        return pa.schema([seen.schema.field(name) for name in seen.partition_columns])

    def _partitions(self) -> pa.Table:
        """The values of all partitions, each once, in the types of their columns."""
        files = self.snapshot.entries
        columns = {
            field.name: decode(lookup(files, "partitionValues", stored), field.type).values
            for stored, field in zip(
                self.snapshot.partition_columns, self._partition_schema(), strict=True
            )
        }
        every = pa.table(columns).cast(self._partition_schema())
        return (
            every.group_by(every.schema.names)
            .aggregate([])
            .sort_by([(name, "ascending") for name in every.schema.names])
        )

    def _value(
        self, identifier: JavaObject, position: int, field: pa.Field[pa.DataType]
    ) -> pa.Scalar[pa.DataType] | None:
        """One value of a row of Spark's own, whose days and instants are numbers."""
        schema = self.java.struct_type(spark_schema(pa.schema([field])))
        value = identifier.get(position, schema.fields()[0].dataType())
        if value is None:
            return None
        if pa.types.is_date(field.type):
            return pa.scalar(value, pa.int32()).cast(field.type)
        if pa.types.is_timestamp(field.type):
            return pa.scalar(value, pa.int64()).cast(field.type)
        if isinstance(value, bool | int | float | bytes | bytearray | str):
            return pa.scalar(value, field.type)
        return pa.scalar(value.toString(), pa.string()).cast(field.type)

    def _drop(self, identifiers: Sequence[JavaObject]) -> bool:
        where = disjunction(*map(self._is_partition, identifiers))
        return drop_partitions(self.access.log(), where).partitions > 0

    def _is_partition(self, identifier: JavaObject) -> Predicate:
        parts = []
        for position, field in enumerate(self._partition_schema()):
            value = self._value(identifier, position, field)
            literal = None if value is None else value.as_py()
            stored = self.snapshot.partition_columns[position]
            parts.append(compare("<=>", Column((stored,)), field.type, literal))
        return conjunction(*parts)

    def _unsupported(self, sentence: str) -> Exception:
        return self.java.refusal(f"{sentence}.", "UnsupportedOperationException")
