"""Reading rows of a remote split: only the needed bytes, asked for together."""

from __future__ import annotations

import random
import shutil
from dataclasses import replace
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest
from conftest import query

from indextables.errors import DamagedSplitError
from indextables.split.format import page_headers
from indextables.split.format import rows as rows_module
from indextables.split.format.rows import RowReader
from indextables.split.open_split import HotColumns, SplitFile
from indextables.split.write import writer as writer_module
from indextables.storage.local import LocalStore
from tests.support.row_groups import limit_row_groups

ROWS = 40_000
TABLE = pa.table(
    {
        "id": range(ROWS),
        "body": [f"row {i} of many" for i in range(ROWS)],
        "a.b": [f"x{i}" for i in range(ROWS)],
        "a": pa.array([{"b": i} for i in range(ROWS)]),
        "list": [[i, i + 1] for i in range(ROWS)],
    }
)


class Remote(LocalStore):
    """A store that has no local files and counts."""

    def __init__(self, root: str) -> None:
        super().__init__(root)
        self.calls: list[list[tuple[int, int]]] = []

    def local_path(self, path):
        return None

    def get_range(self, path, start, end):
        self.calls.append([(start, end)])
        data = (super().local_path(path)).read_bytes()
        return data[start:end]

    def get_ranges(self, path, ranges):
        self.calls.append(list(ranges))
        data = (super().local_path(path)).read_bytes()
        return [data[start:end] for start, end in ranges]


@pytest.fixture(scope="module", autouse=True)
def _groups_of_one_size():
    with pytest.MonkeyPatch.context() as patch:
        limit_row_groups(patch, 8_192)
        yield


@pytest.fixture(scope="module")
def whole(make_in, tmp_path_factory):
    """A split of all rows, to be copied."""
    return make_in(tmp_path_factory.mktemp("whole"))(TABLE, batch=10_000)


@pytest.fixture(scope="module")
def levels(make_in, tmp_path_factory):
    """The same with a column of few values."""
    level = pa.array([("INFO", "WARN", None, f"of group {i // 8_192}")[i % 4] for i in range(ROWS)])
    table = TABLE.append_column("level", level)
    return table, make_in(tmp_path_factory.mktemp("levels"))(table, batch=10_000)


def copied(searcher, folder, kind=LocalStore):
    """The split in a folder of its own: nothing of it was read before."""
    split = searcher.split
    shutil.copy(split.store.local_path(split.path), folder)
    copy = SplitFile(
        kind(str(folder)), split.path, split.size, split.footer_start, split.footer_end
    )
    return replace(searcher, split=copy)


@pytest.fixture
def remote(whole, tmp_path):
    return copied(whole, tmp_path, Remote)


@pytest.fixture
def remote_pages(small_pages, make, tmp_path):
    (tmp_path / "remote").mkdir()
    return copied(make(TABLE, batch=10_000), tmp_path / "remote", Remote)


def test_scattered_rows_are_one_request_for_their_chunks(remote):
    _ = remote.split.footer
    remote.split.store.calls.clear()
    rows = np.array([39_999, 5, 20_000])
    table = remote.read_rows(rows, ["id", "body"])
    assert table.equals(TABLE.select(["id", "body"]).take(rows))
    (ranges,) = remote.split.store.calls
    assert sum(end - start for start, end in ranges) < remote.split.size / 4


@pytest.mark.parametrize("name", TABLE.schema.names)
def test_any_column_comes_back(remote, name):
    rows = np.array([0, 8_191, 8_192, 39_999])
    assert remote.read_rows(rows, [name]).column(name).to_pylist() == (
        TABLE.column(name).take(pa.array(rows)).to_pylist()
    )


def test_everything_comes_back_in_pieces(remote):
    pieces = list(remote.split.rows.batches(TABLE.schema.names, rows_at_once=20_000))
    assert [first for first, _ in pieces] == [0, 16_384, 32_768]
    assert pa.concat_tables(t for _, t in pieces).equals(TABLE)
    counts = list(remote.split.rows.batches([], rows_at_once=20_000))
    assert [table.num_rows for _, table in counts] == [16_384, 16_384, 7_232]


def test_the_index_is_fetched_without_the_rows(remote):
    assert remote.search(query("20000", "body")).tolist() == [20_000]
    first = min(s.offset for s in remote.split.info.sections)
    assert all(start >= first for ranges in remote.split.store.calls for start, _ in ranges)


def _mixed(rows: int) -> pa.Table:
    rng = random.Random(3)

    def some(make_value):
        return [make_value(i) if rng.random() < 0.8 else None for i in range(rows)]

    columns = {
        "id": pa.array(range(rows)),
        "level": pa.array(some(lambda i: ("INFO", "WARN", f"of {i // 300}")[i % 3])),
        "text": pa.array(some(lambda _: rng.randbytes(rng.randint(0, 60)).hex())),
        "late": pa.array(  # gives up its dictionary in the middle of a group
            [f"v{i % 5}" if i % 4_500 < 2_500 else rng.randbytes(40).hex() for i in range(rows)]
        ),
        "x": pa.array(some(lambda _: rng.choice([1.5, float("nan"), -0.0]))),
        "flag": pa.array(some(lambda i: i % 3 == 0)),
        "when": pa.array(some(lambda i: i * 1_000_003), pa.timestamp("us", "UTC")),
        "price": pa.array(some(lambda i: Decimal(i * 7) / 100), pa.decimal128(12, 2)),
        "data": pa.array(some(lambda i: rng.randbytes(i % 50))),
        "nothing": pa.nulls(rows, pa.string()),
        "tags": pa.array(some(lambda i: [str(j) for j in range(i % 4)])),
        "s": pa.array(some(lambda i: {"a": i, "b": str(i)})),
    }
    table = pa.table(columns)
    fixed = pa.field("fixed", pa.int64(), nullable=False)
    return table.append_column(fixed, pa.array(range(rows), pa.int64()))


def test_rows_by_page_are_the_same_rows(make, tmp_path, monkeypatch):
    limit_row_groups(monkeypatch, 4_500)
    monkeypatch.setattr(writer_module, "PAGE_BYTES", 100)  # checked after 128 rows
    monkeypatch.setattr(rows_module, "_FEW_ROWS", 2)
    total = 10_000
    table = _mixed(total)
    near = make(table, {"indexing.storeonlyfields": "data"}, batch=400)
    far = SplitFile(Remote(str(tmp_path)), near.split.path, near.split.size)
    searcher = replace(near, split=far)
    rng, made = random.Random(8), []
    values_of = page_headers.values_of

    def recorded(runs, chunk, kind, places):
        made.append((kind, len(runs), {bool(run.dictionary) for run in runs}))
        return values_of(runs, chunk, kind, places)

    monkeypatch.setattr(page_headers, "values_of", recorded)
    plain = ["id", "level", "x", "flag", "when", "price", "data"]  # neither nested nor required
    expected = table.select(table.schema.names)
    for _ in range(60):
        rows = np.array(rng.choices(range(total), k=rng.choice([1, 1, 2, 5, 30])))
        names = rng.sample(table.schema.names, rng.randint(1, 13))
        found = searcher.read_rows(rows, names)
        wanted = expected.select(names).take(pa.array(rows))
        assert found.to_pylist().__repr__() == wanted.to_pylist().__repr__()
    by_page = {kind for kind, *_ in made}
    assert by_page == {table.schema.field(n).type for n in plain}
    assert {True, False} <= set().union(*(found for *_, found in made))
    assert max(count for _, count, _ in made) > 1


@pytest.fixture
def small_pages(monkeypatch):
    monkeypatch.setattr(writer_module, "PAGE_BYTES", 1_000)


def test_one_row_needs_its_pages_only(remote_pages):
    split = remote_pages.split
    _ = split.footer
    split.store.calls.clear()
    assert remote_pages.read_rows(np.array([20_000]), ["body"])["body"].to_pylist() == [
        "row 20000 of many"
    ]
    (ranges,) = split.store.calls
    (chunk,) = split.footer.chunks([2], ["body"])
    assert sum(end - start for start, end in ranges) < (chunk.end - chunk.start) / 2


def test_of_a_local_split_too(small_pages, make, monkeypatch):
    split = make(TABLE, batch=10_000)
    (chunk,) = split.split.footer.chunks([2], ["body"])
    read: list[int] = []
    page = page_headers.PagesWithRows._page

    def counted(*given):
        read.append(len(page(*given)))
        return page(*given)

    monkeypatch.setattr(page_headers.PagesWithRows, "_page", counted)
    rows = np.array([20_000, 20_001])
    assert split.read_rows(rows, ["body"]).equals(TABLE.select(["body"]).take(rows))
    assert 0 < sum(read) < (chunk.end - chunk.start) / 2
    read.clear()
    names = ["list", "body", "a"]  # lists are read whole
    assert split.read_rows(rows, names).equals(TABLE.select(names).take(rows))
    # A header that was changed is refused.
    path = split.split.store.local_path(split.split.path)
    data = bytearray(path.read_bytes())
    data[chunk.start + 2] ^= 4
    path.write_bytes(data)
    with pytest.raises(DamagedSplitError, match="checksum of the page header"):
        split.read_rows(np.array([16_400]), ["body"])


def test_a_page_that_was_changed_is_refused(remote_pages, monkeypatch):
    (chunk,) = remote_pages.split.footer.chunks([2], ["body"])
    read = Remote.get_ranges

    def changed(self, path, wanted):
        found = []
        for (start, _), data in zip(wanted, read(self, path, wanted), strict=True):
            copy = bytearray(data)
            if start >= chunk.start:
                copy[2] ^= 4
            found.append(bytes(copy))
        return found

    monkeypatch.setattr(Remote, "get_ranges", changed)
    with pytest.raises(DamagedSplitError, match="checksum of the page header"):
        remote_pages.read_rows(np.array([20_000]), ["body"])


def test_a_split_that_does_not_count_values_is_read_by_chunks(make, tmp_path, monkeypatch):
    monkeypatch.setattr(writer_module, "values_text", lambda pages: "")
    near = make(TABLE, batch=10_000)
    split = SplitFile(Remote(str(tmp_path)), near.split.path, near.split.size)
    rows = np.array([7, 30_000])
    found = replace(near, split=split).read_rows(rows, ["body"])
    assert found.equals(TABLE.select(["body"]).take(rows))


def test_a_short_answer_is_no_data(remote, monkeypatch):
    _ = remote.split.footer
    monkeypatch.setattr(Remote, "get_ranges", lambda self, path, ranges: [b"" for _ in ranges])
    with pytest.raises(DamagedSplitError, match="rows cannot be read"):
        remote.read_rows(np.array([1]), ["id"])


CHOICES = {
    "one": [17],
    "scattered": [39_999, 5, 20_000, 8_191, 8_192],
    "twice": [7, 7, 30_000, 7],
    "many": list(range(0, ROWS, 40)),
    "a third": list(range(0, ROWS, 3)),
    "as many as there are": [*range(1, ROWS), ROWS - 1],
    "backwards": list(range(ROWS - 1, -1, -1)),
}


@pytest.mark.parametrize("rows", CHOICES.values(), ids=CHOICES.keys())
def test_rows_come_in_the_order_asked_for(levels, tmp_path, rows):
    table, split = levels
    found = copied(split, tmp_path).read_rows(np.array(rows), table.schema.names)
    assert found.equals(table.take(pa.array(rows)))


def test_many_groups_are_read_on_all_cores(make, monkeypatch):
    limit_row_groups(monkeypatch, 100)
    monkeypatch.setattr(rows_module.os, "cpu_count", lambda: 3)
    rows = make(TABLE, batch=10_000).split.rows
    assert rows.footer.parquet.num_row_groups == 400
    assert rows.read_column("id").to_pylist() == list(range(ROWS))
    assert rows.read_rows(np.arange(ROWS)[::2], ["body"])["body"] == TABLE["body"].take(
        pa.array(range(0, ROWS, 2))
    )


def test_few_rows_of_many_groups_are_one_call(make, monkeypatch):
    limit_row_groups(monkeypatch, 1_000)
    monkeypatch.setattr(rows_module, "_SHARED_ROWS", 1_000)
    split = make(TABLE, batch=10_000)
    calls = []
    read_few = RowReader._read_few

    def counted(self, rows, *others):
        calls.append(len(rows))
        return read_few(self, rows, *others)

    monkeypatch.setattr(RowReader, "_read_few", counted)
    rows = np.arange(0, ROWS, 4_000)
    assert split.split.rows.read_rows(rows, ["id"])["id"].to_pylist() == rows.tolist()
    assert calls == [10]


def test_sizes_of_row_groups_are_worked_out_once_a_column(remote, monkeypatch):
    monkeypatch.setattr(rows_module, "BYTES_AT_ONCE", 0)
    rows, footer = remote.split.rows, remote.split.footer
    names = ["id", "body", "a.b", "a", "list"]
    chunks = footer.chunks(range(footer.parquet.num_row_groups), names)
    first = rows.group_sizes(names)
    encoded = np.zeros_like(first)
    for chunk in chunks:
        encoded[chunk.group] += chunk.parquet.total_uncompressed_size
    assert (first >= encoded).all()
    assert (rows.group_sizes(["id"]) == footer.encoded_sizes("id")).all()
    monkeypatch.setattr(type(footer), "chunks", None)  # asked no more
    assert (rows.group_sizes(names) == first).all()


@pytest.mark.long
def test_one_long_text_of_one_letter_comes_back(make):
    """It compresses by tens of thousands, and was written all the same."""
    text = "a" * (257 << 20)
    table = pa.table({"id": [1], "body": [text]})
    found = make(table, {"indexing.storeonlyfields": "body"}).split.rows.read_column("body")
    assert found[0].as_py() == text


def test_kept_columns_belong_to_one_file(make):
    """A file that is put in the place of another, under its name, is read anew."""
    one, other = (make(pa.table({"n": [n] * (n * 10)})) for n in (1, 2))
    rows = np.array([0, 3])
    for _ in range(5):
        assert one.read_rows(rows, ["n"])["n"].to_pylist() == [1, 1]
        one.pool.get(one.split)
    place = one.split.store.local_path(one.split.path)
    place.write_bytes(other.split.store.local_path(other.split.path).read_bytes())
    there = replace(other, split=replace(other.split, path=one.split.path))
    assert there.read_rows(rows, ["n"])["n"].to_pylist() == [2, 2]
    assert there.pool.get(there.split) is not one.pool.get(one.split)


def test_a_column_that_is_too_large_to_keep_is_decoded_once(make, monkeypatch):
    split = make(pa.table({"n": range(5_000)}))
    columns = HotColumns(max_bytes=1_000)
    decoded = []
    read = RowReader.read_groups
    monkeypatch.setattr(RowReader, "read_groups", lambda *given: decoded.append(1) or read(*given))
    for _ in range(12):
        columns.rows(split.split, np.array([1]), ["n"])
    assert len(decoded) == 1


def test_of_kept_columns_and_others_only_the_others_are_read(make, monkeypatch):
    random = np.random.default_rng(1)
    texts = ["".join(map(chr, random.integers(97, 123, 300))) for _ in range(20_000)]
    lists = [[text] for text in texts]  # which are read by row group, and these are large
    table = pa.table({"n": pa.array(range(20_000)), "body": lists, "m": [None, 7] * 10_000})
    split = make(table, batch=10_000)
    read = []
    real = RowReader.read_rows
    monkeypatch.setattr(
        RowReader, "read_rows", lambda *given: read.append(list(given[2])) or real(*given)
    )
    names = ["m", "body", "n"]
    for _ in range(5):
        rows = random.choice(20_000, 12)
        found = split.read_rows(rows, names)
        assert found.equals(table.select(names).take(pa.array(rows)))
    assert read[0] == names
    assert read[-1] == ["body"]
    assert split.read_rows(rows, ["n"])["n"].to_pylist() == rows.tolist()
    assert len(read) == 5


def test_pages_of_large_columns_that_are_read_often_stay_decoded(make, monkeypatch):
    """And nothing of the file is read for them any more; one page of large values is not kept."""
    random = np.random.default_rng(2)
    texts = ["".join(map(chr, random.integers(97, 123, 60))) for _ in range(20_000)]
    texts[5], texts[8_191], texts[10_000], texts[10_001] = None, "last", None, "x" * (3 << 20)
    split = make(pa.table({"body": texts}), batch=10_000)
    pages = split.split.footer.column_pages("body")
    assert len(pages.first_rows) > 10 and not pages.has_dictionaries
    cases = [[5, 8_191, 0, 19_999, 12_345, 5], [10_001], [15_500]]
    for rows in cases:
        for _ in range(5):
            read = split.read_rows(np.array(rows), ["body"])["body"].to_pylist()
            assert read == [texts[row] for row in rows]
    monkeypatch.setattr(RowReader, "_source", None)  # the file is opened no more
    for rows in cases[::2]:
        read = split.read_rows(np.array(rows), ["body"])["body"].to_pylist()
        assert read == [texts[row] for row in rows]
    with pytest.raises(TypeError):
        split.read_rows(np.array(cases[1]), ["body"])


def test_pages_that_are_read_often_are_fetched_no_more(make, tmp_path):
    """Of a remote split as well; of other rows only the pages that are not in memory are."""
    texts = np.random.default_rng(3).bytes(60 * 20_000).hex()
    table = pa.table({"body": [texts[at : at + 60] for at in range(0, 60 * 20_000, 60)]})
    (tmp_path / "remote").mkdir()
    split = copied(make(table, batch=10_000), tmp_path / "remote", Remote)
    first_rows = split.split.footer.column_pages("body").first_rows
    rows, other = first_rows[[1, 5, 9]] + 3, int(first_rows[12])
    for _ in range(3):
        split.read_rows(rows, ["body"])
    calls = split.split.store.calls
    calls.clear()
    assert split.read_rows(rows, ["body"]).equals(table.take(rows))
    assert calls == []
    both = np.array([other, *rows])
    assert split.read_rows(both, ["body"]).equals(table.take(both))
    ((page,),) = calls
    assert page[1] - page[0] < 64 << 10
