"""What a read will touch, known before any data is read: shape, bytes, chunk versions, and the tag made of them."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from math import prod
from typing import Any

import numpy as np

from hyperslab.arrays.nodes import ArrayNode
from hyperslab.arrays.versions import VersionBook
from hyperslab.engine.dtypes import Field
from hyperslab.engine.indexing import IndexAxis, ListAxis, Selection, SliceAxis, touched, touched_coords
from hyperslab.errors import FieldRequired, FieldUnknown

Coords = tuple[int, ...]

_MOST_KEPT = 65_536
"""Above so many chunks their versions go into the tag but are not kept: memory must not grow with the slice."""
_BATCH = 8_192


@dataclass(frozen=True, slots=True)
class ReadPlan:
    """A selection of an array (or of one field) and what it comes to.

    ``shape`` and ``dtype`` are those of the answer, subarray dimensions included; ``nbytes`` its size in C order.
    ``versions`` maps chunk coordinates to versions (None: absent), or is None where there are too many chunks.
    ``tag`` is a digest of the metadata's version, the versions of all chunks touched, the selection and the field.
    """

    array: ArrayNode
    selection: Selection
    field: Field | None
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    nbytes: int
    touched: int
    versions: Mapping[Coords, str | None] | None
    tag: str

    @property
    def item(self) -> tuple[tuple[int, ...], int]:
        """The subarray shape and the size in bytes of one element of the answer."""
        return self.inner_shape, self.dtype.itemsize * prod(self.inner_shape)

    @property
    def inner_shape(self) -> tuple[int, ...]:
        return self.shape[len(self.selection.shape) :]

    @property
    def store_dtype(self) -> np.dtype[Any]:
        """The dtype of the values before any conversion."""
        return self.field.numpy if self.field is not None else self.array.metadata.dtype.numpy


def resolve_field(array: ArrayNode, name: str | None) -> Field | None:
    """The field of this name; None for a plain dtype, or for a structured one of which the whole is wanted.

    Raises `FieldUnknown` with the list of fields.
    """
    if not name:
        return None
    dtype = array.metadata.dtype
    names = [field.name for field in dtype.fields]
    if name not in names:
        raise FieldUnknown(array.path, name, names)
    return dtype.field(name)


def require_field(array: ArrayNode, name: str | None) -> Field | None:
    """As `resolve_field`, but a structured array of several fields needs a name (CONFORMANCE 166, 167)."""
    fields = array.metadata.dtype.fields
    if name or not fields:
        return resolve_field(array, name)
    if len(fields) == 1:
        return fields[0]
    raise FieldRequired(array.path, [field.name for field in fields])


def make_plan(
    versions: VersionBook,
    array: ArrayNode,
    selection: Selection,
    *,
    field: Field | None = None,
    dtype: np.dtype[Any] | None = None,
) -> ReadPlan:
    """Look up the versions of the chunks that ``selection`` touches and work out the rest; reads no data.

    ``dtype`` asks for a conversion on the way out.
    """
    digest = hashlib.blake2b(digest_size=12)
    digest.update(_identity(array, selection, field, dtype).encode())
    count = touched(selection, array.metadata.grid)
    kept = _look_up(versions, array, touched_coords(selection, array.metadata.grid), count, digest)
    inner = field.shape if field is not None else ()
    out_dtype = dtype if dtype is not None else field.numpy if field is not None else array.metadata.dtype.numpy
    shape = selection.shape + inner
    nbytes = prod(shape) * out_dtype.itemsize
    return ReadPlan(array, selection, field, shape, out_dtype, nbytes, count, kept, digest.hexdigest())


def _look_up(
    versions: VersionBook, array: ArrayNode, coords: Iterator[Coords], count: int, digest: hashlib.blake2b
) -> dict[Coords, str | None] | None:
    """Feed the versions of all chunks to ``digest`` and keep them where there are not too many."""
    kept: dict[Coords, str | None] | None = {} if count <= _MOST_KEPT else None
    while batch := list(islice(coords, _BATCH)):
        found = versions.versions(array.mount, array.prefix, [array.chunk_key(c) for c in batch])
        digest.update("\n".join([version or "-" for version in found]).encode())
        if kept is not None:
            kept.update(zip(batch, found, strict=True))
    return kept


def _identity(array: ArrayNode, selection: Selection, field: Field | None, dtype: np.dtype[Any] | None) -> str:
    axes = ",".join(_axis_text(axis) for axis in selection.axes)
    name = "" if field is None else field.name
    return f"{array.metadata_version}|{axes}|{name}|{'' if dtype is None else dtype.str}\n"


def _axis_text(axis: IndexAxis | SliceAxis | ListAxis) -> str:
    if isinstance(axis, IndexAxis):
        return str(axis.index)
    if isinstance(axis, SliceAxis):
        return f"{axis.start}:{axis.step}:{axis.count}"
    return hashlib.blake2b(axis.indices.tobytes(), digest_size=12).hexdigest()


def points_identity(coordinates: Sequence[np.ndarray[Any, np.dtype[np.int64]]]) -> str:
    """A digest of scattered coordinates, one array per axis."""
    digest = hashlib.blake2b(digest_size=12)
    for axis in coordinates:
        digest.update(axis.tobytes())
    return digest.hexdigest()
