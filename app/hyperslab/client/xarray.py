"""xarray's backend ``hyperslab``: groups of a server as datasets, of which slices are read and not chunks.

Variables have the dimensions, attributes and fill values that xarray finds in the same group through zarr-python, and
the conventions (CF) are decoded by xarray itself.
"""

from __future__ import annotations

import base64
import re
import struct
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final

import numpy as np
import xarray
from xarray.backends import AbstractDataStore, BackendArray, BackendEntrypoint, StoreBackendEntrypoint
from xarray.coding.strings import create_vlen_dtype
from xarray.core import indexing

from hyperslab.client.array import RemoteArray
from hyperslab.client.group import RemoteGroup
from hyperslab.errors import NodeNotFound, WrongKind

DIMENSIONS: Final = "_ARRAY_DIMENSIONS"
"""The attribute with the names of dimensions, by xarray's convention for Zarr v2."""


class HyperslabBackend(BackendEntrypoint):
    """Backend of ``xarray.open_dataset(url, engine="hyperslab")``, and of ``open_datatree`` and ``open_mfdataset``.

    Further options: ``group``, a path below the URL; ``token``, ``headers`` and ``connections`` as of `RemoteGroup`.
    The other options are those of xarray, which decodes.
    """

    description = "Groups of a Hyperslab server, by slices"
    supports_groups = True

    def guess_can_open(self, filename_or_obj: Any) -> bool:
        """Whether it is a URL of a node document, a slice or the page. xarray asks netCDF4 first, if that is installed,
        which takes all URLs: ``engine="hyperslab"`` is certain, and so is its option ``netcdf_engine_order``."""
        return isinstance(filename_or_obj, str) and bool(
            re.match(r"https?://[^/?#]+(/[^?#]*)?/(v1/(metadata|slice)|view)(/|$)", filename_or_obj)
        )

    def open_dataset(
        self,
        filename_or_obj: Any,
        *,
        mask_and_scale: Any = True,
        decode_times: Any = True,
        concat_characters: Any = True,
        decode_coords: Any = True,
        drop_variables: str | Iterable[str] | None = None,
        use_cftime: Any = None,
        decode_timedelta: Any = None,
        group: str | None = None,
        token: str | None = None,
        headers: Mapping[str, str] | None = None,
        connections: int = 4,
    ) -> xarray.Dataset:
        """The arrays of one group, by its URL or as a `RemoteGroup`, or a `RemoteArray` with its coordinates.

        Raises:
            ValueError: An array has no names of dimensions. Otherwise the server's errors.
        """
        opened = filename_or_obj
        if isinstance(opened, str):
            opened = RemoteGroup(opened, token=token, headers=headers, connections=connections)
        if isinstance(opened, RemoteArray):
            store = _Store({}, _with_coordinates(opened))
        else:
            node = opened.open_group(group) if group else opened
            names = {drop_variables} if isinstance(drop_variables, str) else set(drop_variables or ())
            store = _Store(
                node.attrs, {n: node.open_array(n) for n, kind in node.children() if kind == "array" and n not in names}
            )
        return StoreBackendEntrypoint().open_dataset(
            store,
            mask_and_scale=mask_and_scale,
            decode_times=decode_times,
            concat_characters=concat_characters,
            decode_coords=decode_coords,
            drop_variables=drop_variables,
            use_cftime=use_cftime,
            decode_timedelta=decode_timedelta,
        )

    def open_groups_as_dict(
        self,
        filename_or_obj: Any,
        *,
        group: str | None = None,
        token: str | None = None,
        headers: Mapping[str, str] | None = None,
        connections: int = 4,
        drop_variables: str | Iterable[str] | None = None,
        **decoding: Any,
    ) -> dict[str, Any]:
        """The datasets of a group and of all groups below it, by path; raises as `open_dataset`."""
        root = RemoteGroup(filename_or_obj, token=token, headers=headers, connections=connections)
        groups = _groups(root.open_group(group) if group else root, "/")
        return {path: self.open_dataset(inner, drop_variables=drop_variables, **decoding) for path, inner in groups}

    def open_datatree(self, filename_or_obj: Any, **options: Any) -> xarray.DataTree:
        """A group and all groups below it; raises as `open_dataset`."""
        return xarray.DataTree.from_dict(self.open_groups_as_dict(filename_or_obj, **options))


def _with_coordinates(array: RemoteArray) -> dict[str, RemoteArray]:
    """An array and the coordinates that its dimensions and its attribute ``coordinates`` name, by name."""
    names = {*filter(None, array.dims), *str(array.attrs.get("coordinates", "")).split()}
    arrays = {array.name: array}
    for name in sorted(names - {array.name}):
        try:
            coordinate = array.coordinate(name)
        except (NodeNotFound, WrongKind):
            continue  # a dimension needs no coordinate
        if set(coordinate.dims) <= set(array.dims):
            arrays[name] = coordinate
    return arrays


def _groups(group: RemoteGroup, path: str) -> Iterator[tuple[str, RemoteGroup]]:
    yield path, group
    for name, child in group.groups():
        yield from _groups(child, f"{path.rstrip('/')}/{name}")


class _Store(AbstractDataStore):
    """Arrays and the attributes of their group, as xarray's store."""

    def __init__(self, attributes: Mapping[str, Any], arrays: Mapping[str, RemoteArray]) -> None:
        self._attributes = _attributes(attributes)
        self._variables = {name: _variable(array) for name, array in arrays.items()}

    def get_attrs(self) -> dict[str, Any]:
        return self._attributes

    def get_variables(self) -> dict[str, xarray.Variable]:
        return self._variables


def _variable(array: RemoteArray) -> xarray.Variable:
    """An array with the attributes from which xarray decodes it: of v2, the fill value is that of missing values."""
    dims = array.dims
    if None in dims:
        raise ValueError(f"{array.path}: dimensions {dims}: xarray needs a name for each; see drop_variables=")
    attributes = _attributes(array.attrs.asdict())
    chunks: tuple[Any, ...] = array.chunks
    encoding: dict[str, Any] = {"chunks": chunks, "preferred_chunks": dict(zip(dims, chunks, strict=True))}
    if array.info.get("zarr_format") == 2:
        if array.fill_value is not None:
            attributes["_FillValue"] = array.fill_value
    elif "_FillValue" in attributes:
        attributes["_FillValue"] = _missing(attributes["_FillValue"], array.dtype)
    return xarray.Variable(dims, indexing.LazilyIndexedArray(_Lazy(array)), attributes, encoding)


def _attributes(members: Mapping[str, Any]) -> dict[str, Any]:
    """Attributes without those by which libraries store dimensions."""
    return {name: value for name, value in members.items() if name != DIMENSIONS and not name.lower().startswith("_nc")}


def _missing(value: Any, dtype: np.dtype[Any]) -> Any:
    """A missing value of Zarr v3 as xarray stores it: floats as base64 of a little-endian double."""

    def number(text: Any) -> float:
        return struct.unpack("<d", base64.standard_b64decode(text))[0] if isinstance(text, str) else float(text)

    if dtype.kind == "f":
        return number(value)
    if dtype.kind == "c" and isinstance(value, list):
        return complex(*map(number, value))
    if dtype.kind == "S" and isinstance(value, str):
        return base64.standard_b64decode(value)
    return value


class _Lazy(BackendArray):
    """An array that is read when it is indexed: boxes as slices, points as points."""

    def __init__(self, array: RemoteArray) -> None:
        self._remote = array
        self.shape = array.shape
        self.dtype = create_vlen_dtype(str) if array.dtype.hasobject else array.dtype  # type: ignore[no-untyped-call]

    def __getitem__(self, key: indexing.ExplicitIndexer) -> Any:
        read: Callable[[Any], Any] = self._points if isinstance(key, indexing.VectorizedIndexer) else self._box
        return indexing.explicit_indexing_adapter(key, self.shape, indexing.IndexingSupport.VECTORIZED, read)

    def _box(self, key: Any) -> Any:
        return np.asarray(self._remote.oindex[key], self.dtype)

    def _points(self, key: Any) -> Any:
        return np.asarray(self._remote.vindex[key], self.dtype)
