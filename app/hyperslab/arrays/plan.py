"""What a read will touch, known before any data is read: shape, bytes, chunk versions, and the tag made of them."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from math import prod
from threading import Lock
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hyperslab.arrays.cost import Cancel
from hyperslab.arrays.limits import check_readable
from hyperslab.arrays.nodes import ArrayNode
from hyperslab.arrays.versions import VersionBook, Versions
from hyperslab.engine.dtypes import Field
from hyperslab.engine.grid import Coords
from hyperslab.engine.indexing import (
    ChunkProjection,
    IndexAxis,
    ListAxis,
    PointProjection,
    Selection,
    SliceAxis,
    broadcast_points,
    normalise,
    project,
    project_points,
    touched,
    touched_coords,
)
from hyperslab.errors import FieldRequired, FieldUnknown
from hyperslab.wire import SelectionItem

Projection = ChunkProjection | PointProjection

MOST_KEPT = 65_536
"""Above so many chunks their versions go into the tag, and eight bytes of each are kept: memory must hardly grow with
the slice."""
FEW = 1_024
"""Chunks of a read whose versions may come with the data."""
_BATCH = 8_192


class Found(NamedTuple):
    """The versions of chunks (None: absent), or sorted hashes of keys and versions where they are too many, and the
    tag."""

    versions: Mapping[Coords, str | None] | None
    tag: str
    hashes: NDArray[np.int64] | None = None

    def holds(self, key: str, version: str | None) -> bool:
        """Whether this was the version of a chunk; for those that are too many."""
        assert self.hashes is not None
        wanted = hash((key, version))
        return bool(self.hashes.take(np.searchsorted(self.hashes, wanted), mode="clip") == wanted)


class Lookup:
    """The versions of the chunks that a plan touches, asked for at first use, and the tag made of them.

    What is read before that could be older than the tag. So a reader that does without them says so with `forgo`, and
    to ask for them later is an error. Safe to call from many threads.
    """

    __slots__ = ("_conclude", "_find", "_found", "_lock", "forgone")

    def __init__(self, find: Callable[[], Found], conclude: Callable[[Mapping[Coords, str | None]], Found]) -> None:
        """``conclude`` makes of versions what ``find`` would have found."""
        self._find = find
        self._conclude = conclude
        self._found: Found | None = None
        self._lock = Lock()
        self.forgone = False

    @property
    def done(self) -> bool:
        """Whether the store was asked already."""
        return self._found is not None

    def forgo(self) -> None:
        """Do without: data are about to be read."""
        with self._lock:
            self.forgone = self._found is None

    def conclude(self, versions: Mapping[Coords, str | None]) -> None:
        """Do without a look-up: the data were read, and are of these versions (None: absent)."""
        with self._lock:
            self._found = self._conclude(versions)

    def __call__(self) -> Found:
        found = self._found
        if found is not None:
            return found
        with self._lock:
            if self.forgone:
                raise RuntimeError("data were read before anyone asked for their versions")
            if self._found is None:
                self._found = self._find()
            return self._found


@dataclass(frozen=True, slots=True)
class ReadPlan:
    """A selection of an array (or of one field) and what it comes to.

    ``shape`` and ``dtype`` are those of the answer, subarray dimensions included; ``nbytes`` its size in C order.
    """

    array: ArrayNode
    selection: Selection
    field: Field | None
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    nbytes: int
    touched: int
    lookup: Lookup

    @property
    def versions(self) -> Mapping[Coords, str | None] | None:
        """Versions by chunk coordinates (None: absent); None where there are too many chunks."""
        return self.lookup().versions

    @property
    def tag(self) -> str:
        """A digest of the metadata's version, the versions of all chunks touched, the selection and the field."""
        return self.lookup().tag

    def projections(self) -> Iterator[Projection]:
        """The chunks touched and where they go in the answer."""
        return project(self.selection, self.array.metadata.grid)

    @property
    def item_bytes(self) -> int:
        """The size in bytes of one element of the answer, subarray dimensions included."""
        return self.dtype.itemsize * prod(self.inner_shape)

    @property
    def inner_shape(self) -> tuple[int, ...]:
        return self.shape[len(self.selection.shape) :]


@dataclass(frozen=True, slots=True)
class PointsPlan:
    """Scattered points of an array and what reading them comes to; members as in `ReadPlan`.

    ``shape`` is (number of points, *subarray dimensions), points in C order of the broadcast coordinates.
    """

    array: ArrayNode
    parts: tuple[PointProjection, ...]
    field: Field | None
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    nbytes: int
    touched: int
    lookup: Lookup

    @property
    def versions(self) -> Mapping[Coords, str | None]:
        """As in `ReadPlan`; there are never too many."""
        return self.lookup().versions or {}

    @property
    def tag(self) -> str:
        """As in `ReadPlan`, of the coordinates."""
        return self.lookup().tag

    def projections(self) -> Iterator[Projection]:
        """The chunks touched and where they go in the answer, whose points lie along one axis."""
        return iter(self.parts)


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


def select(array: ArrayNode, field: Field | None, items: Sequence[SelectionItem]) -> Selection:
    """What ``items`` select of an array and, behind its axes, of the subarray of a field."""
    return normalise(items, array.metadata.shape + (() if field is None else field.shape))


def require_field(array: ArrayNode, name: str | None) -> Field | None:
    """As `resolve_field`, but a structured array of several fields needs a name (CONFORMANCE 166, 167)."""
    fields = array.metadata.dtype.fields
    if name or not fields:
        return resolve_field(array, name)
    if len(fields) == 1:
        return fields[0]
    raise FieldRequired(array.path, [field.name for field in fields])


def make_plan(
    versions: Versions,
    array: ArrayNode,
    selection: Selection,
    *,
    field: Field | None = None,
    dtype: np.dtype[Any] | None = None,
    cancel: Cancel | None = None,
) -> ReadPlan:
    """What reading ``selection`` comes to; asks the store for nothing before `ReadPlan.versions` or ``tag`` is used.

    ``dtype`` asks for a conversion on the way out. The look-up raises `Cancelled` where the client leaves meanwhile.
    """
    inner = field.shape if field is not None else ()
    out_dtype = dtype if dtype is not None else field.numpy if field is not None else array.metadata.dtype.numpy
    shape = selection.shape + inner
    check_readable(array, selection, inner, out_dtype.itemsize)
    grid = array.metadata.grid
    count = touched(selection, grid)

    def digest() -> hashlib.blake2b:
        return hashlib.blake2b(_identity(array, selection, field, dtype).encode(), digest_size=12)

    def find() -> Found:
        return _look_up(
            versions, array, touched_coords(selection, grid), digest(), keep=count <= MOST_KEPT, cancel=cancel
        )

    def conclude(read: Mapping[Coords, str | None]) -> Found:
        return _conclude(touched_coords(selection, grid), read, digest())

    nbytes = prod(shape) * out_dtype.itemsize
    return ReadPlan(array, selection, field, shape, out_dtype, nbytes, count, Lookup(find, conclude))


def make_points_plan(
    versions: VersionBook, array: ArrayNode, coordinates: Sequence[Any], *, field: Field | None = None
) -> PointsPlan:
    """As `make_plan`, for points: ``coordinates`` holds one integer array per axis; they are broadcast together."""
    grid = array.metadata.grid
    points = broadcast_points(coordinates, grid.shape)
    parts = tuple(project_points(points, grid))

    def find() -> Found:
        return _look_up(versions, array, (part.coords for part in parts), _points_digest(array, points, field))

    def conclude(read: Mapping[Coords, str | None]) -> Found:
        return _conclude((part.coords for part in parts), read, _points_digest(array, points, field))

    dtype = array.metadata.dtype.numpy if field is None else field.numpy
    count = points[0].size if points else 1
    shape = (count, *(field.shape if field is not None else ()))
    nbytes = prod(shape) * dtype.itemsize
    return PointsPlan(array, parts, field, shape, dtype, nbytes, len(parts), Lookup(find, conclude))


def points_tag(
    array: ArrayNode, coordinates: Sequence[Any], field: Field | None, versions: Iterable[str | None]
) -> str:
    """The tag that `make_points_plan` gives, for chunk versions that are known: in the order of `project_points`."""
    digest = _points_digest(array, broadcast_points(coordinates, array.metadata.shape), field)
    _feed(digest, versions)
    return digest.hexdigest()


def _points_digest(array: ArrayNode, points: Sequence[Any], field: Field | None) -> hashlib.blake2b:
    name = "" if field is None else field.name
    digest = hashlib.blake2b(f"{array.metadata_version}|{name}\n".encode(), digest_size=12)
    for axis in points:
        digest.update(np.ascontiguousarray(axis).tobytes())
    return digest


def _look_up(
    versions: Versions,
    array: ArrayNode,
    coords: Iterator[Coords],
    digest: hashlib.blake2b,
    *,
    keep: bool = True,
    cancel: Cancel | None = None,
) -> Found:
    """Feed the versions of all chunks to ``digest`` and ``keep`` them, or their hashes."""
    kept: dict[Coords, str | None] = {}
    hashes: list[Any] = []
    while batch := list(islice(coords, _BATCH)):
        if cancel is not None:
            cancel.check()
        keys = [array.chunk_key(c) for c in batch]
        found = versions.versions(array.mount, array.prefix, keys)
        _feed(digest, found)
        if keep:
            kept.update(zip(batch, found, strict=True))
        else:
            hashes.append(np.fromiter(map(hash, zip(keys, found, strict=True)), np.int64, len(keys)))
    if keep:
        return Found(kept, digest.hexdigest())
    return Found(None, digest.hexdigest(), np.sort(np.concatenate(hashes)))


def _conclude(coords: Iterable[Coords], read: Mapping[Coords, str | None], digest: hashlib.blake2b) -> Found:
    """What `_look_up` gives, of versions that are known."""
    kept = {chunk: read[chunk] for chunk in coords}
    _feed(digest, kept.values())
    return Found(kept, digest.hexdigest())


def selection_tag(array: ArrayNode, selection: Selection, field: Field | None, versions: Iterable[str | None]) -> str:
    """The tag that `make_plan` gives, for chunk versions that are known: in the order of `project`."""
    digest = hashlib.blake2b(_identity(array, selection, field, None).encode(), digest_size=12)
    _feed(digest, versions)
    return digest.hexdigest()


def _feed(digest: hashlib.blake2b, versions: Iterable[str | None]) -> None:
    digest.update("".join([f"{version or '-'}\n" for version in versions]).encode())


def _identity(array: ArrayNode, selection: Selection, field: Field | None, dtype: np.dtype[Any] | None) -> str:
    axes = ",".join(_axis_text(axis) for axis in selection.axes)
    name = "" if field is None else field.name
    if field is not None and field.part is not None:
        name += f"[{','.join(_axis_text(axis) for axis in field.part.axes)}]"
    return f"{array.metadata_version}|{axes}|{name}|{'' if dtype is None else dtype.str}\n"


def _axis_text(axis: IndexAxis | SliceAxis | ListAxis) -> str:
    if isinstance(axis, IndexAxis):
        return str(axis.index)
    if isinstance(axis, SliceAxis):
        return f"{axis.start}:{axis.step}:{axis.count}"
    return hashlib.blake2b(axis.indices.tobytes(), digest_size=12).hexdigest()
