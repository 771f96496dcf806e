"""Contents of a source: arrays and images by path, with their axes, and functions that read boxes of them."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Generic, Protocol, TypeVar

import numpy as np

from hyperslab.errors import HyperslabError

Box = tuple[slice, ...]
T = TypeVar("T")

KINDS: Final = {"t": "time", "c": "channel", "z": "space", "y": "space", "x": "space"}
"""Axes of an image in stored order, and their types. [OME-Zarr 0.5: multiscales metadata]"""


class CannotConvert(HyperslabError, title="Cannot be converted"):
    reason: str
    sentence = "{reason}"


class Undetermined(CannotConvert, title="An option is missing"):
    """Fact that the source does not state, and an option does: ``option`` is its name, ``example`` a value of it."""

    option: str
    example: str
    sentence = "{reason}: say --{option}, such as --{option} '{example}'"


class Values(Protocol):
    """Values of an array, read by boxes; to be pickled, and called by several threads."""

    def read(self, box: Box) -> np.ndarray:
        """The values of a box, in its shape. Raises `CannotConvert` and `OSError`."""


@contextmanager
def readable(path: str, kind: str, errors: tuple[type[Exception], ...]) -> Iterator[None]:
    """Raise `CannotConvert` for ``errors``, which libraries raise of a file of a ``kind`` that they cannot read."""
    try:
        yield
    except (CannotConvert, FileNotFoundError):
        raise
    except ImportError as error:
        raise CannotConvert(f"{path} cannot be read: {error}: pip install 'hyperslab[convert]'") from error
    except errors as error:
        raise CannotConvert(f"{path} cannot be read as {kind}: {error or type(error).__name__}") from error


@dataclass(frozen=True, slots=True)
class Axis:
    """Axis of an image: its name is of `KINDS`, ``scale`` the distance of items in ``unit``."""

    name: str
    unit: str | None = None
    scale: float = 1.0


@dataclass(frozen=True, slots=True)
class Channel:
    """Channel of an image: ``color`` is RRGGBB, ``window`` the displayed range."""

    label: str | None = None
    color: str | None = None
    window: tuple[float, float] | None = None


@dataclass(frozen=True, slots=True)
class Array:
    """Array of a source. ``reads``: the shape of boxes that are read at once. ``definition``: members of the new
    array's definition that the source states, besides shape, dtype and names of axes."""

    values: Values
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    reads: tuple[int, ...]
    dimension_names: tuple[str | None, ...] | None = None
    attributes: Mapping[str, Any] = field(default_factory=dict)
    definition: Mapping[str, Any] = field(default_factory=dict)

    @property
    def nbytes(self) -> int:
        """Bytes of all values; those of objects are not known, and count as references."""
        return int(np.prod(self.shape, dtype=object)) * self.dtype.itemsize


@dataclass(frozen=True, slots=True)
class Image:
    """Image of a source, which becomes a group with levels. ``axes`` are in the order of `KINDS`."""

    array: Array
    axes: tuple[Axis, ...]
    name: str
    channels: tuple[Channel, ...] = ()
    attributes: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Source:
    """A source: nodes by path (``""`` for the only one), and attributes of groups by path.

    ``identity``: JSON that changes when the source does, of ``files`` if there are any. ``notes``: what is not kept.
    ``zarr_format``: that of its own node, 0 of other formats.
    """

    what: str
    identity: Any
    nodes: Mapping[str, Array | Image]
    groups: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    zarr_format: int = 0
    files: tuple[Path, ...] = ()
    name: str = "array"


@dataclass(frozen=True, slots=True)
class ReorderedValues:
    """Values whose axes are those of ``values`` in another order; others, of length 1, are dropped."""

    values: Values
    order: tuple[int, ...]
    rank: int

    def read(self, box: Box) -> np.ndarray:
        inner = [slice(0, 1)] * self.rank
        for axis, part in zip(self.order, box, strict=True):
            inner[axis] = part
        block = self.values.read(tuple(inner))
        dropped = [axis for axis in range(self.rank) if axis not in self.order]
        return block.transpose((*self.order, *dropped)).reshape([part.stop - part.start for part in box])


@dataclass(frozen=True, slots=True)
class StackedValues:
    """Values of several arrays of one shape, one for each index of the leading axes in C order."""

    parts: tuple[Values, ...]
    leading: tuple[int, ...]

    def read(self, box: Box) -> np.ndarray:
        outer, inner = box[: len(self.leading)], box[len(self.leading) :]
        shape = [part.stop - part.start for part in outer]
        stacked: np.ndarray | None = None
        for cell in np.ndindex(*shape):
            index = [part.start + offset for part, offset in zip(outer, cell, strict=True)]
            values = self.parts[int(np.ravel_multi_index(index, self.leading))].read(inner)
            if stacked is None:
                stacked = np.empty((*shape, *values.shape), values.dtype)
            stacked[cell] = values
        assert stacked is not None
        return stacked


class OpenFiles(Generic[T]):
    """Files that stay open to be read, the last ``limit`` of them; one that was written again is opened again."""

    def __init__(self, open_file: Callable[[str], T], close: Callable[[T], object], limit: int = 64) -> None:
        self._open_file, self._close, self._limit = open_file, close, limit
        self._files: OrderedDict[tuple[str, int], T] = OrderedDict()
        self._lock = threading.Lock()
        CACHES.append(self)

    def get(self, path: str) -> T:
        """The open file of a path."""
        key = path, Path(path).stat().st_mtime_ns
        with self._lock:
            if key not in self._files:
                self._files[key] = self._open_file(path)
            self._files.move_to_end(key)
            held = self._files[key]
            while len(self._files) > self._limit:
                self._close(self._files.popitem(last=False)[1])
            return held

    def clear(self) -> None:
        """Close all files."""
        with self._lock:
            while self._files:
                self._close(self._files.popitem()[1])


CACHES: Final[list[OpenFiles[Any]]] = []


def close_files() -> None:
    """Close all files that were opened to be read."""
    for files in CACHES:
        files.clear()


def as_image(array: Array, letters: str, found: Mapping[str, Axis], **members: Any) -> Image:
    """The image of an array whose axes are ``letters``; those of length 1 are left out, but for y, x, and c with
    channels. ``found``: axes with units and scales. Raises `Undetermined` for letters that are no axes of an image."""
    if not 2 <= len(array.shape) <= len(KINDS):
        raise CannotConvert(f"an array of shape {list(array.shape)} is no image, which has two to five axes")
    if not letters:
        said = f"an array of shape {list(array.shape)} does not say what its axes are"
        raise Undetermined(said, "axes", "tczyx"[-len(array.shape) :])
    if len(letters) != len(array.shape) or len(set(letters)) != len(letters) or not set("yx") <= set(letters):
        said = f"the axes {letters!r} are not those of an image of shape {list(array.shape)}"
        raise Undetermined(said, "axes", "tczyx"[-len(array.shape) :])
    if unknown := set(letters) - KINDS.keys():
        raise Undetermined(f"axis {min(unknown)!r} is none of t, c, z, y and x", "axes", "tczyx"[-len(letters) :])
    kept = [
        name
        for name in KINDS
        if name in letters
        and (array.shape[letters.index(name)] != 1 or name in "yx" or (name == "c" and members.get("channels")))
    ]
    order = tuple([letters.index(name) for name in kept])
    values: Values = array.values
    if order != tuple(range(len(array.shape))):
        values = ReorderedValues(values, order, len(array.shape))
    stored = Array(
        values,
        tuple([array.shape[axis] for axis in order]),
        array.dtype,
        tuple([array.reads[axis] for axis in order]),
        tuple(kept),
        {},
        array.definition,
    )
    return Image(stored, tuple([found.get(name, Axis(name)) for name in kept]), **members)


def packed(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """A dtype in the machine's byte order; records without padding between their fields."""
    if dtype.names is None:
        return dtype.newbyteorder("=")
    return np.dtype([(name, packed(dtype[name])) for name in dtype.names])


def whole(shape: Sequence[int]) -> Box:
    """The box of a whole array."""
    return tuple([slice(0, size) for size in shape])
