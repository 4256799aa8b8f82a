"""Running something in the driver and on every executor of a cluster.

Spark places tasks where it likes. A *barrier* stage starts all its tasks at once, so one with a
task for every slot reaches every executor; it waits until the slots are free. Where barriers are
not possible (dynamic allocation), a few rounds of ordinary tasks are tried. An executor that was
not reached is in the answers, with that as its error.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

from indextables.statements.session import DRIVER, Answer, answer

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

T = TypeVar("T")

_ROUNDS = 3


class SparkHosts:
    """The driver of a session and its executors."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark

    def run(self, function: Callable[[], T]) -> Sequence[Answer[T]]:
        """Run the function in every place, once for each executor; the driver comes first."""
        here = answer(DRIVER, function)
        context: Any = getattr(self._spark, "_sc", None)
        if context is None or context._jsc.sc().isLocal():
            # Local tasks run on the driver's host and share its disks and their generation.
            return [here]
        found: dict[str, Answer[T]] = {}
        for reached in _rounds(context, function):
            for executor, given in reached.items():
                found.setdefault(executor, given)
            executors = _executors(context)
            if executors.keys() <= found.keys():
                break
        for executor, host in executors.items():
            if executor not in found:
                found[executor] = Answer(executor, host, error="no task reached it; run it again")
        return [here, *(found[executor] for executor in sorted(found))]


def _executors(context: Any) -> dict[str, str]:
    """The hosts of the executors that are alive."""
    listed = context._jsc.sc().statusStore().executorList(True)
    summaries = [listed.apply(at) for at in range(listed.size())]
    return {s.id(): s.hostPort().rpartition(":")[0] for s in summaries if s.id() != DRIVER}


def _rounds(context: Any, function: Callable[[], T]) -> Iterator[dict[str, Answer[T]]]:
    scala = context._jsc.sc()
    profile = scala.resourceProfileManager().defaultResourceProfile()
    slots = max(1, scala.maxNumConcurrentTasks(profile))
    if context.getConf().get("spark.dynamicAllocation.enabled", "false").lower() != "true":
        tasks = context.parallelize(range(slots), slots).barrier()
        yield _run(context, tasks, _one_per_executor(function))
    for _ in range(_ROUNDS):
        tasks = context.parallelize(range(2 * slots), 2 * slots)
        yield _run(context, tasks, _each(function))


Task = Callable[[Any], Iterator[tuple[int, Answer[Any]]]]


def _one_per_executor(function: Callable[[], Any]) -> Task:
    def task(_: Any) -> Iterator[tuple[int, Answer[Any]]]:
        from pyspark import BarrierTaskContext

        barrier = BarrierTaskContext.get()
        addresses = [info.address for info in barrier.getTaskInfos()]
        number = barrier.partitionId()
        # The first task of an executor does it; the others hold their slots meanwhile.
        if addresses.index(addresses[number]) == number:
            yield number, answer("", function)
        barrier.barrier()

    return task


def _each(function: Callable[[], Any]) -> Task:
    def task(_: Any) -> Iterator[tuple[int, Answer[Any]]]:
        from pyspark import TaskContext

        running = TaskContext.get()
        assert running is not None
        yield running.partitionId(), answer("", function)

    return task


def _run(context: Any, tasks: Any, task: Task) -> dict[str, Answer[Any]]:
    """Run a job; the answers by executor. Tasks do not know theirs, but the scheduler does."""
    group = f"indextables-{uuid.uuid4().hex}"
    names = ("spark.jobGroup.id", "spark.job.description", "spark.job.interruptOnCancel")
    before = {name: context.getLocalProperty(name) for name in names}
    context.setJobGroup(group, "indextables: caches of all executors")
    try:
        answers: list[tuple[int, Answer[Any]]] = tasks.mapPartitions(task).collect()
    finally:
        for name, value in before.items():
            context.setLocalProperty(name, value)
    places = _places(context, group)
    return {
        places[number]: replace(given, executor_id=places[number])
        for number, given in reversed(answers)
        if number in places
    }


def _places(context: Any, group: str) -> dict[int, str]:
    """The executor of each task of the last stage of a job."""
    scala, tracker = context._jsc.sc(), context.statusTracker()
    scala.listenerBus().waitUntilEmpty()
    found: dict[int, str] = {}
    for job in tracker.getJobIdsForGroup(group):
        for stage in list(tracker.getJobInfo(job).stageIds):
            attempt = scala.statusStore().lastStageAttempt(stage).attemptId()
            listed = scala.statusStore().taskList(stage, attempt, 1 << 20)
            tasks = [listed.apply(at) for at in range(listed.size())]
            found |= {task.index(): task.executorId() for task in tasks}
    return found
