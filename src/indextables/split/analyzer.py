"""Analyzers: how a text becomes the words that an index holds, and the language that names them.

    english                                  a name of a whole chain
    default | fold | stop(en, de)            a tokenizer, then filters from left to right
    html | words | stop_words(The, A)        `html` first: markup is not part of the text

`parse_chain` reads such a string, `str(chain)` writes it in its shortest form. Equal chains have
equal forms, and the form is what the mapping stores.

An analyzer is built again in every process, because Tantivy does not store it. Two analyzers make
the same words of every text exactly when their `pipeline` is the same; the mapping's fingerprint is
made from it. What Tantivy cannot do is done here, and the index gets the words instead of the text.
"""

from __future__ import annotations

import functools
import importlib.metadata
import logging
import re
import threading
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import tantivy

from indextables.errors import MissingPackageError, require
from indextables.split.text_steps import (
    Part,
    Word,
    split_bigrams,
    split_identifiers,
    split_words,
    strip_html,
    with_edges,
    with_pieces,
    with_shingles,
)

STEMMERS = {
    "ar": "arabic", "da": "danish", "de": "german", "el": "greek", "en": "english",
    "es": "spanish", "fi": "finnish", "fr": "french", "hu": "hungarian", "it": "italian",
    "nl": "dutch", "no": "norwegian", "pt": "portuguese", "ro": "romanian", "ru": "russian",
    "sv": "swedish", "ta": "tamil", "tr": "turkish",
}  # fmt: skip
"""Language codes with a stemmer; the tokenizer of a language is called `<code>_stem`."""

LANGUAGES_WITH_STOP_WORDS = {
    c: name for c, name in STEMMERS.items() if c not in ("ar", "el", "ro", "ta", "tr")
}
STOP_WORDS = {**LANGUAGES_WITH_STOP_WORDS, "en_long": "english_long"}
"""Lists of stop words by their codes: Tantivy's for most languages, and a longer English one."""

MAX_GRAM = 20
MAX_SHINGLE = 4
MAX_STOP_WORDS = 1_000

_STEP = re.compile(r"\s*([A-Za-z_]+)\s*(?:\(([^()|]*)\))?\s*")


@dataclass(frozen=True, slots=True)
class Step:
    """A tokenizer or a filter, with its arguments."""

    name: str
    arguments: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{self.name}({','.join(self.arguments)})" if self.arguments else self.name

    @property
    def lengths(self) -> tuple[int, int]:
        """The arguments of a step that makes pieces: the shortest and the longest."""
        low, high = self.arguments
        return int(low), int(high)


@dataclass(frozen=True, slots=True)
class Chain:
    """What happens to a text: `html` or not, one tokenizer, and filters in their order."""

    tokenizer: Step
    filters: tuple[Step, ...] = ()
    html: bool = False

    def __str__(self) -> str:
        for name, steps in _SHORTEST.items():
            if self.tokenizer == steps[0] and self.filters[: len(steps) - 1] == steps[1:]:
                remaining = self.filters[len(steps) - 1 :]
                return " | ".join([*(["html"] if self.html else []), name, *map(str, remaining)])
        # Pieces of the whole text are always in lower case: it is part of the name.
        remaining = self.filters[1:] if self.tokenizer.name == "ngram" else self.filters
        first = ["html"] if self.html else []
        return " | ".join([*first, str(self.tokenizer), *map(str, remaining)])

    @property
    def lowercases(self) -> bool:
        """Whether words are in lower case."""
        return _LOWER in self.filters

    @property
    def pieces(self) -> Step | None:
        """The filter that makes several words of each, if there is one: it stands last."""
        last = self.filters[-1] if self.filters else None
        return last if last is not None and last.name in _LAST else None


_LOWER, _WORDS = Step("lower"), Step("words")
_LAST = ("edge", "pieces", "shingles")

_NAMED: dict[str, tuple[Step, ...]] = {
    "default": (_WORDS, _LOWER),
    "standard": (_WORDS, _LOWER),
    "simple": (_WORDS, _LOWER),
    "code": (Step("identifiers"), _LOWER),
    "cjk": (Step("bigrams"), _LOWER),
    "chinese": (Step("jieba"), _LOWER),
    "japanese": (Step("sudachi"), _LOWER),
    "korean": (Step("mecab_ko"), _LOWER),
    **{f"{c}_stem": (_WORDS, _LOWER, Step("stem", (c,))) for c in STEMMERS},
    **{
        language: (_WORDS, _LOWER, Step("stop", (c,)), Step("stem", (c,)))
        for c, language in LANGUAGES_WITH_STOP_WORDS.items()
    },
    "english_long": (_WORDS, _LOWER, Step("stop", ("en_long",)), Step("stem", ("en",))),
}
"""Named chains. A mapping stores these names, so none may change its meaning."""

_WRITTEN = re.compile(r"(\s*html\s*\|)?\s*english\s*(?=\||$)", re.IGNORECASE)

_SHORTEST = dict(
    sorted(
        ((name, steps) for name, steps in _NAMED.items() if name not in ("standard", "simple")),
        key=lambda item: -len(item[1]),
    )
)
"""The names in which a chain is written, longest chains first."""

_TOKENIZERS = (
    "words", "whitespace", "raw", "identifiers", "bigrams", "jieba", "sudachi", "mecab_ko"
)  # fmt: skip

CHAINS = (*(n for n in _NAMED if not n.endswith("_stem")), "ngram(2,3)", "<language>_stem")
"""The valid beginnings of a chain, for messages."""
FILTERS = (
    "lower", "fold", "stop(en_long)", "stop_words(a,b)", "stem(en)", "edge(1,10)", "pieces(2,3)",
    "shingles(2)",
)  # fmt: skip


_LONG_ENGLISH = """
i me my myself we our ours ourselves you you're you've you'll you'd your yours yourself yourselves
he him his himself she she's her hers herself it it's its itself they them their theirs themselves
what which who whom this that that'll these those am is are was were be been being have has had
having do does did doing a an the and but if or because as until while of at by for with about
against between into through during before after above below to from up down in out on off over
under again further then once here there when where why how all any both each few more most other
some such no nor not only own same so than too very s t can will just don don't should should've now
d ll m o re ve y ain aren aren't couldn couldn't didn didn't doesn doesn't hadn hadn't hasn hasn't
haven haven't isn isn't ma mightn mightn't mustn mustn't needn needn't shan shan't shouldn shouldn't
wasn wasn't weren weren't won won't wouldn wouldn't
"""
LONG_ENGLISH = tuple(_LONG_ENGLISH.split())
"""The stop words of `en_long`: the 179 that NLTK and bm25s (MIT licence) have. NLTK took them from
PostgreSQL's list for Snowball and added the parts of contractions. Splits are written without these
words, so the list never changes: another one gets another code."""


class AnalyzerError(ValueError):
    """An invalid analyzer; the message is for the user who wrote it."""


@functools.lru_cache(maxsize=1_024)
def parse_chain(text: str) -> Chain:
    """The chain that a string describes; `AnalyzerError` says what is wrong and what there is.

    >>> str(parse_chain("words|lower |stop( en )| stem(en)|FOLD"))
    'english | fold'
    >>> parse_chain("html").html, str(parse_chain("html"))
    (True, 'html | default')
    """
    steps = [_step(part) for part in text.split("|")]
    html = steps[0].name == "html"
    steps = steps[1:] if html else steps
    first, *following = steps or [Step("default")]
    tokenizer, *filters = _beginning(first, text)
    for number, step in enumerate(following, 1):
        new = _filter(step)
        if new.name in _LAST and number < len(following):
            raise AnalyzerError(f"'{step}' makes several words of one and must come last")
        if new.name in _LAST and tokenizer.name not in ("words", "whitespace", "raw"):
            raise AnalyzerError(f"'{step}' cannot follow '{first}', which makes pieces itself")
        if new not in filters:  # the same filter again changes nothing
            filters.append(new)
    return Chain(tokenizer, tuple(filters), html)


def chosen_chain(text: str) -> Chain:
    """The chain behind a name that users write: `english` is the one that we recommend today.

    In a mapping `english` is what it was at first, with 33 stop words: splits have those words.

    >>> str(chosen_chain("html | english")), str(parse_chain("html | english"))
    ('html | english_long', 'html | english')
    """
    return parse_chain(_WRITTEN.sub(r"\1english_long", text, count=1))


def _step(text: str) -> Step:
    match = _STEP.fullmatch(text)
    if match is None:
        shown = text.strip()
        reason = f"'{shown}' is not a step" if shown else "a step is empty"
        raise AnalyzerError(
            f"{reason}; steps are names with arguments in parentheses, separated by '|'"
        )
    arguments = tuple(a.strip() for a in match[2].split(",")) if match[2] else ()
    return Step(match[1].lower(), arguments)


def _beginning(step: Step, text: str) -> tuple[Step, ...]:
    if step.name == "ngram":
        return _lengths(step, ("2", "3")), _LOWER
    if step.name in _NAMED or step.name in _TOKENIZERS:
        if step.arguments:
            raise AnalyzerError(f"'{step.name}' takes no arguments")
        return _NAMED.get(step.name) or (step,)
    if step.name in (_name(f) for f in FILTERS):
        raise AnalyzerError(
            f"'{step.name}' is a filter and follows a tokenizer: 'default | {text.strip()}'"
        )
    raise AnalyzerError(
        f"there is no tokenizer '{step.name}'; there are {', '.join((*CHAINS, *_TOKENIZERS))} "
        f"(languages: {', '.join(STEMMERS)}), after 'html |' if the text is HTML, and before "
        f"filters such as 'default | fold'"
    )


def _filter(step: Step) -> Step:
    match step.name:
        case "lower" | "fold":
            if step.arguments:
                raise AnalyzerError(f"'{step.name}' takes no arguments")
            return step
        case "stop":
            return _languages(step, STOP_WORDS)
        case "stem":
            if len(step.arguments) > 1:
                raise AnalyzerError("'stem' takes one language")
            return _languages(step, STEMMERS)
        case "stop_words":
            words = tuple(sorted({word for word in step.arguments if word}))
            if not 1 <= len(words) <= MAX_STOP_WORDS:
                raise AnalyzerError(
                    f"'stop_words' takes 1 to {MAX_STOP_WORDS:,} words: stop_words(the, a, of)"
                )
            return Step(step.name, words)
        case "edge":
            return _lengths(step, ("1", "10"))
        case "pieces":
            return _lengths(step, ("2", "3"))
        case "shingles":
            size = step.arguments or ("2",)
            if len(size) > 1 or not _is_number(size[0]) or not 2 <= int(size[0]) <= MAX_SHINGLE:
                raise AnalyzerError(f"'{step}' needs a number of words from 2 to {MAX_SHINGLE}")
            return Step(step.name, (str(int(size[0])),))
        case "html":
            raise AnalyzerError("'html' must come first, before the tokenizer")
        case _:
            raise AnalyzerError(f"there is no filter '{step.name}'; there are {', '.join(FILTERS)}")


def _languages(step: Step, languages: dict[str, str]) -> Step:
    by_name = {language: code for code, language in languages.items()}
    codes = tuple(by_name.get(a.lower(), a.lower()) for a in step.arguments) or ("",)
    for code in codes:
        if code not in languages:
            reason = f"no language '{code}'" if code else "no language"
            listed = ", ".join(f"{c} ({language})" for c, language in languages.items())
            raise AnalyzerError(f"'{step.name}' has {reason}; there are {listed}")
    return Step(step.name, tuple(dict.fromkeys(codes)))


def _lengths(step: Step, default: tuple[str, str]) -> Step:
    lengths = step.arguments or default
    if (
        len(lengths) != 2
        or not all(map(_is_number, lengths))
        or not 1 <= int(lengths[0]) <= int(lengths[1]) <= MAX_GRAM
    ):
        raise AnalyzerError(f"{step} needs 1 <= shortest <= longest <= {MAX_GRAM}")
    return Step(step.name, tuple(str(int(length)) for length in lengths))


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) < 5


def _name(shown: str) -> str:
    return shown.partition("(")[0]


# --- analyzers -------------------------------------------------------------------------------

PIPELINE_VERSION = 1
"""Raised when the same pipeline description starts to make other words."""

TOKEN_LENGTHS = {"tantivy_max": 65_530, "default": 255, "legacy": 40, "min": 1}
MAX_TOKEN_LENGTH = TOKEN_LENGTHS["tantivy_max"]

_SOURCES = {
    "words": "simple",
    "jieba": "jieba 0.42",
    "sudachi": "sudachi small 20261015",
    "mecab_ko": "mecab-ko 2.1.1",
}
_LONG_WORD = 40
"""Longer texts are not cached."""
_CUT_HERE = ("identifiers", "bigrams", "jieba", "sudachi", "mecab_ko")
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
        chain = self.chain
        leaves_out = chain.tokenizer.name in ("sudachi", "mecab_ko")
        return leaves_out or any(step.name.startswith("stop") for step in chain.filters)

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
    if chain.html and not query:  # searches are not HTML
        plain = strip_html(text)
        plain_words = _words(replace(chain, html=False), token_length, plain.text)
        return [Word(w.text, w.position, *plain.source(w.start, w.end)) for w in plain_words]
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
    """Tokenize a text in Python. A word that a filter drops keeps its position."""
    runs = _tantivy_words(_build(Chain(Step("words")), MAX_TOKEN_LENGTH), text)
    match chain.tokenizer.name:
        case "identifiers":
            cut = split_identifiers(text, runs, whole=whole)
        case "jieba":
            cut = split_words(runs, _jieba())
        case "sudachi":
            cut = split_words(runs, _sudachi())
        case "mecab_ko":
            cut = split_words(runs, _mecab_ko())
        case _:
            cut = split_bigrams(runs)
    words = []
    for word in cut:
        filtered = _filtered(chain.filters, token_length, word.text)
        if filtered is not None:
            words.append(word if filtered == word.text else replace(word, text=filtered))
    return words


@functools.cache
def _jieba() -> Callable[[str], Iterable[Part]]:
    """Cuts Chinese text by the dictionary of the package, whatever a process added to its own.

    Without guesses about unknown words: every text is then cut as the dictionary says.
    """
    require("jieba", extra="chinese", for_what="The analyzer 'chinese'")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # its patterns have invalid escapes
        import jieba  # type: ignore[import-untyped]

    jieba.setLogLevel(logging.WARNING)
    cut = functools.partial(jieba.Tokenizer().cut, HMM=False)
    return lambda text: ((word, word) for word in cut(text))


_OF_THREAD = threading.local()
"""Sudachi and MeCab work on one text at a time."""
_AT_ONCE = 10_000
"""Sudachi takes at most 49,149 bytes."""
_JAPANESE_LEFT_OUT = frozenset(("助詞", "助動詞", "補助記号"))
_KOREAN_LEFT_OUT = ("E", "IC", "J", "XSA", "XSV")
"""Endings, interjections, particles and suffixes, by how their tags begin."""


def _sudachi() -> Callable[[str], Iterable[Part]]:
    """Cuts Japanese text into its shortest words, each in the form that a dictionary has.

    Particles and auxiliary verbs are left out.
    """

    def cut(text: str) -> Iterator[Part]:
        for at in range(0, len(text), _AT_ONCE):
            for part in _OF_THREAD.sudachi.tokenize(text[at : at + _AT_ONCE]):
                is_left_out = part.part_of_speech()[0] in _JAPANESE_LEFT_OUT
                yield part.surface(), None if is_left_out else part.dictionary_form()

    if not hasattr(_OF_THREAD, "sudachi"):
        dictionary = _japanese_dictionary()
        from sudachipy import SplitMode  # type: ignore[import-untyped]

        _OF_THREAD.sudachi = dictionary.tokenizer(mode=SplitMode.A)
    return cut


@functools.cache
def _japanese_dictionary() -> Any:
    _require_words("sudachipy", "sudachidict_small", "20261015", language="japanese")
    from sudachipy import Dictionary

    return Dictionary(dict="small")


def _mecab_ko() -> Callable[[str], Iterable[Part]]:
    """Cuts Korean text into its morphemes, without particles, endings and suffixes of verbs."""

    def cut(text: str) -> Iterator[Part]:
        for at in range(0, len(text), _AT_ONCE):
            for part in _OF_THREAD.mecab_ko.parse(text[at : at + _AT_ONCE]):
                is_left_out = part.pos.startswith(_KOREAN_LEFT_OUT)
                yield part.surface, None if is_left_out else part.surface

    if not hasattr(_OF_THREAD, "mecab_ko"):
        _require_words("mecab", "python-mecab-ko-dic", "2.1.1", language="korean")
        from mecab import MeCab  # type: ignore[import-untyped]

        _OF_THREAD.mecab_ko = MeCab()
    return cut


def _require_words(package: str, words: str, version: str, *, language: str) -> None:
    """Refuse another version of a dictionary: it has other words than the index."""
    needed = f"The analyzer '{language}'"
    require(package, extra=language, for_what=needed)
    try:
        installed = importlib.metadata.version(words)
    except importlib.metadata.PackageNotFoundError:
        installed = ""
    if installed.split(".post")[0] != version:
        raise MissingPackageError(f"{words} {version}", extra=language, for_what=needed)


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
    """The form in which a mapping stores an analyzer, given the name that a user wrote.

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
