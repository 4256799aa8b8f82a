"""Iceberg tables of a SQLite catalog, and what pyiceberg does not write: delete files."""

from __future__ import annotations

import json
import struct
import uuid
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.avro.file import AvroOutputFile
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.manifest import (
    DataFile,
    DataFileContent,
    FileFormat,
    ManifestContent,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestWriterV2,
    write_manifest_list,
)
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Operation, Snapshot, Summary
from pyiceberg.table.update import AddSnapshotUpdate, SetSnapshotRefUpdate
from pyiceberg.typedef import Record

from indextables.log.vectors import encoded

POSITIONS, EQUALITY = DataFileContent.POSITION_DELETES, DataFileContent.EQUALITY_DELETES
_POSITION_DELETES = pa.schema([
    pa.field("file_path", pa.string(), False, metadata={"PARQUET:field_id": "2147483546"}),
    pa.field("pos", pa.int64(), False, metadata={"PARQUET:field_id": "2147483545"}),
])  # fmt: skip


def catalog_in(folder: Path) -> SqlCatalog:
    """A new catalog with a namespace `db`, its tables below `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    catalog = SqlCatalog("test", uri=f"sqlite:///{folder}/c.db", warehouse=f"file://{folder}/wh")
    catalog.create_namespace("db")
    return catalog


def data_files(table: Table) -> list[DataFile]:
    """The live data files, the oldest first."""
    entries = [e for m in table.current_snapshot().manifests(table.io) if m.content == 0
               for e in m.fetch_manifest_entry(table.io)]  # fmt: skip
    return [e.data_file for e in sorted(entries, key=lambda e: e.sequence_number)]


def delete_positions(table: Table, rows: list[tuple[str, int]], **arguments: Any) -> None:
    """Delete rows by their files and numbers."""
    content = pa.table(list(zip(*rows, strict=True)), schema=_POSITION_DELETES)
    _delete(table, POSITIONS, content, **arguments)


def delete_equal(table: Table, rows: pa.Table, ids: list[int], **arguments: Any) -> None:
    """Delete rows by the values of columns, which have these field ids."""
    fields = [
        f.with_metadata({"PARQUET:field_id": str(i)}) for f, i in zip(rows.schema, ids, strict=True)
    ]
    _delete(table, EQUALITY, rows.cast(pa.schema(fields)), ids=ids, **arguments)


def _delete(
    table: Table,
    content: DataFileContent,
    rows: pa.Table,
    *,
    ids: list[int] | None = None,
    spec: int | None = None,
    partition: tuple[Any, ...] = (),
    file_format: FileFormat = FileFormat.PARQUET,
) -> None:
    location = f"{table.location()}/data/{uuid.uuid4()}-deletes.parquet"
    pq.write_table(rows, location.removeprefix("file://"))
    file = DataFile.from_args(
        content=content,
        file_path=location,
        file_format=file_format,
        partition=Record(*partition),
        record_count=rows.num_rows,
        file_size_in_bytes=Path(location.removeprefix("file://")).stat().st_size,
        equality_ids=ids,
    )
    file.spec_id = table.spec().spec_id if spec is None else spec
    commit_deletes(table, file)


class _Deletes(ManifestWriterV2):
    def content(self) -> ManifestContent:
        return ManifestContent.DELETES

    @property
    def _meta(self) -> dict[str, str]:
        return {**super()._meta, "content": "deletes"}


class _Vectors(_Deletes):
    def new_writer(self) -> AvroOutputFile[ManifestEntry]:
        schema = self._with_partition(3)
        return AvroOutputFile(self._output_file, schema, "manifest_entry", schema, self._meta)


def commit_deletes(table: Table, file: DataFile, writer: type[_Deletes] = _Deletes) -> None:
    """Commit a snapshot that adds a file of deletes."""
    before = table.current_snapshot()
    number = table.metadata.new_snapshot_id()
    sequence = table.metadata.last_sequence_number + 1
    folder = f"{table.location()}/metadata"
    spec = table.specs()[file.spec_id]
    output = table.io.new_output(f"{folder}/{uuid.uuid4()}-m0.avro")
    with writer(spec, table.schema(), output, number, "deflate") as made:
        made.add(
            ManifestEntry.from_args(
                status=ManifestEntryStatus.ADDED, snapshot_id=number, data_file=file
            )
        )
    manifests = [*before.manifests(table.io), made.to_manifest_file()]
    listed = table.io.new_output(f"{folder}/snap-{number}.avro")
    with write_manifest_list(2, listed, number, before.snapshot_id, sequence, "deflate") as made:
        made.add_manifests(manifests)
    snapshot = Snapshot(
        snapshot_id=number,
        parent_snapshot_id=before.snapshot_id,
        sequence_number=sequence,
        manifest_list=listed.location,
        summary=Summary(Operation.DELETE),
        schema_id=table.metadata.current_schema_id,
    )
    main = SetSnapshotRefUpdate(snapshot_id=number, ref_name="main", type="branch")
    table.catalog.commit_table(table, (), (AddSnapshotUpdate(snapshot=snapshot), main))
    table.refresh()


# --- version 3 -----------------------------------------------------------------------------------


def metadata_as(table: Table, change: Any) -> str:
    """Write another metadata file, with a higher number; `change` takes and changes its content."""
    old = Path(table.metadata_location.removeprefix("file://"))
    content = json.loads(old.read_text())
    change(content)
    number = max(int(p.name.split("-")[0].lstrip("v")) for p in old.parent.glob("*.metadata.json"))
    new = old.parent / f"{number + 1:05}-{uuid.uuid4()}.metadata.json"
    new.write_text(json.dumps(content))
    return str(new)


def delete_by_vector(
    table: Table, location: str, rows: list[int], *, damaged: bool = False
) -> None:
    """Delete rows of a file by a deletion vector, in a manifest of version 3."""
    data = encoded(np.array(rows, np.int64))
    checksum = zlib.crc32(data) + damaged
    blob = struct.pack(">I", len(data)) + data + struct.pack(">I", checksum)
    puffin = f"{table.location()}/data/{uuid.uuid4()}.puffin"
    Path(puffin.removeprefix("file://")).write_bytes(b"PFA1" + blob)
    file = DataFile.from_args(
        3,
        content=POSITIONS,
        file_path=puffin,
        file_format=FileFormat.PUFFIN,
        partition=Record(),
        record_count=len(rows),
        file_size_in_bytes=4 + len(blob),
        referenced_data_file=location,
        content_offset=4,
        content_size_in_bytes=len(blob),
    )
    file.spec_id = table.spec().spec_id
    commit_deletes(table, file, writer=_Vectors)
