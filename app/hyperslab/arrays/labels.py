"""Coordinates: arrays beside another or above it, under the names of its dimensions, and positions by their labels."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from hyperslab.arrays.catalog import Catalog
from hyperslab.arrays.nodes import ArrayNode
from hyperslab.arrays.read import Reader
from hyperslab.arrays.workers import Cancel
from hyperslab.cache import VersionedCache
from hyperslab.engine.selection import normalise
from hyperslab.errors import (
    BadParameter,
    LabelNotFound,
    NoCoordinate,
    TooLarge,
)
from hyperslab.wire.labels import Method, Positions, each_position, label_text, parse_label, positions

MAX_VALUES: Final = 1 << 22
"""The most values of a coordinate that labels are looked for in."""


@dataclass(frozen=True, slots=True)
class Coordinate:
    """Decoded values along the dimension ``name`` of the array at ``path``; ``dates``: they are text in the form of
    dates."""

    path: str
    name: str
    values: NDArray[Any]
    dates: bool

    def find(self, label: Any, method: Method | None, text: str) -> Positions:
        """The positions of a label (see `positions`), which ``text`` has asked for; ranges need no ``method``."""
        try:
            return positions(self.values, label, method=None if isinstance(label, slice) else method, dates=self.dates)
        except (KeyError, ValueError) as error:
            raise self._refusal(error, label, text) from error

    def find_each(self, labels: Sequence[Any], method: Method | None) -> NDArray[np.int64]:
        """The position of each label."""
        try:
            return each_position(self.values, labels, method)
        except (KeyError, ValueError) as error:
            raise self._refusal(error, None, self.name) from error

    def _refusal(self, error: Exception, label: Any, text: str) -> BadParameter | LabelNotFound:
        if isinstance(error, ValueError):
            return BadParameter("sel", text[:200], f"labels of {self.name}: {error}")
        reason, one = (*error.args, label)[:2]  # of several, the error has the one
        return LabelNotFound(self.path, self.name, text[:200], str(reason), self._nearest(one))

    def _nearest(self, label: Any) -> list[str]:
        """Labels close to one that is not there, or the first and the last."""
        size = self.values.size
        nearest = [0, size - 1] if size else []
        if size and not isinstance(label, slice) and self.values.dtype.kind in "iufmM":
            found: set[int] = set()
            for method in ("pad", "backfill"):
                try:
                    found.add(int(each_position(self.values, [label], method)[0]))
                except (KeyError, ValueError):
                    continue
            nearest = sorted(found) or nearest
        return [label_text(self.values[i]) for i in dict.fromkeys(nearest)]


class Coordinates:
    """Reads the coordinates of arrays. Thread-safe; blocks on the store."""

    def __init__(self, catalog: Catalog, reader: Reader) -> None:
        self._catalog = catalog
        self._reader = reader
        self._decoded = VersionedCache[Coordinate](32 << 20)

    def choose(
        self,
        array: ArrayNode,
        sizes: Mapping[str, int],
        texts: Iterable[str],
        method: Method | None,
        cancel: Cancel | None = None,
    ) -> dict[str, Positions]:
        """Positions by name of dimension, for texts such as ``time:2001-01..2001-03``; ``sizes`` are those of the
        dimensions.

        Raises `BadParameter` (malformed, no such dimension, or one twice), `LabelNotFound`, `NoCoordinate`,
        `TooLarge`, and errors of the coordinate's store and documents.
        """
        positions: dict[str, Positions] = {}
        for text in texts:
            name, label = split_label(text, sizes)
            if name in positions:
                raise BadParameter("sel", text[:200], f"one label of {name}; several are a list, {name}:[…]")
            coordinate = self.open(array, name, sizes[name], text, cancel)
            try:
                parsed = parse_label(label)
            except ValueError as error:
                raise BadParameter(
                    "sel", text[:200], f"name:label, name:[label,label] or name:from..to: {error}"
                ) from None
            positions[name] = coordinate.find(parsed, method, text)
        return positions

    def open(
        self, array: ArrayNode, name: str, size: int, text: str | None = None, cancel: Cancel | None = None
    ) -> Coordinate:
        """The coordinate of an axis of ``size`` cells: an array of this shape under the name of the dimension, beside
        ``array`` or in a group above. Raises `NoCoordinate` without one, for the label in ``text``."""
        reason = f"no coordinate {name!r} is stored beside it or above: choose by position"
        missing = NoCoordinate(array.path, name, name if text is None else text[:200], reason, [])
        node = self._catalog.find_coordinate(array.path, name)
        if node is None:
            raise missing
        node = self._catalog.with_inherited(node)
        if node.metadata.shape != (size,) or node.metadata.dtype.fields:
            missing.reason = f"{node.path} is no coordinate of {size} values: choose by position"
            raise missing
        if size > MAX_VALUES:
            raise TooLarge("a coordinate", size, MAX_VALUES, unit="values")
        plan = self._reader.look_up(self._reader.plan(node, normalise((), (size,))), cancel)

        def load() -> tuple[Coordinate, str, int]:
            values, read = self._reader.read(plan, cancel)
            decoder = node.decoder if node.decoder.changes else None
            decoded = values if decoder is None else decoder(values)
            coordinate = Coordinate(array.path, name, decoded, decoder is not None and decoded.dtype.kind == "U")
            nbytes = decoded.nbytes * (9 if decoded.dtype.hasobject else 1)
            return coordinate, f"{node.path} {read.tag} {node.version}", nbytes + 512

        if node.head is not None:  # of a stream, whose newest values have no versions
            return load()[0]
        return self._decoded.load((array.path, name), f"{node.path} {plan.tag} {node.version}", load).value


def split_label(text: str, names: Iterable[str]) -> tuple[str, str]:
    """The dimension and the label in ``name:label``; raises `BadParameter`. Names may hold colons, as labels do."""
    name = max((candidate for candidate in names if text.startswith(f"{candidate}:")), key=len, default=None)
    if name is None:
        known_names = ", ".join(names) or "none: this array's have no names"
        raise BadParameter("sel", text[:200], f"name:label with the name of a dimension ({known_names})")
    return name, text[len(name) + 1 :]
