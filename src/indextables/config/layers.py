"""Configuration as it is given: which names are ours, and values in layers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TypeVar, overload

from indextables.config.key import PREFIX, Key, KeyFamily
from indextables.config.registry import KEYS, canonical, family_of, nearest_keys
from indextables.errors import UnknownKeyError

T = TypeVar("T")


def is_own_key(name: str) -> bool:
    """Whether a Spark configuration key or option belongs to this package.

    >>> is_own_key("spark.sql.shuffle.partitions"), is_own_key("Spark.IndexTables.x")
    (False, True)
    """
    return canonical(name).startswith(PREFIX)


def known_keys(properties: Mapping[str, str]) -> dict[str, str]:
    """Table properties that configure this package; what other writers left there is passed over.

    So is a key that only the process may set: a table does not choose where its readers keep
    files, nor how much memory they spend.

    >>> known_keys({"spark.indextables.checkpoint.interval": "5", "owner": "me"})
    {'spark.indextables.checkpoint.interval': '5'}
    >>> known_keys({"spark.indextables.cache.disk.path": "/home/me"})
    {}
    """
    return {name: value for name, value in properties.items() if _is_of_tables(canonical(name))}


def _is_of_tables(canonical_name: str) -> bool:
    key = KEYS.get(canonical_name)
    return key.in_table if key is not None else family_of(canonical_name) is not None


class Config:
    """Configuration in layers; the first layer that has a key wins.

    Every key of every layer must be in the registry and every value must parse, at construction:
    a mistake is reported before any work starts.
    """

    __slots__ = ("_layers",)

    def __init__(self, *layers: Mapping[str, object] | None) -> None:
        self._layers: list[dict[str, object]] = []
        for layer in layers:
            values: dict[str, object] = {}
            for name, value in (layer or {}).items():
                lowered = canonical(name)
                key = KEYS.get(lowered)
                if key is not None:
                    key.parse(value)
                elif family_of(lowered) is None:
                    raise UnknownKeyError(name, nearest=nearest_keys(lowered))
                values[lowered] = value
            self._layers.append(values)

    @overload
    def __getitem__(self, key: Key[T]) -> T: ...
    @overload
    def __getitem__(self, key: KeyFamily) -> dict[str, str]: ...
    def __getitem__(self, key: Key[T] | KeyFamily) -> T | dict[str, str]:
        if isinstance(key, KeyFamily):
            prefix = key.name.lower()
            found: dict[str, str] = {}
            for layer in reversed(self._layers):
                found |= {
                    n[len(prefix) :]: str(v) for n, v in layer.items() if n.startswith(prefix)
                }
            return found
        for layer in self._layers:
            if key.name.lower() in layer:
                return key.parse(layer[key.name.lower()])
        return key.default

    def __iter__(self) -> Iterator[str]:
        """Names that some layer sets, in their canonical spelling."""
        return iter({n: None for layer in self._layers for n in layer})

    def over(self, lower: Mapping[str, object] | Config) -> Config:
        """This configuration with one more layer below, above the defaults."""
        config = Config()
        below = lower._layers if isinstance(lower, Config) else Config(lower)._layers
        config._layers = [*self._layers, *below]
        return config

    def over_properties(self, properties: Mapping[str, str]) -> Config:
        """This configuration over the properties of a table, as far as a table may set them."""
        return self.over(known_keys(properties))

    def as_options(self) -> dict[str, object]:
        """All set values flattened, to hand them to a worker."""
        flat: dict[str, object] = {}
        for layer in reversed(self._layers):
            flat |= layer
        return flat
