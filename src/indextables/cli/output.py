"""Output of rows: tables on a terminal, lines in a pipe, JSON for programs.

- On a terminal: a table with colours. Where it is wider than the terminal, one block a row. Long
  values end in `…`, and beyond `SHOWN_ROWS` rows a line says how many more there are.
- In a pipe: a header and tab-separated lines, complete. Tabs and line ends in values are escaped.
- With `--json`: JSON lines, one object a row, complete.
"""

from __future__ import annotations

import itertools
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
from rich.cells import cell_len
from rich.console import Console
from rich.table import Table as Grid
from rich.text import Text

from indextables.cells import cell, marked_parts, printable, python_values, to_json

SHOWN_ROWS = 1_000
"""How many rows a terminal shows."""
_SHOWN_CHARACTERS = 200
_NARROWEST = 12
_FRAME = 3

Style = Callable[[Any], Text]
"""How the values of one column look on a terminal."""


def is_terminal() -> bool:
    """Whether standard output is a terminal."""
    return sys.stdout.isatty()


def console() -> Console:
    """Standard output; colours and a width only where it is a terminal."""
    return Console(highlight=False, markup=False, emoji=False)


def show_rows(
    rows: pa.Table | pa.RecordBatchReader,
    *,
    json: bool,
    styles: Mapping[str, Style] | None = None,
    empty: str = "no rows",
) -> None:
    """Print rows of Arrow."""
    records = _records(rows, python_values if json else _short)
    show_records(rows.schema.names, records, json=json, styles=styles, empty=empty,
                 numeric=_numeric(rows.schema))  # fmt: skip


def show_records(
    names: Sequence[str],
    records: Iterable[Sequence[Any]],
    *,
    json: bool,
    styles: Mapping[str, Style] | None = None,
    empty: str = "no rows",
    numeric: Sequence[bool] | None = None,
) -> None:
    """Print records, each a value for every name."""
    if json:
        for record in records:
            _write(to_json(dict(zip(names, record, strict=True))))
    elif is_terminal():
        _show_grid(names, iter(records), styles or {}, empty, numeric or [False] * len(names))
    else:
        _write("\t".join(map(printable, names)).encode("utf-8", "replace"))
        for record in records:
            _write("\t".join(map(cell, record)).encode("utf-8", "replace"))


def show_facts(facts: Mapping[str, Any], *, json: bool) -> None:
    """Print one object: its JSON, or a line for each fact."""
    if json:
        _write(to_json(dict(facts)))
        return
    if is_terminal():
        grid = Grid(show_header=False, box=None, pad_edge=False)
        grid.add_column(style="bold", no_wrap=True)
        grid.add_column(overflow="fold")
        for name, value in facts.items():
            grid.add_row(Text(printable(name)), Text(cell(value)))
        console().print(grid)
        return
    for name, value in facts.items():
        _write(f"{printable(name)}\t{cell(value)}".encode("utf-8", "replace"))


def show_text(text: str) -> None:
    """Print text of several lines."""
    _write(printable(text, keep_newlines=True).encode("utf-8", "replace"))


def note(text: str) -> None:
    """Print a note beside the result."""
    sys.stdout.flush()
    Console(stderr=True, highlight=False, markup=False, emoji=False, soft_wrap=True).print(
        Text(printable(text), style="dim")
    )


def _write(line: bytes) -> None:
    sys.stdout.buffer.write(line + b"\n")


def _records(
    rows: pa.Table | pa.RecordBatchReader, values: Callable[[Any], list[Any]]
) -> Iterator[tuple[Any, ...]]:
    batches: Iterable[pa.RecordBatch] = rows.to_batches() if isinstance(rows, pa.Table) else rows
    for batch in batches:
        yield from zip(*map(values, batch.columns), strict=True)


def _short(column: Any) -> list[Any]:
    """Readable values; as a double, a float would have digits that mean nothing."""
    if pa.types.is_float32(column.type):
        return [v if v is None else float(v) for v in column.cast(pa.string()).to_pylist()]
    return python_values(column)


def _numeric(schema: pa.Schema) -> list[bool]:
    kinds = (pa.types.is_integer, pa.types.is_floating, pa.types.is_decimal)
    return [any(is_number(field.type) for is_number in kinds) for field in schema]


# --- the terminal ----------------------------------------------------------------------------


def _show_grid(
    names: Sequence[str],
    records: Iterator[Sequence[Any]],
    styles: Mapping[str, Style],
    empty: str,
    numeric: Sequence[bool],
) -> None:
    out = console()
    shown = [
        [_text(value, styles.get(name)) for name, value in zip(names, record, strict=True)]
        for record in itertools.islice(records, SHOWN_ROWS)
    ]
    if not shown:
        out.print(Text(empty, style="dim"))
        return
    if _fits(names, shown, out.width):
        grid = Grid(header_style="bold")
        for name, right in zip(names, numeric, strict=True):
            justify: Any = "right" if right else "left"
            grid.add_column(Text(printable(name)), overflow="fold", justify=justify)
        for row in shown:
            grid.add_row(*row)
        out.print(grid)
    else:
        _show_blocks(out, names, shown)
    more = sum(1 for _ in records)
    if more:
        note(f"… {more:,} more rows. Use --json, a pipe, LIMIT or `indextables export`.")


def _show_blocks(out: Console, names: Sequence[str], shown: Sequence[Sequence[Text]]) -> None:
    """One block a row, for tables that are wider than the terminal."""
    widest = max(cell_len(printable(name)) for name in names)
    for number, row in enumerate(shown, 1):
        title = f"─ row {number} "
        out.print(Text(title + "─" * max(0, min(out.width, 60) - len(title)), style="dim"))
        grid = Grid(show_header=False, box=None, pad_edge=False, padding=(0, 1, 0, 0))
        grid.add_column(style="bold", max_width=max(8, min(widest, out.width // 3)))
        grid.add_column(overflow="fold")
        for name, text in zip(names, row, strict=True):
            grid.add_row(Text(printable(name)), text)
        out.print(grid)


def _fits(names: Sequence[str], shown: Sequence[Sequence[Text]], width: int) -> bool:
    """Whether each column can have its own width, or one that is still legible."""
    needed = 1
    for at, name in enumerate(names):
        widest = max(cell_len(printable(name)), *(row[at].cell_len for row in shown))
        needed += min(widest, max(_NARROWEST, cell_len(printable(name)))) + _FRAME
    return needed <= width


def _text(value: Any, style: Style | None) -> Text:
    if style is not None and value is not None:
        return style(value)
    if value is None:
        return Text("null", style="dim")
    text = f"{value:.10g}" if isinstance(value, float) else cell(value)
    return Text(text if len(text) <= _SHOWN_CHARACTERS else text[:_SHOWN_CHARACTERS] + "…")


_STYLE = "bold yellow"


def bars(counts: Sequence[int]) -> list[str]:
    """Bars as long as their numbers, to be shown beside them."""
    most = max(counts, default=0) or 1
    eighths = [round(_BAR * 8 * count / most) for count in counts]
    return ["█" * (n // 8) + ("", *"▏▎▍▌▋▊▉")[n % 8] for n in eighths]


_BAR = 32


def highlighted(snippet: str) -> Text:
    """A snippet as one line.

    >>> highlighted("a <b>red</b> &lt;b&gt;").plain
    'a red <b>'
    """
    text = Text()
    for part, marked in marked_parts(snippet):
        text.append(printable(re.sub(r"\s+", " ", part)), _STYLE if marked else None)
    return text
