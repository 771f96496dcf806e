"""The package's own source, parsed: what the tests of its architecture look at."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "app" / "hyperslab"


@dataclass(frozen=True, slots=True)
class Module:
    """``name`` without the package's: ``engine.grid``; the package's own ``__init__`` is ``""``."""

    name: str
    path: Path
    tree: ast.Module

    @property
    def layer(self) -> str:
        return self.name.partition(".")[0]


@dataclass(frozen=True, slots=True)
class Import:
    """``target`` as written in full; ``where`` for people."""

    module: Module
    target: str
    line: int

    @property
    def where(self) -> str:
        return f"{self.module.path.relative_to(ROOT)}:{self.line} imports {self.target}"


@cache
def modules() -> tuple[Module, ...]:
    return tuple(_parse(path) for path in sorted(PACKAGE.rglob("*.py")))


@cache
def imports() -> tuple[Import, ...]:
    """Every import, those inside functions and under TYPE_CHECKING too."""
    return tuple(
        Import(module, target, node.lineno)
        for module in modules()
        for node in ast.walk(module.tree)
        if isinstance(node, ast.Import | ast.ImportFrom)
        for target in _targets(node)
    )


def importers() -> dict[str, set[str]]:
    """The modules that import each module of the package."""
    names = {module.name for module in modules()}
    found: dict[str, set[str]] = defaultdict(set)
    for each in imports():
        target = each.target.removeprefix("hyperslab").removeprefix(".")
        inner = target if target in names else target.rpartition(".")[0]
        if each.target.startswith("hyperslab") and inner != each.module.name:
            found[inner].add(each.module.name)
    return found


def layer_of(target: str) -> str | None:
    """The layer of our own that an import leads to; ``""`` for the package itself, None for other packages."""
    package, _, rest = target.partition(".")
    if package != "hyperslab":
        return None
    name = rest.partition(".")[0]
    return name if (PACKAGE / name).is_dir() or (PACKAGE / f"{name}.py").is_file() else ""


def _parse(path: Path) -> Module:
    parts = path.relative_to(PACKAGE).with_suffix("").parts
    name = ".".join(part for part in parts if part != "__init__")
    return Module(name, path, ast.parse(path.read_text(encoding="utf-8"), str(path)))


def _targets(node: ast.Import | ast.ImportFrom) -> Iterator[str]:
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    else:
        assert node.level == 0, f"relative import on line {node.lineno}"
        yield from (f"{node.module}.{alias.name}" for alias in node.names)
