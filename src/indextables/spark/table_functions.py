"""Functions that are relations: `indextables_changes` and `indextables_search`.

    SELECT * FROM indextables_changes('docs', 40, 45)
    SELECT * FROM indextables_search('docs', 'spark OR lake*', limit => 10, where => "n > 3")

A call in text that passes through `spark.sql` is replaced by a frame before Spark sees the text.
The changes of each version are read in a task of its own. The frame of a search is that of
`search_table`, which is ranked where the table's index is. Statements that never pass through
Python call a table function of the session instead (`RankedSearch`), which takes a path.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from indextables.config import Config
from indextables.errors import IndexTablesError, SchemaError, StatementError
from indextables.lake.opening import open_table, view_of
from indextables.plan.access import NAME, ChosenRows, TableAccess
from indextables.plan.changes import ChangesReader, changes_schema
from indextables.plan.scan import checked_columns
from indextables.predicate.literals import quoted_name
from indextables.schema import SCORE
from indextables.spark.bridge.readwriter import chosen_rows
from indextables.spark.bridge.sessions import bridge_of, is_classic
from indextables.spark.schemas import with_mappings, worker_schema
from indextables.spark.statements import access_to
from indextables.statements.forms import Failure, Target, Word, form, words_of
from indextables.table.arguments import SearchMode, check_limit, check_mode, check_versions
from indextables.table.html import SHOWN_ROWS, rows_html

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

CHANGES = "indextables_changes"
SEARCH = "indextables_search"
PREFIX = "indextables_"
_USAGE = {
    CHANGES: f"Write {CHANGES}('table or path', first version) or {CHANGES}('table or path', first "
    "version, last version), with literals.",
    SEARCH: f"Write {SEARCH}('table or path', 'query'), and any of limit => 10, where => '…', "
    "columns => 'a, b', fields => 'a, b', snippets => 'a', mode => 'lenient', with literals.",
}
_NAMED = ("limit", "where", "columns", "fields", "snippets", "mode")
_MOST_TASKS = 64


def with_frames(spark: SparkSession, text: str) -> tuple[str, dict[str, DataFrame]]:
    """The text with names in braces for calls of the functions, and the frames of these names."""
    if not any(function in text.lower() for function in _USAGE):
        return text, {}
    words = words_of(text) or []
    pieces: list[str] = []
    frames: dict[str, DataFrame] = {}
    done = 0
    for at, word in enumerate(words):
        function = word.text.lower()
        is_call = word.kind == "word" and function in _USAGE
        if not is_call or at + 1 >= len(words) or words[at + 1].text != "(":
            continue
        end = next((n for n in range(at, len(words)) if words[n].text == ")"), None)
        if end is None:
            raise StatementError(f"A call of {function} is not closed. {_USAGE[function]}")
        name = f"{function}_{len(frames)}"
        frame = _changes if function == CHANGES else _search
        frames[name] = frame(spark, words[at + 2 : end])
        pieces += [_literal(text[done : word.start]), f"{{{name}}}"]
        done = words[end].end
    if not frames:
        return text, {}
    return "".join([*pieces, _literal(text[done:])]), frames


def _literal(text: str) -> str:
    return text.replace("{", "{{").replace("}", "}}")


def _changes(spark: SparkSession, words: Sequence[Word]) -> DataFrame:
    parts = [word for at, word in enumerate(words) if at % 2 == 0]
    commas = [word.text for at, word in enumerate(words) if at % 2 == 1]
    is_plain = len(parts) in (2, 3) and set(commas) == {","} and parts[0].kind == "string"
    if not is_plain or not all(part.text.isdecimal() for part in parts[1:]):
        raise StatementError(f"{CHANGES} does not have these arguments. {_USAGE[CHANGES]}")
    access = access_to(spark, _target(parts[0].text, CHANGES))
    newest = access.log().snapshot().version
    first, *last = (int(part.text) for part in parts[1:])
    return changes_frame(spark, access, first, last[0] if last else newest)


def _target(name: str, function: str) -> Target:
    if "/" in name and "`" not in name:
        return Target(path=name)
    named = form("TABLE <table>").match(words_of(f"TABLE {name}") or ())
    if named is None or isinstance(named, Failure):
        reason = f"'{name}' is neither the name of a table nor a path."
        raise StatementError(f"{reason} {_USAGE[function]}")
    target: Target = named["table"]
    return target


# --- a ranked search -----------------------------------------------------------------------------


def search_table(
    spark: SparkSession,
    table: str,
    query: str,
    *,
    limit: int | None = 10,
    where: str | None = None,
    columns: Sequence[str] | None = None,
    fields: Sequence[str] = (),
    snippets: Sequence[str] = (),
    mode: SearchMode = "query",
) -> DataFrame:
    """The best rows of a table for a search, best first, as a DataFrame with a `_score`.

    On a classic session and on Spark Connect, where the server searches.

    Args:
        spark: An enabled session.
        table: A path, or the name of a table in a catalog of a classic session.
        query: What to search for, in the syntax of `indexquery`.
        limit: The most rows to return; None for all that match.
        where: A SQL condition that leaves rows out and changes no score. Without a bridge,
            as on Spark Connect, it is one that `Table.scan` understands.
        columns: The columns to return; all if it is left out.
        fields: The columns that are searched where the query names none, with weights if wanted:
            `["title^3", "body"]`. If it is left out, those of the table's property
            `spark.indextables.search.fields`, or all.
        snippets: For each of these columns there is a column `_snippet_<name>` with its best
            part, the words found marked.
        mode: How the query is read: one of the modes of `Table.search`, `lenient` for text typed
            by people.

    Returns:
        The rows and their `_score`, with the columns of snippets last.

    Raises:
        QueryError: The query or the condition is wrong.
        NotATableError: There is no such table.

    ```py
    best = it.search_table(spark, f"{path}/articles", "fox", fields=["title^3", "body"], limit=1)
    assert [row.id for row in best.collect()] == [1]  # its text is the shorter one
    ```
    """
    check_mode(mode)
    zone = spark.conf.get("spark.sql.session.timeZone") or "UTC"
    lists = [value if isinstance(value, str) else tuple(value) for value in (fields, snippets)]
    if any(isinstance(value, str) for value in (*lists, columns)):
        raise SchemaError("columns, fields and snippets are lists of names.")
    limit = check_limit(limit)
    chosen = ChosenRows(where, query, tuple(fields), mode, limit, tuple(snippets), zone)
    target = _target(table, SEARCH)
    is_named = target.path is None and bridge_of(spark) is not None
    if is_named and not chosen.needs_table(lambda: _config(spark, target)):
        name = ".".join(map(quoted_name, target.name))
        hits = chosen_rows(spark.table(name), chosen)
    else:
        hits = _read(spark, _path(spark, target, table), chosen)
    if columns is not None:
        marked = [f"_snippet_{name}" for name in snippets]
        hits = hits.select(*(quoted_name(name) for name in [*columns, SCORE, *marked]))
    return _shown_in_notebooks(hits)


def _shown_in_notebooks(frame: DataFrame) -> DataFrame:
    """The frame; a notebook that ends a cell with it runs it, and shows its snippets marked.

    Only this frame, not those that are made of it: a search has few rows, a join may not.
    """

    def show() -> str:
        return rows_html(frame.limit(SHOWN_ROWS + 1).toArrow(), is_all=False)

    frame._repr_html_ = show  # type: ignore[method-assign]
    return frame


def _config(spark: SparkSession, target: Target) -> Config:
    """The configuration of a table by its name; nothing of a view, which has none."""
    try:
        return view_of(access_to(spark, target)).config
    except IndexTablesError:
        return Config()


def _path(spark: SparkSession, target: Target, shown: str) -> str:
    if target.path is not None:
        return target.path
    is_path = len(target.name) == 2 and target.name[0].lower() == NAME
    if is_path and bridge_of(spark) is None:  # with a bridge it may be a name in the catalog
        return target.name[1]
    if is_classic(spark):
        return access_to(spark, target).path
    raise StatementError(
        f"'{shown}' is the name of a table, and without a bridge there is no catalog of index "
        "tables. Write the table's path."
    )


def _read(spark: SparkSession, path: str, chosen: ChosenRows) -> DataFrame:
    options = {
        "where": chosen.where,
        "search": chosen.search,
        "fields": json.dumps(chosen.fields),
        "searchMode": chosen.mode,
        "snippets": json.dumps(chosen.snippets),
        "limit": chosen.limit,
        "timezone": chosen.timezone,
    }
    reader = spark.read.format(NAME)
    for name, value in options.items():
        if value is not None:
            reader = reader.option(name, value)
    return reader.load(path)


def _search(spark: SparkSession, words: Sequence[Word]) -> DataFrame:
    """The frame of a call in SQL text."""
    error = StatementError(f"{SEARCH} does not have these arguments. {_USAGE[SEARCH]}")
    arguments: list[list[Word]] = [[]]
    for word in words:
        if word.kind == "symbol" and word.text == ",":
            arguments.append([])
        else:
            arguments[-1].append(word)
    named: dict[str, Word] = {}
    for number, argument in enumerate(arguments):
        if len(argument) == 1 and number < 2:
            named[("table", "query")[number]] = argument[0]
        elif len(argument) == 3 and argument[1].text == "=>" and number >= 2:
            named[argument[0].text.lower()] = argument[2]
        else:
            raise error
    limit = named.pop("limit", None)
    if limit is not None and not limit.text.isdecimal() and limit.text.upper() != "NULL":
        raise error
    texts = {name: word.text for name, word in named.items()}
    if len(texts) < 2 or set(texts) - {"table", "query", *_NAMED}:
        raise error
    if any(word.kind != "string" for word in named.values()):
        raise error
    listed = {name: _listed(texts[name]) for name in ("columns", "fields", "snippets")
              if name in texts}  # fmt: skip
    return search_table(
        spark,
        texts["table"],
        texts["query"],
        limit=10 if limit is None else int(limit.text) if limit.text.isdecimal() else None,
        where=texts.get("where"),
        mode=check_mode(texts.get("mode", "query")),
        **listed,
    )


def _listed(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]


class RankedSearch:
    """The table function `indextables_search` of a session, for SQL that is not seen before.

    It runs in a Python worker of the server, which finds credentials of stores where a process of
    its machine does; it takes a path, because a worker has no catalog.
    """

    @staticmethod
    def analyze(table: Any, query: Any, **named: Any) -> Any:
        """The columns of the result."""
        from pyspark.sql.types import FloatType, StringType, StructField, StructType
        from pyspark.sql.udtf import AnalyzeResult

        if not all(isinstance(one.value, str) for one in (table, query)) or set(named) - {*_NAMED}:
            raise StatementError(f"{SEARCH} does not have these arguments. {_USAGE[SEARCH]}")
        names, marked = (
            _listed(named[name].value) if name in named and named[name].value else None
            for name in ("columns", "snippets")
        )
        opened = open_table(table.value)
        every = with_mappings(opened.schema, None)
        chosen = [every[name] for name in checked_columns(opened.snapshot(), names)]
        more = [StructField(f"_snippet_{name}", StringType()) for name in marked or ()]
        return AnalyzeResult(StructType([*chosen, StructField(SCORE, FloatType()), *more]))

    def eval(self, table: str, query: str, **named: Any) -> Iterator[tuple[Any, ...]]:
        """The rows, best first."""
        listed: dict[str, Any] = {
            name: _listed(named[name])
            for name in ("columns", "fields", "snippets")
            if named.get(name)
        }
        hits = open_table(table).search(
            query,
            limit=named.get("limit", 10),
            where=named.get("where"),
            mode=check_mode(named.get("mode") or "query"),
            **listed,
        )
        for batch in hits.to_batches():
            yield from zip(*(column.to_pylist() for column in batch.columns), strict=True)


def register(spark: SparkSession) -> None:
    """Make the table function part of a session."""
    from pyspark.sql.functions import udtf

    function: Any = udtf(RankedSearch)
    spark.udtf.register(SEARCH, function)


# --- changes -------------------------------------------------------------------------------------


def changes_frame(spark: SparkSession, access: TableAccess, first: int, last: int) -> DataFrame:
    """The rows that versions changed; each task reads some of the versions."""
    check_versions(first, last)
    view = access.view(access.log().snapshot(version=last))
    schema = with_mappings(changes_schema(view), view.shown.carried_mapping)
    tasks = min(last - first + 1, _MOST_TASKS)
    versions: Any = spark.range(first, last + 1, 1, tasks)
    changes: DataFrame = versions.mapInArrow(
        _ReadChanges(ChangesReader(access, last), schema), schema
    )
    return changes


@dataclass(frozen=True)
class _ReadChanges:
    """Reads the changes of the versions that a task has."""

    reader: ChangesReader
    schema: StructType

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        target = worker_schema(self.schema)
        for batch in batches:
            versions: list[Any] = batch.column(0).to_pylist()
            yield from self.reader.batches(versions, target)
