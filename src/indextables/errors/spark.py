"""Spark and what it needs."""

from __future__ import annotations

from indextables.errors.base import IndexTablesError


class JavaMissingError(IndexTablesError, RuntimeError):
    """Spark cannot start."""

    def __init__(self) -> None:
        super().__init__(
            "Spark needs Java 17 or later: JAVA_HOME is not set and there is no `java` on the "
            "PATH. Install one (`apt install openjdk-17-jre-headless`, `brew install "
            "openjdk@17`) and try again. `indextables.Table` and the command line work without."
        )


class ExecutorError(IndexTablesError, RuntimeError):
    """Executors cannot run the tasks of this package."""

    def __init__(self, python: str, reason: str) -> None:
        self.python = python
        super().__init__(
            f"Executors run the Python '{python}', which cannot run indextables: {reason}. Install "
            "the package there, or name a Python that has it with PYSPARK_PYTHON before the "
            "session starts."
        )


class UnsafeCallbacksError(IndexTablesError, RuntimeError):
    """A stream uses the port to this process, and it is open to every program of the machine."""

    def __init__(self) -> None:
        super().__init__(
            "A stream of this session already calls Python through a port without authentication, "
            "which cannot be changed under it: other programs of this machine could call index "
            "tables through it. Stop the streams, or call `indextables.enable(spark)` before the "
            "first stream starts."
        )
