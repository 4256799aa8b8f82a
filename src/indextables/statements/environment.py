"""Versions, settings and hosts of a session as rows, without secrets.

Secrets in settings: found by their name, or by what the value looks like.
"""

from __future__ import annotations

import functools
import importlib.metadata
import os
import platform
import re
from collections.abc import Mapping

import pyarrow as pa

from indextables.config import Config
from indextables.statements.session import DRIVER, Hosts

REDACTED = "***REDACTED***"

_NAME = re.compile(
    r"secret|password|passwd|passphrase|token|credential|signature|private|sas\b|"
    r"(access|account|api|shared|master|encryption)[._-]?key|connection[._-]?string",
    re.IGNORECASE,
)
# `user:password@host`, `-Dpassword=…`, `AccountKey=…` inside an otherwise harmless value.
_VALUE = re.compile(r"://[^/\s:@]+:[^/\s@]+@|(" + _NAME.pattern + r")[\w.-]*\s*[=:]", re.IGNORECASE)


def redacted(settings: Mapping[str, object]) -> dict[str, str]:
    """The settings with every secret replaced.

    >>> redacted({"fs.s3a.secret.key": "abc", "spark.app.name": "logs"})
    {'fs.s3a.secret.key': '***REDACTED***', 'spark.app.name': 'logs'}
    """
    return {
        name: REDACTED if _NAME.search(name) or _VALUE.search(str(value)) else str(value)
        for name, value in settings.items()
    }


SCHEMA = pa.schema(
    [
        (name, pa.string())
        for name in ("host", "role", "property_type", "property_name", "property_value")
    ]
)

_LIBRARIES = (
    "indextables", "pyarrow", "tantivy", "obstore", "datafusion", "duckdb", "fastavro", "numpy",
    "sqlglot", "pyspark",
)  # fmt: skip


def _here() -> list[tuple[str, str, str]]:
    """What one process can tell about itself."""
    found = [
        ("system", "python", platform.python_version()),
        ("system", "platform", platform.platform()),
        ("system", "cpus", str(os.cpu_count())),
    ]
    for name in _LIBRARIES:
        try:
            found.append(("library", name, importlib.metadata.version(name)))
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def describe_environment(
    config: Config, hosts: Hosts, *, properties: Mapping[str, object]
) -> pa.Table:
    """One row for each property of each host; `properties` are the session's own settings."""
    settings = [
        (kind, name, value)
        for kind, values in (("indextables", config.as_options()), ("spark", properties))
        for name, value in sorted(redacted(values).items())
    ]
    rows: list[dict[str, str]] = []
    for a in hosts.run(functools.partial(_here)):
        role = "driver" if a.executor_id == DRIVER else f"executor {a.executor_id}"
        found = a.result if a.result is not None else [("system", "error", a.error or "")]
        for kind, name, value in [*found, *(settings if role == "driver" else [])]:
            rows.append(
                {
                    "host": a.host,
                    "role": role,
                    "property_type": kind,
                    "property_name": name,
                    "property_value": value,
                }
            )
    return pa.Table.from_pylist(rows, SCHEMA)
