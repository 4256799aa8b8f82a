"""CREATE, REFRESH, DESCRIBE and DROP SEARCH INDEX."""

from __future__ import annotations

import pyarrow as pa

from indextables.config import is_own_key
from indextables.errors import ConfigError, NotATableError, StatementError
from indextables.lake.opening import is_search_index, search_index_of
from indextables.lake.refresh import Refreshed
from indextables.lake.search_index import SearchIndex, source_of
from indextables.plan.access import TableAccess, invalidate_logs
from indextables.statements import statements as s
from indextables.statements.session import IndexPlaces, Session, columns

REFRESHED = columns(
    index_path=pa.string(),
    status=pa.string(),
    source=pa.string(),
    source_version=pa.string(),
    version=pa.int64(),
    files_indexed=pa.int64(),
    rows_indexed=pa.int64(),
    files_removed=pa.int64(),
    bytes_added=pa.int64(),
    failed=pa.list_(pa.string()),
)
DESCRIBED = columns(
    index_path=pa.string(),
    source=pa.string(),
    format=pa.string(),
    columns=pa.list_(pa.string()),
    version=pa.int64(),
    index_bytes=pa.int64(),
    source_version=pa.string(),
    source_files=pa.int64(),
    source_bytes=pa.int64(),
    files_indexed=pa.int64(),
    files_not_indexed=pa.int64(),
    splits_not_needed=pa.int64(),
)
DROPPED = columns(index_path=pa.string(), status=pa.string(), source=pa.string())


def create(statement: s.CreateSearchIndex, session: Session) -> pa.Table:
    """Create an index, index the files of its source, and keep its name."""
    places = _places(session)
    for name, _ in statement.options:
        if not is_own_key(name):
            raise ConfigError(
                f"'{name}' is not an option of a search index: its OPTIONS are spark.indextables.* "
                "keys. Credentials are set on the session."
            )
    access = places.new(statement.index, statement.location)
    if statement.if_not_exists and access.log().exists():
        index = search_index_of(access)
        return _refreshed(index, None, "EXISTS")
    source_format, source = places.source(statement.source)
    options = dict(statement.options)
    index = SearchIndex.create(
        access.path,
        source=source.path,
        format=source_format,  # type: ignore[arg-type]
        columns=statement.columns,
        properties=options,
        name=None if statement.index.path else statement.index.name[-1],
        config={**access.config, **options},
        storage_options=access.storage,
        source_options=source.storage,
        refresh=False,
    )
    invalidate_logs(access.path)
    # The name comes before the work: a long refresh that is interrupted is gone on with by name.
    try:
        places.created(statement.index, access)
    except Exception:
        index.drop()
        invalidate_logs(access.path)
        raise
    return _refreshed(index, index.refresh(runner=session.runner), "SUCCESS")


def refresh(statement: s.RefreshSearchIndex, session: Session) -> pa.Table:
    """Bring an index up to its source, which may be somewhere else by now."""
    places = _places(session)
    access = places.find(statement.index)
    index = search_index_of(access)
    if statement.source is not None:
        source_format, source = places.source(statement.source)
        if source_format != index.format:
            raise StatementError(
                f"'{access.uri}' is a search index over a source in the format {index.format}, and "
                f"{statement.source} is {source_format}. Drop it and create another one."
            )
        index = SearchIndex(access.log(), source_of(source.path, source_format, source.storage))
    return _refreshed(index, index.refresh(runner=session.runner), "SUCCESS")


def describe(statement: s.DescribeSearchIndex, session: Session) -> pa.Table:
    """What an index is, and how far it is behind."""
    facts = search_index_of(_places(session).find(statement.index)).describe()
    row = {**facts, "index_path": facts["uri"], "version": facts["index_version"]}
    return pa.Table.from_pylist([{name: row[name] for name in DESCRIBED.names}], DESCRIBED)


def drop(statement: s.DropSearchIndex, session: Session) -> pa.Table:
    """Delete an index, whether its source is still there or not."""
    places = _places(session)
    try:
        access = places.find(statement.index)
        index = search_index_of(access)
    except (NotATableError, StatementError):
        if not statement.if_exists:
            raise
        row = {"index_path": str(statement.index), "status": "NOT FOUND"}
        return pa.Table.from_pylist([row], DROPPED)
    places.dropped(statement.index, access)
    if _is_there(access):
        index.drop()
    invalidate_logs(access.path)
    row = {"index_path": access.uri, "status": "DROPPED", "source": index.source}
    return pa.Table.from_pylist([row], DROPPED)


def _is_there(access: TableAccess) -> bool:
    """Whether forgetting the name left the files."""
    log = access.log()
    log.invalidate()
    try:
        return is_search_index(log.snapshot())
    except NotATableError:
        return False


def _places(session: Session) -> IndexPlaces:
    assert session.indexes is not None
    return session.indexes


def _refreshed(index: SearchIndex, done: Refreshed | None, status: str) -> pa.Table:
    row: dict[str, object] = {"index_path": index.uri, "status": status, "source": index.source}
    if done is not None:
        row |= {
            "source_version": done.source,
            "version": done.version,
            "files_indexed": done.files_indexed,
            "rows_indexed": done.rows_indexed,
            "files_removed": done.files_removed,
            "bytes_added": done.bytes_added,
            "failed": list(done.failed),
        }
        if done.failed:
            row["status"] = "INCOMPLETE"
    return pa.Table.from_pylist([row], REFRESHED)
