"""Selection and dtype text: what is written is read back, and what is wrong is named with its place."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hyperslab import wire
from hyperslab.errors import BadSelection

integers = st.integers(-(10**18), 10**18)
bounds = st.none() | integers
slices = st.builds(slice, bounds, bounds, st.none() | integers.filter(bool))
items = st.lists(integers | slices | st.lists(integers, max_size=4), max_size=5)


@given(items, st.none() | st.integers(0, 5))
def test_a_selection_is_read_back_as_it_was_written(selection: list[Any], ellipsis: int | None) -> None:
    if ellipsis is not None:
        selection.insert(min(ellipsis, len(selection)), Ellipsis)

    assert wire.parse_selection(wire.format_selection(selection)) == tuple(selection)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", ()),
        ("  ", ()),
        ("5", (5,)),
        ("-1,+2", (-1, 2)),
        (" 0:10 , ::-2, ..., [1, 5,9] ", (slice(0, 10, None), slice(None, None, -2), Ellipsis, [1, 5, 9])),
        ("[]", ([],)),
        (":", (slice(None, None, None),)),
        ("1, ", (1,)),
        ("[1,2,],...,", ([1, 2], Ellipsis)),
    ],
)
def test_numpy_text_is_understood(text: str, expected: tuple[Any, ...]) -> None:
    assert wire.parse_selection(text) == expected


@pytest.mark.parametrize(
    ("text", "part", "position"),
    [
        ("1,,2", "", 2),
        ("1,,", "", 2),
        (",", "", 0),
        ("[,]", "", 1),
        ("[1,,]", "", 3),
        ("0:1, x", "x", 5),
        ("1:2:3:4", "1:2:3:4", 0),
        ("0:5:0", "0:5:0", 0),
        ("[1,2", "[1,2", 0),
        ("1]", "]", 1),
        ("[[1]]", "[", 1),
        ("[1]2", "[1]2", 0),
        ("..., 1, ...", "...", 8),
        ("٣", "٣", 0),
        ("1_0", "1_0", 0),
        ("0x1", "0x1", 0),
        ("1.0", "1.0", 0),
        ("9" * 1001, "9" * 1001, 0),
    ],
)
def test_a_wrong_part_is_named_with_its_position(text: str, part: str, position: int) -> None:
    with pytest.raises(BadSelection) as caught:
        wire.parse_selection(text)

    assert (caught.value.select, caught.value.part, caught.value.position) == (text, part, position)


ALIGNED = np.dtype([("a", "u1"), ("b", "<i4", (2,)), ("c", "u1")], align=True)
DTYPES = ["<u2", ">f8", "|b1", "|S5", "<U3", "|V7", "<M8[10s]", ">m8[ns]", "<c16", [("x", "<i4", (2, 3)), ("y", "u1")]]


@pytest.mark.parametrize("dtype", [*DTYPES, ALIGNED, [("outer", ALIGNED), ("d", ">f8")]], ids=str)
def test_a_dtype_is_read_back_as_it_was_written(dtype: Any) -> None:
    assert wire.parse_dtype(wire.format_dtype(np.dtype(dtype))) == np.dtype(dtype)


def test_padding_is_a_field_without_a_name_and_extension_dtypes_travel_by_name() -> None:
    padded = [["a", "|u1"], ["", "|V3"], ["b", "<i4", [2]], ["c", "|u1"], ["", "|V3"]]
    assert wire.dtype_to_json(ALIGNED) == padded
    for name in ("bfloat16", "float8_e5m2", "int4"):
        assert wire.dtype_from_json(name).name == name
        assert wire.format_dtype(wire.dtype_from_json(name)) == f'"{name}"'


texts = st.text(st.characters(codec="utf-8")) | st.just("\ud800")
scalars = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | texts | st.binary()
objects = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts | st.integers() | st.binary(), inner, max_size=3),
    max_leaves=8,
)


@given(st.lists(objects, max_size=6))
def test_objects_are_read_back_as_they_were_written(items: list[Any]) -> None:
    read = wire.unpack_objects(wire.pack_objects(items))

    assert read == items
    assert [type(item) for item in read] == [type(item) for item in items]


@pytest.mark.parametrize("text", ["<M8[01s]", "m8[ 2s]", "M8[+2D]", "M8[s/2]", "<M8[1s/2]", "i4,M8[01s]", "a5"])
def test_a_unit_of_time_in_another_form_than_a_count_and_a_name_never_reaches_numpy(text: str) -> None:
    """Some of them would end the process: no exception, a signal. These would not, and the same rule refuses them."""
    for value in (text, [["a", text]], [["a", [["b", text, [2]]]]]):
        with pytest.raises(ValueError, match=r"unit of time|giving up"):
            wire.dtype_from_json(value)


@pytest.mark.parametrize("dtype", ["<i4", ">u2", "|b1", "<f2", "<c16", "<M8[10s]", "|S3", "<U2", "|V5", "bfloat16"])
def test_arrays_among_objects_keep_dtype_and_bytes(dtype: str) -> None:
    values = np.frombuffer(bytes(240), wire.dtype_from_json(dtype))

    (read,) = wire.unpack_objects(wire.pack_objects([values]))

    assert read.dtype == values.dtype
    assert read.tobytes() == values.tobytes()


def test_the_layout_of_objects_is_the_documented_one() -> None:
    body = wire.pack_objects(["é", b"\0", None, True, -129, [1], np.array([1, 2], ">i2")])

    lengths = b"".join(size.to_bytes(4, "little") for size in (2, 1, 0, 1, 2, 10, 8))
    items = b"\xc3\xa9" + b"\0" + b"\1" + b"\x7f\xff" + b"\1\0\0\0i\1\0\0\0\1" + b"\3>i2\0\1\0\2"
    assert body == b"\7\0\0\0" + b"sb0?ila" + lengths + items


@given(
    st.binary(max_size=60) | st.builds(lambda n, rest: n.to_bytes(4, "little") + rest, st.integers(0, 9), st.binary())
)
def test_junk_is_refused_or_read_and_never_fails_otherwise(body: bytes) -> None:
    try:
        wire.unpack_objects(body)
    except ValueError:
        return


@pytest.mark.parametrize(
    "body",
    [
        *(b"", b"\xff\xff\xff\xff", b"\1\0\0\0s\xff\xff\xff\xff", b"\1\0\0\0s\0\0\0\0rest"),
        *(b"\1\0\0\0z\0\0\0\0", b"\1\0\0\0?\1\0\0\0\2", b"\1\0\0\0a\3\0\0\0\2|O"),
        b"\1\0\0\0m\x09\0\0\0\1\0\0\x000\0\0\0\0",
    ],
)
def test_bodies_that_lie_are_refused(body: bytes) -> None:
    with pytest.raises(ValueError, match=r".+"):
        wire.unpack_objects(body)


def test_lists_without_end_are_refused_both_ways() -> None:
    body, item = wire.pack_objects([]), []  # type: tuple[bytes, list[Any]]
    for _ in range(200):
        body, item = b"\1\0\0\0l" + len(body).to_bytes(4, "little") + body, [item]

    with pytest.raises(ValueError, match="nested"):
        wire.unpack_objects(body)
    with pytest.raises(ValueError, match="nested"):
        wire.pack_objects(item)
