"""Delta tables whose logs are written by hand, for what delta-rs reads and does not write."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from indextables.log.vectors import store_vectors
from indextables.storage import open_store


def field(name: str, kind: Any, physical: str | None = None, number: int = 0) -> dict[str, Any]:
    metadata: dict[str, Any] = {}
    if physical is not None:
        metadata = {
            "delta.columnMapping.id": number,
            "delta.columnMapping.physicalName": physical,
        }
    return {"name": name, "type": kind, "nullable": True, "metadata": metadata}


class DeltaLog:
    """A table that is written one version at a time."""

    def __init__(self, folder: Path, *, features: tuple[str, ...] = ()) -> None:
        self.folder = folder
        self.features = list(features)
        self.version = -1
        (folder / "_delta_log").mkdir(parents=True)

    @property
    def protocol(self) -> dict[str, Any]:
        names = {"readerFeatures": self.features, "writerFeatures": self.features}
        return {"protocol": {"minReaderVersion": 3, "minWriterVersion": 7, **names}}

    def metadata(
        self, fields: list[dict[str, Any]], *, partition_by: tuple[str, ...] = (), mode: str = ""
    ) -> dict[str, Any]:
        configuration = {"delta.enableDeletionVectors": "true"}
        if mode:
            configuration |= {
                "delta.columnMapping.mode": mode, "delta.columnMapping.maxColumnId": "99",
            }  # fmt: skip
        return {
            "metaData": {
                "id": "0b5fbd5e-4aa9-4bd4-a7cb-5b1eba7a40a1",
                "format": {"provider": "parquet", "options": {}},
                "schemaString": json.dumps({"type": "struct", "fields": fields}),
                "partitionColumns": list(partition_by),
                "configuration": configuration,
                "createdTime": 1,
            }
        }

    def add(
        self,
        path: str,
        rows: pa.Table | None = None,
        *,
        dead: tuple[int, ...] = (),
        partition: dict[str, str | None] | None = None,
        counted: bool = True,
    ) -> dict[str, Any]:
        file = self.folder / path
        if rows is not None:
            file.parent.mkdir(parents=True, exist_ok=True)
            pq.write_table(rows, file, row_group_size=3)
        total = pq.ParquetFile(file).metadata.num_rows
        body: dict[str, Any] = {
            "path": quote(path),
            "partitionValues": partition or {},
            "size": file.stat().st_size,
            "modificationTime": 1,
            "dataChange": True,
        }
        if counted:
            body["stats"] = json.dumps({"numRecords": total})
        if dead:
            numbers = np.array(dead, dtype=np.int64)
            vector = store_vectors(open_store(self.folder), {path: numbers})[path]
            body["deletionVector"] = vector.to_json()
        return {"add": body}

    def remove(self, added: dict[str, Any]) -> dict[str, Any]:
        body = {
            "path": added["add"]["path"], "deletionTimestamp": 2, "dataChange": True,
            "extendedFileMetadata": True, "size": added["add"]["size"],
            "partitionValues": added["add"]["partitionValues"],
        }  # fmt: skip
        if "deletionVector" in added["add"]:
            body["deletionVector"] = added["add"]["deletionVector"]
        return {"remove": body}

    def commit(self, *actions: dict[str, Any]) -> None:
        self.version += 1
        text = "\n".join(map(json.dumps, actions))
        (self.folder / "_delta_log" / f"{self.version:020}.json").write_text(text)
