"""Where a statement about caches is carried out: in this process, and on every executor.

`execute` asks for a function to be run everywhere and gets one answer for each place. Without Spark
there is one place.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

T = TypeVar("T")

DRIVER = "driver"


@dataclass(frozen=True, slots=True)
class Answer(Generic[T]):
    """What the function gave in one place; without a result, `error` says why."""

    executor_id: str
    host: str
    result: T | None = None
    error: str | None = None


class Hosts(Protocol):
    """All processes that keep caches."""

    def run(self, function: Callable[[], T]) -> Sequence[Answer[T]]:
        """Run a picklable function in every place; the driver's answer comes first."""
        ...


class ThisProcess:
    """No Spark: this process is all there is."""

    def run(self, function: Callable[[], T]) -> Sequence[Answer[T]]:
        """The answer of this process."""
        return [answer(DRIVER, function)]


def answer(executor_id: str, function: Callable[[], T]) -> Answer[T]:
    """Run the function here. A failure is an answer too: the other places still count."""
    host = socket.gethostname()
    try:
        return Answer(executor_id, host, function())
    except Exception as error:
        return Answer(executor_id, host, error=str(error) or type(error).__name__)
