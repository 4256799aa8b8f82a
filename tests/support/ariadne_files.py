"""Random rows in files of every format that an index reads, whole ones and damaged ones.

The columns are the same in all of them, except that csv knows no arrays. What a file means is for
Spark's reader to say: nobody here claims to know what it makes of a damaged line.
"""

from __future__ import annotations

import datetime
import decimal
import gzip
import itertools
import json
import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

ITEMS = pa.list_(pa.struct([("v", pa.int32()), ("w", pa.string())]))
SCHEMA = pa.schema(
    [
        ("a", pa.int32()),
        ("b", pa.string()),
        ("c", pa.float64()),
        ("d", pa.date32()),
        ("s", pa.timestamp("us", "UTC")),
        ("items", ITEMS),
        ("t", pa.int64()),
    ]
)
_DDL = {"a": "INT", "b": "STRING", "c": "DOUBLE", "d": "DATE", "s": "TIMESTAMP",
        "items": "ARRAY<STRUCT<v: INT, w: STRING>>", "t": "BIGINT"}  # fmt: skip
NAMES = ["plain", "with space", "hash#tag", "per%41cent", "ünïcode", "bra[c]ket", "q?mark", "c,o=m"]
WORDS = ["", "x", "yy", "Z", "x yy", 'say "z"', "a,b;c|d", "ü", " pad ", "NA", "it's", "back\\n"]

READ_OPTIONS: dict[str, list[dict[str, str]]] = {
    "parquet": [{}],
    "csv": [
        {"header": "true"},
        {"sep": ";", "nullValue": "NA"},
        {"header": "true", "multiLine": "true"},
        {"sep": "|", "quote": "'", "dateFormat": "dd.MM.yyyy"},
        {"header": "true", "mode": "DROPMALFORMED"},
        {"ignoreLeadingWhiteSpace": "true", "emptyValue": "x", "escape": '"'},
    ],
    "json": [
        {},
        {"multiLine": "true"},
        {"dateFormat": "dd.MM.yyyy"},
        {"mode": "DROPMALFORMED"},
    ],
}
EXPRESSIONS = {
    "up": "upper(trim(b))", "odd": "a % 2", "month": "month(d)", "noon": "date_trunc('DAY', s)",
    "big": "c > 1", "many": "size(items)", "both": "concat(b, '-', a)",
}  # fmt: skip
"""Computed index columns."""


@dataclass
class Files:
    """Random files of one format.

    In files that `is_timed` every row has a time of its own in `t`. Those that are `is_plain` have
    no arrays and no damages, and times without a zone: what Arrow may read instead of Spark.
    """

    format: str
    options: Mapping[str, str]
    random: random.Random
    is_timed: bool = False
    is_plain: bool = False
    clock: Iterator[int] = field(default_factory=itertools.count)

    @property
    def damaged(self) -> float:
        """How many of the rows of text formats are."""
        return 0.0 if self.is_plain else 0.1

    @property
    def schema(self) -> pa.Schema:
        """The columns of the files."""
        is_flat = self.is_plain or self.format == "csv"
        return pa.schema([f for f in SCHEMA if f.name != "items" or not is_flat])

    @property
    def ddl(self) -> str:
        """The same for Spark."""
        return ", ".join(f"{name} {_DDL[name]}" for name in self.schema.names)

    @property
    def expressions(self) -> dict[str, str]:
        """The expressions that these files have the columns for."""
        known = EXPRESSIONS.items()
        return {n: e for n, e in known if "items" in self.schema.names or "items" not in e}

    def name(self) -> str:
        """A name that a file may have."""
        packed = self.random.random() < 0.2 and self.format != "parquet"
        return f"{self.random.choice(NAMES)}.{self.format}" + ".gz" * packed

    def rows(self) -> list[dict[str, Any]]:
        """Few rows or none; some columns are null throughout."""
        r = self.random
        empty, all_null, low = r.random() < 0.15, r.random() < 0.15, r.randrange(6)

        def maybe(make: Callable[[], Any]) -> Any:
            return None if all_null or r.random() < 0.2 else make()

        def item() -> Any:
            return {"v": maybe(lambda: r.randrange(3)), "w": maybe(lambda: r.choice(WORDS))}

        def row() -> dict[str, Any]:
            day = datetime.datetime(2024, 1, low + 1, r.randrange(3) * 6, tzinfo=datetime.UTC)
            return {
                "a": maybe(lambda: low + r.randrange(3)),
                "b": maybe(lambda: r.choice(WORDS)),
                "c": maybe(lambda: r.choice([0.0, -0.0, 1.5, float("nan"), float(low)])),
                "d": maybe(day.date),
                "s": maybe(lambda: day),
                "items": maybe(lambda: [maybe(item) for _ in range(r.randrange(3))]),
                "t": next(self.clock),
            }

        return [row() for _ in range(0 if empty else r.randrange(1, 5))]

    def write(self, path: Path) -> None:
        """Put other rows into a file than it had."""
        rows = self.rows()
        if not rows and path.exists():
            rows = [{**dict.fromkeys(self.schema.names), "t": next(self.clock)}]
        if self.format == "parquet":
            known = [{name: row[name] for name in self.schema.names} for row in rows]
            pq.write_table(pa.Table.from_pylist(known, self.schema), path, row_group_size=2)
            return
        content = (self._csv if self.format == "csv" else self._json)(rows)
        data = content.encode()
        path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)

    def _text(self, value: Any, *, null: str = "") -> str:
        if value is None:
            return null
        if isinstance(value, datetime.datetime):
            return f"{value:%Y-%m-%d %H:%M:%S}" if self.is_plain else value.isoformat()
        if isinstance(value, datetime.date) and "dateFormat" in self.options:
            return f"{value:%d.%m.%Y}"
        if isinstance(value, float) and value != value:
            return "NaN"
        return str(value)

    def _csv(self, rows: list[dict[str, Any]]) -> str:
        sep, quote = self.options.get("sep", ","), self.options.get("quote", '"')
        escape = self.options.get("escape", "\\")
        lines = [sep.join(self.schema.names)] if "header" in self.options else []
        for row in rows:
            cells = []
            for name in self.schema.names:
                text = self._text(row[name], null=self.options.get("nullValue", ""))
                if row[name] is not None and name == "b":
                    text = text.replace("\\", "\\\\") if escape == "\\" else text
                    text = quote + text.replace(quote, escape + quote) + quote
                    text = text.replace("yy", "y\ny") if "multiLine" in self.options else text
                cells.append(text)
            if self.random.random() < self.damaged:
                cells[self.random.choice([1, 2, 3, 4])] = "zz"
            if self.random.random() < self.damaged and not self.is_timed:
                cells = self.random.choice([cells[: self.random.randrange(1, 6)], [*cells, "zz"]])
            lines.append(sep.join(cells))
        return "".join(f"{line}\n" for line in lines)

    def _json(self, rows: list[dict[str, Any]]) -> str:
        lines = []
        for row in rows:
            plain = {
                name: value if isinstance(value, (int, str, list)) else self._text(value)
                for name, value in ((name, row[name]) for name in self.schema.names)
                if value is not None or self.random.random() < 0.5
            }
            plain |= {n: None for n in plain if row[n] is None}
            if isinstance(row["c"], float) and row["c"] == row["c"]:
                plain["c"] = row["c"]
            if self.random.random() < self.damaged:
                plain[self.random.choice(["b", "c", "d", "s", "items"])] = {"zz": 1}
            if self.random.random() < self.damaged:
                plain["items"] = [{"v": "zz", "w": "x"}, {"v": 1, "w": {"zz": 2}}, {"v": 2}]
            line = json.dumps(plain)
            broken = self.random.random() < self.damaged and not self.is_timed
            lines.append(line[:-2] if broken else line)
        if "multiLine" in self.options:
            return f"[{', '.join(lines)}]"
        return "".join(f"{line}\n" for line in lines)


# --- what is asked -------------------------------------------------------------------------------


def conditions(r: random.Random, names: list[str], count: int) -> list[str]:
    """Conditions as SQL text on some of the columns."""

    def day() -> str:
        return f"2024-01-0{r.randrange(1, 8)}"

    leaves: dict[str, Callable[[], str]] = {
        "a": lambda: f"a {r.choice(['=', '<>', '<', '>=', '<=>'])} {r.randrange(9)}",
        "b": lambda: r.choice(["b = 'x'", "b LIKE 'x%'", "b >= 'x'", "b IN ('', 'Z', NULL)"]),
        "c": lambda: r.choice(["c = 0", "c > 1", "c IN (1.5, 3)", "c < 1"]),
        "d": lambda: f"d {r.choice(['=', '<', '>='])} DATE '{day()}'",
        "s": lambda: f"s {r.choice(['=', '<', '>='])} TIMESTAMP '{day()} 06:00:00'",
        "v": lambda: f"v {r.choice(['=', '<', '>'])} {r.randrange(3)}",
        "w": lambda: "w IN ('x', 'yy')",
        "up": lambda: r.choice(["up = 'X'", "up > 'X'"]),
        "odd": lambda: f"odd {r.choice(['=', '<>'])} {r.randrange(2)}",
        "month": lambda: f"month = {r.randrange(1, 3)}",
        "noon": lambda: f"noon {r.choice(['=', '<', '>='])} TIMESTAMP '{day()} 00:00:00'",
        "big": lambda: r.choice(["big = true", "big = false"]),
        "many": lambda: f"many {r.choice(['=', '<', '>'])} {r.randrange(3)}",
        "both": lambda: f"both IN ('x-{r.randrange(9)}', 'Z-{r.randrange(9)}')",
    }  # fmt: skip

    def leaf() -> str:
        name = r.choice([n for n in names if n in leaves])
        return f"{name} IS {r.choice(['', 'NOT '])}NULL" if r.random() < 0.2 else leaves[name]()

    def condition(depth: int) -> str:
        choice = r.random() if depth else 1.0
        if choice < 0.3:
            return f"({condition(depth - 1)} AND {condition(depth - 1)})"
        if choice < 0.6:
            return f"({condition(depth - 1)} OR {condition(depth - 1)})"
        return f"(NOT {condition(depth - 1)})" if choice < 0.75 else leaf()

    return [condition(2) for _ in range(count)]


def keys(r: random.Random, names: list[str]) -> pa.Table:
    """Rows of keys for some index columns, not always of the column's own type."""
    day = datetime.datetime(2024, 1, 1, tzinfo=datetime.UTC)
    number = [pa.int8(), pa.int32(), pa.int64(), pa.float64(), pa.decimal128(5, 1)]
    known: dict[str, tuple[list[Any], list[Any]]] = {
        "a": (list(range(9)), number),
        "b": ([*WORDS, "W"], [pa.string()]),
        "c": ([0, 3, 1], number) if r.random() < 0.5 else
             ([0.0, -0.0, 1.5, 3.0, float("nan")], [pa.float32(), pa.float64()]),
        "d": ([day.date().replace(day=n) for n in range(1, 8)], [pa.date32()]),
        "s": ([day.replace(day=n, hour=6) for n in range(1, 8)], [pa.timestamp("us", "UTC")]),
        "v": ([0, 1, 7], number),
        "w": (WORDS, [pa.string()]),
        "up": (["X", "YY", "", "x"], [pa.string()]),
        "odd": ([0, 1], number),
        "month": ([1, 2], number),
        "noon": ([day.replace(day=n) for n in range(1, 8)], [pa.timestamp("us", "UTC")]),
        "big": ([True, False], [pa.bool_()]),
        "many": ([0, 1, 2], number),
        "both": (["x-1", "Z-2", "yy-3"], [pa.string()]),
    }  # fmt: skip
    count = r.randrange(4)
    columns: dict[str, Any] = {}
    for name in names:
        values, kinds = known[name]
        chosen = [None if r.random() < 0.2 else r.choice(values) for _ in range(count)]
        kind = r.choice(kinds)
        if pa.types.is_decimal(kind):
            chosen = [None if v is None else decimal.Decimal(v) for v in chosen]
        columns[name] = pa.array(chosen, kind)
    columns["k"] = pa.array(range(count), pa.int64())
    return pa.table(columns)
