"""What the client does when the connection, the server or the array does not hold still."""

from __future__ import annotations

import json
import os
import pickle
import re
import signal
import threading
import time
import tracemalloc
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import urlsplit

import numpy as np
import pytest

from hyperslab import RemoteArray, RemoteGroup, errors, wire
from hyperslab.client import HTTPTransport
from hyperslab.client.session import Request, RetryPolicy, Session, parse_retry_after
from hyperslab.errors import Unreachable
from tests.client.proxy import Proxy, problem
from tests.client.raw_server import Peer, RawServer, answering, once, raw_server
from tests.faults import Before, LoseAnswer, Status, Truncate

CUBE = np.arange(40 * 50 * 60, dtype="<u4").reshape(40, 50, 60)
ATTEMPTS = RetryPolicy().attempts


@pytest.fixture
def array(
    proxy: Proxy,
    no_waiting: list[float],  # noqa: ARG001 - nobody wants to wait here
) -> RemoteArray:
    return RemoteArray(proxy.add("store/a", CUBE, (10, 50, 60)))


@pytest.fixture
def boxes(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """Has big reads cut in boxes of so many bytes."""

    def cut(nbytes: int) -> None:
        for limit in ("SMALLEST_BOX", "LARGEST_BOX"):
            monkeypatch.setattr(f"hyperslab.client.reading.{limit}", nbytes)

    return cut


def busy(status: int = 503, retry_after: str | None = None) -> Status:
    headers = {} if retry_after is None else {"Retry-After": retry_after}
    return problem(status, errors.Overloaded(reason="many at once"), headers)


def test_a_cut_body_is_resumed_where_it_broke(proxy: Proxy, array: RemoteArray) -> None:
    for cut_after in (0, 1, 1000, 4 * CUBE.size - 1):
        proxy.heal()
        proxy.fail(Truncate(cut_after))

        assert np.array_equal(array[...], CUBE)

        first, second = proxy.calls_of("slice")
        assert "Range" not in first.headers
        if cut_after:
            assert second.headers["Range"] == f"bytes={cut_after}-"
            assert second.headers["If-Range"].startswith('"')


def test_a_rest_that_begins_elsewhere_is_not_taken(proxy: Proxy, array: RemoteArray) -> None:
    """A proxy that answers a range with another one, as some caches do."""
    for begins in ("bytes 0-239999/240000", "bytes 5001-239999/240000", "bytes 500-239999/240000", ""):
        proxy.heal()
        proxy.fail(Truncate(5000), Status(206, bytes(240_000 - 5000), {"Content-Range": begins} if begins else {}))

        assert np.array_equal(array[...], CUBE)
        assert [call.headers.get("Range") for call in proxy.calls_of("slice")] == [None, "bytes=5000-", None]


def test_many_cuts_are_survived_as_long_as_there_is_progress(proxy: Proxy, array: RemoteArray) -> None:
    """Also where the values go to memory that is not in one piece."""
    proxy.fail(Truncate(10_001), times=20)
    out = np.zeros((40, 50, 70), "<u4")

    array.get(out=out[:, :, 5:65])

    assert np.array_equal(out[:, :, 5:65], CUBE)
    assert len(proxy.calls_of("slice")) == 21


def test_a_body_that_never_advances_is_given_up(proxy: Proxy, array: RemoteArray) -> None:
    proxy.fail(Truncate(0), times=20)

    with pytest.raises(Unreachable, match=rf"after {ATTEMPTS} attempts") as found:
        array[...]
    assert isinstance(found.value.cause, ConnectionError)
    assert len(proxy.calls_of("slice")) == ATTEMPTS


def test_a_box_starts_over_when_its_values_change_while_it_is_read(proxy: Proxy, array: RemoteArray) -> None:
    told: list[tuple[int, int]] = []
    proxy.fail(Truncate(5_000), Before(proxy.increment))

    assert np.array_equal(array.get(progress=lambda *counts: told.append(counts)), CUBE + 1)
    assert told[-1] == (CUBE.nbytes, CUBE.nbytes)

    proxy.fail(Truncate(5_000), Before(proxy.increment), times=50)
    with pytest.raises(errors.ArrayChanged, match="values"):
        array[...]


def test_a_busy_server_is_asked_again(proxy: Proxy, array: RemoteArray, no_waiting: list[float]) -> None:
    for status in (429, 502, 503, 504):
        no_waiting.clear()
        proxy.fail(busy(status), times=3)

        assert np.array_equal(array[0], CUBE[0])
        assert len(no_waiting) == 3
        assert no_waiting == sorted(no_waiting)
    for seconds in (7, 30):  # the longest that is waited
        proxy.fail(busy(retry_after=str(seconds)))
        array[0]
        assert seconds <= no_waiting[-1] < seconds + 1
    proxy.fail(busy(retry_after="31"))
    with pytest.raises(errors.Overloaded):
        array[0]
    proxy.heal()
    proxy.fail(busy(), times=20)
    with pytest.raises(errors.Overloaded, match="many at once"):
        array[0]
    assert len(proxy.calls_of("slice")) == ATTEMPTS


def test_retry_after_is_a_number_or_a_date() -> None:
    assert parse_retry_after("3") == 3
    assert parse_retry_after("Wed, 21 Oct 2015 07:28:00 GMT") == 0
    assert parse_retry_after("soon") is None
    assert parse_retry_after(None) is None


def test_broken_data_is_not_asked_for_twice(proxy: Proxy, array: RemoteArray) -> None:
    corrupt = errors.ChunkCorrupt(key="store/a/0.0.0", codec="blosc", reason="cut off")
    proxy.fail(problem(502, corrupt), times=2)

    with pytest.raises(errors.ChunkCorrupt) as caught:
        array[0]
    assert (caught.value.key, caught.value.codec) == ("store/a/0.0.0", "blosc")
    assert len(proxy.calls_of("slice")) == 1


PROBLEMS = {
    "HTTP 500: <h1>Oops</h1>": Status(500, b"<h1>Oops</h1>", {"Content-Type": "text/html"}),
    "HTTP 418: (no explanation)": Status(418),
    "HTTP 400: no tea": Status(400, b'{"code": "from-the-future", "detail": "no tea"}'),
    "HTTP 422: fact missing": Status(422, b'{"code": "index-out-of-range", "detail": "fact missing"}'),
    "redirected to https://other/": Status(302, b"", {"Location": "https://other/"}),
    "HTTP 400: [1, 2]": Status(400, b"[1, 2]"),
}


def test_unknown_problems_keep_their_status_and_detail(proxy: Proxy, array: RemoteArray) -> None:
    for detail, answer in PROBLEMS.items():
        proxy.fail(answer)

        with pytest.raises(errors.RemoteProblem, match=re.escape(detail)):
            array[0]
    for body in (b"<h1>Sign in</h1>", b"", b"[1, 2]", b"null"):
        proxy.fail(Status(200, body), route="metadata")

        shown = re.escape(body.decode() or "nothing")
        with pytest.raises(errors.RemoteProblem, match=f"HTTP 200: expected the JSON .*, found {shown}"):
            array.refresh()


def test_a_document_or_a_problem_that_comes_by_half_is_asked_for_again(proxy: Proxy, array: RemoteArray) -> None:
    proxy.fail(Truncate(0), Truncate(5), route="metadata", times=2)
    assert array.refresh().shape == CUBE.shape
    half = b"HTTP/1.1 503 Busy\r\nContent-Length: 50\r\n\r\n{"
    document = json.dumps({**array.info, "attributes": {"seen": True}}).encode()
    whole = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(document), document)

    def serve(peer: Peer, server: RawServer) -> None:
        (once(half) if not server.requests else answering(whole))(peer, server)

    with raw_server(serve) as server:
        assert RemoteArray(f"{server.url}/v1/metadata/store/a").attrs == {"seen": True}


def test_selections_are_split_by_the_limit_that_the_service_publishes(limited: Callable[..., Proxy]) -> None:
    proxy = limited(max_response_bytes=50_000)
    array = RemoteArray(proxy.add("store/l", CUBE, (10, 10, 10)))

    assert np.array_equal(array[...], CUBE)
    assert len(proxy.calls_of("slice")) == 12
    assert 413 not in [status for *_, status in proxy.answers]


def test_a_request_that_adds_is_not_repeated_without_a_key(proxy: Proxy, array: RemoteArray) -> None:
    proxy.fail(LoseAnswer(), route="metadata", method="PUT")

    with pytest.raises(Unreachable, match=r"127\.0\.0\.1 port \d+ cannot be reached: "):
        RemoteGroup(proxy.url)["store"].create_group("new")
    assert len(proxy.calls_of("metadata", "PUT")) == 1
    assert array.shape == CUBE.shape


def test_what_is_repeated_is_done_once(proxy: Proxy, array: RemoteArray) -> None:
    proxy.fail(LoseAnswer(), LoseAnswer(), Truncate(5), route="append", method="POST")

    assert array.append(CUBE[:3]) == 40

    calls = proxy.calls_of("append", "POST")
    assert len(calls) == 4
    assert len({call.headers[wire.IDEMPOTENCY_KEY] for call in calls}) == 1
    assert array.shape == (43, 50, 60)
    proxy.fail(LoseAnswer(), method="PUT", times=2)
    array[5:7] = 9
    assert len(proxy.calls_of("slice", "PUT")) == 3
    expected = np.concatenate([CUBE, CUBE[:3]])
    expected[5:7] = 9
    assert np.array_equal(proxy.values("store/a"), expected)


def test_a_failure_is_raised_stops_the_other_boxes_and_ends_their_waiting(
    proxy: Proxy, boxes: Callable[[int], None]
) -> None:
    boxes(4_000)
    array = RemoteArray(proxy.add("store/a", CUBE, (10, 10, 10)))
    array._session.retry = RetryPolicy(longest_wait=1000)
    denied = problem(403, errors.Unauthorized(reason="token expired"))
    proxy.fail(busy(retry_after="500"), times=3)
    proxy.fail(denied, times=20)
    begun = time.monotonic()

    with pytest.raises(errors.Unauthorized, match="token expired"):
        array[...]

    assert time.monotonic() - begun < 100
    assert len(proxy.calls_of("slice")) < 100


@pytest.mark.usefixtures("interruptible")
@pytest.mark.parametrize("wakes", [True, False], ids=["waking", "not waking"])
def test_an_interrupt_ends_the_waiting_of_all_boxes(proxy: Proxy, boxes: Callable[[int], None], wakes: bool) -> None:
    """Also one that does not wake the thread which waits: it came just before, or to another thread."""
    boxes(40_000)
    array = RemoteArray(proxy.add("store/a", CUBE, (10, 10, 10)))
    array._session.retry = RetryPolicy(longest_wait=1000)

    def interrupt() -> None:
        if wakes:
            os.kill(os.getpid(), signal.SIGINT)
        else:
            signal.pthread_kill(threading.get_ident(), signal.SIGINT)

    proxy.fail(busy(retry_after="500"), times=3)
    proxy.fail(Before(interrupt), times=1)
    begun = time.monotonic()

    with pytest.raises(KeyboardInterrupt):
        array[...]

    assert time.monotonic() - begun < 100


@pytest.mark.usefixtures("interruptible")
@pytest.mark.parametrize("sent", [b"", b"HTTP/1.1 200 OK\r\nContent-Length: 40000\r\n\r\nsome"], ids=["head", "body"])
def test_an_interrupt_does_not_wait_for_stalled_connections(sent: bytes) -> None:
    meeting = threading.Barrier(3)

    def stall(peer: Peer, _: RawServer) -> None:
        assert peer.receive()
        peer.send(sent)
        if meeting.wait(60) == 0:
            os.kill(os.getpid(), signal.SIGINT)
        peer.socket.settimeout(300)
        while peer.socket.recv(1 << 16):  # until the client leaves
            pass

    with raw_server(stall) as server:
        session = Session(HTTPTransport(connections=3, read_timeout=300), headers={}, connections=3)
        begun = time.monotonic()

        with pytest.raises(KeyboardInterrupt):
            session.for_each(lambda url: session.read(Request("GET", url)) and None, [server.url + "/x"] * 3)

        assert time.monotonic() - begun < 100


def test_connections_are_bounded_and_kept_alive(proxy: Proxy, boxes: Callable[[int], None]) -> None:
    boxes(20_000)
    array = RemoteArray(proxy.add("store/a", CUBE, (10, 10, 10)), connections=3)

    for _ in range(3):
        assert np.array_equal(array[...], CUBE)

    assert 1 <= len(proxy.threads) <= 3  # the proxy has a thread for each connection


@pytest.mark.parametrize(
    ("host", "port", "reason"),
    [("http://127.0.0.1:9", 9, "refused"), ("https://127.0.0.1:9", 9, "refused"), ("http://no.invalid", 80, "known")],
)
def test_a_server_that_cannot_be_reached_is_named(
    no_waiting: list[float], caplog: pytest.LogCaptureFixture, host: str, port: int, reason: str
) -> None:
    with pytest.raises(Unreachable, match=reason) as found:
        RemoteArray(f"{host}/v1/metadata/store/a?select=secret")

    assert isinstance(found.value, ConnectionError)
    assert (found.value.host, found.value.port) == (urlsplit(host).hostname, port)
    assert "object at 0x" not in str(found.value)
    assert pickle.loads(pickle.dumps(found.value)).facts() == found.value.facts()
    assert len(no_waiting) == len(caplog.messages) == ATTEMPTS - 1
    assert "secret" not in caplog.text
    assert f"attempt 1 of {ATTEMPTS}" in caplog.messages[0]


def test_what_fails_at_every_attempt_is_not_tried_again(no_waiting: list[float]) -> None:
    def speak_no_tls(peer: Peer, _: RawServer) -> None:
        peer.socket.recv(1 << 16)
        peer.send(b"HTTP/1.1 400 Bad Request\r\n\r\n")

    with raw_server(speak_no_tls) as server, pytest.raises(Unreachable, match="SSL"):
        RemoteArray(server.url.replace("http:", "https:"))
    assert not no_waiting


def test_a_token_is_an_argument_or_that_of_the_environment(proxy: Proxy, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HYPERSLAB_TOKEN", "of-environment")
    proxy.add("store/a", CUBE[0], (50, 60))
    for arguments, sent in (
        ({}, "Bearer of-environment"),
        ({"token": "given"}, "Bearer given"),
        ({"token": ""}, None),
        ({"headers": {"authorization": "Basic x"}}, "Basic x"),
    ):
        proxy.heal()
        given: Any = arguments

        RemoteGroup(proxy.url, **given).open_array("store/a")[0]
        pickle.loads(pickle.dumps(RemoteArray(f"{proxy.url}/zarr/store/a", **given)))[0]

        headers = [{name.lower(): value for name, value in call.headers.items()} for call in proxy.calls]
        assert {each.get("authorization") for each in headers} == {sent}


def test_a_token_that_cannot_be_sent_is_refused_and_not_shown(proxy: Proxy) -> None:
    with pytest.raises(ValueError, match="not both"):
        RemoteArray(proxy.url, token="a", headers={"Authorization": "Bearer b"})
    with pytest.raises(errors.BadParameter, match="printable ASCII") as found:
        RemoteArray(proxy.url, token="s3cret\n")
    assert "s3cret" not in str(found.value)


class Zeros:
    """An answer of zeros that come from nowhere."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        self.left = int(np.prod(shape))
        self.status = 200
        self.headers: Mapping[str, str] = {wire.ARRAY_SHAPE: str(list(shape)), wire.ARRAY_DTYPE: '"|u1"'}

    def readinto(self, buffer: memoryview) -> int:
        count = min(len(buffer), self.left, 1 << 20)
        self.left -= count
        buffer[:count] = bytes(count)
        return count

    def read(self) -> bytes:
        return b'{"kind": "array", "path": "s/a", "dtype": "|u1", "shape": [192, 1024, 1024], "chunks": [32, 32, 32]}'

    def close(self) -> None:
        pass


class ZerosTransport:
    """A server in the same thread."""

    def request(self, method: str, url: str, *, headers: Mapping[str, str], body: Any) -> Zeros:  # noqa: ARG002
        if "metadata" in url:
            return Zeros((1,))
        items = wire.parse_selection(url.partition("select=")[2])
        return Zeros(tuple(len(range(192, 2048)[item]) for item in items if isinstance(item, slice)))

    def close(self) -> None:
        pass


def test_a_big_read_holds_the_result_and_little_more() -> None:
    array = RemoteArray("http://server/v1/metadata/s/a", transport=ZerosTransport())
    tracemalloc.start()
    try:
        result = array[...]
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert result.shape == (192, 1024, 1024)
    assert peak - result.nbytes < 16 << 20
