"""Response values: form and dtype, and their encoding as npy, objects, JSON and CSV.

JSON is strict, and lossless if possible: NaN and the infinities are the strings that Zarr uses for them, times ISO text
("NaT" for none), time spans counts of their unit, complex numbers ``[re, im]``, records objects, fixed
bytes text (UTF-8; other bytes as ``\\xff``), raw bytes base64. `values_in` reads all of it back.
"""

from __future__ import annotations

import base64
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from math import prod
from types import MappingProxyType
from typing import Any, Final

import numpy as np
import orjson
from numpy.typing import NDArray

from hyperslab.engine.jsontext import dump_json
from hyperslab.errors import BadParameter, NotAcceptable, NotRepresentable
from hyperslab.wire import (
    CSV,
    JSON,
    NPY,
    OBJECTS,
    RAW,
    Packer,
    check_nesting,
    dtype_from_json,
    dtype_to_json,
    field_names,
    is_extension,
    npy_dtype,
    numbers_dtype,
)
from hyperslab.wire.items import bytes_of

DType = np.dtype[Any]

MEDIA_TYPES: Final[Mapping[str, str]] = MappingProxyType({"raw": RAW, "npy": NPY, "json": JSON, "csv": CSV})
"""Media type by value of ``format=``; the first one is the default."""
TEXT_FORMS: Final = ("json", "csv")
WHOLE_FORMS: Final = (*TEXT_FORMS, "tiff")
"""Forms that are made of all values at once."""


def media_types(dtype: DType) -> Mapping[str, str]:
    """The media type of each form of values of this dtype; objects have a binary form of their own."""
    return {**MEDIA_TYPES, "raw": OBJECTS} if dtype.hasobject else MEDIA_TYPES


def choose_format(requested: str | None, accept: str | None, offered: Mapping[str, str] = MEDIA_TYPES) -> str:
    """The format from ``format=``, which takes precedence, and an Accept header; ties go to the first offered.

    Raises `BadParameter` for an unknown format and `NotAcceptable`.
    """
    if requested is not None:
        if requested not in offered:
            raise BadParameter("format", requested, f"one of {', '.join(offered)}")
        return requested
    if accept is None:
        return next(iter(offered))
    weights = _weights(accept)
    quality = {name: _quality(media_type, weights) for name, media_type in offered.items()}
    best = max(quality, key=lambda name: quality[name])
    if quality[best] <= 0:
        raise NotAcceptable(str(accept), list(offered.values()))
    return best


def accepts(accept: str | None, media_type: str) -> bool:
    """Whether an Accept header includes this media type."""
    return _quality(media_type, _weights(accept)) > 0


@lru_cache(64)
def _weights(accept: str | None) -> Mapping[str, float]:
    """The weight of each media range of an Accept header, in lower case; parameters except ``q`` are ignored."""
    weights = {}
    for part in ((accept or "").strip() or "*/*").lower().split(","):
        media_range, *parameters = map(str.strip, part.split(";"))
        pairs = [[text.strip() for text in parameter.split("=", 1)] for parameter in parameters]
        weight = next((value[0] if value else "" for name, *value in pairs if name == "q"), "1")
        try:
            weights[media_range] = min(1.0, max(0.0, float(weight)))
        except ValueError:
            weights[media_range] = 0.0
    weights.pop("", None)
    return weights


def _quality(media_type: str, weights: Mapping[str, float]) -> float:
    """The weight of the most specific range that includes the type (RFC 9110 §12.5.1)."""
    covering = (media_type, f"{media_type.partition('/')[0]}/*", "*/*")
    return next((weights[media_range] for media_range in covering if media_range in weights), 0.0)


def converted(text: str | None, source: DType) -> DType | None:
    """The dtype of ``dtype=text``, None if equal to the source's.

    ``safe`` is that of a JavaScript typed array: little endian, half and other short floats as float32, 64-bit integers
    as float64, booleans as uint8, times as their int64 counts. Otherwise numpy's ``same_kind`` rule applies: NaN never
    becomes an integer, and integers outside the range wrap around. Narrow integers and floats of ml_dtypes count as
    integers and floats. Raises `BadParameter` for an unknown dtype and `NotRepresentable`.
    """
    if text is None:
        return None
    target = _safe(source) if text == "safe" else _parse_dtype(text)
    if target == source:
        return None
    reason = "numpy's same_kind rule does not allow this conversion"
    try:
        allowed = text == "safe" or _may_become(source, target)
    except OverflowError:
        allowed, reason = False, "between the two units of time lies a factor that 64 bits do not hold"
    except TypeError:
        allowed, reason = False, "neither numpy nor ml_dtypes has this conversion"
    if not allowed:
        raise NotRepresentable(str(source), str(target), reason)
    return target


def _parse_dtype(text: str) -> DType:
    expected = "'safe' or the dtype of a number, such as '<f4', '|u1' or 'float32'"
    try:
        spelling = r"[<>|=]?(\?|[A-Za-z][A-Za-z0-9_]*(\[[0-9]*[A-Za-z]+\])?)"
        dtype = dtype_from_json(text) if re.fullmatch(spelling, text) else None
    except (TypeError, ValueError, AttributeError) as error:
        raise BadParameter("dtype", text, expected) from error
    if dtype is None or not _is_plain(dtype):
        raise BadParameter("dtype", text, expected)
    return dtype


def _is_plain(dtype: DType) -> bool:
    """Whether it is portable: numpy's long doubles have machine-dependent bytes, some without a value."""
    return (dtype.kind in "biufcmM" and dtype.char not in "gG") or is_extension(dtype)


def _may_become(source: DType, target: DType) -> bool:
    """Numpy's rule; raises `OverflowError` and `TypeError` for allowed but impossible conversions."""
    if not _is_plain(source):
        return False
    if source.kind in "mM" and target.kind == "i":
        return target.itemsize == 8
    allowed = np.can_cast(numbers_dtype(source), numbers_dtype(target), "same_kind")
    if allowed and not (source.kind in "biufc" and target.kind in "biufc"):
        np.zeros(1, source).astype(target)
    return allowed


def _safe(source: DType) -> DType:
    source = numbers_dtype(source)
    if not _is_plain(source) or source.kind == "c":
        raise NotRepresentable(str(source), "safe", "no JavaScript typed array holds these values")
    if source.kind in "mM":
        return np.dtype("<i8")
    if source.itemsize == 8:
        return np.dtype("<f8")
    wider: dict[str, DType] = {"b": np.dtype("|u1"), "f": np.dtype("<f4")}
    return wider.get(source.kind, source.newbyteorder("<"))


def check_form(form: str, shape: tuple[int, ...], dtype: DType) -> None:
    """Raise `NotRepresentable` for values that a form cannot hold: objects in npy, which numpy would pickle, and more
    axes than those of a CSV table."""
    if form == "npy" and dtype.hasobject:
        raise NotRepresentable(dtype_to_json(dtype), "npy", "numpy would pickle objects: ask for raw, json or csv")
    most = 1 if dtype.names is not None else 2
    if form == "csv" and len(shape) > most:
        reason = f"a table has {most} axis of records" if dtype.names is not None else "a table has at most 2 axes"
        raise NotRepresentable(dtype_to_json(dtype), "csv", f"{reason}, these are {len(shape)}")


def npy_header(shape: tuple[int, ...], dtype: DType) -> bytes:
    """The header of C-order data in an npy file (format 1.0; 2.0 for long, 3.0 for non-ASCII headers)."""
    text = repr({"descr": np.lib.format.dtype_to_descr(npy_dtype(dtype)), "fortran_order": False, "shape": shape})
    version, length_bytes = (1, 2) if text.isascii() and len(text) < 60_000 else (2, 4) if text.isascii() else (3, 4)
    body = text.encode()
    before = len(b"\x93NUMPY") + 2 + length_bytes
    padded = -(-(before + len(body) + 1) // 64) * 64 - before
    return b"\x93NUMPY%c\0" % version + padded.to_bytes(length_bytes, "little") + body.ljust(padded - 1) + b"\n"


def encode_objects(values: NDArray[Any]) -> bytes:
    """Objects in the layout of `wire.objects`; raises `NotRepresentable`."""
    packer = Packer()
    add_objects(packer, values)
    return packer.finish()


def add_objects(packer: Packer, values: NDArray[Any]) -> None:
    """Append objects in C order; raises `NotRepresentable`."""
    try:
        packer.add(values.reshape(values.size).tolist())
    except (TypeError, ValueError) as error:
        raise NotRepresentable("|O", "raw", str(error)) from error


def encode(values: NDArray[Any], form: str) -> bytes | memoryview:
    """Values in a form of ``format=``; raises `NotRepresentable`."""
    match form:
        case "json":
            return encode_json(values) + b"\n"
        case "csv":
            return encode_csv(values)
        case _ if values.dtype.hasobject:
            return encode_objects(values)
        case "npy":
            return npy_header(values.shape, values.dtype) + bytes_of(values)
        case _:
            return bytes_of(values)


def encode_json(values: NDArray[Any]) -> bytes:
    """Nested lists in C order; a bare value without axes. Raises `NotRepresentable`."""
    if _is_numeric(values.dtype):
        return _encode_numbers(values)
    return dump_json(_nested(_items(values.reshape(values.size)), values.shape))


def _is_numeric(dtype: DType) -> bool:
    """Whether it is one of numpy's own integers, floats and booleans."""
    return dtype.kind in "biuf" and not is_extension(dtype)


def _encode_numbers(values: NDArray[Any]) -> bytes:
    """Nested lists of numbers. orjson writes null for non-finite ones, in C order, and each is replaced by its name."""
    native = np.ascontiguousarray(values, values.dtype.newbyteorder("=")).reshape(values.shape or 1)
    text = _dump_numbers(native)
    if b"null" in text:
        flat = native.reshape(-1)
        odd = flat[~np.isfinite(flat)]
        names = np.where(np.isnan(odd), b'"NaN"', np.where(odd > 0, b'"Infinity"', b'"-Infinity"')).tolist()
        first, *parts = text.split(b"null")
        text = b"".join([first, *(piece for pair in zip(names, parts, strict=True) for piece in pair)])
    return text if values.shape else text[1:-1]


def _dump_numbers(values: NDArray[Any]) -> bytes:
    """Nested lists by orjson, which holds Python's lock meanwhile: a million numbers at a time."""
    most, row = 1 << 20, math.prod(values.shape[1:])
    if values.size <= most:
        return orjson.dumps(values, option=orjson.OPT_SERIALIZE_NUMPY)
    if row > most:
        return b"[" + b",".join(map(_dump_numbers, values)) + b"]"
    parts = [_dump_numbers(values[i : i + most // row])[1:-1] for i in range(0, len(values), most // row)]
    return b"[" + b",".join(parts) + b"]"


def _items(values: NDArray[Any]) -> list[Any]:
    """A JSON value for each item along the first axis; further axes are nested lists."""
    flat = values.reshape(values.size)
    if flat.dtype.names is not None:
        names = field_names(flat.dtype)
        columns = [_items(flat[name]) for name in names]
        items: list[Any] = [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]
    else:
        items = _plain_items(flat.astype(numbers_dtype(flat.dtype), copy=False))
    return items if values.ndim == 1 else list(_nested(items, values.shape))


def _plain_items(flat: NDArray[Any]) -> list[Any]:
    match flat.dtype.kind:
        case "c":
            items: list[Any] = [[value.real, value.imag] for value in flat.tolist()]
        case "M" if np.datetime_data(flat.dtype)[0] != "generic":
            items = _time_texts(flat)
        case "M" | "m":
            counts, missing = flat.astype(np.int64).tolist(), np.isnat(flat).tolist()
            items = ["NaT" if is_nat else count for count, is_nat in zip(counts, missing, strict=True)]
        case "S":
            items = [_bytes_text(value) for value in flat.tolist()]
        case "U":
            codes = np.ascontiguousarray(flat).view(np.dtype(np.uint32).newbyteorder(flat.dtype.byteorder))
            if np.max(codes, initial=0) > 0x10FFFF:  # only in corrupt chunks; invalid in Python text
                raise NotRepresentable(flat.dtype.str, "text", "not all values are Unicode")
            items = [_text(value) for value in flat.tolist()]
        case "V":
            items = [base64.b64encode(value.tobytes()).decode() for value in flat]
        case "O":
            try:
                check_nesting(flat)
            except ValueError as error:
                raise NotRepresentable("|O", "text", str(error)) from error
            items = [_object(value) for value in flat]
        case _:
            items = flat.tolist()
    return items


def _time_texts(flat: NDArray[Any]) -> list[Any]:
    """ISO 8601 text for each time, "NaT" for none; a count of units if numpy's text would overflow."""
    native = flat.astype(flat.dtype.newbyteorder("="))  # numpy would misread another byte order here
    unit, multiple = np.datetime_data(native.dtype)
    limit = (2**63 - 2**12) // (multiple * (7 if unit == "W" else 1))
    counts = native.astype(np.int64)
    beyond = (np.abs(counts) > limit) & ~np.isnat(native)
    texts: list[Any] = np.datetime_as_string(np.where(beyond, np.zeros((), native.dtype), native)).tolist()
    for i in np.flatnonzero(beyond).tolist():
        texts[i] = int(counts[i])
    return texts


def _bytes_text(raw: bytes) -> str:
    """UTF-8, with ``\xff`` for each byte outside it, and ``\x5c`` for a backslash that would begin an escape."""
    if b"\\x" in raw:
        raw = re.sub(rb"\\(?=x(5c|[89a-f][0-9a-f]))", rb"\\x5c", raw)
    return raw.decode("utf-8", "backslashreplace")


def _text(value: str) -> str:
    """Text that UTF-8 can encode: lone surrogates are replaced."""
    return value if value.isascii() else value.encode("utf-8", "replace").decode()


def _object(value: Any) -> Any:
    """JSON of a value decoded by an object codec."""
    match value:
        case str():
            plain: Any = _text(value)
        case bytes() | bytearray():
            plain = base64.b64encode(value).decode()
        case np.ndarray() | np.generic():
            plain = _nested(_items(value.reshape(value.size)), value.shape)
        case dict():
            plain = {_text(str(key)): _object(member) for key, member in value.items()}
        case list() | tuple():
            plain = [_object(item) for item in value]
        case _:
            plain = value
    return plain


def _nested(items: list[Any], shape: tuple[int, ...]) -> Any:
    """A flat list as nested lists of a shape."""
    if not shape:
        return items[0]
    for axis in range(len(shape) - 1, 0, -1):
        size, count = shape[axis], prod(shape[:axis])
        items = [items[i * size : (i + 1) * size] for i in range(count)]
    return items


def encode_csv(values: NDArray[Any]) -> bytes:
    """Lines in UTF-8 with line feeds: a number a line for one axis, a row a line for two, a column with a header for
    each field of records. Raises `NotRepresentable`."""
    check_form("csv", values.shape, values.dtype)
    if values.dtype.names is not None:
        columns = list(_columns("", values.reshape(values.size)))
        return _encode_rows([title for title, _ in columns], [column for _, column in columns])
    if _is_numeric(values.dtype):  # JSON of numbers without brackets is CSV
        text = _encode_numbers(values).replace(b'"', b"") if values.size else b""
        lines = text[2:-2].replace(b"],[", b"\n") if values.ndim == 2 else text.strip(b"[]").replace(b",", b"\n")
        return lines + b"\n" if values.size else b""
    table = values.reshape(values.size, 1) if values.ndim < 2 else values
    return _encode_rows([], list(table.T))


def _columns(title: str, values: NDArray[Any]) -> Iterator[tuple[str, NDArray[Any]]]:
    """A column for each number: nested fields are ``a.b``, items of subarrays ``a[0,1]``."""
    if values.ndim > 1:
        for index in np.ndindex(values.shape[1:]):
            yield from _columns(f"{title}[{','.join(map(str, index))}]", values[(slice(None), *index)])
    elif values.dtype.names is not None:
        for name in field_names(values.dtype):
            yield from _columns(f"{title}.{name}" if title else name, values[name])
    else:
        yield title, values


def _encode_rows(header: list[str], columns: list[NDArray[Any]]) -> bytes:
    lines = [_line(header)] if header else []
    step = 4096  # rows per batch
    for start in range(0, len(columns[0]) if columns else 0, step):
        cells = [_cells(column[start : start + step]) for column in columns]
        lines += [_line(row) for row in zip(*cells, strict=True)]
    return "".join(lines).encode()


def _line(cells: Sequence[Any]) -> str:
    """A line in RFC 4180; Python's writer does not quote carriage returns."""
    texts = ["" if cell is None else str(cell) for cell in cells]
    quoted = ['"{}"'.format(text.replace('"', '""')) if re.search(r'[",\r\n]', text) else text for text in texts]
    return ",".join(quoted if quoted != [""] else ['""']) + "\n"


def _cells(column: NDArray[Any]) -> list[Any]:
    """Text of a column's cells; NaN and infinities as in JSON."""
    column = column.astype(numbers_dtype(column.dtype), copy=False)
    if column.dtype.kind == "c":
        return [str(value).strip("()") for value in column.tolist()]
    items = _items(column)
    cells = [dump_json(item).decode() if isinstance(item, bool | float | list | dict) else item for item in items]
    return [cell.strip('"') if isinstance(item, float) else cell for cell, item in zip(cells, items, strict=True)]
