"""Random tables, mappings, layouts and conditions: index, flat evaluation and DuckDB agree."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.compute
import pytest
from hypothesis import given
from hypothesis import strategies as st
from random_predicates import duckdb_sql
from random_tables import conditions, conditions_with_search, shown, tables

from examples import examples
from indextables import Table
from indextables.predicate import Predicate, searches
from indextables.split.mapping import TableMapping
from indextables.split.row_filter import evaluate
from indextables.split.search.evaluate import search_rows


@pytest.fixture(scope="module")
def database() -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        yield connection


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> dict[str, object]:
    return {"spark.indextables.cache.disk.path": str(tmp_path_factory.mktemp("cache"))}


def searchable(table: Table) -> TableMapping:
    """How the columns that a search may name are indexed."""
    return table.view.mapping


def flat(predicate: Predicate, rows: pa.Table, table: Table) -> list[int]:
    """The numbers of the matching rows, from the rows alone."""
    snapshot = table.snapshot()
    answer = evaluate(
        predicate,
        rows,
        search=lambda s: search_rows(s, rows, table.view.mapping, schema=snapshot.schema),
    )
    return rows.filter(answer.fill_null(False))["rid"].to_pylist()


def check(table: Table, rows: pa.Table, predicate: Predicate, data: st.DataObject) -> None:
    where = str(predicate)
    expected = sorted(flat(predicate, rows, table))
    found = table.scan(where=where).sort_by("rid")
    assert found.schema.names == table.schema.names
    assert found["rid"].to_pylist() == expected
    assert shown(found.select(rows.schema.names)) == shown(
        rows.filter(pa.compute.is_in(rows["rid"], pa.array(expected, pa.int64()))).sort_by("rid")
    )
    assert table.count(where=where) == len(expected)
    columns = data.draw(
        st.lists(st.sampled_from(rows.schema.names), min_size=1, max_size=3, unique=True)
    )
    limit = data.draw(st.integers(0, rows.num_rows + 1))
    some = table.scan(columns=[*columns, *({"rid"} - set(columns))], where=where, limit=limit)
    assert some.num_rows == min(limit, len(expected))
    assert set(some["rid"].to_pylist()) <= set(expected)
    assert len(set(some["rid"].to_pylist())) == some.num_rows
    kept = rows.filter(pa.compute.is_in(rows["rid"], some["rid"])).sort_by("rid").select(columns)
    assert shown(some.sort_by("rid").select(columns)) == shown(kept)


@examples(50, 16_000)
@given(data=st.data())
def test_index_equals_rows_equals_duckdb(data, database, cache):
    drawn = data.draw(tables())
    rows = drawn.rows
    with tempfile.TemporaryDirectory() as folder:
        table = drawn.create(folder, cache)
        assert table.schema.equals(rows.schema)
        for predicate in data.draw(
            st.lists(conditions_with_search(rows.schema, searchable(table)), max_size=3)
        ):
            check(table, rows, predicate, data)
        predicate = data.draw(conditions(rows.schema))
        assert not searches(predicate)
        check(table, rows, predicate, data)
        selected = database.from_arrow(rows).filter(duckdb_sql(predicate)).project("rid").fetchall()
        assert sorted(rid for (rid,) in selected) == sorted(flat(predicate, rows, table))


@examples(25, 4_000)
@given(data=st.data())
def test_changes_equal_those_of_the_rows(data, cache):
    drawn = data.draw(tables(max_rows=6))
    rows = drawn.rows
    with tempfile.TemporaryDirectory() as folder:
        table = drawn.create(folder, cache)
        versions = {table.version: rows}
        for step in range(data.draw(st.integers(1, 3))):
            rows = change(table, rows, versions, data, step)
            versions[table.version] = rows
            found = table.scan().sort_by("rid")
            assert shown(found) == shown(rows.sort_by("rid"))
            check(
                table, rows, data.draw(conditions_with_search(rows.schema, searchable(table))), data
            )
        version = data.draw(st.sampled_from(sorted(versions)))
        past = Table.open(folder, version=version, config=cache)
        assert shown(past.scan().sort_by("rid")) == shown(versions[version].sort_by("rid"))
        assert table.count() == len(rows)
        assert {p.suffix for p in Path(folder).rglob("*") if p.is_file()} <= {
            ".split", ".json", ".avro", ""
        }  # fmt: skip


def change(table, rows, versions, data, step):
    """One random change of the table; gives the rows that it should have afterwards."""
    kind = data.draw(st.sampled_from(["delete", "replace", "overwrite", "partitions", "restore"]))
    if kind == "restore":
        version = data.draw(st.sampled_from(sorted(versions)))
        table.restore(version=version)
        return versions[version]
    fresh = data.draw(tables_like(rows, start=1000 * (step + 1)))
    if kind == "overwrite":
        table.overwrite(fresh)
        return fresh
    if kind == "partitions":
        table.overwrite(fresh, partitions="dynamic")
        keys = list(table.snapshot().partition_columns)
        if not keys:
            return fresh
        touched = set(shown(fresh.select(keys)))
        keep = [key not in touched for key in shown(rows.select(keys))]
        return pa.concat_tables([rows.filter(pa.array(keep, pa.bool_())), fresh])
    predicate = data.draw(conditions_with_search(rows.schema, searchable(table)))
    gone = flat(predicate, rows, table)
    left = rows.filter(pa.compute.invert(pa.compute.is_in(rows["rid"], pa.array(gone, pa.int64()))))
    if kind == "delete":
        table.delete(where=str(predicate))
        return left
    meets = flat(predicate, fresh, table)
    fresh = fresh.filter(pa.compute.is_in(fresh["rid"], pa.array(meets, pa.int64())))
    table.overwrite(fresh, where=str(predicate))
    return pa.concat_tables([left, fresh])


def tables_like(rows: pa.Table, *, start: int) -> st.SearchStrategy[pa.Table]:
    """Rows of the same schema with other numbers."""
    from random_tables import values_of

    narrow = {n for n in rows.schema.names if n != "rid"}
    row = st.fixed_dictionaries({n: values_of(n) for n in sorted(narrow)})
    return st.lists(row, max_size=3).map(
        lambda drawn: _safe(
            [{**values, "rid": start + n} for n, values in enumerate(drawn)], rows.schema
        )
    )


def _safe(values, schema):
    try:
        return pa.Table.from_pylist(values, schema)
    except (pa.ArrowInvalid, OverflowError, ValueError):
        return schema.empty_table()  # a column is still narrow
