"""A search index over a table of another format, which stays where it is."""

from __future__ import annotations

import functools
import inspect
import logging
import os
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Concatenate, Literal, ParamSpec, TypeVar, get_args

import pyarrow as pa

from indextables import config as keys
from indextables.config import Config, is_own_key
from indextables.errors import (
    ConfigError,
    IndexTablesError,
    SchemaError,
    SearchIndexError,
    SourceRowsError,
    TableExistsError,
    UnknownColumnError,
)
from indextables.jobs.history import Purged, purge, remove_table
from indextables.jobs.index_crossreferences import (
    drop_crossreferences,
    index_crossreferences,
    indexed_rows,
)
from indextables.jobs.merge_groups import local_runner
from indextables.jobs.merge_splits import Merged, MergeLimits, groups_after_write, plan_groups
from indextables.jobs.verify import Check
from indextables.jobs.write_target import check_properties_fit
from indextables.lake.coverage import Coverage, Definition, indexed_files, lake_view
from indextables.lake.delta import DeltaSource
from indextables.lake.iceberg import CATALOG, IcebergSource
from indextables.lake.refresh import Refreshed, merge_index, mergeable, refresh_index
from indextables.lake.source import (
    ParquetFolder,
    Source,
    SourceFile,
    SourceSnapshot,
    first_snapshot,
)
from indextables.log.actions import WITH_ROWS_ELSEWHERE, Metadata
from indextables.log.snapshot import Snapshot
from indextables.log.transaction import Operation, Transaction
from indextables.log.transaction_log import TransactionLog
from indextables.plan.ranking import Metric, ScoreExplanation
from indextables.plan.view import SEARCH_INDEX_PROPERTY
from indextables.runner import Runner
from indextables.schema import from_json, to_json
from indextables.split.mapping import MAPPING_PROPERTY
from indextables.split.mapping_options import build_mapping
from indextables.storage import canonical_uri, open_store
from indextables.table.arguments import (
    SearchMode,
    Timestamp,
    Where,
    check_names,
    check_properties,
    check_version,
    mapping_keys,
    milliseconds,
)
from indextables.table.html import table_html
from indextables.table.table import Table

if TYPE_CHECKING:
    import pandas  # type: ignore[import-untyped]
    import polars

logger = logging.getLogger(__name__)

Format = Literal["delta", "iceberg", "parquet"]
Answer = TypeVar("Answer")
Arguments = ParamSpec("Arguments")


def _of_table(
    verb: Callable[Concatenate[Table, Arguments], Answer], example: str
) -> Callable[Concatenate[SearchIndex, Arguments], Answer]:
    """A verb of `Table`, answered from the source as it is now; its text with our example."""

    @functools.wraps(verb, assigned=["__name__"])
    def ask(index: SearchIndex, /, *args: Arguments.args, **kwargs: Arguments.kwargs) -> Answer:
        return index._answer(lambda table: verb(table, *args, **kwargs), None)

    text = inspect.cleandoc(verb.__doc__ or "").partition(">>>")[0]
    ask.__doc__ = text + inspect.cleandoc(example)
    ask.__qualname__ = f"SearchIndex.{verb.__name__}"
    return ask


class SearchIndex:
    """A full-text index of a Delta or Iceberg table or a folder of Parquet files.

    The rows stay in the source. Every question is answered from the source as it is now: files that
    the index covers are searched by it, the rows of others one by one, and what left the source is
    not found. `refresh` brings the index up to the source, which makes questions faster and changes
    no answer. A question raises `LakeError` if the source cannot be read.

    The examples of the methods ask this index of two Parquet files, in which `body` is indexed:

    >>> index.columns, sorted(path.name for path in folder.iterdir())
    (('body',), ['a.parquet', 'b.parquet'])
    >>> index.to_pandas()
       id  kind               body
    0   1  news            red fox
    1   2  blog           lazy dog
    2   3  news  the quick red fox
    """

    def __init__(self, log: TransactionLog, source: Source) -> None:
        self._log = log
        self._source = source
        self._last: tuple[object, Table] | None = None

    @classmethod
    def create(
        cls,
        uri: str | os.PathLike[str],
        *,
        source: str | os.PathLike[str],
        format: Format,  # noqa: A002 - what it is called everywhere
        columns: Sequence[str] | None = None,
        mapping: Mapping[str, str] | None = None,
        properties: Mapping[str, str] | None = None,
        name: str | None = None,
        config: Mapping[str, object] | None = None,
        storage_options: Mapping[str, object] | None = None,
        source_options: Mapping[str, object] | None = None,
        refresh: bool = True,
    ) -> SearchIndex:
        """Create a search index over a table that stays where it is, and index its files.

        Args:
            uri: Where the index is kept: a folder, or a prefix of a bucket.
            source: The table to search. An Iceberg table is named by its folder, by a metadata
                file, or as `catalog://<catalog>/<namespace>.<table>`.
            format: `delta`, `iceberg`, or `parquet` for all Parquet files below a folder.
            columns: The columns that can be searched; all if it is left out.
            mapping: How columns are searched (`text`, `string`, `json`, `ip`).
            properties: Kept with the index; they configure all who use it.
            name: A display name.
            config: `spark.indextables.*` keys of this handle; indexing options among them are kept.
            storage_options: Credentials and the endpoint of the store of the index.
            source_options: The same for the source; those of the index if it is left out and the
                source is not on a local disk.
            refresh: Whether files are indexed now.

        Returns:
            The search index.

        Raises:
            SourceMissingError: There is no such table.
            UnsupportedSourceError: The table needs a reader that has more features.
            TableExistsError: There is an index or a table at the URI already.
            UnknownColumnError: The source does not have a column.

        >>> import pyarrow as pa
        >>> import pyarrow.parquet as pq
        >>> from indextables import SearchIndex
        >>> folder = getfixture("tmp_path")  # any folder or bucket
        >>> rows = pa.table({"id": [1, 2], "body": ["red fox", "lazy dog"]})
        >>> pq.write_table(rows, folder / "a.parquet")
        >>> index = SearchIndex.create(
        ...     "memory://search-index-example", source=folder, format="parquet", columns=["body"]
        ... )
        >>> index.search("fox")["id"].to_pylist()
        [1]
        """
        check_names(columns, "columns")
        check_properties(properties or {})
        log = TransactionLog(open_store(uri, storage_options), config=Config(config))
        if log.exists():
            raise TableExistsError(log.store.uri)
        table = source_of(source, format, source_options, storage_options)
        _check_apart(log.store.uri, table.uri)
        snapshot = first_snapshot(table)
        metadata = _metadata(
            table,
            snapshot,
            columns,
            config=Config(mapping_keys(mapping), config),
            properties=properties or {},
            name=name,
        )
        log.commit(Transaction(operation=Operation.CREATE, actions=[WITH_ROWS_ELSEWHERE, metadata]))
        index = cls(log, table)
        if refresh:
            index.refresh()
        return index

    @classmethod
    def open(
        cls,
        uri: str | os.PathLike[str],
        *,
        source: str | os.PathLike[str] | None = None,
        config: Mapping[str, object] | None = None,
        storage_options: Mapping[str, object] | None = None,
        source_options: Mapping[str, object] | None = None,
    ) -> SearchIndex:
        """Open a search index.

        Args:
            uri: Where the index is.
            source: Where the source is, if it was moved since; the next `refresh` remembers it.
            config: `spark.indextables.*` keys of this handle.
            storage_options: Credentials and the endpoint of the store of the index.
            source_options: The same for the source.

        Returns:
            The search index.

        Raises:
            NotATableError: There is nothing at the URI.
            LakeError: What is there is not a search index.

        >>> from indextables import SearchIndex
        >>> SearchIndex.open("memory://articles").search("dog")["id"].to_pylist()
        [2]
        """
        log = TransactionLog(open_store(uri, storage_options), config=Config(config))
        definition = Definition.of(log.snapshot().metadata, uri=log.store.uri)
        place = definition.source if source is None else source
        return cls(log, source_of(place, definition.format, source_options, storage_options))

    # --- what it is --------------------------------------------------------------------------

    @property
    def uri(self) -> str:
        """Where the index is."""
        return canonical_uri(self._log.store.uri)

    @property
    def source(self) -> str:
        """Where the rows are."""
        return self._source.uri

    @property
    def format(self) -> str:
        """Of the source: `delta`, `iceberg` or `parquet`."""
        return self._source.format

    @property
    def schema(self) -> pa.Schema:
        """The columns of the source."""
        return self.table().schema

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that can be searched."""
        return Definition.of(self._log.snapshot().metadata, uri=self.uri).columns

    def __repr__(self) -> str:
        return f"SearchIndex({self.uri!r}, source={self.source!r})"

    def _repr_html_(self) -> str:
        return table_html(self.table().view)

    def describe(self) -> dict[str, Any]:
        """The source, the columns, and how much of the source is indexed.

        Returns:
            The facts by name.

        Raises:
            LakeError: The source cannot be read.

        >>> about = index.describe()
        >>> about["format"], about["columns"], about["files_indexed"], about["files_not_indexed"]
        ('parquet', ['body'], 2, 0)
        """
        index = self._log.snapshot()
        coverage = self._coverage(index)
        definition = Definition.of(index.metadata, uri=self.uri)
        return {
            "uri": self.uri,
            "source": self.source,
            "format": definition.format,
            "columns": list(definition.columns),
            "index_version": index.version,
            "index_bytes": index.total_bytes,
            "source_version": coverage.source.version,
            "source_files": len(coverage.source.files),
            "source_bytes": sum(file.size for file in coverage.source.files),
            "files_indexed": len(coverage.covered),
            "files_not_indexed": len(coverage.uncovered),
            "splits_not_needed": len(coverage.unneeded),
        }

    # --- keeping it up -----------------------------------------------------------------------

    def refresh(self, *, runner: Runner | None = None) -> Refreshed:
        """Index the files that are new in the source, and drop what left it.

        Work is committed in portions, so a refresh that is interrupted is continued by the next
        one. Files that did not change are not read.

        Args:
            runner: Where files are indexed; in threads of this process by default.

        Returns:
            What was done, with the files that could not be indexed.

        Raises:
            LakeError: The source cannot be read.
            NotATableError: The index was dropped meanwhile.

        >>> from indextables import SearchIndex
        >>> place = "memory://refresh-index"
        >>> mine = SearchIndex.create(place, source=folder, format="parquet", refresh=False)
        >>> mine.count(where="body indexquery 'fox'")  # the rows are read one by one
        2
        >>> mine.refresh().files_indexed  # now the index finds them
        2
        """
        index = self._log.snapshot()
        config = self._log.config.over_properties(index.metadata.configuration)
        coverage = self._coverage(index, most_left=config[keys.VECTOR_MAX_SHARE])
        definition = Definition.of(index.metadata, uri=self.uri)
        schema = to_json(coverage.source.schema) if definition.format == "parquet" else None
        new = replace(definition, source=self._source.uri, known_schema=schema)
        configuration = {**index.metadata.configuration, SEARCH_INDEX_PROPERTY: new.to_json()}
        metadata = replace(index.metadata, configuration=configuration)
        done = refresh_index(
            self._log, coverage, metadata, config=config, runner=runner or local_runner(config)
        )
        if config[keys.MERGE_ON_WRITE] and done.files_indexed:
            done = replace(done, version=self._merge_after_refresh(config, runner) or done.version)
        return done

    def merge_splits(
        self,
        *,
        where: Where | None = None,
        target_size: int | str | None = None,
        max_groups: int | None = None,
        max_source_splits: int | None = None,
        runner: Runner | None = None,
        timezone: str = "UTC",
    ) -> Merged:
        """Merge small splits of the index into large ones; see `Table.merge_splits`.

        Only indexes are merged, no row of the source is read. Splits of files that left the source
        are dropped. A split of which many rows are of files that left is dropped too, and its other
        files are indexed again. Answers stay what they are.

        Args:
            where: A condition on partition columns; all partitions if it is left out.
            target_size: The most bytes of a new split, as `"100M"`; 5 GB by default.
            max_groups: How many splits are made at the most.
            max_source_splits: Of how many splits one is made at the most.
            runner: Where the tasks run; in threads of this process if it is left out.
            timezone: The time zone of times without one.

        Returns:
            How many splits were merged into how many, and what failed.

        Raises:
            ConfigError: The size is not one.
            NotAPartitionError: The condition is not about partition columns alone.

        >>> from indextables import SearchIndex
        >>> mine = SearchIndex.create("memory://merge-index", source=folder, format="parquet")
        >>> done = mine.merge_splits()
        >>> done.files_removed, done.files_added
        (2, 1)
        """
        dropped = self._drop_what_left(runner)
        index = self._log.snapshot()
        coverage = self._coverage(index)
        table = self._table_of(coverage)
        groups = plan_groups(
            self._log,
            mergeable(table.view),
            limits=MergeLimits.checked(
                table.view.config,
                target_size=target_size,
                max_groups=max_groups,
                max_sources=max_source_splits,
            ),
            predicate=table.matching(where=where, timezone=timezone)[1],
        )
        merged = merge_index(self._log, coverage, groups, runner=runner)
        if dropped is None:
            return merged
        text = f"Dropped {dropped.files_removed:,} splits with files that left the source"
        return replace(
            merged,
            status="success" if merged.status == "no_action" else merged.status,
            message=text if merged.status == "no_action" else f"{text}; {merged.message}",
            files_removed=merged.files_removed + dropped.files_removed,
            files_added=merged.files_added + dropped.files_indexed,
        )

    def index_crossreferences(
        self,
        *,
        force_rebuild: bool = False,
        dry_run: bool = False,
        runner: Runner | None = None,
    ) -> pa.Table:
        """Build cross-references over the splits of the index; see `Table.index_crossreferences`.

        They have the words and the strings of indexed columns, and no numbers and dates.

        Args:
            force_rebuild: Rebuild all of them.
            dry_run: Return what would be done, and do nothing.
            runner: Where the tasks run; in threads of this process if it is left out.

        Returns:
            What was done to each cross-reference, and its splits, words and bytes.

        Raises:
            UpgradeRefusedError: The index would need a newer protocol, and
                `spark.indextables.protocol.autoUpgrade` is false.
            NotATableError: The index was dropped meanwhile.

        >>> from indextables import SearchIndex
        >>> mine = SearchIndex.create("memory://xref-index", source=folder, format="parquet")
        >>> mine.index_crossreferences().select(["action", "source_splits_count"]).to_pylist()
        [{'action': 'created', 'source_splits_count': 2}]
        """
        config = self._log.config
        indexed = index_crossreferences(
            self._log, settings=config, force=force_rebuild, dry_run=dry_run, runner=runner
        )
        return indexed_rows(indexed, table_path=self.uri, where=None)

    def drop_crossreferences(self) -> int:
        """Remove all cross-references; their files stay until a purge.

        Returns:
            How many there were.

        Raises:
            NotATableError: The index was dropped meanwhile.

        >>> from indextables import SearchIndex
        >>> mine = SearchIndex.create("memory://drop-xref-index", source=folder, format="parquet")
        >>> _ = mine.index_crossreferences()
        >>> mine.drop_crossreferences()
        1
        """
        return drop_crossreferences(self._log)

    def verify(self, *, runner: Runner | None = None) -> list[Check]:
        """Check the index against its source: log, files, checksums, indexes and rows.

        Args:
            runner: Where the tasks run; in threads of this process if it is left out.

        Returns:
            A `Check` for each thing that was checked.

        Raises:
            LakeError: The source cannot be read.

        >>> [check.name for check in index.verify() if check.passed]
        ['log', 'files', 'checksums', 'index', 'rows']
        """
        return self.table().verify(runner=runner)

    prewarm = _of_table(
        Table.prewarm,
        """
        >>> index.prewarm(fields=["body"]).splits
        2
        """,
    )

    def follow(self, *, every: float = 60.0, runner: Runner | None = None) -> Iterator[Refreshed]:
        """Refresh again and again, for as long as the results are taken.

        Args:
            every: How many seconds lie between two checks of the source.
            runner: Where files are indexed; in threads of this process by default.

        Yields:
            What a refresh did, if it changed the index or could not index another file.

        Raises:
            LakeError: The source cannot be read.
            NotATableError: The index was dropped meanwhile.

        >>> from indextables import SearchIndex
        >>> place = "memory://follow-index"
        >>> mine = SearchIndex.create(place, source=folder, format="parquet", refresh=False)
        >>> for done in mine.follow(every=10):
        ...     break  # a service goes on
        >>> done.files_indexed
        2
        """
        before: tuple[int, tuple[str, ...]] = (self._log.snapshot().version, ())
        while True:
            done = self.refresh(runner=runner)
            if (done.version, done.failed) != before:
                before = (done.version, done.failed)
                yield done
            time.sleep(every)

    def purge(self, *, retention_hours: float | None = None, dry_run: bool = False) -> Purged:
        """Delete files of the index that no version needs any more; the source is not touched.

        Args:
            retention_hours: Files that are younger are kept.
            dry_run: Return what would be done, and do nothing.

        Returns:
            What was deleted, or would be.

        Raises:
            ConfigError: The retention is so short that it could harm others.

        >>> index.purge(dry_run=True).orphans  # every file is needed
        ()
        """
        config = self._log.config.over_properties(self._log.snapshot().metadata.configuration)
        return purge(self._log, retention_hours=retention_hours, dry_run=dry_run, config=config)

    def drop(self) -> None:
        """Delete the index; the source is not touched.

        Raises:
            SearchIndexError: The source is inside of the folder of the index.

        >>> from indextables import SearchIndex
        >>> mine = SearchIndex.create("memory://drop-index", source=folder, format="parquet")
        >>> mine.drop()
        >>> sorted(path.name for path in folder.iterdir())
        ['a.parquet', 'b.parquet']
        """
        _check_apart(self.uri, self.source)
        remove_table(self._log.store)
        self._log.invalidate()

    # --- reading -----------------------------------------------------------------------------

    def table(self, *, version: int | None = None, timestamp: Timestamp | None = None) -> Table:
        """The source as a table that can be read and searched, now, at a version or at a time.

        The table stays at that moment, whatever happens to the source; `scan`, `search`, `count`
        and `explain` of the index take a new one each time.

        Args:
            version: A version of the source; the newest if it is left out.
            timestamp: A datetime, ISO text or epoch milliseconds, instead of a version.

        Returns:
            The table, which can be read only.

        Raises:
            LakeError: The source cannot be read.

        >>> table = index.table()
        >>> table.count(), table.schema.names
        (3, ['id', 'kind', 'body'])
        """
        check_version(version, timestamp)
        index = self._log.snapshot()
        coverage = self._coverage(index, version, timestamp)
        source = coverage.source
        key = (
            index.version, index.metadata.id, source.version, source.schema,
            [(f.identity, f.rows, None if f.dead is None else len(f.dead)) for f in source.files],
        )  # fmt: skip
        last = self._last  # another thread may ask for another version
        if last is None or last[0] != key:
            last = self._last = (key, self._table_of(coverage))
        return last[1]

    def scan(
        self,
        *,
        columns: Sequence[str] | None = None,
        where: Where | None = None,
        limit: int | None = None,
        timezone: str = "UTC",
        version: int | None = None,
    ) -> pa.Table:
        """The rows of the source that meet a condition; see `Table.scan`.

        Args:
            columns: The columns to return; all if it is left out.
            where: A SQL condition, searches included; all rows if it is left out.
            limit: The most rows to return.
            timezone: The time zone of times without one.
            version: A version that is still there; the newest if it is left out.

        Returns:
            The rows, in no particular order.

        Raises:
            QueryError: The condition or a search in it is wrong.

        >>> index.scan(where="body indexquery 'fox' AND id > 1", columns=["id", "kind"]).to_pylist()
        [{'id': 3, 'kind': 'news'}]
        """
        return self._answer(
            lambda t: t.scan(columns=columns, where=where, limit=limit, timezone=timezone), version
        )

    def scan_batches(
        self,
        *,
        columns: Sequence[str] | None = None,
        where: Where | None = None,
        limit: int | None = None,
        timezone: str = "UTC",
        version: int | None = None,
    ) -> pa.RecordBatchReader:
        """The same rows as a stream, for results larger than memory.

        Args:
            columns: The columns to return; all if it is left out.
            where: A SQL condition, searches included; all rows if it is left out.
            limit: The most rows to return.
            timezone: The time zone of times without one.
            version: A version that is still there; the newest if it is left out.

        Returns:
            The batches, read as they are taken.

        Raises:
            QueryError: The condition or a search in it is wrong.

        >>> sum(batch.num_rows for batch in index.scan_batches(where="kind = 'news'"))
        2
        """
        table = self.table(version=version)
        return table.scan_batches(columns=columns, where=where, limit=limit, timezone=timezone)

    def to_pandas(
        self,
        *,
        columns: Sequence[str] | None = None,
        where: Where | None = None,
        limit: int | None = None,
        timezone: str = "UTC",
        version: int | None = None,
    ) -> pandas.DataFrame:
        """The rows of `scan` as a pandas DataFrame; needs pandas.

        Args:
            columns: The columns to return; all if it is left out.
            where: A SQL condition, searches included; all rows if it is left out.
            limit: The most rows to return.
            timezone: The time zone of times without one.
            version: A version that is still there; the newest if it is left out.

        Returns:
            The rows.

        Raises:
            MissingPackageError: pandas is not installed.

        >>> index.to_pandas(where="body indexquery 'dog'")["kind"].tolist()
        ['blog']
        """
        return self._answer(
            lambda t: t.to_pandas(columns=columns, where=where, limit=limit, timezone=timezone),
            version,
        )

    def to_polars(
        self,
        *,
        columns: Sequence[str] | None = None,
        where: Where | None = None,
        limit: int | None = None,
        timezone: str = "UTC",
        version: int | None = None,
    ) -> polars.DataFrame:
        """The rows of `scan` as a Polars DataFrame; needs Polars.

        Args:
            columns: The columns to return; all if it is left out.
            where: A SQL condition, searches included; all rows if it is left out.
            limit: The most rows to return.
            timezone: The time zone of times without one.
            version: A version that is still there; the newest if it is left out.

        Returns:
            The rows.

        Raises:
            MissingPackageError: Polars is not installed.

        >>> index.to_polars(where="body indexquery 'dog'")["kind"].to_list()
        ['blog']
        """
        return self._answer(
            lambda t: t.to_polars(columns=columns, where=where, limit=limit, timezone=timezone),
            version,
        )

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
        version: int | None = None,
    ) -> pa.Table:
        """The best rows of the source for a search, with a `_score`; see `Table.search`.

        Args:
            query: What to search for, in the syntax of `indexquery`.
            mode: How the query is read, as in `Table.search`.
            fields: The columns that are searched where the query names none, with weights if
                wanted.
            where: A SQL condition that leaves rows out and changes no score.
            columns: The columns to return; all if it is left out.
            limit: The most rows to return; None for all that match.
            snippets: Columns for each of which there is one more, `_snippet_<name>`, with its words
                marked.
            timezone: The time zone of times without one.
            rank_by: An expression over `_score` and columns to rank by instead.
            vector: A vector to which the rows are to be near.
            vector_column: The column of vectors; needed if there are several.
            metric: How vectors are compared: `cosine`, `l2` or `dot`.
            fusion: `rrf`, to count both the ranking by words and that by the vector.
            version: A version that is still there; the newest if it is left out.

        Returns:
            The rows with their columns, `_score`, and what else was asked for.

        Raises:
            QueryError: The query or the condition is wrong.

        >>> found = index.search("red fox", columns=["id"], snippets=["body"])
        >>> found["id"].to_pylist()  # the shorter text is the better one
        [1, 3]
        >>> found["_snippet_body"][0].as_py()
        '<b>red</b> <b>fox</b>'
        """
        return self._answer(
            lambda t: t.search(
                query, mode=mode, fields=fields, where=where, columns=columns, limit=limit,
                snippets=snippets, timezone=timezone, rank_by=rank_by, vector=vector,
                vector_column=vector_column, metric=metric, fusion=fusion,
            ),
            version,
        )  # fmt: skip

    def explain_score(
        self,
        query: str,
        row: Mapping[str, Any] | tuple[str, int] | str,
        *,
        mode: SearchMode = "query",
        fields: Sequence[str] | None = None,
        timezone: str = "UTC",
        version: int | None = None,
    ) -> ScoreExplanation:
        """Why a row of the source has its score for a search; see `Table.explain_score`.

        Args:
            query: What to search for, in the syntax of `indexquery`.
            row: A row of `search(…, columns=[…, "_split", "_row"])`, the pair of these two values,
                or a condition that one row meets.
            mode: How the query is read, as in `Table.search`.
            fields: The columns that are searched where the query names none, with weights if
                wanted.
            timezone: The time zone of times without one.
            version: A version that is still there; the newest if it is left out.

        Returns:
            The score, and its parts as a table, the most important first.

        Raises:
            QueryError: There is no such row, or more than one meets the condition.

        >>> why = index.explain_score("red OR dog", "id = 1")
        >>> why.parts.select(["column", "clause", "occurrences"]).to_pylist()
        [{'column': 'body', 'clause': 'red', 'occurrences': 1}]
        """
        return self._answer(
            lambda t: t.explain_score(query, row, mode=mode, fields=fields, timezone=timezone),
            version,
        )

    analyze = _of_table(
        Table.analyze,
        """
        >>> index.analyze("body", "The Red-Fox")["word"].to_pylist()
        ['the', 'red', 'fox']
        """,
    )

    complete = _of_table(
        Table.complete,
        """
        >>> index.complete("f", column="body").to_pylist()
        [{'word': 'fox', 'count': 2}]
        """,
    )

    suggest = _of_table(
        Table.suggest,
        """
        >>> index.suggest("foxx", column="body").to_pylist()
        [{'word': 'fox', 'distance': 1, 'count': 2}]
        """,
    )

    correct_query = _of_table(
        Table.correct_query,
        """
        >>> index.correct_query("foxx AND red")
        'fox AND red'
        """,
    )

    more_like_this = _of_table(
        Table.more_like_this,
        """
        >>> index.more_like_this("a dog that sleeps")["id"].to_pylist()
        [2]
        """,
    )

    def count(
        self, *, where: Where | None = None, timezone: str = "UTC", version: int | None = None
    ) -> int:
        """How many rows of the source meet a condition.

        Args:
            where: A SQL condition, searches included; all rows if it is left out.
            timezone: The time zone of times without one.
            version: A version that is still there; the newest if it is left out.

        Returns:
            The number of rows.

        Raises:
            QueryError: The condition or a search in it is wrong.

        >>> index.count(), index.count(where="body indexquery 'fox'")
        (3, 2)
        """
        return self._answer(lambda t: t.count(where=where, timezone=timezone), version)

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
        version: int | None = None,
    ) -> dict[str, pa.Table]:
        """How often each value occurs among the rows of a search; see `Table.facets`.

        Args:
            query: What to search for, in the syntax of `indexquery`.
            by: The columns whose values are counted.
            top: The most values of each to return, the most frequent first; None for all.
            mode: How the query is read, as in `Table.search`.
            fields: The columns that are searched where the query names none, with weights if
                wanted.
            where: A SQL condition that leaves rows out.
            timezone: The time zone of times without one.
            version: A version that is still there; the newest if it is left out.

        Returns:
            For each column its values and how often each occurs.

        Raises:
            TooManyValuesError: A column has too many different values.

        >>> index.facets("fox", by=["kind"])["kind"].to_pylist()
        [{'kind': 'news', 'count': 2}]
        """
        return self._answer(
            lambda t: t.facets(
                query, by=by, top=top, mode=mode, fields=fields, where=where, timezone=timezone
            ),
            version,
        )

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
        version: int | None = None,
    ) -> pa.Table:
        """How many rows of a search fall into each part of a column; see `Table.histogram`.

        Args:
            query: What to search for, in the syntax of `indexquery`.
            column: A column of times, dates or numbers.
            interval: A length such as `1h`, or a width of numbers.
            mode: How the query is read, as in `Table.search`.
            fields: The columns that are searched where the query names none, with weights if
                wanted.
            where: A SQL condition that leaves rows out.
            timezone: The time zone of hours and days, and of times without one.
            version: A version that is still there; the newest if it is left out.

        Returns:
            The start of each part and its `count`.

        Raises:
            IntervalError: The interval does not fit the column.

        >>> index.histogram("fox", column="id", interval=2).to_pylist()  # from 0, from 2
        [{'id': 0, 'count': 1}, {'id': 2, 'count': 1}]
        """
        return self._answer(
            lambda t: t.histogram(
                query, column=column, interval=interval, mode=mode, fields=fields, where=where,
                timezone=timezone,
            ),
            version,
        )  # fmt: skip

    def sql(self, query: str, /, **tables: Any) -> pa.Table:
        """Run a query in Spark's SQL over the source, without Spark. It is called `this` there.

        Args:
            query: One SELECT; `indextables.sql` says what it may have. `VERSION AS OF` is a version
                of the source.
            tables: Further tables by name, to join.

        Returns:
            The rows, as an Arrow table.

        Raises:
            EmbeddedQueryError: The query is wrong, or has something that only Spark has.
            QueryError: A search in it is wrong.

        >>> index.sql("SELECT kind, count(*) AS n FROM this GROUP BY kind ORDER BY n").to_pylist()
        [{'kind': 'blog', 'n': 1}, {'kind': 'news', 'n': 2}]
        """
        import indextables

        return self._answer(lambda _: indextables.sql(query, this=self, **tables), None)

    def explain(
        self,
        *,
        where: Where | None = None,
        columns: Sequence[str] | None = None,
        limit: int | None = None,
        timezone: str = "UTC",
        version: int | None = None,
    ) -> str:
        """What a scan would do, and how much of the source is indexed.

        Args:
            where: A SQL condition, searches included; all rows if it is left out.
            columns: The columns to return; all if it is left out.
            limit: The most rows to return.
            timezone: The time zone of times without one.
            version: A version that is still there; the newest if it is left out.

        Returns:
            The plan as text.

        Raises:
            QueryError: The condition or a search in it is wrong.

        >>> index.explain(where="body indexquery 'dog'").splitlines()[-1]  # doctest: +ELLIPSIS
        '  source     2 files: 2 of 2 files of ... are indexed'
        """
        return self.table(version=version).explain(
            where=where, columns=columns, limit=limit, timezone=timezone
        )

    # --- inside ------------------------------------------------------------------------------

    def _answer(self, ask: Callable[[Table], Answer], version: int | None) -> Answer:
        """An answer; again if a file went because the source has moved on."""
        table = self.table(version=version)
        try:
            return ask(table)
        except SourceRowsError:
            newer = self.table(version=version)
            if newer is table:
                raise
            return ask(newer)

    def _drop_what_left(self, runner: Runner | None) -> Refreshed | None:
        """Drop splits of files that left; of others that many left, index the rest again."""
        index = self._log.snapshot()
        config = self._log.config.over_properties(index.metadata.configuration)
        every = self._coverage(index)
        kept = self._coverage(index, most_left=config[keys.VECTOR_MAX_SHARE])
        if not kept.unneeded:
            return None
        covered = {file.identity for file in every.covered}
        again = tuple(file for file in kept.uncovered if file.identity in covered)
        return refresh_index(
            self._log,
            replace(kept, uncovered=again),
            index.metadata,
            config=config,
            runner=runner or local_runner(config),
        )

    def _merge_after_refresh(self, config: Config, runner: Runner | None) -> int | None:
        """Merge small splits if there are many; the refresh is done, whatever happens here."""
        try:
            coverage = self._coverage(self._log.snapshot())
            splits = mergeable(self._table_of(coverage).view)
            groups = groups_after_write(self._log, splits, config)
            return merge_index(self._log, coverage, groups, runner=runner).version
        except IndexTablesError as error:
            logger.warning("%s was refreshed, but its splits were not merged: %s", self.uri, error)
            return None

    def _table_of(self, coverage: Coverage) -> Table:
        view = lake_view(self._log.store, coverage, self._log.config)
        return Table(self._log, view, writable=False)

    def _coverage(
        self,
        index: Snapshot,
        version: int | None = None,
        timestamp: Timestamp | None = None,
        *,
        most_left: float = 1.0,
    ) -> Coverage:
        definition = Definition.of(index.metadata, uri=self.uri)
        schema = definition.known_schema
        snapshot = self._source.snapshot(
            version=version,
            timestamp_ms=None if timestamp is None else milliseconds(timestamp),
            known_schema=None if schema is None else from_json(schema),
            is_known=_is_known(index),
        )
        return Coverage.of(index, snapshot, definition.columns, most_left=most_left)


def _is_known(index: Snapshot) -> Callable[[SourceFile], bool]:
    indexed = indexed_files(index)
    return lambda file: file.identity in indexed


def source_of(
    uri: str | os.PathLike[str],
    source_format: str,
    options: Mapping[str, object] | None,
    index_options: Mapping[str, object] | None = None,
) -> Source:
    """A table of another format at a place, reached with its options or those of the index."""
    if source_format not in get_args(Format):
        raise ConfigError(f"format is one of {', '.join(get_args(Format))}, not {source_format!r}.")
    if source_format == "iceberg" and str(uri).startswith(CATALOG):
        return IcebergSource(str(uri), options or index_options or {})
    place = canonical_uri(uri)
    if options is None:
        options = None if place.startswith("/") else index_options
    if source_format == "iceberg":
        return IcebergSource(place, options or {})
    if source_format == "delta":
        return DeltaSource(place, options or {})
    return ParquetFolder(open_store(place, options))


def _check_apart(index: str, source: str) -> None:
    """What is in the folder of an index is deleted with it."""
    if source.startswith(CATALOG):
        return
    inside = f"{canonical_uri(source)}/".startswith(f"{canonical_uri(index)}/")
    if inside:
        raise SearchIndexError(
            index, f"its source '{source}' cannot be in the same folder. Choose another place"
        )


def _metadata(
    source: Source,
    snapshot: SourceSnapshot,
    columns: Sequence[str] | None,
    *,
    config: Config,
    properties: Mapping[str, str],
    name: str | None,
) -> Metadata:
    names = tuple(snapshot.schema.names if columns is None else columns)
    for column in names:
        if column not in snapshot.schema.names:
            raise UnknownColumnError(column, available=snapshot.schema.names)
    if len(set(names)) < len(names):
        raise SchemaError(f"A column is named twice: {', '.join(names)}.")
    schema = pa.schema(snapshot.schema.field(n) for n in snapshot.schema.names if n in set(names))
    partition_by = [n for n in snapshot.partition_columns if n in set(names)]
    # Hashes of rows would have to be of all columns, and only some are read.
    own = {key: value for key, value in properties.items() if is_own_key(key)}
    mapping = build_mapping(schema, config.over(own), partition_by=partition_by)
    mapping = replace(mapping, hashed=False)
    if not mapping.indexed:
        named = f"None of the columns {', '.join(names)}" if names else "No column"
        raise SchemaError(
            f"{named} is text that can be indexed. Name in columns=[…] the text columns to search."
        )
    definition = Definition(source.uri, source.format, names)
    metadata = Metadata(
        id=str(uuid.uuid4()),
        name=name,
        schema_string=to_json(schema),
        configuration={
            **properties,
            MAPPING_PROPERTY: mapping.to_json(),
            SEARCH_INDEX_PROPERTY: definition.to_json(),
        },
        created_time=time.time_ns() // 1_000_000,
    )
    check_properties_fit(metadata)
    return metadata
