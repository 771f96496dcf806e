"""Items of arrays: the JSON of a fill value of Zarr v2 to an item and back, bit for bit.

Items are 0-d arrays, as scalars lose the payload of NaN and the byte order. The table at the end has both directions by
kind of dtype. [Zarr v2 specification, "Fill value encoding"]
"""

from __future__ import annotations

import base64
import math
import re
from collections.abc import Callable, Mapping
from typing import Any, Final

import numpy as np

from hyperslab.errors import shown
from hyperslab.wire.data_types import NARROW_FLOATS
from hyperslab.wire.dtypes import kind_of, limits_of, part_dtype

Item = np.ndarray
"""Item, 0-d."""
DType = np.dtype[Any]

NON_FINITE: Final = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
"""Floats without strict JSON, by their text in Zarr."""
DECIMAL: Final = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?", re.ASCII)
FLOAT4: Final = "float4_e2m1fn"


def parse_item(value: Any, dtype: DType) -> Item:
    """An item of a dtype other than object, with the bits of the JSON; raises `ValueError`."""
    return _KINDS[kind_of(dtype)][0](value, dtype)


def format_item(item: Item) -> Any:
    """The strict JSON of an item (NaN and infinities are strings); the inverse of `parse_item`."""
    return to_base64(item.tobytes()) if item.dtype.name == FLOAT4 else _KINDS[kind_of(item.dtype)][1](item)


def parse_object(value: Any, codec: str | None) -> Any:
    """An object from the JSON of a fill value, which depends on the id of its codec; raises `ValueError`."""
    if codec == "vlen-bytes":
        return b"" if is_zero(value) else from_base64(value)
    return plain_text(value) if codec in ("vlen-utf8", "categorize") else value


def json_float(number: float) -> float | str:
    """A float for strict JSON: NaN and infinities as Zarr's strings."""
    if math.isfinite(number):
        return number
    return "NaN" if math.isnan(number) else ("Infinity" if number > 0 else "-Infinity")


# --- text and bytes ----------------------------------------------------------------------------------------------


def _parse_bytes(value: Any, dtype: DType) -> Item:
    """base64 of the item's bytes. Kind ``S`` is padded with NUL; 0, of old writers, is empty."""
    padded = dtype.kind == "S"
    raw = b"" if padded and is_zero(value) else from_base64(value)
    if len(raw) > dtype.itemsize or (len(raw) < dtype.itemsize and not padded):
        raise ValueError(f"{len(raw)} bytes in base64, the item has {dtype.itemsize}")
    return item_of(raw, dtype)


def _parse_text(value: Any, dtype: DType) -> Item:
    """A string, truncated to the length of the item; 0 is the empty one."""
    text = plain_text(value)[: dtype.itemsize // 4]
    return item_of(text.encode("utf-32-be" if dtype.byteorder == ">" else "utf-32-le"), dtype)


def plain_text(value: Any) -> str:
    """A string; 0 is the empty one."""
    if isinstance(value, str):
        return value
    if is_zero(value):
        return ""
    raise ValueError(f"expected a string, found {shown(value)}")


def item_of(raw: bytes, dtype: DType) -> Item:
    """The item with these first bytes, others zero."""
    return np.frombuffer(raw.ljust(dtype.itemsize, b"\0"), dtype).reshape(()).copy()


def from_base64(value: Any) -> bytes:
    if isinstance(value, str):
        try:
            return base64.b64decode(value, validate=True)
        except ValueError as error:
            raise ValueError(f"{shown(value)} is not base64: {error}") from None
    raise ValueError(f"expected the bytes of an item in base64, found {shown(value)}")


def to_base64(raw: bytes) -> str:
    return base64.b64encode(raw).decode("ascii")


def is_zero(value: Any) -> bool:
    """Whether it is the integer 0, which old zarr-python wrote for every dtype."""
    return type(value) is int and value == 0


# --- bools, integers and times -----------------------------------------------------------------------------------


def _parse_bool(value: Any, dtype: DType) -> Item:
    if value is True or value is False or (type(value) is int and value in (0, 1)):
        return np.array(bool(value), dtype)
    raise ValueError(f"expected true or false, found {shown(value)}")


def _parse_integer(value: Any, dtype: DType) -> Item:
    number = _integer(value, *limits_of(dtype))
    if dtype.kind == "V":  # sign-extended to the byte, as TensorStore stores a fill value
        return np.array(number, f"{kind_of(dtype)}1").view(dtype)
    return np.array(number, dtype)


def _parse_time(value: Any, dtype: DType) -> Item:
    """The number of units as an integer, or ``"NaT"``. Other text is ambiguous: zarr-python 2 reads ``"2000"`` as a
    year."""
    if isinstance(value, str) and value != "NaT":
        raise ValueError(f"expected an integer or 'NaT', found {shown(value)}")
    count = _integer(-(2**63) if value == "NaT" else value, -(2**63), 2**63 - 1)
    return np.array(count, np.dtype(f"{dtype.str[0]}i8")).view(dtype)


def has_no_unit(dtype: DType) -> bool:
    """Whether it is one of times (not spans) of which nothing says what they count."""
    return dtype.kind == "M" and np.datetime_data(dtype)[0] == "generic"


def _format_time(item: Item) -> int | str:
    """The number of units; ``"NaT"`` for times without a unit, of which numpy and zarr-python read nothing else."""
    count = int(item.view(np.dtype(f"{item.dtype.str[0]}i8"))[()])
    return "NaT" if has_no_unit(item.dtype) and count == -(2**63) else count


def _integer(value: Any, low: int, high: int) -> int:
    """An integer, an integral float or decimal text, within limits; raises `ValueError`."""
    is_decimal = isinstance(value, str) and re.fullmatch(r"[+-]?[0-9]{1,20}", value, re.ASCII)
    number = int(value) if is_decimal or (type(value) is float and value.is_integer()) else value
    if type(number) is not int:
        raise ValueError(f"expected an integer, found {shown(value)}")
    if not low <= number <= high:
        raise ValueError(f"{shown(value)} is out of range: {low} to {high}")
    return number


# --- floats and complex numbers ----------------------------------------------------------------------------------


def _parse_float(value: Any, dtype: DType) -> Item:
    if dtype.name in NARROW_FLOATS:  # without NaN and infinity; TensorStore writes base64
        if isinstance(value, str) and value.endswith("=="):
            return _parse_bytes(value, dtype)
        if not math.isfinite(to_float(value)):
            raise ValueError(f"{dtype.name} has no {shown(value)}")
    elif isinstance(value, str) and re.fullmatch(r"0x(?:[0-9a-fA-F]{2})+", value):
        if len(value) != 2 + 2 * dtype.itemsize:
            raise ValueError(f"{shown(value)} is not {dtype.itemsize} bytes of bits")
        item = item_of_bits(value, dtype)
        if not math.isnan(float(item)):  # TensorStore parses such text as a number
            raise ValueError(f"{shown(value)} is not the bits of a NaN; write the number itself")
        return item
    return _rounded(to_float(value), dtype)


def _rounded(number: float, dtype: DType) -> Item:
    """The nearest item, as in TensorStore.

    ml_dtypes converts to floats of one byte through float32, which could round twice. The number is therefore rounded
    to odd first: to the adjacent float32 whose last bit is 1, which is never halfway between two of theirs.
    """
    with np.errstate(over="ignore", under="ignore"):
        if dtype.itemsize > 1 or not math.isfinite(number):
            return np.array(number).astype(dtype)
        single = np.array(number, np.float32)
        error = number - float(single)
        if error and np.isfinite(single) and not single.view(np.uint32) & 1:
            single = np.nextafter(single, np.float32(math.copysign(math.inf, error)))
        return np.array(single).astype(dtype)


def to_float(value: Any) -> float:
    if isinstance(value, str):
        if value in NON_FINITE:
            return NON_FINITE[value]
        if DECIMAL.fullmatch(value):
            return float(value)
    elif type(value) in (int, float):
        try:
            return float(value)
        except OverflowError:
            raise ValueError("an integer too large for a float") from None
    raise ValueError(f"expected a number, 'NaN', 'Infinity' or '-Infinity', found {shown(value)}")


def item_of_bits(text: str, dtype: DType) -> Item:
    """The item of ``0x`` and hexadecimal digits of its bits, most significant first."""
    bits = bytes.fromhex(text[2:])
    return item_of(bits if dtype.byteorder == ">" else bits[::-1], dtype)


def _format_float(item: Item) -> float | str:
    number, stored = float(item), item.tobytes()
    if math.isnan(number) and stored != np.array(math.nan).astype(item.dtype).tobytes():
        return "0x" + (stored if item.dtype.byteorder == ">" else stored[::-1]).hex()
    return json_float(number)


def _parse_complex(value: Any, dtype: DType) -> Item:
    if isinstance(value, str):
        return _parse_bytes(value, dtype)
    parts = [value, 0.0] if type(value) in (int, float) else value
    if not isinstance(parts, list) or len(parts) != 2:
        raise ValueError(f"expected [real, imaginary], found {shown(value)}")
    return complex_of(parts, dtype, _parse_float)


def complex_of(parts: list[Any], dtype: DType, parse: Callable[[Any, DType], Item]) -> Item:
    """[real, imaginary], by part: ``re + 1j * im`` would turn [1, "-Infinity"] into NaN."""
    return item_of(b"".join(parse(part, part_dtype(dtype)).tobytes() for part in parts), dtype)


def parts_of(item: Item) -> tuple[Item, Item]:
    """The real and the imaginary part; ml_dtypes has no such views."""
    parts = item.reshape(1).view(part_dtype(item.dtype))
    return parts[0, ...], parts[1, ...]


_KINDS: Final[Mapping[str, tuple[Callable[[Any, DType], Item], Callable[[Item], Any]]]] = {
    "b": (_parse_bool, bool),
    **dict.fromkeys("iu", (_parse_integer, int)),
    "f": (_parse_float, _format_float),
    "c": (_parse_complex, lambda item: [_format_float(part) for part in parts_of(item)]),
    **dict.fromkeys("mM", (_parse_time, _format_time)),
    "U": (_parse_text, lambda item: str(item[()])),
    **dict.fromkeys("SV", (_parse_bytes, lambda item: to_base64(item.tobytes()))),
}
"""Parser and formatter of the items of a kind."""


# --- memory ------------------------------------------------------------------------------------------------------


def bytes_of(values: np.ndarray) -> memoryview:
    """The memory of a C-contiguous array."""
    return values.reshape(-1).view(np.uint8).data
