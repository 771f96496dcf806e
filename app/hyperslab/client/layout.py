"""Where the axes that come from the wire stand in a result."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True, slots=True)
class Layout:
    """``raw`` is the shape as it comes; ``split`` the same with axes of index arrays taken apart; ``order`` its
    transposition; ``shape`` the result, with axes of length 1 put in. Nothing is copied on the way.
    """

    raw: tuple[int, ...]
    split: tuple[int, ...]
    order: tuple[int, ...]
    shape: tuple[int, ...]

    @classmethod
    def plain(cls, raw: tuple[int, ...], shape: tuple[int, ...] | None = None) -> Layout:
        """Axes stay where they are; ``shape`` may only add or drop axes of length 1."""
        return cls(raw, raw, tuple(range(len(raw))), raw if shape is None else shape)

    @classmethod
    def from_labels(
        cls, raw: tuple[int, ...], found: Sequence[int], wanted: Sequence[int | None], sizes: Mapping[int, int]
    ) -> Layout:
        """``found`` names the axes in ``raw`` one by one, ``wanted`` those of the result (None: an axis of length
        1)."""
        order = tuple(found.index(label) for label in wanted if label in found)
        shape = tuple(1 if label is None else sizes[label] for label in wanted)
        return cls(raw, tuple(sizes[label] for label in found), order, shape)

    def to_result(self, raw: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        """A view of ``raw`` in the result's shape."""
        if self.raw == self.shape and self.order == tuple(range(len(self.raw))):
            return raw
        return raw.reshape(self.split).transpose(self.order).reshape(self.shape)

    def to_raw(self, result: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        """The values of ``result`` as they go over the wire; a view where numpy can give one."""
        transposed = result.reshape(tuple(self.split[i] for i in self.order))
        return transposed.transpose(np.argsort(self.order)).reshape(self.raw)
