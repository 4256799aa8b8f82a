"""A statement and its session: tables, configuration, hosts, and the rows it returns.

A result is rows with columns of fixed names, types and order. A statement about caches is carried
out in this process, and on every executor: `execute` asks for a function to be run everywhere and
gets one answer for each place. Without Spark there is one place.

Versions, settings and hosts are shown as rows. Secrets in settings are found by their name, or by
what the value looks like, and are left out.
"""

from __future__ import annotations

import importlib.metadata
import os
import platform
import re
import socket
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

import pyarrow as pa

from indextables.config import Config
from indextables.plan.access import TableAccess
from indextables.runner import Runner
from indextables.statements.forms import Target
from indextables.storage import Store, open_store

if TYPE_CHECKING:
    from indextables.table import Table


def columns(**types: pa.DataType) -> pa.Schema:
    """The columns of a statement's rows, in their order."""
    return pa.schema(list(types.items()))


def table_of(rows: Sequence[tuple[object, ...]], schema: pa.Schema) -> pa.Table:
    """Rows as a table."""
    values = list(zip(*rows, strict=True)) or [()] * len(schema)
    arrays = [pa.array(list(v), f.type) for v, f in zip(values, schema, strict=True)]
    return pa.Table.from_arrays(arrays, schema=schema)


T = TypeVar("T")

DRIVER = "driver"


@dataclass(frozen=True, slots=True)
class Answer(Generic[T]):
    """The result of a function in one place; without one, `error` says why."""

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
    """Without Spark: this process is the only place."""

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


Resolver = Callable[[Target], "Table"]


class IndexPlaces(Protocol):
    """Where search indexes and their sources are, by the names that a statement has for them."""

    def source(self, target: Target) -> tuple[str, TableAccess]:
        """The format of a source, and how to reach it."""
        ...

    def find(self, target: Target) -> TableAccess:
        """The index of a name or a path, whether its source can be read or not."""
        ...

    def new(self, target: Target, location: str | None) -> TableAccess:
        """The place of an index that is created."""
        ...

    def created(self, target: Target, access: TableAccess) -> None:
        """Keep the name of a new index."""
        ...

    def dropped(self, target: Target, access: TableAccess) -> None:
        """Forget the name of an index."""
        ...


SOURCE_FORMATS = ("delta", "iceberg", "parquet")


def named_source(target: Target) -> tuple[str, str] | None:
    """The format and the place of a source that names both: delta.`s3://lake/docs`."""
    if len(target.name) == 2 and target.name[0].lower() in SOURCE_FORMATS:
        return target.name[0].lower(), target.name[1]
    return None


@dataclass(frozen=True)
class Session:
    """What a statement needs of its caller.

    `runner` does the tasks of jobs; without one, each job uses threads of this process. Times
    without a time zone are meant in `timezone`.
    """

    resolve: Resolver
    config: Config = field(default_factory=Config)
    hosts: Hosts = field(default_factory=ThisProcess)
    properties: Mapping[str, object] = field(default_factory=dict, repr=False)
    runner: Runner | None = None
    timezone: str = "UTC"
    open_store: Callable[[str], Store] = open_store
    indexes: IndexPlaces | None = None

    @property
    def index_places(self) -> IndexPlaces:
        """The places that statements about search indexes need."""
        assert self.indexes is not None
        return self.indexes


# --- versions, settings and hosts as rows ----------------------------------------------------

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


def _process_properties() -> list[tuple[str, str, str]]:
    """The properties of one process."""
    properties = [
        ("system", "python", platform.python_version()),
        ("system", "platform", platform.platform()),
        ("system", "cpus", str(os.cpu_count())),
    ]
    for name in _LIBRARIES:
        try:
            properties.append(("library", name, importlib.metadata.version(name)))
        except importlib.metadata.PackageNotFoundError:
            continue
    return properties


def describe_environment(
    config: Config, hosts: Hosts, *, properties: Mapping[str, object]
) -> pa.Table:
    """One row for each property of each host; `properties` are the session's own settings."""
    settings = [
        (group, name, value)
        for group, values in (("indextables", config.as_options()), ("spark", properties))
        for name, value in sorted(redacted(values).items())
    ]
    rows: list[tuple[str, ...]] = []
    for a in hosts.run(_process_properties):
        role = "driver" if a.executor_id == DRIVER else f"executor {a.executor_id}"
        described = a.result if a.result is not None else [("system", "error", a.error or "")]
        for group, name, value in [*described, *(settings if role == "driver" else [])]:
            rows.append((a.host, role, group, name, value))
    return table_of(rows, SCHEMA)
