"""Runs the SQL input files of Apache Spark's own test suite on two formats and compares.

The files are not part of this project. `SPARK_SQL_TESTS` names the folder that holds them: Spark's
`sql/core/src/test/resources`, with `sql-tests/inputs` and `test-data/postgresql` below it.

    SPARK_SQL_TESTS=… python tests/foreign/spark_sql.py --output differences.md [FILE …]

With `--store-views`, temporary views are stored as tables (those whose types Parquet can store), so
that the files which know only views of VALUES say something about stored rows as well.

Every statement runs once where tables are Parquet and once where they are index tables. Two
outcomes are the same if the schema and the rows are, in any order, or if both were refused with the
same error condition. Made alike before that: text that names the format and the place, the last
digits of doubles (sums depend on the order of rows), and what DESCRIBE prints behind the columns,
which Spark words in another way for every table that is not of a built-in file format.
"""

from __future__ import annotations

import argparse
import itertools
import logging
import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

logger = logging.getLogger(__name__)

ENVIRONMENT = "SPARK_SQL_TESTS"
DATABASE = "foreign_suite"
FORMATS = ("parquet", "indextables")
_CREATES = re.compile(r"\bcreate\s+(or\s+replace\s+)?(external\s+)?table\b", re.IGNORECASE)
_TEMPORARY = r"(?:global\s+)?temp(?:orary)?\s+view"
_VIEW = re.compile(
    rf"create\s+(?P<replace>or\s+replace\s+)?{_TEMPORARY}\s+(?P<name>[\w`]+)\s*"
    r"(?P<columns>\([^)]*\))?\s*(?:comment\s*(?:'[^']*'|\"[^\"]*\")\s*)?as\b(?P<query>.*)",
    re.IGNORECASE | re.DOTALL,
)
_DROPS_VIEW = re.compile(r"drop\s+view\s+(?:if\s+exists\s+)?(?P<name>[\w`]+)", re.IGNORECASE)
_BUILT_IN = ("testdata", "arraydata", "mapdata", "aggtest", "onek", "tenk1")
_USING = re.compile(r"\busing\s+(parquet|orc|csv|json|delta|text)\b", re.IGNORECASE)
_ONEK = (
    "unique1 int, unique2 int, two int, four int, ten int, twenty int, hundred int, thousand int, "
    "twothousand int, fivethous int, tenthous int, odd int, even int, stringu1 string, "
    "stringu2 string, string4 string"
)
# What Spark's suite sets for the files of a folder.
_OF_FOLDERS = {
    "nonansi": {"spark.sql.ansi.enabled": "false"},
    "postgreSQL": {"spark.sql.legacy.interval.enabled": "true"},
    "timestampNTZ": {"spark.sql.timestampType": "TIMESTAMP_NTZ"},
}
# What a statement prints of the format, of the place and of the moment.
_ALIKE = (
    (re.compile(r"\bindextables\b", re.IGNORECASE), "parquet"),
    (re.compile(r"(file:)?/[^\s,\]\"']*" + DATABASE + r"[^\s,\]\"']*"), "<location>"),
    (re.compile(r"(Created Time|Last Access): .*?(?=\\n)"), "<time>"),
    (re.compile(r'"(created_time|last_access)":"[^"]*"'), "<time>"),
    (re.compile(r"#\d+L?"), "#x"),
    (re.compile(r"plan_id=\d+"), "plan_id=x"),
    (re.compile(r"\[\d+ bytes\]|\d+ bytes(, \d+ rows)?"), "<size>"),
)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a statement returned, or how it was refused."""

    schema: str = ""
    rows: tuple[str, ...] = ()
    error: str = ""
    message: str = field(default="", compare=False)

    def __str__(self) -> str:
        if self.error:
            return f"{self.error}: {self.message[:300]}"
        shown = "\n".join(self.rows[:12])
        more = f"\n… {len(self.rows)} rows" if len(self.rows) > 12 else ""
        return f"{self.schema}\n{shown}{more}"


@dataclass(frozen=True, slots=True)
class Difference:
    """A statement that answered differently on the two formats."""

    file: str
    statement: str
    parquet: Outcome
    indextables: Outcome


def inputs_folder() -> Path | None:
    """Return the folder of Spark's test resources, or None where it is not at hand."""
    named = os.environ.get(ENVIRONMENT)
    if not named:
        return None
    folder = Path(named)
    nested = folder / "sql/core/src/test/resources"
    return nested if nested.is_dir() else folder


def files_with_tables(resources: Path, views: bool = False) -> list[Path]:
    """Return the input files whose statements touch a stored table, in a fixed order.

    With `views`, return those that make temporary views as well.
    """
    inputs = resources / "sql-tests/inputs"
    built_in = re.compile(rf"\b({'|'.join(_BUILT_IN)})\b", re.IGNORECASE)
    chosen = []
    for path in sorted(inputs.rglob("*.sql")):
        if path.relative_to(inputs).parts[0] in ("udaf", "udtf"):
            continue  # they want functions that only Spark's own test jar has
        # With the statements of the files that it imports.
        text = "\n".join([path.read_text(), *statements(path)[1]])
        touches = _CREATES.search(text) or built_in.search(text)
        if touches or (views and re.search(_TEMPORARY, text, re.IGNORECASE)):
            chosen.append(path)
    return chosen


def statements(path: Path) -> tuple[dict[str, str], list[str]]:
    """Return the settings (`--SET`) and the statements of an input file, imports included."""
    settings: dict[str, str] = {}
    imported: list[str] = []
    lines: list[str] = []
    for line in path.read_text().splitlines():
        if line.startswith("--SET"):
            for pair in line.removeprefix("--SET").split(","):
                name, _, value = pair.strip().partition("=")
                settings[name.strip()] = value.strip()
        elif line.startswith("--IMPORT"):
            other = path.parents[len(path.parts) - path.parts.index("inputs") - 2]
            imported += statements(other / line.removeprefix("--IMPORT").strip())[1]
        else:
            lines.append(line)
    return settings, imported + list(_split("\n".join(lines)))


def _split(text: str) -> Iterator[str]:
    """Cut text at its semicolons, outside quotes, comments and BEGIN … END blocks."""
    token = re.compile(
        r"--QUERY-DELIMITER-START.*?--QUERY-DELIMITER-END[^\n]*"
        r"|'(?:[^'\\]|\\.|'')*'|\"(?:[^\"\\]|\\.)*\"|`[^`]*`|/\*.*?\*/|--[^\n]*|;|\b(?:begin|end)\b|.",
        re.DOTALL | re.IGNORECASE,
    )
    current: list[str] = []
    depth = 0
    for match in token.finditer(text):
        part = match.group()
        if part.startswith("--QUERY-DELIMITER-START"):
            yield "\n".join(part.splitlines()[1:-1]).rstrip().rstrip(";")
        elif part.startswith("--"):
            continue
        elif part == ";" and depth <= 0:
            if "".join(current).strip():
                yield "".join(current).strip()
            current, depth = [], 0
        else:
            if part.lower() == "begin" and not "".join(current).strip():
                depth += 1
            elif part.lower() == "end" and depth:
                following = text[match.end() : match.end() + 12].lstrip().lower()
                depth -= not following.startswith(("if", "while", "for", "case", "loop", "repeat"))
            current.append(part)
    if "".join(current).strip():
        yield "".join(current).strip()


def run_file(
    spark: SparkSession, path: Path, file_format: str, resources: Path, views: bool = False
) -> list[Outcome]:
    """Run all statements of a file in a session and a database of its own."""
    settings, texts = statements(path)
    session = spark.newSession()
    session.conf.set("spark.sql.sources.default", file_format)
    session.conf.set("spark.sql.legacy.createHiveTableByDefault", "false")
    folder = path.parts[path.parts.index("inputs") + 1]
    for name, value in (_OF_FOLDERS.get(folder, {}) | settings).items():
        try:
            session.conf.set(name, value)
        except Exception as error:
            logger.warning("%s: %s was not set: %s", path.name, name, type(error).__name__)
    _register_functions(session, folder)
    place = _fresh_database(session)
    every = "\n".join(texts)
    wanted = [name for name in _BUILT_IN if re.search(rf"\b{name}\b", every, re.I)]
    _make_tables(session, wanted, file_format, resources)
    texts = [_USING.sub(f"USING {file_format}", text) for text in texts]
    try:
        if views:
            return [_stored_view(session, text) or _outcome(session, text) for text in texts]
        return [_outcome(session, text) for text in texts]
    finally:
        _fresh_database(session)
        session.sql(f"DROP DATABASE IF EXISTS {DATABASE} CASCADE")
        shutil.rmtree(place, ignore_errors=True)


def _register_functions(session: SparkSession, folder: str) -> None:
    """What Spark's suite registers for the files of a folder."""
    if folder == "udf":
        session.udf.register("udf", lambda value: None if value is None else str(value))
    elif folder == "postgreSQL":
        for name, answer in (("booleq", "a = b"), ("boolne", "a <> b")):
            session.sql(
                f"CREATE TEMPORARY FUNCTION {name}(a BOOLEAN, b BOOLEAN) RETURNS BOOLEAN "
                f"RETURN {answer}"
            )
        session.sql("CREATE TEMPORARY FUNCTION vol(s STRING) RETURNS STRING RETURN s")


def _fresh_database(session: SparkSession) -> Path:
    session.sql("USE spark_catalog.default")
    try:
        session.sql(f"DROP DATABASE IF EXISTS {DATABASE} CASCADE")
    except Exception:
        for row in session.sql(f"SHOW TABLES IN {DATABASE}").collect():
            if not row["isTemporary"]:
                session.sql(f"DROP TABLE IF EXISTS {DATABASE}.`{row['tableName']}`")
        session.sql(f"DROP DATABASE IF EXISTS {DATABASE} CASCADE")
    warehouse = Path(str(session.conf.get("spark.sql.warehouse.dir")).removeprefix("file:"))
    place = warehouse / f"{DATABASE}.db"
    shutil.rmtree(place, ignore_errors=True)
    session.sql(f"CREATE DATABASE {DATABASE}")
    session.sql(f"USE {DATABASE}")
    return place


def _make_tables(
    session: SparkSession, names: list[str], file_format: str, resources: Path
) -> None:
    data = resources / "test-data/postgresql"
    for name in names:
        if name == "testdata":
            frame = session.sql("SELECT CAST(id AS int) key, string(id) value FROM range(1, 101)")
        elif name == "arraydata":
            frame = session.sql(
                "SELECT * FROM VALUES (array(1,2,3), array(array(1,2,3))), "
                "(array(2,3,4), array(array(2,3,4))) AS t(arraycol, nestedarraycol)"
            )
        elif name == "mapdata":
            rows = ", ".join(
                "(map(" + ", ".join(f"{k}, '{chr(96 + k)}{n}'" for k in range(1, 7 - n)) + "))"
                for n in range(1, 6)
            )
            frame = session.sql(f"SELECT * FROM VALUES {rows} AS t(mapcol)")
        else:
            source = data / {"aggtest": "agg.data", "onek": "onek.data", "tenk1": "tenk.data"}[name]
            schema = "a int, b float" if name == "aggtest" else _ONEK
            frame = session.read.csv(str(source), schema=schema, sep="\t")
        frame.coalesce(1).write.format(file_format).saveAsTable(name)


def _stored_view(session: SparkSession, text: str) -> Outcome | None:
    """Store a temporary view as a table; None for other statements, and where it cannot be."""
    if dropped := _DROPS_VIEW.match(text.lstrip()):
        try:
            session.sql(f"DROP TABLE {dropped['name']}")
        except Exception:
            return None
        return Outcome()
    if not (made := _VIEW.match(text.lstrip())):
        return None
    if made["replace"]:
        session.sql(f"DROP TABLE IF EXISTS {made['name']}")
    try:
        names = f"AS stored{made['columns']}" if made["columns"] else ""
        session.sql(f"CREATE TABLE {made['name']} AS SELECT * FROM ({made['query']}) {names}")
    except Exception:
        return None  # types that Parquet cannot store, names that are taken
    return Outcome()


def _outcome(session: SparkSession, text: str) -> Outcome:
    try:
        frame = session.sql(text)
        schema = frame.schema.simpleString()
        rows = [_shown(tuple(row)) for row in frame.collect()]
    except Exception as error:
        condition: Any = getattr(error, "getCondition", lambda: None)
        return Outcome(error=condition() or type(error).__name__, message=str(error))
    if re.match(r"\s*(explain|describe\s+query)\b", text, re.IGNORECASE):
        return Outcome(schema=schema)  # plans of two formats are never the same
    if re.match(r"\s*desc(ribe)?\b", text, re.IGNORECASE):
        rows = list(itertools.takewhile(lambda row: not row.startswith(("('',", "('#")), rows))
    return Outcome(schema=_alike(schema), rows=tuple(sorted(map(_alike, rows))))


def _shown(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.12g}"
    if isinstance(value, dict):
        pairs = (f"{_shown(key)}: {_shown(one)}" for key, one in value.items())
        return f"{{{', '.join(sorted(pairs))}}}"
    if isinstance(value, tuple | list):
        return f"({', '.join(map(_shown, value))})"
    return repr(value)


def _alike(text: str) -> str:
    for pattern, replacement in _ALIKE:
        text = pattern.sub(replacement, text)
    return text


def compare(
    spark: SparkSession, path: Path, resources: Path, views: bool = False
) -> tuple[int, list[Difference]]:
    """Run a file on both formats; return how many statements it has and which differ."""
    _, texts = statements(path)
    parquet, indexed = (run_file(spark, path, one, resources, views) for one in FORMATS)
    name = path.relative_to(resources / "sql-tests/inputs").as_posix()
    differences = [
        Difference(name, text, left, right)
        for text, left, right in zip(texts, parquet, indexed, strict=True)
        if left != right
    ]
    return len(texts), differences


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("files", nargs="*", help="names or parts of names; all without")
    parser.add_argument("--output", type=Path, default=Path("spark-sql-differences.md"))
    parser.add_argument("--store-views", action="store_true", help="make temporary views tables")
    arguments = parser.parse_args()
    resources = inputs_folder()
    if resources is None:
        parser.error(
            f"{ENVIRONMENT} names no folder: set it to Spark's sql/core/src/test/resources"
        )

    import indextables

    spark = indextables.session(
        "foreign suite",
        **{
            "spark.master": "local[2]",
            "spark.ui.enabled": "false",
            "spark.sql.shuffle.partitions": "2",
            # Statements are many and their rows few: compiling each takes longer than running it.
            "spark.sql.codegen.wholeStage": "false",
            "spark.sql.codegen.factoryMode": "NO_CODEGEN",
            "spark.sql.adaptive.enabled": "false",
            "spark.sql.session.timeZone": "America/Los_Angeles",
            "spark.sql.warehouse.dir": tempfile.mkdtemp(prefix=f"{DATABASE}-"),
            "spark.log.structuredLogging.enabled": "false",
            # What Spark's suite enables.
            "spark.sql.collation.schemaLevel.enabled": "true",
            "spark.sql.timeType.enabled": "true",
        },
    )
    spark.sparkContext.setLogLevel("OFF")
    logging.getLogger("SQLQueryContextLogger").setLevel(logging.CRITICAL)  # refusals are expected
    total = same = 0
    with arguments.output.open("w") as report:
        for path in files_with_tables(resources, arguments.store_views):
            if arguments.files and not any(part in path.as_posix() for part in arguments.files):
                continue
            count, differences = compare(spark, path, resources, arguments.store_views)
            total, same = total + count, same + count - len(differences)
            print(f"{path.name:60} {count - len(differences):5} of {count:5}", flush=True)
            for one in differences:
                report.write(
                    f"## {one.file}\n\n```sql\n{one.statement}\n```\n\nParquet:\n```\n{one.parquet}"
                    f"\n```\nindextables:\n```\n{one.indextables}\n```\n\n"
                )
            report.flush()
    print(f"{same} of {total} statements the same")
    spark.stop()


if __name__ == "__main__":
    main()
