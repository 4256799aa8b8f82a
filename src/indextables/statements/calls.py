"""Function calls in the tokens of a statement: where they are, their arguments, their columns."""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot import Token, TokenType

from indextables.predicate.names import split_path

TEXT = (TokenType.STRING, TokenType.RAW_STRING)
_OPENING = (TokenType.L_PAREN, TokenType.L_BRACKET, TokenType.L_BRACE)
_CLOSING = (TokenType.R_PAREN, TokenType.R_BRACKET, TokenType.R_BRACE)
# After these a name with parentheses is defined or listed, not called.
_NO_CALL = {"as", "from", "function", "into", "join", "recursive", "table", "view", "with"}


class Tokens:
    """The tokens of a statement, with their text as it was written."""

    def __init__(self, sql: str, tokens: Sequence[Token]) -> None:
        self.sql = sql
        self.tokens = tokens

    def raw(self, at: int) -> str:
        return self.sql[self.tokens[at].start : self.tokens[at].end + 1]

    def is_call(self, at: int) -> bool:
        tokens = self.tokens
        if at + 1 >= len(tokens) or tokens[at + 1].token_type is not TokenType.L_PAREN:
            return False
        if at > 0 and (
            tokens[at - 1].token_type is TokenType.DOT or self.raw(at - 1).lower() in _NO_CALL
        ):
            return False
        close = self.closing(at + 1)
        # `WITH a AS (…), indexquery (x) AS (…)`
        return not (
            close is not None
            and close + 2 < len(tokens)
            and self.raw(close + 1).lower() == "as"
            and tokens[close + 2].token_type is TokenType.L_PAREN
        )

    def closing(self, opening: int) -> int | None:
        depth = 0
        for at in range(opening, len(self.tokens)):
            if self.tokens[at].token_type in _OPENING:
                depth += 1
            elif self.tokens[at].token_type in _CLOSING:
                depth -= 1
                if depth == 0:
                    return at
        return None

    def split(self, first: int, close: int) -> list[range]:
        """The arguments of a call as ranges of tokens."""
        found, depth, start = [], 0, first
        for at in range(first, close):
            kind = self.tokens[at].token_type
            if kind in _OPENING:
                depth += 1
            elif kind in _CLOSING:
                depth -= 1
            elif kind is TokenType.COMMA and depth == 0:
                found.append(range(start, at))
                start = at + 1
        return [*found, range(start, close)] if close > first else []

    def column_parts(self, column: range) -> tuple[str, ...] | None:
        """The parts of a column's name, or None if it is an expression."""
        first = self.tokens[column[0]]
        if len(column) == 1 and first.token_type in TEXT:
            return split_path(first.text)
        if len(column) % 2 == 0:
            return None
        names, dots = column[::2], column[1::2]
        if any(self.tokens[at].token_type is not TokenType.DOT for at in dots):
            return None
        if not all(self.raw(at)[0].isalnum() or self.raw(at)[0] in "_`" for at in names):
            return None
        return tuple(self.tokens[at].text for at in names)

    def qualifier(self, parts: tuple[str, ...] | None) -> str:
        """What stands before the names of a search's other fields: the operand's relation.

        `a.b` is a column of `a` if the statement has a relation of that name, else a part of `a`.
        """
        if not parts or len(parts) < 2:
            return ""
        wanted = parts[0].lower()
        for at, token in enumerate(self.tokens[1:], 1):
            after_dot = self.tokens[at - 1].token_type is TokenType.DOT
            before_dot = (
                at + 1 < len(self.tokens) and self.tokens[at + 1].token_type is TokenType.DOT
            )
            names = token.text.lower() == wanted and token.token_type not in TEXT
            if names and not before_dot and (not after_dot or self.is_relation(at)):
                return f"{quoted(parts[0])}."
        return ""

    def is_relation(self, at: int) -> bool:
        """Whether a dotted name ends here and follows FROM or JOIN."""
        while at >= 2 and self.tokens[at - 1].token_type is TokenType.DOT:
            at -= 2
        return at > 0 and self.raw(at - 1).lower() in ("from", "join", ",")


def quoted(name: str) -> str:
    """A name in back-ticks."""
    return f"`{name.replace('`', '``')}`"


def literal(text: str) -> str:
    """A text in quotes."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
