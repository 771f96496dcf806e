"""Documents that zarr-python's package `zarr-metadata` accepts or refuses are accepted or refused here.

The package says what is right; `FOLLOWED_NOT` are the changes of a document where something else was chosen, with the
reason. What the package leaves to the reader (a data type or codec that it does not know) is no case.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from itertools import product
from typing import Any, Final

import pytest
from zarr_metadata.model import read_array_metadata_v2, read_node_metadata_v3

from hyperslab.engine.metadata import ArrayMetadata
from hyperslab.engine.v3 import parse_document
from hyperslab.errors import BrokenData
from tests.documents import LITTLE, named, zarr_json, zarray

Document = dict[str, Any]


BYTES: Final = LITTLE
ARRAY: Final[Document] = zarr_json([8, 6], [4, 6])
GROUP: Final[Document] = {"zarr_format": 3, "node_type": "group"}
V2: Final[Document] = zarray([8, 6], [4, 6], "<i2")
ANYTHING: list[Any] = [None, 5, -1, 1.5, True, "x", "", [], {}, [None], [1], ["x"], {"name": "x"}, "3", 3.0, [8, -6]]
ANYTHING += [[8, 6.0], [8, True], ["a", "b"], ["a", None], ["a", "a"], [{}], "group", [8, 6, 1]]
ABSENT: Final = object()
BLOSC: Final[Document] = {"cname": "lz4", "clevel": 5, "shuffle": "noshuffle", "blocksize": 0}
BLOSC_WITHOUT: Final[list[Document]] = [
    *({name: value for name, value in BLOSC.items() if name != left} for left in ("cname", "clevel", "blocksize")),
    {**BLOSC, "shuffle": "bitshuffle"},
]
LISTED: Final[Document] = {"kind": "inline", "must_understand": False, "metadata": {}}
GZIP: Final = named("gzip", level=1)


def transpose(*order: Any) -> Document:
    return named("transpose", order=[*order])


def changes(member: str, values: Iterable[Any]) -> Iterator[Document]:
    return ({member: value} for value in values)


def members() -> Iterator[Document]:
    yield from changes("attributes", [{"a": {"b": [1, None]}}])
    for member in (*ARRAY, "attributes", "dimension_names", "storage_transformers", "unknown", "shape"):
        yield from changes(member, [ABSENT, *ANYTHING])
    yield from changes("unknown", [{"must_understand": value} for value in (False, True, 0, "false", None)])
    yield {"shape": [], "chunk_grid": named("regular", chunk_shape=[])}
    yield from changes("shape", [[0, 6], [2**62, 6]])
    yield from changes("consolidated_metadata", [{"must_understand": False}, {"kind": "inline", "metadata": {}}])


def extension_points() -> Iterator[Document]:
    for name, configuration in product(("regular", "rectilinear", "hexagonal"), GRIDS):
        yield {"chunk_grid": named(name, **configuration)}
    for name, given in product(("default", "v2", "hashed"), ({}, {"x": 1}, *changes("separator", ["/", ".", "-", ""]))):
        yield from changes("chunk_key_encoding", [name, named(name, **given)])
    more: list[Document] = [{"must_understand": value} for value in (True, False, 0, "false", None)]
    more += [{"extra": 1}, {"configuration": None}, {"configuration": []}, {"name": 5}, {"name": ""}]
    for member in ("chunk_grid", "chunk_key_encoding"):
        yield from changes(member, [{**ARRAY[member], **each} for each in more])
    yield from changes("codecs", [[{**BYTES, **each}] for each in more])
    yield from changes("data_type", [{"name": "int16", **each} for each in more])


GRIDS: Final[list[Document]] = [
    *changes("chunk_shape", [[4], [4, 0], [4, -1], [4, 6.0], [4, True], "46", [400, 600], [[4], 6]]),
    *[{"kind": "inline", "chunk_shapes": lengths} for lengths in ([4, 6], [[4, 4], 6], [[[4, 2]], [6]], [[4], 6])],
    *[{"kind": "inline", "chunk_shapes": [each, 6]} for each in ([4, 9], [4, 4, 4], [4, [4]], [[4, 0], 8], [], 0)],
    {"kind": "inline", "chunk_shapes": [[4, 4]]},
    {"kind": "file", "chunk_shapes": [4, 6]},
    {"chunk_shapes": [4, 6]},
    {"chunk_shape": [4, 6], "x": 1},
    {},
]

INTEGERS: list[Any] = [0, -1, 1.0, 1.5, True, "0", "0x0", "NaN", None, 127, 128, -128, -129, 255, 256, [0]]
INTEGERS += [2**31 - 1, 2**31, 2**63 - 1, 2**63, 2**64 - 1, 2**64]
FLOATS: list[Any] = [
    *(0, 0.0, -0.0, 1.5, True, "NaN", "Infinity", "-Infinity", "+Infinity", "nan", "inf", "0x0000", "0x7e00")
]
FLOATS += ["0x7fc00000", "0x7ff8000000000000", "0x", "0xzz00", "0X7e00", "0x7E00", "1.5", 1e5, 1e39, None, [0]]
COMPLEX: list[Any] = [[0, 0], [0.0, 1.5], ["NaN", "Infinity"], [0], [0, 0, 0], 0, "NaN", None, [True, 0], ["x", 0]]
COMPLEX += [["0x7fc00000", "0x00000000"], ["0x7ff8000000000000", "0x0000000000000000"]]


def structure(*fields: tuple[str, Any]) -> Document:
    return named("struct", fields=[{"name": name, "data_type": kind} for name, kind in fields])


def data_types() -> Iterator[Document]:
    fills = {f"{sign}int{bits}": INTEGERS for sign in ("", "u") for bits in (8, 16, 32, 64)}
    fills |= {f"float{bits}": FLOATS for bits in (16, 32, 64)} | {"complex64": COMPLEX, "complex128": COMPLEX}
    fills |= {"bool": [True, False, 0, 1, "true", None, []], "r8": [[0], [0, 0], "AA==", 0], "r12": [[0]], "r0": [[]]}
    fills |= {"r32": [[0, 0, 0, 0], [0], [256, 0, 0, 0], [-1, 0, 0, 0], None], "<i2": [0], "Int16": [0], "int128": [0]}
    for kind, values in fills.items():
        yield from ({"data_type": kind, "fill_value": value} for value in values)
    units, factors = ["ns", "s", "Y", "generic", "us", "μs", "x", None], [1, 10, 0, -1, 2**31 - 1, 2**31, 1.5, True]
    for unit, factor in product(units, factors):
        yield {"data_type": named("numpy.datetime64", unit=unit, scale_factor=factor)}
    times = [0, -1, "NaT", 1.0, "2020-01-01", None, 2**63 - 1, 2**63, -(2**63), True, "nat"]
    for name, value in product(("numpy.datetime64", "numpy.timedelta64"), times):
        yield {"data_type": named(name, unit="s", scale_factor=1), "fill_value": value}
    for given in ({"unit": "s"}, {"scale_factor": 1}, {}, {"unit": "s", "scale_factor": 1, "x": 1}):
        yield {"data_type": named("numpy.timedelta64", **given)}
    two, one = structure(("a", "int16"), ("b", "float32")), structure(("a", "int16"))
    for record, value in (
        *[(two, {"a": 1, "b": "NaN"}), (two, {"a": 1}), (two, {"a": 1, "b": "x"}), (two, {"a": 1, "b": 2, "c": 3})],
        *[(one, "AAA="), (one, 0), (one, None), (structure(), {}), (structure(("a", "int8"), ("a", "int8")), {"a": 1})],
        *[(structure(("a", "string")), {"a": ""}), (structure(("a", structure(("b", "int8")))), {"a": {"b": 1}})],
        *[(structure(("", "int8")), {"": 1}), (named("struct", fields=[["a", "int16"]]), {"a": 1})],
    ):
        yield {"data_type": record, "fill_value": value}


def codecs() -> Iterator[Document]:
    given: list[Document] = [{}, *changes("endian", ["big", "x", None]), {"endian": "little", "x": 1}]
    for endian in given:
        yield {"codecs": [named("bytes", **endian)]}
        yield {"codecs": [named("bytes", **endian)], "data_type": "uint8"}
    after: list[Any] = ["gzip", "zstd", "blosc", "crc32c", named("crc32c"), named("crc32c", x=1), "foo/bar", "", None]
    after += [named("gzip", **each) for each in changes("level", [0, 9, 10, -1, 1.0, "5", True])]
    after += [named("zstd", **each) for each in changes("level", [0, 22, 23, -5, -131072, -131073, 1.5])]
    after += [named("zstd", level=3, checksum=each) for each in (True, False, 1)]
    after += [named(name, level=3, x=1) for name in ("gzip", "zstd")]
    odd: list[Document] = [{"clevel": 10}, {"clevel": -1}, {"blocksize": -1}, {"x": 1}, {"shuffle": 1}, {"cname": "x"}]
    odd += [{"shuffle": "shuffle", "typesize": size} for size in (1, 2, 4, 0, -1)] + [{"shuffle": "bitshuffle"}]
    odd += changes("cname", ["zstd", "lz4hc", "blosclz", "zlib", "snappy"])
    after += [named("blosc", **{**BLOSC, **each}) for each in odd]
    after += [named("blosc", **each) for each in (*BLOSC_WITHOUT, {"cname": "lz4", "clevel": 5, "blocksize": 0})]
    yield from changes("codecs", [[BYTES, each] for each in after])
    orders = ([1, 0], [0, 1], [0], [0, 0], [0, 2], [0, 1, 2], "C", [-1, 0], [1.0, 0], [True, False])
    before = [*[named("transpose", order=order) for order in orders], named("transpose"), "transpose"]
    given = [{}, {"offset": 5}, {"scale": 2}, {"scale": 0}, {"offset": 5, "scale": 2}, {"offset": None}, {"x": 1}]
    before += [named("scale_offset", **each) for each in given]
    kinds = changes("data_type", ["uint8", "float32", "int17", "string", None])
    before += [named("cast_value", **each) for each in ({}, *kinds)]
    more: list[Document] = [{"rounding": "towards-zero"}, {"rounding": "x"}, {"out_of_range": "wrap"}, {"x": 1}]
    more += [{"out_of_range": "x"}, *changes("scalar_map", [{"encode": [[1, 0]]}, {"x": []}, {"encode": [[1, 0, 0]]}])]
    before += [named("cast_value", data_type="uint8", **each) for each in more]
    before += [named("cast_value", data_type="float32", out_of_range="wrap")]
    yield from changes("codecs", [[each, BYTES] for each in before])
    yield from ({"codecs": [each, "bytes"], "data_type": "bool", "fill_value": False} for each in before[-20:])
    chains: list[Any] = [[], [GZIP, BYTES], [BYTES, BYTES], [GZIP], [BYTES, transpose(1, 0)], [transpose(1, 0)]]
    yield from changes("codecs", [*chains, [BYTES, GZIP, GZIP], [BYTES, "crc32c", "crc32c"], [{"configuration": {}}]])


def shard(**changed: Any) -> Document:
    given = {"chunk_shape": [2, 3], "codecs": [BYTES], "index_codecs": [BYTES, "crc32c"], **changed}
    return named("sharding_indexed", **{name: value for name, value in given.items() if value is not ABSENT})


def shards() -> Iterator[Document]:
    sizes = ([2], [3, 3], [0, 3], [8, 6], [-2, 3], [2.0, 3], ABSENT)
    options = [{}, *changes("index_location", ["start", "middle", None]), *changes("chunk_shape", sizes), {"x": 1}]
    options += changes("codecs", [[], [BYTES, GZIP], [transpose(1, 0), BYTES], ABSENT])
    options += changes("codecs", [[shard(chunk_shape=[1, 1])], [shard(chunk_shape=[2, 2])]])
    index: list[Any] = [[], [BYTES], ["bytes"], [BYTES, GZIP], ABSENT, [shard(chunk_shape=[1, 1, 1])]]
    index += [[transpose(*order), BYTES, "crc32c"] for order in ((2, 1, 0), (1, 0, 2), (1, 0), (0, 1, 2, 3))]
    options += changes("index_codecs", index)
    yield from changes("codecs", [[shard(**each)] for each in options])
    yield {"codecs": [shard(), GZIP]}
    yield {"codecs": [BYTES, shard()]}
    yield from changes("codecs", [[transpose(1, 0), shard(chunk_shape=each)] for each in ([3, 2], [2, 3, 1], [2, 4])])


def groups() -> Iterator[Document]:
    yield from changes("attributes", [{"a": 1}, None, []])
    odd: list[Document] = [{}, {"kind": "x"}, {"metadata": []}, {"metadata": {"a": ARRAY}}, {"must_understand": True}]
    yield from changes("consolidated_metadata", [None, *[{**LISTED, **each} for each in (*odd, {"x": 1})]])
    yield from ({member: ARRAY[member]} for member in ("shape", "codecs"))
    yield from changes("unknown", [{"must_understand": False}, {"must_understand": True}, 1])
    yield {"dimension_names": ["a"]}
    yield {"storage_transformers": []}
    yield {"zarr_format": 2}


def of_v2() -> Iterator[Document]:
    for member in (*V2, "dimension_separator"):
        yield from changes(member, [ABSENT, *ANYTHING])
    yield from changes("dtype", ["|u1", ">f8", "<i3", "|i2", "<M8[ns]", "<M8", "<m8[10s]", "<M8[x]", "i2", "|b1"])
    yield from changes("dtype", [[["x", "<f4"], ["c", "<i4", [3]]], [["x"]], [["x", "<f4", [-1]]], []])
    yield from changes("dimension_separator", ["/", "."])
    yield from changes("compressor", [{"id": "gzip", "level": 1}, {"id": "zlib", "level": 10}, {"level": 1}])
    yield from changes("filters", [[{"id": "delta", "dtype": "<i2"}], [{"dtype": "<i2"}], {"id": "delta"}])


TABLES: Final = {
    "members": (ARRAY, members),
    "extension points": (ARRAY, extension_points),
    "data types": (ARRAY, data_types),
    "codecs": (ARRAY, codecs),
    "shards": (ARRAY, shards),
    "groups": (GROUP, groups),
    "v2": (V2, of_v2),
}


_READ: Final = "decoding needs no such parameter, and zarr-python reads it"
_REFERENCES: Final = "as TensorStore and zarr-python read it: see deviations.py"
TIMES_OF_A_SECOND: Final = [named(f"numpy.{name}", unit="s", scale_factor=1) for name in ("datetime64", "timedelta64")]
_WHOLE: Final = "JSON has one kind of number: 6.0 is 6"
FOLLOWED_NOT: Final[Mapping[str, Mapping[str, list[Document]]]] = {
    "members": {
        _WHOLE: [{"shape": [8, 6.0]}, {"fill_value": 3.0}],
        "releases of zarr-python wrote null, or read it": [
            *({member: None} for member in ("attributes", "dimension_names", "storage_transformers"))
        ],
    },
    "extension points": {
        "the specification allows it of codecs, and zarr-python and zarrs read it": [
            {"codecs": [{**BYTES, "must_understand": False}]}
        ],
        "writers in Java have null for no configuration": [
            {"chunk_key_encoding": {**ARRAY["chunk_key_encoding"], "configuration": None}},
            {"data_type": {"name": "int16", "configuration": None}},
            {"codecs": [{**BYTES, "configuration": None}]},
        ],
    },
    "data types": {
        _WHOLE: [
            *({"data_type": f"{sign}int{bits}", "fill_value": 1.0} for sign in ("", "u") for bits in (8, 16, 32, 64)),
            *({"data_type": kind, "fill_value": 1.0} for kind in TIMES_OF_A_SECOND),
        ],
        "zarr-python reads it": [{"data_type": "bool", "fill_value": value} for value in (0, 1)],
        "releases of zarr-python wrote it": [
            {"data_type": "r8", "fill_value": "AA=="},
            {"data_type": structure(("a", "int16")), "fill_value": "AAA="},
            {"data_type": named("struct", fields=[["a", "int16"]]), "fill_value": {"a": 1}},
        ],
    },
    "codecs": {
        _READ: [
            {"codecs": [named("bytes")]},
            *changes("codecs", [[BYTES, each] for each in ("gzip", "zstd")]),
            *changes("codecs", [[BYTES, named("blosc", **each)] for each in BLOSC_WITHOUT]),
        ],
        "the default of Java and zlib": [{"codecs": [BYTES, named("gzip", level=-1)]}],
        "nothing is divided by it": [{"codecs": [named("scale_offset", scale=0), BYTES]}],
        "spelled so by drafts of the specification": [{"codecs": [named("transpose", order="C"), BYTES]}],
    },
    "groups": {
        "releases of zarr-python wrote null": [{"attributes": None}, {"consolidated_metadata": None}],
        "what is listed there is read as zarr-python wrote it, or not at all": [
            *changes("consolidated_metadata", [{**LISTED, "must_understand": True}, {**LISTED, "x": 1}])
        ],
    },
    "v2": {
        _REFERENCES: [
            *({member: [8, 6.0]} for member in ("shape", "chunks")),
            *changes("fill_value", ["3", 3.0]),
            {"dimension_separator": None},
            {"dtype": "|b1"},
            {"compressor": {"id": "zlib", "level": 10}},
        ]
    },
}


def changed(base: Document, change: Document) -> Document:
    text = json.dumps({name: value for name, value in {**base, **change}.items() if value is not ABSENT})
    document: Document = json.loads(text)
    return document


def theirs(document: Document, *, v2: bool) -> bool | None:
    """Whether the package accepts a document; None where that is left to its reader."""
    if v2:
        return not read_array_metadata_v2(document).problems
    found = read_node_metadata_v3(document)
    if found.metadata is None or found.metadata.must_understand_fields:
        return False
    return None if found.metadata.unclaimed_fields else True


def ours(document: Document, *, v2: bool) -> bool:
    parse = partial(ArrayMetadata.parse if v2 else parse_document, exact=True)
    try:
        parse(json.dumps(document).encode(), "a/zarr.json")
    except BrokenData:
        return False
    return True


@pytest.mark.parametrize("table", TABLES)
def test_what_the_package_accepts_is_accepted_and_what_it_refuses_is_refused(table: str) -> None:
    base, made = TABLES[table]
    documents = [changed(base, change) for change in made()]
    v2 = base is V2
    expected = [changed(base, change) for given in FOLLOWED_NOT.get(table, {}).values() for change in given]

    differ = [
        each for each in documents if theirs(each, v2=v2) is not None and theirs(each, v2=v2) != ours(each, v2=v2)
    ]

    assert [each for each in differ if each not in expected] == []
    assert [each for each in expected if each not in differ] == [], "followed by now"
    assert {theirs(each, v2=v2) for each in documents} >= {True, False}
