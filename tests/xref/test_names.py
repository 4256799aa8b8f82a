"""Where XRefs are stored."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from indextables.errors import ConfigError
from indextables.xref.container import (
    hash_directory,
    java_hash,
    new_xref_id,
    xref_path,
)

# What Java's `hashCode` gives.
HASHES = {
    "": 0,
    "a": 97,
    "polygenelubricants": -(2**31),
    "😀": 1_772_899,
    "é": 233,
}


@pytest.mark.parametrize(("text", "code"), list(HASHES.items()))
def test_hash_codes_are_those_of_java(text, code):
    assert java_hash(text) == code


@given(st.text())
def test_every_name_has_four_letters(name):
    assert re.fullmatch("[a-z]{4}", hash_directory(name))


def test_the_hash_code_without_a_positive_counterpart_has_letters_too():
    assert re.fullmatch("[a-z]{4}", hash_directory("polygenelubricants"))


def test_both_spellings_of_an_id_are_one_file():
    assert xref_path("xref-abc123") == xref_path("abc123") == "_xrefsplits/ghig/xref-abc123.split"
    assert xref_path(new_xref_id()) != xref_path(new_xref_id())
    assert xref_path("abc123", directory="x/").startswith("x/ghig/")


@pytest.mark.parametrize("name", ["", "../x", "a/b", "a b", ".."])
def test_an_id_cannot_leave_the_folder(name):
    with pytest.raises(ConfigError, match="is not an id"):
        xref_path(name)
