"""Object stores to test against, as processes on free ports of this machine.

S3 is moto, Azure Blob Storage is Azurite. A server starts when the first test wants it, one for
each pytest worker, and ends with the session. Azurite comes from npm and is kept in the user's
cache folder, where all workers and later runs find it.
"""

from __future__ import annotations

import contextlib
import fcntl
import http.client
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

_DEADLINE_SECONDS = 120

# The account that every Azurite knows; its key is public.
AZURITE_ACCOUNT = "devstoreaccount1"
AZURITE_KEY = (
    "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
)


@dataclass(frozen=True)
class Server:
    """A running object store: the URI of its bucket, and the options to reach it."""

    uri: str
    options: dict[str, str]


class ServerUnavailableError(Exception):
    """The server cannot run on this machine; the message says what is missing."""


@contextlib.contextmanager
def s3_server() -> Iterator[Server]:
    """moto with a bucket `tables`."""
    script = Path(__file__).with_name("s3_server.py")
    with _process([sys.executable, str(script)], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        port = int(process.stdout.readline() or _failed(process))
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=_DEADLINE_SECONDS)
        connection.request("PUT", "/tables")
        status = connection.getresponse().status
        connection.close()
        assert status == 200, f"moto refused to create a bucket: {status}"
        yield Server(
            "s3://tables",
            {
                "aws_access_key_id": "test",
                "aws_secret_access_key": "test-secret",
                "aws_region": "us-east-1",
                "aws_endpoint": f"http://127.0.0.1:{port}",
                "allow_http": "true",
            },
        )


@contextlib.contextmanager
def azure_server() -> Iterator[Server]:
    """Azurite with a container `tables`."""
    program = _azurite()
    port = _free_port()
    with tempfile.TemporaryDirectory(prefix="azurite-") as folder:
        command = [str(program), "--silent", "--skipApiVersionCheck", "--inMemoryPersistence"]
        command += ["--disableTelemetry", "--blobHost", "127.0.0.1", "--blobPort", str(port)]
        command += ["--blobKeepAliveTimeout", "600"]  # on a busy machine an answer takes its time
        with _process(command, cwd=folder) as process:
            deadline = time.monotonic() + _DEADLINE_SECONDS
            while not _listens(port):
                if process.poll() is not None or time.monotonic() > deadline:
                    _failed(process)
                time.sleep(0.05)
            endpoint = f"http://127.0.0.1:{port}/{AZURITE_ACCOUNT}"
            _create_container(port)
            yield Server(
                "az://tables",
                {
                    "azure_storage_account_name": AZURITE_ACCOUNT,
                    "azure_storage_account_key": AZURITE_KEY,
                    "azure_storage_endpoint": endpoint,
                    "allow_http": "true",
                },
            )


def _create_container(port: int) -> None:
    """Signed by hand: no Azure client is installed, and obstore creates no containers."""
    import base64
    import hashlib
    import hmac
    from email.utils import formatdate

    date = formatdate(usegmt=True)
    headers = f"x-ms-date:{date}\nx-ms-version:2021-12-02\n"
    resource = f"/{AZURITE_ACCOUNT}/{AZURITE_ACCOUNT}/tables\nrestype:container"
    text = "PUT" + "\n" * 12 + headers + resource
    digest = hmac.new(base64.b64decode(AZURITE_KEY), text.encode(), hashlib.sha256).digest()
    signature = base64.b64encode(digest).decode()
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=_DEADLINE_SECONDS)
    connection.request(
        "PUT",
        f"/{AZURITE_ACCOUNT}/tables?restype=container",
        headers={
            "x-ms-date": date,
            "x-ms-version": "2021-12-02",
            "Authorization": f"SharedKey {AZURITE_ACCOUNT}:{signature}",
            "Content-Length": "0",
        },
    )
    response = connection.getresponse()
    body = response.read()
    connection.close()
    assert response.status == 201, f"Azurite refused to create a container: {body!r}"


def cache() -> Path:
    """A folder for what tests install, which all workers and later runs find."""
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    folder = home / "indextables-tests"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


@contextlib.contextmanager
def installing() -> Iterator[None]:
    """One process at a time installs something, of all runs of this user."""
    with (cache() / "installing.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _azurite() -> Path:
    """Azurite's executable, installed once a user."""
    if shutil.which("node") is None:
        raise ServerUnavailableError("Node.js is not installed, so Azurite cannot run.")
    folder = cache() / "azurite"
    program = folder / "node_modules" / ".bin" / "azurite-blob"
    if program.exists():
        return program
    npm = shutil.which("npm")
    if npm is None:
        raise ServerUnavailableError("npm is not installed, so Azurite cannot be.")
    folder.mkdir(parents=True, exist_ok=True)
    with installing():
        if not program.exists():
            done = subprocess.run(
                # Without a network it should say so, and not try for minutes.
                [
                    npm,
                    "install",
                    "azurite",
                    "--no-audit",
                    "--no-fund",
                    "--fetch-retries=1",
                    "--fetch-retry-mintimeout=500",  # npm refuses one above the other
                    "--fetch-retry-maxtimeout=2000",
                    "--prefix",
                    str(folder),
                ],
                capture_output=True,
                text=True,
                timeout=600,
                check=False,
            )
            if done.returncode != 0 or not program.exists():
                raise ServerUnavailableError(f"npm install azurite failed: {done.stderr[-500:]}")
    return program


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextlib.contextmanager
def _process(command: Sequence[str], **options: Any) -> Iterator[subprocess.Popen[bytes]]:
    with (
        tempfile.TemporaryFile() as output,
        subprocess.Popen(command, stderr=output, **{"stdout": output, **options}) as process,
    ):
        try:
            yield process
        except RuntimeError as error:
            output.seek(0)
            error.add_note(output.read()[-2000:].decode(errors="replace"))
            raise
        finally:
            process.terminate()
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()


def _failed(process: subprocess.Popen[bytes]) -> NoReturn:
    raise RuntimeError(f"{process.args} did not start")


def _listens(port: int) -> bool:
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=1):
            return True
    except OSError:
        return False
