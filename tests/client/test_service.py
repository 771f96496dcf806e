"""The client against the real application."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from hyperslab import RemoteArray, RemoteGroup, errors
from tests.client.proxy import Proxy


@pytest.mark.parametrize("values", [True, False], ids=["values", "one value"])
@pytest.mark.parametrize("key", [..., slice(4, None), ([5, 0], [0, 1]), 5, (slice(5, None, -1), [7, 0, 2])])
def test_writing_to_an_array_that_has_shrunk_is_an_error_and_then_known(
    group: RemoteGroup, key: Any, values: bool
) -> None:
    array = group.create_array("a", (6, 8), "<i4", chunks=(4, 4))
    group.open_array("a").resize((4, 8))

    with pytest.raises(errors.ArrayChanged, match=r"expected \[6, 8\], found \[4, 8\]"):
        array[key] = np.ones_like(np.zeros((6, 8), "<i4")[key]) if values else 7

    assert array.shape == (4, 8)
    assert not array[...].any()
    array[...] = 1
    assert np.array_equal(array[...], np.ones((4, 8)))


def test_an_array_that_has_lost_an_axis_is_an_error_and_then_known(group: RemoteGroup) -> None:
    array = group.create_array("a", (6, 8), "<i4", chunks=(4, 4))
    group.create_array("a", (6,), "<i4", mode="replace")

    with pytest.raises(errors.ArrayChanged, match=r"expected \[6, 8\], found \[6\]"):
        array[:] = 7

    assert array.shape == (6,)
    points = group.create_array("b", (6, 8), "<i4", chunks=(4, 4))
    group.create_array("b", (6,), "<i4", mode="replace")
    with pytest.raises(errors.ArrayChanged, match=r"expected \[6, 8\], found \[6\]"):
        points.vindex[[5, 0, 2, 1], [0, 7, 3, 1]]
    group.create_array("a", (), "<i4", mode="replace")
    with pytest.raises(errors.ArrayChanged, match=r"expected \[6\], found \[\]"):
        array[:]


def test_values_with_a_tag_for_an_array_that_has_shrunk_are_an_error_and_then_known(group: RemoteGroup) -> None:
    array = group.create_array("a", (6, 8), "<i4", chunks=(4, 4))
    group.open_array("a").resize((4, 8))
    tag = group.open_array("a").get_tagged()[1]

    with pytest.raises(errors.ArrayChanged):
        array.set_tagged(..., 7, tag)

    assert array.shape == (4, 8)
    assert not array[...].any()


@pytest.mark.parametrize("key", [..., ([3, 0], [0, 1])], ids=["box", "points"])
def test_writing_to_an_array_of_another_dtype_is_an_error_and_then_known(group: RemoteGroup, key: Any) -> None:
    array = group.create_array("a", (6, 8), "<i4", chunks=(4, 4))
    group.create_array("a", (6, 8), "<f4", mode="replace")

    with pytest.raises(errors.ArrayChanged, match="dtype"):
        array[key] = np.ones_like(np.zeros((6, 8), "<i4")[key])

    assert array.dtype == "<f4"
    assert not array[...].any()


@pytest.mark.parametrize(("axis", "data"), [(0, (4, 0)), (1, (2, 3))])
def test_an_array_without_items_can_be_appended_to(group: RemoteGroup, axis: int, data: tuple[int, int]) -> None:
    array = group.create_array("a", (2, 0), "<i4", chunks=(4, 4))
    values = np.ones(data, "<i4")

    assert array.append(values, axis=axis) == array.append(values, axis=axis) - data[axis]
    assert array.shape == np.concatenate([np.ones((2, 0)), values, values], axis).shape
    assert (array[...] == 1).all()


def test_caps_of_the_server_are_kept_without_being_told(limited: Callable[..., Proxy]) -> None:
    root = limited(max_response_bytes=4000, max_upload_bytes=3000, max_points=100).root["store"]
    values = np.arange(50 * 60, dtype="<f4").reshape(50, 60)
    rows, columns = np.random.default_rng(0).integers(0, 50, (2, 1000))
    texts = np.array([str(i) * 100 for i in range(50)], object)
    assert isinstance(root, RemoteGroup)

    array = root.create_array("a", data=values, chunks=(20, 30))
    array.append(values)

    assert np.array_equal(array[...], np.concatenate([values, values]))
    assert np.array_equal(array[rows, columns], values[rows, columns])
    array[rows, columns] = values[rows, columns] = -1
    assert np.array_equal(array[:50], values)
    objects = root.create_array("b", 1, object, chunks=8, filters=[{"id": "vlen-utf8"}])
    assert objects.append(texts) == 1
    with pytest.raises(errors.TooLarge):
        objects.append(["x" * 4000])
    assert objects[...].tolist() == ["", *texts.tolist()]


def test_texts_that_are_too_large_are_sent_again_in_few_parts(limited: Callable[..., Proxy]) -> None:
    proxy = limited(max_upload_bytes=3000)
    texts = np.array(["x" * 100] * 200, object)
    array = RemoteArray(proxy.add("store/a", texts[:0], (100,), filters=[{"id": "vlen-utf8"}]))
    array.resize((200,))

    array[...] = texts
    assert array[...].tolist() == texts.tolist()
    answers = [status for method, path, status in proxy.answers if "/slice/" in path and method == "PUT"]
    assert 413 in answers
    assert len(answers) < 50
