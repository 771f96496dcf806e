"""The values of object arrays, which travel in the layout of `wire.objects`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

import numpy as np

from hyperslab import wire
from hyperslab.client.indexing import AnyArray
from hyperslab.errors import BadBody

Filters = Sequence[Mapping[str, Any]] | None


def decode(body: bytes | bytearray | memoryview, shape: tuple[int, ...]) -> AnyArray:
    """An object array of ``shape``; raises `BadBody` where the body holds none or another number of objects."""
    try:
        items = wire.unpack_objects(body)
    except ValueError as error:
        raise BadBody(reason=f"the answer is no object array: {error}") from error
    if len(items) != prod(shape):
        raise BadBody(reason="the number of objects", expected=prod(shape), found=len(items))
    values = np.empty(len(items), object)
    for i, item in enumerate(items):
        values[i] = item
    return values.reshape(shape)


def encode(values: AnyArray, filters: Filters) -> bytes:
    """The body that `decode` reads back; lists become arrays where the array's filter wants arrays.

    Raises `TypeError` and `ValueError` for objects that have no binary form.
    """
    items = values.reshape(values.size).tolist()
    for codec in filters or ():
        if codec.get("id") == "vlen-array":
            dtype = wire.dtype_from_json(codec["dtype"])
            items = [np.asarray(item, dtype) if isinstance(item, list | tuple) else item for item in items]
    return wire.pack_objects(items)
