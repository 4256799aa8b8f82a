"""The index inside a split: opened, and searched by Tantivy, here only.

Tantivy wants a folder of files that it maps into memory. The sections of a split are copied, once
and checked, into the disk cache; a temporary folder of links to the copies is opened and removed
at once, because the files stay mapped. Segments of several splits linked into one folder are one
index, with the statistics of all of them.

Any program may have written the file of an index, and Tantivy trusts it: for an invalid file it
panics, raises errors of many kinds, or returns rows that do not exist. All of this becomes a
`DamagedIndexError` here, and the caller falls back to the rows.
"""

from __future__ import annotations

import contextlib
import functools
import mmap
import os
import struct
import sys
import time
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, TypeVar

import numpy as np
import numpy.typing as npt
import orjson
import pyarrow as pa
import pyarrow.compute as pc
import tantivy

from indextables.errors import DamagedIndexError, IndexTablesError, StorageError
from indextables.split.format.blocks import (
    TERMS,
    BlockDirectory,
    RangedFile,
    RangedSplit,
    Ranges,
    Segment,
    directories,
    opening_sections,
)
from indextables.split.format.container import HASHES, Section, SplitInfo, read_section
from indextables.split.format.page_headers import ReadRange
from indextables.split.format.term_dictionary import AllWords, Need, TermDictionary
from indextables.split.mapping import ROW_FIELD, TableMapping
from indextables.split.row_numbers import UNTAGGED, RowNumbers, Tags, rows_of
from indextables.storage.local import temporary_folder
from indextables.storage.sparse_copy import SparseCopyError
from indextables.storage.store import ObjectMeta, Store

if TYPE_CHECKING:
    from indextables.storage.disk_cache import DiskCache


Hit = tuple[Any, tantivy.DocAddress]

_FEW_HITS = 1_024
_MANY_SEGMENTS = 64
_IN_ORDER: dict[str, Any] = {"order_by_field": ROW_FIELD, "order": tantivy.Order.Asc}
_KEPT_VOCABULARY = 64 << 20
_KEPT_COUNTS = 256
_KEPT_NUMBERS = 16_384
_FOOTER = struct.Struct("<II")
_FOOTER_MAGIC = 1337
LONGEST_FOOTER = 1_024
"""An upper bound of the bytes that Tantivy writes at the end of a file."""


@contextlib.contextmanager
def tantivy_errors(path: str) -> Iterator[None]:
    """Failures of Tantivy on an index, its panics included, as `DamagedIndexError`."""
    try:
        yield
    except IndexTablesError:
        raise
    except Exception as error:
        raise DamagedIndexError(path, f"Tantivy cannot use its index ({_short(error)})") from None
    except BaseException as error:
        # A Rust panic is not an `Exception`, and its class cannot be imported.
        if type(error).__name__ != "PanicException":
            raise
        raise DamagedIndexError(path, f"Tantivy cannot use its index ({_short(error)})") from None


def _short(error: BaseException) -> str:
    return (" ".join(str(error).split()) or type(error).__name__)[:200]


def check_file(section: Section, tail: bytes, *, path: str) -> None:
    """Compare the checksum that Tantivy wrote into a file with that of its section.

    `tail` is the end of the file. A checksum can be continued: the one of the body, continued over
    the footer that states it, is the one of the whole.
    """
    length, magic = _FOOTER.unpack_from(tail, len(tail) - 8) if len(tail) >= 8 else (0, 0)
    footer = tail[-8 - length : -8]
    try:
        body = orjson.loads(footer)["crc"]
        right = magic == _FOOTER_MAGIC and zlib.crc32(tail[-8 - length :], body) == section.crc
    except (ValueError, TypeError, KeyError, OverflowError):
        right = False
    if not right or len(footer) != length:
        raise DamagedIndexError(path, f"{section.name} is not the file that Tantivy wrote")


@dataclass(frozen=True)
class Vocabulary:
    """The words of a field, in the order of their bytes."""

    words: pa.StringArray
    lengths: npt.NDArray[np.int32]
    """How many characters each word has."""
    _matches: dict[str, int] = field(default_factory=dict, repr=False)

    @classmethod
    def of(cls, words: Sequence[str]) -> Vocabulary:
        """The vocabulary of some words."""
        column: Any = pa.array(sorted(words, key=str.encode), pa.string())
        return cls(column, np.asarray(pc.utf8_length(column), dtype=np.int32))

    @property
    def size(self) -> int:
        """Its size in memory."""
        return int(self.words.nbytes) + self.lengths.nbytes

    def of_length(self, low: int, high: int) -> pa.StringArray:
        """The words that have so many characters."""
        inside: Any = pa.array((self.lengths >= low) & (self.lengths <= high))
        return self.words.filter(inside)

    def between(
        self, low: bytes | None, high: bytes | None, *, with_low: bool, with_high: bool
    ) -> pa.StringArray:
        """The words from one to another."""
        words: Any = self.words.cast(pa.binary())
        if low is not None:
            above = pc.greater_equal if with_low else pc.greater
            words = words.filter(above(words, pa.scalar(low, pa.binary())))
        if high is not None:
            below = pc.less_equal if with_high else pc.less
            words = words.filter(below(words, pa.scalar(high, pa.binary())))
        texts: pa.StringArray = words.cast(pa.string())
        return texts

    def count_matches(self, pattern: str) -> int:
        """How many words a pattern of RE2 matches as a whole.

        `ArrowInvalid` if RE2 cannot read it. It matches in linear time, whatever the pattern is;
        Python's engine backtracks.
        """
        count = self._matches.get(pattern)
        if count is None:
            matched: Any = pc.match_substring_regex(self.words, rf"\A(?:{pattern})\z")
            count = int(matched.true_count)
            if len(self._matches) >= _KEPT_COUNTS:
                self._matches.clear()
            self._matches[pattern] = count
        return count


@dataclass(frozen=True, slots=True)
class IndexSearcher:
    """Searches one index. `path` is named in errors."""

    path: str
    opened: tantivy.Searcher
    ranges: Ranges | None = None
    """The fetched ranges of the index, if it is not whole."""
    _vocabularies: dict[str, Vocabulary] = field(default_factory=dict, compare=False, repr=False)
    _numbers: dict[tuple[int, int], int] = field(default_factory=dict, compare=False, repr=False)

    @property
    def searcher(self) -> tantivy.Searcher:
        """Tantivy's searcher, which is another one after an index was opened again."""
        current = self.ranges.searcher if self.ranges is not None else None
        return self.opened if current is None else current

    def name(self, need: Need) -> None:
        """Name the ranges that a query for this index reads."""
        if self.ranges is not None:
            self.ranges.name(need)

    def _provide(self, *, scored: bool = False) -> None:
        if self.ranges is not None:
            self.ranges.provide(scored=scored)

    @property
    def num_docs(self) -> int:
        """How many documents there are."""
        return self.searcher.num_docs

    def hits(self, query: tantivy.Query, limit: int, **options: Any) -> list[Hit]:
        """The best hits, or the first ones in an order."""
        self._provide(scored="order_by_field" not in options)
        with tantivy_errors(self.path):
            return self.searcher.search(query, max(1, limit), count=False, **options).hits

    def explain(self, query: tantivy.Query, address: tantivy.DocAddress) -> dict[str, Any]:
        """Tantivy's explanation of a document's score for a query."""
        with tantivy_errors(self.path):
            tree: dict[str, Any] = orjson.loads(query.explain(self.searcher, address).to_json())
            return tree

    def count(self, query: tantivy.Query) -> int:
        """How many documents match."""
        self._provide()
        with tantivy_errors(self.path):
            result: Any = self.searcher.search(query, 1, count=True)
            return int(result.count)

    def numbers(self, addresses: Sequence[tantivy.DocAddress]) -> RowNumbers:
        """The numbers that documents carry.

        To say them Tantivy opens a column in every segment, whichever are asked. So of an index
        of many segments those that were asked for are kept.
        """
        if self.searcher.num_segments < _MANY_SEGMENTS:
            return self._read_numbers(addresses)
        places = [(address.segment_ord, address.doc) for address in addresses]
        numbers = list(map(self._numbers.get, places))
        if None in numbers:
            read = self._read_numbers(addresses)
            if len(self._numbers) + len(places) > _KEPT_NUMBERS:
                self._numbers.clear()
            if len(places) <= _KEPT_NUMBERS // 8:
                self._numbers.update(zip(places, read.tolist(), strict=True))
            return read
        return np.array(numbers, dtype=np.int64)

    def _read_numbers(self, addresses: Sequence[tantivy.DocAddress]) -> RowNumbers:
        with tantivy_errors(self.path):
            values = self.searcher.fast_field_values(ROW_FIELD, list(addresses))
            return np.array(values, dtype=np.int64)

    def terms(self, field: str, prefix: str = "") -> list[str]:
        """The words of a field that begin with a text."""
        return [term for term, _ in self.counted_terms(field, prefix)]

    def counted_terms(self, field: str, prefix: str) -> list[tuple[str, int]]:
        """The same words, and how many documents have each."""
        self.name(AllWords(field))
        self._provide()
        with tantivy_errors(self.path):
            return self.searcher.terms_with_prefix(field, prefix)

    def term_counts(self, field: str, words: Sequence[str]) -> list[int]:
        """How many documents have each of some words."""
        self.name(AllWords(field))
        self._provide()
        with tantivy_errors(self.path):
            return [self.searcher.doc_freq(field, word) for word in words]

    def vocabulary(self, field: str, prefix: str = "") -> Vocabulary:
        """The words of a field that begin with a text.

        All of its words are listed once: an open index does not change.
        """
        if prefix:
            return Vocabulary.of(self.terms(field, prefix))
        vocabulary = self._vocabularies.get(field)
        if vocabulary is None:
            vocabulary = Vocabulary.of(self.terms(field))
            if vocabulary.size <= _KEPT_VOCABULARY:
                self._vocabularies[field] = vocabulary
        return vocabulary

    def rows(
        self,
        query: tantivy.Query,
        *,
        total: int,
        bases: Sequence[int] = (),
        tags: Tags = UNTAGGED,
    ) -> RowNumbers:
        """The row of every document that matches, in ascending order, each below `total`.

        A row is what `_row` says under these tags, plus the base of its segment if there are bases.
        """
        hits = self.by_row(query, len(bases))
        with tantivy_errors(self.path):
            numbers = np.fromiter(map(itemgetter(0), hits), dtype=np.int64, count=len(hits))
            rows = rows_of(numbers, tags)
            if any(bases):
                segments = np.fromiter((a.segment_ord for _, a in hits), np.int64, len(hits))
                rows += np.asarray(bases, dtype=np.int64)[segments]
            if any(bases) or len(tags) > 1:
                rows.sort()
        check_rows(rows, total, path=self.path)
        return rows

    def by_row(self, query: tantivy.Query, segments: int) -> list[Hit]:
        """All hits, in the order of their numbers."""
        hits = self.few_by_row(query, segments) if segments > 1 else None
        return self.all_by_row(query) if hits is None else hits

    def few_by_row(self, query: tantivy.Query, segments: int) -> list[Hit] | None:
        """The same if there are few, else None.

        Tantivy reserves room for as many as may be asked for, in every segment.
        """
        few = _FEW_HITS if segments < _MANY_SEGMENTS else _FEW_HITS // 4
        hits = self.hits(query, few, **_IN_ORDER)
        return hits if len(hits) < few else None

    def all_by_row(self, query: tantivy.Query, counted: int | None = None) -> list[Hit]:
        """The same, however many they are; `counted` is how many, where that is known."""
        return self.hits(query, self.num_docs if counted is None else counted, **_IN_ORDER)


def check_rows(rows: RowNumbers, total: int, *, path: str) -> None:
    """Refuse rows that a split does not have; they are in ascending order."""
    if len(rows) and (rows[0] < 0 or rows[-1] >= total or bool((np.diff(rows) <= 0).any())):
        raise DamagedIndexError(path, "its index names rows that it does not have")


Item = TypeVar("Item")
Result = TypeVar("Result")
_COPIERS = 16
_ATTEMPTS = 3
META = "meta.json"


_CHECKING_SHARE = 0.05


class MappedCopies:
    """Files of the disk cache that are mapped into memory, and whether they are still whole.

    The system ends a process that reads a mapped file behind its end. So copies are looked at
    before they are used, as often as that takes a twentieth of the time: those of one split before
    every search. One that was replaced may have been cut off before; one that was evicted has no
    name by which it could be.
    """

    def __init__(self, paths: Iterable[str] = ()) -> None:
        self.map(paths)

    def map(self, paths: Iterable[str]) -> None:
        """Check these freshly mapped copies from now on."""
        self._copies: list[tuple[str, int, int]] = []
        self._next_check = 0.0
        for path in paths:
            with contextlib.suppress(FileNotFoundError):
                status = os.stat(path)  # noqa: PTH116 - Path costs more than the call
                self._copies.append((path, status.st_ino, status.st_size))

    def are_whole(self) -> bool:
        """Whether none of them was cut off."""
        if time.perf_counter() < self._next_check:
            return True
        # Of the processor: on a busy machine a check that had to wait would put off the next one.
        started = time.thread_time()
        for path, inode, size in self._copies:
            with contextlib.suppress(FileNotFoundError):
                status = os.stat(path)  # noqa: PTH116 - as above
                if status.st_ino != inode or status.st_size < size:
                    return False
        taken = time.thread_time() - started
        self._next_check = time.perf_counter() + taken * (1 / _CHECKING_SHARE - 1)
        return True


@dataclass(frozen=True, slots=True)
class OpenIndex:
    """An index that is ready to be searched, and what its files take while it is open."""

    schema: tantivy.Schema
    searcher: IndexSearcher
    files: int = 0
    bytes: int = 0
    copies: MappedCopies = field(default_factory=MappedCopies)


@dataclass(frozen=True)
class IndexFolder:
    """The index files of one split, wherever they come from."""

    store: Store
    path: str
    info: SplitInfo
    cache: DiskCache
    fetched: dict[tuple[int, int], bytes] = field(default_factory=dict, compare=False)
    """Ranges of the file that were read already."""

    def meta(self) -> dict[str, Any]:
        """Tantivy's description of the index."""
        section = next((s for s in self.info.index_sections() if s.name == META), None)
        if section is None:
            return read_meta(self._read, self.info, path=self.path)  # raises the error
        return checked_meta(self._content(section), self.info, path=self.path)

    def link(self, folder: Path, fields: dict[str, int]) -> RangedSplit:
        """Link all files but the description into a folder; returns those that are not whole."""
        described = directories(self.info)
        terms: dict[str, TermDictionary] = {}
        mapped: dict[str, mmap.mmap] = {}
        ranged: dict[str, dict[str, RangedFile]] = {}
        for section in self.info.index_sections():
            if section.name == META:
                continue
            name, _, suffix = section.name.rpartition(".")
            if section.name in described:
                file = self._sparse(section, described[section.name])
                ranged.setdefault(name, {})[f".{suffix}"] = file
                (folder / section.name).symlink_to(file.copy.path.absolute())
            else:
                (folder / section.name).symlink_to(self._copy(section))
        self.fetched.clear()
        # Of a sparse dictionary the same file that Tantivy maps, whatever its name leads to later.
        for name, files in ranged.items():
            if TERMS in files:
                with files[TERMS].copy.path.open("rb") as copy:
                    mapped[name] = mmap.mmap(copy.fileno(), 0, access=mmap.ACCESS_READ)

        def dictionary(name: str) -> TermDictionary:
            if name not in terms:
                if name not in mapped:
                    sections = self.info.index_sections()
                    section = next(s for s in sections if s.name == f"{name}{TERMS}")
                    with self._opened(section) as file:
                        mapped[name] = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
                    self.fetched.clear()
                terms[name] = TermDictionary(memoryview(mapped[name]))
            return terms[name]

        segments = [
            Segment(files, functools.partial(dictionary, name)) for name, files in ranged.items()
        ]
        return RangedSplit(self.store, self.path, tuple(segments), fields)

    def hashes(self) -> tuple[npt.NDArray[np.uint32], MappedCopies]:
        """The hash of each row, if the split has hashes, and the copy that has them."""
        section = next((s for s in self.info.sections if s.kind == HASHES), None)
        if section is None or section.size != 4 * self.info.rows:
            raise DamagedIndexError(self.path, "it does not have a hash of each of its rows")
        if not section.size:
            return np.zeros(0, np.uint32), MappedCopies()
        with self._opened(section) as file:
            mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
            return np.frombuffer(mapped, "<u4"), MappedCopies([file.name])

    def _sparse(self, section: Section, described: Section) -> RangedFile:
        data = self._content(described)
        directory = BlockDirectory.from_bytes(data, section, path=self.path)
        source = _SectionStore(self, section)
        copy = self.cache.sparse(
            source,
            source.key,
            section.size,
            block=directory.block,
            checksums=directory.checksums,
        )
        opened = RangedFile.open(directory, copy, path=self.path)
        check_file(section, opened.tail[-LONGEST_FOOTER:], path=self.path)
        return opened

    def _content(self, section: Section) -> bytes:
        """The content of a small section: of a remote split, from its copy."""
        if self.store.local_path(self.path) is not None:
            return read_section(self._read, section, path=self.path)
        with self._opened(section) as file:
            return file.read()

    def _opened(self, section: Section) -> BinaryIO:
        source = _SectionStore(self, section)
        with self._damages(section):
            return self.cache.open(
                source, source.key, section.size, checksum=f"crc32:{section.crc:08x}"
            )

    def _copy(self, section: Section) -> Path:
        source = _SectionStore(self, section)
        with self._damages(section):
            copy = self.cache.fetch(
                source, source.key, section.size, checksum=f"crc32:{section.crc:08x}"
            ).absolute()
        with contextlib.suppress(FileNotFoundError), copy.open("rb") as file:  # evicted: try again
            file.seek(max(0, section.size - LONGEST_FOOTER))
            check_file(section, file.read(), path=self.path)
        return copy

    @contextlib.contextmanager
    def _damages(self, section: Section) -> Iterator[None]:
        try:
            yield
        except StorageError as error:
            if "checksum" in str(error).lower():
                raise DamagedIndexError(
                    self.path, f"the checksum of {section.name} is wrong"
                ) from None
            raise

    def _read(self, start: int, end: int) -> bytes:
        """A range of the file. The first of the small sections that is missing brings them all."""
        small = [(s.offset, s.offset + s.length) for s in opening_sections(self.info)]
        for _ in range(2):
            for (first, last), data in list(self.fetched.items()):
                if first <= start and end <= last:
                    return data[start - first : end - first]
            if (start, end) not in small:
                break
            parts = self.store.get_ranges(self.path, small)
            self.fetched.update(zip(small, parts, strict=True))
        return self.store.get_range(self.path, start, end)


def read_meta(read: ReadRange, info: SplitInfo, *, path: str) -> dict[str, Any]:
    """Tantivy's description of the index in a split."""
    section = next((s for s in info.index_sections() if s.name == META), None)
    if section is None:
        raise DamagedIndexError(path, "it has no index")
    return checked_meta(read_section(read, section, path=path), info, path=path)


def checked_meta(data: bytes, info: SplitInfo, *, path: str) -> dict[str, Any]:
    """The same from the content of the file."""
    try:
        document: dict[str, Any] = orjson.loads(data)
        names = [s["segment_id"].replace("-", "") for s in document["segments"]]
        counts = [s["max_doc"] for s in document["segments"]]
        deletes = [s["deletes"] for s in document["segments"]]
        rows = sum(
            count if type(count) is int and count >= 0 else info.rows + 1 for count in counts
        )
        fields = [(f["name"], f["type"], f["options"]) for f in document["schema"]]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise DamagedIndexError(path, f"its {META} cannot be read ({error!r})") from None
    if names != [s.name for s in info.segments]:
        raise DamagedIndexError(path, "its segments are not those that were written")
    if rows != info.rows or any(deletes) or not fields:
        raise DamagedIndexError(path, "its index holds more or fewer rows than it has")
    return document


def open_index(
    folders: Sequence[IndexFolder],
    mapping: TableMapping,
    *,
    schema: list[Any] | None = None,
) -> OpenIndex:
    """Open the indexes of several splits as one, in their order.

    `schema` describes all of them, if theirs are beginnings of it. Of a remote split only what
    every search needs is fetched; a local one is copied.
    """
    metas = side_by_side(IndexFolder.meta, folders)
    for folder, meta in zip(folders, metas, strict=True):
        fields_of_split = meta["schema"]
        expected = schema_document(folder.info.mapping)
        if fields_of_split != expected[: len(fields_of_split)] or (
            schema is not None and fields_of_split != schema[: len(fields_of_split)]
        ):
            raise DamagedIndexError(folder.path, "its index has other fields than its mapping")
    description = metas[0] | {"segments": [s for meta in metas for s in meta["segments"]]}
    if schema is not None:
        description["schema"] = schema
    fields = [{f["name"]: n for n, f in enumerate(meta["schema"])} for meta in metas]
    opening = _Opening(folders, fields, mapping, description)
    splits, index = opening.attempts()
    ranges: Ranges | None = None
    if any(split.segments for split in splits):
        ranges = Ranges(splits, opening.searcher)
        ranges.searcher = index.searcher()
        if all(f.store.local_path(f.path) is not None for f in folders):
            ranges.provide_all()
            ranges = None
    searcher = IndexSearcher(folders[0].path, index.searcher(), ranges)
    sizes = [s.size for folder in folders for s in folder.info.index_sections()]
    return OpenIndex(index.schema, searcher, len(sizes), sum(sizes), opening.copies)


@dataclass(frozen=True)
class _Opening:
    """Opens the copies of an index as often as one of them is evicted meanwhile."""

    folders: Sequence[IndexFolder]
    fields: Sequence[dict[str, int]]
    mapping: TableMapping
    description: Mapping[str, Any]
    copies: MappedCopies = field(default_factory=MappedCopies)

    def searcher(self) -> tuple[list[RangedSplit], tantivy.Searcher]:
        """Open it again."""
        splits, index = self.attempts()
        return splits, index.searcher()

    def attempts(self) -> tuple[list[RangedSplit], tantivy.Index]:
        for attempt in range(_ATTEMPTS):
            is_last = attempt == _ATTEMPTS - 1
            with temporary_folder("index", _links_parent()) as place:
                try:
                    splits = self._linked(place)
                except (FileNotFoundError, SparseCopyError):
                    if is_last:
                        raise
                    continue  # evicted as well
                try:
                    index = self._opened(place)
                except DamagedIndexError:
                    # Another process may have evicted a copy between the link and the mapping.
                    was_evicted = any(not link.exists() for link in place.iterdir())
                    if not was_evicted or is_last:
                        raise
                    continue
            # An evicted copy may have been written again meanwhile, and be mapped instead.
            if all(split.is_current for split in splits) or is_last:
                return splits, index
        raise AssertionError("unreachable")

    def _linked(self, place: Path) -> list[RangedSplit]:
        pairs = list(zip(self.folders, self.fields, strict=True))
        return side_by_side(lambda pair: pair[0].link(place, pair[1]), pairs)

    def _opened(self, place: Path) -> tantivy.Index:
        (place / META).write_bytes(orjson.dumps(self.description))
        with tantivy_errors(self.folders[0].path):
            index = self.mapping.register(tantivy.Index.open(str(place)))
            index.config_reader("manual")
            index.searcher()
        links = (link for link in place.iterdir() if link.is_symlink())
        self.copies.map(str(link.readlink()) for link in links)
        return index


def side_by_side(work: Callable[[Item], Result], items: Sequence[Item]) -> list[Result]:
    """The result of a function for each item, in threads: copies come from a slow store."""
    if len(items) == 1:
        return [work(items[0])]
    return list(_copiers(os.getpid()).map(work, items))


@functools.cache
def _copiers(process: int) -> ThreadPoolExecutor:  # noqa: ARG001
    """One pool for the process; a forked one has none of its parent's threads."""
    return ThreadPoolExecutor(_COPIERS, thread_name_prefix="indextables-open")


@functools.lru_cache(maxsize=64)
def empty_meta(mapping: TableMapping) -> bytes:
    """Tantivy's description of an index of a mapping that has no segments."""
    return _empty_meta(mapping.tantivy_schema())


def _empty_meta(schema: tantivy.Schema) -> bytes:
    with temporary_folder("index", _links_parent()) as place:
        tantivy.Index(schema, path=str(place))
        return (place / META).read_bytes()


def schema_of(schema: tantivy.Schema) -> list[Any]:
    """A schema as Tantivy writes it."""
    document: list[Any] = orjson.loads(_empty_meta(schema))["schema"]
    return document


@functools.lru_cache(maxsize=64)
def schema_document(mapping: TableMapping) -> list[Any]:
    """The schema of a mapping's index as Tantivy writes it."""
    document: list[Any] = orjson.loads(empty_meta(mapping))["schema"]
    return document


def is_beginning(folder: IndexFolder, schema: list[Any]) -> bool:
    """Whether an index can be opened together with those of a schema: it has no other fields."""
    fields = folder.meta()["schema"]
    return bool(fields == schema[: len(fields)])


@functools.cache
def _links_parent() -> str | None:
    """Links are made and removed by the hundred: in memory, where the system has such a folder."""
    usable = sys.platform == "linux" and os.access("/dev/shm", os.W_OK | os.X_OK)
    return "/dev/shm" if usable else None


class _SectionStore(Store):
    """One section of a split as an object, so that the disk cache can keep a copy of it."""

    def __init__(self, folder: IndexFolder, section: Section) -> None:
        self.uri = folder.store.uri
        self.folder = folder
        self.section = section
        self.key = f"{folder.path}#{section.name}#{section.offset}#{section.crc:08x}"
        self._content: bytes | None = None

    @property
    def identity(self) -> str:
        return self.folder.store.identity

    def get_range(self, path: str, start: int, end: int) -> bytes:
        if not self.section.codec:
            offset = self.section.offset
            return self.folder._read(offset + start, offset + end)
        return self.get(path)[start:end]

    def get(self, path: str) -> bytes:  # noqa: ARG002 - there is one object only
        if self._content is None:
            self._content = read_section(self.folder._read, self.section, path=self.folder.path)
        return self._content

    def get_ranges(self, path: str, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        return [self.get_range(path, start, end) for start, end in ranges]

    def head(self, path: str) -> ObjectMeta:
        return ObjectMeta(path, self.section.size, 0, None)

    def get_with_etag(self, path: str) -> tuple[bytes, str | None]:
        return self.get(path), None

    def local_path(self, path: str) -> Path | None:  # noqa: ARG002 - as above
        return None

    def _read_only(self, *_: object, **__: object) -> Any:
        raise StorageError("A section of a split cannot be changed.", path=self.key)

    list_directory = put = put_if_absent = put_if_match = put_file = delete = list = _read_only
