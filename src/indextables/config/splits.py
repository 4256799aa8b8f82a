"""Splits: what a search may ask, and how rows are indexed, kept at hand, read and written."""

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

_indexing = Section("Indexing")

TYPE_MAP = _indexing.family(
    "indexing.typemap.",
    "field",
    "How a string column is indexed: text, string (exact), json or ip. The other spelling names "
    "the type and lists the fields: indexing.typemap.string = id,code.",
)
TOKENIZER = _indexing.family(
    "indexing.tokenizer.",
    "field",
    "The tokenizer of a text or json field: default, raw, whitespace, en_stem and other "
    "languages, ngram or ngram(2,3).",
)
FIELD_RECORD_OPTION = _indexing.family(
    "indexing.indexrecordoption.",
    "field",
    "What the index keeps for each word of one field: position, freq or basic.",
)
FIELD_TOKEN_LENGTH = _indexing.family(
    "indexing.tokenLength.",
    "field",
    "The longest word in bytes that one field indexes, as text.maxTokenLength.",
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
MAX_OPEN_SPLITS = _search.integer(
    "search.maxOpenSplits",
    128,
    "How many indexes a process keeps open; each costs a thread and some memory.",
    low=1,
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
    "How many partitions one writer keeps open at once; the one written least lately is closed.",
    low=1,
).of_process()
