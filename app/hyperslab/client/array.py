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
from hyperslab.client.document import ArrayDocument
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
from hyperslab.client.reading import Endpoint, read_selection
from hyperslab.client.session import Session, until_undisturbed
from hyperslab.client.text import Progress, array_facts, report, size_text, table
from hyperslab.client.transport import Transport
from hyperslab.client.values import as_object, as_stored, as_values, object_codec
from hyperslab.client.writing import append_values, read_tag, write_selection, write_tagged
from hyperslab.errors import ArrayChanged, BadBody, BadParameter, IndexOutOfRange, TooManyIndices

_MISFITS = (BadBody, IndexOutOfRange, TooManyIndices)
"""What is raised though selection and values fit the array as it is known here: it is another one by now."""
_ITERATED = 16 << 20  # bytes that iteration fetches at once


class RemoteArray(RemoteNode):
    """An array of a Hyperslab server, indexed with numpy's rules; each indexing fetches.

    ``url`` is any URL of the node: ``/v1/metadata/…``, ``/v1/slice/…``, ``/zarr/…`` or ``/view/…``. ``field`` opens
    one field of a structured dtype (it may stand in the URL too); the dimensions of its subarray follow the array's.
    The URL's other parameters, such as ``select``, do not matter here. Big reads and writes use up to
    ``connections`` at once. ``token`` is a bearer token; without one, that of the environment variable
    ``HYPERSLAB_TOKEN`` is sent, to whatever server the URL names (``token=""`` sends none). ``headers`` go with every
    request. ``progress`` shows a bar for each transfer, or calls a function with the bytes done and in all.

    ``decode="cf"`` (it may stand in the URL too) reads what the attributes say that the values mean, as xarray does:
    unpacked floats, NaN for what is missing, dates. Dates of other than the standard calendar are ISO text. Such an
    array cannot be written.

    `shape`, `attrs` and the like are as of when they were read: `refresh` reads them anew. Raises the exceptions of
    `hyperslab.errors` that the server raised, and `Unreachable` (a `ConnectionError`) where it cannot be reached.
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
        members, etag = read_document(self._session, address, decode=decode)
        self._know(ArrayDocument.parse(members, field=field, etag=etag, decode=decode))

    @classmethod
    def from_parts(
        cls, session: Session, address: Address, document: ArrayDocument, *, progress: Progress = False
    ) -> RemoteArray:
        """An array whose node document is in hand already."""
        array = cls.__new__(cls)
        RemoteNode.__init__(array, session, address, progress=progress)
        array._know(document)
        return array

    # --- what it is ----------------------------------------------------------------------------------------------

    @property
    def info(self) -> Mapping[str, Any]:
        """The whole node document, as of when it was read."""
        return self._document.members

    @property
    def field(self) -> str | None:
        """The field that is opened, if any."""
        return self._document.field

    @property
    def shape(self) -> tuple[int, ...]:
        """Items along each axis; behind the array's own axes come those of a field's subarray."""
        return self._document.shape

    @property
    def chunks(self) -> tuple[int, ...]:
        """The shape of a whole chunk, in items, with as many axes as `shape`."""
        return self._document.chunks

    @property
    def dtype(self) -> np.dtype[Any]:
        """Of the values as they are read: of the opened field, and decoded where ``decode`` says so."""
        return self._document.dtype

    @property
    def ndim(self) -> int:
        """How many axes there are: the length of `shape`."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """How many items there are."""
        return prod(self.shape)

    @property
    def nbytes(self) -> int:
        """Bytes of the values, uncompressed."""
        return self.size * self.dtype.itemsize

    @property
    def fill_value(self) -> Any:
        """What was never written reads as: a scalar of the dtype, or an array for a field with a subarray; None where
        the array does not say (then it is zero)."""
        return self._document.fill_value

    @property
    def order(self) -> str:
        """``C`` or ``F``: the layout inside a stored chunk, which changes nothing in what is read."""
        return str(self.info.get("order", "C"))

    @property
    def dimension_names(self) -> tuple[str | None, ...] | None:
        """A name for each axis of the array, None for one that has none; None where there are no names at all."""
        return self._document.dimension_names

    def with_field(self, name: str) -> RemoteArray:
        """The same array with one field of its structured dtype opened; raises `FieldUnknown`. Nothing is asked."""
        document = ArrayDocument.parse(self.info, field=name, etag=self._document.etag, decode=self._decode)
        return RemoteArray.from_parts(self._session, self._address, document, progress=self._progress)

    # --- reading -------------------------------------------------------------------------------------------------

    def __getitem__(self, key: Any) -> Any:
        """The values that numpy's indexing with this key gives, as `get` reads them."""
        return self.get(key)

    def get(self, selection: Any = ..., *, out: AnyArray | None = None, progress: Progress | None = None) -> Any:
        """``self[selection]``: an array of the shape that numpy gives it, or a scalar; into ``out``, which has to have
        its shape and dtype, where that is given.

        ``progress`` is told bytes. Raises `IndexError` for a key that the array does not have, `ValueError` for an
        ``out`` that does not fit, `ArrayChanged` where the array was resized or replaced meanwhile (the next try sees
        it as it is now), `Unreachable`, and what the server raised.
        """
        fields, key = split_fields(selection)
        if isinstance(fields, str) and self.field is None:
            return self.with_field(fields).get(key, out=out, progress=progress)
        if fields is None:
            return self._read(select(key, self.shape), out=out, progress=progress)
        if out is not None:
            raise ValueError("out= does not go with a list of fields: open one field, or read whole items")
        return self._read(select(key, self.shape), progress=progress)[fields]

    @property
    def oindex(self) -> Indexer:
        """Orthogonal indexing: each axis by itself, ``a.oindex[[1, 5], :, mask]``; integers drop their axis. Reads and
        writes, and raises as `get` and `set`."""
        return Indexer(lambda key: select_orthogonal(key, self.shape), self._read, self._write)

    @property
    def vindex(self) -> Indexer:
        """Points: index arrays vary together, ``a.vindex[rows, columns]``; the result has their shape, then the axes
        that slices leave. Reads and writes, and raises as `get` and `set`."""
        return Indexer(lambda key: select(key, self.shape, points_first=True), self._read, self._write)

    @property
    def blocks(self) -> Indexer:
        """Whole chunks by their place in the grid: ``a.blocks[0, 2:4]``; those at the end may be smaller. Reads and
        writes, and raises as `get` and `set`."""
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
        rows = max(1, _ITERATED // max(1, self.nbytes // max(1, len(self))))
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
        """``self[selection] = value``: broadcast as numpy does, cut on chunk edges, sent over several connections.

        ``progress`` is told bytes. Raises, before anything is sent, `IndexError` for a key that the array does not
        have, `ValueError` for values whose shape does not fit, and `TypeError` or `OverflowError` for those that would
        become others on the way; `ArrayChanged` where the array has another shape or dtype by now, `ReadOnly` and
        `WriteForbidden`, `PartlyWritten` and its like where some chunks are stored, `Unreachable`, and what else the
        server raised.
        """
        fields, key = split_fields(selection)
        if isinstance(fields, str) and self.field is None:
            self.with_field(fields).set(key, value, progress=progress)
            return
        if fields is not None:
            raise IndexError("one field can be written at a time, or whole items")
        self._write(select(key, self.shape), value, progress=progress)

    def change(self, selection: Any, function: Callable[[Any], Any]) -> Any:
        """``self[selection] = function(self[selection])``, and nothing that others write meanwhile is lost.

        Where others come first, it starts again from the values as they are then: ``function`` may be called several
        times. Returns what was written. The selection and what is raised are those of `set_tagged`.
        """

        def attempt() -> Any:
            values, tag = self.get_tagged(selection)
            changed = function(values)
            self.set_tagged(selection, changed, tag)
            return changed

        return until_undisturbed(attempt)

    def get_tagged(self, selection: Any = ...) -> tuple[Any, str]:
        """``self[selection]``, and the tag by which `set_tagged` tells whether it was written since.

        ``selection`` is made of integers, slices and lists; raises `IndexError` for others, and as `get`.
        """
        array, box = self._box(selection)
        tag = read_tag(array._endpoint, box)  # before the values: at worst it is older than they are
        return array._read(box), tag

    def set_tagged(self, selection: Any, value: Any, tag: str) -> str:
        """``self[selection] = value`` where it still has the ``tag``; returns the tag that it has then.

        ``selection`` is made of integers, slices and lists, and its values fit one request. Raises
        `PreconditionFailed` where somebody has written to a chunk of it, and `ArrayChanged` as `set` does. Where the
        answer is lost, nobody knows whether the values were written, and what the transport raises is passed on.
        """
        array, box = self._box(selection)
        values = array._values(value, scalar=box.scalar)
        with self._watched():
            return write_tagged(array._endpoint, box, values, tag)

    def resize(
        self, shape: int | Sequence[int | None], *, expand_only: bool = False, shrink_only: bool = False
    ) -> None:
        """Give the array another shape; None keeps the length of an axis, an integer alone is for an array of one axis.

        Lengths are items. All fields have the same shape. New cells read as fill, cells that are cut off are gone for
        good. Raises `BadDefinition` where an axis would shrink though ``expand_only``, or grow though ``shrink_only``,
        `TypeError` for lengths that are no integers, `ValueError` for another shape of a field's subarray, and what the
        server raised, such as `ReadOnly`.
        """
        lengths = read_lengths(shape)
        inner = self._document.item_shape
        if inner and len(lengths) == self.ndim:
            if any(given not in (None, size) for given, size in zip(lengths[-len(inner) :], inner, strict=True)):
                raise ValueError(f"the subarrays of a field have the shape {inner}, for good")
            lengths = lengths[: -len(inner)]
        self._patch({"shape": lengths}, expand_only=expand_only, shrink_only=shrink_only)

    def append(self, data: Any, axis: int = 0) -> int:
        """Store ``data`` behind the end of ``axis`` and return where it begins, as an index: the server picks that.

        ``data`` has as many axes as the array, and its lengths along all of them but ``axis``.
        Each request has a key, so that a repeated one stores nothing twice. Data beyond the server's limit for one
        request goes in parts that follow each other: raises `AppendConflict` where another writer comes in between.
        Raises `TypeError`, `OverflowError` or `ValueError` for data that do not fit, and what the server raised.
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
        """Read the node document anew after what says that the array is another one; raises `ArrayChanged` where values
        have to have another form now."""
        try:
            yield
        except ArrayChanged:
            self.refresh()  # so that a second try sees the array as it is now
            raise
        except _MISFITS as error:
            known, found = self.info, self.refresh().info
            for member in ("shape", "dtype"):
                if known[member] != found[member]:
                    changed = {"path": self.path, "member": member, "expected": known[member], "found": found[member]}
                    raise ArrayChanged(**changed) from error
            raise

    @property
    def _decode(self) -> str | None:
        return self._document.decode

    def _values(self, value: Any, *, scalar: bool = False) -> AnyArray:
        """``value`` as the array can hold it, for one cell where ``scalar``: then a list is an item, as in numpy."""
        if self._decode is not None:
            raise TypeError("decoded values cannot be written: open the array without decode=")
        if not self.dtype.hasobject:
            return as_values(value, self.dtype)
        values = as_object(value) if scalar else as_values(value, self.dtype)
        return as_stored(values, object_codec(self.info))

    def _box(self, selection: Any) -> tuple[RemoteArray, Selection]:
        """The array, of which a field may be opened, and a selection that has one tag."""
        fields, key = split_fields(selection)
        if isinstance(fields, str) and self.field is None:
            return self.with_field(fields)._box(key)
        chosen = select(key, self.shape)
        if fields is not None or chosen.pointwise:
            raise IndexError("points and lists of fields have no tag: a box of whole items, or of one field, has")
        return self, chosen

    def _adopt(self, members: Mapping[str, Any], etag: str | None) -> None:
        if self._decode is not None and "decoded" not in members:  # as in the answer to a change
            members, etag = read_document(self._session, self._address, decode=self._decode)
        self._know(self._document.with_members(members, etag))

    def _know(self, document: ArrayDocument) -> None:
        self._document = document
        self._endpoint = Endpoint(self._session, self._address, document)

    # --- being an object -----------------------------------------------------------------------------------------

    def __repr__(self) -> str:
        field = f" field {self.field!r}" if self.field is not None else ""
        return f"<RemoteArray {self.path}{field} {self.shape} {self.dtype}, chunks {self.chunks}, at {self.url}>"

    def _repr_html_(self) -> str:
        return table(facts(self))

    def _ipython_key_completions_(self) -> list[str]:
        """Names to complete ``array["`` with: the fields."""
        return list(self.dtype.names or ())

    def __dask_tokenize__(self) -> tuple[Any, ...]:
        return (self.url, self.field, self._decode, self._document.etag, self.shape)

    def __reduce__(self) -> tuple[Any, ...]:
        return RemoteArray.from_parts, (self._session, self._address, self._document)


def facts(array: RemoteArray) -> dict[str, Any]:
    """What people want to know of an array, in order."""
    return array_facts(
        array.info,
        field=array.field,
        shape=array.shape,
        dtype=array.dtype,
        chunks=array.chunks,
        size=size_text(array.nbytes),
        order=array.order,
        url=array.url,
        **{"fill value": array.fill_value},
    )
