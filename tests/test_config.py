from __future__ import annotations

import functools
import pickle
import re
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from indextables import Table
from indextables import config as keys
from indextables.config import (
    KEYS,
    Config,
    known_keys,
    parse_boolean,
    parse_duration_ms,
    parse_size,
    session_keys,
)
from indextables.errors import ConfigError, InvalidValueError, UnknownKeyError
from indextables.log.transaction import Operation, Transaction
from indextables.plan.access import SourceOptions

INTERVAL = "spark.indextables.checkpoint.interval"


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("123", 123), (123, 123), ("1K", 1024), ("100M", 100 * 1024**2), ("1.5G", 1610612736),
        ("1t", 1024**4), (" 2 g ", 2 * 1024**3), ("10MB", 10 * 1024**2), ("4KiB", 4096), ("0", 0),
    ],
)  # fmt: skip
def test_sizes(text, size):
    assert parse_size(text) == size


@pytest.mark.parametrize("text", ["", "M", "1X", "-1", "1e3", "ten", None, True, "1 0M"])
def test_what_is_no_size_is_refused(text):
    with pytest.raises(InvalidValueError):
        parse_size(text)


@pytest.mark.parametrize(
    ("text", "ms"),
    [(500, 500), ("500", 500), ("5s", 5000), ("2 hours", 7_200_000), ("1.5 min", 90_000),
     ("30 days", 2_592_000_000), ("7d", 604_800_000)],
)  # fmt: skip
def test_durations(text, ms):
    assert parse_duration_ms(text) == ms


@pytest.mark.parametrize("text", ["", "-5", "5 fortnights", True, "s"])
def test_what_is_no_duration_is_refused(text):
    with pytest.raises(InvalidValueError):
        parse_duration_ms(text)


@pytest.mark.parametrize(
    ("text", "flag"), [("TRUE", True), (False, False), ("0", False), ("yes", True)]
)
def test_booleans(text, flag):
    assert parse_boolean(text) is flag


def test_option_beats_session_beats_table_beats_default():
    option, session, table = ({INTERVAL: n} for n in (1, 2, 3))
    assert Config(option, session, table)[keys.CHECKPOINT_INTERVAL] == 1
    assert Config({}, session, table)[keys.CHECKPOINT_INTERVAL] == 2
    assert Config(None, None).over(table)[keys.CHECKPOINT_INTERVAL] == 3
    assert Config(session).over(table)[keys.CHECKPOINT_INTERVAL] == 2
    assert Config()[keys.CHECKPOINT_INTERVAL] == 10


def test_names_are_case_insensitive_and_the_old_prefix_is_understood():
    assert Config({"SPARK.IndexTables.CHECKPOINT.Interval": "7"})[keys.CHECKPOINT_INTERVAL] == 7
    assert Config({"spark.tantivy4spark.checkpoint.interval": "8"})[keys.CHECKPOINT_INTERVAL] == 8


@pytest.mark.parametrize(
    ("name", "nearest"),
    [
        ("spark.indextables.checkpoint.intervall", INTERVAL),
        ("checkpoint.interval", INTERVAL),
        ("spark.indextables.transaction.retry.maxAttemps", keys.TRANSACTION_RETRY_ATTEMPTS.name),
    ],
)
def test_an_unknown_key_names_the_nearest(name, nearest):
    with pytest.raises(UnknownKeyError, match="Did you mean") as caught:
        Config({name: 1})
    assert nearest in caught.value.nearest
    assert nearest in str(caught.value)


def test_an_unknown_key_of_a_session_is_passed_over_with_one_warning():
    settings = {"spark.indextables.checkpoint.intervals": "5", INTERVAL: "7", "spark.ui.port": "1"}
    with pytest.warns(UserWarning, match=f"Did you mean {INTERVAL}.*no effect"):
        assert session_keys(settings) == {INTERVAL: "7"}
    assert session_keys(settings) == {INTERVAL: "7"}
    with pytest.raises(UnknownKeyError):
        Config(SourceOptions.parse({"spark.indextables.checkpoint.intervals": "5"}).config)
    with pytest.raises(InvalidValueError):  # a known key is checked, wherever it is set
        Config(SourceOptions.parse({"path": "/t"}, {INTERVAL: "x"}).config)


@pytest.mark.parametrize("value", [0, -1, "ten", True, ""])
def test_a_bad_value_is_refused_when_the_configuration_is_made(value):
    with pytest.raises(InvalidValueError, match=INTERVAL):
        Config({INTERVAL: value})


def test_table_properties_of_others_are_passed_over():
    assert known_keys({INTERVAL: "5", "delta.x": "1", "spark.indextables.never.heard": "2"}) == {
        INTERVAL: "5"
    }


# What these words are about is the process's business, whatever key has them in its name.
OF_THE_PROCESS = re.compile(
    r"path|tempdir|heap|parallelism|credential|secret|endpoint|token$|maxmemory|maxopen|cache\.|ariadne"
    r"|driver|distributed|protocol\.check|retentioncheck|indexquery\.max[de]|maxfilesize"
)


@pytest.mark.parametrize("key", KEYS.values(), ids=lambda key: key.name)
def test_a_table_sets_no_key_of_the_process(key):
    given = known_keys({key.name: "x", key.name.upper(): "y"})
    assert bool(given) == key.in_table
    if OF_THE_PROCESS.search(key.name.lower()):
        assert not key.in_table


def test_a_table_does_not_choose_where_its_readers_delete(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "own"))
    home = tmp_path / "home"
    (home / "copies-of-letters").mkdir(parents=True)
    letters = [home / "tmp-letter", home / "copies-of-letters" / "letter"]
    for letter in letters:
        letter.write_text("dear")
    rows = pa.table({"id": [1, 2], "body": ["one", "two"]})
    table = Table.create(tmp_path / "t", rows.schema)
    metadata = table.snapshot().metadata
    properties = {**metadata.configuration, "spark.indextables.cache.disk.path": str(home)}
    changed = replace(metadata, configuration=properties)
    table.log.commit(Transaction(operation=Operation.METADATA, actions=[changed]))
    table = Table.open(tmp_path / "t")
    table.append(rows)
    assert table.count(where="body indexquery 'two'") == 1
    assert sorted(p for p in home.rglob("*") if p.is_file()) == sorted(letters)


def test_flattening_keeps_precedence():
    flat = Config(
        {INTERVAL: 1}, {INTERVAL: 2, "spark.indextables.state.format": "json"}
    ).as_options()
    assert Config(flat)[keys.CHECKPOINT_INTERVAL] == 1
    assert Config(flat)[keys.STATE_FORMAT] == "json"


@pytest.mark.parametrize("key", keys.KEYS.values(), ids=lambda key: key.name)
def test_every_key_is_documented_and_parses_its_own_default(key):
    assert key.meaning.endswith(".")
    assert key.section
    if key.default is not None:
        assert key.parse(key.default) == key.default


def test_no_two_constants_are_the_same_key():
    constants = [v for v in vars(keys).values() if isinstance(v, keys.Key | keys.KeyFamily)]
    assert len(constants) == len(keys.KEYS) + len(keys.FAMILIES)


def test_errors_survive_pickling():
    error = pickle.loads(pickle.dumps(UnknownKeyError("a", nearest=["b"])))
    assert isinstance(error, ConfigError)
    assert error.nearest == ("b",)
    assert "Did you mean b?" in str(error)


@pytest.mark.parametrize(
    "key", [*keys.KEYS.values(), *keys.FAMILIES.values()], ids=lambda key: key.name
)
def test_every_key_is_named_in_a_test_of_its_effect(key):
    short = key.name.removeprefix(keys.PREFIX).rstrip(".")
    constant = next(name for name, value in vars(keys).items() if value is key)
    spellings = (short, short.replace(".", "_"), constant)
    assert any(spelling in text for text in _other_tests() for spelling in spellings)


@functools.cache
def _other_tests():
    here = Path(__file__)
    return [p.read_text() for p in here.parent.rglob("test_*.py") if p != here]
