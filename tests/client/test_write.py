from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from datetime import datetime
from typing import Any

import numpy as np
import pytest

from hyperslab import RemoteArray, errors, wire
from hyperslab.client.values import as_values
from tests.client.proxy import Proxy
from tests.faults import Before

Array = np.ndarray[Any, np.dtype[Any]]

RECORD = [["x", "<i4"], ["s", "|S3"], ["y", "<f4", [2]]]


def make(proxy: Proxy, values: Array, chunks: tuple[int, ...], **members: Any) -> RemoteArray:
    return RemoteArray(proxy.add("store/a", values, chunks, **members))


def stored(proxy: Proxy) -> Array:
    return proxy.values("store/a")


@pytest.mark.parametrize(
    ("dtype", "value"),
    [
        ("<u2", 7),
        ("<f4", np.inf),
        ("<c8", 1 + 2j),
        ("<M8[s]", np.datetime64("2020-01-01")),
        ("|S4", b"abc"),
        ("<U3", "äb"),
    ],
)
def test_one_value_for_many_cells_travels_once(proxy: Proxy, dtype: str, value: Any) -> None:
    make(proxy, np.zeros((20, 20), dtype), (8, 8))[3:19] = value

    (call,) = proxy.calls_of("slice", "PUT")
    assert call.headers["Content-Type"] == wire.NPY
    assert len(call.body) < 200
    expected = np.zeros((20, 20), dtype)
    expected[3:19] = value
    assert np.array_equal(stored(proxy), expected)


@pytest.mark.parametrize(("kind", "key"), [("oindex", slice(None)), ("vindex", ([0, 1],))])
def test_values_are_released_when_they_are_written(proxy: Proxy, kind: str, key: Any) -> None:
    array, values = make(proxy, np.zeros(2, "<i4"), (2,)), np.arange(2, dtype="<i4")
    sent = weakref.ref(values)
    gc.disable()  # which would also find what refers to itself
    try:
        getattr(array, kind)[key] = values
        del values
        assert sent() is None
    finally:
        gc.enable()


@pytest.mark.parametrize("bits", ["0100c07f", "0000c0ff", "00000080"], ids=["payload", "-NaN", "-0.0"])
def test_one_value_keeps_all_its_bits(proxy: Proxy, bits: str) -> None:
    value = np.frombuffer(bytes.fromhex(bits), "<f4")[0]

    make(proxy, np.zeros(3, "<f4"), (2,))[...] = value

    assert stored(proxy).tobytes().hex() == 3 * bits


def test_progress_reaches_its_end_where_an_index_comes_twice_and_for_objects(proxy: Proxy) -> None:
    told: list[tuple[int, int]] = []
    twice, objects = np.zeros((6, 4), "<i4"), np.array(["", "", ""], object)
    cases: list[tuple[str, Array, Any, Any]] = [
        ("vindex", twice, ([1, 1, 2], [0, 0, 3]), [7, 8, 9]),
        ("oindex", twice, ([1, 1, 2], slice(None)), np.arange(12).reshape(3, 4)),
        ("oindex", twice, ([1, 1, 2], slice(None)), 5),
        ("oindex", twice, (slice(None), [0, 0]), np.arange(12).reshape(6, 2)),
        ("oindex", objects, slice(1, None), ["ü", "b" * 100]),
    ]
    for kind, values, key, value in cases:
        told.clear()
        codec = {"filters": [{"id": "vlen-utf8"}]} if values is objects else {}
        url = proxy.add("store/a", values, (2,) * values.ndim, **codec)
        array = RemoteArray(url, progress=lambda done, total: told.append((done, total)))

        getattr(array, kind)[key] = value

        assert told[-1][0] == told[-1][1] > 0
        assert [done for done, _ in told] == sorted(done for done, _ in told)


def test_points_are_written_by_one_request_and_meshes_and_blocks_as_boxes(proxy: Proxy) -> None:
    expected = np.zeros((10, 12), "<i8")
    array = make(proxy, expected, (4, 5))

    array.vindex[np.array([1, 5, 9, -7]), np.array([0, 11, -1, 7])] = [4, 5, 6, 7]
    array.oindex[[1, 7, 3], [0, 11]] = np.arange(6).reshape(3, 2)
    array.blocks[2, -1] = -1

    expected[[1, 5, 9, -7], [0, 11, -1, 7]] = [4, 5, 6, 7]
    expected[np.ix_([1, 7, 3], [0, 11])] = np.arange(6).reshape(3, 2)
    expected[8:, 10:] = -1
    assert np.array_equal(stored(proxy), expected)
    assert len(proxy.calls_of("points", "POST")) == 1


def test_a_part_of_a_subarray_at_points_is_refused(proxy: Proxy) -> None:
    array = make(proxy, np.zeros(4, [("y", "<f8", (2,))]), (2,))

    with pytest.raises(IndexError, match="subarrays"):
        array["y", [0, 1], [0, 1]] = 3.0
    with pytest.raises(IndexError, match="one field"):
        array[["y"]] = 3.0


def test_nothing_is_sent_for_an_empty_selection_or_values_of_another_shape(proxy: Proxy) -> None:
    array = make(proxy, np.zeros((4, 3)), (2, 2))

    array[2:2] = 5
    array[np.zeros((4, 3), bool)] = []
    assert array.append(np.zeros((0, 3))) == 4
    for value in (np.zeros((2, 3)), np.zeros((2, 1, 3)), np.zeros(4)):
        with pytest.raises(ValueError, match="could not broadcast"):
            array[:3] = value
    for data in (np.zeros((2, 4)), np.zeros(3), np.zeros((1, 2, 3))):
        with pytest.raises(ValueError, match="cannot append"):
            array.append(data)
    for axis in (2, -3):
        with pytest.raises(IndexError, match=rf"axis {axis} is out of bounds for array of dimension 2"):
            array.append([1.0], axis=axis)
    assert not proxy.calls_of("slice", "PUT")
    assert not proxy.calls_of("append", "POST")


@pytest.mark.parametrize(
    ("dtype", "value", "error"),
    [
        ("<i4", 1.5, TypeError),
        ("<i4", np.nan, TypeError),
        ("|u1", np.array([0.0, 1.0, 2.0]), TypeError),
        ("|u1", 256, OverflowError),
        ("|u1", np.array([0, -1, 2]), OverflowError),
        ("<f4", 1j, TypeError),
        ("|b1", 2, OverflowError),
        ("<i4", "7", TypeError),
        ("<M8[s]", 5.0, TypeError),
        ("<i4", [1, 2.0, 3], TypeError),
        ("<i4", [1, None, 3], TypeError),
        ("<i4", np.zeros(0), TypeError),
        ("<u8", [2**64, 0, 1], OverflowError),
        ("<i4", 2**70, OverflowError),
        ("<f8", 10**400, OverflowError),
        ("<f4", [1, 2.5, 1e300], OverflowError),
        ("<f2", 70000, OverflowError),
        ("<c8", complex(0, -1e300), OverflowError),
        ("bfloat16", 1e300, OverflowError),
        ("int4", 1.7, TypeError),
        ("int4", [8], OverflowError),
        ("<U3", "abcdef", OverflowError),
        ("<U3", 12345, OverflowError),
        ("|S3", b"abcdef", OverflowError),
        ("|V3", np.void(b"abcd"), OverflowError),
        ("|V4", 1, TypeError),
        ("|V4", True, TypeError),
        ("|V4", "a", TypeError),
        ("<M8[ns]", np.datetime64(10**15, "s"), OverflowError),
        ("<m8[s]", 2**64 - 1, OverflowError),
        ("<m8[s]", np.array([0, 2**63, 1], "<u8"), OverflowError),
        ("<m8[s]", -(2**63), OverflowError),
        (RECORD, (1.7, b"a", [1, 2]), TypeError),
        (RECORD, (1, b"abcd", [1, 2]), OverflowError),
        (RECORD, [(1, b"a", [1, 2]), (2**40, b"a", [1, 2])], OverflowError),
        (RECORD, np.zeros(3, [("x", "<f8"), ("s", "S3"), ("y", "<f4", (2,))]), TypeError),
        (RECORD, np.zeros(3, [("x", "<i4"), ("s", "S3"), ("y", "<f4", (1,))]), TypeError),
        (RECORD, np.zeros(3), TypeError),
    ],
)
def test_values_that_would_change_are_refused(dtype: Any, value: Any, error: type[Exception]) -> None:
    with pytest.raises(error):
        as_values(value, wire.dtype_from_json(dtype))


def test_what_is_refused_is_not_sent(proxy: Proxy) -> None:
    """Nor arrays of any length, for which the same rules hold."""
    array = make(proxy, np.zeros(3, "<i4"), (2,))
    empty = np.empty(3, object)
    empty[:] = [np.zeros(0, "<i4")] * 3
    ragged = RemoteArray(proxy.add("store/r", empty, (2,), filters=[{"id": "vlen-array", "dtype": "<i4"}]))
    given: list[Any] = [[[1.7, 2]], [["5"]], [[1], [2**40]], [np.array([1.5])]]
    for items in given:
        values = np.empty(len(items), object)
        values[:] = items
        with pytest.raises((TypeError, OverflowError)):
            ragged[: len(items)] = values
        with pytest.raises((TypeError, OverflowError)):
            ragged.append(values)
    with pytest.raises(TypeError):
        array[...] = 1.5
    with pytest.raises(OverflowError):
        array.append([2**40])
    assert not proxy.calls_of("slice", "PUT")
    assert not proxy.calls_of("append", "POST")


@pytest.mark.parametrize(
    ("dtype", "value"),
    [
        ("|u1", [0, 255, 7]),
        ("|b1", [0, 1, True]),
        ("<f4", [1, 2.5, 1e30]),
        ("<f4", [1, np.inf, 0.1]),
        ("<u8", [2**64 - 1, 0, 1]),
        ("<f8", [2**70, 0, 1.5]),
        ("|u1", np.array([1, 2, 3], object)),
        ("|S3", ["abc", "d", ""]),
        ("<U3", [b"abc", "d", "äöü"]),
        ("<M8[s]", [datetime(2020, 1, 1, 5), np.datetime64("2020-01-01"), None]),
        ("<M8[D]", np.datetime64("2020-01-01T05:06")),
        ("<m8[s]", np.timedelta64(1500, "ms")),
        ("<m8[s]", 5),
        ("<m8[s]", [2**63 - 1, 0, 1 - 2**63]),
        ("|V4", [b"abcd", b"a\0b", b""]),
        (RECORD, [(1, b"abc", [1, 2]), (2, "ab", [3, 4]), (3, b"", (5, 6))]),
        (RECORD, np.ones(3, [("a", ">i8"), ("b", "S1"), ("c", ">f8", (2,))])),
        (">i2", np.arange(3, dtype="<u8")),
        ("<M8[ms]", ["2020-01-01", "2021-01-01", "NaT"]),
        ("<c16", [1, 2.0, 3j]),
        ("bfloat16", [1.5, 2, 3]),
        ("int4", [-8, 7, 0]),
    ],
)
def test_values_that_fit_are_converted(dtype: Any, value: Any) -> None:
    native = wire.dtype_from_json(dtype)
    found, expected = np.empty(3, native), np.empty(3, native)
    found[...], expected[...] = as_values(value, native), np.asarray(value, native)

    assert repr(found.tolist()) == repr(expected.tolist())


@pytest.mark.parametrize("dtype", ["<i4", "|S3", "<M8[s]", "bfloat16", RECORD])
def test_an_empty_list_is_of_any_dtype(dtype: Any) -> None:
    assert as_values([], wire.dtype_from_json(dtype)).shape == (0,)


def test_a_long_append_goes_in_parts_that_follow_each_other(limited: Callable[..., Proxy]) -> None:
    proxy = limited(max_upload_bytes=400)
    array = make(proxy, np.zeros((0, 4), "<i4"), (10, 4))
    values = np.arange(400, dtype="<i4").reshape(100, 4)

    assert array.append(values) == 0

    calls = proxy.calls_of("append", "POST")
    assert [call.query.get("at") for call in calls] == [None, "20", "40", "60", "80"]
    assert len({call.headers[wire.IDEMPOTENCY_KEY] for call in calls}) == 5
    assert np.array_equal(stored(proxy), values)


def test_an_appender_that_comes_in_between_is_an_error(limited: Callable[..., Proxy]) -> None:
    proxy = limited(max_upload_bytes=400)
    array = make(proxy, np.zeros((0, 4), "<i4"), (10, 4))

    def intrude() -> None:
        proxy.node("store/a").resize((50, 4))

    proxy.fail(Before(lambda: None), Before(intrude), route="append", method="POST")

    with pytest.raises(errors.AppendConflict) as caught:
        array.append(np.zeros((100, 4), "<i4"))
    assert (caught.value.at, caught.value.length) == (20, 50)


def test_a_field_cannot_be_appended_to(proxy: Proxy) -> None:
    array = make(proxy, np.zeros(4, [("x", "<i4")]), (2,))

    with pytest.raises(ValueError, match="whole items"):
        array.with_field("x").append([1])
