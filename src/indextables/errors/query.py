"""Conditions and search queries that cannot be answered."""

from __future__ import annotations

from collections.abc import Sequence

from indextables.errors.base import IndexTablesError


class QueryError(IndexTablesError, ValueError):
    """A predicate or a search query that cannot be answered."""


class QuerySyntaxError(QueryError):
    """A search query that does not parse. `position` counts characters from 0."""

    def __init__(
        self, query: str, reason: str, *, position: int | None = None, field: str | None = None
    ) -> None:
        self.query = query
        self.reason = reason
        self.position = position
        self.field = field
        start = max(0, min(position or 0, len(query)) - 50)
        shown = query[start : start + 100]
        shown = ("…" if start else "") + shown + ("…" if start + 100 < len(query) else "")
        where = "" if position is None else f" at position {position}"
        on = "" if field is None else f" on {field}"
        super().__init__(f"Cannot parse the search query {shown!r}{on}: {reason}{where}.")


class UnknownFieldError(QueryError, KeyError):
    """A search query names a field that the table does not have."""

    def __init__(
        self,
        field: str,
        *,
        available: Sequence[str],
        query: str = "",
        position: int | None = None,
        reason: str = "",
    ) -> None:
        self.field = field
        self.available = tuple(available)
        self.query = query
        self.position = position
        self.reason = reason
        at = "" if position is None else f" at position {position}"
        within = f"{at} in the search query {query[:100]!r}" if query else at
        why = f": {reason}" if reason else ""
        super().__init__(
            f"There is no field '{field}'{within}{why}. Fields: {', '.join(available) or 'none'}. "
            "If the text before the colon is no field, quote it or write \\: for the colon."
        )


class SearchValueError(QueryError):
    """A search asks a field for something that is no value of its type."""

    def __init__(
        self,
        field: str,
        found: str,
        *,
        expected: str,
        query: str = "",
        text: str = "",
        at: int = 0,
    ) -> None:
        self.field = field
        self.found = found
        self.expected = expected
        self.query = query
        position = query.find(text, at) if text else -1
        self.position = None if position < 0 else position
        place = "" if position < 0 else f" at position {position}"
        within = f"{place} of the search query {query[:100]!r}" if query else ""
        super().__init__(f"The field '{field}' cannot be {found}{within}. Write {expected}.")


class TooManyExpansionsError(QueryError):
    """A wildcard, pattern, fuzzy term or range of words matches more words than allowed."""

    def __init__(self, text: str, *, field: str, found: int, limit: int) -> None:
        self.text = text
        self.field = field
        self.found = found
        self.limit = limit
        super().__init__(
            f"'{text}' matches {found:,} different words of '{field}'; the limit is {limit:,}. "
            "Ask for something narrower, or raise spark.indextables.indexquery.maxExpansions."
        )


class TooManyClausesError(QueryError):
    """A search asks for too many words of too many fields."""

    def __init__(self, query: str, *, found: int, fields: int, limit: int) -> None:
        self.query = query
        self.found = found
        self.fields = fields
        self.limit = limit
        over = f" in {fields:,} fields" if fields > 1 else ""
        super().__init__(
            f"The search query {query[:100]!r} asks for {found:,} words{over}; the limit is "
            f"{limit:,}, each word counted once a field. Search in fewer fields, or ask for fewer "
            "words at a time."
        )


class SumOverflowError(QueryError):
    """A sum of whole numbers that is too large for 64 bits."""

    def __init__(self, column: str) -> None:
        self.column = column
        super().__init__(
            f"[ARITHMETIC_OVERFLOW] The sum of '{column}' does not fit into 64 bits. Sum it as a "
            f"decimal: sum(CAST(`{column}` AS DECIMAL(38, 0)))."
        )


class SearchCallError(QueryError):
    """A search in SQL whose arguments cannot be used."""

    def __init__(self, function: str, reason: str, *, position: int | None = None) -> None:
        self.function = function
        self.reason = reason
        self.position = position
        where = "" if position is None else f" at position {position}"
        super().__init__(f"{function}{where} {reason}")


class PredicateSyntaxError(QueryError):
    """A condition that is not SQL."""

    def __init__(self, sql: str, reason: str) -> None:
        self.sql = sql
        self.reason = reason
        super().__init__(f"Cannot parse the condition {sql[:200]!r}: {reason}")


class UnknownColumnError(QueryError, KeyError):
    """A condition names a column that the table does not have, or that several could be."""

    def __init__(
        self, column: str, *, available: Sequence[str], candidates: Sequence[str] = ()
    ) -> None:
        self.column = column
        self.available = tuple(available)
        self.candidates = tuple(candidates)
        if candidates:
            message = (
                f"The column '{column}' is ambiguous: it could be {' or '.join(candidates)}. "
                "Write the name in its exact case."
            )
        else:
            message = f"There is no column '{column}'. Columns: {', '.join(available) or 'none'}."
        super().__init__(message)


class UnsupportedPredicateError(QueryError):
    """A condition that is SQL but more than a column compared with a literal."""

    def __init__(self, expression: str, reason: str) -> None:
        self.expression = expression
        self.reason = reason
        super().__init__(
            f"Cannot evaluate {expression[:200]!r}: {reason}. Leave it out and filter the result "
            "instead."
        )


class LiteralError(QueryError):
    """A literal that is no value of its column's type."""

    def __init__(self, column: str, kind: str, literal: object, reason: str) -> None:
        self.column = column
        self.kind = kind
        self.literal = literal
        self.reason = reason
        super().__init__(
            f"Cannot compare column '{column}' of type {kind} with {literal!r}: {reason}."
        )
