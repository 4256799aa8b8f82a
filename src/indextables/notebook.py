"""Jupyter: `%load_ext indextables` shows rows with their words marked, and adds `%%search`.

A result stays an Arrow table. IPython is told how to show one, so what `Table.search`, `scan`,
`history` and `it.sql` return looks the same, and code that uses it does not change.

::

    %load_ext indextables

    %%search docs --limit 5
    "machine learning" AND spark
"""

from __future__ import annotations

import argparse
import shlex
from typing import TYPE_CHECKING, Any, NoReturn

from IPython.core.error import UsageError

from indextables.errors import IndexTablesError
from indextables.lake import SearchIndex
from indextables.lake.opening import open_table
from indextables.serve.tables import text_columns
from indextables.table import Table
from indextables.table.html import rows_html

if TYPE_CHECKING:
    import pyarrow as pa
    from IPython.core.interactiveshell import InteractiveShell

_ROWS = ("pyarrow.lib", "Table")


def load(shell: InteractiveShell) -> None:
    """Show rows as HTML, and add the cell `%%search`."""
    _html_formatter(shell).for_type_by_name(*_ROWS, rows_html)

    def search(line: str, cell: str) -> pa.Table:
        return _search(shell.user_ns, line, cell)

    search.__doc__ = _parser().format_help()
    shell.magics_manager.register_function(search, "cell", "search")


def unload(shell: InteractiveShell) -> None:
    """Show rows as Arrow prints them."""
    _html_formatter(shell).pop(".".join(_ROWS), None)
    shell.magics_manager.magics["cell"].pop("search", None)


def _html_formatter(shell: InteractiveShell) -> Any:
    assert shell.display_formatter is not None
    return shell.display_formatter.formatters["text/html"]


# --- the cell ------------------------------------------------------------------------------------


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{message}. {self.format_usage().strip()}")


def _parser() -> argparse.ArgumentParser:
    parser = _Parser("%%search", description="Search a table for what the cell says.",
                     add_help=False)  # fmt: skip
    add = parser.add_argument
    add("table", metavar="TABLE", help="a path, a URI, or a variable with a table")
    add("-l", "--limit", type=int, default=10, help="how many rows (10)")
    add("-f", "--field", action="append", help="search this field where the query names none")
    add("-w", "--where", help="a SQL condition, in quotes")
    add("-c", "--column", action="append", help="show this column; all without it")
    return parser


def _search(names: dict[str, Any], line: str, query: str) -> pa.Table:
    """The best rows for a cell; the texts among their columns have snippets."""
    try:
        arguments = _parser().parse_args(shlex.split(line))
    except ValueError as error:  # a quotation that does not end
        raise UsageError(f"{error}. {_parser().format_usage().strip()}") from None
    try:
        table = _table(names, arguments.table)
        columns = arguments.column or table.schema.names
        return table.search(
            query.strip(),
            fields=arguments.field,
            where=arguments.where,
            columns=columns,
            limit=arguments.limit,
            snippets=[name for name in text_columns(table) if name in columns],
        )
    except IndexTablesError as error:  # a sentence, not a traceback
        raise UsageError(str(error)) from None


def _table(names: dict[str, Any], name: str) -> Table:
    """What a cell names: a variable of the notebook, or a place."""
    value = names.get(name)
    if isinstance(value, SearchIndex):
        return value.table()
    return value if isinstance(value, Table) else open_table(name)
