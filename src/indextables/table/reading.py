"""Reading: rows that meet a condition, the best rows for a search, counts, plans."""

from __future__ import annotations

import sys
from collections.abc import Sequence

import pyarrow as pa

from indextables import config as keys
from indextables.errors import ConfigError, SchemaError, SearchValueError, UnknownColumnError
from indextables.log.snapshot import Snapshot
from indextables.plan.column_names import names_of, shown
from indextables.plan.count import count_rows
from indextables.plan.execute import Environment, mapping_of, result_schema, router_of, run_scan
from indextables.plan.explain import explain_scan
from indextables.plan.ranking import SCORE, top_rows, with_snippets
from indextables.plan.scan import ScanPlan, checked_columns, plan_scan
from indextables.predicate import FieldNode, Search
from indextables.predicate.names import escaped_field, resolve_field
from indextables.predicate.search import over_fields
from indextables.predicate.search_syntax import parse_search
from indextables.table.open_table import OpenTable, check_searches
from indextables.xref.route import Router


class Reading(OpenTable):
    """The verbs that read. What they give is complete: there is no hidden limit."""

    def scan(
        self,
        *,
        columns: Sequence[str] | None = None,
        where: str | None = None,
        limit: int | None = None,
    ) -> pa.Table:
        """The rows that meet a condition, all of them unless there is a limit.

        `where` is a SQL condition in Spark's dialect; `column indexquery '…'`, `_indexall
        indexquery '…'` and `indexqueryall('…')` search.
        """
        return self.scan_batches(columns=columns, where=where, limit=limit).read_all()

    def scan_batches(
        self,
        *,
        columns: Sequence[str] | None = None,
        where: str | None = None,
        limit: int | None = None,
    ) -> pa.RecordBatchReader:
        """The same rows as a stream, for results larger than memory."""
        snapshot = self._snapshot_for(where)
        plan = self._plan(snapshot, where, columns, limit)
        schema = names_of(snapshot).shown_result(result_schema(plan))
        pieces = run_scan(plan, self._environment(snapshot))
        fitting = (
            p if p.schema.equals(schema) else p.rename_columns(schema.names).cast(schema)
            for p in pieces
        )
        batches = (batch for piece in fitting for batch in piece.to_batches())
        return pa.RecordBatchReader.from_batches(schema, batches)

    def search(
        self,
        query: str,
        *,
        fields: Sequence[str] | None = None,
        where: str | None = None,
        columns: Sequence[str] | None = None,
        limit: int | None = 10,
        snippets: Sequence[str] = (),
    ) -> pa.Table:
        """The best rows for a search, best first, with a `_score`.

        `fields` are searched where the query names none; all indexed ones by default. For each
        column of `snippets` there is a column `_snippet_<name>` with its best part, the words
        found marked. Scores are BM25 over the whole table and do not depend on its layout.
        """
        snapshot = self.snapshot()
        environment = self._environment(snapshot)
        names = names_of(snapshot)
        search = names.stored_search(self._search(query, fields, shown(snapshot)))
        chosen = checked_columns(shown(snapshot), _checked_names(columns, "columns"))
        _checked_names(snippets, "snippets")
        marked_ones = checked_columns(shown(snapshot), snippets) if snippets else ()
        needed = list(dict.fromkeys([*chosen, *marked_ones]))
        result = [*chosen, SCORE, *(f"_snippet_{name}" for name in snippets)]
        if repeated := sorted({name for name in result if result.count(name) > 1}):
            raise SchemaError(
                f"The result would have the column '{repeated[0]}' twice. Choose with columns=… "
                "what it should have."
            )
        found = top_rows(
            snapshot,
            environment,
            search,
            predicate=self._predicate(where, snapshot),
            columns=names.stored_names(needed),
            limit=_checked_limit(limit),
            config=self._effective(snapshot),
        )
        marked = with_snippets(found, search, names.stored_names(snippets), environment.context)
        renamed = [*needed, SCORE, *(f"_snippet_{name}" for name in snippets)]
        return names.shown_rows(marked).rename_columns(renamed).select(result)

    def count(self, *, where: str | None = None) -> int:
        """How many rows meet a condition; from the log alone where it knows."""
        snapshot = self._snapshot_for(where)
        predicate = self._predicate(where, snapshot)
        return count_rows(
            snapshot,
            predicate,
            lambda: self._environment(snapshot),
            router=self._router(snapshot),
        )

    def explain(
        self,
        *,
        where: str | None = None,
        columns: Sequence[str] | None = None,
        limit: int | None = None,
    ) -> str:
        """What a scan would do: how many splits and bytes each stage keeps, and why."""
        snapshot = self.snapshot()
        plan = self._plan(snapshot, where, columns, limit)
        return explain_scan(plan, mapping_of(snapshot))

    def _plan(
        self,
        snapshot: Snapshot,
        where: str | None,
        columns: Sequence[str] | None,
        limit: int | None,
    ) -> ScanPlan:
        chosen = checked_columns(shown(snapshot), _checked_names(columns, "columns"))
        return plan_scan(
            snapshot,
            predicate=self._predicate(where, snapshot),
            columns=names_of(snapshot).stored_names(chosen),
            limit=_checked_limit(limit),
            router=self._router(snapshot),
        )

    def _search(self, query: str, fields: Sequence[str] | None, snapshot: Snapshot) -> Search:
        if _checked_names(fields, "fields") is not None:
            if not fields:
                raise SchemaError("fields is empty. Leave it out to search all indexed fields.")
            fields = [_search_field(name, snapshot.schema) for name in fields]
        config = self._effective(snapshot)
        node = parse_search(
            query,
            schema=snapshot.schema,
            max_length=config[keys.INDEXQUERY_MAX_LENGTH],
            max_depth=config[keys.INDEXQUERY_MAX_DEPTH],
        )
        if fields:
            node = over_fields(node, fields, fits=lambda leaf: _fits(leaf, snapshot))
        search = Search(None, node, query)
        check_searches(search, snapshot)
        return search

    def _environment(self, snapshot: Snapshot) -> Environment:
        return Environment.of(self._log.store, snapshot, self._effective(snapshot))

    def _router(self, snapshot: Snapshot) -> Router:
        return router_of(self._log.store, snapshot, self._effective(snapshot))


def _fits(leaf: FieldNode, snapshot: Snapshot) -> bool:
    """Whether a field can be asked: a word is no number."""
    try:
        check_searches(Search(None, leaf, ""), snapshot)
    except SearchValueError:
        return False
    return True


def _search_field(name: str, schema: pa.Schema) -> str:
    """A column, whose name may have dots, or a path into one."""
    if name in schema.names:
        return escaped_field([name])
    if resolve_field(name, schema) is None:
        raise UnknownColumnError(name, available=schema.names)
    return name


def _checked_limit(limit: int | None) -> int | None:
    if limit is not None and (isinstance(limit, bool | str | float) or limit < 0):
        raise ConfigError(f"A limit is a number of rows, not {limit!r}.")
    return None if limit is None else min(limit, sys.maxsize)


def _checked_names(names: Sequence[str] | None, what: str) -> Sequence[str] | None:
    """A text is a sequence of texts to Python, its letters, which nobody means."""
    if isinstance(names, str):
        raise SchemaError(f"{what} is a list of names. Write {what}=[{names!r}].")
    return names
