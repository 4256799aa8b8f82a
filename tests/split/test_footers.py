"""Footers that are kept: the last used ones, up to a number of bytes."""

from __future__ import annotations

from types import SimpleNamespace

import pyarrow as pa

from indextables.split.open_split import FooterCache, SplitFile


def test_the_least_recently_used_go_first():
    cache = FooterCache(max_bytes=30)
    reads = []

    def get(key):
        def read():
            reads.append(key)
            return SimpleNamespace(size=10)

        return cache.get(key, read)

    for key in "abcabad":  # d takes the place of c
        get(key)
    assert reads == ["a", "b", "c", "d"]
    get("a"), get("b"), get("d")
    assert len(reads) == 4 and len(cache) == 3
    get("c")
    assert reads[4:] == ["c"]
    cache.clear()
    assert len(cache) == 0


def test_one_that_is_too_large_is_not_kept():
    cache = FooterCache(max_bytes=5)
    assert cache.get("a", lambda: SimpleNamespace(size=10)).size == 10
    assert len(cache) == 0


def test_a_footer_is_read_once(make):
    split = make(pa.table({"body": ["a", "b"]})).split
    cache = FooterCache()
    first, second = (
        SplitFile(split.store, split.path, split.size, footers=cache) for _ in range(2)
    )
    assert first.footer is second.footer
    assert first == second
