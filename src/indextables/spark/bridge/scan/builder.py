"""Planning a scan with Spark's optimizer: it offers operations, and we accept the exact ones.

Spark offers filters first, then aggregates, a top-N or a limit, then the columns it needs. A filter
is taken when it can be translated as a whole; then it is ours alone and Spark forgets it. In the
end one of four ways is chosen: the log alone, the driver for a few rows, Spark's own Parquet reader
where no index helps, Python tasks for the rest.

The driver answers where tasks would be slower (`OnDriver`): starting Python tasks costs more than
searching dozens of splits. It knows from the indexes how many rows a search finds; few are read
here, and a larger number is still aggregated here. What would have to be fetched from a remote
store stays with the executors, which keep it.
"""

from __future__ import annotations

import functools
import json
import threading
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from cachetools import LRUCache, cached

from indextables import config as keys
from indextables.config import Config
from indextables.errors import DamagedIndexError
from indextables.plan.aggregation import Aggregation
from indextables.plan.execute import Environment, count_from_log
from indextables.plan.scan import ScanPlan, SplitTask, plan_scan
from indextables.plan.split_reader import Order, ScoredReader, SplitReader
from indextables.plan.split_rows import count_proposed
from indextables.plan.view import TableView
from indextables.predicate import (
    TRUE,
    Boolean,
    Compare,
    In,
    Predicate,
    Search,
    conjunction,
    conjuncts,
    searches,
)
from indextables.predicate.names import escaped_field
from indextables.predicate.search import over_fields
from indextables.schema import SCORE
from indextables.spark.bridge.jvm.handles import (
    V2,
    Comparable,
    JavaObject,
    Jvm,
    Unique,
    implements,
    kept,
)
from indextables.spark.bridge.scan.aggregates import (
    aggregate_schema,
    averages_too_much,
    column_name,
    is_ordered,
    parse_aggregation,
    sums_fit_their_columns,
    whole_sums_fit,
)
from indextables.spark.bridge.scan.description import Described, describe_count, describe_scan
from indextables.spark.bridge.scan.filters import Translator, has_floats, parse_filters
from indextables.spark.bridge.scan.native import NativeScans, is_renamed, is_worth_an_index
from indextables.spark.bridge.scan.scans import (
    DriverScan,
    NativeScan,
    Pruning,
    TableScan,
    file_states,
)
from indextables.spark.schemas import spark_schema
from indextables.split.open_split import SplitSearcher
from indextables.storage.local import LocalStore
from indextables.table.arguments import fits

# --- whether the driver answers --------------------------------------------------------------

_MOST_FETCHED = 256 << 20
_MOST_SEARCHED = 16 << 20
"""Files without an index that the driver searches row by row."""
_MOST_SCANNED = 50_000_000
"""Numbers that are read and aggregated in a quarter of a second."""


_NARROWED = 50
"""How many times more rows Spark's reader takes than Python tasks in the same time."""
_IndexCondition = Search | Compare | In
_FEW_VALUES = 100
"""Longer lists are counted again for each query, and not kept."""


def _index_conditions(predicate: Predicate) -> list[_IndexCondition]:
    """The conditions of which an index can say how many rows they leave at most."""
    conditions: list[_IndexCondition] = []
    for condition in conjuncts(predicate):
        match condition:
            case Search() | Compare(op="=", value=str()):
                conditions.append(condition)
            case In(values=values) if all(isinstance(value, str) for value in values):
                conditions.append(condition)
    return conditions


def _most_matching(condition: _IndexCondition, searcher: SplitSearcher) -> int:
    """How many rows of a split meet a condition at most, as its index sees it."""
    if isinstance(condition, Search):
        return searcher.count(condition)
    is_long = isinstance(condition, In) and len(condition.values) > _FEW_VALUES
    try:
        proposed = (count_proposed if is_long else _proposed)(condition, searcher)
    except DamagedIndexError:
        proposed = None
    return searcher.split.info.rows if proposed is None else proposed


@cached(
    LRUCache(4_096),
    key=lambda condition, searcher: (searcher.split.key, condition),
    lock=threading.Lock(),
)
def _proposed(condition: Compare | In, searcher: SplitSearcher) -> int | None:
    """How many rows the index of a split proposes, kept for the plans of other queries.

    A split never changes, and of texts of several frequent words the answer takes milliseconds.
    """
    return count_proposed(condition, searcher)


@dataclass(frozen=True)
class OnDriver:
    """What the driver can do with a planned scan."""

    plan: ScanPlan

    @property
    def config(self) -> Config:
        """The configuration of the scan."""
        return self.plan.view.config

    @functools.cached_property
    def is_small(self) -> bool:
        """Whether all rows of these splits together are few."""
        rows = self.plan.tasks.num_records
        return self._may_open and rows is not None and rows <= self.config[keys.DRIVER_MAX_ROWS]

    @property
    def has_few_rows(self) -> bool:
        """Whether so few rows match that starting tasks would take longer than reading them."""
        return self.hits is not None and self.hits <= self.config[keys.DRIVER_MAX_ROWS]

    def aggregates(self, *, is_count: bool) -> bool:
        """Whether to aggregate the rows that a search finds. A count is read from the indexes."""
        if self.hits is not None:
            return True
        found_by_index = all(isinstance(condition, Search) for condition in self.plan.tasks.used)
        return is_count and found_by_index and self._may_open

    def scans(self, columns: int) -> bool:
        """Whether to read all rows of some columns of numbers, which takes less than a job does."""
        rows = self.plan.tasks.num_records
        return rows is not None and self._may_open and rows * columns <= _MOST_SCANNED

    @functools.cached_property
    def hits(self) -> int | None:
        """How many rows match at most; None where that is too many, or too much work to count."""
        if not self._may_open:
            return None
        return self.plan.tasks.num_records if self.is_small else self._counted(self._most_hits)

    @property
    def narrows(self) -> bool:
        """Whether the indexes leave so few rows that finding them is faster than reading all.

        Spark's own reader takes all rows of a column in the time that Python takes for a fraction.
        Where the driver may not open indexes to see, they are trusted to help.
        """
        if not self._may_open:
            return True
        rows = self.plan.tasks.num_records
        if rows is None or self.is_small:
            return rows is None and self.hits is not None
        # Of frequent values the first split has too many, and the others are not asked.
        return self._counted(min(self._most_hits, (rows - 1) // _NARROWED)) is not None

    @property
    def _most_hits(self) -> int:
        return max(self.config[keys.DRIVER_MAX_ROWS], self.config[keys.DRIVER_MAX_AGGREGATED_ROWS])

    def _counted(self, most: int) -> int | None:
        """How many rows the indexes propose; None where these are more than so many."""
        conditions = _index_conditions(self.plan.predicate)
        if not conditions:
            return None
        environment, counts = Environment.of(self.plan.view), self._counts

        def fewest(task: SplitTask) -> int:
            if task.path not in counts:
                searcher = environment.searcher(task)
                counts[task.path] = min(_most_matching(one, searcher) for one in conditions)
            return counts[task.path]

        first, *following = self.plan.tasks
        # Values that are frequent are so in the first split already.
        total = fewest(first)
        if total > most:
            return None
        for count in environment.map(fewest, following):
            total += count
            if total > most:
                return None
        return total

    @functools.cached_property
    def _counts(self) -> dict[str, int]:
        """How many rows of each split match at most, by the splits' paths."""
        return {}

    @functools.cached_property
    def _may_open(self) -> bool:
        """Whether the driver may open the indexes of these splits."""
        if not self.config[keys.DRIVER_MAX_ROWS]:
            return False
        tasks, elsewhere = self.plan.tasks, self.plan.view.elsewhere
        if elsewhere is not None and elsewhere.unindexed_bytes > _MOST_SEARCHED:
            return False
        if len(tasks) > self.config[keys.DRIVER_MAX_SPLITS]:
            return False
        local = isinstance(self.plan.view.store, LocalStore)
        return local or tasks.total_bytes <= _MOST_FETCHED


# --- what Spark offers -----------------------------------------------------------------------

_MAX_ORDERED = 10_000


@implements(
    "org.apache.spark.sql.internal.connector.SupportsPushDownCatalystFilters",
    "read.SupportsPushDownRequiredColumns",
    "read.SupportsPushDownLimit",
    "read.SupportsPushDownTopN",
    "read.SupportsPushDownAggregates",
)
class ScanBuilder(Unique):
    """Collects what Spark pushes down, then builds the scan."""

    def __init__(self, java: Jvm, uri: str, view: TableView, schema: JavaObject) -> None:
        self.java = java
        self._uri = uri
        self._view = view
        self._snapshot = snapshot = view.snapshot
        self._schema = schema
        self._names = view.names
        self._columns = tuple(snapshot.schema.names)
        self._fields: str | None = None
        """The columns that Spark wants, and of structs maybe not all fields."""
        self._predicate: Predicate = TRUE
        self._skipping: Predicate | None = None
        self._by_index = False
        self._filters: JavaObject = None
        self._limit: int | None = None
        self._order: Order | None = None
        self._aggregation: Aggregation | None = None
        self._offered: tuple[JavaObject, Aggregation | None] | None = None
        self._averages = False

    # --- what Spark offers -------------------------------------------------------------------

    def pushFilters(self, filters: JavaObject) -> JavaObject:  # noqa: N802
        translator = Translator(
            self._names.shown,
            self.java.conf.sessionLocalTimeZone(),
            self._view.config[keys.INDEXQUERY_MAX_LENGTH],
            self._view.config[keys.INDEXQUERY_MAX_DEPTH],
        )
        trees = parse_filters(self.java, filters)
        translated = translator.translate(filters, trees)
        shown = conjunction(*(p for p in translated if p is not None))
        self._predicate = self._names.stored_predicate(shown)
        self._by_index = is_worth_an_index(self._predicate, self._view.mapping) and (
            bool(searches(self._predicate)) or self._on_driver.narrows
        )
        if self._rows_in_log is None and self._native is not None:
            # Spark's reader does not check rows, Spark does; here the filters only choose files
            # and their row groups. Arrow's bounds leave out NaN, to Spark the greatest number.
            renamed = not self._names.is_plain
            fitting = [
                number
                for number, tree in enumerate(trees)
                if not has_floats(tree)
                and not (renamed and is_renamed(filters.apply(number), self._names))
            ]
            self._skipping, self._predicate = self._predicate, TRUE
            self._filters = self._some(filters, fitting, len(trees))
            del self._rows_in_log
            return filters
        rest = [number for number, predicate in enumerate(translated) if predicate is None]
        return self._some(filters, rest, len(trees))

    def _some(self, filters: JavaObject, numbers: Sequence[int], count: int) -> JavaObject:
        """Some of so many filters. Each that is named is a call."""
        if len(numbers) == count:
            return filters
        return self.java.seq([filters.apply(number) for number in numbers])

    def pushedFilters(self) -> JavaObject:  # noqa: N802
        return self.java.array(V2 + "expressions.filter.Predicate")

    def pruneColumns(self, schema: JavaObject) -> None:  # noqa: N802
        if self._by_score and schema.isEmpty():  # rows without columns cannot be counted
            schema = schema.add(SCORE, "float")
        self._schema = schema
        # One call, where every name of an array would be one.
        self._fields = schema.json()
        fields = json.loads(self._fields)["fields"]
        self._columns = self._names.stored_names(field["name"] for field in fields)

    def pushLimit(self, limit: int) -> bool:  # noqa: N802
        self._limit = limit
        return True

    def isPartiallyPushed(self) -> bool:  # noqa: N802
        # The driver ranks; a second sort by Spark would put rows of one score in another order.
        return not self._by_score

    def pushTopN(self, orders: JavaObject, limit: int) -> bool:  # noqa: N802
        if len(orders) != 1 or limit > _MAX_ORDERED:
            return False
        shown = column_name(orders[0].expression())
        descending = orders[0].direction().name() == "DESCENDING"
        if shown is None or shown not in (SCORE, *self._names.shown.names):
            return False
        name = self._names.stored_name(shown)
        if name == SCORE:
            if self._search() is None or not descending:
                return False
        elif not is_ordered(self._snapshot.schema.field(name)):
            return False
        nulls_first = orders[0].nullOrdering().name() == "NULLS_FIRST"
        self._order = Order(name, descending, nulls_first, limit)
        return True

    def supportCompletePushDown(self, aggregation: JavaObject) -> bool:  # noqa: N802
        parsed = self._parsed(aggregation)
        return parsed is not None and self._is_complete(parsed)

    def _is_complete(self, aggregation: Aggregation) -> bool:
        """Whether the scan returns the answer, and not parts that Spark combines."""
        return self._is_counted(aggregation) or self._driver_aggregates(aggregation)

    def pushAggregation(self, aggregation: JavaObject) -> bool:  # noqa: N802
        self._aggregation = self._parsed(aggregation)
        if self._aggregation is None:
            return False
        if not self._is_complete(self._aggregation) and not sums_fit_their_columns(
            self._aggregation, self._snapshot
        ):
            self._aggregation = None
            return False
        if self._is_counted(self._aggregation) or self._is_of_numbers(self._aggregation):
            return True
        if self._native is not None:
            self._aggregation = None  # Spark's own reader and operators are faster
            return False
        return True

    def _parsed(self, aggregation: JavaObject) -> Aggregation | None:
        """What an aggregation asks. Spark offers the same one twice."""
        if self._offered is None or not aggregation.equals(self._offered[0]):
            parsed = parse_aggregation(aggregation, self._names.shown)
            if parsed is not None:
                parsed = parsed.renamed(self._names.stored_name)
                parsed = parsed if whole_sums_fit(parsed, self._snapshot) else None
            # Averages are not pushed down; Spark then offers the sum and the count instead.
            if parsed is None and not self._averages:
                self._averages = averages_too_much(aggregation, self._snapshot)
            if self._averages:
                parsed = None
            self._offered = aggregation, parsed
        return self._offered[1]

    # --- the scan ----------------------------------------------------------------------------

    def build(self) -> JavaObject:
        return kept(self.java, self._built())

    def _built(self) -> Comparable:
        if self._aggregation is not None:
            return self._build_aggregate(self._aggregation)
        search = self._search()
        if search is not None and (self._by_score or SCORE in self._columns):
            return self._build_scored(search)
        if self._native is not None and set(self._columns) <= set(self._snapshot.schema.names):
            schema = self._native.in_reading_order(self._schema, self._columns)
            return NativeScan(
                self.java,
                schema,
                self._described(self._columns),
                scan=functools.partial(
                    self._native.scan, schema=schema, columns=self._columns, filters=self._filters
                ),
                pruning=self._pruning,
            )
        reader = SplitReader(
            self._view,
            self._columns,
            limit=self._limit if self._order is None else None,
            order=None if self._by_score else self._order,
        )
        if self._fits_the_driver and self._columns:
            return DriverScan(
                self.java,
                self._schema,
                self._described(self._columns),
                compute=functools.partial(_all_rows, reader, self._plan, self._schema),
                kept_by=self._kept_by,
            )
        return self._in_tasks(reader, self._schema, self._columns)

    def _build_aggregate(self, aggregation: Aggregation) -> Comparable:
        schema = self.java.struct_type(
            spark_schema(aggregate_schema(aggregation, self._snapshot.schema))
        )
        if self._is_counted(aggregation):
            described = self._described_count(aggregation)
            compute = functools.partial(self._counted, aggregation)
            return DriverScan(self.java, schema, described, compute=compute)
        reader = SplitReader(self._view, aggregation.columns, aggregation=aggregation)
        if self._driver_aggregates(aggregation):
            compute = functools.partial(_aggregated, reader, self._plan)
            return DriverScan(self.java, schema, self._described(aggregation), compute=compute)
        return self._in_tasks(reader, schema, aggregation)

    def _build_scored(self, search: Search) -> Comparable:
        others = conjunction(*(p for p in conjuncts(self._predicate) if not isinstance(p, Search)))
        reader = ScoredReader(
            self._view,
            search,
            others,
            self._columns,
            limit=self._order.limit if self._order and self._by_score else None,
        )
        described = self._described(self._columns)
        if self._by_score or self._fits_the_driver:
            return DriverScan(self.java, self._schema, described, compute=reader.table)
        return TableScan(self.java, self._schema, described, reader=reader)

    def _in_tasks(self, reader: SplitReader, schema: JavaObject, described: Any) -> Comparable:
        parallelism = int(self.java.context.defaultParallelism)
        return TableScan(
            self.java,
            schema,
            self._described(described),
            reader=reader,
            parallelism=parallelism,
            pruning=self._pruning,
        )

    def _described_count(self, aggregation: Aggregation) -> Described:
        return describe_count(
            self._view, self._uri, predicate=self._predicate, aggregation=aggregation
        )

    def _described(self, described: object) -> Described:
        return describe_scan(
            self._plan,
            self._uri,
            predicate=self._predicate,
            order=self._order,
            limit=self._limit,
            aggregation=self._aggregation,
            columns=self._columns if self._aggregation is None else self._aggregation.columns,
            further=(described, self._skipping),
        )

    # --- decisions ---------------------------------------------------------------------------

    @functools.cached_property
    def _plan(self) -> ScanPlan:
        return plan_scan(self._view, predicate=self._skipping or self._predicate)

    @functools.cached_property
    def _native(self) -> NativeScans | None:
        """Spark's own reader, where it is the fastest way.

        Of conditions that Spark can check itself, an index answers those that leave few of all
        rows. A few thousand of not many more are read faster with the others.
        """
        if self._by_index or self._on_driver.is_small:
            return None
        return NativeScans.of(self.java, self._view, self._plan.tasks.files)

    def _search(self) -> Search | None:
        """The search that scores rows: all that a row has to match, as one."""
        pushed = [p for p in conjuncts(self._predicate) if isinstance(p, Search)]
        if len(pushed) <= 1:
            return pushed[0] if pushed else None
        parts = []
        for search in pushed:
            columns = search.columns if search.column is None else (search.column,)
            names = [escaped_field(column.path) for column in columns]
            can_ask = functools.partial(fits, view=self._view)
            parts.append(over_fields(search.query, names, fits=can_ask) if names else search.query)
        return Search(
            None, Boolean(must=tuple(parts)), " AND ".join(search.text for search in pushed)
        )

    @property
    def _by_score(self) -> bool:
        """Whether the best rows are wanted, best first."""
        return self._order is not None and self._order.column == SCORE

    @functools.cached_property
    def _on_driver(self) -> OnDriver:
        return OnDriver(self._plan)

    @property
    def _fits_the_driver(self) -> bool:
        return self._native is None and self._on_driver.has_few_rows

    @property
    def _kept_by(self) -> Hashable | None:
        """What a scan of a small table returns the same rows for, beside what it asks.

        None where rows are not kept: what a search finds depends on more than a table's version.
        """
        view = self._view
        if not self._on_driver.is_small or searches(self._predicate) or view.elsewhere is not None:
            return None
        states = file_states(view.store, self._plan.tasks.paths)
        return None if states is None else (self._fields, states)

    def _driver_aggregates(self, aggregation: Aggregation) -> bool:
        """Whether an aggregate is computed faster here than by tasks."""
        if self._fits_the_driver or not self._plan.tasks:
            return True  # of no rows at all, only the driver returns a row
        if self._is_of_numbers(aggregation):
            return self._on_driver.scans(len(aggregation.columns))
        return self._by_index and self._on_driver.aggregates(is_count=not aggregation.columns)

    @functools.cached_property
    def _rows_in_log(self) -> int | None:
        """How many rows match, if the log alone knows."""
        rows, doubtful = count_from_log(self._snapshot, self._predicate)
        return None if doubtful.num_rows else rows

    def _is_counted(self, aggregation: Aggregation) -> bool:
        """Whether the log alone has the answer."""
        if aggregation.groups or any(a.function != "count_rows" for a in aggregation.aggregates):
            return False
        return self._rows_in_log is not None

    def _is_of_numbers(self, aggregation: Aggregation) -> bool:
        """Whether columns of numbers are aggregated as a whole, where Arrow is fastest."""
        kinds = [self._snapshot.schema.field(name).type for name in aggregation.columns]
        if aggregation.groups or not kinds or not all(map(pa.types.is_primitive, kinds)):
            return False
        return all(one == TRUE for one in self._plan.tasks.used)

    def _counted(self, aggregation: Aggregation) -> pa.Table:
        rows = pa.array([self._rows_in_log], pa.int64())
        return pa.table(dict.fromkeys(aggregation.names(), rows))

    @property
    def _pruning(self) -> Pruning:
        # Keys of a join are keys of rows; an aggregate has none any more.
        columns = self._columns if self._aggregation is None else ()
        return Pruning(self._plan, columns)


def _all_rows(reader: SplitReader, plan: ScanPlan, schema: JavaObject) -> pa.Table:
    pieces = list(reader.tables(plan.tasks))
    if not pieces:
        return pa.table({name: pa.nulls(0) for name in schema.fieldNames()})
    return pa.concat_tables(pieces)


def _aggregated(reader: SplitReader, plan: ScanPlan) -> pa.Table:
    return next(iter(reader.tables(plan.tasks)))
