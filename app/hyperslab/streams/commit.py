"""Commits: rows of an array move from its head to chunks, by the ordinary write path.

Chunks of all levels are written first, then shapes, level 0 first: from then on its rows count as stored, and a coarser
level that is behind is reduced from them. A commit that was cut off is written again by the next one.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any

from hyperslab.arrays.catalog import Catalog
from hyperslab.arrays.chunks import NDArray
from hyperslab.arrays.documents import publish_metadata
from hyperslab.arrays.extent import LARGEST, with_own
from hyperslab.arrays.lease import node_lease, node_lock, retried
from hyperslab.arrays.nodes import ArrayNode
from hyperslab.arrays.plan import make_plan
from hyperslab.arrays.read import Reader
from hyperslab.arrays.update import ChunkChange, ChunkWriter, Start
from hyperslab.engine.grid import Coords
from hyperslab.engine.indexing import ChunkProjection
from hyperslab.engine.metadata import ArrayMetadata
from hyperslab.engine.selection import normalise
from hyperslab.errors import ArrayFailed, HyperslabError, NodeNotFound, WriteConflict, WrongKind
from hyperslab.streams.heads import FirstHead, LevelHead, Rows, StreamMark
from hyperslab.streams.layout import Level, StreamArray
from hyperslab.streams.sessions import LARGE_SHARD


def own_items(level: Level, mark: StreamMark) -> dict[str, Any]:
    """Items of our own member of an array that a stream writes to."""
    beyond = [LARGEST if axis == level.append_axis else n for axis, n in enumerate(level.stored_shape(mark.rows))]
    return {"extent": beyond, "stream": asdict(mark)}


@dataclass(frozen=True, slots=True)
class Committer:
    """Moves rows to chunks. The caller sees to it that there is one commit of an array at a time."""

    catalog: Catalog
    reader: Reader

    def open(self, array: StreamArray, level: int) -> tuple[ArrayNode, StreamMark]:
        """The stored array of a level, and its mark. Of a cached one, only the version of its document is looked up.

        Raises `ArrayFailed` if another writer has changed it.
        """
        wanted = array.levels[level]
        node = self.catalog.remembered(wanted.path)
        try:
            version = node.documents.get(node.document_key) if isinstance(node, ArrayNode) else None
            if (
                not isinstance(node, ArrayNode)
                or version is None
                or node.mount.store.versions(node.prefix, [node.document_key]) != [version]
            ):
                node = self.catalog.open_array(wanted.path, fresh=True)
        except (NodeNotFound, WrongKind) as error:
            raise ArrayFailed(wanted.path, "it is gone, or another node is in its place") from error
        mark = StreamMark.of(node)
        if mark is None or mark.id != array.stream:
            raise ArrayFailed(wanted.path, "another writer has replaced its metadata")
        if node.metadata.shape != wanted.stored_shape(mark.rows):
            reason = f"another writer has changed its shape to {list(node.metadata.shape)}"
            raise ArrayFailed(wanted.path, f"{reason}: {mark.rows} rows were stored")
        return node, mark

    def commit(self, array: StreamArray, rows: int, source: Rows | None, *, whole: bool, final: bool = False) -> None:
        """Commit the rows of level 0 up to ``rows``, with ``whole`` only those that fill stored objects. ``source``:
        rows that are not in chunks, None if all are missing. ``final``: the stream ends here.

        Raises `ArrayFailed` and what `ChunkWriter.write_each` raises.
        """
        writers, grown = list[ChunkWriter](), list[tuple[ArrayNode, StreamMark]]()
        stored = rows  # of level 0
        try:
            with ExitStack() as locks:
                for level in array.levels:
                    mount, prefix = self.catalog.locate_writable(level.path)
                    locks.enter_context(node_lock(mount, prefix))
                for number, level in enumerate(array.levels):
                    if final and self.is_final(level):
                        continue
                    node, mark = self.open(array, number)
                    stored = mark.rows if number == 0 else stored
                    target = level.rows(rows, final=final)
                    target = max(mark.rows, target // level.object_rows * level.object_rows if whole else target)
                    after = replace(node, metadata=node.metadata.with_shape(level.stored_shape(target)))
                    start = mark.rows * level.row_length
                    if number == 0 and source is not None:
                        after = replace(after, head=FirstHead(array, source, start))
                    elif number:
                        above = grown[-1][0] if grown else self.catalog.open_array(array.levels[number - 1].path)
                        head = LevelHead(level, array.method or "", above, self.reader, start)
                        after = replace(after, head=head)
                    behind = number > 0 and mark.rows < level.rows(stored, final=final)
                    if target > mark.rows and (source is not None or behind):
                        self._write(after, array, mark, target, writers)
                    grown.append((after if number == 0 else replace(after, head=None), replace(mark, rows=target)))
                for _, mark in reversed(grown) if final else grown:  # level 0 is the last that ends
                    self.publish(array, mark, final=final)
        except HyperslabError:
            for writer in writers:
                with suppress(HyperslabError):
                    self._remove_orphans(writer, array)
            raise

    def publish(self, array: StreamArray, mark: StreamMark, *, new: bool = False, final: bool = False) -> None:
        """Store the shape and the mark of a level, or if ``final`` the shape alone, unless another replica has stored
        as many rows. ``new``: the level has no mark."""
        level = array.levels[mark.level]

        def attempt() -> None:
            if final and self.is_final(level):
                return
            if new:
                node = self.catalog.open_array(level.path, fresh=True)
                done = StreamMark.of(node) is not None
            else:
                node, stored = self.open(array, mark.level)
                done = stored.rows >= mark.rows and not final
            metadata: ArrayMetadata = node.metadata.with_shape(level.stored_shape(mark.rows))
            metadata = with_own(metadata, **({"extent": None, "stream": None} if final else own_items(level, mark)))
            if not done:
                publish_metadata(node, metadata)

        retried(level.path, attempt)

    def can_go_on(self, array: StreamArray) -> bool:
        """Whether an interrupted finish of an array can go on: no other writer has changed it."""
        left = [number for number, level in enumerate(array.levels) if not self.is_final(level)]
        with suppress(ArrayFailed):
            return bool([self.open(array, number) for number in left])
        return False

    def is_final(self, level: Level) -> bool:
        """Whether an interrupted finish has published the last shape of a level."""
        try:
            return StreamMark.of(self.catalog.open_array(level.path, fresh=True)) is None
        except (NodeNotFound, WrongKind):
            return False

    def _write(
        self, after: ArrayNode, array: StreamArray, mark: StreamMark, stop: int, writers: list[ChunkWriter]
    ) -> None:
        """Write the rows of a level from the mark's to ``stop``. Other replicas may be writing the same objects with as
        many rows or more: so each is put on top of its version from before the check that no rows were published, and
        rows of others in it are kept."""
        head, grid, level = after.head, after.metadata.grid, array.levels[mark.level]
        assert head is not None
        self.reader.check_chunk(after)
        selection = normalise(level.stored_box(mark.rows, stop), after.metadata.shape)
        plan, fences = make_plan(after, selection), after.mount.has_replicas
        versions = self.reader.look_up(plan, fresh=True).versions if fences else None
        if fences and self.open(array, mark.level)[1].rows != mark.rows:
            raise WriteConflict(level.path, "its rows were moved to chunks by another process")
        writer = ChunkWriter(self.reader, after, versions, fences=fences)
        writers.append(writer)

        def fill(bounds: Sequence[slice], chunk: NDArray) -> None:
            box = list(bounds)
            box[head.axis] = slice(max(bounds[head.axis].start, head.start), bounds[head.axis].stop)
            inside = tuple([slice(s.start - b.start, s.stop - b.start) for s, b in zip(box, bounds, strict=True)])
            head.read(tuple(box), chunk[inside])

        def write(coords: Coords, parts: Iterable[ChunkProjection]) -> None:
            changes = []
            others = versions is not None and versions[coords] is not None
            for part in parts:
                bounds = grid.bounds(part.coords)
                begun = others or bounds[head.axis].start < head.start  # readers see cells of it
                first = Start.STORED if begun else Start.ANYTHING if part.fills_chunk else Start.FILL
                changes.append(ChunkChange(part.coords, partial(fill, bounds), first))
            if others or after.metadata.stored_grid.bounds(coords)[head.axis].start < head.start:
                writer.update(coords, changes)
            else:
                writer.replace(coords, changes)

        shard = 0 if level.shards is None else math.prod(level.shards) * level.dtype.itemsize
        for batch in [[one] for one in plan.objects()] if shard > LARGE_SHARD else [plan.objects()]:
            writer.write_each(batch, write)

    def _remove_orphans(self, writer: ChunkWriter, array: StreamArray) -> None:
        """Remove chunks that were written after another replica had discarded the stream."""
        written = writer.array

        def is_gone() -> bool:
            now = self.catalog.find_node(written.path, fresh=True)
            mark = StreamMark.of(now) if isinstance(now, ArrayNode) else None
            return not isinstance(now, ArrayNode) or (mark is not None and mark.id != array.stream)

        if written.mount.has_replicas and writer.written and is_gone():
            with node_lease(written.mount, written.prefix) as permit:
                if is_gone():
                    writer.remove_written(permit.check)
