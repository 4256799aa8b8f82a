"""What a key is: its sections, and how its values are written."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

from indextables.config import origin
from indextables.errors import InvalidValueError, SynonymsError

_SIZE = re.compile(r"\s*(\d+(?:\.\d+)?|\.\d+)\s*([KMGT]?)(?:i?B)?\s*", re.IGNORECASE)
_SIZE_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}
_DURATION = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([a-z]*)\s*", re.IGNORECASE)
_DURATION_UNITS = {
    **dict.fromkeys(("", "ms", "millisecond", "milliseconds"), 1),
    **dict.fromkeys(("s", "sec", "second", "seconds"), 1_000),
    **dict.fromkeys(("m", "min", "minute", "minutes"), 60_000),
    **dict.fromkeys(("h", "hour", "hours"), 3_600_000),
    **dict.fromkeys(("d", "day", "days"), 86_400_000),
}
_BOOLEANS = {"true": True, "yes": True, "1": True, "on": True} | dict.fromkeys(
    ("false", "no", "0", "off"), False
)


def parse_size(value: object, *, name: str = "size") -> int:
    """Read a number of bytes: `123`, `"100M"`, `"1.5G"`; K, M, G and T are powers of 1,024.

    >>> parse_size("1.5G")
    1610612736
    """
    if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        return value
    match = _SIZE.fullmatch(str(value))
    if match is None:
        raise InvalidValueError(name, value, 'a size in bytes such as 1048576, "100M" or "1.5G"')
    return int(float(match[1]) * _SIZE_UNITS[match[2].upper()])


def parse_duration_ms(value: object, *, name: str = "duration") -> int:
    """Read a duration as milliseconds: `500`, `"500"`, `"5s"`, `"2 hours"`, `"30 days"`.

    >>> parse_duration_ms("2 hours")
    7200000
    """
    match = _DURATION.fullmatch(str(value))
    if match is None or match[2].lower() not in _DURATION_UNITS or isinstance(value, bool):
        raise InvalidValueError(name, value, 'milliseconds, or "5s", "2 hours" …')
    return int(float(match[1]) * _DURATION_UNITS[match[2].lower()])


def parse_boolean(value: object, *, name: str = "flag") -> bool:
    """Read true or false.

    >>> parse_boolean("TRUE")
    True
    """
    parsed = value if isinstance(value, bool) else _BOOLEANS.get(str(value).strip().lower())
    if parsed is None:
        raise InvalidValueError(name, value, "true or false")
    return parsed


MAX_SYNONYMS = 10_000
MAX_ALTERNATIVES = 100
"""A word may stand for so many at the most, all lines together."""

Rules = tuple[tuple[str, tuple[str, ...]], ...]
"""Each text that a query may have, and what is searched in its place."""


@functools.lru_cache(maxsize=64)
def parse_synonyms(text: str) -> Rules:
    """The rules of a list of synonyms; `SynonymsError` says which line is wrong, and why.

        car, automobile, motor car      each of them finds all of them
        ny => new york                  `ny` finds the phrase, and not itself
        tv => tv, television            `tv` finds both; `television` finds itself alone

    Lines end with a line feed or a semicolon; what follows `#` is a comment. A rule is applied once
    to what a query says and never to what a rule made of it, so circles do no harm.

    >>> parse_synonyms("car, auto; ny => new  york")
    (('car', ('car', 'auto')), ('auto', ('car', 'auto')), ('ny', ('new york',)))
    """
    rules: dict[str, dict[str, None]] = {}
    for number, line in enumerate(text.replace(";", "\n").splitlines(), 1):
        rule = line.partition("#")[0].strip()
        for source, alternatives in _rule(rule, number) if rule else ():
            merged = rules.setdefault(source, {})
            merged.update(dict.fromkeys(alternatives))
            if len(merged) > MAX_ALTERNATIVES:
                raise SynonymsError(
                    f"'{source}' stands for more than {MAX_ALTERNATIVES} words", line=number
                )
        if len(rules) > MAX_SYNONYMS:
            raise SynonymsError(f"there are more than {MAX_SYNONYMS:,} words", line=number)
    return tuple((source, tuple(merged)) for source, merged in rules.items())


def _rule(rule: str, number: int) -> Iterator[tuple[str, list[str]]]:
    sides = [_texts(side) for side in rule.split("=>")]
    if len(sides) > 2 or not all(all(side) for side in sides):
        raise SynonymsError(f"'{rule}' is not a rule", line=number)
    if len(sides) == 1 and len(sides[0]) == 1:
        raise SynonymsError(f"'{rule}' is one word without an alternative", line=number)
    for source in sides[0]:
        yield source, sides[-1]


def _texts(side: str) -> list[str]:
    return [" ".join(text.split()) for text in side.split(",")]


PREFIX = "spark.indextables."
OLD_PREFIX = "spark.tantivy4spark."
ARIADNE_PREFIX = "spark.ariadne."


def short_name(name: str) -> str | None:
    """A key of this package or of the Scala product, without its prefix and in lower case."""
    lowered = name.strip().lower()
    prefix = next((p for p in (PREFIX, OLD_PREFIX) if lowered.startswith(p)), None)
    return None if prefix is None else lowered[len(prefix) :]


def storage_key(name: str) -> origin.StorageKey | None:
    """What a key of the Scala product says to a store: a credential, an endpoint, a timeout.

    >>> storage_key("spark.indextables.aws.accessKey").option
    'aws_access_key_id'
    """
    return origin.STORAGE.get(short_name(name) or "")


T = TypeVar("T")


@dataclass(frozen=True, slots=True, eq=False)
class Key(Generic[T]):
    """One configuration key. `kind` is the type's name in the documentation.

    `in_table` says whether a property of a table may set it. Users who can write to a table can set
    its properties, so a key that names a place or a credential of the process, that bounds its
    memory, threads or requests, or that switches off a check, is set by the process alone.
    """

    name: str
    kind: str
    default: T
    meaning: str
    section: str
    parse: Callable[[object], T]
    in_table: bool = True

    def optional(self) -> Key[T | None]:
        """The same key, unset by default."""
        return Key(
            self.name, self.kind, None, self.meaning, self.section, self.parse, self.in_table
        )

    def accepting(self, word: str, value: T) -> Key[T]:
        """The same key, which also takes a word for one of its values."""

        def parse(text: object) -> T:
            return value if str(text).strip().lower() == word else self.parse(text)

        return replace(self, kind=f"{self.kind} or {word}", parse=parse)

    def of_process(self) -> Key[T]:
        """The same key, which no table sets."""
        return replace(self, in_table=False)


@dataclass(frozen=True, slots=True, eq=False)
class KeyFamily:
    """Keys that end in a name the user chooses, such as `indexing.typemap.<field>`."""

    name: str
    placeholder: str
    meaning: str
    section: str

    def entries(self, values: Mapping[str, T] | None) -> dict[str, T]:
        """The keys for values by the names that the user chose."""
        return {self.name + name: value for name, value in (values or {}).items()}


@dataclass(frozen=True, slots=True)
class Section:
    """Keys of one concern. Their names are completed with `spark.indextables.`."""

    title: str

    def boolean(self, name: str, default: bool, meaning: str) -> Key[bool]:
        """A key that is true or false."""
        name = _full(name)
        return Key(
            name, "boolean", default, meaning, self.title, lambda v: parse_boolean(v, name=name)
        )

    def integer(
        self, name: str, default: int, meaning: str, *, low: int = 0, high: int = 2**63
    ) -> Key[int]:
        """A key that is a whole number."""
        name = _full(name)

        def parse(value: object) -> int:
            try:
                number = int(str(value).strip())
            except ValueError:
                number = low - 1
            if isinstance(value, bool) or not low <= number <= high:
                limit = f"a whole number of at least {low}" if high == 2**63 else f"{low} to {high}"
                raise InvalidValueError(name, value, limit)
            return number

        return Key(name, "integer", default, meaning, self.title, parse)

    def number(
        self, name: str, default: float, meaning: str, *, low: float, high: float
    ) -> Key[float]:
        """A key that is a number, with a fraction or without."""
        name = _full(name)

        def parse(value: object) -> float:
            try:
                number = float(str(value).strip())
            except ValueError:
                number = low - 1
            if isinstance(value, bool) or not low <= number <= high:
                raise InvalidValueError(name, value, f"a number from {low} to {high}")
            return number

        return Key(name, "number", default, meaning, self.title, parse)

    def size(self, name: str, default: str, meaning: str, *, low: int = 1) -> Key[int]:
        """A key that is a number of bytes."""
        name = _full(name)

        def parse(value: object) -> int:
            size = parse_size(value, name=name)
            if size < low:
                raise InvalidValueError(name, value, f"a size of at least {low} bytes")
            return size

        return Key(name, "size", parse_size(default), meaning, self.title, parse)

    def duration(self, name: str, default_ms: int, meaning: str) -> Key[int]:
        """A key that is a time, in milliseconds."""
        name = _full(name)

        def parse(value: object) -> int:
            return parse_duration_ms(value, name=name)

        return Key(name, "duration", default_ms, meaning, self.title, parse)

    def choice(self, name: str, default: str, choices: Sequence[str], meaning: str) -> Key[str]:
        """A key that is one of several words."""
        name = _full(name)

        def parse(value: object) -> str:
            word = str(value).strip().lower()
            if word not in choices:
                raise InvalidValueError(name, value, "one of " + ", ".join(choices))
            return word

        return Key(name, " | ".join(choices), default, meaning, self.title, parse)

    def text(self, name: str, default: str, meaning: str) -> Key[str]:
        """A key that is any text."""
        return Key(_full(name), "text", default, meaning, self.title, str)

    def folder(self, name: str, default: str, meaning: str) -> Key[str]:
        """A key that is a folder inside of the table."""
        name = _full(name)

        def parse(value: object) -> str:
            parts = str(value).strip("/").split("/")
            if parts[0] in _LOGS or not all(part and not part.startswith(".") for part in parts):
                limit = "a folder of the table, such as _xrefsplits or indexes/xrefs"
                raise InvalidValueError(name, value, limit)
            return str(value)

        return Key(name, "text", default, meaning, self.title, parse)

    def synonyms(self, name: str, meaning: str) -> Key[str]:
        """A key that is a list of synonyms, kept as it is written."""

        def parse(value: object) -> str:
            parse_synonyms(str(value))
            return str(value)

        return Key(_full(name), "rules", "", meaning, self.title, parse)

    def family(self, name: str, placeholder: str, meaning: str) -> KeyFamily:
        """Keys that begin with a name."""
        return KeyFamily(_full(name), placeholder, meaning, self.title)


_LOGS = ("_transaction_log", "_delta_log")


def _full(name: str) -> str:
    return name if name.startswith("spark.") else PREFIX + name
