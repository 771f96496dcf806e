"""An array as the reading and writing functions of the client see it."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from functools import cached_property
from math import prod
from typing import Any

from hyperslab import wire
from hyperslab.client.address import Address
from hyperslab.client.boxes import Box, Cutter
from hyperslab.client.document import ArrayDocument
from hyperslab.client.session import Request, Session
from hyperslab.client.transport import Response
from hyperslab.errors import ArrayChanged, TooLarge

_MARGIN = 0.75
"""Objects differ in length: parts a little smaller than the average suggests nearly all fit."""


@dataclass(frozen=True)
class Source:
    """Where an array is, through which session, and what is known of it."""

    session: Session
    address: Address
    document: ArrayDocument

    def on_items(self) -> Source:
        """The same with the axes of a field's subarray among the array's: parts of them are taken by the server."""
        document = self.document
        flat = replace(document, grid_shape=document.shape, grid_chunks=document.chunks, item_shape=())
        return replace(self, document=flat)

    def get_slice(self, select: str) -> Request:
        """The request for the values of a box."""
        return Request("GET", self.slice_url(select), {"Accept": self.accept})

    def slice_url(self, select: str) -> str:
        return f"{self._slice_url}{select.replace('[', '%5B').replace(']', '%5D')}"

    @cached_property
    def _slice_url(self) -> str:
        """All but the selection, which is another one each time."""
        url = self.address.url("slice", field=self.document.field, decode=self.document.decode)
        return f"{url}{'&' if '?' in url else '?'}select="

    @cached_property
    def accept(self) -> str:
        """The media type that values travel in."""
        return wire.OBJECTS if self.document.dtype.hasobject else wire.RAW

    def check_answer(self, response: Response, shape: tuple[int, ...]) -> None:
        """Raises `ArrayChanged` where the body is not of this shape (without the item's) and of the array's dtype."""
        headers, document = response.headers, self.document
        expected = shape + document.item_shape
        found_dtype = headers.get(wire.ARRAY_DTYPE, document.dtype_text)
        if found_dtype != document.dtype_text and wire.parse_dtype(found_dtype) != document.dtype:
            raise self._changed(response, "dtype", document.dtype_text, found_dtype)
        found_shape = headers.get(wire.ARRAY_SHAPE)
        if found_shape not in (None, str([*expected]).replace(" ", "")) and tuple(json.loads(found_shape)) != expected:
            raise self._changed(response, "shape", list(expected), found_shape)
        length = headers.get("Content-Length")
        nbytes = prod(expected) * document.dtype.itemsize
        if length is not None and int(length) != nbytes and "Content-Encoding" not in headers:
            raise self._changed(response, "size", nbytes, int(length))

    def check_objects(self, response: Response) -> None:
        """Raises `ArrayChanged` where the answer holds no objects."""
        found = response.headers.get("Content-Type", "")
        if found != wire.OBJECTS:
            raise self._changed(response, "dtype", "|O", response.headers.get(wire.ARRAY_DTYPE, found))

    def smaller(self, box: Box, problem: TooLarge) -> list[Box]:
        """Boxes that fit the limit that ``problem`` names, else of half the size; raises it for a single item."""
        nbytes = prod(box.shape) * self.document.item_nbytes
        share = problem.limit / max(problem.requested, 1)  # of objects, this is what the ones that were read suggest
        wanted = int(nbytes * share * (_MARGIN if self.document.dtype.hasobject else 1))
        limit = max(1, min(wanted, nbytes // 2))
        parts = Cutter(self.document.grid_chunks, self.document.item_nbytes, limit, inside_chunks=True).cut(box)
        if len(parts) < 2:
            raise problem
        return parts

    def _changed(self, response: Response, member: str, expected: Any, found: Any) -> ArrayChanged:
        response.close()
        return ArrayChanged(path=self.document.path, member=member, expected=expected, found=found)
