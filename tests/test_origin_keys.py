"""Jobs of the Scala product keep their configuration: each of its keys has one of four fates."""

from __future__ import annotations

import re
from pathlib import Path

import pyarrow as pa
import pytest

from indextables import Table, config
from indextables.config import KEYS, PREFIX, Config, canonical, origin
from indextables.errors import ConfigError
from indextables.plan.access import SourceOptions
from indextables.storage import open_store
from indextables.storage.location import secrets

PAGE = Path(__file__).parents[1] / "docs" / "migrating.md"
ROW = re.compile(r"^\| `([\w.]+)` \| (renamed|store|no effect|refused) \| (.+) \|$", re.MULTILINE)


@pytest.fixture(autouse=True)
def nothing_warned(monkeypatch):
    monkeypatch.setattr(config, "_warned", set())


def parsed(name, value="1", path="s3://bucket/docs"):
    return SourceOptions.parse({"path": path, PREFIX + name: value})


@pytest.mark.parametrize(("name", "fate", "text"), ROW.findall(PAGE.read_text("utf-8")))
def test_the_page_says_what_a_key_does(name, fate, text, recwarn):
    if fate == "renamed":
        ours = canonical(PREFIX + name)
        assert f"`{KEYS[ours].name}`" in text
        assert list(parsed(name).config) == [ours]
    elif fate == "store":
        key = origin.STORAGE[name.lower()]
        options = parsed(name, path=f"{key.scheme or 's3'}://bucket/docs")
        assert not options.config
        assert options.storage or key.option == "azure_connection_string"
        assert not parsed(name, path="/local").storage
    elif fate == "no effect":
        assert parsed(name).config == {}
        assert parsed(name).config == {}
        assert [text in str(warning.message) for warning in recwarn] == [True]
    else:
        with pytest.raises(ConfigError, match=re.escape(text)):
            parsed(name)
        assert SourceOptions.parse({"path": "/t"}, {PREFIX + name: "1"}).config == {}
        assert len(recwarn) == 1


def test_the_page_lists_every_key():
    assert {name for name, _, _ in ROW.findall(PAGE.read_text("utf-8"))} == set(origin.NAMES)


def test_a_name_of_ours_and_an_option_win():
    both = {"spark.indextables.text.maxTokenLength": "9"}
    both[PREFIX + "indexing.text.maxTokenLength"] = "8"
    assert Config(both)[config.TEXT_MAX_TOKEN_LENGTH] == "9"
    session = {"spark.indextables.text.maxTokenLength": "9"}
    options = {"path": "/t", PREFIX + "indexing.text.maxTokenLength": "8"}
    assert Config(SourceOptions.parse(options, session).config)[config.TEXT_MAX_TOKEN_LENGTH] == "8"


def test_credentials_reach_the_store_and_no_message():
    session = {
        "spark.indextables.aws.accessKey": "AK", "spark.indextables.aws.secretKey": "SK",
        "spark.indextables.aws.sessionToken": "ST", "spark.indextables.azure.accountKey": "ZK",
        "spark.indextables.aws.endpoint": "http://localhost:9", "spark.indextables.aws.region": "r",
    }  # fmt: skip
    options = SourceOptions.parse({"path": "s3://bucket/t"}, session)
    assert options.storage == {
        "aws_access_key_id": "AK", "aws_secret_access_key": "SK", "aws_session_token": "ST",
        "fs.s3a.endpoint": "http://localhost:9", "aws_region": "r",
    }  # fmt: skip
    access = options.access()
    assert access.storage_of("az://box/t") == {"azure_storage_account_key": "ZK"}
    assert not re.search("AK|SK|ST|ZK", repr(options) + repr(access) + repr(access.store()))
    text = {"spark.indextables.azure.connectionString": "AccountName=a;AccountKey=WlpaWg=="}
    assert open_store("az://box/t", text).options["azure_storage_account_key"] == "WlpaWg=="
    assert secrets(text) == list(text.values())


def test_a_table_sets_no_credentials(tmp_path):
    name = "spark.indextables.aws.accessKey"
    with pytest.raises(ConfigError, match="configures a store") as caught:
        Table.create(tmp_path / "t", pa.schema([("a", pa.string())]), config={name: "AKIA"})
    assert "AKIA" not in str(caught.value)
    assert config.known_keys({name: "AKIA"}) == {}


def test_lists_of_fields_and_the_default_kind(tmp_path):
    schema = pa.schema([(name, pa.string()) for name in ("title", "body", "id", "default")])
    options = {
        "tokenizer.en_stem": "title, Body", "tokenizer.default": "whitespace",
        "indexrecordoption.basic": "body", "tokenLength.legacy": "title", "tokenLength.99": "body",
        "typemap.text": "title,body,default",
    }  # fmt: skip
    given = {PREFIX + "indexing." + name: value for name, value in options.items()}
    given[PREFIX + "indexing.defaultStringKind"] = "string"
    fields = Table.create(tmp_path / "t", schema, config=given).view.mapping.by_name
    assert [fields[n].tokenizer for n in ("title", "body", "default")] == [
        "en_stem", "en_stem", "whitespace",
    ]  # fmt: skip
    assert (fields["title"].token_length, fields["body"].token_length) == (40, 99)
    assert (fields["title"].record, fields["body"].record) == ("position", "basic")
    assert (fields["id"].kind, fields["title"].kind) == ("string", "text")
