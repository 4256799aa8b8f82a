"""Renaming and dropping columns: no split is rewritten, and every question answers as before."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from indextables import Table
from indextables.config import Config
from indextables.errors import (
    MetadataChangedError,
    ProtocolChangedError,
    SchemaError,
    UnknownColumnError,
    UnknownFieldError,
    UnsupportedFeatureError,
)
from indextables.jobs.write_job import write_rows
from indextables.log.actions import COLUMN_NAMES
from indextables.storage import open_store

SCHEMA = pa.schema(
    [("id", pa.int64()), ("title", pa.string()), ("body", pa.string()), ("day", pa.string())]
)
ROWS = pa.table(
    {
        "id": [1, 2, 3],
        "title": ["red fox", "blue whale", "green frog"],
        "body": ["jumps over", "swims under", None],
        "day": ["mon", "tue", "mon"],
    },
    schema=SCHEMA,
)


@pytest.fixture
def table(tmp_path: Path, config: dict[str, object]) -> Table:
    made = Table.create(
        str(tmp_path / "t"), SCHEMA, partition_by=["day"], mapping={"title": "text"}, config=config
    )
    made.append(ROWS)
    return made


def ids(rows: pa.Table) -> list[int]:
    return sorted(rows["id"].to_pylist())


def splits(table: Table) -> set[str]:
    return set(table.snapshot().entries["path"].to_pylist())


def test_a_rename_rewrites_nothing_and_every_question_has_the_new_name(table: Table):
    before = splits(table)
    assert table.rename_column("title", "headline") == 2
    assert splits(table) == before
    assert table.schema.names == ["id", "headline", "body", "day"]
    found = table.scan(where="headline = 'red fox'")
    assert found.schema.names == table.schema.names and found["id"].to_pylist() == [1]
    assert not any(f.metadata for f in found.schema)
    assert table.count(where="headline indexquery 'whale'") == 1
    assert ids(table.scan(where="_indexall indexquery 'headline:fox OR under'")) == [1, 2]
    best = table.search("headline:frog", columns=["headline"], snippets=["headline"])
    assert best.to_pydict()["_snippet_headline"] == ["green <b>frog</b>"]
    assert best["headline"].to_pylist() == ["green frog"]
    assert table.search("fox", fields=["headline"])["id"].to_pylist() == [1]
    assert "headline" in table.explain(where="headline = 'x'", columns=["headline"])
    for question in (
        lambda: table.scan(where="title = 'x'"),
        lambda: table.scan(columns=["title"]),
    ):
        with pytest.raises(UnknownColumnError, match="headline"):
            question()
    with pytest.raises(UnknownFieldError, match="headline"):
        table.search("title:fox")


def test_writes_after_a_rename_use_the_new_name(table: Table):
    table.rename_column("title", "headline")
    table.append(ROWS.rename_columns(["id", "headline", "body", "day"]))
    assert table.count(where="headline indexquery 'fox'") == 2
    with pytest.raises(SchemaError, match=r"'title'.*not in the table"):
        table.append(ROWS)
    table.update({"headline": "upper(headline)"}, where="headline indexquery 'fox'")
    assert table.delete(where="headline = 'blue whale'").rows_removed == 2
    assert Counter(table.scan()["headline"].to_pylist()) == {"RED FOX": 2, "green frog": 2}
    assert "headline" in str(table.history(limit=1)["parameters"].to_pylist())
    one = ROWS.slice(0, 1).rename_columns(["id", "headline", "body", "day"])
    table.overwrite(one, where="headline = 'red fox'")
    with pytest.raises(SchemaError, match="condition headline"):
        table.overwrite(one, where="headline = 'no such'")
    table.merge_splits()
    assert table.count(where="headline indexquery 'fox'") == 3
    assert all(check.passed for check in table.verify())


def test_names_can_be_swapped_and_changed_in_case_alone(table: Table):
    table.rename_column("title", "x")
    table.rename_column("body", "title")
    table.rename_column("X", "body")
    table.rename_column("body", "BODY")
    found = table.scan(where="title indexquery 'swims' AND BODY indexquery 'whale'")
    assert found.to_pylist() == [
        {"id": 2, "BODY": "blue whale", "title": "swims under", "day": "tue"}
    ]
    table.append(found)
    assert table.count(where="BODY = 'blue whale' AND title = 'swims under'") == 2
    assert table.search("title:jumps")["BODY"].to_pylist() == ["red fox"]
    table.merge_splits()
    assert table.count(where="BODY = 'blue whale' AND title = 'swims under'") == 2


def test_paths_into_a_renamed_column(tmp_path: Path, config: dict[str, object]):
    inner = pa.struct([("x", pa.int64()), ("y", pa.string())])
    schema = pa.schema([("id", pa.int64()), ("s", inner), ("j", pa.string())])
    table = Table.create(str(tmp_path / "t"), schema, mapping={"j": "json"}, config=config)
    table.append(pa.table({"id": [1, 2], "s": [{"x": 1, "y": "fox"}, {"x": 2, "y": "owl"}],
                           "j": ['{"a": "red"}', '{"a": "blue"}']}, schema=schema))  # fmt: skip
    table.rename_column("s", "k")
    table.rename_column("j", "s")
    assert ids(table.scan(where="k.y = 'fox' AND k.x < 2")) == [1]
    assert table.search("k.y:owl AND s.a:blue")["id"].to_pylist() == [2]
    assert table.search("fox", fields=["k.y"])["id"].to_pylist() == [1]
    assert table.scan(where="s indexquery 'red'", columns=["s", "_row"]).num_rows == 1
    with pytest.raises(UnknownFieldError):
        table.search("j.a:blue")


def test_a_partition_column_is_renamed_and_keeps_its_folders(table: Table):
    table.rename_column("day", "weekday")
    assert ids(table.scan(where="weekday = 'mon'")) == [1, 3]
    table.append(ROWS.rename_columns(["id", "title", "body", "weekday"]))
    assert all(path.startswith("day=") for path in splits(table))
    assert table.drop_partitions(where="weekday = 'tue'").partitions == 1
    table.overwrite(pa.table({"id": [9], "weekday": ["mon"]}), partitions="dynamic")
    assert ids(table.scan()) == [9]
    with pytest.raises(SchemaError, match="'weekday' is a partition column"):
        table.drop_columns(["weekday"])


def test_a_dropped_column_is_not_found_any_more_and_its_name_is_free(table: Table):
    before = splits(table)
    table.drop_columns(["title"])
    assert splits(table) == before
    assert table.schema.names == ["id", "body", "day"]
    assert table.count(where="_indexall indexquery 'fox'") == 0
    assert table.search("fox").num_rows == 0
    assert table.search("jumps")["id"].to_pylist() == [1]
    table.append(pa.table({"id": [4], "title": ["fox"]}), merge_schema=True)
    assert table.scan(columns=["id", "title"]).sort_by("id")["title"].to_pylist() == [
        None, None, None, "fox",
    ]  # fmt: skip
    assert table.search("fox")["id"].to_pylist() == [4]
    assert table.search("title:fox")["id"].to_pylist() == [4]
    assert table.count(where="title IS NULL") == 3
    table.append(ROWS.drop_columns(["title"]))
    table.merge_splits()
    assert table.search("fox")["id"].to_pylist() == [4]
    stored = open_store(table.uri)
    assert not any(b"whale" in stored.get(path) for path in splits(table))
    assert all(check.passed for check in table.verify())


def test_older_versions_have_the_older_names_and_can_be_restored(table: Table):
    table.rename_column("title", "headline")
    table.drop_columns(["body"])
    old = Table.open(table.uri, version=1)
    assert old.schema.equals(SCHEMA)
    assert old.count(where="title indexquery 'fox' AND body indexquery 'jumps'") == 1
    table.restore(version=1)
    assert table.schema.names == SCHEMA.names
    assert table.count(where="title indexquery 'fox' AND body indexquery 'jumps'") == 1
    table.restore(version=2)
    assert table.count(where="headline indexquery 'fox'") == 1


def test_options_of_columns_follow_them(tmp_path: Path, config: dict[str, object]):
    prefix = "spark.indextables."
    table = Table.create(
        str(tmp_path / "t"),
        pa.schema([("a", pa.string()), ("b", pa.string()), ("n", pa.int64())]),
        properties={
            f"{prefix}indexing.typemap.a": "string",
            f"{prefix}indexing.tokenizer.b": "en_stem",
            f"{prefix}indexing.fastfields": "n",
            f"{prefix}dataSkippingStatsColumns": "n,a",
            f"{prefix}xref.build.bloomFields": "a",
        },
        config=config,
    )
    table.append(pa.table({"a": ["X-1"], "b": ["running"], "n": [1]}))
    table.rename_column("a", "code")
    table.rename_column("n", "amount")
    table.append(pa.table({"code": ["X-2"], "b": ["runs"], "amount": [2]}))
    assert table.count(where="code indexquery 'X-2'") == 1
    assert table.count(where="b indexquery 'run'") == 2
    kept = table.snapshot().metadata.configuration
    assert kept[f"{prefix}indexing.typemap.code"] == "string"
    assert kept[f"{prefix}indexing.fastfields"] == "amount"
    assert kept[f"{prefix}dataSkippingStatsColumns"] == "amount,code"
    table.index_crossreferences()
    assert table.count(where="code = 'X-1'") == 1
    table.drop_columns(["code", "b"])
    table.append(pa.table({"amount": [3]}))
    kept = table.snapshot().metadata.configuration
    assert not [key for key in kept if "typemap" in key or "tokenizer" in key]
    assert table.search("amount:3")["amount"].to_pylist() == [3]


def test_crossreferences_know_stored_names(table: Table):
    table.append(ROWS)
    table.index_crossreferences()
    table.rename_column("title", "headline")
    table.rename_column("body", "title")
    assert table.count(where="headline indexquery 'fox'") == 2
    assert table.count(where="title indexquery 'fox'") == 0
    table.drop_columns(["headline"])
    assert table.count(where="_indexall indexquery 'fox'") == 0
    table.index_crossreferences(force_rebuild=True)
    assert table.count(where="title indexquery 'jumps'") == 2


def test_an_append_that_was_planned_before_conflicts_or_lands(table: Table):
    log = Table.open(table.uri).log
    late = log.snapshot()
    table.rename_column("title", "headline")  # the first one raises the protocol
    with pytest.raises((ProtocolChangedError, MetadataChangedError)):
        _append_on(log, late, table)
    late = log.newest()
    table.rename_column("headline", "name")
    _append_on(log, late, table)  # stored names do not change
    assert table.refresh().count(where="name indexquery 'fox'") == 2
    late = log.newest()
    table.drop_columns(["body"])
    with pytest.raises(MetadataChangedError):
        _append_on(log, late, table)


def _append_on(log: Any, late: Any, table: Table) -> None:
    class Late:
        def __getattr__(self, name: str) -> Any:
            return getattr(log, name)

        def snapshot(self) -> Any:
            return late

    from indextables.plan.column_names import names_of

    rows = ROWS.rename_columns(names_of(late).shown.names)
    write_rows(Late(), rows, settings=Config(), kind="append")


def test_readers_that_do_not_know_are_kept_away(table: Table, monkeypatch: pytest.MonkeyPatch):
    assert COLUMN_NAMES not in (table.snapshot().protocol.reader_features or ())
    careful = Table.open(table.uri, config={"spark.indextables.protocol.autoUpgrade": "false"})
    with pytest.raises(UnsupportedFeatureError, match=COLUMN_NAMES):
        careful.rename_column("title", "headline")
    table.drop_columns(["title"])
    monkeypatch.setattr("indextables.log.actions.READER_FEATURES", frozenset({"avroState"}))
    with pytest.raises(UnsupportedFeatureError, match=COLUMN_NAMES):
        Table.open(table.uri)


def test_mistakes_are_named(table: Table):
    with pytest.raises(UnknownColumnError, match="nope"):
        table.rename_column("nope", "x")
    with pytest.raises(SchemaError, match="'id' already"):
        table.rename_column("title", "ID")
    with pytest.raises(SchemaError, match="hidden column"):
        table.rename_column("title", "_score")
    with pytest.raises(SchemaError, match="not all can be dropped"):
        table.drop_columns(["id", "title", "body"])
    assert table.version == 1
    assert table.rename_column("title", "title") == 1


def test_a_repaired_log_keeps_the_names(table: Table, tmp_path: Path):
    table.rename_column("title", "headline")
    table.drop_columns(["body"])
    for from_splits in (False, True):
        there = tmp_path / f"repaired-{from_splits}"
        Table.repair(table.uri, str(there), from_splits=from_splits)
        mended = Table.open(str(there))
        assert mended.schema.names == ["id", "headline", "day"]
        assert COLUMN_NAMES in (mended.snapshot().protocol.reader_features or ())


# --- against a list of rows ----------------------------------------------------------------------

WORDS = ["fox", "whale", "frog", "owl", "bee"]


class Model:
    """The same table as a list of rows."""

    def __init__(self) -> None:
        self.columns: dict[str, pa.DataType] = {"k": pa.int64(), "a": pa.string()}
        self.rows: list[dict[str, Any]] = []
        self.next = 0


def step(table: Table, model: Model, chance: random.Random) -> str:
    """Do something to both."""
    texts = [n for n, kind in model.columns.items() if n != "k" and pa.types.is_string(kind)]
    others = [n for n in model.columns if n != "k"]
    match chance.choice(["append"] * 4 + ["rename"] * 3 + ["drop", "add", "add", "merge", "delete",
                                                            "update", "xref", "swap"]):  # fmt: skip
        case "append":
            new = []
            for _ in range(chance.randint(1, 4)):
                model.next += 1
                row: dict[str, Any] = {"k": model.next}
                for name, kind in model.columns.items():
                    if name != "k":
                        row[name] = value(kind, chance)
                new.append(row)
            table.append(pa.Table.from_pylist(new, pa.schema(list(model.columns.items()))))
            model.rows += new
            return f"append {new}"
        case "rename" if others:
            old, new_name = chance.choice(others), chance.choice("abcdAB")
            if new_name.lower() in {n.lower() for n in model.columns if n != old}:
                return "nothing"
            table.rename_column(old, new_name)
            rename(model, {old: new_name})
            return f"rename {old} {new_name}"
        case "swap" if len(others) > 1:
            one, two = chance.sample(others, 2)
            table.rename_column(one, "zz")
            table.rename_column(two, one)
            table.rename_column("zz", two)
            rename(model, {one: two, two: one})
            return f"swap {one} {two}"
        case "drop" if len(others) > 1:
            gone = chance.choice(others)
            table.drop_columns([gone])
            del model.columns[gone]
            for row in model.rows:
                del row[gone]
            return f"drop {gone}"
        case "add":
            free = [n for n in "abcd" if n not in {c.lower() for c in model.columns}]
            if not free:
                return "nothing"
            name, kind = chance.choice(free), chance.choice([pa.string(), pa.int64()])
            model.next += 1
            new_row = {"k": model.next, name: value(kind, chance)}
            rows = pa.Table.from_pylist([new_row], pa.schema([("k", pa.int64()), (name, kind)]))
            table.append(rows, merge_schema=True)
            model.columns[name] = kind
            for row in model.rows:
                row[name] = None
            model.rows.append({n: new_row.get(n) for n in model.columns})
            return f"add {name} {kind}"
        case "merge":
            table.merge_splits()
            return "merge"
        case "delete" if texts:
            column, word = chance.choice(texts), chance.choice(WORDS)
            table.delete(where=f"{column} indexquery '{word}'")
            model.rows = [r for r in model.rows if word not in (r[column] or "").split()]
            return f"delete {column} {word}"
        case "update" if texts:
            column = chance.choice(texts)
            table.update({column: "'owl bee'"}, where=f"{column} IS NULL")
            for row in model.rows:
                row[column] = "owl bee" if row[column] is None else row[column]
            return f"update {column}"
        case "xref":
            table.index_crossreferences()
            return "xref"
    return "nothing"


def rename(model: Model, names: dict[str, str]) -> None:
    model.columns = {names.get(n, n): kind for n, kind in model.columns.items()}
    model.rows = [{names.get(n, n): v for n, v in row.items()} for row in model.rows]


def value(kind: pa.DataType, chance: random.Random) -> Any:
    if chance.random() < 0.2:
        return None
    if pa.types.is_int64(kind):
        return chance.randint(0, 5)
    return " ".join(chance.sample(WORDS, 2))


def check(table: Table, model: Model, chance: random.Random) -> None:
    assert set(table.schema.names) == set(model.columns)
    found = table.scan(columns=list(model.columns)).sort_by("k").to_pylist()
    assert found == sorted(model.rows, key=lambda row: row["k"])
    word = chance.choice(WORDS)
    texts = [n for n, kind in model.columns.items() if pa.types.is_string(kind)]
    everywhere = [r["k"] for r in model.rows if any(word in (r[n] or "").split() for n in texts)]
    assert sorted(table.search(word, limit=None)["k"].to_pylist()) == sorted(everywhere)
    assert table.count(where=f"_indexall indexquery '{word}'") == len(everywhere)
    for name, kind in model.columns.items():
        nulls = sum(row[name] is None for row in model.rows)
        assert table.count(where=f"{name} IS NULL") == nulls
        if name in texts:
            keys = sorted(r["k"] for r in model.rows if word in (r[name] or "").split())
            assert sorted(table.search(f"{name}:{word}", limit=None)["k"].to_pylist()) == keys
            where = f"{name} indexquery '{word}'"
            assert sorted(table.scan(where=where)["k"].to_pylist()) == keys
            groups = Counter(row[name] for row in model.rows)
            assert Counter(table.scan(columns=[name])[name].to_pylist()) == groups
        elif pa.types.is_int64(kind):
            keys = [r["k"] for r in model.rows if r[name] is not None and r[name] > 2]
            assert table.count(where=f"{name} > 2") == len(keys)


@pytest.mark.parametrize("seed", [*range(4), *(pytest.param(s, marks=pytest.mark.long)
                                               for s in range(4, 60))])  # fmt: skip
def test_random_changes_answer_as_a_list_of_rows(
    seed: int, tmp_path: Path, config: dict[str, object]
):
    chance = random.Random(seed)
    model = Model()
    schema = pa.schema(list(model.columns.items()))
    table = Table.create(str(tmp_path / "t"), schema, config=config)
    done = []
    for _ in range(14):
        done.append(step(table, model, chance))
        try:
            check(table, model, chance)
        except AssertionError as error:
            raise AssertionError("\n".join(done)) from error
