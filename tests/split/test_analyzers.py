"""Analyzers: each makes the words that a second implementation makes, and is searched by them."""

from __future__ import annotations

import functools
import html.parser
import importlib.metadata
import itertools
import re
import tempfile
import threading
import unicodedata
import warnings
from pathlib import Path

import mecab
import numpy as np
import pyarrow as pa
import pytest
import sudachipy
import tantivy
from conftest import configuration, query
from hypothesis import given
from hypothesis import strategies as st

from examples import examples
from indextables.config import Config
from indextables.errors import MissingPackageError, SchemaError
from indextables.predicate import Phrase, Placeholder, Search, Term, Wildcard
from indextables.split import analyzer
from indextables.split.analyzer import Analyzer, parse_chain
from indextables.split.mapping import TableMapping, compatible
from indextables.split.mapping_options import build_mapping
from indextables.split.open_split import IndexPool, SplitFile, SplitSearcher
from indextables.split.search.evaluate import search_rows
from indextables.split.search.query import SearchContext
from indextables.split.text_steps import strip_html
from indextables.split.write.writer import SplitWriter
from indextables.storage.disk_cache import DiskCache
from indextables.storage.local import LocalStore

# --- a second implementation, one word at a time -------------------------------------------------

ENGLISH = frozenset((
    "a", "an", "and", "are", "as", "at", "be", "but", "by", "for", "if", "in", "into", "is", "it",
    "no", "not", "of", "on", "or", "such", "that", "the", "their", "then", "there", "these", "they",
    "this", "to", "was", "will", "with",
))  # fmt: skip

# The same and Snowball's others; contractions are left out, which the tokenizer cuts.
LONG = """
i me my myself we our ours ourselves you your yours yourself yourselves he him his himself she her
hers herself its itself them theirs themselves what which who whom those am were been being have has
had having do does did doing because until while about against between through during before after
above below from up down out off over under again further once here when where why how all any both
each few more most other some nor only own same so than too very s t can just don should now d ll m
o re ve y ain aren couldn didn doesn hadn hasn haven isn ma mightn mustn needn shan shouldn wasn
weren won wouldn
"""
LONG_ENGLISH = ENGLISH | set(LONG.split())

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import jieba

DICTIONARY = jieba.Tokenizer()
JAPANESE = sudachipy.Dictionary(dict="small").tokenizer(mode=sudachipy.SplitMode.A)
KOREAN = mecab.MeCab()

Found = list[tuple[str, int]]
WIDE = "\u3040-\u30ff\u4e00-\u9fff\uac00-\ud7a3"


def runs(text: str) -> list[re.Match[str]]:
    return list(re.finditer(r"[^\W_]+", text))


def lower(word: str) -> str:
    return "".join(c.lower() for c in word)


def fold(word: str) -> str:
    table = str.maketrans({"ß": "ss", "Ø": "O", "ø": "o", "æ": "ae"})
    decomposed = unicodedata.normalize("NFD", word.translate(table))
    if not any("\u0300" <= c < "\u0370" for c in decomposed):
        return word.translate(table)
    return "".join(
        c if ord(c) > 0x24F else unicodedata.normalize("NFD", c.translate(table))[0]
        if c not in "ßæ" else c.translate(table)
        for c in word
    )  # fmt: skip


@functools.cache
def stem(word: str, language: str) -> str:
    """Snowball's stem of one word, which is Tantivy's: a second implementation is not at hand."""
    builder = tantivy.TextAnalyzerBuilder(tantivy.Tokenizer.raw())
    return builder.filter(tantivy.Filter.stemmer(language)).build().analyze(word)[0]


@functools.cache
def is_german_stop_word(word: str) -> bool:
    """By Tantivy's list, one word at a time; the English list is spelled out above."""
    builder = tantivy.TextAnalyzerBuilder(tantivy.Tokenizer.raw())
    return not builder.filter(tantivy.Filter.stopword("german")).build().analyze(word)


def plain(text: str) -> Found:
    return [(lower(run[0]), at) for at, run in enumerate(runs(text))]


def english(text: str) -> Found:
    return [(stem(w, "english"), at) for w, at in plain(text) if w not in ENGLISH]


def camel(text: str) -> list[str]:
    shape = "".join("U" if c.isupper() else "l" if c.islower() else "o" for c in text)
    cuts = [m.start() for m in re.finditer("(?<=[lo])(?=U)|(?<=U)(?=Ul)", shape)]
    return [text[a:b] for a, b in itertools.pairwise([0, *cuts, len(text)])]


def code(text: str, *, whole: bool = True) -> Found:
    found: Found = []
    position = 0
    joint = r"(?:_+|_*\._*|::)"
    for identifier in re.finditer(rf"[^\W_]+(?:{joint}[^\W_]+)*", text):
        parts = [lower(p) for run in runs(identifier[0]) for p in camel(run[0])]
        if whole and len(parts) > 1:
            found.append((lower(identifier[0]), position))
        found += [(part, position + n) for n, part in enumerate(parts)]
        position += len(parts)
    return found


def edges(text: str) -> Found:
    return [
        (w[:n], at)
        for w, at in plain(text)
        for n in sorted({*(n for n in (1, 2, 3) if n < len(w)), len(w)})
    ]


def pieces(text: str) -> Found:
    found: Found = []
    for w, at in plain(text):
        cuts = [w[i : i + n] for i in range(len(w)) for n in (2, 3) if i + n <= len(w)]
        found += [(piece, at) for piece in cuts or [w]]
    return found


def shingles(text: str) -> Found:
    words = plain(text)
    pairs = [(f"{a} {b}", at) for (a, at), (b, _) in itertools.pairwise(words)]
    return sorted(words + pairs, key=lambda w: w[1])


def cjk(text: str) -> Found:
    found: list[str] = []
    for run in runs(text):
        for part in re.findall(f"[{WIDE}]+|[^{WIDE}]+", run[0]):
            wide = re.match(f"[{WIDE}]", part) and len(part) > 1
            found += [part[i : i + 2] for i in range(len(part) - 1)] if wide else [lower(part)]
    return [(w, at) for at, w in enumerate(found)]


class Visible(html.parser.HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.text, self.hidden = "", False

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.text += "" if tag == "b" else " "
        self.hidden = tag == "script"

    def handle_endtag(self, tag: str) -> None:
        self.text += "" if tag == "b" else " "
        self.hidden = False

    def handle_comment(self, data: str) -> None:
        self.text += " "

    def handle_data(self, data: str) -> None:
        self.text += "" if self.hidden else data


def visible(text: str) -> str:
    parser = Visible()
    parser.feed(text)
    parser.close()
    return parser.text


REFERENCE = {
    "default": plain,
    "words": lambda text: [(run[0], at) for at, run in enumerate(runs(text))],
    "whitespace | lower": lambda text: [(lower(w), at) for at, w in enumerate(text.split())],
    "raw | lower": lambda text: [(lower(text), 0)],
    "default | fold": lambda text: [(fold(w), at) for w, at in plain(text)],
    "default | stop(en) | stem(en)": english,
    "english_long": lambda text: [
        (stem(w, "english"), at) for w, at in plain(text) if w not in LONG_ENGLISH
    ],
    "chinese": lambda text: [
        (lower(w), at)
        for at, w in enumerate(w for run in runs(text) for w in DICTIONARY.cut(run[0], HMM=False))
    ],
    "japanese": lambda text: [
        (lower(part.dictionary_form()), at)
        for at, part in enumerate(p for run in runs(text) for p in JAPANESE.tokenize(run[0]))
        if part.part_of_speech()[0] not in ("助詞", "助動詞", "補助記号")
    ],
    "korean": lambda text: [
        (lower(part.surface), at)
        for at, part in enumerate(p for run in runs(text) for p in KOREAN.parse(run[0]))
        if part.pos[0] not in "EJ" and part.pos[:3] not in ("XSA", "XSV") and part.pos[:2] != "IC"
    ],
    "german": lambda text: [
        (stem(w, "german"), at) for w, at in plain(text) if not is_german_stop_word(w)
    ],
    "default | stop_words(fox,the)": lambda text: [
        (w, at) for w, at in plain(text) if w not in ("fox", "the")
    ],
    "html": lambda text: plain(visible(text)),
    "code": code,
    "default | edge(1,3)": edges,
    "default | pieces(2,3)": pieces,
    "default | shingles(2)": shingles,
    "cjk": cjk,
    "html | default | fold | edge(1,3)": lambda text: edges(fold(lower(visible(text)))),
}
QUERIES = {
    "code": lambda text: code(text, whole=False),
    "html": plain,
    "default | edge(1,3)": plain,
    "default | shingles(2)": plain,
    "html | default | fold | edge(1,3)": lambda text: [(fold(w), at) for w, at in plain(text)],
}
COLUMNS = {f"c{n}": name for n, name in enumerate(REFERENCE)}
SCHEMA = pa.schema([(name, pa.string()) for name in COLUMNS])
CONFIG = {f"spark.indextables.indexing.tokenizer.{c}": name for c, name in COLUMNS.items()}

# Letters on whose class Python and Tantivy agree, whatever their versions of Unicode.
LETTERS = "aBfoxéÉßØΣжЖ9東京都٣"
MARKUP = st.sampled_from(
    ["<b>", "</b>", "<p>", "<br/>", "&eacute;", "&lt;", "<!-- x -->", "<script>y</script>", " "]
)
WORDS = st.sampled_from(
    ["the", "The", "fox", "Foxes", "running", "and", "Häuser", "der", "getHTTPHeader", "a_b.cD",
     "x1::y2Z", "大学", "東京大学fox", "e\u0301", "🦊", "naïve", "HTML", "_x_",
     "学生が寿司を食べました", "住んでいた", "학교에서", "먹었습니다", "한국어Fox"]
)  # fmt: skip
TOKEN = WORDS | st.text(LETTERS, min_size=1, max_size=4)
TEXT = st.lists(TOKEN | MARKUP, max_size=7).flatmap(
    lambda parts: st.sampled_from([" ", "", "-"]).map(lambda blank: blank.join(parts))
)


def sequence(wanted: Found, have: Found, *, ordered: bool) -> bool:
    places = set(have)
    if not wanted:
        return False
    if not ordered:
        return {w for w, _ in wanted} <= {w for w, _ in have}
    first = wanted[0][1]
    return any(
        all((w, at + p - first) in places for w, p in wanted) for t, at in have if t == wanted[0][0]
    )


@examples(150, 5_000)
@given(TEXT)
def test_words_are_those_of_a_second_implementation(text):
    for name, reference in REFERENCE.items():
        analyzer = Analyzer(name)
        words = analyzer.words(text)
        assert sorted((w.text, w.position) for w in words) == sorted(reference(text)), name
        assert [w.position for w in words] == sorted(w.position for w in words)
        asked = [(w.text, w.position) for w in analyzer.query_words(text)]
        assert asked == QUERIES.get(name, reference)(text) or analyzer.is_ngram, name
        for word in words:
            assert 0 <= word.start <= word.end <= len(text), (name, word)
            if name in ("default", "code", "cjk"):
                assert lower(text[word.start : word.end]) == word.text


@examples(10, 1_000)
@given(
    st.lists(TEXT, min_size=1, max_size=8),
    st.lists(TOKEN, min_size=1, max_size=3),
    st.integers(0, 2),
)
def test_index_and_rows_and_a_second_implementation_agree(texts, asked, slop):
    table = pa.table(dict.fromkeys(COLUMNS, texts), SCHEMA)
    config = Config(CONFIG)
    mapping = build_mapping(SCHEMA, config)
    text = " ".join(asked)
    with tempfile.TemporaryDirectory() as folder:
        with SplitWriter(SCHEMA, mapping, config) as writer:
            for batch in table.to_batches():
                writer.write(batch)
            written = writer.close()
        split = SplitFile(LocalStore(str(written.path.parent)), written.path.name, written.size)
        pool = IndexPool(DiskCache(Path(folder), 1 << 26))
        searcher = SplitSearcher(split, pool, SearchContext(SCHEMA, mapping))
        try:
            for column, name in COLUMNS.items():
                reference = REFERENCE[name]
                wanted = QUERIES.get(name, reference)(text)
                ordered = "pieces" not in name
                expected = [
                    row for row, t in enumerate(texts)
                    if sequence(wanted, reference(t), ordered=ordered)
                ]  # fmt: skip
                phrase = Search(None, Phrase(column, text), "")
                assert searcher.search(phrase).tolist() == expected, (name, text)
                for node in (
                    Phrase(column, text),
                    Phrase(column, text, slop),
                    Phrase(column, text, prefix=True),
                    Term(column, asked[0]),
                    Wildcard(column, (asked[0][:2], Placeholder.MANY)),
                ):
                    search = Search(None, node, "")
                    flat = np.flatnonzero(search_rows(search, table, mapping)).tolist()
                    assert searcher.search(search).tolist() == flat, (name, node)
        finally:
            written.delete()


# --- names ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("found", [None, "20250101"])
def test_another_dictionary_is_refused(monkeypatch, found):
    def version(_name):
        if found is None:
            raise importlib.metadata.PackageNotFoundError
        return found

    monkeypatch.setattr(importlib.metadata, "version", version)
    analyzer._japanese_dictionary.cache_clear()
    monkeypatch.setattr(analyzer, "_OF_THREAD", threading.local())
    for language, words in (("japanese", "sudachidict_small"), ("korean", "python-mecab-ko-dic")):
        with pytest.raises(
            MissingPackageError, match=rf"needs {words} .*indextables\[{language}\]"
        ):
            Analyzer(language).words("東京")


def test_names_that_were_there_mean_what_they_meant():
    old = {
        "default": "simple > at most 255 bytes > lower case",
        "raw": "raw > at most 255 bytes",
        "whitespace": "whitespace > at most 255 bytes",
        "ngram": "ngram 2 to 3 > at most 255 bytes > lower case",
        "ngram(1,2)": "ngram 1 to 2 > at most 255 bytes > lower case",
        "de_stem": "simple > at most 255 bytes > lower case > stem german",
    }
    assert {name: Analyzer(name).pipeline for name in old} == old


@pytest.mark.parametrize(
    ("text", "short"),
    [
        ("standard", "default"),
        ("simple", "default"),
        ("words | lower", "default"),
        ("words|lower|stop(english)|stem(en)", "english"),
        ("english|fold|fold", "english | fold"),
        ("words|lower|stop(en_long)|stem(en)", "english_long"),
        ("jieba | lower | stop_words(的)", "chinese | stop_words(的)"),
        ("sudachi | lower", "japanese"),
        ("mecab_ko | lower | fold", "korean | fold"),
        ("ngram", "ngram(2,3)"),
        ("NGRAM( 1 , 2 ) | fold", "ngram(1,2) | fold"),
        ("html", "html | default"),
        ("default | stop_words(Zoo, a , a)", "default | stop_words(Zoo,a)"),
        ("identifiers | lower | stem(fr)", "code | stem(fr)"),
        ("raw | lower | edge", "raw | lower | edge(1,10)"),
        ("default | stop(de, en) | stem(sv)", "default | stop(de,en) | stem(sv)"),
    ],
)
def test_one_spelling_for_one_chain(text, short):
    assert str(parse_chain(text)) == short
    assert parse_chain(short) == parse_chain(text)
    assert Analyzer(short).pipeline == Analyzer(text).pipeline


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("klingon", "there is no tokenizer 'klingon'; there are default, .*code.*english"),
        ("default | klingon", "there is no filter 'klingon'; there are lower, fold, stop"),
        ("default | stem(tlh)", "no language 'tlh'; there are ar .arabic., da"),
        ("default | stop(tr)", "no language 'tr'; there are da .danish."),
        ("default | stop", "'stop' has no language; there are"),
        ("default | stem(en,de)", "takes one language"),
        ("stop(en)", "is a filter and follows a tokenizer: 'default | stop"),
        ("default | html", "'html' must come first"),
        ("default | edge(3,2)", "needs 1 <= shortest <= longest <= 20"),
        ("default | edge(a,b)", "needs 1 <= shortest"),
        ("default | edge(1,3) | fold", "must come last"),
        ("code | edge(1,3)", "cannot follow 'code'"),
        ("default | shingles(9)", "from 2 to 4"),
        ("default | stop_words()", "takes 1 to 1,000 words"),
        ("default(3)", "takes no arguments"),
        ("default || fold", "a step is empty"),
        ("default | stop(en", "is not a step"),
        ("", "a step is empty"),
    ],
)
def test_what_is_wrong_lists_what_there_is(text, says):
    with pytest.raises(SchemaError, match=says):
        build_mapping(
            pa.schema([("t", pa.string())]), configuration(**{"indexing.tokenizer.t": text})
        )


def mapped(tokenizer: str) -> TableMapping:
    options = {"indexing.tokenizer.t": tokenizer}
    return build_mapping(pa.schema([("t", pa.string())]), configuration(**options))


def test_every_chain_has_a_fingerprint_of_its_own():
    prints = {mapped(name).by_name["t"].fingerprint for name in REFERENCE}
    assert len(prints) == len(REFERENCE)
    short = "default | stop(en) | stem(en)"
    assert compatible(mapped("english"), mapped("default | stop(en_long) | stem(en)"), ["t"])
    assert not compatible(mapped("english"), mapped(short), ["t"])
    assert mapped("HTML|English | fold").by_name["t"].tokenizer == "html | english_long | fold"
    # What mappings stored from the first release on means what it meant.
    assert mapped(short).by_name["t"].tokenizer == "english"
    assert mapped(short).by_name["t"].fingerprint == "912d5abfcaa8ccc5"
    assert not compatible(mapped("default | stop_words(a)"), mapped("default"), ["t"])


def test_an_analyzer_of_a_newer_version_is_refused():
    stored = mapped("english").to_json()
    assert TableMapping.from_json(stored) == mapped("english")
    with pytest.raises(SchemaError, match="newer version"):
        TableMapping.from_json(stored.replace("english_long", "martian"))
    with pytest.raises(SchemaError, match="there is no filter"):
        TableMapping.from_json(stored.replace('"english_long"', '"default | martian(3)"'))
    foreign = '[{"name": "t", "type": "text", "tokenizer": "martian"}]'
    assert TableMapping.from_json(foreign).by_name["t"].tokenizer == "default"


# --- searches ------------------------------------------------------------------------------------

ROWS = pa.table(
    {
        "t": ["the quick fox", "fox and the hound", "quick quick", "The", None],
        "title": ["the", "x", "the fox", "y", "the"],
    }
)


def test_stop_words_are_not_asked_for(make):
    split = make(ROWS, {"indexing.tokenizer.t": "english"})
    assert split.search(query("the AND fox", "t")).tolist() == [0, 1]
    assert split.search(query("+the +(a OR the) +quick", "t")).tolist() == [0, 2]
    assert split.search(query("the", "t")).tolist() == []
    assert split.search(query("the AND of", "t")).tolist() == []
    assert split.search(query("fox AND NOT the", "t")).tolist() == [0, 1]
    assert split.search(query('"fox the hound"', "t")).tolist() == []
    assert split.search(query('"fox and the hound"', "t")).tolist() == [1]
    assert split.search(query('"quick the fox"~1', "t")).tolist() == [0]
    # Over all columns a word that one of them leaves out is asked of the others, if alone.
    assert split.search(query("the")).tolist() == [0, 2, 4]
    assert split.search(query("the AND fox")).tolist() == [0, 1, 2]


def test_stop_words_of_json_are_no_values(make):
    rows = pa.table({"doc": ['{"n": 1, "s": "one fox"}', '{"n": 2}', '{"s": "1 the"}']})
    options = {
        "indexing.typemap.doc": "json",
        "indexing.tokenizer.doc": "default | stop_words(1, the)",
    }
    split = make(rows, options)
    for text, expected in {"doc.n:1": [0], "doc:1": [0], "doc:fox AND doc:the": [0]}.items():
        search = query(text)
        mapping = split.context.mapping
        assert split.search(search).tolist() == expected, text
        assert np.flatnonzero(search_rows(search, rows, mapping)).tolist() == expected, text


def test_values_of_a_list_are_apart(make):
    rows = pa.table({"t": [["getName", "x"], ["get", "nameX"]]})
    for name in ("code", "default | edge(1,3)", "default | shingles(2)", "english"):
        split = make(rows, {"indexing.tokenizer.t": name})
        for text in ('"get name"', '"name x"', '"name x"~1', '"get x"~2', '"getname x"~3', "get"):
            search = query(text, "t")
            flat = np.flatnonzero(search_rows(search, rows, split.context.mapping)).tolist()
            assert split.search(search).tolist() == flat, (name, text)


def test_markup_takes_linear_time():
    for part in ("<", "<a ", "<!--", "<script>", "&", "<a '", "</"):
        assert len(strip_html(part * 200_000).text) <= 200_000 * len(part)
