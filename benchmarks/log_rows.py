"""Rows of a log, made from a seed: six columns, messages of twelve words.

Words are drawn by Zipf's law from 20,000, as words of a language are. A few rows hold a needle:
a word that no other row has.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

WORDS = 20_000
WORDS_PER_MESSAGE = 12
BATCH = 100_000
SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("ts", pa.timestamp("us", "UTC")),
        ("level", pa.string()),
        ("service", pa.string()),
        ("status", pa.int32()),
        ("message", pa.string()),
    ]
)
TEXTS = ("level", "service", "message")
COMMON = "timeout"
"""A word that one message of five holds."""

NEEDLE = "needle"

_GOLDEN = 618_033
_START = 1_704_067_200_000_000
_LEVELS: Any = pa.array(["INFO", "DEBUG", "WARN", "ERROR"])
_SERVICES: Any = pa.array(
    [f"{kind}-service-{n:02d}" for kind in ("api", "db", "web") for n in range(8)]
)
_SYLLABLES = [c + v for c in "bdfgklmnprstvz" for v in "aeiou"]


@functools.cache
def _vocabulary() -> Any:
    """Words of two to four syllables, the common ones short."""
    made: dict[str, None] = {}
    random = np.random.default_rng(7)
    while len(made) < WORDS:
        length = 2 + (len(made) > 500) + (len(made) > 8_000)
        made["".join(random.choice(_SYLLABLES, length))] = None
    return pa.array(list(made))


@functools.cache
def _chances() -> Any:
    weights = 1 / np.arange(1, WORDS + 1)
    return np.cumsum(weights / weights.sum())


def batch(start: int, rows: int, *, needle_every: int = 0) -> pa.RecordBatch:
    """Rows from a number on. One of `needle_every` rows, somewhere, holds the word `NEEDLE`."""
    random = np.random.default_rng(start + 1)
    numbers = np.arange(start, start + rows)
    drawn = np.searchsorted(_chances(), random.random((WORDS_PER_MESSAGE, rows)))
    words = [_vocabulary().take(pa.array(np.minimum(column, WORDS - 1))) for column in drawn]
    words[5] = pc.if_else(pa.array(random.permutation(rows) % 5 == 0), COMMON, words[5])
    if needle_every:
        place = numbers // needle_every * _GOLDEN % needle_every
        words[7] = pc.if_else(pa.array(numbers % needle_every == place), NEEDLE, words[7])
    moments = _START + numbers * 1_000 + random.integers(0, 1_000, rows)
    statuses = random.choice([200, 201, 404, 500], rows, p=[0.8, 0.1, 0.06, 0.04])
    return pa.record_batch(
        [
            pa.array(numbers),
            pa.array(moments, SCHEMA.field("ts").type),
            _LEVELS.take(pa.array(random.choice(4, rows, p=[0.7, 0.15, 0.1, 0.05]))),
            _SERVICES.take(pa.array(random.integers(0, len(_SERVICES), rows))),
            pa.array(statuses, pa.int32()),
            pc.binary_join_element_wise(*words, " "),
        ],
        schema=SCHEMA,
    )


def word_in(share: float) -> str:
    """A word that about this share of the messages holds."""
    ranks = np.arange(1, WORDS + 1)
    chance = 1 - (1 - 1 / ranks / (1 / ranks).sum()) ** WORDS_PER_MESSAGE
    word: str = _vocabulary()[int(np.argmin(np.abs(chance - share)))].as_py()
    return word


def batches(rows: int, *, start: int = 0, needle_every: int = 0) -> Iterator[pa.RecordBatch]:
    """Rows in batches; only one is in memory at a time."""
    for at in range(start, start + rows, BATCH):
        yield batch(at, min(BATCH, start + rows - at), needle_every=needle_every)
