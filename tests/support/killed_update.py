"""An update of an index in a process of its own, to be killed in the middle.

It reads one file a batch and says so after each commit to a table of the index, so that whoever
kills it knows how far it came. Nothing is waited for: the kill falls wherever the next step is.

    python killed_update.py STORAGE NAME TEMPORARY
"""

from __future__ import annotations

import sys
from typing import Any

import indextables
from indextables.ariadne import Index
from indextables.ariadne.build import tasks
from indextables.ariadne.store.place import DeltaPlace

SETTINGS = {
    "spark.master": "local[1]",
    "spark.ui.enabled": "false",
    "spark.driver.memory": "512m",
    "spark.sql.session.timeZone": "UTC",
    "spark.ariadne.largeIndexLimit": "2",
    "spark.ariadne.stagingConsolidationThreshold": "3",
}


def telling(method: Any) -> Any:
    """The same method, which prints the folder of its table when it is done."""

    def told(self: DeltaPlace, *arguments: Any, **named: Any) -> Any:
        result = method(self, *arguments, **named)
        sys.stdout.write(f"{method.__name__} {self.uri}\n")
        sys.stdout.flush()
        return result

    return told


def main(storage: str, name: str, temporary: str) -> None:
    """Update the index until killed, or done."""
    tasks._BATCH_FILES = 1
    for method in ("commit", "upsert"):
        setattr(DeltaPlace, method, telling(getattr(DeltaPlace, method)))
    spark = indextables.session(
        "killed",
        **SETTINGS,
        **{"spark.ariadne.storagePath": storage, "spark.sql.warehouse.dir": temporary},
    )
    spark.sparkContext.setLogLevel("OFF")
    Index(name).update()
    sys.stdout.write("done\n")


if __name__ == "__main__":
    main(*sys.argv[1:4])
