"""Boxes and points from the wire into memory.

Bytes go from the socket straight to their place wherever that is contiguous; what is not passes through a scratch of at
most 1 MiB. Objects are read whole before they are unpacked.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from hyperslab import wire
from hyperslab.client import objects
from hyperslab.client.body import Body, BodyChanged, OnBytes
from hyperslab.client.boxes import Box, relative
from hyperslab.client.cancel import Cancel
from hyperslab.client.indexing import AnyArray, Axis, IntArray
from hyperslab.client.npy import encode_npy
from hyperslab.client.session import Request
from hyperslab.client.source import Source
from hyperslab.client.transport import BROKEN_CONNECTION, Response
from hyperslab.errors import ArrayChanged, TooLarge

SMALL = 256 << 10
"""Bytes of an answer that is rather asked for again than resumed."""
_SCRATCH = 1 << 20
_DIRECT = 64 << 10  # a contiguous run of this size is worth a read of its own
_RESTARTS = 5


@dataclass(frozen=True, slots=True)
class Fetch:
    """Reads parts of one array for one thread; ``on_bytes`` is told of progress."""

    source: Source
    cancel: Cancel
    on_bytes: OnBytes

    def box(self, box: Box, region: AnyArray) -> None:
        """Fill ``region``, of the box's shape and the items'; in smaller boxes where the server wants that."""
        try:
            self._fill(self.source.get_slice(box.text), region, box.shape)
        except TooLarge as problem:
            for part in self.source.smaller(box, problem):
                self.box(part, region[relative(part, box)])

    def points(self, coordinates: IntArray, region: AnyArray) -> None:
        """Fill ``region``, one item for each row of ``coordinates`` (n, rank)."""
        count = len(coordinates)
        document = self.source.document
        url = self.source.address.url("points", field=document.field, decode=document.decode)
        headers = {"Accept": self.source.accept, "Content-Type": wire.NPY}
        try:
            self._fill(Request("POST", url, headers, encode_npy(coordinates), safe=True), region, (count,))
        except TooLarge:
            if count < 2:
                raise
            for part in (slice(0, count // 2), slice(count // 2, count)):
                self.points(coordinates[part], region[part])

    def _fill(self, request: Request, region: AnyArray, shape: tuple[int, ...]) -> None:
        """Send ``request``, and send it again where its body breaks and cannot be resumed."""
        if region.dtype.hasobject:
            self._fill_objects(request, region)
            return
        for _ in range(_RESTARTS):
            body = Body(
                self.source.session,
                request,
                check=lambda response: self.source.check_answer(response, shape),
                cancel=self.cancel,
                on_bytes=self.on_bytes,
            )
            try:
                read_into(body, region)
            except BodyChanged:
                self.on_bytes(-body.position)
            else:
                return
            finally:
                body.close()
        raise self._changed()

    def _changed(self) -> ArrayChanged:
        path = self.source.document.path
        return ArrayChanged(path=path, member="values", expected="the same bytes", found=f"others, {_RESTARTS} times")

    def _fill_objects(self, request: Request, region: AnyArray) -> None:
        for _ in range(_RESTARTS):
            check = self.source.check_objects
            body = Body(self.source.session, request, check=check, cancel=self.cancel, on_bytes=lambda _: None)
            try:
                whole = bytearray(body.open())
                body.fill(memoryview(whole))
            except BodyChanged:
                continue
            finally:
                body.close()
            region[...] = objects.decode(whole, region.shape)
            self.on_bytes(region.nbytes)
            return
        raise self._changed()


def fill_at_once(source: Source, axes: Sequence[Axis], region: AnyArray) -> bool:
    """Fill a small region by one request, with nothing of what big ones need; whether it could be done so.

    Raises what the server raised and, where it cannot be reached, what the transport raised.
    """
    if not region.flags.c_contiguous or region.dtype.hasobject or any(isinstance(axis, np.ndarray) for axis in axes):
        return False
    box = Box(tuple(axes), ())  # nothing will be cut from it
    try:
        response = source.session.open(source.get_slice(box.text))
    except TooLarge:
        return False
    try:
        source.check_answer(response, box.shape)
        return _fill_from(response, _bytes_of(region))
    finally:
        response.close()


def _fill_from(response: Response, buffer: memoryview) -> bool:
    """Whether the body came whole."""
    try:
        while buffer:
            count = response.readinto(buffer)
            if not count:
                return False
            buffer = buffer[count:]
    except BROKEN_CONNECTION:
        return False
    return True


def read_into(body: Body, region: AnyArray) -> None:
    """Read the C-order values of ``region``, which may be any view, from a body."""
    scratch: memoryview | None = None
    for piece in _pieces(region):
        if piece.flags.c_contiguous:
            body.fill(_bytes_of(piece))
            continue
        if scratch is None:
            scratch = memoryview(bytearray(min(_SCRATCH, region.nbytes)))
        part = scratch[: piece.nbytes]
        body.fill(part)
        piece[...] = np.frombuffer(part, region.dtype).reshape(piece.shape)


def _pieces(region: AnyArray) -> Iterator[AnyArray]:
    """Views that together are ``region``, in C order: contiguous ones, and others of at most the scratch's size."""
    row = region.nbytes // max(1, len(region)) if region.ndim else 0
    if region.flags.c_contiguous:
        yield region
    elif row >= _DIRECT:
        for i in range(len(region)):
            yield from _pieces(region[i, ...])
    else:
        rows = _SCRATCH // row
        yield from (region[start : start + rows] for start in range(0, len(region), rows))


def _bytes_of(array: AnyArray) -> memoryview:
    """The memory of a C-contiguous array, whatever its dtype."""
    return array.reshape(-1).view(np.uint8).data
