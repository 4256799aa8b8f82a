"""Queries without Spark: DataFusion reads relations that are scans of index tables.

DataFusion is here already, it decodes the log's Avro files. To it a relation is a data set of
Arrow: it says which columns it wants and which rows, as often as it likes.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds

from indextables.cli.sql_relations import Relation
from indextables.cli.sql_rewrite import SEARCH_FUNCTION, Opener, Rewritten, rewrite
from indextables.errors import EmbeddedQueryError, IndexTablesError
from indextables.plan.execute import mapping_of
from indextables.predicate import Search
from indextables.predicate.sql_text import parse_predicate
from indextables.split.flat import columns_needed, search_rows


def run_query(sql: str, opener: Opener) -> pa.RecordBatchReader:
    """The rows of a query, as a stream."""
    import datafusion

    query = rewrite(sql, opener)
    context = datafusion.SessionContext()
    failures: list[IndexTablesError] = []
    for relation in query.relations:
        context.register_dataset(relation.name, _Relation(relation, query, failures))
    if query.searches_values:
        context.register_udf(_search_of_values(datafusion, failures))
    try:
        stream = context.sql(query.sql).execute_stream()
        first = next(iter(stream), None)
    except Exception as error:
        raise _explained(error, failures) from None
    if first is None:
        schema = context.sql(query.sql).schema()
        return pa.RecordBatchReader.from_batches(schema, [])
    batch = first.to_pyarrow()

    def batches() -> Iterator[pa.RecordBatch]:
        yield batch
        try:
            for more in stream:
                yield more.to_pyarrow()
        except Exception as error:
            raise _explained(error, failures) from None

    return pa.RecordBatchReader.from_batches(batch.schema, batches())


def _explained(error: Exception, failures: list[IndexTablesError]) -> IndexTablesError:
    """Our own error where there was one, otherwise what the engine says."""
    if failures:
        return failures[0]
    reason = " ".join(str(error).split()).removeprefix("DataFusion error: ")
    return EmbeddedQueryError(f"The query engine says: {reason}")


class _Relation(ds.Dataset):
    """A relation as the engine sees it. It has one fragment, itself."""

    def __init__(
        self, relation: Relation, query: Rewritten, failures: list[IndexTablesError]
    ) -> None:
        # The base class is a handle on a data set of Arrow's own, which this is not.
        self.relation = relation
        self.mentioned = query.mentioned
        self.failures = failures
        self.columns = relation.table.schema
        self.masks = {name: _parsed(text, self.columns) for name, text in relation.masks.items()}

    @property
    def schema(self) -> pa.Schema:
        fields = [f.with_nullable(True) for f in self.columns]
        fields += [pa.field(name, pa.bool_()) for name in self.relation.masks]
        if self.relation.score:
            fields.append(pa.field(self.relation.score, pa.float32()))
        return pa.schema(fields)

    def get_fragments(self, filter: Any = None) -> Iterator[Any]:  # noqa: A002, ARG002
        return iter([self])

    def scanner(  # type: ignore[override]
        self,
        schema: Any = None,  # noqa: ARG002
        *,
        columns: list[str] | None = None,
        filter: Any = None,  # noqa: A002
        **_: Any,
    ) -> _Scan:
        return _Scan(self, columns if columns is not None else self.schema.names, filter)


class _Scan:
    """One pass over a relation."""

    def __init__(self, relation: _Relation, columns: list[str], condition: Any) -> None:
        self.relation = relation
        self.columns = columns
        self.condition = condition

    @property
    def projected_schema(self) -> pa.Schema:
        return pa.schema([self.relation.schema.field(name) for name in self.columns])

    def to_batches(self) -> Iterator[pa.RecordBatch]:
        try:
            for batch in self._source():
                rows = self._with_masks(pa.Table.from_batches([batch]))
                if self.condition is not None:
                    rows = rows.filter(self.condition)
                chosen = rows.select(self.columns)
                if self.columns:  # a cast of no columns would forget how many rows there are
                    chosen = chosen.cast(self.projected_schema)
                yield from chosen.to_batches()
        except IndexTablesError as error:
            self.relation.failures.append(error)
            raise

    def _source(self) -> Iterator[pa.RecordBatch]:
        relation = self.relation.relation
        table, needed = relation.table, self._needed()
        if relation.score is None:
            searches = [_call(query, column) for query, column in relation.searches]
            where = " AND ".join(f"({c})" for c in [*relation.conditions, *searches])
            yield from table.scan_batches(columns=needed, where=where or None)
            return
        query, column = relation.searches[0]
        found = table.search(
            query,
            fields=None if column is None else [_exact(column, table.schema)],
            where=" AND ".join(f"({c})" for c in relation.conditions) or None,
            columns=needed,
            limit=relation.limit,
        )
        yield from found.rename_columns([*needed, relation.score]).to_batches()

    def _needed(self) -> list[str]:
        """Columns to read: the wanted ones, those of conditions, those that searches look at."""
        schema, mentioned = self.relation.columns, self.relation.mentioned
        wanted = set(self.columns)
        if self.condition is not None:
            wanted.update(name for name in schema.names if name.lower() in mentioned)
        if self.relation.masks:
            mapping = mapping_of(self.relation.relation.table.snapshot())
            for search in self.relation.masks.values():
                wanted.update(columns_needed(search, mapping, schema))
        needed = [name for name in schema.names if name in wanted]
        return needed or [min(schema, key=lambda f: pa.types.is_string(f.type)).name]

    def _with_masks(self, rows: pa.Table) -> pa.Table:
        snapshot = self.relation.relation.table.snapshot()
        for name, search in self.relation.masks.items():
            found = search_rows(search, rows, mapping_of(snapshot), schema=self.relation.columns)
            rows = rows.append_column(name, pa.array(found, pa.bool_()))
        return rows


def _parsed(text: str, schema: pa.Schema) -> Search:
    search = parse_predicate(text, schema)
    if not isinstance(search, Search):
        raise EmbeddedQueryError(f"{text} is no search.")
    return search


def _call(query: str, column: str | None) -> str:
    quoted = "'" + query.replace("\\", "\\\\").replace("'", "\\'") + "'"
    if column is None:
        return f"indexqueryall({quoted})"
    return f"`{column.replace('`', '``')}` indexquery {quoted}"


def _exact(column: str, schema: pa.Schema) -> str:
    if column in schema.names:
        return column
    return next((n for n in schema.names if n.lower() == column.lower()), column)


def _search_of_values(datafusion: Any, failures: list[IndexTablesError]) -> Any:
    """The function that searches texts which are no column of a table."""
    from indextables.spark.search_udf import indexquery

    def search(texts: Any, query: Any) -> Any:
        try:
            return indexquery(texts, query)
        except IndexTablesError as error:
            failures.append(error)
            raise

    return datafusion.udf(search, [pa.string(), pa.string()], pa.bool_(), "stable", SEARCH_FUNCTION)
