"""What a new array is asked to be."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from datetime import date, timedelta
from typing import Any

import numpy as np

from hyperslab import wire
from hyperslab.client.casting import as_values, is_extension
from hyperslab.client.indexing import AnyArray


def define_array(
    values: AnyArray | None, shape: int | tuple[int, ...] | None, dtype: Any, members: Mapping[str, Any]
) -> dict[str, Any]:
    """The body that creates an array: shape and dtype are those of ``values`` where they are not given.

    Numbers of numpy among ``members`` become JSON, a fill value after it has become one of the array's dtype. Raises
    `ValueError` where there is no shape or no dtype, and `TypeError` or `OverflowError` for a fill value that the dtype
    cannot hold.
    """
    if values is not None:
        shape = values.shape if shape is None else shape
        dtype = values.dtype if dtype is None else dtype
    if shape is None or dtype is None:
        raise ValueError("a new array needs a shape and a dtype, or data= that has them")
    lengths = [shape] if isinstance(shape, int | np.integer) else list(shape)
    stored = _dtype_json(dtype)
    found = {name: _plain(value) for name, value in members.items() if name != "fill_value"}
    if "fill_value" in members:
        found["fill_value"] = format_fill_value(_as_item(members["fill_value"], stored))
    return {"kind": "array", "shape": [int(n) for n in lengths], "dtype": stored, **found}


def _as_item(value: Any, stored: Any) -> Any:
    """``value`` as an item of the dtype, where its bytes would else be taken for those of another."""
    if isinstance(value, str) or not isinstance(value, np.ndarray | np.generic | tuple | date | timedelta):
        return value  # is JSON, or becomes JSON, whatever the dtype
    dtype = wire.dtype_from_json(stored)
    if dtype.hasobject or (isinstance(value, tuple) and dtype.names is None):
        return value
    if isinstance(value, np.ndarray):
        value = value.reshape(())[()]  # raises where it is more than one value
    whole = isinstance(value, np.floating) and value.is_integer() and dtype.kind in "iu"
    item = np.zeros((), dtype)  # between the fields of records there are zeros
    item[...] = as_values(int(value) if whole else value, dtype)
    return item[()]


def format_fill_value(value: Any) -> Any:
    """JSON of a fill value as Zarr v2 has it (spec: *Fill value encoding*)."""
    if isinstance(value, np.ndarray | np.generic):
        if value.dtype.kind in "mM":
            return int(value.astype(np.int64))
        if is_extension(value.dtype):
            value = int(value) if "int" in value.dtype.name else float(value)
        elif value.dtype.kind == "V":
            return base64.b64encode(value.tobytes()).decode()
        else:
            value = value.item()
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, complex):
        return [_format_float(value.real), _format_float(value.imag)]
    return _format_float(value) if isinstance(value, float) else value


def _format_float(value: float) -> float | str:
    if value != value:  # noqa: PLR0124 - only NaN is not itself
        return "NaN"
    return value if abs(value) != float("inf") else "Infinity" if value > 0 else "-Infinity"


def _dtype_json(dtype: Any) -> Any:
    """The Zarr v2 spelling: numpy's dtypes and their names are translated, what is JSON already stays."""
    if isinstance(dtype, list) or (isinstance(dtype, str) and dtype in _ZARR_NAMES):
        return dtype
    return wire.dtype_to_json(np.dtype(dtype))


_ZARR_NAMES = frozenset({"int2", "int4", "bfloat16"})


def _plain(value: Any) -> Any:
    """Tuples and numpy's integers as JSON has them; a codec object gives its own configuration."""
    if hasattr(value, "get_config"):  # numcodecs
        return value.get_config()
    if isinstance(value, np.integer):
        return int(value)
    return [_plain(item) for item in value] if isinstance(value, list | tuple) else value
