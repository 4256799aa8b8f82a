"""Clauses of Spark's statements that are read before Spark sees them: MERGE INTO, TIMESTAMP AS OF.

MERGE INTO is read for an engine that computes its parts. Words are counted by depth, in parentheses
and between CASE and END, so that a keyword of a subquery or an expression ends nothing. Text that
does not fit is left to Spark, whose message is better.

TIMESTAMP AS OF an expression: Spark resolves the functions of such an expression after it looked
for tables, and until then takes ``indextables.`/data/docs` ``, as every name of two parts, for a
file of a format. A name of three parts it leaves to the catalog: the namespace `.` is the catalog's
root.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from sqlglot import TokenType
from sqlglot.errors import TokenError

from indextables.plan.access import NAME
from indextables.predicate.spark_tokens import tokenize
from indextables.statements.forms import (
    Assigned,
    Failure,
    Target,
    Word,
    form,
    split_assignments,
    words_of,
)
from indextables.statements.search_calls import TEXT, Tokens

When = Literal["matched", "not matched", "not matched by source"]
Action = Literal["update", "delete", "insert"]

_HEAD = form("MERGE [WITH SCHEMA EVOLUTION] INTO <table> [[AS] <alias>]")
_DEPTH = {"(": 1, "[": 1, "CASE": 1, ")": -1, "]": -1, "END": -1}


@dataclass(frozen=True, slots=True)
class MergeClause:
    """One WHEN … THEN …; without `assignments` it takes all columns of the source (`*`)."""

    when: When
    condition: str | None
    action: Action
    assignments: tuple[Assigned, ...] | None = None


@dataclass(frozen=True, slots=True)
class MergeInto:
    """A MERGE INTO. `source` is the text of a relation without its alias."""

    table: Target
    source: str
    on: str
    clauses: tuple[MergeClause, ...]
    alias: str | None = None
    source_alias: str | None = None
    evolves: bool = False
    ctes: str = ""


def parse_merge(sql: str) -> MergeInto | None:
    """The statement, or None if it is another one, or one that Spark has to explain.

    >>> found = parse_merge(
    ...     "MERGE INTO t USING (SELECT 1 AS id) AS s ON t.id = s.id "
    ...     "WHEN MATCHED AND s.x > 1 THEN DELETE WHEN NOT MATCHED THEN INSERT *"
    ... )
    >>> found.on, [(c.when, c.condition, c.action) for c in found.clauses]
    ('t.id = s.id', [('matched', 's.x > 1', 'delete'), ('not matched', None, 'insert')])
    """
    if "merge" not in sql.lower():
        return None
    words = words_of(sql) or []
    start = next((at for at, w in _top(words) if _is(w, "MERGE")), None)
    if start is None or (start > 0 and not _is(words[0], "WITH")):
        return None
    ctes, words = sql[: words[start].start] if start else "", words[start:]
    at = {key: next((n for n, w in _top(words) if _is(w, key)), None) for key in ("USING", "WHEN")}
    using, when = at["USING"], at["WHEN"]
    if using is None or when is None or when < using:
        return None
    on = next((n for n, w in _top(words) if _is(w, "ON") and using < n < when), None)
    head = _HEAD.match(words[:using])
    if on is None or on + 1 == when or head is None or isinstance(head, Failure):
        return None
    source = _source(sql, words[using + 1 : on])
    clauses = _clauses(sql, words[when:])
    if source is None or not clauses:
        return None
    return MergeInto(
        table=head["table"],
        alias=head.get("alias"),
        evolves=bool(head.get("with_schema_evolution")),
        source=source[0],
        source_alias=source[1],
        on=_text(sql, words[on + 1 : when]),
        clauses=tuple(clauses),
        ctes=ctes,
    )


def named_parameters(sql: str, values: Sequence[Any]) -> tuple[str, dict[str, Any]]:
    """The text with a name for each `?`: parameters then stay what they are in any order."""
    text, names = sql, {}
    marks = [w for w in words_of(sql) or () if w.kind == "symbol" and w.text == "?"]
    for number, (mark, value) in reversed(list(enumerate(zip(marks, values, strict=False)))):
        name = f"_indextables_parameter_{number}"
        names[name] = value
        text = f"{text[: mark.start]}:{name}{text[mark.end :]}"
    return text, names


def _is(word: Word, keyword: str) -> bool:
    return word.kind == "word" and word.text.upper() == keyword


def _top(words: Sequence[Word]) -> Iterator[tuple[int, Word]]:
    """The words that are not inside of parentheses or CASE … END."""
    depth = 0
    for at, word in enumerate(words):
        step = _DEPTH.get(word.text.upper(), 0) if word.kind in ("symbol", "word") else 0
        if step < 0:
            depth += step
        if depth == 0 and step == 0:
            yield at, word
        if step > 0:
            depth += step


def _text(sql: str, words: Sequence[Word]) -> str:
    return sql[words[0].start : words[-1].end] if words else ""


def _source(sql: str, words: Sequence[Word]) -> tuple[str, str | None] | None:
    """The relation after USING, and its alias: what it is called where it has none."""
    if not words:
        return None
    opening = next((at for at in range(len(words) - 1, 0, -1) if words[at].text == "("), 0)
    if words[-1].text == ")" and opening > 1 and words[opening - 1].kind in ("word", "name"):
        # AS s(id, name): the columns have names, too.
        return f"(SELECT * FROM {_text(sql, words)})", words[opening - 1].text
    last, alone = words[-1], len(words) == 1
    is_name = last.kind == "name" or (last.kind == "word" and last.text.isidentifier())
    before = words[-2] if not alone else None
    if before is None or not is_name or (before.kind == "symbol" and before.text == "."):
        return _text(sql, words), last.text if is_name else None
    end = -2 if _is(before, "AS") else -1
    return _text(sql, words[:end]), last.text


def _clauses(sql: str, words: Sequence[Word]) -> list[MergeClause] | None:
    starts = [at for at, word in _top(words) if _is(word, "WHEN")]
    clauses = []
    for start, end in zip(starts, [*starts[1:], len(words)], strict=True):
        clause = _clause(sql, words[start + 1 : end])
        if clause is None:
            return None
        clauses.append(clause)
    return clauses


def _clause(sql: str, words: Sequence[Word]) -> MergeClause | None:
    then = next((at for at, word in _top(words) if _is(word, "THEN")), None)
    if then is None:
        return None
    spelled = " ".join(w.text.upper() for w in words[:then][:5])
    kinds: Mapping[str, When] = {
        "NOT MATCHED BY SOURCE": "not matched by source", "NOT MATCHED BY TARGET": "not matched",
        "NOT MATCHED": "not matched", "MATCHED": "matched",
    }  # fmt: skip
    name = next((k for k in kinds if spelled == k or spelled.startswith(k + " AND")), None)
    if name is None:
        return None
    length = len(name.split())
    condition = _text(sql, words[length + 1 : then]) or None
    action = _action(sql, words[then + 1 :])
    if action is None or (kinds[name] == "not matched") != (action[0] == "insert"):
        return None
    if kinds[name] == "not matched by source" and action == ("update", None):
        return None
    return MergeClause(kinds[name], condition, *action)


def _action(sql: str, words: Sequence[Word]) -> tuple[Action, tuple[Assigned, ...] | None] | None:
    spelled = [word.text.upper() for word in words]
    match spelled:
        case ["DELETE"]:
            return "delete", ()
        case ["UPDATE", "SET", "*"]:
            return "update", None
        case ["INSERT", "*"]:
            return "insert", None
        case ["UPDATE", "SET", _, *_]:
            return "update", tuple(split_assignments(_text(sql, words[2:])))
        case ["INSERT", "(", *_]:
            return _insert(sql, words[1:])
        case _:
            return None


def _insert(sql: str, words: Sequence[Word]) -> tuple[Action, tuple[Assigned, ...]] | None:
    middle = next((at for at, word in _top(words) if _is(word, "VALUES")), None)
    if middle is None or words[middle - 1].text != ")" or words[-1].text != ")":
        return None
    names = [tuple(w.text for w in part if w.text != ".") for part in _list(words[1 : middle - 1])]
    values = [_text(sql, part) for part in _list(words[middle + 2 : -1])]
    if len(names) != len(values) or not all(names) or not all(values):
        return None
    return "insert", tuple(Assigned(n, v) for n, v in zip(names, values, strict=True))


def _list(words: Sequence[Word]) -> list[Sequence[Word]]:
    commas = [at for at, w in _top(words) if w.kind == "symbol" and w.text == ","]
    starts = [0, *(at + 1 for at in commas)]
    return [words[a:b] for a, b in zip(starts, [*commas, len(words)], strict=True)]


# --- TIMESTAMP AS OF -------------------------------------------------------------------------

ROOT = "."

_MAY_TRAVEL = re.compile(r"\b(?:TIMESTAMP|SYSTEM_TIME)\s+AS\s+OF\b", re.IGNORECASE)
_TRAVELS = (["timestamp", "as", "of"], ["system_time", "as", "of"])


def rooted(sql: str) -> str:
    """The statement with the root namespace where an expression names the time.

    >>> rooted("SELECT * FROM indextables.`/docs` TIMESTAMP AS OF now() - INTERVAL 1 DAY")
    'SELECT * FROM indextables.`.`.`/docs` TIMESTAMP AS OF now() - INTERVAL 1 DAY'
    """
    if _MAY_TRAVEL.search(sql) is None:
        return sql
    try:
        tokens = Tokens(sql, tokenize(sql))
    except TokenError:
        return sql
    ends = [t.end + 1 for at, t in enumerate(tokens.tokens) if _is_catalog(tokens, at)]
    for end in reversed(ends):
        sql = f"{sql[:end]}.`{ROOT}`{sql[end:]}"
    return sql


def _is_catalog(tokens: Tokens, at: int) -> bool:
    """Whether the catalog's name begins a name of two parts that travels to an expression."""
    kinds = [token.token_type for token in tokens.tokens[at : at + 8]]
    if tokens.raw(at).strip("`") != NAME or TokenType.DOT not in kinds[1:2]:
        return False
    if at > 0 and tokens.tokens[at - 1].token_type is TokenType.DOT:
        return False
    words = [tokens.raw(number).lower() for number in range(at, min(at + 8, len(tokens.tokens)))]
    time = 4 if words[3:4] == ["for"] else 3
    return words[time : time + 3] in _TRAVELS and not set(kinds[time + 3 : time + 4]) & set(TEXT)
