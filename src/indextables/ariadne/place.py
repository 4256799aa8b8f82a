"""The parts of one index in its storage: metadata, tables, the file list."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property

from indextables.ariadne.context import Context
from indextables.ariadne.delta import DeltaPlace
from indextables.ariadne.file_list import FileList
from indextables.ariadne.layout import large_folder
from indextables.ariadne.metadata import MetadataFile
from indextables.errors import AriadneArgumentError
from indextables.storage import Store

FOLDER = "indexes"
STAGING_FOLDER = "staging"
_BAD_NAME = re.compile(r"[/\\\0\[\]%]")


def check_name(name: str) -> str:
    """Return the name of an index, or refuse one that is no name of a folder.

    >>> check_name("v2.final")
    'v2.final'
    """
    problems = []
    if not isinstance(name, str) or not name.strip():
        problems.append("it is empty")
    else:
        if found := sorted(set(_BAD_NAME.findall(name))):
            problems.append(f"it holds {', '.join(map(repr, found))}")
        if name.startswith("."):
            problems.append("it starts with a dot")
        if ".." in name:
            problems.append("it holds '..'")
    if problems:
        raise AriadneArgumentError(f"{name!r} cannot be the name of an index", problems)
    return name


@dataclass(frozen=True)
class IndexPlace:
    """Where one index is kept."""

    context: Context
    name: str

    @property
    def uri(self) -> str:
        """The folder of the index."""
        return f"{self.context.root}/{FOLDER}/{self.name}"

    @cached_property
    def store(self) -> Store:
        """The objects of the index."""
        return self.context.store(self.uri)

    @cached_property
    def metadata(self) -> MetadataFile:
        """metadata.json."""
        return MetadataFile(self.store)

    @cached_property
    def files(self) -> FileList:
        """The list of registered files."""
        return FileList(self.context, self.name)

    @cached_property
    def main(self) -> DeltaPlace:
        """The table of one row a file."""
        return self.table("index")

    def large(self, column: str) -> DeltaPlace:
        """The large table of a column."""
        return self.table(large_folder(column))

    def staging(self, batch: str) -> DeltaPlace:
        """The table of one staged batch."""
        return self.table(f"{STAGING_FOLDER}/{batch}")

    def exists(self) -> bool:
        """Whether anything of the index is there, its file list included."""
        return next(self.store.list(), None) is not None or self.files.exists()

    def table(self, folder: str) -> DeltaPlace:
        """The Delta table in a folder of the index."""
        uri = f"{self.uri}/{folder}"
        return DeltaPlace(uri, self.context.delta_options(uri))
