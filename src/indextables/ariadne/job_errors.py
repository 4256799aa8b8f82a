"""Why a job over files failed: for what it read, or for something else, and in which words."""

from __future__ import annotations

from typing import Any

from indextables.ariadne.source import first_line
from indextables.errors import StorageError


def is_fault_of_files(error: Exception) -> bool:
    """Whether a job failed for what it read.

    What our own stores say is no file's fault, and neither is a package that a worker lacks.
    """
    from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
    from pyspark.errors import PySparkException

    elsewhere = (f"{StorageError.__module__}.", "PACKAGE_NOT_INSTALLED", "ModuleNotFoundError")
    return isinstance(error, PySparkException | Py4JJavaError) and not any(
        sign in str(error) for sign in elsewhere
    )


def reason_of(error: Exception) -> str:
    """Why Spark could not read a file, in a line."""
    cause: Any = error
    text = str(error)
    java = getattr(error, "java_exception", None)
    if java is not None:
        while java.getCause() is not None:
            java = java.getCause()
        text = str(java.getMessage() or java.toString())
    condition = getattr(cause, "getCondition", lambda: None)()
    if condition and condition not in text:
        text = f"[{condition}] {text}"
    return first_line(RuntimeError(text))
