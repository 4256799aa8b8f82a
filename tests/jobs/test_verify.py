"""VERIFY finds what is wrong with a table, wherever it is wrong."""

from __future__ import annotations

import shutil
from pathlib import Path
from types import SimpleNamespace

import pyarrow as pa
import pytest

from indextables import Table, write_table
from indextables.jobs.verify import _wrong_xref
from indextables.log.actions import Add
from indextables.log.files import adds_from_files
from indextables.log.transaction import Operation, Transaction
from indextables.runner import LocalRunner
from indextables.split.format.rows import RowReader
from indextables.split.write import indexer, writer
from indextables.storage import open_store

SCHEMA = pa.schema({"id": pa.int64(), "day": pa.string(), "body": pa.string(), "x": pa.float64()})
NAMES = ["log", "files", "checksums", "index", "rows"]


def rows(first: int, count: int = 300, day: str = "a") -> pa.Table:
    ids = range(first, first + count)
    return pa.table(
        {
            "id": ids,
            "day": [day] * count,
            "body": [None if i % 7 == 0 else f'word{i} "quoted" \\ common' for i in ids],
            "x": [float("nan") if i % 5 == 0 else i / 2 for i in ids],
        },
        schema=SCHEMA,
    )


@pytest.fixture(scope="module")
def original(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("original") / "t"
    table = Table.create(folder, SCHEMA, partition_by=["day"], mapping={"day": "string"})
    table.append(rows(0))
    table.append(rows(300, day="b"))
    table.checkpoint()
    table.delete(where="id = 5")
    return folder


@pytest.fixture
def folder(original, tmp_path) -> Path:
    return shutil.copytree(original, tmp_path / "t")


@pytest.fixture
def settings(tmp_path):
    return {"spark.indextables.cache.disk.path": str(tmp_path / "cache")}


def problems(folder, settings, runner=None) -> dict[str, list[str]]:
    checks = Table.open(folder, config=settings).verify(runner=runner)
    assert [check.name for check in checks] == NAMES
    return {check.name: check.problems for check in checks if check.problems}


def test_threads_do_not_change_what_the_process_does_with_warnings(folder, settings, monkeypatch):
    changed = []
    monkeypatch.setattr("warnings.simplefilter", lambda *given, **_: changed.append(given))
    assert problems(folder, settings) == {}
    assert not changed


def test_a_sound_table(folder, settings):
    checks = Table.open(folder, config=settings).verify(runner=LocalRunner(1))
    assert [(c.name, c.checked, c.problems) for c in checks] == [
        ("log", 5, []), ("files", 2, []), ("checksums", 2, []), ("index", 2, []), ("rows", 2, []),
    ]  # fmt: skip
    assert all(check.passed and check.message == "" for check in checks)


def live(folder) -> list[Path]:
    return [folder / path for path in Table.open(folder).snapshot().files["path"].to_pylist()]


def flip(file: Path, at: int) -> None:
    data = bytearray(file.read_bytes())
    data[at] ^= 0xFF
    file.write_bytes(data)


def test_a_missing_and_a_shortened_file(folder, settings):
    first, second = live(folder)
    first.unlink()
    second.write_bytes(second.read_bytes()[:-1])
    found = problems(folder, settings)
    assert list(found) == ["files"]
    assert "is missing" in found["files"][0]
    assert "bytes instead of" in found["files"][1]


@pytest.mark.parametrize("part", ["rows", "index", "footer"])
def test_a_flipped_byte(part, folder, settings):
    from indextables.split.open_split import SplitFile
    from indextables.storage import open_store

    file = live(folder)[0]
    split = SplitFile(open_store(folder), str(file.relative_to(folder)), file.stat().st_size)
    section = next(s for s in split.info.index_sections() if s.name.endswith(".idx"))
    chunk = split.footer.parquet.row_group(0).column(0)
    place = {"rows": chunk.data_page_offset + 60, "index": section.offset + section.length // 2,
             "footer": file.stat().st_size - 100}[part]  # fmt: skip
    flip(file, place)
    found = problems(folder, settings)
    assert list(found) == ["checksums"]
    assert str(file.relative_to(folder)) in found["checksums"][0]


def test_what_this_process_remembers_does_not_count(folder, settings):
    table = Table.open(folder, config=settings)
    assert table.count(where="body indexquery 'word7*'") > 0
    flip(live(folder)[0], live(folder)[0].stat().st_size - 100)
    assert [c.name for c in table.verify() if not c.passed] == ["checksums"]


def replaced(folder, **changes) -> None:
    """Let the log say something else about the first split."""
    from dataclasses import replace

    table = Table.open(folder)
    old = adds_from_files(table.snapshot().entries)[0]
    copy = folder / "splits" / "copy.split"
    copy.parent.mkdir(exist_ok=True)
    shutil.copy(folder / old.path, copy)
    new: Add = replace(old, path="splits/copy.split", **changes)
    table.log.commit(Transaction(operation=Operation.APPEND, actions=[new]))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"num_records": 7}, "rows, the log says 7"),
        ({"min_values": {"id": "100000"}}, "'id' has a value below the log's minimum"),
        ({"max_values": {"x": "3.5"}}, "'x' has a value above the log's maximum"),
        ({"max_values": {"body": "word3"}}, "'body' has a value above the log's maximum"),
        ({"stats": '{"nullCount": {"body": 1}}'}, "nulls, the log says 1"),
        ({"partition_values": {"day": "z"}}, "the log says another"),
    ],
)
def test_the_log_against_the_rows(changes, message, folder, settings):
    replaced(folder, **changes)
    found = problems(folder, settings)
    assert list(found) == ["rows"]
    assert any(message in problem for problem in found["rows"])


def test_an_index_of_other_rows(folder, settings, monkeypatch):
    """Rows of one split and the index of another, all checksums right."""
    from indextables.split.write.indexer import Indexer

    real = Indexer.add
    other = rows(9000).select(["id", "body", "x"]).combine_chunks().to_batches()[0]
    monkeypatch.setattr(
        Indexer,
        "add",
        lambda self, batch, hashes, _: real(self, other.slice(0, batch.num_rows), hashes),
    )
    Table.open(folder, config=settings).append(rows(600))
    monkeypatch.undo()
    found = problems(folder, settings)
    assert list(found) == ["index"]
    assert "finds 0 rows in its index" in found["index"][0]


def test_a_damaged_version_and_a_checkpoint_that_disagrees(folder, settings, monkeypatch):
    from dataclasses import replace

    from indextables.jobs import verify

    real = verify.load_checkpoint

    def short(*args, **kwargs):
        held = real(*args, **kwargs)
        return replace(held, base_files=held.entries.slice(1), changes={})

    monkeypatch.setattr(verify, "load_checkpoint", short)
    found = problems(folder, settings)
    assert list(found) == ["log"]
    assert "names other splits" in found["log"][0]
    monkeypatch.undo()
    flip(folder / "_transaction_log" / f"{1:020d}.json", 40)
    found = problems(folder, settings)
    assert list(found) == ["log"]
    assert f"{1:020d}.json" in found["log"][0]


def test_many_problems_are_counted_and_few_are_shown():
    from indextables.jobs.verify import Check

    check = Check("files", 10, [f"p{n}" for n in range(5)])
    assert check.message == "p0; p1; p2; and 2 more"


def test_every_flipped_byte_of_a_cross_reference_is_found(folder, settings):
    table = Table.open(folder, config=settings)
    table.index_crossreferences()
    (path,) = [x.path for x in table.snapshot().xrefs.values()]
    file = folder / path
    assert problems(folder, settings) == {}
    sound = file.read_bytes()
    store, size = open_store(folder), len(sound)
    for at in [*range(4, size, max(1, size // 60)), 4, size - 5]:
        flip(file, at)
        assert list(_wrong_xref(store, SimpleNamespace(path=path, size=size))), at
        file.write_bytes(sound)
    flip(file, size // 2)
    found = problems(folder, settings)
    assert list(found) == ["checksums"]
    assert path in found["checksums"][0]


@pytest.mark.parametrize("wrong", ["section", "levels"])
def test_hashes_of_other_rows_are_found(wrong, tmp_path, settings, monkeypatch):
    """They would order rows of equal score otherwise than the hashes of other splits do."""
    with monkeypatch.context() as patch:
        if wrong == "section":
            hashes = writer.row_hashes
            patch.setattr(writer, "row_hashes", lambda *given: hashes(*given) ^ 1)
        else:
            patch.setattr(indexer, "levels_of", lambda _: range(3, 4))
        schema = pa.schema({"day": pa.string(), "body": pa.string()})
        table = Table.create(tmp_path / "w", schema, partition_by=["day"], config=settings)
        table.append(pa.table({"day": ["a"] * 99, "body": [f"word{i}" for i in range(99)]}, schema))
    found = problems(tmp_path / "w", settings)
    assert list(found) == ["index"] and "hash" in found["index"][0]


def test_a_wide_split_is_not_opened_for_each_column(monkeypatch):
    """To open one takes as long as it has columns: verifying took the square of their number."""
    wide = pa.table({f"c{number}": [f"red {number}", "fox"] for number in range(64)})
    table = write_table("memory://wide-verify", wide, mode="overwrite")
    opened = []
    read_groups = RowReader.read_groups

    def counted(self, groups, columns):
        opened.append(columns)
        return read_groups(self, groups, columns)

    monkeypatch.setattr(RowReader, "read_groups", counted)
    assert all(check.passed for check in table.verify())
    assert 0 < len(opened) < 32
