"""Which files a query or a join has to read."""

from __future__ import annotations

from indextables.ariadne.lookup.join_keys import condition, key_values, locate_frame, matching_name
from indextables.ariadne.lookup.lookup import Located, Step
from indextables.ariadne.lookup.view import IndexView

__all__ = [
    "IndexView",
    "Located",
    "Step",
    "condition",
    "key_values",
    "locate_frame",
    "matching_name",
]
