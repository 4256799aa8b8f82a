"""DELETE and UPDATE of a table that is named by an expression: `DELETE FROM IDENTIFIER(:t) …`.

Spark computes the name, and the statement goes on as if it had been written there.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from indextables.statements.forms import words_of
from indextables.statements.search_calls import Arguments


def with_name(
    text: str, args: Arguments, compute: Callable[[str, Arguments], Any]
) -> tuple[str, Arguments]:
    """A statement and its arguments with the table's own name; others as they are.

    `compute` returns the value of an expression with its arguments. Parameters that count by their
    place are used up by the name first, because it stands before all others.
    """
    words = words_of(text) or []
    shown = [word.text.upper() for word in words[:4]]
    at = 2 if shown[:2] == ["DELETE", "FROM"] else 1 if shown[:1] == ["UPDATE"] else None
    if at is None or shown[at : at + 2] != ["IDENTIFIER", "("] or words[at].kind != "word":
        return text, args
    depth, places = 0, 0
    for word in words[at + 1 :]:
        if word.kind == "symbol":
            depth += (word.text == "(") - (word.text == ")")
            places += word.text == "?"
        if depth == 0:
            expression = text[words[at + 1].start : word.end]
            own, rest = (args[:places], args[places:]) if isinstance(args, list) else (args, args)
            name = compute(expression, own)
            if not isinstance(name, str):
                break  # Spark says what is wrong with it
            return f"{text[: words[at].start]}{name}{text[word.end :]}", rest
    return text, args
