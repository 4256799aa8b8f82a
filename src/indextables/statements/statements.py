"""IndexTables statements as data, and the parser that makes them.

A statement is one class: its forms are its grammar, its fields are what the forms take. `execute`
has one function for each. Text that matches no form goes to Spark unchanged.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, fields
from typing import ClassVar

from indextables.errors import StatementSyntaxError
from indextables.statements.forms import Failure, Target, Word, form, words_of

__all__ = [
    "STATEMENTS",
    "Checkpoint",
    "Compact",
    "ConvertTable",
    "CreateSearchIndex",
    "DeleteRows",
    "DescribeComponentSizes",
    "DescribeDetail",
    "DescribeDiskCache",
    "DescribeEnvironment",
    "DescribeHistory",
    "DescribeLog",
    "DescribeMergeJobs",
    "DescribeSearchIndex",
    "DescribeState",
    "DescribeStorageStats",
    "DropPartitions",
    "DropSearchIndex",
    "FlushDiskCache",
    "FlushSearcherCache",
    "IndexCrossReferences",
    "InvalidateLogCache",
    "MergeSplits",
    "Prewarm",
    "Purge",
    "RefreshSearchIndex",
    "RepairLog",
    "Restore",
    "Statement",
    "Target",
    "TruncateTimeTravel",
    "UpdateRows",
    "Verify",
    "may_be_ours",
    "parse",
]


@dataclass(frozen=True, slots=True)
class Statement:
    """What all statements have in common: their forms."""

    FORMS: ClassVar[tuple[str, ...]] = ()
    DELTA_FORMS: ClassVar[tuple[str, ...]] = ()
    """Forms of Delta Lake, which a session may have as well: ours if the table is."""
    in_delta_form: bool = field(default=False, kw_only=True, repr=False)


@dataclass(frozen=True, slots=True)
class FlushSearcherCache(Statement):
    """Close all open indexes and forget the copies of splits on the disks."""

    FORMS = ("FLUSH INDEXTABLES ! SEARCHER CACHE",)


@dataclass(frozen=True, slots=True)
class FlushDiskCache(Statement):
    """Forget the copies of splits on the disks."""

    FORMS = ("FLUSH INDEXTABLES ! DISK CACHE",)


@dataclass(frozen=True, slots=True)
class DescribeDiskCache(Statement):
    """The contents of the disk caches."""

    FORMS = ("DESCRIBE INDEXTABLES DISK ! CACHE",)


@dataclass(frozen=True, slots=True)
class DescribeStorageStats(Statement):
    """Reads of object stores by the driver and a worker of each executor since they started."""

    FORMS = ("DESCRIBE INDEXTABLES STORAGE ! STATS",)


@dataclass(frozen=True, slots=True)
class DescribeMergeJobs(Statement):
    """No rows: merges are done when the write or the statement that began them is."""

    FORMS = ("DESCRIBE INDEXTABLES MERGE ! JOBS",)


@dataclass(frozen=True, slots=True)
class InvalidateLogCache(Statement):
    """Clear the caches of one log, or of all."""

    FORMS = (
        "INVALIDATE INDEXTABLES ! TRANSACTION LOG CACHE [FOR [TABLE] <table>]",
        "INVALIDATE TRANSACTION LOG ! CACHE [FOR [TABLE] <table>]",
    )
    table: Target | None = None


@dataclass(frozen=True, slots=True)
class Checkpoint(Statement):
    """Write a checkpoint of the newest version."""

    FORMS = ("CHECKPOINT INDEXTABLES ! <table>",)
    table: Target


@dataclass(frozen=True, slots=True)
class Compact(Statement):
    """Write a checkpoint of the newest version, with all live files in new manifests."""

    FORMS = ("COMPACT INDEXTABLES ! <table>",)
    table: Target


@dataclass(frozen=True, slots=True)
class DescribeState(Statement):
    """The newest checkpoint of a table."""

    FORMS = ("DESCRIBE INDEXTABLES STATE ! <table>",)
    table: Target


@dataclass(frozen=True, slots=True)
class DescribeLog(Statement):
    """The actions in a table's log."""

    FORMS = (
        "DESCRIBE INDEXTABLES TRANSACTION LOG ! <table> [INCLUDE ALL] [XREFS] "
        "[LIMIT <limit:number>]",
    )
    table: Target
    include_all: bool = False
    xrefs: bool = False
    limit: int | None = None


@dataclass(frozen=True, slots=True)
class DescribeHistory(Statement):
    """The retained versions of a table, newest first."""

    FORMS = ("DESCRIBE INDEXTABLES HISTORY ! <table> [LIMIT <limit:number>]",)
    DELTA_FORMS = ("DESCRIBE HISTORY <table> [LIMIT <limit:number>]",)
    table: Target
    limit: int | None = None


@dataclass(frozen=True, slots=True)
class DescribeDetail(Statement):
    """A table in one row: place, partitions, files, bytes, rows, properties, protocol."""

    FORMS = ("DESCRIBE INDEXTABLES DETAIL ! <table>",)
    DELTA_FORMS = ("DESCRIBE DETAIL <table>",)
    table: Target


@dataclass(frozen=True, slots=True)
class DescribeEnvironment(Statement):
    """Versions, configuration and hosts, without secrets."""

    FORMS = ("DESCRIBE INDEXTABLES ENVIRONMENT !",)


@dataclass(frozen=True, slots=True)
class Restore(Statement):
    """Make a table what it was at a version, or at a time in the session's time zone."""

    FORMS = (
        "RESTORE INDEXTABLES ! <table> TO VERSION <version:number>",
        "RESTORE INDEXTABLES ! <table> TO TIMESTAMP <timestamp:text>",
    )
    DELTA_FORMS = (
        "RESTORE [TABLE] <table> TO VERSION AS OF <version:number>",
        "RESTORE [TABLE] <table> TO TIMESTAMP AS OF <timestamp:text>",
    )
    table: Target
    version: int | None = None
    timestamp: str | None = None


@dataclass(frozen=True, slots=True)
class Purge(Statement):
    """Delete expired log files, and old splits that no retained version names."""

    FORMS = (
        "PURGE INDEXTABLE|INDEXTABLES ! <table> [OLDER THAN <older_than:hours>] "
        "[TRANSACTION LOG RETENTION <log_retention:hours>] [DRY RUN]",
    )
    DELTA_FORMS = ("VACUUM <table> [RETAIN <older_than:hours>] [DRY RUN]",)
    table: Target
    older_than: int | None = None
    log_retention: int | None = None
    dry_run: bool = False


@dataclass(frozen=True, slots=True)
class DropPartitions(Statement):
    """Remove whole partitions from a table."""

    FORMS = ("DROP INDEXTABLES PARTITIONS ! FROM <table> [WHERE <where:condition>]",)
    table: Target
    where: str | None = None


@dataclass(frozen=True, slots=True)
class TruncateTimeTravel(Statement):
    """Forget all versions but the newest."""

    FORMS = ("TRUNCATE INDEXTABLES TIME ! TRAVEL <table> [DRY RUN]",)
    table: Target
    dry_run: bool = False


@dataclass(frozen=True, slots=True)
class RepairLog(Statement):
    """Write a new log from the readable parts of a damaged one, or from the splits alone."""

    FORMS = (
        "REPAIR INDEXFILES ! TRANSACTION LOG <source:text> AT LOCATION <target:text> [FROM SPLITS]",
    )
    source: str
    target: str
    from_splits: bool = False


@dataclass(frozen=True, slots=True)
class ConvertTable(Statement):
    """Make an index table of a Delta table or of Parquet files, which stay as they are."""

    FORMS = ("CONVERT TO INDEXTABLES ! <source:table> LOCATION <location:text>",)
    source: Target
    location: str


@dataclass(frozen=True, slots=True)
class Verify(Statement):
    """Check a table: log, files, checksums, index, rows."""

    FORMS = ("VERIFY INDEXTABLES ! <table>",)
    table: Target


@dataclass(frozen=True, slots=True)
class DescribeComponentSizes(Statement):
    """The sizes of the parts of splits."""

    FORMS = ("DESCRIBE INDEXTABLES COMPONENT ! SIZES <table> [WHERE <where:condition>]",)
    table: Target
    where: str | None = None


@dataclass(frozen=True, slots=True)
class Prewarm(Statement):
    """Open the indexes of a table's splits before the first search.

    An index is opened as a whole, so SEGMENTS change nothing; names of segments that the Scala
    product does not have are refused. PARALLELISM is how many splits a process opens at once.
    """

    FORMS = (
        "PREWARM INDEXTABLES ! CACHE <table> [FOR SEGMENTS <segments:names>] "
        "[ON FIELDS <fields:names>] [WITH PERWORKER PARALLELISM OF <parallelism:number>] "
        "[WHERE <where:condition>]",
    )
    table: Target
    segments: tuple[str, ...] = ()
    fields: tuple[str, ...] = ()
    parallelism: int | None = None
    where: str | None = None


@dataclass(frozen=True, slots=True)
class DeleteRows(Statement):
    """Delete the rows of a condition. Spark has the statement too: ours if the table is."""

    # Spark takes a WHERE without a condition for an alias, and deletes every row.
    FORMS = ("DELETE FROM <table> [[AS] <alias>] [WHERE ! <where:condition>]",)
    table: Target
    where: str | None = None
    alias: str | None = None
    ctes: str = ""


@dataclass(frozen=True, slots=True)
class UpdateRows(Statement):
    """Change the rows of a condition. Spark has the statement too: ours if the table is."""

    FORMS = ("UPDATE <table> [[AS] <alias>] SET <set:assignments> [WHERE <where:condition>]",)
    table: Target
    set: str
    where: str | None = None
    alias: str | None = None
    ctes: str = ""


@dataclass(frozen=True, slots=True)
class IndexCrossReferences(Statement):
    """Build the cross-references that are missing, replace those that are stale."""

    FORMS = (
        "INDEX CROSSREFERENCES ! FOR <table> [WHERE <where:condition>] [FORCE REBUILD] [DRY RUN]",
    )
    table: Target
    where: str | None = None
    force_rebuild: bool = False
    dry_run: bool = False


@dataclass(frozen=True, slots=True)
class MergeSplits(Statement):
    """Merge small splits into large ones."""

    FORMS = (
        "MERGE SPLITS ! <table> {[WHERE <where:condition>] [TARGET SIZE <target_size:size>] "
        "[MAX GROUPS <max_groups:number>] [MAX DEST SPLITS <max_groups:number>] "
        "[MAX SOURCE SPLITS PER MERGE <max_sources:number>] [PRECOMMIT]}",
    )
    DELTA_FORMS = ("OPTIMIZE <table> [WHERE <where:condition>]",)
    table: Target
    where: str | None = None
    target_size: str | None = None
    max_groups: int | None = None
    max_sources: int | None = None
    precommit: bool = False


@dataclass(frozen=True, slots=True)
class CreateSearchIndex(Statement):
    """Index columns of a Delta or Iceberg table or of Parquet files, which stay where they are.

    The source is delta.`uri`, iceberg.`uri`, parquet.`uri`, or a table of Spark's catalog in one of
    these formats.
    Without names, all its columns are searched. OPTIONS are `spark.indextables.*` keys.
    """

    FORMS = (
        "CREATE SEARCH INDEX ! [IF NOT EXISTS] <index:table> ON <source:table> [<columns:names>] "
        "{[OPTIONS <options:options>] [LOCATION <location:text>]}",
    )
    index: Target
    source: Target
    columns: tuple[str, ...] | None = None
    options: tuple[tuple[str, str], ...] = ()
    location: str | None = None
    if_not_exists: bool = False


@dataclass(frozen=True, slots=True)
class RefreshSearchIndex(Statement):
    """Index the files that are new in the source of a search index, and drop what left it.

    ON names the source again, after it was moved.
    """

    FORMS = ("REFRESH SEARCH INDEX ! <index:table> [ON <source:table>]",)
    index: Target
    source: Target | None = None


@dataclass(frozen=True, slots=True)
class DescribeSearchIndex(Statement):
    """The source of a search index, its columns, and how much is indexed."""

    FORMS = ("DESCRIBE SEARCH INDEX ! <index:table>",)
    index: Target


@dataclass(frozen=True, slots=True)
class DropSearchIndex(Statement):
    """Delete a search index and its name; the source is not touched."""

    FORMS = ("DROP SEARCH INDEX ! [IF EXISTS] <index:table>",)
    index: Target
    if_exists: bool = False


STATEMENTS: tuple[type[Statement], ...] = (
    FlushSearcherCache, FlushDiskCache, DescribeDiskCache, DescribeStorageStats,
    DescribeMergeJobs, InvalidateLogCache, Checkpoint, Compact, DescribeState, DescribeLog,
    DescribeHistory, DescribeDetail, DescribeEnvironment, Restore, Purge, DropPartitions,
    TruncateTimeTravel, RepairLog, ConvertTable, Verify, DescribeComponentSizes, Prewarm,
    DeleteRows, UpdateRows, IndexCrossReferences, MergeSplits, CreateSearchIndex,
    RefreshSearchIndex, DescribeSearchIndex, DropSearchIndex,
)  # fmt: skip


# Almost all statements are Spark's and need not be cut into tokens.
_FIRST_WORDS = re.compile(
    r"\b(?:"
    + "|".join(
        {
            first
            for kind in STATEMENTS
            for text in (*kind.FORMS, *kind.DELTA_FORMS)
            for first in form(text).first
        }
    )
    + r")\b",
    re.IGNORECASE,
)


def may_be_ours(sql: str) -> bool:
    """Whether the text has a word that an IndexTables statement begins with."""
    return _FIRST_WORDS.search(sql) is not None


def _ctes(sql: str, words: list[Word]) -> tuple[str, list[Word]]:
    """The common table expressions before a DELETE or UPDATE, and the words of the rest."""
    if words[0].text.upper() != "WITH":
        return "", words
    depth = 0
    for at, word in enumerate(words[:-1]):
        if word.kind == "symbol":
            depth += {"(": 1, ")": -1}.get(word.text, 0)
        after = words[at + 1]
        if word.text == ")" and depth == 0 and after.kind == "word":
            if after.text.upper() in ("DELETE", "UPDATE"):
                return sql[: after.start], words[at + 1 :]
            if after.text.upper() != "AS":
                break
    return "", words


def parse(sql: str) -> Statement | None:
    """The statement, or None if it is not one of IndexTables and Spark should read it.

    >>> parse("invalidate tantivy4spark transaction log cache for db.`my docs`;")
    InvalidateLogCache(table=Target(path=None, name=('db', 'my docs')))
    >>> parse("SELECT 1") is None
    True
    """
    words = words_of(sql) if may_be_ours(sql) else None
    if not words:
        return None
    ctes, words = _ctes(sql, words)
    failures: list[tuple[Failure, str]] = []
    for statement in (DeleteRows, UpdateRows) if ctes else STATEMENTS:
        for text in (*statement.FORMS, *statement.DELTA_FORMS):
            outcome = form(text).match(words)
            if isinstance(outcome, Failure):
                failures.append((outcome, form(text).shown))
            elif outcome is not None:
                names = {f.name for f in fields(statement)}
                values = {**outcome, **({"ctes": ctes} if ctes else {})}
                values["in_delta_form"] = text in statement.DELTA_FORMS
                return statement(**{name: v for name, v in values.items() if name in names})
    if not failures:
        return None
    furthest = max(failure.at for failure, _ in failures)
    best = [(failure, shown) for failure, shown in failures if failure.at == furthest]
    place = words[furthest] if furthest < len(words) else None
    raise StatementSyntaxError(
        sql,
        position=place.start if place else words[-1].end,
        found=sql[place.start : place.end] if place else None,
        expected=list(dict.fromkeys(failure.expected for failure, _ in best)),
        forms=[shown for _, shown in best],
    )
