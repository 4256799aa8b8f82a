"""Configuration keys of the Scala product, for jobs that are moved from it.

Most of its keys are ours under the same name and need no entry here. The others have another name
here (`RENAMED`), reach a store (`STORAGE`), have no effect (`WITHOUT_EFFECT`: accepted, with one
warning in a process) or are refused (`REFUSED`: ignoring them would change what is read, written or
deleted). Names are in lower case and without `spark.indextables.`. `docs/migrating.md` shows them,
and a test walks its table.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Renamed:
    """Our name of a key, and the unit of its values if they have one."""

    name: str
    unit: str = ""


@dataclass(frozen=True, slots=True)
class StorageKey:
    """The storage option that a key sets, and for which scheme; without one, for all stores."""

    option: str
    scheme: str = ""
    unit: str = ""


@dataclass(frozen=True, slots=True)
class Refused:
    """Why a key is refused, and the value that asks for nothing, if there is one."""

    reason: str
    harmless: str | None = None


_RENAMED: dict[str, Renamed] = {
    "autoSize.enabled": Renamed("write.optimizeWrite.enabled"),
    "autoSize.targetSplitSize": Renamed("write.optimizeWrite.targetSplitSize"),
    "cache.directoryPath": Renamed("cache.disk.path"),
    "checkpoint.compression.enabled": Renamed("transaction.compression.enabled"),
    "indexing.text.indexRecordOption": Renamed("text.indexRecordOption"),
    "indexing.text.maxTokenLength": Renamed("text.maxTokenLength"),
    "optimizeWrite.enabled": Renamed("write.optimizeWrite.enabled"),
    "transaction.cache.expirationSeconds": Renamed("transaction.cache.ttl.ms", "s"),
    "transaction.maxConcurrentReads": Renamed("checkpoint.parallelism"),
    "write.optimizeWrite.maxSplitSize": Renamed("write.maxSplitSize"),
}

_STORAGE: dict[str, StorageKey] = {
    "aws.accessKey": StorageKey("aws_access_key_id", "s3"),
    "aws.secretKey": StorageKey("aws_secret_access_key", "s3"),
    "aws.sessionToken": StorageKey("aws_session_token", "s3"),
    "aws.region": StorageKey("aws_region", "s3"),
    "aws.endpoint": StorageKey("fs.s3a.endpoint", "s3"),
    "aws.pathStyleAccess": StorageKey("fs.s3a.path.style.access", "s3"),
    "aws.forcePathStyle": StorageKey("fs.s3a.path.style.access", "s3"),
    "s3.endpoint": StorageKey("fs.s3a.endpoint", "s3"),
    "s3.serviceUrl": StorageKey("fs.s3a.endpoint", "s3"),
    "s3.pathStyleAccess": StorageKey("fs.s3a.path.style.access", "s3"),
    "azure.accountName": StorageKey("azure_storage_account_name", "az"),
    "azure.accountKey": StorageKey("azure_storage_account_key", "az"),
    "azure.connectionString": StorageKey("azure_connection_string", "az"),
    "azure.tenantId": StorageKey("azure_storage_tenant_id", "az"),
    "azure.clientId": StorageKey("azure_storage_client_id", "az"),
    "azure.clientSecret": StorageKey("azure_storage_client_secret", "az"),
    "azure.bearerToken": StorageKey("azure_storage_token", "az"),
    "azure.endpoint": StorageKey("azure_storage_endpoint", "az"),
    "gcp.credentialsFile": StorageKey("google_service_account", "gs"),
    "gcp.serviceAccountKey": StorageKey("google_service_account_key", "gs"),
    "gcp.endpoint": StorageKey("google_base_url", "gs"),
    "cloud.maxRetries": StorageKey("max_retries"),
    "cloud.connectionTimeout": StorageKey("connect_timeout", unit="ms"),
    "cloud.readTimeout": StorageKey("read_timeout", unit="ms"),
}

_WITHOUT_EFFECT: dict[str, tuple[str, ...]] = {
    "every query returns all its rows": ("read.mode", "read.defaultLimit"),
    "an aggregate that the index cannot answer is computed from the rows": (
        "read.requireAggregatePushdown", "read.companion.requireAggregatePushdown",
        "aggregate.bucket.maxBuckets", "aggregate.bucket.pushdown",
        "read.aggregation.arrowFfi.enabled",
    ),
    "conditions are pushed down wherever the index can answer them": (
        "filter.stringPattern.pushdown", "filter.stringStartsWith.pushdown",
        "filter.stringEndsWith.pushdown", "filter.stringContains.pushdown",
    ),
    "splits are spread over as many tasks as there is work for": (
        "read.splitsPerTask", "read.maxSplitsPerTask", "read.aggregate.splitsPerTask",
        "read.aggregate.maxSplitsPerTask",
    ),
    "only the pages of matching rows are fetched, without a setting": (
        "read.batchOptimization.enabled", "read.batchOptimization.profile",
        "read.batchOptimization.maxRangeSize", "read.batchOptimization.gapTolerance",
        "read.batchOptimization.minDocsForOptimization",
        "read.batchOptimization.maxConcurrentPrefetch", "read.batchOptimization.metrics.enabled",
        "read.adaptiveTuning.enabled", "read.adaptiveTuning.minBatchesBeforeAdjustment",
        "docBatch.enabled", "docBatch.maxSize", "cache.coalesceMaxGap", "cloud.bufferSize",
    ),
    "rows are Arrow batches everywhere": (
        "read.columnar.enabled", "write.arrowFfi.enabled", "write.arrowFfi.batchSize",
        "transaction.arrowFfi.enabled", "transaction.arrowFfi.write.enabled",
    ),
    "partitions are pruned with one vectorised expression": (
        "partitionPruning.filterCacheEnabled", "partitionPruning.indexEnabled",
        "partitionPruning.parallelThreshold", "partitionPruning.selectivityOrdering",
    ),
    "a search over all fields has no limit of fields": (
        "indexquery.indexall.maxUnqualifiedFields",
    ),
    "a writer sizes its batches and threads itself": (
        "indexWriter.batchSize", "indexWriter.maxBatchBufferSize", "indexWriter.threads",
        "indexWriter.useBatch", "splitConversion.maxParallelism", "native.memory.enabled",
    ),
    "splits are cut by their size, write.optimizeWrite.targetSplitSize": (
        "autoSize.inputRowCount", "optimizeWrite.targetRecordsPerSplit",
    ),
    "every column is stored, and a column in the index is asked for with indexing.fastfields": (
        "indexing.indexonlyfields", "indexing.nonfastfields",
    ),
    "JSON is always indexed by path, with numbers and ranges": (
        "indexing.json.mode", "indexing.json.enableRangeQueries", "indexing.json.parseOnWrite",
        "schema.filterEmptyObjects",
    ),
    "long statistics are shortened to a prefix, whose maximum is rounded up": (
        "stats.truncation.strategy",
    ),
    "cross-references are what skips splits here": ("bloom.filters.enabled",),
    "open indexes are bounded by search.maxOpenFiles and copies by cache.disk.maxSize": (
        "cache.maxSize", "cache.maxConcurrentLoads", "cache.queryCache", "cache.name",
        "cache.maxAgeSeconds",
    ),
    "copies of remote splits are always kept in cache.disk.path": (
        "cache.disk.enabled", "cache.disk.compression", "cache.disk.minCompressSize",
        "cache.disk.dropWritesWhenFull", "cache.disk.manifestSyncInterval",
        "cache.disk.writeQueue.mode", "cache.disk.writeQueue.capacity",
        "cache.disk.writeQueue.maxBudget",
    ),
    "PREWARM INDEXTABLES CACHE opens indexes ahead of a search": (
        "cache.prewarm.enabled", "prewarm.enabled", "prewarm.segments", "prewarm.fields",
        "prewarm.partitionFilter", "prewarm.splitsPerTask", "prewarm.failOnMissingField",
        "prewarm.catchUpNewHosts", "prewarm.maxRetries", "prewarm.async.maxConcurrent",
        "prewarm.async.completedJobRetentionMs",
    ),
    "one time to live, transaction.cache.ttl.ms, is for everything that is cached of a log": (
        "transaction.cache.version.ttl.ms", "transaction.cache.snapshot.ttl.ms",
        "transaction.cache.fileList.ttl.ms", "transaction.cache.metadata.ttl.ms",
        "transaction.cache.version.capacity", "transaction.cache.snapshot.capacity",
        "transaction.cache.fileList.capacity",
    ),
    "log files are compressed with gzip, and every one has a checksum": (
        "transaction.compression.codec", "transaction.compression.gzip.level",
        "checkpoint.compression", "checkpoint.checksumValidation.enabled",
        "checkpoint.maxFileSize", "transaction.allowDirectUsage",
    ),
    "checkpointRetention.duration says how long old checkpoints are kept": (
        "checkpoint.retention",
    ),
    "protocol.checkEnabled is for readers and writers": (
        "protocol.enforceReaderVersion", "protocol.enforceWriterVersion",
    ),
    "a merge reads its sources as streams and stores retry by themselves": (
        "merge.download.maxConcurrencyPerCore", "merge.download.memoryBudget",
        "merge.download.retries", "merge.download.retryBaseDelayMs",
        "merge.download.retryMaxDelayMs", "merge.upload.maxConcurrency", "merge.debug",
    ),
    "merge.parallelism and merge.batchSize say how many merges run at once": (
        "merge.maxConcurrentBatches", "merge.maxPasses", "merge.schedulerPool",
    ),
    "a merge after a write runs in the write, not in the background": (
        "mergeOnWrite.async.enabled", "mergeOnWrite.maxConcurrentBatches",
        "mergeOnWrite.maxConcurrentMergesPerWorker", "mergeOnWrite.memoryOverheadFactor",
        "mergeOnWrite.mergeGroupMultiplier", "mergeOnWrite.minDiskSpaceGB",
        "mergeOnWrite.shutdownTimeoutMs",
    ),
    "a purge deletes in batches, refuses splits younger than 24 hours, and stores retry": (
        "purge.parallelism", "purge.deleteRetries", "purge.minRetentionHours",
    ),
    "REPAIR INDEXFILES checks every split and keeps its statistics": (
        "repair.failOnMissing", "repair.parallelism", "repair.preserveStats",
        "repair.validateSplits",
    ),
    "uploads are in parts of 8 MB or more, four at a time": (
        "s3.maxConcurrency", "s3.maxQueueSize", "s3.multipartThreshold", "s3.partSize",
        "s3.streamingThreshold", "cloud.maxConnections",
    ),
    "the address of a table says which store it is in": (
        "storage.type", "storage.force.standard", "gcp.bucketName", "gcp.projectId",
    ),
    "CREATE SEARCH INDEX and REFRESH SEARCH INDEX plan their own batches": (
        "companion.sync.batchSize", "companion.sync.maxConcurrentBatches",
        "companion.sync.arrowFfi.enabled", "companion.sync.distributedLogRead.enabled",
        "companion.sync.maxIncrementalCommits", "companion.sync.iceberg.maxIncrementalManifests",
        "companion.readerBatchSize", "companion.writerHeapSize", "companion.schedulerPool",
        "companion.maxAutomaticHashedFastfields", "companion.stream.errorBackoffMultiplier",
        "companion.stream.maxConsecutiveErrors", "companion.stream.maxIncrementalCommits",
        "companion.stream.quietPollLogInterval",
    ),
    "no credentials are fetched from a catalog, so there are none to keep or to renew": (
        "databricks.cache.maxSize", "databricks.credential.operation",
        "databricks.credential.refreshBuffer.minutes", "databricks.fallback.enabled",
        "databricks.oauth.allowInsecure", "databricks.oauth.refreshBuffer.seconds",
        "databricks.oauth.scope", "databricks.retry.attempts", "unity.cache.maxSize",
        "unity.cache.ttl.minutes", "unity.fallback.enabled", "unity.retry.attempts",
        "companion.credential.preferPathCredentials",
    ),
}  # fmt: skip

_BY_JVM = "there is no JVM to ask; give the keys or a token themselves, or leave both to the \
environment of the process"
_BY_CATALOG = "credentials are not fetched from Unity Catalog; give those that it issues as \
spark.indextables.aws.* or azure.*"
_OF_SOURCES = "a search index reads its source with the storage options of its own; give those"
_ROOTS = "REFRESH SEARCH INDEX … ON names the place of a source that was moved or copied"
_ICEBERG = "CREATE SEARCH INDEX … ON names the source itself, without a catalog of its own"

_REFUSED: dict[Refused, tuple[str, ...]] = {
    Refused(_BY_JVM): ("aws.credentialsProviderClass",),
    Refused(_BY_CATALOG): (
        "databricks.workspaceUrl", "databricks.apiToken", "databricks.accountId",
        "databricks.clientId", "databricks.clientSecret",
    ),
    Refused(_OF_SOURCES): (
        "companion.aws.accessKey", "companion.aws.secretKey", "companion.aws.sessionToken",
        "companion.parquet.aws.accessKey", "companion.parquet.aws.secretKey",
        "companion.parquet.aws.sessionToken", "companion.parquet.aws.region",
        "companion.parquet.aws.endpoint", "companion.parquet.azure.accountKey",
        "companion.parquet.azure.accountName", "companion.parquet.azure.connectionString",
    ),
    Refused(_ROOTS): ("companion.tableRootDesignator", "companion.parquetTableRoot"),
    Refused("CREATE SEARCH INDEX lists the columns that are indexed"): ("companion.skipFields",),
    Refused(_ICEBERG): (
        "iceberg.catalogType", "iceberg.credential", "iceberg.s3Endpoint",
        "iceberg.s3PathStyleAccess", "iceberg.token", "iceberg.uc.tableId", "iceberg.uri",
        "iceberg.warehouse",
    ),
    Refused("expired log files are deleted; cleanup.enabled=false keeps them", "false"): (
        "cleanup.dryRun",
    ),
    Refused("text that is not JSON is stored as it is; check it before it is written", "false"): (
        "indexing.json.failOnInvalidJson",
    ),
}  # fmt: skip

NAMES: tuple[str, ...] = (
    *_RENAMED,
    *_STORAGE,
    *(name for names in _WITHOUT_EFFECT.values() for name in names),
    *(name for names in _REFUSED.values() for name in names),
)
"""All of them, as the Scala product spells them."""

RENAMED = {name.lower(): renamed for name, renamed in _RENAMED.items()}
STORAGE = {name.lower(): key for name, key in _STORAGE.items()}
WITHOUT_EFFECT = {n.lower(): reason for reason, names in _WITHOUT_EFFECT.items() for n in names}
REFUSED = {n.lower(): refused for refused, names in _REFUSED.items() for n in names}
