"""Changing rows that are named by their split and number, where Spark chose them.

Spark computed the condition on one version. It cannot be asked of files that others add after that
version, so every added file is a conflict. Where the condition reads the table a second time, in a
subquery, every removed file is one too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from indextables.config import Config
from indextables.errors import MetadataChangedError
from indextables.jobs.commit_write import Target, Written, commit_replacement, undone_on_error
from indextables.jobs.rewrite import Removal, remove_numbered
from indextables.log.actions import Add
from indextables.log.files import paths_of
from indextables.log.snapshot import Snapshot
from indextables.log.transaction import everything
from indextables.log.transaction_log import TransactionLog
from indextables.split.memory_index import Rows


def replace_rows(
    log: TransactionLog,
    snapshot: Snapshot,
    numbers: Mapping[str, Rows],
    *,
    adds: Sequence[Add] = (),
    rows: int = 0,
    reads_again: bool,
    parameters: Mapping[str, Any],
    config: Config,
) -> Written:
    """Commit stored splits in place of these rows of a version; without splits, delete the rows."""

    def remove() -> Removal:
        newest = log.newest()
        unknown = numbers.keys() - set(paths_of(snapshot.entries))
        # Its splits are gone with it, or the query read those of the table in its place.
        if unknown or newest.metadata.id != snapshot.metadata.id:
            raise MetadataChangedError(uri=newest.uri, version=newest.version, changed=["identity"])
        return remove_numbered(log, snapshot, numbers, config=config)

    removal: Removal = undone_on_error(log, adds, remove)
    return commit_replacement(
        log,
        snapshot,
        target=Target.of(snapshot),
        adds=list(adds),
        removal=removal,
        rows=rows,
        scope=everything,
        read_paths=frozenset(paths_of(snapshot.entries)) if reads_again else frozenset(),
        parameters=dict(parameters),
        config=config,
    )
