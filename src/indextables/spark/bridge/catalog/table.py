"""A table as Spark's analyzer sees it, and what versions of it changed.

    SELECT * FROM docs CHANGES FROM VERSION 40 TO VERSION 45

Such rows are those of `Table.changes`, read by Python tasks; each has some of the versions.

A partition exists as long as a live split belongs to it, or since ADD PARTITION declared it: SHOW
PARTITIONS lists what the log says, DROP and TRUNCATE remove its splits in one commit, and RENAME is
an UPDATE of its rows.
"""

from __future__ import annotations

import functools
import hashlib
import pickle
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from indextables.errors import (
    CommitStateUnknownError,
    QueryError,
    StatementError,
    TableExistsError,
)
from indextables.jobs.alter_columns import (
    add_partitions,
    declared_partitions,
    forget_partitions,
    rename_declared,
)
from indextables.jobs.assignments import Constants
from indextables.jobs.row_changes import delete_rows, drop_partitions, update_rows
from indextables.jobs.write_job import TaskOutput, WriteJob
from indextables.jobs.write_target import CheckConstraint, DeclaredLayout, constraints_of
from indextables.log.transaction_log import TransactionLog
from indextables.plan.access import TableAccess
from indextables.plan.changes import ChangesReader, changes_schema, version_since
from indextables.plan.column_names import names_of, shown, shown_metadata
from indextables.plan.split_reader import ReadSplits
from indextables.plan.statistics import decode, lookup
from indextables.plan.view import LAYOUT_PROPERTY, TableView
from indextables.predicate import TRUE, Predicate, conjunction, disjunction
from indextables.predicate.coercion import compare
from indextables.predicate.literals import quoted_name
from indextables.predicate.spark_tokens import ALL_FIELDS
from indextables.predicate.tree import Column
from indextables.schema import METADATA, ROW, ROW_ACTION, SCORE, SPLIT, from_json
from indextables.spark.bridge.catalog.table_info import java_layout
from indextables.spark.bridge.jvm.handles import (
    V2,
    Comparable,
    JavaObject,
    Jvm,
    implements,
    internal_rows,
)
from indextables.spark.bridge.scan.builder import ScanBuilder
from indextables.spark.bridge.scan.description import Described
from indextables.spark.bridge.scan.filters import condition
from indextables.spark.bridge.scan.scans import PythonTasks, Scan
from indextables.spark.bridge.write import PlannedWrite, WriteBuilder
from indextables.spark.runner import executors
from indextables.spark.schemas import spark_schema, with_mappings, worker_schema
from indextables.split.write.partitioning import partition_text
from indextables.table.arguments import check_versions

if TYPE_CHECKING:
    from indextables.log.snapshot import Snapshot


_ANALYSIS = "org.apache.spark.sql.catalyst.analysis."
_CONSTRAINTS = V2 + "catalog.constraints."
_HIDDEN = ((SCORE, "float", "The BM25 score of the row for the query's search"),
           (ALL_FIELDS, "string", "All indexed columns of the row, to search in"),
           (SPLIT, "string", "The split that holds the row in this version of the table"),
           (ROW, "bigint", "The number of the row in its split"))  # fmt: skip
_ABOUT_FILES = (METADATA, "file_path string, file_name string, file_size bigint, "
                "file_block_start bigint, file_block_length bigint, "
                "file_modification_time timestamp, row_index bigint",
                "The file that holds the row, as Spark's file formats describe it")  # fmt: skip
_MOST_TASKS = 64
"""The most tasks of a query of changes."""
_CAPABILITIES = ("BATCH_READ", "BATCH_WRITE", "OVERWRITE_BY_FILTER", "OVERWRITE_DYNAMIC",
                 "TRUNCATE")  # fmt: skip


@implements("catalog.MetadataColumn")
class HiddenColumn:
    """A column that `*` does not show."""

    def __init__(self, java: Jvm, name: str, data_type: str, comment: str) -> None:
        self.java = java
        self._name = name
        self._kind = data_type
        self._comment = comment

    def name(self) -> str:
        return self._name

    @functools.cached_property
    def _type(self) -> JavaObject:
        return self.java.find("org.apache.spark.sql.types.DataType").fromDDL(self._kind)

    def dataType(self) -> JavaObject:  # noqa: N802
        return self._type

    def isNullable(self) -> bool:  # noqa: N802
        return True

    def comment(self) -> str:
        return self._comment

    def transform(self) -> None:
        return None

    def metadataInJSON(self) -> None:  # noqa: N802
        return None


class PartitionManagement:
    """What `SupportsAtomicPartitionManagement` asks of a table."""

    java: Jvm
    access: TableAccess
    snapshot: Snapshot

    def name(self) -> str:
        raise NotImplementedError

    def partitionSchema(self) -> JavaObject:  # noqa: N802
        return self.java.struct_type(spark_schema(self._partition_schema()))

    def listPartitionIdentifiers(  # noqa: N802
        self, names: JavaObject, identifier: JavaObject
    ) -> JavaObject:
        partitions = self._partitions()
        for position, name in enumerate(names):
            value = self._value(identifier, position, partitions.schema.field(name))
            column = partitions.column(name)
            same: Any = pc.is_null(column) if value is None else pc.equal(column, value)
            partitions = partitions.filter(same)
        schema = spark_schema(partitions.schema)
        return internal_rows(
            self.java, partitions.cast(worker_schema(schema)), self.java.struct_type(schema)
        )

    def partitionExists(self, identifier: JavaObject) -> bool:  # noqa: N802
        names = self.java.strings(self._partition_schema().names)
        return len(self.listPartitionIdentifiers(names, identifier)) > 0

    def loadPartitionMetadata(self, _identifier: JavaObject) -> JavaObject:  # noqa: N802
        return self.java.hash_map({})

    def createPartition(self, identifier: JavaObject, properties: JavaObject) -> None:  # noqa: N802
        self.createPartitions([identifier], [properties])

    def createPartitions(  # noqa: N802
        self, identifiers: Sequence[JavaObject], properties: Sequence[JavaObject]
    ) -> None:
        if any(one.containsKey("location") for one in properties):
            raise self._unsupported(
                "A partition of an index table is in the folder of the table: leave out LOCATION"
            )
        add_partitions(self.access.log(), [self._texts(one) for one in identifiers])

    def replacePartitionMetadata(self, _identifier: JavaObject, _new: JavaObject) -> None:  # noqa: N802
        raise self._unsupported("A partition of an index table has no properties")

    def renamePartition(self, old: JavaObject, new: JavaObject) -> bool:  # noqa: N802
        self._check_exists(old)
        if self.partitionExists(new):
            raise self._about("PartitionsAlreadyExistException", new)
        fields = enumerate(self._partition_schema())
        values = {
            field.name: pa.scalar(None, field.type) if value is None else value
            for field, value in ((field, self._value(new, at, field)) for at, field in fields)
        }
        update_rows(
            self.access.log(), self.access.view(), self._is_partition(old), Constants(values)
        )
        rename_declared(self.access.log(), self._texts(old), self._texts(new))
        return True

    def dropPartition(self, identifier: JavaObject) -> bool:  # noqa: N802
        return self._drop([identifier])

    def dropPartitions(self, identifiers: JavaObject) -> bool:  # noqa: N802
        return self._drop(list(identifiers))

    def purgePartition(self, identifier: JavaObject) -> bool:  # noqa: N802
        return self._drop([identifier])

    def purgePartitions(self, identifiers: JavaObject) -> bool:  # noqa: N802
        return self._drop(list(identifiers))

    def truncatePartition(self, identifier: JavaObject) -> bool:  # noqa: N802
        self._check_exists(identifier)
        self._empty([identifier])
        return True

    def truncatePartitions(self, identifiers: JavaObject) -> bool:  # noqa: N802
        self._empty(list(identifiers))
        return True

    # --- values ------------------------------------------------------------------------------

    def _partition_schema(self) -> pa.Schema:
        shown_view = shown(self.snapshot)
        return pa.schema([shown_view.schema.field(name) for name in shown_view.partition_columns])

    def _partitions(self) -> pa.Table:
        """The values of all partitions, each once, in the types of their columns."""
        files = self.snapshot.entries
        columns = {
            field.name: decode(lookup(files, "partitionValues", stored), field.type).values
            for stored, field in zip(
                self.snapshot.partition_columns, self._partition_schema(), strict=True
            )
        }
        declared = declared_partitions(self.snapshot.metadata)
        with_rows = pa.table(columns).cast(self._partition_schema())
        without: list[pa.Array[Any]] = [
            decode(pa.array([one.get(stored) for one in declared], pa.string()), field.type).values
            for stored, field in zip(
                self.snapshot.partition_columns, self._partition_schema(), strict=True
            )
        ]
        added = pa.table(without, names=with_rows.schema.names).cast(with_rows.schema)
        every = pa.concat_tables([with_rows, added])
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
        log = self.access.log()
        was_declared = forget_partitions(log, [self._texts(one) for one in identifiers])
        return self._empty(identifiers) or was_declared

    def _empty(self, identifiers: Sequence[JavaObject]) -> bool:
        """Remove the splits of partitions; whether there were any."""
        where = disjunction(*map(self._is_partition, identifiers))
        return drop_partitions(self.access.log(), where).partitions > 0

    def _texts(self, identifier: JavaObject) -> dict[str, str]:
        """The values of a partition as the log has them."""
        texts = {}
        for position, field in enumerate(self._partition_schema()):
            value = self._value(identifier, position, field)
            if value is not None:
                text = partition_text(pa.array([value], field.type))[0].as_py()
                texts[self.snapshot.partition_columns[position]] = str(text)
        return texts

    def _is_partition(self, identifier: JavaObject) -> Predicate:
        parts = []
        for position, field in enumerate(self._partition_schema()):
            value = self._value(identifier, position, field)
            literal = None if value is None else value.as_py()
            stored = self.snapshot.partition_columns[position]
            parts.append(compare("<=>", Column((stored,)), field.type, literal))
        return conjunction(*parts)

    def _check_exists(self, identifier: JavaObject) -> None:
        if not self.partitionExists(identifier):
            raise self._about("NoSuchPartitionException", identifier)

    def _about(self, error: str, identifier: JavaObject) -> Exception:
        """Spark's own error about a partition."""
        return self.java.exception(
            _ANALYSIS + error, self.name(), identifier, self.partitionSchema()
        )

    def _unsupported(self, sentence: str) -> Exception:
        return self.java.refusal(f"{sentence}.", "UnsupportedOperationException")


@implements(
    "catalog.SupportsRead",
    "catalog.SupportsWrite",
    "catalog.SupportsDeleteV2",
    "catalog.SupportsMetadataColumns",
    "catalog.SupportsAtomicPartitionManagement",
)
class BridgedTable(PartitionManagement, Comparable):
    """An index table at one version.

    Two are equal if they are the same table at the same version, read the same way: a cached
    DataFrame is then reused after a commit only by queries that saw the version before it.
    """

    def __init__(
        self,
        java: Jvm,
        access: TableAccess,
        view: TableView,
        *,
        name: str | None = None,
        writing: PlannedWrite | None = None,
        is_managed: Callable[[], bool] = lambda: False,
    ) -> None:
        self.java = java
        self.access = access
        self.view = view
        self.snapshot = view.snapshot
        self.writing = writing
        self._is_managed = is_managed
        self._name = name or f"indextables.`{access.uri}`"

    def key(self) -> str:
        return self._key

    @functools.cached_property
    def _key(self) -> str:
        options = sorted(
            (k, str(v)) for k, v in {**self.access.config, **self.access.storage}.items()
        )
        write = id(self.writing) if self.writing else None  # each is a table of its own
        digest = hashlib.blake2b(repr((options, write)).encode(), digest_size=8).hexdigest()
        return f"IndexTable {self.access.uri} {self.view.revision} {digest}"

    def name(self) -> str:
        return self._name

    def id(self) -> str:
        return self.snapshot.metadata.id

    def version(self) -> str:
        elsewhere = self.view.elsewhere
        return f"{self.snapshot.version}{f' {elsewhere.state}' if elsewhere else ''}"

    @functools.cached_property
    def _types(self) -> str:
        metadata = self.snapshot.metadata
        more: tuple[str, ...] = ()
        if self.writing is not None and self._changes_rows:
            # A MERGE may add columns.
            metadata = self.writing.job.target.metadata or metadata
            more = (SPLIT, ROW)
            more += (ROW_ACTION,) if self.writing.job.kind == "merge" else ()
        view = self.view.at(replace(self.snapshot, metadata=shown_metadata(metadata)))
        return _spark_types(view.snapshot.metadata.schema_string, view.carried_mapping, more)

    @property
    def _changes_rows(self) -> bool:
        return self.writing is not None and self.writing.job.kind in ("rows", "merge")

    @functools.cached_property
    def _schema(self) -> JavaObject:
        return self.java.struct_type(self._types)

    def schema(self) -> JavaObject:
        return self.java.declared_struct(self._types)

    def columns(self) -> JavaObject:
        return self.java.v2_columns(self._types)

    def partitioning(self) -> JavaObject:
        metadata = self.snapshot.metadata
        layout = metadata.configuration.get(LAYOUT_PROPERTY)
        return _transforms(self.java, shown_metadata(metadata).partition_columns, layout)

    def properties(self) -> JavaObject:
        metadata = self.snapshot.metadata
        uri = self.access.uri
        # As Spark spells local places. With "file:" in front, "%" would begin an escaped character.
        place = f"file:{uri}" if uri.startswith("/") and "%" not in uri else uri
        shown = self.view.properties | {"provider": "indextables", "location": place}
        if metadata.description:
            shown["comment"] = metadata.description
        if self._is_managed():  # asked here: few statements want to know
            shown["is_managed_location"] = "true"
        return self.java.hash_map(shown)

    def constraints(self) -> JavaObject:
        return _java_constraints(self.java, constraints_of(self.snapshot.metadata))

    def capabilities(self) -> JavaObject:
        # `save` checks columns itself, and names all differences.
        more = () if self.writing is None or self._changes_rows else ("ACCEPT_ANY_SCHEMA",)
        return _capabilities(self.java, _CAPABILITIES + more)

    def metadataColumns(self) -> JavaObject:  # noqa: N802
        # The rows of a search index are in files of another table.
        stored = {name.lower() for name in self.view.schema.names}
        has_files = self.view.elsewhere is None and METADATA not in stored
        return _hidden_columns(self.java, has_files)

    def canRenameConflictingMetadataColumns(self) -> bool:  # noqa: N802
        return False

    def newScanBuilder(self, _options: JavaObject) -> JavaObject:  # noqa: N802
        return ScanBuilder(self.java, self.access.uri, self.view, self._schema)

    def newWriteBuilder(self, info: JavaObject) -> JavaObject:  # noqa: N802
        return WriteBuilder(self.java, self.access, info, self.writing)

    def canDeleteWhere(self, predicates: JavaObject) -> bool:  # noqa: N802
        try:
            self._condition(predicates)
        except QueryError:
            return False
        return True

    def deleteWhere(self, predicates: JavaObject, *_options: JavaObject) -> None:  # noqa: N802
        self._delete(self._condition(predicates))

    def truncateTable(self, *_options: JavaObject) -> bool:  # noqa: N802
        self._delete(TRUE)
        return True

    def supportedCustomMetrics(self) -> JavaObject:  # noqa: N802
        return self.java.array(V2 + "metric.CustomMetric")

    def reportDriverMetrics(self) -> JavaObject:  # noqa: N802
        return self.java.array(V2 + "metric.CustomTaskMetric")

    def _delete(self, predicate: Predicate) -> None:
        delete_rows(self.access.log(), self.access.view(), predicate)

    def _condition(self, predicates: JavaObject) -> Predicate:
        names = names_of(self.snapshot)
        shown = conjunction(*(condition(p, names.shown) for p in predicates))
        return names.stored_predicate(shown)


@implements(
    "catalog.StagedTable",
    "catalog.SupportsWrite",
)
class StagedTable(BridgedTable):
    """A table that is created or replaced together with its rows, in one commit.

    CREATE TABLE … AS SELECT, CREATE OR REPLACE TABLE with or without a query, `saveAsTable`: tasks
    store the rows, and the commit that names them also defines the table. A query that fails leaves
    what was there, and it may read the table that it replaces.
    """

    def __init__(
        self,
        java: Jvm,
        access: TableAccess,
        job: WriteJob,
        identifier: JavaObject,
        *,
        name: str,
        done: Callable[[], Any] = lambda: None,
        undo: Callable[[], Any] = lambda: None,
    ) -> None:
        metadata = job.target.metadata
        assert metadata is not None
        view = TableView.planned(job.view.store, metadata, access.settings)
        planned = PlannedWrite(job, stage=self._take)
        super().__init__(java, access, view, name=name, writing=planned)
        self._job = job
        self._identifier = identifier
        self._done = done
        self._undo = undo
        self._stored: list[TaskOutput] = []
        self._in_doubt = False

    def _take(self, outputs: list[TaskOutput]) -> None:
        self._stored = outputs

    def commitStagedChanges(self) -> None:  # noqa: N802
        try:
            self._job.commit(self.access.log(), self._stored, runner=executors())
        except TableExistsError:
            raise self.java.exception(
                _ANALYSIS + "TableAlreadyExistsException", self._identifier
            ) from None
        except CommitStateUnknownError:
            self._in_doubt = True
            raise
        self._done()

    def abortStagedChanges(self) -> None:  # noqa: N802
        if not self._in_doubt:
            self._job.abort(self.access.log(), self._stored)
            self._undo()


# --- what versions changed -----------------------------------------------------------------------


@implements("catalog.Changelog")
class Changelog(Comparable):
    """The changes of some versions of a table, which Spark reads as a table."""

    def __init__(self, java: Jvm, access: TableAccess, context: JavaObject, *, name: str) -> None:
        self.java = java
        self._access = access
        self._name = name
        self._versions = _versions(access.log(), context.range())
        net = context.deduplicationMode().name() == "NET_CHANGES"
        if net and len(self._versions) > 1:
            raise StatementError(
                "Index tables have no key by which the changes of a row in several versions could "
                "be put together. Leave out deduplicationMode = 'netChanges', or ask for one "
                "version."
            )

    def key(self) -> str:
        return f"Changes of {self._access.uri} {self._view.revision} {self._versions}"

    def name(self) -> str:
        return self._name

    @functools.cached_property
    def _view(self) -> TableView:
        log = self._access.log()
        last = log.snapshot(version=self._versions[-1]) if self._versions else log.snapshot()
        return self._access.view(last)

    @functools.cached_property
    def _types(self) -> str:
        types = with_mappings(changes_schema(self._view), self._view.shown.carried_mapping)
        return types.json()

    def columns(self) -> JavaObject:
        return self.java.v2_columns(self._types)

    # What Spark would put in order otherwise, by a key of rows that index tables do not have: rows
    # that a commit writes unchanged cancel out, and updates are told as such.

    def containsCarryoverRows(self) -> bool:  # noqa: N802
        return False

    def containsIntermediateChanges(self) -> bool:  # noqa: N802
        return False

    def representsUpdateAsDeleteAndInsert(self) -> bool:  # noqa: N802
        return False

    def newScanBuilder(self, _options: JavaObject) -> JavaObject:  # noqa: N802
        described = Described(line=self.key(), key=self.key(), rows=None, size=self._size)
        reader = ChangesReader(self._access, self._view.version)
        schema = self.java.struct_type(self._types)
        return ChangesScan(self.java, schema, described, reader, self._versions)

    @functools.cached_property
    def _size(self) -> int:
        return self._view.snapshot.total_bytes


@implements("read.ScanBuilder", "read.Scan")
class ChangesScan(Scan):
    """Reads all columns of changes; Spark filters and chooses among them."""

    def __init__(
        self,
        java: Jvm,
        schema: JavaObject,
        described: Described,
        reader: ChangesReader,
        versions: range,
    ) -> None:
        super().__init__(java, schema, described)
        self._reader = reader
        self._versions = versions

    def build(self) -> JavaObject:
        return self

    def toBatch(self) -> JavaObject:  # noqa: N802
        schema = worker_schema(self.java.schema_of(self._schema))
        factory = self.java.reader_factory(ReadSplits(self._reader, schema), self._schema)
        share = -(-len(self._versions) // _MOST_TASKS) or 1
        parts = [self._versions[at : at + share] for at in range(0, len(self._versions), share)]
        return PythonTasks(self.java, self.key(), [pickle.dumps(part) for part in parts], factory)

    def toMicroBatchStream(self, _checkpoint: str) -> JavaObject:  # noqa: N802
        raise StatementError(
            "Changes of an index table are not a stream. spark.readStream.format('indextables') "
            "reads its new rows."
        )


def _versions(log: TransactionLog, bounds: JavaObject) -> range:
    """The versions that a clause names, by their numbers or by time."""
    range_type = bounds.getClass().getSimpleName()
    newest = log.snapshot().version
    if range_type == "UnboundedRange":
        return range(newest + 1)
    includes_first, includes_last = bounds.startingBoundInclusive(), bounds.endingBoundInclusive()
    if range_type == "VersionRange":
        first = _number(bounds.startingVersion())
        last = _number(bounds.endingVersion().orElse(str(newest)))
        check_versions(first, last)
        return range(first + (not includes_first), last + includes_last)
    if range_type == "TimestampRange":  # microseconds; versions have milliseconds
        start = bounds.startingTimestamp() - includes_first
        first = version_since(log, start // 1000 + 1)
        if not bounds.endingTimestamp().isPresent():
            return range(first, newest + 1)
        end = bounds.endingTimestamp().get() - (not includes_last)
        return range(first, max(first, version_since(log, end // 1000 + 1)))
    raise StatementError(f"CHANGES of an index table takes versions or times, not {range_type}.")


def _number(text: str) -> int:
    if not text.strip().isdecimal():
        raise StatementError(f"CHANGES FROM VERSION takes the number of a version, not {text!r}.")
    return int(text)


# --- what is the same for all tables ------------------------------------------------------------
#
# Spark asks every table of every query; the answers are the same for all of a session.


@functools.lru_cache(maxsize=64)
def _capabilities(java: Jvm, names: tuple[str, ...]) -> JavaObject:
    capabilities = [java.constant(V2 + "catalog.TableCapability", name) for name in names]
    return java.find("java.util.HashSet")(capabilities)


@functools.lru_cache(maxsize=256)
def _spark_types(schema: str, mapping: str | None, more: tuple[str, ...]) -> str:
    """A table's schema, from the log's JSON to Spark's, and columns that name rows."""
    types = with_mappings(from_json(schema), mapping)
    for name in more:
        types = types.add(name, "long" if name == ROW else "string")
    return types.json()


@functools.lru_cache(maxsize=256)
def _transforms(java: Jvm, partition_columns: tuple[str, ...], layout: str | None) -> JavaObject:
    identity = java.find(V2 + "expressions.Expressions").identity
    transforms = [identity(quoted_name(name)) for name in partition_columns]
    if layout is not None:
        transforms.append(java_layout(java, DeclaredLayout.from_json(layout)))
    return java.array(V2 + "expressions.Transform", transforms)


@functools.lru_cache(maxsize=64)
def _hidden_columns(java: Jvm, has_files: bool) -> JavaObject:
    every = (*_HIDDEN, _ABOUT_FILES) if has_files else _HIDDEN
    hidden = [HiddenColumn(java, *column) for column in every]
    return java.array(V2 + "catalog.MetadataColumn", hidden)


def _java_constraints(java: Jvm, constraints: Sequence[CheckConstraint]) -> JavaObject:
    """Return the constraints of a table as Spark asks for them. All rows meet them."""
    if not constraints:
        return java.array(_CONSTRAINTS + "Constraint")
    check = java.find(_CONSTRAINTS + "Constraint").check
    valid = java.constant(_CONSTRAINTS + "Constraint$ValidationStatus", "VALID")
    listed = [
        check(constraint.name)
        .predicateSql(constraint.sql)
        .enforced(True)
        .validationStatus(valid)
        .build()
        for constraint in constraints
    ]
    return java.array(_CONSTRAINTS + "Constraint", listed)
