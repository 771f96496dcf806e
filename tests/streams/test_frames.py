"""Frames of several arrays in one body, and their metadata."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from hyperslab.arrays.nodes import MountedStore
from hyperslab.cache import VersionedCache
from hyperslab.storage import StoreConfig, open_store
from hyperslab.streams.layout import StreamPlan
from hyperslab.streams.settings import parse_settings
from hyperslab.streams.tails import Tails
from tests.s3 import S3Server
from tests.server import running_server
from tests.streams.model import Sender
from tests.streams.support import Place, dimension, place_of

SHAPE, KEYS = (5, 6), ("a", "b/c")
ARRAYS = [
    {"key": key, "dtype": "<u2", "dimensions": [dimension("t", size, 2), dimension("y", 5), dimension("x", 6)]}
    for key, size in zip(KEYS, (None, 4), strict=True)
]


@contextmanager
def served(place: Place) -> Iterator[httpx.Client]:
    with running_server({"lab": place.store}) as server, httpx.Client(base_url=server.url, timeout=60) as found:
        yield found


def frame(key: str, index: int) -> np.ndarray:
    return np.random.default_rng([len(key), index]).integers(0, 60000, SHAPE).astype("<u2")


def entry(key: str, index: int, metadata: Any = None, data: bytes | None = None) -> bytes:
    name, text = key.encode(), b"" if metadata is None else json.dumps(metadata).encode()
    raw = frame(key, index).tobytes() if data is None else data
    head = struct.pack("<I", len(name)) + name + struct.pack("<QI", index, len(text)) + text
    return head + struct.pack("<Q", len(raw)) + raw


def post(client: httpx.Client, body: Any, path: str = "lab/run", **headers: str) -> tuple[int, dict[str, int], Any]:
    kind = {"Content-Type": "application/vnd.hyperslab.frames"}
    answer = client.post(f"/v1/stream/{path}/frames", content=body, headers={**kind, **headers})
    document = answer.json()
    return answer.status_code, {key: each["offset"] for key, each in document.get("arrays", {}).items()}, document


def lines(client: httpx.Client, key: str, start: int = 0) -> list[dict[str, Any]]:
    answer = client.get("/v1/stream/lab/run/frames", params={"key": key, "from": start}).raise_for_status()
    return [json.loads(line) for line in answer.text.splitlines()]


@pytest.mark.parametrize("kind", ["folder", "bucket"])
def test_frames_and_their_metadata_are_those_sent_in_spite_of_cuts_refusals_and_restarts(
    tmp_path: Path, s3_server: S3Server, kind: str
) -> None:
    place = place_of(kind, tmp_path, s3_server)
    with served(place) as client:
        send(client)
    with served(place) as client:
        check_metadata(client, place)


def send(client: httpx.Client) -> None:
    size = frame("a", 0).nbytes
    client.put("/v1/stream/lab/run", json={"arrays": ARRAYS}).raise_for_status()
    turns = [entry(key, index, {"z": index, "on": key}) for index in range(3) for key in KEYS]
    body = b"".join(turns)
    pieces = (body[start : start + 37] for start in range(0, len(body), 37))
    assert post(client, pieces)[:2] == (200, {"a": 3 * size, "b/c": 3 * size})
    assert post(client, body)[:2] == (200, {"a": 3 * size, "b/c": 3 * size})  # a retry
    assert post(client, b"")[:2] == (200, {})
    cut = entry("a", 3) + entry("b/c", 3, [1.5])
    for length in (len(cut) - 1, len(entry("a", 3)) + 2, len(entry("a", 3))):
        status, offsets, _ = post(client, cut[:length])
        assert (status, offsets["a"]) == (200 if length == len(entry("a", 3)) else 400, 4 * size)
        assert offsets.get("b/c", 3 * size) == 3 * size
    refused = {
        entry("a", 9): 409,
        entry("a", 1, {"z": 1, "on": "b"}): 409,
        entry("a", 1, None, bytes(size)): 409,
        entry("a", 2**64 - 1): 409,
        entry("a", 5, None, bytes(size - 1)): 400,
        entry("none", 0): 400,
        entry("", 0): 400,
        entry("a", 5).replace(struct.pack("<QI", 5, 0), struct.pack("<QI", 5, 2) + b"{]"): 400,
        struct.pack("<I", 2**32 - 1): 400,
        struct.pack("<I", 1) + b"a" + struct.pack("<QI", 4, 2**32 - 1): 400,
        struct.pack("<I", 1) + b"a" + struct.pack("<QIQ", 4, 0, 2**63): 400,
    }
    for at, (wrong, expected) in enumerate(refused.items(), 4):
        status, offsets, document = post(client, entry("a", at, at) + wrong + entry("a", at + 1))
        assert (status, offsets["a"]) == (expected, (at + 1) * size), document
    assert post(client, entry("b/c", 3, [1.5]) + entry("b/c", 4))[:2] == (422, {"b/c": 4 * size})
    last = 4 + len(refused)
    digest = {"Content-Digest": "sha-256=:AAAA:"}
    assert post(client, entry("a", last), **digest)[0] == 400
    assert post(client, entry("a", last), **{"Content-Encoding": "gzip"})[0] == 415
    assert post(client, b"", "lab/none")[0] == 404
    for key, count in zip(KEYS, (last, 4), strict=True):
        stored = np.stack([frame(key, index) for index in range(count)])
        np.testing.assert_array_equal(Sender(client, "lab/run", key).read(f"lab/run/{key}"), stored)


def check_metadata(client: httpx.Client, place: Place) -> None:
    told = [{"key": "b/c", "frame": index, "metadata": {"z": index, "on": "b/c"}} for index in range(3)]
    told.append({"key": "b/c", "frame": 3, "metadata": [1.5]})
    assert lines(client, "b/c") == told
    first = [{"key": "a", "frame": index, "metadata": {"z": index, "on": "a"}} for index in range(3)]
    first += [{"key": "a", "frame": index, "metadata": index} for index in range(4, 15)]
    assert lines(client, "a", 2) == first[2:]
    assert lines(client, "a", 15) == []
    assert client.get("/v1/stream/lab/run/frames?key=none").status_code == 400
    client.delete("/v1/stream/lab/run?finish=true").raise_for_status()
    stored = [json.loads(line) for line in place.read("run/frames.jsonl").splitlines()]
    assert stored == first + told
    assert lines(client, "b/c", 1) == told[1:]
    assert post(client, entry("a", 15))[0] == 409
    client.delete("/v1/stream/lab/run?discard=true").raise_for_status()
    assert not [path for path in place.files().rglob("run/**/*") if path.is_file()]


def test_foreign_documents_stay_and_metadata_of_an_unsent_frame_is_not_that_of_the_next(
    tmp_path: Path, s3_server: S3Server
) -> None:
    theirs, place = tmp_path / "run" / "frames.jsonl", place_of("folder", tmp_path, s3_server)
    with served(place) as client:
        client.put("/v1/stream/lab/run", json={"arrays": ARRAYS[:1]}).raise_for_status()
        theirs.write_text("theirs")
        assert post(client, entry("", 0, "first", frame("a", 0).tobytes()) + entry("a", 1))[0] == 200
        (folder,) = (tmp_path / "run" / ".hyperslab.stream").glob("*.frames/0")
        store = open_store(StoreConfig("lab", str(tmp_path), writable=True))
        stream = folder.parent.name.removesuffix(".frames")
        (array,) = StreamPlan.of(parse_settings({"arrays": ARRAYS[:1]}), "lab/run", stream).arrays
        Tails(VersionedCache(0)).open(MountedStore("lab", store), array)[0].put_note(2, b'"killed after this"')
        assert post(client, entry("a", 2))[0] == 200
        client.delete("/v1/stream/lab/run?finish=true").raise_for_status()
        assert lines(client, "a") == [{"key": "a", "frame": 0, "metadata": "first"}]
        client.delete("/v1/stream/lab/run?discard=true").raise_for_status()
    assert theirs.read_text() == "theirs"
