"""The URI of a table in its canonical form, the store that serves it, and its options.

Caches, logs and messages name a table by its canonical URI: `file:///data/docs/`, `/data/docs` and
`docs` in the folder `/data` are one table. Only `file:` URIs are percent-decoded; the keys of an
object store are literal, as Hadoop and the vendors' tools read them. A URI with a secret inside is
refused, because URIs travel into logs and plans.

Options (credentials, endpoints, timeouts) have the names of the object_store library
(`aws_access_key_id`, `endpoint`, `allow_http`, `azure_storage_account_name`,
`google_service_account`, `timeout`, …). The Hadoop names that Spark users know
(`fs.s3a.access.key`, …) are translated, and so are the keys of the Scala product
(`spark.indextables.aws.accessKey`, …). Environment variables that the vendors' own tools read are
the default. An option that a store does not know is an error. Messages never show their values.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any
from urllib.parse import unquote

from indextables.config.key import parse_duration_ms, storage_key
from indextables.errors import (
    InvalidValueError,
    StorageError,
    StorageOptionError,
    UnsupportedUriError,
)

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):(?=/)")
_AZURE_HOST = re.compile(r"([^@/:]+)@([^@/:.]+)\.(?:dfs|blob)\.([^@/:]+)")

# Names that users write, and the one name that is used for them.
_SCHEMES = {
    **dict.fromkeys(("s3", "s3a", "s3n"), "s3"),
    **dict.fromkeys(("gs", "gcs"), "gs"),
    **dict.fromkeys(("az", "azure", "abfs", "abfss", "wasb", "wasbs"), "az"),
    "file": "file",
    "hdfs": "hdfs",
    "memory": "memory",
}


@dataclass(frozen=True, slots=True)
class Location:
    """A parsed URI. `container` is the bucket, the container or the host with its port.

    `prefix` is the path below it without outer slashes; of a local folder it is the whole path.
    """

    uri: str
    scheme: str
    container: str
    prefix: str
    azure_account: str | None = None
    azure_suffix: str | None = None


def canonical_uri(uri: str | os.PathLike[str]) -> str:
    """The canonical form of a table's URI.

    >>> canonical_uri("s3a://bucket/docs//"), canonical_uri("file:///data/docs/")
    ('s3://bucket/docs', '/data/docs')
    >>> canonical_uri("wasbs://box@acme.blob.core.windows.net/docs")
    'abfss://box@acme.dfs.core.windows.net/docs'
    """
    return parse_location(uri).uri


def parse_location(uri: str | os.PathLike[str]) -> Location:
    """Take a URI or a local path apart. `UnsupportedUriError` if no store serves it."""
    if not isinstance(uri, str | os.PathLike):
        raise UnsupportedUriError(repr(uri), supported=sorted(_SCHEMES))
    text = os.fspath(uri)
    match = _SCHEME.match(text)
    if match is None:
        if "://" in text.split("/", 1)[0] or not text or "\0" in text:
            raise UnsupportedUriError(_shown(text), supported=sorted(_SCHEMES))
        return _local(text)
    scheme = _SCHEMES.get(match[1].lower())
    if scheme is None:
        raise UnsupportedUriError(_shown(text), supported=sorted(_SCHEMES))
    after_scheme = text[match.end() :]
    if scheme == "file":
        return _file_uri(text, after_scheme)
    if not after_scheme.startswith("//"):
        raise StorageError(f"'{_shown(text)}' names no bucket or host: write {match[1]}://…")
    authority, _, path = after_scheme[2:].partition("/")
    prefix = "/".join(s for s in path.split("/") if s)
    _refuse_secrets(text, scheme, authority, path)
    if not authority and scheme != "hdfs":
        raise StorageError(f"'{_shown(text)}' names no bucket: write {match[1]}://bucket/path")
    if any(s in (".", "..") for s in prefix.split("/")):
        raise StorageError(f"'{_shown(text)}' contains '.' or '..': write the path itself")
    tail = f"/{prefix}" if prefix else ""
    if scheme == "az" and (host := _AZURE_HOST.fullmatch(authority)):
        box, account, suffix = host.groups()
        canonical = f"abfss://{box}@{account}.dfs.{suffix}{tail}"
        return Location(canonical, scheme, box, prefix, account, suffix)
    return Location(f"{scheme}://{authority}{tail}", scheme, authority, prefix)


def _local(path: str) -> Location:
    # Symbolic links stay: the user's name of the place is the one that messages should show.
    absolute = os.path.abspath(path)  # noqa: PTH100 - Path.absolute keeps '..'
    absolute = "/" + absolute.lstrip("/")  # POSIX lets two leading slashes stand
    return Location(absolute, "file", "", absolute)


def _file_uri(text: str, after_scheme: str) -> Location:
    if after_scheme.startswith("//"):
        host, slash, path = after_scheme[2:].partition("/")
        if host not in ("", "localhost") or not slash:
            raise StorageError(f"'{_shown(text)}' names another host: write file:///path")
        after_scheme = "/" + path
    decoded = unquote(after_scheme, errors="strict")
    if "\0" in decoded:
        raise UnsupportedUriError(_shown(text), supported=sorted(_SCHEMES))
    return _local(decoded)


def _refuse_secrets(text: str, scheme: str, authority: str, path: str) -> None:
    user = authority.rpartition("@")[0]
    azure_container = scheme == "az" and ":" not in user and "@" not in user
    if (user and not azure_container) or "?" in authority or "?" in path:
        raise StorageError(
            f"'{_shown(text)}' carries credentials or a query. Pass them as storage_options "
            "(in Spark: as options); a URI is written to logs and plans."
        )


def _shown(uri: str) -> str:
    """A URI that may be shown: user information and query are cut out."""
    scheme, separator, after_scheme = uri.partition("://")
    authority, slash, path = after_scheme.partition("/")
    if ":" in authority.rpartition("@")[0]:
        authority = "…@" + authority.rpartition("@")[2]
    return re.sub(r"\?.*", "?…", f"{scheme}{separator}{authority}{slash}{path}", flags=re.DOTALL)


# --- options ---------------------------------------------------------------------------------

SECRET_NAMES = r"(?i)secret|key|token|credential|password|sas|signature|connection_?string"
"""Keys whose values are never shown, as a pattern for Python and for Java."""
HIDDEN = "secret."
"""The prefix of an option whose value Spark would show in its event log."""
_SECRET = re.compile(SECRET_NAMES)
_URL_QUERY = re.compile(r"(https?://[^\s\"'?)>]*)\?[^\s\"')>]*")

_S3A = {
    "fs.s3a.access.key": "aws_access_key_id",
    "fs.s3a.secret.key": "aws_secret_access_key",
    "fs.s3a.session.token": "aws_session_token",
    "fs.s3a.endpoint.region": "aws_region",
}
_AZURE_KEY = re.compile(r"fs\.azure\.account\.key\.([^.]+)\..+", re.IGNORECASE)

# One request may take two minutes (a whole split over a slow line), but a server that says nothing
# for half a minute is given up. All retries of a request end after a minute and a half.
_CLIENT_DEFAULTS = {"timeout": "120s", "connect_timeout": "5s", "read_timeout": "30s"}
_RETRY_DEFAULTS: dict[str, object] = {
    "max_retries": 5,
    "retry_timeout": "90s",
    "init_backoff": "100ms",
    "max_backoff": "10s",
}


def own_names(options: Mapping[str, object], scheme: str) -> dict[str, object]:
    """Options with the keys of the Scala product under the names that stores read.

    Keys for stores of another scheme are left out: that product takes them with any address. Two
    spellings of an endpoint have to become one, because a store is told apart by its options.

    >>> own_names({"spark.indextables.aws.region": "eu"}, "s3")
    {'aws_region': 'eu'}
    """
    translated: dict[str, object] = {}
    settings: dict[str, object] = {}
    for name, value in options.items():
        key = storage_key(name)
        if key is None:
            settings[name] = value
        elif scheme in ("file", "memory") or key.scheme not in ("", scheme):
            continue
        elif key.option == "azure_connection_string":
            translated |= _connection(str(value))
        else:
            translated[key.option] = f"{text_of(value)}{key.unit}"
    return {**translated, **settings}


_CONNECTION = {
    "accountname": "azure_storage_account_name",
    "accountkey": "azure_storage_account_key",
    "sharedaccesssignature": "azure_storage_sas_token",
    "blobendpoint": "azure_storage_endpoint",
}


def _connection(text: str) -> dict[str, object]:
    """The parts of a connection string of Azure that a store reads."""
    parts = (part.partition("=") for part in text.split(";"))
    return {
        _CONNECTION[name.strip().lower()]: value.strip()
        for name, _, value in parts
        if name.strip().lower() in _CONNECTION
    }


def secrets(options: Mapping[str, object]) -> list[str]:
    """The values of secret keys; those of one or two characters would hide anything.

    >>> secrets({"aws_access_key_id": "AKIA1", "region": "eu"})
    ['AKIA1']
    """
    values = (str(value) for key, value in options.items() if _SECRET.search(key))
    return [value for value in values if len(value) > 2]


def scrub(message: str, options: Mapping[str, object]) -> str:
    """A library's message without secret values and without query strings, on one short line.

    >>> scrub("GET https://a/b?sig=x failed", {})
    'GET https://a/b?… failed'
    """
    # The first paragraph is followed by the library's debug print of the same error.
    for secret in secrets(options):
        message = message.replace(secret, "***")
    first = message.split("\n\nDebug source", 1)[0]
    return " ".join(_URL_QUERY.sub(r"\1?…", first).split())[:500].rstrip(".")


def client_settings(
    options: Mapping[str, object], *, uri: str
) -> tuple[dict[str, str], dict[str, Any]]:
    """Split options into the store's configuration and the retry policy, both with defaults."""
    config: dict[str, str] = dict(_CLIENT_DEFAULTS)
    retry = dict(_RETRY_DEFAULTS)
    for name, value in _translated(options, uri=uri).items():
        if name in _RETRY_DEFAULTS:
            retry[name] = value
        else:
            config[name] = value
    return config, {
        "max_retries": _count("max_retries", retry["max_retries"], uri=uri),
        "retry_timeout": _duration("retry_timeout", retry["retry_timeout"], uri=uri),
        "backoff": {
            "init_backoff": _duration("init_backoff", retry["init_backoff"], uri=uri),
            "max_backoff": _duration("max_backoff", retry["max_backoff"], uri=uri),
            "base": 2,
        },
    }


def original_name(key: str, options: Mapping[str, object]) -> str:
    """The user's spelling of a translated option, for a message."""
    return next((o for o in options if key in (o.lower(), _S3A.get(o.lower()))), key)


def _translated(options: Mapping[str, object], *, uri: str) -> dict[str, str]:
    """Hadoop names become object_store names; everything else passes in lower case."""
    lowered = {name.strip().lower(): value for name, value in options.items()}
    plain = {name: text_of(value) for name, value in lowered.items() if not name.startswith("fs.")}
    for name in (n for n in lowered if n.startswith("fs.")):
        value = text_of(lowered[name])
        if name in _S3A and uri.startswith("s3:"):
            plain[_S3A[name]] = value
        elif name == "fs.s3a.path.style.access":
            plain["aws_virtual_hosted_style_request"] = text_of(not _flag(name, value, uri=uri))
        elif name == "fs.s3a.endpoint":
            secure = _flag(name, lowered.get("fs.s3a.connection.ssl.enabled", True), uri=uri)
            if "://" not in value:
                value = f"{'https' if secure else 'http'}://{value}"
            plain["aws_endpoint"] = value
            # Hadoop needs no second switch for a plain-text endpoint.
            if value.startswith("http://"):
                plain.setdefault("allow_http", "true")
        elif name == "fs.s3a.connection.ssl.enabled" and "fs.s3a.endpoint" in lowered:
            continue
        elif (match := _AZURE_KEY.fullmatch(name)) and f"@{match[1]}." in uri:
            plain["azure_storage_account_key"] = value
        else:
            raise StorageOptionError(
                name,
                uri=uri,
                reason="no store reads it. Use the names of object_store or of Hadoop's S3A.",
            )
    return plain


def text_of(value: object) -> str:
    """An option's value as the text that stores read."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def _flag(name: str, value: object, *, uri: str) -> bool:
    text = text_of(value).lower()
    if text not in ("true", "false"):
        raise StorageOptionError(name, uri=uri, reason="expected true or false.")
    return text == "true"


def _count(name: str, value: object, *, uri: str) -> int:
    text = str(value)
    if not text.isdecimal():
        raise StorageOptionError(name, uri=uri, reason="expected a number of 0 or more.")
    return int(text)


def _duration(name: str, value: object, *, uri: str) -> timedelta:
    try:
        return timedelta(milliseconds=parse_duration_ms(value, name=name))
    except InvalidValueError:
        raise StorageOptionError(
            name, uri=uri, reason="expected a duration such as 500ms, 30s or 2m."
        ) from None
