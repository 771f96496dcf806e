from __future__ import annotations

import multiprocessing
import threading
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from typing import Any

import dask.array
import numpy as np
import pytest

from hyperslab import RemoteArray, errors, wire
from tests.client.proxy import Proxy
from tests.client.strategies import assert_same

Array = np.ndarray[Any, np.dtype[Any]]

CUBE = np.arange(10 * 11 * 12, dtype="<i4").reshape(10, 11, 12)
RECORDS = np.zeros((6, 5), [("x", "<i4"), ("y", ">f8", (2, 3)), ("z", "|S3")])
RECORDS["x"] = np.arange(30).reshape(6, 5)
RECORDS["y"] = np.arange(180).reshape(6, 5, 2, 3)
RECORDS["z"] = b"ab"


def open_copy(proxy: Proxy, values: Array, chunks: tuple[int, ...], **members: Any) -> RemoteArray:
    return RemoteArray(proxy.add(f"store/a{len(proxy.root['store'])}", values, chunks, **members))


RANDOM = np.random.default_rng(0)


@pytest.mark.parametrize(
    ("shape", "key", "requests"),
    [
        ((400, 500), tuple(RANDOM.integers(0, 400, (2, 1000))), {("points", "POST"): 1}),
        ((300, 400), RANDOM.random((300, 400)) < 0.5, {("slice", "GET"): 2}),
        ((20, 20, 900), (np.arange(20), np.arange(20)), {("slice", "GET"): 20}),
    ],
    ids=["scattered", "a dense mask", "planes"],
)
def test_points_are_gathered_or_read_as_boxes(proxy: Proxy, shape: Any, key: Any, requests: Any) -> None:
    values = np.arange(np.prod(shape), dtype="<u4").reshape(shape)

    assert_same(open_copy(proxy, values, tuple(n // 10 for n in shape))[key], values[key])
    sent = Counter((call.route, call.method) for call in proxy.calls if call.route != "metadata")
    assert sent.keys() == requests.keys()
    assert sent <= Counter(requests)


def test_many_points_are_split_by_the_servers_limit(limited: Callable[..., Proxy]) -> None:
    proxy = limited(max_points=7)
    array = RemoteArray(proxy.add("store/a", CUBE, (3, 4, 5)))
    picked = np.random.default_rng(1).integers(0, 10, (3, 50))

    assert_same(array.vindex[tuple(picked)], CUBE[tuple(picked)])
    assert 413 not in [status for *_, status in proxy.answers]


def test_long_lists_are_split_over_requests_with_short_urls(proxy: Proxy) -> None:
    values = np.arange(20_000 * 3, dtype="<i8").reshape(20_000, 3)
    rows = np.random.default_rng(0).permutation(20_000)[:5000]

    assert_same(open_copy(proxy, values, (100, 3))[rows], values[rows])
    assert all(len(str(call.query)) < 6000 for call in proxy.calls)


FIELDS: list[Any] = [
    "x",
    ("x", slice(0, 2)),
    ("x", 1, 2),
    (slice(0, 2), "x"),
    ["x", "z"],
    (["x", "z"], 1),
    "y",
    ("y", 1, 2, 0),
    ("y", ..., 1),
    ("y", slice(None), [0, 1], [1, 0]),
    ("y", [0, 1], slice(None), [1, 0]),
    ("y", [0, 1], [2, 3], slice(None), slice(None, None, 2)),
    ("y", 0, slice(None), [0, 1], [2, 0]),
    ("y", [0, 1], [2, 3], [1, 0], [2, 0]),
    0,
    (1, 2),
    ...,
]


def test_fields_are_read_as_in_numpy(proxy: Proxy) -> None:
    array = open_copy(proxy, RECORDS, (2, 2))
    for key in FIELDS:
        parts = key if isinstance(key, tuple) else (key,)
        names = [part for part in parts if isinstance(part, str | list) and isinstance(part[0], str)]
        rest = tuple(part for part in parts if part not in names)

        assert_same(array[key], RECORDS[names[0]][rest] if names else RECORDS[key])
    with pytest.raises(errors.FieldUnknown) as caught:
        array["w"]
    assert caught.value.fields == ["x", "y", "z"]


def test_an_opened_field_is_an_array_with_the_subarrays_axes(proxy: Proxy) -> None:
    url = proxy.add("store/t", RECORDS, (2, 2)).replace("metadata", "slice")

    field = RemoteArray(f"{url}?field=y&format=raw")

    assert (field.shape, field.dtype, field.chunks) == ((6, 5, 2, 3), np.dtype(">f8"), (2, 2, 2, 3))
    assert_same(field[1:3, :, 1], RECORDS["y"][1:3, :, 1])
    assert_same(np.asarray(field), RECORDS["y"])
    assert RemoteArray(f"{url}?field=x", field="x").field == RemoteArray(url, field="x").field == "x"
    with pytest.raises(errors.BadParameter, match=r'\["x", "y"\]'):
        RemoteArray(f"{url}?field=x", field="y")


def test_a_big_read_leaves_no_threads(proxy: Proxy, monkeypatch: pytest.MonkeyPatch) -> None:
    for limit in ("SMALLEST_BOX", "LARGEST_BOX"):
        monkeypatch.setattr(f"hyperslab.client.reading.{limit}", 1000)
    others = set(threading.enumerate())

    assert_same(open_copy(proxy, CUBE, (2, 11, 12))[...], CUBE)

    assert len(proxy.calls_of("slice")) > 1
    assert not [each for each in set(threading.enumerate()) - others if each.name.startswith("hyperslab-client")]


def test_an_array_tells_what_it_is(proxy: Proxy) -> None:
    array = open_copy(
        proxy, CUBE, (3, 4, 5), fill_value=7, order="F", attributes={"unit": "mm"}, dimension_names=["z", "y", "x"]
    )

    assert (array.shape, array.chunks, array.dtype, array.ndim) == ((10, 11, 12), (3, 4, 5), np.dtype("<i4"), 3)
    assert (array.size, array.nbytes, len(array)) == (1320, 5280, 10)
    assert (array.fill_value, array.order, array.dimension_names) == (np.int32(7), "F", ("z", "y", "x"))
    assert array.attrs["unit"] == "mm"
    assert (array.path, array.name, array.field) == ("store/a0", "a0", None)
    assert array.info["kind"] == "array"
    for word in ("store/a0", "(10, 11, 12)", "int32", "(3, 4, 5)", array.url):
        assert word in repr(array)
        assert word in array._repr_html_()


def test_numpy_takes_it_for_an_array(proxy: Proxy) -> None:
    array = open_copy(proxy, CUBE, (3, 4, 5))

    assert_same(np.asarray(array), CUBE)
    assert_same(np.asarray(array, "f8"), CUBE.astype("f8"))
    assert np.sum(array) == CUBE.sum()
    with pytest.raises(ValueError, match="copy"):
        np.array(array, copy=False)


def test_iteration_fetches_rows_of_chunks(proxy: Proxy) -> None:
    rows = list(open_copy(proxy, CUBE, (3, 4, 5)))

    assert np.array_equal(np.stack(rows), CUBE)
    assert len(proxy.calls_of("slice")) == 1


def test_iteration_over_much_asks_for_no_chunk_twice(proxy: Proxy) -> None:
    proxy.root.create_array("store/much", (32, 1 << 20), "|u1", chunks=(3, 1 << 20))

    assert not any(row.any() for row in RemoteArray(f"{proxy.url}/v1/metadata/store/much"))
    first = [wire.parse_selection(call.query["select"])[0] for call in proxy.calls_of("slice")]
    assert len(first) > 1
    assert all(isinstance(rows, slice) and (rows.start or 0) % 3 == 0 for rows in first), first


def test_an_array_without_axes_has_one_value_and_no_length(proxy: Proxy) -> None:
    array = open_copy(proxy, np.array(3.5), ())

    assert_same(array[()], np.float64(3.5))
    assert_same(array[...], np.array(3.5))
    with pytest.raises(TypeError, match="unsized"):
        len(array)


def test_out_takes_the_values_wherever_it_lies_in_memory(proxy: Proxy) -> None:
    array = open_copy(proxy, CUBE, (3, 4, 5))
    whole, turned = np.zeros((12, 11, 20), "<i4"), np.zeros((2, 3, 12), "<i4", order="F")
    rows, columns = np.ix_([1, 5], [0, 3, 4])

    returned = array.get(out=whole[2:, :, 3:15])
    array.get((rows, columns), out=turned)

    assert np.shares_memory(returned, whole)
    assert np.array_equal(whole[2:, :, 3:15], CUBE)
    assert whole[:2].sum() == whole[:, :, :3].sum() == whole[:, :, 15:].sum() == 0
    assert np.array_equal(turned, CUBE[rows, columns])
    proxy.heal()
    for out in (np.zeros((10, 11), "<i4"), np.zeros((10, 11, 12), "<i8")):
        with pytest.raises(ValueError, match="out has shape"):
            array.get(out=out)
    with pytest.raises(ValueError, match="read-only"):
        array.get(out=np.broadcast_to(CUBE[:1], CUBE.shape))
    assert not proxy.calls


def lazy_array(array: RemoteArray) -> Any:
    return dask.array.from_array(array)  # type: ignore[no-untyped-call]


def test_dask_names_the_same_array_alike_and_a_changed_one_not(proxy: Proxy) -> None:
    url = proxy.add("store/a", CUBE, (3, 4, 5))
    name = lazy_array(RemoteArray(url)).name

    assert lazy_array(RemoteArray(url)).name == name
    proxy.node("store/a").attrs.update({"changed": True})
    assert lazy_array(RemoteArray(url)).name != name


def read_plane(array: RemoteArray, index: int) -> Any:
    return array[index]


def test_arrays_go_to_other_processes_and_ask_for_nothing_but_values(proxy: Proxy) -> None:
    array = open_copy(proxy, CUBE, (3, 4, 5))
    proxy.heal()

    with ProcessPoolExecutor(2, mp_context=multiprocessing.get_context("spawn")) as processes:
        planes = list(processes.map(read_plane, [array] * 4, range(4)))

    assert np.array_equal(np.stack(planes), CUBE[:4])
    assert len(proxy.calls) == len(proxy.calls_of("slice")) == 4


def test_an_array_that_others_change_reads_as_it_was_known_or_is_an_error_and_then_known(proxy: Proxy) -> None:
    array = open_copy(proxy, CUBE, (3, 4, 5))
    proxy.add("store/a0", np.concatenate([CUBE, CUBE]), (3, 4, 5))

    assert_same(array[...], CUBE)
    assert array.refresh().shape == (20, 11, 12)
    keys: list[Any] = [slice(None), 9]
    for key in keys:
        proxy.add("store/a0", CUBE, (3, 4, 5))
        array.refresh()
        proxy.add("store/a0", CUBE[:4], (3, 4, 5))
        with pytest.raises(errors.ArrayChanged) as caught:
            array[key]
        assert caught.value.member == "shape"
        assert array.shape == (4, 11, 12)
        assert_same(array[...], CUBE[:4])
    proxy.add("store/a0", CUBE[:4].astype("<f4"), (3, 4, 5))  # never reinterpreted
    with pytest.raises(errors.ArrayChanged, match="dtype"):
        array[...]


def test_what_is_no_array_is_the_servers_exception(proxy: Proxy) -> None:
    with pytest.raises(errors.WrongKind):
        RemoteArray(f"{proxy.url}/v1/metadata/store")
    with pytest.raises(errors.NodeNotFound) as caught:
        RemoteArray(f"{proxy.url}/v1/metadata/store/none")
    assert caught.value.path == "store/none"
