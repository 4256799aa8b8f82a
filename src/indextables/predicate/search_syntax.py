"""The search syntax: text to a tree of `search` nodes.

It is Tantivy's query language, and reads as follows::

    query    = clause { ["AND" | "OR"] clause }        no operator means OR, AND binds tighter;
                                                       && and || are other spellings
    clause   = ["+" | "-" | "NOT"] operand ["^" number]
    operand  = "(" query ")" | [field ":"] value | field ":" "(" query ")" | "*"
    value    = word | phrase | range | set | regex | "*"
    phrase   = '"' words '"' ["~" slop | "*"]
    range    = ("[" | "{") bound "TO" bound ("]" | "}") | (">" | ">=" | "<" | "<=") bound
    set      = "IN" "[" { word | phrase } "]"
    regex    = "/" pattern "/"

A word may hold `*` and `?`, and may end in `~1` or `~2`. A backslash makes the next character
literal unless that is a letter or a digit, so a Windows path needs no doubled backslashes.

Why not Tantivy's own parser? It reports no positions, rejects `ts:2024-01-15T00:00:00Z`, leaves
wildcards and fuzzy terms as raw text with half of the escapes gone, and a deeply nested query ends
the process. The tests hold the two against each other: what Tantivy accepts has the same tree here,
but for `&&` and `||`, which Tantivy takes for words.

Clauses in a row are combined by Tantivy's rules: AND binds tighter than OR, and no operator is OR.
In a row without operators `+a b -c` says what must, should and must not match; an excluded clause
that is an alternative of OR stands for all rows but those it matches.
"""

from __future__ import annotations

import ipaddress
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

import pyarrow as pa

from indextables.config import INDEXQUERY_MAX_DEPTH, INDEXQUERY_MAX_LENGTH
from indextables.errors import (
    QuerySyntaxError,
    SchemaError,
    UnknownColumnError,
    UnknownFieldError,
)
from indextables.predicate.names import escaped_field, resolve_field
from indextables.predicate.search import (
    ENDS_WORD,
    MAX_REPEATED,
    All,
    Boolean,
    Boost,
    Exists,
    Phrase,
    Range,
    Regex,
    Scanner,
    SearchNode,
    Term,
    TermSet,
    fields,
    half_character,
    largest_boost,
    literal_text,
    read_word,
    repeated_size,
)

Occur: TypeAlias = Literal["must", "should", "must_not"]


@dataclass(slots=True)
class Clause:
    """One clause and its sign."""

    joiner: str | None
    """The operator before the clause: AND, OR or none."""
    occur: Occur
    node: SearchNode


def combine(clauses: list[Clause]) -> SearchNode:
    """One node from clauses in a row: AND binds tighter than OR and than nothing."""
    runs: list[list[Clause]] = []
    for clause in clauses:
        if clause.joiner == "AND":
            runs[-1].append(clause)
        else:
            runs.append([clause])
    if len(runs) == 1 and len(clauses) > 1:
        return _conjunction(clauses)
    must: list[SearchNode] = []
    should: list[SearchNode] = []
    must_not: list[SearchNode] = []
    for i, run in enumerate(runs):
        clause = run[0]
        is_alternative = clause.joiner == "OR" or (
            i + 1 < len(runs) and runs[i + 1][0].joiner == "OR"
        )
        if len(run) > 1 or (clause.occur == "must_not" and is_alternative):
            should.append(_conjunction(run))
        else:
            {"must": must, "should": should, "must_not": must_not}[clause.occur].append(clause.node)
    return _boolean(must, should, must_not)


def _conjunction(clauses: list[Clause]) -> SearchNode:
    excluded = [clause.node for clause in clauses if clause.occur == "must_not"]
    return _boolean([c.node for c in clauses if c.occur != "must_not"], [], excluded)


def _boolean(
    must: list[SearchNode], should: list[SearchNode], must_not: list[SearchNode]
) -> SearchNode:
    # A clause said twice counts once, as in Tantivy.
    required, optional, excluded = (tuple(dict.fromkeys(n)) for n in (must, should, must_not))
    if not excluded and len(required) + len(optional) == 1:
        return (required or optional)[0]
    if not required and not optional:
        required = (All(),)
    return Boolean(required, optional, excluded)


MAX_BOOST = 1e9
"""Scores have 32 bits: larger boosts would make all of them infinite."""

_OPERATORS = {"AND": "AND", "&&": "AND", "OR": "OR", "||": "OR"}
_PLAIN = re.compile(r"\w+(?=[\s)]|$)(?!\s*:)")
"""A word without any syntax, unless it is one of these."""
_WORD = re.compile(r"\w+")
_PLAIN_WORDS = re.compile(r"\s*\w+(?:\s+\w+)*\s*")
_RESERVED = frozenset((*_OPERATORS, "NOT", "IN"))
_NUMBER = re.compile(r"\d+(\.\d+)?|\.\d+")
_TIMESTAMP = re.compile(r"\d{4}-\d\d-\d\d[Tt]\d\d:\d\d[^\s()\[\]{}\"^]*")
_ADDRESS = re.compile(r"([0-9A-Fa-f:.]*:[0-9A-Fa-f:.]*)(/\d+)?(?=[\s)^]|$)")


def parse_search(
    text: str,
    *,
    field: str | None = None,
    schema: pa.Schema | None = None,
    max_length: int = INDEXQUERY_MAX_LENGTH.default,
    max_depth: int = INDEXQUERY_MAX_DEPTH.default,
) -> SearchNode:
    """Parse a search query.

    `field` is what the query is asked of, named in errors. With a `schema` every field the query
    names must be in it.

    >>> parse_search("spark AND data*")
    Boolean(must=(Term(field=None, text='spark'), Wildcard(field=None, parts=('data', \
<Placeholder.MANY: '*'>))), should=(), must_not=())
    """
    if len(text) > max_length:
        reason = (
            f"it has {len(text):,} characters, more than the {max_length:,} that "
            f"{INDEXQUERY_MAX_LENGTH.name} allows"
        )
        raise QuerySyntaxError(text, reason, field=field)
    if (at := half_character(text)) is not None:
        reason = f"{text[at]!r} is not a character, write the query in UTF-8,"
        raise QuerySyntaxError(text, reason, position=at, field=field)
    if (words := plain_words(text)) is not None:
        return words
    parser = _Parser(text, field, schema, max_depth)
    query = parser.parse()
    if schema is not None:
        check_fields(query, text, schema, parser.names)
    return query


def plain_words(text: str, field: str | None = None) -> SearchNode | None:
    """What a query of words without any sign means, as most are, asked of a field; else `None`.

    >>> plain_words("spark fox", "body")
    Boolean(must=(), should=(Term(field='body', text='spark'), Term(field='body', text='fox')), \
must_not=())
    >>> plain_words("spark AND fox") is plain_words("spark*") is None
    True
    """
    if _PLAIN_WORDS.fullmatch(text) is None:
        return None
    words: dict[str, Term] = {}
    for match in _WORD.finditer(text):
        word = match[0]
        if word in _RESERVED:
            return None
        if word not in words:  # one that is said twice counts once
            words[word] = Term(field, word, at=match.start())
    terms = tuple(words.values())
    return terms[0] if len(terms) == 1 else Boolean(should=terms)


def check_fields(
    query: SearchNode, text: str, schema: pa.Schema, names: Mapping[str, int] | None = None
) -> None:
    """Refuse a query that names a field which the schema has not; `names` says where it does."""
    named = dict.fromkeys(name for name in fields(query) if name is not None)
    for name, position in named.items() if names is None else names.items():
        if resolve_field(name, schema) is None:
            raise UnknownFieldError(name, available=schema.names, query=text, position=position)


class _Parser(Scanner):
    def __init__(
        self, text: str, field: str | None, schema: pa.Schema | None, max_depth: int
    ) -> None:
        super().__init__(text, asked_field=field)
        self.schema = schema
        self.max_depth = max_depth
        self.depth = 0
        self.names: dict[str, int] = {}
        """The fields that the query names, each with where it does first."""

    def enter(self) -> None:
        self.depth += 1
        if self.depth > self.max_depth:
            self.fail(f"it is nested deeper than {INDEXQUERY_MAX_DEPTH.name} = {self.max_depth}")

    # --- clauses

    def parse(self) -> SearchNode:
        self.skip_blanks()
        if not self.peek():
            raise QuerySyntaxError(self.text, "it is empty", field=self.asked_field)
        query = self.clauses(None)
        if self.peek():
            self.fail("')' closes a parenthesis that was never opened")
        return query

    def clauses(self, field: str | None) -> SearchNode:
        clauses: list[Clause] = []
        while True:
            joiner = None
            self.skip_blanks()
            if self.peek() in ("", ")"):
                break
            for word, meaning in _OPERATORS.items() if self.peek() in "AO&|" else ():
                if self.keyword(word):
                    if not clauses:
                        self.fail(f"{word} has nothing on its left")
                    start, joiner = self.at, meaning
                    self.at += len(word)
                    self.skip_blanks()
                    if self.peek() in ("", ")"):
                        self.fail(f"{word} has nothing on its right", start)
                    break
            clauses.append(self.clause(field, joiner))
        if not clauses:
            self.fail("something to search for is missing")
        return combine(clauses)

    def clause(self, field: str | None, joiner: str | None) -> Clause:
        occur: Occur = "should"
        start = self.at
        plain = _PLAIN.match(self.text, start)
        if plain is not None and plain[0] not in _RESERVED:
            self.at = plain.end()
            return Clause(joiner, occur, Term(field, plain[0], at=start))
        if self.peek() in ("+", "-"):
            occur = "must" if self.peek() == "+" else "must_not"
            self.at += 1
            if self.at_boundary() or self.peek() in ("+", "-"):
                self.fail(f"'{self.text[start]}' must be right before a term", start)
        elif self.keyword("NOT"):
            self.at += 3
            self.skip_blanks()
            if self.peek() in ("", ")"):
                self.fail("NOT has nothing on its right", start)
            self.enter()
            inner = self.clause(field, None)
            self.depth -= 1
            return Clause(joiner, "must_not", combine([inner]))
        return Clause(joiner, occur, self.boosted(self.operand(field)))

    def boosted(self, node: SearchNode) -> SearchNode:
        if self.peek() == "^":
            number = _NUMBER.match(self.text, self.at + 1)
            if number is None or not math.isfinite(float(number[0])):
                self.fail("'^' needs a number such as ^2 or ^0.5")
            node = Boost(node, float(number[0]))
            if largest_boost(node) > MAX_BOOST:
                self.fail(f"the boost is more than {MAX_BOOST:,.0f}, together with those inside")
            self.at = number.end()
        if not self.at_boundary():
            self.fail(f"a blank is missing before {self.peek()!r}")
        return node

    # --- operands

    def operand(self, field: str | None) -> SearchNode:
        if self.peek() == "(":
            return self.group(field)
        name = self.field_name()
        if name is None:
            return self.value(field)
        start = self.at
        self.skip_blanks()
        if self.peek() in ("", ")"):
            self.fail(f"the field '{name}' has no value", start)
        return self.group(name) if self.peek() == "(" else self.value(name)

    def group(self, field: str | None) -> SearchNode:
        start = self.at
        self.enter()
        self.at += 1
        node = self.clauses(field)
        if self.peek() != ")":
            self.fail("'(' is never closed", start)
        self.at += 1
        self.depth -= 1
        return node

    def field_name(self) -> str | None:
        """Consume `name:` if it is there."""
        if self.is_value_with_colon():
            return None
        start, name = self.at, ""
        while (c := self.peek()) and not c.isspace() and c not in ":+^{}\"'[]()!*<>/":
            if c == "\\":
                c = self.peek(1)
                name += "\\" + c if c in ".\\" or c.isalnum() else c
                self.at += 1
            else:
                name += c
            self.at += 1
        end = self.at
        self.skip_blanks()
        if self.peek() != ":":
            self.at = start
            return None
        if end == start:
            self.fail("a field's name is missing before ':'")
        self.names.setdefault(name, start)
        self.at += 1
        return name

    def is_value_with_colon(self) -> bool:
        """Whether a timestamp or an IPv6 address stands here, whose colons end no field name."""
        if _TIMESTAMP.match(self.text, self.at):
            return True
        match = _ADDRESS.match(self.text, self.at)
        if match is None:
            return False
        first = match[1].partition(":")[0]
        if self.schema is not None and first in self.schema.names:
            return False
        try:
            ipaddress.IPv6Address(match[1])
        except ValueError:
            return False
        return True

    def value(self, field: str | None) -> SearchNode:
        start = self.at
        node = self.unplaced_value(field)
        return node if isinstance(node, (All, Boolean, Boost)) else replace(node, at=start)

    def unplaced_value(self, field: str | None) -> SearchNode:
        c = self.peek()
        if c in ('"', "'"):
            return self.phrase(field)
        if c in ("[", "{"):
            return self.range(field)
        if c in ("<", ">"):
            return self.half_range(field)
        if c == "/" and (regex := self.regex(field)) is not None:
            return regex
        if self.text.startswith("IN", self.at) and self.text[self.at + 2 :].lstrip()[:1] == "[":
            return self.term_set(field)
        for word in (*_OPERATORS, "NOT"):
            if self.keyword(word):
                self.fail(f'{word} is an operator; write "{word}" to search for the word')
        start = self.at
        characters = self.word()
        if all(c.is_special("*") for c in characters):
            return All() if field is None else Exists(field)
        return read_word(field, characters, fail=lambda reason: self.fail(reason, start))

    def phrase(self, field: str | None) -> SearchNode:
        text, slop, prefix = self.quoted(), 0, False
        if self.peek() == "~":
            number = re.compile(r"\d{1,9}").match(self.text, self.at + 1)
            if number is None:
                self.fail("'~' after a phrase needs a number of words")
            slop, self.at = int(number[0]), number.end()
        elif self.peek() == "*":
            prefix = True
            self.at += 1
        return Phrase(field, text, slop, prefix)

    def bound(self, ends: frozenset[str]) -> str | None:
        if self.peek() in ('"', "'"):
            return self.quoted()
        characters = self.word(ends)
        if len(characters) == 1 and characters[0].is_special("*"):
            return None
        return literal_text(characters)

    def range(self, field: str | None) -> SearchNode:
        start = self.at
        opening, ends = self.peek(), frozenset("]})")
        self.at += 1
        self.skip_blanks()
        lower = self.bound(ends)
        self.skip_blanks()
        if not (self.text.startswith("TO", self.at) and self.peek(2).isspace()):
            self.fail("TO is missing between the two bounds of a range")
        self.at += 2
        self.skip_blanks()
        upper = self.bound(ends)
        self.skip_blanks()
        closing = self.peek()
        if closing not in ("]", "}"):
            self.fail(f"the range that begins with '{opening}' is never closed", start)
        self.at += 1
        if lower is None and upper is None:
            return Exists(field)
        return Range(field, lower, upper, opening == "[", closing == "]")

    def half_range(self, field: str | None) -> SearchNode:
        is_lower = self.peek() == ">"
        self.at += 1
        inclusive = self.peek() == "="
        self.at += inclusive
        self.skip_blanks()
        bound = self.bound(ENDS_WORD)
        if bound is None:
            return Exists(field)
        return (
            Range(field, bound, None, inclusive, True)
            if is_lower
            else Range(field, None, bound, True, inclusive)
        )

    def term_set(self, field: str | None) -> SearchNode:
        start = self.at
        self.at = self.text.index("[", self.at) + 1
        values: list[str] = []
        while True:
            self.skip_blanks()
            if self.peek() == "]":
                self.at += 1
                return TermSet(field, tuple(values))
            if not self.peek():
                self.fail("the set that begins with IN [ is never closed", start)
            if self.peek() in ('"', "'"):
                values.append(self.quoted())
            else:
                values.append(literal_text(self.word()))

    def regex(self, field: str | None) -> Regex | None:
        """A pattern between slashes; a path such as /usr/bin is a word."""
        match = re.compile(r"/((?:[^/\\]|\\.)+)/(?=[\s)^]|$)", re.DOTALL).match(self.text, self.at)
        if match is None:
            return None
        pattern = match[1].replace("\\/", "/")
        if (size := repeated_size(pattern)) > MAX_REPEATED:
            self.fail(
                f"the repetitions of the regular expression expand to {size:,} letters, more than "
                f"the {MAX_REPEATED:,} that are allowed"
            )
        if (problem := _regex_problem(pattern)) is not None:
            self.fail(f"the regular expression does not compile ({problem})")
        self.at = match.end()
        return Regex(field, pattern)


def _regex_problem(pattern: str) -> str | None:
    """The reason for which the index's regular expression engine refuses a pattern."""
    import tantivy

    builder = tantivy.SchemaBuilder()
    builder.add_text_field("field")
    try:
        tantivy.Query.regex_query(builder.build(), "field", pattern)
    except ValueError as error:
        return " ".join(str(error).partition("RegexQueryError: ")[2].strip("'").split())
    return None


def weighted_fields(names: Sequence[str], schema: pa.Schema) -> dict[str, float]:
    """Search fields with their weights, of `title^3` and the like."""
    weights: dict[str, float] = {}
    for name in names:
        # A column may have such a name itself.
        column, sign, weight = (name, "", "") if name in schema.names else name.rpartition("^")
        if not sign:
            column = name
        field = _search_field(column, schema)
        try:
            weights[field] = float(weight) if sign else 1.0
        except ValueError:
            weights[field] = math.nan
        if not 0 < weights[field] <= MAX_BOOST:
            raise SchemaError(
                f"The weight of '{name}' is a number above 0 and up to {MAX_BOOST:g}: write "
                f"'{column}^3'."
            )
    return weights


def _search_field(name: str, schema: pa.Schema) -> str:
    """A column, whose name may have dots, or a path into one."""
    if name in schema.names:
        return escaped_field([name])
    if resolve_field(name, schema) is None:
        raise UnknownColumnError(name, available=schema.names)
    return name
