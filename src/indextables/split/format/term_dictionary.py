"""What a query reads of an index: words of a field, and where in its files their postings are.

Tantivy maps files into memory and has no way to say what it will read. It follows from the `.term`
file alone, so a remote index need not be copied whole. All numbers are little-endian.

- Every file ends with a JSON document, its length and a magic number (`file_end`).
- `.term`, `.idx`, `.pos` and `.fieldnorm` hold a part for each field, listed in a directory before
  that end: a count, then for each part its distance from the one before, the field's number and 0.
- A field's part of `.term` is a finite state transducer from words to their places in the sorted
  list of words, then a table of *term infos*, its size and the version of the format.
- The table has a meta entry for 256 words, whose first word it describes, and packed differences
  for the others. Postings, and positions, follow each other in the order of the words.
- A field's part of `.idx` begins with 8 bytes; offsets of postings count from behind them.

A file may come from anywhere. What is not as described is an `UnknownDictionaryError`, and the
index is then copied whole.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import orjson
import pyarrow as pa
import pyarrow.compute as pc


@dataclass(frozen=True, slots=True)
class AllWords:
    """The dictionary of a field, and no postings. Whatever else is named of a field includes it."""

    field: str


@dataclass(frozen=True, slots=True)
class Words:
    """Exactly these words of a field, with their positions for a phrase; bytes as they are."""

    field: str
    words: tuple[str | bytes, ...]
    positions: bool = False


@dataclass(frozen=True, slots=True)
class Beginning:
    """All words of a field that begin with a text; those of `keep` only, if it can tell."""

    field: str
    prefix: str = ""
    keep: Callable[[Sequence[str]], Sequence[str] | None] | None = None


Need = AllWords | Words | Beginning


@dataclass(frozen=True, slots=True)
class Pattern:
    """The words that a wildcard matches. RE2 and Tantivy agree on these patterns."""

    pattern: str

    def __call__(self, words: Sequence[str]) -> Sequence[str] | None:
        spelled = self.pattern.replace("\0", r"\x00")  # RE2 takes a NUL only by its number
        array = pa.array(words, pa.string())
        try:
            matched: Any = pc.match_substring_regex(array, rf"\A(?:{spelled})\z")
        except pa.ArrowInvalid:
            return None
        return [str(word) for word in array.filter(matched).to_pylist()]


# --- the term dictionary ---------------------------------------------------------------------

Range = tuple[int, int]

INDEX_FORMAT = 7
"""The version of Tantivy's files that is described here."""
POSTINGS_HEAD = 8
_END = struct.Struct("<II")
_END_MAGIC = 1337
_DICTIONARY_END = struct.Struct("<QII")
_DICTIONARY_VERSION, _DICTIONARY_KIND = 1, 1
_BLOCK_TERMS = 256
_META = struct.Struct("<QIQIQIBBB")
_FST_HEAD = 16
_FST_VERSIONS = (1, 2)
_MANY_TRANSITIONS = 32
_LONGEST_WORD = 1 << 17
_COMMON = b"te/oasripcnw.hlm-du012g=:bf3y5&_4v9678k%?xCDASFIBEjPTzRNM+LOqHG"
"""Frequent letters, which a transition spells as a number from 1 on."""


class UnknownDictionaryError(ValueError):
    """An index file that is not of the described format."""


class TermInfo(NamedTuple):
    """Where the postings and positions of one word are, in the parts of its field."""

    postings: Range
    positions: Range


def file_end(tail: bytes) -> int:
    """How many of the last bytes of a Tantivy file are its end; its version must be the known one.

    `tail` is the end of the file, longer than what Tantivy writes there.
    """
    try:
        length, magic = _END.unpack_from(tail, len(tail) - _END.size)
        document = orjson.loads(tail[len(tail) - _END.size - length : len(tail) - _END.size])
        version = document["version"]["index_format_version"]
    except (struct.error, ValueError, KeyError, TypeError) as error:
        raise UnknownDictionaryError(f"its end cannot be read ({error!r})") from None
    if magic != _END_MAGIC or version != INDEX_FORMAT:
        raise UnknownDictionaryError(f"it has format {version}")
    return int(length) + _END.size


def parts(data: bytes | memoryview, size: int) -> tuple[dict[int, Range], int]:
    """The part of each field of a file, and where their directory begins.

    `data` is the whole file or its end; `size` is that of the file.
    """
    missing = size - len(data)
    tail = bytes(data[-(4 << 10) :])
    end = len(data) - file_end(tail)
    try:
        (length,) = struct.unpack_from("<I", data, end - 4)
        first = end - 4 - length
        if first < 0:
            raise IndexError
        directory = bytes(data[first : end - 4])
        count, at = _vint(directory, 0)
        firsts: list[tuple[int, int]] = []
        offset = 0
        for _ in range(count):
            distance, at = _vint(directory, at)
            offset += distance
            (field,) = struct.unpack_from("<I", directory, at)
            index, at = _vint(directory, at + 4)
            if index:
                raise IndexError
            firsts.append((field, offset))
    except (struct.error, IndexError):
        raise UnknownDictionaryError("its directory of fields cannot be read") from None
    stops = [start for _, start in firsts[1:]] + [missing + first]
    result = {field: (start, stop) for (field, start), stop in zip(firsts, stops, strict=True)}
    if (
        at != len(directory)
        or len(result) != len(firsts)
        or any(start > stop for start, stop in result.values())
    ):
        raise UnknownDictionaryError("its directory of fields contradicts itself")
    return result, missing + first


def _vint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while shift < 64:
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        shift += 7
        if byte & 128:
            return value, at
    raise IndexError


class TermDictionary:
    """The `.term` file of a segment."""

    def __init__(self, data: bytes | memoryview) -> None:
        self._data = memoryview(data)
        self._parts = parts(self._data, len(self._data))[0]
        self._fields: dict[int, FieldTerms] = {}

    def field(self, number: int) -> FieldTerms | None:
        """The words of a field; `None` if the segment has none of it."""
        if number not in self._parts:
            return None
        if number not in self._fields:
            start, stop = self._parts[number]
            self._fields[number] = FieldTerms.open(self._data[start:stop])
        return self._fields[number]


@dataclass(frozen=True)
class FieldTerms:
    """The words of one field of a segment."""

    fst: memoryview
    infos: memoryview

    @classmethod
    def open(cls, part: memoryview) -> FieldTerms:
        """Divide a field's part of the file."""
        try:
            size, version, kind = _DICTIONARY_END.unpack_from(part, len(part) - 16)
        except struct.error:
            raise UnknownDictionaryError("a field's dictionary is too short") from None
        middle = len(part) - _DICTIONARY_END.size - size
        if version != _DICTIONARY_VERSION or kind != _DICTIONARY_KIND or middle < 2 * _FST_HEAD:
            raise UnknownDictionaryError(f"a field's dictionary has version {version}.{kind}")
        opened = cls(part[:middle], part[middle : len(part) - _DICTIONARY_END.size])
        opened._check()
        return opened

    def _check(self) -> None:
        (version,) = struct.unpack_from("<Q", self.fst)
        if version not in _FST_VERSIONS or len(self.infos) < 16:
            raise UnknownDictionaryError(f"a field's words have version {version}")
        blocks = -(-self.count // _BLOCK_TERMS)
        if self._metas_size != blocks * _META.size or 16 + self._metas_size > len(self.infos):
            raise UnknownDictionaryError("a field's words are counted in two ways")

    @cached_property
    def count(self) -> int:
        """How many words there are."""
        return int(struct.unpack_from("<Q", self.infos, 8)[0])

    @cached_property
    def _metas_size(self) -> int:
        return int(struct.unpack_from("<Q", self.infos)[0])

    @cached_property
    def _root(self) -> int:
        return int(struct.unpack_from("<Q", self.fst, len(self.fst) - 8)[0])

    def term(self, word: bytes) -> TermInfo | None:
        """Where a word's postings and positions are; `None` if the field does not have the word."""
        node = self._walk(word)
        if node is None or not node[0].is_final:
            return None
        return self.info(node[1] + node[0].final_output)

    def beginning(self, prefix: bytes) -> TermInfo | None:
        """The same for all words that begin with some bytes: they follow each other."""
        if not self.count:
            return None
        if not prefix:
            return self._between(0, self.count - 1)
        node = self._walk(prefix)
        if node is None:
            return None
        return self._between(self._end_of(*node, last=False), self._end_of(*node, last=True))

    def _between(self, first: int, last: int) -> TermInfo:
        low, high = self.info(first), self.info(last)
        if low.postings[0] > high.postings[1] or low.positions[0] > high.positions[1]:
            raise UnknownDictionaryError("postings are not in the order of their words")
        return TermInfo((low.postings[0], high.postings[1]), (low.positions[0], high.positions[1]))

    def info(self, place: int) -> TermInfo:
        """The table's entry for the word at a place in the sorted list."""
        if not 0 <= place < self.count:
            raise UnknownDictionaryError("a word has a place outside of the list of words")
        block, inner = divmod(place, _BLOCK_TERMS)
        try:
            offset, _, postings, postings_length, positions, positions_length, *widths = (
                _META.unpack_from(self.infos, 16 + block * _META.size)
            )
        except struct.error:
            raise UnknownDictionaryError("the table of words is too short") from None
        if not inner:
            return TermInfo(
                (postings, postings + postings_length), (positions, positions + positions_length)
            )
        frequency_bits, postings_bits, positions_bits = widths
        width = frequency_bits + postings_bits + positions_bits
        base = 8 * (16 + self._metas_size + offset) + (inner - 1) * width
        following = base + width
        result = TermInfo(
            (
                postings + self._bits(base, postings_bits),
                postings + self._bits(following, postings_bits),
            ),
            (
                positions + self._bits(base + postings_bits, positions_bits),
                positions + self._bits(following + postings_bits, positions_bits),
            ),
        )
        if result.postings[0] > result.postings[1] or result.positions[0] > result.positions[1]:
            raise UnknownDictionaryError("the postings of a word end before they begin")
        return result

    def _bits(self, at: int, count: int) -> int:
        first, last = at // 8, (at + count + 7) // 8
        if count > 64 or last > len(self.infos):
            raise UnknownDictionaryError("the table of words is too short")
        value = int.from_bytes(self.infos[first:last], "little")
        return (value >> (at % 8)) & ((1 << count) - 1)

    # --- the transducer ---

    def _walk(self, word: bytes) -> tuple[_Node, int] | None:
        """The node that a word leads to, and the sum of what was met on the way."""
        if not self.count:
            return None
        node, total = self._node(self._root), 0
        for byte in word:
            step = node.follow(byte)
            if step is None:
                return None
            total += step[0]
            node = self._node(step[1])
        return node, total

    def _end_of(self, node: _Node, total: int, *, last: bool) -> int:
        """The place of the first or the last word below a node."""
        for _ in range(_LONGEST_WORD):
            if node.is_final and (not last or not node.count):
                return total + node.final_output
            if not node.count:
                break
            output, address = node.transition(node.count - 1 if last else 0)
            total += output
            node = self._node(address)
        raise UnknownDictionaryError("a field's words have no end")

    def _node(self, address: int) -> _Node:
        try:
            return _Node.at(self.fst, address)
        except IndexError:
            raise UnknownDictionaryError("a field's words cannot be read") from None


@dataclass(frozen=True, slots=True)
class _Node:
    """A state of the transducer, written backwards from its address.

    From there down: a byte of state, perhaps the number of transitions or the one input, sizes, an
    index of inputs if there are many, then inputs, addresses and outputs, last one first.
    """

    data: memoryview
    is_final: bool
    count: int
    inputs: int
    """Where the input of the first transition is, or the one input itself, as a negative number."""
    addresses: int
    outputs: int
    end: int
    address_size: int
    output_size: int
    final_output: int = 0

    @classmethod
    def at(cls, data: memoryview, address: int) -> _Node:
        if address == 0:
            return cls(data, True, 0, 0, 0, 0, 0, 0, 0)
        if not _FST_HEAD < address < len(data) - _FST_HEAD:
            raise IndexError
        state = data[address]
        if state & 0x80:
            code, at = state & 0x3F, address
            if code:
                byte = _COMMON[code - 1]
            else:
                at -= 1
                byte = data[at]
            if state & 0x40:  # the next node is the one written before
                return cls(data, False, 1, -byte - 1, 0, 0, at, 0, 0)
            at -= 1
            sizes = data[at]
            address_size, output_size = sizes >> 4, sizes & 15
            end = at - address_size - output_size
            if end < _FST_HEAD:
                raise IndexError
            return cls(
                data, False, 1, -byte - 1, at, at - address_size, end, address_size, output_size
            )
        count, at = state & 0x3F, address
        if not count:
            at -= 1
            count = data[at]
            count = 256 if count == 1 else count
        at -= 1
        sizes = data[at]
        address_size, output_size = sizes >> 4, sizes & 15
        is_final = bool(state & 0x40)
        version = data[0]
        if version >= 2 and count > _MANY_TRANSITIONS:
            at -= 256
        inputs = at
        addresses = inputs - count
        outputs = addresses - count * address_size
        end = outputs - count * output_size - (output_size if is_final else 0)
        if end < _FST_HEAD:
            raise IndexError
        final = int.from_bytes(data[end : end + output_size], "little") if is_final else 0
        return cls(
            data, is_final, count, inputs, addresses, outputs, end, address_size, output_size, final
        )

    def follow(self, byte: int) -> tuple[int, int] | None:
        """What a byte adds and where it leads."""
        if self.inputs < 0:
            return self.transition(0) if self.inputs == -byte - 1 else None
        # Inputs lie in descending order of their transitions.
        place = bytes(self.data[self.inputs - self.count : self.inputs]).find(byte)
        return None if place < 0 else self.transition(self.count - 1 - place)

    def transition(self, number: int) -> tuple[int, int]:
        """What a transition adds and where it leads."""
        if not self.address_size:
            if self.inputs >= 0:
                raise UnknownDictionaryError("a field's words cannot be read")
            return 0, self.end - 1
        low = self.addresses - (number + 1) * self.address_size
        distance = int.from_bytes(self.data[low : low + self.address_size], "little")
        low = self.outputs - (number + 1) * self.output_size
        output = int.from_bytes(self.data[low : low + self.output_size], "little")
        if distance > self.end:
            raise UnknownDictionaryError("a field's words cannot be read")
        return output, self.end - distance if distance else 0


def heads(ranges: Mapping[int, Range]) -> Iterator[Range]:
    """The first bytes of the fields' parts of `.idx`, which Tantivy reads when it opens a field."""
    for start, stop in ranges.values():
        yield start, min(start + POSTINGS_HEAD, stop)
