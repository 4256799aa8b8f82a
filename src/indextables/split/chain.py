"""The language of analyzers: a tokenizer and its filters in one string.

    english                                  a name of a whole chain
    default | fold | stop(en, de)            a tokenizer, then filters from left to right
    html | words | stop_words(The, A)        `html` first: markup is not part of the text

`parse_chain` reads it, `str(chain)` writes it in its shortest form. Equal chains have equal forms,
and the form is what the mapping stores. How the steps are carried out is `analyzer`'s concern.
"""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass

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
"""Lists of stop words by their codes: Tantivy's of each language, and a long one of ours."""

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
                rest = self.filters[len(steps) - 1 :]
                return " | ".join([*(["html"] if self.html else []), name, *map(str, rest)])
        # Pieces of the whole text are always in lower case: it is part of the name.
        rest = self.filters[1:] if self.tokenizer.name == "ngram" else self.filters
        first = ["html"] if self.html else []
        return " | ".join([*first, str(self.tokenizer), *map(str, rest)])

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
    **{f"{c}_stem": (_WORDS, _LOWER, Step("stem", (c,))) for c in STEMMERS},
    **{
        language: (_WORDS, _LOWER, Step("stop", (c,)), Step("stem", (c,)))
        for c, language in LANGUAGES_WITH_STOP_WORDS.items()
    },
    "english_long": (_WORDS, _LOWER, Step("stop", ("en_long",)), Step("stem", ("en",))),
}
"""Chains with a name of their own. A mapping stores these names, so none may change its meaning."""

_WRITTEN = re.compile(r"(\s*html\s*\|)?\s*english\s*(?=\||$)", re.IGNORECASE)

_SHORTEST = dict(
    sorted(
        ((name, steps) for name, steps in _NAMED.items() if name not in ("standard", "simple")),
        key=lambda item: -len(item[1]),
    )
)
"""The names in which a chain is written, longest chains first."""

_TOKENIZERS = ("words", "whitespace", "raw", "identifiers", "bigrams", "jieba")

CHAINS = (*(n for n in _NAMED if not n.endswith("_stem")), "ngram(2,3)", "<language>_stem")
"""What a chain may begin with and what is more than a tokenizer, for messages."""
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
    """What is wrong with an analyzer, in words for the person who wrote it."""


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
    first, *rest = steps or [Step("default")]
    tokenizer, *filters = _beginning(first, text)
    for number, step in enumerate(rest, 1):
        new = _filter(step)
        if new.name in _LAST and number < len(rest):
            raise AnalyzerError(f"'{step}' makes several words of one and has to stand last")
        if new.name in _LAST and tokenizer.name not in ("words", "whitespace", "raw"):
            raise AnalyzerError(f"'{step}' cannot follow '{first}', which makes pieces itself")
        if new not in filters:  # the same filter again changes nothing
            filters.append(new)
    return Chain(tokenizer, tuple(filters), html)


def chosen_chain(text: str) -> Chain:
    """The chain that a person names: `english` is the one that we recommend today.

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
            f"{reason}; steps are names with arguments in parentheses, and '|' stands between them"
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
            raise AnalyzerError("'html' stands first, before the tokenizer")
        case _:
            raise AnalyzerError(f"there is no filter '{step.name}'; there are {', '.join(FILTERS)}")


def _languages(step: Step, known: dict[str, str]) -> Step:
    by_name = {language: code for code, language in known.items()}
    codes = tuple(by_name.get(a.lower(), a.lower()) for a in step.arguments) or ("",)
    for code in codes:
        if code not in known:
            reason = f"no language '{code}'" if code else "no language"
            listed = ", ".join(f"{c} ({language})" for c, language in known.items())
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
