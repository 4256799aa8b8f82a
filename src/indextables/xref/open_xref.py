"""An opened XRef: its documents, and its index in memory, ready to be asked.

The whole file is fetched with one request, because a question may need any part of it; of a very
large one the bloom filters stay where they are and are read row by row. Tantivy wants files: they
are written to a temporary folder, mapped, and unlinked at once.

XRefs stay open in this process within a limit of memory. Two memories keep routing cheap: an XRef
that failed or was too slow is not tried again for a while, and a question that did not narrow is
not asked again for a while. Both cost at most splits that are read for nothing.
"""

from __future__ import annotations

import functools
import threading
import time
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np
import tantivy
from cachetools import LRUCache, TTLCache

from indextables.errors import DamagedIndexError, SplitFileError, StorageError, UnusableXRefError
from indextables.split.format import (
    LONGEST_FOOTER,
    META,
    Footer,
    IndexSearcher,
    ReadRange,
    Section,
    SplitInfo,
    check_file,
    read_footer,
    read_meta,
    read_section,
    tantivy_errors,
)
from indextables.split.search import with_stack
from indextables.storage import Store
from indextables.storage.local import new_folder, remove_folder
from indextables.xref.container import (
    BLOOM,
    BloomFilters,
    Coverage,
    Described,
    Mask,
    possible,
    read_description,
)
from indextables.xref.fields import TermField, index_document
from indextables.xref.question import (
    EVERYTHING,
    AllOf,
    AnyOf,
    Everything,
    HasAny,
    HasMatch,
    HasNear,
    Question,
    TermQuestion,
    all_of,
    any_of,
    levels,
    term_questions,
)

_Occur = tantivy.Occur
Result = TypeVar("Result")

WHOLE = 64 << 20
"""A file of at most so many bytes is fetched with one request."""


@dataclass(frozen=True)
class XRefData:
    """The bytes of an XRef's file, with its footer and its documents."""

    path: str
    read: ReadRange
    footer: Footer
    coverage: Coverage
    described: Described

    @property
    def info(self) -> SplitInfo:
        """The description in the container's footer."""
        return self.footer.info

    def content(self, section: Section) -> bytes:
        """The content of a section, checked."""
        return _checked(self.path, lambda: read_section(self.read, section, path=self.path))


def read_xref(
    store: Store,
    path: str,
    *,
    size: int | None = None,
    footer_start: int | None = None,
    most_at_once: int = WHOLE,
) -> XRefData:
    """Fetch an XRef and check its footer. `size` and `footer_start` are what the log says.

    One request does it up to `whole` bytes; of a larger file the footer is read first.
    """

    def read(start: int, end: int) -> bytes:
        try:
            return store.get_range(path, start, end)
        except StorageError as error:
            raise UnusableXRefError(path, str(error).rstrip(".")) from error

    try:
        length = store.head(path).size if size is None else size
    except StorageError as error:
        raise UnusableXRefError(path, str(error).rstrip(".")) from error
    if length <= most_at_once:
        data = read(0, length)
        read = lambda start, end: data[start:end]  # noqa: E731 - the same function, from memory
    footer = _checked(
        path, lambda: read_footer(read, length, path=path, start=footer_start, end=length)
    )
    coverage, described = read_description(footer, read, path=path)
    if len(coverage) != footer.info.rows:
        raise UnusableXRefError(path, "it has other documents than it says")
    return XRefData(path, read, footer, coverage, described)


def _ahead(read: ReadRange, sections: Sequence[Section]) -> ReadRange:
    """Reads from a copy of the range that holds all these sections, and the rest as before."""
    first = min(section.offset for section in sections)
    last = max(section.offset + section.length for section in sections)
    data = read(first, last)

    def read_ahead(start: int, end: int) -> bytes:
        if first <= start <= end <= last:
            return data[start - first : end - first]
        return read(start, end)

    return read_ahead


def _nothing(start: int, end: int) -> bytes:
    raise AssertionError(f"bytes {start} to {end} are not read")


def _checked(path: str, read: Callable[[], Result]) -> Result:
    try:
        return read()
    except SplitFileError as error:
        raise UnusableXRefError(path, getattr(error, "reason", str(error))) from error


@dataclass(frozen=True)
class OpenXRef:
    """An XRef that answers questions. `size` is what it takes of the memory for XRefs."""

    path: str
    size: int
    coverage: Coverage
    schema: tantivy.Schema
    searcher: IndexSearcher
    bases: tuple[int, ...]
    filters: tuple[BloomFilters, ...]
    bloom: dict[str, Section]
    read: ReadRange

    @classmethod
    def open(
        cls,
        store: Store,
        path: str,
        *,
        size: int | None = None,
        footer_start: int | None = None,
        most_at_once: int = WHOLE,
    ) -> OpenXRef:
        """Fetch and open an XRef, or raise `UnusableXRefError`."""
        opened = read_xref(
            store, path, size=size, footer_start=footer_start, most_at_once=most_at_once
        )
        sections, read = opened.info.index_sections(), opened.read
        if opened.footer.end > most_at_once and sections:
            opened = replace(opened, read=_ahead(opened.read, sections))
        meta = _checked(path, lambda: read_meta(opened.read, opened.info, path=path))
        if meta["schema"] != index_document():
            raise UnusableXRefError(path, "its index has other fields than an XRef")
        place = new_folder("xref")
        try:
            taken = 0
            for section in sections:
                content = opened.content(section)
                if section.name != META:
                    check_file(section, content[-LONGEST_FOOTER:], path=path)
                (place / section.name).write_bytes(content)
                taken += len(content)
            with tantivy_errors(path):
                index = tantivy.Index.open(str(place))
                index.config_reader("manual")
                searcher = IndexSearcher(path, index.searcher())
        except DamagedIndexError as error:
            raise UnusableXRefError(path, error.reason) from error
        except OSError as error:
            raise UnusableXRefError(path, f"its index cannot be written ({error})") from error
        finally:
            remove_folder(place)
        if searcher.num_docs != len(opened.coverage):
            raise UnusableXRefError(path, "its index has other documents than its rows")
        bases = tuple(segment.base for segment in opened.info.segments)
        bloom = {s.name: s for s in opened.info.sections if s.kind == BLOOM}
        if bloom and opened.footer.end <= most_at_once:
            # Only the filters stay in memory, not the whole file.
            start = min(s.offset for s in bloom.values())
            kept = read(start, max(s.offset + s.length for s in bloom.values()))
            taken += len(kept)
            read = lambda low, high: kept[low - start : high - start]  # noqa: E731
        elif not bloom:
            read = _nothing
        return cls(
            path, taken, opened.coverage, index.schema, searcher, bases,
            opened.described.filters, bloom, read,
        )  # fmt: skip

    def ask(self, question: Question) -> Mask:
        """The documents whose splits may match."""
        return with_stack(levels(question), lambda: self._ask(self._askable(question)))

    def _askable(self, question: Question) -> Question:
        """The question without parts about columns that no document has terms for."""
        match question:
            case AllOf(children=children):
                return all_of(map(self._askable, children))
            case AnyOf(children=children):
                return any_of(map(self._askable, children))
            case HasAny() | HasMatch() | HasNear():
                key = question.field.key
                is_indexed = self.knows(question.field).any() or any(
                    f.key == key for f in self.filters
                )
                return question if is_indexed else EVERYTHING
            case Everything():
                return question

    def _ask(self, question: Question) -> Mask:
        if all(self._knows_all(leaf.field) for leaf in term_questions(question)):
            return self._search(question)
        match question:
            case AllOf(children=children):
                return functools.reduce(np.logical_and, map(self._ask, children))
            case AnyOf(children=children):
                return functools.reduce(np.logical_or, map(self._ask, children))
            case HasAny() | HasMatch() | HasNear():
                unknown = ~self.knows(question.field)
                return self._search(question) | (unknown & self._bloom(question))
            case Everything():
                return np.ones(len(self.coverage), dtype=np.bool_)

    @functools.cached_property
    def _documents_with(self) -> dict[TermField, tuple[Mask, bool]]:
        return {}

    def knows(self, field: TermField) -> Mask:
        """The documents that have all terms of a field."""
        if field not in self._documents_with:
            mask = self.coverage.knows(field)
            self._documents_with[field] = (mask, bool(mask.all()))
        return self._documents_with[field][0]

    def _knows_all(self, field: TermField) -> bool:
        self.knows(field)
        return self._documents_with[field][1]

    def _bloom(self, question: TermQuestion) -> Mask:
        """The documents that their bloom filters do not rule out."""
        filters = [f for f in self.filters if f.key == question.field.key]
        if not filters or not isinstance(question, HasAny):
            return np.ones(len(self.coverage), dtype=np.bool_)
        return possible(
            filters,
            self.bloom,
            self.read,
            question.terms,
            documents=len(self.coverage),
            path=self.path,
        )

    def _search(self, question: Question) -> Mask:
        query = self._compile(question)
        if query is None:
            return np.ones(len(self.coverage), dtype=np.bool_)
        mask = np.zeros(len(self.coverage), dtype=np.bool_)
        total = len(self.coverage)
        mask[self.searcher.rows(query, total=total, bases=self.bases)] = True
        return mask

    def _compile(self, question: Question) -> tantivy.Query | None:
        """The query of a question; `None` means everything."""
        match question:
            case Everything():
                return None
            case AllOf(children=children):
                parts = [q for q in map(self._compile, children) if q is not None]
                if not parts:
                    return None
                return tantivy.Query.boolean_query([(_Occur.Must, query) for query in parts])
            case AnyOf(children=children):
                compiled = [self._compile(child) for child in children]
                parts = [q for q in compiled if q is not None]
                if len(parts) < len(compiled):
                    return None
                if not parts:
                    return tantivy.Query.empty_query()
                return tantivy.Query.boolean_query([(_Occur.Should, query) for query in parts])
            case _:
                return self._terms(question)

    def _terms(self, question: TermQuestion) -> tantivy.Query | None:
        name, key = question.field.field, question.field.key
        match question:
            case HasAny(terms=(term,)):
                return tantivy.Query.term_query(self.schema, name, key + term, index_option="basic")
            case HasAny(terms=terms):
                if not terms:
                    return tantivy.Query.empty_query()
                return tantivy.Query.term_set_query(self.schema, name, [key + t for t in terms])
            case HasMatch(pattern=pattern):
                try:
                    return tantivy.Query.regex_query(self.schema, name, f"{key}(?:{pattern})")
                except ValueError:
                    return None  # the reader of the rows raises the error
            case HasNear(term=term, distance=distance):
                return tantivy.Query.fuzzy_term_query(
                    self.schema, name, key + term, distance=distance, transposition_cost_one=True
                )


FORGET_AFTER = 60.0
"""Seconds until a useless XRef or question is tried again."""
_MOST_REMEMBERED = 4_096

Key = tuple[str, str]
"""The identity of a store and a path in it."""


class XRefPool:
    """The XRefs that were used last. Safe between threads."""

    def __init__(self, *, max_bytes: int) -> None:
        # One that is larger than the limit is kept alone.
        self._open: LRUCache[Key, OpenXRef] = LRUCache(
            max_bytes, lambda xref: min(xref.size, max_bytes)
        )
        self._lock = threading.Lock()

    def _if_open(self, store: Store, path: str) -> OpenXRef | None:
        """An XRef that is open already."""
        with self._lock:
            return self._open.get((store.identity, path))

    def get(
        self, store: Store, path: str, *, size: int, footer_start: int | None = None
    ) -> OpenXRef:
        """An XRef, opened now or before."""
        xref = self._if_open(store, path)
        if xref is not None:
            return xref
        # Two threads may open the same one; the first one kept stays.
        opened = OpenXRef.open(store, path, size=size, footer_start=footer_start)
        with self._lock:
            return self._open.setdefault((store.identity, path), opened)

    def clear(self) -> int:
        """Close all; returns their number. One that is being asked stays open."""
        with self._lock:
            count = len(self._open)
            self._open.clear()
        return count

    def __len__(self) -> int:
        return len(self._open)


class Memory:
    """Recently useless XRefs and questions, each with the reason. Thread-safe."""

    def __init__(
        self, *, seconds: float = FORGET_AFTER, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._reasons: TTLCache[Hashable, str] = TTLCache(_MOST_REMEMBERED, seconds, clock)
        self._lock = threading.Lock()

    def note(self, key: Hashable, reason: str) -> None:
        """Remember for a while."""
        with self._lock:
            self._reasons[key] = reason

    def recall(self, key: Hashable) -> str | None:
        """Why something was useless, if that is not long ago."""
        with self._lock:
            return self._reasons.get(key)

    def clear(self) -> None:
        """Forget everything."""
        with self._lock:
            self._reasons.clear()


_pools: dict[int, XRefPool] = {}
_pools_lock = threading.Lock()


def shared_pool(max_bytes: int) -> XRefPool:
    """The open XRefs of all tables and queries of a process."""
    with _pools_lock:
        return _pools.setdefault(max_bytes, XRefPool(max_bytes=max_bytes))


def close_xrefs() -> int:
    """Close all XRefs that this process has open, and forget which were useless."""
    failures.clear()
    dull_questions.clear()
    with _pools_lock:
        return sum(pool.clear() for pool in _pools.values())


failures = Memory()
"""XRefs that could not be used."""
dull_questions = Memory()
"""Questions that kept nearly every split."""
