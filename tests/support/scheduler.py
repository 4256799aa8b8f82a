"""Runs several actors one step at a time, in an order drawn from a seed.

An actor is a function that gets a `pause`; it runs alone until it calls it or ends. So every
interleaving at the named phases of a commit can be had again from its seed.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Sequence

Pause = Callable[[str], None]


class _Actor:
    def __init__(self, work: Callable[[Pause], None]) -> None:
        self._work = work
        self._turn = threading.Semaphore(0)
        self._back = threading.Semaphore(0)
        self.done = False
        self.error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        self._turn.acquire()
        try:
            self._work(self._pause)
        except BaseException as error:
            self.error = error
        finally:
            self.done = True
            self._back.release()

    def _pause(self, _phase: str) -> None:
        self._back.release()
        self._turn.acquire()

    def step(self) -> None:
        self._turn.release()
        assert self._back.acquire(timeout=60), "an actor is stuck"


def run_interleaved(actors: Sequence[Callable[[Pause], None]], *, seed: int) -> None:
    """Run the actors to their ends; the first error of one of them is raised."""
    draw = random.Random(seed)
    running = [_Actor(work) for work in actors]
    while running:
        actor = draw.choice(running)
        actor.step()
        if actor.error is not None:
            raise actor.error
        if actor.done:
            running.remove(actor)
