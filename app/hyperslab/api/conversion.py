"""``dtype=``: the values in another dtype than they are stored in."""

from __future__ import annotations

import re
from typing import Any, Final

import numpy as np

from hyperslab.api.encoders import is_extension
from hyperslab.errors import BadParameter, NotRepresentable
from hyperslab.wire import dtype_from_json

DType = np.dtype[Any]

_SAFE: Final = "safe"
_SPELLING = re.compile(r"[<>|=]?[A-Za-z][A-Za-z0-9_]*(\[[0-9]*[A-Za-z]+\])?", re.ASCII)
_TOO_FAR_APART = "between the two units of time lies a factor that 64 bits do not hold"
_EXPECTED = "'safe' or the dtype of a number, such as '<f4', '|u1' or 'float32'"


def converted(text: str | None, source: DType) -> DType | None:
    """The dtype that ``dtype=text`` asks for, None where that is the source's own.

    ``safe`` is what a JavaScript typed array holds: little endian, half and other short floats as float32, 64-bit
    integers as float64, booleans as uint8, times as their int64 counts. Otherwise numpy's ``same_kind`` rule decides,
    so that nothing turns into what it is not: NaN never becomes an integer. Integers that do not fit wrap around.
    Narrow integers and floats of ml_dtypes are integers and floats. Raises `BadParameter` for an unknown dtype and
    `NotRepresentable`.
    """
    if text is None:
        return None
    target = _safe(source) if text == _SAFE else _parse(text)
    if target == source:
        return None
    try:
        allowed = text == _SAFE or _may_become(source, target)
    except OverflowError as error:
        raise NotRepresentable(str(source), str(target), _TOO_FAR_APART) from error
    except TypeError as error:
        raise NotRepresentable(str(source), str(target), "neither numpy nor ml_dtypes has this conversion") from error
    if not allowed:
        raise NotRepresentable(str(source), str(target), "numpy's same_kind rule does not allow this conversion")
    return target


def _parse(text: str) -> DType:
    try:
        dtype = dtype_from_json(text) if _SPELLING.fullmatch(text) else None
    except (TypeError, ValueError, AttributeError) as error:
        raise BadParameter("dtype", text, _EXPECTED) from error
    if dtype is None or not _is_plain(dtype):
        raise BadParameter("dtype", text, _EXPECTED)
    return dtype


def _is_plain(dtype: DType) -> bool:
    """numpy's long doubles are none: their bytes are those of this machine, and some belong to no value."""
    return (dtype.kind in "biufcmM" and dtype.char not in "gG") or is_extension(dtype)


def _may_become(source: DType, target: DType) -> bool:
    if not _is_plain(source):
        return False
    if source.kind in "mM" and target.kind == "i":
        return target.itemsize == 8
    allowed = bool(np.can_cast(_nearest(source), _nearest(target), "same_kind"))
    if allowed and not (source.kind in "biufc" and target.kind in "biufc"):
        np.zeros(1, source).astype(target)  # more is allowed than can be done, and this raises what says so
    return allowed


def _nearest(dtype: DType) -> DType:
    """The dtype of numpy that is of the same kind, for those of ml_dtypes, of which its rule knows little."""
    if is_extension(dtype):
        return np.dtype(np.int8 if "int" in dtype.name else np.float32)
    return dtype


def _safe(source: DType) -> DType:
    if not _is_plain(source) or source.kind == "c":
        raise NotRepresentable(str(source), _SAFE, "no JavaScript typed array holds these values")
    if is_extension(source):
        return np.dtype("|i1") if "int" in source.name else np.dtype("<f4")
    if source.kind in "mM":
        return np.dtype("<i8")
    if source.itemsize == 8:
        return np.dtype("<f8")
    wider: dict[str, DType] = {"b": np.dtype("|u1"), "f": np.dtype("<f4")}
    return wider.get(source.kind, source.newbyteorder("<"))
