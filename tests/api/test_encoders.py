"""Values as JSON, npy and CSV."""

from __future__ import annotations

import base64
import csv
import io
import json
import math
from typing import Any

import ml_dtypes
import numpy as np
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from numpy.typing import NDArray

from hyperslab.api.values_out import check_form, encode_csv, encode_json, encode_objects, npy_header
from hyperslab.errors import NotRepresentable

SHAPES = hnp.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=5)
NUMBERS = st.one_of(
    hnp.boolean_dtypes(),
    hnp.integer_dtypes(endianness="?"),
    hnp.unsigned_integer_dtypes(endianness="?"),
    hnp.floating_dtypes(endianness="?"),
)
_WORDS = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}


def load(body: bytes) -> Any:
    """Strict JSON: Python's own leniency about NaN is off."""

    def refuse(word: str) -> Any:
        raise AssertionError(f"{word} is not JSON")

    return json.loads(body, parse_constant=refuse)


def spelt(values: Any) -> Any:
    """The nested lists of `encode_json` with its words turned back into numbers."""
    if isinstance(values, list):
        return [spelt(value) for value in values]
    return _WORDS.get(values, values) if isinstance(values, str) else values


@given(st.data())
def test_numbers_survive_json(data: st.DataObject) -> None:
    dtype = data.draw(NUMBERS)
    values = data.draw(hnp.arrays(dtype, data.draw(SHAPES)))

    back = np.array(spelt(load(encode_json(values))), dtype=dtype).reshape(values.shape)

    np.testing.assert_array_equal(back, values)


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (np.array([True, False]), [True, False]),
        (np.array([1 + 2j, complex(math.nan, math.inf)], "<c8"), [[1.0, 2.0], ["NaN", "Infinity"]]),
        (np.array(["2020-01-02", "NaT"], "<M8[D]"), ["2020-01-02", "NaT"]),
        (np.array(["2020-01-02T03:04:05.123456789"], ">M8[ns]"), ["2020-01-02T03:04:05.123456789"]),
        (np.array([5, "NaT"], "<m8[s]"), [5, "NaT"]),
        (np.array([b"ab", b"\xff\x00c", "µ".encode()], "|S3"), ["ab", "\\xff\x00c", "µ"]),
        (np.array(["ä", "\ud800"], "<U1"), ["ä", "?"]),
        (np.array([b"\x01\x02"], "|V2"), [base64.b64encode(b"\x01\x02").decode()]),
        (np.array([1.5, 2], ml_dtypes.bfloat16), [1.5, 2.0]),
        (np.array([-1, 7], ml_dtypes.int4), [-1, 7]),
        (
            np.array([["a", None], [{"k": [1, b"x"]}, np.arange(2)]], object),
            [["a", None], [{"k": [1, "eA=="]}, [0, 1]]],
        ),
    ],
)
def test_every_other_kind_has_its_own_form(values: NDArray[Any], expected: Any) -> None:
    assert load(encode_json(values)) == expected


def test_records_are_objects_whatever_is_in_them() -> None:
    dtype = [("x", "<i4"), ("sub", "<f4", (2, 2)), ("in", [("name", "|S2"), ("z", "<c8")])]
    values = np.zeros((2, 1), dtype)
    values["x"] = [[1], [2]]
    values["sub"][1, 0] = np.nan
    values["in"]["name"] = b"hi"

    found = load(encode_json(values))

    assert found[0][0] == {"x": 1, "sub": [[0.0, 0.0], [0.0, 0.0]], "in": {"name": "hi", "z": [0.0, 0.0]}}
    assert found[1][0]["sub"] == [["NaN", "NaN"], ["NaN", "NaN"]]
    assert load(encode_json(values[0, 0]))["x"] == 1


def test_code_points_beyond_unicode_are_refused() -> None:
    broken = np.frombuffer(b"\xff\xff\xff\x7f", "<U1")

    with pytest.raises(NotRepresentable):
        encode_json(broken)


@given(SHAPES, st.sampled_from(["<u2", ">f8", "|b1", "<M8[ns]", "|S7", "<U3", "|V5", "<c16"]))
def test_an_npy_body_loads_as_numpy_would_have_saved_it(shape: tuple[int, ...], dtype: str) -> None:
    values = np.zeros(shape, dtype)

    loaded = np.load(io.BytesIO(npy_header(shape, values.dtype) + values.tobytes()), allow_pickle=False)

    assert loaded.dtype == values.dtype
    np.testing.assert_array_equal(loaded, values)


@pytest.mark.parametrize("count", [1, 3, 300])
@pytest.mark.parametrize("name", ["field", "größe", "long" * 100])
def test_an_npy_header_of_records_takes_the_version_it_needs(count: int, name: str) -> None:
    dtype = np.dtype([(f"{name}{i}", "<i4", (2,)) for i in range(count)])
    values = np.ones(2, dtype)

    header = npy_header(values.shape, dtype)

    assert len(header) % 64 == 0
    loaded = np.lib.format.read_array(io.BytesIO(header + values.tobytes()), max_header_size=1 << 20)
    assert (loaded.dtype, loaded.tobytes()) == (dtype, values.tobytes())


@pytest.mark.parametrize("item", [{1, 2}, object(), np.zeros((2, 2))])
def test_objects_that_no_codec_makes_are_refused(item: Any) -> None:
    values = np.empty(1, object)
    values[0] = item

    with pytest.raises(NotRepresentable):
        encode_objects(values)


@pytest.mark.parametrize("depth", [101, 600, 100_000])
def test_objects_nested_without_end_are_refused_in_every_form(depth: int) -> None:
    values = np.empty(1, object)
    values[0] = []
    for _ in range(depth):
        values[0] = [values[0]]

    for encode in (encode_objects, encode_json, encode_csv):
        with pytest.raises(NotRepresentable, match="nested"):
            encode(values)


@given(st.data())
def test_numbers_survive_csv(data: st.DataObject) -> None:
    dtype = data.draw(NUMBERS)
    shape = data.draw(hnp.array_shapes(min_dims=0, max_dims=2, min_side=1, max_side=5))
    values = data.draw(hnp.arrays(dtype, shape))

    rows = list(csv.reader(io.StringIO(encode_csv(values).decode())))

    table = values.reshape(-1, 1) if values.ndim < 2 else values
    parse = {"true": True, "false": False, **_WORDS}
    back = [
        [parse[cell] if cell in parse else (float(cell) if dtype.kind == "f" else int(cell)) for cell in row]
        for row in rows
    ]
    np.testing.assert_array_equal(np.array(back, dtype), table)


def test_records_are_columns_with_a_header() -> None:
    values = np.zeros(2, [("x", "<i4"), ("sub", "<f4", (2,)), ("in", [("t", "<M8[D]"), ("name", "<U4")])])
    values["in"]["name"] = ['a"b', "c,d"]

    rows = list(csv.reader(io.StringIO(encode_csv(values).decode())))

    assert rows[0] == ["x", "sub[0]", "sub[1]", "in.t", "in.name"]
    assert rows[1:] == [["0", "0.0", "0.0", "1970-01-01", 'a"b'], ["0", "0.0", "0.0", "1970-01-01", "c,d"]]


@pytest.mark.parametrize(
    ("values", "text"),
    [
        (np.array([1 + 2j, -1j]), "1+2j\n-0-1j\n"),
        (np.array([["a", "b c"]]), "a,b c\n"),
        (np.array([b"x"], object), "eA==\n"),
        (np.array([[1, 2], None], object), '"[1,2]"\n""\n'),
        (np.array(["NaT"], "m8[s]"), "NaT\n"),
        (np.array([np.nan, 1], ml_dtypes.bfloat16), "NaN\n1.0\n"),
        (np.array(7), "7\n"),
        (np.zeros((0, 3)), ""),
        (np.zeros((2, 0)), ""),
    ],
)
def test_other_cells_are_text(values: NDArray[Any], text: str) -> None:
    assert encode_csv(values).decode() == text


@pytest.mark.parametrize("values", [np.zeros((1, 1, 1)), np.zeros((1, 1), [("a", "i4")])])
def test_what_is_no_table_is_refused(values: NDArray[Any]) -> None:
    with pytest.raises(NotRepresentable):
        encode_csv(values)


def test_objects_are_never_pickled() -> None:
    with pytest.raises(NotRepresentable, match="pickle"):
        check_form("npy", (1,), np.dtype(object))


@pytest.mark.parametrize("shape", [(2_500_000,), (2, 1_200_000), (1_500_000, 2), (1, 2, 1_200_000)])
def test_many_numbers_are_encoded_in_parts_as_if_they_were_encoded_at_once(shape: tuple[int, ...]) -> None:
    """As each part keeps Python's lock from others."""
    values = (np.arange(math.prod(shape)) % 250).astype("u1").reshape(shape)
    assert encode_json(values) == orjson.dumps(values, option=orjson.OPT_SERIALIZE_NUMPY)
    odd = values.astype("f4")
    odd[..., -1] = np.nan
    assert encode_json(odd) == orjson.dumps(odd, option=orjson.OPT_SERIALIZE_NUMPY).replace(b"null", b'"NaN"')
