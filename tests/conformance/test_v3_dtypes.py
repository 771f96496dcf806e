"""All data types of zarr-python, as Zarr v2 and v3: what either side makes and writes, the other reads and changes."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import ml_dtypes
import numpy as np
import pytest
import tensorstore
import zarr
from zarr.core.dtype import VariableLengthBytes, data_type_registry

from hyperslab import RemoteArray, RemoteGroup
from hyperslab.engine.creation import new_document
from hyperslab.errors import BadMetadata
from tests.api.support import Served, serving
from tests.documents import array_of, named, zarr_json

pytestmark = pytest.mark.filterwarnings(
    "ignore:(The (data type|codec)|Numcodecs codecs|Object arrays|invalid value encountered in cast)"
)

TEXTS: Final = np.array(["a", "", "é", "three", "4"], object)
RECORD: Final = np.dtype([("a", "<i4"), ("b", "<f8")])
VALUES: Final[dict[str, Any]] = {
    "bool": np.array([True, False, True, True, False]),
    **{name: np.array([1, 0, 3, 100, 5], name) for name in ("int8", "int16", "int32", "int64")},
    **{name: np.array([1, 0, 3, 200, 5], name) for name in ("uint8", "uint16", "uint32", "uint64")},
    **{name: np.array([1.5, 0, np.inf, -2, np.nan], name) for name in ("float16", "float32", "float64")},
    **{name: np.array([1 + 2j, 0, np.inf, -2j, 5], name) for name in ("complex64", "complex128")},
    "fixed_length_utf32": TEXTS.astype("<U5"),
    "string": TEXTS,
    "raw_bytes": np.array([b"a", b"", b"\xff\x00c", b"three", b"4"], "V5"),
    "null_terminated_bytes": np.array([b"a", b"", b"\xffc", b"three", b"4"], "S5"),
    "variable_length_bytes": np.array([b"a", b"", b"\xff\x00c", b"three", b"4"], object),
    "structured": np.array([(1, 1.5), (0, 0), (3, -1), (4, 9), (5, 2)], RECORD),
    "numpy.datetime64": np.array(["2020-01-01", "NaT", "1970-01-01", "1900-01-01", "2100-01-01"], "<M8[10us]"),
    "numpy.timedelta64": np.array([1, 0, -3, 4, 5], "<m8[s]"),
}
OBJECTS: Final = {"string": "vlen-utf8", "variable_length_bytes": "vlen-bytes"}
NAMES: Final[dict[str, Any]] = dict.fromkeys(OBJECTS, "|O")
DATA_TYPE: Final[dict[str, Any]] = {"string": str, "variable_length_bytes": VariableLengthBytes()}


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Served, Path]]:
    folder = tmp_path_factory.mktemp("dtypes")
    with serving(folder) as found:
        yield found, folder


def test_the_table_has_every_data_type() -> None:
    data_type_registry._lazy_load()

    known = {"structured" if name == "struct" else name for name in data_type_registry.contents}  # since version 3.2
    assert VALUES.keys() == known


def same(found: Any, expected: Any) -> None:
    """Equal item by item; zarr-python has a string type of its own."""
    if expected.dtype == object:
        assert np.asarray(found, object).tolist() == expected.tolist()
    else:
        assert np.asarray(found).astype(expected.dtype).tobytes() == expected.tobytes()


@pytest.mark.parametrize("zarr_format", [2, 3])
@pytest.mark.parametrize("name", VALUES)
def test_what_one_makes_and_writes_the_other_reads_and_changes(
    data: tuple[Served, Path], name: str, zarr_format: Any
) -> None:
    served, folder = data
    values = VALUES[name]
    url = f"{served.http.base_url}/v1/metadata/data"

    theirs: Any = zarr.create_array(
        str(folder / f"theirs-{zarr_format}-{name}"),
        shape=5,
        chunks=(2,),
        dtype=DATA_TYPE.get(name, values.dtype),
        zarr_format=zarr_format,
    )
    theirs[:] = values
    remote = RemoteArray(f"{url}/theirs-{zarr_format}-{name}")
    same(remote[:], values)
    remote[1:4] = values[:3]
    same(zarr.open_array(theirs.store, mode="r")[:], np.concatenate([values[:1], values[:3], values[4:]]))

    with RemoteGroup(url.removesuffix("/v1/metadata/data")) as group:
        codecs: Any = {"filters": [{"id": OBJECTS[name]}]} if name in OBJECTS else {}
        kind = NAMES.get(name, values.dtype)
        ours = group.create_array(
            f"data/ours-{zarr_format}-{name}", 5, kind, chunks=2, zarr_format=zarr_format, **codecs
        )
        ours[:] = values
    read: Any = zarr.open_array(str(folder / f"ours-{zarr_format}-{name}"), mode="r+")
    same(read[:], values)
    read[1:4] = values[:3]
    same(RemoteArray(ours.url)[:], np.concatenate([values[:1], values[:3], values[4:]]))


# --- data types of the registry that ml_dtypes has -------------------------------------------------------------------

REGISTERED: Final = {  # significant bits of a byte, 8 for whole bytes
    **dict.fromkeys(("bfloat16", "float8_e3m4", "float8_e4m3", "float8_e4m3b11fnuz", "float8_e4m3fnuz"), 8),
    **dict.fromkeys(("float8_e4m3fn", "float8_e5m2", "float8_e5m2fnuz", "float8_e8m0fnu"), 8),
    **dict.fromkeys(("complex_float16", "complex_bfloat16", "complex_float32", "complex_float64"), 8),
    **{"float6_e2m3fn": 6, "float6_e3m2fn": 6, "float4_e2m1fn": 4, "int2": 2, "int4": 4, "uint2": 2, "uint4": 4},
}
PYTHON_NAMES: Final = {"complex_float16": "complex32", "complex_bfloat16": "bcomplex32"}
PYTHON_NAMES_OF_NUMPY: Final = {"complex_float32": "complex64", "complex_float64": "complex128"}
IN_TENSORSTORE: Final = [name for name in REGISTERED if hasattr(tensorstore, name)]


def numpy_of(name: str) -> np.dtype[Any]:
    of_numpy = PYTHON_NAMES_OF_NUMPY.get(name)
    return np.dtype(of_numpy or getattr(ml_dtypes, PYTHON_NAMES.get(name, name)))


@pytest.mark.parametrize("endian", ["little", "big"])
@pytest.mark.parametrize("name", REGISTERED)
def test_a_registered_type_is_read_by_its_name(data: tuple[Served, Path], name: str, endian: Any) -> None:
    """From stored bytes, of which the idle bits are set; ml_dtypes says what they mean."""
    served, folder = data
    dtype, bits = numpy_of(name), REGISTERED[name]
    stored = np.random.default_rng(1).permutation(np.arange(256, dtype=np.uint8))
    part = dtype.itemsize // (2 if "complex" in name else 1)
    little = stored if endian == "little" else stored.reshape(-1, part)[:, ::-1].reshape(-1)
    signed = little.view(np.int8) if name.startswith("int") else little
    expected = ((signed << (8 - bits)) >> (8 - bits)).astype(signed.dtype).view(dtype)
    node = folder / f"registered-{name}-{endian}"
    (node / "c").mkdir(parents=True)
    (node / "c" / "0").write_bytes(stored.tobytes())
    shape = [len(expected)]
    fill = [0, 0] if "complex" in name else 1
    document = zarr_json(shape, shape, name, fill_value=fill, codecs=[named("bytes", endian=endian)])
    (node / "zarr.json").write_text(json.dumps(document))

    numbers = np.dtype(np.complex128 if "complex" in name else np.float64)
    url = f"{served.http.base_url}/v1/slice/data/{node.name}"
    with RemoteArray(url) as remote:
        np.testing.assert_array_equal(remote[...].astype(numbers), expected.astype(numbers))
    told = served.http.get(f"/v1/slice/data/{node.name}?format=json").json()
    told = [complex(*map(float, item)) for item in told] if "complex" in name else [float(item) for item in told]
    np.testing.assert_array_equal(told, expected.astype(numbers))
    assert served.http.get(f"/v1/slice/data/{node.name}?format=csv").is_success
    bins = served.http.get(f"/v1/slice/data/{node.name}?reduce=minmax&bins=1&format=json").json()
    sizes = np.abs(expected.astype(numbers)) if "complex" in name else expected.astype(numbers)
    assert float(bins[0][1]) == pytest.approx(np.nanmax(sizes), rel=1e-6)
    with RemoteArray(url) as remote:
        remote[1:3] = expected[5:7]
        np.testing.assert_array_equal(remote[:4].astype(numbers), expected[[0, 5, 6, 3]].astype(numbers))
    if name in IN_TENSORSTORE:
        spec = {"driver": "zarr3", "kvstore": {"driver": "file", "path": f"{node}/"}}
        theirs = tensorstore.open(spec).result().read().result()
        np.testing.assert_array_equal(theirs.astype(numbers)[3:], expected.astype(numbers)[3:])


@pytest.mark.parametrize("name", [name for name in REGISTERED if REGISTERED[name] < 8 or "complex" in name])
def test_packed_bits_of_a_registered_type_are_its_low_bits(data: tuple[Served, Path], name: str) -> None:
    served, folder = data
    dtype, bits = numpy_of(name), REGISTERED[name]
    numbers = np.array([1, 0, 1, 1, 0, -1 if not name.startswith("u") else 1, 0, 1]).astype(dtype)
    rows = np.unpackbits(numbers.view(np.uint8).reshape(-1, 1), axis=1, bitorder="little")[:, :bits]
    node = folder / f"packed-{name}"
    (node / "c").mkdir(parents=True)
    (node / "c" / "0").write_bytes(np.packbits(rows.reshape(-1), bitorder="little").tobytes())
    fill = [0, 0] if "complex" in name else 0
    (node / "zarr.json").write_text(json.dumps(zarr_json([8], [8], name, fill_value=fill, codecs=["packbits"])))

    with RemoteArray(f"{served.http.base_url}/v1/slice/data/{node.name}") as remote:
        assert remote[...].tolist() == numbers.tolist()


FILLS: Final[list[tuple[str, Any, str]]] = [  # the constants of the registry, and bits
    *(("bfloat16", value, stored) for value, stored in (("NaN", "c07f"), ("-Infinity", "80ff"), ("0x7fc1", "c17f"))),
    *((name, "NaN", bits) for name, bits in (("float8_e3m4", "78"), ("float8_e4m3", "7c"), ("float8_e5m2", "7e"))),
    *((f"float8_{name}", "NaN", "80") for name in ("e4m3fnuz", "e4m3b11fnuz", "e5m2fnuz")),
    *(("float8_e4m3", value, stored) for value, stored in (("Infinity", "78"), (-1.5, "bc"), ("0x7f", "7f"))),
    ("float8_e8m0fnu", "NaN", "ff"),
    ("float8_e8m0fnu", 4, "81"),
    *(("float4_e2m1fn", value, stored) for value, stored in ((-1.5, "0b"), ("0x05", "05"), ("0xf5", "05"))),
    *(("float6_e2m3fn", value, stored) for value, stored in ((7.5, "1f"), ("0x21", "21"), ("0xff", "3f"))),
    ("float6_e3m2fn", -28, "3f"),
    *((name, value, stored) for name, value, stored in (("int4", -8, "f8"), ("int2", -2, "fe"), ("uint2", 3, "03"))),
    ("complex_bfloat16", ["NaN", "-Infinity"], "c07f80ff"),
    ("complex_float16", ["0x7e01", -2], "017e00c0"),
    ("complex_float32", [1, "Infinity"], "0000803f0000807f"),
    ("complex_float64", ["0x7ff8000000000001", 0], "010000000000f87f" + "00" * 8),
]


@pytest.mark.parametrize(("name", "value", "stored"), FILLS)
def test_a_fill_value_of_a_registered_type_has_its_bits(name: str, value: Any, stored: str) -> None:
    array = array_of(zarr_json([2], [2], name, fill_value=value))

    assert array.fill.tobytes().hex() == stored


NON_FINITE: Final = ("Infinity", "-Infinity", "NaN")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *((f"float8_{name}", value) for name in ("e4m3fnuz", "e4m3fn", "e8m0fnu") for value in NON_FINITE[:2]),
        *((name, value) for name in ("float4_e2m1fn", "float6_e3m2fn") for value in NON_FINITE),
        *(("int4", value) for value in (8, -9, "NaN", 0.5)),
        *(("complex_float16", value) for value in (1, [1], ["0x00", 0], "AAAAAA==")),
        ("float6_e2m3fn", "0x123"),
    ],
)
def test_what_a_registered_type_cannot_hold_is_no_fill_value_of_it(name: str, value: Any) -> None:
    with pytest.raises(BadMetadata, match="fill_value"):
        array_of(zarr_json([2], [2], name, fill_value=value))


@pytest.mark.parametrize("name", ["complex_float8_e5m2", "complex_float4_e2m1fn", "float8_e9m9", "int1"])
def test_a_type_that_ml_dtypes_does_not_have_is_refused_by_name(name: str) -> None:
    with pytest.raises(BadMetadata, match=name):
        array_of(zarr_json([2], [2], name, fill_value=0))


# --- records ---------------------------------------------------------------------------------------------------------

PAIRS: Final = named("structured", fields=[["a", "int16"], ["b", named("structured", fields=[["x", "float32"]])]])
STRUCT: Final = named(
    "struct",
    fields=[
        {"name": "a", "data_type": "int16"},
        {"name": "b", "data_type": named("struct", fields=[{"name": "x", "data_type": "float32"}])},
    ],
)


@pytest.mark.parametrize("codec", [named("bytes", endian="little"), named("bytes", endian="big"), {"name": "bytes"}])
@pytest.mark.parametrize("form", ["object", "base64"])
@pytest.mark.parametrize("name", ["struct", "structured"])
@pytest.mark.parametrize("fields", [PAIRS, STRUCT])
def test_records_are_read_in_every_form_that_was_ever_written(fields: Any, name: str, form: str, codec: Any) -> None:
    """The bytes of a fill value are in the byte order of the codec. [zarr-extensions, "structured"]"""
    order = ">" if codec.get("configuration") == {"endian": "big"} else "<"
    item = np.array((7, (1.5,)), [("a", f"{order}i2"), ("b", [("x", f"{order}f4")])])
    fill = {"a": 7, "b": {"x": 1.5}} if form == "object" else base64.b64encode(item.tobytes()).decode()
    array = array_of(zarr_json([2], [2], {**fields, "name": name}, fill_value=fill, codecs=[codec]))

    assert array.fill.tolist() == (7, (1.5,))
    assert array.dtype.numpy == item.dtype


@pytest.mark.parametrize(
    ("asked", "endian", "written"),
    [
        (PAIRS, "little", "structured"),
        (STRUCT, "little", "struct"),
        ({**PAIRS, "name": "struct"}, "little", "struct"),
        ({**STRUCT, "name": "structured"}, "little", "structured"),
        (PAIRS, "big", "struct"),
    ],
)
def test_new_records_have_the_form_of_their_name(asked: Any, endian: str, written: str) -> None:
    """Which TensorStore reads, and of zarr-python 3.1 the older one; what it would misread it does not know."""
    codecs = [named("bytes", endian=endian)]
    request = {"zarr_format": 3, "shape": [2], "data_type": asked, "fill_value": {"a": 7, "b": {"x": 1.5}}}
    document = new_document({**request, "codecs": codecs}, {})

    assert document["data_type"] == {"struct": STRUCT, "structured": PAIRS}[written]
    assert document["fill_value"] == ({"a": 7, "b": {"x": 1.5}} if written == "struct" else "BwAAAMA/")
    assert array_of(document).fill.tolist() == (7, (1.5,))
