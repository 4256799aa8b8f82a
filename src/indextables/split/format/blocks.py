"""Index files in blocks, so that a part of one can be fetched and checked.

The postings and positions of an index are most of its bytes, and a query reads few of them. They
are stored as Zstandard frames of 16 KB each, which takes as much room as one frame does. A section
of the kind `blocks` says how long each frame is and what its content's checksum is. It also repeats
the *spots* of the file that Tantivy reads whatever it is asked: the end of the file, and the first
bytes of every field's postings.

Everything else that a search needs first lies together, directly before the lists and the footer:
these directories, fast fields, `meta.json`, the term dictionary if it is not large. One request
brings it.
"""

from __future__ import annotations

import base64
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import numpy.typing as npt
import orjson
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
    Range,
    UnknownDictionaryError,
    heads,
    parts,
)

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

    def content(self, number: int, data: bytes, *, path: str) -> bytes:
        """The content of a block, checked."""
        size = min(self.block, self.section.size - number * self.block)
        try:
            found = zstandard.ZstdDecompressor().decompress(data, max_output_size=size)
        except zstandard.ZstdError as error:
            raise self._damaged(path, str(error)) from None
        if len(found) != size or zlib.crc32(found) != self.checksums[number]:
            raise self._damaged(path, f"the checksum of block {number} is wrong")
        return found

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
    found = opening_sections(info)
    start = min((section.offset for section in found), default=0)
    end = max((section.offset + section.length for section in found), default=0)
    return (start, end) if end - start == sum(section.length for section in found) > 0 else None


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
    """What Tantivy always reads of a file that is worth dividing; `None` if it is not."""
    size = file.stat().st_size
    least = _SMALL_TERMS if file.suffix == TERMS else _SMALL
    if file.suffix not in _RANGED or size <= least or _packs_well(file):
        return None
    with file.open("rb") as stream:
        stream.seek(max(0, size - _TAIL))
        tail = stream.read()
    try:
        found, directory = parts(tail, size)
    except UnknownDictionaryError:
        return None
    first = list(heads(found)) if file.suffix == POSTINGS else []
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
