"""From configuration to a mapping: every option checked, every problem in one message.

Names of fields in options are case-insensitive, and a nested path is checked by its column. What
an option cannot do is a problem too: an option that is accepted has an effect.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Any, cast

import pyarrow as pa

from indextables.config import (
    DEFAULT_STRING_KIND,
    FAST_FIELDS,
    FIELD_RECORD_OPTION,
    FIELD_TOKEN_LENGTH,
    STORE_ONLY_FIELDS,
    TEXT_MAX_TOKEN_LENGTH,
    TEXT_RECORD_OPTION,
    TOKENIZER,
    TYPE_MAP,
    Config,
    KeyFamily,
)
from indextables.errors import SchemaError, names_shown
from indextables.schema import dimension_of
from indextables.split.analyzer import (
    MAX_TOKEN_LENGTH,
    AnalyzerError,
    canonical_tokenizer,
    parse_token_length,
)
from indextables.split.mapping import (
    MAX_FAST_DECIMAL,
    RECORDS,
    WORDS,
    FieldKind,
    FieldMapping,
    Record,
    TableMapping,
    natural_kind,
    numbered,
)

_TYPE_NAMES: dict[str, FieldKind] = {
    "text": "text",
    "string": "string",
    "json": "json",
    "object": "json",
    "ip": "ip",
    "ipaddr": "ip",
}


def build_mapping(
    schema: pa.Schema,
    config: Config,
    *,
    partition_by: Iterable[str] = (),
    base: TableMapping | None = None,
) -> TableMapping:
    """The mapping of a schema under a configuration.

    `base` is the mapping that the table has: its choices stay unless an option names the field,
    and its fields keep their place in the index.
    """
    return _Options(schema, config, tuple(partition_by), base).mapping()


def analyzers_by_column(schema: pa.Schema, config: Config) -> dict[str, str]:
    """The analyzers that options name, by the columns that they name them for."""
    options = _Options(schema, config, (), None)
    return {column: value for _, column, value in options.options_of(TOKENIZER, _is_tokenizer)}


class _Options:
    """Collects what the options say about each column, and what is wrong with them."""

    def __init__(
        self,
        schema: pa.Schema,
        config: Config,
        partition_by: tuple[str, ...],
        base: TableMapping | None,
    ) -> None:
        self.schema = schema
        self.config = config
        self.partition_by = partition_by
        self.base = base
        self.problems: list[str] = []
        self.by_lower: dict[str, str] = {name.lower(): name for name in schema.names}

    def mapping(self) -> TableMapping:
        kinds = self._kinds()
        store_only = set(self._listed(STORE_ONLY_FIELDS.name, self.config[STORE_ONLY_FIELDS]))
        fast = set(self._listed(FAST_FIELDS.name, self.config[FAST_FIELDS]))
        fields = {
            f.name: self._start(f, kinds.get(f.name), f.name in store_only, f.name in fast)
            for f in self.schema
        }
        self._default_length(fields, kinds)
        self._per_field(fields, TOKENIZER, self._set_tokenizer, _is_tokenizer)
        self._per_field(fields, FIELD_RECORD_OPTION, self._set_record, RECORDS.__contains__)
        self._per_field(fields, FIELD_TOKEN_LENGTH, self._set_length, _is_length)
        if self.problems:
            raise SchemaError(
                "The indexing options do not fit the table:\n  "
                + "\n  ".join(self.problems)
                + f"\nAvailable fields: {names_shown(self.schema.names)}."
            )
        return numbered(fields.values(), base=self.base)

    # --- names ---

    def _column(self, key: str, name: str) -> str | None:
        """The column that an option names, by its root."""
        lowered = name.strip().lower()
        while lowered:
            if lowered in self.by_lower:
                alike = [n for n in self.schema.names if n.lower() == lowered]
                if len(alike) > 1:
                    self.problems.append(
                        f"{key}: it could mean {' or '.join(map(repr, alike))}, and options do not "
                        "know upper from lower case; rename one of them"
                    )
                    return None
                return self.by_lower[lowered]
            lowered = lowered.rpartition(".")[0]
        self.problems.append(f"{key}: there is no field '{name.strip()}'")
        return None

    def _listed(self, key: str, names: str) -> list[str]:
        listed = (self._column(key, name) for name in names.split(",") if name.strip())
        return [name for name in listed if name is not None]

    def _per_field(
        self,
        fields: dict[str, FieldMapping],
        family: KeyFamily,
        change: Callable[[str, FieldMapping, str], FieldMapping],
        is_value: Callable[[str], bool],
    ) -> None:
        for key, column, value in self.options_of(family, is_value):
            fields[column] = change(key, fields[column], value)

    def options_of(
        self, family: KeyFamily, is_value: Callable[[str], bool]
    ) -> Iterator[tuple[str, str, str]]:
        """Key, column and value of `family.<field> = value` and `family.<value> = field,field`."""
        for name, text in self.config[family].items():
            key, value = family.name + name, text.strip()
            columns: list[str | None] = []
            if is_value(name) and (name not in self.by_lower or not is_value(value)):
                columns, value = list(self._listed(key, text)), name
            else:
                columns = [self._column(key, name)]
            for column in columns:
                if column is not None:
                    yield key, column, value

    # --- kinds ---

    def _kinds(self) -> dict[str, FieldKind]:
        chosen: dict[str, FieldKind] = {}
        for name, value in self.config[TYPE_MAP].items():
            key = TYPE_MAP.name + name
            type_name = value.strip().lower()
            if type_name in _TYPE_NAMES and (name in self.by_lower or name not in _TYPE_NAMES):
                columns: list[str | None] = [self._column(key, name)]
            elif name in _TYPE_NAMES:
                type_name, columns = name, list(self._listed(key, value))
            else:
                self.problems.append(
                    f"{key}: there is no type '{value}'; there are {', '.join(_TYPE_NAMES)}"
                )
                continue
            for column in columns:
                if column is not None:
                    self._choose(chosen, key, column, _TYPE_NAMES[type_name])
        return chosen

    def _choose(self, chosen: dict[str, FieldKind], key: str, column: str, kind: FieldKind) -> None:
        natural = natural_kind(self.schema.field(column).type)
        if natural not in ("text", kind):
            self.problems.append(f"{key}: '{column}' is {natural}, not text, and cannot be {kind}")
        elif chosen.get(column, kind) != kind:
            self.problems.append(f"{key}: '{column}' is {chosen[column]} by another option")
        else:
            chosen[column] = kind

    def _start(
        self, column: pa.Field[Any], chosen: FieldKind | None, store_only: bool, fast: bool
    ) -> FieldMapping:
        """The field before options of its words are applied."""
        old = self.base.by_name.get(column.name) if self.base else None
        natural = natural_kind(column.type)
        kind = chosen or natural
        if kind == "text" and chosen is None:
            kind = cast(FieldKind, self.config[DEFAULT_STRING_KIND])
        if old is not None and chosen is None and (natural in ("text", old.kind)):
            field = old
        else:
            words = kind in ("text", "json")
            field = FieldMapping(
                column.name,
                kind,
                tokenizer="default" if words else "raw" if kind == "string" else "",
                record=cast(Record, self.config[TEXT_RECORD_OPTION]) if words else "basic",
            )
        if fast or (old is not None and old.fast and kind == "decimal"):  # it may be wider now
            self._check_fast(column, field.kind)
        return replace(
            field,
            indexed=field.indexed
            and not store_only
            and field.kind != "bytes"
            and dimension_of(column) is None,  # a number inside a vector is never meant
            fast=(fast or (old is not None and old.fast)) and not store_only,
            partition=column.name in self.partition_by,
        )

    def _check_fast(self, column: pa.Field[Any], kind: FieldKind) -> None:
        decimal = column.type
        while pa.types.is_list(decimal):
            decimal = decimal.value_type
        if kind == "bytes":
            self.problems.append(f"{FAST_FIELDS.name}: '{column.name}' is binary, not indexed")
        elif kind in WORDS:
            self.problems.append(
                f"{FAST_FIELDS.name}: '{column.name}' is {kind}; only numbers, dates, booleans and "
                "addresses gain from a column in the index"
            )
        elif kind == "decimal" and decimal.precision > MAX_FAST_DECIMAL:
            self.problems.append(
                f"{FAST_FIELDS.name}: '{column.name}' has more than {MAX_FAST_DECIMAL} digits"
            )
        elif column.name in self.partition_by:
            self.problems.append(f"{FAST_FIELDS.name}: '{column.name}' is a partition column")

    # --- words ---

    def _default_length(self, fields: dict[str, FieldMapping], kinds: dict[str, FieldKind]) -> None:
        value = self.config[TEXT_MAX_TOKEN_LENGTH]
        length = parse_token_length(value)
        if length is None:
            self.problems.append(
                f"{TEXT_MAX_TOKEN_LENGTH.name}: {value!r} must be between 1 and {MAX_TOKEN_LENGTH}"
            )
            return
        for name, field in fields.items():
            kept = self.base is not None and name in self.base.by_name and name not in kinds
            if field.kind in ("text", "json") and not kept:
                fields[name] = replace(field, token_length=length)

    def _set_tokenizer(self, key: str, field: FieldMapping, value: str) -> FieldMapping:
        if field.kind not in ("text", "json"):
            self.problems.append(f"{key}: '{field.name}' is {field.kind} and has no tokenizer")
        else:
            try:
                old = self.base.by_name.get(field.name) if self.base else None
                return replace(
                    field, tokenizer=canonical_tokenizer(value, old=old.tokenizer if old else "")
                )
            except AnalyzerError as wrong:
                self.problems.append(f"{key}: {wrong}")
        return field

    def _set_record(self, key: str, field: FieldMapping, value: str) -> FieldMapping:
        if field.kind not in ("text", "json"):
            self.problems.append(f"{key}: '{field.name}' is {field.kind} and has no words in order")
        elif value.lower() not in RECORDS:
            self.problems.append(f"{key}: {value!r} is none of {', '.join(RECORDS)}")
        else:
            return replace(field, record=cast(Record, value.lower()))
        return field

    def _set_length(self, key: str, field: FieldMapping, value: str) -> FieldMapping:
        length = parse_token_length(value)
        if not field.has_words:
            self.problems.append(f"{key}: '{field.name}' is {field.kind} and has no words")
        elif length is None:
            self.problems.append(f"{key}: {value!r} must be between 1 and {MAX_TOKEN_LENGTH}")
        else:
            return replace(field, token_length=length)
        return field


def _is_tokenizer(name: str) -> bool:
    try:
        canonical_tokenizer(name)
    except AnalyzerError:
        return False
    return True


def _is_length(text: str) -> bool:
    return parse_token_length(text) is not None
