"""What zarr-python 3.2 and later write is read as they read it: data types, codecs, fill values, shards and grids."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numcodecs
import numpy as np
import pytest
import zarr
import zarr.codecs
from hypothesis import given, reject, settings
from hypothesis import strategies as st
from hypothesis.strategies import DataObject
from zarr.codecs import BytesCodec, Crc32cCodec, TransposeCodec
from zarr.dtype import VariableLengthBytes

from hyperslab import RemoteArray
from tests.api.support import Served, serving

pytestmark = [
    pytest.mark.filterwarnings(
        "ignore:(The (data type|codec|.generic. unit)|Combining a|Numcodecs codecs|Object arrays)"
    ),
    pytest.mark.filterwarnings("ignore:(invalid value|overflow|divide by zero)"),
    pytest.mark.skipif(zarr.__version__.startswith("3.1."), reason="zarr-python 3.1 has no rectilinear grids"),
]

MANY = int(os.environ.get("TEST_EXAMPLES", "40"))
NAMES = itertools.count()
NUMBERS = ["i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8"]
RECORD = [("a", "i2"), ("b", [("x", "f4"), ("s", "S3")]), ("t", "M8[s]")]
OTHERS = ["?", "c8", "c16", "U3", "S4", "V5", "M8[ns]", "M8[10us]", "M8[D]", "m8[s]", "m8[25ms]", RECORD, str, bytes]


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Served, Path]]:
    folder = tmp_path_factory.mktemp("newest")
    with serving(folder) as found, zarr.config.set({"array.rectilinear_chunks": True}):
        yield found, folder


def a_filter(draw: DataObject, dtype: np.dtype[Any], module: Any) -> list[Any]:
    """A filter of zarr-python's or of numcodecs (``module``) that takes these items, or none."""
    text = dtype.str
    known: list[Any] = []
    if dtype.kind in "iu":
        known += [module.Delta(dtype=text), module.AsType(encode_dtype="<i8", decode_dtype=text)]
    if dtype.kind == "f" and dtype.itemsize > 2:
        known += [module.BitRound(keepbits=5), module.FixedScaleOffset(offset=3, scale=2, dtype=text, astype="<i4")]
        known += [module.Quantize(digits=2, dtype=text)]
    if dtype.kind == "b":
        known += [module.PackBits()]
    if module is zarr.codecs and dtype.kind in "iuf":
        known += [zarr.codecs.ScaleOffset(offset=1, scale=1)]
        known += [zarr.codecs.CastValue(data_type="float64", rounding="nearest-even", out_of_range="clamp")]
    chosen: list[Any] = draw.draw(st.lists(st.sampled_from(known), max_size=1)) if known else []
    return chosen


def some_compressors(draw: DataObject, module: Any, itemsize: int, most: int) -> list[Any]:
    known: list[Any] = [module.BZ2(level=1), module.LZ4(), module.LZMA(preset=1), module.Zlib(level=1), module.CRC32()]
    known += [module.Shuffle(elementsize=itemsize), module.Adler32(), module.Fletcher32(), module.CRC32C()]
    if module is zarr.codecs:
        known += [Crc32cCodec(), zarr.codecs.ZstdCodec(level=1, checksum=True), zarr.codecs.GzipCodec(level=1)]
        known += [zarr.codecs.BloscCodec(cname=name) for name in ("lz4", "zstd", "zlib", "blosclz", "lz4hc")]
        known += [module.JenkinsLookup3()]
    else:
        known += [
            numcodecs.Zstd(level=1, checksum=True),
            numcodecs.GZip(level=1),
            numcodecs.Blosc(cname="zstd", shuffle=2),
        ]
    return draw.draw(st.lists(st.sampled_from(known), max_size=most))


def lengths(draw: DataObject, size: int, multiple: int = 1) -> Any:
    """The lengths of chunks along an axis: a list, or one for all."""
    if draw.draw(st.booleans()):
        return multiple * draw.draw(st.integers(1, max(1, size)))
    found: list[int] = []
    while sum(found) < size or not found:
        found.append(multiple * draw.draw(st.integers(1, max(1, size))))
    return found


def items(draw: DataObject, kind: Any, shape: tuple[int, ...]) -> np.ndarray[Any, Any]:
    """Items of any bits, some of them zero."""
    rng = np.random.default_rng(draw.draw(st.integers(0, 2**32)))
    if kind in (str, bytes):
        texts = ["", "a", "é€😀", "x" * 9] if kind is str else [b"", b"a", b"\xff\0z"]
        found = np.empty(shape, object)
        found.reshape(-1)[:] = [texts[at] for at in rng.integers(len(texts), size=found.size)]
        return found
    dtype = np.dtype(kind)
    if dtype.kind in "bU":
        return rng.choice(np.array(["", "a", "é€😀"]) if dtype.kind == "U" else [False, True], shape).astype(dtype)
    raw = rng.integers(0, 256, (*shape, dtype.itemsize), np.uint8)
    values: np.ndarray[Any, Any] = np.ascontiguousarray(raw * (rng.random((*shape, 1)) < 0.8)).view(dtype)
    return values[..., 0]


def same(found: Any, expected: Any) -> None:
    found, expected = np.asarray(found), np.asarray(expected)
    assert found.shape == expected.shape
    if expected.dtype.kind in "OT":
        assert found.tolist() == expected.astype(object).tolist()
    else:
        little = expected.dtype.newbyteorder("<")
        assert found.astype(little).tobytes() == expected.astype(little).tobytes()


@settings(deadline=None, max_examples=MANY)
@given(draw=st.data())
def test_what_it_writes_is_read_as_it_reads_it(data: tuple[Served, Path], draw: DataObject) -> None:
    served, folder = data
    kind: Any = draw.draw(st.sampled_from([*NUMBERS, *OTHERS]))
    shape = tuple(draw.draw(st.lists(st.integers(0, 7), max_size=3)))
    zarr_format: Any = draw.draw(st.sampled_from([2, 3]))
    is_object = kind in (str, bytes)
    dtype = np.dtype(object if is_object else kind)
    if draw.draw(st.booleans()) and not is_object:
        dtype = dtype.newbyteorder(">")
    chunks: Any = tuple(draw.draw(st.integers(1, max(1, size))) for size in shape)
    asked: dict[str, Any] = {"order": draw.draw(st.sampled_from("CF"))} if zarr_format == 2 else {}
    module: Any = zarr.codecs if zarr_format == 3 else numcodecs
    if zarr_format == 3:
        grid = draw.draw(st.sampled_from(["regular", "rectilinear", "shards", "rectilinear shards"]))
        if grid == "rectilinear" and shape:
            chunks = [lengths(draw, size) for size in shape]
        elif grid == "shards":
            asked["shards"] = tuple(size * draw.draw(st.integers(1, 3)) for size in chunks)
        elif grid == "rectilinear shards" and shape:
            asked["shards"] = [lengths(draw, size, chunk) for size, chunk in zip(shape, chunks, strict=True)]
        turned = [TransposeCodec(order=draw.draw(st.permutations(range(len(shape)))))]
        if not is_object:
            asked["serializer"] = BytesCodec(endian=draw.draw(st.sampled_from(["little", "big"])))
            asked["filters"] = [
                *a_filter(draw, dtype.newbyteorder("<"), module),
                *draw.draw(st.sampled_from([[], turned])),
            ]
        else:
            asked["filters"] = draw.draw(st.sampled_from([[], turned]))
        asked["compressors"] = some_compressors(draw, module, dtype.itemsize, 3)
    else:
        asked["filters"] = [] if is_object else a_filter(draw, dtype, module)
        asked["compressors"] = some_compressors(draw, module, dtype.itemsize, 1)
        asked["chunk_key_encoding"] = {"name": "v2", "separator": draw.draw(st.sampled_from("./"))}
    if draw.draw(st.booleans()):
        asked["fill_value"] = items(draw, kind, ())[()]
    name = f"a{next(NAMES)}"
    place = {"store": str(folder / name), "zarr_format": zarr_format}
    given_dtype: Any = VariableLengthBytes() if kind is bytes else str if kind is str else dtype
    written = tuple(slice(*sorted(draw.draw(st.tuples(*[st.integers(0, size)] * 2)))) for size in shape)
    values = items(draw, kind, shape)
    try:
        zarr.create_array(**place, shape=shape, chunks=chunks, dtype=given_dtype, **asked)[written] = values[written]
        array: Any = zarr.open_array(**place, mode="r")
        expected = np.asarray(array[...], object if is_object else None)
    except (ValueError, TypeError, RuntimeError, OverflowError):
        reject()  # what it refuses, or does not read back

    with RemoteArray(f"{served.http.base_url}/v1/slice/data/{name}") as found:
        same(found[...], expected)
        assert found.shape == shape
        if expected.size and not is_object:
            same(found.fill_value, np.asarray(array.fill_value if array.fill_value is not None else 0, expected.dtype))
