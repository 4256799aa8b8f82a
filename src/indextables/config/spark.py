"""What there is only with Spark."""

from __future__ import annotations

from indextables.config.key import Section

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
    "A table with fewer rows is no history to estimate sizes from.",
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
