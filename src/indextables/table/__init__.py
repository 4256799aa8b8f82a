"""A table that is searched and written from plain Python.

::

    table = Table.create("docs", schema, mapping={"id": "string"})
    table.append(rows)
    table.search('"machine learning" AND spark~1', fields=["content"], limit=10)
    table.scan(columns=["id"], where="content indexquery 'spark' AND n > 3")

Every verb is one call into a plan or a job. Results are Arrow tables and complete: there is no
hidden limit.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

import pyarrow as pa

from indextables import config as keys
from indextables.config import Config
from indextables.errors import NotATableError, SchemaError
from indextables.jobs.new_table import new_table
from indextables.log.transaction_log import TransactionLog
from indextables.schema import from_json
from indextables.storage import open_store
from indextables.table.crossreferences import CrossReferences
from indextables.table.open_table import Timestamp
from indextables.table.reading import Reading
from indextables.table.upkeep import Upkeep
from indextables.table.writing import Writing

__all__ = ["Table", "Timestamp"]


class Table(Reading, Writing, Upkeep, CrossReferences):
    """An index table at a URI. Make one with `create` or `open`."""

    @classmethod
    def create(
        cls,
        uri: str | os.PathLike[str],
        schema: pa.Schema | str,
        *,
        partition_by: Sequence[str] = (),
        mapping: Mapping[str, str] | None = None,
        properties: Mapping[str, str] | None = None,
        name: str | None = None,
        description: str | None = None,
        config: Mapping[str, object] | None = None,
        storage_options: Mapping[str, object] | None = None,
    ) -> Table:
        """Create an empty table.

        `schema` is an Arrow schema or Spark's schema as JSON. `mapping` chooses how columns are
        searched (`text`, `string`, `json`, `ip`); other indexing options are `config` keys.
        `properties` are kept with the table and configure everybody who uses it.

        >>> import pyarrow as pa
        >>> from indextables import Table
        >>> schema = pa.schema([("id", pa.string()), ("body", pa.string())])
        >>> table = Table.create("memory://create-example", schema, mapping={"id": "string"})
        >>> table.append(pa.table({"id": ["a", "b"], "body": ["red fox", "lazy dog"]})).rows
        2
        >>> table.search("fox")["id"].to_pylist()
        ['a']
        """
        if isinstance(partition_by, str):
            raise SchemaError(
                f"partition_by is a list of names. Write partition_by=[{partition_by!r}]."
            )
        if not isinstance(schema, pa.Schema | str):
            raise SchemaError(
                "schema is an Arrow schema, or Spark's schema as JSON, not "
                f"{type(schema).__name__}."
            )
        types = {f"{keys.TYPE_MAP.name}{column}": kind for column, kind in (mapping or {}).items()}
        metadata, _ = new_table(
            from_json(schema) if isinstance(schema, str) else schema,
            partition_by=partition_by,
            properties=properties or {},
            config=Config(types, config),
            name=name,
            description=description,
        )
        settings = Config(config)
        log = TransactionLog.create(open_store(uri, storage_options), metadata, config=settings)
        return cls(log, config=settings, version=None)

    @classmethod
    def open(
        cls,
        uri: str | os.PathLike[str],
        *,
        version: int | None = None,
        timestamp: Timestamp | None = None,
        config: Mapping[str, object] | None = None,
        storage_options: Mapping[str, object] | None = None,
    ) -> Table:
        """Open a table as it is now, at a version, or as it was at a time.

        A table that is opened at a version or a time can be read only.
        """
        settings = Config(config)
        log = TransactionLog(open_store(uri, storage_options), config=settings)
        table = cls(log, config=settings, version=None)
        if version is None and timestamp is None:
            # Whether it is a table, and one that can be read. Its files are read when asked for.
            log.snapshot(keep_manifest=lambda _metadata: lambda _bounds: False)
        else:
            table._version = table.snapshot(version=version, timestamp=timestamp).version
        return table

    @classmethod
    def exists(
        cls,
        uri: str | os.PathLike[str],
        *,
        storage_options: Mapping[str, object] | None = None,
    ) -> bool:
        """Whether there is a table at the URI."""
        try:
            TransactionLog(open_store(uri, storage_options)).snapshot()
        except NotATableError:
            return False
        return True

    def __repr__(self) -> str:
        return f"Table({self.uri!r}, version={self.version})"
