"""Which files a query or a join has to read."""

from __future__ import annotations

from indextables.ariadne.lookup.lookup import Located, Step

__all__ = ["Located", "Step"]
