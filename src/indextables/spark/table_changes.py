"""`SELECT * FROM indextables_changes('docs', 40, 45)`: what versions changed, in Spark's SQL.

The call is replaced by a frame before Spark sees the text. The frame reads the changes of each
version in a task of its own; conditions on it are Spark's.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from indextables.errors import StatementError
from indextables.plan.access import TableAccess
from indextables.plan.changes import changes_schema, table_changes
from indextables.spark.schemas import with_mappings, worker_schema
from indextables.spark.statements import access_to
from indextables.split.mapping import MAPPING_PROPERTY
from indextables.statements.forms import Failure, Target, Word, form, words_of
from indextables.table.arguments import check_versions

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

FUNCTION = "indextables_changes"
_USAGE = (
    f"Write {FUNCTION}('table or path', first version) or {FUNCTION}('table or path', first "
    "version, last version), with literals."
)
_MOST_TASKS = 64


def with_changes(spark: SparkSession, text: str) -> tuple[str, dict[str, DataFrame]]:
    """The text with names in braces for calls of the function, and the frames of these names."""
    if FUNCTION not in text.lower():
        return text, {}
    words = words_of(text) or []
    pieces: list[str] = []
    frames: dict[str, DataFrame] = {}
    done = 0
    for at, word in enumerate(words):
        is_call = word.kind == "word" and word.text.lower() == FUNCTION
        if not is_call or at + 1 >= len(words) or words[at + 1].text != "(":
            continue
        end = next((n for n in range(at, len(words)) if words[n].text == ")"), None)
        if end is None:
            raise StatementError(f"A call of {FUNCTION} is not closed. {_USAGE}")
        name = f"{FUNCTION}_{len(frames)}"
        frames[name] = _frame(spark, words[at + 2 : end])
        pieces += [_literal(text[done : word.start]), f"{{{name}}}"]
        done = words[end].end
    if not frames:
        return text, {}
    return "".join([*pieces, _literal(text[done:])]), frames


def _literal(text: str) -> str:
    return text.replace("{", "{{").replace("}", "}}")


def _frame(spark: SparkSession, words: Sequence[Word]) -> DataFrame:
    parts = [word for at, word in enumerate(words) if at % 2 == 0]
    commas = [word.text for at, word in enumerate(words) if at % 2 == 1]
    is_plain = len(parts) in (2, 3) and set(commas) == {","} and parts[0].kind == "string"
    if not is_plain or not all(part.text.isdecimal() for part in parts[1:]):
        raise StatementError(f"{FUNCTION} does not have these arguments. {_USAGE}")
    access = access_to(spark, _target(parts[0].text))
    newest = access.log().snapshot().version
    first, *last = (int(part.text) for part in parts[1:])
    return changes_frame(spark, access, first, last[0] if last else newest)


def _target(name: str) -> Target:
    if "/" in name and "`" not in name:
        return Target(path=name)
    named = form("TABLE <table>").match(words_of(f"TABLE {name}") or ())
    if named is None or isinstance(named, Failure):
        raise StatementError(f"'{name}' is neither the name of a table nor a path. {_USAGE}")
    target: Target = named["table"]
    return target


def changes_frame(spark: SparkSession, access: TableAccess, first: int, last: int) -> DataFrame:
    """The rows that versions changed; each task reads some of the versions."""
    check_versions(first, last)
    view = access.view(access.log().snapshot(version=last))
    mapping = view.shown.snapshot.metadata.configuration.get(MAPPING_PROPERTY)
    schema = with_mappings(changes_schema(view), mapping)
    tasks = min(last - first + 1, _MOST_TASKS)
    versions: Any = spark.range(first, last + 1, 1, tasks)
    found: DataFrame = versions.mapInArrow(_ReadChanges(access, last, schema), schema)
    return found


@dataclass(frozen=True)
class _ReadChanges:
    """Reads the changes of the versions that a task has."""

    access: TableAccess
    last: int
    schema: StructType

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        log = self.access.log()
        view = self.access.view(log.snapshot(version=self.last))
        wanted = worker_schema(self.schema)
        for batch in batches:
            versions: list[Any] = batch.column(0).to_pylist()
            for version in versions:
                for rows in table_changes(log, view, first=version, last=version):
                    yield from rows.cast(wanted).to_batches()
