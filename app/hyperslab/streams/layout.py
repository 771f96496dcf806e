"""Layout of a stream: the nodes that it makes, and where each frame lies in them.

Axes are in order of arrival, the append dimension first and y and x last, but where a name says *stored*: a block of
whole rows, filled with frames as they come, becomes a part of the stored array by one transpose.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from hyperslab.engine import creation, v3_creation
from hyperslab.engine.fill_value import parse_fill_value, zero_item
from hyperslab.errors import BadDefinition
from hyperslab.storage.keys import join, normalise_path, prefixes
from hyperslab.streams import ome
from hyperslab.streams.settings import all_arrays, dtype_of, stored_order
from hyperslab.wire.streams import ArraySettings, StreamSettings

Box = tuple[slice, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Level:
    """One level of an array: a stored array of its own.

    ``inner``: the sizes of all axes but the first. ``row_length``: how many items along the first axis a row is, 1, or
    all lines of the frame where there are two dimensions. ``halved``: the axes that this level halves of the one above;
    ``halvings``: how often each axis is, all levels together. ``chunks`` and ``shards`` (None: plain chunks) are in
    items. ``order``: which axis each stored axis is. ``definition``: the body of the request that
    creates it, without any rows.
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
        """How many rows this level has when level 0 has ``rows``; ``final``: no more will come."""
        halvings = 0 if len(self.order) == 2 else self.halvings[0]
        return -(-rows >> halvings) if final else rows >> halvings

    def block_shape(self, rows: int) -> tuple[int, ...]:
        """The shape of ``rows`` rows of this level, in order of arrival."""
        return (rows * self.row_length, *self.inner)

    def stored_shape(self, rows: int) -> tuple[int, ...]:
        """The shape of the stored array when this level has ``rows`` rows."""
        return self.as_stored(self.block_shape(rows))

    def as_stored(self, sizes: Sequence[Any]) -> tuple[Any, ...]:
        """What is said of each axis, in the order in which they are stored."""
        return tuple([sizes[axis] for axis in self.order])

    def stored(self, block: np.ndarray) -> np.ndarray:
        """A view of a block of rows with its axes as they are stored."""
        return block.transpose(self.order)

    def stored_box(self, start: int, stop: int) -> Box:
        """Where the rows ``[start, stop)`` of this level lie in the stored array."""
        whole = [slice(0, size) for size in self.inner]
        return self.as_stored([slice(start * self.row_length, stop * self.row_length), *whole])

    @property
    def append_axis(self) -> int:
        """The stored axis along which the array grows."""
        return self.order.index(0)

    @property
    def row_nbytes(self) -> int:
        return math.prod(self.block_shape(1)) * self.dtype.itemsize

    @property
    def chunk_rows(self) -> int:
        """Rows of this level that chunks hold; one where a single frame is all."""
        return 1 if len(self.order) == 2 else self.chunks[0]

    @property
    def object_rows(self) -> int:
        """Rows of this level that stored objects hold, shards or else chunks."""
        return self.chunk_rows if self.shards is None or len(self.order) == 2 else self.shards[0]


@dataclass(frozen=True, slots=True, eq=False)
class StreamArray:
    """One array of a stream, with its levels. ``path`` is that of the image's group, or of the array itself if it has
    no levels of its own; ``frames`` is how many it takes, None for no limit; ``fill`` is one item."""

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
    def frame_nbytes(self) -> int:
        return math.prod(self.frame_shape) * self.dtype.itemsize

    def stored_box(self, frame: int) -> Box:
        """Where a frame, counted as they arrive, lies in the stored array of level 0."""
        level = self.levels[0]
        row, position = divmod(frame, self.frames_per_row)
        inner = map(int, np.unravel_index(position, level.inner[:-2]))
        index = () if len(level.order) == 2 else (row, *inner)
        return level.as_stored([*[slice(i, i + 1) for i in index], *[slice(0, size) for size in self.frame_shape]])

    def plan(self) -> list[dict[str, Any]]:
        """What of each level is known beforehand: path, shape, chunks, shards, and counts of both, null where the
        array grows without limit (counts) or has no shards."""
        rows = None if self.frames is None else self.frames // self.frames_per_row
        return [_level_plan(level, rows) for level in self.levels]


@dataclass(frozen=True, slots=True, eq=False)
class Layout:
    """All nodes of a stream at ``path``.

    ``groups``: path and attributes of every group, those above first. They are made without attributes, then the
    arrays, then the attributes are merged into the groups, those below first: so no image is said to have levels that
    are not there. ``arrays`` by key.
    """

    path: str
    groups: Mapping[str, Mapping[str, Any]]
    arrays: Mapping[str, StreamArray]

    @classmethod
    def of(cls, settings: StreamSettings, path: str) -> Layout:
        """The layout of a stream at a path; raises `BadDefinition` for arrays that cannot be made, and `BadPath`."""
        version, arrays = settings.zarr_format, {}
        groups: dict[str, Mapping[str, Any]] = {}
        checked: set[str] = set()  # the fields of a plate are mostly alike
        for member, key, array in all_arrays(settings):
            made = arrays[key] = _array(version, member, normalise_path(join(path, key)), key, array)
            definition = made.levels[0].definition
            if repr(definition) not in checked:
                _check(member, definition)
                checked.add(repr(definition))
            if made.levels[0].path != made.path:
                halvings = [level.halvings for level in made.levels]
                document = ome.image(array, made.path.rpartition("/")[2], halvings, version)
                groups[made.path] = {**document, **array.attributes}
        for plate in settings.plates:
            root = join(path, plate.key)
            groups[root] = ome.plate(plate, root.rpartition("/")[2], version)
            groups |= {join(root, well.row, well.column): ome.well(well, version) for well in plate.wells}
        nodes = [*groups, *[level.path for made in arrays.values() for level in made.levels]]
        above = {prefix.rstrip("/") for node in nodes for prefix in prefixes(node)[:-1]}
        plain: dict[str, Mapping[str, Any]] = {name: {} for name in above if len(name) >= len(path)}
        return cls(path, dict(sorted({**plain, **groups}.items())), arrays)


def _array(version: int, member: str, path: str, key: str, array: ArraySettings) -> StreamArray:
    dimensions, dtype = array.dimensions, dtype_of(array)
    sizes = [dimension.size for dimension in dimensions]
    frame = (sizes[-2] or 0, sizes[-1] or 0)
    per_row = math.prod(size or 0 for size in sizes[1:-2])
    is_image = array.pyramid is not None or not member.startswith("arrays.")
    steps = list(_halvings(array)) if array.pyramid is not None else [(0,) * len(sizes)]
    levels = [
        _level(version, join(path, str(number)) if is_image else path, array, halvings, above, image=is_image)
        for number, (halvings, above) in enumerate(zip(steps, steps[:1] + steps, strict=False))
    ]
    fill = parse_fill_value(array.fill_value, dtype)
    return StreamArray(
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


def _halvings(array: ArraySettings) -> Iterator[tuple[int, ...]]:
    """How often each axis is halved, for each level: y and x always are, and z, the last of the stored axes but these,
    if it is spatial and longer than 1. There is a further level while the smaller of y and x is longer than its chunk.
    """
    dimensions = array.dimensions
    y, x = len(dimensions) - 2, len(dimensions) - 1
    others = [axis for axis in stored_order(array) if axis < y]
    z = others[-1:] if others and dimensions[others[-1]].type == "space" else []
    most = None if array.pyramid is None else array.pyramid.max_levels
    halvings = [0] * len(dimensions)
    for number in itertools.count():
        yield tuple(halvings)
        sizes = [None if d.size is None else -(-d.size >> h) for d, h in zip(dimensions, halvings, strict=True)]
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
    definition = {
        "zarr_format": version,
        "shape": [0 if axis == 0 else sizes[axis] for axis in order],
        "chunks": [chunks[axis] for axis in order],
        "dtype": array.dtype,
        "dimension_names": [dimensions[axis].name for axis in order],
        "attributes": {} if image else {**ome.plain(array), **array.attributes},
    }
    if shards is not None:
        definition["shards"] = [shards[axis] for axis in order]
    if version == 2:
        definition["dimension_separator"] = "/"
    if array.codecs is not None:
        definition["codecs"] = list(array.codecs)
    else:
        definition["compressor"] = array.compressor
    if array.filters is not None:
        definition["filters"] = list(array.filters)
    if array.fill_value is not None:
        definition["fill_value"] = array.fill_value
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


def _level_plan(level: Level, rows: int | None) -> dict[str, Any]:
    shape: list[int | None] = list(level.stored_shape(level.rows(rows or 0, final=True)))
    chunks, shards = level.as_stored(level.chunks), None if level.shards is None else level.as_stored(level.shards)
    if rows is None:
        shape[level.append_axis] = None

    def count(sizes: Sequence[int] | None) -> int | None:
        if sizes is None or rows is None:
            return None
        return math.prod([-(-(extent or 0) // size) for extent, size in zip(shape, sizes, strict=True)])

    return {
        "path": level.path,
        "shape": shape,
        "chunks": list(chunks),
        "shards": None if shards is None else list(shards),
        "chunk_count": count(chunks),
        "shard_count": count(shards),
    }


def _check(member: str, definition: Mapping[str, Any]) -> None:
    """Raise `BadDefinition`, with the path of the member in the settings, for an array that cannot be made."""
    members = {name: value for name, value in definition.items() if name not in ("dimension_names", "attributes")}
    try:
        if definition["zarr_format"] == 2:
            creation.new_document(members)
        else:
            v3_creation.new_document(members, {})
    except BadDefinition as error:
        named = "dimensions" if error.member in ("shape", "chunks", "shards") else error.member
        where = re.sub(r"\[(\d+)\]", r".\1", named)  # filters[0]
        raise BadDefinition(f"{member}.{where}", error.reason) from None
