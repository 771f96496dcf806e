"""The values of object arrays, which travel as JSON: one value an item, as nested lists.

Text is text; what JSON lacks is told by the array's filter: ``vlen-bytes`` come as base64, ``vlen-array`` as lists of
numbers of the filter's dtype.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from hyperslab import wire
from hyperslab.client.indexing import AnyArray
from hyperslab.errors import BadBody

Filters = Sequence[Mapping[str, Any]] | None


def decode(document: Any, shape: tuple[int, ...], filters: Filters) -> AnyArray:
    """An object array of ``shape`` from nested lists; raises `BadBody` where they are not of that shape."""
    items = [document]
    for length in shape:
        if not all(isinstance(item, list) and len(item) == length for item in items):
            raise BadBody(reason="nested lists of another shape", expected=list(shape))
        items = [inner for item in items for inner in item]
    convert = _conversion(filters, _from_base64, _to_array)
    values = np.empty(len(items), object)
    for i, item in enumerate(items):
        values[i] = convert(item)
    return values.reshape(shape)


def encode(values: AnyArray, filters: Filters) -> Any:
    """Nested lists that `decode` reads back; a value alone where there are no axes."""
    convert = _conversion(filters, _to_base64, _from_array)
    flat = [convert(item) for item in values.reshape(-1)]
    for length in reversed(values.shape[1:]):
        flat = [flat[i : i + length] for i in range(0, len(flat), length)]
    return flat if values.ndim else flat[0]


def _conversion(
    filters: Filters, of_bytes: Callable[[Any], Any], of_array: Callable[[Any, np.dtype[Any]], Any]
) -> Callable[[Any], Any]:
    """What is done to each value: the object codec is the last filter that knows objects."""
    for codec in filters or ():
        if codec.get("id") == "vlen-bytes":
            return of_bytes
        if codec.get("id") == "vlen-array":
            dtype = wire.dtype_from_json(codec["dtype"])
            return lambda item: of_array(item, dtype)
    return lambda item: item


def _from_base64(item: Any) -> Any:
    return base64.b64decode(item) if isinstance(item, str) else item


def _to_base64(item: Any) -> Any:
    return base64.b64encode(item).decode() if isinstance(item, bytes | bytearray) else item


def _to_array(item: Any, dtype: np.dtype[Any]) -> Any:
    return np.asarray(item, dtype) if isinstance(item, list) else item


def _from_array(item: Any, dtype: np.dtype[Any]) -> Any:
    return np.asarray(item, dtype).tolist() if isinstance(item, np.ndarray | list) else item
