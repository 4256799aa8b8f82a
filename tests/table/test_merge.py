"""Merging changes nothing that anybody sees: rows, searches, scores, older versions."""

from __future__ import annotations

import tempfile
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from racing import race_processes, race_threads
from random_tables import QUERIES, conditions_with_search, shown, tables
from table_processes import (
    SCHEMA,
    append_many,
    delete_many,
    merge_many,
    overwrite_many,
    replace_many,
    rows,
    serial,
)

from examples import examples
from indextables import Table
from indextables.errors import QueryError


def best(table, text):
    """The rows that a search finds with their scores, or what is wrong with it."""
    try:
        found = table.search(text, limit=100)
    except QueryError as error:
        return str(error)
    return found["rid"].to_pylist(), found["_score"].to_pylist()


@examples(20, 3_000)
@given(data=st.data())
def test_nothing_changes_but_the_files(data, config):
    drawn = data.draw(tables())
    with tempfile.TemporaryDirectory() as folder:
        table = drawn.create(folder, config)
        mapping = table.view.mapping
        wheres = data.draw(
            st.lists(conditions_with_search(table.schema, mapping).map(str), max_size=3)
        )
        texts = data.draw(st.lists(QUERIES, max_size=3))
        before = Counter(p for p in partitions(table))

        def answers():
            return (
                shown(table.scan().sort_by("rid")),
                [sorted(table.scan(where=w)["rid"].to_pylist()) for w in wheres],
                [table.count(where=w) for w in wheres],
                [best(table, text) for text in texts],
            )

        expected = answers()
        limit = data.draw(st.sampled_from([2, 3, 1000]))
        merged = table.merge_splits(max_source_splits=limit)
        assert merged.status == ("success" if merged.files_added else "no_action")
        assert merged.files_removed - merged.files_added == sum(before.values()) - len(
            list(partitions(table))
        )
        assert answers() == expected
        table.merge_splits()
        assert max(Counter(partitions(table)).values(), default=1) == 1
        assert answers() == expected


def partitions(table):
    for values in table.snapshot().files["partitionValues"].to_pylist():
        yield tuple(sorted(values))


def test_scores_do_not_change_when_some_splits_are_merged(tmp_path, config):
    schema = pa.schema([("rid", pa.int64()), ("p", pa.int64()), ("text", pa.string())])
    table = Table.create(tmp_path, schema, partition_by=["p"], config=config)
    words = ["red", "fox", "lazy", "dog", "blue"]
    for turn in range(8):
        ids = list(range(turn * 10, turn * 10 + 10))
        texts = [" ".join(words[(i * k) % 5] for k in range(1, 2 + i % 7)) for i in ids]
        table.append(pa.table({"rid": ids, "p": [turn % 2] * 10, "text": texts}, schema))
    queries = ["red", "red fox", '"red fox"', "+lazy -dog", "fo* OR blue^2", "rid:[5 TO 50] dog"]
    expected = [best(table, q) for q in queries]
    for where in ("p = 1", "p = 0"):
        assert table.merge_splits(where=where).files_removed == 4
        assert [best(table, q) for q in queries] == expected


def test_snippets_and_deletes_after_a_merge(tmp_path, config):
    table = Table.create(tmp_path, SCHEMA, config=config)
    for i in range(5):
        table.append(rows([i], 0))
    table.merge_splits()
    found = table.search("word3", fields=["text"], snippets=["text"])
    assert found["_snippet_text"].to_pylist() == ["<b>word3</b>"]
    table.delete(where="text indexquery 'word3'")
    assert sorted(table.scan()["id"].to_pylist()) == [0, 1, 2, 4]
    table.append(rows([7], 0))
    assert table.merge_splits().files_removed == 2
    assert sorted(table.scan(where="text indexquery 'word*'")["id"].to_pylist()) == [0, 1, 2, 4, 7]


def test_a_mapping_that_changed_between_writes(tmp_path, config):
    table = Table.create(tmp_path, SCHEMA, config=config)
    table.append(rows([1, 2], 0))
    fast = {"spark.indextables.indexing.fastfields": "id"}
    table.append(rows([3, 4], 0), config=fast)
    table.append(rows([5, 6], 1))
    assert table.merge_splits().files_removed == 3
    for i in range(1, 7):
        assert table.scan(where=f"_indexall indexquery 'id:{i}'")["id"].to_pylist() == [i]


# --- at the same time --------------------------------------------------------------------------


def run(task, uri, config, start, times):
    return task(uri, config, start, times)


MIXES = {
    "two merges": [append_many, merge_many, merge_many],
    "a merge against an overwrite": [append_many, merge_many, overwrite_many],
    "a delete against a merge": [append_many, merge_many, delete_many],
    "all": [append_many, merge_many, merge_many, replace_many, delete_many],
}


@pytest.mark.parametrize("mix", MIXES)
@pytest.mark.parametrize("race", [race_threads, race_processes])
def test_no_row_is_lost_or_doubled(race, mix, tmp_path, config):
    uri = str(tmp_path / "table")
    table = Table.create(uri, SCHEMA, partition_by=["day"], config=config)
    events = [("append", table.append(rows([0, 10, 20 + i], 2)).version, [0, 10, 20 + i], 2)
              for i in range(1)]  # fmt: skip
    work = [
        (task, uri, config, 1_000 * number, 3 if task is overwrite_many else 6)
        for number, task in enumerate(MIXES[mix], 1)
    ]
    events += [event for done in race(run, work) for event in done]
    changes = [event for event in events if event[0] != "merge"]
    table = Table.open(uri, config=config)
    found = table.scan(columns=["id", "day"]).to_pylist()
    assert max(Counter(r["id"] for r in found).values(), default=1) == 1, "a row is doubled"
    assert {r["id"]: r["day"] for r in found} == serial(changes)
    assert table.count() == len(found)
    for version in sorted({event[1] for event in changes})[::4]:
        past = Table.open(uri, version=version, config=config).scan(columns=["id", "day"])
        known = serial([event for event in changes if event[1] <= version])
        assert sorted((r["id"], r["day"]) for r in past.to_pylist()) == sorted(known.items())
    # What a merge wrote and could not commit is gone.
    named = set()
    for version in range(table.version + 1):
        named |= set(table.snapshot(version=version).files["path"].to_pylist())
    root = Path(uri)
    assert {str(p.relative_to(root)) for p in root.rglob("day=*/**/*.split")} <= named
    table.merge_splits()
    assert {r["id"]: r["day"] for r in table.scan().to_pylist()} == serial(changes)
