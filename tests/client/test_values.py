"""Fill values, definitions and objects: between JSON and numpy."""

from __future__ import annotations

import json
from datetime import date, timedelta
from typing import Any

import numpy as np
import pytest

from hyperslab import errors, wire
from hyperslab.client.address import Address
from hyperslab.client.definition import define_array
from hyperslab.client.endpoint import Endpoint
from hyperslab.client.node import open_session
from hyperslab.client.values import decode_objects, encode_objects, format_fill_value, parse_fill_value

STRUCTURED = np.dtype([("x", "<i4"), ("y", "|S2")])


def test_fill_values_are_scalars_of_the_dtype() -> None:
    for value, dtype, expected in [
        (7, "<u2", np.uint16(7)),
        ("YQ==", "|S3", np.bytes_(b"a")),
        ("NaT", ">m8[ms]", np.timedelta64("NaT", "ms")),
        ("AQL/", "|V3", np.void(b"\x01\x02\xff")),
    ]:
        found = parse_fill_value(value, np.dtype(dtype))
        assert (found.tobytes(), type(found)) == (expected.astype(dtype).tobytes(), type(expected))
    assert parse_fill_value("AQAAAGFi", STRUCTURED).item() == (1, b"ab")
    assert parse_fill_value("text", np.dtype(object)) == "text"
    assert parse_fill_value("YQ==", np.dtype(object), "vlen-bytes") == b"a"


def test_a_nan_keeps_its_payload() -> None:
    found = parse_fill_value("0x7fc00001", np.dtype("<f4"))

    assert found.tobytes() == bytes.fromhex("0100c07f")
    assert format_fill_value(found) == "0x7fc00001"


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (np.float32("nan"), "NaN"),
        (float("-inf"), "-Infinity"),
        (1 + 2j, [1.0, 2.0]),
        (np.complex64(complex(0, np.inf)), [0.0, "Infinity"]),
        (np.datetime64("1970-01-02", "s"), 86400),
        (b"ab", "YWI="),
        (np.array((1, b"ab"), STRUCTURED), "AQAAAGFi"),
        (np.int8(-1), -1),
        (np.True_, True),
        (None, None),
        ("ü", "ü"),
        (wire.dtype_from_json("bfloat16").type(1.5), 1.5),
    ],
)
def test_fill_values_of_new_arrays_become_json(value: Any, expected: Any) -> None:
    assert format_fill_value(value) == expected


@pytest.mark.parametrize(
    ("dtype", "value"),
    [
        ("<M8[s]", np.datetime64("2020-01-01")),
        (">M8[D]", date(2020, 1, 1)),
        ("<M8[ms]", np.datetime64("NaT", "s")),
        ("<m8[ms]", np.timedelta64(2, "s")),
        ("<m8[ms]", timedelta(seconds=2)),
        (STRUCTURED, np.array((1, b"ab"), [("x", ">i4"), ("y", "|S2")])[()]),
        (STRUCTURED, (1, b"ab")),
        (wire.dtype_from_json([["a", "<i2"], ["", "|V2"], ["b", ">f4"]]), (1, 2.5)),
        ("<f4", np.float64(0.1)),
        ("<f8", np.longdouble(1.5)),
        ("<i2", np.float64(3)),
        ("<i2", np.array([3])),
        ("|S3", np.bytes_(b"ab")),
        ("|S4", "abcd"),
        ("|S4", b"abcd"),
        ("|S4", np.str_("ab")),
        ("<U3", "abc"),
        ("<U3", b"abc"),
        (">U3", np.str_("ü")),
        ("<M8[s]", "2020-01-01"),
        ("<M8[s]", "NaT"),
        ("<c8", np.complex128(1 + 2j)),
        ("<c8", float("inf")),
        ("<c16", float("nan")),
    ],
)
def test_fill_values_of_numpy_become_those_of_the_array(dtype: Any, value: Any) -> None:
    defined = define_array(None, 3, dtype, {"fill_value": value})

    stored = json.loads(json.dumps(defined["fill_value"]))
    expected = np.zeros((), dtype)
    expected[...] = value
    assert np.asarray(parse_fill_value(stored, np.dtype(dtype))).astype(dtype).tobytes() == expected.tobytes()


@pytest.mark.parametrize(
    ("dtype", "value"),
    [
        ("<i4", np.float64(1.5)),
        ("<i4", np.int64(2**40)),
        ("<i4", b"\0\0\0\1"),
        ("<c8", b"\0\0\0\0\0\0\0\1"),
        ("|S3", np.bytes_(b"abcd")),
        ("|S3", b"abcd"),
        ("|S3", "abcd"),
        ("<U3", "abcd"),
        (STRUCTURED, (1.5, b"ab")),
    ],
)
def test_fill_values_that_the_array_cannot_hold_are_refused(dtype: Any, value: Any) -> None:
    with pytest.raises((TypeError, OverflowError), match="fit"):
        define_array(None, 3, dtype, {"fill_value": value})


OBJECTS = ["a", "ü\ud800", "", b"\x00\xff", None, True, -1, 2**70, 1.5, [1, ["x", {"k": b"v"}]], {}, {1: None}]


def test_objects_of_another_number_are_refused() -> None:
    with pytest.raises(errors.BadBody, match="number of objects"):
        decode_objects(encode_objects(np.array(["a", "b"], object)), (3,))
    with pytest.raises(errors.BadBody, match="no object array"):
        decode_objects(b"junk", (1,))


def endpoint(**members: Any) -> Endpoint:
    document = {"kind": "array", "path": "s/a", "shape": [4], "chunks": [2], "dtype": "<i4", **members}
    return Endpoint.parse(open_session(1, None, None, None), Address("http://h", "s/a"), document, None)


@pytest.mark.parametrize("broken", [{"dtype": "rubbish"}, {"shape": None}, {"chunks": ["x"]}])
def test_a_document_that_is_no_array_is_refused(broken: dict[str, Any]) -> None:
    with pytest.raises(errors.BadMetadata, match="s/a"):
        endpoint(**broken)
