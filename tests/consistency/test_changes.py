"""The change feed: whoever applies all events to a copy ends equal to what is stored, also when it is cut off."""

from __future__ import annotations

import json
import random
import threading
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack, closing, suppress
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from hyperslab.arrays.changes import ChangeLog
from hyperslab.asgi import create_app
from hyperslab.settings import Settings, StoreSettings
from hyperslab.wire import parse_selection
from tests.s3 import S3Bucket, S3Server
from tests.server import Server, running_server, served
from tests.streams.support import place_of

RAW = {"content-type": "application/octet-stream"}
DTYPE = np.dtype("<i4")
PATIENCE = 90
"""Seconds for which an event is waited for. A comment comes every 15."""


def events(client: httpx.Client, path: str, since: str | None = None) -> Generator[tuple[str, str, dict[str, Any]]]:
    """Id, kind and data of each event, until the connection ends; fails where none comes for long."""
    headers = {} if since is None else {"last-event-id": since}
    with client.stream("GET", f"/v1/changes/{path}", headers=headers, timeout=60) as response:
        assert response.status_code == 200, response.read()
        assert response.headers["content-type"].startswith("text/event-stream")
        event: dict[str, str] = {}
        heard = time.monotonic()
        for line in response.iter_lines():
            assert time.monotonic() - heard < PATIENCE, f"no event of {path} came"
            name, _, value = line.partition(": ")
            if line and name != ":":
                event[name] = value
            elif event:
                yield event["id"], event["event"], json.loads(event["data"])
                event, heard = {}, time.monotonic()


def next_changes(found: Iterator[tuple[str, str, dict[str, Any]]], until: str, member: str) -> list[dict[str, Any]]:
    """All data up to the event of a path that has this member."""
    told = []
    for _, kind, data in found:
        assert kind == "change"
        told.append(data)
        if data["path"] == until and member in data:
            return told
    raise AssertionError(f"the stream ended before {until}: {told}")


def sequence(answer: httpx.Response) -> int:
    return int(answer.json()["next"].rpartition("-")[2])


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    with running_server({"data": {"url": str(tmp_path), "writable": True}}) as running:
        yield running


def test_changes_of_other_programs_after_ready_are_in_the_feed_and_a_read_only_store_stays_unchanged(
    tmp_path: Path,
) -> None:
    for folder in (tmp_path, tmp_path / "a", tmp_path / "b"):
        folder.mkdir(exist_ok=True)
        (folder / ".zgroup").write_text('{"zarr_format": 2}')
    with (
        running_server({"data": {"url": str(tmp_path)}}) as server,
        httpx.Client(base_url=server.url) as client,
        closing(events(client, "data/a")) as first,
    ):
        assert next(first)[1] == "ready"
        time.sleep(1)  # the store is scanned, and not again for some seconds
        with closing(events(client, "data/b")) as second:
            assert next(second)[1] == "ready"
            (tmp_path / "b" / ".zattrs").write_text('{"by": "another program"}')
            next_changes(second, "data/b", "unknown")

    assert sorted(path.name for path in tmp_path.iterdir()) == [".zgroup", "a", "b"]


def test_each_kind_of_change_has_its_event(server: Server, tmp_path: Path) -> None:
    with httpx.Client(base_url=server.url) as client, closing(events(client, "data")) as found:
        first, kind, data = next(found)
        assert (kind, data) == ("ready", {})
        put = client.put("/v1/metadata/data/g/a", json={"shape": [20, 20], "chunks": [5, 5], "dtype": "<i4"})
        assert put.status_code == 201
        created = next_changes(found, "data/g/a", "created")[-1]
        assert (created["created"], created["shape"], created["boxes"]) == (True, [20, 20], ["0:20,0:20"])
        client.put("/v1/slice/data/g/a", params={"select": "7,0:12"}, content=bytes(48), headers=RAW)
        client.put("/v1/slice/data/g/a", params={"select": "7,0:12"}, content=b"\1" * 48, headers=RAW)
        boxes = next_changes(found, "data/g/a", "boxes")
        assert all(data.keys() == {"path", "boxes"} for data in boxes)
        assert set(boxes[0]["boxes"]) <= {"5:10,0:5", "5:10,0:10", "5:10,0:15", "5:10,5:10", "5:10,5:15", "5:10,10:15"}
        client.patch("/v1/metadata/data/g/a", json={"attributes": {"x": 1}})
        assert next_changes(found, "data/g/a", "attributes")[-1]["attributes"] == {"x": 1}
        client.patch("/v1/metadata/data/g/a", json={"shape": [30, 10]})
        grown = next_changes(found, "data/g/a", "shape")[-1]
        assert (grown["shape"], grown["boxes"][0]) == ([30, 10], "20:30,0:10")
        client.delete("/v1/metadata/data/g", params={"recursive": "true"})
        next_changes(found, "data/g", "deleted")
        client.put("/v1/metadata/data/next", json={"shape": [1], "chunks": [1], "dtype": "<i4"})
        next_changes(found, "data/next", "created")  # by then, all that the deletion removed was told

        polls = {"accept": "application/json"}
        polled = client.get("/v1/changes/data/g", headers=polls)
        assert polled.json()["events"] == []
        missed = client.get("/v1/changes/data/g", params={"since": first}, headers=polls)
        assert {event["path"] for event in missed.json()["events"]} <= {"data/g", "data/g/a"}
        assert sequence(missed) >= sequence(polled)  # also where the last change is none of the path's
        lost = client.get("/v1/changes/data/g", params={"since": "data=0-0"}, headers=polls)
        assert [(event["path"], event["unknown"]) for event in lost.json()["events"]] == [("data/g", True)]

        (tmp_path / "foreign").mkdir()
        (tmp_path / "foreign" / ".zgroup").write_text('{"zarr_format": 2}')
        foreign = {"path": "data/foreign", "unknown": True}
        assert next_changes(found, "data/foreign", "unknown")[-1] == foreign
        missed = client.get("/v1/changes/data", params={"since": polled.json()["next"]}, headers=polls)
        assert any(foreign.items() <= event.items() for event in missed.json()["events"])
        for since in ("zzz", "other=1-1", "data=x"):
            assert client.get("/v1/changes/data", params={"since": since}).json()["title"], since
        assert client.get("/v1/changes/nowhere").status_code == 404
        found.close()
        (tmp_path / "foreign" / ".zattrs").write_text('{"by": "another program"}')  # while nobody follows
        with closing(events(client, "data")) as found_again:
            assert next(found_again)[1] == "ready"
            assert next_changes(found_again, "data/foreign", "unknown")[-1] == foreign


def put_chunk(folder: Path, value: int) -> None:
    """As another program does that replaces a file."""
    (folder / ".new").write_bytes(bytes([value]) * 16)
    (folder / ".new").replace(folder / "0.0")


@pytest.mark.parametrize("case", ["followed", "cut off", "another replica"])
def test_a_chunk_that_another_program_replaces_after_the_service_is_unknown(
    server: Server, tmp_path: Path, case: str
) -> None:
    """Also if nobody follows meanwhile, or scanned it in the process that the follower comes back to."""
    definition = {"shape": [4, 4], "chunks": [4, 4], "dtype": "|u1", "compressor": None}
    with ExitStack() as stack:
        client = stack.enter_context(httpx.Client(base_url=server.url, timeout=60))
        client.put("/v1/metadata/data/x", json=definition).raise_for_status()
        first = stack.enter_context(closing(events(client, "data/x")))
        assert next(first)[1] == "ready"
        client.put("/v1/slice/data/x", content=bytes([1]) * 16, headers=RAW).raise_for_status()
        last, _, told = next(first)
        assert told == {"path": "data/x", "boxes": ["0:4,0:4"]}
        if case == "followed":
            put_chunk(tmp_path / "x", 2)
            assert next_changes(first, "data/x", "unknown")
            return
        first.close()
        put_chunk(tmp_path / "x", 2)
        if case == "another replica":
            other = stack.enter_context(running_server({"data": {"url": str(tmp_path), "writable": True}}))
            client = stack.enter_context(httpx.Client(base_url=other.url, timeout=60))
        again = stack.enter_context(closing(events(client, "data/x", last)))
        assert next(again)[1] == "ready"
        assert next_changes(again, "data/x", "unknown")


@pytest.mark.parametrize("renewed", [0, 1 << 62], ids=["long ago", "before the clock went back"])
def test_after_a_long_time_without_followers_everything_is_unknown(
    server: Server, tmp_path: Path, renewed: int
) -> None:
    accept = {"accept": "application/json"}
    last = httpx.get(f"{server.url}/v1/changes/data", headers=accept).json()["next"]
    (tmp_path / ".hyperslab" / "watch").write_text(json.dumps({"renewed": renewed}))
    with running_server({"data": {"url": str(tmp_path), "writable": True}}) as another:
        missed = httpx.get(f"{another.url}/v1/changes/data", params={"since": last}, headers=accept)
    assert [(event["path"], event["unknown"]) for event in missed.json()["events"]] == [("data", True)]


SPACE = {"type": "space", "size": 8, "chunk": 4}
DIMENSIONS = [{"name": "t", "type": "time", "size": None, "chunk": 10}, {"name": "y"} | SPACE, {"name": "x"} | SPACE]
FRAMES = {"arrays": [{"key": "s", "dtype": "|u1", "pyramid": {"method": "mean"}, "dimensions": DIMENSIONS}]}


@pytest.mark.parametrize(("path", "case"), [("data", "followed"), ("data/run/s/1", "followed"), ("data", "cut off")])
@pytest.mark.parametrize("kind", ["folder", "bucket"])
def test_rows_of_a_stream_are_in_the_feed_though_their_process_ends_before_it_logs_them(
    tmp_path: Path, s3_server: S3Server, monkeypatch: pytest.MonkeyPatch, kind: str, path: str, case: str
) -> None:
    stores, frame = {"data": place_of(kind, tmp_path, s3_server).store}, bytes(64)
    with ExitStack() as stack:
        server = stack.enter_context(running_server(stores))
        client = stack.enter_context(httpx.Client(base_url=server.url, timeout=60))
        client.put("/v1/stream/data/run", json=FRAMES).raise_for_status()
        first = stack.enter_context(closing(events(client, path)))
        last, _, _ = next(first)
        if case == "cut off":
            first.close()
            other = stack.enter_context(running_server(stores))
            client = stack.enter_context(httpx.Client(base_url=other.url, timeout=60))
        monkeypatch.setattr(ChangeLog, "record", lambda *_, **__: None)
        with served(create_app(Settings(stores={"data": StoreSettings(**stores["data"])}))) as url:
            sent = httpx.patch(f"{url}/v1/stream/data/run", params={"key": "s"}, content=frame, headers=RAW)
        assert sent.status_code == 204
        if case == "followed":
            told = next_changes(first, "data/run/s/1", "shape")[-1]
            assert (told["shape"], told["boxes"]) == ([1, 4, 4], ["0:1,0:4,0:4"])
        else:
            again = stack.enter_context(closing(events(client, path, last)))
            assert [next(again)[1], next(again)[2]] == ["ready", {"path": path, "unknown": True}]


def test_each_row_of_a_stream_is_in_the_feed_before_it_is_in_a_chunk(server: Server) -> None:
    with httpx.Client(base_url=server.url) as client, closing(events(client, "data")) as found:
        client.put("/v1/stream/data/run", json=FRAMES).raise_for_status()
        assert next(found)[1] == "ready"
        for row in range(3):
            client.patch("/v1/stream/data/run", params={"key": "s"}, content=bytes(64), headers=RAW).raise_for_status()
            told = next_changes(found, "data/run/s/1", "shape")
            first = next(data for data in told if data["path"] == "data/run/s/0" and "shape" in data)
            assert (first["shape"], first["boxes"]) == ([row + 1, 8, 8], [f"{row}:{row + 1},0:8,0:8"])
            assert told[-1]["shape"] == [row + 1, 4, 4]


Replace = Callable[[str, bytes], None]
"""Stores a value under a key as another program does."""


class Copy:
    """What a follower makes of events: arrays by path, each read again where an event says so."""

    def __init__(self, clients: list[httpx.Client]) -> None:
        self.clients = clients
        self.arrays: dict[str, np.ndarray[Any, Any]] = {}

    def read(self, path: str, select: str = "") -> np.ndarray[Any, Any] | None:
        client, params = random.choice(self.clients), {"select": select} if select else {}
        while (response := client.get(f"/v1/slice/{path}", params=params)).status_code == 503:
            pass  # written again and again while it was read
        if response.status_code != 200:
            return None
        return np.frombuffer(response.content, DTYPE).reshape(json.loads(response.headers["array-shape"]))

    def is_equal(self, store: str) -> bool:
        paths = [f"{store}/c/0", f"{store}/c/1"]
        pairs = [(self.arrays.get(path), self.read(path)) for path in paths]
        return all(a is not None and b is not None and np.array_equal(a, b) for a, b in pairs)

    def apply(self, data: dict[str, Any]) -> None:
        path = data["path"]
        if "deleted" in data:
            self.arrays.pop(path, None)
        elif "shape" in data:
            before, self.arrays[path] = self.arrays.get(path), np.zeros(data["shape"], DTYPE)
            if before is not None and "created" not in data:
                common = tuple(slice(0, min(a, b)) for a, b in zip(before.shape, data["shape"], strict=True))
                self.arrays[path][common] = before[common]
        if data.keys() == {"path"} or "unknown" in data:
            for each in [path] if path in self.arrays else ["disk/c/0", "disk/c/1", "bucket/c/0", "bucket/c/1"]:
                whole = self.read(each) if each.startswith(path) else None
                if whole is not None:
                    self.arrays[each] = whole.copy()
        for box in data.get("boxes", ()) if path in self.arrays else ():
            items = parse_selection(box)
            values, cells = self.read(path, box), self.arrays[path][items]
            if values is not None and values.shape == cells.shape:  # else another event is on its way
                cells[...] = values


def change_at_random(client: httpx.Client, store: str, seed: int, replace: Replace) -> None:
    """Resizes, appends, writes, creates anew, and has chunks replaced by another program."""
    rng, path = random.Random(seed), f"/{store}/c/{seed}"
    definition = {"shape": [12, 6], "chunks": [4, 3], "dtype": "<i4", "fill_value": 0, "compressor": None}
    assert client.put(f"/v1/metadata{path}", json=definition).status_code == 201
    rows = 12
    for _ in range(12):
        draw = rng.random()
        if draw < 0.1:
            client.delete(f"/v1/metadata{path}").raise_for_status()
            client.put(f"/v1/metadata{path}", json={**definition, "shape": [rows, 6]}).raise_for_status()
        elif draw < 0.3:
            key = f"c/{seed}/{rng.randrange(-(-rows // 4))}.{rng.randrange(2)}"
            replace(key, np.full(12, rng.randrange(1, 99), DTYPE).tobytes())
        elif draw < 0.4:
            rows = rng.randrange(6, 20)
            client.patch(f"/v1/metadata{path}", json={"shape": [rows, 6]}).raise_for_status()
        elif draw < 0.55:
            values = np.full((2, 6), rng.randrange(1, 99), DTYPE)
            response = client.post(
                f"/v1/append{path}", content=values.tobytes(), headers={**RAW, "array-shape": "[2,6]"}
            )
            response.raise_for_status()
            rows += 2
        else:
            low, high = sorted(rng.sample(range(rows + 1), 2))
            values = np.full((high - low, 4), rng.randrange(1, 99), DTYPE)
            select = {"select": f"{low}:{high},1:5"}
            client.put(f"/v1/slice{path}", params=select, content=values.tobytes(), headers=RAW).raise_for_status()


@pytest.mark.parametrize("store", ["disk", "bucket"])
def test_a_follower_that_is_cut_off_at_random_ends_equal(
    store: str, replicas: list[Server], disk: Path, bucket: S3Bucket, s3_server: S3Server
) -> None:
    """Two replicas of two workers change two arrays; the follower reconnects to either."""

    def replace_file(key: str, data: bytes) -> None:
        (disk / key).with_name(".new").write_bytes(data)
        (disk / key).with_name(".new").replace(disk / key)

    def replace_object(key: str, data: bytes) -> None:
        s3_server.client.put_object(Bucket=bucket.name, Key=key, Body=data)

    with ExitStack() as stack:
        clients = [stack.enter_context(httpx.Client(base_url=s.url, timeout=60)) for s in replicas]
        follow(store, clients, replace_file if store == "disk" else replace_object)


def follow(store: str, clients: list[httpx.Client], replace: Replace) -> None:
    """Follow, and be cut off, until two writers have ended and the copy is equal, which it is after some last events:
    workers tell what they stored each by themselves, so those of the other writer may come after its mark."""
    copy, last, finished = Copy(clients), None, threading.Event()
    writers = [threading.Thread(target=change_at_random, args=(clients[i], store, i, replace)) for i in range(2)]

    def write() -> None:
        for writer in writers:
            writer.start()
        for writer in writers:
            writer.join()
        for i in range(2):  # a mark that the follower waits for
            clients[0].patch(f"/v1/metadata/{store}/c/{i}", json={"attributes": {"done": True}}).raise_for_status()

    def is_marked(path: str) -> bool:
        answer = clients[0].get(f"/v1/metadata/{path}")
        return answer.status_code == 200 and "done" in answer.json()["attributes"]

    writing = threading.Thread(target=write)
    marks: set[str] = set()
    paths = [f"{store}/c/{i}" for i in range(2)]
    while len(marks) < 2 or not copy.is_equal(store):
        patience = random.randrange(1, 12)
        with suppress(httpx.HTTPError), closing(events(random.choice(clients), f"{store}/c", last)) as found:
            for count, (identifier, kind, data) in enumerate(found):
                last = identifier
                if kind == "ready" and not writing.is_alive() and not finished.is_set():
                    writing.start()
                    finished.set()
                elif kind == "change":
                    copy.apply(data)
                    if data.get("attributes", {}).get("done"):
                        marks.add(data["path"])
                    elif data.get("unknown"):  # whatever changed, the mark too
                        marks |= {path for path in paths if path.startswith(data["path"]) and is_marked(path)}
                if count >= patience or (len(marks) == 2 and copy.is_equal(store)):
                    break
    writing.join()
