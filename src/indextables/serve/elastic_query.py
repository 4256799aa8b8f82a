"""Queries of Elasticsearch's query language, translated to the search syntax.

A query becomes one text that is scored and some that only leave rows out: the `filter` of the
outermost `bool`. What has no counterpart is refused, with the name that it has there; nothing is
passed over.
"""

from __future__ import annotations

import calendar
import datetime
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from indextables.predicate import Predicate, conjunction
from indextables.predicate.search import Boolean, in_quotes, walk
from indextables.predicate.search_syntax import parse_search
from indextables.serve.tables import search_field
from indextables.serve.work import RequestError
from indextables.split.mapping import FieldMapping
from indextables.table import Table

NOTHING = "(+* -*)"
_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)


_OF_ONE_FIELD = frozenset(("match", "match_phrase", "match_phrase_prefix", "term", "terms", "range",
                           "prefix", "wildcard", "regexp", "fuzzy"))  # fmt: skip
_TIME_FORMATS = (None, "epoch_millis", "strict_date_optional_time", "date_optional_time",
                 "strict_date_optional_time||epoch_millis")  # fmt: skip


class UnsupportedError(RequestError):
    """A part of Elasticsearch's language that is not understood here."""


@dataclass(frozen=True, slots=True)
class Translated:
    """A query in our syntax. Without a text every row has the same score."""

    text: str | None
    filters: tuple[str, ...] = ()
    score: float = 1.0
    """Of every row, if there is no text."""


def translated(
    query: Mapping[str, Any] | None,
    schema: pa.Schema,
    mapping: Mapping[str, FieldMapping] | None = None,
) -> Translated:
    """A query, with the filters that need no score apart.

    `mapping` says how columns are searched, by the names that they have in the schema.

    >>> schema = pa.schema([("body", pa.string()), ("n", pa.int64())])
    >>> translated({"match": {"body": "red fox"}}, schema).text
    '(body:"red" body:"fox")'
    >>> query = {"bool": {"must": {"match_phrase": {"body": "red fox"}},
    ...                   "filter": [{"range": {"n": {"gte": 3}}}]}}
    >>> translated(query, schema)
    Translated(text='(+body:"red fox")', filters=('n:[3 TO *]',), score=1.0)
    """
    if not query or query == {"match_all": {}}:
        return Translated(None)
    language = _Language(schema, mapping or {})
    name, value = _single(query, "a query")
    if name == "bool" and isinstance(value, dict) and "filter" in value:
        filters = tuple(language.text(clause) for clause in _listed(value["filter"]))
        positive = {key: inner for key, inner in value.items() if key != "filter" and inner != []}
        if not (set(positive) - {"boost", "minimum_should_match", "must_not"}):
            excluded = tuple(f"(+* -{language.text(o)})" for o in _listed(positive.get("must_not")))
            every = (*filters, *excluded)
            return Translated(None, every, score=0.0 if every else 1.0)
        # Beside a filter, alternatives are optional.
        optional = "must" not in positive and not positive.get("minimum_should_match")
        return Translated(_boosted(language.bool_(positive, all_rows=optional), positive), filters)
    return Translated(language.text(query))


def _single(clause: Any, clause_type: str) -> tuple[str, Any]:
    if not isinstance(clause, dict) or len(clause) != 1:
        raise UnsupportedError(f"[{clause_type}] is an object with one name.")
    return next(iter(clause.items()))


def _listed(value: Any) -> list[Any]:
    return [] if value is None else value if isinstance(value, list) else [value]


def texts_of(value: Any, clause_type: str) -> list[str]:
    """A text, or a list of them."""
    texts = _listed(value)
    if not all(isinstance(text, str) for text in texts):
        raise UnsupportedError(f"[{clause_type}] is a text or a list of texts, not [{value}]")
    return texts


def _allow(clause: Mapping[str, Any], names: set[str], clause_type: str) -> None:
    if unknown := sorted(set(clause) - names):
        raise UnsupportedError(f"[{clause_type}] with [{unknown[0]}] is not supported.")


def _boosted(text: str, options: Mapping[str, Any]) -> str:
    boost = options.get("boost")
    if boost is None:
        return text
    if isinstance(boost, bool) or not isinstance(boost, int | float):
        raise UnsupportedError(f"[boost] is a number, not [{boost}]")
    return f"{text}^{boost:f}"


@dataclass(frozen=True, slots=True)
class _Language:
    schema: pa.Schema
    mapping: Mapping[str, FieldMapping]

    def text(self, query: Any) -> str:
        """A query as a clause of our syntax."""
        name, value = _single(query, "query")
        handlers: dict[str, Callable[[Any], str]] = {
            "match_all": lambda _: "*",
            "match_none": lambda _: NOTHING,
            "query_string": self.query_string,
            "match": self.match,
            "match_phrase": self.match_phrase,
            "match_phrase_prefix": self.match_phrase_prefix,
            "term": self.term,
            "terms": self.terms,
            "range": self.range_,
            "exists": self.exists,
            "bool": self.bool_,
            "prefix": lambda given: self.pattern(given, "prefix", lambda text: f"{text}*"),
            "wildcard": lambda given: self.pattern(given, "wildcard", str),
            "regexp": lambda given: self.pattern(given, "regexp", str),
            "fuzzy": lambda given: self.pattern(given, "fuzzy", str),
            "multi_match": self.multi_match,
            "constant_score": self.constant_score,
        }
        if name not in handlers:
            raise UnsupportedError(f"unknown query [{name}]; there are: {', '.join(handlers)}")
        if not isinstance(value, dict):
            raise UnsupportedError(f"[{name}] query malformed, no start_object after query name")
        text, options = handlers[name](value), value
        if name in _OF_ONE_FIELD and len(value) == 1:  # which may be called "boost" itself
            (inner,) = value.values()
            options = inner if isinstance(inner, dict) else {}
        return _boosted(text, options)

    def field(self, name: str) -> str:
        """A column as our syntax writes it; `level.keyword` is the column `level`."""
        return search_field(column_name(name, self.schema))

    def query_string(self, clause: Mapping[str, Any]) -> str:
        _allow(clause, {"query", "default_field", "fields", "default_operator", "boost",
                       "analyze_wildcard", "lenient"}, "query_string")  # fmt: skip
        if str(clause.get("default_operator", "or")).lower() != "or":
            raise UnsupportedError("[query_string] with [default_operator] and is not supported.")
        text = clause.get("query")
        if not isinstance(text, str):
            raise UnsupportedError("[query_string] needs a [query]")
        fields = texts_of(clause.get("fields") or clause.get("default_field"), "fields")
        if not fields or fields == ["*"]:
            return f"({text})"
        if len(fields) > 1 and any(
            isinstance(node, Boolean) and (node.must or node.must_not)
            for node in walk(parse_search(text))
        ):
            raise UnsupportedError(
                "[query_string] with several [fields] and AND, NOT, + or - is not supported: name "
                "the fields in the query, (title:a OR body:a) AND (title:b OR body:b)"
            )
        queries = []
        for field in fields:
            name, boost = self.weighted(field, "query_string")
            queries.append(f"{self.field(name)}:({text}){boost}")
        return f"({' '.join(queries)})"

    def weighted(self, field: str, clause_type: str) -> tuple[str, str]:
        """The column of `title^3`, and its weight in our syntax."""
        name, _, boost = (field, "", "") if field in self.schema.names else field.partition("^")
        if not boost:
            return name, ""
        if not _is_number(boost):
            raise UnsupportedError(f"[{clause_type}] of [{field}]: a boost is a number")
        return name, f"^{float(boost):f}"

    def match(self, clause: Mapping[str, Any]) -> str:
        name, value = _single(clause, "match")
        options = value if isinstance(value, dict) else {"query": value}
        _allow(options, {"query", "operator", "boost", "fuzziness"}, "match")
        field, text = self.field(name), options.get("query")
        operator = str(options.get("operator", "or")).lower()
        if operator not in ("or", "and"):
            raise UnsupportedError(f"[match] with [operator] of [{operator}]: it is [or] or [and]")
        words = self.words(name, text) if isinstance(text, str) else None
        if words is None:
            if "fuzziness" in options:
                raise UnsupportedError(f"[match] of [{name}] with [fuzziness]: it has no words")
            return self._value(name, text)
        sign = "+" if operator == "and" else ""
        fuzziness = options.get("fuzziness")
        spelled = [
            in_quotes(word) if fuzziness is None else _fuzzy(word, fuzziness) for word in words
        ]
        return f"({' '.join(f'{sign}{field}:{word}' for word in spelled)})" if words else NOTHING

    def words(self, name: str, text: str) -> list[str] | None:
        """The words of a text as a column has them, or None if its values are not cut into words.

        Words are the parts of the text that make them, so that each is analysed only once.
        """
        target = self.mapping.get(column_name(name, self.schema))
        if target is None or target.kind == "json":
            return text.split()
        if not target.is_tokenized:
            return None
        if target.analyzer.is_ngram or target.analyzer.overlaps:
            return text.split()
        text, analyzer = target.analyzer.shown(text)
        return [text[word.start : word.end] for word in analyzer.words(text)]

    def match_phrase(self, clause: Mapping[str, Any], clause_type: str = "match_phrase") -> str:
        name, value = _single(clause, clause_type)
        options = value if isinstance(value, dict) else {"query": value}
        _allow(options, {"query", "slop", "boost"}, clause_type)
        slop = options.get("slop")
        phrase = f"{self.field(name)}:{in_quotes(str(options.get('query', '')))}"
        if clause_type == "match_phrase_prefix":
            if slop:
                raise UnsupportedError(f"[{clause_type}] with [slop] is not supported")
            return f"{phrase}*"
        return f"{phrase}~{number_of(options, 'slop', 0)}" if slop else phrase

    def match_phrase_prefix(self, clause: Mapping[str, Any]) -> str:
        """A phrase whose last word is only begun."""
        return self.match_phrase(clause, "match_phrase_prefix")

    def term(self, clause: Mapping[str, Any]) -> str:
        name, value = _single(clause, "term")
        options = value if isinstance(value, dict) else {"value": value}
        _allow(options, {"value", "boost"}, "term")
        return self._value(name, options.get("value"))

    def terms(self, clause: Mapping[str, Any]) -> str:
        name, values = _single({k: v for k, v in clause.items() if k != "boost"}, "terms")
        if not isinstance(values, list):
            raise UnsupportedError("[terms] query requires an array of terms")
        return f"({' '.join(self._value(name, value) for value in values)})" if values else NOTHING

    def multi_match(self, clause: Mapping[str, Any]) -> str:
        """The same of several columns. Scores are added, as in `most_fields`."""
        allowed = {"query", "fields", "operator", "type", "boost", "fuzziness"}
        _allow(clause, allowed, "multi_match")
        match_type = clause.get("type", "best_fields")
        if match_type not in ("best_fields", "most_fields", "phrase", "phrase_prefix"):
            raise UnsupportedError(f"[multi_match] with [type] of [{match_type}] is not supported")
        fields = texts_of(clause.get("fields"), "fields")
        if not fields:
            raise UnsupportedError("[multi_match] needs [fields]")
        queries = []
        for field in fields:
            name, boost = self.weighted(field, "multi_match")
            options = {k: clause[k] for k in ("query", "operator", "fuzziness") if k in clause}
            if match_type == "phrase":
                text = self.match_phrase({name: clause.get("query")})
            elif match_type == "phrase_prefix":
                text = self.match_phrase_prefix({name: clause.get("query")})
            else:
                text = self.match({name: options})
            queries.append(f"{text}{boost}")
        return f"({' '.join(queries)})"

    def constant_score(self, clause: Mapping[str, Any]) -> str:
        """Every row of a filter has one score."""
        _allow(clause, {"filter", "boost"}, "constant_score")
        return f"(+({self.text(clause.get('filter'))})^0 +*)"

    def pattern(
        self, clause: Mapping[str, Any], clause_type: str, spelled: Callable[[str], str]
    ) -> str:
        """Words that are like a pattern."""
        name, value = _single(clause, clause_type)
        options = value if isinstance(value, dict) else {"value": value}
        named = {"wildcard": {"wildcard"}, "fuzzy": {"fuzziness"}}.get(clause_type, set())
        _allow(options, {"value", "boost", "case_insensitive", "rewrite", *named}, clause_type)
        text = options.get("value", options.get("wildcard"))
        if not isinstance(text, str) or not text:
            raise UnsupportedError(f"[{clause_type}] of [{name}] needs a [value], a text")
        field = self.field(name)
        target = self.mapping.get(column_name(name, self.schema))
        lowered = target is None or (target.is_tokenized and target.analyzer.lowercases)
        if options.get("case_insensitive") and not lowered:
            raise UnsupportedError(
                f"[{clause_type}] of [{name}] with [case_insensitive]: its words are in the case "
                "of the text"
            )
        if clause_type == "regexp":
            return f"{field}:/{_regex(text)}/"
        if clause_type == "fuzzy":
            return f"{field}:{_fuzzy(text, options.get('fuzziness', 'AUTO'))}"
        return f"{field}:{spelled(_escaped(text, keep='*?' if clause_type == 'wildcard' else ''))}"

    def exists(self, clause: Mapping[str, Any]) -> str:
        _allow(clause, {"field", "boost"}, "exists")
        return f"{self.field(str(clause.get('field')))}:*"

    def range_(self, clause: Mapping[str, Any]) -> str:
        name, ends = _single(clause, "range")
        if not isinstance(ends, dict):
            raise UnsupportedError("[range] query malformed")
        _allow(ends, {"gte", "gt", "lte", "lt", "from", "to", "format", "boost"}, "range")
        if ends.get("format") not in _TIME_FORMATS:
            raise UnsupportedError(f"[range] with [format] of [{ends['format']}] is not supported")
        if {"gt", "gte"} <= set(ends) or {"lt", "lte"} <= set(ends):
            raise UnsupportedError(f"[range] of [{name}] has two bounds on one side")
        # Grafana's annotations still say `from` and `to`.
        low = ends.get("gte", ends.get("gt", ends.get("from")))
        high = ends.get("lte", ends.get("lt", ends.get("to")))
        opening = "{" if "gt" in ends and "gte" not in ends else "["
        closing = "}" if "lt" in ends and "lte" not in ends else "]"
        first = "*" if low is None else self._bound(name, low, rounded_up=opening == "{")
        last = "*" if high is None else self._bound(name, high, rounded_up=closing == "]")
        opening, closing = ("[" if first == "*" else opening), ("]" if last == "*" else closing)
        return f"{self.field(name)}:{opening}{first} TO {last}{closing}"

    def bool_(self, clause: Mapping[str, Any], *, all_rows: bool = False) -> str:
        names = {"must", "should", "must_not", "filter", "boost", "minimum_should_match"}
        _allow(clause, names, "bool")
        must = [self.text(part) for part in _listed(clause.get("must"))]
        # A filter inside another query leaves rows out and adds nothing to a score.
        must += [f"({self.text(part)})^0" for part in _listed(clause.get("filter"))]
        should = [self.text(part) for part in _listed(clause.get("should"))]
        excluded = [self.text(part) for part in _listed(clause.get("must_not"))]
        needed = clause.get("minimum_should_match", 0 if must or all_rows else 1)
        if str(needed) not in ("0", "1"):
            raise UnsupportedError(f"[minimum_should_match] of [{needed}] is not supported: 0 or 1")
        if should and str(needed) == "1":
            must.append(f"({' '.join(should)})")
            should = []
        elif should and not must:
            must.append("*^0")
        if not must and not should:
            must.append("*")
        parts = [*(f"+{part}" for part in must), *should, *(f"-{part}" for part in excluded)]
        return f"({' '.join(parts)})"

    def _value(self, name: str, value: Any) -> str:
        if value is None:
            raise UnsupportedError("value cannot be null")
        data_type = self.schema.field(column_name(name, self.schema)).type
        return f"{self.field(name)}:{in_quotes(str(_spelled(value, data_type)))}"

    def _bound(self, name: str, value: Any, *, rounded_up: bool) -> str:
        data_type = self.schema.field(column_name(name, self.schema)).type
        if pa.types.is_temporal(data_type) and isinstance(value, str) and value.startswith("now"):
            value = _millis_of(date_math(value, rounded_up=rounded_up))
        text = str(_spelled(value, data_type))
        return text if _is_number(text) else in_quotes(text)


_STEP = re.compile(r"([+-]\d{1,6})([yMwdhHms])|/([yMwdhHms])")
_LENGTHS = {"w": "weeks", "d": "days", "h": "hours", "H": "hours", "m": "minutes", "s": "seconds"}


def date_math(
    text: str, *, rounded_up: bool = False, now: datetime.datetime | None = None
) -> datetime.datetime:
    """A time that is said from now, as `now-7d/d` is: seven days ago, at the start of that day.

    >>> at = datetime.datetime(2024, 3, 31, 12, 30, tzinfo=datetime.UTC)
    >>> date_math("now-1M/d", now=at).isoformat()
    '2024-02-29T00:00:00+00:00'
    >>> date_math("now/M", rounded_up=True, now=at).isoformat()
    '2024-03-31T23:59:59.999000+00:00'
    """
    steps = text.removeprefix("now")
    if "".join(step.group() for step in _STEP.finditer(steps)) != steps:
        raise UnsupportedError(f"failed to parse date math [{text}]")
    moment = now or datetime.datetime.now(datetime.UTC)
    try:
        for step in _STEP.finditer(steps):
            count, unit, rounded = step.groups()
            if rounded is None:
                moment = _moved(moment, int(count), unit)
                continue
            moment = _floor(moment, rounded)
            if rounded_up:
                moment = _moved(moment, 1, rounded) - datetime.timedelta(milliseconds=1)
    except (OverflowError, ValueError):
        raise UnsupportedError(f"[{text}] is not a time") from None
    return moment


def _moved(moment: datetime.datetime, count: int, unit: str) -> datetime.datetime:
    if unit in _LENGTHS:
        return moment + datetime.timedelta(**{_LENGTHS[unit]: count})
    months = moment.year * 12 + moment.month - 1 + count * (12 if unit == "y" else 1)
    year, month = divmod(months, 12)
    last = calendar.monthrange(year, month + 1)[1]
    return moment.replace(year=year, month=month + 1, day=min(moment.day, last))


def _floor(moment: datetime.datetime, unit: str) -> datetime.datetime:
    parts = {"hour": 0, "minute": 0, "second": 0, "microsecond": 0}
    if unit in "hHms":
        del parts["hour"]
    if unit in "ms":
        del parts["minute"]
    if unit == "s":
        del parts["second"]
    start = moment.replace(**parts)  # type: ignore[arg-type]
    if unit == "w":
        return start - datetime.timedelta(days=start.weekday())
    if unit in "yM":
        start = start.replace(day=1)
    return start.replace(month=1) if unit == "y" else start


def _millis_of(moment: datetime.datetime) -> int:
    return (moment - _EPOCH) // datetime.timedelta(milliseconds=1)


def _escaped(text: str, keep: str = "") -> str:
    """A text in which nothing is syntax but some characters."""
    return "".join(c if c.isalnum() or c in keep else f"\\{c}" for c in text)


def _regex(pattern: str) -> str:
    """A pattern between two slashes."""
    spelled = re.sub(
        r"\\.|/", lambda m: "\\/" if m.group() == "/" else m.group(), pattern, flags=re.S
    )
    if re.fullmatch(r"(?:\\.|[^\\])*", pattern, flags=re.S) is None:
        raise UnsupportedError(f"[regexp] of [{pattern}] ends with a backslash")
    return spelled


def _fuzzy(text: str, fuzziness: Any) -> str:
    """A word, with how many edits it may be away."""
    edits = str(fuzziness).upper()
    if edits == "AUTO":  # as Elasticsearch chooses
        edits = "0" if len(text) < 3 else "1" if len(text) < 6 else "2"
    if edits not in ("0", "1", "2"):
        raise UnsupportedError(f"[fuzziness] of [{edits}] is not supported: 0, 1, 2, AUTO")
    return _escaped(text) if edits == "0" else f"{_escaped(text)}~{edits}"


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _is_whole(text: str) -> bool:
    return text.isascii() and text.removeprefix("-").isdigit() and len(text) < 20


def _spelled(value: Any, data_type: pa.DataType) -> Any:
    """A value as our syntax spells it: times as ISO, of milliseconds too."""
    if isinstance(value, bool):
        return str(value).lower()
    is_integer = isinstance(value, int) or (isinstance(value, str) and _is_whole(value))
    if is_integer and pa.types.is_temporal(data_type) and abs(int(value)) > 9_999:
        try:
            moment = _EPOCH + datetime.timedelta(milliseconds=int(value))
        except OverflowError:
            raise UnsupportedError(f"[{value}] milliseconds are not a time") from None
        if pa.types.is_date(data_type):
            return moment.date().isoformat()
        return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
    return value


def column_name(name: str, schema: pa.Schema) -> str:
    """The column that a field of Elasticsearch names."""
    if name in schema.names:
        return name
    if name.removesuffix(".keyword") in schema.names:
        return name.removesuffix(".keyword")
    raise UnsupportedError(f"No mapping found for [{name}]; there are: {', '.join(schema.names)}")


def number_of(body: Mapping[str, Any], name: str, default: int) -> int:
    """A number of 0 or more."""
    value = body.get(name, default)
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise UnsupportedError(f"[{name}] parameter cannot be [{value}]")
    return value


def moment_of(value: Any, data_type: Any, clause_type: str) -> Any:
    """A value of a request as one of a column: times are ISO text, or milliseconds since 1970."""
    if not pa.types.is_temporal(data_type):
        return value
    try:
        if isinstance(value, str) and not _is_whole(value):
            moment = datetime.datetime.fromisoformat(value)
        elif isinstance(value, bool):
            raise ValueError(value)
        else:
            moment = _EPOCH + datetime.timedelta(milliseconds=float(value))
    except (ValueError, TypeError, OverflowError):
        raise UnsupportedError(f"[{clause_type}] has [{value}], which is not a time") from None
    if pa.types.is_date(data_type):
        return moment.date()
    if getattr(data_type, "tz", None) is None:
        return moment.astimezone(datetime.UTC).replace(tzinfo=None) if moment.tzinfo else moment
    return moment if moment.tzinfo else moment.replace(tzinfo=datetime.UTC)


def spelled_value(value: Any) -> Any:
    """A value as JSON has it: times as ISO text."""
    return value.isoformat() if isinstance(value, datetime.date) else value


@dataclass(frozen=True)
class Question:
    """A query of one table: its scored text, and the condition that all of its rows meet."""

    table: Table
    text: str | None
    score: float
    where: Predicate
    """In the names that users have."""
    stored: Predicate
    """The text and the condition together, in the names that are stored."""

    @classmethod
    def of(cls, table: Table, body: Mapping[str, Any]) -> Question:
        """The query of a request."""
        query = body.get("query")
        if query is not None and not isinstance(query, dict):
            raise UnsupportedError("[query] is an object")
        question = translated(query, table.schema, table.view.shown.mapping.by_name)
        shown = table.view.names.shown_predicate
        filters = [shown(table.matching(text)[1]) for text in question.filters]
        where = conjunction(*filters)
        _, stored = table.matching(question.text, where=where)
        return cls(table, question.text, question.score, where, stored)
