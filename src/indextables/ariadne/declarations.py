"""What an index keeps about the columns of its files: one declaration for each index column.

Seven kinds. A *regular*, *computed* or *exploded* index column keeps the distinct values of each
file, a *temporal* one the values with their newest time, a *bloom* one a filter, a *range* one
the least and greatest value, a *text* one the words. Each has a name under which it is asked for
and joined, and no two of them share one: a column has one kind.

Declarations are data; `declaration_checks` tells which ones cannot be kept.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, TypeAlias

import pyarrow as pa

Kind: TypeAlias = Literal["regular", "computed", "exploded", "temporal", "bloom", "range", "text"]
Types: TypeAlias = Mapping[str, pa.DataType]
"""The type of the values of each index column, by its name."""


@dataclass(frozen=True, slots=True)
class Regular:
    """The distinct values of a column."""

    kind: ClassVar[Kind] = "regular"
    column: str

    @property
    def name(self) -> str:
        """The name under which the index column is asked for."""
        return self.column


@dataclass(frozen=True, slots=True)
class Computed:
    """The distinct values of a Spark SQL expression over a row."""

    kind: ClassVar[Kind] = "computed"
    name: str
    expression: str


@dataclass(frozen=True, slots=True)
class Exploded:
    """The distinct values of a field of the structs in an array."""

    kind: ClassVar[Kind] = "exploded"
    array_column: str
    field_path: str
    as_column: str

    @property
    def name(self) -> str:
        """The alias."""
        return self.as_column


@dataclass(frozen=True, slots=True)
class Temporal:
    """The distinct values of a column, each with the newest time it has in the file."""

    kind: ClassVar[Kind] = "temporal"
    column: str
    timestamp_column: str

    @property
    def name(self) -> str:
        """The value column."""
        return self.column


@dataclass(frozen=True, slots=True)
class Bloom:
    """A bloom filter of a column's values."""

    kind: ClassVar[Kind] = "bloom"
    column: str
    fpr: float = 0.01

    @property
    def name(self) -> str:
        """The column."""
        return self.column


@dataclass(frozen=True, slots=True)
class Range:
    """The least and the greatest value of a column."""

    kind: ClassVar[Kind] = "range"
    column: str

    @property
    def name(self) -> str:
        """The column."""
        return self.column


@dataclass(frozen=True, slots=True)
class Text:
    """The words of a column of text."""

    kind: ClassVar[Kind] = "text"
    column: str

    @property
    def name(self) -> str:
        """The column."""
        return self.column


Declaration: TypeAlias = Regular | Computed | Exploded | Temporal | Bloom | Range | Text

_PREFIXES: dict[str, str] = {"bloom": "bloom_", "range": "range_", "text": "text_"}
_ORDER: dict[str, int] = {
    kind: number
    for number, kind in enumerate(
        ("regular", "computed", "exploded", "bloom", "temporal", "range", "text")
    )
}
VALUE_KINDS: frozenset[Kind] = frozenset(("regular", "computed", "exploded"))
"""Kinds that keep distinct values, as an array or in a large table."""

FIXED = ("filename", "file_size", "modification_time", "etag", "row_count", "failure", "built",
         "settings")  # fmt: skip
"""Columns of an index row that say something about the file itself."""
STAGING = ("_ariadne_staged_at", "_ariadne_batch_id", "_ariadne_base")
"""Columns that only staged rows have."""


def storage_column(declaration: Declaration) -> str:
    """The column of an index row that holds what the declaration keeps; its name in `built`.

    >>> storage_column(Bloom("user")), storage_column(Regular("user"))
    ('bloom_user', 'user')
    """
    return _PREFIXES.get(declaration.kind, "") + declaration.name


def companions(declaration: Declaration) -> dict[str, pa.DataType]:
    """Further columns of an index row that belong to a declaration, and their types.

    >>> list(companions(Regular("user")))
    ['nulls_user', 'distinct_user', 'large_user', 'auto_bloom_user']
    """
    name = declaration.name
    found: dict[str, pa.DataType] = {f"nulls_{name}": pa.int64()}
    if declaration.kind in VALUE_KINDS:
        found[f"distinct_{name}"] = pa.int64()
        found[f"large_{name}"] = pa.string()
        found[f"auto_bloom_{name}"] = pa.binary()
    return found


@dataclass(frozen=True, slots=True)
class Declarations:
    """All index columns of an index, kind by kind as metadata.json has them."""

    all: tuple[Declaration, ...] = field(default=())

    def __iter__(self) -> Iterator[Declaration]:
        return iter(self.all)

    def __len__(self) -> int:
        return len(self.all)

    @property
    def names(self) -> tuple[str, ...]:
        """The names under which index columns are asked for."""
        return tuple(d.name for d in self.all)

    @property
    def storage_columns(self) -> tuple[str, ...]:
        """The columns of index rows that hold them: the names in `built`."""
        return tuple(storage_column(d) for d in self.all)

    def get(self, name: str) -> Declaration | None:
        """The declaration of a name."""
        return next((d for d in self.all if d.name == name), None)

    def of_kind(self, *kinds: Kind) -> tuple[Declaration, ...]:
        """The declarations of some kinds."""
        return tuple(d for d in self.all if d.kind in kinds)

    def missing_from(self, built: frozenset[str]) -> Declarations:
        """Those whose storage column is not among the built ones."""
        return Declarations(tuple(d for d in self.all if storage_column(d) not in built))

    def with_(self, declaration: Declaration) -> Declarations:
        """These and one more, in the order of kinds. One that is there already changes nothing."""
        if declaration in self.all:
            return self
        return Declarations(tuple(sorted((*self.all, declaration), key=lambda d: _ORDER[d.kind])))


def needed_columns(declaration: Declaration) -> tuple[str, ...]:
    """The columns of the files that a declaration reads; of an expression nobody knows here."""
    match declaration:
        case Computed():
            return ()
        case Exploded():
            return (declaration.array_column,)
        case Temporal():
            return (declaration.column, declaration.timestamp_column)
        case _:
            return (declaration.column,)


def element_type(kind: Any, path: str) -> Any:
    """The type of a field, by its dotted path, of the structs in an array; None if it has none."""
    found = kind.value_type
    for part in path.split("."):
        if not pa.types.is_struct(found) or part not in [f.name for f in found.fields]:
            return None
        found = found.field(part).type
    return found


def field_type(schema: pa.Schema, path: str) -> pa.DataType | None:
    """The type of a column, or of a field inside structs by its dotted path."""
    if path in schema.names:
        kind: pa.DataType = schema.field(path).type
        return kind
    first, _, rest = path.partition(".")
    if not rest or first not in schema.names:
        return None
    found: Any = schema.field(first).type
    for part in rest.split("."):
        if not pa.types.is_struct(found) or part not in [f.name for f in found.fields]:
            return None
        found = found.field(part).type
    return found  # type: ignore[no-any-return]


def not_comparable(kind: Any) -> str | None:
    """Why values of a type cannot be index values; None if they can.

    >>> not_comparable(pa.map_(pa.string(), pa.int32()))
    'maps cannot be compared'
    """
    if kind is None:
        return "there is no such field"
    if pa.types.is_map(kind):
        return "maps cannot be compared"
    if pa.types.is_struct(kind):
        return next(filter(None, (not_comparable(f.type) for f in kind.fields)), None)
    if pa.types.is_list(kind):
        return not_comparable(kind.value_type)
    return None


def types_of(declarations: Declarations, schema: pa.Schema, computed: Types) -> dict[str, Any]:
    """The type of each index column's values: of columns from the schema, else as computed."""
    return {d.name: type_of(d, schema, computed.get(d.name)) for d in declarations}


def type_of(declaration: Declaration, schema: pa.Schema, computed: pa.DataType | None) -> Any:
    """The type of one index column's values; `computed` is that of its expression."""
    match declaration:
        case Computed():
            return computed
        case Exploded():
            array: Any = field_type(schema, declaration.array_column)
            return element_type(array, declaration.field_path)
        case _:
            return field_type(schema, declaration.column)
