"""Cross-references: which splits can match, kept beside the table."""

from __future__ import annotations

import pyarrow as pa

from indextables.jobs.crossreference_rows import indexed_rows, xref_rows
from indextables.jobs.index_crossreferences import drop_crossreferences, index_crossreferences
from indextables.runner import Runner
from indextables.table.open_table import OpenTable


class CrossReferences(OpenTable):
    """The verbs of cross-reference indexes (XRefs)."""

    def crossreferences(self) -> pa.Table:
        """The table's cross-reference indexes (XRefs): stale ones last, the largest first."""
        return xref_rows(self.snapshot())

    def index_crossreferences(
        self,
        *,
        where: str | None = None,
        timezone: str = "UTC",
        force_rebuild: bool = False,
        dry_run: bool = False,
        runner: Runner | None = None,
    ) -> pa.Table:
        """Build the XRefs that are missing and replace stale ones; a row for each XRef.

        `where` chooses partitions; times in it that name no zone are meant in `timezone`. With
        `force_rebuild` everything is built anew, with `dry_run` nothing is. `runner` says where
        XRefs are built; by default in this process.

        >>> import pyarrow as pa
        >>> from indextables import Table
        >>> table = Table.create("memory://xref-example", pa.schema([("body", pa.string())]))
        >>> table.append(pa.table({"body": ["red fox"]})).version
        1
        >>> table.index_crossreferences(dry_run=True)["action"].to_pylist()
        ['created']
        """
        self._check_writable()
        predicate = None
        if where is not None:
            predicate = self._predicate(where, self.snapshot(), timezone=timezone)
        found = index_crossreferences(
            self._log,
            config=self._config,
            where=predicate,
            force=force_rebuild,
            dry_run=dry_run,
            runner=runner,
        )
        return indexed_rows(found, table_path=self.uri, where=where)

    def drop_crossreferences(self) -> int:
        """Remove all XRefs; gives how many there were. Their files stay until purge."""
        self._check_writable()
        return drop_crossreferences(self._log)
