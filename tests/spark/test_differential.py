"""Random queries on random tables: both doors and plain rows give the same answers."""

from __future__ import annotations

import datetime
import random
from decimal import Decimal

import pytest

ROWS = 240
CHUNKS = 8
QUERIES = 25
FORMS = 13
WORDS = ("red", "fox", "lazy", "dog", "spark", "sql", "Äpfel", "data", "w1", "w2")
NAN = "DOUBLE('NaN')"
DRIVER = "spark.indextables.read.driver.maxRows"
SCHEMA = (
    "id bigint, content string, title string, n int, d double, flag boolean, day date, "
    "at timestamp, price decimal(9,2), part string"
)


def random_rows(chance):
    maybe = lambda value: None if chance.random() < 0.15 else value  # noqa: E731
    text = lambda: " ".join(chance.choices(WORDS, k=chance.randint(1, 5)))  # noqa: E731
    return [
        (
            number,
            maybe(text()),
            maybe(text()),
            maybe(chance.randint(-3, 9)),
            maybe(chance.choice([0.0, -1.5, 2.25, float("nan"), 1e30])),
            maybe(chance.random() < 0.5),
            maybe(datetime.date(2024, 1, 1) + datetime.timedelta(days=chance.randint(0, 40))),
            maybe(datetime.datetime(2024, 1, 1, chance.randint(0, 23), 30)),
            maybe(Decimal(chance.randint(-500, 500)) / 4),
            maybe(chance.choice(["a", "b/c", "", "007"])),
        )
        for number in range(ROWS)
    ]


class Queries:
    """Makes SQL conditions and queries over `{t}`."""

    def __init__(self, chance):
        self.chance = chance

    def search(self):
        c = self.chance
        word = lambda: c.choice(WORDS)  # noqa: E731
        query = c.choice(
            [word(), f"{word()} AND {word()}", f"{word()} OR {word()}", f'"{word()} {word()}"',
             f"{word()} AND NOT {word()}", f"{word()[:2]}*", f"({word()} OR {word()}) AND {word()}"]
        )  # fmt: skip
        return f"{{a}}{c.choice(['content', 'title'])} indexquery '{query}'"

    def plain(self):
        c = self.chance
        return "{a}" + c.choice(
            [f"n {c.choice(['=', '<', '>=', '<>', '<=>'])} {c.randint(-3, 9)}", "n IS NULL",
             "flag", f"n IN ({c.randint(0, 4)}, {c.randint(0, 9)}, NULL)", "n > 2.5",
             f"d {c.choice(['<', '>', '='])} {c.choice(['0', '2.25', NAN])}",
             f"day >= DATE '2024-01-{c.randint(1, 28):02}'", f"content LIKE '%{c.choice(WORDS)}'",
             f"title = '{c.choice(WORDS)}'", f"price <= {c.randint(-90, 90)}.25",
             f"part = '{c.choice(['a', 'b/c', '', '007'])}'", "part IS NOT NULL", "part <> 'a'",
             f"at < TIMESTAMP '2024-01-01 {c.randint(0, 23):02}:30:00'", "content RLIKE 'o.$'"]
        )  # fmt: skip

    def condition(self, depth=2):
        c = self.chance
        if depth == 0 or c.random() < 0.35:
            return self.search() if c.random() < 0.5 else self.plain()
        left, right = self.condition(depth - 1), self.condition(depth - 1)
        form = c.choice(["({} AND {})", "({} AND {})", "({} OR {})", "(NOT {} AND {})"])
        return form.format(left, right)

    def where(self, alias=""):
        return self.condition().replace("{a}", alias)

    def query(self, form=None):
        """A query of the form with this number, or of any."""
        c = self.chance
        forms = [
            lambda: f"SELECT * FROM {{t}} WHERE {self.where()}",
            lambda: f"SELECT id, n FROM {{t}} WHERE {self.where()}",
            lambda: f"SELECT count(*), count(n), sum(n), min(price), max(content), sum(id) "
                    f"FROM {{t}} WHERE {self.where()}",
            lambda: f"SELECT part, flag, count(*), sum(price), avg(n) FROM {{t}} "
                    f"WHERE {self.where()} GROUP BY part, flag",
            lambda: f"SELECT day, min(at), max(day) FROM {{t}} WHERE {self.where()} "
                    "GROUP BY day HAVING count(*) > 1",
            lambda: f"SELECT id FROM {{t}} WHERE {self.where()} ORDER BY id "
                    f"{c.choice(['ASC', 'DESC'])} LIMIT {c.randint(1, 9)}",
            lambda: f"SELECT x.id, y.n FROM {{t}} x JOIN {{t}} y ON x.id = y.id + 1 "
                    f"WHERE {self.where('x.')} AND {self.where('y.')}",
            lambda: f"SELECT x.id, y.title FROM {{t}} x LEFT JOIN {{t}} y ON x.n = y.id "
                    f"AND {self.where('y.')} WHERE x.id < 40",
            lambda: f"SELECT x.id FROM {{t}} x LEFT JOIN {{t}} y ON x.n = y.id "
                    f"WHERE {self.where('y.')}",
            lambda: f"SELECT id, rank() OVER (PARTITION BY part ORDER BY id) FROM {{t}} "
                    f"WHERE {self.where()}",
            lambda: f"SELECT id FROM {{t}} WHERE {self.where()} UNION ALL "
                    f"SELECT n FROM {{t}} WHERE {self.where()}",
            lambda: f"SELECT id FROM {{t}} WHERE id NOT IN (SELECT id FROM {{t}} "
                    f"WHERE {self.where()})",
            lambda: f"SELECT id, {self.search().replace('{a}', '')} AS hit FROM {{t}} "
                    "WHERE n > 3",
        ]  # fmt: skip
        return forms[c.randrange(FORMS) if form is None else form]()


def answers(spark, query, view):
    return sorted(repr(row) for row in spark.sql(query.format(t=view)).collect())


@pytest.mark.usefixtures("compiled_plans")
@pytest.mark.parametrize(
    "chunk",
    [pytest.param(n, marks=[pytest.mark.long] * (n >= CHUNKS // 8)) for n in range(CHUNKS)],
)
def test_random_queries(spark, tmp_path, chunk):
    from indextables.spark.bridge import sessions

    chance = random.Random(1000 + chunk)
    # In one partition, as the function of a search starts a task's Python in each.
    rows = spark.createDataFrame(random_rows(chance), SCHEMA).coalesce(1).cache()
    path = str(tmp_path / "t")
    write = rows.repartition(3).write.format("indextables")
    if chunk % 2:
        write = write.partitionBy("part")
    write.save(path)
    rows.createOrReplaceTempView("plain_view")
    spark.read.format("indextables").load(path).createOrReplaceTempView("bridge_view")
    bridge = sessions.bridge_of(spark)
    sessions.register(spark, None)
    try:
        spark.read.format("indextables").load(path).createOrReplaceTempView("public_view")
    finally:
        sessions.register(spark, bridge)
    if chunk % 4 < 2:
        spark.conf.set(DRIVER, "0")
        spark.read.format("indextables").load(path).createOrReplaceTempView("bridge_view")
    wrong = []
    try:
        # The ordinary run has one query of each form.
        for number in range(QUERIES if chunk else FORMS):
            query = Queries(chance).query(None if chunk else number)
            expected = answers(spark, query, "plain_view")
            views = ["bridge_view"] if number % 3 else ["bridge_view", "public_view"]
            for view in views:
                found = answers(spark, query, view)
                if found != expected:
                    wrong.append((view, query, len(found), len(expected)))
    finally:
        spark.conf.unset(DRIVER)
        rows.unpersist()
        for view in ("plain_view", "bridge_view", "public_view"):
            spark.catalog.dropTempView(view)
    assert not wrong
