"""Layout of a stream: the nodes that it creates, and where each frame lies in them.

Axes are in order of arrival (append dimension first, y and x last) unless a name says *stored*. A row is one index of
the append dimension; one transpose turns a block of whole rows into a part of the stored array.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from hyperslab.engine.creation import new_document
from hyperslab.engine.fill_value import parse_fill_value, zero_item
from hyperslab.errors import BadDefinition
from hyperslab.storage.keys import STREAM, as_prefix, join, normalise_path, prefixes
from hyperslab.streams import ome
from hyperslab.streams.settings import ArraySettings, Image, StreamSettings, all_arrays, dtype_of, stored_order

Box = tuple[slice, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Level:
    """One level of an array, stored as an array of its own.

    Attributes:
        inner: Sizes of all axes but the first.
        row_length: Items of a row along the first axis: 1, or with two dimensions, which are one frame, all its lines.
        halved: The axes that are half as long as in the level above.
        halvings: How often each axis is halved in total.
        chunks: In items.
        shards: In items; None for plain chunks.
        order: Which axis each stored axis is.
        definition: The body of the request that creates the level, without any rows.
    """

    path: str
    dtype: np.dtype[Any]
    inner: tuple[int, ...]
    row_length: int
    halved: tuple[int, ...]
    halvings: tuple[int, ...]
    chunks: tuple[int, ...]
    shards: tuple[int, ...] | None
    order: tuple[int, ...]
    definition: Mapping[str, Any]

    def rows(self, rows: int, *, final: bool) -> int:
        """Rows of this level when level 0 has ``rows``; ``final``: the stream has ended."""
        halvings = 0 if len(self.order) == 2 else self.halvings[0]
        return -(-rows >> halvings) if final else rows >> halvings

    def stored_shape(self, rows: int) -> tuple[int, ...]:
        """The shape of the stored array when this level has ``rows`` rows."""
        return self.as_stored((rows * self.row_length, *self.inner))

    def as_stored(self, sizes: Sequence[Any]) -> tuple[Any, ...]:
        """Values by axis, permuted to the stored order."""
        return tuple([sizes[axis] for axis in self.order])

    def stored_box(self, start: int, stop: int) -> Box:
        """The box of the rows ``[start, stop)`` in the stored array."""
        whole = [slice(0, size) for size in self.inner]
        return self.as_stored([slice(start * self.row_length, stop * self.row_length), *whole])

    @property
    def append_axis(self) -> int:
        """The stored axis along which the array grows."""
        return self.order.index(0)

    @property
    def row_nbytes(self) -> int:
        return math.prod(self.stored_shape(1)) * self.dtype.itemsize

    @property
    def object_rows(self) -> int:
        """Rows in a stored object, which is a shard or else a chunk; 1 if the array is a single frame."""
        return 1 if len(self.order) == 2 else (self.shards or self.chunks)[0]


@dataclass(frozen=True, slots=True, eq=False)
class StreamArray:
    """One array of a stream, with its levels and the keys of its tail.

    Attributes:
        home: Prefix of the stream's group.
        stream: Id of the stream.
        number: Its place among the arrays of the stream.
        path: Path of the image's group, or of the array itself if it has no levels of its own.
        fill: One item.
        frames: How many it takes, None for no limit.
        method: How coarser levels are reduced; None without any.
    """

    home: str
    stream: str
    number: int
    key: str
    path: str
    dtype: np.dtype[Any]
    fill: np.ndarray
    frame_shape: tuple[int, int]
    frames_per_row: int
    frames: int | None
    method: str | None
    levels: tuple[Level, ...]
    warnings: tuple[str, ...]

    @property
    def tails(self) -> str:
        """Prefix of its tail: logs by group of rows in a folder, segments in an object store."""
        return f"{self.home}{STREAM}/{self.stream}/{self.number}/"

    @property
    def notes(self) -> str:
        """Prefix of the metadata of its frames, which outlives the tail."""
        return f"{self.home}{STREAM}/{self.stream}.frames/{self.number}/"

    @property
    def head(self) -> str:
        """Key of the head of its tail in an object store."""
        return f"{self.notes}head"

    @property
    def group_rows(self) -> int:
        """Rows in a group, which fills one row of stored objects of level 0."""
        return self.levels[0].object_rows

    @property
    def row_nbytes(self) -> int:
        return self.levels[0].row_nbytes

    @property
    def group_nbytes(self) -> int:
        return self.group_rows * self.row_nbytes

    @property
    def frame_nbytes(self) -> int:
        return math.prod(self.frame_shape) * self.dtype.itemsize

    def fill_bytes(self, start: int, count: int) -> np.ndarray:
        """``count`` bytes of fill values, from byte ``start`` of the array on."""
        item = np.frombuffer(self.fill.tobytes(), np.uint8)
        return np.resize(np.roll(item, -(start % len(item))), count)

    def stored_box(self, frame: int) -> Box:
        """The box of a frame, by order of arrival, in the stored array of level 0."""
        level = self.levels[0]
        row, position = divmod(frame, self.frames_per_row)
        inner = map(int, np.unravel_index(position, level.inner[:-2]))
        index = () if len(level.order) == 2 else (row, *inner)
        return level.as_stored([*[slice(i, i + 1) for i in index], *[slice(0, size) for size in self.frame_shape]])

    def description(self) -> dict[str, Any]:
        """The immutable part of the array's state, as JSON."""
        return {
            "path": self.path,
            "levels": [level.path[len(self.path) + 1 :] for level in self.levels if level.path != self.path],
            "frame": {
                "shape": list(self.frame_shape),
                "dtype": self.levels[0].definition["dtype"],
                "nbytes": self.frame_nbytes,
            },
        }

    def plan(self) -> list[dict[str, Any]]:
        """Path, shape, chunks, shards and counts of both for each level, as JSON of a dry run. Counts are None for an
        array without limit."""
        rows = None if self.frames is None else self.frames // self.frames_per_row

        def count(shape: Sequence[int], sizes: Sequence[int] | None) -> int | None:
            if sizes is None or rows is None:
                return None
            return math.prod([-(-extent // size) for extent, size in zip(shape, sizes, strict=True)])

        documents = list[dict[str, Any]]()
        for level in self.levels:
            shape = level.stored_shape(level.rows(rows or 0, final=True))
            chunks = level.as_stored(level.chunks)
            shards = None if level.shards is None else level.as_stored(level.shards)
            documents.append(
                {
                    "path": level.path,
                    "shape": [
                        None if rows is None and axis == level.append_axis else size for axis, size in enumerate(shape)
                    ],
                    "chunks": list(chunks),
                    "shards": None if shards is None else list(shards),
                    "chunk_count": count(shape, chunks),
                    "shard_count": count(shape, shards),
                }
            )
        return documents


@dataclass(frozen=True, slots=True, eq=False)
class StreamPlan:
    """The immutable part of a stream: its settings, and the nodes that it creates.

    Attributes:
        groups: Attributes of every group by path, parents first. Groups are created without them, then the arrays, and
            then attributes are merged into the groups, children first: so no image claims levels that do not exist.
        arrays: In order of their numbers.
        by_key: The same by key.
    """

    settings: StreamSettings
    path: str
    groups: Mapping[str, Mapping[str, Any]]
    arrays: tuple[StreamArray, ...]
    by_key: Mapping[str, StreamArray]

    @property
    def level_paths(self) -> list[str]:
        """Paths of all levels of all arrays."""
        return [level.path for array in self.arrays for level in array.levels]

    @classmethod
    def of(cls, settings: StreamSettings, path: str, stream: str = "") -> StreamPlan:
        """The plan of a stream of this id at a path. Raises `BadDefinition` for arrays that cannot be created, and
        `BadPath`."""
        version, arrays = settings.zarr_format, list[StreamArray]()
        groups: dict[str, Mapping[str, Any]] = {}
        checked: set[str] = set()
        for member, key, array in all_arrays(settings):
            made = _array(array, key, member, version, home=path, stream=stream, number=len(arrays))
            arrays.append(made)
            _check(member, made.levels[0].definition, checked)
            if made.levels[0].path != made.path:
                halvings = [level.halvings for level in made.levels]
                document = ome.image(array, made.path.rpartition("/")[2], halvings, version)
                groups[made.path] = {**document, **array.attributes}
        for plate in settings.plates:
            root = join(path, plate.key)
            groups[root] = ome.plate(plate, root.rpartition("/")[2], version)
            groups |= {join(root, well.row, well.column): ome.well(well, version) for well in plate.wells}
        nodes = [*groups, *[level.path for made in arrays for level in made.levels]]
        above = {prefix.rstrip("/") for node in nodes for prefix in prefixes(node)[:-1]}
        plain: dict[str, Mapping[str, Any]] = {name: {} for name in above if len(name) >= len(path)}
        groups = dict(sorted({**plain, **groups}.items()))
        return cls(settings, path, groups, tuple(arrays), {array.key: array for array in arrays})


def _array(
    array: ArraySettings, key: str, member: str, version: int, *, home: str, stream: str, number: int
) -> StreamArray:
    path = normalise_path(join(home, key))
    dimensions, dtype = array.dimensions, dtype_of(array)
    sizes = [dimension.size for dimension in dimensions]
    frame = (sizes[-2] or 0, sizes[-1] or 0)
    per_row = math.prod(size or 0 for size in sizes[1:-2])
    is_image = array.pyramid is not None or not member.startswith("arrays.")
    steps = list(halvings_of(array)) if array.pyramid is not None else [(0,) * len(sizes)]
    levels = [
        _level(version, join(path, str(step)) if is_image else path, array, halvings, above, image=is_image)
        for step, (halvings, above) in enumerate(zip(steps, steps[:1] + steps, strict=False))
    ]
    fill = parse_fill_value(array.fill_value, dtype)
    return StreamArray(
        home=as_prefix(home.partition("/")[2]),
        stream=stream,
        number=number,
        key=key,
        path=path,
        dtype=dtype.numpy,
        fill=zero_item(dtype) if fill is None else fill,
        frame_shape=frame,
        frames_per_row=per_row,
        frames=1 if len(sizes) == 2 else None if sizes[0] is None else sizes[0] * per_row,
        method=None if array.pyramid is None else array.pyramid.method,
        levels=tuple(levels),
        warnings=ome.warnings(array) if is_image else (),
    )


def halvings_of(array: Image) -> Iterator[tuple[int, ...]]:
    """How often each axis is halved, for each level: y, x, and z (the last other stored axis) if spatial and longer
    than 1. There is a further level while the smaller of y and x is longer than its chunk."""
    dimensions = array.dimensions
    y, x = len(dimensions) - 2, len(dimensions) - 1
    others = [axis for axis in stored_order(array) if axis < y]
    z = others[-1:] if others and dimensions[others[-1]].type == "space" else []
    most = None if array.pyramid is None else array.pyramid.max_levels
    halvings = [0] * len(dimensions)
    for number in itertools.count():
        yield tuple(halvings)
        whole = [dimension.size for dimension in dimensions]
        sizes = [None if n is None else -(-n >> h) for n, h in zip(whole, halvings, strict=True)]
        smaller = min(sizes[y] or 0, sizes[x] or 0)
        if number == most or smaller <= max(dimensions[axis].chunk for axis in (y, x) if sizes[axis] == smaller):
            return
        for axis in (*z, y, x):
            halvings[axis] += sizes[axis] != 1


def _level(
    version: int, path: str, array: ArraySettings, halvings: tuple[int, ...], above: tuple[int, ...], *, image: bool
) -> Level:
    dimensions, order = array.dimensions, stored_order(array)
    sizes = [-(-(d.size or 0) >> h) for d, h in zip(dimensions, halvings, strict=True)]
    chunks = [d.chunk for d in dimensions]
    shards = [d.chunk * d.shard for d in dimensions] if any(d.shard != 1 for d in dimensions) else None
    codecs = {"compressor": array.compressor} if array.codecs is None else {"codecs": list(array.codecs)}
    optional = {
        "shards": None if shards is None else [shards[axis] for axis in order],
        "dimension_separator": "/" if version == 2 else None,
        "filters": None if array.filters is None else list(array.filters),
        "fill_value": array.fill_value,
    }
    definition = {
        "zarr_format": version,
        "shape": [0 if axis == 0 else sizes[axis] for axis in order],
        "chunks": [chunks[axis] for axis in order],
        "dtype": array.dtype,
        "dimension_names": [dimensions[axis].name for axis in order],
        "attributes": {} if image else {**ome.plain(array), **array.attributes},
        **codecs,
        **{name: value for name, value in optional.items() if value is not None},
    }
    return Level(
        path=path,
        dtype=dtype_of(array).numpy,
        inner=tuple(sizes[1:]),
        row_length=sizes[0] if len(sizes) == 2 else 1,
        halved=tuple([axis for axis in range(len(sizes)) if halvings[axis] > above[axis]]),
        halvings=halvings,
        chunks=tuple(chunks),
        shards=None if shards is None else tuple(shards),
        order=order,
        definition=definition,
    )


def _check(member: str, definition: Mapping[str, Any], checked: set[str]) -> None:
    """Raise `BadDefinition`, with the path of the member in the settings, for an array that cannot be created, unless
    an equal one was ``checked``: the fields of a plate are mostly alike."""
    if repr(definition) in checked:
        return
    checked.add(repr(definition))
    members = {name: value for name, value in definition.items() if name not in ("dimension_names", "attributes")}
    try:
        new_document(members)
    except BadDefinition as error:
        named = "dimensions" if error.member in ("shape", "chunks", "shards") else error.member
        where = re.sub(r"\[(\d+)\]", r".\1", named)  # filters[0]
        raise BadDefinition(f"{member}.{where}", error.reason) from None
