"""Objects as a body: how many bytes they are shows only when they are read."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from hyperslab.api.bodies import Ready
from hyperslab.api.headers import cost_headers
from hyperslab.api.reply import Headers
from hyperslab.api.values_out import add_objects
from hyperslab.arrays.cost import Cancel, ReadCost
from hyperslab.arrays.limits import boxes_that_fit
from hyperslab.arrays.plan import ReadPlan
from hyperslab.arrays.read import Reader
from hyperslab.engine.indexing import split_rows
from hyperslab.errors import TooLarge
from hyperslab.wire import Packer

_PART: Final = 1 << 20
"""Bytes of references that are read before what they refer to is measured."""
_REFERENCE: Final = np.dtype(object).itemsize


@dataclass(frozen=True, slots=True)
class ObjectBody:
    """A planned read of objects; ``limit`` is the most bytes of their binary form that one answer may come to.

    ``encode`` makes another form than the binary one.
    """

    reader: Reader
    plan: ReadPlan
    encode: Callable[[NDArray[Any]], bytes] | None
    limit: int
    timings: dict[str, float]

    def produce(self, cancel: Cancel) -> Ready:
        """Read everything and encode it; blocks. Raises `TooLarge` (a single object never is) and `NotRepresentable`.

        Memory is bounded by the limit and what some chunks decode to, whatever all of them would.
        """
        cost, packer = ReadCost(), Packer()
        cached = self.reader.count_cached(self.plan)
        values = np.empty(self.plan.shape, object)
        flat = values.reshape(-1)
        grid = self.plan.array.metadata.grid
        for part, start, stop in split_rows(self.plan.selection, (), itemsize=_REFERENCE, grid=grid, limit_bytes=_PART):
            done = stop // _REFERENCE
            out = flat[start // _REFERENCE : done].reshape(part.shape)
            self.reader.fill_slab(self.plan, part, out, cost=cost, cancel=cancel)
            add_objects(packer, out)
            if packer.nbytes > self.limit and values.size > 1:
                raise self._too_large(packer.nbytes, done)
        body = packer.finish() if self.encode is None else self.encode(values)
        headers = cost_headers(self.plan.touched, cached, cost, self.timings)
        return Ready(body, headers, cost.moved)

    def head(self) -> Headers:
        """The cost headers of an answer without a body."""
        return cost_headers(self.plan.touched, self.reader.count_cached(self.plan), None, self.timings)

    def _too_large(self, nbytes: int, items: int) -> TooLarge:
        """With boxes that fit if the items that were not read yet are like those that were."""
        each = -(-nbytes // items)
        selection = self.plan.selection
        boxes = boxes_that_fit(self.plan.array, selection, each, self.limit)
        return TooLarge("a selection of objects, as raw", each * selection.size, self.limit, boxes=boxes)
