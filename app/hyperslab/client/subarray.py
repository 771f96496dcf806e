"""Parts of the subarrays of a field at points: whole items travel, and what is wanted of them is taken here."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from hyperslab.client.indexing import AnyArray, Axis


def takes_whole(item_axes: Sequence[Axis], item_shape: Sequence[int]) -> bool:
    """Whether the axes of the subarray are taken as they are."""
    whole = (range(size) for size in item_shape)
    return all(isinstance(axis, range) and axis == all_of_it for axis, all_of_it in zip(item_axes, whole, strict=True))


def take_part(items: AnyArray, item_axes: Sequence[Axis], *, per_point: bool) -> AnyArray:
    """What ``item_axes`` take of the last axes of ``items``, where index arrays vary together: with the first axis of
    ``items`` if that is ``per_point``."""
    first = items.ndim - len(item_axes)
    for i, axis in reversed(list(enumerate(item_axes))):
        if not isinstance(axis, np.ndarray):
            index = axis if isinstance(axis, int) else np.asarray(axis)
            items = items[(*[slice(None)] * (first + i), index)]
    arrays = [axis for axis in item_axes if isinstance(axis, np.ndarray)]
    if not arrays:
        return items
    kept = [axis for axis in item_axes if not isinstance(axis, int)]
    places = [first + i for i, axis in enumerate(kept) if isinstance(axis, np.ndarray)]
    together = [np.arange(len(items)), *arrays] if per_point else arrays
    moved: AnyArray = np.moveaxis(items, places, range(len(together) - len(arrays), len(together)))
    return np.asarray(moved[tuple(together)])
