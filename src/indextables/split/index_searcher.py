"""A Tantivy index that is open for searching: the one place where Tantivy reads an index.

An index comes from a file that anybody may have written. Tantivy trusts it: on one that is not what
it says, it panics, raises errors of many kinds, or answers with rows that are not there. Whatever
it does becomes a `DamagedIndexError` here, and whoever asked uses the rows instead.
"""

from __future__ import annotations

import contextlib
import struct
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any

import numpy as np
import numpy.typing as npt
import orjson
import tantivy

from indextables.errors import DamagedIndexError, IndexTablesError
from indextables.split.container import Section
from indextables.split.mapping import ROW_FIELD
from indextables.split.row_numbers import UNTAGGED, Tags, rows_of

Rows = npt.NDArray[np.int64]
Hit = tuple[Any, tantivy.DocAddress]

_FEW_HITS = 4_096
_FOOTER = struct.Struct("<II")
_FOOTER_MAGIC = 1337
LONGEST_FOOTER = 1_024
"""More bytes than Tantivy writes at the end of a file."""


@contextlib.contextmanager
def tantivy_errors(path: str) -> Iterator[None]:
    """Failures of Tantivy on an index, its panics included, as `DamagedIndexError`."""
    try:
        yield
    except IndexTablesError:
        raise
    except Exception as error:
        raise DamagedIndexError(path, f"Tantivy cannot use its index ({_short(error)})") from None
    except BaseException as error:
        # A panic is no `Exception`, and its class cannot be imported.
        if type(error).__name__ != "PanicException":
            raise
        raise DamagedIndexError(path, f"Tantivy cannot use its index ({_short(error)})") from None


def _short(error: BaseException) -> str:
    return (" ".join(str(error).split()) or type(error).__name__)[:200]


def check_file(section: Section, tail: bytes, *, path: str) -> None:
    """Compare the checksum that Tantivy wrote into a file with that of its section.

    `tail` is the end of the file. A checksum can be continued: the one of the body, continued over
    the footer that states it, is the one of the whole.
    """
    length, magic = _FOOTER.unpack_from(tail, len(tail) - 8) if len(tail) >= 8 else (0, 0)
    footer = tail[-8 - length : -8]
    try:
        body = orjson.loads(footer)["crc"]
        right = magic == _FOOTER_MAGIC and zlib.crc32(tail[-8 - length :], body) == section.crc
    except (ValueError, TypeError, KeyError, OverflowError):
        right = False
    if not right or len(footer) != length:
        raise DamagedIndexError(path, f"{section.name} is not the file that Tantivy wrote")


@dataclass(frozen=True, slots=True)
class IndexSearcher:
    """Searches one index. `path` is named in errors."""

    path: str
    searcher: tantivy.Searcher

    @property
    def num_docs(self) -> int:
        """How many documents there are."""
        return self.searcher.num_docs

    def hits(self, query: tantivy.Query, limit: int, **options: Any) -> list[Hit]:
        """The best hits, or the first ones in an order."""
        with tantivy_errors(self.path):
            return self.searcher.search(query, max(1, limit), count=False, **options).hits

    def count(self, query: tantivy.Query) -> int:
        """How many documents match."""
        with tantivy_errors(self.path):
            found: Any = self.searcher.search(query, 1, count=True)
            return int(found.count)

    def numbers(self, addresses: Sequence[tantivy.DocAddress]) -> Rows:
        """The numbers that documents carry."""
        with tantivy_errors(self.path):
            values = self.searcher.fast_field_values(ROW_FIELD, list(addresses))
            return np.array(values, dtype=np.int64)

    def terms(self, field: str, prefix: str = "") -> list[str]:
        """The words of a field that begin with a text."""
        with tantivy_errors(self.path):
            return [term for term, _ in self.searcher.terms_with_prefix(field, prefix)]

    def rows(
        self,
        query: tantivy.Query,
        *,
        total: int,
        bases: Sequence[int] = (),
        tags: Tags = UNTAGGED,
    ) -> Rows:
        """The row of every document that matches, in ascending order, each below `total`.

        A row is what `_row` says under these tags, plus the base of its segment if there are bases.
        """
        hits = self._by_row(query, bases)
        with tantivy_errors(self.path):
            numbers = np.fromiter(map(itemgetter(0), hits), dtype=np.int64, count=len(hits))
            rows = rows_of(numbers, tags)
            if any(bases):
                segments = np.fromiter((a.segment_ord for _, a in hits), np.int64, len(hits))
                rows += np.asarray(bases, dtype=np.int64)[segments]
            if any(bases) or len(tags) > 1:
                rows.sort()
        check_rows(rows, total, path=self.path)
        return rows

    def _by_row(self, query: tantivy.Query, bases: Sequence[int]) -> list[Hit]:
        """All hits. Tantivy reserves room for as many as may be asked for, in every segment."""
        limit = max(1, self.num_docs)  # it panics at 0
        first = _FEW_HITS if len(bases) > 1 and limit > _FEW_HITS else limit
        while True:
            hits = self.hits(query, first, order_by_field=ROW_FIELD, order=tantivy.Order.Asc)
            if len(hits) < first or first == limit:
                return hits
            first = limit


def check_rows(rows: Rows, total: int, *, path: str) -> None:
    """Refuse rows that a split does not have; they are in ascending order."""
    if len(rows) and (rows[0] < 0 or rows[-1] >= total or bool((np.diff(rows) <= 0).any())):
        raise DamagedIndexError(path, "its index names rows that it does not have")
