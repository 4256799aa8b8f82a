"""Whatever files, declarations, updates, rewrites and joins: the answer is Spark's own.

One random history of an index at a time. After every step all its joins are compared with the join
of the rows that its files hold, as this test knows them.
"""

from __future__ import annotations

import itertools
import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

SCHEMA = pa.schema(
    [
        ("a", pa.int32()),
        ("b", pa.string()),
        ("c", pa.float64()),
        ("items", pa.list_(pa.struct([("v", pa.int32())]))),
        ("t", pa.int64()),
    ]
)
DDL = "a INT, b STRING, c DOUBLE, items ARRAY<STRUCT<v: INT>>, t BIGINT"
NAMES = ["plain", "with space", "hash#tag", "per%41cent", "ünïcode", "bra[c]ket", "q?mark", "c,o=m"]
HOW = ["inner", "left", "right", "full", "left_semi", "left_anti"]
KINDS = ["add_index", "add_bloom_index", "add_range_index"]
TEMPORAL = 0.25
"""How many of the histories have a temporal index, which shows the newest row of each value."""
STEPS = 3


class History:
    """An index, its files, and what is in them."""

    def __init__(self, spark: Any, folder: Path, seed: int) -> None:
        from indextables.ariadne import Index

        self.spark = spark
        self.random = random.Random(seed)
        self.folder = folder
        folder.mkdir()
        self.files: dict[Path, list[dict[str, Any]]] = {}
        self.index = Index(f"any{seed}", DDL)
        self.undeclared = ["a", "b", "c"]
        self.aliases: list[str] = []
        self.clock = itertools.count()
        self.temporal = self.random.random() < TEMPORAL
        for name in self.random.sample(NAMES, 4):
            self.write(folder / f"{name}.parquet")
        self.declare()

    def rows(self) -> list[dict[str, Any]]:
        r = self.random
        empty = r.random() < 0.15
        all_null = r.random() < 0.2
        low = r.randrange(6)

        def value(make: Any) -> Any:
            return None if all_null or r.random() < 0.2 else make()

        return [
            {
                "a": value(lambda: low + r.randrange(3)),
                "b": value(lambda: r.choice(["", "x", "yy", "Z"])),
                "c": value(lambda: r.choice([0.0, -0.0, 1.5, float("nan"), float(low)])),
                "items": value(
                    lambda: [{"v": value(lambda: r.randrange(3))} for _ in range(r.randrange(3))]
                ),
                "t": next(self.clock),
            }
            for _ in range(0 if empty else r.randrange(1, 5))
        ]

    def write(self, path: Path) -> None:
        rows = self.rows()
        if path in self.files and rows == self.files[path]:
            rows = [*rows, {**dict.fromkeys(SCHEMA.names), "t": next(self.clock)}]
        pq.write_table(pa.Table.from_pylist(rows, SCHEMA), path, row_group_size=2)
        self.files[path] = rows
        self.index.add_file(str(path))

    def declare(self) -> None:
        if self.temporal and "a" in self.undeclared:
            self.index.add_temporal_index(self.undeclared.pop(0), "t")
        elif self.undeclared:
            getattr(self.index, self.random.choice(KINDS))(self.undeclared.pop(0))
        elif not self.aliases:
            self.index.add_exploded_field_index("items", "v", "v")
            self.aliases.append("v")

    def step(self) -> None:
        """Change something; perhaps tell the index."""
        r = self.random
        what = r.choice(["write", "rewrite", "delete", "declare", "declare"])
        known = sorted(self.files)
        if what == "write":
            self.write(self.folder / f"{r.choice(NAMES)}.parquet")
        elif what == "rewrite" and known:
            self.write(r.choice(known))
        elif what == "delete" and len(known) > 1:
            path = r.choice(known)
            self.index.delete_files(str(path))
            del self.files[path]
        else:
            self.declare()
        if r.random() < 0.6:
            self.index.update()

    def whole(self) -> Any:
        rows = [row for found in self.files.values() for row in found]
        if self.temporal:
            newest = {row["a"]: row["t"] for row in sorted(rows, key=lambda row: row["t"])}
            rows = [row for row in rows if row["a"] is None or newest[row["a"]] == row["t"]]
        return self.spark.createDataFrame(pa.Table.from_pylist(rows, SCHEMA))

    def keys(self) -> Any:
        r = self.random
        rows = [
            {
                "a": r.choice([None, *range(9)]),
                "b": r.choice([None, "", "x", "W"]),
                "c": r.choice([None, 0.0, float("nan"), 3.0]),
                "v": r.choice([None, 0, 1, 7]),
                "k": number,
            }
            for number in range(r.randrange(4))
        ]
        kinds = [("a", pa.int64()), ("b", pa.string()), ("c", pa.float64()), ("v", pa.int32())]
        table = pa.Table.from_pylist(rows, pa.schema([*kinds, ("k", pa.int64())]))
        return self.spark.createDataFrame(table)


def exploded(whole: Any) -> Any:
    from pyspark.sql import functions as f

    return whole.withColumn("v", f.explode_outer(f.array_distinct(f.col("items.v"))))


def rows(frame: Any) -> list[str]:
    return sorted(map(repr, frame.collect()))


def check(history: History, joins: int) -> None:
    """Some of the joins of every kind, each way."""
    from indextables.ariadne import join

    r = history.random
    whole, keys = history.whole().cache(), history.keys().cache()
    declared = sorted(history.index.indexes - {"v"})
    for how, left in r.sample(list(itertools.product(HOW, (True, False))), joins):
        using = r.sample(declared, r.randrange(1, len(declared) + 1))
        ours = whole
        if history.aliases and r.random() < 0.4:
            using, ours = [*using, "v"], exploded(whole)
        other = keys.select(*using, "k")
        if left:
            found, expected = history.index.join(other, using, how), ours.join(other, using, how)
        else:
            found, expected = join(other, history.index, using, how), other.join(ours, using, how)
        assert found.columns == expected.columns
        assert rows(found) == rows(expected), (how, left, using)
    whole.unpersist()
    keys.unpersist()


def play(spark: Any, folder: Path, seed: int, *, joins: int) -> None:
    history = History(spark, folder / str(seed), seed)
    check(history, joins)
    for _ in range(STEPS):
        history.step()
    check(history, joins)
    history.index.update()
    check(history, joins)
    assert not history.index.data().pending


@pytest.mark.parametrize("seed", range(2))
def test_joins_are_sparks_joins(spark, storage, tmp_path, seed):
    play(spark, tmp_path, seed, joins=4)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(2, 40))
def test_joins_are_sparks_joins_for_long(spark, storage, tmp_path, seed):
    play(spark, tmp_path, seed, joins=2 * len(HOW))
