"""A table that is searched and written from plain Python."""

from __future__ import annotations

import functools
import logging
import os
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from indextables.config import Config
from indextables.errors import (
    ConfigError,
    IndexTablesError,
    QueryError,
    SchemaError,
    SearchIndexError,
    TooManyClausesError,
    TooManyExpansionsError,
    UnsupportedPredicateError,
    require,
)
from indextables.jobs.alter_columns import (
    add_columns,
    drop_columns,
    rename_column,
    set_properties,
)
from indextables.jobs.assignments import parse_assignments
from indextables.jobs.commit_write import Written
from indextables.jobs.history import Purged, Truncated, purge, restore, truncate_history
from indextables.jobs.index_crossreferences import (
    drop_crossreferences,
    index_crossreferences,
    indexed_rows,
    xref_rows,
)
from indextables.jobs.merge_splits import Merged, MergeLimits, merge_splits
from indextables.jobs.prewarm import Prewarmed, PrewarmPlan, component_sizes, plan_prewarm
from indextables.jobs.repair import Repaired, repair_log
from indextables.jobs.row_changes import (
    Dropped,
    WhenMatched,
    WhenNotMatched,
    delete_rows,
    drop_partitions,
    update_rows,
)
from indextables.jobs.verify import Check, verify
from indextables.jobs.write_job import Exclusive, create_table, merge_rows, write_rows
from indextables.log.actions import Metadata
from indextables.log.cache import CacheStats
from indextables.log.checkpoint import LastCheckpoint
from indextables.log.snapshot import Snapshot
from indextables.log.transaction_log import TransactionLog
from indextables.plan.aggregation import facet_counts, value_histogram
from indextables.plan.changes import changes_schema, table_changes
from indextables.plan.execute import count_rows, result_schema, run_scan
from indextables.plan.ranking import (
    RANKED_BY,
    Metric,
    Nearest,
    ScoreExplanation,
    explain_score,
    top_rows,
    with_snippets,
)
from indextables.plan.scan import ScanPlan, checked_columns, plan_scan
from indextables.plan.view import TableView, refuse_search_index
from indextables.plan.words import (
    analyzed,
    analyzer_of,
    completions,
    corrected,
    more_like,
    suggestions,
)
from indextables.predicate import TRUE, Predicate, conjunction
from indextables.predicate.search import MAX_DISTANCE
from indextables.runner import Runner
from indextables.schema import ROW, SCORE, SPLIT, from_json
from indextables.storage import canonical_uri, open_store
from indextables.table.arguments import (
    SearchMode,
    Timestamp,
    Where,
    check_assignments,
    check_columns,
    check_condition,
    check_limit,
    check_merge,
    check_names,
    check_properties,
    check_ranking,
    check_text,
    check_version,
    check_versions,
    check_where,
    columns_of,
    facet_names,
    filtered,
    history_rows,
    mapping_keys,
    may_hold,
    milliseconds,
    names_of,
    rank_values,
    search_of,
    with_counts,
    word_fields,
)
from indextables.table.html import Explained, table_html

if TYPE_CHECKING:
    import pandas  # type: ignore[import-untyped]
    import polars

logger = logging.getLogger(__name__)
Answer = TypeVar("Answer")


class Table:
    """An index table at a URI, at one version. Make one with `create` or `open`.

    A handle is pinned: reads see the version that it was opened at, or that its last write made.
    `refresh` moves it to the newest one. Results are Arrow tables and complete: there is no hidden
    limit.
    """

    def __init__(self, log: TransactionLog, view: TableView, *, writable: bool = True) -> None:
        self._log = log
        self._view = view
        self._writable = writable
        self._was_read_in_part = False

    # --- making one --------------------------------------------------------------------------

    @classmethod
    def create(
        cls,
        uri: str | os.PathLike[str],
        schema: pa.Schema | str | None = None,
        *,
        data: Any = None,
        partition_by: str | Sequence[str] = (),
        mapping: Mapping[str, str] | None = None,
        properties: Mapping[str, str] | None = None,
        name: str | None = None,
        description: str | None = None,
        config: Mapping[str, object] | None = None,
        storage_options: Mapping[str, object] | None = None,
    ) -> Table:
        """Create a table, empty or with rows, in one commit.

        Args:
            uri: A folder, or a prefix of a bucket (`s3://…`, `az://…`, `gs://…`, `memory://…`).
            schema: The columns, as an Arrow schema or Spark's schema as JSON; those of `data` if it
                is left out.
            data: The first rows: anything that `append` takes.
            partition_by: The columns whose values are folders.
            mapping: How columns are searched (`text`, `string`, `json`, `ip`); other indexing
                options are `config` keys.
            properties: Kept with the table; they configure all who use it.
            name: A display name.
            description: What the table holds.
            config: `spark.indextables.*` keys of this handle.
            storage_options: Credentials and the endpoint of the store.

        Returns:
            The table, at its version 0.

        Raises:
            TableExistsError: There is a table already.
            SchemaError: A column cannot be stored or searched as wanted.

        >>> import pyarrow as pa
        >>> from indextables import Table
        >>> schema = pa.schema([("id", pa.string()), ("body", pa.string())])
        >>> table = Table.create("memory://create-example", schema, mapping={"id": "string"})
        >>> table.append(pa.table({"id": ["a", "b"], "body": ["red fox", "lazy dog"]})).rows
        2
        >>> table.search("fox")["id"].to_pylist()
        ['a']
        """
        if schema is not None and not isinstance(schema, pa.Schema | str):
            raise SchemaError(
                "schema is an Arrow schema, or Spark's schema as JSON, not "
                f"{type(schema).__name__}."
            )
        check_properties(properties or {})
        columns = from_json(schema) if isinstance(schema, str) else schema
        if columns is None and data is None:
            raise SchemaError("A table has columns: pass a schema, or its first rows as data.")
        log = TransactionLog(open_store(uri, storage_options), config=Config(config))
        create_table(
            log,
            columns,
            data,
            settings=Config(mapping_keys(mapping), config),
            partition_by=names_of(partition_by, "partition_by"),
            properties=properties or {},
            name=name,
            description=description,
        )
        return cls(log, TableView(log.store, log.after(0), log.config))

    @classmethod
    def open(
        cls,
        uri: str | os.PathLike[str],
        *,
        version: int | None = None,
        timestamp: Timestamp | None = None,
        config: Mapping[str, object] | None = None,
        storage_options: Mapping[str, object] | None = None,
    ) -> Table:
        """Open a table as it is now, at a version, or as it was at a time.

        A table that is opened at a version or a time can be read only.

        Args:
            uri: Where the table is.
            version: A version that the log still has.
            timestamp: A datetime, ISO text or epoch milliseconds.
            config: `spark.indextables.*` keys of this handle.
            storage_options: Credentials and the endpoint of the store.

        Returns:
            The table, as it is at that version.

        Raises:
            NotATableError: There is no table at the URI.
            VersionNotFoundError: The log does not have that version.

        >>> import pyarrow as pa
        >>> from indextables import Table
        >>> _ = Table.create("memory://open-example", data=pa.table({"n": [1, 2]}))
        >>> Table.open("memory://open-example").count(where="n > 1")
        1
        """
        log = TransactionLog(open_store(uri, storage_options), config=Config(config))
        return cls.of_log(log, version=version, timestamp=timestamp)

    @classmethod
    def of_log(
        cls,
        log: TransactionLog,
        *,
        version: int | None = None,
        timestamp: Timestamp | None = None,
    ) -> Table:
        """The table of an open log.

        Args:
            log: The log.
            version: A version that is still there; the newest if it is left out.
            timestamp: A datetime, ISO text or epoch milliseconds, instead of a version.

        Returns:
            The table.

        Raises:
            VersionNotFoundError: The log does not have that version.

        >>> import pyarrow as pa
        >>> from indextables import Table
        >>> table = Table.create("memory://of-log-example", data=pa.table({"n": [1, 2]}))
        >>> _ = table.append(pa.table({"n": [3]}))
        >>> Table.of_log(table.log).count(), Table.of_log(table.log, version=0).count()
        (3, 2)
        """
        if version is None and timestamp is None:
            # Whether it is a table, and one that can be read. Its files are read when asked for.
            newest = log.snapshot(keep_manifest=lambda _metadata: lambda _bounds: False)
            log.catch_up_mirror(newest)
            return cls(log, TableView(log.store, newest, log.config))
        past = _past(log, version, timestamp)
        return cls(log, TableView(log.store, past, log.config), writable=False)

    @classmethod
    def exists(
        cls,
        uri: str | os.PathLike[str],
        *,
        storage_options: Mapping[str, object] | None = None,
    ) -> bool:
        """Whether there is a table at the URI.

        Args:
            uri: Where the table would be.
            storage_options: Credentials and the endpoint of the store.

        Returns:
            Whether there is one.

        >>> from indextables import Table
        >>> Table.exists("memory://no-such-table")
        False
        """
        return TransactionLog(open_store(uri, storage_options)).exists()

    # --- what it is --------------------------------------------------------------------------

    @property
    def uri(self) -> str:
        """Where the table is."""
        return canonical_uri(self._log.store.uri)

    @property
    def version(self) -> int:
        """The version that reads see."""
        return self._view.version

    @property
    def schema(self) -> pa.Schema:
        """The columns, partition columns included."""
        return self._view.names.shown

    @property
    def partition_columns(self) -> tuple[str, ...]:
        """The columns whose values are folders."""
        return self._view.shown.partition_columns

    @property
    def properties(self) -> dict[str, str]:
        """Texts that are kept with the table and configure all who use it."""
        return self._view.properties

    @property
    def mapping(self) -> dict[str, str]:
        """How each column is searched, as `create` takes it; columns that are not are left out."""
        return {f.name: f.kind for f in self._view.shown.mapping.fields if f.indexed}

    @property
    def name(self) -> str | None:
        """The display name of the table."""
        return self._view.snapshot.metadata.name

    @property
    def description(self) -> str | None:
        """What the table holds."""
        return self._view.snapshot.metadata.description

    def metadata(self) -> Metadata:
        """All that the log says about the table itself: its id, name, columns and properties.

        Returns:
            The metadata of this version.

        >>> import pyarrow as pa
        >>> from indextables import Table
        >>> rows = pa.table({"day": ["mon"], "n": [1]})
        >>> table = Table.create("memory://metadata-example", data=rows, name="sales")
        >>> table.metadata().name, table.metadata().format["provider"]
        ('sales', 'indextables')
        """
        return self._view.shown.snapshot.metadata

    @property
    def log(self) -> TransactionLog:
        """The table's transaction log."""
        return self._log

    @property
    def view(self) -> TableView:
        """The version that reads see, with all its files, configuration and mapping."""
        if self._view.snapshot.partial:
            self._view = self._view.at(self._log.completed(self._view.snapshot))
        return self._view

    def refresh(self) -> Table:
        """Move to the newest version.

        Returns:
            The same table.

        >>> import pyarrow as pa
        >>> from indextables import Table
        >>> mine = Table.create("memory://refresh-example", pa.schema([("n", pa.int64())]))
        >>> other = Table.open("memory://refresh-example")
        >>> other.append(pa.table({"n": [1]})).version
        1
        >>> mine.version, mine.refresh().version
        (0, 1)
        """
        self._check_writable()
        self._view = self._view.at(self._log.snapshot())
        return self

    def snapshot(
        self, *, version: int | None = None, timestamp: Timestamp | None = None
    ) -> Snapshot:
        """The table's files, schema and properties, at this version or in the past.

        A column that was renamed has the name there that it is stored under.

        Args:
            version: A version that is still there; the newest if it is left out.
            timestamp: A datetime, ISO text or epoch milliseconds, instead of a version.

        Returns:
            The files with their statistics, the schema and the properties.

        Raises:
            VersionNotFoundError: The log does not have that version.

        >>> import pyarrow as pa
        >>> from indextables import Table
        >>> table = Table.create("memory://snapshot-example", data=pa.table({"n": [1, 2, 3]}))
        >>> table.snapshot().num_files
        1
        """
        if version is None and timestamp is None:
            return self.view.snapshot
        return _past(self._log, version, timestamp)

    def history(self, *, limit: int | None = None) -> pa.Table:
        """The retained versions, newest first.

        Args:
            limit: The most versions to return; all that are retained if it is left out.

        Returns:
            A row for each version: `version`, `timestamp`, `operation`, and what it did.

        >>> import pyarrow as pa
        >>> from indextables import Table
        >>> table = Table.create("memory://history-example", data=pa.table({"n": [1, 2, 3]}))
        >>> _ = table.delete(where="n = 2")
        >>> table.history()["operation"].to_pylist()
        ['DELETE', 'CREATE TABLE']
        """
        return history_rows(self._log.history(limit=check_limit(limit)))

    def cache_stats(self) -> dict[str, CacheStats]:
        """Hits and misses of the log's caches.

        Returns:
            Hits, misses and sizes by the name of the cache.

        >>> import pyarrow as pa
        >>> from indextables import Table
        >>> table = Table.create("memory://cache-example", data=pa.table({"n": [1]}))
        >>> sorted(table.cache_stats())
        ['latest', 'manifests', 'snapshots', 'versions']
        >>> table.refresh().cache_stats()["latest"].hits > 0
        True
        """
        return self._log.cache_stats()

    def __repr__(self) -> str:
        return f"Table({self.uri!r}, version={self.version})"

    def _repr_html_(self) -> str:
        return table_html(self._view)

    # --- reading -----------------------------------------------------------------------------

    def scan(
        self,
        *,
        columns: Sequence[str] | None = None,
        where: Where | None = None,
        limit: int | None = None,
        timezone: str = "UTC",
    ) -> pa.Table:
        """The rows that meet a condition, all of them unless there is a limit.

        Args:
            columns: The columns to return; all if it is left out.
            where: A SQL condition in Spark's dialect; `column indexquery '…'`, `_indexall
                indexquery '…'`, `indexqueryall('…')` and `search(column, '…')` search. Or an
                Arrow expression
                (`pyarrow.compute.field("n") > 3`), which no index narrows, or a predicate.
            limit: The most rows to return.
            timezone: The time zone of times without one.

        Returns:
            The rows, in no particular order.

        Raises:
            UnknownColumnError: The table does not have a column.
            QueryError: The condition or a search in it is wrong.

        >>> import pyarrow as pa
        >>> from indextables import Table
        >>> table = Table.create("memory://scan-example", data=pa.table({"n": [1, 2, 3]}))
        >>> table.scan(where="n > 1", columns=["n"])["n"].to_pylist()
        [2, 3]
        """
        return self.scan_batches(
            columns=columns, where=where, limit=limit, timezone=timezone
        ).read_all()

    def scan_batches(
        self,
        *,
        columns: Sequence[str] | None = None,
        where: Where | None = None,
        limit: int | None = None,
        timezone: str = "UTC",
    ) -> pa.RecordBatchReader:
        """The same rows as a stream, for results larger than memory.

        Args:
            columns: The columns to return; all if it is left out.
            where: A SQL condition, searches included; all rows if it is left out.
            limit: The most rows to return.
            timezone: The time zone of times without one.

        Returns:
            The batches, read as they are taken.

        Raises:
            QueryError: The condition or a search in it is wrong.

        >>> import pyarrow as pa
        >>> from indextables import Table
        >>> table = Table.create("memory://batches-example", data=pa.table({"n": [1, 2, 3]}))
        >>> sum(batch.num_rows for batch in table.scan_batches(where="n > 1"))
        2
        """
        if isinstance(where, pc.Expression):
            return self._filtered(where, columns, check_limit(limit))
        view = self._view_for(where, timezone)
        plan = self._plan(view, where, columns, limit, timezone)
        schema = view.names.shown_result(result_schema(plan))
        fitting = (
            p if p.schema.equals(schema) else p.rename_columns(schema.names).cast(schema)
            for p in run_scan(plan)
        )
        batches = (batch for piece in fitting for batch in piece.to_batches())
        return pa.RecordBatchReader.from_batches(schema, batches)

    def to_arrow(
        self,
        *,
        columns: Sequence[str] | None = None,
        where: Where | None = None,
        limit: int | None = None,
        timezone: str = "UTC",
    ) -> pa.Table:
        """The same as `scan`.

        Args:
            columns: The columns to return; all if it is left out.
            where: A SQL condition, searches included; all rows if it is left out.
            limit: The most rows to return.
            timezone: The time zone of times without one.

        Returns:
            The rows.

        Raises:
            QueryError: The condition or a search in it is wrong.

        >>> import pyarrow as pa
        >>> from indextables import Table
        >>> table = Table.create("memory://arrow-example", data=pa.table({"n": [1, 2, 3]}))
        >>> table.to_arrow(where="n > 1").to_pydict()
        {'n': [2, 3]}
        """
        return self.scan(columns=columns, where=where, limit=limit, timezone=timezone)

    def to_pandas(
        self,
        *,
        columns: Sequence[str] | None = None,
        where: Where | None = None,
        limit: int | None = None,
        timezone: str = "UTC",
    ) -> pandas.DataFrame:
        """The rows of `scan` as a pandas DataFrame; needs pandas.

        Args:
            columns: The columns to return; all if it is left out.
            where: A SQL condition, searches included; all rows if it is left out.
            limit: The most rows to return.
            timezone: The time zone of times without one.

        Returns:
            The rows.

        Raises:
            MissingPackageError: pandas is not installed.

        >>> import pyarrow as pa
        >>> from indextables import Table
        >>> table = Table.create("memory://pandas-example", data=pa.table({"n": [1, 2, 3]}))
        >>> table.to_pandas(where="n > 1")["n"].tolist()
        [2, 3]
        """
        require("pandas", extra=None, for_what="to_pandas")
        return self.scan(columns=columns, where=where, limit=limit, timezone=timezone).to_pandas()

    def to_polars(
        self,
        *,
        columns: Sequence[str] | None = None,
        where: Where | None = None,
        limit: int | None = None,
        timezone: str = "UTC",
    ) -> polars.DataFrame:
        """The rows of `scan` as a Polars DataFrame; needs Polars.

        Args:
            columns: The columns to return; all if it is left out.
            where: A SQL condition, searches included; all rows if it is left out.
            limit: The most rows to return.
            timezone: The time zone of times without one.

        Returns:
            The rows.

        Raises:
            MissingPackageError: Polars is not installed.

        >>> import pyarrow as pa
        >>> from indextables import Table
        >>> table = Table.create("memory://polars-example", data=pa.table({"n": [1, 2, 3]}))
        >>> table.to_polars(where="n > 1")["n"].to_list()
        [2, 3]
        """
        require("polars", extra=None, for_what="to_polars")
        import polars

        frame = polars.from_arrow(
            self.scan(columns=columns, where=where, limit=limit, timezone=timezone)
        )
        assert isinstance(frame, polars.DataFrame)
        return frame

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """All rows by Arrow's C interface, so that DuckDB, Polars and others read the table."""
        stream: Any = self.scan_batches()
        return stream.__arrow_c_stream__(requested_schema)

    def search(
        self,
        query: str | None = None,
        *,
        mode: SearchMode = "query",
        fields: Sequence[str] | None = None,
        where: Where | None = None,
        columns: Sequence[str] | None = None,
        limit: int | None = 10,
        snippets: Sequence[str] = (),
        timezone: str = "UTC",
        rank_by: str | None = None,
        vector: Sequence[float] | None = None,
        vector_column: str | None = None,
        metric: Metric = "cosine",
        fusion: Literal["rrf"] | None = None,
    ) -> pa.Table:
        """The best rows for a search, best first, with a `_score`.

        Scores are BM25 over the whole table and do not depend on its layout.

        Args:
            query: What to search for, in the syntax of `indexquery`.
            mode: `query`, or `lenient` for text that users type: what cannot be read is searched
                as plain words and is not an error. `all`, `any`, `phrase` and `prefix` have no
                syntax: the text is nothing but words.
            fields: The columns that are searched where the query names none, with weights if
                wanted: `["title^3", "body"]`. If it is left out, those of the table's property
                `spark.indextables.search.fields`, or all indexed ones.
            where: A SQL condition that leaves rows out and changes no score.
            columns: The columns to return; all if it is left out.
            limit: The most rows to return; None for all that match.
            snippets: For each of these columns there is a column `_snippet_<name>` with its best
                part, the words found marked.
            timezone: The time zone of times without one.
            rank_by: An expression of Spark's SQL over `_score` and columns that rows are ranked by
                instead, highest first, null last, such as `_score * exp(-datediff(current_date(),
                day) / 7)`. It is computed for every row that matches; the result has it as
                `_rank_by`. Needs the extra `sql`.
            vector: Rank by the vectors nearest to this one instead. Every row that the query finds
                and `where` keeps is compared; without a query, every row that `where` keeps.
            vector_column: The column of vectors; may be left out if only one declares a dimension.
            metric: `cosine`, `dot`, or `l2`, whose score is minus the distance.
            fusion: `rrf` ranks by the query and by the vector, each among all rows, and adds
                `1 / (60 + rank)` of both rankings.

        Returns:
            The rows with their columns, `_score`, and what else was asked for.

        Raises:
            QuerySyntaxError: The query cannot be read; the message says where.
            VectorError: The vector does not have the length of those in the column.

        >>> import pyarrow as pa
        >>> from indextables import Table
        >>> rows = pa.table({"title": ["fox", "dog"], "body": ["see http://a.org", "a fox, a fox"]})
        >>> table = Table.create("memory://search-example", data=rows)
        >>> table.search("fox", fields=["title^5", "body"])["title"].to_pylist()
        ['fox', 'dog']
        >>> table.search("http://a.org", mode="lenient")["title"].to_pylist()
        ['fox', 'dog']
        """
        check_ranking(
            query=query, rank_by=rank_by, vector=vector, vector_column=vector_column,
            fusion=fusion, snippets=snippets,
        )  # fmt: skip
        ask = functools.partial(
            self._ranked, query, mode, check_names(fields, "fields"), where=where, columns=columns,
            limit=limit, snippets=snippets, timezone=timezone, rank_by=rank_by, vector=vector,
            vector_column=vector_column, metric=metric, fusion=fusion,
        )  # fmt: skip
        return _leniently(ask, mode)

    def _ranked(
        self,
        query: str | None,
        mode: SearchMode,
        fields: Sequence[str] | None,
        *,
        where: Where | None,
        columns: Sequence[str] | None,
        limit: int | None,
        snippets: Sequence[str],
        timezone: str,
        rank_by: str | None,
        vector: Sequence[float] | None,
        vector_column: str | None,
        metric: Metric,
        fusion: str | None,
        only_words: bool = False,
    ) -> pa.Table:
        view = self.view
        names, shown = view.names, view.shown
        search = None
        if query is not None:
            search = search_of(view, query, fields, mode, only_words=only_words)
        chosen = checked_columns(shown.snapshot, check_names(columns, "columns"))
        snippets = check_names(snippets, "snippets") or ()
        marked_ones = checked_columns(shown.snapshot, snippets) if snippets else ()
        needed = list(dict.fromkeys([*chosen, *marked_ones]))
        computed = [SCORE, *([] if rank_by is None else [RANKED_BY])]
        computed += [f"_snippet_{name}" for name in snippets]
        result = [*chosen, *computed]
        if repeated := sorted({name for name in result if result.count(name) > 1}):
            raise SchemaError(
                f"The result would have the column '{repeated[0]}' twice. Choose its columns with "
                "columns=…."
            )
        hits = top_rows(
            view,
            search,
            predicate=self._predicate(where, view, timezone=timezone),
            columns=names.stored_names(needed),
            limit=check_limit(limit),
            nearest=None if vector is None else Nearest.of(view, vector, vector_column, metric),
            fuse=fusion is not None,
            rank=None if rank_by is None else functools.partial(rank_values, rank_by, view),
        )
        if search is not None:
            hits = with_snippets(hits, search, names.stored_names(snippets), view.context)
        hits = names.shown_rows(hits)
        if hits.column_names == result:
            return hits
        return hits.rename_columns([*needed, *computed]).select(result)

    def explain_score(
        self,
        query: str,
        row: Mapping[str, Any] | tuple[str, int] | str,
        *,
        mode: SearchMode = "query",
        fields: Sequence[str] | None = None,
        timezone: str = "UTC",
    ) -> ScoreExplanation:
        """Why a row has its score for a search: what each word adds in each column.

        Args:
            query: The search.
            row: A row of `search(…, columns=[…, "_split", "_row"])`, the pair of these two values,
                or a condition that one row meets, such as `id = 7`.
            mode: As in `search`.
            fields: As in `search`.
            timezone: The time zone of times without one.

        Returns:
            The score, and its parts as a table, the most important first.

        Raises:
            QueryError: There is no such row, or more than one meets the condition.

        >>> import pyarrow as pa
        >>> from indextables import Table
        >>> rows = pa.table({"n": [1, 2], "title": ["fox", "dog"], "body": ["fox fox", "a dog"]})
        >>> table = Table.create("memory://explain-score-example", data=rows)
        >>> found = table.explain_score("fox", "n = 1", fields=["title^2", "body"])
        >>> found.parts.select(["column", "clause", "boost", "occurrences"]).to_pylist()
        [{'column': 'title', 'clause': 'fox', 'boost': 2.0, 'occurrences': 1}, \
{'column': 'body', 'clause': 'fox', 'boost': 1.0, 'occurrences': 2}]
        """
        split, number = self._row_identity(row, timezone)
        view = self.view

        def ask(*, only_words: bool = False) -> ScoreExplanation:
            search = search_of(
                view, query, check_names(fields, "fields"), mode, only_words=only_words
            )
            return explain_score(view, search, split=split, row=number)

        return _leniently(ask, mode)

    def _row_identity(
        self, row: Mapping[str, Any] | tuple[str, int] | str, timezone: str
    ) -> tuple[str, int]:
        if isinstance(row, str):
            rows = self.scan(columns=[SPLIT, ROW], where=row, limit=2, timezone=timezone)
            if rows.num_rows != 1:
                count = "No row meets" if not rows.num_rows else "More than one row meets"
                raise QueryError(f"{count} the condition {row!r}. Name one row.")
            row = rows.to_pylist()[0]
        named: Any = (row.get(SPLIT), row.get(ROW)) if isinstance(row, Mapping) else row
        if not isinstance(named, tuple) or list(map(type, named)) != [str, int]:
            raise QueryError(
                f"{row!r} does not name a row. Pass a row of search(…, columns=['{SPLIT}', "
                f"'{ROW}']), or a condition that one row meets."
            )
        return named[0], named[1]

    def facets(
        self,
        query: str | None = None,
        *,
        by: Sequence[str | Sequence[str]],
        top: int | None = 10,
        mode: SearchMode = "query",
        fields: Sequence[str] | None = None,
        where: Where | None = None,
        timezone: str = "UTC",
    ) -> dict[str, pa.Table]:
        """How often each value occurs among the rows of a search: all facets in one pass.

        Args:
            query: What to search for, in the syntax of `indexquery`; all rows if it is left out.
            by: The columns whose values are counted. Several names as one entry count the
                combinations of their values.
            top: The most values of each to return, the most frequent first; None for all.
            mode: How the query is read, as in `search`.
            fields: The columns that are searched where the query names none; all indexed ones if
                it is left out.
            where: A SQL condition that leaves rows out.
            timezone: The time zone of times without one.

        Returns:
            For each entry of `by` a table with its values and last a column `count`, or `_count`
            beside a column of that name. Null is a value.
            The key of several names is all of them, joined by commas.

        Raises:
            UnknownColumnError: The table does not have a column.
            TooManyValuesError: A column has more than a million different values.

        >>> import pyarrow as pa
        >>> from indextables import Table
        >>> rows = pa.table({"level": ["warn", "info", "warn"], "body": ["disk", "disk", "cpu"]})
        >>> table = Table.create("memory://facets-example", data=rows)
        >>> table.facets("disk OR cpu", by=["level"])["level"].to_pylist()
        [{'level': 'warn', 'count': 2}, {'level': 'info', 'count': 1}]
        """
        groups = [(one,) if isinstance(one, str) else tuple(one) for one in facet_names(by)]
        view = self.view
        for group in groups:
            checked_columns(view.shown.snapshot, group)
        stored = [view.names.stored_names(group) for group in groups]

        def ask(*, only_words: bool = False) -> list[pa.Table]:
            predicate = self._condition(
                view, query, mode, fields, where=where, timezone=timezone, only_words=only_words
            )
            return facet_counts(view, predicate, stored, top=check_limit(top))

        return {
            ",".join(group): counted.rename_columns(with_counts(group))
            for group, counted in zip(groups, _leniently(ask, mode), strict=True)
        }

    def histogram(
        self,
        query: str | None = None,
        *,
        column: str,
        interval: str | float,
        mode: SearchMode = "query",
        fields: Sequence[str] | None = None,
        where: Where | None = None,
        timezone: str = "UTC",
    ) -> pa.Table:
        """How many rows of a search fall into each hour, day or other part of a column's values.

        Args:
            query: What to search for, in the syntax of `indexquery`; all rows if it is left out.
            column: A column of times, dates or numbers.
            interval: A length such as `1h`, `15 minutes`, `1d` or `1 month`, or a width of
                numbers. One hour, day, week or more is one of the time zone, as in Spark's
                `date_trunc`; several are of a fixed length, as in its `window`.
            mode: How the query is read, as in `search`.
            fields: The columns that are searched where the query names none; all indexed ones if
                it is left out.
            where: A SQL condition that leaves rows out.
            timezone: The time zone of hours and days, and of times without one.

        Returns:
            The start of each part and its `count` (`_count` of a column of that name), from the
            first part with rows to the last; parts between them without rows have the count 0.
            Rows without a value are left out.

        Raises:
            IntervalError: The interval does not fit the column.
            TooManyValuesError: There would be more than ten thousand parts.

        >>> import pyarrow as pa
        >>> from indextables import Table
        >>> table = Table.create("memory://histogram-example", data=pa.table({"n": [1, 5, 27]}))
        >>> table.histogram(column="n", interval=10).to_pydict()
        {'n': [0, 10, 20], 'count': [2, 0, 1]}
        """
        check_text(column, "column")
        view = self.view
        checked_columns(view.shown.snapshot, [column])
        stored = view.names.stored_name(column)

        def ask(*, only_words: bool = False) -> pa.Table:
            predicate = self._condition(
                view, query, mode, fields, where=where, timezone=timezone, only_words=only_words
            )
            return value_histogram(view, predicate, stored, interval, zone=timezone)

        return _leniently(ask, mode).rename_columns(with_counts([column]))

    def analyze(self, column: str, text: str) -> pa.Table:
        """The words that an index holds of a text.

        Args:
            column: A column that is searched by words, or an analyzer: `english`, `default | fold`.
            text: Any text.

        Returns:
            Each `word`, its `position` among the words, and its `start` and `end` in the text, in
            characters. Words that the analyzer leaves out leave their positions empty.

        Raises:
            QueryError: There is neither such a column nor such an analyzer; the message lists them.
            SchemaError: The column has no words.

        >>> import pyarrow as pa
        >>> from indextables import Table
        >>> table = Table.create("memory://analyze-example", pa.schema({"body": pa.string()}))
        >>> table.analyze("english", "The quick foxes").to_pylist()[-1]
        {'word': 'fox', 'position': 2, 'start': 10, 'end': 15}
        >>> table.analyze("body", "Wi-Fi")["word"].to_pylist()
        ['wi', 'fi']
        """
        check_text(column, "column")
        check_text(text, "text")
        return analyzed(analyzer_of(self._view.shown, column), text)

    def complete(
        self,
        prefix: str,
        *,
        column: str,
        limit: int | None = 10,
        where: Where | None = None,
        timezone: str = "UTC",
    ) -> pa.Table:
        """The words of a column that begin with a text, for type-ahead.

        Words are those of the column's analyzer: of a column with stems they are stems.

        Args:
            prefix: The first letters of a word; of a column of kind `string`, of a value.
            column: A column that is searched by words.
            limit: The most words to return; None for all.
            where: A SQL condition that leaves rows out.
            timezone: The time zone of times without one.

        Returns:
            Each `word`, and in how many rows it occurs as `count`, the most frequent first.

        Raises:
            TooManyExpansionsError: More than `spark.indextables.indexquery.maxExpansions` words
                begin so.

        >>> import pyarrow as pa
        >>> from indextables import Table
        >>> rows = pa.table({"body": ["a machine", "machines", "machine made", "fox"]})
        >>> table = Table.create("memory://complete-example", data=rows)
        >>> table.complete("Mach", column="body").to_pydict()
        {'word': ['machine', 'machines'], 'count': [2, 1]}
        """
        check_text(prefix, "prefix")
        view = self.view
        predicate = self._predicate(where, view, timezone=timezone)
        return completions(view, column, prefix, predicate=predicate, limit=check_limit(limit))

    def suggest(
        self,
        word: str,
        *,
        column: str,
        limit: int | None = 5,
        distance: int = 2,
        where: Where | None = None,
        timezone: str = "UTC",
    ) -> pa.Table:
        """The words of a column that a misspelt one may stand for.

        Args:
            word: One word, as a user typed it.
            column: A column that is searched by words.
            limit: The most words to return; None for all.
            distance: How many letters may be added, missing, different or swapped: 0 to 2.
            where: A SQL condition that leaves rows out.
            timezone: The time zone of times without one.

        Returns:
            Each `word`, its `distance` and the `count` of its rows: the nearest first, of these
            the most frequent. A word that is there itself has the distance 0.

        >>> import pyarrow as pa
        >>> from indextables import Table
        >>> rows = pa.table({"body": ["spark sql", "spark", "spare"]})
        >>> table = Table.create("memory://suggest-example", data=rows)
        >>> table.suggest("spak", column="body")["word"].to_pylist()
        ['spark', 'spare']
        """
        check_text(word, "word")
        if distance not in range(MAX_DISTANCE + 1):
            raise ConfigError(f"distance is 0 to {MAX_DISTANCE}, not {distance!r}.")
        view = self.view
        predicate = self._predicate(where, view, timezone=timezone)
        return suggestions(
            view, column, word, predicate=predicate, distance=distance, limit=check_limit(limit)
        )

    def correct_query(
        self,
        query: str,
        *,
        fields: Sequence[str] | None = None,
        where: Where | None = None,
        timezone: str = "UTC",
    ) -> str | None:
        """The query with misspelt words corrected ("did you mean"), if that finds rows.

        A word that no row has becomes the nearest word that some rows have. Only plain words are
        corrected, the first five of a query: no phrases and no patterns.

        Args:
            query: What a user searched for, in the syntax of `indexquery`.
            fields: The columns that are searched where the query names none, as in `search`.
            where: A SQL condition that leaves rows out.
            timezone: The time zone of times without one.

        Returns:
            The corrected query; None if nothing is to be corrected, or it finds no row either.

        Raises:
            QueryError: The query is not one that `search` takes; the message says why.

        >>> import pyarrow as pa
        >>> from indextables import Table
        >>> rows = pa.table({"body": ["spark sql", "machine learning"]})
        >>> table = Table.create("memory://correct-example", data=rows)
        >>> table.correct_query("machin AND learning")
        'machine AND learning'
        """
        view = self.view
        search_of(view.shown, query, check_names(fields, "fields"))
        try:
            columns = word_fields(view.shown, fields)
        except SchemaError:  # none of them has words of its own
            return None

        def finds_rows(word: str) -> bool:
            return count_rows(*self.matching(word, fields=fields)) > 0

        better = corrected(view, query, list(columns), finds_rows=finds_rows)
        if better is None:
            return None
        search = self.matching(better, fields=fields, where=where, timezone=timezone)
        return better if count_rows(*search) else None

    def more_like_this(
        self,
        text: str | None = None,
        *,
        row: Where | None = None,
        fields: Sequence[str] | None = None,
        where: Where | None = None,
        columns: Sequence[str] | None = None,
        limit: int | None = 10,
        max_words: int = 25,
        timezone: str = "UTC",
    ) -> pa.Table:
        """The rows that are about the same as a text or as a row, best first, with a `_score`.

        A search for the words that tell the most: frequent in the text, rare in the table.

        Args:
            text: A text; or name a row instead.
            row: A condition that one row meets, such as `id = 'a-1'`. It is not in the result.
            fields: The columns that are compared, with weights if wanted: `["title^3", "body"]`.
                If it is left out, those of the table's property `spark.indextables.search.fields`,
                or all that are cut into words.
            where: A SQL condition that leaves rows out and changes no score.
            columns: The columns to return; all if it is left out.
            limit: The most rows to return; None for all that have one of the words.
            max_words: How many words are searched for.
            timezone: The time zone of times without one.

        Returns:
            The rows and their `_score`.

        Raises:
            QueryError: `row` names no row, or several.

        >>> import pyarrow as pa
        >>> from indextables import Table
        >>> rows = pa.table({"id": [1, 2, 3], "body": ["red fox", "a fox, red", "lazy dog"]})
        >>> table = Table.create("memory://more-example", data=rows)
        >>> table.more_like_this(row="id = 1")["id"].to_pylist()
        [2]
        """
        view = self.view
        if (text is None) == (row is None):
            raise ConfigError("Name what the rows should resemble: text='…' or row=\"id = 1\".")
        if text is not None:
            check_text(text, "text")
        if isinstance(max_words, bool) or not isinstance(max_words, int) or max_words < 1:
            raise ConfigError(f"max_words is a number of at least 1, not {max_words!r}.")
        chosen = checked_columns(view.shown.snapshot, check_names(columns, "columns"))
        similar = more_like(
            view,
            word_fields(view.shown, check_names(fields, "fields")),
            text=text,
            row=None if row is None else self._predicate(row, view, timezone=timezone),
            predicate=self._predicate(where, view, timezone=timezone),
            columns=view.names.stored_names(chosen),
            limit=check_limit(limit),
            most_words=max_words,
        )
        return view.names.shown_rows(similar).rename_columns([*chosen, SCORE])

    def sql(self, query: str, /, **tables: Any) -> pa.Table:
        """Run a query in Spark's SQL over this table, without Spark. It is called `this` there.

        Args:
            query: One SELECT; `indextables.sql` says what it may have.
            tables: Further tables by name, to join.

        Returns:
            The rows, as an Arrow table.

        Raises:
            EmbeddedQueryError: The query is wrong, or has something that only Spark has.
            QueryError: A search in it is wrong.

        >>> import pyarrow as pa
        >>> from indextables import Table
        >>> rows = pa.table({"n": [1, 2, 3], "body": ["red fox", "lazy dog", "fox and dog"]})
        >>> table = Table.create("memory://table-sql-example", data=rows)
        >>> table.sql("SELECT max(n) AS most FROM this WHERE body indexquery 'fox'").to_pylist()
        [{'most': 3}]
        """
        import indextables

        rows: pa.Table = indextables.sql(query, this=self, **tables)
        return rows

    def count(self, *, where: Where | None = None, timezone: str = "UTC") -> int:
        """How many rows meet a condition; from the log alone where that is enough.

        Args:
            where: A SQL condition, searches included; all rows if it is left out.
            timezone: The time zone of times without one.

        Returns:
            The number of rows.

        Raises:
            QueryError: The condition or a search in it is wrong.

        >>> import pyarrow as pa
        >>> from indextables import Table
        >>> table = Table.create("memory://count-example", data=pa.table({"n": [1, 2, 3]}))
        >>> table.count(), table.count(where="n > 1")
        (3, 2)
        """
        if isinstance(where, pc.Expression):
            needed = columns_of(where, self.schema) or self.schema.names[:1]
            return sum(b.num_rows for b in self._filtered(where, needed, None))
        view = self._view_for(where, timezone)
        return count_rows(view, self._predicate(where, view, timezone=timezone))

    def changes(
        self,
        *,
        from_version: int,
        to_version: int | None = None,
        where: Where | None = None,
        timezone: str = "UTC",
    ) -> pa.Table:
        """The rows that versions inserted, deleted or updated, in the order of the versions.

        Merges of splits change no rows. A row that a commit writes unchanged is not a change.

        Args:
            from_version: The first version whose changes are returned.
            to_version: The last one, whose columns the rows have; this version by default.
            where: Only rows that meet a condition, searches included: which rows match since then.
            timezone: The time zone of times without one.

        Returns:
            The rows, with `_change_type` (insert, delete, update_preimage, update_postimage),
            `_commit_version` and `_commit_timestamp`.

        Raises:
            VersionNotFoundError: The table does not have these versions.
            PurgedVersionError: The log or the splits of one of them are gone.
            SchemaError: Columns were replaced between these versions.

        >>> import pyarrow as pa
        >>> from indextables import Table
        >>> table = Table.create("memory://changes-example", data=pa.table({"n": [1, 2]}))
        >>> _ = table.append(pa.table({"n": [3]}))
        >>> _ = table.delete(where="n = 1")
        >>> table.changes(from_version=1).select(["n", "_change_type"]).to_pylist()
        [{'n': 3, '_change_type': 'insert'}, {'n': 1, '_change_type': 'delete'}]
        """
        last = self.version if to_version is None else to_version
        check_versions(from_version, last)
        past = (
            self.view if last == self.version else self._view.at(self._log.snapshot(version=last))
        )
        predicate = self._predicate(where, past, timezone=timezone)
        parts = table_changes(self._log, past, first=from_version, predicate=predicate)
        return pa.concat_tables([changes_schema(past).empty_table(), *parts])

    def matching(
        self,
        query: str | None = None,
        *,
        mode: SearchMode = "query",
        fields: Sequence[str] | None = None,
        where: Where | None = None,
        timezone: str = "UTC",
    ) -> tuple[TableView, Predicate]:
        """The version, and the condition that the rows of a search meet, for plans of one's own.

        The condition has the stored names of columns; `where` takes it back by
        `view.names.shown_predicate`.

        Args:
            query: What to search for, in the syntax of `indexquery`.
            mode: How the query is read, as in `Table.search`.
            fields: The columns that are searched where the query names none, with weights if
                wanted.
            where: A SQL condition that leaves rows out.
            timezone: The time zone of times without one.

        Returns:
            The version, and the condition.

        Raises:
            QueryError: The query or the condition is wrong.

        >>> import pyarrow as pa
        >>> from indextables import Table
        >>> rows = pa.table({"n": [1, 2, 3], "body": ["red fox", "lazy dog", "a fox"]})
        >>> table = Table.create("memory://matching-example", data=rows)
        >>> view, condition = table.matching("fox", where="n > 1")
        >>> table.count(where=view.names.shown_predicate(condition))
        1
        """
        view = self.view
        return view, self._condition(view, query, mode, fields, where=where, timezone=timezone)

    def explain(
        self,
        *,
        where: Where | None = None,
        columns: Sequence[str] | None = None,
        limit: int | None = None,
        timezone: str = "UTC",
    ) -> str:
        """What a scan would do: how many splits and bytes each stage keeps, and why.

        Args:
            where: A SQL condition, searches included; all rows if it is left out.
            columns: The columns to return; all if it is left out.
            limit: The most rows to return.
            timezone: The time zone of times without one.

        Returns:
            The plan as text.

        Raises:
            QueryError: The condition or a search in it is wrong.

        >>> import pyarrow as pa
        >>> from indextables import Table
        >>> table = Table.create("memory://explain-example", data=pa.table({"n": [1, 2, 3]}))
        >>> "splits" in table.explain(where="n > 1")
        True
        """
        return Explained.of(self._plan(self.view, where, columns, limit, timezone))

    # --- writing: every verb is one commit, or none if it fails ------------------------------

    def append(
        self, data: Any, *, merge_schema: bool = False, config: Mapping[str, object] | None = None
    ) -> Written:
        """Add rows.

        Args:
            data: An Arrow table, batches or a reader, a pandas or Polars DataFrame.
            merge_schema: Add new columns to the table and widen types.
            config: `spark.indextables.*` keys of this write.

        Returns:
            The new version, and how many rows and files it has.

        Raises:
            SchemaError: The rows do not fit the table; nothing was written.

        >>> import pyarrow as pa
        >>> from indextables import Table
        >>> table = Table.create("memory://append-example", data=pa.table({"n": [1, 2, 3]}))
        >>> table.append(pa.table({"n": [4]})).version, table.count()
        (1, 4)
        """
        return self._write(data, config, kind="append", merge_schema=merge_schema)

    def overwrite(
        self,
        data: Any,
        *,
        where: Where | None = None,
        partitions: Literal["all", "dynamic"] = "all",
        merge_schema: bool = False,
        config: Mapping[str, object] | None = None,
        timezone: str = "UTC",
    ) -> Written:
        """Replace rows: all of them, those that meet `where`, or the partitions that `data` has.

        Args:
            data: An Arrow table, batches or a reader, a pandas or Polars DataFrame.
            where: The rows to replace; those of `data` have to meet it as well.
            partitions: `all`, or `dynamic` to replace the partitions that `data` has rows of.
            merge_schema: Add new columns to the table and widen types.
            config: `spark.indextables.*` keys of this call.
            timezone: The time zone of times without one.

        Returns:
            The new version, and how many rows and files it has.

        Raises:
            SchemaError: The rows do not fit the table; nothing was written.

        >>> import pyarrow as pa
        >>> from indextables import Table
        >>> table = Table.create("memory://overwrite-example", data=pa.table({"n": [1, 2, 3]}))
        >>> _ = table.overwrite(pa.table({"n": [9]}), where="n > 2")
        >>> sorted(table.scan()["n"].to_pylist())
        [1, 2, 9]
        """
        self._check_writable()
        if partitions not in ("all", "dynamic"):
            raise ConfigError(f"partitions is 'all' or 'dynamic', not {partitions!r}.")
        if where is None:
            kind = "overwrite" if partitions == "all" else "partitions"
            return self._write(data, config, kind=kind, merge_schema=merge_schema)
        if partitions == "dynamic":
            raise ConfigError("Use either `where` or partitions='dynamic', not both.")
        view = self.refresh().view  # the plan translates the names of columns
        predicate = view.names.shown_predicate(self._predicate(where, view, timezone=timezone))
        return self._write(data, config, kind="where", where=predicate, merge_schema=merge_schema)

    def delete(self, *, where: Where, timezone: str = "UTC") -> Written:
        """Delete the rows that meet a condition, searches included.

        Args:
            where: A SQL condition, searches included.
            timezone: The time zone of times without one.

        Returns:
            The new version, and how many files it rewrote or marked rows in.

        Raises:
            QueryError: The condition or a search in it is wrong.

        >>> import pyarrow as pa
        >>> from indextables import Table
        >>> table = Table.create("memory://delete-example", data=pa.table({"n": [1, 2, 3]}))
        >>> table.delete(where="n > 1").version, table.count()
        (1, 1)
        """
        self._check_writable()
        check_where(where)
        view = self.refresh().view
        predicate = self._predicate(where, view, timezone=timezone)
        return self._written(delete_rows(self._log, view, predicate))

    def update(
        self,
        assignments: str | Mapping[str, str],
        *,
        where: Where | None = None,
        timezone: str = "UTC",
    ) -> Written:
        """Change the rows that meet a condition, or all rows.

        Args:
            assignments: `"n = n + 1, tag = upper(tag)"`, or expressions by column.
            where: A SQL condition, searches included; all rows if it is left out.
            timezone: The time zone of times without one.

        Returns:
            The new version, and how many rows were changed.

        Raises:
            QueryError: The condition or an expression is wrong.

        >>> import pyarrow as pa
        >>> from indextables import Table
        >>> table = Table.create("memory://update-example", pa.schema([("n", pa.int64())]))
        >>> _ = table.append(pa.table({"n": [1, 2, 3]}))
        >>> table.update({"n": "n * 10"}, where="n > 1").rows
        2
        >>> sorted(table.scan()["n"].to_pylist())
        [1, 20, 30]
        """
        self._check_writable()
        check_assignments(assignments)
        view = self.refresh().view
        predicate = self._predicate(where, view, timezone=timezone)
        changes = parse_assignments(assignments, view.names.shown, timezone=timezone)
        return self._written(update_rows(self._log, view, predicate, changes))

    def merge(
        self,
        data: Any,
        *,
        on: str | Sequence[str],
        when_matched: WhenMatched = "update",
        when_not_matched: WhenNotMatched = "insert",
        merge_schema: bool = False,
    ) -> Written:
        """Merge rows by their keys, in one commit: update, insert or delete.

        Rows of the table whose values of the columns `on` equal those of a row of `data` are
        updated with its columns, deleted, or left alone; rows of `data` without such a row are
        inserted. Null equals nothing. `data` is held in memory.

        Args:
            data: The rows to merge, held in memory.
            on: The columns whose values are compared.
            when_matched: What happens to rows of the table that match: `update`, `delete`,
                `ignore`.
            when_not_matched: What happens to rows of `data` that match none: `insert` or `ignore`.
            merge_schema: Add new columns to the table and widen types.

        Returns:
            The new version, and how many rows were updated and inserted.

        Raises:
            MatchedTwiceError: Several rows of `data` would update the same row.

        >>> import pyarrow as pa
        >>> from indextables import Table
        >>> schema = pa.schema([("id", pa.int64()), ("body", pa.string())])
        >>> table = Table.create("memory://upsert-example", schema)
        >>> _ = table.append(pa.table({"id": [1, 2], "body": ["old", "kept"]}))
        >>> done = table.merge(pa.table({"id": [1, 3], "body": ["new", "first"]}), on="id")
        >>> done.rows_updated, done.rows - done.rows_updated
        (1, 1)
        >>> sorted(table.scan()["body"].to_pylist())
        ['first', 'kept', 'new']
        """
        self._check_writable()
        check_merge(when_matched, when_not_matched)
        written = merge_rows(
            self._log,
            self.refresh().view,
            data,
            on=list(dict.fromkeys(names_of(on, "on"))),
            when_matched=when_matched,
            when_not_matched=when_not_matched,
            merge_schema=merge_schema,
        )
        return self._written(written)

    def drop_partitions(self, *, where: Where, timezone: str = "UTC") -> Dropped:
        """Remove the partitions that meet a condition on partition columns.

        Args:
            where: A condition on partition columns.
            timezone: The time zone of times without one.

        Returns:
            The new version, and what was removed.

        Raises:
            NotAPartitionError: The condition is not about partition columns alone.

        >>> import pyarrow as pa
        >>> from indextables import Table
        >>> rows = pa.table({"day": ["mon", "tue", "tue"], "n": [1, 2, 3]})
        >>> table = Table.create("memory://partitions-example", data=rows, partition_by="day")
        >>> table.drop_partitions(where="day = 'tue'").partitions, table.scan()["n"].to_pylist()
        (1, [1])
        """
        self._check_writable()
        check_where(where)
        predicate = self._predicate(where, self.refresh().view, timezone=timezone)
        dropped = drop_partitions(self._log, predicate)
        self._move_to(dropped.version)
        return dropped

    def set_properties(self, properties: Mapping[str, str | None]) -> int:
        """Set properties that are kept with the table, and unset those whose value is None.

        Args:
            properties: Any names; `spark.indextables.*` keys configure all who use the
                table. Another `indexing.tokenizer.<field>` holds from now on for all rows: splits
                of the old one are searched row by row until `merge_splits` takes them. Other
                indexing options belong to the moment when a column is added: pass them as `config`
                of the handle that adds it.

        Returns:
            The version of the table that has them.

        Raises:
            ConfigError: A value does not fit its key.
            SchemaError: A property does not fit the columns.

        >>> import pyarrow as pa
        >>> from indextables import Table
        >>> table = Table.create("memory://properties-example", pa.schema([("n", pa.int64())]))
        >>> size = "spark.indextables.merge.targetSize"
        >>> table.set_properties({"owner": "search team", size: "1G"})
        1
        >>> table.set_properties({"owner": None})
        2
        >>> table.properties
        {'spark.indextables.merge.targetSize': '1G'}
        """
        self._check_writable()
        check_properties(properties)
        version = set_properties(self._log, properties)
        self._move_to(version)
        return version

    def add_columns(self, columns: pa.Schema, *, defaults: Mapping[str, Any] | None = None) -> int:
        """Add columns. No split is rewritten.

        Args:
            columns: The new columns, as an Arrow schema.
            defaults: What columns hold in the rows that are there; they are null without. Spark
                also writes it to later rows that do not name the column.

        Returns:
            The version of the table that has them.

        Raises:
            SchemaError: There is a column of that name, its type cannot be stored, or a default
                is not a single value of its column.

        >>> import pyarrow as pa
        >>> from indextables import Table
        >>> table = Table.create("memory://add-example", data=pa.table({"n": [1]}))
        >>> new = pa.schema([("tag", pa.string()), ("state", pa.string())])
        >>> table.add_columns(new, defaults={"state": "open"})
        1
        >>> table.scan().to_pylist()
        [{'n': 1, 'tag': None, 'state': 'open'}]
        """
        self._check_writable()
        if not isinstance(columns, pa.Schema):
            raise SchemaError(
                "columns is an Arrow schema: write pa.schema([('tag', pa.string())]), not "
                f"{type(columns).__name__}."
            )
        version = add_columns(self._log, columns, defaults=defaults, settings=self._view.settings)
        self._move_to(version)
        return version

    def rename_column(self, old: str, new: str) -> int:
        """Rename a column. No split is rewritten, and older versions keep the older name.

        Args:
            old: The column, in any case.
            new: Its new name.

        Returns:
            The version of the table in which the column has the new name.

        Raises:
            UnknownColumnError: The table has no column `old`.
            SchemaError: Another column has the name `new`.

        >>> import pyarrow as pa
        >>> from indextables import Table
        >>> table = Table.create("memory://rename-example", pa.schema([("n", pa.int64())]))
        >>> _ = table.append(pa.table({"n": [1, 2]}))
        >>> table.rename_column("n", "amount")
        2
        >>> table.scan(where="amount > 1").to_pydict()
        {'amount': [2]}
        """
        self._check_writable()
        if not isinstance(old, str) or not isinstance(new, str):
            raise SchemaError(f"Names of columns are texts, not {old!r} and {new!r}.")
        version = rename_column(self._log, old, new, settings=self._view.settings)
        self._move_to(version)
        return version

    def drop_columns(self, columns: str | Sequence[str]) -> int:
        """Drop columns. Their values stay in the splits, unread, until those are merged.

        Args:
            columns: The columns, in any case. A partition column cannot be dropped.

        Returns:
            The version of the table that no longer has them.

        Raises:
            UnknownColumnError: The table has no such column.
            SchemaError: It is a partition column, or no column would be left.

        >>> import pyarrow as pa
        >>> from indextables import Table
        >>> schema = pa.schema([("n", pa.int64()), ("tag", pa.string())])
        >>> table = Table.create("memory://drop-example", schema)
        >>> table.drop_columns(["tag"])
        1
        >>> table.schema.names
        ['n']
        """
        self._check_writable()
        version = drop_columns(
            self._log, names_of(columns, "columns"), settings=self._view.settings
        )
        self._move_to(version)
        return version

    def restore(self, *, version: int | None = None, timestamp: Timestamp | None = None) -> int:
        """Make the table what it was, as a new version.

        Args:
            version: A version that is still there; the newest if it is left out.
            timestamp: A datetime, ISO text or epoch milliseconds, instead of a version.

        Returns:
            The new version.

        Raises:
            VersionNotFoundError: The log does not have that version.

        >>> import pyarrow as pa
        >>> from indextables import Table
        >>> table = Table.create("memory://restore-example", data=pa.table({"n": [1, 2, 3]}))
        >>> _ = table.delete(where="n > 1")
        >>> table.restore(version=0), table.count()
        (2, 3)
        """
        self._check_writable()
        if (version is None) == (timestamp is None):
            raise ConfigError("Pass either version=… or timestamp=… to restore.")
        restored = restore(self._log, _past(self._log, version, timestamp)).version
        self._move_to(restored)
        return restored

    # --- upkeep: no verb here changes a row --------------------------------------------------

    def checkpoint(self, *, compact: bool = False) -> LastCheckpoint:
        """Write a checkpoint of the newest version now.

        A checkpoint shares manifests with the one before it. With `compact` all live files are
        written to new ones, without those of files that left the table.

        Args:
            compact: Write all live files to new manifests.

        Returns:
            Where the checkpoint is, and what it holds.

        Raises:
            ConfigError: The table was opened at a version or a time.
            SearchIndexError: It is the table of a search index.

        >>> import pyarrow as pa
        >>> from indextables import Table
        >>> table = Table.create("memory://checkpoint-example", data=pa.table({"n": [1]}))
        >>> done = table.checkpoint()
        >>> done.version, done.num_files
        (0, 1)
        """
        self._check_writable()
        return self._log.checkpoint(force_compaction=compact)

    def merge_splits(
        self,
        *,
        where: Where | None = None,
        target_size: int | str | None = None,
        max_groups: int | None = None,
        max_source_splits: int | None = None,
        config: Mapping[str, object] | None = None,
        runner: Runner | None = None,
        timezone: str = "UTC",
    ) -> Merged:
        """Merge small splits that are at most `target_size` together (`"100M"`; 5 GB by default).

        Splits of different partitions are never merged. `where` chooses partitions; `max_groups`
        limits how many splits are made, and `max_source_splits` of how many each. Rows, searches
        and scores stay what they are, and others may read and write meanwhile.

        Args:
            where: A condition on partition columns; all partitions if it is left out.
            target_size: The most bytes of a new split, as `"100M"`; 5 GB by default.
            max_groups: How many splits are made at the most.
            max_source_splits: Of how many splits one is made at the most.
            config: `spark.indextables.*` keys of this call.
            runner: Where the tasks run; in threads of this process if it is left out.
            timezone: The time zone of times without one.

        Returns:
            How many splits were merged into how many, and what failed.

        Raises:
            ConfigError: The size is not one.
            NotAPartitionError: The condition is not about partition columns alone.

        >>> import pyarrow as pa
        >>> from indextables import Table
        >>> table = Table.create("memory://merge-example", pa.schema([("n", pa.int64())]))
        >>> for n in range(3):
        ...     _ = table.append(pa.table({"n": [n]}))
        >>> table.merge_splits().files_removed, table.snapshot().num_files, table.count()
        (3, 1, 3)
        """
        self._check_writable()
        view = self.refresh().view.with_settings(self._settings(config))
        merged = merge_splits(
            self._log,
            view,
            limits=MergeLimits.checked(
                view.config,
                target_size=target_size,
                max_groups=max_groups,
                max_sources=max_source_splits,
            ),
            predicate=self._predicate(where, view, timezone=timezone),
            runner=runner,
        )
        self._move_to(merged.version)
        return merged

    def purge(
        self,
        *,
        older_than_hours: float | None = None,
        log_retention_hours: int | None = None,
        dry_run: bool = False,
    ) -> Purged:
        """Delete expired log files, and old splits that no retained version names.

        With `dry_run`, only say which. Splits are kept for `purge.defaultRetentionHours` unless
        `older_than_hours` says otherwise, versions for `logRetention.duration` unless
        `log_retention_hours` does.

        Args:
            older_than_hours: Splits that are younger are kept.
            log_retention_hours: Versions that are younger are kept.
            dry_run: Return what would be done, and do nothing.

        Returns:
            What was deleted, or would be.

        Raises:
            ConfigError: The retention is so short that it could harm others.

        >>> import pyarrow as pa
        >>> from indextables import Table
        >>> table = Table.create("memory://purge-example", data=pa.table({"n": [1, 2, 3]}))
        >>> table.purge(dry_run=True).orphans
        ()
        """
        self._check_writable()
        return purge(
            self._log,
            retention_hours=older_than_hours,
            log_retention_hours=log_retention_hours,
            dry_run=dry_run,
            config=self._newest().config,
        )

    def truncate_time_travel(self, *, dry_run: bool = False) -> Truncated:
        """Forget all versions but the newest. Their splits stay until a purge.

        Args:
            dry_run: Return what would be done, and do nothing.

        Returns:
            What was deleted, or would be.

        Raises:
            ConfigError: The table was opened at a version or a time.
            SearchIndexError: It is the table of a search index.
            CorruptLogError: The newest checkpoint is not what its version files say; nothing is
                deleted then.

        >>> import pyarrow as pa
        >>> from indextables import Table
        >>> table = Table.create("memory://truncate-example", data=pa.table({"n": [1, 2]}))
        >>> _ = table.append(pa.table({"n": [3]}))
        >>> table.truncate_time_travel().versions, table.history()["version"].to_pylist()
        (1, [1])
        """
        self._check_writable()
        config = self._newest().config
        return truncate_history(self._log, dry_run=dry_run, config=config)

    @staticmethod
    def repair(
        source: str | os.PathLike[str],
        target: str | os.PathLike[str],
        *,
        from_splits: bool = False,
        config: Mapping[str, object] | None = None,
        storage_options: Mapping[str, object] | None = None,
        runner: Runner | None = None,
    ) -> Repaired:
        """Write a new log, for the table at `source`, into the folder `target`.

        It names the splits that are still there. With `from_splits` no log has to be readable:
        all splits that what is left of it does not call removed are part of the table again.

        Args:
            source: Where the table is.
            target: A folder that does not exist yet.
            from_splits: Rebuild the log from the splits alone.
            config: `spark.indextables.*` keys of this call.
            storage_options: Credentials and the endpoint of the store.
            runner: Where the tasks run; in threads of this process if it is left out.

        Returns:
            How many splits the new log has, and which are missing.

        Raises:
            LogError: There is not enough left to make a log of.

        >>> import pyarrow as pa
        >>> from indextables import Table
        >>> table = Table.create("memory://repair-example", data=pa.table({"n": [1, 2]}))
        >>> Table.repair("memory://repair-example", "memory://repaired-log", from_splits=True)
        Repaired(source_version=0, total_splits=1, valid_splits=1)
        """
        return repair_log(
            open_store(source, storage_options),
            open_store(target, storage_options),
            config=Config(config),
            from_splits=from_splits,
            runner=runner,
        )

    def verify(self, *, runner: Runner | None = None) -> list[Check]:
        """Check the log against the files, their checksums, their indexes and their rows.

        Args:
            runner: Where the tasks run; in threads of this process if it is left out.

        Returns:
            A `Check` for the log, the files, and each thing that was checked of the splits.

        >>> import pyarrow as pa
        >>> from indextables import Table
        >>> table = Table.create("memory://verify-example", data=pa.table({"n": [1, 2, 3]}))
        >>> all(check.passed for check in table.verify())
        True
        """
        view = self._view if self._view.elsewhere is not None else self._newest()
        return verify(self._log, view, runner=runner)

    def component_sizes(
        self, *, where: Where | None = None, timezone: str = "UTC", runner: Runner | None = None
    ) -> pa.Table:
        """What the bytes of the splits are; `where` chooses partitions.

        Args:
            where: A condition on partition columns; all partitions if it is left out.
            timezone: The time zone of times without one.
            runner: Where the tasks run; in threads of this process if it is left out.

        Returns:
            A row for each split, column and component, with its bytes.

        Raises:
            NotAPartitionError: The condition is not about partition columns alone.

        >>> import pyarrow as pa
        >>> from indextables import Table
        >>> table = Table.create("memory://sizes-example", data=pa.table({"body": ["red fox"]}))
        >>> sizes = table.component_sizes()
        >>> sum(sizes["size_bytes"].to_pylist()) <= table.snapshot().total_bytes
        True
        >>> {"column", "postings", "term"} <= set(sizes["component_type"].to_pylist())
        True
        """
        view = self.view
        predicate = self._predicate(where, view, timezone=timezone)
        return component_sizes(view, predicate, runner=runner)

    def plan_prewarm(
        self, *, fields: Sequence[str] = (), where: Where | None = None, timezone: str = "UTC"
    ) -> PrewarmPlan:
        """The indexes to open before the first search; call the plan on every host.

        Args:
            fields: The columns whose indexes are opened; all if it is left out.
            where: A condition on partition columns; all partitions if it is left out.
            timezone: The time zone of times without one.

        Returns:
            A plan that can be pickled; called, it opens the indexes.

        Raises:
            UnknownColumnError: The table does not have a field.
            NotAPartitionError: The condition is not about partition columns alone.

        >>> import pyarrow as pa
        >>> from indextables import Table
        >>> rows = pa.table({"day": ["mon", "tue"], "body": ["red fox", "lazy dog"]})
        >>> table = Table.create("memory://plan-prewarm-example", data=rows, partition_by="day")
        >>> plan = table.plan_prewarm(where="day = 'mon'")
        >>> len(plan.tasks), plan().splits
        (1, 1)
        """
        view = self.view
        predicate = self._predicate(where, view, timezone=timezone)
        return plan_prewarm(view, predicate, fields=fields)

    def prewarm(
        self, *, fields: Sequence[str] = (), where: Where | None = None, timezone: str = "UTC"
    ) -> Prewarmed:
        """Open the indexes of the table's splits in this process.

        Args:
            fields: The columns whose indexes are opened; all if it is left out.
            where: A condition on partition columns; all partitions if it is left out.
            timezone: The time zone of times without one.

        Returns:
            How many splits were opened, and which could not be.

        Raises:
            UnknownColumnError: The table does not have a field.
            NotAPartitionError: The condition is not about partition columns alone.

        >>> import pyarrow as pa
        >>> from indextables import Table
        >>> table = Table.create("memory://prewarm-example", data=pa.table({"body": ["red fox"]}))
        >>> done = table.prewarm(fields=["body"])
        >>> done.splits, done.failed
        (1, {})
        """
        return self.plan_prewarm(fields=fields, where=where, timezone=timezone)()

    # --- cross-references: which splits can match, kept beside the table ---------------------

    def crossreferences(self) -> pa.Table:
        """The table's cross-reference indexes (XRefs): stale ones last, the largest first.

        Returns:
            A row for each, with its splits, words and bytes.

        >>> import pyarrow as pa
        >>> from indextables import Table
        >>> table = Table.create("memory://xrefs-example", data=pa.table({"body": ["red fox"]}))
        >>> _ = table.index_crossreferences()
        >>> table.crossreferences().select(["sourceSplitCount", "totalTerms"]).to_pylist()
        [{'sourceSplitCount': 1, 'totalTerms': 2}]
        """
        return xref_rows(self.view.snapshot)

    def index_crossreferences(
        self,
        *,
        where: Where | None = None,
        timezone: str = "UTC",
        force_rebuild: bool = False,
        dry_run: bool = False,
        runner: Runner | None = None,
    ) -> pa.Table:
        """Build the XRefs that are missing and replace stale ones; a row for each XRef.

        Args:
            where: A condition on partition columns; all partitions if it is left out.
            timezone: The time zone of times without one.
            force_rebuild: Rebuild all of them.
            dry_run: Return what would be done, and do nothing.
            runner: Where the tasks run; in threads of this process if it is left out.

        Returns:
            What was done to each XRef, and its splits, words and bytes.

        Raises:
            NotAPartitionError: The condition is not about partition columns alone.

        >>> import pyarrow as pa
        >>> from indextables import Table
        >>> table = Table.create("memory://xref-example", pa.schema([("body", pa.string())]))
        >>> table.append(pa.table({"body": ["red fox"]})).version
        1
        >>> table.index_crossreferences(dry_run=True)["action"].to_pylist()
        ['created']
        """
        self._check_writable()
        refuse_search_index(self.metadata(), uri=self.uri)
        predicate = None
        if where is not None:
            predicate = self._predicate(where, self.refresh().view, timezone=timezone)
        done = index_crossreferences(
            self._log,
            settings=self._view.settings,
            where=predicate,
            force=force_rebuild,
            dry_run=dry_run,
            runner=runner,
        )
        self.refresh()
        return indexed_rows(done, table_path=self.uri, where=None if where is None else str(where))

    def drop_crossreferences(self) -> int:
        """Remove all XRefs; their files stay until a purge.

        Returns:
            How many there were.

        Raises:
            ConfigError: The table was opened at a version or a time.
            SearchIndexError: It is the table of a search index: call its own
                `drop_crossreferences`.

        >>> import pyarrow as pa
        >>> from indextables import Table
        >>> table = Table.create("memory://no-xrefs-example", data=pa.table({"body": ["red fox"]}))
        >>> _ = table.index_crossreferences()
        >>> table.drop_crossreferences(), table.crossreferences().num_rows
        (1, 0)
        """
        self._check_writable()
        dropped = drop_crossreferences(self._log)
        self.refresh()
        return dropped

    # --- what the verbs share ----------------------------------------------------------------

    def _newest(self) -> TableView:
        """The newest version, for what is about the table and not about its rows."""
        return self._view.at(self._log.snapshot())

    def _view_for(self, where: Where | None, timezone: str) -> TableView:
        """The view as a condition needs it: files of partitions that it denies may be missing.

        Only the first question of a handle is answered from a part of the log. The next one will
        ask for other partitions, and the whole snapshot is kept.
        """
        view = self._view
        if not isinstance(where, str) or not view.snapshot.partial or self._was_read_in_part:
            return self.view
        self._was_read_in_part = True
        keep = functools.partial(may_hold, where, timezone)
        return view.at(self._log.completed(view.snapshot, keep_manifest=keep))

    def _filtered(
        self, where: pc.Expression, columns: Sequence[str] | None, limit: int | None
    ) -> pa.RecordBatchReader:
        chosen = checked_columns(self._view.shown.snapshot, check_names(columns, "columns"))
        needed = list(dict.fromkeys([*chosen, *columns_of(where, self.schema)]))
        rows = self.scan_batches(columns=needed)
        schema = pa.schema([rows.schema.field(name) for name in chosen])
        return pa.RecordBatchReader.from_batches(schema, filtered(rows, where, chosen, limit))

    def _plan(
        self,
        view: TableView,
        where: Where | None,
        columns: Sequence[str] | None,
        limit: int | None,
        timezone: str,
    ) -> ScanPlan:
        chosen = checked_columns(view.shown.snapshot, check_names(columns, "columns"))
        return plan_scan(
            view,
            predicate=self._predicate(where, view, timezone=timezone),
            columns=view.names.stored_names(chosen),
            limit=check_limit(limit),
        )

    def _predicate(
        self, where: Where | None, view: TableView, *, timezone: str = "UTC"
    ) -> Predicate:
        if where is None:
            return TRUE
        check_condition(where)
        if isinstance(where, pc.Expression):
            raise UnsupportedPredicateError(
                str(where), "an Arrow expression chooses rows of scan and count; write SQL here"
            )
        if not isinstance(where, str):
            check_columns(where, view.names.shown)
        return view.condition(where, timezone=timezone)

    def _condition(
        self,
        view: TableView,
        query: str | None,
        mode: SearchMode,
        fields: Sequence[str] | None,
        *,
        where: Where | None,
        timezone: str,
        only_words: bool = False,
    ) -> Predicate:
        """What the rows of a search meet, by stored names."""
        predicate = self._predicate(where, view, timezone=timezone)
        if query is None:
            return predicate
        named = check_names(fields, "fields")
        search = search_of(view, query, named, mode, only_words=only_words)
        return conjunction(search, predicate)

    def _settings(self, config: Mapping[str, object] | None) -> Config:
        return Config(config).over(self._view.settings)

    def _write(self, data: Any, config: Mapping[str, object] | None, **plan: Any) -> Written:
        self._check_writable()
        # A table that was dropped meanwhile is not made again by a handle that is still open.
        settings = self._settings(config)
        return self._written(
            write_rows(self._log, data, settings=settings, may_create=False, **plan)
        )

    def _written(self, written: Written) -> Written:
        self._move_to(written.version)
        return written

    def _move_to(self, version: int) -> None:
        """See what this handle has just written; what others wrote after it is for a refresh.

        The write is committed, so an error here must not look like its own.
        """
        try:
            self._view = self._view.at(self._log.after(version))
        except IndexTablesError as error:
            logger.warning("Version %d of %s was committed: %s", version, self.uri, error)

    def _check_writable(self) -> None:
        if self._view.elsewhere is not None:
            raise SearchIndexError.of_rows(self.uri, self._view.elsewhere.uri)
        if not self._writable:
            raise ConfigError(
                f"'{self.uri}' was opened at version {self.version} and is read-only. Open it "
                "without a version to write, or restore that version."
            )


def _leniently(ask: Callable[..., Answer], mode: SearchMode) -> Answer:
    """An answer; a lenient query that stands for too many words is asked for as it is written."""
    try:
        return ask()
    except (TooManyExpansionsError, TooManyClausesError):
        if mode != "lenient":
            raise
        return ask(only_words=True)


def _past(log: TransactionLog, version: int | None, timestamp: Timestamp | None) -> Snapshot:
    check_version(version, timestamp)
    if timestamp is not None:
        return log.snapshot(timestamp_ms=milliseconds(timestamp))
    return log.snapshot(version=version)


Mode = Literal["append", "overwrite", "error", "ignore"]


def write_table(
    uri: str | os.PathLike[str],
    data: Any,
    *,
    mode: Mode = "error",
    partition_by: str | Sequence[str] | None = None,
    mapping: Mapping[str, str] | None = None,
    merge_schema: bool = False,
    config: Mapping[str, object] | None = None,
    storage_options: Mapping[str, object] | None = None,
) -> Table:
    """Write rows to a table, which is created if it is not there, in one commit.

    Args:
        uri: Where the table is or will be.
        data: An Arrow table, batches or a reader, a pandas or Polars DataFrame.
        mode: What to do if there is a table: add the rows (`append`), replace all rows
            (`overwrite`), refuse (`error`) or leave the table as it is (`ignore`).
        partition_by: The columns whose values are folders.
        mapping: How columns are searched (`text`, `string`, `json`, `ip`).
        merge_schema: Add new columns to the table and widen types.
        config: `spark.indextables.*` keys of this write.
        storage_options: Credentials and the endpoint of the store.

    Returns:
        The table, at the version that was written.

    Raises:
        TableExistsError: There is a table and the mode is `error`.
        SchemaError: The rows do not fit the table.

    >>> import pyarrow as pa
    >>> import indextables as it
    >>> rows = pa.table({"day": ["mon", "tue"], "body": ["red fox", "lazy dog"]})
    >>> table = it.write_table("memory://write-example", rows, partition_by="day")
    >>> it.write_table("memory://write-example", rows, mode="append").count()
    4
    """
    if mode not in ("append", "overwrite", "error", "ignore"):
        raise ConfigError(f"mode is append, overwrite, error or ignore, not {mode!r}.")
    exclusive: Exclusive = mode if mode in ("error", "ignore") else None
    log = TransactionLog(open_store(uri, storage_options), config=Config(config))
    written = write_rows(
        log,
        data,
        settings=Config(mapping_keys(mapping), config),
        kind="overwrite" if mode == "overwrite" else "append",
        partition_by=None if partition_by is None else names_of(partition_by, "partition_by"),
        merge_schema=merge_schema,
        exclusive=exclusive,
    )
    return Table(log, TableView(log.store, log.after(written.version), log.config))
