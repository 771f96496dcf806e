"""Values as an array can hold them: what would change on the way is refused, not rounded."""

from __future__ import annotations

from typing import Any

import numpy as np

from hyperslab.client.indexing import AnyArray

DType = np.dtype[Any]


def as_values(value: Any, dtype: DType) -> AnyArray:
    """``value`` as an array whose items turn into ``dtype`` unharmed; the items themselves are not converted yet.

    Integers may become any integers that hold them all, and everything else what numpy's ``same_kind`` rule allows
    (so that nothing that may be NaN becomes an integer). Raises `TypeError` for another kind and `OverflowError` for
    an integer that does not fit.
    """
    if dtype.hasobject:
        return _as_objects(value)
    if dtype.names is not None and not isinstance(value, np.ndarray | np.void):
        return np.asarray(value, dtype)  # tuples, and lists of them
    values = np.asarray(value)
    if values.dtype == dtype:
        return values
    if dtype.kind in "mM" and values.dtype.kind in "US":
        return values.astype(dtype)
    if values.dtype.kind in "biu" and _is_integer(dtype):
        _check_range(values, dtype)
    elif not _may_become(values.dtype, dtype):
        raise TypeError(f"values of dtype {values.dtype} do not fit an array of dtype {dtype}: convert them first")
    return values


def as_object(value: Any) -> AnyArray:
    """One object (0-d), whatever it is; an array without axes stands for what is in it."""
    single = np.empty(1, object)
    single[0] = value[()] if isinstance(value, np.ndarray) and value.ndim == 0 else value
    return single.reshape(())


def _as_objects(value: Any) -> AnyArray:
    """Lists are arrays of objects, as in numpy; anything else but an array is one object."""
    return np.asarray(value, object) if isinstance(value, np.ndarray | list | tuple) else as_object(value)


def _is_integer(dtype: DType) -> bool:
    return dtype.kind in "biu" or (is_extension(dtype) and "int" in dtype.name)


def is_extension(dtype: DType) -> bool:
    """Whether it is one of ml_dtypes' numbers, which to numpy are void."""
    return dtype.kind == "V" and dtype.type is not np.void


def _may_become(source: DType, target: DType) -> bool:
    if is_extension(target) or is_extension(source):
        return source.kind in "biuf" or is_extension(source)
    return bool(np.can_cast(source, target, "same_kind"))


def _check_range(values: AnyArray, dtype: DType) -> None:
    if not values.size or values.dtype.kind == "b" or np.can_cast(values.dtype, dtype, "safe"):
        return
    low, high = _range(dtype)
    least, most = int(values.min()), int(values.max())
    if least < low or most > high:
        raise OverflowError(f"{least if least < low else most} does not fit dtype {dtype}, which holds {low} to {high}")


def _range(dtype: DType) -> tuple[int, int]:
    if dtype.kind == "b":
        return 0, 1
    if is_extension(dtype):
        bits = int(dtype.name.lstrip("uint"))
        return (0, 2**bits - 1) if dtype.name.startswith("u") else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
    limits = np.iinfo(dtype)
    return int(limits.min), int(limits.max)
