"""`RemoteArray`: an array behind a URL that is used like numpy's."""

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
from hyperslab.client.session import until_undisturbed
from hyperslab.client.text import Progress, array_facts, report, size_text, table
from hyperslab.client.transport import Transport
from hyperslab.client.values import as_object, as_stored, as_values, object_codec
from hyperslab.client.writing import append_values, read_tag, write_selection, write_tagged
from hyperslab.errors import ArrayChanged, BadBody, BadParameter, IndexOutOfRange, TooManyIndices


class RemoteArray(RemoteNode):
    """An array of a Hyperslab server, with numpy's indexing; each indexing sends requests.

    `shape`, `attrs` and the like are those of the node document as it was last read: `refresh` reads it again. All
    methods raise the exceptions of `hyperslab.errors` that the server raised, and `Unreachable` (a `ConnectionError`)
    if it cannot be reached.

    Args:
        url: Any URL of the node: ``/v1/metadata/…``, ``/v1/slice/…``, ``/zarr/…`` or ``/view/…``. Its parameters
            ``field`` and ``decode`` count, others do not.
        field: A field of a structured dtype; the dimensions of its subarray follow the array's.
        decode: ``"cf"`` reads what the attributes say that the values mean, as xarray does: unpacked floats, NaN for
            missing values, dates (ISO text if the calendar is not the standard one). Such an array cannot be written.
        connections: Maximum concurrent requests to the server.
        token: A bearer token, by default that of the environment variable ``HYPERSLAB_TOKEN``; ``""`` sends none.
        headers: Request headers that are added to each request.
        progress: True for a progress bar for each transfer, or a function of the bytes done and the bytes in all.
        transport: What sends requests, instead of an `HTTPTransport` with default settings.
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
        self._endpoint = Endpoint.parse(self._session, address, *document, field=field, decode=decode)

    @classmethod
    def from_parts(cls, endpoint: Endpoint, *, progress: Progress = False) -> RemoteArray:
        """An array from its parsed node document."""
        array = cls.__new__(cls)
        RemoteNode.__init__(array, endpoint.session, endpoint.address, progress=progress)
        array._endpoint = endpoint
        return array

    # --- what it is ----------------------------------------------------------------------------------------------

    @property
    def info(self) -> Mapping[str, Any]:
        """The node document, as it was last read."""
        return self._endpoint.members

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
        """The dtype of values as they are read: of the open field, and decoded if ``decode`` is set."""
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
        """The value of cells that were never written: a scalar, or an array for a field with a subarray; None if the
        array does not define one (it is zero then)."""
        return self._endpoint.fill_value

    @property
    def order(self) -> str:
        """Layout inside a stored chunk, ``C`` or ``F``; it makes no difference to what is read."""
        return str(self.info.get("order", "C"))

    @property
    def dimension_names(self) -> tuple[str | None, ...] | None:
        """A name or None for each axis; None if there are no names."""
        names = self.info.get("dimension_names")
        return None if names is None else tuple(names)

    def with_field(self, name: str) -> RemoteArray:
        """The same array with a field of its structured dtype open. No request is sent.

        Raises:
            FieldUnknown: There is no such field.
        """
        endpoint = self._endpoint.with_document(self.info, self._endpoint.etag, name)
        return RemoteArray.from_parts(endpoint, progress=self._progress)

    # --- reading -------------------------------------------------------------------------------------------------

    def __getitem__(self, key: Any) -> Any:
        """The values that numpy's indexing with this key gives, as `get` reads them."""
        return self.get(key)

    def get(self, selection: Any = ..., *, out: AnyArray | None = None, progress: Progress | None = None) -> Any:
        """Read ``self[selection]``.

        Args:
            selection: Anything that numpy's indexing takes; a field name, or field names, may stand first.
            out: An array for the result, of exactly its shape and dtype.
            progress: As of the class, for this transfer.

        Returns:
            An array of the shape that numpy gives the selection, then that of a field's subarray; or a scalar.

        Raises:
            IndexError: The array has no such selection.
            ValueError: ``out`` has another shape or dtype, or is read-only.
            ArrayChanged: The array was resized or replaced meanwhile; `refresh` has been called, so try again.
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
        """Chunk indexing: ``a.blocks[0, 2:4]`` selects whole chunks by their place in the grid; those at the end may be
        smaller. Reads and writes; raises as `get` and `set`, and `TypeError` where chunks have several lengths."""
        grid = self.info["chunk_grid"]
        if isinstance(grid, Mapping) and grid.get("name") == "rectilinear":
            raise TypeError("blocks counts chunks of one length, and this array has several")
        return Indexer(lambda key: select_blocks(key, self.shape, self.chunks), self._read, self._write)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> AnyArray:
        """All values, for ``numpy.asarray``; raises `ValueError` where no copy is allowed, and as `get`."""
        if copy is False:
            raise ValueError("the values of a remote array cannot be had without a copy")
        values: AnyArray = self.get(...)
        return values if dtype is None else values.astype(dtype, copy=False)

    def __len__(self) -> int:
        """Items along the first axis; raises `TypeError` where there is none."""
        if not self.shape:
            raise TypeError("len() of unsized object")
        return self.shape[0]

    def __iter__(self) -> Iterator[Any]:
        """Items along the first axis, fetched by rows of chunks; raises as `get`, and `TypeError` where there is no
        axis."""
        rows = max(1, (16 << 20) // max(1, self.nbytes // max(1, len(self))))
        if rows > self.chunks[0]:
            rows -= rows % self.chunks[0]
        for start in range(0, len(self), rows):
            yield from self[start : start + rows]

    def _read(self, selection: Selection, *, out: AnyArray | None = None, progress: Progress | None = None) -> Any:
        if out is not None and (out.shape != selection.shape or out.dtype != self.dtype):
            found = f"{out.shape} {out.dtype}"
            raise ValueError(f"out has shape and dtype {found}, the selection has {selection.shape} {self.dtype}")
        if out is not None and not out.flags.writeable:
            raise ValueError("out is read-only")
        with self._watched(), self._report(selection, progress) as on_bytes:
            values = read_selection(self._endpoint, selection, out=out, on_bytes=on_bytes)
        return values[()] if selection.scalar and out is None else values

    # --- writing -------------------------------------------------------------------------------------------------

    def __setitem__(self, key: Any, value: Any) -> None:
        """Write values where numpy's indexing with this key would, as `set` does."""
        self.set(key, value)

    def set(self, selection: Any, value: Any, *, progress: Progress | None = None) -> None:
        """Write ``self[selection] = value``, cut on chunk edges and sent over several connections.

        Args:
            selection: As for `get`; at most one field.
            value: Anything that numpy broadcasts to the shape of the selection.
            progress: As of the class, for this transfer.

        Raises:
            IndexError: The array has no such selection.
            ValueError: The value cannot be broadcast to the selection.
            TypeError: The value is of another kind than the dtype, such as floats for integers.
            OverflowError: A value does not fit the dtype.
            ArrayChanged: The array has another shape or dtype now.
            ReadOnly: The store is not writable; `WriteForbidden` if the token is not.
            PartlyWritten: Some chunks are stored and some are not; ``written`` and ``failed`` list them.
        """
        array, fields, key = self._open_field(selection)
        if fields is not None:
            raise IndexError("one field can be written at a time, or whole items")
        array._write(select(key, array.shape), value, progress=progress)

    def change(self, selection: Any, function: Callable[[Any], Any]) -> Any:
        """Write ``self[selection] = function(self[selection])`` without losing what others write meanwhile.

        Args:
            selection: Integers, slices and lists.
            function: Gets the values and returns the new ones. It is called again if another writer came first.

        Returns:
            The values that were written.

        Raises:
            IndexError: The selection has no tag, as of a mask. Otherwise as `set_tagged`.
        """

        def attempt() -> Any:
            values, tag = self.get_tagged(selection)
            changed = function(values)
            self.set_tagged(selection, changed, tag)
            return changed

        return until_undisturbed(attempt)

    def get_tagged(self, selection: Any = ...) -> tuple[Any, str]:
        """Read ``self[selection]`` with its tag, for `set_tagged`.

        Args:
            selection: Integers, slices and lists.

        Returns:
            The values, as of `get`, and the tag.

        Raises:
            IndexError: The selection has no tag, as of a mask. Otherwise as `get`.
        """
        array, box = self._box(selection)
        tag = read_tag(array._endpoint, box)  # before the values: at worst it is older than they are
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
            PreconditionFailed: Somebody has written to one of its chunks since.
            Unreachable: The answer was lost: it is not known whether the values were written. Otherwise as `set`.
        """
        array, box = self._box(selection)
        values = array._values(value, scalar=box.scalar)
        with self._watched():
            return write_tagged(array._endpoint, box, values, tag)

    def resize(
        self, shape: int | Sequence[int | None], *, expand_only: bool = False, shrink_only: bool = False
    ) -> None:
        """Change the shape. New cells have the fill value; cells that are cut off are lost.

        Args:
            shape: A length for each axis, None to keep it; an integer for an array with one axis.
            expand_only: No axis may become shorter.
            shrink_only: No axis may become longer.

        Raises:
            BadDefinition: An axis would become shorter or longer although it may not.
            TypeError: A length is no integer.
            ValueError: The subarray of a field would have another shape.
        """
        lengths = read_lengths(shape)
        inner = self._endpoint.item_shape
        if inner and len(lengths) == self.ndim:
            if any(given not in (None, size) for given, size in zip(lengths[-len(inner) :], inner, strict=True)):
                raise ValueError(f"the subarrays of a field have the shape {inner}, for good")
            lengths = lengths[: -len(inner)]
        self._patch({"shape": lengths}, expand_only=expand_only, shrink_only=shrink_only)

    def append(self, data: Any, axis: int = 0) -> int:
        """Append along an axis. The server picks the place; a repeated request stores nothing twice.

        Args:
            data: As many axes as the array, with its lengths along all of them but ``axis``.
            axis: The axis along which the array grows.

        Returns:
            The index at which the data begins.

        Raises:
            AppendConflict: The data went in several requests, and another writer came in between.
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
        """Refresh the node document after an error that suggests a changed array; raises `ArrayChanged` if its shape or
        dtype has changed."""
        try:
            yield
        except ArrayChanged:
            self.refresh()  # so that a second try sees the array as it is now
            raise
        except (BadBody, IndexOutOfRange, TooManyIndices) as error:  # the array may be another by now
            known, found = self.info, self.refresh().info
            for member in ("shape", "dtype"):
                if known[member] != found[member]:
                    changed = {"path": self.path, "member": member, "expected": known[member], "found": found[member]}
                    raise ArrayChanged(**changed) from error
            raise

    @property
    def _decode(self) -> str | None:
        return self._endpoint.decode

    def _values(self, value: Any, *, scalar: bool = False) -> AnyArray:
        """``value`` cast for this array. If the selection is ``scalar``, a list is one object, as in numpy."""
        if self._decode is not None:
            raise TypeError("decoded values cannot be written: open the array without decode=")
        if not self.dtype.hasobject:
            return as_values(value, self.dtype)
        values = as_object(value) if scalar else as_values(value, self.dtype)
        return as_stored(values, object_codec(self.info))

    def _box(self, selection: Any) -> tuple[RemoteArray, Selection]:
        """The array, with a field opened if ``selection`` names one, and a selection that has one tag."""
        array, fields, key = self._open_field(selection)
        chosen = select(key, array.shape)
        if fields is not None or chosen.pointwise:
            raise IndexError("points and lists of fields have no tag: a box of whole items, or of one field, has")
        return array, chosen

    def _open_field(self, selection: Any) -> tuple[RemoteArray, str | list[str] | None, Any]:
        """The array, with a field opened if ``selection`` names one, the fields that it names else, and its key."""
        fields, key = split_fields(selection)
        if isinstance(fields, str) and self.field is None:
            return self.with_field(fields), None, key
        return self, fields, key

    def _adopt(self, members: Mapping[str, Any], etag: str | None) -> None:
        if self._decode is not None and "decoded" not in members:  # as in the answer to a change
            members, etag = read_document(self._session, self._address, decode=self._decode)
        self._endpoint = self._endpoint.with_document(members, etag, self.field)

    # --- being an object -----------------------------------------------------------------------------------------

    def __repr__(self) -> str:
        field = f" field {self.field!r}" if self.field is not None else ""
        return f"<RemoteArray {self.path}{field} {self.shape} {self.dtype}, chunks {self.chunks}, at {self.url}>"

    def _repr_html_(self) -> str:
        size = size_text(self.nbytes)
        known = {"field": self.field, "shape": self.shape, "dtype": self.dtype, "chunks": self.chunks, "size": size}
        return table(array_facts(self.info, url=self.url, **known))

    def _ipython_key_completions_(self) -> list[str]:
        """Names to complete ``array["`` with: the fields."""
        return list(self.dtype.names or ())

    def __dask_tokenize__(self) -> tuple[Any, ...]:
        return (self.url, self.field, self._decode, self._endpoint.etag, self.shape)

    def __reduce__(self) -> tuple[Any, ...]:
        return RemoteArray.from_parts, (self._endpoint,)
