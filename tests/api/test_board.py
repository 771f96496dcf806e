"""The numbers of several workers: added up, never smaller than before, and not lost with a worker."""

from __future__ import annotations

import os
import re
import shutil
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric

from hyperslab.api.board import Board, add_up
from tests.api.support import request
from tests.server import Server, running_server

PATIENCE = 30.0


def numbers(count: int, held: int, *routes: str) -> list[Metric]:
    """A counter and a histogram by route, and a gauge, as one worker has them."""
    counter = CounterMetricFamily("asked", "Requests.", labels=("route",))
    seconds = HistogramMetricFamily("seconds", "Times.", labels=("route",))
    for route in routes or ("slice",):
        counter.add_metric((route,), count)
        seconds.add_metric((route,), [("1.0", count - 1), ("+Inf", count)], count / 2)
    return [counter, seconds, GaugeMetricFamily("held", "Bytes.", held)]


def values(metrics: list[Metric]) -> dict[str, float]:
    """Samples by name and label values."""
    return {
        " ".join([sample.name, *sample.labels.values()]): sample.value
        for metric in metrics
        for sample in metric.samples
    }


@contextmanager
def boards(folder: Path, count: int) -> Iterator[list[Board]]:
    made = [Board(folder) for _ in range(count)]
    try:
        yield made
    finally:
        for board in made:
            board.close()


def test_equal_samples_are_added_and_families_stay_together() -> None:
    found = add_up([numbers(3, 10, "slice"), numbers(5, 20, "tile", "slice")])

    assert [metric.name for metric in found] == ["asked", "seconds", "held"]
    assert [metric.type for metric in found] == ["counter", "histogram", "gauge"]
    assert values(found) == {
        **{"asked_total slice": 8, "asked_total tile": 5, "held": 30},
        **{"seconds_bucket 1.0 slice": 6, "seconds_bucket +Inf slice": 8},
        **{"seconds_count slice": 8, "seconds_sum slice": 4.0},
        **{"seconds_bucket 1.0 tile": 4, "seconds_bucket +Inf tile": 5},
        **{"seconds_count tile": 5, "seconds_sum tile": 2.5},
    }


def test_whoever_is_asked_tells_at_least_what_was_told_before(tmp_path: Path) -> None:
    with boards(tmp_path / "made", 2) as (first, second):
        told_by_first = values(first.total(numbers(3, 10)))
        told_by_second = values(second.total(numbers(5, 20)))
        again = values(first.total(numbers(4, 11)))

    assert (told_by_first["asked_total slice"], told_by_first["held"]) == (3, 10)
    assert (told_by_second["asked_total slice"], told_by_second["held"]) == (8, 30)
    assert (again["asked_total slice"], again["held"]) == (9, 31)


def test_counters_of_a_worker_that_is_gone_stay_and_its_gauges_go(tmp_path: Path) -> None:
    with boards(tmp_path, 1) as (living,):
        with boards(tmp_path, 1) as (dying,):
            dying.write(numbers(5, 20))
        told = values(living.total(numbers(3, 10)))

    assert (told["asked_total slice"], told["held"]) == (8, 10)


def test_a_folder_that_was_emptied_is_filled_again(tmp_path: Path) -> None:
    """As systemd does with what a user who logs out has in memory."""
    folder = tmp_path / "made"
    with boards(folder, 2) as (first, second):
        for pattern in ("*.lock", "*"):
            second.write(numbers(5, 20))
            for path in folder.glob(pattern):
                path.unlink()
            alone = values(first.total(numbers(3, 10)))
            second.write(numbers(5, 20))
            told = values(first.total(numbers(3, 10)))

            assert alone["asked_total slice"] in (3, 8)
            assert (told["asked_total slice"], told["held"]) == (8, 30)
        shutil.rmtree(folder)
        third = Board(folder)  # takes the slot of one that has not noticed yet
        for board, count in ((third, 1), (first, 3), (second, 5), (third, 1)):
            told = values(board.total(numbers(count, 10)))
        third.close()

    assert (told["asked_total slice"], told["held"]) == (9, 30)


def test_who_follows_takes_the_slot_and_counts_on(tmp_path: Path) -> None:
    for _ in range(3):
        with boards(tmp_path, 1) as (board,):
            told = values(board.total(numbers(5, 20)))

    assert (told["asked_total slice"], told["held"]) == (15, 20)
    assert {path.name for path in tmp_path.iterdir()} == {"0.lock", "0.json"}


def test_numbers_that_have_not_changed_are_not_written_again(tmp_path: Path) -> None:
    with boards(tmp_path, 1) as (board,):
        board.write(numbers(5, 20))
        before = (tmp_path / "0.json").stat().st_ino
        board.write(numbers(5, 20))
        same = (tmp_path / "0.json").stat().st_ino
        board.write(numbers(6, 20))
        (stored,) = [path for path in tmp_path.iterdir() if path.suffix == ".json"]

    assert same == before
    assert b'"route":"slice"},6' in stored.read_bytes().replace(b" ", b"")


def test_who_cannot_write_tells_what_was_written_last(tmp_path: Path) -> None:
    """A folder in the place of the new file, as for a full disk there is no telling how much fits."""
    with boards(tmp_path, 2) as (first, second):
        second.write(numbers(5, 20))
        (tmp_path / "0.new").mkdir()
        never_written = values(first.total(numbers(3, 10)))
        (tmp_path / "0.new").rmdir()
        first.write(numbers(3, 10))
        (tmp_path / "0.new").mkdir()
        told_by_first = values(first.total(numbers(4, 11)))
        told_by_second = values(second.total(numbers(5, 20)))

    assert (never_written["asked_total slice"], never_written["held"]) == (5, 20)
    assert told_by_first == told_by_second
    assert (told_by_first["asked_total slice"], told_by_first["held"]) == (8, 30)


def test_counters_are_told_where_somebody_has_tidied_the_folder_up(tmp_path: Path) -> None:
    with boards(tmp_path, 2) as (first, second):
        second.write(numbers(5, 20))
        (tmp_path / "1.lock").unlink()
        told = values(first.total(numbers(3, 10)))

    assert told["asked_total slice"] == 8


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


def test_numbers_are_there_without_anybody_asking_the_worker_that_has_them(crowd: Server, tmp_path: Path) -> None:
    first, second = workers(crowd)

    with stopped(first):
        ask(crowd, 5)
    wait_for(lambda: any(b'"slice","status":"200"},5' in path.read_bytes() for path in tmp_path.glob("*.json")))

    with stopped(second):
        assert told(crowd)["asked"] == 5


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
        environment = Path(f"/proc/{workers(server)[0]}/environ").read_bytes().decode().split("\0")
        (folder,) = [Path(text.partition("=")[2]) for text in environment if text.startswith("HYPERSLAB_METRICS")]
        names = {path.name for path in folder.iterdir()}

    assert {"0.lock", "0.json"} <= names
    assert not folder.exists()
