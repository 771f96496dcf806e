"""A group and what lies below it, drawn for people."""

from __future__ import annotations

import html
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hyperslab.client.description import dtype_text, size_text
from hyperslab.errors import BrokenData, UnsupportedFormat

if TYPE_CHECKING:
    from hyperslab.client.group import RemoteGroup


@dataclass(frozen=True, slots=True)
class Tree:
    """Prints as a tree, in notebooks too."""

    label: str
    branches: tuple[Tree, ...] = ()

    @classmethod
    def of(cls, group: RemoteGroup, level: int | None) -> Tree:
        """Read the groups and arrays below ``group``, at most ``level`` deep; one request a node."""
        return cls(f"{group.name or '/'}/" if group.name else "/", tuple(_branches(group, level)))

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


def _branches(group: RemoteGroup, level: int | None) -> Iterator[Tree]:
    if level is not None and level <= 0:
        return
    below = None if level is None else level - 1
    for name, kind in group.children():
        try:
            yield Tree.of(group.open_group(name), below) if kind == "group" else Tree(_label(group, name))
        except BrokenData as error:
            what = "not read" if isinstance(error, UnsupportedFormat) else "broken"
            yield Tree(f"{name}, which is {what}: {error}")
        except KeyError:
            continue  # deleted since it was listed


def _label(group: RemoteGroup, name: str) -> str:
    try:
        array = group.open_array(name)
    except ModuleNotFoundError:  # the values need a library, what they are can be told without
        _, members, _ = group._find(name)
        return f"{name} {tuple(members['shape'])} {dtype_text(members)}"
    return f"{array.name} {array.shape} {array.dtype}, {size_text(array.nbytes)}"
