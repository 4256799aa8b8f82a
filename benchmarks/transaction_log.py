"""The transaction log at 100,000 files and at up to 1,000 versions, beside JSON and Delta."""

from __future__ import annotations

import hashlib
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import orjson

from benchmarks.measure import Result, best_of, race
from indextables import config as keys
from indextables.config import Config
from indextables.log.actions import Add, Metadata
from indextables.log.layout import version_path
from indextables.log.transaction import Operation, Transaction
from indextables.log.transaction_log import TransactionLog
from indextables.storage import open_store
from indextables.storage.local import LocalStore

FILES = 100_000
VERSIONS = {100: 2, 500: 5, 1_000: 10}
"""Versions of a log, and how much quicker it has to open with checkpoints."""
REQUEST_S = 0.005
"""How long a store takes to answer; what the claims about reading in threads assume."""
WIDE = 400
MAPPING = '[{"name":"id","type":"i64"},{"name":"message","type":"text","tokenizer":"default"}]'


def adds(count: int, *, start: int = 0) -> list[Add]:
    """Files as a log table has them: a partition, statistics of three columns, a mapping."""
    found = []
    for n in range(start, start + count):
        day = f"2024-{n % 12 + 1:02d}-{n % 28 + 1:02d}"
        name = hashlib.md5(str(n).encode()).hexdigest()
        found.append(
            Add(
                path=f"date={day}/splits/split-{name}.split",
                partition_values={"date": day},
                size=n * 1000,
                modification_time=1_704_067_200_000 + n,
                min_values={"id": str(n), "level": "DEBUG", "ts": str(1_704_067_200_000_000 + n)},
                max_values={
                    "id": str(n + 9),
                    "level": "WARN",
                    "ts": str(1_704_067_200_000_900 + n),
                },
                num_records=1000,
                has_footer_offsets=True,
                footer_start_offset=n * 900,
                footer_end_offset=n * 1000,
                doc_mapping_json=MAPPING,
            )
        )
    return found


def append(log: TransactionLog, new: Sequence[Add]) -> None:
    """Commit files; on a disk, where a commit looks whether they are there, they are made."""
    if isinstance(log.store, LocalStore):
        for add in new:
            file = Path(log.store.uri, add.path)
            file.parent.mkdir(parents=True, exist_ok=True)
            file.touch()
    log.commit(Transaction(operation=Operation.APPEND, actions=new))


def make_table(
    place: Path | str,
    files: int,
    settings: dict[str, object],
    options: dict[str, str] | None = None,
) -> TransactionLog:
    """A table whose files came in ten commits, with a checkpoint at the last."""
    columns = [
        {"name": n, "type": "string", "nullable": True, "metadata": {}} for n in ("id", "date")
    ]
    schema = orjson.dumps({"type": "struct", "fields": columns}).decode()
    metadata = Metadata(id="b", schema_string=schema, partition_columns=("date",))
    store = open_store(place, options)
    log = TransactionLog.create(store, metadata, config=Config(settings))
    for part in range(10):
        each = files // 10
        actions = adds(each, start=part * each)
        append(log, actions)
    return log


def open_files(place: Path | str, options: dict[str, str] | None = None) -> int:
    """What a process does that has never seen the table."""
    log = TransactionLog(open_store(place, options))
    log.invalidate()  # logs of a process share manifests
    return int(log.snapshot().files.num_rows)


def make_delta(folder: Path) -> None:
    """A Delta table with as many files and the same statistics, checkpointed."""
    from deltalake import DeltaTable

    log = folder / "_delta_log"
    log.mkdir(parents=True)
    fields = [
        {"name": n, "type": t, "nullable": True, "metadata": {}}
        for n, t in (("id", "long"), ("level", "string"), ("ts", "long"), ("date", "string"))
    ]
    lines = [
        {"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}},
        {
            "metaData": {
                "id": "b", "format": {"provider": "parquet", "options": {}},
                "schemaString": orjson.dumps({"type": "struct", "fields": fields}).decode(),
                "partitionColumns": ["date"], "configuration": {}, "createdTime": 1,
            }
        },
    ]  # fmt: skip
    for add in adds(FILES):
        low, high = dict(add.min_values or {}), dict(add.max_values or {})
        for bounds in (low, high):
            bounds.update(id=int(bounds["id"]), ts=int(bounds["ts"]))  # type: ignore[call-overload]
        stats = {"numRecords": 1000, "minValues": low, "maxValues": high, "nullCount": {}}
        lines.append(
            {
                "add": {
                    "path": add.path, "partitionValues": add.partition_values, "size": add.size,
                    "modificationTime": add.modification_time, "dataChange": True,
                    "stats": orjson.dumps(stats).decode(),
                }
            }
        )  # fmt: skip
    (log / f"{0:020d}.json").write_bytes(b"\n".join(orjson.dumps(line) for line in lines))
    DeltaTable(folder).create_checkpoint()
    (log / f"{0:020d}.json").unlink()


def open_delta(folder: Path) -> int:
    from deltalake import DeltaTable

    return int(DeltaTable(folder).get_add_actions(flatten=True).num_rows)


_MEMORY = """
import gc, sys
from pathlib import Path
from indextables.config import Config
from indextables.log.transaction_log import TransactionLog
from indextables.storage import open_store

def resident():
    gc.collect()
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096 / 1e6

kept, sizes = [], []
for _ in range(5):
    apart = Config({"spark.indextables.transaction.cache.enabled": False})
    snapshot = TransactionLog(open_store(sys.argv[1]), config=apart).snapshot()
    assert snapshot.files.num_rows == int(sys.argv[2])
    kept.append(snapshot)
    sizes.append(resident())
print((sizes[-1] - sizes[0]) / 4)
"""


def snapshot_megabytes(folder: Path) -> float:
    """What a process grows by with each snapshot it keeps, after the first has loaded libraries."""
    command = [sys.executable, "-c", _MEMORY, str(folder), str(FILES)]
    return float(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


def bytes_written(log: TransactionLog, folder: Path) -> int:
    """What a commit of 100 files writes, its checkpoint included, apart from the pointer list."""
    before = {p: p.stat().st_size for p in folder.rglob("*") if p.is_file()}
    new = adds(100, start=10**7)
    append(log, new)
    after = {p: p.stat().st_size for p in folder.rglob("*") if p.is_file()}
    return sum(
        size
        for path, size in after.items()
        if before.get(path) != size and path.name not in ("_last_checkpoint", "_manifest.avro")
    )


def run(scale: float = 1.0) -> Iterator[Result]:
    """At a smaller scale only what is quick: few versions, threads, wide mappings."""
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        yield from _versions(root, [v for v in VERSIONS if v <= 1_000 * scale] or [100])
        yield from _threads(root)
        yield from _wide_mappings(root)
        if scale >= 1:
            yield from _opening(root)
            yield from _commits(root)


def _opening(root: Path) -> Iterator[Result]:
    make_table(root / "avro", FILES, {})
    one_json = {
        "spark.indextables.state.format": "json",
        "spark.indextables.checkpoint.actionsPerPart": 10**6,
    }
    make_table(root / "json", FILES, one_json)
    make_delta(root / "delta")
    for folder in ("avro", "json"):
        assert open_files(root / folder) == FILES
    assert open_delta(root / "delta") == FILES
    avro = best_of(5, lambda: open_files(root / "avro"))
    json = best_of(3, lambda: open_files(root / "json"))
    delta = best_of(5, lambda: open_delta(root / "delta"))
    yield Result(
        f"Opening {FILES:,} files from Avro state is faster than from JSON",
        json / avro, 5, "at least", f"JSON checkpoint {json:.3f} s / Avro state {avro:.3f} s",
    )  # fmt: skip
    yield Result(
        f"Opening {FILES:,} files takes about what Delta takes",
        avro / delta, 1.5, "at most", f"{avro:.3f} s / deltalake get_add_actions {delta:.3f} s",
    )  # fmt: skip
    megabytes = snapshot_megabytes(root / "avro")
    yield Result(
        f"A snapshot of {FILES:,} files is small",
        megabytes, 100, "at most", "megabytes that the process grows by with each snapshot",
    )  # fmt: skip


def _versions(root: Path, counts: Iterable[int]) -> Iterator[Result]:
    """On a store that is asked over a network, as checkpoints are made for; and on a disk."""
    from benchmarks.peers import s3_server

    for count in counts:
        with s3_server() as (uri, options):
            remote = _open_times(f"{uri}/versions-{count}", options, count)
        local = _open_times(str(root / f"versions-{count}"), None, count)
        disk = local["without"] / local["with"]
        yield Result(
            f"{count:,} versions open faster with checkpoints",
            remote["without"] / remote["with"], VERSIONS[count], "at least",
            f"S3 server on loopback: without {remote['without']:.2f} s / with "
            f"{remote['with']:.3f} s (on a local disk {disk:.1f} times: {local['without']:.3f} s / "
            f"{local['with']:.3f} s)",
        )  # fmt: skip


class _DistantStore(LocalStore):
    """Files that take as long to come as objects of a store."""

    def get(self, path: str) -> bytes:
        time.sleep(REQUEST_S)
        return super().get(path)


def _threads(root: Path) -> Iterator[Result]:
    folder = root / "threads"
    log = make_table(folder, 10, {"spark.indextables.checkpoint.enabled": False})
    log.checkpoint()
    for n in range(100):
        append(log, adds(1, start=10**6 + n))

    def opened(threads: int) -> int:
        config = Config({keys.CHECKPOINT_PARALLELISM.name: threads})
        return TransactionLog(_DistantStore(str(folder)), config=config).snapshot().num_files

    assert opened(1) == opened(4) == 110
    one, four = race(3, partial(opened, 1), partial(opened, 4))
    yield Result(
        "Four threads read 100 versions after a checkpoint faster than one",
        one.seconds / four.seconds, 2.5, "at least",
        f"{REQUEST_S * 1000:.0f} ms a request: one thread {one.seconds:.3f} s / four "
        f"{four.seconds:.3f} s",
    )  # fmt: skip


def _wide_mappings(root: Path) -> Iterator[Result]:
    """Every split has the mapping of its columns; the log has it once."""
    columns = [{"name": f"column{n}", "type": "text", "tokenizer": "default"} for n in range(WIDE)]
    mapping = orjson.dumps(columns).decode()
    plain = {"spark.indextables.transaction.compression.enabled": False}
    log = make_table(root / "wide", 10, dict(plain))
    new = [replace(add, doc_mapping_json=mapping) for add in adds(1_000, start=10**6)]
    append(log, new)
    assert log.snapshot().files["docMappingJson"].to_pylist().count(mapping) == len(new)
    stored = log.store.head(version_path(log.snapshot().version)).size
    inline = stored + len(new) * len(mapping)
    yield Result(
        f"A commit of 1,000 files of {WIDE} columns is smaller with their mapping once",
        inline / stored, 10, "at least",
        f"a mapping in every entry {inline:,} bytes / once {stored:,} bytes, not compressed",
    )  # fmt: skip


def _open_times(uri: str, options: dict[str, str] | None, versions: int) -> dict[str, float]:
    times = {}
    for name, settings in (
        ("with", {}),
        ("without", {"spark.indextables.checkpoint.enabled": False}),
    ):
        log = make_table(f"{uri}/{name}", 10, settings, options)
        for n in range(versions - 10):
            new = adds(1, start=10**6 + n)
            append(log, new)
        times[name] = best_of(3, lambda at=f"{uri}/{name}": open_files(at, options))
    return times


def _commits(root: Path) -> Iterator[Result]:
    small = make_table(root / "small", 100, {})
    large = TransactionLog(open_store(root / "avro"))

    def refresh_time(log: TransactionLog, folder: Path, start: int) -> float:
        reader = TransactionLog(open_store(folder))
        reader.snapshot()
        times = []
        for n in range(7):
            new = adds(1, start=start + n)
            append(log, new)
            times.append(best_of(1, reader.snapshot))
        return sorted(times)[3]

    slow = refresh_time(large, root / "avro", 2 * 10**7)
    quick = refresh_time(small, root / "small", 2 * 10**7)
    yield Result(
        "A refresh after one commit does not depend on the table's size",
        slow / quick, 1.5, "at most",
        f"{FILES:,} files {slow * 1000:.2f} ms / 100 files {quick * 1000:.2f} ms",
    )  # fmt: skip
    big, little = bytes_written(large, root / "avro"), bytes_written(small, root / "small")
    yield Result(
        "A commit of 100 files writes what it adds",
        big / little, 1.1, "at most", f"{big:,} bytes on {FILES:,} files / {little:,} on 100",
    )  # fmt: skip
