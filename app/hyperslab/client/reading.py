"""Reads selections: boxes and points, over several connections if large.

Points are read in parts, by one of three ways: dense points from their bounding box, if that is smaller than their
coordinates; points with many cells each as one box per point; others by the server's ``points`` route.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

import numpy as np

from hyperslab import wire
from hyperslab.client.body import RESTARTS, Body, BodyChanged, OnBytes
from hyperslab.client.endpoint import Endpoint
from hyperslab.client.indexing import AnyArray, Axis, Box, IntArray, Selection, coordinates, lengths, open_mesh
from hyperslab.client.session import Request
from hyperslab.client.transport import Response
from hyperslab.client.values import decode_objects, encode_npy
from hyperslab.errors import ArrayChanged, TooLarge
from hyperslab.wire.items import bytes_of

SMALLEST_BOX = 8 << 20
LARGEST_BOX = 32 << 20
"""Bytes per request of a large read; set by the benchmark suite ``http``."""


def read_selection(
    endpoint: Endpoint, selection: Selection, *, out: AnyArray | None = None, on_bytes: OnBytes = lambda _: None
) -> AnyArray:
    """The selected values, in ``out`` (of the selection's shape and the array's dtype) or in a new array.

    Raises the server's errors, `Unreachable` and `ArrayChanged`.
    """
    dtype = endpoint.dtype
    if 0 in selection.shape:
        return np.empty(selection.shape, dtype) if out is None else out
    raw = np.empty(selection.raw, dtype) if out is None else selection.to_raw(out)
    reader = _Reader(endpoint, on_bytes)
    (reader.read_points if selection.pointwise else reader.read_box)(selection.axes, raw)
    if out is None:
        return selection.to_result(raw)
    if not np.may_share_memory(raw, out):  # `to_raw` made a copy
        out[...] = selection.to_result(raw)
    return out


@dataclass(frozen=True, slots=True)
class _Reader:
    """Reads values of an array into memory; ``on_bytes`` is the progress callback."""

    endpoint: Endpoint
    on_bytes: OnBytes

    def read_box(self, axes: Sequence[Axis], raw: AnyArray) -> None:
        """Read an orthogonal selection."""
        session, cap = self.endpoint.session, self.endpoint.response_limit
        limit = min(max(raw.nbytes // session.connections, SMALLEST_BOX), LARGEST_BOX, cap or LARGEST_BOX)
        session.for_each(self._fill_box, self.endpoint.box(axes, raw).cut(limit, inside_chunks=cap is not None))

    def read_points(self, axes: Sequence[Axis], raw: AnyArray) -> None:
        """Read points, each with its ranges, in parts. The server gives whole items of a field with a subarray, within
        which the values are selected here."""
        endpoint = self.endpoint
        outer, inner = axes[: endpoint.rank], axes[endpoint.rank :]
        if not endpoint.has_whole_items(axes):
            points = [len(axis) for axis in outer if isinstance(axis, np.ndarray)][:1]
            ranges = [len(axis) for axis in outer if isinstance(axis, range)]
            items = np.empty((*points, *ranges, *endpoint.item_shape), endpoint.dtype)
            (self.read_points if points else self.read_box)([*outer, *endpoint.item_axes], items)
            raw[...] = items[open_mesh([*map(np.arange, points), *map(range, ranges), *inner])]
            return
        cells = min(1 << 16, (8 << 20) // endpoint.item_nbytes)  # a few MiB of coordinates or values
        cells = min(cells, endpoint.limits.get("max_points") or cells)
        step = max(1, cells * len(raw) * prod(endpoint.item_shape) // raw.size)

        def read_part(part: slice) -> None:
            self._fill_points([axis[part] if isinstance(axis, np.ndarray) else axis for axis in outer], raw[part])

        endpoint.session.for_each(read_part, [slice(i, i + step) for i in range(0, len(raw), step)])

    def _fill_box(self, box: Box) -> None:
        """Read a box, in parts if the server refuses it as too large."""
        request = Request("GET", self.endpoint.slice_url(box.axes), {"Accept": self.endpoint.accept})
        try:
            self._receive(request, box.values)
        except TooLarge as problem:
            for part in box.smaller(problem):
                self._fill_box(part)

    def _fill_points(self, axes: Sequence[Axis], region: AnyArray) -> None:
        """Read whole items at points into ``region``."""
        item_shape = self.endpoint.item_shape
        count, cells = len(region), region.size // prod(item_shape)
        if count > 1 and self._fill_from_hull(axes, region, cells):
            return
        if count > 1 and cells < count * 512:  # from there on one request per point is faster
            self._gather(coordinates(axes), region.reshape(cells, *item_shape))
            return
        for i in range(count):
            point = [int(axis[i]) if isinstance(axis, np.ndarray) else axis for axis in axes]
            self._fill_box(self.endpoint.box([*point, *self.endpoint.item_axes], region[i, ...]))

    def _fill_from_hull(self, axes: Sequence[Axis], region: AnyArray, cells: int) -> bool:
        """Read points from their bounding box if that is no larger than coordinates and values; returns whether it
        is."""
        endpoint = self.endpoint
        hull: list[Axis] = []
        local: list[Axis] = []
        for axis in axes:
            if isinstance(axis, np.ndarray):
                values, inverse = np.unique(axis, return_inverse=True)
                first, last = int(values[0]), int(values[-1])
                dense = last - first < 2 * values.size
                hull.append(range(first, last + 1) if dense else values)
                local.append(axis - first if dense else inverse)
            else:
                hull.append(axis)
                local += [] if isinstance(axis, int) else [range(len(axis))]
        nbytes = prod(lengths(hull)) * endpoint.item_nbytes
        if nbytes > cells * (8 * len(axes) + endpoint.item_nbytes):
            return False
        values_of_hull = np.empty(lengths(hull) + endpoint.item_shape, endpoint.dtype)
        boxes = endpoint.box([*hull, *endpoint.item_axes], values_of_hull).cut(nbytes)
        if len(boxes) > 4:  # one request for all points is faster
            return False
        silent = _Reader(endpoint, lambda _: None)
        for box in boxes:
            silent._fill_box(box)
        region[...] = values_of_hull[open_mesh(local)]
        self.on_bytes(region.nbytes)
        return True

    def _gather(self, cells: IntArray, region: AnyArray) -> None:
        """Read one item for each row of ``cells`` ``(n, rank)`` through the ``points`` route."""
        endpoint, count = self.endpoint, len(cells)
        url = endpoint.address.url("points", field=endpoint.field, decode=endpoint.decode)
        headers = {"Accept": endpoint.accept, "Content-Type": wire.NPY}
        try:
            self._receive(Request("POST", url, headers, encode_npy(cells), safe=True), region)
        except TooLarge:
            if count < 2:
                raise
            for half in (slice(0, count // 2), slice(count // 2, count)):
                self._gather(cells[half], region[half])

    def _receive(self, request: Request, region: AnyArray) -> None:
        """Read the response into ``region``; the request is repeated if the body changes on resumption."""
        endpoint = self.endpoint

        def check(response: Response) -> None:
            endpoint.check_response(response, region.shape)

        def read_whole(response: Response) -> bytes:
            check(response)
            return response.read()

        if region.dtype.hasobject:
            region[...] = decode_objects(endpoint.session.attempt(request, read_whole), region.shape)
            self.on_bytes(region.nbytes)
            return
        for _ in range(RESTARTS):
            body = Body(endpoint.session, request, check=check, on_bytes=self.on_bytes)
            try:
                _read_into(body, region)
            except BodyChanged:
                self.on_bytes(-body.position)
            else:
                return
            finally:
                body.close()
        described = f"others, {RESTARTS} times"
        raise ArrayChanged(path=endpoint.address.path, member="values", expected="the same bytes", found=described)


def _read_into(body: Body, region: AnyArray) -> None:
    """Read C-order values into ``region``: directly if it is contiguous, else through temporaries of up to 1 MiB."""
    limit = 1 << 20
    if region.flags.c_contiguous:
        body.fill(bytes_of(region))
    elif region.nbytes <= limit:
        temporary = np.empty(region.shape, region.dtype)
        body.fill(bytes_of(temporary))
        region[...] = temporary
    else:
        rows = limit * len(region) // region.nbytes
        for i in range(0, len(region), max(1, rows)):
            _read_into(body, region[i : i + rows] if rows else region[i, ...])
