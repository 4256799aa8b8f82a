"""The Python that executors run: which one it is, and whether it has this package."""

from __future__ import annotations

import os
import re
import sys
from typing import TYPE_CHECKING, Any

from indextables.errors import ExecutorError
from indextables.spark.runner import SparkRunner

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_CONF = "spark.pyspark.python"
_LONGEST_WAIT_S = 60.0
_REASONS = re.compile(r"No module named '?indextables\S*|Cannot run program .*|\[PYTHON_VERSION.*")


def use_this_python(spark: SparkSession) -> None:
    """Let workers on this machine run this interpreter, unless another one was chosen.

    Without an activated environment Spark would take the first `python3`. Executors on other
    machines have environments of their own, and there this interpreter's path means nothing.
    """
    context: Any = spark.sparkContext
    chosen = os.environ.get("PYSPARK_PYTHON") or context.getConf().get(_CONF)
    if context.master.startswith("local") and not chosen:
        context.pythonExec = sys.executable


def check_package(spark: SparkSession) -> None:
    """Ask an executor whether it can import this package.

    One that does not answer in a minute is not waited for: a cluster may be busy.

    Raises:
        ExecutorError: It cannot.
    """
    try:
        SparkRunner(spark, parallelism=1).map(len, [()], timeout_s=_LONGEST_WAIT_S)
    except TimeoutError:
        return
    except Exception as error:
        reason = _REASONS.search(str(error))
        if reason is None:
            raise
        context: Any = spark.sparkContext
        raise ExecutorError(context.pythonExec, reason[0].strip()) from None
