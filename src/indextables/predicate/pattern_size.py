"""How large a regular expression becomes when its repetitions are written out.

`((a{0,20}){0,20}){0,20}` is 23 characters and 8,000 letters. Engines compile what is written out,
and may take minutes to find that it is too much, so the size is computed before.
"""

from __future__ import annotations

import re

MAX_REPEATED = 1_000
"""The most letters that repetitions may stand for; also the most states of Tantivy's automata."""

_TOKEN = re.compile(
    r"""
    (?P<escape>\\(?:[pP]\{[^}]*\}|x\{[^}]*\}|u\{[^}]*\}|U\{[^}]*\}|.))
  | (?P<set>\[\^?\]?(?:\\.|\[:\w+:\]|[^\]\\])*\])
  | (?P<open>\((?:\?(?:P?<\w+>|[a-zA-Z-]*:|[a-zA-Z-]+(?=\))))?)
  | (?P<close>\))
  | (?P<count>\{(?P<low>\d+)(?P<comma>,(?P<high>\d*))?\})
  | (?P<many>[*+?])
  | (?P<bar>\|)
  | (?P<one>.)
    """,
    re.VERBOSE | re.DOTALL,
)


def repeated_size(pattern: str) -> int:
    """How many letters the counted repetitions of a pattern stand for; 0 without any.

    >>> repeated_size("spark|sql"), repeated_size("a{3}b"), repeated_size("((a{0,20}){0,20})+")
    (0, 3, 400)
    """
    # For each open group: the size of what it holds, of its last item, and whether it counts.
    sums, last = [0], [0]
    counted = [0]
    last_counted = [0]
    for token in _TOKEN.finditer(pattern):
        if token["open"]:
            for stack in (sums, last, counted, last_counted):
                stack.append(0)
        elif token["close"]:
            if len(sums) > 1:
                last.pop(), last_counted.pop()
                last[-1], last_counted[-1] = sums.pop(), counted.pop()
                sums[-1] += last[-1]
                counted[-1] += last_counted[-1]
        elif token["count"]:
            times = max(1, int((token["high"] or token["low"])[:9]))
            size = last[-1] * times
            sums[-1] += size - last[-1]
            counted[-1] += size - last_counted[-1] if times > 1 else 0
            last[-1] = last_counted[-1] = size
        elif not token["many"] and not token["bar"]:
            last[-1], last_counted[-1] = 1, 0
            sums[-1] += 1
    # Groups that are never closed are the engine's to refuse.
    return sum(counted)
