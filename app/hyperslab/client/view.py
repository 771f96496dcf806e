"""`RemoteView`: a part of a remote array, chosen by names of dimensions, which is read when it is indexed."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from hyperslab.client.indexing import AnyArray, Axis, Selection, lengths, select, select_orthogonal
from hyperslab.errors import NodeNotFound, WrongKind
from hyperslab.wire.labels import Method, item, positions


class LazyOperators:
    """Values elsewhere: arithmetic and numpy's methods are refused, with a word of what does them."""

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("_") and hasattr(np.ndarray, name):
            raise AttributeError(f"a remote array has no {name}: read values, a[...].{name}, or use a.to_dask().{name}")
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def _refuse(self, *_: Any) -> Any:
        raise TypeError("a remote array does not compute: read values, a[...], or use a.to_dask()")


_BINARY = ["add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "matmul", "and", "or", "xor", "lshift", "rshift"]
_OTHERS = ["neg", "pos", "abs", "invert", "lt", "le", "gt", "ge"]
for _name in [f"{prefix}{name}" for prefix in ("", "r", "i") for name in _BINARY] + _OTHERS:
    setattr(LazyOperators, f"__{_name}__", LazyOperators._refuse)


class RemoteView(LazyOperators):
    """Part of a remote array: an index, a range or an array of indices along each axis. Sends no request by itself.

    ``view[...]`` or ``numpy.asarray(view)`` reads it, ``view[...] = x`` writes it, and numpy's other keys choose from
    it. Indices drop their axis. The part is that of the array's shape when the view was made.
    """

    def __init__(self, array: Any, axes: tuple[Axis, ...]) -> None:
        self._array = array  # a `RemoteArray`, which imports this module
        self._axes = axes

    @property
    def array(self) -> Any:
        """The whole array, a `RemoteArray`."""
        return self._array

    @property
    def dims(self) -> tuple[str | None, ...]:
        """The name of each axis that is left; None without one."""
        names = self._array.dims
        return tuple(name for name, axis in zip(names, self._axes, strict=True) if not isinstance(axis, int))

    @property
    def shape(self) -> tuple[int, ...]:
        """Items along each axis that is left."""
        return lengths(self._axes)

    @property
    def dtype(self) -> np.dtype[Any]:
        """The dtype of the values."""
        dtype: np.dtype[Any] = self._array.dtype
        return dtype

    @property
    def ndim(self) -> int:
        """Number of axes that are left."""
        return len(self.shape)

    def isel(self, indexers: Mapping[str, Any] | None = None, **by_name: Any) -> RemoteView:
        """The part at these positions: integers, slices, and lists or masks, by names of dimensions.

        Raises:
            ValueError: No axis that is left has such a name.
            IndexError: A position is out of bounds, or invalid.
        """
        return self._at(lambda _, key: key, {**(indexers or {}), **by_name})

    def sel(
        self, indexers: Mapping[str, Any] | None = None, *, method: Method | None = None, **by_name: Any
    ) -> RemoteView:
        """The part at these labels: values of the coordinates that are stored beside the array under the names of its
        dimensions, decoded as the CF conventions say. Reads these coordinates.

        Args:
            indexers: For each name a label, a list of labels, or a slice from one to another (both included). A part of
                a date, such as ``"2001-01"``, stands for all of that time.
            method: For labels without a value: ``nearest``, ``pad`` (``ffill``) or ``backfill`` (``bfill``).

        Raises:
            ValueError: No axis that is left has such a name, or a label is of another kind than the coordinate.
            KeyError: There is no such coordinate, or it does not have the label.
        """

        def look(name: str, label: Any) -> Any:
            values, dates = self._coordinate(name)
            return item(positions(values, label, method=method, dates=dates))

        return self._at(look, {**(indexers or {}), **by_name})

    def _at(self, look: Callable[[str, Any], Any], keys: Mapping[str, Any]) -> RemoteView:
        """The part at positions that ``look`` makes of the keys."""
        names = self.dims
        for name in keys:
            if name not in names:
                known = ", ".join(repr(known) for known in names if known is not None) or "none with a name"
                raise ValueError(f"there is no dimension {name!r}: the array has {known}")
        key = tuple(look(name, keys[name]) if name is not None and name in keys else slice(None) for name in names)
        return RemoteView(self._array, self._through(select_orthogonal(key, self.shape)))

    def _coordinate(self, name: str) -> tuple[AnyArray, bool]:
        """The values of a coordinate along its axis, and whether they are dates in text."""
        try:
            coordinate = self._array.coordinate(name, decode="cf")
        except (NodeNotFound, WrongKind) as error:
            where = f"beside {self._array.path} or above"
            raise KeyError(f"no coordinate {name!r} is stored {where}: choose by isel") from error
        axis = self._axes[self._array.dims.index(name)]
        size = self._array.shape[self._array.dims.index(name)]
        if coordinate.shape != (size,):
            raise KeyError(
                f"{coordinate.path} has the shape {coordinate.shape}, and is no coordinate of an axis of {size}"
            )
        values = np.asarray(coordinate[...])
        decoded = coordinate.info.get("decoded") or {}
        return values[np.asarray(axis)], values.dtype.kind == "U" and bool(decoded.get("changes"))

    def to_dask(self, chunks: Any = "auto") -> Any:
        """A ``dask.array`` that reads its blocks when it is computed; ``chunks`` as `dask.array.from_array` takes."""
        import dask.array

        return dask.array.from_array(self, chunks=chunks)  # type: ignore[no-untyped-call]

    def __getitem__(self, key: Any) -> Any:
        """The values of numpy's indexing with this key.

        Raises:
            IndexError: The key is invalid or out of bounds, or points of a list. Otherwise as `RemoteArray.get`.
        """
        return self._array._read(self._select(key))

    def __setitem__(self, key: Any, value: Any) -> None:
        """Write values; raises as `RemoteArray.set`, and `IndexError` as reading does."""
        self._array._write(self._select(key), value)

    def _select(self, key: Any) -> Selection:
        selection = select(key, self.shape)
        left = [axis for axis in self._axes if not isinstance(axis, int)]
        lists = (isinstance(axis, np.ndarray) for axis in left)
        if selection.pointwise and any(map(operator.and_, lists, (isinstance(a, range) for a in selection.axes))):
            raise IndexError("points cannot be chosen from a view with a list of positions: read it with [...] first")
        return replace(selection, axes=self._through(selection))

    def _through(self, selection: Selection) -> tuple[Axis, ...]:
        """A selection of this part as one of the array."""
        chosen, axes = iter(selection.axes), list(self._axes)
        for index, axis in enumerate(self._axes):
            if isinstance(axis, int):
                continue
            part = next(chosen)
            if isinstance(part, range):
                axes[index] = axis[item(part)]
            else:
                axes[index] = int(axis[part]) if isinstance(part, int) else np.asarray(axis)[part]
        return tuple(axes)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> AnyArray:
        """The values, for ``numpy.asarray``; raises `ValueError` for ``copy=False``."""
        if copy is False:
            raise ValueError("the values of a remote array cannot be had without a copy")
        return np.asarray(self[...], dtype)

    def __len__(self) -> int:
        """Length of the first axis that is left; raises `TypeError` without one."""
        if not self.shape:
            raise TypeError("len() of unsized object")
        return self.shape[0]

    def __repr__(self) -> str:
        sizes = ", ".join(f"{name or '?'}: {size}" for name, size in zip(self.dims, self.shape, strict=True))
        return f"<RemoteView of {self._array.path} ({sizes}) {self.dtype}>"
