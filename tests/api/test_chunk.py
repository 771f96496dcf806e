"""``/v1/chunk``: decoded and cut at the edge, or exactly as stored."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

import httpx
import numpy as np
import pytest

from tests.api.conftest import CUBE, FLOATS
from tests.api.support import Running, npy, running


@pytest.fixture(scope="module")
def client(example: Running) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=example.url) as found:
        yield found


def test_every_chunk_is_its_part_of_the_array(client: httpx.Client) -> None:
    for i, j, k in itertools.product(range(3), range(2), range(3)):
        found = npy(client.get(f"/v1/chunk/data/cube/{i}.{j}.{k}?format=npy").content)

        np.testing.assert_array_equal(found, CUBE[8 * i : 8 * i + 8, 16 * j : 16 * j + 16, 16 * k : 16 * k + 16])


def test_indices_have_dots_between_whatever_the_keys_have(client: httpx.Client) -> None:
    found = npy(client.get("/v1/chunk/data/group/floats/2.1?format=npy").content)

    np.testing.assert_array_equal(found, FLOATS[6:9, 4:8])


def test_a_chunk_that_was_never_written_holds_the_fill_value(client: httpx.Client) -> None:
    assert npy(client.get("/v1/chunk/data/sparse/3.3?format=npy").content).tolist() == [[7.5] * 10] * 10


def test_an_array_without_axes_has_one_chunk(client: httpx.Client) -> None:
    assert client.get("/v1/chunk/data/scalar/0?format=json").json() == 42


def test_stored_bytes_pass_through_and_no_codec_sees_them(example_store: Path, tmp_path: Path) -> None:
    rubbish = b"this decodes to nothing"
    folder = tmp_path / "a"
    folder.mkdir()
    (folder / ".zarray").write_bytes((example_store / "cube" / ".zarray").read_bytes())
    (folder / "0.0.0").write_bytes(rubbish)

    with running(tmp_path) as found:
        stored = httpx.get(f"{found.url}/v1/chunk/data/a/0.0.0?format=stored")
        decoded = httpx.get(f"{found.url}/v1/chunk/data/a/0.0.0")

    assert (stored.status_code, stored.content) == (200, rubbish)
    assert (decoded.status_code, decoded.json()["code"]) == (502, "chunk-corrupt")


def test_stored_bytes_have_the_tag_of_their_key(client: httpx.Client) -> None:
    stored = client.get("/v1/chunk/data/cube/0.0.0?format=stored")
    key = client.get("/zarr/data/cube/0.0.0")

    assert stored.content == key.content
    assert stored.headers["etag"] == key.headers["etag"]


def test_stored_bytes_of_a_chunk_that_was_never_written_are_404(client: httpx.Client) -> None:
    answer = client.get("/v1/chunk/data/sparse/0.0?format=stored")

    assert (answer.status_code, answer.json()["code"], answer.json()["key"]) == (404, "chunk-not-found", "sparse/0.0")


@pytest.mark.parametrize(
    ("chunk", "status", "code"),
    [
        ("3.0.0", 422, "index-out-of-range"),
        ("0.0", 400, "bad-parameter"),
        ("0.0.0.0", 400, "bad-parameter"),
        ("0.0.x", 400, "bad-parameter"),
        ("00.0.0", 400, "bad-parameter"),
        ("-1.0.0", 400, "bad-parameter"),
        ("0.0.%D9%A3", 400, "bad-parameter"),
        ("0.0.99999999999999999999999", 400, "bad-parameter"),
    ],
)
def test_a_chunk_that_the_grid_does_not_have_is_refused(
    client: httpx.Client, chunk: str, status: int, code: str
) -> None:
    answer = client.get(f"/v1/chunk/data/cube/{chunk}")

    assert (answer.status_code, answer.json()["code"]) == (status, code)
