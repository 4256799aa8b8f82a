"""The parts of index files that queries need, fetched before Tantivy reads them.

Tantivy maps files into memory. Those of a remote index are sparse copies in the disk cache, with
nothing but holes where nobody looked yet, and a hole would be read as zeros. So whoever builds a
query for Tantivy *names* what it reads (`Ranges.name`), and what was named is *provided* before
Tantivy searches. Bytes that are written to a file appear in memory that was mapped before.

What is named covers whatever Tantivy may read; the term dictionary says where it lies. If a
dictionary is not of the known format, or something cannot be named, all of the index is provided.
"""

from __future__ import annotations

import contextlib
import threading
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import tantivy

from indextables.errors import DamagedIndexError
from indextables.split.format.blocks import NORMS, POSITIONS, POSTINGS, TERMS, BlockDirectory
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
    parts,
)
from indextables.storage.sparse_copy import SparseCopy, SparseCopyError
from indextables.storage.store import GAP, Store, coalesce

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
        """Write down what Tantivy reads when it opens the file."""
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

    def fetch(self, wanted: dict[RangedFile, set[int]]) -> None:
        """Bring blocks that are not there, all with one call."""
        with contextlib.ExitStack() as stack:
            # Always in one order, so that two processes do not wait for each other.
            files = sorted(wanted, key=lambda file: file.copy.path)
            opened = [stack.enter_context(file.copy.opened()) for file in files]
            ranges: list[Range] = []
            for file, there in zip(files, opened, strict=True):
                missing = there.missing(wanted[file])
                total = len(file.all_blocks)
                if missing and file.copy.present + len(missing) > _WORTH_WHOLE * total:
                    missing = there.missing(file.all_blocks)
                offsets = file.directory.offsets
                ranges += [(int(offsets[b]), int(offsets[b + 1])) for b in missing]
            # What lies between two ranges that are read as one is kept, too.
            joined = [(start, end) for start, end, _ in coalesce(ranges, gap=_GAP)]
            data = self.store.get_ranges(self.path, joined) if joined else []
            for file, there in zip(files, opened, strict=True):
                there.write(self._contents(file.directory, dict(zip(joined, data, strict=True))))

    def _contents(self, directory: BlockDirectory, data: dict[Range, bytes]) -> dict[int, bytes]:
        """The blocks of a file that lie in ranges of the split, unpacked."""
        offsets = directory.offsets
        found: dict[int, bytes] = {}
        for (start, end), piece in data.items():
            first = int(offsets.searchsorted(start, "left"))
            last = int(offsets.searchsorted(end, "right")) - 1
            for block in range(first, last):
                low, high = int(offsets[block]) - start, int(offsets[block + 1]) - start
                found[block] = directory.content(block, piece[low:high], path=self.path)
        return found

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
        """Held while bytes are fetched; whoever needs some of the same waits."""

    @property
    def is_whole(self) -> bool:
        """Whether all files are there."""
        return self._is_whole

    def name(self, need: Need) -> None:
        """Say what a query is going to read. Whoever searches next provides it."""
        if self._is_whole:
            return
        with self._naming:
            if need not in self._provided:
                self._pending[need] = None
            self._named.add(need.field)

    def provide(self, *, scored: bool) -> None:
        """Bring what was named and is not there; norms too, for scores."""
        if self._is_whole:
            return
        with self._fetching:
            with self._naming:
                norms = self._named - self._scored if scored else set()
                is_due = bool(self._pending or norms)
            if is_due:
                self._attempt(lambda: self._provide(norms))

    def provide_all(self) -> None:
        """Make all copies whole."""
        with self._fetching:
            self._attempt(self._provide_all)

    def _attempt(self, work: Callable[[], None]) -> None:
        """Work, and once more in new copies if those that are open cannot be written.

        Nobody sees the new index, or hears that all is there, before that is so.
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
        """Take nothing for granted that was provided."""
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
            wanted: dict[RangedFile, set[int]] = defaultdict(set)
            for segment in split.segments:
                for name in names & split.fields.keys():
                    for file, blocks in segment.part(suffix, split.fields[name]):
                        wanted[file].update(blocks)
            result.append(wanted)
        return result

    def _blocks(self, needs: Sequence[Need]) -> list[dict[RangedFile, set[int]]]:
        limited = [self._limited_to(need) for need in needs]
        result = []
        for split in self.splits:
            wanted: dict[RangedFile, set[int]] = defaultdict(set)
            for segment in split.segments:
                for need, words in zip(needs, limited, strict=True):
                    number = split.fields.get(need.field)
                    if number is not None:
                        for file, blocks in segment.blocks(need, number, words):
                            wanted[file].update(blocks)
            result.append(wanted)
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

    def _fetch(self, wanted: Sequence[dict[RangedFile, set[int]]]) -> None:
        """Bring blocks of all splits, side by side."""
        work = []
        for split, blocks in zip(self.splits, wanted, strict=True):
            unknown = {f: set(b) for f, b in blocks.items() if f.copy.unknown(b)}
            if unknown:
                work.append((split, unknown))
        if len(work) == 1:
            work[0][0].fetch(work[0][1])
        elif work:
            with ThreadPoolExecutor(min(_SIDE_BY_SIDE, len(work))) as pool:
                list(pool.map(lambda item: item[0].fetch(item[1]), work))
