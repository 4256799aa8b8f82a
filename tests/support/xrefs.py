"""XRefs of a table without the job that keeps them: built, committed, stale, in tiers."""

from __future__ import annotations

import datetime
import time
from collections.abc import Sequence

import pyarrow as pa

from indextables import Table
from indextables.config import Config
from indextables.log.actions import AddXRef
from indextables.log.transaction import Operation, Transaction
from indextables.xref.build import BuiltXRef, XRefSource, build_xref, merge_xrefs

ALWAYS = {"spark.indextables.xref.query.minSplitsForXRef": 0}
"""Ask XRefs however few splits there are."""


SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("body", pa.string()),
        ("tag", pa.string()),
        ("day", pa.date32()),
        ("ip", pa.string()),
        ("doc", pa.string()),
        ("price", pa.float64()),
    ]
)
MAPPING = {"tag": "string", "ip": "ip", "doc": "json"}


def rows_of(number: int) -> pa.Table:
    """The rows of the split with this number."""
    return pa.Table.from_pylist(
        [
            {
                "id": number,
                "body": f"word{number} common Wi-Fi in house",
                "tag": f"a b{number}",
                "day": datetime.date(2024, 1, 1 + number),
                "ip": f"10.0.0.{number}",
                "doc": f'{{"k": "leaf{number}", "n": {number}}}',
                "price": number / 2,
            },
            {"id": 100 + number, "body": f"parity{number % 2}", "price": float("nan")},
        ],
        SCHEMA,
    )


def sources(table: Table) -> list[XRefSource]:
    """The live splits of a table, as an XRef wants them."""
    rows = table.snapshot().files.select(
        ["path", "size", "numRecords", "footerStartOffset", "footerEndOffset"]
    )
    return [XRefSource(*row.values()) for row in rows.to_pylist()]


def add_xref(table: Table, built: BuiltXRef) -> None:
    """Commit a stored XRef."""
    action = AddXRef(
        path=built.path,
        xref_id=built.xref_id,
        source_split_paths=built.source_splits,
        source_split_count=len(built.source_splits),
        size=built.size,
        total_terms=built.total_terms,
        footer_start_offset=built.footer_start_offset,
        footer_end_offset=built.footer_end_offset,
        created_time=int(time.time() * 1000),
        build_duration_ms=built.build_duration_ms,
        max_source_splits=1024,
    )
    table.log.commit(Transaction(operation=Operation.XREF, actions=[action]))
    table.refresh()


def cover(table: Table, chosen: Sequence[XRefSource] | None = None, **options: object) -> BuiltXRef:
    """Build and commit an XRef over some splits, or over all of them."""
    config = Config({f"spark.indextables.{k}": v for k, v in options.items()})
    built = build_xref(table.log.store, sources(table) if chosen is None else chosen, config=config)
    add_xref(table, built)
    return built


def link(table: Table, parts: Sequence[BuiltXRef], keep: Sequence[str]) -> BuiltXRef:
    """Link XRefs into one and commit that too."""
    merged = merge_xrefs(table.log.store, [p.path for p in parts], keep=keep, config=Config())
    add_xref(table, merged)
    return merged
