"""The metrics of several workers: added up, never smaller than before, and not lost with a worker."""

from __future__ import annotations

import os
import re
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.api.support import request
from tests.server import Server, running_server, wait_until


def test_a_worker_without_a_place_for_its_numbers_serves_and_tells_its_own(example_store: Path, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with running_server({"data": example_store}, metrics_folder=str(tmp_path / "file")) as server:
        ask(server, 2)

        assert told(server)["asked"] == 2
        assert "its own numbers only" in server.log


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


@contextmanager
def stopped(pid: int) -> Iterator[None]:
    """The process does nothing: another worker has to answer."""
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


def test_the_numbers_of_two_workers_are_one_whatever_becomes_of_a_worker_or_of_their_folder(
    example_store: Path,
) -> None:
    with running_server({"data": example_store}, executed=True, workers=2, cache_bytes=1000) as server:
        wait_until(lambda: told(server)["limit"] == 2000)
        first, second = workers(server)
        mapped = "".join(Path(f"/proc/{worker}/maps").read_text() for worker in (first, second))
        (folder,) = {Path(line.split()[-1]).parent for line in mapped.splitlines() if "/hyperslab-" in line}
        assert {path.name.partition("_")[0] for path in folder.iterdir()} == {"counter", "histogram", "gauge"}

        with stopped(first):  # for longer than uvicorn waits for one: a busy machine may not let it run
            ask(server, 5)
            assert told(server) == {"asked": 5, "limit": 2000}
            time.sleep(6)
        with stopped(second):
            ask(server, 7)
            assert told(server) == {"asked": 12, "limit": 2000}
        with stopped(first):
            assert told(server) == {"asked": 12, "limit": 2000}
        assert workers(server) == [first, second]

        for path in folder.glob("*.db"):  # as systemd does when a user logs out: the counters begin at zero
            path.unlink()
        wait_until(lambda: told(server)["limit"] == 2000)
        with stopped(second):
            ask(server, 8)
            assert told(server)["asked"] == 8
        os.kill(first, signal.SIGKILL)
        counts: list[float] = []

        def replaced() -> bool:
            found = told(server)
            counts.append(found["asked"])
            return found["limit"] == 2000 and first not in workers(server)

        wait_until(replaced)
        ask(server, 3)
        wait_until(lambda: told(server)["asked"] == 11)
        assert set(counts) == {8}
        wait_until(lambda: server.log.count("Application startup complete") == 3)

    assert not folder.exists()
