"""An index over files that somebody else keeps."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from numbers import Real
from typing import TYPE_CHECKING, Any

from indextables.ariadne import maintenance, opening, states, statistics
from indextables.ariadne import update as updating
from indextables.ariadne.context import Context, active_session
from indextables.ariadne.current_data import current_data, read_rows
from indextables.ariadne.declaration_checks import check
from indextables.ariadne.declarations import (
    Bloom,
    Computed,
    Declaration,
    Exploded,
    Range,
    Regular,
    Temporal,
    Text,
)
from indextables.ariadne.layout import IndexData
from indextables.ariadne.metadata import Metadata, to_json
from indextables.ariadne.paths import canonical
from indextables.ariadne.place import FOLDER, IndexPlace, check_name
from indextables.ariadne.source import arrow_schema, computed_types, spark_schema
from indextables.ariadne.update import UpdateResult
from indextables.ariadne.value_checks import check_values
from indextables.errors import (
    AriadneArgumentError,
    ColumnNotFoundError,
    FileListNotFoundError,
    IndexNotFoundError,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from indextables.ariadne.lookup import Located
    from indextables.ariadne.opening import SchemaLike


class Index:
    """An index by its name: made with a schema, reconnected to without one.

    `schema` is Spark's, Arrow's or DDL; `format` is parquet, csv or json, and parquet where nobody
    says. `read_options` are those of Spark's reader; they are kept, and given ones win over kept
    ones. `allow_schema_mismatch` replaces the schema of an index that exists. By position either of
    them may come first: `Index(name, schema, "csv", {"header": "true"})`.

    Two handles are equal if they are of the same index and select the same columns.
    """

    def __init__(
        self,
        name: str,
        schema: SchemaLike | None = None,
        format: str | None = None,  # noqa: A002
        allow_schema_mismatch: bool | Mapping[str, str] = False,
        read_options: Mapping[str, str] | None = None,
    ) -> None:
        from indextables.ariadne import sql_catalog

        if isinstance(allow_schema_mismatch, Mapping):
            if read_options is not None:
                raise AriadneArgumentError(
                    f"Cannot open the index {name!r}", ["its read options are given twice"]
                )
            read_options, allow_schema_mismatch = allow_schema_mismatch, False
        if not isinstance(allow_schema_mismatch, bool):
            problem = f"{allow_schema_mismatch!r} is neither true or false, nor the read options"
            raise AriadneArgumentError(f"Cannot open the index {name!r}", [problem])
        self.name = check_name(name)
        self.spark: SparkSession = active_session()
        self.selection: tuple[str, ...] | None = None
        self._root = Context.of(self.spark).root
        self._metadata: Metadata = opening.connect(
            self._place,
            schema,
            format,
            allow_schema_mismatch=allow_schema_mismatch,
            read_options=read_options,
        )
        sql_catalog.install(self.spark)

    @staticmethod
    def exists(name: str) -> bool:
        """Whether anything of an index is there, its file list included."""
        return IndexPlace(Context.current(), check_name(name)).exists()

    @staticmethod
    def remove(name: str) -> bool:
        """Delete an index and its file list, not the files. `IndexNotFoundError` if neither is."""
        place = IndexPlace(Context.current(), check_name(name))
        store = place.context.store(place.context.root)  # whose folders go when they are empty
        objects = [meta.path for meta in store.list(f"{FOLDER}/{place.name}")]
        try:
            place.files.remove()
        except FileListNotFoundError:
            if not objects:
                raise IndexNotFoundError(name, root=place.context.root) from None
        # Without its metadata it is no index any more, so that goes first.
        metadata = f"{FOLDER}/{place.name}/metadata.json"
        store.delete(sorted(objects, key=lambda path: path != metadata))
        return True

    # --- what it is ----------------------------------------------------------------------------

    @property
    def _place(self) -> IndexPlace:
        return IndexPlace(Context.of(self.spark, self._root), self.name)

    @property
    def storage_path(self) -> str:
        """The folder of the index."""
        return self._place.uri

    @property
    def metadata(self) -> Metadata:
        """Its declarations, schema and format, as they were last read."""
        return self._metadata

    @property
    def format(self) -> str:
        """The format of the files."""
        return self._metadata.format

    @property
    def read_options(self) -> dict[str, str]:
        """The options that the files are read with."""
        return dict(self._metadata.read_options)

    @property
    def stored_schema(self) -> StructType:
        """The schema of the files."""
        return spark_schema(self._metadata, name=self.name)

    @property
    def indexes(self) -> set[str]:
        """The names of all index columns."""
        return set(self._metadata.declarations.names)

    def refresh_metadata(self) -> None:
        """Read the metadata anew."""
        self._metadata = self._place.metadata.load()

    def __eq__(self, other: object) -> bool:
        return self._identity == other._identity if isinstance(other, Index) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._identity)

    @property
    def _identity(self) -> tuple[str, str, tuple[str, ...] | None]:
        return self._root, self.name, self.selection

    def __repr__(self) -> str:
        return f"Index({self.name!r}, format={self.format!r}, indexes={sorted(self.indexes)})"

    # --- declaring -----------------------------------------------------------------------------

    def add_index(self, column: str) -> None:
        """Keep the distinct values of a column."""
        self._declare(Regular(column))

    def add_bloom_index(self, column: str, fpr: float = 0.01) -> None:
        """Keep a bloom filter of a column, with this rate of false positives."""
        self._declare(Bloom(column, float(fpr) if isinstance(fpr, Real) else fpr))

    def add_computed_index(self, name: str, sql_expression: str) -> None:
        """Keep the distinct values of a Spark SQL expression, under a name."""
        self._declare(Computed(name, sql_expression))

    def add_exploded_field_index(self, array_column: str, field_path: str, as_column: str) -> None:
        """Keep the distinct values of a field of the structs in an array, under an alias."""
        self._declare(Exploded(array_column, field_path, as_column))

    def add_temporal_index(self, column: str, timestamp_column: str) -> None:
        """Keep the values of a column with their newest time; queries see the newest rows only."""
        self._declare(Temporal(column, timestamp_column))

    def add_range_index(self, column: str) -> None:
        """Keep the least and the greatest value of a column."""
        self._declare(Range(column))

    def add_text_index(self, column: str) -> None:
        """Keep the words of a column."""
        self._declare(Text(column))

    def _declare(self, new: Declaration) -> None:
        place = self._place

        def change(found: Metadata) -> Metadata:
            schema = arrow_schema(found, name=self.name)
            check(new, found.declarations, schema)
            computed_types(self.spark, found, [new], name=self.name)
            check_values(place, found, new)
            return found.declaring(new)

        self._metadata = place.metadata.change(change)

    # --- files ---------------------------------------------------------------------------------

    def add_file(self, *files: str | Iterable[str]) -> None:
        """Register files, folders or patterns. They need not exist yet; `update` reads them."""
        names = _canonical(files)
        if not names:
            raise AriadneArgumentError("Cannot register files", ["there is none"])
        self._place.files.add(names)

    def has_file(self, file: str) -> bool:
        """Whether a file is registered, itself or by a folder or pattern."""
        return bool(states.registered(self._place.files.files(), [canonical(file)]))

    def delete_files(self, *files: str | Iterable[str]) -> None:
        """Take files out of the index; one that is not in it is passed over."""
        place, names = self._place, _canonical(files)
        entries = place.files.files()
        rest = [entry for entry in entries if entry not in set(names)]
        still = states.registered(rest, names)
        if kept := [n for n in names if n not in entries and n in still]:
            problems = [f"{n} is part of a registered folder or pattern" for n in kept]
            problems.append("take out the folder or pattern, or delete the file itself")
            raise AriadneArgumentError("Cannot take files out", problems)
        place.files.discard([name for name in names if name in entries])
        rows: list[Any] = maintenance.key_rows(place).column("filename").to_pylist()
        gone = states.registered(names, rows) - states.registered(rest, rows)
        maintenance.remove_rows(place, sorted(gone))
        if self.metadata.total_indexed_file_size >= 0 or rows:
            total = maintenance.total_size(place)
            self._metadata = place.metadata.change(
                lambda found: replace(found, total_indexed_file_size=total)
            )

    # --- building ------------------------------------------------------------------------------

    def update(self) -> UpdateResult:
        """Index new and rewritten files, fill in new columns, forget files that are gone."""
        result = updating.update(self._place)
        self.refresh_metadata()
        return result

    def compact(self) -> None:
        """Join small data files of the index's tables."""
        maintenance.compact(self._place)
        self.refresh_metadata()

    def vacuum(self, retention_hours: int = 168) -> list[str]:
        """Delete data files that nothing younger than this needs; gives their paths."""
        if retention_hours < 0:
            raise AriadneArgumentError("Cannot vacuum", ["the retention is negative"])
        return maintenance.vacuum(self._place, int(retention_hours))

    # --- asking --------------------------------------------------------------------------------

    def data(self) -> IndexData:
        """What the index knows now: its valid rows, and the files it knows nothing about."""
        place = self._place
        self._metadata = place.metadata.load()
        return current_data(place, self._metadata)

    def locate_files(
        self, values: Mapping[str, Iterable[Any]] | None = None, *, where: str | None = None
    ) -> set[str]:
        """The files that may hold the values (any of a column's, in all columns), or a condition.

        `where` is a condition as text: `user_id IN (1, 2) AND ts > '2024-01-15'`.
        """
        return set(self.explain(values, where=where).files)

    def locate_files_from_dataframe(
        self, df: DataFrame, columns: Mapping[str, str] | Sequence[str] | str
    ) -> set[str]:
        """The files that may hold rows of keys; `columns` may rename, `{theirs: ours}`."""
        from indextables.ariadne.joining import locate_from_frame

        wanted = dict(columns) if isinstance(columns, Mapping) else columns
        return set(locate_from_frame(self, df, wanted).files)

    def explain(
        self, values: Mapping[str, Iterable[Any]] | None = None, *, where: str | None = None
    ) -> Located:
        """The candidate files of a query, and what each condition left over."""
        from indextables.ariadne.query import locate

        return locate(self, values, where=where)

    def join(self, df: DataFrame, using: str | Sequence[str], how: str = "inner") -> DataFrame:
        """Spark's join of all files with a DataFrame, reading only files that can contribute.

        The rows of the files are the left side.
        """
        from indextables.ariadne.joining import join_index

        return join_index(self, df, using, how)

    def select(self, *columns: str | Iterable[str]) -> Index:
        """The same index, whose joins give only these columns."""
        names = list(dict.fromkeys(_flat(columns)))
        what = "Cannot select columns"
        bad = [repr(n) for n in names if not isinstance(n, str) or not n.strip()]
        if bad or not names:
            raise AriadneArgumentError(what, [f"{', '.join(bad) or 'nothing'} is no column"])
        known = [*self.stored_schema.names, *self._metadata.declarations.names]
        wrong = [f"there is no column '{name}'" for name in names if name not in known]
        if wrong:
            raise ColumnNotFoundError(what, wrong, available=list(dict.fromkeys(known)))
        view = object.__new__(Index)
        view.__dict__.update(self.__dict__)
        view.selection = tuple(names)
        return view

    # --- looking inside ------------------------------------------------------------------------

    def stats(self) -> DataFrame:
        """One row for each index column that was built: how many distinct values its files have.

        Of a text index these are words, of a bloom filter the values it was made of. A range keeps
        no values, so of it only the number of files is told; the other columns are null.
        """
        return statistics.frame(self.spark, read_rows(self._place)[0], self._metadata.declarations)

    def print_index(self, truncate: bool | int = False) -> None:
        """Print the rows of the index; of filters and word lists only their sizes."""
        statistics.shown(self.spark, read_rows(self._place)[0]).show(n=10_000, truncate=truncate)

    def print_metadata(self) -> None:
        """Print the metadata."""
        self.refresh_metadata()
        sys.stdout.write(to_json(self._metadata).decode() + "\n")


def _flat(values: Iterable[Any]) -> list[Any]:
    return [
        v
        for value in values
        for v in ([value] if isinstance(value, str) or not isinstance(value, Iterable) else value)
    ]


def _canonical(files: Iterable[Any]) -> list[str]:
    """Canonical paths; all that are none are refused together."""
    found: list[str] = []
    wrong: list[str] = []
    for file in _flat(files):
        try:
            found.append(canonical(file))
        except AriadneArgumentError as error:
            wrong += error.problems
    if wrong:
        raise AriadneArgumentError("Cannot use these files", wrong)
    return found
