"""Building and updating an index."""

from __future__ import annotations

from indextables.ariadne.build.update import UpdateResult, update_index

__all__ = [
    "UpdateResult",
    "update_index",
]
