"""Every `spark.indextables.*` key: its name, type, default and meaning, in one registry.

A key is a constant of this module and is read with it, so that its type is known::

    >>> config = Config({"spark.indextables.checkpoint.interval": "20"})
    >>> config[CHECKPOINT_INTERVAL]
    20

Values come in layers, the first one that has the key wins: options of one read or write, session
configuration, table properties, the default. Names are case-insensitive, and
`spark.tantivy4spark.*` is an old spelling of `spark.indextables.*`. A key that is not in the
registry is an error, because accepting it would promise an effect. `docs/configuration.md` is
generated from here.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar, overload

from indextables.errors import InvalidValueError, UnknownKeyError

PREFIX = "spark.indextables."
OLD_PREFIX = "spark.tantivy4spark."

T = TypeVar("T")


@dataclass(frozen=True, slots=True, eq=False)
class Key(Generic[T]):
    """One configuration key. `kind` is the type's name in the documentation."""

    name: str
    kind: str
    default: T
    meaning: str
    section: str
    parse: Callable[[object], T]


@dataclass(frozen=True, slots=True, eq=False)
class KeyFamily:
    """Keys that end in a name the user chooses, such as `indexing.typemap.<field>`."""

    name: str
    placeholder: str
    meaning: str
    section: str


# --- values ----------------------------------------------------------------------------------

_SIZE = re.compile(r"\s*(\d+(?:\.\d+)?|\.\d+)\s*([KMGT]?)(?:i?B)?\s*", re.IGNORECASE)
_SIZE_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}
_DURATION = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([a-z]*)\s*", re.IGNORECASE)
_DURATION_UNITS = {
    **dict.fromkeys(("", "ms", "millisecond", "milliseconds"), 1),
    **dict.fromkeys(("s", "sec", "second", "seconds"), 1_000),
    **dict.fromkeys(("m", "min", "minute", "minutes"), 60_000),
    **dict.fromkeys(("h", "hour", "hours"), 3_600_000),
    **dict.fromkeys(("d", "day", "days"), 86_400_000),
}
_BOOLEANS = {"true": True, "yes": True, "1": True, "on": True} | dict.fromkeys(
    ("false", "no", "0", "off"), False
)


def parse_size(value: object, *, name: str = "size") -> int:
    """Read a number of bytes: `123`, `"100M"`, `"1.5G"`; K, M, G and T are powers of 1,024.

    >>> parse_size("1.5G")
    1610612736
    """
    if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        return value
    match = _SIZE.fullmatch(str(value))
    if match is None:
        raise InvalidValueError(name, value, 'a size in bytes such as 1048576, "100M" or "1.5G"')
    return int(float(match[1]) * _SIZE_UNITS[match[2].upper()])


def parse_duration_ms(value: object, *, name: str = "duration") -> int:
    """Read a duration as milliseconds: `500`, `"500"`, `"5s"`, `"2 hours"`, `"30 days"`.

    >>> parse_duration_ms("2 hours")
    7200000
    """
    match = _DURATION.fullmatch(str(value))
    if match is None or match[2].lower() not in _DURATION_UNITS or isinstance(value, bool):
        raise InvalidValueError(name, value, 'milliseconds, or "5s", "2 hours" …')
    return int(float(match[1]) * _DURATION_UNITS[match[2].lower()])


def parse_boolean(value: object, *, name: str = "flag") -> bool:
    """Read true or false.

    >>> parse_boolean("TRUE")
    True
    """
    found = value if isinstance(value, bool) else _BOOLEANS.get(str(value).strip().lower())
    if found is None:
        raise InvalidValueError(name, value, "true or false")
    return found


# --- the registry ----------------------------------------------------------------------------

KEYS: dict[str, Key[object]] = {}
FAMILIES: dict[str, KeyFamily] = {}
_section = ""


def _register(key: Key[T]) -> Key[T]:
    KEYS[key.name.lower()] = key  # type: ignore[assignment]
    return key


def _boolean(name: str, default: bool, meaning: str) -> Key[bool]:
    name = PREFIX + name
    return _register(
        Key(name, "boolean", default, meaning, _section, lambda v: parse_boolean(v, name=name))
    )


def _integer(name: str, default: int, meaning: str, *, low: int = 0, high: int = 2**63) -> Key[int]:
    name = PREFIX + name

    def parse(value: object) -> int:
        try:
            number = int(str(value).strip())
        except ValueError:
            number = low - 1
        if isinstance(value, bool) or not low <= number <= high:
            limit = f"a whole number of at least {low}" if high == 2**63 else f"{low} to {high}"
            raise InvalidValueError(name, value, limit)
        return number

    return _register(Key(name, "integer", default, meaning, _section, parse))


def _number(name: str, default: float, meaning: str, *, low: float, high: float) -> Key[float]:
    name = PREFIX + name

    def parse(value: object) -> float:
        try:
            number = float(str(value).strip())
        except ValueError:
            number = low - 1
        if isinstance(value, bool) or not low <= number <= high:
            raise InvalidValueError(name, value, f"a number from {low} to {high}")
        return number

    return _register(Key(name, "number", default, meaning, _section, parse))


def _size(name: str, default: str, meaning: str, *, low: int = 1) -> Key[int]:
    name = PREFIX + name

    def parse(value: object) -> int:
        size = parse_size(value, name=name)
        if size < low:
            raise InvalidValueError(name, value, f"a size of at least {low} bytes")
        return size

    return _register(Key(name, "size", parse_size(default), meaning, _section, parse))


def _duration(name: str, default_ms: int, meaning: str) -> Key[int]:
    name = PREFIX + name
    return _register(
        Key(
            name, "duration", default_ms, meaning, _section,
            lambda v: parse_duration_ms(v, name=name),
        )
    )  # fmt: skip


def _choice(name: str, default: str, choices: Sequence[str], meaning: str) -> Key[str]:
    name = PREFIX + name

    def parse(value: object) -> str:
        word = str(value).strip().lower()
        if word not in choices:
            raise InvalidValueError(name, value, "one of " + ", ".join(choices))
        return word

    return _register(Key(name, " | ".join(choices), default, meaning, _section, parse))


def _text(name: str, default: str, meaning: str) -> Key[str]:
    return _register(Key(PREFIX + name, "text", default, meaning, _section, str))


def _optional(key: Key[T]) -> Key[T | None]:
    """The same key, unset by default."""
    return _register(Key(key.name, key.kind, None, key.meaning, key.section, key.parse))


def _family(name: str, placeholder: str, meaning: str) -> KeyFamily:
    family = KeyFamily(PREFIX + name, placeholder, meaning, _section)
    FAMILIES[family.name.lower()] = family
    return family


_section = "Transaction log"

TRANSACTION_COMPRESSION = _boolean(
    "transaction.compression.enabled",
    True,
    "Compress version files and JSON checkpoints (gzip).",
)
TRANSACTION_RETRY_ATTEMPTS = _integer(
    "transaction.retry.maxAttempts", 10, "How often a commit is tried before it gives up.", low=1
)
TRANSACTION_RETRY_BASE_DELAY = _duration(
    "transaction.retry.baseDelayMs",
    100,
    "The first pause between two attempts; it doubles.",
)
TRANSACTION_RETRY_MAX_DELAY = _duration(
    "transaction.retry.maxDelayMs", 5_000, "The longest pause between two attempts."
)
TRANSACTION_USE_OPTIMIZED = _boolean(
    "transaction.useOptimized",
    True,
    "Read through checkpoints and caches. False replays every version file: slow, and the "
    "reference that the fast way is compared with.",
)
TRANSACTION_CACHE_ENABLED = _boolean(
    "transaction.cache.enabled", True, "Keep parsed log files and snapshots in memory."
)
TRANSACTION_CACHE_TTL = _duration(
    "transaction.cache.ttl.ms", 300_000, "How long a cached log file or snapshot may be used."
)
TRANSACTION_MAX_STALENESS = _duration(
    "transaction.cache.maxStalenessMs",
    0,
    "How old a cached snapshot may be before a read asks the store for newer versions. "
    "0 asks always.",
)
TRANSACTION_MAX_FILE_SIZE = _size(
    "transaction.maxFileSize",
    "1G",
    "How large one log file may become when it is decompressed; a larger one is refused.",
)

_section = "Checkpoints"

CHECKPOINT_ENABLED = _boolean("checkpoint.enabled", True, "Write checkpoints after commits.")
CHECKPOINT_INTERVAL = _integer(
    "checkpoint.interval", 10, "Write a checkpoint every so many versions.", low=1
)
CHECKPOINT_PARALLELISM = _integer(
    "checkpoint.parallelism", 4, "How many version files are read at once.", low=1
)
CHECKPOINT_READ_TIMEOUT = _integer(
    "checkpoint.read.timeoutSeconds",
    30,
    "How long a parallel read of version files may take as a whole, in seconds.",
    low=1,
)
CHECKPOINT_ACTIONS_PER_PART = _integer(
    "checkpoint.actionsPerPart",
    50_000,
    "A JSON checkpoint with more actions than this is written in several parts.",
    low=1,
)

_section = "Avro state"

STATE_FORMAT = _choice("state.format", "avro", ("avro", "json"), "The format of new checkpoints.")
STATE_COMPRESSION = _choice(
    "state.compression", "zstd", ("zstd", "snappy", "none"), "The codec of Avro manifests."
)
STATE_COMPRESSION_LEVEL = _integer(
    "state.compressionLevel", 3, "The level of the zstd codec.", low=1, high=22
)
STATE_ENTRIES_PER_MANIFEST = _integer(
    "state.entriesPerManifest", 50_000, "The most entries one Avro manifest holds.", low=1
)
STATE_READ_PARALLELISM = _integer(
    "state.read.parallelism", 8, "How many manifests are read at once.", low=1
)
STATE_RETRY_ATTEMPTS = _integer(
    "state.retry.maxAttempts", 10, "How often writing a state is tried.", low=1
)
STATE_RETRY_BASE_DELAY = _duration(
    "state.retry.baseDelayMs", 100, "The first pause between two attempts to write a state."
)
STATE_RETRY_MAX_DELAY = _duration(
    "state.retry.maxDelayMs", 5_000, "The longest pause between two attempts to write a state."
)
STATE_RENORMALIZE_THRESHOLD = _integer(
    "state.schema.renormalizeThreshold",
    5,
    "A checkpoint with more distinct mappings than this computes their hashes again, so that "
    "equal mappings share one entry.",
)
STATE_TOMBSTONE_THRESHOLD = _number(
    "state.compaction.tombstoneThreshold",
    0.10,
    "Rewrite the manifests when more than this share of their entries is removed.",
    low=0.0,
    high=1.0,
)
STATE_MAX_MANIFESTS = _integer(
    "state.compaction.maxManifests",
    20,
    "Rewrite the manifests when they are more.",
    low=1,
)
STATE_LARGE_REMOVE_THRESHOLD = _integer(
    "state.compaction.largeRemoveThreshold",
    2**31 - 1,
    "Rewrite the manifests when one checkpoint removes more files than this.",
    low=1,
)
STATE_COMPACT_AFTER_MERGE = _boolean(
    "state.compaction.afterMerge",
    True,
    "Rewrite the manifests in a checkpoint after a merge.",
)

_section = "Retention"

LOG_RETENTION = _duration(
    "logRetention.duration",
    2_592_000_000,
    "How long version files are kept after a checkpoint covers them (30 days).",
)
PURGE_LOG_RETENTION_HOURS = _optional(
    _integer(
        "purge.txLogRetentionHours",
        720,
        "The same in hours; wins over logRetention.duration.",
    )
)
CHECKPOINT_RETENTION = _duration(
    "checkpointRetention.duration", 7_200_000, "How long an old JSON checkpoint is kept (2 hours)."
)
STATE_RETENTION_VERSIONS = _integer(
    "state.retention.versions", 2, "How many of the newest Avro states are always kept.", low=1
)
STATE_RETENTION_HOURS = _integer(
    "state.retention.hours", 168, "How long older Avro states are kept, in hours."
)
STATE_GC_MIN_MANIFEST_AGE_HOURS = _integer(
    "state.gc.minManifestAgeHours", 1, "A manifest younger than this is never deleted, in hours."
)
PURGE_RETENTION_HOURS = _integer(
    "purge.defaultRetentionHours",
    168,
    "How old a split must be that no retained version names before purge deletes it, in hours.",
)
PURGE_RETENTION_CHECK = _boolean(
    "purge.retentionCheckEnabled",
    True,
    "Refuse to purge splits younger than 24 hours, which a running write may still commit.",
)
PURGE_MAX_FILES = _integer(
    "purge.maxFilesToDelete", 1_000_000, "How many splits one purge deletes at the most.", low=1
)
CLEANUP_ENABLED = _boolean(
    "cleanup.enabled", True, "Delete expired log files after a checkpoint, within all safety gates."
)
CLEANUP_FAILURE_POLICY = _choice(
    "cleanup.failurePolicy",
    "continue",
    ("continue", "fail"),
    "What happens when a file cannot be deleted: log a warning, or raise.",
)

_section = "Protocol"

PROTOCOL_AUTO_UPGRADE = _boolean(
    "protocol.autoUpgrade",
    True,
    "Let a commit raise the table's protocol when it needs a newer feature.",
)
PROTOCOL_CHECK_ENABLED = _boolean(
    "protocol.checkEnabled",
    True,
    "Refuse tables whose protocol is newer than this release. False is for emergencies.",
)

_section = "Skipped files"

SKIPPED_FILES_TRACKING = _boolean(
    "skippedFiles.trackingEnabled", True, "Record files that a job could not process."
)
SKIPPED_FILES_COOLDOWN = _integer(
    "skippedFiles.cooldownDuration",
    24,
    "How long a skipped file is left alone by the next jobs, in hours; it stays readable.",
)

_section = "Queries"

INDEXQUERY_MAX_LENGTH = _integer(
    "indexquery.maxLength",
    32_768,
    "The longest search query that is accepted, in characters.",
    low=1,
)
INDEXQUERY_MAX_DEPTH = _integer(
    "indexquery.maxDepth",
    100,
    "How deep parentheses and NOT may be nested in a search query.",
    low=1,
    high=150,
)

_section = "Indexing"

TYPE_MAP = _family(
    "indexing.typemap.",
    "field",
    "How a string column is indexed: text, string (exact), json or ip. The other spelling names "
    "the type and lists the fields: indexing.typemap.string = id,code.",
)
TOKENIZER = _family(
    "indexing.tokenizer.",
    "field",
    "The tokenizer of a text or json field: default, raw, whitespace, en_stem and other "
    "languages, ngram or ngram(2,3).",
)
FIELD_RECORD_OPTION = _family(
    "indexing.indexrecordoption.",
    "field",
    "What the index keeps for each word of one field: position, freq or basic.",
)
FIELD_TOKEN_LENGTH = _family(
    "indexing.tokenLength.",
    "field",
    "The longest word in bytes that one field indexes, as text.maxTokenLength.",
)
TEXT_RECORD_OPTION = _choice(
    "text.indexRecordOption",
    "position",
    ("position", "freq", "basic"),
    "What the index keeps for each word of text fields. Without positions phrases are checked on "
    "the rows; without frequencies scores know only whether a word is there.",
)
TEXT_MAX_TOKEN_LENGTH = _text(
    "text.maxTokenLength",
    "default",
    "The longest word in bytes that text fields index, 1 to 65530; longer ones are dropped. Names: "
    "tantivy_max (65530), default (255), legacy (40), min (1).",
)
FAST_FIELDS = _text(
    "indexing.fastfields",
    "",
    "Numbers, dates, booleans and addresses, separated by commas, that the index also keeps as a "
    "column: equality, ranges and `field:*` are then answered without reading rows.",
)
STORE_ONLY_FIELDS = _text(
    "indexing.storeonlyfields",
    "",
    "Fields, separated by commas, that are stored but not indexed; a search does not see them.",
)
WRITER_HEAP_SIZE = _size(
    "indexWriter.heapSize",
    "100M",
    "Memory for the index of a split that is being written; more rows make more segments.",
    low=15_000_000,
)
WRITER_TEMP_DIRECTORY = _text(
    "indexWriter.tempDirectoryPath",
    "",
    "Where splits are built before they are stored; the system's temporary directory by default.",
)

_section = "Statistics"

STATS_NUM_COLUMNS = _integer(
    "dataSkippingNumIndexedCols",
    32,
    "For how many of the first eligible columns minimum, maximum and null count are kept; "
    "-1 is all.",
    low=-1,
)
STATS_COLUMNS = _text(
    "dataSkippingStatsColumns",
    "",
    "Columns, separated by commas, that statistics are kept for; wins over the number.",
)
STATS_TRUNCATION_ENABLED = _boolean(
    "stats.truncation.enabled",
    True,
    "Shorten long texts in statistics; a minimum rounds down, a maximum rounds up.",
)
STATS_TRUNCATION_LENGTH = _integer(
    "stats.truncation.maxLength", 32, "The longest text in statistics, in characters.", low=1
)

_section = "Search"

MAX_EXPANSIONS = _integer(
    "indexquery.maxExpansions",
    100_000,
    "How many different words one wildcard, phrase prefix or range of words may match in a split.",
    low=1,
)
MAX_OPEN_SPLITS = _integer(
    "search.maxOpenSplits",
    128,
    "How many indexes a process keeps open; each costs a thread and some memory.",
    low=1,
)

_section = "Cache"

CACHE_DISK_PATH = _text(
    "cache.disk.path",
    "",
    "The folder where copies of remote splits are kept. Empty means the user's cache folder.",
)
CACHE_DISK_MAX_SIZE = _size(
    "cache.disk.maxSize",
    "20G",
    "How much that folder may hold; the least recently used copies are deleted.",
)

_section = "Reading"

READ_PARALLELISM = _integer(
    "read.parallelism", 8, "How many splits one process reads at once.", low=1
)

_section = "Writing"

WRITE_MAX_SPLIT_SIZE = _size(
    "write.maxSplitSize",
    "1G",
    "A writer begins another split when the rows of one have this size in Parquet.",
    low=1 << 10,
)
WRITE_MAX_OPEN_SPLITS = _integer(
    "write.maxOpenSplits",
    16,
    "How many partitions one writer keeps open at once; the one written least lately is closed.",
    low=1,
)

_section = "Spark: optimized write"

OPTIMIZE_WRITE = _boolean(
    "write.optimizeWrite.enabled",
    False,
    "Let Spark bring rows together before they are written, so that a write makes few, large "
    "splits: by partition columns, or by the first column of a table without any.",
)
WRITE_DISTRIBUTION = _choice(
    "write.optimizeWrite.distributionMode",
    "hash",
    ("hash", "balanced", "none"),
    "hash: rows of a partition in one task, tasks of the target size. balanced: the same in as "
    "many tasks as there are cores. none: rows stay where they are.",
)
WRITE_TARGET_SPLIT_SIZE = _size(
    "write.optimizeWrite.targetSplitSize",
    "1G",
    "The size that an optimized write aims for.",
    low=1 << 10,
)
WRITE_SAMPLING_RATIO = _number(
    "write.optimizeWrite.samplingRatio",
    1.1,
    "Without a history: how much larger rows are in a shuffle than in a split.",
    low=0.01,
    high=100.0,
)
WRITE_MIN_ROWS_FOR_ESTIMATE = _integer(
    "write.optimizeWrite.minRowsForEstimation",
    10_000,
    "A table with fewer rows is no history to estimate sizes from.",
)

_section = "Spark: reading"

DRIVER_MAX_ROWS = _integer(
    "read.driver.maxRows",
    10_000,
    "A query whose search finds at most so many rows is answered on the driver, without a Spark "
    "job. 0 never does that.",
)
DRIVER_MAX_SPLITS = _integer(
    "read.driver.maxSplits",
    64,
    "A query that has to look at more splits is never answered on the driver.",
)
NATIVE_SCAN = _boolean(
    "read.nativeScan.enabled",
    True,
    "Let Spark's own Parquet reader read splits where no index helps and the table is on a "
    "local disk.",
)

_section = "Spark: distributed log"

DISTRIBUTED_LOG = _boolean(
    "transaction.distributed.enabled",
    True,
    "Read version files of tables in object stores on executors. Local disks are read by the "
    "driver, which is faster there.",
)
DISTRIBUTED_MIN_FILES = _integer(
    "transaction.distributed.minFiles",
    10,
    "With fewer version files to read, the driver reads them.",
    low=1,
)
DISTRIBUTED_PARALLELISM = _integer(
    "transaction.distributed.parallelism",
    0,
    "How many tasks read version files; 0 is Spark's default parallelism.",
)
DISTRIBUTED_ADAPTIVE = _boolean(
    "transaction.distributed.adaptiveParallelism",
    True,
    "Start fewer tasks for few files and, beyond a hundred files, up to twice as many.",
)

_section = ""


# --- reading ---------------------------------------------------------------------------------


def _canonical(name: str) -> str:
    lowered = name.strip().lower()
    return PREFIX + lowered[len(OLD_PREFIX) :] if lowered.startswith(OLD_PREFIX) else lowered


def is_own_key(name: str) -> bool:
    """Whether a Spark configuration key or option belongs to this package.

    >>> is_own_key("spark.sql.shuffle.partitions"), is_own_key("Spark.IndexTables.x")
    (False, True)
    """
    return _canonical(name).startswith(PREFIX)


def known_keys(properties: Mapping[str, str]) -> dict[str, str]:
    """Table properties that configure this package; what other writers left there is passed over.

    >>> known_keys({"spark.indextables.checkpoint.interval": "5", "owner": "me"})
    {'spark.indextables.checkpoint.interval': '5'}
    """
    return {
        name: value
        for name, value in properties.items()
        if _canonical(name) in KEYS or _family_of(_canonical(name)) is not None
    }


class Config:
    """Configuration in layers; the first layer that has a key wins.

    Every key of every layer must be in the registry and every value must parse, at construction:
    a mistake is reported before any work starts.
    """

    __slots__ = ("_layers",)

    def __init__(self, *layers: Mapping[str, object] | None) -> None:
        self._layers: list[dict[str, object]] = []
        for layer in layers:
            values: dict[str, object] = {}
            for name, value in (layer or {}).items():
                lowered = _canonical(name)
                key = KEYS.get(lowered)
                if key is not None:
                    key.parse(value)
                elif _family_of(lowered) is None:
                    raise UnknownKeyError(name, nearest=_nearest(lowered))
                values[lowered] = value
            self._layers.append(values)

    @overload
    def __getitem__(self, key: Key[T]) -> T: ...
    @overload
    def __getitem__(self, key: KeyFamily) -> dict[str, str]: ...
    def __getitem__(self, key: Key[T] | KeyFamily) -> T | dict[str, str]:
        if isinstance(key, KeyFamily):
            prefix = key.name.lower()
            found: dict[str, str] = {}
            for layer in reversed(self._layers):
                found |= {
                    n[len(prefix) :]: str(v) for n, v in layer.items() if n.startswith(prefix)
                }
            return found
        for layer in self._layers:
            if key.name.lower() in layer:
                return key.parse(layer[key.name.lower()])
        return key.default

    def __iter__(self) -> Iterator[str]:
        """Names that some layer sets, in their canonical spelling."""
        return iter({n: None for layer in self._layers for n in layer})

    def over(self, lower: Mapping[str, object] | Config) -> Config:
        """This configuration with one more layer below, above the defaults."""
        config = Config()
        below = lower._layers if isinstance(lower, Config) else Config(lower)._layers
        config._layers = [*self._layers, *below]
        return config

    def as_options(self) -> dict[str, object]:
        """All set values flattened, to hand them to a worker."""
        flat: dict[str, object] = {}
        for layer in reversed(self._layers):
            flat |= layer
        return flat


def _family_of(lowered: str) -> KeyFamily | None:
    return next(
        (f for n, f in FAMILIES.items() if lowered.startswith(n) and len(lowered) > len(n)), None
    )


def _nearest(lowered: str) -> list[str]:
    by_lower = {n: k.name for n, k in KEYS.items()} | {
        n: f"{f.name}<{f.placeholder}>" for n, f in FAMILIES.items()
    }
    if not lowered.startswith(PREFIX):
        lowered = PREFIX + lowered
    return [by_lower[n] for n in difflib.get_close_matches(lowered, by_lower, n=2, cutoff=0.6)]
