"""A standalone Spark cluster on loopback: a master and two workers, each a process of its own."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path


@contextlib.contextmanager
def standalone(folder: Path, *, workers: int = 2) -> Iterator[str]:
    """The URL of a master that has this many workers with one core each."""
    import pyspark

    home = Path(pyspark.__file__).parent
    port = _free_port()
    url = f"spark://127.0.0.1:{port}"
    running: list[subprocess.Popen[bytes]] = []

    def start(name: str, main: str, *arguments: str) -> None:
        environment = {
            **os.environ,
            "SPARK_HOME": str(home),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_DAEMON_MEMORY": "512m",
        }
        # It replaces itself by Java, so that ending it ends the daemon.
        command = ["bash", str(home / "bin" / "spark-class"), main, *arguments]
        with (folder / f"{name}.log").open("wb") as log:
            running.append(subprocess.Popen(command, stdout=log, stderr=log, env=environment))

    try:
        master = "org.apache.spark.deploy.master.Master"
        start("master", master, "-h", "127.0.0.1", "-p", str(port), "--webui-port", "0")
        for number in range(workers):
            start(
                f"worker-{number}", "org.apache.spark.deploy.worker.Worker", url,
                "-h", "127.0.0.1", "-c", "1", "-m", "1g", "--webui-port", "0",
                "-d", str(folder / f"work-{number}"),
            )  # fmt: skip
        yield url
    finally:
        for process in reversed(running):
            process.terminate()
        for process in running:
            process.wait(timeout=60)


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
        return port
