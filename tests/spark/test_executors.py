"""Which Python executors run, and what is said where it lacks the package."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import pytest

from indextables.errors import ExecutorError
from indextables.spark import session

WITHOUT_PACKAGE = """#!/bin/sh
shift
exec {python} -c '
import runpy, sys
class Without:
    def find_spec(self, name, *_):
        if name.partition(".")[0] == "indextables":
            raise ModuleNotFoundError("No module named " + repr(name))
sys.meta_path.insert(0, Without())
sys.argv = sys.argv[1:]
runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
' "$@"
"""


def context(master, **conf):
    return SimpleNamespace(master=master, pythonExec="python3", getConf=lambda: conf)


@pytest.mark.parametrize(
    ("master", "environment", "conf", "is_ours"),
    [
        ("local[*]", {}, {}, True),
        ("local", {}, {}, True),
        ("local-cluster[2,1,1024]", {}, {}, True),
        ("spark://host:7077", {}, {}, False),
        ("yarn", {}, {}, False),
        ("k8s://https://host", {}, {}, False),
        ("local[2]", {"PYSPARK_PYTHON": "python3"}, {}, False),
        ("local[2]", {}, {"spark.pyspark.python": "/opt/python"}, False),
    ],
)
def test_the_drivers_python_is_only_for_this_machine(
    monkeypatch, master, environment, conf, is_ours
):
    monkeypatch.delenv("PYSPARK_PYTHON", raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    started = context(master, **conf)
    session.use_this_python(SimpleNamespace(sparkContext=started))
    assert (started.pythonExec == sys.executable) == is_ours
    assert "PYSPARK_PYTHON" not in set(session.os.environ) - set(environment)


@pytest.mark.parametrize("python", ["missing", "without the package"])
def test_executors_that_lack_the_package_are_reported_in_one_sentence(
    spark, tmp_path, monkeypatch, python
):
    program = tmp_path / "python"
    if python == "without the package":
        program.write_text(WITHOUT_PACKAGE.format(python=sys.executable))
        program.chmod(0o755)
    monkeypatch.setattr(spark.sparkContext, "pythonExec", str(program))
    with pytest.raises(ExecutorError) as error:
        session.check_package(spark)
    said = str(error.value)
    assert str(program) in said
    assert "Traceback" not in said
    assert "PYSPARK_PYTHON" in said
    assert ("No module" in said) == (python != "missing")


def test_executors_that_have_the_package_are_left_alone(spark):
    session.check_package(spark)
