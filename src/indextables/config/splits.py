"""Keys of splits (what a search may ask; indexing, caching, reads, writes) and cross-references."""

from __future__ import annotations

from indextables.config.key import Section

_queries = Section("Queries")

INDEXQUERY_MAX_LENGTH = _queries.integer(
    "indexquery.maxLength",
    32_768,
    "The longest search query that is accepted, in characters.",
    low=1,
)
INDEXQUERY_MAX_DEPTH = _queries.integer(
    "indexquery.maxDepth",
    100,
    "How deep parentheses and NOT may be nested in a search query.",
    low=1,
    high=150,
).of_process()

SEARCH_FIELDS = _queries.text(
    "search.fields",
    "",
    "The fields of a ranked search that names none, in a list with weights: title^3,body. All that "
    "are indexed by default. Meant as a property of a table.",
)

BM25_K1 = _queries.number(
    "search.bm25.k1",
    1.2,
    "How soon further occurrences of a word stop adding to a score: with 0 at once. Meant "
    "as a property of a table; search.md says what other values cost.",
    low=0,
    high=100,
)
BM25_B = _queries.number(
    "search.bm25.b",
    0.75,
    "How much less a word counts in a long text: not at all with 0, in full with 1. Meant as a "
    "property of a table.",
    low=0,
    high=1,
)

SEARCH_SYNONYMS = _queries.synonyms(
    "search.synonyms",
    "What else a search for a word finds: 'car, automobile' finds both, 'ny => new york' finds "
    "the phrase instead. One rule a line, or between semicolons. Meant as a property of a "
    "table; search.md says where it applies.",
)

_indexing = Section("Indexing")

TYPE_MAP = _indexing.family(
    "indexing.typemap.",
    "field",
    "How a string column is indexed: text, string (exact), json or ip. The other spelling names "
    "the type and lists the fields: indexing.typemap.string = id,code.",
)
DEFAULT_STRING_KIND = _indexing.choice(
    "indexing.defaultStringKind",
    "text",
    ("text", "string"),
    "How new string columns are indexed that no typemap names: text is cut into words, string is "
    "compared whole.",
)
TOKENIZER = _indexing.family(
    "indexing.tokenizer.",
    "field",
    "The analyzer of a text or json field: default, english and other languages, code, raw, "
    "whitespace, ngram(2,3) …, alone or with filters: 'html | default | fold | stop(en)'. "
    "search.md lists them. The other spelling names the analyzer and lists the fields: "
    "indexing.tokenizer.en_stem = title,body.",
)
FIELD_RECORD_OPTION = _indexing.family(
    "indexing.indexrecordoption.",
    "field",
    "What the index keeps for each word of one field: position, freq or basic. The other spelling: "
    "indexing.indexrecordoption.basic = logs,notes.",
)
FIELD_TOKEN_LENGTH = _indexing.family(
    "indexing.tokenLength.",
    "field",
    "The longest word in bytes that one field indexes, as text.maxTokenLength. The other spelling: "
    "indexing.tokenLength.legacy = code,url.",
)
TEXT_RECORD_OPTION = _indexing.choice(
    "text.indexRecordOption",
    "position",
    ("position", "freq", "basic"),
    "What the index keeps for each word of text fields. Without positions phrases are checked on "
    "the rows; without frequencies scores know only whether a word is there.",
)
TEXT_MAX_TOKEN_LENGTH = _indexing.text(
    "text.maxTokenLength",
    "default",
    "The longest word in bytes that text fields index, 1 to 65530; longer ones are dropped. Names: "
    "tantivy_max (65530), default (255), legacy (40), min (1).",
)
FAST_FIELDS = _indexing.text(
    "indexing.fastfields",
    "",
    "Numbers, dates, booleans and addresses, separated by commas, that the index also keeps as a "
    "column: equality, ranges and `field:*` are then answered without reading rows.",
)
STORE_ONLY_FIELDS = _indexing.text(
    "indexing.storeonlyfields",
    "",
    "Fields, separated by commas, that are stored but not indexed; a search does not see them.",
)
WRITER_HEAP_SIZE = _indexing.size(
    "indexWriter.heapSize",
    "100M",
    "Memory for the index of a split that is being written; more rows make more segments.",
    low=15_000_000,
).of_process()
WRITER_TEMP_DIRECTORY = _indexing.text(
    "indexWriter.tempDirectoryPath",
    "",
    "Where splits are built before they are stored; the system's temporary directory by default.",
).of_process()

_statistics = Section("Statistics")

STATS_NUM_COLUMNS = _statistics.integer(
    "dataSkippingNumIndexedCols",
    32,
    "For how many of the first eligible columns minimum, maximum and null count are kept; "
    "-1 is all.",
    low=-1,
)
STATS_COLUMNS = _statistics.text(
    "dataSkippingStatsColumns",
    "",
    "Columns, separated by commas, that statistics are kept for; wins over the number.",
)
STATS_TRUNCATION_ENABLED = _statistics.boolean(
    "stats.truncation.enabled",
    True,
    "Shorten long texts in statistics; a minimum rounds down, a maximum rounds up.",
)
STATS_TRUNCATION_LENGTH = _statistics.integer(
    "stats.truncation.maxLength", 32, "The longest text in statistics, in characters.", low=1
)

_search = Section("Search")

MAX_EXPANSIONS = _search.integer(
    "indexquery.maxExpansions",
    100_000,
    "How many different words one wildcard, phrase prefix or range of words may match in a split.",
    low=1,
).of_process()
MAX_OPEN_FILES = _search.integer(
    "search.maxOpenFiles",
    0,
    "How many files of indexes a process keeps open; an index has six, whatever its size. 0 means "
    "half of what the system lets a process map.",
    low=0,
).of_process()

_cache = Section("Cache")

CACHE_DISK_PATH = _cache.text(
    "cache.disk.path",
    "",
    "The folder where copies of remote splits are kept. Empty means the user's cache folder.",
).of_process()
CACHE_DISK_MAX_SIZE = _cache.size(
    "cache.disk.maxSize",
    "20G",
    "How much that folder may hold; the least recently used copies are deleted.",
).of_process()

_reading = Section("Reading")

READ_PARALLELISM = _reading.integer(
    "read.parallelism", 8, "How many splits one process reads at once.", low=1
).of_process()

_writing = Section("Writing")

WRITE_MAX_SPLIT_SIZE = _writing.size(
    "write.maxSplitSize",
    "1G",
    "A writer begins another split when the rows of one have this size in Parquet.",
    low=1 << 10,
)
WRITE_MAX_OPEN_SPLITS = _writing.integer(
    "write.maxOpenSplits",
    16,
    "How many partitions one writer keeps open at once; rows of others wait, in memory and then on "
    "disk, until there is room.",
    low=1,
).of_process()


_vectors = Section("Deleted rows")

VECTOR_MODE = _vectors.choice(
    "deletionVectors.mode",
    "auto",
    ("auto", "vector", "rewrite"),
    "How DELETE, UPDATE, MERGE INTO and overwriting by a condition take rows out of a split: "
    "vector marks them as deleted, rewrite writes the other rows again, auto marks in large splits "
    "in which few rows are deleted.",
)
VECTOR_MAX_SHARE = _vectors.number(
    "deletionVectors.maxDeletedShare",
    0.2,
    "The share of deleted rows above which auto rewrites a split, and a merge takes a split that "
    "it would leave alone otherwise.",
    low=0,
    high=1,
)
VECTOR_MIN_SIZE = _vectors.size(
    "deletionVectors.minSplitSize",
    "1M",
    "Smaller splits are rewritten by auto: that costs no more than a vector.",
)

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
XREF_DIRECTORY = _xref.folder(
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
    "With fewer splits left by partitions and statistics, XRefs are not asked, unless the store "
    "would have to send splits that are more than 20 times as large as the XRefs.",
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
