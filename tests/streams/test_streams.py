"""Streams over HTTP, against a numpy model: whatever way frames come, readers see whole rows and only right ones."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import io
import json
import os
import re
import struct
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import google_crc32c
import httpx
import numpy as np
import pytest
import zarr

from hyperslab.api.routes import stream as routes
from hyperslab.arrays.nodes import MountedStore
from hyperslab.asgi import create_app
from hyperslab.cache import VersionedCache
from hyperslab.errors import BadMetadata, InDoubt
from hyperslab.settings import Settings, StoreSettings
from hyperslab.storage import StoreConfig, open_store
from hyperslab.storage.base import Store
from hyperslab.storage.conditional import ConditionalPuts
from hyperslab.storage.files import LogFile
from hyperslab.streams.commit import Committer
from hyperslab.streams.layout import StreamArray, StreamPlan
from hyperslab.streams.objects import Head, ObjectTail, ObjectTails
from hyperslab.streams.record import Record, Records
from hyperslab.streams.service import Streams, Upload
from hyperslab.streams.settings import parse_settings
from hyperslab.streams.tail import DATA, Piece, TailLog
from hyperslab.streams.tails import Tails
from hyperslab.streams.writer import ArrayCommits
from tests.faults import Before, FaultProxy
from tests.s3 import S3Server
from tests.server import running_server, wait_until
from tests.streams.model import Model, Sender
from tests.streams.support import Lab, client_of, dimension, place_of

T, C, Z = dimension("t", None, 3), dimension("c", 2, 1), dimension("z", 3, 2)
Y, X = dimension("y", 11, 4), dimension("x", 13, 5)
ARRAYS: dict[str, dict[str, Any]] = {
    "2-D": {"dtype": "|u1", "dimensions": [Y, X], "pyramid": {"method": "max"}},
    "frames": {"dtype": "<f4", "dimensions": [T, Y, X], "fill_value": 1.5},
    "channels": {"dtype": "<u2", "dimensions": [T, C, Y, X], "pyramid": {"method": "mean"}},
    "stack": {"dtype": "<i2", "dimensions": [dimension("z", None, 2), Y, X], "pyramid": {"method": "mean"}},
    "stacks": {"dtype": ">i4", "dimensions": [T | {"size": 4}, C, Z, Y, X], "pyramid": {"method": "min"}},
    "permuted": {
        "dtype": "<u2",
        "dimensions": [T, C, Y, X],
        "storage_order": ["c", "x", "t", "y"],
        "pyramid": {"method": "decimate"},
        "compressor": None,
    },
    "sharded": {
        "dtype": "<u2",
        "dimensions": [T | {"shard": 2}, C, Y | {"shard": 2}, X | {"shard": 3}],
        "storage_order": ["c", "t", "y", "x"],
        "pyramid": {"method": "mean"},
    },
}
SIDE = [dimension("y", 512, 256), dimension("x", 512, 256)]
IN_BUCKETS = ("2-D", "channels", "sharded")


BOTH = pytest.mark.parametrize("lab", ["folder", "bucket"], indirect=True, scope="module")
"""Tests over both kinds of store."""


@pytest.fixture
def client(lab: Lab) -> httpx.Client:
    return lab.client


def folder(path: Path) -> dict[str, Any]:
    """The settings of a store in a folder."""
    return {"url": str(path), "writable": True, "durability": "rename"}


def frames_of(model: Model, count: int, seed: int = 0) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    return list(rng.integers(0, 200, (count, *model.frame_shape)).astype(model.dtype))


def opened(client: httpx.Client, path: str, *arrays: dict[str, Any], **settings: Any) -> None:
    answer = client.put(f"/v1/stream/{path}", json={"arrays": list(arrays), **settings})
    assert answer.status_code == 201, answer.text


def level_paths(sender: Sender) -> list[str]:
    state = sender.state()
    return [f"{state['path']}/{level}" for level in state["levels"]] or [state["path"]]


def check_reads(sender: Sender, model: Model, *, final: bool = False) -> None:
    """Every level reads as the model has it, through the service."""
    for path, expected in zip(level_paths(sender), model.levels(final=final), strict=True):
        np.testing.assert_array_equal(sender.read(path), expected, err_msg=path)


def check_files(lab: Lab, sender: Sender, model: Model, *, final: bool) -> None:
    """The bare store says the same, without the service."""
    folder = lab.place.files()
    for path, expected in zip(level_paths(sender), model.levels(final=final), strict=True):
        stored = zarr.open_array(folder / path.removeprefix("lab/"), mode="r")
        np.testing.assert_array_equal(stored[...], expected, err_msg=path)


@pytest.mark.parametrize(
    ("lab", "name", "seed"),
    [*[("folder", name, seed) for name in ARRAYS for seed in range(2)], *[("bucket", name, 1) for name in IN_BUCKETS]],
    indirect=["lab"],
)
def test_any_cuts_duplicates_and_wrong_offsets_end_with_the_same_arrays(lab: Lab, name: str, seed: int) -> None:
    client = lab.client
    rng, run = np.random.default_rng(seed), f"{name}-{seed}"
    model = Model({"key": "a", **ARRAYS[name]})
    opened(client, f"lab/{run}", model.settings, zarr_format=3 if name == "sharded" else 2)
    sender = Sender(client, f"lab/{run}", "a")
    rows = 7 if lab.place.bucket is None and name != "stacks" else 4
    count = 1 if name == "2-D" else rows * model.per_row + (seed if name != "stacks" else 0)
    frames = frames_of(model, count, seed)
    raw, offset = b"".join(frame.tobytes() for frame in frames), 0
    size = len(raw) // count
    largest = [size, 5 * model.per_row * size][seed]
    while offset < len(raw):
        cut = min(len(raw), offset + int(rng.integers(1, largest + 2)))
        answer = sender.patch(raw[offset:cut], offset if rng.random() < 0.8 else None)
        assert (answer.status_code, answer.headers["upload-offset"]) == (204, str(cut)), answer.text
        offset, model.frames = cut, [*frames[: cut // size]]
        start = int(rng.integers(0, offset))
        again = sender.patch(raw[start : start + size], start)
        assert again.status_code == (204 if min(start + size, len(raw)) <= offset else 409)
        assert again.headers["upload-offset"] == str(offset)
        assert sender.patch(b"x", offset + 1).json()["expected-offset"] == offset
        if rng.random() < 0.3:
            check_reads(sender, model)
        if rng.random() < 0.2:
            assert client.post(f"/v1/stream/lab/{run}/flush").status_code == 200
            check_files(lab, sender, model, final=False)
    check_reads(sender, model)
    state = sender.state()
    assert (state["durable"], state["partial"], state["missing"]) == (count, 0, [])
    for _ in range(2):
        finished = client.delete(f"/v1/stream/lab/{run}?finish=true").raise_for_status().json()
        assert (finished["state"], finished["arrays"]["a"]["error"]) == ("finished", None)
    check_reads(sender, model, final=True)
    check_files(lab, sender, model, final=True)
    assert not list((lab.place.folder / run).rglob(".hyperslab.stream/*[0-9a-f]/*"))


@BOTH
def test_missing_frames_read_as_fill_values_and_are_named(lab: Lab) -> None:
    client = lab.client
    few_chunks = [T, C, Y | {"chunk": 8}, X | {"chunk": 8}]
    model = Model({"key": "a", **ARRAYS["channels"], "dimensions": few_chunks, "fill_value": 9})
    opened(client, "lab/missing", model.settings)
    sender, frames = Sender(client, "lab/missing", "a"), frames_of(model, 40)
    size, sent = frames[0].nbytes, 0
    for action in (3, -2, 1, -9, 2, -1, 2, -14):
        if action > 0:
            new: list[np.ndarray | None] = [*frames[sent : sent + action]]
            data = b"".join(frame.tobytes() for frame in new if frame is not None)
            assert sender.patch(data, sent * size).status_code == 204
        else:
            new = [None] * -action
            skipped = {"key": "a", "frames": -action, "reason": "the camera was slow", "at": sent}
            for _ in range(2):
                assert client.post("/v1/stream/lab/missing/skip", json=skipped).status_code == 204
        model.frames += new
        sent += len(new)
        if lab.place.bucket is None or action < -2:  # whose requests take longer
            check_reads(sender, model)
    expected = [[3, 5], [6, 15], [17, 18], [20, 34]]
    assert sender.state()["missing"] == expected
    assert sender.patch(bytes(size), 3 * size).status_code == 409
    assert client.post("/v1/stream/lab/missing/skip", json={"frames": 1, "at": 2}).status_code == 409
    sender.patch(b"partial", sent * size)
    assert client.post("/v1/stream/lab/missing/skip", json={"frames": 1}).status_code == 409
    refused = client.delete("/v1/stream/lab/missing?finish=true")
    assert (refused.status_code, refused.json()["code"]) == (422, "partial-frame")
    state = client.delete("/v1/stream/lab/missing?finish=true&drop=true").json()["arrays"]["a"]
    assert (state["missing"], state["accepted"], state["partial"]) == (expected, 34, 0)
    check_reads(sender, model, final=True)


def test_an_incomplete_row_is_published_at_the_end_and_a_partial_frame_padded(client: httpx.Client) -> None:
    model = Model({"key": "", **ARRAYS["channels"], "fill_value": 9})
    opened(client, "lab/rows", model.settings)
    sender, frames = Sender(client, "lab/rows", ""), frames_of(model, 4)
    size = frames[0].nbytes
    sender.patch(b"".join(frame.tobytes() for frame in frames[:2]) + frames[2].tobytes()[:100], None)
    state = client.delete("/v1/stream/lab/rows?finish=true&pad=true").json()["arrays"][""]
    padded = frames[2].copy().reshape(-1)
    padded[50:] = 9
    model.frames = [*frames[:2], padded.reshape(model.frame_shape)]
    check_reads(sender, model, final=True)
    assert (state["missing"], state["padded"], state["offset"]) == ([[3, 4]], size - 100, 4 * size)


def test_zarr_clients_see_the_head_of_a_stream(client: httpx.Client) -> None:
    model = Model({"key": "a", **ARRAYS["channels"]})
    opened(client, "lab/clients", model.settings)
    sender, frames = Sender(client, "lab/clients", "a"), frames_of(model, 9)
    for count in (1, 2, 5, 8, 9):
        done = sender.state()["accepted"]
        sender.patch(b"".join(frame.tobytes() for frame in frames[done:count]), None)
        model.frames = [*frames[:count]]
        if count == 8:
            client.post("/v1/stream/lab/clients/flush")
        for level, expected in enumerate(model.levels(final=False)):
            found = zarr.open_array(f"{client.base_url}/zarr/lab/clients/a/{level}", mode="r")
            np.testing.assert_array_equal(found[...], expected)


def test_what_is_wrong_is_refused_and_nothing_is_stored(client: httpx.Client) -> None:
    model = Model({"key": "a", **ARRAYS["stacks"]})
    opened(client, "lab/wrong", model.settings)
    sender, frame = Sender(client, "lab/wrong", "a"), frames_of(model, 1)[0]
    limit = 4 * model.per_row * frame.nbytes

    def npy(values: np.ndarray) -> bytes:
        out = io.BytesIO()
        np.save(out, values)
        return out.getvalue()

    digest = base64.b64encode(hashlib.sha256(b"other").digest()).decode()
    cases: list[tuple[int, str, bytes, dict[str, str]]] = [
        (422, "stream-full", bytes(limit + 1), {}),
        (400, "digest-mismatch", frame.tobytes(), {"Content-Digest": f"sha-256=:{digest}:"}),
        (400, "bad-body", npy(frame.astype("<f4")), {"Content-Type": "application/x-npy"}),
        (400, "bad-body", npy(frame[1:]), {"Content-Type": "application/x-npy"}),
        (400, "bad-body", b"no npy", {"Content-Type": "application/x-npy"}),
        (400, "bad-parameter", b"x", {"Upload-Offset": "-1"}),
        (400, "bad-parameter", b"x", {"Upload-Complete": "yes"}),
        (400, "bad-parameter", b"x", {"Stream-Epoch": "new"}),
        (409, "mismatching-upload-offset", b"x", {"Upload-Offset": "1"}),
        (415, "unsupported-media-type", b"x", {"Content-Type": "image/png"}),
    ]
    for status, code, body, headers in cases:
        answer = sender.patch(body, None, **headers)
        assert (answer.status_code, answer.json()["code"]) == (status, code)
        assert sender.state()["offset"] == 0
    taken = sender.patch(npy(frame.astype("<i4")), None, **{"Content-Type": "application/x-npy"})
    assert (taken.status_code, taken.headers["upload-offset"]) == (204, str(frame.nbytes))
    assert sender.patch(bytes(limit), frame.nbytes).json()["code"] == "stream-full"
    head = client.head("/v1/stream/lab/wrong?key=a").headers
    assert (head["upload-complete"], head["cache-control"]) == ("?0", "no-store")
    assert head["upload-limit"].startswith(f"max-size={limit}")
    assert sender.patch(b"x", frame.nbytes).status_code == 204
    inside = sender.patch(npy(frame), None, **{"Content-Type": "application/x-npy"})
    assert (inside.status_code, inside.json()["expected-offset"]) == (409, frame.nbytes + 1)


@BOTH
def test_a_stream_has_one_sender_and_one_set_of_settings(client: httpx.Client) -> None:
    array = {"key": "a", **ARRAYS["frames"]}
    opened(client, "lab/one", array)
    sender, url = Sender(client, "lab/one", "a"), "/v1/stream/lab/one"
    assert client.put(url, json={"arrays": [array]}).json()["code"] == "stream-conflict"
    changed = {**array, "dimensions": [T, Y, X | {"chunk": 6}]}
    refused = client.put(url, json={"arrays": [changed]}, params={"if_exists": "resume"})
    assert (refused.status_code, refused.json()["member"]) == (409, "arrays.0.dimensions.2.chunk")
    resumed = client.put(url, json={"arrays": [array]}, params={"if_exists": "resume"})
    assert (resumed.status_code, resumed.headers["stream-epoch"]) == (200, "2")
    assert sender.patch(b"x", 0, **{"Stream-Epoch": "1"}).json()["code"] == "stale-epoch"
    assert sender.patch(b"x", 0, **{"Stream-Epoch": "2"}).status_code == 204
    assert sender.patch(b"y", 0).json()["code"] == "mismatching-upload-offset"
    assert sender.patch(b"", 1, **{"Upload-Complete": "?1"}).headers["upload-complete"] == "?1"
    assert sender.patch(b"x", 1).json()["code"] == "completed-upload"
    client.delete(f"{url}?finish=true&drop=true").raise_for_status()
    assert (
        client.put(url, json={"arrays": [array]}, params={"if_exists": "resume"}).json()["code"] == "completed-upload"
    )
    assert client.put(url, json={"arrays": [array]}, params={"if_exists": "replace"}).status_code == 201
    assert sender.state()["offset"] == 0
    planned = client.put("/v1/stream/lab/dry", json={"arrays": [array]}, params={"dry_run": True})
    assert (planned.status_code, planned.json()["state"]) == (200, "dry_run")
    assert client.get("/v1/stream/lab/dry").json()["code"] == "stream-not-found"


@BOTH
def test_a_request_that_goes_on_when_its_array_is_complete_stores_no_more(client: httpx.Client) -> None:
    array = {"key": "a", **ARRAYS["frames"]}
    opened(client, "lab/complete", array)
    sender, frame = Sender(client, "lab/complete", "a"), frames_of(Model(array), 1)[0].tobytes()

    def body() -> Iterator[bytes]:
        yield frame
        wait_until(lambda: bool(sender.state()["offset"] == len(frame)))
        assert sender.patch(b"", len(frame), **{"Upload-Complete": "?1"}).status_code == 204
        yield frame

    headers = {"Upload-Offset": "0", "Content-Type": "application/octet-stream"}
    answer = client.patch("/v1/stream/lab/complete", content=body(), headers=headers)
    assert (answer.status_code, answer.json()["code"]) == (409, "completed-upload")
    assert sender.state()["offset"] == len(frame)


@BOTH
def test_bytes_that_are_stored_may_be_sent_again_after_the_end(lab: Lab) -> None:
    client, path = lab.client, "lab/again"
    array = {"key": "a", **ARRAYS["frames"]}
    opened(client, path, array)
    sender, data = Sender(client, path, "a"), b"".join(frame.tobytes() for frame in frames_of(Model(array), 3))
    assert sender.patch(data, 0).status_code == 204
    assert client.delete(f"/v1/stream/{path}?finish=true").json()["arrays"]["a"]["durable"] == 3
    for start, stop in ((0, len(data)), (7, 1000), (len(data) - 1, len(data))):
        again = sender.patch(data[start:stop], start)
        assert (again.status_code, again.headers["upload-offset"]) == (204, str(len(data))), again.text
        assert again.headers["upload-complete"] == "?1"
    name = b"\1\0\0\0a"
    frame = name + struct.pack("<QIQ", 1, 0, len(data) // 3) + data[len(data) // 3 : 2 * len(data) // 3]
    kind = {"Content-Type": "application/vnd.hyperslab.frames"}
    assert client.post(f"/v1/stream/{path}/frames", content=frame, headers=kind).status_code == 200
    refused = [(b"\xff" * 9, 5), (b"x", len(data)), (data + b"x", 0), (b"x", None), (b"x", len(data) + 1)]
    codes = [sender.patch(body, at).json()["code"] for body, at in refused]
    assert codes == ["mismatching-upload-offset", *["completed-upload"] * 4]
    state = client.get(f"/v1/stream/{path}").json()
    assert (state["state"], state["memory"]["used"]) == ("finished", 0)


@pytest.mark.parametrize("room", [0, 1 << 20])
def test_arrays_of_a_bucket_are_committed_at_the_same_time_if_there_is_memory(
    tmp_path: Path, s3_server: S3Server, monkeypatch: pytest.MonkeyPatch, room: int
) -> None:
    """Memory of a stream is reserved for one commit."""
    commit, active, both = Committer.commit, list[str](), threading.Event()
    most = 0

    def counted(committer: Committer, array: StreamArray, *arguments: Any, **options: Any) -> None:
        nonlocal most
        active.append(array.key)
        most = max(most, len(active))
        if len(active) > 1:
            both.set()
        both.wait(60 if room else 1)  # for another one to come
        commit(committer, array, *arguments, **options)
        active.remove(array.key)

    monkeypatch.setattr(Committer, "commit", counted)
    arrays = [{"key": key, **ARRAYS["frames"]} for key in "ab"]
    place = place_of("bucket", tmp_path, s3_server)
    data = b"".join(frame.tobytes() for frame in frames_of(Model(arrays[0]), 3))
    with client_of(place.store) as client:
        bound = client.put("/v1/stream/lab/run?dry_run=true", json={"arrays": arrays}).json()["memory"]["bound"]
    with client_of(place.store, bytes_in_flight=2 * (bound + room)) as client:
        opened(client, "lab/run", *arrays)
        for key in "ab":
            assert Sender(client, "lab/run", key).patch(data, 0).status_code == 204
        client.delete("/v1/stream/lab/run?finish=true").raise_for_status()
    assert most == (2 if room else 1)


@BOTH
def test_discard_takes_what_the_stream_has_made_and_nothing_else(lab: Lab) -> None:
    client = lab.client
    client.put("/v1/metadata/lab/gone/other", json={"shape": [2], "dtype": "|u1"}).raise_for_status()
    in_the_way = client.put("/v1/stream/lab/gone", json={"arrays": [{"key": "other", **ARRAYS["channels"]}]})
    assert (in_the_way.status_code, in_the_way.json()["code"]) == (409, "node-exists")
    opened(client, "lab/gone", {"key": "deep/a", **ARRAYS["channels"]})
    Sender(client, "lab/gone", "deep/a").patch(bytes(999), None)
    assert client.delete("/v1/stream/lab/gone?discard=true").status_code == 204
    assert client.get("/v1/stream/lab/gone").status_code == 404
    left = [path.relative_to(lab.place.folder) for path in (lab.place.files() / "gone").rglob("*") if path.is_file()]
    assert sorted(map(str, left)) == ["gone/.zgroup", "gone/other/.zarray"]


def test_a_record_whose_settings_are_gone_is_replaced(lab: Lab) -> None:
    """A removal leaves it so that is killed near its end."""
    opened(lab.client, "lab/cut", {"key": "a", **ARRAYS["channels"]})
    record = next(lab.place.files().joinpath("cut").rglob("stream.json"))
    text = record.read_bytes()
    assert lab.client.delete("/v1/stream/lab/cut?discard=true").status_code == 204
    record.parent.mkdir(parents=True)
    record.write_bytes(re.sub(rb'(?<="id":")\w{16}', b"0" * 16, text))  # this process knows the other's settings
    assert lab.client.get("/v1/stream/lab/cut").status_code == 404
    opened(lab.client, "lab/cut", {"key": "a", **ARRAYS["channels"]})


@BOTH
def test_an_array_that_others_change_stops_and_says_so(client: httpx.Client) -> None:
    arrays = [{"key": key, **ARRAYS["frames"]} for key in ("shrunk", "gone", "kept")]
    opened(client, "lab/others", *arrays)
    frames = frames_of(Model(arrays[0]), 6)
    data = b"".join(frame.tobytes() for frame in frames)
    senders = {key: Sender(client, "lab/others", key) for key in ("shrunk", "gone", "kept")}
    for sender in senders.values():
        assert sender.patch(data, None).status_code == 204
    client.patch("/v1/metadata/lab/others/shrunk", json={"shape": [2, None, None]}).raise_for_status()
    client.delete("/v1/metadata/lab/others/gone").raise_for_status()
    assert [senders[key].patch(data, len(data)).status_code for key in senders] == [409, 409, 204]
    assert senders["shrunk"].patch(data, len(data)).json()["code"] == "array-failed"
    np.testing.assert_array_equal(senders["shrunk"].read("lab/others/shrunk"), np.stack(frames[:2]))
    finished = client.delete("/v1/stream/lab/others?finish=true").raise_for_status().json()["arrays"]
    assert [bool(finished[key]["error"]) for key in senders] == [True, True, False]
    np.testing.assert_array_equal(senders["kept"].read("lab/others/kept"), np.stack(frames * 2))


def test_a_tail_that_somebody_has_removed_takes_no_bytes_in_the_wrong_place(tmp_path: Path) -> None:
    array, url = {"key": "a", **ARRAYS["frames"]}, "/v1/stream/lab/run"
    with client_of(folder(tmp_path)) as client:
        opened(client, "lab/run", array)
        sender = Sender(client, "lab/run", "a")
        sender.patch(bytes(2 * 572), 0).raise_for_status()
        for rows in (1, 0):  # the array fails, and its metadata are as before
            client.patch("/v1/metadata/lab/run/a", json={"shape": [rows, None, None]}).raise_for_status()
            assert client.post(f"{url}/skip", json={"frames": 1}).json()["code"] == "array-failed"
        next(tmp_path.glob("run/.hyperslab.stream/*/0/0")).unlink()
        client.put(f"{url}?if_exists=resume", json={"arrays": [array]}).raise_for_status()
        assert sender.patch(bytes(572), 2 * 572).json()["code"] == "array-failed"


@pytest.mark.parametrize(
    ("kind", "start", "stop", "nbytes"),
    [
        (0, 10, 5, 0),
        (0, 10, 2**63, 3),
        (0, 10, 12, 3),
        (0, 10, 14, 3),
        (1, 10, 9, 3),
        (1, 10, 2**63, 3),
        (2, 10, 3, 0),
        (2, 10, 11, 0),
        (0, 9, 12, 3),
        (0, 10, 13, 2**62),
    ],
)
def test_a_forged_record_of_a_tail_ends_it(tmp_path: Path, kind: int, start: int, stop: int, nbytes: int) -> None:
    log = open_store(StoreConfig("lab", str(tmp_path), writable=True)).open_log("a", create=True)
    assert log is not None
    TailLog(log, 4).append(DATA, 10, b"abcdef")
    head = struct.pack("<4sBxxxIQQQ", b"hsT1", kind, google_crc32c.value(b"xyz"), start, stop, nbytes)
    log.write(log.size, [(log.size, head + struct.pack("<I", google_crc32c.value(head)) + b"xyz")])
    TailLog(log, 4).append(DATA, 12, b"gh")
    again = TailLog(log, 4)
    assert [(piece.start, again.data(piece)) for piece in again.pieces] == [(4, b"abcdef"), (10, b"gh")]


def test_a_record_that_a_power_cut_tore_is_replaced_by_the_same_bytes_sent_again(tmp_path: Path) -> None:
    store = open_store(StoreConfig("lab", str(tmp_path), writable=True))
    logs = [log for _ in range(2) if (log := store.open_log("a", create=True)) is not None]
    TailLog(logs[0], 0).append(DATA, 6, b"abcdef")
    (tmp_path / "a").write_bytes((tmp_path / "a").read_bytes().replace(b"abcdef", b"abc\0\0\0"))
    writer, reader = (TailLog(log, 0) for log in logs)
    assert (writer.end, reader.end) == (0, 0)
    writer.append(DATA, 6, b"abcdef")
    assert (writer.end, reader.refresh()) == (6, 6)
    writer.append(DATA, 8, b"gh")
    assert reader.refresh() == 8
    assert b"".join(map(reader.data, reader.pieces)) == b"abcdefgh"


def test_memory_acknowledges_nothing_and_streams_that_were_opened_with_it_go_on(tmp_path: Path) -> None:
    model = Model({"key": "a", **ARRAYS["frames"]})
    model.frames = [*frames_of(model, 4)]
    data = b"".join(frame.tobytes() for frame in model.frames)
    settings = {"arrays": [model.settings]}
    with client_of(folder(tmp_path)) as client:
        refused = client.put("/v1/stream/lab/new", json={**settings, "ack": "memory"})
        assert (refused.status_code, refused.json()["code"], refused.json()["member"]) == (422, "bad-definition", "ack")
        assert "'memory'" in refused.json()["detail"]
        opened(client, "lab/run", model.settings)
        assert Sender(client, "lab/run", "a").patch(data[:100], 0).status_code == 204
    (stored,) = (tmp_path / "run" / ".hyperslab.stream").glob("*[0-9a-f].json")
    stored.write_text(stored.read_text().replace('"tail"', '"memory"'))
    assert '"memory"' in stored.read_text()
    with client_of(folder(tmp_path)) as client:
        sender = Sender(client, "lab/run", "a")
        assert sender.patch(data[100:], 100).status_code == 204
        check_reads(sender, model)


FORGED: list[dict[str, Any]] = [
    {"made": ["lab/forged-victim"]},
    {"made": ["other/a"]},
    {"made": [1]},
    {"id": "../../forged-victim"},
    {"state": "gone"},
    {"epoch": "1"},
    {"arrays": {"a": {"missing": [], "stored": "1"}}},
    {"arrays": {"a": {"missing": [[0]]}}},
]


def test_what_somebody_has_forged_of_a_stream_is_refused_and_removes_nothing(lab: Lab) -> None:
    client, url = lab.client, "/v1/stream/lab/forged"
    client.put("/v1/metadata/lab/forged-victim", json={"shape": [2], "dtype": "|u1"}).raise_for_status()
    opened(client, "lab/forged", {"key": "a", **ARRAYS["frames"]})
    folder = lab.place.folder / "forged"
    record = folder / ".hyperslab.stream" / "stream.json"
    document = json.loads(record.read_bytes())
    (lab.place.folder / "forged-victim.json").write_bytes((record.parent / f"{document['id']}.json").read_bytes())
    for forged in FORGED:
        record.write_text(json.dumps({**document, **forged}))
        asked = [client.get(url), Sender(client, "lab/forged", "a").patch(b"x", 0)]
        asked += [client.delete(f"{url}?{how}=true") for how in ("finish", "discard")]
        assert [answer.json()["code"] for answer in asked] == ["bad-metadata"] * 4, forged
    record.write_text(json.dumps(document))
    mark = json.loads((folder / "a" / ".zarray").read_bytes())
    assert document["id"] in json.dumps(mark)
    (folder / "a" / ".zarray").write_text(json.dumps(mark).replace(document["id"], "../../forged-victim"))
    assert client.get("/v1/metadata/lab/forged/a").json()["shape"] == [0, 11, 13]
    assert Sender(client, "lab/forged", "a").patch(b"x", 0).json()["code"] == "array-failed"
    assert client.delete(f"{url}?discard=true").status_code == 204
    assert client.get("/v1/metadata/lab/forged-victim").status_code == 200


def test_a_forged_head_of_a_tail_is_read_as_what_it_may_be_or_refused(tmp_path: Path) -> None:
    """Whatever stands in place of any value in it."""
    pieces = (Piece(4, 10, None, 0, None), Piece(10, 20, "a" * 32, 0, None), Piece(20, 30, None, 0, "why"))
    good = Head(4, pieces, b"abcdef", ((3, "1"),), ((0, "b" * 32),), 2).to_bytes()
    (length,) = struct.unpack("<I", good[:4])
    (array,) = StreamPlan.of(parse_settings({"arrays": [ARRAYS["frames"]]}), "lab/run").arrays
    found = json.loads(good[4 : 4 + length])

    def places(at: Any) -> Iterator[tuple[Any, Any]]:
        for key in at if isinstance(at, dict) else range(len(at)) if isinstance(at, list) else ():
            yield at, key
            yield from places(at[key])

    refused, store, tails = 0, open_store(StoreConfig("lab", str(tmp_path))), ObjectTails(VersionedCache(0))
    for inside, key in [*places(found)]:
        kept = inside[key]
        for inside[key] in (None, -1, 0, 1.5, 4.0, 2**70, True, "x", "1", [], {}, [1, 2], [[4, 10, None, 0, None]]):
            text = json.dumps(found).encode()
            try:
                head = Head.parse(struct.pack("<I", len(text)) + text + b"abcdef", "key")
            except BadMetadata:
                refused += 1
                continue
            tail = ObjectTail(tails, store, array, head, "version")
            for piece in head.pieces:
                if piece.name is None:
                    tail.read(piece.start, min(piece.stop - piece.start, 100))
            assert Head.parse(head.to_bytes(), "key") == head
        inside[key] = kept
    assert refused > 200


@BOTH
def test_a_stream_without_requests_is_flushed_and_closed_and_goes_on(lab: Lab) -> None:
    client = lab.client
    model = Model({"key": "a", **ARRAYS["frames"]})
    opened(client, "lab/expired", model.settings, expires_in=1)
    sender, frames = Sender(client, "lab/expired", "a"), frames_of(model, 5)
    sender.patch(b"".join(frame.tobytes() for frame in frames[:4]), None)
    if lab.place.bucket is None:  # another process seems to have sent after this one
        os.utime(lab.place.folder / "expired" / ".hyperslab.stream" / "stream.json", (time.time() + 2,) * 2)
    wait_until(lambda: b'"closed"' in lab.place.read("expired/.hyperslab.stream/stream.json"))
    model.frames = [*frames[:4]]
    check_files(lab, sender, model, final=False)
    assert client.get("/v1/stream/lab/expired").json()["state"] == "closed"
    assert sender.patch(frames[4].tobytes(), 4 * frames[4].nbytes).status_code == 204
    model.frames = [*frames]
    check_reads(sender, model)
    assert client.get("/v1/stream/lab/expired").json()["state"] == "open"


def test_a_part_of_a_frame_that_comes_while_a_stream_is_finished_keeps_it_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put, url = Records.put, "/v1/stream/lab/run"

    with client_of({"url": str(tmp_path), "writable": True, "durability": "rename"}) as client:

        def late(self: Records, mount: MountedStore, prefix: str, record: Record) -> Record:
            if record.state == "finishing" and not sent:
                sent.append(client.patch(url, content=frame[:7]).status_code)
            return put(self, mount, prefix, record)

        array, sent = {"key": "a", **ARRAYS["frames"]}, list[int]()
        frame = frames_of(Model(array), 1)[0].tobytes()
        opened(client, "lab/run", array)
        monkeypatch.setattr(Records, "put", late)
        refused = client.delete(f"{url}?finish=true")
        rest = client.patch(url, content=frame[7:], headers={"Upload-Offset": "7"})

        assert (sent, refused.status_code, refused.json()["code"]) == ([204], 422, "partial-frame")
        assert (rest.status_code, client.delete(f"{url}?finish=true").status_code) == (204, 200)


def test_a_stream_expires_though_a_request_was_cancelled_as_it_began(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    began, go, send = threading.Event(), threading.Event(), Streams.upload

    def waiting(*arguments: Any) -> Upload:
        began.set()
        assert go.wait(60)
        return send(*arguments)

    async def run() -> None:
        store = StoreSettings(url=str(tmp_path), writable=True, durability="rename")
        app, url = create_app(Settings(stores={"lab": store})), "/v1/stream/lab/run"
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://test") as client:
            array = {"key": "a", **ARRAYS["frames"]}
            answer = await client.put(url, json={"arrays": [array], "expires_in": 1})
            assert answer.status_code == 201, answer.text
            monkeypatch.setattr(Streams, "upload", waiting)
            patched = asyncio.create_task(client.patch(url, content=b"x"))
            assert await asyncio.to_thread(began.wait, 60)
            patched.cancel()
            await asyncio.wait([patched])
            go.set()
            record = tmp_path / "run" / ".hyperslab.stream" / "stream.json"
            await asyncio.to_thread(wait_until, lambda: b'"closed"' in record.read_bytes())

    asyncio.run(run())


def test_an_offset_that_is_looked_up_beside_a_commit_is_no_lower(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows move to chunks, and their tails go, between two looks at the store."""
    model = Model({"key": "a", **ARRAYS["frames"]})
    data, look = b"".join(frame.tobytes() for frame in frames_of(model, 4)), Tails.open
    size = len(data) // 4
    with client_of(folder(tmp_path)) as client:
        opened(client, "lab/run", model.settings)
        sender = Sender(client, "lab/run", "a")
        for number in (0, 1):
            assert sender.patch(data[number * size : (number + 1) * size], number * size).status_code == 204

        def late(*arguments: Any, **options: Any) -> Any:
            monkeypatch.setattr(Tails, "open", look)
            with httpx.Client(base_url=client.base_url, timeout=60) as other:
                rest = data[2 * size : 3 * size]
                assert Sender(other, "lab/run", "a").patch(rest, 2 * size).status_code == 204
                wait_until(lambda: not [*tmp_path.glob("run/.hyperslab.stream/*/0/0")])
            return look(*arguments, **options)

        monkeypatch.setattr(Tails, "open", late)
        assert sender.state()["offset"] == 3 * size
        assert sender.patch(data[3 * size :], 3 * size).status_code == 204


def test_an_offset_is_no_lower_when_rows_move_to_chunks_at_the_second_look(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rows of two looks are the same, and the tail of the second has gone."""
    model, look, commits = Model({"key": "a", **ARRAYS["frames"]}), Tails.open, list[Callable[[], None]]()
    data = b"".join(frame.tobytes() for frame in frames_of(model, 3))
    monkeypatch.setattr(ArrayCommits, "commit_later", lambda one, _: commits.append(partial(one.commit, whole=True)))
    with client_of(folder(tmp_path)) as client:
        opened(client, "lab/run", model.settings)
        sender = Sender(client, "lab/run", "a")
        for start in range(0, len(data), len(data) // 3):  # a whole group of rows, frame by frame
            assert sender.patch(data[start : start + len(data) // 3], start).status_code == 204
        looks = list[int]()

        def late(*arguments: Any, **options: Any) -> Any:
            looks.append(1)
            if len(looks) == 2:
                monkeypatch.setattr(Tails, "open", look)
                commits[-1]()
            return look(*arguments, **options)

        monkeypatch.setattr(Tails, "open", late)
        assert sender.state()["offset"] == len(data)
        monkeypatch.setattr(Tails, "open", look)
        commits[-1]()
        assert sender.state()["offset"] == len(data)
        assert not [*tmp_path.glob("run/.hyperslab.stream/*/0/0")]


@pytest.mark.parametrize("stored", [True, False], ids=["stored", "not stored"])
def test_lost_answers_never_fail_a_stream(
    tmp_path: Path, s3_server: S3Server, monkeypatch: pytest.MonkeyPatch, stored: bool
) -> None:
    """The first conditional put of each kind of key, and every seventh, of which it is not known if it was stored."""
    put, puts = ConditionalPuts.put, Counter[str]()

    def doubtful(this: ConditionalPuts, key: str, *others: Any) -> str:
        kind = re.sub("[0-9a-f]{16,}", "*", key)
        puts[kind] += "/lease/" not in key
        if puts[kind] % 7 != 1:
            return put(this, key, *others)
        if stored:
            put(this, key, *others)
        raise InDoubt(this.store, key, "an answer was lost")

    monkeypatch.setattr(ConditionalPuts, "put", doubtful)
    sizes = [T, dimension("y", 8, 4), dimension("x", 5, 5)]
    model = Model({"key": "a", "dtype": "<u2", "dimensions": sizes, "pyramid": {"method": "mean"}})
    place = place_of("bucket", tmp_path, s3_server)
    frames = [*frames_of(model, 7)]
    model.frames = [*frames]
    data, size = b"".join(frame.tobytes() for frame in frames), frames[0].nbytes
    with client_of(place.store) as client:
        opened(client, "lab/run", model.settings)
        sender = Sender(client, "lab/run", "a")
        for start in range(0, len(data), 2 * size):
            assert sender.patch(data[start : start + 2 * size], start).status_code == 204
        assert client.delete("/v1/stream/lab/run?finish=true").raise_for_status().json()["arrays"]["a"]["error"] is None
        check_reads(sender, model, final=True)
    assert {key.rpartition("/")[2] for key in puts} >= {".zarray", "stream.json", "head"}


def test_an_array_that_is_opened_beside_a_commit_of_two_groups_has_all_its_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, open_log = Model({"key": "a", **ARRAYS["frames"]}), Tails.log
    model.frames = [*frames_of(model, 8)]
    data = b"".join(frame.tobytes() for frame in frames_of(model, 8))
    size = len(data) // 8
    commits = list[Callable[[], None]]()  # held back
    monkeypatch.setattr(ArrayCommits, "commit_later", lambda one, _: commits.append(partial(one.commit, whole=False)))
    with client_of(folder(tmp_path)) as client:
        opened(client, "lab/run", model.settings)
        sender = Sender(client, "lab/run", "a")
        for start in range(0, 8 * size, size):
            assert sender.patch(data[start : start + size], start).status_code == 204

        def late(tails: Tails, store: Store, prefix: str, group: int, *others: Any, **options: Any) -> TailLog | None:
            if group == 1 and not options:
                monkeypatch.setattr(Tails, "log", open_log)
                commits[-1]()
            return open_log(tails, store, prefix, group, *others, **options)

        monkeypatch.setattr(Tails, "log", late)
        np.testing.assert_array_equal(sender.read("lab/run/a"), model.values(final=False))
        assert Tails.log is open_log


@pytest.mark.parametrize("kind", ["folder", "bucket"])
def test_of_two_who_send_to_one_place_through_two_replicas_one_wins(
    tmp_path: Path, s3_server: S3Server, kind: str
) -> None:
    model, won, count = Model({"key": "a", **ARRAYS["channels"]}), dict[int, bytes](), 24 if kind == "folder" else 10
    size = 11 * 13 * 2

    def send(seed: int, client: httpx.Client) -> None:
        sender, rng = Sender(client, "lab/run", "a"), np.random.default_rng(seed)
        while (offset := sender.state()["offset"]) < count * size:
            data = rng.bytes(min(int(rng.integers(1, 4 * size)), count * size - offset))
            answer = sender.patch(data, offset)
            if answer.status_code == 204:
                assert won.setdefault(offset, data) is data
            else:
                assert answer.json()["code"] == "mismatching-upload-offset"
            if rng.random() < 0.2:
                client.post("/v1/stream/lab/run/flush").raise_for_status()

    with ExitStack() as stack:
        place = place_of(kind, tmp_path, s3_server)
        servers = [stack.enter_context(running_server({"lab": place.store})) for _ in range(2)]
        clients = [stack.enter_context(httpx.Client(base_url=server.url, timeout=60)) for server in servers]
        opened(clients[0], "lab/run", model.settings)
        with ThreadPoolExecutor() as pool:
            for _ in pool.map(send, range(2), clients):
                pass
        raw = b"".join(won[offset] for offset in sorted(won))
        model.frames = [*np.frombuffer(raw, model.dtype).reshape(count, *model.frame_shape)]
        for client in clients:
            check_reads(Sender(client, "lab/run", "a"), model)
        lab = Lab(place, clients[1])
        assert lab.client.delete("/v1/stream/lab/run?finish=true").json()["arrays"]["a"]["error"] is None
        check_reads(Sender(clients[0], "lab/run", "a"), model, final=True)
        check_files(lab, Sender(clients[0], "lab/run", "a"), model, final=True)


def test_rows_of_which_most_come_at_once_go_to_chunks_and_not_through_the_tail(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    logged: list[int] = []
    write = LogFile.write

    def counted(log: LogFile, at: int, parts: Sequence[tuple[int, bytes | memoryview]]) -> None:
        logged.append(sum(len(data) for _, data in parts))
        write(log, at, parts)

    monkeypatch.setattr(LogFile, "write", counted)
    for name in ("_PAUSE", "_LONGEST_PIECE"):  # what is not sent for long is stored without the rest
        monkeypatch.setattr(routes, name, 60)
    side = [dimension("y", 1024, 512), dimension("x", 1024, 512)]
    model = Model({"key": "a", "dtype": "<u2", "dimensions": [dimension("t", None, 6), *side], "compressor": None})
    model.frames = [*frames_of(model, 16)]
    data, size = b"".join(frame.tobytes() for frame in frames_of(model, 16)), 2 << 20
    with client_of(folder(tmp_path)) as client:
        opened(client, "lab/run", model.settings)
        sender = Sender(client, "lab/run", "a")
        for start, stop in ((0, 1), (1, 15), (15, 16)):
            assert sender.patch(data[start * size : stop * size], start * size).status_code == 204
        assert sum(logged) < 6 * size  # 0, and 12 to 15
        check_reads(sender, model)
        client.delete("/v1/stream/lab/run?finish=true").raise_for_status()
    np.testing.assert_array_equal(zarr.open_array(tmp_path / "run" / "a", mode="r")[...], model.values(final=True))


def test_what_comes_little_by_little_is_stored_before_all_of_it_has_come(tmp_path: Path) -> None:
    array = {"key": "a", "dtype": "<u2", "dimensions": [dimension("t", None, 2), *SIDE]}
    done = threading.Event()

    def trickle() -> Iterator[bytes]:
        while not done.wait(0.02):  # never so long that a pause ends the piece
            yield bytes(64)

    with client_of(folder(tmp_path), idle_seconds=600) as client, ThreadPoolExecutor() as threads:
        opened(client, "lab/run", array)
        sending = threads.submit(client.patch, "/v1/stream/lab/run?key=a", content=trickle())
        try:
            wait_until(lambda: Sender(client, "lab/run", "a").state()["offset"] > 0)
        finally:
            done.set()

        assert sending.result().status_code == 204


def test_requests_that_send_at_the_same_time_wait_for_memory(tmp_path: Path) -> None:
    arrays = [{"key": key, "dtype": "<u2", "dimensions": [dimension("t", None, 2), *SIDE]} for key in "abc"]
    done = threading.Event()
    options: dict[str, Any] = {"bytes_in_flight": 24 << 20, "queue_seconds": 0.2}

    def slowly() -> Iterator[bytes]:
        yield bytes(1 << 19)
        while not done.wait(0.5):  # what pauses so long is stored
            yield bytes(1 << 10)

    with client_of(folder(tmp_path), **options) as client, ThreadPoolExecutor() as threads:
        opened(client, "lab/run", *arrays)

        def send(key: str, body: bytes | Iterator[bytes]) -> httpx.Response:
            return client.patch("/v1/stream/lab/run", params={"key": key}, content=body, headers={"Upload-Offset": "0"})

        try:
            slow = []
            for key in "ab":
                slow.append(threads.submit(send, key, slowly()))
                wait_until(lambda: Sender(client, "lab/run", key).state()["offset"] > 0)  # noqa: B023 - called here only
            refused = send("c", bytes(16 << 20))
        finally:
            done.set()
        assert (refused.status_code, "Retry-After" in refused.headers) == (503, True), refused.text
        assert [each.result().status_code for each in slow] == [204, 204]
        assert send("c", bytes(16 << 20)).status_code == 204


def test_what_a_frame_and_a_group_of_rows_cost_a_bucket(tmp_path: Path, s3_server: S3Server) -> None:
    place = place_of("bucket", tmp_path, s3_server)
    array = {"key": "a", "dtype": "<u2", "dimensions": [dimension("t", None, 4), *SIDE]}
    frame = np.random.default_rng(0).bytes(512 * 512 * 2)
    assert place.bucket is not None
    with FaultProxy(s3_server.url) as proxy:
        store = {**place.store, "options": dict(place.bucket.at(proxy.url).options)}

        def asked(method: str, path: str) -> int:
            return sum(each[0] == method and path in each[1] for each in proxy.answers)

        with running_server({"lab": store}) as server, httpx.Client(base_url=server.url, timeout=60) as client:
            opened(client, "lab/run", array)
            sender = Sender(client, "lab/run", "a")
            sender.patch(frame, 0).raise_for_status()
            for number in (1, 2):
                proxy.heal()
                sender.patch(frame, number * len(frame)).raise_for_status()
                assert len(proxy.answers) - asked("HEAD", "/watch") <= 5, proxy.answers
            proxy.heal()
            sender.patch(frame, 3 * len(frame)).raise_for_status()
            wait_until(lambda: asked("PUT", "/head") == 2)  # the bytes are in the tail, and then in chunks
            assert [asked("PUT", f"/run/a/0/{y}/{x}") for y in (0, 1) for x in (0, 1)] == [1, 1, 1, 1]
            assert len(proxy.answers) - asked("HEAD", "/watch") <= 33, proxy.answers


@pytest.mark.parametrize("late", ["chunk", "segment"])
def test_a_discard_beside_what_another_replica_stores_leaves_nothing(
    tmp_path: Path, s3_server: S3Server, late: str
) -> None:
    model, place = Model({"key": "a", **ARRAYS["channels"]}), place_of("bucket", tmp_path, s3_server)
    assert place.bucket is not None
    data = b"".join(frame.tobytes() for frame in frames_of(model, 6))
    with ExitStack() as stack:
        proxy = stack.enter_context(FaultProxy(s3_server.url))
        slow = {**place.store, "options": dict(place.bucket.at(proxy.url).options)}
        servers = [stack.enter_context(running_server({"lab": store})) for store in (place.store, slow)]
        one, other = (stack.enter_context(httpx.Client(base_url=server.url, timeout=60)) for server in servers)
        opened(one, "lab/run", model.settings)
        assert Sender(one, "lab/run", "a").patch(data[:-1], 0).status_code == 204

        def discard() -> None:
            assert one.delete("/v1/stream/lab/run?discard=true").status_code == 204

        name = json.loads(place.read("run/.hyperslab.stream/stream.json"))["id"]
        proxy.inject(Before(discard), method="PUT", path="/run/a/0/" if late == "chunk" else f"/{name}/0/")
        if late == "chunk":
            answer = other.post("/v1/stream/lab/run/flush")
        else:  # what no head has room for
            answer = Sender(other, "lab/run", "a").patch(bytes(300 << 10), len(data) - 1)
        assert answer.status_code in {404, 409}, answer.text
        assert one.get("/v1/metadata/lab/run").status_code == 404
    assert not [path for path in (place.files() / "run").rglob("*") if path.is_file()]


@BOTH
def test_conditions_on_documents_are_about_the_rows_that_readers_see(client: httpx.Client) -> None:
    settings = {"key": "a", **ARRAYS["frames"]}
    opened(client, "lab/conditions", settings)
    data = b"".join(frame.tobytes() for frame in frames_of(Model(settings), 2))  # which are in no chunk
    assert Sender(client, "lab/conditions", "a").patch(data, 0).status_code == 204
    url = "/v1/metadata/lab/conditions/a"
    before, told = client.get(url), list[httpx.Response]()
    for _ in range(2):
        patch = {"attributes": {"seen": len(told)}}
        told.append(client.patch(url, json=patch, headers={"If-Match": before.headers["etag"]}))
    after = client.get(url)
    assert [answer.status_code for answer in told] == [200, 412]
    assert (told[0].json()["shape"], told[0].headers["etag"]) == ([2, 11, 13], after.headers["etag"])
    assert (after.json()["shape"], after.json()["attributes"]["seen"]) == ([2, 11, 13], 0)
