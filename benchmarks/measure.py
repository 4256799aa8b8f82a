"""What the benchmarks share: timing, results as ratios, the machine's description."""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Callable
from dataclasses import dataclass
from importlib import metadata
from typing import Literal


@dataclass(frozen=True, slots=True)
class Result:
    """One claim, measured. `ratio` is compared with `bar`; `how` says what was divided by what."""

    claim: str
    ratio: float
    bar: float
    direction: Literal["at least", "at most"]
    how: str

    @property
    def holds(self) -> bool:
        return self.ratio >= self.bar if self.direction == "at least" else self.ratio <= self.bar

    def row(self) -> str:
        verdict = "yes" if self.holds else "**no**"
        bar = f"{self.direction} {self.bar:g}"
        return f"| {self.claim} | {self.ratio:.3g} | {bar} | {verdict} | {self.how} |"


HEADER = "| Claim | Measured | Bar | Holds | How |\n| --- | --- | --- | --- | --- |"


def best_of(times: int, work: Callable[[], object]) -> float:
    """The shortest time of several runs, in seconds: the one least disturbed by others."""
    found = []
    for _ in range(times):
        start = time.perf_counter()
        work()
        found.append(time.perf_counter() - start)
    return min(found)


@dataclass(frozen=True, slots=True)
class Time:
    """The shortest time of several runs, and the least processor time of one."""

    seconds: float
    cpu: float

    def __str__(self) -> str:
        return f"{self.seconds:.3g} s ({self.cpu:.3g} s of processor)"


def race(times: int, *works: Callable[[], object]) -> list[Time]:
    """Time several works in turns, so that whatever disturbs the machine disturbs all of them."""
    found: list[list[tuple[float, float]]] = [[] for _ in works]
    for _ in range(times):
        for work, past in zip(works, found, strict=True):
            start, cpu = time.perf_counter(), time.process_time()
            work()
            past.append((time.perf_counter() - start, time.process_time() - cpu))
    return [Time(min(s for s, _ in past), min(c for _, c in past)) for past in found]


def machine() -> str:
    """The machine and the versions that the figures were taken with."""
    packages = ("pyarrow", "tantivy", "obstore", "datafusion", "deltalake", "duckdb", "orjson")
    versions = ", ".join(f"{name} {metadata.version(name)}" for name in packages)
    return (
        f"{os.cpu_count()} cores, {platform.machine()}, {platform.system()}, "
        f"Python {platform.python_version()}, {versions}"
    )
