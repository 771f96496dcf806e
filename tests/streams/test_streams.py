"""Streams over HTTP, against a numpy model: whatever way frames come, readers see whole rows and only right ones."""

from __future__ import annotations

import base64
import hashlib
import io
import re
import struct
from collections.abc import Iterator

import httpx
import numpy as np
import pytest
import zarr

from tests.server import wait_until
from tests.streams.model import Model, Sender
from tests.streams.samples import (
    ARRAYS,
    BOTH,
    C,
    T,
    X,
    Y,
    check_files,
    check_reads,
    frames_of,
    opened,
)
from tests.streams.support import Lab


@pytest.mark.parametrize(
    ("lab", "name", "seed"),
    [
        *[("folder", name, number % 2) for number, name in enumerate(ARRAYS)],
        *[("bucket", name, 1) for name in ("channels", "sharded")],
    ],
    indirect=["lab"],
    scope="module",
)
def test_frames_in_any_cuts_with_retries_and_wrong_offsets_read_as_they_were_sent(
    lab: Lab, name: str, seed: int
) -> None:
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
            skipped = {"key": "a", "frames": float(-action), "reason": "the camera was slow", "at": float(sent)}
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
def test_a_body_that_still_arrives_when_its_array_is_complete_is_refused(client: httpx.Client) -> None:
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
