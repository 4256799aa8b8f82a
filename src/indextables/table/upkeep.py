"""Upkeep: what keeps a table fast, small and sound. No verb here changes a row."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

import pyarrow as pa

from indextables.config import Config, known_keys
from indextables.jobs.component_sizes import component_sizes
from indextables.jobs.merge_splits import Merged, MergeLimits, merge_splits
from indextables.jobs.prewarm import Prewarmed, PrewarmPlan, plan_prewarm
from indextables.jobs.purge import Purged, purge
from indextables.jobs.repair import Repaired, repair_log
from indextables.jobs.truncate_history import Truncated, truncate_history
from indextables.jobs.verify import Check, verify
from indextables.log.last_checkpoint import LastCheckpoint
from indextables.runner import Runner
from indextables.storage import open_store
from indextables.table.open_table import OpenTable


class Upkeep(OpenTable):
    """The verbs that look after a table."""

    def checkpoint(self, *, compact: bool = False) -> LastCheckpoint:
        """Write a checkpoint of the newest version now.

        A checkpoint shares manifests with the one before it. With `compact` all live files are
        written to new ones, without those of files that left the table.
        """
        self._check_writable()
        return self._log.checkpoint(force_compaction=compact)

    def merge_splits(
        self,
        *,
        where: str | None = None,
        target_size: int | str | None = None,
        max_groups: int | None = None,
        max_source_splits: int | None = None,
        config: Mapping[str, object] | None = None,
        runner: Runner | None = None,
        timezone: str = "UTC",
    ) -> Merged:
        """Merge small splits that are at most `target_size` together (`"100M"`; 5 GB by default).

        Splits of different partitions are never merged. `where` chooses partitions; `max_groups`
        limits how many splits are made, and `max_source_splits` of how many each. Rows, searches
        and scores stay what they are, and others may read and write meanwhile.

        >>> import pyarrow as pa
        >>> from indextables import Table
        >>> table = Table.create("memory://merge-example", pa.schema([("n", pa.int64())]))
        >>> for n in range(3):
        ...     _ = table.append(pa.table({"n": [n]}))
        >>> table.merge_splits().merged_files, table.snapshot().num_files, table.count()
        (3, 1, 3)
        """
        self._check_writable()
        settings = self._with(config)
        snapshot = self.snapshot()
        effective = settings.over(known_keys(snapshot.metadata.configuration))
        return merge_splits(
            self._log,
            limits=MergeLimits.checked(
                effective,
                target_size=target_size,
                max_groups=max_groups,
                max_sources=max_source_splits,
            ),
            config=settings,
            predicate=self._predicate(where, snapshot, timezone=timezone),
            runner=runner,
        )

    def purge(
        self,
        *,
        older_than_hours: float | None = None,
        log_retention_hours: int | None = None,
        dry_run: bool = False,
    ) -> Purged:
        """Delete expired log files, and old splits that no retained version names.

        With `dry_run`, only say which. Splits are kept for `purge.defaultRetentionHours` unless
        `older_than_hours` says otherwise, versions for `logRetention.duration` unless
        `log_retention_hours` does.
        """
        self._check_writable()
        return purge(
            self._log,
            retention_hours=older_than_hours,
            log_retention_hours=log_retention_hours,
            dry_run=dry_run,
            config=self._effective(self.snapshot()),
        )

    def truncate_time_travel(self, *, dry_run: bool = False) -> Truncated:
        """Forget all versions but the newest. Their splits stay until a purge."""
        self._check_writable()
        config = self._effective(self.snapshot())
        return truncate_history(self._log, dry_run=dry_run, config=config)

    @staticmethod
    def repair(
        source: str | os.PathLike[str],
        target: str | os.PathLike[str],
        *,
        from_splits: bool = False,
        config: Mapping[str, object] | None = None,
        storage_options: Mapping[str, object] | None = None,
        runner: Runner | None = None,
    ) -> Repaired:
        """Write a new log, for the table at `source`, into the folder `target`.

        It names the splits that are still there. With `from_splits` no log has to be readable:
        all splits that what is left of it does not call removed are part of the table again.
        """
        return repair_log(
            open_store(source, storage_options),
            open_store(target, storage_options),
            config=Config(config),
            from_splits=from_splits,
            runner=runner,
        )

    def verify(self, *, runner: Runner | None = None) -> list[Check]:
        """Check the log against the files, their checksums, their indexes and their rows."""
        return verify(self._log, config=self._effective(self.snapshot()), runner=runner)

    def component_sizes(
        self, *, where: str | None = None, timezone: str = "UTC", runner: Runner | None = None
    ) -> pa.Table:
        """What the bytes of the splits are; `where` chooses partitions."""
        snapshot = self.snapshot()
        predicate = self._predicate(where, snapshot, timezone=timezone)
        config = self._effective(snapshot)
        return component_sizes(self._log.store, snapshot, predicate, config=config, runner=runner)

    def plan_prewarm(
        self, *, fields: Sequence[str] = (), where: str | None = None, timezone: str = "UTC"
    ) -> PrewarmPlan:
        """The indexes to open before somebody searches them; call it on every host."""
        snapshot = self.snapshot()
        predicate = self._predicate(where, snapshot, timezone=timezone)
        config = self._effective(snapshot)
        return plan_prewarm(self._log.store, snapshot, predicate, fields=fields, config=config)

    def prewarm(self, *, fields: Sequence[str] = (), where: str | None = None) -> Prewarmed:
        """Open the indexes of the table's splits in this process."""
        return self.plan_prewarm(fields=fields, where=where)()
