"""Lists of lists: written, searched like lists, merged, verified, routed."""

from __future__ import annotations

import pyarrow as pa
import pytest

import indextables as it
from indextables.errors import SchemaError

PREFIX = "spark.indextables."
ROWS = pa.table(
    {
        "id": [0, 1, 2, 3],
        "w": pa.array(
            [[["a b", "c"], ["d"]], None, [[], None, ["e", None]], [["b"], ["a"]]],
            pa.list_(pa.list_(pa.string())),
        ),
        "s": pa.array([[["A x"]], [["B"], ["C"]], None, [[]]], pa.list_(pa.list_(pa.string()))),
        "n": pa.array([[[1], [2, 3]], None, [[]], [[None, 7]]], pa.list_(pa.list_(pa.int64()))),
        "deep": pa.array(
            [[[["x"]]], None, [[[], ["y", "z"]]], []], pa.list_(pa.list_(pa.list_(pa.string())))
        ),
        "ip": pa.array(
            [[["10.0.0.1"]], None, [["::1", "x"]], [[]]], pa.list_(pa.list_(pa.string()))
        ),
    }
)  # fmt: skip
ANSWERS = {
    "w:a": [0, 3], 'w:"a b"': [0], 'w:"b a"': [], "w:e": [2], "w:*": [0, 2, 3], "s:C": [1],
    's:"A x"': [0], "n:2": [0], "n:>=3": [0, 3], "n:7": [3], "deep:z": [2], "deep:*": [0, 2],
    "ip:10.0.0.0/8": [0], "z OR B": [0, 1, 2, 3], "NOT a": [1, 2],
}  # fmt: skip


@pytest.mark.parametrize("fast", ["", "n,ip"])
def test_lists_of_lists(config, tmp_path, fast):
    options = {
        **config,
        f"{PREFIX}indexing.fastfields": fast,
        f"{PREFIX}xref.query.minSplitsForXRef": 1,
    }
    table = it.Table.create(
        str(tmp_path / "t"), ROWS.schema, mapping={"s": "string", "ip": "ip"}, config=options
    )
    for start in (0, 2):
        table.append(ROWS.slice(start, 2))
    assert table.scan().sort_by("id").equals(ROWS.cast(table.schema))

    def check():
        for query, expected in ANSWERS.items():
            where = f"_indexall indexquery '{query}'"
            assert sorted(table.scan(where=where)["id"].to_pylist()) == expected, query
            assert table.count(where=where) == len(expected), query
            assert sorted(table.search(query, limit=None)["id"].to_pylist()) == expected, query

    check()
    table.index_crossreferences()
    check()
    assert all(one.passed for one in table.verify())
    table.merge_splits()
    check()
    table.delete(where="w indexquery 'e'")
    assert sorted(table.scan()["id"].to_pylist()) == [0, 1, 3]


def nested(kind, levels):
    """Rows whose column is nested so often, and how it is declared."""
    value, column_type = 1, pa.int64()
    for _ in range(levels):
        value = {"f": value} if kind == "struct" else [value]
        column_type = pa.struct([("f", column_type)]) if kind == "struct" else pa.list_(column_type)
    return pa.table({"id": [7], "v": pa.array([value], column_type)})


@pytest.mark.parametrize(("kind", "most"), [("list", 40), ("struct", 80)])
def test_what_no_reader_takes_is_refused_before_it_is_written(config, tmp_path, kind, most):
    rows = nested(kind, most)
    table = it.Table.create(str(tmp_path / "deepest"), data=rows, config=config)
    assert table.scan().to_pylist() == rows.to_pylist()
    assert table.count(where="id = 7") == 1
    with pytest.raises(SchemaError, match="'v' is nested deeper than 80 levels"):
        it.Table.create(str(tmp_path / "deeper"), data=nested(kind, most + 1), config=config)
    assert not (tmp_path / "deeper").exists()
