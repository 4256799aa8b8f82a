"""All keys by their lower-case name, in the order of `docs/configuration.md`."""

from __future__ import annotations

import difflib

from indextables.config import ariadne, log, maintenance, spark, splits, xref
from indextables.config.key import OLD_PREFIX, PREFIX, Key, KeyFamily

# The page shows the sections in this order, and keys as they stand in their module.
_CONSTANTS = [
    constant
    for module in (log, splits, spark, xref, ariadne, maintenance)
    for constant in vars(module).values()
]

KEYS: dict[str, Key[object]] = {c.name.lower(): c for c in _CONSTANTS if isinstance(c, Key)}
FAMILIES: dict[str, KeyFamily] = {c.name.lower(): c for c in _CONSTANTS if isinstance(c, KeyFamily)}


def canonical(name: str) -> str:
    """A key's name in lower case and under today's prefix.

    >>> canonical(" spark.tantivy4spark.checkpoint.Interval")
    'spark.indextables.checkpoint.interval'
    """
    lowered = name.strip().lower()
    return PREFIX + lowered[len(OLD_PREFIX) :] if lowered.startswith(OLD_PREFIX) else lowered


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
    known = {n: k.name for n, k in KEYS.items()} | {
        n: f"{f.name}<{f.placeholder}>" for n, f in FAMILIES.items()
    }
    wanted = canonical_name if canonical_name.startswith("spark.") else PREFIX + canonical_name
    return [known[n] for n in difflib.get_close_matches(wanted, known, n=2, cutoff=0.6)]
