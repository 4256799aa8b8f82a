"""The mapping: how each column of a table is searched.

A column of text is indexed by Tantivy: as `text` (words), `string` (the whole value), `json` (the
words of every leaf; nested columns always) or `ip`. Numbers, booleans, dates, timestamps and
decimals are compared in their Parquet column, which is exact and costs the index nothing; a *fast*
field is indexed as well. Binary columns are stored only.

Columns get names of their own inside the index (`f0`, `f1` …), so that a column may be called
anything. The log keeps the mapping as `docMappingJson`, in the shape of the Scala product plus our
keys. `fingerprint` identifies the words an index holds: a query may use an index only if it would
produce the same ones.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

import orjson
import pyarrow as pa
import tantivy

from indextables.errors import SchemaError
from indextables.schema.types import is_variant
from indextables.split.analyzer import (
    MAX_TOKEN_LENGTH,
    PIPELINE_VERSION,
    Analyzer,
    AnalyzerError,
    parse_chain,
)

FieldKind = Literal[
    "text", "string", "json", "ip", "i64", "f64", "bool", "date", "timestamp", "decimal", "bytes"
]
Record = Literal["position", "freq", "basic"]

KINDS: tuple[FieldKind, ...] = get_args(FieldKind)
RECORDS: tuple[Record, ...] = get_args(Record)
WORDS: frozenset[FieldKind] = frozenset(("text", "string", "json"))
"""Kinds that are words in the index."""

MAPPING_PROPERTY = "indextables.mapping"
"""The table property that holds the mapping of the table's columns."""

ROW_FIELD = "_row"
"""Present in every index: the row number, so that the order of segments can be proved."""
LEVEL_FIELD = "_level"
"""Finds rows with a low hash: see `row_hash`."""

_SCALA_TYPES: dict[FieldKind, str] = {
    "string": "text", "json": "object", "date": "datetime", "timestamp": "datetime",
    "decimal": "f64",
}  # fmt: skip
_FIRST_WORD = re.compile(r"[^\w]")
_RETIRED = {"retired": True}
_HASHED = {"hashed": True}
MAX_FAST_DECIMAL = 18
"""Decimals with more digits do not fit the index's 64-bit integers."""


@dataclass(frozen=True, slots=True)
class FieldMapping:
    """How one column is searched.

    `field` is its name in the index, empty if the index does not hold it. A column that is not
    `indexed` is not searched at all; one in a `partition` is the same value for a whole split.
    """

    name: str
    kind: FieldKind
    field: str = ""
    indexed: bool = True
    fast: bool = False
    tokenizer: str = ""
    token_length: int = MAX_TOKEN_LENGTH
    record: Record = "basic"
    partition: bool = False
    synonyms: str = dataclasses.field(default="", compare=False, repr=False)
    """What else a search for a word of this field finds, as the table's property says. No index
    depends on it, so it is not part of a stored mapping."""

    @property
    def analyzer(self) -> Analyzer:
        """The analyzer of a field of words."""
        return _analyzer(self.tokenizer or "raw", self.token_length)

    @property
    def has_words(self) -> bool:
        """Whether the column is searched by words."""
        return self.kind in WORDS

    @property
    def is_tokenized(self) -> bool:
        """Whether values are cut into words, and are not one each."""
        return self.kind in ("text", "json") and not self.analyzer.is_whole

    @property
    def fingerprint(self) -> str:
        """Equal for two mappings of a column exactly when their indexes hold the same words."""
        return _fingerprint(self.kind, self.indexed, self.analyzer if self.has_words else None)

    def to_document(self) -> dict[str, Any]:
        """The entry of `docMappingJson`."""
        document: dict[str, Any] = {
            "name": self.name,
            "type": _SCALA_TYPES.get(self.kind, self.kind),
            "fast": self.fast,
            "indexed": self.indexed,
            "stored": not self.partition,
            "kind": self.kind,
        }
        if self.field:
            document["field"] = self.field
        if self.partition:
            document["partition"] = True
        if self.has_words:
            document |= {
                "tokenizer": self.tokenizer,
                "record": self.record,
                "tokenLength": self.token_length,
                "fingerprint": self.fingerprint,
            }
        return document


_analyzer = functools.lru_cache(maxsize=1024)(Analyzer)  # every word of a query asks for it


@functools.lru_cache(maxsize=1024)
def _fingerprint(kind: FieldKind, indexed: bool, analyzer: Analyzer | None) -> str:
    pipeline = analyzer.pipeline if analyzer else ""
    canonical = f"{PIPELINE_VERSION}|{kind}|{indexed}|{pipeline}"
    return hashlib.sha256(canonical.encode()).hexdigest()[:16]


@dataclass(frozen=True)
class TableMapping:
    """How the columns of a table or of one split are searched, in the order of its schema.

    Fields of dropped columns are `retired`: they keep their place in the index and are empty in
    splits that are written from then on, so that segments of older splits still fit.
    """

    fields: tuple[FieldMapping, ...]
    retired: tuple[FieldMapping, ...] = ()
    hashed: bool = False
    """Whether a split has a hash of every row: see `row_hash`. Those of older tables have none."""

    @functools.cached_property
    def by_name(self) -> Mapping[str, FieldMapping]:
        """The fields by their column's exact name."""
        return {f.name: f for f in self.fields}

    @functools.cached_property
    def has_stop_words(self) -> bool:
        """Whether a column leaves some words out."""
        return any(field.has_words and field.analyzer.has_stop_words for field in self.fields)

    @functools.cached_property
    def has_synonyms(self) -> bool:
        """Whether words of a query stand for others."""
        return any(field.synonyms for field in self.fields)

    @functools.cached_property
    def in_memory(self) -> TableMapping:
        """The same columns in an index in memory, where partition columns are indexed as well."""
        return numbered(replace(f, partition=False, field="") for f in self.fields)

    @property
    def searchable(self) -> tuple[FieldMapping, ...]:
        """What `_indexall` means: every indexed field that is not a partition column."""
        return tuple(f for f in self.fields if f.indexed and not f.partition)

    @property
    def indexed(self) -> tuple[FieldMapping, ...]:
        """The fields that the Tantivy index holds, in the order of their number there."""
        return tuple(sorted((f for f in self.fields if f.field), key=lambda f: int(f.field[1:])))

    @property
    def places(self) -> tuple[FieldMapping, ...]:
        """The fields of the index's schema: those that it holds, and retired ones."""
        return tuple(sorted((*self.indexed, *self.retired), key=lambda f: int(f.field[1:])))

    def with_synonyms(self, text: str) -> TableMapping:
        """The mapping of a table whose columns of words are searched with synonyms."""
        if not text.strip():
            return self
        fields = (replace(f, synonyms=text) if f.is_tokenized else f for f in self.fields)
        return replace(self, fields=tuple(fields))

    def to_json(self, *, with_synonyms: bool = False) -> str:
        """The `docMappingJson` of the log; with synonyms, all that a search needs elsewhere."""
        fields = [f.to_document() for f in self.fields]
        if with_synonyms:
            carried = [{"synonyms": f.synonyms} if f.synonyms else {} for f in self.fields]
            fields = [f | more for f, more in zip(fields, carried, strict=True)]
        fields += [f.to_document() | _RETIRED for f in self.retired]
        return orjson.dumps([f | _HASHED for f in fields] if self.hashed else fields).decode()

    @classmethod
    def from_json(cls, text: str | bytes) -> TableMapping:
        """Read a `docMappingJson`, ours or the Scala product's."""
        try:
            document = orjson.loads(text)
            entries = document["field_mappings"] if isinstance(document, dict) else document
            both = [(_field_from_document(entry), "retired" in entry) for entry in entries]
            mapping = cls(
                tuple(field for field, is_retired in both if not is_retired),
                tuple(field for field, is_retired in both if is_retired),
                hashed=any("hashed" in entry for entry in entries),
            )
            names = [f.name for f in mapping.fields], [f.field for f in mapping.indexed]
            if any(len(set(values)) < len(values) for values in names):
                raise ValueError("a column or a field of the index occurs twice")
            return mapping
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise SchemaError(f"The mapping in the log cannot be read: {error!r}.") from None

    def select(self, names: Iterable[str]) -> TableMapping:
        """The mapping of some columns, in the mapping's order."""
        chosen = set(names)
        return replace(self, fields=tuple(f for f in self.fields if f.name in chosen))

    def without(self, names: Iterable[str]) -> TableMapping:
        """The mapping after columns were dropped; their fields are retired."""
        dropped = set(names)
        retired = tuple(f for f in self.fields if f.name in dropped and f.field)
        kept = tuple(f for f in self.fields if f.name not in dropped)
        return replace(self, fields=kept, retired=self.retired + retired)

    def tantivy_schema(self) -> tantivy.Schema:
        """The schema of the index.

        Row number and level come first and fields follow by number, so that the schema of a table
        with added columns begins with the old one: segments of both can then be searched as one
        index.
        """
        builder = tantivy.SchemaBuilder()
        builder.add_unsigned_field(ROW_FIELD, fast=True)
        if self.hashed:
            builder.add_unsigned_field(LEVEL_FIELD, indexed=True)
        for field in self.places:
            match field.kind:
                case "text" | "string" | "json":
                    builder.add_text_field(
                        field.field,
                        tokenizer_name=tokenizer_name(field),
                        index_option=field.record,
                    )
                case "ip":
                    builder.add_ip_addr_field(field.field, indexed=True, fast=field.fast)
                case "f64":
                    builder.add_float_field(field.field, indexed=True, fast=field.fast)
                case _:
                    builder.add_integer_field(field.field, indexed=True, fast=field.fast)
        return builder.build()

    def register(self, index: tantivy.Index) -> tantivy.Index:
        """Give an index its analyzers: Tantivy does not store them."""
        for field in self.places:
            if field.has_words:
                index.register_tokenizer(tokenizer_name(field), field.analyzer.build())
        return index


def tokenizer_name(field: FieldMapping) -> str:
    """The name of a field's analyzer in the index, the same for equal analyzers."""
    digest = hashlib.sha256(field.analyzer.pipeline.encode()).hexdigest()[:8]
    # Spellings of one analyzer begin with one word: what is stored is its shortest.
    return f"{_FIRST_WORD.split(field.tokenizer, maxsplit=1)[0]}_{digest}"


def compatible(index: TableMapping, query: TableMapping, names: Iterable[str]) -> bool:
    """Whether a split's index answers a query that was made for another mapping.

    If not, the rows have to be scanned: the index holds other words than the query looks for.
    """
    return all(
        (indexed := index.by_name.get(name)) is not None
        and (declared := query.by_name.get(name)) is not None
        and indexed.fingerprint == declared.fingerprint
        for name in names
    )


def _field_from_document(entry: Mapping[str, Any]) -> FieldMapping:
    kind: FieldKind | None = entry.get("kind")
    tokenizer = entry.get("tokenizer")
    if kind is None:
        by_type: dict[str, FieldKind] = {"object": "json", "datetime": "timestamp"}
        kind = by_type.get(entry["type"], entry["type"])
        if kind == "text" and tokenizer == "raw":
            kind = "string"
    if kind not in KINDS:
        raise ValueError(f"no such kind of field: {kind}")
    words = kind in WORDS
    name, record = entry["name"], entry.get("record", "position")
    length = int(entry.get("tokenLength", MAX_TOKEN_LENGTH))
    texts = (name, tokenizer or "") if words else (name,)
    if not all(isinstance(text, str) for text in texts) or record not in RECORDS:
        raise ValueError(f"the field {name!r} has values of other types")
    if not 1 <= length <= MAX_TOKEN_LENGTH:
        raise ValueError(f"the field {name!r} has words of at most {length} bytes")
    tokenizer = _known_tokenizer(name, tokenizer or "default", entry) if words else ""
    return FieldMapping(
        name=name,
        kind=kind,
        field=_checked(entry.get("field", "")),
        indexed=bool(entry.get("indexed", True)),
        fast=bool(entry.get("fast", False)),
        tokenizer=tokenizer,
        token_length=length,
        record=record if words else "basic",
        partition=bool(entry.get("partition", False)),
        synonyms=str(entry.get("synonyms", "")),
    )


def _known_tokenizer(name: str, tokenizer: str, entry: Mapping[str, Any]) -> str:
    """The tokenizer of a field of words. Names of other products that this one lacks mean the
    default; a chain that this version does not have must not be searched by other words."""
    try:
        parse_chain(tokenizer)
    except AnalyzerError as error:
        is_ours = "fingerprint" in entry or "(" in tokenizer or tokenizer.endswith("_stem")
        if is_ours:
            raise ValueError(
                f"the field {name!r} has the analyzer {tokenizer!r}: {error}. A newer version of "
                "IndexTables may have written it"
            ) from None
        return "default"
    return tokenizer


def _checked(field: str) -> str:
    if field and not (field[0] == "f" and field[1:].isdecimal()):
        raise ValueError(f"{field!r} is not the name of a field in the index")
    return field


def natural_kind(data_type: pa.DataType) -> FieldKind:
    """How a column of a type is searched by default.

    >>> natural_kind(pa.list_(pa.int32())), natural_kind(pa.map_(pa.string(), pa.string()))
    ('i64', 'json')
    """
    types = pa.types
    if is_variant(data_type):
        return "bytes"
    if types.is_list(data_type):
        inner = natural_kind(data_type.value_type)
        return "json" if inner in ("json", "bytes") else inner
    if types.is_integer(data_type):
        return "i64"
    if types.is_floating(data_type):
        return "f64"
    if types.is_boolean(data_type):
        return "bool"
    if types.is_date(data_type):
        return "date"
    if types.is_timestamp(data_type):
        return "timestamp"
    if types.is_decimal(data_type):
        return "decimal"
    if types.is_binary(data_type):
        return "bytes"
    return "text" if types.is_string(data_type) else "json"


def numbered(fields: Iterable[FieldMapping], *, base: TableMapping | None = None) -> TableMapping:
    """Give the fields that need one a name in the index; those of `base` keep theirs."""
    field_names = {f.name: f.field for f in (base.fields if base else ()) if f.field}
    retired = base.retired if base else ()
    last = max(
        (int(f[1:]) for f in (*field_names.values(), *(r.field for r in retired))), default=-1
    )
    result = []
    for field in fields:
        name = ""
        if (
            field.indexed
            and not field.partition
            and (field.fast or field.has_words or field.kind == "ip")
        ):
            name = field_names.get(field.name, "")
            if not name:
                last += 1
                name = f"f{last}"
        result.append(replace(field, field=name))
    return TableMapping(tuple(result), retired, hashed=base is None or base.hashed)
