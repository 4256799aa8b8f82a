"""Whether the driver answers a query faster than tasks would.

Starting Python tasks costs more than searching dozens of splits. The driver knows from the indexes
how many rows a search finds: few are read here, and a larger number is still aggregated here. What
it would have to fetch from a remote store stays with the executors, which keep it.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass

from indextables import config as keys
from indextables.config import Config
from indextables.errors import DamagedIndexError
from indextables.plan.execute import Environment
from indextables.plan.scan import ScanPlan
from indextables.plan.split_rows import count_proposed
from indextables.plan.tasks import SplitTask
from indextables.predicate import Compare, In, Predicate, Search, conjuncts
from indextables.split.open_split import SplitSearcher
from indextables.storage.local import LocalStore

_MOST_FETCHED = 256 << 20
_MOST_SEARCHED = 16 << 20
"""Files without an index that the driver searches row by row."""
_MOST_SCANNED = 50_000_000
"""Numbers that are read and aggregated in a quarter of a second."""


_NARROWED = 50
"""How many times more rows Spark's reader takes than Python tasks in the same time."""
_Asked = Search | Compare | In


def _asked(predicate: Predicate) -> list[_Asked]:
    """The conditions of which an index can say how many rows they leave at most."""
    asked: list[_Asked] = []
    for one in conjuncts(predicate):
        match one:
            case Search() | Compare(op="=", value=str()):
                asked.append(one)
            case In(values=values) if all(isinstance(value, str) for value in values):
                asked.append(one)
    return asked


def _most_matching(condition: _Asked, searcher: SplitSearcher) -> int:
    """How many rows of a split meet a condition at most, as its index sees it."""
    if isinstance(condition, Search):
        return searcher.count(condition)
    try:
        proposed = count_proposed(condition, searcher)
    except DamagedIndexError:
        proposed = None
    return searcher.split.info.rows if proposed is None else proposed


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
        found_by_index = all(isinstance(one, Search) for one in self.plan.tasks.used)
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
        if self.is_small:
            return self.plan.tasks.num_records
        asked = _asked(self.plan.predicate)
        if not asked:
            return None
        most = max(self.config[keys.DRIVER_MAX_ROWS], self.config[keys.DRIVER_MAX_AGGREGATED_ROWS])
        environment = Environment.of(self.plan.view)

        def fewest(task: SplitTask) -> int:
            searcher = environment.searcher(task)
            return min(_most_matching(condition, searcher) for condition in asked)

        first, *rest = self.plan.tasks
        # Values that are frequent are so in the first split already.
        found = fewest(first)
        if found > most:
            return None
        for count in environment.map(fewest, rest):
            found += count
            if found > most:
                return None
        return found

    @property
    def narrows(self) -> bool:
        """Whether the indexes leave so few rows that finding them is faster than reading all.

        Spark's own reader takes all rows of a column in the time that Python takes for a fraction.
        Where the driver may not open indexes to see, they are trusted to help.
        """
        if not self._may_open:
            return True
        rows = self.plan.tasks.num_records
        return self.hits is not None and (rows is None or self.hits * _NARROWED < rows)

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
