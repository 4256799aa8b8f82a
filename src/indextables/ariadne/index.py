"""`Index`: the handle of one index over external files."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from numbers import Real
from typing import TYPE_CHECKING, Any

from indextables.ariadne import opening, sql
from indextables.ariadne.build.update import UpdateResult, update_index
from indextables.ariadne.declarations import (
    Bloom,
    Computed,
    Declaration,
    Exploded,
    Range,
    Regular,
    Temporal,
    Text,
    check,
)
from indextables.ariadne.files.read import (
    arrow_schema,
    canonical,
    check_values,
    computed_types,
    spark_schema,
)
from indextables.ariadne.files.state import current_data, registered
from indextables.ariadne.joins import join_index, locate_from_frame
from indextables.ariadne.lookup import Located
from indextables.ariadne.metadata import IndexData, Metadata, metadata_json
from indextables.ariadne.opening import IndexView
from indextables.ariadne.store import index_rows
from indextables.ariadne.store.place import (
    Context,
    IndexPlace,
    active_session,
    check_name,
    remove_index,
)
from indextables.errors import AriadneArgumentError, ColumnNotFoundError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from indextables.ariadne.opening import SchemaLike


class Index:
    """An index over external parquet, csv or json files, by its name.

    Making an `Index` checks the arguments and does nothing else: no file is read or written. The
    index is created, or found and compared with the arguments, when it is first used: by a method,
    or by a property other than `name` and `storage_path`. What does not fit raises then.

    Two handles are equal if they are of the same index and select the same columns.

    Args:
        name: The name of the index below `spark.ariadne.storagePath`.
        schema: The schema of the files: a `StructType`, a `pyarrow.Schema` or DDL. An index that
            exists needs none.
        format: `parquet`, `csv` or `json`. A new index without a format is over parquet files.
        allow_schema_mismatch: Whether `schema` replaces the stored schema if they differ. Index
            columns must exist in both, with the same types. The read options may be here instead:
            `Index(name, schema, "csv", {"header": "true"})`.
        read_options: Options of Spark's reader. They are stored; later ones replace stored ones of
            the same name.

    Raises:
        AriadneArgumentError: The name, schema, format or options cannot be used.
        StoragePathNotSetError: The session has no `spark.ariadne.storagePath`.
        SchemaNotProvidedError: On first use: there is no such index, and no schema to create it.
        FormatMismatchError: On first use: the stored format is another one.
        SchemaMismatchError: On first use: the stored schema is another one.

    ```py
    from indextables.ariadne import Index

    spark.conf.set("spark.ariadne.storagePath", f"{path}/ariadne")
    rows = spark.range(1000).selectExpr(
        "id AS user",
        "concat('s', id) AS session",
        "id % 3 AS zone",
        "timestamp_seconds(id) AS at",
        "concat('a note about ', id) AS note",
        "array(named_struct('sku', id)) AS items",
    )
    rows.where("user < 500").coalesce(1).write.parquet(f"{path}/events/a")
    rows.where("user >= 500").coalesce(1).write.parquet(f"{path}/events/b")
    events = Index("events", rows.schema, "parquet")
    ```
    """

    def __init__(
        self,
        name: str,
        schema: SchemaLike | None = None,
        format: str | None = None,  # noqa: A002
        allow_schema_mismatch: bool | Mapping[str, str] = False,
        read_options: Mapping[str, str] | None = None,
    ) -> None:
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
        self._opening = opening.Opening.of(
            name,
            schema,
            format,
            allow_schema_mismatch=allow_schema_mismatch,
            read_options=read_options,
        )
        self._metadata: Metadata | None = None

    @staticmethod
    def exists(name: str) -> bool:
        """Whether there is an index of this name, as `IndexCatalog.exists`.

        What is left of an index whose removal was interrupted is not an index; `remove` deletes it.

        Args:
            name: The name of the index.

        Returns:
            True from the first use of a new index until its removal.

        Raises:
            AriadneArgumentError: The name cannot be the name of an index.

        ```py
        assert not Index.exists("events")  # it was not used yet
        ```
        """
        return IndexPlace(Context.current(), check_name(name)).exists()

    @staticmethod
    def remove(name: str) -> bool:
        """Delete an index and its file list, or what is left of them. The indexed files stay.

        Args:
            name: The name of the index.

        Returns:
            True.

        Raises:
            IndexNotFoundError: There is nothing of an index of this name.

        ```py
        Index("old", "id BIGINT").refresh_metadata()
        assert Index.remove("old")
        assert not Index.exists("old")
        ```
        """
        remove_index(Context.current(), check_name(name))
        return True

    # --- what it is ----------------------------------------------------------------------------

    @property
    def _unopened(self) -> IndexPlace:
        return IndexPlace(Context.of(self.spark, self._root), self.name)

    def _connect(self, place: IndexPlace) -> Metadata:
        """Create the index, or compare it with the arguments."""
        self._metadata = metadata = opening.connect(place, self._opening)
        sql.install(self.spark)
        return metadata

    @property
    def _place(self) -> IndexPlace:
        place = self._unopened
        if self._metadata is None:
            self._connect(place)
        return place

    @property
    def storage_path(self) -> str:
        """The folder of the index."""
        return self._unopened.uri

    @property
    def metadata(self) -> Metadata:
        """Declarations, schema, format and read options, as this handle has read them last."""
        return self._connect(self._unopened) if self._metadata is None else self._metadata

    @property
    def format(self) -> str:
        """The format of the files: `parquet`, `csv` or `json`."""
        return self.metadata.format

    @property
    def read_options(self) -> dict[str, str]:
        """The options of Spark's reader that the files are read with."""
        return dict(self.metadata.read_options)

    @property
    def stored_schema(self) -> StructType:
        """The schema of the files, as it is stored with the index."""
        return spark_schema(self.metadata, name=self.name)

    @property
    def indexes(self) -> set[str]:
        """The names of all index columns."""
        return set(self.metadata.declarations.names)

    def refresh_metadata(self) -> None:
        """Read the metadata again; of a new index, create it.

        Raises:
            MetadataMissingOrCorruptError: The index was removed, or its metadata is damaged.

        ```py
        events.refresh_metadata()
        assert events.format == "parquet"
        assert events.stored_schema == rows.schema
        assert events.read_options == {}
        assert Index.exists("events")
        ```
        """
        place = self._unopened
        if self._metadata is None:
            self._connect(place)
        else:
            self._metadata = place.metadata.load()

    def __eq__(self, other: object) -> bool:
        return self._identity == other._identity if isinstance(other, Index) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._identity)

    @property
    def _identity(self) -> tuple[str, str, tuple[str, ...] | None]:
        return self._root, self.name, self.selection

    def __repr__(self) -> str:
        metadata = self._metadata
        if metadata is None:
            return f"Index({self.name!r})"
        names = sorted(metadata.declarations.names)
        return f"Index({self.name!r}, format={metadata.format!r}, indexes={names})"

    # --- declaring -----------------------------------------------------------------------------

    def add_index(self, column: str) -> None:
        """Keep the distinct values of a column for each file.

        Declaring the same again changes nothing. The next `update` builds what is new.

        Args:
            column: A column of the files.

        Raises:
            ColumnNotFoundError: The files have no such column.
            AriadneArgumentError: The column has another kind of index, or a type without equality.

        ```py
        events.add_index("zone")
        ```
        """
        self._declare(Regular(column))

    def add_bloom_index(self, column: str, fpr: float = 0.01) -> None:
        """Keep a bloom filter of a column's values for each file.

        Args:
            column: A column of the files.
            fpr: The rate of false positives, between 0 and 1.

        Raises:
            ColumnNotFoundError: The files have no such column.
            AriadneArgumentError: The rate is out of bounds, the column is indexed in another way,
                or its type has no equality.

        ```py
        events.add_bloom_index("session", fpr=0.001)
        ```
        """
        self._declare(Bloom(column, float(fpr) if isinstance(fpr, Real) else fpr))

    def add_computed_index(self, name: str, sql_expression: str) -> None:
        """Keep the distinct values of a Spark SQL expression for each file.

        Args:
            name: The name of the index column in queries and joins.
            sql_expression: An expression over the columns of one row. What may differ from query to
                query is refused: `rand()`, `current_date`, subqueries.

        Raises:
            AriadneArgumentError: The name is used, or Spark cannot evaluate the expression, or not
                repeatably.

        ```py
        events.add_computed_index("day", "date(at)")
        ```
        """
        self._declare(Computed(name, sql_expression))

    def add_exploded_field_index(self, array_column: str, field_path: str, as_column: str) -> None:
        """Keep the distinct values of a field of the structs in an array for each file.

        Args:
            array_column: A column of arrays of structs.
            field_path: The field, with dots between the names of nested structs.
            as_column: The name of the index column in queries and joins.

        Raises:
            ColumnNotFoundError: The files have no such array.
            AriadneArgumentError: The column is not an array of structs with this field, or the name
                is used.

        ```py
        events.add_exploded_field_index("items", "sku", "sku")
        ```
        """
        self._declare(Exploded(array_column, field_path, as_column))

    def add_temporal_index(self, column: str, timestamp_column: str) -> None:
        """Keep the values of a column with their newest time for each file.

        Joins and SQL then return only the newest row of each value.

        Args:
            column: A column of the files.
            timestamp_column: The column of times, or the dotted path of one inside structs.

        Raises:
            ColumnNotFoundError: The files lack one of the columns.
            AriadneArgumentError: The column is indexed in another way, or a type has no order.

        ```py
        newest = Index("newest", rows.schema)
        newest.add_temporal_index("zone", "at")
        newest.add_file(f"{path}/events")
        newest.update()
        zones = spark.createDataFrame([(0,)], "zone long")
        assert [row.user for row in newest.join(zones, "zone").collect()] == [999]
        ```
        """
        self._declare(Temporal(column, timestamp_column))

    def add_range_index(self, column: str) -> None:
        """Keep the least and the greatest value of a column for each file.

        Args:
            column: A column of the files.

        Raises:
            ColumnNotFoundError: The files have no such column.
            AriadneArgumentError: The column is indexed in another way, or its type has no order.

        ```py
        events.add_range_index("user")
        ```
        """
        self._declare(Range(column))

    def add_text_index(self, column: str) -> None:
        """Keep the words of a column of text for each file.

        Args:
            column: A column of the files.

        Raises:
            ColumnNotFoundError: The files have no such column.
            AriadneArgumentError: The column is indexed in another way, or is not text.

        ```py
        events.add_text_index("note")
        assert events.indexes == {"zone", "session", "day", "sku", "user", "note"}
        ```
        """
        self._declare(Text(column))

    def _declare(self, new: Declaration) -> None:
        place = self._place

        def change(stored: Metadata) -> Metadata:
            schema = arrow_schema(stored, name=self.name)
            check(new, stored.declarations, schema)
            computed_types(self.spark, stored, [new], name=self.name)
            check_values(place, stored, new)
            return stored.declaring(new)

        self._metadata = place.metadata.change(change)

    # --- files ---------------------------------------------------------------------------------

    def add_file(self, *files: str | Iterable[str]) -> None:
        """Register files, folders or patterns. They need not exist yet; `update` reads them.

        Args:
            files: Paths or URIs, or lists of them. `*`, `?`, `[a-z]` and `{a,b}` make a pattern.

        Raises:
            AriadneArgumentError: There is no path, or one that cannot be used.

        ```py
        events.add_file(f"{path}/events")
        ```
        """
        paths = _canonical(files)
        if not paths:
            raise AriadneArgumentError("Cannot register files", ["there are none"])
        self._place.files.add(paths)

    def has_file(self, file: str) -> bool:
        """Whether a file is registered, by its own path or by a folder or pattern.

        Args:
            file: A path or URI.

        Returns:
            Whether it is registered. Nothing is said about whether it exists or is indexed.

        Raises:
            AriadneArgumentError: The path cannot be used.

        ```py
        assert events.has_file(f"{path}/events/a/x.parquet")
        assert not events.has_file(f"{path}/elsewhere/x.parquet")
        ```
        """
        return bool(registered(self._place.files.files(), [canonical(file)]))

    def delete_files(self, *files: str | Iterable[str]) -> None:
        """Remove files from the index. The files stay. Files that are not registered are ignored.

        Args:
            files: Paths, folders or patterns as they were registered.

        Raises:
            AriadneArgumentError: A file is registered by a folder or pattern, not by its own path.

        ```py
        events.add_file("/somewhere/else.parquet")
        events.delete_files("/somewhere/else.parquet")
        assert not events.has_file("/somewhere/else.parquet")
        ```
        """
        place, paths = self._place, _canonical(files)
        entries = place.files.files()
        remaining = [entry for entry in entries if entry not in set(paths)]
        still = registered(remaining, paths)
        if kept := [p for p in paths if p not in entries and p in still]:
            problems = [f"{p} is part of a registered folder or pattern" for p in kept]
            problems.append("remove the folder or pattern, or delete the file itself")
            raise AriadneArgumentError("Cannot remove files from the index", problems)
        place.files.discard([path for path in paths if path in entries])
        indexed: list[Any] = index_rows.key_rows(place).column("filename").to_pylist()
        removed = registered(paths, indexed) - registered(remaining, indexed)
        index_rows.remove_rows(place, sorted(removed))
        if self.metadata.total_indexed_file_size >= 0 or indexed:
            total = index_rows.total_size(place)
            self._metadata = place.metadata.change(
                lambda stored: replace(stored, total_indexed_file_size=total)
            )

    # --- building ------------------------------------------------------------------------------

    def update(self) -> UpdateResult:
        """Index new and rewritten files, build new columns, remove files that are gone.

        A file that cannot be read does not stop the others. It stays a candidate of every query.

        Returns:
            How many files were indexed, extended and removed, and which failed and why.

        Raises:
            ConcurrentUpdateError: Other updates were faster too many times.

        ```py
        assert events.update().indexed == 2
        ```
        """
        result = update_index(self._place)
        self.refresh_metadata()
        return result

    def compact(self) -> None:
        """Merge the small data files of the index's tables.

        Raises:
            ConcurrentUpdateError: Other updates were faster too many times.

        ```py
        events.compact()
        ```
        """
        index_rows.compact(self._place)
        self.refresh_metadata()

    def vacuum(self, retention_hours: int = 168) -> list[str]:
        """Delete data files of the index's tables that are not needed any more.

        Args:
            retention_hours: Data files that versions younger than this need are kept.

        Returns:
            The paths of the deleted data files, below the folder of the index.

        Raises:
            AriadneArgumentError: The retention is negative.

        ```py
        assert isinstance(events.vacuum(retention_hours=168), list)
        ```
        """
        if retention_hours < 0:
            raise AriadneArgumentError("Cannot vacuum", ["the retention is negative"])
        return index_rows.vacuum(self._place, int(retention_hours))

    # --- asking --------------------------------------------------------------------------------

    def data(self) -> IndexData:
        """The state of the index now: its valid rows, and the files without one.

        Returns:
            The rows as an Arrow table in `files`, other registered files in `pending`, and those
            among them that do not exist in `missing`.

        ```py
        assert events.data().files.num_rows == 2
        assert events.data().pending == ()
        ```
        """
        place = self._place
        self._metadata = place.metadata.load()
        return current_data(place, self._metadata)

    def _view(self) -> IndexView:
        view = IndexView.of(self._place)
        self._metadata = view.metadata
        return view

    def locate_files(
        self, values: Mapping[str, Iterable[Any]] | None = None, *, where: str | None = None
    ) -> set[str]:
        """The files that may hold some values, or rows for which a condition is true.

        A file that is not indexed is always among them; a file that holds a match always is.

        Args:
            values: Values by index column. A file must be able to hold one of the values of each
                column. A null equals nothing.
            where: A condition as SQL text, over any columns: `user IN (1, 2) AND zone > 0`.

        Returns:
            Paths of files.

        Raises:
            ColumnNotFoundError: There is no such column.
            AriadneArgumentError: A column has no index, or values and condition are missing.

        ```py
        assert len(events.locate_files({"user": [42]})) == 1
        assert len(events.locate_files(where="zone = 1 AND user > 700")) == 1
        ```
        """
        return set(self.explain(values, where=where).files)

    def locate_files_from_dataframe(
        self, df: DataFrame, columns: Mapping[str, str] | Sequence[str] | str
    ) -> set[str]:
        """The files that may hold the keys of a DataFrame.

        Args:
            df: Rows of keys.
            columns: Index columns that the DataFrame has too, or `{column of df: index column}`.

        Returns:
            Paths of files. A file must be able to hold all parts of one key.

        Raises:
            ColumnNotFoundError: Either side has no such column.
            AriadneArgumentError: A column has no index.

        ```py
        keys = spark.createDataFrame([(7,), (8,)], "id long")
        assert len(events.locate_files_from_dataframe(keys, {"id": "user"})) == 1
        ```
        """
        view = self._view()
        return set(locate_from_frame(view, df, columns, selection=self.selection).files)

    def explain(
        self, values: Mapping[str, Iterable[Any]] | None = None, *, where: str | None = None
    ) -> Located:
        """The candidate files of a query, and how many files each condition kept.

        Args:
            values: As for `locate_files`.
            where: As for `locate_files`.

        Returns:
            The files and the steps; printed, one line for each condition.

        Raises:
            ColumnNotFoundError: There is no such column.
            AriadneArgumentError: A column has no index, or values and condition are missing.

        ```py
        found = events.explain({"session": ["s7"]}, where="note indexquery 'about'")
        assert (found.total, found.pending) == (2, 0)
        print(found)
        ```
        """
        return self._view().locate(values, where=where)

    def join(self, df: DataFrame, using: str | Sequence[str], how: str = "inner") -> DataFrame:
        """Spark's join of all files with a DataFrame, reading only files that can contribute.

        The rows of the files are the left side; `indextables.ariadne.join` has them on the right.

        Args:
            df: The right side.
            using: Columns that both sides have; at least one has an index.
            how: A join type as Spark or SQL spells it: `inner`, `left_semi`, `full outer`.

        Returns:
            What `files.join(df, using, how)` returns, for every join type.

        Raises:
            ColumnNotFoundError: A side has no such column, or `select` left it out.
            AriadneArgumentError: None of the columns has an index, or there is no such join type.
            SourceFileMissingError: A file that the join needs does not exist.

        ```py
        keys = spark.createDataFrame([(7, "x"), (5000, "y")], "user long, mark string")
        assert [row.mark for row in events.join(keys, "user").collect()] == ["x"]
        assert events.join(keys, ["user"], "right").count() == 2
        ```
        """
        return join_index(self._view(), df, using, how, selection=self.selection)

    def select(self, *columns: str | Iterable[str]) -> Index:
        """A handle of the same index whose joins return only some columns.

        Args:
            columns: Columns of the files and names of computed or exploded index columns. They must
                include those that a join uses.

        Returns:
            Another handle; this one does not change.

        Raises:
            ColumnNotFoundError: There is no such column.

        ```py
        assert events.select("user", "zone").join(keys, "user").columns == ["user", "zone", "mark"]
        ```
        """
        names = list(dict.fromkeys(_flat(columns)))
        attempt = "Cannot select columns"
        bad = [repr(n) for n in names if not isinstance(n, str) or not n.strip()]
        if bad or not names:
            raise AriadneArgumentError(attempt, [f"{', '.join(bad) or 'nothing'} is not a column"])
        available = [*self.stored_schema.names, *self.metadata.declarations.names]
        wrong = [f"there is no column '{name}'" for name in names if name not in available]
        if wrong:
            raise ColumnNotFoundError(attempt, wrong, available=list(dict.fromkeys(available)))
        selected = object.__new__(Index)
        selected.__dict__.update(self.__dict__)
        selected.selection = tuple(names)
        return selected

    # --- looking inside ------------------------------------------------------------------------

    def stats(self) -> DataFrame:
        """How many distinct values the files have, one row for each index column that was built.

        Returns:
            `Column`, `FileCount`, `MinValues`, `MaxValues`, `AvgValues`, `MedianValues`, `StdDev`.
            The values of a text index are its words. A range index keeps no values: of it only the
            number of files is known, and the rest is null.

        ```py
        assert {row.Column for row in events.stats().collect()} == events.indexes
        ```
        """
        rows, _ = index_rows.read_rows(self._place)
        return index_rows.statistics_frame(self.spark, rows, self.metadata.declarations)

    def print_index(self, truncate: bool | int = False) -> None:
        """Print the rows of the index; of filters and lists of words only their sizes.

        Args:
            truncate: As for `DataFrame.show`.

        ```py
        events.print_index(truncate=True)
        ```
        """
        rows, _ = index_rows.read_rows(self._place)
        index_rows.readable_frame(self.spark, rows).show(n=10_000, truncate=truncate)

    def print_metadata(self) -> None:
        """Print metadata.json as it is now.

        ```py
        events.print_metadata()
        ```
        """
        self.refresh_metadata()
        sys.stdout.write(metadata_json(self.metadata).decode() + "\n")


def _flat(values: Iterable[Any]) -> list[Any]:
    return [
        v
        for value in values
        for v in ([value] if isinstance(value, str) or not isinstance(value, Iterable) else value)
    ]


def _canonical(files: Iterable[Any]) -> list[str]:
    """Canonical paths. All that cannot be used are refused together."""
    paths: list[str] = []
    wrong: list[str] = []
    for file in _flat(files):
        try:
            paths.append(canonical(file))
        except AriadneArgumentError as error:
            wrong += error.problems
    if wrong:
        raise AriadneArgumentError("Cannot use these files", wrong)
    return paths
