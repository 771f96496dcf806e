"""Pictures that were opened, and the nodes whose documents they were made of."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from threading import Lock
from typing import Final, NamedTuple

from hyperslab.arrays.catalog import Node
from hyperslab.tiles.picture import Picture

_MOST_KEPT: Final = 4096


class Made(NamedTuple):
    """A picture, and all that it was made of: it is the same while ``nodes`` are."""

    picture: Picture
    nodes: Sequence[Node]

    @property
    def documents(self) -> Mapping[str, str | None]:
        """The keys of all documents and their versions; empty where not all are known."""
        if not all(node.documents for node in self.nodes):
            return {}
        return {key: version for node in self.nodes for key, version in node.documents.items()}


class Opened:
    """Keeps some thousand pictures by path and field. Safe to call from many threads."""

    def __init__(self) -> None:
        self._made: OrderedDict[tuple[str, str | None], Made] = OrderedDict()
        self._lock = Lock()

    def get(self, path: str, field: str | None) -> Made | None:
        """What was kept last; it may have changed since."""
        with self._lock:
            return self._made.get((path, field))

    def keep(self, path: str, field: str | None, made: Made) -> Picture:
        """Keep a picture, and return the one that stands for it: two may open it at once."""
        with self._lock:
            before = self._made.get((path, field))
            if before is not None and _are_same(before.nodes, made.nodes):
                return before.picture
            self._made[path, field] = made
            self._made.move_to_end((path, field))
            while len(self._made) > _MOST_KEPT:
                self._made.popitem(last=False)
        return made.picture


def _are_same(nodes: Sequence[Node], others: Sequence[Node]) -> bool:
    """Whether they are the same nodes in the same states."""
    return [(node.path, node.version) for node in nodes] == [(node.path, node.version) for node in others]
