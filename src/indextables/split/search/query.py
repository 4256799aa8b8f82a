"""A search bound to the columns of a table: every leaf has its field, its path and its question.

`resolve` turns the `Search` of a predicate into this tree. A leaf without a field of its own goes
to the search's column; over all columns it becomes one leaf per field, any of which may match, so
that booleans combine per row. A field that cannot hold what a leaf asks for drops out. A row need
not have words that are all stop words of a field they are asked of: no index holds them. Synonyms
are put in here, so every way of searching has the same.

Values that numbers, dates and their like can never equal are refused. `n:abc` finds nothing
whatever the rows are, and `NOT n:abc` everything; both are mistakes. Where a search names no field,
a word is asked of the fields that it fits.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Generic, TypeAlias, TypeVar
from zoneinfo import ZoneInfo

import pyarrow as pa

from indextables.config import MAX_EXPANSIONS, parse_synonyms
from indextables.errors import (
    QueryError,
    SearchCallError,
    SearchValueError,
    TooManyClausesError,
    UnknownFieldError,
)
from indextables.predicate import (
    All,
    Boolean,
    Boost,
    Exists,
    FieldNode,
    Phrase,
    Range,
    Search,
    SearchNode,
    Term,
    TermSet,
    Wildcard,
)
from indextables.predicate.names import escaped_field, resolve_field
from indextables.predicate.tree import ColumnKind
from indextables.schema.conformity import default_texts
from indextables.split.analyzer import Analyzer
from indextables.split.ip_address import parse_addresses
from indextables.split.leaves import Path
from indextables.split.mapping import FieldMapping, TableMapping
from indextables.split.search.engine import balanced
from indextables.split.search.typed import UTC, could_be_value, is_value

Item = TypeVar("Item")
_KEPT_CLAUSES = 16_384
"""So many clauses of queries are kept bound, some hundreds of bytes each."""
_REMEMBERED_KEYS = 4_096
_KEPT_QUERY = 8
"""A query takes as much room as so many clauses, however few it has."""


class RepeatCache(Generic[Item]):
    """Values that never change by their keys, bounded by their sizes. Safe between threads.

    A value is kept from the second time that it is made; before that only the last one is. Most
    searches are not repeated, and keeping one takes longer than dropping it. A pickled cache is
    empty, because a key may be the identity of an object.
    """

    def __init__(self, max_size: int) -> None:
        """`max_size` bounds the sizes of all values together; one may take an eighth of it."""
        self._max_size = max_size
        self._size = 0
        self._last: tuple[Hashable, Item] | None = None
        self._items: dict[Hashable, tuple[Item, int]] = {}
        self._made_before: set[int] = set()
        self._lock = threading.Lock()

    def get(self, key: Hashable, make: Callable[[], tuple[Item, int]]) -> Item:
        """The value of a key, cached or made now; `make` also returns its size."""
        last = self._last
        if last is not None and last[0] == key:
            return last[1]
        kept = self._items.get(key)
        if kept is not None:
            return kept[0]
        # Two threads may make the same value; both are right.
        item, size = make()
        self._last = key, item
        if size <= self._max_size // 8:
            with self._lock:
                self._keep(key, item, size)
        return item

    def _keep(self, key: Hashable, item: Item, size: int) -> None:
        if hash(key) not in self._made_before:
            if len(self._made_before) >= _REMEMBERED_KEYS:
                self._made_before.clear()
            self._made_before.add(hash(key))
            return
        self._size += size - self._items.pop(key, (None, 0))[1]
        self._items[key] = item, size
        while self._size > self._max_size:
            self._size -= self._items.pop(next(iter(self._items)))[1]

    def __len__(self) -> int:
        return len(self._items)

    def __reduce__(self) -> tuple[type[RepeatCache[Item]], tuple[int]]:
        return RepeatCache, (self._max_size,)


@dataclass(frozen=True)
class SearchContext:
    """The context of a search: schema and mapping of the table, a time zone and limits."""

    schema: pa.Schema
    mapping: TableMapping
    zone: ZoneInfo = UTC
    max_expansions: int = MAX_EXPANSIONS.default

    @functools.cached_property
    def defaults(self) -> Mapping[str, str]:
        """The columns in which rows may have a value that their split does not have."""
        return default_texts(self.schema)

    def resolved(self, search: Search) -> Query:
        """A search bound to the fields of the mapping; the same one is not bound again soon.

        The same is the same object: to compare two takes longer than to bind one.
        """
        resolved = self._resolved.get(id(search), lambda: self._resolve(search))
        return resolved[1]

    @functools.cached_property
    def _resolved(self) -> RepeatCache[tuple[Search, Query]]:
        return RepeatCache(_KEPT_CLAUSES)

    def _resolve(self, search: Search) -> tuple[tuple[Search, Query], int]:
        query, clauses = _Resolver(search, self.mapping, self.schema).resolve()
        # The search is kept as well, so that its id is not used again.
        return (search, query), _KEPT_QUERY + clauses


def check_values(
    field: FieldMapping, node: FieldNode, path: Path, data_type: pa.DataType, *, query: str
) -> None:
    """Refuse a question with a text that is not a value of the field's type."""
    if isinstance(node, Exists) or (field.has_words and not path):
        return
    shown = ".".join([field.name, *path])
    inner = None if field.kind == "ip" else type_at(data_type, path)
    if field.kind == "ip":
        texts, form = _texts(node, patterns=True), "an address such as 10.0.0.1, 10.0.0.0/8 or ::1"
    elif inner is None or pa.types.is_nested(inner) or _is_text(inner):
        return
    else:
        texts, form = _texts(node), expected_form(inner)
    if texts is None:
        raise SearchValueError(shown, "a pattern or fuzzy term", expected=form, query=query)
    for text in texts:
        if not (parse_addresses(text) if inner is None else is_value(text, inner)):
            raise SearchValueError(
                shown, repr(text), expected=form, query=query, text=text, at=node.at
            )


def _texts(node: FieldNode, *, patterns: bool = False) -> list[str] | None:
    """The values that a node names; None if it asks for words."""
    match node:
        case Term(text=text) | Phrase(text=text, prefix=False):
            return [text]
        case TermSet(values=values):
            return list(values)
        case Range(lower=lower, upper=upper):
            return [bound for bound in (lower, upper) if bound is not None]
        case Wildcard(parts=parts) if patterns:
            return ["".join(p if isinstance(p, str) else p.value for p in parts)]
        case _:
            return None


def _is_text(data_type: pa.DataType) -> bool:
    return (
        pa.types.is_string(data_type)
        or pa.types.is_binary(data_type)
        or pa.types.is_null(data_type)
    )


def expected_form(data_type: pa.DataType) -> str:
    """How values of a type are written in a search."""
    if pa.types.is_boolean(data_type):
        return "true or false"
    if pa.types.is_date(data_type):
        return "a date such as 2024-01-31"
    if pa.types.is_timestamp(data_type):
        return (
            "a time such as 2024-01-31T12:00:00Z, a date such as 2024-01-31, or seconds, "
            "milliseconds or microseconds since 1970"
        )
    return "a number such as 42 or -2.5"


def type_at(data_type: pa.DataType, path: Path) -> pa.DataType | None:
    """The type of the values at a path, if the schema has it."""
    for name in path:
        while pa.types.is_list(data_type):
            data_type = data_type.value_type
        if pa.types.is_map(data_type):
            data_type = data_type.item_type
        elif pa.types.is_struct(data_type) and data_type.get_field_index(name) >= 0:
            data_type = data_type.field(name).type
        else:
            return None
    while pa.types.is_list(data_type):
        data_type = data_type.value_type
    return data_type


@dataclass(frozen=True, slots=True)
class Leaf:
    """One question to one field, or to what lies at a path inside its column."""

    field: FieldMapping
    node: FieldNode
    path: Path = ()


@dataclass(frozen=True, slots=True)
class Every:
    """All rows."""


@dataclass(frozen=True, slots=True)
class Combined:
    """As `Boolean`: all of `must`, none of `must_not`, any of `should` unless there is a `must`.

    With neither `must` nor `should` it matches nothing.
    """

    must: tuple[Query, ...] = ()
    should: tuple[Query, ...] = ()
    must_not: tuple[Query, ...] = ()


@dataclass(frozen=True, slots=True)
class Boosted:
    """The same rows, the score multiplied."""

    child: Query
    factor: float


Query: TypeAlias = Leaf | Every | Combined | Boosted
NOTHING = Combined()

_NO_FIELD = (All, Boolean, Boost)
MAX_CLAUSES = 32_768
"""The most words that a query may ask for, counted once for each field that they are asked of."""
LEAF_LEVELS = 16
"""A bound for the levels of one leaf in Tantivy: a phrase may be a tree of thousands of words."""


def resolve(search: Search, mapping: TableMapping, schema: pa.Schema) -> Query:
    """Bind a search to the fields of a mapping; an unknown field or too many are an error."""
    return _Resolver(search, mapping, schema).resolve()[0]


def check_kind(name: str, field: FieldMapping, kind: ColumnKind) -> None:
    """Refuse a column that TEXTSEARCH or FIELDMATCH is not for."""
    if field.is_tokenized == (kind == "words"):
        return
    if kind == "words":
        raise SearchCallError(
            "textsearch",
            f"is for columns of words, and '{name}' is indexed as {field.kind}, its whole values. "
            "Use fieldmatch or indexquery, or map the column as text.",
        )
    raise SearchCallError(
        "fieldmatch",
        f"is for columns whose values are searched as a whole, and '{name}' is indexed as "
        f"{field.kind}, by its words. Use textsearch or indexquery, or map the column as string.",
    )


class _Resolver:
    def __init__(self, search: Search, mapping: TableMapping, schema: pa.Schema) -> None:
        self.search = search
        self.mapping = mapping
        self.schema = schema
        self.named: dict[str, tuple[FieldMapping, Path]] = {}
        self.plain: dict[str | None, list[FieldMapping]] = {}
        """The fields by a name, if a word is asked of them as it is."""
        columns = search.columns if search.column is None else (search.column,)
        self.targets: Sequence[tuple[FieldMapping, Path]] = [
            (self._field(column.root, column.path[1:]), column.path[1:]) for column in columns
        ] or [(field, ()) for field in mapping.searchable]
        self._note_plain(None, self.targets)
        if search.kind is not None:
            for field, _ in self.targets[: len(columns)]:
                check_kind(field.name, field, search.kind)

    def resolve(self) -> tuple[Query, int]:
        """The query, and how many clauses it has."""
        clauses = self._clauses()
        if clauses > MAX_CLAUSES:
            raise TooManyClausesError(
                self.search.text, found=clauses, fields=len(self.targets), limit=MAX_CLAUSES
            )
        return self.bind(self.search.query), clauses

    def _clauses(self) -> int:
        """How many words the query asks of how many fields, before any clause is made."""
        total, everywhere = 0, len(self.targets)
        left = [self.search.query]
        while left:
            node = left.pop()
            if type(node) is Boolean:
                left += (*node.must, *node.should, *node.must_not)
            elif type(node) is Boost:
                left.append(node.child)
            elif isinstance(node, _NO_FIELD):
                continue
            elif self.mapping.has_synonyms and isinstance(node, (Term, Phrase)):
                fields = self.targets if node.field is None else [self._named(node)[::2]]
                leaves = (Leaf(field, node, path) for field, path in fields)
                total += sum(
                    _word_count(one.node) for leaf in leaves for one in with_synonyms(leaf)
                )
            else:
                total += _word_count(node) * (everywhere if node.field is None else 1)
        return total

    def bind(self, node: SearchNode) -> Query:
        if type(node) is Term and (fields := self.plain.get(node.field)):  # the usual case
            if len(fields) == 1:
                return Leaf(fields[0], node)
            return Combined(should=tuple([Leaf(field, node) for field in fields]))
        match node:
            case All():
                return Every()
            case Boost(child=child, factor=factor):
                return Boosted(self.bind(child), factor)
            case Boolean(must=must, should=should, must_not=must_not):
                if must_not and not must and not should:
                    return Combined((Every(),), (), self._bind_all(must_not))
                spared = [
                    child for child in must if self.mapping.has_stop_words and self._drops(child)
                ]
                needed = [child for child in must if child not in spared] if spared else must
                return Combined(
                    self._bind_all(needed),
                    self._bind_all((*spared, *should)),
                    self._bind_all(must_not),
                )
            case _ if node.field is None:
                if self.search.column is not None:
                    self._check(Leaf(self.targets[0][0], node, self.targets[0][1]))
                leaves = [Leaf(field, node, path) for field, path in self.targets]
                return any_of([one for leaf in leaves for one in with_synonyms(leaf)])
            case _:
                leaf = self._check(Leaf(*self._named(node)))
                return any_of(list(with_synonyms(leaf)))

    def _drops(self, node: SearchNode) -> bool:
        """Whether all words of a node are stop words in a field that it asks."""
        match node:
            case Boost(child=child):
                return self._drops(child)
            case Boolean(must=must, should=should):
                # One word that is asked of several fields by their names is still one word.
                words: dict[object, bool] = {}
                for child in should:
                    word = _without_field(child)
                    words[word] = words.get(word, False) or self._drops(child)
                drops = all(words.values()) and all(map(self._drops, must))
                return drops and bool(must or should)
            case Term(text=text) | Phrase(text=text):
                fields = self.targets if node.field is None else [self._named(node)[::2]]
                return any(
                    field.has_words
                    and field.analyzer.drops(text)
                    and not (field.kind == "json" and could_be_value(text, pa.null()))
                    for field, _ in fields
                )
            case _:
                return False

    def _bind_all(self, nodes: Sequence[SearchNode]) -> tuple[Query, ...]:
        return tuple(map(self.bind, nodes))

    def _check(self, leaf: Leaf) -> Leaf:
        if leaf.field.has_words and not leaf.path:
            return leaf
        data_type = self.schema.field(leaf.field.name).type
        check_values(leaf.field, leaf.node, leaf.path, data_type, query=self.search.text)
        return leaf

    def _named(self, node: FieldNode) -> tuple[FieldMapping, FieldNode, Path]:
        name = node.field or ""
        target = self.named.get(name)
        if target is None:
            resolved = resolve_field(name, self.schema)
            if resolved is None:
                raise UnknownFieldError(name, available=self.schema.names, query=self.search.text)
            target = self.named[name] = self._field(*resolved), resolved[1]
            self._note_plain(name, [target])
        return target[0], node, target[1]

    def _note_plain(self, name: str | None, fields: Sequence[tuple[FieldMapping, Path]]) -> None:
        if all(field.has_words and not path and not field.synonyms for field, path in fields):
            self.plain[name] = [field for field, _ in fields]

    def _field(self, name: str, path: Sequence[str] = ()) -> FieldMapping:
        field = self.mapping.by_name.get(name)
        if field is None:
            raise UnknownFieldError(name, available=self.schema.names, query=self.search.text)
        if not field.indexed:
            raise QueryError(
                f"The field '{name}' is stored only and cannot be searched. Compare it with SQL "
                "conditions, or take it out of spark.indextables.indexing.storeonlyfields. A "
                "search index has the columns that it was created with."
            )
        if path and field.kind != "json":
            raise UnknownFieldError(
                escaped_field([name, *path]),
                available=self.schema.names,
                query=self.search.text,
                reason=f"'{name}' is indexed as {field.kind} and has nothing inside; only json "
                "fields and nested columns have paths",
            )
        return field


def with_synonyms(leaf: Leaf) -> list[Leaf]:
    """A word or a whole phrase as the query has it, or what the synonyms of its field say.

    Words are compared as the analyzer of the field makes them. Several words are a phrase.
    """
    match leaf.node:
        case Term(text=text) | Phrase(text=text, slop=0, prefix=False) if leaf.field.synonyms:
            rules = _rules_of(leaf.field.synonyms, leaf.field.analyzer)
            alternatives = rules.get(_words_of(leaf.field.analyzer, text))
            if alternatives is not None:
                field, at = leaf.node.field, leaf.node.at
                return [replace(leaf, node=Phrase(field, one, at=at)) for one in alternatives]
    return [leaf]


@functools.lru_cache(maxsize=64)
def _rules_of(synonyms: str, analyzer: Analyzer) -> dict[tuple[str, ...], tuple[str, ...]]:
    """The synonyms of words; alternatives with the same words count once."""
    rules: dict[tuple[str, ...], dict[tuple[str, ...], str]] = {}
    for source, alternatives in parse_synonyms(synonyms):
        words = _words_of(analyzer, source)
        if words:
            texts_of = rules.setdefault(words, {})
            for alternative in alternatives:
                texts_of.setdefault(_words_of(analyzer, alternative), alternative)
    return {words: tuple(texts_of.values()) for words, texts_of in rules.items()}


def _words_of(analyzer: Analyzer, text: str) -> tuple[str, ...]:
    return tuple(word.text for word in analyzer.query_words(text))


def _word_count(node: FieldNode) -> int:
    if isinstance(node, (Term, Phrase)):
        return len(node.text.split()) or 1
    return len(node.values) or 1 if isinstance(node, TermSet) else 1


def levels(query: Query) -> int:
    """How deeply Tantivy's query of a search is nested at most: what its stack must hold."""
    if type(query) is Leaf:
        return LEAF_LEVELS
    match query:
        case Leaf() | Every():
            return LEAF_LEVELS
        case Boosted(child=child):
            return 1 + levels(child)
        case Combined(must=must, should=should, must_not=must_not):
            groups = [list(map(levels, part)) for part in (must, should)]
            sums = [sum_levels(part) for part in groups]
            return 1 + max([LEAF_LEVELS, *sums, *map(levels, must_not)])


def sum_levels(parts: Sequence[int]) -> int:
    """The levels of a balanced sum."""
    if len(set(parts)) == 1:
        return parts[0] + (len(parts) - 1).bit_length()
    return balanced([(part, None) for part in parts], lambda *_: None)[0] if parts else 0


def any_of(queries: Sequence[Query]) -> Query:
    """The rows of any of several queries."""
    return queries[0] if len(queries) == 1 else Combined(should=tuple(queries))


def with_fields(query: Query, mapping: TableMapping) -> Query:
    """The same query for the fields of another mapping; a column it lacks is null."""
    match query:
        case Leaf(field=field, node=node, path=path):
            mapped = mapping.by_name.get(field.name)
            return NOTHING if mapped is None else Leaf(mapped, node, path)
        case Boosted(child=child, factor=factor):
            return Boosted(with_fields(child, mapping), factor)
        case Combined(must=must, should=should, must_not=must_not):
            return Combined(
                tuple(with_fields(child, mapping) for child in must),
                tuple(with_fields(child, mapping) for child in should),
                tuple(with_fields(child, mapping) for child in must_not),
            )
        case Every():
            return query


def leaves_of(query: Query) -> Iterator[Leaf]:
    """Every leaf, from left to right."""
    left = [query]
    while left:
        node = left.pop()
        if type(node) is Leaf:
            yield node
        elif isinstance(node, Combined):
            left += (*node.must, *node.should, *node.must_not)[::-1]
        elif isinstance(node, Boosted):
            left.append(node.child)


def columns_of(query: Query) -> tuple[str, ...]:
    """The columns a query looks at, each once."""
    return tuple(dict.fromkeys(leaf.field.name for leaf in leaves_of(query)))


def _without_field(node: SearchNode) -> SearchNode:
    """A word or phrase as it was before it was asked of a field; others as they are."""
    inner = node
    while isinstance(inner, Boost):
        inner = inner.child
    return replace(inner, field=None) if isinstance(inner, (Term, Phrase)) else node
