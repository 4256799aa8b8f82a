"""What a statement needs of whoever runs it: tables by name, configuration, processes to run in."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from indextables.config import Config
from indextables.runner import Runner
from indextables.statements.forms import Target
from indextables.statements.hosts import Hosts, ThisProcess
from indextables.storage import Store, open_store
from indextables.table import Table

Resolver = Callable[[Target], Table]


@dataclass(frozen=True)
class Session:
    """What a statement needs of whoever runs it.

    `runner` does the tasks of jobs; without one, each job uses threads of this process. Times
    without a time zone are meant in `timezone`.
    """

    resolve: Resolver
    config: Config = field(default_factory=Config)
    hosts: Hosts = field(default_factory=ThisProcess)
    properties: Mapping[str, object] = field(default_factory=dict, repr=False)
    runner: Runner | None = None
    timezone: str = "UTC"
    open_store: Callable[[str], Store] = open_store
