"""Values as JSON and as npy.

JSON is strict and keeps what it can: NaN and the infinities are the strings that Zarr uses for them, times are ISO text
("NaT" where there is none), time spans counts of their unit, complex numbers ``[re, im]``, records objects, fixed
bytes text (UTF-8; other bytes as ``\\xff``), raw bytes base64. `json_values` reads all of it back.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping
from math import prod
from typing import Any, Final

import numpy as np
import orjson
from numpy.typing import NDArray

from hyperslab.api.text_forms import bytes_to_text, times_to_text
from hyperslab.engine.jsontext import dump_json
from hyperslab.errors import NotRepresentable
from hyperslab.wire import Packer, dtype_to_json, field_names, npy_dtype

_MAGIC = b"\x93NUMPY"
_NOT_FINITE = b"null"
_LAST_CODE_POINT = 0x10FFFF


def npy_header(shape: tuple[int, ...], dtype: np.dtype[Any]) -> bytes:
    """What stands before C-order data in an npy file (format 1.0; 2.0 and 3.0 where the dtype's text needs them)."""
    text = repr({"descr": np.lib.format.dtype_to_descr(npy_dtype(dtype)), "fortran_order": False, "shape": shape})
    version, length_bytes = (1, 2) if text.isascii() and len(text) < 60_000 else (2, 4) if text.isascii() else (3, 4)
    body = text.encode()
    before = len(_MAGIC) + 2 + length_bytes
    padded = -(-(before + len(body) + 1) // 64) * 64 - before
    return _MAGIC + bytes((version, 0)) + padded.to_bytes(length_bytes, "little") + body.ljust(padded - 1) + b"\n"


def check_npy(dtype: np.dtype[Any]) -> None:
    """Raise `NotRepresentable` for objects: in npy files they are code."""
    if dtype.hasobject:
        raise NotRepresentable(dtype_to_json(dtype), "npy", "numpy would pickle objects: ask for raw, json or csv")


def encode_objects(values: NDArray[Any]) -> bytes:
    """Objects in the layout of `wire.objects`; raises `NotRepresentable`."""
    packer = Packer()
    add_objects(packer, values)
    return packer.finish()


def add_objects(packer: Packer, values: NDArray[Any]) -> None:
    """Append an array's objects in C order; raises `NotRepresentable`."""
    try:
        packer.add(values.reshape(values.size).tolist())
    except (TypeError, ValueError) as error:
        raise NotRepresentable("|O", "raw", str(error)) from error


def encode_json(values: NDArray[Any]) -> bytes:
    """Nested lists in C order; a value alone where there are no axes. Raises `NotRepresentable`."""
    if is_numeric(values.dtype):
        return encode_numbers(values)
    items = json_items(values.reshape(values.size))
    return dump_json(_nested(items, values.shape))


def is_numeric(dtype: np.dtype[Any]) -> bool:
    """Whether it is one of numpy's own integers, floats and booleans."""
    return dtype.kind in "biuf" and not is_extension(dtype)


def is_extension(dtype: np.dtype[Any]) -> bool:
    """Whether it is one of ml_dtypes' numbers, whose kind to numpy may be anything."""
    return dtype.isbuiltin == 2


def encode_numbers(values: NDArray[Any]) -> bytes:
    """The JSON of an array of plain numbers."""
    native = np.ascontiguousarray(values, values.dtype.newbyteorder("=")).reshape(values.shape or 1)
    text = orjson.dumps(native, option=orjson.OPT_SERIALIZE_NUMPY)
    if _NOT_FINITE in text:
        text = _spell_out(text, native)
    return text if values.shape else text[1:-1]


def _spell_out(text: bytes, values: NDArray[Any]) -> bytes:
    """orjson writes null for whatever is not finite; the nulls come in C order, so each can be replaced by its name."""
    flat = values.reshape(-1)
    odd = flat[~np.isfinite(flat)]
    names = np.where(np.isnan(odd), b'"NaN"', np.where(odd > 0, b'"Infinity"', b'"-Infinity"')).tolist()
    parts = text.split(_NOT_FINITE)
    return b"".join([piece for pair in zip(parts, names, strict=False) for piece in pair] + [parts[-1]])


def json_items(values: NDArray[Any]) -> list[Any]:
    """One JSON-ready value for each item along the first axis; further axes are nested lists."""
    items = _flat_items(values.reshape(values.size))
    return items if values.ndim == 1 else list(_nested(items, values.shape))


def _flat_items(flat: NDArray[Any]) -> list[Any]:
    if flat.dtype.names is not None:
        names = field_names(flat.dtype)
        columns = [json_items(flat[name]) for name in names]
        return [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]
    return _extension_items(flat) if is_extension(flat.dtype) else _ITEMS[flat.dtype.kind](flat)


def _number_items(flat: NDArray[Any]) -> list[Any]:
    return list(flat.tolist())


def _complex_items(flat: NDArray[Any]) -> list[Any]:
    return [[value.real, value.imag] for value in flat.tolist()]


def _time_items(flat: NDArray[Any]) -> list[Any]:
    return list(times_to_text(flat))


def _span_items(flat: NDArray[Any]) -> list[Any]:
    counts = flat.astype(np.int64).tolist()
    return ["NaT" if missing else count for count, missing in zip(counts, np.isnat(flat).tolist(), strict=True)]


def _bytes_items(flat: NDArray[Any]) -> list[Any]:
    return [bytes_to_text(value) for value in flat.tolist()]


def _object_items(flat: NDArray[Any]) -> list[Any]:
    try:
        return [_object(value) for value in flat]
    except RecursionError as error:
        raise NotRepresentable("|O", "text", "the lists are nested too deeply") from error


def _extension_items(flat: NDArray[Any]) -> list[Any]:
    return list(flat.astype(np.int64 if "int" in flat.dtype.name else np.float64).tolist())


def _void_items(flat: NDArray[Any]) -> list[Any]:
    return [base64.b64encode(value.tobytes()).decode() for value in flat]


def _unicode_items(flat: NDArray[Any]) -> list[str]:
    codes = np.ascontiguousarray(flat).view(np.dtype(np.uint32).newbyteorder(flat.dtype.byteorder))
    if codes.size and codes.max() > _LAST_CODE_POINT:  # which only a broken chunk holds, and no Python text
        raise NotRepresentable(flat.dtype.str, "text", "not all values are Unicode")
    return [_text(value) for value in flat.tolist()]


_ITEMS: Final[Mapping[str, Callable[[NDArray[Any]], list[Any]]]] = {
    **dict.fromkeys("biuf", _number_items),
    "c": _complex_items,
    "M": _time_items,
    "m": _span_items,
    "S": _bytes_items,
    "U": _unicode_items,
    "O": _object_items,
    "V": _void_items,
}


def _text(value: str) -> str:
    """Text that UTF-8 can carry: lone surrogates are replaced."""
    return value if value.isascii() else value.encode("utf-8", "replace").decode()


def _object(value: Any) -> Any:
    """What an object codec has decoded, as JSON."""
    match value:
        case str():
            found: Any = _text(value)
        case bytes() | bytearray():
            found = base64.b64encode(value).decode()
        case np.ndarray() | np.generic():
            found = _nested(json_items(value.reshape(value.size)), value.shape)
        case dict():
            found = {_text(str(key)): _object(member) for key, member in value.items()}
        case list() | tuple():
            found = [_object(item) for item in value]
        case _:
            found = value
    return found


def _nested(items: list[Any], shape: tuple[int, ...]) -> Any:
    if not shape:
        return items[0]
    for axis in range(len(shape) - 1, 0, -1):
        size, count = shape[axis], prod(shape[:axis])
        items = [items[i * size : (i + 1) * size] for i in range(count)]
    return items
