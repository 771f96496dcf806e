"""Memory of streams: what they reserve, what is left for readers, and what can never be had."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from tests.api.support import problem
from tests.streams.support import client_of, dimension

MIB = 1 << 20
SMALL: dict[str, Any] = {
    "dtype": "|u1",
    "dimensions": [dimension("t", None, 1), dimension("y", 8, 8), dimension("x", 8, 8)],
}


def camera(shard: int, chunk: int = 16) -> dict[str, Any]:
    """Frames of 2048² that fill a shard of ``shard`` chunks along the first axis."""
    y, x = (dimension(name, 2048, 256, shard=8) for name in "yx")
    return {"dtype": "<u2", "dimensions": [dimension("t", None, chunk, shard=shard), y, x]}


def planned(client: httpx.Client, *arrays: dict[str, Any], **settings: Any) -> httpx.Response:
    body = {"arrays": list(arrays), **settings}
    return client.put("/v1/stream/lab/planned", params={"dry_run": "true"}, json=body)


def opened(client: httpx.Client, name: str, *arrays: dict[str, Any]) -> httpx.Response:
    return client.put(f"/v1/stream/lab/{name}", json={"arrays": list(arrays)})


def store(folder: Path) -> dict[str, Any]:
    return {"url": str(folder), "writable": True, "durability": "rename"}


def test_idle_streams_leave_the_memory_of_readers_alone(tmp_path: Path) -> None:
    """However many there are: answers and uploads of all of it are served, as before the first."""
    with client_of(store(tmp_path), bytes_in_flight=32 * MIB, queue_seconds=0.5) as client:
        array = {"shape": [32, 1024, 1024], "dtype": "|u1", "chunks": [32, 1024, 1024], "compressor": None}
        client.put("/v1/metadata/lab/big", json=array).raise_for_status()
        names = [f"s{n}" for n in range(60)]
        last = next(answer for name in names if (answer := opened(client, name, SMALL)).status_code != 201)

        assert problem(last) == (503, "overloaded")
        assert "other streams" in last.json()["detail"]
        assert int(last.headers["Retry-After"]) > 0
        values = np.arange(32 * MIB, dtype="u1")
        client.put("/v1/slice/lab/big", content=values.tobytes()).raise_for_status()
        assert client.get("/v1/slice/lab/big").content == values.tobytes()

        deleted = client.delete("/v1/metadata/lab/s0")  # its memory goes to the next
        assert deleted.status_code == 204
        assert opened(client, "s0", SMALL).status_code == 201


def test_the_bound_fits_the_frames_and_is_what_is_reserved(tmp_path: Path) -> None:
    with client_of(store(tmp_path), bytes_in_flight=1024 * MIB) as client:
        assert planned(client, SMALL).json()["memory"]["bound"] < 2 * MIB
        bound = planned(client, camera(1), zarr_format=3).json()["memory"]["bound"]
        assert 128 * MIB < bound < 412 * MIB  # acquire-zarr 0.10 states 411,041,792 bytes
        state = client.put("/v1/stream/lab/run", json={"arrays": [camera(1, 2)], "zarr_format": 3}).json()
        assert 0 < state["memory"]["used"] == state["memory"]["bound"] < bound
        body = np.arange(4 * 2048 * 2048, dtype="<u2")
        assert client.patch("/v1/stream/lab/run", content=body.tobytes()).status_code == 204
        assert client.get("/v1/slice/lab/run").content == body.tobytes()


def test_a_body_of_many_small_frames_is_stored_whole(tmp_path: Path) -> None:
    body = np.random.default_rng(0).integers(0, 256, 3 * MIB, np.uint8).tobytes()
    with client_of(store(tmp_path)) as client:
        assert opened(client, "sized", SMALL).status_code == 201
        assert opened(client, "unsized", SMALL).status_code == 201
        assert client.patch("/v1/stream/lab/sized", content=body[: 1 << 14]).status_code == 204
        parts = (body[at : at + 100] for at in range(0, 1 << 14, 100))
        assert client.patch("/v1/stream/lab/unsized", content=parts).status_code == 204
        for name in ("sized", "unsized"):
            assert client.get(f"/v1/slice/lab/{name}").content == body[: 1 << 14]


@pytest.mark.parametrize("limit", [256 * MIB, 1024 * MIB])
def test_a_stream_that_can_never_fit_is_refused_with_the_setting(tmp_path: Path, limit: int) -> None:
    settings = {"arrays": [camera(4)], "zarr_format": 3}
    with client_of(store(tmp_path), bytes_in_flight=limit) as client:
        for parameters in ({"dry_run": "true"}, {}, {"if_exists": "resume"}, {"if_exists": "replace"}):
            answer = client.put("/v1/stream/lab/never", params=parameters, json=settings)
            assert problem(answer) == (422, "bad-definition"), answer.text
            assert "bytes_in_flight" in answer.json()["detail"]
            assert "Retry-After" not in answer.headers
        assert [*tmp_path.rglob("zarr.json")] == []
    with client_of(store(tmp_path), bytes_in_flight=4096 * MIB) as client:  # with more it does
        assert planned(client, camera(4), zarr_format=3).status_code == 200
