"""Selection and dtype text: what is written is read back, and what is wrong is named with its place."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hyperslab import wire
from hyperslab.errors import BadSelection
from hyperslab.wire.times import cast_times, count_of

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


@pytest.mark.parametrize("wrap", [lambda item: [item], lambda item: {"a": item}, lambda item: (1, item)])
def test_nesting_of_objects_is_counted_however_deep(wrap: Callable[[Any], Any]) -> None:
    item: Any = "x"
    for _ in range(5):
        item = wrap(item)
    wire.check_nesting(["a", item, [[]]], 5)
    for _ in range(100_000):
        item = wrap(item)
    with pytest.raises(ValueError, match="more than 5 deep"):
        wire.check_nesting(["a", item, [[]]], 5)


@pytest.mark.parametrize("text", ["[[1],[[2]]]", '{"a":[{}]}', '["]]]",["\\"[[[[",[]]]', "[" * 3 + "]" * 3])
def test_nesting_of_text_is_counted_outside_of_strings(text: str) -> None:
    wire.check_text_nesting(text.encode(), 3)
    with pytest.raises(ValueError, match="more than 2 levels"):
        wire.check_text_nesting(text.encode(), 2)
    with pytest.raises(ValueError, match="more than 3 levels"):
        wire.check_text_nesting(b"[1]," * 1_000_000 + b"[" * 4, 3)


NAMES = ("Y", "M", "W", "D", "h", "m", "s", "ms", "us", "ns", "ps", "fs", "as")
LINEAR = {name: Fraction(1, 1000**power) for power, name in enumerate(NAMES[6:])} | {
    "m": Fraction(60), "h": Fraction(3600), "D": Fraction(86_400), "W": Fraction(7 * 86_400),
}  # fmt: skip
multiples = st.sampled_from([1, 7, 10, 25, 2**31 - 1])
counts = st.integers(0, 63).flatmap(lambda bits: st.integers(-(2**bits) + 1, 2**bits - 1))


@given(
    st.sampled_from("mM"),
    st.tuples(st.sampled_from([*LINEAR]), multiples),
    st.tuples(st.sampled_from([*LINEAR]), multiples),
    counts,
)
def test_times_change_their_unit_exactly_or_not_at_all(kind: str, source: Any, target: Any, count: int) -> None:
    (unit, multiple), (wanted, of) = source, target
    values = np.array([count, -(2**63)]).view(f"{kind}8[{multiple}{unit}]")
    expected = count * multiple * LINEAR[unit] // (of * LINEAR[wanted])

    try:
        found = cast_times(values, np.dtype(f">{kind}8[{of}{wanted}]"))
    except OverflowError:  # the product comes before the division
        factor = (multiple * LINEAR[unit] / (of * LINEAR[wanted])).numerator
        if abs(count * factor) < 2**63:
            raise
        return
    assert found.astype(np.int64).tolist() == [expected, -(2**63)]


@given(st.sampled_from(NAMES), multiples, st.datetimes())
def test_text_of_times_is_counted_exactly(unit: str, multiple: int, time: datetime) -> None:
    dtype, text = np.dtype(f"<M8[{multiple}{unit}]"), time.isoformat()
    seconds = Fraction((time - datetime(1970, 1, 1)) // timedelta(microseconds=1), 10**6)
    months = 12 * (time.year - 1970) + time.month - 1
    if unit in LINEAR:
        expected, rest = divmod(seconds, multiple * LINEAR[unit])
    else:
        is_first = time == datetime(time.year, time.month, 1)
        expected, rest = divmod(months + (not is_first) * Fraction(1, 2), multiple * (12 if unit == "Y" else 1))
    if abs(expected) >= 2**63:
        with pytest.raises(OverflowError):
            count_of(text, dtype)
        return
    assert count_of(text, dtype) == count_of(f"{text.replace('T', ' ')}Z", dtype) == expected
    if rest:
        with pytest.raises(ValueError, match="between two values"):
            count_of(text, dtype, exact=True)
    else:
        assert count_of(text, dtype, exact=True) == expected


@pytest.mark.parametrize(
    ("text", "unit", "count"),
    [
        ("-0044-03-15", "D", -735_525),
        ("+12345-12-31T23:59:59.999", "ms", 327_434_918_399_999),
        ("1969-12", "M", -1),
        ("0000", "10Y", -197),
        ("292277026596-12-04T15:30:07", "s", 2**63 - 1),
        ("1970-01-01T00:00:09.223372036854775807", "as", 2**63 - 1),
    ],
)
def test_times_far_away_are_counted(text: str, unit: str, count: int) -> None:
    assert count_of(text, np.dtype(f"<M8[{unit}]")) == count


@pytest.mark.parametrize(
    "text", ["", "now", "today", "2001-13", "2001-02-29", "2001-01-01T24", "2001-1-1", "2001-01-01T01:02+01", "1e3"]
)
def test_other_text_is_no_time(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        count_of(text, np.dtype("<M8[s]"))
