"""Values of arrays: body and response of slices and chunks."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from math import prod
from secrets import token_bytes
from time import perf_counter
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from hyperslab.api.conditional import UNCONDITIONAL
from hyperslab.api.exchange import Exchange, optimistically, runs_on_loop
from hyperslab.api.middleware.replay import MAX_KEYS, Sources
from hyperslab.api.options import ApiOptions
from hyperslab.api.params import ComputedQuery, PlanQuery, SliceQuery, ValuesQuery, WriteQuery
from hyperslab.api.ranges import ByteRange
from hyperslab.api.representation import Body, Content, Reply, Representation
from hyperslab.api.response import Buffer, Headers, array_headers, caching, cost_headers, etag_of
from hyperslab.api.services import Services
from hyperslab.api.threads import cancelled_when_gone
from hyperslab.api.values_out import (
    TEXT_FORMS,
    WHOLE_FORMS,
    add_objects,
    check_form,
    choose_format,
    converted,
    encode,
    media_types,
    npy_header,
)
from hyperslab.arrays.chunk_keys import is_settled
from hyperslab.arrays.chunks import ReadCost
from hyperslab.arrays.labels import MAX_VALUES, split_label
from hyperslab.arrays.memory import MEMORY
from hyperslab.arrays.nodes import ArrayNode
from hyperslab.arrays.plan import ReadPlan, boxes_that_fit, resolve_field, select
from hyperslab.arrays.workers import Cancel
from hyperslab.engine.cf import Decoder
from hyperslab.engine.dtypes import Field
from hyperslab.engine.indexing import fitting, split_rows
from hyperslab.engine.minmax import PARTS, MinMax, reduced_dtype
from hyperslab.engine.selection import Selection
from hyperslab.errors import BadParameter, NotRepresentable, TooLarge, TooManyIndices
from hyperslab.tiles.tiff import TIFF, TiffLayout, encode_tiff, tiff_layout
from hyperslab.wire import Packer, SelectionItem, format_dtype
from hyperslab.wire.items import bytes_of
from hyperslab.wire.labels import Method, Positions, item

_MAX_REMOTE_BYTES: Final = 32 << 20
"""Maximum response from a remote store, in bytes, that is read before it is sent: about the memory of a stream (ADR
0031, benchmark ``objects``)."""


@dataclass(frozen=True, slots=True)
class ArrayQuery:
    """A selection of an array, and ``dtype`` and ``shape`` of its response.

    ``source``: dtype of the reader's conversion, None for none. ``decoder``: CF decoder of values. ``bins``: number of
    parts of the last axis, of which minimum, maximum and mean are sent instead of values. ``words``: part of the entity
    tag besides the versions. ``nbytes`` of all values; ``prefix``: an npy header in binary form, or nothing.
    ``layout``: of a TIFF file, see `with_layout`.
    """

    array: ArrayNode
    selection: Selection
    field: Field | None
    form: str
    media_type: str
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    source: np.dtype[Any] | None
    decoder: Decoder | None
    bins: int | None
    words: str
    nbytes: int
    prefix: bytes
    layout: TiffLayout | None = None

    def encode(self, values: NDArray[Any]) -> Buffer:
        """Values in the form of the response; raises `NotRepresentable`."""
        return encode(values, self.form) if self.layout is None else encode_tiff(values, self.layout)

    def decode(self, values: NDArray[Any]) -> NDArray[Any]:
        """Read values in the dtype of the response."""
        return values if self.decoder is None else self.decoder(values).astype(self.dtype, copy=False)

    def boxes(self, limit: int) -> list[str]:
        """Selections of at most ``limit`` bytes that together make up this one and follow the chunks."""
        inner = self.field.shape if self.field is not None else ()
        return boxes_that_fit(self.array, self.selection, self.dtype.itemsize * prod(inner), limit, self.field)

    def max_bytes(self, options: ApiOptions) -> int | None:
        """Limit of the values in one response; objects and bins are held as a whole, in any form."""
        form = "json" if self.dtype.hasobject or self.bins is not None else self.form
        return {
            "json": options.max_json_bytes,
            "csv": options.max_csv_bytes,
            "tiff": options.max_tiff_bytes,
        }.get(form, options.max_response_bytes)


def array_query(
    array: ArrayNode, items: Sequence[SelectionItem], query: ValuesQuery, form: str | None, accept: str | None
) -> ArrayQuery:
    """``query`` for a selection of an array, in the form that is asked for by name or in an Accept header. ``items``
    may extend into the subarray of the field."""
    metadata = array.metadata
    offered = media_types(metadata.dtype.numpy)
    form = choose_format(form, accept, {**offered, "tiff": TIFF} if isinstance(query, ComputedQuery) else offered)
    name, spelled = query.field, query.dtype
    field = resolve_field(array, name)
    selection, field = select(array, field, items)
    if spelled is not None and field is None:  # whole records cannot be converted
        field = resolve_field(array, name, required=True)
    shape = selection.shape if field is None else selection.shape + field.shape
    decoder = decoder_of(array, query.decode)
    stored = metadata.dtype.numpy if field is None else field.numpy
    dtype = stored if decoder is None else decoder.dtype
    bins = None
    if isinstance(query, SliceQuery) and query.reduce is not None:
        if not selection.shape:
            raise BadParameter("reduce", "minmax", "a selection of one axis or more, the last of which is reduced")
        if form == "tiff":
            raise BadParameter("format", form, "another one beside reduce=minmax")
        reduced = reduced_dtype(dtype)
        if reduced is None:
            raise NotRepresentable(str(dtype), "minimum and maximum", "these values have no order")
        bins = min(query.bins or 1024, selection.shape[-1])
        dtype, shape = reduced, (*selection.shape[:-1], bins, PARTS)
    elif isinstance(query, SliceQuery) and query.bins is not None:
        raise BadParameter("bins", query.bins, "reduce=minmax beside it")
    source = None if spelled is None else converted(spelled, dtype)
    dtype = dtype if source is None else source
    words = form if source is None else f"{form} {format_dtype(dtype)}"
    if decoder is not None or bins is not None:
        words = f"{form} {format_dtype(dtype)} {decoder is not None and array.version} {bins}"
        decoder, source = decoder and decoder.to(dtype), None
    return ArrayQuery(
        array,
        selection,
        field,
        form,
        {**media_types(dtype), "tiff": TIFF}[form],
        shape,
        dtype,
        source,
        decoder,
        bins,
        words,
        nbytes=prod(shape) * dtype.itemsize,
        prefix=npy_header(shape, dtype) if form == "npy" else b"",
    )


async def with_layout(request: Exchange, query: ArrayQuery) -> ArrayQuery:
    """The query of a TIFF file with its layout, which its tag depends on. Raises what `tiff_layout` does."""
    images, array, chosen = request.context.tiles.images, query.array, query.field

    def described() -> ArrayQuery:
        layout = tiff_layout(images, array, chosen, query.selection, query.dtype)
        return replace(query, layout=layout, words=f"{query.words} {layout.identity}")

    return await request.run(described)  # a library is imported, and other documents may be read


def values_etag(tag: str, words: str) -> str:
    """A strong entity tag of values: that of their plan, combined with form and dtype in ``words``."""
    return etag_of(f"{tag} {words}".encode())


async def with_inherited(request: Exchange, array: ArrayNode, decode: str) -> ArrayNode:
    """The array, for ``decode=cf`` with the attributes that it inherits."""
    if decode != "cf" or not array.may_inherit:
        return array
    return await request.run(request.service.catalog.with_inherited, array)


def decoder_of(array: ArrayNode, decode: str) -> Decoder | None:
    """The decoder of ``decode=``; None for stored values."""
    decoder = array.decoder if decode == "cf" else None
    return decoder if decoder is not None and decoder.changes else None


async def by_labels(
    request: Exchange, array: ArrayNode, labels: Sequence[str], method: Method | None
) -> dict[int, Positions]:
    """The positions by axis that ``sel=`` selects; see `Coordinates.choose`."""
    names = array.axis_names or ()
    axes = {name: axis for axis, name in enumerate(names) if name is not None and names.count(name) == 1}
    sizes = {name: array.metadata.shape[axis] for name, axis in axes.items()}
    choose = partial(request.service.coordinates.choose, array, sizes, labels, method)
    largest = max(sizes[split_label(text, sizes)[0]] for text in labels)
    async with request.context.admission.hold(64 * min(largest, MAX_VALUES)):  # of a value: it, its index, and copies
        if request.method not in ("GET", "HEAD"):  # the body is still to come
            chosen = await request.run(choose)
        else:
            async with cancelled_when_gone(request.receive) as cancel:
                chosen = await request.run(choose, cancel)
    return {axes[name]: positions for name, positions in chosen.items()}


async def with_labels(
    request: Exchange, array: ArrayNode, items: Sequence[SelectionItem], query: SliceQuery | PlanQuery | WriteQuery
) -> tuple[ArrayNode, list[SelectionItem]]:
    """The array and the ``items`` of ``select=``, with those of ``sel=`` among them. The array has no documents, so
    that no response is replayed: its coordinates may change the selection."""
    field = resolve_field(array, query.field)
    positions_by_axis = await by_labels(request, array, query.sel, query.method)
    rank = len(array.metadata.shape) + (0 if field is None else len(field.shape))
    ellipsis = items.index(...) if ... in items else len(items)
    given = len(items) - (... in items)
    if given > rank:
        raise TooManyIndices(given, rank)
    whole = [*items[:ellipsis], *[slice(None)] * (rank - given), *items[ellipsis + 1 :]]
    for axis, positions in positions_by_axis.items():
        if whole[axis] != slice(None):
            raise BadParameter("select", query.select, f"`:` for axis {axis}, which sel= selects")
        chosen = item(positions)
        whole[axis] = chosen.tolist() if isinstance(chosen, np.ndarray) else chosen
    return replace(array, documents={}), whole


TEXT_IS_LARGER: Final = 4
"""Memory of a number's text relative to that of the number."""


@dataclass(frozen=True, slots=True)
class _Values:
    """The values of ``plan``. ``cached``: number of cached chunks, if looked up; ``timings`` in seconds by phase."""

    context: Services
    query: ArrayQuery
    plan: ReadPlan
    cached: int | None
    timings: Mapping[str, float]
    statistics: ReadCost = field(default_factory=ReadCost)

    @property
    def decoding(self) -> int:
        """Memory of CF decoding by byte of stored values: four arrays."""
        decoded = 0 if self.query.decoder is None else 4 * max(8, self.query.dtype.itemsize)
        return decoded // self.plan.dtype.itemsize if decoded else 0

    def cost(self) -> Headers:
        cached = self.statistics.cached if self.cached is None else self.cached
        return cost_headers(self.plan.touched, cached, self.statistics, self.timings)


class _StreamedValues(_Values):
    """Values in binary form, read as they are sent; CF decoding takes memory in addition to the slabs."""

    def body(self) -> Body:
        query, plan = self.query, self.plan
        slab = self.context.service.reader.choose_slab(plan, self.context.service.in_flight)
        memory = self.context.service.reader.stream_memory(plan, slab) + self.decoding * min(plan.nbytes, slab)
        return Body(len(query.prefix) + query.nbytes, memory, partial(self._open, slab), cost=self.cost)

    def _open(self, slab_bytes: int, part: ByteRange, cancel: Cancel) -> Iterator[Buffer]:
        """Slabs of a part; the prefix is sent once the first slab is read."""
        query, stored = self.query, max(self.plan.dtype.itemsize, 1)
        prefix, item = query.prefix, max(query.dtype.itemsize, 1)
        start, stop = max(part.start - len(prefix), 0), max(part.stop - len(prefix), 0)
        first, last = start // item, -(-stop // item)
        interval = (first * stored, last * stored)
        slabs = self.context.service.reader.stream(self.plan, *interval, cancel, self.statistics, slab_bytes=slab_bytes)
        slab, offset = next(slabs, None), first * item
        if part.start < len(prefix):
            yield prefix[part.start : part.stop]
        while slab is not None:
            values = None if query.decoder is None else query.decode(np.frombuffer(slab, self.plan.dtype))
            piece = slab if values is None else bytes_of(values)
            yield piece[max(start - offset, 0) : max(stop - offset, 0)]
            offset += len(piece)
            slab = next(slabs, None)


class _WholeValues(_Values):
    """Values that are read, and encoded, before any is sent."""

    def body(self, *, is_light: bool) -> Body:
        query, plan, reader = self.query, self.plan, self.context.service.reader
        size = None
        if query.bins is not None:
            slab = reader.choose_slab(plan)
            memory = reader.stream_memory(plan, slab) + TEXT_IS_LARGER * (query.nbytes + slab)
        elif query.form in WHOLE_FORMS or plan.dtype.hasobject:
            decoded = 0 if query.decoder is None else (1 + TEXT_IS_LARGER) * query.nbytes
            memory = TEXT_IS_LARGER * plan.nbytes + reader.working_memory(plan) + decoded
        else:
            size = len(query.prefix) + query.nbytes
            memory = plan.nbytes + self.decoding * plan.nbytes + reader.working_memory(plan)
        return Body(size, memory, make=self.make, cost=self.cost, is_light=is_light)

    def make(self, cancel: Cancel) -> Content:
        """The whole body, with the tag of the data read; blocks.

        Raises `TooLarge` for objects (except a single one) and `NotRepresentable`.
        """
        query, plan, reader = self.query, self.plan, self.context.service.reader
        if query.bins is not None:
            data: Buffer = self._reduced(cancel)
        elif plan.dtype.hasobject:
            data = self._objects(cancel)
        elif query.form in WHOLE_FORMS or query.decoder is not None or not plan.nbytes:
            values, plan = reader.read(plan, cancel, self.statistics)
            cancel.check()
            data = query.encode(query.decode(values))
        else:
            prefix, memory = query.prefix, MEMORY.take(len(query.prefix) + plan.nbytes)
            memory[: len(prefix)] = np.frombuffer(prefix, np.uint8)
            out = memory[len(prefix) :].view(plan.dtype).reshape(plan.shape)
            _, plan = reader.read(plan, cancel, self.statistics, out)
            data = memoryview(memory.data)
        # objects are read in several steps: a unique tag after a write between them
        unique = plan.dtype.hasobject and query.bins is None and self.statistics.changed
        etag = etag_of(token_bytes()) if unique else values_etag(plan.tag, query.words)
        sources = None if query.layout else _sources(plan)  # others than these change a TIFF file
        return Content(data, cost=self.cost(), etag=etag, sources=sources)

    def _objects(self, cancel: Cancel) -> Buffer:
        """Objects in bounded memory: the limit, and the decoded size of a few chunks."""
        plan, packer, values = self.plan, Packer(), np.empty(self.plan.shape, object)
        flat, grid, reference = values.reshape(-1), plan.array.metadata.grid, values.itemsize
        most = self.context.options.max_json_bytes  # of the binary form
        for part, start, stop in split_rows(
            plan.selection,
            (),
            itemsize=reference,
            grid=grid,
            limit_bytes=1 << 20,  # references; the objects are measured afterwards
        ):
            done = stop // reference
            out = flat[start // reference : done].reshape(part.shape)
            self.context.service.reader.fill_slab(plan, part, out, cost=self.statistics, cancel=cancel)
            add_objects(packer, out)
            if packer.nbytes > most and values.size > 1:
                item_nbytes = -(-packer.nbytes // done)  # estimate from the objects read so far
                boxes = boxes_that_fit(plan.array, plan.selection, item_nbytes, most)
                nbytes = item_nbytes * plan.selection.size
                raise TooLarge("a selection of objects, as raw", nbytes, most, boxes=boxes)
        return encode(values, self.query.form) if self.query.form in TEXT_FORMS else packer.finish()

    def _reduced(self, cancel: Cancel) -> Buffer:
        """Bins of the last axis, reduced slab by slab; subarrays of a field count as their length."""
        query, plan = self.query, self.plan
        *outer, length = plan.selection.shape
        dtype = reduced_dtype(plan.dtype if query.decoder is None else query.decoder.dtype)
        assert query.bins is not None and dtype is not None  # noqa: PT018 - both are set for bins
        reduced, inner = MinMax(prod(outer), length, query.bins, dtype), prod(plan.inner_shape)
        for slab in self.context.service.reader.stream(plan, 0, plan.nbytes, cancel, self.statistics):
            values = np.frombuffer(slab, plan.dtype)
            values = values if query.decoder is None else query.decoder(values)
            reduced.add(values if inner == 1 else np.linalg.norm(values.reshape(-1, inner), axis=1))
        bins = fitting(reduced.result().reshape(query.shape), query.dtype)
        return query.encode(bins.astype(query.dtype, copy=False))


def _sources(plan: ReadPlan) -> Sources | None:
    """The documents and chunks of the response; None for too many."""
    array = plan.array
    by_coords = None if plan.found is None else plan.found.by_coords
    if by_coords is None or not array.documents or plan.touched > MAX_KEYS - len(array.documents):
        return None
    if None in by_coords.values() and not is_settled(array):
        return None
    keys = (*array.documents, *map(array.chunk_key, by_coords))
    versions = [*array.documents.values(), *by_coords.values()]
    return Sources(array.mount, keys, versions, plan.touched)


async def array_reply(
    request: Exchange, array: ArrayNode, items: Sequence[SelectionItem], values: ValuesQuery
) -> Reply:
    """The response for a slice or a chunk.

    A small response without conditions or ranges is read at once, and its tag is made of versions read with the data.
    For all others versions are looked up first, so that conditions are checked before any data is read.
    """
    context, array = request.context, await with_inherited(request, array, values.decode)
    reader, options = context.service.reader, context.options
    query = array_query(array, items, values, values.format, request.header(b"accept"))
    check_form(query.form, query.shape, query.dtype)
    limit = query.max_bytes(options)
    if limit is not None and query.nbytes > limit:
        boxes = query.boxes(limit) if query.bins is None else []
        raise TooLarge(f"a selection as {query.form}", query.nbytes, limit, boxes=boxes)
    if query.form == "tiff":
        query = await with_layout(request, query)
    began = perf_counter()
    plan = reader.plan(array, query.selection, query.field, query.source)
    most = _MAX_REMOTE_BYTES if array.mount.is_remote else reader.slab_bytes
    is_small = plan.touched <= 1024 and query.nbytes <= most  # more versions are faster to list
    is_small = is_small and query.bins is None and not plan.dtype.hasobject
    is_binary = not (query.form in WHOLE_FORMS or query.bins is not None or plan.dtype.hasobject)
    in_parts = not is_small or request.header(b"range") is not None
    ready, cached, tag = None, None, None
    if in_parts or request.method == "HEAD" or request.conditions is not UNCONDITIONAL:
        plan, tag, cached = await look_up(request, plan)
    elif is_binary and query.decoder is None and runs_on_loop(array.mount, plan.touched, plan.nbytes):
        ready = reader.look_up_cached(plan)
        cached = None if ready is None else plan.touched
    facts = (context, query, ready or plan, cached, {"plan": perf_counter() - began})
    body: Body | bytes = b""
    if in_parts and is_binary:
        body = _StreamedValues(*facts).body()
    elif ready is None:
        body = _WholeValues(*facts).body(is_light=is_binary and reader.is_light(plan))
    representation = Representation(
        None if tag is None else values_etag(tag, query.words),
        query.media_type,
        body,
        headers=array_headers(query.shape, query.dtype),
        always=caching(array.mount, options, negotiated=values.format is None),
        sources=None if query.layout else _sources(plan),
    )
    if ready is not None:
        representation = representation.with_content(_WholeValues(*facts).make(Cancel()))
    # what is remote is read while its documents are looked up, see `optimistically`
    return await representation.respond(request) if array.mount.is_remote else representation


async def labelled_reply(
    request: Exchange, array: ArrayNode, items: Sequence[SelectionItem], query: SliceQuery
) -> Reply:
    """The response for a slice that is selected by labels."""
    return await array_reply(request, *await with_labels(request, array, items, query), query)


async def answer_from(path: str, request: Exchange, answer: Callable[[ArrayNode], Awaitable[Reply]]) -> Reply:
    """The reply of ``answer`` for the array at ``path``, made `optimistically`."""
    node = request.service.catalog.remembered(path)
    array = node if isinstance(node, ArrayNode) else None
    return await optimistically(request, array, partial(request.open_array, path), answer)


async def look_up(request: Exchange, plan: ReadPlan) -> tuple[ReadPlan, str, int]:
    """`Reader.look_up`, and the tag and the number of cached chunks of the plan: in a thread if there are many chunks,
    and cancelled when the client leaves."""
    reader = request.service.reader

    def work(cancel: Cancel | None = None) -> tuple[ReadPlan, str, int]:
        looked_up = reader.look_up(plan, cancel)
        return looked_up, looked_up.tag, reader.count_cached(looked_up)

    if runs_on_loop(plan.array.mount, plan.touched):
        return work()
    request.expect(plan.array, plan.touched)
    async with cancelled_when_gone(request.receive) as cancel:
        return await request.run(work, cancel)
