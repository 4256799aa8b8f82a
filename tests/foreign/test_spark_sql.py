"""Spark's own SQL input files answer on index tables as they do on Parquet.

The files are Apache Spark's and are not kept here; `tests/foreign/spark_sql.py` says how to name
their folder.
"""

from __future__ import annotations

import pytest
import spark_sql as suite

_RESOURCES = suite.inputs_folder()
_FILES = [] if _RESOURCES is None else suite.files_with_tables(_RESOURCES)
# Statements whose difference is documented in docs/compatibility.md, as shares of all.
_SAME_AT_LEAST = 0.98


@pytest.mark.skipif(
    _RESOURCES is None,
    reason=f"{suite.ENVIRONMENT} does not name Spark's sql/core/src/test/resources",
)
def test_statements_answer_as_on_parquet(spark):
    total, differences = 0, []
    for path in _FILES:
        count, different = suite.compare(spark, path, _RESOURCES)
        total += count
        differences += different
    shown = "\n\n".join(f"{one.file}: {one.statement}\n{one.indextables}" for one in differences)
    assert len(differences) <= (1 - _SAME_AT_LEAST) * total, shown


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("SELECT 1; SELECT ';' ;", ["SELECT 1", "SELECT ';'"]),
        ("-- a; b\nSELECT 1 /* ; */;", ["SELECT 1 /* ; */"]),
        ("BEGIN SELECT 1; SELECT 2; END; SELECT 3", ["BEGIN SELECT 1; SELECT 2; END", "SELECT 3"]),
        ("SELECT `;`, \"it's\";", ["SELECT `;`, \"it's\""]),
        ("--QUERY-DELIMITER-START\nSELECT /* ;\n */ 1;\n--QUERY-DELIMITER-END\nSELECT 2",
         ["SELECT /* ;\n */ 1", "SELECT 2"]),
    ],
)  # fmt: skip
def test_statements_are_cut_at_their_semicolons(tmp_path, text, expected):
    file = tmp_path / "inputs" / "one.sql"
    file.parent.mkdir()
    file.write_text(f"--SET spark.sql.a=1,spark.sql.b = 2\n{text}")
    settings, found = suite.statements(file)
    assert found == expected
    assert settings == {"spark.sql.a": "1", "spark.sql.b": "2"}


def test_temporary_views_can_be_stored_as_tables(spark, tmp_path):
    file = tmp_path / "inputs" / "one.sql"
    file.parent.mkdir()
    file.write_text(
        "CREATE OR REPLACE TEMP VIEW stored_view (a, b) AS VALUES (1, 'x');\n"
        "SHOW TABLES LIKE 'stored_view';\nSELECT * FROM stored_view;\n"
        "DROP VIEW stored_view;\nSELECT * FROM stored_view;"
    )
    for format_ in suite.FORMATS:
        done = suite.run_file(spark, file, format_, tmp_path, views=True)
        assert done[1].rows == ("('foreign_suite', 'stored_view', False)",)
        assert done[2].rows == ("(1, 'x')",)
        assert [one.error for one in done[3:]] == ["", "TABLE_OR_VIEW_NOT_FOUND"]
