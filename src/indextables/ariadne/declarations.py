"""What an index keeps about the columns of its files: one declaration for each index column.

There are seven kinds. A *regular*, *computed* or *exploded* index column keeps the distinct values
of each file, a *temporal* one the values with their newest time, a *bloom* one a filter, a *range*
one the least and the greatest value, a *text* one the words. Each has a name that queries and joins
use, and no two share a name: a column has one kind of index.

Declarations are data. `check` refuses one that cannot be kept, with everything that is wrong with
it.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar, Literal, TypeAlias

import pyarrow as pa

from indextables.errors import AriadneArgumentError, ColumnNotFoundError

IndexKind: TypeAlias = Literal[
    "regular", "computed", "exploded", "temporal", "bloom", "range", "text"
]
Types: TypeAlias = Mapping[str, pa.DataType]
"""The type of the values of each index column, by its name."""


@dataclass(frozen=True, slots=True)
class Regular:
    """The distinct values of a column."""

    kind: ClassVar[IndexKind] = "regular"
    column: str

    @property
    def name(self) -> str:
        """The name of the index column in queries and joins."""
        return self.column


@dataclass(frozen=True, slots=True)
class Computed:
    """The distinct values of a Spark SQL expression over a row."""

    kind: ClassVar[IndexKind] = "computed"
    name: str
    expression: str


@dataclass(frozen=True, slots=True)
class Exploded:
    """The distinct values of a field of the structs in an array."""

    kind: ClassVar[IndexKind] = "exploded"
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

    kind: ClassVar[IndexKind] = "temporal"
    column: str
    timestamp_column: str

    @property
    def name(self) -> str:
        """The value column."""
        return self.column


@dataclass(frozen=True, slots=True)
class Bloom:
    """A bloom filter of a column's values."""

    kind: ClassVar[IndexKind] = "bloom"
    column: str
    fpr: float = 0.01

    @property
    def name(self) -> str:
        """The column."""
        return self.column


@dataclass(frozen=True, slots=True)
class Range:
    """The least and the greatest value of a column."""

    kind: ClassVar[IndexKind] = "range"
    column: str

    @property
    def name(self) -> str:
        """The column."""
        return self.column


@dataclass(frozen=True, slots=True)
class Text:
    """The words of a column of text."""

    kind: ClassVar[IndexKind] = "text"
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
VALUE_KINDS: frozenset[IndexKind] = frozenset(("regular", "computed", "exploded"))
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
    columns: dict[str, pa.DataType] = {f"nulls_{name}": pa.int64()}
    if declaration.kind in VALUE_KINDS:
        columns[f"distinct_{name}"] = pa.int64()
        columns[f"large_{name}"] = pa.string()
        columns[f"auto_bloom_{name}"] = pa.binary()
    return columns


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
        """The names of the index columns in queries and joins."""
        return tuple(d.name for d in self.all)

    def get(self, name: str) -> Declaration | None:
        """The declaration of a name."""
        return next((d for d in self.all if d.name == name), None)

    def of_kind(self, *kinds: IndexKind) -> tuple[Declaration, ...]:
        """The declarations of some kinds."""
        return tuple(d for d in self.all if d.kind in kinds)

    def missing_from(self, built: frozenset[str]) -> Declarations:
        """Those whose storage column is not among the built ones."""
        return Declarations(tuple(d for d in self.all if storage_column(d) not in built))

    def with_(self, declaration: Declaration) -> Declarations:
        """These and one more, in the order of kinds. One that is declared changes nothing."""
        if declaration in self.all:
            return self
        return Declarations(tuple(sorted((*self.all, declaration), key=lambda d: _ORDER[d.kind])))


def needed_columns(declaration: Declaration) -> tuple[str, ...]:
    """The columns that a declaration reads; those of an expression are not known here."""
    match declaration:
        case Computed():
            return ()
        case Exploded():
            return (declaration.array_column,)
        case Temporal():
            return (declaration.column, declaration.timestamp_column)
        case _:
            return (declaration.column,)


def element_type(data_type: Any, path: str) -> Any:
    """The type of a field of the structs in an array, by its dotted path; None if it is missing."""
    return _field_inside(data_type.value_type, path)


def field_type(schema: pa.Schema, path: str) -> pa.DataType | None:
    """The type of a column, or of a field inside structs by its dotted path."""
    if path in schema.names:
        data_type: pa.DataType = schema.field(path).type
        return data_type
    first, _, nested = path.partition(".")
    if not nested or first not in schema.names:
        return None
    return _field_inside(schema.field(first).type, nested)


def _field_inside(data_type: Any, path: str) -> pa.DataType | None:
    for part in path.split("."):
        if not pa.types.is_struct(data_type) or part not in [f.name for f in data_type.fields]:
            return None
        data_type = data_type.field(part).type
    return data_type  # type: ignore[no-any-return]


def not_comparable(data_type: Any) -> str | None:
    """Why values of a type cannot be index values; None if they can.

    >>> not_comparable(pa.map_(pa.string(), pa.int32()))
    'maps cannot be compared'
    """
    if data_type is None:
        return "there is no such field"
    if pa.types.is_map(data_type):
        return "maps cannot be compared"
    if pa.types.is_struct(data_type):
        return next(filter(None, (not_comparable(f.type) for f in data_type.fields)), None)
    if pa.types.is_list(data_type):
        return not_comparable(data_type.value_type)
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


def check(new: Declaration, declared: Declarations, schema: pa.Schema) -> None:
    """Refuse a declaration that cannot be kept, with everything that is wrong with it.

    `ColumnNotFoundError` if a column is missing, `AriadneArgumentError` otherwise.
    """
    if no_texts := list(_no_texts(new)):
        raise AriadneArgumentError(f"Cannot add the {new.kind} index", no_texts)
    missing = list(_missing(new, schema))
    wrong = [*_bad_names(new), *_bad_types(new, schema), *_clashes(new, declared)]
    attempt = f"Cannot add the {new.kind} index '{new.name}'"
    if missing:
        raise ColumnNotFoundError(attempt, [*missing, *wrong], available=schema.names)
    if wrong:
        raise AriadneArgumentError(attempt, wrong)


def _no_texts(new: Declaration) -> Iterator[str]:
    for part in (p.name for p in fields(new) if p.name != "fpr"):
        if not isinstance(value := getattr(new, part), str):
            yield f"{part} is {value!r}, which is not text"
    if isinstance(new, Bloom) and not isinstance(new.fpr, float | int):
        yield f"fpr is {new.fpr!r}, which is not a number"


def _missing(new: Declaration, schema: pa.Schema) -> Iterator[str]:
    for position, column in enumerate(needed_columns(new)):
        nested = isinstance(new, Temporal) and position == 1
        if column in schema.names or (nested and field_type(schema, column) is not None):
            continue
        near = difflib.get_close_matches(column, schema.names, n=1, cutoff=0.7)
        near = near or [n for n in schema.names if n.lower() == column.lower()]
        yield f"there is no column '{column}'" + (f", did you mean '{near[0]}'?" if near else "")


def _bad_names(new: Declaration) -> Iterator[str]:
    name = new.name
    if not name or not name.strip():
        yield "the name is empty"
    if "." in name:
        yield f"'{name}' is nested; index columns have plain names. Use a computed index for it"
    if name in STAGING or storage_column(new) in FIXED:
        yield f"'{name}' is a name that index tables use themselves"
    if isinstance(new, Computed) and not new.expression.strip():
        yield "the expression is empty"
    if isinstance(new, Exploded) and not new.field_path.strip():
        yield "the field path is empty"
    if isinstance(new, Bloom) and not 0 < new.fpr < 1:
        yield f"the false positive rate lies between 0 and 1, not at {new.fpr}"


def _bad_types(new: Declaration, schema: pa.Schema) -> Iterator[str]:
    match new:
        case Computed():
            return
        case Exploded():
            data_type = field_type(schema, new.array_column)
            if data_type is not None and not pa.types.is_list(data_type):
                yield f"'{new.array_column}' is not an array"
            elif data_type is not None and (
                reason := not_comparable(element_type(data_type, new.field_path))
            ):
                yield f"'{new.array_column}' has elements without '{new.field_path}': {reason}"
        case Text():
            data_type = field_type(schema, new.column)
            if data_type is not None and not pa.types.is_string(data_type):
                yield f"'{new.column}' is not text"
        case Range():
            data_type = field_type(schema, new.column)
            if data_type is not None and pa.types.is_nested(data_type):
                yield f"'{new.column}' has no order"
        case _:
            data_type = field_type(schema, new.column)
            if data_type is not None and (reason := not_comparable(data_type)):
                yield f"'{new.column}': {reason}"
            if isinstance(new, Temporal):
                yield from _bad_time(new, schema)
                if data_type is not None and pa.types.is_nested(data_type):
                    yield f"'{new.column}' is nested; temporal indexes are over plain values"


def _bad_time(new: Temporal, schema: pa.Schema) -> Iterator[str]:
    data_type = field_type(schema, new.timestamp_column)
    if data_type is not None and pa.types.is_nested(data_type):
        yield f"'{new.timestamp_column}' has no order"
    if new.column == new.timestamp_column:
        yield "value and time are the same column"


def _clashes(new: Declaration, declared: Declarations) -> Iterator[str]:
    same = declared.get(new.name)
    if same is not None and same.kind != new.kind:
        yield f"'{new.name}' has a {same.kind} index already; a column has one kind of index"
    elif same is not None and same != new:
        yield f"'{new.name}' is already declared, as {same}; remove the index to declare it again"
    if same is not None:
        return
    owners = {c.lower(): d for d in declared for c in (storage_column(d), *companions(d))}
    for column in (storage_column(new), *companions(new)):
        if owner := owners.get(column.lower()):
            yield f"it needs the index table's column '{column}', which '{owner.name}' has"
            return
