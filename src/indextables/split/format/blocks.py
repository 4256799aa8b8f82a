"""Index files in blocks, so that the parts that queries need can be fetched and checked.

The postings and positions of an index are most of its bytes, and a query reads few of them. They
are stored as Zstandard frames of 16 KB each, which takes as much room as one frame does. A section
of the kind `blocks` says how long each frame is and what its content's checksum is. It also repeats
the *spots* of the file that Tantivy reads whatever it is asked: the end of the file, and the first
bytes of every field's postings.

Everything else that a search needs first lies together, directly before the lists and the footer:
these directories, fast fields, `meta.json`, the term dictionary if it is not large. One request
brings it.

Tantivy maps files into memory. Those of a remote index are sparse copies in the disk cache, with
holes where nothing was fetched yet, and a hole would be read as zeros. So the builder of a query
for Tantivy *names* what it reads (`Ranges.name`), and what was named is *provided* before Tantivy
searches. Bytes that are written to a file appear in memory that was mapped before.

What is named covers whatever Tantivy may read; the term dictionary says where it lies. If a
dictionary is not of the known format, or something cannot be named, all of the index is provided.
"""

from __future__ import annotations

import base64
import contextlib
import threading
import zlib
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import numpy.typing as npt
import orjson
import tantivy
import zstandard

from indextables.errors import DamagedIndexError
from indextables.split.format.container import (
    Section,
    Sink,
    SplitInfo,
    write_bytes_section,
    write_file_section,
)
from indextables.split.format.term_dictionary import (
    POSTINGS_HEAD,
    AllWords,
    Beginning,
    Need,
    Range,
    TermDictionary,
    TermInfo,
    UnknownDictionaryError,
    Words,
    heads,
    parts,
)
from indextables.storage.sparse_copy import SparseCopy, SparseCopyError
from indextables.storage.store import GAP, Store, coalesce

BLOCK = 16 << 10
BLOCKS = "blocks"
"""The kind of a section that describes the blocks of another one."""
POSTINGS, POSITIONS, NORMS, TERMS = ".idx", ".pos", ".fieldnorm", ".term"
_RANGED = (POSTINGS, POSITIONS, NORMS, TERMS)
_SMALL = 64 << 10
"""An index file that is smaller, packed, is fetched with the dictionary."""
_SMALL_TERMS = 512 << 10
"""A dictionary that is smaller is fetched whole; of a larger one, the fields that are searched."""
_LARGE = 4 << 20
"""A section of an older split that is larger is fetched on its own."""
_TAIL = 64 << 10
_LARGEST_BLOCK = 1 << 20
_LEVEL = 3


@dataclass(frozen=True)
class BlockDirectory:
    """How a section is divided into blocks."""

    section: Section
    block: int
    lengths: npt.NDArray[np.uint32]
    """How long each block is in the file."""
    checksums: tuple[int, ...]
    """Of the content of each block."""
    spots: tuple[tuple[int, bytes], ...]
    """Pieces of the content that are always needed."""

    @cached_property
    def offsets(self) -> npt.NDArray[np.int64]:
        """Where each block begins in the file of the split, and where the last one ends."""
        ends = np.cumsum(self.lengths, dtype=np.int64)
        return self.section.offset + np.concatenate(([0], ends))

    def blocks_of(self, start: int, end: int) -> range:
        """The blocks that hold a range of the content."""
        return range(start // self.block, -(-end // self.block) if end > start else 0)

    def content(
        self, number: int, data: bytes, unpacker: zstandard.ZstdDecompressor, *, path: str
    ) -> bytes:
        """The content of a block, checked."""
        size = min(self.block, self.section.size - number * self.block)
        try:
            if zstandard.frame_content_size(data) > size:
                raise self._damaged(path, f"block {number} claims to be larger than it is")
            content = unpacker.decompress(data, max_output_size=size)
        except zstandard.ZstdError as error:
            raise self._damaged(path, str(error)) from None
        if len(content) != size or zlib.crc32(content) != self.checksums[number]:
            raise self._damaged(path, f"the checksum of block {number} is wrong")
        return content

    def _damaged(self, path: str, reason: str) -> DamagedIndexError:
        return DamagedIndexError(path, f"{self.section.name} cannot be read ({reason})")

    @classmethod
    def from_bytes(cls, data: bytes, section: Section, *, path: str) -> BlockDirectory:
        """Read the directory of a section."""
        try:
            document = orjson.loads(data)
            block = document["block"]
            lengths = np.frombuffer(base64.b64decode(document["lengths"]), "<u4")
            checksums = np.frombuffer(base64.b64decode(document["checksums"]), "<u4")
            spots = tuple((int(at), base64.b64decode(text)) for at, text in document["spots"])
            right = (
                type(block) is int
                and 1 <= block <= _LARGEST_BLOCK
                and len(lengths) == len(checksums) == -(-section.size // block)
                and int(lengths.sum(dtype=np.int64)) == section.length
                and all(at >= 0 and at + len(spot) <= section.size for at, spot in spots)
            )
        except (ValueError, KeyError, TypeError) as error:
            raise DamagedIndexError(path, f"blocks of {section.name}: {error!r}") from None
        if not right:
            raise DamagedIndexError(path, f"the blocks of {section.name} are not its own")
        return cls(section, block, lengths, tuple(checksums.tolist()), spots)


def directories(info: SplitInfo) -> dict[str, Section]:
    """The sections that describe the blocks of index files, by the names of those."""
    return {section.name: section for section in info.sections if section.kind == BLOCKS}


def opening_sections(info: SplitInfo) -> list[Section]:
    """The sections that every search needs, which lie together."""
    divided = directories(info)
    return [
        section
        for section in info.sections
        if section.kind in (BLOCKS, "index")
        and (section.kind == BLOCKS or section.name not in divided)
        and section.length <= _LARGE
    ]


def opening_of(info: SplitInfo) -> Range | None:
    """Where those sections lie, if nothing lies between them."""
    sections = opening_sections(info)
    start = min((section.offset for section in sections), default=0)
    end = max((section.offset + section.length for section in sections), default=0)
    return (start, end) if end - start == sum(section.length for section in sections) > 0 else None


def write_index(sink: Sink, files: Sequence[Path]) -> tuple[list[Section], int]:
    """Append the files of an index; also returns where what every search needs begins."""
    sections, small, described = [], [], []
    for file in files:
        spots = _spots(file)
        if spots is None:
            small.append(file)
            continue
        section, directory = _write_blocks(sink, file, spots)
        sections.append(section)
        described.append((file.name, directory))
    opening = sink.tell()
    for name, directory in described:
        sections.append(write_bytes_section(sink, directory, kind=BLOCKS, name=name))
    sections += [write_file_section(sink, file, kind="index") for file in small]
    return sections, opening


def _spots(file: Path) -> list[Range] | None:
    """The ranges that Tantivy always reads of a file; `None` if dividing it is not worthwhile."""
    size = file.stat().st_size
    least = _SMALL_TERMS if file.suffix == TERMS else _SMALL
    if file.suffix not in _RANGED or size <= least or _packs_well(file):
        return None
    with file.open("rb") as stream:
        stream.seek(max(0, size - _TAIL))
        tail = stream.read()
    try:
        ranges, directory = parts(tail, size)
    except UnknownDictionaryError:
        return None
    first = list(heads(ranges)) if file.suffix == POSTINGS else []
    return [*first, (directory, size)]


def _packs_well(file: Path) -> bool:
    """Whether little is left of a file: norms of texts of one length are all the same."""
    packer, length = zstandard.ZstdCompressor(level=_LEVEL).compressobj(), 0
    for piece in _pieces(file, 1 << 20):
        length += len(packer.compress(piece))
        if length > _SMALL:
            return False
    return length + len(packer.flush()) <= _SMALL


def _write_blocks(sink: Sink, file: Path, spots: Sequence[Range]) -> tuple[Section, bytes]:
    offset, crc, lengths, checksums = sink.tell(), 0, [], []
    packer = zstandard.ZstdCompressor(level=_LEVEL)
    for piece in _pieces(file, BLOCK):
        packed = packer.compress(piece)
        sink.write(packed)
        lengths.append(len(packed))
        checksums.append(zlib.crc32(piece))
        crc = zlib.crc32(piece, crc)
    with file.open("rb") as stream:
        copied = []
        for start, end in spots:
            stream.seek(start)
            copied.append((start, base64.b64encode(stream.read(end - start)).decode()))
    directory = {
        "block": BLOCK,
        "lengths": base64.b64encode(np.array(lengths, "<u4").tobytes()).decode(),
        "checksums": base64.b64encode(np.array(checksums, "<u4").tobytes()).decode(),
        "spots": copied,
    }
    size = file.stat().st_size
    section = Section("index", file.name, offset, sink.tell() - offset, size, crc, "zstd")
    return section, orjson.dumps(directory)


def _pieces(file: Path, size: int) -> Iterator[bytes]:
    with file.open("rb") as stream:
        while piece := stream.read(size):
            yield piece


# --- the parts that queries need -------------------------------------------------------------

_MANY_WORDS = 1_024
"""If a pattern matches more words than this, all postings that it may read are fetched."""
_WORTH_WHOLE = 0.5
"""A file of which more than this share is there is completed with the next request."""
_REMEMBERED = 100_000
_SIDE_BY_SIDE = 16
_GAP = GAP


Opened = tuple[Sequence["RangedSplit"], tantivy.Searcher]


@dataclass(frozen=True, eq=False)
class RangedFile:
    """An index file as a sparse copy."""

    directory: BlockDirectory
    copy: SparseCopy
    tail: bytes
    parts: dict[int, Range]

    @classmethod
    def open(cls, directory: BlockDirectory, copy: SparseCopy, *, path: str) -> RangedFile:
        """Store the ranges that Tantivy reads when it opens the file."""
        with copy.opened() as file:
            for at, data in directory.spots:
                file.write_spot(at, data)
        size = directory.section.size
        tail = next((data for at, data in directory.spots if at + len(data) == size), b"")
        try:
            return cls(directory, copy, tail, parts(tail, size)[0])
        except UnknownDictionaryError as error:
            raise DamagedIndexError(path, f"{directory.section.name}: {error}") from None

    def blocks_of(self, number: int, start: int, end: int) -> range:
        """The blocks of a range of a field's part."""
        first, last = self.parts.get(number, (0, 0))
        if not 0 <= start <= end <= last - first:
            raise UnknownDictionaryError("a word's postings are outside of the file")
        return self.directory.blocks_of(first + start, first + end)

    @property
    def all_blocks(self) -> range:
        """Every block."""
        return range(len(self.directory.checksums))


@dataclass(frozen=True)
class Segment:
    """A segment of which some files are sparse copies, by their suffixes."""

    files: dict[str, RangedFile]
    dictionary: Callable[[], TermDictionary]

    def blocks(
        self, need: Need, number: int, words: Sequence[str | bytes] | None
    ) -> Iterable[tuple[RangedFile, range]]:
        """The blocks that a need names, if the field's dictionary is there.

        `words` are those it is limited to, if that is known.
        """
        terms = None if isinstance(need, AllWords) else self.dictionary().field(number)
        if terms is None:
            return
        infos: list[TermInfo | None]
        if words is not None:
            infos = [terms.term(_spelled(word)) for word in words]
        else:
            prefix = need.prefix if isinstance(need, Beginning) else ""
            infos = [terms.beginning(prefix.encode())]
        with_positions = isinstance(need, Words) and need.positions
        for info in infos:
            if info is None:
                continue
            if POSTINGS in self.files:
                start, end = info.postings
                file = self.files[POSTINGS]
                yield file, file.blocks_of(number, start + POSTINGS_HEAD, end + POSTINGS_HEAD)
            if with_positions and POSITIONS in self.files:
                file = self.files[POSITIONS]
                yield file, file.blocks_of(number, *info.positions)

    def part(self, suffix: str, number: int) -> Iterable[tuple[RangedFile, range]]:
        """The blocks of a field's whole part of a file."""
        file = self.files.get(suffix)
        if file is not None and number in file.parts:
            start, end = file.parts[number]
            yield file, file.blocks_of(number, 0, end - start)


def _spelled(word: str | bytes) -> bytes:
    return word.encode() if isinstance(word, str) else word


@dataclass(frozen=True)
class RangedSplit:
    """The sparse copies of one split's index."""

    store: Store
    path: str
    segments: tuple[Segment, ...]
    fields: dict[str, int]

    def fetch(self, requested: dict[RangedFile, set[int]]) -> None:
        """Fetch missing blocks, all with one call."""
        with contextlib.ExitStack() as stack:
            # Always in one order, so that two processes do not wait for each other.
            files = sorted(requested, key=lambda file: file.copy.path)
            opened = [stack.enter_context(file.copy.opened()) for file in files]
            ranges: list[Range] = []
            for file, there in zip(files, opened, strict=True):
                missing = there.missing(requested[file])
                total = len(file.all_blocks)
                if missing and file.copy.present + len(missing) > _WORTH_WHOLE * total:
                    missing = there.missing(file.all_blocks)
                offsets = file.directory.offsets
                ranges += [(int(offsets[b]), int(offsets[b + 1])) for b in missing]
            # Blocks between two ranges that are read as one are stored, too.
            joined = [(start, end) for start, end, _ in coalesce(ranges, gap=_GAP)]
            data = self.store.get_ranges(self.path, joined) if joined else []
            for file, there in zip(files, opened, strict=True):
                there.write(self._contents(file.directory, dict(zip(joined, data, strict=True))))

    def _contents(self, directory: BlockDirectory, data: dict[Range, bytes]) -> dict[int, bytes]:
        """The blocks of a file that lie in ranges of the split, unpacked."""
        # One for all blocks, as making one takes a tenth of the time of a block.
        offsets, unpacker = directory.offsets, zstandard.ZstdDecompressor()
        contents: dict[int, bytes] = {}
        for (start, end), piece in data.items():
            first = int(offsets.searchsorted(start, "left"))
            last = int(offsets.searchsorted(end, "right")) - 1
            for block in range(first, last):
                low, high = int(offsets[block]) - start, int(offsets[block + 1]) - start
                contents[block] = directory.content(
                    block, piece[low:high], unpacker, path=self.path
                )
        return contents

    @property
    def is_current(self) -> bool:
        """Whether all copies are still those that the cache would name."""
        return all(f.copy.is_current for s in self.segments for f in s.files.values())

    def everything(self) -> dict[RangedFile, set[int]]:
        """All blocks of all files."""
        return {f: set(f.all_blocks) for s in self.segments for f in s.files.values()}


class Ranges:
    """What the queries of an open index need, of one split or of several."""

    def __init__(self, splits: Sequence[RangedSplit], reopen: Callable[[], Opened]) -> None:
        self.splits = splits
        self.searcher: tantivy.Searcher | None = None
        """The open index, once it was opened."""
        self._reopen = reopen
        self._moving_to: tantivy.Searcher | None = None
        self._pending: dict[Need, None] = {}
        self._provided: set[Need] = set()
        self._named: set[str] = set()
        self._scored: set[str] = set()
        self._is_whole = self._has_forgotten = False
        self._naming = threading.Lock()
        self._fetching = threading.Lock()
        """Held while bytes are fetched; others that need some of the same wait."""

    @property
    def is_whole(self) -> bool:
        """Whether all files are there."""
        return self._is_whole

    def name(self, need: Need) -> None:
        """Name the ranges that a query will read. The next search fetches them."""
        if self._is_whole:
            return
        with self._naming:
            if need not in self._provided:
                self._pending[need] = None
            self._named.add(need.field)

    def provide(self, *, scored: bool) -> None:
        """Fetch the named ranges that are missing; norms too, for scores."""
        if self._is_whole:
            return
        with self._fetching:
            with self._naming:
                norms = self._named - self._scored if scored else set()
                is_due = bool(self._pending or norms)
            if is_due:
                self._attempt(lambda: self._provide(norms))

    def provide_all(self) -> None:
        """Fetch everything that is missing."""
        with self._fetching:
            self._attempt(self._provide_all)

    def _attempt(self, work: Callable[[], None]) -> None:
        """Work, and again in new copies if those that are open cannot be written.

        Nobody sees the new index, or that it is complete, before that is so.
        """
        try:
            work()
        except SparseCopyError:
            self._move(work)
        files = [f for s in self.splits for x in s.segments for f in x.files.values()]
        self._is_whole = all(file.copy.is_whole for file in files)

    def _move(self, work: Callable[[], None]) -> None:
        before, scored = self.splits, set(self._scored)
        self.splits, self._moving_to = self._reopen()
        self._provide_again()
        try:
            self._provide(scored)
            if self._has_forgotten:
                self._provide_all()
            work()
        except BaseException as error:
            self.splits = before
            self._provide_again()
            if isinstance(error, SparseCopyError):
                raise DamagedIndexError(before[0].path, str(error)) from None
            raise
        finally:
            searcher, self._moving_to = self._moving_to, None
        self.searcher = searcher

    def _provide_again(self) -> None:
        """Forget what was provided, so that it is checked again."""
        with self._naming:
            self._pending = dict.fromkeys([*self._provided, *self._pending])
            self._provided.clear()
        self._scored.clear()

    def _provide(self, norms: set[str]) -> None:
        with self._naming:
            needs = list(self._pending)
        try:
            self._fetch(self._parts(TERMS, {need.field for need in needs}))
            self._fetch(
                [a | b for a, b in zip(self._blocks(needs), self._parts(NORMS, norms), strict=True)]
            )
        except UnknownDictionaryError:
            self._provide_all()
        with self._naming:
            if len(self._provided) > _REMEMBERED:
                self._provided.clear()
                self._has_forgotten = True
            self._provided.update(needs)
            for need in needs:
                del self._pending[need]
        self._scored |= norms

    def _provide_all(self) -> None:
        self._fetch([split.everything() for split in self.splits])

    def _parts(self, suffix: str, names: set[str]) -> list[dict[RangedFile, set[int]]]:
        """The blocks of the parts that fields have of a file."""
        result = []
        for split in self.splits:
            blocks_of: dict[RangedFile, set[int]] = defaultdict(set)
            for segment in split.segments:
                for name in names & split.fields.keys():
                    for file, blocks in segment.part(suffix, split.fields[name]):
                        blocks_of[file].update(blocks)
            result.append(blocks_of)
        return result

    def _blocks(self, needs: Sequence[Need]) -> list[dict[RangedFile, set[int]]]:
        limited = [self._limited_to(need) for need in needs]
        result = []
        for split in self.splits:
            blocks_of: dict[RangedFile, set[int]] = defaultdict(set)
            for segment in split.segments:
                for need, words in zip(needs, limited, strict=True):
                    number = split.fields.get(need.field)
                    if number is not None:
                        for file, blocks in segment.blocks(need, number, words):
                            blocks_of[file].update(blocks)
            result.append(blocks_of)
        return result

    def _limited_to(self, need: Need) -> Sequence[str | bytes] | None:
        """The words that a need is limited to; `None` if it is all that begin with its prefix."""
        if isinstance(need, Words):
            return need.words
        searcher = self._moving_to or self.searcher
        if isinstance(need, AllWords) or need.keep is None or searcher is None:
            return None
        listed = searcher.terms_with_prefix(need.field, need.prefix)
        words = need.keep([word for word, _ in listed])
        return None if words is None or len(words) > _MANY_WORDS else words

    def _fetch(self, requested: Sequence[dict[RangedFile, set[int]]]) -> None:
        """Fetch blocks of all splits, side by side."""
        work = []
        for split, blocks in zip(self.splits, requested, strict=True):
            unknown = {f: set(b) for f, b in blocks.items() if f.copy.unknown(b)}
            if unknown:
                work.append((split, unknown))
        if len(work) == 1:
            work[0][0].fetch(work[0][1])
        elif work:
            with ThreadPoolExecutor(min(_SIDE_BY_SIDE, len(work))) as pool:
                list(pool.map(lambda item: item[0].fetch(item[1]), work))
