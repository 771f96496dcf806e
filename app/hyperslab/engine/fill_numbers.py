"""Numbers of a fill value, JSON to one item and back: bools, integers, times, floats and complex numbers.

An item is a 0-d array, never a scalar: scalars lose the payload of a NaN and the byte order.
"""

from __future__ import annotations

import math
import re
from typing import Any, Final

import numpy as np

from hyperslab.engine.dtypes import EXTENSION_FLOATS, NARROW_INTEGERS
from hyperslab.engine.fill_bytes import Item, parse_bytes
from hyperslab.engine.jsontext import spell_float
from hyperslab.errors import shown

_INTEGER = re.compile(r"[+-]?[0-9]{1,20}", re.ASCII)
_DECIMAL = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?", re.ASCII)
_BITS = re.compile(r"0x(?:[0-9a-fA-F]{2})+", re.ASCII)
_SPELLED = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
_NOT_A_TIME = -(2**63)
_SATURATED: Final = {"float4_e2m1fn": 6.0}
"""The largest number of a dtype without infinities and NaN: what is larger becomes this one."""


def parse_bool(value: Any, dtype: np.dtype[Any]) -> Item:
    if value is True or value is False or (type(value) is int and value in (0, 1)):
        return np.array(bool(value), dtype)
    raise ValueError(f"expected true or false, found {shown(value)}")


def parse_integer(value: Any, dtype: np.dtype[Any]) -> Item:
    limits = np.iinfo(dtype)
    return np.array(_integer(value, int(limits.min), int(limits.max)), dtype)


def parse_narrow(value: Any, dtype: np.dtype[Any]) -> Item:
    """Sign-extended to the byte, as TensorStore stores a fill value (CONFORMANCE 50)."""
    high = 2 ** (NARROW_INTEGERS[dtype.name] - 1) - 1
    return np.array(_integer(value, -high - 1, high), np.int8).view(dtype)


def parse_time(value: Any, dtype: np.dtype[Any]) -> Item:
    """The count of units as an integer, or ``"NaT"`` (CONFORMANCE 97, 98).

    Other text has two readings: zarr-python 2 takes ``"2000"`` for a year.
    """
    if isinstance(value, str):
        if value != "NaT":
            raise ValueError(f"expected an integer or 'NaT', found {shown(value)}")
        value = _NOT_A_TIME
    count = _integer(value, -(2**63), 2**63 - 1)
    return np.array(count, np.dtype(f"{dtype.str[0]}i8")).view(dtype)


def _integer(value: Any, low: int, high: int) -> int:
    """An integer, an integral float or a decimal text (CONFORMANCE 83, 84), within the limits."""
    number = int(value) if _spells_integer(value) else value
    if type(number) is not int:
        raise ValueError(f"expected an integer, found {shown(value)}")
    if not low <= number <= high:
        raise ValueError(f"{shown(value)} is out of range: {low} to {high}")
    return number


def _spells_integer(value: Any) -> bool:
    if isinstance(value, str):
        return _INTEGER.fullmatch(value) is not None
    return type(value) is float and value.is_integer()


def format_time(item: Item) -> int:
    return int(item.view(np.dtype(f"{item.dtype.str[0]}i8"))[()])


# --- floats ----------------------------------------------------------------------------------------------------


def parse_float(value: Any, dtype: np.dtype[Any]) -> Item:
    if isinstance(value, str) and _BITS.fullmatch(value):
        return _nan_from_bits(value, dtype)
    return _rounded(_float(value), dtype)


def _rounded(number: float, dtype: np.dtype[Any]) -> Item:
    """The nearest item, as TensorStore finds it (CONFORMANCE 91).

    ``ml_dtypes`` converts to its narrow floats by way of float32, which would round twice. For those of one byte the
    first step therefore rounds to odd: where float32 has no exact value, it takes the neighbour whose last bit is 1,
    which is never half way between two of theirs.
    """
    with np.errstate(over="ignore", under="ignore"):
        if dtype.itemsize > 1 or not math.isfinite(number):
            return np.array(number).astype(dtype)
        near = np.array(number, np.float32)
        error = number - float(near)
        if error and np.isfinite(near) and not near.view(np.uint32) & 1:
            near = np.nextafter(near, np.float32(math.copysign(math.inf, error)))
        return np.array(near).astype(dtype)


def check_finite(value: Any, item: Item) -> None:
    """Raise `ValueError` where a finite number in the JSON ``value`` is not finite in the ``item`` that was made of
    it."""
    for part, found in _parts(value, item):
        if _spells_finite(part) and not _holds(part, found):
            raise ValueError(f"{shown(part)} is out of range for {found.dtype.name}")


def _parts(value: Any, item: Item) -> list[tuple[Any, Item]]:
    """The parts of the JSON, each with the floating-point number that it stands for."""
    if item.dtype.kind == "c":
        parts = value if isinstance(value, list) else [value]  # text is base64, which spells no number
        return list(zip(parts, (item.real, item.imag), strict=False))
    return [(value, item)] if item.dtype.kind == "f" or item.dtype.name in EXTENSION_FLOATS else []


def _spells_finite(value: Any) -> bool:
    if isinstance(value, str):
        return _DECIMAL.fullmatch(value) is not None
    return type(value) is int or (type(value) is float and math.isfinite(value))


def _holds(value: Any, item: Item) -> bool:
    """Whether a finite number has stayed finite; dtypes without an infinity turn what is too large into NaN, or into
    the largest number that they have."""
    largest = _SATURATED.get(item.dtype.name, math.inf)
    return math.isfinite(float(item)) and abs(_float(value)) <= largest


def parse_minifloat(value: Any, dtype: np.dtype[Any]) -> Item:
    """``float4_e2m1fn`` has no NaN and no infinity; TensorStore spells it in base64 (CONFORMANCE 110)."""
    if isinstance(value, str) and value.endswith("=="):
        return parse_bytes(value, dtype)
    number = _float(value)
    if not math.isfinite(number):
        raise ValueError(f"{dtype.name} has no {shown(value)}")
    return _rounded(number, dtype)


def _float(value: Any) -> float:
    if isinstance(value, str):
        if value in _SPELLED:
            return _SPELLED[value]
        if _DECIMAL.fullmatch(value):
            return float(value)
    elif type(value) in (int, float):
        try:
            return float(value)
        except OverflowError:
            raise ValueError("an integer too large for a float") from None
    raise ValueError(f"expected a number, 'NaN', 'Infinity' or '-Infinity', found {shown(value)}")


def _nan_from_bits(text: str, dtype: np.dtype[Any]) -> Item:
    """A NaN with its payload. TensorStore takes such a text for a number, so only bits that are a NaN are accepted."""
    bits = bytes.fromhex(text[2:])
    if len(bits) != dtype.itemsize:
        raise ValueError(f"{shown(text)} is not {dtype.itemsize} bytes of bits")
    item = np.frombuffer(bits if dtype.byteorder == ">" else bits[::-1], dtype).reshape(()).copy()
    if not np.isnan(item):
        raise ValueError(f"{shown(text)} is not the bits of a NaN; write the number itself")
    return item


def format_float(item: Item) -> float | str:
    number = float(item)
    if math.isnan(number) and item.tobytes() != np.array(math.nan).astype(item.dtype).tobytes():
        return _nan_bits(item)
    return spell_float(number)


def _nan_bits(item: Item) -> str:
    stored = item.tobytes()
    return "0x" + (stored if item.dtype.byteorder == ">" else stored[::-1]).hex()


# --- complex ---------------------------------------------------------------------------------------------------


def parse_complex(value: Any, dtype: np.dtype[Any]) -> Item:
    """Part by part: ``re + 1j * im`` would turn [1, "-Infinity"] into NaN (CONFORMANCE 95)."""
    if isinstance(value, str):
        return parse_bytes(value, dtype)
    parts = [value, 0.0] if type(value) in (int, float) else value
    if not isinstance(parts, list) or len(parts) != 2:
        raise ValueError(f"expected [real, imaginary], found {shown(value)}")
    item = np.zeros((), dtype)
    item.real[...], item.imag[...] = (parse_float(part, item.real.dtype) for part in parts)
    return item


def format_complex(item: Item) -> list[Any]:
    return [format_float(item.real), format_float(item.imag)]
