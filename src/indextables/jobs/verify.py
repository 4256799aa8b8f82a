"""Checking a table: its log against its files, checksums, indexes and rows.

The driver reads the whole log anew and lists the table once. Every split is then a task: all its
bytes are read, its index is opened and asked, its rows are compared with what the log and the
index say. Nothing is taken from what this process remembers.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from indextables import config as keys
from indextables.config import Config
from indextables.errors import IndexTablesError
from indextables.jobs.verify_split import CHECKS, SplitCheck, check_split
from indextables.log.actions import AddXRef
from indextables.log.checkpoints import checkpoints_at, load_checkpoint
from indextables.log.files import adds_from_files, paths_of
from indextables.log.listing import list_log
from indextables.log.snapshot import Snapshot, empty_snapshot
from indextables.log.transaction_log import TransactionLog
from indextables.plan.scan import split_tasks
from indextables.plan.view import TableView
from indextables.predicate import TRUE
from indextables.runner import LocalRunner, Runner
from indextables.storage import Store
from indextables.xref.open_xref import read_xref

_SHOWN = 3


@dataclass(slots=True)
class Check:
    """One thing that was checked: how often, and what was wrong."""

    name: str
    checked: int = 0
    problems: list[str] = field(default_factory=list)

    @property
    def passed(self) -> bool:
        """Whether nothing was wrong."""
        return not self.problems

    @property
    def message(self) -> str:
        """The first problems."""
        shown = "; ".join(self.problems[:_SHOWN])
        more = len(self.problems) - _SHOWN
        return f"{shown}; and {more:,} more" if more > 0 else shown


def verify(log: TransactionLog, view: TableView, *, runner: Runner | None = None) -> list[Check]:
    """Check the newest version; one `Check` for the log, the files and each of `CHECKS`."""
    config = view.config
    fresh = TransactionLog(log.store, config=log.config)
    checks = [_check_log(fresh, config)]
    snapshot = fresh.snapshot()
    files, there = _check_files(fresh, snapshot)
    checks.append(files)
    shared = view.at(snapshot).for_tasks()
    adds = {add.path: add for add in adds_from_files(snapshot.entries)}
    tasks = [
        SplitCheck(shared, task, adds[task.path])
        for task in split_tasks(snapshot, snapshot.entries, TRUE)
        if task.path in there
    ]
    runner = runner or LocalRunner(config[keys.READ_PARALLELISM])
    found = runner.map(check_split, tasks)
    for name in CHECKS:
        check = Check(name)
        for task, answers in zip(tasks, found, strict=True):
            if name in answers:
                check.checked += 1
                check.problems += [f"{task.add.path}: {problem}" for problem in answers[name]]
        if name == "checksums":
            for xref in snapshot.xrefs.values():
                if xref.path in there:
                    check.checked += 1
                    check.problems += _wrong_xref(log.store, xref)
        checks.append(check)
    return checks


# --- the log -----------------------------------------------------------------------------------


def _check_log(log: TransactionLog, config: Config) -> Check:
    """Every version file and checkpoint reads, and checkpoints say what the versions say."""
    check = Check("log")
    listing = list_log(log.store)
    runner = LocalRunner(config[keys.STATE_READ_PARALLELISM])
    replayed: Snapshot | None = empty_snapshot(log.store.uri)
    for version in sorted({*listing.versions, *listing.states, *listing.checkpoints}):
        try:
            if version in listing.versions:
                check.checked += 1
                actions = log.actions(version)
                if replayed is not None and replayed.version == version - 1:
                    replayed = replayed.advance([actions])
                else:
                    replayed = None  # older versions are gone; a checkpoint stands for them
            for ref in checkpoints_at(listing, version):
                check.checked += 1
                held = load_checkpoint(log.store, ref, config=config, runner=runner)
                if replayed is not None and replayed.version == version:
                    check.problems += _differences(ref.kind, version, held, replayed)
                else:
                    replayed = held
        except IndexTablesError as error:
            check.problems.append(str(error))
            replayed = None
    return check


def _differences(kind: str, version: int, held: Snapshot, replayed: Snapshot) -> Iterator[str]:
    name = f"the {kind} checkpoint of version {version}"
    if set(paths_of(held.entries)) != set(paths_of(replayed.entries)):
        yield f"{name} names other splits than the versions before it"
    if held.metadata.schema_string != replayed.metadata.schema_string:
        yield f"{name} has another schema than the versions before it"
    if set(held.xrefs) != set(replayed.xrefs):
        yield f"{name} names other cross-references than the versions before it"


# --- cross-references ----------------------------------------------------------------------------


def _wrong_xref(store: Store, xref: AddXRef) -> Iterator[str]:
    """Read all of a cross-reference: its footer, its documents and every section."""
    try:
        data = read_xref(store, xref.path, size=xref.size)
        for section in data.info.sections:
            data.content(section)
    except IndexTablesError as error:
        yield f"{xref.path}: {error}"


# --- the files -----------------------------------------------------------------------------------


def _check_files(log: TransactionLog, snapshot: Snapshot) -> tuple[Check, set[str]]:
    """Every file that the log names is there, as large as it says; gives those that are."""
    sizes = {meta.path: meta.size for meta in log.store.list() if meta.path.endswith(".split")}
    entries = snapshot.entries.select(["path", "size"])
    named: Sequence[tuple[str, int]] = [(row["path"], row["size"]) for row in entries.to_pylist()]
    check = Check("files")
    there = set()
    for path, size in [*named, *((x.path, x.size) for x in snapshot.xrefs.values())]:
        check.checked += 1
        found = sizes.get(path)
        if found is None:
            check.problems.append(f"{path} is missing")
        elif found != size:
            check.problems.append(f"{path} has {found:,} bytes instead of {size:,}")
        else:
            there.add(path)
    return check, there
