"""Steps of analysis that Tantivy does not have: HTML, identifiers, pieces of words.

Each is a function of a text or of words, the same on every machine. Words of one place stand
together, in the order of their places.
"""

from __future__ import annotations

import html
import re
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class Word:
    """A word of a text: its place among the words and its characters in the text."""

    text: str
    position: int
    start: int
    end: int


# --- HTML ------------------------------------------------------------------------------------

_INLINE = frozenset((
    "a", "abbr", "acronym", "b", "bdi", "bdo", "big", "cite", "code", "del", "dfn", "em", "font",
    "i", "ins", "kbd", "mark", "q", "s", "samp", "small", "span", "strike", "strong", "sub", "sup",
    "tt", "u", "var", "wbr",
))  # fmt: skip
"""Elements that may begin and end inside a word."""
_HIDDEN = ("script", "style")
_TAG_NAME = re.compile(r"</?([A-Za-z][A-Za-z0-9:-]*)")
_ENTITY = re.compile(r"&(?:#[0-9]{1,7}|#[xX][0-9A-Fa-f]{1,6}|[A-Za-z][A-Za-z0-9]{1,31});")


@dataclass(frozen=True, slots=True)
class PlainText:
    """The text of an HTML document, and where each part of it stands in the document."""

    text: str
    starts: tuple[int, ...]
    """Where each part begins in the text, and in `sources` where in the document."""
    sources: tuple[int, ...]
    ends: tuple[int, ...]
    """Where each part ends in the document."""

    def source(self, start: int, end: int) -> tuple[int, int]:
        """The characters of the document that a stretch of the text comes from."""
        if not self.starts:
            return 0, 0
        first = max(0, bisect_right(self.starts, start) - 1)
        last = max(first, bisect_right(self.starts, max(start, end - 1)) - 1)
        begin = min(self.sources[first] + start - self.starts[first], self.ends[first])
        return begin, min(self.sources[last] + end - self.starts[last], self.ends[last])


def strip_html(document: str) -> PlainText:
    """The text of a document without tags, comments, scripts and styles, entities replaced.

    A tag of a block is a blank; one inside a line, such as `<b>`, is nothing.

    >>> strip_html("<p>caf&eacute;<br>b<b>a</b>r &lt;i&gt;<!-- no -->").text
    ' café bar <i> '
    """
    parts: list[str] = []
    starts: list[int] = []
    sources: list[int] = []
    ends: list[int] = []
    length = 0
    for text, begin, end in _html_parts(document):
        if text:
            parts.append(text)
            starts.append(length)
            sources.append(begin)
            ends.append(end)
            length += len(text)
    return PlainText("".join(parts), tuple(starts), tuple(sources), tuple(ends))


def _html_parts(document: str) -> Iterator[tuple[str, int, int]]:
    """Pieces of the text with their place. Every search goes forward, so time is linear."""
    at = 0
    while (begin := document.find("<", at)) >= 0:
        following = document[begin + 1 : begin + 2]
        is_markup = following in ("/", "!", "?") or (following.isascii() and following.isalpha())
        end = _markup_end(document, begin) if is_markup and following else begin + 1
        if end < 0:  # no further '>': the rest is text
            break
        if not is_markup or not following:
            yield from _with_entities(document, at, begin + 1)
            at = begin + 1
            continue
        yield from _with_entities(document, at, begin)
        name = _TAG_NAME.match(document, begin, end)
        tag = name[1].lower() if name else ""
        if tag in _HIDDEN and following != "/":
            end = _hidden_end(document, tag, end)
        if tag not in _INLINE:
            yield " ", begin, end
        at = end
    yield from _with_entities(document, at, len(document))


def _markup_end(document: str, begin: int) -> int:
    if document.startswith("<!--", begin):
        close = document.find("-->", begin + 4)
        return len(document) if close < 0 else close + 3
    return document.find(">", begin) + 1 or -1


def _hidden_end(document: str, tag: str, at: int) -> int:
    """Where the content of a script or style ends; all that is left if it is not closed."""
    close = re.compile(f"</{tag}", re.IGNORECASE).search(document, at)
    if close is None:
        return len(document)
    return document.find(">", close.end()) + 1 or len(document)


def _with_entities(document: str, begin: int, end: int) -> Iterator[tuple[str, int, int]]:
    at = begin
    for entity in _ENTITY.finditer(document, begin, end):
        yield document[at : entity.start()], at, entity.start()
        yield html.unescape(entity[0]), entity.start(), entity.end()
        at = entity.end()
    yield document[at:end], at, end


# --- identifiers -----------------------------------------------------------------------------

_JOINTS = re.compile(r"_+|_*\._*|::")
"""The separators of the parts of one identifier."""


def split_identifiers(text: str, runs: Sequence[Word], *, whole: bool) -> list[Word]:
    """The parts of identifiers, and each identifier as a whole where it has several.

    `runs` are the stretches of letters and digits of the text. The whole stands at the place of its
    first part.

    >>> text = "os.getHTTPHeader x_1"
    >>> runs = [Word(t, 0, text.index(t), text.index(t) + len(t))
    ...         for t in ("os", "getHTTPHeader", "x", "1")]
    >>> [(word.text, word.position) for word in split_identifiers(text, runs, whole=True)]
    ... # doctest: +NORMALIZE_WHITESPACE
    [('os.getHTTPHeader', 0), ('os', 0), ('get', 1), ('HTTP', 2), ('Header', 3), ('x_1', 4),
     ('x', 4), ('1', 5)]
    """
    words: list[Word] = []
    position = 0
    for group in _groups(text, runs):
        parts = [part for run in group for part in _parts(run)]
        begin, end = group[0].start, group[-1].end
        if whole and len(parts) > 1:
            words.append(Word(text[begin:end], position, begin, end))
        words += [replace(part, position=position + n) for n, part in enumerate(parts)]
        position += len(parts)
    return words


def _groups(text: str, runs: Sequence[Word]) -> Iterator[list[Word]]:
    group: list[Word] = []
    for run in runs:
        if group and _JOINTS.fullmatch(text, group[-1].end, run.start) is None:
            yield group
            group = []
        group.append(run)
    if group:
        yield group


def _parts(run: Word) -> Iterator[Word]:
    """Cut where a capital follows a small letter or a digit, and before the last of capitals."""
    text, begin = run.text, 0
    for at in range(1, len(text)):
        new = text[at].isupper() and (
            not text[at - 1].isupper() or (at + 1 < len(text) and text[at + 1].islower())
        )
        if new:
            yield Word(text[begin:at], 0, run.start + begin, run.start + at)
            begin = at
    yield Word(text[begin:], 0, run.start + begin, run.end)


# --- Chinese, Japanese, Korean ---------------------------------------------------------------

_CJK = re.compile(
    "([\u1100-\u11ff\u2e80-\u2fdf\u3005-\u3007\u3040-\u30ff\u3100-\u318f\u31a0-\u31bf"
    "\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\ua960-\ua97f\uac00-\ud7ff\uf900-\ufaff"
    "\uff66-\uffdc\U00016fe0-\U00018cff\U0001aff0-\U0001b16f\U00020000-\U0003ffff]+)"
)


def split_bigrams(runs: Iterable[Word]) -> list[Word]:
    """Pairs of neighbouring characters where a script has no blanks, other words as they are.

    >>> [word.text for word in split_bigrams([Word("東京都abc", 0, 0, 6)])]
    ['東京', '京都', 'abc']
    """
    words: list[Word] = []
    for run in runs:
        at = run.start
        for part in _CJK.split(run.text):
            cut = 2 if _CJK.match(part) else max(1, len(part))
            for begin in range(max(1, len(part) - cut + 1) if part else 0):
                piece = part[begin : begin + cut]
                words.append(Word(piece, len(words), at + begin, at + begin + len(piece)))
            at += len(part)
    return words


Part = tuple[str, str | None]
"""A piece of a text, and the word that it is; `None` if it is left out."""


def split_words(runs: Iterable[Word], cut: Callable[[str], Iterable[Part]]) -> list[Word]:
    """Words that a program finds in text without blanks. Its pieces are the whole of a run.

    >>> found = split_words([Word("ab", 0, 0, 2), Word("c", 1, 3, 4)], lambda t: zip(t, t.upper()))
    >>> [word.text for word in found]
    ['A', 'B', 'C']
    """
    words: list[Word] = []
    position = 0
    for run in runs:
        at = run.start
        for part, word in cut(run.text):
            if word is not None:
                words.append(Word(word, position, at, at + len(part)))
            at += len(part)
            position += 1
    return words


# --- several words of one --------------------------------------------------------------------


def with_edges(words: Iterable[Word], shortest: int, longest: int) -> list[Word]:
    """The beginnings of each word, and the whole word.

    >>> [word.text for word in with_edges([Word("fox", 0, 0, 3)], 1, 2)]
    ['f', 'fo', 'fox']
    """
    return [
        replace(word, text=word.text[:length])
        for word in words
        for length in (*range(shortest, min(longest, len(word.text) - 1) + 1), len(word.text))
    ]


def with_pieces(words: Iterable[Word], shortest: int, longest: int) -> list[Word]:
    """The pieces of each word; a shorter word is a piece itself.

    >>> [word.text for word in with_pieces([Word("fox", 0, 0, 3), Word("a", 1, 4, 5)], 2, 3)]
    ['fo', 'fox', 'ox', 'a']
    """
    return [
        replace(word, text=word.text[begin : begin + length])
        for word in words
        for begin in range(max(1, len(word.text) - shortest + 1))
        for length in range(shortest, max(shortest, min(longest, len(word.text) - begin)) + 1)
    ]


def with_shingles(words: Sequence[Word], size: int) -> list[Word]:
    """The words, and up to `size` neighbours as one word with blanks between.

    >>> words = [Word("a", 0, 0, 1), Word("b", 1, 2, 3), Word("c", 3, 4, 5)]
    >>> [word.text for word in with_shingles(words, 2)]
    ['a', 'a b', 'b', 'c']
    """
    result = []
    for at, word in enumerate(words):
        result.append(word)
        text = word.text
        for distance, following in enumerate(words[at + 1 : at + size], 1):
            if following.position != word.position + distance:
                break
            text = f"{text} {following.text}"
            result.append(Word(text, word.position, word.start, following.end))
    return result
