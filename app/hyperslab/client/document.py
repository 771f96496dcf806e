"""The node document of an array, parsed once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import Any

import numpy as np

from hyperslab import wire
from hyperslab.client.values import object_codec, parse_fill_value
from hyperslab.errors import BadMetadata, FieldUnknown, WrongKind


@dataclass(frozen=True)
class ArrayDocument:
    """Node document of an array (docs/reference/http.md), with at most one field opened.

    ``shape``, ``chunks`` and ``grid_rank``: the array's own axes; a field's subarray follows in ``item_shape``.
    ``dtype`` is that of one item as it travels, without the subarray. ``etag`` is the document's validator.
    ``decode``: ``cf`` where values travel decoded.
    """

    members: Mapping[str, Any]
    field: str | None
    etag: str | None
    path: str
    grid_shape: tuple[int, ...]
    grid_chunks: tuple[int, ...]
    item_dtype: np.dtype[Any]
    dtype: np.dtype[Any]
    item_shape: tuple[int, ...]
    decode: str | None = None

    @classmethod
    def parse(
        cls, members: Mapping[str, Any], *, field: str | None = None, etag: str | None = None, decode: str | None = None
    ) -> ArrayDocument:
        """Raises `WrongKind` for a group, `FieldUnknown`, `BadMetadata` for a member that cannot be understood, and
        `ModuleNotFoundError` for a dtype of ml_dtypes where that is not installed.
        """
        path = str(members.get("path", ""))
        if members.get("kind") != "array":
            raise WrongKind(path=path, kind=str(members.get("kind")), wanted="array")
        try:
            item_dtype = wire.dtype_from_json(members["dtype"])
            shape = tuple(int(n) for n in members["shape"])
            chunks = tuple(int(n) for n in members["chunks"])
        except (KeyError, TypeError, ValueError) as error:
            raise BadMetadata(key=path, member=None, reason=f"the node document is incomplete: {error!r}") from error
        dtype, item_shape = item_dtype, ()
        if field is not None:
            if item_dtype.fields is None or field not in item_dtype.fields:
                raise FieldUnknown(path=path, field=field, fields=list(item_dtype.names or ()))
            opened = item_dtype.fields[field][0]
            dtype, item_shape = opened.base, opened.shape
        decoded = members.get("decoded") if decode == "cf" and not item_dtype.names else None
        if decoded is not None:
            dtype = wire.dtype_from_json(decoded["dtype"])
        return cls(members, field, etag, path, shape, chunks, item_dtype, dtype, item_shape, decode)

    @property
    def shape(self) -> tuple[int, ...]:
        """The array's axes, then the field's."""
        return self.grid_shape + self.item_shape

    @property
    def chunks(self) -> tuple[int, ...]:
        return self.grid_chunks + self.item_shape

    @property
    def item_nbytes(self) -> int:
        """Bytes of one item with its subarray."""
        return self.dtype.itemsize * prod(self.item_shape)

    @cached_property
    def dtype_text(self) -> str:
        """`Array-Dtype` header of responses with this array's values."""
        return wire.format_dtype(self.dtype)

    @cached_property
    def fill_value(self) -> Any:
        """A scalar of `dtype` (an array for a field with a subarray), or None if it is undefined."""
        value = self.members.get("fill_value")
        if value is None:
            return None
        whole = parse_fill_value(value, self.item_dtype, object_codec(self.members).get("id"))
        return whole if self.field is None else whole[self.field]

    @property
    def dimension_names(self) -> tuple[str | None, ...] | None:
        names = self.members.get("dimension_names")
        return None if names is None else tuple(names)

    @property
    def limits(self) -> Mapping[str, int | None]:
        """Request limits by the server's names for them."""
        return self.members.get("limits") or {}

    @property
    def response_limit(self) -> int | None:
        """Maximum bytes of values in one response, None without a limit; the limit for JSON applies to objects."""
        return self.limits.get("max_json_bytes" if self.dtype.hasobject else "max_response_bytes")

    def with_members(self, members: Mapping[str, Any], etag: str | None) -> ArrayDocument:
        """A newer document of the same array and field."""
        return ArrayDocument.parse(members, field=self.field, etag=etag, decode=self.decode)
