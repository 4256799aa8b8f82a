"""Keys of the transaction log (commits, checkpoints, states, retention), merging and purging."""

from __future__ import annotations

from indextables.config.key import Section

_log = Section("Transaction log")

TRANSACTION_COMPRESSION = _log.boolean(
    "transaction.compression.enabled",
    True,
    "Compress version files and JSON checkpoints (gzip).",
)
TRANSACTION_RETRY_ATTEMPTS = _log.integer(
    "transaction.retry.maxAttempts", 10, "How often a commit is tried before it gives up.", low=1
)
TRANSACTION_RETRY_BASE_DELAY = _log.duration(
    "transaction.retry.baseDelayMs",
    100,
    "The first pause between two attempts; it doubles.",
)
TRANSACTION_RETRY_MAX_DELAY = _log.duration(
    "transaction.retry.maxDelayMs", 5_000, "The longest pause between two attempts."
)
TRANSACTION_USE_OPTIMIZED = _log.boolean(
    "transaction.useOptimized",
    True,
    "Read through checkpoints and caches. False replays every version file: slow, and the "
    "reference that the fast way is compared with.",
).of_process()
TRANSACTION_CACHE_ENABLED = _log.boolean(
    "transaction.cache.enabled", True, "Keep parsed log files and snapshots in memory."
).of_process()
TRANSACTION_CACHE_TTL = _log.duration(
    "transaction.cache.ttl.ms", 300_000, "How long a cached log file or snapshot may be used."
).of_process()
TRANSACTION_MAX_STALENESS = _log.duration(
    "transaction.cache.maxStalenessMs",
    0,
    "How old a cached snapshot may be before a read asks the store for newer versions. "
    "0 asks always.",
).of_process()
TRANSACTION_MAX_FILE_SIZE = _log.size(
    "transaction.maxFileSize",
    "1G",
    "How large one log file may become when it is decompressed; a larger one is refused.",
).of_process()

_checkpoints = Section("Checkpoints")

CHECKPOINT_ENABLED = _checkpoints.boolean(
    "checkpoint.enabled", True, "Write checkpoints after commits."
)
CHECKPOINT_INTERVAL = _checkpoints.integer(
    "checkpoint.interval", 10, "Write a checkpoint every so many versions.", low=1
)
CHECKPOINT_PARALLELISM = _checkpoints.integer(
    "checkpoint.parallelism", 4, "How many version files are read at once.", low=1
).of_process()
CHECKPOINT_READ_TIMEOUT = _checkpoints.integer(
    "checkpoint.read.timeoutSeconds",
    30,
    "How long a parallel read of version files may take as a whole, in seconds.",
    low=1,
).of_process()
CHECKPOINT_ACTIONS_PER_PART = _checkpoints.integer(
    "checkpoint.actionsPerPart",
    50_000,
    "A JSON checkpoint with more actions than this is written in several parts.",
    low=1,
)

_state = Section("Avro state")

STATE_FORMAT = _state.choice(
    "state.format", "avro", ("avro", "json"), "The format of new checkpoints."
)
STATE_COMPRESSION = _state.choice(
    "state.compression", "zstd", ("zstd", "snappy", "none"), "The codec of Avro manifests."
)
STATE_COMPRESSION_LEVEL = _state.integer(
    "state.compressionLevel", 3, "The level of the zstd codec.", low=1, high=22
)
STATE_ENTRIES_PER_MANIFEST = _state.integer(
    "state.entriesPerManifest", 50_000, "The most entries one Avro manifest holds.", low=1
)
STATE_READ_PARALLELISM = _state.integer(
    "state.read.parallelism", 8, "How many manifests are read at once.", low=1
).of_process()
STATE_RETRY_ATTEMPTS = _state.integer(
    "state.retry.maxAttempts", 10, "How often writing a state is tried.", low=1
)
STATE_RETRY_BASE_DELAY = _state.duration(
    "state.retry.baseDelayMs", 100, "The first pause between two attempts to write a state."
)
STATE_RETRY_MAX_DELAY = _state.duration(
    "state.retry.maxDelayMs", 5_000, "The longest pause between two attempts to write a state."
)
STATE_RENORMALIZE_THRESHOLD = _state.integer(
    "state.schema.renormalizeThreshold",
    5,
    "A checkpoint with more distinct mappings than this computes their hashes again, so that "
    "equal mappings share one entry.",
)
STATE_TOMBSTONE_THRESHOLD = _state.number(
    "state.compaction.tombstoneThreshold",
    0.10,
    "Rewrite the manifests when more than this share of their entries is removed.",
    low=0.0,
    high=1.0,
)
STATE_MAX_MANIFESTS = _state.integer(
    "state.compaction.maxManifests",
    20,
    "Rewrite the manifests when they are more.",
    low=1,
)
STATE_LARGE_REMOVE_THRESHOLD = _state.integer(
    "state.compaction.largeRemoveThreshold",
    2**31 - 1,
    "Rewrite the manifests when one checkpoint removes more files than this.",
    low=1,
)
STATE_COMPACT_AFTER_MERGE = _state.boolean(
    "state.compaction.afterMerge",
    True,
    "Rewrite the manifests in a checkpoint after a merge.",
)

_retention = Section("Retention")

LOG_RETENTION = _retention.duration(
    "logRetention.duration",
    2_592_000_000,
    "How long version files are kept after a checkpoint covers them (30 days).",
)
PURGE_LOG_RETENTION_HOURS = _retention.integer(
    "purge.txLogRetentionHours",
    720,
    "The same in hours; wins over logRetention.duration.",
).optional()
CHECKPOINT_RETENTION = _retention.duration(
    "checkpointRetention.duration", 7_200_000, "How long an old JSON checkpoint is kept (2 hours)."
)
STATE_RETENTION_VERSIONS = _retention.integer(
    "state.retention.versions", 2, "How many of the newest Avro states are always kept.", low=1
)
STATE_RETENTION_HOURS = _retention.integer(
    "state.retention.hours", 168, "How long older Avro states are kept, in hours."
)
STATE_GC_MIN_MANIFEST_AGE_HOURS = _retention.integer(
    "state.gc.minManifestAgeHours", 1, "A manifest younger than this is never deleted, in hours."
)
PURGE_RETENTION_HOURS = _retention.integer(
    "purge.defaultRetentionHours",
    168,
    "How old a split must be that no retained version names before purge deletes it, in hours.",
)
PURGE_RETENTION_CHECK = _retention.boolean(
    "purge.retentionCheckEnabled",
    True,
    "Refuse to purge splits younger than 24 hours, which a running write may still commit.",
).of_process()
PURGE_MAX_FILES = _retention.integer(
    "purge.maxFilesToDelete", 1_000_000, "How many splits one purge deletes at the most.", low=1
)
CLEANUP_ENABLED = _retention.boolean(
    "cleanup.enabled", True, "Delete expired log files after a checkpoint, within all safety gates."
)
CLEANUP_FAILURE_POLICY = _retention.choice(
    "cleanup.failurePolicy",
    "continue",
    ("continue", "fail"),
    "What happens when a file cannot be deleted: log a warning, or raise.",
)

_protocol = Section("Protocol")

PROTOCOL_AUTO_UPGRADE = _protocol.boolean(
    "protocol.autoUpgrade",
    True,
    "Let a commit raise the table's protocol when it needs a newer feature.",
)
PROTOCOL_CHECK_ENABLED = _protocol.boolean(
    "protocol.checkEnabled",
    True,
    "Refuse tables whose protocol is newer than this release. False is for emergencies.",
).of_process()

_delta = Section("Delta mirror")

DELTA_MIRROR = _delta.boolean(
    "delta.mirror",
    False,
    "Mirror each commit into `_delta_log`, so that the table is a Delta table as well. A property "
    "of the table; an option or a session only hands it to a table that they create.",
)
DELTA_TOMBSTONES = _delta.duration(
    "delta.mirror.deletedFileRetention",
    604_800_000,
    "How long purge keeps a file that left the mirror, for readers of its older versions (7 days).",
)

_skipped = Section("Skipped files")

SKIPPED_FILES_TRACKING = _skipped.boolean(
    "skippedFiles.trackingEnabled", True, "Record files that a job could not process."
)
SKIPPED_FILES_COOLDOWN = _skipped.integer(
    "skippedFiles.cooldownDuration",
    24,
    "How long a skipped file is left alone by the next jobs, in hours; it stays readable.",
)


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
