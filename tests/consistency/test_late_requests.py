"""A replica is cut off with a request on its way; another takes its lease over; then the request takes effect.

With ``TEST_KILLS`` every case also in shards, and where it removes something on an endpoint without conditions.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import httpx
import numpy as np
import pytest

from tests.consistency.conftest import TakeOver
from tests.consistency.test_replicas_race import JSON, SLICE, A, Replica, in_background, start
from tests.faults import Before, DropHeaders, LoseAnswer, Status
from tests.layouts import definition, key
from tests.s3 import S3Server

APPEND = "/v1/append/data/a"


@pytest.fixture
def pair(s3_server: S3Server, request: pytest.FixtureRequest) -> Iterator[list[Replica]]:
    """Two replicas over one bucket; the parameter False is for an endpoint that ignores conditions on a DELETE."""
    conditions = getattr(request, "param", True)
    bucket = s3_server.new_bucket()
    with ExitStack() as stack:
        replicas = [start(stack, bucket, s3_server.url) for _ in range(2)]
        for replica in replicas if not conditions else []:
            replica.proxy.inject(DropHeaders(("if-match",)), method="DELETE", path=".hyperslab", times=math.inf)
        yield replicas


@dataclass(frozen=True, slots=True)
class Ask:
    """A request of a client."""

    method: str
    url: str
    request: dict[str, Any]

    def __call__(self, replica: Replica) -> httpx.Response:
        return replica.client.request(self.method, self.url, **self.request)


def append(value: int, count: int) -> Ask:
    return Ask("POST", APPEND, {"content": np.full(count, value, "<i4").tobytes()})


def resize(size: int) -> Ask:
    return Ask("PATCH", A, {"json": {"shape": [size]}})


def put(value: int, select: str = "") -> Ask:
    return Ask("PUT", SLICE, {"content": str(value), "headers": JSON, "params": {"select": select}})


def create(size: int, layout: str = "v2") -> Ask:
    return Ask("PUT", A, {"json": definition(layout, [size], [4])})


def replacement(size: int, layout: str = "v2") -> Ask:
    return Ask("PUT", f"{A}?mode=replace", create(size, layout).request)


DELETE, DELETE_ALL = (Ask("DELETE", url, {}) for url in (A, "/v1/metadata/data?recursive=true"))

Made = Callable[[int, str], Ask]
"""Makes an array of a size in a layout."""

CASES: dict[str, tuple[int, Ask | Made, str, list[Ask | Made], list[int]]] = {
    "rows of an append, fill values appended": (4, append(7, 4), "a/1", [append(0, 4)], [5] * 4 + [0] * 4),
    "rows of an append at the edge, fill values appended": (2, append(7, 2), "a/0", [append(0, 2)], [5, 5, 0, 0]),
    "rows of an append, the array grown": (4, append(7, 4), "a/1", [resize(8)], [5] * 4 + [0] * 4),
    "rows of an append at the edge, the array grown": (2, append(7, 2), "a/0", [resize(4)], [5, 5, 0, 0]),
    "rows of an append, grown and appended to": (4, append(7, 8), "a/1", [resize(6), append(0, 2)], [5] * 4 + [0] * 4),
    "rows of an append, the array made anew": (4, append(7, 4), "a/1", [DELETE, create], [0] * 8),
    "rows of an append, its group made anew": (4, append(7, 4), "a/1", [DELETE_ALL, create], [0] * 8),
    "the end of an append": (4, append(7, 4), "a/.zarray", [append(1, 4)], [5] * 4 + [1] * 4),
    "the fill values of a shrink": (8, resize(4), "a/1", [resize(8), put(9, "4:")], [5] * 4 + [9] * 4),
    "the cut of a shrink": (8, resize(6), "a/1", [resize(8), put(9, "4:")], [5] * 4 + [9] * 4),
    "the shape that grows": (4, resize(8), "a/.zarray", [append(1, 4)], [5] * 4 + [1] * 4),
    "the document of a delete": (8, DELETE, "a/.zarray", [DELETE, create, put(9)], [9] * 8),
    "a chunk of a delete": (8, DELETE, "a/1", [create, put(9)], [9] * 8),
    "a chunk of a replacement": (8, replacement, "a/1", [create, put(9)], [9] * 8),
}  # fmt: skip


REMOVING = ["rows of an append, the array made anew", "the document of a delete"]
IN_SHARDS = ["rows of an append at the edge, fill values appended", "the cut of a shrink", "a chunk of a replacement"]
if "TEST_KILLS" in os.environ:
    REMOVING = [case for case in CASES if "a delete" in case or "made anew" in case]
    IN_SHARDS = [case for case in CASES if not case.startswith("the ") or "shrink" in case]
RUNS = [("v2", True, case) for case in CASES] + [("v2", False, case) for case in REMOVING]
RUNS += [("shards", True, case) for case in IN_SHARDS]


@pytest.mark.parametrize(("layout", "pair", "case"), RUNS, indirect=["pair"])
def test_a_request_that_comes_late_undoes_nothing(
    pair: list[Replica], layout: str, case: str, take_over: TakeOver
) -> None:
    """Nothing that was acknowledged meanwhile. The clock goes forward when the second has seen the lease."""
    size, asked, path, others, expected = CASES[case]
    late, *meanwhile = [ask if isinstance(ask, Ask) else ask(8, layout) for ask in (asked, *others)]
    first, second = pair
    create(size, layout)(first).raise_for_status()
    put(5)(first).raise_for_status()
    holds = [first.hold(method, key(layout, path)) for method in ("PUT", "DELETE")]
    answers: list[httpx.Response] = []
    cut_off = in_background(answers, first, late.method, late.url, **late.request)
    while not any(came.wait(0.02) for came, _ in holds):
        assert cut_off.is_alive(), answers[0].text
    first.lose_lease()
    take_over(second.proxy)
    for ask in meanwhile:
        ask(second).raise_for_status()
    assert read(second, len(expected)) == expected

    first.proxy.heal()
    for _, go_on in holds:
        go_on.set()
    cut_off.join()

    assert read(second, len(expected)) == expected
    assert read(first, len(expected)) == expected


def read(replica: Replica, count: int) -> list[int]:
    """The first values; what the request that was late has added behind them, in its turn, is not of interest."""
    answer = replica.client.get(SLICE, params={"select": f":{count}"})
    assert answer.status_code == 200, answer.text
    return [*map(int, np.frombuffer(answer.content, "<i4"))]


def test_a_release_that_is_repeated_leaves_the_lease_of_the_next_holder(pair: list[Replica]) -> None:
    """The answer to the first one is lost, and the next holder is there before the second."""
    first, second = pair
    create(0)(first).raise_for_status()
    held, go_on = second.hold("PUT", "a/.zarray")
    answers: list[httpx.Response] = []
    others = []

    def next_one() -> None:
        others.append(in_background(answers, second, "POST", APPEND, content=append(7, 4).request["content"]))
        assert held.wait(60)

    append(1, 4)(first).raise_for_status()
    lose_release(first, next_one)
    append(2, 4)(first).raise_for_status()
    late = in_background(answers, first, "POST", APPEND, content=append(9, 4).request["content"])
    late.join(0.5)
    assert late.is_alive(), "the second has the lease"
    go_on.set()
    for thread in (late, *others):
        thread.join()

    assert sorted(read(first, 16)) == [1] * 4 + [2] * 4 + [7] * 4 + [9] * 4
    for answer in answers:
        assert answer.status_code == 201


def lose_release(replica: Replica, action: Callable[[], None]) -> None:
    """The first PUT of the lease is its claim, the second its release."""
    replica.proxy.inject(Before(lambda: None), method="PUT", path="/lease/")
    replica.proxy.inject(LoseAnswer(), method="PUT", path="/lease/")
    replica.proxy.inject(Before(action), method="PUT", path="/lease/")


def test_a_lost_answer_about_a_lease_is_no_failure(pair: list[Replica]) -> None:
    """Another replica has had the lease in between, so nobody can say whether the put was stored."""
    first, second = pair
    create(0)(first).raise_for_status()
    second.proxy.inject(Status(500), method="PUT", path="/lease/")
    second.proxy.inject(Before(lambda: append(1, 4)(first).raise_for_status()), method="PUT", path="/lease/")

    append(2, 4)(second).raise_for_status()

    assert read(first, 8) == [1] * 4 + [2] * 4


def test_a_lost_answer_about_a_chunk_is_no_failure(pair: list[Replica]) -> None:
    """Another replica has changed the chunk in between, so nobody can say whether the put was stored."""
    first, second = pair
    create(8)(first).raise_for_status()
    put(5)(first).raise_for_status()
    second.proxy.inject(LoseAnswer(), method="PUT", path="a/1")
    second.proxy.inject(Before(lambda: put(9, "7")(first).raise_for_status()), method="PUT", path="a/1")

    put(7, "4")(second).raise_for_status()

    assert read(first, 8) == [5] * 4 + [7, 5, 5, 9]


@pytest.mark.parametrize("pair", [False], indirect=True)
def test_what_fails_after_a_creation_leaves_it_in_consolidated_metadata(pair: list[Replica]) -> None:
    first, _ = pair
    create(8)(first).raise_for_status()
    put(5)(first).raise_for_status()
    document = {"zarr_consolidated_format": 1, "metadata": {}}
    first.client.put("/zarr/data/.zmetadata", json=document).raise_for_status()
    DELETE(first).raise_for_status()
    first.proxy.inject(Status(500), method="POST", times=math.inf)

    assert create(8)(first).status_code == 502

    assert "a/.zarray" in first.client.get("/zarr/data/.zmetadata").json()["metadata"]


def test_a_lost_answer_about_consolidated_metadata_is_no_failure(pair: list[Replica]) -> None:
    first, second = pair
    create(8)(first).raise_for_status()
    known = {"a/.zarray": first.client.get("/zarr/data/a/.zarray").json()}
    document = {"zarr_consolidated_format": 1, "metadata": known}
    first.client.put("/zarr/data/.zmetadata", json=document).raise_for_status()

    def come_between() -> None:
        first.client.patch(A, json={"attributes": {"first": 1}}).raise_for_status()

    second.proxy.inject(LoseAnswer(), method="PUT", path="/.zmetadata")
    second.proxy.inject(Before(come_between), method="PUT", path="/.zmetadata")

    second.client.patch(A, json={"attributes": {"second": 2}}).raise_for_status()

    found = first.client.get("/zarr/data/.zmetadata").json()["metadata"]["a/.zattrs"]
    assert found == {"first": 1, "second": 2}


def test_another_writer_in_the_middle_of_a_conditional_write_is_a_conflict(pair: list[Replica]) -> None:
    first, second = pair
    create(8)(first).raise_for_status()
    put(5)(first).raise_for_status()
    etag = second.client.get(SLICE).headers["etag"]
    second.proxy.inject(Before(lambda: put(9, "4:")(first).raise_for_status()), method="PUT", path="/a/1")

    refused = second.client.put(SLICE, content="7", headers={**JSON, "If-Match": etag})

    assert refused.status_code == 409
    assert refused.json()["code"] in ("partly-conflicting", "write-conflict")
    assert read(first, 8)[4:] == [9] * 4
