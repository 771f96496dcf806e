"""Conversion of values between numpy and the wire: casting, fill values, objects, npy and JSON.

Casts may lose precision of floats, and of times below their new unit; all other lossy casts are refused.
"""

from __future__ import annotations

import base64
import io
import json
from collections.abc import Mapping
from datetime import date, timedelta
from math import prod
from typing import Any

import numpy as np

from hyperslab import wire
from hyperslab.client.indexing import AnyArray
from hyperslab.errors import BadBody
from hyperslab.wire.items import format_item, json_float, parse_item, parse_object
from hyperslab.wire.times import cast_times, count_of

DType = np.dtype[Any]


# --- casting ---------------------------------------------------------------------------------------------------------


def as_values(value: Any, dtype: DType) -> AnyArray:
    """``value`` as an array that can be cast to ``dtype``; the cast itself may be left to the caller.

    Allowed are integers to any integers that hold all values, and otherwise numpy's ``same_kind`` rule: floats are
    rounded, times truncated to coarser units. The rules apply to fields of records in order. Raises `TypeError` for
    other kinds, and `OverflowError` for values out of range and text that would be truncated.
    """
    if dtype.hasobject:  # lists and tuples are arrays of objects, as in numpy
        return np.asarray(value, object) if isinstance(value, np.ndarray | list | tuple) else as_object(value)
    if dtype.names is not None:
        return _as_records(value, dtype)
    values = _as_array(value, dtype)
    if values.dtype != dtype:
        if not _is_same_kind(values.dtype, dtype):
            raise TypeError(f"values of dtype {values.dtype} do not fit an array of dtype {dtype}: convert them first")
        if values.dtype.kind in "mM":
            return cast_times(values, dtype)
        if dtype.kind not in "USV" or wire.is_extension(dtype):
            _check_range(values, dtype)
            return values
        limit = dtype.itemsize // (4 if dtype.kind == "U" else 1)
        lengths = np.strings.str_len(values) if values.dtype.kind in "US" else np.asarray(values.dtype.itemsize)
        if (longest := int(lengths.max(initial=0))) > limit:
            raise OverflowError(f"a value of length {longest} does not fit dtype {dtype}, which holds {limit}")
    return values


def as_object(value: Any) -> AnyArray:
    """Any value as a 0-d object array; a 0-d array is replaced by its item."""
    single = np.empty(1, object)
    single[0] = value[()] if isinstance(value, np.ndarray) and value.ndim == 0 else value
    return single.reshape(())


def broadcast(values: AnyArray, shape: tuple[int, ...]) -> AnyArray:
    """``values`` broadcast to ``shape`` as in numpy's assignments; raises `ValueError`."""
    surplus = max(0, values.ndim - len(shape))
    if all(length == 1 for length in values.shape[:surplus]):
        try:
            return np.broadcast_to(values.reshape(values.shape[surplus:]), shape)
        except ValueError:
            pass  # with a message for both cases below
    raise ValueError(f"could not broadcast input array from shape {values.shape} into shape {shape}")


def _as_array(value: Any, dtype: DType) -> AnyArray:
    """``value`` as an array of a kind that fits ``dtype``, where numpy's inference from Python's values does not."""
    values = np.asarray(value)
    if values.dtype.kind == "T":  # text of any length
        values = values.astype(object)
    if not hasattr(value, "dtype"):
        if not values.size:
            return np.empty(values.shape, dtype)  # numpy infers float for an empty list
        if values.dtype.kind == "f" and wire.kind_of(dtype) in "biu":
            values = np.asarray(value, object)  # numpy infers float for [2**64 - 1, 0]
    if values.dtype.kind == "O":
        values = _from_objects(values, dtype)
    if dtype.kind in "mM" and values.dtype.kind in "US":
        return _as_times(values.astype("U"), dtype)
    if dtype.kind in "US" and values.dtype.kind != dtype.kind and values.dtype.kind in "USbiufc":
        return values.astype(dtype.kind)  # of sufficient length
    return values


def _from_objects(values: AnyArray, dtype: DType) -> AnyArray:
    """Objects as an array of their common dtype; unchanged if they have none."""
    items = values.reshape(-1).tolist()
    types = {type(item) for item in items}
    integers = (int, np.integer, np.bool_)

    def are(*classes: type) -> bool:  # timedelta64 is a subclass of np.integer
        return all(issubclass(kind, classes) and not issubclass(kind, np.timedelta64) for kind in types)

    if not items:
        return np.empty(values.shape, dtype)
    if wire.kind_of(dtype) in "biu" and are(*integers):
        _check_range(values, dtype)
        return values.astype(dtype)
    if (dtype.kind in "fc" or wire.is_extension(dtype)) and are(*integers, float, complex, np.number):
        return values.astype("f8" if are(*integers, float, np.floating) else "c16")
    if dtype.kind in "mM" and are(date, timedelta, np.datetime64, str, type(None)):
        return _as_times(values, dtype)
    inferred = np.asarray(values.tolist())
    return inferred if inferred.shape == values.shape else values


def _as_times(values: AnyArray, dtype: DType) -> AnyArray:
    """Text and objects as times of ``dtype``; the text of a span is a count."""
    counts = np.full(values.size, np.iinfo(np.int64).min, "<i8")
    for i, item in enumerate(values.reshape(-1).tolist()):
        if isinstance(item, str):
            if item.strip().lower() not in ("", "nat"):
                counts[i] = count_of(item, dtype) if dtype.kind == "M" else int(item)
        elif item is not None:
            time = np.asarray(np.timedelta64(item) if isinstance(item, timedelta) else np.datetime64(item))
            if time.dtype.kind != dtype.kind:
                raise TypeError(f"{item!r} does not fit an array of dtype {dtype}: convert it first")
            counts[i] = cast_times(time, dtype).astype(np.int64)
    return counts.view(dtype.newbyteorder("<")).reshape(values.shape)


def _as_records(value: Any, dtype: DType) -> AnyArray:
    """Records of ``dtype``, field by field, from records or tuples."""
    values = value if isinstance(value, np.ndarray | np.void) else np.asarray(value, _of_objects(dtype))
    if values.dtype == dtype:
        return np.asarray(values)
    if values.dtype.kind == "O":
        return _as_records(values.tolist(), dtype)
    names, sources = dtype.names or (), values.dtype.names or ()
    if len(sources) != len(names):
        raise TypeError(f"values of dtype {values.dtype} do not fit an array of dtype {dtype}: convert them first")
    records = np.zeros(values.shape, dtype)
    for source, name in zip(sources, names, strict=True):
        field, inside = np.asarray(values[source]), records[name]
        if field.shape != inside.shape:
            raise TypeError(f"field {source!r} has items of another shape than field {name!r} of the array")
        records[name] = as_values(field, inside.dtype)
    return records


def _of_objects(dtype: DType) -> DType:
    """The same structure with object fields, which accept any values."""
    if dtype.subdtype is not None:
        return np.dtype((_of_objects(dtype.subdtype[0]), dtype.shape))
    return np.dtype([(name, _of_objects(dtype[name])) for name in dtype.names] if dtype.names else object)


def _is_same_kind(source: DType, target: DType) -> bool:
    source, target = wire.numbers_dtype(source), wire.numbers_dtype(target)
    if target.kind == "V":
        return source.kind in "SV"  # numpy would reinterpret the memory of any dtype
    return (source.kind in "biu" and wire.kind_of(target) in "biu") or bool(np.can_cast(source, target, "same_kind"))


def _check_range(values: AnyArray, dtype: DType) -> None:
    """Raises `OverflowError` if the minimum or maximum of the values is out of the range of ``dtype``."""
    fits_any = np.can_cast(values.dtype, dtype, "safe") and dtype.kind != "m"  # numpy's "safe" ignores their range
    if not values.size or values.dtype.kind == "b" or fits_any:
        return
    if values.dtype.kind == "c":
        _check_range(values.real, dtype)
        _check_range(values.imag, dtype)
        return
    finite = values if values.dtype.kind == "O" or wire.kind_of(values.dtype) in "biu" else values[np.isfinite(values)]
    for extreme in (np.min(finite), np.max(finite)) if finite.size else ():
        with np.errstate(over="ignore", invalid="ignore"):
            cast = np.asarray(extreme).astype(dtype)
        if dtype.kind == "m":
            fits = not np.isnat(cast) and int(cast.astype("i8")) == int(extreme)
        else:
            fits = int(cast) == int(extreme) if wire.kind_of(dtype) in "biu" else bool(np.isfinite(cast))
        if not fits:
            raise OverflowError(f"{extreme} does not fit dtype {dtype}")


# --- fill values -----------------------------------------------------------------------------------------------------


def parse_fill_value(value: Any, dtype: DType, object_codec: str | None = None) -> Any:
    """A scalar of ``dtype`` from the JSON of a Zarr v2 fill value; of objects, as the codec of this id has it. Raises
    `ValueError`."""
    return parse_object(value, object_codec) if dtype.hasobject else parse_item(value, dtype)[()]


def format_fill_value(value: Any) -> Any:
    """Zarr v2's JSON of a fill value (spec: *Fill value encoding*)."""
    if isinstance(value, np.ndarray | np.generic):
        return format_item(np.asarray(value).reshape(()))
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, complex):
        return [json_float(value.real), json_float(value.imag)]
    return json_float(value) if isinstance(value, float) else value


# --- objects ---------------------------------------------------------------------------------------------------------


def object_codec(members: Mapping[str, Any]) -> Mapping[str, Any]:
    """Configuration of the codec that encodes an array's objects: the first filter or else the compressor; empty if
    there is none. ``members`` are those of the node document."""
    chain = [*(members.get("filters") or ()), members.get("compressor")]
    return chain[0] or {}


def as_stored(values: AnyArray, codec: Mapping[str, Any]) -> AnyArray:
    """Objects with lists converted to arrays if the codec is vlen-array; raises as `as_values`."""
    if codec.get("id") != "vlen-array":
        return values
    dtype = wire.dtype_from_json(codec["dtype"])
    items = (
        as_values(item, dtype).astype(dtype) if isinstance(item, list | tuple | np.ndarray) else item
        for item in values.reshape(-1).tolist()
    )
    return np.fromiter(items, object, values.size).reshape(values.shape)


def encode_objects(values: AnyArray) -> bytes:
    """Objects in their binary form (`wire.objects`); raises `TypeError` and `ValueError` for unsupported ones."""
    return wire.pack_objects(values.reshape(values.size).tolist())


def decode_objects(body: bytes | bytearray | memoryview, shape: tuple[int, ...]) -> AnyArray:
    """The object array of a body; raises `BadBody` if it is invalid or has another number of objects."""
    try:
        items = wire.unpack_objects(body)
    except ValueError as error:
        raise BadBody(reason=f"the answer is no object array: {error}") from error
    if len(items) != prod(shape):
        raise BadBody(reason="the number of objects", expected=prod(shape), found=len(items))
    return np.fromiter(items, object, len(items)).reshape(shape)


# --- bodies ----------------------------------------------------------------------------------------------------------


def encode_npy(array: AnyArray) -> bytes:
    """``array`` as npy, in C order; not for object dtypes."""
    buffer = io.BytesIO()
    items = np.asarray(array, order="C")
    np.lib.format.write_array(buffer, items.view(wire.npy_dtype(items.dtype)), allow_pickle=False)
    return buffer.getvalue()


def dump_json(members: Any) -> bytes:
    """JSON, with numpy's scalars and arrays as numbers and lists, and its dtypes as those of Zarr v2.

    Raises `TypeError` for unsupported types, and `ValueError` for NaN and infinities.
    """

    def plain(value: Any) -> Any:
        if isinstance(value, np.generic | np.ndarray):
            return value.tolist()
        if isinstance(value, np.dtype | type):
            return wire.dtype_to_json(np.dtype(value))
        raise TypeError(f"objects of type {type(value).__name__} have no form in JSON")

    return json.dumps(members, allow_nan=False, default=plain).encode()
