"""What somebody wants to commit: an operation, its actions, and what it read to decide on them."""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from indextables.log.actions import Action
from indextables.log.snapshot import Snapshot


class Operation(enum.Enum):
    """The kinds of commits; the conflict matrix has a row for each."""

    CREATE = "CREATE TABLE"
    APPEND = "APPEND"
    OVERWRITE = "OVERWRITE"
    REPLACE = "REPLACE WHERE"
    REWRITE = "REWRITE ROWS"
    MERGE = "MERGE SPLITS"
    METADATA = "SET METADATA"
    PROTOCOL = "UPGRADE PROTOCOL"
    XREF = "INDEX CROSSREFERENCES"
    SKIP = "SKIP FILES"
    RESTORE = "RESTORE"


# Which of these (added) files the transaction would have read, as a mask.
Scope = Callable[[pa.Table], npt.NDArray[np.bool_]]


def nothing(files: pa.Table) -> npt.NDArray[np.bool_]:
    """The scope of a blind write."""
    return np.zeros(files.num_rows, dtype=bool)


def everything(files: pa.Table) -> npt.NDArray[np.bool_]:
    """The scope of an operation that depends on every file of the table."""
    return np.ones(files.num_rows, dtype=bool)


@dataclass(frozen=True, slots=True, kw_only=True)
class Transaction:
    """One commit to be.

    Either `actions` are fixed, planned on `read_version`: then every commit after that version is
    checked against what this one read. Or `transform` makes them from the newest snapshot, again
    on every attempt: then the transaction always follows all others, and nothing is checked but
    what the actions themselves need.

    `read_snapshot` is the table at `read_version`, for those who still have it: the log may have
    lost that version by the time of the commit, or be the log of another table.

    `files_are_here` is false for a log that is made beside its table, to be moved there.
    """

    operation: Operation
    actions: Sequence[Action] = ()
    transform: Callable[[Snapshot], Sequence[Action]] | None = None
    read_version: int | None = None
    read_snapshot: Snapshot | None = None
    read_paths: frozenset[str] = frozenset()
    read_scope: Scope = nothing
    files_are_here: bool = True
    parameters: Mapping[str, Any] = field(default_factory=dict)
    metrics: Mapping[str, Any] = field(default_factory=dict)
