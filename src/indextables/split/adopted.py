"""Indexes of other splits that a new split takes over.

The files of a segment mean the same wherever they lie, and a document says which index its row
number belongs to. So the indexes of splits whose rows are copied are laid side by side into one
folder, and Tantivy merges their segments there: no row is tokenised again, which is many times
quicker.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson
import zstandard

from indextables.errors import DamagedIndexError
from indextables.split.container import ReadRange, Section, SplitInfo
from indextables.split.index_searcher import LONGEST_FOOTER, check_file
from indextables.split.open_index import META, read_meta
from indextables.split.row_numbers import Tags

_PIECE = 4 << 20
MERGED_FROM = 8
"""Tantivy merges segments of a size as soon as there are so many."""


@dataclass(frozen=True, slots=True)
class AdoptedIndex:
    """Indexes in one folder, and the rows that they are of, in the order of the new split."""

    folder: Path
    rows: int
    row_tags: Tags


@dataclass(frozen=True, slots=True)
class SourceIndex:
    """The index of a split, and how to read it."""

    path: str
    info: SplitInfo
    read: ReadRange

    def copy(self, folder: Path, schema: list[Any]) -> list[dict[str, Any]]:
        """Copy its files into a folder, checked; gives what Tantivy says of its segments.

        `schema` is that of the index to be. A segment can be part of it if its own schema is the
        beginning of it.
        """
        meta = read_meta(self.read, self.info, path=self.path)
        segments: list[dict[str, Any]] = meta["segments"]
        if meta["schema"] != schema[: len(meta["schema"])]:
            raise DamagedIndexError(self.path, "its index has other fields than its mapping says")
        copied = []
        try:
            for section in self.info.index_sections():
                if section.name != META:
                    copied.append(folder / section.name)
                    self._copy(section, copied[-1])
        except DamagedIndexError:
            for file in copied:
                file.unlink(missing_ok=True)
            raise
        return segments

    def _copy(self, section: Section, target: Path) -> None:
        """Write the content of a section to a file, a piece at a time, and check it."""
        size, crc, tail = 0, 0, b""
        decompressor = zstandard.ZstdDecompressor().decompressobj() if section.codec else None
        end = section.offset + section.length
        with target.open("wb") as file:
            for start in range(section.offset, end, _PIECE):
                data = self.read(start, min(start + _PIECE, end))
                try:
                    content = data if decompressor is None else decompressor.decompress(data)
                except zstandard.ZstdError as error:
                    raise DamagedIndexError(
                        self.path, f"{section.name} does not decompress ({error})"
                    ) from None
                size, crc = size + len(content), zlib.crc32(content, crc)
                if size > section.size:
                    break
                file.write(content)
                tail = (tail + content)[-LONGEST_FOOTER:]
        if size != section.size or crc != section.crc:
            raise DamagedIndexError(self.path, f"the checksum of {section.name} is wrong")
        check_file(section, tail, path=self.path)


def write_meta(folder: Path, like: bytes, segments: Sequence[dict[str, Any]]) -> None:
    """Describe the segments of a folder to Tantivy, as an empty index of the schema does."""
    document = orjson.loads(like) | {"segments": list(segments)}
    (folder / META).write_bytes(orjson.dumps(document))


def moved_tags(sources: Sequence[SourceIndex]) -> Iterator[tuple[int, int]]:
    """The tags of the sources; rows of each source follow those of the one before."""
    first = 0
    for source in sources:
        for tag, row in source.info.row_tags:
            yield tag, first + row
        first += source.info.rows
