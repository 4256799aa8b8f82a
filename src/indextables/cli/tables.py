"""From a name in SQL to a table: by `--table`, by its place, or by its folder."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from indextables.cli.settings import Settings
from indextables.config import Config
from indextables.errors import StatementError
from indextables.statements.forms import Target
from indextables.statements.session import Session
from indextables.storage import open_store
from indextables.table import Table

_CATALOGS = ("indextables", "tantivy4spark")


@dataclass(frozen=True, slots=True)
class Tables:
    """Opens tables by the names that a statement or a query uses."""

    settings: Settings
    names: Mapping[str, str] = field(default_factory=dict)

    def open(
        self, parts: tuple[str, ...], version: int | None = None, as_of: str | None = None
    ) -> Table:
        """The table of a name: `docs`, or indextables.`s3://bucket/docs`."""
        return self.settings.open(self.uri(parts), version=version, as_of=as_of)

    def uri(self, parts: tuple[str, ...]) -> str:
        """The place of a table.

        >>> Tables(Settings(), {"d": "s3://bucket/docs"}).uri(("d",))
        's3://bucket/docs'
        """
        if len(parts) == 2 and parts[0].lower() in _CATALOGS:
            return self.names.get(parts[1], parts[1])
        if len(parts) == 1:
            return self.names.get(parts[0], parts[0])
        name = ".".join(parts)
        raise StatementError(
            f"There is no catalog here for '{name}'. Write the name of a folder, a place in "
            "quotes, or a name that --table gives."
        )

    def resolve(self, target: Target) -> Table:
        """The table of a statement."""
        if target.path is not None:
            return self.settings.open(target.path)
        return self.open(target.name)

    @property
    def session(self) -> Session:
        """What carrying out a statement needs."""
        options = self.settings.storage_options
        return Session(
            resolve=self.resolve,
            config=Config(self.settings.config),
            open_store=lambda uri: open_store(uri, options),
        )
