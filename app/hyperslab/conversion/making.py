"""Makes the arrays of a conversion: what is to be made, in which blocks, and the graph of tasks that dask runs.

A task copies or reduces one block, which is made of whole stored objects: no two tasks write the same one.
"""

from __future__ import annotations

import base64
import itertools
import logging
import math
import os
import time
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import CancelledError
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

import numpy as np

from hyperslab.client.text import size_text
from hyperslab.conversion.model import KINDS, Array, Box, CannotConvert, Image, Source, Values
from hyperslab.conversion.places import Place, Target
from hyperslab.engine.creation import checked, new_document
from hyperslab.errors import HyperslabError
from hyperslab.streams import ome
from hyperslab.streams.layout import halvings_of
from hyperslab.streams.pyramid import reduce, why_not
from hyperslab.wire import dtype_to_json
from hyperslab.wire.streams import ArraySettings, Dimension, PyramidSettings

TILE: Final = 512
"""Lines and columns of a chunk of an image."""
CHUNK_BYTES: Final = 1 << 19
"""Size up to which chunks of small planes hold several."""
SHARD_BYTES: Final = 32 << 20
MANY: Final = 4096
"""Chunks above which an array is stored in shards, where it can be."""
BLOCK_BYTES: Final = 32 << 20
"""Size of the block of a task, where memory allows."""
BASE_BYTES: Final = 192 << 20
"""Memory of the process and its libraries."""
NOTE_SECONDS: Final = 2.0
"""Seconds between two notes of what is done."""
BATCH: Final = 2000
"""Tasks of a graph; of more, several graphs are run in turn."""
BLOSC: Final = {"id": "blosc", "cname": "zstd", "clevel": 3, "shuffle": 1, "blocksize": 0}


@dataclass(frozen=True, slots=True)
class Made:
    """Report of what a conversion made, or would make: ``lines`` for people, ``nbytes`` of values uncompressed."""

    url: str
    lines: tuple[str, ...]
    nbytes: int


@dataclass(frozen=True, slots=True)
class Options:
    """How arrays are stored. ``chunks`` and ``shards``: sizes of the last axes; ``shards`` may be True or False, and
    None is a choice. ``method``: how levels are reduced. ``memory``: bytes that the process takes at most."""

    chunks: tuple[int, ...] | None = None
    shards: tuple[int, ...] | bool | None = None
    compressor: Any = ...
    zarr_format: int = 3
    method: str | None = None
    memory: int = 1 << 30
    is_remote: bool = False


@dataclass(frozen=True, slots=True)
class ArrayDesign:
    """One array to be made: a copy of ``values``, or the level below ``above``, whose axes ``halved`` it halves."""

    path: str
    definition: Mapping[str, Any] = field(hash=False)
    shape: tuple[int, ...]
    stored: tuple[int, ...]
    itemsize: int
    reads: tuple[int, ...]
    values: Values | None = None
    above: str | None = None
    above_shape: tuple[int, ...] = ()
    halved: tuple[int, ...] = ()
    method: str = ""

    @property
    def nbytes(self) -> int:
        return math.prod(self.shape) * self.itemsize


@dataclass(frozen=True, slots=True)
class Design:
    """Plan of a conversion: groups by path, with Zarr format and attributes, and arrays in the order in which they are
    made. ``windows``: paths of images whose display range is to be found, and the level that shows it."""

    groups: Mapping[str, tuple[int, Mapping[str, Any]]]
    parts: tuple[ArrayDesign, ...]
    windows: Mapping[str, str]

    @property
    def arrays(self) -> dict[str, Mapping[str, Any]]:
        return {part.path: part.definition for part in self.parts}

    @property
    def nbytes(self) -> int:
        return sum(part.nbytes for part in self.parts)

    def lines(self) -> list[str]:
        """A line for each array: data type, shape, chunks, shards and bytes."""
        lines = []
        for part in self.parts:
            shards = f", shards {list(part.stored)}" if "shards" in part.definition else ""
            chunks = part.definition.get("chunks", part.stored)
            dtype = part.definition.get("dtype") or part.definition.get("data_type")
            dtype = dtype["name"] if isinstance(dtype, Mapping) else dtype if isinstance(dtype, str) else "records"
            what = f"{dtype} {list(part.shape)}"
            lines.append(f"{part.path or 'array'}: {what}, chunks {list(chunks)}{shards}, {size_text(part.nbytes)}")
        return lines


def design(source: Source, options: Options) -> Design:
    """The plan for a source. Raises `errors.BadDefinition` for options that do not fit it."""
    groups: dict[str, tuple[int, Mapping[str, Any]]] = {}
    parts: list[ArrayDesign] = []
    windows: dict[str, str] = {}
    for path, attributes in source.groups.items():
        groups[path] = options.zarr_format, attributes
    for path, node in source.nodes.items():
        if isinstance(node, Array):
            definition = _definition(node, node.shape, options, node.definition.get("chunks"))
            parts.append(_array_design(path, definition, node, values=node.values))
            continue
        levels, attributes = levels_of(path, node, options)
        groups[path] = options.zarr_format, attributes
        parts += levels
        if node.channels:
            windows[path] = levels[-1].path
    return Design(groups, tuple(parts), windows)


def levels_of(path: str, image: Image, options: Options) -> tuple[list[ArrayDesign], dict[str, Any]]:
    """The levels of an image, and the attributes of its group; raises `CannotConvert` for a method that its values do
    not allow."""
    array = image.array
    method = options.method or ("mean" if array.dtype.kind in "iufc" else "nearest")
    if (unfit := why_not(method, array.dtype)) is not None:
        raise CannotConvert(f"{image.name}: {unfit}, and its values are {array.dtype}")
    shape = array.shape
    if options.chunks is not None:
        chunks = _sized(options.chunks, shape, "chunks")
    else:
        chunks = [*[1] * (len(shape) - 2), *[min(TILE, max(size, 1)) for size in shape[-2:]]]
        planes = [axis for axis in range(len(shape) - 2) if image.axes[axis].name != "c"]
        for axis in planes[-1:]:  # several small planes
            room = CHUNK_BYTES // (math.prod(chunks) * array.dtype.itemsize)
            chunks[axis] = max(1, min(shape[axis], 32, room))
    dimensions = tuple(
        Dimension(name=axis.name, type=KINDS[axis.name], size=size, chunk=chunk, unit=axis.unit, scale=axis.scale)
        for axis, size, chunk in zip(image.axes, array.shape, chunks, strict=True)
    )
    pyramid = PyramidSettings(method=method)
    settings = ArraySettings(dtype=dtype_to_json(array.dtype), dimensions=dimensions, pyramid=pyramid)
    halvings = [*halvings_of(settings)]
    parts: list[ArrayDesign] = []
    for number, times in enumerate(halvings):
        shape = tuple([-(-size >> count) for size, count in zip(array.shape, times, strict=True)])
        definition = _definition(array, shape, options, [min(a, b) for a, b in zip(chunks, shape, strict=True)])
        name = f"{path}/{number}".lstrip("/")
        if not parts:
            parts.append(_array_design(name, definition, array, values=array.values))
            continue
        halved = tuple([axis for axis, count in enumerate(times) if count > halvings[number - 1][axis]])
        reads = tuple([min(size, part) for size, part in zip(shape, parts[-1].stored, strict=True)])
        level = Array(array.values, shape, array.dtype, reads)
        parts.append(
            _array_design(
                name, definition, level, above=parts[-1].path, above_shape=parts[-1].shape, halved=halved, method=method
            )
        )
    document = ome.image(settings, image.name, halvings, options.zarr_format)
    return parts, {**document, **image.attributes}


def _sized(sizes: Sequence[int], shape: Sequence[int], option: str) -> list[int]:
    """Sizes for each axis, of which the last ones are said, and others 1; -1 is the whole axis."""
    if len(sizes) > len(shape):
        raise CannotConvert(f"--{option} has {len(sizes)} sizes, and an array {len(shape)} axes")
    sizes = [*[1] * (len(shape) - len(sizes)), *sizes]
    return [max(size, 1) if wanted < 0 else wanted for wanted, size in zip(sizes, shape, strict=True)]


def _definition(array: Array, shape: Sequence[int], options: Options, chunks: Sequence[int] | None) -> dict[str, Any]:
    """The definition of a new array: members of the source, and chunks, shards and codecs as the options say."""
    dtype = array.dtype
    definition: dict[str, Any] = {"zarr_format": options.zarr_format, "shape": list(shape), **array.definition}
    if "data_type" not in definition and "dtype" not in definition:
        definition["dtype"] = "|O" if dtype.hasobject else dtype_to_json(dtype)
    if options.chunks is not None and len(shape) >= len(options.chunks):
        chunks = [min(n, max(size, 1)) for n, size in zip(_sized(options.chunks, shape, "chunks"), shape, strict=True)]
    elif chunks is None and math.prod(shape) * dtype.itemsize <= CHUNK_BYTES:
        chunks = [max(size, 1) for size in shape]
    if chunks is not None:
        definition["chunks"] = list(chunks)
    if options.compressor is not ...:
        definition["compressor"] = options.compressor
    elif dtype.kind in "iufcmM" and dtype.itemsize > 1:
        definition["compressor"] = BLOSC
    elif options.zarr_format == 2:
        definition["compressor"] = {"id": "zstd", "level": 3}
    if options.zarr_format == 2:
        definition["dimension_separator"] = "/"
    if array.dimension_names is not None:
        definition["dimension_names"] = list(array.dimension_names)
    definition["attributes"] = dict(array.attributes)
    shards = _shards(definition, shape, dtype.itemsize, options)
    return definition if shards is None else {**definition, "shards": shards}


def _shards(definition: Mapping[str, Any], shape: Sequence[int], itemsize: int, options: Options) -> list[int] | None:
    if options.shards is False or options.zarr_format == 2 or not shape:
        return None
    chunks = checked(_document(definition)).chunks
    if isinstance(options.shards, tuple) and len(options.shards) <= len(shape):
        sizes = _sized(options.shards, shape, "shards")
        return [max(-(-min(n, size) // chunk), 1) * chunk for n, size, chunk in zip(sizes, shape, chunks, strict=True)]
    grid = [-(-size // chunk) for size, chunk in zip(shape, chunks, strict=True)]
    if options.shards is None and math.prod(grid) <= (1 if options.is_remote else MANY):
        return None
    room = max(1, min(SHARD_BYTES, usable(options.memory) // 8) // (math.prod(chunks) * itemsize))
    counts = [1] * len(grid)
    for axis in range(len(grid) - 1, -1, -1):
        counts[axis] = max(1, min(grid[axis], room // math.prod(counts)))
        if counts[axis] < grid[axis]:
            break
    return [count * chunk for count, chunk in zip(counts, chunks, strict=True)]


def _document(definition: Mapping[str, Any]) -> dict[str, Any]:
    names = ("attributes", "dimension_names", "shards") if definition["zarr_format"] == 2 else ("attributes", "shards")
    return new_document({name: value for name, value in definition.items() if name not in names})


def _array_design(path: str, definition: Mapping[str, Any], array: Array, **members: Any) -> ArrayDesign:
    stored = tuple(definition["shards"]) if "shards" in definition else checked(_document(definition)).chunks
    itemsize = array.dtype.itemsize * (9 if array.dtype.hasobject else 1)  # a reference and a short text
    shape = tuple(definition["shape"])
    return ArrayDesign(path, definition, shape, stored, itemsize, array.reads, **members)


# --- blocks ----------------------------------------------------------------------------------------------------------


def default_memory() -> int:
    """A quarter of the machine's memory, or of what its control group allows."""
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    try:
        limit = Path("/sys/fs/cgroup/memory.max").read_text(encoding="ascii").strip()
        total = min(total, int(limit)) if limit.isdecimal() else total
    except OSError:
        pass  # a system without control groups
    return total // 4


def usable(memory: int) -> int:
    """Bytes for blocks, without those of the process itself."""
    return max(memory - BASE_BYTES, memory // 4)


def threads_for(part: ArrayDesign, memory: int) -> int:
    """How many blocks fit into memory at a time: each is there as read, as written, and encoded."""
    one: int = 4 * math.prod(block_shape(part, memory)) * part.itemsize * 2 ** len(part.halved)
    return max(1, min(os.cpu_count() or 1, usable(memory) // max(one, 1)))


def block_shape(part: ArrayDesign, memory: int) -> tuple[int, ...]:
    """The shape of the block of a task: whole stored objects, along last axes as many as are read at once, and then as
    many as make a block of `BLOCK_BYTES`."""
    budget = min(BLOCK_BYTES, usable(memory) // (4 * (os.cpu_count() or 1))) // 2 ** len(part.halved)
    block = [min(n, max(size, 1)) for n, size in zip(part.stored, part.shape, strict=True)]
    for wanted in (part.reads, part.shape):
        for axis in range(len(block) - 1, -1, -1):
            room = max(1, budget // max(1, math.prod(block) * part.itemsize))
            most = -(-max(min(wanted[axis], part.shape[axis]), 1) // part.stored[axis])
            now = -(-block[axis] // part.stored[axis])
            block[axis] = part.stored[axis] * max(now, min(most, now * room))
    return tuple(block)


def boxes(shape: Sequence[int], block: Sequence[int]) -> Iterator[Box]:
    """The boxes of an array in blocks, the last axis fastest."""
    ranges = [range(0, size, step) for size, step in zip(shape, block, strict=True)]
    for corner in itertools.product(*ranges):
        yield tuple([slice(a, min(a + n, size)) for a, n, size in zip(corner, block, shape, strict=True)])


class DoneObjects:
    """Which stored objects of an array are made."""

    def __init__(self, part: ArrayDesign, text: str | None) -> None:
        self._stored = part.stored
        grid = [-(-size // n) for size, n in zip(part.shape, part.stored, strict=True)]
        self.objects = np.zeros(grid, bool)
        if text is not None:
            bits = np.frombuffer(zlib.decompress(base64.b64decode(text)), np.uint8)
            self.objects = np.unpackbits(bits, count=self.objects.size).astype(bool).reshape(grid)

    def text(self) -> str:
        """The objects as text."""
        return base64.b64encode(zlib.compress(np.packbits(self.objects).tobytes(), 1)).decode()

    def region(self, box: Box) -> tuple[slice, ...]:
        """The objects of a box."""
        return tuple([slice(p.start // n, -(-p.stop // n)) for p, n in zip(box, self._stored, strict=True)])


Work = tuple[Values | Target, Target, tuple[int, ...], tuple[int, ...], str]
"""Facts that all tasks of an array share: source, target, and of levels the shape above, axes to halve, method."""


# --- tasks -----------------------------------------------------------------------------------------------------------


def make_block(work: Work, box: Box) -> int:
    """Copy or reduce one block, and return its bytes: the task of the graph."""
    values, target, shape, halved, method = work
    if method:
        inner = tuple(
            [
                slice(2 * part.start, min(2 * part.stop, size)) if axis in halved else part
                for axis, (part, size) in enumerate(zip(box, shape, strict=True))
            ]
        )
        block = reduce(values.read(inner), method, halved)
    else:
        block = values.read(box)
    target.write(box, block)
    return int(block.nbytes)


Advance = Callable[[int], None]


def run(
    place: Place, plan: Design, marker: dict[str, Any], memory: int, *, scheduler: str | None, advance: Advance
) -> None:
    """Make all arrays of a design, from what the marker says is done; it is stored again every few seconds."""
    by_path = {part.path: part for part in plan.parts}
    noted = time.monotonic()
    with _connected(scheduler) as client:
        for part in plan.parts:
            done = DoneObjects(part, marker["done"].get(part.path))
            target = place.target(part.path, part.definition)
            values: Any = (
                part.values if part.above is None else place.target(part.above, by_path[part.above].definition)
            )
            work = values, target, part.above_shape, part.halved, part.method
            block = block_shape(part, memory)
            todo = []
            for box in boxes(part.shape, block):
                if done.objects[done.region(box)].all():
                    advance(size_of(box) * part.itemsize)
                else:
                    todo.append(box)
            for start in range(0, len(todo), BATCH):
                batch = todo[start : start + BATCH]

                def on_done(
                    number: int, batch: Sequence[Box] = batch, part: ArrayDesign = part, done: DoneObjects = done
                ) -> None:
                    nonlocal noted
                    done.objects[done.region(batch[number])] = True
                    advance(size_of(batch[number]) * part.itemsize)
                    if time.monotonic() - noted > NOTE_SECONDS:
                        marker["done"][part.path] = done.text()
                        place.write_marker(marker)
                        noted = time.monotonic()

                execute(client, work, batch, threads_for(part, memory), on_done)
            marker["done"][part.path] = done.text()
            place.write_marker(marker)


def execute(client: Any, work: Work, batch: Sequence[Box], threads: int, on_done: Callable[[int], None]) -> None:
    """Run the tasks of some blocks, on threads of this process or on a cluster; ``on_done`` is called in this thread
    with the number of each."""
    job = uuid4().hex
    graph: dict[Any, Any] = {f"work-{job}": (partial(_same, work),)}
    keys = [(f"block-{job}", number) for number in range(len(batch))]
    graph |= {key: (partial(make_block, box=box), f"work-{job}") for key, box in zip(keys, batch, strict=True)}
    if client is None:
        import dask.threaded
        from dask.callbacks import Callback

        def posttask(key: Any, *_: Any) -> None:
            if isinstance(key, tuple):
                on_done(key[1])

        with Callback(posttask=posttask):  # type: ignore[no-untyped-call]
            dask.threaded.get(graph, keys, num_workers=threads)
        return
    from distributed import as_completed

    futures = client.get(graph, keys, sync=False)
    numbers = {future.key: number for number, future in enumerate(futures)}
    for future in as_completed(futures, loop=client.loop):  # type: ignore[no-untyped-call]
        future.result()
        on_done(numbers[future.key])


def _same(work: Work) -> Work:
    return work


@contextmanager
def _connected(scheduler: str | None) -> Iterator[Any]:
    """A client of a cluster, None without one. Raises `CannotConvert` if the cluster cannot be reached, or
    goes away."""
    if scheduler is None:
        yield None
        return
    try:
        from distributed import Client
        from distributed.comm.core import CommClosedError
        from distributed.scheduler import KilledWorker
    except ImportError as error:
        raise CannotConvert(
            f"--scheduler needs dask.distributed: pip install 'hyperslab[convert]' ({error})"
        ) from error
    log = logging.getLogger("distributed.client")
    level = log.level
    gone = (CommClosedError, TimeoutError, CancelledError, KilledWorker, ConnectionError)
    try:
        client = Client(scheduler, timeout=10, set_as_default=False)  # type: ignore[no-untyped-call]
    except (OSError, ValueError) as error:
        raise CannotConvert(f"no scheduler can be reached at {scheduler}") from error
    try:
        log.setLevel(logging.CRITICAL)  # what goes wrong is said once
        with client:
            yield client
    except HyperslabError:
        raise
    except gone as error:
        said = f"the cluster at {scheduler} is gone ({type(error).__name__})"
        raise CannotConvert(f"{said}: run the command again to go on") from error
    finally:
        log.setLevel(level)


def size_of(box: Box) -> int:
    """Items of a box."""
    return math.prod([int(part.stop - part.start) for part in box])
