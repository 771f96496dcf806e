"""Parts of chunks: what `PartialDecoder` gives is what decoding the whole chunk gives."""

from __future__ import annotations

import contextlib
import itertools
import math
import struct
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hyperslab.engine import partial as partial_decoding
from hyperslab.engine.blosc import BloscFrame, BloscHeader
from hyperslab.engine.indexing import ChunkProjection, PointProjection, project, project_points
from hyperslab.engine.metadata import ArrayMetadata
from hyperslab.engine.partial import PartialDecoder
from hyperslab.engine.runs import Run, covers, runs_of
from hyperslab.engine.selection import normalise
from hyperslab.errors import ChunkCorrupt
from tests.engine.arrays import Array, Config, array_of, values_of

CNAMES = ("blosclz", "lz4", "lz4hc", "zlib", "zstd")
SHUFFLES = (0, 1, 2)
ITEMS = st.sets(st.integers(0, 9), min_size=1).map(sorted)


@given(ITEMS, ITEMS)
def test_runs_cover_others_that_have_no_other_items(items: list[int], others: list[int]) -> None:
    assert covers(runs_of(np.array(items)), runs_of(np.array(others))) == ({*others} <= {*items})


@pytest.fixture(autouse=True, scope="module")
def _parts_are_free() -> Iterator[None]:
    """Small chunks are decoded whole because that is faster; here the parts are what is tested."""
    with pytest.MonkeyPatch.context() as patch:
        for name, nbytes in (
            ("SMALL_FAST", 0),
            ("SMALL_SLOW", 0),
            ("SURGERY_FAST", -(10**9)),
            ("SURGERY_SLOW", -(10**9)),
        ):
            patch.setattr(partial_decoding, name, nbytes)
        yield


def runs_in(count: int) -> st.SearchStrategy[list[Run]]:
    """Sorted, disjoint runs of ``count`` items."""
    edges = st.lists(st.integers(0, count), min_size=2, max_size=12, unique=True).map(sorted)
    return edges.map(lambda cuts: list(zip(cuts[::2], cuts[1::2], strict=False)))


def partial_of(array: ArrayMetadata) -> PartialDecoder:
    partial = array.codec.partial
    assert partial is not None
    return partial


def decode(partial: PartialDecoder, stored: bytes, runs: Sequence[Run]) -> Array | None:
    return partial.decode_runs(stored, runs, key="0")


def fetch(partial: PartialDecoder, stored: bytes, runs: Sequence[Run]) -> Array | None:
    """As a reader of a remote store does it: the head, then the ranges."""
    head = stored[: partial.head_bytes]
    ranges = partial.ranges(head, runs, "0")
    if ranges is None:
        return None
    assert all(b[0] > a[1] for a, b in itertools.pairwise(ranges))
    return partial.decode_parts(head, [(start, stored[start:stop]) for start, stop in ranges], runs, key="0")


def assert_equal(partial: PartialDecoder, stored: bytes, chunk: Array, runs: Sequence[Run], order: Any = "C") -> None:
    items = chunk.reshape(-1, order=order)
    for part in (partial.decode_runs(stored, runs, key="0"), fetch(partial, stored, runs)):
        if part is not None:
            assert part.shape == chunk.shape
            found = part.reshape(-1, order=order)
            assert all(found[a:b].tobytes() == items[a:b].tobytes() for a, b in runs)


@pytest.mark.parametrize(("cname", "shuffle"), list(itertools.product(CNAMES, SHUFFLES)))
@given(data=st.data())
@settings(max_examples=25)
def test_parts_of_blosc_chunks_are_those_of_the_whole(cname: str, shuffle: int, data: st.DataObject) -> None:
    """Frames of all kinds: block sizes, item sizes that split blocks or do not, short last blocks, stored data."""
    dtype = data.draw(st.sampled_from(["|u1", "<u2", "<f4", "<f8", "|V3", "<c16", "|V17", "|V300"]))
    blocksize = data.draw(st.sampled_from([0, 128, 256, 1000, 4096, 16384]))
    typesize = data.draw(st.sampled_from([None, None, 1, 2, 4, 8]))
    clevel = data.draw(st.sampled_from([0, 1, 5, 9]))
    config = {
        "id": "blosc",
        "cname": cname,
        "shuffle": shuffle,
        "clevel": clevel,
        "blocksize": blocksize,
        "typesize": typesize,
    }
    count = data.draw(st.integers(1, 1000) | st.integers(300_000, 330_000)) // np.dtype(dtype).itemsize + 1
    array = array_of([count], dtype, config)
    chunk = values_of((count,), array.dtype.numpy)

    assert_equal(partial_of(array), array.codec.encode(chunk), chunk, data.draw(runs_in(count)))


@pytest.mark.parametrize("compressor", [None, {"id": "blosc", "blocksize": 4096, "cname": "zstd"}], ids=str)
@pytest.mark.parametrize("order", ["C", "F"])
@given(data=st.data())
def test_a_selection_of_parts_is_the_selection_of_the_whole(
    compressor: Config | None, order: str, data: st.DataObject
) -> None:
    shape = (6, 40, 50)
    array = array_of(shape, "<i4", compressor, order=order)
    chunk = values_of(shape, array.dtype.numpy, order)
    stored = array.codec.encode(chunk)
    items = [data.draw(st.integers(0, n - 1) | st.slices(n)) for n in shape]
    selection = normalise(items, shape)
    partial = partial_of(array)

    for projection in project(selection, array.grid):
        out = np.zeros(selection.shape, "<i4")
        runs = projection.item_runs(array.chunks, order, gap=data.draw(st.sampled_from([0, partial.gap])), limit=50)
        part = partial.decode_runs(stored, runs, key="0")
        projection.copy_out(array.codec.decode(stored, "0") if part is None else part, out)
        np.testing.assert_array_equal(out, chunk[tuple(items)])


@pytest.mark.parametrize("name", ["zlib", "gzip", "zstd"])
@given(data=st.data(), order=st.sampled_from("CF"))
def test_a_stream_is_decoded_as_far_as_a_selection_reaches(name: str, order: Any, data: st.DataObject) -> None:
    shape = (5, 60, 70)
    array = array_of(shape, "<i4", {"id": name}, order=order)
    chunk = values_of(shape, array.dtype.numpy, order)
    stored = array.codec.encode(chunk)
    lists = [
        data.draw(st.integers(0, n - 1) | st.slices(n) | st.lists(st.integers(0, n - 1), min_size=1)) for n in shape
    ]
    points = [data.draw(st.lists(st.integers(0, n - 1), min_size=3, max_size=3)) for n in shape]

    selection, numbers = normalise(lists, shape), np.arange(chunk.size).reshape(shape, order=order)

    parts: list[ChunkProjection | PointProjection] = [*project(selection, array.grid)]
    for part in (*parts, *project_points(points, array.grid, array.grid)):
        places = np.zeros(3 if isinstance(part, PointProjection) else selection.shape, np.int64)
        part.copy_out(numbers, places)
        items = part.item_runs(array.chunks, array.order, limit=1)[0][1]
        assert items == np.max(places) + 1
        found = array.codec.decode_start(stored, items, "0")
        assert found is not None or items == chunk.size
        if found is not None:
            assert found.shape == shape
            assert found.reshape(-1, order=order)[:items].tobytes() == chunk.reshape(-1, order=order)[:items].tobytes()


@pytest.mark.parametrize("name", ["zlib", "gzip", "zstd"])
def test_a_stream_that_is_broken_or_in_pieces_is_left_to_the_whole_or_corrupt(name: str) -> None:
    array = array_of([80_000], "<u2", {"id": name})
    chunk = values_of((80_000,), array.dtype.numpy)
    halves = [array_of([40_000], "<u2", {"id": name}).codec.encode(half) for half in (chunk[:40_000], chunk[40_000:])]
    stored = array.codec.encode(chunk)

    for data in (stored[:200], b"no stream at all" * 100):
        with contextlib.suppress(ChunkCorrupt):
            assert array.codec.decode_start(data, 20_000, "0") is None
        with pytest.raises(ChunkCorrupt):
            array.codec.decode(data, "0")
    if name != "zlib":
        found = array.codec.decode_start(b"".join(halves), 50_000, "0")
        whole = array.codec.decode(b"".join(halves), "0") if found is None else found
        np.testing.assert_array_equal(whole[:50_000], chunk[:50_000])


@pytest.mark.parametrize(("window", "decodes"), [(20, True), (27, True), (28, False), (31, False)])
def test_a_zstd_frame_that_wants_a_larger_window_is_left_to_the_whole(window: int, decodes: bool) -> None:
    """The frame names no size, and a window of so many bits, in which 20 blocks of 128 KiB repeat one byte each."""
    blocks = [((128 << 10 << 3) | 0b010 | (i == 19)).to_bytes(3, "little") + b"\7" for i in range(20)]
    frame = b"\x28\xb5\x2f\xfd\0" + bytes([window - 10 << 3]) + b"".join(blocks)

    found = array_of([80_000], "<u2", {"id": "zstd"}).codec.decode_start(frame, 20_000, "0")

    assert (found is not None) == decodes
    assert found is None or (found[:20_000] == 0x0707).all()


@pytest.mark.parametrize("compressor", [None, {"id": "blosc", "blocksize": 512}], ids=str)
def test_parts_of_bools_are_cleaned(compressor: Config | None) -> None:
    chunk = np.repeat(np.random.default_rng(3).integers(0, 3, 100_000, dtype=np.uint8), 4)
    stored = array_of([400_000], "|u1", compressor).codec.encode(chunk)
    partial = partial_of(array_of([400_000], "|b1", compressor))

    part = fetch(partial, stored, [(200, 300)])

    assert part is not None
    assert part[200:300].tobytes() == (chunk != 0).tobytes()[200:300]


def test_blocks_may_be_stored_in_any_order() -> None:
    """Frames that several threads made."""
    array = array_of([20_000], "<u2", {"id": "blosc", "blocksize": 4096, "cname": "zstd"})
    chunk = values_of((20_000,), array.dtype.numpy)
    stored = _shuffled_blocks(array.codec.encode(chunk), array.chunk_nbytes)

    np.testing.assert_array_equal(array.codec.decode(stored, "0"), chunk)
    for start in range(0, 19_000, 700):
        assert_equal(partial_of(array), stored, chunk, [(start, start + 300), (start + 400, start + 1000)])


def _shuffled_blocks(stored: bytes, nbytes: int) -> bytes:
    header = BloscHeader.parse(stored, nbytes)
    assert not header.stored
    frame = BloscFrame(header, stored)
    blocks = [stored[slice(*frame.extents(i, i + 1)[0])] for i in range(header.nblocks)]
    order = np.random.default_rng(1).permutation(header.nblocks).tolist()
    starts = [0] * header.nblocks
    at = header.table_stop
    for i in order:
        starts[i], at = at, at + len(blocks[i])
    return stored[:16] + struct.pack(f"<{len(starts)}i", *starts) + b"".join(blocks[i] for i in order)


def test_few_bytes_are_fetched_and_decoded_for_few_items() -> None:
    array = array_of([64, 128, 128], "<u2", {"id": "blosc", "cname": "zstd", "blocksize": 32768})
    stored = array.codec.encode(values_of((64, 128, 128), array.dtype.numpy))
    partial = partial_of(array)
    plane = [(5 * 128 * 128, 6 * 128 * 128)]

    ranges = partial.ranges(stored[: partial.head_bytes], plane, "0")

    assert ranges is not None
    assert sum(stop - start for start, stop in ranges) <= len(stored) / 32
    assert partial.head_bytes < 2048


def test_nearly_everything_is_as_well_fetched_whole() -> None:
    array = array_of([64, 128, 128], "<u2", {"id": "blosc"})
    stored = array.codec.encode(values_of((64, 128, 128), array.dtype.numpy))
    partial = partial_of(array)
    most = [(0, 50 * 128 * 128)]

    assert not partial.worth_it(most)
    assert partial.ranges(stored[: partial.head_bytes], most, "0") is None


LIES = ("bad version", "nbytes", "blocksize", "cbytes", "offset", "equal offsets", "short")


@pytest.mark.parametrize("lie", LIES)
def test_frames_that_lie_are_refused(lie: str) -> None:
    array = array_of([20_000], "<u2", {"id": "blosc", "blocksize": 4096, "cname": "zstd"})
    stored = _lying(array.codec.encode(values_of((20_000,), array.dtype.numpy)), lie)
    partial = partial_of(array)

    with pytest.raises(ChunkCorrupt):
        partial.decode_runs(stored, [(500, 700), (9000, 9100)], key="0")


def _lying(good: bytes, lie: str) -> bytes:
    bad = bytearray(good)
    offsets = {"nbytes": (4, 39_999), "blocksize": (8, 3), "cbytes": (12, 2**31 - 1), "offset": (16, 2**31 - 1)}
    if lie in offsets:
        struct.pack_into("<i", bad, *offsets[lie])
    elif lie == "bad version":
        bad[0] = 9
    elif lie == "equal offsets":
        bad[20:24] = bad[16:20]
    else:
        del bad[-100:]
    return bytes(bad)


@given(data=st.data())
def test_changed_frames_never_raise_anything_else(data: st.DataObject) -> None:
    array = array_of([100_000], "<u2", {"id": "blosc", "cname": data.draw(st.sampled_from(CNAMES))})
    stored = bytearray(array.codec.encode(values_of((100_000,), array.dtype.numpy)))
    for _ in range(data.draw(st.integers(1, 4))):
        stored[data.draw(st.integers(0, 120))] = data.draw(st.integers(0, 255))
    partial = partial_of(array)

    for read in (decode, fetch):
        with contextlib.suppress(ChunkCorrupt):
            read(partial, bytes(stored), [(500, 700)])


def test_a_raw_chunk_that_is_too_short_is_refused() -> None:
    partial = partial_of(array_of([1000], "<i4"))

    with pytest.raises(ChunkCorrupt):
        partial.decode_parts(b"", [(3000, b"abc")], [(750, 800)], key="0")


def test_what_is_not_asked_for_need_not_be_there() -> None:
    array = array_of([1000], "<i4")
    chunk = np.arange(1000, dtype="<i4")
    stored = chunk.tobytes()

    part = partial_of(array).decode_parts(b"", [(400, stored[400:800])], [(100, 200)], key="0")

    np.testing.assert_array_equal(part[100:200], chunk[100:200])
    assert math.prod(part.shape) == 1000


def blocks_of_64_kib() -> tuple[PartialDecoder, bytes]:
    array = array_of((16, 1 << 16), "|u1", {"id": "blosc", "blocksize": 1 << 16})
    stored = array.codec.encode((np.arange(1 << 20) % 251).astype("|u1").reshape(16, 1 << 16))
    assert BloscHeader.parse(stored, array.chunk_nbytes).blocksize == 1 << 16
    return partial_of(array), stored


def test_the_work_is_that_of_whole_blocks() -> None:
    partial, stored = blocks_of_64_kib()
    assert partial.work([(0, 1)]) == 256 << 10  # a guess, as nobody knows yet how large blocks are

    partial.ranges(stored, [(0, 1)], "0")

    assert partial.work([(0, 1)]) == 1 << 16
    assert partial.work([(0, 1), (5, 6), (65535, 65537)]) == 2 << 16


def test_parts_of_all_blocks_are_not_worth_it_once_that_is_known() -> None:
    partial, stored = blocks_of_64_kib()
    column = [(row << 16, (row << 16) + 1) for row in range(16)]
    assert partial.worth_it(column)

    partial.decode_runs(stored, column, key="0")

    assert not partial.worth_it(column)
    assert partial.worth_it(column[:9])
