"""Reading a log of many version files: the driver beside executors, on an S3 server on loopback.

Executors pay where a network is slow and executors are many. Here both share two cores and one
server, so what is measured is what the detour costs, and where Spark's tasks are worth starting.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING

from benchmarks.measure import Result, race
from benchmarks.peers import s3_server
from benchmarks.transaction_log import adds, make_table
from indextables.config import Config
from indextables.log.transaction import Operation, Transaction
from indextables.log.transaction_log import TransactionLog
from indextables.runner import Runner
from indextables.spark.runner import DistributedLogRunner, SparkRunner
from indextables.storage import open_store

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

VERSIONS = (10, 100, 1_000)
_BARS = {10: 8, 100: 4, 1_000: 2}
"""How many times as long executors may take; they have to catch up as files become more."""


def run(scale: float = 1.0) -> Iterator[Result]:  # noqa: ARG001 (its sizes are the claims)
    import indextables

    spark = indextables.session(
        "benchmark", **{"spark.master": "local[2]", "spark.ui.enabled": "false"}
    )
    spark.sparkContext.setLogLevel("OFF")
    try:
        with s3_server() as (uri, options):
            for versions in VERSIONS:
                yield _compared(spark, f"{uri}/log-{versions}", options, versions)
    finally:
        spark.stop()


def _compared(spark: SparkSession, uri: str, options: dict[str, str], versions: int) -> Result:
    settings = {"spark.indextables.checkpoint.enabled": False}
    log = make_table(uri, 10, dict(settings), options)
    for number in range(versions - 10):
        new = adds(1, start=10**6 + number)
        log.commit(Transaction(operation=Operation.APPEND, actions=new))
    executors = DistributedLogRunner(SparkRunner(spark), Config(), default_parallelism=2)

    def open_with(runner: Runner | None) -> int:
        return int(TransactionLog(open_store(uri, options), runner=runner).snapshot().num_files)

    assert open_with(None) == open_with(executors) == versions
    assert executors.distributed
    driver, distributed = race(5, partial(open_with, None), partial(open_with, executors))
    return Result(
        f"Executors read {versions:,} version files about as fast as the driver",
        distributed.seconds / driver.seconds, _BARS[versions], "at most",
        f"executors {distributed.seconds:.3g} s / driver {driver.seconds:.3g} s, "
        "warm caches of executors included",
    )  # fmt: skip
