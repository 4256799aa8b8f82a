"""A stream into an index table in a process of its own, to be killed with all its processes.

    python killed_stream.py FOLDER

It reads FOLDER/in, a file a batch, into FOLDER/t, with FOLDER/c as its checkpoint.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

SETTINGS = {
    "spark.master": "local[1]",
    "spark.ui.enabled": "false",
    "spark.driver.memory": "512m",
    "spark.sql.session.timeZone": "UTC",
}


def main(folder: str) -> None:
    """Run until all files are read, or until killed."""
    import indextables

    warehouse = {"spark.sql.warehouse.dir": f"{folder}/warehouse"}
    spark = indextables.session("killed", **SETTINGS, **warehouse)
    spark.sparkContext.setLogLevel("OFF")
    lines = spark.readStream.option("maxFilesPerTrigger", 1).text(f"{folder}/in")
    writer = lines.writeStream.format("indextables").option("checkpointLocation", f"{folder}/c")
    query = writer.trigger(availableNow=True).start(f"{folder}/t")
    query.awaitTermination()
    assert query.exception() is None


def run(folder: Path, until: Callable[[], bool] = lambda: False) -> bool:
    """Run the stream in a session of its own, and kill that when it is time; whether it ended."""
    command = [sys.executable, __file__, str(folder)]
    process = subprocess.Popen(command, start_new_session=True, stderr=subprocess.DEVNULL)
    while process.poll() is None:
        if until():
            for number in _processes_of(process.pid):
                os.kill(number, signal.SIGKILL)
            process.wait()
            return False
        time.sleep(0.001)  # there is nothing that tells when a file appears
    assert process.returncode == 0
    return True


def _processes_of(session: int) -> list[int]:
    """The JVM and the workers of Python are in the session, some in groups of their own."""
    found = []
    for place in Path("/proc").iterdir():
        if place.name.isdecimal():
            try:
                fields = (place / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue  # it ended meanwhile
            if int(fields[3]) == session:
                found.append(int(place.name))
    return found


if __name__ == "__main__":
    main(sys.argv[1])
