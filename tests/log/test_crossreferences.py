"""Which splits the XRefs of a snapshot cover."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from logs import add, append, new_log, xref

from indextables.log.files import paths_of
from indextables.log.snapshot import cover_of
from indextables.log.transaction import Operation, Transaction


@pytest.mark.parametrize("seed", range(5))
def test_what_is_covered_is_decided_without_folding_the_entries(seed):
    rng = random.Random(seed)
    log = new_log()
    append(log, *(add(f"{n}.split") for n in range(8)))
    covered = xref("1", "1.split", "3.split", "9.split")
    log.commit(Transaction(operation=Operation.XREF, actions=[covered]))
    base = log.snapshot()
    changes = {
        f"{n}.split": (add(f"{n}.split"), 5, 5) if rng.random() < 0.5 else None
        for n in rng.sample(range(12), rng.randrange(12))
    }
    snapshot = replace(base, base_files=base.entries, changes=changes)
    cover = cover_of(snapshot)
    assert "entries" not in snapshot.__dict__ or not changes
    assert cover.paths.to_pylist() == paths_of(snapshot.entries)
    again = cover_of(snapshot)
    assert cover.owner.tolist() == again.owner.tolist()
