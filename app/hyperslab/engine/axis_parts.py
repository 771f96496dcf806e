"""One axis of a selection, cut where chunks end."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from hyperslab.engine.runs import Region
from hyperslab.engine.selection import Axis, IndexAxis, Indices, ListAxis, SliceAxis


class AxisPart(NamedTuple):
    """What one chunk contributes along one axis.

    ``inside``: region of the chunk; ``outside``: region of the output (None: the axis is dropped); ``covers``: all
    cells up to the edge of the array, in order; ``full``: as ``covers``, and the edge of the array does not cut the
    chunk.
    """

    coord: int
    inside: Region
    outside: slice | Indices | None
    length: int
    covers: bool
    full: bool


def slice_parts(axis: SliceAxis, chunk: int, size: int) -> Iterator[AxisPart]:
    """The chunks of ``chunk`` indices that a progression meets on an axis of ``size``, in its own direction."""
    start, step, count = axis.start, axis.step, axis.count
    done = 0
    while done < count:
        coord, offset = divmod(start + done * step, chunk)
        room = (chunk - 1 - offset) // step if step > 0 else offset // -step
        length = min(count - done, room + 1)
        extent = min(chunk, size - coord * chunk)
        covers = length == extent and (step == 1 or extent == 1)
        inside = _progression_slice(offset, step, length)
        yield AxisPart(coord, inside, slice(done, done + length), length, covers, covers and extent == chunk)
        done += length


def list_parts(indices: Indices, chunk: int, size: int) -> Iterator[AxisPart]:
    """The chunks that a list of indices (not empty) meets, each once, in ascending order."""
    cells = indices // chunk
    sorted_ = bool((cells[1:] >= cells[:-1]).all())
    order = np.arange(len(cells)) if sorted_ else np.argsort(cells, kind="stable")
    cells, indices = cells[order], indices[order]
    cuts = [0, *(np.flatnonzero(np.diff(cells)) + 1).tolist(), len(cells)]
    for start, stop in itertools.pairwise(cuts):
        coord = int(cells[start])
        extent = min(chunk, size - coord * chunk)
        inside = _as_slice(indices[start:stop] - coord * chunk)
        covers = inside == slice(0, extent, 1) if isinstance(inside, slice) else False
        outside = _as_slice(order[start:stop])
        yield AxisPart(coord, inside, outside, stop - start, covers, covers and extent == chunk)


def _as_slice(indices: Indices) -> slice | Indices:
    """The same indices as a slice, where they form one."""
    if len(indices) == 1:
        return _progression_slice(int(indices[0]), 1, 1)
    step = int(indices[1]) - int(indices[0])
    if step and bool((np.diff(indices) == step).all()):
        return _progression_slice(int(indices[0]), step, len(indices))
    return indices


def _progression_slice(start: int, step: int, count: int) -> slice:
    stop = start + (count - 1) * step + (1 if step > 0 else -1)
    return slice(start, stop if stop >= 0 else None, step)


def chunks_on_axis(axis: Axis, chunk: int) -> int:
    """How many chunks an axis of a selection meets."""
    if isinstance(axis, IndexAxis):
        return 1
    if isinstance(axis, ListAxis):
        return len(np.unique(axis.indices // chunk))
    if abs(axis.step) >= chunk or not axis.count:
        return axis.count
    last = axis.start + (axis.count - 1) * axis.step
    return abs(last // chunk - axis.start // chunk) + 1
