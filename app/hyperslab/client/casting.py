"""Values as an array can hold them: what would become something else on the way is refused.

Numbers may lose precision as in numpy, and times what is finer than their new unit; nothing else is lost.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import date, timedelta
from typing import Any, Final

import numpy as np

from hyperslab.client.indexing import AnyArray

DType = np.dtype[Any]

_WHOLE: Final = (int, np.integer, np.bool_)
_NUMBERS: Final = (int, float, complex, np.number, np.bool_)
_TIMES: Final = (date, timedelta, np.datetime64, np.timedelta64, str, type(None))


def as_values(value: Any, dtype: DType) -> AnyArray:
    """``value`` as an array whose items turn into ``dtype`` unharmed; the items themselves may not be converted yet.

    Integers may become any integers that hold them all, and everything else what numpy's ``same_kind`` rule allows
    (so that nothing that may be NaN becomes an integer): floats are rounded to shorter ones, and times are cut to
    coarser units. Fields of records, by their order, have the same rules. Raises `TypeError` for another kind, and
    `OverflowError` for an integer that does not fit, text that would be cut, a number that would become infinite and a
    time too far away for its new unit.
    """
    if dtype.hasobject:
        return _as_objects(value)
    if dtype.names is not None:
        return _as_records(value, dtype)
    values = _as_array(value, dtype)
    if values.dtype != dtype:
        _check_kind(values.dtype, dtype)
        _check_range(values, dtype)
    return values


def as_object(value: Any) -> AnyArray:
    """One object (0-d), whatever it is; an array without axes stands for what is in it."""
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
    """Whether it is one of ml_dtypes' numbers, which to numpy are void."""
    return dtype.kind == "V" and dtype.type is not np.void


def _as_objects(value: Any) -> AnyArray:
    """Lists are arrays of objects, as in numpy; anything else but an array is one object."""
    return np.asarray(value, object) if isinstance(value, np.ndarray | list | tuple) else as_object(value)


def _as_array(value: Any, dtype: DType) -> AnyArray:
    """``value`` with a dtype that says what it is: numpy's guess for Python's own values is not always that."""
    values = np.asarray(value)
    plain = not hasattr(value, "dtype")
    if plain and not values.size:
        return np.empty(values.shape, dtype)  # an empty list is of no dtype, and numpy takes it for floats
    if values.dtype.kind == "O":
        values = _from_objects(values, dtype)
    elif plain and values.dtype.kind == "f" and _is_integer(dtype):
        values = _from_objects(np.asarray(value, object), dtype)  # [2**64 - 1, 0] is floats to numpy
    if dtype.kind in "mM" and values.dtype.kind in "US":
        return values.astype(dtype)
    if dtype.kind in "US" and values.dtype.kind != dtype.kind and values.dtype.kind in "USbiufc":
        return values.astype(dtype.kind)  # as long as it takes
    return values


def _from_objects(values: AnyArray, dtype: DType) -> AnyArray:
    """Objects as what all of them are, and as they are where they have nothing in common."""
    items = values.reshape(-1).tolist()
    if not items:
        return np.empty(values.shape, dtype)
    if _is_integer(dtype) and _are(items, _WHOLE):
        _check_bounds(min(items), max(items), dtype)
        return values.astype(dtype)
    if (dtype.kind in "fc" or is_extension(dtype)) and _are(items, _NUMBERS):
        return values.astype("f8" if _are(items, (*_WHOLE, float, np.floating)) else "c16")
    if dtype.kind in "mM" and _are(items, _TIMES):
        return values.astype(dtype)
    found = np.asarray(values.tolist())
    return found if found.shape == values.shape else values


def _are(items: Iterable[Any], types: tuple[type, ...]) -> bool:
    return all(isinstance(item, types) and not isinstance(item, np.timedelta64) for item in items)


def _as_records(value: Any, dtype: DType) -> AnyArray:
    """Records of ``dtype``, field by field; tuples are read as numpy reads them."""
    values = value if isinstance(value, np.ndarray | np.void) else np.asarray(value, _of_objects(dtype))
    if values.dtype == dtype:
        return np.asarray(values)
    if values.dtype.kind == "O":
        return _as_records(values.tolist(), dtype)
    names = dtype.names or ()
    if len(values.dtype.names or ()) != len(names):
        raise TypeError(f"values of dtype {values.dtype} do not fit an array of dtype {dtype}: convert them first")
    records = np.zeros(values.shape, dtype)
    for source, name in zip(values.dtype.names or (), names, strict=True):
        field, inside = np.asarray(values[source]), records[name]
        if field.shape != inside.shape:
            raise TypeError(f"field {source!r} has items of another shape than field {name!r} of the array")
        records[name] = as_values(field, inside.dtype)
    return records


def _of_objects(dtype: DType) -> DType:
    """The same fields, which hold anything: what numpy would cut or round stays as it was given."""
    if dtype.subdtype is not None:
        return np.dtype((_of_objects(dtype.subdtype[0]), dtype.shape))
    if dtype.names is None:
        return np.dtype(object)
    return np.dtype([(name, _of_objects(dtype[name])) for name in dtype.names])


def _is_integer(dtype: DType) -> bool:
    return dtype.kind in "biu" or (is_extension(dtype) and "int" in dtype.name)


def _check_kind(source: DType, target: DType) -> None:
    if not _may_become(source, target):
        raise TypeError(f"values of dtype {source} do not fit an array of dtype {target}: convert them first")


def _may_become(source: DType, target: DType) -> bool:
    if is_extension(target) or is_extension(source):
        numbers = source.kind in "biuf" or is_extension(source)
        return numbers and (_is_integer(source) if _is_integer(target) else target.kind in "fc" or is_extension(target))
    if target.kind == "V":
        return source.kind in "SV"  # numpy would take the memory of anything
    whole = source.kind in "biu" and _is_integer(target)
    return whole or bool(np.can_cast(source, target, "same_kind"))


def _check_range(values: AnyArray, dtype: DType) -> None:
    """Raises `OverflowError` where values of a kind that fits are too large, or too long."""
    if dtype.kind in "mM":
        _check_times(values, dtype)
    elif dtype.kind in "US" or (dtype.kind == "V" and not is_extension(dtype)):
        _check_length(values, dtype)
    elif values.size and values.dtype.kind != "b" and not np.can_cast(values.dtype, dtype, "safe"):
        if _is_integer(dtype):
            _check_bounds(int(values.min()), int(values.max()), dtype)
        else:
            for part in (values.real, values.imag) if values.dtype.kind == "c" else (values,):
                _check_finite(part, dtype)


def _check_bounds(least: int, most: int, dtype: DType) -> None:
    low, high = _range(dtype)
    if least < low or most > high:
        raise OverflowError(f"{least if least < low else most} does not fit dtype {dtype}, which holds {low} to {high}")


def _check_finite(values: AnyArray, dtype: DType) -> None:
    finite = np.isfinite(values)
    if not finite.any():
        return
    some = values.flat[int(finite.argmax())]
    for reduced in (values.min(where=finite, initial=some), values.max(where=finite, initial=some)):
        with np.errstate(over="ignore", invalid="ignore"):
            if not np.isfinite(np.asarray(reduced).astype(dtype)):
                raise OverflowError(f"{reduced} does not fit dtype {dtype}: it would not be a finite number there")


def _check_times(values: AnyArray, dtype: DType) -> None:
    """numpy turns into another time what is too far away for a finer unit, and numbers beyond 64 bits."""
    if values.size and values.dtype.kind in "iu":
        _check_bounds(int(values.min()), int(values.max()), dtype)
    if values.dtype.kind not in "mM" or not np.can_cast(values.dtype, dtype, "safe"):
        return
    known = values[~np.isnat(values)]
    if known.size:
        for extreme in (known.min(), known.max()):
            if extreme.astype(dtype).astype(values.dtype) != extreme:
                raise OverflowError(f"{extreme} does not fit dtype {dtype}")


def _check_length(values: AnyArray, dtype: DType) -> None:
    limit = dtype.itemsize // (4 if dtype.kind == "U" else 1)
    counted = values.dtype.kind in "US"
    lengths = np.strings.str_len(values) if counted else np.asarray(values.dtype.itemsize)
    longest = int(lengths.max(initial=0))
    if longest > limit:
        raise OverflowError(f"a value of length {longest} does not fit dtype {dtype}, which holds {limit}")


def _range(dtype: DType) -> tuple[int, int]:
    if dtype.kind == "b":
        return 0, 1
    if is_extension(dtype):
        bits = int(dtype.name.lstrip("uint"))
        return (0, 2**bits - 1) if dtype.name.startswith("u") else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
    if dtype.kind == "m":
        return 1 - 2**63, 2**63 - 1  # one less is NaT
    limits = np.iinfo(dtype)
    return int(limits.min), int(limits.max)
