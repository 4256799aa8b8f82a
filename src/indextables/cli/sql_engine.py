"""Queries without Spark: DataFusion reads relations that are scans of index tables.

DataFusion is here already, it decodes the log's Avro files. To it a relation is a data set of
Arrow: it says which columns it wants and which rows, as often as it likes.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from indextables.cli.sql_functions import BOUNDED
from indextables.cli.sql_relations import Relation, search_call
from indextables.cli.sql_rewrite import SEARCH_FUNCTION, Opener, Rewritten, rewrite
from indextables.errors import EmbeddedQueryError, IndexTablesError, SearchCallError
from indextables.predicate import Search
from indextables.predicate.sql_text import parse_predicate
from indextables.split.flat import columns_needed, search_rows
from indextables.split.snippet import snippet
from indextables.sql.search_calls import SNIPPET

_MOST_MADE = 256 << 20


def run_query(sql: str, opener: Opener) -> pa.RecordBatchReader:
    """The rows of a query, as a stream."""
    import datafusion

    query = rewrite(sql, opener)
    context = datafusion.SessionContext()
    failures: list[IndexTablesError] = []
    for relation in query.relations:
        context.register_dataset(relation.name, _Relation(relation, query, failures))
    context.register_udf(_bounded(datafusion, failures))
    if query.searches_values:
        for function in _functions_of_values(datafusion, failures):
            context.register_udf(function)
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
        self.snippets = {
            name: (_text_column(column, self.columns), _parsed(text, self.columns))
            for name, (column, text) in relation.snippets.items()
        }

    @property
    def schema(self) -> pa.Schema:
        fields = [f.with_nullable(True) for f in self.columns]
        fields += [pa.field(name, pa.bool_()) for name in self.relation.masks]
        fields += [pa.field(name, pa.string()) for name in self.relation.snippets]
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
        # A condition that the engine could decide itself comes as a value.
        known = isinstance(condition, pa.Scalar)
        self.condition = pc.scalar(bool(condition.as_py())) if known else condition

    @property
    def projected_schema(self) -> pa.Schema:
        return pa.schema([self.relation.schema.field(name) for name in self.columns])

    def to_batches(self) -> Iterator[pa.RecordBatch]:
        try:
            for batch in self._source():
                rows = self._with_snippets(self._with_masks(pa.Table.from_batches([batch])))
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
            searches = [search_call(query, column) for query, column in relation.searches]
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
            mapping = self.relation.relation.table.view.shown.mapping
            for search in self.relation.masks.values():
                wanted.update(columns_needed(search, mapping, schema))
        wanted.update(self.relation.snippets[name][0] for name in self._shown())
        needed = [name for name in schema.names if name in wanted]
        return needed or [min(schema, key=lambda f: pa.types.is_string(f.type)).name]

    def _with_masks(self, rows: pa.Table) -> pa.Table:
        mapping = self.relation.relation.table.view.shown.mapping
        for name, search in self.relation.masks.items():
            found = search_rows(search, rows, mapping, schema=self.relation.columns)
            rows = rows.append_column(name, pa.array(found, pa.bool_()))
        return rows

    def _with_snippets(self, rows: pa.Table) -> pa.Table:
        mapping = self.relation.relation.table.view.shown.mapping
        for name in self._shown():
            column, search = self.relation.snippets[name]
            texts = rows.column(column).to_pylist()
            snippets = [
                snippet(text, search, column, mapping=mapping, schema=self.relation.columns)
                for text in texts
            ]
            rows = rows.append_column(name, pa.array(snippets, pa.string()))
        return rows

    def _shown(self) -> list[str]:
        """Snippets that this pass has to make. The engine pushes no condition about one."""
        return [name for name in self.relation.snippets if name in self.columns]


def _parsed(text: str, schema: pa.Schema) -> Search:
    search = parse_predicate(text, schema)
    if not isinstance(search, Search):
        raise EmbeddedQueryError(f"{text} is no search.")
    return search


def _exact(column: str, schema: pa.Schema) -> str:
    if column in schema.names:
        return column
    return next((n for n in schema.names if n.lower() == column.lower()), column)


def _text_column(column: str, schema: pa.Schema) -> str:
    name = _exact(column, schema)
    kind = schema.field(name).type
    if not pa.types.is_string(kind):
        raise SearchCallError("snippet", f"shows words of a text, but '{name}' is {kind}.")
    return name


def _bounded(datafusion: Any, failures: list[IndexTablesError]) -> Any:
    """Refuse numbers by which the engine would make more bytes than a batch may have."""

    def call(counts: Any, widths: Any, starts: Any) -> Any:
        each = pc.multiply(
            pc.abs(pc.subtract(pc.cast(counts, pa.float64()), pc.cast(starts, pa.float64()))),
            pc.cast(widths, pa.float64()),
        )
        made = pc.sum(each).as_py() or 0
        if made > _MOST_MADE:
            failures.append(
                EmbeddedQueryError(
                    f"A function of the query would make {made:,.0f} bytes at once. Make texts, "
                    "lists and series shorter, or take fewer rows."
                )
            )
            raise failures[-1]
        return counts

    return datafusion.udf(call, [pa.int64()] * 3, pa.int64(), "stable", BOUNDED)


def _functions_of_values(datafusion: Any, failures: list[IndexTablesError]) -> list[Any]:
    """The functions that look into texts which are no column of a table."""
    from indextables.sql import search_functions as search_udf

    def function(name: str, work: Any, result: pa.DataType) -> Any:
        def call(texts: Any, query: Any) -> Any:
            try:
                return work(texts, query)
            except IndexTablesError as error:
                failures.append(error)
                raise

        return datafusion.udf(call, [pa.string(), pa.string()], result, "stable", name)

    return [
        function(SEARCH_FUNCTION, search_udf.indexquery, pa.bool_()),
        function(SNIPPET, search_udf.snippet, pa.string()),
    ]
