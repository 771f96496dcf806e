"""Faults between the service and its store: a clear problem, no wrong data, and a repeat succeeds."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from hyperslab.api.app import create_app
from hyperslab.arrays.nodes import MountedStore
from hyperslab.arrays.service import build
from hyperslab.errors import StoreFull
from hyperslab.storage import StoreConfig, open_store
from tests.arrays.counting import CountingStore
from tests.faults import Fault, FaultProxy, LoseAnswer, Reset, Stall, Status, Truncate
from tests.s3 import S3Server
from tests.server import served

A = "/v1/metadata/data/a"
SLICE = "/v1/slice/data/a"
JSON = {"Content-Type": "application/json"}
VALUES = np.arange(64, dtype="<i4").reshape(8, 8)

FAULTS: list[tuple[str, Fault]] = [
    ("slow down", Status(503, b"<Error><Code>SlowDown</Code></Error>")),
    ("internal error", Status(500)),
    ("connection reset", Reset()),
    ("time-out", Stall()),
]
QUICK: dict[str, dict[str, Any]] = {"time-out": {"timeout": 4.0, "retries": 0}}
"""Settings where a time-out is waited for; what is not to fail has longer than a busy machine takes."""


@contextmanager
def faulty(s3_server: S3Server, **config: Any) -> Iterator[tuple[httpx.Client, FaultProxy]]:
    """A service whose bucket lies behind a proxy; it tries a request twice."""
    with FaultProxy(s3_server.url) as proxy:
        bucket = s3_server.new_bucket().at(proxy.url)
        store = open_store(bucket.config(**{"name": "data", "writable": True, "retries": 1, **config}))
        service = build([MountedStore("data", store, writable=True)], cache_bytes=0)
        with served(create_app(service)) as url, httpx.Client(base_url=url, timeout=60) as client:
            made = client.put(A, json={"shape": [8, 8], "chunks": [4, 4], "dtype": "<i4"})
            assert made.status_code == 201, made.text
            assert client.put(SLICE, content=VALUES.tobytes()).status_code == 204
            proxy.heal()
            yield client, proxy


@pytest.mark.parametrize(("name", "fault"), FAULTS, ids=[name for name, _ in FAULTS])
def test_a_read_through_a_failing_store_is_a_problem_and_never_fill_values(
    s3_server: S3Server, name: str, fault: Fault
) -> None:
    with faulty(s3_server, **QUICK.get(name, {})) as (client, proxy):
        proxy.inject(fault, method="GET", path="/a/1.1", times=math.inf)
        answer = client.get(SLICE)

        assert answer.status_code in (502, 504), (name, answer.text)
        assert answer.json()["code"] in ("store-failed", "store-timeout")
        proxy.heal()
        np.testing.assert_array_equal(np.frombuffer(client.get(SLICE).content, "<i4").reshape(8, 8), VALUES)


def test_an_answer_that_is_torn_is_never_taken_for_a_chunk(s3_server: S3Server) -> None:
    with faulty(s3_server) as (client, proxy):
        proxy.inject(Truncate(10), method="GET", path="/a/0.1", times=math.inf)

        assert client.get(SLICE).status_code in (502, 504)
        proxy.heal()
        assert client.get(SLICE).status_code == 200


def test_one_failure_is_tried_again_and_the_client_never_learns_of_it(s3_server: S3Server) -> None:
    with faulty(s3_server) as (client, proxy):
        proxy.inject(Status(503), method="GET", path="/a/0.0", times=1)

        assert client.get(SLICE).content == VALUES.tobytes()


@pytest.mark.parametrize(("name", "fault"), FAULTS, ids=[name for name, _ in FAULTS])
def test_a_write_through_a_failing_store_says_what_was_written_and_can_be_repeated(
    s3_server: S3Server, name: str, fault: Fault
) -> None:
    """Chunks that failed hold what they held before; a repeat of the request makes all of it true."""
    with faulty(s3_server, **QUICK.get(name, {})) as (client, proxy):
        proxy.inject(fault, method="PUT", path="/a/1.1", times=math.inf)
        answer = client.put(SLICE, content=(-VALUES).tobytes())

        assert answer.status_code in (502, 504), (name, answer.text)
        assert "a/1.1" in answer.json()["failed"]
        assert sorted([*answer.json()["written"], *answer.json()["failed"]]) == ["a/0.0", "a/0.1", "a/1.0", "a/1.1"]
        proxy.heal()
        found = np.frombuffer(client.get(SLICE).content, "<i4").reshape(8, 8)
        np.testing.assert_array_equal(found[4:, 4:], VALUES[4:, 4:])
        assert client.put(SLICE, content=(-VALUES).tobytes()).status_code == 204
        np.testing.assert_array_equal(np.frombuffer(client.get(SLICE).content, "<i4").reshape(8, 8), -VALUES)


def test_a_write_whose_answer_was_lost_can_be_repeated(s3_server: S3Server) -> None:
    """The store has done it and nobody knows: the repeat finds the same values and is no conflict."""
    with faulty(s3_server) as (client, proxy):
        proxy.inject(LoseAnswer(), method="PUT", path="/a/0.0", times=math.inf)
        client.put(SLICE, params={"select": "0,0"}, content="9", headers=JSON)
        proxy.heal()

        assert client.put(SLICE, params={"select": "0,0"}, content="9", headers=JSON).status_code == 204
        expected = VALUES.copy()
        expected[0, 0] = 9
        assert client.get(SLICE).content == expected.tobytes()


def test_an_append_whose_answers_are_lost_is_done_once(s3_server: S3Server) -> None:
    """Whatever was lost on the way, repeating with the same key ends with the rows there exactly once."""
    with faulty(s3_server) as (client, proxy):
        rows = np.full((4, 8), 7, "<i4")
        key = {"Idempotency-Key": "rows-of-seven"}
        for path in ("/a/.zarray", "/a/2.0"):
            proxy.inject(LoseAnswer(), method="PUT", path=path, times=2)
        statuses = [client.post("/v1/append/data/a", content=rows.tobytes(), headers=key).status_code for _ in range(4)]
        proxy.heal()
        answer = client.post("/v1/append/data/a", content=rows.tobytes(), headers=key)

        assert answer.status_code in (200, 201), (statuses, answer.text)
        assert answer.json()["offset"] == 8
        assert client.get(SLICE).content == np.vstack([VALUES, rows]).tobytes()


def test_a_bucket_that_is_gone_is_not_an_empty_store(s3_server: S3Server) -> None:
    with faulty(s3_server) as (client, proxy):
        proxy.inject(Status(404, b"<Error><Code>NoSuchBucket</Code></Error>"), times=math.inf)

        assert client.get(SLICE).status_code in (502, 504)


class FullAfter(CountingStore):
    """Takes some puts and then has no space."""

    def __init__(self, inner: Any, puts: int) -> None:
        super().__init__(inner)
        self.left = puts

    def before(self, operation: str, keys: Sequence[str]) -> None:
        if operation == "put":
            if self.left <= 0:
                raise StoreFull(self.name, keys[0], "no space left on device")
            self.left -= 1


def test_a_full_disk_is_507_and_names_what_was_written(tmp_path: Path) -> None:
    store = FullAfter(open_store(StoreConfig(name="data", url=str(tmp_path), writable=True)), 100)
    service = build([MountedStore("data", store, writable=True)])
    with served(create_app(service)) as url, httpx.Client(base_url=url) as client:
        client.put(A, json={"shape": [8, 8], "chunks": [4, 4], "dtype": "<i4"})
        store.left = 2
        answer = client.put(SLICE, content=(VALUES + 1).tobytes())

        assert (answer.status_code, answer.json()["code"]) == (507, "store-full")
        assert len(answer.json()["written"]) == 2
        store.left = 100
        assert client.put(SLICE, content=(VALUES + 1).tobytes()).status_code == 204
        assert client.get(SLICE).content == (VALUES + 1).tobytes()
