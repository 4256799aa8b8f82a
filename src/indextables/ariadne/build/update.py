"""Bringing an index up to date with its files.

An update compares every registered file with the row it has. Files without a valid row are read
for all declarations; files whose row lacks a column that was declared since are read for that
column alone; rows of files that are gone are deleted. A file that cannot be read gets a row that
says why, and stays a candidate of every lookup; the others of its batch are not harmed.
"""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from typing import Any

from indextables.ariadne.build import csv_build, tasks
from indextables.ariadne.build.tasks import (
    Output,
    Plan,
    Written,
    batches,
    footer_tasks,
    footers_suffice,
    read_footers,
    targets,
    work,
)
from indextables.ariadne.declarations import Declarations
from indextables.ariadne.files.read import (
    is_fault_of_files,
    keeping_rows,
    read_files,
    reason_of,
)
from indextables.ariadne.files.state import States, check_files, registered
from indextables.ariadne.metadata import Metadata
from indextables.ariadne.store import index_rows
from indextables.ariadne.store.index_rows import (
    compact,
    key_rows,
    remove_rows,
    total_size,
)
from indextables.ariadne.store.large_values import value_schema
from indextables.ariadne.store.place import IndexPlace
from indextables.config import (
    ARIADNE_AUTO_BLOOM_FPR,
    ARIADNE_AUTO_COMPACT_THRESHOLD,
    ARIADNE_DEBUG,
    ARIADNE_INDEX_REPARTITION_COUNT,
    ARIADNE_LARGE_INDEX_LIMIT,
    ARIADNE_STAGING_THRESHOLD,
)
from indextables.runner import LocalRunner, Runner
from indextables.spark.bridge.sessions import is_classic
from indextables.spark.runner import SparkRunner
from indextables.storage import ObjectMeta

logger = logging.getLogger(__name__)

_STAGED_BYTES = 256 << 20
"""Staged rows are merged on the driver; more of them than this are not left waiting."""
_READERS = 16
"""Threads that read footers where there are few of them."""
_ROUNDS = 3
_MISSING = "the file is not there"


@dataclass(frozen=True, slots=True)
class UpdateResult:
    """What `Index.update` did.

    Args:
        indexed: Files that were indexed, new and rewritten ones.
        extended: Files that got columns that were declared since they were indexed.
        removed: Files that are gone or not registered any more, and have left the index.
        batches: Batches of files that were committed.
        failed: Files that could not be read, and why.
    """

    indexed: int = 0
    extended: int = 0
    removed: int = 0
    batches: int = 0
    failed: Mapping[str, str] = field(default_factory=dict)


def update_index(place: IndexPlace) -> UpdateResult:
    """Bring the index up to date; see the module."""
    return _Update(place).run()


class _Update:
    def __init__(self, place: IndexPlace) -> None:
        self._place = place
        self._config = place.context.config
        self._level = logging.INFO if self._config[ARIADNE_DEBUG] else logging.DEBUG
        self._result = UpdateResult()
        self._large: set[str] = set()
        self._staged = 0
        self._staged_bytes = 0

    def run(self) -> UpdateResult:
        start = time.monotonic()
        # What a killed update left, before anything is compared.
        self._consolidate()
        for _ in range(_ROUNDS):
            if not self._round():
                break
        self._record_totals()
        logger.log(
            self._level,
            "Updated %s in %.1f s: %s",
            self._place.name,
            time.monotonic() - start,
            self._result,
        )
        return self._result

    def _round(self) -> bool:
        """Do everything that is to be done now. True if another round may find more."""
        metadata = self._place.metadata.load()
        entries = self._place.files.files()
        states = check_files(self._place, metadata, key_rows(self._place), entries)
        self._remove(states)
        dropped = 0
        for declarations, files, extends in work(states, metadata.declarations):
            for batch in batches(files):
                self._batch(metadata, states, declarations, batch, extends=extends)
                dropped += self._consolidate_if(self._config[ARIADNE_STAGING_THRESHOLD])
        self._missing(metadata, states)
        dropped += self._consolidate()
        return dropped > 0

    # --- rows that go --------------------------------------------------------------------------

    def _remove(self, states: States) -> None:
        keep = {*states.expansion.files, *states.missing}
        names: list[Any] = states.rows.column("filename").to_pylist()
        built: list[Any] = states.rows.column("built").to_pylist()
        removed = [n for n, b in zip(names, built, strict=True) if n not in keep or b is None]
        if removed:
            remove_rows(self._place, removed)
            self._add(removed=len(removed))

    def _missing(self, metadata: Metadata, states: States) -> None:
        """Registered files that do not exist get a row that says so, once."""
        recorded = _failures(states)
        new = {name: _MISSING for name in states.missing if recorded.get(name) != _MISSING}
        self._add(failed=dict.fromkeys(states.missing, _MISSING))
        if new:
            plan = self._plan(metadata, states, Declarations(), {}, extends=False)
            self._stage(plan, [], {}, new)

    # --- batches -------------------------------------------------------------------------------

    def _batch(
        self,
        metadata: Metadata,
        states: States,
        declarations: Declarations,
        files: Mapping[str, ObjectMeta],
        *,
        extends: bool,
    ) -> None:
        plan = self._plan(metadata, states, declarations, files, extends=extends)
        folded = self._from_footers(metadata, plan)
        unread = {name: meta for name, meta in files.items() if name not in folded}
        written = self._read_directly(metadata, plan, unread)
        left = {name: meta for name, meta in unread.items() if name not in _finished(written)}
        read, failed = self._read(metadata, plan, left) if left else ([], {})
        written += read
        empty = [n for n in left if n not in _finished(read) and n not in failed]
        folded |= {name: plan.fold().finish(name, _no_large) for name in empty}
        recorded = _failures(states)
        new = {name: reason for name, reason in failed.items() if recorded.get(name) != reason}
        self._stage(plan, written, folded, new)
        good = len(files) - len(failed)
        self._add(
            indexed=0 if extends else good,
            extended=good if extends else 0,
            batches=1,
            failed=failed,
        )
        logger.log(
            self._level, "Batch %s: %d files, %d failed", plan.batch, len(files), len(failed)
        )

    def _plan(
        self,
        metadata: Metadata,
        states: States,
        declarations: Declarations,
        files: Mapping[str, ObjectMeta],
        *,
        extends: bool,
    ) -> Plan:
        place = self._place
        return Plan(
            uri=place.uri,
            storage=place.context.storage_options(place.uri),
            batch=uuid.uuid4().hex,
            targets=targets(place, metadata, declarations),
            files=files,
            limit=self._config[ARIADNE_LARGE_INDEX_LIMIT],
            auto_fpr=self._config[ARIADNE_AUTO_BLOOM_FPR],
            settings=states.settings,
            staged_at=datetime.now(UTC),
            extends=extends,
        )

    def _from_footers(self, metadata: Metadata, plan: Plan) -> dict[str, dict[str, Any]]:
        # An option may take a column from somewhere else: `basePath` takes it from the path.
        context = self._place.context
        is_odd = metadata.read_options or context.reads_field_ids
        if is_odd or not footers_suffice(plan.targets, metadata.format):
            return {}
        tasks = list(footer_tasks(self._place, plan))
        spark = context.spark
        runner: Runner = LocalRunner(_READERS)
        if len(tasks) > 4 and is_classic(spark):
            runner = SparkRunner(spark)
        rows_by_file = {}
        for task, rows in zip(tasks, runner.map(read_footers, tasks), strict=True):
            base = task.folder.rstrip("/")
            rows_by_file.update({f"{base}/{name}": row for name, row in rows.items()})
        return rows_by_file

    def _read_directly(
        self, metadata: Metadata, plan: Plan, files: Mapping[str, ObjectMeta]
    ) -> list[Written]:
        """Read what Arrow can read. If that fails, Spark finds out why."""
        if not files:
            return []
        try:
            return csv_build.run(self._place, metadata, replace(plan, files=files))
        except Exception as error:
            if not is_fault_of_files(error):
                raise
            logger.debug("Spark reads the files of batch %s", plan.batch, exc_info=True)
            return []

    def _read(
        self, metadata: Metadata, plan: Plan, files: Mapping[str, ObjectMeta]
    ) -> tuple[list[Written], dict[str, str]]:
        """Read files with Spark. If that fails, halves of them, down to the files that fail."""
        spark = self._place.context.spark
        shuffle = self._config[ARIADNE_INDEX_REPARTITION_COUNT]
        try:
            rows = read_files(spark, keeping_rows(metadata), list(files), name=self._place.name)
            return tasks.run(spark, replace(plan, files=files), rows, shuffle_into=shuffle), {}
        except Exception as error:
            if not is_fault_of_files(error):
                raise
            if len(files) == 1:
                return [], {next(iter(files)): reason_of(error)}
        names = list(files)
        written: list[Written] = []
        failed: dict[str, str] = {}
        for half in (names[: len(names) // 2], names[len(names) // 2 :]):
            rows_of_half, bad = self._read(metadata, plan, {n: files[n] for n in half})
            written += rows_of_half
            failed |= bad
        return written, failed

    # --- staging -------------------------------------------------------------------------------

    def _stage(
        self,
        plan: Plan,
        written: Sequence[Written],
        folded: Mapping[str, Mapping[str, Any]],
        failed: Mapping[str, str],
    ) -> None:
        """Commit what tasks wrote: large values first, then the rows that name them."""
        output = Output(plan)
        for name, row in folded.items():
            output.add(plan.row(name, row))
        for name, reason in failed.items():
            output.add(plan.failed(name, reason, plan.files.get(name)))
        output.flush()
        everything = [*written, *output.written]
        for target in plan.targets:
            name = target.declaration.name
            if files := [w.file for w in everything if w.column == name]:
                self._place.large(name).commit(files, value_schema(target.value_type))
                self._large.add(name)
        rows = [w.file for w in everything if not w.column]
        self._place.staging(plan.batch).commit(rows, plan.schema)
        self._staged += bool(rows)
        self._staged_bytes += sum(file.size for file in rows)

    def _consolidate_if(self, threshold: int) -> int:
        full = self._staged >= threshold or self._staged_bytes > _STAGED_BYTES
        return self._consolidate() if full else 0

    def _consolidate(self) -> int:
        self._staged = self._staged_bytes = 0
        if not index_rows.staged_batches(self._place):
            return 0
        done = index_rows.consolidate(self._place, partial(registered, self._place.files.files()))
        logger.log(self._level, "Consolidated %d batches of %s", done.batches, self._place.name)
        return done.dropped

    # --- totals --------------------------------------------------------------------------------

    def _add(self, **more: Any) -> None:
        result = self._result
        failed = {**result.failed, **more.pop("failed", {})}
        counts = {name: getattr(result, name) + count for name, count in more.items()}
        self._result = replace(result, failed=failed, **counts)

    def _record_totals(self) -> None:
        """Keep the total size, the columns with large tables, and the count of batches."""
        result = self._result
        total = total_size(self._place)
        threshold = self._config[ARIADNE_AUTO_COMPACT_THRESHOLD]

        def change(metadata: Metadata) -> Metadata:
            columns = dict.fromkeys([*metadata.auto_bloom, *sorted(self._large)])
            return replace(
                metadata,
                auto_bloom=tuple(columns),
                total_indexed_file_size=total,
                batches_since_compact=metadata.batches_since_compact + result.batches,
            )

        metadata = self._place.metadata.change(change)
        if result.batches and threshold and metadata.batches_since_compact >= threshold:
            compact(self._place)


def _failures(states: States) -> dict[str, str]:
    """The failures that the rows of unchanged files record."""
    columns = [states.rows.column(n).to_pylist() for n in ("filename", "failure")]
    return {name: reason for name, reason in zip(*columns, strict=True) if reason is not None}


def _finished(written: Sequence[Written]) -> set[str]:
    return {name for w in written if not w.column for name in w.filenames}


def _no_large(_column: str, _filename: str, _values: Any) -> Any:
    raise AssertionError("a file without rows has no values")
