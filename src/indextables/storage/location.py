"""From the URI of a table to the store that serves it, one spelling per table.

Caches, logs and messages name a table by its canonical URI: `file:///data/docs/`, `/data/docs` and
`docs` in the folder `/data` are one table. Only `file:` URIs are percent-decoded; the keys of an
object store are literal, as Hadoop and the vendors' tools read them. A URI with a secret inside is
refused, because URIs travel into logs and plans.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from urllib.parse import unquote

from indextables.errors import StorageError, UnsupportedUriError

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):(?=/)")
_AZURE_HOST = re.compile(r"([^@/:]+)@([^@/:.]+)\.(?:dfs|blob)\.([^@/:]+)")

# What users write, and the one name we use for it.
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
    """The one spelling of a table's URI.

    >>> canonical_uri("s3a://bucket/docs//"), canonical_uri("file:///data/docs/")
    ('s3://bucket/docs', '/data/docs')
    >>> canonical_uri("wasbs://box@acme.blob.core.windows.net/docs")
    'abfss://box@acme.dfs.core.windows.net/docs'
    """
    return parse_location(uri).uri


def parse_location(uri: str | os.PathLike[str]) -> Location:
    """Take a URI or a local path apart. `UnsupportedUriError` if no store serves it."""
    text = os.fspath(uri)
    match = _SCHEME.match(text)
    if match is None:
        if "://" in text.split("/", 1)[0] or not text or "\0" in text:
            raise UnsupportedUriError(_shown(text), supported=sorted(_SCHEMES))
        return _local(text)
    scheme = _SCHEMES.get(match[1].lower())
    if scheme is None:
        raise UnsupportedUriError(_shown(text), supported=sorted(_SCHEMES))
    rest = text[match.end() :]
    if scheme == "file":
        return _file_uri(text, rest)
    if not rest.startswith("//"):
        raise StorageError(f"'{_shown(text)}' names no bucket or host: write {match[1]}://…")
    authority, _, path = rest[2:].partition("/")
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


def _file_uri(text: str, rest: str) -> Location:
    if rest.startswith("//"):
        host, slash, path = rest[2:].partition("/")
        if host not in ("", "localhost") or not slash:
            raise StorageError(f"'{_shown(text)}' names another host: write file:///path")
        rest = "/" + path
    decoded = unquote(rest, errors="strict")
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
    scheme, separator, rest = uri.partition("://")
    authority, slash, path = rest.partition("/")
    if ":" in authority.rpartition("@")[0]:
        authority = "…@" + authority.rpartition("@")[2]
    return re.sub(r"\?.*", "?…", f"{scheme}{separator}{authority}{slash}{path}", flags=re.DOTALL)
