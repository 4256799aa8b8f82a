"""A part of Elasticsearch's HTTP API, so that its clients can read the tables.

`_search`, `_msearch`, `_count` and `_mapping`: queries are in `elastic_query`,
aggregations in `elastic_aggregations`. What is not understood is an error in Elasticsearch's form.
"""

from __future__ import annotations

import dataclasses
import datetime
import decimal
import fnmatch
import html
import itertools
import math
import time
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from indextables import __version__
from indextables.cells import marked_parts, python_values, to_json
from indextables.errors import IndexTablesError
from indextables.plan.execute import count_rows
from indextables.plan.ranking import rows_at, with_snippets
from indextables.predicate import Search, searches
from indextables.predicate.search import Boolean
from indextables.schema import ROW, SPLIT
from indextables.serve.answers import LAST_ROW, within_bytes
from indextables.serve.elastic_aggregations import aggregations
from indextables.serve.elastic_query import (
    Question,
    UnsupportedError,
    column_name,
    moment_of,
    number_of,
    spelled_value,
    texts_of,
)
from indextables.serve.http import body_of, logger, status_of
from indextables.serve.tables import NoSuchTableError, ServedTables, facts, text_columns
from indextables.serve.work import RequestError, Work
from indextables.split.snippet import DEFAULT_LENGTH
from indextables.table import Table

DOC = "_doc"
_BY_SCORE = "_score"
_PLACES = (DOC, "_shard_doc")
"""Where a row lies: its split and its number there."""
_AT_ONCE = 50_000
"""Rows that wait to be sorted."""


def hits_of(name: str, question: Question, body: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
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
        raise UnsupportedError("[search_after] needs a [sort] by more than [_score], and no [from]")
    source = _source(body.get("_source", True), table.schema.names)
    marked = _highlighted(body.get("highlight"), table)
    columns = list(dict.fromkeys([*source, *marked, *fields, SPLIT, ROW]))
    rows, scored = _rows(question, columns, keys, after, size + first)
    rows = within_bytes(rows.slice(first))
    if marked and rows.num_rows:
        rows = _with_marks(rows, question, marked)
    values = {column: python_values(rows[column]) for column in rows.column_names}
    for at in range(rows.num_rows):
        row = {column: cells[at] for column, cells in values.items()}
        score = row["_score"] if scored else None if keys else question.score
        hit = {"_index": name, "_id": f"{row[SPLIT]}:{row[ROW]}", "_score": score}
        if source or body.get("_source", True) is not False:
            hit["_source"] = {column: row[column] for column in source}
        if fields:
            hit["fields"] = {c: _listed_value(row[c], fields[c]) for c in fields
                             if row[c] is not None}  # fmt: skip
        if keys:
            hit["sort"] = [hit["_id"] if key == DOC else _sort_value(row[key]) for key, _ in keys]
        texts = {column: row.get(f"_snippet_{column}") for column in marked}
        shown = {c: [_tagged(text, marked[c])] for c, text in texts.items() if text}
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
    # The first rows are chosen by the sorted columns; the others are read for these rows only.
    by_score = any(key == _BY_SCORE for key, _ in keys)
    named = list(dict.fromkeys([*(k for k, _ in keys if k not in (DOC, _BY_SCORE)), SPLIT, ROW]))
    ends = dict(keys).get(DOC, "ascending")
    order: Any = [*((k, d) for k, d in keys if k != DOC), (SPLIT, ends), (ROW, ends)]
    waiting: list[pa.Table] = []
    for rows in _sortable(question, named, by_score=by_score):
        waiting.append(_beyond(_without_nan(rows, keys), keys, after))
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
    return best, by_score


def _sortable(question: Question, columns: list[str], *, by_score: bool) -> Iterator[pa.Table]:
    """All rows of a question in parts, with their scores if they are sorted by those."""
    table = question.table
    if by_score and question.text is not None:
        yield table.search(question.text, where=question.where, columns=columns, limit=None)
        return
    condition = table.view.names.shown_predicate(question.stored)
    batches = table.scan_batches(where=condition, columns=columns)
    parts = itertools.chain(
        [table.scan(columns=columns, limit=0)],
        (pa.Table.from_batches([batch]) for batch in batches),
    )
    for rows in parts:
        scores = pa.array(np.full(rows.num_rows, question.score, np.float32))
        yield rows.append_column(_BY_SCORE, scores) if by_score else rows


def _first(parts: list[pa.Table], order: Any, count: int) -> pa.Table:
    rows = pa.concat_tables(parts)
    return rows.take(pc.sort_indices(rows, sort_keys=order)[:count])


def _without_nan(rows: pa.Table, keys: list[tuple[str, str]]) -> pa.Table:
    """NaN in columns that rows are sorted by becomes null, which it is in JSON."""
    for at, (name, data_type) in enumerate(zip(rows.column_names, rows.schema.types, strict=True)):
        if pa.types.is_floating(data_type) and name in dict(keys):
            values: Any = rows[name]
            numbers = pc.if_else(pc.is_nan(values), pa.scalar(None, data_type), values)
            rows = rows.set_column(at, name, numbers)
    return rows


def _beyond(rows: pa.Table, keys: list[tuple[str, str]], after: Any) -> pa.Table:
    """The rows whose values come after some; null comes last."""
    if after is None:
        return rows
    if not isinstance(after, list) or len(after) != len(keys):
        raise UnsupportedError(f"search_after has {len(keys)} value(s), as the sort has keys")
    beyond: Any = pa.array([False] * rows.num_rows, pa.bool_())
    equal: Any = pa.array([True] * rows.num_rows, pa.bool_())
    for (key, direction), value in zip(keys, after, strict=True):
        if key == DOC:
            beyond = pc.or_(beyond, pc.and_(equal, _past(rows, value, direction)))
            break
        column: Any = rows[key]
        if value is None:
            same = pc.is_null(column)
            later: Any = pa.array([False] * rows.num_rows, pa.bool_())
        else:
            limit = _scalar(value, column.type, key)
            compare = pc.greater if direction == "ascending" else pc.less
            later = pc.or_kleene(compare(column, limit), pc.is_null(column))
            same = pc.fill_null(pc.equal(column, limit), False)
        beyond = pc.or_(beyond, pc.and_(equal, later))
        equal = pc.and_(equal, same)
    return rows.filter(beyond)


def _past(rows: pa.Table, value: Any, direction: str) -> Any:
    """The rows behind a place, which is a split and a row as in `_id`."""
    split, _, row = str(value).rpartition(":")
    if not split or not row.isdecimal() or len(row) > 18:
        raise UnsupportedError(f"[{value}] is not a value of [{DOC}]")
    compare: Any = pc.greater if direction == "ascending" else pc.less
    later_in_split = pc.and_(pc.equal(rows[SPLIT], pa.scalar(split)), compare(rows[ROW], int(row)))
    return pc.or_(compare(rows[SPLIT], split), later_in_split)


def _sort_value(value: Any) -> Any:
    """A value that rows are sorted by, in JSON; `_scalar` reads it again."""
    is_infinite = isinstance(value, float) and math.isinf(value)
    return str(value) if is_infinite else spelled_value(value)


def _scalar(value: Any, data_type: pa.DataType, key: str) -> Any:
    value = moment_of(value, data_type, "search_after")
    try:
        if pa.types.is_floating(data_type):
            value = float(value)
        elif pa.types.is_decimal(data_type):
            value = decimal.Decimal(str(value))
        elif pa.types.is_binary(data_type):
            value = bytes.fromhex(value.removeprefix("0x"))
        return pa.scalar(value, data_type)
    except (pa.ArrowException, ArithmeticError, AttributeError, ValueError, TypeError):
        raise UnsupportedError(f"[{value}] is not a value of [{key}]") from None


def _sort_keys(sort: Any, schema: pa.Schema) -> list[tuple[str, str]]:
    """Columns and directions; none means by score."""
    keys: list[tuple[str, str]] = []
    if isinstance(sort, dict):  # an object has no order of its own: the place comes last
        sort = [{key: sort[key]} for key in sorted(sort, key=lambda key: key in _PLACES)]
    for entry in sort if isinstance(sort, list) else [] if sort is None else [sort]:
        single = isinstance(entry, dict) and len(entry) == 1
        name, how = next(iter(entry.items())) if single else (entry, {})
        options = how if isinstance(how, dict) else {"order": how}
        if not isinstance(name, str) or set(options) - {"order", "unmapped_type", "missing"}:
            raise UnsupportedError(f"[sort] by [{entry}] is not supported")
        if options.get("missing", "_last") != "_last":
            raise UnsupportedError("[sort] with [missing] other than [_last] is not supported")
        if name in _PLACES:
            name = DOC
        order = options.get("order", "desc" if name == _BY_SCORE else "asc")
        if order not in ("asc", "desc"):
            raise UnsupportedError(f"Illegal sort order: {order}")
        direction = "ascending" if order == "asc" else "descending"
        if name == _BY_SCORE:
            keys.append((_BY_SCORE, direction))
            continue
        if name == DOC:
            keys.append((DOC, direction))
            break  # no two rows have one place
        column = column_name(name, schema)
        if pa.types.is_nested(schema.field(column).type):
            raise UnsupportedError(f"[sort] by [{column}]: it is not a single value")
        keys.append((column, direction))
    return [] if keys == [(_BY_SCORE, "descending")] else keys


def _fields(body: Mapping[str, Any], schema: pa.Schema) -> dict[str, str | None]:
    """Columns that are wanted beside the source, and the format of each."""
    if body.get("script_fields"):
        raise UnsupportedError("[script_fields] are not supported")
    columns: dict[str, str | None] = {}
    for name in ("docvalue_fields", "fields"):
        listed = body.get(name)
        for entry in listed if isinstance(listed, list) else [] if listed is None else [listed]:
            field = entry if isinstance(entry, dict) else {"field": entry}
            pattern, format_ = field.get("field"), field.get("format")
            if not isinstance(pattern, str) or set(field) - {"field", "format"}:
                raise UnsupportedError(f"[{name}] with [{entry}] is not supported")
            if format_ not in _FORMATS:
                raise UnsupportedError(f"[{name}] with [format] of [{format_}] is not supported")
            named = fnmatch.filter(schema.names, pattern) if "*" in pattern else [
                column_name(pattern, schema)]  # fmt: skip
            columns.update(dict.fromkeys(named, format_))
    return columns


_FORMATS = (None, "epoch_millis", "strict_date_optional_time", "strict_date_optional_time_nanos",
            "date_time", "iso8601")  # fmt: skip


def _listed_value(value: Any, format_: str | None) -> list[Any]:
    """A value as `fields` has it: a list, times in UTC."""
    if isinstance(value, list):
        return [spelled_value(item) for item in value]
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


def _source(source: Any, names: list[str]) -> list[str]:
    if isinstance(source, bool):
        return names if source else []
    chosen = source if isinstance(source, dict) else {"includes": source}
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


@dataclasses.dataclass(frozen=True, slots=True)
class _Marking:
    """How words are marked in a text."""

    before: str
    after: str
    escaped: bool
    length: int
    """About how many characters of the text are shown."""

    @classmethod
    def of(cls, options: Mapping[str, Any]) -> _Marking:
        if unknown := sorted(set(options) - _OF_HIGHLIGHT):
            raise UnsupportedError(f"[highlight] with [{unknown[0]}] is not supported")
        if options.get("require_field_match", True) is not True or options.get("no_match_size"):
            raise UnsupportedError(
                "[highlight] marks words in the columns that they are searched in, and nothing "
                "where there are none: [require_field_match] is true and [no_match_size] 0"
            )
        tags = [(texts_of(options.get(name), name) or [default])[0]
                for name, default in (("pre_tags", "<em>"), ("post_tags", "</em>"))]  # fmt: skip
        length = number_of(options, "fragment_size", DEFAULT_LENGTH)
        if number_of(options, "number_of_fragments", 5) == 0 or not length:
            length = 1 << 31  # the whole text
        return cls(tags[0], tags[1], options.get("encoder") == "html", length)


_OF_HIGHLIGHT = frozenset((
    "pre_tags", "post_tags", "encoder", "fragment_size", "number_of_fragments", "type", "order",
    "require_field_match", "no_match_size", "boundary_scanner", "boundary_chars",
    "boundary_max_scan", "boundary_scanner_locale", "fragmenter", "max_analyzed_offset",
    "phrase_limit",
))  # fmt: skip
"""Options of `highlight`. Those that choose one of Elasticsearch's methods have no effect."""


def _highlighted(highlight: Any, table: Table) -> dict[str, _Marking]:
    """Columns to mark words in, and how."""
    if not highlight:
        return {}
    fields = highlight.get("fields", {}) if isinstance(highlight, dict) else None
    if isinstance(fields, list):  # an object for each, in their order
        fields = {n: o for entry in fields if isinstance(entry, dict) for n, o in entry.items()}
    if not isinstance(fields, dict) or not all(isinstance(o, dict) for o in fields.values()):
        raise UnsupportedError("[highlight] has [fields], an object of objects")
    every, texts = {k: v for k, v in highlight.items() if k != "fields"}, text_columns(table)
    _Marking.of(every)
    markings: dict[str, _Marking] = {}
    for pattern, options in fields.items():
        named = fnmatch.filter(texts, pattern)
        if not named and "*" not in pattern:
            raise UnsupportedError(f"[highlight] of [{pattern}]: it is not a column of text")
        markings |= dict.fromkeys(named, _Marking.of(every | options))
    return markings


def _with_marks(rows: pa.Table, question: Question, marked: Mapping[str, _Marking]) -> pa.Table:
    view = question.table.view
    # The words of all filters are marked, not only those that count for the score.
    of_conditions = tuple(searches(view.names.shown_predicate(question.stored)))
    if not of_conditions:
        return rows
    every = Search(None, Boolean(should=tuple(condition.query for condition in of_conditions)), "")
    for column, how in marked.items():
        rows = with_snippets(rows, every, [column], view.shown.context, length=how.length)
    return rows


def _tagged(snippet: str, how: _Marking) -> str:
    spelled = html.escape if how.escaped else str
    return "".join(
        f"{how.before}{spelled(text)}{how.after}" if is_match else spelled(text)
        for text, is_match in marked_parts(snippet)
    )


_HEADERS = {"x-elastic-product": "Elasticsearch"}
_SHARDS = {"total": 1, "successful": 1, "skipped": 0, "failed": 0}
_KNOWN = {"query", "size", "from", "sort", "search_after", "highlight", "aggs", "aggregations",
          "_source", "track_total_hits", "timeout", "fields", "docvalue_fields",
          "script_fields"}  # fmt: skip


class Answer(Response):
    """JSON as Elasticsearch's clients expect it."""

    media_type = "application/json"

    def __init__(self, content: Any, status_code: int = 200) -> None:
        super().__init__(content, status_code=status_code, headers=dict(_HEADERS))

    def render(self, content: Any) -> bytes:
        """As bytes."""
        return b"" if content is None else to_json(content)


def failure(error: Exception) -> dict[str, Any]:
    """An error in Elasticsearch's form."""
    match error:
        case NoSuchTableError():
            error_type = "index_not_found_exception"
        case RequestError():
            error_type = "parsing_exception"
        case IndexTablesError():
            error_type = "search_phase_execution_exception"
        case _:
            error_type = "exception"
    is_ours = isinstance(error, IndexTablesError)
    unknown = "This should not have happened; the server's terminal says more."
    reason = str(error) if is_ours else unknown
    cause = {"type": error_type, "reason": reason}
    return {"error": {"root_cause": [cause], **cause}, "status": status_of(error)}


@dataclasses.dataclass(frozen=True)
class Elastic:
    """The handlers, over some tables."""

    tables: ServedTables
    work: Work

    def routes(self) -> list[Route]:
        """Addresses and their handlers."""
        both = ["GET", "POST"]
        listed = [
            ("/_msearch", self.msearch, both),
            ("/_cluster/health", self.health, ["GET"]),
            ("/{table}/_msearch", self.msearch, both),
            ("/{table}/_search", self.search, both),
            ("/{table}/_count", self.count, both),
            ("/_cat/indices", self.indices, ["GET"]),
            ("/_mapping", self.mapping, ["GET"]),
            ("/_field_caps", self.field_caps, both),
            ("/{table}/_mapping", self.mapping, ["GET"]),
            ("/{table}/_field_caps", self.field_caps, both),
        ]
        every = ["GET", "POST", "PUT", "DELETE"]
        # Whatever else their clients ask for is refused as Elasticsearch would.
        refused = [("/_{path:path}", self.nothing, every),
                ("/{table}/_{path:path}", self.nothing, every),
                ("/{table}", self.table, ["GET", "PUT", "DELETE"])]  # fmt: skip
        return [
            Route(path, self._guarded(to), methods=methods)
            for path, to, methods in listed + refused
        ]

    def _guarded(self, handler: Any) -> Any:
        async def run(request: Request) -> Response:
            try:
                return Answer(await handler(request))
            except Exception as raised:
                error: Exception = raised
                if isinstance(raised, RecursionError):
                    error = UnsupportedError("the request is nested too deeply")
                elif not isinstance(raised, IndexTablesError):
                    logger.exception("%s %s failed", request.method, request.url.path)
                answer = failure(error)
                return Answer(answer, status_code=answer["status"])

        return run

    @staticmethod
    def info() -> Response:
        """What answers here."""
        version = {"number": "9.0.0", "build_flavor": f"indextables-{__version__}",
                   "minimum_wire_compatibility_version": "8.0.0",
                   "minimum_index_compatibility_version": "8.0.0"}  # fmt: skip
        return Answer({"name": "indextables", "cluster_name": "indextables", "version": version,
                       "tagline": "You Know, for Search"})  # fmt: skip

    async def health(self, request: Request) -> Any:  # noqa: ARG002
        """That the server answers."""
        return {"cluster_name": "indextables", "status": "green", "timed_out": False}

    async def search(self, request: Request) -> Any:
        """The hits of a query."""
        body = await _body(request)
        name = request.path_params["table"]
        return await self.work.run(
            lambda: self._search(name, body), request, what=f"_search of {name}"
        )

    async def count(self, request: Request) -> Any:
        """How many rows match."""
        body, name = await _body(request), request.path_params["table"]
        if unknown := sorted(set(body) - {"query"}):
            raise UnsupportedError(f"request does not support [{unknown[0]}]")

        def work() -> dict[str, Any]:
            table = self.tables.get(self._only(name))
            question = Question.of(table, body)
            return {"count": count_rows(table.view, question.stored), "_shards": _SHARDS}

        return await self.work.run(work, request, what=f"_count of {name}")

    async def mapping(self, request: Request) -> Any:
        """The columns, as Elasticsearch calls their types."""
        pattern = request.path_params.get("table", "*")

        def work() -> dict[str, Any]:
            return {
                name: {"mappings": {"properties": {c: {"type": t} for c, t in types.items()}}}
                for name, types in self._types(pattern).items()
            }

        return await self.work.run(work, request, what=f"_mapping of {pattern}")

    async def field_caps(self, request: Request) -> Any:
        """What can be done with each column."""
        pattern, body = request.path_params.get("table", "*"), await _body(request)
        listed = body.get("fields") or "*"
        patterns = listed if isinstance(listed, list) else str(listed).split(",")

        def work() -> dict[str, Any]:
            tables = self._types(pattern)
            fields: dict[str, dict[str, Any]] = {}
            for types in tables.values():
                for column, type_name in types.items():
                    if any(fnmatch.fnmatchcase(column, str(one)) for one in patterns):
                        counted = type_name not in ("text", "object", "binary")
                        fields.setdefault(column, {})[type_name] = {
                            "type": type_name, "metadata_field": False, "searchable": True,
                            "aggregatable": counted,
                        }  # fmt: skip
            return {"indices": list(tables), "fields": fields}

        return await self.work.run(work, request, what=f"_field_caps of {pattern}")

    async def indices(self, request: Request) -> Any:
        """The tables, with their rows and bytes."""

        def work() -> list[dict[str, Any]]:
            indices = []
            for name in list(self.tables):
                about = facts(name, self.tables.get(name))
                indices.append({"health": "green", "status": "open", "index": name,
                              "docs.count": str(about["rows"]),
                              "store.size": str(about["bytes"])})  # fmt: skip
            return indices

        return await self.work.run(work, request, what="_cat/indices")

    async def table(self, request: Request) -> Any:
        """Whether there is a table, and its columns."""
        if request.method not in ("GET", "HEAD"):
            return await self.nothing(request)
        return await self.mapping(request)

    async def nothing(self, request: Request) -> Any:
        """Refuse what this server does not have."""
        path = request.url.path
        if request.method in ("PUT", "DELETE"):
            raise UnsupportedError(f"{request.method} [{path}]: nothing is written here")
        advice = ""
        if "scroll" in path or path.endswith("/_pit"):
            advice = "; sort by [_doc] and turn pages with [search_after]"
        raise UnsupportedError(f"[{path}] is not supported{advice}")

    def _named(self, pattern: str) -> list[str]:
        """The tables of a name, of several with commas between, or of a pattern."""
        if pattern in list(self.tables) or not set(pattern) & set("*,"):
            return [pattern]
        patterns = pattern.replace("_all", "*").split(",")
        return [name for name in list(self.tables)
                if any(fnmatch.fnmatchcase(name, one) for one in patterns)]  # fmt: skip

    def _types(self, pattern: str) -> dict[str, dict[str, str]]:
        types = {}
        for name in self._named(pattern):
            table = self.tables.get(name)
            mapping = table.mapping
            types[name] = {f.name: _type(f.type, mapping.get(f.name)) for f in table.schema}
        return types

    def _only(self, pattern: str) -> str:
        """The one table that is meant."""
        names = self._named(pattern)
        if not names:
            raise NoSuchTableError(pattern, list(self.tables))
        if len(names) > 1:
            raise UnsupportedError(f"a search is of one table here; [{pattern}] are: {names}")
        return names[0]

    async def msearch(self, request: Request) -> Any:
        """Several searches, each with its own outcome."""
        _check_parameters(request.query_params)
        lines = [line for line in (await body_of(request)).split(b"\n") if line.strip()]
        if len(lines) % 2:
            raise UnsupportedError("[_msearch] has two lines for each search")
        pairs = [(_object(a), _object(b)) for a, b in zip(lines[::2], lines[1::2], strict=True)]
        if len(pairs) > 50:
            raise UnsupportedError("[_msearch] has at most 50 searches")
        default = request.path_params.get("table")

        def work() -> dict[str, Any]:
            begun = time.perf_counter()
            responses = [
                self._sub_response(head.get("index", default), body) for head, body in pairs
            ]
            return {"took": _milliseconds(begun), "responses": responses}

        return await self.work.run(work, request, what="_msearch")

    def _sub_response(self, index: Any, body: dict[str, Any]) -> dict[str, Any]:
        names = index if isinstance(index, list) else [index]
        try:
            return {**self._search(",".join(map(str, names)), body), "status": 200}
        except RequestError as error:
            return failure(error)
        except IndexTablesError as error:
            if status_of(error) in (499, 504):
                raise
            return failure(error)

    def _search(self, name: str, body: dict[str, Any]) -> dict[str, Any]:
        begun = time.perf_counter()
        if unknown := sorted(set(body) - _KNOWN):
            raise UnsupportedError(f"unknown key [{unknown[0]}] in a search")
        name = self._only(name)
        table = self.tables.get(name)
        question = Question.of(table, body)
        total = count_rows(table.view, question.stored)
        hits = list(hits_of(name, question, body))
        scores = [hit["_score"] for hit in hits if hit["_score"] is not None]
        answer: dict[str, Any] = {
            "took": 0,
            "timed_out": False,
            "_shards": _SHARDS,
            "hits": {
                "total": {"value": total, "relation": "eq"},
                "max_score": max(scores, default=None),
                "hits": hits,
            },
        }
        aggs = body.get("aggs", body.get("aggregations"))
        if aggs:
            answer["aggregations"] = aggregations(aggs, question)
        return {**answer, "took": _milliseconds(begun)}


def _milliseconds(begun: float) -> int:
    return int((time.perf_counter() - begun) * 1000)


def _object(text: bytes) -> dict[str, Any]:
    try:
        parsed = orjson.loads(text) if text.strip() else {}
    except orjson.JSONDecodeError as error:
        raise UnsupportedError(f"the request is not JSON: {error}") from None
    if not isinstance(parsed, dict):
        raise UnsupportedError("a request is an object of JSON")
    return parsed


_WITHOUT_EFFECT = frozenset((
    "allow_no_indices", "allow_partial_search_results", "batched_reduce_size",
    "ccs_minimize_roundtrips", "error_trace", "expand_wildcards", "format", "human",
    "ignore_throttled", "ignore_unavailable", "max_concurrent_searches",
    "max_concurrent_shard_requests", "pre_filter_shard_size", "preference", "pretty",
    "request_cache", "search_type", "timeout", "track_total_hits",
))  # fmt: skip
"""Parameters of an address that say nothing of what is found."""
_OFF_ONLY = frozenset((
    "explain", "include_unmapped", "rest_total_hits_as_int", "scroll", "seq_no_primary_term",
    "typed_keys", "version",
))  # fmt: skip


async def _body(request: Request) -> dict[str, Any]:
    body, parameters = _object(await body_of(request)), dict(request.query_params)
    text, options = parameters.pop("q", None), {
        "default_field": parameters.pop("df", None),
        "default_operator": parameters.pop("default_operator", None),
    }  # fmt: skip
    if text is not None:
        named = {name: value for name, value in options.items() if value is not None}
        body["query"] = {"query_string": {"query": text, **named}}
    for name in ("size", "from"):
        if name in parameters:
            number = parameters.pop(name)
            body[name] = int(number) if number.isdecimal() and len(number) < 10 else number
    if (sort := parameters.pop("sort", None)) is not None:
        keys = [part.rpartition(":") for part in sort.split(",")]
        body["sort"] = [{name: order} if name else order for name, _, order in keys]
    if "fields" in parameters:
        body["fields"] = parameters.pop("fields").split(",")
    sources = {name: parameters.pop(f"_source_{name}", None) for name in ("includes", "excludes")}
    source = parameters.pop("_source", None)
    if source is not None:
        body["_source"] = source == "true" if source in ("true", "false") else source.split(",")
    if any(sources.values()):
        listed = {name: part.split(",") for name, part in sources.items() if part}
        body["_source"] = listed
    _check_parameters(parameters)
    return body


def _check_parameters(parameters: Mapping[str, str]) -> None:
    """Refuse parameters of an address that would change what is found."""
    for name, value in parameters.items():
        if name not in _WITHOUT_EFFECT and (name not in _OFF_ONLY or value != "false"):
            raise UnsupportedError(f"[{name}] is not supported as a parameter of the address")


def _type(data_type: pa.DataType, searched_as: str | None) -> str:
    types = pa.types
    if types.is_string(data_type):
        return {"text": "text", "json": "object", "ip": "ip"}.get(searched_as or "", "keyword")
    if types.is_list(data_type):
        return _type(data_type.value_type, searched_as)
    named = ((types.is_boolean, "boolean"), (types.is_integer, "long"), (types.is_float32, "float"),
             (types.is_floating, "double"), (types.is_decimal, "double"),
             (types.is_temporal, "date"), (types.is_binary, "binary"))  # fmt: skip
    return next((name for is_kind, name in named if is_kind(data_type)), "object")
