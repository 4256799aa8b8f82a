"""`IndexCatalog`: the indexes below a storage path."""

from __future__ import annotations

import builtins
import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING

from indextables.ariadne.declarations import IndexKind
from indextables.ariadne.files.read import canonical, expand, spark_schema
from indextables.ariadne.files.state import registered
from indextables.ariadne.index import Index
from indextables.ariadne.store.place import (
    Context,
    IndexPlace,
    check_name,
    index_names,
)
from indextables.errors import (
    AriadneError,
    IndexNotFoundError,
    StorageMigrationError,
    UnsupportedMetadataVersionError,
    UnsupportedStorageFormatVersionError,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

logger = logging.getLogger(__name__)

_KINDS: dict[str, IndexKind] = {
    "indexes": "regular",
    "bloom_indexes": "bloom",
    "computed_indexes": "computed",
    "temporal_indexes": "temporal",
    "range_indexes": "range",
    "exploded_field_indexes": "exploded",
    "text_indexes": "text",
}
"""The fields of `IndexSummary` that name index columns, and the kind of each."""
_COLUMNS = (
    f"name string, format string, {', '.join(f'{field} string' for field in _KINDS)}, "
    "file_count bigint, total_indexed_file_size bigint"
)
_VERSION_ERRORS = (
    UnsupportedMetadataVersionError,
    UnsupportedStorageFormatVersionError,
    StorageMigrationError,
)


@dataclass(frozen=True, slots=True)
class IndexSummary:
    """What an index is over, and the names of its index columns by kind.

    Args:
        name: The name of the index.
        format: The format of the files.
        columns: The columns of the files.
        indexes: Columns with an index of their distinct values.
        bloom_indexes: Columns with bloom filters.
        computed_indexes: Names of expressions.
        temporal_indexes: Columns of which only the newest row counts.
        range_indexes: Columns with their least and greatest values.
        exploded_field_indexes: Names of fields of structs in arrays.
        text_indexes: Columns with their words.
        file_count: Registered files. A folder or pattern counts as the files that it means now.
        total_indexed_file_size: Bytes of the indexed files; -1 before the first update.
    """

    name: str
    format: str
    columns: tuple[str, ...]
    indexes: frozenset[str]
    bloom_indexes: frozenset[str]
    computed_indexes: frozenset[str]
    temporal_indexes: frozenset[str]
    range_indexes: frozenset[str]
    exploded_field_indexes: frozenset[str]
    text_indexes: frozenset[str]
    file_count: int
    total_indexed_file_size: int


class IndexCatalog:
    """The indexes below the active session's `spark.ariadne.storagePath`.

    ```py
    from indextables.ariadne import IndexCatalog
    ```
    """

    @staticmethod
    def list() -> builtins.list[str]:
        """The names of all indexes, sorted.

        Returns:
            Names of indexes. A folder without metadata is not an index.

        ```py
        assert IndexCatalog.list() == ["events", "newest"]
        ```
        """
        return index_names(Context.current())

    @staticmethod
    def exists(name: str) -> bool:
        """Whether there is an index of this name, as `Index.exists`.

        Args:
            name: The name of the index.

        Returns:
            True from the first use of a new index until its removal.

        Raises:
            AriadneArgumentError: The name cannot be the name of an index.

        ```py
        assert IndexCatalog.exists("events")
        ```
        """
        return Index.exists(name)

    @staticmethod
    def describe(name: str) -> IndexSummary:
        """What one index is over and what it keeps.

        Args:
            name: The name of the index.

        Returns:
            Its format, columns, index columns, and how many files it has.

        Raises:
            IndexNotFoundError: There is no such index.

        ```py
        summary = IndexCatalog.describe("events")
        assert (summary.format, summary.file_count) == ("parquet", 2)
        assert summary.range_indexes == {"user"}
        ```
        """
        place = _existing(name)
        metadata = place.metadata.load()
        expansion = expand(place.files.files(), place.context.store)
        names = {
            field: frozenset(d.name for d in metadata.declarations.of_kind(kind))
            for field, kind in _KINDS.items()
        }
        return IndexSummary(
            name=name,
            format=metadata.format,
            columns=tuple(spark_schema(metadata, name=name).names),
            **names,
            # A folder or pattern that means no file counts as one.
            file_count=len(expansion.files) + len(expansion.missing),
            total_indexed_file_size=metadata.total_indexed_file_size,
        )

    @staticmethod
    def describe_all() -> builtins.list[IndexSummary]:
        """What every index is over and what it keeps.

        Returns:
            Summaries by name. An index that cannot be read is left out with a warning.

        Raises:
            UnsupportedMetadataVersionError: A newer version of this library wrote an index.

        ```py
        assert [summary.name for summary in IndexCatalog.describe_all()] == ["events", "newest"]
        ```
        """
        summaries = []
        for name in IndexCatalog.list():
            try:
                summaries.append(IndexCatalog.describe(name))
            except _VERSION_ERRORS:
                raise
            except AriadneError as error:
                logger.warning("Left out the index %s: %s", name, error)
        return summaries

    @staticmethod
    def to_df() -> DataFrame:
        """`describe_all` as a DataFrame.

        Returns:
            One row for each index; the names of index columns are joined by commas.

        ```py
        assert IndexCatalog.to_df().count() == 2
        ```
        """
        rows = [
            (
                s.name,
                s.format,
                *(",".join(sorted(getattr(s, field))) for field in _KINDS),
                s.file_count,
                s.total_indexed_file_size,
            )
            for s in IndexCatalog.describe_all()
        ]
        return Context.current().spark.createDataFrame(rows, _COLUMNS)

    @staticmethod
    def get(name: str) -> Index:
        """A handle of an index that exists.

        Args:
            name: The name of the index.

        Returns:
            The same as `Index(name)`.

        Raises:
            IndexNotFoundError: There is no such index.

        ```py
        assert IndexCatalog.get("events") == events
        ```
        """
        return Index(_existing(name).name)

    @staticmethod
    def remove(name: str) -> bool:
        """Delete an index, as `Index.remove`.

        Args:
            name: The name of the index.

        Returns:
            True.

        Raises:
            IndexNotFoundError: There is nothing of an index of this name.

        ```py
        assert IndexCatalog.remove("newest")
        ```
        """
        return Index.remove(name)

    @staticmethod
    def find_indexes(file: str) -> builtins.list[str]:
        """The names of the indexes that a file is registered with, sorted.

        Args:
            file: A path or URI.

        Returns:
            Names of indexes.

        Raises:
            AriadneArgumentError: The path cannot be used.

        ```py
        assert IndexCatalog.find_indexes(f"{path}/events/a/x.parquet") == ["events"]
        ```
        """
        path = canonical(file)
        context = Context.current()
        return [
            name
            for name in index_names(context)
            if registered(IndexPlace(context, name).files.files(), [path])
        ]


def _existing(name: str) -> IndexPlace:
    place = IndexPlace(Context.current(), check_name(name))
    if not place.exists():
        raise IndexNotFoundError(name, root=place.context.root)
    return place
