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
    ],
)
def test_numpy_text_is_understood(text: str, expected: tuple[Any, ...]) -> None:
    assert wire.parse_selection(text) == expected


@pytest.mark.parametrize(
    ("text", "part", "position"),
    [
        ("1,,2", "", 2),
        ("1,", "", 2),
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
        ("9" * 20, "9" * 20, 0),
    ],
)
def test_a_wrong_part_is_named_with_its_position(text: str, part: str, position: int) -> None:
    with pytest.raises(BadSelection) as caught:
        wire.parse_selection(text)

    assert (caught.value.select, caught.value.part, caught.value.position) == (text, part, position)


@pytest.mark.parametrize(
    "dtype",
    [
        "<u2",
        ">f8",
        "|b1",
        "|S5",
        "<U3",
        "|V7",
        "<M8[10s]",
        ">m8[ns]",
        "<c16",
        [("x", "<i4", (2, 3)), ("y", [("z", ">u2")])],
    ],
)
def test_a_dtype_is_read_back_as_it_was_written(dtype: Any) -> None:
    assert wire.parse_dtype(wire.format_dtype(np.dtype(dtype))) == np.dtype(dtype)


@pytest.mark.parametrize("name", ["bfloat16", "float8_e5m2", "float8_e4m3fn", "int4", "int2"])
def test_extension_dtypes_travel_by_name(name: str) -> None:
    dtype = wire.dtype_from_json(name)

    assert dtype.name == name
    assert wire.format_dtype(dtype) == f'"{name}"'
