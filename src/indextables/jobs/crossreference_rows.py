"""Cross-references as rows: what the command did, and which there are."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from indextables.jobs.index_crossreferences import Indexed
from indextables.log.crossreferences import cover_of
from indextables.log.snapshot import Snapshot
from indextables.xref.names import bare_id

_TEXT: pa.DataType = pa.string()
_INTEGER: pa.DataType = pa.int32()
_LONG: pa.DataType = pa.int64()

INDEXED = pa.schema(
    [
        ("table_path", _TEXT),
        ("partition", _TEXT),
        ("action", _TEXT),
        ("xref_path", _TEXT),
        ("source_splits_count", _INTEGER),
        ("total_terms", _LONG),
        ("xref_size_bytes", _LONG),
        ("build_duration_ms", _LONG),
    ]
)

_COLUMNS: list[tuple[str, pa.DataType]] = [
    ("path", _TEXT),
    ("xrefId", _TEXT),
    ("sourceSplitPaths", pa.list_(_TEXT)),
    ("sourceSplitCount", _LONG),
    ("liveSplitCount", _LONG),
    ("size", _LONG),
    ("totalTerms", _LONG),
    ("footerStartOffset", _LONG),
    ("footerEndOffset", _LONG),
    ("createdTime", pa.timestamp("ms", "UTC")),
    ("buildDurationMs", _LONG),
    ("maxSourceSplits", _LONG),
]
XREFS = pa.schema(_COLUMNS)


def indexed_rows(found: Sequence[Indexed], *, table_path: str, where: str | None) -> pa.Table:
    """A row for every XRef that INDEX CROSSREFERENCES made or left as it was."""
    rows = [
        {
            "table_path": table_path,
            "partition": where or "",
            "action": one.action,
            "xref_path": one.path,
            "source_splits_count": one.splits,
            "total_terms": one.total_terms,
            "xref_size_bytes": one.size,
            "build_duration_ms": one.build_duration_ms,
        }
        for one in found
    ]
    return pa.Table.from_pylist(rows, INDEXED)


def xref_rows(snapshot: Snapshot) -> pa.Table:
    """A row for every XRef; `liveSplitCount` are those of its splits that are still there."""
    cover = cover_of(snapshot)
    rows = [
        {
            "path": xref.path,
            "xrefId": bare_id(xref.xref_id),
            "sourceSplitPaths": xref.source_split_paths,
            "sourceSplitCount": len(xref.source_split_paths),
            "liveSplitCount": int(live),
            "size": xref.size,
            "totalTerms": xref.total_terms,
            "footerStartOffset": xref.footer_start_offset,
            "footerEndOffset": xref.footer_end_offset,
            "createdTime": xref.created_time,
            "buildDurationMs": xref.build_duration_ms,
            "maxSourceSplits": xref.max_source_splits,
        }
        for xref, live in zip(cover.xrefs, cover.live, strict=True)
    ]
    return pa.Table.from_pylist(rows, XREFS)
