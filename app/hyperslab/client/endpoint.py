"""Endpoint: the parsed node document of an array, and requests for its parts."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import Any

import numpy as np

from hyperslab import wire
from hyperslab.client.address import Address
from hyperslab.client.indexing import AnyArray, Axis, Box, format_axes
from hyperslab.client.session import Session
from hyperslab.client.transport import Response
from hyperslab.client.values import object_codec, parse_fill_value
from hyperslab.errors import ArrayChanged, BadMetadata, FieldUnknown, WrongKind


@dataclass(frozen=True)
class Endpoint:
    """Array of a server, with at most one open field; ``members`` is its node document (docs/reference/http.md).

    ``shape`` and ``chunks`` are those of the array, of ``rank`` axes, followed by the axes of the field's subarray.
    ``dtype`` is that of a scalar on the wire, decoded if ``decode`` is ``cf``. ``etag`` is the document's.
    """

    session: Session
    address: Address
    members: Mapping[str, Any]
    etag: str | None
    field: str | None
    decode: str | None
    rank: int
    shape: tuple[int, ...]
    chunks: tuple[int, ...]
    item_dtype: np.dtype[Any]
    dtype: np.dtype[Any]

    @classmethod
    def parse(
        cls,
        session: Session,
        address: Address,
        members: Mapping[str, Any],
        etag: str | None,
        *,
        field: str | None = None,
        decode: str | None = None,
    ) -> Endpoint:
        """The endpoint of a node document. Raises `WrongKind` for a group, `FieldUnknown`, `BadMetadata`, and
        `ModuleNotFoundError` for a dtype of ml_dtypes if that is not installed."""
        if members.get("kind") != "array":
            raise WrongKind(path=address.path, kind=str(members.get("kind")), wanted="array")
        try:
            item_dtype = wire.dtype_from_json(members["dtype"])
            shape, chunks = (tuple(int(n) for n in members[name]) for name in ("shape", "chunks"))
        except (KeyError, TypeError, ValueError) as error:
            reason = f"the node document is incomplete: {error!r}"
            raise BadMetadata(key=address.path, member=None, reason=reason) from error
        rank, dtype = len(shape), item_dtype
        if field is not None:
            if item_dtype.fields is None or field not in item_dtype.fields:
                raise FieldUnknown(path=address.path, field=field, fields=list(item_dtype.names or ()))
            opened = item_dtype.fields[field][0]
            dtype, shape, chunks = opened.base, shape + opened.shape, chunks + opened.shape
        decoded = members.get("decoded") if decode == "cf" and not item_dtype.names else None
        if decoded is not None:
            dtype = wire.dtype_from_json(decoded["dtype"])
        return cls(session, address, members, etag, field, decode, rank, shape, chunks, item_dtype, dtype)

    def with_document(self, members: Mapping[str, Any], etag: str | None, field: str | None) -> Endpoint:
        """The same array with another node document or field; raises as `parse`."""
        return Endpoint.parse(self.session, self.address, members, etag, field=field, decode=self.decode)

    @property
    def item_shape(self) -> tuple[int, ...]:
        """The shape of the field's subarray."""
        return self.shape[self.rank :]

    @property
    def item_axes(self) -> tuple[Axis, ...]:
        """All of the field's subarray, as a selection."""
        return tuple(map(range, self.item_shape))

    @property
    def item_nbytes(self) -> int:
        """Bytes of an item, with its subarray."""
        return self.dtype.itemsize * prod(self.item_shape)

    @cached_property
    def dtype_text(self) -> str:
        """``Array-Dtype`` header of this array's values."""
        return wire.format_dtype(self.dtype)

    @cached_property
    def fill_value(self) -> Any:
        """A scalar of `dtype` (an array for a field with a subarray), or None if undefined."""
        value = self.members.get("fill_value")
        if value is None:
            return None
        whole = parse_fill_value(value, self.item_dtype, object_codec(self.members).get("id"))
        return whole if self.field is None else whole[self.field]

    @property
    def accept(self) -> str:
        """Media type of the values."""
        return wire.OBJECTS if self.dtype.hasobject else wire.RAW

    @property
    def limits(self) -> Mapping[str, int | None]:
        """Limits of requests, by the server's names."""
        return self.members.get("limits") or {}

    @property
    def response_limit(self) -> int | None:
        """Maximum bytes of values in a response, if limited; for objects that of JSON."""
        return self.limits.get("max_json_bytes" if self.dtype.hasobject else "max_response_bytes")

    # --- requests ------------------------------------------------------------------------------------------------

    def has_whole_items(self, axes: Sequence[Axis]) -> bool:
        """Whether a selection along all axes selects all of the field's subarray."""
        pairs = zip(axes[self.rank :], self.item_axes, strict=True)
        return all(isinstance(axis, range) and axis == whole for axis, whole in pairs)

    def box(self, axes: Sequence[Axis], values: AnyArray) -> Box:
        """A box of this array, with its values."""
        return Box(tuple(axes), values, self.chunks, self.dtype.itemsize)

    def slice_url(self, axes: Sequence[Axis]) -> str:
        select = format_axes(axes[: self.rank] if self.has_whole_items(axes) else axes)
        return self.address.url("slice", field=self.field, decode=self.decode, select=select)

    def check_response(self, response: Response, shape: tuple[int, ...]) -> None:
        """Raises `ArrayChanged` unless the values have this shape and the array's dtype."""
        headers = response.headers
        dtype, found_shape = headers.get(wire.ARRAY_DTYPE, self.dtype_text), headers.get(wire.ARRAY_SHAPE)
        length, nbytes = headers.get("Content-Length"), prod(shape) * self.dtype.itemsize
        changed: tuple[str, Any, Any] | None = None
        if self.dtype.hasobject:
            media_type = headers.get("Content-Type", "")
            if media_type != wire.OBJECTS:
                changed = "dtype", "|O", headers.get(wire.ARRAY_DTYPE, media_type)
        elif dtype != self.dtype_text and wire.parse_dtype(dtype) != self.dtype:
            changed = "dtype", self.dtype_text, dtype
        elif found_shape is not None and tuple(json.loads(found_shape)) != shape:
            changed = "shape", list(shape), found_shape
        elif length is not None and int(length) != nbytes and "Content-Encoding" not in headers:
            changed = "size", nbytes, int(length)
        if changed is not None:
            raise ArrayChanged(self.address.path, *changed)
