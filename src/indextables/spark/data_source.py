"""The public data source: a Python data source, which every Spark since 4.1 understands.

Spark calls it in worker processes: one to plan, one for each task, one to commit. It reads whole
tables, and Spark evaluates every condition. Filters could be pushed (`pushFilters`), but Spark
keeps what it planned with the first query's filters for all later queries on the same DataFrame,
and both sides of a self-join get the filters of one: measured on 4.3.0, rows are lost. Save modes
are decided by Spark except `overwrite`; `error` and `ignore` are refused by Spark for every Python
data source, so `readwriter` decides them before Spark is asked.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql import datasource as source
from pyspark.sql.types import StringType, StructField, StructType

from indextables.errors import SchemaError
from indextables.jobs.write_job import TaskOutput, WriteJob, WriteKind, plan_row_change, plan_write
from indextables.jobs.write_target import evolved_table
from indextables.lake.opening import open_table, view_of
from indextables.plan.access import NAME, ChosenRows, SourceOptions, TableAccess
from indextables.plan.scan import SplitTask, plan_scan
from indextables.plan.split_reader import SplitReader, in_groups
from indextables.plan.view import TableView
from indextables.predicate import TRUE, Predicate
from indextables.schema import ROW_ACTION, ROW_IDENTITY, SCORE
from indextables.spark.runner import executors
from indextables.spark.schemas import table_schema, with_mappings, worker_schema
from indextables.spark.streams import (
    StreamOptions,
    TableStreamReader,
    TableStreamWriter,
    is_stream_option,
)
from indextables.table.arguments import check_mode

if TYPE_CHECKING:
    from collections.abc import MutableMapping

    from indextables.query.relations import Relation
    from indextables.table import Table

_PARALLELISM = 64


class IndexTablesSource(source.DataSource):
    """`format("indextables")` in Spark's public API."""

    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(options)
        all_options = dict(options.items())
        # `where` chooses rows of a stream, and of a read as well.
        self.stream = {
            name: all_options[name] if name.lower() == "where" else all_options.pop(name)
            for name in list(all_options)
            if is_stream_option(name)
        }
        self.parsed = SourceOptions.parse(all_options)
        # Set when Spark asks for the schema: the rows are then read from that very version.
        self.versions: dict[str, int | None] = {}

    @classmethod
    def name(cls) -> str:
        return NAME

    def schema(self) -> StructType:
        schemas, mappings = {}, []
        for path in self.parsed.paths or (self.parsed.access().path,):
            access = self.parsed.access(path)
            view = view_of(access, version=self.parsed.version, timestamp=self.parsed.moment)
            # A search index has the versions of its source, and none over plain files.
            self.versions[path] = view.elsewhere.version if view.elsewhere else view.version
            shown = view.shown
            schemas[path] = shown.schema
            mappings.append(shown.carried_mapping)
        first, *following = schemas.items()
        for path, schema in following:
            if not schema.equals(first[1]):
                raise SchemaError(
                    f"'{path}' has other columns than '{first[0]}'. Read the tables one by one "
                    "and combine them with unionByName."
                )
        columns = with_mappings(first[1], mappings[0])
        chosen = self.parsed.chosen
        if chosen.relation is not None:
            return with_mappings(self._relation(chosen.relation).schema, mappings[0])
        if chosen.search is None:
            return columns
        if following:
            raise SchemaError("The option search is for one table, because scores are a table's.")
        columns = columns.add(SCORE, "float")
        return StructType([*columns.fields, *(StructField(f"_snippet_{n}", StringType())
                                            for n in chosen.snippets)])  # fmt: skip

    def reader(self, schema: StructType) -> source.DataSourceReader:
        self._refuse_stream_options()
        if not self.versions:
            self.schema()
        chosen = self.parsed.chosen
        if chosen.search is not None:
            return RankedReader(self.parsed, self.versions, schema)
        if chosen.relation is not None:
            relation = self._relation(chosen.relation)
            if relation.hidden:
                return RelationReader(self.parsed, self.versions, schema)
            combined = replace(chosen, where=relation.condition)
            return TableReader(replace(self.parsed, chosen=combined), self.versions, schema)
        return TableReader(self.parsed, self.versions, schema)

    def _relation(self, text: str) -> Relation:
        from indextables.query.relations import Relation

        ((path, version),) = self.versions.items()
        return Relation.from_json(text, _opened(self.parsed.access(path), version))

    def writer(self, schema: StructType, overwrite: bool) -> source.DataSourceWriter:
        self._refuse_stream_options()
        self.parsed.chosen.refuse()
        options = self.parsed
        kind: WriteKind = "append"
        if overwrite:
            kind = "partitions" if options.dynamic else "overwrite"
            kind = "where" if options.replace_where is not None else kind
        access = options.access()
        if options.row_change is not None:
            return TableWriter(_row_change(access, options, schema), access)
        job = plan_write(
            access.log(),
            table_schema(schema),
            settings=access.settings,
            kind=kind,
            where=options.replace_where if kind == "where" else None,
            partition_by=options.partition_by,
            merge_schema=options.merge_schema,
            overwrite_schema=options.overwrite_schema,
        )
        return TableWriter(job, access)

    def _refuse_stream_options(self) -> None:
        # They choose rows, which only `readStream` does by them.
        SourceOptions.parse({n: v for n, v in self.stream.items() if n.lower() != "where"})

    def streamReader(self, schema: StructType) -> source.DataSourceStreamReader:  # noqa: N802
        return TableStreamReader(self.parsed, StreamOptions.parse(self.stream), schema)

    def streamWriter(self, schema: StructType, overwrite: bool) -> source.DataSourceStreamWriter:  # noqa: N802
        self._refuse_stream_options()
        self.parsed.chosen.refuse()
        return TableStreamWriter(self.parsed, schema, overwrite=overwrite)


def alias(provider: str) -> type[IndexTablesSource]:
    """The same source under another name."""

    class Alias(IndexTablesSource):
        @classmethod
        def name(cls) -> str:
            return provider

    Alias.__name__ = Alias.__qualname__ = "IndexTablesSource"
    return Alias


# --- reading ---------------------------------------------------------------------------------


@dataclass
class SplitPartition(source.InputPartition):
    """The splits that one task reads."""

    reader: SplitReader
    tasks: list[SplitTask]


class VersionReader(source.DataSourceReader):
    """Reads tables at the versions that the schema was taken from."""

    def __init__(
        self, options: SourceOptions, versions: dict[str, int | None], schema: StructType
    ) -> None:
        self.options = options
        self.versions = versions
        self.schema = schema


class TableReader(VersionReader):
    """Reads the splits of a version."""

    def partitions(self) -> Sequence[source.InputPartition]:
        partitions: list[source.InputPartition] = []
        for path, version in self.versions.items():
            view = view_of(self.options.access(path), version=version)
            names = view.names.stored_names(f.name for f in self.schema.fields)
            plan = plan_scan(view, columns=names, predicate=condition_of(view, self.options.chosen))
            reader = SplitReader(view, plan.columns)
            groups = in_groups(plan.tasks, parallelism=_PARALLELISM)
            partitions += [SplitPartition(reader, group) for group in groups]
        return partitions

    def read(self, partition: source.InputPartition) -> Iterator[Any]:
        if not isinstance(partition, SplitPartition):  # Spark's own, if there is no partition
            return
        yield from partition.reader.batches(partition.tasks, worker_schema(self.schema))


def condition_of(view: TableView, chosen: ChosenRows) -> Predicate:
    """The condition of a read, by stored names."""
    if chosen.where is None:
        return TRUE
    return view.condition(chosen.where, timezone=chosen.timezone)


class RankedReader(VersionReader):
    """Reads the best rows for a search, best first: one task, because scores are the table's."""

    def read(self, _: source.InputPartition) -> Iterator[Any]:
        ((path, version),) = self.versions.items()
        chosen = self.options.chosen
        table = _opened(self.options.access(path), version)
        target = worker_schema(self.schema)
        computed = {SCORE, *(f"_snippet_{name}" for name in chosen.snippets)}
        hits = table.search(
            chosen.search or "",
            mode=check_mode(chosen.mode),
            fields=chosen.fields or None,
            where=chosen.where,
            columns=[name for name in target.names if name not in computed],
            limit=chosen.limit,
            snippets=chosen.snippets,
            timezone=chosen.timezone,
        )
        yield from hits.select(target.names).cast(target).to_batches()


class RelationReader(RankedReader):
    """Reads what a query of Spark Connect asks of a table, with the answers of its searches."""

    def read(self, _: source.InputPartition) -> Iterator[Any]:
        from indextables.query.engine import scan_relation
        from indextables.query.relations import Relation

        ((path, version),) = self.versions.items()
        chosen = self.options.chosen
        table = _opened(self.options.access(path), version)
        relation = Relation.from_json(chosen.relation or "", table)
        target = worker_schema(self.schema)
        for batch in scan_relation(relation, target.names, timezone=chosen.timezone):
            yield from pa.Table.from_batches([batch]).cast(target).to_batches()


def _opened(access: TableAccess, version: int | None) -> Table:
    return open_table(
        access.path, version=version, config=access.config, storage_options=access.storage
    )


# --- writing ---------------------------------------------------------------------------------


@dataclass
class Stored(source.WriterCommitMessage):
    """What one task stored."""

    output: TaskOutput


class TableWriter(source.DataSourceArrowWriter):
    """Tasks store splits, `commit` names them in the log."""

    def __init__(self, job: WriteJob, access: TableAccess) -> None:
        self.job = job
        self.access = access

    def write(  # type: ignore[override]
        self, iterator: Iterator[pa.RecordBatch]
    ) -> source.WriterCommitMessage:
        return Stored(self.job.write(iterator))

    def commit(self, messages: list[source.WriterCommitMessage | None]) -> None:
        self.job.commit(self.access.log(), _outputs(messages), runner=executors())

    def abort(self, messages: list[source.WriterCommitMessage | None]) -> None:
        self.job.abort(self.access.log(), _outputs(messages))


def _row_change(access: TableAccess, options: SourceOptions, schema: StructType) -> WriteJob:
    """The write of a MERGE that a client of Spark Connect computed."""
    change = json.loads(options.row_change or "")
    view = view_of(access, version=change.pop("version"))
    columns = StructType([f for f in schema if f.name not in (*ROW_IDENTITY, ROW_ACTION)])
    target = evolved_table(view, table_schema(columns), merge_schema=options.merge_schema)
    return plan_row_change(view, target=target, kind="merge", checked_by_spark=False, **change)


def _outputs(messages: Sequence[source.WriterCommitMessage | None]) -> list[TaskOutput]:
    return [message.output for message in messages if isinstance(message, Stored)]
