"""Random tables: columns of every kind, mappings, layouts, and conditions that search them."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

import pyarrow as pa
import random_predicates as plain
from hypothesis import strategies as st

from indextables import Table
from indextables.errors import QueryError
from indextables.predicate import (
    Column,
    Compare,
    In,
    IsNull,
    Predicate,
    Search,
)
from indextables.predicate.search_syntax import parse_search
from indextables.split.mapping import TableMapping
from indextables.split.search.query import resolve

WORDS = ["a", "A", "b", "ab", "B", "42", "é", "x-y", "10.0.0.1", "spark", "2024-01-01"]
WORD = st.sampled_from(WORDS)
SENTENCE = st.lists(WORD, max_size=5).map(" ".join) | plain.TEXT
JSON = st.sampled_from(
    ['{"k": "a b", "n": 42}', '{"k": ["a", {"l": "b"}]}', "{}", "[1, 2]", "no json", "null", ""]
)
ADDRESS = st.sampled_from(["10.0.0.1", "10.0.0.255", "::1", "2001:db8::7", "no address", ""])

EXTRA = pa.schema(
    [
        ("text", pa.string()),
        ("two words", pa.string()),
        ("a.b", pa.string()),
        ("ünï`codé", pa.string()),
        ("json", pa.string()),
        ("ip", pa.string()),
        ("l", pa.list_(pa.field("element", pa.string()))),
        ("numbers", pa.list_(pa.field("element", pa.int32()))),
        ("map", pa.map_(pa.string(), pa.field("value", pa.int64()))),
        (
            "deep",
            pa.list_(
                pa.field(
                    "element",
                    pa.struct(
                        [("w", pa.string()), ("l", pa.list_(pa.field("element", pa.bool_())))]
                    ),
                )
            ),
        ),
    ]
)
TEXTS = ("text", "two words", "a.b", "ünï`codé")
EVERYTHING = pa.schema([*plain.SCHEMA, *EXTRA])
_EXTRA_VALUES: dict[str, st.SearchStrategy[Any]] = {
    "text": SENTENCE,
    "two words": SENTENCE,
    "a.b": SENTENCE,
    "ünï`codé": SENTENCE,
    "json": JSON,
    "ip": ADDRESS,
    "l": st.lists(st.none() | SENTENCE, max_size=3),
    "numbers": st.lists(st.none() | st.integers(-3, 50), max_size=3),
    "map": st.dictionaries(WORD, st.none() | st.integers(-1, 3), max_size=2).map(
        lambda d: list(d.items())
    ),
    "deep": st.lists(
        st.none()
        | st.fixed_dictionaries(
            {"w": st.none() | SENTENCE, "l": st.none() | st.lists(st.booleans(), max_size=2)}
        ),
        max_size=2,
    ),
}
# Types a column may have before it is widened to the one of EVERYTHING.
NARROW = {
    "i": pa.int32(),
    "n": pa.int8(),
    "f": pa.float32(),
    "m": pa.decimal128(6, 1),
    "numbers": pa.list_(pa.field("element", pa.int16())),
}
# A column of these kinds may be named as a fast field.
FAST = ("i", "n", "f", "g", "b", "d", "t", "u", "m", "numbers")
TOKENIZERS = ("default", "raw", "whitespace", "en_stem", "ngram(1,3)", "fr_stem")


def values_of(name: str) -> st.SearchStrategy[Any]:
    """Values of a column of EVERYTHING, null included."""
    if name in _EXTRA_VALUES:
        return st.none() | _EXTRA_VALUES[name]
    if name == "st":
        return st.none() | st.fixed_dictionaries(
            {"k": st.none() | plain.VALUES[pa.int32()], "v v": st.none() | plain.TEXT}
        )
    return st.none() | plain.VALUES[EVERYTHING.field(name).type]


@dataclass(frozen=True)
class RandomTable:
    """Rows and the way they get into a table.

    `chunks` are appended one after the other, each with its own schema; `rows` are all of them in
    the final one. The column `rid` numbers the rows.
    """

    chunks: tuple[pa.Table, ...]
    rows: pa.Table
    partition_by: tuple[str, ...]
    mapping: dict[str, str]
    options: dict[str, str] = field(default_factory=dict)

    def create(self, uri: str, config: Mapping[str, object]) -> Table:
        """The table at a place, one append a chunk."""
        table = Table.create(
            uri,
            self.chunks[0].schema,
            partition_by=self.partition_by,
            mapping=self.mapping,
            properties=self.options,
            config=config,
        )
        for chunk in self.chunks:
            table.append(chunk, merge_schema=True)
        return table


@st.composite
def tables(draw: st.DrawFn, *, max_rows: int = 8) -> RandomTable:
    """A table with columns of any kinds, in any layout."""
    names = draw(st.lists(st.sampled_from(EVERYTHING.names), min_size=1, max_size=6, unique=True))
    schema = pa.schema([("rid", pa.int64()), *(EVERYTHING.field(n) for n in names)])
    row = st.fixed_dictionaries({n: values_of(n) for n in names})
    drawn = draw(st.lists(row, max_size=max_rows))
    for number, values in enumerate(drawn):
        values["rid"] = number
    cuts = sorted(draw(st.lists(st.integers(0, len(drawn)), max_size=3)))
    bounds = [0, *cuts, len(drawn)]
    parts = [drawn[a:b] for a, b in itertools.pairwise(bounds)]
    able = [n for n in names if _can_partition(n)]
    partition_by = (
        tuple(draw(st.lists(st.sampled_from(able), max_size=2, unique=True))) if able else ()
    )
    if not draw(st.booleans()):
        partition_by = ()
    change = st.lists(st.sampled_from(names), max_size=2, unique=True)
    later = [n for n in draw(change) if n not in partition_by]
    narrow = [n for n in draw(change) if n in NARROW and n not in (*partition_by, *later)]
    first = pa.schema(
        [
            f.with_type(NARROW[f.name]) if f.name in narrow else f
            for f in schema
            if f.name not in later
        ]
    )
    for values in parts[0]:
        for name in later:
            values[name] = None
        for name in narrow:
            values[name] = _fitting(name, values[name])
    chunks = [pa.Table.from_pylist(parts[0], first)]
    chunks += [pa.Table.from_pylist(part, schema) for part in parts[1:]]
    if len(chunks) == 1:
        schema = first
    mapping, options = draw(_mappings(schema, partition_by))
    if later or narrow:
        # An option of a column that is not there yet would be refused.
        known = set(first.names) - set(narrow)
        mapping = {n: k for n, k in mapping.items() if n in known}
        options = {
            k: v
            for k, v in options.items()
            if set(v.split(",")) <= known or not k.endswith("fields")
            if ".tokenizer." not in k or k.rpartition(".tokenizer.")[2] in known
        }
    order = (
        [*schema.names] if not later else [*first.names, *(n for n in schema.names if n in later)]
    )
    final = pa.schema([schema.field(n) for n in order])
    if len(chunks) == 1:
        final = first
    rows = pa.Table.from_pylist([values for part in parts for values in part], final)
    return RandomTable(tuple(chunks), rows, partition_by, mapping, options)


def _can_partition(name: str) -> bool:
    kind = EVERYTHING.field(name).type
    return not (pa.types.is_nested(kind) or pa.types.is_binary(kind))


def _fitting(name: str, value: Any) -> Any:
    """The value if its narrow type can hold it."""
    if isinstance(value, int):
        return value if -128 <= value < 128 else None
    if isinstance(value, float):
        return value if math.isnan(value) or value in (0.0, 1.5, -1.5, math.inf) else None
    if isinstance(value, Decimal):
        return value if value == round(value, 1) else None
    return value


@st.composite
def _mappings(
    draw: st.DrawFn, schema: pa.Schema, partition_by: tuple[str, ...]
) -> tuple[dict[str, str], dict[str, str]]:
    prefix = "spark.indextables."
    mapping: dict[str, str] = {}
    options: dict[str, str] = {
        f"{prefix}text.indexRecordOption": draw(st.sampled_from(["position", "freq", "basic"]))
    }
    store_only, fast = [], []
    for name in schema.names:
        choice = draw(st.integers(0, 5))
        if name in ("s", "text", "two words", "a.b", "ünï`codé", "l"):
            if choice == 0:
                mapping[name] = "string"
            elif choice == 1 and name != "l":
                mapping[name] = draw(st.sampled_from(["json", "ip"]))
            elif choice == 2:
                options[f"{prefix}indexing.tokenizer.{name}"] = draw(st.sampled_from(TOKENIZERS))
            elif choice == 3:
                store_only.append(name)
        elif name == "json" and choice < 6:
            mapping[name] = "json"
        elif name == "ip" and choice < 6:
            mapping[name] = "ip"
            if choice < 3 and name not in partition_by:
                fast.append(name)
        elif name in FAST and choice < 3 and name not in partition_by:
            fast.append(name)
        elif choice == 5 and name != "rid":
            store_only.append(name)
    options[f"{prefix}indexing.fastfields"] = ",".join(fast)
    options[f"{prefix}indexing.storeonlyfields"] = ",".join(store_only)
    return mapping, options


# --- conditions ------------------------------------------------------------------------------

_LEAF_QUERIES = st.one_of(
    WORD,
    st.lists(WORD, min_size=2, max_size=3).map(lambda w: f'"{" ".join(w)}"'),
    st.sampled_from(
        ["a*", "*b", "?b", "s*k", "sparc~1", "ab~2", '"a b"~2', "[a TO b]", "{a TO *]", "*"]
    ),
    st.sampled_from(["[1 TO 42]", "<10", ">=0", "true", "1.5", "2024-01-01", "[2024-01-01 TO *]"]),
    st.sampled_from(["10.0.0.*", "10.0.0.0/24", "/a.*/", "IN [a b 42]", "ab^2", "-1", "\\-1"]),
)
QUERIES = st.recursive(
    _LEAF_QUERIES,
    lambda inner: st.one_of(
        st.tuples(inner, inner).map(" AND ".join),
        st.tuples(inner, inner).map(" OR ".join),
        st.tuples(inner, inner).map(" ".join),
        inner.map(lambda q: f"NOT ({q})"),
        inner.map(lambda q: f"({q})"),
        st.tuples(inner, inner).map(lambda q: f"+({q[0]}) -({q[1]})"),
    ),
    max_leaves=3,
)


@st.composite
def searches(draw: st.DrawFn, schema: pa.Schema, mapping: TableMapping) -> Search:
    """A search over one column, or over all, that the mapping can answer."""
    searchable = [f.name for f in mapping.fields if f.indexed]
    name = draw(st.none() | st.sampled_from(searchable))
    plain = draw(QUERIES)
    query = plain
    if name is None and "json" in searchable and draw(st.booleans()):
        query = draw(st.sampled_from(["json.k:a", "json.n:42", "json:b", "json.k.l:b"]))
    found = search(query, schema, column=name)
    return found if can_answer(found, mapping, schema) else search(plain, schema)


def can_answer(search: Search, mapping: TableMapping, schema: pa.Schema) -> bool:
    """Whether a search makes sense: `n:abc` does not."""
    try:
        resolve(search, mapping, schema)
    except QueryError:
        return False
    return True


def search(query: str, schema: pa.Schema, *, column: str | None = None) -> Search:
    """A search as the parser makes it of text."""
    target = None if column is None else Column((column,))
    shown = "_indexall" if target is None else str(target)
    return Search(target, parse_search(query, field=shown, schema=schema), query)


def conditions(schema: pa.Schema) -> st.SearchStrategy[Predicate]:
    """Trees of SQL conditions over the columns of a schema, without searches."""
    return plain.trees(_leaves(schema))


def conditions_with_search(
    schema: pa.Schema, mapping: TableMapping
) -> st.SearchStrategy[Predicate]:
    """Trees of SQL conditions and of searches of the searchable columns."""
    leaves = _leaves(schema) | searches(schema, mapping)
    texts = [Column((name,)) for name in TEXTS if name in schema.names]
    if texts:
        # Texts that share words with others without being equal to them.
        column, value = st.sampled_from(texts), WORD | SENTENCE
        leaves |= st.builds(Compare, st.sampled_from(["=", "<>", "<=>"]), column, value)
        leaves |= st.builds(In, column, st.lists(value, min_size=1, max_size=3).map(tuple))
    return plain.trees(leaves)


def _leaves(schema: pa.Schema) -> st.SearchStrategy[Predicate]:
    simple = [c for c in plain.COLUMNS if _same(c, schema)]
    null = st.sampled_from(schema.names).map(lambda name: IsNull(Column((name,))))
    return plain.conditions(simple) | null if simple else null


def _same(column: Column, schema: pa.Schema) -> bool:
    # Literals are drawn for the type that the column has in the end.
    return column.root in schema.names and schema.field(column.root).type.equals(
        plain.SCHEMA.field(column.root).type
    )


def shown(rows: pa.Table) -> list[str]:
    """Rows as texts, equal exactly when the rows are; NaN equals itself, -0.0 is not 0.0."""
    return [repr(row) for row in rows.to_pylist()]
