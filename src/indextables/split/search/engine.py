"""Calling Tantivy so that no query ends the process.

Tantivy walks a query by recursion, about 8 KB of stack for each level of nesting, and an overflow
ends the process without a word. So queries are kept flat: sums of two are balanced trees, and a
query that is nested deeply runs in a thread with a stack of its own.
"""

from __future__ import annotations

import contextvars
import heapq
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")

FEW_LEVELS = 24
"""These fit into every stack that runs Python, 256 KB included."""
_STACK = 64 << 20
"""For the deepest query that the parser lets through, many times over; untouched pages are free."""
_starting = threading.Lock()


def with_stack(levels: int, call: Callable[[], Result]) -> Result:
    """Call a function that hands a query of so many nested levels to Tantivy."""
    if levels <= FEW_LEVELS:
        return call()
    answer: Future[Result] = Future()
    context = contextvars.copy_context()

    def work() -> None:
        try:
            answer.set_result(context.run(call))
        except BaseException as error:  # raised again in the caller's thread
            answer.set_exception(error)

    thread = threading.Thread(target=work, name="indextables-deep-query", daemon=True)
    with _starting:  # the size is a setting of the process
        before = threading.stack_size(_STACK)
        try:
            thread.start()
        finally:
            threading.stack_size(before)
    return answer.result()


def balanced(
    items: Sequence[tuple[int, Item]], pair: Callable[[Item, Item], Item]
) -> tuple[int, Item]:
    """Join items two at a time into a tree as flat as their own levels allow.

    The shape depends on the levels only, so that sums of scores are always the same.

    >>> balanced([(0, "a"), (0, "b"), (0, "c"), (2, "D")], lambda x, y: f"({x}{y})")
    (3, '(D(c(ab)))')
    """
    heap = [(levels, order, item) for order, (levels, item) in enumerate(items)]
    heapq.heapify(heap)
    order = len(heap)
    while len(heap) > 1:
        one, two = heapq.heappop(heap), heapq.heappop(heap)
        heapq.heappush(heap, (max(one[0], two[0]) + 1, order, pair(one[2], two[2])))
        order += 1
    return heap[0][0], heap[0][2]
