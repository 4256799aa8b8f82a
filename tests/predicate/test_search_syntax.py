"""Every line of the search syntax, its mistakes, and agreement with Tantivy's own parser."""

from __future__ import annotations

import itertools
import pickle
import random
import re
from typing import Any

import pyarrow as pa
import pytest
import tantivy
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from indextables.errors import QuerySyntaxError, UnknownFieldError
from indextables.predicate import (
    All,
    Boolean,
    Boost,
    Exists,
    Fuzzy,
    Phrase,
    Placeholder,
    Range,
    Regex,
    SearchNode,
    Term,
    TermSet,
    Wildcard,
    search_fields,
    search_syntax,
)
from indextables.predicate.search import walk
from indextables.predicate.search_syntax import parse_search

MANY, ONE = Placeholder.MANY, Placeholder.ONE


def t(text: str, field: str | None = None) -> Term:
    return Term(field, text)


def w(*parts: str | Placeholder, field: str | None = None) -> Wildcard:
    return Wildcard(field, parts)


def must(*nodes: SearchNode) -> Boolean:
    return Boolean(must=nodes)


def should(*nodes: SearchNode) -> Boolean:
    return Boolean(should=nodes)


def without(node: SearchNode) -> Boolean:
    return Boolean(must=(All(),), must_not=(node,))


A, B, C, D = t("a"), t("b"), t("c"), t("d")
SYNTAX: dict[str, SearchNode] = {
    # terms and phrases
    "spark": t("spark"),
    "  spark\n": t("spark"),
    "wi-fi": t("wi-fi"),
    "it's": t("it's"),
    "AT&T": t("AT&T"),
    "日本語": t("日本語"),
    '"machine learning"': Phrase(None, "machine learning"),
    "'machine learning'": Phrase(None, "machine learning"),
    '"machine learning"~2': Phrase(None, "machine learning", slop=2),
    '"machine lear"*': Phrase(None, "machine lear", prefix=True),
    '"say \\"hi\\""': Phrase(None, 'say "hi"'),
    '""': Phrase(None, ""),
    # booleans
    "a b": should(A, B),
    "a a": A,
    "a AND b": must(A, B),
    "a OR b": should(A, B),
    "a AND b OR c AND d": should(must(A, B), must(C, D)),
    "a b AND c": should(A, must(B, C)),
    "NOT a": without(A),
    "a NOT b": Boolean(should=(A,), must_not=(B,)),
    "a AND NOT b": Boolean(must=(A,), must_not=(B,)),
    "NOT a AND b": Boolean(must=(B,), must_not=(A,)),
    "NOT a NOT b": Boolean(must=(All(),), must_not=(A, B)),
    "a OR NOT b": should(A, without(B)),
    "NOT NOT a": without(without(A)),
    "+a -b c": Boolean(must=(A,), should=(C,), must_not=(B,)),
    "-a": without(A),
    "+a": A,
    "-(a b)": without(should(A, B)),
    "(a OR b) AND c": must(should(A, B), C),
    "((a))": A,
    "(-a) b": should(without(A), B),
    "or": t("or"),
    "a && b": must(A, B),
    "a || b": should(A, B),
    "a && b || c": should(must(A, B), C),
    "a&&b": t("a&&b"),
    # wildcards
    "data*": w("data", MANY),
    "da*a": w("da", MANY, "a"),
    "*ata": w(MANY, "ata"),
    "d?ta": w("d", ONE, "ta"),
    "?": w(ONE),
    "a**b": w("a", MANY, "b"),
    "a\\*b": t("a*b"),
    "a\\*b*": w("a*b", MANY),
    "a\\?": t("a?"),
    "*": All(),
    "**": All(),
    "title:*": Exists("title"),
    # fuzzy
    "spark~2": Fuzzy(None, "spark", 2),
    "spark~1": Fuzzy(None, "spark", 1),
    "spark~": Fuzzy(None, "spark", 1),
    "spark~0": t("spark"),
    "a~b": t("a~b"),
    "~2": t("~2"),
    "spark\\~2": t("spark~2"),
    # ranges
    "[100 TO 500]": Range(None, "100", "500"),
    "[ 100 TO 500 ]": Range(None, "100", "500"),
    "n:[100 TO 500]": Range("n", "100", "500"),
    "n:{100 TO 500}": Range("n", "100", "500", False, False),
    "n:[100 TO 500}": Range("n", "100", "500", True, False),
    "n:{100 TO 500]": Range("n", "100", "500", False, True),
    "n:[100 TO *]": Range("n", "100", None),
    "n:{* TO 500}": Range("n", None, "500", False, False),
    "n:[* TO *]": Exists("n"),
    "n:[-5 TO -1]": Range("n", "-5", "-1"),
    'n:["a b" TO c]': Range("n", "a b", "c"),
    "n:>=5": Range("n", "5", None, True, True),
    "n:>5": Range("n", "5", None, False, True),
    "n:<=5.5": Range("n", None, "5.5", True, True),
    "n:< 5": Range("n", None, "5", True, False),
    ">=5": Range(None, "5", None),
    "ts:[2024-01-15T00:00:00Z TO 2024-01-16]": Range("ts", "2024-01-15T00:00:00Z", "2024-01-16"),
    "ip:[2001:db8::1 TO 2001:db8::f]": Range("ip", "2001:db8::1", "2001:db8::f"),
    # fields
    "title:spark": t("spark", "title"),
    "title : spark": t("spark", "title"),
    "title:(a b)": should(t("a", "title"), t("b", "title")),
    "title:(a AND body:b)": must(t("a", "title"), t("b", "body")),
    'title:"a b"~3': Phrase("title", "a b", slop=3),
    "title:dat*": w("dat", MANY, field="title"),
    "title:sprak~2": Fuzzy("title", "sprak", 2),
    "title:-5": t("-5", "title"),
    "user.name:x": t("x", "user.name"),
    "user.first\\.name:x": t("x", "user.first\\.name"),
    "first\\ name:x": t("x", "first name"),
    "n: IN [a b c]": TermSet("n", ("a", "b", "c")),
    'n:IN ["a b" c\\*]': TermSet("n", ("a b", "c*")),
    "IN [a b]": TermSet(None, ("a", "b")),
    "n: IN []": TermSet("n", ()),
    "made IN china": should(t("made"), t("IN"), t("china")),
    # values with colons
    "d:2024-01-15": t("2024-01-15", "d"),
    "ts:2024-01-15T00:00:00Z": t("2024-01-15T00:00:00Z", "ts"),
    "2024-01-15T00:00:00Z": t("2024-01-15T00:00:00Z"),
    "2024-01-15T00:00:00+02:00 a": should(t("2024-01-15T00:00:00+02:00"), A),
    "ip:2001:db8::1": t("2001:db8::1", "ip"),
    "2001:db8::1": t("2001:db8::1"),
    "::1": t("::1"),
    "ip:10.0.0.0/8": t("10.0.0.0/8", "ip"),
    "ip:2001:db8::/32": t("2001:db8::/32", "ip"),
    "ip:192.168.*.1": w("192.168.", MANY, ".1", field="ip"),
    "url:http://x.y/z": t("http://x.y/z", "url"),
    "a\\:b": t("a:b"),
    "C\\:\\Windows\\notes": t("C:\\Windows\\notes"),
    '"C:\\Windows\\(x86)"': Phrase(None, "C:\\Windows(x86)"),
    # regular expressions, paths, boosts
    "/sp.rk/": Regex(None, "sp.rk"),
    "title:/a b|c/": Regex("title", "a b|c"),
    "/a\\/b\\d/": Regex(None, "a/b\\d"),
    "/usr/bin": t("/usr/bin"),
    "a^2": Boost(A, 2.0),
    '"a b"~2^0.5': Boost(Phrase(None, "a b", slop=2), 0.5),
    "title:(a b)^3 c": should(Boost(should(t("a", "title"), t("b", "title")), 3.0), C),
    "[a TO b]^2": Boost(Range(None, "a", "b"), 2.0),
}


@pytest.mark.parametrize(("text", "expected"), SYNTAX.items())
def test_syntax(text, expected):
    found = parse_search(text)
    assert found == expected
    assert pickle.loads(pickle.dumps(found)) == found
    hash(found)


MISTAKES: dict[str, tuple[str, int | None]] = {
    "": ("it is empty", None),
    " \t": ("it is empty", None),
    "(a": (r"'\(' is never closed", 0),
    "a (b (c)": (r"'\(' is never closed", 2),
    "a)": ("never opened", 1),
    "()": ("something to search for is missing", 1),
    "title:()": ("something to search for is missing", 7),
    '"abc': ('the quote " is never closed', 0),
    "a 'b": ("the quote ' is never closed", 2),
    "AND AND": ("AND has nothing on its left", 0),
    "a AND": ("AND has nothing on its right", 2),
    "a AND AND b": ("AND is an operator", 6),
    "a OR OR": ("OR is an operator", 5),
    "(OR a)": ("OR has nothing on its left", 1),
    "NOT": ("NOT has nothing on its right", 0),
    "a AND (NOT)": ("NOT has nothing on its right", 7),
    "title:": ("the field 'title' has no value", 6),
    "title: )": ("the field 'title' has no value", 6),
    "title:AND": ("AND is an operator", 6),
    ":a": ("a field's name is missing", 0),
    "- a": ("'-' must be right before", 0),
    "a --b": ("'-' must be right before", 2),
    "+": (r"'\+' must be right before", 0),
    "[1 2]": ("TO is missing", 3),
    "[1 TO 2": ("the range that begins with '\\['", 0),
    "n:{1 TO 2": ("the range that begins with '{'", 2),
    "[]": ("']' has no meaning here", 1),
    "a ]": ("']' has no meaning here", 2),
    "n:>": ("a word is missing", 3),
    "n: IN [a b": ("the set that begins with IN", 3),
    "a^": ("'\\^' needs a number", 1),
    "a^x": ("'\\^' needs a number", 1),
    "a^2b": ("a blank is missing before 'b'", 3),
    '"a"b': ("a blank is missing before 'b'", 3),
    '"a"~': ("'~' after a phrase needs a number", 3),
    "(a)(b)": ("a blank is missing before '\\('", 3),
    "a(b)": ("is inside the word 'a'", 1),
    'a"b"': ("is inside the word 'a'", 1),
    "spark~3": ("the distance ~3", 0),
    "x spark~0.8": ("the distance ~0.8", 2),
    "spa*~2": ("fuzzy and hold a wildcard", 0),
    "a /b(/": ("the regular expression does not compile.*unclosed group", 2),
    "/^a/": ("Empty match operators", 0),
    "a ^2": ("'\\^' has no meaning here", 2),
}


@pytest.mark.parametrize(("text", "mistake"), MISTAKES.items())
def test_a_mistake_is_named_with_its_place(text, mistake):
    reason, position = mistake
    with pytest.raises(QuerySyntaxError, match=reason) as caught:
        parse_search(text, field="content")
    error = pickle.loads(pickle.dumps(caught.value))
    assert (error.query, error.position, error.field) == (text, position, "content")
    assert "on content" in str(error)
    assert position is None or f"at position {position}" in str(error)


def test_an_error_shows_at_most_a_hundred_characters_around_the_place():
    with pytest.raises(QuerySyntaxError) as caught:
        parse_search("a " * 400 + "AND AND" + " b" * 400)
    assert "AND AND" in str(caught.value)
    assert len(str(caught.value)) < 250


def test_length_and_depth_are_capped():
    assert parse_search("a" * 32_768)
    with pytest.raises(QuerySyntaxError, match=r"indexquery\.maxLength"):
        parse_search("a" * 32_769)
    with pytest.raises(QuerySyntaxError, match="11 characters, more than the 10"):
        parse_search("a" * 11, max_length=10)
    assert parse_search("(" * 100 + "a" + ")" * 100) == A
    for deep in ("(" * 101 + "a" + ")" * 101, "NOT " * 101 + "a", "(" * 30_000):
        with pytest.raises(QuerySyntaxError, match=r"indexquery\.maxDepth = 100"):
            parse_search(deep)
    wide = parse_search(" ".join(map(str, range(6_000))))
    assert isinstance(wide, Boolean)
    assert len(wide.should) == 6_000


SCHEMA = pa.schema(
    [
        ("title", pa.string()),
        ("a.b", pa.string()),
        ("meta", pa.string()),
        ("user", pa.struct([("name", pa.string())])),
        ("beef", pa.string()),
    ]
)


@pytest.mark.parametrize(
    "text",
    ["title:x", "TITLE:x", "a.b:x", "a\\.b:x", "meta.any.thing:x", "user.name:x", "User.Name:x"],
)
def test_known_fields(text):
    assert parse_search(text, schema=SCHEMA)


@pytest.mark.parametrize("text", ["nope:x", "x AND (NOT nope:[1 TO 2])", "user.nope:x", "10:30"])
def test_an_unknown_field_lists_the_fields_there_are(text):
    with pytest.raises(UnknownFieldError, match=r"Fields: title, a\.b, meta, user, beef"):
        parse_search(text, schema=SCHEMA)


def test_a_field_wins_over_an_address():
    assert parse_search("beef::1", schema=SCHEMA) == t(":1", "beef")
    assert parse_search("beef::1") == t("beef::1")


def test_fields_of_a_query():
    assert search_fields(parse_search("a title:b -(title:c^2 x.y:*)")) == (None, "title", "x.y")


# --- Tantivy's own parser --------------------------------------------------------------------

WORDS = st.sampled_from(["a", "b", "wi-fi", "1.5", "and", "AND", "OR", "NOT", "data*", "x~1", "IN"])
PIECES = WORDS | st.sampled_from(
    [
        "(",
        ")",
        "+a",
        "-b",
        "f:c",
        "f:(",
        '"a b"',
        '"a b"~2',
        "[a TO b]",
        "f:{1 TO *}",
        "f:>=5",
        "f: IN [a b]",
        "g:*",
        "*",
        "/re/",
        "c^2",
        ")^3",
        "-(",
        "+(",
        "f:'x y'",
        "\\:",
        "a\\*b",
    ]
)


def from_tantivy(node: dict[str, Any]) -> SearchNode:
    """Tantivy's tree in our words, negations completed, only for what the two agree on."""
    match node["type"]:
        case "bool":
            by_occur: dict[str, list[SearchNode]] = {"must": [], "should": [], "must_not": []}
            for occur, child in node["clauses"]:
                by_occur[occur or "should"].append(from_tantivy(child))
            if not by_occur["must"] and not by_occur["should"]:
                by_occur["must"].append(All())
            return Boolean(*(tuple(by_occur[k]) for k in ("must", "should", "must_not")))
        case "boost":
            return Boost(from_tantivy(node["underlying"]), node["boost"])
        case "all":
            return All()
        case "exists":
            return Exists(node["field"])
        case "regex":
            return Regex(node["field"], node["pattern"])
        case "set":
            return TermSet(node["field"], tuple(node["elements"]))
        case "range":
            low, high = node["lower"], node["upper"]
            return Range(
                node["field"],
                low.get("value"),
                high.get("value"),
                low["type"] == "inclusive",
                high["type"] == "inclusive",
            )
        case _:
            phrase = (node["field_name"], node["phrase"])
            if node["delimiter"] == "none":
                return Term(*phrase)
            return Phrase(*phrase, node["slop"], node["prefix"])


def leaf_name(node: SearchNode) -> str:
    """A leaf with its word uninterpreted, as Tantivy leaves it."""
    match node:
        case Wildcard(field=field, parts=parts):
            text = "".join(p.value if isinstance(p, Placeholder) else p for p in parts)
            return repr(Term(field, text))
        case Fuzzy(field=field, text=text, distance=distance):
            return repr(Term(field, f"{text}~{distance}"))
        case Term(field=field, text=text):
            return repr(Term(field, text.replace("\\", "")))
        case Range():
            return repr(Range(node.field, node.lower, node.upper))
        case _:
            return repr(node)


def leaves(node: SearchNode) -> set[str]:
    return {leaf_name(n) for n in walk(node) if not isinstance(n, (All, Boolean, Boost))}


def matches(node: SearchNode, true_leaves: frozenset[str]) -> bool:
    match node:
        case Boolean(must=required, should=optional, must_not=excluded):
            return (
                all(matches(n, true_leaves) for n in required)
                and (bool(required) or any(matches(n, true_leaves) for n in optional))
                and not any(matches(n, true_leaves) for n in excluded)
            )
        case Boost(child=child):
            return matches(child, true_leaves)
        case All():
            return True
        case _:
            return leaf_name(node) in true_leaves


@settings(max_examples=500)
@given(st.lists(PIECES, min_size=1, max_size=8))
def test_what_tantivy_accepts_has_the_same_tree(pieces):
    text = " ".join(pieces).replace("( ", "(").replace(" )", ")")
    # Two things Tantivy reads oddly: a boost after NOT binds it to its clause, and a word may
    # begin with + after NOT.
    assume(not ("NOT" in text and ("^" in text or "NOT +" in text)))
    try:
        expected = from_tantivy(tantivy.parse_query(text))
    except ValueError:
        return  # strict parsing refuses more than we do
    found = parse_search(text)
    assert leaves(found) == leaves(expected)
    names = sorted(leaves(found))
    for chosen in itertools.product([False, True], repeat=len(names)):
        true_leaves = frozenset(itertools.compress(names, chosen))
        assert matches(found, true_leaves) == matches(expected, true_leaves), true_leaves


@given(
    st.text(max_size=30)
    | st.lists(st.sampled_from("ab \"()[]{}:*?~^\\/+-<>='!"), max_size=20).map("".join)
)
def test_any_text_is_a_query_or_a_named_mistake(text):
    try:
        assert parse_search(text) is not None
    except QuerySyntaxError as error:
        assert error.position is None or 0 <= error.position <= len(text)


@pytest.mark.parametrize("query", ["a^9999999999", "(((a^99999)^99999 b) c)^2"])
def test_a_boost_that_would_make_scores_infinite_is_refused(query):
    with pytest.raises(QuerySyntaxError, match="boost") as caught:
        parse_search(query)
    assert caught.value.position is not None


def test_plain_words_are_read_as_all_words_are(monkeypatch):
    """The short way for words that are nothing but words is the long way, faster."""
    pick = random.Random(7)
    pieces = ["spark", "AND", "OR", "NOT", "IN", "IN [", "]", " ", "  ", ":", "title:", "é1_", "42",
              "(", ")", "-", "+", "&&", "||", "*", "~1", "^2", '"', "a.b", "\\", "[a TO b]", "TO",
              "\t", " b ", " c ", "2024-01-01T10:00:00", "::1", "TOAD", "ORB", "INN",
              "\u3000"]  # fmt: skip
    texts = ["".join(pick.choices(pieces, k=pick.randrange(1, 9))) for _ in range(4_000)]

    def answers():
        for text in texts:
            try:
                node = parse_search(text)
                yield f"{node} at {[getattr(one, 'at', None) for one in walk(node)]}"
            except QuerySyntaxError as error:
                yield str(error)

    short = list(answers())
    for name in ("_PLAIN", "_PLAIN_WORDS"):
        monkeypatch.setattr(search_syntax, name, re.compile(r"(?!)"))
    long = list(answers())
    assert [pair for pair in zip(texts, short, long, strict=True) if pair[1] != pair[2]] == []
    assert sum("Term" in one for one in short) > 1_000
