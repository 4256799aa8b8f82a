"""Routing: which of a plan's files an XRef cannot rule out.

Files are matched by path and size. What no XRef covers is kept, and so is everything when an XRef
is missing, damaged, of another mapping or too slow: a routing index may be useless, and says so in
its `Verdict`, but it never loses a row. The XRefs that cover one of the files are asked at once, in
threads that the query does not wait for longer than `xref.query.timeoutMs`.
"""

from __future__ import annotations

import functools
import logging
import os
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as WaitTimeoutError
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from indextables import config as keys
from indextables.config import Config
from indextables.errors import UnusableXRefError, XRefError, XRefTimeoutError
from indextables.log.actions import AddXRef
from indextables.predicate import TRUE, Predicate
from indextables.split.open_split import was_opened
from indextables.split.search import SearchContext
from indextables.storage import Store
from indextables.xref.container import Mask
from indextables.xref.open_xref import (
    Memory,
    OpenXRef,
    XRefPool,
    dull_questions,
    failures,
    shared_pool,
)
from indextables.xref.question import EVERYTHING, Question, ask

logger = logging.getLogger(__name__)

_DULL = 0.95
_WORTH = 20
"""So much larger than the XRefs are cold splits for which XRefs are asked, however few they are."""
"""A question that keeps more than this share of the splits did not narrow."""
_THREADS = 8


@dataclass(frozen=True, slots=True)
class Verdict:
    """The result of asking the XRefs. `reason` says why they, or some of them, were not used."""

    consulted: bool
    before: int
    after: int
    xrefs: int = 0
    covered: int = 0
    milliseconds: float = 0.0
    reason: str = ""

    def __str__(self) -> str:
        if not self.consulted:
            return f"not used: {self.reason}"
        summary = (
            f"{self.before:,} -> {self.after:,} splits by {self.xrefs:,} XRefs that cover "
            f"{self.covered:,}, in {self.milliseconds:.1f} ms"
        )
        return f"{summary}; {self.reason}" if self.reason else summary


@dataclass(frozen=True, slots=True)
class Routing:
    """The files to keep, and the verdict."""

    keep: Mask
    verdict: Verdict


@dataclass(frozen=True)
class Router:
    """Asks the XRefs of one table. `context` is made only if there is something to ask."""

    store: Store
    xrefs: Mapping[str, AddXRef]
    config: Config
    context: Callable[[], SearchContext]
    broken: Memory = failures
    dull: Memory = dull_questions

    @functools.cached_property
    def _pool(self) -> XRefPool:
        return shared_pool(self.config[keys.XREF_MAX_MEMORY])

    def route(self, predicate: Predicate, files: pa.Table) -> Routing:
        """Which of these files may hold a row that satisfies the predicate."""
        started = time.perf_counter()
        question: Question = EVERYTHING
        reason = self._why_not(files, predicate)
        if not reason:
            question = ask(predicate, self.context())
            if question == EVERYTHING:
                reason = "the condition has no term that an XRef indexes"
            else:
                reason = self.dull.recall((self.store.identity, question)) or ""
        if reason:
            count = files.num_rows
            verdict = Verdict(False, count, count, reason=reason)
            logger.debug("XRefs of %s %s", self.store.uri, verdict)
            return Routing(np.ones(count, dtype=np.bool_), verdict)
        return self._routed(question, files, started)

    def _why_not(self, files: pa.Table, predicate: Predicate) -> str:
        count = files.num_rows
        least = self.config[keys.XREF_MIN_SPLITS]
        if not self.xrefs:
            return "the table has no cross-references"
        if not self.config[keys.XREF_QUERY]:
            return f"{keys.XREF_QUERY.name} is false"
        if predicate == TRUE:
            return "there is no condition"
        if not count or (count < least and not self._spares_much(files)):
            return f"{count:,} splits are fewer than {keys.XREF_MIN_SPLITS.name} = {least:,}"
        return ""

    def _spares_much(self, files: pa.Table) -> bool:
        """Whether the splits, which a store would have to send, are much larger than the XRefs."""
        paths: list[Any] = files["path"].to_pylist()
        if self.store.local_path(paths[0]) is not None:
            return False
        sizes: list[Any] = files["size"].to_pylist()
        cold = sum(
            size
            for path, size in zip(paths, sizes, strict=True)
            if not was_opened(self.store, path)
        )
        return bool(cold > _WORTH * sum(xref.size for xref in self.xrefs.values()))

    def _routed(self, question: Question, files: pa.Table, started: float) -> Routing:
        paths: Any = files["path"].combine_chunks()
        sizes = np.asarray(files["size"], dtype=np.int64)
        keep = np.ones(len(paths), dtype=np.bool_)
        covered = np.zeros(len(paths), dtype=np.bool_)
        answers, problems = self._answers(question, paths, sizes, started)
        for answer in answers:
            keep &= answer.keep
            covered |= answer.covered
        before, after = len(keep), int(keep.sum())
        if problems and not self.config[keys.XREF_FALLBACK]:
            raise problems[0]
        reason = "; ".join(str(problem) for problem in problems[:3])
        verdict = Verdict(
            consulted=bool(answers),
            before=before,
            after=after,
            xrefs=len(answers),
            covered=int(covered.sum()),
            milliseconds=1000 * (time.perf_counter() - started),
            reason=reason if answers or reason else "none covers one of these splits",
        )
        if answers and not problems and after > _DULL * before:
            why = f"it kept {after:,} of {before:,} splits a short while ago"
            self.dull.note((self.store.identity, question), why)
        logger.info("XRefs of %s: %s", self.store.uri, verdict)
        return Routing(keep, verdict)

    # --- asking several at once --------------------------------------------------------------

    def _answers(
        self, question: Question, paths: Any, sizes: Any, started: float
    ) -> tuple[list[_Answer], list[XRefError]]:
        timeout_ms = self.config[keys.XREF_TIMEOUT]
        waiting: dict[str, Future[_Answer]] = {}
        problems: list[XRefError] = []
        candidates = frozenset(paths.to_pylist())
        for path, xref in self.xrefs.items():
            if candidates.isdisjoint(xref.source_split_paths):
                continue  # of other partitions, so it has no terms of these files
            problem = self.broken.recall((self.store.identity, path))
            if problem is not None:
                problems.append(UnusableXRefError(path, f"it could not be used before: {problem}"))
            else:
                waiting[path] = _threads(os.getpid()).submit(
                    self._ask_one, xref, question, paths, sizes
                )
        answers, late = [], []
        for path, future in waiting.items():
            left = timeout_ms / 1000 - (time.perf_counter() - started)
            try:
                answers.append(future.result(timeout=max(0.0, left)))
            except WaitTimeoutError:
                future.cancel()
                late.append(path)
                self._remember(path, f"no answer within {timeout_ms:,} ms")
            except UnusableXRefError as error:
                self._remember(path, error.reason)
                problems.append(error)
            except Exception as error:  # whatever is wrong with an XRef, the splits are there
                self._remember(path, repr(error))
                problems.append(UnusableXRefError(path, repr(error)))
        if late:
            problems.insert(0, XRefTimeoutError(late, timeout_ms))
        return answers, problems

    def _remember(self, path: str, reason: str) -> None:
        self.broken.note((self.store.identity, path), reason)
        logger.warning("The cross-reference %s is passed over: %s", path, reason)

    def _ask_one(self, xref: AddXRef, question: Question, paths: Any, sizes: Any) -> _Answer:
        opened = self._pool.get(
            self.store, xref.path, size=xref.size, footer_start=xref.footer_start_offset
        )
        return _answer(opened, question, paths, sizes)


@dataclass(frozen=True, slots=True)
class _Answer:
    """The answer of one XRef for the candidates."""

    keep: Mask
    covered: Mask


def _answer(opened: OpenXRef, question: Question, paths: Any, sizes: Any) -> _Answer:
    coverage = opened.coverage
    places: Any = pc.index_in(paths, value_set=coverage.paths, skip_nulls=True)
    document = np.asarray(pc.fill_null(places, -1), dtype=np.int64)
    covered = document >= 0
    # A file of another size is not the one that the XRef was built from.
    covered[covered] = coverage.sizes[document[covered]] == sizes[covered]
    keep = ~covered
    if covered.any():
        keep[covered] = opened.ask(question)[document[covered]]
    return _Answer(keep, covered)


@functools.cache
def _threads(process: int) -> ThreadPoolExecutor:  # noqa: ARG001
    """Threads are kept between queries; a forked process has none of its parent's."""
    return ThreadPoolExecutor(_THREADS, thread_name_prefix="indextables-xref")
