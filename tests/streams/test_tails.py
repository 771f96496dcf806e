"""Tails of streams: what is stored of bytes that are not in chunks, what it costs, and what is damaged or forged."""

from __future__ import annotations

import json
import struct
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import google_crc32c
import httpx
import numpy as np
import pytest
import zarr

from hyperslab.api.routes import stream as routes
from hyperslab.cache import VersionedCache
from hyperslab.errors import BadMetadata
from hyperslab.storage import StoreConfig, open_store
from hyperslab.storage.files import LogFile
from hyperslab.streams.layout import StreamPlan
from hyperslab.streams.objects import HeadObject, ObjectTail, ObjectTails
from hyperslab.streams.settings import parse_settings
from hyperslab.streams.tail import DATA, Piece, TailLog
from hyperslab.streams.tails import Tails
from tests.faults import FaultProxy
from tests.s3 import S3Server
from tests.server import running_server, wait_until
from tests.streams.model import Model, Sender
from tests.streams.samples import (
    ARRAYS,
    check_reads,
    folder,
    frames_of,
    opened,
)
from tests.streams.support import Lab, client_of, dimension, place_of

SIDE = [dimension("y", 512, 256), dimension("x", 512, 256)]


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
def test_a_log_ends_before_a_forged_record(tmp_path: Path, kind: int, start: int, stop: int, nbytes: int) -> None:
    log = open_store(StoreConfig("lab", str(tmp_path), writable=True)).open_log("a", create=True)
    assert log is not None
    TailLog(log, 4).append(DATA, 10, b"abcdef")
    head = struct.pack("<4sBxxxIQQQ", b"hsT1", kind, google_crc32c.value(b"xyz"), start, stop, nbytes)
    log.write(log.size, [(log.size, head + struct.pack("<I", google_crc32c.value(head)) + b"xyz")])
    TailLog(log, 4).append(DATA, 12, b"gh")
    again = TailLog(log, 4)
    assert [(piece.start, again.data(piece)) for piece in again.pieces] == [(4, b"abcdef"), (10, b"gh")]


def test_a_log_that_was_removed_is_not_written_to(tmp_path: Path) -> None:
    store, tails = open_store(StoreConfig("lab", str(tmp_path), writable=True)), Tails(VersionedCache(0))
    tails.writable_log(store, "tails/", 0).append(DATA, 6, b"abcdef")
    tails.remove(store, SimpleNamespace(tails="tails/"), 0)  # type: ignore[arg-type]

    assert tails.writable_log(store, "tails/", 0).end == 0


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
    frames = frames_of(model, 4)
    model.frames = [*frames]
    data = b"".join(frame.tobytes() for frame in frames)
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
    good = HeadObject(4, pieces, b"abcdef", ((3, "1"),), ((0, "b" * 32),), 2).to_bytes()
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
                head = HeadObject.parse(struct.pack("<I", len(text)) + text + b"abcdef", "key")
            except BadMetadata:
                refused += 1
                continue
            tail = ObjectTail(tails, store, array, head, "version")
            for piece in head.pieces:
                if piece.name is None:
                    tail.read(piece.start, min(piece.stop - piece.start, 100))
            assert HeadObject.parse(head.to_bytes(), "key") == head
        inside[key] = kept
    assert refused > 200


def test_most_of_a_group_in_one_piece_goes_to_chunks_and_not_through_the_tail(
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


def test_a_slow_body_is_stored_piece_by_piece_as_it_arrives(tmp_path: Path) -> None:
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


def test_concurrent_senders_wait_for_memory(tmp_path: Path) -> None:
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


def test_a_frame_and_a_group_of_rows_cost_few_requests_to_a_bucket(tmp_path: Path, s3_server: S3Server) -> None:
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
