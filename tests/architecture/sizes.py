"""``python -m tests.architecture.sizes``: how long modules and functions are, longest first."""

from __future__ import annotations

import ast
import statistics
from collections.abc import Iterator

from tests.architecture.sources import Module, modules


def functions(module: Module) -> Iterator[tuple[int, str]]:
    """Lines and name of each function."""
    for node in ast.walk(module.tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield (node.end_lineno or node.lineno) - node.lineno + 1, f"{module.name}.{node.name}"


def main() -> None:
    sizes = sorted((len(m.path.read_text(encoding="utf-8").splitlines()), m.name or "hyperslab") for m in modules())
    lengths = sorted(found for module in modules() for found in functions(module))
    lines = [length for length, _ in lengths]
    deciles = statistics.quantiles(lines, n=10)
    print(f"{len(sizes)} modules, {sum(size for size, _ in sizes)} lines; {len(lines)} functions:", end=" ")
    print(f"median {statistics.median(lines):.0f}, 90th percentile {deciles[-1]:.0f}, longest {lines[-1]} lines")
    for title, rows in (("modules", sizes), ("functions", lengths)):
        print(f"\nlongest {title}")
        for size, name in reversed(rows[-10:]):
            print(f"{size:6} {name}")


if __name__ == "__main__":
    main()
