"""What lies in a log directory: version files, checkpoints, states.

A full listing answers everything. To find what is new after a known version, two listings that
start there are enough, however long the log is.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from indextables.log import names
from indextables.storage import ObjectMeta, Store


@dataclass(slots=True)
class LogListing:
    """Objects of a log by version. `states` holds the manifest list of each Avro state."""

    versions: dict[int, ObjectMeta] = field(default_factory=dict)
    checkpoints: dict[int, ObjectMeta] = field(default_factory=dict)
    parts: dict[int, list[ObjectMeta]] = field(default_factory=dict)
    states: dict[int, ObjectMeta] = field(default_factory=dict)

    @property
    def latest(self) -> int:
        """The newest version there is any trace of, or -1."""
        return max((*self.versions, *self.checkpoints, *self.states), default=-1)

    def take(self, objects: Iterable[ObjectMeta]) -> LogListing:
        """Sort these objects in; what is none of the log's files is passed over."""
        for meta in objects:
            folder, _, name = meta.path.removeprefix(names.LOG_DIRECTORY + "/").rpartition("/")
            if not folder:
                self._take_file(name, meta)
            elif name == names.STATE_MANIFEST and (state := names.parse_state(folder)) is not None:
                self.states[state] = meta
        return self

    def _take_file(self, name: str, meta: ObjectMeta) -> None:
        if (version := names.parse_version(name)) is not None:
            self.versions[version] = meta
        elif (version := names.parse_checkpoint(name)) is not None:
            self.checkpoints[version] = meta
        elif (part := names.parse_checkpoint_part(name)) is not None:
            self.parts.setdefault(part[0], []).append(meta)


def list_log(store: Store) -> LogListing:
    """Everything in the log, in one paginated listing."""
    return LogListing().take(store.list(names.LOG_DIRECTORY))


def list_log_after(store: Store, version: int) -> LogListing:
    """The files of this version and later ones.

    Names of version files sort before all others in the log and states sort after them, so both
    parts are contiguous in a listing: an old log costs no more than a young one.
    """
    listing = LogListing()
    # '00…07.' sorts before both '00…07.json' and '00…07.checkpoint.json'.
    start = f"{names.LOG_DIRECTORY}/{version:020d}."
    for meta in store.list(names.LOG_DIRECTORY, start_after=start):
        if not meta.path[len(names.LOG_DIRECTORY) + 1 :][:1].isdigit():
            break
        listing.take([meta])
    before = f"{names.LOG_DIRECTORY}/{names.state_directory_name(version)}"
    return listing.take(store.list(names.LOG_DIRECTORY, start_after=before))


def list_states(store: Store) -> dict[int, ObjectMeta]:
    """The Avro states alone; no version file is listed."""
    before = f"{names.LOG_DIRECTORY}/{names.state_directory_name(0)}"
    return LogListing().take(store.list(names.LOG_DIRECTORY, start_after=before)).states
