"""Many small splits are searched as one index, and find what they find one by one."""

from __future__ import annotations

import random
from pathlib import Path

import pyarrow as pa
import pytest

from indextables import Table
from indextables.plan import execute, scan
from indextables.predicate import TRUE
from indextables.split import linked
from indextables.split.format import index

WORDS = ["spark", "sparks", "fox", "dog", "data", "index", "machine", "learning"]
SCHEMA = pa.schema(
    [("id", pa.int64()), ("body", pa.string()), ("kind", pa.string()), ("n", pa.int32())]
)
CONDITIONS = [
    "body indexquery 'fox'",
    "body indexquery 'absent'",
    "body indexquery '\"machine learning\" OR spark~1'",
    "_indexall indexquery 'fox AND n:[2 TO 5]'",
    "body indexquery 'fox' AND n > 4",
    "body indexquery 'fox' OR kind = 'a'",
    "NOT body indexquery 'fox'",
    "body indexquery 'spa*' AND body indexquery '-dog +data'",
    "kind = 'a' AND (body indexquery 'fox' OR n = 3)",
]
SPLITS, ROWS = 14, 9


@pytest.fixture(scope="module", params=[(), ("kind",)], ids=["plain", "partitioned"])
def table(request, tmp_path_factory: pytest.TempPathFactory) -> Table:
    place = tmp_path_factory.mktemp("linked")
    rng = random.Random(5)
    made = Table.create(
        place / "t",
        SCHEMA,
        partition_by=request.param,
        config={"spark.indextables.cache.disk.path": str(place / "cache")},
    )
    for split in range(SPLITS):
        made.append(
            pa.table(
                {
                    "id": range(split * ROWS, split * ROWS + ROWS),
                    "body": [
                        " ".join(rng.choices(WORDS, k=rng.randint(0, 6))) for _ in range(ROWS)
                    ],
                    "kind": [["a", "b", None][split % 3]] * ROWS,
                    "n": pa.array([rng.randint(0, 9) for _ in range(ROWS)], pa.int32()),
                },
                SCHEMA,
            )
        )
    return made


def _answers(table: Table) -> list[object]:
    found: list[object] = []
    for where in CONDITIONS:
        found += [table.scan(where=where).to_pylist(), table.count(where=where)]
        found.append(table.scan(where=where, columns=["id"], limit=3).num_rows)
    return found


def test_linked_splits_find_what_each_of_them_finds(table: Table, monkeypatch):
    opened = []
    link = linked.open_index
    monkeypatch.setattr(
        linked,
        "open_index",
        lambda folders, *a, **o: opened.append(len(folders)) or link(folders, *a, **o),
    )
    together = _answers(table)
    assert max(opened) >= 8
    assert len(opened) <= 2 + 3  # for every split, and for those of each partition
    monkeypatch.setattr(execute, "_LINKED_FROM", 1_000)
    assert _answers(table) == together
    monkeypatch.setattr(execute, "_LINKED_FROM", 2)
    monkeypatch.setattr(execute, "_LINKED_SHARE", 1 << 30)  # groups of two
    assert _answers(table) == together


@pytest.mark.parametrize("most", [0, 1 << 20], ids=["alone", "linked"])
def test_splits_with_many_matches_are_asked_alone(table: Table, monkeypatch, most):
    together = _answers(table)
    collected: list[int] = []
    by_split = linked.LinkedSplits._by_split
    monkeypatch.setattr(
        linked.LinkedSplits,
        "_by_split",
        lambda self, hits: collected.append(len(hits)) or by_split(self, hits),
    )
    monkeypatch.setattr(index, "_FEW_HITS", 8)
    monkeypatch.setattr(execute, "_MANY_MATCHES", most)
    assert _answers(table) == together
    assert (max(collected, default=0) >= 8) == bool(most)


@pytest.mark.parametrize("most", [0, 20, 1 << 20])
def test_one_word_is_counted_by_the_dictionary(table: Table, monkeypatch, most):
    """The dictionary says of one word what the postings say, and nothing of anything else."""
    monkeypatch.setattr(execute, "_MANY_MATCHES", most)
    texts = [*WORDS, "absent", "FOX", "spark fox", '"fox dog"', "fo*", "fox^2", "n:4", "kind:a"]
    wheres = [f"_indexall indexquery 'body:{text}'" for text in texts[:-2]]
    wheres += [f"_indexall indexquery '{text}'" for text in ("kind:a", "n:4", "kind:a OR body:fox")]

    def answers() -> list[object]:
        return [(table.count(where=w), table.scan(where=w).sort_by("id")) for w in wheres]

    counted = []
    ask = linked.LinkedSplits._counted
    monkeypatch.setattr(
        linked.LinkedSplits, "_counted", lambda *a: counted.append(ask(*a)) or counted[-1]
    )
    found = answers()
    assert {0, None} < set(counted) and max(filter(None, counted)) > 20
    monkeypatch.setattr(linked.LinkedSplits, "_counted", lambda *_: None)
    assert answers() == found


@pytest.mark.parametrize("vectors", [True, False])
def test_tasks_are_made_of_splits_that_have_rows(tmp_path: Path, monkeypatch, vectors):
    made = Table.create(
        tmp_path / "t",
        pa.schema([("id", pa.int64()), ("body", pa.string())]),
        config={
            "spark.indextables.cache.disk.path": str(tmp_path / "cache"),
            "spark.indextables.deletionVectors.mode": "vector" if vectors else "rewrite",
        },
    )
    for split in range(12):
        made.append(pa.table({"id": [split, -1], "body": [f"fox w{split}", "fox"]}))
    made.delete(where="id = 7")
    with_vector = scan.split_tasks(made.view.snapshot, made.view.snapshot.entries, TRUE).has_vectors
    assert with_vector == vectors
    tasks: list[str] = []
    make = scan.SplitTask
    monkeypatch.setattr(scan, "SplitTask", lambda *a: tasks.append(a[0]) or make(*a))
    for where, ids in (("w3 OR w5", [3, 5]), ("w9", [9]), ("w7", []), ("nothing", [])):
        rows = made.scan(where=f"body indexquery '{where}'")
        assert made.count(where=f"body indexquery '{where}'") == len(ids)
        tasks.clear()
        assert made.scan(where=f"body indexquery '{where}'") == rows
        assert rows["id"].to_pylist() == ids
        assert len(tasks) == len(ids) + (vectors and where == "w7")  # whose row is deleted
    assert made.count(where="body indexquery 'fox'") == 23
    assert made.scan(where="body indexquery 'w3' AND id > 2")["id"].to_pylist() == [3]


@pytest.mark.parametrize("most", [0, 40, 1 << 20], ids=["none", "few", "all"])
def test_numbers_of_documents_that_are_kept_are_those_that_they_carry(
    table: Table, monkeypatch, most
):
    queries = ["fox", "dog data", "spark fox", "kind:a", "body:learning", "-fox *"]

    def answers() -> list[object]:
        return [table.search(query, limit=k, columns=["id"]) for query in queries for k in (1, 9)]

    found = answers()
    monkeypatch.setattr(index, "_MANY_SEGMENTS", 2)
    monkeypatch.setattr(index, "_KEPT_NUMBERS", most)
    read: list[int] = []
    ask = index.IndexSearcher._read_numbers
    monkeypatch.setattr(
        index.IndexSearcher, "_read_numbers", lambda s, some: read.append(len(some)) or ask(s, some)
    )
    assert answers() == found
    before = len(read)
    assert answers() == found
    assert (len(read) == before) == (most == 1 << 20)


def test_a_damaged_split_is_scanned_and_the_others_answer(tmp_path: Path, monkeypatch):
    made = Table.create(
        tmp_path / "t",
        pa.schema([("id", pa.int64()), ("body", pa.string())]),
        config={"spark.indextables.cache.disk.path": str(tmp_path / "cache")},
    )
    for split in range(9):
        made.append(pa.table({"id": [split], "body": [f"fox w{split}"]}))
    files = sorted((tmp_path / "t").rglob("*.split"))
    info = made_sections(files[3])
    with files[3].open("r+b") as file:  # bytes of its postings
        file.seek(info)
        file.write(b"\xff\xff\xff\xff")
    opened = []
    link = linked.open_index
    monkeypatch.setattr(
        linked,
        "open_index",
        lambda folders, *a, **o: opened.append(len(folders)) or link(folders, *a, **o),
    )
    for word in ("fox", "w3 OR w5"):
        where = f"body indexquery '{word}'"
        with pytest.warns(UserWarning, match="scanned instead"):
            found = made.scan(where=where)["id"].to_pylist()
        assert sorted(found) == (list(range(9)) if word == "fox" else [3, 5])
        with pytest.warns(UserWarning, match="scanned instead"):
            assert made.count(where=where) == len(found)
    assert opened == [9, 8]  # the damaged one is not tried again


def made_sections(file: Path) -> int:
    """Where the postings of a split begin."""
    from indextables.split.open_split import SplitFile
    from indextables.storage.local import LocalStore

    split = SplitFile(LocalStore(str(file.parent)), file.name, file.stat().st_size)
    return next(s.offset for s in split.info.index_sections() if s.name.endswith(".idx"))


def test_many_splits_take_few_threads(tmp_path: Path):
    import threading

    made = Table.create(
        tmp_path / "t",
        pa.schema([("body", pa.string())]),
        config={"spark.indextables.cache.disk.path": str(tmp_path / "cache")},
    )
    for split in range(12):
        made.append(pa.table({"body": [f"w{split}"]}))
    made.count()
    others = set(threading.enumerate())  # of tests before this one
    before = len(list(Path("/proc/self/task").iterdir())) if Path("/proc/self/task").exists() else 0
    for where in ("body indexquery 'w3'", "body indexquery 'w4'"):
        assert made.scan(where=where).num_rows == made.count(where=where) == 1
    new = set(threading.enumerate()) - others
    names = {thread.name.rpartition("_")[0] for thread in new}
    assert not any(name.startswith("ThreadPoolExecutor") for name in names)
    if before:
        after = len(list(Path("/proc/self/task").iterdir()))
        assert after - before < 40  # bounded pools and one index, whatever the number of splits


def test_a_column_that_became_a_fast_field_is_searched_in_older_splits_too(tmp_path: Path):
    config = {"spark.indextables.cache.disk.path": str(tmp_path / "cache")}
    schema = pa.schema([("id", pa.int64()), ("body", pa.string()), ("n", pa.int32())])
    made = Table.create(tmp_path / "t", schema, config=config)
    for split in range(10):
        if split == 5:
            fast = config | {"spark.indextables.indexing.fastfields": "n"}
            made = Table.open(tmp_path / "t", config=fast)
        made.append(pa.table({"id": [split], "body": ["fox"], "n": [split % 2]}, schema))
    odd = [1, 3, 5, 7, 9]
    assert sorted(made.search("fox AND n:1")["id"].to_pylist()) == odd
    where = "_indexall indexquery 'fox AND n:1'"
    assert sorted(made.scan(where=where)["id"].to_pylist()) == odd
    assert made.count(where=where) == 5


def test_an_open_index_of_all_splits_counts_before_cross_references_do(tmp_path: Path, monkeypatch):
    config = {
        "spark.indextables.cache.disk.path": str(tmp_path / "cache"),
        "spark.indextables.xref.query.minSplitsForXRef": 2,
        "spark.indextables.deletionVectors.mode": "vector",
    }
    made = Table.create(tmp_path / "t", pa.schema([("body", pa.string())]), config=config)
    for split in range(12):
        made.append(pa.table({"body": [f"w{split} fox", f"w{split % 3} dog"]}))
    made.index_crossreferences()
    asked = []
    route = execute.route_files
    monkeypatch.setattr(execute, "route_files", lambda *a: asked.append(a[1]) or route(*a))
    counts = {"w3": 1, "w1": 5, "w2 AND dog": 4, '"w1 fox"': 1, "absent": 0, "NOT w1": 19}
    conditions = {f"body indexquery '{query}'": count for query, count in counts.items()}
    for where, count in conditions.items():
        assert made.count(where=where) == count
    assert len(asked) == len(conditions), "no index of all splits was open"
    made.search("fox")
    for where, count in conditions.items():
        assert made.count(where=where) == count
    assert len(asked) == len(conditions), "it was open"
    # Rows that are only marked as deleted are in the index still.
    made.delete(where="body indexquery 'w1 AND dog'")
    made.search("fox")
    assert made.count(where="body indexquery 'w1'") == 1
    assert made.count(where="body indexquery 'w2'") == 5
