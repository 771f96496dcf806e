"""Reading a selection: boxes and points, over several connections where they are big.

Points are read in parts. Where a part is dense (rows of a mask, say), the box around it costs fewer bytes than its
coordinates, and the points are picked from it here; where each point stands for much (the axes that a key leaves
whole), each is a box of its own; the rest is gathered by the server.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod

import numpy as np

from hyperslab import wire
from hyperslab.client.body import RESTARTS, Body, BodyChanged, OnBytes
from hyperslab.client.endpoint import Endpoint
from hyperslab.client.indexing import AnyArray, Axis, Box, IntArray, Selection, coordinates, lengths, open_mesh
from hyperslab.client.session import Request
from hyperslab.client.transport import Response
from hyperslab.client.values import bytes_of, decode_objects, encode_npy
from hyperslab.errors import ArrayChanged, TooLarge

SMALLEST_BOX = 8 << 20
LARGEST_BOX = 32 << 20
"""Bytes of one request of a big read; the benchmark of them is the suite ``http``."""


def read_selection(
    endpoint: Endpoint, selection: Selection, *, out: AnyArray | None = None, on_bytes: OnBytes = lambda _: None
) -> AnyArray:
    """The selected values, in ``out`` (of the selection's shape and the array's dtype) or in a new array.

    Raises what the server raised, what the transport raised once attempts ran out, and `ArrayChanged`.
    """
    dtype = endpoint.dtype
    if 0 in selection.shape:
        return np.empty(selection.shape, dtype) if out is None else out
    raw = np.empty(selection.raw, dtype) if out is None else selection.to_raw(out)
    endpoint, axes, inner = endpoint.cells(selection)
    reader = _Reader(endpoint, on_bytes)
    if inner:
        reader.read_parts_of_items(axes, inner, raw)
    elif selection.pointwise:
        reader.read_points(axes, raw)
    else:
        reader.read_box(axes, raw)
    if out is None:
        return selection.to_result(raw)
    if not np.may_share_memory(raw, out):  # numpy had to copy to take its axes apart
        out[...] = selection.to_result(raw)
    return out


@dataclass(frozen=True, slots=True)
class _Reader:
    """Reads values of one array into memory; ``on_bytes`` is the progress callback."""

    endpoint: Endpoint
    on_bytes: OnBytes

    def read_box(self, axes: Sequence[Axis], raw: AnyArray) -> None:
        """Read an orthogonal selection, as boxes over several connections where it is big."""
        session, cap = self.endpoint.session, self.endpoint.response_limit
        limit = min(max(raw.nbytes // session.connections, SMALLEST_BOX), LARGEST_BOX, cap or LARGEST_BOX)
        boxes = self.endpoint.cut(Box.of(axes), limit, inside_chunks=cap is not None)
        session.for_each(lambda box: self._fill_box(box, raw), boxes)

    def read_points(self, axes: Sequence[Axis], raw: AnyArray) -> None:
        """Read points: one after the other, each with its ranges."""
        endpoint = self.endpoint
        most = min(1 << 16, (8 << 20) // endpoint.item_nbytes)  # cells of one part: a few MiB of coordinates or values
        most = min(most, endpoint.limits.get("max_points") or most)
        step = max(1, most * len(raw) * prod(endpoint.item_shape) // raw.size)

        def read_part(part: slice) -> None:
            self._fill_points([axis[part] if isinstance(axis, np.ndarray) else axis for axis in axes], raw[part])

        self.endpoint.session.for_each(read_part, [slice(i, i + step) for i in range(0, len(raw), step)])

    def read_parts_of_items(self, axes: Sequence[Axis], inner: Sequence[Axis], raw: AnyArray) -> None:
        """Read whole items of a field with a subarray, and take what index arrays take of ``inner``, its axes."""
        endpoint = self.endpoint
        points = [len(axis) for axis in axes if isinstance(axis, np.ndarray)][:1]
        ranges = [len(axis) for axis in axes if isinstance(axis, range)]
        items = np.empty((*points, *ranges, *endpoint.item_shape), endpoint.dtype)
        (self.read_points if points else self.read_box)(axes, items)
        raw[...] = items[open_mesh([*map(np.arange, points), *map(range, ranges), *inner])]

    def _fill_box(self, box: Box, raw: AnyArray) -> None:
        """Read a box into its region of ``raw``; smaller ones where the server wants that."""
        request = Request("GET", self.endpoint.slice_url(box), {"Accept": self.endpoint.accept})
        try:
            self._receive(request, box.region_of(raw), box.shape)
        except TooLarge as problem:
            for part in self.endpoint.smaller(box, problem):
                self._fill_box(part, raw)

    def _fill_points(self, axes: Sequence[Axis], region: AnyArray) -> None:
        count, cells = len(region), region.size // prod(self.endpoint.item_shape)
        if count > 1 and self._fill_from_hull(axes, region, cells):
            return
        if count > 1 and cells < count * 512:  # more cells are worth a request for each point
            flat = region.reshape(cells, *self.endpoint.item_shape)
            self._gather(coordinates(axes), flat)
            return
        for i in range(count):
            point = [int(axis[i]) if isinstance(axis, np.ndarray) else axis for axis in axes]
            self._fill_box(Box.of(point), region[i, ...])

    def _fill_from_hull(self, axes: Sequence[Axis], region: AnyArray, cells: int) -> bool:
        """Whether the box around the points costs no more bytes than gathering them; then they are read with it."""
        endpoint = self.endpoint
        hull: list[Axis] = []
        local: list[Axis] = []
        for axis in axes:
            if isinstance(axis, np.ndarray):
                values, places = np.unique(axis, return_inverse=True)
                first, last = int(values[0]), int(values[-1])
                dense = last - first < 2 * values.size
                hull.append(range(first, last + 1) if dense else values)
                local.append(axis - first if dense else places)
            else:
                hull.append(axis)
                local += [] if isinstance(axis, int) else [range(len(axis))]
        nbytes = prod(lengths(hull)) * endpoint.item_nbytes
        if nbytes > cells * (8 * len(axes) + endpoint.item_nbytes):
            return False
        boxes = self.endpoint.cut(Box.of(hull), nbytes)
        if len(boxes) > 4:  # one request for all points is quicker
            return False
        read = np.empty(lengths(hull) + endpoint.item_shape, endpoint.dtype)
        quiet = replace(self, on_bytes=lambda _: None)
        for box in boxes:
            quiet._fill_box(box, read)
        region[...] = read[open_mesh(local)]
        self.on_bytes(region.nbytes)
        return True

    def _gather(self, cells: IntArray, region: AnyArray) -> None:
        """Read one item for each row of ``cells`` (n, rank)."""
        endpoint, count = self.endpoint, len(cells)
        url = endpoint.address.url("points", field=endpoint.field, decode=endpoint.decode)
        headers = {"Accept": endpoint.accept, "Content-Type": wire.NPY}
        try:
            self._receive(Request("POST", url, headers, encode_npy(cells), safe=True), region, (count,))
        except TooLarge:
            if count < 2:
                raise
            for half in (slice(0, count // 2), slice(count // 2, count)):
                self._gather(cells[half], region[half])

    def _receive(self, request: Request, region: AnyArray, shape: tuple[int, ...]) -> None:
        """Send ``request``, and send it again where its body breaks and cannot be resumed."""
        endpoint = self.endpoint

        def check(response: Response) -> None:
            endpoint.check_response(response, shape)

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
        found = f"others, {RESTARTS} times"
        raise ArrayChanged(path=endpoint.address.path, member="values", expected="the same bytes", found=found)


def _read_into(body: Body, region: AnyArray) -> None:
    """Read C-order values from the socket straight to their place where that is contiguous, else by pieces."""
    piece = 1 << 20  # bytes that pass through a temporary
    if region.flags.c_contiguous:
        body.fill(bytes_of(region))
    elif region.nbytes <= piece:
        scratch = np.empty(region.shape, region.dtype)
        body.fill(bytes_of(scratch))
        region[...] = scratch
    else:
        rows = piece * len(region) // region.nbytes
        for i in range(0, len(region), max(1, rows)):
            _read_into(body, region[i : i + rows] if rows else region[i, ...])
