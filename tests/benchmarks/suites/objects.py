"""Slices of objects of 64 KiB from an S3-style endpoint: 1,024, next to nothing but concurrent gets, and a few."""

from __future__ import annotations

import json
import subprocess
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Final

from tests.benchmarks.cases import Case, Selection
from tests.benchmarks.data import ArraySpec, field, make
from tests.benchmarks.processes import python
from tests.benchmarks.programs import (
    Program,
    ProgramFailed,
    Running,
    Sample,
    quiet_server,
    running,
    summary,
    take_turns,
)
from tests.benchmarks.readers import BUCKET, bucket_options
from tests.benchmarks.report import duration, ratio, times
from tests.benchmarks.suite import Bench, Effort, Measurement, Outcome, Suite, Table, Target

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
        bench.note(*problems)
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
    with python("-m", "tests.benchmarks.object_server", str(folder)) as process:
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
    requests: dict[str, dict[str, int]] = {}

    def counted(worker: Running) -> Sample:
        _control(endpoint, "counts")
        sample = worker.sample(case, 1)
        requests[worker.program.title] = _control(endpoint, "counts")
        return sample

    works = {worker.program.title: partial(counted, worker) for worker in workers}
    effort = Effort(2 if bench.quick else bench.effort.rounds, float("inf"))
    for found in summary(case.name, take_turns(works, effort)):
        counts = {kind: count // _READS for kind, count in requests[found.program].items()}
        gets = counts.get("get", 0)
        values = {**found.values, "gets": gets, "other_requests": sum(counts.values()) - gets}
        yield Measurement(found.case, found.program, values)


def _control(endpoint: str, what: str) -> dict[str, int]:
    with urllib.request.urlopen(f"{endpoint}/-/{what}", timeout=30) as answer:
        found: dict[str, int] = json.load(answer)
        return found


def tables(outcome: Outcome) -> list[Table]:
    small = [case for case in outcome.cases() if "," in case]
    whole = [case for case in outcome.cases() if case not in small]
    bare = {f"{name} ÷ bare": {case: _to_bare(outcome, case, name) for case in whole} for name in (ENGINE, REMOTE)}
    ratios = {"÷ TensorStore": outcome.ratios(REMOTE, TENSORSTORE)}
    return [
        _table(outcome, "1,024 objects of 64 KiB", whole, outcome.programs(), bare, ENGINE),
        _table(outcome, "few objects of 64 KiB", small, (REMOTE, TENSORSTORE), ratios, REMOTE),
    ]


def _table(
    outcome: Outcome,
    title: str,
    cases: Sequence[str],
    programs: Sequence[str],
    shares: Mapping[str, Mapping[str, float | None]],
    counted: str,
) -> Table:
    rows = []
    for case in cases:
        cells = [duration(outcome.value(case, name)) for name in programs]
        cells += [times(share.get(case)) for share in shares.values()]
        rows.append(
            [case, *cells, *(f"{outcome.value(case, counted, n) or 0:.0f}" for n in ("gets", "other_requests"))]
        )
    return Table(title, ["read", *programs, *shares, "gets", "other requests"], rows)


def targets(outcome: Outcome) -> Iterator[Target]:
    cases = [case for case in outcome.cases() if "," not in case]
    for case in cases:
        share = _to_bare(outcome, case, ENGINE) or 9
        yield Target(f"{case} latency: within 1.3× of bare gets", f"{share:.2f}×", share <= _MOST)
    for name in (ENGINE, REMOTE):  # the constant is that of each of the requests that the client sends
        gets = {outcome.value(case, name, "gets") for case in cases}
        most = max((outcome.value(case, name, "other_requests") or 0 for case in cases), default=0)
        found = f"{', '.join(f'{n:.0f}' for n in gets if n is not None)} gets, {most:.0f} other requests"
        met = gets == {1024.0} and most <= 16
        yield Target(f"{name}: as many requests as chunks, plus a constant", found, met)


def _to_bare(outcome: Outcome, case: str, name: str) -> float | None:
    """Relative to the faster of the two ways to do nothing else."""
    bare = outcome.fastest(case, (THREADS, ASYNC))
    return ratio(outcome.value(case, name), bare and bare[0])


SUITE: Final = Suite("objects", "Object stores", measure, tables, targets)
