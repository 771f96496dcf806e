"""Limits: a budget of bytes for answers under way, and selections cut so that their parts fit."""

from __future__ import annotations

from dataclasses import replace
from itertools import islice
from math import prod
from threading import Lock

from hyperslab.arrays.nodes import ArrayNode
from hyperslab.engine.dtypes import Field
from hyperslab.engine.indexing import IndexAxis, ListAxis, Selection, SliceAxis, split_rows
from hyperslab.errors import TooLarge
from hyperslab.wire import SelectionItem, format_selection

_MOST_BOXES = 1000
_MOST_BYTES = 2**63 - 1


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


def check_countable(shape: tuple[int, ...], itemsize: int) -> None:
    """Raise `TooLarge` for a selection whose bytes 63 bits do not count, and for an empty one that would be so without
    its empty axes: numpy has no such arrays."""
    nbytes = prod(size or 1 for size in shape) * itemsize
    if nbytes > _MOST_BYTES:
        raise TooLarge("a selection", nbytes, _MOST_BYTES)


def check_readable(array: ArrayNode, selection: Selection, inner: tuple[int, ...], itemsize: int) -> None:
    """`check_countable` of a selection of an array, with a split; ``inner`` are a field's subarray dimensions."""
    try:
        check_countable(selection.shape + inner, itemsize)
    except TooLarge as error:
        boxes = boxes_that_fit(array, selection, prod(inner) * itemsize, error.limit)
        raise replace(error, boxes=boxes) from None


def check_chunk_count(
    what: str, array: ArrayNode, selection: Selection, field: Field | None, *, count: int, most: int
) -> None:
    """Raise `TooLarge`, with a split, where a selection that touches ``count`` chunks touches more than ``most``."""
    if count <= most:
        return
    item = prod(field.shape) * field.numpy.itemsize if field is not None else array.metadata.itemsize
    share = max(selection.size * item * most // count, 1)
    boxes = boxes_that_fit(array, selection, item, share, field)
    raise TooLarge(f"the chunks of {what}", count, most, unit="chunks", boxes=boxes)


def boxes_that_fit(
    array: ArrayNode, selection: Selection, item_bytes: int, limit: int, field: Field | None = None
) -> list[str]:
    """Selection texts that together make up ``selection``, each of at most ``limit`` bytes, cut on chunk edges.

    ``item_bytes`` is the size of one element of the answer, subarray dimensions included. At most 1000 of them are
    listed. What is taken of the subarray of ``field`` is taken in all of them.
    """
    inner = "" if field is None or field.part is None else selection_text(field.part)
    parts = split_rows(selection, (), itemsize=item_bytes, grid=array.metadata.grid, limit_bytes=limit)
    texts = [selection_text(part) for part, _, _ in islice(parts, _MOST_BOXES)]
    return [",".join(filter(None, (text, inner))) for text in texts]


def selection_text(selection: Selection) -> str:
    """The text that selects the same of an array as ``selection``, axis by axis, and keeps the same axes."""
    return format_selection([_axis_item(axis) for axis in selection.axes])


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
