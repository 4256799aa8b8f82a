"""The root of all errors."""

from __future__ import annotations

from typing import Any


class IndexTablesError(Exception):
    """The root: `except IndexTablesError` catches everything this package raises on purpose."""

    # Some errors are also a KeyError, which would print the repr of the message.
    __str__ = Exception.__str__

    def __reduce__(self) -> tuple[Any, ...]:
        # The default would call __init__ with the message only; ours take named fields.
        return _rebuild, (type(self), self.args, self.__dict__.copy())


def _rebuild(
    kind: type[IndexTablesError], args: tuple[Any, ...], fields: dict[str, Any]
) -> IndexTablesError:
    error = kind.__new__(kind, *args)
    error.args = args
    error.__dict__.update(fields)
    return error
