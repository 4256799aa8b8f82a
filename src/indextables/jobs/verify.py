"""Checking a table: its log against its files, and every split by itself.

The driver reads the whole log again and lists the table once. Every split is then a task:

- *checksums*: the seal of the footer, every section, every page of every column.
- *index*: it opens, it has a document for every row and no other, words taken from some rows are
  found together in exactly the rows that hold them, and hashes are those of the rows.
- *rows*: there are as many as the log says, within the minima and maxima and with the number of
  nulls that it says, in the partition that it says.

No cache of this process is used.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc
import tantivy

from indextables import config as keys
from indextables.config import Config
from indextables.errors import IndexTablesError
from indextables.jobs.progress import progress
from indextables.log.actions import Add, AddXRef
from indextables.log.checkpoint import checkpoints_at, load_checkpoint
from indextables.log.delta_mirror import is_mirrored
from indextables.log.files import adds_from_files, contents_of
from indextables.log.layout import list_log
from indextables.log.snapshot import Snapshot, empty_snapshot
from indextables.log.transaction_log import TransactionLog
from indextables.log.vectors import DeletionVector, StoredVector
from indextables.plan.execute import Environment
from indextables.plan.scan import SplitTask, split_tasks
from indextables.plan.statistics import decode
from indextables.plan.view import TableView
from indextables.predicate import TRUE, Column, Search
from indextables.predicate.search import in_quotes
from indextables.predicate.search_syntax import parse_search
from indextables.runner import LocalRunner, Runner
from indextables.split.format import read_section
from indextables.split.mapping import LEVEL_FIELD
from indextables.split.open_split import IndexPool, SplitFile, SplitSearcher
from indextables.split.row_hash import LEVELS, row_hashes, shared_hash
from indextables.split.search import matching, resolve
from indextables.split.write import document_values
from indextables.storage import Store
from indextables.xref.open_xref import read_xref

CHECKS = ("checksums", "index", "rows")

_SAMPLED_ROWS = 16
_SAMPLED_WORDS = 8
_COLUMNS_AT_ONCE = 16
"""How many columns are compared after one read: to open a split takes as long as it has columns."""
_ROWS_AT_ONCE = 64 << 10


@dataclass(frozen=True, slots=True)
class SplitCheck:
    """The task of checking one split; picklable, so that any runner can do it."""

    view: TableView
    task: SplitTask
    add: Add


def check_split(check: SplitCheck) -> dict[str, list[str]]:
    """The problems by check. A check that another problem made impossible is left out."""
    task = check.task
    # No footer cache and no open index: what they hold was read before.
    split = SplitFile(check.view.store, task.path, task.size, task.footer_start, task.footer_end)
    problems_of: dict[str, list[str]] = {"checksums": list(_wrong_checksums(split))}
    if problems_of["checksums"]:
        return problems_of
    environment = Environment.of(check.view)
    pool = IndexPool(environment.pool.cache, max_files=1)
    searcher = SplitSearcher(split, pool, environment.context, task.partition)
    if check.view.elsewhere is not None:
        searcher = replace(environment, pool=pool).searcher(task)
    for name, problems in (("index", _index(searcher)), ("rows", _rows(searcher, check.add))):
        try:
            problems_of[name] = list(problems)
        except IndexTablesError as error:
            problems_of[name] = [str(error)]
    return problems_of


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
        for _ in split.rows.batches(split.rows.schema.names, rows_at_once=_ROWS_AT_ONCE):
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
    yield from _wrong_hashes(searcher)
    names = [
        name
        for name, mapped in searcher.context.mapping.by_name.items()
        if (stored := searcher.split.info.mapping.by_name.get(name)) is not None
        and stored.field
        and stored.kind in ("text", "string")
        and stored.fingerprint == mapped.fingerprint  # others are not used for searches
    ]
    for start in range(0, len(names), _COLUMNS_AT_ONCE):
        yield from _wrong_searches(searcher, names[start : start + _COLUMNS_AT_ONCE])


def _wrong_searches(searcher: SplitSearcher, names: Sequence[str]) -> Iterator[str]:
    """Columns in which the index finds other rows than reading them does."""
    searches = _samples(searcher, names)
    queries = [
        (search, resolve(search, searcher.context.mapping, searcher.context.schema))
        for search in searches.values()
    ]
    # Not `searcher.search`: it would fall back to the rows where the index is damaged.
    scanned = searcher.scan_all(queries)
    for name, (_, query), rows in zip(searches, queries, scanned, strict=True):
        # Rows of a source file that left cannot be read any more: they are dead, and left out.
        by_index = searcher.live(matching(searcher.bound(query), searcher.source()))
        by_rows = searcher.live(rows)
        assert by_index is not None and by_rows is not None
        if not np.array_equal(by_index, by_rows):
            yield (
                f"a search of {name!r} finds {len(by_index):,} rows in its index and "
                f"{len(by_rows):,} by reading them"
            )


def _wrong_hashes(searcher: SplitSearcher) -> Iterator[str]:
    """Hashes that are not those of the rows, and rows that are not found under their levels."""
    split = searcher.split
    info = split.info
    if not info.mapping.hashed:
        return
    (hashes,) = searcher.pool.hashes(split)
    shared = shared_hash(info.partition_values, searcher.context.schema)
    for first, table in split.rows.batches(split.rows.schema.names, rows_at_once=_ROWS_AT_ONCE):
        wrong = np.flatnonzero(row_hashes(table, shared) != hashes[first : first + len(table)])
        if len(wrong):
            yield f"the hash of row {first + wrong[0]:,} is not that of its values"
            return
    source = searcher.source()
    for level in LEVELS:
        indexed = source.index_rows(source.compiler.build.number(LEVEL_FIELD, level))
        if not np.array_equal(indexed, np.flatnonzero(hashes < 1 << 32 - level)):
            yield f"the rows of level {level} in its index are not those of low hashes"
            return


def _samples(searcher: SplitSearcher, names: Sequence[str]) -> dict[str, Search]:
    """Searches by column, each for some rows by words of their own together: a common one proves
    little. A column without words has none."""
    rows = np.unique(np.linspace(0, searcher.split.info.rows - 1, _SAMPLED_ROWS, dtype=np.int64))
    stored = [name for name in names if name in searcher.split.rows.schema.names]
    table = searcher.complete(searcher.split.rows.read_rows(rows, stored), names, rows=rows)
    samples = {name: _sample(searcher, name, table[name]) for name in names}
    return {name: search for name, search in samples.items() if search is not None}


def _sample(searcher: SplitSearcher, name: str, values: Any) -> Search | None:
    mapped = searcher.context.mapping.by_name[name]
    analyzer = mapped.analyzer
    groups = set()
    for value in document_values(values, mapped):
        texts = value if isinstance(value, list) else [value]  # an array of texts is one row
        words_of_texts = (word.text for text in texts for word in analyzer.words(text or ""))
        words = list(dict.fromkeys(words_of_texts))
        step = max(1, len(words) // _SAMPLED_WORDS)
        groups.add(" AND ".join(in_quotes(word) for word in words[::step][:_SAMPLED_WORDS]))
    text = " OR ".join(f"({group})" for group in sorted(groups) if group)
    if not text:
        return None
    node = parse_search(text, field=name, schema=searcher.context.schema, max_length=len(text))
    return Search(Column((name,)), node, text)


# --- the rows ------------------------------------------------------------------------------------


def _rows(searcher: SplitSearcher, add: Add) -> Iterator[str]:
    split, info = searcher.split, searcher.split.info
    deleted = 0
    if add.deletion_vector is not None:
        descriptor = DeletionVector.from_json(add.deletion_vector, path=add.path)
        # Not one that was read before.
        vector = StoredVector(split.store, descriptor, add.path).read()
        if len(vector) and vector[-1] >= info.rows:
            yield f"its deletion vector names row {vector[-1]:,}; it has {info.rows:,} rows"
        deleted = len(vector)
    if add.num_records is not None and add.num_records + deleted != info.rows:
        left = f", {deleted:,} of them deleted" if deleted else ""
        yield f"it has {info.rows:,} rows{left}, the log says {add.num_records:,}"
    is_source = type(split) is not SplitFile  # partition values of source files are not in splits
    if not is_source and _present(info.partition_values) != _present(add.partition_values):
        yield f"it is of partition {_present(info.partition_values)}, the log says another"
    stats: dict[str, Any] = orjson.loads(add.stats) if add.stats else {}
    null_counts = stats.get("nullCount") or {}
    bounded = {*(add.min_values or ()), *(add.max_values or ()), *null_counts}
    names = [name for name in split.rows.schema.names if name in bounded]
    nulls = dict.fromkeys(names, 0)
    outside: set[str] = set()
    for _, table in split.rows.batches(names, rows_at_once=_ROWS_AT_ONCE):
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
        return True  # readers do not use it either
    if pa.types.is_floating(column.type):
        column = column.filter(pc.invert(pc.is_nan(column)))
    actual = pc.min_max(column)["min" if low else "max"].as_py()
    stated = limit.values[0].as_py()
    return actual is None or bool(stated <= actual if low else actual <= stated)


_SHOWN = 3


@dataclass(slots=True)
class Check:
    """The result of one check: how often it was made, and the problems."""

    name: str
    checked: int = 0
    problems: list[str] = field(default_factory=list)

    @property
    def passed(self) -> bool:
        """Whether nothing was wrong."""
        return not self.problems

    @property
    def message(self) -> str:
        """The first problems."""
        shown = "; ".join(self.problems[:_SHOWN])
        more = len(self.problems) - _SHOWN
        return f"{shown}; and {more:,} more" if more > 0 else shown


def verify(log: TransactionLog, view: TableView, *, runner: Runner | None = None) -> list[Check]:
    """Check the newest version; one `Check` for the log, the files and each of `CHECKS`.

    A table with a Delta mirror has one more, for that.
    """
    config = view.config
    fresh = TransactionLog(log.store, config=log.config)
    checks = [_check_log(fresh, config)]
    snapshot = fresh.snapshot()
    files, there = _check_files(fresh, snapshot)
    checks.append(files)
    if is_mirrored(snapshot.metadata):
        checks.append(_check_mirror(fresh, snapshot))
    if view.elsewhere is not None:
        snapshot = view.snapshot  # the splits that are used, with the dead rows of their source
    shared = view.at(snapshot).for_tasks()
    adds = {add.path: add for add in adds_from_files(snapshot.entries)}
    tasks = [
        SplitCheck(shared, task, adds[task.path])
        for task in split_tasks(snapshot, snapshot.entries, TRUE)
        if task.path in there
    ]
    runner = runner or LocalRunner(config[keys.READ_PARALLELISM])
    sizes = [task.add.size for task in tasks]
    with progress("Verifying", len(tasks), table=log.store.uri, size=sum(sizes)) as advance:
        results = runner.map(check_split, tasks, ended=lambda at: advance(1, sizes[at]))
    for name in CHECKS:
        check = Check(name)
        for task, answers in zip(tasks, results, strict=True):
            if name in answers:
                check.checked += 1
                check.problems += [f"{task.add.path}: {problem}" for problem in answers[name]]
        if name == "checksums":
            for xref in snapshot.xrefs.values():
                if xref.path in there:
                    check.checked += 1
                    check.problems += _wrong_xref(log.store, xref)
        checks.append(check)
    return checks


# --- the log -----------------------------------------------------------------------------------


def _check_log(log: TransactionLog, config: Config) -> Check:
    """Every version file and checkpoint reads, and checkpoints say what the versions say."""
    check = Check("log")
    listing = list_log(log.store)
    runner = LocalRunner(config[keys.STATE_READ_PARALLELISM])
    replayed: Snapshot | None = empty_snapshot(log.store.uri)
    for version in sorted({*listing.versions, *listing.states, *listing.checkpoints}):
        try:
            if version in listing.versions:
                check.checked += 1
                actions = log.actions(version)
                if replayed is not None and replayed.version == version - 1:
                    replayed = replayed.advance([actions])
                else:
                    replayed = None  # older versions are gone; a checkpoint stands for them
            for ref in checkpoints_at(listing, version):
                check.checked += 1
                held = load_checkpoint(log.store, ref, config=config, runner=runner)
                if replayed is not None and replayed.version == version:
                    check.problems += _differences(ref.kind, version, held, replayed)
                else:
                    replayed = held
        except IndexTablesError as error:
            check.problems.append(str(error))
            replayed = None
    return check


def _differences(
    checkpoint_format: str, version: int, held: Snapshot, replayed: Snapshot
) -> Iterator[str]:
    name = f"the {checkpoint_format} checkpoint of version {version}"
    if contents_of(held.entries) != contents_of(replayed.entries):
        yield f"{name} names other splits than the versions before it"
    if held.metadata.schema_string != replayed.metadata.schema_string:
        yield f"{name} has another schema than the versions before it"
    if set(held.xrefs) != set(replayed.xrefs):
        yield f"{name} names other cross-references than the versions before it"


def _check_mirror(log: TransactionLog, snapshot: Snapshot) -> Check:
    """The Delta mirror has the splits, values and statistics of the log, at its version."""
    check = Check("mirror", checked=1)
    try:
        check.problems += log.mirror.differences(snapshot)
    except IndexTablesError as error:
        check.problems.append(str(error))
    return check


# --- cross-references ----------------------------------------------------------------------------


def _wrong_xref(store: Store, xref: AddXRef) -> Iterator[str]:
    """Read all of a cross-reference: its footer, its documents and every section."""
    try:
        data = read_xref(store, xref.path, size=xref.size)
        for section in data.info.sections:
            data.content(section)
    except IndexTablesError as error:
        yield f"{xref.path}: {error}"


# --- the files -----------------------------------------------------------------------------------


def _check_files(log: TransactionLog, snapshot: Snapshot) -> tuple[Check, set[str]]:
    """Every file that the log names is there, as large as it says; returns those that are."""
    sizes = {meta.path: meta.size for meta in log.store.list() if meta.path.endswith(".split")}
    entries = snapshot.entries.select(["path", "size"])
    named: Sequence[tuple[str, int]] = [(row["path"], row["size"]) for row in entries.to_pylist()]
    check = Check("files")
    there = set()
    for path, size in [*named, *((x.path, x.size) for x in snapshot.xrefs.values())]:
        check.checked += 1
        stored_size = sizes.get(path)
        if stored_size is None:
            check.problems.append(f"{path} is missing")
        elif stored_size != size:
            check.problems.append(f"{path} has {stored_size:,} bytes instead of {size:,}")
        else:
            there.add(path)
    return check, there
