"""Ariadne, under its own prefix `spark.ariadne.`."""

from __future__ import annotations

from indextables.config.key import ARIADNE_PREFIX, Section

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
