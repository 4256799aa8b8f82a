"""Queries at random in Spark's SQL, and two tables with everything that engines disagree about."""

from __future__ import annotations

import datetime
import random
from decimal import Decimal

import pyarrow as pa

NAN = float("nan")


def first_table() -> pa.Table:
    """Nulls, NaN, both zeros, decimals, texts with wildcards, days and moments of many years."""
    texts = ["red fox", "100%", "a_b", "", None, "Fox", "lazy dog", "a\\b", "ünï", "red"]
    return pa.table(
        {
            "id": pa.array(range(20), pa.int32()),
            "g": ["a", "b", None, "a", "c"] * 4,
            "n": pa.array([1, None, 3, -4, 0, 7, 3, None, -7, 2] * 2, pa.int32()),
            "b": pa.array([i * 1_000_000_007 - 5 if i % 6 else None for i in range(20)]),
            "x": pa.array([NAN, -0.0, 0.0, 1.5, None, -2.5, 1e10, 0.1, NAN, 3.0] * 2),
            "d": pa.array(
                [None if i % 7 == 3 else Decimal(i * 37 - 200) / 100 for i in range(20)],
                pa.decimal128(10, 2),
            ),
            "day": pa.array(
                [
                    None if i % 9 == 4 else datetime.date(2019 + i % 6, 1 + i % 12, 1 + i)
                    for i in range(20)
                ]
            ),
            "at": pa.array(
                [
                    None
                    if i % 8 == 5
                    else datetime.datetime(2020, 2, 28, 22, 30, 15, 123456)
                    + datetime.timedelta(hours=7 * i)
                    for i in range(20)
                ],
                pa.timestamp("us"),
            ),
            "s": texts * 2,
            "flag": [True, False, None, True] * 5,
        }
    )


def second_table() -> pa.Table:
    """Rows to join: keys that are missing, doubled and null."""
    return pa.table(
        {
            "k": pa.array([0, 1, 1, 3, None, 7, 25, -4, 2, None], pa.int32()),
            "g": ["a", "a", "b", None, "z", "c", "b", None, "a", "b"],
            "y": pa.array([0.0, NAN, 1.5, None, -2.5, 3.0, 1e10, -0.0, 0.1, 2.0]),
            "amount": pa.array(
                [None if i == 4 else Decimal(i * i * 12345) / 10000 for i in range(10)],
                pa.decimal128(12, 4),
            ),
            "name": ["fox", None, "red fox", "dog", "", "100%", "red", "Fox", None, "a_b"],
            "due": pa.array(
                [None if i == 2 else datetime.date(2020, 2, 20 + i % 9) for i in range(10)]
            ),
        }
    )


class Queries:
    """Makes one query of a seed."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)

    def one(self, *choices: str) -> str:
        return self.random.choice(choices)

    # --- values, by type. `t` is the alias of the first table, `u` of the second ("" if none).

    def integer(self, t: str, depth: int = 2) -> str:
        leaf = self.one(f"{t}.id", f"{t}.n", f"{t}.b", "3", "-2", "NULLIF(1, 1)")
        if depth == 0:
            return leaf
        a, s = self.integer(t, depth - 1), self.text(t, depth - 1)
        day, at = self.date(t, depth - 1), f"{t}.at"
        return self.one(
            leaf, leaf, f"({a} + 1)", f"({leaf} - {t}.id)", f"({t}.id * {t}.n)", f"abs({a})",
            f"({a} div 3)", f"({a} % 4)", f"pmod({t}.n, 3)", f"length({s})", f"coalesce({a}, -1)",
            f"year({day})", f"month({day})", f"day({day})", f"dayofweek({day})", f"hour({at})",
            f"minute({at})", f"second({at})", f"quarter({day})", f"weekofyear({day})",
            f"dayofyear({day})", f"datediff({day}, DATE '2020-02-29')", f"instr({s}, 'o')",
            f"CASE WHEN {self.condition(t, 0)} THEN {a} ELSE {leaf} END", f"sign({t}.n)",
            f"if({self.condition(t, 0)}, {a}, 0)", f"CAST({t}.id AS BIGINT)", f"floor({t}.d)",
            f"ceil({t}.d)", f"greatest({t}.id, {t}.n)", f"least({t}.n, {t}.id, 2)",
            f"nullif({t}.n, 3)", f"CAST(CAST({t}.n AS STRING) AS INT)", f"locate('o', {s})",
            f"CAST({t}.d AS INT)", f"position('d' IN {s})", f"ifnull({t}.n, 9)",
            f"extract(YEAR FROM {at})", f"ascii({s})", f"nvl2({t}.n, 1, 2)", f"weekday({day})",
        )  # fmt: skip

    def double(self, t: str, depth: int = 2) -> str:
        leaf = self.one(f"{t}.x", f"{t}.x", "1.5D", f"CAST({t}.n AS DOUBLE)")
        if depth == 0:
            return leaf
        a = self.double(t, depth - 1)
        return self.one(
            leaf, leaf, f"({a} + {leaf})", f"({a} * 2)", f"({t}.id / 4)", f"abs({a})", f"-{leaf}",
            f"({t}.n / 3)", f"coalesce({a}, 0.5D)", f"sqrt(abs({leaf}))", f"nanvl({a}, 0D)",
            f"power({t}.n, 2)", f"CAST({t}.d AS DOUBLE)", f"nullif({leaf}, 0)", f"exp({t}.n)",
            f"greatest({leaf}, {t}.x)", f"least({leaf}, {t}.x)", f"round({t}.x, 1)",
        )  # fmt: skip

    def decimal(self, t: str, depth: int = 2) -> str:
        leaf = self.one(f"{t}.d", f"{t}.d", "1.25", "CAST(2 AS DECIMAL(8, 3))")
        if depth == 0:
            return leaf
        a = self.decimal(t, depth - 1)
        return self.one(
            leaf, leaf, f"({leaf} + {t}.d)", f"({t}.d * 2)", f"abs({a})", f"-{leaf}",
            f"({t}.d / 3)", f"({t}.d - 1)", f"round({t}.d, 1)", f"CAST({t}.d AS DECIMAL(12, 1))",
            f"coalesce({t}.d, 0.5)", f"({t}.d * {t}.d)", f"CAST({t}.n AS DECIMAL(9, 2))",
            f"({t}.d / 1.50)", f"({t}.d % 3)",
        )  # fmt: skip

    def text(self, t: str, depth: int = 2) -> str:
        leaf = self.one(f"{t}.s", f"{t}.g", "'fox'", "'it''s'")
        if depth == 0:
            return leaf
        a = self.text(t, depth - 1)
        return self.one(
            leaf, leaf, f"upper({a})", f"lower({a})", f"concat({a}, '-', {leaf})", f"trim({a})",
            f"substring({a}, 2, 3)", f"substring({a}, -3)", f"substring({a}, 0, 2)",
            f"left({a}, 2)", f"right({a}, 2)", f"coalesce({a}, 'none')", f"({a} || {leaf})",
            f"replace({a}, 'o', '0')", f"replace({a}, 'e', {a})", f"reverse({a})",
            f"lpad({a}, 5, '*')", f"rpad({a}, 4, '-')",
            f"CAST({t}.n AS STRING)", f"CAST({t}.d AS STRING)", f"CAST({t}.day AS STRING)",
            f"CAST({t}.flag AS STRING)", f"date_format({t}.at, 'yyyy/MM/dd HH:mm')",
            f"concat_ws('+', {leaf}, {t}.g)", f"repeat({leaf}, 2)", f"initcap({a})",
            f"regexp_replace({a}, '[aeo]', '.')", f"regexp_replace({a}, '([aeo])(.?)', '<$2$1>')",
            f"substr({a}, {t}.n)", f"split({a}, ' ')[0]",
            f"substring_index({a}, ' ', 1)", f"translate({a}, 'ao', '12')", f"ltrim({a})",
            f"date_format({t}.day, 'd.M.yy EEE')", f"regexp_extract({a}, '([a-z]+)', 1)",
            f"CAST({t}.at AS STRING)", f"CAST({t}.x AS STRING)", f"md5({leaf})", f"hex({t}.id)",
        )  # fmt: skip

    def date(self, t: str, depth: int = 1) -> str:
        leaf = self.one(f"{t}.day", f"{t}.day", "DATE '2020-02-29'")
        if depth == 0:
            return leaf
        return self.one(
            leaf, leaf, f"date_add({leaf}, 3)", f"date_sub({leaf}, {t}.id)",
            f"add_months({leaf}, 1)", f"last_day({leaf})", f"trunc({leaf}, 'MM')",
            f"CAST({t}.at AS DATE)", f"to_date({t}.at)", f"({leaf} + INTERVAL 2 DAYS)",
            "CAST('2021-03-04' AS DATE)", "to_date('05.03.2021', 'dd.MM.yyyy')",
            f"make_date(2020, 5, {t}.id + 1)", f"coalesce({t}.day, DATE '1999-12-31')",
        )  # fmt: skip

    def moment(self, t: str) -> str:
        return self.one(
            f"{t}.at", f"{t}.at", "TIMESTAMP_NTZ '2020-03-01 00:00:00'",
            f"({t}.at + INTERVAL 90 MINUTES)",
        )  # fmt: skip

    def condition(self, t: str, depth: int = 2) -> str:
        sign = self.one("=", "<>", "<", "<=", ">", ">=", "<=>")
        inner = max(depth - 1, 0)
        leaf = self.one(
            f"{self.integer(t, inner)} {sign} {self.integer(t, 0)}",
            f"{self.double(t, inner)} {sign} {self.double(t, 0)}",
            f"{self.decimal(t, inner)} {sign} {self.decimal(t, 0)}",
            f"{self.text(t, inner)} {sign} {self.text(t, 0)}",
            f"{self.date(t, inner)} {sign} {self.date(t, 0)}",
            f"{self.moment(t)} {sign} {self.moment(t)}",
            f"{t}.s LIKE '{self.one('%fox', 'r__%', '%', '', 'Fox')}'",
            f"{t}.s LIKE '{self.one('100!%', 'a!_b', '%!%%')}' ESCAPE '!'",
            f"{t}.s NOT LIKE '%o%'", f"{t}.s RLIKE '^[a-f]'", f"{t}.s ILIKE 'FOX%'",
            f"{t}.s LIKE 'a\\\\\\\\b'", f"{t}.s LIKE '100\\\\%'",
            f"{t}.n IN (1, 3, NULL)", f"{t}.g NOT IN ('a', 'z')", f"{t}.n NOT IN (1, NULL)",
            f"{t}.x IN (1.5D, CAST('NaN' AS DOUBLE))", f"{t}.n IS NULL", f"{t}.s IS NOT NULL",
            f"{t}.flag", f"isnan({t}.x)", f"{t}.n BETWEEN 0 AND 3", f"{t}.x BETWEEN 0 AND 1e9",
            f"{t}.day BETWEEN '2020-01-01' AND '2021-12-31'", f"{t}.n <=> NULL",
            f"startswith({t}.s, 'r')", f"contains({t}.s, 'o')", f"endswith({t}.s, 'x')",
            f"{t}.d NOT BETWEEN 0 AND 2.5", f"{t}.flag IS TRUE", f"{t}.flag IS NOT FALSE",
            f"{t}.n IS DISTINCT FROM 3", f"{t}.day = '2020-02-02'", f"{t}.id = '3'",
        )  # fmt: skip
        if depth == 0:
            return leaf
        a, b = self.condition(t, depth - 1), self.condition(t, depth - 1)
        return self.one(leaf, leaf, f"({a} AND {b})", f"({a} OR {b})", f"NOT ({a})")

    def value(self, t: str, depth: int = 2) -> str:
        kinds = [self.integer, self.double, self.decimal, self.text, self.condition]
        return self.random.choice(
            [
                *(lambda k=k: k(t, depth) for k in kinds),
                lambda: self.date(t),
                lambda: self.moment(t),
            ]
        )()

    def aggregate(self, t: str) -> str:
        return self.one(
            "count(*)", f"count({self.value(t, 1)})", f"count(DISTINCT {t}.{self.one(*'xng')})",
            f"sum({self.integer(t, 1)})", f"sum({t}.d)", f"avg({t}.n)", f"avg({t}.d)",
            f"min({self.value(t, 1)})", f"max({self.value(t, 1)})", f"min({t}.x)", f"max({t}.x)",
            f"sum({t}.x)", f"avg({t}.b)", f"sum({t}.n) FILTER (WHERE {self.condition(t, 0)})",
            f"count_if({self.condition(t, 1)})", f"bool_or({t}.flag)", f"every({t}.flag)",
            f"stddev({t}.n)", f"var_pop({t}.n)", f"sum(DISTINCT {t}.n)", f"avg(DISTINCT {t}.d)",
            f"max_by({t}.id, {t}.b)", f"sum({t}.d * {t}.d)",
            f"percentile({t}.n, 0.5)", f"median({t}.n)",
        )  # fmt: skip

    # --- queries

    def query(self) -> str:
        return self.random.choice(
            [
                self.plain, self.plain, self.grouped, self.grouped, self.joined, self.joined,
                self.subqueries, self.subqueries, self.united, self.windows, self.ordered,
                self.ctes,
            ]
        )()  # fmt: skip

    def plain(self) -> str:
        values = ", ".join(f"{self.value('t')} AS v{i}" for i in range(3))
        return f"SELECT {self.one('', 'DISTINCT ')}{values} FROM one t WHERE {self.condition('t')}"

    def grouped(self) -> str:
        key = self.one("t.g", "t.x", "t.flag", "t.d", self.integer("t", 1), self.text("t", 1))
        having = self.one(
            "", " HAVING count(*) > 1", f" HAVING {self.aggregate('t')} IS NOT NULL",
            " HAVING sum(t.id) > 5 OR max(t.n) IS NULL",
        )  # fmt: skip
        values = f"{self.aggregate('t')} AS a, {self.aggregate('t')} AS b"
        where = f" WHERE {self.condition('t', 1)}" if self.random.random() < 0.4 else ""
        if self.random.random() < 0.2:
            return f"SELECT {values} FROM one t{where}"
        if self.random.random() < 0.2:
            by = self.one("ROLLUP (t.g, t.flag)", "CUBE (t.g, t.flag)", "t.g, t.flag WITH ROLLUP",
                          "GROUPING SETS ((t.g), (t.flag), ())")  # fmt: skip
            return f"SELECT t.g, t.flag, {values} FROM one t{where} GROUP BY {by}"
        return f"SELECT {key} AS k, {values} FROM one t{where} GROUP BY {key}{having}"

    def joined(self) -> str:
        kind = self.one("JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN", "LEFT SEMI JOIN",
                        "LEFT ANTI JOIN", "CROSS JOIN")  # fmt: skip
        on = self.one("t.n = u.k", "t.g = u.g", "t.x = u.y", "t.n <=> u.k", "t.id > u.k",
                      "t.g = u.g AND t.n < u.k", "t.s = u.name OR t.n = u.k",
                      "t.d < u.amount")  # fmt: skip
        half = "SEMI" in kind or "ANTI" in kind
        values = "t.id" if half else f"t.id, u.k, {self.value('t', 1)} AS v, u.name"
        where = self.one("", f" WHERE {self.condition('t', 1)}")
        if not half and self.random.random() < 0.3:
            where = " WHERE u.k IS NULL OR u.amount > 1"
        on = "" if kind == "CROSS JOIN" else f" ON {on}"
        if self.random.random() < 0.15:
            return "SELECT g, t.id, u.k FROM one t " + self.one("", "LEFT ", "FULL ") + (
                "JOIN two u USING (g)")  # fmt: skip
        return f"SELECT {values} FROM one t {kind} two u{on}{where}"

    def subqueries(self) -> str:
        inner = self.one("", " WHERE u.k IS NOT NULL", " WHERE u.k > 1", " WHERE u.k > 1000")
        condition = self.one(
            f"t.n IN (SELECT u.k FROM two u{inner})",
            f"t.n NOT IN (SELECT u.k FROM two u{inner})",
            "EXISTS (SELECT 1 FROM two u WHERE u.g = t.g AND u.k < t.id)",
            "NOT EXISTS (SELECT 1 FROM two u WHERE u.k = t.n)",
            "t.n > (SELECT avg(u.k) FROM two u)",
            "t.id > (SELECT count(*) FROM two u WHERE u.g = t.g)",
            "t.n = (SELECT max(u.k) FROM two u WHERE u.g = t.g)",
            "t.n IN (SELECT u.k FROM two u WHERE u.g = t.g)",
            "t.n NOT IN (SELECT u.k FROM two u WHERE u.g = t.g)",
            "(t.n, t.g) IN (SELECT u.k, u.g FROM two u)",
        )  # fmt: skip
        wrapped = self.one(
            condition, condition, f"NOT ({condition})",
            f"({condition}) OR {self.condition('t', 0)}",
            f"({condition}) AND {self.condition('t', 0)}",
        )  # fmt: skip
        if self.random.random() < 0.25:
            value = self.one("(SELECT max(u.y) FROM two u)", "(SELECT count(*) FROM two u WHERE "
                             "u.k = t.n)",
                             "(SELECT sum(u.amount) FROM two u WHERE u.g = t.g)")  # fmt: skip
            return f"SELECT t.id, {value} AS v FROM one t WHERE {self.condition('t', 1)}"
        return f"SELECT t.id FROM one t WHERE {wrapped}"

    def united(self) -> str:
        verb = self.one("UNION", "UNION ALL", "EXCEPT", "EXCEPT ALL", "INTERSECT", "INTERSECT ALL",
                        "MINUS")  # fmt: skip
        left, right = self.random.choice([("n", "k"), ("g", "g"), ("x", "y"), ("d", "amount"),
                                          ("n, t.g", "k, u.g"), ("s", "name"),
                                          ("n", "y")])  # fmt: skip
        return (
            f"SELECT t.{left} FROM one t WHERE {self.condition('t', 1)} {verb} "
            f"SELECT u.{right} FROM two u"
        )

    def windows(self) -> str:
        by = self.one("", "PARTITION BY t.g ", "PARTITION BY t.x ", "PARTITION BY t.flag, t.g ")
        order = self.one("t.n, t.id", "t.n DESC, t.id", "t.x, t.id", "t.x DESC NULLS LAST, t.id",
                         "t.d NULLS LAST, t.id", "t.g DESC, t.id DESC")  # fmt: skip
        frame = self.one("", "", " ROWS BETWEEN 1 PRECEDING AND CURRENT ROW",
                         " ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING")  # fmt: skip
        call = self.one("row_number()", "rank()", "dense_rank()", "ntile(3)", "lag(t.n)",
                        "lead(t.s, 2)", "lag(t.n, 1, -1)", "percent_rank()",
                        "cume_dist()")  # fmt: skip
        over = self.one("sum(t.n)", "count(*)", "avg(t.d)", "min(t.x)", "max(t.x)",
                        "first_value(t.n)", "last_value(t.s)", "sum(t.d)")  # fmt: skip
        tie = self.one("t.n", "t.x", "t.g")
        return (
            f"SELECT t.id, {call} OVER ({by}ORDER BY {order}) AS a, "
            f"{over} OVER ({by}ORDER BY {order}{frame}) AS b, "
            f"rank() OVER ({by}ORDER BY {tie}) AS c FROM one t"
        )

    def ordered(self) -> str:
        key = self.one("t.n", "t.x", "t.s", "t.d", "t.day", "t.g", "t.at", "t.flag")
        way = self.one("", " DESC", " NULLS LAST", " DESC NULLS FIRST", " ASC NULLS FIRST")
        limit = self.one("", " LIMIT 5", " LIMIT 4 OFFSET 3", " OFFSET 12", " LIMIT 0", " LIMIT 3")
        return f"SELECT t.id, {key} AS v FROM one t ORDER BY {key}{way}, t.id{limit}"

    def ctes(self) -> str:
        return (
            f"WITH c AS (SELECT t.id, t.g, {self.value('t', 1)} AS v FROM one t WHERE "
            f"{self.condition('t', 1)}) SELECT c.g, count(c.v) AS n, max(c.v) AS m FROM c "
            f"LEFT JOIN two u ON c.g = u.g GROUP BY c.g"
        )
