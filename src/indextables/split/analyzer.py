"""Analyzers: how a text becomes the words that an index holds.

An analyzer is named in the mapping (`default`, `en_stem`, `ngram(2,3)` …) and is built anew in
every process, because Tantivy does not store it. Two analyzers give the same words for every text
exactly when their `pipeline` is the same; the mapping's fingerprint is made from it.
"""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass

import tantivy

PIPELINE_VERSION = 1
"""Raised when the same pipeline description starts to give other words."""

TOKEN_LENGTHS = {"tantivy_max": 65_530, "default": 255, "legacy": 40, "min": 1}
MAX_TOKEN_LENGTH = TOKEN_LENGTHS["tantivy_max"]

STEMMERS = {
    "ar": "arabic", "da": "danish", "de": "german", "el": "greek", "en": "english",
    "es": "spanish", "fi": "finnish", "fr": "french", "hu": "hungarian", "it": "italian",
    "nl": "dutch", "no": "norwegian", "pt": "portuguese", "ro": "romanian", "ru": "russian",
    "sv": "swedish", "ta": "tamil", "tr": "turkish",
}  # fmt: skip
"""Language codes with a stemmer; the tokenizer of a language is called `<code>_stem`."""

TOKENIZER_NAMES = ("default", "raw", "whitespace", "ngram", *(f"{c}_stem" for c in STEMMERS))

_NGRAM = re.compile(r"ngram(?:\(\s*(\d+)\s*,\s*(\d+)\s*\))?")
_MAX_GRAM = 20


@dataclass(frozen=True, slots=True)
class Word:
    """A word of a text: its place among the words and its characters in the text."""

    text: str
    position: int
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Analyzer:
    """A tokenizer by name and the longest word, in bytes, that it lets through."""

    tokenizer: str
    token_length: int = TOKEN_LENGTHS["default"]

    @property
    def lowercases(self) -> bool:
        """Whether words are in lower case, so that patterns must be too."""
        return self.tokenizer not in ("raw", "whitespace")

    @property
    def is_ngram(self) -> bool:
        """Whether words are pieces of words: they have no order."""
        return _NGRAM.fullmatch(self.tokenizer) is not None

    @property
    def pipeline(self) -> str:
        """The steps in words. Equal pipelines give equal words."""
        steps = [_source(self.tokenizer), f"at most {self.token_length} bytes"]
        if self.lowercases:
            steps.append("lower case")
        if self.tokenizer.endswith("_stem"):
            steps.append(f"stem {STEMMERS[self.tokenizer.removesuffix('_stem')]}")
        return " > ".join(steps)

    def build(self) -> tantivy.TextAnalyzer:
        """The Tantivy analyzer."""
        return _build(self)

    def words(self, text: str) -> list[Word]:
        """The words of a text, in order.

        >>> [word.text for word in Analyzer("default").words("Wi-Fi at HOME")]
        ['wi', 'fi', 'at', 'home']
        """
        tokens = _build(self).pre_tokenize(text).tokens
        return [Word(t.text, t.position, t.char_offset_from, t.char_offset_to) for t in tokens]

    def lower(self, text: str) -> str:
        """Text in the case of the words. Character by character, as Tantivy lowers."""
        return "".join(c.lower() for c in text) if self.lowercases else text


def _source(tokenizer: str) -> str:
    if tokenizer in ("raw", "whitespace"):
        return tokenizer
    if (match := _NGRAM.fullmatch(tokenizer)) is not None:
        return f"ngram {match[1] or 2} to {match[2] or 3}"
    return "simple"


@functools.lru_cache(maxsize=256)
def _build(analyzer: Analyzer) -> tantivy.TextAnalyzer:
    match _source(analyzer.tokenizer).split():
        case ["raw"]:
            tokenizer = tantivy.Tokenizer.raw()
        case ["whitespace"]:
            tokenizer = tantivy.Tokenizer.whitespace()
        case ["ngram", low, _, high]:
            tokenizer = tantivy.Tokenizer.ngram(int(low), int(high))
        case _:
            tokenizer = tantivy.Tokenizer.simple()
    builder = tantivy.TextAnalyzerBuilder(tokenizer)
    # The filter keeps what is shorter than its limit.
    builder = builder.filter(tantivy.Filter.remove_long(analyzer.token_length + 1))
    if analyzer.lowercases:
        builder = builder.filter(tantivy.Filter.lowercase())
    if analyzer.tokenizer.endswith("_stem"):
        language = STEMMERS[analyzer.tokenizer.removesuffix("_stem")]
        builder = builder.filter(tantivy.Filter.stemmer(language))
    return builder.build()


def check_tokenizer(name: str) -> str | None:
    """What is wrong with the name of a tokenizer, or `None`.

    >>> check_tokenizer("ngram(3,2)")
    'ngram(3,2) needs 1 <= shortest <= longest <= 20'
    """
    if name in TOKENIZER_NAMES:
        return None
    if (match := _NGRAM.fullmatch(name)) is not None:
        if 1 <= int(match[1]) <= int(match[2]) <= _MAX_GRAM:
            return None
        return f"{name} needs 1 <= shortest <= longest <= {_MAX_GRAM}"
    return f"there is no tokenizer '{name}'; there are {', '.join(TOKENIZER_NAMES)}, ngram(2,3)"


def parse_token_length(value: str) -> int | None:
    """A token length, by number or by name; `None` if it is neither or out of range.

    >>> parse_token_length("legacy"), parse_token_length("0")
    (40, None)
    """
    text = value.strip().lower()
    if text in TOKEN_LENGTHS:
        return TOKEN_LENGTHS[text]
    length = int(text) if text.isdecimal() else 0
    return length if 1 <= length <= MAX_TOKEN_LENGTH else None
