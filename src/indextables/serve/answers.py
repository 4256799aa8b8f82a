"""One search of a page or a program: its request, checked and within limits, and its answer.

Values that a person chose on the page come as filters, which become a condition of SQL here: no
page puts SQL together. All parts of an answer (rows, counts, how they were found) are of one
version of the table.
"""

from __future__ import annotations

import contextlib
import datetime
import decimal
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from indextables.cells import cell, marked_parts, python_values
from indextables.errors import QueryError, SchemaError
from indextables.plan.aggregation import Aggregate, Aggregation
from indextables.plan.execute import count_rows, run_scan
from indextables.plan.ranking import with_snippets
from indextables.plan.scan import ScanPlan, plan_scan
from indextables.plan.view import TableView
from indextables.predicate import Predicate, Search, searches
from indextables.predicate.literals import quoted_name, sql_text
from indextables.predicate.search import walk
from indextables.runner import check_stop
from indextables.schema import ROW, SCORE, SPLIT
from indextables.serve.tables import text_columns, version_of
from indextables.serve.work import RequestError
from indextables.table import Table

# --- requests --------------------------------------------------------------------------------

MOST_ROWS = 1_000
"""Rows of one answer."""
LAST_ROW = 10_000
"""Rows that paging reaches; an export has them all."""
MOST_TEXT = 10_000
"""Characters of a query or a condition."""
MOST_FACETS = 20
_MOST_VALUES = 1_000


@dataclass(frozen=True, slots=True)
class Filter:
    """A condition on one column: one of some values, or a range, whose end is excluded."""

    column: str
    values: tuple[object, ...] = ()
    start: object = None
    end: object = None
    negated: bool = False


@dataclass(frozen=True, slots=True)
class SearchRequest:
    """A search of one table."""

    query: str | None = None
    where: str | None = None
    filters: tuple[Filter, ...] = ()
    columns: tuple[str, ...] | None = None
    limit: int = 20
    offset: int = 0
    version: int | None = None
    facets: tuple[str, ...] = ()
    top: int = 10
    histogram: str | None = None
    interval: str = "auto"
    snippets: bool = True
    timezone: str = "UTC"
    display: bool = False
    """Values as a page shows them: as texts that are not too long."""

    @classmethod
    def parsed(cls, parts: Mapping[str, Any]) -> SearchRequest:
        """A request from JSON or from the parameters of an address."""
        names = set(cls.__dataclass_fields__)
        if unknown := sorted(set(parts) - names):
            raise RequestError(
                f"'{unknown[0]}' is not a part of a search. There are: {', '.join(sorted(names))}."
            )
        columns = _names(parts, "columns")
        return cls(
            query=_text(parts, "query"),
            where=_text(parts, "where"),
            filters=tuple(_filter(one) for one in _list(parts, "filters")),
            columns=tuple(columns) or None,
            limit=whole_number(parts, "limit", 20, most=MOST_ROWS),
            offset=whole_number(parts, "offset", 0, most=LAST_ROW),
            version=requested_version(parts),
            facets=tuple(_names(parts, "facets", most=MOST_FACETS)),
            top=whole_number(parts, "top", 10, most=_MOST_VALUES),
            histogram=_text(parts, "histogram"),
            interval=_text(parts, "interval") or "auto",
            snippets=_flag(parts, "snippets", default=True),
            timezone=_text(parts, "timezone") or "UTC",
            display=_flag(parts, "display", default=False),
        )

    def condition(self, schema: pa.Schema) -> str | None:
        """The condition and the filters as one condition of SQL."""
        parts = [filter_sql(one, schema) for one in self.filters]
        if self.where:
            parts.insert(0, f"({self.where})" if parts else self.where)
        return " AND ".join(parts) or None


SEARCH_PARTS = {
    "query": ("string", "What to search for, in the syntax of indexquery; all rows without it."),
    "where": ("string", "A condition in Spark's SQL."),
    "filters": ("array", 'Conditions on columns: {"column", "values" or "from" and "to", "not"}.'),
    "columns": ("array", "The columns to return; all by default."),
    "limit": ("integer", f"The most rows, up to {MOST_ROWS}; 20 by default."),
    "offset": ("integer", "How many rows to pass over."),
    "version": ("integer", "The version to search; the newest by default."),
    "facets": ("array", "Columns whose values are counted."),
    "top": ("integer", "The most values of each facet; 10 by default."),
    "histogram": ("string", "A column of times, dates or numbers to count parts of."),
    "interval": ("string", "The parts of the histogram: 1h, 1d, 1 month, 10; auto by default."),
    "snippets": ("boolean", "Whether the words found are marked; true by default."),
    "timezone": ("string", "The zone of times without one; UTC by default."),
    "display": ("boolean", "Values as a page shows them; false by default."),
}
"""The parts of a search: their types in JSON, and what they mean."""


def _text(parts: Mapping[str, Any], name: str) -> str | None:
    value = parts.get(name)
    if value is None:
        return None
    if not isinstance(value, str):
        raise RequestError(f"'{name}' is a text, not {value!r}.")
    if len(value) > MOST_TEXT:
        raise RequestError(f"'{name}' has {len(value):,} characters; {MOST_TEXT:,} are allowed.")
    return value.strip() or None


def _list(parts: Mapping[str, Any], name: str) -> list[Any]:
    value = parts.get(name)
    if value is None:
        return []
    if not isinstance(value, list) or len(value) > _MOST_VALUES:
        raise RequestError(f"'{name}' is a list of at most {_MOST_VALUES:,} entries.")
    return value


def _names(parts: Mapping[str, Any], name: str, most: int = _MOST_VALUES) -> list[str]:
    names = _list(parts, name)
    if len(names) > most or not all(isinstance(one, str) for one in names):
        raise RequestError(f"'{name}' is a list of at most {most:,} columns.")
    return list(dict.fromkeys(names))


def whole_number(
    parts: Mapping[str, Any], name: str, default: int = 0, *, most: int | None = None
) -> int:
    """A number of 0 or more that a request has."""
    value = parts.get(name, default)
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 19:
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise RequestError(f"'{name}' is a number of 0 or more, not {value!r}.")
    if most is not None and value > most:
        raise RequestError(f"'{name}' is {value:,}; at most {most:,} is allowed.")
    return value


def requested_version(parts: Mapping[str, Any]) -> int | None:
    """The version that a request names."""
    return None if parts.get("version") in (None, "") else whole_number(parts, "version")


def _flag(parts: Mapping[str, Any], name: str, *, default: bool) -> bool:
    value = parts.get(name, default)
    booleans = {"true": True, "false": False, "1": True, "0": False, True: True, False: False}
    if not isinstance(value, str | bool) or value not in booleans:
        raise RequestError(f"'{name}' is true or false, not {value!r}.")
    return booleans[value]


def _filter(parts: Any) -> Filter:
    if not isinstance(parts, dict) or not isinstance(parts.get("column"), str):
        raise RequestError('A filter is {"column": …, "values": […]}, or with "from" and "to".')
    if unknown := sorted(set(parts) - {"column", "values", "from", "to", "not"}):
        raise RequestError(f"'{unknown[0]}' is not a part of a filter.")
    values = tuple(_list(parts, "values"))
    if not values and parts.get("from") is None and parts.get("to") is None:
        raise RequestError(f"The filter of '{parts['column']}' has neither values nor a range.")
    return Filter(
        parts["column"], values, parts.get("from"), parts.get("to"), parts.get("not") is True
    )


# --- filters as SQL ------------------------------------------------------------------------------


def filter_sql(condition: Filter, schema: pa.Schema) -> str:
    r"""A filter as a condition of Spark's SQL.

    >>> schema = pa.schema([("level", pa.string()), ("n", pa.int64())])
    >>> filter_sql(Filter("level", ("it's", None)), schema)
    "(`level` = 'it\\'s' OR `level` IS NULL)"
    >>> filter_sql(Filter("n", start=1, end="9"), schema)
    '`n` >= 1 AND `n` < 9'
    """
    if condition.column not in schema.names:
        raise RequestError(f"There is no column '{condition.column}' to filter by.")
    data_type, name = schema.field(condition.column).type, quoted_name(condition.column)
    parts = []
    if condition.values:
        literals = [literal(value, data_type) for value in condition.values if value is not None]
        parts = [f"{name} IN ({', '.join(literals)})"] if len(literals) > 1 else []
        parts += [f"{name} = {literals[0]}"] if len(literals) == 1 else []
        parts += [f"{name} IS NULL"] if None in condition.values else []
        text = parts[0] if len(parts) == 1 else f"({' OR '.join(parts)})"
        # Not equal is true of null as well: a person who hides a value keeps all other rows.
        if condition.negated:
            keeps_null = "" if None in condition.values else f" OR {name} IS NULL"
            return f"(NOT {text if len(parts) > 1 else f'({text})'}{keeps_null})"
        return text
    if condition.start is not None:
        parts.append(f"{name} >= {literal(condition.start, data_type)}")
    if condition.end is not None:
        parts.append(f"{name} < {literal(condition.end, data_type)}")
    text = " AND ".join(parts)
    return f"(NOT ({text}))" if condition.negated else text


def literal(value: object, data_type: pa.DataType) -> str:
    """A value that came as JSON, as a literal of a column's type."""
    types = pa.types
    if types.is_string(data_type) and isinstance(value, str):
        return sql_text(value)
    if types.is_boolean(data_type) and isinstance(value, bool | str):
        if str(value).lower() in ("true", "false"):
            return str(value).lower()
    elif types.is_date(data_type) and isinstance(value, str):
        try:
            return f"DATE '{datetime.date.fromisoformat(value[:10]).isoformat()}'"
        except ValueError:
            pass
    elif types.is_timestamp(data_type) and isinstance(value, str):
        try:
            moment = datetime.datetime.fromisoformat(value)
        except ValueError:
            pass
        else:
            if data_type.tz is None:
                return f"TIMESTAMP_NTZ '{moment.replace(tzinfo=None).isoformat(sep=' ')}'"
            zoned = moment if moment.tzinfo else moment.replace(tzinfo=datetime.UTC)
            return f"TIMESTAMP '{zoned.astimezone(datetime.UTC).isoformat(sep=' ')}'"
    elif isinstance(value, str | int | float | decimal.Decimal) and not isinstance(value, bool):
        try:
            number: Any = pa.scalar(str(value)).cast(data_type)
        except (pa.ArrowException, ValueError):
            pass
        else:
            text = str(number.as_py())
            return f"CAST('{text}' AS DOUBLE)" if text in ("nan", "inf", "-inf") else text
    raise RequestError(f"{value!r} is not a value of a column of {data_type}.")


# --- answers ---------------------------------------------------------------------------------

MOST_BYTES = 64 << 20
"""Bytes of the rows of one answer."""
_SHOWN_LENGTH = 1_000
"""Characters of a value that the page shows."""
_PARTS = 60
"""The most parts of a histogram whose interval was not chosen."""


def search(name: str, table: Table, request: SearchRequest) -> dict[str, Any]:
    """The answer to a search."""
    if request.offset + request.limit > LAST_ROW:
        raise RequestError(
            f"Paging ends at row {LAST_ROW:,}. Narrow the search, or export all of its rows."
        )
    clock = _Clock()
    where = request.condition(table.schema)
    view, predicate = table.matching(request.query, where=where, timezone=request.timezone)
    plan = plan_scan(view, predicate=predicate)
    clock.lap("plan")
    total = count_rows(view, predicate)
    clock.lap("count")
    check_stop()
    columns = list(request.columns or table.schema.names)
    rows = within_bytes(_rows(table, request, where, columns))
    clock.lap("rows")
    answer = {
        "table": name,
        "version": version_of(table),
        "total": total,
        "offset": request.offset,
        "columns": columns,
        "rows": [_row(record, columns, display=request.display) for record in _records(rows)],
        "where": where,
        "plan": narrowing(plan),
    }
    if request.facets:
        check_stop()
        counted = table.facets(
            request.query, by=request.facets, top=request.top, where=where,
            timezone=request.timezone,
        )  # fmt: skip
        answer["facets"] = {
            facet: [{"value": _plain(value, request.display), "count": count}
                    for value, count in zip(*column_values(values), strict=True)]
            for facet, values in counted.items()
        }  # fmt: skip
        clock.lap("facets")
    if request.histogram:
        check_stop()
        answer["histogram"] = _histogram(table, request, where, view, predicate)
        clock.lap("histogram")
    answer["same"] = same_elsewhere(name, table, request, where, columns)
    return {**answer, "milliseconds": clock.total(), "timings": clock.laps}


def corrected(table: Table, request: SearchRequest) -> str | None:
    """The query with misspelt words corrected to words of the table; None if there are none."""
    where = request.condition(table.schema)
    return table.correct_query(request.query or "*", where=where, timezone=request.timezone)


class _Clock:
    """Milliseconds by what they were spent on."""

    def __init__(self) -> None:
        self._begun = self._last = time.perf_counter()
        self.laps: dict[str, float] = {}

    def lap(self, name: str) -> None:
        now = time.perf_counter()
        self.laps[name], self._last = round((now - self._last) * 1000, 2), now

    def total(self) -> float:
        return round((time.perf_counter() - self._begun) * 1000, 2)


def _rows(table: Table, request: SearchRequest, where: str | None, columns: list[str]) -> pa.Table:
    """One page of rows, with what is behind each."""
    until = request.offset + request.limit
    named = list(dict.fromkeys([*columns, SPLIT, ROW]))
    if not request.limit:
        return table.schema.empty_table().select([])
    if not request.query:
        rows = table.scan(columns=named, where=where, limit=until, timezone=request.timezone)
        return rows.slice(request.offset)
    rows = table.search(
        request.query, columns=named, where=where, limit=until, timezone=request.timezone
    ).slice(request.offset)
    view, predicate = table.matching(request.query)
    texts = [c for c in text_columns(table) if c in columns] if request.snippets else []
    if not texts:
        return rows
    parsed = next(iter(searches(view.names.shown_predicate(predicate))))
    return _with_snippets(rows, parsed, texts, view)


def _with_snippets(rows: pa.Table, parsed: Search, texts: list[str], view: TableView) -> pa.Table:
    try:
        return with_snippets(rows, parsed, texts, view.shown.context)
    except QueryError:
        return rows


def within_bytes(rows: pa.Table) -> pa.Table:
    """The rows, if they are not too large for one answer."""
    if rows.nbytes > MOST_BYTES:
        raise RequestError(
            f"The rows of this answer have {rows.nbytes:,} bytes; {MOST_BYTES:,} are allowed. "
            "Ask for fewer rows, choose columns, or export them."
        )
    return rows


def _records(rows: pa.Table) -> Iterator[dict[str, Any]]:
    columns = {name: python_values(rows[name]) for name in rows.column_names}
    for at in range(rows.num_rows):
        yield {name: values[at] for name, values in columns.items()}


def column_values(rows: pa.Table) -> list[list[Any]]:
    """The values of each column; two may have one name."""
    return [python_values(column) for column in rows.columns]


def _row(record: dict[str, Any], columns: Sequence[str], *, display: bool) -> dict[str, Any]:
    row: dict[str, Any] = {
        "values": {name: _plain(record[name], display) for name in columns},
        "split": record[SPLIT],
        "row": record[ROW],
    }
    if SCORE in record:
        row["score"] = record[SCORE]
        row["snippets"] = {
            name: [{"text": part, "found": is_match} for part, is_match in marked_parts(text)]
            for name in columns
            if (text := record.get(f"_snippet_{name}"))
        }
    return row


def _plain(value: Any, display: bool) -> Any:
    if not display or value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return value if len(value) <= _SHOWN_LENGTH else value[:_SHOWN_LENGTH] + "…"
    if isinstance(value, int) and abs(value) < 2**53:  # JavaScript has no larger ones
        return value
    text = cell(value)
    return text if len(text) <= _SHOWN_LENGTH else text[:_SHOWN_LENGTH] + "…"


def narrowing(plan: ScanPlan) -> dict[str, Any]:
    """How a plan came from all splits to those that are read."""
    return {
        "stages": [{"name": s.name, "splits": s.splits, "bytes": s.bytes} for s in plan.stages],
        "routing": None if plan.routing is None else str(plan.routing),
        "read": len(plan.tasks),
    }


# --- histograms ----------------------------------------------------------------------------------

_INTERVALS = (
    ("1s", 1), ("5s", 5), ("15s", 15), ("1m", 60), ("5m", 300), ("15m", 900), ("1h", 3_600),
    ("3h", 10_800), ("12h", 43_200), ("1d", 86_400), ("1w", 604_800), ("1 month", 2_678_400),
    ("1 quarter", 7_948_800), ("1 year", 31_622_400),
)  # fmt: skip


def _histogram(
    table: Table, request: SearchRequest, where: str | None, view: TableView, predicate: Predicate
) -> dict[str, Any]:
    column = str(request.histogram)
    interval: str | None = request.interval
    if interval == "auto":
        interval = fitting_interval(table, view, predicate, column)
    parts: list[dict[str, Any]] = []
    if interval is not None:
        counts = table.histogram(
            request.query, column=column, interval=interval, where=where, timezone=request.timezone
        )
        starts = zip(*column_values(counts), strict=True)
        parts = [{"start": start, "count": count} for start, count in starts]
    return {"column": column, "interval": interval, "parts": parts}


def fitting_interval(
    table: Table, view: TableView, predicate: Predicate, column: str
) -> str | None:
    """The shortest interval that makes few parts of the rows' times; None if there are none."""
    if column not in table.schema.names:
        raise RequestError(f"There is no column '{column}' for a histogram.")
    data_type = table.schema.field(column).type
    if not (pa.types.is_timestamp(data_type) or pa.types.is_date(data_type)):
        raise RequestError(
            f"'{column}' is {data_type}: say the interval of its histogram, 10 for ten."
        )
    ends = column_stats(view, predicate, view.names.stored_name(column), ("min", "max"))
    if ends["min"] is None:
        return None
    seconds = abs((_moment(ends["max"]) - _moment(ends["min"])).total_seconds())
    fitting = (
        name
        for name, length in _INTERVALS
        if seconds / length < _PARTS and (length >= 86_400 or not pa.types.is_date(data_type))
    )
    years = int(seconds // 31_536_000 // _PARTS) + 1
    return next(fitting, f"{years * 366}d")


def _moment(value: Any) -> datetime.datetime:
    if isinstance(value, datetime.datetime):
        return value.replace(tzinfo=None)
    return datetime.datetime.combine(value, datetime.time())


def column_stats(
    view: TableView, predicate: Predicate, column: str, functions: Sequence[Any]
) -> dict[str, Any]:
    """Aggregates of a column, by its stored name, over the rows that meet a condition."""
    aggregation = Aggregation((), tuple(Aggregate(function, column) for function in functions))
    rows = run_scan(plan_scan(view, predicate=predicate, columns=(column,)))
    statistics = aggregation.compute(rows)
    return {
        function: statistics.column(at)[0].as_py() if statistics.num_rows else None
        for at, function in enumerate(functions)
    }


# --- why a row matched ---------------------------------------------------------------------------

_MOST_PARTS = 200


def why(table: Table, query: str, split: str, row: int) -> dict[str, Any]:
    """What the words of a query add to the score of a row, by column, the most first."""
    view, predicate = table.matching(query)
    parsed = next(iter(searches(predicate)))
    if len(view.mapping.searchable) * sum(1 for _ in walk(parsed.query)) > _MOST_PARTS:
        raise RequestError("The query has too many words to say what each of them adds.")
    explanation = table.explain_score(query, (split, row))
    return {"score": round(explanation.score, 6), "parts": list(_records(explanation.parts))}


# --- words for type-ahead ------------------------------------------------------------------------


def words(table: Table, prefix: str, field: str | None, *, most: int = 8) -> list[str]:
    """Words that begin like this, those of the most rows of a column first."""
    if len(prefix) < 2 or not prefix.isalnum() or len(prefix) > 64:
        return []
    counted: Counter[str] = Counter()
    for column in text_columns(table):
        if field in (None, column):
            # A column may be cut into pieces, and too many words may begin so.
            with contextlib.suppress(QueryError, SchemaError):
                completed = table.complete(prefix, column=column, limit=most).to_pylist()
                counted.update({row["word"]: row["count"] for row in completed})
    return [word for word, _ in counted.most_common(most)]


# --- the same elsewhere --------------------------------------------------------------------------


def same_elsewhere(
    name: str, table: Table, request: SearchRequest, where: str | None, columns: Sequence[str]
) -> dict[str, str]:
    """The search as text to copy: SQL, Python and PySpark."""
    every = list(columns) == table.schema.names
    conditions = [f"_indexall indexquery {sql_text(request.query)}"] if request.query else []
    conditions += [f"({where})" if request.query else where] if where else []
    chosen = "*" if every else ", ".join(map(quoted_name, columns))
    past = "" if request.version is None else f" VERSION AS OF {version_of(table)}"
    clauses = f"WHERE {' AND '.join(conditions)}\n" if conditions else ""
    limit = f"LIMIT {request.limit}"
    if request.offset:
        limit += f" OFFSET {request.offset}"
    if request.query:
        chosen, limit = f"{chosen}, _score", f"ORDER BY _score DESC\n{limit}"
    select = f"SELECT {chosen}\nFROM {{}}{past}\n{clauses}{limit}"
    arguments = [repr(request.query)] if request.query else []
    arguments += [f"where={where!r}"] if where else []
    arguments += [] if every else [f"columns={list(columns)!r}"]
    arguments += [f"limit={request.offset + request.limit}"]
    version = "" if request.version is None else f", version={version_of(table)}"
    verb = "search" if request.query else "scan"
    opened = f"it.Table.open({table.uri!r}{version})"
    if table.view.elsewhere is not None:
        opened = f"it.SearchIndex.open({table.uri!r}).table({version.removeprefix(', ')})"
    python = (
        f"import indextables as it\n\ntable = {opened}\nrows = table.{verb}({', '.join(arguments)})"
    )
    python += f".slice({request.offset})" if request.offset else ""
    place = select.format(f"indextables.{quoted_name(table.uri)}").replace("\n", "\n    ")
    spark = f"import indextables as it\n\nspark = it.enable(spark)\nquery = {place!r}\n"
    if '"""' not in place and "\\" not in place:
        spark = (
            "import indextables as it\n\nspark = it.enable(spark)\n"
            f'spark.sql("""\n    {place}\n""").show()'
        )
    else:
        spark += "spark.sql(query).show()"
    return {"sql": select.format(quoted_name(name)), "python": python, "pyspark": spark}
