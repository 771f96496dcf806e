"""The values of object arrays, which travel in the layout of `wire.objects`."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import Any

import numpy as np

from hyperslab import wire
from hyperslab.client.casting import as_values
from hyperslab.client.indexing import AnyArray
from hyperslab.errors import BadBody


def object_codec(members: Mapping[str, Any]) -> Mapping[str, Any]:
    """The codec that turns the objects of an array into bytes: its first one, which may stand for the compressor.

    ``members`` are those of the array's document; empty where no codec is named.
    """
    chain = [*(members.get("filters") or ()), members.get("compressor")]
    return chain[0] or {}


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


def as_stored(values: AnyArray, codec: Mapping[str, Any]) -> AnyArray:
    """The same objects, with arrays in place of lists where the array's codec wants arrays; raises as `as_values`."""
    if codec.get("id") != "vlen-array":
        return values
    wanted = wire.dtype_from_json(codec["dtype"])
    found = np.empty(values.size, object)
    for i, item in enumerate(values.reshape(-1).tolist()):
        held = isinstance(item, list | tuple | np.ndarray)
        found[i] = as_values(item, wanted).astype(wanted) if held else item
    return found.reshape(values.shape)


def encode(values: AnyArray) -> bytes:
    """The body that `decode` reads back; raises `TypeError` and `ValueError` for objects that have no binary form."""
    return wire.pack_objects(values.reshape(values.size).tolist())
