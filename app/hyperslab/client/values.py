"""Values on their way between numpy and the wire: casting, fill values, objects, npy and JSON.

Casting refuses what would become something else on the way. Numbers may lose precision as in numpy, and times what is
finer than their new unit; nothing else is lost.
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

DType = np.dtype[Any]


# --- casting ---------------------------------------------------------------------------------------------------------


def as_values(value: Any, dtype: DType) -> AnyArray:
    """``value`` as an array whose items turn into ``dtype`` unharmed; the items themselves may not be converted yet.

    Integers may become any integers that hold them all, and everything else what numpy's ``same_kind`` rule allows
    (so that nothing that may be NaN becomes an integer): floats are rounded to shorter ones, and times are cut to
    coarser units. Fields of records, by their order, have the same rules. Raises `TypeError` for another kind, and
    `OverflowError` for an integer that does not fit, text that would be cut, a number that would become infinite and a
    time too far away for its new unit.
    """
    if dtype.hasobject:  # lists are arrays of objects, as in numpy; anything else but an array is one object
        return np.asarray(value, object) if isinstance(value, np.ndarray | list | tuple) else as_object(value)
    if dtype.names is not None:
        return _as_records(value, dtype)
    values = _as_array(value, dtype)
    if values.dtype != dtype:
        if not _is_same_kind(values.dtype, dtype):
            raise TypeError(f"values of dtype {values.dtype} do not fit an array of dtype {dtype}: convert them first")
        if dtype.kind not in "USV" or is_extension(dtype):
            _check_range(values, dtype)
            return values
        limit = dtype.itemsize // (4 if dtype.kind == "U" else 1)
        lengths = np.strings.str_len(values) if values.dtype.kind in "US" else np.asarray(values.dtype.itemsize)
        if (longest := int(lengths.max(initial=0))) > limit:
            raise OverflowError(f"a value of length {longest} does not fit dtype {dtype}, which holds {limit}")
    return values


def as_object(value: Any) -> AnyArray:
    """Any value as a 0-d object array; of an array without axes, its item."""
    single = np.empty(1, object)
    single[0] = value[()] if isinstance(value, np.ndarray) and value.ndim == 0 else value
    return single.reshape(())


def broadcast(values: AnyArray, shape: tuple[int, ...]) -> AnyArray:
    """``values`` for all cells of ``shape``, as numpy assigns them; raises `ValueError` where they do not fit."""
    surplus = max(0, values.ndim - len(shape))
    if all(length == 1 for length in values.shape[:surplus]):
        try:
            return np.broadcast_to(values.reshape(values.shape[surplus:]), shape)
        except ValueError:
            pass  # said better below
    raise ValueError(f"could not broadcast input array from shape {values.shape} into shape {shape}")


def is_extension(dtype: DType) -> bool:
    """Whether it is a dtype of ml_dtypes, which numpy takes for void."""
    return dtype.kind == "V" and dtype.type is not np.void


def _as_array(value: Any, dtype: DType) -> AnyArray:
    """``value`` with a dtype that says what it is: numpy's guess for Python's own values is not always that."""
    values = np.asarray(value)
    if not hasattr(value, "dtype"):
        if not values.size:
            return np.empty(values.shape, dtype)  # an empty list is of no dtype, and numpy takes it for floats
        if values.dtype.kind == "f" and _is_integer(dtype):
            values = np.asarray(value, object)  # [2**64 - 1, 0] is floats to numpy
    if values.dtype.kind == "O":
        values = _from_objects(values, dtype)
    if dtype.kind in "mM" and values.dtype.kind in "US":
        return values.astype(dtype)
    if dtype.kind in "US" and values.dtype.kind != dtype.kind and values.dtype.kind in "USbiufc":
        return values.astype(dtype.kind)  # as long as it takes
    return values


def _from_objects(values: AnyArray, dtype: DType) -> AnyArray:
    """Objects as what all of them are, and as they are where they have nothing in common."""
    items = values.reshape(-1).tolist()
    types = {type(item) for item in items}
    whole = (int, np.integer, np.bool_)

    def are(*known: type) -> bool:  # to Python, a timedelta64 is an integer
        return all(issubclass(each, known) and not issubclass(each, np.timedelta64) for each in types)

    if not items:
        return np.empty(values.shape, dtype)
    if _is_integer(dtype) and are(*whole):
        _check_range(values, dtype)
        return values.astype(dtype)
    if (dtype.kind in "fc" or is_extension(dtype)) and are(*whole, float, complex, np.number):
        return values.astype("f8" if are(*whole, float, np.floating) else "c16")
    if dtype.kind in "mM" and are(date, timedelta, np.datetime64, str, type(None)):
        return values.astype(dtype)
    found = np.asarray(values.tolist())
    return found if found.shape == values.shape else values


def _as_records(value: Any, dtype: DType) -> AnyArray:
    """Records of ``dtype``, field by field; tuples are read as numpy reads them."""
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
    """The same structure with object fields, which hold values unchanged."""
    if dtype.subdtype is not None:
        return np.dtype((_of_objects(dtype.subdtype[0]), dtype.shape))
    return np.dtype([(name, _of_objects(dtype[name])) for name in dtype.names] if dtype.names else object)


def _is_integer(dtype: DType) -> bool:
    return dtype.kind in "biu" or (is_extension(dtype) and "int" in dtype.name)


def _is_same_kind(source: DType, target: DType) -> bool:
    if is_extension(target) or is_extension(source):
        numbers = source.kind in "biuf" or is_extension(source)
        return numbers and (_is_integer(source) if _is_integer(target) else target.kind in "fc" or is_extension(target))
    if target.kind == "V":
        return source.kind in "SV"  # numpy would take the memory of anything
    whole = source.kind in "biu" and _is_integer(target)
    return whole or bool(np.can_cast(source, target, "same_kind"))


def _check_range(values: AnyArray, dtype: DType) -> None:
    """Raises `OverflowError` where the least or the greatest value of a kind that fits becomes another one."""
    times, safe = values.dtype.kind in "mM", np.can_cast(values.dtype, dtype, "safe")
    unharmed = not safe if times else safe and dtype.kind != "m"  # to numpy, a finer unit and any integer are safe
    if not values.size or values.dtype.kind == "b" or unharmed:
        return
    if values.dtype.kind == "c":
        _check_range(values.real, dtype)
        _check_range(values.imag, dtype)
        return
    known = values if values.dtype.kind == "O" or _is_integer(values.dtype) else values[np.isfinite(values)]
    for extreme in (known.min(), known.max()) if known.size else ():
        with np.errstate(over="ignore", invalid="ignore"):
            found = np.asarray(extreme).astype(dtype)
        if times:
            fits = found.astype(values.dtype) == extreme
        elif dtype.kind == "m":
            fits = not np.isnat(found) and int(found.astype("i8")) == int(extreme)
        else:
            fits = int(found) == int(extreme) if _is_integer(dtype) else np.isfinite(found)
        if not fits:
            raise OverflowError(f"{extreme} does not fit dtype {dtype}")


# --- fill values -----------------------------------------------------------------------------------------------------


def parse_fill_value(value: Any, dtype: DType, object_codec: str | None = None) -> Any:
    """A scalar of ``dtype`` from the JSON of a Zarr v2 fill value (spec: *Fill value encoding*).

    ``object_codec`` is the id of the codec of objects, which says what their JSON means. Raises `ValueError`,
    `TypeError` or `OverflowError` for what the dtype cannot hold.
    """
    if dtype.kind == "O":  # what a missing item reads as; old writers put 0 for text and bytes, too
        if object_codec == "vlen-bytes":
            return b"" if value == 0 else base64.b64decode(value, validate=True)
        return "" if value == 0 and object_codec in ("vlen-utf8", "categorize") else value
    stored = dtype.kind in "SUV" and not is_extension(dtype)
    if stored and value == 0:  # old writers put it for every dtype
        return np.zeros((), dtype)[()]
    if dtype.kind == "U":
        return np.asarray(value).astype(dtype)[()]
    spelled = isinstance(value, str) and dtype.kind not in "mM" and (dtype.kind == "c" or value.endswith("=="))
    if stored or spelled:  # TensorStore has base64 for complex and 4-bit numbers, too
        content = base64.b64decode(value, validate=True)
        return np.frombuffer(content.ljust(dtype.itemsize, b"\0") if dtype.kind == "S" else content, dtype)[0]
    return _parse_number(value, dtype)


def _parse_number(value: Any, dtype: DType) -> Any:
    if dtype.kind in "mM":
        ticks = np.iinfo(np.int64).min if value == "NaT" else int(value)
        return np.asarray(ticks, "<i8").view(dtype.newbyteorder("<")).astype(dtype)[()]
    if dtype.kind == "c":
        item = np.empty((), dtype)  # from its parts: re + 1j * im turns an infinite im into NaN
        parts = value if isinstance(value, list) else (value, 0)
        item.real, item.imag = (parse_fill_value(part, item.real.dtype) for part in parts)
        return item[()]
    if isinstance(value, str) and value.startswith("0x"):  # the bits of a NaN with a payload, the highest digit first
        bits = np.asarray(int(value, 16)).astype(f"{'>' if dtype.byteorder == '>' else '<'}u{dtype.itemsize}")
        return bits.view(dtype)[()]
    with np.errstate(over="ignore"):  # too large a number is infinite, as on the server
        return np.asarray(int(value) if dtype.kind in "iu" else float(value)).astype(dtype)[()]


def format_fill_value(value: Any) -> Any:
    """JSON of a fill value as Zarr v2 has it (spec: *Fill value encoding*)."""
    if isinstance(value, np.ndarray | np.generic):
        if value.dtype.kind in "mM":
            return int(value.astype(np.int64))
        if is_extension(value.dtype):
            value = int(value) if "int" in value.dtype.name else float(value)
        else:
            value = value.tobytes() if value.dtype.kind == "V" else value.item()
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, complex):
        return [format_fill_value(value.real), format_fill_value(value.imag)]
    if isinstance(value, float) and not np.isfinite(value):
        return "NaN" if np.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    return value


# --- objects ---------------------------------------------------------------------------------------------------------


def object_codec(members: Mapping[str, Any]) -> Mapping[str, Any]:
    """The codec that turns the objects of an array into bytes: its first one, which may stand for the compressor.

    ``members`` are those of the array's document; empty where no codec is named.
    """
    chain = [*(members.get("filters") or ()), members.get("compressor")]
    return chain[0] or {}


def as_stored(values: AnyArray, codec: Mapping[str, Any]) -> AnyArray:
    """The same objects, with arrays in place of lists where the array's codec wants arrays; raises as `as_values`."""
    if codec.get("id") != "vlen-array":
        return values
    wanted = wire.dtype_from_json(codec["dtype"])
    found = np.empty(values.size, object)
    for i, item in enumerate(values.reshape(-1).tolist()):
        held = isinstance(item, list | tuple | np.ndarray)
        found[i] = as_values(item, wanted).astype(wanted) if held else item
    return found.reshape(values.shape)


def encode_objects(values: AnyArray) -> bytes:
    """The body that `decode_objects` reads; raises `TypeError` and `ValueError` for objects without a binary form."""
    return wire.pack_objects(values.reshape(values.size).tolist())


def decode_objects(body: bytes | bytearray | memoryview, shape: tuple[int, ...]) -> AnyArray:
    """An object array of ``shape``; raises `BadBody` where the body holds none or another number of objects."""
    try:
        items = wire.unpack_objects(body)
    except ValueError as error:
        raise BadBody(reason=f"the answer is no object array: {error}") from error
    if len(items) != prod(shape):
        raise BadBody(reason="the number of objects", expected=prod(shape), found=len(items))
    values = np.empty(len(items), object)
    for i, item in enumerate(items):
        values[i] = item
    return values.reshape(shape)


# --- bodies ----------------------------------------------------------------------------------------------------------


def bytes_of(array: AnyArray) -> memoryview:
    """The memory of a C-contiguous array, whatever its dtype."""
    return array.reshape(-1).view(np.uint8).data


def encode_npy(array: AnyArray) -> bytes:
    """``array`` in npy format, C order; the dtype must not hold objects."""
    buffer = io.BytesIO()
    items = np.asarray(array, order="C")
    np.lib.format.write_array(buffer, items.view(wire.npy_dtype(items.dtype)), allow_pickle=False)
    return buffer.getvalue()


def dump_json(members: Any) -> bytes:
    """JSON in which numpy's scalars and arrays are numbers and lists, as they are in Zarr's attributes.

    Raises `TypeError` for what has no form in JSON, and `ValueError` for NaN and infinities.
    """

    def plain(value: Any) -> Any:
        if isinstance(value, np.generic | np.ndarray):
            return value.tolist()
        raise TypeError(f"objects of type {type(value).__name__} have no form in JSON")

    return json.dumps(members, allow_nan=False, default=plain).encode()
