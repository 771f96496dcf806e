"""Heads: the newest rows of the arrays of a stream, as readers see them before they are in chunks.

The head of level 0 is read from a tail, that of each coarser level from the level above.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Final, Protocol

import numpy as np
from pydantic import TypeAdapter

from hyperslab.arrays.catalog import Catalog
from hyperslab.arrays.extent import stream_mark
from hyperslab.arrays.nodes import ArrayNode
from hyperslab.arrays.plan import make_plan
from hyperslab.arrays.read import Reader
from hyperslab.cache import VersionedCache
from hyperslab.engine.selection import normalise
from hyperslab.errors import BrokenData, NodeNotFound, WrongKind
from hyperslab.streams.layout import Box, Level, StreamArray
from hyperslab.streams.pyramid import reduce
from hyperslab.streams.record import Records, Stream, StreamId
from hyperslab.streams.tail import Count, NDArray
from hyperslab.streams.tails import Tails

_MAX_CACHED: Final = 32 << 20


@dataclass(frozen=True, slots=True)
class StreamMark:
    """Mark of a stream in the document of an array that it writes to: the stream's id, how many names its group lies
    ``up`` from the array, the numbers of array and level, and the ``rows`` that are in chunks. If the array's shape
    differs from these rows, another writer has changed it."""

    id: StreamId
    up: Count
    array: Count
    level: Count
    rows: Count

    @classmethod
    def of(cls, array: ArrayNode) -> StreamMark | None:
        """The mark of an array, None without a valid one; the document is untrusted."""
        with suppress(ValueError):
            return _parse_mark(stream_mark(array.metadata))
        return None

    @classmethod
    def of_level(cls, stream: Stream, array: StreamArray, level: int, rows: int = 0) -> StreamMark:
        """The mark of a level of which ``rows`` are in chunks."""
        up = array.levels[level].path.count("/") - stream.prefix.count("/")
        return cls(stream.record.id, up, array.number, level, rows)

    def home(self, array: ArrayNode) -> str:
        """Prefix of the stream's group."""
        names = array.prefix.split("/")[:-1]
        return "".join(f"{name}/" for name in names[: max(0, len(names) - self.up)])


_parse_mark: Final = TypeAdapter(StreamMark).validate_python


class Rows(Protocol):
    """Bytes of an array, in order of arrival."""

    def read(self, start: int, count: int) -> NDArray:
        """``count`` bytes from ``start`` on, read-only."""


@dataclass(frozen=True, slots=True)
class MemoryRows:
    """Rows of which the bytes from ``begin`` on are in memory, and the others in ``before``."""

    before: Rows
    begin: int
    data: NDArray

    def read(self, start: int, count: int) -> NDArray:
        inside = start - self.begin
        if inside >= 0:
            return self.data[inside : inside + count]
        rows_before = self.before.read(start, min(count, -inside))
        return rows_before if len(rows_before) == count else np.concatenate([rows_before, self.data[: count + inside]])


class CachedRows:
    """Cache of the latest read of other rows: neighbouring chunks hold parts of the same lines."""

    def __init__(self, array: StreamArray, rows: Rows) -> None:
        self._rows = rows
        self._cache = VersionedCache[NDArray](cached_bytes(array))

    def read(self, start: int, count: int) -> NDArray:
        def load() -> tuple[NDArray, str, int]:
            return self._rows.read(start, count), "", count

        return self._cache.load((start, count), "", load).value


def cached_bytes(array: StreamArray) -> int:
    """Bytes of the lines that neighbouring chunks share; 0 if there are none, or too many to cache."""
    chunks, width = array.levels[0].chunks, array.frame_shape[1]
    nbytes = math.prod(chunks[:-1]) * width * array.dtype.itemsize
    return nbytes if chunks[-1] < width and nbytes <= _MAX_CACHED else 0


@dataclass(frozen=True, slots=True)
class FirstHead:
    """Head of level 0: the items from ``start`` on along the append axis."""

    array: StreamArray
    rows: Rows
    start: int

    @property
    def axis(self) -> int:
        return self.array.levels[0].append_axis

    def read(self, box: Box, out: NDArray | None = None) -> NDArray:
        array, level = self.array, self.array.levels[0]
        arriving = [box[level.order.index(axis)] for axis in range(len(box))]
        *outer, lines, columns = arriving
        width, itemsize = array.frame_shape[1], array.dtype.itemsize
        is_given, inverse = out is not None, np.argsort(level.order)
        shape = [s.stop - s.start for s in arriving]
        into = np.empty(shape, array.dtype) if out is None else out.transpose(inverse)
        height = lines.stop - lines.start
        inner = (0, *level.inner[:-2]) if outer else ()
        for index in np.ndindex(*shape[:-2]):
            frame = 0
            for axis, position in enumerate(index):
                frame = frame * inner[axis] + outer[axis].start + position
            start = frame * array.frame_nbytes + lines.start * width * itemsize
            data = self.rows.read(start, height * width * itemsize).view(array.dtype)
            plane = data.reshape(height, width)[:, columns]
            if plane.size == into.size and not is_given:  # a view, not a copy
                return plane.reshape(shape).transpose(level.order)
            into[index] = plane
        return into.transpose(level.order)


@dataclass(frozen=True, slots=True)
class LevelHead:
    """Head of a coarser level, reduced from the level ``above``: its node, or a function that opens it."""

    level: Level
    method: str
    above: ArrayNode | Callable[[], ArrayNode]
    reader: Reader
    start: int

    @property
    def axis(self) -> int:
        return self.level.append_axis

    def read(self, box: Box, out: NDArray | None = None) -> NDArray:
        above, level = self.above if isinstance(self.above, ArrayNode) else self.above(), self.level
        halved = [level.order.index(axis) for axis in level.halved]
        wanted = [
            slice(2 * s.start, min(2 * s.stop, size)) if axis in halved else s
            for axis, (s, size) in enumerate(zip(box, above.metadata.shape, strict=True))
        ]
        if isinstance(above.head, FirstHead) and wanted[above.head.axis].start >= above.head.start:
            values = above.head.read(tuple(wanted))
        else:
            values = self.reader.read(make_plan(above, normalise(wanted, above.metadata.shape)))[0]
        reduced = reduce(values, self.method, halved)
        if out is not None:
            out[...] = reduced
        return reduced


@dataclass(frozen=True, slots=True)
class Heads:
    """Adds their heads to the arrays of streams, for a `Catalog`."""

    catalog: Catalog
    reader: Reader
    records: Records
    tails: Tails

    def __call__(self, node: ArrayNode) -> ArrayNode:
        """The array with all rows that have arrived; unchanged if it has no live stream, or another writer has changed
        its shape."""
        mark = StreamMark.of(node)
        plan = None if mark is None else self.records.plan(node.mount, mark.home(node), mark.id)
        if mark is None or plan is None or mark.array >= len(plan.arrays):
            return node
        array = plan.arrays[mark.array]
        if mark.level >= len(array.levels):
            return node
        level = array.levels[mark.level]
        if node.metadata.shape != level.stored_shape(mark.rows):
            return node
        start = mark.rows * level.row_length
        head: FirstHead | LevelHead
        if mark.level == 0:
            tail, documents = self.tails.open(node.mount, array, mark.rows, fresh=False)
            if tail.may_lag or tail.begin > mark.rows * level.row_nbytes:  # rows may have moved to chunks since
                now = self.catalog.open_node(node.path, fresh=True)
                if isinstance(now, ArrayNode) and now.version != node.version:
                    return self(now)
            end = max(tail.end, mark.rows * level.row_nbytes)
            rows, version = end // level.row_nbytes, f"{end}"
            head = FirstHead(array, tail, start)
        else:
            try:
                first, newest = array.levels[0], self.catalog.open_array(array.levels[0].path)
            except (NodeNotFound, WrongKind, BrokenData):
                return node
            arrived = newest.metadata.shape[first.append_axis] // first.row_length
            rows, version = max(mark.rows, level.rows(arrived, final=False)), newest.version
            documents = dict(newest.documents)
            above = partial(self.catalog.open_array, array.levels[mark.level - 1].path)
            head = LevelHead(level, array.method or "", above, self.reader, start)
        shape = level.stored_shape(rows)
        return replace(
            node,
            metadata=node.metadata if shape == node.metadata.shape else node.metadata.with_shape(shape),
            version=f"{node.version}@{version}",
            metadata_version=f"{node.metadata_version}@{version}",
            documents={**node.documents, **documents},
            head=head,
        )
