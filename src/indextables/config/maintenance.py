"""What keeps a table in shape: merging splits, purging after writes."""

from __future__ import annotations

from indextables.config.key import Section

_merging = Section("Merging splits")

MERGE_TARGET_SIZE = _merging.size(
    "merge.targetSize",
    "5G",
    "How large the splits of one merge are together at the most, unless TARGET SIZE says "
    "otherwise. What they become is about as large.",
    low=1 << 20,
)
MERGE_MAX_SOURCE_SPLITS = _merging.integer(
    "merge.maxSourceSplitsPerMerge", 1_000, "How many splits become one at the most.", low=2
)
MERGE_SKIP_THRESHOLD = _merging.number(
    "merge.skipSplitThreshold",
    1.0,
    "A split of this share of the target size is not merged any more. 0.5 writes large splits "
    "less often and leaves more of them.",
    low=0.0,
    high=1.0,
)
MERGE_PARALLELISM = _merging.integer(
    "merge.parallelism",
    0,
    "How many splits one process makes at once; 0 is one for each core. Spark's tasks are as many "
    "as its cores.",
).of_process()
MERGE_BATCH_SIZE = _merging.integer(
    "merge.batchSize",
    0,
    "After how many groups those that are ready are committed; 0 is four for each core here.",
)
MERGE_HEAP_SIZE = _merging.size(
    "merge.heapSize",
    "1G",
    "Memory for the index of rows that have to be indexed again; it grows as it is needed.",
    low=15_000_000,
).of_process()
MERGE_TEMP_DIRECTORY = _merging.text(
    "merge.tempDirectoryPath",
    "",
    "Where merged splits are built before they are stored; indexWriter.tempDirectoryPath by "
    "default.",
).of_process()
MERGE_PRECOMMIT = _merging.boolean(
    "mergePrecommit",
    False,
    "Merge the splits of a write before they are committed, up to merge.targetSize. Also an option "
    "of one write: mergePrecommit.",
)
MERGE_ON_WRITE = _merging.boolean(
    "mergeOnWrite.enabled",
    False,
    "Merge small splits after a write. A failure is logged; the write stays.",
)
MERGE_ON_WRITE_TARGET_SIZE = _merging.size(
    "mergeOnWrite.targetSize", "4G", "How large these merges make splits.", low=1 << 20
)
MERGE_ON_WRITE_MIN_BATCHES = _merging.integer(
    "mergeOnWrite.minBatchesToTrigger",
    1,
    "A write merges when there are as many groups as this many batches.",
    low=1,
)
MERGE_ON_WRITE_CPU_FRACTION = _merging.number(
    "mergeOnWrite.batchCpuFraction",
    0.167,
    "The groups of a batch, as a share of the cores; at least one.",
    low=0.0,
    high=1.0,
)

_purging = Section("Purging on write")

PURGE_ON_WRITE = _purging.boolean(
    "purgeOnWrite.enabled", False, "Purge after writes. A failure is logged; the write stays."
)
PURGE_ON_WRITE_AFTER_MERGE = _purging.boolean(
    "purgeOnWrite.triggerAfterMerge", True, "Purge after a write that merged splits."
)
PURGE_ON_WRITE_AFTER_WRITES = _purging.integer(
    "purgeOnWrite.triggerAfterWrites",
    0,
    "Purge after every so many writes of one process to a table; 0 never does.",
)
PURGE_ON_WRITE_SPLIT_HOURS = _purging.integer(
    "purgeOnWrite.splitRetentionHours",
    168,
    "How old a split must be that no retained version names, in hours.",
)
PURGE_ON_WRITE_LOG_HOURS = _purging.integer(
    "purgeOnWrite.txLogRetentionHours", 720, "How long these purges keep version files, in hours."
)
