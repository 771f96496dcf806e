"""`RemoteArray`: a remote array with numpy's indexing."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from math import prod
from typing import Any

import numpy as np

from hyperslab.client.address import Address, with_query
from hyperslab.client.body import OnBytes
from hyperslab.client.definition import read_lengths
from hyperslab.client.endpoint import Endpoint
from hyperslab.client.indexing import (
    AnyArray,
    Indexer,
    Selection,
    select,
    select_blocks,
    select_orthogonal,
    split_fields,
)
from hyperslab.client.node import RemoteNode, open_session, read_document
from hyperslab.client.reading import read_selection
from hyperslab.client.session import retry_conflicts
from hyperslab.client.text import Progress, array_facts, report, size_text, table
from hyperslab.client.transport import Transport
from hyperslab.client.values import as_object, as_stored, as_values, object_codec
from hyperslab.client.view import LazyOperators, RemoteView
from hyperslab.client.writing import append_values, read_tag, write_selection, write_tagged
from hyperslab.errors import (
    ArrayChanged,
    BadBody,
    BadParameter,
    IndexOutOfRange,
    NodeNotFound,
    TooManyIndices,
    WrongKind,
)
from hyperslab.wire.labels import Method


class RemoteArray(LazyOperators, RemoteNode):
    """An array of a Hyperslab server, with numpy's indexing; each indexing sends requests.

    `shape`, `attrs` and other metadata come from the node document, which `refresh` reads again. All methods raise the
    server's errors as exceptions of `hyperslab.errors`, and `Unreachable` (a `ConnectionError`) if there is no
    connection.

    Args:
        url: Any URL of the node: ``/v1/metadata/…``, ``/v1/slice/…``, ``/zarr/…`` or ``/view/…``. Of its query
            parameters, ``field`` and ``decode`` are used.
        field: A field of a structured dtype; the dimensions of its subarray follow the array's.
        decode: ``"cf"`` decodes values by the CF conventions, as xarray does: unpacked floats, NaN for missing values,
            dates (ISO text if the calendar is not the standard one). Such an array is read-only.
        connections: Maximum concurrent requests to the server.
        token: A bearer token, by default that of the environment variable ``HYPERSLAB_TOKEN``; ``""`` sends none.
        headers: Request headers that are added to each request.
        progress: True for a progress bar for each transfer, or a function of the bytes done and the bytes in all.
        transport: By default an `HTTPTransport` with default settings.
    """

    def __init__(
        self,
        url: str,
        *,
        field: str | None = None,
        decode: str | None = None,
        connections: int = 4,
        token: str | None = None,
        headers: Mapping[str, str] | None = None,
        progress: Progress = False,
        transport: Transport | None = None,
    ) -> None:
        address, field, decode = Address.parse(url), with_query(url, "field", field), with_query(url, "decode", decode)
        if decode not in (None, "cf", "none"):
            raise BadParameter(name="decode", value=decode, expected="cf or none")
        decode = None if decode == "none" else decode
        super().__init__(open_session(connections, headers, transport, token), address, progress=progress)
        document = read_document(self._session, address, decode=decode)
        self._use(Endpoint.parse(self._session, address, *document, field=field, decode=decode))

    @classmethod
    def from_parts(cls, endpoint: Endpoint, *, progress: Progress = False) -> RemoteArray:
        """An array from its parsed node document."""
        array = cls.__new__(cls)
        RemoteNode.__init__(array, endpoint.session, endpoint.address, progress=progress)
        array._use(endpoint)
        return array

    # --- metadata ------------------------------------------------------------------------------------------------

    @property
    def field(self) -> str | None:
        """Name of the open field, or None."""
        return self._endpoint.field

    @property
    def shape(self) -> tuple[int, ...]:
        """Items along each axis; the dimensions of a field's subarray follow the array's."""
        return self._endpoint.shape

    @property
    def chunks(self) -> tuple[int, ...]:
        """Shape of a whole chunk, with as many axes as `shape`."""
        return self._endpoint.chunks

    @property
    def dtype(self) -> np.dtype[Any]:
        """The dtype of the values: of the open field, and decoded if ``decode`` is set."""
        return self._endpoint.dtype

    @property
    def ndim(self) -> int:
        """Number of axes."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """Number of items."""
        return prod(self.shape)

    @property
    def nbytes(self) -> int:
        """Size of the values in bytes, uncompressed."""
        return self.size * self.dtype.itemsize

    @property
    def fill_value(self) -> Any:
        """The value of unwritten cells: a scalar, or an array for a field with a subarray; None if undefined (it is
        zero then)."""
        return self._endpoint.fill_value

    @property
    def order(self) -> str:
        """Memory layout of stored chunks, ``C`` or ``F``."""
        return str(self.info.get("order", "C"))

    @property
    def dimension_names(self) -> tuple[str | None, ...] | None:
        """A name or None for each axis; None without names."""
        names = self.info.get("dimension_names")
        return None if names is None else tuple(names)

    @property
    def dims(self) -> tuple[str | None, ...]:
        """A name or None for each axis, those of a field's subarray too."""
        names = self.dimension_names or ()
        return (*names, *[None] * (self.ndim - len(names)))

    def sibling(self, name: str, *, decode: str | None = None) -> RemoteArray:
        """The array of this name in the same group; raises `NodeNotFound`, and `WrongKind` for a group."""
        return self._beside(self.path, name, decode)

    def coordinate(self, name: str, *, decode: str | None = None) -> RemoteArray:
        """The array of this name in the same group, else in the nearest group above that has one, as CF and
        `xarray.DataTree` inherit coordinates; raises `NodeNotFound`."""
        path = self.path
        while True:
            try:
                return self._beside(path, name, decode)
            except (NodeNotFound, WrongKind):
                path = path.rpartition("/")[0]
                if "/" not in path:
                    raise

    def _beside(self, path: str, name: str, decode: str | None) -> RemoteArray:
        address = Address(self._address.base, path.rpartition("/")[0]).child(name)
        document = read_document(self._session, address, decode=decode)
        return RemoteArray.from_parts(Endpoint.parse(self._session, address, *document, decode=decode))

    def with_field(self, name: str) -> RemoteArray:
        """The same array with a field of its structured dtype open; sends no request.

        Raises:
            FieldUnknown: There is no such field.
        """
        endpoint = self._endpoint.with_document(self.info, self._endpoint.etag, name)
        return RemoteArray.from_parts(endpoint, progress=self._progress)

    # --- reading -------------------------------------------------------------------------------------------------

    def __getitem__(self, key: Any) -> Any:
        """The values of numpy's indexing with this key; as `get`."""
        return self.get(key)

    def get(self, selection: Any = ..., *, out: AnyArray | None = None, progress: Progress | None = None) -> Any:
        """Read ``self[selection]``.

        Args:
            selection: Any index of numpy, optionally with a field name or list of names.
            out: An array for the result, of exactly its shape and dtype.
            progress: As of the class, for this transfer.

        Returns:
            A scalar, or an array of the selection's shape in numpy, followed by that of a field's subarray.

        Raises:
            IndexError: The selection is invalid or out of bounds.
            ValueError: ``out`` has another shape or dtype, or is read-only.
            ArrayChanged: The array was resized or replaced meanwhile; it has been refreshed, so try again.
        """
        array, fields, key = self._open_field(selection)
        if fields is not None and out is not None:
            raise ValueError("out= does not go with a list of fields: open one field, or read whole items")
        values = array._read(select(key, array.shape), out=out, progress=progress)
        return values if fields is None else values[fields]

    @property
    def oindex(self) -> Indexer:
        """Orthogonal indexing: ``a.oindex[[1, 5], :, mask]``. Each axis is indexed by itself; integers drop their axis.
        Reads and writes; raises as `get` and `set`."""
        return Indexer(lambda key: select_orthogonal(key, self.shape), self._read, self._write)

    @property
    def vindex(self) -> Indexer:
        """Point indexing: ``a.vindex[rows, columns]``. The result has the broadcast shape of the index arrays, then the
        axes of slices. Reads and writes; raises as `get` and `set`."""
        return Indexer(lambda key: select(key, self.shape, points_first=True), self._read, self._write)

    @property
    def blocks(self) -> Indexer:
        """Chunk indexing: ``a.blocks[0, 2:4]`` selects whole chunks by grid position; those at the end may be smaller.
        Reads and writes; raises as `get` and `set`, and `TypeError` for a rectilinear grid."""
        grid = self.info["chunk_grid"]
        if isinstance(grid, Mapping) and grid.get("name") == "rectilinear":
            raise TypeError("blocks counts chunks of one length, and this array has several")
        return Indexer(lambda key: select_blocks(key, self.shape, self.chunks), self._read, self._write)

    def isel(self, indexers: Mapping[str, Any] | None = None, **by_name: Any) -> RemoteView:
        """The part at positions along named dimensions, which is read when it is indexed; raises as
        `RemoteView.isel`."""
        return self._view().isel(indexers, **by_name)

    def sel(
        self, indexers: Mapping[str, Any] | None = None, *, method: Method | None = None, **by_name: Any
    ) -> RemoteView:
        """The part at labels of the coordinates that are stored beside the array; raises as `RemoteView.sel`."""
        return self._view().sel(indexers, method=method, **by_name)

    def _view(self) -> RemoteView:
        return RemoteView(self, tuple(map(range, self.shape)))

    def to_dask(self, chunks: Any = "auto") -> Any:
        """A dask array whose blocks are read when they are computed.

        Args:
            chunks: As of ``dask.array.from_array``: by default blocks of dask's size along the edges of stored chunks;
                None for the stored chunks themselves.

        Raises as `get` when blocks are computed.
        """
        import dask.array

        return dask.array.from_array(self, chunks=self.chunks if chunks is None else chunks)  # type: ignore[no-untyped-call]

    def to_xarray(self, **options: Any) -> Any:
        """An ``xarray.DataArray`` that is read when it is computed, with the coordinates that are stored beside the
        array. ``options``, and what is raised: as of ``xarray.open_dataset``. Values are decoded as the CF conventions
        say."""
        import xarray

        return xarray.open_dataset(self, engine="hyperslab", **options)[self.name]

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> AnyArray:
        """All values, for ``numpy.asarray``; raises `ValueError` for ``copy=False``, and as `get`."""
        if copy is False:
            raise ValueError("the values of a remote array cannot be had without a copy")
        values: AnyArray = self.get(...)
        return values if dtype is None else values.astype(dtype, copy=False)

    def __len__(self) -> int:
        """Length of the first axis; raises `TypeError` without axes."""
        if not self.shape:
            raise TypeError("len() of unsized object")
        return self.shape[0]

    def __iter__(self) -> Iterator[Any]:
        """Items along the first axis, fetched by rows of chunks; raises as `get`, and `TypeError` without axes."""
        rows = max(1, (16 << 20) // max(1, self.nbytes // max(1, len(self))))
        if rows > self.chunks[0]:
            rows -= rows % self.chunks[0]
        for start in range(0, len(self), rows):
            yield from self[start : start + rows]

    def _read(self, selection: Selection, *, out: AnyArray | None = None, progress: Progress | None = None) -> Any:
        if out is not None and (out.shape != selection.shape or out.dtype != self.dtype):
            described = f"{out.shape} {out.dtype}"
            raise ValueError(f"out has shape and dtype {described}, the selection has {selection.shape} {self.dtype}")
        if out is not None and not out.flags.writeable:
            raise ValueError("out is read-only")
        with self._watched(), self._report(selection, progress) as on_bytes:
            values = read_selection(self._endpoint, selection, out=out, on_bytes=on_bytes)
        return values[()] if selection.scalar and out is None else values

    # --- writing -------------------------------------------------------------------------------------------------

    def __setitem__(self, key: Any, value: Any) -> None:
        """Write values, as `set`."""
        self.set(key, value)

    def set(self, selection: Any, value: Any, *, progress: Progress | None = None) -> None:
        """Write ``self[selection] = value``, in requests aligned to chunks, over several connections.

        Args:
            selection: As for `get`; at most one field.
            value: Anything that broadcasts to the shape of the selection.
            progress: As of the class, for this transfer.

        Raises:
            IndexError: The selection is invalid or out of bounds.
            ValueError: The value cannot be broadcast to the selection.
            TypeError: The value has another kind of dtype, such as floats for integers.
            OverflowError: A value does not fit the dtype.
            ArrayChanged: The array was resized or replaced meanwhile.
            ReadOnly: The store is not writable; `WriteForbidden` if the token does not allow writes.
            PartlyWritten: Some chunks are stored and some are not; ``written`` and ``failed`` list them.
        """
        array, fields, key = self._open_field(selection)
        if fields is not None:
            raise IndexError("one field can be written at a time, or whole items")
        array._write(select(key, array.shape), value, progress=progress)

    def change(self, selection: Any, function: Callable[[Any], Any]) -> Any:
        """Write ``self[selection] = function(self[selection])``, retried if other writers interfere.

        Args:
            selection: Integers, slices and lists.
            function: Maps the values to the new ones; called again after a conflict.

        Returns:
            The values written.

        Raises:
            IndexError: Points, such as of a mask, have no tag. Otherwise as `set_tagged`.
        """

        def attempt() -> Any:
            values, tag = self.get_tagged(selection)
            changed = function(values)
            self.set_tagged(selection, changed, tag)
            return changed

        return retry_conflicts(attempt)

    def get_tagged(self, selection: Any = ...) -> tuple[Any, str]:
        """Read ``self[selection]`` with its tag, for `set_tagged`.

        Args:
            selection: Integers, slices and lists.

        Returns:
            The values, as of `get`, and the tag.

        Raises:
            IndexError: Points, such as of a mask, have no tag. Otherwise as `get`.
        """
        array, box = self._box(selection)
        tag = read_tag(array._endpoint, box)  # before the values, so that it is never newer than they are
        return array._read(box), tag

    def set_tagged(self, selection: Any, value: Any, tag: str) -> str:
        """Write ``self[selection] = value`` if the selection still has the tag.

        Args:
            selection: Integers, slices and lists; the values must fit one request.
            value: As for `set`.
            tag: The tag of `get_tagged`, or of an earlier `set_tagged`.

        Returns:
            The new tag.

        Raises:
            PreconditionFailed: One of the chunks has been written since.
            Unreachable: No response, so the values may or may not be written. Otherwise as `set`.
        """
        array, box = self._box(selection)
        values = array._values(value, scalar=box.scalar)
        with self._watched():
            return write_tagged(array._endpoint, box, values, tag)

    def resize(
        self, shape: int | Sequence[int | None], *, expand_only: bool = False, shrink_only: bool = False
    ) -> None:
        """Change the shape. New cells have the fill value; cells beyond the new shape are deleted.

        Args:
            shape: A length for each axis, None to keep it; an integer for an array with one axis.
            expand_only: No axis may become shorter.
            shrink_only: No axis may become longer.

        Raises:
            BadDefinition: ``expand_only`` or ``shrink_only`` would be violated.
            TypeError: A length is not an integer.
            ValueError: The shape of a field's subarray would change.
        """
        lengths = read_lengths(shape)
        inner = self._endpoint.item_shape
        if inner and len(lengths) == self.ndim:
            if any(length not in (None, size) for length, size in zip(lengths[-len(inner) :], inner, strict=True)):
                raise ValueError(f"the subarrays of a field have the shape {inner}, for good")
            lengths = lengths[: -len(inner)]
        self._patch({"shape": lengths}, expand_only=expand_only, shrink_only=shrink_only)

    def append(self, data: Any, axis: int = 0) -> int:
        """Append along an axis, at an offset that the server assigns. Retries do not append twice.

        Args:
            data: Values with the array's lengths along all axes but ``axis``.
            axis: The axis along which the array grows.

        Returns:
            The index of the first appended item along the axis.

        Raises:
            AppendConflict: The data needed several requests, and another writer appended between them.
            ValueError: The data has another shape; `TypeError` or `OverflowError` if its values do not fit the dtype.
        """
        offset, shape = append_values(self._endpoint, self._values(data), axis)
        self._adopt({**self.info, "shape": shape}, None)
        return offset

    def _report(self, selection: Selection, progress: Progress | None) -> AbstractContextManager[OnBytes]:
        nbytes = selection.size * self.dtype.itemsize
        return report(self._progress if progress is None else progress, nbytes, self.name)

    def _write(self, selection: Selection, value: Any, *, progress: Progress | None = None) -> None:
        values = self._values(value, scalar=selection.scalar)
        with self._watched(), self._report(selection, progress) as on_bytes:
            write_selection(self._endpoint, selection, values, on_bytes=on_bytes)

    @contextmanager
    def _watched(self) -> Iterator[None]:
        """Refresh the node document after an error that a changed array may cause; raises `ArrayChanged` if its shape
        or dtype has changed."""
        try:
            yield
        except ArrayChanged:
            self.refresh()  # for the next attempt
            raise
        except (BadBody, IndexOutOfRange, TooManyIndices) as error:  # the array may have changed
            before, after = self.info, self.refresh().info
            for member in ("shape", "dtype"):
                if before[member] != after[member]:
                    raise ArrayChanged(self.path, member, before[member], after[member]) from error
            raise

    def _values(self, value: Any, *, scalar: bool = False) -> AnyArray:
        """``value`` cast to the array's dtype; for a ``scalar`` selection a list is one object, as in numpy."""
        if self._decode is not None:
            raise TypeError("decoded values cannot be written: open the array without decode=")
        if not self.dtype.hasobject:
            return as_values(value, self.dtype)
        values = as_object(value) if scalar else as_values(value, self.dtype)
        return as_stored(values, object_codec(self.info))

    def _box(self, selection: Any) -> tuple[RemoteArray, Selection]:
        """The array, with a field opened if ``selection`` names one, and the selection as a box, which has a tag."""
        array, fields, key = self._open_field(selection)
        box = select(key, array.shape)
        if fields is not None or box.pointwise:
            raise IndexError("points and lists of fields have no tag: a box of whole items, or of one field, has")
        return array, box

    def _open_field(self, selection: Any) -> tuple[RemoteArray, str | list[str] | None, Any]:
        """The array, with a field opened if ``selection`` names one; other field names; the rest of the selection."""
        fields, key = split_fields(selection)
        if isinstance(fields, str) and self.field is None:
            return self.with_field(fields), None, key
        return self, fields, key

    def _adopt(self, members: Mapping[str, Any], etag: str | None) -> None:
        if self._decode is not None and "decoded" not in members:  # the response to a change
            members, etag = read_document(self._session, self._address, decode=self._decode)
        self._use(self._endpoint.with_document(members, etag, self.field))

    def _use(self, endpoint: Endpoint) -> None:
        self._endpoint, self._members, self._decode = endpoint, endpoint.members, endpoint.decode

    # --- representation ------------------------------------------------------------------------------------------

    def __repr__(self) -> str:
        field = f" field {self.field!r}" if self.field is not None else ""
        return f"<RemoteArray {self.path}{field} {self.shape} {self.dtype}, chunks {self.chunks}, at {self.url}>"

    def _repr_html_(self) -> str:
        size = size_text(self.nbytes)
        facts = {"field": self.field, "shape": self.shape, "dtype": self.dtype, "chunks": self.chunks, "size": size}
        return table(array_facts(self.info, url=self.url, **facts))

    def _ipython_key_completions_(self) -> list[str]:
        """Field names, to complete ``array["``."""
        return list(self.dtype.names or ())

    def __dask_tokenize__(self) -> tuple[Any, ...]:
        return (self.url, self.field, self._decode, self._endpoint.etag, self.shape)

    def __reduce__(self) -> tuple[Any, ...]:
        return RemoteArray.from_parts, (self._endpoint,)
