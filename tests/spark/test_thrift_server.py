"""Searches through JDBC: a Thrift server over the session, on this machine alone."""

from __future__ import annotations

import pyarrow as pa
import pytest

from indextables import Table

pytestmark = pytest.mark.long

SETTINGS = {
    "hive.server2.thrift.port": "0",
    "hive.server2.thrift.bind.host": "127.0.0.1",
    # Its connections are then this session, with its catalogs and functions.
    "spark.sql.hive.thriftServer.singleSession": "true",
}


@pytest.fixture
def statement(spark, tmp_path):
    jvm = spark.sparkContext._gateway.jvm
    jvm.java.lang.System.setProperty("derby.stream.error.file", str(tmp_path / "derby.log"))
    conf = spark._jsparkSession.sessionState().conf()
    for name, value in SETTINGS.items():
        conf.setConfString(name, value)
        jvm.java.lang.System.setProperty(name, value)
    start = jvm.org.apache.spark.sql.hive.thriftserver.HiveThriftServer2.startWithContext
    server = start(spark._jsparkSession.sqlContext())
    try:
        (port,) = (
            one.getPortNumber()
            for one in server.getServices()
            if one.getClass().getSimpleName() == "ThriftBinaryCLIService"
        )
        jvm.java.lang.Class.forName("org.apache.hive.jdbc.HiveDriver")
        url = f"jdbc:hive2://127.0.0.1:{port}/default"
        connection = jvm.java.sql.DriverManager.getConnection(url, "someone", "")
        yield connection.createStatement()
        connection.close()
    finally:
        server.stop()
        for name in SETTINGS:
            conf.unsetConf(name)
            jvm.java.lang.System.clearProperty(name)


def rows(statement, query):
    found = statement.executeQuery(query)
    count = found.getMetaData().getColumnCount()
    result = []
    while found.next():
        result.append(tuple(found.getString(at + 1) for at in range(count)))
    return result


def test_function_forms_are_answered_through_jdbc(statement, spark, tmp_path):
    place = str(tmp_path / "t")
    data = pa.table({"id": [1, 2, 3], "s": ["a", "b", "a"], "body": ["fox", "fox dog", "a dog"]})
    Table.create(place, data=data)
    table = f"indextables.`{place}`"
    for condition, expected in {
        "indexquery(body, 'dog AND fox')": ["2"],
        "textsearch(body, 'dog OR cat')": ["2", "3"],
        "search(body, 'fox dog')": ["2"],
        "search((body, s), 'a dog', mode => 'any')": ["1", "2", "3"],
        "match_phrase(body, 'a dog')": ["3"],
    }.items():
        query = f"SELECT id FROM {table} WHERE {condition} ORDER BY id"
        assert rows(statement, query) == [(one,) for one in expected], condition
    scored = (
        f"SELECT id, _score FROM {table} WHERE search(body, 'fox') ORDER BY _score DESC LIMIT 1"
    )
    assert [row[0] for row in rows(statement, scored)] == ["1"]
    ranked = f"SELECT id FROM indextables_search('{place}', 'dog', limit => 2)"
    assert sorted(rows(statement, ranked)) == [("2",), ("3",)]
    counted = f"SELECT s, count(*) FROM {table} WHERE search(body, 'dog') GROUP BY s ORDER BY s"
    assert rows(statement, counted) == [("a", "1"), ("b", "1")]
