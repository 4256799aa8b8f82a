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
