from __future__ import annotations

import pickle
from urllib.parse import urlsplit

import pytest
from servers import Server

from indextables.errors import ConfigError, StorageError, StorageOptionError
from indextables.storage import open_store
from indextables.storage.location import client_settings, scrub, secrets

S3 = "s3://bucket/x"
ABFSS = "abfss://box@acme.dfs.core.windows.net/x"
GOOD_KEY = "aGVsbG8="


@pytest.mark.parametrize(
    ("uri", "options"),
    [
        (S3, {}),
        (S3, {"aws_access_key_id": "a", "aws_secret_access_key": "b", "region": "eu-west-1"}),
        (S3, {"AWS_ENDPOINT_URL": "http://localhost:1", "allow_http": True, "timeout": "5s"}),
        (S3, {"max_retries": 0, "retry_timeout": "1s", "connect_timeout": "1s"}),
        (S3, {"fs.s3a.access.key": "a", "fs.s3a.secret.key": "b", "fs.s3a.session.token": "c"}),
        (S3, {"fs.s3a.endpoint": "localhost:1", "fs.s3a.path.style.access": "true"}),
        (ABFSS, {"azure_storage_account_key": GOOD_KEY}),
        (ABFSS, {"fs.azure.account.key.acme.dfs.core.windows.net": GOOD_KEY}),
        ("az://box", {"azure_storage_account_name": "a", "azure_storage_account_key": GOOD_KEY}),
        ("abfss://box@acme.dfs.core.chinacloudapi.cn/x", {"account_key": GOOD_KEY}),
        ("gs://bucket", {"google_skip_signature": "true"}),
    ],
)
def test_accepted(uri: str, options: dict[str, object]) -> None:
    store = open_store(uri, options)
    assert pickle.loads(pickle.dumps(store)).uri == store.uri


@pytest.mark.parametrize(
    ("uri", "option"),
    [
        (S3, "aws_acess_key_id"),
        (S3, "azure_storage_account_name"),
        (S3, "fs.s3a.acess.key"),
        (S3, "fs.azure.account.key.acme.dfs.core.windows.net"),
        (S3, "max_retries"),
        (S3, "retry_timeout"),
        (S3, "fs.s3a.path.style.access"),
        (ABFSS, "aws_access_key_id"),
        (ABFSS, "fs.azure.account.key.other.dfs.core.windows.net"),
        ("gs://bucket", "nonsense"),
        ("memory://m", "aws_region"),
        ("/tmp/x", "aws_region"),
        ("hdfs://node/x", "aws_region"),
        ("hdfs://node/x", "replication"),
        ("hdfs://node/x", "single_writer"),
    ],
)
def test_refused_by_name_without_the_value(uri: str, option: str) -> None:
    with pytest.raises(StorageOptionError) as caught:
        open_store(uri, {option: "hunter2"})
    assert caught.value.option == option
    assert f"'{option}'" in str(caught.value)
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(
    ("uri", "options"),
    [
        (S3, {"timeout": "hunter2"}),
        (S3, {"endpoint": "x", "endpoint_url": "hunter2"}),
        (ABFSS, {"azure_storage_account_key": "hunter2"}),
        (ABFSS, {"azure_storage_sas_token": "hunter2"}),
        ("gs://bucket", {"google_service_account_key": "hunter2"}),
    ],
)
def test_an_unusable_value_is_not_shown(uri: str, options: dict[str, object]) -> None:
    with pytest.raises(StorageError) as caught:
        open_store(uri, options)
    assert "hunter2" not in str(caught.value)
    assert all(name in str(caught.value) for name in options)
    assert caught.value.__suppress_context__


def test_a_plain_text_endpoint_of_hadoop_needs_no_second_switch() -> None:
    for options in (
        {"fs.s3a.endpoint": "http://localhost:1"},
        {"fs.s3a.endpoint": "localhost:1", "fs.s3a.connection.ssl.enabled": "false"},
    ):
        config, _ = client_settings(options, uri=S3)
        assert config["aws_endpoint"] == "http://localhost:1"
        assert config["allow_http"] == "true"
    config, _ = client_settings({"fs.s3a.endpoint": "localhost:1"}, uri=S3)
    assert config["aws_endpoint"] == "https://localhost:1"
    assert "allow_http" not in config


def test_timeouts_and_retries_are_bounded_and_can_be_set() -> None:
    config, retry = client_settings({}, uri=S3)
    assert config == {"timeout": "120s", "connect_timeout": "5s", "read_timeout": "30s"}
    assert retry["max_retries"] == 5
    assert retry["retry_timeout"].total_seconds() == 90
    config, retry = client_settings({"timeout": "1s", "max_retries": "2"}, uri=S3)
    assert config["timeout"] == "1s"
    assert retry["max_retries"] == 2


def test_hadoop_options_reach_a_server(s3: Server) -> None:
    store = open_store(
        s3.uri.replace("s3:", "s3a:") + "/hadoop",
        {
            "fs.s3a.access.key": s3.options["aws_access_key_id"],
            "fs.s3a.secret.key": s3.options["aws_secret_access_key"],
            "fs.s3a.endpoint": urlsplit(s3.options["aws_endpoint"]).netloc,
            "fs.s3a.connection.ssl.enabled": "false",
            "fs.s3a.endpoint.region": "us-east-1",
            "fs.s3a.path.style.access": "true",
        },
    )
    store.put_if_absent("x", b"1")
    assert open_store(s3.uri, s3.options).get("hadoop/x") == b"1"


def test_a_server_that_is_not_there() -> None:
    options = {
        "aws_access_key_id": "AKIDEXAMPLE",
        "aws_secret_access_key": "hunter2",
        "aws_endpoint": "http://127.0.0.1:1",
        "allow_http": "true",
        "max_retries": "0",
    }
    store = open_store("s3://bucket/docs", options)
    for call in (lambda: store.get("x"), lambda: list(store.list()), lambda: store.put("x", b"")):
        with pytest.raises(StorageError, match="s3://bucket/docs/") as caught:
            call()
        assert type(caught.value) is StorageError
        assert "hunter2" not in str(caught.value)
        assert "AKIDEXAMPLE" not in str(caught.value)


def test_a_missing_bucket_is_no_empty_one(s3: Server) -> None:
    store = open_store("s3://nobucket/docs", s3.options)
    with pytest.raises(StorageError):
        list(store.list())
    with pytest.raises(StorageError):
        store.put_if_absent("x", b"")


def test_secret_values_are_known_by_their_keys() -> None:
    names = ["aws_secret_access_key", "SAS_token", "fs.s3a.access.key", "Password", "signature"]
    assert secrets({**dict.fromkeys(names, "hunter2"), "region": "eu-west-1"}) == ["hunter2"] * 5


def test_scrub_hides_values_queries_and_debug_prints() -> None:
    message = "GET https://a.b/c?sv=1&sig=zzz failed for hunter2\n\nDebug source:\nzzz"
    assert scrub(message, {"secret": "hunter2"}) == "GET https://a.b/c?… failed for ***"


@pytest.mark.parametrize("options", [5, "key=secret", [("key", "secret")]])
def test_options_that_are_no_mapping_are_refused_without_their_values(options):
    with pytest.raises(ConfigError, match="must be a mapping of names to values") as caught:
        open_store("memory://options", options)
    assert "secret" not in str(caught.value)
