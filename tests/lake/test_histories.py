"""A search index answers as a scan of its source does, whatever happened to the source since.

Random histories of a Delta table, of an Iceberg table and of a folder of Parquet files, with
refreshes in between. The expected rows are those that delta-rs, pyiceberg or pyarrow read, filtered
by the flat evaluator.
"""

from __future__ import annotations

import shutil
import tempfile
import warnings
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from delta_logs import DeltaLog, field
from deltalake import DeltaTable, write_deltalake
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from iceberg_tables import catalog_in, data_files, delete_positions
from pyiceberg.types import LongType

import indextables as it
from indextables.predicate.sql_text import parse_predicate
from indextables.split.row_filter import evaluate
from indextables.split.search import search_rows

WORDS = ["red", "fox", "dog", "lazy", "blue"]
TEXTS = st.one_of(st.none(), st.lists(st.sampled_from(WORDS), max_size=4).map(" ".join))
QUERIES = [
    "body indexquery 'fox'",
    "body indexquery '\"red fox\"' OR n > 5",
    "NOT body indexquery 'dog' AND p = 'b c'",
    "_indexall indexquery 'lazy OR blue'",
    "body indexquery 'red AND -dog' AND n IS NOT NULL",
    "body = 'red fox' OR p IS NULL",
    "n < 4",
    "title indexquery 'fox' OR extra > 1",
    "p indexquery 'a' AND body indexquery 'red'",
]
ROWS = st.lists(
    st.tuples(
        st.one_of(st.none(), st.integers(0, 9)), TEXTS, TEXTS, st.sampled_from(["a", "b c", None])
    ),
    min_size=1,
    max_size=6,
)
CHANGE = st.one_of(
    st.tuples(st.just("append"), ROWS),
    st.tuples(st.just("evolve"), ROWS),
    st.tuples(st.just("delete"), st.integers(0, 9)),
    st.tuples(st.just("update"), st.integers(0, 9)),
    st.tuples(st.just("merge"), ROWS),
    st.tuples(st.just("optimize"), st.none()),
    st.tuples(st.just("overwrite"), ROWS),
)
# Each change, what is done to the index after it, and what is asked then.
HISTORY = st.lists(
    st.tuples(
        CHANGE,
        st.sampled_from(["", "refresh", "refresh", "merge_splits", "index_crossreferences"]),
        st.one_of(st.none(), st.sampled_from(QUERIES)),
    ),
    min_size=2,
    max_size=6,
)


def rows_of(rows: list[tuple], *, extra: bool = False) -> pa.Table:
    columns = [pa.array(c) for c in zip(*rows, strict=True)]
    kinds = [pa.int32(), pa.string(), pa.string(), pa.string()]
    names = ["n", "title", "body", "p"]
    table = pa.table([c.cast(k) for c, k in zip(columns, kinds, strict=True)], names=names)
    if extra:
        table = table.append_column("extra", pa.array(range(len(rows)), pa.int64()))
    return table


def check(index: it.SearchIndex, source: pa.Table, where: str) -> None:
    """The index finds what the flat evaluator finds in the rows of the source."""
    table = index.table()
    source = in_schema(source, table.schema)
    if "extra" in where and "extra" not in source.schema.names:
        return
    view = table.view
    predicate = parse_predicate(where, view.schema, timezone="UTC")
    kept = evaluate(
        predicate,
        source,
        search=lambda s: search_rows(s, source, view.mapping, schema=view.schema),
    )
    expected = source.filter(kept)
    assert content(index.scan(where=where)) == content(expected)
    assert index.count(where=where) == expected.num_rows


def check_ranked(index: it.SearchIndex, source: pa.Table, *, exact: bool) -> None:
    """The same for a ranked search; its scores do not depend on what is indexed.

    They are not `exact` where a merged split has rows of files that left: those count until the
    split is made again, as deleted rows of a table do.
    """
    table = index.table()
    source = in_schema(source, table.schema)
    view = table.view
    search = parse_predicate(
        "_indexall indexquery 'fox OR title:lazy'", view.schema, timezone="UTC"
    )
    hit = search_rows(search, source, view.mapping, schema=view.schema)
    condition = pc.fill_null(pc.less(source["n"], 7), False)
    expected = source.filter(pc.and_(condition, pa.array(np.asarray(hit))))
    found = index.search("fox OR title:lazy", where="n < 7", limit=None)
    assert content(found.drop_columns(["_score"])) == content(expected)
    index.refresh()
    again = index.search("fox OR title:lazy", where="n < 7", limit=None)
    if exact:
        assert again.equals(found)
    assert content(again.drop_columns(["_score"])) == content(expected)


def in_schema(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """A folder keeps a column whose files have all left; it is null then."""
    assert set(rows.schema.names) <= set(schema.names)
    for name in set(schema.names) - set(rows.schema.names):
        rows = rows.append_column(name, pa.nulls(rows.num_rows, schema.field(name).type))
    return rows.select(schema.names).cast(schema)


def content(rows: pa.Table) -> list[str]:
    return sorted(map(repr, rows.to_pylist()))


class DeltaHistory:
    def __init__(self, folder: Path, rows: list[tuple]) -> None:
        self.uri = str(folder / "source")
        write_deltalake(self.uri, rows_of(rows), partition_by=["p"])

    @property
    def table(self) -> DeltaTable:
        return DeltaTable(self.uri)

    def rows(self) -> pa.Table:
        return self.table.to_pyarrow_table()

    def append(self, rows: list[tuple]) -> None:
        write_deltalake(self.uri, rows_of(rows), mode="append", schema_mode="merge")

    def evolve(self, rows: list[tuple]) -> None:
        write_deltalake(self.uri, rows_of(rows, extra=True), mode="append", schema_mode="merge")

    def delete(self, n: int) -> None:
        self.table.delete(f"n = {n}")

    def update(self, n: int) -> None:
        self.table.update({"body": "'blue fox'"}, predicate=f"n > {n}")

    def merge(self, rows: list[tuple]) -> None:
        by_key = {row[0]: row for row in rows if row[0] is not None}
        if not by_key:
            return
        self.table.merge(
            rows_of(list(by_key.values())), "t.n = s.n", source_alias="s", target_alias="t"
        ).when_matched_update({"body": "s.body"}).when_not_matched_insert(
            {c: f"s.{c}" for c in ("n", "title", "body", "p")}
        ).execute()

    def optimize(self, _: None) -> None:
        self.table.optimize.compact()

    def overwrite(self, rows: list[tuple]) -> None:
        write_deltalake(self.uri, rows_of(rows), mode="overwrite", schema_mode="merge")


class VectorHistory:
    """A Delta table whose rows are deleted by vectors, which delta-rs reads and does not write."""

    def __init__(self, folder: Path, rows: list[tuple]) -> None:
        self.uri = str(folder / "source")
        self.log = DeltaLog(folder / "source", features=("deletionVectors",))
        self.adds: dict[str, dict] = {}
        self.files: dict[str, tuple[pa.Table, set[int]]] = {}
        self.number = 0
        self.columns = [
            field("n", "integer"), field("title", "string"), field("body", "string"),
            field("p", "string"),
        ]  # fmt: skip
        self.log.commit(self.log.protocol, *self.defined(), *self.added(rows_of(rows)))

    def defined(self) -> list[dict]:
        return [self.log.metadata(self.columns, partition_by=("p",))]

    def added(self, table: pa.Table) -> list[dict]:
        found = []
        for value in table["p"].unique().to_pylist():
            mask = pc.equal(table["p"], value) if value is not None else pc.is_null(table["p"])
            part, path = table.filter(mask), f"{self.number}.parquet"
            self.number += 1
            self.adds[path] = self.log.add(path, part.drop_columns(["p"]), partition={"p": value})
            self.files[path] = part, set()
            found.append(self.adds[path])
        return found

    def rows(self) -> pa.Table:
        live = [
            part.filter(pa.array([at not in dead for at in range(part.num_rows)], pa.bool_()))
            for part, dead in self.files.values()
        ]
        return pa.concat_tables([rows_of([(0, "", "", "")]).slice(1), *live],
                                promote_options="default")  # fmt: skip

    def append(self, rows: list[tuple]) -> None:
        self.log.commit(*self.added(rows_of(rows)))

    def evolve(self, rows: list[tuple]) -> None:
        if len(self.columns) == 4:
            self.columns.append(field("extra", "long"))
        self.log.commit(*self.defined(), *self.added(rows_of(rows, extra=True)))

    def marked(self, where) -> tuple[list[dict], pa.Table]:
        """The actions that delete rows, and the rows."""
        actions, gone = [], [rows_of([(0, "", "", "")]).slice(1)]
        for path, (part, dead) in list(self.files.items()):
            new = {at for at, n in enumerate(part["n"].to_pylist()) if where(n)} - dead
            if not new:
                continue
            gone.append(part.take(sorted(new)))
            value = part["p"][0].as_py()
            actions.append(self.log.remove(self.adds[path]))
            if len(dead | new) == part.num_rows and len(new) % 2:
                del self.files[path], self.adds[path]
                continue
            self.files[path] = part, dead | new
            every = tuple(sorted(dead | new))
            self.adds[path] = self.log.add(path, dead=every, partition={"p": value})
            actions.append(self.adds[path])
        return actions, pa.concat_tables(gone, promote_options="default")

    def delete(self, n: int) -> None:
        self.log.commit(*self.marked(lambda value: value == n)[0])

    def update(self, n: int) -> None:
        actions, gone = self.marked(lambda value: value is not None and value > n)
        body = pa.array(["blue fox"] * gone.num_rows, pa.string())
        new = gone.set_column(gone.schema.get_field_index("body"), "body", body)
        self.log.commit(*actions, *self.added(new))

    def merge(self, rows: list[tuple]) -> None:
        keys = {row[0] for row in rows}
        actions, _ = self.marked(lambda value: value in keys)
        self.log.commit(*actions, *self.added(rows_of(rows)))

    def optimize(self, _: None) -> None:
        self.replace(self.rows())

    def overwrite(self, rows: list[tuple]) -> None:
        self.replace(rows_of(rows))

    def replace(self, rows: pa.Table) -> None:
        removed = [self.log.remove(add) for add in self.adds.values()]
        self.files, self.adds = {}, {}
        self.log.commit(*removed, *self.added(rows))


class FolderHistory:
    """The same for files in partition folders, which are added, replaced and removed."""

    def __init__(self, folder: Path, rows: list[tuple]) -> None:
        self.root = folder / "source"
        self.uri = str(self.root)
        self.number = 0
        self.append(rows)

    def rows(self) -> pa.Table:
        parts = []
        for file in self.files():
            value = file.parent.name.partition("=")[2]
            part = pq.ParquetFile(file).read()
            text = None if value == "__HIVE_DEFAULT_PARTITION__" else value.replace("%20", " ")
            parts.append(part.append_column("p", pa.array([text] * part.num_rows, pa.string())))
        return pa.concat_tables(parts, promote_options="default")

    def files(self) -> list[Path]:
        return sorted(self.root.rglob("*.parquet"))

    def append(self, rows: list[tuple], extra: bool = False) -> None:
        table = rows_of(rows, extra=extra)
        for value in table["p"].unique().to_pylist():
            mask = pc.equal(table["p"], value) if value is not None else pc.is_null(table["p"])
            name = "__HIVE_DEFAULT_PARTITION__" if value is None else value.replace(" ", "%20")
            folder = self.root / f"p={name}"
            folder.mkdir(parents=True, exist_ok=True)
            self.number += 1
            part = table.filter(mask).drop_columns(["p"])
            pq.write_table(part, folder / f"{self.number}.parquet", row_group_size=2)

    def evolve(self, rows: list[tuple]) -> None:
        self.append(rows, extra=True)

    def delete(self, n: int) -> None:
        if len(self.files()) > 1:
            self.files()[n % len(self.files())].unlink()

    def update(self, n: int) -> None:
        file = self.files()[n % len(self.files())]
        old = pq.ParquetFile(file).read()
        changed = pa.array(["blue fox"] * old.num_rows)
        pq.write_table(old.set_column(old.schema.get_field_index("body"), "body", changed), file)

    def merge(self, rows: list[tuple]) -> None:
        self.append(rows)

    def optimize(self, _: None) -> None:
        pass

    def overwrite(self, rows: list[tuple]) -> None:
        shutil.rmtree(self.root)
        self.append(rows)


class IcebergHistory:
    """The same by pyiceberg, with columns that are renamed and come back, and partition specs.

    Deletes are copies of files, as pyiceberg writes them, or files of deletes beside them.
    """

    def __init__(self, folder: Path, rows: list[tuple]) -> None:
        self.table = catalog_in(folder).create_table("db.docs", rows_of([(1, "", "", "")]).schema)
        self.uri = self.table.location()
        self.has_extra = False
        with self.table.update_spec() as spec:
            spec.add_identity("p")
        self.append(rows)

    def rows(self) -> pa.Table:
        return self.table.scan().to_arrow()

    def append(self, rows: list[tuple]) -> None:
        self.table.append(self.fitting(rows))

    def fitting(self, rows: list[tuple]) -> pa.Table:
        table, wanted = rows_of(rows, extra=self.has_extra), self.table.schema().as_arrow()
        columns = [c if (c := f.name) in table.schema.names else None for f in wanted]
        return pa.table(
            [
                pa.nulls(len(rows), f.type) if name is None else table[name].cast(f.type)
                for f, name in zip(wanted, columns, strict=True)
            ],
            schema=wanted,
        )

    def evolve(self, rows: list[tuple]) -> None:
        if self.has_extra:  # dropped and added again, the old values are gone
            with self.table.update_schema() as change:
                change.delete_column("extra")
        with self.table.update_schema() as change:
            change.add_column("extra", LongType())
            change.update_column("n", LongType())
        self.has_extra = True
        self.append(rows)

    def delete(self, n: int) -> None:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Delete operation did not match any records")
            self.table.delete(f"n = {n}")

    def update(self, n: int) -> None:
        """A position delete of a row of a file, which may be dead already."""
        if self.table.current_snapshot() is None:
            return
        files = {f.file_path: f for f in data_files(self.table)}
        if files:
            path, file = sorted(files.items())[n % len(files)]
            values = tuple(file.partition[at] for at in range(len(file.partition)))
            row = n % file.record_count
            delete_positions(self.table, [(path, row)], spec=file.spec_id, partition=values)

    def merge(self, rows: list[tuple]) -> None:
        """Another partition spec from here on, and a column that has another name for a while."""
        names = [f.name for f in self.table.spec().fields]
        with self.table.update_spec() as spec:
            if "p" in names:
                spec.remove_field("p")
            else:
                spec.add_identity("p")
        with self.table.update_schema() as change:
            change.rename_column("title", "heading")
        self.append([(n, None, body, p) for n, _, body, p in rows])
        with self.table.update_schema() as change:
            change.rename_column("heading", "title")

    def optimize(self, _: None) -> None:
        self.overwrite_by(self.rows())

    def overwrite(self, rows: list[tuple]) -> None:
        self.overwrite_by(self.fitting(rows))

    def overwrite_by(self, rows: pa.Table) -> None:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Delete operation did not match any records")
            self.table.overwrite(rows)


FORMATS = {
    DeltaHistory: "delta", VectorHistory: "delta", FolderHistory: "parquet",
    IcebergHistory: "iceberg",
}  # fmt: skip


@pytest.mark.parametrize("kind", FORMATS)
def test_an_index_answers_as_its_source(kind):
    # A shorter history is not worth the minutes that shrinking takes.
    @settings(max_examples=settings().max_examples // 16, phases=[Phase.generate])
    @given(first=ROWS, history=HISTORY)
    def run(first, history):
        folder = Path(tempfile.mkdtemp())
        try:
            source = kind(folder, first)
            index = it.SearchIndex.create(
                folder / "index",
                source=source.uri,
                format=FORMATS[kind],
                columns=["n", "title", "body", "p"],
                config={"spark.indextables.xref.query.minSplitsForXRef": 1},
            )
            for (change, argument), upkeep, where in history:
                getattr(source, change)(argument)
                if upkeep:
                    getattr(index, upkeep)()
                if where is not None:
                    check(index, source.rows(), where)
            check(index, source.rows(), QUERIES[0])
            merged = any(upkeep == "merge_splits" for _, upkeep, _ in history)
            check_ranked(index, source.rows(), exact=not merged)
            assert not it.SearchIndex.open(index.uri).describe()["files_not_indexed"]
            index.merge_splits()
            check(index, source.rows(), QUERIES[2])
            assert all(one.passed for one in index.verify())
        finally:
            shutil.rmtree(folder)

    run()
