"""`search` and its siblings in Spark: pushed, evaluated, and compared with plain functions."""

from __future__ import annotations

import random

import pyarrow as pa
import pytest
from pyspark.sql import functions as f

import indextables as it
from indextables import Table
from indextables.errors import SearchCallError
from indextables.statements.search_calls import prepare

LETTERS = ["fox", "hen", "Cow", "c", "wi-fi", "x9", "foxes", "AND", "(", "&", "he", "O'Neil", "\\"]
MODES = {"search": "all", "match_all": "all", "match_any": "any", "match_phrase": "phrase",
         "match_phrase_prefix": "prefix"}  # fmt: skip


def quoted(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def tokens(expression: str) -> str:
    """The words of a text in Spark's own functions."""
    return f"filter(split(lower({expression}), '[^a-z0-9]+'), x -> x <> '')"


def definition(column: str, words: str, mode: str) -> str:
    """What a search of a column with the default mapping means, in Spark's own functions."""

    def row(text: str) -> str:
        return f"array_join({tokens(quoted(text))}, ' ')"

    text = f"concat(' ', array_join({tokens(column)}, ' '), ' ')"
    if mode in ("phrase", "prefix"):
        end = "' '" if mode == "phrase" else "''"
        return (f"coalesce({row(words)} <> '' AND "
                f"contains({text}, concat(' ', {row(words)}, {end})), false)")  # fmt: skip
    each = [w for w in words.split() if any(map(str.isalnum, w))] or words.split()
    parts = [f"({row(w)} <> '' AND contains({text}, concat(' ', {row(w)}, ' ')))" for w in each]
    return f"coalesce({(' AND ' if mode == 'all' else ' OR ').join(parts)}, false)"


def answers(spark, query: str, calls: list[str]) -> list[set[int]]:
    """The ids that each condition finds, pushed by itself; four of them are one job."""
    found = []
    for start in range(0, len(calls), 4):
        some = calls[start : start + 4]
        union = " UNION ALL ".join(f"SELECT {n}, q.* FROM ({query.format(c)}) q"
                                   for n, c in enumerate(some))  # fmt: skip
        rows = spark.sql(union).collect()
        found += [{row[1] for row in rows if row[0] == n} for n in range(len(some))]
    return found


@pytest.fixture(scope="module")
def random_text(spark, tmp_path_factory):
    rng = random.Random(7)

    def text(most):
        return " ".join(rng.choices(LETTERS, k=rng.randint(0, most)))

    rows = pa.table(
        {
            "id": list(range(120)),
            "body": [None if rng.random() < 0.1 else text(5) for _ in range(120)],
        }
    )
    path = str(tmp_path_factory.mktemp("words") / "t")
    made = Table.create(path, rows.schema)
    for part in (rows.slice(0, 70), rows.slice(70)):
        made.append(part)
    queries = [words for words in (text(3) for _ in range(12)) if words.strip()]
    return path, queries


def test_each_name_is_its_definition(spark, random_text):
    path, queries = random_text
    cases = [(name, mode, words) for name, mode in MODES.items() for words in queries]
    calls = [f"{name}(body, {quoted(words)})" for name, _, words in cases]
    defined = [definition("body", words, mode) for _, mode, words in cases]
    shown = [*(f"{c} AS c{n}" for n, c in enumerate(calls)),
             *(f"{d} AS d{n}" for n, d in enumerate(defined))]  # fmt: skip
    rows = spark.sql(f"SELECT id, {', '.join(shown)} FROM indextables.`{path}`").collect()
    some = 0
    pushed = answers(spark, f"SELECT id FROM indextables.`{path}` WHERE {{}}", calls)
    for number, call in enumerate(calls):
        expected = {row["id"] for row in rows if row[f"d{number}"]}
        assert {row["id"] for row in rows if row[f"c{number}"]} == expected, call
        assert pushed[number] == expected, call
        some += bool(expected)
    assert some > len(calls) / 3


ROWS = pa.table(
    {
        "id": [1, 2, 3, 4, 5],
        "stem": ["running fox", "run", "Fox-Run", None, "foxes"],
        "exact": ["running fox", "run", "Running Fox", None, "fox"],
        "gram": ["running fox", "run", "Fox-Run", None, "foxes"],
        "n": [7, 8, None, 9, 7],
    }
)
CALLS = {
    "search(y.stem, 'runs foxes')": [1, 3],
    "search((y.stem, y.exact), 'fox runs')": [1, 3],
    "search((y.exact, y.n), 'run 8')": [2],
    "match_any(y.stem, 'foxes cow')": [1, 3, 5],
    "match_phrase(y.exact, 'Running Fox')": [3],
    "match_phrase_prefix(y.exact, 'run')": [1, 2],
    "match_phrase(y.gram, 'ox')": [1, 3, 5],
    "search(y.*, 'runs 7')": [1],
    "y.stem TEXTSEARCH 'runs'": [1, 2, 3],
    "y.exact FIELDMATCH 'run'": [2],
    "search(y.stem, 'exact:run OR foxes', mode => 'query')": [1, 2, 3, 5],
}
POSITIONS = {
    "select": "SELECT y.id, {hits} FROM {t} y",
    "case": "SELECT y.id, {cases} FROM {t} y",
    "left join": "SELECT x.id, {hits} FROM (SELECT id FROM {t}) x LEFT JOIN {t} y ON x.id = y.id",
    "or across a join": "SELECT x.id, {ors} FROM {t} x JOIN {t} y ON x.id = y.id",
}


@pytest.fixture(scope="module")
def mapped(spark, tmp_path_factory):
    path = str(tmp_path_factory.mktemp("mapped") / "t")
    options = {
        "spark.indextables.indexing.typemap.exact": "string",
        "spark.indextables.indexing.tokenizer.stem": "en_stem",
        "spark.indextables.indexing.tokenizer.gram": "ngram(2,3)",
    }
    Table.create(path, ROWS.schema, config=options).append(ROWS)
    spark.sql(f"CREATE OR REPLACE TEMP VIEW names_mapped AS SELECT * FROM indextables.`{path}`")
    return path


def test_a_pushed_search(spark, mapped):
    found = answers(spark, f"SELECT y.id FROM indextables.`{mapped}` y WHERE {{}}", list(CALLS))
    assert found == list(map(set, CALLS.values()))


@pytest.mark.parametrize("position", POSITIONS)
def test_an_unpushed_search_has_the_mapping_of_its_columns(spark, mapped, position):
    calls = list(CALLS)
    query = POSITIONS[position].format(
        t=f"indextables.`{mapped}`",
        hits=", ".join(f"{call} AS h{n}" for n, call in enumerate(calls)),
        cases=", ".join(f"CASE WHEN {c} THEN true ELSE false END AS h{n}"
                        for n, c in enumerate(calls)),
        ors=", ".join(f"({c} OR x.id > 100) AS h{n}" for n, c in enumerate(calls)),
    )  # fmt: skip
    rows = spark.sql(query).collect()
    for number, call in enumerate(calls):
        assert sorted(r.id for r in rows if r[f"h{number}"]) == CALLS[call], (position, call)


def test_an_or_across_a_join_is_a_condition(spark, mapped):
    t = f"indextables.`{mapped}`"
    query = f"SELECT y.id FROM {t} x JOIN {t} y ON x.id = y.id WHERE {{}} OR x.id > 4"
    assert answers(spark, query, list(CALLS)) == [{*ids, 5} for ids in CALLS.values()]


def test_columns_of_two_tables_in_one_search(spark, mapped):
    t = f"indextables.`{mapped}`"
    query = (f"SELECT x.id FROM {t} x JOIN {t} y ON x.id + 1 = y.id "
             "WHERE search((x.stem, y.exact), 'fox run') ORDER BY x.id")  # fmt: skip
    # 1: stem has running and fox; 3: stem has both words; 2 and 4 have neither.
    assert [row.id for row in spark.sql(query).collect()] == [1, 3]
    both = spark.sql(f"SELECT x.id FROM {t} x JOIN {t} y ON x.id + 1 = y.id "
                     "WHERE search((x.exact, y.exact), 'run') ORDER BY x.id")  # fmt: skip
    assert [row.id for row in both.collect()] == [1, 2]


def test_statements_that_do_not_pass_through_pyspark(spark, mapped):
    forms = [c.replace("y.", "") for c in CALLS if " TEXT" not in c and " FIELD" not in c]
    forms += ["textsearch(stem, 'runs')", "fieldmatch(exact, 'run')"]
    found = answers(spark, "SELECT id FROM names_mapped WHERE {}", forms)
    for call, expected in zip(forms, map(sorted, found), strict=True):
        text = f"SELECT id FROM names_mapped WHERE {call} ORDER BY id"
        immediate = spark.sql("EXECUTE IMMEDIATE " + quoted(text)).collect()
        assert [row.id for row in immediate] == expected, call
        rows = spark._jsparkSession.sql(text).collectAsList()
        assert [row.getLong(0) for row in rows] == expected, call
    # Another session of the same JVM, as a Thrift server makes them.
    other = spark._jsparkSession.newSession()
    assert other.sql("SELECT search('A fox', 'fox')").first().getBoolean(0)


def test_words_may_be_parameters_and_variables(spark, mapped):
    by_name = spark.sql("SELECT id FROM names_mapped WHERE search(stem, :q)", args={"q": "fox run"})
    assert sorted(row.id for row in by_name.collect()) == [1, 3]
    by_place = spark.sql("SELECT id FROM names_mapped WHERE match_any(stem, ?)", args=["fox"])
    assert sorted(row.id for row in by_place.collect()) == [1, 3, 5]
    spark.sql("DECLARE OR REPLACE VARIABLE words STRING DEFAULT 'fox'")
    found = spark.sql("SELECT id FROM names_mapped WHERE search(stem, words)").collect()
    assert sorted(row.id for row in found) == [1, 3, 5]


def test_a_search_is_answered_by_the_index(spark, mapped, capsys):
    for call in ("search(stem, 'runs')", "search((stem, exact), 'run')", "search(*, 'run')"):
        spark.sql(f"SELECT id FROM indextables.`{mapped}` WHERE {call}").explain()
        plan = capsys.readouterr().out
        assert "where " in plan and "ArrowEvalPython" not in plan, plan


def test_the_function_of_python(spark, mapped):
    frame = spark.read.format("indextables").load(mapped)

    def ids(condition):
        return sorted(row.id for row in frame.where(condition).collect())

    assert ids(it.search("stem", "runs foxes")) == [1, 3]
    assert ids(it.search(f.col("stem"), "runs cow", mode="any")) == [1, 2, 3]
    assert ids(it.search(["stem", f.col("exact")], "fox runs")) == [1, 3]
    assert ids(it.search("*", "runs 7")) == [1]
    assert ids(it.search("exact", "run OR fox", mode="query")) == [2, 5]
    assert ids("search(stem, 'runs foxes')") == [1, 3]
    assert ids(f.expr("match_any(stem, 'foxes cow')")) == [1, 3, 5]
    hits = frame.select("id", it.search(["stem", "exact"], "fox runs").alias("hit")).collect()
    assert sorted(row.id for row in hits if row.hit) == [1, 3]
    with pytest.raises(SearchCallError, match="'all', 'any'"):
        it.search("stem", "x", mode="some")
    with pytest.raises(SearchCallError, match="empty list"):
        it.search([], "x")


def test_a_text_is_a_value_and_not_the_name_of_a_column(spark):
    assert spark.sql("SELECT search('A fox', 'fox') AS hit").first().hit
    text = "SELECT search(x), match_any('a', y), search(a, b, c, d)"
    assert prepare(text) == text  # functions of the session's own, perhaps


def test_mistakes(spark, mapped):
    for call, said in {
        "search(stem, 'x', mode => 'al')": "'all', 'any', 'phrase', 'prefix', 'query'",
        "search(stem)": "takes a column",
        "match_any(stem, 'x', mode => 'any')": "has no mode",
        "search(stem, exact)": "in quotes or a parameter",
        "search(stem, '')": "empty",
        "stem FIELDMATCH 'x'": "fieldmatch is for columns whose values",
        "exact TEXTSEARCH 'x'": "textsearch is for columns of words",
    }.items():
        for text in (f"SELECT id FROM names_mapped WHERE {call}",
                     f"SELECT {call} FROM names_mapped"):  # fmt: skip
            with pytest.raises(Exception, match=said):
                spark.sql(text).collect()


def test_rows_are_changed_by_names(spark, tmp_path):
    path = str(tmp_path / "t")
    Table.create(path, ROWS.schema).append(ROWS)
    spark.sql(f"DELETE FROM indextables.`{path}` WHERE search(stem, 'fox run')")
    assert Table.open(path).count() == 4
    spark.sql(f"UPDATE indextables.`{path}` SET n = 0 WHERE match_any(stem, 'foxes running')")
    assert Table.open(path).count(where="n = 0") == 2
    spark.sql(
        f"MERGE INTO indextables.`{path}` AS t USING (VALUES (2)) AS s(id) ON t.id = s.id "
        "WHEN MATCHED AND match_all(t.stem, 'run') THEN DELETE"
    )
    assert sorted(Table.open(path).scan(columns=["id"])["id"].to_pylist()) == [1, 4, 5]
