"""Snippets on a terminal: HTML with `<b>` becomes text with the words found highlighted."""

from __future__ import annotations

import html
import re

from rich.text import Text

from indextables.cli.cells import printable

_MARK = re.compile(r"(</?b>)")
_STYLE = "bold yellow"


def highlighted(snippet: str) -> Text:
    """A snippet as one line.

    >>> highlighted("a <b>red</b> &lt;b&gt;").plain
    'a red <b>'
    """
    text, marked = Text(), False
    for part in _MARK.split(snippet):
        if part in ("<b>", "</b>"):
            marked = part == "<b>"
            continue
        shown = printable(re.sub(r"\s+", " ", html.unescape(part)))
        text.append(shown, _STYLE if marked else None)
    return text
