"""Planning a scan with Spark's optimizer: it offers, we take what we can answer exactly.

Spark offers filters first, then aggregates, a top-N or a limit, then the columns it needs. A filter
is taken when it can be translated as a whole; then it is ours alone and Spark forgets it. In the
end one of four ways is chosen: the log alone, the driver for a few rows, Spark's own Parquet reader
where no index helps, Python tasks for the rest.
"""

from __future__ import annotations

import functools
from typing import Any

import pyarrow as pa

from indextables import config as keys
from indextables.config import Config, known_keys
from indextables.log.snapshot import Snapshot
from indextables.plan.count import count_from_log
from indextables.plan.execute import Environment
from indextables.plan.scan import ScanPlan, plan_scan
from indextables.predicate import (
    TRUE,
    Boolean,
    Predicate,
    Search,
    conjunction,
    conjuncts,
)
from indextables.predicate.search import over_fields
from indextables.spark.access import TableAccess
from indextables.spark.aggregation import Aggregation, supported
from indextables.spark.bridge.aggregates import aggregate_schema, column_name, parse_aggregation
from indextables.spark.bridge.filters import Translator
from indextables.spark.bridge.jvm import V2, JavaObject, Jvm, implements
from indextables.spark.bridge.native import NativeScans, is_worth_an_index
from indextables.spark.bridge.scan import Described, DriverScan, TableScan
from indextables.spark.read_task import Order, ScoredReader, SplitReader, in_groups
from indextables.spark.schemas import spark_schema
from indextables.spark.search_pushdown import HIDDEN, SCORE
from indextables.storage.local import LocalStore

_MAX_ORDERED = 10_000
_MOST_FETCHED = 256 << 20


@implements(
    "org.apache.spark.sql.internal.connector.SupportsPushDownCatalystFilters",
    "read.SupportsPushDownRequiredColumns",
    "read.SupportsPushDownLimit",
    "read.SupportsPushDownTopN",
    "read.SupportsPushDownAggregates",
)
class ScanBuilder:
    """Collects what Spark pushes down, then builds the scan."""

    def __init__(
        self, java: Jvm, access: TableAccess, snapshot: Snapshot, schema: JavaObject
    ) -> None:
        self.java = java
        self._access = access
        self._snapshot = snapshot
        self._schema = schema
        self._columns = tuple(snapshot.schema.names)
        self._predicate: Predicate = TRUE
        self._skipping: Predicate | None = None
        self._by_index = False
        self._filters: JavaObject = None
        self._limit: int | None = None
        self._order: Order | None = None
        self._aggregation: Aggregation | None = None

    # --- what Spark offers -------------------------------------------------------------------

    def pushFilters(self, filters: JavaObject) -> JavaObject:  # noqa: N802
        translator = Translator(
            self._snapshot.schema,
            self.java.session.sessionState().conf().sessionLocalTimeZone(),
            self._config[keys.INDEXQUERY_MAX_LENGTH],
            self._config[keys.INDEXQUERY_MAX_DEPTH],
        )
        offered = [filters.apply(number) for number in range(filters.size())]
        translated = [translator.translate(one) for one in offered]
        self._predicate = conjunction(*(p for p in translated if p is not None))
        self._by_index = is_worth_an_index(self._predicate, self._snapshot)
        if self._native is not None and count_from_log(self._snapshot, self._predicate)[1].num_rows:
            # Spark's reader does not check rows, Spark does; here the filters only choose files.
            self._skipping, self._predicate = self._predicate, TRUE
            self._filters = filters
            return filters
        kept = [one for one, p in zip(offered, translated, strict=True) if p is None]
        return self.java.seq(kept)

    def pushedFilters(self) -> JavaObject:  # noqa: N802
        return self.java.array(V2 + "expressions.filter.Predicate")

    def pruneColumns(self, schema: JavaObject) -> None:  # noqa: N802
        self._schema = schema
        self._columns = tuple(schema.fieldNames())

    def pushLimit(self, limit: int) -> bool:  # noqa: N802
        self._limit = limit
        return True

    def isPartiallyPushed(self) -> bool:  # noqa: N802
        return True

    def pushTopN(self, orders: JavaObject, limit: int) -> bool:  # noqa: N802
        if len(orders) != 1 or limit > _MAX_ORDERED:
            return False
        name = column_name(orders[0].expression())
        descending = orders[0].direction().name() == "DESCENDING"
        if name is None:
            return False
        if name == SCORE:
            if self._search() is None or not descending:
                return False
        elif name not in self._snapshot.schema.names or not supported(
            "min", self._snapshot.schema.field(name).type
        ):
            return False
        nulls_first = orders[0].nullOrdering().name() == "NULLS_FIRST"
        self._order = Order(name, descending, nulls_first, limit)
        return True

    def supportCompletePushDown(self, aggregation: JavaObject) -> bool:  # noqa: N802
        parsed = parse_aggregation(aggregation, self._snapshot.schema)
        if parsed is None:
            return False
        return self._is_counted(parsed) or self._fits_the_driver

    def pushAggregation(self, aggregation: JavaObject) -> bool:  # noqa: N802
        self._aggregation = parse_aggregation(aggregation, self._snapshot.schema)
        if self._aggregation is None:
            return False
        if self._native is not None and not self._is_counted(self._aggregation):
            self._aggregation = None  # Spark's own reader and operators are faster
            return False
        return True

    # --- the scan ----------------------------------------------------------------------------

    def build(self) -> JavaObject:
        if self._aggregation is not None:
            return self._build_aggregate(self._aggregation)
        search = self._search()
        if SCORE in self._columns and search is not None:
            return self._build_scored(search)
        if self._native is not None and not set(self._columns) & set(HIDDEN):
            return self._native.scan(self._plan.tasks, self._schema, self._filters)
        reader = SplitReader(
            self._access,
            self._snapshot.metadata,
            self._columns,
            limit=self._limit if self._order is None else None,
            order=self._order if self._order and self._order.column != SCORE else None,
        )
        if self._fits_the_driver and self._columns:
            return DriverScan(
                self.java,
                self._schema,
                self._described(self._columns),
                compute=functools.partial(_all_rows, reader, self._plan, self._schema),
            )
        return self._in_tasks(reader, self._schema, self._columns)

    def _build_aggregate(self, aggregation: Aggregation) -> JavaObject:
        schema = self.java.struct_type(
            spark_schema(aggregate_schema(aggregation, self._snapshot.schema))
        )
        if self._is_counted(aggregation):
            compute = functools.partial(self._counted, aggregation)
            return DriverScan(self.java, schema, self._described(aggregation), compute=compute)
        reader = SplitReader(
            self._access, self._snapshot.metadata, aggregation.columns, aggregation=aggregation
        )
        if self._fits_the_driver:
            compute = functools.partial(_aggregated, reader, self._plan)
            return DriverScan(self.java, schema, self._described(aggregation), compute=compute)
        return self._in_tasks(reader, schema, aggregation)

    def _build_scored(self, search: Search) -> JavaObject:
        rest = conjunction(*(p for p in conjuncts(self._predicate) if not isinstance(p, Search)))
        by_score = self._order is not None and self._order.column == SCORE
        reader = ScoredReader(
            self._access,
            self._snapshot,
            search,
            rest,
            self._columns,
            limit=self._order.limit if by_score and self._order else None,
        )
        described = self._described(self._columns)
        if by_score or self._fits_the_driver:
            return DriverScan(self.java, self._schema, described, compute=reader.table)
        return TableScan(self.java, self._schema, described, reader=reader, groups=[[]])

    def _in_tasks(self, reader: SplitReader, schema: JavaObject, what: Any) -> JavaObject:
        parallelism = int(self.java.context.defaultParallelism)
        return TableScan(
            self.java,
            schema,
            self._described(what),
            reader=reader,
            groups=in_groups(self._plan.tasks, parallelism=parallelism),
        )

    def _described(self, what: object) -> Described:
        plan = self._plan
        rows = [task.num_records for task in plan.tasks]
        known = [n for n in rows if n is not None]
        told = [f"IndexTables {self._access.uri} version {self._snapshot.version}"]
        if self._predicate != TRUE:
            told.append(f"where {self._predicate}")
        if self._order is not None:
            told.append(f"first {self._order.limit:,} by {self._order.column}")
        elif self._limit is not None:
            told.append(f"limit {self._limit:,}")
        if self._aggregation is not None:
            told.append(f"aggregate {self._aggregation}")
        told.append(f"splits {len(plan.tasks):,} of {plan.stages[0].splits:,}")
        total, partitions, statistics = (stage.splits for stage in plan.stages[:3])
        line = ", ".join(told)
        size = sum(task.size for task in plan.tasks)
        return Described(
            line=line,
            key=f"{line} {what} {self._order} {self._limit} {self._snapshot.metadata.id}",
            rows=sum(known) if len(known) == len(rows) and self._predicate == TRUE else None,
            size=size,
            metrics=(
                ("splitsTotal", "splits of the table", total),
                ("splitsPruned", "splits pruned by partition", total - partitions),
                ("splitsSkipped", "splits skipped by statistics", partitions - statistics),
                ("splitsRead", "splits to read", len(plan.tasks)),
                ("bytesOfSplits", "bytes of the splits to read", size),
            ),
        )

    # --- decisions ---------------------------------------------------------------------------

    @functools.cached_property
    def _config(self) -> Config:
        return self._access.settings.over(known_keys(self._snapshot.metadata.configuration))

    @functools.cached_property
    def _plan(self) -> ScanPlan:
        return plan_scan(self._snapshot, predicate=self._skipping or self._predicate)

    @functools.cached_property
    def _native(self) -> NativeScans | None:
        """Spark's own reader, where it is the fastest way."""
        if self._by_index or self._fits_the_driver:
            return None
        return NativeScans.of(self.java, self._access, self._snapshot, self._config)

    def _search(self) -> Search | None:
        """The search that scores rows: all that a row has to match, as one."""
        found = [p for p in conjuncts(self._predicate) if isinstance(p, Search)]
        if len(found) <= 1:
            return found[0] if found else None
        parts = tuple(
            over_fields(one.query, [one.column.root]) if one.column else one.query for one in found
        )
        return Search(None, Boolean(must=parts), " AND ".join(one.text for one in found))

    @functools.cached_property
    def _fits_the_driver(self) -> bool:
        """Whether so few rows match that starting tasks would take longer than answering."""
        limit = self._config[keys.DRIVER_MAX_ROWS]
        tasks = self._plan.tasks
        if not limit or len(tasks) > self._config[keys.DRIVER_MAX_SPLITS]:
            return False
        store = self._access.store()
        if not isinstance(store, LocalStore) and sum(t.size for t in tasks) > _MOST_FETCHED:
            return False  # the driver would fetch indexes that executors keep
        rows = [task.num_records for task in tasks]
        if all(n is not None for n in rows) and sum(n or 0 for n in rows) <= limit:
            return True
        searches = [p for p in conjuncts(self._predicate) if isinstance(p, Search)]
        if not searches:
            return False
        environment = Environment.of(store, self._snapshot, self._config)

        def fewest(task: Any) -> int:
            searcher = environment.searcher(task)
            return min(searcher.count(search) for search in searches)

        found = 0
        for count in environment.map(fewest, tasks):
            found += count
            if found > limit:
                return False
        return True

    def _is_counted(self, aggregation: Aggregation) -> bool:
        """Whether the log alone has the answer."""
        if aggregation.groups or any(a.function != "count_rows" for a in aggregation.aggregates):
            return False
        return not count_from_log(self._snapshot, self._predicate)[1].num_rows

    def _counted(self, aggregation: Aggregation) -> pa.Table:
        rows, _ = count_from_log(self._snapshot, self._predicate)
        return pa.table({name: pa.array([rows], pa.int64()) for name in aggregation.names()})


def _all_rows(reader: SplitReader, plan: ScanPlan, schema: JavaObject) -> pa.Table:
    pieces = list(reader.tables(plan.tasks))
    if not pieces:
        return pa.table({name: pa.nulls(0) for name in schema.fieldNames()})
    return pa.concat_tables(pieces)


def _aggregated(reader: SplitReader, plan: ScanPlan) -> pa.Table:
    return next(iter(reader.tables(plan.tasks)))
