"""Remote indexes in blocks of a few bytes, where a byte that was not fetched is seen when read."""

from __future__ import annotations

import random

import pytest

from indextables.split.format import blocks
from indextables.storage.disk_cache import DiskCache


def use_tiny_blocks(patch: pytest.MonkeyPatch) -> None:
    """Blocks of few bytes, no more fetched than was named, and noise in the place of the rest."""
    patch.setattr(blocks, "_SMALL", 0)
    patch.setattr(blocks, "_SMALL_TERMS", 0)
    patch.setattr(blocks, "_packs_well", lambda file: False)
    patch.setattr(blocks, "BLOCK", 24)
    patch.setattr(blocks, "_GAP", 0)
    patch.setattr(blocks, "_WORTH_WHOLE", 2)
    make_file = DiskCache._sparse_file

    def noisy(self, wanted):
        entry = make_file(self, wanted)
        if not entry.stat().st_blocks:
            entry.write_bytes(random.Random(1).randbytes(wanted.size))
        return entry

    patch.setattr(DiskCache, "_sparse_file", noisy)
