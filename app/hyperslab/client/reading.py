"""Reading a selection: boxes and points, over several connections where they are big.

Points are read in parts. Where a part is dense (rows of a mask, say), the box around it costs fewer bytes than its
coordinates, and the points are picked from it here; where each point stands for much (the axes that a key leaves
whole), each is a box of its own; the rest is gathered by the server.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any

import numpy as np

from hyperslab import wire
from hyperslab.client.address import Address
from hyperslab.client.body import RESTARTS, Body, BodyChanged, OnBytes
from hyperslab.client.document import ArrayDocument
from hyperslab.client.indexing import AnyArray, Axis, Box, IntArray, Selection, coordinates, lengths, open_mesh
from hyperslab.client.session import Request, Session
from hyperslab.client.transport import Cancel, Response
from hyperslab.client.values import bytes_of, decode_objects, encode_npy
from hyperslab.errors import ArrayChanged, TooLarge

SMALLEST_BOX = 8 << 20
LARGEST_BOX = 32 << 20
"""Bytes of one request of a big read."""


@dataclass(frozen=True)
class Endpoint:
    """An array as a target of requests: session, address and node document."""

    session: Session
    address: Address
    document: ArrayDocument

    def cells(self, selection: Selection) -> tuple[Endpoint, tuple[Axis, ...], tuple[Axis, ...]]:
        """The endpoint and the axes for a selection that takes whole items, or parts of a field's subarrays.

        Parts are taken by the server, with the axes of the subarray among the array's, but for those at points: these
        axes come third, and are to be taken from whole items.
        """
        document = self.document
        axes, inner = selection.axes[: len(document.grid_shape)], selection.axes[len(document.grid_shape) :]
        whole = (range(size) for size in document.item_shape)
        if all(isinstance(axis, range) and axis == each for axis, each in zip(inner, whole, strict=True)):
            return self, axes, ()
        if selection.pointwise:
            return self, axes, inner
        flat = replace(document, grid_shape=document.shape, grid_chunks=document.chunks, item_shape=())
        return replace(self, document=flat), selection.axes, ()

    def slice_url(self, box: Box) -> str:
        return self.address.url("slice", field=self.document.field, decode=self.document.decode, select=box.text)

    @property
    def accept(self) -> str:
        """The media type of the values."""
        return wire.OBJECTS if self.document.dtype.hasobject else wire.RAW

    def cut(self, box: Box, limit: int, *, inside_chunks: bool = False) -> list[Box]:
        """Boxes of at most ``limit`` bytes, see `Box.cut`."""
        return box.cut(self.document.grid_chunks, self.document.item_nbytes, limit, inside_chunks=inside_chunks)

    def smaller(self, box: Box, problem: TooLarge) -> list[Box]:
        """Boxes within the limit in ``problem``, or of half the size; raises ``problem`` for a single item."""
        nbytes = prod(box.shape) * self.document.item_nbytes
        share = problem.limit / max(problem.requested, 1)  # of objects, this is what the ones that were read suggest
        margin = 0.75 if self.document.dtype.hasobject else 1  # so that nearly all parts fit, though lengths differ
        wanted = int(nbytes * share * margin)
        parts = self.cut(box, max(1, min(wanted, nbytes // 2)), inside_chunks=True)
        if len(parts) < 2:
            raise problem
        return parts

    def check_response(self, response: Response, shape: tuple[int, ...]) -> None:
        """Raises `ArrayChanged` if the values have another shape (without the item's) or dtype than expected."""
        headers, document = response.headers, self.document
        expected = shape + document.item_shape
        found_dtype = headers.get(wire.ARRAY_DTYPE, document.dtype_text)
        found_shape = headers.get(wire.ARRAY_SHAPE)
        length, nbytes = headers.get("Content-Length"), prod(expected) * document.dtype.itemsize
        if document.dtype.hasobject:
            found_type = headers.get("Content-Type", "")
            if found_type != wire.OBJECTS:
                raise self._changed(response, "dtype", "|O", headers.get(wire.ARRAY_DTYPE, found_type))
        elif found_dtype != document.dtype_text and wire.parse_dtype(found_dtype) != document.dtype:
            raise self._changed(response, "dtype", document.dtype_text, found_dtype)
        elif found_shape is not None and tuple(json.loads(found_shape)) != expected:
            raise self._changed(response, "shape", list(expected), found_shape)
        elif length is not None and int(length) != nbytes and "Content-Encoding" not in headers:
            raise self._changed(response, "size", nbytes, int(length))

    def _changed(self, response: Response, member: str, expected: Any, found: Any) -> ArrayChanged:
        response.close()
        return ArrayChanged(path=self.document.path, member=member, expected=expected, found=found)


def read_selection(
    endpoint: Endpoint, selection: Selection, *, out: AnyArray | None = None, on_bytes: OnBytes = lambda _: None
) -> AnyArray:
    """The selected values, in ``out`` (of the selection's shape and the array's dtype) or in a new array.

    Raises what the server raised, what the transport raised once attempts ran out, and `ArrayChanged`.
    """
    dtype = endpoint.document.dtype
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
        session, cap = self.endpoint.session, self.endpoint.document.response_limit
        limit = min(max(raw.nbytes // session.connections, SMALLEST_BOX), LARGEST_BOX, cap or LARGEST_BOX)
        boxes = self.endpoint.cut(Box.of(axes), limit, inside_chunks=cap is not None)
        session.for_each(lambda box, cancel: self._fill_box(box, raw, cancel), boxes)

    def read_points(self, axes: Sequence[Axis], raw: AnyArray) -> None:
        """Read points: one after the other, each with its ranges."""
        document = self.endpoint.document
        most = min(1 << 16, (8 << 20) // document.item_nbytes)  # cells of one part: a few MiB of coordinates or values
        most = min(most, document.limits.get("max_points") or most)
        step = max(1, most * len(raw) * prod(document.item_shape) // raw.size)

        def read_part(part: slice, cancel: Cancel) -> None:
            self._fill_points(
                [axis[part] if isinstance(axis, np.ndarray) else axis for axis in axes], raw[part], cancel
            )

        self.endpoint.session.for_each(read_part, [slice(i, i + step) for i in range(0, len(raw), step)])

    def read_parts_of_items(self, axes: Sequence[Axis], inner: Sequence[Axis], raw: AnyArray) -> None:
        """Read whole items of a field with a subarray, and take what index arrays take of ``inner``, its axes."""
        document = self.endpoint.document
        points = [len(axis) for axis in axes if isinstance(axis, np.ndarray)][:1]
        ranges = [len(axis) for axis in axes if isinstance(axis, range)]
        items = np.empty((*points, *ranges, *document.item_shape), document.dtype)
        (self.read_points if points else self.read_box)(axes, items)
        raw[...] = items[open_mesh([*map(np.arange, points), *map(range, ranges), *inner])]

    def _fill_box(self, box: Box, raw: AnyArray, cancel: Cancel) -> None:
        """Read a box into its region of ``raw``; smaller ones where the server wants that."""
        request = Request("GET", self.endpoint.slice_url(box), {"Accept": self.endpoint.accept})
        try:
            self._receive(request, box.region_of(raw), box.shape, cancel)
        except TooLarge as problem:
            for part in self.endpoint.smaller(box, problem):
                self._fill_box(part, raw, cancel)

    def _fill_points(self, axes: Sequence[Axis], region: AnyArray, cancel: Cancel) -> None:
        count, cells = len(region), region.size // prod(self.endpoint.document.item_shape)
        if count > 1 and self._fill_from_hull(axes, region, cells, cancel):
            return
        if count > 1 and cells < count * 512:  # more cells are worth a request for each point
            flat = region.reshape(cells, *self.endpoint.document.item_shape)
            self._gather(coordinates(axes), flat, cancel)
            return
        for i in range(count):
            point = [int(axis[i]) if isinstance(axis, np.ndarray) else axis for axis in axes]
            self._fill_box(Box.of(point), region[i, ...], cancel)

    def _fill_from_hull(self, axes: Sequence[Axis], region: AnyArray, cells: int, cancel: Cancel) -> bool:
        """Whether the box around the points costs no more bytes than gathering them; then they are read with it."""
        document = self.endpoint.document
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
        nbytes = prod(lengths(hull)) * document.item_nbytes
        if nbytes > cells * (8 * len(axes) + document.item_nbytes):
            return False
        boxes = self.endpoint.cut(Box.of(hull), nbytes)
        if len(boxes) > 4:  # one request for all points is quicker
            return False
        read = np.empty(lengths(hull) + document.item_shape, document.dtype)
        quiet = replace(self, on_bytes=lambda _: None)
        for box in boxes:
            quiet._fill_box(box, read, cancel)
        region[...] = read[open_mesh(local)]
        self.on_bytes(region.nbytes)
        return True

    def _gather(self, cells: IntArray, region: AnyArray, cancel: Cancel) -> None:
        """Read one item for each row of ``cells`` (n, rank)."""
        endpoint, count = self.endpoint, len(cells)
        url = endpoint.address.url("points", field=endpoint.document.field, decode=endpoint.document.decode)
        headers = {"Accept": endpoint.accept, "Content-Type": wire.NPY}
        try:
            self._receive(Request("POST", url, headers, encode_npy(cells), safe=True), region, (count,), cancel)
        except TooLarge:
            if count < 2:
                raise
            for half in (slice(0, count // 2), slice(count // 2, count)):
                self._gather(cells[half], region[half], cancel)

    def _receive(self, request: Request, region: AnyArray, shape: tuple[int, ...], cancel: Cancel) -> None:
        """Send ``request``, and send it again where its body breaks and cannot be resumed."""
        endpoint, objects = self.endpoint, region.dtype.hasobject
        on_bytes: OnBytes = (lambda _: None) if objects else self.on_bytes

        def check(response: Response) -> None:
            endpoint.check_response(response, shape)

        for _ in range(RESTARTS):
            body = Body(endpoint.session, request, check=check, cancel=cancel, on_bytes=on_bytes)
            try:
                if objects:
                    whole = bytearray(body.open())
                    body.fill(memoryview(whole))
                    region[...] = decode_objects(whole, region.shape)
                    self.on_bytes(region.nbytes)
                else:
                    _read_into(body, region)
            except BodyChanged:
                on_bytes(-body.position)
            else:
                return
            finally:
                body.close()
        found = f"others, {RESTARTS} times"
        raise ArrayChanged(path=endpoint.document.path, member="values", expected="the same bytes", found=found)


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
