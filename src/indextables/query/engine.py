"""Queries without Spark: DuckDB reads relations that are scans of index tables.

To DuckDB a relation is a data set of Arrow: it says which columns it wants and which rows, as often
as it likes. A query has a database of its own, in memory, without files, network, extensions or
settings; all that it can reach are its relations. It gets the functions that DuckDB does not have:
searches of values, exact divisions, bounds. `sql` is `indextables.sql`: a query over tables that
are given by name.
"""

from __future__ import annotations

import atexit
import contextlib
import contextvars
import copy
import datetime
import decimal
import functools
import math
import os
import re
import sys
import threading
import weakref
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from indextables.config import Config
from indextables.errors import (
    EmbeddedQueryError,
    IndexTablesError,
    SchemaError,
    SearchCallError,
    StoppedError,
    require,
)
from indextables.jobs.assignments import lower_case, upper_case
from indextables.lake.search_index import SearchIndex
from indextables.plan.view import mapping_from_json
from indextables.predicate import Column, Search
from indextables.predicate.names import escaped_field
from indextables.predicate.search_syntax import parse_search
from indextables.predicate.sql_text import parse_predicate
from indextables.query.dialect import (
    BOUNDED,
    BOUNDED_STEPS,
    DOUBLE_TEXT,
    FLOAT_TEXT,
    INITCAP,
    LOWER,
    MAPPED_SEARCH,
    MAPPED_SNIPPET,
    REGEXP_REPLACE,
    REPLACE,
    SEARCH_FUNCTION,
    UPPER,
    Division,
)
from indextables.query.relations import VALUE, Relation
from indextables.query.rewrite import Opener, Rewritten, rewrite
from indextables.runner import Result, Stop, current_stop
from indextables.schema import normalize
from indextables.split.mapping import TableMapping
from indextables.split.mapping_options import build_mapping
from indextables.split.search import columns_needed, search_rows
from indextables.split.snippet import snippets
from indextables.statements.search_calls import SNIPPET
from indextables.table import Table
from indextables.table.arguments import columns_of


def sql(query: str, /, **tables: Any) -> pa.Table:
    """Run a query in Spark's SQL, without Spark.

    Searches work everywhere in a query: `WHERE body indexquery 'spark AND sql'`, `_score`,
    `snippet(body)`. The query reads the tables it is given and nothing else: neither files nor
    variables of Python. It sees one version of each table, the one that its handle is at, unless it
    says `VERSION AS OF` or `TIMESTAMP AS OF`.

    Args:
        query: One SELECT, with any WITH, joins, subqueries, windows and set operations.
        tables: The tables by the names that the query has for them: index tables, search indexes,
            data sets of Arrow, or anything with Arrow's C interface (Arrow tables, pandas and
            Polars DataFrames).

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
            passed = f"The query has {', '.join(sorted(tables))}. " if tables else ""
            raise EmbeddedQueryError(
                f"There is no table '{'.'.join(parts)}'. {passed}Pass it by its name: "
                f"sql(query, {parts[-1]}=…)."
            )
        moment = None if at is None else _moment(at)
        if isinstance(table, SearchIndex):
            return table.table(version=version, timestamp=moment)
        if version is None and at is None:
            return table
        if not isinstance(table, Table):
            raise EmbeddedQueryError(f"'{parts[0]}' is not an index table and has one version.")
        if table.view.elsewhere is not None:  # versions of its log are not those of its source
            raise EmbeddedQueryError(
                f"'{parts[0]}' is the source of a search index at one version. Pass the index "
                f"itself: sql(query, {parts[0]}=index)."
            )
        return Table.of_log(table.log, version=version, timestamp=moment)

    return run_query(query, opened).read_all()


def _relation(name: str, table: Any) -> Table | SearchIndex | pa.Table | ds.Dataset:
    if isinstance(table, Table):
        return copy.copy(table)
    if isinstance(table, SearchIndex | pa.Table | ds.Dataset):
        return table
    pandas = sys.modules.get("pandas")
    if pandas is not None and isinstance(table, pandas.DataFrame):
        return pa.Table.from_pandas(table, preserve_index=False)
    try:
        return pa.table(table)
    except (TypeError, ValueError, pa.ArrowException) as error:
        raise EmbeddedQueryError(
            f"'{name}' is not a table: {type(table).__name__}. Pass an index table, a search "
            f"index, an Arrow table or a DataFrame. ({error})"
        ) from None


def _moment(text: str) -> datetime.datetime | str:
    try:
        return datetime.datetime.fromisoformat(text)
    except ValueError:
        return text


# --- running a query -------------------------------------------------------------------------

_SETTINGS = {
    "enable_external_access": "false",
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
    "python_enable_replacements": "false",
    "memory_limit": "50%",
}
_BATCH = 8_192


def run_query(sql: str, opener: Opener) -> pa.RecordBatchReader:
    """The rows of a query in Spark's SQL, as a stream.

    Every table is opened once, before the first row is read.
    """
    try:
        query = rewrite(sql, opener)
    except RecursionError:
        raise EmbeddedQueryError(
            "The query is nested too deep. Write it with fewer parentheses or conditions."
        ) from None
    stop = current_stop() or Stop()
    engine = _Engine.free()

    def begin() -> tuple[Any, pa.RecordBatch | None]:
        reader = engine.run(query)
        return reader, next(reader, None)

    try:
        with stop.calling(engine.connection.interrupt):
            reader, first = engine.interruptible(begin)
    except BaseException as error:
        engine.close()
        stop.check()
        if not isinstance(error, Exception):
            raise
        raise _explained(error, engine.failures) from None

    def batches() -> Generator[pa.RecordBatch, None, None]:
        is_done = False
        try:
            if first is not None:
                yield first
            while True:
                with stop.calling(engine.connection.interrupt):
                    batch = engine.interruptible(lambda: next(reader, None))
                if batch is None:
                    is_done = True
                    return
                yield batch
        except StoppedError:
            raise
        except Exception as error:
            stop.check()
            raise _explained(error, engine.failures) from None
        finally:
            if is_done:
                engine.keep()
            else:
                engine.close()

    rows = batches()
    stream = pa.RecordBatchReader.from_batches(reader.schema, rows)
    # A stream that is not read to its end is closed with the program at the latest.
    weakref.finalize(stream, rows.close)
    return stream


def scan_relation(
    relation: Relation, columns: list[str], *, timezone: str
) -> Iterator[pa.RecordBatch]:
    """The rows of a relation, hidden columns too."""
    return _Scan(_Relation(relation, [], timezone), columns, None).to_batches()


class _Engine:
    """A database in memory. It has one query at a time, and waits for another one after it.

    Making one takes twenty times as long as a small query. The engine of a query that failed or was
    given up is closed.
    """

    waiting: ClassVar[list[_Engine]] = []
    most_waiting: ClassVar[int] = 4

    def __init__(self) -> None:
        require("duckdb", extra="sql", for_what="SQL without Spark")
        import duckdb

        self.process = os.getpid()
        self.worker = ThreadPoolExecutor(1, thread_name_prefix="indextables-sql")
        self.failures: list[IndexTablesError] = []
        self.names: list[str] = []
        self.functions: set[str] = set()
        self.steps = _Steps()
        self.connection: Any = duckdb.connect(":memory:", config=dict(_SETTINGS))
        self.connection.execute("SET TimeZone = 'UTC'")
        self.connection.execute("SET lock_configuration = true")
        self.register(BOUNDED, _bounded, ["BIGINT"] * 3, "BIGINT")
        self.register(
            BOUNDED_STEPS, self.steps.count, ["BIGINT"], "BOOLEAN", is_called_for_each_row=True
        )
        self.register(DOUBLE_TEXT, _double_texts, ["DOUBLE"], "VARCHAR")
        self.register(FLOAT_TEXT, _float_texts, ["DOUBLE"], "VARCHAR")
        self.register(UPPER, upper_case, ["VARCHAR"], "VARCHAR")
        self.register(LOWER, lower_case, ["VARCHAR"], "VARCHAR")
        self.register(INITCAP, _initcaps, ["VARCHAR"], "VARCHAR")
        self.register(REPLACE, _replaced, ["VARCHAR"] * 3, "VARCHAR")
        self.register(REGEXP_REPLACE, _regexp_replaced, ["VARCHAR"] * 3, "VARCHAR")
        self.register(SEARCH_FUNCTION, _search_values, None, "BOOLEAN")
        self.register(SNIPPET, _snippets_of_values, ["VARCHAR", "VARCHAR"], "VARCHAR")
        self.register(MAPPED_SEARCH, _search_mapped, None, "BOOLEAN")
        self.register(MAPPED_SNIPPET, _snippets_mapped, ["VARCHAR"] * 3, "VARCHAR")

    @classmethod
    def free(cls) -> _Engine:
        """A waiting engine, or a new one."""
        with contextlib.suppress(IndexError):
            engine = cls.waiting.pop()  # so that no other thread has it
            if engine.process == os.getpid():
                return engine
            # A fork does not have the threads of its parent's engine.
            _FORKED.append(engine)
        return cls()

    def keep(self) -> None:
        """Wait for another query."""
        for name in self.names:
            self.connection.unregister(name)
        self.names.clear()
        if len(self.waiting) < self.most_waiting and not self.failures:
            self.waiting.append(self)
        else:
            self.close()

    def close(self) -> None:
        self.connection.close()
        self.worker.shutdown(wait=False)

    def run(self, query: Rewritten) -> Any:
        """The rows of a query, as they come."""
        self.steps.reset()
        for relation in query.relations:
            self.add(relation.name, _Relation(relation, self.failures))
        for name, rows in query.foreign.items():
            self.add(name, rows)
        for division in query.engine.divisions:
            if division.name not in self.functions:
                operands = [f"DECIMAL(38, {side})" for side in (division.left, division.right)]
                result = f"DECIMAL({division.precision}, {division.scale})"
                self.register(division.name, _divider(division), operands, result)
        result = self.connection.sql(query.engine.sql)
        # A sum of integers is wider here than in Spark, which has no such type.
        types = list(map(str, result.types))
        if "HUGEINT" in types:
            columns = (
                f"CAST(#{at} AS BIGINT) AS {_quoted(name)}" if type_ == "HUGEINT" else f"#{at}"
                for at, (name, type_) in enumerate(zip(result.columns, types, strict=True), 1)
            )
            result = result.project(", ".join(columns))
        return result.to_arrow_reader(_BATCH)

    def interruptible(self, call: Callable[[], Result]) -> Result:
        """Call the engine so that Ctrl-C ends the query.

        Python raises the interrupt in the main thread. If that is inside of the engine, the engine
        may take it for an error of a function that it called. So the main thread only waits.
        """
        if threading.current_thread() is not threading.main_thread():
            return call()
        context = contextvars.copy_context()
        answer = self.worker.submit(context.run, call)
        try:
            return answer.result()
        except KeyboardInterrupt:
            self.connection.interrupt()
            answer.exception()  # waits for its end
            raise

    def add(self, name: str, rows: Any) -> None:
        """Let the query read some rows by a name."""
        self.connection.register(name, rows)
        self.names.append(name)

    def register(
        self,
        name: str,
        work: Callable[..., Any],
        arguments: list[str] | None,
        result: str,
        *,
        is_called_for_each_row: bool = False,
    ) -> None:
        """Give queries a function that DuckDB does not have; without types it takes any."""
        failures = self.failures  # a reference to the engine itself would be a cycle

        @functools.wraps(work)  # DuckDB counts its parameters
        def call(*columns: Any) -> Any:
            try:
                return work(*columns)
            except IndexTablesError as error:
                failures.append(error)
                raise

        self.connection.create_function(
            name, call, arguments, result, type="arrow", null_handling="special",
            side_effects=is_called_for_each_row,
        )  # fmt: skip
        self.functions.add(name)


@atexit.register
def _close_engines() -> None:
    while _Engine.waiting:
        engine = _Engine.waiting.pop()
        if engine.process == os.getpid():
            engine.close()
        else:
            _FORKED.append(engine)


_FORKED: list[_Engine] = []
"""Those of the parent process: to close one would wait for threads that are not here."""


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _explained(error: Exception, failures: list[IndexTablesError]) -> IndexTablesError:
    """The error of this package if there was one, otherwise that of the engine."""
    if failures:
        return failures[0]
    if isinstance(error, IndexTablesError):
        return error
    reason = " ".join(str(error).split("LINE 1:")[0].split())
    reason = re.sub(r"^\w+ Error: ", "", reason)
    if "map contains duplicate key" in reason:
        return EmbeddedQueryError(
            "A map in a column has the same key twice, which this engine cannot hold. Leave the "
            "column out, or read the rows with `scan` or `indextables export`."
        )
    return EmbeddedQueryError(f"The query engine says: {reason}")


class _Relation(ds.Dataset):
    """A relation as the engine sees it."""

    def __init__(
        self, relation: Relation, failures: list[IndexTablesError], timezone: str = "UTC"
    ) -> None:
        # The base class is a handle on a data set of Arrow's own, which this is not.
        self.relation = relation
        self.timezone = timezone
        self.failures = failures
        self.stop = current_stop()  # the engine reads in threads of its own
        self.columns = relation.table.schema
        self.masks = {name: _parsed(text, self.columns) for name, text in relation.masks.items()}
        self.snippets = {
            name: (_text_column(column, self.columns), _parsed(text, self.columns))
            for name, (column, text) in relation.snippets.items()
        }

    @property
    def schema(self) -> pa.Schema:
        return self.relation.schema

    def scanner(  # type: ignore[override]
        self,
        *,
        columns: list[str] | None = None,
        filter: Any = None,  # noqa: A002
        **_: Any,
    ) -> ds.Scanner:
        scan = _Scan(self, columns if columns is not None else self.schema.names, filter)
        reader = pa.RecordBatchReader.from_batches(scan.projected_schema, scan.to_batches())
        return ds.Scanner.from_batches(reader)


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
                if self.relation.stop is not None:
                    self.relation.stop.check()
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
        hidden = [name for name in relation.identity if name in self._named()]
        read = [*needed, *(relation.identity[name] for name in hidden)]
        if relation.score is None:
            where, zone = relation.condition, self.relation.timezone
            for batch in table.scan_batches(columns=read, where=where, timezone=zone):
                yield batch.rename_columns([*needed, *hidden]) if hidden else batch
            return
        search = relation.searches[0]
        rows = table.search(
            search.query,
            fields=[_field(names, table.schema) for names in search.columns] or None,
            where=" AND ".join(f"({c})" for c in relation.conditions) or None,
            columns=read,
            limit=relation.limit,
            timezone=self.relation.timezone,
        )
        yield from rows.rename_columns([*needed, *hidden, relation.score]).to_batches()

    def _needed(self) -> list[str]:
        """Columns to read: the named ones, and those that conditions and searches need."""
        schema = self.relation.columns
        names = self._named()
        if self.relation.masks:
            mapping = self.relation.relation.table.view.shown.mapping
            for search in self.relation.masks.values():
                names.update(columns_needed(search, mapping, schema))
        names.update(self.relation.snippets[name][0] for name in self._shown())
        needed = [name for name in schema.names if name in names]
        return needed or [min(schema, key=lambda f: pa.types.is_string(f.type)).name]

    def _with_masks(self, rows: pa.Table) -> pa.Table:
        mapping = self.relation.relation.table.view.shown.mapping
        for name, search in self.relation.masks.items():
            matching = search_rows(search, rows, mapping, schema=self.relation.columns)
            rows = rows.append_column(name, pa.array(matching, pa.bool_()))
        return rows

    def _with_snippets(self, rows: pa.Table) -> pa.Table:
        mapping = self.relation.relation.table.view.shown.mapping
        for name in self._shown():
            column, search = self.relation.snippets[name]
            texts = rows.column(column).to_pylist()
            marked = snippets(texts, search, column, mapping=mapping, schema=self.relation.columns)
            rows = rows.append_column(name, pa.array(marked, pa.string()))
        return rows

    def _shown(self) -> list[str]:
        """Snippets that this pass has to make, to return or to filter by."""
        return [name for name in self.relation.snippets if name in self._named()]

    def _named(self) -> set[str]:
        """Columns to return or to filter by."""
        named = set(self.columns)
        if self.condition is not None:
            named.update(columns_of(self.condition, self.relation.schema))
        return named


def _parsed(text: str, schema: pa.Schema) -> Search:
    search = parse_predicate(text, schema)
    if not isinstance(search, Search):
        raise EmbeddedQueryError(f"{text} is not a search.")
    return search


def _field(names: tuple[str, ...], schema: pa.Schema) -> str:
    return _exact(names[0], schema) if len(names) == 1 else escaped_field(names)


def _exact(column: str, schema: pa.Schema) -> str:
    if column in schema.names:
        return column
    return next((n for n in schema.names if n.lower() == column.lower()), column)


def _text_column(column: str, schema: pa.Schema) -> str:
    name = _exact(column, schema)
    data_type = schema.field(name).type
    if not pa.types.is_string(data_type):
        raise SearchCallError("snippet", f"shows words of a text, but '{name}' is {data_type}.")
    return name


# --- functions that DuckDB does not have -----------------------------------------------------

_MOST_MADE = 256 << 20
_MOST_STEPS = 10_000
_MOST_RECURSIVE_ROWS = 1_000_000
_EXACT = decimal.Context(prec=80)


def _bounded(counts: Any, widths: Any, starts: Any) -> Any:
    """Refuse numbers by which the engine would make more bytes than a batch may have."""
    each = pc.multiply(
        pc.abs(pc.subtract(pc.cast(counts, pa.float64()), pc.cast(starts, pa.float64()))),
        pc.cast(widths, pa.float64()),
    )
    _check_bytes(pc.sum(each).as_py() or 0)
    return counts


def _check_bytes(size: float) -> None:
    if size > _MOST_MADE:
        raise EmbeddedQueryError(
            f"A function of the query would make {size:,.0f} bytes at once. Make texts, "
            "lists and series shorter, or take fewer rows."
        )


class _Steps:
    """Counts the steps of a query's recursions, and their rows."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        self.steps = 0
        self.rows = 0

    def count(self, values: Any) -> Any:
        """True for each row. A step calls this once for some thousand rows, and at least once."""
        self.steps += 1
        self.rows += len(values)
        if self.steps > _MOST_STEPS or self.rows > _MOST_RECURSIVE_ROWS:
            raise EmbeddedQueryError(
                f"A recursion of the query has {self.rows:,} rows after {self.steps:,} steps. At "
                f"most {_MOST_RECURSIVE_ROWS:,} rows and {_MOST_STEPS:,} steps are computed. Give "
                "its second part a condition that becomes false."
            )
        return pa.array(np.ones(len(values), bool))


def _divider(division: Division) -> Callable[[Any, Any], Any]:
    unit = Decimal(1).scaleb(-division.scale)
    quotient_type = pa.decimal128(division.precision, division.scale)

    def divided(left: Decimal | None, right: Decimal | None) -> Decimal | None:
        if left is None or not right:
            return None
        return _EXACT.divide(left, right).quantize(unit, decimal.ROUND_HALF_UP, _EXACT)

    def divide(lefts: Any, rights: Any) -> Any:
        pairs = zip(lefts.to_pylist(), rights.to_pylist(), strict=True)
        return pa.array([divided(*pair) for pair in pairs], quotient_type)

    return divide


def double_text(value: float) -> str:
    """A double as Java writes it.

    >>> [double_text(x) for x in (1.0, 1e10, -0.0, 0.00012, float("nan"))]
    ['1.0', '1.0E10', '-0.0', '1.2E-4', 'NaN']
    """
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    if value == 0 or 1e-3 <= abs(value) < 1e7:
        return repr(value)
    sign, digits, exponent = Decimal(repr(value)).normalize().as_tuple()
    fraction = "".join(map(str, digits[1:])) or "0"
    power = int(exponent) + len(digits) - 1
    return f"{'-' if sign else ''}{digits[0]}.{fraction}E{power}"


def _double_texts(values: Any) -> Any:
    texts = [None if value is None else double_text(value) for value in values.to_pylist()]
    return pa.array(texts, pa.string())


def _float_texts(values: Any) -> Any:
    # As few digits as tell it from other floats of 32 bits.
    shortest = [None if v is None else float(str(np.float32(v))) for v in values.to_pylist()]
    return _double_texts(pa.array(shortest, pa.float64()))


def initcap(text: str) -> str:
    """A text whose words, between blanks, begin with a capital, as Spark writes it.

    >>> initcap("rED o'neil \u03b1\u03a3")
    "Red O'neil \u0391\u03c2"
    """
    return " ".join(
        word[:1].title() + word.lower()[len(word[:1].lower()) :] for word in text.split(" ")
    )


def _initcaps(texts: Any) -> Any:
    return pa.array([None if t is None else initcap(t) for t in texts.to_pylist()], pa.string())


def _replaced(texts: Any, olds: Any, news: Any) -> Any:
    rows = list(zip(texts.to_pylist(), olds.to_pylist(), news.to_pylist(), strict=True))
    _check_bytes(sum(len(t) + t.count(o) * len(n) for t, o, n in rows if t and o and n))
    return pa.array(
        [None if None in row else row[0].replace(row[1], row[2]) if row[1] else row[0]
         for row in rows],
        pa.string(),
    )  # fmt: skip


def _regexp_replaced(texts: Any, patterns: Any, replacements: Any) -> Any:
    pairs = list(zip(patterns.to_pylist(), replacements.to_pylist(), strict=True))
    if len(set(pairs)) > 1:
        rows = (_all_replaced(texts.slice(at, 1), *pair) for at, pair in enumerate(pairs))
        return pa.array([row[0].as_py() for row in rows], pa.string())
    return _all_replaced(texts, *pairs[0]) if pairs else texts


def _all_replaced(texts: Any, pattern: str | None, replacement: str | None) -> Any:
    if pattern is None or replacement is None:
        return pa.nulls(len(texts), pa.string())
    try:
        copied = (pc.sum(pc.binary_length(texts)).as_py() or 0) * (1 + replacement.count("$"))
        _check_bytes(copied)  # before matches are counted, which takes long in such a text
        matches = pc.sum(pc.count_substring_regex(texts, pattern)).as_py() or 0
        _check_bytes(matches * len(replacement) + copied)
        return pc.replace_substring_regex(texts, pattern, _re2_replacement(replacement, pattern))
    except pa.ArrowInvalid as error:
        raise EmbeddedQueryError(f"regexp_replace: {error}") from None


_IN_REPLACEMENT = re.compile(r"\\(.)|\$(\d+)|([\\$])", re.DOTALL)


def _re2_replacement(text: str, pattern: str) -> str:
    """A replacement in Java's words, such as `<$1>`, in RE2's."""

    def written(part: re.Match[str]) -> str:
        escaped, group, alone = part.groups()
        if alone is not None:
            raise EmbeddedQueryError(
                f"The replacement {text!r} of regexp_replace has a {alone} that names no group. "
                f"Write \\{alone} for the character itself."
            )
        if escaped is not None:
            return r"\\" if escaped == "\\" else escaped
        if len(group) > 1 and int(group[:2]) <= _groups(pattern):
            raise EmbeddedQueryError("regexp_replace supports the groups $0 to $9 here.")
        return f"\\{group}"

    return _IN_REPLACEMENT.sub(written, text)


def _groups(pattern: str) -> int:
    try:
        return re.compile(pattern).groups
    except re.error:
        return 0


# A value that is not a column of an index table is searched as a column of a new one would be.


def _search_values(values: Any, queries: Any) -> Any:
    return _search_mapped(values, queries, [])


def _search_mapped(values: Any, queries: Any, mappings: Any) -> Any:
    rows, search, mapping = _searched(values, queries, mappings)
    return pa.array(search_rows(search, rows, mapping), pa.bool_())


def _snippets_of_values(values: Any, queries: Any) -> Any:
    return _snippets_mapped(values, queries, [])


def _snippets_mapped(values: Any, queries: Any, mappings: Any) -> Any:
    rows, search, mapping = _searched(values, queries, mappings)
    texts = rows.column(0).to_pylist()
    marked = snippets(texts, search, VALUE, mapping=mapping, schema=rows.schema)
    return pa.array(marked, pa.string())


def _searched(values: Any, queries: Any, mappings: Any) -> tuple[pa.Table, Search, TableMapping]:
    rows = pa.table({VALUE: values})
    try:
        rows = rows.cast(normalize(rows.schema))
    except SchemaError:  # no column could be of this type
        rows = pa.table({VALUE: pc.cast(values, pa.string())})
    text = queries[0].as_py() if len(queries) else "*"
    query = parse_search(text, schema=rows.schema, max_length=len(text), max_depth=150)
    if len(mappings):
        mapping = mapping_from_json(mappings[0].as_py())
    else:
        mapping = build_mapping(rows.schema, Config())
    return rows, Search(Column((VALUE,)), query, text), mapping
