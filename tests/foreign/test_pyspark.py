"""PySpark's own tests pass with index tables as the default source where they pass with Parquet.

The tests are Apache Spark's and are not kept here; `tests/foreign/pyspark_tests.py` says how to
name their folder.
"""

from __future__ import annotations

import pyspark_tests as suite
import pytest

_FOLDER = suite.tests_folder()
# Tests whose difference is documented in docs/compatibility.md.
_DOCUMENTED = {
    "test_readwriter.ReadwriterTests.test_bucketed_write",
    "test_readwriter.ReadwriterTests.test_cluster_by",
}


@pytest.mark.skipif(
    _FOLDER is None, reason=f"{suite.ENVIRONMENT} does not name PySpark's python/pyspark/sql/tests"
)
def test_tests_pass_as_on_parquet():
    count, different = suite.differences(_FOLDER, suite.MODULES)
    assert count > 100
    assert not different.keys() - _DOCUMENTED, "\n\n".join(different.values())


def test_a_test_that_fails_on_parquet_is_left_out(monkeypatch):
    found = {
        "parquet": {"a": "", "b": "", "c": "broken", "d": ""},
        "indextables": {"a": "", "b": "refused", "c": "broken", "e": ""},
    }
    monkeypatch.setattr(suite, "outcomes", lambda format_, *_: found[format_])
    assert suite.differences(None, ()) == (3, {"b": "refused", "d": "was not run"})
