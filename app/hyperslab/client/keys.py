"""What stands in the brackets, axis by axis."""

from __future__ import annotations

import operator
from collections.abc import Iterator, Sequence
from types import EllipsisType
from typing import Any, NamedTuple

import numpy as np

from hyperslab.errors import IndexOutOfRange, TooManyIndices

AnyArray = np.ndarray[Any, np.dtype[Any]]
IntArray = np.ndarray[Any, np.dtype[np.int64]]
Axis = int | range | IntArray
"""What is taken of one axis: one index (the axis is dropped), a range of them, or a 1-d array of them."""

_INVALID = (
    "only integers, slices (`:`), ellipsis (`...`), numpy.newaxis (`None`), field names and integer or boolean arrays "
    "are valid indices"
)


class Item(NamedTuple):
    """One item of a key: ``taken`` is an index, a range or an index array of ``axis``.

    Without an axis, a range is a new axis where it has length 1 and an ellipsis that stands for nothing where it has
    length 0 (it still parts index arrays, like any slice), and an array is a 0-d boolean.
    """

    taken: Axis
    axis: int | None


NOTHING = range(0)
NEW = range(1)


def plain_axes(key: Any, shape: Sequence[int]) -> tuple[int | range, ...] | None:
    """What most keys say, the short way: integers and slices, one for each axis; None for any other key."""
    parts = key if isinstance(key, tuple) else (key,)
    if len(parts) != len(shape):
        return None
    axes: list[int | range] = []
    for part, size in zip(parts, shape, strict=True):
        if type(part) is int and -size <= part < size:
            axes.append(part % size)
        elif type(part) is slice:
            axes.append(range(*part.indices(size)))
        else:
            return None
    return tuple(axes)


def read_key(key: Any, shape: Sequence[int]) -> list[Item]:
    """The items of a key, its ellipsis spelled out, in their order."""
    parts = [_read_part(part) for part in (key if isinstance(key, tuple) else (key,))]
    widths = [_axes_used(part) for part in parts]
    left = len(shape) - sum(widths)
    if left < 0:
        raise TooManyIndices(given=sum(widths), rank=len(shape))
    ellipses = [i for i, part in enumerate(parts) if part is Ellipsis]
    if len(ellipses) > 1:
        raise IndexError("an index can only have a single ellipsis ('...')")
    if ellipses:
        widths[ellipses[0]] = left
    elif left:
        parts.append(Ellipsis)
        widths.append(left)
    items: list[Item] = []
    axis = 0
    for part, width in zip(parts, widths, strict=True):
        items.extend(_items(part, axis, shape[axis : axis + width]))
        axis += width
    return items


_Part = int | slice | EllipsisType | AnyArray | None


def _read_part(part: Any) -> _Part:
    """One part of a key as one of few types: integers lose their numpy type, sequences become arrays."""
    if type(part) is int or part is None or part is Ellipsis or isinstance(part, slice):
        return part
    if hasattr(part, "__index__") and not isinstance(part, bool | np.bool_ | np.ndarray):
        return operator.index(part)
    array = np.asarray(part)
    if array.size == 0 and not isinstance(part, np.ndarray):
        array = array.astype(np.int64)
    if array.dtype.kind not in "biu":
        raise IndexError("arrays used as indices must be of integer (or boolean) type" if array.ndim else _INVALID)
    return array if array.ndim or array.dtype.kind == "b" else int(array)


def _axes_used(part: _Part) -> int:
    if isinstance(part, (int, slice)):
        return 1
    if part is None or part is Ellipsis:
        return 0
    return part.ndim if isinstance(part, np.ndarray) and part.dtype.kind == "b" else 1


def _items(part: _Part, axis: int, sizes: Sequence[int]) -> Iterator[Item]:
    """The items of one part, which covers the axes from ``axis`` on, of these sizes."""
    if isinstance(part, int):
        if not -sizes[0] <= part < sizes[0]:
            raise IndexOutOfRange(axis=axis, index=part, size=sizes[0])
        yield Item(part % sizes[0], axis)
    elif isinstance(part, slice):
        yield Item(range(*part.indices(sizes[0])), axis)
    elif part is None:
        yield Item(NEW, None)
    elif isinstance(part, EllipsisType):
        yield from (Item(range(size), axis + i) for i, size in enumerate(sizes))
        if not sizes:
            yield Item(NOTHING, None)
    elif part.dtype.kind == "b":
        yield from _mask_items(part, axis, sizes)
    else:
        yield Item(_wrap(part, axis, sizes[0]), axis)


def _mask_items(mask: AnyArray, axis: int, sizes: Sequence[int]) -> Iterator[Item]:
    if mask.ndim == 0:
        yield Item(np.zeros(int(mask), np.int64), None)
        return
    for i, (size, length) in enumerate(zip(sizes, mask.shape, strict=True)):
        if size != length:
            raise IndexError(
                f"boolean index did not match indexed array along axis {axis + i}; size of axis is {size} "
                f"but size of corresponding boolean axis is {length}"
            )
    yield from (Item(indices, axis + i) for i, indices in enumerate(mask.nonzero()))


def _wrap(indices: AnyArray, axis: int, size: int) -> IntArray:
    """Negative indices counted from the end."""
    outside = (indices < -size) | (indices >= size)  # before the conversion, which would fold 64-bit unsigned ones
    if outside.any():
        raise IndexOutOfRange(axis=axis, index=int(np.extract(outside, indices)[0]), size=size)
    signed = indices.astype(np.int64)
    return np.where(signed < 0, signed + size, signed)
