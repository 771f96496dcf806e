"""Heads: the newest rows of the arrays of a stream, as readers see them before they are in chunks.

Those of level 0 come from a tail; those of each other level are made of the level above, as it reads.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from functools import partial
from typing import Any, Final, Protocol

import numpy as np

from hyperslab.arrays.catalog import Catalog
from hyperslab.arrays.extent import LARGEST, stream_mark
from hyperslab.arrays.nodes import ArrayNode, MountedStore
from hyperslab.arrays.plan import make_plan
from hyperslab.arrays.read import Reader
from hyperslab.cache import VersionedCache
from hyperslab.engine.selection import normalise
from hyperslab.errors import BrokenData, ChangedWhileRead, NodeNotFound, WrongKind
from hyperslab.streams.layout import Box, Level, StreamArray
from hyperslab.streams.objects import HEAD, ObjectTail
from hyperslab.streams.pyramid import reduce
from hyperslab.streams.record import Records, is_id, notes_prefix, tail_prefix
from hyperslab.streams.tail import Tail, Tails

NDArray = np.ndarray[Any, np.dtype[Any]]

_MOST_KEPT: Final = 32 << 20


@dataclass(frozen=True, slots=True)
class Mark:
    """What the document of an array says of the stream that writes to it: see `record`."""

    id: str
    up: int
    array: int
    level: int
    rows: int

    @classmethod
    def of(cls, array: ArrayNode) -> Mark | None:
        """None where there is none; the document is untrusted."""
        found = stream_mark(array.metadata) or {}
        stream, *numbers = [found.get(member.name) for member in fields(cls)]
        if not is_id(stream) or not all(type(number) is int and number >= 0 for number in numbers):
            return None
        return cls(stream, *numbers)  # type: ignore[arg-type]

    def prefix(self, array: ArrayNode) -> str:
        """The prefix of the stream's group."""
        names = array.prefix.split("/")[:-1]
        return "".join(f"{name}/" for name in names[: max(0, len(names) - self.up)])


class Rows(Protocol):
    """Bytes of an array in the order of arrival."""

    def read(self, start: int, count: int) -> NDArray:
        """So many bytes from ``start`` on, which are not to be changed."""


@dataclass(frozen=True, slots=True)
class MemoryRows:
    """Rows whose bytes from ``begin`` on are in memory, and those before it elsewhere."""

    before: Rows
    begin: int
    data: NDArray

    def read(self, start: int, count: int) -> NDArray:
        inside = start - self.begin
        if inside >= 0:
            return self.data[inside : inside + count]
        found = self.before.read(start, min(count, -inside))
        return found if len(found) == count else np.concatenate([found, self.data[: count + inside]])


@dataclass(frozen=True, slots=True)
class TailRows:
    """Rows in the tails of consecutive groups of ``nbytes`` each; in an object store all are one group."""

    tails: Mapping[int, Tail | ObjectTail]
    nbytes: int

    @property
    def begin(self) -> int:
        return self.tails[min(self.tails)].begin

    @property
    def end(self) -> int:
        return self.tails[max(self.tails)].end

    @property
    def may_lag(self) -> bool:
        """Whether there may have been others behind them, which have moved to chunks while these were looked up: a
        group of rows that is not whole moves nowhere."""
        return not self.tails or self.end % self.nbytes == 0 < self.end

    def missing(self, frame_nbytes: int) -> list[tuple[int, int, str]]:
        """The frames ``[start, stop)`` that will not come, and why."""
        return [each for tail in self.tails.values() for each in tail.missing(frame_nbytes)]

    def read(self, start: int, count: int) -> NDArray:
        out, done = np.empty(count, np.uint8), 0
        while done < count:
            group = (start + done) // self.nbytes
            part = min(count - done, (group + 1) * self.nbytes - start - done)
            if group not in self.tails:
                raise ChangedWhileRead("what was read has moved to chunks meanwhile")
            self.tails[group].read_into(start + done, out[done : done + part])
            done += part
        return out


class KeptRows:
    """Rows of an array of which those read last are kept: chunks side by side hold parts of the same lines."""

    def __init__(self, array: StreamArray, rows: Rows) -> None:
        self._rows = rows
        self._kept = VersionedCache[NDArray](kept_bytes(array))

    def read(self, start: int, count: int) -> NDArray:
        def load() -> tuple[NDArray, str, int]:
            return self._rows.read(start, count), "", count

        return self._kept.load((start, count), "", load).value


def kept_bytes(array: StreamArray) -> int:
    """Bytes of the lines that chunks side by side share; 0 where there are none, or too many to be kept."""
    chunks, width = array.levels[0].chunks, array.frame_shape[1]
    nbytes = math.prod(chunks[:-1]) * width * array.dtype.itemsize
    return nbytes if chunks[-1] < width and nbytes <= _MOST_KEPT else 0


@dataclass(frozen=True, slots=True)
class FirstHead:
    """The head of level 0, from the item ``start`` on."""

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
            for axis, at in enumerate(index):
                frame = frame * inner[axis] + outer[axis].start + at
            start = frame * array.frame_nbytes + lines.start * width * itemsize
            found = self.rows.read(start, height * width * itemsize).view(array.dtype)
            plane = found.reshape(height, width)[:, columns]
            if plane.size == into.size and not is_given:  # no copy of what is in memory
                return level.stored(plane.reshape(shape))
            into[index] = plane
        return level.stored(into)


@dataclass(frozen=True, slots=True)
class LevelHead:
    """The head of a level below level 0: ``above`` gives the array of the level above as it is by then."""

    level: Level
    method: str
    above: Callable[[], ArrayNode]
    reader: Reader
    start: int

    @property
    def axis(self) -> int:
        return self.level.append_axis

    def read(self, box: Box, out: NDArray | None = None) -> NDArray:
        above, level = self.above(), self.level
        halved = [level.order.index(axis) for axis in level.halved]
        wanted = [
            slice(2 * s.start, min(2 * s.stop, size)) if axis in halved else s
            for axis, (s, size) in enumerate(zip(box, above.metadata.shape, strict=True))
        ]
        if isinstance(above.head, FirstHead) and wanted[above.head.axis].start >= above.head.start:
            values = above.head.read(tuple(wanted))
        else:
            values = self.reader.read(make_plan(above, normalise(wanted, above.metadata.shape)))[0]
        found = reduce(values, self.method, halved)
        if out is not None:
            out[...] = found
        return found


class Heads:
    """Adds their heads to the arrays of streams, for a `Catalog`."""

    def __init__(self, catalog: Catalog, reader: Reader, records: Records, tails: Tails) -> None:
        self._catalog = catalog
        self._reader = reader
        self._records = records
        self._tails = tails

    def __call__(self, node: ArrayNode) -> ArrayNode:
        """The array with all rows that have come; as it is where its stream is gone, or somebody else has changed its
        shape."""
        mark = Mark.of(node)
        plan = None if mark is None else self._records.plan(node.mount, mark.prefix(node), mark.id)
        if mark is None or plan is None:
            return node
        array = plan.arrays[mark.array] if mark.array < len(plan.arrays) else None
        if array is None or mark.level >= len(array.levels):
            return node
        level = array.levels[mark.level]
        if node.metadata.shape != level.stored_shape(mark.rows):
            return node
        if mark.level == 0:
            return self._first(node, mark, array)
        try:
            first, newest = array.levels[0], self._catalog.open_array(array.levels[0].path)
        except (NodeNotFound, WrongKind, BrokenData):
            return node
        rows = level.rows(newest.metadata.shape[first.append_axis] // first.row_length, final=False)
        above = partial(self._catalog.open_array, array.levels[mark.level - 1].path)
        head = LevelHead(level, array.method or "", above, self._reader, mark.rows * level.row_length)
        return self._grown(node, level, max(rows, mark.rows), head, newest.version, newest.documents)

    def open(  # noqa: PLR0917
        self, mount: MountedStore, prefix: str, stream: str, number: int, array: StreamArray, version: str | None = None
    ) -> ObjectTail | None:
        """The tail of an array in an object store, of the stream whose group has the prefix; see `ObjectTails.open`."""
        kept, segments = notes_prefix(prefix, stream, number), tail_prefix(prefix, stream, number)
        return self._tails.objects.open(mount.store, kept, segments, array.fill, version)

    def rows(  # noqa: PLR0917
        self, mount: MountedStore, prefix: str, stream: str, number: int, array: StreamArray, rows: int
    ) -> tuple[TailRows, dict[str, str | None]]:
        """What the tails of an array hold from ``rows`` on, of the stream whose group has the prefix, and their
        versions by key; with that of the one to come."""
        tails, versions = dict[int, Tail | ObjectTail](), dict[str, str | None]()
        if mount.is_remote:
            key = notes_prefix(prefix, stream, number) + HEAD
            versions[key] = version = mount.versions.look_up(key, [key])[0]
            found = None if version is None else self.open(mount, prefix, stream, number, array, version)
            return TailRows({} if found is None else {0: found}, LARGEST), versions
        level, folder = array.levels[0], tail_prefix(prefix, stream, number)
        nbytes = level.object_rows * level.row_nbytes
        group = rows // level.object_rows
        while True:
            key = f"{folder}{group}"
            versions[key] = mount.versions.look_up(folder, [key])[0]
            tail = None
            if versions[key] is not None:
                tail = self._tails.open(mount.store, key, group * nbytes, array.fill)
            if tail is None:
                return TailRows(tails, nbytes), versions
            tails[group] = tail
            if tail.end < (group + 1) * nbytes:
                return TailRows(tails, nbytes), versions
            group += 1

    def _first(self, node: ArrayNode, mark: Mark, array: StreamArray) -> ArrayNode:
        level = array.levels[0]
        source, versions = self.rows(node.mount, mark.prefix(node), mark.id, mark.array, array, mark.rows)
        if source.may_lag or source.begin > mark.rows * level.row_nbytes:  # rows have moved to chunks since, perhaps
            now = self._catalog.open_node(node.path, fresh=True)
            if isinstance(now, ArrayNode) and now.version != node.version:
                return self(now)
        end = source.end if source.tails else mark.rows * level.row_nbytes
        rows = max(mark.rows, end // level.row_nbytes)
        head = FirstHead(array, source, mark.rows * level.row_length)
        return self._grown(node, level, rows, head, f"{end}", versions)

    def _grown(  # noqa: PLR0917
        self,
        node: ArrayNode,
        level: Level,
        rows: int,
        head: FirstHead | LevelHead,
        version: str,
        documents: Any,
    ) -> ArrayNode:
        shape = level.stored_shape(rows)
        metadata = node.metadata if shape == node.metadata.shape else node.metadata.with_shape(shape)
        return replace(
            node,
            metadata=metadata,
            version=f"{node.version}@{version}",
            metadata_version=f"{node.metadata_version}@{version}",
            documents={**node.documents, **documents},
            head=head,
        )
