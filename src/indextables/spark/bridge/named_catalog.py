"""What every catalog of ours answers in the same way."""

from __future__ import annotations

from indextables.spark.bridge.jvm import Comparable, JavaObject, Jvm


class NamedCatalog(Comparable):
    """A catalog by its name, without abilities beyond those of its interfaces."""

    def __init__(self, java: Jvm, name: str) -> None:
        self.java = java
        self._name = name

    def key(self) -> str:
        return f"Catalog {self._name}"

    def initialize(self, name: str, _options: JavaObject) -> None:
        self._name = name

    def name(self) -> str:
        return self._name

    def capabilities(self) -> JavaObject:
        return self.java.empty_set

    def tableStateOptionKeys(self) -> JavaObject:  # noqa: N802
        return self.java.empty_set

    def changelogStateOptionKeys(self) -> JavaObject:  # noqa: N802
        return self.java.empty_set

    def useNullableQuerySchema(self) -> bool:  # noqa: N802
        return True
