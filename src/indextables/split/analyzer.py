"""Analyzers: how a text becomes the words that an index holds.

An analyzer is named in the mapping (`default`, `english`, `html | default | fold` …: see `chain`)
and is built anew in every process, because Tantivy does not store it. Two analyzers make the same
words of every text exactly when their `pipeline` is the same; the mapping's fingerprint is made
from it. What Tantivy cannot do is done here, and the index gets the words instead of the text.
"""

from __future__ import annotations

import functools
import logging
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import tantivy

from indextables.split.chain import (
    LONG_ENGLISH,
    STEMMERS,
    STOP_WORDS,
    Chain,
    Step,
    chosen_chain,
    parse_chain,
)
from indextables.split.text_steps import (
    Word,
    split_bigrams,
    split_identifiers,
    split_words,
    strip_html,
    with_edges,
    with_pieces,
    with_shingles,
)

PIPELINE_VERSION = 1
"""Raised when the same pipeline description starts to make other words."""

TOKEN_LENGTHS = {"tantivy_max": 65_530, "default": 255, "legacy": 40, "min": 1}
MAX_TOKEN_LENGTH = TOKEN_LENGTHS["tantivy_max"]

_SOURCES = {"words": "simple", "jieba": "jieba 0.42"}
_LONG_WORD = 40
"""Longer texts are not worth remembering."""
_CUT_HERE = ("identifiers", "bigrams", "jieba")
"""Tokenizers that Tantivy does not have."""


@dataclass(frozen=True, slots=True)
class Analyzer:
    """A chain of steps by its name, and the longest word, in bytes, that it lets through."""

    tokenizer: str
    token_length: int = TOKEN_LENGTHS["default"]

    @property
    def chain(self) -> Chain:
        """The steps."""
        return parse_chain(self.tokenizer)

    @property
    def lowercases(self) -> bool:
        """Whether words are in lower case, so that patterns must be too."""
        return self.chain.lowercases

    @property
    def is_ngram(self) -> bool:
        """Whether words are pieces of words: they have no order."""
        chain = self.chain
        return chain.tokenizer.name == "ngram" or (
            chain.pieces is not None and chain.pieces.name == "pieces"
        )

    @property
    def is_whole(self) -> bool:
        """Whether a text is one word."""
        return self.chain.tokenizer.name == "raw"

    @property
    def has_blanks(self) -> bool:
        """Whether a word may hold a blank."""
        chain = self.chain
        return chain.tokenizer.name in ("raw", "ngram") or chain.pieces is not None

    @property
    def overlaps(self) -> bool:
        """Whether a place may have several words, of which a search asks for one."""
        return self.chain.pieces is not None or self.chain.tokenizer.name == "identifiers"

    @property
    def has_stop_words(self) -> bool:
        """Whether some words are left out."""
        return any(step.name.startswith("stop") for step in self.chain.filters)

    @property
    def pipeline(self) -> str:
        """The steps in words. Equal pipelines make equal words."""
        chain = self.chain
        steps = ["html"] if chain.html else []
        if chain.tokenizer.name == "ngram":
            steps.append("ngram {} to {}".format(*chain.tokenizer.lengths))
        else:
            steps.append(_SOURCES.get(chain.tokenizer.name, chain.tokenizer.name))
        steps.append(f"at most {self.token_length} bytes")
        return " > ".join([*steps, *map(_described, chain.filters)])

    def build(self) -> tantivy.TextAnalyzer:
        """The Tantivy analyzer; of a chain that is not all Tantivy's, the part that is."""
        return _build(self.chain, self.token_length)

    def words(self, text: str) -> list[Word]:
        """The words of a text that an index holds, in order.

        >>> [word.text for word in Analyzer("default").words("Wi-Fi at HOME")]
        ['wi', 'fi', 'at', 'home']
        """
        return _words(self.chain, self.token_length, text)

    def query_words(self, text: str) -> list[Word]:
        """The words that a search for a text asks for, in order.

        >>> [word.text for word in Analyzer("default | edge(1,2)").query_words("Fox")]
        ['fox']
        """
        if len(text) > _LONG_WORD:
            return _words(self.chain, self.token_length, text, query=True)
        return list(_asked_words(self.tokenizer, self.token_length, text))

    @property
    def documents(self) -> Callable[[str], str | tantivy.PreTokenizedString] | None:
        """What the index takes in place of a text; `None` if it takes the text."""
        chain = self.chain
        if chain.tokenizer.name in _CUT_HERE or chain.pieces is not None:
            return self._tokens
        return (lambda text: strip_html(text).text) if chain.html else None

    def _tokens(self, text: str) -> tantivy.PreTokenizedString:
        tokens = [tantivy.Token(word.text, word.position, 0, 0) for word in self.words(text)]
        return tantivy.PreTokenizedString("", tokens)

    def shown(self, text: str) -> tuple[str, Analyzer]:
        """The text without its markup, and the analyzer of such a text."""
        if not self.chain.html:
            return text, self
        plain = str(replace(self.chain, html=False))
        return strip_html(text).text, replace(self, tokenizer=plain)

    def drops(self, text: str) -> bool:
        """Whether a text has words, and all of them are stop words."""
        if not self.has_stop_words or self.query_words(text):
            return False
        chain = self.chain
        kept = tuple(step for step in chain.filters if not step.name.startswith("stop"))
        return bool(_words(replace(chain, filters=kept), self.token_length, text, query=True))

    def lower(self, text: str) -> str:
        """A part of a pattern in the form of the words: in lower case, without accents."""
        steps = tuple(s for s in self.chain.filters if s.name in ("lower", "fold"))
        lowered = _filtered(steps, MAX_TOKEN_LENGTH, text) if steps else None
        return text if lowered is None else lowered


def _described(step: Step) -> str:
    match step.name:
        case "lower":
            return "lower case"
        case "stem":
            return f"stem {STEMMERS[step.arguments[0]]}"
        case _:
            return str(step)


def _words(chain: Chain, token_length: int, text: str, *, query: bool = False) -> list[Word]:
    if chain.html and not query:  # nobody writes a search in HTML
        plain = strip_html(text)
        found = _words(replace(chain, html=False), token_length, plain.text)
        return [Word(w.text, w.position, *plain.source(w.start, w.end)) for w in found]
    if chain.tokenizer.name in _CUT_HERE:
        return _cut_here(chain, token_length, text, whole=not query)
    words = _tantivy_words(_build(chain, token_length), text)
    pieces = chain.pieces
    match pieces.name if pieces else None:
        case "pieces":
            return with_pieces(words, *pieces.lengths)  # type: ignore[union-attr]
        case "edge" if not query:
            return with_edges(words, *pieces.lengths)  # type: ignore[union-attr]
        case "shingles" if not query:
            return with_shingles(words, int(pieces.arguments[0]))  # type: ignore[union-attr]
        case _:
            return words


@functools.lru_cache(maxsize=8_192)
def _asked_words(tokenizer: str, token_length: int, text: str) -> tuple[Word, ...]:
    """The words of a short text of a search; many searches ask for the same ones."""
    return tuple(_words(parse_chain(tokenizer), token_length, text, query=True))


def _cut_here(chain: Chain, token_length: int, text: str, *, whole: bool) -> list[Word]:
    """Cut a text by a tokenizer of ours. A word that a filter drops leaves its place empty."""
    runs = _tantivy_words(_build(Chain(Step("words")), MAX_TOKEN_LENGTH), text)
    match chain.tokenizer.name:
        case "identifiers":
            cut = split_identifiers(text, runs, whole=whole)
        case "jieba":
            cut = split_words(runs, _jieba())
        case _:
            cut = split_bigrams(runs)
    words = []
    for word in cut:
        filtered = _filtered(chain.filters, token_length, word.text)
        if filtered is not None:
            words.append(word if filtered == word.text else replace(word, text=filtered))
    return words


@functools.cache
def _jieba() -> Callable[[str], Iterator[str]]:
    """Cuts Chinese text by the dictionary of the package, whatever a process added to its own.

    Without guesses about unknown words: every text is then cut as the dictionary says.
    """
    from indextables.errors import require

    require("jieba", extra="chinese", for_what="The analyzer 'chinese'")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # its patterns are spelled in an old way
        import jieba  # type: ignore[import-untyped]

    jieba.setLogLevel(logging.WARNING)
    return functools.partial(jieba.Tokenizer().cut, HMM=False)


def _tantivy_words(analyzer: tantivy.TextAnalyzer, text: str) -> list[Word]:
    tokens = analyzer.pre_tokenize(text).tokens
    return [Word(t.text, t.position, t.char_offset_from, t.char_offset_to) for t in tokens]


@functools.lru_cache(maxsize=65_536)
def _filtered(filters: tuple[Step, ...], token_length: int, word: str) -> str | None:
    """A word after filters; `None` if they drop it."""
    words = _build(Chain(Step("raw"), filters), token_length).analyze(word)
    return words[0] if words else None


@functools.lru_cache(maxsize=256)
def _build(chain: Chain, token_length: int) -> tantivy.TextAnalyzer:
    """Tantivy's part of a chain: everything but what `_words` does."""
    match chain.tokenizer.name:
        case "raw":
            tokenizer = tantivy.Tokenizer.raw()
        case "whitespace":
            tokenizer = tantivy.Tokenizer.whitespace()
        case "ngram":
            tokenizer = tantivy.Tokenizer.ngram(*chain.tokenizer.lengths)
        case _:
            tokenizer = tantivy.Tokenizer.simple()
    builder = tantivy.TextAnalyzerBuilder(tokenizer)
    # The filter keeps what is shorter than its limit.
    builder = builder.filter(tantivy.Filter.remove_long(token_length + 1))
    for step in chain.filters:
        for each in _tantivy_filters(step):
            builder = builder.filter(each)
    return builder.build()


def _tantivy_filters(step: Step) -> Sequence[tantivy.Filter]:
    match step.name:
        case "lower":
            return [tantivy.Filter.lowercase()]
        case "fold":
            return [tantivy.Filter.ascii_fold()]
        case "stop":
            return [_stop_words(code) for code in step.arguments]
        case "stop_words":
            return [tantivy.Filter.custom_stopword(list(step.arguments))]
        case "stem":
            return [tantivy.Filter.stemmer(STEMMERS[step.arguments[0]])]
        case _:
            return []


def _stop_words(code: str) -> tantivy.Filter:
    if code == "en_long":
        return tantivy.Filter.custom_stopword(list(LONG_ENGLISH))
    return tantivy.Filter.stopword(STOP_WORDS[code])


def canonical_tokenizer(name: str, *, old: str = "") -> str:
    """The spelling that a mapping stores for an analyzer that a person names.

    A name that a mapping has stored already, as `old`, means what it meant there. `AnalyzerError`
    if there is no such analyzer.

    >>> canonical_tokenizer("Standard"), canonical_tokenizer("words | lower | stem(en)")
    ('default', 'en_stem')
    """
    stored = str(parse_chain(name))
    return stored if stored == old else str(chosen_chain(name))


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
