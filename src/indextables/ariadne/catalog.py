"""All indexes of a storage path: listing, describing, finding them."""

from __future__ import annotations

import builtins
import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING

from indextables.ariadne.context import Context
from indextables.ariadne.declarations import Kind
from indextables.ariadne.index import Index
from indextables.ariadne.paths import canonical, expand
from indextables.ariadne.place import FOLDER, IndexPlace, check_name
from indextables.ariadne.source import spark_schema
from indextables.ariadne.states import registered
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

_COLUMNS = (
    "name string, format string, indexes string, bloom_indexes string, computed_indexes string, "
    "temporal_indexes string, range_indexes string, exploded_field_indexes string, "
    "text_indexes string, file_count bigint, total_indexed_file_size bigint"
)
_VERSION_ERRORS = (
    UnsupportedMetadataVersionError,
    UnsupportedStorageFormatVersionError,
    StorageMigrationError,
)


@dataclass(frozen=True, slots=True)
class IndexSummary:
    """What an index is over and what it keeps."""

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
    """Bytes of the indexed files; -1 before the first update."""


class IndexCatalog:
    """The indexes of the active session's storage path."""

    @staticmethod
    def list() -> builtins.list[str]:
        """The names of all indexes, sorted. A folder without metadata is none."""
        context = Context.current()
        names = context.store(context.root).list_directory(FOLDER)[1]
        return [name for name in sorted(names) if _is_index(context, name)]

    @staticmethod
    def exists(name: str) -> bool:
        """Whether there is an index; what is left of one does not count."""
        return _is_index(Context.current(), check_name(name))

    @staticmethod
    def describe(name: str) -> IndexSummary:
        """One index. `IndexNotFoundError` if there is none."""
        place = IndexPlace(Context.current(), check_name(name))
        if not place.metadata.exists():
            raise IndexNotFoundError(name, root=place.context.root)
        metadata = place.metadata.load()
        # A folder or pattern is as many files as it means now; one that means none counts as one.
        found = expand(place.files.files(), place.context.store)

        def of(kind: Kind) -> frozenset[str]:
            return frozenset(d.name for d in metadata.declarations.of_kind(kind))

        return IndexSummary(
            name=name,
            format=metadata.format,
            columns=tuple(spark_schema(metadata, name=name).names),
            indexes=of("regular"),
            bloom_indexes=of("bloom"),
            computed_indexes=of("computed"),
            temporal_indexes=of("temporal"),
            range_indexes=of("range"),
            exploded_field_indexes=of("exploded"),
            text_indexes=of("text"),
            file_count=len(found.files) + len(found.missing),
            total_indexed_file_size=metadata.total_indexed_file_size,
        )

    @staticmethod
    def describe_all() -> builtins.list[IndexSummary]:
        """Every index. One that cannot be read is left out with a warning, a newer one raises."""
        found = []
        for name in IndexCatalog.list():
            try:
                found.append(IndexCatalog.describe(name))
            except _VERSION_ERRORS:
                raise
            except AriadneError as error:
                logger.warning("Left out the index %s: %s", name, error)
        return found

    @staticmethod
    def to_df() -> DataFrame:
        """Every index, as a DataFrame; names of index columns are joined by commas."""
        rows = [
            (
                s.name,
                s.format,
                *(
                    ",".join(sorted(names))
                    for names in (
                        s.indexes,
                        s.bloom_indexes,
                        s.computed_indexes,
                        s.temporal_indexes,
                        s.range_indexes,
                        s.exploded_field_indexes,
                        s.text_indexes,
                    )
                ),
                s.file_count,
                s.total_indexed_file_size,
            )
            for s in IndexCatalog.describe_all()
        ]
        return Context.current().spark.createDataFrame(rows, _COLUMNS)

    @staticmethod
    def get(name: str) -> Index:
        """Reconnect to an index. `IndexNotFoundError` if there is none."""
        context = Context.current()
        if not _is_index(context, check_name(name)):
            raise IndexNotFoundError(name, root=context.root)
        return Index(name)

    @staticmethod
    def remove(name: str) -> bool:
        """Delete an index, or what is left of one."""
        return Index.remove(name)

    @staticmethod
    def find_indexes(file: str) -> builtins.list[str]:
        """The names of the indexes that a file is registered with, sorted."""
        path = canonical(file)
        context = Context.current()
        return [
            name
            for name in IndexCatalog.list()
            if registered(IndexPlace(context, name).files.files(), [path])
        ]


def _is_index(context: Context, name: str) -> bool:
    return IndexPlace(context, name).metadata.exists()
