"""Fill values both ways: bits in, JSON out, and what other libraries make of it."""

from __future__ import annotations

import base64
import json
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from hyperslab.engine.dtypes import parse_dtype
from hyperslab.engine.fill_value import format_fill_value, parse_fill_value, parse_new_item, same_object
from hyperslab.wire.data_types import EXTENSION_FLOATS, V3_ONLY
from tests.conformance.deviations import deviation
from tests.conformance.vectors import Case, case_id, cases, is_firm
from tests.engine import dtype_strategies as dtypes
from tests.engine.oracles import tensorstore_open, zarr3_open

_FOLLOWED = [case for case in cases("fill_values") if deviation("fill_values", case["id"]) is None]
_ACCEPTED = [case for case in _FOLLOWED if case["expect"]["accept"]]


@pytest.mark.parametrize("case", [c for c in _ACCEPTED if is_firm(c)], ids=case_id)
def test_fill_value_is_written_as_tensorstore_writes_it(case: Case) -> None:
    reference = case["refs"]["tensorstore"]
    if not reference.get("accept"):
        reference = {"written_json": case["refs"]["zarr3"].get("written_json", case["fill_value"])}
    dtype = parse_dtype(case["dtype"])

    written = format_fill_value(parse_fill_value(case["fill_value"], dtype))

    assert json.dumps(written) == json.dumps(reference["written_json"])


_BIT_EXACT = (
    dtypes.integers | dtypes.complexes | dtypes.times | dtypes.byte_strings | dtypes.raw | dtypes.structured_dtypes
)


@given(st.data(), _BIT_EXACT | dtypes.structured_dtypes | st.just("bfloat16"))
def test_any_bits_survive_being_written_and_read(data: st.DataObject, spelled: Any) -> None:
    dtype = parse_dtype(spelled)
    raw = data.draw(st.binary(min_size=dtype.itemsize, max_size=dtype.itemsize))
    item = dtype.clean(np.frombuffer(raw, dtype.numpy)).reshape(())

    assert _round_trip(item, spelled).tobytes() == item.tobytes()


@given(
    st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=8),
    st.integers(1, 6),
    st.sampled_from("<>"),
)
def test_text_is_cut_at_the_length_of_the_item(text: str, length: int, order: str) -> None:
    dtype = parse_dtype(f"{order}U{length}")

    item = parse_fill_value(text, dtype)

    assert item is not None
    assert format_fill_value(item) == text[:length]
    assert item.tobytes() == np.array(text, dtype.numpy).tobytes()


@given(st.floats(allow_nan=False, width=64), st.sampled_from(["<f2", ">f4", "<f8", "<c8", ">c16"]))
def test_floats_are_rounded_as_numpy_rounds_them(number: float, spelled: str) -> None:
    dtype = parse_dtype(spelled)
    text = format_fill_value(np.array(number))
    value = [text, text] if dtype.numpy.kind == "c" else text

    item = parse_fill_value(value, dtype)

    with np.errstate(over="ignore"):
        part = np.array(number).astype(f"{spelled[0]}f{dtype.itemsize // (2 if 'c' in spelled else 1)}")
    assert item is not None
    assert item.tobytes() == part.tobytes() * (2 if dtype.numpy.kind == "c" else 1)


@pytest.mark.parametrize(
    ("spelled", "raw", "cleaned"),
    [
        ([["a", "|b1"], ["b", "<i2"]], "070100", "010100"),
        ([["a", "|b1", [3]], ["b", "|u1"]], "00ff0209", "00010109"),
        ([["a", [["b", "|u1"], ["c", "|b1"]]], ["d", "|V1"]], "078009", "070109"),
        ([["a", "int4"], ["b", "int2", [2]]], "0f0302", "fffffe"),
        ([["a", "|b1"], ["", "|V2"], ["b", "|u1"]], "02abcd05", "01abcd05"),
    ],
)
def test_bits_without_meaning_are_put_right_in_records(spelled: Any, raw: str, cleaned: str) -> None:
    """As in chunks (CONFORMANCE 49, 54): a bool is 0 or 1 wherever it goes out, the fields of a fill value included."""
    item = parse_fill_value(base64.b64encode(bytes.fromhex(raw)).decode(), parse_dtype(spelled))

    assert item is not None
    assert item.tobytes().hex() == cleaned
    assert item.shape == ()
    assert not item.flags.writeable


_MISREAD = {"float8_e8m0fnu", "float4_e2m1fn"}  # by TensorStore (CONFORMANCE 110)
_ONE_BYTE = sorted(EXTENSION_FLOATS - _MISREAD - V3_ONLY - {"bfloat16"})


@st.composite
def near_ties(draw: st.DrawFn) -> tuple[str, float]:
    """A dtype, and a number close to the middle between two of its values, or right there."""
    spelled = draw(st.sampled_from(_ONE_BYTE))
    items = np.arange(256, dtype=np.uint8).view(parse_dtype(spelled).numpy).astype(float)
    known = sorted({float(item) for item in items if math.isfinite(item)})
    place = draw(st.integers(0, len(known) - 2))
    middle = (known[place] + known[place + 1]) / 2
    return spelled, middle * (1 + draw(st.sampled_from([0, 1, -1])) * draw(st.sampled_from([1e-16, 1e-12, 1e-9, 1e-6])))


@given(near_ties())
@example(("float8_e4m3fn", 464.0))
@example(("float8_e4m3fn", 464.0000001))
@example(("float8_e4m3fn", 1.0625000000009095))
@example(("float8_e5m2", 1.1250000000009095))
@example(("float8_e5m2", 61440.001))
@example(("float8_e3m4", 1e39))
@example(("float8_e3m4", -1e-60))
def test_floats_of_8_bits_are_rounded_once_as_in_tensorstore(case: tuple[str, float]) -> None:
    spelled, number = case

    item = parse_fill_value(number, parse_dtype(spelled))

    assert item is not None
    assert item.tobytes() == tensorstore_open(_document(spelled, number))[0].read().result().tobytes()


@pytest.mark.parametrize(
    ("spelled", "value", "stored"),
    [
        ("<f4", "0x7fc00001", "0100c07f"),
        (">f4", "0xffc00001", "ffc00001"),
        ("<f2", "0x7e01", "017e"),
        ("<c8", ["0x7fc00001", 1], "0100c07f0000803f"),
        ("bfloat16", "0x7f81", "817f"),  # a signalling one
        ("<f8", math.nan, "000000000000f87f"),
        ("<f8", "1e400", "000000000000f07f"),
        ("<i8", 1e18, "000064a7b3b6e00d"),
        ("<i8", -(2.0**63), "0000000000000080"),
        ("<u8", "18446744073709551615", "ffffffffffffffff"),
        ("<u8", 2.0**63, "0000000000000080"),
        ("<u8", 1e19, "0000e8890423c78a"),
        (">u8", 2.0**64 - 2048, "fffffffffffff800"),
        ("<M8[s]", "NaT", "0000000000000080"),
        ("|S2", "", "0000"),
        ("<U1", 0, "00000000"),
        ("float4_e2m1fn", "Ag==", "02"),
        ("int4", -8, "f8"),
        ("float8_e8m0fnu", 1, "7f"),
    ],
)
def test_spelling_found_in_the_wild_is_read(spelled: str, value: Any, stored: str) -> None:
    item = parse_fill_value(value, parse_dtype(spelled))

    assert item is not None
    assert item.tobytes().hex() == stored


_MEANINGLESS: dict[str, list[Any]] = {
    "|b1": [0.0],
    "<i4": [True, math.nan, "5.0", "٣"],
    "<i8": [2.0**63, -(2.0**63) - 2048, 1e300],
    "<u8": [2.0**64, -1.0],
    "<f4": [True, "0x3f800000", "0x7fc0", "0x7fc0000", "1_000"],
    "<f8": [10**400],
    "<c8": [True, "AAAA"],
    "<M8[s]": [math.inf],
    "<M8[D]": ["2000"],  # a year to zarr-python 2
    ">m8[s]": ["5"],
    "|S3": ["YQ", "YQ==\n", 1],
    "<U3": [1, False],
    "int4": [8],
    "int2": [-3],
    "float4_e2m1fn": ["NaN", "Infinity"],
}


@pytest.mark.parametrize(("spelled", "value"), [(d, v) for d in _MEANINGLESS for v in _MEANINGLESS[d]])
def test_spelling_with_no_or_two_meanings_is_refused(spelled: str, value: Any) -> None:
    with pytest.raises(ValueError, match=r"."):
        parse_fill_value(value, parse_dtype(spelled))


@pytest.mark.parametrize(
    ("codec", "value", "read"),
    [
        ("vlen-utf8", 0, ""),
        ("vlen-utf8", "é", "é"),
        ("categorize", 0, ""),
        ("categorize", "a", "a"),
        ("vlen-bytes", 0, b""),
        ("vlen-bytes", "AGE=", b"\0a"),
        ("json2", [1, {"a": None}], [1, {"a": None}]),
        ("msgpack2", {"a": [1]}, {"a": [1]}),
        ("vlen-array", [1, 2], [1, 2]),
    ],
)
def test_fill_of_objects_means_what_their_codec_says(codec: str, value: Any, read: Any) -> None:
    dtype, codecs = parse_dtype("|O"), [{"id": codec}]

    item = parse_fill_value(value, dtype, codecs)

    assert item is not None
    assert (item.shape, item[()]) == ((), read)
    again = parse_fill_value(format_fill_value(item), dtype, codecs)
    assert again is not None
    assert again[()] == read


@given(
    st.data(),
    dtypes.bools
    | dtypes.integers
    | dtypes.floats
    | dtypes.complexes
    | st.sampled_from(["bfloat16", "float8_e4m3fn", "float8_e5m2", "int4"]),
)
def test_tensorstore_reads_what_we_write(data: st.DataObject, spelled: str) -> None:
    dtype = parse_dtype(spelled)
    raw = data.draw(st.binary(min_size=dtype.itemsize, max_size=dtype.itemsize))
    item = dtype.clean(_canonical(np.frombuffer(raw, dtype.numpy).reshape(1))).reshape(())
    document = _document(spelled, format_fill_value(item))

    theirs = np.asarray(tensorstore_open(document)[0].read().result())

    assert _canonical(theirs).astype(dtype.numpy).tobytes() == _canonical(item).tobytes()


@given(
    st.data(),
    st.sampled_from(
        ["|b1", "|i1", "<u8", ">f2", "<f4", ">f8", "<c8", ">c16", "<M8[ns]", "<m8[10s]", "|S5", "|V3", "<U3", ">U2"]
    ),
)
def test_zarr_python_reads_what_we_write(data: st.DataObject, spelled: str) -> None:
    dtype = parse_dtype(spelled)
    if dtype.numpy.kind == "U":
        item = np.array(data.draw(st.text("aé中😀", max_size=dtype.itemsize // 4)), dtype.numpy)
    else:
        raw = data.draw(st.binary(min_size=dtype.itemsize, max_size=dtype.itemsize))
        item = dtype.clean(_canonical(np.frombuffer(raw, dtype.numpy).reshape(1))).reshape(())

    theirs = np.asarray(zarr3_open(_document(spelled, format_fill_value(item)))[...])

    assert theirs.astype(dtype.numpy)[:1].tobytes() == item.tobytes()


def _document(dtype: Any, fill_value: Any) -> dict[str, Any]:
    rest = {"compressor": None, "filters": None, "order": "C", "zarr_format": 2}
    return {"shape": [2], "chunks": [2], "dtype": dtype, "fill_value": fill_value, **rest}


def _round_trip(item: np.ndarray, spelled: Any) -> np.ndarray:
    dtype = parse_dtype(spelled)
    written = json.loads(json.dumps(format_fill_value(item), allow_nan=False))
    again = parse_fill_value(written, dtype)
    assert again is not None
    assert again.dtype == dtype.numpy
    return again


def _canonical(values: np.ndarray) -> np.ndarray:
    """NaNs of floats without sign and payload, which no other library can spell."""
    if values.dtype.kind == "c":
        out = values.copy()
        out.real, out.imag = _canonical(values.real), _canonical(values.imag)
        return out
    if values.dtype.kind in "biuSUVmM" and "float" not in values.dtype.name:
        return values
    with np.errstate(invalid="ignore"):  # ml_dtypes beside numpy 2.4 complains of NaNs with a payload
        missing = np.isnan(values)
    return np.where(missing, np.array(math.nan).astype(values.dtype), values).astype(values.dtype)


_SCALARS = st.none() | st.booleans() | st.integers(-2, 2) | st.sampled_from([0.0, -0.0, 1.0, math.nan, "", "0"])
_OBJECTS = st.recursive(
    _SCALARS, lambda v: st.lists(v, max_size=2) | st.dictionaries(st.sampled_from("ab"), v, max_size=2)
)


@given(_OBJECTS, st.data())
def test_objects_are_the_same_where_their_text_is(a: Any, data: st.DataObject) -> None:
    """The text of Python's JSON values shows types, signs and the order of members."""
    b = data.draw(st.just(json.loads(json.dumps(a))) | st.sampled_from([[a], {"a": a}, 0, False, 0.0, None]))

    assert same_object(a, b) == (repr(a) == repr(b))


def test_objects_may_nest_deeper_than_python_calls() -> None:
    one: Any = []
    other: Any = []
    for _ in range(20_000):
        one, other = [one], [other]

    assert same_object(one, other)
    assert not same_object(one, [other])
    assert not same_object(np.zeros(2), np.zeros(2))


_TOO_LARGE: dict[str, list[Any]] = {
    "<f4": [1e300, -1e300, 10**300, "1e300"],
    "<f2": [65520],
    "<f8": ["1e999"],
    "<c8": [[0, 1e300], 1e300],
    "bfloat16": [1e39],
    "float8_e4m3fn": [1000],
    "float8_e8m0fnu": [-1],
    "float4_e2m1fn": [7],
}


@pytest.mark.parametrize(("dtype", "value"), [(dtype, value) for dtype in _TOO_LARGE for value in _TOO_LARGE[dtype]])
def test_a_new_number_that_does_not_fit_is_refused_and_a_stored_one_is_read(dtype: str, value: Any) -> None:
    with pytest.raises(ValueError, match="out of range"):
        parse_new_item(value, parse_dtype(dtype))

    assert parse_fill_value(value, parse_dtype(dtype)) is not None


def test_new_text_that_would_be_cut_is_refused_and_stored_text_is_cut() -> None:
    with pytest.raises(ValueError, match="longer than 3"):
        parse_new_item("abcd", parse_dtype("<U3"))

    stored = parse_fill_value("abcd", parse_dtype("<U3"))
    assert stored is not None
    assert stored[()] == "abc"


_INFINITE = base64.b64encode(np.array(complex(0, math.inf), "<c8").tobytes()).decode()
_FITTING: dict[str, list[Any]] = {
    "<f4": [3.4028235e38, "Infinity", math.inf, "NaN", 1e-300],
    "<f2": [65519],
    "<c8": [["-Infinity", 1], _INFINITE],
    "float8_e4m3fn": ["NaN"],
    "float4_e2m1fn": [6],
    "<i4": [5],
    "<M8[s]": ["NaT"],
    "<U3": ["abc"],
}


@pytest.mark.parametrize(("dtype", "value"), [(dtype, value) for dtype in _FITTING for value in _FITTING[dtype]])
def test_any_other_new_value_is_taken_as_if_it_were_stored(dtype: str, value: Any) -> None:
    new, stored = parse_new_item(value, parse_dtype(dtype)), parse_fill_value(value, parse_dtype(dtype))

    assert new is not None
    assert stored is not None
    assert new.tobytes() == stored.tobytes()
