"""``/v1/points``: scattered points."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hyperslab.api.options import ApiOptions
from tests.api.conftest import CUBE
from tests.api.support import npy, running, saved

NPY = {"Content-Type": "application/x-npy"}


def npy_file(header: str) -> bytes:
    """A file with any header at all, and a few bytes of data."""
    return b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header.encode() + bytes(48)


@given(st.lists(st.tuples(*[st.integers(-size, size - 1) for size in CUBE.shape]), max_size=30))
def test_points_equal_numpy(client: httpx.Client, points: list[tuple[int, ...]]) -> None:
    wanted = np.array(points, np.int64).reshape(len(points), 3)

    answer = client.post("/v1/points/data/cube?format=npy", content=saved(wanted), headers=NPY)

    assert answer.status_code == 200
    np.testing.assert_array_equal(npy(answer.content), CUBE[tuple(wanted.T)])


@pytest.mark.parametrize("dtype", ["<i8", ">i4", "|i1", "<u2"])
@pytest.mark.parametrize("order", ["C", "F"])
def test_coordinates_of_any_integer_dtype_are_taken(client: httpx.Client, dtype: str, order: Any) -> None:
    points = np.asarray([[0, 1, 2], [19, 29, 39]], dtype, order=order)

    answer = client.post("/v1/points/data/cube?format=json", content=saved(points), headers=NPY)

    assert answer.json() == [int(CUBE[0, 1, 2]), int(CUBE[19, 29, 39])]
    assert answer.headers["array-shape"] == "[2]"
    assert answer.headers["array-chunks"].startswith("touched=2")


NO_COORDINATES = {
    "application/x-npy": [
        *(b"not npy", b"", saved(np.zeros((2, 3), np.int64))[:-1], saved(np.zeros((2, 3), np.int64)) + b"!"),
        *(saved(np.zeros((2, 2), np.int64)), saved(np.zeros(3, np.int64)), saved(np.zeros((2, 3)))),
        *(saved(np.full((1, 3), 2**63, np.uint64)), npy_file("(" * 300)),
        npy_file("{'descr': '<i8', 'fortran_order': False, 'shape': (True, 3)}"),
        npy_file("{'descr': '<i8', 'fortran_order': False, 'shape': (9**18, 3)}"),
    ],
    "application/json": [
        *(b"{", b"[[0,0,0]]", b'{"coordinates": {"a": 1}}'),
        *(
            b'{"coordinates": %s}' % text
            for text in (
                *(b"[[0, 0], [1]]", b"[[0, 0, 0.5]]", b'[[0, 0, "a"]]', b"[[0, 0, 99999999999999999999999]]"),
                *(b"[[0, 0, 0], [true, 0, 0]]", b"[[true, false, true]]"),
            )
        ),
    ],
}


def test_bad_coordinates_are_refused(client: httpx.Client) -> None:
    bad = [(content, kind, 400, "bad-body") for kind, contents in NO_COORDINATES.items() for content in contents]
    bad += [(saved(np.full((1, 3), 99)), "application/x-npy", 422, "index-out-of-range")]
    for content, kind, status, code in [*bad, (b"0,0,0", "text/csv", 415, "unsupported-media-type")]:
        answer = client.post("/v1/points/data/cube", content=content, headers={"Content-Type": kind})

        assert (answer.status_code, answer.json()["code"]) == (status, code), content


def test_npy_with_objects_runs_nothing(client: httpx.Client) -> None:
    class Bomb:
        def __reduce__(self) -> Any:
            return (pytest.fail, ("code from a request was run",))

    out = io.BytesIO()
    np.save(out, np.array([Bomb()], object), allow_pickle=True)

    assert client.post("/v1/points/data/cube", content=out.getvalue(), headers=NPY).json()["code"] == "bad-body"


def test_too_many_points_and_too_long_a_body_are_refused(example_store: Path) -> None:
    with running(example_store, ApiOptions(max_points=10)) as found:
        url = f"{found.url}/v1/points/data/cube"
        many = httpx.post(url, content=saved(np.zeros((11, 3), np.int64)), headers=NPY)
        long = httpx.post(url, content=b"x" * 100_000, headers=NPY)
        endless = httpx.post(url, content=iter([b"x" * 1000] * 100), headers=NPY)

    assert (many.status_code, many.json()["unit"], many.json()["limit"]) == (413, "points", 10)
    assert (long.status_code, long.json()["unit"]) == (413, "bytes")
    assert endless.status_code == 413


@pytest.mark.parametrize("kind", ["application/json", None])
def test_json_that_would_not_fit_into_memory_is_refused(example_store: Path, kind: str | None) -> None:
    points = np.zeros((20_000, 3), "<i8")
    text = json.dumps({"coordinates": points.tolist()}).encode()
    headers = {} if kind is None else {"Content-Type": kind}
    with running(example_store, bytes_in_flight=24 * (len(text) - 1)) as server, httpx.Client() as fresh:
        refused = fresh.post(f"{server.url}/v1/points/data/cube", content=text, headers=headers)
        taken = fresh.post(f"{server.url}/v1/points/data/cube", content=saved(points))

    assert (refused.status_code, refused.json()["code"], refused.json()["limit"]) == (413, "too-large", len(text) - 1)
    assert taken.status_code == 200
