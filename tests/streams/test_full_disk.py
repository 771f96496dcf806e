"""A disk that is full while frames arrive. The limit on the size of files stands for it: a file takes what has room,
and the rest fails, in a server that may be anybody's."""

from __future__ import annotations

import resource
from pathlib import Path

import httpx
import numpy as np
import pytest

from tests.server import running_server
from tests.streams.support import dimension

ROOM = 40_000
FRAMES = np.random.default_rng(0).integers(0, 255, (20, 64, 64), np.uint8)
SIZE = FRAMES[0].nbytes
RAW = {"content-type": "application/octet-stream"}


@pytest.mark.parametrize("rows", [1, 1000], ids=["chunks", "tail"])
def test_what_does_not_fit_is_refused_and_the_stream_goes_on_when_there_is_room(tmp_path: Path, rows: int) -> None:
    """``rows`` in a chunk: frames go to chunks at once, or wait in the tail."""
    sizes = [dimension("t", None, rows), dimension("y", 64, 64), dimension("x", 64, 64)]
    array = {"key": "a", "dtype": "|u1", "dimensions": sizes, "compressor": None}
    with (
        running_server({"data": {"url": str(tmp_path), "writable": True}}) as server,
        httpx.Client(base_url=f"{server.url}/v1", timeout=60) as client,
    ):

        def patch(start: int, stop: int) -> httpx.Response:
            headers = {**RAW, "upload-offset": str(start * SIZE)}
            return client.patch("/stream/data/s", content=FRAMES[start:stop].tobytes(), headers=headers)

        def offset() -> int:
            return int(client.get("/stream/data/s").json()["arrays"]["a"]["offset"])

        def stored() -> np.ndarray:
            values = client.get("/slice/data/s/a").raise_for_status().content
            return np.frombuffer(values, np.uint8).reshape(-1, 64, 64)

        client.put("/stream/data/s", json={"arrays": [array]}).raise_for_status()
        assert patch(0, 5).status_code == 204
        most = resource.prlimit(server.process.pid, resource.RLIMIT_FSIZE)
        resource.prlimit(server.process.pid, resource.RLIMIT_FSIZE, (ROOM if rows > 1 else SIZE // 2, most[1]))

        refused = patch(5, 15)
        assert (refused.status_code, refused.json()["code"]) == (507, "store-full")
        assert offset() == 5 * SIZE
        np.testing.assert_array_equal(stored(), FRAMES[:5])
        assert patch(5, 15).status_code in {409, 507}  # the array has failed, if there was room to say so

        resource.prlimit(server.process.pid, resource.RLIMIT_FSIZE, most)
        client.put("/stream/data/s?if_exists=resume", json={"arrays": [array]}).raise_for_status()
        assert patch(offset() // SIZE, 20).status_code == 204
        assert client.delete("/stream/data/s?finish=true").json()["arrays"]["a"]["error"] is None
        np.testing.assert_array_equal(stored(), FRAMES)
