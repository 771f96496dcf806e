"""Scattered points, in the cheapest of three ways.

Points are read in parts. Where a part is dense (rows of a mask, say), the box around it costs fewer bytes than its
coordinates, and is picked from here; where each point stands for much (the axes that a key leaves whole), each is a
box of its own; the rest is gathered by the server.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod

import numpy as np

from hyperslab.client.body import OnBytes
from hyperslab.client.boxes import Box, Cutter, whole_box
from hyperslab.client.cancel import Cancel
from hyperslab.client.fetch import Fetch
from hyperslab.client.indexing import AnyArray, Axis, IntArray
from hyperslab.client.source import Source

_CELLS = 1 << 16  # of one part: coordinates of at most a few MiB
_PART_BYTES = 8 << 20
_OWN_REQUEST = 512  # cells that are worth a request for one point
_MOST_BOXES = 4  # more, and one request for all points is quicker


@dataclass(frozen=True, slots=True)
class _Part:
    """Points ``where`` of a selection: ``axes`` as of the selection, its arrays shortened to these points."""

    axes: tuple[Axis, ...]
    where: slice

    @property
    def count(self) -> int:
        return int(self.where.stop - self.where.start)

    @property
    def tail(self) -> tuple[int, ...]:
        """Cells of each point: the ranges that the key leaves."""
        return tuple(len(axis) for axis in self.axes if isinstance(axis, range))


@dataclass(frozen=True, slots=True)
class _Hull:
    """The box around some points: ``axes`` to read, and where each array axis has its points in what is read."""

    axes: tuple[Axis, ...]
    positions: tuple[IntArray, ...]

    @classmethod
    def around(cls, axes: Sequence[Axis]) -> _Hull:
        taken: list[Axis] = []
        positions = []
        for axis in axes:
            if isinstance(axis, np.ndarray):
                values, inverse = np.unique(axis, return_inverse=True)
                first, last = int(values[0]), int(values[-1])
                dense = last - first < 2 * values.size
                taken.append(range(first, last + 1) if dense else values)
                positions.append(axis - first if dense else inverse)
            else:
                taken.append(axis)
        return cls(tuple(taken), tuple(positions))

    @property
    def size(self) -> int:
        return prod(whole_box(self.axes).shape)

    def pick(self, boxes: Sequence[Box], fetch: Fetch, region: AnyArray, arrays: Sequence[int]) -> None:
        """Read the ``boxes`` that make up the hull, and take the points; ``arrays``: its axes that have positions."""
        document = fetch.source.document
        read = np.empty(whole_box(self.axes).shape + document.item_shape, document.dtype)
        quiet = replace(fetch, on_bytes=lambda _: None)
        for box in boxes:
            quiet.box(box, box.region_of(read))
        region[...] = np.moveaxis(read, arrays, range(len(arrays)))[self.positions]
        fetch.on_bytes(region.nbytes)


def fill_points(source: Source, axes: Sequence[Axis], raw: AnyArray, on_bytes: OnBytes) -> None:
    """Read the points that ``axes`` name into ``raw``: one point after the other, each with its ranges."""
    most = source.document.limits.get("max_points") or _CELLS
    parts = _cut(tuple(axes), len(raw), min(_CELLS, most, _PART_BYTES // source.document.item_nbytes))

    def fill_part(part: _Part, cancel: Cancel) -> None:
        _fill_part(Fetch(source, cancel, on_bytes), part, raw[part.where])

    source.session.for_each(fill_part, parts)


def points_shape(axes: Sequence[Axis]) -> tuple[int, ...]:
    """(points, *ranges): the shape in which `fill_points` reads."""
    points = next(len(axis) for axis in axes if isinstance(axis, np.ndarray))
    return (points, *(len(axis) for axis in axes if isinstance(axis, range)))


def _cut(axes: tuple[Axis, ...], count: int, most: int) -> list[_Part]:
    """Parts of ``count`` points with at most ``most`` cells, or of one point with more."""
    cells = prod(len(axis) for axis in axes if isinstance(axis, range))
    step = max(1, most // max(1, cells))
    wheres = [slice(start, min(start + step, count)) for start in range(0, count, step)]
    return [_Part(tuple(a[w] if isinstance(a, np.ndarray) else a for a in axes), w) for w in wheres]


def _fill_part(fetch: Fetch, part: _Part, region: AnyArray) -> None:
    if part.count > 1 and _fill_from_hull(fetch, part, region):
        return
    if part.count == 1 or prod(part.tail) >= _OWN_REQUEST:
        for i in range(part.count):
            axes = tuple(int(axis[i]) if isinstance(axis, np.ndarray) else axis for axis in part.axes)
            fetch.box(whole_box(axes), region[i, ...])
    else:
        flat = region.reshape(-1, *region.shape[1 + len(part.tail) :])
        fetch.points(coordinates(part.axes), flat)


def _fill_from_hull(fetch: Fetch, part: _Part, region: AnyArray) -> bool:
    """Whether the box around the points costs no more bytes than gathering them; then they are read with it."""
    document = fetch.source.document
    hull = _Hull.around(part.axes)
    gathered = part.count * prod(part.tail) * (8 * len(part.axes) + document.item_nbytes)
    nbytes = hull.size * document.item_nbytes
    if nbytes > gathered:
        return False
    boxes = Cutter(document.grid_chunks, document.item_nbytes, nbytes).cut(whole_box(hull.axes))
    if len(boxes) > _MOST_BOXES:
        return False
    kept = [axis for axis in part.axes if not isinstance(axis, int)]
    hull.pick(boxes, fetch, region, [i for i, axis in enumerate(kept) if isinstance(axis, np.ndarray)])
    return True


def coordinates(axes: Sequence[Axis]) -> IntArray:
    """(cells, rank) indices of all cells of these points: one point after the other, each with its ranges in C
    order."""
    width = 1 + sum(isinstance(axis, range) for axis in axes)
    columns = []
    place = 0
    for axis in axes:
        place += isinstance(axis, range)
        along = place if isinstance(axis, range) else 0
        columns.append(np.asarray(axis, np.int64).reshape([-1 if i == along else 1 for i in range(width)]))
    return np.stack(np.broadcast_arrays(*columns), axis=-1).reshape(-1, len(columns))
