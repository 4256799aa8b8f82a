"""Cross-references: how they are built, asked and kept up."""

from __future__ import annotations

from indextables.config.key import Section

_xref = Section("Cross-references: format, build and queries")

XREF_INCLUDE_POSITIONS = _xref.boolean(
    "xref.build.includePositions",
    False,
    "Keep pairs of neighbouring words, so that a phrase is routed by its pairs and not by its "
    "words alone. The build then reads the text of the source splits, which is slow.",
)
XREF_TEMP_DIRECTORY = _xref.text(
    "xref.build.tempDirectoryPath",
    "",
    "Where XRefs are built before they are stored; indexWriter.tempDirectoryPath by default.",
).of_process()
XREF_HEAP_SIZE = (
    _xref.size(
        "xref.build.heapSize",
        "50M",
        "Memory for an XRef that is being built; indexWriter.heapSize if that is set, else 50M.",
        low=15_000_000,
    )
    .of_process()
    .optional()
)
XREF_DIRECTORY = _xref.text(
    "xref.storage.directory",
    "_xrefsplits",
    "The folder of the table that new XRefs are stored in.",
)
XREF_COMPRESSION = _xref.boolean(
    "xref.storage.compressionEnabled",
    True,
    "Compress the index of an XRef: fewer bytes to fetch, a little more time to open it.",
)
XREF_BLOOM_FIELDS = _xref.text(
    "xref.build.bloomFields",
    "",
    "Columns of identifiers, separated by commas: instead of their values an XRef keeps one bloom "
    "filter a split. For values that are nearly all different.",
)
XREF_BLOOM_BITS = _xref.integer(
    "xref.build.bloomBitsPerValue",
    12,
    "Bits of a bloom filter for each value of the split that has most: 12 let about one split in "
    "200 through for nothing.",
    low=4,
    high=64,
)
XREF_QUERY = _xref.boolean(
    "xref.query.enabled",
    True,
    "Ask XRefs which splits can match before splits are opened.",
)
XREF_MIN_SPLITS = _xref.integer(
    "xref.query.minSplitsForXRef",
    128,
    "With fewer splits left by partitions and statistics, XRefs are not asked.",
)
XREF_TIMEOUT = _xref.duration(
    "xref.query.timeoutMs",
    5_000,
    "How long a query waits for all its XRefs; splits of those that have not answered are read.",
)
XREF_FALLBACK = _xref.boolean(
    "xref.query.fallbackOnError",
    True,
    "Read all splits of an XRef that is missing, damaged or too slow. false: the query fails.",
)
XREF_MAX_MEMORY = _xref.size(
    "xref.query.maxMemory",
    "1G",
    "How large the XRefs are together that a process keeps open.",
).of_process()

_auto_index = Section("Cross-references: automatic indexing")

XREF_AUTO_INDEX = _auto_index.boolean(
    "xref.autoIndex.enabled",
    True,
    "Index new splits in the commit that adds them, as soon as enough are not covered.",
)
XREF_MAX_SOURCE_SPLITS = _auto_index.integer(
    "xref.autoIndex.maxSourceSplits", 1024, "How many splits one XRef covers at the most.", low=1
)
XREF_MIN_SPLITS_TO_TRIGGER = _auto_index.integer(
    "xref.autoIndex.minSplitsToTrigger",
    10,
    "How many splits have to be without an XRef before a commit builds one.",
    low=1,
)
XREF_REBUILD_ON_SOURCE_CHANGE = _auto_index.boolean(
    "xref.autoIndex.rebuildOnSourceChange",
    True,
    "Let a commit replace an XRef when a quarter of its splits is gone, and remove it when all "
    "are.",
)
XREF_AUTO_INDEX_TIMEOUT = _auto_index.duration(
    "xref.autoIndex.timeoutMs",
    60_000,
    "How long a commit waits for its XRefs. What is ready by then is committed, what is not is "
    "left to the next write.",
)
XREF_BUILD_PARALLELISM = (
    _auto_index.integer(
        "xref.build.parallelism",
        0,
        "How many XRefs are built at once; 0 or auto is one for each core, with executors one for "
        "each task.",
    )
    .accepting("auto", 0)
    .of_process()
)
