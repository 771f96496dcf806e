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


def test_indices_have_dots_between_whatever_the_keys_have_and_what_was_never_written_is_filled(
    client: httpx.Client,
) -> None:
    for target, expected in (
        ("group/floats/2.1", FLOATS[6:9, 4:8]),
        ("sparse/3.3", np.full((10, 10), 7.5, "<f4")),
        ("scalar/0", np.array(42)),
    ):
        found = npy(client.get(f"/v1/chunk/data/{target}?format=npy").content)
        np.testing.assert_array_equal(found, expected)


def test_stored_bytes_are_those_of_their_key(client: httpx.Client) -> None:
    stored, key = client.get("/v1/chunk/data/cube/0.0.0?format=stored"), client.get("/zarr/data/cube/0.0.0")
    missing = client.get("/v1/chunk/data/sparse/0.0?format=stored")

    assert (stored.content, stored.headers["etag"]) == (key.content, key.headers["etag"])
    assert (missing.status_code, missing.json()["code"], missing.json()["key"]) == (
        404,
        "chunk-not-found",
        "sparse/0.0",
    )


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
