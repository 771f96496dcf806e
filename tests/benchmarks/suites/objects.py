"""Slices of objects of 64 KiB from an S3-style endpoint: 1,024, next to nothing but concurrent gets, and a few."""

from __future__ import annotations

import json
import statistics
import subprocess
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

from tests.benchmarks.cases import Case, Selection
from tests.benchmarks.data import ArraySpec, field, make
from tests.benchmarks.processes import module
from tests.benchmarks.programs import Program, ProgramFailed, Running, quiet_server, running
from tests.benchmarks.readers import BUCKET, bucket_options
from tests.benchmarks.report import duration, ratio, times
from tests.benchmarks.results import Measurement, Outcome, Table, Target
from tests.benchmarks.suite import Bench, Suite

ENGINE: Final = "Hyperslab"
REMOTE: Final = "RemoteArray"
TENSORSTORE: Final = "TensorStore"
THREADS: Final = "obstore, threads"
ASYNC: Final = "obstore, async"

OBJECTS: Final = ArraySpec("objects", (4096, 4096), (128, 128), "<f4", None, field)
_LATENCIES: Final = (0, 10, 50)
_WHOLE: Final = (slice(0, 4096), slice(0, 4096))
_SMALL: Final[Mapping[str, Selection]] = {
    "one object": (slice(5, 6), slice(5, 6)),
    "64 objects": (slice(0, 1024), slice(0, 1024)),
}
_MOST: Final = 1.3
_READS: Final = 2
"""A sample is a read that is not timed, and one that is."""


def measure(bench: Bench) -> Iterator[Measurement]:
    folder = bench.folder / "bucket"
    make(folder, OBJECTS)
    with ExitStack() as stack:
        endpoint = stack.enter_context(object_server(folder))
        workers, problems = stack.enter_context(running(_programs(endpoint, stack)))
        workers = _those_that_can(workers, problems)
        for problem in problems:
            bench.note(problem)
        for latency in _LATENCIES:
            _control(endpoint, f"latency/{latency}")
            bench.say(f"  {latency} ms")
            yield from _in_turns(Case(OBJECTS, f"{latency} ms", _WHOLE), workers, endpoint, bench)
            for name, items in _SMALL.items():
                able = [worker for worker in workers if worker.program.title in (REMOTE, TENSORSTORE)]
                yield from _in_turns(Case(OBJECTS, f"{name}, {latency} ms", items), able, endpoint, bench)


@contextmanager
def object_server(folder: Path) -> Iterator[str]:
    """The bucket server in a process of its own; yields its endpoint."""
    with module("tests.benchmarks.object_server", str(folder)) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        if not line:
            raise subprocess.SubprocessError("the object server did not start")
        yield f"http://127.0.0.1:{int(line)}"


def _programs(endpoint: str, stack: ExitStack) -> Iterator[Program]:
    store = {"url": f"s3://{BUCKET}", "options": bucket_options(endpoint)}
    server = stack.enter_context(quiet_server({"data": store}, cache_bytes=0, answer_cache_bytes=0))
    yield Program(THREADS, "bucket-threads", endpoint)
    yield Program(ASYNC, "bucket-async", endpoint)
    yield Program(ENGINE, "bucket-hyperslab", endpoint)
    yield Program(REMOTE, "remote-array", server.url, serving=[server.process.pid])
    yield Program(TENSORSTORE, "bucket-tensorstore", endpoint)


def _those_that_can(workers: Sequence[Running], problems: list[str]) -> list[Running]:
    able = []
    for worker in workers:
        try:
            worker.sample(Case(OBJECTS, "first", _WHOLE), 1)
        except ProgramFailed as failure:
            problems.append(str(failure))
        else:
            able.append(worker)
    return able


def _in_turns(case: Case, workers: Sequence[Running], endpoint: str, bench: Bench) -> Iterator[Measurement]:
    rounds = 2 if bench.quick else bench.effort.rounds
    walls: dict[str, list[float]] = {worker.program.title: [] for worker in workers}
    requests: dict[str, dict[str, int]] = {}
    for _ in range(rounds):
        for worker in workers:
            title = worker.program.title
            _control(endpoint, "counts")
            walls[title].append(worker.sample(case, 1).wall)
            requests[title] = {kind: count // _READS for kind, count in _control(endpoint, "counts").items()}
    for title, taken in walls.items():
        gets = requests[title].get("get", 0)
        others = sum(requests[title].values()) - gets
        values = {"wall": statistics.median(taken), "wall_min": min(taken), "gets": gets, "other_requests": others}
        yield Measurement(case.name, title, values)


def _control(endpoint: str, what: str) -> dict[str, int]:
    with urllib.request.urlopen(f"{endpoint}/-/{what}", timeout=30) as answer:
        found: dict[str, int] = json.load(answer)
        return found


def tables(outcome: Outcome) -> list[Table]:
    small = [case for case in outcome.cases() if "," in case]
    return [_whole(outcome, [case for case in outcome.cases() if case not in small]), _parts(outcome, small)]


def _whole(outcome: Outcome, cases: Sequence[str]) -> Table:
    programs = outcome.programs()
    shares = [f"{name} ÷ bare" for name in (ENGINE, REMOTE)]
    rows = []
    for case in cases:
        cells = [duration(outcome.value(case, name)) for name in programs]
        cells += [times(ratio(outcome.value(case, name), _bare(outcome, case))) for name in (ENGINE, REMOTE)]
        rows.append([case, *cells, *_requests(outcome, case, ENGINE)])
    return Table("1,024 objects of 64 KiB", ["latency", *programs, *shares, "gets", "other requests"], rows)


def _parts(outcome: Outcome, cases: Sequence[str]) -> Table:
    programs = (REMOTE, TENSORSTORE)
    rows = []
    for case in cases:
        cells = [duration(outcome.value(case, name)) for name in programs]
        share = times(ratio(outcome.value(case, REMOTE), outcome.value(case, TENSORSTORE)))
        rows.append([case, *cells, share, *_requests(outcome, case, REMOTE)])
    return Table("few objects of 64 KiB", ["read", *programs, "÷ TensorStore", "gets", "other requests"], rows)


def _requests(outcome: Outcome, case: str, name: str) -> list[str]:
    return [f"{outcome.value(case, name, kind):.0f}" for kind in ("gets", "other_requests")]


def targets(outcome: Outcome) -> Iterator[Target]:
    for case in [case for case in outcome.cases() if "," not in case]:
        share = ratio(outcome.value(case, ENGINE), _bare(outcome, case)) or 9
        yield Target(f"{case} latency: within 1.3× of bare gets", f"{share:.2f}×", share <= _MOST)
    for name in (ENGINE, REMOTE):
        yield _all_requests(outcome, name)


def _all_requests(outcome: Outcome, name: str) -> Target:
    """The constant is that of each of the requests that the client sends."""
    cases = [case for case in outcome.cases() if "," not in case]
    gets = {outcome.value(case, name, "gets") for case in cases}
    most = max((outcome.value(case, name, "other_requests") or 0 for case in cases), default=0)
    found = f"{', '.join(f'{n:.0f}' for n in gets if n is not None)} gets, {most:.0f} other requests"
    return Target(f"{name}: as many requests as chunks, plus a constant", found, gets == {1024.0} and most <= 16)


def _bare(outcome: Outcome, case: str) -> float | None:
    """The faster of the two ways to do nothing else."""
    return min(filter(None, (outcome.value(case, name) for name in (THREADS, ASYNC))), default=None)


SUITE: Final = Suite("objects", "Object stores", measure, tables, lambda outcome: list(targets(outcome)))
