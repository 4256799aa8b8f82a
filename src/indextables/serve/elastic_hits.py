"""The hits of a search in Elasticsearch's form: ranked or sorted, paged, with marked words."""

from __future__ import annotations

import datetime
import fnmatch
import html
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from indextables.cells import marked_parts, python_values
from indextables.plan.ranking import rows_at, with_snippets
from indextables.predicate import Search, searches
from indextables.predicate.search import Boolean
from indextables.schema import ROW, SPLIT
from indextables.serve.answers import within_bytes
from indextables.serve.elastic_query import (
    Question,
    UnsupportedError,
    column_name,
    moment_of,
    number_of,
    spelled_value,
    texts_of,
)
from indextables.serve.requests import LAST_ROW
from indextables.serve.tables import text_columns
from indextables.table import Table

DOC = "_doc"
_PLACES = (DOC, "_shard_doc")
"""Where a row lies: its split and its number there."""
_AT_ONCE = 50_000
"""Rows that wait to be sorted."""


def hits(name: str, question: Question, body: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """The hits of a search, with what was asked of each."""
    size, first = number_of(body, "size", 10), number_of(body, "from", 0)
    if size + first > LAST_ROW:
        raise UnsupportedError(
            f"Result window is too large, from + size must be less than or equal to: [{LAST_ROW}]"
        )
    table, keys = question.table, _sort_keys(body.get("sort"), question.table.schema)
    fields = _fields(body, table.schema)
    after = body.get("search_after")
    if after is not None and (not keys or first):
        raise UnsupportedError("[search_after] needs a [sort] by columns, and no [from]")
    source = _source(body.get("_source", True), table.schema.names)
    marked = _highlighted(body.get("highlight"), table)
    columns = list(dict.fromkeys([*source, *marked, *fields, SPLIT, ROW]))
    rows, scored = _rows(question, columns, keys, after, size + first)
    rows = within_bytes(rows.slice(first))
    if marked and rows.num_rows:
        rows = _with_marks(rows, question, list(marked))
    values = {column: python_values(rows[column]) for column in rows.column_names}
    for at in range(rows.num_rows):
        row = {column: found[at] for column, found in values.items()}
        score = row["_score"] if scored else None if keys else question.score
        hit = {"_index": name, "_id": f"{row[SPLIT]}:{row[ROW]}", "_score": score}
        if source or body.get("_source", True) is not False:
            hit["_source"] = {column: row[column] for column in source}
        if fields:
            hit["fields"] = {c: _listed_value(row[c], fields[c]) for c in fields
                             if row[c] is not None}  # fmt: skip
        if keys:
            hit["sort"] = [hit["_id"] if key == DOC else spelled_value(row[key])
                           for key, _ in keys]  # fmt: skip
        texts = {column: row.get(f"_snippet_{column}") for column in marked}
        shown = {c: [_tagged(text, *marked[c])] for c, text in texts.items() if text}
        yield {**hit, "highlight": shown} if shown else hit


def _rows(
    question: Question, columns: list[str], keys: list[tuple[str, str]], after: Any, count: int
) -> tuple[pa.Table, bool]:
    """The first rows, and whether they have scores."""
    table, where = question.table, question.where
    if not count:
        return table.scan(columns=columns, limit=0), False
    if not keys and question.text is not None:
        return table.search(question.text, where=where, columns=columns, limit=count), True
    condition = table.view.names.shown_predicate(question.stored)
    if not keys:
        return table.scan(where=condition, columns=columns, limit=count), False
    # The first rows are chosen by what they are sorted by; the rest is read of those alone.
    named = list(dict.fromkeys([*(key for key, _ in keys if key != DOC), SPLIT, ROW]))
    ends = dict(keys).get(DOC, "ascending")
    order: Any = [*((k, d) for k, d in keys if k != DOC), (SPLIT, ends), (ROW, ends)]
    waiting = [table.scan(columns=named, limit=0)]
    for batch in table.scan_batches(where=condition, columns=named):
        waiting.append(_beyond(pa.Table.from_batches([batch]), keys, after))
        if sum(part.num_rows for part in waiting) >= count + _AT_ONCE:
            waiting = [_first(waiting, order, count)]
    best, view = _first(waiting, order, count), table.view
    more = [c for c in columns if c not in best.column_names]
    if more and best.num_rows:
        read = rows_at(view, list(map(str, best[SPLIT].to_pylist())), np.asarray(best[ROW]),
                       view.names.stored_names(more))  # fmt: skip
        for name, column in zip(more, view.names.shown_rows(read).columns, strict=True):
            best = best.append_column(name, column)
    elif more:
        return table.scan(columns=list(dict.fromkeys([*columns, *named])), limit=0), False
    return best, False


def _first(parts: list[pa.Table], order: Any, count: int) -> pa.Table:
    rows = pa.concat_tables(parts)
    return rows.take(pc.sort_indices(rows, sort_keys=order)[:count])


def _beyond(rows: pa.Table, keys: list[tuple[str, str]], after: Any) -> pa.Table:
    """The rows whose values come after some; null comes last."""
    if after is None:
        return rows
    if not isinstance(after, list) or len(after) != len(keys):
        raise UnsupportedError(f"search_after has {len(keys)} value(s), as the sort has keys")
    wanted: Any = pa.array([False] * rows.num_rows)
    equal: Any = pa.array([True] * rows.num_rows)
    for (key, direction), value in zip(keys, after, strict=True):
        if key == DOC:
            wanted = pc.or_(wanted, pc.and_(equal, _past(rows, value, direction)))
            break
        column: Any = rows[key]
        if pa.types.is_floating(column.type):  # NaN comes last too, and JSON has none
            column = pc.if_else(pc.is_nan(column), pa.scalar(None, column.type), column)
        if value is None:
            same = pc.is_null(column)
            later: Any = pa.array([False] * rows.num_rows)
        else:
            limit = _scalar(value, column.type, key)
            compare = pc.greater if direction == "ascending" else pc.less
            later = pc.or_kleene(compare(column, limit), pc.is_null(column))
            same = pc.fill_null(pc.equal(column, limit), False)
        wanted = pc.or_(wanted, pc.and_(equal, later))
        equal = pc.and_(equal, same)
    return rows.filter(wanted)


def _past(rows: pa.Table, value: Any, direction: str) -> Any:
    """The rows behind a place, which is a split and a row as in `_id`."""
    split, _, row = str(value).rpartition(":")
    if not split or not row.isdecimal() or len(row) > 18:
        raise UnsupportedError(f"[{value}] is not a value of [{DOC}]")
    compare: Any = pc.greater if direction == "ascending" else pc.less
    here = pc.and_(pc.equal(rows[SPLIT], pa.scalar(split)), compare(rows[ROW], int(row)))
    return pc.or_(compare(rows[SPLIT], split), here)


def _scalar(value: Any, kind: pa.DataType, key: str) -> Any:
    try:
        return pa.scalar(moment_of(value, kind, "search_after"), kind)
    except (pa.ArrowException, ValueError, TypeError):
        raise UnsupportedError(f"[{value}] is not a value of [{key}]") from None


def _sort_keys(sort: Any, schema: pa.Schema) -> list[tuple[str, str]]:
    """Columns and directions; none means by score."""
    keys: list[tuple[str, str]] = []
    if isinstance(sort, dict):  # an object has no order of its own: the place comes last
        sort = [{key: sort[key]} for key in sorted(sort, key=lambda key: key in _PLACES)]
    for one in sort if isinstance(sort, list) else [] if sort is None else [sort]:
        single = isinstance(one, dict) and len(one) == 1
        name, how = next(iter(one.items())) if single else (one, {})
        options = how if isinstance(how, dict) else {"order": how}
        if not isinstance(name, str) or set(options) - {"order", "unmapped_type", "missing"}:
            raise UnsupportedError(f"[sort] by [{one}] is not supported")
        if options.get("missing", "_last") != "_last":
            raise UnsupportedError("[sort] with [missing] other than [_last] is not supported")
        if name in _PLACES:
            name = DOC
        if name == "_score":
            if sort not in ("_score", ["_score"], [one]) or options.get("order", "desc") != "desc":
                raise UnsupportedError("[sort] by [_score] is alone, and descending")
            return []
        order = options.get("order", "asc")
        if order not in ("asc", "desc"):
            raise UnsupportedError(f"Illegal sort order: {order}")
        direction = "ascending" if order == "asc" else "descending"
        if name == DOC:
            keys.append((DOC, direction))
            break  # no two rows have one place
        column = column_name(name, schema)
        if pa.types.is_nested(schema.field(column).type):
            raise UnsupportedError(f"[sort] by [{column}]: it is not a single value")
        keys.append((column, direction))
    return keys


def _fields(body: Mapping[str, Any], schema: pa.Schema) -> dict[str, str | None]:
    """Columns that are wanted beside the source, and the format of each."""
    if body.get("script_fields"):
        raise UnsupportedError("[script_fields] are not supported")
    found: dict[str, str | None] = {}
    for name in ("docvalue_fields", "fields"):
        given = body.get(name)
        for one in given if isinstance(given, list) else [] if given is None else [given]:
            asked = one if isinstance(one, dict) else {"field": one}
            pattern, format_ = asked.get("field"), asked.get("format")
            if not isinstance(pattern, str) or set(asked) - {"field", "format"}:
                raise UnsupportedError(f"[{name}] with [{one}] is not supported")
            if format_ not in _FORMATS:
                raise UnsupportedError(f"[{name}] with [format] of [{format_}] is not supported")
            named = fnmatch.filter(schema.names, pattern) if "*" in pattern else [
                column_name(pattern, schema)]  # fmt: skip
            found.update(dict.fromkeys(named, format_))
    return found


_FORMATS = (None, "epoch_millis", "strict_date_optional_time", "strict_date_optional_time_nanos",
            "date_time", "iso8601")  # fmt: skip


def _listed_value(value: Any, format_: str | None) -> list[Any]:
    """A value as `fields` has it: a list, times in UTC."""
    if isinstance(value, list):
        return [spelled_value(one) for one in value]
    if not isinstance(value, datetime.date):
        return [value]
    moment = value if isinstance(value, datetime.datetime) else datetime.datetime.combine(
        value, datetime.time())  # fmt: skip
    zoned = moment.astimezone(datetime.UTC) if moment.tzinfo else moment.replace(
        tzinfo=datetime.UTC)  # fmt: skip
    if format_ == "epoch_millis":
        return [str(round(zoned.timestamp() * 1000))]
    return [zoned.isoformat(timespec="microseconds" if zoned.microsecond else "milliseconds")
            .replace("+00:00", "Z")]  # fmt: skip


def _source(given: Any, names: list[str]) -> list[str]:
    if isinstance(given, bool):
        return names if given else []
    chosen = given if isinstance(given, dict) else {"includes": given}
    if set(chosen) - {"includes", "excludes", "include", "exclude"}:
        raise UnsupportedError("[_source] has [includes] and [excludes]")

    def patterns(which: str, default: list[str]) -> list[str]:
        return texts_of(chosen.get(f"{which}s", chosen.get(which, default)), "_source")

    return [
        name
        for name in names
        if any(fnmatch.fnmatchcase(name, p) for p in patterns("include", ["*"]))
        and not any(fnmatch.fnmatchcase(name, p) for p in patterns("exclude", []))
    ]


def _highlighted(given: Any, table: Table) -> dict[str, tuple[str, str, bool]]:
    """Columns to mark words in, and how: before, after, and whether the text is escaped."""
    if not given:
        return {}
    fields = given.get("fields", {}) if isinstance(given, dict) else None
    if not isinstance(fields, dict):
        raise UnsupportedError("[highlight] has [fields], an object")
    tags = [(texts_of(given.get(name), name) or [default])[0]
            for name, default in (("pre_tags", "<em>"), ("post_tags", "</em>"))]  # fmt: skip
    texts, escaped = text_columns(table), given.get("encoder") == "html"
    named = [n for pattern in fields for n in fnmatch.filter(texts, pattern)]
    for pattern in fields:
        if "*" not in pattern and pattern not in texts:
            raise UnsupportedError(f"[highlight] of [{pattern}]: it is not a column of text")
    return dict.fromkeys(named, (tags[0], tags[1], escaped))


def _with_marks(rows: pa.Table, question: Question, columns: list[str]) -> pa.Table:
    view = question.table.view
    # The words of all filters are marked, not only those that count for the score.
    found = tuple(searches(view.names.shown_predicate(question.stored)))
    if not found:
        return rows
    every = Search(None, Boolean(should=tuple(one.query for one in found)), "")
    return with_snippets(rows, every, columns, view.shown.context)


def _tagged(snippet: str, before: str, after: str, escaped: bool) -> str:
    spelled = html.escape if escaped else str
    return "".join(
        f"{before}{spelled(text)}{after}" if found else spelled(text)
        for text, found in marked_parts(snippet)
    )
