"""Where Arrow reads a csv file, it reads what Spark reads; elsewhere it says so."""

from __future__ import annotations

import contextlib
import io
import itertools
import pickle
import re
import tracemalloc
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from indextables.ariadne.build.csv_build import (
    _DATE,
    _TIMES,
    CsvDialect,
    NotPlain,
    _check_form,
    can_read,
    dialect_of,
    is_named,
    parse,
)
from indextables.schema import from_json

TYPES: dict[str, tuple[str, Any]] = {
    "tinyint": ("byte", pa.int8()),
    "smallint": ("short", pa.int16()),
    "int": ("integer", pa.int32()),
    "bigint": ("long", pa.int64()),
    "float": ("float", pa.float32()),
    "double": ("double", pa.float64()),
    "string": ("string", pa.string()),
    "boolean": ("boolean", pa.bool_()),
    "date": ("date", pa.date32()),
    "timestamp": ("timestamp", pa.timestamp("us", tz="UTC")),
    "timestamp_ntz": ("timestamp_ntz", pa.timestamp("us")),
}
"""Spark's types in SQL and in JSON, and Arrow's."""

NUMBERS = """
0 -0 00 007 -007 5 +5 -5 127 128 -128 -129 32767 32768 2147483647 -2147483648 2147483648
9223372036854775807 9223372036854775808 -9223372036854775808 -9223372036854775809
00000000000000000000000000000000007 1- 1-2 -- --1 - + . -. .. 1. .5 -.5 1.5 1.2.3 0.1 -0.0 1/2 /
1_000 1e5 1E5 1e 1e-400 1e400 5f 5d 5F 5D 5L 0x10 0X1p3 0x1F NaN nan Inf -Inf +Inf inf Infinity
-Infinity null NULL N/A 1,5 3.4028235 16777217 16777217.0000001 0.30000001192092896
340282356779733661637539395458142568447 340282346638528859811704183484516925440
340282356779733661637539395458142568448 7.0064923216240853e-46 2.2250738585072011 9007199254740993
9007199254740992.99999 179769313486231580793e289
"""
DAYS = """
2024-02-29 2023-02-29 2024-02-30 2024-13-01 2024-00-10 2024-01-00 0001-01-01 0000-01-01 1582-10-10
1899-12-31 1900-01-01 1969-12-31 9999-12-31 10000-01-01 -2024-01-01 +2024-01-01 2024-1-1 2024-01
2024 20240101 2024/01/01 01-01-2024 2024-01-01T 2024-01-01Z 2024-01-01- now today epoch tomorrow
24-01-01 2024-01-0 2024-01-011 2024-01-aa
"""
TIMES = """
00:00:00 23:59:59 24:00:00 23:60:00 23:59:60 12:00 12 1:2:3 12:00:00. 12:00:00.1 12:00:00.123
12:00:00.123456 12:00:00.1234567 12:00:00.123456789 12:00:00,5 12:00:00Z 12:00:00.5Z 12:00:00+01:00
12:00:00-00:00 12:00:00.000+0 120000 12-00-00 12:00:0a 12:00:00UTC
"""
OTHERS = "true false True FALSE tRuE t f T F yes no tru\u0435 FAL\u017fE fal\u017fe \ufb01"
DIGITS = "\u0663 \u0663\u0664 \uff11 \u22121 \u0662\u0660\u0662\u0664-01-01"
STRANGE = ["", " ", "  ", "\t", "\x0b", "\x0c", "\x01", "\x1a", "\x1c", "\x7f", "\x85", "\xa0",
           "\u2028", "\u2029", "\u200b", "\ufffe", "\ufffd", "é", "e\u0301", "😀", "#", "# a",
           "'a'", "a b", " a", "a ", "\ta", "a\t", " 1", "1 ", "true ", " true"]  # fmt: skip
TEXTS = [
    *" ".join([NUMBERS, DAYS, OTHERS, DIGITS]).split(),
    *("9" * 39, "9" * 40, "9" * 300, "9" * 310, "1" * 400, "0" * 299 + "1", "ä" * 300, "x" * 9000),
    *("0." + "0" * zeros + "7" for zeros in (36, 37, 43, 44, 45, 46, 60, 297, 298, 330)),
    *(
        day + between + time
        for day in ("2024-02-29", "1899-12-31", "1900-01-01", "2023-02-29", "2024-1-1")
        for between in (" ", "T", "  ", "t", "_")
        for time in TIMES.split()
    ),
    *STRANGE,
]
PLAIN = {
    "tinyint": ["0", "-128", "127", "007"],
    "smallint": ["0", "-32768", "32767"],
    "int": ["0", "-2147483648", "2147483647", "12"],
    "bigint": ["0", "-9223372036854775808", "9223372036854775807", "-5"],
    "float": ["0", "-0.0", "1.5", "0.1", "-3.25", "16777217"],
    "double": ["0", "-0.0", "1.5", "0.1", "9007199254740993", "100"],
    "string": ["a", "a b", " c ", "é", "😀", "x" * 50, "NULL", "1", "#", "a\tb"],
    "boolean": ["true", "false", "True", "FALSE"],
    "date": ["1900-01-01", "2024-02-29", "9999-12-31"],
    "timestamp": ["1900-01-01 00:00:00", "2024-02-29T23:59:59", "2024-02-29 12:00:00.123456"],
    "timestamp_ntz": ["1900-01-01 00:00:00", "2024-02-29T23:59:59.5", "2024-02-29 12:00:00"],
}
SEPARATORS = [",", ",", ";", "|", "/", "~", "'", "#", "_", "&"]


def numbered(table: Any) -> list[dict[str, Any]]:
    """Rows, with days and times as numbers: Spark has more of them than Python."""
    for n, field in enumerate(table.schema):
        if pa.types.is_temporal(field.type):
            width = pa.int32() if field.type == pa.date32() else pa.int64()
            table = table.set_column(n, field.name, table.column(n).cast(width))
    return table.to_pylist()


def rows_of(
    data: bytes, how: CsvDialect, columns: Mapping[str, pa.DataType]
) -> list[dict[str, Any]] | None:
    """The rows of a file, None if it is not read here."""
    try:
        batches = list(parse(io.BytesIO(data), how, columns))
    except NotPlain:
        return None
    for batch in batches:
        assert batch.schema.equals(pa.schema(list(columns.items())))
        batch.validate(full=True)
    return [row for batch in batches for row in numbered(batch)]


def examples(*, ordinary: int) -> settings:
    is_long = settings.default is not None and settings.default.max_examples > 1000
    return settings(
        max_examples=40 * ordinary if is_long else ordinary,
        # A failure shows the file or the value; to look for a smaller one takes minutes of Spark.
        phases=[Phase.explicit, Phase.reuse, Phase.generate],
    )


def session_dialect(spark: Any, options: Mapping[str, str], names: Sequence[str]) -> CsvDialect:
    found = dialect_of(options, names, spark.conf.get)
    assert found is not None
    return found


# --- against Spark ---------------------------------------------------------------------------


def check_values(spark: Any, folder: Path, texts: list[str]) -> dict[str, list[str]]:
    """Each text as a value of each type; gives the texts that are read here, for each type."""
    file = folder / "values.csv"
    columns = {f"c{n}": kind for n, (_, kind) in enumerate(TYPES.values())}
    lines = ["|".join([str(n), *[text] * len(TYPES)]) + "\n" for n, text in enumerate(texts)]
    file.write_text("".join(lines), encoding="utf-8", newline="")
    ddl = "n int, " + ", ".join(f"c{n} {name}" for n, name in enumerate(TYPES))
    expected = numbered(spark.read.schema(ddl).options(sep="|").csv(str(file)).toArrow())
    assert [row["n"] for row in expected] == list(range(len(texts)))
    read_here: dict[str, list[str]] = {name: [] for name in TYPES}
    for text, row in zip(texts, expected, strict=True):
        for name, column in zip(TYPES, columns, strict=True):
            how = CsvDialect(("n", column), False, "|")
            found = rows_of(f"1|{text}\n".encode(), how, {column: columns[column]})
            if found is not None:
                assert repr(found) == repr([{column: row[column]}]), (name, text)
                read_here[name].append(text)
    return read_here


def is_plain(text: str, name: str) -> bool:
    """What is read here of texts, told in another way."""
    kind = TYPES[name][1]
    if not text or name == "string":
        return True
    if pa.types.is_integer(kind):
        limit = 1 << (kind.bit_width - 1)
        return bool(re.fullmatch("-?[0-9]+", text)) and -limit <= int(text) < limit
    if pa.types.is_floating(kind):
        is_number = re.fullmatch(r"-?([0-9]+\.?[0-9]*|\.[0-9]+)", text) and len(text) <= 300
        # What is nearer to the greatest number than to the next that there would be.
        limit = 2**128 - 2**103 if name == "float" else 2**1024 - 2**970
        return bool(is_number) and Decimal(text).copy_abs() < limit
    if name == "boolean":
        return text.isascii() and text.lower() in ("true", "false")
    day, time = "[0-9]{4}-[0-9]{2}-[0-9]{2}", r"[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,6})?"
    if not re.fullmatch(day if name == "date" else f"{day}[ T]{time}", text):
        return False
    with contextlib.suppress(ValueError):
        fraction = text[20:].ljust(6, "0")
        return datetime.fromisoformat(f"{text[:19]}.{fraction}").year >= 1900
    return False


def test_a_value_is_sparks(spark, tmp_path):
    read_here = check_values(spark, tmp_path, TEXTS)
    for name, found in read_here.items():
        assert found == [text for text in TEXTS if is_plain(text, name)], name


digits = st.text("0123456789", min_size=1, max_size=20)


def between(number: int, exponent: int, tail: str) -> str:
    """All digits of `number * 2 ** exponent`, and a little more."""
    if exponent >= 0:
        return f"{number << exponent}.{tail}"
    text = str(number * 5**-exponent).rjust(-exponent + 1, "0")
    return f"{text[:exponent]}.{text[exponent:]}{tail}"


# Odd numbers with one bit more than a float or a double has: they lie between two of them.
halves = st.builds(
    between,
    st.one_of(st.integers(1 << 23, 1 << 24), st.integers(1 << 52, 1 << 53)).map(
        lambda n: 2 * n + 1
    ),
    st.integers(-100, 100),
    st.sampled_from(["", "", "0", "1", "0000000000000000000000000000001"]),
)
values = st.one_of(
    st.sampled_from(TEXTS),
    st.builds("{}{}.{}".format, st.sampled_from(["", "-"]), digits, digits),
    st.floats(allow_nan=False, allow_infinity=False).map(lambda f: f"{f:.17f}"),
    halves,
    st.integers(-(1 << 65), 1 << 65).map(str),
    st.dates().map(str),
    st.datetimes().map(str),
    st.datetimes().map(lambda t: t.isoformat()),
    st.text(st.characters(exclude_categories=["Cs"], exclude_characters='\0\r\n\\"|\ufeff')),
    st.text("0123456789-+.:TZ eE", max_size=26),
)


@examples(ordinary=8)
@given(texts=st.lists(values, min_size=60, max_size=60))
def test_any_value_is_sparks(spark, tmp_path_factory, texts):
    check_values(spark, tmp_path_factory.mktemp("values"), texts)


CHUNKS = [
    *(c.encode() for c in [*STRANGE, *SEPARATORS]),
    b'"', b'""', b'"a"', b'"a,b"', b"\r", b"\r\n", b"\n", b"\n\n", b"\n \n", b"\n\t\n",
    b"\n\x01\n", b"\n,\n", b"\n,,\n", b"\n\xc2\xa0\n", b"\0", b"\\", b'\\"', b"\xef\xbb\xbf",
    b"\xef\xbb", b"\xff", b"\xc3", b"\xed\xa0\x80", b"\xc0\x80", b"\xf4\x90\x80\x80", b"\xff\xfe",
]  # fmt: skip


@st.composite
def csv_files(draw: Any) -> tuple[list[str], dict[str, str], list[bytes], list[int]]:
    """Types, options, files, and the columns to be read."""
    # In numbers most damages are refused anyway; texts show whether they are read alike.
    kind = st.sampled_from([*TYPES, *["string"] * len(TYPES)])
    kinds = draw(st.lists(kind, min_size=2, max_size=4))
    separator = draw(st.sampled_from(SEPARATORS))
    has_header = draw(st.booleans())
    count = len(kinds)
    plain = [[t for t in ["", *PLAIN[kind]] if separator not in t] for kind in kinds]
    strange = [t for t in TEXTS if len(t) < 100 and separator not in t]
    rows = st.tuples(*map(st.sampled_from, plain)).map(separator.join)
    inside = [f"a{separator}b", separator, " x ", "#", "é", ""]
    quoted = [st.sampled_from([*p, *p, *inside]).map('"{}"'.format) for p in plain]
    quoted_rows = st.tuples(
        *(st.one_of(st.sampled_from(p), q) for p, q in zip(plain, quoted, strict=True))
    ).map(separator.join)
    strange_rows = st.tuples(*(st.sampled_from([*p, *strange]) for p in plain)).map(separator.join)
    headers = st.sampled_from([*[count] * 8, count - 1, count + 1]).map(
        lambda n: separator.join(f"h{i}" for i in range(n))
    )
    damage = st.tuples(st.sampled_from(CHUNKS), st.integers(0, 40))

    def file(header: str, lines: list[str], end: str, damages: list[tuple[bytes, int]]) -> bytes:
        data = ("\n".join([header] * has_header + lines) + end).encode()
        for chunk, place in damages:
            # Where fields begin and end is where readers make a difference.
            edges = [m.start() for m in re.finditer(re.escape(separator).encode() + b"|\n", data)]
            places = sorted({0, *edges, *(edge + 1 for edge in edges), len(data) // 2, len(data)})
            at = places[place % len(places)]
            data = data[:at] + chunk + data[at:]
        return data

    files = st.builds(
        file,
        headers,
        st.one_of(
            st.lists(rows, min_size=1, max_size=4),
            st.lists(rows, min_size=1, max_size=4),
            st.lists(quoted_rows, min_size=1, max_size=4),
            st.lists(strange_rows, max_size=2),
        ),
        st.sampled_from(["\n", "\n", "", "\n\n"]),
        st.one_of(st.just([]), *[st.lists(damage, min_size=1, max_size=2)] * 2),
    )
    wanted = draw(st.permutations(range(count)))[: draw(st.sampled_from([count, count, 2, 1, 0]))]
    data = draw(st.lists(files, min_size=30, max_size=30))
    options = {
        "header": draw(st.sampled_from(["true", "True"] if has_header else ["false", "FALSE"])),
        draw(st.sampled_from(["sep", "Delimiter"])): separator,
        **draw(st.sampled_from([{}, {"inferSchema": "true"}, {"mode": "permissive"}])),
    }
    return kinds, options, data, wanted


@examples(ordinary=25)
@given(csv_files())
def test_any_file_is_sparks(spark, tmp_path_factory, case):
    kinds, options, files, wanted = case
    folder = tmp_path_factory.mktemp("files")
    paths = [folder / f"{n:03}.csv" for n in range(len(files))]
    for path, data in zip(paths, files, strict=True):
        path.write_bytes(data)
    names = [f"c{n}" for n in range(len(kinds))]
    how = session_dialect(spark, options, names)
    ddl = ", ".join(f"{name} {kind}" for name, kind in zip(names, kinds, strict=True))
    columns = {names[n]: TYPES[kinds[n]][1] for n in wanted}
    # Spark gives the rows of a file in its order: one task reads it from its beginning to its end.
    frame = spark.read.schema(ddl).options(**options).csv([str(path) for path in paths])
    expected: dict[str, list[dict[str, Any]]] = {path.name: [] for path in paths}
    for row in numbered(frame.select(*columns, "_metadata.file_name").toArrow()):
        expected[row.pop("file_name")].append(row)
    for path, data in zip(paths, files, strict=True):
        found = rows_of(data, how, columns)
        if found is not None:
            assert repr(found) == repr(expected[path.name]), data


def test_long_lines_are_sparks(spark, tmp_path):
    how = CsvDialect(("a", "b", "c"), False, ",")
    for n, length in enumerate([4095, 8191, 8192, 8193, 300_000, (1 << 20) - 8, (1 << 20) - 7]):
        for place, wide in itertools.product(range(3), "xä"):
            line = ["1", "2", "3"]
            line[place] = wide * (length // len(wide.encode()))
            data = "\n".join(["4,5,6", ",".join(line), "7,8,9", ""]).encode()
            path = tmp_path / f"{n}{place}{wide}.csv"
            path.write_bytes(data)
    schema = "a string, b string, c string"
    for wanted in (["a"], ["c"], ["a", "b", "c"]):
        frame = spark.read.schema(schema).csv(str(tmp_path))
        expected: dict[str, list[dict[str, Any]]] = {}
        for row in frame.select(*wanted, "_metadata.file_name").toArrow().to_pylist():
            expected.setdefault(row.pop("file_name"), []).append(row)
        for path in sorted(tmp_path.glob("*.csv")):
            columns = dict.fromkeys(wanted, pa.string())
            found = rows_of(path.read_bytes(), how, columns)
            assert found == expected[path.name]


@pytest.mark.parametrize("zone", ["UTC", "Etc/UTC", "GMT", "Etc/GMT", "Z", "+00:00"])
def test_times_are_sparks_where_they_are_read(spark, tmp_path, zone):
    assert can_read(TYPES["timestamp"][1], timezone=zone)
    file = tmp_path / "times.csv"
    file.write_text("1,1900-01-01 00:00:00\n2,2024-07-01T12:00:00.5\n")
    spark.conf.set("spark.sql.session.timeZone", zone)
    try:
        frame = spark.read.schema("n int, t timestamp").csv(str(file))
        expected = [row[0] for row in frame.selectExpr("unix_micros(t)").collect()]
    finally:
        spark.conf.set("spark.sql.session.timeZone", "UTC")
    how, columns = CsvDialect(("n", "t"), False, ","), {"t": TYPES["timestamp"][1]}
    assert rows_of(file.read_bytes(), how, columns) == [{"t": t} for t in expected]


# --- what is read here, and what is not ------------------------------------------------------

HOW = CsvDialect(("n", "s", "d", "x"), True, ",")
COLUMNS = {"n": pa.int64(), "s": pa.string(), "d": pa.date32(), "x": pa.float64()}
HEADER = b"n,s,d,x\n"
LINES = [b"1,a,2024-02-29,1.5", b"-2,,,", "3, ü ,1900-01-01,-0.0".encode(), b",#,,7"]
DAY = datetime(2024, 2, 29).toordinal() - datetime(1970, 1, 1).toordinal()
ROWS = [
    {"n": 1, "s": "a", "d": DAY, "x": 1.5},
    {"n": -2, "s": None, "d": None, "x": None},
    {"n": 3, "s": " ü ", "d": -25567, "x": -0.0},
    {"n": None, "s": "#", "d": None, "x": 7.0},
]


def file(*lines: bytes) -> bytes:
    return HEADER + b"\n".join(lines)


@pytest.mark.parametrize("end", [b"", b"\n", b"\n\n"])
def test_an_ordinary_file_is_read(end):
    assert rows_of(file(*LINES) + end, HOW, COLUMNS) == ROWS
    for size in range(len(COLUMNS) + 1):
        for names in itertools.permutations(COLUMNS, size):
            expected = [{name: row[name] for name in names} for row in ROWS]
            columns = {name: COLUMNS[name] for name in names}
            assert rows_of(file(*LINES) + end, HOW, columns) == expected


@pytest.mark.parametrize("header", [HEADER, b'"n","s","d","x"\n', b'n,"s;t",d,x\n'])
def test_quotes_around_whole_fields_are_read(header):
    lines = b'"1",a,2024-02-29,"1.5"\n\n2,"a, b","2024-02-29",\n"3"," ",,7'
    days = 19_782
    expected = [(1, "a", days, 1.5), (2, "a, b", days, None), (3, " ", None, 7.0)]
    found = rows_of(header + lines, HOW, COLUMNS)
    assert [tuple(row.values()) for row in found] == expected


@pytest.mark.parametrize("data", [b"", HEADER, HEADER[:-1], HEADER + b"\n\n"])
def test_a_file_without_rows_has_none(data):
    assert rows_of(data, HOW, COLUMNS) == []


def test_every_type_is_read():
    for name, (json, kind) in TYPES.items():
        field = f'{{"type":"struct","fields":[{{"name":"a","type":"{json}","nullable":true}}]}}'
        assert from_json(field).field("a").type == kind
        assert can_read(kind, timezone="UTC")
        assert can_read(kind, timezone="Europe/Berlin") == (name != "timestamp")
        how = CsvDialect(("a", "b"), False, ";")
        data = "".join(f"x;{text}\n" for text in ["", *PLAIN[name]]).encode()
        found = rows_of(data, how, {"b": kind})
        assert found is not None
        assert [row["b"] is None for row in found] == [True] + [False] * len(PLAIN[name])


@pytest.mark.parametrize(
    "kind",
    [pa.binary(), pa.decimal128(10, 2), pa.list_(pa.int32()), pa.struct([("a", pa.int32())]),
     pa.map_(pa.string(), pa.int32()), pa.null(), pa.large_string(), pa.uint8(), pa.float16(),
     pa.date64(), pa.timestamp("ns"), pa.timestamp("us", tz="Europe/Berlin"), pa.time64("us"),
     pa.duration("us")],
    ids=str,
)  # fmt: skip
def test_other_types_are_not_read(kind):
    assert not can_read(kind, timezone="UTC")
    with pytest.raises(ValueError, match="not read"):
        list(parse(io.BytesIO(b"1,a\n"), CsvDialect(("a", "b"), False, ","), {"b": kind}))


NOT_PLAIN = {
    "empty quotes": b'1,"",2024-02-29,1.5',
    "doubled quotes": b'1,"a""b",2024-02-29,1.5',
    "open quote": b'1,"a,2024-02-29,1.5',
    "quote behind": b'1,a",2024-02-29,1.5',
    "blank before a quote": b'1, "a",2024-02-29,1.5',
    "blank behind a quote": b'1,"a" ,2024-02-29,1.5',
    "quotes over lines": b'1,"a\nb",2024-02-29,1.5',
    "quotes over whole lines": b'1,"a,2024-02-29,1.5\n1",a,2024-02-29,1.5',
    "quote inside": b'1,a"b,2024-02-29,1.5',
    "carriage return": b"1,a,2024-02-29,1.5\r",
    "carriage return inside": b"1,a\rb,2024-02-29,1.5",
    "NUL": b"1,a\0,2024-02-29,1.5",
    "backslash": b"1,a\\,2024-02-29,1.5",
    "byte order mark": b"\xef\xbb\xbf1,a,2024-02-29,1.5",
    "short line": b"1,a,2024-02-29",
    "long line": b"1,a,2024-02-29,1.5,",
    "line of blanks": b"   ",
    "line of tabs": b"\t\t",
    "Latin-1": b"1,\xfc,2024-02-29,1.5",
    "half a character": b"1,\xc3,2024-02-29,1.5",
    "surrogate": b"1,\xed\xa0\x80,2024-02-29,1.5",
    "blank before a number": b" 1,a,2024-02-29,1.5",
    "plus": b"+1,a,2024-02-29,1.5",
    "hexadecimal": b"0x1F,a,2024-02-29,1.5",
    "too large": b"9223372036854775808,a,2024-02-29,1.5",
    "exponent": b"1,a,2024-02-29,1e5",
    "NaN": b"1,a,2024-02-29,NaN",
    "infinity": b"1,a,2024-02-29,Inf",
    "many digits": b"1,a,2024-02-29," + b"0" * 301,
    "no day": b"1,a,2024-02-30,1.5",
    "early day": b"1,a,1899-12-31,1.5",
    "time for a day": b"1,a,2024-02-29 00:00:00,1.5",
    "very long line": b"1," + b"a" * (1 << 20) + b",2024-02-29,1.5",
}


@pytest.mark.parametrize("line", NOT_PLAIN.values(), ids=NOT_PLAIN)
def test_a_file_that_is_not_plain_is_not_read(line):
    for place in range(len(LINES) + 1):
        lines = [*LINES[:place], line, *LINES[place:]]
        assert rows_of(file(*lines), HOW, COLUMNS) is None
    far = file(*LINES * 50_000, line, *LINES)
    assert rows_of(far, HOW, COLUMNS) is None


@pytest.mark.parametrize(
    "header",
    [
        b"",
        b" ",
        b"n,s,d",
        b"n,s,d,x,y",
        b"\xef\xbb\xbfn,s,d,x",
        b'"n,s",d,x',
        b'n,s,d,"',
        b"\nn,s,d,x",
    ],
)
def test_a_strange_header_is_not_read(header):
    assert rows_of(header + b"\n" + LINES[0], HOW, COLUMNS) is None


REFUSED = {
    "header": "yes", "inferSchema": "", "mode": "DROPMALFORMED", "quote": '"', "escape": "\\",
    "comment": "#", "nullValue": "", "emptyValue": "", "encoding": "UTF-8", "lineSep": "\n",
    "multiLine": "false", "dateFormat": "yyyy-MM-dd", "timestampFormat": "yyyy", "locale": "en",
    "ignoreLeadingWhiteSpace": "false", "enforceSchema": "true", "samplingRatio": "1",
    "columnNameOfCorruptRecord": "c", "timeZone": "UTC", "compression": "none", "unknown": "1",
}  # fmt: skip
OPTIONS = {
    "none": ({}, CsvDialect(("a", "b"), False, ",")),
    "all": (
        {"HEADER": "True", "Delimiter": ";", "inferSchema": "false", "mode": "Permissive"},
        CsvDialect(("a", "b"), True, ";"),
    ),
    "sep": ({"sep": "|", "header": "false"}, CsvDialect(("a", "b"), False, "|")),
    **{f"separator {s!r}": ({"sep": s}, None) for s in [*'" a0.-+:é\t\n\0\\', "", "\\t", "||"]},
    **{f"{name}={value}": ({name: value}, None) for name, value in REFUSED.items()},
    "twice": ({"header": "true", "Header": "true"}, None),
    "two separators": ({"sep": ",", "delimiter": ","}, None),
}


@pytest.mark.parametrize(("options", "expected"), OPTIONS.values(), ids=OPTIONS)
def test_options(options, expected):
    assert dialect_of(options, ["a", "b"], {}.get) == expected


SETTINGS = {
    "spark.sql.legacy.timeParserPolicy": (["EXCEPTION", "CORRECTED"], "LEGACY"),
    "spark.sql.csv.parser.columnPruning.enabled": (["true"], "false"),
    "spark.sql.csv.parser.inputBufferSize": ([], "128"),
    "spark.sql.legacy.csv.enableDateTimeParsingFallback": ([], "true"),
    "spark.sql.files.archive.reader.enabled": (["false"], "true"),
    "spark.sql.columnNameOfCorruptRecord": (["_corrupt_record"], "B"),
    "mapreduce.input.linerecordreader.line.maxlength": ([], "80"),
    "spark.hadoop.mapreduce.input.linerecordreader.line.maxlength": ([], "80"),
}


@pytest.mark.parametrize("setting", SETTINGS)
def test_settings(spark, setting):
    harmless, other = SETTINGS[setting]
    assert dialect_of({}, ["a", "b"], spark.conf.get)
    for value in harmless:
        assert dialect_of({}, ["a", "b"], {setting: value}.get)
    assert dialect_of({}, ["a", "b"], {setting: other}.get) is None


@pytest.mark.parametrize(
    "names", [[], ["a"], ["a", "A"], ["a", "_corrupt_record"], [f"c{n}" for n in range(20_000)]]
)
def test_schemas_that_are_not_read(names):
    assert dialect_of({}, names, {}.get) is None


def test_names_of_files():
    plain = ["a.csv", "s3a://bucket/a=1.gz/part-0000", "a.b.CSV", "a.txt"]
    others = [
        "a.gz",
        "a.csv.gz",
        "a.csv.snappy",
        "a.deflate",
        "_a.csv",
        ".a.csv",
        "a.tar",
        "a.csv.",
    ]
    assert [is_named(name) for name in [*plain, *others]] == [True] * 4 + [False] * 8


DAY_AND_TIMES = {_DATE: "2024-02-29"} | {
    form: ("2024-02-29 12:34:56.123456")[: len(form)] for form in _TIMES
}


@pytest.mark.parametrize("form", DAY_AND_TIMES)
def test_days_and_times_have_one_form_for_a_length(form):
    text = DAY_AND_TIMES[form]
    forms = (_DATE,) if form == _DATE else _TIMES
    for place, old in enumerate(text):
        allowed = "0123456789" if old.isdigit() else " T" if old == " " else old
        for new in map(chr, range(1, 128)):
            changed = pa.array([text, text[:place] + new + text[place + 1 :], None, text])
            context = contextlib.nullcontext() if new in allowed else pytest.raises(NotPlain)
            with context:
                _check_form(changed, forms)
    for other in (text[:-1] + "é", text + "0" * (27 - len(text)), text[:-1], "2"):
        if len(other.encode()) not in map(len, forms) or not other.isascii():
            with pytest.raises(NotPlain):
                _check_form(pa.array([text, other]), forms)


class Stream:
    """Many lines, made when they are asked for, some bytes at a time."""

    def __init__(self, data: Iterator[bytes], most: int) -> None:
        self._data = data
        self._left = b""
        self._most = most
        self.given = 0
        self.asked: list[int] = []

    def read(self, count: int, /) -> bytes:
        self.asked.append(count)
        count = min(count, self._most)
        while len(self._left) < count and (more := next(self._data, b"")):
            self._left += more
        found, self._left = self._left[:count], self._left[count:]
        self.given += len(found)
        return found


@pytest.mark.parametrize("most", [1, 7, 1000, 1 << 18, (1 << 20) + 1])
def test_a_stream_may_give_less_than_it_is_asked_for(most):
    lines = LINES * (20 if most < 10 else 15_000)
    stream = Stream(iter([file(*lines)]), most)
    batches = list(parse(stream, HOW, COLUMNS))
    assert [row for batch in batches for row in numbered(batch)] == ROWS * (len(lines) // 4)


def test_a_large_file_takes_little_memory():
    part = b"\n".join(LINES * 10_000) + b"\n"
    count = 80_000_000 // len(part)
    stream = Stream(itertools.chain([HEADER], itertools.repeat(part, count)), 1 << 30)
    before, most = pa.total_allocated_bytes(), 0
    rows = 0
    tracemalloc.start()
    try:
        for batch in parse(stream, HOW, COLUMNS):
            most = max(most, pa.total_allocated_bytes() - before)
            # What was read by now is little more than what was given.
            assert stream.given - rows * len(part) / 40_000 < 6 << 20
            rows += batch.num_rows
        python = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert rows == count * 40_000
    assert most < 32 << 20
    assert python < 32 << 20
    assert max(stream.asked) <= 4 << 20


def test_a_dialect_goes_to_tasks():
    assert pickle.loads(pickle.dumps(HOW)) == HOW
