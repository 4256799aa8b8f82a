"""Configuration that cannot be used."""

from __future__ import annotations

from collections.abc import Sequence

from indextables.errors.base import IndexTablesError


class ConfigError(IndexTablesError, ValueError):
    """A configuration value that cannot be used."""


class UnknownKeyError(ConfigError, KeyError):
    """A key nobody reads. Accepting it would promise an effect that does not exist."""

    def __init__(self, key: str, *, nearest: Sequence[str] = ()) -> None:
        self.key = key
        self.nearest = tuple(nearest)
        hint = f" Did you mean {' or '.join(nearest)}?" if nearest else ""
        super().__init__(f"Unknown configuration key '{key}'.{hint} See docs/configuration.md.")


class InvalidValueError(ConfigError):
    """A known key with a value that does not parse or lies out of range."""

    def __init__(self, key: str, value: object, expected: str) -> None:
        self.key = key
        self.value = value
        self.expected = expected
        super().__init__(f"Cannot use {value!r} for '{key}': expected {expected}.")
