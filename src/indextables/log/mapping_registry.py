"""Mappings are stored once: add actions name them by hash, the table's metadata holds them.

A mapping (`docMappingJson`) of a wide table is larger than all else an add action says. Its hash
is taken from a canonical form, so that two writers that order their fields differently share one
entry: object keys sorted, lists of named objects sorted by name, compact JSON, SHA-256, URL-safe
Base64, 16 characters.
"""

from __future__ import annotations

import base64
import functools
import hashlib
from collections.abc import Mapping
from typing import Any

import orjson

REGISTRY_PREFIX = "docMappingSchema."


def _canonical(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _canonical(value[key]) for key in sorted(value)}
    if isinstance(value, list):
        items = [_canonical(item) for item in value]
        if items and all(isinstance(item, dict) and "name" in item for item in items):
            items.sort(key=lambda item: str(item["name"]))
        return items
    return value


@functools.lru_cache(maxsize=1024)
def mapping_hash(mapping_json: str) -> str:
    """The reference of a mapping.

    >>> mapping_hash('[{"type":"i64","name":"a"}]') == mapping_hash('[{"name":"a","type":"i64"}]')
    True
    """
    try:
        canonical = orjson.dumps(_canonical(orjson.loads(mapping_json)))
    except orjson.JSONDecodeError:
        canonical = mapping_json.encode()  # not JSON: still a name for exactly these bytes
    return base64.urlsafe_b64encode(hashlib.sha256(canonical).digest())[:16].decode()


def registry_of(configuration: Mapping[str, str]) -> dict[str, str]:
    """The mappings held in a table's configuration, by bare hash."""
    return {
        key[len(REGISTRY_PREFIX) :]: value
        for key, value in configuration.items()
        if key.startswith(REGISTRY_PREFIX)
    }


def with_mappings(configuration: Mapping[str, str], mappings: Mapping[str, str]) -> dict[str, str]:
    """The configuration with these mappings added; keys may be bare or prefixed."""
    prefixed = {
        REGISTRY_PREFIX + key.removeprefix(REGISTRY_PREFIX): value
        for key, value in mappings.items()
    }
    return {**configuration, **prefixed}
