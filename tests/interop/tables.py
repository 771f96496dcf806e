"""What Zarr v2 holds, as tables: the tests of this folder run over them, and a page of the reference shows them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, Literal

LibraryName = Literal["zarr-python 2", "zarr-python 3", "TensorStore"]
Config = dict[str, Any]

ZARR2: Final[LibraryName] = "zarr-python 2"
ZARR3: Final[LibraryName] = "zarr-python 3"
TENSORSTORE: Final[LibraryName] = "TensorStore"
LIBRARIES: Final = (ZARR2, ZARR3, TENSORSTORE)
_ALL: Final = frozenset(LIBRARIES)
_ZARR: Final = frozenset((ZARR2, ZARR3))
_ONLY_ZARR2: Final = frozenset((ZARR2,))
_ONLY_TENSORSTORE: Final = frozenset((TENSORSTORE,))


@dataclass(frozen=True, slots=True)
class DtypeRow:
    """``examples``: spellings that are tested. ``libraries``: those that read and write these dtypes, too.

    ``object_codec``: the filter that an array of objects needs. ``orders``: those in which the libraries read back what
    they have written; in another one it is what they read that counts.
    """

    title: str
    spelling: str
    examples: tuple[Any, ...]
    libraries: frozenset[LibraryName]
    object_codec: Config | None = None
    orders: tuple[str, ...] = ("C", "F")


DTYPES: Final = (
    DtypeRow("boolean", "`|b1`", ("|b1",), _ALL),
    DtypeRow("signed integer", "`|i1`, `<i2` `>i2`, … `<i8` `>i8`", ("|i1", "<i2", ">i2", "<i4", ">i8"), _ALL),
    DtypeRow("unsigned integer", "`|u1`, `<u2` `>u2`, … `<u8` `>u8`", ("|u1", "<u2", ">u4", "<u8"), _ALL),
    DtypeRow("float", "`<f2` `>f2`, `<f4` `>f4`, `<f8` `>f8`", ("<f2", ">f2", "<f4", ">f4", "<f8", ">f8"), _ALL),
    DtypeRow("complex", "`<c8` `>c8`, `<c16` `>c16`", ("<c8", ">c8", ">c16"), _ALL),
    DtypeRow("integer of 4 or 2 bits, one in a byte", "`int4`, `int2`", ("int4", "int2"), _ONLY_TENSORSTORE),
    DtypeRow("bfloat16", "`bfloat16`", ("bfloat16",), _ONLY_TENSORSTORE),
    DtypeRow(
        "8-bit float",
        "`float8_e3m4`, `float8_e4m3fn`, `float8_e4m3fnuz`, `float8_e4m3b11fnuz`, `float8_e5m2`, `float8_e5m2fnuz`",
        ("float8_e3m4", "float8_e4m3fn", "float8_e4m3fnuz", "float8_e4m3b11fnuz", "float8_e5m2", "float8_e5m2fnuz"),
        _ONLY_TENSORSTORE,
    ),
    DtypeRow(
        "power of two, 4-bit float in a byte",
        "`float8_e8m0fnu`, `float4_e2m1fn`",
        ("float8_e8m0fnu", "float4_e2m1fn"),
        _ONLY_TENSORSTORE,
    ),
    DtypeRow("time", "`<M8[ns]`, `>M8[10s]`: units Y to as, with multiples", ("<M8[ns]", ">M8[D]", "<M8[10s]"), _ZARR),
    DtypeRow("time span", "`<m8[s]`, `>m8[25us]`: the same units", ("<m8[s]", ">m8[ms]"), _ZARR),
    DtypeRow("bytes of fixed length", "`|S12`", ("|S1", "|S5"), _ZARR),
    DtypeRow("text of fixed length", "`<U7` `>U7`", ("<U3", ">U2"), _ZARR),
    DtypeRow("raw bytes", "`|V6`", ("|V3",), _ZARR),
    DtypeRow("records", '`[["x","<i4"],["y",">f8"]]`', ([["x", "<i4"], ["y", ">f8"]],), _ALL),
    DtypeRow(
        "records with subarrays",
        '`[["x","<u2",[2,3]],["y","<f4",[5]]]`',
        ([["x", "<u2", [2, 3]], ["y", "<f4", [5]]],),
        frozenset((ZARR2, TENSORSTORE)),
    ),
    DtypeRow(
        "nested records",
        '`[["a",[["b","<i2"],["c","|S2"]]],["d","|b1"]]`',
        ([["a", [["b", "<i2"], ["c", "|S2"]]], ["d", "|b1"]],),
        _ONLY_ZARR2,
    ),
    DtypeRow(
        "records with padding",
        '`[["a","|u1"],["","|V3"],["b","<i4"]]`',
        ([["a", "|u1"], ["", "|V3"], ["b", "<i4"]],),
        _ONLY_ZARR2,
    ),
    DtypeRow("text of any length", "`|O` with `vlen-utf8`", ("|O",), _ZARR, {"id": "vlen-utf8"}),
    DtypeRow("bytes of any length", "`|O` with `vlen-bytes`", ("|O",), _ZARR, {"id": "vlen-bytes"}),
    DtypeRow("arrays", "`|O` with `vlen-array`", ("|O",), _ONLY_ZARR2, {"id": "vlen-array", "dtype": "<i4"}),
    DtypeRow("JSON values", "`|O` with `json2`", ("|O",), _ONLY_ZARR2, {"id": "json2"}, orders=("C",)),
    DtypeRow("MessagePack values", "`|O` with `msgpack2`", ("|O",), _ONLY_ZARR2, {"id": "msgpack2"}, orders=("C",)),
    DtypeRow(
        "text from a list of labels",
        "`|O` with `categorize`",
        ("|O",),
        _ONLY_ZARR2,
        {"id": "categorize", "labels": ["x", "yy"], "dtype": "|O", "astype": "|u1"},
    ),
)


@dataclass(frozen=True, slots=True)
class CodecRow:
    """``configs``: configurations that are tested; ``dtypes``: those that it takes, all where that is empty."""

    id: str
    parameters: str
    configs: tuple[Config | None, ...]
    libraries: frozenset[LibraryName]
    dtypes: tuple[str, ...] = ()
    orders: tuple[str, ...] = ("C", "F")
    note: str = ""


COMPRESSORS: Final = (
    CodecRow("null", "", (None,), _ALL, note="no compression"),
    CodecRow(
        "blosc",
        "`cname` lz4, lz4hc, blosclz, zlib, zstd; `clevel` 0 to 9; `shuffle` -1 to 2; `blocksize`; `typesize`",
        (
            {"id": "blosc", "cname": "lz4", "clevel": 5, "shuffle": 1},
            {"id": "blosc", "cname": "zstd", "clevel": 3, "shuffle": 2, "blocksize": 0},
            {"id": "blosc", "cname": "zlib", "clevel": 1, "shuffle": -1, "blocksize": 0},
        ),
        _ALL,
        note="parts of a chunk are decoded alone where that pays; snappy is read and written, but not in new arrays",
    ),
    CodecRow("zlib", "`level` 0 to 9", ({"id": "zlib", "level": 1},), _ALL),
    CodecRow("gzip", "`level` 0 to 9", ({"id": "gzip", "level": 5},), _ALL, note="with several members, too"),
    CodecRow("bz2", "`level` 1 to 9", ({"id": "bz2", "level": 1},), _ALL),
    CodecRow(
        "zstd",
        "`level` -131072 to 22; `checksum`",
        ({"id": "zstd", "level": 3}, {"id": "zstd", "level": -5}),
        _ALL,
        note="frames of unknown size and several frames, too",
    ),
    CodecRow("lz4", "`acceleration`", ({"id": "lz4", "acceleration": 1},), _ZARR),
    CodecRow("lzma", "`format`, `check`, `preset`, `filters`, `delta` (GDAL)", ({"id": "lzma", "preset": 1},), _ZARR),
)

FILTERS: Final = (
    CodecRow("delta", "`dtype`, `astype`", ({"id": "delta", "dtype": "<i4", "astype": "<i4"},), _ZARR, ("<i4",)),
    CodecRow(
        "fixedscaleoffset",
        "`offset`, `scale`, `dtype`, `astype`",
        ({"id": "fixedscaleoffset", "offset": 0, "scale": 2, "dtype": "<f8", "astype": "<i2"},),
        _ZARR,
        ("<f8",),
    ),
    CodecRow(
        "quantize",
        "`digits`, `dtype`, `astype`",
        ({"id": "quantize", "digits": 3, "dtype": "<f8", "astype": "<f8"},),
        _ZARR,
        ("<f8",),
    ),
    CodecRow(
        "bitround",
        "`keepbits`",
        ({"id": "bitround", "keepbits": 20},),
        _ZARR,
        ("<f4",),
        orders=("C",),
        note="zarr-python writes chunks in F order wrongly behind it, and does not read them back itself",
    ),
    CodecRow("packbits", "", ({"id": "packbits"},), _ZARR, ("|b1",)),
    CodecRow(
        "astype",
        "`encode_dtype`, `decode_dtype`",
        ({"id": "astype", "encode_dtype": "<f4", "decode_dtype": "<f8"},),
        _ZARR,
        ("<f8",),
    ),
    CodecRow("shuffle", "`elementsize`", ({"id": "shuffle", "elementsize": 4},), _ZARR, ("<i4", "<f4")),
    CodecRow("base64", "", ({"id": "base64"},), _ZARR, ("<i4", "|u1")),
    CodecRow("crc32", "`location` start, end", ({"id": "crc32"}, {"id": "crc32", "location": "end"}), _ZARR, ("<i4",)),
    CodecRow("crc32c", "`location` end, start", ({"id": "crc32c", "location": "end"},), frozenset((ZARR3,)), ("<i4",)),
    CodecRow("adler32", "`location` start, end", ({"id": "adler32"},), _ZARR, ("<i4",)),
    CodecRow("fletcher32", "", ({"id": "fletcher32"},), _ZARR, ("<i4",)),
    CodecRow("jenkins_lookup3", "`initval`, `prefix`", ({"id": "jenkins_lookup3", "initval": 7},), _ZARR, ("<i4",)),
    CodecRow(
        "categorize",
        "`labels`, `dtype`, `astype`",
        ({"id": "categorize", "labels": ["a", "é中", "xyz"], "dtype": "<U3", "astype": "|u1"},),
        _ZARR,
        ("<U3",),
    ),
    CodecRow(
        "zfpy",
        "`mode`, `tolerance`, `rate`, `precision`, `compression_kwargs`",
        ({"id": "zfpy", "mode": 4, "tolerance": 0.001, "rate": -1, "precision": -1},),
        frozenset(),
        ("<f4",),
        orders=("C",),
        note="with `hyperslab[codecs]`; C order only",
    ),
    CodecRow(
        "pcodec",
        "`level`, `mode_spec`, `delta_spec`, `paging_spec`, `delta_encoding_order`, `equal_pages_up_to`",
        ({"id": "pcodec", "level": 8},),
        frozenset((ZARR3,)),
        ("<f4", "<i4"),
        note="with `hyperslab[codecs]`",
    ),
)
"""Filters may stand in place of the compressor and compressors among the filters; filters apply in order."""

ORDERS: Final = ("C", "F")
SEPARATORS: Final = (".", "/")


@dataclass(frozen=True, slots=True)
class FillRow:
    """``examples``: dtype, JSON and the bytes of one stored item in hex."""

    title: str
    spelling: str
    examples: tuple[tuple[Any, Any, str], ...]


FILLS: Final = (
    FillRow("boolean", "`true`, `false`; 0 and 1 of old writers", (("|b1", True, "01"), ("|b1", 0, "00"))),
    FillRow(
        "integers",
        "a number in the range of the dtype, exact at 64 bits; whole floats and decimal text of old writers",
        (
            ("<i4", -7, "f9ffffff"),
            ("<u8", 2**64 - 1, "ffffffffffffffff"),
            (">i2", 5.0, "0005"),
            ("|u1", "7", "07"),
            ("int4", -1, "ff"),
        ),
    ),
    FillRow(
        "floats",
        '`1.5`, `"NaN"`, `"Infinity"`, `"-Infinity"`, and `"0x7fc00001"` for a NaN with a payload',
        (
            ("<f4", "NaN", "0000c07f"),
            (">f8", "-Infinity", "fff0000000000000"),
            ("<f4", "0x7fc00001", "0100c07f"),
            ("<f8", -0.0, "0000000000000080"),
            ("bfloat16", 1.5, "c03f"),
            ("float8_e5m2", "Infinity", "7c"),
        ),
    ),
    FillRow(
        "complex",
        "`[re, im]`, each as a float",
        (("<c8", [1.0, "-Infinity"], "0000803f000080ff"), (">c8", ["NaN", -0.0], "7fc0000080000000")),
    ),
    FillRow(
        "times and time spans",
        '`"NaT"`, or the count of units as an integer',
        (("<M8[ns]", "NaT", "0000000000000080"), (">m8[10s]", -2, "fffffffffffffffe")),
    ),
    FillRow(
        "bytes of fixed length",
        "base64, padded with NUL where it is short",
        (("|S3", "YWI=", "616200"), ("|S2", "", "0000")),
    ),
    FillRow("text of fixed length", "a string", (("<U2", "é", "e900000000000000"), (">U1", "中", "00004e2d"))),
    FillRow("raw bytes", "base64 of exactly the item", (("|V2", "Af8=", "01ff"),)),
    FillRow(
        "records", "base64 of exactly the item, padding included", (([["a", "<i2"], ["b", "|S1"]], "AQBh", "010061"),)
    ),
    FillRow("any", "`null`: nothing is said, reads as zero", (("<i4", None, "00000000"), ("|S2", None, "0000"))),
)


TESTED: Final = {
    "Python": "all of the suite; engine, formats and streams also on 3.11",
    "zarr": "read and written, both formats: every data type, codec, fill value, shard and grid that it has",
    "tensorstore": "read and written, both formats: numbers, records, shards, transposes, corrupt chunks",
    "numcodecs": "every codec and filter, chunk by chunk",
    "ml-dtypes": "the values of its number types",
    "cast-value-rs": "chunks of `cast_value`",
    "pcodec": "chunks",
    "zfpy": "chunks",
    "xarray": "read: `to_zarr` of both formats, decoded; written over HTTP",
    "cftime": "dates of every calendar",
    "netCDF4": "read: NCZarr",
    "dask": "read and written over HTTP",
    "fsspec": "read and written over HTTP; stores of other protocols",
    "obstore": "read over HTTP; stores in buckets",
    "acquire-zarr": "read: its streams, shards and pyramids",
    "yaozarrs": "the OME-Zarr documents that we write",
    "zarr-metadata": "the documents that we write",
    "rasterio": "read over HTTP, by GDAL",
    "neuroglancer": "read over HTTP",
}
"""Packages of others, and what is read and written with them."""


@dataclass(frozen=True, slots=True)
class OptionRow:
    """Something that TensorStore or zarr-python let a program choose: where it is chosen here."""

    name: str
    here: str


OPTIONS: Final = (
    OptionRow("fields (`field`)", '`field=` on every route, `RemoteArray[…, "x"]`'),
    OptionRow("`fill_missing_data_reads`", "`fill_missing` of a store"),
    OptionRow("`store_data_equal_to_fill_value`, `write_empty_chunks`", "`store_data_equal_to_fill_value` of a store"),
    OptionRow("`recheck_cached_data`, `recheck_cached_metadata`", "`recheck` of a store: true, false, `open`, seconds"),
    OptionRow("`assume_metadata`", "`assume_metadata` of a store"),
    OptionRow("`metadata_key`", "`metadata_key` of a store"),
    OptionRow("open modes r, r+; a; w; w-, x", "GET; `mode=open`; `mode=replace`; `mode=create`"),
    OptionRow("constraints on opening", "`mode=open` with the members that are required"),
    OptionRow("chunk layout: shape, aspect ratio, elements, hard and soft", "`chunk_layout` of a new array"),
    OptionRow("resize with `expand_only`, `shrink_only`", "`expand_only=`, `shrink_only=` of `PATCH`"),
    OptionRow(
        "consolidated metadata", "read where it is; made up on `/zarr` where it is not; kept up to date on writes"
    ),
    OptionRow("groups without `.zgroup`", "shown where something lies below, with the attributes that they have"),
    OptionRow(
        "basic, orthogonal and point selection, masks, blocks, new axes",
        "`select=`, `/v1/points`, `/v1/chunk`, `RemoteArray`",
    ),
)
