"""Merging one group of splits: a task that any process can carry out.

It opens the sources, writes the merged split and stores it under a name that nobody else uses.
Whatever goes wrong costs this group only: the answer says so, and which source is to blame.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import pyarrow as pa

from indextables import config as keys
from indextables.config import Config
from indextables.errors import (
    DamagedSplitError,
    IndexTablesError,
    ObjectNotFoundError,
    SplitFileError,
    StorageError,
)
from indextables.jobs.write_splits import store_split
from indextables.log.actions import Add
from indextables.runner import LocalRunner, Runner
from indextables.split.mapping import Mapping as FieldMappings
from indextables.split.merge import merge_splits
from indextables.split.search import SplitFile
from indextables.storage import Store


@dataclass(frozen=True, slots=True)
class Source:
    """A split to be merged, as the log describes it."""

    path: str
    size: int
    rows: int | None
    footer_start: int | None
    footer_end: int | None
    merges: int
    """How often rows of it were merged before."""


@dataclass(frozen=True)
class MergeTask:
    """One group, with all that it takes to merge it."""

    store: Store
    sources: tuple[Source, ...]
    schema: pa.Schema
    mapping: FieldMappings
    partition_values: Mapping[str, str | None]
    partition_columns: tuple[str, ...]
    data_change: bool
    settings: Mapping[str, object] = field(repr=False)


@dataclass(frozen=True, slots=True)
class MergeResult:
    """The log entry of the merged split; without one, why there is none."""

    add: Add | None = None
    error: str = ""
    bad_sources: Mapping[str, str] = field(default_factory=dict)
    """Sources that cannot be merged, each with the reason."""


def source_of(add: Add) -> Source:
    """A live split as a source."""
    return Source(
        path=add.path,
        size=add.size,
        rows=add.num_records,
        footer_start=add.footer_start_offset,
        footer_end=add.footer_end_offset,
        merges=add.num_merge_ops or 0,
    )


def merge_settings(config: Config) -> dict[str, object]:
    """The configuration of a merge task: a writer with the heap and the folder of merges."""
    writer: dict[str, object] = {keys.WRITER_HEAP_SIZE.name: config[keys.MERGE_HEAP_SIZE]}
    if config[keys.MERGE_TEMP_DIRECTORY]:
        writer[keys.WRITER_TEMP_DIRECTORY.name] = config[keys.MERGE_TEMP_DIRECTORY]
    return Config(writer).over(config).as_options()


def local_runner(config: Config) -> Runner:
    """Merges in this process, as many at once as the configuration says."""
    return LocalRunner(config[keys.MERGE_PARALLELISM] or os.cpu_count() or 1)


def run_merge(task: MergeTask) -> MergeResult:
    """Merge a group and store the new split; a failure is an answer too."""
    try:
        return MergeResult(add=_merged(task))
    except Exception as error:
        # Not only our own errors: whatever it is, the other groups need not suffer from it.
        name = "" if isinstance(error, IndexTablesError) else f"{type(error).__name__}: "
        blamed = _blamed(task, error)
        return MergeResult(error=f"{name}{error}", bad_sources=blamed)


def _merged(task: MergeTask) -> Add:
    config = Config(task.settings)
    files = [_opened(task.store, source) for source in task.sources]
    written = merge_splits(
        files,
        schema=task.schema,
        mapping=task.mapping,
        config=config,
        partition_values=task.partition_values,
    )
    try:
        add = store_split(task.store, written, task.partition_columns, data_change=task.data_change)
    finally:
        written.delete()
    return replace(add, num_merge_ops=1 + max(source.merges for source in task.sources))


def _opened(store: Store, source: Source) -> SplitFile:
    file = SplitFile(store, source.path, source.size, source.footer_start, source.footer_end)
    if source.rows is not None and file.info.rows != source.rows:
        raise DamagedSplitError(
            source.path, f"it has {file.info.rows} rows, and the log says {source.rows}"
        )
    return file


def _blamed(task: MergeTask, error: Exception) -> dict[str, str]:
    """The source that an error is about, if the error will be there next time too."""
    path = "/" + (getattr(error, "path", None) or "")
    source = next((s for s in task.sources if path.endswith("/" + s.path)), None)
    if source is None:
        return {}
    if isinstance(error, SplitFileError | ObjectNotFoundError):
        return {source.path: str(error)}
    if isinstance(error, StorageError):
        try:
            size = task.store.head(source.path).size
        except StorageError:
            return {}
        if size != source.size:
            return {source.path: f"it has {size} bytes, and the log says {source.size}"}
    return {}


def run_merges(tasks: Sequence[MergeTask], runner: Runner) -> list[MergeResult]:
    """Run tasks. If the runner itself fails, so did all of them."""
    try:
        return runner.map(run_merge, tasks)
    except Exception as error:
        return [MergeResult(error=f"{type(error).__name__}: {error}")] * len(tasks)
