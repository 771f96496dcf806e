"""Read plan: the chunks and the size of a selection, and the entity tag made of their versions."""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice, pairwise
from math import prod
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from hyperslab.arrays.nodes import ArrayNode
from hyperslab.engine.dtypes import Field
from hyperslab.engine.grid import Coords
from hyperslab.engine.indexing import (
    ChunkProjection,
    PointProjection,
    PointsByChunk,
    StoredParts,
    broadcast_points,
    count_by_object,
    project_points,
    project_stored,
    split_rows,
    touched,
)
from hyperslab.engine.selection import IndexAxis, ListAxis, Selection, SliceAxis, normalise
from hyperslab.errors import FieldRequired, FieldUnknown, TooLarge
from hyperslab.wire import SelectionItem, format_selection

Projection = ChunkProjection | PointProjection

MAX_VERSIONS = 65_536
"""Above this number of chunks only hashes of their versions, eight bytes each, are stored, so that memory hardly grows
with their number."""


class ChunkVersions(NamedTuple):
    """Versions of a plan's chunks by coordinates (None: absent), in the order of `Plan.coords`; for too many chunks,
    sorted hashes of both and the resulting tag."""

    by_coords: Mapping[Coords, str | None] | None
    tag: str = ""
    hashes: NDArray[np.int64] | None = None

    def holds(self, coords: Coords, version: str | None) -> bool:
        """Whether a chunk has this version, by the hashes. It never lets go of Python's lock: for microseconds, that
        would wake the event loop, and let it wait again from the start."""
        assert self.hashes is not None
        hashes, wanted = self.hashes.data, hash((coords, version))
        place = bisect_left(hashes, wanted)
        return place < len(hashes) and hashes[place] == wanted


@dataclass(slots=True, kw_only=True, eq=False)
class Plan(ABC):
    """Read plan of a selection of an array, or of one of its fields.

    ``shape`` and ``dtype`` of the answer include subarray dimensions; ``nbytes``: its size in C order; ``touched``:
    number of chunks. ``found``: versions of the chunks, once looked up or read.
    """

    array: ArrayNode
    field: Field | None
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    nbytes: int
    touched: int
    found: ChunkVersions | None = None

    @abstractmethod
    def objects(self) -> Iterator[StoredParts[Projection]]:
        """The touched chunks and their places in the answer, by stored object."""

    def counts(self) -> Iterator[tuple[Coords, int]]:
        """Coordinates of the touched stored objects, in the same order, each with the number of its touched chunks."""
        return ((part.coords, part.chunks) for part in self.objects())

    def coords(self) -> Iterator[Coords]:
        """Coordinates of the touched stored objects, in the same order."""
        return (coords for coords, _ in self.counts())

    @property
    @abstractmethod
    def stored(self) -> int:
        """The number of touched stored objects."""

    @abstractmethod
    def describe(self) -> str:
        """The selection and the conversion as text."""

    def identity(self) -> hashlib.blake2b:
        """A digest of the selection and of the metadata that affects values."""
        array = self.array
        # the document of Zarr v3 includes attributes, which do not affect values
        version = array.data_id if array.metadata.zarr_format == 3 else array.metadata_version
        name = "" if self.field is None else self.field.name
        return hashlib.blake2b(f"{version}|{name}|{self.describe()}\n".encode(), digest_size=12)

    @property
    def versions(self) -> Mapping[Coords, str | None] | None:
        """Versions by chunk coordinates (None: absent), once known; None for too many chunks."""
        assert self.found is not None
        return self.found.by_coords

    @property
    def tag(self) -> str:
        """A digest of the metadata's version, the selection and the versions of all touched chunks, once known."""
        assert self.found is not None
        by_coords = self.found.by_coords
        return self.found.tag if by_coords is None else self.tag_of(by_coords.values())

    def tag_of(self, versions: Iterable[str | None]) -> str:
        """The tag for versions in the order of `coords`."""
        digest = self.identity()
        feed(digest, versions)
        return digest.hexdigest()


P = TypeVar("P", bound=Plan)


@dataclass(slots=True, kw_only=True, eq=False)
class ReadPlan(Plan):
    """A box, stride or orthogonal selection."""

    selection: Selection
    converted: bool = False

    def objects(self) -> Iterator[StoredParts[ChunkProjection]]:
        return project_stored(self.selection, self.array.metadata.grid, self.array.metadata.stored_grid)

    def counts(self) -> Iterator[tuple[Coords, int]]:
        metadata = self.array.metadata
        return count_by_object(self.selection, metadata.grid, metadata.stored_grid)

    @property
    def stored(self) -> int:
        return touched(self.selection, self.array.metadata.stored_grid)

    def describe(self) -> str:
        part = None if self.field is None else self.field.part
        axes, inner = (",".join(map(_axis_text, of)) for of in (self.selection.axes, () if part is None else part.axes))
        return f"{axes}|{inner}|{self.dtype.str if self.converted else ''}"

    @property
    def inner_shape(self) -> tuple[int, ...]:
        return self.shape[len(self.selection.shape) :]


@dataclass(slots=True, kw_only=True, eq=False)
class PointsPlan(Plan):
    """Scattered points: ``shape`` is (number of points, *subarray dimensions), points in C order of the broadcast
    coordinates."""

    points: Sequence[NDArray[Any]]
    by_chunk: PointsByChunk

    def objects(self) -> Iterator[StoredParts[Projection]]:
        for first, stop in pairwise(self.by_chunk.objects):
            parts = [*self.by_chunk.between(first, stop)]
            yield StoredParts(self.array.metadata.stored_coords(parts[0].coords), parts, len(parts))

    @property
    def stored(self) -> int:
        return len(self.by_chunk.objects) - 1

    def describe(self) -> str:
        digest = hashlib.blake2b(digest_size=12)
        for axis in self.points:
            digest.update(np.ascontiguousarray(axis).tobytes())
        return digest.hexdigest()


def make_plan(
    array: ArrayNode, selection: Selection, *, field: Field | None = None, dtype: np.dtype[Any] | None = None
) -> ReadPlan:
    """The plan of ``selection``, made without access to the store. ``dtype``: conversion of the output."""
    inner = field.shape if field is not None else ()
    out_dtype = dtype if dtype is not None else field.numpy if field is not None else array.metadata.dtype.numpy
    shape = selection.shape + inner
    try:
        check_countable(shape, out_dtype.itemsize)
    except TooLarge as error:
        boxes = boxes_that_fit(array, selection, prod(inner) * out_dtype.itemsize, error.limit)
        raise replace(error, boxes=boxes) from None
    return ReadPlan(
        array=array,
        selection=selection,
        field=field,
        shape=shape,
        dtype=out_dtype,
        nbytes=prod(shape) * out_dtype.itemsize,
        touched=touched(selection, array.metadata.grid),
        converted=dtype is not None,
    )


def too_many_chunks(what: str, plan: ReadPlan, limit: int) -> TooLarge:
    """The error, with a split, for a plan of more chunks than the ``limit``."""
    field = plan.field
    item = prod(field.shape) * field.numpy.itemsize if field is not None else plan.array.metadata.itemsize
    share = max(plan.selection.size * item * limit // plan.touched, 1)
    boxes = boxes_that_fit(plan.array, plan.selection, item, share, field)
    return TooLarge(f"the chunks of {what}", plan.touched, limit, unit="chunks", boxes=boxes)


def boxes_that_fit(
    array: ArrayNode, selection: Selection, item_bytes: int, limit: int, field: Field | None = None
) -> list[str]:
    """Selection texts that together make up ``selection``, each of at most ``limit`` bytes, cut on chunk edges.

    ``item_bytes``: size of one element of the answer, subarray dimensions included. Gives at most 1000 texts. Each
    includes the selection within the subarray of ``field``.
    """
    inner = () if field is None or field.part is None else field.part.axes
    parts = split_rows(selection, (), itemsize=item_bytes, grid=array.metadata.grid, limit_bytes=limit)
    return [format_selection([*map(_axis_item, (*part.axes, *inner))]) for part, _, _ in islice(parts, 1000)]


def _axis_item(axis: IndexAxis | SliceAxis | ListAxis) -> SelectionItem:
    if isinstance(axis, IndexAxis):
        return axis.index
    if isinstance(axis, ListAxis):
        return [int(i) for i in axis.indices]
    if axis.count == 0:
        return slice(0, 0)
    stop = axis.start + axis.step * axis.count
    # a negative step down to the first item has only None as its stop
    return slice(axis.start, None if stop < 0 else stop, None if axis.step == 1 else axis.step)


def check_countable(shape: tuple[int, ...], itemsize: int) -> None:
    """Raise `TooLarge` for a selection of 2**63 bytes or more, also if only empty axes make it smaller: numpy has no
    such arrays."""
    nbytes = prod(size or 1 for size in shape) * itemsize
    if nbytes >= 1 << 63:
        raise TooLarge("a selection", nbytes, (1 << 63) - 1)


def make_points_plan(array: ArrayNode, coordinates: Sequence[Any], *, field: Field | None = None) -> PointsPlan:
    """As `make_plan`, for points: ``coordinates`` holds one integer array per axis; they are broadcast together."""
    grid = array.metadata.grid
    points = broadcast_points(coordinates, grid.shape)
    by_chunk = project_points(points, grid, array.metadata.stored_grid)
    dtype = array.metadata.dtype.numpy if field is None else field.numpy
    shape = (points[0].size if points else 1, *(field.shape if field is not None else ()))
    return PointsPlan(
        array=array,
        points=points,
        by_chunk=by_chunk,
        field=field,
        shape=shape,
        dtype=dtype,
        nbytes=prod(shape) * dtype.itemsize,
        touched=len(by_chunk),
    )


def resolve_field(array: ArrayNode, name: str | None, *, required: bool = False) -> Field | None:
    """The field called ``name``; without a name None, but if ``required``, the only field of a structured dtype.

    Raises `FieldUnknown` and `FieldRequired` with the list of fields.
    """
    dtype = array.metadata.dtype
    names = [field.name for field in dtype.fields]
    if name:
        if name not in names:
            raise FieldUnknown(array.path, name, names)
        return dtype.field(name)
    if required and len(names) > 1:
        raise FieldRequired(array.path, names)
    return dtype.fields[0] if required and names else None


def select(array: ArrayNode, field: Field | None, items: Sequence[SelectionItem]) -> tuple[Selection, Field | None]:
    """The selection of ``items`` of an array, and the field with the selection, behind the array's axes, within its
    subarray."""
    rank, axes = len(array.metadata.shape), normalise(items, array.metadata.shape + (field.shape if field else ())).axes
    outer, inner = Selection(axes[:rank]), Selection(axes[rank:])
    if field is None or inner.axes in ((), tuple([SliceAxis(0, 1, size) for size in field.shape])):
        return outer, field
    return outer, replace(field, shape=inner.shape, part=inner)


def feed(digest: hashlib.blake2b, versions: Iterable[str | None]) -> None:
    """Add versions to the digest of a tag."""
    digest.update("".join([f"{version or '-'}\n" for version in versions]).encode())


def _axis_text(axis: IndexAxis | SliceAxis | ListAxis) -> str:
    if isinstance(axis, IndexAxis):
        return str(axis.index)
    if isinstance(axis, SliceAxis):
        return f"{axis.start}:{axis.step}:{axis.count}"
    return hashlib.blake2b(axis.indices.tobytes(), digest_size=12).hexdigest()
