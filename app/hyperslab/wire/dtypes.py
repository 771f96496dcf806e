"""Conversion between numpy's dtypes and the JSON of Zarr v2 (whose strict rules are in `engine.dtypes`)."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from functools import lru_cache
from typing import Any, Final

import numpy as np

from hyperslab.wire.data_types import COMPLEX_NAMES, EXTENSION_FLOATS, EXTENSIONS, NARROW_INTEGERS
from hyperslab.wire.nesting import MAX_DEPTH, check_text_nesting

PADDING: Final = "\0padding"
"""Prefix of the internal names of padding: as named fields it is copied by numpy, and so never uninitialised."""


def field_names(dtype: np.dtype[Any]) -> tuple[str, ...]:
    """Names of the fields of a dtype, without padding; empty if it is not structured."""
    return tuple(name for name in dtype.names or () if not name.startswith(PADDING))


def numpy_dtype(text: str) -> np.dtype[Any]:
    """``numpy.dtype`` of untrusted text; raises `ValueError` and `TypeError`.

    A unit of time is a count and a name, or is refused: with some others numpy ends the process.
    """
    time = r"[<>|=]?([mM]8|datetime64|timedelta64)\[([1-9][0-9]*)?[A-Za-z\u03bc]+\]"
    if "[" in text and not re.fullmatch(time, text):
        raise ValueError(f"{text[:80]!r}: expected a unit of time, such as [ns] or [10s]")
    if re.fullmatch(r"[<>|=]?a[0-9]*", text):
        raise ValueError(f"{text!r}: numpy is giving up this name of 'S', and Zarr never had it")
    return np.dtype(text)


def extension_name(dtype: np.dtype[Any]) -> str | None:
    """Zarr's name of a dtype of ml_dtypes; None for one of numpy."""
    if not is_extension(dtype):
        return None
    return next((name for name, other in COMPLEX_NAMES.items() if other == dtype.name), dtype.name)


def is_extension(dtype: np.dtype[Any]) -> bool:
    """Whether it is one of ml_dtypes, whose kind in numpy says nothing."""
    return dtype.isbuiltin == 2


def kind_of(dtype: np.dtype[Any]) -> str:
    """numpy's kind of a dtype, for extension types that of the numbers which they are like: ``c``, ``f``, ``i`` or
    ``u``."""
    name = extension_name(dtype)
    return dtype.kind if name is None else "f" if name in EXTENSION_FLOATS else name[0]


def limits_of(integers: np.dtype[Any]) -> tuple[int, int]:
    """Minimum and maximum of a dtype of integers."""
    bits = NARROW_INTEGERS.get(integers.name, 8 * integers.itemsize)
    return (0, 2**bits - 1) if kind_of(integers) == "u" else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)


def numbers_dtype(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """The dtype of numpy that holds all values of one of ml_dtypes: int8, float32 or complex64; others unchanged."""
    name = extension_name(dtype)
    if name is None:
        return dtype
    return np.dtype(np.complex64 if name in COMPLEX_NAMES else np.int8 if "int" in name else np.float32)


def part_dtype(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """The dtype of the real and the imaginary part of complex numbers."""
    if extension_name(dtype) is None:
        return np.dtype(f"{dtype.str[0]}f{dtype.itemsize // 2}")
    return _extension_dtype("bfloat16") if dtype.name == COMPLEX_NAMES["complex_bfloat16"] else np.dtype("<f2")


def dtype_from_json(value: Any) -> np.dtype[Any]:
    """The numpy dtype of a Zarr v2 dtype's JSON, such as ``"<u2"`` or ``[["x", "<i4", [2]]]``.

    Fields without a name are padding. Raises `ValueError` for unknown dtypes, and `ImportError` for those of ml_dtypes
    if that is not installed.
    """
    if isinstance(value, str):
        return _extension_dtype(value) if value in EXTENSIONS else numpy_dtype(value)
    names, formats, offsets, end = [], [], [], 0
    for name, base, *shape in value:
        inner = dtype_from_json(base)
        dtype = np.dtype((inner, tuple(shape[0]))) if shape and shape[0] else inner
        if name:
            names.append(name)
            formats.append(dtype)
            offsets.append(end)
        end += dtype.itemsize
    return np.dtype({"names": names, "formats": formats, "offsets": offsets, "itemsize": end})


def dtype_to_json(dtype: np.dtype[Any]) -> Any:
    """The JSON of a dtype, including padding; the inverse of `dtype_from_json`."""
    if dtype.names is not None and dtype.fields is not None:
        return _fields_to_json(dtype)
    return extension_name(dtype) or dtype.str


@lru_cache(1024)
def format_dtype(dtype: np.dtype[Any]) -> str:
    """Value of an ``Array-Dtype`` header."""
    return json.dumps(dtype_to_json(dtype), separators=(",", ":"))


def parse_dtype(text: str) -> np.dtype[Any]:
    """The dtype of an ``Array-Dtype`` header; raises `ValueError`."""
    check_text_nesting(text.encode(), MAX_DEPTH)
    return dtype_from_json(json.loads(text))


def npy_dtype(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """The dtype in npy files, with the same layout: dtypes of ml_dtypes become raw bytes."""
    return _rebuilt(dtype, lambda leaf: np.dtype(f"|V{leaf.itemsize}") if is_extension(leaf) else leaf)


def bare_dtype(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """The dtype without names of padding, with the same layout."""
    return _rebuilt(dtype, lambda leaf: leaf)


def _rebuilt(dtype: np.dtype[Any], change: Callable[[np.dtype[Any]], np.dtype[Any]]) -> np.dtype[Any]:
    if dtype.subdtype is not None:
        base, shape = dtype.subdtype
        return np.dtype((_rebuilt(base, change), shape))
    if dtype.names is None:
        return change(dtype)
    names, by_name = field_names(dtype), dict(dtype.fields or {})
    fields = [by_name[name][:2] for name in names]
    formats, offsets = [_rebuilt(field, change) for field, _ in fields], [offset for _, offset in fields]
    return np.dtype({"names": list(names), "formats": formats, "offsets": offsets, "itemsize": dtype.itemsize})


def _extension_dtype(name: str) -> np.dtype[Any]:
    try:
        import ml_dtypes  # heavy, and only needed for its own types
    except ModuleNotFoundError as error:
        message = f"the dtype {name!r} needs ml_dtypes: pip install ml_dtypes, or 'hyperslab[server]', which has it"
        raise ModuleNotFoundError(message, name="ml_dtypes") from error
    scalar = getattr(ml_dtypes, COMPLEX_NAMES.get(name, name), None)
    if scalar is None:
        raise ValueError(f"{name!r} is no dtype")
    extension: np.dtype[Any] = np.dtype(scalar)
    return extension


def _fields_to_json(dtype: np.dtype[Any]) -> list[list[Any]]:
    members: list[list[Any]] = []
    end, fields = 0, dict(dtype.fields or {})
    for name in field_names(dtype):
        field, offset = fields[name][:2]
        base, shape = field.subdtype or (field, None)
        members += [*_gap(offset - end), [name, dtype_to_json(base), *([] if shape is None else [list(shape)])]]
        end = offset + field.itemsize
    return [*members, *_gap(dtype.itemsize - end)]


def _gap(nbytes: int) -> list[list[Any]]:
    return [["", f"|V{nbytes}"]] if nbytes > 0 else []
