"""What a new array is asked to be."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any

import numpy as np

from hyperslab import wire
from hyperslab.client.casting import is_extension
from hyperslab.client.indexing import AnyArray


def define_array(
    values: AnyArray | None, shape: int | tuple[int, ...] | None, dtype: Any, members: Mapping[str, Any]
) -> dict[str, Any]:
    """The body that creates an array: shape and dtype are those of ``values`` where they are not given.

    Numbers of numpy among ``members`` become JSON. Raises `ValueError` where there is no shape or no dtype.
    """
    if values is not None:
        shape = values.shape if shape is None else shape
        dtype = values.dtype if dtype is None else dtype
    if shape is None or dtype is None:
        raise ValueError("a new array needs a shape and a dtype, or data= that has them")
    found = {name: _plain(value) for name, value in members.items()}
    lengths = [shape] if isinstance(shape, int | np.integer) else list(shape)
    if "fill_value" in found:
        found["fill_value"] = format_fill_value(members["fill_value"])
    return {"kind": "array", "shape": [int(n) for n in lengths], "dtype": _dtype_json(dtype), **found}


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
