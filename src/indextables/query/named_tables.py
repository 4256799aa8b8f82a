"""`indextables.sql`: a query over tables that are given by name."""

from __future__ import annotations

import copy
import datetime
import sys
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds

from indextables.errors import EmbeddedQueryError
from indextables.query.engine import run_query
from indextables.table import Table


def sql(query: str, /, **tables: Any) -> pa.Table:
    """Run a query in Spark's SQL, without Spark.

    Searches work everywhere in a query: `WHERE body indexquery 'spark AND sql'`, `_score`,
    `snippet(body)`. The query reads the tables it is given and nothing else: neither files nor
    variables of Python. It sees one version of each table, the one that its handle is at, unless it
    says `VERSION AS OF` or `TIMESTAMP AS OF`.

    Args:
        query: One SELECT, with any WITH, joins, subqueries, windows and set operations.
        tables: The tables by the names that the query has for them: index tables, data sets of
            Arrow, or anything with Arrow's C interface (Arrow tables, pandas and Polars
            DataFrames).

    Returns:
        The rows, as an Arrow table.

    Raises:
        EmbeddedQueryError: The query is wrong, or has something that only Spark has.
        QueryError: A search in it is wrong.

    >>> import pyarrow as pa
    >>> import indextables as it
    >>> rows = pa.table({"id": [1, 2, 3], "body": ["red fox", "lazy dog", "fox and dog"]})
    >>> docs = it.write_table("memory://sql-example", rows)
    >>> owners = pa.table({"id": [1, 3], "owner": ["ann", "bob"]})
    >>> query = "SELECT owner, snippet(body) AS found FROM docs JOIN owners USING (id)"
    >>> query += " WHERE body indexquery 'fox' ORDER BY owner"
    >>> it.sql(query, docs=docs, owners=owners).to_pylist()
    [{'owner': 'ann', 'found': 'red <b>fox</b>'}, {'owner': 'bob', 'found': '<b>fox</b> and dog'}]
    """
    if not isinstance(query, str):
        raise EmbeddedQueryError(f"A query is a text, not {type(query).__name__}.")
    named = {name.lower(): _relation(name, table) for name, table in tables.items()}

    def opened(parts: tuple[str, ...], version: int | None, at: str | None) -> Any:
        table = named.get(parts[0].lower()) if len(parts) == 1 else None
        if table is None:
            shown = ", ".join(sorted(tables)) or "none"
            raise EmbeddedQueryError(
                f"There is no table '{'.'.join(parts)}'. The query was given: {shown}. "
                f"Pass it by its name: sql(query, {parts[-1]}=…)."
            )
        if version is None and at is None:
            return table
        if not isinstance(table, Table):
            raise EmbeddedQueryError(f"'{parts[0]}' is not an index table and has one version.")
        moment = None if at is None else _moment(at)
        return Table.of_log(table.log, version=version, timestamp=moment)

    return run_query(query, opened).read_all()


def _relation(name: str, table: Any) -> Table | pa.Table | ds.Dataset:
    if isinstance(table, Table):
        return copy.copy(table)
    if isinstance(table, pa.Table | ds.Dataset):
        return table
    pandas = sys.modules.get("pandas")
    if pandas is not None and isinstance(table, pandas.DataFrame):
        return pa.Table.from_pandas(table, preserve_index=False)
    try:
        return pa.table(table)
    except (TypeError, ValueError, pa.ArrowException) as error:
        raise EmbeddedQueryError(
            f"'{name}' is not a table: {type(table).__name__}. Pass an index table, an Arrow table "
            f"or a DataFrame. ({error})"
        ) from None


def _moment(text: str) -> datetime.datetime | str:
    try:
        return datetime.datetime.fromisoformat(text)
    except ValueError:
        return text
