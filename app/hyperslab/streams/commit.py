"""Commits: rows of an array move from its head to chunks, by the ordinary write path, and then its shapes follow.

First the chunks of level 0 and of all others, then the shapes, that of level 0 first: coarser levels can be made from
its rows. After a kill, the next commit writes the same again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, replace
from functools import partial

from hyperslab.arrays.catalog import Catalog
from hyperslab.arrays.chunks import NDArray
from hyperslab.arrays.documents import publish_metadata
from hyperslab.arrays.extent import LARGEST, with_extent, with_stream_mark
from hyperslab.arrays.lease import MOST_TRIES, alone, attempts, node_lock
from hyperslab.arrays.nodes import ArrayNode
from hyperslab.arrays.plan import make_plan
from hyperslab.arrays.read import Reader
from hyperslab.arrays.update import ChunkChange, ChunkWriter, Start
from hyperslab.engine.grid import Coords
from hyperslab.engine.indexing import ChunkProjection
from hyperslab.engine.metadata import ArrayMetadata
from hyperslab.engine.selection import normalise
from hyperslab.errors import ArrayFailed, HyperslabError, NodeNotFound, WriteConflict, WrongKind
from hyperslab.streams.heads import FirstHead, LevelHead, Mark, Rows
from hyperslab.streams.layout import Level, StreamArray


class Committer:
    """Moves rows to chunks. One commit of an array at a time: the caller sees to that."""

    def __init__(self, catalog: Catalog, reader: Reader) -> None:
        self._catalog = catalog
        self._reader = reader

    def open(self, array: StreamArray, level: int, stream: str) -> tuple[ArrayNode, Mark]:
        """A level as it is stored, and its mark; raises `ArrayFailed` where somebody else has changed it. Of one in an
        object store that was opened before, only the document that says so is looked up."""
        wanted = array.levels[level]
        node = self._catalog.remembered(wanted.path)
        try:
            known = node.documents.get(node.document_key) if isinstance(node, ArrayNode) else None
            if (
                not isinstance(node, ArrayNode)
                or known is None
                or node.mount.store.versions(node.prefix, [node.document_key]) != [known]
            ):
                node = self._catalog.open_array(wanted.path, fresh=True)
        except (NodeNotFound, WrongKind) as error:
            raise ArrayFailed(wanted.path, "it is gone, or another node is in its place") from error
        mark = Mark.of(node)
        if mark is None or mark.id != stream:
            raise ArrayFailed(wanted.path, "another writer has replaced its metadata")
        if node.metadata.shape != wanted.stored_shape(mark.rows):
            reason = f"another writer has changed its shape to {list(node.metadata.shape)}"
            raise ArrayFailed(wanted.path, f"{reason}: {mark.rows} rows were stored")
        return node, mark

    def mark(self, array: StreamArray, level: int, mark: Mark) -> None:
        """Mark a level that was just made as one that a stream writes to."""
        path = array.levels[level].path
        for _ in attempts():
            node = self._catalog.open_array(path, fresh=True)
            if Mark.of(node) is not None or self._publish(node, array.levels[level], mark):
                return
        raise WriteConflict(path, f"other writers changed the metadata {MOST_TRIES} times")

    def commit(
        self, array: StreamArray, stream: str, rows: int, source: Rows | None, *, whole: bool, final: bool = False
    ) -> None:
        """Move rows to chunks: all that level 0 has, or where only ``whole`` objects are to be stored, those that fill
        these. ``source``: the rows that are in no chunks, None if all are missing. ``final``: no more will come.

        Raises `ArrayFailed` and what `ChunkWriter.write_each` raises.
        """
        with self._settled(stream) as writers, ExitStack() as locks:
            for level in array.levels:
                mount, prefix = self._catalog.locate_writable(level.path)
                locks.enter_context(node_lock(mount, prefix))
            grown: list[tuple[ArrayNode, Mark]] = []
            stored = rows  # of level 0
            for number, level in enumerate(array.levels):
                if final and self.is_final(level):
                    continue
                node, mark = self.open(array, number, stream)
                stored = mark.rows if number == 0 else stored
                target = level.rows(rows, final=final)
                target = max(mark.rows, target // level.object_rows * level.object_rows if whole else target)
                shape = node.metadata.with_shape(level.stored_shape(target))
                after = replace(node, metadata=shape)
                start = mark.rows * level.row_length
                if number == 0 and source is not None:
                    after = replace(after, head=FirstHead(array, source, start))
                elif number:
                    above = grown[-1][0] if grown else self._catalog.open_array(array.levels[number - 1].path)
                    head = LevelHead(level, array.method or "", partial(_given, above), self._reader, start)
                    after = replace(after, head=head)
                behind = number > 0 and mark.rows < level.rows(stored, final=final)
                if target > mark.rows and (source is not None or behind):
                    self._write(after, level, mark.rows, target, partial(self._check, array, mark), writers)
                grown.append((after if number == 0 else replace(after, head=None), replace(mark, rows=target)))
            for after, mark in reversed(grown) if final else grown:  # level 0 is the last that ends
                self._publish_again(array, after, mark, final=final)

    def is_final(self, level: Level) -> bool:
        """Whether an earlier attempt to finish has come as far as this level."""
        try:
            return Mark.of(self._catalog.open_array(level.path, fresh=True)) is None
        except (NodeNotFound, WrongKind):
            return False

    def _check(self, array: StreamArray, mark: Mark) -> None:
        """Raise `WriteConflict` where another replica has published rows of a level since."""
        if self.open(array, mark.level, mark.id)[1].rows != mark.rows:
            raise WriteConflict(array.levels[mark.level].path, "its rows were moved to chunks by another process")

    def _write(  # noqa: PLR0917
        self,
        after: ArrayNode,
        level: Level,
        start: int,
        stop: int,
        check: Callable[[], None],
        writers: list[ChunkWriter],
    ) -> None:
        """Write rows into chunks. Replicas may be at the same ones, with as many rows or more: so objects are put on
        top of what was there before the ``check`` that nothing was published, and no rows of others are taken out."""
        head, grid = after.head, after.metadata.grid
        assert head is not None
        self._reader.check_chunk(after)
        selection = normalise(level.stored_box(start, stop), after.metadata.shape)
        plan, fences = make_plan(after, selection), after.mount.has_replicas
        versions = self._reader.look_up(plan, fresh=True).versions if fences else None
        if fences:
            check()
        writer = ChunkWriter(self._reader, after, versions, fences=fences)
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

        writer.write_each(plan.objects(), write)

    @contextmanager
    def _settled(self, stream: str) -> Iterator[list[ChunkWriter]]:
        """Takes the writers of a commit; where that fails, as another replica has discarded the stream, what was
        written after it is removed again."""
        writers: list[ChunkWriter] = []
        try:
            yield writers
        except HyperslabError:
            for writer in writers:
                with suppress(HyperslabError):
                    self._remove_orphans(writer, stream)
            raise

    def _remove_orphans(self, writer: ChunkWriter, stream: str) -> None:
        array = writer.array

        def is_gone() -> bool:
            now = self._catalog.find_node(array.path, fresh=True)
            mark = Mark.of(now) if isinstance(now, ArrayNode) else None
            return not isinstance(now, ArrayNode) or (mark is not None and mark.id != stream)

        if not (array.mount.has_replicas and writer.written and is_gone()):
            return
        with alone(array.mount, array.prefix) as turn:
            if is_gone():
                writer.take_back(turn.check)

    def _publish_again(self, array: StreamArray, after: ArrayNode, mark: Mark, *, final: bool) -> None:
        level = array.levels[mark.level]
        for _ in attempts():
            if final and self.is_final(level):
                return
            node, now = self.open(array, mark.level, mark.id)
            if now.rows >= mark.rows and not final:
                return
            if self._publish(node, level, mark, final=final):
                return
        raise WriteConflict(after.path, f"other writers changed the metadata {MOST_TRIES} times")

    def _publish(self, node: ArrayNode, level: Level, mark: Mark, *, final: bool = False) -> bool:
        """Store the shape of so many rows with the mark that says so; where it is ``final``, without one."""
        metadata: ArrayMetadata = node.metadata.with_shape(level.stored_shape(mark.rows))
        beyond = [LARGEST if axis == level.append_axis else n for axis, n in enumerate(metadata.shape)]
        metadata = with_extent(metadata, None if final else tuple(beyond))
        metadata = with_stream_mark(metadata, None if final else asdict(mark))
        return publish_metadata(node, metadata) is not None


def _given(array: ArrayNode) -> ArrayNode:
    return array


def missing_frames(ranges: Sequence[tuple[int, int, str]]) -> list[list[int]]:
    """Ranges of missing frames, sorted, with those that touch made one."""
    merged: list[list[int]] = []
    for start, stop, _ in sorted(ranges):
        if merged and start <= merged[-1][1]:
            merged[-1][1] = max(stop, merged[-1][1])
        else:
            merged.append([start, stop])
    return merged
