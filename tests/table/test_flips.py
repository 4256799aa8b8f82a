"""One changed bit in the rows of a split: the right answer or a named error, whatever is asked."""

from __future__ import annotations

import random
import shutil
import warnings
from pathlib import Path

import pyarrow as pa
import pytest

from indextables import Table
from indextables.errors import IndexTablesError
from indextables.split.format.container import SplitInfo
from indextables.split.format.page_headers import FIRST_PAGE, walk_pages
from indextables.split.open_split import SplitFile
from indextables.split.write import writer as writer_module
from indextables.storage import open_store
from tests.support.row_groups import limit_row_groups

ROWS = 2_000
TABLE = pa.table(
    {
        "id": pa.array(range(ROWS), pa.int64()),
        "level": [None if i % 11 == 0 else ("INFO", "WARN", "ERROR")[i % 3] for i in range(ROWS)],
        "name": [f"name {i} w{i % 97}" for i in range(ROWS)],
        "x": [float("nan") if i % 13 == 0 else i % 50 / 2 for i in range(ROWS)],
        "tags": [[f"t{i % 5}", None] if i % 4 else None for i in range(ROWS)],
        "s": pa.array([{"a": i // 10, "b": f"b{i % 3}"} for i in range(ROWS)]),
    }
)


def split_of(folder: Path) -> SplitFile:
    (path,) = Table.open(folder).snapshot().files["path"].to_pylist()
    return SplitFile(open_store(folder), path, (folder / path).stat().st_size)


def places(data: bytes, end: int, draw: random.Random, count: int) -> list[int]:
    """Offsets of bytes: of page headers mostly, some of dictionaries and of other pages."""
    pages = list(walk_pages(lambda at, n: data[at : at + n], FIRST_PAGE, end))
    headers = [at for p in pages for at in range(p.offset, p.offset + p.length)]
    dictionaries = [
        at for p in pages if p.is_dictionary for at in range(p.offset, p.offset + p.length + p.body)
    ]
    return [
        draw.choice(headers if n % 10 < 7 else dictionaries)
        if n % 10 < 9
        else draw.randrange(FIRST_PAGE, end)
        for n in range(count)
    ]


def scan(table: Table) -> object:
    return table.scan().to_pylist()


def few_rows(table: Table) -> object:
    return table.scan(where="id = 1500", columns=["id", "name", "level"]).to_pylist()


def search(table: Table) -> object:
    found = table.search("w5 AND name", fields=["name"], columns=["id", "name", "tags", "s"])
    return sorted(map(repr, found.to_pylist()))


def count(table: Table) -> object:
    return table.count(where="level IS NULL OR x > 3 OR s.a < 7")


def delete(table: Table) -> object:
    removed = table.delete(where="level = 'WARN' AND id < 1000").rows_removed
    return removed, table.scan(columns=["id", "name"]).to_pylist()


QUESTIONS = [scan, few_rows, search, count, delete]


@pytest.fixture(params=["new", "without a record"])
def folder(request, tmp_path, monkeypatch) -> Path:
    limit_row_groups(monkeypatch, 700)
    monkeypatch.setattr(writer_module, "PAGE_BYTES", 512)
    if request.param != "new":
        original = SplitInfo.to_json
        monkeypatch.setattr(
            SplitInfo, "to_json", lambda self: original(self).replace(b'"pageHeaders"', b'"old"')
        )
    config = {"spark.indextables.cache.disk.path": str(tmp_path / "cache")}
    table = Table.create(tmp_path / "t", TABLE.schema, config=config)
    table.append(TABLE)
    monkeypatch.undo()
    return tmp_path / "t"


def outcome(folder: Path, ask, config) -> str:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return repr(ask(Table.open(folder, config=config)))  # NaN does not equal itself


@pytest.mark.parametrize("flips", [100, pytest.param(1_000, marks=pytest.mark.long)])
def test_no_flip_in_the_rows_changes_an_answer(folder, tmp_path, flips):
    config = {"spark.indextables.cache.disk.path": str(tmp_path / "cache")}
    split = split_of(folder)
    file = folder / split.path
    sound = file.read_bytes()
    end = min(s.offset for s in split.info.sections)
    backup = shutil.copytree(folder / "_transaction_log", tmp_path / "log")
    expected = {}
    for ask in QUESTIONS:
        expected[ask] = outcome(folder, ask, config)
        shutil.rmtree(folder / "_transaction_log")
        shutil.copytree(backup, folder / "_transaction_log")
    draw = random.Random(21)
    refused = 0
    for number, offset in enumerate(places(sound, end, draw, flips)):
        damaged = bytearray(sound)
        damaged[offset] ^= 1 << draw.randrange(8)
        file.write_bytes(damaged)
        ask = QUESTIONS[number % len(QUESTIONS)]
        try:
            assert outcome(folder, ask, config) == expected[ask], (ask.__name__, offset)
        except IndexTablesError as error:
            refused += 1
            assert split.path in str(error)
        if ask is delete:
            shutil.rmtree(folder / "_transaction_log")
            shutil.copytree(backup, folder / "_transaction_log")
        if number % 10 == 3:
            problems = [c for c in Table.open(folder, config=config).verify() if c.problems]
            if split.info.page_headers or problems:
                assert [c.name for c in problems] == ["checksums"], offset
            else:  # in statistics, say, which only the record of a new split covers
                assert outcome(folder, scan, config) == expected[scan], offset
    assert refused > flips / 2
