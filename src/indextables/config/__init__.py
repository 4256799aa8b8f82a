"""Every `spark.indextables.*` key: its name, type, default and meaning, in one registry.

A key is a constant of this package and is read with it, so that its type is known::

    >>> config = Config({"spark.indextables.checkpoint.interval": "20"})
    >>> config[CHECKPOINT_INTERVAL]
    20

Values come in layers, the first one that has the key wins: options of one read or write, session
configuration, table properties, the default. Names are case-insensitive, and
`spark.tantivy4spark.*` is an old spelling of `spark.indextables.*`. A key that is not in the
registry is an error, because accepting it would promise an effect; in a session's configuration
it is a warning. `docs/configuration.md` is generated from here. `origin` has the keys of the Scala
product that have another name here, no effect, or a reason to be refused.

To add a key, write it into the module of its concern, and a test of its effect. Nothing else has
to name it: what those modules define is imported here and found by its type.
"""

from __future__ import annotations

import difflib
import warnings
from collections.abc import Iterator, Mapping
from typing import TypeVar, overload

from indextables.config import log, origin, spark, splits
from indextables.config.key import ARIADNE_PREFIX as ARIADNE_PREFIX
from indextables.config.key import OLD_PREFIX as OLD_PREFIX
from indextables.config.key import PREFIX as PREFIX
from indextables.config.key import Key as Key
from indextables.config.key import KeyFamily as KeyFamily
from indextables.config.key import parse_boolean as parse_boolean
from indextables.config.key import parse_duration_ms as parse_duration_ms
from indextables.config.key import parse_size as parse_size
from indextables.config.key import parse_synonyms as parse_synonyms
from indextables.config.key import short_name as short_name
from indextables.config.key import storage_key as storage_key
from indextables.config.log import *  # noqa: F403
from indextables.config.spark import *  # noqa: F403
from indextables.config.splits import *  # noqa: F403
from indextables.errors import ConfigError, UnknownKeyError

# The page shows the sections in this order, and keys as they stand in their module.
_CONSTANTS = [constant for module in (log, splits, spark) for constant in vars(module).values()]

KEYS: dict[str, Key[object]] = {c.name.lower(): c for c in _CONSTANTS if isinstance(c, Key)}
FAMILIES: dict[str, KeyFamily] = {c.name.lower(): c for c in _CONSTANTS if isinstance(c, KeyFamily)}


def canonical(name: str) -> str:
    """A key's name in lower case, under today's prefix and as it is called here.

    >>> canonical(" spark.tantivy4spark.checkpoint.Interval")
    'spark.indextables.checkpoint.interval'
    >>> canonical("spark.indextables.indexing.text.maxTokenLength")
    'spark.indextables.text.maxtokenlength'
    """
    short = short_name(name)
    if short is None:
        return name.strip().lower()
    renamed = origin.RENAMED.get(short)
    return PREFIX + (short if renamed is None else renamed.name.lower())


def settled(options: Mapping[str, object]) -> dict[str, object]:
    """Settings under the names of this package, which win over those of the Scala product.

    A key of that product that has no effect is left out with one warning. One that cannot be left
    out is refused, and so is an unknown key.

    >>> settled({"spark.indextables.transaction.cache.expirationSeconds": "60"})
    {'spark.indextables.transaction.cache.ttl.ms': '60s'}
    """
    if not isinstance(options, Mapping):
        raise ConfigError(f"A configuration is values by key, not {type(options).__name__}.")
    settings: dict[str, object] = {}
    renamed: dict[str, object] = {}
    for name, value in options.items():
        short = short_name(name) or ""
        if short in origin.RENAMED:
            renamed[canonical(name)] = f"{value}{origin.RENAMED[short].unit}"
        elif short in origin.WITHOUT_EFFECT:
            why = origin.WITHOUT_EFFECT[short]
            _warn_once(name, f"'{name}' has no effect: {why}. See docs/migrating.md.")
        elif (refused := origin.REFUSED.get(short)) is not None:
            if str(value).strip().lower() != refused.harmless:
                raise ConfigError(f"'{name}' is refused: {refused.reason}.")
        elif short in origin.STORAGE:
            raise ConfigError(
                f"'{name}' configures a store, not a table. Give it as an option of "
                "the read or write, in the Spark session, or in storage_options."
            )
        elif canonical(name) in KEYS or family_of(canonical(name)) is not None:
            settings[canonical(name)] = value
        else:
            raise UnknownKeyError(name, nearest=nearest_keys(canonical(name)))
    return {**renamed, **settings}


def family_of(canonical_name: str) -> KeyFamily | None:
    """The family that a canonical name belongs to.

    >>> family_of("spark.indextables.indexing.typemap.body").placeholder
    'field'
    """
    return next(
        (
            family
            for prefix, family in FAMILIES.items()
            if canonical_name.startswith(prefix) and len(canonical_name) > len(prefix)
        ),
        None,
    )


def nearest_keys(canonical_name: str) -> list[str]:
    """The two known keys that are spelled most alike, if any are.

    >>> nearest_keys("checkpoint.intervall")[0]
    'spark.indextables.checkpoint.interval'
    """
    spellings = {n: k.name for n, k in KEYS.items()} | {
        n: f"{f.name}<{f.placeholder}>" for n, f in FAMILIES.items()
    }
    full_name = canonical_name if canonical_name.startswith("spark.") else PREFIX + canonical_name
    return [spellings[n] for n in difflib.get_close_matches(full_name, spellings, n=2, cutoff=0.6)]


T = TypeVar("T")


def is_own_key(name: str) -> bool:
    """Whether a Spark configuration key or option belongs to this package.

    >>> is_own_key("spark.sql.shuffle.partitions"), is_own_key("Spark.IndexTables.x")
    (False, True)
    """
    return canonical(name).startswith(PREFIX)


def session_keys(settings: Mapping[str, str]) -> dict[str, str]:
    """What a Spark session configures of this package.

    A key that is not in the registry is passed over with one warning: a session is often configured
    far from the query, for several products and versions, and must not make every read fail.

    >>> session_keys({"spark.indextables.checkpoint.interval": "5", "spark.ui.enabled": "false"})
    {'spark.indextables.checkpoint.interval': '5'}
    """
    package_keys = {n: v for n, v in settings.items() if is_own_key(n) and storage_key(n) is None}
    for name in list(package_keys):
        try:
            settled({name: package_keys[name]})
        except ConfigError as error:
            del package_keys[name]
            _warn_once(name, f"{error} The session's setting has no effect.")
    return {name: str(value) for name, value in settled(package_keys).items()}


_warned: set[str] = set()


def _warn_once(name: str, message: str) -> None:
    if name not in _warned:
        _warned.add(name)
        warnings.warn(message, stacklevel=3)


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
            values = settled(layer or {})
            for name, value in values.items():
                if name in KEYS:
                    KEYS[name].parse(value)
            self._layers.append(values)

    @overload
    def __getitem__(self, key: Key[T]) -> T: ...
    @overload
    def __getitem__(self, key: KeyFamily) -> dict[str, str]: ...
    def __getitem__(self, key: Key[T] | KeyFamily) -> T | dict[str, str]:
        if isinstance(key, KeyFamily):
            prefix = key.name.lower()
            group: dict[str, str] = {}
            for layer in reversed(self._layers):
                group |= {
                    n[len(prefix) :]: str(v) for n, v in layer.items() if n.startswith(prefix)
                }
            return group
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
