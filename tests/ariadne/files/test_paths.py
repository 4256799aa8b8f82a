from __future__ import annotations

import os

import pytest

from indextables.ariadne.files.read import (
    canonical,
    expand,
    for_spark,
    from_spark,
    stat,
)
from indextables.ariadne.files.state import registered
from indextables.errors import AriadneArgumentError
from indextables.storage import open_store

STRANGE = ["a b.csv", "hash#x.csv", "pct%41.csv", "ünï.csv", "st*r.csv", "[a]{b}.csv", "q?.csv"]


def covers(entry, path):
    return bool(registered([entry], [path]))


def write(folder, *names):
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        ("/d/x.csv", "/d/x.csv"),
        ("file:///d/x.csv", "/d/x.csv"),
        ("file:/d/a%20b.csv", "/d/a b.csv"),
        ("/d/a%20b.csv", "/d/a%20b.csv"),
        ("/d//e/../x.csv", "/d/x.csv"),
        ("s3a://b/x//y.csv", "s3://b/x/y.csv"),
        ("s3://b/q?/*.csv", "s3://b/q?/*.csv"),
        ("gcs://b/a%20b", "gs://b/a%20b"),
    ],
)
def test_one_spelling_a_file(given, wanted):
    assert canonical(given) == wanted


def test_a_relative_path_is_absolute(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert canonical("dummy.csv") == f"{tmp_path}/dummy.csv"


@pytest.mark.parametrize("bad", ["", " ", None, "a\0b"])
def test_what_is_no_path_is_refused(bad):
    with pytest.raises(AriadneArgumentError):
        canonical(bad)


@pytest.mark.parametrize("name", STRANGE)
def test_what_spark_reports_is_the_file_that_was_registered(name):
    from urllib.parse import quote

    encoded = quote(name, safe="*")
    assert from_spark(f"file:/d/{encoded}") == canonical(f"/d/{name}")
    assert from_spark(f"file:///d/{encoded}") == f"/d/{name}"
    assert for_spark(from_spark(f"s3a://b/{encoded.replace('%3F', 'Q')}")).startswith("s3a://b/")


@pytest.mark.parametrize(
    ("entry", "path", "wanted"),
    [
        ("/d", "/d/x", True), ("/d", "/d/e/x", True), ("/d", "/dx", False),
        ("/d/*.csv", "/d/x.csv", True), ("/d/*.csv", "/d/e/x.csv", False),
        ("/d/*", "/d/e/x.csv", True), ("/d/[a-c].csv", "/d/b.csv", True),
        ("/d/[!a-c].csv", "/d/b.csv", False), ("/d/{x,y}?.csv", "/d/y1.csv", True),
        ("/d/\\*.csv", "/d/x.csv", False), ("/d/a+b.csv", "/d/aab.csv", False),
    ],
)  # fmt: skip
def test_patterns_are_those_of_hadoop(entry, path, wanted):
    assert covers(entry, path) is wanted


@pytest.mark.parametrize(
    ("entry", "path"),
    [
        ("/d/" + "*a" * 30 + "*c", "/d/" + "a" * 200),
        ("/d/" + "{a,a}" * 60 + "c", "/d/" + "a" * 60),
        ("/d/" + "{*,{a,*}}" * 25 + "c", "/d/" + "a" * 100),
    ],
)
def test_no_pattern_takes_long(entry, path):
    assert not covers(entry, path)
    assert covers(entry, path + "c")


@pytest.mark.parametrize("entry", ["/d/[z-a].csv", "/d/{{a}.csv", "/d/{a,{b}.csv", "/d/[^]"])
def test_what_is_no_pattern_matches_itself_alone(tmp_path, entry):
    assert covers(entry, entry)
    assert not covers(entry, "/d/a.csv")
    write(tmp_path, "a.csv")
    found = expand([f"{tmp_path}/{entry.removeprefix('/d/')}"], open_store)
    assert (len(found.files), len(found.missing)) == (0, 1)


def test_files_folders_and_patterns_become_files(tmp_path):
    write(tmp_path, "f/x.csv", "f/deep/y.csv", "f/_SUCCESS", "f/_tmp/z.csv", "p1.csv", "p2.csv")
    entries = [f"{tmp_path}/f", f"{tmp_path}/p*.csv", f"{tmp_path}/none.csv", f"{tmp_path}/q*"]
    found = expand(entries, open_store)
    names = {os.path.relpath(name, tmp_path) for name in found.files}
    assert names == {"f/x.csv", "f/deep/y.csv", "p1.csv", "p2.csv"}
    assert found.missing == (f"{tmp_path}/none.csv", f"{tmp_path}/q*")


def test_files_that_spark_passes_over_are_none(tmp_path):
    write(tmp_path, "x.csv", "_y.csv", ".z.csv", "w.csv._COPYING_", "_tmp/v.csv", "_k=1/u.csv")
    for entry, wanted in (
        ("", ["_k=1/u.csv", "x.csv"]),
        ("/*", ["_k=1/u.csv", "_tmp/v.csv", "x.csv"]),
    ):
        found = expand([f"{tmp_path}{entry}"], open_store)
        assert sorted(os.path.relpath(name, tmp_path) for name in found.files) == wanted


@pytest.mark.parametrize("name", STRANGE)
def test_a_name_with_signs_of_a_pattern_that_exists_is_that_file(tmp_path, name):
    write(tmp_path, name, "star.csv", "qx.csv", "ab.csv")
    assert list(expand([f"{tmp_path}/{name}"], open_store).files) == [f"{tmp_path}/{name}"]


def test_an_empty_folder_means_no_file_and_is_not_missing(tmp_path):
    (tmp_path / "empty").mkdir()
    found = expand([f"{tmp_path}/empty"], open_store)
    assert not found.files
    assert not found.missing


def test_files_of_an_object_store_are_listed_where_they_are_many(s3):
    store = open_store(f"{s3.uri}/paths", s3.options)
    for number in range(20):
        store.put(f"many/{number}.csv", b"x" * number)
    store.put("few/a b#%41.csv", b"12345")

    def store_of(uri):
        return open_store(uri, s3.options)

    many = [f"{s3.uri}/paths/many/{n}.csv" for n in range(21)]
    found = stat([*many, f"{s3.uri}/paths/few/a b#%41.csv"], store_of)
    assert [found[name].size for name in many[:20]] == list(range(20))
    assert found[many[20]] is None
    assert found[f"{s3.uri}/paths/few/a b#%41.csv"].size == 5
    globbed = expand([f"{s3.uri}/paths/m*/1?.csv", f"{s3.uri}/paths/few"], store_of)
    assert len(globbed.files) == 11
