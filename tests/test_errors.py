from __future__ import annotations

import inspect

import pytest

from indextables import errors

DEFINED = {
    name: kind
    for name, kind in inspect.getmembers(errors, inspect.isclass)
    if issubclass(kind, errors.IndexTablesError)
}


@pytest.mark.parametrize("kind", DEFINED.values(), ids=DEFINED)
def test_an_error_is_named_by_the_package_and_prints_its_message(kind):
    assert f"{kind.__module__}.{kind.__name__}" == f"indextables.errors.{kind.__name__}"
    error = kind.__new__(kind)
    error.args = ("What happened: 'x'.",)
    assert str(error) == "What happened: 'x'."
