"""A group and what lies below it, drawn for people."""

from __future__ import annotations

import html
from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Tree:
    """Prints as a tree, in notebooks too."""

    label: str
    branches: tuple[Tree, ...] = ()

    def __str__(self) -> str:
        return "\n".join([self.label, *self._lines("")])

    def __repr__(self) -> str:
        return str(self)

    def _repr_html_(self) -> str:
        return f"<pre>{html.escape(str(self))}</pre>"

    def _lines(self, indent: str) -> Iterator[str]:
        for i, branch in enumerate(self.branches):
            last = i == len(self.branches) - 1
            yield f"{indent}{'└── ' if last else '├── '}{branch.label}"
            yield from branch._lines(indent + ("    " if last else "│   "))
