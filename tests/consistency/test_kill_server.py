"""SIGKILL of a whole service under HTTP load, or a store that loses answers: what was acknowledged is there, and
everything can be read.

``TEST_KILLS`` says how often, 4 times by default; in a bucket half as often.
"""

from __future__ import annotations

import os
import random
import time
from abc import ABC, abstractmethod
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import zarr

from tests.faults import FaultProxy, LoseAnswer
from tests.layouts import definition
from tests.s3 import S3Server
from tests.server import running_server

NDArray = np.ndarray[Any, Any]

KILLS = int(os.environ.get("TEST_KILLS", "4"))
JSON = {"Content-Type": "application/json"}
SIZE, CHUNK, COLUMNS = 24, 8, 4


class Load(ABC):
    """One client that writes until the service dies, and then says what must be true of the array at ``path``."""

    cost = 1

    def __init__(self, name: str, shape: tuple[int, ...], stored: tuple[int, ...], layout: str = "v2") -> None:
        self.path = f"data/{name}"
        self.definition = definition(layout, shape, stored)
        self.done = 0

    def run(self, client: httpx.Client) -> None:
        """Returns when the service is gone; any answer but the expected one is an error."""
        try:
            while True:
                self.step(client)
                self.done += 1
        except httpx.TransportError:
            return

    @abstractmethod
    def step(self, client: httpx.Client) -> None:
        """One operation; what it does is noted before it is asked for, and once more when it is acknowledged."""

    @abstractmethod
    def check(self, client: httpx.Client) -> None:
        """Compare what is stored now with what was acknowledged, and go on from there."""

    def read(self, client: httpx.Client, select: str = "") -> NDArray:
        answer = client.get(f"/v1/slice/{self.path}", params={"select": select})
        assert answer.status_code == 200, answer.text
        shape = [int(size) for size in answer.headers["array-shape"].strip("[]").split(",") if size]
        return np.frombuffer(answer.content, "<i4").reshape(shape)

    def put(self, client: httpx.Client, select: str, value: int, **headers: str) -> httpx.Response:
        url = f"/v1/slice/{self.path}"
        return client.put(url, params={"select": select}, content=str(value), headers={**JSON, **headers})


class Boxes(Load):
    """Boxes and cells in columns of its own, of an array whose chunks hold the columns of all."""

    def __init__(self, number: int, layout: str) -> None:
        super().__init__(f"boxes/{layout}", (SIZE, SIZE), (CHUNK, CHUNK), layout)
        self.number, self.random = number, random.Random(number)
        self.model: NDArray = np.zeros((SIZE, SIZE // 3), "<i4")
        self.pending: tuple[int, int, int] | None = None

    def step(self, client: httpx.Client) -> None:
        start, stop = sorted(self.random.sample(range(SIZE + 1), 2))
        self.pending = (start, stop, self.done * 10 + self.number)
        assert self.put(client, f"{start}:{stop},{self.number}::3", self.pending[2]).status_code == 204
        self._settle(slice(start, stop))

    def _settle(self, rows: slice) -> None:
        assert self.pending is not None
        self.model[rows], self.pending = self.pending[2], None

    def check(self, client: httpx.Client) -> None:
        found = self.read(client, f":,{self.number}::3")
        wrong = found != self.model
        if self.pending is not None:
            start, stop, value = self.pending
            assert not np.delete(wrong, np.s_[start:stop], axis=0).any()
            assert (found[wrong] == value).all()
        else:
            assert not wrong.any()
        self.model, self.pending = found.copy(), None


class Counter(Load):
    """Increments of one cell under ``If-Match``."""

    def __init__(self) -> None:
        super().__init__("counter", (4,), (4,), "v3")
        self.value = 0

    def step(self, client: httpx.Client) -> None:
        tag = client.head(f"/v1/slice/{self.path}").headers["etag"]
        assert self.put(client, "", self.value + 1, **{"If-Match": tag}).status_code == 204
        self.value += 1

    def check(self, client: httpx.Client) -> None:
        found = set(self.read(client).tolist())
        assert found in ({self.value}, {self.value + 1})
        (self.value,) = found


class Appends(Load):
    """Appends with a key each; one whose answer never came is repeated."""

    def __init__(self) -> None:
        super().__init__("log", (0, COLUMNS), (4, COLUMNS), "shards")
        self.rows: list[int] = []
        self.value = 0

    def step(self, client: httpx.Client) -> None:
        if self.value == (self.rows[-1] if self.rows else 0):
            self.value += 1
        rows = np.full((1 + self.value % 5, COLUMNS), self.value, "<i4")
        key = {"Idempotency-Key": f"append {self.value}"}
        answer = client.post(f"/v1/append/{self.path}", content=rows.tobytes(), headers=key)
        assert answer.status_code in (200, 201), answer.text
        assert answer.json()["offset"] == len(self.rows)
        self.rows += [self.value] * len(rows)

    def check(self, client: httpx.Client) -> None:
        found = self.read(client)
        assert (found == found[:, :1]).all()
        known, more = found[: len(self.rows), 0].tolist(), found[len(self.rows) :, 0].tolist()
        assert known == self.rows
        assert more in ([], [self.value] * (1 + self.value % 5))


class Resizes(Load):
    """Fills, shrinks and grows: what was cut off never comes back."""

    def __init__(self) -> None:
        super().__init__("resized", (SIZE,), (5,))
        self.random = random.Random(99)

    def step(self, client: httpx.Client) -> None:
        assert self.put(client, "", 7).status_code == 204
        size = self.random.randrange(SIZE)
        for shape in (size, SIZE):
            assert client.patch(f"/v1/metadata/{self.path}", json={"shape": [shape]}).status_code == 200
        assert not self.read(client, f"{size}:").any()

    def check(self, client: httpx.Client) -> None:
        size = len(self.read(client))
        assert client.patch(f"/v1/metadata/{self.path}", json={"shape": [SIZE]}).status_code == 200
        assert not self.read(client, f"{size}:").any()


class Creates(Load):
    """New arrays with attributes, below groups that they bring along."""

    def __init__(self) -> None:
        super().__init__("made/first", (1,), (1,))

    def step(self, client: httpx.Client) -> None:
        definition = {**self.definition, "attributes": {"number": self.done}}
        mode = {"mode": "open"}  # the last one may have been made without our knowing
        answer = client.put(f"/v1/metadata/data/made/{self.done}/a", params=mode, json=definition)
        assert answer.status_code in (200, 201), answer.text

    def check(self, client: httpx.Client) -> None:
        for number in range(max(0, self.done - 20), self.done):
            document = client.get(f"/v1/metadata/data/made/{number}/a").json()
            assert document["attributes"] == {"number": number}


class Recreates(Load):
    """Makes, fills and deletes one array again and again: the path is usable wherever that was cut."""

    def __init__(self, layout: str) -> None:
        super().__init__(f"again/{layout}", (6,), (2,), layout)

    def step(self, client: httpx.Client) -> None:
        self._make(client)
        assert self.put(client, "", 7).status_code == 204
        assert (self.read(client) == 7).all()
        assert client.delete(f"/v1/metadata/{self.path}").status_code == 204

    def _make(self, client: httpx.Client) -> None:
        """``mode=replace`` without ``foreign`` removes nothing but what the service has made."""
        url = f"/v1/metadata/{self.path}"
        answer = client.put(url, params={"mode": "replace"}, json=self.definition)
        assert answer.status_code == 201, answer.text
        assert not self.read(client).any()

    def check(self, client: httpx.Client) -> None:
        self._make(client)


class Frames(Load):
    """A stream with a pyramid that gets one frame a request, as often as its answer is lost."""

    url = "/v1/stream/data/run"

    def __init__(self) -> None:
        super().__init__("frames", (1,), (1,))
        space = {"type": "space", "size": 4, "chunk": 2}
        time = {"name": "t", "type": "time", "size": None, "chunk": 3}
        dimensions = [time, {"name": "y"} | space, {"name": "x"} | space]
        self.settings = {
            "arrays": [{"key": "a", "dtype": "<i4", "pyramid": {"method": "mean"}, "dimensions": dimensions}]
        }

    def step(self, client: httpx.Client) -> None:
        frame, offset = np.full((4, 4), self.done + 1, "<i4"), self.done * 64
        headers = {"Upload-Offset": f"{offset}", "Content-Type": "application/octet-stream"}
        answer = client.patch(self.url, params={"key": "a"}, content=frame.tobytes(), headers=headers)
        assert (answer.status_code, answer.headers["upload-offset"]) == (204, f"{offset + 64}"), answer.text

    def check(self, client: httpx.Client) -> None:
        answer = client.put(self.url, params={"if_exists": "resume"}, json=self.settings)
        assert answer.status_code in (200, 201), answer.text
        offset = int(client.head(self.url, params={"key": "a"}).headers["upload-offset"])
        assert offset in (self.done * 64, self.done * 64 + 64)
        self.done = offset // 64
        found = client.get("/v1/slice/data/run/a/0", params={"select": ":,3,0"})
        assert np.frombuffer(found.content, "<i4").tolist() == [*range(1, self.done + 1)]


class Runs(Frames):
    """Opens, feeds, finishes and discards one stream again and again: the path is usable wherever that was cut."""

    url, cost = "/v1/stream/data/runs", 4

    def step(self, client: httpx.Client) -> None:
        self.check(client)
        data, raw = np.full((4, 4, 4), self.done, "<i4").tobytes(), {"Content-Type": "application/octet-stream"}
        assert client.patch(self.url, params={"key": "a"}, content=data, headers=raw).status_code == 204
        if self.done % 2:
            assert client.delete(self.url, params={"finish": "true"}).json()["state"] == "finished"
        assert client.get("/v1/slice/data/runs/a/0").content == data
        if self.done % 3:
            assert client.delete(self.url, params={"discard": "true"}).status_code == 204

    def check(self, client: httpx.Client) -> None:
        answer = client.put(self.url, params={"if_exists": "replace"}, json=self.settings)
        assert answer.status_code == 201, answer.text
        assert client.get("/v1/slice/data/runs/a/0").content == b""


class Readers(Load):
    """Reads single cells of shards that others write: what changes again and again is 503, and no failure of the
    store."""

    def __init__(self) -> None:
        super().__init__("boxes/shards", (SIZE, SIZE), (CHUNK, CHUNK), "shards")
        self.random = random.Random(5)

    def step(self, client: httpx.Client) -> None:
        row, column = self.random.randrange(SIZE), self.random.randrange(SIZE)
        for url in (f"/v1/slice/{self.path}?select={row},{column}", f"/v1/chunk/{self.path}/0.0?format=stored"):
            assert client.get(url).status_code in (200, 404, 503), url

    def check(self, client: httpx.Client) -> None:
        self.read(client)


def play(store: dict[str, Any], loads: list[Load], *, rounds: int, most_seconds: float) -> None:
    """Serve, load, kill; serve again and check; and so on."""
    chance = random.Random(3)
    for number in range(rounds + 1):
        with running_server({"data": store}, request_threads=8) as server, ThreadPoolExecutor(len(loads)) as pool:
            clients = [httpx.Client(base_url=server.url, timeout=120) for _ in loads]
            for load, client in zip(loads, clients, strict=True):
                if number == 0:
                    client.put(f"/v1/metadata/{load.path}", params={"mode": "open"}, json=load.definition)
                load.check(client)
            running = [pool.submit(load.run, client) for load, client in zip(loads, clients, strict=True)]
            if number < rounds:
                _wait_until_all_have_gone_on(loads, running)
                time.sleep(chance.uniform(0.2, 1.0) * most_seconds)
            server.process.kill()
            for future in running:
                future.result()
            for client in clients:
                client.close()


def _wait_until_all_have_gone_on(loads: list[Load], running: list[Future[None]]) -> None:
    """At least one step each, or a machine that is slow kills only what has hardly begun."""
    before = [load.done for load in loads]
    while any(load.done == done for load, done in zip(loads, before, strict=True)):
        for future in running:
            assert not future.done(), future.exception() or "the service has ended by itself"
        time.sleep(0.01)


def test_kills_under_load_lose_nothing_in_a_folder(tmp_path: Path) -> None:
    boxes = [Boxes(number, layout) for layout in ("v2", "shards") for number in range(2)]
    loads = [*boxes, Counter(), Appends(), Resizes(), Creates(), Recreates("v2"), Frames(), Runs()]

    play({"url": str(tmp_path), "writable": True}, loads, rounds=KILLS, most_seconds=0.3)

    for name in ("boxes/v2", "boxes/shards", "counter", "log", "resized", "made/0/a"):
        zarr.open_array(str(tmp_path / name), mode="r")[...]


def test_kills_under_load_lose_nothing_in_a_bucket(s3_server: S3Server) -> None:
    """Without appends, whose lease a killed service keeps for a while; a test bucket is slow."""
    bucket = s3_server.new_bucket()
    store = {"url": bucket.url, "writable": True, "options": dict(bucket.options)}
    loads = [*[Boxes(number, "shards") for number in range(2)], Boxes(0, "v2"), Counter(), Readers()]

    play(store, loads, rounds=KILLS // 2, most_seconds=0.5)


def test_lost_answers_under_load_fail_nothing_in_a_bucket(s3_server: S3Server) -> None:
    """Whatever put they are of; each key loses two at most, as retries end."""
    chance = random.Random(KILLS)
    loads = [
        Boxes(0, "shards"),
        Boxes(0, "v2"),
        Counter(),
        Readers(),
        *map(Recreates, ("v2", "shards")),
        Frames(),
        Runs(),
    ]
    with FaultProxy(s3_server.url) as proxy, ThreadPoolExecutor(len(loads)) as pool:
        bucket = s3_server.new_bucket().at(proxy.url)
        store = {"url": bucket.url, "writable": True, "options": dict(bucket.options)}
        with running_server({"data": store}, request_threads=8) as server:
            clients = [httpx.Client(base_url=server.url, timeout=120) for _ in loads]
            for load, client in zip(loads, clients, strict=True):
                client.put(f"/v1/metadata/{load.path}", params={"mode": "open"}, json=load.definition)
                load.check(client)
            running = [pool.submit(take_steps, load, client) for load, client in zip(loads, clients, strict=True)]
            lost: dict[str, int] = {}
            while not all(future.done() for future in running):
                if paths := [seen.path for seen in proxy.seen if seen.method == "PUT" and lost.get(seen.path, 0) < 2]:
                    path = chance.choice(paths)
                    lost[path] = lost.get(path, 0) + 1
                    proxy.inject(LoseAnswer(), method="PUT", path=path)
                time.sleep(chance.uniform(0.0, 0.1))
            for future in running:
                future.result()
            proxy.heal()
            for load, client in zip(loads, clients, strict=True):
                load.check(client)
                client.close()


def take_steps(load: Load, client: httpx.Client) -> None:
    for _ in range(2 * KILLS // load.cost):
        load.step(client)
        load.done += 1
