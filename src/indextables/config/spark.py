"""Keys that have an effect with Spark only, those of Ariadne (`spark.ariadne.*`) included."""

from __future__ import annotations

from indextables.config.key import ARIADNE_PREFIX, Section

_optimized_write = Section("Spark: optimized write")

OPTIMIZE_WRITE = _optimized_write.boolean(
    "write.optimizeWrite.enabled",
    False,
    "Let Spark bring rows together before they are written, so that a write makes few, large "
    "splits: by partition columns, or by the first column of a table without any.",
)
WRITE_DISTRIBUTION = _optimized_write.choice(
    "write.optimizeWrite.distributionMode",
    "hash",
    ("hash", "balanced", "none"),
    "hash: rows of a partition in one task, tasks of the target size. balanced: the same in as "
    "many tasks as there are cores. none: rows stay where they are.",
)
WRITE_TARGET_SPLIT_SIZE = _optimized_write.size(
    "write.optimizeWrite.targetSplitSize",
    "1G",
    "The size that an optimized write aims for.",
    low=1 << 10,
)
WRITE_SAMPLING_RATIO = _optimized_write.number(
    "write.optimizeWrite.samplingRatio",
    1.1,
    "Without a history: how much larger rows are in a shuffle than in a split.",
    low=0.01,
    high=100.0,
)
WRITE_MIN_ROWS_FOR_ESTIMATE = _optimized_write.integer(
    "write.optimizeWrite.minRowsForEstimation",
    10_000,
    "Sizes are not estimated from a table with fewer rows.",
)

_reading = Section("Spark: reading")

DRIVER_MAX_ROWS = _reading.integer(
    "read.driver.maxRows",
    10_000,
    "A query whose search finds at most so many rows is answered on the driver, without a Spark "
    "job. 0 never does that.",
).of_process()
DRIVER_MAX_AGGREGATED_ROWS = _reading.integer(
    "read.driver.maxAggregatedRows",
    200_000,
    "An aggregate over a search that finds at most so many rows is computed on the driver, without "
    "a Spark job.",
).of_process()
DRIVER_MAX_SPLITS = _reading.integer(
    "read.driver.maxSplits",
    64,
    "A query that has to look at more splits is never answered on the driver.",
).of_process()
NATIVE_SCAN = _reading.boolean(
    "read.nativeScan.enabled",
    True,
    "Let Spark's own Parquet reader read splits where no index helps and the table is on a "
    "local disk.",
).of_process()

_distributed_log = Section("Spark: distributed log")

DISTRIBUTED_LOG = _distributed_log.boolean(
    "transaction.distributed.enabled",
    False,
    "Read version files of tables in object stores on executors. The driver, which reads in "
    "threads, took less time with up to 1,000 files on one machine; worth a try where its network "
    "is the limit. Local disks are always read by the driver.",
).of_process()
DISTRIBUTED_MIN_FILES = _distributed_log.integer(
    "transaction.distributed.minFiles",
    10,
    "With fewer version files to read, the driver reads them.",
    low=1,
).of_process()
DISTRIBUTED_PARALLELISM = _distributed_log.integer(
    "transaction.distributed.parallelism",
    0,
    "How many tasks read version files; 0 is Spark's default parallelism.",
).of_process()
DISTRIBUTED_ADAPTIVE = _distributed_log.boolean(
    "transaction.distributed.adaptiveParallelism",
    True,
    "Start fewer tasks for few files and, beyond a hundred files, up to twice as many.",
).of_process()


_ariadne = Section("Ariadne")

ARIADNE_STORAGE_PATH = (
    _ariadne.text(
        ARIADNE_PREFIX + "storagePath",
        "",
        "Where indexes over external files are stored: a folder or a bucket prefix.",
    )
    .optional()
    .of_process()
)
ARIADNE_LARGE_INDEX_LIMIT = _ariadne.integer(
    ARIADNE_PREFIX + "largeIndexLimit",
    500_000,
    "A file with more distinct values of a column than this keeps them as rows of "
    "`large_indexes/<column>/`.",
    low=1,
).of_process()
ARIADNE_STAGING_THRESHOLD = _ariadne.integer(
    ARIADNE_PREFIX + "stagingConsolidationThreshold",
    50,
    "After this many batches of an update the staged rows are merged into `index/`.",
    low=1,
).of_process()
ARIADNE_INDEX_REPARTITION_COUNT = (
    _ariadne.integer(
        ARIADNE_PREFIX + "indexRepartitionCount",
        1,
        "Shuffle the partial results of an update by file into this many tasks. Unset: only "
        "files that Spark reads in several tasks are shuffled.",
        low=1,
    )
    .optional()
    .of_process()
)
ARIADNE_REPARTITION_DATA_FILES = _ariadne.boolean(
    ARIADNE_PREFIX + "repartitionDataFiles",
    False,
    "Also repartition the rows that a join reads, if indexRepartitionCount is set.",
).of_process()
ARIADNE_DEBUG = _ariadne.boolean(
    ARIADNE_PREFIX + "debug",
    False,
    "Log the times, files and batches of updates and the pruning of lookups at level INFO.",
).of_process()
ARIADNE_AUTO_COMPACT_THRESHOLD = (
    _ariadne.integer(
        ARIADNE_PREFIX + "autoCompactThreshold",
        1,
        "Compact the index after an update once this many batches were written since the last "
        "compaction. Unset: only `compact()` does it.",
        low=1,
    )
    .optional()
    .of_process()
)
ARIADNE_AUTO_BLOOM_FPR = _ariadne.number(
    ARIADNE_PREFIX + "autoBloomFpr",
    0.01,
    "The false positive rate of the bloom filters that files with very many values get.",
    low=1e-9,
    high=0.999,
).of_process()
ARIADNE_CHECK_FILES = _ariadne.boolean(
    ARIADNE_PREFIX + "checkFiles",
    True,
    "Ask the store on every lookup whether files were rewritten since they were indexed. Without "
    "it only an update notices.",
).of_process()
ARIADNE_DRIVER_READ_LIMIT = _ariadne.size(
    ARIADNE_PREFIX + "driverReadLimit",
    "16M",
    "Parquet files that a join located and that are no larger than this together are read by the "
    "driver, which is faster than a Spark job. Their rows have no `_metadata`, and `inputFiles()` "
    "is empty. 0: Spark reads every file.",
    low=0,
).of_process()
