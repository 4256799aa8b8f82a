"""Tables of external files: read only, their files chosen by the source that lists them.

A `FileSource` names the files that a condition needs; the rows are read by Spark's own reader of
their format, with its column pruning and its filters. Conditions are only used to choose files:
Spark checks every row itself. At run time a join may send its keys (dynamic filters); the files
are then chosen again, before the first one is read.
"""

from __future__ import annotations

import functools
import hashlib
import threading
from collections.abc import Sequence
from typing import Any, Protocol

import pyarrow as pa
from pyspark.sql.types import StructType

from indextables.errors import QueryError
from indextables.predicate import TRUE, Predicate, conjunction, searches
from indextables.spark.bridge.jvm.handles import (
    V2,
    Comparable,
    JavaObject,
    Jvm,
    Unique,
    implements,
)
from indextables.spark.bridge.scan.conditions import condition
from indextables.spark.bridge.scan.description import Described, Statistics
from indextables.spark.bridge.scan.filters import Translator
from indextables.spark.bridge.scan.native import ListedFile, file_index

_V2_FILES = "org.apache.spark.sql.execution.datasources.v2."
_BUILDERS = {
    "parquet": _V2_FILES + "parquet.ParquetScanBuilder",
    "csv": _V2_FILES + "csv.CSVScanBuilder",
    "json": _V2_FILES + "json.JsonScanBuilder",
}
_MAX_QUERY_LENGTH = 1 << 20
_MAX_QUERY_DEPTH = 1_000


class FileSource(Protocol):
    """A table whose rows are the rows of files."""

    @property
    def name(self) -> str:
        """The table's name."""
        ...

    @property
    def key(self) -> str:
        """Equal for two sources exactly when they have the same rows."""
        ...

    @property
    def schema(self) -> StructType:
        """The columns."""
        ...

    @property
    def arrow_schema(self) -> pa.Schema:
        """The columns, as conditions are translated for them."""
        ...

    @property
    def format(self) -> str:
        """parquet, csv or json."""
        ...

    @property
    def options(self) -> dict[str, str]:
        """Options of the reader."""
        ...

    @property
    def properties(self) -> dict[str, str]:
        """What DESCRIBE shows."""
        ...

    @property
    def filtered_columns(self) -> Sequence[str]:
        """Columns by whose values files can be chosen."""
        ...

    @property
    def total(self) -> int:
        """How many files there are."""
        ...

    def files(self, predicate: Predicate) -> Sequence[ListedFile]:
        """The files that may hold a row for which the condition is true."""
        ...


@implements("catalog.SupportsRead")
class FileTable(Comparable):
    """A table of files at one moment."""

    def __init__(self, java: Jvm, source: FileSource) -> None:
        self.java = java
        self._source = source

    def key(self) -> str:
        return f"FileTable {self._source.key}"

    def name(self) -> str:
        return self._source.name

    def id(self) -> str:
        return self._source.key

    def version(self) -> str:
        return hashlib.blake2b(self._source.key.encode(), digest_size=8).hexdigest()

    @functools.cached_property
    def _schema(self) -> JavaObject:
        return self.java.struct_type(self._source.schema)

    def schema(self) -> JavaObject:
        return self._schema

    @functools.cached_property
    def _columns(self) -> JavaObject:
        convert = self.java.find(V2 + "catalog.CatalogV2Util").structTypeToV2Columns
        try:
            return convert(self._schema, True)
        except Exception:  # Spark 4.1 takes one argument
            return convert(self._schema)

    def columns(self) -> JavaObject:
        return self._columns

    def partitioning(self) -> JavaObject:
        return self.java.array(V2 + "expressions.Transform")

    def properties(self) -> JavaObject:
        return self.java.hash_map(self._source.properties)

    def constraints(self) -> JavaObject:
        return self.java.array(V2 + "catalog.constraints.Constraint")

    def capabilities(self) -> JavaObject:
        capability = self.java.find(V2 + "catalog.TableCapability")
        return self.java.find("java.util.HashSet")([capability.BATCH_READ])

    def newScanBuilder(self, _options: JavaObject) -> JavaObject:  # noqa: N802
        return FileScanBuilder(self.java, self._source, self._schema)


@implements(
    "org.apache.spark.sql.internal.connector.SupportsPushDownCatalystFilters",
    "read.SupportsPushDownRequiredColumns",
)
class FileScanBuilder(Unique):
    """Collects filters and columns, then chooses the files."""

    def __init__(self, java: Jvm, source: FileSource, schema: JavaObject) -> None:
        self.java = java
        self._source = source
        self._full = self._schema = schema
        self._predicate: Predicate = TRUE
        self._pushed: list[JavaObject] = []

    def pushFilters(self, filters: JavaObject) -> JavaObject:  # noqa: N802
        translator = Translator(
            self._source.arrow_schema,
            self.java.conf.sessionLocalTimeZone(),
            _MAX_QUERY_LENGTH,
            _MAX_QUERY_DEPTH,
        )
        parts: list[Predicate] = []
        for number in range(filters.size()):
            one = filters.apply(number)
            translated = translator.translate(one, one.toJSON())
            if translated is not None:
                parts.append(translated)
                if not searches(translated):
                    self._pushed.append(one)
        self._predicate = conjunction(*parts)
        return filters  # files are chosen by them, rows are checked by Spark

    def pushedFilters(self) -> JavaObject:  # noqa: N802
        return self.java.array(V2 + "expressions.filter.Predicate")

    def pruneColumns(self, schema: JavaObject) -> None:  # noqa: N802
        self._schema = schema

    def build(self) -> JavaObject:
        return FileScan(
            self.java,
            self._source,
            self._full,
            self._schema,
            predicate=self._predicate,
            pushed=self._pushed,
        )


@implements("read.SupportsReportStatistics", "read.SupportsRuntimeV2Filtering")
class FileScan(Comparable):
    """A scan of the files that were chosen; Spark's own scan does the reading.

    Spark says `filter`, then asks for a batch, on one thread. Another part of the plan may hold the
    same scan without that join, so only this next batch of this thread has fewer files.
    """

    def __init__(
        self,
        java: Jvm,
        source: FileSource,
        full: JavaObject,
        schema: JavaObject,
        *,
        predicate: Predicate,
        pushed: Sequence[JavaObject],
    ) -> None:
        self.java = java
        self._source = source
        self._full = full
        self._schema = schema
        self._predicate = predicate
        self._pushed = pushed
        self._files = tuple(source.files(predicate))
        self._left = threading.local()

    def key(self) -> str:
        return f"{self._source.key} {self._predicate} {self._schema.json()} {len(self._files)}"

    def readSchema(self) -> JavaObject:  # noqa: N802
        return self._schema

    def description(self) -> str:
        parts = [f"Files of {self._source.name}"]
        if self._predicate != TRUE:
            parts.append(f"where {self._predicate}")
        parts.append(f"files {len(self._files):,} of {self._source.total:,}")
        return ", ".join(parts)

    def toBatch(self) -> JavaObject:  # noqa: N802
        left: tuple[ListedFile, ...] | None = self._left.__dict__.pop("files", None)
        if left is None or len(left) == len(self._files):
            return self._batch
        return self._batch_of(left)

    @functools.cached_property
    def _batch(self) -> JavaObject:
        return self._batch_of(self._files)

    def columnarSupportMode(self) -> JavaObject:  # noqa: N802
        modes = self.java.find("org.apache.spark.sql.connector.read.Scan$ColumnarSupportMode")
        return modes.PARTITION_DEFINED

    def reflectsFullyPushedDownFilters(self) -> bool:  # noqa: N802
        return False

    def estimateStatistics(self) -> JavaObject:  # noqa: N802
        size = sum(file.size for file in self._files)
        return Statistics(self.java, Described(self.description(), self.key(), None, size))

    def estimateSizeInBytes(self) -> JavaObject:  # noqa: N802
        size = sum(file.size for file in self._files)
        return self.java.find("java.util.OptionalLong").of(size)

    def supportedCustomMetrics(self) -> JavaObject:  # noqa: N802
        return self.java.array(V2 + "metric.CustomMetric")

    def reportDriverMetrics(self) -> JavaObject:  # noqa: N802
        return self.java.array(V2 + "metric.CustomTaskMetric")

    # --- keys of joins -----------------------------------------------------------------------

    def filterAttributes(self) -> JavaObject:  # noqa: N802
        read = set(self._schema.fieldNames())
        return self.java.references(
            tuple(name for name in self._source.filtered_columns if name in read)
        )

    def filter(self, predicates: JavaObject) -> None:
        conditions = [self._predicate]
        for one in predicates:
            try:
                conditions.append(condition(one, self._source.arrow_schema))
            except QueryError:
                continue  # without it more files are read, never fewer
        self._left.files = tuple(self._source.files(conjunction(*conditions)))

    def supportsIterativePushdown(self) -> bool:  # noqa: N802
        return False

    def pushedPredicates(self) -> JavaObject:  # noqa: N802
        return self.java.array(V2 + "expressions.filter.Predicate")

    def _batch_of(self, files: Sequence[ListedFile]) -> JavaObject:
        java = self.java
        options = java.find("org.apache.spark.sql.util.CaseInsensitiveStringMap")(
            java.hash_map(self._source.options)
        )
        index, _ = file_index(java, files, self._full, {})
        builder: Any = java.find(_BUILDERS[self._source.format])(
            java.session, index, self._full, self._full, options
        )
        builder.pushFilters(java.seq(self._pushed))
        builder.pruneColumns(self._schema)
        return builder.build().toBatch()
