"""The searches that SQL has names for: `search`, `match_any`, `textsearch` and their siblings.

    search(body, 'spark sql')                      each word is in the column
    search((title, body), 'spark', mode => 'any')  some word is in one of the columns
    search(*, 'spark sql', mode => 'phrase')       the words in a row, in some column
    match_phrase_prefix(body, 'spark s')           the last word is the beginning of one
    textsearch(body, '"spark sql" OR lake*')       a query, of a column of words

Each is a search query like that of `indexquery`. The words of the first four are plain: they have
no syntax, whatever characters they hold, because the tree of the query is built from them.
`written` is the same tree in the search syntax, for those who keep a query as text.

Text that users type (`lenient_query`) has the search syntax where that is meant and valid: words,
phrases in quotes, `+` and `-`, fields that exist, AND, OR and NOT, word*, word~1. Where a text is
not a query as a whole, each part of it between blanks is read on its own, and what is still wrong
there (`http://example.com`, `os.sendfile()`, a quote without its other half) stands for its words,
best for those in a row. Regular expressions, ranges and patterns such as `spark?` are not meant by
a person who asks a question or names a path.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, get_args

from sqlglot import exp
from sqlglot.dialects.spark import Spark

from indextables.config import INDEXQUERY_MAX_DEPTH, INDEXQUERY_MAX_LENGTH
from indextables.errors import QueryError, QuerySyntaxError, SearchCallError
from indextables.predicate.search import (
    All,
    Boolean,
    Boost,
    Fuzzy,
    Phrase,
    SearchNode,
    Term,
    Wildcard,
    half_character,
    in_quotes,
    walk,
)
from indextables.predicate.search_syntax import parse_search
from indextables.predicate.tree import ColumnKind

_spark_parser: Any = Spark.Parser

Mode = Literal["all", "any", "phrase", "prefix", "query"]
MODES: tuple[Mode, ...] = get_args(Mode)
_OPERATORS = frozenset(("AND", "OR", "NOT"))
"""Words of the syntax that no backslash makes plain."""


@dataclass(frozen=True, slots=True)
class SearchName:
    """A search function of SQL: its mode, if that is not an argument, and its kind of columns."""

    mode: Mode | None
    kind: ColumnKind | None = None
    every_column: bool = False
    """Whether it has no column but searches all of them."""


SEVERAL_COLUMNS = "indexquerycolumns"
"""The function of a search in several columns, as `indexquery` is that of one column."""

SEARCH_NAMES: dict[str, SearchName] = {
    "search": SearchName(None),
    "match_all": SearchName("all"),
    "match_any": SearchName("any"),
    "match_phrase": SearchName("phrase"),
    "match_phrase_prefix": SearchName("prefix"),
    "textsearch": SearchName("query", "words"),
    "fieldmatch": SearchName("query", "values"),
    "tantivy4spark_textsearch": SearchName("query", "words"),
    "tantivy4spark_fieldmatch": SearchName("query", "values"),
    "tantivy4spark_textsearchall": SearchName("query", every_column=True),
    "tantivy4spark_fieldmatchall": SearchName("query", every_column=True),
    SEVERAL_COLUMNS: SearchName("query"),
}
_MENTIONED = re.compile(
    rf"indexquery|textsearch|fieldmatch|\b(?:{'|'.join(SEARCH_NAMES)})\s*\(", re.IGNORECASE
)


def mentions_search(sql: str) -> bool:
    """Whether SQL text may hold a search; a cheap test before it is cut into tokens."""
    return _MENTIONED.search(sql) is not None


def mode_of(function: str, mode: str | None) -> Mode:
    """The mode of a call, by its name or by its argument; `all` without one."""
    named = SEARCH_NAMES[function.lower()]
    if named.mode is not None:
        if mode is not None:
            raise SearchCallError(
                function, f"has no mode: its name says it. Write search(…, mode => '{mode}')."
            )
        return named.mode
    lowered = "all" if mode is None else mode.lower()
    for candidate in MODES:
        if candidate == lowered:
            return candidate
    close = difflib.get_close_matches(lowered, MODES, n=1)
    hint = f" Did you mean '{close[0]}'?" if close else ""
    listed = ", ".join(f"'{candidate}'" for candidate in MODES)
    raise SearchCallError(function, f"has no mode '{mode}'. There are {listed}.{hint}")


def words_query(
    words: str,
    mode: Mode = "all",
    *,
    max_length: int = INDEXQUERY_MAX_LENGTH.default,
    max_depth: int = INDEXQUERY_MAX_DEPTH.default,
) -> SearchNode:
    """The query of a search.

    Words are what blanks separate. One without a letter or a digit (`-`, `&`) is left out if there
    are others: most columns have no such words.

    >>> words_query("AND wi-fi")
    Boolean(must=(Phrase(field=None, text='AND', slop=0, prefix=False), \
Term(field=None, text='wi-fi')), should=(), must_not=())
    """
    if mode == "query":
        return parse_search(words, max_length=max_length, max_depth=max_depth)
    if len(words) > max_length:
        raise QuerySyntaxError(
            words,
            f"it has {len(words):,} characters, more than the {max_length:,} that "
            f"{INDEXQUERY_MAX_LENGTH.name} allows",
        )
    if (at := half_character(words)) is not None:
        raise QuerySyntaxError(words, f"{words[at]!r} is not a character", position=at)
    each = words.split()
    if not each:
        raise QuerySyntaxError(words, "it is empty")
    if mode in ("phrase", "prefix"):
        return Phrase(None, words, prefix=mode == "prefix")
    plain = [word for word in each if any(map(str.isalnum, word))] or each
    nodes = tuple(dict.fromkeys(map(_word, plain)))
    if len(nodes) == 1:
        return nodes[0]
    return Boolean(must=nodes) if mode == "all" else Boolean(should=nodes)


def _word(text: str) -> SearchNode:
    return Phrase(None, text) if text in _OPERATORS else Term(None, text)


def written(query: SearchNode) -> str:
    r"""A query of plain words in the search syntax.

    >>> print(written(words_query("C++ (a)")))
    C\+\+ AND \(a\)
    """
    match query:
        case Boolean(must=must, should=should):
            return " AND ".join(map(written, must)) or " OR ".join(map(written, should))
        case Phrase(text=text, prefix=prefix):
            return in_quotes(text) + ("*" if prefix else "")
        case Term(text=text):
            return "".join(c if c.isalnum() else f"\\{c}" for c in text)
        case _:
            raise TypeError(f"Plain words make no {type(query).__name__}.")


def query_text(words: str, mode: Mode) -> str:
    """The query of a search in the search syntax."""
    return words if mode == "query" else written(words_query(words, mode))


# --- text that users type ------------------------------------------------------------------------

NO_ROW = Boolean(must=(All(),), must_not=(All(),))

_PART = re.compile(r'(?P<sign>[+-]?)(?P<text>(?:[\w.]+:)?"[^"]*"|[^\s"]+)')
_WORD = re.compile(r"\w+")


def lenient_query(text: str, read: Callable[[str], SearchNode] | None) -> SearchNode:
    """The query of a text; one without a word finds nothing.

    `read` parses a query and refuses what its table cannot answer. Without it all are plain words.

    >>> lenient_query("spark AND", parse_search)
    Term(field=None, text='spark')
    """
    text = "".join(" " if "\ud800" <= c <= "\udfff" else c for c in text)
    if (query := _read(text, read)) is not None:
        return query
    parts: dict[str, list[SearchNode]] = {"+": [], "-": [], "": []}
    for match in _PART.finditer(text):
        part = match["text"]
        if part not in _OPERATORS and _WORD.search(part):
            parts[match["sign"]].append(_read(part, read) or _words(part))
    must, must_not, should = (tuple(dict.fromkeys(nodes)) for nodes in parts.values())
    if not must and not should:
        return Boolean(must=(All(),), must_not=must_not) if must_not else NO_ROW
    if len(must) + len(should) == 1 and not must_not:
        return (must or should)[0]
    return Boolean(must, should, must_not)


def _read(text: str, read: Callable[[str], SearchNode] | None) -> SearchNode | None:
    if read is None:
        return None
    try:
        query = read(text)
    except QueryError:
        return None
    return query if all(map(_is_plain, walk(query))) else None


def _is_plain(node: SearchNode) -> bool:
    if isinstance(node, Wildcard):
        return node.is_prefix
    return isinstance(node, (Term, Phrase, Fuzzy, All, Boolean, Boost))


def _words(part: str) -> SearchNode:
    words = [Term(None, word) for word in dict.fromkeys(_WORD.findall(part))]
    word_with_marks = Term(None, part)
    return words[0] if len(words) == 1 else Boolean(should=(word_with_marks, *words))


# --- calls in a parsed statement -----------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SearchCall:
    """A call of one of the names in a tree of sqlglot's."""

    name: str
    target: exp.Expr
    """A column, several in a tuple, or a star."""
    query: SearchNode
    text: str
    """The query in the search syntax."""
    mode: Mode

    @property
    def kind(self) -> ColumnKind | None:
        """The kind of columns that may be searched."""
        return SEARCH_NAMES[self.name].kind

    @property
    def columns(self) -> list[exp.Expr] | None:
        """The columns that are searched; None for all."""
        target = self.target.unnest()
        if isinstance(target, exp.Star) or isinstance(target.this, exp.Star):
            return None
        return target.expressions if isinstance(target, exp.Tuple) else [target]


class SearchDialect(Spark):
    """Spark's SQL; sqlglot has a function `search` of its own, with other arguments."""

    class Parser(_spark_parser):  # type: ignore[misc]
        FUNCTIONS: ClassVar[dict[str, Any]] = {
            name: build for name, build in _spark_parser.FUNCTIONS.items() if name != "SEARCH"
        }


def is_search_name(node: object) -> bool:
    """Whether a node of sqlglot's is a call of one of the names."""
    return isinstance(node, exp.Anonymous) and node.name.lower() in SEARCH_NAMES


def search_call(
    node: exp.Expr,
    *,
    max_length: int = INDEXQUERY_MAX_LENGTH.default,
    max_depth: int = INDEXQUERY_MAX_DEPTH.default,
) -> SearchCall:
    """Read a call of one of the names."""
    name, arguments = node.name.lower(), list(node.expressions)
    named: dict[str, exp.Expr] = {}
    while arguments and isinstance(arguments[-1], (exp.Kwarg, exp.PropertyEQ)):
        last = arguments.pop()
        named[last.this.name.lower()] = last.expression
    if SEARCH_NAMES[name].every_column:
        arguments.insert(0, exp.Star())
    if len(arguments) == 3 and "mode" not in named and name == "search":
        named["mode"] = arguments.pop()
    if len(arguments) != 2 or set(named) - {"mode"}:
        raise SearchCallError(name, usage(name))
    words, mode = arguments[1], named.get("mode")
    target = arguments[0].unnest()
    if (
        not words.is_string
        or not (mode is None or mode.is_string)
        or (isinstance(target, exp.Tuple) and not target.expressions)
    ):
        raise SearchCallError(name, usage(name))
    chosen = mode_of(name, None if mode is None else mode.name)
    query = words_query(words.name, chosen, max_length=max_length, max_depth=max_depth)
    text = words.name if chosen == "query" else written(query)
    return SearchCall(name, arguments[0], query, text, chosen)


def usage(name: str) -> str:
    """How a call is written, as the end of a sentence that begins with its name."""
    search_name = SEARCH_NAMES[name.lower()]
    if search_name.every_column:
        return "requires exactly 1 argument: a search query in quotes."
    operand = "a search query" if search_name.mode == "query" else "the words"
    more = ", and mode => '…' if wanted" if search_name.mode is None else ""
    return f"takes a column, several in parentheses or *, then {operand} in quotes{more}."
