"""Read, change, write: what others write in between is never lost, and nothing is done twice."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hyperslab import RemoteArray, RemoteGroup
from hyperslab.api.app import create_app
from hyperslab.errors import Overloaded, PreconditionFailed, TooLarge, Unreachable
from tests.arrays.support import service_on
from tests.client.conftest import Host
from tests.client.proxy import Proxy, problem
from tests.client.strategies import slices
from tests.faults import LoseAnswer
from tests.server import served

Array = np.ndarray[Any, np.dtype[Any]]
VALUES = np.arange(20 * 30, dtype="<i4").reshape(20, 30)


@pytest.fixture
def url(host: Host) -> str:
    """The group at the root of a writable store."""
    return f"{host.url}/v1/metadata/store"


@pytest.fixture
def array(url: str) -> RemoteArray:
    return RemoteGroup(url).create_array("a", data=VALUES, chunks=(8, 8), mode="replace")


def test_increments_of_several_writers_are_all_there(array: RemoteArray) -> None:
    """Boxes that overlap, of several chunks each; every writer has connections of its own."""
    boxes: list[Any] = [np.s_[2:15, 3:20], np.s_[5:18, 10], np.s_[::3, [3, 11, 19]]]

    def increment(box: Any) -> None:
        with RemoteArray(array.url) as mine:
            for _ in range(15):
                mine.change(box, lambda values: values + 1)

    with ThreadPoolExecutor(len(boxes)) as pool:
        list(pool.map(increment, boxes))

    expected = VALUES.copy()
    for box in boxes:
        expected[box] += 15
    np.testing.assert_array_equal(array[...], expected)


@pytest.mark.parametrize("kind", ["array", "group"])
def test_attributes_that_are_counted_by_several_writers_are_all_there(url: str, array: RemoteArray, kind: str) -> None:
    node = array if kind == "array" else RemoteGroup(url).create_group("g", mode="replace")

    def count(name: str) -> None:
        with type(node)(node.url) as mine:
            for _ in range(15):
                mine.attrs.change(lambda now: {"all": now.get("all", 0) + 1, name: now.get(name, 0) + 1})

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(count, ["first", "second"]))

    assert node.refresh().attrs == {"all": 30, "first": 15, "second": 15}


def test_a_value_that_was_written_meanwhile_is_what_is_changed(array: RemoteArray) -> None:
    seen = []

    def double(values: Array) -> Array:
        seen.append(values.tolist())
        if len(seen) == 1:
            RemoteArray(array.url)[0, :3] = 7
        return values * 2

    changed = array.change(np.s_[0, :3], double)

    assert seen == [[0, 1, 2], [7, 7, 7]]
    assert changed.tolist() == array[0, :3].tolist() == [14, 14, 14]


def test_whoever_never_comes_first_is_told(array: RemoteArray, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hyperslab.client.session.CHANGE_ATTEMPTS", 3)
    calls = []

    def late(values: Array) -> Array:
        calls.append(values)
        RemoteArray(array.url)[0, 0] = -len(calls)
        return values

    with pytest.raises(PreconditionFailed):
        array.change(np.s_[0], late)

    assert len(calls) == 3
    assert array[0, 0] == -3


@pytest.fixture
def proxied(proxy: Proxy) -> RemoteArray:
    return RemoteArray(proxy.add("store/a", VALUES, (8, 8)))


def test_a_change_whose_answer_is_lost_is_not_repeated(proxy: Proxy, proxied: RemoteArray) -> None:
    """It may have been done; to do it again could add twice."""
    proxy.fail(LoseAnswer(), route="slice", method="PUT")
    proxy.fail(LoseAnswer(), route="metadata", method="PATCH")

    with pytest.raises(Unreachable):
        proxied.change(np.s_[0], lambda values: values + 1)
    with pytest.raises(Unreachable):
        proxied.attrs.change(lambda now: {"n": now.get("n", 0) + 1})

    np.testing.assert_array_equal(proxy.values("store/a")[0], VALUES[0] + 1)
    assert proxied.refresh().attrs == {"n": 1}


def test_a_change_that_a_busy_server_refused_is_tried_again(
    proxy: Proxy, proxied: RemoteArray, monkeypatch: pytest.MonkeyPatch
) -> None:
    waited: list[float] = []
    monkeypatch.setattr("hyperslab.client.session.time.sleep", waited.append)
    proxy.fail(problem(503, Overloaded("many at once", 7)), method="PUT")

    proxied.change(np.s_[0], lambda values: values + 1)

    assert 7 <= waited[0] < 8
    np.testing.assert_array_equal(proxy.values("store/a")[0], VALUES[0] + 1)


def test_a_function_that_fails_changes_nothing(array: RemoteArray) -> None:
    with pytest.raises(ZeroDivisionError):
        array.change(np.s_[0], lambda _: 1 // 0)
    with pytest.raises(ZeroDivisionError):
        array.attrs.change(lambda _: {"n": 1 // 0})

    np.testing.assert_array_equal(array[...], VALUES)
    assert not array.refresh().attrs


def test_a_function_that_takes_its_time_finds_a_connection(tmp_path: Path) -> None:
    """Idle ones are closed by the server."""

    def slow(values: Array) -> Array:
        time.sleep(1.5)
        return values + 1

    with service_on(tmp_path) as service, served(create_app(service), timeout_keep_alive=1) as server:
        array = RemoteGroup(f"{server}/v1/metadata/data").create_array("a", data=VALUES)
        array.change(np.s_[0], slow)

        np.testing.assert_array_equal(array[0], VALUES[0] + 1)


def test_what_has_no_tag_of_its_own_is_refused(array: RemoteArray) -> None:
    for selection in (VALUES > 5, ([1, 2], [3, 4])):
        with pytest.raises(IndexError, match="no tag"):
            array.get_tagged(selection)
        with pytest.raises(IndexError, match="no tag"):
            array.change(selection, lambda values: values)


def test_more_than_one_request_can_carry_is_refused(limited: Callable[..., Proxy]) -> None:
    proxy = limited(max_upload_bytes=1 << 20)
    wide = RemoteArray(proxy.add("store/wide", np.zeros(1, "<i4"), (1 << 20,)))
    wide.resize(1 << 20)
    _, tag = wide.get_tagged()

    with pytest.raises(TooLarge):
        wide.set_tagged(..., np.zeros(1 << 20, "<i4"), tag)
    with pytest.raises(IndexError, match="one request"):
        wide.get_tagged(np.flatnonzero(np.arange(1 << 18) % 3))


def axis_keys(size: int) -> st.SearchStrategy[Any]:
    return st.integers(-size, size - 1) | slices(size)


@settings(max_examples=25)
@given(key=st.tuples(axis_keys(20), axis_keys(30)) | axis_keys(20) | st.just(...), data=st.data())
def test_a_change_is_that_of_numpy(array: RemoteArray, key: Any, data: st.DataObject) -> None:
    array[...] = VALUES
    expected = VALUES.copy()
    expected[key] = expected[key] * 2 + 1
    spread = data.draw(st.booleans())

    changed = array.change(key, lambda values: 5 if spread else values * 2 + 1)

    if spread:
        expected[key] = 5
    np.testing.assert_array_equal(array[...], expected)
    np.testing.assert_array_equal(changed, 5 if spread else expected[key])
