"""Keys are converted as Spark compares them, whatever its settings, or not at all."""

from __future__ import annotations

import itertools
import math

import pyarrow as pa
import pytest

from indextables.ariadne.values.key_types import as_type

# A type in Spark and in Arrow, and literals of it that meet those of other types at the edges.
TYPES = {
    "tinyint": (pa.int8(), ["1", "-1", "127"]),
    "int": (pa.int32(), ["1", "-1", "16777217", "2147483647"]),
    "bigint": (pa.int64(), ["1", "16777217", "9007199254740993", "9223372036854775807"]),
    "float": (pa.float32(), ["1", "0.1", "16777216", "-0.0", "'NaN'", "'Infinity'"]),
    "double": (pa.float64(), ["1", "0.1", "9007199254740992", "0.0", "'NaN'", "1e30"]),
    "decimal(5,2)": (pa.decimal128(5, 2), ["1", "0.1", "999.99"]),
    "decimal(20,0)": (pa.decimal128(20, 0), ["1", "9223372036854775808"]),
    "decimal(38,18)": (pa.decimal128(38, 18), ["1", "0.1"]),
    "string": (pa.string(), ["'1'", "'01'", "' 1 '", "'0.1'", "'1.0'", "'true'", "'2024-01-01'"]),
    "boolean": (pa.bool_(), ["true", "false"]),
    "date": (pa.date32(), ["'2024-01-01'", "'1970-01-01'"]),
    "timestamp": (pa.timestamp("us", "UTC"), ["'2024-01-01'", "'2024-01-01 00:00:00.000001'"]),
    "binary": (pa.binary(), ["'1'", "''"]),
}
PAIRS = list(itertools.permutations(TYPES, 2)) + [(one, one) for one in TYPES]


def equal(left, right):
    if isinstance(left, float) and math.isnan(left):
        return isinstance(right, float) and math.isnan(right)
    return left == right


REFUSED = object()


def compared(spark, column, key):
    """What Spark says when each literal of one type meets each of the other, by their places.

    A text that is not a value of the other type is an error whatever it meets, so where all of them
    together fail, they are asked for text by text. Other types can be compared or cannot.
    """
    from pyspark.errors import PySparkException

    left, right = TYPES[column][1], TYPES[key][1]
    places = list(itertools.product(range(len(left)), range(len(right))))

    def ask(some):
        conditions = (f"CAST({left[m]} AS {column}) = CAST({right[n]} AS {key})" for m, n in some)
        try:
            return dict(
                zip(some, spark.sql(f"SELECT {', '.join(conditions)}").first(), strict=True)
            )
        except PySparkException:
            return dict.fromkeys(some, REFUSED)

    found = ask(places)
    if REFUSED in found.values() and "string" in (column, key):
        side = (column, key).index("string")
        texts = sorted(places, key=lambda place: place[side])
        for _, some in itertools.groupby(texts, key=lambda place: place[side]):
            found |= ask(list(some))
    return found


@pytest.mark.parametrize("ansi", ["true", "false"])
def test_keys_meet_the_values_that_spark_calls_equal(spark, ansi, request):
    """For all types of column and key: what Spark matches is matched, or left open."""
    before = spark.conf.get("spark.sql.ansi.enabled")
    spark.conf.set("spark.sql.ansi.enabled", ansi)
    try:
        values = {
            kind: spark.sql(
                "SELECT "
                + ", ".join(f"CAST({v} AS {kind}) AS c{n}" for n, v in enumerate(literals))
            ).toArrow()
            for kind, (_, literals) in TYPES.items()
        }
        wrong, exact = [], 0
        is_long = request.config.getoption("--long")
        for column, key in PAIRS if is_long else PAIRS[ansi == "true" :: 3]:
            arrow = TYPES[column][0]
            for (m, n), matches in compared(spark, column, key).items():
                if matches is REFUSED:
                    continue  # no such comparison, or not a number: the join fails too
                given = pa.concat_arrays(values[key].column(n).chunks)
                keys = as_type(given, arrow)
                stored = values[column].column(m)[0].as_py()
                exact += not keys.is_unknown[0]
                met = equal(keys.values[0].as_py(), stored)
                if bool(matches) != met and not keys.is_unknown[0]:
                    pair = f"{column} {TYPES[column][1][m]}, {key} {TYPES[key][1][n]}"
                    wrong.append(f"{pair}: {matches}, the key became {keys.values}")
        assert not wrong
        assert exact > 45
    finally:
        spark.conf.set("spark.sql.ansi.enabled", before)


CASES = [
    (pa.array([1, 2**40, None]), pa.int32(), [1, None, None], [False, False, False]),
    (pa.array([1.0, 1.5, 2.0**60]), pa.int64(), [1, None, None], [False, False, True]),
    (pa.array([2.0**25], pa.float32()), pa.int64(), [None], [True]),
    (
        pa.array([" 2 ", "+3", "x", None]),
        pa.int32(),
        [2, 3, None, None],
        [False, False, True, False],
    ),
    (pa.array(["2024-02-30"]), pa.date32(), [None], [True]),
    (pa.array([1]), pa.string(), [None], [True]),
    (pa.nulls(2), pa.int32(), [None, None], [False, False]),
    (pa.array(["a", "b"]).dictionary_encode(), pa.string(), ["a", "b"], [False, False]),
]


@pytest.mark.parametrize(("keys", "kind", "values", "unknown"), CASES)
def test_conversions(keys, kind, values, unknown):
    found = as_type(keys, kind)
    assert found.values.type == kind
    assert found.values.to_pylist() == values
    assert found.is_unknown.tolist() == unknown
