"""Codecs: what they do to bytes that somebody else made up. Only `ChunkCorrupt` may come of it, at bounded cost."""

from __future__ import annotations

import bz2
import gzip
import lzma
import resource
import struct
import tracemalloc
import zlib
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorstore as ts
from hypothesis import given
from hypothesis import strategies as st
from numcodecs import blosc, lz4, zstd

from hyperslab.errors import BadMetadata, ChunkCorrupt
from tests.engine.arrays import BYTE_FILTERS, COMPRESSORS, Config, array_of, values_of

ZEROS = bytes(32 << 20)


def zstd_frame(*blocks: bytes, size: int | None = None) -> bytes:
    """A frame of raw blocks; without ``size`` the frame does not say how much it makes."""
    flags, content = (0x00, b"") if size is None else (0x80, struct.pack("<I", size))
    last = len(blocks) - 1
    data = b"".join(_zstd_block(block, last=i == last) for i, block in enumerate(blocks))
    return struct.pack("<IBB", 0xFD2FB528, flags, 0x58) + content + data


def _zstd_block(data: bytes, *, last: bool) -> bytes:
    return (len(data) << 3 | last).to_bytes(3, "little") + data


def zstd_bomb(nbytes: int) -> bytes:
    """A frame that does not name its size: one byte, repeated again and again."""
    size, last = 1 << 17, (nbytes >> 17) - 1
    repeated = [(size << 3 | 2 | (i == last)).to_bytes(3, "little") + b"\0" for i in range(last + 1)]
    return struct.pack("<IBB", 0xFD2FB528, 0x00, 0x58) + b"".join(repeated)


WIDER: Config = {"id": "delta", "dtype": "|u1", "astype": "<c16"}


@pytest.mark.parametrize(("filters", "member"), [
    ([WIDER] * 5, "filters[1]"),
    ([{"id": "zlib"}, WIDER, {"id": "fixedscaleoffset", "offset": 0, "scale": 1, "dtype": "|u1", "astype": "<f8"}] * 2,
     "filters[2]"),
    ([{"id": "astype", "decode_dtype": "|u1", "encode_dtype": "|S2000000000"}], "filters[0]"),
    ([{"id": "astype", "decode_dtype": "|u1", "encode_dtype": "<U100000"}], "filters[0]"),
    ([{"id": "zstd"}] * 64, "filters[26]"),
    ([{"id": "json2"}, WIDER], "filters[1]"),
    ([{"id": "vlen-bytes"}, *[{"id": "zlib"}] * 9], "filters[6]"),
], ids=str)  # fmt: skip
def test_what_makes_more_of_a_chunk_than_it_can_need_is_refused_before_anything_is_read(
    filters: list[Config], member: str
) -> None:
    with pytest.raises(BadMetadata, match="the limit is") as caught:
        array_of([1 << 20], "|O" if filters[0]["id"].startswith("vlen") else "|u1", filters=filters)

    assert caught.value.member == member


@pytest.mark.parametrize("size", [1 << 20, 1 << 28, 1 << 30])
def test_the_memory_of_a_chunk_of_any_size_is_counted(size: int) -> None:
    def memory(dtype: str, *filters: Config) -> int:
        return array_of([size], dtype, {"id": "zlib"}, filters=filters).codec.memory

    assert memory("|u1") == 2 * size
    assert memory("|u1", WIDER) == memory("|u1", WIDER, {"id": "json2"}) == 32 * size
    assert memory("|u1", {"id": "zlib"}, {**WIDER, "astype": "<f8"}) == 18 * size + (1 << 20)
    assert memory("|O", {"id": "vlen-utf8"}) == 16 * size


def test_items_that_a_filter_makes_larger_than_the_chunk_are_never_made() -> None:
    codec = array_of(
        [1000], "|u1", filters=[{"id": "astype", "decode_dtype": "|S2000000000", "encode_dtype": "|u1"}]
    ).codec

    with pytest.raises(ChunkCorrupt):
        codec.decode(bytes(1000), "0")


@pytest.mark.parametrize("compressor", [*COMPRESSORS, *BYTE_FILTERS], ids=str)
def test_cut_off_and_overlong_chunks_are_refused(compressor: Config | None) -> None:
    codec = array_of([400], "<i4", compressor).codec
    stored = codec.encode(values_of((400,), np.dtype("<i4")))
    out = np.empty(400, "<i4")

    for data in (b"", stored[:1], stored[: len(stored) // 2], stored[:-1], stored + b"x", stored + stored[:40]):
        with pytest.raises(ChunkCorrupt):
            codec.decode(data, "0")
        with pytest.raises(ChunkCorrupt):
            codec.decode_into(data, out, "0")


@pytest.mark.parametrize("compressor", COMPRESSORS, ids=str)
def test_a_chunk_of_another_size_is_refused(compressor: Config | None) -> None:
    stored = [array_of([size], "|u1", compressor).codec.encode(np.zeros(size, np.uint8)) for size in (399, 401, 800)]
    codec = array_of([400], "|u1", compressor).codec

    for data in stored:
        with pytest.raises(ChunkCorrupt):
            codec.decode(data, "0")
        with pytest.raises(ChunkCorrupt):
            codec.decode_into(data, np.empty(400, np.uint8), "0")


@pytest.mark.parametrize(("name", "make"), [
    ("zlib", zlib.compress),
    ("gzip", gzip.compress),
    ("bz2", bz2.compress),
    ("lzma", lambda data: lzma.compress(data, preset=0)),
    ("zstd", lambda data: zstd.compress(data, 1)),
    ("zstd", lambda data: zstd_bomb(len(data))),
    ("lz4", lambda data: lz4.compress(data, 1)),
    ("blosc", lambda data: blosc.compress(data, b"lz4", 5, 0)),
], ids=lambda value: value if isinstance(value, str) else "")  # fmt: skip
@pytest.mark.parametrize("dtype", ["|u1", "|O"])
def test_a_bomb_costs_little_more_than_the_chunk(name: str, make: Callable[[bytes], bytes], dtype: str) -> None:
    """For objects, where no size is known, the count of items is checked before they are made."""
    bomb = make(ZEROS)
    array = array_of([4096], dtype, {"id": name}, filters=[{"id": "vlen-bytes"}] if dtype == "|O" else None)
    limit = (1 << 20) + (3 * len(ZEROS) if dtype == "|O" else 0)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    tracemalloc.start()
    try:
        with pytest.raises(ChunkCorrupt):
            array.codec.decode(bomb, "0")
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) << 10

    assert peak < limit
    assert grown < limit + (16 << 20)


def _frame(nbytes: int, blocksize: int, cbytes: int, *starts: int, typesize: int = 1) -> bytes:
    head = struct.pack("<BBBBIII", 2, 1, 1, typesize, nbytes, blocksize, cbytes)
    return head + (struct.pack(f"<{len(starts)}I", *starts) if starts else bytes(100))


@pytest.mark.parametrize("frame", [
    _frame(100, 0, 116),
    _frame(100, 1, 2**32 - 1),
    _frame(100, 2**32 - 1, 116),
    _frame(100, 10, 116, typesize=0),
    _frame(100, 10, 56, *([2**31 - 1] * 10)),
    _frame(100, 10, 56, *([0] * 10)),
    b"\x02\x01",
], ids=range(7))  # fmt: skip
def test_blosc_frames_of_lies_are_corrupt(frame: bytes) -> None:
    with pytest.raises(ChunkCorrupt):
        array_of([100], "|u1", {"id": "blosc"}).codec.decode(frame, "0")


def test_blosc_headers_that_lie_are_not_believed() -> None:
    codec = array_of([1000], "<i4", {"id": "blosc"}).codec
    good = codec.encode(values_of((1000,), np.dtype("<i4")))
    sizes = (-1, 0, 1, 3999, 4001, 2**31 - 1)
    lies = [("B", 0, (0, 3, 255)), ("B", 3, (0,)), ("<i", 4, sizes), ("<i", 8, (-1, 2**31 - 1)), ("<i", 12, sizes)]

    for form, offset, values in lies:
        for value in values:
            bad = bytearray(good)
            struct.pack_into(form, bad, offset, value)
            with pytest.raises(ChunkCorrupt):
                codec.decode(bytes(bad), "0")


@pytest.mark.parametrize("flags", [0x01, 0x02, 0x80], ids=["lz4", "stored", "zstd"])
def test_a_blosc_header_that_promises_more_than_the_frame_has_costs_nothing(flags: int) -> None:
    nbytes = 64 << 20
    codec = array_of([nbytes // 4], "<i4", {"id": "blosc"}).codec
    head = struct.pack("<BBBBiii", 2, 1, flags, 4, nbytes, 1 << 18, 16)
    assert codec.partial is not None
    tracemalloc.start()
    try:
        with pytest.raises(ChunkCorrupt, match="the header says 16 bytes"):
            codec.decode(head, "0")
        with pytest.raises(ChunkCorrupt, match="the header says 16 bytes"):
            codec.partial.decode_runs(head, [(0, 1)], key="0")
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()

    assert peak < 1 << 20


@pytest.mark.parametrize("shuffle", [0, 1, 2])
@pytest.mark.parametrize(("shape", "dtype"), [((7,), "|u1"), ((300, 400), "<u2"), ((1000, 500), "<f8")])
def test_snappy_frames_of_tensorstore_are_read_and_ours_are_read_by_it(
    shape: tuple[int, ...], dtype: str, shuffle: int
) -> None:
    noise = np.random.default_rng(7).integers(0, 200, shape)
    compressor = {"id": "blosc", "cname": "snappy", "clevel": 5, "shuffle": shuffle, "blocksize": 4096}
    metadata = array_of(list(shape), dtype, compressor)
    context, key = ts.Context(), ".".join("0" * len(shape))
    spec = {"driver": "zarr", "kvstore": "memory://a/", "metadata": dict(metadata.document)}
    kvstore = ts.KvStore.open("memory://a/", context=context).result()
    for values in (noise.astype(dtype), np.cumsum(noise).reshape(shape).astype(dtype), np.zeros(shape, dtype)):
        ts.open(spec, create=True, delete_existing=True, context=context).result().write(values).result()
        stored = kvstore[key]

        assert metadata.codec.decode(stored, "0").tobytes() == values.tobytes()
        kvstore[key] = metadata.codec.encode(values)
        again = ts.open(spec, open=True, context=context).result().read().result()
        assert again.tobytes() == values.tobytes()
        if metadata.codec.partial is not None:
            middle = values.size // 2
            part = metadata.codec.partial.decode_runs(stored, [(middle, middle + 9)], key="0")
            whole = metadata.codec.decode(stored, "0") if part is None else part
            assert whole.ravel()[middle : middle + 9].tobytes() == values.ravel()[middle : middle + 9].tobytes()


@pytest.mark.parametrize(
    ("at", "bytes_"),
    [
        (16, b"\xff\xff\xff\x7f"),
        (16, b"\0\0\0\0"),
        (20, b"\xff\xff\xff\xff"),
        (24, b"\xff\xff\xff\x0f"),
        (30, b"\xff" * 9),
    ],
)
def test_a_broken_snappy_stream_is_a_corrupt_chunk(at: int, bytes_: bytes) -> None:
    codec = array_of([1000], "<i4", {"id": "blosc", "cname": "snappy", "shuffle": 0}).codec
    frame = bytearray(codec.encode(np.zeros(1000, "<i4")))
    frame[at : at + len(bytes_)] = bytes_

    with pytest.raises(ChunkCorrupt):
        codec.decode(bytes(frame), "0")


def test_several_members_and_streams_make_one_chunk() -> None:
    chunk = np.arange(300, dtype="<i4")
    pieces = [chunk.tobytes()[i : i + 100] for i in range(0, 1200, 100)]
    makers: dict[str, Callable[[bytes], bytes]] = {"gzip": gzip.compress, "bz2": bz2.compress, "lzma": lzma.compress}
    makers["zstd"] = zstd.compress

    for name, make in makers.items():
        codec = array_of([300], "<i4", {"id": name}).codec
        stored = b"".join(map(make, pieces))
        out = np.empty(300, "<i4")
        codec.decode_into(stored, out, "0")

        np.testing.assert_array_equal(codec.decode(stored, "0"), chunk)
        np.testing.assert_array_equal(out, chunk)
        for wrong in (stored + make(b"more"), b"".join(map(make, pieces[:-1])), stored[:-1]):
            with pytest.raises(ChunkCorrupt):
                codec.decode(wrong, "0")


def test_padding_behind_gzip_members_is_no_error() -> None:
    codec = array_of([300], "<i4", {"id": "gzip"}).codec
    chunk = np.arange(300, dtype="<i4")

    np.testing.assert_array_equal(codec.decode(codec.encode(chunk) + bytes(100), "0"), chunk)


def test_many_empty_members_cost_bounded_time() -> None:
    codec = array_of([300], "<i4", {"id": "gzip"}).codec
    stored = gzip.compress(b"") * 20_000 + codec.encode(np.arange(300, dtype="<i4"))

    np.testing.assert_array_equal(codec.decode(stored, "0"), np.arange(300))


def test_zstd_frames_need_not_say_their_size() -> None:
    codec = array_of([300], "<i4", {"id": "zstd"}).codec
    chunk = np.arange(300, dtype="<i4")
    data = chunk.tobytes()
    skippable = struct.pack("<II", 0x184D2A53, 5) + b"hello"

    for stored in (
        zstd_frame(data[:1000], data[1000:]),
        zstd_frame(data[:1000]) + zstd_frame(data[1000:], size=200),
        zstd_frame(data[:1000], size=1000) + zstd_frame(data[1000:]),
        skippable + zstd_frame(data, size=1200),
        zstd_frame(data, size=1200) + skippable,
    ):
        out = np.empty(300, "<i4")
        codec.decode_into(stored, out, "0")
        np.testing.assert_array_equal(codec.decode(stored, "0"), chunk)
        np.testing.assert_array_equal(out, chunk)


def test_zstd_frames_that_make_less_or_more_are_refused() -> None:
    codec = array_of([300], "<i4", {"id": "zstd"}).codec
    data = bytes(1200)

    for stored in (
        zstd_frame(data[:1199]),
        zstd_frame(data, b"x"),
        zstd_frame(data[:1000], size=1000),
        zstd_frame(data, size=1200) + zstd_frame(b"x"),
        zstd_frame(data, size=1200) + zstd_frame(b"x", size=1),
        zstd_frame(data, size=1199),
        zstd_frame(data, size=2**31),
        zstd_frame(data) + b"trailing",
        b"\x28\xb5\x2f\xfd",
    ):
        with pytest.raises(ChunkCorrupt):
            codec.decode(stored, "0")
        with pytest.raises(ChunkCorrupt):
            codec.decode_into(stored, np.empty(300, "<i4"), "0")


def test_characters_that_are_not_base64_are_not_dropped() -> None:
    codec = array_of([3], "|u1", {"id": "base64"}).codec

    assert codec.decode(b"AQID", "0").tolist() == [1, 2, 3]
    for wrong in (b"AQ*D", b"AQI\n", b"AQI=", b"A==="):
        with pytest.raises(ChunkCorrupt):
            codec.decode(wrong, "0")


@pytest.mark.parametrize("compressor", [*COMPRESSORS[1:], *BYTE_FILTERS, {"id": "packbits"}, {"id": "pcodec"},
                                        {"id": "zfpy", "tolerance": 0.1}], ids=str)  # fmt: skip
@given(data=st.data())
def test_changed_bytes_never_raise_anything_else(compressor: Config, data: st.DataObject) -> None:
    codec = array_of([500], "<f8", compressor).codec
    stored = bytearray(codec.encode(np.linspace(0, 9, 500)))
    for _ in range(data.draw(st.integers(1, 6))):
        stored[data.draw(st.integers(0, len(stored) - 1))] = data.draw(st.integers(0, 255))
    cut = data.draw(st.none() | st.integers(0, len(stored)))

    try:
        decoded = codec.decode(bytes(stored[:cut]), "0")
    except ChunkCorrupt:
        return

    assert decoded.shape == (500,)


def test_errors_name_the_codec_that_failed() -> None:
    filters: list[Any] = [{"id": "crc32"}, {"id": "zlib"}]
    codec = array_of([300], "<i4", {"id": "zstd"}, filters=filters).codec
    broken_sum = zstd.compress(zlib.compress(bytes(4) + np.arange(300, dtype="<i4").tobytes()))
    broken_zlib = zstd.compress(b"no zlib")

    for data, name in ((broken_sum, "crc32"), (broken_zlib, "zlib"), (b"no zstd", "zstd")):
        with pytest.raises(ChunkCorrupt) as caught:
            codec.decode(data, "3")
        assert (caught.value.codec, caught.value.key) == (name, "3")
