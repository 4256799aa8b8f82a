"""Checking one split: all its bytes, its index, its rows.

- *checksums*: the seal of the footer, every section, every page of every column.
- *index*: it opens, it has a document for every row and no other, and words taken from some rows
  are found together in exactly the rows that hold them.
- *rows*: there are as many as the log says, within the minima and maxima and with the number of
  nulls that it says, in the partition that it says.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc
import tantivy

from indextables.errors import IndexTablesError
from indextables.log.actions import Add
from indextables.plan.execute import Environment
from indextables.plan.scan import SplitTask
from indextables.plan.statistics import decode
from indextables.plan.view import TableView
from indextables.predicate import Column, Search
from indextables.predicate.search_syntax import parse_search
from indextables.split.container import read_section
from indextables.split.evaluate import matching
from indextables.split.indexer import document_values
from indextables.split.query import resolve
from indextables.split.search import IndexPool, SplitFile, SplitSearcher

CHECKS = ("checksums", "index", "rows")

_SAMPLED_ROWS = 16
_SAMPLED_WORDS = 8
_GROUPS_AT_ONCE = 8


@dataclass(frozen=True, slots=True)
class SplitCheck:
    """The task of checking one split; picklable, so that any runner can do it."""

    view: TableView
    task: SplitTask
    add: Add


def check_split(check: SplitCheck) -> dict[str, list[str]]:
    """The problems by check. One that could not be made because of another is not there."""
    task = check.task
    # No footer cache and no open index: what they hold was read before.
    split = SplitFile(check.view.store, task.path, task.size, task.footer_start, task.footer_end)
    found: dict[str, list[str]] = {"checksums": list(_wrong_checksums(split))}
    if found["checksums"]:
        return found
    environment = Environment.of(check.view)
    pool = IndexPool(environment.pool.cache, max_open=1)
    searcher = SplitSearcher(split, pool, environment.context, task.partition)
    for name, problems in (("index", _index(searcher)), ("rows", _rows(split, check.add))):
        try:
            found[name] = list(problems)
        except IndexTablesError as error:
            found[name] = [str(error)]
    return found


def _wrong_checksums(split: SplitFile) -> Iterator[str]:
    def read(start: int, end: int) -> bytes:
        return split.store.get_range(split.path, start, end)

    try:
        sections = split.info.sections
    except IndexTablesError as error:
        yield str(error)
        return
    for section in sections:
        try:
            read_section(read, section, path=split.path)
        except IndexTablesError as error:
            yield str(error)
    try:
        for _ in split.rows.batches(split.rows.schema.names, groups_at_once=_GROUPS_AT_ONCE):
            pass  # pages are checked as they are read
    except IndexTablesError as error:
        yield str(error)


# --- the index -----------------------------------------------------------------------------------


def _index(searcher: SplitSearcher) -> Iterator[str]:
    opened = searcher.pool.get(searcher.split)
    rows = searcher.split.info.rows
    tags = searcher.split.info.row_tags
    indexed = opened.searcher.rows(tantivy.Query.all_query(), total=rows, tags=tags)
    if not np.array_equal(indexed, np.arange(rows)):
        yield f"its index has {len(indexed):,} documents for {rows:,} rows, or other rows"
        return
    for name, wanted in searcher.context.mapping.by_name.items():
        own = searcher.split.info.mapping.by_name.get(name)
        if own is None or not own.field or own.kind not in ("text", "string"):
            continue
        if own.fingerprint != wanted.fingerprint:
            continue  # not used for searches of this table
        search = _sample(searcher, name)
        if search is None:
            continue
        query = resolve(search, searcher.context.mapping, searcher.context.schema)
        # Not `searcher.search`: it would fall back to the rows where the index is damaged.
        by_index = matching(searcher.bound(query), searcher.source())
        by_rows = searcher.scan(search, query)
        if not np.array_equal(by_index, by_rows):
            yield (
                f"a search of {name!r} finds {len(by_index):,} rows in its index and "
                f"{len(by_rows):,} by reading them"
            )


def _sample(searcher: SplitSearcher, name: str) -> Search | None:
    """A search for some rows, each by words of its own together: a common one proves little."""
    rows = np.unique(np.linspace(0, searcher.split.info.rows - 1, _SAMPLED_ROWS, dtype=np.int64))
    mapped = searcher.context.mapping.by_name[name]
    analyzer = mapped.analyzer
    groups = set()
    for value in document_values(searcher.column(name, rows), mapped):
        texts = value if isinstance(value, list) else [value]  # an array of texts is one row
        found = (word.text for text in texts for word in analyzer.words(text or ""))
        words = list(dict.fromkeys(found))
        step = max(1, len(words) // _SAMPLED_WORDS)
        groups.add(" AND ".join(_quoted(word) for word in words[::step][:_SAMPLED_WORDS]))
    text = " OR ".join(f"({group})" for group in sorted(groups) if group)
    if not text:
        return None
    node = parse_search(text, field=name, schema=searcher.context.schema, max_length=len(text))
    return Search(Column((name,)), node, text)


def _quoted(word: str) -> str:
    escaped = word.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


# --- the rows ------------------------------------------------------------------------------------


def _rows(split: SplitFile, add: Add) -> Iterator[str]:
    info = split.info
    if add.num_records is not None and add.num_records != info.rows:
        yield f"it has {info.rows:,} rows, the log says {add.num_records:,}"
    if _present(info.partition_values) != _present(add.partition_values):
        yield f"it is of partition {_present(info.partition_values)}, the log says another"
    stats: dict[str, Any] = orjson.loads(add.stats) if add.stats else {}
    null_counts = stats.get("nullCount") or {}
    bounded = {*(add.min_values or ()), *(add.max_values or ()), *null_counts}
    names = [name for name in split.rows.schema.names if name in bounded]
    nulls = dict.fromkeys(names, 0)
    outside: set[str] = set()
    for _, table in split.rows.batches(names, groups_at_once=_GROUPS_AT_ONCE):
        for name in names:
            nulls[name] += table[name].null_count
            if not _within(table[name], (add.min_values or {}).get(name), low=True):
                outside.add(f"{name!r} has a value below the log's minimum")
            if not _within(table[name], (add.max_values or {}).get(name), low=False):
                outside.add(f"{name!r} has a value above the log's maximum")
    yield from sorted(outside)
    for name, count in null_counts.items():
        if name in nulls and nulls[name] != count:
            yield f"{name!r} has {nulls[name]:,} nulls, the log says {count:,}"


def _present(values: Mapping[str, str | None]) -> dict[str, str]:
    return {name: value for name, value in values.items() if value is not None}


def _within(column: Any, bound: str | None, *, low: bool) -> bool:
    if bound is None:
        return True
    limit = decode(pa.array([bound]), column.type)
    if not limit.is_known[0]:
        return True  # it decides nothing for readers either
    if pa.types.is_floating(column.type):
        column = column.filter(pc.invert(pc.is_nan(column)))
    found = pc.min_max(column)["min" if low else "max"].as_py()
    wanted = limit.values[0].as_py()
    return found is None or bool(wanted <= found if low else found <= wanted)
