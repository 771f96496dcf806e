"""Bodies that come slowly hold the memory that has arrived, for a bounded time, and none where they are refused."""

from __future__ import annotations

import json
import select
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import numpy as np
import pytest

from hyperslab.api.options import ApiOptions
from hyperslab.arrays.limits import BytesInFlight
from hyperslab.arrays.service import Service
from hyperslab.storage import StoreConfig
from tests.api import support
from tests.api.support import request, write_array

MIB = 1 << 20
BUDGET = 6 * MIB
CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"


@contextmanager
def serving(tmp_path: Path, *, writable: bool = True, idle_seconds: float = 300) -> Iterator[tuple[str, Service]]:
    write_array(tmp_path, "a", np.zeros((4, MIB), "u1"), (1, MIB), compressors=None)
    config = StoreConfig("data", str(tmp_path), writable=writable, durability="rename")
    options = ApiOptions(queue_seconds=0.2, idle_seconds=idle_seconds)
    with support.serving(config, options, writable=writable, bytes_in_flight=BUDGET) as found:
        yield found.url, found.service


@contextmanager
def sending(url: str, target: str, *headers: str, method: str = "POST") -> Iterator[tuple[socket.socket, bytes]]:
    """A request whose body has not been sent, and what the service says to that: to go on, or why not."""
    parts = urlsplit(url)
    with socket.create_connection((str(parts.hostname), parts.port or 80), timeout=30) as connection:
        lines = (f"{method} {target} HTTP/1.1", "Host: test", "Expect: 100-continue", *headers, "", "")
        connection.sendall("\r\n".join(lines).encode())
        yield connection, connection.recv(65536)


CHUNKED = ("Transfer-Encoding: chunked", "Content-Type: application/json")


@pytest.mark.parametrize(
    ("method", "target", "headers"),
    [
        ("POST", "/v1/points/data/a", CHUNKED),
        ("POST", "/v1/points/data/a", ("Content-Length: 4000000", "Content-Type: application/x-npy")),
        ("PUT", "/v1/slice/data/a", CHUNKED),
        ("PUT", "/v1/slice/data/a", ("Content-Length: 4194304",)),
        ("POST", "/v1/append/data/a", ("Content-Length: 4194304",)),
        ("PUT", "/v1/metadata/data/b", CHUNKED),
        ("PUT", "/zarr/data/a/0.0", ("Content-Length: 1048576",)),
    ],
)
def test_a_body_that_has_only_begun_delays_no_other_request(
    tmp_path: Path, method: str, target: str, headers: tuple[str, ...]
) -> None:
    with serving(tmp_path) as (url, _), sending(url, target, *headers, method=method) as (connection, answer):
        assert answer == CONTINUE
        connection.sendall(b"1\r\n[\r\n" if headers is CHUNKED else b"[")

        assert len(request(url, "/v1/slice/data/a").body) == 4 * MIB


def test_what_has_arrived_is_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    most = 0
    reserve = BytesInFlight.try_reserve

    def watched(budget: BytesInFlight, nbytes: int, own: int = 0) -> bool:
        nonlocal most
        done = reserve(budget, nbytes, own)
        most = max(most, budget.held)
        return done

    monkeypatch.setattr(BytesInFlight, "try_reserve", watched)
    with (
        serving(tmp_path) as (url, service),
        sending(url, "/v1/slice/data/a", "Content-Length: 4194304", method="PUT") as (connection, _),
    ):
        connection.sendall(bytes(3 * MIB + 1))
        while most < 4 * MIB:
            assert not select.select([connection], [], [], 0.01)[0], "the upload was answered"
        refused = request(url, "/v1/slice/data/a")
        connection.sendall(bytes(MIB - 1))
        assert connection.recv(100).startswith(b"HTTP/1.1 204")

        assert (refused.status, json.loads(refused.body)["code"]) == (503, "overloaded")
        assert request(url, "/v1/slice/data/a").status == 200
        assert service.in_flight.held == 0


def test_a_body_larger_than_the_budget_goes_alone(tmp_path: Path) -> None:
    with serving(tmp_path) as (url, _):
        large = np.ones((4, 2 * MIB), "u1")
        write_array(tmp_path, "large", large * 0, (1, 2 * MIB), compressors=None)
        with sending(url, "/v1/slice/data/large", f"Content-Length: {large.nbytes}", method="PUT") as (sent, _):
            sent.sendall(large.tobytes())
            assert sent.recv(100).startswith(b"HTTP/1.1 204")


def test_a_body_that_never_ends_is_refused_though_it_never_pauses(tmp_path: Path) -> None:
    with (
        serving(tmp_path, writable=False, idle_seconds=0.5) as (url, _),
        sending(url, "/v1/points/data/a", *CHUNKED) as (connection, _),
    ):
        while not select.select([connection], [], [], 0.05)[0]:  # never silent for as long as half a second
            connection.sendall(b"1\r\n \r\n")
        connection.sendall(b"1\r\n \r\n")  # also after the answer
        answer = b"".join(iter(lambda: connection.recv(65536), b""))  # until the service has said all

    assert answer.startswith(b"HTTP/1.1 408")
    assert b"client-stalled" in answer


@pytest.mark.parametrize(
    ("target", "header", "status"),
    [
        ("/v1/append/data/a?casting=bold", "Content-Type: application/x-npy", 400),
        ("/v1/append/data/a", "Content-Type: text/html", 415),
        ("/v1/append/data/a", f"Idempotency-Key: {'k' * 300}", 400),
        ("/v1/append/data/a", "Content-Encoding: gzip", 415),
        ("/v1/points/data/a", "Content-Type: text/html", 415),
        ("/v1/points/data/a?values=1&casting=bold", "Content-Type: application/x-npy", 400),
    ],
)
def test_nothing_is_read_of_what_is_refused(tmp_path: Path, target: str, header: str, status: int) -> None:
    with serving(tmp_path) as (url, _), sending(url, target, "Content-Length: 1000", header) as (_, answer):
        assert answer.startswith(f"HTTP/1.1 {status}".encode())
