"""Streams outlive the process that serves them: SIGKILL at random moments, and a network that cuts, repeats and delays.

``TEST_KILLS`` says how often, 4 times by default; in a bucket half as often.
"""

from __future__ import annotations

import os
import random
import threading
import time
from contextlib import suppress
from pathlib import Path

import httpx
import numpy as np
import pytest
import zarr

from tests.faults import Delay, FaultProxy, LoseAnswer, Reset
from tests.s3 import S3Server
from tests.server import running_server
from tests.streams.model import Model, Sender
from tests.streams.support import dimension, place_of

KILLS = int(os.environ.get("TEST_KILLS", "4"))
IMAGE = {
    "key": "a",
    "dtype": "<u2",
    "dimensions": [dimension("t", None, 3), dimension("c", 2, 1), dimension("y", 60, 30), dimension("x", 50, 30)],
    "pyramid": {"method": "mean"},
}


def frames_of(model: Model, count: int) -> list[np.ndarray]:
    rng = np.random.default_rng(count)
    return list(rng.integers(0, 65_536, (count, *model.frame_shape)).astype(model.dtype))


def send_until_killed(sender: Sender, raw: bytes, offset: int, rng: random.Random, acked: list[int]) -> None:
    """Send pieces of any length from ``offset`` on; what is acknowledged goes into ``acked``."""
    size = 60 * 50 * 2
    with suppress(httpx.TransportError):
        while offset < len(raw):
            cut = min(len(raw), offset + rng.choice((rng.randrange(1, size), size, 3 * size, 14 * size)))
            answer = sender.patch(raw[offset:cut], offset)
            assert answer.status_code == 204, answer.text
            offset = int(answer.headers["upload-offset"])
            acked.append(offset)


@pytest.mark.parametrize("kind", ["folder", "bucket"])
def test_no_acknowledged_frame_is_lost_and_none_invented(tmp_path: Path, s3_server: S3Server, kind: str) -> None:
    rng, model, kills = random.Random(KILLS), Model(IMAGE), KILLS if kind == "folder" else KILLS // 2
    frames, offset = frames_of(model, 24 * (kills + 1)), 0
    raw, size = b"".join(frame.tobytes() for frame in frames), frames[0].nbytes
    expected, place = Model(IMAGE, [*frames]).levels(final=True), place_of(kind, tmp_path, s3_server)
    for kill in range(kills):
        with running_server({"lab": place.store}) as server, httpx.Client(base_url=server.url, timeout=300) as client:
            sender = Sender(client, "lab/run", "a")
            if not kill:
                client.put("/v1/stream/lab/run", json={"arrays": [IMAGE]}).raise_for_status()
            state = sender.state()
            assert state["offset"] >= offset
            offset = state["offset"]
            model.frames = [*frames[: offset // size]]
            np.testing.assert_array_equal(sender.read("lab/run/a/0"), model.values(final=False))
            for level in state["levels"]:  # which the end compares
                assert len(sender.read(f"lab/run/a/{level}")) == len(model.frames) // 2
            acked = [offset]
            sending = threading.Thread(target=send_until_killed, args=(sender, raw, offset, rng, acked))
            sending.start()
            time.sleep(rng.uniform(0.0, 0.4 if kind == "folder" else 1.6))
            server.process.kill()
            sending.join()
            offset = acked[-1]
        image = zarr.open_group(place.files() / "run" / "a", mode="r")  # what another program finds
        levels = image.attrs["multiscales"][0]["datasets"]  # type: ignore[index, call-overload]
        stored = [zarr.open_array(tmp_path / "run" / "a" / each["path"], mode="r") for each in levels]  # type: ignore
        np.testing.assert_array_equal(stored[0][...], expected[0][: stored[0].shape[0]])
        for array in stored:  # killed between two shapes, a coarser one is behind
            assert array.shape[0] <= stored[0].shape[0]
            assert bool(np.any(np.asarray(array[...]))) == bool(array.shape[0])
    with running_server({"lab": place.store}) as server, httpx.Client(base_url=server.url, timeout=300) as client:
        sender = Sender(client, "lab/run", "a")
        assert sender.state()["offset"] >= offset
        for start in range(sender.state()["offset"], len(raw), 24 * size):
            assert sender.patch(raw[start : start + 24 * size], start).status_code == 204
        finished = client.delete("/v1/stream/lab/run?finish=true").json()["arrays"]["a"]
        assert (finished["error"], finished["accepted"]) == (None, len(frames))
    place.files()
    for array, level in zip(stored, expected, strict=True):
        np.testing.assert_array_equal(zarr.open_array(array.store_path, mode="r")[...], level)


@pytest.mark.parametrize("kind", ["folder", "bucket"])
def test_any_sequence_of_cuts_repetitions_and_delays_ends_with_the_same_array(
    tmp_path: Path, s3_server: S3Server, kind: str
) -> None:
    rng, model = random.Random(7), Model(IMAGE)
    frames = frames_of(model, 20)
    raw, size = b"".join(frame.tobytes() for frame in frames), frames[0].nbytes
    place = place_of(kind, tmp_path, s3_server)
    with running_server({"lab": place.store}) as server, FaultProxy(server.url) as proxy:
        with httpx.Client(base_url=server.url, timeout=60) as client:
            client.put("/v1/stream/lab/run", json={"arrays": [IMAGE]}).raise_for_status()
        offset = 0
        while offset < len(raw):
            fault = rng.choice((None, Reset(), LoseAnswer(), Delay(0.01)))
            if fault is not None:
                proxy.inject(fault, method="PATCH", times=1)
            cut = min(len(raw), offset + rng.randrange(1, 3 * size))
            with httpx.Client(base_url=proxy.url) as client:
                sender = Sender(client, "lab/run", "a")
                with suppress(httpx.TransportError):
                    offset = int(sender.patch(raw[offset:cut], offset).headers["upload-offset"])
        model.frames = [*frames]
        with httpx.Client(base_url=server.url, timeout=60) as client:
            sender = Sender(client, "lab/run", "a")
            for level, expected in zip(sender.state()["levels"], model.levels(final=False), strict=True):
                np.testing.assert_array_equal(sender.read(f"lab/run/a/{level}"), expected)
