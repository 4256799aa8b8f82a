"""The shape of the code in figures: `python -m tools.house [SOURCE]`.

Modules and lines, modules that only one other imports, the longest chain of imports, and the uses
of PySpark's private API outside the bridge. `tests/test_layers.py` holds the limits.
"""

from __future__ import annotations

import ast
import functools
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parent.parent / "src"
PACKAGE = "indextables"

# Attributes of PySpark with which a classic session reaches its JVM.
PRIVATE = frozenset((
    "_jvm", "_jsc", "_sc", "_jsparkSession", "_jreader", "_jwrite", "_jdf", "_jc", "_jcol", "_jrdd",
    "_jmap", "_jconf", "_jschema", "_javaAccumulator", "_gateway", "_active_spark_context",
))  # fmt: skip


@dataclass(frozen=True)
class House:
    """The modules of the package by their dotted names, and what each imports."""

    lines: dict[str, int]
    imports: dict[str, frozenset[str]]
    private: dict[str, int]
    """Uses of PySpark's private API outside `spark.bridge`, by module."""

    @property
    def single_importers(self) -> list[str]:
        """Modules that exactly one other module imports."""
        users: dict[str, set[str]] = {}
        for module, imported in self.imports.items():
            for one in imported:
                users.setdefault(one, set()).add(module)
        return sorted(module for module, found in users.items() if len(found) == 1)

    @property
    def longest_chain(self) -> list[str]:
        """The longest way from a module down through its imports."""

        @functools.cache
        def longest(module: str) -> tuple[str, ...]:
            below = [longest(one) for one in sorted(self.imports[module])]
            return (module, *max(below, key=len, default=()))

        return list(max(map(longest, sorted(self.imports)), key=len))


def measure(root: Path = ROOT) -> House:
    """Read every module of the package."""
    paths = {_name(path, root): path for path in sorted((root / PACKAGE).rglob("*.py"))}
    lines, imports, private = {}, {}, {}
    for module, path in paths.items():
        text = path.read_text()
        tree = ast.parse(text)
        lines[module] = text.count("\n")
        imports[module] = frozenset(_imported(tree, paths.keys())) - {module}
        used = sum(_is_private(node) for node in ast.walk(tree))
        if used and ".spark.bridge" not in module:
            private[module] = used
    return House(lines, imports, private)


def _is_private(node: ast.AST) -> bool:
    """Whether a node names an attribute of PySpark's private API, in a text for `getattr` too."""
    name = getattr(node, "attr" if isinstance(node, ast.Attribute) else "value", None)
    return isinstance(name, str) and name in PRIVATE


def _name(path: Path, root: Path) -> str:
    return ".".join(path.relative_to(root).with_suffix("").parts).removesuffix(".__init__")


def _imported(tree: ast.Module, modules: object) -> set[str]:
    """The modules that are imported when this one is. What a function imports comes later."""
    found: set[str] = set()
    assert isinstance(modules, type({}.keys()))
    for node in _at_import(tree):
        if isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                whole = f"{node.module}.{alias.name}"
                found.add(whole if whole in modules else node.module)
        elif isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
    return found & set(modules)


def _at_import(tree: ast.Module) -> list[ast.AST]:
    found: list[ast.AST] = []
    waiting: list[ast.AST] = [tree]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            continue
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            continue
        found.append(node)
        waiting += ast.iter_child_nodes(node)
    return found


def main() -> None:
    """Print the figures."""
    house = measure(Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT)
    chain = house.longest_chain
    print(f"modules                     {len(house.lines):>7,}")
    print(f"lines                       {sum(house.lines.values()):>7,}")
    print(f"with a single importer      {len(house.single_importers):>7,}")
    print(f"longest chain of imports    {len(chain):>7,}")
    print(f"private API outside bridge  {sum(house.private.values()):>7,}")
    long = sorted(((n, m) for m, n in house.lines.items() if n > 400), reverse=True)
    print(f"modules above 400 lines     {len(long):>7,}")
    for count, module in long:
        print(f"  {count:>5}  {module}")
    print("\nthe longest chain\n  " + "\n  ".join(chain))


if __name__ == "__main__":
    main()
