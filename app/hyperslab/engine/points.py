"""Scattered points: coordinate by coordinate, grouped by the chunk that holds them."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hyperslab.engine.grid import ChunkGrid, Coords
from hyperslab.engine.runs import Run, bounded, merge_runs, runs_of
from hyperslab.engine.selection import Indices, resolve_indices
from hyperslab.errors import BadBody, TooManyIndices


@dataclass(frozen=True, slots=True, eq=False)
class PointProjection:
    """The points that lie in one chunk. ``inside``: one index array per axis of the chunk; ``positions``: which points.

    ``out`` and ``values`` have one leading axis over all points; trailing subarray dimensions follow.
    """

    coords: Coords
    inside: tuple[Indices, ...]
    positions: Indices

    @property
    def size(self) -> int:
        """How many points there are."""
        return len(self.positions)

    @property
    def covers_chunk(self) -> bool:
        """Never taken for granted: points may repeat."""
        return False

    @property
    def _cells(self) -> tuple[Any, ...]:
        """With an ellipsis, so that an array without axes never gives the bare item: that may be a list."""
        return (*self.inside, ...)

    def copy_out(self, chunk: NDArray[Any], out: NDArray[Any]) -> None:
        """Gather from the chunk into the output."""
        out[self.positions] = chunk[self._cells]

    def copy_in(self, values: NDArray[Any], chunk: NDArray[Any]) -> None:
        """Scatter into the chunk; of points that repeat the last one stays."""
        chunk[self._cells] = values[self.positions]

    def put_out(self, values: NDArray[Any], out: NDArray[Any]) -> None:
        """Put ``values``, one for each of the chunk's points or the same one for all, where these go."""
        out[self.positions] = values

    def items(self, chunks: Sequence[int], order: str = "C") -> Indices:
        """The points as items of the stored chunk, counted in its order."""
        if not chunks:
            return np.zeros(self.size, np.int64)
        return np.ravel_multi_index(self.inside, tuple(chunks), order="C" if order == "C" else "F")

    def item_runs(self, chunks: Sequence[int], order: str = "C", *, gap: int = 0, limit: int = 1024) -> list[Run]:
        """The runs of the stored chunk that hold the points; see `runs.chunk_runs`."""
        return bounded(merge_runs(runs_of(self.items(chunks, order)), gap), limit)


def broadcast_points(
    coordinates: Sequence[NDArray[np.integer] | Sequence[int] | int], shape: tuple[int, ...]
) -> tuple[Indices, ...]:
    """One int64 array per axis, all of the broadcast shape, negative ones wrapped.

    Raises `TooManyIndices` (also for too few), `IndexOutOfRange`, and `BadBody` where shapes do not broadcast.
    """
    if len(coordinates) != len(shape):
        raise TooManyIndices(len(coordinates), len(shape))
    arrays = [
        resolve_indices(np.asarray(values) if np.size(values) else np.zeros(np.shape(values), np.int64), axis, size)
        for axis, (values, size) in enumerate(zip(coordinates, shape, strict=True))
    ]
    try:
        return tuple(np.broadcast_arrays(*arrays))
    except ValueError:
        shapes = [list(array.shape) for array in arrays]
        raise BadBody("the coordinates do not broadcast", "equal or broadcastable shapes", shapes) from None


def project_points(
    coordinates: Sequence[NDArray[np.integer] | Sequence[int] | int], grid: ChunkGrid
) -> Iterator[PointProjection]:
    """The chunks that hold the points, each once; positions count the points in C order of the broadcast shape."""
    points = [array.reshape(-1) for array in broadcast_points(coordinates, grid.shape)]
    if not points:
        yield PointProjection((), (), np.zeros(1, np.int64))
        return
    cells = [array // chunk for array, chunk in zip(points, grid.chunks, strict=True)]
    order = _by_chunk(cells, grid)
    cells = [array[order] for array in cells]
    points = [array[order] for array in points]
    for start, stop in _groups(cells):
        coords = tuple([int(array[start]) for array in cells])
        corner = [coord * chunk for coord, chunk in zip(coords, grid.chunks, strict=True)]
        inside = tuple([array[start:stop] - origin for array, origin in zip(points, corner, strict=True)])
        yield PointProjection(coords, inside, order[start:stop])


def _by_chunk(cells: list[Indices], grid: ChunkGrid) -> Indices:
    """A stable order that brings the points of a chunk together."""
    if math.prod(grid.counts) < 2**63:
        return np.argsort(np.ravel_multi_index(tuple(cells), grid.counts), kind="stable")
    return np.lexsort(cells[::-1])


def _groups(cells: list[Indices]) -> Iterator[Run]:
    """The stretches in which all of ``cells`` stay the same."""
    if not len(cells[0]):
        return
    changed = np.zeros(len(cells[0]) - 1, bool)
    for array in cells:
        changed |= np.diff(array) != 0
    bounds = [0, *(np.flatnonzero(changed) + 1).tolist(), len(cells[0])]
    yield from itertools.pairwise(bounds)
