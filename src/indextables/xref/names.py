"""Where the file of an XRef lives: a folder of four letters, from the hash of the file's name.

A bucket spreads its load over names, so files are spread over 26^4 folders. The hash is the one of
Java's `String.hashCode`, over UTF-16 units, with a sign; its absolute value is taken as 32 unsigned
bits, so that the one hash code that has no positive counterpart gets letters as well.
"""

from __future__ import annotations

import re
import uuid

from indextables.config import XREF_DIRECTORY
from indextables.errors import ConfigError

_LETTERS = 26
_ID = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]*")
XREF_PREFIX = "xref-"


def new_xref_id() -> str:
    """A name for a new XRef: sixteen hexadecimal digits."""
    return uuid.uuid4().hex[:16]


def bare_id(xref_id: str) -> str:
    """The id without the file's prefix: both spellings are found in logs.

    >>> bare_id("xref-abc123"), bare_id("abc123")
    ('abc123', 'abc123')
    """
    return xref_id.removeprefix(XREF_PREFIX)


def xref_path(xref_id: str, *, directory: str = XREF_DIRECTORY.default) -> str:
    """The path of an XRef's file in the table.

    >>> xref_path("abc123")
    '_xrefsplits/ghig/xref-abc123.split'
    """
    bare = bare_id(xref_id)
    if not _ID.fullmatch(bare):
        raise ConfigError(f"{xref_id!r} is no id of a cross-reference: use letters and digits.")
    name = f"{XREF_PREFIX}{bare}.split"
    return f"{directory.strip('/')}/{hash_directory(name)}/{name}"


def hash_directory(file_name: str) -> str:
    """Four letters from a file's name.

    >>> hash_directory("xref-abc123.split")
    'ghig'
    """
    rest = abs(java_hash(file_name))
    letters = []
    for _ in range(4):
        rest, letter = divmod(rest, _LETTERS)
        letters.append(chr(ord("a") + letter))
    return "".join(reversed(letters))


def java_hash(text: str) -> int:
    """Java's `String.hashCode`: 32 bits with a sign.

    >>> java_hash("polygenelubricants") == -(2**31)
    True
    """
    units = memoryview(text.encode("utf-16-le")).cast("H")
    code = 0
    for unit in units:
        code = (31 * code + unit) & 0xFFFFFFFF
    return code - (1 << 32) if code >= 1 << 31 else code
