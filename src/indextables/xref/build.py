"""Building an XRef: a Tantivy index with one document a split, and linking several into one.

`build_xref` reads the term lists of its sources a few splits ahead, adds each split as a document
and forgets it, so memory is bounded by the index writer's heap and the largest split's lists.
`merge_xrefs` copies the segments of XRefs that exist behind one another, which costs what copying
costs; documents of splits that are gone stay in the segments and lose their path. Both store a
finished file and commit nothing.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import time
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import orjson
import tantivy

from indextables import config as keys
from indextables.config import Config
from indextables.errors import UnusableXRefError, XRefError
from indextables.split.format import (
    META,
    Section,
    Segment,
    read_meta,
    write_bytes_section,
    write_file_section,
)
from indextables.split.mapping import ROW_FIELD
from indextables.split.write import MAX_HEAP, MIN_HEAP
from indextables.storage import Store
from indextables.storage.local import new_folder, remove_folder
from indextables.xref.container import (
    BLOOM,
    BloomFilters,
    BloomWriter,
    Described,
    FieldSet,
    SourceSplit,
    XRefFile,
    hashes,
    new_xref_id,
    xref_path,
)
from indextables.xref.fields import (
    RAW_FIELD,
    WORDS_FIELD,
    SourceTerms,
    TermField,
    XRefSource,
    index_schema,
    read_source,
)
from indextables.xref.open_xref import XRefData, read_xref

__all__ = ["BuiltXRef", "XRefSource", "build_xref", "merge_xrefs"]

_READ_AHEAD = 8
_DEFAULT_HEAP = 50_000_000


@dataclass(frozen=True, slots=True)
class BuiltXRef:
    """A stored XRef, with the fields of its `addXRef` action."""

    xref_id: str
    path: str
    size: int
    total_terms: int
    footer_start_offset: int
    footer_end_offset: int
    source_splits: tuple[str, ...]
    build_duration_ms: int


def build_xref(
    store: Store,
    sources: Sequence[XRefSource],
    *,
    config: Config,
    reading_s: float | None = None,
) -> BuiltXRef:
    """Build an XRef over some splits and store it. Nothing is committed.

    After `reading_s` seconds no more splits are read: the XRef covers those that were, one at the
    least.
    """
    started = time.monotonic()
    with _workplace(config) as place:
        index = _IndexBuilder(place / "index", heap_size=_heap(config))
        blooms = _Blooms(place, sources, config)
        splits = []
        read = functools.partial(
            read_source,
            store,
            bloom=blooms.columns,
            positions=config[keys.XREF_INCLUDE_POSITIONS],
        )
        for number, terms in enumerate(_ahead(read, sources)):
            if number and reading_s is not None and time.monotonic() - started > reading_s:
                break
            blooms.add(number, terms)
            splits.append(index.add(terms))
        files, segments = index.finish()
        file = XRefFile(place / "xref", splits)
        filters = blooms.write(file, documents=len(splits))
        compress = config[keys.XREF_COMPRESSION]
        sections = [section for section, _ in filters]
        sections += [
            write_file_section(file.sink, f, kind="index", compress=compress) for f in files
        ]
        fields = (*index.fields(), *blooms.fields())
        described = Described(fields, index.total_terms(), tuple(f for _, f in filters))
        seal = file.close(sections, (Segment(name) for name in segments), described)
        return _stored(
            store, place / "xref", splits, seal, described.total_terms,
            started=started, config=config,
        )  # fmt: skip


def merge_xrefs(
    store: Store,
    parts: Sequence[str],
    *,
    keep: Collection[str],
    config: Config,
) -> BuiltXRef:
    """Link XRefs into one and store it, of splits in `keep` only. No split is read.

    `total_terms` is the sum of the parts: counting different terms would take many times as long.
    `UnusableXRefError` if a part is damaged: build from the splits then.
    """
    started = time.monotonic()
    kept = frozenset(keep)
    opened = [read_xref(store, path) for path in parts]
    splits = [_masked(split, kept) for part in opened for split in part.coverage.splits()]
    with _workplace(config) as place:
        file = XRefFile(place / "xref", splits)
        filters = [*_linked_filters(file, opened)]
        sections = [*(section for section, _ in filters), *_linked_sections(file, opened)]
        fields = {f["key"]: f for part in opened for f in part.described.fields}
        total = sum(part.described.total_terms for part in opened)
        described = Described(tuple(fields.values()), total, tuple(f for _, f in filters))
        seal = file.close(sections, _linked_segments(opened), described)
        return _stored(
            store, place / "xref", splits, seal, total,
            started=started, config=config,
        )  # fmt: skip


# --- one document a split --------------------------------------------------------------------


class _IndexBuilder:
    def __init__(self, folder: Path, *, heap_size: int) -> None:
        folder.mkdir()
        self._folder = folder
        self._documents = 0
        self._fields: dict[str, TermField] = {}
        self._beginnings: set[tuple[str, str]] = set()
        index = tantivy.Index(index_schema(), path=str(folder), reuse=False)
        index.config_reader("manual")
        heap = min(max(heap_size, MIN_HEAP), MAX_HEAP)
        self._writer = index.writer(heap_size=heap, num_threads=1)

    def add(self, source_terms: SourceTerms) -> SourceSplit:
        """Add a split as the next document."""
        document = tantivy.Document()
        document.add_unsigned(ROW_FIELD, self._documents)
        self._documents += 1
        for field, terms in source_terms.terms:
            self._fields[field.key] = field
            words: list[str] = terms.to_pylist()
            self._beginnings.update((field.field, field.key + w[:1]) for w in words)
            if field.has_blanks:
                for word in words:
                    document.add_text(RAW_FIELD, field.key + word)
            elif words:
                # One text for all words is much quicker than a text a word.
                document.add_text(WORDS_FIELD, field.key + f" {field.key}".join(words))
        self._writer.add_document(document)
        fields = FieldSet(tuple(field.key for field, _ in source_terms.terms), source_terms.columns)
        return SourceSplit(source_terms.source.path, source_terms.source.size, fields)

    def finish(self) -> tuple[list[Path], list[str]]:
        """Write what is left; the files and the segments of the index."""
        try:
            self._writer.commit()
            self._writer.wait_merging_threads()
        except ValueError as error:  # Tantivy's error for a failing disk
            raise XRefError(f"Tantivy cannot write the index of the XRef: {error}.") from error
        meta = self._folder / META
        segments = orjson.loads(meta.read_bytes())["segments"]
        if sum(s["max_doc"] for s in segments) != self._documents:
            raise XRefError("The index of the XRef holds other splits than were added to it.")
        names = [s["segment_id"].replace("-", "") for s in segments]
        files = sorted(p for p in self._folder.iterdir() if p.name.partition(".")[0] in names)
        return [meta, *files], names

    def fields(self) -> tuple[dict[str, Any], ...]:
        return tuple(field.to_document() for field in self._fields.values())

    def total_terms(self) -> int:
        """How many different terms there are, counted letter by letter to stay in memory."""
        opened = tantivy.Index.open(str(self._folder))
        opened.config_reader("manual")
        searcher = opened.searcher()
        total = 0
        for field, beginning in self._beginnings:
            if beginning in self._fields:  # the empty value, whose term is a prefix of all others
                total += 1
            else:
                total += len(searcher.terms_with_prefix(field, beginning))
        return total


class _Blooms:
    """The filters of the columns that get some."""

    def __init__(self, place: Path, sources: Sequence[XRefSource], config: Config) -> None:
        names = (name.strip() for name in config[keys.XREF_BLOOM_FIELDS].split(","))
        self.columns = frozenset(name for name in names if name)
        self._place = place
        self._splits = len(sources)
        # One size for all, so that they can be stored block by block.
        self._values = max((s.num_records or 0 for s in sources), default=0)
        self._bits = config[keys.XREF_BLOOM_BITS]
        self._writers: dict[TermField, BloomWriter] = {}

    def add(self, document: int, terms: SourceTerms) -> None:
        """The filters of a split."""
        for field, values in terms.identifiers:
            if field not in self._writers:
                self._writers[field] = BloomWriter(
                    self._place / f"bloom-{field.key}",
                    field.key,
                    splits=self._splits,
                    values=self._values,
                    bits=self._bits,
                )
            self._writers[field].add(document, hashes(values))

    def fields(self) -> Iterator[dict[str, Any]]:
        return (field.to_document() for field in self._writers)

    def write(self, file: XRefFile, *, documents: int) -> list[tuple[Section, BloomFilters]]:
        """Store all filters behind the documents."""
        writers = self._writers.values()
        return [writer.write(file.sink, documents=documents) for writer in writers]


def _ahead(
    read: Callable[[XRefSource], SourceTerms], sources: Sequence[XRefSource]
) -> Iterator[SourceTerms]:
    """The terms of each source in order, read a few splits ahead."""
    remaining = iter(sources)
    with ThreadPoolExecutor(_READ_AHEAD, thread_name_prefix="indextables-xref-build") as pool:
        waiting: deque[Future[SourceTerms]] = deque(
            pool.submit(read, source) for source in itertools.islice(remaining, _READ_AHEAD)
        )
        try:
            while waiting:
                terms = waiting.popleft().result()
                waiting.extend(
                    pool.submit(read, source) for source in itertools.islice(remaining, 1)
                )
                yield terms
        finally:
            for future in waiting:
                future.cancel()


# --- linking ---------------------------------------------------------------------------------


def _masked(split: SourceSplit, keep: frozenset[str]) -> SourceSplit:
    return split if split.path in keep else replace(split, path=None)


def _linked_sections(file: XRefFile, parts: Sequence[XRefData]) -> Iterator[Section]:
    metas = [read_meta(part.read, part.info, path=part.path) for part in parts]
    segments = [segment for meta in metas for segment in meta["segments"]]
    names = [s["segment_id"] for s in segments]
    if len(set(names)) < len(names) or any(m["schema"] != metas[0]["schema"] for m in metas):
        raise UnusableXRefError(parts[0].path, "it shares segments with another one")
    joined = orjson.dumps(metas[0] | {"segments": segments})
    yield write_bytes_section(file.sink, joined, kind="index", name=META)
    for part in parts:
        for section in part.info.index_sections():
            if section.name == META:
                continue
            part.content(section)  # a copy of damaged bytes would have to be found out later
            offset = file.sink.tell()
            file.sink.write(part.read(section.offset, section.offset + section.length))
            yield replace(section, offset=offset)


def _linked_filters(
    file: XRefFile, parts: Iterable[XRefData]
) -> Iterator[tuple[Section, BloomFilters]]:
    base = 0
    for part in parts:
        sections = {section.name: section for section in part.info.sections}
        for filters in part.described.filters:
            section = sections[filters.section]
            data = part.content(section)
            moved = filters.base + base
            name = f"{BLOOM}-{filters.key}-{moved}"
            offset = file.sink.tell()
            file.sink.write(data)
            yield (
                replace(section, name=name, offset=offset),
                replace(filters, section=name, base=moved),
            )
        base += len(part.coverage)


def _linked_segments(parts: Iterable[XRefData]) -> Iterator[Segment]:
    base = 0
    for part in parts:
        for segment in part.info.segments:
            yield replace(segment, base=segment.base + base)
        base += len(part.coverage)


# --- storing ---------------------------------------------------------------------------------


def _heap(config: Config) -> int:
    heap = config[keys.XREF_HEAP_SIZE]
    if heap is not None:
        return heap
    is_set = keys.WRITER_HEAP_SIZE.name.lower() in list(config)
    return config[keys.WRITER_HEAP_SIZE] if is_set else _DEFAULT_HEAP


@contextlib.contextmanager
def _workplace(config: Config) -> Iterator[Path]:
    parent = config[keys.XREF_TEMP_DIRECTORY] or config[keys.WRITER_TEMP_DIRECTORY] or None
    try:
        place = new_folder("xref", parent)
    except OSError as error:
        raise XRefError(f"Cannot build an XRef under {parent}: {error}.") from error
    try:
        yield place
    finally:
        remove_folder(place)


def _stored(
    store: Store,
    file: Path,
    splits: Sequence[SourceSplit],
    seal: int,
    total_terms: int,
    *,
    started: float,
    config: Config,
) -> BuiltXRef:
    name = new_xref_id()
    path = xref_path(name, directory=config[keys.XREF_DIRECTORY])
    size = file.stat().st_size
    store.put_file(path, file)
    return BuiltXRef(
        xref_id=name,
        path=path,
        size=size,
        total_terms=total_terms,
        footer_start_offset=seal,
        footer_end_offset=size,
        source_splits=tuple(s.path for s in splits if s.path is not None),
        build_duration_ms=round(1000 * (time.monotonic() - started)),
    )
