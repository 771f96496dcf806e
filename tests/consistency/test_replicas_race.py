"""Two replicas over one bucket, one of them held up between two of its requests while the other goes on."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import httpx
import numpy as np
import pytest

from hyperslab.api.app import create_app
from hyperslab.arrays.nodes import MountedStore
from hyperslab.arrays.service import build
from hyperslab.engine.selection import normalise
from hyperslab.errors import PartlyWritten
from hyperslab.storage import open_store
from hyperslab.storage.base import WritersSafe
from tests.consistency.conftest import TakeOver
from tests.faults import Before, FaultProxy, Status
from tests.layouts import definition, key
from tests.s3 import S3Bucket, S3Server
from tests.server import served

A = "/v1/metadata/data/a"
SLICE = "/v1/slice/data/a"
JSON = {"Content-Type": "application/json"}
DEFINITION = {"shape": [8], "chunks": [4], "dtype": "<i4", "compressor": None}
IN_SHARDS_TOO = pytest.mark.parametrize("layout", ["v2", "shards"])


@dataclass(frozen=True, slots=True)
class Replica:
    """A service, and what its requests to the bucket pass through."""

    client: httpx.Client
    proxy: FaultProxy

    def lose_lease(self) -> None:
        """Let no renewal come through; what another replica does then says that the lease was lost."""
        self.proxy.inject(Status(503), method="PUT", path=".hyperslab/lease", times=math.inf)

    def hold(self, method: str, path: str) -> tuple[threading.Event, threading.Event]:
        """Hold up the next request of this kind: the first event says that it came, the second lets it go on."""
        came, go_on = threading.Event(), threading.Event()

        def wait() -> None:
            came.set()
            go_on.wait(60)

        self.proxy.inject(Before(wait), method=method, path=path)
        return came, go_on


@pytest.fixture
def pair(s3_server: S3Server) -> Iterator[tuple[Replica, Replica]]:
    bucket = s3_server.new_bucket()
    with ExitStack() as stack:
        yield start(stack, bucket, s3_server.url), start(stack, bucket, s3_server.url)


def start(stack: ExitStack, bucket: S3Bucket, endpoint: str) -> Replica:
    proxy = stack.enter_context(FaultProxy(endpoint))
    store = open_store(bucket.at(proxy.url).config(name="data", writable=True, timeout=120.0))
    store.check()  # here, and not when somebody asks whether the service is ready: that has a time limit
    assert store.capabilities.writers_safe is WritersSafe.REPLICAS
    url = stack.enter_context(served(create_app(build([MountedStore("data", store, writable=True)]))))
    return Replica(stack.enter_context(httpx.Client(base_url=url, timeout=120)), proxy)


def in_background(
    answers: list[httpx.Response], replica: Replica, method: str, url: str, **request: Any
) -> threading.Thread:
    """Ask, and put the answer into ``answers`` when it comes."""
    thread = threading.Thread(target=lambda: answers.append(replica.client.request(method, url, **request)))
    thread.start()
    return thread


def between(replica: Replica, path: str, action: Callable[[], object]) -> None:
    """Let something happen after a replica has read a node's attributes and before it goes on to this document."""
    replica.proxy.inject(Before(action), method="GET", path=path)


def rows(value: int) -> bytes:
    """Eight of them, to be appended."""
    return np.full(8, value, "<i4").tobytes()


@contextmanager
def late_write(replica: Replica, **request: Any) -> Iterator[list[httpx.Response]]:
    """A write of sevens whose first chunk is put only when the block has ended; then the list holds the answer."""
    came, go_on = replica.hold("PUT", "/a/0")
    answers: list[httpx.Response] = []
    late = in_background(answers, replica, "PUT", SLICE, content="7", headers=JSON, **request)
    try:
        assert came.wait(60)
        yield answers
    finally:
        go_on.set()
        late.join()


@pytest.mark.parametrize("layouts", [("v2", "v2"), ("v3", "shards"), ("v2", "v3")], ids="-".join)
def test_the_documents_of_two_creators_do_not_mix(pair: tuple[Replica, Replica], layouts: tuple[str, str]) -> None:
    """The first is held up before its document (and behind its attributes); the second must not put any of its own."""
    first, second = pair
    holds = [replica.hold("PUT", f"/{key(layout, 'a/.zarray')}") for replica, layout in zip(pair, layouts, strict=True)]
    answers: list[httpx.Response] = []
    threads = []
    for replica, name, layout, (came, _), patience in zip(
        pair, ("first", "second"), layouts, holds, (60, 1), strict=True
    ):
        made = definition(layout, [8], [4], attributes={"by": name})
        threads.append(in_background(answers, replica, "PUT", A, json=made))
        came.wait(patience)
    for thread, (_, go_on) in zip(threads, holds, strict=True):
        go_on.set()
        thread.join()

    assert sorted(answer.status_code for answer in answers) == [201, 409]
    found = [replica.client.get(A).json() for replica in (first, second)]
    assert found[0] == found[1]
    assert found[0]["attributes"] == {"by": "first"}
    assert not found[0].get("also")


def test_a_late_chunk_does_not_end_up_in_the_array_that_replaced_its_own(pair: tuple[Replica, Replica]) -> None:
    first, second = pair
    first.client.put(A, json=DEFINITION)
    with late_write(second) as answers:
        replaced = first.client.put(A, params={"mode": "replace"}, json={**DEFINITION, "dtype": "<f8"})

    assert (replaced.status_code, answers[0].status_code) == (201, 204)
    for replica in pair:
        np.testing.assert_array_equal(np.frombuffer(replica.client.get(SLICE).content, "<f8"), np.zeros(8))


@IN_SHARDS_TOO
def test_growing_an_array_does_not_publish_what_an_append_is_still_writing(
    pair: tuple[Replica, Replica], layout: str
) -> None:
    """Whichever comes first, the rows of the append are there once, and the others hold fill values."""
    first, second = pair
    first.client.put(A, json=definition(layout, [4], [4]))
    came, go_on = first.hold("PUT", key(layout, "/a/1"))
    answers: list[httpx.Response] = []
    rows = np.full(2, 7, "<i4").tobytes()
    appending = in_background(answers, first, "POST", "/v1/append/data/a", content=rows)
    assert came.wait(60)
    growing = in_background(answers, second, "PATCH", A, json={"shape": [8]})
    growing.join(1)
    go_on.set()
    appending.join()
    growing.join()

    assert sorted(answer.status_code for answer in answers) == [200, 201]
    found = np.frombuffer(second.client.get(SLICE).content, "<i4").tolist()
    assert found in ([0, 0, 0, 0, 7, 7, 0, 0], [0, 0, 0, 0, 0, 0, 0, 0, 7, 7])


def test_what_is_appended_does_not_outlive_its_array(pair: tuple[Replica, Replica]) -> None:
    first, second = pair
    first.client.put(A, json={**DEFINITION, "shape": [4]})
    came, go_on = first.hold("PUT", "/a/1")
    answers: list[httpx.Response] = []
    appending = in_background(answers, first, "POST", "/v1/append/data/a", content=np.full(2, 7, "<i4").tobytes())
    assert came.wait(60)
    deleting = in_background(answers, second, "DELETE", A)
    deleting.join(1)
    go_on.set()
    appending.join()
    deleting.join()
    assert second.client.put(A, json=DEFINITION).status_code == 201

    assert not np.frombuffer(second.client.get(SLICE).content, "<i4").any()


def test_a_late_chunk_stays_where_the_array_was_only_appended_to(pair: tuple[Replica, Replica]) -> None:
    first, second = pair
    first.client.put(A, json=DEFINITION)
    with late_write(second, params={"select": ":4"}) as answers:
        assert first.client.post("/v1/append/data/a", content=np.full(2, 5, "<i4").tobytes()).status_code == 201

    assert answers[0].status_code == 204
    assert np.frombuffer(first.client.get(SLICE).content, "<i4").tolist() == [7, 7, 7, 7, 0, 0, 0, 0, 5, 5]


def test_a_late_chunk_does_not_outlive_its_array(pair: tuple[Replica, Replica]) -> None:
    """Nor take with it what was created in the same place since."""
    first, second = pair
    first.client.put(A, json=DEFINITION)
    with late_write(second):
        assert first.client.delete(A).status_code == 204
    assert first.client.put(A, json=DEFINITION).status_code == 201

    np.testing.assert_array_equal(np.frombuffer(first.client.get(SLICE).content, "<i4"), np.zeros(8))


def test_attributes_that_two_replicas_change_at_once_are_all_kept(pair: tuple[Replica, Replica]) -> None:
    first, second = pair
    first.client.put(A, json=DEFINITION)
    between(second, "/a/.zarray", lambda: first.client.patch(A, json={"attributes": {"first": 1}}).raise_for_status())

    changed = second.client.patch(A, json={"attributes": {"second": 2}})

    assert (changed.status_code, changed.json()["attributes"]) == (200, {"first": 1, "second": 2})
    assert first.client.get(A).json()["attributes"] == {"first": 1, "second": 2}


def test_attributes_are_not_changed_on_top_of_others_than_the_condition_names(pair: tuple[Replica, Replica]) -> None:
    first, second = pair
    etag = first.client.put(A, json={**DEFINITION, "attributes": {"n": 0}}).headers["etag"]
    between(second, "/a/.zarray", lambda: first.client.patch(A, json={"attributes": {"n": 100}}).raise_for_status())

    changed = second.client.patch(A, json={"attributes": {"n": 1}}, headers={"If-Match": etag})

    assert changed.status_code == 412
    assert first.client.get(A).json()["attributes"] == {"n": 100}


def test_a_condition_on_attributes_holds_for_the_shape_as_well(pair: tuple[Replica, Replica]) -> None:
    """An append that begins while the condition is checked comes after the change."""
    first, second = pair
    etag = first.client.put(A, json=DEFINITION).headers["etag"]
    came, go_on = second.hold("PUT", "/a/.zattrs")
    answers: list[httpx.Response] = []
    request = {"json": {"attributes": {"n": 1}}, "headers": {"If-Match": etag}}
    changing = in_background(answers, second, "PATCH", A, **request)
    assert came.wait(60)
    appending = in_background(answers, first, "POST", "/v1/append/data/a", content=np.full(4, 5, "<i4").tobytes())
    appending.join(1)
    answered = list(answers)
    go_on.set()
    changing.join()
    appending.join()

    assert not answered
    assert sorted(answer.status_code for answer in answers) == [200, 201]


def test_a_condition_holds_for_attributes_and_shape_together(pair: tuple[Replica, Replica]) -> None:
    first, second = pair
    etag = first.client.put(A, json={**DEFINITION, "attributes": {"n": 0}}).headers["etag"]
    came, go_on = second.hold("PUT", "/a/.zattrs")
    answers: list[httpx.Response] = []
    patch = {"shape": [2], "attributes": {"n": 1}}
    changing = in_background(answers, second, "PATCH", A, json=patch, headers={"If-Match": etag})
    assert came.wait(60)
    other = first.client.patch(A, json={"attributes": {"n": 100}})
    go_on.set()
    changing.join()

    assert (other.status_code, answers[0].status_code) == (200, 412)
    document = first.client.get(A).json()
    assert (document["shape"], document["attributes"]) == ([8], {"n": 100})


@pytest.mark.parametrize("before", [{}, {"n": 2}], ids=["new", "as the one that comes between"])
def test_consolidated_metadata_follows_the_last_of_two_changes(
    pair: tuple[Replica, Replica], before: dict[str, Any]
) -> None:
    """One replica is held up between a document and the consolidated one. Where that says already what the other
    stores meanwhile, the other has nothing to put there, and the one that was held up meets no conflict."""
    first, second = pair
    first.client.put(A, json={**DEFINITION, "attributes": before})
    known = {"a/.zarray": first.client.get("/zarr/data/a/.zarray").json(), "a/.zattrs": before}
    document = {"zarr_consolidated_format": 1, "metadata": known}
    first.client.put("/zarr/data/.zmetadata", json=document).raise_for_status()
    came, go_on = second.hold("PUT", "/.zmetadata")
    answers: list[httpx.Response] = []
    changing = in_background(answers, second, "PATCH", A, json={"attributes": {"n": 1}})
    assert came.wait(60)
    other = first.client.patch(A, json={"attributes": {"n": 2}})
    go_on.set()
    changing.join()

    assert (answers[0].status_code, other.status_code) == (200, 200)
    for replica in pair:
        assert replica.client.get("/zarr/data/a/.zattrs").json() == {"n": 2}
        assert replica.client.get("/zarr/data/.zmetadata").json()["metadata"]["a/.zattrs"] == {"n": 2}


def _late_write_and_shrink(
    first: Replica, second: Replica, shape: list[int], then: Callable[[], object], layout: str = "v2"
) -> None:
    """Sevens in the second chunk, put only when the array was shrunk; ``then`` happens before they are on their way."""
    first.client.put(A, json=definition(layout, [8], [4]))
    came, go_on = second.hold("PUT", key(layout, "/a/1"))
    answers: list[httpx.Response] = []
    late = in_background(answers, second, "PUT", SLICE, params={"select": "4:"}, content="7", headers=JSON)
    assert came.wait(60)
    first.client.patch(A, json={"shape": shape}).raise_for_status()
    then()
    go_on.set()
    late.join()
    assert answers[0].status_code == 204


@pytest.mark.parametrize(("shape", "kept", "layout"), [([4], 0, "v2"), ([6], 2, "v2"), ([6], 2, "shards")])
def test_what_a_late_write_puts_outside_does_not_come_back(
    pair: tuple[Replica, Replica], shape: list[int], kept: int, layout: str
) -> None:
    first, second = pair
    _late_write_and_shrink(first, second, shape, lambda: None, layout)
    first.client.patch(A, json={"shape": [8]}).raise_for_status()

    expected = [0] * 4 + [7] * kept + [0] * (4 - kept)
    assert np.frombuffer(first.client.get(SLICE).content, "<i4").tolist() == expected


def test_what_a_write_that_fails_has_put_outside_does_not_come_back(pair: tuple[Replica, Replica]) -> None:
    """Its first chunk fails while the second, which a shrink cuts off meanwhile, is on its way."""
    first, second = pair
    first.client.put(A, json=DEFINITION)
    holds = [second.hold("HEAD", "/a/0"), second.hold("PUT", "/a/1")]
    second.proxy.inject(Status(403), method="PUT", path="/a/0", times=math.inf)
    answers: list[httpx.Response] = []
    late = in_background(answers, second, "PUT", SLICE, content="7", headers=JSON)
    for came, _ in holds:
        assert came.wait(60)
    first.client.patch(A, json={"shape": [4]}).raise_for_status()
    for _, go_on in holds:
        go_on.set()
    late.join()
    first.client.patch(A, json={"shape": [8]}).raise_for_status()

    assert answers[0].status_code == 502
    assert not np.frombuffer(first.client.get(SLICE).content, "<i4")[4:].any()


@pytest.mark.parametrize(("shape", "request_"), [([4], ("PUT", "/a/1")), ([6], ("GET", "/a/1"))])
def test_tidying_up_after_a_late_write_takes_away_nothing_of_others(
    pair: tuple[Replica, Replica], shape: list[int], request_: tuple[str, str]
) -> None:
    """It is held up when it has seen the smaller shape; then the array grows again, and is written to."""
    first, second = pair
    statuses: list[int] = []

    def grow_and_write() -> None:
        statuses.append(first.client.patch(A, json={"shape": [8]}).status_code)
        nines = first.client.put(SLICE, params={"select": "4:"}, content="9", headers=JSON)
        statuses.append(nines.status_code)

    others = threading.Thread(target=grow_and_write)

    def let_others_in() -> None:
        others.start()
        others.join(2)

    method, path = request_
    arm = partial(second.proxy.inject, Before(let_others_in), method=method, path=path)
    _late_write_and_shrink(first, second, shape, arm)
    others.join()

    assert statuses == [200, 204]
    for replica in pair:
        assert np.frombuffer(replica.client.get(SLICE).content, "<i4").tolist() == [0, 0, 0, 0, 9, 9, 9, 9]


@IN_SHARDS_TOO
def test_who_lost_the_lease_does_not_append_again_without_it(
    pair: tuple[Replica, Replica], layout: str, take_over: TakeOver
) -> None:
    """The second has taken over and written its chunks; the first cannot publish, and must not write over them."""
    first, second = pair
    first.client.put(A, json=definition(layout, [0], [4]))
    first.client.post("/v1/append/data/a", content=rows(1))  # announces what follows
    answers: list[httpx.Response] = []
    publishes, publish = first.hold("PUT", key(layout, "/a/.zarray"))
    slow = in_background(answers, first, "POST", "/v1/append/data/a", content=rows(5))
    assert publishes.wait(60)
    first.lose_lease()
    take_over(second.proxy)
    second.proxy.inject(
        Before(lambda: None), method="PUT", path=key(layout, "/a/.zarray")
    )  # what makes the first one fail
    other_publishes, other_publish = second.hold("PUT", key(layout, "/a/.zarray"))
    other = in_background(answers, second, "POST", "/v1/append/data/a", content=rows(6))
    assert other_publishes.wait(60)
    first.proxy.heal()
    publishes_again, publish_again = first.hold("PUT", key(layout, "/a/.zarray"))
    publish.set()
    publishes_again.wait(2)
    other_publish.set()
    other.join()
    publish_again.set()
    slow.join()

    assert [answer.status_code for answer in answers] == [201, 201]
    found = np.frombuffer(second.client.get(SLICE).content, "<i4").reshape(3, 8)
    assert sorted(found.tolist()) == [[1] * 8, [5] * 8, [6] * 8]


def test_a_condition_over_several_chunks_is_held_by_a_lease_also_where_the_array_was_one_chunk_before(
    s3_server: S3Server,
) -> None:
    """What decides is the array that is written to, and no other opening of it."""
    bucket = s3_server.new_bucket()
    with FaultProxy(s3_server.url) as proxy:
        store = open_store(bucket.at(proxy.url).config(name="data", writable=True))
        service = build([MountedStore("data", store, writable=True, recheck="never")])
        service.creator.create_array("data/a", {**DEFINITION, "chunks": [8]})
        service.catalog.open_array("data/a")
        other = build([MountedStore("data", open_store(bucket.config(name="data", writable=True)), writable=True)])
        other.creator.create_array("data/a", DEFINITION, mode="replace")
        proxy.heal()

        service.writer.write("data/a", (), np.full(8, 7, "<i4"), check=lambda *_: None)
        methods = [(seen.method, "/lease/" in seen.path) for seen in proxy.seen]
        service.close()
        other.close()

    assert ("PUT", True) in methods


def test_a_condition_over_several_chunks_is_held_against_the_array_as_it_is_under_the_lease(
    pair: tuple[Replica, Replica],
) -> None:
    """The second changes its shape while the first waits for the lease."""
    first, second = pair
    first.client.put(A, json=DEFINITION)
    first.client.put(SLICE, content="7", headers=JSON)
    tag = first.client.get(SLICE, params={"select": ":8"}).headers["etag"]
    resized: list[int] = []

    def resize() -> None:
        resized.append(second.client.patch(A, json={"shape": [12]}).status_code)

    first.proxy.inject(Before(resize), method="PUT", path=".hyperslab/lease")
    late = first.client.put(SLICE, params={"select": ":8"}, content="9", headers={**JSON, "If-Match": tag})

    assert (resized, late.status_code) == ([200], 412)
    assert np.frombuffer(second.client.get(SLICE).content, "<i4").tolist() == [7] * 8 + [0] * 4


@IN_SHARDS_TOO
def test_a_shrink_that_lost_its_lease_does_not_clear_what_is_being_appended(
    pair: tuple[Replica, Replica], layout: str, take_over: TakeOver
) -> None:
    """The first has stored the shorter shape and looks at what to clear; the second takes over and writes there."""
    first, second = pair
    first.client.put(A, json=definition(layout, [8], [4]))
    first.client.put(SLICE, content="9", headers=JSON)
    answers: list[httpx.Response] = []
    publishes, publish = first.hold("PUT", key(layout, "/a/.zarray"))
    shrinking = in_background(answers, first, "PATCH", A, json={"shape": [4]})
    assert publishes.wait(60)
    looks, look = first.hold("GET", key(layout, "/a/.zarray"))
    publish.set()
    assert looks.wait(60)
    first.lose_lease()
    take_over(second.proxy)
    for _ in range(2):  # the change that stops the first one, and the announcement
        second.proxy.inject(Before(lambda: None), method="PUT", path=key(layout, "/a/.zarray"))
    other_publishes, other_publish = second.hold("PUT", key(layout, "/a/.zarray"))
    appending = in_background(answers, second, "POST", "/v1/append/data/a", content=rows(6))
    assert other_publishes.wait(60)
    clears, cleared = first.hold("PUT", key(layout, "/a/.zarray"))  # it would say so
    look.set()
    clears.wait(2)
    other_publish.set()
    appending.join()
    cleared.set()
    shrinking.join()

    assert sorted(answer.status_code for answer in answers) == [200, 201]
    assert np.frombuffer(second.client.get(SLICE).content, "<i4").tolist() == [9] * 4 + [6] * 8


def test_who_lost_the_lease_writes_no_more_chunks_on_its_condition(s3_server: S3Server, take_over: TakeOver) -> None:
    """The condition holds for all chunks as they were; by now another writer may have been there, on one of its own."""
    bucket = s3_server.new_bucket()
    with FaultProxy(s3_server.url) as proxy, FaultProxy(s3_server.url) as way, ExitStack() as stack:
        config = bucket.at(proxy.url).config(name="data", writable=True, width=1, timeout=120.0)
        slow, other = (
            build([MountedStore("data", open_store(each), writable=True)])
            for each in (config, bucket.at(way.url).config(name="data", writable=True))
        )
        stack.callback(slow.close)
        stack.callback(other.close)
        other.creator.create_array("data/a", {**DEFINITION, "shape": [16]})
        came, go_on = Replica(httpx.Client(), proxy).hold("PUT", "/a/0")
        errors: list[PartlyWritten] = []

        def write() -> None:
            with pytest.raises(PartlyWritten) as failed:
                slow.writer.write("data/a", (), np.full(16, 5, "<i4"), check=lambda *_: None)
            errors.append(failed.value)

        writing = threading.Thread(target=write)
        writing.start()
        assert came.wait(60)
        take_over(way)
        other.writer.write("data/a", (slice(8, 16),), np.full(8, 6, "<i4"), check=lambda *_: None)
        go_on.set()
        writing.join()
        array = other.catalog.open_array("data/a")
        values = other.reader.read(other.reader.plan(array, normalise((), (16,))))[0]

    assert errors[0].written == ["a/0"]
    assert values.tolist() == [5] * 4 + [0] * 4 + [6] * 8


def test_who_lost_the_lease_replaces_no_attributes(pair: tuple[Replica, Replica], take_over: TakeOver) -> None:
    """The first wants to make what the second has made when the first goes on."""
    first, second = pair
    came, go_on = first.hold("PUT", "/.zgroup")
    answers: list[httpx.Response] = []
    creating = in_background(answers, first, "PUT", A, json={**DEFINITION, "attributes": {"of": "the first"}})
    assert came.wait(60)
    first.lose_lease()
    take_over(second.proxy)
    made = second.client.put(A, json={**DEFINITION, "attributes": {"of": "the second"}})
    go_on.set()
    creating.join()

    assert (made.status_code, answers[0].status_code) == (201, 409)
    assert second.client.get(A).json()["attributes"] == {"of": "the second"}


@pytest.mark.parametrize(("form", "write"), [("raw", "7"), ("raw", "0"), ("npy", "7"), ("json", "0")])
def test_the_tag_is_that_of_the_bytes_where_a_chunk_is_written_while_it_is_read(
    pair: tuple[Replica, Replica], form: str, write: str
) -> None:
    """Else parts of two states could be put together by a client that asks for ranges `If-Range` they are of one."""
    first, second = pair
    first.client.put(A, json=DEFINITION)
    first.client.put(SLICE, content="1", headers=JSON)
    put = partial(first.client.put, SLICE, params={"select": "4:"}, content=write, headers=JSON)
    between(second, "/a/1", lambda: put().raise_for_status())

    raced = second.client.get(SLICE, params={"format": form})

    after = first.client.get(SLICE, params={"format": form})
    assert (raced.status_code, raced.headers["etag"]) == (200, after.headers["etag"])
    assert raced.content == after.content


@pytest.mark.parametrize("write", ["7", "0"], ids=["other values", "fill values"])
def test_the_tags_of_tiles_and_points_are_those_of_the_bytes_too(pair: tuple[Replica, Replica], write: str) -> None:
    first, second = pair
    first.client.put(A, json=DEFINITION | {"shape": [2, 4], "chunks": [1, 4]})
    put = partial(first.client.put, SLICE, params={"select": "1:"}, headers=JSON)
    points = {"coordinates": [[0, 0], [1, 3]]}
    asked: list[Callable[[Replica], httpx.Response]] = [
        lambda replica: replica.client.post(A.replace("/metadata/", "/points/"), json=points),
        lambda replica: replica.client.get(f"{A.replace('/metadata/', '/tile/')}/0/0/0.npy"),
        lambda replica: replica.client.get(f"{A.replace('/metadata/', '/tile/')}/0/0/0.png?rescale=0,9"),
    ]
    for ask in asked:
        put(content="1").raise_for_status()
        between(second, "/a/1.0", lambda: put(content=write).raise_for_status())

        raced = ask(second)

        after = ask(first)
        assert (raced.status_code, raced.headers["etag"]) == (200, after.headers["etag"])
        assert raced.content == after.content
