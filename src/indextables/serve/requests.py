"""What a page or a program asks of a table, checked and within limits.

Values that a person chose on the page come as filters, which become a condition of SQL here: no
page puts SQL together.
"""

from __future__ import annotations

import datetime
import decimal
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from indextables.serve.work import RequestError

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
    """A condition on one column: one of some values, or a range without its end."""

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
    def parsed(cls, given: Mapping[str, Any]) -> SearchRequest:
        """A request from JSON or from the parameters of an address."""
        known = set(cls.__dataclass_fields__)
        if unknown := sorted(set(given) - known):
            raise RequestError(
                f"'{unknown[0]}' is not a part of a search. There are: {', '.join(sorted(known))}."
            )
        columns = _names(given, "columns")
        return cls(
            query=_text(given, "query"),
            where=_text(given, "where"),
            filters=tuple(_filter(one) for one in _list(given, "filters")),
            columns=tuple(columns) or None,
            limit=whole_number(given, "limit", 20, most=MOST_ROWS),
            offset=whole_number(given, "offset", 0, most=LAST_ROW),
            version=version_of(given),
            facets=tuple(_names(given, "facets", most=MOST_FACETS)),
            top=whole_number(given, "top", 10, most=_MOST_VALUES),
            histogram=_text(given, "histogram"),
            interval=_text(given, "interval") or "auto",
            snippets=_flag(given, "snippets", default=True),
            timezone=_text(given, "timezone") or "UTC",
            display=_flag(given, "display", default=False),
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


def _text(given: Mapping[str, Any], name: str) -> str | None:
    value = given.get(name)
    if value is None:
        return None
    if not isinstance(value, str):
        raise RequestError(f"'{name}' is a text, not {value!r}.")
    if len(value) > MOST_TEXT:
        raise RequestError(f"'{name}' has {len(value):,} characters; {MOST_TEXT:,} are allowed.")
    return value.strip() or None


def _list(given: Mapping[str, Any], name: str) -> list[Any]:
    value = given.get(name)
    if value is None:
        return []
    if not isinstance(value, list) or len(value) > _MOST_VALUES:
        raise RequestError(f"'{name}' is a list of at most {_MOST_VALUES:,} entries.")
    return value


def _names(given: Mapping[str, Any], name: str, most: int = _MOST_VALUES) -> list[str]:
    names = _list(given, name)
    if len(names) > most or not all(isinstance(one, str) for one in names):
        raise RequestError(f"'{name}' is a list of at most {most:,} columns.")
    return list(dict.fromkeys(names))


def whole_number(
    given: Mapping[str, Any], name: str, default: int = 0, *, most: int | None = None
) -> int:
    """A number of 0 or more that a request has."""
    value = given.get(name, default)
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 19:
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise RequestError(f"'{name}' is a number of 0 or more, not {value!r}.")
    if most is not None and value > most:
        raise RequestError(f"'{name}' is {value:,}; at most {most:,} is allowed.")
    return value


def version_of(given: Mapping[str, Any]) -> int | None:
    """The version that a request names."""
    return None if given.get("version") in (None, "") else whole_number(given, "version")


def _flag(given: Mapping[str, Any], name: str, *, default: bool) -> bool:
    value = given.get(name, default)
    known = {"true": True, "false": False, "1": True, "0": False, True: True, False: False}
    if not isinstance(value, str | bool) or value not in known:
        raise RequestError(f"'{name}' is true or false, not {value!r}.")
    return known[value]


def _filter(given: Any) -> Filter:
    if not isinstance(given, dict) or not isinstance(given.get("column"), str):
        raise RequestError('A filter is {"column": …, "values": […]}, or with "from" and "to".')
    if unknown := sorted(set(given) - {"column", "values", "from", "to", "not"}):
        raise RequestError(f"'{unknown[0]}' is not a part of a filter.")
    values = tuple(_list(given, "values"))
    if not values and given.get("from") is None and given.get("to") is None:
        raise RequestError(f"The filter of '{given['column']}' has neither values nor a range.")
    return Filter(
        given["column"], values, given.get("from"), given.get("to"), given.get("not") is True
    )


# --- filters as SQL ------------------------------------------------------------------------------


def filter_sql(one: Filter, schema: pa.Schema) -> str:
    r"""A filter as a condition of Spark's SQL.

    >>> schema = pa.schema([("level", pa.string()), ("n", pa.int64())])
    >>> filter_sql(Filter("level", ("it's", None)), schema)
    "(`level` = 'it\\'s' OR `level` IS NULL)"
    >>> filter_sql(Filter("n", start=1, end="9"), schema)
    '`n` >= 1 AND `n` < 9'
    """
    if one.column not in schema.names:
        raise RequestError(f"There is no column '{one.column}' to filter by.")
    kind, name = schema.field(one.column).type, quoted(one.column)
    parts = []
    if one.values:
        given = [literal(value, kind) for value in one.values if value is not None]
        parts = [f"{name} IN ({', '.join(given)})"] if len(given) > 1 else []
        parts += [f"{name} = {given[0]}"] if len(given) == 1 else []
        parts += [f"{name} IS NULL"] if None in one.values else []
        text = parts[0] if len(parts) == 1 else f"({' OR '.join(parts)})"
        # Not equal is true of null as well: a person who hides a value keeps all other rows.
        if one.negated:
            keeps_null = "" if None in one.values else f" OR {name} IS NULL"
            return f"(NOT {text if len(parts) > 1 else f'({text})'}{keeps_null})"
        return text
    if one.start is not None:
        parts.append(f"{name} >= {literal(one.start, kind)}")
    if one.end is not None:
        parts.append(f"{name} < {literal(one.end, kind)}")
    text = " AND ".join(parts)
    return f"(NOT ({text}))" if one.negated else text


def quoted(name: str) -> str:
    """The name of a column or a table in SQL."""
    return "`" + name.replace("`", "``") + "`"


def literal(value: object, kind: pa.DataType) -> str:
    """A value that came as JSON, as a literal of a column's type."""
    types = pa.types
    if types.is_string(kind) and isinstance(value, str):
        return sql_text(value)
    if types.is_boolean(kind) and isinstance(value, bool | str):
        if str(value).lower() in ("true", "false"):
            return str(value).lower()
    elif types.is_date(kind) and isinstance(value, str):
        try:
            return f"DATE '{datetime.date.fromisoformat(value[:10]).isoformat()}'"
        except ValueError:
            pass
    elif types.is_timestamp(kind) and isinstance(value, str):
        try:
            moment = datetime.datetime.fromisoformat(value)
        except ValueError:
            pass
        else:
            if kind.tz is None:
                return f"TIMESTAMP_NTZ '{moment.replace(tzinfo=None).isoformat(sep=' ')}'"
            zoned = moment if moment.tzinfo else moment.replace(tzinfo=datetime.UTC)
            return f"TIMESTAMP '{zoned.astimezone(datetime.UTC).isoformat(sep=' ')}'"
    elif isinstance(value, str | int | float | decimal.Decimal) and not isinstance(value, bool):
        try:
            number: Any = pa.scalar(str(value)).cast(kind)
        except (pa.ArrowException, ValueError):
            pass
        else:
            text = str(number.as_py())
            return f"CAST('{text}' AS DOUBLE)" if text in ("nan", "inf", "-inf") else text
    raise RequestError(f"{value!r} is not a value of a column of {kind}.")


def sql_text(value: str) -> str:
    """A text as a literal of Spark's SQL."""
    return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"
