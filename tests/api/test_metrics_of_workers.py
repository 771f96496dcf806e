"""The metrics of several workers: added up, never smaller than before, and not lost with a worker."""

from __future__ import annotations

import os
import re
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.api.support import request
from tests.server import Server, running_server

PATIENCE = 30.0


def test_a_worker_without_a_place_for_its_numbers_serves_and_tells_its_own(example_store: Path, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with running_server({"data": example_store}, metrics_folder=str(tmp_path / "file")) as server:
        ask(server, 2)

        assert told(server)["asked"] == 2
        assert "its own numbers only" in server.log


@pytest.fixture
def crowd(example_store: Path, tmp_path: Path) -> Iterator[Server]:
    """Two workers."""
    with running_server({"data": example_store}, workers=2, metrics_folder=str(tmp_path), cache_bytes=1000) as server:
        wait_for(lambda: told(server)["limit"] == 2000)
        yield server


def workers(server: Server) -> list[int]:
    """Process ids of the workers."""
    parent = server.process.pid
    children = Path(f"/proc/{parent}/task/{parent}/children").read_text().split()
    return [int(pid) for pid in children if b"spawn_main" in Path(f"/proc/{pid}/cmdline").read_bytes()]


def told(server: Server) -> dict[str, float]:
    """Answers of slices that were counted, and the limit of the chunk cache, which every worker has once."""
    answer = request(server.url, "/metrics")
    assert answer.status == 200
    text = answer.body.decode()
    asked = re.search(r'^hyperslab_requests_total\{method="GET",route="slice",status="200"\} (\S+)$', text, re.M)
    limit = re.search(r"^hyperslab_chunk_cache_limit_bytes (\S+)$", text, re.M)
    assert limit is not None
    return {"asked": float(asked[1]) if asked else 0, "limit": float(limit[1])}


def ask(server: Server, times: int) -> None:
    for _ in range(times):
        assert request(server.url, "/v1/slice/data/cube?select=0,0").status == 200


def wait_for(found: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not found():
        assert time.monotonic() < deadline
        time.sleep(0.05)


@contextmanager
def stopped(pid: int) -> Iterator[None]:
    """The process does nothing: another worker has to answer."""
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


def test_a_worker_that_does_not_run_for_some_seconds_is_not_replaced(crowd: Server) -> None:
    """As on a machine that is busy with something else: its requests would be lost."""
    first, second = workers(crowd)
    with stopped(first):
        time.sleep(7)
    time.sleep(1)

    assert workers(crowd) == [first, second]


def test_every_worker_tells_what_all_have_answered(crowd: Server) -> None:
    first, second = workers(crowd)

    with stopped(first):
        ask(crowd, 5)
        of_second = told(crowd)
    with stopped(second):
        ask(crowd, 7)
        of_first = told(crowd)
    with stopped(first):
        again = told(crowd)

    assert of_second == {"asked": 5, "limit": 2000}
    assert of_first == again == {"asked": 12, "limit": 2000}


def test_a_folder_that_was_emptied_is_filled_again(crowd: Server, tmp_path: Path) -> None:
    """As systemd does with what a user who logs out has in memory: the counters begin at zero."""
    ask(crowd, 5)
    for path in tmp_path.glob("*/*.db"):
        path.unlink()
    wait_for(lambda: told(crowd)["limit"] == 2000)
    ask(crowd, 7)

    assert told(crowd)["asked"] == 7


def test_nothing_counted_is_lost_when_a_worker_is_killed(crowd: Server) -> None:
    first, second = workers(crowd)
    with stopped(second):
        ask(crowd, 5)
        assert told(crowd)["asked"] == 5
    os.kill(first, signal.SIGKILL)

    counts: list[float] = []

    def replaced() -> bool:
        found = told(crowd)
        counts.append(found["asked"])
        return found["limit"] == 2000 and first not in workers(crowd)

    wait_for(replaced)
    ask(crowd, 3)
    wait_for(lambda: told(crowd)["asked"] == 8)

    assert set(counts) == {5}


def test_folder_of_the_numbers_ends_with_the_service(example_store: Path) -> None:
    with running_server({"data": example_store}, workers=2) as server:
        wait_for(lambda: len(workers(server)) == 2 and told(server)["limit"] > 0)
        mapped = "".join(Path(f"/proc/{worker}/maps").read_text() for worker in workers(server))
        (folder,) = {Path(line.split()[-1]).parent for line in mapped.splitlines() if "/hyperslab-" in line}
        names = {path.name for path in folder.iterdir()}

    assert {name.partition("_")[0] for name in names} == {"counter", "histogram", "gauge"}
    assert not folder.exists()
