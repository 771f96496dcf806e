"""Limits: a budget of bytes for answers under way, and selections cut so that their parts fit."""

from __future__ import annotations

from itertools import islice
from math import prod
from threading import Lock

from hyperslab.arrays.nodes import ArrayNode
from hyperslab.engine.dtypes import Field
from hyperslab.engine.indexing import IndexAxis, ListAxis, Selection, SliceAxis, split_rows
from hyperslab.errors import TooLarge
from hyperslab.wire import SelectionItem, format_selection


class BytesInFlight:
    """A budget of bytes that answers under way may hold. Nobody waits in here: who gets False tries again later."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._held = 0
        self._lock = Lock()

    def try_reserve(self, nbytes: int, own: int = 0) -> bool:
        """Take ``nbytes`` of the budget beside one's ``own``, or nothing. What is larger than all of it goes alone."""
        with self._lock:
            if self._held > own and self._held + nbytes > self.limit:
                return False
            self._held += nbytes
            return True

    def release(self, nbytes: int) -> None:
        with self._lock:
            self._held -= nbytes

    @property
    def held(self) -> int:
        return self._held

    @property
    def room(self) -> int:
        """What is left at the moment."""
        return max(0, self.limit - self._held)


def too_many_chunks(  # noqa: PLR0917
    what: str, array: ArrayNode, selection: Selection, field: Field | None, count: int, most: int
) -> TooLarge:
    """The error, with a split, for a selection that touches ``count`` chunks where ``most`` are allowed."""
    item = prod(field.shape) * field.numpy.itemsize if field is not None else array.metadata.itemsize
    share = max(selection.size * item * most // count, 1)
    boxes = boxes_that_fit(array, selection, item, share, field)
    return TooLarge(f"the chunks of {what}", count, most, unit="chunks", boxes=boxes)


def boxes_that_fit(
    array: ArrayNode, selection: Selection, item_bytes: int, limit: int, field: Field | None = None
) -> list[str]:
    """Selection texts that together make up ``selection``, each of at most ``limit`` bytes, cut on chunk edges.

    ``item_bytes`` is the size of one element of the answer, subarray dimensions included. At most 1000 of them are
    listed. What is taken of the subarray of ``field`` is taken in all of them.
    """
    inner = () if field is None or field.part is None else field.part.axes
    parts = split_rows(selection, (), itemsize=item_bytes, grid=array.metadata.grid, limit_bytes=limit)
    return [format_selection([*map(_axis_item, (*part.axes, *inner))]) for part, _, _ in islice(parts, 1000)]


def _axis_item(axis: IndexAxis | SliceAxis | ListAxis) -> SelectionItem:
    if isinstance(axis, IndexAxis):
        return axis.index
    if isinstance(axis, ListAxis):
        return [int(i) for i in axis.indices]
    if axis.count == 0:
        return slice(0, 0)
    stop = axis.start + axis.step * axis.count
    # a negative step that ends at the first item has no stop that text can say: None is the only one
    return slice(axis.start, None if stop < 0 else stop, None if axis.step == 1 else axis.step)
