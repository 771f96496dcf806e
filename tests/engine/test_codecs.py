"""Codecs: what they do to chunks that are as they should be."""

from __future__ import annotations

import gzip
import lzma
from typing import Any

import numpy as np
import pytest

from hyperslab.engine import blosc
from hyperslab.engine.codec_config import CODECS, OTHER_SPELLINGS
from hyperslab.errors import NotRepresentable
from tests.conformance import vectors
from tests.engine.arrays import BYTE_FILTERS, COMPRESSORS, Array, Config, array_of, values_of

DTYPES = ["|b1", "|u1", "<i2", ">u4", "<i8", ">f2", "<f4", ">f8", "<c16", "<M8[ns]", "|S3", ">U2", "|V5"]
STRUCTURED = [["x", "<u2"], ["y", ">f8", [2, 3]], ["z", "|S3"]]


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("compressor", COMPRESSORS, ids=str)
def test_chunks_come_back_as_they_were(compressor: Config | None, order: str) -> None:
    for dtype in [*DTYPES, "bfloat16", STRUCTURED]:
        array = array_of([5, 1, 12], dtype, compressor, order=order)
        chunk = values_of((5, 1, 12), array.dtype.numpy, order)
        out = np.empty_like(chunk)

        stored = array.codec.encode(chunk)
        decoded = array.codec.decode(stored, "0.0.0")
        array.codec.decode_into(stored, out, "0.0.0")

        assert decoded.shape == chunk.shape
        assert decoded.dtype == chunk.dtype
        assert decoded.tobytes() == chunk.tobytes() == out.tobytes()
        assert decoded.flags.f_contiguous if order == "F" else decoded.flags.c_contiguous


@pytest.mark.parametrize("case", vectors.cases("codecs"), ids=vectors.case_id)
def test_codecs_do_what_the_references_do(case: vectors.Case) -> None:
    if "decode_hex" in case:
        return  # hostile input has tests of its own
    config, reference = case["config"], case["refs"]["zarr3"]
    values = _values(case)
    array = array_of(values.shape, "|O" if values.dtype.hasobject else values.dtype.str, filters=[config])

    if config.get("cname") == "snappy":  # numcodecs is built without it; TensorStore and we are not
        assert array.codec.decode(array.codec.encode(values), "0").tobytes() == values.tobytes()
        return
    if not reference["ok"]:
        with pytest.raises(NotRepresentable):
            array.codec.encode(values)
        return
    stored = array.codec.encode(values)
    expected = case.get("encoded_hex")

    if case.get("deterministic"):
        assert stored.hex() == expected
    decoded = array.codec.decode(bytes.fromhex(expected) if expected else stored, "0")
    _assert_decoded(decoded, reference)


def test_every_codec_that_is_allowed_has_a_place_in_the_chain() -> None:
    simple = {name: config for name in CODECS if (config := _complete(name))}
    for config in simple.values():
        array = array_of([4], "<f8" if config["id"] != "categorize" else "<U1", filters=[config])

        assert [link.id for link in array.codec.links] == [config["id"]]
    assert simple.keys() == CODECS.keys()


def test_arrays_open_with_old_and_short_spellings() -> None:
    chunk = values_of((4,), np.dtype("<i4"))
    spelled: list[Config] = [
        {"id": "blosc", "shuffle": -1},
        {"id": "blosc", "typesize": None},
        {"id": "gzip", "level": -1},
        {"id": "zstd", "level": -131072},
        {"id": "zstd", "level": 22},
        {"id": "zlib", "level": 12},
        {"id": "lzma", "format": 1, "check": -1, "preset": None, "filters": None},
        {"id": "delta", "dtype": "i4"},
        {"id": "astype", "encode_dtype": "int64", "decode_dtype": "int32"},
    ]
    for config in spelled:
        codec = array_of([4], "<i4", config).codec

        np.testing.assert_array_equal(codec.decode(codec.encode(chunk), "0"), chunk)


def test_blosc_shuffles_by_whole_items() -> None:
    for dtype, typesize in (("|u1", 1), ("<i4", 4), (STRUCTURED, 53), ("<U4", 16)):
        array = array_of([100], dtype, {"id": "blosc", "shuffle": -1})

        frame = array.codec.encode(values_of((100,), array.dtype.numpy))

        assert frame[3] == typesize
        assert frame[2] & 0x05 == (0x04 if typesize == 1 else 0x01)


def test_blosc_shuffles_by_the_items_that_a_filter_gives() -> None:
    array = array_of([100], "<i8", {"id": "blosc"}, filters=[{"id": "delta", "dtype": "<i8", "astype": "<i2"}])

    frame = array.codec.encode(np.arange(100, dtype="<i8"))

    assert frame[3] == 2


def test_a_chunk_too_large_for_blosc_is_refused_without_being_read() -> None:
    array = array_of([2**31], "|u1", {"id": "blosc"})

    with pytest.raises(NotRepresentable, match="at most 2147483631 bytes"):
        array.codec.encode(np.empty(2**31, np.uint8))


@pytest.mark.parametrize("compressor", [None, {"id": "blosc"}, {"id": "zlib"}], ids=str)
def test_bytes_that_are_no_bools_are_made_true(compressor: Config | None) -> None:
    array = array_of([4], "|b1", compressor)
    stored = array_of([4], "|u1", compressor).codec.encode(np.array([0, 1, 2, 255], np.uint8))
    out = np.empty(4, bool)

    array.codec.decode_into(stored, out, "0")

    assert array.codec.decode(stored, "0").view(np.uint8).tolist() == [0, 1, 1, 1]
    assert out.view(np.uint8).tolist() == [0, 1, 1, 1]


ROWS_AT_ONCE = [
    ("<i4", "C", "blosc", [2, 3]),
    ("<i4", "F", "blosc", []),
    ("|b1", "C", "blosc", []),
    ("<i4", "C", "zstd", []),
]


@pytest.mark.parametrize(("dtype", "order", "compressor", "expected"), ROWS_AT_ONCE)
@pytest.mark.parametrize("filters", [None, [{"id": "crc32"}]], ids=str)
def test_rows_decode_as_chunks_do_and_plain_ones_of_blosc_at_once(
    monkeypatch: pytest.MonkeyPatch, dtype: str, order: str, compressor: str, expected: list[int], filters: Any
) -> None:
    array = array_of([6, 50], dtype, {"id": compressor}, filters=filters, order=order)
    numbers = np.arange(7 * 6 * 50 * array.dtype.itemsize, dtype=np.uint8).reshape(7, 6, -1)  # no bools, too
    stored = [
        array_of(chunk.shape, "|u1", {"id": compressor}, filters=filters).codec.encode(chunk) for chunk in numbers
    ]
    rows = [None if row in (0, 3) else data for row, data in enumerate(stored)]
    out, at_once = np.ones((7, 6, 50), array.dtype.numpy), list[int]()
    decompress = blosc.decompress_rows

    def counted(rows: Any, out: Array) -> bool:
        done = decompress(rows, out)
        at_once.extend([len(rows)] if done else [])
        return done

    monkeypatch.setattr(blosc, "decompress_rows", counted)

    array.codec.decode_rows(rows, out, "0.0")

    for row, data in enumerate(rows):
        chunk = np.ones_like(out[row]) if data is None else array.codec.decode(data, "0.0")
        assert out[row].tobytes() == chunk.tobytes()
    assert at_once == (expected if filters is None else [])


def test_only_the_low_bits_of_int4_count() -> None:
    array = array_of([5], "int4")

    decoded = array.codec.decode(bytes([0x0F, 0xFF, 0x1F, 0x07, 0x78]), "0")

    assert decoded.astype(int).tolist() == [-1, -1, -1, 7, -8]


def _complete(name: str) -> Config:
    needed: dict[str, dict[str, Any]] = {
        "delta": {"dtype": "<f8"},
        "fixedscaleoffset": {"dtype": "<f8", "offset": 0, "scale": 1},
        "quantize": {"dtype": "<f8", "digits": 1},
        "bitround": {"keepbits": 3},
        "astype": {"encode_dtype": "<i2", "decode_dtype": "<f8"},
        "categorize": {"labels": ["a"], "dtype": "<U1"},
        "vlen-array": {"dtype": "<i4"},
    }
    return {"id": name, **needed.get(name, {})}


def _values(case: vectors.Case) -> Array:
    if case["dtype"] != "O":
        values = np.array(case["values"], dtype=case["dtype"])
        return values.reshape(case.get("shape", values.shape))
    rows = case["values"]
    if case["config"]["id"] == "vlen-array":
        rows = [np.array(row, case["config"]["dtype"]) for row in rows]
    values = np.empty(len(rows), object)
    values[:] = rows
    return values


def _assert_decoded(decoded: Array, reference: dict[str, Any]) -> None:
    if "decoded_hex" in reference:
        assert decoded.tobytes().hex() == reference["decoded_hex"]
    else:
        assert [item.tolist() if isinstance(item, np.ndarray) else item for item in decoded] == reference["decoded"]


LOSSY: list[tuple[str, Config]] = [
    ("<f8", {"id": "quantize", "digits": 1, "dtype": "<f8"}),
    ("<f8", {"id": "fixedscaleoffset", "offset": 0, "scale": 4, "dtype": "<f8", "astype": "<i2"}),
    ("<f8", {"id": "bitround", "keepbits": 3}),
    ("<f8", {"id": "astype", "encode_dtype": "<f4", "decode_dtype": "<f8"}),
    ("<f8", {"id": "delta", "dtype": "<f8"}),
    ("<i4", {"id": "delta", "dtype": "<i4", "astype": "<i2"}),
    ("|u1", {"id": "packbits"}),
]
LOSSLESS: list[tuple[str, Config]] = [
    *(("<i4", config) for config in BYTE_FILTERS),
    ("<i4", {"id": "delta", "dtype": "<i4"}),
    ("|b1", {"id": "packbits"}),
]


@pytest.mark.parametrize(("dtype", "filter_"), LOSSY, ids=str)
def test_a_chunk_that_a_codec_may_change_is_told_as_it_will_be_read(dtype: str, filter_: Config) -> None:
    array = array_of([4], dtype, {"id": "zlib"}, filters=[filter_])
    chunk = np.array([1.23456789, 70_001, 9, 100_000]).astype(dtype)

    data, readable = array.codec.encode_readably(chunk, "0")

    assert data == array.codec.encode(chunk)
    assert readable.tobytes() == array.codec.decode(data, "0").tobytes()


UNREADABLE: list[tuple[str, list[Config]]] = [
    ("<M8[s]", [{"id": "delta", "dtype": "<M8[s]"}]),
    ("<f8", [{"id": "astype", "encode_dtype": "|S3", "decode_dtype": "<f8"}]),
    ("<i4", [{"id": "vlen-array", "dtype": "<i4"}]),
    ("<f8", [{"id": "crc32"}, {"id": "quantize", "digits": 0, "dtype": "<f4"}]),
]


@pytest.mark.parametrize(("dtype", "filters"), UNREADABLE, ids=str)
def test_what_no_reader_could_decode_is_not_encoded_readably(dtype: str, filters: list[Config]) -> None:
    array = array_of([4], dtype, None, filters=filters)
    chunk = np.array([1, 2, 5, 10**18]).astype(dtype)

    with pytest.raises(NotRepresentable):
        array.codec.encode_readably(chunk, "0")


@pytest.mark.parametrize("format_", [1, 2, 3])
def test_the_largest_dictionary_of_lzma_that_may_be_asked_for_can_be_read(format_: int) -> None:
    filter_ = {"id": lzma.FILTER_LZMA1 if format_ == lzma.FORMAT_ALONE else lzma.FILTER_LZMA2, "dict_size": 256 << 20}
    array = array_of([1], "|u1", {"id": "lzma", "format": format_, "filters": [{**filter_, "mf": 3, "mode": 1}]})
    chunk = np.array([7], "u1")

    assert array.codec.decode(array.codec.encode(chunk), "0").tolist() == [7]


@pytest.mark.parametrize(("dtype", "filter_"), LOSSLESS, ids=str)
def test_a_chunk_reads_as_it_was_written_where_no_codec_changes_it(dtype: str, filter_: Config) -> None:
    for compressor in COMPRESSORS:
        array = array_of([8], dtype, compressor, filters=[filter_])
        chunk = values_of((8,), array.dtype.numpy)

        data, readable = array.codec.encode_readably(chunk, "0")

        assert readable is chunk
        assert array.codec.decode(data, "0").tobytes() == chunk.tobytes()


@pytest.mark.parametrize("name", [*OTHER_SPELLINGS])
def test_a_chunk_has_other_bytes_that_decode_to_the_same(name: str) -> None:
    """Where a version is a digest of the bytes, a write that changes nothing must still change it."""
    array = array_of([5000], "<u2", {"id": name})
    chunk = np.random.default_rng(1).normal(500, 20, 5000).astype("<u2")
    data = array.codec.encode(chunk)

    other = array.encode_otherwise(chunk, data)

    assert other is not None
    assert other != data
    np.testing.assert_array_equal(array.codec.decode(other, "0"), chunk)
    assert array_of([5000], "<u2").encode_otherwise(chunk, chunk.tobytes()) is None


def test_equal_chunks_have_equal_gzip_bytes() -> None:
    codec = array_of([50], "<i4", {"id": "gzip", "level": 9}).codec
    chunk = np.arange(50, dtype="<i4")

    assert codec.encode(chunk) == codec.encode(chunk)
    assert gzip.decompress(codec.encode(chunk)) == chunk.tobytes()
