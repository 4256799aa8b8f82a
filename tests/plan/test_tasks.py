"""The splits of a plan: conditions on partition columns are decided for each, on whole columns."""

from __future__ import annotations

import itertools
import pickle
import random
from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from indextables.errors import CorruptLogError
from indextables.log.actions import Add, Metadata
from indextables.log.files import files_from_adds
from indextables.log.snapshot import Snapshot, empty_snapshot
from indextables.plan.scan import SplitTasks, split_tasks
from indextables.plan.statistics import lookup
from indextables.predicate import FALSE, NULL, TRUE, Predicate
from indextables.predicate.sql_text import parse_predicate
from indextables.schema import to_json

SCHEMA = pa.schema([("day", pa.string()), ("n", pa.int64()), ("body", pa.string())])
CASES = {
    "day = 'mon'": TRUE,
    "day <> 'mon'": FALSE,
    "n > 3": NULL,
    "NOT (n > 3)": NULL,
    "n IS NULL": TRUE,
    "n <=> 3": FALSE,
    "NOT (n > 3) OR day = 'mon'": TRUE,
    "day = 'mon' AND body = 'x'": "body = 'x'",
    "NOT (day = 'mon' AND body = 'x')": "NOT (body = 'x')",
    "n = 3 OR body = 'x'": "(NULL OR body = 'x')",
    "NOT (n = 3) OR body = 'x'": "(NULL OR body = 'x')",
    "day = 'tue' OR body indexquery 'x'": "body indexquery 'x'",
    "day indexquery 'mon'": "day indexquery 'mon'",
    "day IN ('mon', NULL)": TRUE,
    "day IN ('tue', NULL)": NULL,
}


def snapshot_of(*partitions: dict[str, str | None], rows: int | None = 5) -> Snapshot:
    adds = [
        Add(
            path=f"s{n}.split",
            partition_values=values,
            size=10 + n,
            modification_time=0,
            num_records=rows,
        )
        for n, values in enumerate(partitions)
    ]
    metadata = Metadata(id="id", schema_string=to_json(SCHEMA), partition_columns=("day", "n"))
    files = files_from_adds([(add, 0, 0) for add in adds])
    return replace(empty_snapshot("here"), metadata=metadata, base_files=files)


def tasks_of(snapshot: Snapshot, predicate: Predicate) -> SplitTasks:
    return split_tasks(snapshot, snapshot.entries, predicate)


@pytest.mark.parametrize("where", CASES)
def test_partition_columns_are_constants(where):
    expected = CASES[where]
    tasks = tasks_of(snapshot_of({"day": "mon", "n": None}), parse_predicate(where, SCHEMA))
    left = [] if expected in (FALSE, NULL) else [str(expected)]
    assert [str(task.predicate) for task in tasks] == left


def test_many_splits_are_decided_as_each_alone():
    days, numbers = ("mon", "tue", "wed", None), ("1", "2", "3", None)
    rng = random.Random(7)
    leaves = [
        "day = 'mon'",
        "n > 1",
        "body = 'x'",
        "body indexquery 'y'",
        "n IS NULL",
        "day > 'mon'",
    ]
    places = [{"day": d, "n": n} for d, n in itertools.product(days, numbers)]
    every, each = snapshot_of(*places * 3), [snapshot_of(place) for place in places]
    for _ in range(60):
        one, two, three = rng.choices(leaves, k=3)
        not_, other = rng.choices(["", "NOT "], k=2)
        first, second = rng.choices(["AND", "OR"], k=2)
        where = f"{not_}({one} {first} {other}({two} {second} {three}))"
        predicate = parse_predicate(where, SCHEMA)
        together = tasks_of(every, predicate)
        alone = [task for snapshot in each for task in tasks_of(snapshot, predicate)]
        assert [(t.partition, str(t.predicate)) for t in together] == [
            (t.partition, str(t.predicate)) for t in alone * 3
        ]


def test_tasks_are_a_sequence():
    snapshot = snapshot_of(*({"day": str(n), "n": "1"} for n in range(9_000)))
    tasks = tasks_of(snapshot, TRUE)
    paths = [f"s{n}.split" for n in range(9_000)]
    assert [task.path for task in tasks] == paths
    assert tasks[8_999].path == tasks[-1].path == "s8999.split"
    assert [task.path for task in tasks[5_000:3:-700]] == paths[5_000:3:-700]
    assert [task.partition["day"].as_py() for task in tasks[4_095:4_098]] == [
        "4095",
        "4096",
        "4097",
    ]
    assert tasks.num_records == 45_000
    assert tasks.total_bytes == sum(range(10, 9_010))
    assert pickle.loads(pickle.dumps(tasks[1])) == tasks[1]
    with pytest.raises(IndexError):
        tasks[9_000]


def test_of_empty_and_uncounted_splits():
    assert len(tasks_of(snapshot_of({"day": "mon", "n": "1"}, rows=0), TRUE)) == 0
    uncounted = tasks_of(snapshot_of({"day": "mon", "n": "1"}, rows=None), TRUE)
    assert len(uncounted) == 1
    assert uncounted.num_records is None
    assert tasks_of(snapshot_of(), TRUE).used == ()


def test_a_partition_value_that_cannot_be_read_is_named():
    tasks = tasks_of(snapshot_of({"day": "mon", "n": "one"}), TRUE)
    with pytest.raises(CorruptLogError, match=r"s0\.split.*'one'"):
        list(tasks)


def test_a_key_of_maps_is_looked_up_as_arrow_does():
    rng = random.Random(3)
    kind = pa.map_(pa.string(), pa.string())
    for _ in range(80):
        maps = [
            None
            if rng.random() < 0.2
            else [(rng.choice("abc"), rng.choice(["", "x", None])) for _ in range(rng.randrange(4))]
            for _ in range(rng.randrange(1, 20))
        ]
        if rng.random() < 0.3:
            maps = [[("a", "1"), ("b", "2")]] * 9
        column = pa.chunked_array([pa.array(maps, kind), pa.array(maps[::-1], kind)], kind)
        at = rng.randrange(len(maps))
        column = column.slice(at, rng.randrange(2 * len(maps)))
        expected = pc.map_lookup(column, pa.scalar("a"), "first").to_pylist()
        assert lookup(pa.table({"m": column}), "m", "a").to_pylist() == expected
